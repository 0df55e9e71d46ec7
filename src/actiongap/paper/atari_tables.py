"""Our Atari results compared with the paper's: coverage, the table of 60 games, counts, alphas, corrections, and cost.

**What the results cover.** A paired t-test of n pairs detects a mean difference above t / sqrt(n) standard deviations, where t is Student's
quantile with n - 1 degrees of freedom. At 99% that is 1.03 standard deviations for the paper's ten trials and 5.7 for three, so three seeds
detect only large differences. `conclusions` states the conclusions that the finished runs support.

**The table.** It holds the highest score of each operator in Original DQN, an average of three trials, and marks the best of the three. The
paper prints two kinds of summary: how often each operator is best, and by how much a new operator exceeds Bellman. The first follows from
the table. The second cannot be reproduced, because the paper does not print its formula. Every number here is therefore shown with its
formula, and each summary of our games with the same summary of the paper's table on these games.

**Cost.** Agents that one process trains in a batch share its time, so the total frames divided by the total seconds is the speed of that
process. It is the speed of the machine only if no other process shares it, which runs do not record; the fastest study is therefore used.
Evaluations use the same emulators and are counted: as published they add half as many frames as training has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from actiongap.envs.atari import FRAMES_PER_STEP
from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import FORMULAS, LEVEL, Estimate, detectable_difference, improvement, paper_table, times_best
from actiongap.lab.store import Status
from actiongap.paper.agents import (
    BELLMAN,
    DEFAULT_ALPHA,
    MAIN_OPERATORS,
    NO_DIFFERENCE,
    PAPER_GAMES,
    PAPER_LEVEL,
    PAPER_NAMES,
    Agent,
    Agents,
    Comparison,
    by_seed,
    compare,
    compare_with_bellman,
    comparison_counts,
    count_directions,
    count_rows,
    final_mean,
    game_of,
    mean,
    paper_comparisons,
    score_kind,
    select_operators,
)
from actiongap.paper.agents_curves import OperatorMetric, alpha_chart, alpha_sweep, swept_games
from actiongap.paper.agents_scores import HIGHEST, SCORE, comparison_cells
from actiongap.paper.atari_runs import ORIGINAL, PRESET_NAMES, PUBLISHED, STOCHASTIC, StudyPlan, finished_runs, paper_games, study_plans
from actiongap.paper.scores import IMPROVEMENT, TIMES_BEST
from actiongap.reporting.groups import SCORES, several
from actiongap.reporting.page import Block, Cell, Choice, Prose, Provenance, Table

COLUMNS = dict(zip(MAIN_OPERATORS, ("Bellman", *PAPER_NAMES.values()), strict=True))
"""Our operators and the paper's names. The paper does not print its alphas."""
PAPER_HEADINGS = ("Bellman", "A.L.", "P.A.L.")
"""The paper's column headings."""
Scores = Mapping[str, Sequence[float]]
"""A score per game for each of the paper's operators."""


def game_table(agents_by_preset: Mapping[str, Agents], source: Provenance) -> list[Block]:
    """Return a table of all 60 games per preset, with the paper's scores and ours. The paper's preset, Original DQN, comes first."""
    items = []
    for preset in sorted(agents_by_preset, key=lambda preset: preset != ORIGINAL):
        note = (
            f"Highest scores. Paper: Original DQN, averages of three trials, alphas unknown. Here: {PRESET_NAMES[preset]}, means over "
            f"finished runs, with Student's t interval at {LEVEL:.0%} if there are at least two. Best: the highest of the three, with "
            "ties. A dagger marks games that are not in Bellemare et al. (2013)."
        )
        if preset != ORIGINAL:
            note += " This is not the setting of the paper's table, and the paper finds it harder."
        columns = (
            "game",
            *(f"{name}, paper" for name in PAPER_HEADINGS),
            "best, paper",
            *(f"{name}, here" for name in MAIN_OPERATORS),
            "best, here",
        )
        items.append(
            ((PRESET_NAMES[preset],), Table("Highest scores on 60 games", columns, tuple(_rows(agents_by_preset[preset])), note, source))
        )
    return [Choice("The paper's table", ("setting",), tuple(items))] if items else []


def _rows(agents: Agents) -> list[tuple[Cell, ...]]:
    paper, rows = paper_table().scores, []
    for index, game in enumerate(paper_games()):
        printed = [float(paper[name][0, index]) for name in COLUMNS.values()]
        ours = [mean(agents.get(Agent(game.rom, name)), HIGHEST) for name in MAIN_OPERATORS]
        known = [score.value for score in ours if score is not None]
        here = _best(known, MAIN_OPERATORS) if len(known) == len(MAIN_OPERATORS) else None
        rows.append((game.name + " †" * game.new, *printed, _best(printed, PAPER_HEADINGS), *ours, here))
    return rows


def _best(scores: Sequence[float], names: Sequence[str]) -> str:
    return ", ".join(name for name, score in zip(names, scores, strict=True) if score == max(scores))


def shared_games(agents: Agents) -> dict[str, list[float]]:
    """Return the games on which all three operators have a highest score, with these scores, in the order of the table."""
    found = {}
    for game in paper_games():
        scores = [mean(agents.get(Agent(game.rom, name)), HIGHEST) for name in MAIN_OPERATORS]
        known = [score.value for score in scores if score is not None]
        if len(known) == len(MAIN_OPERATORS):
            found[game.rom] = known
    return found


def summaries(preset: str, agents: Agents, source: Provenance) -> list[Block]:
    """Return times best and improvements: printed in the paper, from its table, from its table on our games, and ours.

    Examples
    --------
    >>> from actiongap.reporting.summary import provenance_of
    >>> summaries("original-dqn", {}, provenance_of([]))
    []
    """
    ours = shared_games(agents)
    if not ours:
        return []
    table = paper_table().scores
    shared = [index for index, game in enumerate(paper_games()) if game.rom in ours]
    all_games: Scores = {name: table[name][0].tolist() for name in COLUMNS.values()}
    our_games: Scores = {name: table[name][0, shared].tolist() for name in COLUMNS.values()}
    here: Scores = dict(zip(COLUMNS.values(), zip(*ours.values(), strict=True), strict=True))
    rows: list[tuple[Cell, ...]] = []
    for name in COLUMNS.values():
        times = (_times(some)[name] for some in (all_games, our_games, here))
        rows.append(("times best, ties count for each", name, TIMES_BEST[name], *times))
    for kind in ("median", "mean"):
        for formula in ("ratio", "relative", "symmetric"):
            for name in PAPER_NAMES.values():
                what = f"{kind} over games of 100 {FORMULAS[formula].text}"
                printed = IMPROVEMENT[name, kind] if formula == "ratio" else None
                rows.append((what, name, printed, *(_improved(some, name, kind, formula) for some in (all_games, our_games, here))))
    games = several(len(ours), "game")
    columns = ("summary", "operator", "paper prints", "paper's table, 60 games", f"paper's table, our {games}", f"here, {games}")
    note = (
        f"Summaries of highest scores: the paper's in Original DQN, ours in {PRESET_NAMES[preset]}, means over runs, on the games that all "
        f"three operators have finished: {', '.join(ours)}. Our operators are {', '.join(MAIN_OPERATORS)}; the paper prints no alphas. s "
        "is the score of the operator and b Bellman's; if they are equal the improvement is 0. The paper prints no formula: (s - b) / b "
        "comes nearest to its means, and no formula that was tried gives its medians. (s - b) / b is undefined if b is 0 and s is not. "
        f"{_negative_baselines(all_games, ours)} There is one number per game, so there are no intervals."
    )
    return [Table(f"Summaries of highest scores, {PRESET_NAMES[preset]}", columns, tuple(rows), note, source)]


def _negative_baselines(paper: Scores, ours: Mapping[str, Sequence[float]]) -> str:
    """Describe the effect of a negative baseline on the paper's likely formula, and the games it concerns."""
    negative = [game.name for game, score in zip(paper_games(), paper["Bellman"], strict=True) if score < 0]
    here = [game for game, (score, *_) in ours.items() if score < 0]
    return (
        f"If b is negative, (s - b) / b counts an improvement as a loss: in the paper's table on {', '.join(negative)}, here on "
        f"{', '.join(here) or 'no game'}. The formula with |b| does not."
    )


def _times(scores: Scores) -> dict[str, int]:
    best = times_best({name: [some] for name, some in scores.items()}, rng=np.random.default_rng(0))
    return {name: round(estimate.value) for name, estimate in best.items()}


def _improved(scores: Scores, name: str, kind: Any, formula: str) -> float | None:
    try:
        estimate: Estimate = improvement([scores[name]], [scores["Bellman"]], kind, formula, rng=np.random.default_rng(0))
    except ValueError:  # a baseline of zero
        return None
    return estimate.value


def score_kinds_table(agents: Agents, source: Provenance) -> Table:
    """Return the highest score, the last score and the average of the last tenth, for every agent."""
    rows: list[tuple[Cell, ...]] = []
    for agent, group in agents.items():
        scores = (mean(group, score_kind(kind)) for kind in reversed(SCORES))
        others = (mean(group, final_mean(name)) for name in ("training_return", "games"))
        rows.append((agent.game, agent.name, f"{group.runs[0].spec['frames']:,}", *scores, *others))
    columns = ("game", "agent", "frames", *reversed(SCORES), "in training", "games per evaluation")
    note = (
        "Highest: the best evaluation of a run, which favors noisy agents and grows with the number of evaluations. Last: the evaluation "
        "after training, which the paper tests. Average: over the last tenth of the evaluations, by which agents are compared here. In "
        "training: returns of games that ended in training, mean over the last tenth. All are means over finished runs, with "
        f"Student's t interval at {LEVEL:.0%}; a single run has none."
    )
    return Table("Highest, last and average scores", columns, tuple(rows), note, source)


def counts_table(agents: Agents, source: Provenance) -> list[Block]:
    """Compare the paper's counts of games with ours; empty if no two of the three operators have a common seed.

    Examples
    --------
    >>> from actiongap.reporting.summary import provenance_of
    >>> counts_table({}, provenance_of([]))
    []
    """
    found = [paper_comparisons(agents, score_kind(kind)) for kind in SCORES]
    rows = count_rows(found)
    if not rows:
        return []
    comparisons = [comparison for some in found[0].values() for comparison in some]
    untested = sum(not comparison.tested for comparison in comparisons)
    chances = sorted({counts.expected_by_chance for some in found for counts in comparison_counts(some).values() if counts.total})
    ours = " to ".join(f"{chance:.2g}" for chance in dict.fromkeys(chances[:1] + chances[-1:]))
    paper = f"{PAPER_GAMES * (1 - PAPER_LEVEL) / 2:.2g}"
    expected = f"{ours} each way per row here and {paper} in the paper" if ours else f"{paper} each way per row in the paper"
    note = (
        f"Paired t-tests by seed on each game, at {PAPER_LEVEL:.0%}, not corrected for multiple testing. Expected by chance: {expected}. "
        f"The paper tests scores after training of ten trials; here alpha = {DEFAULT_ALPHA:g}."
    )
    if untested:
        note += f" {untested} of {len(comparisons)} comparisons have one pair of runs; they cannot be tested and are not counted."
    columns = ("comparison", "paper", *(f"here, {kind}" for kind in SCORES))
    return [Table("The paper's counts of games", columns, tuple(rows), note, source)]


def alpha_blocks(agents: Agents, source: Provenance) -> list[Block]:
    """Return the paper's chart over alpha, and charts of final scores, gaps, values and bias; empty if no game has two alphas.

    Examples
    --------
    >>> from actiongap.reporting.summary import provenance_of
    >>> alpha_blocks({}, provenance_of([]))
    []
    """

    def highest(game: str) -> OperatorMetric:
        return lambda operator: mean(agents.get(Agent(game, operator)), HIGHEST)

    note = f"Mean over finished runs. Band: {LEVEL:.0%} t interval over seeds. The theorem covers alphas below 1."
    items = tuple(
        ((game,), alpha_chart(f"Highest score by alpha, {game}", "highest score", highest(game), note, source))
        for game in swept_games(agents)
    )
    return [Choice("Highest score by alpha, as in the paper", ("game",), items), *alpha_sweep(agents, source)] if items else []


SETS = {"corrections": [*(Agent("", name) for name in MAIN_OPERATORS), *(Agent("", name, online=True) for name in MAIN_OPERATORS[1:])]}
"""Additional sets of agents for learning curves."""


def correction_blocks(agents: Agents, source: Provenance) -> list[Block]:
    """Compare agents whose correction uses the online network with the same agents using the target network; empty if none was trained.

    Examples
    --------
    >>> from actiongap.reporting.summary import provenance_of
    >>> correction_blocks({}, provenance_of([]))
    []
    """
    found: dict[Agent, Comparison | None] = {
        agent: compare(agents[agent], agents.get(agent._replace(online=False)), SCORE) for agent in agents if agent.online
    }
    if not found:
        return []
    tested = [comparison for comparison in found.values() if comparison is not None and comparison.tested]
    directions = "; ".join(str(count_directions(tested, level)) for level in (LEVEL, PAPER_LEVEL))
    text = "Corrections are not compared: no agent has two finished seeds in common with its counterpart."
    if tested:
        text = f"The score with corrections from the online network, compared with the target network: {directions}."
    rows: list[tuple[Cell, ...]] = []
    for agent, comparison in found.items():
        both = (mean(agents.get(one), SCORE) for one in (agent, agent._replace(online=False)))
        rows.append((agent.game, agent.operator, *both, *comparison_cells(comparison)))
    columns = ("game", "operator", "online", "target", "online against target", "fraction of target's", "minus target's", "p")
    return [
        Prose(text),
        Table(
            "Corrections from the online and the target network", columns, tuple(rows), "Final scores, compared by paired t-tests.", source
        ),
    ]


def coverage(agents_by_preset: Mapping[str, Agents], source: Provenance) -> list[Block]:
    """Return what the results cover, compared with the paper: a table, and conclusions in words."""
    rows: list[tuple[Cell, ...]] = []
    for preset, agents in agents_by_preset.items():
        paper, ours = paper_plan(preset), finished_runs(agents)
        name = PRESET_NAMES[preset]
        rows.append((name, "games", str(len(paper.games)), str(len({game_of(run) for run in ours}))))
        rows.append((name, "seeds per game and operator", str(paper.seeds), _span(_seeds(agents))))
        rows.append((name, "training frames", f"{paper.frames:,}", _span(run.spec["frames"] for run in ours)))
        rows.append((name, "evaluations per agent", str(_evaluations(paper)), _span(len(run.rows["step"]) for run in ours)))
        rows.append(
            (name, "steps per evaluation", f"{PUBLISHED['evaluation_steps']:,}", _span(run.spec["evaluation_steps"] for run in ours))
        )
        rows.append(
            (
                name,
                "steps after which a game is truncated",
                f"{PUBLISHED['max_episode_steps']:,}",
                _span(run.spec["max_episode_steps"] for run in ours),
            )
        )
    note = f"Finished agents only. A step is {FRAMES_PER_STEP} frames. Games that have started in an evaluation are completed or truncated."
    return [
        Table("What the results cover", ("setting", "quantity", "paper", "here"), tuple(rows), note, source),
        Prose(conclusions(agents_by_preset)),
    ]


def paper_plan(preset: str) -> StudyPlan:
    """Return the paper's training with a preset.

    Examples
    --------
    >>> paper_plan("stochastic-minimal").seeds, paper_plan("original-dqn").seeds
    (10, 3)
    """
    return next(plan for plan in study_plans("paper") if plan.preset == preset)


def _evaluations(paper: StudyPlan) -> int:
    return paper.frames // PUBLISHED["eval_every"]


def _seeds(agents: Agents) -> list[int]:
    """Return the numbers of finished seeds per agent of the three operators, without zeros."""
    found = [len(by_seed(group, SCORE)) for agent, group in agents.items() if agent.name in MAIN_OPERATORS]
    return [seeds for seeds in found if seeds]


def _span(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return "none" if not found else f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def conclusions(agents_by_preset: Mapping[str, Agents]) -> str:
    """Describe what can be concluded from the finished agents, and what cannot.

    Examples
    --------
    >>> conclusions({})
    'Nothing can be concluded: no agent is finished.'
    """
    finished = {preset: agents for preset, agents in agents_by_preset.items() if finished_runs(agents)}
    if not finished:
        return "Nothing can be concluded: no agent is finished."
    texts = []
    for preset, agents in finished.items():
        texts.append(f"In {PRESET_NAMES[preset]}: {_detected(agents)} {_power_text(agents, paper_plan(preset))}".strip())
    texts.append(" ".join(_limitations(finished)))
    return "\n\n".join(texts)


def _detected(agents: Agents) -> str:
    """Describe the detected differences between the three operators."""
    found = select_operators(compare_with_bellman(agents, SCORE), MAIN_OPERATORS)
    tested = {agent: comparison for agent, comparison in found.items() if comparison.tested}
    parts = []
    for level in (PAPER_LEVEL, LEVEL):
        here = {agent: comparison.direction(level) for agent, comparison in tested.items() if _detection_level(comparison) == level}
        directions = [f"{direction} on {agent.game} with {agent.name}" for agent, direction in here.items()]
        if directions:
            parts.append(f"at {level:.0%} the score, compared with {BELLMAN}, is {', '.join(directions)}")
    rest = sum(_detection_level(comparison) is None for comparison in tested.values())
    untested = sorted({agent.game for agent, comparison in found.items() if not comparison.tested})
    if tested and rest:
        parts.append(f"no difference is detected in {rest} of {several(len(tested), 'comparison')}, which does not show that there is none")
    if untested:
        parts.append(f"{', '.join(untested)} cannot be tested: agents have one common seed")
    if not found:
        parts.append(f"nothing can be tested: no agent has a common seed with {BELLMAN}")
    return f"{'; '.join(parts)}."


def _detection_level(comparison: Comparison) -> float | None:
    """Return the higher of the two levels at which a difference is detected, or None."""
    return next((level for level in (PAPER_LEVEL, LEVEL) if comparison.direction(level) != NO_DIFFERENCE), None)


def _power_text(agents: Agents, paper: StudyPlan) -> str:
    pairs = sorted(
        {
            comparison.difference.n
            for comparison in select_operators(compare_with_bellman(agents, SCORE), MAIN_OPERATORS).values()
            if comparison.tested
        }
    )
    if not pairs or pairs[0] >= paper.seeds:
        return ""
    ours = " or ".join(f"{detectable_difference(n, PAPER_LEVEL):.3g} ({n} pairs)" for n in pairs)
    return (
        f"A mean difference is detected at {PAPER_LEVEL:.0%} if it exceeds {ours} standard deviations of the paired differences; with the "
        f"paper's {several(paper.seeds, 'trial')}, {detectable_difference(paper.seeds, PAPER_LEVEL):.3g}."
    )


def _limitations(agents_by_preset: Mapping[str, Agents]) -> list[str]:
    """Describe the results of the paper that these runs cannot confirm or contradict."""
    texts = []
    if STOCHASTIC not in agents_by_preset:
        texts.append("The paper's counts of games, in Stochastic Minimal, are not tested here.")
    if ORIGINAL not in agents_by_preset:
        texts.append("The paper's table, curves and sweep over alpha, all in Original DQN, are not tested here.")
    for preset, agents in agents_by_preset.items():
        paper, games = paper_plan(preset), len({game_of(run) for run in finished_runs(agents)})
        if games < len(paper.games):
            texts.append(
                f"In {PRESET_NAMES[preset]}, {several(games, 'game')} of {len(paper.games)} cannot show on how many games an operator "
                "helps, or what it does on the others."
            )
        least, most = (end(run.spec["frames"] for run in finished_runs(agents)) for end in (min, max))
        if least < paper.frames:
            fraction = f"{least / paper.frames:.2g}" if least == most else f"{least / paper.frames:.2g} to {most / paper.frames:.2g}"
            texts.append(
                f"Training in {PRESET_NAMES[preset]} ends after {fraction} of the paper's frames: it shows which agent learns faster, not "
                "which is better after full training."
            )
        evaluations = max(len(run.rows["step"]) for run in finished_runs(agents))
        if evaluations < _evaluations(paper):
            texts.append(
                f"Its highest scores are the highest of at most {evaluations} evaluations, the paper's of {_evaluations(paper)}; they grow "
                "with the number of evaluations."
            )
    texts.append(f"The paper does not print the alphas of its agents; here alpha is {DEFAULT_ALPHA:g} unless stated otherwise.")
    return texts


DAY = 86400.0
MIN_FRAMES = 1_000_000
"""Training frames below which a run is dominated by startup and not used to measure speed."""


def fastest_rate(runs: Iterable[RunRecord]) -> tuple[float, str] | None:
    """Return the frames per second of all finished agents of the fastest study, and the name of that study.

    Examples
    --------
    >>> fastest_rate([])
    """
    studies: dict[str, list[Status]] = {}
    for run in runs:
        if run.status is not None and run.state == "done" and run.status.seconds > 0 and run.spec["frames"] >= MIN_FRAMES:
            studies.setdefault(run.folder.parent.parent.name, []).append(run.status)
    rates = [(sum(status.steps for status in some) / sum(status.seconds for status in some), name) for name, some in studies.items()]
    return max(rates, default=None)


def full_cost(runs: Iterable[RunRecord], source: Provenance) -> list[Block]:
    """Return the cost of the paper's scale on one machine like the one that trained these runs."""
    found = fastest_rate(runs)
    if found is None:
        reason = f"no finished agent was trained for at least {MIN_FRAMES:,} frames"
        return [Prose(f"The cost of the full experiment is unknown: {reason}.")]
    rate, study = found
    rows: list[tuple[Cell, ...]] = []
    for plan in study_plans("paper"):
        rows.append((plan.name, plan.agents, plan.training_frames / 1e9, plan.evaluation_frames / 1e9))
    sums = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]  # pyright: ignore[reportArgumentType, reportCallIssue]
    rows.append(("total", *sums))
    rows_with_days = tuple((*row, three_digits((row[2] + row[3]) * 1e9 / rate / DAY)) for row in rows)  # pyright: ignore[reportOperatorIssue]
    note = (
        f"At {rate:,.0f} frames per second, the rate of all agents of {study} including evaluations and startup. Frames are in billions. "
        "Days are for one machine; several machines share the work."
    )
    columns = ("study of the paper's scale", "agents", "training frames", "evaluation frames", "days")
    return [Table("Cost of the full experiment", columns, rows_with_days, note, source)]


def three_digits(number: float) -> str:
    """Format a positive number to three significant digits, without an exponent.

    Examples
    --------
    >>> three_digits(2.4), three_digits(53.846), three_digits(129.6), three_digits(1234.5)
    ('2.40', '53.8', '130', '1,230')
    """
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:#.3g}"
