"""Episodes on an accelerator: all lanes in step, until the last of them has ended.

A lane is an episode of a table. A step of all lanes is little work, and what it costs is the number of kernels that it is made of. So
the rows of all corners are gathered into one sum, (lanes, actions), and all that follows is elementwise on (lanes,): the best action, found
by comparing columns, the step, and what is seen after it. Lanes that have ended stay as they are. Everything is float32, and rewards are
summed with compensation, because a small one would be lost in a large sum.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from actiongap.planning.grid import Grid
from actiongap.planning.interpolation import multilinear
from actiongap.planning.noise import UINT32, noise_key, random_uniform
from actiongap.planning.simulator import EpisodeBatch, Step

BLOCK = 64
"""Steps between two looks at whether any lane still goes."""
ROUND = 8192
"""Steps between two looks at whether somebody wants to interrupt."""


class Lanes(NamedTuple):
    """Episodes on their way, each an array (lanes,): those of the first table, then those of the next."""

    state: tuple
    seen: tuple
    """What the policy sees of the state."""
    steps: Any
    returns: Any
    excess: Any
    """By how much rounding has made the returns too large."""
    ended: Any


@lru_cache(maxsize=8)
def advancer(step: Step, sight: Callable, episode_noise: Callable, grid: Grid) -> Callable:
    """A compiled advance(tables, lanes, seed, t, until): every lane goes on from step t until it ends or has come to the other step.

    It is kept for the next call with the same functions and grid, and compiles again only for tables or lanes of another shape.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> from actiongap.planning.simulator import Outcome
    >>> grid = Grid((uniform(0.0, 1.0, 2),))
    >>> advance = advancer(lambda x, a, u: Outcome((x[0] + a,), 1.0, x[0] > 2), lambda x: x, lambda w: w, grid)
    >>> lanes = begin((np.array([0.25]),), (np.array([0.25]),), 1)
    >>> tables = jnp.array([[[0.0, 1.0], [3.0, 2.0]]])
    >>> advance(tables, lanes, np.uint32(0), np.uint32(0), np.uint32(1)).state[0].tolist()
    [1.25]
    """

    def advance(tables: Any, lanes: Lanes, seed: Any, t: Any, until: Any) -> Lanes:
        rows, lane = jnp.reshape(tables, (-1, tables.shape[2])), jnp.arange(lanes.steps.size)
        episodes = lane.size // tables.shape[0]
        offset, episode = (lane // episodes * grid.size).astype(jnp.int32), (lane % episodes).astype(jnp.uint32)

        def one(t: Any, lanes: Lanes) -> Lanes:
            a = _first_best(_values(rows, offset, grid, lanes.seen))
            u = episode_noise(random_uniform(noise_key(seed, t, UINT32), episode, UINT32).astype(jnp.float32))
            outcome = step(lanes.state, a, u)
            return _taken(lanes, outcome, sight(outcome.x), ~lanes.ended & (t < until))

        def block(carried: tuple[Any, Lanes]) -> tuple[Any, Lanes]:
            first, lanes = carried
            return first + BLOCK, jax.lax.fori_loop(0, BLOCK, lambda i, lanes: one(first + i.astype(jnp.uint32), lanes), lanes)

        def goes_on(carried: tuple[Any, Lanes]) -> Any:
            return (carried[0] < until) & ~carried[1].ended.all()

        return jax.lax.while_loop(goes_on, block, (t, lanes))[1]

    return jax.jit(advance)


def _values(rows: Any, offset: Any, grid: Grid, seen: tuple) -> Any:
    """The interpolated values of all actions, (lanes, actions); the rows of a lane's table begin at its offset."""
    index, weight = multilinear(grid, seen)
    corners = rows.at[offset[:, None] + index.astype(jnp.int32)].get(mode="promise_in_bounds")
    return jnp.sum(weight[:, :, None] * corners, axis=1)


def _first_best(values: Any) -> Any:
    """The first of the actions with the largest value, column by column."""
    best, largest = jnp.zeros(values.shape[0], jnp.int32), values[:, 0]
    for b in range(1, values.shape[1]):
        better = values[:, b] > largest
        best, largest = jnp.where(better, b, best), jnp.where(better, values[:, b], largest)
    return best


def _taken(lanes: Lanes, outcome: Any, seen: tuple, going: Any) -> Lanes:
    """The lanes after a step of those that are going."""

    def changed(new: Any, old: Any) -> Any:
        return jnp.where(going, jnp.asarray(new, old.dtype), old)

    pays = jnp.asarray(outcome.reward, jnp.float32) - lanes.excess
    total = lanes.returns + pays
    return Lanes(
        tuple(map(changed, outcome.x, lanes.state)),
        tuple(map(changed, seen, lanes.seen)),
        lanes.steps + going,
        changed(total, lanes.returns),
        changed((total - lanes.returns) - pays, lanes.excess),
        lanes.ended | (going & outcome.ended),
    )


def begin(state: tuple, seen: tuple, tables: int) -> Lanes:
    """Lanes at their start, the same for every table: states and what is seen of them, each number an array (episodes,).

    Examples
    --------
    >>> begin((np.zeros(2), np.ones(2)), (np.zeros(2),), 3).state[1].shape
    (6,)
    """
    here, there = (tuple(jnp.tile(jnp.asarray(number, jnp.float32), tables) for number in numbers) for numbers in (state, seen))
    nothing = jnp.zeros(here[0].shape, jnp.float32)
    return Lanes(here, there, nothing.astype(jnp.int32), nothing, nothing, nothing.astype(bool))


def roll_out(
    step: Step, sight: Callable, episode_noise: Callable, grid: Grid, tables: Any, state: tuple, seen: tuple, seed: int, limit: int
) -> EpisodeBatch:
    """What `actiongap.planning._numba_rollouts.roll_out` gives, in float32.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> from actiongap.planning.simulator import Outcome
    >>> start = (np.array([0.25, 0.75]),)
    >>> step, plane = lambda x, a, u: Outcome((x[0] + a,), 1.0, x[0] > 2), Grid((uniform(0.0, 1.0, 2),))
    >>> roll_out(step, lambda x: x, lambda w: w, plane, np.eye(2)[None], start, start, seed=0, limit=9).steps.tolist()
    [[9, 3]]
    """
    shape = (tables.shape[0], len(state[0]))
    if shape[0] * grid.size >= 2**31:
        raise ValueError(f"{shape[0]} tables of {grid.size} points are more than 32 bits count: roll out fewer at a time")
    # Gathering from a table that several devices share would make them talk at every step.
    tables = jax.device_put(jnp.asarray(tables, jnp.float32), jax.local_devices()[0])
    lanes, advance = begin(state, seen, shape[0]), advancer(step, sight, episode_noise, grid)
    for t in range(0, limit, ROUND):
        lanes = advance(tables, lanes, np.uint32(seed), np.uint32(t), np.uint32(min(t + ROUND, limit)))
        if lanes.ended.all():
            break
    coordinates = tuple(np.asarray(number).reshape(shape) for number in lanes.seen)
    steps, ended = np.asarray(lanes.steps, np.int64).reshape(shape), np.asarray(lanes.ended).reshape(shape)
    return EpisodeBatch(coordinates, steps, np.asarray(lanes.returns, np.float64).reshape(shape), ended)
