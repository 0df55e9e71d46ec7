"""Reports of runs: web pages, figures, tables and TensorBoard event files."""
