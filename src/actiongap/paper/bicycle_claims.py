"""What the paper says about the bicycle, beside what was measured: a number for each sentence, and what follows from its interval.

Nothing here is decided beforehand. A sentence that says that something is higher or lower holds if the whole interval lies on that side of
nothing, and is contradicted if it lies on the other.

How often rides fall and arrive under each operator: curves over iterations, numbers at the end, and differences seed by seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import LEVEL, Estimate, mean_over_runs, t_interval
from actiongap.paper.bicycle_runs import (
    BELLMAN,
    CONSISTENT,
    OPERATORS,
    Number,
    Plan,
    Plans,
    apart,
    at,
    chosen,
    difference,
    mean,
    overall,
    steps_of,
)
from actiongap.paper.parts import said
from actiongap.report.groups import Group, column_of
from actiongap.report.page import Block, Cell, Chart, Choice, Prose, Provenance, Series, Table

AGREES, OPPOSES, UNDECIDED, ONCE = "as the paper says", "the opposite", "no difference seen", "one run: nothing follows"
ALIKE = "all runs alike, too few for a test"
EARLIER = (f"{CONSISTENT} reaches the goal earlier than {BELLMAN}", f"{CONSISTENT} balances earlier than {BELLMAN}")
SELDOM = 0.05
"""What is reached in a smaller part of the episodes is not reached."""
LONG = 50_000
"""Steps that a success takes, or more, as the paper has it."""


class Claim(NamedTuple):
    """A sentence of the paper, what was measured, and what follows."""

    paper: str
    measured: str
    number: Estimate | None
    verdict: str


def claims(plans: Plans) -> list[Claim]:
    """Every sentence about which there are runs.

    Examples
    --------
    >>> claims({})
    []
    """
    grids = sorted({plan.grid for plan in plans if Plan(BELLMAN, plan.grid) in plans})
    found: list[Claim] = []
    for grid in grids:
        found += _on_a_grid(plans, grid)
    found += _across_grids(plans, grids)
    return [claim for claim in found if claim.number is not None]


def _on_a_grid(plans: Plans, grid: int) -> Iterator[Claim]:
    here = chosen(plans, (Plan(operator, grid) for operator in OPERATORS))
    bellman, steps = here.pop(Plan(BELLMAN, grid), None), steps_of(here.values())
    if bellman is None or not steps:
        return
    for plan, group in here.items():
        # Of the two in its appendix the paper says no more than this.
        better = (f"{plan.operator} does better than {BELLMAN}",) * 2
        says = EARLIER if plan.operator == CONSISTENT else better
        for (column, what, sign), paper in zip((("goal_frequency", "arrivals", 1), ("fall_frequency", "falls", -1)), says, strict=True):
            number = difference(group, bellman, overall(column, steps))
            measured = f"{what} on the {grid}^6 grid, {plan.operator} less {BELLMAN}, mean of {len(steps)} evaluations"
            yield Claim(paper, measured, number, signed(number, sign))
    if grid == 8:
        for what, number in (("its last", mean(bellman, at(steps[-1], "goal_frequency"))), ("its best", mean(bellman, _highest))):
            verdict = AGREES if number is not None and number.value <= SELDOM else "it finds one"
            yield Claim(f"{BELLMAN} finds no way to the goal", f"arrivals on the 8^6 grid, {BELLMAN} at {what} evaluation", number, verdict)


def _across_grids(plans: Plans, grids: list[int]) -> Iterator[Claim]:
    pairs = {grid: [plans.get(Plan(operator, grid)) for operator in (CONSISTENT, BELLMAN)] for grid in grids}
    if 8 in pairs and 10 in pairs:
        groups = [group for pair in pairs.values() for group in pair if group is not None]
        steps = steps_of(groups)
        number = _difference_of_differences(pairs[8], pairs[10], overall("goal_frequency", steps))
        measured = f"arrivals, {CONSISTENT} less {BELLMAN}, on the 8^6 grid less on the 10^6 grid"
        yield Claim("the effect is larger on the coarser grid", measured, number, signed(number, 1))
    runs = [run for pair in pairs.values() for group in pair if group is not None for run in group.counted]
    number = mean_over_runs([_length(run) for run in runs])
    measured = "steps of a ride, mean over the evaluations of a run in which every ride arrived"
    verdict = AGREES if number is not None and number.value >= LONG else "shorter"
    yield Claim("a success takes 50,000 steps or more", measured, number, verdict)


def _difference_of_differences(one: list, other: list, number: Number) -> Estimate | None:
    if any(group is None for group in (*one, *other)):
        return None
    values = [{run.seed: number(run) for run in group.counted} for group in (*one, *other)]
    coarse, fine = ({seed: ours[seed] - theirs[seed] for seed in ours if seed in theirs} for ours, theirs in (values[:2], values[2:]))
    return apart(coarse, fine)


def _highest(run: RunRecord) -> float:
    return float(np.max(column_of(run, "goal_frequency")))


def _length(run: RunRecord) -> float:
    """The mean length of a ride where all arrived; not a number where that never was."""
    lengths = column_of(run, "mean_steps")[column_of(run, "goal_frequency") == 1.0]
    return float(lengths.mean()) if len(lengths) else math.nan


def signed(number: Estimate | None, sign: int) -> str:
    """Whether an interval lies on the side of nothing that the sign says.

    Examples
    --------
    >>> signed(Estimate(0.5, 0.4, 0.6, 0.95, 5, 1, ""), 1), signed(Estimate(0.5, -0.1, 1.1, 0.95, 5, 1, ""), 1)
    ('as the paper says', 'no difference seen')
    >>> signed(Estimate(0.5, -math.inf, math.inf, 0.95, 5, 1, ""), 1)
    'all runs alike, too few for a test'
    """
    if number is None or number.n == 1:
        return ONCE
    if number.value and not math.isfinite(number.low + number.high):
        return ALIKE
    low, high = sorted((sign * number.low, sign * number.high))
    return AGREES if low > 0 else OPPOSES if high < 0 else UNDECIDED


def claims_table(found: list[Claim], source: Provenance) -> Table:
    """All of them as a table."""
    rows = tuple((claim.paper, claim.verdict, claim.number, claim.measured) for claim in found)
    note = (
        f"Differences are between runs with the same seed, with Student's t interval at {LEVEL:.0%}; a sentence holds where the whole "
        "interval is on its side of zero. Where all differences are alike to the last ride, fewer than six have no interval and six or "
        f"more have one without width. No way is found where at most {SELDOM:.0%} of the rides arrive."
    )
    return Table("Beside the paper", ("the paper says", "so", "number", "measured here"), rows, note, source)


def findings(found: list[Claim]) -> Prose | None:
    """Where the numbers are not as the paper says, in words; None where they all are."""
    others: dict[str, list[Claim]] = {}
    for claim in found:
        if claim.verdict not in (AGREES, ONCE):
            others.setdefault(claim.paper, []).append(claim)
    if not others:
        return None
    lines = ["Not everything comes out as the paper says."]
    for paper, some in others.items():
        measured = "; ".join(f"{said(claim.number)} for {claim.measured} ({claim.verdict})" for claim in some)
        lines.append(f"The paper says: {paper}. Measured: {measured}.")
    return Prose("\n\n".join(lines))


COLUMNS = {"goal_frequency": "arrivals", "fall_frequency": "falls", "neither": "neither"}
"""What becomes of a ride, as the page calls it."""


def frequencies(plans: Plans, source: Provenance) -> list[Block]:
    """Everything about how rides end under the paper's operators, and what it says beside the paper."""
    found = claims(plans)
    blocks: list[Block] = [Prose(_settings(plans)), _curves(plans, source), _numbers(plans, source), _differences(plans, source)]
    blocks += [claims_table(found, source)] if found else []
    blocks += [said] if (said := findings(found)) else []
    return blocks


def ends_table(plans: Plans) -> Any:
    """How rides end after the last sweep, for a terminal.

    Examples
    --------
    >>> ends_table({}).row_count
    0
    """
    from rich.table import Table as Printed

    shown = Printed(title="The bicycle after the last sweep: parts of the rides, 95% intervals over seeds", box=None, title_justify="left")
    for name in ("grid", "operator", "iterations", *COLUMNS.values()):
        shown.add_column(name, justify="left" if name in ("grid", "operator") else "right")
    for grid, operator, step, *ends in _rows(plans, tuple(COLUMNS)):
        shown.add_row(str(grid), str(operator), str(step), *(said(end) if isinstance(end, Estimate) else "" for end in ends))
    return shown


def grids_of(plans: Plans) -> list[int]:
    """The grids of some plans, the coarsest first.

    Examples
    --------
    >>> grids_of({})
    []
    """
    return sorted({plan.grid for plan in plans})


def _settings(plans: Plans) -> str:
    spec = next(iter(plans.values())).runs[0].spec
    seeds = sorted({len(group.runs) for group in plans.values()})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return (
        f"Plans of {spec['iterations']} sweeps with eta {spec['eta']:g} and one next state drawn for each pair and sweep. After every "
        f"{spec['eval_every']} of them the policy rides {spec['episodes']} times. Each plan is made with {count} seeds. Bands and "
        f"intervals are Student's t at {LEVEL:.0%} over seeds; where all seeds agree they have no width."
    )


def _here(plans: Plans, grid: int) -> dict[Plan, Group]:
    return chosen(plans, (Plan(operator, grid) for operator in OPERATORS))


def _curves(plans: Plans, source: Provenance) -> Choice:
    items = []
    note = f"Part of the rides; line: mean over seeds, band: {LEVEL:.0%} t interval at each evaluation, cut off at 0 and 1."
    for grid in grids_of(plans):
        for column, name in COLUMNS.items():
            series = tuple(_line(group, plan.operator, column) for plan, group in _here(plans, grid).items())
            chart = Chart(f"{name.capitalize()} on the {grid}^6 grid", "iterations", "part of the rides", series, note, source=source)
            items.append(((f"{grid}^6", name), chart))
    return Choice("Arrivals and falls of greedy policies (Figure 3, top, and the appendix)", ("grid", "quantity"), tuple(items))


def _line(group: Group, name: str, column: str) -> Series:
    steps = steps_of([group])
    runs = np.array([[at(step, column)(run) for step in steps] for run in group.counted])
    middle, low, high = (tuple(values.clip(0, 1).tolist()) for values in t_interval(runs))
    band = {"low": low, "high": high} if len(runs) > 1 else {}
    return Series(name, tuple(map(float, steps)), middle, n=len(runs), **band)


def _numbers(plans: Plans, source: Provenance) -> Table:
    rows = _rows(plans, (*COLUMNS, "mean_steps", "gap", "value", "residual"))
    columns = ("grid", "operator", "iterations", *COLUMNS.values(), "steps of a ride", "gap", "value", "residual")
    note = (
        "At the last evaluation that all runs on a grid share. Gap: best less second-best Q, mean over grid points; value: max_a Q, mean "
        "over grid points; residual: max |T'Q - Q| in the last sweep."
    )
    return Table("After the last sweep", columns, tuple(rows), note, source)


def _rows(plans: Plans, names: tuple[str, ...]) -> list[tuple[Cell, ...]]:
    """The grid, the operator, how many iterations, and some numbers after them, of every plan."""
    rows: list[tuple[Cell, ...]] = []
    for grid in grids_of(plans):
        here = _here(plans, grid)
        for step in steps_of(here.values())[-1:]:
            rows += [(f"{grid}^6", plan.operator, step, *(mean(group, at(step, name)) for name in names)) for plan, group in here.items()]
    return rows


def _differences(plans: Plans, source: Provenance) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for grid in grids_of(plans):
        here = _here(plans, grid)
        bellman, steps = here.get(Plan(BELLMAN, grid)), steps_of(here.values())
        ways = [at(steps[-1], name) for name in COLUMNS] + [overall(name, steps) for name in COLUMNS] if steps else []
        others = {plan: group for plan, group in here.items() if ways and plan.operator != BELLMAN}
        rows += [(f"{grid}^6", plan.operator, *(difference(group, bellman, way) for way in ways)) for plan, group in others.items()]
    columns = ("grid", "operator", *(f"{name}, {when}" for when in ("last", "all") for name in COLUMNS.values()))
    note = (
        f"The operator less {BELLMAN}, at the last evaluation and as the mean over all. Runs with the same seed are paired: they start "
        "from the same headings and meet the same gusts."
    )
    return Table(f"Compared with {BELLMAN}, seed by seed", columns, tuple(rows), note, source)
