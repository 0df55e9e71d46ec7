"""The paper's table of 60 games beside ours, and its summaries.

The table holds the highest score that each operator reached in Original DQN, an average of three trials, and the best of the three is
marked. Two kinds of summary are printed of it: how often each is the best, and by how much the scores of a new operator exceed Bellman's.
The first follows from the table. The second does not as printed, so every number here has its formula beside it, and beside our games
stands what the paper's table says of the same games.

Scores in the three ways of the paper, and its counts beside ours.

What alpha does, as the paper shows it: the highest score that was reached, against alpha, game by game.

Where the corrections of an operator come from: the target network, as in the paper, or the online network, which it says is worse.

How much was trained beside what the paper trained, and what can be concluded from that much: computed, not remembered.

A paired t-test of n pairs sees a difference when its mean exceeds t / sqrt(n) standard deviations, t being Student's quantile with n - 1
degrees of freedom. At 99% that is 1.03 standard deviations for the paper's ten trials and 5.7 for three, so three seeds see what is large
and nothing else.

How fast agents were trained here, and what the whole of the paper would take at that rate.

Agents that one process trains together share its time, so frames of all of them over seconds of all of them is its speed. That is the
machine's where no other process shares it, which runs do not say; so of several studies the fastest counts. Evaluations are played by the
same emulators and are counted: as published they add half as many frames as training has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from actiongap.envs.atari import FRAMES_A_STEP
from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import FORMULAS, LEVEL, Estimate, improvement, paper_table, t_quantile, times_best
from actiongap.lab.store import Status
from actiongap.paper.agents import (
    ATARI,
    BELLMAN,
    FEW,
    NAMES,
    SURE,
    UNSEEN,
    USUAL,
    Against,
    Agent,
    Agents,
    against_bellman,
    by_seed,
    compare,
    count,
    count_rows,
    counts_of,
    final,
    game_of,
    mean,
    of_operators,
    pairings,
    score_of,
)
from actiongap.paper.agents_curves import Point, alpha_chart, alpha_sweep, swept_games
from actiongap.paper.agents_scores import HIGHEST, SCORE, against_cells
from actiongap.paper.atari_runs import ORIGINAL, PUBLISHED, SETTINGS, STOCHASTIC, Order, done, orders, titles
from actiongap.paper.scores import IMPROVEMENT, TIMES_BEST
from actiongap.report.groups import SCORES, several
from actiongap.report.page import Block, Cell, Choice, Prose, Provenance, Table

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


def three_ways(agents: Agents, source: Provenance) -> Table:
    """The highest score of every agent, its last, and the average of its last tenth."""
    rows: list[tuple[Cell, ...]] = []
    for agent, group in agents.items():
        scores = (mean(group, score_of(kind)) for kind in reversed(SCORES))
        others = (mean(group, final(name)) for name in ("training_return", "games"))
        rows.append((agent.game, agent.name, f"{group.runs[0].spec['frames']:,}", *scores, *others))
    columns = ("game", "agent", "frames", *reversed(SCORES), "in training", "games an evaluation")
    note = (
        "The highest score of a run is the best of its evaluations, which flatters whoever is noisy and grows with their number; the last "
        "is that after training, which the paper tests; the average is over the last tenth of the evaluations, by which agents are "
        "compared here. In training: the rewards of games that ended then, mean over the last tenth. All are means over runs that are "
        f"done, with Student's t interval at {LEVEL:.0%}; one run has none."
    )
    return Table("Scores in three ways", columns, tuple(rows), note, source)


def counts_beside(agents: Agents, source: Provenance) -> list[Block]:
    """The paper's counts of games beside ours; nothing where no two of the three operators have a seed in common.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> counts_beside({}, provenance_of([]))
    []
    """
    found = [pairings(agents, score_of(kind)) for kind in SCORES]
    rows = count_rows(found)
    if not rows:
        return []
    every = [against for some in found[0].values() for against in some]
    once = sum(not against.tested for against in every)
    chances = sorted({counts.by_chance for some in found for counts in counts_of(some).values() if counts.of})
    ours = " to ".join(f"{chance:.2g}" for chance in dict.fromkeys(chances[:1] + chances[-1:]))
    paper = f"{ATARI * (1 - SURE) / 2:.2g}"
    rarely = f"{ours} each way in a row of ours and {paper} in the paper's" if ours else f"{paper} each way in a row of the paper's"
    note = (
        f"Paired t-tests by seed on each game, at {SURE:.0%}, with no correction for their number: by chance alone {rarely}. "
        f"The paper tests scores after training, of ten trials each; here alpha = {USUAL:g}."
    )
    if once:
        note += f" {once} of all {len(every)} comparisons are of one pair of runs, which no test can be made of, and are not counted."
    columns = ("comparison", "paper", *(f"here, {kind}" for kind in SCORES))
    return [Table("The paper's counts of games", columns, tuple(rows), note, source)]


def by_alpha(agents: Agents, source: Provenance) -> list[Block]:
    """The paper's chart, and the same of final scores, gaps, values and biases; nothing where fewer than two alphas were trained on a game.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> by_alpha({}, provenance_of([]))
    []
    """

    def highest(game: str) -> Point:
        return lambda operator: mean(agents.get(Agent(game, operator)), HIGHEST)

    note = f"Mean over runs that are done; band: {LEVEL:.0%} t interval over seeds. The theorem speaks of alphas below 1."
    items = tuple(
        ((game,), alpha_chart(f"Highest score by alpha, {game}", "highest score", highest(game), note, source))
        for game in swept_games(agents)
    )
    return [Choice("Highest score by alpha, as in the paper", ("game",), items), *alpha_sweep(agents, source)] if items else []


SETS = {"correction_network": [*(Agent("", name) for name in FEW), *(Agent("", name, online=True) for name in FEW[1:])]}
"""Who is in one chart of learning."""


def ablation(agents: Agents, source: Provenance) -> list[Block]:
    """Agents with corrections from the online network beside the same with the target network's; nothing where none was trained.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> ablation({}, provenance_of([]))
    []
    """
    found: dict[Agent, Against | None] = {
        agent: compare(agents[agent], agents.get(agent._replace(online=False)), SCORE) for agent in agents if agent.online
    }
    if not found:
        return []
    tested = [against for against in found.values() if against is not None and against.tested]
    sides = "; ".join(str(count(tested, level)) for level in (LEVEL, SURE))
    told = "Nothing can be said of corrections yet: no agent has two seeds in common with its like that are done."
    if tested:
        told = f"The score with corrections from the online network, beside that with the target network's: {sides}."
    rows: list[tuple[Cell, ...]] = []
    for agent, against in found.items():
        both = (mean(agents.get(one), SCORE) for one in (agent, agent._replace(online=False)))
        rows.append((agent.game, agent.operator, *both, *against_cells(against)))
    columns = ("game", "operator", "online", "target", "online beside target", "part of target's", "less target's", "p")
    return [
        Prose(told),
        Table("Corrections from either network", columns, tuple(rows), "Final scores, compared by paired t-tests.", source),
    ]


def extent(settings: Mapping[str, Agents], source: Provenance) -> list[Block]:
    """What was trained beside the paper's, in numbers, and what follows from so much, in words."""
    rows: list[tuple[Cell, ...]] = []
    for setting, agents in settings.items():
        paper, ours = published(setting), done(agents)
        named = SETTINGS[setting]
        rows.append((named, "games", str(len(paper.games)), str(len({game_of(run) for run in ours}))))
        rows.append((named, "seeds of a game and operator", str(paper.seeds), _span(_seeds(agents))))
        rows.append((named, "frames of training", f"{paper.frames:,}", _span(run.spec["frames"] for run in ours)))
        rows.append((named, "evaluations of an agent", str(_evaluations(paper)), _span(len(run.rows["step"]) for run in ours)))
        rows.append(
            (named, "steps of an evaluation", f"{PUBLISHED['evaluation_steps']:,}", _span(run.spec["evaluation_steps"] for run in ours))
        )
        rows.append(
            (
                named,
                "steps after which a game is cut short",
                f"{PUBLISHED['max_episode_steps']:,}",
                _span(run.spec["max_episode_steps"] for run in ours),
            )
        )
    note = (
        f"Of agents that are done. A step of an agent is {FRAMES_A_STEP} frames. In an evaluation games that have begun are played to "
        "their end, or until they are cut short."
    )
    return [Table("How much was trained", ("setting", "what", "paper", "here"), tuple(rows), note, source), Prose(concluded(settings))]


def published(setting: str) -> Order:
    """What the paper trained in a setting, for its counts or for its table.

    Examples
    --------
    >>> published("stochastic-minimal").seeds, published("original-dqn").seeds
    (10, 3)
    """
    return next(order for order in orders("paper") if order.setting == setting)


def _evaluations(paper: Order) -> int:
    return paper.frames // PUBLISHED["eval_every"]


def _seeds(agents: Agents) -> list[int]:
    """How many seeds are done of each agent of the three operators that has any."""
    found = [len(by_seed(group, SCORE)) for agent, group in agents.items() if agent.name in FEW]
    return [seeds for seeds in found if seeds]


def _span(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return "none" if not found else f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def needed(pairs: int, level: float = SURE) -> float:
    """How many standard deviations a mean difference must have to be seen: t / sqrt(n); infinite for one pair.

    Examples
    --------
    >>> [round(needed(pairs), 2) for pairs in (1, 2, 3, 10)]
    [inf, 45.01, 5.73, 1.03]
    """
    return t_quantile(pairs - 1, level) / math.sqrt(pairs) if pairs > 1 else math.inf


def concluded(settings: Mapping[str, Agents]) -> str:
    """What can be concluded, and what cannot, from the agents that are done.

    Examples
    --------
    >>> concluded({})
    'Nothing can be concluded: no agent is done.'
    """
    finished = {setting: agents for setting, agents in settings.items() if done(agents)}
    if not finished:
        return "Nothing can be concluded: no agent is done."
    told = []
    for setting, agents in finished.items():
        told.append(f"In {SETTINGS[setting]}: {_seen(agents)} {_power(agents, published(setting))}".strip())
    told.append(" ".join(_cannot(finished)))
    return "\n\n".join(told)


def _seen(agents: Agents) -> str:
    """Which differences between the three operators are seen."""
    found = of_operators(against_bellman(agents, SCORE), FEW)
    tested = {agent: against for agent, against in found.items() if against.tested}
    parts = []
    for level in (SURE, LEVEL):
        here = {agent: against.side(level) for agent, against in tested.items() if _first(against) == level}
        sides = [f"{side} on {agent.game} with {agent.name}" for agent, side in here.items()]
        if sides:
            parts.append(f"at {level:.0%} the score is seen to be {', '.join(sides)} than with {BELLMAN}")
    rest = sum(_first(against) is None for against in tested.values())
    once = sorted({agent.game for agent, against in found.items() if not against.tested})
    if tested and rest:
        parts.append(f"no difference is seen in {rest} of {several(len(tested), 'comparison')}, which does not mean that there is none")
    if once:
        parts.append(f"of {', '.join(once)} nothing can be said: agents have one seed in common, and no test can be made of one pair")
    if not found:
        parts.append(f"nothing can be said: no agent has a seed in common with {BELLMAN}'s")
    text = "; ".join(parts)
    return f"{text}."


def _first(against: Against) -> float | None:
    """The higher of the two levels at which a difference is seen, if it is."""
    return next((level for level in (SURE, LEVEL) if against.side(level) != UNSEEN), None)


def _power(agents: Agents, paper: Order) -> str:
    pairs = sorted({against.difference.n for against in of_operators(against_bellman(agents, SCORE), FEW).values() if against.tested})
    if not pairs or pairs[0] >= paper.seeds:
        return ""
    ours = " or ".join(f"{needed(n):.3g} ({n} pairs)" for n in pairs)
    return (
        f"To be seen at {SURE:.0%}, a mean difference has to be {ours} standard deviations of the differences between pairs; with the "
        f"paper's {several(paper.seeds, 'trial')} {needed(paper.seeds):.3g} are enough."
    )


def _cannot(settings: Mapping[str, Agents]) -> list[str]:
    """What the paper says and what was done here cannot tell."""
    told = []
    if STOCHASTIC not in settings:
        told.append("The paper's counts of games, made in Stochastic Minimal, are not touched by anything here.")
    if ORIGINAL not in settings:
        told.append("The paper's table, curves and sweep of alphas, all in Original DQN, are not touched by anything here.")
    for setting, agents in settings.items():
        paper, games = published(setting), len({game_of(run) for run in done(agents)})
        if games < len(paper.games):
            told.append(
                f"In {SETTINGS[setting]} {several(games, 'game')} of {len(paper.games)} cannot tell on how many of all an operator "
                "helps, nor what it does on the others."
            )
        least, most = (end(run.spec["frames"] for run in done(agents)) for end in (min, max))
        if least < paper.frames:
            parts = f"{least / paper.frames:.2g}" if least == most else f"{least / paper.frames:.2g} to {most / paper.frames:.2g}"
            told.append(
                f"Training in {SETTINGS[setting]} ends after {parts} of the paper's frames: who learns sooner can be told, and not who is "
                "better when all have learned."
            )
        evaluations = max(len(run.rows["step"]) for run in done(agents))
        if evaluations < _evaluations(paper):
            told.append(
                f"A highest score there is the highest of {evaluations} evaluations at most, where the paper's is of "
                f"{_evaluations(paper)}, and grows with their number."
            )
    told.append(f"Which alphas the paper's agents had is not printed in it; here it is {USUAL:g} where nothing else is said.")
    return told


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
