"""Run a study: estimate its cost, check the free disk space, execute the unfinished runs, and show progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from actiongap._files import format_bytes
from actiongap.lab.batches import batch_runs
from actiongap.lab.cost import Plan, check_disk_space
from actiongap.lab.cost import plan as plan_study
from actiongap.lab.executors import BATCH_SIZE, check_study, choose_executor, run_study
from actiongap.lab.experiment import Experiment
from actiongap.lab.processes import default_workers, worker_variables
from actiongap.lab.runner import SAVE_EVERY, Event, StudyOutcome, unfinished_runs
from actiongap.lab.study import Study
from actiongap.reporting.groups import several
from actiongap.reporting.progress import StepProgress
from actiongap.reporting.terminal import LiveTable, duration

PROBE_SECONDS = 0.2
"""Seconds of a trial run before a study starts, to estimate its cost."""


def estimate_cost(
    study: Study,
    out: str | Path,
    *,
    workers: int | None = None,
    elsewhere: bool = False,
    rates: Sequence[str | Path] = (),
    probe_seconds: float = 1.0,
    progress: bool | None = None,
) -> Plan:
    """Estimate the cost of the unfinished runs of a study from measured rates. Runs of unknown speed are timed by a short trial run.

    Parameters
    ----------
    study
        The runs.
    out
        The folder of the study; its finished runs cost nothing.
    workers
        Number of worker processes; by default as many as this machine allows.
    elsewhere
        Whether the study runs on other machines, so that local cores and accelerators do not limit it.
    rates
        Folders of earlier studies whose speed is known.
    probe_seconds
        Seconds of the trial run of a run of unknown speed; 0 disables trial runs.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> study = Study("cakes", grid("q-learning", env="cake", steps=100, rows=2, seed=range(4)))
    >>> estimate_cost(study, tempfile.mkdtemp(), workers=2, probe_seconds=0.01).runs
    4
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}: it must be at least 1")
    count = workers or (1 if elsewhere else default_workers(study))
    if not elsewhere:
        worker_variables(study, count - 1)  # raises if there are more workers than accelerators allow
    with StepProgress("estimating the cost", progress) as bar:
        bar("trial runs", 0.0)
        return plan_study(study, out, workers=count, rates=rates, probe_seconds=probe_seconds)


def run_with_progress(
    study: Study,
    out: str | Path,
    *,
    workers: int | None = None,
    ray: str | None = None,
    max_batch_size: int | None = None,
    save_every: float = SAVE_EVERY,
    rates: Sequence[str | Path] = (),
    measure: bool = True,
    command: str = "",
    callback: Callable[[dict[str, Any]], object] | None = None,
    progress: bool | None = None,
) -> StudyOutcome:
    """Run the unfinished runs of a study, and show progress in a live table. Ctrl-C saves all runs.

    Parameters
    ----------
    study
        The runs.
    out
        The folder to write to.
    workers, ray, save_every, command
        As for `actiongap.lab.executors.run_study`.
    max_batch_size
        Maximum number of runs that are advanced as one batch.
    rates
        Folders of earlier studies, from which the time is estimated.
    measure
        Whether to time runs of unknown speed with a short trial run.
    callback
        Receives each new row as a dictionary, with the run, its env, operator and seed. An error that it raises stops the study.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> study = Study("cakes", grid("q-learning", env="cake", steps=100, rows=2, seed=range(2)))
    >>> len(run_with_progress(study, tempfile.mkdtemp(), workers=1, measure=False).done)
    2
    """
    if max_batch_size is not None and max_batch_size < 1:
        raise ValueError(f"max_batch_size is {max_batch_size}: it must be at least 1")
    if not save_every >= 0:
        raise ValueError(f"save_every is {save_every}: it must be a number of seconds, 0 or more")
    check_study(study, out)
    todo = unfinished_runs(study, out)
    # Finished runs, possibly from a machine with accelerators, need no resources of this one.
    if not todo:
        if progress:
            say = Console(stderr=True).print
            say(f"{study.name}: all {len(study.runs)} runs are done already.", highlight=False, markup=False, soft_wrap=True)
        return run_study(study, out, command=command)
    probe_seconds = PROBE_SECONDS if measure else 0.0
    elsewhere = ray is not None
    plan = estimate_cost(study, out, workers=workers, elsewhere=elsewhere, rates=rates, probe_seconds=probe_seconds, progress=progress)
    check_disk_space(plan, out)
    executor = choose_executor(study, workers=workers, ray=ray)
    at_once = plan.workers if executor != "inline" else _largest_batch(todo, max_batch_size)
    options = {
        "workers": plan.workers if executor == "processes" else None,
        "ray": ray,
        "batch_size": max_batch_size,
        "command": command,
        "save_every": save_every,
    }
    rows = _RowCallback(todo, callback)
    try:
        with LiveTable(todo, plan.done, title=_announcement(study, plan, at_once, elsewhere), progress=progress) as table:

            def on_event(event: Event) -> None:
                table(event)
                rows(event)

            outcome = run_study(study, out, executor=executor, **options, on_event=on_event)
            if outcome.busy:
                busy, remedy = several(len(outcome.busy), "run"), "run the same command again when they have finished"
                table.say(f"note: other processes are working on {busy} of this study: {remedy}")
    except KeyboardInterrupt:
        if rows.error is not None:
            raise rows.error from None
        rest = len(unfinished_runs(study, out))
        again = "run the same command again" if command else "make the same call again"
        raise KeyboardInterrupt(f"stopped: {rest} of {len(study.runs)} runs are unfinished; {again} to resume") from None
    if outcome.stopped:
        raise ValueError(f"stopped, with all finished work saved: {outcome.stopped}")
    return outcome


class _RowCallback:
    """Passes the rows of events on to a callback. An error of the callback is kept, and interrupts the study."""

    def __init__(self, runs: Mapping[str, Experiment], callback: Callable[[dict[str, Any]], object] | None):
        self.runs, self.callback = runs, callback
        self.error: Exception | None = None

    def __call__(self, event: Event) -> None:
        if self.callback is None:
            return
        for row in event.rows:
            run = self.runs[event.run]
            try:
                self.callback({"run": event.run, "env": run.task, "operator": run.agent, "seed": run.seed, **row})
            except Exception as error:
                # An error would count as a failure of the run.
                self.error = error
                raise KeyboardInterrupt from error


def _largest_batch(todo: dict[str, Experiment], max_batch_size: int | None) -> int:
    return max(len(batch) for batch in batch_runs(todo, max_batch_size or BATCH_SIZE))


def _announcement(study: Study, plan: Plan, at_once: int, cluster: bool) -> str:
    todo = plan.runs - plan.done
    done = f" ({plan.done} done already)" if plan.done else ""
    parallel = "" if cluster else f"{at_once} at once"
    if not plan.measured:
        return f"{study.name}: {several(todo, 'run')} to do{done}{', ' * bool(parallel)}{parallel}"
    time = f"{_about(plan.work)} of work" if cluster else f"{parallel}, {_about(plan.wall)}"
    disk = f"about {format_bytes(plan.disk)} of disk ({format_bytes(plan.free)} free)"
    return f"{study.name}: {several(todo, 'run')} to do{done}: {time}, {disk}"


def _about(seconds: float) -> str:
    return f"{'about ' * (seconds >= 1)}{duration(seconds)}"
