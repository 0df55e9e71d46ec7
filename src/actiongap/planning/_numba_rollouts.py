"""Episodes on a CPU: one compiled loop, in which threads take lanes and each lane goes on until it ends.

A lane is an episode of a table. What is done at a step is look up the best action where the policy believes to be, and hand it to the
simulator with the noise of the moment. States are kept in float64, and tables are read as they are.
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
"""Steps between two looks at whether somebody wants to interrupt."""


class Lanes(NamedTuple):
    """Episodes on their way, table by table."""

    state: np.ndarray
    """The numbers of each state, (tables, episodes, numbers)."""
    seen: np.ndarray
    """What the policy sees of it, (tables, episodes, coordinates)."""
    steps: np.ndarray
    """Steps taken, (tables, episodes)."""
    returns: np.ndarray
    """Rewards so far, (tables, episodes)."""
    ended: np.ndarray
    """(tables, episodes)."""


class Loops(NamedTuple):
    """Compiled loops for one simulator, one grid and any tables. A lane goes on until it ends or has taken so many steps."""

    one: Callable[..., tuple[int, float, bool]]
    """Of a table, a state and what is seen of it, (numbers,) and (coordinates,), which it changes, the numbers of the episode, the seed and
    the step, and until when to go: the step after the last, what was paid, and whether the episode has ended."""
    all: Callable[[np.ndarray, Lanes, int, int], None]
    """Of tables, lanes, a seed and until when to go."""


@lru_cache(maxsize=8)
def loops(step: Step, sight: Callable, episode_noise: Callable, grid: Grid, numbers: int) -> Loops:
    """Loops for a simulator whose states are so many numbers, kept for the next call with the same functions and grid.

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
    step, sight, episode_noise = (compile_function(function) for function in (step, sight, episode_noise))
    uniform_at, key_at = compile_function(random_uniform), compile_function(noise_key)
    room, best, _ = lookup(grid)

    @numba.njit(error_model="numpy")
    def fill(row, values):
        i = 0
        for value in literal_unroll(values):  # which enumerate does not take
            row[i] = value
            i = i + 1

    @numba.njit(error_model="numpy")
    def go_on(q, state, seen, episode, seed, t, until):
        own, total, ended = room(q), 0.0, False
        while t < until and not ended:
            a = best(q, seen, own)
            u = episode_noise(uniform_at(key_at(seed, t), episode))
            outcome = step(to_fixed_tuple(state, numbers), a, u)  # pyright: ignore[reportCallIssue]
            fill(state, outcome.x)
            fill(seen, sight(to_fixed_tuple(state, numbers)))  # pyright: ignore[reportCallIssue]
            total += outcome.reward
            ended = bool(outcome.ended)
            t += 1
        return t, total, ended

    @numba.njit(parallel=True, error_model="numpy")
    def all_go_on(q, state, seen, steps, returns, ended, seed, until):
        episodes = steps.shape[1]
        for lane in numba.prange(steps.size):
            i, e = lane // episodes, lane % episodes
            if not ended[i, e]:
                now, pays, end = go_on(q[i], state[i, e], seen[i, e], e, seed, steps[i, e], until)
                steps[i, e], returns[i, e], ended[i, e] = now, returns[i, e] + pays, end

    def go_all(tables: np.ndarray, lanes: Lanes, seed: int, until: int) -> None:
        # Lanes are of very different lengths: whoever is done takes the next.
        with numba.parallel_chunksize(1):
            all_go_on(tables, *lanes, seed, until)

    return Loops(_in_plain_words(go_on), _in_plain_words(go_all))


def _in_plain_words(loop: Callable) -> Callable:
    """The same loop, which says in one sentence that it cannot be compiled."""

    def call(*arguments: Any) -> Any:
        try:
            return loop(*arguments)
        except NumbaError:
            remedy = "write what episodes do with arithmetic and actiongap.maths, or take the engine jax"
            raise ValueError(f"the simulator cannot be compiled by Numba: {remedy}") from None

    return call


def roll_out(
    step: Step, sight: Callable, episode_noise: Callable, grid: Grid, tables: Any, state: tuple, seen: tuple, seed: int, limit: int
) -> EpisodeBatch:
    """Every episode of every table, (tables, points, actions), from the given states.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> from actiongap.planning.simulator import Outcome
    >>> def walk(x, a, u):
    ...     return Outcome((x[0] + a,), 1.0, x[0] > 2)
    >>> grid, start = Grid((uniform(0.0, 1.0, 2),)), (np.array([0.25, 0.75]),)
    >>> trials = roll_out(walk, lambda x: x, lambda w: w, grid, np.eye(2)[None], start, start, seed=0, limit=9)
    >>> trials.steps.tolist(), trials.ended.tolist()
    ([[9, 3]], [[False, True]])
    """
    tables, shape = np.ascontiguousarray(tables), (len(tables), len(state[0]))
    rows, places = (np.tile(np.stack(numbers, axis=-1), (len(tables), 1, 1)) for numbers in (state, seen))
    lanes = Lanes(rows, places, np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, bool))
    go = loops(step, sight, episode_noise, grid, len(state)).all
    for t in range(0, limit, ROUND):
        go(tables, lanes, seed, min(t + ROUND, limit))
        if lanes.ended.all():
            break
    return EpisodeBatch(tuple(np.moveaxis(lanes.seen, -1, 0)), lanes.steps, lanes.returns, lanes.ended)
