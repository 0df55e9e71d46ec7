"""The bicycle's pictures: rides seen from above, maps of the action gap, and what interpolation does inside a cell.

Between the points of the grid, where all riding takes place: how large the action gap is there, and how far V is below its means.

The Q-value of an action at x is the mean of its values at the corners around x. The best of these means, max_a Q(x, a), is what a greedy
policy goes by, and it is never more than the mean of the corners' V: it falls short wherever corners disagree about the best action, and
by the more, the wider their gaps are. Widening gaps at the grid points therefore changes V between them even where it leaves V at them as
it was.

The film of the bicycle: one ride after Bellman's plan and one after the consistent operator's, from the same start under the same gusts.

It is made from the tables in which two runs of the study `operators` ended, and made again only when these are others.

What the page shows of the tables and rides in which runs ended: trajectories, the film, gaps, and V between the grid points.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import degrees, pi
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from actiongap._files import write_bytes, write_text
from actiongap.envs.bicycle import DISTANCE, GOAL_RADIUS, State, arrived, fallen, features
from actiongap.envs.episode_video import edit, recorded_every, ride_frames
from actiongap.lab.experiment import State as RunState
from actiongap.lab.experiment import build
from actiongap.lab.kinds.plan import Planning
from actiongap.lab.records import RunRecord
from actiongap.paper.bicycle_claims import grids_of
from actiongap.paper.bicycle_runs import OPERATORS, PAIR, Plan, Plans, final_state, first_done
from actiongap.paper.parts import Progress, noted
from actiongap.planning.grid import Grid
from actiongap.planning.interpolation import multilinear
from actiongap.planning.rollouts import record_episode
from actiongap.render.video import NO_MP4, makes_mp4, mp4_bytes
from actiongap.report.figures import LIGHT, image
from actiongap.report.page import Block, Cell, Picture, Prose, Provenance, Table
from actiongap.report.summary import provenance_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLUMNS = 5
"""Panels of rides beside each other."""
LAND = 2 * DISTANCE
"""How much land a panel shows, each way, m: start and goal are well inside, and who leaves it is lost."""
GREY, INK = "#8a8a86", "#21201a"
GOAL = "#f2b705"


def ending(ride: np.ndarray) -> str:
    """How a recorded ride ended: its states, (moments, 8), are not numbers any more after that.

    Examples
    --------
    >>> from actiongap.envs.bicycle import standing
    >>> ending(np.array([standing(0.0), standing(0.0, north=-9.0)]))
    'goal'
    """
    omega, *_, d = features(State(*ride[np.isfinite(ride).all(axis=1)][-1].astype(float)))
    return "fall" if fallen(omega) else "goal" if arrived(d) else "limit"


def trajectories(rides: np.ndarray, steps: Sequence[int]) -> Figure:
    """Recorded rides from above, (evaluations, rides, moments, 8): a panel for each evaluation, after so many iterations.

    Examples
    --------
    >>> from actiongap.envs.bicycle import standing
    >>> straight = np.array([standing(0.0, north=north) for north in (-1000.0, -500.0, -9.0)])
    >>> figure = trajectories(np.tile(straight, (2, 1, 1, 1)), [100, 200])
    >>> [axes.get_title() for axes in figure.axes]
    ['100', '200']
    """
    from matplotlib.figure import Figure

    lines = -(-len(steps) // COLUMNS)
    columns = -(-len(steps) // lines)
    figure = Figure(figsize=(2.0 * columns, 2.2 * lines), dpi=200, facecolor="white", layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False)
    for axes in panels.flat[len(steps) :]:
        axes.remove()
    for axes, step, some in zip(panels.flat, steps, rides, strict=False):
        _draw_rides(axes, some)
        axes.set_title(f"{step}", fontsize=9, pad=3, color=INK)
    return figure


def _draw_rides(axes: Axes, rides: np.ndarray) -> None:
    from matplotlib.patches import Circle

    middle, reach = -DISTANCE / 2, LAND / 2
    axes.set(xlim=(-reach, reach), ylim=(middle - reach, middle + reach), aspect="equal", xticks=(), yticks=())
    for spine in axes.spines.values():
        spine.set(color="#cfcfca", lw=0.7)
    # The goal itself is too small to see from so far above.
    axes.add_patch(Circle((0, 0), 0.035 * LAND, facecolor="none", edgecolor=INK, lw=0.8, zorder=3))
    axes.add_patch(Circle((0, 0), GOAL_RADIUS, color=GOAL, zorder=2))
    for number, states in enumerate(rides):
        way = states[np.isfinite(states).all(axis=1)]
        colour = LIGHT[number % len(LIGHT)]
        axes.plot(way[:, 6], way[:, 7], color=colour, lw=0.7, alpha=0.85, zorder=4)
        if len(way) and ending(states) == "fall":
            axes.plot(*way[-1, 6:8], marker="x", ms=3.5, mew=0.9, color=colour, zorder=5)
    axes.plot(0, -DISTANCE, marker="s", ms=2.5, color=INK, zorder=6)


class GapMap(NamedTuple):
    """The action gap over two coordinates, for each operator."""

    title: str
    labels: tuple[str, str]
    points: tuple[Sequence[float], Sequence[float]]
    """Where the points of the grid are, across and up: the map goes from the first to the last."""
    gaps: Mapping[str, np.ndarray]
    """(up, across)."""


def gap_maps(maps: Sequence[GapMap]) -> Figure:
    """Maps of best less second-best Q: one above the other, the operators side by side, all in the colours of one scale.

    Examples
    --------
    >>> gap = np.outer(np.arange(5.0), np.arange(5.0))
    >>> here = GapMap("here", ("x", "y"), ((0.0, 1.0), (0.0, 1.0)), {"bellman": gap, "consistent": 2 * gap})
    >>> len(gap_maps([here]).axes)  # two maps, and the scale
    3
    """
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    operators = list(maps[0].gaps)
    figure = Figure(figsize=(4.4 * len(operators) + 0.8, 3.1 * len(maps)), dpi=150, facecolor="white", layout="constrained")
    panels = figure.subplots(len(maps), len(operators), squeeze=False)
    everything = np.concatenate([gap.ravel() for part in maps for gap in part.gaps.values()])
    seen = everything[everything > 0]
    # Where two actions tie the logarithm has no end.
    least, most = (float(np.quantile(seen, 0.02)), float(seen.max())) if len(seen) else (0.5, 1.0)
    scale = LogNorm(least, max(most, least * 1.01))
    image = None
    for line, part in zip(panels, maps, strict=True):
        for axes, (operator, gap) in zip(line, part.gaps.items(), strict=True):
            ends = (part.points[0][0], part.points[0][-1], part.points[1][0], part.points[1][-1])
            shown = np.maximum(gap, least)
            image = axes.imshow(shown, norm=scale, cmap="viridis", origin="lower", extent=ends, aspect="auto", interpolation="nearest")
            for point in part.points[0]:
                axes.axvline(point, color="white", lw=0.4, alpha=0.35)
            for point in part.points[1]:
                axes.axhline(point, color="white", lw=0.4, alpha=0.35)
            axes.set_title(f"{operator}: {part.title}", fontsize=9.5, loc="left", parse_math=False)
            axes.set_xlabel(part.labels[0], fontsize=9)
            axes.set_ylabel(part.labels[1], fontsize=9)
            axes.tick_params(labelsize=8)
    assert image is not None
    bar = figure.colorbar(image, ax=panels, shrink=0.85, pad=0.015)
    bar.set_label("best less second-best Q", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return figure


def interpolation() -> Figure:
    """The paper's Figure 2, the weights of a cell's corners, and what they do to a maximum over actions.

    Examples
    --------
    >>> len(interpolation().axes)
    2
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 4.2), dpi=200, facecolor="white")
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.01, right=0.99, top=0.92, bottom=0.27, wspace=0.06)
    left.set_position((0.01, 0.06, 0.49, 0.89))
    _draw_cell(left, 0.35, 0.6)
    _draw_edge(right)
    figure.text(0.015, 0.955, "Each corner weighs as much as the piece across from it covers", fontsize=10)
    figure.text(0.515, 0.955, "Along an edge, with two actions", fontsize=10)
    return figure


def _draw_cell(axes: Axes, alpha: float, beta: float) -> None:
    from matplotlib.patches import Rectangle

    axes.set(xlim=(-0.55, 1.6), ylim=(-0.2, 1.15), aspect="equal")
    axes.set_axis_off()
    corners = (((0, 0), "z_1", r"(1-\alpha)(1-\beta)"), ((1, 0), "z_2", r"\alpha(1-\beta)"))
    corners += (((0, 1), "z_3", r"(1-\alpha)\beta"), ((1, 1), "z_4", r"\alpha\beta"))
    for number, ((x, y), name, weight) in enumerate(corners):
        # The piece across from a corner has that corner's weight as its area.
        begin = (alpha if x == 0 else 0.0, beta if y == 0 else 0.0)
        size = (1 - alpha if x == 0 else alpha, 1 - beta if y == 0 else beta)
        axes.add_patch(Rectangle(begin, *size, facecolor=LIGHT[number], alpha=0.16, lw=0))
        axes.plot(x, y, marker="o", ms=8, color=LIGHT[number], clip_on=False, zorder=4)
        side = "left" if x else "right"
        text = rf"$A({name}\,|\,x) = {weight}$" if x else rf"$A({name}\,|\,x)$" "\n" rf"$= {weight}$"
        axes.text(x + (0.06 if x else -0.06), y, text, ha=side, va="center", fontsize=9, color=LIGHT[number])
    axes.plot([0, 1, 1, 0, 0], [0, 0, 1, 1, 0], color=INK, lw=1.2)
    axes.plot([alpha, alpha], [0, 1], color=GREY, lw=0.8, ls=(0, (4, 3)))
    axes.plot([0, 1], [beta, beta], color=GREY, lw=0.8, ls=(0, (4, 3)))
    axes.plot(alpha, beta, marker="o", ms=6, color=INK, zorder=5)
    axes.text(alpha + 0.03, beta + 0.03, "$x$", fontsize=12, va="bottom")
    axes.text(alpha / 2, -0.06, r"$\alpha$", fontsize=11, ha="center", va="top")
    axes.text(1.03, beta / 2, r"$\beta$", fontsize=11, va="center")


def _draw_edge(axes: Axes) -> None:
    ends, fine = np.array([0.0, 1.0]), np.linspace(0, 1, 201)
    plain, wider = ((1.0, 0.35), (0.5, 0.95)), ((1.0, 0.02), (0.12, 0.95))
    best = "best of the means, $\\max_a \\sum_z A(z\\,|\\,x)\\, Q(z, a)$"
    axes.plot(ends, [1.0, 0.95], color=LIGHT[2], lw=2, label="mean of the best, $\\sum_z A(z\\,|\\,x)\\, V(z)$")
    for pair, colour, label in ((plain, LIGHT[0], best), (wider, LIGHT[1], "the same with wider gaps at both ends")):
        for values in pair:
            axes.plot(ends, values, color=colour, lw=0.9, ls=(0, (4, 3)), marker="o", ms=4)
        axes.plot(fine, np.max([np.interp(fine, ends, values) for values in pair], axis=0), color=colour, lw=2.2, label=label)
    axes.text(-0.03, 0.5, "$Q(\\cdot, b)$", va="center", ha="right", fontsize=9)
    axes.text(1.03, 0.35, "$Q(\\cdot, a)$", va="center", fontsize=9)
    axes.set(xlim=(-0.16, 1.16), ylim=(-0.04, 1.06), xticks=(0, 1), yticks=())
    axes.set_xticklabels(["$z_1$", "$z_2$"], fontsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False, fontsize=9)


PIXELS = 141
"""Of a map, each way: more than are shown for each cell of the finest grid mapped."""
FAR = 500.0
"""The distance of the goal where a map is not about it, m."""


class Centres(NamedTuple):
    """V at the centres of all cells of a grid, and at its points."""

    at_points: float
    """max_a Q, mean over the points."""
    between: float
    """max_a Q(x, a), mean over the centres."""
    shortfall: float
    """Mean over the centres of |max_a Q(x, a) - sum_z A(z | x) V(z)|."""
    largest: float
    """The largest of these."""
    above: float
    """Part of the cells in which max_a Q(x, a) is above the mean of V."""
    below: float
    """Part of the cells in which it is below."""
    gap_at_points: float
    """Best less second-best Q, mean over the points."""
    gap_between: float
    """The same at the centres."""


def centres(grid: Grid, q: np.ndarray) -> Centres:
    """What lies between the points of Q(z, a), (points, actions), on a grid none of whose axes goes round.

    At a centre all corners weigh the same, so their means are found axis by axis. Rounding keeps order, so what is never above stays so.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> found = centres(Grid((uniform(0.0, 1.0, 2),)), np.array([[1.0, 0.0], [0.0, 1.0]]))
    >>> found.at_points, found.between, found.shortfall, found.below
    (1.0, 0.5, 0.5, 1.0)
    """
    if any(axis.period is not None for axis in grid.axes):
        raise ValueError("an axis goes round: centres are found on grids that end")
    table = np.asarray(q, np.float64).reshape(*grid.shape, -1)
    values, best = table, table.max(axis=-1)
    for axis in range(len(grid.axes)):
        values, best = _halfway(values, axis), _halfway(best, axis)
    between = values.max(axis=-1)
    over = between - best
    return Centres(
        at_points=float(table.max(axis=-1).mean()),
        between=float(between.mean()),
        shortfall=float(np.abs(over).mean()),
        largest=float(np.abs(over).max()),
        above=float((over > 0).mean()),
        below=float((over < 0).mean()),
        gap_at_points=float(gap_of(table).mean()),
        gap_between=float(gap_of(values).mean()),
    )


def _halfway(values: np.ndarray, axis: int) -> np.ndarray:
    front = np.moveaxis(values, axis, 0)
    return np.moveaxis((front[1:] + front[:-1]) / 2, 0, axis)


def gap_of(values: np.ndarray) -> np.ndarray:
    """Best less second best, along the last axis.

    Examples
    --------
    >>> gap_of(np.array([0.0, 3.0, 1.0])).tolist()
    2.0
    """
    best = np.partition(values, -2, axis=-1)
    return best[..., -1] - best[..., -2]


def maps_of(grid: Grid, tables: Mapping[str, np.ndarray]) -> list[GapMap]:
    """The gap over angle and distance of the goal, upright and straight; and over tilt and handlebar, the goal straight ahead.

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> grid = Grid(bicycle().axes(2))
    >>> [found.labels for found in maps_of(grid, {"bellman": np.zeros((grid.size, 9))})]
    [('psi, degrees', 'd, m'), ('omega, degrees', 'theta, degrees')]
    """
    still = [0.0, 0.0, 0.0, 0.0, 0.0, FAR]
    return [
        _map(grid, tables, 4, 5, still, "upright and straight", ("psi, degrees", "d, m")),
        _map(grid, tables, 0, 2, still, f"goal {FAR:.0f} m ahead, both rates 0", ("omega, degrees", "theta, degrees")),
    ]


def _map(
    grid: Grid, tables: Mapping[str, np.ndarray], across: int, up: int, still: list[float], title: str, labels: tuple[str, str]
) -> GapMap:
    ends = [np.array(grid.axes[axis].points) for axis in (across, up)]
    # Pixels are cells of their own: what is shown in each is the gap in its middle.
    x, y = (points[0] + (points[-1] - points[0]) * (np.arange(PIXELS) + 0.5) / PIXELS for points in ends)
    place = list(map(np.asarray, still))
    place[across], place[up] = x[None, :], y[:, None]
    weights = multilinear(grid, tuple(place))
    gaps = {name: gap_of(weights.of(np.asarray(q, np.float64))) for name, q in tables.items()}
    units = [180 / pi if "degrees" in label else 1.0 for label in labels]
    shown = [tuple((unit * points).tolist()) for unit, points in zip(units, ends, strict=True)]
    return GapMap(title, labels, (shown[0], shown[1]), gaps)


SECONDS = 12.0
"""How long the film of one ride is."""


class Shot(NamedTuple):
    """One ride of the film."""

    operator: str
    grid: int
    iterations: int
    episode: int
    episodes: int
    heading: float
    """Where it starts to: to the left of the goal, rad."""
    ending: str
    steps: int


def make_film(out: Path, plans: Plans, progress: Progress) -> None:
    """Write the film and what is in it into a folder, unless it is there already or cannot be made."""
    stars = cast(plans)
    if stars is None or not makes_mp4():
        return
    made = [run.status.digest for run in stars if run.status is not None]
    if noted(out / "rides.json").get("made of") == made and (out / "rides.mp4").is_file():
        return
    states = [final_state(run) for run in stars]
    specs = [build(Planning, run.spec) for run in stars]
    known = [(spec, state) for spec, state in zip(specs, states, strict=True) if state is not None and isinstance(spec, Planning)]
    if len(known) < len(stars):
        return
    episode = _episode(known[0][0], [state["rides"] for _, state in known])
    shots, frames, fps = [], [], 25
    for number, (spec, state) in enumerate(known):
        progress(f"filming {spec.operator}", number / len(known))
        pace = recorded_every(spec.simulator)
        found = record_episode(
            spec.simulator, spec.place, state["q"], episode, spec.episodes, seed=spec.seed, limit=spec.max_episode_steps, every=pace
        )
        cut = edit(spec.simulator, found, seconds=SECONDS)
        frames.append(ride_frames(spec.simulator, found, cut, title=f"{spec.operator}, {spec.iterations} iterations"))
        heading, fps = float(found.coordinates[4][0]), cut.fps
        place = (spec.operator, spec.grid, spec.iterations, episode, spec.episodes)
        shots.append(Shot(*place, heading, found.ending, int(found.steps[-1])))
    write_bytes(out / "rides.mp4", mp4_bytes(chain(*frames), fps))
    write_text(out / "rides.json", json.dumps({"made of": made, "shots": [shot._asdict() for shot in shots]}, indent=1) + "\n")


def load_film(out: Path, plans: Plans) -> tuple[bytes, list[Shot]] | None:
    """The film in a folder and what it shows; None where there is none, or one of other runs."""
    stars, record = cast(plans), noted(out / "rides.json")
    if stars is None or record.get("made of") != [run.status.digest for run in stars if run.status is not None]:
        return None
    try:
        return (out / "rides.mp4").read_bytes(), [Shot(**shot) for shot in record["shots"]]
    except (OSError, KeyError, TypeError):
        return None


def cast(plans: Plans) -> list[RunRecord] | None:
    """The two runs whose rides are shown, on the coarsest grid on which both recorded theirs; None if there is none."""
    for grid in sorted({plan.grid for plan in plans}):
        runs = [first_done(plans.get(Plan(operator, grid))) for operator in PAIR]
        recorded = [run for run in runs if run is not None and run.spec.get("record_episodes")]
        if len(recorded) == len(PAIR):
            return recorded
    return None


def _episode(spec: Planning, rides: list[np.ndarray]) -> int:
    """The first recorded episode that ends differently for the two in the last evaluation, or the first of all."""
    ends = [[ending(one) for one in recorded[-1]] for recorded in rides]
    differing = (episode for episode, *two in zip(spec.recorded, *ends, strict=True) if len(set(two)) > 1)
    return next(differing, spec.recorded[0])


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
    runs = [run for plan, group in plans.items() for run in group.runs if plan.grid == first.grid and run.spec.get("record_episodes")]
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
