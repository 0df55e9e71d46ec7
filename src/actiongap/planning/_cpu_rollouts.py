"""Episodes on a CPU. Numba compiles the loops of its engine; NumPy's are here.

States are float64, and tables keep their type. With the engine `numpy` all running episodes of all tables advance together, one step at a
time. It takes any simulator and compiles nothing, so short evaluations are finished before Numba would have compiled its loops. Its
Q-values are those of `Policy.q`, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from actiongap.planning.grid import Grid
from actiongap.planning.interpolation import interpolated_rows
from actiongap.planning.noise import UINT32, noise_key, random_uniform
from actiongap.planning.simulator import EpisodeBatch, Step

STEPS_PER_CALL = 10_000
"""Steps between two checks for a keyboard interrupt, which compiled loops do not notice."""


class Running(NamedTuple):
    """State of all episodes of all tables. All episodes that have not ended have taken the same number of steps."""

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
    """The loops of an engine for one simulator, one grid and any tables. An episode runs until it ends or reaches step `until`."""

    one: Callable[..., tuple[int, float, bool]]
    """one(q, state, observed, episode, seed, t, until) updates the state (numbers,) and the observed coordinates in place. It returns the
    next step, the sum of rewards, and whether the episode has ended."""
    all: Callable[[np.ndarray, Running, int, int], None]
    """all(tables, running, seed, until) updates `running` in place."""
    values: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """values(q, points) returns the Q-values of all actions, (n, actions), at points (n, d)."""


def roll_out(loops: Loops, tables: Any, state: tuple, observed: tuple, seed: int, max_episode_steps: int) -> EpisodeBatch:
    """Roll out every episode of every table, (tables, points, actions), from the given states.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> from actiongap.planning.simulator import Outcome
    >>> def walk(x, a, u):
    ...     return Outcome((x[0] + a,), 1.0, x[0] > 2)
    >>> start = (np.array([0.25, 0.75]),)
    >>> loops = numpy_loops(walk, lambda x: x, lambda w: w, Grid((uniform(0.0, 1.0, 2),)))
    >>> trials = roll_out(loops, np.eye(2)[None], start, start, seed=0, max_episode_steps=9)
    >>> trials.steps.tolist(), trials.ended.tolist()
    ([[9, 3]], [[False, True]])
    """
    tables, shape = np.ascontiguousarray(tables), (len(tables), len(state[0]))
    states, coordinates = (np.tile(np.stack(numbers, axis=-1), (len(tables), 1, 1)) for numbers in (state, observed))
    running = Running(states, coordinates, np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, bool))
    for t in range(0, max_episode_steps, STEPS_PER_CALL):
        loops.all(tables, running, seed, min(t + STEPS_PER_CALL, max_episode_steps))
        if running.ended.all():
            break
    return EpisodeBatch(tuple(np.moveaxis(running.observed, -1, 0)), running.steps, running.returns, running.ended)


def numpy_loops(step: Step, observe: Callable, episode_noise: Callable, grid: Grid) -> Loops:
    """Return the loops of the engine `numpy`.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> from actiongap.planning.simulator import Outcome
    >>> grid = Grid((uniform(0.0, 1.0, 2),))
    >>> walk = numpy_loops(lambda x, a, u: Outcome((x[0] + a,), 1.0, x[0] > 2), lambda x: x, lambda w: w, grid)
    >>> state, observed = np.array([0.25]), np.array([0.25])
    >>> walk.one(np.array([[0.0, 1.0], [3.0, 2.0]]), state, observed, 0, 0, 0, 1)
    (1, 1.0, False)
    >>> observed.tolist()
    [1.25]
    """

    def advance(tables: np.ndarray, running: Running, seed: int, until: int, first_episode: int = 0) -> None:
        rows, episodes = tables.reshape(-1, tables.shape[-1]), running.steps.shape[1]
        # Reshaped without copies, so results are written through these arrays.
        state, observed = (numbers.reshape(running.steps.size, -1) for numbers in (running.state, running.observed))
        steps, returns, ended = (numbers.reshape(-1) for numbers in (running.steps, running.returns, running.ended))
        active = np.flatnonzero(~ended & (steps < until))
        if not len(active):
            return
        x, seen, t = state[active], observed[active], int(steps[active[0]])
        while t < until and len(active):
            table, episode = np.divmod(active, episodes)
            a = interpolated_rows(grid, rows, seen, table * grid.size).argmax(axis=1)
            key, counter = np.uint32(noise_key(seed, t)), (episode + first_episode).astype(np.uint32)
            outcome = step(_columns(x), a, episode_noise(random_uniform(key, counter, UINT32)))
            x = _rows(outcome.x, len(active))
            seen, t = _rows(observe(_columns(x)), len(active)), t + 1
            returns[active] += outcome.reward
            over = np.broadcast_to(np.asarray(outcome.ended, bool), active.shape)
            if t == until or over.any():
                state[active], observed[active], steps[active], ended[active] = x, seen, t, over
                active, x, seen = active[~over], x[~over], seen[~over]

    def run_all(tables: np.ndarray, running: Running, seed: int, until: int, first_episode: int = 0) -> None:
        # Compiled loops do not warn either.
        with np.errstate(all="ignore"):
            advance(tables, running, seed, until, first_episode)

    def run_one(q: np.ndarray, state: np.ndarray, observed: np.ndarray, episode: int, seed: int, t: int, until: int) -> Any:
        numbers = (np.full((1, 1), t), np.zeros((1, 1)), np.zeros((1, 1), bool))
        running = Running(state[None, None], observed[None, None], *numbers)
        run_all(q[None], running, seed, until, episode)
        return running.steps.item(), running.returns.item(), running.ended.item()

    return Loops(run_one, run_all, lambda q, points: interpolated_rows(grid, q, points))


def _columns(rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the columns of an array, each contiguous."""
    return tuple(np.ascontiguousarray(rows.T))


def _rows(columns: tuple[Any, ...], count: int) -> np.ndarray:
    """Return numbers or arrays (count,) as the columns of one array in float64."""
    return np.stack([np.broadcast_to(np.asarray(column, float), count) for column in columns], axis=1)
