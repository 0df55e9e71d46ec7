"""The process pool: a study in worker processes (`python -m actiongap.lab.worker`).

The pool assigns batches and receives events; each worker locks and writes its own runs. A worker that dies is replaced, and its runs
continue from their last checkpoint. If the pool dies, the input of its workers ends, so they save and exit.
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
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from actiongap._files import append_regular, make_directory
from actiongap._signals import LAUNCHER
from actiongap._system import cores
from actiongap._user_code import module_path
from actiongap.lab.batches import fits_here
from actiongap.lab.experiment import Experiment, as_config
from actiongap.lab.queue import StudyQueue
from actiongap.lab.runner import SAVE_EVERY, Event, OnEvent, StudyOutcome, open_study
from actiongap.lab.study import Study


def run_in_processes(
    study: Study,
    out: str | Path,
    *,
    workers: int,
    batch_size: int | None = None,
    command: str = "",
    save_every: float = SAVE_EVERY,
    stop: Callable[[], bool] = lambda: False,
    on_event: OnEvent = lambda event: None,
) -> StudyOutcome:
    """Run the unfinished runs of a study in `workers` processes. Ctrl-C saves everything, then raises KeyboardInterrupt.

    If `stop()` is true, all runs are saved and the study ends.

    A worker runs one batch at a time: of one run, or of at most `batch_size` runs of a vectorized kind.

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
    pool = _ProcessPool(todo, command, save_every, stop)
    shares = [worker_variables(study, slot) for slot in range(min(workers, len(todo.waiting)))]
    members: list[Worker] = []
    try:
        for slot, share in enumerate(shares):
            members.append(Worker(pool.messages, logs / f"worker-{slot}.log", share))
        pool.run(members)
    except KeyboardInterrupt:
        on_event(Event("stopping"))
        raise
    finally:
        pool.close(members)
    return todo.outcome


class Worker:
    """A worker process, the thread that reads its messages, and the runs that it executes."""

    def __init__(self, messages: queue.Queue[tuple[Worker, dict[str, Any]]], log: Path, variables: dict[str, str]):
        self.messages: queue.Queue[tuple[Worker, dict[str, Any]]] = messages
        self.log: Path = log
        self.variables: dict[str, str] = variables
        self.runs: dict[str, Experiment] = {}
        self.chunk: int = 0
        self.busy: bool = False
        self.exited: bool = False
        self.start()

    def start(self) -> None:
        """Start the process, or replace it if it died."""
        # Trial runs leave no log.
        with open(os.devnull, "ab") if str(self.log) == os.devnull else append_regular(self.log) as log:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-P", "-m", "actiongap.lab.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.variables, LAUNCHER: str(os.getpid())},
                start_new_session=True,
            )
        threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True).start()

    def _listen(self, stream: IO[bytes]) -> None:
        try:
            with stream:
                for line in stream:
                    # A worker that is killed may leave half a line.
                    if line.endswith(b"\n"):
                        self.messages.put((self, json.loads(line)))
        finally:
            self.messages.put((self, {"event": "exited"}))

    def send(self, order: dict[str, Any]) -> None:
        """Send the process its next task, and where this process finds modules: the user's files may import them."""
        order = {**order, "path": [os.path.abspath(entry) for entry in module_path()]}
        assert self.process.stdin is not None
        # If it died, the listening thread reports it.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()

    def close_input(self) -> None:
        """Close the input of the process, so that it saves and exits."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


class _ProcessPool:
    def __init__(self, todo: StudyQueue, command: str, save_every: float, stop: Callable[[], bool]):
        self.todo, self.command, self.save_every, self.stop, self.closing = todo, command, save_every, stop, False
        self.messages: queue.Queue[tuple[Worker, dict[str, Any]]] = queue.Queue()
        self.workers: list[Worker] = []

    def run(self, workers: list[Worker]) -> None:
        """Assign batches until none is left, or files can no longer be written."""
        self.workers, todo = workers, self.todo
        for worker in workers:
            self.assign(worker)
        while (todo.waiting or todo.elsewhere or any(worker.busy for worker in workers)) and not (todo.outcome.stopped or self.stop()):
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
        order = {"runs": runs, "folder": str(self.todo.folder.resolve()), "command": self.command, "save_every": self.save_every}
        worker.send(order)

    def handle(self, worker: Worker, message: dict[str, Any]) -> None:
        """Process a message of a worker: an event of one of its runs, or the end of its batch or of itself."""
        kind = message["event"]
        if kind == "exited":
            self.replace(worker)
        elif kind == "write_error":
            self.todo.outcome.stopped = message["text"]
            for name in worker.runs:
                self.todo.report(Event("died", name, text=message["text"]))
            worker.runs, worker.busy = {}, False
        elif kind == "idle":
            # The remaining runs could not be aligned with the batch, so they are run separately.
            if worker.runs and not self.closing:
                self.todo.waiting.appendleft(list(worker.runs.items()))
            worker.runs, worker.busy = {}, False
            self.assign(worker)
        else:
            event = Event(kind, message["run"], message["chunk"], tuple(message["rows"]), message["text"])
            if kind == "step":
                worker.chunk = int(event.chunk)
            elif kind != "note":
                experiment = worker.runs.pop(event.run)
                if kind == "busy":
                    self.todo.retry_later(event.run, experiment)
            self.todo.report(event)

    def replace(self, worker: Worker) -> None:
        """Replace a worker that exited, and queue its runs again."""
        worker.close_input()
        code, members = worker.process.wait(), list(worker.runs.items())
        worker.runs, worker.busy, worker.exited = {}, False, True
        if members:
            why = f"its worker was killed by {_signal_name(-code)}" if code < 0 else f"its worker exited with code {code}"
            if not self.todo.retry(members, worker.chunk, why):
                for name, _ in members:
                    self.todo.report(Event("failed", name, text=f"{why}, several times at the same chunk: see {worker.log}"))
        if (self.todo.waiting or self.todo.elsewhere or any(other.busy for other in self.workers)) and not self.closing:
            worker.start()
            worker.exited = False
            self.assign(worker)

    def close(self, workers: list[Worker]) -> None:
        """Let the workers save and exit. A second interrupt kills them and loses unsaved work."""
        self.closing = True
        for worker in workers:
            worker.close_input()
        try:
            while not all(worker.exited for worker in workers):
                self.handle(*self.messages.get())
        except KeyboardInterrupt:
            for worker in workers:
                worker.process.kill()
            raise


def _signal_name(number: int) -> str:
    # Real-time signals have no name.
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def default_workers(study: Study) -> int:
    """Return the default number of workers: as many as cores and accelerators allow, and at most one per run.

    A run takes `study.cpus` cores and, if it needs accelerators, `study.gpus` of them.

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
                f"a run needs {study.gpus:g} accelerators, and this machine has {len(accelerators())}: use a cluster with --ray"
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
    if not study.gpus:
        return resource_variables(study)
    devices, whole = accelerators(), max(1, math.ceil(study.gpus))
    first = slot // int(1 / study.gpus) if study.gpus < 1 else slot * whole
    if first + whole > len(devices):
        raise ValueError(
            f"{slot + 1} workers with {study.gpus:g} accelerators each need more than the {len(devices)} of this machine: use fewer"
        )
    return resource_variables(study) | {"CUDA_VISIBLE_DEVICES": ",".join(devices[first : first + whole])}


def resource_variables(study: Study) -> dict[str, str]:
    """Return the environment variables that limit the threads and the accelerator memory of a run, but do not choose its accelerators."""
    threads = str(max(1, int(study.cpus)))
    variables = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), threads)
    if not study.gpus:
        # A run that needs no accelerator must not allocate memory on one.
        return variables | {"JAX_PLATFORMS": "cpu"}
    return variables | ({"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * study.gpus:.3f}"} if study.gpus < 1 else {})
