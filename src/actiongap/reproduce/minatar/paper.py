"""The paper's counts beside ours: how often its operators were better on 60 Atari games, and how often they are on MinAtar's.

The games are others, the networks smaller and the training shorter, so these numbers need not agree. They answer the same question.
"""

from __future__ import annotations

from actiongap.lab.statistics import Estimate
from actiongap.report.page import Cell, Provenance, Table
from actiongap.reproduce.minatar.comparing import SURE, against_bellman, count, of_operators
from actiongap.reproduce.minatar.runs import Agent, Agents
from actiongap.reproduce.minatar.scores import SCORE, persistent_against_plain, relative
from actiongap.reproduce.minatar.studies import BELLMAN, FAMILIES, USUAL
from actiongap.reproduce.scores import IMPROVEMENT

ATARI = 60
"""Games of the paper."""
PRINTED = {"al": (37, 1), "pal-dqn": (35, 1), "pal-dqn against al": (16, 6)}
"""On how many of them the paper finds an agent better and worse than another, by paired t-tests at 99%."""
NAMES = dict(zip(FAMILIES, ("advantage learning", "persistent advantage learning"), strict=True))


def beside_the_paper(agents: Agents, source: Provenance) -> Table | None:
    """The paper's counts and improvements, and the same on MinAtar at the usual alpha; None where there is nothing to compare.

    Examples
    --------
    >>> from actiongap.report.studies import provenance_of
    >>> beside_the_paper({}, provenance_of([]))
    """
    found, rows = against_bellman(agents, SCORE), []
    for family in FAMILIES:
        counts = count(of_operators(found, [f"{family}:{USUAL:g}"]).values(), SURE)
        rows += _counted(f"{family} beside {BELLMAN}", PRINTED[family], (counts.higher, counts.lower, counts.of))
    pairs = [against for (_, alpha), against in persistent_against_plain(agents).items() if alpha == USUAL]
    counts = count(pairs, SURE)
    rows += _counted("pal-dqn beside al", PRINTED["pal-dqn against al"], (counts.higher, counts.lower, counts.of))
    for family, name in NAMES.items():
        part = relative(agents, Agent("", f"{family}:{USUAL:g}"))
        if part is not None:
            rows.append((f"{family}: mean improvement over {BELLMAN}, percent", IMPROVEMENT[name, "mean"], _percent(part)))
    note = (
        f"Paper: {ATARI} Atari games; better and worse are of paired t-tests at {SURE:.0%} after training, improvements are of the highest "
        f"scores. Here: alpha = {USUAL:g} and final scores. The paper chose its alphas by hand from a sweep and does not print them."
    )
    return Table("Beside the paper", ("summary", "paper", "here"), tuple(rows), note, source) if rows else None


def _counted(what: str, paper: tuple[int, int], here: tuple[int, int, int]) -> list[tuple[Cell, ...]]:
    *counts, games = here
    sides = zip(("better", "worse"), paper, counts, strict=True)
    return [(f"{what}: {side}", f"{printed} of {ATARI}", f"{seen} of {games}") for side, printed, seen in sides] if games else []


def _percent(part: Estimate) -> Estimate:
    value, low, high = (100 * (end - 1) for end in (part.value, part.low, part.high))
    return Estimate(value, low, high, part.level, part.n, part.tasks, part.method)
