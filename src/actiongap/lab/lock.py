"""Locks that die with their holder, so that one run is never worked on twice, nor left behind locked.

The operating system holds the lock, on an open file, and releases it however the process ends. Linux passes such locks on to the server of
a network file system.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from actiongap._files import WriteError


class BusyError(Exception):
    """Another process holds the lock."""


@contextlib.contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Hold the lock that is the file `path`, or raise BusyError at once where another process, or another holder in this one, has it.

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
    # Windows has no such module, and nothing else of the package needs it.
    import fcntl

    try:
        file = open(path, "ab")  # noqa: SIM115 - closed below, which is what releases the lock
    except OSError as error:
        raise WriteError(f"{path} cannot be opened for writing: {error.strerror}; choose another place") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise BusyError(f"{path} is held by another process") from None
            raise WriteError(f"{path} cannot be locked: {error.strerror}; use a file system that has locks") from None
        yield
