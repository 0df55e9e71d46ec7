"""Signals that end a process: which ones, what is remembered of them, and how a worker ends when its launcher dies.

SIGTERM and SIGHUP end a command as Ctrl-C does. A worker that computes in compiled code, for minutes or for hours, sees neither the end of
its input nor a Python signal handler. On Linux the kernel therefore sends it a signal when its launcher dies, whose handler is not Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

GRACE = 12
"""Seconds in which a worker whose launcher died may end its chunk. Not another number: see `end_with_parent`."""
LAUNCHER = "ACTIONGAP_LAUNCHER"
"""Environment variable of workers: the number of the process that started them."""
TERMINALS = frozenset(number for number in (1, 2) if os.isatty(number))
"""The output streams of this process that are terminals. After a hangup they no longer say so."""
_TERMINATED: list[int] = []
"""The signals, besides Ctrl-C, that asked this process to end."""


def terminations() -> list[signal.Signals]:
    """Return the signals that ask a process to end, besides Ctrl-C, and that this process does not ignore.

    Examples
    --------
    >>> signal.SIGTERM in terminations()
    True
    """
    # Windows has no SIGHUP. None stands for a handler that was not installed by Python.
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]


def note_termination(number: int) -> bool:
    """Remember a signal that asked this process to end, and return whether it is the first.

    After a hangup nothing more is written to the terminal.
    """
    _TERMINATED.append(number)
    if number == getattr(signal, "SIGHUP", None):
        for stream in TERMINALS:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    return len(_TERMINATED) == 1


def exit_code() -> int:
    """Return the exit code of an interrupted command: 130 after Ctrl-C, and 128 plus the number of another signal.

    Examples
    --------
    >>> exit_code()
    130
    """
    return 128 + _TERMINATED[0] if _TERMINATED else 130


@contextlib.contextmanager
def terminations_interrupt() -> Iterator[None]:
    """In this context, SIGTERM and SIGHUP raise KeyboardInterrupt, once. Machines that shut down send both, one after another.

    Examples
    --------
    >>> try:
    ...     with terminations_interrupt():
    ...         os.kill(os.getpid(), signal.SIGTERM)
    ... except KeyboardInterrupt:
    ...     print(exit_code())
    143
    """
    _TERMINATED.clear()

    def handle(number: int, frame: Any) -> None:
        if note_termination(number):
            raise KeyboardInterrupt

    # Only the main thread can handle signals.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in terminations()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """Let this process be killed `GRACE` seconds after the death of its parent, whatever it computes then.

    On Linux the kernel sends SIGUSR2 when the parent dies, and its handler is the function `alarm` of the C library: it is called with the
    number of the signal, 12, and in that many seconds SIGALRM ends the process. So nothing of it waits for Python. Elsewhere a thread looks
    whether the parent is there, which is enough unless compiled code keeps Python's lock.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        library = ctypes.CDLL(None, use_errno=True)
        library.signal.restype, library.signal.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        library.signal(int(signal.SIGUSR2), ctypes.cast(library.alarm, ctypes.c_void_p))
        if library.prctl(1, int(signal.SIGUSR2), 0, 0, 0) == 0:  # PR_SET_PDEATHSIG
            return
    if hasattr(os, "fork"):
        threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)


def spare() -> None:
    """Take back what `end_with_parent` began: this process is about to save and exit by itself."""
    if hasattr(signal, "alarm"):
        signal.alarm(0)
