"""How often rides fall and arrive under each operator: curves over iterations, numbers at the end, and differences seed by seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from actiongap.lab.statistics import Estimate
from actiongap.report.groups import LEVEL, Group, t_interval
from actiongap.report.page import Block, Cell, Chart, Choice, Prose, Provenance, Series, Table
from actiongap.reproduce.bicycle.claims import claims, claims_table, findings
from actiongap.reproduce.bicycle.runs import Plan, Plans, at, chosen, difference, mean, overall, steps_of
from actiongap.reproduce.bicycle.studies import BELLMAN, OPERATORS
from actiongap.reproduce.evidence import said

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
        f"{spec['every']} of them the policy rides {spec['episodes']} times. Each plan is made with {count} seeds. Bands and intervals are "
        f"Student's t at {LEVEL:.0%} over seeds; where all seeds agree they have no width."
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
