"""Golden values: record what the package computes, and compare two records key by key.

    python tools/golden.py record OUT.npz [--only PATTERN ...] [--quick]
    python tools/golden.py compare A.npz B.npz [--tolerant]
    python tools/golden.py list [--quick]

A record maps stable keys such as `sweeps/numba/bicycle/consistent/q` to plain arrays. On one machine two records of the same numbers are
equal to the last bit: `record` runs in a new process with fixed flags, threads and seeds. Across machines compare with `--tolerant`:
integers, booleans, texts and random numbers must be equal, float64 to a relative 1e-9 and float32 to 1e-4. `tests/golden/` holds the
reference record that `tests/tools/test_golden.py` compares with; after an intended change of numbers, record it again:

    python tools/golden.py record tests/golden/golden.npz

The catalogue names nothing of the package directly, so that this file runs on every version of the package. If something is renamed,
append its new name to its entry of a table below, and keep the old names:

- `NAMES`: functions, classes and constants, as `module:attribute`;
- `FIELDS`: attributes, keywords, configuration fields (`config.`) and columns of rows (`row.`); unlisted names equal their keys;
- `STATE`: parts of the paths of arrays in a checkpoint.

The last name that exists is used. If a call has changed in more than names, append an adapter (a function) instead of a name.
Intended differences between versions belong in `EXCEPTIONS`, with a reason. They count only in exact comparisons: with `--tolerant`, and
in the tests, every key is compared.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import hashlib
import importlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NAMES: dict[str, tuple[Any, ...]] = {
    # operators
    "backup": ("actiongap.operators:backup",),
    "parse": ("actiongap.operators:parse",),
    "sampled_backup": ("actiongap.td:sampled_backup",),
    "soft_backup": ("actiongap.td:soft_backup",),
    "td_target": ("actiongap.td:td_target",),
    "persistent_q_learning": ("actiongap.td:persistent_q_learning",),
    # proofs
    "prove": ("actiongap.proof.conditions:prove", "actiongap.mdp.witness:prove"),
    "find_witnesses": ("actiongap.proof.witness:find_witnesses", "actiongap.mdp.witness:find_witnesses"),
    # finite MDPs
    "FiniteMDP": ("actiongap.finite.model:FiniteMDP", "actiongap.mdp.model:FiniteMDP"),
    "cake": ("actiongap.finite.examples:cake", "actiongap.mdp.generators:cake"),
    "single_state": ("actiongap.finite.examples:single_state", "actiongap.mdp.generators:single_state"),
    "chain": ("actiongap.finite.examples:chain", "actiongap.mdp.generators:chain"),
    "gridworld": ("actiongap.finite.examples:gridworld", "actiongap.mdp.generators:gridworld"),
    "garnet": ("actiongap.finite.examples:garnet", "actiongap.mdp.generators:garnet"),
    "from_gymnasium": ("actiongap.finite.gymnasium:from_gymnasium", "actiongap.mdp.gym:from_gymnasium"),
    "load_mdp": ("actiongap.finite.problems:load_mdp", "actiongap.mdp.generators:load_mdp"),
    "solve": ("actiongap.finite.solve:solve", "actiongap.mdp.solve:solve"),
    "backups": ("actiongap.finite.sweeps:backups", "actiongap.mdp.engines:backups"),
    "rounding": ("actiongap.finite.stopping:rounding", "actiongap.mdp.stopping:rounding"),
    "gap_error": ("actiongap.finite.stopping:gap_error", "actiongap.mdp.stopping:gap_error"),
    "Progress": ("actiongap.finite.sweeps:Progress", "actiongap.mdp.engines:Progress"),
    "evaluate_policy": ("actiongap.finite.exact:evaluate_policy", "actiongap.mdp.exact:evaluate_policy"),
    "policy_iteration": ("actiongap.finite.exact:policy_iteration", "actiongap.mdp.exact:policy_iteration"),
    "q_stationary": ("actiongap.finite.exact:q_stationary", "actiongap.mdp.exact:q_stationary"),
    "partition": ("actiongap.finite.aggregation:partition", "actiongap.mdp.aggregation:partition"),
    "averager": ("actiongap.finite.aggregation:averager", "actiongap.mdp.aggregation:averager"),
    "line": ("actiongap.finite.aggregation:interpolation", "actiongap.mdp.aggregation:interpolation"),
    "kernel_averager": ("actiongap.finite.aggregation:kernel_averager", "actiongap.mdp.aggregation:kernel_averager"),
    "induced_mdp": ("actiongap.finite.aggregation:induced_mdp", "actiongap.mdp.aggregation:induced_mdp"),
    "interpolated_backups": ("actiongap.finite.aggregation:interpolated_backups", "actiongap.mdp.aggregation:interpolated_backups"),
    "iterate_interpolated": ("actiongap.finite.aggregation:iterate_interpolated", "actiongap.mdp.aggregation:iterate_interpolated"),
    "interpolated_policy": ("actiongap.finite.aggregation:interpolated_policy", "actiongap.mdp.aggregation:interpolated_policy"),
    "interpolation_counterexample": (
        "actiongap.finite.aggregation:interpolation_counterexample",
        "actiongap.mdp.aggregation:interpolation_counterexample",
    ),
    "q_learning": ("actiongap.finite.learning:q_learning", "actiongap.mdp.learning:q_learning"),
    "sarsa": ("actiongap.finite.learning:sarsa", "actiongap.mdp.learning:sarsa"),
    "expected_policy_evaluation": (
        "actiongap.finite.learning:expected_policy_evaluation",
        "actiongap.mdp.learning:expected_policy_evaluation",
    ),
    "collect": ("actiongap.finite.fitted:collect", "actiongap.mdp.fitted:collect"),
    "fitted_q_iteration": ("actiongap.finite.fitted:fitted_q_iteration", "actiongap.mdp.fitted:fitted_q_iteration"),
    # random numbers of the grid planner
    "mix": ("actiongap.grid.draws:mix", "actiongap.planning.noise:mix", "actiongap.planning.noise:hash32"),
    "place_key": ("actiongap.grid.draws:place_key", "actiongap.planning.noise:place_key", "actiongap.planning.noise:noise_key"),
    "draw": ("actiongap.grid.draws:draw", "actiongap.planning.noise:draw", "actiongap.planning.noise:random_uniform"),
    "UNSIGNED": ("actiongap.grid.draws:UNSIGNED", "actiongap.planning.noise:UNSIGNED", "actiongap.planning.noise:UINT32"),
    "trial_seed": ("actiongap.grid.chance:trial_seed", "actiongap.planning.noise:trial_seed", "actiongap.planning.noise:episode_seed"),
    "noise_from_uniform": ("actiongap.grid.chance:sway", "actiongap.planning.noise:sway", "actiongap.planning.noise:episode_noise"),
    "noise_of": ("actiongap.grid.rule:noise_of", "actiongap.planning.backups:noise_of"),
    "noise_at": ("actiongap.grid.rule:noise_at", "actiongap.planning.backups:noise_at"),
    "Uniform": ("actiongap.grid.domain:Uniform", "actiongap.planning.simulator:Uniform"),
    "Discrete": ("actiongap.grid.domain:Discrete", "actiongap.planning.simulator:Discrete"),
    # grids and planning
    "Grid": ("actiongap.grid.points:Grid", "actiongap.planning.grid:Grid"),
    "Axis": ("actiongap.grid.axes:Axis", "actiongap.planning.grid:Axis"),
    "uniform_axis": ("actiongap.grid.axes:uniform", "actiongap.planning.grid:uniform"),
    "periodic_axis": ("actiongap.grid.axes:periodic", "actiongap.planning.grid:periodic"),
    "multilinear": ("actiongap.grid.interpolation:multilinear", "actiongap.planning.interpolation:multilinear"),
    "simplex": ("actiongap.grid.interpolation:simplex", "actiongap.planning.interpolation:simplex"),
    "nearest_neighbour": (
        "actiongap.grid.interpolation:nearest_neighbour",
        "actiongap.planning.interpolation:nearest_neighbour",
        "actiongap.planning.interpolation:nearest_neighbor",
    ),
    "kernel_interpolation": ("actiongap.grid.interpolation:averager", "actiongap.planning.interpolation:averager"),
    "load_simulator": (
        "actiongap.domains.catalogue:load_domain",
        "actiongap.envs.simulators:load_domain",
        "actiongap.envs.simulators:load_simulator",
    ),
    "one_step": ("actiongap.grid.domain:one_step", "actiongap.planning.simulator:one_step"),
    "sweep_config": ("actiongap.grid.rule:Rule", "actiongap.planning.backups:Rule", "actiongap.planning.backups:SweepConfig"),
    "layout_of": ("actiongap.grid.layout:layout_of", "actiongap.planning.factors:layout_of"),
    "numba_sweeps": ("actiongap.grid.cpu.sweeps:cpu_sweeps", "actiongap.planning._numba_sweeps:cpu_sweeps"),
    "jax_sweeps": ("actiongap.grid.accelerator.sweeps:jax_sweeps", "actiongap.planning._jax_sweeps:jax_sweeps"),
    "JaxSweeps": ("actiongap.grid.accelerator.sweeps:JaxSweeps", "actiongap.planning._jax_sweeps:JaxSweeps"),
    "pallas_form": ("actiongap.grid.accelerator.kernel:Kernel", "actiongap.planning._pallas:Kernel"),
    "plan": ("actiongap.grid.planner:plan", "actiongap.api:plan", "actiongap.api.policies:plan"),
    "rollouts": ("actiongap.grid.rollouts:rollouts", "actiongap.planning.rollouts:rollouts"),
    "frequencies": ("actiongap.grid.rollouts:frequencies", "actiongap.planning.rollouts:frequencies"),
    "record_episode": ("actiongap.grid.rollouts:ride", "actiongap.planning.rollouts:ride", "actiongap.planning.rollouts:record_episode"),
    # environments
    "BicycleEnv": ("actiongap.domains.environment:Bicycle", "actiongap.envs.bicycle_env:Bicycle"),
    "BicycleVectorEnv": ("actiongap.domains.environment:Bicycles", "actiongap.envs.bicycle_env:Bicycles"),
    "MinAtarEnv": ("actiongap.arena.gymnasium:MinAtar", "actiongap.envs.minatar.env:MinAtar"),
    "MinAtarVectorEnv": ("actiongap.arena.gymnasium:MinAtars", "actiongap.envs.minatar.env:MinAtars"),
    "minatar_games": ("actiongap.arena.minatar:GAMES", "actiongap.envs.minatar:GAMES"),
    "num_uniforms": ("actiongap.arena.game:luck", "actiongap.envs.functional:luck", "actiongap.envs.functional:num_uniforms"),
    "env_init": ("actiongap.arena.game:begin", "actiongap.envs.functional:begin", "actiongap.envs.functional:reset_env"),
    "env_step": ("actiongap.arena.game:play_on", "actiongap.envs.functional:play_on", "actiongap.envs.functional:step_env"),
    "Emulators": ("actiongap.arena.atari.emulators:Emulators", "actiongap.envs.atari:Emulators"),
    # agents
    "Config": ("actiongap.deep.settings:Settings", "actiongap.dqn.config:Settings", "actiongap.dqn.config:Config"),
    "DQN": ("actiongap.deep.dqn:DQN", "actiongap.dqn.agent:DQN"),
    "Transition": ("actiongap.deep.memory:Transition", "actiongap.dqn.replay:Transition"),
    "sample_uniform": ("actiongap.deep.memory:draw_evenly", "actiongap.dqn.replay:draw_evenly", "actiongap.dqn.replay:sample_uniform"),
    "sample_prioritized": (
        "actiongap.deep.memory:draw_by_priority",
        "actiongap.dqn.replay:draw_by_priority",
        "actiongap.dqn.replay:sample_prioritized",
    ),
    "replay_init": ("actiongap.deep.replay:blank", "actiongap.dqn.replay:blank", "actiongap.dqn.replay:init"),
    "replay_add": ("actiongap.deep.replay:remember", "actiongap.dqn.replay:remember", "actiongap.dqn.replay:add"),
    "replay_sample": ("actiongap.deep.replay:recall", "actiongap.dqn.replay:recall", "actiongap.dqn.replay:sample"),
    "frame_replay_init": ("actiongap.deep.film:blank", "actiongap.dqn.frame_replay:blank", "actiongap.dqn.frame_replay:init"),
    "frame_replay_add": ("actiongap.deep.film:remember", "actiongap.dqn.frame_replay:remember", "actiongap.dqn.frame_replay:add"),
    "frame_replay_sample": ("actiongap.deep.film:recall", "actiongap.dqn.frame_replay:recall", "actiongap.dqn.frame_replay:sample"),
    "FrameStep": ("actiongap.deep.film:Shot", "actiongap.dqn.frame_replay:Shot", "actiongap.dqn.frame_replay:FrameStep"),
    "q_network": ("actiongap.deep.networks:q_network", "actiongap.dqn.networks:q_network"),
    "RunBatch": (
        "actiongap.experiments.training:Trainers",
        "actiongap.lab.kinds.train:Trainers",
        "actiongap.lab.kinds.train:TrainingBatch",
    ),
    "load_agent": (
        "actiongap.experiments.trained:load_trained",
        "actiongap.lab.agents:load_trained",
        "actiongap.api.trained:load_trained",
    ),
    "probe_record": ("actiongap.deep.probe:record", "actiongap.dqn.probe:record"),
    "probe": ("actiongap.deep.probe:probe", "actiongap.dqn.probe:probe"),
    "smoothed": ("actiongap.deep.probe:smoothed", "actiongap.dqn.probe:smoothed"),
    # experiments
    "make_experiment": ("actiongap.lab.spec:make", "actiongap.lab.experiment:make"),
    "Study": ("actiongap.lab.study:Study",),
    "study_grid": ("actiongap.lab.study:grid",),
    "run_in_process": ("actiongap.lab.crew:launch_crews", "actiongap.lab.batches:launch_crews", "actiongap.lab.executors:run_inline"),
    "run_one": ("actiongap.lab.work:work", "actiongap.lab.runner:work", "actiongap.lab.runner:run_experiment"),
    "read_checkpoint": ("actiongap.lab.checkpoint:read_checkpoint",),
    "estimate_cost": ("actiongap.lab.estimate:_cost", "actiongap.lab.cost:_cost"),
    "Rate": ("actiongap.lab.estimate:Rate", "actiongap.lab.cost:Rate"),
    # statistics
    "wilson": ("actiongap.lab.statistics:wilson",),
    "score": ("actiongap.lab.statistics:score",),
    "aggregate": ("actiongap.lab.statistics:aggregate",),
    "performance_profile": ("actiongap.lab.statistics:performance_profile",),
    "probability_of_improvement": ("actiongap.lab.statistics:probability_of_improvement",),
    "paired_t_tests": ("actiongap.lab.paper_statistics:paired_t_tests", "actiongap.lab.statistics:paired_t_tests"),
    "tally": ("actiongap.lab.paper_statistics:tally", "actiongap.lab.statistics:tally"),
    "times_best": ("actiongap.lab.paper_statistics:times_best", "actiongap.lab.statistics:times_best"),
    "improvement": ("actiongap.lab.paper_statistics:improvement", "actiongap.lab.statistics:improvement"),
    "FORMULAS": ("actiongap.lab.paper_statistics:FORMULAS", "actiongap.lab.statistics:FORMULAS"),
    "paper_table": ("actiongap.lab.paper_statistics:paper_table", "actiongap.lab.statistics:paper_table"),
}
"""Stable key: import paths, oldest first."""

FIELDS: dict[str, tuple[Any, ...]] = {
    # configuration of agents and of their training runs
    "config.env": ("problem", "env"),
    "config.num_envs": ("environments", "num_envs"),
    "config.gradient_steps": ("updates", "gradient_steps"),
    "config.batch_size": ("batch", "batch_size"),
    "config.buffer_size": ("replay", "buffer_size"),
    "config.learning_starts": ("learn_after", "learning_starts"),
    "config.target_update_interval": ("target_every", "target_update_interval"),
    "config.exploration_steps": ("explore_for", "exploration_steps"),
    "config.optimizer": ("optimiser", "optimizer"),
    "config.learning_rate": ("rate", "learning_rate"),
    "config.max_grad_norm": ("norm", "max_grad_norm"),
    "config.n_step": ("steps", "n_step"),
    "config.priority_exponent": ("priority", "priority_exponent"),
    "config.importance_exponent": ("correction", "importance_exponent"),
    "config.correction_network": ("corrections", "correction_network"),
    "config.frame_stack": ("stack", "frame_stack"),
    "config.clip_rewards": ("clip", "clip_rewards"),
    "config.terminal_on_life_loss": (("lives", {False: "ignored", True: "terminal"}), "terminal_on_life_loss"),
    "config.repeat_action_probability": ("sticky", "repeat_action_probability"),
    "config.eval_every": ("every", "eval_every"),
    "config.max_episode_steps": ("limit", "max_episode_steps"),
    "config.record_episodes": ("record", "record_episodes"),
    "config.save_replay_buffer": ("save_memory", "save_replay_buffer"),
    # sweeps over a grid
    "plan.grid": ("n", "grid"),
    "sweep.shared": ("shared",),
    "sweep.of_values": ("of_values",),
    "rollout.max_steps": ("limit", "max_steps", "max_episode_steps"),
    "episode.outcome": ("ending", "outcome"),
    "policy.q": ("q", "table"),
    # environments
    "env.sticky": ("sticky", "repeat_action_probability"),
    "vector.send": ("send",),
    "vector.receive": ("receive",),
    "vector.begin": ("begin", "reset"),
    "vector.over": ("over", "terminated"),
    "vector.lost_life": ("lost_life", "life_lost"),
    "step.terminated": ("ended", "terminated"),
    "step.following": ("following",),
    # agents
    "dqn.init": ("begin", "init"),
    "dqn.values": ("values", "q_values"),
    "dqn.choose": ("choose", "act"),
    "agent.learner": ("learner",),
    "frame.new": ("fresh", "first"),
    "frame.valid": ("real", "valid"),
    "probe.gap": ("gap",),
    # runs
    "most": ("most", "batch_size"),
    "run.folder": ("runs",),
    "run.rows": ("metrics.jsonl",),
    "run.checkpoints": ("checkpoint",),
    # columns of rows
    "row.score": ("score",),
    "row.games": ("games",),
}
"""Stable key, with a scope before the dot: names, oldest first. A name may have a table of values, `(name, {stable: value})`."""

STATE: tuple[tuple[str, str], ...] = (
    (r"\.opt_state\b", ".optimiser"),
    (r"\.replay\.first\b", ".replay.fresh"),
    (r"^\.env_state\.envs\b", ".env_state.play"),
    (r"^\.env_state\.episode_return\b", ".env_state.total"),
    (r"^\.env_state\.return_sum\b", ".env_state.finished"),
    (r"^\.env_state\.starts\b", ".env_state.begun"),
    (r"^\.env_state\.replay_start\b", ".env_state.since"),
    (r"^\.env_state\.replay_restarts\b", ".env_state.rebuilt"),
    (r"^\.env_state\b", ".world"),
    (r"^episodes\b", "rides"),
)
"""Patterns and what replaces them, which turn paths in checkpoints of today into those of the first version."""

EXCEPTIONS: tuple[tuple[str, str], ...] = (
    ("statistics/wilson", "SciPy's Wilson interval rounds its last bit differently from the formula of 0.1"),
    ("statistics/tally", "its intervals are Wilson's"),
    ("proof/sal:0.3,0.8/*", "averages are proved since 0.2: optimality is preserved, with an alpha, and the exit code is 0"),
    *(
        (f"proof/{part}/*", "another witness: the solver's models depend on the queries before")
        for part in ("al:1.5", "witness/sal:0.9,0.8")
    ),
    *(
        (
            f"plan/{plan}/values",
            "a policy sums Q-values in float64 and rounds once, to get the same alone and in a batch",
        )
        for plan in ("mountain-car/jax", "pendulum/numba", "quick/mountain-car/numba")
    ),
)
"""Patterns of keys that may differ in exact comparisons, each with the reason."""

WITNESS_KINDS = {"resting point": "fixed point"}
"""Names of 0.1 for kinds of witnesses, and today's."""

FLAGS = {
    "JAX_PLATFORMS": "cpu",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "NUMBA_OPT": "1",
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONWARNINGS": "ignore",
}
"""Environment variables of a record. Compilation takes most of the time, so most optimizations are off."""

FAMILY = ("bellman", "consistent", "al:0.5", "al:0.9", "pal:0.5", "pal:0.9", "pal-dqn:0.5", "pal-dqn:0.9", "lazy:0.5")
AT_ONE = ("al:1", "pal:1", "pal-dqn:1", "lazy:1")
OTHERS = ("baird:0.5", "clipped-al:0.9,0.5", "sal:0.3,0.8")
SOFT = ("munchausen:0.03,0.9", "munchausen:0.5,0.9,-0.2", "dpp:0.1")
RANDOM = ("rso:0,1", "rso:0.5,1.5")
ALL = ("bellman", "consistent", "al:0.5", "pal:0.9", "pal-dqn:0.9", "lazy:0.5", *OTHERS)
"""One of each, for engines that compile."""
FEW = ("bellman", "consistent", "pal:0.9")
MAX_STORED = 400
"""Maximum number of stored entries per array. Larger arrays store an even selection and a digest of the whole."""


# Names


@cache
def resolve(key: str) -> Any:
    """Return the object of a stable key in the installed package."""
    for place in reversed(NAMES[key]):
        if callable(place):
            return place
        module, _, attribute = place.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            # A missing dependency is an error.
            if error.name is None or not (module + ".").startswith(error.name + "."):
                raise
        except AttributeError:
            continue
    raise LookupError(f"none of {', '.join(map(str, NAMES[key]))} exists: append the new name to NAMES[{key!r}]")


def names_of(field: str) -> list[tuple[str, Mapping[Any, Any]]]:
    """Return the names of a field, newest first, each with its table of values."""
    given = FIELDS.get(field, (field.rpartition(".")[2],))
    return [(name, {}) if isinstance(name, str) else name for name in reversed(given)]


def get(thing: Any, field: str) -> Any:
    """Return an attribute of an object or an entry of a mapping."""
    for name, _ in names_of(field):
        if isinstance(thing, Mapping):
            if name in thing:
                return thing[name]
        elif hasattr(thing, name):
            return getattr(thing, name)
    raise LookupError(f"a {type(thing).__name__} has no {field}: append the new name to FIELDS[{field!r}]")


def keywords(accepted: Callable[[str], bool], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords by their accepted names."""
    found = {}
    for field, value in fields.items():
        for name, values in names_of(field):
            if accepted(name):
                found[name] = values.get(value, value) if values else value
                break
        else:
            raise LookupError(f"no name of {field} is accepted: append the new one to FIELDS[{field!r}]")
    return found


def call(key: str, *arguments: Any, **fields: Any) -> Any:
    """Call the function of a stable key; keywords are fields, `scope__name` for `scope.name`."""
    function = resolve(key)
    parameters = inspect.signature(function).parameters
    any_keyword = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    given = {name.replace("__", "."): value for name, value in fields.items()}
    return function(*arguments, **keywords(lambda name: any_keyword or name in parameters, given))


def experiment(kind: str, **fields: Any) -> Any:
    """Make an experiment of a kind from fields of `config.`."""
    return call("make_experiment", kind, experiment_values(kind, fields))


def experiment_values(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an experiment by the names of its kind."""
    make = resolve("make_experiment")
    known = {field.name for field in dataclasses.fields(make(kind, {}))}
    return keywords(lambda name: name in known, {f"config.{name}": value for name, value in fields.items()})


def path_of(name: str) -> str:
    """Return the stable form of a path in a checkpoint."""
    for pattern, replacement in STATE:
        name = re.sub(pattern, replacement, name)
    return name.strip(".").replace("/", "-")


# Records

Found = Iterator[tuple[str, Any]]


class Section(NamedTuple):
    """A part of the catalogue."""

    name: str
    compute: Callable[[], Found]
    quick: bool


SECTIONS: dict[str, Section] = {}


def section(name: str, quick: bool = False) -> Callable[[Callable[[], Found]], Callable[[], Found]]:
    """Register a function that yields keys, below the name of the section, and values."""

    def add(compute: Callable[[], Found]) -> Callable[[], Found]:
        SECTIONS[name] = Section(name, compute, quick)
        return compute

    return add


def plain(value: Any) -> np.ndarray:
    """Return a value as an array that needs no pickle."""
    if value is None:
        return np.array(np.nan)
    if isinstance(value, str):
        return np.array(value)
    if isinstance(value, list | tuple) and any(isinstance(part, str) for part in value):
        return np.array([str(part) for part in value])
    if isinstance(value, list | tuple) and any(part is None for part in value):
        return np.array([np.nan if part is None else part for part in value], float)
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"{value!r} is not an array of numbers")
    # NumPy has no bfloat16.
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def entries(key: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the stored form of a value: all of it, or a selection and a digest."""
    array = plain(value)
    if array.size <= MAX_STORED:
        yield key, array
        return
    flat = np.ascontiguousarray(array).reshape(-1)
    whole = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode() + flat.tobytes()).hexdigest()
    yield key, flat[np.linspace(0, flat.size - 1, MAX_STORED).astype(int)]
    yield f"{key}#{'float' if array.dtype.kind == 'f' else 'exact'}", np.array(whole[:32])


def fields_of(thing: Any, *fields: str) -> Found:
    """Yield some attributes of an object."""
    for field in fields:
        yield field.rpartition(".")[2], get(thing, field)


def below(prefix: str, found: Any) -> Found:
    """Yield keys below a prefix."""
    for key, value in found:
        yield f"{prefix}/{key}", value


def rows_of(rows: Sequence[Mapping[str, Any]]) -> Found:
    """Yield the columns of rows by their stable names."""
    stable = {name: field.removeprefix("row.") for field in FIELDS if field.startswith("row.") for name, _ in names_of(field)}
    for column in sorted({name for row in rows for name in row}):
        yield stable.get(column, column), [row.get(column) for row in rows]


def state_of(state: Mapping[str, np.ndarray]) -> Found:
    """Yield the arrays of a checkpoint by their stable paths."""
    for name in sorted(state):
        yield path_of(name), state[name]


def matches(name: str, pattern: str) -> bool:
    """Whether a name is `=NAME`, matches the pattern, or contains it."""
    return name == pattern[1:] if pattern.startswith("=") else pattern in name or fnmatch.fnmatch(name, pattern)


def selected_sections(only: Sequence[str], quick: bool) -> list[Section]:
    """Return the selected sections."""
    return [
        part
        for part in SECTIONS.values()
        if (part.quick or not quick) and (not only or any(matches(part.name, pattern) for pattern in only))
    ]


def record(out: str, only: Sequence[str], quick: bool) -> int:
    """Compute, print progress, and write a record; return exit code 1 if a section failed."""
    import actiongap

    print(f"actiongap in {Path(actiongap.__file__).parent}", flush=True)
    found: dict[str, np.ndarray] = {}
    failed, begun = [], time.perf_counter()
    for part in selected_sections(only, quick):
        start, before = time.perf_counter(), len(found)
        try:
            for key, value in below(part.name, part.compute()):
                for name, array in entries(key, value):
                    if name in found:
                        raise LookupError(f"{name} is recorded twice")
                    found[name] = array
        except Exception as error:
            failed.append(part.name)
            print("".join(traceback.format_exception(error)[-8:]), flush=True)
        state = "FAILED" if part.name in failed else f"{len(found) - before} arrays"
        print(f"{part.name}: {state} in {time.perf_counter() - start:.1f} s", flush=True)
    write(out, found)
    print(f"{len(found)} arrays in {out}, {time.perf_counter() - begun:.0f} s")
    if failed:
        print(f"{len(failed)} sections failed: {', '.join(failed)}")
    return 1 if failed else 0


def write(out: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write all arrays into one file: one row per dtype, with an index, because thousands of small files would be mostly headers."""
    index, rows = [], {}
    for key in sorted(arrays):
        array = arrays[key]
        kind = array.dtype.str if array.dtype.kind not in "U" else "U"
        row = rows.setdefault(kind, [])
        index.append(json.dumps([key, kind, list(array.shape)]))
        row += [array.reshape(-1)]
    stored = {kind: np.concatenate(row) for kind, row in rows.items()}
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, array in [("index", np.array(index)), *((f"row {kind}", row) for kind, row in stored.items())]:
            stream = io.BytesIO()
            np.lib.format.write_array(stream, array, allow_pickle=False)
            # A fixed date, so that equal records are equal bytes.
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), stream.getvalue(), zipfile.ZIP_DEFLATED)


def read(path: str | Path) -> dict[str, np.ndarray]:
    """Read the arrays of a record."""
    with np.load(path, allow_pickle=False) as file:
        rows, used, found = {name: file[name] for name in file.files}, {}, {}
    for line in rows["index"].tolist():
        key, kind, shape = json.loads(line)
        first = used.get(kind, 0)
        used[kind] = first + int(np.prod(shape, dtype=int))
        found[key] = rows[f"row {kind}"][first : used[kind]].reshape(shape)
    return found


# Comparison

RANDOM_NUMBERS = ("draws/*", "simulators/noise/*")
"""Keys of counter-based random numbers, which are equal on every machine."""


def tolerance_of(key: str, array: np.ndarray) -> float:
    """Return the relative difference that is allowed between machines."""
    if array.dtype.kind != "f" or any(fnmatch.fnmatch(key, pattern) for pattern in RANDOM_NUMBERS):
        return 0.0
    return 1e-9 if array.dtype.itemsize == 8 else 1e-4


def difference(key: str, one: np.ndarray, other: np.ndarray, tolerant: bool) -> str:
    """Describe how two arrays of a key differ; empty if they do not."""
    if one.dtype.kind != other.dtype.kind or (one.dtype.kind != "U" and one.dtype != other.dtype):
        return f"{one.dtype} became {other.dtype}"
    if one.shape != other.shape:
        return f"shape {one.shape} became {other.shape}"
    if one.dtype.kind != "f":
        # Digests of floats differ if the last bit does.
        if np.array_equal(one, other) or (tolerant and key.endswith("#float")):
            return ""
        return f"{int((one != other).sum())} of {one.size} entries differ, first {one[one != other][0]!s} and {other[one != other][0]!s}"
    if one.tobytes() == other.tobytes():
        return ""
    rtol = tolerance_of(key, one) if tolerant else 0.0
    wide, wider = one.astype(float), other.astype(float)
    with np.errstate(all="ignore"):
        same = (wide == wider) | (np.isnan(wide) & np.isnan(wider))
        gap = np.where(same, 0.0, np.abs(wide - wider))
        size = np.maximum(np.abs(wide), np.abs(wider))
        # Also relative to the array: a difference of large numbers has their rounding errors.
        scale = np.maximum(size, np.max(size[np.isfinite(size)], initial=0.0) if rtol else 0.0)
        bad = ~np.isfinite(gap) | (gap > rtol * scale)
        if rtol and not bad.any():
            return ""
        relative = np.where(gap > 0, gap / size, 0.0)
    if not bad.any():
        return "equal numbers with different bits (the sign of a zero, or the payload of a NaN)"
    return f"{int(bad.sum())} of {one.size} entries differ, max abs {np.max(gap):.3g}, max rel {np.max(relative):.3g}"


def differences(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], tolerant: bool) -> dict[str, str]:
    """Return the keys that differ, are missing or are new, each with a description."""
    found = {}
    for key in sorted(one.keys() | other.keys()):
        if key not in other:
            found[key] = "missing"
        elif key not in one:
            found[key] = "new"
        elif how := difference(key, one[key], other[key], tolerant):
            found[key] = how
    return found


def exception_for(key: str) -> str:
    """Return the reason why a key may differ in an exact comparison; empty if it may not."""
    return next((reason for pattern, reason in EXCEPTIONS if fnmatch.fnmatch(key, pattern)), "")


def compare(a: str, b: str, tolerant: bool) -> int:
    """Print the differences; return exit code 1 if there is one that is not in `EXCEPTIONS`. A tolerant comparison has no exceptions."""
    one, other = read(a), read(b)
    found = differences(one, other, tolerant)
    allowed = {key: reason for key in found if not tolerant and (reason := exception_for(key))}
    for key, how in found.items():
        print(f"{key}: {how}" + (f" (allowed: {allowed[key]})" if key in allowed else ""))
    bad = [key for key in found if key not in allowed]
    print(f"{len(one)} and {len(other)} arrays: {len(bad)} differ, {len(found) - len(bad)} are allowed to differ")
    return 1 if bad else 0


# The catalogue: operators and proofs


def rng(seed: int) -> np.random.Generator:
    """Return a generator for inputs."""
    return np.random.default_rng(seed)


def transitions(dtype: Any = np.float64, count: int = 24, actions: int = 4) -> tuple[np.ndarray, ...]:
    """Return Q(x, .), actions, rewards, discounts, Q(x', .) and whether x' is x."""
    random = rng(7)
    q_tm1, q_t = random.standard_normal((2, count, actions)).astype(dtype)
    a, r = random.integers(0, actions, count), random.standard_normal(count).astype(dtype)
    discount = np.where(random.random(count) < 0.25, 0.0, 0.9).astype(dtype)
    returned = random.random(count) < 0.3
    q_t[returned] = q_tm1[returned]
    return q_tm1, a, r, discount, q_t, returned


@section("operators", quick=True)
def operators() -> Found:
    """Every operator on backups and as a target, in float64 and in float32 with JAX."""
    import jax.numpy as jnp

    random = rng(1)
    reward, q, gap, next_q, next_gap = random.standard_normal((5, 60))
    numbers = (0.9, reward, q, q + np.abs(gap), next_q + np.abs(next_gap), next_q, random.random(60))
    b = call("backup", *numbers)
    yield from below("backup", fields_of(b, *("backup." + name for name in ("bellman", "again", "gap", "next_gap", "repeat"))))
    *args, returned = transitions()
    *args32, returned32 = (jnp.asarray(part) for part in transitions(np.float32))
    for text in FAMILY + AT_ONE + OTHERS:
        yield f"{text}/applied", call("parse", text)(b)
        yield f"{text}/target", call("td_target", text, *args, returned=returned)
        yield f"{text}/jax", call("td_target", text, *args32, returned=returned32)
    for text in SOFT:
        yield f"{text}/target", call("td_target", text, *args, returned=returned)
        yield f"{text}/jax", call("td_target", text, *args32, returned=returned32)
    for text in RANDOM:
        drawn = get(call("parse", text), "operator.at")
        for u in (0.0, 0.3):
            yield f"{text}/{u}", drawn(u)(b)
    soft = call("soft_backup", *args, temperature=0.2, returned=returned)
    yield from below("soft", fields_of(soft, *("soft." + name for name in ("log_policy", "mean", "mean_bellman", "soft_bellman"))))
    policy = {"v_tm1": args[0].mean(axis=1), "v_t": args[4].mean(axis=1)}
    yield "policy/again", get(call("sampled_backup", *args, returned=returned, **policy), "backup.again")
    yield "policy/al", call("td_target", "al:0.9", *args, **policy)
    yield "persistent_q_learning", call("persistent_q_learning", *args, 0.9)


@section("proof")
def proof() -> Found:
    """Verdicts, thresholds, counterexamples and the MDPs that witness them."""
    keys = ("condition_1", "condition_2", "optimality_preserving", "gap_increasing", "commutes_with_constants")
    for text in (*FAMILY, *AT_ONE, *OTHERS, "al:1.5"):
        for gamma in (None, 0.5):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                verdict = call("prove", text, gamma)
            name = f"{text}/{gamma or 'all'}"
            yield f"{name}/booleans", [-1 if (value := get(verdict, f"verdict.{key}")) is None else int(value) for key in keys]
            yield f"{name}/alpha", str(get(verdict, "verdict.alpha"))
            yield f"{name}/exit_code", get(verdict, "verdict.exit_code")
            for part in ("counterexample", "witness"):
                yield from below(f"{name}/{part}", numbers_in(get(verdict, f"verdict.{part}")))
    for text in ("baird:0.5", "sal:0.9,0.8"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = call("find_witnesses", call("parse", text))
        for claim, witness in found.items():
            for field in ("kind", "gamma", "rewards", "successors", "q0", "v", "v_star"):
                value = get(witness, f"witness.{field}")
                yield f"witness/{text}/{claim}/{field}", WITNESS_KINDS.get(value, value) if field == "kind" else value


def numbers_in(mapping: Any) -> Found:
    """Yield the numbers of a nested mapping, without texts."""
    if isinstance(mapping, Mapping):
        for name, value in mapping.items():
            if isinstance(value, Mapping):
                yield from below(str(name), numbers_in(value))
            elif not isinstance(value, str):
                yield str(name), value


# Finite MDPs


@cache
def mdps() -> dict[str, Any]:
    """Return MDPs of all kinds."""
    return {
        "cake": call("cake", 0.9, 0.1),
        "cheap-cake": call("cake", 0.5, 1.0),
        "one-state": call("single_state", (0.0, 1.0, 0.5), 0.9),
        "chain": call("chain", 6),
        "gridworld": call("gridworld", 4, 3, gamma=0.95),
        "lake": call("from_gymnasium", "FrozenLake-v1", gamma=0.9),
        "garnet": call("garnet", 30, 4, 3, gamma=0.9, seed=1),
        "one-action": call("garnet", 6, 1, 2, gamma=0.9),
        "dense": get(call("garnet", 12, 3, 5, gamma=0.8, seed=2), "mdp.dense")(),
        "loops": loops(),
        "no-future": loops(seed=4, gamma=0.0),
    }


def loops(states: int = 8, actions: int = 3, seed: int = 3, gamma: float = 0.9) -> Any:
    """Return a random dense MDP in which every action may return to its state."""
    random = rng(seed)
    table = random.random((states, actions, states)) ** 4 + 0.5 * np.eye(states)[:, None, :] * random.random((states, actions, 1))
    make = get(resolve("FiniteMDP"), "mdp.from_dense")
    return make(random.standard_normal((states, actions)), table / table.sum(-1, keepdims=True), gamma)


@section("mdps", quick=True)
def generators() -> Found:
    """Rewards and distributions of the generators, by function and by text."""
    named = {
        text: call("load_mdp", text)
        for text in ("cake", "single-state", "chain:5", "gridworld:3,4", "garnet:20,2,3", "gym/CliffWalking-v1")
    }
    drawn = {f"garnet-{seed}": call("garnet", 15, 3, 2, seed=seed) for seed in (0, 1, 5)}
    for name, mdp in {
        **mdps(),
        **named,
        **drawn,
        "slippery": call("chain", 4, slip=0.4),
        "file": call("load_mdp", "chain:3", slip=0.2),
    }.items():
        yield f"{name}/rewards", get(mdp, "mdp.rewards")
        yield f"{name}/gamma", get(mdp, "mdp.gamma")
        if name == "gym/CliffWalking-v1":
            listed = get(get(mdp, "mdp.sparse")(), "mdp.transitions")
            yield f"{name}/successors", get(listed, "mdp.successors").astype(np.int64)
            continue
        table = get(get(get(mdp, "mdp.dense")(), "mdp.transitions"), "mdp.probabilities")
        yield f"{name}/probabilities", table


SOLUTION = tuple(
    f"solution.{name}" for name in ("q", "error_bound", "policy_loss_bound", "gap_residual", "gaps_settled", "converged", "sweeps", "tol")
)


def solved(mdp: Any, text: Any, **options: Any) -> Found:
    """Yield the stored fields of a solution, by iterating the operator: `solve` once did nothing else."""
    if "method" in inspect.signature(resolve("solve")).parameters:
        options["method"] = "iterate"
    solution = call("solve", mdp, text, throw=False, **options)
    yield from fields_of(solution, *SOLUTION)
    yield "policy", get(solution, "solution.policy").astype(np.int64)
    yield "last", get(solution, "solution.history")[-1]


@section("solve/arrays", quick=True)
def solve_arrays() -> Found:
    """All MDPs and operators with the engine arrays."""
    for name, mdp in mdps().items():
        for text in FAMILY + AT_ONE + OTHERS:
            yield from below(f"{name}/{text}", solved(mdp, text, engine="arrays", max_sweeps=150))


@section("solve/defaults", quick=True)
def solve_defaults() -> Found:
    """Default tolerances and stopping rules, step sizes, initial Q-functions, custom operators."""
    garnet, cake = mdps()["garnet"], mdps()["cake"]
    for text in ("bellman", "consistent", "al:0.9", "pal:0.9", "lazy:0.5", "al:1", "baird:0.5"):
        yield from below(f"garnet/{text}", solved(garnet, text))
        yield from below(f"cake/{text}", solved(cake, text))
    start = rng(0).standard_normal(get(garnet, "mdp.rewards").shape)
    yield from below("eta", solved(garnet, "consistent", eta=0.3, tol=1e-6))
    yield from below("start", solved(garnet, "pal:0.5", q0=start, tol=1e-8))
    yield from below("own", solved(garnet, lambda b: b.bellman - 0.5 * b.gap))
    yield "rounding", [call("rounding", gamma, width, 2.0, size) for gamma in (0.5, 0.99) for width in (1, 8) for size in (0.0, 3.0)]
    history = [resolve("Progress")(0.0, 0.0, 0.7**k) for k in range(30)]
    yield "gap_error", [call("gap_error", history[:k]) for k in (3, 5, 12, 30)]
    q = rng(3).standard_normal(get(garnet, "mdp.rewards").shape)
    yield from below("backups", fields_of(call("backups", garnet, q), "backup.bellman", "backup.again", "backup.repeat", "backup.next_gap"))


def solve_compiled(engine: str, names: Sequence[str], texts: Sequence[str]) -> Found:
    """Yield solutions by a compiled engine."""
    for text in texts:
        for name in names:
            yield from below(f"{name}/{text}", solved(mdps()[name], text, engine=engine, max_sweeps=150))


@section("solve/numba")
def solve_numba() -> Found:
    """MDPs and operators with the engine numba."""
    yield from solve_compiled("numba", ("cake", "garnet"), ALL)


@section("solve/jax")
def solve_jax() -> Found:
    """MDPs and operators with the engine jax."""
    yield from solve_compiled("jax", ("cake", "garnet", "loops"), ALL)


@section("exact", quick=True)
def exact() -> Found:
    """Policy evaluation and iteration, and stationary values."""
    for name, mdp in mdps().items():
        shape = get(mdp, "mdp.rewards").shape
        deterministic = rng(5).integers(0, shape[1], shape[0])
        stochastic = rng(6).random(shape)
        yield f"{name}/deterministic", call("evaluate_policy", mdp, deterministic)
        yield f"{name}/stochastic", call("evaluate_policy", mdp, stochastic / stochastic.sum(axis=1, keepdims=True))
        q, v, policy = call("policy_iteration", mdp)
        yield from ((f"{name}/q", q), (f"{name}/v", v), (f"{name}/policy", policy.astype(np.int64)))
        yield f"{name}/stationary", call("q_stationary", mdp, policy)


@section("aggregation", quick=True)
def aggregation() -> Found:
    """Schemes, induced models, Q-value interpolation."""
    garnet = mdps()["garnet"]
    places = np.sort(rng(2).random(30))
    weights = rng(3).random((30, 4))
    schemes = {
        "partition": call("partition", rng(0).permutation(np.arange(30) % 7), rng(1).random(30)),
        "averager": call("averager", weights / weights.sum(axis=1, keepdims=True), [0, 9, 17, 28]),
        "line": call("line", places, [0, 6, 15, 22, 29]),
        "kernel": call("kernel_averager", rng(4).random((30, 2)), [1, 4, 11, 20], 0.3),
    }
    for name, scheme in schemes.items():
        yield f"{name}/up", get(scheme, "scheme.to_aggregate")
        yield f"{name}/down", get(scheme, "scheme.to_state")
        induced = call("induced_mdp", garnet, scheme)
        yield from below(f"{name}/induced", solved(induced, "consistent", max_sweeps=150))
        shape = get(induced, "mdp.rewards").shape
        b = call("interpolated_backups", garnet, scheme, rng(9).standard_normal(shape))
        yield from below(f"{name}/backups", fields_of(b, "backup.bellman", "backup.again", "backup.repeat"))
        for text in ("bellman", "consistent", "al:0.5", "pal:0.5"):
            found = call("iterate_interpolated", garnet, scheme, text, sweeps=80)
            yield from below(f"{name}/{text}", fields_of(found, "interpolated.q", "interpolated.residual", "interpolated.sweeps"))
            yield f"{name}/{text}/policy", call("interpolated_policy", scheme, get(found, "interpolated.q")).astype(np.int64)
    mdp, scheme = call("interpolation_counterexample")
    for text in ("bellman", "consistent"):
        yield f"counterexample/{text}", get(call("iterate_interpolated", mdp, scheme, text), "interpolated.q")


LEARNED = tuple(f"learned.{name}" for name in ("q", "visits", "episodes", "mean_return"))


@section("learning", quick=True)
def learning() -> Found:
    """Q-functions learned from samples."""
    problems = {"chain": mdps()["chain"], "lake": "FrozenLake-v1"}
    for name, problem in problems.items():
        options = {"steps": 1500, "gamma": 0.9} if isinstance(problem, str) else {"steps": 1500}
        for text in ("bellman", "consistent", "al:0.9", "pal:0.5", "pal-dqn:0.9", "lazy:0.5", *OTHERS, *RANDOM):
            yield from below(f"q/{name}/{text}", fields_of(call("q_learning", problem, text, seed=3, **options), *LEARNED))
        for text in ("bellman", "consistent", "al:0.5"):
            yield from below(f"sarsa/{name}/{text}", fields_of(call("sarsa", problem, text, seed=4, **options), *LEARNED))
        half = np.full((6, 2), 0.5) if name == "chain" else np.full((16, 4), 0.25)
        for text in ("bellman", "al:0.5"):
            found = call("expected_policy_evaluation", problem, half, text, seed=5, step_size=0.1, **options)
            yield from below(f"evaluation/{name}/{text}", fields_of(found, *LEARNED))
    first = call("q_learning", mdps()["garnet"], "al:0.5", steps=400, seed=1, exploration=0.5)
    more = call("q_learning", mdps()["garnet"], steps=400, seed=2, q0=get(first, "learned.q"), visits0=get(first, "learned.visits"))
    yield from below("continued", fields_of(more, *LEARNED))


class Means:
    """A regressor: the mean of the targets of each observation."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:  # noqa: N803 - scikit-learn's names
        self.seen = {tuple(x): y[(x == X).all(axis=1)].mean() for x in np.unique(X, axis=0)}

    def predict(self, X: np.ndarray) -> np.ndarray:  # noqa: N803
        return np.array([self.seen.get(tuple(x), 0.0) for x in X])


@section("fitted", quick=True)
def fitted() -> Found:
    """Batches of transitions, and Q-functions fitted to them."""
    batch = call("collect", mdps()["chain"], steps=300, seed=2)
    yield from below("batch", fields_of(batch, *("batch." + name for name in ("x", "a", "r", "discount", "x_next"))))
    pole = call("collect", "CartPole-v1", steps=40, seed=2)
    yield from below("pole", fields_of(pole, "batch.x", "batch.a", "batch.discount", "batch.x_next"))
    for text in ("bellman", "consistent", "al:0.9", "pal:0.5", "munchausen:0.1,0.9", "dpp:0.5", "sal:0.3,0.8"):
        found = call("fitted_q_iteration", batch, text, Means, gamma=0.9, iterations=15, actions=2)
        yield text, get(found, "fitted.q")(np.arange(6))


# Random numbers, grids, simulators


@section("draws", quick=True)
def draws() -> Found:
    """Counter-based random numbers and the noise of episodes."""
    places = np.arange(50, dtype=np.uint32) * np.uint32(7919)
    yield "mix", [call("mix", int(x)) for x in (0, 1, 2, 12345, 2**32 - 1)]
    yield "key", [call("place_key", seed, sweep) for seed in (0, 1, 9) for sweep in (0, 1, 500)]
    yield "draw", [call("draw", call("place_key", 3, 4), place) for place in range(40)]
    yield "arrays", call("draw", np.uint32(call("place_key", 3, 5)), places, resolve("UNSIGNED"))
    yield "episodes", [call("trial_seed", seed) for seed in (0, 1, 2, 1000)]
    share = np.linspace(0, 1, 24, endpoint=False)
    yield "uniform", [call("noise_from_uniform", call("Uniform", -0.2, 0.3))(u) for u in share.tolist()]
    yield "discrete", [call("noise_from_uniform", call("Discrete", (-1.0, 0.5, 2.0), (0.2, 0.5, 0.3)))(u) for u in share.tolist()]
    for shared in (False, True):
        simulator, grid = prepared("bicycle", 3)
        noise = call("noise_of", simulator, grid, config("bellman", 0.9, samples=2, sweep__shared=shared, seed=4))
        found = call("noise_at", noise, grid, np.arange(0, 700, 41), 9, np.uint32(call("place_key", 4, 2)))
        yield f"bicycle/{'shared' if shared else 'independent'}", np.stack([u for u, _ in found])


@section("interpolation", quick=True)
def interpolation() -> Found:
    """Axes, grids, and weights of all kinds."""
    axes = (call("uniform_axis", -1.0, 2.0, 5), call("periodic_axis", -np.pi, np.pi, 6), call("Axis", (-1.0, -0.2, 0.3, 1.0)))
    grid = call("Grid", axes)
    x = tuple(rng(1).uniform(-1.5, 2.5, (3, 20)))
    yield "points", np.stack(get(grid, "grid.points")())
    yield "nearest", np.asarray(get(grid, "grid.nearest")(x)).astype(np.int64)
    corners = np.stack(np.meshgrid(*([np.linspace(-1, 1, 3)] * 3), indexing="ij"), axis=-1).reshape(-1, 3)
    for name in ("multilinear", "simplex", "nearest_neighbour", "gaussian", "triangular"):
        kernel = name in ("gaussian", "triangular")
        weights = call("kernel_interpolation", corners, 6, 0.8, name)(x) if kernel else call(name, grid, x)
        yield f"{name}/index", np.asarray(get(weights, "weights.index")).astype(np.int64)
        yield f"{name}/weight", get(weights, "weights.weight")


def without_factors(simulator: Any) -> Any:
    """Return the same simulator with one step that is a single function."""
    step = call("one_step", simulator)
    if hasattr(simulator, "step"):
        return dataclasses.replace(simulator, step=step)
    # Older versions have a function for it, beside the class.
    module = sys.modules[type(simulator).__module__]
    make = getattr(module, "make_simulator", None) or module.simulator
    name, coordinates, actions, *others = (get(simulator, f"simulator.{field}") for field in WHOLE)
    return make(name, coordinates, actions, step, *others)


WHOLE = ("name", "coordinates", "actions", "axes", "gamma", "noise")
"""What older versions make a simulator from, besides its step."""
SIZES = {"bicycle": 3, "mountain-car": 11, "pendulum": 9, "cart-pole": 5, "acrobot": 4}


@cache
def prepared(name: str, n: int, whole: bool = False) -> tuple[Any, Any]:
    """Return a simulator and a grid; with `whole`, the simulator has no factors."""
    simulator = call("load_simulator", name)
    grid = call("Grid", get(simulator, "simulator.axes")(n))
    if whole:
        simulator = without_factors(simulator)
    return simulator, grid


def config(operator: Any, gamma: float, **fields: Any) -> Any:
    """Return the sweep configuration of an operator."""
    return call("sweep_config", call("parse", operator), gamma, **fields)


def swept(sweeps: Any, simulator: Any, grid: Any, first: int = 7, count: int = 3) -> Found:
    """Yield the result of some sweeps from a random table."""
    shape = (get(grid, "grid.size"), len(get(simulator, "simulator.actions")))
    table = get(sweeps, "sweeps.put")(rng(0).standard_normal(shape).astype(np.float32))
    table, residual = get(sweeps, "sweeps.advance")(table, first, count)
    yield "q", get(sweeps, "sweeps.get")(table)
    yield "residual", np.float32(residual)


def sweeps_by(make: str, name: str, text: str, whole: bool = False, arrays: bool = False, **fields: Any) -> Found:
    """Yield sweeps of one simulator and operator by one engine."""
    simulator, grid = prepared(name, SIZES[name], whole)
    inner = call("parse", text)
    # Numba compiles no `eval`, so arrays are used.
    operator: Any = (lambda b: inner(eval("b"))) if arrays else text
    sweep_config = config(operator, get(simulator, "simulator.gamma"), eta=0.5, seed=5, **fields)
    yield from swept(call(make, simulator, grid, sweep_config), simulator, grid)


MODES = {
    "samples": {"samples": 2},
    "shared": {"sweep__shared": True},
    "of-values": {"sweep__of_values": True},
    "both": {"sweep__of_values": True, "sweep__shared": True},
}


@section("sweeps/numba-quick", quick=True)
def sweeps_numba_quick() -> Found:
    """One operator, compiled."""
    yield from below("bicycle/al:0.5", sweeps_by("numba_sweeps", "bicycle", "al:0.5"))


@section("sweeps/numba")
def sweeps_numba() -> Found:
    """Numba sweeps in the default way of each simulator: factor by factor, or by gathering."""
    for name in SIZES:
        for text in {"mountain-car": ALL, "bicycle": FEW}.get(name, ("consistent",)):
            yield from below(f"{name}/{text}", sweeps_by("numba_sweeps", name, text))
    for mode, fields in MODES.items():
        yield from below(f"bicycle/consistent/{mode}", sweeps_by("numba_sweeps", "bicycle", "consistent", **fields))


@section("sweeps/gather")
def sweeps_gather() -> Found:
    """Numba sweeps by gathering, although there are factors."""
    for name, text in (("bicycle", "consistent"), ("bicycle", "pal:0.9"), ("cart-pole", "consistent")):
        yield from below(f"{name}/{text}", sweeps_by("numba_sweeps", name, text, whole=True))
    yield from below("bicycle/consistent/of-values", sweeps_by("numba_sweeps", "bicycle", "consistent", whole=True, **MODES["of-values"]))


@section("sweeps/arrays", quick=True)
def sweeps_arrays() -> Found:
    """NumPy sweeps."""
    for name in SIZES:
        for text in ALL:
            yield from below(f"{name}/{text}", sweeps_by("numba_sweeps", name, text, arrays=True))
    for mode, fields in MODES.items():
        yield from below(f"bicycle/consistent/{mode}", sweeps_by("numba_sweeps", "bicycle", "consistent", arrays=True, **fields))


@section("sweeps/jax")
def sweeps_jax() -> Found:
    """JAX sweeps in the default way of each simulator: by contraction, or by gathering."""
    for name in SIZES:
        for text in {"mountain-car": ALL, "bicycle": FEW}.get(name, ("consistent",)):
            yield from below(f"{name}/{text}", sweeps_by("jax_sweeps", name, text))
    for mode, fields in MODES.items():
        yield from below(f"bicycle/consistent/{mode}", sweeps_by("jax_sweeps", "bicycle", "consistent", **fields))
    yield from below("whole/consistent", sweeps_by("jax_sweeps", "bicycle", "consistent", whole=True))


@section("sweeps/pallas")
def sweeps_pallas() -> Found:
    """Sweeps by the GPU kernel, interpreted."""
    import jax

    simulator, grid = prepared("bicycle", 3)
    for text in FEW:
        sweep_config = config(text, 0.9, eta=0.5, seed=5)
        form = call("pallas_form", simulator, grid, call("layout_of", simulator, grid), sweep_config, interpret=True)
        sweeps = call("JaxSweeps", form, sweep_config, jax.devices()[:1])
        yield from below(f"bicycle/{text}", swept(sweeps, simulator, grid, count=2))


@section("simulators", quick=True)
def simulators() -> Found:
    """One step of each simulator, with noise at both ends and in the middle; and the bicycle's Gymnasium environments."""
    texts = ("bicycle:fall=once,start=north", "bicycle:reward=randlov", "pendulum:torques=3")
    for name in (*SIZES, *texts):
        simulator, grid = prepared(name, 4)
        step, actions = call("one_step", simulator), len(get(simulator, "simulator.actions"))
        x = tuple(column[:: max(1, len(column) // 40)] for column in get(grid, "grid.points")())
        for u in (-0.02, 0.0, 0.015):
            outcome = step(tuple(part[:, None] for part in x), np.arange(actions), u)
            size = (len(x[0]), actions)
            yield f"{name}/{u}/x", np.stack([np.broadcast_to(part, size) for part in get(outcome, "outcome.x")])
            yield f"{name}/{u}/reward", np.broadcast_to(get(outcome, "outcome.reward"), size).astype(float)
            yield f"{name}/{u}/ended", np.broadcast_to(get(outcome, "step.terminated"), size).astype(bool)
    yield from below("env", gymnasium_steps(resolve("BicycleEnv")(), 60, actions=9))
    yield from below("vector", gymnasium_steps(resolve("BicycleVectorEnv")(3), 60, actions=9, count=3))


def gymnasium_steps(env: Any, steps: int, actions: int, count: int | None = None) -> Found:
    """Yield observations, rewards and ends of an environment under fixed actions."""
    random, seen = rng(11), [env.reset(seed=5)[0]]
    rewards, ends = [], []
    for _ in range(steps):
        action = random.integers(0, actions, count)
        observation, reward, terminated, truncated, _ = env.step(int(action) if count is None else action)
        seen.append(observation)
        rewards.append(reward)
        ends.append((terminated, truncated))
        if count is None and (terminated or truncated):
            seen.append(env.reset()[0])
    env.close()
    yield from (("observations", np.stack(seen)), ("rewards", np.array(rewards)), ("ends", np.array(ends)))


@section("plan/quick")
def plan_quick() -> Found:
    """One policy: its Q-values, its actions and its episodes."""
    yield from planned(("mountain-car", 9, "numba"))


@section("plan")
def plans() -> Found:
    """Policies planned by JAX, and of another simulator."""
    yield from planned(("mountain-car", 9, "jax"), ("pendulum", 7, "numba"))


def planned(*wanted: tuple[str, int, str]) -> Found:
    """Yield the stored results of plans."""
    for name, n, engine in wanted:
        policy = call("plan", name, "consistent", plan__grid=n, iterations=12, eta=0.5, seed=2, engine=engine)
        q, grid = get(policy, "policy.q"), get(policy, "policy.grid")
        yield f"{name}/{engine}/q", q
        x = tuple(rng(1).uniform(-0.6, 0.6, (2, 12)))
        # Versions with `values` call the table `q`.
        yield f"{name}/{engine}/values", (policy.values if hasattr(policy, "values") else policy.q)(x)
        yield f"{name}/{engine}/actions", np.asarray(get(policy, "policy.act")(x)).astype(np.int64)
        simulator, _ = prepared(name, n)
        random = rng(4).standard_normal(q.shape).astype(np.float32)
        batch = call("rollouts", simulator, grid, np.stack([q, random]), 6, seed=3, rollout__max_steps=120, engine=engine)
        yield from below(f"{name}/{engine}/rollouts", fields_of(batch, "trials.steps", "trials.returns", "trials.ended"))
        yield f"{name}/{engine}/last", np.stack([np.asarray(part) for part in get(batch, "trials.coordinates")])
        for k, frequencies in enumerate(call("frequencies", simulator, batch)):
            yield from below(f"{name}/{engine}/frequencies/{k}", frequencies.items())
        yield from below(f"{name}/{engine}/episode", episode(simulator, grid, q, 80))


def episode(simulator: Any, grid: Any, q: np.ndarray, limit: int) -> Found:
    """Yield one episode step by step. Versions with several engines on the CPU use the one that older versions have."""
    engine = {"engine": "numba"} if "engine" in inspect.signature(resolve("record_episode")).parameters else {}
    found = call("record_episode", simulator, grid, q, 1, 4, seed=3, rollout__max_steps=limit, **engine)
    yield "states", np.stack([np.asarray(part) for part in get(found, "episode.states")])
    yield "coordinates", np.stack([np.asarray(part) for part in get(found, "episode.coordinates")])
    yield from fields_of(found, "episode.actions", "episode.values", "episode.steps")
    yield "outcome", get(found, "episode.outcome")


@section("rollouts/bicycle")
def bicycle_rollouts() -> Found:
    """Episodes of the bicycle with noise, by both engines."""
    simulator, grid = prepared("bicycle", 3)
    tables = rng(8).standard_normal((2, get(grid, "grid.size"), 9)).astype(np.float32)
    for engine in ("numba", "jax"):
        batch = call("rollouts", simulator, grid, tables, 8, seed=1, rollout__max_steps=60, engine=engine)
        yield from below(engine, fields_of(batch, "trials.steps", "trials.returns", "trials.ended"))
        yield f"{engine}/last", np.stack([np.asarray(part) for part in get(batch, "trials.coordinates")])
    yield from below("episode", episode(simulator, grid, tables[0], 60))


# Games and agents


@section("minatar")
def minatar() -> Found:
    """The five games as pure functions, with given uniform numbers."""
    for name, game in resolve("minatar_games").items():
        yield from below(name, played(game))


def played(game: Any, steps: int = 150, num_envs: int = 4) -> Found:
    """Yield several games at once, with one number per board."""
    import jax
    import jax.numpy as jnp

    random, begin, env_step = rng(21), resolve("env_init"), resolve("env_step")
    uniforms = random.random((steps + 1, num_envs, call("num_uniforms", game)), dtype=np.float32)
    actions = random.integers(0, len(get(game, "game.actions")), (steps, num_envs)).astype(np.int32)

    def step(play: Any, given: Any) -> Any:
        play, seen = jax.vmap(lambda play, a, u: env_step(game, play, a, u))(play, *given)
        board = get(seen, "step.observation")
        places = jnp.arange(1, board[0].size + 1, dtype=jnp.uint32)
        codes = [(part.reshape(num_envs, -1) * places * places).sum(axis=1) for part in (board, get(seen, "step.following"))]
        return play, (get(seen, "step.reward"), get(seen, "step.terminated"), *codes)

    play = jax.vmap(lambda u: begin(game, u))(uniforms[0])
    _, found = jax.jit(lambda play, given: jax.lax.scan(step, play, given))(play, (actions, uniforms[1:]))
    yield from zip(("rewards", "ends", "boards", "following"), found, strict=True)


@section("minatar-env")
def minatar_env() -> Found:
    """The Gymnasium environments of the games."""
    for name in resolve("minatar_games"):
        yield from below(name, gymnasium_steps(call("MinAtarEnv", game=name), 80, actions=3))
    many = call("MinAtarVectorEnv", 3, game="breakout", env__sticky=0.3)
    yield from below("vector", gymnasium_steps(many, 60, actions=3, count=3))
    whole = call("MinAtarEnv", game="freeway", full_actions=True)
    yield from below("full", gymnasium_steps(whole, 60, actions=6))


@section("atari-emulators")
def emulators() -> Found:
    """Frames and rewards of emulated games."""
    with call("Emulators", ["pong", "breakout"], 0.25, 1) as games:
        seen = [get(games, "vector.begin")([3, 4])]
        random = rng(2)
        for _ in range(12):
            get(games, "vector.send")(random.integers(0, 3, 2))
            seen.append(get(games, "vector.receive")())
        for field in ("frame", "reward", "vector.lost_life", "vector.over"):
            yield field.rpartition(".")[2], np.stack([np.array(get(one, field)) for one in seen])


TINY: dict[str, Any] = {
    "frames": 48,
    "eval_every": 24,
    "num_envs": 2,
    "gradient_steps": 2,
    "batch_size": 8,
    "buffer_size": 60,
    "learning_starts": 12,
    "target_update_interval": 6,
    "exploration_steps": 30,
    "learning_rate": 0.001,
    "episodes": 2,
    "max_episode_steps": 20,
}
POPULATION = ("bellman", "consistent", "al:0.5", "pal:0.5", "pal-dqn:0.9", "lazy:0.5", "clipped-al:0.9,0.5", "sal:0.3,0.8", "rso:0,1")


def trained(operators: Sequence[str], states: Sequence[int] = (0,), seeds: Sequence[int] = (0,), **fields: Any) -> Found:
    """Train agents in a batch; yield their rows, and all arrays of some of them before the end."""
    pairs = [(operator, seed) for operator in operators for seed in seeds]
    members = [experiment("train", operator=operator, seed=seed, **{**TINY, **fields}) for operator, seed in pairs]
    batch = call("RunBatch", members)
    carried, rows = get(batch, "batch.start")(), [[] for _ in members]
    for chunk in range(get(members[0], "experiment.chunks")):
        carried, new = get(batch, "batch.advance")(carried, chunk)
        for mine, more in zip(rows, new, strict=True):
            mine += more
    for (operator, seed), mine in zip(pairs, rows, strict=True):
        yield from below(f"{operator}/{seed}/rows", rows_of(mine))
    for k, state in enumerate(get(batch, "batch.get")(carried, False)):
        if k in states:
            yield from below(f"{pairs[k][0]}/{pairs[k][1]}/state", state_of(state))


@section("train/population", quick=True)
def train_population() -> Found:
    """All operators in one population on the device."""
    yield from trained(POPULATION, states=(0, 3, 8), env="minatar/breakout")


VARIANTS: dict[str, dict[str, Any]] = {
    "double": {"double": True},
    "dueling": {"dueling": True},
    "n-step": {"n_step": 3},
    "priorities": {"priority_exponent": 0.6},
    "online": {"correction_network": "online"},
    "adam": {"optimizer": "adam", "loss": "squared", "max_grad_norm": 0.5},
    "rmsprop-dqn": {"optimizer": "rmsprop-dqn", "priority_exponent": 0.5, "n_step": 2, "dueling": True, "importance_exponent": 0.7},
    "bfloat16": {"precision": "bfloat16", "exact": True},
}


@section("train/variants")
def train_variants() -> Found:
    """Each extension of DQN."""
    import jax

    for name, fields in VARIANTS.items():
        yield from below(name, trained(("al:0.5", "pal-dqn:0.9"), env="minatar/asterix", frames=36, **{"eval_every": 36, **fields}))
        jax.clear_caches()
    soft = trained(("munchausen:0.03,0.9", "dpp:0.1"), env="minatar/freeway", frames=36, eval_every=36)
    yield from below("soft", soft)


@section("train/games")
def train_games() -> Found:
    """The other games."""
    for game in ("seaquest",):
        yield from below(game, trained(("bellman",), env=f"minatar/{game}", seeds=(1,), states=(), frames=30, eval_every=30))


@section("train/gymnasium")
def train_gymnasium() -> Found:
    """Agents on Gymnasium environments, which step on the host."""
    yield from below("pole", trained(("bellman", "al:0.9", "consistent"), states=(1,), env="gym/CartPole-v1"))
    yield from below("lake", trained(("pal:0.5",), states=(), env="gym/FrozenLake-v1", priority_exponent=0.5))


ATARI: dict[str, Any] = {
    "frames": 80,
    "eval_every": 40,
    "gradient_steps": 1,
    "batch_size": 2,
    "buffer_size": 20,
    "learning_starts": 8,
    "target_update_interval": 10,
    "exploration_steps": 40,
    "optimizer": "rmsprop-dqn",
    "frame_stack": 4,
    "clip_rewards": True,
    "repeat_action_probability": 0.25,
    "max_episode_steps": 10,
    "evaluation_epsilon": 0.05,
}


@section("train/atari")
def train_atari() -> Found:
    """Agents on emulated games, with frame replay."""
    yield from below("pong", trained(("bellman", "al:0.9"), states=(1,), env="atari/pong", **ATARI))


@section("train/atari-lives")
def train_atari_lives() -> Found:
    """The same with episodes that end with a life, Double DQN and priorities."""
    fields = {"terminal_on_life_loss": True, "double": True, "priority_exponent": 0.5, "n_step": 2}
    yield from trained(("pal-dqn:0.9",), states=(), env="atari/breakout", **ATARI, **fields)


@section("dqn/quick")
def dqn_quick() -> Found:
    """Epsilon, actions and targets of each operator."""
    yield from agents_of("plain")


@section("dqn")
def dqn() -> Found:
    """The same for some extensions, and other networks."""
    import jax

    for name in ("double", "dueling", "online"):
        yield from agents_of(name)
    picture = call("q_network", (84, 84, 4), 6)
    frames = rng(0).integers(0, 256, (2, 84, 84, 4)).astype(np.uint8)
    yield "picture", get(picture, "network.apply")(get(picture, "network.init")(jax.random.key(0)), frames)
    rows = call("q_network", (4,), 2, dueling=True)
    yield "rows", get(rows, "network.apply")(get(rows, "network.init")(jax.random.key(0)), rng(0).random((5, 4), dtype=np.float32))


def agents_of(name: str) -> Found:
    """Yield the Q-values, actions and targets of an agent of a variant."""
    import jax
    import jax.numpy as jnp

    shape, actions = (10, 10, 4), 3
    observations = rng(1).random((2, 16, *shape)) < 0.3
    observations[1, :4] = observations[0, :4]
    values = {"action": rng(2).integers(0, actions, 16).astype(np.int32), "reward": rng(3).standard_normal(16).astype(np.float32)}
    values["discount"] = np.where(rng(4).random(16) < 0.3, 0.0, 0.99).astype(np.float32)
    values |= {"observation": observations[0], "next_observation": observations[1], "last": values["discount"] == 0}
    seen = jax.tree.map(jnp.asarray, call("Transition", **values))
    fields = {f"config.{field}": value for field, value in VARIANTS.get(name, {}).items()}
    known = {field.name for field in dataclasses.fields(resolve("Config"))}
    wanted = {"config.num_envs": 2, "config.buffer_size": 60, **fields}
    agent_config = resolve("Config")(**keywords(lambda name: name in known, wanted))
    agents = call("DQN", agent_config, [call("parse", text) for text in POPULATION], shape, actions)
    agent, other = (get(agents, "dqn.init")(jax.random.key(seed), jnp.int32(0), None) for seed in (3, 4))
    learner = get(agent, "agent.learner")
    online = get(learner, "learner.online")
    # A target network that differs from the online one.
    target = get(get(other, "agent.learner"), "learner.online")
    agent = replaced(agent, "agent.learner", replaced(learner, "learner.target", target))
    yield f"{name}/online", get(agents, "dqn.values")(online, observations[0])
    targets = jax.jit(get(agents, "dqn.targets"))
    for k, text in enumerate(POPULATION):
        yield f"{name}/targets/{text}", targets(replaced(agent, "agent.operator", jnp.int32(k)), seen, jax.random.key(9))
    yield f"{name}/epsilon", [float(get(agents, "dqn.epsilon")(step)) for step in (0, 2000, 5000, 30_000, 10**6)]
    yield f"{name}/choices", get(agents, "dqn.choose")(online, observations[0], 0.5, jax.random.key(1))


def replaced(thing: Any, field: str, value: Any) -> Any:
    """Return a named tuple or dataclass with another value of a field."""
    name = next(name for name, _ in names_of(field) if hasattr(thing, name))
    return thing._replace(**{name: value}) if hasattr(thing, "_replace") else dataclasses.replace(thing, **{name: value})


@section("replay")
def replay() -> Found:
    """Sampled places of replay buffers, and the transitions there."""
    import jax
    import jax.numpy as jnp

    priority = jnp.asarray(rng(0).random((12, 2)) + 0.1, jnp.float32)
    ages = (jnp.int32(1), jnp.int32(9))
    yield "uniform", call("sample_uniform", jax.random.key(1), (3, 8), priority, jnp.int32(5), ages)
    place, probability = call("sample_prioritized", jax.random.key(1), (3, 8), priority, jnp.int32(5), ages, 0.6)
    yield "prioritized/place", place
    yield "prioritized/probability", probability
    for name in ("replay", "frame_replay"):
        buffer, random = None, rng(4)
        for t in range(10):
            last, ended = random.random(2) < 0.3, random.random(2) < 0.2
            common = {"action": random.integers(0, 3, 2).astype(np.int32), "reward": random.standard_normal(2).astype(np.float32)}
            common |= {"discount": np.where(ended, 0.0, 0.9).astype(np.float32), "last": last | ended}
            if name == "replay":
                step = call("Transition", **common, observation=random.random((2, 3)), next_observation=random.random((2, 3)))
            else:
                frame = random.integers(0, 256, (2, 4, 4)).astype(np.uint8)
                step = call("FrameStep", **common, frame__valid=np.ones(2, bool), frame=frame, frame__new=np.array([t == 0] * 2))
            step = jax.tree.map(jnp.asarray, step)
            buffer = call(f"{name}_init", step, 8) if buffer is None else buffer
            buffer = call(f"{name}_add", buffer, jnp.int32(t % 8), step, True)
        stack = () if name == "replay" else (3,)
        for n in (1, 3):
            back = call(f"{name}_sample", *stack, buffer, jnp.arange(0, 16, 3), n)
            fields = ("observation", "action", "reward", "discount", "next_observation")
            yield from below(f"{name}/{n}", fields_of(back, *("transition." + field for field in fields)))


# Experiments

KINDS: dict[str, dict[str, Any]] = {
    "q-learning": {"steps": 500, "rows": 3, "reward_noise": 0.2},
    "fitted-q": {"transitions": 3, "iterations": 40, "rows": 3, "cell": 2, "reward_noise": 0.2},
    "noisy-values": {"noise": (0.5, 1.0, 3.0), "draws": 40},
    "noisy-backups": {"sweeps": 40, "rows": 3, "samples": 2},
}


def run_alone(spec: Any) -> Found:
    """Run an experiment chunk by chunk; yield its rows and its last state."""
    state, rows = get(spec, "experiment.start")(), []
    for chunk in range(get(spec, "experiment.chunks")):
        state, new = get(spec, "experiment.advance")(state, chunk)
        rows += new
    yield from below("rows", rows_of(rows))
    yield from below("state", state_of(state))
    yield "steps", get(spec, "experiment.total_steps")


@section("experiments/finite", quick=True)
def experiments_finite() -> Found:
    """Every kind of experiment on finite MDPs."""
    for kind, fields in KINDS.items():
        for problem in ("cake", "gridworld:3,4", "garnet:12,3,3", "gym/FrozenLake-v1"):
            for operator in ("bellman", "al:0.9", "consistent"):
                yield from below(
                    f"{kind}/{problem}/{operator}", run_alone(experiment(kind, env=problem, operator=operator, seed=3, **fields))
                )


@section("experiments/plan")
def experiments_plan() -> Found:
    """Planning as an experiment."""
    small = {"iterations": 12, "eval_every": 4, "episodes": 6, "max_episode_steps": 50, "eta": 0.5, "record_episodes": 1, "seed": 2}
    for name, grid in (("mountain-car", 9), ("bicycle", 3)):
        for engine in ("numba", "jax"):
            yield from below(
                f"{name}/{engine}", run_alone(experiment("plan", env=name, grid=grid, operator="al:0.5", engine=engine, **small))
            )


@section("experiments/store", quick=True)
def experiments_store() -> Found:
    """A run read from its folder: its rows and checkpoints, and its cost."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        spec = experiment("q-learning", env="chain:5", operator="al:0.5", seed=1, **KINDS["q-learning"])
        call("run_one", place / "alone", spec)
        yield from below("q-learning", stored(place / "alone"))
        rate = call("Rate", 0.001, 2.0, 5000.0)
        yield "cost/new", call("estimate_cost", rate, spec, place / "nowhere")
        yield "cost/done", call("estimate_cost", rate, spec, place / "alone")


@section("experiments/agents")
def experiments_agents() -> Found:
    """Agents read from their folders, and the Q-values of loaded agents."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        fields = {"env": "minatar/breakout", "operator": ["bellman", "al:0.9"], **TINY, "frames": 24}
        study = call("Study", "tiny", call("study_grid", "train", **experiment_values("train", fields)))
        call("run_in_process", study, place / "train", most=4)
        runs = place / "train" / next(name for name, _ in names_of("run.folder") if (place / "train" / name).is_dir())
        folders = sorted((path for path in runs.iterdir() if path.is_dir()), key=operator_of)
        for run in folders:
            yield from below(f"train/{operator_of(run)}", stored(run))
        agents = [call("load_agent", run) for run in folders]
        model, parameters = get(agents[0], "agent.dqn"), [get(agent, "agent.parameters") for agent in agents]
        observations = call("probe_record", model, resolve("minatar_games")["breakout"], parameters[0], seed=3, steps=30)
        probed = call("probe", model, parameters, observations)
        yield "probe/observations", observations
        yield from below("probe", fields_of(probed, "probe.value", "probe.gap"))
        yield "probe/smoothed", call("smoothed", np.asarray(get(probed, "probe.gap")), 5)


def operator_of(run: Path) -> str:
    """Return the operator in the configuration of a run's folder."""
    return json.loads((run / "config.json").read_text())["spec"]["operator"]


def stored(run: Path) -> Found:
    """Yield the rows and the checkpoint of a run's folder."""
    rows = next(run / name for name, _ in names_of("run.rows") if (run / name).exists())
    yield from below("rows", rows_of([json.loads(line) for line in rows.read_text().splitlines()]))
    checkpoints = next(run / name for name, _ in names_of("run.checkpoints") if (run / name).exists())
    last = call("read_checkpoint", max(checkpoints.iterdir()))
    yield from below("checkpoint", state_of(get(last, "checkpoint.state")))
    yield "chunk", get(last, "checkpoint.chunk")


# Statistics


def estimate(found: Any) -> list[float]:
    """Return the numbers of an estimate."""
    return [float(get(found, f"estimate.{name}")) for name in ("value", "low", "high", "level", "n", "tasks")]


@section("statistics", quick=True)
def statistics() -> Found:
    """Intervals, aggregates and paired tests, and the statistics of the paper's table."""
    x, y = rng(0).normal([2, 0, 0.3, 0, 1], size=(8, 5)), rng(1).normal(size=(8, 5))
    yield "wilson", [estimate(call("wilson", count, n)) for count, n in ((0, 5), (3, 10), (10, 10), (50, 99))]
    for kind in ("highest", "last", "average of last"):
        window = 3 if kind == "average of last" else None
        yield f"score/{kind}", get(call("score", x[:, 0], kind, window), "score.value")
    for kind in ("iqm", "optimality gap", "mean", "median"):
        yield f"aggregate/{kind}", estimate(call("aggregate", x, kind, rng=rng(3), resamples=300))
    yield "profile", [estimate(e) for e in call("performance_profile", x, np.linspace(-1, 2, 5), rng=rng(4), resamples=300)]
    yield "improvement", estimate(call("probability_of_improvement", x, y, rng=rng(5), resamples=300))
    tests = call("paired_t_tests", x, y, level=0.95)
    yield "paired/verdicts", [get(test, "comparison.verdict") for test in tests]
    yield (
        "paired/numbers",
        [[*estimate(get(test, "comparison.difference")), get(test, "comparison.t"), get(test, "comparison.p")] for test in tests],
    )
    counted = call("tally", tests)
    yield "tally", [*estimate(get(counted, "tally.better")), *estimate(get(counted, "tally.worse")), get(counted, "tally.by_chance")]
    table = call("paper_table")
    scores = {name: np.asarray(values) for name, values in get(table, "table.scores").items()}
    yield "paper/games", list(get(table, "table.games"))
    for name, values in scores.items():
        yield f"paper/scores/{name}", values
    agents = {name: values[None] if values.ndim == 1 else values for name, values in scores.items() if not np.isnan(values).any()}
    best = call("times_best", agents, rng=rng(6), resamples=200)
    yield from ((f"paper/best/{name}", estimate(found)) for name, found in best.items())
    baseline = next(iter(agents.values()))
    for formula in resolve("FORMULAS"):
        for over in ("median", "mean"):
            for name, values in agents.items():
                found = call("improvement", values, baseline, over, formula, rng=rng(7), resamples=200)
                yield f"paper/improvement/{formula}/{over}/{name}", estimate(found)


def main() -> int:
    """Run the command line; a record is computed in a process with fixed flags."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("record", "list"):
        command = commands.add_parser(name)
        if name == "record":
            command.add_argument("out")
        command.add_argument(
            "--only", nargs="+", default=[], metavar="PATTERN", help="sections whose names match or contain it; =NAME for exactly one"
        )
        command.add_argument("--quick", action="store_true", help="only the sections that the short tests compare")
    command = commands.add_parser("compare")
    command.add_argument("a")
    command.add_argument("b")
    command.add_argument("--tolerant", action="store_true", help="allow the differences between two machines")
    given = parser.parse_args()
    if given.command == "compare":
        return compare(given.a, given.b, given.tolerant)
    if given.command == "list":
        for part in selected_sections(given.only, given.quick):
            print(f"{part.name}: {(part.compute.__doc__ or '').splitlines()[0]}{' (quick)' * part.quick}")
        return 0
    if any(os.environ.get(name) != value for name, value in FLAGS.items()):
        return subprocess.run([sys.executable, __file__, *sys.argv[1:]], env=os.environ | FLAGS, check=False).returncode
    return record(given.out, given.only, given.quick)


if __name__ == "__main__":
    sys.exit(main())
