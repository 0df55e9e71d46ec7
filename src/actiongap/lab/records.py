"""Reading runs back: whatever lies in their folders, each is read whole or left out with one sentence about why.

Folders come from other machines, other versions and other people, and from runs that are being written while they are read, so nothing in
them is believed. What is believed of a run is

- its `config.json`, if it is one: without it nothing can be said, and the run is left out;
- its rows, if every line is an object of finite numbers and nulls with `step` rising. One bad line and all rows are in doubt. The half line
  at the end of a run that is still going is no fault, for that is how writing looks from outside;
- its `status.json`: a run that is done vouches for its rows with their SHA-256, and if they differ the rows were changed;
- its `meta.json`. If this one or the status is damaged, the rows are shown all the same.

Rows are parsed a block of lines at a time, so that memory holds the numbers and little else. Many megabytes are shared out among processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import operator
import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from actiongap.lab.spec import check_format
from actiongap.lab.store import Status, read_status

DEPTH = 3
"""How many folders down runs are looked for: a study's are two down, in runs/NAME."""
RECORD_BYTES = 2**20
"""No configuration, status or account of attempts is larger than this."""
BLOCK_BYTES = 2**20
"""Bytes of rows parsed at once, and the longest line."""
CELLS = 2**26
"""Numbers in one run, at most: half a gigabyte."""
ALONE_BYTES = 2**25
"""Up to so many bytes of rows are read by this process alone; starting others takes longer."""
PROCESSES = 8
"""Readers at most: one process takes in what they read."""
NESTING = 8
"""Lists in lists, or objects in objects, in a run's record."""
COLUMNS = 100
"""Columns of one run, at most."""
NUMBERS = {float, int, type(None)}

Progress = Callable[[str, float], None]
"""Told what is being done and which part of it is done."""


@dataclass(frozen=True, eq=False)
class RunRecord:
    """A run as its folder tells it."""

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
    """The numbers of a row with what they mean; the first is the score, of which more is better."""
    status: Status | None
    """How far it is; None where it has saved nothing yet, or its status cannot be read."""
    meta: Mapping[str, Any]
    """The last attempt at it: versions, platform, command, date. Empty where that is not known."""
    rows: Mapping[str, np.ndarray]
    """`step` and each column, float64; NaN where a number is missing or was not finite."""

    @property
    def state(self) -> str:
        """One word for how far it is."""
        return "started" if self.status is None else self.status.state


class Found(NamedTuple):
    """What a folder came to."""

    run: RunRecord | None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Records:
    """Everything that was read."""

    runs: tuple[RunRecord, ...]
    problems: tuple[str, ...]
    """A sentence for each file that could not be read as it should."""


def read_runs(places: Iterable[str | Path], progress: Progress | None = None) -> Records:
    """All runs in some folders, each experiment once, and a sentence for each file that could not be read.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.spec import make
    >>> from actiongap.lab.work import work
    >>> out = Path(tempfile.mkdtemp())
    >>> work(out / "runs" / "cake", make("q-learning", {"problem": "cake", "steps": 100, "rows": 2}))
    'done'
    >>> [run] = read_runs([out]).runs
    >>> run.task, run.state, run.rows["step"].tolist()
    ('cake', 'done', [50.0, 100.0])
    """
    best: dict[str, RunRecord] = {}
    problems: list[str] = []
    for found in iter_runs(places, progress):
        problems += found.problems
        if (run := found.run) is None:
            continue
        experiment = json.dumps([run.kind, run.spec], sort_keys=True)
        if experiment in best:
            # Copies are not independent, and counting them would make intervals too narrow.
            kept, other = sorted((best[experiment], run), key=_progress, reverse=True)
            problems.append(
                f"{shown(other.folder)}: it is the same run as {shown(kept.folder)} and is not counted again: remove one of them"
            )
            run = kept
        best[experiment] = run
    if not best:
        raise ValueError(f"none of the runs can be read, of which this is the first: {problems[0]}")
    return Records(tuple(best.values()), tuple(problems))


def _progress(run: RunRecord) -> tuple[bool, int]:
    return run.state == "done", len(run.rows["step"])


def iter_runs(places: Iterable[str | Path], progress: Progress | None = None) -> Iterator[Found]:
    """The runs in some folders one after the other, for whoever does not want all rows in memory at once.

    Examples
    --------
    >>> next(iter_runs(["nowhere"]))
    Traceback (most recent call last):
    ValueError: nowhere: no such folder; give the folder of a study or of a run
    """
    places = [Path(place) for place in places]
    for place in places:
        if not place.is_dir():
            raise ValueError(f"{shown(place)}: no such folder; give the folder of a study or of a run")
    folders, problems = find_runs(places)
    if not folders:
        where = problems or [f"there are no runs in {', '.join(map(shown, places))}: give the folder of a study or of a run"]
        raise ValueError(where[0])
    yield from (Found(None, (problem,)) for problem in problems)
    tell = progress or (lambda what, part: None)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    alone = cores == 1 or sum(map(_size, folders)) <= ALONE_BYTES
    for number, found in enumerate(map(read_run, folders) if alone else _shared_out(folders, min(cores, PROCESSES, len(folders))), 1):
        yield found
        tell("reading runs", number / len(folders))


def find_runs(places: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """The folders that hold a config.json, each once however many links lead to it, and a sentence for each that may not be looked into.

    Examples
    --------
    >>> import tempfile
    >>> find_runs([Path(tempfile.mkdtemp())])
    ([], [])
    """
    folders: list[Path] = []
    problems: list[str] = []
    seen: set[tuple[int, int]] = set()

    def look(folder: Path, depth: int) -> None:
        try:
            identity = folder.stat()
            with os.scandir(folder) as listed:
                inside = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            problems.append(f"{shown(folder)}: {_reason(error)}; what is in it is left out: change its permissions")
            return
        # A place given twice, or a link that leads back, is not looked into again.
        if (identity.st_dev, identity.st_ino) in seen:
            return
        seen.add((identity.st_dev, identity.st_ino))
        if any(entry.name == "config.json" for entry in inside):
            folders.append(folder)
        for entry in inside if depth else ():
            if entry.name != "checkpoint" and _leads_to_folder(entry):
                look(folder / entry.name, depth - 1)

    for place in places:
        look(place, DEPTH)
    return folders, problems


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _size(folder: Path) -> int:
    try:
        return (folder / "metrics.jsonl").stat().st_size
    except OSError:
        return 0


def _shared_out(folders: list[Path], processes: int) -> Iterator[Found]:
    """Read in several processes, in the order given. Each waits while its pipe is full, so that none runs far ahead."""
    order = [sys.executable, "-c", "from actiongap.lab import records; records._serve()"]
    with contextlib.ExitStack() as stack:
        crew = [subprocess.Popen(order, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(processes)]
        for number, process in enumerate(crew):
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin:
                pickle.dump(folders[number::processes], process.stdin)
        for folder, process in zip(folders, itertools.cycle(crew), strict=False):
            assert process.stdout is not None
            try:
                yield pickle.load(process.stdout)
            except (EOFError, pickle.UnpicklingError):  # it died; its share is read here
                yield read_run(folder)


def _serve() -> None:
    """Read the runs that are asked for on the standard input and answer on the standard output, both pickled."""
    for folder in pickle.load(sys.stdin.buffer):
        pickle.dump(read_run(folder), sys.stdout.buffer, protocol=5)


def read_run(folder: Path) -> Found:
    """One run, as far as its folder can be believed.

    Examples
    --------
    >>> import tempfile
    >>> found = read_run(Path(tempfile.mkdtemp()))
    >>> found.run, found.problems[0].partition("config.json: ")[2]
    (None, 'no such file or directory; the run is left out until its folder is mended, made again, or moved away')
    """
    problems: list[str] = []
    try:
        config = _config(folder / "config.json")
    except ValueError as error:
        return Found(None, (f"{error}; the run is left out until its folder is mended, made again, or moved away",))
    status = None
    if os.path.lexists(folder / "status.json"):
        try:
            status = _status(folder)
        except ValueError as error:
            problems.append(f"{error}; its rows are shown all the same, and running its study again writes it anew")
    meta: dict[str, Any] = {}
    if os.path.lexists(folder / "meta.json"):
        try:
            meta = _last_attempt(folder / "meta.json")
        except ValueError as error:
            problems.append(f"{error}; what the run was made with is not shown, and running it anew writes it again")
    try:
        # The status was read before the rows: if it says that the run is done, then no more of them were coming.
        rows = _rows(folder / "metrics.jsonl", tuple(config["columns"]), status if status and status.state == "done" else None)
    except ValueError as error:
        return Found(None, (*problems, f"{error}; the run is left out: delete its folder and run its study again"))
    who = {"name": shown(folder.name), "folder": folder, "seed": config["spec"]["seed"]}
    parts = {name: config[name] for name in ("kind", "task", "agent", "spec", "step_name", "columns")}
    return Found(RunRecord(**who, **parts, status=status, meta=meta, rows=rows), tuple(problems))


def shown(path: str | Path) -> str:
    r"""A path as it can be put into a sentence: what cannot be printed becomes U+FFFD.

    Examples
    --------
    >>> shown("runs/two\nlines")
    'runs/two\ufffdlines'
    """
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in str(path))


def _config(file: Path) -> dict[str, Any]:
    found = _record(file)
    texts = all(isinstance(found.get(name), str) for name in ("kind", "task", "agent", "step_name"))
    columns, spec = found.get("columns"), found.get("spec")
    if not (texts and isinstance(columns, dict) and columns and isinstance(spec, dict) and type(spec.get("seed")) is int):
        raise ValueError(f"{shown(file)}: it does not say which experiment this is: something in it is missing or changed")
    if "step" in columns or len(columns) > COLUMNS or not all(isinstance(meaning, str) for meaning in columns.values()):
        raise ValueError(f"{shown(file)}: its columns are not {COLUMNS} or fewer names with what they mean")
    return found


def _status(folder: Path) -> Status:
    _record(folder / "status.json")
    try:
        status = read_status(folder)
    except OverflowError as error:
        raise ValueError(f"{shown(folder / 'status.json')}: {error}") from None
    texts = isinstance(status.digest, str) and all(isinstance(text, str | None) for text in (status.error, status.traceback))
    small = max(status.chunk, status.chunks, status.steps, status.rows, status.disk) < 2**63
    if not (texts and small and type(status.seconds) in (int, float) and status.seconds >= 0):
        raise ValueError(f"{shown(folder / 'status.json')}: something in it is missing or changed")
    return status


def _last_attempt(file: Path) -> dict[str, Any]:
    attempts = _record(file).get("attempts")
    if not (isinstance(attempts, list) and attempts and isinstance(attempts[-1], dict)):
        raise ValueError(f"{shown(file)}: something in it is missing or changed")
    return attempts[-1]


def _record(file: Path) -> dict[str, Any]:
    """One of a run's small JSON files, without what JSON does not allow and text does not hold."""
    try:
        with _open(file) as stream:
            data = stream.read(RECORD_BYTES + 1)
        if len(data) > RECORD_BYTES:
            raise ValueError(f"it is larger than {RECORD_BYTES} bytes, which no run's record is")
        found = STRICT.decode(data.decode())
        check_format(found)
        if not _is_flat(found, NESTING):
            raise ValueError("it is nested deeper than any run's record")
        # Half of a surrogate pair can be escaped in JSON and written nowhere else.
        return json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace")) if b"\\u" in data else found
    except OSError as error:
        raise ValueError(f"{shown(file)}: {_reason(error)}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError(f"{shown(file)}: it is not JSON: it was cut short, or changed") from None
    except ValueError as error:
        raise ValueError(f"{shown(file)}: {error}") from None


def _is_flat(value: Any, levels: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not inside or (levels > 0 and all(_is_flat(item, levels - 1) for item in inside))


def _open(file: Path) -> BinaryIO:
    # Opening a pipe that nobody writes to would wait for ever.
    if not stat.S_ISREG(file.stat().st_mode):
        raise ValueError("it is not a file but a folder, a pipe or a device")
    return open(file, "rb")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _rows(file: Path, columns: tuple[str, ...], done: Status | None) -> dict[str, np.ndarray]:
    """The rows of a run, column by column, or one sentence about why they cannot be believed; `done` is what vouches for them."""
    names = ("step", *columns)
    blocks: list[np.ndarray] = [np.empty((0, len(names)))]
    digest, rest, lines = hashlib.sha256(), b"", 0
    try:
        with _open(file) as stream:
            while data := stream.read(BLOCK_BYTES):
                digest.update(data)
                whole, newline, rest = (rest + data).rpartition(b"\n")
                if newline:
                    blocks.append(_parse(whole, names, lines))
                    lines += len(blocks[-1])
                if len(rest) > BLOCK_BYTES or lines * len(names) > CELLS:
                    raise ValueError("it is larger than any run's rows: report fewer rows")
    except FileNotFoundError:
        if done and done.rows:
            raise ValueError(f"{shown(file)}: it is gone, and the run is done") from None
    except OSError as error:
        raise ValueError(f"{shown(file)}: {_reason(error)}") from None
    except ValueError as error:
        raise ValueError(f"{shown(file)}: {error}") from None
    if done and (rest or digest.hexdigest() != done.digest):
        raise ValueError(f"{shown(file)}: its rows were changed after the run was done")
    table = np.concatenate(blocks).T.copy()
    if (np.diff(table[0]) <= 0).any():
        raise ValueError(f"{shown(file)}: its steps do not rise from row to row")
    return dict(zip(names, table, strict=True))


def _parse(data: bytes, names: tuple[str, ...], before: int) -> np.ndarray:
    """Lines of rows as an array of rows x names; `before` lines came before them."""
    rows = _all_at_once(data)
    if rows is None:
        rows = [_line(line, before + number) for number, line in enumerate(data.split(b"\n"), 1)]
    try:
        flat = list(itertools.chain.from_iterable(map(operator.itemgetter(*names), rows)))
    except KeyError:
        flat = [row.get(name) for row in rows for name in names]
    try:
        # NumPy would make numbers of texts and of truth values.
        table = np.array(flat if set(map(type, flat)) <= NUMBERS else list(map(_number, flat)), dtype=np.float64)
    except OverflowError:
        table = np.array(list(map(_number, flat)))
    table = table.reshape(len(rows), len(names))
    bad = np.isinf(table)
    bad[:, 0] |= np.isnan(table[:, 0])
    if bad.any():
        line, column = np.argwhere(bad)[0]
        raise ValueError(f"line {before + line + 1} has something else than a finite number at {names[column]!r}")
    return table


def _number(value: Any) -> float:
    """A number or null of JSON as float64; infinite where it is neither, or too large."""
    if value is None:
        return math.nan
    try:
        return float(value) if type(value) in NUMBERS else math.inf
    except OverflowError:
        return math.inf


def _all_at_once(data: bytes) -> list[dict[str, Any]] | None:
    """Lines as one JSON array, which is parsed twice as fast; None if that is in any doubt the same as parsing them one by one.

    It is the same if there are as many objects as lines and as opening braces, one at the beginning of each line, and if there are two
    quotes for each key that came out: then no key came twice and no value is a text.
    """
    try:
        rows = STRICT_ARRAY.decode("[" + data.decode().replace("\n", ",") + "]")
    except (ValueError, RecursionError):
        return None
    letters = np.frombuffer(data, np.uint8)
    newlines, braces, quotes = (np.count_nonzero(letters == ord(letter)) for letter in '\n{"')
    one_each = data.startswith(b"{") and data.count(b"\n{") == newlines == braces - 1 == len(rows) - 1
    return rows if one_each and set(map(type, rows)) == {dict} and quotes == 2 * sum(map(len, rows)) else None


def _line(line: bytes, number: int) -> dict[str, Any]:
    try:
        row = STRICT.decode(line.decode())
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ValueError(f"line {number} is not an object of JSON: it was cut short, or changed")
    return row


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name in it comes twice: it was changed")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"it holds {name[:40]}, which is not a finite number: it was changed")


def _finite(text: str) -> float:
    return number if math.isfinite(number := float(text)) else _no_number(text)


STRICT = json.JSONDecoder(object_pairs_hook=_each_once, parse_float=_finite, parse_constant=_no_number)
"""JSON with float64 for numbers: nothing that is not finite, and no key twice."""
STRICT_ARRAY = json.JSONDecoder(parse_constant=_no_number)
"""The same but for keys that come twice, of which it keeps the last, and for numbers too large, which become infinite."""
