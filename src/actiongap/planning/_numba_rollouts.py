"""Episodes in loops that Numba compiles: one loop per episode, with threads in parallel over the episodes of all tables.

Each step looks up the greedy action at the observed coordinates and passes it to the simulator with the noise of the step. Q-values are
summed in the type of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
import numpy as np
from numba import literal_unroll
from numba.core.errors import NumbaError
from numba.np.unsafe.ndarray import to_fixed_tuple

from actiongap._numba import compile_function
from actiongap.planning._cpu_rollouts import Loops, Running
from actiongap.planning._numba_cells import lookup
from actiongap.planning.grid import Grid
from actiongap.planning.noise import noise_key, random_uniform
from actiongap.planning.simulator import Step


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
    make_buffers, best, values = lookup(grid)

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

    return Loops(_with_remedy(run_one), _with_remedy(run_all), values)


def _with_remedy(loop: Callable) -> Callable:
    """Return the loop with a remedy in the error if Numba cannot compile it."""

    def call(*arguments: Any) -> Any:
        try:
            return loop(*arguments)
        except NumbaError:
            remedy = "write its step with arithmetic and actiongap.maths, or use engine='numpy' or 'jax'"
            raise ValueError(f"Numba cannot compile the simulator: {remedy}") from None

    return call
