"""Asterix: collect treasure, avoid enemies.

Eight rows, in each at most one thing, which comes in from one side and crosses to the other: a treasure, worth 1 to a player who touches
it, or an enemy, whose touch ends the game. The player moves freely over the eight rows, a cell a step, and so is faster than things are at
first; every 102 steps things come more often, and every 204 they move faster too, until one is sent in each step and all move as fast as
the player.

What makes it difficult: one thing in three is a treasure, so greed has to find its way through a crowd; things come in at the edge
without warning, even onto the player; and how soon things will move can only be told by having watched them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.minatar.board import SIDE, integer, lanes

SLOTS = 8
"""Places for things; slot i is row i + 1 of the board."""
BEFORE = np.tri(SLOTS, k=-1, dtype=bool)
"""Which slots come before a slot: row i is set where j < i."""
RAMP = 100
"""What the timer of the ramp starts from; it runs to -1."""


class State(NamedTuple):
    """A player among things."""

    row: Any
    """Of the player, from 1 to 8."""
    col: Any
    """Of the player."""
    present: Any
    """Which of the slots hold a thing; what the next three say of the others means nothing."""
    cols: Any
    """The columns of the things."""
    right: Any
    """Whether they head to the right, rather than to the left."""
    treasure: Any
    """Whether they are treasure, rather than enemies."""
    spawn_every: Any
    """Steps from one thing's coming to the next's."""
    spawn_in: Any
    """Steps before the next one in which a thing comes."""
    move_every: Any
    """Steps from one move of the things to the next."""
    move_in: Any
    """Steps before the next one in which they move."""
    ramp_in: Any
    """Steps before the one that makes the game harder, less 1."""
    level: Any
    """How often it has become harder."""


class Chance(NamedTuple):
    """What the numbers of a step are for: the coming of a thing."""

    heading: Any
    """To the right below 1/2."""
    kind: Any
    """Treasure below 1/3."""
    slot: Any
    """Which of the free slots, counted from the top."""


def start(u: Any) -> State:
    """The player in the middle of an empty board. The row `u` is empty.

    Examples
    --------
    >>> state = start(jnp.zeros(0))
    >>> int(state.row), int(state.col), int(state.present.sum())
    (5, 5, 0)
    """
    none = jnp.zeros(SLOTS, bool)
    timers = (jnp.int32(number) for number in (10, 10, 5, 5, RAMP, 0))
    return State(jnp.int32(5), jnp.int32(5), none, jnp.zeros(SLOTS, jnp.int32), none, none, *timers)


def step(state: State, action: Any, u: Any, ramping: bool = True) -> tuple[State, Any, Any]:
    """A thing may come, the player moves, the things may move; 1 for a treasure touched, and the end for an enemy.

    Examples
    --------
    >>> state = start(jnp.zeros(0))._replace(spawn_in=jnp.int32(0))
    >>> state, reward, ended = step(state, 0, jnp.array([0.6, 0.2, 0.99]))
    >>> [int(col) for col in state.cols[state.present & state.treasure]], float(reward), bool(ended)
    ([9], 0.0, False)
    """
    chance = Chance(*u)
    coming, moving = state.spawn_in == 0, state.move_in == 0

    free = ~state.present
    rank = jnp.sum(BEFORE & free, axis=-1, dtype=jnp.int32)
    comes = coming & free & (rank == integer(chance.slot, jnp.sum(free, dtype=jnp.int32)))
    from_left = chance.heading < 0.5
    right = jnp.where(comes, from_left, state.right)
    treasure = jnp.where(comes, chance.kind < np.float32(1 / 3), state.treasure)
    cols = jnp.where(comes, jnp.where(from_left, 0, SIDE - 1), state.cols)
    present = state.present | comes

    col = jnp.clip(state.col + jnp.where(action == 3, 1, 0) - jnp.where(action == 1, 1, 0), 0, SIDE - 1)
    row = jnp.clip(state.row + jnp.where(action == 4, 1, 0) - jnp.where(action == 2, 1, 0), 1, SLOTS)
    beside = np.arange(1, SLOTS + 1, dtype=np.int32) == row

    met = present & beside & (cols == col)
    there = present & ~(met & treasure)
    moved = moving & there
    cols = cols + jnp.where(moved, jnp.where(right, 1, -1), 0)
    met_again = moved & beside & (cols == col)
    left = there & (cols >= 0) & (cols < SIDE) & ~(met_again & treasure)
    touched = met | met_again

    spawn_every, move_every, ramp_in, level = state.spawn_every, state.move_every, state.ramp_in, state.level
    if ramping:
        harder = (spawn_every > 1) | (move_every > 1)
        now = harder & (ramp_in < 0)
        move_every = move_every - jnp.where(now & (move_every > 1) & (level % 2 == 1), 1, 0)
        spawn_every = spawn_every - jnp.where(now & (spawn_every > 1), 1, 0)
        ramp_in = jnp.where(now, RAMP, ramp_in - jnp.where(harder, 1, 0))
        level = level + jnp.where(now, 1, 0)

    new = State(
        row=row,
        col=col,
        present=left,
        cols=cols,
        right=right,
        treasure=treasure,
        spawn_every=spawn_every,
        # The timers are refilled with the intervals as they were before the game became harder.
        spawn_in=jnp.where(coming, state.spawn_every, state.spawn_in) - 1,
        move_every=move_every,
        move_in=jnp.where(moving, state.move_every, state.move_in) - 1,
        ramp_in=ramp_in,
        level=level,
    )
    return new, jnp.any(touched & treasure).astype(jnp.float32), jnp.any(touched & ~treasure)


def observe(state: State) -> Any:
    """AtariTrainState, enemies, trails (the cell behind each thing, if it is on the board) and treasure: no timers.

    Examples
    --------
    >>> state = start(jnp.zeros(0))._replace(present=jnp.arange(8) < 3, cols=jnp.array([4, 9, 9, 0, 0, 0, 0, 0]))
    >>> [int(number) for number in observe(state).sum((0, 1))]
    [1, 3, 1, 0]
    """
    layer = np.arange(1, 4, dtype=np.int32)
    behind = state.cols + jnp.where(state.right, -1, 1)
    cols = jnp.where(layer == 2, behind[:, None], state.cols[:, None])
    shown = state.present[:, None] & ((layer == 2) | (state.treasure[:, None] == (layer == 3)))
    return lanes(state.row, state.col, jnp.where(shown, cols, -1))


def asterix(ramping: bool = True) -> FunctionalEnv:
    """The game, which becomes harder with time or stays as it begins.

    Examples
    --------
    >>> asterix(ramping=False).chance
    3
    """
    return FunctionalEnv(
        "asterix",
        actions=("stay", "left", "up", "right", "down"),
        numbers=(0, 1, 2, 3, 4),
        shape=(SIDE, SIDE, 4),
        start=start,
        step=partial(step, ramping=ramping),
        observe=observe,
        start_chance=0,
        chance=3,
    )


ASTERIX = asterix()
