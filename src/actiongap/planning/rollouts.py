"""Rollouts: how often the greedy policy of a table arrives, falls, or does neither.

The policy of a table Q takes at x the action with the largest interpolated value, sum_z A(z | x) Q(z, a) with multilinear weights, and the
first of several that are as large. It runs in `Simulator.episodes`, not on the grid: the state is never moved to a grid
point, and only what the policy sees of it is clamped to the grid's box.

Chance is the same for all: the noise of step t in episode e is a hash of (seed, t, e), so all tables meet the same gusts at the same
moments, differences between them are differences of policies, and both engines see what a plain loop would. They differ in precision only:
`numba` keeps states in float64 on the CPU, `jax` keeps everything in float32 and goes through all episodes of all tables in step. Since
rounding grows on the way, long episodes agree in their frequencies, not in their every step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from actiongap._system import install
from actiongap.planning.grid import Grid
from actiongap.planning.noise import episode_noise, episode_seed
from actiongap.planning.simulator import EpisodeBatch, EpisodeSpec, Outcome, Simulator

ENGINES = ("numba", "jax")
TRIED = 4
"""Episodes that are begun to see whether they can be."""


class Episode(NamedTuple):
    """One episode, frame by frame."""

    states: tuple
    """The numbers of the simulator's state, each (frames,)."""
    coordinates: tuple
    """What the policy saw, each (frames,)."""
    actions: np.ndarray
    """What it chose, or in the last frame would have chosen, (frames,)."""
    values: np.ndarray
    """Q(x, a) interpolated, (frames, actions)."""
    steps: np.ndarray
    """How many steps had been taken, (frames,)."""
    outcome: str
    """How it ended: one of the simulator's outcomes, `limit` if it was cut short, `end` if the simulator has no name for it."""


def rollouts(
    simulator: Simulator,
    grid: Grid,
    tables: Any,
    episodes: int,
    *,
    seed: int = 0,
    max_episode_steps: int | None = None,
    engine: str = "numba",
) -> EpisodeBatch:
    """Every episode of every table's greedy policy, all in one go.

    Parameters
    ----------
    simulator
        The simulator, with `Simulator.episodes`.
    grid
        The grid on whose points the tables are.
    tables
        Q(z, a) of each policy, (tables, points, actions); NumPy's, or JAX's for the engine `jax`.
    episodes
        How many episodes each policy rides, from the same starts.
    seed
        Of the noise, as `actiongap.planning.noise` draws it.
    limit
        Steps after which an episode is cut short; the simulator's own if not given.
    engine
        `numba` or `jax`.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> simulator = mountain_car()
    >>> grid = Grid(simulator.axes(2))
    >>> left, right = np.eye(3)[[0, 2]]
    >>> trials = rollouts(simulator, grid, [np.tile(left, (4, 1)), np.tile(right, (4, 1))], episodes=5, max_episode_steps=50)
    >>> trials.steps.tolist()
    [[50, 50, 50, 50, 50], [50, 50, 50, 50, 50]]
    """
    spec = _episode_spec(simulator)
    if engine not in ENGINES:
        raise ValueError(f"there is no engine {engine!r} for rollouts: choose from {', '.join(ENGINES)}")
    if engine == "jax":
        try:
            from actiongap.planning._jax_rollouts import roll_out
        except ModuleNotFoundError:
            raise ValueError(f"engine 'jax' needs JAX: {install('jax')}") from None
    else:
        from actiongap.planning._numba_rollouts import roll_out
    tables, (state, seen) = _check_tables(simulator, grid, tables), _starts(simulator, episodes)
    noise = episode_noise(simulator.noise)
    return roll_out(spec.step, spec.observe, noise, grid, tables, state, seen, episode_seed(seed), _step_limit(spec, max_episode_steps))


def frequencies(simulator: Simulator, trials: EpisodeBatch) -> list[dict[str, float]]:
    """For each table the share of episodes that ended in each of the simulator's ways, `mean_steps` and `mean_return`.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> steps, ended = np.array([[100, 200]]), np.array([[True, False]])
    >>> trials = EpisodeBatch((np.array([[0.5, 0.1]]), np.zeros((1, 2))), steps, -1.0 * steps, ended)
    >>> frequencies(mountain_car(), trials)
    [{'goal_frequency': 0.5, 'mean_steps': 150.0, 'mean_return': -150.0}]
    """
    ways = {f"{name}_frequency": trials.ended & holds for name, holds in _reached_outcomes(simulator, trials.coordinates).items()}
    columns = {**ways, "mean_steps": trials.steps, "mean_return": trials.returns}
    return [{name: float(numbers[table].mean()) for name, numbers in columns.items()} for table in range(len(trials.steps))]


def record_episode(
    simulator: Simulator,
    grid: Grid,
    q: np.ndarray,
    episode: int,
    episodes: int,
    *,
    seed: int = 0,
    max_episode_steps: int | None = None,
    every: int = 1,
) -> Episode:
    """Episode number `episode` of those that `rollouts` takes with the engine `numba`, recorded at every so many steps and the last.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> simulator = mountain_car()
    >>> grid = Grid(simulator.axes(2))
    >>> found = record_episode(simulator, grid, np.zeros((4, 3)), 0, 5, max_episode_steps=25, every=10)
    >>> found.steps.tolist(), found.outcome
    ([0, 10, 20, 25], 'limit')
    """
    from actiongap.planning._numba_cells import lookup
    from actiongap.planning._numba_rollouts import loops

    spec = _episode_spec(simulator)
    max_episode_steps = _step_limit(spec, max_episode_steps)
    tables = np.ascontiguousarray(_check_tables(simulator, grid, [q]))
    if not 0 <= episode < episodes:
        raise ValueError(f"episode {episode} was asked for, and there are {episodes}: they are counted from 0")
    if every < 1:
        raise ValueError(f"every is {every!r}: record every step, or every so many")
    state, seen = (np.array([number[episode] for number in numbers]) for numbers in _starts(simulator, episodes))
    go = loops(spec.step, spec.observe, episode_noise(simulator.noise), grid, len(state)).one
    t, ended, frames = 0, False, [(state.copy(), seen.copy(), 0)]
    while t < max_episode_steps and not ended:
        t, _, ended = go(tables[0], state, seen, episode, episode_seed(seed), t, min(t + every, max_episode_steps))
        frames.append((state.copy(), seen.copy(), t))
    states, places, steps = map(np.array, zip(*frames, strict=True))
    values, coordinates = lookup(grid).values(tables[0], places), tuple(places.T)
    how = [name for name, is_so in _reached_outcomes(simulator, coordinates).items() if is_so[-1]]
    outcome = "limit" if not ended else how[0] if how else "end"
    return Episode(tuple(states.T), coordinates, values.argmax(axis=1), values, steps, outcome)


def _episode_spec(simulator: Simulator) -> EpisodeSpec:
    if simulator.episodes is None:
        raise ValueError(f"{simulator.name} does not say how its policies are tried: give it EpisodeSpec")
    return simulator.episodes


def _step_limit(spec: EpisodeSpec, max_episode_steps: int | None) -> int:
    if max_episode_steps is not None and max_episode_steps < 1:
        raise ValueError(f"max_episode_steps is {max_episode_steps!r}: give at least 1")
    return spec.max_episode_steps if max_episode_steps is None else max_episode_steps


def _starts(simulator: Simulator, episodes: int) -> tuple[tuple, tuple]:
    """The states in which episodes start and the coordinates seen there, each number an array (episodes,)."""
    if episodes < 1:
        raise ValueError(f"episodes is {episodes!r}: try at least one")
    spec = _episode_spec(simulator)
    state = spec.start(episodes)
    seen = spec.observe(state)
    if len(seen) != len(simulator.coordinates):
        has = ", ".join(simulator.coordinates)
        raise ValueError(f"{simulator.name}: {len(seen)} numbers are seen of a state, and it has the coordinates {has}: mend its sight")
    try:
        state, seen = (tuple(np.broadcast_to(np.asarray(number, float), episodes) for number in numbers) for numbers in (state, seen))
    except ValueError:
        raise ValueError(
            f"{simulator.name}: its start gives no arrays of {episodes} numbers for as many episodes: mend its start"
        ) from None
    return state, seen


def check_episodes(simulator: Simulator) -> None:
    """Refuse a simulator whose episodes cannot start, or not make a step, before hours are spent on a plan for them.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from actiongap.envs.classic import mountain_car
    >>> simulator = mountain_car()
    >>> check_episodes(replace(simulator, episodes=replace(simulator.episodes, step=lambda state, a, u: state)))
    Traceback (most recent call last):
    ValueError: mountain-car: a step of its episodes returns a tuple: it must return Outcome(state, reward, ended)
    """
    spec = _episode_spec(simulator)
    try:
        state, _ = _starts(simulator, TRIED)
        with np.errstate(all="ignore"):
            outcome = spec.step(state, np.arange(TRIED) % len(simulator.actions), np.zeros(TRIED))
        if isinstance(outcome, Outcome):
            after = spec.observe(outcome.x)
            _reached_outcomes(simulator, tuple(np.broadcast_to(np.asarray(number, float), TRIED) for number in after))
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{simulator.name}: its episodes fail with {type(error).__name__}: {' '.join(str(error).split())}") from error
    if not isinstance(outcome, Outcome):
        raise ValueError(
            f"{simulator.name}: a step of its episodes returns a {type(outcome).__name__}: it must return Outcome(state, reward, ended)"
        )
    if len(outcome.x) != len(state):
        raise ValueError(
            f"{simulator.name}: a state has {len(state)} numbers at the start and {len(outcome.x)} after a step: give them all"
        )
    for number in (*outcome.x, outcome.reward):
        if not np.isfinite(np.asarray(number, float)).all():
            raise ValueError(f"{simulator.name}: the first step of an episode leads to a number that is not finite: mend its start or step")


def _check_tables(simulator: Simulator, grid: Grid, tables: Any) -> Any:
    """Tables of a floating type that are for this grid, and finite."""
    if len(grid.axes) != len(simulator.coordinates):
        raise ValueError(
            f"the grid has {len(grid.axes)} axes and {simulator.name} {len(simulator.coordinates)} coordinates: give one for each"
        )
    tables = tables if hasattr(tables, "dtype") else np.array(tables)
    wanted = (grid.size, len(simulator.actions))
    if tables.ndim != 3 or tables.shape[1:] != wanted or not len(tables):
        raise ValueError(f"tables have the shape {tables.shape}: give one or more of {wanted[0]} grid points and {wanted[1]} actions")
    for number, table in enumerate(tables):
        # Two numbers come back, from whatever device the table is on.
        if not np.isfinite([float(table.min()), float(table.max())]).all():
            raise ValueError(f"table {number} holds something that is not a finite number: roll out a plan that has not diverged")
    return tables if tables.dtype in (np.float32, np.float64) else tables.astype(np.float32)


def _reached_outcomes(simulator: Simulator, coordinates: tuple) -> dict[str, np.ndarray]:
    """Where each of the simulator's outcomes is true."""
    ways = _episode_spec(simulator).outcomes
    return {name: np.broadcast_to(is_so(coordinates), np.shape(coordinates[0])) for name, is_so in ways.items()}
