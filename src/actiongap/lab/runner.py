"""Working on a run: chunk after chunk, saving now and then, until it is done or told to stop.

What all launchers have in common: where a study's runs are, which of them are left, and what is told about them.

A study's folder holds `study.json`, which says what was asked for, and a folder in `runs/` for every run.

Ctrl-C that is heeded when it suits: what is being done is finished and saved first.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from actiongap._files import WriteError, make_directory, sweep_up, write_text
from actiongap.lab.experiment import FORMAT, VERSION, Experiment, Row, State, fingerprints
from actiongap.lab.provenance import describe
from actiongap.lab.store import RunOutcome, attempts, changed_files, encode_rows, holding, is_done, plain_row
from actiongap.lab.study import Study
from actiongap.lab.validation import read_record

SAVE_EVERY = 10.0
"""Seconds between checkpoints: at most so much work is lost when a process dies."""


class ChunkResult(NamedTuple):
    """What one chunk came to."""

    chunk: int
    """How many chunks are done."""
    lines: bytes
    """Its rows, as they are written."""
    last: Row | None
    """The last of them."""
    state: Callable[[], State]
    """Gives the state after it, until the next chunk is done."""
    seconds: float
    """How long it took."""


def run_chunks(experiment: Experiment, state: State | None, chunk: int) -> Iterator[ChunkResult]:
    """Do what is left of an experiment, from the state after `chunk` chunks.

    Examples
    --------
    >>> from actiongap.lab.experiment import make
    >>> [step.chunk for step in steps(make("q-learning", {"env": "cake", "steps": 100, "rows": 2}), None, 0)]
    [1, 2]
    """
    begun, going_on = time.perf_counter(), experiment.go_on(state, chunk)
    # It may be as large as memory, and whoever goes on from it lets go of it.
    del state
    for done, (rows, after) in enumerate(going_on, chunk + 1):
        rows = check_rows(experiment, rows)
        yield ChunkResult(done, encode_rows(rows), rows[-1] if rows else None, after, time.perf_counter() - begun)
        begun = time.perf_counter()


def check_rows(experiment: Experiment, rows: Sequence[Row]) -> list[Row]:
    """The rows of an experiment as they are written, if they have what they should."""
    rows = [plain_row(row) for row in rows]
    for row in rows:
        if missing := sorted({"step", *experiment.columns} - row.keys()):
            raise ValueError(f"a row has no {missing[0]!r}, it has {', '.join(row)}: rows have step and what columns declares")
    return rows


def run_experiment(
    folder: str | Path,
    experiment: Experiment,
    *,
    command: str = "",
    save_every: float = SAVE_EVERY,
    stop: Callable[[], bool] = lambda: False,
    on_chunk: Callable[[ChunkResult], None] = lambda step: None,
) -> RunOutcome:
    """Work on the run in `folder` until it is done, fails, or `stop` says so after a chunk; what was done before is not done again.

    Failing is told in the run's status. BusyError and WriteError are raised: another process works on it, or there is no room.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.experiment import make
    >>> run_experiment(tempfile.mkdtemp(), make("q-learning", {"env": "cake", "steps": 100, "rows": 2}))
    'done'
    """
    with holding(folder, experiment, command) as run:
        saved, first = time.monotonic(), True
        try:
            for step in run_chunks(experiment, run.state, run.chunk):
                run.append(step.chunk, step.lines, None, step.seconds)
                on_chunk(step)
                if first:
                    # Only now is it known what the experiment runs on.
                    run.record_attempt(describe())
                    first = False
                how = "done" if step.chunk == experiment.chunks else "stopped" if stop() else "running"
                if how != "running" or time.monotonic() - saved >= save_every:
                    run.state = step.state()
                    run.save(how)
                    saved = time.monotonic()
                if how != "running":
                    return how
            # Killed after its last checkpoint, before its status said so.
            run.save("done")
        except WriteError:
            raise
        except Exception as error:
            run.fail(error_message(error), traceback.format_exc())
            return "failed"
        return "done"


def error_message(error: BaseException) -> str:
    """What went wrong, in one line.

    Examples
    --------
    >>> sentence(KeyError("q"))
    "KeyError: 'q'"
    """
    text = " ".join(str(error).split())
    return text if text and isinstance(error, ValueError) else f"{type(error).__name__}: {text}".removesuffix(": ")


RETRIES = 3
"""How often a run is taken up again after its worker died without having come any further."""
RETRY_AFTER = 1.0
"""Seconds after which a run that another process holds is tried again."""
EventKind = Literal["started", "step", "done", "failed", "died", "busy", "stopped", "stopping", "note"]


class Event(NamedTuple):
    """Something that happened to a run, or to all of them: `stopping` and `note` have no run."""

    kind: EventKind
    run: str = ""
    chunk: float = 0
    """How many chunks are done, where it is a step; with a part of the next, if somebody tells."""
    row: Row | None = None
    """The last row, where it is a step."""
    text: str = ""
    """What went wrong, where something did, or what else there is to know."""


OnEvent = Callable[[Event], None]


@dataclass
class StudyOutcome:
    """What a launcher came to."""

    done: list[str] = field(default_factory=list)
    """Runs that were finished now."""
    failed: dict[str, str] = field(default_factory=dict)
    """Runs that could not be finished, each with a sentence."""
    busy: list[str] = field(default_factory=list)
    """Runs that were left to another process, which held them."""
    stopped: str = ""
    """Why everything was stopped before its end; empty where it was not."""


def run_folder(out: str | Path, name: str) -> Path:
    """Where a run of a study is.

    Examples
    --------
    >>> run_folder("out", "q-learning_cake").as_posix()
    'out/runs/q-learning_cake'
    """
    return Path(out) / "runs" / name


def unfinished_runs(study: Study, out: str | Path) -> dict[str, Experiment]:
    """The runs of a study that are not done yet.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> len(unfinished_runs(Study("cakes", grid("q-learning", env="cake", seed=range(3))), tempfile.mkdtemp()))
    3
    """
    return {name: run for name, run in study.named().items() if not is_done(run_folder(out, name), run)}


def changed_source(study: Study, out: str | Path) -> str:
    """One of the user's own files that has changed since a run of the study was made with it; empty if none has."""
    for name, run in study.named().items():
        files = fingerprints(run)
        made = attempts(run_folder(out, name)) if files else []
        if made and (changed := changed_files(made[-1], files)):
            return changed
    return ""


def check_out(study: Study, out: str | Path) -> None:
    """Refuse, in one sentence, a folder whose `study.json` is not ours, or in which symbolic links lead elsewhere; nothing is touched.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> check_out(Study("cakes", grid("q-learning", env="cake")), tempfile.mkdtemp())
    """
    folder = Path(out)
    file, runs, logs = folder / "study.json", folder / "runs", folder / "logs"
    # What is done is not written again, so a link to it does no harm.
    places = {run_folder(folder, name): run for name, run in study.named().items()}
    for path in (file, runs, logs, *logs.glob("worker-*.log"), *places):
        if path.is_symlink() and not (path in places and is_done(path, places[path])):
            raise ValueError(f"{path} is a symbolic link, and runs are not written through links: move it away, or choose another --out")
    if not file.exists():
        return
    try:
        read_record(file)
    except ValueError as error:
        # Where runs of ours are, a record that is damaged is written again.
        if not any(_is_run(folder) for folder in runs.glob("*")):
            raise ValueError(f"{error}, and there are no runs beside it: choose another --out, or move it away") from None


def _is_run(folder: Path) -> bool:
    try:
        return bool(read_record(folder / "config.json"))
    except ValueError:
        return False


def open_study(study: Study, out: str | Path, command: str) -> Path:
    """Make a study's folder and write down what was asked for."""
    check_out(study, out)
    folder = make_directory(out)
    # Another launcher may be writing right now.
    sweep_up(folder, re.compile(r"study\.json"), older_than=3600.0)
    record = {"format": FORMAT, "version": VERSION, "name": study.name, "command": command, **describe(), "runs": list(study.named())}
    write_text(folder / "study.json", json.dumps(record, indent=1) + "\n")
    return folder


class RetryBudget:
    """How often each run's worker may die: `RETRIES` times in a row at the same chunk."""

    def __init__(self) -> None:
        self._deaths: dict[str, tuple[int, int]] = {}

    def lost(self, run: str, chunk: int) -> bool:
        """Take note that a run's worker died when `chunk` chunks were done; whether that was once too often."""
        before, count = self._deaths.get(run, (-1, 0))
        count = count + 1 if chunk <= before else 1
        self._deaths[run] = (max(chunk, before), count)
        return count > RETRIES


class StudyQueue:
    """What is left to do of a study: runs that wait for a worker, and runs that another process holds, to be looked at again."""

    def __init__(self, study: Study, folder: Path, on_event: OnEvent):
        self.folder, self.on_event = folder, on_event
        self.waiting = deque(unfinished_runs(study, folder).items())
        self.elsewhere: list[tuple[float, str, Experiment]] = []
        self.outcome, self.patience = StudyOutcome(), RetryBudget()

    def leave(self, name: str, experiment: Experiment) -> None:
        """Leave a run to the process that holds it, for now."""
        self.elsewhere.append((time.monotonic() + RETRY_AFTER, name, experiment))

    def look_again(self) -> None:
        """Runs that others held a while ago may be done by now, or left lying."""
        now = time.monotonic()
        for entry in [entry for entry in self.elsewhere if entry[0] <= now]:
            self.elsewhere.remove(entry)
            _, name, experiment = entry
            if is_done(run_folder(self.folder, name), experiment):
                self.on_event(Event("done", name))
            else:
                self.waiting.append((name, experiment))


@contextlib.contextmanager
def deferred_interrupt(on_first: Callable[[], None]) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, after calling `on_first`; the second interrupts at once.

    Examples
    --------
    >>> import os
    >>> with deferred_interrupt(lambda: print("stopping")) as stop:
    ...     os.kill(os.getpid(), signal.SIGINT)
    ...     stop.is_set()
    stopping
    True
    """
    stop = threading.Event()

    def heed(*_: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt("interrupted; the same command goes on from what was saved before")
        stop.set()
        on_first()

    # Elsewhere than in the main thread nobody can be interrupted.
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, heed)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
