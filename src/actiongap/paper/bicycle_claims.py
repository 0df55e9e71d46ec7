"""How episodes end under each operator, and whether the paper's statements about the bicycle hold.

It shows curves over iterations, numbers at the last evaluation, and differences paired by seed. Each statement of the paper is compared
with a measured number: a statement that something is higher or lower holds if the whole interval lies on that side of zero, and is
contradicted if it lies on the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import LEVEL, Estimate, mean_over_runs, paired_difference, t_interval
from actiongap.paper.bicycle_runs import (
    BELLMAN,
    CONSISTENT,
    OPERATORS,
    Plan,
    Plans,
    RunMetric,
    at_step,
    difference,
    mean,
    mean_over_steps,
    select_plans,
    shared_steps,
)
from actiongap.paper.parts import format_estimate
from actiongap.reporting.groups import Group, column_of
from actiongap.reporting.page import Block, Cell, Chart, Choice, Prose, Provenance, Series, Table

AGREES, OPPOSES, UNDECIDED, ONE_RUN = "agrees", "opposite", "no difference detected", "one run: no test"
IDENTICAL = "identical runs, too few for a test"
EARLIER = (f"{CONSISTENT} reaches the goal earlier than {BELLMAN}", f"{CONSISTENT} balances earlier than {BELLMAN}")
MAX_FAILURE_FREQUENCY = 0.05
"""A goal reached in at most this fraction of episodes counts as not reached."""
PAPER_SUCCESS_STEPS = 50_000
"""The paper's lower bound on the length of a successful episode, in steps."""


class Claim(NamedTuple):
    """A statement of the paper, the measured number, and the verdict."""

    paper: str
    measured: str
    number: Estimate | None
    verdict: str


def claims(plans: Plans) -> list[Claim]:
    """Return every statement for which there are runs.

    Examples
    --------
    >>> claims({})
    []
    """
    grids = sorted({plan.grid for plan in plans if Plan(BELLMAN, plan.grid) in plans})
    found: list[Claim] = []
    for grid in grids:
        found += _claims_on_grid(plans, grid)
    found += _claims_across_grids(plans, grids)
    return [claim for claim in found if claim.number is not None]


def _claims_on_grid(plans: Plans, grid: int) -> Iterator[Claim]:
    here = select_plans(plans, (Plan(operator, grid) for operator in OPERATORS))
    bellman, steps = here.pop(Plan(BELLMAN, grid), None), shared_steps(here.values())
    if bellman is None or not steps:
        return
    for plan, group in here.items():
        # This is all that the paper says about the two operators of its appendix.
        better = (f"{plan.operator} does better than {BELLMAN}",) * 2
        statements = EARLIER if plan.operator == CONSISTENT else better
        for (column, what, sign), paper in zip(
            (("goal_frequency", "arrivals", 1), ("fall_frequency", "falls", -1)), statements, strict=True
        ):
            estimate = difference(group, bellman, mean_over_steps(column, steps))
            measured = f"{what} on the {grid}^6 grid, {plan.operator} minus {BELLMAN}, mean over {len(steps)} evaluations"
            yield Claim(paper, measured, estimate, verdict_of(estimate, sign))
    if grid == 8:
        for what, estimate in (("the last", mean(bellman, at_step(steps[-1], "goal_frequency"))), ("its best", mean(bellman, _highest))):
            verdict = AGREES if estimate is not None and estimate.value <= MAX_FAILURE_FREQUENCY else "reaches the goal"
            measured = f"arrivals on the 8^6 grid, {BELLMAN} at {what} evaluation"
            yield Claim(f"{BELLMAN} does not reach the goal", measured, estimate, verdict)


def _claims_across_grids(plans: Plans, grids: list[int]) -> Iterator[Claim]:
    pairs = {grid: [plans.get(Plan(operator, grid)) for operator in (CONSISTENT, BELLMAN)] for grid in grids}
    if 8 in pairs and 10 in pairs:
        groups = [group for pair in pairs.values() for group in pair if group is not None]
        steps = shared_steps(groups)
        estimate = _difference_of_differences(pairs[8], pairs[10], mean_over_steps("goal_frequency", steps))
        measured = f"arrivals, {CONSISTENT} minus {BELLMAN}, on the 8^6 grid minus on the 10^6 grid"
        yield Claim("the effect is larger on the coarser grid", measured, estimate, verdict_of(estimate, 1))
    runs = [run for pair in pairs.values() for group in pair if group is not None for run in group.counted]
    estimate = mean_over_runs([_length(run) for run in runs])
    measured = "steps per episode, mean over the evaluations of a run in which every episode reached the goal"
    verdict = AGREES if estimate is not None and estimate.value >= PAPER_SUCCESS_STEPS else "shorter"
    yield Claim("a successful episode takes 50,000 steps or more", measured, estimate, verdict)


def _difference_of_differences(one: list[Any], other: list[Any], metric: RunMetric) -> Estimate | None:
    if any(group is None for group in (*one, *other)):
        return None
    values = [{run.seed: metric(run) for run in group.counted} for group in (*one, *other)]
    coarse, fine = ({seed: ours[seed] - theirs[seed] for seed in ours if seed in theirs} for ours, theirs in (values[:2], values[2:]))
    found = paired_difference(coarse, fine)
    return None if found is None else found.difference


def _highest(run: RunRecord) -> float:
    return float(np.max(column_of(run, "goal_frequency")))


def _length(run: RunRecord) -> float:
    """Return the mean length of episodes over evaluations in which all reached the goal; NaN if there is none."""
    lengths = column_of(run, "mean_steps")[column_of(run, "goal_frequency") == 1.0]
    return float(lengths.mean()) if len(lengths) else math.nan


def verdict_of(estimate: Estimate | None, sign: int) -> str:
    """Whether an interval lies on the side of zero given by `sign`.

    Examples
    --------
    >>> verdict_of(Estimate(0.5, 0.4, 0.6, 0.95, 5, 1, ""), 1), verdict_of(Estimate(0.5, -0.1, 1.1, 0.95, 5, 1, ""), 1)
    ('agrees', 'no difference detected')
    >>> verdict_of(Estimate(0.5, -math.inf, math.inf, 0.95, 5, 1, ""), 1)
    'identical runs, too few for a test'
    """
    if estimate is None or estimate.n == 1:
        return ONE_RUN
    if estimate.value and not math.isfinite(estimate.low + estimate.high):
        return IDENTICAL
    low, high = sorted((sign * estimate.low, sign * estimate.high))
    return AGREES if low > 0 else OPPOSES if high < 0 else UNDECIDED


def claims_table(found: list[Claim], source: Provenance) -> Table:
    """Return the statements as a table."""
    rows = tuple((claim.paper, claim.verdict, claim.number, claim.measured) for claim in found)
    note = (
        f"Differences are between runs with the same seed, with Student's t interval at {LEVEL:.0%}. A statement holds if the whole "
        "interval is on its side of zero. If all differences are identical, fewer than six have no interval and six or more have an "
        f"interval of width zero. The goal counts as not reached if at most {MAX_FAILURE_FREQUENCY:.0%} of episodes reach it."
    )
    return Table("Comparison with the paper", ("statement of the paper", "verdict", "number", "measured here"), rows, note, source)


def findings(found: list[Claim]) -> Prose | None:
    """Describe the statements that do not hold; None if all hold."""
    failed: dict[str, list[Claim]] = {}
    for claim in found:
        if claim.verdict not in (AGREES, ONE_RUN):
            failed.setdefault(claim.paper, []).append(claim)
    if not failed:
        return None
    lines = ["Not every statement of the paper holds here."]
    for paper, some in failed.items():
        measured = "; ".join(f"{format_estimate(claim.number)} for {claim.measured} ({claim.verdict})" for claim in some)
        lines.append(f"The paper says: {paper}. Measured: {measured}.")
    return Prose("\n\n".join(lines))


OUTCOMES = {"goal_frequency": "arrivals", "fall_frequency": "falls", "neither": "neither"}
"""Outcomes of an episode: column and name on the page."""


def outcome_blocks(plans: Plans, source: Provenance) -> list[Block]:
    """Return how episodes end under the paper's operators, and the comparison with the paper."""
    found = claims(plans)
    blocks: list[Block] = [
        Prose(_config_text(plans)),
        _curves(plans, source),
        _final_table(plans, source),
        _differences_table(plans, source),
    ]
    blocks += [claims_table(found, source)] if found else []
    blocks += [text] if (text := findings(found)) else []
    return blocks


def outcomes_table(plans: Plans) -> Any:
    """Return a terminal table of how episodes end after the last sweep.

    Examples
    --------
    >>> outcomes_table({}).row_count
    0
    """
    from rich.table import Table as Printed

    shown = Printed(title="The bicycle after the last sweep: fraction of episodes, 95% intervals", box=None, title_justify="left")
    for name in ("grid", "operator", "iterations", *OUTCOMES.values()):
        shown.add_column(name, justify="left" if name in ("grid", "operator") else "right")
    for grid, operator, step, *frequencies in _rows(plans, tuple(OUTCOMES)):
        shown.add_row(
            str(grid), str(operator), str(step), *(format_estimate(cell) if isinstance(cell, Estimate) else "" for cell in frequencies)
        )
    return shown


def grids_of(plans: Plans) -> list[int]:
    """Return the grids of some plans, coarsest first.

    Examples
    --------
    >>> grids_of({})
    []
    """
    return sorted({plan.grid for plan in plans})


def _config_text(plans: Plans) -> str:
    spec = next(iter(plans.values())).runs[0].spec
    seeds = sorted({len(group.runs) for group in plans.values()})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return (
        f"Each plan makes {spec['iterations']} sweeps with eta = {spec['eta']:g} and draws one next state per pair and sweep. Every "
        f"{spec['eval_every']} sweeps the policy is evaluated on {spec['episodes']} episodes. Each plan has {count} seeds. Bands and "
        f"intervals are Student's t at {LEVEL:.0%} over seeds; they have width zero if all seeds agree."
    )


def _plans_on_grid(plans: Plans, grid: int) -> dict[Plan, Group]:
    return select_plans(plans, (Plan(operator, grid) for operator in OPERATORS))


def _curves(plans: Plans, source: Provenance) -> Choice:
    items = []
    note = f"Fraction of episodes. Line: mean over seeds; band: {LEVEL:.0%} t interval at each evaluation, clipped to [0, 1]."
    for grid in grids_of(plans):
        for column, name in OUTCOMES.items():
            series = tuple(_line(group, plan.operator, column) for plan, group in _plans_on_grid(plans, grid).items())
            chart = Chart(f"{name.capitalize()} on the {grid}^6 grid", "iterations", "fraction of episodes", series, note, source=source)
            items.append(((f"{grid}^6", name), chart))
    return Choice("How episodes of greedy policies end (Figure 3, top, and the appendix)", ("grid", "quantity"), tuple(items))


def _line(group: Group, name: str, column: str) -> Series:
    steps = shared_steps([group])
    runs = np.array([[at_step(step, column)(run) for step in steps] for run in group.counted])
    middle, low, high = (tuple(values.clip(0, 1).tolist()) for values in t_interval(runs))
    band = {"low": low, "high": high} if len(runs) > 1 else {}
    return Series(name, tuple(map(float, steps)), middle, n=len(runs), **band)


def _final_table(plans: Plans, source: Provenance) -> Table:
    rows = _rows(plans, (*OUTCOMES, "mean_steps", "gap", "value", "residual"))
    columns = ("grid", "operator", "iterations", *OUTCOMES.values(), "steps per episode", "gap", "value", "residual")
    note = (
        "At the last evaluation that all runs on a grid share. Gap: best minus second-best Q, mean over grid points. Value: max_a Q, "
        "mean over grid points. Residual: max |T'Q - Q| in the last sweep."
    )
    return Table("After the last sweep", columns, tuple(rows), note, source)


def _rows(plans: Plans, names: tuple[str, ...]) -> list[tuple[Cell, ...]]:
    """Return one row per plan: grid, operator, iterations, and some numbers at that iteration."""
    rows: list[tuple[Cell, ...]] = []
    for grid in grids_of(plans):
        here = _plans_on_grid(plans, grid)
        for step in shared_steps(here.values())[-1:]:
            rows += [
                (f"{grid}^6", plan.operator, step, *(mean(group, at_step(step, name)) for name in names)) for plan, group in here.items()
            ]
    return rows


def _differences_table(plans: Plans, source: Provenance) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for grid in grids_of(plans):
        here = _plans_on_grid(plans, grid)
        bellman, steps = here.get(Plan(BELLMAN, grid)), shared_steps(here.values())
        metrics = [at_step(steps[-1], name) for name in OUTCOMES] + [mean_over_steps(name, steps) for name in OUTCOMES] if steps else []
        others = {plan: group for plan, group in here.items() if metrics and plan.operator != BELLMAN}
        rows += [
            (f"{grid}^6", plan.operator, *(difference(group, bellman, metric) for metric in metrics)) for plan, group in others.items()
        ]
    columns = ("grid", "operator", *(f"{name}, {when}" for when in ("last", "mean") for name in OUTCOMES.values()))
    note = (
        f"The operator minus {BELLMAN}, at the last evaluation and as the mean over all evaluations. Runs are paired by seed: the same "
        "seed means the same initial headings and the same noise."
    )
    return Table(f"Compared with {BELLMAN}, paired by seed", columns, tuple(rows), note, source)
