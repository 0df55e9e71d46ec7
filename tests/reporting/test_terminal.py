"""One estimate of the time left, which leaves compiling out."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from actiongap.lab.experiment import make
from actiongap.lab.runner import Event
from actiongap.reporting import terminal
from actiongap.reporting.terminal import LiveTable

KIND = f"{Path(__file__).parents[1] / 'lab_experiment.py'}:Walk"


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(terminal.time, "monotonic", lambda: self.now)


def live(names, *, length=8, kind=KIND, **options) -> LiveTable:
    console = Console(file=io.StringIO(), width=100, height=60, force_terminal=True, color_system=None)
    fields = [{"seed": i, "length": length} for i in range(len(names))]
    return LiveTable({name: make(kind, field) for name, field in zip(names, fields, strict=True)}, 0, console, progress=False, **options)


def shown(table: LiveTable) -> str:
    console = Console(file=io.StringIO(), width=100, height=60, force_terminal=True, color_system=None)
    console.print(table.render())
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_time_before_the_first_step_is_not_counted(monkeypatch):
    clock = Clock(monkeypatch)
    table = live(["a"])
    table(Event("started", "a"))
    clock.now += 60
    table(Event("step", "a", 1))
    assert table.seconds_left() is None
    clock.now += 2
    table(Event("step", "a", 2))
    assert table.seconds_left() == pytest.approx(2.0 * 6)
    clock.now += 1
    assert table.seconds_left() == pytest.approx(2.0 * 6 - 1)
    clock.now += 100
    assert table.seconds_left() == 0.0


def test_there_is_one_estimate(monkeypatch):
    clock = Clock(monkeypatch)
    table = live(["a", "b"], title="walks: 2 runs to do", expected=240.0)
    for name in "ab":
        table(Event("started", name))
    assert re.findall(r"about (\S+) left", shown(table)) == ["4:00"]
    for chunk in (1, 2):
        clock.now += 10
        for name in "ab":
            table(Event("step", name, chunk))
    # Both advance at once, ten seconds for each chunk.
    assert re.findall(r"about (\S+) left", shown(table)) == ["1:00"]
    assert "time left" not in shown(table)
    table._show()
    assert "about" not in table.console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_waiting_runs_are_counted_and_ended_runs_tell_the_pace(monkeypatch):
    clock = Clock(monkeypatch)
    table = live(["a", "b", "c"])
    table(Event("started", "a"))
    for chunk in range(1, 9):
        clock.now += 1
        table(Event("step", "a", chunk))
    table(Event("done", "a"))
    table(Event("started", "b"))
    assert table.seconds_left() == pytest.approx(16.0)
    table(Event("busy", "c"))
    assert table.seconds_left() == pytest.approx(8.0)


def test_one_long_run_is_not_divided_among_the_others(monkeypatch):
    clock = Clock(monkeypatch)
    table = live(["a", "b"])
    for name in "ab":
        table(Event("started", name))
        table(Event("step", name, 1))
    clock.now += 1
    table(Event("step", "a", 7))
    table(Event("step", "b", 3))
    pace = (1 + 1) / (6 + 2)
    assert table.seconds_left() == pytest.approx(pace * 5)


def test_without_a_terminal_the_title_has_the_estimate():
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    with LiveTable({}, 0, console, title="walks: 2 runs to do", expected=240.0):
        pass
    assert console.file.getvalue() == "walks: 2 runs to do, about 4 min\n"  # pyright: ignore[reportAttributeAccessIssue]


def test_compiling_is_shown_until_the_first_step():
    table = LiveTable({"agent": make("train", {"env": "minatar/breakout"})}, 0, progress=False)
    table(Event("started", "agent"))
    assert "compiling" in shown(table)
    table(Event("step", "agent", 1))
    assert "compiling" not in shown(table)
    walk = live(["a"])
    walk(Event("started", "a"))
    assert "compiling" not in shown(walk)
