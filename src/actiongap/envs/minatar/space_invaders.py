"""Space Invaders: shoot the block of aliens before it comes down.

The player slides a cannon along the bottom row and may fire every fifth step. Twenty-four aliens march sideways together, drop a row at
each wall and turn, and every ten steps the one nearest to the cannon's column shoots straight down. Each alien hit is worth 1; a cleared
block is replaced by a full one. The game ends when a bullet or an alien meets the cannon, or when aliens in the bottom row would have to
drop.

What makes it difficult is delay and pace. A shot needs up to nine steps to arrive, so it must be aimed at where an alien will be; a block
moves every twelve steps at first but in every single step once one alien is left; and with ramping each of the first six cleared blocks
shortens the longest pause by a step. The pauses themselves are never seen. The game has no chance of its own: where actions do not stick,
the same play always leads to the same end.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.minatar.board import EMPTY, PLACES, bit, down, picture

LEFT, RIGHT, FIRE = 1, 3, 5
RELOAD = 5
"""From a shot of the cannon to the next, in steps."""
AIM = 10
"""From a shot of the aliens to the next."""
SLOWEST, FASTEST = 12, 6
"""Between which the longest pause of the aliens lies."""
BLOCK = np.where(PLACES < 4, 0b0011111100, 0).astype(np.int32)
"""Aliens in the columns 2 to 7 of the rows 0 to 3."""


class State(NamedTuple):
    """A cannon against a block of aliens."""

    cannon: Any
    """The cannon's column; it stands in row 9."""
    bullets: Any
    """Where the player's bullets are, a board in ten integers."""
    shots: Any
    """Where the aliens' bullets are, a board in ten integers."""
    aliens: Any
    """Where the aliens are, a board in ten integers."""
    heading: Any
    """Of the aliens: -1 to the left, 1 to the right."""
    longest: Any
    """The longest pause between two moves of the aliens."""
    march: Any
    """Steps before the step in which the aliens move."""
    aim: Any
    """Steps before the step in which an alien shoots."""
    reload: Any
    """Steps before the step in which the cannon can fire."""
    level: Any
    """How often the longest pause was shortened."""


def start(u: Any) -> State:
    """A full block over an empty field, whatever chance says.

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
    """Cannon, bullets, aliens, their shot, the hits, a new block: in this order.

    Examples
    --------
    >>> state, reward, ended = step(start(jnp.zeros(0)), FIRE, jnp.zeros(0))
    >>> int(state.bullets[8]) == 1 << 5, int(state.reload), float(reward), bool(ended)
    (True, 4, 0.0, False)
    """
    del u
    fires = (action == FIRE) & (state.reload == 0)
    bullets = down(state.bullets, -1) | jnp.where(fires & (PLACES == 8), bit(state.cannon), 0)
    reload = jnp.where(fires, RELOAD, state.reload)
    cannon = jnp.clip(state.cannon + (action == RIGHT) - (action == LEFT), 0, 9)
    shots = down(state.shots)
    ended = (bit(cannon) & (shots[9] | state.aliens[9])) != 0

    moves = state.march == 0
    march = jnp.where(moves, jnp.minimum(_count(state.aliens), state.longest), state.march)
    wall = jnp.where(state.heading < 0, 0, 9)
    drops = moves & ((state.aliens & bit(wall)) != 0).any()
    # Those that drop out of the bottom row reappear in the top one: the game is lost, but its last picture shows it.
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
    """The cannon, the aliens, the aliens if they go left, if they go right, the player's bullets, the aliens' bullets.

    Examples
    --------
    >>> [int(layer.sum()) for layer in jnp.moveaxis(observe(start(jnp.zeros(0))), -1, 0)]
    [1, 24, 24, 0, 0, 0]
    """
    cannon = jnp.where(PLACES == 9, bit(state.cannon), 0)
    left, right = jnp.where(state.heading < 0, state.aliens, 0), jnp.where(state.heading > 0, state.aliens, 0)
    return picture([cannon, state.aliens, left, right, state.bullets, state.shots])


def _count(words: Any) -> Any:
    return jax.lax.population_count(words).sum(dtype=jnp.int32)


def _shooter(aliens: Any, cannon: Any) -> Any:
    """The lowest alien of the column nearest to the cannon; of two such columns, the left one's."""
    held = (jax.lax.reduce_or(aliens, (0,)) >> PLACES) & 1 == 1
    order = 2 * jnp.abs(PLACES - cannon) + (cannon < PLACES)
    column = bit(jnp.where(held, 10 * order + PLACES, 1000).min() % 10)
    lowest = jnp.where((aliens & column) != 0, PLACES, -1).max()
    return jnp.where(lowest == PLACES, column, 0)


def space_invaders(ramping: bool = True) -> FunctionalEnv:
    """The rules, with blocks that come ever faster or, without ramping, all alike.

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
