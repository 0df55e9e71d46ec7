"""Results in the terminal: solutions, verdicts, and the progress of a study.

`LiveTable` shows the progress of every run on a terminal, and prints a line per event elsewhere.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from actiongap._progress import Delayed
from actiongap.lab.validation import printable
from actiongap.mdp.solve import first_states

if TYPE_CHECKING:
    from actiongap.lab.experiment import Experiment
    from actiongap.lab.runner import Event
    from actiongap.mdp.model import FiniteMDP
    from actiongap.mdp.solve import Solution
    from actiongap.proof import Verdict

FILE_WIDTH = 1000
"""Width of the output to files and pipes: wider than any table, so that no row is wrapped."""


def output_console() -> Console:
    """Return the console for results. Tables are fitted to a terminal, and not wrapped in files and pipes.

    Examples
    --------
    >>> output_console().is_terminal
    False
    """
    console = Console(highlight=False)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=FILE_WIDTH)


def plain(text: object) -> str:
    r"""Return a text without its markup and with U+FFFD for characters that a terminal would obey: names come from users and files.

    Examples
    --------
    >>> plain("[/red].npz")
    '\\[/red].npz'
    """
    return escape(printable(text))


def show_solution(mdp: FiniteMDP, solution: Solution, out: Path | None = None) -> None:
    """Print the result of `solve`, with a table of the first states."""
    console = output_console()
    console.print(f"[bold]{plain(mdp.name)}[/bold]: {mdp.states} states, {mdp.actions} actions, gamma = {mdp.gamma:g}")
    console.print(plain(f"{solution.operator} on {solution.engine}: {solution.status}"))
    if not math.isfinite(solution.error_bound):
        # Diverged values are meaningless and can have very many digits.
        if out is not None:
            console.print(plain(f"{out} was not written."))
        return
    console.print(f"The greedy policy loses at most {solution.policy_loss_bound:.1e} in any state.")
    table = Table(box=None, pad_edge=False)
    headings, rows = first_states(solution)
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if mdp.states > len(rows):
        console.print(f"... and {mdp.states - len(rows)} more states: --out FILE.npz writes them all.")
    if mdp.note:
        console.print(printable(mdp.note), markup=False)
    if out is not None:
        console.print(plain(f"Wrote q, v, policy and gaps to {out}." if solution.converged else f"{out} was not written."))


def show_verdict(verdict: Verdict) -> None:
    """Print the verdict on an operator."""
    console = output_console()
    console.print(f"[bold]{plain(verdict.operator)}[/bold], {verdict.scope()}")
    table = Table(box=None, show_header=False, pad_edge=False)
    for no_wrap in (True, True, False):
        table.add_column(no_wrap=no_wrap)
    colors = {"yes": "green", "no": "red", "unknown": "yellow"}
    for question, answer, remark in verdict.answers():
        table.add_row(escape(question), f"[{colors[answer]}]{answer}[/]", remark)
    console.print(table)
    console.print(plain(verdict.summary))
    if verdict.counterexample is not None:
        console.print(plain(f"Counterexample: {verdict.counterexample['sentence']}"))
    for claim, witness in (verdict.witness or {}).items():
        console.print(f"Witness against {claim.replace('_', '-')}: {witness['kind']}")
        console.print(f"  rewards {witness['rewards']}, successors {witness['successors']}, gamma {witness['gamma']:g}, Q0 {witness['q0']}")


MAX_RUNS = 16
"""Maximum number of runs in the table."""
VALUE_COLUMNS: dict[str, tuple[str, ...]] = {"gap": ("gap", "action_gap"), "V": ("value",)}
"""Headings of values besides the score, with the columns they may show."""
STOPPING = "stopping: each run is saved after its current chunk; press Ctrl-C again to discard unsaved work"


@dataclass
class _RunProgress:
    """A run in progress."""

    experiment: Experiment
    started: float
    chunk: float = 0
    first: tuple[float, float] | None = None
    """Time of its first step event, and the number of chunks done then. What came before includes compiling, and is not counted."""
    last: float = 0.0
    """Time of its last step event."""
    row: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> tuple[float, float]:
        """The steps after the first step event, and their seconds."""
        if self.first is None:
            return 0.0, 0.0
        return (self.chunk - self.first[1]) * self.experiment.total_steps / self.experiment.chunks, self.last - self.first[0]

    @property
    def steps_left(self) -> float:
        return self.experiment.total_steps * (1 - self.chunk / self.experiment.chunks)


class LiveTable:
    """Show the events of a runner, below a title. Use it as a context manager, and call it with each event.

    `progress` says when it appears: at once (True), after two seconds (None), or never (False). `expected` is the estimated time of all
    runs in seconds. A table shows what is left of it until the speed of the runs is known; without a terminal, it ends the title. So there
    is always one estimate.

    Examples
    --------
    >>> from actiongap.lab.runner import Event
    >>> from actiongap.lab.experiment import make
    >>> with LiveTable({"a run": make("q-learning", {"env": "cake"})}, 0, progress=False) as table:
    ...     table(Event("started", "a run"))
    >>> table.done
    0
    """

    def __init__(
        self,
        runs: Mapping[str, Experiment],
        done: int,
        console: Console | None = None,
        *,
        title: str = "",
        expected: float | None = None,
        progress: bool | None = True,
    ):
        self.runs: Mapping[str, Experiment] = runs
        self.done: int = done
        self.before: int = done
        self.failed: int = 0
        self.title: str = title
        self.expected: float | None = expected
        self.console: Console = console or Console(stderr=True)
        self.active: dict[str, _RunProgress] = {}
        self.stopping: bool = False
        labels = {name: f"{run.task}, {run.agent}, seed {run.seed}" for name, run in runs.items()}
        # Use the short labels if they are unique.
        self.labels: dict[str, str] = labels if len(set(labels.values())) == len(labels) else {name: name for name in runs}
        self.headings: list[str] = [heading for heading in VALUE_COLUMNS if any(_column(run, heading) for run in runs.values())]
        self.started: float = time.monotonic()
        self.steps_left: float = float(sum(run.total_steps for run in runs.values()))
        """Steps of the runs that have not ended."""
        self.measured: tuple[float, float] = (0.0, 0.0)
        """Steps of ended runs, and their seconds; the first chunk of each is left out."""
        self.updated: float = self.started
        """Time of the last step event."""
        self.live: Live | None = None
        if self.console.is_terminal or self.console.is_jupyter:
            self.live = Live(console=self.console, get_renderable=self.render, refresh_per_second=5, transient=True)
        self.delayed: Delayed = Delayed(self._show, progress)

    def __enter__(self) -> LiveTable:
        self.delayed.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.delayed.stop() and self.live:
            self.live.stop()

    def _show(self) -> None:
        if self.title:
            expected = f", about {duration(self.expected)}" if self.expected is not None and not self.live else ""
            self.console.print(self.title + expected, highlight=False, markup=False, soft_wrap=True)
        if self.live:
            self.live.start()

    def say(self, text: str) -> None:
        """Print a line, if the table is shown."""
        if self.delayed.visible:
            self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        now = time.monotonic()
        if event.kind == "started":
            self.active[event.run] = _RunProgress(self.runs[event.run], now)
        elif event.kind == "step":
            run = self.active[event.run]
            run.first = run.first or (now, event.chunk)
            run.chunk, run.last, run.row = event.chunk, now, event.rows[-1] if event.rows else run.row
            self.updated = now
        elif event.kind == "stopping":
            self.stopping = True
            if not self.live:
                self.say(STOPPING)
        elif event.kind == "note":
            self.say(event.text)
        else:
            self._ended(event)

    def _ended(self, event: Event) -> None:
        run = self.active.pop(event.run, None)
        self.done += event.kind == "done"
        self.failed += event.kind == "failed"
        if run:
            self.measured = _sum([self.measured, run.measured])
        if event.kind in ("done", "failed", "busy"):
            self.steps_left -= self.runs[event.run].total_steps
        if event.kind == "busy" or (event.kind == "done" and self.live):
            return
        texts = {"done": "done", "failed": f"failed: {event.text}", "died": f"{event.text}; it will be resumed", "stopped": "stopped"}
        duration = f" in {_clock(time.monotonic() - run.started)}" if run and event.kind == "done" else ""
        count = f"[{self.done + self.failed}/{self.before + len(self.runs)}] "
        self.say(f"{count}{event.run}: {texts[event.kind]}{duration}")

    def render(self) -> Group:
        """Return the current table and summary."""
        table = Table(box=None, pad_edge=False, expand=True)
        table.add_column("run", no_wrap=True, overflow="ellipsis", ratio=3)
        table.add_column("progress", ratio=2, min_width=10)
        for heading in ("rate", "score", *self.headings):
            table.add_column(heading, justify="right", no_wrap=True, min_width=9)
        for name, run in list(self.active.items())[:MAX_RUNS]:
            experiment = self.runs[name]
            bar = ProgressBar(total=experiment.chunks, completed=run.chunk)
            table.add_row(escape(printable(self.labels[name])), bar, *self._numbers(experiment, run))
        more = len(self.active) - MAX_RUNS
        return Group(table, Text(f"... and {more} more" if more > 0 else ""), Text(self._summary()))

    def _numbers(self, experiment: Experiment, run: _RunProgress) -> list[str]:
        columns = [next(iter(experiment.columns)), *(_column(experiment, heading) for heading in self.headings)]
        steps, seconds = run.measured
        rate = f"{_short(steps / seconds)}/s" if steps and seconds else ""
        compiling = experiment.compiles and not run.first
        return ["compiling" if compiling else rate, *(_number(run.row.get(name)) for name in columns)]

    def seconds_left(self) -> float | None:
        """Estimate the seconds until all runs are done; None if nothing is known yet. Compiling is not counted.

        Examples
        --------
        >>> LiveTable({}, 0, expected=10.0).seconds_left() <= 10.0
        True
        """
        now, active = time.monotonic(), list(self.active.values())
        steps, seconds = _sum([self.measured, *(run.measured for run in active)])
        if not steps or not seconds:
            left = (self.expected or 0.0) - (now - self.started)
            return left if left > 0 else None
        rest = [run.steps_left for run in active]
        waiting = self.steps_left - sum(run.experiment.total_steps for run in active)
        # As many runs as now stay active, and none is shorter than what is left of it.
        longest = max([(waiting + sum(rest)) / max(len(active), 1), *rest])
        return max(longest * seconds / steps - (now - self.updated), 0.0)

    def _summary(self) -> str:
        text = f"{self.done} of {self.before + len(self.runs)} runs done"
        if self.failed:
            text += f", {self.failed} failed"
        text += f"; {_clock(time.monotonic() - self.started)} so far"
        left = self.seconds_left()
        if left is not None:
            text += f", about {_clock(left)} left"
        return f"{text} ({STOPPING if self.stopping else 'Ctrl-C saves and stops'})"


def duration(seconds: float) -> str:
    """Format a duration with a unit that suits it.

    Examples
    --------
    >>> duration(0.2), duration(90.0), duration(7_200.0)
    ('under 1 s', '90 s', '2 h')
    """
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"


def _sum(measured: list[tuple[float, float]]) -> tuple[float, float]:
    """Add steps and seconds."""
    return sum(steps for steps, _ in measured), sum(seconds for _, seconds in measured)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def _short(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g}"


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else ""


def _column(experiment: Experiment, heading: str) -> str:
    """Return the experiment's column that the table shows below a heading, or an empty string if it has none."""
    return next((name for name in VALUE_COLUMNS[heading] if name in experiment.columns), "")
