"""The five games of MinAtar as pure JAX functions, written for accelerators: no scatters, and random numbers as arguments.

The rules are those of Young and Tian, "MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible Reinforcement Learning Experiments"
(2019). The tests compare every step with the original.
"""

from actiongap.envs.minatar.asterix import ASTERIX
from actiongap.envs.minatar.breakout import BREAKOUT
from actiongap.envs.minatar.freeway import FREEWAY
from actiongap.envs.minatar.seaquest import SEAQUEST
from actiongap.envs.minatar.space_invaders import SPACE_INVADERS

GAMES = {game.name: game for game in (ASTERIX, BREAKOUT, FREEWAY, SEAQUEST, SPACE_INVADERS)}
