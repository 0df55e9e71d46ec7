"""The paper's Atari scores, summarised anew from its own table: every number it reports beside the same number computed here.

The table of 60 games is printed in the paper, and so are a few summaries of it. What follows from the table can be checked without playing
a game, and what does not follow is worth knowing. `actiongap.lab.statistics` says what was tried.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from actiongap.lab.provenance import provenance
from actiongap.lab.statistics import FORMULAS, improvement, paper_table, times_best
from actiongap.paper.parts import Part
from actiongap.report.page import Cell, Prose, Provenance, Section, Table

TIMES_BEST = {"Bellman": 12, "advantage learning": 21, "persistent advantage learning": 31}
IMPROVEMENT = {
    ("advantage learning", "median"): 8.4,
    ("advantage learning", "mean"): 27.0,
    ("persistent advantage learning", "median"): 9.1,
    ("persistent advantage learning", "mean"): 32.5,
}
"""What the paper prints: how often each agent is best, and its improvement over Bellman in percent."""
FORMULA = "ratio"
"""The formula that gives the paper's means; it prints none."""

EXPLANATION = f"""These rows use no run of ours: they summarise the scores that the paper prints, one average of three trials for each game
and agent, so no interval can be given. Improvements are 100 {FORMULAS[FORMULA][0]} over Bellman's score b, the formula that reproduces the
paper's two means; no formula tried reproduces its medians."""


def sections(out: Path) -> list[Section]:
    """The paper's summaries of its table, beside ours with the ratio.

    Examples
    --------
    >>> [section] = sections(Path("unused"))
    >>> section.blocks[0].rows[0][:4]
    ('times best of 60 games', 'Bellman', 12, 12)
    """
    table, rng = paper_table(), np.random.default_rng(0)
    rows: list[tuple[Cell, ...]] = []
    for agent, best in times_best(table.scores, rng=rng).items():
        rows.append(
            ("times best of 60 games", agent, TIMES_BEST[agent], round(best.value), best.value / TIMES_BEST[agent], "ties count for all")
        )
    for (agent, kind), printed in IMPROVEMENT.items():
        ours = improvement(table.scores[agent], table.scores["Bellman"], kind, FORMULA, rng=rng).value  # pyright: ignore[reportArgumentType]
        rows.append((f"{kind} improvement over Bellman, percent", agent, printed, ours, ours / printed, f"100 {FORMULAS[FORMULA][0]}"))
    made = Provenance("actiongap reproduce scores", **provenance())
    columns = ("summary", "agent", "paper", "from its table", "ratio", "how")
    return [
        Section("The paper's Atari table, summarised anew", (Table("Summaries", columns, tuple(rows), source=made), Prose(EXPLANATION)))
    ]


PART = Part("the paper's summaries of its Atari scores", sections)
