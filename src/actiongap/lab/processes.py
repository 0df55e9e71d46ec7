"""Running a study on this machine: a few worker processes, each working on one run at a time.

The launcher hands out runs and listens; the workers write. A worker that dies is replaced, and its run continues from its last checkpoint.
If the launcher dies, its workers' input ends, so they save and leave. Several launchers may work on one study, on one machine or on several
that share a file system: a run that another holds is left to it.
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
from pathlib import Path
from typing import IO, Any

from actiongap._files import make_directory
from actiongap._system import cores
from actiongap.lab.experiment import Experiment, as_config
from actiongap.lab.runner import SAVE_EVERY, Event, OnEvent, StudyOutcome, StudyQueue, open_study, run_folder
from actiongap.lab.store import read_status
from actiongap.lab.study import Study


def default_workers(study: Study) -> int:
    """As many workers as there are cores, and accelerators where runs need them.

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
    """The accelerators of this machine that may be used, as CUDA counts them."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return [device for device in allowed.split(",") if device]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [str(i) for i in range(len(listed.splitlines()))]


def run_in_processes(
    study: Study,
    out: str | Path,
    *,
    workers: int,
    command: str = "",
    save_every: float = SAVE_EVERY,
    on_event: OnEvent = lambda event: None,
) -> StudyOutcome:
    """Run what is left of a study in `workers` processes. Interrupting saves everything before KeyboardInterrupt goes on.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> study = Study("cakes", grid("q-learning", env="cake", steps=100, rows=2, seed=range(2)))
    >>> len(launch(study, tempfile.mkdtemp(), workers=1).done)
    2
    """
    folder = open_study(study, out, command)
    logs = make_directory(folder / "logs")
    launcher = _Launcher(study, folder, command, save_every, on_event)
    shares = [worker_variables(study, slot) for slot in range(min(workers, len(launcher.waiting)))]
    crew = [Worker(launcher.messages, logs / f"worker-{slot}.log", share) for slot, share in enumerate(shares)]
    try:
        launcher.run(crew)
    except KeyboardInterrupt:
        on_event(Event("stopping"))
        raise
    finally:
        launcher.dismiss(crew)
    return launcher.outcome


class Worker:
    """A worker process, the thread that listens to it, and what it is working on."""

    def __init__(self, messages: queue.Queue, log: Path, variables: dict[str, str]):
        self.messages, self.log, self.variables = messages, log, variables
        self.run: str | None = None
        self.chunk, self.gone = 0, False
        self.start()

    def start(self) -> None:
        """Start the process, anew if it died."""
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
        """Tell the process what to do next."""
        assert self.process.stdin is not None
        # If it died, a message of that is on its way.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()

    def dismiss(self) -> None:
        """Let the process save and leave."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


class _Launcher(StudyQueue):
    def __init__(self, study: Study, folder: Path, command: str, save_every: float, on_event: OnEvent):
        super().__init__(study, folder, on_event)
        self.command, self.save_every, self.closing = command, save_every, False
        self.held: dict[str, Experiment] = {}
        self.messages: queue.Queue[tuple[Worker, dict[str, Any]]] = queue.Queue()

    def run(self, crew: list[Worker]) -> None:
        """Hand out runs until none is left, or nothing can be written any more."""
        for worker in crew:
            self.next_for(worker)
        while (self.held or self.waiting or self.elsewhere) and not self.outcome.stopped:
            with contextlib.suppress(queue.Empty):
                self.heed(*self.messages.get(timeout=0.2))
            self.look_again()
            for worker in crew:
                if worker.run is None and worker.process.poll() is None:
                    self.next_for(worker)

    def next_for(self, worker: Worker) -> None:
        if not self.waiting or self.outcome.stopped or self.closing:
            return
        name, experiment = self.waiting.popleft()
        worker.run, worker.chunk, self.held[name] = name, 0, experiment
        self.on_event(Event("started", name))
        folder = str(run_folder(self.folder, name).resolve())
        order = {"run": name, "folder": folder, "config": as_config(experiment), "command": self.command, "save_every": self.save_every}
        worker.order(order)

    def heed(self, worker: Worker, message: dict[str, Any]) -> None:
        kind, name, text = message["event"], worker.run, message.get("text", "")
        if kind == "left":
            self.replace(worker)
            return
        assert name is not None
        if kind == "step":
            worker.chunk = message["chunk"]
            self.on_event(Event("step", name, message["chunk"], message["row"]))
            return
        experiment, worker.run = self.held.pop(name), None
        if kind == "unwritable":
            self.outcome.stopped = text
            self.on_event(Event("died", name, text=text))
            return
        if kind == "busy":
            self.leave(name, experiment)
        elif kind == "done":
            self.outcome.done.append(name)
        elif kind == "failed":
            text = self.outcome.failed[name] = text or _reason(run_folder(self.folder, name))
        self.on_event(Event(kind, name, text=text))
        self.next_for(worker)

    def replace(self, worker: Worker) -> None:
        """A worker left: if it died, let its run go on in another in its place."""
        worker.dismiss()
        code, name = worker.process.wait(), worker.run
        worker.run = None
        if name is not None:
            experiment = self.held.pop(name)
            why = f"its worker was ended by {signal.Signals(-code).name}" if code < 0 else f"its worker left with exit code {code}"
            if self.patience.lost(name, worker.chunk):
                text = self.outcome.failed[name] = f"{why}, several times at the same place: see {worker.log}"
                self.on_event(Event("failed", name, text=text))
            else:
                self.waiting.appendleft((name, experiment))
                self.on_event(Event("died", name, text=why))
        if (self.waiting or self.held or self.elsewhere) and not self.closing:
            worker.start()
            self.next_for(worker)
        else:
            worker.gone = True

    def dismiss(self, crew: list[Worker]) -> None:
        """Let everybody save and leave; a second interrupt ends them where they are, which costs what was not saved."""
        self.closing = True
        for worker in crew:
            worker.dismiss()
        try:
            while not all(worker.gone for worker in crew):
                self.heed(*self.messages.get())
        except KeyboardInterrupt:
            for worker in crew:
                worker.process.kill()
            raise


def worker_variables(study: Study, slot: int) -> dict[str, str]:
    """Environment variables that keep the worker number `slot` to its share of the machine.

    Examples
    --------
    >>> from actiongap.lab.study import grid
    >>> environment(Study("one", grid("q-learning", env="cake")), 0)["OMP_NUM_THREADS"]
    '1'
    """
    threads = str(max(1, int(study.cpus)))
    variables = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), threads)
    if not study.gpus:
        # A run that asks for no accelerator must not take the memory of one.
        return variables | {"JAX_PLATFORMS": "cpu"}
    devices, whole = accelerators(), max(1, math.ceil(study.gpus))
    first = slot // int(1 / study.gpus) if study.gpus < 1 else slot * whole
    if first + whole > len(devices):
        raise ValueError(f"{slot + 1} workers of {study.gpus:g} accelerators do not fit on the {len(devices)} of this machine: use fewer")
    share = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * study.gpus:.3f}"} if study.gpus < 1 else {}
    return variables | {"CUDA_VISIBLE_DEVICES": ",".join(devices[first : first + whole])} | share


def _reason(folder: Path) -> str:
    try:
        return read_status(folder).error or "it failed without a word"
    except ValueError as error:
        return str(error)
