"""A progress bar whose columns a command fills itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from actiongap._progress import Delayed, StepProgress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Bar", "Delayed", "StepProgress"]


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
