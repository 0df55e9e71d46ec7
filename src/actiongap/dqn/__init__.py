"""Deep agents: one DQN with an operator as argument, trained alone or as a population in one compiled program."""
