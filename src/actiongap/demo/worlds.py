"""The two problems of the page: the cake, and a garden of five by six fields.

A world is a finite MDP whose rewards are a function of gamma and epsilon. The function is plain arithmetic, so that the same one makes
`FiniteMDP`s here and, translated, rewards on the page.

The garden: each step costs epsilon, home pays 1 and a pond costs 1, and both end the walk. One step in five slips, half of those to each
side, and who would walk into a hedge stays. The smaller epsilon, and the nearer gamma is to 1, the less it matters which way one goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from actiongap.mdp.generators import MOVES, cake, cake_rewards
from actiongap.mdp.model import FiniteMDP, Sparse

GARDEN = (
    ".....H",
    ".##.O.",
    "....#.",
    "#.O...",
    "...#..",
)
"""Fields `.`, hedges `#`, ponds `O` and home `H`."""
PAYS = {"H": 1.0, "O": -1.0}
"""What it pays to come to a field on which the walk ends."""
SLIP = 0.2


@dataclass(frozen=True, eq=False)
class World:
    """A finite MDP but for its discount and epsilon."""

    rewards: Callable[[Any, Any], list[list[Any]]]
    """R(x, a) as a function of gamma and epsilon."""
    successors: np.ndarray
    """(S, A, K)."""
    probabilities: np.ndarray
    """(S, A, K)."""

    def mdp(self, gamma: float, epsilon: float) -> FiniteMDP:
        """The MDP.

        Examples
        --------
        >>> cake_world().mdp(0.5, 1.0).rewards[1].tolist()
        [-4.0, -4.0]
        """
        return FiniteMDP.from_successors(self.rewards(gamma, epsilon), self.successors, self.probabilities, gamma)


def cake_world() -> World:
    """The paper's cake.

    Examples
    --------
    >>> cake_world().successors.shape
    (2, 2, 2)
    """
    transitions = cake().sparse().transitions
    assert isinstance(transitions, Sparse)
    return World(cake_rewards, *transitions)


def garden_world() -> World:
    """The garden: every place is a state, numbered row by row; hedges, ponds and home pay nothing and are never left.

    Examples
    --------
    >>> world = garden_world()
    >>> world.rewards(0.9, 0.5)[0], world.successors[0, 1].tolist()
    ([-0.5, -0.5, -0.5, -0.5], [1, 6, 0])
    """
    rows, columns = len(GARDEN), len(GARDEN[0])
    signs = np.array([list(row) for row in GARDEN])
    ends = signs != "."
    successors = np.empty((rows * columns, 4, 3), int)
    for x in range(rows * columns):
        here = divmod(x, columns)
        reached = [here if ends[here] else _moved(signs, here, move) for move in MOVES]
        for a in range(4):
            successors[x, a] = [reached[turn % 4][0] * columns + reached[turn % 4][1] for turn in (a, a + 1, a - 1)]
    probabilities = np.broadcast_to([1 - SLIP, SLIP / 2, SLIP / 2], successors.shape)
    paid = np.vectorize(lambda sign: PAYS.get(sign, 0.0))(signs.ravel())
    prizes = (probabilities * paid[successors]).sum(-1).round(12)

    def rewards(gamma: Any, epsilon: Any) -> list[list[Any]]:
        return [[0.0 if ended else float(prize) - epsilon for prize in prizes[x]] for x, ended in enumerate(ends.ravel())]

    return World(rewards, successors, probabilities)


def _moved(signs: np.ndarray, here: tuple[int, int], move: tuple[int, int]) -> tuple[int, int]:
    row, column = here[0] + move[0], here[1] + move[1]
    inside = 0 <= row < signs.shape[0] and 0 <= column < signs.shape[1]
    return (row, column) if inside and signs[row, column] != "#" else here
