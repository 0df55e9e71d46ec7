"""Executors: run a study in this process, in worker processes, or on a Ray cluster.

`run_study` chooses one. All of them use the loop in `actiongap.lab.runner`: for the same batches on the same kind of device, the rows are
identical byte for byte.

- `run_inline` runs one batch after another in this process.
- `actiongap.lab.processes.run_in_processes` keeps a pool of worker processes.
- `actiongap.lab.ray.run_on_ray` computes on the nodes of a cluster and writes here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from actiongap.lab.batches import VectorizedExperiment, fits_here, split_evenly
from actiongap.lab.experiment import is_registered
from actiongap.lab.processes import default_workers, run_in_processes
from actiongap.lab.queue import StudyQueue
from actiongap.lab.runner import (
    SAVE_EVERY,
    Event,
    OnEvent,
    StudyOutcome,
    changed_source,
    check_out,
    deferred_interrupt,
    open_study,
    run_members,
    unfinished_runs,
)
from actiongap.lab.study import Study

Executor = Literal["inline", "processes", "ray"]
BATCH_SIZE = 160
"""Largest batch of the inline executor, unless another size is given."""


def run_study(
    study: Study,
    out: str | Path,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    ray: str | None = None,
    batch_size: int | None = None,
    command: str = "",
    save_every: float = SAVE_EVERY,
    stop: Callable[[], bool] = lambda: False,
    on_event: OnEvent = lambda event: None,
) -> StudyOutcome:
    """Run the unfinished runs of a study. Interrupted runs continue from their last checkpoint.

    Parameters
    ----------
    study
        The runs.
    out
        The folder to write to.
    executor
        "inline", "processes" or "ray". The default is the one that `choose_executor` returns.
    workers
        Number of worker processes; by default as many as cores and accelerators allow, and at most one per run.
    ray
        Address of a Ray cluster: "auto", or HOST:PORT of its head.
    batch_size
        Largest number of runs that are advanced as one batch, if their kind is vectorized. By default 160 inline, and 1 otherwise.
    command
        Recorded as the command that ran the study.
    save_every
        Minimum seconds between checkpoints, which are written between chunks only.
    stop
        Called between chunks: if it returns True, the runs are saved and the study ends. On Ray, runs stay at their last checkpoint.
    on_event
        Receives every `Event`.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> study = Study("cakes", grid("q-learning", env="cake", steps=100, rows=2, seed=range(2)))
    >>> len(run_study(study, tempfile.mkdtemp(), executor="inline").done)
    2
    """
    check_study(study, out)
    chosen = choose_executor(study, executor, workers, ray)
    if not unfinished_runs(study, out):
        open_study(study, out, command)
        return StudyOutcome()
    shared: dict[str, Any] = {"command": command, "save_every": save_every, "stop": stop, "on_event": on_event}
    if chosen == "inline":
        size = (batch_size or BATCH_SIZE) if is_vectorized(study) else None
        return run_inline(study, out, batch_size=size, **shared)
    size = batch_size if batch_size and is_vectorized(study) else None
    if chosen == "processes":
        return run_in_processes(study, out, workers=workers or default_workers(study), batch_size=size, **shared)
    from actiongap.lab.ray import run_on_ray

    return run_on_ray(study, out, address=ray or "auto", batch_size=size, **shared)


def check_study(study: Study, out: str | Path) -> None:
    """Raise ValueError if a study cannot continue in a folder: it is not ours, or the user's code has changed since."""
    check_out(study, out)
    if changed := changed_source(study, out):
        raise ValueError(f"{changed} has changed since runs in {out} were made with it: choose another --out, or delete that folder")


def choose_executor(study: Study, executor: Executor | None = None, workers: int | None = None, ray: str | None = None) -> Executor:
    """Return the executor of a study: Ray if an address is given, inline for vectorized kinds unless workers are given, else processes.

    Examples
    --------
    >>> from actiongap.lab.study import grid
    >>> choose_executor(Study("cakes", grid("q-learning", env="cake")))
    'processes'
    """
    if executor not in (None, "inline", "processes", "ray"):
        raise ValueError(f"executor is {executor!r}: choose inline, processes or ray")
    if executor == "inline" and workers is not None:
        raise ValueError(f"executor is 'inline' and workers is {workers}: workers are processes, so leave one of them out")
    if executor in ("inline", "processes") and ray is not None:
        raise ValueError(f"executor is {executor!r} and ray is {ray!r}: leave one of them out")
    if ray is not None:
        check_address(ray)
    if any(map(is_registered, study.runs)):
        if executor in ("processes", "ray") or workers or ray:
            raise ValueError(
                f"{study.name}: other processes cannot find an operator or simulator that is defined here (a lambda, or in a notebook or "
                "the main program): put it into a module, or run with executor='inline'"
            )
        return "inline"
    if executor is not None:
        return executor
    if ray is not None:
        return "ray"
    return "inline" if workers is None and is_vectorized(study) else "processes"


def check_address(address: str) -> None:
    """Raise ValueError unless a string can be the address of a Ray cluster. Nothing is connected.

    Examples
    --------
    >>> check_address("auto"), check_address("10.0.0.1:6379")
    (None, None)
    >>> check_address("nonsense://x")
    Traceback (most recent call last):
    ValueError: 'nonsense://x' is not the address of a Ray cluster: give auto, or HOST:PORT of its head
    """
    found = re.fullmatch(r"(?:ray://)?(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", address)
    if address not in ("auto", "local") and not (found and 0 < int(found[1]) < 2**16):
        raise ValueError(f"{address!r} is not the address of a Ray cluster: give auto, or HOST:PORT of its head")


def is_vectorized(study: Study) -> bool:
    """Whether all runs of a study can be batched."""
    return all(isinstance(run, VectorizedExperiment) for run in study.runs)


def run_inline(
    study: Study,
    out: str | Path,
    *,
    batch_size: int | None = None,
    command: str = "",
    save_every: float = SAVE_EVERY,
    stop: Callable[[], bool] = lambda: False,
    on_event: OnEvent = lambda event: None,
) -> StudyOutcome:
    """Run the unfinished runs of a study in this process, batch by batch. Ctrl-C saves everything, then raises KeyboardInterrupt.

    Batches have at most `batch_size` runs, and no more than fit in memory; None runs one at a time. Runs that another process holds are
    reported in `busy`.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> run_inline(Study("cakes", grid("q-learning", env="cake")), tempfile.mkdtemp(), batch_size=2)
    Traceback (most recent call last):
    ValueError: bellman_seed-0_1c0199f8 is of a kind that cannot be batched: leave batch_size out
    """
    folder = open_study(study, out, command)
    todo = StudyQueue(study, folder, on_event, batch_size)

    def report(event: Event) -> None:
        if event.kind == "busy":
            todo.outcome.busy.append(event.run)
        todo.report(event)

    with deferred_interrupt(lambda: on_event(Event("stopping"))) as interrupted:

        def stopped() -> bool:
            return interrupted.is_set() or stop()

        while todo.waiting and not stopped():
            members = todo.waiting.popleft()
            # Checked before every batch: earlier batches may have left less memory.
            if len(members) > (size := fits_here(members[0][1])):
                todo.waiting.extendleft(reversed(split_evenly(members, size)))
                continue
            ahead = run_members(members, folder, command=command, save_every=save_every, stop=stopped, on_event=report)
            if ahead:
                todo.waiting.appendleft(ahead)
        if interrupted.is_set():
            raise KeyboardInterrupt
    return todo.outcome
