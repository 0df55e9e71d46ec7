"""The queue of a study: batches of runs that wait for an executor, runs that another process holds, and retries.

Several processes may run the same study, on one machine or on several that share a file system: a run is executed by the one that locks it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from actiongap.lab.batches import batch_runs, fits_here
from actiongap.lab.experiment import Experiment
from actiongap.lab.runner import Event, Members, OnEvent, StudyOutcome, run_folder, unfinished_runs
from actiongap.lab.store import is_done
from actiongap.lab.study import Study

RETRIES = 3
"""How many times a run is retried after its worker died without completing another chunk."""
RETRY_AFTER = 1.0
"""Seconds until a postponed run is queued again."""


class RetryBudget:
    """Limits how often the worker of a run may die: `RETRIES` times in a row at the same chunk."""

    def __init__(self) -> None:
        self._deaths: dict[str, tuple[int, int]] = {}

    def count_death(self, run: str, chunk: int) -> bool:
        """Count a death of the worker after `chunk` chunks of a run, and return whether the budget is exhausted."""
        before, count = self._deaths.get(run, (-1, 0))
        count = count + 1 if chunk <= before else 1
        self._deaths[run] = (max(chunk, before), count)
        return count > RETRIES


class StudyQueue:
    """The runs of a study that are left: batches that wait for an executor, and runs that another process holds."""

    def __init__(
        self,
        study: Study,
        folder: Path,
        on_event: OnEvent,
        batch_size: int | None = None,
        fits: Callable[[Experiment], int] = fits_here,
    ):
        self.folder: Path = folder
        self.on_event: OnEvent = on_event
        self.waiting: deque[Members] = deque(batch_runs(unfinished_runs(study, folder), batch_size, fits))
        self.elsewhere: list[tuple[float, str, Experiment]] = []
        self.outcome: StudyOutcome = StudyOutcome()
        self.budget: RetryBudget = RetryBudget()

    def report(self, event: Event) -> None:
        """Record an event of a run, and forward it."""
        if event.kind == "done":
            self.outcome.done.append(event.run)
        elif event.kind == "failed":
            self.outcome.failed[event.run] = event.text
        self.on_event(event)

    def retry_later(self, name: str, experiment: Experiment) -> None:
        """Postpone a run that another process holds."""
        self.elsewhere.append((time.monotonic() + RETRY_AFTER, name, experiment))

    def check_elsewhere(self) -> None:
        """Queue postponed runs whose delay is over, unless another process has finished them."""
        now = time.monotonic()
        for entry in [entry for entry in self.elsewhere if entry[0] <= now]:
            self.elsewhere.remove(entry)
            _, name, experiment = entry
            if is_done(run_folder(self.folder, name), experiment):
                self.on_event(Event("done", name))
            else:
                self.waiting.append([(name, experiment)])

    def retry(self, members: Members, chunk: int, why: str) -> bool:
        """Queue a batch whose worker died after `chunk` chunks, or return False if that happened too often."""
        exhausted = [name for name, _ in members if self.budget.count_death(name, chunk)]
        if exhausted:
            return False
        self.waiting.appendleft(members)
        for name, _ in members:
            self.on_event(Event("died", name, text=why))
        return True
