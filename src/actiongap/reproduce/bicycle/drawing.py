"""The bicycle's pictures: rides seen from above, maps of the action gap, and what interpolation does inside a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from actiongap.envs.bicycle import DISTANCE, GOAL_RADIUS, State, arrived, fallen, features
from actiongap.report.figures import LIGHT

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
