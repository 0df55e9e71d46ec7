"""The progress bar of a plan."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from actiongap._progress import Delayed, StepProgress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from actiongap.planning.plan import SweepProgress

__all__ = ["Bar", "Delayed", "PlanProgress", "StepProgress"]


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


class PlanProgress(Bar):
    """A progress bar of the sweeps, with time per sweep and time left."""

    def __init__(self, iterations: int, when: bool | None = True):
        self.iterations: int = iterations
        self.when: bool | None = when
        self.note: str = ""
        self.first: tuple[float, int] | None = None

    def update(self, sweeps: SweepProgress) -> None:
        """Show the progress of the sweeps."""
        milliseconds = 1e3 * sweeps.seconds / sweeps.sweeps
        text = f"sweep {sweeps.done} of {self.iterations}: residual {sweeps.residual:.2e}, {milliseconds:.3g} ms per sweep"
        started, first = self.first = self.first or (time.monotonic(), sweeps.done)
        if sweeps.done > first:
            left = (time.monotonic() - started) / (sweeps.done - first) * (self.iterations - sweeps.done)
            text += f", {timedelta(seconds=round(left))} left"
        self.show(text, sweeps.done / self.iterations)

    def on_rollouts(self, policies: int) -> None:
        """Show that policies are being evaluated."""
        if policies:
            self.show(f"evaluating {policies} {'policies' if policies > 1 else 'policy'}")

    def stopping(self) -> None:
        """Show that the run stops after its current chunk."""
        self.note = " (stopping after this chunk is saved; press Ctrl-C again to discard the chunk)"
        self.show("interrupted")

    def show(self, text: str, fraction: float | None = None) -> None:
        """Show a message, and the fraction done if known."""
        self.progress.update(self.task, completed=fraction, description=text + self.note)
