"""Space Invaders: shoot the block of aliens before it comes down.

The player moves a cannon along the bottom row and may fire every fifth step. A block of 24 aliens moves sideways, drops a row at each wall
and turns. Every ten steps the alien nearest to the cannon's column shoots straight down. Each hit has a reward of 1, and a cleared block is
replaced by a full one. The game ends when a bullet or an alien meets the cannon, or when aliens in the bottom row would have to drop.

The difficulty is delay and speed. A shot needs up to nine steps, so it must be aimed at where an alien will be. A full block moves every
twelve steps, but the last alien in every step, and with ramping each of the first six cleared blocks shortens the maximum pause by one
step. The pauses are not observed. The game is deterministic: without sticky actions, the same actions always lead to the same result.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.minatar.board import EMPTY, INDICES, bit, down, picture

LEFT, RIGHT, FIRE = 1, 3, 5
RELOAD = 5
"""Minimum number of steps between two shots of the cannon."""
AIM = 10
"""Steps between two shots of the aliens."""
SLOWEST, FASTEST = 12, 6
"""Initial and final value of the aliens' maximum pause, in steps."""
BLOCK = np.where(INDICES < 4, 0b0011111100, 0).astype(np.int32)
"""A full block: aliens in columns 2 to 7 of rows 0 to 3."""


class State(NamedTuple):
    """State of the game."""

    cannon: Any
    """The cannon's column; it stands in row 9."""
    bullets: Any
    """Bullets of the player, a board of ten integers."""
    shots: Any
    """Bullets of the aliens, a board of ten integers."""
    aliens: Any
    """The aliens, a board of ten integers."""
    heading: Any
    """Direction of the aliens: -1 to the left, 1 to the right."""
    longest: Any
    """Maximum pause between two moves of the aliens, in steps."""
    march: Any
    """Steps until the step in which the aliens move."""
    aim: Any
    """Steps until the step in which an alien shoots."""
    reload: Any
    """Steps until the step in which the cannon can fire."""
    level: Any
    """Number of times the maximum pause was shortened."""


def start(u: Any) -> State:
    """Return a new game: a full block of aliens over an empty board. `u` is not used.

    Examples
    --------
    >>> state = start(jnp.zeros(0))
    >>> int(state.aliens[0]) == 0b0011111100, int(state.aliens[4])
    (True, 0)
    """
    del u
    return State(
        cannon=jnp.int32(5),
        bullets=jnp.asarray(EMPTY),
        shots=jnp.asarray(EMPTY),
        aliens=jnp.asarray(BLOCK),
        heading=jnp.int32(-1),
        longest=jnp.int32(SLOWEST),
        march=jnp.int32(SLOWEST),
        aim=jnp.int32(AIM),
        reload=jnp.int32(0),
        level=jnp.int32(0),
    )


def step(state: State, action: Any, u: Any, *, ramping: bool = True) -> tuple[State, Any, Any]:
    """Take a step, in this order: bullets, the cannon, aliens, their shot, hits, a new block. `u` is not used.

    Examples
    --------
    >>> state, reward, ended = step(start(jnp.zeros(0)), FIRE, jnp.zeros(0))
    >>> int(state.bullets[8]) == 1 << 5, int(state.reload), float(reward), bool(ended)
    (True, 4, 0.0, False)
    """
    del u
    fires = (action == FIRE) & (state.reload == 0)
    bullets = down(state.bullets, -1) | jnp.where(fires & (INDICES == 8), bit(state.cannon), 0)
    reload = jnp.where(fires, RELOAD, state.reload)
    cannon = jnp.clip(state.cannon + (action == RIGHT) - (action == LEFT), 0, 9)
    shots = down(state.shots)
    ended = (bit(cannon) & (shots[9] | state.aliens[9])) != 0

    moves = state.march == 0
    march = jnp.where(moves, jnp.minimum(_count(state.aliens), state.longest), state.march)
    wall = jnp.where(state.heading < 0, 0, 9)
    drops = moves & ((state.aliens & bit(wall)) != 0).any()
    # Aliens that drop out of the bottom row reappear in the top row: the game is lost, but its last observation shows them.
    dropped = down(state.aliens) | down(state.aliens, -9)
    aside = jnp.where(state.heading < 0, state.aliens >> 1, state.aliens << 1)
    aliens = jnp.where(drops, dropped, jnp.where(moves, aside, state.aliens))
    ended |= (drops & (state.aliens[9] != 0)) | ((bit(cannon) & aliens[9]) != 0)

    shoots = state.aim == 0
    shots |= jnp.where(shoots, _shooter(aliens, cannon), 0)
    aim = jnp.where(shoots, AIM, state.aim)

    hits = aliens & bullets
    left = aliens & ~hits
    cleared = (left == 0).all()
    faster = (cleared & (state.longest > FASTEST) & ramping).astype(jnp.int32)
    following = State(
        cannon=cannon,
        bullets=bullets & ~hits,
        shots=shots,
        aliens=jnp.where(cleared, BLOCK, left),
        heading=jnp.where(drops, -state.heading, state.heading),
        longest=state.longest - faster,
        march=march - 1,
        aim=aim - 1,
        reload=jnp.maximum(reload - 1, 0),
        level=state.level + faster,
    )
    return following, _count(hits).astype(jnp.float32), ended


def observe(state: State) -> Any:
    """Return the layers cannon, aliens, aliens moving left, aliens moving right, bullets of the player, bullets of the aliens.

    Examples
    --------
    >>> [int(layer.sum()) for layer in jnp.moveaxis(observe(start(jnp.zeros(0))), -1, 0)]
    [1, 24, 24, 0, 0, 0]
    """
    cannon = jnp.where(INDICES == 9, bit(state.cannon), 0)
    left, right = jnp.where(state.heading < 0, state.aliens, 0), jnp.where(state.heading > 0, state.aliens, 0)
    return picture([cannon, state.aliens, left, right, state.bullets, state.shots])


def _count(words: Any) -> Any:
    return jax.lax.population_count(words).sum(dtype=jnp.int32)


def _shooter(aliens: Any, cannon: Any) -> Any:
    """Return the lowest alien of the column nearest to the cannon; ties go to the left column."""
    occupied = (jax.lax.reduce_or(aliens, (0,)) >> INDICES) & 1 == 1
    order = 2 * jnp.abs(INDICES - cannon) + (cannon < INDICES)
    column = bit(jnp.where(occupied, 10 * order + INDICES, 1000).min() % 10)
    lowest = jnp.where((aliens & column) != 0, INDICES, -1).max()
    return jnp.where(lowest == INDICES, column, 0)


def space_invaders(ramping: bool = True) -> FunctionalEnv:
    """Return the game; `ramping` is whether each new block is faster.

    Examples
    --------
    >>> space_invaders().actions
    ('stay', 'left', 'right', 'fire')
    """
    return FunctionalEnv(
        "space_invaders",
        actions=("stay", "left", "right", "fire"),
        numbers=(0, LEFT, RIGHT, FIRE),
        shape=(10, 10, 6),
        start=start,
        step=partial(step, ramping=ramping),
        observe=observe,
    )


SPACE_INVADERS = space_invaders()
