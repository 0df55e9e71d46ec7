"""Episodes on an accelerator: all episodes of all tables advance together until the last one ends.

A step of all episodes is cheap; kernel launches dominate its cost. So the rows of all corners are gathered into one sum, (episodes,
actions), and the rest is elementwise on (episodes,): the greedy action, found by comparing columns, the step, and the observation. Ended
episodes stay unchanged. Everything is float32; returns use compensated (Kahan) summation, because small rewards would be lost in a large
sum.
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
STEPS_PER_CALL = 8192
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
    """Return a compiled advance(tables, running, seed, t, until): every episode runs from step t until it ends or reaches step `until`.

    Cached by functions and grid; other shapes are compiled separately.

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

        def one_step(t: Any, running: Running) -> Running:
            a = _first_best(_values(rows, offset, grid, running.observed))
            u = episode_noise(random_uniform(noise_key(seed, t, UINT32), episode, UINT32).astype(jnp.float32))
            outcome = step(running.state, a, u)
            return _after_step(running, outcome, observe(outcome.x), ~running.ended & (t < until))

        def block(carry: tuple[Any, Running]) -> tuple[Any, Running]:
            first, running = carry
            return first + BLOCK, jax.lax.fori_loop(0, BLOCK, lambda i, running: one_step(first + i.astype(jnp.uint32), running), running)

        def unfinished(carry: tuple[Any, Running]) -> Any:
            return (carry[0] < until) & ~carry[1].ended.all()

        return jax.lax.while_loop(unfinished, block, (t, running))[1]

    return jax.jit(advance)


def _values(rows: Any, offset: Any, grid: Grid, observed: tuple) -> Any:
    """Return the interpolated values of all actions, (episodes, actions). The table of an episode starts at its offset."""
    index, weight = multilinear(grid, observed)
    corners = rows.at[offset[:, None] + index.astype(jnp.int32)].get(mode="promise_in_bounds")
    return jnp.sum(weight[:, :, None] * corners, axis=1)


def _first_best(values: Any) -> Any:
    """Return the first action with the largest value, by comparing columns."""
    best, largest = jnp.zeros(values.shape[0], jnp.int32), values[:, 0]
    for b in range(1, values.shape[1]):
        better = values[:, b] > largest
        best, largest = jnp.where(better, b, best), jnp.where(better, values[:, b], largest)
    return best


def _after_step(running: Running, outcome: Any, observed: tuple, active: Any) -> Running:
    """Return the state after one step of the active episodes; other episodes stay unchanged."""

    def update(new: Any, old: Any) -> Any:
        return jnp.where(active, jnp.asarray(new, old.dtype), old)

    reward = jnp.asarray(outcome.reward, jnp.float32) - running.excess
    total = running.returns + reward
    return Running(
        tuple(map(update, outcome.x, running.state)),
        tuple(map(update, observed, running.observed)),
        running.steps + active,
        update(total, running.returns),
        update((total - running.returns) - reward, running.excess),
        running.ended | (active & outcome.ended),
    )


def initial_state(state: tuple, observed: tuple, tables: int) -> Running:
    """Return the episodes of all tables at step 0. The initial states, and what is observed of them, are the same for every table.

    `state` and `observed` have one array (episodes,) per coordinate.

    Examples
    --------
    >>> initial_state((np.zeros(2), np.ones(2)), (np.zeros(2),), 3).state[1].shape
    (6,)
    """
    state, observed = (tuple(jnp.tile(jnp.asarray(number, jnp.float32), tables) for number in numbers) for numbers in (state, observed))
    zeros = jnp.zeros(state[0].shape, jnp.float32)
    return Running(state, observed, zeros.astype(jnp.int32), zeros, zeros, zeros.astype(bool))


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
    """Roll out every table in float32; see `actiongap.planning._numba_rollouts.roll_out`.

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
    for t in range(0, max_episode_steps, STEPS_PER_CALL):
        running = advance(tables, running, np.uint32(seed), np.uint32(t), np.uint32(min(t + STEPS_PER_CALL, max_episode_steps)))
        if running.ended.all():
            break
    coordinates = tuple(np.asarray(number).reshape(shape) for number in running.observed)
    steps, ended = np.asarray(running.steps, np.int64).reshape(shape), np.asarray(running.ended).reshape(shape)
    return EpisodeBatch(coordinates, steps, np.asarray(running.returns, np.float64).reshape(shape), ended)
