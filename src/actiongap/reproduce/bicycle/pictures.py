"""What the page shows of the tables and rides in which runs ended: trajectories, the film, gaps, and V between the grid points."""

from __future__ import annotations

from collections.abc import Iterable
from math import degrees
from pathlib import Path

from actiongap.lab.experiment import State as RunState
from actiongap.lab.experiment import build
from actiongap.lab.kinds.plan import Planning
from actiongap.lab.records import RunRecord
from actiongap.planning.grid import Grid
from actiongap.render.video import NO_MP4, makes_mp4
from actiongap.report.figures import image
from actiongap.report.page import Block, Cell, Picture, Prose, Provenance, Table
from actiongap.report.summary import provenance_of
from actiongap.reproduce.bicycle.between import Centres, centres, maps_of
from actiongap.reproduce.bicycle.drawing import LAND, gap_maps, interpolation, trajectories
from actiongap.reproduce.bicycle.film import load_film
from actiongap.reproduce.bicycle.frequencies import grids_of
from actiongap.reproduce.bicycle.runs import Plan, Plans, final_state, first_done
from actiongap.reproduce.bicycle.studies import OPERATORS, PAIR

PANELS = 10
"""Evaluations whose rides are drawn, at most: the first."""
ENDINGS = {"goal": "arrives", "fall": "falls", "limit": "is still on its way"}
"""How a ride ends, in a sentence."""
SHORT = {
    "at_points": "V at points",
    "between": "V at centres",
    "shortfall": "mean distance",
    "largest": "largest distance",
    "above": "cells above",
    "below": "cells below",
    "gap_at_points": "gap at points",
    "gap_between": "gap at centres",
}
"""What the numbers of `Centres` are called in a table."""


def _ended(plans: Plans, grid: int, operators: Iterable[str]) -> dict[str, tuple[RunRecord, RunState]]:
    """Of each operator on a grid the first run that is done, and the state in which it ended."""
    runs = {operator: first_done(plans.get(Plan(operator, grid))) for operator in operators}
    states = {operator: final_state(run) for operator, run in runs.items() if run is not None}
    return {operator: (run, state) for operator, run in runs.items() if run is not None and (state := states[operator]) is not None}


def ride_pictures(plans: Plans) -> list[Block]:
    """The rides of Bellman's and of the consistent operator from above, a picture for each grid and operator."""
    blocks: list[Block] = []
    for grid in grids_of(plans):
        for operator, (run, state) in _ended(plans, grid, PAIR).items():
            if "rides" not in state:
                continue
            steps, rides = [round(step) for step in run.rows["step"]][:PANELS], state["rides"][:PANELS]
            note = (
                f"{rides.shape[1]} rides of seed {run.seed} after so many iterations, seen from above, north up, on {LAND / 1000:g} km of "
                "land each way. They start at the square, 1 km south of the goal, which is in the middle of the circle and too small to "
                "see. Colours tell starting headings apart; a cross is a fall."
            )
            alt = f"Small maps of rides with {operator} after {steps[0]} to {steps[-1]} iterations."
            picture = image(trajectories(rides, steps), "svg")
            title = f"Rides with {operator} on the {grid}^6 grid (Figure 3, bottom)"
            blocks.append(Picture(title, picture, "image/svg+xml", alt, note, provenance_of([run])))
    return blocks or [Prose("No rides are drawn: no run that recorded some is done, or its last state is gone.")]


def film_picture(out: Path, plans: Plans) -> Block:
    """The film of two rides, or why there is none."""
    film = load_film(out, plans)
    if film is None:
        why = "actiongap reproduce bicycle makes it of runs that are done" if makes_mp4() else NO_MP4
        return Prose(f"There is no film of two rides here: {why}.")
    data, shots = film
    first = shots[0]
    told = "; ".join(f"{shot.operator} {ENDINGS.get(shot.ending, shot.ending)} after {shot.steps:,} steps" for shot in shots)
    aside = f"{abs(degrees(first.heading)):.0f} degrees to the {'left' if first.heading > 0 else 'right'} of the goal"
    note = (
        f"One ride after the other from the same start, heading {aside}, under the same gusts, after {first.iterations} iterations on the "
        f"{first.grid}^6 grid: {told}. Of the recorded starts it is the first whose two rides end differently, if there is one. The middle "
        "of a ride goes by in a hurry, as the film says."
    )
    runs = [run for plan, group in plans.items() for run in group.runs if plan.grid == first.grid and run.spec.get("record")]
    alt = "A bicycle seen from behind, from above and on a map, with the values of all actions beside it."
    return Picture("Two rides", data, "video/mp4", alt, note, provenance_of(runs))


def between_pictures(plans: Plans) -> list[Block]:
    """Figure 2, maps of the gap for each grid, and how far V between the points is from V at them."""
    alt = "A square cell with its four corners and a point inside, and the values of two actions along an edge of it."
    note = "Left: the weights A(z | x) in two dimensions; a cell of the bicycle's grid has 64 corners. Right: why V is lower in between."
    blocks: list[Block] = [Picture("Multilinear interpolation (Figure 2)", image(interpolation(), "svg"), "image/svg+xml", alt, note)]
    rows: list[tuple[Cell, ...]] = []
    runs: list[RunRecord] = []
    for grid in grids_of(plans):
        found = _ended(plans, grid, OPERATORS)
        rows += [(f"{grid}^6", name, run.spec["iterations"], *centres(_place(run), state["q"])) for name, (run, state) in found.items()]
        runs += [run for run, _ in found.values()]
        if pair := {operator: found[operator] for operator in PAIR if operator in found}:
            blocks.append(_gap_picture(grid, pair))
    return [*blocks, _centres_table(rows, provenance_of(runs))] if rows else blocks


def _gap_picture(grid: int, pair: dict[str, tuple[RunRecord, RunState]]) -> Picture:
    note = "The gap of the interpolated Q, in the colours of one logarithmic scale; thin lines are the points of the grid. Seed 0."
    alt = f"Maps of the action gap on the {grid}^6 grid for {' and '.join(pair)}."
    runs = [run for run, _ in pair.values()]
    maps = maps_of(_place(runs[0]), {operator: state["q"] for operator, (_, state) in pair.items()})
    return Picture(f"Action gaps on the {grid}^6 grid", image(gap_maps(maps), "png"), "image/png", alt, note, provenance_of(runs))


def _place(run: RunRecord) -> Grid:
    spec = build(Planning, run.spec)
    assert isinstance(spec, Planning)
    return spec.place


def _centres_table(rows: list[tuple[Cell, ...]], source: Provenance) -> Table:
    columns = ("grid", "operator", "iterations", *(SHORT[name] for name in Centres._fields))
    note = (
        "Seed 0, means over all grid points and over the centres of all cells. Distance: |max_a Q(x, a) - sum_z A(z | x) V(z)| at a "
        "centre. Above and below: the part of the cells in which max_a Q(x, a) is more, and less, than the mean of V at the corners."
    )
    return Table("V between the points and at them", columns, tuple(rows), note, source)
