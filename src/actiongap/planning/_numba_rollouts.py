"""Episodes on a CPU: one compiled loop per episode, with threads in parallel over the episodes of all tables.

Each step looks up the greedy action at the observed coordinates and passes it to the simulator with the noise of the step. States are
float64; tables keep their type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import literal_unroll
from numba.core.errors import NumbaError
from numba.np.unsafe.ndarray import to_fixed_tuple

from actiongap._numba import compile_function
from actiongap.planning._numba_cells import lookup
from actiongap.planning.grid import Grid
from actiongap.planning.noise import noise_key, random_uniform
from actiongap.planning.simulator import EpisodeBatch, Step

ROUND = 10_000
"""Steps between two checks for a keyboard interrupt."""


class Running(NamedTuple):
    """State of all episodes of all tables."""

    state: np.ndarray
    """States, (tables, episodes, numbers)."""
    observed: np.ndarray
    """Observed coordinates, (tables, episodes, coordinates)."""
    steps: np.ndarray
    """Steps taken, (tables, episodes)."""
    returns: np.ndarray
    """Sums of rewards, (tables, episodes)."""
    ended: np.ndarray
    """(tables, episodes)."""


class Loops(NamedTuple):
    """Compiled loops for one simulator, one grid and any tables. An episode runs until it ends or reaches step `until`."""

    one: Callable[..., tuple[int, float, bool]]
    """one(q, state, seen, episode, seed, t, until) updates the state (numbers,) and the observed coordinates in place; it returns the next
    step, the sum of rewards, and whether the episode has ended."""
    all: Callable[[np.ndarray, Running, int, int], None]
    """all(tables, running, seed, until) updates `running` in place."""


@lru_cache(maxsize=8)
def loops(step: Step, observe: Callable, episode_noise: Callable, grid: Grid, numbers: int) -> Loops:
    """Loops for a simulator whose states are tuples of `numbers` numbers (cached).

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> from actiongap.planning.simulator import Outcome
    >>> grid = Grid((uniform(0.0, 1.0, 2),))
    >>> walk = loops(lambda x, a, u: Outcome((x[0] + a,), 1.0, x[0] > 2), lambda x: x, lambda w: w, grid, 1)
    >>> state, seen = np.array([0.25]), np.array([0.25])
    >>> walk.one(np.array([[0.0, 1.0], [3.0, 2.0]]), state, seen, 0, 0, 0, 1)
    (1, 1.0, False)
    >>> seen.tolist()
    [1.25]
    """
    step, observe, episode_noise = (compile_function(function) for function in (step, observe, episode_noise))
    uniform_at, key_at = compile_function(random_uniform), compile_function(noise_key)
    make_buffers, best, _ = lookup(grid)

    @numba.njit(error_model="numpy")
    def fill(row, values):
        i = 0
        for value in literal_unroll(values):  # which enumerate does not take
            row[i] = value
            i = i + 1

    @numba.njit(error_model="numpy")
    def go_on(q, state, seen, episode, seed, t, until):
        own, total, ended = make_buffers(q), 0.0, False
        while t < until and not ended:
            a = best(q, seen, own)
            u = episode_noise(uniform_at(key_at(seed, t), episode))
            outcome = step(to_fixed_tuple(state, numbers), a, u)  # pyright: ignore[reportCallIssue]
            fill(state, outcome.x)
            fill(seen, observe(to_fixed_tuple(state, numbers)))  # pyright: ignore[reportCallIssue]
            total += outcome.reward
            ended = bool(outcome.ended)
            t += 1
        return t, total, ended

    @numba.njit(parallel=True, error_model="numpy")
    def all_go_on(q, state, seen, steps, returns, ended, seed, until):
        episodes = steps.shape[1]
        for number in numba.prange(steps.size):
            i, e = number // episodes, number % episodes
            if not ended[i, e]:
                now, pays, end = go_on(q[i], state[i, e], seen[i, e], e, seed, steps[i, e], until)
                steps[i, e], returns[i, e], ended[i, e] = now, returns[i, e] + pays, end

    def go_all(tables: np.ndarray, running: Running, seed: int, until: int) -> None:
        # Episodes differ greatly in length: a thread that is done takes the next.
        with numba.parallel_chunksize(1):
            all_go_on(tables, *running, seed, until)

    return Loops(_with_remedy(go_on), _with_remedy(go_all))


def _with_remedy(loop: Callable) -> Callable:
    """The same loop; a compilation error becomes one sentence with a remedy."""

    def call(*arguments: Any) -> Any:
        try:
            return loop(*arguments)
        except NumbaError:
            remedy = "write its step with arithmetic and actiongap.maths, or use engine='jax'"
            raise ValueError(f"Numba cannot compile the simulator: {remedy}") from None

    return call


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
    """Every episode of every table, (tables, points, actions), from the given states.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> from actiongap.planning.simulator import Outcome
    >>> def walk(x, a, u):
    ...     return Outcome((x[0] + a,), 1.0, x[0] > 2)
    >>> grid, start = Grid((uniform(0.0, 1.0, 2),)), (np.array([0.25, 0.75]),)
    >>> trials = roll_out(walk, lambda x: x, lambda w: w, grid, np.eye(2)[None], start, start, seed=0, max_episode_steps=9)
    >>> trials.steps.tolist(), trials.ended.tolist()
    ([[9, 3]], [[False, True]])
    """
    tables, shape = np.ascontiguousarray(tables), (len(tables), len(state[0]))
    rows, places = (np.tile(np.stack(numbers, axis=-1), (len(tables), 1, 1)) for numbers in (state, observed))
    running = Running(rows, places, np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, bool))
    go = loops(step, observe, episode_noise, grid, len(state)).all
    for t in range(0, max_episode_steps, ROUND):
        go(tables, running, seed, min(t + ROUND, max_episode_steps))
        if running.ended.all():
            break
    return EpisodeBatch(tuple(np.moveaxis(running.observed, -1, 0)), running.steps, running.returns, running.ended)
