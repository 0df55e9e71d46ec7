"""Studies on a real cluster: three Ray nodes on this machine, of which some are killed.

A cluster takes ten seconds to start, so one test goes through all that is done to it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import batch_experiment
from actiongap._files import WriteError
from actiongap.lab import executors as local
from actiongap.lab import ray as cluster
from actiongap.lab import ray as connection
from actiongap.lab import ray as node
from actiongap.lab.checkpoint import read_checkpoint
from actiongap.lab.experiment import as_config, from_config, named_files, run_name
from actiongap.lab.queue import RETRIES
from actiongap.lab.runner import ChunkResult, Event, RunState, run_experiment, run_folder
from actiongap.lab.store import Run, holding, read_status
from actiongap.lab.study import Study, grid
from actiongap.lab.validation import read_record
from lab_experiment import JOURNAL, KIND, NAP

WALKS = grid(KIND, seed=range(12), length=10)
EVERY_CHUNK = 0.0
"""The time between checkpoints for which each chunk has one."""

NODES = '''
import contextlib, json, os, signal, sys
from pathlib import Path
from ray.cluster_utils import Cluster

quick = {f"health_check_{name}": value for name, value in {"initial_delay_ms": 500, "period_ms": 500, "failure_threshold": 3}.items()}
size = {"num_cpus": 1, "object_store_memory": 80_000_000}
cluster = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False, "_system_config": quick})
nodes = [cluster.head_node, *(cluster.add_node(wait=False, **size) for _ in range(2))]
cluster.wait_for_nodes()

def children(of):
    """The workers and agents of nodes, with what they call themselves."""
    raylets = {entry.process.pid for node in of for entry in node.all_processes["raylet"]}
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((process / "stat").read_text().rpartition(")")[2].split()[1]) in raylets:
                found[int(process.name)] = (process / "cmdline").read_text()
    return found

def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

def answer(order):
    if order == "tasks":
        return sum(title.startswith("ray::compute") for title in children(nodes).values())
    if order == "kill a node":
        node = nodes.pop()
        orphans = children([node])
        cluster.remove_node(node, allow_graceful=False)
        kill(orphans)
    if order == "kill the head":
        kill([nodes[0].all_processes["gcs_server"][0].process.pid])
    return order

print(json.dumps(cluster.address), flush=True)
for line in sys.stdin:
    print(json.dumps(answer(line.strip())), flush=True)
orphans = children(nodes)
cluster.shutdown()
kill(orphans)
'''
LAUNCHER = """
import sys
from actiongap.lab import ray as cluster
from actiongap.lab.study import Study, grid
study = Study("walks", grid(sys.argv[1], seed=range(6), length=10))
tell = lambda event: print(event.kind, event.run, event.chunk, flush=True)
cluster.run_on_ray(study, sys.argv[2], address=sys.argv[3], save_every=0.0, on_event=tell)
"""


class Nodes:
    """Three nodes with a core each, in processes of their own, that end when this one does."""

    def __init__(self, folder: str, journal: Path):
        variables = {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0", NAP: "0.1", JOURNAL: str(journal)}
        self.log = open(Path(folder) / "log", "w+")  # noqa: SIM115 - closed by stop()
        self.process = subprocess.Popen(
            [sys.executable, "-c", NODES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, **variables},
        )
        self.journal = journal
        self.address: str = self._read()

    def ask(self, order: str):
        assert self.process.stdin is not None
        print(order, file=self.process.stdin, flush=True)
        return self._read()

    def _read(self):
        assert self.process.stdout is not None
        # Ray itself says this and that on the standard output.
        for line in self.process.stdout:
            with contextlib.suppress(json.JSONDecodeError):
                return json.loads(line)
        self.log.seek(0)
        pytest.fail(f"the nodes are gone: {self.log.read()}")

    def stop(self) -> None:
        with self.process:
            pass
        self.log.close()


@pytest.fixture
def nodes(tmp_path):
    pytest.importorskip("ray", reason="a cluster needs Ray: pip install 'actiongap[cluster]'")
    # Ray keeps sockets in its folder, and the name of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder:
        started = Nodes(folder, tmp_path / "journal")
        try:
            yield started
        finally:
            started.stop()


@pytest.fixture
def reference(tmp_path):
    outcome = local.run_in_processes(Study("walks", WALKS), tmp_path / "reference", workers=2)
    assert len(outcome.done) == len(WALKS)
    return tmp_path / "reference"


def assert_same_records(out, reference, runs):
    for experiment in runs:
        ours, theirs = (run_folder(folder, run_name(experiment)) for folder in (out, reference))
        for file in ("metrics.jsonl", "config.json"):
            assert (ours / file).read_bytes() == (theirs / file).read_bytes()
        assert read_status(ours).state == "done"
        assert read_status(ours).digest == read_status(theirs).digest
        (last,), (wanted,) = (list((folder / "checkpoint").glob("*.npz")) for folder in (ours, theirs))
        last, wanted = read_checkpoint(last), read_checkpoint(wanted)
        assert last[:1] + last[2:4] == wanted[:1] + wanted[2:4]
        assert last.state.keys() == wanted.state.keys()
        for name, array in last.state.items():
            np.testing.assert_array_equal(array, wanted.state[name], strict=True)


def attempts(out, experiment):
    return read_record(run_folder(out, run_name(experiment)) / "meta.json")["attempts"]


def test_a_study_survives_failures_of_a_cluster(request, record_property, nodes, reference, tmp_path, monkeypatch):
    # In short tests: a study, an interruption, and a node that is killed. The others are tested without a cluster too.
    stages = STAGES if request.config.getoption("--long") else STAGES[::3]
    record_property("cases", len(stages))
    for number, stage in enumerate(stages):
        with monkeypatch.context() as patch:
            stage(nodes, reference, tmp_path / str(number), patch)


def records_are_those_of_a_local_study(nodes, reference, out, patch):
    events: list[Event] = []
    study = Study("walks", WALKS[:3])
    outcome = cluster.run_on_ray(study, out, address=nodes.address, command="the command", on_event=events.append)
    assert sorted(outcome.done) == sorted(study.named())
    assert not outcome.failed
    assert not outcome.stopped
    assert_same_records(out, reference, study.runs)
    for name, experiment in study.named().items():
        kinds = [event.kind for event in events if event.run == name]
        assert kinds[0] == "started"
        assert kinds[-1] == "done"
        assert set(kinds[1:-1]) == {"step"}
        (attempt,) = attempts(out, experiment)
        assert attempt["command"] == "the command"
        assert attempt["host"] == socket.gethostname()
    # Nothing is left to do, and nothing is done.
    assert cluster.run_on_ray(study, out, address=nodes.address).done == []


def an_experiment_that_raises_fails_and_one_that_dies_is_tried_again(nodes, reference, out, patch):
    raising, dying = grid(KIND, trouble=["raise", "kill"], at=2)
    events: list[Event] = []
    study = Study("troubles", (raising, dying, WALKS[0]))
    outcome = cluster.run_on_ray(study, out, address=nodes.address, save_every=EVERY_CHUNK, on_event=events.append)
    assert outcome.done == [run_name(WALKS[0])]
    local.run_in_processes(Study("troubles", (raising,)), out / "local", workers=1)
    ours, theirs = (read_status(run_folder(folder, run_name(raising))) for folder in (out, out / "local"))
    assert ours.error == theirs.error == outcome.failed[run_name(raising)] == "RuntimeError: the walker [red]fell[/red] into a ditch"
    assert (ours.state, ours.chunk, ours.rows, ours.digest) == (theirs.state, theirs.chunk, theirs.rows, theirs.digest)
    assert ours.traceback is not None
    assert theirs.traceback is not None
    assert ours.traceback.splitlines()[-4:] == theirs.traceback.splitlines()[-4:]
    assert [event.kind for event in events if event.run == run_name(raising)][-1] == "failed"
    deaths = [event.text for event in events if event.kind == "died"]
    assert deaths == ["its worker died"] * RETRIES
    assert outcome.failed[run_name(dying)].startswith("its worker died, several times at the same chunk")
    assert [attempt["from_chunk"] for attempt in attempts(out, dying)] == [0, 2, 2, 2]


def a_run_that_another_holds_is_left_to_it_and_taken_up_later(nodes, reference, out, patch):
    study, seen = Study("walks", WALKS[:2]), []
    with contextlib.ExitStack() as other:
        other.enter_context(holding(run_folder(out, run_name(WALKS[0])), WALKS[0]))

        def on_event(event: Event) -> None:
            seen.append(event.kind)
            if event == Event("busy", run_name(WALKS[0])):
                other.close()

        outcome = cluster.run_on_ray(study, out, address=nodes.address, on_event=on_event)
    assert "busy" in seen
    assert sorted(outcome.done) == sorted(study.named())
    assert_same_records(out, reference, study.runs)


def interrupting_leaves_what_is_saved_and_nothing_on_the_nodes(nodes, reference, out, patch):
    study, stopped = Study("walks", WALKS[:3]), []

    def on_event(event: Event) -> None:
        if event.kind == "step" and event.chunk == 4:
            raise KeyboardInterrupt
        if event.kind in ("stopped", "stopping"):
            stopped.append(event)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        cluster.run_on_ray(study, out, address=nodes.address, save_every=EVERY_CHUNK, on_event=on_event)
    assert signal.getsignal(signal.SIGTERM) is before
    assert stopped[0] == Event("stopping")
    for event in stopped[1:]:
        assert read_status(run_folder(out, event.run)).state == "stopped"
    assert len(stopped) > 1
    assert no_tasks(nodes)
    outcome = cluster.run_on_ray(study, out, address=nodes.address)
    assert sorted(outcome.done) == sorted(study.named())
    assert max(attempts(out, run)[-1]["from_chunk"] for run in study.runs) >= 3
    assert_same_records(out, reference, study.runs)


def a_full_disk_or_another_version_stops_everything(nodes, reference, out, patch):
    study = Study("walks", WALKS[:3])
    with patch.context() as full:

        def no_room(run: Run, state: str = "running") -> None:
            raise WriteError("no space is left; make room")

        full.setattr(Run, "save", no_room)
        outcome = cluster.run_on_ray(study, out, address=nodes.address, save_every=EVERY_CHUNK)
    assert (outcome.stopped, outcome.done, outcome.failed) == ("no space is left; make room", [], {})
    patch.setattr(cluster, "__version__", "0.0.1")
    outcome = cluster.run_on_ray(study, out, address=nodes.address)
    assert "and the driver 0.0.1: install the same version on every node" in outcome.stopped
    assert (outcome.done, outcome.failed) == ([], {})


def a_launcher_killed_in_the_middle_is_continued_by_the_next(nodes, reference, out, patch):
    study = Study("walks", WALKS[:6])
    command = [sys.executable, "-c", LAUNCHER, KIND, str(out), nodes.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.split()[0] == "step" and int(line.split()[2]) >= 4:
                break
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert no_tasks(nodes)
    outcome = cluster.run_on_ray(study, out, address=nodes.address)
    assert 0 < len(outcome.done) <= 6
    assert any(attempts(out, run)[-1]["from_chunk"] >= 3 for run in study.runs)
    assert_same_records(out, reference, study.runs)


def a_node_killed_in_the_middle_costs_no_more_than_time(nodes, reference, out, patch):
    study, events = Study("walks", WALKS), []
    on_their_way: dict[str, float] = {}
    killed = threading.Event()

    def on_event(event: Event) -> None:
        events.append(event)
        if event.kind == "step":
            on_their_way[event.run] = event.chunk
        elif event.kind == "done":
            del on_their_way[event.run]
        # Three runs on their way fill all three nodes.
        if len(on_their_way) == 3 and all(2 <= chunk <= 7 for chunk in on_their_way.values()) and not killed.is_set():
            nodes.ask("kill a node")
            killed.set()

    outcome = cluster.run_on_ray(study, out, address=nodes.address, save_every=EVERY_CHUNK, on_event=on_event)
    assert killed.is_set()
    assert any(event.kind == "died" for event in events)
    assert sorted(outcome.done) == sorted(event.run for event in events if event.kind == "done") == sorted(study.named())
    deaths = sum(event.kind == "died" for event in events)
    assert sum(len(attempts(out, run)) for run in study.runs) == len(study.runs) + deaths
    assert_same_records(out, reference, study.runs)


def a_head_that_is_gone_is_told_in_a_sentence(nodes, reference, out, patch):
    patch.setattr(cluster, "HEAD_TIMEOUT", 1.0)
    patch.setattr(cluster, "POLL_NODES_EVERY", 0.2)
    study = Study("walks", grid(KIND, length=1000))
    killed = threading.Event()

    def on_event(event: Event) -> None:
        if event.kind == "step" and event.chunk >= 3 and not killed.is_set():
            nodes.ask("kill the head")
            killed.set()

    with pytest.raises(ValueError, match=r"the head of the cluster, .*, is gone"):
        cluster.run_on_ray(study, out, address=nodes.address, save_every=EVERY_CHUNK, on_event=on_event)
    with holding(run_folder(out, run_name(study.runs[0])), study.runs[0]) as run:
        assert run.chunk >= 2
    with pytest.raises(ValueError, match="no Ray cluster answers at"):
        cluster.run_on_ray(study, out, address=nodes.address)


STAGES = (
    records_are_those_of_a_local_study,
    an_experiment_that_raises_fails_and_one_that_dies_is_tried_again,
    a_run_that_another_holds_is_left_to_it_and_taken_up_later,
    interrupting_leaves_what_is_saved_and_nothing_on_the_nodes,
    a_full_disk_or_another_version_stops_everything,
    a_launcher_killed_in_the_middle_is_continued_by_the_next,
    a_node_killed_in_the_middle_costs_no_more_than_time,
    a_head_that_is_gone_is_told_in_a_sentence,
)


def no_tasks(nodes) -> bool:
    """Whether the tasks of a driver that is gone end, within seconds."""
    wait = threading.Event()
    return any(nodes.ask("tasks") == 0 or wait.wait(0.2) for _ in range(50))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", r"no Ray cluster answers at .*:1: start one with ray start --head --port 1"),
        ("nonsense", r"no Ray cluster was found at 'nonsense': start one with ray start --head, or give HOST:PORT of its head"),
        ("ray://127.0.0.1:10001", r"ray://127\.0\.0\.1:10001: streams do not work through Ray's client"),
    ],
)
def test_wrong_addresses_raise_one_sentence(address, said, tmp_path):
    pytest.importorskip("ray", reason="a cluster needs Ray: pip install 'actiongap[cluster]'")
    with pytest.raises(ValueError, match=said):
        cluster.run_on_ray(Study("walks", WALKS[:1]), tmp_path, address=address)


def test_other_servers_are_not_mistaken_for_ray():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as client:
                client.recv(100)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        assert not connection.answers(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_without_ray_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'actiongap\[cluster\]'"):
        cluster.run_on_ray(Study("walks", WALKS[:1]), tmp_path, address="auto")


def test_user_files_are_copied_to_nodes(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from lab_experiment import Walk\nfrom dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Mine(Walk): pass\n"
    )
    (experiment,) = grid(f"{mine}:Mine", length=3)
    config, files = as_config(experiment), named_files(experiment)
    assert files == {str(mine): mine.read_bytes()}
    assert node.with_files(config, files, contextlib.ExitStack()) == config
    order = {"version": cluster.__version__, "configs": [config], "chunk": 0, "save_every": EVERY_CHUNK}
    here = lines(node.compute(order, None, files))
    mine.unlink()
    elsewhere = lines(node.compute(order, None, files))
    assert here == elsewhere
    assert len(elsewhere) == experiment.chunks
    assert list(node.compute(order, None, {}))[-1]["error"].startswith(f"{mine}: no such file")


def lines(messages) -> list[bytes]:
    """The rows of each chunk of a single run."""
    return [message.lines[0] for message in messages if isinstance(message, ChunkResult)]


def test_a_task_continues_from_a_read_only_state(monkeypatch):
    monkeypatch.setattr(node, "REPORT_EVERY", 0.0)
    (experiment,) = grid(KIND, length=6, seed=4)
    order = {"version": cluster.__version__, "configs": [as_config(experiment)], "chunk": 0, "save_every": EVERY_CHUNK}
    whole = list(node.compute(order, None, {}))
    state = [message for message in whole if isinstance(message, RunState)][2].state
    for array in state.values():
        array.setflags(write=False)
    assert lines(node.compute({**order, "chunk": 3}, [state], {})) == lines(whole)[3:]


def test_states_are_sent_when_they_are_due_and_at_the_end(monkeypatch):
    (experiment,) = grid(KIND, length=6)
    order = {"version": cluster.__version__, "configs": [as_config(experiment)], "chunk": 0, "save_every": 1000.0}
    monkeypatch.setattr(node, "REPORT_EVERY", 0.0)
    told = list(node.compute(order, None, {}))[1:]
    assert [type(message) for message in told] == [ChunkResult] * 6 + [RunState]
    # The first chunk is sent at once, even if the clock counts from a recent start of the machine.
    monkeypatch.setattr(node, "REPORT_EVERY", math.inf)
    first, last, state = list(node.compute(order, None, {}))[1:]
    assert (first.chunk, last.chunk, state.status) == (1, 6, "done")
    assert first.lines[0] + last.lines[0] == b"".join(lines(told))
    assert (first.provenance is not None, last.provenance) == (True, None)
    assert asdict(from_config(order["configs"][0], trust=True)) == asdict(experiment)  # pyright: ignore[reportArgumentType]


def test_a_task_sends_the_states_of_a_batch_one_by_one(monkeypatch):
    monkeypatch.setattr(node, "REPORT_EVERY", 0.0)
    walks = batch_experiment.study(3).runs
    order = {"version": cluster.__version__, "configs": [as_config(walk) for walk in walks], "chunk": 0, "save_every": EVERY_CHUNK}
    whole = list(node.compute(order, None, {}))[1:]
    assert [type(message) for message in whole] == [ChunkResult, RunState, RunState, RunState] * 8
    states = [message.state for message in whole if isinstance(message, RunState)][6:9]
    assert [message.position for message in whole if isinstance(message, RunState)][6:9] == [0, 1, 2]
    rest = list(node.compute({**order, "chunk": 3}, states, {}))[1:]
    assert [message.lines for message in rest if isinstance(message, ChunkResult)] == [
        message.lines for message in whole if isinstance(message, ChunkResult)
    ][3:]


def test_rows_before_an_error_are_sent(monkeypatch):
    monkeypatch.setattr(node, "REPORT_EVERY", math.inf)
    walks = batch_experiment.study(2, stumbles_at=5).runs
    order = {"version": cluster.__version__, "configs": [as_config(walk) for walk in walks], "chunk": 0, "save_every": 1000.0}
    *_, first, last, error = node.compute(order, None, {})
    assert (first.chunk, last.chunk, error["error"]) == (1, 5, "RuntimeError: the rope is too short")


@pytest.mark.long
def test_batches_run_on_a_cluster(nodes, tmp_path):
    walks = batch_experiment.study(5)
    local.run_inline(walks, tmp_path / "inline", batch_size=2)
    # One of the runs is ahead of the others, and goes on by itself.
    name, walk = next(iter(walks.named().items()))
    run_experiment(run_folder(tmp_path / "cluster", name), walk, save_every=0.0, stop=lambda: True)
    outcome = cluster.run_on_ray(walks, tmp_path / "cluster", address=nodes.address, batch_size=3, save_every=EVERY_CHUNK)
    assert sorted(outcome.done) == sorted(walks.named())
    assert_same_records(tmp_path / "cluster", tmp_path / "inline", walks.runs)
    assert max(read_status(run_folder(tmp_path / "cluster", name)).batch_size or 0 for name in walks.named()) > 1
