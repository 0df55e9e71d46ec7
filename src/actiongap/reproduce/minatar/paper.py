"""The paper's counts beside ours: how often its operators were better on 60 Atari games, and how often they are on MinAtar's.

The games are others, the networks smaller and the training shorter, so these numbers need not agree. They answer the same question.
"""

from __future__ import annotations

import math

from actiongap.lab.statistics import FORMULAS, Estimate
from actiongap.report.groups import LEVEL, several
from actiongap.report.page import Provenance, Table
from actiongap.reproduce.agents.comparing import OVER_GAMES, SURE
from actiongap.reproduce.agents.counts import ATARI, NAMES, count_rows, pairings
from actiongap.reproduce.agents.operators import BELLMAN, USUAL
from actiongap.reproduce.agents.runs import Agent, Agents, games_of
from actiongap.reproduce.agents.scores import HIGHEST, SCORE, relative
from actiongap.reproduce.scores import FORMULA, IMPROVEMENT

KINDS = {"highest": HIGHEST, "final": SCORE}
"""The scores whose improvements are shown; the paper's are of the first."""


def beside_the_paper(agents: Agents, source: Provenance) -> Table | None:
    """The paper's counts and improvements, and the same on MinAtar at the usual alpha; None where there is nothing to compare.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> beside_the_paper({}, provenance_of([]))
    """
    rows = count_rows([pairings(agents, SCORE)])
    games = several(len(games_of(agents)), "game")
    for family, name in NAMES.items():
        for what, score in KINDS.items():
            part = relative(agents, Agent("", f"{family}:{USUAL:g}"), score)
            if part is not None:
                printed = f"{IMPROVEMENT[name, 'mean']:.1f}%" if score is HIGHEST else "not printed"
                rows.append((f"{family}: mean improvement of the {what} score over {BELLMAN}'s", printed, _percent(part)))
    note = (
        f"Paper: {ATARI} Atari games, its alphas chosen by hand from a sweep and not printed. Here: {games}, alpha = {USUAL:g}. Better and "
        f"worse are of paired t-tests at {SURE:.0%} of scores after training. An improvement is the mean over games of 100 "
        f"{FORMULAS[FORMULA].text}, s and b being the mean scores of the operator and of {BELLMAN} on a game; the paper prints no formula, "
        f"and this one comes nearest to its means, which are of the highest scores. Ours have {LEVEL:.0%} t intervals over seeds; the "
        f"highest score of a run is that of its best evaluation, the final score the mean of the last tenth of them. {OVER_GAMES}"
    )
    return Table("Beside the paper", ("summary", "paper", "here"), tuple(rows), note, source) if rows else None


def _percent(part: Estimate) -> str:
    value, low, high = (100 * (end - 1) for end in (part.value, part.low, part.high))
    return f"{value:.1f}% [{low:.1f}%, {high:.1f}%]" if math.isfinite(high - low) else f"{value:.1f}%"
