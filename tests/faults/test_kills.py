"""A command that is killed or interrupted after it saved something goes on from there, and ends with the bytes of an undisturbed one.

The command stops itself at a chosen point, after it has saved, and waits; there it is killed. No test depends on how fast it is.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import batch_experiment
import lab_experiment
from faults import samples
from faults.commands import assert_plain, wait_until

SMALL_CHUNKS = """
import actiongap.lab.kinds.plan, actiongap.lab.runner, actiongap.api.agents
actiongap.lab.kinds.plan.STEPS["numpy"] = 1
actiongap.lab.runner.SAVE_EVERY = actiongap.api.agents.SAVE_EVERY = 0.0
from actiongap.cli import main
main({words!r})
"""
"""A command whose plans have a chunk for each evaluation, and which saves after every chunk."""
CHECKPOINT = r"checkpoint/\.?[0-9]{8}\.npz"
SAVED = {"call": "replace", "match": CHECKPOINT, "how": "pause", "after": True}
"""Wait after a checkpoint was saved."""
FINITE = ("--env", "cake", "--rows", "4", "--out", "out", "--workers", "1", "--save-every", "0")
WALK = ("--length", "6", "--out", "out", "--save-every", "0")


class Job(NamedTuple):
    """A command, and how it is run."""

    words: tuple[str, ...]
    chunks: int
    workers: bool
    """Whether processes of its own do the work."""
    members: int = 1
    """The number of runs that are saved one after the other."""


JOBS = {
    "q-learning": Job(("sweep", "q-learning", "--steps", "200", *FINITE), 4, True),
    "plan": Job(("plan", *samples.PLAN, "--out", "out"), 4, False),
    "walk": Job(("sweep", lab_experiment.KIND, *WALK, "--workers", "1"), 6, True),
    "batch": Job(("sweep", batch_experiment.KIND, *WALK, "--seeds", "3"), 6, False, members=3),
    "fitted-q": Job(("sweep", "fitted-q", "--iterations", "8", "--transitions", "50", *FINITE), 4, True),
    "noisy-backups": Job(("sweep", "noisy-backups", "--sweeps", "8", *FINITE), 4, True),
    "train": Job(
        (
            "train",
            "minatar/breakout",
            *(f"--{name.replace('_', '-')}={value}" for name, value in samples.TRAIN.items() if name != "env"),
            "--out",
            "out",
        ),
        3,
        False,
    ),
}


def jobs(*names: str, first: int = 0) -> list[Any]:
    """Cases of jobs: the first ones are short tests."""
    return [pytest.param(name, marks=() if k < first else pytest.mark.long) for k, name in enumerate(names or JOBS)]


def runs(folder: Path) -> dict[str, Path]:
    """The runs below a folder, by where they are."""
    return {str(file.parent.relative_to(folder)): file.parent for file in sorted(folder.rglob("config.json"))}


def outcomes(folder: Path) -> dict[str, Any]:
    return {name: samples.outcome(run) for name, run in runs(folder).items()}


def saved_chunks(folder: Path) -> list[int]:
    """The chunks that the checkpoints of unfinished runs hold."""
    return sorted(int(file.stem) for file in folder.rglob("checkpoint/[0-9]*.npz"))


def states(folder: Path) -> list[str]:
    """The states of the runs that have one."""
    files = [run / "status.json" for run in runs(folder).values()]
    return [json.loads(file.read_text())["state"] for file in files if file.exists()]


def attempts(folder: Path) -> list[int]:
    """Where the attempts at the runs began."""
    return [attempt["from_chunk"] for run in runs(folder).values() for attempt in json.loads((run / "meta.json").read_text())["attempts"]]


class Disturbed:
    """A job in a folder, which can be paused."""

    def __init__(self, server, folder: Path, job: Job):
        self.server, self.folder, self.job = server, folder, job
        self.note = folder / "note"
        self.out = folder / "out"

    def start(self, at: int, **changes: Any) -> None:
        """Start the job, and wait until it has saved `at` chunks in this attempt."""
        faults = {"under": str(self.out), "at": at * self.job.members, "note": str(self.note), **SAVED, **changes}
        self.go_on()
        # The first process of a study only launches others, which have the layer because of PYTHONPATH.
        self.server.start(cwd=self.folder, code=SMALL_CHUNKS.format(words=list(self.job.words)), faults=faults)
        wait_until(lambda: (self.note.exists() and self.note.read_text()) or self.server.ended())
        assert self.note.exists(), self.server.wait()

    @property
    def paused(self) -> int:
        """The process that waits."""
        return int(self.note.read_text())

    def go_on(self) -> None:
        """Remove the notes of the last fault."""
        for file in (self.note, self.note.with_name("note.once")):
            file.unlink(missing_ok=True)

    def finish(self) -> Any:
        """Run the same command to its end, undisturbed."""
        ended = self.server.run(cwd=self.folder, code=SMALL_CHUNKS.format(words=list(self.job.words)))
        assert_plain(ended)
        assert ended.code == 0, ended
        return outcomes(self.out)

    def kill(self, victim: str) -> None:
        """Kill the process that waits, the one that was started, or both."""
        pids = {"waiting": [self.paused], "launcher": [self.server.pid], "both": [self.server.pid, self.paused]}[victim]
        for pid in dict.fromkeys(pids):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def references(server, tmp_path_factory):
    """The outcome of each job when nothing disturbs it."""
    known: dict[str, Any] = {}

    def reference(name: str) -> Any:
        if name not in known:
            folder = tmp_path_factory.mktemp("reference")
            folder.chmod(0o777)
            known[name] = Disturbed(PrivilegedServer(server), folder, JOBS[name]).finish()
        return known[name]

    return reference


class PrivilegedServer:
    """Runs commands as the user who runs the tests, whose temporary folders nobody else can read."""

    def __init__(self, server):
        self.server = server

    def run(self, *arguments: Any, **options: Any) -> Any:
        return self.server.run(*arguments, **options, privileged=True)


@pytest.mark.parametrize("name", jobs("plan", *(name for name in JOBS if name != "plan"), first=1))
def test_a_job_that_is_killed_after_every_save_ends_the_same(server, place, references, record_property, name):
    job = Disturbed(server, place, JOBS[name])
    for killed in range(1, job.job.chunks):
        job.start(at=1)
        # Something was saved before the kill, one chunk more than the time before.
        assert max(saved_chunks(job.out)) == killed
        assert "done" not in states(job.out)
        job.kill("both")
        server.wait()
        job.go_on()
    assert job.finish() == references(name)
    assert sorted(set(attempts(job.out))) == list(range(job.job.chunks))
    record_property("cases", job.job.chunks - 1)


@pytest.mark.parametrize("name", jobs("q-learning", "walk", first=0))
def test_a_worker_that_is_killed_is_replaced(server, place, references, name):
    job = Disturbed(server, place, JOBS[name])
    job.start(at=2)
    assert max(saved_chunks(job.out)) == 2
    job.kill("waiting")
    ended = server.wait()
    assert (ended.code, ended.left) == (0, 0), ended
    assert outcomes(job.out) == references(name)
    assert 2 in attempts(job.out)


@pytest.mark.parametrize("name", jobs("q-learning", "walk", first=0))
def test_a_launcher_that_is_killed_is_replaced(server, place, references, name):
    job = Disturbed(server, place, JOBS[name])
    job.start(at=2)
    assert max(saved_chunks(job.out)) == 2
    job.kill("launcher")
    server.wait()
    job.go_on()
    assert job.finish() == references(name)
    assert max(attempts(job.out)) >= 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("name", jobs("plan", "q-learning", "batch", "train", first=1))
def test_an_interrupted_job_saves_and_says_so(server, place, references, name, number):
    job = Disturbed(server, place, JOBS[name])
    job.start(at=1)
    os.kill(server.pid, number)
    job.note.unlink()
    ended = server.wait()
    assert_plain(ended)
    assert ended.code in (130, 128 + number), ended
    assert set(states(job.out)) == {"stopped"}
    assert ended.left == 0
    before = max(saved_chunks(job.out))
    assert 1 <= before < job.job.chunks
    assert job.finish() == references(name)
    assert max(attempts(job.out)) == before


@pytest.mark.parametrize("name", jobs("plan", "q-learning", first=0))
def test_what_a_killed_command_left_behind_is_swept(server, place, references, name):
    job = Disturbed(server, place, JOBS[name])
    job.start(at=2, after=False)
    job.kill("both")
    server.wait()
    job.go_on()
    # It was killed before a checkpoint got its name.
    assert list(job.out.rglob(".*.npz.*"))
    assert job.finish() == references(name)
    assert not list(job.out.rglob(".*"))
