"""Built-in kinds of experiments: learning on finite MDPs, planning on grids, and training of deep agents."""
