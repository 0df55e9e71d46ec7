"""Studies in real worker processes, which are killed, interrupted, or meet a full disk."""

import contextlib
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from rich.console import Console

from actiongap.lab.checkpoint import read_checkpoint
from actiongap.lab.cost import SMALL_FILES, STARTUP_SECONDS, plan
from actiongap.lab.experiment import make
from actiongap.lab.processes import run_in_processes
from actiongap.lab.queue import RETRIES, RetryBudget
from actiongap.lab.runner import Event, run_experiment, run_folder, unfinished_runs
from actiongap.lab.store import is_done, read_status
from actiongap.lab.study import Study, grid, load_study
from actiongap.reporting.terminal import LiveTable
from lab_experiment import CURED, JOURNAL, KIND, NAP, Walk

TOKEN = "WALK_TOKEN"
"""Environment variable that identifies the processes of a test."""
SAFETY = 120
"""Seconds after which a test fails. No test measures time."""


LONG = 1500
"""Number of chunks of a run that takes longer than `SAFETY` with a nap in each chunk."""
NAPPING = {NAP: 0.1}


def study_file(folder: Path, **fields) -> Path:
    """Write a study of walks with these fields."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{fields.pop('file', 'study')}.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in {"kind": KIND, **fields}.items()]
    file.write_text("\n".join(lines) + "\n")
    return file


def troubled(file: Path, trouble: str) -> set[str]:
    """The names of the two walks in a study file that have this trouble."""
    names = {name for name, run in load_study(file, trust=True).named().items() if vars(run)["trouble"] == trouble}
    assert len(names) == 2
    return names


class Processes:
    """Starts commands, and finds them and their children by a token in their environment."""

    def __init__(self):
        self.token = f"{TOKEN}={uuid.uuid4().hex}"
        self.started: list[subprocess.Popen] = []

    def start(self, *arguments, limit: int | None = None, cwd: Path | None = None, **variables) -> subprocess.Popen:
        # If tests run in the background, the shell may have set interrupts to be ignored.
        handle_interrupt = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from actiongap.cli import main; "
        limited = "" if limit is None else f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
        name, _, value = self.token.partition("=")
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"{limited}{handle_interrupt}main({[str(argument) for argument in arguments]!r})"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, name: value, **{key: str(value) for key, value in variables.items()}},
            cwd=cwd,
        )
        self.started.append(process)
        return process

    def run(self, *arguments, **options) -> tuple[int, str, str]:
        """Run a command to its end: its exit code, output and error output."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=SAFETY)
        return process.returncode, out, err

    def alive(self) -> list[int]:
        """The processes with the token."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                # A zombie process has no environment.
                if self.token.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def wait_until_gone(self) -> None:
        wait_for(lambda: not self.alive())

    def end(self) -> None:
        for pid in self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.fixture
def processes():
    started = Processes()
    yield started
    started.end()


def children(pid: int) -> list[int]:
    """The running children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(entry.name))
    return found


def wait_for(condition) -> None:
    """Wait until a condition holds, for at most `SAFETY` seconds."""
    end = time.monotonic() + SAFETY
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def outcome(out: Path) -> dict[str, tuple]:
    """The results of every run that must not depend on interruptions."""
    found = {}
    for folder in sorted((out / "runs").iterdir()):
        last = read_checkpoint(sorted((folder / "checkpoint").glob("*.npz"))[-1])
        state = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in last.state.items()}
        rows, config = (folder / "metrics.jsonl").read_bytes(), (folder / "config.json").read_bytes()
        found[folder.name] = rows, config, last.chunk, state, read_status(folder).state
    return found


def undisturbed(file: Path, out: Path) -> dict[str, tuple]:
    """The results of a study that runs in this process without interruption."""
    for name, run in load_study(file, trust=True).named().items():
        assert run_experiment(run_folder(out, name), run) == "done"
    return outcome(out)


def rows_on_disk(out: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in out.glob("runs/*/metrics.jsonl"))


def assert_saved(out: Path) -> None:
    """Check that every started run is stopped, and saved after its last chunk."""
    for folder in (out / "runs").iterdir():
        status = read_status(folder)
        assert status.state == "stopped"
        assert status.chunk == (folder / "metrics.jsonl").read_bytes().count(b"\n") > 0
        assert read_checkpoint(sorted((folder / "checkpoint").glob("*.npz"))[-1]).chunk == status.chunk


# Processes that die


@pytest.mark.parametrize(("seeds", "kills"), [(4, 6), pytest.param(12, 30, marks=pytest.mark.long)])
def test_a_study_survives_kills_of_launcher_and_workers(tmp_path, processes, seeds, kills):
    """The launcher or one of its workers is killed several times; then the study finishes."""
    file, out = study_file(tmp_path, env=["meadow", "moor"], length=60, seeds=seeds), tmp_path / "out"
    command = ("sweep", file, "--trust", "--out", out, "--save-every", "0.1", "--workers", "2")
    launcher, rng = processes.start(*command, **{NAP: 0.04}), random.Random(0)
    targets = ["launcher", "worker", "worker"] * (kills // 3)
    rng.shuffle(targets)
    while targets:
        # Between most kills there is some progress, and sometimes there is none.
        before = rows_on_disk(out) if rng.random() < 0.7 else None
        wait_for(lambda: launcher.poll() is not None or (children(launcher.pid) and before != rows_on_disk(out)))  # noqa: B023 - called here
        time.sleep(rng.uniform(0.0, 0.3))
        workers = children(launcher.pid)
        if launcher.poll() is None and workers:
            victim = launcher.pid if targets[-1] == "launcher" else rng.choice(workers)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                targets.pop()
            if victim == launcher.pid:
                launcher.wait()
        if launcher.poll() is not None:
            # Ended by a signal, or finished with runs that failed because they died too often at the same chunk.
            assert launcher.returncode in (-signal.SIGKILL, 1)
            assert "Traceback" not in launcher.communicate()[1]
            launcher = processes.start(*command, **{NAP: 0.04})
    launcher.kill()
    launcher.communicate()
    assert 0 < rows_on_disk(out) < 2 * seeds * 60
    code, _, _ = processes.run(*command)
    assert code == 0
    assert outcome(out) == undisturbed(file, tmp_path / "alone")
    assert list(outcome(out)) == sorted(load_study(file, trust=True).named())
    assert {run[-1] for run in outcome(out).values()} == {"done"}
    assert not list((out / "runs").rglob(".*"))
    processes.wait_until_gone()
    attempts = [len(json.loads(meta.read_text())["attempts"]) for meta in out.glob("runs/*/meta.json")]
    assert max(attempts) > 1


def test_workers_save_and_exit_when_the_launcher_dies(tmp_path, processes):
    file, out = study_file(tmp_path, seeds=2, length=LONG), tmp_path / "out"
    launcher = processes.start("sweep", file, "--trust", "--out", out, "--workers", "2", **NAPPING)
    wait_for(lambda: rows_on_disk(out) > 3)
    launcher.kill()
    processes.wait_until_gone()
    assert_saved(out)
    assert processes.run("sweep", file, "--trust", "--out", out, "--workers", "2")[0] == 0
    assert outcome(out) == undisturbed(file, tmp_path / "alone")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere compiled code that keeps Python's lock hides the death of the launcher")
def test_a_worker_in_an_endless_chunk_ends_with_its_launcher(tmp_path, processes):
    out = tmp_path / "out"
    # Rates are known, so no run is probed first.
    assert processes.run("sweep", study_file(tmp_path, file="first", seed=1), "--trust", "--out", out, "--workers", "1")[0] == 0
    file = study_file(tmp_path, trouble="endless")
    launcher = processes.start("sweep", file, "--trust", "--out", out, "--workers", "1", "--save-every", "0")
    wait_for(lambda: any(read_status(file.parent).chunk == 3 for file in out.glob("runs/*/status.json")))
    launcher.kill()
    processes.wait_until_gone()
    assert processes.run("sweep", file, "--trust", "--out", out, "--workers", "1", **{CURED: 1})[0] == 0


def test_a_worker_whose_launcher_died_before_it_started_begins_nothing(tmp_path):
    order = {"probe": {}, "seconds": 1.0, "path": []}
    variables = {**os.environ, "ACTIONGAP_LAUNCHER": str(os.getppid())}
    command = [sys.executable, "-P", "-m", "actiongap.lab.worker"]
    done = subprocess.run(command, input=json.dumps(order) + "\n", env=variables, capture_output=True, text=True, timeout=SAFETY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_terminated_worker_saves_and_is_replaced(tmp_path, processes):
    file, out = study_file(tmp_path, length=100), tmp_path / "out"
    launcher = processes.start("sweep", file, "--trust", "--out", out, "--workers", "1", "--save-every", "1000", **NAPPING)
    wait_for(lambda: rows_on_disk(out) > 3)
    (worker,) = children(launcher.pid)
    os.kill(worker, signal.SIGTERM)
    wait_for(lambda: worker not in children(launcher.pid))
    assert_saved(out)
    _, events = launcher.communicate(timeout=SAFETY)
    assert launcher.returncode == 0
    assert "its worker exited with code 143; it will be resumed" in events
    assert outcome(out) == undisturbed(file, tmp_path / "alone")


@pytest.mark.every(2)
@pytest.mark.parametrize(("trouble", "told"), [("kill", "SIGKILL"), ("exit", "exited with code 7")])
def test_a_run_that_always_kills_its_worker_fails_and_the_others_finish(tmp_path, processes, trouble, told):
    file, out = study_file(tmp_path, trouble=["none", trouble], seeds=2), tmp_path / "out"
    code, said, events = processes.run("sweep", file, "--trust", "--out", out, "--workers", "2", "--save-every", "0", "--json")
    found = json.loads(said)
    assert (code, found["runs"], found["done"], len(found["failed"])) == (1, 4, 2, 2)
    wrong = troubled(file, trouble)
    assert found["failed"].keys() == wrong
    for name, text in found["failed"].items():
        assert told in text
        assert "\n" not in text
        assert f"{name}: failed: {text}" in events
        # The saved state is kept, and every attempt resumed from it.
        meta = json.loads((run_folder(out, name) / "meta.json").read_text())
        assert [attempt["from_chunk"] for attempt in meta["attempts"]] == [0, *[3] * RETRIES]
    assert {name: is_done(run_folder(out, name), run) for name, run in load_study(file, trust=True).named().items()} == {
        name: name not in wrong for name in load_study(file, trust=True).named()
    }
    # Without the error, the same command finishes the study.
    assert processes.run("sweep", file, "--trust", "--out", out, "--workers", "2", **{CURED: 1})[0] == 0
    assert not unfinished_runs(load_study(file, trust=True), out)


def test_the_retry_budget_counts_deaths_at_the_same_chunk():
    budget = RetryBudget()
    assert [budget.count_death("a", chunk) for chunk in (0, 1, 2, 3, 4, 5)] == [False] * 6
    assert [budget.count_death("b", 4) for _ in range(RETRIES + 1)] == [False] * RETRIES + [True]
    assert not budget.count_death("c", 4)
    stuck = RetryBudget()
    assert [stuck.count_death("a", chunk) for chunk in (5, 2, 5, 0)] == [False, False, False, True]


# Interrupting


@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGTERM, signal.SIGHUP)], ids=["Ctrl-C", "shutdown"])
def test_interrupts_save_all_runs_and_report_the_rest(tmp_path, processes, signals):
    file, out = study_file(tmp_path, seeds=2, length=LONG), tmp_path / "out"
    launcher = processes.start("sweep", file, "--trust", "--out", out, "--workers", "2", **NAPPING)
    wait_for(lambda: rows_on_disk(out) > 5)
    for number in signals:
        launcher.send_signal(number)
    said, events = launcher.communicate(timeout=SAFETY)
    assert (launcher.returncode, said) in [(128 + number, "") for number in signals]
    last = events.splitlines()[-1]
    assert "stopped" in last
    assert "2 of 2 runs" in last
    assert "Traceback" not in events
    processes.wait_until_gone()
    assert_saved(out)
    assert processes.run("sweep", file, "--trust", "--out", out, "--workers", "2")[0] == 0
    assert outcome(out) == undisturbed(file, tmp_path / "alone")


def _pipes(pid: int, mode: int) -> set[str]:
    """The pipes that a process has open for reading (os.O_RDONLY) or for writing (os.O_WRONLY)."""
    found = set()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            flags = int(Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().split("flags:")[1].split()[0], 8)
            if target.startswith("pipe:") and flags & os.O_ACCMODE == mode:
                found.add(target)
    return found


def test_interrupting_twice_does_not_wait_for_a_chunk(tmp_path, processes):
    out = tmp_path / "out"
    # Rates are known, so no run is probed first.
    assert processes.run("sweep", study_file(tmp_path, file="first"), "--trust", "--out", out, "--workers", "1")[0] == 0
    file = study_file(tmp_path, seeds=2)
    launcher = processes.start("sweep", file, "--trust", "--out", out, "--workers", "1", **{NAP: 10 * SAFETY})
    wait_for(lambda: len(list(out.glob("runs/*/meta.json"))) == 2)
    (worker,) = children(launcher.pid)
    (orders,) = _pipes(worker, os.O_RDONLY) & _pipes(launcher.pid, os.O_WRONLY)
    launcher.send_signal(signal.SIGINT)
    # The launcher closes the worker's input, then waits for it.
    wait_for(lambda: orders not in _pipes(launcher.pid, os.O_WRONLY))
    time.sleep(0.1)
    launcher.send_signal(signal.SIGINT)
    _, events = launcher.communicate(timeout=SAFETY)
    assert launcher.returncode == 130
    assert "Traceback" not in events
    processes.wait_until_gone()
    assert processes.run("sweep", file, "--trust", "--out", out, "--workers", "1")[0] == 0
    assert outcome(out) == undisturbed(file, tmp_path / "alone")


# Several launchers


def test_two_launchers_share_a_study_without_repeating_work(tmp_path, processes):
    rates, out, journal = tmp_path / "rates", tmp_path / "out", tmp_path / "journal"
    assert processes.run("sweep", study_file(tmp_path, file="rates"), "--trust", "--out", rates)[0] == 0
    file = study_file(tmp_path, seeds=8, length=10)
    command = ("sweep", file, "--trust", "--out", out, "--workers", "2", "--rates", rates, "--save-every", "0.1", "--json")
    both = [processes.start(*command, **{NAP: 0.03, JOURNAL: journal}) for _ in range(2)]
    for launcher in both:
        said, _ = launcher.communicate(timeout=SAFETY)
        assert launcher.returncode == 0
        found = json.loads(said)
        assert (found["runs"], found["done"], found["failed"]) == (8, 8, {})
    lines = journal.read_text().splitlines()
    assert sorted(lines) == sorted(f"meadow {seed} {chunk}" for seed in range(8) for chunk in range(10))
    assert outcome(out) == undisturbed(file, tmp_path / "alone")
    processes.wait_until_gone()


# Experiments that misbehave


def test_an_experiment_that_raises_is_reported_and_the_others_finish(tmp_path, processes):
    file, out = study_file(tmp_path, trouble=["none", "raise"], seeds=2), tmp_path / "out"
    wrong = troubled(file, "raise")
    for _ in range(2):
        code, said, _ = processes.run("sweep", file, "--trust", "--out", out, "--workers", "2")
        assert code == 1
        assert said.startswith("2 of 4 runs are done")
        sentences = re.findall(r"^failed: (\S+): RuntimeError: the walker \[red\]fell\[/red\] into a ditch$", said, re.MULTILINE)
        assert sorted(sentences) == sorted(wrong)
    assert unfinished_runs(load_study(file, trust=True), out).keys() == wrong
    code, said, _ = processes.run("sweep", file, "--trust", "--out", out, "--workers", "2", "--json", **{CURED: 1})
    assert (code, json.loads(said)["done"]) == (0, 4)
    assert not unfinished_runs(load_study(file, trust=True), out)


@pytest.mark.every(2)
@pytest.mark.parametrize("trouble", ["raise", "kill"])
def test_the_first_run_may_fail(tmp_path, processes, trouble):
    file, out = study_file(tmp_path, trouble=[trouble, "none"]), tmp_path / "out"
    code, said, _ = processes.run("sweep", file, "--trust", "--out", out, "--workers", "2", "--json")
    found = json.loads(said or "{}")
    assert (code, found.get("done"), len(found.get("failed", ()))) == (1, 1, 1)


def test_experiments_may_print(tmp_path, processes):
    file, out = study_file(tmp_path, trouble=["none", "print"], seeds=2), tmp_path / "out"
    code, said, events = processes.run("sweep", file, "--trust", "--out", out, "--workers", "2", "--json")
    assert (code, json.loads(said)["done"]) == (0, 4)
    assert "and more" not in events
    assert "and more" in "".join(log.read_text() for log in (out / "logs").iterdir())
    assert outcome(out) == undisturbed(file, tmp_path / "alone")


def test_rows_may_hold_numpy_scalars(tmp_path):
    study = Study("numbers", grid(KIND.replace(":Walk", ":NumpyRows")))
    assert run_in_processes(study, tmp_path, workers=1).failed == {}


def test_workers_import_no_modules_from_the_working_directory(tmp_path, processes):
    (tmp_path / "queue.py").write_text("raise SystemExit('not the module you want')\n")
    code, _, events = processes.run("sweep", study_file(tmp_path), "--trust", "--out", tmp_path / "out", cwd=tmp_path)
    assert (code, "not the module" in events) == (0, False)


def test_a_folder_of_another_run_fails_alone(tmp_path):
    study = Study("three", grid(KIND, seed=range(3)))
    name = list(study.named())[1]
    folder = run_folder(tmp_path, name)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    found = run_in_processes(study, tmp_path, workers=2)
    assert sorted(found.done) == sorted(set(study.named()) - {name})
    assert list(found.failed) == [name]
    assert "config.json" in found.failed[name]
    assert "\n" not in found.failed[name]
    assert (folder / "config.json").read_text() == "{}"


# Full disk


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        pytest.param({"dimensions": 3000}, 10_000, id="checkpoints"),
        pytest.param(
            {"length": 200},
            10_000,
            id="rows",
        ),
    ],
)
def test_a_full_disk_stops_the_study_and_damages_nothing(tmp_path, processes, values, limit):
    """A limit on the file size has the same effect as a full disk."""
    file, out = study_file(tmp_path, seeds=3, **values), tmp_path / "out"
    code, said, events = processes.run("sweep", file, "--trust", "--out", out, "--workers", "2", limit=limit)
    assert (code, said) == (2, "")
    sentence = events.splitlines()[-1]
    assert sentence.startswith("actiongap: ")
    assert "cannot be written" in sentence
    assert "Traceback" not in events
    processes.wait_until_gone()
    assert len(unfinished_runs(load_study(file, trust=True), out)) > 0
    assert processes.run("sweep", file, "--trust", "--out", out, "--workers", "2")[0] == 0
    assert outcome(out) == undisturbed(file, tmp_path / "alone")


def test_runs_that_cannot_be_saved_are_not_reported_as_stopped(tmp_path, processes):
    file, out = study_file(tmp_path, seeds=2, dimensions=3000), tmp_path / "out"
    _, _, events = processes.run("sweep", file, "--trust", "--out", out, "--workers", "2", limit=10_000, **{NAP: 0.02})
    assert not list(out.glob("runs/*/status.json"))
    assert ": stopped, saved" not in events


def test_a_study_that_exceeds_the_disk_is_refused(run, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    code, said, events = run("sweep", study_file(tmp_path), "--trust", "--out", tmp_path / "out")
    assert (code, said) == (2, "")
    assert "free some disk space" in events.splitlines()[-1]
    assert not (tmp_path / "out").exists()


# Cost


def _measured(folder: Path, seconds, **fields) -> list:
    """Run a study in this process and write invented times. Returns its statuses."""
    statuses = []
    for name, walk in Study("measured", grid(KIND, **fields)).named().items():
        run_experiment(run_folder(folder, name), walk)
        file = run_folder(folder, name) / "status.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "seconds": seconds(walk)}))
        statuses.append(read_status(file.parent))
    return statuses


def test_a_dry_run_takes_rates_from_another_folder_and_writes_nothing(run, tmp_path):
    statuses = _measured(tmp_path / "rates", lambda walk: 100.0 + walk.seed, seed=range(3))
    file = study_file(tmp_path, length=[8, 24], seeds=5)
    arguments = ("sweep", file, "--trust", "--out", tmp_path / "out", "--workers", "4", "--dry-run", "--rates", tmp_path / "rates")
    code, said, _ = run(*arguments, "--json")
    (found,) = json.loads(said)
    assert (code, found["study"], found["runs"], found["done"], found["workers"]) == (0, "study", 10, 0, 4)
    # 101 seconds for a run of 80 steps on average, so three times as many for one of 240.
    assert found["work"] == pytest.approx(5 * 101.0 + 5 * 303.0 + 10 * STARTUP_SECONDS)
    assert found["wall"] == pytest.approx(max(found["work"] / 4, 303.0 + STARTUP_SECONDS))
    rows = sum(status.rows for status in statuses) / 3
    others = sum(status.disk + SMALL_FILES for status in statuses) / 3
    assert found["disk"] == pytest.approx(5 * (rows + others) + 5 * (3 * rows + others), abs=2)
    assert found["free"] > 0
    assert found["gpu_hours"] == 0
    assert "3 runs" in found["basis"]
    assert "tried" not in found["basis"]
    assert not (tmp_path / "out").exists()
    code, said, _ = run(*arguments)
    assert code == 0
    assert "study" in said
    assert "10" in said


def test_without_rates_a_run_is_probed_in_memory(run, tmp_path):
    code, said, _ = run("sweep", study_file(tmp_path, seeds=5), "--trust", "--out", tmp_path / "out", "--dry-run", "--json")
    (found,) = json.loads(said)
    assert (code, found["runs"], found["done"]) == (0, 5, 0)
    assert found["work"] > 0
    assert found["disk"] > 5 * SMALL_FILES
    assert found["basis"] == "1 short trial run"
    assert not (tmp_path / "out").exists()


def test_the_cost_of_runs_that_fail_the_probe_is_unknown(run, tmp_path):
    arguments = ("sweep", study_file(tmp_path, trouble="raise", at=0), "--trust", "--out", tmp_path / "out", "--dry-run")
    code, said, _ = run(*arguments, "--json")
    (found,) = json.loads(said)
    assert code == 0
    assert found["basis"].startswith("nothing measured: give --rates; a trial run failed: ")
    code, said, _ = run(*arguments)
    assert code == 0
    assert "?" in said
    assert "a trial run failed" in " ".join(said.split())


def test_finished_runs_cost_nothing(tmp_path):
    _measured(tmp_path, lambda walk: 100.0, seed=range(3))
    study = Study("more", grid(KIND, seed=range(5)))
    found = plan(study, tmp_path, workers=2)
    assert (found.runs, found.done, found.work) == (5, 3, pytest.approx(200.0 + 2 * STARTUP_SECONDS))
    half = list(study.named().items())[4]
    count = iter(range(100))
    run_experiment(run_folder(tmp_path, half[0]), half[1], stop=lambda: next(count) >= 5)
    file = run_folder(tmp_path, half[0]) / "status.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "seconds": 75.0}))
    assert plan(study, tmp_path, workers=2).work == pytest.approx(100.0 + 25.0 + 2 * STARTUP_SECONDS)
    done = Study("done", grid(KIND, seed=range(3)))
    assert (plan(done, tmp_path, workers=2).work, plan(done, tmp_path, workers=2).wall) == (0, 0)


def test_rates_of_equal_configurations_come_first(tmp_path):
    _measured(tmp_path / "rates", lambda walk: 1000.0 if walk.drift else 10.0, drift=[0.0, 0.5], seed=range(2))
    for drift, seconds in ((0.0, 10.0), (0.5, 1000.0)):
        found = plan(Study("same", grid(KIND, drift=drift, seed=[7, 8])), tmp_path / "out", workers=1, rates=[tmp_path / "rates"])
        assert found.work == pytest.approx(2 * (seconds + STARTUP_SECONDS))


@pytest.mark.parametrize("spec", [None, {}, 3, [1], "x"], ids=repr)
def test_rates_of_damaged_folders_are_ignored(tmp_path, spec):
    _measured(tmp_path / "rates", lambda walk: 10.0, seed=[0, 1])
    file = next((tmp_path / "rates").glob("runs/*/config.json"))
    file.write_text(json.dumps({**json.loads(file.read_text()), "spec": spec}))
    (tmp_path / "rates" / "runs" / "a file").write_text("")
    (tmp_path / "rates" / "runs" / "empty").mkdir()
    found = plan(Study("one", grid(KIND, seed=5)), tmp_path / "out", workers=1, rates=[tmp_path / "rates"])
    assert found.work == pytest.approx(10.0 + STARTUP_SECONDS)


# Errors


BAD = [
    ({"kind": "nothing"}, ()),
    ({"speed": 3}, ()),
    ({"length": "x"}, ()),
    ({"length": []}, ()),
    ({"seeds": 0}, ()),
    ({"cpus": -1}, ()),
    ({}, ("--workers", "0")),
    ({}, ("--workers", "x")),
    ({}, ("--save-every", "-1")),
    ({}, ("--save-every", "nan")),
    ({}, ("--speed", "3")),
    ({"gpus": 4}, ()),
    ({"gpus": 0.25}, ("--workers", "1")),
    ({"length": 0}, ()),
    ({"cpus": float("inf")}, ()),
]


@pytest.mark.parametrize(("fields", "options"), BAD)
def test_bad_studies_are_one_sentence_and_nothing_is_written(run, tmp_path, monkeypatch, fields, options):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    file = study_file(tmp_path, **fields)
    file.write_text(file.read_text().replace("Infinity", "inf"))
    code, said, events = run("sweep", file, "--trust", "--out", tmp_path / "out", *options)
    assert (code, said, events.count("\n")) == (2, "", 1)
    assert events.startswith("actiongap: ")
    assert os.listdir(tmp_path) == ["study.toml"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("study.toml",),
        ("missing.toml", "--out", "out"),
        ("nothing", "--out", "out"),
        ("q-learning", "--env", "cake"),
        ("q-learning", "--env", "nowhere", "--out", "out"),
        ("q-learning", "--env", "cake", "--steps", "many", "--out", "out"),
        ("nowhere.py:Walk", "--out", "out"),
    ],
    ids=" ".join,
)
def test_bad_commands_are_one_sentence_and_nothing_is_written(run, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    code, said, events = run("sweep", *arguments)
    assert (code, said, events.count("\n")) == (2, "", 1)
    assert events.startswith("actiongap: ")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["workers", "out", "json", "rates"])
def test_fields_with_the_name_of_an_option_are_refused_in_a_sentence(run, tmp_path, name):
    file = tmp_path / "own.py"
    walk = KIND.rpartition(":")[0]
    file.write_text(Path(walk).read_text().replace("    at: int = 3\n", f"    at: int = 3\n    {name}: int = 0\n", 1))
    code, said, events = run("sweep", f"{file}:Walk", "--out", tmp_path / "out")
    assert (code, said, events.count("\n")) == (2, "", 1)


def test_a_file_where_the_folder_should_be_is_left_alone(run, tmp_path):
    (tmp_path / "out").write_text("mine")
    code, said, events = run("sweep", study_file(tmp_path), "--trust", "--out", tmp_path / "out")
    assert (code, said) == (2, "")
    assert events.splitlines()[-1].startswith("actiongap: ")
    assert (tmp_path / "out").read_text() == "mine"


def test_fields_can_be_given_on_the_command_line(run, tmp_path):
    out = tmp_path / "out"
    code, said, _ = run(
        "sweep", KIND, "--seed", "0", "--seeds", "2", "--drift", "0.5", "1", "--marks", "3", "4", "--length", "3", "--out", out, "--json"
    )
    assert (code, json.loads(said)["done"]) == (0, 4)
    configs = [json.loads(file.read_text())["spec"] for file in out.glob("runs/*/config.json")]
    assert sorted((spec["seed"], spec["drift"], spec["marks"]) for spec in configs) == [
        (seed, drift, [3.0, 4.0]) for seed in (0, 1) for drift in (0.5, 1.0)
    ]
    # Nothing is left to run. The configuration of a run is a study too.
    before = outcome(out)
    code, said, events = run("sweep", next(out.glob("runs/*/config.json")), "--trust", "--out", out, "--json")
    assert (code, json.loads(said)["done"]) == (0, 1)
    assert "done already" in events
    assert outcome(out) == before


def test_finished_runs_need_no_accelerator(run, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    out = tmp_path / "out"
    assert run("sweep", study_file(tmp_path), "--trust", "--out", out)[0] == 0
    before = outcome(out)
    code, _, events = run("sweep", study_file(tmp_path, gpus=4), "--trust", "--out", out)
    assert (code, "done already" in events, outcome(out)) == (0, True, before)
    # One more seed needs an accelerator, and there is none.
    code, _, events = run("sweep", study_file(tmp_path, gpus=4, seeds=99), "--trust", "--out", out)
    assert (code, "needs 4 accelerators" in events, outcome(out)) == (2, True, before)


# Output


def test_events_of_a_run_are_started_steps_done(tmp_path):
    study, events = Study("three", grid(KIND, seed=range(3))), []
    found = run_in_processes(study, tmp_path, workers=2, on_event=events.append)
    assert sorted(found.done) == sorted(study.named())
    for name in study.named():
        kinds = [event.kind for event in events if event.run == name]
        assert (kinds[0], kinds[-1], set(kinds[1:-1])) == ("started", "done", {"step"})
    steps = [event for event in events if event.kind == "step"]
    assert all(event.rows[-1]["step"] == 10 * event.chunk for event in steps)
    # Reports are at least 0.2 s apart, and no row is lost between them.
    for name, experiment in study.named().items():
        rows = [row for event in steps if event.run == name for row in event.rows]
        assert [row["step"] for row in rows] == [10 * chunk for chunk in range(1, experiment.chunks + 1)]
    record = json.loads((tmp_path / "study.json").read_text())
    assert (record["name"], record["runs"]) == ("three", list(study.named()))
    assert run_in_processes(study, tmp_path, workers=1).done == []


def test_temporary_study_records_are_removed(tmp_path):
    run_in_processes(Study("one", grid(KIND)), tmp_path, workers=1)
    (tmp_path / ".study.json.0123abcd").write_text('{"for')
    os.utime(tmp_path / ".study.json.0123abcd", (0, 0))
    run_in_processes(Study("one", grid(KIND)), tmp_path, workers=1)
    assert not list(tmp_path.glob(".study*"))


def test_a_study_leaves_folders_of_others_alone(run, tmp_path):
    command, out = ("sweep", study_file(tmp_path), "--trust", "--workers", "1", "--out", tmp_path / "out"), tmp_path / "out"
    out.mkdir()
    (out / "study.json").write_text("somebody's")
    (out / ".backup.20260101").write_text("somebody's")
    os.utime(out / ".backup.20260101", (0, 0))
    code, _, said = run(*command)
    assert (code, said.count("\n")) == (2, 1)
    assert "study.json: it is not JSON" in said
    assert "choose another --out" in said
    assert sorted(os.listdir(out)) == [".backup.20260101", "study.json"]
    (out / "study.json").unlink()
    [name] = load_study(tmp_path / "study.toml", trust=True).named()
    (folder := run_folder(out, name)).mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("somebody's")
    code, told, _ = run(*command, "--json")
    assert (code, list(json.loads(told)["failed"])) == (1, [name])
    assert "holds metrics.jsonl and no config.json" in json.loads(told)["failed"][name]
    assert os.listdir(folder) == ["metrics.jsonl"]
    (folder / "metrics.jsonl").unlink()
    assert run(*command)[0] == 0
    assert (out / ".backup.20260101").exists()
    # A damaged study.json beside our runs is written again, and valid JSON of another program is not.
    (out / "study.json").write_text("{")
    assert run(*command)[0] == 0
    assert json.loads((out / "study.json").read_text())["runs"] == [name]
    (out / "study.json").write_text('{"their": "study"}')
    code, _, said = run(*command)
    assert (code, said.count("\n"), (out / "study.json").read_text()) == (2, 1, '{"their": "study"}')


def test_temporary_files_in_a_folder_without_a_study_stay(tmp_path):
    (left := tmp_path / ".study.json.0123abcd").write_text("somebody's")
    os.utime(left, (0, 0))
    run_in_processes(Study("one", grid(KIND)), tmp_path, workers=1)
    assert left.read_text() == "somebody's"


@pytest.mark.parametrize("make_it", [lambda log: log.write_text("somebody's"), os.mkfifo], ids=["file", "pipe"])
def test_the_logs_of_another_program_are_left_alone(run, tmp_path, make_it):
    log = tmp_path / "out" / "logs" / "worker-0.log"
    log.parent.mkdir(parents=True)
    make_it(log)
    code, _, said = run("sweep", study_file(tmp_path), "--trust", "--workers", "1", "--out", tmp_path / "out")
    assert (code, said.count("\n")) == (2, 1)
    assert "holds logs/worker-0.log and no study.json, so it is not a study: choose another --out" in said
    assert list((tmp_path / "out").rglob("*")) == [log.parent, log]
    assert not log.is_file() or log.read_text() == "somebody's"


@pytest.mark.parametrize("name", ["study.json", "runs", "logs", "logs/worker-0.log", "RUN"])
def test_a_study_is_not_written_through_links(run, tmp_path, name):
    out, file = tmp_path / "out", study_file(tmp_path)
    [only] = load_study(file, trust=True).named()
    link = run_folder(out, only) if name == "RUN" else out / name
    link.parent.mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    link.symlink_to(tmp_path / "outside" / "file" if "." in name else tmp_path / "outside")
    code, _, said = run("sweep", file, "--trust", "--workers", "1", "--out", out)
    assert (code, said.count("\n")) == (2, 1)
    assert f"{link} is a symbolic link" in said
    assert os.listdir(tmp_path / "outside") == []


def test_finished_runs_may_be_links(run, tmp_path):
    file = study_file(tmp_path)
    [only] = load_study(file, trust=True).named()
    assert run("sweep", file, "--trust", "--workers", "1", "--out", tmp_path / "one")[0] == 0
    link = run_folder(tmp_path / "other", only)
    link.parent.mkdir(parents=True)
    link.symlink_to(run_folder(tmp_path / "one", only))
    assert run("sweep", file, "--trust", "--workers", "1", "--out", tmp_path / "other")[0] == 0


HOSTILE = ["[red]not red[/red]", "[/]", "[bold", "back\\", "a\\[b]", "\x07bell"]


def _table(names, **options) -> tuple[LiveTable, io.StringIO]:
    written = io.StringIO()
    console = Console(file=written, width=100, height=60, color_system=None, **options)
    return LiveTable({name: make(KIND, {"seed": i, "env": name}) for i, name in enumerate(names)}, 2, console), written


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_shown_as_they_are(name, terminal):
    table, written = _table([name], force_terminal=terminal)
    with table:
        table(Event("started", name))
        table(Event("step", name, 3, ({"step": 30, "height": 1.25, "gap": None},)))
        assert name.replace("\x07", "\ufffd") in _shown(table)
        table(Event("failed", name, text=f"it met {name}"))
    assert f"{name}: failed: it met {name}".replace("\x07", "\ufffd") in written.getvalue()
    assert "\x07" not in written.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_messages_cannot_control_the_terminal(terminal):
    table, written = _table(["a run"], force_terminal=terminal)
    with table:
        table(Event("started", "a run"))
        table(Event("failed", "a run", text="it met \x1b]0;title\x07 and \x1b[2J"))
    assert "\x1b]0" not in written.getvalue()
    assert "\x1b[2J" not in written.getvalue()


def _shown(table: LiveTable) -> str:
    console = Console(file=io.StringIO(), width=100, height=60, force_terminal=True, color_system=None)
    console.print(table.render())
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_table_shows_every_event():
    names = [f"run {i}" for i in range(24)]
    table, written = _table(names, force_terminal=True)
    with table:
        assert "2 of 26 runs done" in _shown(table)
        for name in names:
            table(Event("started", name))
        assert "and 8 more" in _shown(table)
        for name in names[4:]:
            table(Event("step", name, 1))
        table(Event("step", names[0], 2, ({"step": 20, "height": float("nan"), "gap": "wide"},)))
        table(Event("step", names[0], 4, ({"step": 40, "height": 1.23456, "gap": 0.5},)))
        shown = _shown(table)
        assert "1.235" in shown
        assert "0.5" in shown
        assert "/s" in shown
        table(Event("done", names[0]))
        table(Event("failed", names[1], text="it fell"))
        table(Event("died", names[2], text="its worker was killed by SIGKILL"))
        table(Event("started", names[2]))
        table(Event("busy", names[3]))
        table(Event("done", names[3]))
        table(Event("stopping"))
        table(Event("stopped", names[4]))
        shown = _shown(table)
        assert "4 of 26 runs done, 1 failed" in shown
        assert names[1] not in shown.split()
    for text in ("run 1: failed: it fell", "run 2: its worker was killed by SIGKILL", "run 4: stopped"):
        assert text in written.getvalue()


def test_without_a_terminal_every_event_is_a_line():
    table, written = _table(["a", "b"], force_terminal=False)
    with table:
        for event in (
            Event("started", "a"),
            Event("step", "a", 1),
            Event("done", "a"),
            Event("started", "b"),
            Event("failed", "b", text="oh"),
            Event("note", text="it takes [much] memory"),
        ):
            table(event)
    lines = written.getvalue().splitlines()
    assert lines[0].startswith("[3/4] a: done")
    assert lines[1:] == ["[4/4] b: failed: oh", "it takes [much] memory"]


def test_a_table_can_be_drawn_while_runs_start_and_end():
    """Another thread draws the table, so a run may start while it is drawn."""
    table, _ = _table(["a"], force_terminal=True)
    table(Event("started", "a"))
    run = table.active["a"]

    class Coming:
        def __getattr__(self, name):
            table.active[f"run {len(table.active)}"] = run
            return getattr(run, name)

    table.active["a"] = Coming()  # pyright: ignore[reportArgumentType]
    assert "Ctrl-C" in _shown(table)


def test_kinds_of_a_file_include_its_path():
    """`Walk` has its own kind, and the kind of its file once it is loaded from there."""
    assert Walk.kind == "walk"
    assert make(KIND, {}).kind == KIND


# Changed code


def test_a_study_does_not_continue_with_changed_code(run, tmp_path):
    mine = tmp_path / "mine.py"
    text = Path(KIND.rpartition(":")[0]).read_text()
    mine.write_text(text)
    command = ("sweep", f"{mine}:Walk", "--length", "4", "--out", tmp_path / "out")
    assert run(*command)[0] == 0
    assert run(*command)[0] == 0
    mine.write_text(text + "\n# another thought\ndef another():\n    return 0\n")
    assert run(*command)[0] == 0
    mine.write_text(text.replace("standard_normal", "standard_cauchy"))
    # Runs made with different versions of a class cannot be compared.
    code, _, said = run(*command, "--seeds", "2")
    assert code == 2
    assert "mine.py:Walk has changed since runs" in " ".join(said.split())


def test_a_run_does_not_continue_with_changed_code(tmp_path):
    mine = tmp_path / "mine.py"
    text = Path(KIND.rpartition(":")[0]).read_text()
    mine.write_text(text)
    (walk,) = grid(f"{mine}:Walk", length=4)
    assert run_experiment(tmp_path / "run", walk, stop=lambda: True) == "stopped"
    mine.write_text(text.replace("standard_normal", "standard_cauchy"))
    with pytest.raises(ValueError, match=r"mine\.py:Walk has changed since run began"):
        run_experiment(tmp_path / "run", walk)


def test_rows_without_a_declared_column_are_refused(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(Path(KIND.rpartition(":")[0]).read_text().replace('"gap": float(', '"gpa": float('))
    (walk,) = grid(f"{mine}:Walk", length=4)
    assert run_experiment(tmp_path / "run", walk) == "failed"
    assert "a row has step, height, gpa, visits but no 'gap'" in (read_status(tmp_path / "run").error or "")
