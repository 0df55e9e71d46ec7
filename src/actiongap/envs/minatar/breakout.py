"""Breakout: a ball, a paddle and three rows of bricks.

The ball flies diagonally, one cell a step, and bounces off walls, ceiling and bricks. The paddle is one cell of the bottom row, moves one
cell a step, and must be there when the ball comes down: in the column that the ball comes from, and it flies on to the other side; in the
column that it flies to, and it goes back the way it came. A missed ball ends the game. Each brick that the ball breaks is worth 1; a
cleared wall is built again when the ball is next about to reach the bottom, so that good play goes on for ever.

What makes it difficult is the delay between deciding and scoring: a brick is won by where the paddle stood some ten steps before. And a
ball that has just been at a brick breaks no other until it has left them: in a hole of the wall it passes on through the bricks beside it.
Chance has no part in it but the side from which the ball starts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.minatar.board import FULL, PLACES, SIDE, bit, integer, picture

BRICKS = 3 * SIDE
"""How many there are at first."""
WALL = 2**BRICKS - 1
"""All of them, as bits."""


class State(NamedTuple):
    """A ball in flight."""

    paddle: Any
    """Its column; its row is 9."""
    row: Any
    """Of the ball; 9 only when it was missed."""
    col: Any
    """Of the ball."""
    right: Any
    """Whether the ball flies to the right, rather than to the left."""
    down: Any
    """Whether the ball flies down, rather than up."""
    last_row: Any
    """Where the ball was a step ago."""
    last_col: Any
    """Where the ball was a step ago."""
    bricks: Any
    """One bit a brick: bit 10 (row - 1) + col, for the rows 1 to 3 of the board."""
    struck: Any
    """Whether the ball has just been at a brick, and so breaks none."""


def start(u: Any) -> State:
    """The ball in the lowest row of bricks, at the left side for u < 1/2, else at the right, flying down and inwards.

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
    """The paddle moves, then the ball; 1 for a broken brick, and the end for a missed ball. The row `u` is empty.

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

    # Whatever throws the ball back leaves it in its row; the ceiling does so as well, being the edge of row 0.
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
    """Paddle, ball, trail (where the ball was a step ago) and bricks: neither where the ball is heading nor whether it breaks bricks.

    Examples
    --------
    >>> [int(number) for number in observe(start(jnp.array([0.0]))).sum((0, 1))]
    [1, 1, 1, 30]
    """
    wall = jnp.pad(state.bricks >> SIDE * np.arange(3, dtype=np.int32) & FULL, (1, SIDE - 4))
    places = ((SIDE - 1, state.paddle), (state.row, state.col), (state.last_row, state.last_col))
    return picture([*(jnp.where(row == PLACES, bit(col), 0) for row, col in places), wall])


BREAKOUT = FunctionalEnv(
    "breakout",
    actions=("stay", "left", "right"),
    numbers=(0, 1, 3),
    shape=(SIDE, SIDE, 4),
    start=start,
    step=step,
    observe=observe,
    start_chance=1,
    chance=0,
)
