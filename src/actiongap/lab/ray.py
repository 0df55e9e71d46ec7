"""Connecting to a Ray cluster without waiting for what is not there, and without its noise.

What a node of a cluster does: the chunks of one run, streamed to the launcher, with the user's own files at hand.

Running a study on a Ray cluster: the nodes compute, the launcher writes.

Every run is one task. It gets the run's configuration and its last saved state, does chunk after chunk, and streams back what they came
to: rows as they come, its state now and then. The launcher, which holds the run's lock, writes both down as a local worker would, so the
records are the same byte for byte and no common file system is needed. A killed launcher leaves nothing behind, because Ray ends the tasks
of a driver that is gone. A run whose node dies goes on elsewhere from its last saved state.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import re
import signal
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from actiongap._files import WriteError
from actiongap._system import install
from actiongap._version import __version__
from actiongap.lab.experiment import Experiment, State, as_config, from_config, named_files, path_in
from actiongap.lab.lock import BusyError
from actiongap.lab.processes import worker_variables
from actiongap.lab.provenance import describe
from actiongap.lab.runner import SAVE_EVERY, Event, OnEvent, StudyOutcome, StudyQueue, error_message, open_study, run_chunks, run_folder
from actiongap.lab.store import Run, holding
from actiongap.lab.study import Study
from actiongap.lab.worker import TELL_EVERY

GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What a client of HTTP/2 says first; a Ray head answers with a frame of the same kind, 4, as its fourth byte."""


@contextlib.contextmanager
def connected(address: str) -> Iterator[tuple[Any, str]]:
    """Ray, connected to a cluster and quiet about it, and where the head of the cluster is."""
    if address.startswith("ray://"):
        raise ValueError(f"{address}: streams do not work through Ray's client; go to a machine of the cluster and say auto or HOST:PORT")
    # Ray reads these when it is imported: no reports to its makers, no advice about its future.
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
            f"no Ray cluster is found by {address!r}: start one with ray start --head, or give HOST:PORT of its head"
        ) from None
    # Ray itself would go on trying for minutes.
    if not answers(head):
        raise ValueError(f"no Ray cluster answers at {head}: start one with ray start --head --port {head.rpartition(':')[2]}")
    # What Ray has to say about nodes that died would land in the middle of the standard output.
    worker._worker_logs_enabled = False
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        try:
            ray.init(address=head, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:  # of many kinds: other versions of Ray or Python, no node on this machine
            raise ValueError(f"no connection to the Ray cluster at {head}: {error_message(error)}") from None
        # Ray's own way to be terminated prints its stack.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, terminate)
        yield ray, head
    finally:
        ray.shutdown()


def answers(head: str, timeout: float = 5.0) -> bool:
    """Whether something that could be a Ray head listens at HOST:PORT.

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
            connection.sendall(GREETING)
            return connection.recv(9)[3:4] == b"\x04"
    except OSError:
        return False


def compute(order: dict[str, Any], state: State | None, files: dict[str, bytes]) -> Iterator[dict[str, Any]]:
    """Do what is left of a run on a node: messages about every chunk, of which some carry the state after it.

    Examples
    --------
    >>> from actiongap.lab.experiment import as_config, make
    >>> config = as_config(make("q-learning", {"env": "cake", "steps": 100, "rows": 2}))
    >>> order = {"version": __version__, "config": config, "chunk": 0, "save_every": 10.0}
    >>> [message.get("chunk") for message in compute(order, None, {})]
    [None, 1, 2]
    """
    if order["version"] != __version__:
        here = f"{socket.gethostname()} has actiongap {__version__}, and the launcher {order['version']}"
        yield {"refused": f"{here}: install the same version on every node, and run the same command again"}
        return
    yield {"node": describe()}
    try:
        with contextlib.ExitStack() as copies:
            # Orders are the launcher's, which has loaded the experiment itself.
            experiment = from_config(with_files(order["config"], files, copies), trust=True)
            yield from _messages(experiment, state, order["chunk"], order["save_every"])
    except Exception as error:
        yield {"error": error_message(error), "traceback": traceback.format_exc()}


def _messages(experiment: Experiment, state: State | None, chunk: int, save_every: float) -> Iterator[dict[str, Any]]:
    # Ray hands arrays out read-only, and a checkpoint does not.
    state = None if state is None else {name: array.copy() for name, array in state.items()}
    # Nothing was told yet. Clocks may start with the machine, so 0 would be a moment like any other.
    lines, seconds, told, saved = b"", 0.0, -math.inf, time.monotonic()
    for step in run_chunks(experiment, state, chunk):
        lines, seconds, now = lines + step.lines, seconds + step.seconds, time.monotonic()
        due = now - saved >= save_every or step.chunk == experiment.chunks
        if not due and now - told < TELL_EVERY:
            continue
        message = {"chunk": step.chunk, "lines": lines, "last": step.last, "seconds": seconds, "state": None}
        if due:
            message["state"] = {name: np.asarray(array) for name, array in step.state().items()}
        if told == -math.inf:
            # By now it is known which device the experiment found.
            message["node"] = describe()
        yield message
        lines, seconds, told, saved = b"", 0.0, time.monotonic(), time.monotonic() if due else saved


def with_files(config: dict[str, Any], files: Mapping[str, bytes], copies: contextlib.ExitStack) -> dict[str, Any]:
    """A configuration that names copies of the files that are missing here, or not the same; closing `copies` removes them.

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


LOOK_EVERY = 2.0
"""Seconds between two looks at which nodes there are."""
HEAD_PATIENCE = 10.0
"""Seconds for which the head may be silent. After a minute Ray would end this process without a word."""


def run_on_ray(
    study: Study,
    out: str | Path,
    *,
    address: str,
    command: str = "",
    save_every: float = SAVE_EVERY,
    on_event: OnEvent = lambda event: None,
) -> StudyOutcome:
    """Run what is left of a study on the Ray cluster at `address`: `auto`, or HOST:PORT of its head.

    Interrupting leaves every run as it was last saved. A ValueError says that there is no cluster, or that its head is gone.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> launch(Study("cakes", grid("q-learning", env="cake")), tempfile.mkdtemp(), address="ray://head:10001")
    Traceback (most recent call last):
    ValueError: ray://head:10001: ...
    """
    with connected(address) as (ray, head):
        launcher = _Launcher(ray, head, study, open_study(study, out, command), command, save_every, on_event)
        try:
            launcher.run()
        except KeyboardInterrupt:
            on_event(Event("stopping"))
            raise
        finally:
            launcher.land()
    return launcher.outcome


def room(study: Study, resources: Iterable[Mapping[str, float]]) -> int:
    """How many runs of a study fit on nodes at once.

    Examples
    --------
    >>> from actiongap.lab.study import grid
    >>> study = Study("cakes", grid("q-learning", env="cake"), cpus=2, gpus=0.25)
    >>> room(study, [{"CPU": 8.0, "GPU": 1.0}, {"CPU": 3.0, "GPU": 1.0}, {"CPU": 64.0}])
    5
    """
    return sum(
        min(int(node.get(kind, 0.0) / share + 1e-9) for kind, share in (("CPU", study.cpus), ("GPU", study.gpus)) if share)
        for node in resources
    )


@dataclass
class RemoteRun:
    """A run that is being computed somewhere, and all that the launcher holds for it."""

    name: str
    experiment: Experiment
    run: Run
    hold: contextlib.ExitStack
    started: bool = False


class _Launcher(StudyQueue):
    def __init__(self, ray: Any, head: str, study: Study, folder: Path, command: str, save_every: float, on_event: OnEvent):
        super().__init__(study, folder, on_event)
        self.ray, self.head, self.study, self.command, self.save_every = ray, head, study, command, save_every
        self.flights: dict[Any, RemoteRun] = {}
        self.home = ray.get_runtime_context().get_node_id()
        self.room, self.looked, self.heard = 1, -math.inf, time.monotonic()
        self.files = {name: named_files(run) for name, run in self.waiting}
        self.task = ray.remote(compute).options(
            num_returns="streaming",
            num_cpus=study.cpus,
            num_gpus=study.gpus,
            max_retries=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": _variables(study)},
            # A run that is faster than the launcher waits for it.
            _generator_backpressure_num_objects=2,
        )

    def run(self) -> None:
        """Keep as many runs going as there is room for until none is left, or nothing can be written any more."""
        while (self.flights or self.waiting or self.elsewhere) and not self.outcome.stopped:
            self.look_around()
            # One at least, even if there is no room: that is what makes a cluster grow.
            while self.waiting and len(self.flights) < max(1, self.room) and not self.outcome.stopped:
                self.start(*self.waiting.popleft())
            self.listen()
            self.look_again()

    def look_around(self) -> None:
        """See which nodes there are; Ray is asked only if its head answers, because it would not return otherwise."""
        if time.monotonic() - self.looked < LOOK_EVERY:
            return
        self.looked = time.monotonic()
        if not answers(self.head, timeout=2.0):
            if time.monotonic() - self.heard > HEAD_PATIENCE:
                raise ValueError(
                    f"the head of the cluster, {self.head}, is gone: start it and run the same command again; what is saved is intact"
                )
            return
        self.heard = time.monotonic()
        nodes = {node["NodeID"]: node["Resources"] for node in self.ray.nodes() if node["Alive"]}
        if self.home not in nodes:
            raise ValueError("the Ray node of this machine died: start it and run the same command again; what is saved is intact")
        before, self.room = self.room, room(self.study, nodes.values())
        if before and not self.room:
            needs = f"{self.study.cpus:g} cores and {self.study.gpus:g} accelerators"
            self.on_event(Event("note", text=f"no node of the cluster has {needs}: waiting for one"))

    def start(self, name: str, experiment: Experiment) -> None:
        hold = contextlib.ExitStack()
        try:
            run = hold.enter_context(holding(run_folder(self.folder, name), experiment, self.command))
            flight = RemoteRun(name, experiment, run, hold)
            if run.chunk == experiment.chunks:
                self.finish(flight)
                return
            state = run.state
        except BusyError:
            self.leave(name, experiment)
            self.on_event(Event("busy", name))
            return
        except ValueError as error:
            hold.close()
            if isinstance(error, WriteError):
                self.outcome.stopped = str(error)
                return
            self.outcome.failed[name] = error_message(error)
            self.on_event(Event("failed", name, text=error_message(error)))
            return
        order = {"version": __version__, "config": as_config(experiment), "chunk": run.chunk, "save_every": self.save_every}
        self.flights[self.task.remote(order, state, self.files[name])] = flight

    def listen(self) -> None:
        streams = list(self.flights)
        if not streams:
            time.sleep(0.1)
            return
        ready, _ = self.ray.wait(streams, num_returns=1, timeout=0.5)
        if ready:
            ready, _ = self.ray.wait(streams, num_returns=len(streams), timeout=0)
        for stream in ready:
            try:
                going_on = self.hear(stream, self.flights[stream])
            except WriteError as error:
                self.outcome.stopped = str(error)
            else:
                if not going_on:
                    del self.flights[stream]
            if self.outcome.stopped:
                return

    def hear(self, stream: Any, flight: RemoteRun) -> bool:
        """Take in the next message of a stream, or what became of it; whether there is more to come."""
        try:
            message = self.ray.get(next(stream))
        except StopIteration:
            return self.lose(flight, "its task ended before the run did")
        except self.ray.exceptions.RayTaskError as error:
            return self.give_up(flight, error)
        except self.ray.exceptions.RayError as error:
            return self.lose(flight, _why(error))
        return self.heed(flight, message)

    def heed(self, flight: RemoteRun, message: dict[str, Any]) -> bool:
        """Write down what a node says; whether it has more to say."""
        if "refused" in message:
            self.outcome.stopped = message["refused"]
            return True
        if "node" in message:
            flight.run.record_attempt(message["node"])
        if not flight.started:
            flight.started = True
            self.on_event(Event("started", flight.name))
        if "error" in message:
            return self.fail(flight, message["error"], message["traceback"])
        if "lines" not in message:
            return True
        state = message["state"]
        flight.run.append(message["chunk"], message["lines"], state, message["seconds"])
        self.on_event(Event("step", flight.name, message["chunk"], message["last"]))
        try:
            if message["chunk"] == flight.experiment.chunks:
                return self.finish(flight)
            if state is not None:
                flight.run.save()
        except WriteError:
            raise
        except ValueError as error:  # a state that cannot be saved
            return self.fail(flight, error_message(error), traceback.format_exc())
        return True

    def finish(self, flight: RemoteRun) -> bool:
        flight.run.save("done")
        flight.hold.close()
        self.outcome.done.append(flight.name)
        self.on_event(Event("done", flight.name))
        return False

    def fail(self, flight: RemoteRun, text: str, trace: str) -> bool:
        flight.run.fail(text, trace)
        flight.hold.close()
        self.outcome.failed[flight.name] = text
        self.on_event(Event("failed", flight.name, text=text))
        return False

    def lose(self, flight: RemoteRun, why: str) -> bool:
        """A run's worker or node died: let the run go on somewhere else, unless that happened too often."""
        if self.patience.lost(flight.name, flight.run.chunk):
            return self.fail(flight, f"{why}, several times at the same place: see the logs of the cluster", "")
        self.looked = -math.inf
        # Closed here and opened again when there is room, which cuts off the rows that belong to no saved state.
        flight.hold.close()
        self.waiting.appendleft((flight.name, flight.experiment))
        self.on_event(Event("died", flight.name, text=why))
        return False

    def give_up(self, flight: RemoteRun, error: Any) -> bool:
        """A task raised outside the experiment, which keeps its own errors to itself."""
        if flight.started:
            return self.fail(flight, error_message(error.cause or error), str(error))
        place = re.search(r"ip=([^),\s]+)", str(error))
        node = f"the node {place[1]}" if place else "a node"
        self.outcome.stopped = f"{node} cannot load actiongap: install actiongap {__version__} there, and run the same command again"
        return True

    def land(self) -> None:
        """Let go of every run that is still in the air; its task ends with the connection."""
        for flight in self.flights.values():
            if flight.started:
                with contextlib.suppress(WriteError):
                    flight.run.stop()
                self.on_event(Event("stopped", flight.name))
            flight.hold.close()


def _variables(study: Study) -> dict[str, str]:
    """Environment variables that keep a task to its share of a node; which accelerators it may see is Ray's to say."""
    variables = worker_variables(dataclasses.replace(study, gpus=0.0), 0)
    if study.gpus:
        del variables["JAX_PLATFORMS"]
    if 0 < study.gpus < 1:
        variables["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{0.9 * study.gpus:.3f}"
    return variables


def _why(error: Exception) -> str:
    known = {"WorkerCrashedError": "its worker died", "NodeDiedError": "its node died", "OutOfMemoryError": "its node ran out of memory"}
    return known.get(type(error).__name__) or error_message(error).partition(". ")[0]
