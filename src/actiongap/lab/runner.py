"""The runner: advances runs chunk by chunk, appends their rows, saves checkpoints and writes their status.

All executors share one loop, split where a process boundary may lie. `advance_batch` computes: it advances a batch of runs and yields the
rows of every chunk and, when a checkpoint is due, the state of every run. `BatchWriter` writes these to the folders of the runs, which its
process holds locked. `run_batch` connects the two in one process; on a Ray cluster the first runs in a task and the second in the driver.
A single run is a batch of one.

On the same kind of device, rows do not depend on the executor. They do not depend on the batch either, except for `train` without
`exact`, where sums may round differently.

A study's folder holds `study.json`, which records what was requested, and a folder in `runs/` for each run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from actiongap._files import WriteError, check_directory, make_directory, one_line, remove_leftovers, write_text
from actiongap._signals import note_termination, terminations
from actiongap.lab.batches import OnProgress, SingleRun, make_batch, resource_note
from actiongap.lab.experiment import FORMAT, VERSION, Experiment, Row, State, fingerprints
from actiongap.lab.lock import BusyError
from actiongap.lab.provenance import describe
from actiongap.lab.store import Run, RunOutcome, attempts, changed_files, encode_rows, holding, is_done, plain_row
from actiongap.lab.study import Study
from actiongap.lab.validation import read_record

SAVE_EVERY = 10.0
"""Minimum seconds between two checkpoints of an unfinished run. A process that dies loses the work since the last checkpoint.

Checkpoints are written between chunks only, and less often where saving a vectorized batch is slow (`SAVING`)."""
REPORT_EVERY = 0.2
"""Seconds between two reports of a worker or node on the progress of a run."""
SAVING = 0.05
"""Largest fraction of the time that a vectorized batch spends on saving, after its first checkpoint."""


@contextlib.contextmanager
def only_exceptions() -> Iterator[None]:
    """Turn what an experiment raises into a RuntimeError if it is no Exception: SystemExit would end the worker, and all its runs.

    Examples
    --------
    >>> with only_exceptions():
    ...     raise SystemExit("done")
    Traceback (most recent call last):
    RuntimeError: the experiment raised SystemExit: done
    """
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise RuntimeError(f"the experiment raised {error_message(error)}") from error


class ChunkResult(NamedTuple):
    """One chunk of a batch of runs. The lists have one entry per run."""

    chunk: int
    """Number of chunks done."""
    lines: list[bytes]
    """Rows, as they are written."""
    seconds: float
    """Wall time, divided by the number of runs."""
    provenance: dict[str, Any] | None = None
    """Where the batch runs, known after its first chunk."""


class RunState(NamedTuple):
    """The state of one run of a batch, to be saved."""

    position: int
    """Position of the run in its batch."""
    status: Literal["running", "stopped", "done"]
    state: State


def advance_batch(
    experiments: Sequence[Experiment],
    states: Iterable[State] | None,
    chunk: int,
    *,
    save_every: float = SAVE_EVERY,
    stop: Callable[[], bool] = lambda: False,
    on_progress: OnProgress = lambda fraction: None,
) -> Iterator[ChunkResult | RunState]:
    """Advance a batch of runs from their states after `chunk` chunks.

    Yields the result of every chunk. If a checkpoint is due, the states of all runs follow, one by one. Ends after the last chunk, or when
    `stop()` is true after a chunk.

    Examples
    --------
    >>> from actiongap.lab.experiment import make
    >>> updates = advance_batch([make("q-learning", {"env": "cake", "steps": 100, "rows": 2})], None, 0)
    >>> [type(update).__name__ for update in updates]
    ['ChunkResult', 'ChunkResult', 'RunState']
    """
    begun = time.perf_counter()
    batch = make_batch(experiments)
    with only_exceptions():
        carry = batch.start() if states is None else batch.put(states)
    # States may be as large as memory, so no reference is kept.
    del states
    first, saved, cost = True, time.monotonic(), 0.0
    while chunk < experiments[0].chunks:
        with only_exceptions():
            carry, rows = batch.advance(carry, chunk, on_progress)
        chunk += 1
        plain = [check_rows(experiment, mine) for experiment, mine in zip(experiments, rows, strict=True)]
        lines = [encode_rows(mine) for mine in plain]
        # The device of the experiment is known only after its first chunk.
        yield ChunkResult(chunk, lines, (time.perf_counter() - begun) / len(experiments), describe() if first else None)
        first = False
        status = "done" if chunk == experiments[0].chunks else "stopped" if stop() else "running"
        wait = save_every if isinstance(batch, SingleRun) or not save_every else max(save_every, cost / SAVING)
        if status != "running" or time.monotonic() - saved >= wait:
            saving = time.monotonic()
            states_after = iter(batch.get(carry, status == "done"))
            for index in range(len(experiments)):
                yield RunState(index, status, next(states_after))
            saved, cost = time.monotonic(), time.monotonic() - saving
        if status == "stopped":
            return
        begun = time.perf_counter()


def check_rows(experiment: Experiment, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of an experiment as plain values, or raise ValueError if a column is missing."""
    rows = [plain_row(row) for row in rows]
    for row in rows:
        if missing := sorted({"step", *experiment.columns} - row.keys()):
            raise ValueError(f"a row has {', '.join(row)} but no {missing[0]!r}: give every row step and the declared columns")
    return rows


class BatchWriter:
    """Writes the updates of a batch to the folders of its runs, which this process holds."""

    def __init__(self, runs: Mapping[str, Run], on_event: OnEvent):
        self.runs: dict[str, Run] = dict(runs)
        self.on_event: OnEvent = on_event
        self.finished: set[str] = set()
        """Runs that are done."""
        self.status: RunOutcome = "running"
        self._failures: dict[str, str] = {}

    @property
    def chunk(self) -> int:
        """Number of chunks done."""
        return next(iter(self.runs.values())).chunk

    def write(self, update: ChunkResult | RunState) -> None:
        """Append the rows of a chunk, or save the state of a run."""
        if isinstance(update, RunState):
            name = list(self.runs)[update.position]
            self.runs[name].state = update.state
            self._save(name, update.status)
            return
        for (name, run), lines in zip(self.runs.items(), update.lines, strict=True):
            run.append(update.chunk, lines, None, update.seconds, batch_size=len(self.runs))
            if update.provenance is not None:
                run.record_attempt(update.provenance)
            rows: tuple[Row, ...] = tuple(map(json.loads, lines.splitlines()))
            if rows:
                self._failures[name] = run.experiment.failure(rows[-1])
            self.on_event(Event("step", name, update.chunk, rows))

    def progress(self, fraction: float) -> None:
        """Report the fraction of the current chunk that is done."""
        for name, run in self.runs.items():
            self.on_event(Event("step", name, run.chunk + fraction))

    def finish(self) -> None:
        """Finish runs that were killed after their last checkpoint and before their status was written."""
        for name in self.runs:
            self._save(name, "done")

    def fail(self, error: str, traceback: str) -> None:
        """Record why the runs that are not done cannot continue. Their checkpoints remain."""
        self.status = "failed"
        for name, run in self.unfinished.items():
            run.fail(error, traceback)
            self.on_event(Event("failed", name, run.chunk, text=error))

    def stop(self) -> None:
        """Mark the runs that are not done as stopped, without saving them."""
        for name, run in self.unfinished.items():
            with contextlib.suppress(WriteError):
                run.stop()
            self.on_event(Event("stopped", name))

    @property
    def unfinished(self) -> dict[str, Run]:
        """Runs that are not done."""
        return {name: run for name, run in self.runs.items() if name not in self.finished}

    def _save(self, name: str, status: Literal["running", "stopped", "done"]) -> None:
        run = self.runs[name]
        if status == "done" and (failure := self._failures.get(name)):
            # Not saved, so that another attempt reports the same.
            run.fail(failure, "")
            self.finished.add(name)
            self.status = "failed"
            self.on_event(Event("failed", name, run.chunk, text=failure))
            return
        run.save(status)
        if status == "done":
            self.finished.add(name)
        if status != "running":
            self.status = status
            self.on_event(Event(status, name, run.chunk))


def run_batch(
    runs: Mapping[str, Run],
    *,
    save_every: float = SAVE_EVERY,
    stop: Callable[[], bool] = lambda: False,
    on_event: OnEvent = lambda event: None,
) -> RunOutcome:
    """Advance runs that this process holds, and that have done the same number of chunks, until they are done, fail or are stopped.

    An error of the experiment is recorded in the status of the runs. WriteError is raised.
    """
    writer, experiments = BatchWriter(runs, on_event), [run.experiment for run in runs.values()]
    chunk = writer.chunk
    for name in runs:
        on_event(Event("started", name, chunk))
    try:
        if chunk == experiments[0].chunks:
            writer.finish()
            return writer.status
        if note := resource_note(experiments):
            on_event(Event("note", text=note))
        saved = saved_states(runs.values()) if chunk else None
        for update in advance_batch(experiments, saved, chunk, save_every=save_every, stop=stop, on_progress=writer.progress):
            writer.write(update)
            # Otherwise this state would stay in memory while the next is fetched.
            del update
    except WriteError:
        raise
    except Exception as error:
        writer.fail(error_message(error), traceback.format_exc())
    return writer.status


def saved_states(runs: Iterable[Run]) -> Iterator[State]:
    """Yield the saved states of runs, reading one at a time so that at most one is in memory."""
    for run in runs:
        if (state := run.state) is not None:
            yield state
        del state


def run_experiment(
    folder: str | Path,
    experiment: Experiment,
    *,
    command: str = "",
    save_every: float = SAVE_EVERY,
    stop: Callable[[], bool] = lambda: False,
    on_chunk: OnEvent = lambda event: None,
) -> RunOutcome:
    """Run one experiment in `folder` until it is done, fails, or `stop()` is true after a chunk. Continues from the last checkpoint.

    A failure is recorded in the status of the run. Raises BusyError if another process holds the run, and WriteError if the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.experiment import make
    >>> run_experiment(tempfile.mkdtemp(), make("q-learning", {"env": "cake", "steps": 100, "rows": 2}))
    'done'
    """

    def on_event(event: Event) -> None:
        if event.kind == "step" and isinstance(event.chunk, int):
            on_chunk(event)

    with holding(folder, experiment, command) as run:
        return run_batch({run.folder.name: run}, save_every=save_every, stop=stop, on_event=on_event)


Members = list[tuple[str, Experiment]]
"""Runs of a study that form a batch, by name."""


def hold_runs(stack: contextlib.ExitStack, members: Members, folder: Path, command: str, on_event: OnEvent) -> dict[str, Run]:
    """Lock the runs of a batch until `stack` closes. Runs that are busy or damaged are reported and left out; WriteError is raised."""
    runs: dict[str, Run] = {}
    for name, experiment in members:
        try:
            runs[name] = stack.enter_context(holding(run_folder(folder, name), experiment, command))
        except BusyError:
            on_event(Event("busy", name))
        except WriteError:
            raise
        except Exception as error:
            # The other runs of the batch are not affected.
            on_event(Event("failed", name, text=error_message(error)))
    return runs


def align(runs: dict[str, Run]) -> list[str]:
    """Rewind runs to the chunk of the one that has done the fewest, and remove and return those that have no checkpoint there."""
    least = min((run.chunk for run in runs.values()), default=0)
    ahead = [name for name, run in runs.items() if run.chunk > least and not (least > 0 and run.rewind(least))]
    for name in ahead:
        del runs[name]
    return ahead


def run_members(
    members: Members,
    folder: Path,
    *,
    command: str = "",
    save_every: float = SAVE_EVERY,
    stop: Callable[[], bool] = lambda: False,
    on_event: OnEvent = lambda event: None,
) -> Members:
    """Hold the runs of a batch of a study and advance them. Returns the runs that are too far ahead, to be run on their own."""
    with contextlib.ExitStack() as stack:
        runs = hold_runs(stack, members, folder, command, on_event)
        ahead = align(runs)
        if runs:
            run_batch(runs, save_every=save_every, stop=stop, on_event=on_event)
    return [(name, experiment) for name, experiment in members if name in ahead]


def error_message(error: BaseException) -> str:
    """Return what went wrong, in one line.

    Examples
    --------
    >>> error_message(KeyError("q"))
    "KeyError: 'q'"
    """
    text = one_line(error)
    return text if text and isinstance(error, ValueError) else f"{type(error).__name__}: {text}".removesuffix(": ")


EventKind = Literal["started", "step", "done", "failed", "died", "busy", "stopped", "stopping", "note"]
"""What an event reports.

- `started`: an executor has begun or resumed the run.
- `step`: the run has done a chunk, or a fraction of one.
- `done`: the run is finished.
- `failed`: the run cannot continue; `text` says why. Running the study again retries it.
- `died`: the worker or node of the run died or could not write; `text` says why. It is retried, unless files cannot be written.
- `busy`: another process holds the run.
- `stopped`: the run was stopped before its end.
- `stopping`: the study was interrupted. Its runs are saved; on Ray they stay at their last checkpoint.
- `note`: a remark about the study, in `text`.
"""


class Event(NamedTuple):
    """Something that happened to a run, or to the study: `stopping` and `note` have no run."""

    kind: EventKind
    run: str = ""
    chunk: float = 0
    """Number of chunks done, for a step; a fraction inside a chunk that reports its progress."""
    rows: tuple[Row, ...] = ()
    """The rows of the chunks that this step did."""
    text: str = ""
    """What went wrong, or the text of a note."""


OnEvent = Callable[[Event], None]


@dataclass
class StudyOutcome:
    """What happened to the runs of a study."""

    done: list[str] = field(default_factory=list)
    """Runs that this call finished."""
    failed: dict[str, str] = field(default_factory=dict)
    """Runs that failed, each with an error message."""
    busy: list[str] = field(default_factory=list)
    """Runs that another process holds."""
    stopped: str = ""
    """Why the study was stopped before its end; empty if it was not."""


def run_folder(out: str | Path, name: str) -> Path:
    """Return the folder of a run of a study.

    Examples
    --------
    >>> run_folder("out", "bellman_seed-0_1c0199f8").as_posix()
    'out/runs/bellman_seed-0_1c0199f8'
    """
    return Path(out) / "runs" / name


def unfinished_runs(study: Study, out: str | Path) -> dict[str, Experiment]:
    """Return the runs of a study that are not done.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> len(unfinished_runs(Study("cakes", grid("q-learning", env="cake", seed=range(3))), tempfile.mkdtemp()))
    3
    """
    return {name: run for name, run in study.named().items() if not is_done(run_folder(out, name), run)}


def changed_source(study: Study, out: str | Path) -> str:
    """Return the first of the user's functions and files that changed since a run of the study used it; empty if none did."""
    for name, run in study.named().items():
        now = fingerprints(run)
        made = attempts(run_folder(out, name)) if now.files else []
        if made and (changed := changed_files(made[-1], now)):
            return changed
    return ""


def check_out(study: Study, out: str | Path) -> None:
    """Raise ValueError if a study cannot be written to a folder. Changes nothing, and the folder need not exist.

    It cannot if `study.json`, `runs`, `logs`, the log of a worker or the folder of an unfinished run is a symbolic link, if `study.json`
    is not a valid record of this library and there are no runs in `runs`, or if there are logs of workers without runs and `study.json`.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> check_out(Study("cakes", grid("q-learning", env="cake")), tempfile.mkdtemp())
    """
    folder = check_directory(out)
    file, runs, logs = folder / "study.json", folder / "runs", folder / "logs"
    # Finished runs are not written again, so links to them are harmless.
    places = {run_folder(folder, name): run for name, run in study.named().items()}
    for path in (file, runs, logs, *logs.glob("worker-*.log"), *places):
        if os.path.islink(path) and not (path in places and is_done(path, places[path])):
            raise ValueError(f"{path} is a symbolic link, and runs are not written through links: move it away, or choose another --out")
    if not os.path.lexists(file):
        found = sorted(logs.glob("worker-*.log"))
        if found and not any(_is_run(path) for path in runs.glob("*")):
            raise ValueError(f"{folder} holds {found[0].relative_to(folder)} and no study.json, so it is not a study: choose another --out")
        if os.path.lexists(folder / "config.json") and not os.path.exists(runs):
            raise ValueError(f"{folder} is a run, not a study: choose another --out")
        return
    try:
        read_record(file)
    except ValueError as error:
        if not _is_damaged(file):
            raise ValueError(f"{error}: choose another --out, or move the file away") from None
        # A damaged record is replaced if there are valid runs.
        if not any(_is_run(folder) for folder in runs.glob("*")):
            raise ValueError(f"{error}, and there are no valid runs in {runs}: choose another --out, or move the file away") from None


def _is_damaged(file: Path) -> bool:
    """Whether a file is a regular file without valid JSON, as a full disk may leave behind. Valid JSON may belong to another program."""
    if not os.path.isfile(file):
        return False
    try:
        json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return True
    return False


def _is_run(folder: Path) -> bool:
    try:
        return bool(read_record(folder / "config.json"))
    except ValueError:
        return False


def open_study(study: Study, out: str | Path, command: str) -> Path:
    """Create the folder of a study and write `study.json`."""
    check_out(study, out)
    folder = make_directory(out)
    if (folder / "study.json").exists():
        # Another process may be writing to it.
        remove_leftovers(folder, re.compile(r"study\.json"), older_than=3600.0)
    record = {"format": FORMAT, "version": VERSION, "name": study.name, "command": command, **describe(), "runs": list(study.named())}
    write_text(folder / "study.json", json.dumps(record, indent=1) + "\n", sweep=False)
    return folder


@contextlib.contextmanager
def deferred_interrupt(on_first: Callable[[], None]) -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets, after calling `on_first`. The second raises KeyboardInterrupt at once.

    SIGTERM and SIGHUP set it too, unless they are ignored, as by nohup. Machines that shut down send both, so neither counts as the second.

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

    def handle(number: int, frame: Any) -> None:
        first = not stop.is_set()
        stop.set()
        if number != signal.SIGINT:
            note_termination(number)
        elif not first:
            raise KeyboardInterrupt("interrupted; run the same command again to continue from the last checkpoint")
        if first:
            # The terminal may be gone, and the runs must be saved all the same.
            with contextlib.suppress(OSError):
                on_first()

    # Only the main thread can handle signals.
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, *terminations())}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
