"""Between the points of the grid, where all riding takes place: how large the action gap is there, and how far V is below its means.

The Q-value of an action at x is the mean of its values at the corners around x. The best of these means, max_a Q(x, a), is what a greedy
policy goes by, and it is never more than the mean of the corners' V: it falls short wherever corners disagree about the best action, and
by the more, the wider their gaps are. Widening gaps at the grid points therefore changes V between them even where it leaves V at them as
it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import NamedTuple

import numpy as np

from actiongap.planning.grid import Grid
from actiongap.planning.interpolation import multilinear
from actiongap.reproduce.bicycle.drawing import GapMap

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
