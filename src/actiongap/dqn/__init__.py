"""Deep agents: one DQN whose operator is an argument, trained alone or as a whole population at once."""
