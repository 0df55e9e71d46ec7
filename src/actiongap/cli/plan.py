"""`plan`: plan on a grid with a simulator and save the policy. A plan is a run of `actiongap.lab`, so the same command resumes it."""

from __future__ import annotations

import contextlib
import json as jsonlib
import math
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from actiongap.cli.common import File, Flag, Integer, Number, command_line, print_json
from actiongap.reporting.progress import Bar

if TYPE_CHECKING:
    from numpy import ndarray

    from actiongap.lab.kinds.plan import Planning
    from actiongap.planning.plan import SweepProgress

MAX_ROWS_SHOWN = 20
"""Number of evaluations printed at the end."""
HEADINGS = {
    "step": "iterations",
    "goal_frequency": "goal",
    "fall_frequency": "fall",
    "mean_steps": "mean steps",
    "mean_return": "mean return",
    "gap": "gap",
    "value": "V",
    "residual": "residual",
}
"""Columns that are printed, with their headings."""
JSON_COLUMNS = ("fall_frequency", "goal_frequency", "mean_steps", "mean_return", "seconds_per_sweep", "residual")
"""Columns of the last row in the JSON output."""


def plan(
    env: Annotated[Positional[str], arg(metavar="ENV")],
    operator: str = "bellman",
    grid: int = 8,
    iterations: int = 1000,
    eval_every: int = 100,
    episodes: int = 100,
    max_episode_steps: Integer = None,
    gamma: Number = None,
    eta: float = 0.1,
    samples: int = 1,
    noise: Literal["independent", "shared"] = "independent",
    interpolate: Literal["q", "v"] = "q",
    engine: Literal["auto", "numpy", "numba", "jax"] = "auto",
    seed: int = 0,
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None,
    save: File = None,
    json: Flag = False,
) -> int:
    """Plan on a grid with a simulator, evaluate the greedy policy, and save it. Run the same command again to resume.

    Args:
        env: bicycle, mountain-car, pendulum, cart-pole, acrobot, any of them with parameters (bicycle:fall=once), or path/to/file.py:name.
        operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, or path/to/file.py:name.
        grid: Grid points per axis.
        iterations: Number of sweeps.
        eval_every: Sweeps between evaluations. The policy is also evaluated after the last sweep.
        episodes: Episodes per evaluation.
        max_episode_steps: Steps after which an episode is truncated; by default the simulator's own limit.
        gamma: Discount factor, in [0, 1); by default the simulator's own.
        eta: Step size of a sweep, in (0, 1]: Q <- (1 - eta) Q + eta T'Q.
        samples: Next states sampled per state-action pair and sweep, if the simulator has noise.
        noise: independent: each state-action pair has its own noise samples. shared: pairs that differ only in coordinates that no
            stochastic factor depends on use the same samples.
        interpolate: Whether Q or V is interpolated between grid points.
        engine: Library that computes sweeps and episodes: numpy (small plans), numba (CPU), jax, or auto, which chooses by the size of the
            plan and takes jax for large ones if JAX has an accelerator.
        seed: Seed of the random numbers.
        out: Folder of the run; by default out/plan/NAME.
        save: Policy file to write; by default policy.npz in the folder of the run.
        json: Print one JSON object.
    """
    from actiongap.lab.experiment import make, run_name
    from actiongap.lab.kinds.plan import Planning
    from actiongap.lab.records import read_run
    from actiongap.lab.store import check_folder, read_status
    from actiongap.planning.policy import save_policy

    fields = {"operator": operator, "grid": grid, "iterations": iterations, "eval_every": eval_every, "episodes": episodes}
    fields |= {
        "max_episode_steps": max_episode_steps,
        "gamma": gamma,
        "eta": eta,
        "samples": samples,
        "noise": noise,
        "interpolate": interpolate,
        "seed": seed,
    }
    planning = make("plan", {"env": env, **fields, "engine": engine})
    assert isinstance(planning, Planning)
    # The chosen engine is recorded, not `auto`: it determines the chunks, and the run can be repeated on another machine.
    choice = planning.engine_choice
    planning = replace(planning, engine=choice.engine)
    folder = out or Path("out") / "plan" / run_name(planning)
    if save is not None and (save.suffix != ".npz" or not save.parent.is_dir()):
        raise ValueError(f"{save}: --save must be a .npz file in an existing folder")
    check_folder(folder)
    q = _final_q(folder, planning)
    if q is None:
        _run(folder, planning)
        q = _final_q(folder, planning)
    run, problems = read_run(folder)
    if run is None:
        raise ValueError(problems[0])
    if not json:
        _show_rows(run.rows)
    if q is None:
        print(f"actiongap: {read_status(folder).error} (earlier results are in {folder})", file=sys.stderr)
        return 1
    last = {name: float(values[-1]) for name, values in run.rows.items() if math.isfinite(values[-1])} | SweepTimes(folder).mean()
    policy = save or folder / "policy.npz"
    save_policy(policy, planning.policy(q, residual=last.get("residual")))
    if json:
        asked = {"env": env, "operator": operator, "grid": grid, "iterations": iterations}
        found = {name: last[name] for name in JSON_COLUMNS if name in last}
        print_json({**asked, **found, "policy": str(policy), "run": str(folder)})
    else:
        if engine == "auto":
            print(choice.reason)
        _show_end(last, policy)
    return 0


def _final_q(folder: Path, planning: Planning) -> ndarray | None:
    """Return the final Q of a finished plan; None if the plan is unfinished, or if its checkpoint cannot be read."""
    from actiongap.lab.checkpoint import read_checkpoint
    from actiongap.lab.experiment import fingerprints
    from actiongap.lab.store import attempts, changed_files, is_done

    if not is_done(folder, planning):
        return None
    if (made := attempts(folder)) and (changed := changed_files(made[-1], fingerprints(planning))):
        raise ValueError(f"{changed} has changed since the plan in {folder} was made with it: choose another --out, or delete that folder")
    for file in (folder / "checkpoint").glob("*.npz"):
        with contextlib.suppress(ValueError):
            found = read_checkpoint(file)
            if found.chunk == planning.chunks:
                return found.state["q"]
    return None


def _run(folder: Path, planning: Planning) -> None:
    """Run the rest of a plan with a progress bar. If interrupted, save it and raise KeyboardInterrupt."""
    from actiongap.lab.lock import BusyError
    from actiongap.lab.runner import SAVE_EVERY, deferred_interrupt, run_experiment
    from actiongap.lab.store import read_status

    times, command = SweepTimes(folder), command_line()

    def on_sweeps(sweeps: SweepProgress) -> None:
        times.add(sweeps)
        progress.update(sweeps)

    with PlanProgress(planning.iterations) as progress:
        progress.show("compiling")
        planning.prepare()
        with deferred_interrupt(progress.stopping) as stop:
            experiment = planning.with_progress(on_sweeps, progress.on_rollouts)
            try:
                outcome = run_experiment(
                    folder, experiment, command=command, save_every=SAVE_EVERY, stop=stop.is_set, on_chunk=lambda _: times.write()
                )
            except BusyError:
                raise ValueError(f"another process is working on {folder}: wait for it to finish, or choose another --out") from None
    if outcome == "stopped":
        done = f"{read_status(folder).steps} of {planning.iterations} iterations"
        raise KeyboardInterrupt(f"stopped after {done}, saved in {folder}; run the same command again to resume")


class SweepTimes:
    """Time spent in sweeps, over all attempts. It is stored outside the rows, which are deterministic."""

    def __init__(self, folder: Path):
        from actiongap.lab.validation import read_record

        self.file: Path = folder / "times.json"
        self.sweeps: int = 0
        self.seconds: float = 0.0
        # If the file is damaged, timing starts again from zero.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found = read_record(self.file)
            self.sweeps, self.seconds = int(found["sweeps"]), float(found["seconds"])

    def add(self, sweeps: SweepProgress) -> None:
        """Add the time of some sweeps."""
        self.sweeps, self.seconds = self.sweeps + sweeps.sweeps, self.seconds + sweeps.seconds

    def write(self) -> None:
        """Write the times to disk."""
        from actiongap._files import write_text
        from actiongap.lab.experiment import FORMAT, VERSION

        write_text(self.file, jsonlib.dumps({"format": FORMAT, "version": VERSION, "sweeps": self.sweeps, "seconds": self.seconds}))

    def mean(self) -> dict[str, float]:
        """Return the mean seconds per sweep under its column name; empty if no sweep was timed."""
        return {"seconds_per_sweep": self.seconds / self.sweeps} if self.sweeps > 0 else {}


class PlanProgress(Bar):
    """A progress bar of the sweeps, with time per sweep and time left."""

    def __init__(self, iterations: int):
        self.iterations: int = iterations
        self.note: str = ""
        self.first: tuple[float, int] | None = None

    def update(self, sweeps: SweepProgress) -> None:
        """Show the progress of the sweeps."""
        milliseconds = 1e3 * sweeps.seconds / sweeps.sweeps
        text = f"sweep {sweeps.done} of {self.iterations}: residual {sweeps.residual:.2e}, {milliseconds:.3g} ms per sweep"
        started, first = self.first = self.first or (time.monotonic(), sweeps.done)
        if sweeps.done > first:
            left = (time.monotonic() - started) / (sweeps.done - first) * (self.iterations - sweeps.done)
            text += f", {timedelta(seconds=round(left))} left"
        self.show(text, sweeps.done / self.iterations)

    def on_rollouts(self, policies: int) -> None:
        """Show that policies are being evaluated."""
        if policies:
            self.show(f"evaluating {policies} {'policies' if policies > 1 else 'policy'}")

    def stopping(self) -> None:
        """Show that the run stops after its current chunk."""
        self.note = " (stopping after this chunk is saved; press Ctrl-C again to discard the chunk)"
        self.show("interrupted")

    def show(self, text: str, fraction: float | None = None) -> None:
        """Show a message, and the fraction done if known."""
        self.progress.update(self.task, completed=fraction, description=text + self.note)


def _show_rows(rows: Mapping[str, ndarray]) -> None:
    """Print the last evaluations as a table."""
    from rich.table import Table

    from actiongap.reporting.terminal import output_console

    names = [name for name in HEADINGS if any(math.isfinite(value) for value in rows[name])]
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(HEADINGS[name], justify="right")
    for numbers in list(zip(*(rows[name] for name in names), strict=True))[-MAX_ROWS_SHOWN:]:
        table.add_row(*(f"{number:.4g}" if name != "step" else str(round(number)) for name, number in zip(names, numbers, strict=True)))
    if table.row_count:
        output_console().print(table)


def _show_end(last: Mapping[str, float], policy: Path) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=False)
    if "seconds_per_sweep" in last:
        console.print(f"{1e3 * last['seconds_per_sweep']:.3g} ms per sweep.")
    console.print(f"Wrote the policy to {policy}. Watch it with: actiongap watch {shlex.quote(str(policy))}")
