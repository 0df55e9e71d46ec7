"""What the paper says about the bicycle, beside what was measured: a number for each sentence, and what follows from its interval.

Nothing here is decided beforehand. A sentence that says that something is higher or lower holds if the whole interval lies on that side of
nothing, and is contradicted if it lies on the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import Estimate
from actiongap.report.groups import LEVEL, column_of, mean_over_runs
from actiongap.report.page import Prose, Provenance, Table
from actiongap.reproduce.bicycle.runs import Number, Plan, Plans, apart, at, chosen, difference, mean, overall, steps_of
from actiongap.reproduce.bicycle.studies import BELLMAN, CONSISTENT, OPERATORS
from actiongap.reproduce.evidence import said

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
