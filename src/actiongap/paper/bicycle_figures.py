"""Pictures of the bicycle: trajectories from above, the video of two episodes, maps of the action gap, and values between grid points.

Episodes take place between the grid points. The Q-value of an action at x is the weighted mean of its values at the corners of the cell.
The greedy policy follows max_a Q(x, a), which is at most the mean of the corners' V. It is lower wherever corners disagree about the best
action, and the difference grows with their gaps. Wider gaps at the grid points therefore change V between them even where V at the points
is unchanged.

The video shows one episode of Bellman's plan and one of the consistent operator's, from the same start with the same noise. It is made from
the final tables of two runs of the study `operators`, and made again only if these runs change.
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
from actiongap.envs.episode_video import episode_frames, record_interval, select_frames
from actiongap.lab.experiment import State as RunState
from actiongap.lab.experiment import build
from actiongap.lab.kinds.plan import Planning
from actiongap.lab.records import RunRecord
from actiongap.maths import action_gap
from actiongap.paper.bicycle_claims import grids_of
from actiongap.paper.bicycle_runs import OPERATORS, PAIR, Plan, Plans, final_state, first_done
from actiongap.paper.parts import Progress, read_json_object
from actiongap.planning.grid import Grid
from actiongap.planning.interpolation import multilinear
from actiongap.planning.rollouts import record_episode
from actiongap.render.video import NO_MP4, makes_mp4, mp4_bytes
from actiongap.reporting.figures import LIGHT, image
from actiongap.reporting.page import Block, Cell, Picture, Prose, Provenance, Table
from actiongap.reporting.summary import provenance_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLUMNS = 5
"""Panels per row."""
PANEL_SIZE = 2 * DISTANCE
"""Width and height of a panel in m. Start and goal are well inside."""
GREY, INK = "#8a8a86", "#21201a"
GOAL = "#f2b705"


def episode_outcome(states: np.ndarray) -> str:
    """Return the outcome of a recorded episode: states of shape (steps, 8), NaN after its end.

    Examples
    --------
    >>> from actiongap.envs.bicycle import standing
    >>> episode_outcome(np.array([standing(0.0), standing(0.0, north=-9.0)]))
    'goal'
    """
    omega, *_, d = features(State(*states[np.isfinite(states).all(axis=1)][-1].astype(float)))
    return "fall" if fallen(omega) else "goal" if arrived(d) else "limit"


def trajectories(episodes: np.ndarray, steps: Sequence[int]) -> Figure:
    """Draw trajectories from above, one panel per evaluation; `episodes` has shape (evaluations, episodes, steps, 8).

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
    for axes, step, some in zip(panels.flat, steps, episodes, strict=False):
        _draw_episodes(axes, some)
        axes.set_title(f"{step}", fontsize=9, pad=3, color=INK)
    return figure


def _draw_episodes(axes: Axes, episodes: np.ndarray) -> None:
    from matplotlib.patches import Circle

    middle, reach = -DISTANCE / 2, PANEL_SIZE / 2
    axes.set(xlim=(-reach, reach), ylim=(middle - reach, middle + reach), aspect="equal", xticks=(), yticks=())
    for spine in axes.spines.values():
        spine.set(color="#cfcfca", lw=0.7)
    # The goal itself is too small to see at this scale.
    axes.add_patch(Circle((0, 0), 0.035 * PANEL_SIZE, facecolor="none", edgecolor=INK, lw=0.8, zorder=3))
    axes.add_patch(Circle((0, 0), GOAL_RADIUS, color=GOAL, zorder=2))
    for index, states in enumerate(episodes):
        path = states[np.isfinite(states).all(axis=1)]
        color = LIGHT[index % len(LIGHT)]
        axes.plot(path[:, 6], path[:, 7], color=color, lw=0.7, alpha=0.85, zorder=4)
        if len(path) and episode_outcome(states) == "fall":
            axes.plot(*path[-1, 6:8], marker="x", ms=3.5, mew=0.9, color=color, zorder=5)
    axes.plot(0, -DISTANCE, marker="s", ms=2.5, color=INK, zorder=6)


class GapMap(NamedTuple):
    """The action gap over two coordinates, for each operator."""

    title: str
    labels: tuple[str, str]
    points: tuple[Sequence[float], Sequence[float]]
    """The grid points of both axes, horizontal first. The map covers them from the first to the last."""
    gaps: Mapping[str, np.ndarray]
    """One array per operator, (vertical, horizontal)."""


def draw_gap_maps(maps: Sequence[GapMap]) -> Figure:
    """Draw maps of best minus second-best Q, one row per map and one column per operator, with a common color scale.

    Examples
    --------
    >>> gap = np.outer(np.arange(5.0), np.arange(5.0))
    >>> here = GapMap("here", ("x", "y"), ((0.0, 1.0), (0.0, 1.0)), {"bellman": gap, "consistent": 2 * gap})
    >>> len(draw_gap_maps([here]).axes)  # two maps, and the scale
    3
    """
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    operators = list(maps[0].gaps)
    figure = Figure(figsize=(4.4 * len(operators) + 0.8, 3.1 * len(maps)), dpi=150, facecolor="white", layout="constrained")
    panels = figure.subplots(len(maps), len(operators), squeeze=False)
    all_gaps = np.concatenate([gap.ravel() for part in maps for gap in part.gaps.values()])
    positive = all_gaps[all_gaps > 0]
    # Ties have gap zero, which a logarithmic scale cannot show.
    least, most = (float(np.quantile(positive, 0.02)), float(positive.max())) if len(positive) else (0.5, 1.0)
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
    bar.set_label("best minus second-best Q", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return figure


def interpolation() -> Figure:
    """Draw the paper's Figure 2: the weights of a cell's corners, and their effect on the maximum over actions.

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
    figure.text(0.015, 0.955, "The weight of a corner is the area of the opposite piece", fontsize=10)
    figure.text(0.515, 0.955, "Along an edge, with two actions", fontsize=10)
    return figure


def _draw_cell(axes: Axes, alpha: float, beta: float) -> None:
    from matplotlib.patches import Rectangle

    axes.set(xlim=(-0.55, 1.6), ylim=(-0.2, 1.15), aspect="equal")
    axes.set_axis_off()
    corners = (((0, 0), "z_1", r"(1-\alpha)(1-\beta)"), ((1, 0), "z_2", r"\alpha(1-\beta)"))
    corners += (((0, 1), "z_3", r"(1-\alpha)\beta"), ((1, 1), "z_4", r"\alpha\beta"))
    for index, ((x, y), name, weight) in enumerate(corners):
        # The area of the piece opposite to a corner is the weight of that corner.
        begin = (alpha if x == 0 else 0.0, beta if y == 0 else 0.0)
        size = (1 - alpha if x == 0 else alpha, 1 - beta if y == 0 else beta)
        axes.add_patch(Rectangle(begin, *size, facecolor=LIGHT[index], alpha=0.16, lw=0))
        axes.plot(x, y, marker="o", ms=8, color=LIGHT[index], clip_on=False, zorder=4)
        side = "left" if x else "right"
        text = rf"$A({name}\,|\,x) = {weight}$" if x else rf"$A({name}\,|\,x)$" "\n" rf"$= {weight}$"
        axes.text(x + (0.06 if x else -0.06), y, text, ha=side, va="center", fontsize=9, color=LIGHT[index])
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
    for pair, color, label in ((plain, LIGHT[0], best), (wider, LIGHT[1], "the same with wider gaps at both ends")):
        for values in pair:
            axes.plot(ends, values, color=color, lw=0.9, ls=(0, (4, 3)), marker="o", ms=4)
        axes.plot(fine, np.max([np.interp(fine, ends, values) for values in pair], axis=0), color=color, lw=2.2, label=label)
    axes.text(-0.03, 0.5, "$Q(\\cdot, b)$", va="center", ha="right", fontsize=9)
    axes.text(1.03, 0.35, "$Q(\\cdot, a)$", va="center", fontsize=9)
    axes.set(xlim=(-0.16, 1.16), ylim=(-0.04, 1.06), xticks=(0, 1), yticks=())
    axes.set_xticklabels(["$z_1$", "$z_2$"], fontsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False, fontsize=9)


PIXELS = 141
"""Pixels of a map per axis."""
FAR = 500.0
"""Distance to the goal in maps over other coordinates, m."""


class CellCenters(NamedTuple):
    """V at the centers of all cells of a grid, and at its points."""

    at_points: float
    """max_a Q, mean over the points."""
    between: float
    """max_a Q(x, a), mean over the centers."""
    shortfall: float
    """|max_a Q(x, a) - sum_z A(z | x) V(z)|, mean over the centers."""
    largest: float
    """The maximum of the same over the centers."""
    above: float
    """Fraction of cells in which max_a Q(x, a) is above the mean of V."""
    below: float
    """Fraction of cells in which it is below."""
    gap_at_points: float
    """Best minus second-best Q, mean over the points."""
    gap_between: float
    """Best minus second-best Q, mean over the centers."""


def cell_centers(grid: Grid, q: np.ndarray) -> CellCenters:
    """Compare V at the cell centers with V at the points of Q(z, a), (points, actions), on a grid without periodic axes.

    At a center all corners have the same weight, so means are computed axis by axis. Rounding is monotone, so the computed
    max_a Q(x, a) never exceeds the computed mean of V.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> found = cell_centers(Grid((uniform(0.0, 1.0, 2),)), np.array([[1.0, 0.0], [0.0, 1.0]]))
    >>> found.at_points, found.between, found.shortfall, found.below
    (1.0, 0.5, 0.5, 1.0)
    """
    if any(axis.period is not None for axis in grid.axes):
        raise ValueError("an axis is periodic: use a grid without periodic axes")
    table = np.asarray(q, np.float64).reshape(*grid.shape, -1)
    values, best = table, table.max(axis=-1)
    for axis in range(len(grid.axes)):
        values, best = _midpoints(values, axis), _midpoints(best, axis)
    between = values.max(axis=-1)
    excess = between - best
    return CellCenters(
        at_points=float(table.max(axis=-1).mean()),
        between=float(between.mean()),
        shortfall=float(np.abs(excess).mean()),
        largest=float(np.abs(excess).max()),
        above=float((excess > 0).mean()),
        below=float((excess < 0).mean()),
        gap_at_points=float(action_gap(table).mean()),
        gap_between=float(action_gap(values).mean()),
    )


def _midpoints(values: np.ndarray, axis: int) -> np.ndarray:
    front = np.moveaxis(values, axis, 0)
    return np.moveaxis((front[1:] + front[:-1]) / 2, 0, axis)


def action_gap_maps(grid: Grid, tables: Mapping[str, np.ndarray]) -> list[GapMap]:
    """Return the gap over angle and distance to the goal (upright, no steering), and over tilt and handlebar (goal straight ahead).

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> grid = Grid(bicycle().axes(2))
    >>> [found.labels for found in action_gap_maps(grid, {"bellman": np.zeros((grid.size, 9))})]
    [('psi, degrees', 'd, m'), ('omega, degrees', 'theta, degrees')]
    """
    still = [0.0, 0.0, 0.0, 0.0, 0.0, FAR]
    return [
        _map(grid, tables, 4, 5, still, "upright, no steering", ("psi, degrees", "d, m")),
        _map(grid, tables, 0, 2, still, f"goal {FAR:.0f} m ahead, velocities 0", ("omega, degrees", "theta, degrees")),
    ]


def _map(
    grid: Grid, tables: Mapping[str, np.ndarray], across: int, up: int, still: list[float], title: str, labels: tuple[str, str]
) -> GapMap:
    axis_points = [np.array(grid.axes[axis].points) for axis in (across, up)]
    # Each pixel shows the gap at its center.
    x, y = (points[0] + (points[-1] - points[0]) * (np.arange(PIXELS) + 0.5) / PIXELS for points in axis_points)
    coordinates = list(map(np.asarray, still))
    coordinates[across], coordinates[up] = x[None, :], y[:, None]
    weights = multilinear(grid, tuple(coordinates))
    gaps = {name: action_gap(weights.of(np.asarray(q, np.float64))) for name, q in tables.items()}
    units = [180 / pi if "degrees" in label else 1.0 for label in labels]
    shown = [tuple((unit * points).tolist()) for unit, points in zip(units, axis_points, strict=True)]
    return GapMap(title, labels, (shown[0], shown[1]), gaps)


SECONDS = 12.0
"""Length of the video of one episode."""


class Clip(NamedTuple):
    """One episode of the video."""

    operator: str
    grid: int
    iterations: int
    episode: int
    episodes: int
    heading: float
    """Initial angle to the left of the goal, rad."""
    outcome: str
    steps: int


def make_video(out: Path, plans: Plans, progress: Progress) -> None:
    """Write the video and its description into a folder, unless it is up to date or cannot be made."""
    runs = select_runs(plans)
    if runs is None or not makes_mp4():
        return
    digests = [run.status.digest for run in runs if run.status is not None]
    if read_json_object(out / "episodes.json").get("digests") == digests and (out / "episodes.mp4").is_file():
        return
    states = [final_state(run) for run in runs]
    specs = [build(Planning, run.spec) for run in runs]
    loaded = [(spec, state) for spec, state in zip(specs, states, strict=True) if state is not None and isinstance(spec, Planning)]
    if len(loaded) < len(runs):
        return
    episode = _select_episode(loaded[0][0], [state["episodes"] for _, state in loaded])
    clips, frames, fps = [], [], 25
    for index, (spec, state) in enumerate(loaded):
        progress(f"recording {spec.operator}", index / len(loaded))
        interval = record_interval(spec.simulator)
        recorded = record_episode(
            spec.simulator,
            spec.state_grid,
            state["q"],
            episode,
            spec.episodes,
            seed=spec.seed,
            max_episode_steps=spec.max_episode_steps,
            every=interval,
        )
        selected = select_frames(spec.simulator, recorded, seconds=SECONDS)
        frames.append(episode_frames(spec.simulator, recorded, selected, title=f"{spec.operator}, {spec.iterations} iterations"))
        heading, fps = float(recorded.coordinates[4][0]), selected.fps
        plan = (spec.operator, spec.grid, spec.iterations, episode, spec.episodes)
        clips.append(Clip(*plan, heading, recorded.outcome, int(recorded.steps[-1])))
    write_bytes(out / "episodes.mp4", mp4_bytes(chain(*frames), fps))
    write_text(out / "episodes.json", json.dumps({"digests": digests, "clips": [clip._asdict() for clip in clips]}, indent=1) + "\n")


def load_video(out: Path, plans: Plans) -> tuple[bytes, list[Clip]] | None:
    """Return the video in a folder and its clips; None if there is none, or one of other runs."""
    runs, record = select_runs(plans), read_json_object(out / "episodes.json")
    if runs is None or record.get("digests") != [run.status.digest for run in runs if run.status is not None]:
        return None
    try:
        return (out / "episodes.mp4").read_bytes(), [Clip(**clip) for clip in record["clips"]]
    except (OSError, KeyError, TypeError):
        return None


def select_runs(plans: Plans) -> list[RunRecord] | None:
    """Return the two runs in the video, on the coarsest grid on which both recorded episodes; None if there is none."""
    for grid in sorted({plan.grid for plan in plans}):
        runs = [first_done(plans.get(Plan(operator, grid))) for operator in PAIR]
        recorded = [run for run in runs if run is not None and run.spec.get("record_episodes")]
        if len(recorded) == len(PAIR):
            return recorded
    return None


def _select_episode(spec: Planning, episodes: list[np.ndarray]) -> int:
    """Return the first recorded episode with different outcomes in the last evaluation, or the first episode."""
    outcomes = [[episode_outcome(states) for states in recorded[-1]] for recorded in episodes]
    differing = (episode for episode, *both in zip(spec.recorded_episodes, *outcomes, strict=True) if len(set(both)) > 1)
    return next(differing, spec.recorded_episodes[0])


PANELS = 10
"""Maximum number of evaluations drawn, from the first on."""
OUTCOME_VERBS = {"goal": "reaches the goal", "fall": "falls", "limit": "is truncated"}
"""The outcome of an episode in a sentence."""
CENTER_HEADINGS = {
    "at_points": "V at points",
    "between": "V at centers",
    "shortfall": "mean distance",
    "largest": "largest distance",
    "above": "cells above",
    "below": "cells below",
    "gap_at_points": "gap at points",
    "gap_between": "gap at centers",
}
"""Table headings for the fields of `CellCenters`."""


def _final_states(plans: Plans, grid: int, operators: Iterable[str]) -> dict[str, tuple[RunRecord, RunState]]:
    """Return the first finished run of each operator on a grid, with its final state."""
    runs = {operator: first_done(plans.get(Plan(operator, grid))) for operator in operators}
    states = {operator: final_state(run) for operator, run in runs.items() if run is not None}
    return {operator: (run, state) for operator, run in runs.items() if run is not None and (state := states[operator]) is not None}


def trajectory_pictures(plans: Plans) -> list[Block]:
    """Return the trajectories of Bellman and consistent from above, one picture per grid and operator."""
    blocks: list[Block] = []
    for grid in grids_of(plans):
        for operator, (run, state) in _final_states(plans, grid, PAIR).items():
            if "episodes" not in state:
                continue
            steps, states = [round(step) for step in run.rows["step"]][:PANELS], state["episodes"][:PANELS]
            note = (
                f"{states.shape[1]} episodes of seed {run.seed} from above, north up. A panel shows {PANEL_SIZE / 1000:g} km each way; its "
                "title is the number of iterations. Episodes start at the square, 1 km south of the goal. The goal is at the center of "
                "the circle and too small to see. Colors distinguish initial headings; a cross is a fall."
            )
            alt = f"Small maps of trajectories with {operator} after {steps[0]} to {steps[-1]} iterations."
            picture = image(trajectories(states, steps), "svg")
            title = f"Trajectories with {operator} on the {grid}^6 grid (Figure 3, bottom)"
            blocks.append(Picture(title, picture, "image/svg+xml", alt, note, provenance_of([run])))
    return blocks or [Prose("No trajectories are drawn: no run with recorded episodes is finished, or its final checkpoint is missing.")]


def video_picture(out: Path, plans: Plans) -> Block:
    """Return the video of two episodes, or the reason why there is none."""
    video = load_video(out, plans)
    if video is None:
        reason = "actiongap reproduce bicycle makes it from finished runs" if makes_mp4() else NO_MP4
        return Prose(f"There is no video of two episodes: {reason}.")
    data, clips = video
    first = clips[0]
    outcomes = "; ".join(f"{clip.operator} {OUTCOME_VERBS.get(clip.outcome, clip.outcome)} after {clip.steps:,} steps" for clip in clips)
    direction = f"{abs(degrees(first.heading)):.0f} degrees to the {'left' if first.heading > 0 else 'right'} of the goal"
    note = (
        f"Two episodes from the same start, heading {direction}, with the same noise, after {first.iterations} iterations on the "
        f"{first.grid}^6 grid: {outcomes}. This start is the first recorded one whose two episodes end differently, if there is one. The "
        "middle of each episode is played faster, as shown in the video."
    )
    runs = [run for plan, group in plans.items() for run in group.runs if plan.grid == first.grid and run.spec.get("record_episodes")]
    alt = "A bicycle from behind, from above and on a map, beside the Q-values of all actions."
    return Picture("Two episodes", data, "video/mp4", alt, note, provenance_of(runs))


def between_pictures(plans: Plans) -> list[Block]:
    """Return Figure 2, maps of the gap for each grid, and a comparison of V at grid points and between them."""
    alt = "A square cell with four corners and a point inside, and the values of two actions along an edge."
    note = (
        "Left: the weights A(z | x) in two dimensions; a cell of the bicycle's grid has 64 corners. Right: why V is lower between points."
    )
    blocks: list[Block] = [Picture("Multilinear interpolation (Figure 2)", image(interpolation(), "svg"), "image/svg+xml", alt, note)]
    rows: list[tuple[Cell, ...]] = []
    runs: list[RunRecord] = []
    for grid in grids_of(plans):
        found = _final_states(plans, grid, OPERATORS)
        rows += [
            (f"{grid}^6", name, run.spec["iterations"], *cell_centers(_grid_of(run), state["q"])) for name, (run, state) in found.items()
        ]
        runs += [run for run, _ in found.values()]
        if pair := {operator: found[operator] for operator in PAIR if operator in found}:
            blocks.append(_gap_picture(grid, pair))
    return [*blocks, _centers_table(rows, provenance_of(runs))] if rows else blocks


def _gap_picture(grid: int, pair: dict[str, tuple[RunRecord, RunState]]) -> Picture:
    note = "Action gap of the interpolated Q on one logarithmic color scale. Thin lines mark the grid points. Seed 0."
    alt = f"Maps of the action gap on the {grid}^6 grid for {' and '.join(pair)}."
    runs = [run for run, _ in pair.values()]
    maps = action_gap_maps(_grid_of(runs[0]), {operator: state["q"] for operator, (_, state) in pair.items()})
    return Picture(f"Action gaps on the {grid}^6 grid", image(draw_gap_maps(maps), "png"), "image/png", alt, note, provenance_of(runs))


def _grid_of(run: RunRecord) -> Grid:
    spec = build(Planning, run.spec)
    assert isinstance(spec, Planning)
    return spec.state_grid


def _centers_table(rows: list[tuple[Cell, ...]], source: Provenance) -> Table:
    columns = ("grid", "operator", "iterations", *(CENTER_HEADINGS[name] for name in CellCenters._fields))
    note = (
        "Seed 0. Means over all grid points and over the centers of all cells. Distance: |max_a Q(x, a) - sum_z A(z | x) V(z)| at a "
        "center. Above and below: fraction of cells in which max_a Q(x, a) is above, and below, the mean of V at the corners."
    )
    return Table("V at grid points and between them", columns, tuple(rows), note, source)
