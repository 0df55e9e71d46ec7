"""Plans of the bicycle read back: which runs repeat which plan, what they came to, and how far two operators are apart.

Only runs that the last command asked for count, so that a folder in which several scales were run one after the other shows the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np

from actiongap.lab.checkpoint import read_checkpoint
from actiongap.lab.experiment import State
from actiongap.lab.records import Records, RunRecord
from actiongap.lab.statistics import Estimate, paired_t_tests
from actiongap.report.groups import LEVEL, Group, column_of, mean_over_runs
from actiongap.reproduce.bicycle.studies import BICYCLE, ETA, QUESTIONS
from actiongap.reproduce.evidence import asked_for


class Plan(NamedTuple):
    """What tells the plans of the five studies apart."""

    operator: str
    grid: int
    problem: str = BICYCLE
    noise: str = "independent"
    eta: float = ETA


Plans = Mapping[Plan, Group]
"""The runs of each plan, in the order of their seeds."""
Number = Callable[[RunRecord], float]
"""A number of a run; not a number where it has none."""


def read_plans(out: Path) -> tuple[Plans, Records]:
    """The plans that the studies in a folder were last asked for, and their runs as they were read.

    Examples
    --------
    >>> import tempfile
    >>> read_plans(Path(tempfile.mkdtemp()))
    ({}, Records(runs=(), problems=()))
    """
    records = asked_for(out, QUESTIONS)
    return plans_of(records.runs), records


def plans_of(runs: Iterable[RunRecord]) -> Plans:
    """Runs by what they planned."""
    gathered: dict[Plan, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        if run.kind == "plan" and all(name in run.spec for name in Plan._fields):
            gathered.setdefault(Plan(*(run.spec[name] for name in Plan._fields)), []).append(run)
    return {plan: Group("plan", plan.problem, plan.operator, plan.operator, tuple(found)) for plan, found in gathered.items()}


def chosen(plans: Plans, wanted: Iterable[Plan]) -> dict[Plan, Group]:
    """Those of some plans that have rows to show, in the order wanted."""
    return {plan: plans[plan] for plan in wanted if plan in plans and plans[plan].counted}


def steps_of(groups: Iterable[Group]) -> list[int]:
    """The iterations after which all runs of some groups were evaluated.

    Examples
    --------
    >>> steps_of([])
    []
    """
    steps = [run.rows["step"] for group in groups for run in group.counted]
    return [round(step) for step in reduce(np.intersect1d, steps)] if steps else []


def at(step: int, column: str) -> Number:
    """The number in a column after so many iterations."""

    def number(run: RunRecord) -> float:
        found = column_of_ride(run, column)[run.rows["step"] == step]
        return float(found[0]) if len(found) else float("nan")

    return number


def overall(column: str, steps: Sequence[int]) -> Number:
    """The mean of a column over some evaluations: high early and late, or low."""
    return lambda run: float(np.mean([at(step, column)(run) for step in steps])) if steps else float("nan")


def column_of_ride(run: RunRecord, column: str) -> np.ndarray:
    """A column of a run, or the part of the episodes that neither fell nor arrived."""
    if column != "neither":
        return column_of(run, column)
    return 1.0 - column_of(run, "goal_frequency") - column_of(run, "fall_frequency")


def mean(group: Group | None, number: Number) -> Estimate | None:
    """The mean of a number over the runs of a group, with Student's t interval."""
    return None if group is None else mean_over_runs([number(run) for run in group.counted])


def difference(one: Group | None, other: Group | None, number: Number) -> Estimate | None:
    """By how much a number is higher in one group than in the other: the mean over pairs of runs with the same seed, with its interval."""
    if one is None or other is None:
        return None
    ours, theirs = ({run.seed: number(run) for run in group.counted} for group in (one, other))
    return apart(ours, theirs)


def apart(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate | None:
    """By how much one number is higher than another, each given by seed: the mean over the seeds that both have, with its interval.

    Examples
    --------
    >>> print(apart({0: 1.0, 1: 2.0, 2: 3.0}, {0: 0.0, 1: 0.0, 2: 0.0, 3: 9.0}))
    2.0 [-0.5, 4.5] (95%, n = 3)
    """
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs and np.isfinite(ours[seed] + theirs[seed])]
    if not pairs:
        return None
    x, y = np.array(pairs).T[:, :, None]
    if len(pairs) == 1:
        return mean_over_runs(x[0] - y[0])
    return paired_t_tests(x, y, level=LEVEL)[0].difference


def final_state(run: RunRecord) -> State | None:
    """The state in which a run ended; None where it has not ended, or the state is gone or not the one of its rows."""
    if run.status is None or run.state != "done":
        return None
    for file in sorted((run.folder / "checkpoint").glob("*.npz"), reverse=True):
        try:
            found = read_checkpoint(file)
        except ValueError:
            continue
        if (found.chunk, found.digest) == (run.status.chunks, run.status.digest):
            return found.state
    return None


def first_done(group: Group | None) -> RunRecord | None:
    """The run of a group with the lowest seed of those that are done."""
    return next((run for run in group.runs if run.state == "done"), None) if group is not None else None
