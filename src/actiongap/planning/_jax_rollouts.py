"""Episodes on an accelerator: all episodes of all tables advance together until the last one ends.

A step of all episodes is little work; its cost is the number of kernel launches. So the rows of all corners are gathered into one sum,
(episodes, actions), and the rest is elementwise on (episodes,): the greedy action, found by comparing columns, the step, and the
observation. Ended episodes stay unchanged. Everything is float32; returns use compensated (Kahan) summation, because small rewards would
be lost in a large sum.
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
"""Steps between two checks whether any episode is still running."""
ROUND = 8192
"""Steps between two checks for a keyboard interrupt."""


class Running(NamedTuple):
    """State of all episodes; each array is (tables * episodes,)."""

    state: tuple
    observed: tuple
    """Observed coordinates."""
    steps: Any
    returns: Any
    excess: Any
    """Accumulated rounding error of the returns (Kahan summation)."""
    ended: Any


@lru_cache(maxsize=8)
def advancer(step: Step, observe: Callable, episode_noise: Callable, grid: Grid) -> Callable:
    """A compiled advance(tables, running, seed, t, until): every episode runs from step t until it ends or reaches step `until`.

    It is cached by functions and grid, and compiles again only for other shapes.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> from actiongap.planning.simulator import Outcome
    >>> grid = Grid((uniform(0.0, 1.0, 2),))
    >>> advance = advancer(lambda x, a, u: Outcome((x[0] + a,), 1.0, x[0] > 2), lambda x: x, lambda w: w, grid)
    >>> running = initial_state((np.array([0.25]),), (np.array([0.25]),), 1)
    >>> tables = jnp.array([[[0.0, 1.0], [3.0, 2.0]]])
    >>> advance(tables, running, np.uint32(0), np.uint32(0), np.uint32(1)).state[0].tolist()
    [1.25]
    """

    def advance(tables: Any, running: Running, seed: Any, t: Any, until: Any) -> Running:
        rows, number = jnp.reshape(tables, (-1, tables.shape[2])), jnp.arange(running.steps.size)
        episodes = number.size // tables.shape[0]
        offset, episode = (number // episodes * grid.size).astype(jnp.int32), (number % episodes).astype(jnp.uint32)

        def one(t: Any, running: Running) -> Running:
            a = _first_best(_values(rows, offset, grid, running.observed))
            u = episode_noise(random_uniform(noise_key(seed, t, UINT32), episode, UINT32).astype(jnp.float32))
            outcome = step(running.state, a, u)
            return _taken(running, outcome, observe(outcome.x), ~running.ended & (t < until))

        def block(carried: tuple[Any, Running]) -> tuple[Any, Running]:
            first, running = carried
            return first + BLOCK, jax.lax.fori_loop(0, BLOCK, lambda i, running: one(first + i.astype(jnp.uint32), running), running)

        def goes_on(carried: tuple[Any, Running]) -> Any:
            return (carried[0] < until) & ~carried[1].ended.all()

        return jax.lax.while_loop(goes_on, block, (t, running))[1]

    return jax.jit(advance)


def _values(rows: Any, offset: Any, grid: Grid, seen: tuple) -> Any:
    """The interpolated values of all actions, (episodes, actions); the table of an episode starts at its offset."""
    index, weight = multilinear(grid, seen)
    corners = rows.at[offset[:, None] + index.astype(jnp.int32)].get(mode="promise_in_bounds")
    return jnp.sum(weight[:, :, None] * corners, axis=1)


def _first_best(values: Any) -> Any:
    """The first action with the largest value, by comparing columns."""
    best, largest = jnp.zeros(values.shape[0], jnp.int32), values[:, 0]
    for b in range(1, values.shape[1]):
        better = values[:, b] > largest
        best, largest = jnp.where(better, b, best), jnp.where(better, values[:, b], largest)
    return best


def _taken(running: Running, outcome: Any, seen: tuple, going: Any) -> Running:
    """State after a step of the episodes where `going` is true."""

    def changed(new: Any, old: Any) -> Any:
        return jnp.where(going, jnp.asarray(new, old.dtype), old)

    pays = jnp.asarray(outcome.reward, jnp.float32) - running.excess
    total = running.returns + pays
    return Running(
        tuple(map(changed, outcome.x, running.state)),
        tuple(map(changed, seen, running.observed)),
        running.steps + going,
        changed(total, running.returns),
        changed((total - running.returns) - pays, running.excess),
        running.ended | (going & outcome.ended),
    )


def initial_state(state: tuple, seen: tuple, tables: int) -> Running:
    """Episodes at their start, the same for every table: states and observed coordinates, arrays (episodes,).

    Examples
    --------
    >>> initial_state((np.zeros(2), np.ones(2)), (np.zeros(2),), 3).state[1].shape
    (6,)
    """
    here, there = (tuple(jnp.tile(jnp.asarray(number, jnp.float32), tables) for number in numbers) for numbers in (state, seen))
    nothing = jnp.zeros(here[0].shape, jnp.float32)
    return Running(here, there, nothing.astype(jnp.int32), nothing, nothing, nothing.astype(bool))


def roll_out(
    step: Step,
    observe: Callable,
    episode_noise: Callable,
    grid: Grid,
    tables: Any,
    state: tuple,
    observed: tuple,
    seed: int,
    max_episode_steps: int,
) -> EpisodeBatch:
    """What `actiongap.planning._numba_rollouts.roll_out` gives, in float32.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> from actiongap.planning.simulator import Outcome
    >>> start = (np.array([0.25, 0.75]),)
    >>> step, plane = lambda x, a, u: Outcome((x[0] + a,), 1.0, x[0] > 2), Grid((uniform(0.0, 1.0, 2),))
    >>> roll_out(step, lambda x: x, lambda w: w, plane, np.eye(2)[None], start, start, seed=0, max_episode_steps=9).steps.tolist()
    [[9, 3]]
    """
    shape = (tables.shape[0], len(state[0]))
    if shape[0] * grid.size >= 2**31:
        raise ValueError(f"{shape[0]} tables of {grid.size} points exceed 32-bit indices: roll out fewer at a time")
    # Gathering from a sharded table would communicate at every step.
    tables = jax.device_put(jnp.asarray(tables, jnp.float32), jax.local_devices()[0])
    running, advance = initial_state(state, observed, shape[0]), advancer(step, observe, episode_noise, grid)
    for t in range(0, max_episode_steps, ROUND):
        running = advance(tables, running, np.uint32(seed), np.uint32(t), np.uint32(min(t + ROUND, max_episode_steps)))
        if running.ended.all():
            break
    coordinates = tuple(np.asarray(number).reshape(shape) for number in running.observed)
    steps, ended = np.asarray(running.steps, np.int64).reshape(shape), np.asarray(running.ended).reshape(shape)
    return EpisodeBatch(coordinates, steps, np.asarray(running.returns, np.float64).reshape(shape), ended)
