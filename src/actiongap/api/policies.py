"""Plan with a simulator, and use the policy.

policy = plan(simulator, "consistent", grid=41, iterations=400, eta=0.5, out="runs/cart")
policy.act(observation)
policy.evaluate(episodes=100)
policy.save("cart.npz")
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from actiongap import _html
from actiongap._files import as_path, check_writable
from actiongap._suggest import with_suggestions
from actiongap._user_code import check_trusted, is_registered_text
from actiongap.api.simulators import Simulator, as_simulator, load_simulator
from actiongap.operators import AnyOperator
from actiongap.planning import policy as grid_policy
from actiongap.planning import simulator as planning_simulator
from actiongap.planning.engines import Engine, EngineChoice
from actiongap.planning.policy import check_policy

Row = dict[str, Any]
"""One evaluation: `env`, `operator`, `seed`, `step`, and the columns of the experiment `plan`."""


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What a policy does in complete episodes. Every number comes with its 95% interval and n.

    Examples
    --------
    >>> policy = plan("mountain-car", "consistent", grid=15, iterations=60, eta=1.0, episodes=0)
    >>> evaluation = policy.evaluate(episodes=20)
    >>> list(evaluation.outcomes), evaluation.mean_length.n
    (['goal', 'limit'], 20)
    """

    episodes: int
    outcomes: Mapping[str, Any]
    """Fraction of episodes with each outcome of the simulator, an `Estimate` each; `limit` is the fraction that was truncated, and `end`
    the fraction that ended with none of the outcomes, if there are any."""
    mean_return: Any
    """Mean undiscounted return, an `Estimate`."""
    mean_length: Any
    """Mean number of steps, an `Estimate`."""
    returns: NDArray[np.float64]
    """Return of each episode."""
    lengths: NDArray[np.int64]
    """Number of steps of each episode."""

    @property
    def _numbers(self) -> dict[str, Any]:
        outcomes = {f"fraction {name}": estimate for name, estimate in self.outcomes.items()}
        return {**outcomes, "return": self.mean_return, "steps": self.mean_length}

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {e.value:.4g} [{e.low:.4g}, {e.high:.4g}]" for name, e in self._numbers.items())
        return f"Evaluation({self.episodes} episodes: {numbers})"

    def _repr_html_(self) -> str:
        rows = [(name, f"{e.value:.4g}", f"{e.low:.4g} to {e.high:.4g}") for name, e in self._numbers.items()]
        return _html.table(rows, ("", "mean", "95% interval"), title=f"{self.episodes} episodes")


@dataclass(frozen=True, eq=False, repr=False)
class Policy(grid_policy.Policy):
    """The greedy policy of Q on a grid. Made by `plan` and `load_policy`.

    `act` and `q` take one observation or a batch and need no simulator. `evaluate` and `video` play episodes in the simulator.

    Examples
    --------
    >>> policy = plan("mountain-car", "consistent", grid=15, iterations=20, eta=1.0, episodes=0)
    >>> policy
    Policy(consistent on mountain-car: 15 x 15 points, 3 actions, 20 iterations)
    >>> policy.actions[policy.act((-0.5, 0.02))]
    'right'
    """

    rows: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """The evaluations during planning: `step` and each column; empty if it was loaded from a file."""
    folder: Path | None = None
    """The folder of its run; None if nothing was kept, or if it was loaded from a file."""
    engine: EngineChoice | None = None
    """The engine of the plan, and why it was chosen; None if it was loaded from a file."""
    seconds_per_sweep: float | None = None
    """Mean time of a sweep; None if unknown."""
    given_simulator: planning_simulator.Simulator | None = None
    """The simulator, if it was given as an object."""
    file: Path | None = None
    """The file that it was loaded from; None if it was planned."""
    trust: bool = False
    """Whether the simulator may be loaded from the Python file that `env` names."""

    @property
    def simulator(self) -> Simulator:
        """The simulator of the policy. Raises ValueError if it has to be given, or to be trusted."""
        if self.given_simulator is not None:
            return as_simulator(self.given_simulator)
        if is_registered_text(self.env):
            name = self.env.partition("@")[0]
            remedy = f"give it in Python, load_policy(file, simulator={name})"
            raise ValueError(f"{self.file or 'this policy'}: its simulator {name} is not in a file that can be loaded: {remedy}")
        try:
            check_trusted(self.env, self.trust)
        except ValueError as error:
            raise ValueError(f"{self.file or 'this policy'}: {error}") from None
        simulator = load_simulator(self.env)
        check_policy(self, simulator)
        return simulator

    @with_suggestions
    def evaluate(
        self,
        episodes: int = 100,
        *,
        seed: int = 0,
        max_episode_steps: int | None = None,
        engine: Engine = "auto",
        progress: bool | None = None,
    ) -> Evaluation:
        """Play episodes in the simulator.

        Parameters
        ----------
        episodes
            Number of episodes. Their initial states are those of the simulator, spread evenly.
        seed
            Seed of the noise.
        max_episode_steps
            Steps after which an episode is truncated; by default the simulator's own limit.
        engine
            Library that computes the episodes: numpy, numba, jax, or auto.
        progress
            Whether to show progress. By default, only if it takes longer than two seconds.
        """
        from actiongap.lab.experiment import check_seed
        from actiongap.lab.statistics import mean_over_runs, wilson
        from actiongap.planning.rollouts import outcome_masks, rollouts
        from actiongap.reporting.progress import StepProgress

        if isinstance(episodes, bool) or not isinstance(episodes, (int, np.integer)) or episodes < 1:
            raise ValueError(f"episodes is {episodes!r}: it must be a whole number of at least 1")
        check_seed(seed)
        with StepProgress("evaluate", progress) as bar:
            bar(f"{episodes} episodes", 0.0)
            options = {"seed": seed, "max_episode_steps": max_episode_steps, "engine": engine}
            batch = rollouts(self.simulator, self.grid, self.table[None], episodes, **options)
        reached = {name: mask[0] for name, mask in outcome_masks(self.simulator, batch).items()}
        outcomes = {name: wilson(int(mask.sum()), episodes) for name, mask in reached.items()}
        returns, lengths = batch.returns[0].astype(np.float64), batch.steps[0].astype(np.int64)
        return Evaluation(episodes, outcomes, mean_over_runs(returns), mean_over_runs(lengths), returns, lengths)

    def save(self, file: str | Path) -> None:
        """Write the policy to a .npz file, atomically, for `load_policy`."""
        grid_policy.save_policy(_policy_file(file), self)

    @with_suggestions
    def video(
        self,
        file: str | Path,
        *,
        episode: int = 0,
        episodes: int = 100,
        seed: int = 0,
        gif: bool = False,
        seconds: float | None = None,
        speed: float | None = None,
        progress: bool | None = None,
    ) -> Any:
        """Play one episode and write a video of it, with the Q-values next to the image.

        Parameters
        ----------
        file
            FILE.mp4 or FILE.gif.
        episode, episodes
            Which of the episodes of an evaluation to play.
        seed
            Seed of the noise.
        gif
            Whether to write a GIF beside the MP4.
        seconds
            Maximum length of the video, by default 20. Longer episodes are sped up between their start and their end.
        speed
            Play the whole episode at this multiple of real time, in place of `seconds`.
        progress
            Whether to show progress. By default, only if it takes longer than two seconds.
        """
        from actiongap.envs.episode_video import check_pace, record_interval, video_files, write_episode
        from actiongap.planning.rollouts import record_episode
        from actiongap.reporting.progress import StepProgress

        check_pace(seconds, speed)
        files = video_files(file, gif)
        with StepProgress("video", progress) as bar:
            bar("playing", 0.0)
            simulator = self.simulator
            every = record_interval(simulator, speed)
            recorded = record_episode(simulator, self.grid, self.table, episode, episodes, seed=seed, every=every)
            title = f"{simulator.name}, {self.operator}"
            return write_episode(simulator, recorded, **files, title=title, seconds=seconds, speed=speed, progress=bar)

    def summary(self) -> dict[str, Any]:
        """Return the plan, its last evaluation and its speed as plain values."""
        last = {name: float(values[-1]) for name, values in self.rows.items() if len(values) and math.isfinite(values[-1])}
        found = {name: last[name] for name in SUMMARY if name in last}
        return {
            "env": self.env,
            "operator": self.operator,
            "seed": self.about.get("seed"),
            "grid": self.grid.shape[0] if len(set(self.grid.shape)) == 1 else list(self.grid.shape),
            "iterations": self.about.get("iterations"),
            **found,
            **({} if self.seconds_per_sweep is None else {"seconds_per_sweep": self.seconds_per_sweep}),
            "run": None if self.folder is None else str(self.folder),
        }

    def __repr__(self) -> str:
        found = self.summary()
        last = [f"{name.removesuffix('_frequency')} {found[name]:.4g}" for name in found if name.endswith("_frequency")]
        name = self.env.partition("@")[0] if is_registered_text(self.env) else self.env
        shape = " x ".join(map(str, self.grid.shape))
        planned = f"{shape} points, {len(self.actions)} actions" + (f", {found['iterations']} iterations" if found["iterations"] else "")
        return f"Policy({self.operator} on {name}: {'; '.join([planned, *([', '.join(last)] if last else [])])})"

    def _repr_html_(self) -> str:
        shown = {**self.summary(), "actions": ", ".join(self.actions), "coordinates": ", ".join(self.coordinates)}
        shown["grid"] = " x ".join(map(str, self.grid.shape))
        rows = [(name, f"{value:.4g}" if isinstance(value, float) else value) for name, value in shown.items() if value is not None]
        return _html.table(rows, title="Policy")


SUMMARY = ("fall_frequency", "goal_frequency", "mean_steps", "mean_return", "residual")
"""Columns of the last row in a summary."""


@with_suggestions
def load_policy(file: str | Path, *, simulator: planning_simulator.Simulator | None = None, trust: bool = False) -> Policy:
    """Load a policy that `Policy.save` or `plan` wrote. Acting needs no simulator, so no code is loaded.

    Parameters
    ----------
    file
        A .npz file.
    simulator
        The simulator, for `evaluate` and `video`, if it is not one of the library.
    trust
        Whether `evaluate` and `video` may load the simulator from the Python file that the policy names.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "car.npz"
    >>> plan("mountain-car", grid=5, iterations=5, episodes=0).save(file)
    >>> load_policy(file)
    Policy(bellman on mountain-car: 5 x 5 points, 3 actions, 5 iterations)
    """
    loaded = grid_policy.load_policy(as_path(file, "file"))
    if simulator is not None:
        if not isinstance(simulator, planning_simulator.Simulator):
            raise TypeError(f"simulator is {simulator!r}: give a Simulator")
        check_policy(loaded, simulator)
    return _policy(loaded, given_simulator=simulator, file=Path(file), trust=trust)


def _policy(found: grid_policy.Policy, **others: Any) -> Policy:
    return Policy(**{each.name: getattr(found, each.name) for each in fields(grid_policy.Policy)}, **others)


@with_suggestions
def plan(
    env: str | planning_simulator.Simulator,
    operator: AnyOperator = "bellman",
    *,
    grid: int = 8,
    iterations: int = 1000,
    eval_every: int = 100,
    episodes: int = 100,
    max_episode_steps: int | None = None,
    gamma: float | None = None,
    eta: float = 0.1,
    samples: int = 1,
    noise: Literal["independent", "shared"] = "independent",
    interpolate: Literal["q", "v"] = "q",
    engine: Engine = "auto",
    seed: int = 0,
    out: str | Path | None = None,
    save: str | Path | None = None,
    callback: Callable[[Row], object] | None = None,
    progress: bool | None = None,
    command: str = "",
) -> Policy:
    """Plan on a grid from Q = 0, evaluate the greedy policy now and then, and return it.

    Parameters
    ----------
    env
        A `Simulator`, or its name: bicycle, mountain-car, pendulum, cart-pole, acrobot, with options as in `bicycle:fall=once`, or
        `path/to/file.py:name`.
    operator
        A string such as `al:0.9` or `path/to/file.py:name`, an `Operator`, or any function of a `Backup`.
    grid
        Points per axis.
    iterations
        Number of sweeps.
    eval_every
        Sweeps between evaluations. The policy is also evaluated after the last sweep.
    episodes
        Episodes per evaluation; 0 plays none.
    max_episode_steps
        Steps after which an episode is truncated; by default the simulator's own limit.
    gamma
        Discount; by default the simulator's own.
    eta
        Step size of a sweep, in (0, 1]: Q <- (1 - eta) Q + eta T'Q.
    samples
        Next states sampled per state-action pair and sweep, if the simulator has noise.
    noise
        `independent`: each pair has its own noise samples. `shared`: pairs that differ only in coordinates that no stochastic factor
        depends on use the same samples.
    interpolate
        Whether Q (`q`) or V (`v`) is interpolated between grid points.
    engine
        Library that computes sweeps and episodes: numpy (small plans), numba (CPU), jax, or auto, which chooses by the size of the plan.
    seed
        Seed of the random numbers.
    out
        Folder of the run, which also gets `policy.npz`. The same call continues a plan that was interrupted. By default nothing is
        written.
    save
        A .npz file to write the policy to.
    callback
        Receives each evaluation as a dictionary, as soon as it is there: `env`, `operator`, `seed`, `step`, `goal_frequency` and so on. An
        error that it raises stops the plan.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.
    command
        Recorded as the command that made the plan.

    Raises
    ------
    ValueError
        If the plan cannot be made like this. Nothing is written.
    RuntimeError
        If it failed, for example because Q diverges.
    KeyboardInterrupt
        After Ctrl-C, with a sentence that says what was saved.

    Examples
    --------
    >>> policy = plan("mountain-car", "consistent", grid=21, iterations=100, eta=0.5, eval_every=50, episodes=10)
    >>> policy.rows["step"].tolist()
    [50.0, 100.0]
    """
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is {callback!r}: give a function of one row")
    if not isinstance(env, (str, planning_simulator.Simulator)):
        raise TypeError(f"env is {env!r}: give a Simulator, or the name of one, such as mountain-car")
    # The experiment, and what writes runs, take longer to import than a saved policy needs.
    from actiongap.lab.experiment import make, try_operators
    from actiongap.lab.kinds.plan import Planning

    file = None if save is None else _policy_file(save)
    given = {name: value for name, value in locals().items() if name in CONFIG}
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
    planning = make("plan", plain)
    assert isinstance(planning, Planning)
    try_operators([planning])
    # The chosen engine is recorded, not `auto`: it determines the chunks, and the run can be repeated on another machine.
    choice = planning.engine_choice
    run = _Run(replace(planning, engine=choice.engine), callback, progress, command)
    policy = run.in_memory() if out is None else run.in_folder(as_path(out, "out"))
    policy = replace(policy, engine=choice, given_simulator=env if isinstance(env, planning_simulator.Simulator) else None, trust=True)
    if policy.folder is not None:
        policy.save(policy.folder / "policy.npz")
    if file is not None:
        policy.save(file)
    return policy


CONFIG = (
    "env",
    "operator",
    "grid",
    "iterations",
    "eval_every",
    "episodes",
    "max_episode_steps",
    "gamma",
    "eta",
    "samples",
    "noise",
    "interpolate",
    "engine",
    "seed",
)
"""Parameters of `plan` that are fields of the experiment `plan`."""


def plan_folder(env: str, operator: AnyOperator = "bellman", *, out: str | Path | None = None, **config: Any) -> Path:
    """Return where the command line writes a plan: `out/plan/NAME`, with the name of the run, or one of several in the folder `out`.

    Examples
    --------
    >>> plan_folder("mountain-car", "al:0.5", seed=3, engine="numba").as_posix()
    'out/plan/al-0.5_seed-3_c44d2b37'
    """
    from actiongap.lab.experiment import make, run_name
    from actiongap.lab.kinds.plan import Planning
    from actiongap.lab.runner import run_folder

    planning = make("plan", {"env": env, "operator": operator, **config})
    assert isinstance(planning, Planning)
    name = run_name(replace(planning, engine=planning.engine_choice.engine))
    return Path("out") / "plan" / name if out is None else run_folder(out, name)


def _policy_file(file: str | Path) -> Path:
    """Return the path of a policy, or raise ValueError if it cannot be one."""
    path = as_path(file, "file")
    if path.suffix != ".npz" or not os.path.isdir(path.parent):
        raise ValueError(f"{path}: a policy is saved to an .npz file in an existing folder: choose such a path")
    return check_writable(path)


class _Run:
    """A plan that is being made."""

    def __init__(self, planning: Any, callback: Callable[[Row], object] | None, progress: bool | None, command: str):
        self.planning, self.callback, self.progress, self.command = planning, callback, progress, command
        self.error: BaseException | None = None
        """What the callback raised."""

    def in_memory(self) -> Policy:
        """Make the plan without writing anything."""
        from actiongap.lab.kinds.plan import SweepTimes
        from actiongap.lab.runner import RunState, advance_batch, error_message

        times, rows, q = SweepTimes(), [], None
        with self._running(times) as (experiment, stop):
            try:
                for update in advance_batch([experiment], None, 0, save_every=math.inf, stop=stop):
                    if isinstance(update, RunState):
                        q = update.state["q"] if update.status == "done" else None
                        continue
                    found = [json.loads(line) for line in update.lines[0].splitlines()]
                    rows += found
                    self._pass_on(found)
            except Exception as error:
                raise PlanFailedError(error_message(error), _columns(rows)) from error
        if self.error is not None:
            raise self.error
        if q is None:
            raise KeyboardInterrupt("stopped, and nothing is kept: give out=DIR to be able to continue later")
        return self._policy(q, _columns(rows), None, times)

    def in_folder(self, folder: Path) -> Policy:
        """Make the plan as a run in a folder, or continue it."""
        from actiongap.lab.kinds.plan import SweepTimes
        from actiongap.lab.records import read_run
        from actiongap.lab.store import check_folder, read_status

        check_folder(folder)
        q = self._final_q(folder)
        if q is None:
            self._run(folder)
            q = self._final_q(folder)
        run, problems = read_run(folder)
        if run is None:
            raise ValueError(problems[0])
        if q is None:
            raise PlanFailedError(f"{read_status(folder).error} (earlier results are in {folder})", run.rows)
        return self._policy(q, run.rows, folder, SweepTimes(folder))

    def _final_q(self, folder: Path) -> NDArray[np.float32] | None:
        """Return the final Q of a finished plan; None if the plan is unfinished, or if its checkpoint cannot be read."""
        from actiongap.lab.checkpoint import UnreadableError, read_checkpoint
        from actiongap.lab.experiment import as_config, fingerprint_of, fingerprints
        from actiongap.lab.store import attempts, changed_files, is_done

        if not is_done(folder, self.planning):
            return None
        if (made := attempts(folder)) and (changed := changed_files(made[-1], fingerprints(self.planning))):
            remedy = "choose another --out, or delete that folder"
            raise ValueError(f"{changed} has changed since the plan in {folder} was made with it: {remedy}")
        own = fingerprint_of(type(self.planning), as_config(self.planning)["spec"])
        for file in (folder / "checkpoint").glob("*.npz"):
            try:
                found = read_checkpoint(file)
                # Old checkpoints do not know their run.
                if found.chunk == self.planning.chunks and found.run in ("", own):
                    return found.state["q"]
            except UnreadableError:
                raise
            except ValueError:
                continue
        return None

    def _run(self, folder: Path) -> None:
        """Run the rest of a plan. If interrupted, save it and raise KeyboardInterrupt."""
        from actiongap.lab.kinds.plan import SweepTimes
        from actiongap.lab.lock import BusyError
        from actiongap.lab.runner import SAVE_EVERY, Event, run_experiment
        from actiongap.lab.store import read_status

        times = SweepTimes(folder)

        def on_chunk(event: Event) -> None:
            times.write()
            self._pass_on(event.rows)

        with self._running(times) as (experiment, stop):
            options = {"command": self.command, "save_every": SAVE_EVERY, "stop": stop, "on_chunk": on_chunk}
            try:
                outcome = run_experiment(folder, experiment, **options)
            except BusyError:
                raise ValueError(f"another process is working on {folder}: wait for it to finish, or choose another --out") from None
        if self.error is not None:
            raise self.error
        if outcome == "stopped":
            done = f"{read_status(folder).steps} of {self.planning.iterations} iterations"
            again = "run the same command again" if self.command else "make the same call again"
            raise KeyboardInterrupt(f"stopped after {done}, saved in {folder}; {again} to resume")

    @contextlib.contextmanager
    def _running(self, times: Any) -> Any:
        """Yield the experiment, compiled, with a progress bar, and a function that says whether to stop after a chunk."""
        from actiongap.lab.runner import deferred_interrupt
        from actiongap.reporting.progress import PlanProgress

        def on_sweeps(sweeps: Any) -> None:
            times.add(sweeps)
            bar.update(sweeps)

        with PlanProgress(self.planning.iterations, self.progress) as bar:
            bar.show("compiling")
            self.planning.prepare()
            with deferred_interrupt(bar.stopping) as stopped:
                yield self.planning.with_progress(on_sweeps, bar.on_rollouts), lambda: stopped.is_set() or self.error is not None

    def _pass_on(self, rows: Any) -> None:
        """Pass rows on to the callback, until it raises an exception."""
        for row in rows:
            if self.callback is None or self.error is not None:
                return
            try:
                self.callback({"env": self.planning.env, "operator": self.planning.operator, "seed": self.planning.seed, **row})
            except BaseException as error:  # KeyboardInterrupt too: the run is saved first
                self.error = error

    def _policy(self, q: NDArray[np.float32], rows: Mapping[str, NDArray[np.float64]], folder: Path | None, times: Any) -> Policy:
        found = self.planning.policy(q, residual=float(rows["residual"][-1]))
        return _policy(found, rows=rows, folder=folder, seconds_per_sweep=times.mean())


def _columns(rows: list[Row]) -> dict[str, NDArray[np.float64]]:
    """Return rows as columns; None is NaN."""
    names = rows[0] if rows else ()
    return {name: np.array([math.nan if row[name] is None else row[name] for row in rows], float) for name in names}


class PlanFailedError(RuntimeError):
    """A plan failed. Its evaluations before that are in `rows`."""

    def __init__(self, message: str, rows: Mapping[str, NDArray[np.float64]]):
        super().__init__(message)
        self.rows: Mapping[str, NDArray[np.float64]] = rows
