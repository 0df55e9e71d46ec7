"""Planning on a grid as an experiment: sweeps, with evaluations of the greedy policy at regular intervals.

A row is one evaluation: episodes of the simulator that follow the greedy policy of Q after that many sweeps. The random numbers of a sweep
depend on the seed and the number of the sweep, those of an evaluation on the seed alone. So an interrupted run gives the same numbers, and
all tables are evaluated with the same noise. Engines agree to the rounding of float32, not to the bit. To repeat a run exactly, name its
engine.

A chunk takes a few seconds. The tables to be evaluated are collected until its end and evaluated in one call, because many episodes take no
longer than a few on an accelerator.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from actiongap._files import write_text
from actiongap.envs.simulators import load_simulator
from actiongap.lab.experiment import (
    FORMAT,
    VERSION,
    Experiment,
    Row,
    State,
    cached,
    check_count,
    check_finite,
    check_seed,
    chunk_bounds,
    path_in,
)
from actiongap.lab.validation import read_record
from actiongap.maths import top_two
from actiongap.operators import parse
from actiongap.planning.backups import SweepConfig, Sweeps
from actiongap.planning.checks import check_memory, check_simulator
from actiongap.planning.engines import Engine, EngineChoice, Work, choose_engine
from actiongap.planning.grid import Grid
from actiongap.planning.plan import SweepProgress, grid_of, policy_of, run_sweeps, sweeps_for, zero_q
from actiongap.planning.policy import Policy
from actiongap.planning.rollouts import check_episodes, frequencies, record_episode, rollouts
from actiongap.planning.simulator import EpisodeSpec, Simulator

BACKUPS = {"auto": 3e8, "numpy": 3e6, "numba": 3e8, "jax": 3e10}
"""Backups per chunk: a few seconds of work on each engine. `auto` has a fixed number, because chunks must not depend on the machine."""
PROGRESS_FRACTION = 0.05
"""Progress is reported after this fraction of a chunk's backups."""
STEPS = {"auto": 1e7, "numpy": 1e6, "numba": 1e7, "jax": math.inf}
"""Maximum number of episode steps per chunk, unless a single evaluation takes more."""
TABLE_BYTES = 1e9
"""Maximum size of the tables that wait for their evaluation, in bytes, unless a single one is larger."""
MAX_EPISODES = 10**8
"""Maximum number of episodes per evaluation, which are played at once."""
MAX_FRAMES = 1000
"""Maximum number of states that are recorded per episode, besides the first."""

_READY: dict[Any, Any] = {}
"""The sweeps that were compiled last."""


@dataclass(frozen=True)
class Planning(Experiment):
    """Sweeps of Q <- (1 - eta) Q + eta T'Q on a grid, from Q = 0, and episodes that follow the greedy policy of Q.

    Examples
    --------
    >>> spec = Planning(env="mountain-car", operator="consistent", grid=15, iterations=40, eval_every=20, episodes=10, eta=0.5)
    >>> state, rows = spec.advance(spec.start(), 0)
    >>> [row["step"] for row in rows], state["q"].shape, rows[0]["fall_frequency"]
    ([20, 40], (225, 3), None)
    """

    kind = "plan"
    compiles = True
    step_name = "iterations"
    columns: ClassVar[Mapping[str, str]] = {
        "score": "fraction of episodes that reach the goal; without a goal, the fraction that do not fall, or else the mean return",
        "goal_frequency": "fraction of episodes that reach the goal",
        "fall_frequency": "fraction of episodes that end in a fall",
        "mean_steps": "steps per episode, mean over episodes",
        "mean_return": "undiscounted return of an episode, mean over episodes",
        "gap": "best minus second-best Q, mean over grid points",
        "value": "max_a Q, mean over grid points",
        "residual": "max |T'Q - Q| in the last sweep",
    }

    env: str = "bicycle"
    """A simulator: bicycle, mountain-car, pendulum, cart-pole, acrobot, with options as in `bicycle:fall=once`, or FILE.py:NAME."""
    operator: str = "bellman"
    """An operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, or path/to/file.py:name."""
    grid: int = 8
    """Points per axis."""
    iterations: int = 1000
    """Number of sweeps."""
    eval_every: int = 100
    """Number of sweeps between evaluations. The policy is also evaluated after the last sweep."""
    episodes: int = 100
    """Number of episodes per evaluation; 0 plays none."""
    record_episodes: int = 0
    """Number of these episodes, evenly spaced, that are recorded at every evaluation and saved in the final state of the run."""
    max_episode_steps: int | None = None
    """Steps after which an episode is truncated. The simulator's own limit if not given."""
    gamma: float | None = None
    """Discount factor. The simulator's own if not given."""
    eta: float = 0.1
    """Step size of a sweep, in (0, 1]."""
    samples: int = 1
    """Number of next states sampled per pair and sweep, if the noise is sampled."""
    noise: Literal["independent", "shared"] = "independent"
    """Whether each pair samples its own noise, or shares it with pairs that differ only in coordinates that no noisy step reads."""
    interpolate: Literal["q", "v"] = "q"
    """Whether Q or V is interpolated between grid points. V is the paper's aggregation."""
    engine: Engine = "auto"
    """Library that computes sweeps and episodes: numpy (small plans), numba (CPU), jax, or auto, which chooses by the size of the plan."""
    seed: int = 0
    """Random seed; the same seed repeats a run."""

    def __post_init__(self) -> None:
        for name in ("iterations", "eval_every", "samples"):
            check_count(name, getattr(self, name))
        if self.episodes:
            check_count("episodes", self.episodes, MAX_EPISODES)
        if self.max_episode_steps is not None:
            check_count("max_episode_steps", self.max_episode_steps)
        if not 0 <= self.record_episodes <= self.episodes:
            raise ValueError(f"record_episodes is {self.record_episodes!r}: it must be from 0 to {self.episodes}, the number of episodes")
        check_seed(self.seed)
        _ = self.state_grid, self.sweep_config

    @property
    def simulator(self) -> Simulator:
        """The simulator that `env` names."""
        return _simulator(*_file_version(self.env))

    @property
    def state_grid(self) -> Grid:
        """The grid of states."""
        return _grid(*_file_version(self.env), self.grid)

    @property
    def episode_spec(self) -> EpisodeSpec:
        """The simulator's definition of an episode."""
        return self.simulator.episode_spec

    @property
    def step_limit(self) -> int:
        """Steps after which an episode is truncated."""
        return self.max_episode_steps or self.episode_spec.max_episode_steps

    @property
    def sweep_config(self) -> SweepConfig:
        """The configuration of a sweep."""
        gamma = self.simulator.gamma if self.gamma is None else self.gamma
        shared, of_values = self.noise == "shared", self.interpolate == "v"
        return SweepConfig(parse(self.operator), gamma, self.eta, self.samples, shared, of_values, self.seed)

    @property
    def engine_choice(self) -> EngineChoice:
        """The engine that the plan uses, and why."""
        if self.engine != "auto":
            return choose_engine(self.engine, self.simulator, self.state_grid, Work())
        tables, batches = math.ceil(self.iterations / self.eval_every) * (self.episodes > 0), replace(self, engine="numpy").chunks
        # Recorded episodes run once more, one by one.
        batches = min(tables, batches) + tables * self.record_episodes
        work = Work(self.iterations, self.samples, tables, self.episodes, self.step_limit, batches)
        return choose_engine("auto", self.simulator, self.state_grid, work)

    @property
    def chunks(self) -> int:
        steps = max(1, self.episodes) * self.step_limit
        evaluations = int(min(STEPS[self.engine] / steps, TABLE_BYTES / (4 * self.state_grid.size * len(self.simulator.actions))))
        return math.ceil(self.iterations / min(self.iterations, self._sweeps_in(1.0), self.eval_every * max(1, evaluations)))

    @property
    def total_steps(self) -> int:
        return self.iterations

    def _sweeps_in(self, fraction: float) -> int:
        """Return the number of sweeps in a fraction of a chunk's backups, at least 1."""
        return max(1, int(fraction * BACKUPS[self.engine] / (self.state_grid.size * len(self.simulator.actions) * self.samples)))

    def prepare(self) -> Sweeps:
        """Return the sweeps, compiled once per process. Raises ValueError if simulator, operator or memory is unsuitable."""
        engine = self.engine_choice.engine
        numbers = (self.grid, self.gamma, self.eta, self.samples, self.noise, self.interpolate, engine)
        sweeps = cached(_READY, (_file_version(self.env), _file_version(self.operator), numbers), self._compile)
        # The compiled sweeps serve every seed.
        sweeps.config = replace(sweeps.config, seed=self.seed)
        return sweeps

    def _compile(self) -> Any:
        engine = self.engine_choice.engine
        check_memory(self.simulator, self.state_grid, engine, waiting=1 + math.ceil(self.iterations / self.chunks) // self.eval_every)
        check_simulator(self.simulator, self.state_grid)
        check_episodes(self.simulator)
        sweeps = sweeps_for(self.simulator, self.state_grid, self.sweep_config, engine)
        if engine != "numpy":
            # Engines compile at their first sweep, for each number of sweeps. Compile here, before anything is timed.
            count = min(self._sweeps_in(PROGRESS_FRACTION), self.eval_every, self.iterations)
            sweeps.advance(sweeps.put(zero_q(self.simulator, self.state_grid)), 0, count)
        return sweeps

    @property
    def recorded_episodes(self) -> tuple[int, ...]:
        """Numbers of the episodes that are recorded."""
        return tuple((2 * i + 1) * self.episodes // (2 * self.record_episodes) for i in range(self.record_episodes))

    def start(self) -> State:
        self.prepare()
        return {"q": zero_q(self.simulator, self.state_grid), **self._empty_recording()}

    def _empty_recording(self) -> State:
        """Return an array for the states of recorded episodes (evaluations, episodes, frames, numbers), filled with NaN."""
        if not self.record_episodes:
            return {}
        evaluations, frames = math.ceil(self.iterations / self.eval_every), math.ceil(self.step_limit / self._frame_interval) + 1
        shape = (evaluations, self.record_episodes, frames, len(self.episode_spec.start(1)))
        return {"episodes": np.full(shape, np.nan, np.float32)}

    @property
    def _frame_interval(self) -> int:
        """Steps between two recorded states of an episode."""
        return math.ceil(self.step_limit / MAX_FRAMES)

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        return self._advance(state, chunk, lambda progress: None, lambda tables: None)

    def _advance(
        self, state: State, chunk: int, on_sweeps: Callable[[SweepProgress], None], on_rollouts: Callable[[int], None]
    ) -> tuple[State, Sequence[Row]]:
        sweeps, q = self.prepare(), state["q"]
        begin, end = chunk_bounds(self.iterations, self.chunks, chunk)
        due = [step for step in range(begin + 1, end + 1) if step % self.eval_every == 0 or step == self.iterations]
        tables, residuals = np.empty((len(due), *q.shape), np.float32), []
        table, done = sweeps.put(q), begin
        for step in sorted({*due, end}):
            with np.errstate(over="ignore", invalid="ignore"):
                table, residual = run_sweeps(sweeps, table, done, step - done, self._sweeps_in(PROGRESS_FRACTION), on_sweeps)
            q, done = check_finite(sweeps.get(table), self.operator), step
            if step in due:
                tables[len(residuals)] = q
                residuals.append(residual)
        on_rollouts(len(tables))
        rows = [{"step": step, **row} for step, row in zip(due, self._evaluate(tables, residuals), strict=True)]
        return {"q": q, **self._record(state, due, tables)}, rows

    def with_progress(self, on_sweeps: Callable[[SweepProgress], None], on_rollouts: Callable[[int], None]) -> Planning:
        """Return a copy of the experiment that reports the progress of sweeps, and the number of tables before each evaluation."""
        advance = self._advance

        class WithProgress(Planning):
            def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
                return advance(state, chunk, on_sweeps, on_rollouts)

        return WithProgress(**vars(self))

    def policy(self, q: np.ndarray, **about: Any) -> Policy:
        """Return the greedy policy of a table of this run."""
        return policy_of(
            self.env, self.simulator, self.state_grid, self.sweep_config, q, iterations=self.iterations, engine=self.engine, **about
        )

    def _evaluate(self, tables: np.ndarray, residuals: list[float]) -> list[Row]:
        if not len(tables):
            return []
        if not self.episodes:
            return [{**_scores({}), **table_means(q), "residual": residual} for q, residual in zip(tables, residuals, strict=True)]
        engine = self.engine_choice.engine
        trials = rollouts(
            self.simulator, self.state_grid, tables, self.episodes, seed=self.seed, max_episode_steps=self.max_episode_steps, engine=engine
        )
        return [
            {**_scores(numbers), **table_means(q), "residual": residual}
            for numbers, q, residual in zip(frequencies(self.simulator, trials), tables, residuals, strict=True)
        ]

    def _record(self, state: State, due: list[int], tables: np.ndarray) -> State:
        """Add the recorded episodes of some tables to those recorded before. They run on the CPU with every engine."""
        if not self.record_episodes:
            return {}
        options = {"seed": self.seed, "max_episode_steps": self.max_episode_steps, "engine": self.engine_choice.engine}
        recorded_states = state["episodes"].copy()
        for step, q in zip(due, tables, strict=True):
            for index, number in enumerate(self.recorded_episodes):
                episode = record_episode(self.simulator, self.state_grid, q, number, self.episodes, **options, every=self._frame_interval)
                recorded_states[math.ceil(step / self.eval_every) - 1, index, : len(episode.steps)] = np.stack(episode.states, axis=-1)
        return {"episodes": recorded_states}


class SweepTimes:
    """Time spent in sweeps, over all attempts at a plan. It is stored outside the rows, which are deterministic.

    Examples
    --------
    >>> times = SweepTimes()
    >>> times.add(SweepProgress(10, 0.5, sweeps=10, seconds=2.0))
    >>> times.mean()
    0.2
    """

    def __init__(self, folder: Path | None = None):
        self.file: Path | None = None if folder is None else folder / "times.json"
        self.sweeps: int = 0
        self.seconds: float = 0.0
        # If the file is damaged, timing starts again from zero.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            if self.file is not None:
                found = read_record(self.file)
                self.sweeps, self.seconds = int(found["sweeps"]), float(found["seconds"])

    def add(self, sweeps: SweepProgress) -> None:
        """Add the time of some sweeps."""
        self.sweeps, self.seconds = self.sweeps + sweeps.sweeps, self.seconds + sweeps.seconds

    def write(self) -> None:
        """Write the times to the folder of the run, if there is one."""
        if self.file is not None:
            record = {"format": FORMAT, "version": VERSION, "sweeps": self.sweeps, "seconds": self.seconds}
            write_text(self.file, json.dumps(record), sweep=False)

    def mean(self) -> float | None:
        """Return the mean seconds per sweep; None if no sweep was timed."""
        return self.seconds / self.sweeps if self.sweeps > 0 else None


def table_means(q: np.ndarray) -> Row:
    """Return the mean action gap and the mean value of a table (points, actions).

    Examples
    --------
    >>> table_means(np.array([[0.0, 1.0, 3.0], [5.0, 5.0, 0.0]]))
    {'gap': 1.0, 'value': 4.0}
    """
    best, second = top_two(q)
    gap = float((best - second).mean(dtype=np.float64)) if q.shape[1] > 1 else None
    return {"gap": gap, "value": float(best.mean(dtype=np.float64))}


def _scores(numbers: Mapping[str, float]) -> Row:
    goal, fall = numbers.get("goal_frequency"), numbers.get("fall_frequency")
    score = goal if goal is not None else 1.0 - fall if fall is not None else numbers.get("mean_return")
    means = {name: numbers.get(name) for name in ("mean_steps", "mean_return")}
    return {"score": score, "goal_frequency": goal, "fall_frequency": fall, **means}


def _file_version(text: str) -> tuple[str, tuple[str | int, ...]]:
    """Return a cache key: the string, with the path, inode and modification time of the file that it names."""
    path = path_in(text)
    try:
        found = os.stat(path) if path else None
    except OSError:
        found = None
    return text, (os.path.abspath(path), found.st_ino, found.st_mtime_ns) if found else ()


@lru_cache(maxsize=16)
def _simulator(text: str, file: tuple[str | int, ...]) -> Simulator:
    return load_simulator(text)


@lru_cache(maxsize=16)
def _grid(text: str, file: tuple[str | int, ...], n: int) -> Grid:
    return grid_of(_simulator(text, file), n)
