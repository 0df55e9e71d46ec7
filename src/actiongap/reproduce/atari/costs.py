"""How fast agents were trained here, and what the whole of the paper would take at that rate.

Agents that one process trains together share its time, so frames of all of them over seconds of all of them is its speed. That is the
machine's where no other process shares it, which runs do not say; so of several studies the fastest counts. Evaluations are played by the
same emulators and are counted: as published they add half as many frames as training has.
"""

from __future__ import annotations

from collections.abc import Iterable

from actiongap.lab.records import RunRecord
from actiongap.lab.store import Status
from actiongap.report.page import Block, Cell, Prose, Provenance, Table
from actiongap.reproduce.atari.studies import orders

DAY = 86400.0
LEAST = 1_000_000
"""Frames of an agent that say something about speed; shorter training is mostly starting up."""


def speed(runs: Iterable[RunRecord]) -> tuple[float, str] | None:
    """Frames a second of the agents of a study that are done and had time to get going, all together, and its name: of the fastest study.

    Examples
    --------
    >>> speed([])
    """
    studies: dict[str, list[Status]] = {}
    for run in runs:
        if run.status is not None and run.state == "done" and run.status.seconds > 0 and run.spec["frames"] >= LEAST:
            studies.setdefault(run.folder.parent.parent.name, []).append(run.status)
    rates = [(sum(status.steps for status in some) / sum(status.seconds for status in some), name) for name, some in studies.items()]
    return max(rates, default=None)


def price(runs: Iterable[RunRecord], source: Provenance) -> list[Block]:
    """What every study of the paper's scale would take on one machine like the one that did these runs."""
    found = speed(runs)
    if found is None:
        why = f"no agent that is done here was trained for {LEAST:,} frames or more"
        return [Prose(f"What all of the paper would take is not known: {why}.")]
    rate, study = found
    rows: list[tuple[Cell, ...]] = []
    for order in orders("paper"):
        rows.append((order.name, order.agents, order.training_frames / 1e9, order.evaluation_frames / 1e9))
    sums = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]  # pyright: ignore[reportArgumentType, reportCallIssue]
    rows.append(("together", *sums))
    priced = tuple((*row, three_digits((row[2] + row[3]) * 1e9 / rate / DAY)) for row in rows)  # pyright: ignore[reportOperatorIssue]
    note = (
        f"At {rate:,.0f} frames a second, which is what all agents of {study} had together, evaluations and starting up included. "
        "Frames are in thousands of millions. Days are those of one machine; several share the work."
    )
    columns = ("study of the paper's scale", "agents", "frames of training", "frames of evaluations", "days")
    return [Table("What all of the paper would take", columns, priced, note, source)]


def three_digits(number: float) -> str:
    """A number above zero to three significant digits, written out: a rate that was measured once is known no better.

    Examples
    --------
    >>> three_digits(2.4), three_digits(53.846), three_digits(129.6), three_digits(1234.5)
    ('2.40', '53.8', '130', '1,230')
    """
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:#.3g}"
