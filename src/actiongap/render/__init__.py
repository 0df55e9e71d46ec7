"""Pixels: a canvas to draw on, and frames written as video."""
