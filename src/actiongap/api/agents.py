"""Deep agents: train them, load them, and ask them for actions and Q-values.

agents = train("gym/CartPole-v1", ["bellman", "al:0.9"], seeds=3, frames=50_000, out="runs/pole")
agents[0].act(observation)
agent = load_agent("runs/pole", operator="al:0.9", seed=1)
"""

from __future__ import annotations

import dataclasses
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, overload

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from actiongap._files import as_path, as_paths
from actiongap._suggest import did_you_mean, with_suggestions
from actiongap._user_code import is_registered_text, names_code
from actiongap.api.studies import run_with_progress
from actiongap.api.trained import (
    MAX_EPISODE_STEPS,
    TrainedAgent,
    is_trained,
    load_trained,
    load_weights,
    play,
    save_weights,
)
from actiongap.dqn.probe import probe, record, smoothed
from actiongap.envs.atari import FRAMES_PER_STEP, AtariGame
from actiongap.envs.episode_video import EpisodeVideo, check_pace, video_files, write_episode
from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.gym import GymEnv
from actiongap.lab.executors import BATCH_SIZE
from actiongap.lab.experiment import build, defaults
from actiongap.lab.kinds.train import Training
from actiongap.lab.records import RunRecord, read_run
from actiongap.lab.runner import SAVE_EVERY, run_folder
from actiongap.lab.source import text_of
from actiongap.lab.statistics import mean_over_runs
from actiongap.lab.store import read_status
from actiongap.lab.study import Study, seed_range
from actiongap.lab.validation import read_record
from actiongap.operators import AnyOperator, parse
from actiongap.reporting.display import Plot, ResultTable, to_pandas
from actiongap.reporting.groups import listed, several
from actiongap.reporting.page import Chart, Series
from actiongap.reporting.progress import StepProgress
from actiongap.reporting.summary import learning_curve

Row = dict[str, Any]
"""One evaluation: the run, its env, operator and seed, `step`, and the columns of the experiment `train`."""


class Agent:
    """A trained agent. It is made by `train` and `load_agent`.

    Examples
    --------
    >>> small = {"frames": 64, "eval_every": 64, "buffer_size": 50, "learning_starts": 20, "episodes": 2, "max_episode_steps": 9}
    >>> agent = train("gym/CartPole-v1", "al:0.9", **small, exploration_steps=20)[0]
    >>> agent.q([0.0, 0.0, 0.1, 0.0]).shape, agent.act([0.0, 0.0, 0.1, 0.0]) in (0, 1)
    ((2,), True)
    """

    def __init__(self, trained: TrainedAgent, run: RunRecord | None = None, folder: Path | None = None):
        self._trained, self._run, self._folder = trained, run, folder

    @property
    def operator(self) -> str:
        """The operator, as text."""
        return self.config.operator

    @property
    def seed(self) -> int:
        """The random seed."""
        return self.config.seed

    @property
    def env(self) -> str:
        """The environment, as text."""
        return self.config.env

    @property
    def config(self) -> Training:
        """All settings."""
        return self._trained.spec

    @property
    def folder(self) -> Path | None:
        """The folder of its run; None if nothing was kept, or if it was loaded from a file."""
        return self._folder

    @property
    def rows(self) -> Mapping[str, NDArray[np.float64]]:
        """The evaluations during training: `step` and each column; empty if it was loaded from a file."""
        return {} if self._run is None else self._run.rows

    @with_suggestions
    def act(
        self, observation: ArrayLike, deterministic: bool = True, *, rng: np.random.Generator | int | None = None
    ) -> int | NDArray[np.int64]:
        """Return the action in one observation, or an array of actions for a batch, as numbers that the environment takes.

        Parameters
        ----------
        observation
            An observation as the environment gives it, or a batch of them.
        deterministic
            Whether to take the greedy action. If not, a random action is taken with probability `evaluation_epsilon`.
        rng
            A random generator, or its seed.
        """
        batch, single = self._observations(observation)
        values = self._trained.q_values(batch)
        actions = values.argmax(axis=1)
        if not deterministic:
            random = np.random.default_rng(rng)
            explore = random.random(len(actions)) < self.config.evaluation_epsilon
            actions = np.where(explore, random.integers(0, values.shape[1], len(actions)), actions)
        game = self._trained.env
        actions = actions + int(game.action_space.start) if isinstance(game, GymEnv) else actions
        return int(actions[0]) if single else actions

    def q(self, observation: ArrayLike) -> NDArray[np.float32]:
        """Return Q(x, .) of one observation, (actions,), or of a batch, (batch, actions)."""
        batch, single = self._observations(observation)
        values = self._trained.q_values(batch)
        return values[0] if single else values

    def save(self, file: str | Path) -> None:
        """Write the weights and all settings to a .safetensors file, for `load_agent`."""
        save_weights(self._trained, file)

    @with_suggestions
    def video(
        self,
        file: str | Path,
        *,
        episode: int = 0,
        gif: bool = False,
        seconds: float | None = None,
        speed: float | None = None,
        max_episode_steps: int = MAX_EPISODE_STEPS,
        progress: bool | None = None,
    ) -> EpisodeVideo:
        """Play one greedy episode and write a video of it, with the Q-values next to the image.

        Parameters
        ----------
        file
            FILE.mp4 or FILE.gif.
        episode
            Number of the episode: the seed that the environment is reset with.
        gif
            Whether to write a GIF beside the MP4.
        seconds
            Maximum length of the video, by default 20. Longer episodes are sped up between their start and their end.
        speed
            Play the whole episode at this multiple of real time, in place of `seconds`.
        max_episode_steps
            Steps after which the episode is stopped.
        progress
            Whether to show progress. By default, only if it takes longer than two seconds.
        """
        _check_whole("episode", episode, 0)
        check_pace(seconds, speed)
        files = video_files(file, gif)
        with StepProgress("video", progress) as bar:
            bar("playing", 0.0)
            env, played = play(self._trained, episode, max_episode_steps)
            title = f"{self.env}, {self._trained.label}"
            return write_episode(env, played, **files, title=title, seconds=seconds, speed=speed, progress=bar)

    def summary(self) -> dict[str, Any]:
        """Return the last evaluation and the speed as plain values. The speed is that of the whole batch of agents."""
        last = {name: float(values[-1]) for name, values in self.rows.items() if len(values)}
        status = self._run.status if self._run else None
        return {
            "env": self.env,
            "operator": self.operator,
            "seed": self.seed,
            "frames": int(last.get("step", 0)),
            **{name: last.get(name) for name in ("score", "action_gap", "value")},
            # The seconds of a run are its share of the time of its batch.
            "frames_per_second": status.steps / status.seconds if status and status.seconds > 0 else None,
            "run": None if self.folder is None else str(self.folder),
        }

    def _observations(self, observation: ArrayLike) -> tuple[np.ndarray, bool]:
        """Return a batch of converted observations, and whether one observation was given."""
        game = self._trained.env
        wanted = _observation_shape(self._trained)
        try:
            found = np.asarray(observation)
        except ValueError:
            found = np.array(None)
        if found.dtype.kind not in "biuf":
            raise ValueError(f"{self.env}: an observation is an array of numbers, shape {wanted}: give one, or a batch of them")
        if found.shape not in (wanted, (len(found) if found.ndim else 0, *wanted)):
            hint = ""
            if isinstance(game, AtariGame) and found.shape[-3:] == (wanted[-1], *wanted[:-1]):
                hint = "; the frames of a stack come last, so use np.moveaxis(observation, -3, -1)"
            batch = ", ".join(map(str, ("n", *wanted)))
            raise ValueError(
                f"an observation of {self.env} has shape {wanted}, and this one has {found.shape}: give one, or a batch of shape ({batch})"
                f"{hint}"
            )
        single = found.shape == wanted
        batch = found[None] if single else found
        problem = _problem(game, batch)
        if problem:
            raise ValueError(f"this is not an observation of {self.env}: {problem}")
        if isinstance(game, GymEnv):
            return game.convert(batch), single
        return batch.astype(np.bool_ if isinstance(game, FunctionalEnv) else np.uint8), single

    def __repr__(self) -> str:
        found = self.summary()
        trained = f": {found['frames']:,} frames, score {found['score']:.4g}" if found["score"] is not None else ""
        return f"Agent({self.operator} on {self.env}, seed {self.seed}{trained})"

    def _repr_html_(self) -> str:
        found = self.summary()
        names = ("env", "operator", "seed", "frames", "score", "action_gap", "value")
        return ResultTable("Agent", names, [[found[name] for name in names]])._repr_html_()


def _observation_shape(trained: TrainedAgent) -> tuple[int, ...]:
    """Return the shape of an observation as the environment gives it."""
    game = trained.env
    return game.observation_space.shape or () if isinstance(game, GymEnv) else trained.dqn.shape


def _problem(game: FunctionalEnv | GymEnv | AtariGame, batch: np.ndarray) -> str:
    """Return what is wrong with the values of observations; empty if nothing is."""
    if not np.isfinite(batch).all():
        return "a value is not finite"
    if isinstance(game, FunctionalEnv):
        return "" if ((batch == 0) | (batch == 1)).all() else "a board holds booleans, or 0 and 1"
    if isinstance(game, AtariGame):
        bytes_only = batch.dtype.kind in "iu" and (batch >= 0).all() and (batch <= 255).all()
        return "" if bytes_only else "a stack of frames holds whole numbers from 0 to 255"
    space = game.observation_space
    if not isinstance(space, spaces.Discrete):
        return ""
    first, last = int(space.start), int(space.start + space.n) - 1
    whole = batch.dtype.kind in "iu" and (batch >= first).all() and (batch <= last).all()
    return "" if whole else f"it is a whole number from {first} to {last}"


class Agents(Sequence[Agent]):
    """Trained agents, in order of seed and operator. An immutable sequence.

    Examples
    --------
    >>> small = {"frames": 64, "eval_every": 64, "buffer_size": 50, "learning_starts": 20, "episodes": 2, "max_episode_steps": 9}
    >>> agents = train("gym/CartPole-v1", ["bellman", "al:0.9"], seeds=2, **small, exploration_steps=20)
    >>> agents
    Agents(4 on gym/CartPole-v1: bellman, al:0.9; seeds 0, 1)
    >>> [agent.seed for agent in agents.select(operator="al:0.9")]
    [0, 1]
    """

    def __init__(self, agents: Iterable[Agent], failed: Mapping[str, str] | None = None):
        self._agents = tuple(agents)
        self._failed = dict(failed or {})

    @property
    def failed(self) -> Mapping[str, str]:
        """Runs that failed, each with an error message. Their agents are not in the sequence."""
        return self._failed

    def __len__(self) -> int:
        return len(self._agents)

    @overload
    def __getitem__(self, index: int) -> Agent: ...
    @overload
    def __getitem__(self, index: slice) -> Agents: ...
    def __getitem__(self, index: int | slice) -> Agent | Agents:
        return Agents(self._agents[index]) if isinstance(index, slice) else self._agents[index]

    @with_suggestions
    def select(self, operator: AnyOperator | None = None, seed: int | None = None) -> Agents:
        """Return the agents with this operator, this seed, or both."""
        chosen = [agent for agent in self if _is_selected(agent.operator, agent.seed, operator, seed)]
        if not chosen:
            raise ValueError(f"there is no agent {_wanted(operator, seed)}: there are {_described([(a.operator, a.seed) for a in self])}")
        return Agents(chosen)

    def table(self) -> ResultTable:
        """Return one row per operator: agents, frames, and means of the last score, action gap and V, with intervals and n."""
        rows = []
        for operator in dict.fromkeys(agent.operator for agent in self):
            last = [agent.summary() for agent in self.select(operator)]
            means = [mean_over_runs([row[name] for row in last if row[name] is not None]) for name in ("score", "action_gap", "value")]
            rows.append((operator, len(last), max(row["frames"] for row in last), *means))
        return ResultTable("Agents", ("operator", "agents", "frames", "score", "action_gap", "value"), rows)

    def to_pandas(self) -> Any:
        """Return all evaluations of all agents as a data frame, a row each. Needs pandas."""
        rows: list[Row] = []
        for agent in self:
            names = {"run": agent.folder and agent.folder.name, "env": agent.env, "operator": agent.operator, "seed": agent.seed}
            columns = {name: values.tolist() for name, values in agent.rows.items()}
            rows += [{**names, **dict(zip(columns, values, strict=True))} for values in zip(*columns.values(), strict=True)]
        return to_pandas(rows)

    @with_suggestions
    def curves(self, column: str = "score") -> Plot:
        """Return the learning curves of a column: a line for each operator, the mean over seeds, with a band."""
        runs = [agent._run for agent in self if agent._run is not None]
        if not runs:
            raise ValueError("these agents have no rows, because they were loaded from files: load them from the folder of their study")
        chart = learning_curve(runs, column)
        return Plot(chart.title, (chart,))

    @with_suggestions
    def probe(
        self, steps: int = 1000, along: Agent | None = None, window: int = 50, seed: int = 0, *, progress: bool | None = None
    ) -> Plot:
        """Evaluate V(x) and the action gap of all agents along the trajectory of one of them.

        Parameters
        ----------
        steps
            Number of steps to record, over one or more episodes; on Atari at most one game.
        along
            The agent that plays; by default the first with the Bellman operator.
        window
            Number of steps over which V and the gap are averaged.
        seed
            Seed of the episodes.
        progress
            Whether to show progress. By default, only if it takes longer than two seconds.
        """
        for name, value in (("steps", steps), ("window", window)):
            _check_whole(name, value, 1)
        _check_whole("seed", seed, 0)
        if not self:
            raise ValueError("there is no agent to probe: give at least one")
        if not isinstance(along, (Agent, NoneType)):
            raise TypeError(f"along is {along!r}: give one of the agents, or None")
        player = (along or next((agent for agent in self if agent.operator == "bellman"), self[0]))._trained
        envs = sorted({player.spec.env, *(agent.env for agent in self)})
        if len(envs) > 1:
            raise ValueError(f"these agents play different games, {' and '.join(envs[:2])}: give agents of one game")
        with StepProgress("probe", progress) as bar:
            bar("playing", 0.0)
            observations = record(player.dqn, player.env, player.parameters, seed, steps)
            bar("evaluating", 0.5)
            found = [probe(agent._trained.dqn, [agent._trained.parameters], observations) for agent in self]
        games = "one game" if isinstance(player.env, AtariGame) else "successive games"
        note = f"Along {len(observations):,} steps of {games} played by {player.label}; moving average over {window} steps."
        charts = []
        for title, rows in (("V(x)", [each.value for each in found]), ("action gap", [each.gap for each in found])):
            values = [smoothed(row, window)[0].tolist() for row in rows]
            lines = [Series(agent._trained.label, tuple(range(len(y))), tuple(y)) for agent, y in zip(self, values, strict=True)]
            charts.append(Chart(title, "step", title, tuple(lines), note))
        return Plot(f"Q-values along a trajectory: {player.spec.env}", tuple(charts))

    def __repr__(self) -> str:
        if not self:
            return "Agents(none)"
        envs = ", ".join(dict.fromkeys(agent.env for agent in self))
        operators = ", ".join(dict.fromkeys(agent.operator for agent in self))
        return f"Agents({len(self)} on {envs}: {operators}; {_seeds([agent.seed for agent in self])})"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def train(
    env: str,
    operator: AnyOperator | Sequence[AnyOperator] = "bellman",
    *,
    seeds: int = 1,
    seed: int = 0,
    frames: int = 1_000_000,
    preset: str | None = None,
    out: str | Path | None = None,
    callback: Callable[[Row], object] | None = None,
    progress: bool | None = None,
    max_batch_size: int = BATCH_SIZE,
    command: str = "",
    **config: Any,
) -> Agents:
    """Train deep agents: every operator with every seed, all as one batch.

    Parameters
    ----------
    env
        `minatar/GAME` (asterix, breakout, freeway, seaquest, space_invaders), `atari/ROM` (atari/pong), or `gym/ID` with discrete actions.
    operator
        One operator or a list: a string such as `al:0.9` or `path/to/file.py:name`, an `Operator`, or any function of a `Backup`.
    seeds
        Number of seeds.
    seed
        The first seed.
    frames
        Frames that each agent plays. On Atari, a step is four frames.
    preset
        Preset that provides the configuration: faithful, throughput, stochastic-minimal or original-dqn. By default stochastic-minimal on
        Atari and faithful elsewhere.
    out
        Folder to write to, a study for `actiongap.report`. The same call continues training that was interrupted. By default nothing is
        kept: the runs are written to a temporary folder, which is removed.
    callback
        Receives each evaluation as a dictionary, as soon as it is there: `run`, `env`, `operator`, `seed`, `step`, `score` and so on. An
        error that it raises stops training.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.
    max_batch_size
        Maximum number of agents that are trained as a batch.
    command
        Recorded as the command that trained the agents.
    **config
        Other settings: `learning_rate`, `buffer_size`, `eval_every`, `episodes` and so on, the options of `actiongap train`.

    Examples
    --------
    >>> small = {"frames": 64, "eval_every": 32, "buffer_size": 50, "learning_starts": 20, "episodes": 2, "max_episode_steps": 9}
    >>> agents = train("gym/CartPole-v1", "al:0.9", **small, exploration_steps=20)
    >>> agents[0].rows["step"].tolist()
    [32.0, 64.0]
    """
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is {callback!r}: give a function of one row")
    study = training_study(env, operator, seeds=seeds, seed=seed, frames=frames, preset=preset, **config)
    _warn_of_exploration(study)
    options = {"max_batch_size": max_batch_size, "command": command, "callback": callback, "progress": progress}
    if out is not None:
        _check_interrupted(study, as_path(out, "out"))
        return _train(study, Path(out), SAVE_EVERY, options)
    with tempfile.TemporaryDirectory(prefix="actiongap-") as folder:
        try:
            return _train(study, Path(folder) / "train", math.inf, options, kept=False)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped, and nothing is kept: give out=DIR to be able to continue later") from None


def training_study(
    env: str,
    operator: AnyOperator | Sequence[AnyOperator] = "bellman",
    *,
    seeds: int = 1,
    seed: int = 0,
    frames: int = 1_000_000,
    preset: str | None = None,
    **config: Any,
) -> Study:
    """Return the study that `train` runs, with its arguments.

    Examples
    --------
    >>> [run.seed for run in training_study("minatar/breakout", seeds=2, seed=5).runs]
    [5, 6]
    """
    if not isinstance(env, str):
        name = getattr(getattr(env, "spec", None), "id", None)
        raise TypeError(f"env is {env!r}: give its name, {f'gym/{name}' if name else 'such as gym/CartPole-v1'}")
    numbers = seed_range(seed, seeds)
    fields = set(defaults(Training)) - {"env", "operator", "seed", "frames"}
    known = sorted({*fields, *_PARAMETERS})
    for name in config:
        if name not in fields:
            raise TypeError(f"train has no argument {name!r}: " + did_you_mean(name, known, f"it has {', '.join(known)}"))
    operators = list(operator) if isinstance(operator, (list, tuple)) else [operator]
    if not operators:
        raise ValueError("operator is an empty list: give at least one operator")
    for one in operators:
        if not (isinstance(one, str) or callable(one)):
            raise TypeError(f"operator is {one!r}: give a string such as al:0.9, an Operator, a function of a Backup, or a list of these")
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in {"frames": frames, **config}.items()}
    runs = [
        build(Training, {"env": env, "operator": one, "seed": number, "preset": preset, **plain}) for one in operators for number in numbers
    ]
    return Study("train", tuple(runs))


_PARAMETERS = ("operator", "seeds", "seed", "frames", "preset", "out", "callback", "progress", "max_batch_size")


def _train(study: Study, out: Path, save_every: float, options: dict[str, Any], *, kept: bool = True) -> Agents:
    outcome = run_with_progress(study, out, save_every=save_every, measure=False, **options)
    names = [name for name in study.named() if name not in outcome.failed and name not in outcome.busy]
    folders = [run_folder(out, name) for name in names]
    agents = [Agent(load_trained(folder, trust=True), read_run(folder).run, folder if kept else None) for folder in folders]
    problems = []
    if outcome.failed:
        name, error = next(iter(outcome.failed.items()))
        problems.append(f"{len(outcome.failed)} of {several(len(study.runs), 'agent')} failed; {name}: {error}")
    if outcome.busy:
        busy = f"{len(outcome.busy)} of {several(len(study.runs), 'agent')}"
        problems.append(f"other processes are training {busy}: make the same call again when they have finished")
    if not agents:
        raise ValueError("; ".join(problems))
    for problem in problems:
        warnings.warn(problem, stacklevel=3)
    return Agents(agents, outcome.failed)


def _warn_of_exploration(study: Study) -> None:
    """Warn if training ends before epsilon reaches its final value: scores of such agents are not informative."""
    run = study.runs[0]
    assert isinstance(run, Training)
    ends = (run.learning_starts + run.exploration_steps) * (FRAMES_PER_STEP if run.is_atari else 1)
    if run.frames < ends:
        warnings.warn(f"exploration ends after {ends:,} frames, but frames is {run.frames:,}: see exploration_steps", stacklevel=3)


def _check_interrupted(study: Study, out: str | Path) -> None:
    """Raise ValueError if a folder has interrupted runs with other settings than those of a study, which would stay unfinished."""

    def config_of(spec: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in {**defaults(Training), **spec}.items() if name not in ("operator", "seed")}

    wanted = config_of(dataclasses.asdict(study.runs[0]))  # pyright: ignore[reportArgumentType]
    for file in sorted(Path(out).glob("runs/*/config.json")):
        try:
            config, state = read_record(file), read_status(file.parent).state
        except ValueError:
            continue
        if config.get("kind") != Training.kind or state not in ("running", "stopped") or not isinstance(config.get("spec"), dict):
            continue
        before = config_of(config["spec"])
        for name in wanted:
            if before[name] != wanted[name]:
                difference = f"{name} is {before[name]!r} and not {wanted[name]!r}"
                remedy = "train with those settings to finish it, or choose another folder"
                raise ValueError(f"{out} has an interrupted run with other settings, {difference}: {remedy}")


@with_suggestions
def load_agent(path: str | Path, *, operator: AnyOperator | None = None, seed: int | None = None, trust: bool = False) -> Agent:
    """Load a trained agent, finished or not. Its operator is not loaded, because acting does not need it.

    Parameters
    ----------
    path
        A .safetensors file that `Agent.save` wrote, the folder of one run, or the folder of a study.
    operator, seed
        Select the agent of a study. They must leave exactly one.
    trust
        Whether to import the module that an environment `gym/MODULE:ID` names.

    Examples
    --------
    >>> load_agent("nowhere")
    Traceback (most recent call last):
    ValueError: nowhere: no such file or folder; give a .safetensors file, or a folder that train wrote
    """
    path = as_path(path, "path")
    if not os.path.exists(path):
        raise ValueError(f"{path}: no such file or folder; give a .safetensors file, or a folder that train wrote")
    if not os.path.isdir(path) or os.path.exists(path / "config.json"):
        agent = _load_run(path, trust) if os.path.isdir(path) else Agent(load_weights(path, trust=trust))
        if not _is_selected(agent.operator, agent.seed, operator, seed):
            raise ValueError(f"{path} is not an agent {_wanted(operator, seed)}: it is {agent._trained.label}")
        return agent
    found: dict[Path, tuple[str, int]] = {}
    problems: list[str] = []
    for folder in _run_folders(path):
        try:
            spec = read_record(folder / "config.json")["spec"]
            found[folder] = spec["operator"], spec["seed"]
        except (ValueError, KeyError, TypeError) as error:
            problems.append(str(error) if isinstance(error, ValueError) else f"{folder} is not a valid run: choose another folder")
    chosen = [folder for folder, (text, number) in found.items() if _is_selected(text, number, operator, seed)]
    if len(chosen) == 1:
        return _load_run(chosen[0], trust)
    if not found:
        raise ValueError(problems[0] if problems else f"there is no agent in {path}: give a folder that train wrote")
    if not chosen:
        raise ValueError(f"{path} has no agent {_wanted(operator, seed)}: it has {_described(list(found.values()))}")
    remedy = "give operator and seed" if len(set(found.values())) == len(found) else f"give the folder of one, such as {chosen[0]}"
    raise ValueError(f"{path} has {len(chosen)} agents {_wanted(operator, seed)}: {_described([found[f] for f in chosen])}: {remedy}")


@with_suggestions
def load_agents(folders: str | Path | Iterable[str | Path], *, trust: bool = False) -> Agents:
    """Load all agents in folders of runs and studies, those of a study in order of operator and seed. Warns of unreadable ones.

    Parameters
    ----------
    folders
        One or more folders of runs or studies.
    trust
        Whether to import the module that an environment `gym/MODULE:ID` names.

    Examples
    --------
    >>> load_agents([])
    Traceback (most recent call last):
    ValueError: there is no agent to load: give folders that train wrote
    """
    found: list[Agent] = []
    problems: list[str] = []
    places = as_paths(folders, "folders")
    for place in places:
        study: list[Agent] = []
        for folder in _run_folders(place):
            try:
                study.append(_load_run(folder, trust))
            except ValueError as error:
                problems.append(str(error))
        found += sorted(study, key=lambda agent: (agent.operator, agent.seed))
    if not found:
        where = f"{', '.join(map(str, places))}: " if places else ""
        raise ValueError(problems[0] if problems else f"{where}there is no agent to load: give folders that train wrote")
    for problem in problems:
        warnings.warn(f"skipped: {problem}", stacklevel=3)
    return Agents(found)


def _run_folders(place: Path) -> list[Path]:
    """Return the folders of training runs in a folder of a run or of a study."""
    return [place] if is_trained(place) else sorted(filter(is_trained, place.glob("runs/*")))


def _load_run(folder: Path, trust: bool) -> Agent:
    return Agent(load_trained(folder, trust=trust), read_run(folder).run, folder)


def _is_selected(text: str, number: int, operator: AnyOperator | None, seed: int | None) -> bool:
    """Whether an agent has a wanted operator and seed; None is any."""
    if seed is not None and number != seed:
        return False
    if operator is None:
        return True
    wanted = text_of(operator)
    # A user's function is found by its name alone, too.
    return wanted in (text, _short_name(text)) or _canonical(wanted) == text


def _short_name(text: str) -> str:
    return text.partition("@")[0] if is_registered_text(text) else text.rpartition(":")[2] if names_code(text) else text


def _canonical(text: str) -> str:
    """Return the name of an operator that has several spellings, such as `al:.9`."""
    try:
        return text if names_code(text) or is_registered_text(text) else parse(text).name
    except ValueError:
        return text


def _wanted(operator: AnyOperator | None, seed: int | None) -> str:
    wanted = [f"operator {text_of(operator)}"] * (operator is not None) + [f"seed {seed}"] * (seed is not None)
    return f"with {' and '.join(wanted)}" if wanted else "to choose from"


def _described(agents: Sequence[tuple[str, int]]) -> str:
    """Return a phrase with the operators and seeds of agents."""
    return f"{listed(list(dict.fromkeys(operator for operator, _ in agents)))} with {_seeds([seed for _, seed in agents])}"


def _seeds(numbers: Iterable[int]) -> str:
    unique = sorted(set(numbers))
    return f"{'seed' if len(unique) == 1 else 'seeds'} {listed(list(map(str, unique)))}"


def _check_whole(name: str, value: Any, least: int) -> None:
    """Raise ValueError unless a value is a whole number that is large enough."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}: it must be a whole number of at least {least}")
