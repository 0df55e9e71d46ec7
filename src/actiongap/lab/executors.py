"""Executors: run a study in this process, in worker processes, or on a Ray cluster.

`run_study` chooses one. All of them use the loop in `actiongap.lab.runner`, so their records are identical byte for byte.

- `run_inline` runs one batch after another in this process.
- `run_in_processes` keeps a pool of worker processes (`python -m actiongap.lab.worker`). The pool assigns batches and listens; the workers
  lock and write. A worker that dies is replaced, and its runs continue from their last checkpoint. If the pool dies, the input of its
  workers ends, so they save and exit.
- `actiongap.lab.ray.run_on_ray` computes on the nodes of a cluster and writes here.

Several processes may run the same study, on one machine or on several that share a file system: a run is executed by the one that locks it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Literal

from actiongap._files import make_directory
from actiongap._system import cores
from actiongap.lab.batches import VectorizedExperiment, batch_runs, fits_here, split_evenly
from actiongap.lab.experiment import Experiment, as_config
from actiongap.lab.runner import (
    SAVE_EVERY,
    Event,
    Members,
    OnEvent,
    StudyOutcome,
    changed_source,
    check_out,
    deferred_interrupt,
    open_study,
    run_folder,
    run_members,
    unfinished_runs,
)
from actiongap.lab.store import is_done
from actiongap.lab.study import Study

Executor = Literal["inline", "processes", "ray"]
BATCH_SIZE = 160
"""Largest batch of the inline executor, unless another size is given."""
RETRIES = 3
"""How many times a run is retried after its worker died without completing another chunk."""
RETRY_AFTER = 1.0
"""Seconds until a run that another process holds is tried again."""


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
    on_event: OnEvent = lambda event: None,
) -> StudyOutcome:
    """Run what is left of a study. Runs that are done are not repeated; interrupted runs continue from their last checkpoint.

    Parameters
    ----------
    study
        The runs.
    out
        The folder to write to.
    executor
        "inline", "processes" or "ray". The default is the one that `choose_executor` returns.
    workers
        Number of worker processes; by default one per core, or per share of an accelerator.
    ray
        Address of a Ray cluster: "auto", or HOST:PORT of its head.
    batch_size
        Largest number of runs that are advanced as one batch, if their kind is vectorised. By default 160 inline, and 1 elsewhere.
    command
        Recorded as the command that ran the study.
    save_every
        Seconds between checkpoints.
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
    shared: dict[str, Any] = {"command": command, "save_every": save_every, "on_event": on_event}
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
    """Return the executor of a study: Ray if an address is given, inline for vectorised kinds unless workers are given, else processes.

    Examples
    --------
    >>> from actiongap.lab.study import grid
    >>> choose_executor(Study("cakes", grid("q-learning", env="cake")))
    'processes'
    """
    if executor is not None:
        if executor not in ("inline", "processes", "ray"):
            raise ValueError(f"executor is {executor!r}: choose inline, processes or ray")
        return executor
    if ray is not None:
        return "ray"
    return "inline" if workers is None and is_vectorized(study) else "processes"


def is_vectorized(study: Study) -> bool:
    """Whether all runs of a study can be batched."""
    return all(isinstance(run, VectorizedExperiment) for run in study.runs)


class RetryBudget:
    """Limits how often the worker of a run may die: `RETRIES` times in a row at the same chunk."""

    def __init__(self) -> None:
        self._deaths: dict[str, tuple[int, int]] = {}

    def lost(self, run: str, chunk: int) -> bool:
        """Count a death of the worker after `chunk` chunks of a run. Returns whether the budget is exhausted."""
        before, count = self._deaths.get(run, (-1, 0))
        count = count + 1 if chunk <= before else 1
        self._deaths[run] = (max(chunk, before), count)
        return count > RETRIES


class StudyQueue:
    """The runs of a study that are left: batches that wait for an executor, and runs that another process holds."""

    def __init__(
        self,
        study: Study,
        folder: Path,
        on_event: OnEvent,
        batch_size: int | None = None,
        fits: Callable[[Experiment], int] = fits_here,
    ):
        self.folder, self.on_event = folder, on_event
        self.waiting: deque[Members] = deque(batch_runs(unfinished_runs(study, folder), batch_size, fits))
        self.elsewhere: list[tuple[float, str, Experiment]] = []
        self.outcome, self.budget = StudyOutcome(), RetryBudget()

    def report(self, event: Event) -> None:
        """Record what happened to a run, and pass it on."""
        if event.kind == "done":
            self.outcome.done.append(event.run)
        elif event.kind == "failed":
            self.outcome.failed[event.run] = event.text
        self.on_event(event)

    def retry_later(self, name: str, experiment: Experiment) -> None:
        """Leave a run to the process that holds it, for now."""
        self.elsewhere.append((time.monotonic() + RETRY_AFTER, name, experiment))

    def check_elsewhere(self) -> None:
        """Queue runs that another process held a while ago, unless it finished them."""
        now = time.monotonic()
        for entry in [entry for entry in self.elsewhere if entry[0] <= now]:
            self.elsewhere.remove(entry)
            _, name, experiment = entry
            if is_done(run_folder(self.folder, name), experiment):
                self.on_event(Event("done", name))
            else:
                self.waiting.append([(name, experiment)])

    def retry(self, members: Members, chunk: int, why: str) -> bool:
        """Queue a batch whose worker died after `chunk` chunks, or return False if that happened too often."""
        exhausted = [name for name, _ in members if self.budget.lost(name, chunk)]
        if exhausted:
            return False
        self.waiting.appendleft(members)
        for name, _ in members:
            self.on_event(Event("died", name, text=why))
        return True


def run_inline(
    study: Study,
    out: str | Path,
    *,
    batch_size: int | None = None,
    command: str = "",
    save_every: float = SAVE_EVERY,
    on_event: OnEvent = lambda event: None,
) -> StudyOutcome:
    """Run what is left of a study in this process, one batch after another. Ctrl-C saves everything, then raises KeyboardInterrupt.

    Batches have at most `batch_size` runs, and no more than fit in memory; None runs one at a time. Runs that another process holds are
    reported in `busy`.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> run_inline(Study("cakes", grid("q-learning", env="cake")), tempfile.mkdtemp(), batch_size=2)
    Traceback (most recent call last):
    ValueError: q-learning_cake_bellman_seed-0_1c0199f8 is of a kind that cannot be batched: leave batch_size out
    """
    folder = open_study(study, out, command)
    todo = StudyQueue(study, folder, on_event, batch_size)

    def report(event: Event) -> None:
        if event.kind == "busy":
            todo.outcome.busy.append(event.run)
        todo.report(event)

    with deferred_interrupt(lambda: on_event(Event("stopping"))) as stop:
        while todo.waiting and not stop.is_set():
            members = todo.waiting.popleft()
            # Checked before every batch: earlier batches may have left less memory.
            if len(members) > (size := fits_here(members[0][1])):
                todo.waiting.extendleft(reversed(split_evenly(members, size)))
                continue
            ahead = run_members(members, folder, command=command, save_every=save_every, stop=stop.is_set, on_event=report)
            if ahead:
                todo.waiting.appendleft(ahead)
        if stop.is_set():
            raise KeyboardInterrupt
    return todo.outcome


def run_in_processes(
    study: Study,
    out: str | Path,
    *,
    workers: int,
    batch_size: int | None = None,
    command: str = "",
    save_every: float = SAVE_EVERY,
    on_event: OnEvent = lambda event: None,
) -> StudyOutcome:
    """Run what is left of a study in `workers` processes. Ctrl-C saves everything, then raises KeyboardInterrupt.

    A worker runs one batch at a time: of one run, or of at most `batch_size` runs of a vectorised kind.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> study = Study("cakes", grid("q-learning", env="cake", steps=100, rows=2, seed=range(2)))
    >>> len(run_in_processes(study, tempfile.mkdtemp(), workers=1).done)
    2
    """
    folder = open_study(study, out, command)
    logs = make_directory(folder / "logs")
    # The workers share the memory of this machine.
    todo = StudyQueue(study, folder, on_event, batch_size, lambda experiment: max(1, fits_here(experiment) // workers))
    pool = _ProcessPool(todo, command, save_every)
    shares = [worker_variables(study, slot) for slot in range(min(workers, len(todo.waiting)))]
    members = [Worker(pool.messages, logs / f"worker-{slot}.log", share) for slot, share in enumerate(shares)]
    try:
        pool.run(members)
    except KeyboardInterrupt:
        on_event(Event("stopping"))
        raise
    finally:
        pool.close(members)
    return todo.outcome


class Worker:
    """A worker process, the thread that reads its messages, and the runs that it executes."""

    def __init__(self, messages: queue.Queue, log: Path, variables: dict[str, str]):
        self.messages, self.log, self.variables = messages, log, variables
        self.runs: dict[str, Experiment] = {}
        self.chunk, self.busy, self.gone = 0, False, False
        self.start()

    def start(self) -> None:
        """Start the process, or replace it if it died."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "actiongap.lab.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.variables},
                start_new_session=True,
            )
        threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True).start()

    def _listen(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                # A worker that is killed may leave half a line.
                if line.endswith(b"\n"):
                    self.messages.put((self, json.loads(line)))
        self.messages.put((self, {"event": "left"}))

    def order(self, order: dict[str, Any]) -> None:
        """Send the process its next order."""
        assert self.process.stdin is not None
        # If it died, a message about that is on its way.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()

    def dismiss(self) -> None:
        """Close the input of the process, so that it saves and exits."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


class _ProcessPool:
    def __init__(self, todo: StudyQueue, command: str, save_every: float):
        self.todo, self.command, self.save_every, self.closing = todo, command, save_every, False
        self.messages: queue.Queue[tuple[Worker, dict[str, Any]]] = queue.Queue()
        self.workers: list[Worker] = []

    def run(self, workers: list[Worker]) -> None:
        """Assign batches until none is left, or files can no longer be written."""
        self.workers, todo = workers, self.todo
        for worker in workers:
            self.assign(worker)
        while (todo.waiting or todo.elsewhere or any(worker.busy for worker in workers)) and not todo.outcome.stopped:
            with contextlib.suppress(queue.Empty):
                self.handle(*self.messages.get(timeout=0.2))
            todo.check_elsewhere()
            for worker in workers:
                if not worker.busy and worker.process.poll() is None:
                    self.assign(worker)

    def assign(self, worker: Worker) -> None:
        """Give a worker the next batch."""
        if not self.todo.waiting or self.todo.outcome.stopped or self.closing:
            return
        members = self.todo.waiting.popleft()
        worker.runs, worker.chunk, worker.busy = dict(members), 0, True
        for name in worker.runs:
            self.todo.report(Event("started", name))
        runs = {name: as_config(experiment) for name, experiment in members}
        worker.order({"runs": runs, "folder": str(self.todo.folder.resolve()), "command": self.command, "save_every": self.save_every})

    def handle(self, worker: Worker, message: dict[str, Any]) -> None:
        """Process a message of a worker: an event of one of its runs, or the end of its batch or of itself."""
        kind = message["event"]
        if kind == "left":
            self.replace(worker)
        elif kind == "unwritable":
            self.todo.outcome.stopped = message["text"]
            for name in worker.runs:
                self.todo.report(Event("died", name, text=message["text"]))
            worker.runs, worker.busy = {}, False
        elif kind == "free":
            # What is left of the batch could not be aligned with the others, and is run on its own.
            if worker.runs and not self.closing:
                self.todo.waiting.appendleft(list(worker.runs.items()))
            worker.runs, worker.busy = {}, False
            self.assign(worker)
        else:
            event = Event(kind, message["run"], message["chunk"], message["row"], message["text"])
            if kind == "step":
                worker.chunk = int(event.chunk)
            elif kind != "note":
                experiment = worker.runs.pop(event.run)
                if kind == "busy":
                    self.todo.retry_later(event.run, experiment)
            self.todo.report(event)

    def replace(self, worker: Worker) -> None:
        """Replace a worker that exited, and queue its runs again."""
        worker.dismiss()
        code, members = worker.process.wait(), list(worker.runs.items())
        worker.runs, worker.busy = {}, False
        if members:
            why = f"its worker was ended by {signal.Signals(-code).name}" if code < 0 else f"its worker left with exit code {code}"
            if not self.todo.retry(members, worker.chunk, why):
                for name, _ in members:
                    self.todo.report(Event("failed", name, text=f"{why}, several times at the same place: see {worker.log}"))
        if (self.todo.waiting or self.todo.elsewhere or any(other.busy for other in self.workers)) and not self.closing:
            worker.start()
            self.assign(worker)
        else:
            worker.gone = True

    def close(self, workers: list[Worker]) -> None:
        """Let the workers save and exit. A second interrupt kills them, which loses what is not saved."""
        self.closing = True
        for worker in workers:
            worker.dismiss()
        try:
            while not all(worker.gone for worker in workers):
                self.handle(*self.messages.get())
        except KeyboardInterrupt:
            for worker in workers:
                worker.process.kill()
            raise


def default_workers(study: Study) -> int:
    """Return the default number of workers: one per core, or per share of an accelerator if runs need one.

    Examples
    --------
    >>> from actiongap.lab.study import grid
    >>> default_workers(Study("one", grid("q-learning", env="cake")))
    1
    """
    most = int(cores() / study.cpus)
    if not most:
        raise ValueError(f"a run needs {study.cpus:g} cores, and this machine has {cores()}: ask for fewer, or use a cluster with --ray")
    if study.gpus:
        most = min(most, int(len(accelerators()) / study.gpus))
        if not most:
            raise ValueError(
                f"a run needs accelerators, {study.gpus:g} of them, and this machine has {len(accelerators())}: use a cluster with --ray"
            )
    return max(1, min(most, len(study.runs)))


def accelerators() -> list[str]:
    """Return the CUDA devices that this process may use."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return [device for device in allowed.split(",") if device]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [str(i) for i in range(len(listed.splitlines()))]


def worker_variables(study: Study, slot: int) -> dict[str, str]:
    """Return the environment variables that limit worker number `slot` to its share of the machine.

    Examples
    --------
    >>> from actiongap.lab.study import grid
    >>> worker_variables(Study("one", grid("q-learning", env="cake")), 0)["OMP_NUM_THREADS"]
    '1'
    """
    threads = str(max(1, int(study.cpus)))
    variables = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), threads)
    if not study.gpus:
        # A run that needs no accelerator must not allocate memory on one.
        return variables | {"JAX_PLATFORMS": "cpu"}
    devices, whole = accelerators(), max(1, math.ceil(study.gpus))
    first = slot // int(1 / study.gpus) if study.gpus < 1 else slot * whole
    if first + whole > len(devices):
        raise ValueError(f"{slot + 1} workers of {study.gpus:g} accelerators do not fit on the {len(devices)} of this machine: use fewer")
    share = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * study.gpus:.3f}"} if study.gpus < 1 else {}
    return variables | {"CUDA_VISIBLE_DEVICES": ",".join(devices[first : first + whole])} | share
