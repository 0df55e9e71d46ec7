"""Planning on grids of continuous states."""
