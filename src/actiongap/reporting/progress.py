"""Progress bars on standard error, at once or only for calls that take longer than two seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SHOW_AFTER = 2.0
"""Seconds after which the progress of a call is shown, unless it is asked for or turned off."""


class Delayed:
    """Something that is shown at once (True), after `SHOW_AFTER` seconds (None), or never (False).

    Examples
    --------
    >>> shown = Delayed(lambda: print("showing"), True)
    >>> shown.start()
    showing
    >>> shown.stop()
    True
    """

    def __init__(self, show: Callable[[], object], progress: bool | None):
        self.visible: bool = False
        """Whether it has been shown."""
        self._show, self._closed, self._lock = show, False, threading.Lock()
        self._wait: float | None = {True: 0.0, None: SHOW_AFTER, False: None}[progress]
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        """Show it, now or later."""
        if self._wait:
            self._timer = threading.Timer(self._wait, self._show_once)
            self._timer.daemon = True
            self._timer.start()
        elif self._wait is not None:
            self._show_once()

    def stop(self) -> bool:
        """Hide the progress. Return whether it was shown."""
        with self._lock:
            self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        return self.visible

    def _show_once(self) -> None:
        with self._lock:
            if not self._closed:
                self.visible = True
                self._show()


class Bar:
    """A progress bar on stderr; hidden unless stderr is a terminal or a notebook."""

    when: bool | None = True
    """When it appears: at once (True), after two seconds (None), or never (False)."""

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        shown = console.is_terminal or console.is_jupyter
        self.progress: Progress = Progress(*columns, console=console, transient=True, disable=not shown)
        self.task: TaskID = self.progress.add_task("", total=1.0)
        self._delayed: Delayed = Delayed(self.progress.start, self.when)
        self._delayed.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._delayed.stop():
            self.progress.stop()


class StepProgress(Bar):
    """A progress bar for callbacks of the form `progress(text, fraction)`.

    Examples
    --------
    >>> with StepProgress("solve", progress=False) as progress:
    ...     progress("sweep 1 of 2", 0.5)
    """

    def __init__(self, name: str, progress: bool | None = True):
        self.name: str = name
        self.when: bool | None = progress

    def __call__(self, text: str, fraction: float) -> None:
        self.progress.update(self.task, completed=fraction, description=f"{self.name}: {text}")
