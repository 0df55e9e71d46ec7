"""The run store: a run is a directory that can be resumed after a crash at any time.

    config.json      the experiment, enough to run it again
    meta.json        provenance of each attempt: versions, machine, command, date
    metrics.jsonl    the rows, one JSON object per line, append-only
    checkpoint/      the states after the last two saved chunks
    status.json      progress: running, stopped, failed or done
    lock             held by the process that runs it; empty

`plan` adds `times.json` and `policy.npz`. Other files in the folder are never touched. A folder with one of these names and without our
`config.json`, which is written first, is refused. Symbolic links are not followed for writing.

Every file except the rows is written atomically. A checkpoint records the number of bytes of rows before it and their SHA-256. To resume,
the newest valid checkpoint that agrees with the rows is loaded, later rows are truncated, and they are computed again, which gives the same
bytes. Without a valid checkpoint the run starts again. The status of a finished run holds the SHA-256 of all rows, so that a reader can see
whether they were changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, get_args

import numpy as np

from actiongap._files import (
    WriteError,
    check_directory,
    make_directory,
    open_regular,
    reason,
    remove_leftovers,
    rewrite_regular,
    sync_directory,
    write_text,
)
from actiongap.lab.checkpoint import Checkpoint, UnreadableError, is_checkpoint, raise_if_transient, read_checkpoint, write_checkpoint
from actiongap.lab.experiment import (
    FORMAT,
    VERSION,
    Experiment,
    Fingerprints,
    Row,
    State,
    as_config,
    defaults,
    fingerprint_of,
    fingerprints,
    short_kind,
)
from actiongap.lab.lock import locked
from actiongap.lab.provenance import describe
from actiongap.lab.validation import read_record

RunOutcome = Literal["running", "stopped", "failed", "done"]
FILES = ("config.json", "meta.json", "metrics.jsonl", "status.json", "times.json", "policy.npz")
"""Files of a run, besides its lock and its checkpoints."""
CHECKPOINT = re.compile(r"\d{8,}\.npz")
"""File names of checkpoints."""
KEPT_CHECKPOINTS = 2
"""Number of checkpoints kept: the newest, and the previous one in case the newest is damaged."""


class Status(NamedTuple):
    """Progress of a run, as in its `status.json`."""

    state: RunOutcome
    chunk: int
    chunks: int
    steps: int
    """Steps done."""
    seconds: float
    rows: int
    """Bytes of rows."""
    digest: str
    """Their SHA-256."""
    disk: int
    """Bytes of all files except the rows."""
    error: str | None = None
    traceback: str | None = None
    batch_size: int | None = None
    """Number of runs that shared the seconds, this one included: the maximum over the run, 1 alone. None in old records."""


class Run:
    """A run that this process has locked. Made by `holding`.

    A state can be as large as memory, so a saved state is read from disk on demand and not kept.
    """

    def __init__(self, folder: Path, experiment: Experiment, command: str):
        self.folder: Path = folder
        self.experiment: Experiment = experiment
        # Remove temporary files of interrupted writes. Without a config.json, only one of config.json can be ours. Rows are appended to, so
        # they have none.
        written = FILES if (folder / "config.json").exists() else ("config.json",)
        _write_config(folder / "config.json", experiment)
        self._checkpoints = make_directory(folder / "checkpoint")
        self._fingerprint = fingerprint_of(type(experiment), as_config(experiment)["spec"])
        remove_leftovers(folder, re.compile("|".join(re.escape(name) for name in written if name != "metrics.jsonl")))
        remove_leftovers(self._checkpoints, CHECKPOINT)
        file, last = self._newest_valid()
        self.chunk: int = last.chunk if last else 0
        self.seconds: float = last.seconds if last else 0.0
        self.batch_size = _batch_size(folder) if last else 1
        self._state: State | None = None
        self._stored_in = file
        earlier, now = attempts(folder), fingerprints(experiment)
        if self.chunk and earlier and (changed := changed_files(earlier[-1], now)):
            raise ValueError(f"{changed} has changed since {folder.name} began: choose another --out, or delete the run's folder")
        self._attempts = [*earlier, {}]
        self.record_attempt({**describe(), "command": command, "from_chunk": self.chunk, **now._asdict()})
        self._rows, self._digest = self._open_rows(last.rows if last else 0)

    @property
    def state(self) -> State | None:
        """The current state, as appended or as saved; None if there is none."""
        return self._state if self._stored_in is None else read_checkpoint(self._stored_in).state

    @state.setter
    def state(self, state: State | None) -> None:
        self._state, self._stored_in = state, None

    def rewind(self, chunk: int) -> bool:
        """Go back to the checkpoint after `chunk` chunks. Returns False, without any change, if there is none."""
        with contextlib.suppress(ValueError):
            file = self._checkpoint_file(chunk)
            found = read_checkpoint(file)
            if self._continues(found, file):
                self.close()
                self._rows, self._digest = self._open_rows(found.rows)
                self.chunk, self.seconds = found.chunk, found.seconds
                self._state, self._stored_in = None, file
                for newer in self._checkpoint_files():
                    if newer > file:
                        with contextlib.suppress(OSError):
                            newer.unlink()
                return True
        return False

    def append(self, chunk: int, lines: bytes, state: State | None, seconds: float, batch_size: int = 1) -> None:
        """Append one chunk: write its rows, and keep its state until it is saved. Without a state the run cannot be saved.

        `seconds` is the share of this run if it is in a batch.
        """
        with self._report_full_disk():
            self._rows.write(lines)
            self._rows.flush()
        self._digest.update(lines)
        self.chunk, self.state, self.seconds = chunk, state, self.seconds + seconds
        if batch_size > 1:
            self.batch_size = max(batch_size, self.batch_size or 1)

    def save(self, state: RunOutcome = "running") -> None:
        """Save a checkpoint and the status."""
        saved = self.state
        assert saved is not None
        with self._report_full_disk():
            os.fsync(self._rows.fileno())
        written = Checkpoint(self.chunk, saved, self._rows.tell(), self._digest.hexdigest(), self.seconds, self._fingerprint)
        write_checkpoint(file := self._checkpoint_file(self.chunk), written)
        self._state, self._stored_in = None, file
        self._write_status(state)
        # A finished run needs one checkpoint: its status holds the digest of its rows. One that cannot be removed does no harm.
        older = [old for old in self._checkpoint_files() if old < file]
        for old in older if state == "done" else older[: 1 - KEPT_CHECKPOINTS]:
            with contextlib.suppress(OSError):
                old.unlink()

    def stop(self) -> None:
        """Set the status to stopped, without saving."""
        self._write_status("stopped")

    def fail(self, error: str, traceback: str) -> None:
        """Set the status to failed, with the error. The next attempt resumes from the last checkpoint."""
        self._write_status("failed", error, traceback)

    def close(self) -> None:
        """Close the file of rows."""
        # A failed write was already reported; closing would try again and report it in other words.
        with contextlib.suppress(OSError):
            self._rows.close()

    @contextlib.contextmanager
    def _report_full_disk(self) -> Iterator[None]:
        """Turn an OSError of the file of rows into a WriteError."""
        try:
            yield
        except OSError as error:
            why = f"{reason(error)}; free some space and run the same command again"
            raise WriteError(f"{self.folder / 'metrics.jsonl'} cannot be written: {why}") from None

    def _write_status(self, state: RunOutcome, error: str | None = None, traceback: str | None = None) -> None:
        chunks, done = self.experiment.chunks, self.chunk
        others = _size_of_files(self.folder)
        status = Status(
            state,
            done,
            chunks,
            self.experiment.total_steps * done // chunks,
            self.seconds,
            self._rows.tell(),
            self._digest.hexdigest(),
            others,
            error,
            traceback,
            self.batch_size,
        )
        _write_record(self.folder / "status.json", status._asdict())

    def _checkpoint_file(self, chunk: int) -> Path:
        return self._checkpoints / f"{chunk:08d}.npz"

    def _checkpoint_files(self) -> list[Path]:
        # Files without the header of a checkpoint of this run may belong to the user: they are neither read nor removed.
        named = (file for file in self._checkpoints.iterdir() if CHECKPOINT.fullmatch(file.name))
        return sorted(file for file in named if is_checkpoint(file, self._fingerprint))

    def _continues(self, found: Checkpoint, file: Path) -> bool:
        """Whether a checkpoint is one of this run, and the rows up to it are there."""
        # An old checkpoint does not know its run. Its rows tell, if there are any.
        ours = found.run == self._fingerprint or (not found.run and found.rows > 0)
        placed = 0 < found.chunk <= self.experiment.chunks and file == self._checkpoint_file(found.chunk)
        return ours and placed and digest_of(self.folder / "metrics.jsonl", found.rows) == found.digest

    def _newest_valid(self) -> tuple[Path | None, Checkpoint | None]:
        """Return the file of the newest valid checkpoint, and its content without the state.

        Invalid checkpoints are removed; otherwise they would seem newer than those that follow.
        """
        for file in reversed(self._checkpoint_files()):
            try:
                found = read_checkpoint(file)
                if self._continues(found, file):
                    return file, found._replace(state={})
            except UnreadableError:
                raise
            except ValueError:
                pass
            with contextlib.suppress(OSError):
                file.unlink()
        return None, None

    def _open_rows(self, size: int) -> tuple[BinaryIO, Any]:
        file = rewrite_regular(self.folder / "metrics.jsonl")
        try:
            # A checkpoint that survives a loss of power needs the name of its rows to survive too.
            sync_directory(self.folder)
            file.truncate(size)
            file.seek(0)
            digest = _hash(file, size)
            file.seek(size)
        except OSError as error:
            file.close()
            raise WriteError(f"{self.folder / 'metrics.jsonl'} cannot be written: {reason(error)}; change its permissions") from None
        return file, digest

    def record_attempt(self, description: dict[str, Any]) -> None:
        """Add to the provenance of this attempt, for example its device, which is known only once it runs."""
        self._attempts[-1].update(description)
        _write_record(self.folder / "meta.json", {"attempts": self._attempts})


@contextlib.contextmanager
def holding(folder: str | Path, experiment: Experiment, command: str = "") -> Iterator[Run]:
    """Open a run and lock it for this process. Raises BusyError if another process holds it.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.experiment import make
    >>> with holding(tempfile.mkdtemp(), make("q-learning", {"env": "cake"})) as run:
    ...     run.chunk
    0
    """
    check_folder(folder)
    folder = make_directory(folder)
    with locked(folder / "lock"), contextlib.closing(Run(folder, experiment, command)) as run:
        yield run


def check_folder(folder: str | Path) -> None:
    """Raise ValueError if a folder holds something other than a run. Nothing is changed, and the folder need not exist.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> check_folder(folder)
    >>> (folder / "metrics.jsonl").touch()
    >>> check_folder(folder)
    Traceback (most recent call last):
    ValueError: ... holds metrics.jsonl and no config.json, so it is not a run: choose another --out, or move its files away
    """
    folder = check_directory(folder)
    found = [entry for entry in _entries(folder) if entry.name in (*FILES, "checkpoint", "lock")]
    saved = [entry for entry in _entries(folder / "checkpoint") if CHECKPOINT.fullmatch(entry.name)]
    for entry in (*found, *saved):
        if entry.is_symlink():
            raise ValueError(
                f"{entry.path} is a symbolic link, and runs are not written through links: move it away, or choose another --out"
            )
        if entry.name == "checkpoint" and not entry.is_dir():
            raise ValueError(f"{entry.path} is not a folder: move it away, or choose another --out")
        if entry.name not in ("checkpoint", "lock") and not entry.is_file():
            raise ValueError(f"{entry.path} is a folder, a pipe or a device, not a file: move it away, or choose another --out")
    # Checked last: a process that starts the run right now writes config.json before the other files.
    file = folder / "config.json"
    if os.path.lexists(file):
        _read_config(file)
        return
    # A process that was killed at its start leaves an empty lock.
    if os.path.lexists(folder / "study.json"):
        raise ValueError(f"{folder} is a study, not a run: choose another --out")
    others = sorted(entry.name for entry in found if entry.name != "lock" or not entry.is_file() or entry.stat().st_size)
    if others:
        raise ValueError(f"{folder} holds {others[0]} and no config.json, so it is not a run: choose another --out, or move its files away")


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, or none if it cannot be read, which is reported when it is written to."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _size_of_files(folder: Path) -> int:
    """Return the size of all files in a folder except the rows. Files that cannot be read, or vanish meanwhile, do not count."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(place, name))
                size += found.st_size if name != "metrics.jsonl" and stat.S_ISREG(found.st_mode) else 0
    return size


def attempts(folder: str | Path) -> list[dict[str, Any]]:
    """Return the provenance of all attempts at a run. Empty if unknown, which does not prevent resuming.

    Examples
    --------
    >>> attempts("nowhere")
    []
    """
    try:
        return [dict(attempt) for attempt in read_record(Path(folder) / "meta.json")["attempts"]]
    except (ValueError, KeyError, TypeError):
        return []


def changed_files(attempt: dict[str, Any], now: Fingerprints) -> str:
    """Return the first of the user's functions and files that has changed since an attempt; empty if none has.

    Functions and classes are compared by what they are. Data, and code of attempts that recorded no more, are compared by bytes.

    Examples
    --------
    >>> before = {"files": {"mine.py": "ab12"}, "code": {"mine.py:half": {"": "ab", "helper.py": "12"}}}
    >>> changed_files(before, Fingerprints({"mine.py": "cd34"}, {"mine.py:half": {"": "ab", "helper.py": "34"}}))
    'helper.py, which mine.py:half uses,'
    >>> changed_files({"files": {"mine.npz": "ab12"}}, Fingerprints({"mine.npz": "cd34"}, {}))
    'mine.npz'
    """
    files, code = (found if isinstance(found := attempt.get(name), dict) else {} for name in ("files", "code"))
    known = {name: digests for name, digests in code.items() if name in now.code and isinstance(digests, dict)}
    for name, digests in known.items():
        for part in dict.fromkeys([*now.code[name], *digests]):
            if digests.get(part) != (digest := now.code[name].get(part)):
                # If all of a file counts, the digest says why.
                why = (digest or "").partition(" ")[2]
                return (f"{part}, which {name} uses," if part else name) + (f" {why}" if why else "")
    by_code = {name.rpartition(":")[0] for name in known}
    return next((name for name, digest in now.files.items() if name not in by_code and files.get(name, digest) != digest), "")


def is_done(folder: str | Path, experiment: Experiment) -> bool:
    """Return whether a folder holds this experiment, finished and with unchanged rows.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.experiment import make
    >>> is_done(tempfile.mkdtemp(), make("q-learning", {"env": "cake"}))
    False
    """
    folder = Path(folder)
    try:
        same = _same_experiment(read_record(folder / "config.json"), experiment)
        status = read_status(folder)
    except ValueError:
        return False
    return same and status.state == "done" and digest_of(folder / "metrics.jsonl") == status.digest


def read_status(folder: str | Path) -> Status:
    """Read the status of a run. Raises ValueError if it is missing or not valid."""
    file = Path(folder) / "status.json"
    found = read_record(file)
    status = Status(**{name: found.get(name) for name in Status._fields})  # pyright: ignore[reportArgumentType]
    counts = (status.chunk, status.chunks, status.steps, status.rows, status.disk)
    texts = isinstance(status.digest, str) and all(isinstance(text, str | None) for text in (status.error, status.traceback))
    times = type(status.seconds) in (int, float) and 0 <= status.seconds < 2**63
    size = status.batch_size is None or (type(status.batch_size) is int and 0 < status.batch_size < 2**63)
    if not (
        texts
        and times
        and size
        and status.state in get_args(RunOutcome)
        and all(type(count) is int and 0 <= count < 2**63 for count in counts)
    ):
        raise ValueError(f"{file}: something in it is missing or changed")
    return status


def _batch_size(folder: Path) -> int | None:
    """Return the number of runs that shared the time of a run that is resumed, if known."""
    try:
        return read_status(folder).batch_size
    except ValueError:
        return None


def plain_row(row: Row) -> Row:
    """Return a row of plain numbers and strings, with None for values that are not finite.

    Examples
    --------
    >>> plain_row({"step": np.int64(1), "score": float("nan")})
    {'step': 1, 'score': None}
    """
    return {name: _plain(value) for name, value in row.items()}


def encode_rows(rows: Sequence[Row]) -> bytes:
    r"""Return plain rows as lines of JSON.

    Examples
    --------
    >>> encode_rows([{"step": 1, "score": None}])
    b'{"step": 1, "score": null}\n'
    """
    return b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (str, int, float, type(None))):
        raise ValueError(f"a row holds {value!r}: rows hold numbers, strings and None")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def digest_of(file: Path, size: int | None = None) -> str | None:
    """Return the SHA-256 of the first `size` bytes of a file, or of all of it. None if there are fewer bytes, or no such file."""
    try:
        with open_regular(file) as stream:
            held = os.fstat(stream.fileno()).st_size
            # The size may come from a file that was changed.
            return _hash(stream, held if size is None else size).hexdigest() if size is None or 0 <= size <= held else None
    except OSError as error:
        raise_if_transient(file, error)
        return None
    except ValueError:
        return None


def _hash(stream: BinaryIO, size: int) -> Any:
    """Return the SHA-256 of the next `size` bytes of a stream."""
    found = hashlib.sha256()
    while size > 0 and (block := stream.read(min(size, 2**20))):
        found.update(block)
        size -= len(block)
    return found


def _write_config(file: Path, experiment: Experiment) -> None:
    """Write the configuration, or check that the existing one is of the same experiment."""
    if not file.exists():
        write_text(file, json.dumps(as_config(experiment), indent=1) + "\n", sweep=False)
        return
    if not _same_experiment(_read_config(file), experiment):
        raise ValueError(f"{file}: it is not the configuration of this run: move the folder away, or choose another --out")


def _read_config(file: Path) -> dict[str, Any]:
    try:
        return read_record(file)
    except ValueError as error:
        raise ValueError(f"{error}; or move the folder away, and the same command runs it again") from None


def _same_experiment(config: dict[str, Any], experiment: Experiment) -> bool:
    """Return whether a configuration is of this experiment. Fields that are missing in it have their defaults."""
    wanted = json.loads(json.dumps({**as_config(experiment), "defaults": defaults(experiment)}))
    kind, spec = config.get("kind"), config.get("spec")
    same_kind = isinstance(kind, str) and short_kind(kind) == short_kind(wanted["kind"])
    return same_kind and isinstance(spec, dict) and wanted["defaults"] | spec == wanted["spec"]


def _write_record(file: Path, record: dict[str, Any]) -> None:
    write_text(file, json.dumps({"format": FORMAT, "version": VERSION, **record}, indent=1, allow_nan=False) + "\n", sweep=False)
