"""The corners of the cell that a point falls in, found inside compiled loops: of one point at a time, or of many side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import literal_unroll

from actiongap._numba import compile_function
from actiongap.grid.axes import Axis, Ruler, cell
from actiongap.grid.cpu.unrolled import inlined
from actiongap.grid.points import Grid
from actiongap.maths import clip


def corner_finder(grid: Grid) -> Callable[[tuple, np.ndarray, np.ndarray], None]:
    """A compiled function of x that fills in the numbers of the 2^d grid points around it, and the weight of each.

    Examples
    --------
    >>> from actiongap.grid.axes import uniform
    >>> place, weight = np.empty(2, np.int64), np.empty(2)
    >>> corner_finder(Grid((uniform(0.0, 1.0, 3),)))((0.125,), place, weight)
    >>> place.tolist(), weight.tolist()
    ([0, 1], [0.75, 0.25])
    """
    find = compile_function(cell)
    rulers = [axis.ruler() for axis in grid.axes]
    # Parallel loops take arrays and no tuples of them.
    knots, lengths = padded([ruler.knots for ruler in rulers]), np.array([len(ruler.knots) for ruler in rulers])
    inverse_steps, periods = np.array([ruler.inverse_step for ruler in rulers]), np.array([ruler.period for ruler in rulers])
    sizes, strides = np.array(grid.shape), np.array(grid.strides)

    @numba.njit(error_model="numpy", fastmath={"contract"})
    def corners_of(x, place, weight):
        place[0], weight[0], count, i = 0, 1.0, 1, 0
        for coordinate in literal_unroll(x):
            index, part = find(1.0 * coordinate, Ruler(knots[i, : lengths[i]], inverse_steps[i], periods[i]))
            fraction, above = weight.dtype.type(part), index + 1
            if above == sizes[i]:  # on an axis that goes round
                above = 0
            for c in range(count):
                place[count + c], weight[count + c] = place[c] + above * strides[i], weight[c] * fraction
                place[c], weight[c] = place[c] + index * strides[i], weight[c] * (weight.dtype.type(1.0) - fraction)
            count, i = 2 * count, i + 1

    return corners_of


def padded(rows: Sequence[Any]) -> np.ndarray:
    """Rows of several lengths as one array, the shorter ones begun again.

    Examples
    --------
    >>> padded([(1.0, 2.0, 3.0), (4.0, 5.0)]).tolist()
    [[1.0, 2.0, 3.0], [4.0, 5.0, 4.0]]
    """
    return np.array([np.resize(row, max(map(len, rows))) for row in rows])


def side_finder(axis: Axis) -> Callable:
    """A compiled function of a number x: the indices of the points below and above it, and the fraction of the way.

    It is `axes.cell` where points lie unevenly. Where they lie evenly it looks up no points, so that loops over many x run side by side;
    the fraction is then right but for rounding, and not to the bit at the points themselves.

    Examples
    --------
    >>> from actiongap.grid.axes import periodic
    >>> find = side_finder(periodic(0.0, 1.0, 4))
    >>> numba.njit(lambda x: find(x))(0.875)
    (3, 0, 0.5)
    """
    ruler, size = axis.ruler(), axis.size
    first, cells, inverse_step, turns = float(ruler.knots[0]), len(ruler.knots) - 1, ruler.inverse_step, axis.period is not None
    search, within = compile_function(cell), compile_function(clip)
    knots, _, period = ruler

    @inlined
    def even(x):
        along = (x - first) * inverse_step
        if turns:
            along = along - cells * np.floor(along / cells)
        along = within(along, 0.0, 1.0 * cells)
        index = min(np.int32(along if along > 0.0 else 0.0), cells - 1)
        return index, along - index

    @inlined
    def uneven(x):
        return search(x, Ruler(knots, inverse_step, period))

    find = even if axis.is_uniform else uneven

    @inlined
    def sides_of(x):
        index, fraction = find(x)
        return index, 0 if index + 1 == size else index + 1, fraction

    return sides_of


class Desk(NamedTuple):
    """Room for a `locator` to work in: arrays of lanes."""

    below: np.ndarray
    above: np.ndarray
    fraction: np.ndarray


def locator(axes: Sequence[tuple[Axis, int, int]], lanes: int) -> Callable:
    """A compiled function of (x, point, weight, desk) that finds the corners of many cells side by side.

    Everything is flat, *lanes* next to each other: corner c of lane l is point[c lanes + l], what it weighs weight[c lanes + l].

    Parameters
    ----------
    axes
        For each axis how far apart its neighbours are numbered, and which coordinate of x it takes: x[coordinate lanes + l]. The lower
        points of the last axis come first.
    lanes
        How many cells there are.
    """

    def along(n: int, others: Callable) -> Callable:
        axis, stride, coordinate = axes[n]
        find, begin, corners = side_finder(axis), coordinate * lanes, 2**n

        @inlined
        def locate(x, point, weight, desk):
            for lane in range(lanes):
                below, above, fraction = find(x[begin + lane])
                desk.below[lane], desk.above[lane], desk.fraction[lane] = below * stride, above * stride, fraction
            for c in range(corners):
                low, high = c * lanes, (corners + c) * lanes
                for lane in range(lanes):
                    share = weight[low + lane] * desk.fraction[lane]
                    weight[low + lane], weight[high + lane] = weight[low + lane] - share, share
                    point[low + lane], point[high + lane] = point[low + lane] + desk.below[lane], point[low + lane] + desk.above[lane]
            others(x, point, weight, desk)

        return locate

    further = inlined(lambda x, point, weight, desk: None)
    for n in reversed(range(len(axes))):
        further = along(n, further)

    @inlined
    def locate(x, point, weight, desk):
        point[:lanes], weight[:lanes] = 0, 1.0
        further(x, point, weight, desk)

    return locate
