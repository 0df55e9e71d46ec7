"""Sweeps, queries and episodes on a CPU, compiled by Numba."""
