"""Freeway: a chicken crosses eight lanes of cars.

The chicken starts below the lanes and moves up or down, at most one row in three steps. A car that hits it sends it back to the start. Each
crossing has a reward of 1; then the chicken starts again, and every car gets a new direction and speed. Cars that leave at one side
re-enter at the other. Every game lasts 2501 steps.

The difficulty is sparse rewards: a crossing takes at least 27 steps without any feedback, and random play almost never succeeds. Cars move
one cell in two to six steps; only the layer of their trail shows how fast. Optimal play moves up whenever this does not force it to wait
later.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.minatar.board import SIDE, integer, lanes

CARS = 8
"""Number of cars; car i is in row i + 1."""
ROWS = np.arange(1, CARS + 1, dtype=np.int32)
"""The row of each car."""
COLUMN = 4
"""Column of the chicken."""
PAUSE = 3
"""Minimum number of steps between two moves of the chicken."""
SLOWEST = 5
"""Slowness of the slowest cars, which move in one of six steps."""


class State(NamedTuple):
    """State of the game."""

    row: Any
    """Row of the chicken."""
    pause: Any
    """Steps until the step in which the chicken can move."""
    clock: Any
    """Steps until the last step; -1 when the game is over."""
    cols: Any
    """Columns of the cars."""
    right: Any
    """Whether the cars move to the right."""
    slow: Any
    """Slowness of the cars, from 1 to 5: a car moves in one of slow + 1 steps."""
    waits: Any
    """Steps until the step in which each car moves."""


class Uniforms(NamedTuple):
    """The uniform numbers of a start or a step, which determine new cars; each field has one number per car."""

    slow: Any
    """The slowness, from 1 to 5."""
    heading: Any
    """To the left below 1/2."""


def random_cars(u: Any) -> tuple[Any, Any]:
    """Return whether each car moves to the right, and its slowness.

    Examples
    --------
    >>> right, slow = random_cars(jnp.array([0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.9, 0.9] + 4 * [0.2, 0.8]))
    >>> [int(number) for number in jnp.where(right, slow, -slow)]
    [-1, 1, -2, 3, -4, 5, -5, 5]
    """
    uniforms = Uniforms(u[:CARS], u[CARS:])
    return uniforms.heading >= 0.5, integer(uniforms.slow, SLOWEST, low=1)


def start(u: Any) -> State:
    """Return a new game: the chicken below the lanes, all cars at the left edge.

    Examples
    --------
    >>> state = start(jnp.full(16, 0.7))
    >>> int(state.row), bool(state.right[0]), int(state.slow[0]), int(state.waits[0])
    (9, True, 4, 4)
    """
    right, slow = random_cars(u)
    return State(jnp.int32(9), jnp.int32(PAUSE), jnp.int32(2500), jnp.zeros(CARS, jnp.int32), right, slow, slow)


def step(state: State, action: Any, u: Any) -> tuple[State, Any, Any]:
    """Take a step: the chicken moves, then the cars. A crossing has a reward of 1, and the game ends after its last step.

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
    right, slow = (jnp.where(across, new, old) for new, old in zip(random_cars(u), (state.right, state.slow), strict=True))

    going = ~across & (state.waits == 0)
    cols = jnp.where(going, _wrap(state.cols + jnp.where(state.right, 1, -1)), state.cols)
    # No car is in row 0 or row 9, so a chicken that has crossed is not hit, and in other rows only the car of that row can hit it.
    hit = jnp.any((row == ROWS) & ((state.cols == COLUMN) | (cols == COLUMN)))

    clock = state.clock - 1
    new = State(
        row=jnp.where(across | hit, 9, row),
        pause=jnp.where(moves, PAUSE - 1, jnp.maximum(state.pause - 1, 0)),
        clock=clock,
        cols=cols,
        right=right,
        slow=slow,
        # Cars with a new speed do not move in the same step, but it counts as their first step of waiting.
        waits=jnp.where(across, slow - 1, jnp.where(going, slow, state.waits - 1)),
    )
    return new, across.astype(jnp.float32), clock < 0


def observe(state: State) -> Any:
    """Return the layers chicken, cars, and five layers of trails (the cell behind each car, wrapped), from the fastest to the slowest.

    Timers are not observed.

    Examples
    --------
    >>> [int(number) for number in observe(start(jnp.full(16, 0.7))).sum((0, 1))]
    [1, 8, 0, 0, 0, 8, 0]
    """
    behind = _wrap(state.cols + jnp.where(state.right, -1, 1))
    layer = np.arange(1, 2 + SLOWEST, dtype=np.int32)
    trails = jnp.where(layer == 1 + state.slow[:, None], behind[:, None], -1)
    return lanes(state.row, COLUMN, jnp.where(layer == 1, state.cols[:, None], trails))


def _wrap(cols: Any) -> Any:
    """Wrap columns -1 and 10 to the other side of the board."""
    return jnp.where(cols < 0, SIDE - 1, jnp.where(cols >= SIDE, 0, cols))


FREEWAY = FunctionalEnv(
    "freeway",
    actions=("stay", "up", "down"),
    numbers=(0, 2, 4),
    shape=(SIDE, SIDE, 2 + SLOWEST),
    start=start,
    step=step,
    observe=observe,
    num_start_uniforms=2 * CARS,
    num_step_uniforms=2 * CARS,
)
