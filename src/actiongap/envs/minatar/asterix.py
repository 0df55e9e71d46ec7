"""Asterix: collect treasure, avoid enemies.

Each of eight rows holds at most one object, which enters at one side and crosses to the other. Touching a treasure has a reward of 1, and
touching an enemy ends the game. The player moves one cell per step over the eight rows, at first faster than the objects. Every 102 steps
objects appear more often, and every 204 steps they also move faster, until one appears in every step and all move as fast as the player.

The difficulties: two objects in three are enemies; objects appear at the edge without warning, even on the player; and the timers of the
objects are not observed.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.minatar.board import SIDE, integer, lanes

SLOTS = 8
"""Slots for objects; slot i is row i + 1 of the board."""
BEFORE = np.tri(SLOTS, k=-1, dtype=bool)
"""Which slots precede a slot: BEFORE[i, j] is j < i."""
RAMP = 100
"""Initial value of the difficulty timer, which runs to -1."""


class State(NamedTuple):
    """State of the game."""

    row: Any
    """Row of the player, from 1 to 8."""
    col: Any
    """Column of the player."""
    present: Any
    """Whether each slot holds an object. For empty slots the next three fields are meaningless."""
    cols: Any
    """Columns of the objects."""
    right: Any
    """Whether the objects move to the right."""
    treasure: Any
    """Whether the objects are treasures; otherwise they are enemies."""
    spawn_every: Any
    """Steps between two new objects."""
    spawn_in: Any
    """Steps until the step in which the next object appears."""
    move_every: Any
    """Steps between two moves of the objects."""
    move_in: Any
    """Steps until the step in which the objects move."""
    ramp_in: Any
    """Steps until the game becomes harder, minus 1."""
    level: Any
    """Number of times the game has become harder."""


class Uniforms(NamedTuple):
    """The uniform numbers of a step, which determine a new object."""

    heading: Any
    """To the right below 1/2."""
    kind: Any
    """Treasure below 1/3."""
    slot: Any
    """Index among the free slots, from the top."""


def start(u: Any) -> State:
    """Return a new game: the player in the middle of an empty board. `u` is empty.

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
    """Take a step: an object may appear, the player moves, the objects may move. A treasure has a reward of 1, an enemy ends the game.

    Examples
    --------
    >>> state = start(jnp.zeros(0))._replace(spawn_in=jnp.int32(0))
    >>> state, reward, ended = step(state, 0, jnp.array([0.6, 0.2, 0.99]))
    >>> [int(col) for col in state.cols[state.present & state.treasure]], float(reward), bool(ended)
    ([9], 0.0, False)
    """
    uniforms = Uniforms(*u)
    coming, moving = state.spawn_in == 0, state.move_in == 0

    free = ~state.present
    rank = jnp.sum(BEFORE & free, axis=-1, dtype=jnp.int32)
    comes = coming & free & (rank == integer(uniforms.slot, jnp.sum(free, dtype=jnp.int32)))
    from_left = uniforms.heading < 0.5
    right = jnp.where(comes, from_left, state.right)
    treasure = jnp.where(comes, uniforms.kind < np.float32(1 / 3), state.treasure)
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
    """Return the layers player, enemies, trails (the cell behind each object, if on the board) and treasures. Timers are not observed.

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
    """Return the game; `ramping` is whether it becomes harder over time.

    Examples
    --------
    >>> asterix(ramping=False).num_step_uniforms
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
        num_start_uniforms=0,
        num_step_uniforms=3,
    )


ASTERIX = asterix()
