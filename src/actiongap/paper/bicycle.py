"""The paper's bicycle (Figures 2, 3 and 6, and its appendix): whether wider action gaps give better policies on a coarse grid.

`bicycle_runs` defines the studies and reads their runs. `bicycle_claims` shows how episodes end and compares that with the paper's
statements. `bicycle_figures` draws trajectories, gap maps and the video, and compares V at and between grid points. This module
varies one setting at a time (alpha, eta, details that the paper leaves open, the resolution of the grid). It compares each with the paper's
setting at the last evaluation that all runs share, and assembles the page.
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
from actiongap.paper.bicycle_claims import outcome_blocks, outcomes_table
from actiongap.paper.bicycle_figures import between_pictures, make_video, trajectory_pictures, video_picture
from actiongap.paper.bicycle_runs import (
    ALPHAS,
    BELLMAN,
    CONSISTENT,
    DEFAULT,
    ETA,
    ETAS,
    GRIDS,
    OPERATORS,
    PAIR,
    READINGS,
    STUDIES,
    Plan,
    Plans,
    at_step,
    difference,
    mean,
    mean_over_steps,
    read_plans,
    select_plans,
    shared_steps,
    studies,
)
from actiongap.paper.parts import Part, Progress, Scale, format_estimate
from actiongap.reporting.groups import Group
from actiongap.reporting.page import Block, Cell, Chart, Choice, Prose, Provenance, Section, Series, Table
from actiongap.reporting.summary import provenance_of
from actiongap.reporting.summary import sections as study_sections

GAMMA = 0.99
"""The discount of all plans."""
LOWEST_VALUE = -CORRECTED_C / (1 - GAMMA)
"""The value of the costliest step repeated forever: no policy has a lower value."""
QUANTITIES = {"goal_frequency": "arrivals", "fall_frequency": "falls", "gap": "gap", "value": "value"}
LABELS = {
    "goal_frequency": "fraction of episodes",
    "fall_frequency": "fraction of episodes",
    "gap": "best minus second-best Q",
    "value": "max_a Q",
}


def variations(plans: Plans) -> list[Block]:
    """Return the blocks of every varied setting that has runs.

    Examples
    --------
    >>> variations({})
    []
    """
    return [block for section in (_alpha, _eta, _readings, _resolution) for block in section(plans)]


def _alpha(plans: Plans) -> list[Block]:
    grid = GRIDS[0]
    swept = {(family, alpha): Plan(f"{family}:{alpha}", grid) for family in ("al", "pal") for alpha in ALPHAS}
    fixed = [Plan(operator, grid) for operator in PAIR]
    here = select_plans(plans, [*fixed, *swept.values()])
    if sum(plan in here for plan in swept.values()) < 3:
        return []
    steps, source = shared_steps(here.values()), _source(here)
    if not steps:
        return []
    half, last = steps[(len(steps) - 1) // 2], steps[-1]
    bellman, consistent = (here.get(plan) for plan in fixed)
    lines: dict[str, dict[float, Group]] = {}
    for (family, alpha), plan in swept.items():
        if plan in here:
            # alpha = 0 is the Bellman operator.
            lines.setdefault(family, {0.0: bellman} if bellman is not None else {})[alpha] = here[plan]
    if consistent is not None:
        lines[CONSISTENT] = dict.fromkeys(sorted({x for found in lines.values() for x in found}), consistent)
    rows: list[tuple[Cell, ...]] = []
    for plan, group in here.items():
        frequencies = (mean(group, at_step(last, name)) for name in ("goal_frequency", "fall_frequency", "gap"))
        value = mean(group, at_step(last, "value"))
        diverges = None if value is None else value.value < LOWEST_VALUE
        rows.append((plan.operator, *frequencies, mean(group, at_step(half, "value")), value, diverges, group.states["failed"]))
    columns = ("operator", "arrivals", "falls", "gap", f"value after {half}", f"value after {last}", "below every policy", "failed")
    note = (
        f"On the {grid}^6 grid after {last} iterations. Value: max_a Q, mean over grid points. The costliest step repeated forever has "
        f"value {LOWEST_VALUE:.3g}, so no policy has a lower mean value. Failed: runs in which Q became NaN or infinite."
    )
    title = "Fraction of the gap that is subtracted: alpha"
    return [
        Prose(f"{_divergence_caption(here, half, last)}\n\n{_matched_gap_caption(here, consistent, last)}".strip()),
        Choice(title, ("quantity",), _charts("alpha", lines, last, source)),
        Table("Results by alpha", columns, tuple(rows), note, source),
    ]


def _divergence_caption(here: Mapping[Plan, Group], half: int, last: int) -> str:
    diverging = []
    for plan, group in here.items():
        first, then = (mean(group, at_step(step, "value")) for step in (half, last))
        if then is not None and then.value < LOWEST_VALUE:
            values = f"{format_estimate(first)} after {half} iterations and {format_estimate(then)} after {last}"
            diverging.append(f"The mean value of {plan.operator} is {values}")
    if not diverging:
        return f"No operator's mean value is below {LOWEST_VALUE:.3g}, the value of the costliest step repeated forever: none diverges."
    return (
        f"{'. '.join(diverging)}. No policy has a value below {LOWEST_VALUE:.3g}, so these iterates diverge. The paper's theorem excludes "
        "this only where Q is represented exactly; here Q is interpolated between grid points."
    )


def _matched_gap_caption(here: Mapping[Plan, Group], consistent: Group | None, step: int) -> str:
    """Compare the consistent operator with the operator of the most similar gap, to test whether the gap alone matters."""
    wide = mean(consistent, at_step(step, "gap"))
    gaps = {
        plan: gap for plan, group in here.items() if plan.operator not in PAIR and (gap := mean(group, at_step(step, "gap"))) is not None
    }
    if wide is None or not gaps:
        return ""
    nearest = min(gaps, key=lambda plan: abs(gaps[plan].value - wide.value))
    arrivals, reference = (format_estimate(mean(group, at_step(step, "goal_frequency"))) for group in (here[nearest], consistent))
    return (
        f"The mean gap of {nearest.operator}, {format_estimate(gaps[nearest])}, is the nearest to that of {CONSISTENT}, "
        f"{format_estimate(wide)}. The fraction of episodes that reach the goal is {arrivals} with {nearest.operator} and {reference} with "
        f"{CONSISTENT}."
    )


def _eta(plans: Plans) -> list[Block]:
    grid = GRIDS[0]
    wanted = {(operator, eta): Plan(operator, grid, eta=eta) for operator in PAIR for eta in ETAS}
    here = select_plans(plans, wanted.values())
    steps, source = shared_steps(here.values()), _source(here)
    if sum(plan.eta != ETA for plan in here) < 1 or not steps:
        return []
    lines: dict[str, dict[float, Group]] = {}
    rows: list[tuple[Cell, ...]] = []
    for (operator, eta), plan in wanted.items():
        if plan in here:
            group = lines.setdefault(operator, {})[eta] = here[plan]
            numbers = (mean(group, at_step(steps[-1], name)) for name in QUANTITIES)
            rows.append(
                (
                    operator,
                    eta,
                    *numbers,
                    mean(group, mean_over_steps("goal_frequency", steps)),
                    mean(group, at_step(steps[-1], "residual")),
                )
            )
    columns = ("operator", "eta", *QUANTITIES.values(), "arrivals, mean over evaluations", "residual")
    note = f"On the {grid}^6 grid after {steps[-1]} iterations; arrivals also as the mean over {len(steps)} evaluations."
    text = f"Every sweep moves Q by the fraction eta towards T'Q. The paper chose {ETA:g} from a sweep over values that it does not print."
    return [
        Prose(text),
        Choice("Step of a sweep: eta", ("quantity",), _charts("eta", lines, steps[-1], source, log_x=True)),
        Table("Results by eta", columns, tuple(rows), note, source),
    ]


def _readings(plans: Plans) -> list[Block]:
    grid = GRIDS[0]
    wanted = {(reading, operator): Plan(operator, grid, reading.env, reading.noise) for reading in READINGS for operator in PAIR}
    here = select_plans(plans, wanted.values())
    steps, source = shared_steps(here.values()), _source(here)
    if not steps or not any(plan in here for (reading, _), plan in wanted.items() if reading != DEFAULT):
        return []
    rows: list[tuple[Cell, ...]] = []
    for reading in READINGS:
        bellman, consistent = (here.get(wanted[reading, operator]) for operator in PAIR)
        if bellman is None and consistent is None:
            continue
        numbers = [
            [mean(group, at_step(steps[-1], name)) for group in (bellman, consistent)] for name in ("goal_frequency", "fall_frequency")
        ]
        arrivals = difference(consistent, bellman, at_step(steps[-1], "goal_frequency"))
        rows.append((reading.label, *numbers[0], arrivals, *numbers[1]))
    columns = ("interpretation", f"{BELLMAN} arrives", f"{CONSISTENT} arrives", "difference", f"{BELLMAN} falls", f"{CONSISTENT} falls")
    note = f"On the {grid}^6 grid after {steps[-1]} iterations; the difference is between runs with the same seed."
    text = "The paper leaves some details open. Each row changes one of them and keeps the others as in the first row."
    return [Prose(text), Table("Details that the paper leaves open", columns, tuple(rows), note, source)]


def _resolution(plans: Plans) -> list[Block]:
    pairs = {grid: select_plans(plans, (Plan(operator, grid) for operator in PAIR)) for grid in sorted({plan.grid for plan in plans})}
    pairs = {grid: dict(zip(PAIR, pair.values(), strict=True)) for grid, pair in pairs.items() if len(pair) == len(PAIR)}
    groups = [group for pair in pairs.values() for group in pair.values()]
    steps, source = shared_steps(groups), provenance_of(run for group in groups for run in group.runs)
    if len(pairs) < 3 or not steps:
        return []
    last, arrives, falls = steps[-1], at_step(steps[-1], "goal_frequency"), at_step(steps[-1], "fall_frequency")
    rows: list[tuple[Cell, ...]] = []
    differences: dict[int, Estimate] = {}
    for grid, pair in pairs.items():
        estimate = difference(pair[CONSISTENT], pair[BELLMAN], arrives)
        rows.append((grid, grid**6, *(mean(pair[operator], what) for what in (arrives, falls) for operator in PAIR), estimate))
        differences |= {} if estimate is None else {grid: estimate}
    columns = (
        "points per axis",
        "grid points",
        *(f"{operator} {what}" for what in ("arrives", "falls") for operator in PAIR),
        "difference",
    )
    text = "The two operators have no runs with a common seed."
    if differences:
        best, finest = max(differences, key=lambda grid: differences[grid].value), max(differences)
        text = (
            f"Fraction of episodes that reach the goal, {CONSISTENT} minus {BELLMAN}: largest with {best} points per axis, "
            f"{format_estimate(differences[best])}; {format_estimate(differences[finest])} with {finest}, the finest grid."
        )
    value, low, high = (tuple(getattr(estimate, end) for estimate in differences.values()) for end in ("value", "low", "high"))
    series = Series(f"{CONSISTENT} minus {BELLMAN}", tuple(map(float, differences)), value, low, high)
    note = (
        f"After {last} iterations. Band: {LEVEL:.0%} t interval over pairs of runs with the same seed. A single pair, or a few identical "
        "pairs, have no band."
    )
    chart = Chart("Arrivals, difference", "points per axis", "difference of fractions", (series,), note, source=source)
    lines = {operator: {float(grid): pair[operator] for grid, pair in pairs.items()} for operator in PAIR}
    return [
        Prose(text),
        Choice("Resolution of the grid", ("quantity",), ((("difference",), chart), *_charts("points per axis", lines, last, source))),
        Table("Results by resolution", columns, tuple(rows), f"After {last} iterations; difference: arrivals, paired by seed.", source),
    ]


def _charts(
    x_label: str, lines: Mapping[str, Mapping[float, Group]], step: int, source: Provenance, log_x: bool = False
) -> tuple[tuple[tuple[str, ...], Chart], ...]:
    """Return one chart per quantity, with one line per name over the keys of its groups."""
    charts = []
    for column, name in QUANTITIES.items():
        series = tuple(_series(label, groups, column, step) for label, groups in lines.items())
        note = f"After {step} iterations; line: mean over seeds, band: {LEVEL:.0%} t interval."
        charts.append(((name,), Chart(name.capitalize(), x_label, LABELS[column], series, note, log_x, source=source)))
    return tuple(charts)


def _series(name: str, groups: Mapping[float, Group], column: str, step: int) -> Series:
    estimates = {x: estimate for x, group in groups.items() if (estimate := mean(group, at_step(step, column))) is not None}
    value, low, high = (
        tuple(_clip_frequency(column, getattr(estimate, end)) for estimate in estimates.values()) for end in ("value", "low", "high")
    )
    return Series(name, tuple(estimates), value, low, high)


def _clip_frequency(column: str, number: float) -> float:
    """Clip the ends of a frequency's interval to [0, 1] for a chart."""
    return min(1.0, max(0.0, number)) if column.endswith("frequency") and math.isfinite(number) else number


def _source(here: Mapping[Plan, Group]) -> Provenance:
    return provenance_of(run for group in here.values() for run in group.runs)


INTRODUCTION = """The task is to balance a bicycle and ride it to a goal 1 km away. A step lasts 0.01 s. Value iteration runs on a
coarse grid over six state variables: tilt and handlebar angle, their velocities, the angle between heading and goal, and the distance to
the goal. Q is interpolated between grid points, and episodes follow the greedy policy of the interpolated Q. An episode ends with a fall,
at the goal, or by truncation after 100,000 steps.

The paper leaves several details open. Here a fallen bicycle pays c forever, with c as printed. The ranges printed for tilt and handlebar
are exchanged. Episodes start 1 km south of the goal with evenly spread headings. Every pair of grid point and action draws its own noise
at every sweep."""

BETWEEN = """Episodes take place between the grid points. There the value of an action is a weighted mean of its values at
the corners of the cell. The maximum of these means is at most the mean of the maxima. It is lower where corners disagree about the best
action, and the difference grows with their gaps. Wider gaps therefore change V between the points even where V at the points does not
change."""

TABLES = ("Scores", "Cost of a run", "Runs that failed")
"""The tables of the general report that the page shows."""


def sections(out: Path) -> list[Section]:
    """Return the sections of the page, from a folder in which any of the studies were run."""
    plans, records = read_plans(out)
    main = main_plans(plans)
    first: list[Block] = [Prose(INTRODUCTION)]
    if missing := [f"{name} ({question})" for name, question in STUDIES.items() if not (out / name / "runs").is_dir()]:
        first.append(Prose(f"Not run in this folder: {'; '.join(missing)}. The scales gpu and paper run everything."))
    between: list[Block] = [Prose(BETWEEN), *between_pictures(main)]
    if main:
        source = provenance_of(run for group in main.values() for run in group.runs)
        first += [*outcome_blocks(main, source), *trajectory_pictures(main), video_picture(out, main)]
    made = [Section("The bicycle (Figures 2, 3 and 6)", tuple(first)), Section("The bicycle between the grid points", tuple(between))]
    if varied := variations(plans):
        made.append(Section("The bicycle: other settings", tuple(varied)))
    # Runs with and without recorded episodes give the same numbers and belong to one group.
    comparable = tuple(
        replace(run, spec={name: value for name, value in run.spec.items() if name != "record_episodes"}) for run in records.runs
    )
    tables = [
        block for section in study_sections(Records(comparable, ())) for block in section.blocks if getattr(block, "title", "") in TABLES
    ]
    return [*made, Section("The bicycle's runs", tuple(tables))] if tables else made


def main_plans(plans: Plans) -> Plans:
    """Return the plans of the paper's operators on its grids: the study `operators`.

    Examples
    --------
    >>> main_plans({})
    {}
    """
    grids = {plan.grid for plan, group in plans.items() if any(run.folder.parents[1].name == "operators" for run in group.runs)}
    main = {Plan(operator, grid) for operator in OPERATORS for grid in grids}
    return {plan: group for plan, group in plans.items() if plan in main and any(len(run.rows["step"]) for run in group.runs)}


def _compute(scale: Scale, out: Path, progress: Progress) -> None:
    make_video(out, read_plans(out)[0], progress)


def _tables(out: Path) -> list[Any]:
    return [outcomes_table(main_plans(read_plans(out)[0]))]


PART = Part("Figures 2, 3 and 6: the bicycle", sections, studies, _compute, _tables, ("episodes.mp4", "episodes.json"))
