"""The cake's figure: the MDP, its action gap under each operator, and how often noise hides that gap.

Lines are closed forms. Markers are computed limits, and bands are intervals of counted frequencies; each matches its line if theory and
computation agree. Operators with the same gap share one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from actiongap.paper.cake_values import (
    EPSILON,
    GAMMA,
    Q_STAT,
    SIGMAS,
    CakeResult,
    FixedPoint,
    GaussianNoise,
    closed_form,
    ends,
    wrong_probability,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Line(NamedTuple):
    """Operators with the same gap on the cake, and their line style."""

    label: str
    operators: tuple[str, ...]
    color: str
    marker: str
    dash: str | tuple[int, tuple[int, ...]] = "-"


LINES = (
    Line("al:0.9; baird:0.1 where it converges", ("al:0.9", "baird:0.1"), "#D55E00", "^"),
    Line("al:0.5, baird:0.5", ("al:0.5", "baird:0.5"), "#E69F00", "s"),
    Line("consistent, pal:0.5, pal:0.9, $Q_\\mathrm{stat}$", ("consistent", "pal:0.5", "pal:0.9", Q_STAT), "#0072B2", "o"),
    Line("pal-dqn:0.9", ("pal-dqn:0.9",), "#56B4E9", "D", (0, (4, 2))),
    Line("pal-dqn:0.5", ("pal-dqn:0.5",), "#009E73", "v"),
    Line("bellman, lazy:0.5 from zeros", ("bellman", "lazy:0.5"), "#000000", "o"),
)
"""Widest gap first. The colors are Okabe and Ito's, which are safe for color-blind readers."""
LAZY = "#CC79A7"


def figure(result: CakeResult) -> Figure:
    """Draw three panels: the cake as an MDP, its gap under each operator, and how often noise hides that gap.

    Examples
    --------
    >>> len(figure(CakeResult("smoke", (), (), (), ())).axes)
    3
    """
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(10, 4.1), dpi=200, facecolor="white")
    left, middle, right = drawing.subplots(1, 3, width_ratios=(0.95, 1, 1))
    drawing.subplots_adjust(left=0.015, right=0.985, top=0.905, bottom=0.28, wspace=0.2)
    _draw_mdp(left)
    _draw_gaps(middle, result.fixed_points)
    _draw_noise(right, result.gaussian_noise)
    handles, labels = middle.get_legend_handles_labels()
    drawing.legend(handles, labels, loc="lower center", ncols=3, frameon=False, fontsize=9, columnspacing=2.5, handlelength=2.2)
    draws = max((row.draws for row in result.gaussian_noise), default=0)
    titles = (
        "The cake",
        rf"Action gap at $x_1$, $\epsilon$ = {EPSILON}",
        f"Wrong action, noise on $Q$, n = {draws:,}",
    )
    for axes, title in zip((left, middle, right), titles, strict=True):
        axes.set_title(title, fontsize=10.5, loc="left", pad=9)
    return drawing


def _draw_mdp(axes: Axes) -> None:
    from matplotlib.patches import Circle, FancyArrowPatch

    # Axis limits with the panel's aspect ratio keep circles round.
    axes.set(xlim=(0, 10), ylim=(0, 10 * axes.bbox.height / axes.bbox.width))
    axes.set_axis_off()
    x1, x2, choice = (1.7, 4.3), (8.7, 4.3), (4.3, 4.3)

    def arrow(start, end, bend: float, color: str, style: str = "-|>") -> None:
        curve = f"arc3,rad={bend}"
        axes.add_patch(
            FancyArrowPatch(
                start, end, connectionstyle=curve, arrowstyle=style, mutation_scale=11, color=color, lw=1.5, shrinkA=0, shrinkB=0
            )
        )

    eat, abstain, neutral = LINES[0].color, LINES[2].color, "#555555"
    for center, name, fill in ((x1, "$x_1$", "#FFFFFF"), (x2, "$x_2$", "#E8E8E8")):
        axes.add_patch(Circle(center, 0.85, facecolor=fill, edgecolor="black", lw=1.5, zorder=3))
        axes.text(*center, name, ha="center", va="center", fontsize=13, zorder=4)
    arrow((x1[0] + 0.85, x1[1]), choice, 0.0, eat, "-")
    axes.add_patch(Circle(choice, 0.17, color=eat, zorder=3))
    arrow(choice, (x2[0] - 0.87, x2[1]), 0.0, eat)
    arrow(choice, (x1[0] + 0.5, x1[1] - 0.74), -0.55, eat)
    arrow((x1[0] - 0.45, x1[1] + 0.74), (x1[0] + 0.45, x1[1] + 0.76), -2.3, abstain)
    arrow((x2[0] - 0.45, x2[1] + 0.74), (x2[0] + 0.45, x2[1] + 0.76), -2.3, neutral)
    axes.text(3.4, 4.55, "cake", ha="center", fontsize=9.5, color=eat)
    axes.text(6.05, 4.55, "p = ½, r = 1", ha="center", fontsize=8.5, color=eat)
    axes.text(4.15, 2.75, "p = ½, r = 1", ha="left", fontsize=8.5, color=eat)
    axes.text(x1[0], 7.45, "no cake", ha="center", fontsize=9.5, color=abstain)
    axes.text(x1[0], 6.8, "p = 1, r = 0", ha="center", fontsize=8.5, color=abstain)
    axes.text(x2[0], 6.8, "p = 1", ha="center", fontsize=8.5, color=neutral)
    axes.text(x1[0], 1.0, "$V^*(x_1) = 0$", ha="center", fontsize=9.5)
    axes.text(x2[0] + 0.9, 1.0, r"$V^*(x_2) = -2(1 + \epsilon)/\gamma$", ha="right", fontsize=9.5)


def _draw_gaps(axes: Axes, points: Sequence[FixedPoint]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    gammas = np.linspace(0.01, 0.999, 200)
    for line in LINES:
        exact = [-ends(closed_form(line.operators[0], gamma, EPSILON)).high for gamma in gammas]
        axes.plot(gammas, exact, color=line.color, ls=line.dash, lw=1.6)
        here = [row for row in points if row.operator in line.operators and row.epsilon == EPSILON]
        reached = [(row.gamma, row.gap) for row in here if row.gap is not None]
        marks = {"color": line.color, "marker": line.marker, "ms": 5, "mec": "white", "mew": 0.6}
        axes.plot([gamma for gamma, _ in reached], [gap for _, gap in reached], ls="", zorder=3, **marks)
        # An empty line, so that the legend combines line and marker.
        axes.plot([], [], ls=line.dash, lw=1.6, label=line.label, **marks)
    widest, least = ends(closed_form("lazy:0.5", GAMMA, EPSILON))
    axes.fill_between([0, 1], -least, -widest, color=LAZY, alpha=0.16, lw=0)
    axes.text(0.03, 0.1555, "all fixed points of lazy:0.5", color="#A3477A", fontsize=8.5, va="center")
    axes.set(yscale="log", xlim=(0, 1), ylim=(0.09, 1.25), xlabel=r"$\gamma$")
    axes.yaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.3, 0.5, 1.0]))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    _style_axes(axes)


def _draw_noise(axes: Axes, rows: Sequence[GaussianNoise]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    fine = np.geomspace(SIGMAS[0], SIGMAS[-1], 200)
    for line in LINES:
        points = [row for row in rows if row.operator == line.operators[0]]
        sigmas = [row.sigma for row in points]
        axes.fill_between(sigmas, [row.low for row in points], [row.high for row in points], color=line.color, alpha=0.25, lw=0)
        gap = -ends(closed_form(line.operators[0], GAMMA, EPSILON)).high
        axes.plot(fine, [wrong_probability(gap, sigma) for sigma in fine], color=line.color, ls=line.dash, lw=1.6)
    axes.text(
        0.035, 0.485, rf"$\gamma$ = {GAMMA}, $\epsilon$ = {EPSILON}" "\nlines: exact\nbands: 95%", fontsize=8.5, va="top", color="#555555"
    )
    axes.set(xscale="log", xlim=(SIGMAS[0], SIGMAS[-1]), ylim=(0, 0.5), xlabel=r"standard deviation of the error in $Q(x_1, a)$")
    axes.xaxis.set_major_locator(FixedLocator([0.03, 0.1, 0.3, 1.0, 3.0]))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda fraction, _: f"{100 * fraction:.0f}%")
    _style_axes(axes)


def _style_axes(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    axes.xaxis.label.set_fontsize(10)
    axes.grid(axis="y", color="#DDDDDD", lw=0.6)
    axes.set_axisbelow(True)
