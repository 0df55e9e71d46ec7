"""The report of studies: statistics per group of runs, with n and an interval for every number.

Each kind of experiment becomes a section with scores, learning curves, comparisons, costs and failures. Comparisons between agents
(interquartile means, performance profiles, probabilities of improvement, the paper's tests) are over the tasks and seeds that all agents
share; the report lists the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from actiongap._suggest import choose_from
from actiongap.lab.provenance import line
from actiongap.lab.records import Progress, Records, RunRecord
from actiongap.lab.statistics import (
    FORMULAS,
    LEVEL,
    Estimate,
    aggregate,
    improvement,
    paired_t_tests,
    performance_profile,
    probability_of_improvement,
    t_interval,
    tally,
    times_best,
)
from actiongap.reporting.groups import BASELINE, MAX_LISTED, Group, best_of, column_of, group_runs, listed, several
from actiongap.reporting.page import Block, Cell, Chart, Choice, Interval, Intervals, Prose, Provenance, Section, Series, Table

TAUS = 101
FEW_RUNS = 10
"""With fewer runs, percentile intervals cover the true value noticeably less often than their level."""
MAX_RESAMPLED_SCORES = 10**6
"""Approximate number of scores that one bootstrap resamples: with many runs, fewer resamples suffice."""
MAX_COMPARED = 1e150
"""Larger scores, and NaN, are not compared: their squares overflow."""


class _Shared(NamedTuple):
    """Scores on the tasks and seeds that all agents share."""

    tasks: list[str]
    seeds: list[int]
    scores: dict[str, NDArray[np.float64]]
    """Scores of each agent, (seeds, tasks)."""
    groups: dict[str, Group]
    """One group of each agent."""
    left_out: list[str]
    """Phrases about the agents, tasks and seeds that were left out."""


def _shared_scores(groups: list[Group]) -> _Shared | str:
    """Return the scores on the tasks and seeds that all agents share, or a sentence why there are none."""
    cells: dict[str, dict[str, dict[int, float]]] = {}
    for group in groups:
        values = zip(group.counted, group.scores["average of last tenth"], strict=True)
        found = {run.seed: value for run, value in values if run.state == "done" and abs(value) < MAX_COMPARED}
        cells.setdefault(group.label, {})
        if len(found) >= 2:
            cells[group.label][group.task] = found
    empty = [label for label, of_tasks in cells.items() if not of_tasks]
    agents = {label: of_tasks for label, of_tasks in cells.items() if of_tasks}
    if not agents:
        return "Agents are not compared over tasks: no group has two finished runs. Run at least two seeds."
    all_tasks = dict.fromkeys(group.task for group in groups)
    tasks = [task for task in all_tasks if all(task in of_tasks for of_tasks in agents.values())]
    if not tasks:
        return "Agents are not compared over tasks: there is no task on which all agents have two finished runs. Let the study finish."
    all_seeds = {seed for of_tasks in agents.values() for task in tasks for seed in of_tasks[task]}
    seeds = sorted(seed for seed in all_seeds if all(seed in of_tasks[task] for of_tasks in agents.values() for task in tasks))
    if len(seeds) < 2:
        return "Agents are not compared over tasks: fewer than two seeds are finished for all agents on all tasks. Run the same seeds."
    left_out = []
    if empty:
        left_out.append(f"{several(len(empty), 'agent')} without two finished runs ({listed(empty)})")
    if other_tasks := [task for task in all_tasks if task not in tasks]:
        left_out.append(f"{several(len(other_tasks), 'task')} ({listed(other_tasks)})")
    if other_seeds := sorted(all_seeds - set(seeds)):
        left_out.append(f"{several(len(other_seeds), 'seed')} ({listed(list(map(str, other_seeds)))})")
    scores = {label: np.array([[of_tasks[task][seed] for task in tasks] for seed in seeds]) for label, of_tasks in agents.items()}
    one_of = {group.label: group for group in reversed(groups) if group.label in agents}
    kept = [group.label for group in best_of([one_of[label] for label in agents], lambda group: float(scores[group.label].mean()))]
    if len(kept) < len(agents):
        left_out.append(f"{several(len(agents) - len(kept), 'agent')} with lower scores")
    return _Shared(tasks, seeds, {label: scores[label] for label in kept}, one_of, left_out)


def comparisons(groups: list[Group], source: Provenance) -> list[Block]:
    """Return comparisons of the agents of one kind of experiment, or a sentence why there are none."""
    shared = _shared_scores(groups)
    if isinstance(shared, str):
        return [Prose(shared)]
    column = next(iter(groups[0].runs[0].columns))
    size = f"{several(len(shared.seeds), 'run')} of {several(len(shared.tasks), 'task')}"
    about = f"Agents are compared by {column}, average of last tenth, without normalization, on {size} each."
    if shared.left_out:
        about += f" Left out, because not all agents share them or to limit the number of agents: {'; '.join(shared.left_out)}."
    if len(shared.seeds) < FEW_RUNS:
        about += f" With fewer than {FEW_RUNS} runs, bootstrap intervals are too narrow."
    blocks: list[Block] = [Prose(about)]
    bootstrap = {
        "rng": np.random.default_rng(0),
        "resamples": max(200, min(2000, MAX_RESAMPLED_SCORES // (len(shared.seeds) * len(shared.tasks)))),
    }
    label = f"{column}, average of last tenth"
    middle = {name: aggregate(scores, "iqm", **bootstrap) for name, scores in shared.scores.items()}
    blocks.append(_intervals("Interquartile mean over tasks", label, middle, size, source))
    blocks.append(_profiles(shared, label, size, bootstrap, source))
    pairs = {name: baseline for name in shared.scores if (baseline := _baseline(name, shared))}
    if not pairs:
        blocks.append(Prose(f"There are no comparisons with {BASELINE}: they need {BASELINE} and another agent."))
        return blocks
    if alone := [name for name in shared.scores if name not in pairs and shared.groups[name].agent != BASELINE]:
        blocks.append(
            Prose(f"These have no {BASELINE} agent with the same configuration, so they are not compared with it: {listed(alone)}.")
        )
    better = {name: probability_of_improvement(shared.scores[name], shared.scores[other], **bootstrap) for name, other in pairs.items()}
    blocks.append(_intervals(f"Probability of improvement over {BASELINE}", f"P(score > {BASELINE}'s)", better, size, source))
    blocks.append(_paper_table(shared, pairs, bootstrap, source))
    return blocks


def _baseline(label: str, shared: _Shared) -> str | None:
    """Return the baseline with the same configuration, or the only baseline; None for a baseline itself."""
    agent = shared.groups[label].agent
    if agent == BASELINE:
        return None
    same_configuration = BASELINE + label[len(agent) :]
    all_baselines = [name for name in shared.scores if shared.groups[name].agent == BASELINE]
    return same_configuration if same_configuration in all_baselines else all_baselines[0] if len(all_baselines) == 1 else None


def _intervals(title: str, label: str, estimates: Mapping[str, Estimate], size: str, source: Provenance) -> Intervals:
    rows = tuple(Interval(name, found.value, found.low, found.high, size) for name, found in estimates.items())
    method = next(iter(estimates.values())).method
    return Intervals(title, label, rows, f"{method[0].upper()}{method[1:]}, at {LEVEL:.0%}.", source)


def _profiles(shared: _Shared, label: str, size: str, bootstrap: dict[str, Any], source: Provenance) -> Block:
    everything = np.concatenate([scores.ravel() for scores in shared.scores.values()])
    taus = np.unique(np.linspace(everything.min(), everything.max(), TAUS))
    if len(taus) < TAUS:
        return Prose("There are no performance profiles: all scores are equal.")
    series = []
    for name, scores in shared.scores.items():
        values, low, high = zip(*((p.value, p.low, p.high) for p in performance_profile(scores, taus, **bootstrap)), strict=True)
        series.append(Series(name, tuple(taus.tolist()), values, low, high, len(shared.seeds)))
    note = f"The fraction of scores above tau, {size}; band: {LEVEL:.0%} stratified bootstrap interval at each tau."
    return Chart("Performance profiles", f"tau: {label}", "fraction of scores above tau", tuple(series), note, source=source)


def _paper_table(shared: _Shared, pairs: Mapping[str, str], bootstrap: dict[str, Any], source: Provenance) -> Table:
    most = times_best(shared.scores, **bootstrap)
    formula = "ratio"
    try:
        improved = _improvements(shared, pairs, formula, bootstrap)
    except ValueError:  # a baseline of zero
        formula = "symmetric"
        improved = _improvements(shared, pairs, formula, bootstrap)
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
        f"Better and worse: paired t-tests by seed on each of {several(len(shared.tasks), 'task')}, at 99%, without correction for "
        f"multiple tests (by chance {chance:.2g} each way), with Wilson's interval over tasks. Times best: tasks on which the mean score "
        f"is the highest of these agents; ties count for each. Improvement over tasks: 100 {FORMULAS[formula].text}, where s and b are "
        "the mean scores of the agent and of its baseline. Bootstrap intervals are stratified."
    )
    return Table("The paper's comparisons", columns, tuple(rows), note, source)


def _improvements(
    shared: _Shared, pairs: Mapping[str, str], formula: str, bootstrap: dict[str, Any]
) -> dict[str, tuple[Estimate, Estimate]]:
    def over(name: str, kind: Any) -> Estimate:
        return improvement(shared.scores[name], shared.scores[pairs[name]], kind, formula, **bootstrap)

    return {name: (over(name, "median"), over(name, "mean")) for name in pairs}


MAX_POINTS = 200
"""Maximum number of points of a learning curve."""
MAX_CHARTS = 300
"""Maximum number of learning curves on the page."""


def sections(records: Records, progress: Progress | None = None) -> list[Section]:
    """Return the report of all runs: a section for each kind of experiment.

    Examples
    --------
    >>> sections(Records(runs=(), problems=()))
    []
    """
    groups = group_runs(records.runs)
    kinds = list(dict.fromkeys(group.kind for group in groups))
    result = []
    for number, kind in enumerate(kinds, 1):
        result.append(_section(kind, [group for group in groups if group.kind == kind]))
        if progress:
            progress("composing the report", number / len(kinds))
    return result


def _section(kind: str, groups: list[Group]) -> Section:
    source = provenance_of([run for group in groups for run in group.runs])
    makers = (_introduction, _overview, _curves, comparisons, costs, failures)
    return Section(kind, tuple(block for make in makers for block in make(groups, source)))


def _introduction(groups: list[Group], source: Provenance) -> list[Block]:
    states = sum((group.states for group in groups), Counter())
    total, (name, meaning) = states.total(), next(iter(groups[0].runs[0].columns.items()))
    counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
    meaning = meaning.removeprefix("the ") if name == "score" else f"{name}: {meaning}"
    text = (
        f"{several(total, 'run')} in {several(len(groups), 'group')}: {counts}. A group is the runs that differ only in the seed, and "
        f"n is their number. Intervals are at {LEVEL:.0%}.\n\nThe score is the {meaning}. There are three summaries: the average of the "
        "last tenth of the rows, which comparisons use; the last; and the highest of a run, which grows with the number of "
        "evaluations. Runs with a missing or non-finite value are left out of that mean and of its n."
        f"\n\n{_shared_fields(groups)}"
    )
    return [Prose(text)]


def _shared_fields(groups: list[Group]) -> str:
    """Return a sentence with the fields that all runs share."""
    specs = [group.runs[0].spec for group in groups]
    shared = {name: value for name, value in specs[0].items() if name != "seed" and all(spec.get(name) == value for spec in specs)}
    text = ", ".join(f"{name} = {value}" for name, value in shared.items() if value is not None)
    return f"Configuration of all runs: {text}." if text else "The runs share no configuration field."


def _overview(groups: list[Group], source: Provenance) -> list[Block]:
    names = list(dict.fromkeys(name for group in groups for name in group.numbers))
    unfinished = [group for group in groups if not group.states["done"]]
    rows = []
    for group in groups:
        done, failed = group.states["done"], group.states["failed"]
        counts: tuple[Cell, ...] = (done, len(group.runs) - done - failed, failed)
        rows.append((group.task, group.label, *(group.numbers.get(name) for name in names), *counts))
    note = "Means over finished runs, with Student's t interval; a single run has no interval."
    if unfinished:
        note += f" {several(len(unfinished), 'group')} without finished runs: their numbers are of the rows so far."
    return [Table("Scores", ("task", "agent", *names, "done", "unfinished", "failed"), tuple(rows), note, source)]


def _curves(groups: list[Group], source: Provenance) -> list[Block]:
    tasks: dict[str, list[Group]] = {}
    for group in groups:
        if group.counted:
            tasks.setdefault(group.task, []).append(group)
    quantities = dict.fromkeys(name for group in groups for name in group.runs[0].columns)
    wanted = [
        (task, name) for name in quantities for task, members in tasks.items() if any(name in group.runs[0].columns for group in members)
    ]
    if not wanted:
        return [Prose("There are no learning curves: no run has rows yet.")]
    shown = {task: best_of(members, lambda group: group.rank) for task, members in tasks.items()}
    points = {id(group): _shared_points(group) for members in shown.values() for group in members}
    items = tuple(
        ((task, name), _curve(task, name, [(group, *points[id(group)]) for group in shown[task]], len(tasks[task]), source))
        for task, name in wanted[:MAX_CHARTS]
    )
    blocks: list[Block] = [Choice("Curves", ("task", "quantity"), items)]
    if len(wanted) > MAX_CHARTS:
        task, name = wanted[MAX_CHARTS]
        blocks.append(Prose(f"{MAX_CHARTS} of {len(wanted)} learning curves are shown: those from {name} on {task} onwards are left out."))
    return blocks


def learning_curve(runs: Iterable[RunRecord], column: str) -> Chart:
    """Return one column of runs of one task: a line for each group of runs that differ only in the seed, with a band over their seeds.

    Raises ValueError if the runs have no such column, or no rows yet.
    """
    groups = [group for group in group_runs(runs) if group.counted]
    if not groups:
        raise ValueError("there is no learning curve: no run has rows yet")
    known = list(dict.fromkeys(name for group in groups for name in group.runs[0].columns))
    if column not in known:
        raise ValueError(f"there is no column {column!r}: {choose_from(column, known)}")
    source = provenance_of(run for group in groups for run in group.runs)
    return _curve(groups[0].task, column, [(group, *_shared_points(group)) for group in groups], len(groups), source)


def _shared_points(group: Group) -> tuple[NDArray[np.float64], list[NDArray[np.intp]]]:
    """Return up to `MAX_POINTS` steps that all counted runs share, including the first and the last, and their indices in each run."""
    steps = [run.rows["step"] for run in group.counted]
    shared = steps[0] if all(np.array_equal(steps[0], other) for other in steps) else reduce(np.intersect1d, steps)
    kept = shared[np.unique(np.linspace(0, len(shared) - 1, min(MAX_POINTS, len(shared))).round().astype(int))]
    return kept, [np.searchsorted(of_run, kept) for of_run in steps]


def _curve(
    task: str, name: str, lines: list[tuple[Group, NDArray[np.float64], list[NDArray[np.intp]]]], all_lines: int, source: Provenance
) -> Chart:
    series = []
    for group, steps, places in lines:
        if name not in group.runs[0].columns:
            continue
        runs = np.stack([column_of(run, name)[place] for run, place in zip(group.counted, places, strict=True)])
        mean, low, high = (tuple(values.tolist()) for values in t_interval(runs))
        band = {} if len(runs) == 1 else {"low": low, "high": high}
        series.append(Series(group.label, tuple(steps.tolist()), mean, n=len(runs), **band))
    xs = [x for line in series for x in line.x]
    first = lines[0][0].runs[0]
    drawn = f"Line: mean over runs, at the steps they share; band: {LEVEL:.0%} t interval at each step, clipped far from the lines."
    note = f"{first.columns.get(name, name)}. {drawn}"
    if len(lines) < all_lines:
        note += f" {len(lines)} of {all_lines} agents are shown: those with the best last score, and {BASELINE}."
    log_x = bool(xs) and min(xs) > 0 and max(xs) > 100 * min(xs)
    return Chart(f"{name} on {task}", first.step_name, name, tuple(series), note, log_x, source=source)


def costs(groups: Sequence[Group], source: Provenance) -> list[Block]:
    """Return a table of the seconds and speed per run of each group. Groups of a task that were trained as one batch share a row.

    Examples
    --------
    >>> [table.title for table in costs([], provenance_of([]))]
    ['Cost of a run']
    """
    names = list(dict.fromkeys(name for group in groups for name in group.cost))
    times = Counter(run.status.seconds for group in groups for run in group.counted if run.status is not None and run.status.seconds > 0)
    batched = {group for group in groups if _shares_time(group, times)}
    by_time: dict[Any, list[Group]] = {}
    for group in groups:
        seconds = group.cost["seconds"]
        by_time.setdefault((group.task, f"{seconds.value:.9g}") if seconds and group in batched else group, []).append(group)
    rows = []
    for some in by_time.values():
        chunks = {run.status.chunks for group in some for run in group.runs if run.status is not None}
        cells: list[Cell] = [some[0].cost.get(name) for name in names]
        # Shares of the time of a batch do not vary like times of single runs, so they have no interval.
        cells = [cell.value if some[0] in batched and isinstance(cell, Estimate) else cell for cell in cells]
        rows.append((some[0].task, listed([group.label for group in some]), *cells, max(chunks, default=None)))
    note = "Compute time of one process, over all attempts at a run; means over runs with Student's t interval."
    if batched:
        note += (
            " Rows without an interval are of runs that were trained as a batch: the time of a run is its share of the batch's, the speed "
            "is that of the whole batch, and neither is the cost of a single run."
        )
    return [Table("Cost of a run", ("task", "agent", *names, "chunks"), tuple(rows), note, source)]


def _shares_time(group: Group, times: Counter[float]) -> bool:
    """Whether runs of a group were trained as a batch, so that their seconds are shares of its time.

    Old records do not have the batch size. There, runs were batched if each has exactly the seconds of another run of the study. `times` is
    the number of runs for each value of seconds.
    """
    known = [run.status for run in group.counted if run.status is not None]
    if any(status.batch_size is not None for status in known):
        return any(status.batch_size is not None and status.batch_size > 1 for status in known)
    return bool(known) and all(times[status.seconds] > 1 for status in known)


def failures(groups: Sequence[Group], source: Provenance) -> list[Block]:
    """Return a table of failed runs with their errors; nothing if none failed.

    Examples
    --------
    >>> failures([], provenance_of([]))
    []
    """
    rows = []
    for group in groups:
        for run in group.runs:
            if run.status is not None and run.state == "failed":
                at = f"{run.status.chunk} of {run.status.chunks}"
                rows.append((run.name, group.task, group.label, run.seed, at, run.status.error or "it failed without an error message"))
    if not rows:
        return []
    columns = ("run", "task", "agent", "seed", "after chunk", "error")
    return [Table("Runs that failed", columns, tuple(rows), "They are not included in the numbers above.", source)]


def provenance_of(runs: Iterable[RunRecord]) -> Provenance:
    """Return the commands, systems and dates of the last attempts at runs."""
    metas = [run.meta for run in runs]
    dates = sorted({date for meta in metas if isinstance(date := meta.get("date"), str)})
    commands = list(dict.fromkeys(command for meta in metas if isinstance(command := meta.get("command"), str) and command))
    systems = list(dict.fromkeys(filter(None, map(line, metas))))
    shown = "; ".join(systems[:MAX_LISTED]) or "not recorded"
    if len(systems) > 1:
        shown = f"{len(systems)} systems: {shown}" + ("; and others" if len(systems) > MAX_LISTED else "")
    more = [f"and {len(commands) - MAX_LISTED} more commands"] if len(commands) > MAX_LISTED else []
    span = "not recorded" if not dates else dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return Provenance("\n".join([*commands[:MAX_LISTED], *more]) or "not recorded", shown, span)


def summary(records: Records) -> dict[str, Any]:
    """Return the statistics of every group as plain values, with None for missing ones, and the problems of reading.

    Examples
    --------
    >>> summary(Records(runs=(), problems=("a sentence",)))
    {'groups': [], 'problems': ['a sentence']}
    """
    return {"groups": [_plain_group(group) for group in group_runs(records.runs)], "problems": list(records.problems)}


def _plain_group(group: Group) -> dict[str, Any]:
    numbers = {name: _plain_estimate(estimate) for name, estimate in (group.numbers | group.cost).items()}
    spec = {name: value for name, value in group.runs[0].spec.items() if name != "seed"}
    seeds = [run.seed for run in group.runs]
    parts = {"kind": group.kind, "task": group.task, "agent": group.agent, "label": group.label, "spec": spec, "seeds": seeds}
    return {**parts, "runs": dict(group.states), "numbers": numbers}


def _plain_estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    ends = {name: value if math.isfinite(value := getattr(estimate, name)) else None for name in ("value", "low", "high")}
    return {**ends, "level": estimate.level, "n": estimate.n, "method": estimate.method}
