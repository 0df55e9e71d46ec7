"""Measurements that transfer between machines: ratios of times that are measured side by side, and their distance from a lower bound.

Seconds depend on the machine and its load. Contestants therefore take turns in rounds, and each is credited with its best round, because
disturbances only add time. Targets are ratios of two such times. Where it is known, the *floor* is shown beside them: the time that this
machine needs just to move the bytes, measured in the same rounds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Measurement:
    """Our time or memory compared with a reference.

    Examples
    --------
    >>> sweep = Measurement("one sweep", ours=0.2, against="SciPy", reference=0.5, target=0.6, floor=0.1)
    >>> sweep.ratio, sweep.met, sweep.times_floor
    (0.4, True, 2.0)
    """

    name: str
    """What was measured."""
    ours: float | None
    """Our seconds or bytes; None if nothing could be measured (`note` has the reason)."""
    against: str
    """The name of the reference."""
    reference: float | None
    """Its seconds or bytes."""
    unit: Literal["s", "B"] = "s"
    """Seconds or bytes."""
    target: float | None = None
    """The maximum ratio; None if there is no target."""
    floor: float | None = None
    """The time that this machine needs just to move the bytes."""
    note: str = ""
    """An explanation in one sentence, printed below the table."""

    @property
    def ratio(self) -> float | None:
        """Ours divided by the reference."""
        return None if self.ours is None or self.reference is None else self.ours / self.reference

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if there is no target or nothing was measured."""
        return None if self.ratio is None or self.target is None else self.ratio <= self.target

    @property
    def times_floor(self) -> float | None:
        """Ours divided by the floor."""
        return None if self.ours is None or self.floor is None else self.ours / self.floor


def check_scale(scale: str, scales: Mapping[str, Any]) -> None:
    """Raise ValueError if the scale is unknown.

    Examples
    --------
    >>> check_scale("enormous", {"full": 0, "quick": 0})
    Traceback (most recent call last):
    ValueError: unknown scale 'enormous': choose from full, quick
    """
    if scale not in scales:
        raise ValueError(f"unknown scale {scale!r}: choose from {', '.join(scales)}")


def race(contestants: Mapping[str, Callable[[], Any]], seconds: float, rounds: int = 3, warm_up: bool = True) -> dict[str, float]:
    """Return the shortest time of each contestant, in seconds, over rounds in which all of them run once.

    The order is shuffled in every round, so that no contestant always runs with the caches of the same predecessor.

    Parameters
    ----------
    contestants
        Functions to time, by name.
    seconds
        Seconds during which new rounds start.
    rounds
        Minimum number of rounds.
    warm_up
        Whether every contestant runs once before timing starts.

    Examples
    --------
    >>> times = race({"sum": lambda: sum(range(1000)), "nothing": lambda: None}, seconds=0.01)
    >>> times["nothing"] < times["sum"]
    True
    """
    if warm_up:
        for run in contestants.values():
            run()
    best = dict.fromkeys(contestants, math.inf)
    begun = perf_counter()
    shuffle = random.Random(0).shuffle
    order, done = list(contestants.items()), 0
    while done < rounds or perf_counter() - begun < seconds:
        shuffle(order)
        for name, run in order:
            start = perf_counter()
            run()
            best[name] = min(best[name], perf_counter() - start)
        done += 1
    return best


def on_threads(threads: int, run: Callable[[], Any]) -> Callable[[], None]:
    """Return a function that calls `run` on a number of Numba threads, and sets the number to 1 afterwards.

    Examples
    --------
    >>> import numba
    >>> on_threads(1, lambda: print(numba.get_num_threads()))()
    1
    """
    import numba

    def step() -> None:
        numba.set_num_threads(threads)
        run()
        numba.set_num_threads(1)

    return step


def measure_all(
    stages: Sequence[tuple[str, Callable[[], list[Measurement]]]], progress: Callable[[str, float], None] | None
) -> list[Measurement]:
    """Run the stages, each on one Numba thread, and return their measurements.

    `progress` is called with the label of the next stage and the fraction of the stages that is done.

    Examples
    --------
    >>> measure_all([("nothing", lambda: [])], progress=None)
    []
    """
    import numba

    measured, threads = [], numba.get_num_threads()
    try:
        for done, (label, measure) in enumerate(stages):
            if progress:
                progress(label, done / len(stages))
            numba.set_num_threads(1)
            measured += measure()
    finally:
        numba.set_num_threads(threads)
    if progress:
        progress("done", 1.0)
    return measured


def as_json(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return the measurements as plain values, with their ratios.

    Examples
    --------
    >>> as_json([Measurement("one sweep", ours=1.0, against="SciPy", reference=2.0)])[0]["ratio"]
    0.5
    """
    return [asdict(m) | {"ratio": m.ratio, "met": m.met, "times_floor": m.times_floor} for m in measurements]


def render(measurements: Sequence[Measurement], console: Console) -> None:
    """Print the measurements as a table, and their notes below it.

    Examples
    --------
    >>> from rich.console import Console
    >>> render([], Console(quiet=True))
    """
    from rich.box import SIMPLE
    from rich.markup import escape
    from rich.table import Table

    # Each row has two lines, so that the table fits into eighty columns.
    table = Table(box=SIMPLE)
    table.add_column("measurement and reference", overflow="fold")
    for heading in ("cost", "ratio", "target", "x floor"):
        table.add_column(heading, justify="right", no_wrap=True)
    for m in measurements:
        verdict = {True: " [green]yes[/]", False: " [red]no[/]", None: ""}[m.met]
        table.add_row(
            escape(f"{m.name}\n  {m.against}"),
            f"{_amount(m.ours, m.unit)}\n{_amount(m.reference, m.unit)}",
            _number(m.ratio),
            "" if m.target is None else f"<= {m.target:g}{verdict}",
            _number(m.times_floor),
        )
    console.print(table)
    for note in dict.fromkeys(m.note for m in measurements if m.note):
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def _amount(value: float | None, unit: Literal["s", "B"]) -> str:
    if value is None:
        return "-"
    if unit == "B":
        return f"{value / 1e6:.0f} MB" if value >= 1e6 else f"{value / 1e3:.1f} kB"
    if value < 1e-4:
        return f"{value * 1e9:.3g} ns" if value < 1e-6 else f"{value * 1e6:.3g} us"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"
