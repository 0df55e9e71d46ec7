"""Reading runs: each is read completely, or left out with a sentence that says why.

Folders come from other machines, other versions and other people, and runs may be written while they are read, so every file is validated:

- `config.json` must be valid; otherwise the run is left out;
- every row must be an object of finite numbers and nulls, and `step` must increase. One bad line invalidates all rows. An incomplete last
  line of an unfinished run is ignored, because the run may be writing it;
- `status.json` of a finished run holds the SHA-256 of its rows; if it differs, the rows were changed and the run is left out;
- if `meta.json` or `status.json` is damaged, the rows are still used.

Rows are parsed a block of lines at a time, so memory holds little more than the numbers. Large studies are read by several processes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from actiongap._files import printable, reason
from actiongap._system import cores
from actiongap.lab.store import Status, read_status
from actiongap.lab.validation import read_record, read_rows

DEPTH = 3
"""Maximum depth at which runs are searched; those of a study are at depth two, in runs/NAME."""
SINGLE_PROCESS_BYTES = 2**25
"""Up to this many bytes of rows are read in this process, because starting others would take longer."""
PROCESSES = 8
"""Maximum number of reading processes. One process collects their results."""
COLUMNS = 100
"""Maximum number of columns of a run."""

Progress = Callable[[str, float], None]
"""Called with a description of the current work and the fraction that is done."""


@dataclass(frozen=True, eq=False)
class RunRecord:
    """A run as read from its folder."""

    name: str
    folder: Path
    kind: str
    task: str
    agent: str
    seed: int
    spec: Mapping[str, Any]
    """All fields of the experiment."""
    step_name: str
    columns: Mapping[str, str]
    """Columns of a row with their meaning. The first is the score; higher is better."""
    status: Status | None
    """Its status; None if nothing is saved yet, or the status cannot be read."""
    meta: Mapping[str, Any]
    """Provenance of the last attempt: versions, platform, command, date. Empty if unknown."""
    rows: Mapping[str, np.ndarray]
    """`step` and each column as float64; NaN if a value is missing or was not finite."""

    @property
    def state(self) -> str:
        """State of the run in one word."""
        return "started" if self.status is None else self.status.state


class ReadResult(NamedTuple):
    """The result of reading a folder."""

    run: RunRecord | None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Records:
    """All runs that were read, and what went wrong."""

    runs: tuple[RunRecord, ...]
    problems: tuple[str, ...]
    """A sentence for each file that could not be read."""
    places: tuple[Path, ...] = ()
    """The folders that were read."""


def read_runs(places: str | Path | Iterable[str | Path], progress: Progress | None = None) -> Records:
    """Read all runs in one folder or several. Each experiment counts once, and each unreadable file is reported in a sentence.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.experiment import make
    >>> from actiongap.lab.runner import run_experiment
    >>> out = Path(tempfile.mkdtemp())
    >>> run_experiment(out / "runs" / "cake", make("q-learning", {"env": "cake", "steps": 100, "rows": 2}))
    'done'
    >>> [run] = read_runs(out).runs
    >>> run.task, run.state, run.rows["step"].tolist()
    ('cake', 'done', [50.0, 100.0])
    """
    places = [places] if isinstance(places, (str, Path)) else list(places)
    best: dict[str, RunRecord] = {}
    problems: list[str] = []
    for result in iter_runs(places, progress):
        problems += result.problems
        if (run := result.run) is None:
            continue
        experiment = json.dumps([run.kind, run.spec], sort_keys=True)
        if experiment in best:
            # Copies are not independent; counting them would make intervals too narrow.
            kept, other = sorted((best[experiment], run), key=_progress, reverse=True)
            problems.append(
                f"{printable(other.folder)}: it is the same run as {printable(kept.folder)} and is not counted twice: remove one of them"
            )
            run = kept
        best[experiment] = run
    if not best:
        raise ValueError(f"none of the runs can be read. The first problem is {problems[0]}")
    return Records(tuple(best.values()), (*_unstarted_runs(places), *problems), tuple(map(Path, places)))


def _unstarted_runs(places: Iterable[str | Path]) -> Iterator[str]:
    """Yield a sentence for each study with runs that have not started, or whose list of runs cannot be read."""
    for place in map(Path, places):
        for file in [place / "study.json", *sorted(place.glob("*/study.json"))]:
            if not os.path.isfile(file):
                continue
            try:
                names = read_record(file).get("runs")
            except ValueError as error:
                yield f"{error}; the number of its runs is unknown; run the study again to restore the file"
                continue
            requested = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
            missing = sum(not _has_started(file.parent / "runs" / name) for name in requested)
            if missing:
                yield f"{printable(file.parent)}: {missing} of {len(requested)} runs have not started: run the study again to continue"


def _has_started(folder: Path) -> bool:
    """Whether a run has started, or its folder cannot be searched, which is reported elsewhere."""
    return os.path.isfile(folder / "config.json") or (os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK))


def _progress(run: RunRecord) -> tuple[bool, int]:
    return run.state == "done", len(run.rows["step"])


def iter_runs(places: Iterable[str | Path], progress: Progress | None = None) -> Iterator[ReadResult]:
    """Iterate over the runs in some folders, without keeping all rows in memory.

    Examples
    --------
    >>> next(iter_runs(["nowhere"]))
    Traceback (most recent call last):
    ValueError: nowhere: no such folder; give the folder of a study or of a run
    """
    places = [Path(place) for place in places]
    if not places:
        raise ValueError("no folder is given: give the folder of a study or of a run")
    for place in places:
        if not os.path.isdir(place):
            raise ValueError(f"{printable(place)}: no such folder; give the folder of a study or of a run")
    folders, problems = find_runs(places)
    if not folders:
        where = problems or [f"there are no runs in {', '.join(map(printable, places))}: give the folder of a study or of a run"]
        raise ValueError(where[0])
    yield from (ReadResult(None, (problem,)) for problem in problems)
    report = progress or (lambda what, fraction: None)
    single = cores() == 1 or sum(map(_size, folders)) <= SINGLE_PROCESS_BYTES
    results = map(read_run, folders) if single else _read_in_processes(folders, min(cores(), PROCESSES, len(folders)))
    for number, result in enumerate(results, 1):
        yield result
        report("reading runs", number / len(folders))


def find_runs(places: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """Return the folders with a config.json, each once even if several links lead to it, and a sentence for each unreadable folder.

    Examples
    --------
    >>> import tempfile
    >>> find_runs([Path(tempfile.mkdtemp())])
    ([], [])
    """
    folders: list[Path] = []
    problems: list[str] = []
    seen: set[tuple[int, int]] = set()

    def visit(folder: Path, depth: int) -> None:
        try:
            identity = folder.stat()
            with os.scandir(folder) as listed:
                inside = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            problems.append(f"{printable(folder)}: {reason(error)}; its runs are left out: change its permissions")
            return
        # A folder that is given twice, or linked from inside itself, is visited once.
        if (identity.st_dev, identity.st_ino) in seen:
            return
        seen.add((identity.st_dev, identity.st_ino))
        if any(entry.name == "config.json" for entry in inside):
            folders.append(folder)
        for entry in inside if depth else ():
            if entry.name != "checkpoint" and _is_folder(entry):
                visit(folder / entry.name, depth - 1)

    for place in places:
        visit(place, DEPTH)
    return folders, problems


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _size(folder: Path) -> int:
    try:
        return (folder / "metrics.jsonl").stat().st_size
    except OSError:
        return 0


def _read_in_processes(folders: list[Path], processes: int) -> Iterator[ReadResult]:
    """Read runs in several processes, and yield them in the given order. A process blocks while its pipe is full, so none runs ahead."""
    # With -P, the reader does not import modules from the current directory, which may be a downloaded folder.
    order = [sys.executable, "-P", "-c", "from actiongap.lab import records; records._reader_main()"]
    with contextlib.ExitStack() as stack:
        readers = [
            subprocess.Popen(order, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(processes)
        ]
        for number, process in enumerate(readers):
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(json.dumps([str(folder) for folder in folders[number::processes]]).encode())
        for folder, process in zip(folders, itertools.cycle(readers), strict=False):
            assert process.stdout is not None
            # If a reader died, its runs are read here.
            yield _receive(process.stdout, folder) or read_run(folder)


def _reader_main() -> None:
    """Read the runs named on standard input; write a line of JSON for each, followed by its rows as raw float64."""
    for folder in json.load(sys.stdin.buffer):
        run, problems = read_run(Path(folder))
        message: dict[str, Any] = {"problems": problems, "run": None}
        table = b""
        if run is not None:
            parts = {field.name: getattr(run, field.name) for field in fields(run) if field.name not in ("folder", "rows", "status")}
            message["run"] = {**parts, "status": run.status and run.status._asdict()}
            message["rows"] = len(run.rows["step"])
            table = np.stack(list(run.rows.values())).tobytes()
        sys.stdout.buffer.write(json.dumps(message).encode() + b"\n" + table)


def _receive(stream: IO[bytes], folder: Path) -> ReadResult | None:
    """Receive one run from a reading process; None if the process died before it was complete."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    message = json.loads(line)
    problems = tuple(message["problems"])
    if message["run"] is None:
        return ReadResult(None, problems)
    names: list[str] = ["step", *message["run"]["columns"]]
    data = stream.read(8 * len(names) * message["rows"])
    if len(data) < 8 * len(names) * message["rows"]:
        return None
    rows = dict(zip(names, np.frombuffer(data).reshape(len(names), -1), strict=True))
    status = message["run"].pop("status")
    return ReadResult(RunRecord(**message["run"], folder=folder, rows=rows, status=Status(**status) if status else None), problems)


def read_run(folder: Path) -> ReadResult:
    """Read one run. If it cannot be read, `run` is None and `problems` says why.

    Examples
    --------
    >>> import tempfile
    >>> found = read_run(Path(tempfile.mkdtemp()))
    >>> found.run, found.problems[0].partition("config.json: ")[2]
    (None, 'no such file or directory; the run is left out until its folder is repaired, made again, or moved away')
    """
    problems: list[str] = []
    try:
        config = _config(folder / "config.json")
    except ValueError as error:
        return ReadResult(None, (f"{error}; the run is left out until its folder is repaired, made again, or moved away",))
    status = None
    if os.path.lexists(folder / "status.json"):
        try:
            status = read_status(folder)
        except ValueError as error:
            problems.append(f"{error}; its rows are still shown; run its study again to restore the file")
    meta: dict[str, Any] = {}
    if os.path.lexists(folder / "meta.json"):
        try:
            meta = _last_attempt(folder / "meta.json")
        except ValueError as error:
            problems.append(f"{error}; the provenance of the run is not shown; run it again to restore the file")
    try:
        # The status is read before the rows: if it is "done", the rows are complete.
        digest = status.digest if status and status.state == "done" else None
        rows = read_rows(folder / "metrics.jsonl", tuple(config["columns"]), digest)
    except ValueError as error:
        return ReadResult(None, (f"{error}; the run is left out; run its study again to repeat it",))
    identity = {"name": printable(folder.name), "folder": folder, "seed": config["spec"]["seed"]}
    parts = {name: config[name] for name in ("kind", "task", "agent", "spec", "step_name", "columns")}
    return ReadResult(RunRecord(**identity, **parts, status=status, meta=meta, rows=rows), tuple(problems))


def _config(file: Path) -> dict[str, Any]:
    found = read_record(file)
    texts = all(isinstance(found.get(name), str) for name in ("kind", "task", "agent", "step_name"))
    columns, spec = found.get("columns"), found.get("spec")
    if not (texts and isinstance(columns, dict) and columns and isinstance(spec, dict) and type(spec.get("seed")) is int):
        raise ValueError(f"{printable(file)}: fields that describe the experiment are missing or have the wrong type")
    if "step" in columns or len(columns) > COLUMNS or not all(isinstance(meaning, str) for meaning in columns.values()):
        raise ValueError(f"{printable(file)}: its columns are not at most {COLUMNS} names with their meanings")
    return found


def _last_attempt(file: Path) -> dict[str, Any]:
    attempts = read_record(file).get("attempts")
    if not (isinstance(attempts, list) and attempts and isinstance(attempts[-1], dict)):
        raise ValueError(f"{printable(file)}: something in it is missing or changed")
    return attempts[-1]
