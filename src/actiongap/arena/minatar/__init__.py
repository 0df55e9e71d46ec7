"""MinAtar's five games, written for accelerators: small boards, no scatters, chance handed in.

The games are those of Young and Tian, "MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible Reinforcement Learning Experiments"
(2019), rule for rule; the tests play them beside the original.
"""

from actiongap.arena.minatar.asterix import ASTERIX
from actiongap.arena.minatar.breakout import BREAKOUT
from actiongap.arena.minatar.freeway import FREEWAY
from actiongap.arena.minatar.seaquest import SEAQUEST
from actiongap.arena.minatar.space_invaders import SPACE_INVADERS

GAMES = {game.name: game for game in (ASTERIX, BREAKOUT, FREEWAY, SEAQUEST, SPACE_INVADERS)}
