"""Atomic writes, temporary files, versions of formats.

A file is written beside its target under a temporary name and then renamed over it. A reader never sees a partial file, an interrupted
command leaves the old file in place, and an error such as a full disk is reported in one sentence.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LEFTOVER = re.compile(r"\.(.+)\.[0-9a-f]{8}")
"""Temporary names of files that are being written; group 1 is the name of the target."""


NOT_A_FILE = "it is not a file: it is a folder, a pipe or a device"


INFLATED_BYTES = 2**28
"""Compressed arrays of fewer bytes are always read."""
INFLATION = 50
"""More bytes must be at most this many times as large as their file."""


WORD = 260
"""Longer words of a message are cut."""
LINE = 2000
"""Longer messages are cut."""


class WriteError(ValueError):
    """A file could not be written, for example because the disk is full or permission is denied."""


class BombError(ValueError):
    """An archive declares more than it should hold. It is not inflated."""


def write_text(path: str | Path, text: str, sweep: bool = True) -> None:
    r"""Write text as UTF-8, atomically. `sweep` is as for `writing`.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "note.txt"
    >>> write_text(file, "cake\n")
    >>> file.read_text()
    'cake\n'
    """
    write_bytes(path, text.encode(), sweep)


def write_bytes(path: str | Path, data: bytes, sweep: bool = True) -> None:
    """Write bytes atomically. `sweep` is as for `writing`.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "note.bin"
    >>> write_bytes(file, b"cake")
    >>> [found.name for found in file.parent.iterdir()]
    ['note.bin']
    """
    with writing(path, sweep) as file:
        file.write(data)


@contextlib.contextmanager
def writing(path: str | Path, sweep: bool = True) -> Iterator[BinaryIO]:
    """Open a file for an atomic write: it replaces `path` when the block ends, and is removed if the block raises.

    Temporary files that killed processes left of it are removed first. Without `sweep` they stay, where the caller knows better whose they
    are.

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
    check_replaceable(path)
    if sweep:
        _sweep(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            _hold(file)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {reason(error)}; free some disk space or choose another path") from None
    finally:
        # The file is gone after a successful write, and was never created if the folder is not writable.
        with contextlib.suppress(OSError):
            temporary.unlink()


_SWEPT: set[Path] = set()
"""Targets whose temporary files this process has removed."""


def _sweep(path: Path) -> None:
    """Remove the temporary files that killed processes left of a target. Those of living ones are locked, or new."""
    target = path.absolute()
    if target in _SWEPT:
        return
    _SWEPT.add(target)
    remove_leftovers(target.parent, re.compile(re.escape(path.name)), older_than=0.0 if fcntl else 3600.0, held=_is_held)


def _hold(file: BinaryIO) -> None:
    """Lock a temporary file until it is closed, so that other processes see that it is being written."""
    if fcntl:
        # Some file systems have no locks.
        with contextlib.suppress(OSError):
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_held(file: Path) -> bool:
    try:
        with open_regular(file) as stream:
            if fcntl:
                fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except (OSError, ValueError):
        return True


def sync_directory(folder: str | Path) -> None:
    """Make the names in a folder survive a loss of power, as far as the file system can.

    Examples
    --------
    >>> sync_directory(".")
    """
    try:
        number = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:  # Windows cannot open folders, and some folders can be written to and not read.
        return
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise
    finally:
        os.close(number)


def check_replaceable(path: Path) -> None:
    """Raise WriteError for folders, pipes and devices, which a file must not replace.

    Examples
    --------
    >>> check_replaceable(Path("/dev/null"))
    Traceback (most recent call last):
    actiongap._files.WriteError: /dev/null is a folder, a pipe or a device, not a file: choose another path
    """
    with contextlib.suppress(OSError):
        mode = path.lstat().st_mode
        # What a link leads to is not replaced, only the link.
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise WriteError(f"{path} is a folder, a pipe or a device, not a file: choose another path")


def open_regular(path: str | Path) -> BinaryIO:
    r"""Open a regular file for reading. Raises ValueError at once for a folder, a pipe or a device, where reading might never end.

    Examples
    --------
    >>> open_regular("/dev/null")
    Traceback (most recent call last):
    ValueError: it is not a file: it is a folder, a pipe or a device
    """
    return _regular(path, os.O_RDONLY, "rb")


def append_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for appending, or create it. Raises WriteError for a link, a folder, a pipe or a device.

    Examples
    --------
    >>> append_regular("/dev/null")
    Traceback (most recent call last):
    actiongap._files.WriteError: /dev/null cannot be written: it is not a file: it is a folder, a pipe or a device; choose another path
    """
    return _open_to_write(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, "ab")


def rewrite_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading and writing in place, or create it. Raises WriteError as `append_regular` does.

    Examples
    --------
    >>> import tempfile
    >>> with rewrite_regular(Path(tempfile.mkdtemp()) / "rows") as file:
    ...     file.tell()
    0
    """
    return _open_to_write(path, os.O_RDWR | os.O_CREAT, "r+b")


def _open_to_write(path: str | Path, flags: int, mode: str) -> BinaryIO:
    try:
        return _regular(path, flags | getattr(os, "O_NOFOLLOW", 0), mode)
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else reason(error)
    except ValueError as error:
        why = str(error)
    raise WriteError(f"{path} cannot be written: {why}; choose another path")


def _regular(path: str | Path, flags: int, mode: str) -> BinaryIO:
    """Open a file if it is a regular one. Opening a pipe would block without O_NONBLOCK, which regular files ignore."""
    try:
        # Windows translates line ends unless the file is binary.
        file = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        # A pipe without a reader, or a socket.
        if error.errno in (errno.ENXIO, errno.EISDIR):
            raise ValueError(NOT_A_FILE) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError(NOT_A_FILE)
        opened: Any = os.fdopen(file, mode)
        return opened
    except BaseException:
        os.close(file)
        raise


def check_archive(archive: zipfile.ZipFile, compressed: bool) -> None:
    """Raise BombError if an archive is a bomb: what it declares is more than what it holds, or far more than its size if compressed.

    Nothing is inflated. Archives that we write without compression must have none.

    Examples
    --------
    >>> import io
    >>> with zipfile.ZipFile(io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
    ...     archive.writestr("q.npy", bytes(2**20))
    ...     check_archive(archive, compressed=True)
    ...     check_archive(archive, compressed=False)
    Traceback (most recent call last):
    actiongap._files.BombError: q.npy is compressed: the file was changed
    """
    held, declared = (sum(getattr(member, size) for member in archive.infolist()) for size in ("compress_size", "file_size"))
    packed = [member.filename for member in archive.infolist() if member.compress_type != zipfile.ZIP_STORED]
    if packed and not compressed:
        raise BombError(f"{packed[0][:100]} is compressed: the file was changed")
    if declared > INFLATED_BYTES and declared > INFLATION * held:
        raise BombError(f"its arrays have {format_bytes(declared)} in {format_bytes(held)}: if that is right, save it without compression")


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
        missing = [place for place in (path, *path.parents) if not place.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for place in missing:
            sync_directory(place.parent)
    except OSError as error:
        raise WriteError(f"the folder {path} cannot be made: {reason(error)}; choose another path") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise WriteError(f"the folder {path} is not writable: change its permissions or choose another path")
    return path


def check_directory(path: str | Path) -> Path:
    """Raise WriteError unless a folder is writable or can be made. Nothing is made, so a command can check before it does anything.

    Examples
    --------
    >>> check_directory("/dev/null/results")
    Traceback (most recent call last):
    actiongap._files.WriteError: the folder /dev/null/results cannot be made: /dev/null is not a folder; choose another path
    """
    path = Path(path)
    try:
        for place in (path, *path.absolute().parents):
            try:
                mode = os.stat(place).st_mode
            except FileNotFoundError:
                if place.is_symlink():
                    raise WriteError(f"the folder {path} cannot be made: {place} is a link to nothing; choose another path") from None
                continue
            except NotADirectoryError:
                continue
            if not stat.S_ISDIR(mode):
                where = "it" if place == path else place
                raise WriteError(f"the folder {path} cannot be made: {where} is not a folder; choose another path")
            if not os.access(place, os.W_OK | os.X_OK):
                raise WriteError(f"the folder {place} is not writable: change its permissions or choose another path")
            break
    except (OSError, ValueError) as error:
        if isinstance(error, WriteError):
            raise
        raise WriteError(f"the folder {path} cannot be made: {_why(error)}; choose another path") from None
    return path


def check_writable(path: str | Path) -> Path:
    """Raise WriteError unless a file can be written. Nothing is made.

    Examples
    --------
    >>> check_writable("/dev/null/page.html")
    Traceback (most recent call last):
    actiongap._files.WriteError: the folder /dev/null cannot be made: it is not a folder; choose another path
    """
    path = Path(path)
    check_replaceable(path)
    check_directory(path.parent)
    return path


def _why(error: OSError | ValueError) -> str:
    return reason(error) if isinstance(error, OSError) else str(error)


def remove_leftovers(
    folder: str | Path, of: re.Pattern[str], older_than: float = 0.0, held: Callable[[Path], bool] = lambda file: False
) -> None:
    """Remove temporary files that killed processes left in a folder and that are older than `older_than` seconds.

    Those for which `held` is true are being written by another process and stay. The name of the target must match `of`: other files, such
    as `.backup.20260101`, may belong to the user.

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
            if (
                known
                and of.fullmatch(known[1])
                and stat.S_ISREG(found.st_mode)
                and time.time() - found.st_mtime >= older_than
                and not held(leftover)
            ):
                leftover.unlink()


def printable(text: object) -> str:
    r"""Return a text or path for use in a message, with U+FFFD for characters that cannot be printed, such as escapes of the terminal.

    Examples
    --------
    >>> printable("runs/two\nlines")
    'runs/two\ufffdlines'
    """
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in str(text))


def one_line(text: object) -> str:
    r"""Return a message in one line of characters that can be printed. Long words, such as an argument by mistake, are cut.

    Examples
    --------
    >>> one_line("no such\n file: " + "x" * 100_000)[:24], len(one_line("x" * 100_000))
    ('no such file: xxxxxxxxxx', 260)
    """
    words = (word if len(word) <= WORD else f"{word[: WORD - 60]}...{word[-57:]}" for word in str(text).split())
    line = printable(" ".join(words))
    return line if len(line) <= LINE else f"{line[: LINE - 500]} ... {line[-495:]}"


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
