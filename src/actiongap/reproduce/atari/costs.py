"""How fast agents were trained here, and what the whole of the paper would take at that rate.

Agents that are trained together share the time, so frames of all of them over seconds of all of them is the speed of the machine.
Evaluations are played by the same emulators and are counted: as published they add half as many frames as training has.
"""

from __future__ import annotations

from collections.abc import Iterable

from actiongap.lab.records import RunRecord
from actiongap.report.page import Block, Cell, Prose, Provenance, Table
from actiongap.reproduce.atari.studies import SKIP, orders

DAY = 86400.0
LEAST = 1_000_000
"""Frames of an agent that say something about speed; shorter training is mostly starting up."""


def emulated(run: RunRecord) -> int:
    """Frames that were emulated for an agent that is done, in training and in evaluations, without games that went on after these."""
    return run.spec["frames"] + len(run.rows["step"]) * run.spec["evaluation_steps"] * SKIP


def speed(runs: Iterable[RunRecord]) -> float | None:
    """Frames a second of the agents that are done and had time to get going, all together; None where there are none.

    Examples
    --------
    >>> speed([])
    """
    done = [(run, run.status) for run in runs if run.status is not None and run.state == "done"]
    known = [(emulated(run), status.seconds) for run, status in done if run.spec["frames"] >= LEAST]
    seconds = sum(time for _, time in known)
    return sum(frames for frames, _ in known) / seconds if seconds > 0 else None


def price(runs: Iterable[RunRecord], source: Provenance) -> list[Block]:
    """What every study of the paper's scale would take on one machine like the one that did these runs."""
    rate = speed(runs)
    if rate is None:
        why = f"no agent that is done here was trained for {LEAST:,} frames or more"
        return [Prose(f"What all of the paper would take is not known: {why}.")]
    rows: list[tuple[Cell, ...]] = []
    for order in orders("paper"):
        rows.append((order.name, order.agents, order.training_frames / 1e9, order.evaluation_frames / 1e9))
    sums = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]  # pyright: ignore[reportArgumentType, reportCallIssue]
    rows.append(("together", *sums))
    priced = tuple((*row, (row[2] + row[3]) * 1e9 / rate / DAY) for row in rows)  # pyright: ignore[reportOperatorIssue]
    note = (
        f"At {rate:,.0f} frames a second, which is what all agents on this page had together, evaluations and starting up included. "
        "Frames are in thousands of millions. Days are those of one machine; several share the work."
    )
    columns = ("study of the paper's scale", "agents", "frames of training", "frames of evaluations", "days")
    return [Table("What all of the paper would take", columns, priced, note, source)]
