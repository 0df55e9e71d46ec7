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

STEPS_PER_CALL = 10_000
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
    """one(q, state, observed, episode, seed, t, until) updates the state (numbers,) and the observed coordinates in place. It returns the
    next step, the sum of rewards, and whether the episode has ended."""
    all: Callable[[np.ndarray, Running, int, int], None]
    """all(tables, running, seed, until) updates `running` in place."""


@lru_cache(maxsize=8)
def loops(step: Step, observe: Callable, episode_noise: Callable, grid: Grid, numbers: int) -> Loops:
    """Return the loops for a simulator whose states are tuples of `numbers` numbers (cached).

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> from actiongap.planning.simulator import Outcome
    >>> grid = Grid((uniform(0.0, 1.0, 2),))
    >>> walk = loops(lambda x, a, u: Outcome((x[0] + a,), 1.0, x[0] > 2), lambda x: x, lambda w: w, grid, 1)
    >>> state, observed = np.array([0.25]), np.array([0.25])
    >>> walk.one(np.array([[0.0, 1.0], [3.0, 2.0]]), state, observed, 0, 0, 0, 1)
    (1, 1.0, False)
    >>> observed.tolist()
    [1.25]
    """
    step, observe, episode_noise = (compile_function(function) for function in (step, observe, episode_noise))
    uniform_at, key_at = compile_function(random_uniform), compile_function(noise_key)
    make_buffers, best, _ = lookup(grid)

    @numba.njit(error_model="numpy")
    def fill(row, values):
        i = 0
        for value in literal_unroll(values):  # enumerate does not accept literal_unroll.
            row[i] = value
            i = i + 1

    @numba.njit(error_model="numpy")
    def run_one(q, state, observed, episode, seed, t, until):
        buffers, total, ended = make_buffers(q), 0.0, False
        while t < until and not ended:
            a = best(q, observed, buffers)
            u = episode_noise(uniform_at(key_at(seed, t), episode))
            outcome = step(to_fixed_tuple(state, numbers), a, u)  # pyright: ignore[reportCallIssue]
            fill(state, outcome.x)
            fill(observed, observe(to_fixed_tuple(state, numbers)))  # pyright: ignore[reportCallIssue]
            total += outcome.reward
            ended = bool(outcome.ended)
            t += 1
        return t, total, ended

    @numba.njit(parallel=True, error_model="numpy")
    def run_parallel(q, state, observed, steps, returns, ended, seed, until):
        episodes = steps.shape[1]
        for number in numba.prange(steps.size):
            i, e = number // episodes, number % episodes
            if not ended[i, e]:
                step_after, total, has_ended = run_one(q[i], state[i, e], observed[i, e], e, seed, steps[i, e], until)
                steps[i, e], returns[i, e], ended[i, e] = step_after, returns[i, e] + total, has_ended

    def run_all(tables: np.ndarray, running: Running, seed: int, until: int) -> None:
        # Episodes differ greatly in length, so a free thread takes the next episode.
        with numba.parallel_chunksize(1):
            run_parallel(tables, *running, seed, until)

    return Loops(_with_remedy(run_one), _with_remedy(run_all))


def _with_remedy(loop: Callable) -> Callable:
    """Return the loop with a remedy in the error if Numba cannot compile it."""

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
    """Roll out every episode of every table, (tables, points, actions), from the given states.

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
    states, coordinates = (np.tile(np.stack(numbers, axis=-1), (len(tables), 1, 1)) for numbers in (state, observed))
    running = Running(states, coordinates, np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, bool))
    run = loops(step, observe, episode_noise, grid, len(state)).all
    for t in range(0, max_episode_steps, STEPS_PER_CALL):
        run(tables, running, seed, min(t + STEPS_PER_CALL, max_episode_steps))
        if running.ended.all():
            break
    return EpisodeBatch(tuple(np.moveaxis(running.observed, -1, 0)), running.steps, running.returns, running.ended)
