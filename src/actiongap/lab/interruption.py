"""Ctrl-C that is heeded when it suits: what is being done is finished and saved first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def heeding(on_first: Callable[[], None]) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, after calling `on_first`; the second interrupts at once.

    Examples
    --------
    >>> import os
    >>> with heeding(lambda: print("stopping")) as stop:
    ...     os.kill(os.getpid(), signal.SIGINT)
    ...     stop.is_set()
    stopping
    True
    """
    stop = threading.Event()

    def heed(*_: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt("interrupted; the same command goes on from what was saved before")
        stop.set()
        on_first()

    # Elsewhere than in the main thread nobody can be interrupted.
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, heed)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
