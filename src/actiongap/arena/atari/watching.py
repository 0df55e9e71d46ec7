"""One game to be watched: as an agent sees it and as people do.

The game is emulated twice, with the same seed and actions: once small and in grey for the agent, once with the whole screen in colour.
Nothing but the picture differs, so it is of the game that the agent plays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from actiongap.arena.atari.emulators import LIMIT, Emulators, vector_environment
from actiongap.arena.atari.games import atari_game


class Console:
    """A game from its beginning to its end, in grey and in colour.

    Parameters
    ----------
    name
        The game.
    sticky
        How likely each frame is to repeat the action of the frame before.
    seed
        From 0 to 2,147,483,647.
    limit
        Frames after which the game is cut short.

    Examples
    --------
    >>> console = Console("breakout", sticky=0.25, seed=1)
    >>> console.step(1), console.frame.shape, console.picture.shape
    ((0.0, False, False), (84, 84), (210, 160, 3))
    """

    def __init__(self, name: str, sticky: float, seed: int, *, limit: int = LIMIT):
        self.game = atari_game(name)
        """What is played."""
        self._grey = Emulators([name], sticky, 1, limit=limit)
        self._colour = vector_environment(name, 1, sticky, 1, limit, self.game.screen, colour=True)
        self.frame: NDArray[np.uint8] = self._grey.begin([seed]).frame[0]
        """(84, 84), as an agent sees it."""
        self.picture: NDArray[np.uint8] = self._colour.reset(seed=np.array([seed]))[0][0, 0]
        """(rows, columns, 3), red, green and blue of the whole screen."""
        self._ended = False

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Take a step: the reward, whether the game is over, and whether it was cut short."""
        if self._ended:
            raise ValueError("the game is over: make another Console.")
        self._grey.send([action])
        self.picture = self._colour.step(np.array([action]))[0][0, 0]
        seen = self._grey.receive()
        self.frame = seen.frame[0]
        over, cut = bool(seen.over[0]), bool(seen.cut[0])
        self._ended = over or cut
        return float(seen.reward[0]), over, cut
