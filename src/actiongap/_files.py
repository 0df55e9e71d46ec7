"""Atomic writes, temporary files, versions of formats.

A file is written beside its target under a temporary name and then renamed over it. A reader never sees a partial file, an interrupted
command leaves the old file in place, and an error such as a full disk is reported in one sentence.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

LEFTOVER = re.compile(r"\.(.+)\.[0-9a-f]{8}")
"""Temporary names of files that are being written; group 1 is the name of the target."""


class WriteError(ValueError):
    """A file could not be written, for example because the disk is full or permission is denied."""


def write_text(path: str | Path, text: str) -> None:
    r"""Write text as UTF-8, atomically.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "note.txt"
    >>> write_text(file, "cake\n")
    >>> file.read_text()
    'cake\n'
    """
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes atomically.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "note.bin"
    >>> write_bytes(file, b"cake")
    >>> [found.name for found in file.parent.iterdir()]
    ['note.bin']
    """
    with writing(path) as file:
        file.write(data)


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for an atomic write: it replaces `path` when the block ends, and is removed if the block raises.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "note.bin"
    >>> with writing(file) as stream:
    ...     written = stream.write(b"cake")
    >>> file.read_bytes()
    b'cake'
    """
    path = Path(path)
    _check_replaceable(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {reason(error)}; free some disk space or choose another path") from None
    finally:
        # The file is gone after a successful write, and was never created if the folder is not writable.
        with contextlib.suppress(OSError):
            temporary.unlink()


def _check_replaceable(path: Path) -> None:
    """Raise WriteError for folders, pipes and devices, which a file must not replace."""
    with contextlib.suppress(OSError):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise WriteError(f"{path} is a folder, a pipe or a device, not a file: choose another path")


def as_path(path: str | os.PathLike[str], name: str) -> Path:
    """Return a path that a user gave as the argument `name`, or raise TypeError if it is not one.

    Examples
    --------
    >>> as_path(3, "out")
    Traceback (most recent call last):
    TypeError: out is 3: give a path, as text or a Path
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{name} is {path!r}: give a path, as text or a Path")
    return Path(path)


def as_paths(paths: Any, name: str) -> list[Path]:
    """Return one path or several that a user gave as the argument `name`, or raise TypeError if they are not paths.

    Examples
    --------
    >>> [path.name for path in as_paths("lake", "folders")]
    ['lake']
    >>> as_paths(3, "folders")
    Traceback (most recent call last):
    TypeError: folders is 3: give a path, as text or a Path, or a list of them
    """
    if isinstance(paths, (str, os.PathLike)):
        return [Path(paths)]
    given: list[Any] = list(paths) if isinstance(paths, Iterable) else [None]
    if not all(isinstance(path, (str, os.PathLike)) for path in given):
        raise TypeError(f"{name} is {paths!r}: give a path, as text or a Path, or a list of them")
    return [Path(path) for path in given]


def make_directory(path: str | Path) -> Path:
    """Make a folder and check that it is writable, so that a long computation fails before it starts, not at its end.

    Examples
    --------
    >>> import tempfile
    >>> make_directory(Path(tempfile.mkdtemp()) / "results" / "cake").name
    'cake'
    """
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"the folder {path} cannot be made: {reason(error)}; choose another path") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise WriteError(f"the folder {path} is not writable: change its permissions or choose another path")
    return path


def remove_leftovers(folder: str | Path, of: re.Pattern[str], older_than: float = 0.0) -> None:
    """Remove temporary files that killed processes left in a folder and that are older than `older_than` seconds.

    The name of the target must match `of`: other files, such as `.backup.20260101`, may belong to the user.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in (".note.txt.0123abcd", ".backup.20260101"):
    ...     (folder / name).touch()
    >>> remove_leftovers(folder, re.compile("note.txt"))
    >>> [left.name for left in folder.iterdir()]
    ['.backup.20260101']
    """
    for leftover in Path(folder).glob(".*"):
        with contextlib.suppress(OSError):
            known, found = LEFTOVER.fullmatch(leftover.name), leftover.lstat()
            if known and of.fullmatch(known[1]) and stat.S_ISREG(found.st_mode) and time.time() - found.st_mtime >= older_than:
                leftover.unlink()


def reason(error: OSError) -> str:
    """Return the error message of the operating system."""
    return (error.strerror or str(error)).lower()


def check_version(record: Any, kind: str, newest: int, otherwise: str) -> None:
    """Raise ValueError unless a record has the format `kind` (message: `otherwise`) and at most version `newest`.

    Examples
    --------
    >>> check_version({"format": "a-cake", "version": 9}, "a-cake", 1, "it is not a cake")
    Traceback (most recent call last):
    ValueError: it was written by a later version (format 9, and this one reads 1): upgrade actiongap
    """
    if not isinstance(record, dict) or record.get("format") != kind:
        raise ValueError(otherwise)
    version = record.get("version")
    if type(version) is not int or version < 1:
        raise ValueError(f"its version is {version!r}, which no version of actiongap writes")
    if version > newest:
        raise ValueError(f"it was written by a later version (format {version}, and this one reads {newest}): upgrade actiongap")


def format_bytes(size: float) -> str:
    """Format a number of bytes with its unit.

    Examples
    --------
    >>> format_bytes(2_300_000_000)
    '2.3 GB'
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} PB"
