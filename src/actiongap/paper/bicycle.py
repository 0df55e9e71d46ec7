"""The bicycle varied, one setting at a time: alpha, eta, what the paper leaves open, and the resolution of the grid.

Each is held against the same plan with the paper's setting, and shown at the last evaluation that all runs of a comparison share.

The bicycle on the page: how its riders fare, what lies between the grid points, what other settings do, and every run there is.

The paper's bicycle, of its Figures 2 and 3 and its appendix: whether policies with wider action gaps ride better on a coarse grid.

`studies` says which plans are made and `runs` reads them back. `frequencies` shows how rides end, `claims` holds the paper's sentences
against that, `variations` shows what other settings do, `between` looks between the grid points, `drawing` and `film` draw, `pictures` and
`sections` put it on the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from actiongap.envs.bicycle import CORRECTED_C
from actiongap.lab.records import Records
from actiongap.lab.statistics import LEVEL, Estimate
from actiongap.paper.bicycle_claims import ends_table, frequencies
from actiongap.paper.bicycle_figures import between_pictures, film_picture, make_film, ride_pictures
from actiongap.paper.bicycle_runs import (
    ALPHAS,
    BELLMAN,
    CONSISTENT,
    ETA,
    ETAS,
    GRIDS,
    OPERATORS,
    PAIR,
    PLAIN,
    QUESTIONS,
    READINGS,
    Plan,
    Plans,
    at,
    chosen,
    difference,
    mean,
    overall,
    read_plans,
    steps_of,
    studies,
)
from actiongap.paper.parts import Part, Progress, Scale, said
from actiongap.report.groups import Group
from actiongap.report.page import Block, Cell, Chart, Choice, Prose, Provenance, Section, Series, Table
from actiongap.report.summary import provenance_of
from actiongap.report.summary import sections as study_sections

GAMMA = 0.99
"""Of all plans here."""
WORST = -CORRECTED_C / (1 - GAMMA)
"""What the worst of all steps would come to if it were taken for ever: no policy's value is below."""
QUANTITIES = {"goal_frequency": "arrivals", "fall_frequency": "falls", "gap": "gap", "value": "value"}
LABELS = {
    "goal_frequency": "part of the rides",
    "fall_frequency": "part of the rides",
    "gap": "best less second-best Q",
    "value": "max_a Q",
}


def variations(plans: Plans) -> list[Block]:
    """Everything that was varied and has runs to show.

    Examples
    --------
    >>> variations({})
    []
    """
    return [block for show in (_alpha, _eta, _readings, _resolution) for block in show(plans)]


def _alpha(plans: Plans) -> list[Block]:
    grid = GRIDS[0]
    swept = {(family, alpha): Plan(f"{family}:{alpha}", grid) for family in ("al", "pal") for alpha in ALPHAS}
    fixed = [Plan(operator, grid) for operator in PAIR]
    here = chosen(plans, [*fixed, *swept.values()])
    if sum(plan in here for plan in swept.values()) < 3:
        return []
    steps, source = steps_of(here.values()), _source(here)
    if not steps:
        return []
    half, last = steps[(len(steps) - 1) // 2], steps[-1]
    bellman, consistent = (here.get(plan) for plan in fixed)
    lines: dict[str, dict[float, Group]] = {}
    for (family, alpha), plan in swept.items():
        if plan in here:
            # Nothing subtracted is Bellman's operator.
            lines.setdefault(family, {0.0: bellman} if bellman is not None else {})[alpha] = here[plan]
    if consistent is not None:
        lines[CONSISTENT] = dict.fromkeys(sorted({x for found in lines.values() for x in found}), consistent)
    rows: list[tuple[Cell, ...]] = []
    for plan, group in here.items():
        frequencies = (mean(group, at(last, name)) for name in ("goal_frequency", "fall_frequency", "gap"))
        value = mean(group, at(last, "value"))
        below = None if value is None else value.value < WORST
        rows.append((plan.operator, *frequencies, mean(group, at(half, "value")), value, below, group.states["failed"]))
    columns = ("operator", "arrivals", "falls", "gap", f"value after {half}", f"value after {last}", "below all policies", "failed")
    note = (
        f"On the {grid}^6 grid after {last} iterations. Value: max_a Q, mean over grid points. The costliest step there is, taken for "
        f"ever, is worth {WORST:.3g}: a mean value below that is no policy's. Failed: runs whose Q was no number any more."
    )
    title = "How much of the gap is subtracted: alpha"
    return [
        Prose(f"{_alpha_says(here, half, last)}\n\n{_same_gap(here, consistent, last)}".strip()),
        Choice(title, ("quantity",), _charts("alpha", lines, last, source)),
        Table("The alphas in numbers", columns, tuple(rows), note, source),
    ]


def _alpha_says(here: Mapping[Plan, Group], half: int, last: int) -> str:
    told = []
    for plan, group in here.items():
        first, then = (mean(group, at(step, "value")) for step in (half, last))
        if then is not None and then.value < WORST:
            told.append(f"{plan.operator} has a mean value of {said(first)} after {half} iterations and of {said(then)} after {last}")
    if not told:
        return f"No operator's mean value is below {WORST:.3g}, the worth of the costliest step taken for ever: none is seen to diverge."
    return (
        f"{'; '.join(told)}. No policy is worth less than {WORST:.3g}, so these iterates run away. The paper's theorem promises otherwise "
        "only where Q is represented exactly, and between grid points it is interpolated."
    )


def _same_gap(here: Mapping[Plan, Group], consistent: Group | None, step: int) -> str:
    """Whether it is the gap alone that matters: how an operator with the consistent one's gap fares."""
    wide = mean(consistent, at(step, "gap"))
    gaps = {plan: gap for plan, group in here.items() if plan.operator not in PAIR and (gap := mean(group, at(step, "gap"))) is not None}
    if wide is None or not gaps:
        return ""
    alike = min(gaps, key=lambda plan: abs(gaps[plan].value - wide.value))
    ours, theirs = (said(mean(group, at(step, "goal_frequency"))) for group in (here[alike], consistent))
    return (
        f"The mean gap of {alike.operator}, {said(gaps[alike])}, is the nearest to that of {CONSISTENT}, {said(wide)}. The part of the "
        f"rides that arrive is {ours} with the one and {theirs} with the other."
    )


def _eta(plans: Plans) -> list[Block]:
    grid = GRIDS[0]
    wanted = {(operator, eta): Plan(operator, grid, eta=eta) for operator in PAIR for eta in ETAS}
    here = chosen(plans, wanted.values())
    steps, source = steps_of(here.values()), _source(here)
    if sum(plan.eta != ETA for plan in here) < 1 or not steps:
        return []
    lines: dict[str, dict[float, Group]] = {}
    rows: list[tuple[Cell, ...]] = []
    for (operator, eta), plan in wanted.items():
        if plan in here:
            group = lines.setdefault(operator, {})[eta] = here[plan]
            numbers = (mean(group, at(steps[-1], name)) for name in QUANTITIES)
            rows.append((operator, eta, *numbers, mean(group, overall("goal_frequency", steps)), mean(group, at(steps[-1], "residual"))))
    columns = ("operator", "eta", *QUANTITIES.values(), "arrivals, all evaluations", "residual")
    note = f"On the {grid}^6 grid after {steps[-1]} iterations; arrivals also as the mean over {len(steps)} evaluations."
    text = f"Q moves to T'Q by the part eta in every sweep. The paper found {ETA:g} suitable by a sweep over values that it does not print."
    return [
        Prose(text),
        Choice("How far a sweep moves Q: eta", ("quantity",), _charts("eta", lines, steps[-1], source, log_x=True)),
        Table("The etas in numbers", columns, tuple(rows), note, source),
    ]


def _readings(plans: Plans) -> list[Block]:
    grid = GRIDS[0]
    wanted = {(reading, operator): Plan(operator, grid, reading.env, reading.noise) for reading in READINGS for operator in PAIR}
    here = chosen(plans, wanted.values())
    steps, source = steps_of(here.values()), _source(here)
    if not steps or not any(plan in here for (reading, _), plan in wanted.items() if reading != PLAIN):
        return []
    rows: list[tuple[Cell, ...]] = []
    for reading in READINGS:
        bellman, consistent = (here.get(wanted[reading, operator]) for operator in PAIR)
        if bellman is None and consistent is None:
            continue
        numbers = [[mean(group, at(steps[-1], name)) for group in (bellman, consistent)] for name in ("goal_frequency", "fall_frequency")]
        apart = difference(consistent, bellman, at(steps[-1], "goal_frequency"))
        rows.append((reading.label, *numbers[0], apart, *numbers[1]))
    columns = ("reading", f"{BELLMAN} arrives", f"{CONSISTENT} arrives", "difference", f"{BELLMAN} falls", f"{CONSISTENT} falls")
    note = f"On the {grid}^6 grid after {steps[-1]} iterations; the difference is between runs with the same seed."
    text = "Where the paper leaves something open, each row reads one thing otherwise and leaves the rest as it is in the first."
    return [Prose(text), Table("What the paper leaves open", columns, tuple(rows), note, source)]


def _resolution(plans: Plans) -> list[Block]:
    pairs = {grid: chosen(plans, (Plan(operator, grid) for operator in PAIR)) for grid in sorted({plan.grid for plan in plans})}
    pairs = {grid: dict(zip(PAIR, pair.values(), strict=True)) for grid, pair in pairs.items() if len(pair) == len(PAIR)}
    groups = [group for pair in pairs.values() for group in pair.values()]
    steps, source = steps_of(groups), provenance_of(run for group in groups for run in group.runs)
    if len(pairs) < 3 or not steps:
        return []
    last, arrives, falls = steps[-1], at(steps[-1], "goal_frequency"), at(steps[-1], "fall_frequency")
    rows: list[tuple[Cell, ...]] = []
    apart: dict[int, Estimate] = {}
    for grid, pair in pairs.items():
        number = difference(pair[CONSISTENT], pair[BELLMAN], arrives)
        rows.append((grid, grid**6, *(mean(pair[operator], what) for what in (arrives, falls) for operator in PAIR), number))
        apart |= {} if number is None else {grid: number}
    columns = ("points an axis", "grid points", *(f"{operator} {what}" for what in ("arrives", "falls") for operator in PAIR), "difference")
    text = "No two runs of both operators have a seed in common."
    if apart:
        best, finest = max(apart, key=lambda grid: apart[grid].value), max(apart)
        text = (
            "By how much the part of the rides that arrive is higher with the consistent operator than with Bellman's: the most, by "
            f"{said(apart[best])}, with {best} points an axis, and by {said(apart[finest])} with {finest}, the most tried."
        )
    low, high = (tuple(getattr(number, end) for number in apart.values()) for end in ("low", "high"))
    series = Series(f"{CONSISTENT} less {BELLMAN}", tuple(map(float, apart)), tuple(number.value for number in apart.values()), low, high)
    note = f"After {last} iterations; band: {LEVEL:.0%} t interval over pairs of runs with the same seed, none of one or of few alike."
    chart = Chart("Arrivals, difference", "points an axis", "difference of parts", (series,), note, source=source)
    lines = {operator: {float(grid): pair[operator] for grid, pair in pairs.items()} for operator in PAIR}
    return [
        Prose(text),
        Choice(
            "From coarse grids to fine ones", ("quantity",), ((("difference",), chart), *_charts("points an axis", lines, last, source))
        ),
        Table("The resolutions in numbers", columns, tuple(rows), f"After {last} iterations; difference: arrivals, seed by seed.", source),
    ]


def _charts(
    x_label: str, lines: Mapping[str, Mapping[float, Group]], step: int, source: Provenance, log_x: bool = False
) -> tuple[tuple[tuple[str, ...], Chart], ...]:
    """A chart for each quantity, with a line for each name over the numbers that its groups are filed under."""
    made = []
    for column, name in QUANTITIES.items():
        series = tuple(_series(label, groups, column, step) for label, groups in lines.items())
        note = f"After {step} iterations; line: mean over seeds, band: {LEVEL:.0%} t interval."
        made.append(
            ((name,), Chart(name.capitalize(), x_label, LABELS.get(column, "part of the rides"), series, note, log_x, source=source))
        )
    return tuple(made)


def _series(name: str, groups: Mapping[float, Group], column: str, step: int) -> Series:
    numbers = {x: number for x, group in groups.items() if (number := mean(group, at(step, column))) is not None}
    value, low, high = (tuple(_within(column, getattr(number, end)) for number in numbers.values()) for end in ("value", "low", "high"))
    return Series(name, tuple(numbers), value, low, high)


def _within(column: str, number: float) -> float:
    """A number as a chart shows it: no part of the rides is less than none of them or more than all."""
    return min(1.0, max(0.0, number)) if column.endswith("frequency") and math.isfinite(number) else number


def _source(here: Mapping[Plan, Group]) -> Provenance:
    return provenance_of(run for group in here.values() for run in group.runs)


STORY = """A bicycle is to be kept upright and ridden to a goal 1 km away, a hundredth of a second at a time. Value iteration works on a
coarse grid over six numbers: the tilt and the handlebar, how fast both turn, how far the heading is off the goal, and how far the goal is.
Between the grid points Q is interpolated, and the policy greedy in the interpolated Q is what rides. A ride ends in a fall, at the goal, or
after 100,000 steps, somewhere else.

Much is left open by the paper and read here so: who has fallen pays c for ever, with c as printed; tilt and handlebar have exchanged the
ranges that are printed for them; rides start 1 km south of the goal, their headings spread evenly all around; every pair of grid point and
action draws noise of its own at every sweep."""

BETWEEN = """All riding takes place between the grid points. There the value of an action is the mean of its values at the corners around,
and the best of these means is at most the mean of what is best at each corner: it falls short where corners disagree about what is best,
and by the more, the wider their gaps are. So widening gaps changes values between the points even where it changes none at them."""

TABLES = ("Scores", "Cost of a run", "Runs that failed")
"""What of the usual report of runs is shown: the rest is told above, in the bicycle's own words."""


def sections(out: Path) -> list[Section]:
    """What the page shows of a folder in which all of the studies were run, or some, or none."""
    plans, records = read_plans(out)
    main = main_plans(plans)
    first: list[Block] = [Prose(STORY)]
    if left := [f"{name} ({question})" for name, question in QUESTIONS.items() if not (out / name / "runs").is_dir()]:
        first.append(Prose(f"Not run in this folder: {'; '.join(left)}. The scales gpu and paper run everything."))
    between: list[Block] = [Prose(BETWEEN), *between_pictures(main)]
    if main:
        source = provenance_of(run for group in main.values() for run in group.runs)
        first += [*frequencies(main, source), *ride_pictures(main), film_picture(out, main)]
    made = [Section("The bicycle (Figures 2, 3 and 6)", tuple(first)), Section("The bicycle between the grid points", tuple(between))]
    if varied := variations(plans):
        made.append(Section("The bicycle varied", tuple(varied)))
    # What is recorded changes no number, so it need not tell runs apart.
    plain = tuple(replace(run, spec={name: value for name, value in run.spec.items() if name != "record_episodes"}) for run in records.runs)
    every = [block for section in study_sections(Records(plain, ())) for block in section.blocks if getattr(block, "title", "") in TABLES]
    return [*made, Section("The bicycle's runs", tuple(every))] if every else made


def main_plans(plans: Plans) -> Plans:
    """The plans of the paper's operators on its grids: the study `operators`.

    Examples
    --------
    >>> main_plans({})
    {}
    """
    grids = {plan.grid for plan, group in plans.items() if any(run.folder.parents[1].name == "operators" for run in group.runs)}
    wanted = {Plan(operator, grid) for operator in OPERATORS for grid in grids}
    return {plan: group for plan, group in plans.items() if plan in wanted and any(len(run.rows["step"]) for run in group.runs)}


__all__ = ["PART", "sections", "studies"]


def _compute(scale: Scale, out: Path, progress: Progress) -> None:
    make_film(out, read_plans(out)[0], progress)


def _tables(out: Path) -> list[Any]:
    return [ends_table(main_plans(read_plans(out)[0]))]


PART = Part("Figures 2, 3 and 6: the bicycle", sections, studies, _compute, _tables)
