"""The emulators of many agents in shifts, so that there is always one at work.

Whoever has to think about what one shift showed lets the others go on meanwhile. All agents have as many emulators in every shift. Rows are
those of the agents, one agent's emulators after the other's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from actiongap.arena.atari.emulators import Emulators, Seen
from actiongap.machine import cores


class Shifts:
    """Emulators that can be stepped all together, or shift by shift.

    Parameters
    ----------
    games
        The game of each agent.
    each
        How many emulators an agent has.
    sticky
        How likely each frame is to repeat the action of the frame before.
    count
        How many shifts there are; it divides `each`.

    Examples
    --------
    >>> shifts = Shifts(["pong", "asterix"], each=4, sticky=0.25, count=2)
    >>> [part.games for part in shifts.parts]
    [('pong', 'pong', 'asterix', 'asterix'), ('pong', 'pong', 'asterix', 'asterix')]
    >>> shifts.begin(range(8)).frame.shape
    (8, 84, 84)
    >>> shifts.close()
    """

    def __init__(self, games: Sequence[str], each: int, sticky: float, count: int):
        # All shifts are at work most of the time, so they share the cores.
        rows, threads = [game for game in games for _ in range(each // count)], max(1, cores() // count)
        self.parts = tuple(Emulators(rows, sticky, threads) for _ in range(count))
        """The shifts."""
        self._agents = len(games)

    def of_part(self, rows: ArrayLike, part: int) -> NDArray:
        """Of numbers for all emulators those of one shift."""
        rows = np.asarray(rows).reshape(self._agents, len(self.parts), -1)
        return rows[:, part].reshape(-1)

    def begin(self, seeds: ArrayLike) -> Seen:
        """Begin a game on every emulator."""
        return self._together([part.begin(self.of_part(seeds, k)) for k, part in enumerate(self.parts)])

    def send(self, actions: ArrayLike) -> None:
        """Let every emulator take a step with its action, and do not wait for them."""
        for k, part in enumerate(self.parts):
            part.send(self.of_part(actions, k))

    def receive(self) -> Seen:
        """What the step showed that was sent last, as soon as all have taken it."""
        return self._together([part.receive() for part in self.parts])

    def close(self) -> None:
        """Let go of the emulators and their threads."""
        for part in self.parts:
            part.close()

    def _together(self, seen: Sequence[Seen]) -> Seen:
        def rows(*some: NDArray) -> NDArray:
            found = np.stack([part.reshape(self._agents, -1, *part.shape[1:]) for part in some], axis=1)
            return found.reshape(-1, *found.shape[3:])

        return seen[0] if len(seen) == 1 else Seen(*map(rows, *seen))
