"""Locks that end with the process that holds them, so that a run is never executed twice and never left locked.

The operating system holds the lock on an open file, and releases it however the process ends. Linux forwards such locks to the server of a
network file system. On Windows the lock is on the first byte of the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from actiongap._files import WriteError


class BusyError(Exception):
    """Another process holds the lock."""


@contextlib.contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Hold the lock file `path`. Raises BusyError at once if another process, or another holder in this process, has it.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "lock"
    >>> with locked(file):
    ...     with locked(file):
    ...         pass
    Traceback (most recent call last):
    actiongap.lab.lock.BusyError: ...
    """
    _prepare(path)
    # A soft lock would outlive its holder.
    lock = FileLock(path, timeout=0, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"{path} is held by another process") from None
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise WriteError(f"{path} cannot be locked: {reason}; use a file system that has locks") from None
    try:
        yield
    finally:
        lock.release()


def _prepare(path: str | Path) -> None:
    """Create the lock file, or check that it is a regular file: locking a pipe or a device might block."""
    # The permissions follow the umask, so that users who share a study can share its locks. Windows has neither flag.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    try:
        file = os.open(path, flags, 0o666)
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise WriteError(f"{path} cannot be opened for writing: {reason}; choose another place") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise WriteError(f"{path} cannot be locked: it is not a regular file; move it away, or choose another place")
    finally:
        os.close(file)
