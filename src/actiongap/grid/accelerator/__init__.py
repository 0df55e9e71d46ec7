"""Sweeps and episodes with JAX, on an accelerator, several, or those of several processes."""
