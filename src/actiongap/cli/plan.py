"""`plan`: plan on a grid with a simulator and save the policy. It is a run of the laboratory, so it goes on where it was interrupted."""

from __future__ import annotations

import contextlib
import json as jsonlib
import math
import shlex
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from actiongap.cli.common import Bar, File, Flag, Number, Whole, command_line, print_json

if TYPE_CHECKING:
    from numpy import ndarray

    from actiongap.lab.kinds.plan import Planning
    from actiongap.planning.plan import SweepProgress

SHOWN = 20
"""Evaluations shown at the end."""
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
"""What of a row is shown, and what it is called there."""
FOUND = ("fall_frequency", "goal_frequency", "mean_steps", "mean_return", "seconds_per_sweep", "residual")
"""What programs are told of the last row."""


def plan(
    env: Annotated[Positional[str], arg(metavar="ENV")],
    operator: str = "bellman",
    grid: int = 8,
    iterations: int = 1000,
    eval_every: int = 100,
    episodes: int = 100,
    max_episode_steps: Whole = None,
    gamma: Number = None,
    eta: float = 0.1,
    samples: int = 1,
    noise: Literal["independent", "shared"] = "independent",
    interpolate: Literal["q", "v"] = "q",
    engine: Literal["auto", "numba", "jax"] = "auto",
    seed: int = 0,
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None,
    save: File = None,
    json: Flag = False,
) -> int:
    """Plan on a grid with a simulator, try the policy out, and save it. Interrupted, the same command goes on.

    Args:
        env: bicycle, mountain-car, pendulum, cart-pole, acrobot, any with settings as in bicycle:fall=once, or path/to/file.py:name.
        operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, or path/to/file.py:name.
        grid: Points an axis.
        iterations: How many sweeps.
        eval_every: Sweeps between evaluations; the last sweep is always followed by one.
        episodes: How many episodes an evaluation plays.
        max_episode_steps: Steps after which an episode is truncated; the simulator's own limit if not given.
        gamma: The discount, in [0, 1); the simulator's own if not given.
        eta: How far a sweep moves Q to the operator's value, in (0, 1].
        samples: How many next states are drawn for each pair and sweep, where noise is drawn.
        noise: Whether each pair draws its own noise, or shares it with pairs that differ only where no noisy step looks.
        interpolate: Whether Q is interpolated between grid points, or V.
        engine: Where to sweep: numba on the CPU, jax, or auto, which is jax where JAX sees an accelerator.
        seed: Which random numbers to use.
        out: The folder of the run; out/plan/NAME if not given.
        save: The policy file to write; policy.npz in the folder of the run if not given.
        json: Print one JSON object.
    """
    from actiongap.lab.experiment import make, run_name
    from actiongap.lab.kinds.plan import Planning
    from actiongap.lab.records import read_run
    from actiongap.lab.store import check_folder, read_status
    from actiongap.planning.plan import engine_of
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
    # What is found here is written down, so that the run is cut into chunks that suit it and can be repeated elsewhere.
    fields["engine"] = engine_of(engine)
    planning = make("plan", {"env": env, **fields})
    assert isinstance(planning, Planning)
    folder = out or Path("out") / "plan" / run_name(planning)
    if save is not None and (save.suffix != ".npz" or not save.parent.is_dir()):
        raise ValueError(f"{save}: --save takes the name of a .npz file in a folder that exists")
    check_folder(folder)
    q = _finished(folder, planning)
    if q is None:
        _work(folder, planning)
        q = _finished(folder, planning)
    run, problems = read_run(folder)
    if run is None:
        raise ValueError(problems[0])
    if not json:
        _show_rows(run.rows)
    if q is None:
        print(f"actiongap: {read_status(folder).error} (what came before is in {folder})", file=sys.stderr)
        return 1
    last = {name: float(values[-1]) for name, values in run.rows.items() if math.isfinite(values[-1])} | Times(folder).mean()
    policy = save or folder / "policy.npz"
    save_policy(policy, planning.policy(q, residual=last.get("residual")))
    if json:
        asked = {"env": env, "operator": operator, "grid": grid, "iterations": iterations}
        found = {name: last[name] for name in FOUND if name in last}
        print_json({**asked, **found, "policy": str(policy), "run": str(folder)})
    else:
        _show_end(last, policy)
    return 0


def _finished(folder: Path, planning: Planning) -> ndarray | None:
    """The last table of a plan that is done; None if it is not, or if the table cannot be read any more."""
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


def _work(folder: Path, planning: Planning) -> None:
    """Do what is left of a plan, with a progress bar. KeyboardInterrupt, once all is saved, if somebody interrupts."""
    from actiongap.lab.lock import BusyError
    from actiongap.lab.runner import SAVE_EVERY, deferred_interrupt, run_experiment
    from actiongap.lab.store import read_status

    times, command = Times(folder), command_line()

    def look(pace: SweepProgress) -> None:
        times.add(pace)
        progress.look(pace)

    with PlanProgress(planning.iterations) as progress:
        progress.say("compiling")
        planning.prepare()
        with deferred_interrupt(progress.stopping) as stop:
            watched = planning.watched(look, progress.rolling)
            try:
                outcome = run_experiment(
                    folder, watched, command=command, save_every=SAVE_EVERY, stop=stop.is_set, on_chunk=lambda _: times.write()
                )
            except BusyError:
                raise ValueError(f"another process works on {folder}: wait for it, or choose another --out") from None
    if outcome == "stopped":
        done = f"{read_status(folder).steps} of {planning.iterations} iterations"
        raise KeyboardInterrupt(f"stopped after {done}, which are saved in {folder}; the same command goes on")


class Times:
    """How long sweeps took, over all attempts. Kept beside the rows, which are the same however long they took."""

    def __init__(self, folder: Path):
        from actiongap.lab.validation import read_record

        self.file, self.sweeps, self.seconds = folder / "times.json", 0, 0.0
        # Times that cannot be read are lost, and nothing else is.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found = read_record(self.file)
            self.sweeps, self.seconds = int(found["sweeps"]), float(found["seconds"])

    def add(self, pace: SweepProgress) -> None:
        """Take note of some sweeps."""
        self.sweeps, self.seconds = self.sweeps + pace.sweeps, self.seconds + pace.seconds

    def write(self) -> None:
        """Put them on the disk."""
        from actiongap._files import write_text
        from actiongap.lab.experiment import FORMAT, VERSION

        write_text(self.file, jsonlib.dumps({"format": FORMAT, "version": VERSION, "sweeps": self.sweeps, "seconds": self.seconds}))

    def mean(self) -> dict[str, float]:
        """Seconds a sweep, where that is known."""
        return {"seconds_per_sweep": self.seconds / self.sweeps} if self.sweeps > 0 else {}


class PlanProgress(Bar):
    """How far sweeps are, how fast they go, and how long it may still take."""

    def __init__(self, iterations: int):
        self.iterations, self.stop = iterations, ""
        self.first: tuple[float, int] | None = None

    def look(self, pace: SweepProgress) -> None:
        """Take note of some sweeps."""
        text = f"sweep {pace.done} of {self.iterations}: residual {pace.residual:.2e}, {1e3 * pace.seconds / pace.sweeps:.3g} ms a sweep"
        began, before = self.first = self.first or (time.monotonic(), pace.done)
        if pace.done > before:
            left = (time.monotonic() - began) / (pace.done - before) * (self.iterations - pace.done)
            text += f", {timedelta(seconds=round(left))} left"
        self.say(text, pace.done / self.iterations)

    def rolling(self, tables: int) -> None:
        """Say that tables are being tried."""
        if tables:
            self.say(f"rolling out {tables} {'policies' if tables > 1 else 'policy'}")

    def stopping(self) -> None:
        """Say that it will stop."""
        self.stop = " (stopping once this part is saved; Ctrl-C again gives it up)"
        self.say("interrupted")

    def say(self, text: str, fraction: float | None = None) -> None:
        """Show a text, and how much is done where that is known."""
        self.progress.update(self.task, completed=fraction, description=text + self.stop)


def _show_rows(rows: Mapping[str, ndarray]) -> None:
    """Print the last evaluations."""
    from rich.table import Table

    from actiongap.report.terminal import output_console

    names = [name for name in HEADINGS if any(math.isfinite(value) for value in rows[name])]
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(HEADINGS[name], justify="right")
    for numbers in list(zip(*(rows[name] for name in names), strict=True))[-SHOWN:]:
        table.add_row(*(f"{number:.4g}" if name != "step" else str(round(number)) for name, number in zip(names, numbers, strict=True)))
    if table.row_count:
        output_console().print(table)


def _show_end(last: Mapping[str, float], policy: Path) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=False)
    if "seconds_per_sweep" in last:
        console.print(f"{1e3 * last['seconds_per_sweep']:.3g} ms a sweep.")
    console.print(f"The policy is in {policy}. See it with: actiongap watch {shlex.quote(str(policy))}")
