"""Progress bars on standard error, at once or only for calls that take longer than two seconds.

A bar is shown on terminals and in notebooks, never in files and pipes. Where one call uses another, only the outer one shows progress.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

T = TypeVar("T")
SHOW_AFTER = 2.0
"""Seconds after which the progress of a call is shown, unless it is asked for or turned off."""


class Delayed:
    """A display of progress: shown at once (True), after `SHOW_AFTER` seconds unless another one is open (None), or never (False).

    Examples
    --------
    >>> shown = Delayed(lambda: print("showing"), True)
    >>> shown.start()
    showing
    >>> shown.stop()
    True
    """

    _open: ClassVar[int] = 0
    """Number of displays that were started and not stopped."""

    def __init__(self, show: Callable[[], object], progress: bool | None):
        self.enabled: bool = progress is not False
        """Whether it may be shown."""
        self.visible: bool = False
        """Whether it has been shown."""
        self._show, self._closed, self._lock = show, False, threading.Lock()
        self._wait: float | None = {True: 0.0, None: SHOW_AFTER, False: None}[progress]
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        """Show the progress, at once or after the delay."""
        inside, Delayed._open = Delayed._open > 0, Delayed._open + 1
        if self._wait and not inside:
            self._timer = threading.Timer(self._wait, self._show_once)
            self._timer.daemon = True
            self._timer.start()
        elif self._wait == 0.0:
            self._show_once()

    def stop(self) -> bool:
        """Hide the progress. Return whether it was shown."""
        Delayed._open -= 1
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


class StepProgress:
    """A progress bar for callbacks of the form `progress(text, fraction)`, used as a context manager.

    `progress` says when it appears: at once (True), after two seconds (None), or never (False). Until then a call costs next to nothing.

    Examples
    --------
    >>> with StepProgress("solve", progress=False) as progress:
    ...     progress("sweep 1 of 2", 0.5)
    """

    def __init__(self, name: str, progress: bool | None = True):
        self.name: str = name
        self._text: str = name
        self._fraction: float = 0.0
        self._bar: tuple[Progress, TaskID] | None = None
        self._delayed: Delayed = Delayed(self._show, progress if is_watched() else False)

    def __enter__(self) -> Self:
        self._delayed.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._delayed.stop() and self._bar is not None:
            self._bar[0].stop()

    def __call__(self, text: str, fraction: float | None = None) -> None:
        """Show a text, and the fraction done if it is known."""
        self._text = f"{self.name}: {text}"
        self._fraction = self._fraction if fraction is None else fraction
        if self._bar is not None:
            bar, task = self._bar
            bar.update(task, completed=self._fraction, description=self._text)

    def over(self, items: Iterable[T], total: int) -> Iterator[T]:
        """Return an iterator over the items, of which there are `total`, that shows how many steps are done.

        Examples
        --------
        >>> with StepProgress("learn", progress=False) as progress:
        ...     list(progress.over("ab", total=2))
        ['a', 'b']
        """
        # Where no bar can appear, counting would take up to a tenth of the time of a loop over quick steps.
        return self._count(items, total) if self._delayed.enabled else iter(items)

    def _count(self, items: Iterable[T], total: int) -> Iterator[T]:
        often = max(total // 1000, 1)
        for done, item in enumerate(items):
            if not done % often:
                self(f"step {done:,} of {total:,}", done / total)
            yield item

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar = bar, bar.add_task(self._text, total=1.0, completed=self._fraction)  # pyright: ignore[reportArgumentType]
        bar.start()


def is_watched() -> bool:
    """Whether a progress bar can be seen: standard error is a terminal, or this is a notebook.

    Examples
    --------
    >>> is_watched() in (True, False)
    True
    """
    # Standard error may be absent or closed.
    try:
        return sys.stderr.isatty() or "ipykernel" in sys.modules
    except (AttributeError, ValueError):
        return False
