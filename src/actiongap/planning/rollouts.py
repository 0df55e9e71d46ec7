"""Rollouts: evaluate the greedy policies of tables Q(z, a) in complete episodes.

At x the policy takes the action with the largest interpolated value sum_z A(z | x) Q(z, a), with multilinear weights; ties go to the first
action. Episodes run in the continuous simulator, with the step of `Simulator.episode_spec`: the state is never rounded to a grid point.
Only the coordinates that the policy observes are clipped to the grid.

The noise of step t in episode e is a hash of (seed, t, e). All tables get the same noise at the same steps (common random numbers), so
different results are due to the policies. The engines differ in precision only: `numpy` and `numba` keep states in float64 on the CPU, and
`jax` keeps everything in float32. `numpy` sums Q-values in float64, `numba` in the type of the table. Rounding errors grow over an episode,
so in long episodes the engines agree on frequencies, but not on every step.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from actiongap.planning._cpu_rollouts import Loops, numpy_loops, roll_out
from actiongap.planning.engines import Engine, Work, choose_engine, cpu_engine
from actiongap.planning.grid import Grid
from actiongap.planning.noise import episode_noise, episode_seed
from actiongap.planning.simulator import EpisodeBatch, EpisodeSpec, Outcome, Simulator

CHECKED_EPISODES = 4
"""Number of episodes that `check_episodes` starts."""


class Episode(NamedTuple):
    """A recorded episode."""

    states: tuple[np.ndarray, ...]
    """The numbers of the simulator's state, each (frames,)."""
    coordinates: tuple[np.ndarray, ...]
    """The observed coordinates, each (frames,)."""
    actions: np.ndarray
    """The greedy action, (frames,). The action of the last frame is not taken."""
    values: np.ndarray
    """Interpolated Q(x, a), (frames, actions)."""
    steps: np.ndarray
    """Number of steps taken before the frame, (frames,)."""
    outcome: str
    """How it ended: one of the simulator's outcomes, `limit` if it was truncated, or `end` if it matches none of the outcomes."""


def rollouts(
    simulator: Simulator,
    grid: Grid,
    tables: Any,
    episodes: int,
    *,
    seed: int = 0,
    max_episode_steps: int | None = None,
    engine: Engine = "auto",
) -> EpisodeBatch:
    """Roll out the greedy policy of every table, all in one batch.

    Parameters
    ----------
    simulator
        The simulator.
    grid
        The grid on whose points the tables are.
    tables
        Q(z, a) of each policy, (tables, points, actions); NumPy arrays, or JAX arrays for the engine `jax`.
    episodes
        Number of episodes per policy. All policies have the same initial states.
    seed
        Seed of the noise (`actiongap.planning.noise`).
    max_episode_steps
        Number of steps after which an episode is truncated; by default that of the simulator.
    engine
        `numpy`, `numba`, `jax`, or `auto`, which chooses one by the number of episodes and their step limit.

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
    spec, limit = simulator.episode_spec, _step_limit(simulator.episode_spec, max_episode_steps)
    tables, (state, observed) = _check_tables(simulator, grid, tables), _initial_states(simulator, episodes)
    work = Work(tables=len(tables), episodes=episodes, max_episode_steps=limit)
    chosen = choose_engine(engine, simulator, grid, work).engine
    if chosen == "jax":
        from actiongap.planning import _jax_rollouts

        noise = episode_noise(simulator.noise)
        return _jax_rollouts.roll_out(spec.step, spec.observe, noise, grid, tables, state, observed, episode_seed(seed), limit)
    return roll_out(_loops(chosen, simulator, grid, len(state)), tables, state, observed, episode_seed(seed), limit)


def _loops(engine: Literal["numpy", "numba"], simulator: Simulator, grid: Grid, numbers: int) -> Loops:
    """Return the loops of an engine on the CPU, for states of some numbers."""
    spec, noise = simulator.episode_spec, episode_noise(simulator.noise)
    if engine == "numpy":
        return numpy_loops(spec.step, spec.observe, noise, grid)
    # Numba is slow to import.
    from actiongap.planning._numba_rollouts import loops

    return loops(spec.step, spec.observe, noise, grid, numbers)


def frequencies(simulator: Simulator, trials: EpisodeBatch) -> list[dict[str, float]]:
    """Return for each table the fraction of episodes that ended in each outcome of the simulator, `mean_steps` and `mean_return`.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> steps, ended = np.array([[100, 200]]), np.array([[True, False]])
    >>> trials = EpisodeBatch((np.array([[0.5, 0.1]]), np.zeros((1, 2))), steps, -1.0 * steps, ended)
    >>> frequencies(mountain_car(), trials)
    [{'goal_frequency': 0.5, 'mean_steps': 150.0, 'mean_return': -150.0}]
    """
    reached = _reached_outcomes(simulator, trials.coordinates)
    outcomes = {f"{name}_frequency": trials.ended & holds for name, holds in reached.items()}
    columns = {**outcomes, "mean_steps": trials.steps, "mean_return": trials.returns}
    return [{name: float(numbers[table].mean()) for name, numbers in columns.items()} for table in range(len(trials.steps))]


def outcome_masks(simulator: Simulator, trials: EpisodeBatch) -> dict[str, np.ndarray]:
    """Return for each outcome which episodes had it, (tables, episodes). Each episode has one: the first that holds, `limit` or `end`.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> steps, ended = np.array([[100, 200]]), np.array([[True, False]])
    >>> trials = EpisodeBatch((np.array([[0.5, 0.1]]), np.zeros((1, 2))), steps, -1.0 * steps, ended)
    >>> outcome_masks(mountain_car(), trials)
    {'goal': array([[ True, False]]), 'limit': array([[False,  True]])}
    """
    found, rest = {}, trials.ended.copy()
    for name, holds in _reached_outcomes(simulator, trials.coordinates).items():
        found[name] = rest & holds
        rest &= ~holds
    found["limit"] = ~trials.ended
    return {**found, "end": rest} if rest.any() else found


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
    engine: Engine = "auto",
) -> Episode:
    """Record one episode of `rollouts` on the CPU: a frame every `every` steps, and the last one.

    `episode` is the index of the episode among the `episodes` of a rollout. The engine is `numpy` or `numba`; `auto` chooses by the step
    limit, and episodes of `jax` are recorded with `numba`.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> simulator = mountain_car()
    >>> grid = Grid(simulator.axes(2))
    >>> found = record_episode(simulator, grid, np.zeros((4, 3)), 0, 5, max_episode_steps=25, every=10)
    >>> found.steps.tolist(), found.outcome
    ([0, 10, 20, 25], 'limit')
    """
    max_episode_steps = _step_limit(simulator.episode_spec, max_episode_steps)
    tables = np.ascontiguousarray(_check_tables(simulator, grid, [q]))
    if not 0 <= episode < episodes:
        raise ValueError(f"episode is {episode}, and there are {episodes} episodes: choose 0 to {episodes - 1}")
    if every < 1:
        raise ValueError(f"every is {every!r}: give at least 1")
    state, observed = (np.array([number[episode] for number in numbers]) for numbers in _initial_states(simulator, episodes))
    work = Work(tables=1, episodes=1, max_episode_steps=max_episode_steps)
    loops = _loops(cpu_engine(engine, simulator, grid, work), simulator, grid, len(state))
    t, ended, frames = 0, False, [(state.copy(), observed.copy(), 0)]
    while t < max_episode_steps and not ended:
        t, _, ended = loops.one(tables[0], state, observed, episode, episode_seed(seed), t, min(t + every, max_episode_steps))
        frames.append((state.copy(), observed.copy(), t))
    states, points, steps = map(np.array, zip(*frames, strict=True))
    values, coordinates = loops.values(tables[0], points), tuple(points.T)
    reached = [name for name, holds in _reached_outcomes(simulator, coordinates).items() if holds[-1]]
    outcome = "limit" if not ended else reached[0] if reached else "end"
    return Episode(tuple(states.T), coordinates, values.argmax(axis=1), values, steps, outcome)


def _step_limit(spec: EpisodeSpec, max_episode_steps: int | None) -> int:
    if max_episode_steps is not None and max_episode_steps < 1:
        raise ValueError(f"max_episode_steps is {max_episode_steps!r}: give at least 1")
    return spec.max_episode_steps if max_episode_steps is None else max_episode_steps


def _initial_states(simulator: Simulator, episodes: int) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Return the initial states of the episodes and the coordinates observed there, each number an array (episodes,)."""
    if episodes < 1:
        raise ValueError(f"episodes is {episodes!r}: give at least 1")
    spec = simulator.episode_spec
    state = spec.start(episodes)
    observed = spec.observe(state)
    if len(observed) != len(simulator.coordinates):
        names = ", ".join(simulator.coordinates)
        raise ValueError(f"{simulator.name}: observe returns {len(observed)} numbers: return one per coordinate ({names})")
    try:
        state, observed = (
            tuple(np.broadcast_to(np.asarray(number, float), episodes) for number in numbers) for numbers in (state, observed)
        )
    except ValueError:
        raise ValueError(
            f"{simulator.name}: start({episodes}) does not return arrays of {episodes} numbers: return one number per episode"
        ) from None
    return state, observed


def check_episodes(simulator: Simulator) -> None:
    """Raise ValueError if the episodes of a simulator fail at the start or in the first step.

    A plan may take hours, so this runs before it starts.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> simulator = mountain_car()
    >>> check_episodes(Simulator("car", lambda x, a, u: x, state=simulator.state, actions=simulator.actions))
    Traceback (most recent call last):
    ValueError: car: a step of its episodes returns a tuple: it must return Outcome(state, reward, ended)
    """
    spec = simulator.episode_spec
    try:
        state, _ = _initial_states(simulator, CHECKED_EPISODES)
        with np.errstate(all="ignore"):
            outcome = spec.step(state, np.arange(CHECKED_EPISODES) % len(simulator.actions), np.zeros(CHECKED_EPISODES))
        if isinstance(outcome, Outcome):
            after = spec.observe(outcome.x)
            _reached_outcomes(simulator, tuple(np.broadcast_to(np.asarray(number, float), CHECKED_EPISODES) for number in after))
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
            f"{simulator.name}: a state has {len(state)} numbers at the start and {len(outcome.x)} after a step: return all of them"
        )
    for number in (*outcome.x, outcome.reward):
        if not np.isfinite(np.asarray(number, float)).all():
            raise ValueError(f"{simulator.name}: the first step of an episode returns NaN or infinity: fix its start or its step")


def _check_tables(simulator: Simulator, grid: Grid, tables: Any) -> Any:
    """Return the tables with a floating type, or raise ValueError if they are not finite or not for this grid."""
    if len(grid.axes) != len(simulator.coordinates):
        raise ValueError(
            f"the grid has {len(grid.axes)} axes and {simulator.name} {len(simulator.coordinates)} coordinates: give one axis each"
        )
    tables = tables if hasattr(tables, "dtype") else np.array(tables)
    wanted = (grid.size, len(simulator.actions))
    if tables.ndim != 3 or tables.shape[1:] != wanted or not len(tables):
        raise ValueError(f"tables have the shape {tables.shape}: give (tables, {wanted[0]} points, {wanted[1]} actions)")
    for number, table in enumerate(tables):
        # Only two numbers are copied from the device of the table.
        if not np.isfinite([float(table.min()), float(table.max())]).all():
            raise ValueError(f"table {number} contains NaN or infinity: roll out a plan that has not diverged")
    return tables if tables.dtype in (np.float32, np.float64) else tables.astype(np.float32)


def _reached_outcomes(simulator: Simulator, coordinates: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    """Return for each outcome of the simulator whether it holds at the coordinates."""
    outcomes = simulator.episode_spec.outcomes
    return {name: np.broadcast_to(holds(coordinates), np.shape(coordinates[0])) for name, holds in outcomes.items()}
