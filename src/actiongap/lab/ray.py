"""The Ray executor: the nodes of a cluster compute, the driver writes.

A task advances one batch of runs. It gets their configurations and last saved states, and streams back rows and states as the runner's
`advance_batch` yields them. The driver, which holds the locks of the runs, writes them as an inline executor would, so the records are
identical byte for byte and no shared file system is needed. If the driver is killed, Ray ends its tasks. If a node dies, its runs continue
elsewhere from their last checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from actiongap._files import WriteError
from actiongap._system import install
from actiongap._version import __version__
from actiongap.lab.experiment import State, as_config, from_config, named_files, path_in
from actiongap.lab.processes import resource_variables
from actiongap.lab.provenance import describe
from actiongap.lab.queue import StudyQueue
from actiongap.lab.runner import (
    REPORT_EVERY,
    SAVE_EVERY,
    BatchWriter,
    ChunkResult,
    Event,
    Members,
    OnEvent,
    RunState,
    StudyOutcome,
    advance_batch,
    align,
    error_message,
    hold_runs,
    open_study,
    saved_states,
)
from actiongap.lab.store import Run
from actiongap.lab.study import Study

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""Connection preface of an HTTP/2 client. A Ray head answers with a SETTINGS frame, whose fourth byte is 4."""


@contextlib.contextmanager
def connected(address: str) -> Iterator[tuple[Any, str]]:
    """Connect to a cluster, with Ray's own output turned off, and yield the module `ray` and the address of the head."""
    if address.startswith("ray://"):
        raise ValueError(f"{address}: streams do not work through Ray's client: use auto or HOST:PORT on a machine of the cluster")
    # Ray reads these on import: no usage statistics, no warning about future defaults.
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
    try:
        import ray
        from ray._private import services, worker
    except ImportError:
        raise ValueError(f"a cluster needs Ray, which is not installed: {install('cluster')}") from None
    if ray.is_initialized():
        raise ValueError("this process is connected to a Ray cluster already: call ray.shutdown() first")
    try:
        head = services.canonicalize_bootstrap_address_or_die(address)
    except (ConnectionError, ValueError):
        raise ValueError(
            f"no Ray cluster was found at {address!r}: start one with ray start --head, or give HOST:PORT of its head"
        ) from None
    # Ray itself would retry for minutes.
    if not answers(head):
        raise ValueError(f"no Ray cluster answers at {head}: start one with ray start --head --port {head.rpartition(':')[2]}")
    # Otherwise messages of Ray about dead nodes would appear in the standard output.
    worker._worker_logs_enabled = False
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        try:
            ray.init(address=head, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:  # of many kinds: other versions of Ray or Python, no node on this machine
            raise ValueError(f"no connection to the Ray cluster at {head}: {error_message(error)}") from None
        # Ray's own handler prints a stack trace.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, terminate)
        yield ray, head
    finally:
        ray.shutdown()


def answers(head: str, timeout: float = 5.0) -> bool:
    """Return whether something that could be a Ray head listens at HOST:PORT.

    Examples
    --------
    >>> answers("127.0.0.1:1")
    False
    """
    host, _, port = head.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout) as connection:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
                return True
            connection.sendall(PREFACE)
            return connection.recv(9)[3:4] == b"\x04"
    except OSError:
        return False


def compute(order: dict[str, Any], states: Sequence[Any] | None, files: dict[str, bytes]) -> Iterator[Any]:
    """Advance a batch of runs on a node, and yield what the driver writes.

    Yields the updates of `advance_batch`, and dictionaries: `provenance` first, `refused` if the node has another version of the package,
    `error` if an experiment fails. States are arrays, or references to them in Ray's object store, which are fetched one by one.

    Examples
    --------
    >>> from actiongap.lab.experiment import as_config, make
    >>> config = as_config(make("q-learning", {"env": "cake", "steps": 100, "rows": 2}))
    >>> order = {"version": __version__, "configs": [config], "chunk": 0, "save_every": 10.0}
    >>> [type(message).__name__ for message in compute(order, None, {})]
    ['dict', 'ChunkResult', 'ChunkResult', 'RunState']
    """
    if order["version"] != __version__:
        here = f"{socket.gethostname()} has actiongap {__version__}, and the driver {order['version']}"
        yield {"refused": f"{here}: install the same version on every node, and run the same command again"}
        return
    yield {"provenance": describe()}
    try:
        with contextlib.ExitStack() as copies:
            # Orders come from the driver, which has loaded the experiments itself.
            experiments = [from_config(with_files(config, files, copies), trust=True) for config in order["configs"]]
            fetched = None if states is None else map(_fetch, states)
            yield from merge_chunks(advance_batch(experiments, fetched, order["chunk"], save_every=order["save_every"]))
    except Exception as error:
        yield {"error": error_message(error), "traceback": traceback.format_exc()}


def _fetch(state: Any) -> State:
    """Fetch a state and copy its arrays: Ray's are read-only, and a run may write to its state."""
    if not isinstance(state, Mapping):
        import ray

        state = ray.get(state)
    return {name: array.copy() for name, array in state.items()}


def merge_chunks(updates: Iterator[ChunkResult | RunState]) -> Iterator[ChunkResult | RunState]:
    """Merge chunks that follow each other within `REPORT_EVERY` seconds, so that fast runs send few messages."""
    merged, sent = None, -math.inf
    try:
        for update in updates:
            if isinstance(update, RunState):
                if merged is not None:
                    yield merged
                    merged, sent = None, time.monotonic()
                yield update._replace(state={name: np.asarray(array) for name, array in update.state.items()})
                continue
            merged = update if merged is None else _join(merged, update)
            if time.monotonic() - sent >= REPORT_EVERY:
                yield merged
                merged, sent = None, time.monotonic()
            del update
    except Exception:
        # Rows that were computed before an error are written.
        if merged is not None:
            yield merged
        raise


def _join(one: ChunkResult, other: ChunkResult) -> ChunkResult:
    lines = [before + after for before, after in zip(one.lines, other.lines, strict=True)]
    return ChunkResult(other.chunk, lines, one.seconds + other.seconds, one.provenance or other.provenance)


def with_files(config: dict[str, Any], files: Mapping[str, bytes], copies: contextlib.ExitStack) -> dict[str, Any]:
    """Return a configuration that refers to copies of the files that are missing or different here. Closing `copies` removes them.

    Examples
    --------
    >>> with contextlib.ExitStack() as copies:
    ...     config = with_files({"kind": "q-learning", "spec": {"env": "far/away.npz"}}, {"far/away.npz": b"..."}, copies)
    ...     Path(config["spec"]["env"]).name, Path(config["spec"]["env"]).read_bytes()
    ('away.npz', b'...')
    """

    def found(text: Any) -> Any:
        path = path_in(text)
        if path not in files or (os.path.isfile(path) and Path(path).read_bytes() == files[path]):
            return text
        copy = Path(copies.enter_context(tempfile.TemporaryDirectory(prefix="actiongap-"))) / Path(path).name
        copy.write_bytes(files[path])
        return f"{copy}{text[len(path) :]}"

    return {**config, "kind": found(config["kind"]), "spec": {name: found(value) for name, value in config["spec"].items()}}


POLL_NODES_EVERY = 2.0
"""Seconds between two requests for the list of nodes."""
HEAD_TIMEOUT = 10.0
"""Seconds for which the head may be silent. After a minute Ray would end this process without an error."""


def run_on_ray(
    study: Study,
    out: str | Path,
    *,
    address: str,
    batch_size: int | None = None,
    command: str = "",
    save_every: float = SAVE_EVERY,
    stop: Callable[[], bool] = lambda: False,
    on_event: OnEvent = lambda event: None,
) -> StudyOutcome:
    """Run the unfinished runs of a study on the Ray cluster at `address`: `auto`, or HOST:PORT of its head.

    A task runs one batch at a time: of one run, or of at most `batch_size` runs of a vectorized kind. It gets the cores and accelerators
    that the study requests for a run. Ctrl-C leaves every run at its last checkpoint, and so does `stop()` if it is true. ValueError is
    raised if there is no cluster, or if its head is gone.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> run_on_ray(Study("cakes", grid("q-learning", env="cake")), tempfile.mkdtemp(), address="ray://head:10001")
    Traceback (most recent call last):
    ValueError: ray://head:10001: ...
    """
    with connected(address) as (ray, head):
        # The memory of the nodes is unknown here.
        todo = StudyQueue(study, open_study(study, out, command), on_event, batch_size, lambda experiment: sys.maxsize)
        driver = _Driver(ray, head, study, todo, command, save_every, stop)
        try:
            driver.run()
        except KeyboardInterrupt:
            on_event(Event("stopping"))
            raise
        finally:
            driver.release()
    return todo.outcome


def count_slots(study: Study, resources: Iterable[Mapping[str, float]]) -> int:
    """Return how many tasks of a study fit on nodes with these resources at once.

    Examples
    --------
    >>> from actiongap.lab.study import grid
    >>> study = Study("cakes", grid("q-learning", env="cake"), cpus=2, gpus=0.25)
    >>> count_slots(study, [{"CPU": 8.0, "GPU": 1.0}, {"CPU": 3.0, "GPU": 1.0}, {"CPU": 64.0}])
    5
    """
    return sum(
        min(int(node.get(kind, 0.0) / share + 1e-9) for kind, share in (("CPU", study.cpus), ("GPU", study.gpus)) if share)
        for node in resources
    )


@dataclass
class RemoteRun:
    """A batch of runs that a task computes. The driver holds the runs and writes them."""

    members: Members
    writer: BatchWriter
    hold: contextlib.ExitStack
    ahead: Members
    """Runs of the batch that could not be aligned with the others. They are run after it."""
    states: list[Any] | None
    """References to the states that the task starts from, kept until it has read them."""
    started: bool = False


class _Driver:
    def __init__(self, ray: Any, head: str, study: Study, todo: StudyQueue, command: str, save_every: float, stop: Callable[[], bool]):
        self.ray, self.head, self.study, self.todo = ray, head, study, todo
        self.command, self.save_every, self.stop = command, save_every, stop
        self.remote: dict[Any, RemoteRun] = {}
        self.driver_node = ray.get_runtime_context().get_node_id()
        self.slots, self.polled, self.heard = 1, -math.inf, time.monotonic()
        self.files = {name: named_files(run) for members in todo.waiting for name, run in members}
        self.task = ray.remote(compute).options(
            num_returns="streaming",
            num_cpus=study.cpus,
            num_gpus=study.gpus,
            max_retries=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": resource_variables(study)},
            # A task that is faster than the driver waits for it.
            _generator_backpressure_num_objects=2,
        )

    def run(self) -> None:
        """Keep as many tasks going as there are slots until no run is left, or files can no longer be written."""
        todo = self.todo
        while (self.remote or todo.waiting or todo.elsewhere) and not (todo.outcome.stopped or self.stop()):
            self.poll_nodes()
            # At least one, even if there is no slot: a pending task makes a cluster grow.
            while todo.waiting and len(self.remote) < max(1, self.slots) and not todo.outcome.stopped:
                self.start(todo.waiting.popleft())
            self.listen()
            todo.check_elsewhere()

    def poll_nodes(self) -> None:
        """Count the slots of the cluster. Ray is called only if its head answers, because the call would block otherwise."""
        if time.monotonic() - self.polled < POLL_NODES_EVERY:
            return
        self.polled = time.monotonic()
        if not answers(self.head, timeout=2.0):
            if time.monotonic() - self.heard > HEAD_TIMEOUT:
                raise ValueError(
                    f"the head of the cluster, {self.head}, is gone: start it and run the same command again; saved work is intact"
                )
            return
        self.heard = time.monotonic()
        nodes = {node["NodeID"]: node["Resources"] for node in self.ray.nodes() if node["Alive"]}
        if self.driver_node not in nodes:
            raise ValueError("the Ray node of this machine died: start it and run the same command again; saved work is intact")
        before, self.slots = self.slots, count_slots(self.study, nodes.values())
        if before and not self.slots:
            needs = f"{self.study.cpus:g} cores and {self.study.gpus:g} accelerators"
            self.todo.on_event(Event("note", text=f"no node of the cluster has {needs}: waiting for one"))

    def start(self, members: Members) -> None:
        """Hold the runs of a batch and submit its task."""
        hold, known = contextlib.ExitStack(), dict(members)
        runs: dict[str, Run] = {}

        def on_event(event: Event) -> None:
            if event.kind == "busy":
                self.todo.retry_later(event.run, known[event.run])
            self.todo.report(event)

        try:
            runs = hold_runs(hold, members, self.todo.folder, self.command, on_event)
            ahead = [(name, known[name]) for name in align(runs)]
            if not runs:
                hold.close()
                return
            writer = BatchWriter(runs, self.todo.report)
            remote = RemoteRun([(name, known[name]) for name in runs], writer, hold, ahead, None)
            if writer.chunk == remote.members[0][1].chunks:
                writer.finish()
                self.close(remote)
                return
            if writer.chunk:
                remote.states = [self.ray.put(state) for state in saved_states(runs.values())]
        except ValueError as error:
            hold.close()
            if isinstance(error, WriteError):
                self.todo.outcome.stopped = str(error)
                return
            for name in runs:
                self.todo.report(Event("failed", name, text=error_message(error)))
            return
        configs = [as_config(experiment) for _, experiment in remote.members]
        order = {"version": __version__, "configs": configs, "chunk": writer.chunk, "save_every": self.save_every}
        files = {path: data for name in runs for path, data in self.files[name].items()}
        self.remote[self.task.remote(order, remote.states, files)] = remote

    def listen(self) -> None:
        """Write the next message of every stream that has one."""
        streams = list(self.remote)
        if not streams:
            time.sleep(0.1)
            return
        ready, _ = self.ray.wait(streams, num_returns=1, timeout=0.5)
        if ready:
            ready, _ = self.ray.wait(streams, num_returns=len(streams), timeout=0)
        for stream in ready:
            try:
                more = self.receive(stream, self.remote[stream])
            except WriteError as error:
                self.todo.outcome.stopped = str(error)
            else:
                if not more:
                    del self.remote[stream]
            if self.todo.outcome.stopped:
                return

    def receive(self, stream: Any, remote: RemoteRun) -> bool:
        """Handle the next message of a stream, or its end. Returns whether more will follow."""
        try:
            message = self.ray.get(next(stream))
        except StopIteration:
            return self.retry(remote, "its task ended before the run did")
        except self.ray.exceptions.RayTaskError as error:
            return self.task_failed(remote, error)
        except self.ray.exceptions.RayError as error:
            return self.retry(remote, _why(error))
        return self.write(remote, message)

    def write(self, remote: RemoteRun, message: Any) -> bool:
        """Write a message of a task. Returns whether more will follow."""
        writer = remote.writer
        if isinstance(message, dict):
            if "refused" in message:
                self.todo.outcome.stopped = message["refused"]
                return True
            if "error" in message:
                return self.fail(remote, message["error"], message["traceback"])
            for run in writer.runs.values():
                run.record_attempt(message["provenance"])
        if not remote.started:
            remote.started = True
            for name in writer.runs:
                self.todo.report(Event("started", name))
        if isinstance(message, dict):
            return True
        # The task has read the states that it started from.
        remote.states = None
        try:
            writer.write(message)
        except WriteError:
            raise
        except ValueError as error:  # a state that cannot be saved
            return self.fail(remote, error_message(error), traceback.format_exc())
        return self.close(remote) if not writer.unfinished else True

    def close(self, remote: RemoteRun) -> bool:
        """Release the runs of a batch, queue those that were ahead, and return False, because no message follows."""
        remote.hold.close()
        if remote.ahead:
            self.todo.waiting.appendleft(remote.ahead)
        return False

    def fail(self, remote: RemoteRun, text: str, trace: str) -> bool:
        remote.writer.fail(text, trace)
        return self.close(remote)

    def retry(self, remote: RemoteRun, why: str) -> bool:
        """Queue a batch whose worker or node died, unless that happened too often."""
        self.polled, left = -math.inf, remote.writer.unfinished
        # The runs are released here and held again when there is a slot, which removes rows that belong to no checkpoint.
        if not self.todo.retry([(name, experiment) for name, experiment in remote.members if name in left], remote.writer.chunk, why):
            return self.fail(remote, f"{why}, several times at the same chunk: see the logs of the cluster", "")
        return self.close(remote)

    def task_failed(self, remote: RemoteRun, error: Any) -> bool:
        """Handle an exception that a task raised outside the experiment, whose own errors are messages."""
        if remote.started:
            return self.fail(remote, error_message(error.cause or error), str(error))
        place = re.search(r"ip=([^),\s]+)", str(error))
        node = f"the node {place[1]}" if place else "a node"
        self.todo.outcome.stopped = f"{node} cannot load actiongap: install actiongap {__version__} there, and run the same command again"
        return True

    def release(self) -> None:
        """Release every run that is still being computed. Its task ends with the connection."""
        for remote in self.remote.values():
            if remote.started:
                remote.writer.stop()
            remote.hold.close()


def _why(error: Exception) -> str:
    known = {"WorkerCrashedError": "its worker died", "NodeDiedError": "its node died", "OutOfMemoryError": "its node ran out of memory"}
    return known.get(type(error).__name__) or error_message(error).partition(". ")[0]
