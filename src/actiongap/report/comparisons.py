"""Agents compared over tasks: interquartile means, profiles, probabilities of improvement, and the paper's own tests.

Comparisons are over the tasks and seeds that all agents share, and what that leaves out is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from actiongap.lab.statistics import (
    FORMULAS,
    Estimate,
    aggregate,
    improvement,
    paired_t_tests,
    performance_profile,
    probability_of_improvement,
    tally,
    times_best,
)
from actiongap.report.groups import BASELINE, LEVEL, Group, best_of, listed, several
from actiongap.report.page import Block, Cell, Chart, Interval, Intervals, Prose, Provenance, Series, Table

TAUS = 101
FEW = 10
"""Runs below which percentile intervals hold the truth noticeably less often than they say."""
DRAWS = 10**6
"""Scores drawn by one bootstrap, about: where there are many runs, fewer resamples do."""
LARGEST = 1e150
"""Scores beyond this are not compared, nor is NaN: their squares are no numbers any more."""


class _Shared(NamedTuple):
    """What agents can be compared on."""

    tasks: list[str]
    seeds: list[int]
    scores: dict[str, NDArray[np.float64]]
    """For each agent its scores, seeds x tasks."""
    groups: dict[str, Group]
    """One of the groups of each agent."""
    left_out: list[str]
    """Sentences."""


def _shared_scores(groups: list[Group]) -> _Shared | str:
    """The averages of the last tenth on the tasks and seeds that all agents share, or a sentence about why there are none."""
    cells: dict[str, dict[str, dict[int, float]]] = {}
    for group in groups:
        values = zip(group.counted, group.scores["average of last tenth"], strict=True)
        found = {run.seed: value for run, value in values if run.state == "done" and abs(value) < LARGEST}
        cells.setdefault(group.label, {})
        if len(found) >= 2:
            cells[group.label][group.task] = found
    empty = [label for label, there in cells.items() if not there]
    agents = {label: there for label, there in cells.items() if there}
    if not agents:
        return "Agents are not compared over tasks: no group has two runs that are done. Run two seeds or more."
    all_tasks = dict.fromkeys(group.task for group in groups)
    tasks = [task for task in all_tasks if all(task in there for there in agents.values())]
    if not tasks:
        return "Agents are not compared over tasks: on no task have all of them two runs that are done. Let the study finish."
    all_seeds = {seed for there in agents.values() for task in tasks for seed in there[task]}
    seeds = sorted(seed for seed in all_seeds if all(seed in there[task] for there in agents.values() for task in tasks))
    if len(seeds) < 2:
        return "Agents are not compared over tasks: fewer than two seeds are done by all of them on all tasks. Run the same seeds for each."
    left_out = []
    if empty:
        left_out.append(f"{several(len(empty), 'agent')} without two runs that are done ({listed(empty)})")
    if other_tasks := [task for task in all_tasks if task not in tasks]:
        left_out.append(f"{several(len(other_tasks), 'task')} ({listed(other_tasks)})")
    if other_seeds := sorted(all_seeds - set(seeds)):
        left_out.append(f"{several(len(other_seeds), 'seed')} ({listed(list(map(str, other_seeds)))})")
    scores = {label: np.array([[there[task][seed] for task in tasks] for seed in seeds]) for label, there in agents.items()}
    one_of = {group.label: group for group in reversed(groups) if group.label in agents}
    kept = [group.label for group in best_of([one_of[label] for label in agents], lambda group: float(scores[group.label].mean()))]
    if len(kept) < len(agents):
        left_out.append(f"{several(len(agents) - len(kept), 'agent')} with lower scores")
    return _Shared(tasks, seeds, {label: scores[label] for label in kept}, one_of, left_out)


def comparisons(groups: list[Group], source: Provenance) -> list[Block]:
    """What the agents of one kind of experiment are to each other, or why that cannot be said."""
    shared = _shared_scores(groups)
    if isinstance(shared, str):
        return [Prose(shared)]
    column = next(iter(groups[0].runs[0].columns))
    size = f"{several(len(shared.seeds), 'run')} of {several(len(shared.tasks), 'task')}"
    about = f"Agents are compared by {column}, average of last tenth, as it is, without normalisation, on {size} by each."
    if shared.left_out:
        about += f" Left out, because not all agents share them or to keep this short: {'; '.join(shared.left_out)}."
    if len(shared.seeds) < FEW:
        about += f" With fewer than {FEW} runs, bootstrap intervals are narrower than they should be."
    blocks: list[Block] = [Prose(about)]
    work = {"rng": np.random.default_rng(0), "resamples": max(200, min(2000, DRAWS // (len(shared.seeds) * len(shared.tasks))))}
    label = f"{column}, average of last tenth"
    middle = {name: aggregate(scores, "iqm", **work) for name, scores in shared.scores.items()}
    blocks.append(_intervals("Interquartile mean over tasks", label, middle, size, source))
    blocks.append(_profiles(shared, label, size, work, source))
    pairs = {name: baseline for name in shared.scores if (baseline := _baseline(name, shared))}
    if not pairs:
        blocks.append(Prose(f"Nothing is compared with {BASELINE}: no other agent, or no {BASELINE}, is among those compared."))
        return blocks
    if alone := [name for name in shared.scores if name not in pairs and shared.groups[name].agent != BASELINE]:
        blocks.append(Prose(f"No {BASELINE} differs from these in nothing else, so they are not compared with it: {listed(alone)}."))
    better = {name: probability_of_improvement(shared.scores[name], shared.scores[other], **work) for name, other in pairs.items()}
    blocks.append(_intervals(f"Probability of improvement over {BASELINE}", "P(higher score than it)", better, size, source))
    blocks.append(_paper_table(shared, pairs, work, source))
    return blocks


def _baseline(label: str, shared: _Shared) -> str | None:
    """The baseline that differs from an agent in nothing else, or the only one there is; None for a baseline itself."""
    agent = shared.groups[label].agent
    if agent == BASELINE:
        return None
    twin = BASELINE + label[len(agent) :]
    all_baselines = [name for name in shared.scores if shared.groups[name].agent == BASELINE]
    return twin if twin in all_baselines else all_baselines[0] if len(all_baselines) == 1 else None


def _intervals(title: str, label: str, estimates: Mapping[str, Estimate], size: str, source: Provenance) -> Intervals:
    rows = tuple(Interval(name, found.value, found.low, found.high, size) for name, found in estimates.items())
    method = next(iter(estimates.values())).method
    return Intervals(title, label, rows, f"{method[0].upper()}{method[1:]}, at {LEVEL:.0%}.", source)


def _profiles(shared: _Shared, label: str, size: str, work: dict[str, Any], source: Provenance) -> Block:
    everything = np.concatenate([scores.ravel() for scores in shared.scores.values()])
    taus = np.unique(np.linspace(everything.min(), everything.max(), TAUS))
    if len(taus) < TAUS:
        return Prose("There are no performance profiles: all scores are alike.")
    series = []
    for name, scores in shared.scores.items():
        values, low, high = zip(*((p.value, p.low, p.high) for p in performance_profile(scores, taus, **work)), strict=True)
        series.append(Series(name, tuple(taus.tolist()), values, low, high, len(shared.seeds)))
    note = f"The fraction of scores above tau, {size}; band: {LEVEL:.0%} stratified bootstrap interval at each tau."
    return Chart("Performance profiles", f"tau: {label}", "fraction of scores above tau", tuple(series), note, source=source)


def _paper_table(shared: _Shared, pairs: Mapping[str, str], work: dict[str, Any], source: Provenance) -> Table:
    most = times_best(shared.scores, **work)
    formula = "ratio"
    try:
        improved = _improvements(shared, pairs, formula, work)
    except ValueError:  # a baseline of zero
        formula = "symmetric"
        improved = _improvements(shared, pairs, formula, work)
    rows: list[tuple[Cell, ...]] = []
    for name, scores in shared.scores.items():
        if name in pairs:
            tests = tally(paired_t_tests(scores, shared.scores[pairs[name]], tasks=shared.tasks))
            rows.append((name, pairs[name], tests.better, tests.worse, most[name], *improved[name]))
        else:
            rows.append((name, None, None, None, most[name], None, None))
    columns = ("agent", "compared with", "tasks better", "tasks worse", "times best", "median improvement, %", "mean improvement, %")
    chance = len(shared.tasks) * 0.005
    note = (
        f"Better and worse: paired t-tests by seed on each of {several(len(shared.tasks), 'task')}, at 99%, with no correction for their "
        f"number (by chance alone {chance:.2g} each way), and Wilson's interval over tasks. Times best: tasks on which the mean score is "
        f"the highest of the agents here, ties counting for each. Improvement over tasks: 100 {FORMULAS[formula].text}, where s and b are "
        "the mean scores of the agent and of what it is compared with. Bootstrap intervals are stratified."
    )
    return Table("The paper's comparisons", columns, tuple(rows), note, source)


def _improvements(shared: _Shared, pairs: Mapping[str, str], formula: str, work: dict[str, Any]) -> dict[str, tuple[Estimate, Estimate]]:
    def over(name: str, kind: Any) -> Estimate:
        return improvement(shared.scores[name], shared.scores[pairs[name]], kind, formula, **work)

    return {name: (over(name, "median"), over(name, "mean")) for name in pairs}
