"""Freeway: a chicken crosses eight lanes of cars.

The chicken starts below the lanes and goes up or down, at most one row in three steps. A car that meets it throws it back to the start.
Each crossing is worth 1, after which it starts anew, and every car gets a new heading and a new speed; cars that leave at one side come in
at the other. The game lasts 2501 steps, whatever happens.

What makes it difficult is that rewards are far apart: a crossing takes some 27 steps at least, none of which says that it went the right
way, and random play hardly ever gets across. Cars are slow or fast (one cell in two steps, up to one in six), which only the layer of their
trail tells, and the best play neither waits when it could go nor goes where it will have to wait.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.minatar.board import SIDE, integer, lanes

CARS = 8
"""One a row: car i is in row i + 1."""
ROWS = np.arange(1, CARS + 1, dtype=np.int32)
"""The row of each car."""
COLUMN = 4
"""Of the chicken."""
PAUSE = 3
"""Steps from one move of the chicken to the next."""
SLOWEST = 5
"""The slowest cars move in one of six steps."""


class State(NamedTuple):
    """A chicken among cars."""

    row: Any
    """Of the chicken."""
    pause: Any
    """Steps before the next one in which the chicken can move."""
    clock: Any
    """Steps before the last one; -1 when the game is over."""
    cols: Any
    """The columns of the cars."""
    right: Any
    """Whether they head to the right, rather than to the left."""
    slow: Any
    """How slow they are, from 1 to 5: a car moves in one of so many steps and one more."""
    waits: Any
    """Steps before the next one in which they move."""


class Chance(NamedTuple):
    """What the numbers are for, at the start and in each step: how the cars will go, one number a car in each field."""

    slow: Any
    """How slow: from 1 to 5."""
    heading: Any
    """To the left below 1/2."""


def drawn(u: Any) -> tuple[Any, Any]:
    """Whether each car is to head to the right, and how slow it is to be.

    Examples
    --------
    >>> right, slow = drawn(jnp.array([0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.9, 0.9] + 4 * [0.2, 0.8]))
    >>> [int(number) for number in jnp.where(right, slow, -slow)]
    [-1, 1, -2, 3, -4, 5, -5, 5]
    """
    chance = Chance(u[:CARS], u[CARS:])
    return chance.heading >= 0.5, integer(chance.slow, SLOWEST, low=1)


def start(u: Any) -> State:
    """The chicken below the lanes, all cars at the left edge.

    Examples
    --------
    >>> state = start(jnp.full(16, 0.7))
    >>> int(state.row), bool(state.right[0]), int(state.slow[0]), int(state.waits[0])
    (9, True, 4, 4)
    """
    right, slow = drawn(u)
    return State(jnp.int32(9), jnp.int32(PAUSE), jnp.int32(2500), jnp.zeros(CARS, jnp.int32), right, slow, slow)


def step(state: State, action: Any, u: Any) -> tuple[State, Any, Any]:
    """The chicken moves, then the cars; 1 for a crossing, and the end when the time is over.

    Examples
    --------
    >>> state = start(jnp.full(16, 0.7))._replace(row=jnp.int32(1), pause=jnp.int32(0))
    >>> state, reward, ended = step(state, 2, jnp.zeros(16))
    >>> int(state.row), int(state.slow[0]), float(reward), bool(ended)
    (9, 1, 1.0, False)
    """
    moves = (state.pause == 0) & ((action == 2) | (action == 4))
    row = jnp.where(moves, jnp.minimum(state.row + jnp.where(action == 4, 1, -1), 9), state.row)
    across = row == 0
    right, slow = (jnp.where(across, new, old) for new, old in zip(drawn(u), (state.right, state.slow), strict=True))

    going = ~across & (state.waits == 0)
    cols = jnp.where(going, _round(state.cols + jnp.where(state.right, 1, -1)), state.cols)
    # No car is in row 0 or row 9, so a chicken that has crossed meets none, and of the others each meets the car of its row alone.
    hit = jnp.any((row == ROWS) & ((state.cols == COLUMN) | (cols == COLUMN)))

    clock = state.clock - 1
    new = State(
        row=jnp.where(across | hit, 9, row),
        pause=jnp.where(moves, PAUSE - 1, jnp.maximum(state.pause - 1, 0)),
        clock=clock,
        cols=cols,
        right=right,
        slow=slow,
        # Cars that have just been told how to go do not go in the same step, but it is the first that they wait.
        waits=jnp.where(across, slow - 1, jnp.where(going, slow, state.waits - 1)),
    )
    return new, across.astype(jnp.float32), clock < 0


def observe(state: State) -> Any:
    """Chicken, cars, and the cell behind each car (round the edge) in one of five layers, from the fastest to the slowest: no timers.

    Examples
    --------
    >>> [int(number) for number in observe(start(jnp.full(16, 0.7))).sum((0, 1))]
    [1, 8, 0, 0, 0, 8, 0]
    """
    behind = _round(state.cols + jnp.where(state.right, -1, 1))
    layer = np.arange(1, 2 + SLOWEST, dtype=np.int32)
    trails = jnp.where(layer == 1 + state.slow[:, None], behind[:, None], -1)
    return lanes(state.row, COLUMN, jnp.where(layer == 1, state.cols[:, None], trails))


def _round(cols: Any) -> Any:
    """Columns just off the board, taken to its other side."""
    return jnp.where(cols < 0, SIDE - 1, jnp.where(cols >= SIDE, 0, cols))


FREEWAY = FunctionalEnv(
    "freeway",
    actions=("stay", "up", "down"),
    numbers=(0, 2, 4),
    shape=(SIDE, SIDE, 2 + SLOWEST),
    start=start,
    step=step,
    observe=observe,
    start_chance=2 * CARS,
    chance=2 * CARS,
)
