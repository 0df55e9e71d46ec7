"""Breakout: a ball, a paddle and three rows of bricks.

The ball moves diagonally, one cell per step, and bounces off walls, ceiling and bricks. The paddle is one cell of the bottom row, moves one
cell per step, and must catch the ball. The rebound depends on where the paddle meets the ball: in the column that the ball comes from, the
ball keeps its horizontal direction; in the column that it moves to, it reverses it. A missed ball ends the game. Each broken brick has a
reward of 1. A cleared wall is rebuilt when the ball next reaches the bottom, so an episode has no maximum length.

The difficulty is delay: a brick is broken about ten steps after the paddle caught the ball. A ball that has just struck a brick breaks no
other until it has left the bricks; in a hole in the wall it passes through the bricks beside it. The only randomness is the side on which
the ball starts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.minatar.board import FULL, INDICES, SIDE, bit, integer, picture

BRICKS = 3 * SIDE
"""Number of bricks of a full wall."""
WALL = 2**BRICKS - 1
"""A full wall, as bits."""


class State(NamedTuple):
    """State of the game."""

    paddle: Any
    """Column of the paddle, in row 9."""
    row: Any
    """Row of the ball; 9 only after it was missed."""
    col: Any
    """Column of the ball."""
    right: Any
    """Whether the ball moves to the right."""
    down: Any
    """Whether the ball moves down."""
    last_row: Any
    """Row of the ball one step ago."""
    last_col: Any
    """Column of the ball one step ago."""
    bricks: Any
    """One bit per brick: bit 10 (row - 1) + col, for rows 1 to 3 of the board."""
    struck: Any
    """Whether the ball has just struck a brick, and cannot break another."""


def start(u: Any) -> State:
    """Return a new game: the ball in the lowest row of bricks, at the left edge if u < 1/2 and else at the right, moving down and inwards.

    Examples
    --------
    >>> state = start(jnp.array([0.7]))
    >>> int(state.row), int(state.col), bool(state.right), bool(state.down)
    (3, 9, False, True)
    """
    on_right = integer(u[0], 2) == 1
    row, col = jnp.int32(3), jnp.where(on_right, 9, 0).astype(jnp.int32)
    return State(jnp.int32(4), row, col, ~on_right, jnp.bool_(True), row, col, jnp.int32(WALL), jnp.bool_(False))


def step(state: State, action: Any, u: Any) -> tuple[State, Any, Any]:
    """Take a step: the paddle moves, then the ball. A broken brick has a reward of 1, a missed ball ends the game. `u` is empty.

    Examples
    --------
    >>> state = start(jnp.array([0.0]))._replace(row=jnp.int32(4), col=jnp.int32(4), down=jnp.bool_(False))
    >>> state, reward, ended = step(state, 0, jnp.zeros(0))
    >>> int(state.row), int(state.col), float(reward), bool(ended)
    (4, 5, 1.0, False)
    """
    paddle = jnp.clip(state.paddle + jnp.where(action == 3, 1, 0) - jnp.where(action == 1, 1, 0), 0, SIDE - 1)
    beyond = state.col + jnp.where(state.right, 1, -1)
    col = jnp.clip(beyond, 0, SIDE - 1)
    right = state.right ^ (beyond != col)
    ahead = state.row + jnp.where(state.down, 1, -1)

    number = SIDE * (ahead - 1) + col
    brick = jnp.where((number >= 0) & (number < BRICKS), 1 << jnp.clip(number, 0, BRICKS), 0) & state.bricks
    struck = brick != 0
    broken = struck & ~state.struck

    bottom = ahead == SIDE - 1
    near = bottom & (state.col == paddle)
    far = bottom & ~near & (col == paddle)
    ended = bottom & ~near & ~far

    # A ball that is thrown back stays in its row; so does one that hits the ceiling, the edge of row 0.
    back = (ahead < 0) | broken | near | far
    bricks = jnp.where(broken, state.bricks ^ brick, jnp.where(bottom & (state.bricks == 0), WALL, state.bricks))
    new = State(
        paddle=paddle,
        row=jnp.where(back, state.row, ahead),
        col=col,
        right=right ^ far,
        down=state.down ^ back,
        last_row=state.row,
        last_col=state.col,
        bricks=bricks,
        struck=struck,
    )
    return new, broken.astype(jnp.float32), ended


def observe(state: State) -> Any:
    """Return the layers paddle, ball, trail (the ball one step ago) and bricks. Direction and `struck` are not observed.

    Examples
    --------
    >>> [int(number) for number in observe(start(jnp.array([0.0]))).sum((0, 1))]
    [1, 1, 1, 30]
    """
    wall = jnp.pad(state.bricks >> SIDE * np.arange(3, dtype=np.int32) & FULL, (1, SIDE - 4))
    places = ((SIDE - 1, state.paddle), (state.row, state.col), (state.last_row, state.last_col))
    return picture([*(jnp.where(row == INDICES, bit(col), 0) for row, col in places), wall])


BREAKOUT = FunctionalEnv(
    "breakout",
    actions=("stay", "left", "right"),
    numbers=(0, 1, 3),
    shape=(SIDE, SIDE, 4),
    start=start,
    step=step,
    observe=observe,
    num_start_uniforms=1,
    num_step_uniforms=0,
)
