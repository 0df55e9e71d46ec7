"""Planning on a grid as a run of the laboratory: sweep, and now and then let the greedy policy show what it can do.

A row is one evaluation: episodes of the simulator, played greedily in Q after that many sweeps. Random numbers of a sweep depend
on the seed and the number of the sweep, those of an evaluation on the seed alone, so a run that was interrupted comes to the same numbers,
and tables are compared under the same luck. Engines agree to the rounding of float32, not to the bit: a run that is to be repeated exactly
names its engine.

A chunk is about as much as takes a few seconds. Tables to be evaluated wait until its end and are tried together, for on an accelerator
many episodes take no longer than a few.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from actiongap.envs.simulators import load_simulator
from actiongap.lab.experiment import Experiment, Row, State, path_in
from actiongap.lab.kinds.finite import check_count, check_learned, part
from actiongap.operators import parse
from actiongap.planning.backups import SweepConfig, Sweeps
from actiongap.planning.checks import check_memory, check_simulator
from actiongap.planning.grid import Grid
from actiongap.planning.plan import Engine, SweepProgress, engine_of, grid_of, policy_of, sweep_on, sweeps_for, zero_q
from actiongap.planning.policy import Policy
from actiongap.planning.rollouts import check_episodes, frequencies, record_episode, rollouts
from actiongap.planning.simulator import EpisodeSpec, Simulator

BACKUPS = {"auto": 3e8, "numba": 3e8, "jax": 3e10}
"""Backups in a chunk: seconds of work for each engine. What `auto` comes to differs from machine to machine, and chunks must not."""
GLANCE = 0.05
"""The part of those after which one may look how far it is."""
STEPS = {"auto": 1e7, "numba": 1e7, "jax": math.inf}
"""Steps of episodes in a chunk, at most, unless a single evaluation takes more."""
TABLE_BYTES = 1e9
"""Bytes of tables that wait for their evaluation, at most, unless a single one takes more."""
MOMENTS = 1000
"""Moments of an episode that are recorded after its start, at most."""


_READY: dict[Any, Any] = {}
"""What was compiled last."""


@dataclass(frozen=True)
class Planning(Experiment):
    """Sweeps of Q <- (1 - eta) Q + eta T'Q on a grid, from Q = 0, and episodes played greedily in Q.

    Examples
    --------
    >>> spec = Planning(env="mountain-car", operator="consistent", grid=15, iterations=40, eval_every=20, episodes=10, eta=0.5)
    >>> state, rows = spec.advance(spec.start(), 0)
    >>> [row["step"] for row in rows], state["q"].shape, rows[0]["fall_frequency"]
    ([20, 40], (225, 3), None)
    """

    kind = "plan"
    step_name = "iterations"
    columns: ClassVar[Mapping[str, str]] = {
        "score": "part of the episodes that reach the goal; where there is none, the part that do not fall, or else the mean return",
        "goal_frequency": "part of the episodes that reach the goal",
        "fall_frequency": "part of the episodes that end in a fall",
        "mean_steps": "steps of an episode, mean over episodes",
        "mean_return": "sum of the rewards of an episode, not discounted, mean over episodes",
        "gap": "best less second-best Q, mean over grid points",
        "value": "max_a Q, mean over grid points",
        "residual": "max |T'Q - Q| in the last sweep",
    }

    env: str = "bicycle"
    """A simulator: bicycle, mountain-car, pendulum, cart-pole, acrobot, any with settings as in `bicycle:fall=once`, or FILE.py:NAME."""
    operator: str = "bellman"
    """An operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, or path/to/file.py:name."""
    grid: int = 8
    """Points an axis."""
    iterations: int = 1000
    """How many sweeps."""
    eval_every: int = 100
    """How many sweeps between evaluations; there is one after the last sweep too."""
    episodes: int = 100
    """How many episodes an evaluation plays."""
    record_episodes: int = 0
    """How many of them, evenly chosen, are recorded at every evaluation, into the state in which the run ends."""
    max_episode_steps: int | None = None
    """After how many steps an episode is cut short; the simulator's own limit if not given."""
    gamma: float | None = None
    """The discount; the simulator's own if not given."""
    eta: float = 0.1
    """How far a sweep moves Q to the operator's value, in (0, 1]."""
    samples: int = 1
    """How many next states are drawn for each pair and sweep, where noise is drawn."""
    noise: Literal["independent", "shared"] = "independent"
    """Whether each pair draws its own noise, or shares it with pairs that differ only in coordinates that no noisy step looks at."""
    interpolate: Literal["q", "v"] = "q"
    """Whether Q is interpolated between grid points, or V: the paper's aggregation."""
    engine: Engine = "auto"
    """Where to sweep: numba on the CPU, jax, or auto, which is jax where JAX sees an accelerator."""
    seed: int = 0
    """Which random numbers to use; the same seed repeats a run."""

    def __post_init__(self) -> None:
        for name in ("iterations", "eval_every", "episodes", "samples"):
            check_count(name, getattr(self, name))
        if self.max_episode_steps is not None:
            check_count("max_episode_steps", self.max_episode_steps)
        if not 0 <= self.record_episodes <= self.episodes:
            raise ValueError(
                f"record_episodes is {self.record_episodes!r}: of {self.episodes} episodes none can be recorded, or some, or all"
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed!r}: it must be a whole number from 0 to 2^32 - 1")
        if self.simulator.episodes is None:
            raise ValueError(f"{self.env} does not say how its policies are tried: give it episodes")
        _ = self.place, self.sweep_config

    @property
    def simulator(self) -> Simulator:
        """The simulator that the text names."""
        return _simulator(*_identity(self.env))

    @property
    def place(self) -> Grid:
        """The grid."""
        return _grid(*_identity(self.env), self.grid)

    @property
    def trials(self) -> EpisodeSpec:
        """How policies are tried."""
        assert self.simulator.episodes is not None
        return self.simulator.episodes

    @property
    def sweep_config(self) -> SweepConfig:
        """What a sweep does."""
        gamma = self.simulator.gamma if self.gamma is None else self.gamma
        shared, of_values = self.noise == "shared", self.interpolate == "v"
        return SweepConfig(parse(self.operator), gamma, self.eta, self.samples, shared, of_values, self.seed)

    @property
    def chunks(self) -> int:
        steps = self.episodes * (self.max_episode_steps or self.trials.max_episode_steps)
        evaluations = int(min(STEPS[self.engine] / steps, TABLE_BYTES / (4 * self.place.size * len(self.simulator.actions))))
        return math.ceil(self.iterations / min(self.iterations, self._sweeps_in(1.0), self.eval_every * max(1, evaluations)))

    @property
    def total_steps(self) -> int:
        return self.iterations

    def _sweeps_in(self, part: float) -> int:
        """How many sweeps make up a part of a chunk's backups, at least 1."""
        return max(1, int(part * BACKUPS[self.engine] / (self.place.size * len(self.simulator.actions) * self.samples)))

    def prepare(self) -> Sweeps:
        """The sweeps, compiled once a process; a sentence if the simulator, the operator or the memory is not up to it."""
        numbers = (self.grid, self.gamma, self.eta, self.samples, self.noise, self.interpolate, self.engine)
        key = (_identity(self.env), _identity(self.operator), numbers)
        if key not in _READY:
            # What was ready for another run makes room.
            _READY.clear()
            engine = engine_of(self.engine)
            check_memory(self.simulator, self.place, engine, waiting=1 + math.ceil(self.iterations / self.chunks) // self.eval_every)
            check_simulator(self.simulator, self.place)
            check_episodes(self.simulator)
            sweeps = sweeps_for(self.simulator, self.place, self.sweep_config, engine)
            # Engines compile when they first sweep, each for the number of sweeps asked for; that is over before anything is timed.
            sweeps.advance(
                sweeps.put(zero_q(self.simulator, self.place)), 0, min(self._sweeps_in(GLANCE), self.eval_every, self.iterations)
            )
            _READY[key] = sweeps
        sweeps = _READY[key]
        # What was compiled serves every seed.
        sweeps.config = replace(sweeps.config, seed=self.seed)
        return sweeps

    @property
    def recorded(self) -> tuple[int, ...]:
        """Which episodes are recorded."""
        return tuple((2 * i + 1) * self.episodes // (2 * self.record_episodes) for i in range(self.record_episodes))

    def start(self) -> State:
        self.prepare()
        return {"q": zero_q(self.simulator, self.place), **self._nothing_recorded()}

    def _nothing_recorded(self) -> State:
        """Room for the states of recorded episodes, (evaluations, episodes, moments, numbers); not a number where nothing was recorded."""
        if not self.record_episodes:
            return {}
        limit, numbers = self.max_episode_steps or self.trials.max_episode_steps, len(self.trials.start(1))
        shape = (
            math.ceil(self.iterations / self.eval_every),
            self.record_episodes,
            math.ceil(limit / math.ceil(limit / MOMENTS)) + 1,
            numbers,
        )
        return {"rides": np.full(shape, np.nan, np.float32)}

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        return self.pursue(state, chunk, lambda pace: None, lambda tables: None)

    def pursue(
        self, state: State, chunk: int, look: Callable[[SweepProgress], None], rolling: Callable[[int], None]
    ) -> tuple[State, Sequence[Row]]:
        """`advance` with somebody looking on: called with the pace of the sweeps, and with how many tables are now tried."""
        sweeps, q = self.prepare(), state["q"]
        begin, end = part(self.iterations, self.chunks, chunk)
        due = [step for step in range(begin + 1, end + 1) if step % self.eval_every == 0 or step == self.iterations]
        tables, residuals = np.empty((len(due), *q.shape), np.float32), []
        table, done = sweeps.put(q), begin
        for step in sorted({*due, end}):
            with np.errstate(over="ignore", invalid="ignore"):
                table, residual = sweep_on(sweeps, table, done, step - done, self._sweeps_in(GLANCE), look)
            q, done = check_learned(sweeps.get(table), self.operator), step
            if step in due:
                tables[len(residuals)] = q
                residuals.append(residual)
        rolling(len(tables))
        rows = [{"step": step, **row} for step, row in zip(due, self._evaluate(tables, residuals), strict=True)]
        return {"q": q, **self._recorded(state, due, tables)}, rows

    def watched(self, look: Callable[[SweepProgress], None], rolling: Callable[[int], None]) -> Planning:
        """The same experiment with somebody looking on at every chunk."""
        pursue = self.pursue

        class Watched(Planning):
            def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
                return pursue(state, chunk, look, rolling)

        return Watched(**vars(self))

    def policy(self, q: np.ndarray, **about: Any) -> Policy:
        """The policy that is greedy in a table of this run."""
        return policy_of(
            self.env, self.simulator, self.place, self.sweep_config, q, iterations=self.iterations, engine=self.engine, **about
        )

    def _evaluate(self, tables: np.ndarray, residuals: list[float]) -> list[Row]:
        if not len(tables):
            return []
        engine = engine_of(self.engine)
        played = rollouts(
            self.simulator, self.place, tables, self.episodes, seed=self.seed, max_episode_steps=self.max_episode_steps, engine=engine
        )
        return [
            {**_scores(numbers), **table_numbers(q), "residual": residual}
            for numbers, q, residual in zip(frequencies(self.simulator, played), tables, residuals, strict=True)
        ]

    def _recorded(self, state: State, due: list[int], tables: np.ndarray) -> State:
        """What was recorded before, and the episodes of some more tables, on the CPU whatever the engine."""
        if not self.record_episodes:
            return {}
        recorded_states, every = (
            state["rides"].copy(),
            math.ceil((self.max_episode_steps or self.trials.max_episode_steps) / MOMENTS),
        )
        for step, q in zip(due, tables, strict=True):
            for place, episode in enumerate(self.recorded):
                recorded = record_episode(
                    self.simulator,
                    self.place,
                    q,
                    episode,
                    self.episodes,
                    seed=self.seed,
                    max_episode_steps=self.max_episode_steps,
                    every=every,
                )
                recorded_states[math.ceil(step / self.eval_every) - 1, place, : len(recorded.steps)] = np.stack(recorded.states, axis=-1)
        return {"rides": recorded_states}


def table_numbers(q: np.ndarray) -> Row:
    """The mean action gap and the mean value of a table (points, actions).

    Examples
    --------
    >>> table_numbers(np.array([[0.0, 1.0, 3.0], [5.0, 5.0, 0.0]]))
    {'gap': 1.0, 'value': 4.0}
    """
    best = q.max(axis=1)
    if q.shape[1] == 1:
        return {"gap": None, "value": float(best.mean(dtype=np.float64))}
    second = np.partition(q, -2, axis=1)[:, -2]
    return {"gap": float((best - second).mean(dtype=np.float64)), "value": float(best.mean(dtype=np.float64))}


def _scores(numbers: Mapping[str, float]) -> Row:
    goal, fall = numbers.get("goal_frequency"), numbers.get("fall_frequency")
    score = goal if goal is not None else 1.0 - fall if fall is not None else numbers["mean_return"]
    means = {name: numbers[name] for name in ("mean_steps", "mean_return")}
    return {"score": score, "goal_frequency": goal, "fall_frequency": fall, **means}


def _identity(text: str) -> tuple[str, tuple]:
    """A text, and what tells a file that it names from others of that name: where it is, and when it was changed."""
    path = path_in(text)
    try:
        found = os.stat(path) if path else None
    except OSError:
        found = None
    return text, (os.path.abspath(path), found.st_ino, found.st_mtime_ns) if found else ()


@lru_cache(maxsize=16)
def _simulator(text: str, file: tuple) -> Simulator:
    return load_simulator(text)


@lru_cache(maxsize=16)
def _grid(text: str, file: tuple, n: int) -> Grid:
    return grid_of(_simulator(text, file), n)
