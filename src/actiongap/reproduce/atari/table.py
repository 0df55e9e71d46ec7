"""The paper's table of 60 games beside ours, and its summaries.

The table holds the highest score that each operator reached in Original DQN, an average of three trials, and the best of the three is
marked. Two kinds of summary are printed of it: how often each is the best, and by how much the scores of a new operator exceed Bellman's.
The first follows from the table. The second does not as printed, so every number here has its formula beside it, and beside our games
stands what the paper's table says of the same games.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from actiongap.lab.statistics import FORMULAS, Estimate, improvement, paper_table, times_best
from actiongap.report.groups import LEVEL, several
from actiongap.report.page import Block, Cell, Choice, Provenance, Table
from actiongap.reproduce.agents.counts import NAMES
from actiongap.reproduce.agents.operators import FEW
from actiongap.reproduce.agents.runs import Agent, Agents, mean
from actiongap.reproduce.agents.scores import HIGHEST
from actiongap.reproduce.atari.games import titles
from actiongap.reproduce.atari.studies import ORIGINAL, SETTINGS
from actiongap.reproduce.scores import IMPROVEMENT, TIMES_BEST

COLUMNS = dict(zip(FEW, ("Bellman", *NAMES.values()), strict=True))
"""Our operators, and the paper's names of theirs, whose alphas it does not print."""
SHORT = ("Bellman", "A.L.", "P.A.L.")
"""The same in the paper's heads of columns."""
Scores = Mapping[str, Sequence[float]]
"""For each of the paper's names a score on each game."""


def game_table(settings: Mapping[str, Agents], source: Provenance) -> list[Block]:
    """All 60 games, the paper's scores beside ours, with a choice of our setting; Original DQN, which is the paper's, first."""
    items = []
    for setting in sorted(settings, key=lambda setting: setting != ORIGINAL):
        note = (
            f"Highest scores. Paper: Original DQN, averages of three trials, its alphas unknown. Here: {SETTINGS[setting]}, means over "
            f"runs that are done, with Student's t interval at {LEVEL:.0%} where there are two or more. Best: the highest of three, all "
            "that share it. A dagger marks games that Bellemare et al. (2013) did not have."
        )
        if setting != ORIGINAL:
            note += " The setting is not the one of the paper's table, and the paper finds it harder."
        columns = ("game", *(f"{name}, paper" for name in SHORT), "best, paper", *(f"{name}, here" for name in FEW), "best, here")
        items.append(((SETTINGS[setting],), Table("Highest scores on 60 games", columns, tuple(_rows(settings[setting])), note, source)))
    return [Choice("The paper's table", ("setting",), tuple(items))] if items else []


def _rows(agents: Agents) -> list[tuple[Cell, ...]]:
    paper, rows = paper_table().scores, []
    for place, title in enumerate(titles()):
        printed = [float(paper[name][0, place]) for name in COLUMNS.values()]
        ours = [mean(agents.get(Agent(title.rom, name)), HIGHEST) for name in FEW]
        known = [score.value for score in ours if score is not None]
        here = _best(known, FEW) if len(known) == len(FEW) else None
        rows.append((title.name + " †" * title.new, *printed, _best(printed, SHORT), *ours, here))
    return rows


def _best(scores: Sequence[float], names: Sequence[str]) -> str:
    return ", ".join(name for name, score in zip(names, scores, strict=True) if score == max(scores))


def shared_games(agents: Agents) -> dict[str, list[float]]:
    """The games on which all three operators have a highest score, with these, in the order of the table."""
    found = {}
    for title in titles():
        scores = [mean(agents.get(Agent(title.rom, name)), HIGHEST) for name in FEW]
        known = [score.value for score in scores if score is not None]
        if len(known) == len(FEW):
            found[title.rom] = known
    return found


def summaries(setting: str, agents: Agents, source: Provenance) -> list[Block]:
    """Times best and improvements: as the paper prints them, from its table, from its table on our games, and ours; each with its formula.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> summaries("original-dqn", {}, provenance_of([]))
    []
    """
    ours = shared_games(agents)
    if not ours:
        return []
    table = paper_table().scores
    places = [place for place, title in enumerate(titles()) if title.rom in ours]
    every: Scores = {name: table[name][0].tolist() for name in COLUMNS.values()}
    there: Scores = {name: table[name][0, places].tolist() for name in COLUMNS.values()}
    here: Scores = dict(zip(COLUMNS.values(), zip(*ours.values(), strict=True), strict=True))
    rows: list[tuple[Cell, ...]] = []
    for name in COLUMNS.values():
        times = (_times(some)[name] for some in (every, there, here))
        rows.append(("times best, ties counting for all", name, TIMES_BEST[name], *times))
    for kind in ("median", "mean"):
        for formula in ("ratio", "relative", "symmetric"):
            for name in NAMES.values():
                what = f"{kind} over games of 100 {FORMULAS[formula].text}"
                printed = IMPROVEMENT[name, kind] if formula == "ratio" else None
                rows.append((what, name, printed, *(_improved(some, name, kind, formula) for some in (every, there, here))))
    games = several(len(ours), "game")
    columns = ("summary", "operator", "paper prints", "paper's table, 60 games", f"paper's table, our {games}", f"here, {games}")
    note = (
        f"Of highest scores: the paper's in Original DQN, ours in {SETTINGS[setting]}, means over runs, on the games that all three "
        "operators have done: "
        f"{', '.join(ours)}. Ours are {', '.join(FEW)}; the paper prints no alphas. s is the score of the operator and b Bellman's; where "
        "they are equal the improvement is 0. The paper prints "
        "no formula: (s - b) / b comes nearest to its means, and none that was tried gives its medians. Where b is 0 and s is not, "
        f"(s - b) / b has no value. {_negative(every, ours)} With one number for each game no interval can be given."
    )
    return [Table(f"Summaries of highest scores, {SETTINGS[setting]}", columns, tuple(rows), note, source)]


def _negative(paper: Scores, ours: Mapping[str, Sequence[float]]) -> str:
    """What the sign of a baseline does to the paper's likely formula, and on which games."""
    there = [title.name for title, score in zip(titles(), paper["Bellman"], strict=True) if score < 0]
    here = [game for game, (score, *_) in ours.items() if score < 0]
    return (
        f"Where b is below 0, an improvement counts as a loss with (s - b) / b: in the paper's table on {', '.join(there)}, here on "
        f"{', '.join(here) or 'no game'}. With |b| it does not."
    )


def _times(scores: Scores) -> dict[str, int]:
    best = times_best({name: [some] for name, some in scores.items()}, rng=np.random.default_rng(0))
    return {name: round(found.value) for name, found in best.items()}


def _improved(scores: Scores, name: str, kind: Any, formula: str) -> float | None:
    try:
        found: Estimate = improvement([scores[name]], [scores["Bellman"]], kind, formula, rng=np.random.default_rng(0))
    except ValueError:  # a baseline of zero
        return None
    return found.value
