"""MinAtar's five games, written for accelerators: small boards, no scatters, chance handed in.

The games are those of Young and Tian, "MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible Reinforcement Learning Experiments"
(2019), rule for rule; the tests play them beside the original.
"""

from actiongap.envs.minatar.asterix import ASTERIX
from actiongap.envs.minatar.breakout import BREAKOUT
from actiongap.envs.minatar.freeway import FREEWAY
from actiongap.envs.minatar.seaquest import SEAQUEST
from actiongap.envs.minatar.space_invaders import SPACE_INVADERS

GAMES = {game.name: game for game in (ASTERIX, BREAKOUT, FREEWAY, SEAQUEST, SPACE_INVADERS)}
