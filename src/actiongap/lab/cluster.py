"""Running a study on a Ray cluster: the nodes compute, the launcher writes.

Every run is one task. It gets the run's configuration and its last saved state, does chunk after chunk, and streams back what they came
to: rows as they come, its state now and then. The launcher, which holds the run's lock, writes both down as a local worker would, so the
records are the same byte for byte and no common file system is needed. A killed launcher leaves nothing behind, because Ray ends the tasks
of a driver that is gone. A run whose node dies goes on elsewhere from its last saved state.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actiongap import __version__
from actiongap._files import WriteError
from actiongap.lab.connection import answers, connected
from actiongap.lab.launch import Agenda, Event, OnEvent, Outcome, open_study, run_folder
from actiongap.lab.local import environment
from actiongap.lab.lock import BusyError
from actiongap.lab.node import compute
from actiongap.lab.spec import Experiment, as_config, named_files
from actiongap.lab.store import Run, holding
from actiongap.lab.study import Study
from actiongap.lab.work import SAVE_EVERY, sentence

LOOK_EVERY = 2.0
"""Seconds between two looks at which nodes there are."""
HEAD_PATIENCE = 10.0
"""Seconds for which the head may be silent. After a minute Ray would end this process without a word."""


def launch(
    study: Study,
    out: str | Path,
    *,
    address: str,
    command: str = "",
    save_every: float = SAVE_EVERY,
    on_event: OnEvent = lambda event: None,
) -> Outcome:
    """Run what is left of a study on the Ray cluster at `address`: `auto`, or HOST:PORT of its head.

    Interrupting leaves every run as it was last saved. A ValueError says that there is no cluster, or that its head is gone.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> launch(Study("cakes", grid("q-learning", problem="cake")), tempfile.mkdtemp(), address="ray://head:10001")
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
    >>> study = Study("cakes", grid("q-learning", problem="cake"), cpus=2, gpus=0.25)
    >>> room(study, [{"CPU": 8.0, "GPU": 1.0}, {"CPU": 3.0, "GPU": 1.0}, {"CPU": 64.0}])
    5
    """
    return sum(
        min(int(node.get(kind, 0.0) / share + 1e-9) for kind, share in (("CPU", study.cpus), ("GPU", study.gpus)) if share)
        for node in resources
    )


@dataclass
class _Flight:
    """A run that is being computed somewhere, and all that the launcher holds for it."""

    name: str
    experiment: Experiment
    run: Run
    hold: contextlib.ExitStack
    started: bool = False


class _Launcher(Agenda):
    def __init__(self, ray: Any, head: str, study: Study, folder: Path, command: str, save_every: float, on_event: OnEvent):
        super().__init__(study, folder, on_event)
        self.ray, self.head, self.study, self.command, self.save_every = ray, head, study, command, save_every
        self.flights: dict[Any, _Flight] = {}
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
            flight = _Flight(name, experiment, run, hold)
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
            self.outcome.failed[name] = sentence(error)
            self.on_event(Event("failed", name, text=sentence(error)))
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

    def hear(self, stream: Any, flight: _Flight) -> bool:
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

    def heed(self, flight: _Flight, message: dict[str, Any]) -> bool:
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
            return self.fail(flight, sentence(error), traceback.format_exc())
        return True

    def finish(self, flight: _Flight) -> bool:
        flight.run.save("done")
        flight.hold.close()
        self.outcome.done.append(flight.name)
        self.on_event(Event("done", flight.name))
        return False

    def fail(self, flight: _Flight, text: str, trace: str) -> bool:
        flight.run.fail(text, trace)
        flight.hold.close()
        self.outcome.failed[flight.name] = text
        self.on_event(Event("failed", flight.name, text=text))
        return False

    def lose(self, flight: _Flight, why: str) -> bool:
        """A run's worker or node died: let the run go on somewhere else, unless that happened too often."""
        if self.patience.lost(flight.name, flight.run.chunk):
            return self.fail(flight, f"{why}, several times at the same place: see the logs of the cluster", "")
        self.looked = -math.inf
        # Closed here and opened again when there is room, which cuts off the rows that belong to no saved state.
        flight.hold.close()
        self.waiting.appendleft((flight.name, flight.experiment))
        self.on_event(Event("died", flight.name, text=why))
        return False

    def give_up(self, flight: _Flight, error: Any) -> bool:
        """A task raised outside the experiment, which keeps its own errors to itself."""
        if flight.started:
            return self.fail(flight, sentence(error.cause or error), str(error))
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
    variables = environment(dataclasses.replace(study, gpus=0.0), 0)
    if study.gpus:
        del variables["JAX_PLATFORMS"]
    if 0 < study.gpus < 1:
        variables["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{0.9 * study.gpus:.3f}"
    return variables


def _why(error: Exception) -> str:
    known = {"WorkerCrashedError": "its worker died", "NodeDiedError": "its node died", "OutOfMemoryError": "its node ran out of memory"}
    return known.get(type(error).__name__) or sentence(error).partition(". ")[0]
