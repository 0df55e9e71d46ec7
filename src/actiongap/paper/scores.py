"""The paper's Atari table, summarized again: every printed summary is compared with the same number computed from the table.

The paper prints a table of 60 games and a few summaries of it. This part checks which summaries follow from the table, without playing a
game. `actiongap.lab.statistics` lists the formulas that were tried.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from actiongap.lab.provenance import provenance
from actiongap.lab.statistics import FORMULAS, improvement, paper_table, times_best
from actiongap.paper.parts import Part
from actiongap.reporting.page import Cell, Prose, Provenance, Section, Table

TIMES_BEST = {"Bellman": 12, "advantage learning": 21, "persistent advantage learning": 31}
IMPROVEMENT = {
    ("advantage learning", "median"): 8.4,
    ("advantage learning", "mean"): 27.0,
    ("persistent advantage learning", "median"): 9.1,
    ("persistent advantage learning", "mean"): 32.5,
}
"""Printed in the paper: the number of games on which each agent is best, and its improvement over Bellman in percent."""
FORMULA = "ratio"
"""The formula that reproduces the paper's means. The paper does not print its formula."""

EXPLANATION = f"""These rows summarize the scores printed in the paper and use no new runs. The paper prints one average of three trials
per game and agent, so no interval can be computed. Improvements are 100 {FORMULAS[FORMULA][0]}, where b is Bellman's score. This formula
reproduces the paper's two means. No formula that was tried reproduces its medians."""


def sections(out: Path) -> list[Section]:
    """Compare the paper's summaries with the same summaries computed from its table.

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
    source = Provenance("actiongap reproduce scores", **provenance())
    columns = ("summary", "agent", "paper", "from its table", "ratio", "formula")
    return [Section("The paper's Atari table, recomputed", (Table("Summaries", columns, tuple(rows), source=source), Prose(EXPLANATION)))]


PART = Part("the paper's summaries of its Atari scores", sections)
