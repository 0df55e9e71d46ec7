"""Atomic writes, and objects loaded from users' Python files.

A file is written beside its target under a temporary name and then renamed over it. A reader never sees a partial file, an interrupted
command leaves the old file in place, and an error such as a full disk is reported in one sentence.

`path/to/file.py:name` names an object in a user's file. A name that the user types is loaded. A name that a file contains, such as the
configuration of a run or a policy, may come from someone else, and reading it must not run code: callers that read names from files call
`check_trusted` before they load anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Mapping
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


def from_file(path: str | Path, name: str) -> Any:
    """Load the function or class `name` from a Python file. Raises ValueError if that fails.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.py"
    >>> written = file.write_text("def half(b): return b.bellman / 2")
    >>> from_file(file, "half").__name__
    'half'
    """
    path = Path(path)
    if not os.path.isfile(path):
        raise ValueError(f"{path}: no such file; check the path in path/to/file.py:name")
    # A unique module name per file: dataclasses and docstrings look up their module by name.
    unique = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"actiongap_user_{path.stem}_{unique}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: the file cannot be loaded ({type(error).__name__}: {reason}); fix it and try again") from error
    found = getattr(module, name, None)
    if found is None:
        own = [key for key, value in vars(module).items() if _is_own(value, module.__name__)]
        raise ValueError(f"{path} has no function {name!r}; it has {', '.join(own) or 'none'}")
    return found


def split_own(text: str) -> tuple[str, str] | None:
    """Return the file and the name in `path/to/file.py:name`; None for any other string.

    Examples
    --------
    >>> split_own("my/operators.py:half"), split_own("al:0.5")
    (('my/operators.py', 'half'), None)
    """
    path, _, name = text.strip().rpartition(":")
    return (path, name) if path.endswith(".py") else None


def names_code(text: Any) -> bool:
    """Whether a string names user code: `path/to/file.py:name`, or `gym/MODULE:ID`, which imports MODULE.

    Examples
    --------
    >>> names_code("my/operators.py:half"), names_code("gym/my_games:Maze-v0"), names_code("gym/CartPole-v1"), names_code("al:0.5")
    (True, True, False, False)
    """
    if not isinstance(text, str):
        return False
    return split_own(text) is not None or (text.strip().startswith("gym/") and ":" in text)


def check_trusted(values: Any, trust: bool) -> None:
    """Raise ValueError if values from an untrusted file name code, at any depth of nesting. Loads nothing.

    Examples
    --------
    >>> check_trusted({"env": "cake", "operator": ["al:0.5", "theirs.py:op"]}, trust=False)
    Traceback (most recent call last):
    ValueError: it names code to run, 'theirs.py:op': give --trust (in Python trust=True) if you trust its author
    """
    items = values.values() if isinstance(values, Mapping) else values if isinstance(values, (list, tuple)) else ()
    for value in items:
        check_trusted(value, trust)
    if not trust and names_code(values):
        raise ValueError(f"it names code to run, {values[:100]!r}: give --trust (in Python trust=True) if you trust its author")


def _is_own(value: Any, module: str) -> bool:
    return (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__ == module
