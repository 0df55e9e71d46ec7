"""Sums over a few corners, written out for compiled loops.

Loops over a few corners are slow when their number is not known to the compiler, and what is kept in small arrays between two loops hides
from it that many sums could be taken near by near. So these functions are made for a number of corners: their sums are written out term by
term, and corners and weights travel in tuples, which become registers.

The corners of the cell that a point falls in, found inside compiled loops: of one point at a time, or of many near by near.

Interpolated values of all actions at a point, and the best of them, inside compiled loops.

The weights of the corners of a cell are products, so they are found for the first half of the coordinates and for the second: 8 and 8
instead of 64 on the bicycle. Sums are of the table's precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import literal_unroll
from numba.np.unsafe.ndarray import to_fixed_tuple

from actiongap._numba import compile_function
from actiongap.maths import clip
from actiongap.planning.grid import Axis, AxisData, Grid, cell

FAST: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
"""How kernels are compiled: sums may be taken in another order, but what is not a number stays none."""
inlined: Any = numba.njit(**FAST, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # pyright: ignore[reportCallIssue]
"""Compiles what only kernels call, and what must not be left as a call there."""
TOGETHER = 8
"""Corners that are added in one go: more would not find room in registers."""
Unsigned = np.uint64
"""Of indices inside kernels: a signed one would be asked each time whether it counts from the end."""


@lru_cache
def taken(count: int) -> Callable:
    """A compiled function of (row, i, stride): the tuple (row[i], row[i + stride], ...) of `count` numbers.

    Examples
    --------
    >>> three = taken(3)
    >>> numba.njit(lambda row: three(row, 0, 2))(np.arange(5))
    (0, 2, 4)
    """
    if count == 1:
        return inlined(lambda row, i, stride: (row[i],))
    half = Unsigned(count // 2)
    some, others = taken(count // 2), taken(count - count // 2)
    return inlined(lambda row, i, stride: some(row, i, stride) + others(row, Unsigned(i) + half * Unsigned(stride), stride))


@lru_cache
def weighted(count: int) -> Callable:
    """A compiled function of (values, numbers, weights, stride, i, start): start + sum_c weights[c] values[numbers[c] stride + i].

    Examples
    --------
    >>> mean = weighted(2)
    >>> numba.njit(lambda values: mean(values, (0, 1), (0.25, 0.75), 2, 1, 0.0))(np.array([0.0, 4.0, 0.0, 8.0]))
    7.0
    """
    if count == 1:
        return inlined(lambda values, numbers, weights, stride, i, start: start + weights[0] * values[numbers[0] * stride + i])
    half = count // 2
    some, others = weighted(half), weighted(count - half)

    # One sum after the other, so that each product is added in the same instruction.
    @inlined
    def chain(values, numbers, weights, stride, i, start):
        start = some(values, numbers[:half], weights[:half], stride, i, start)
        return others(values, numbers[half:], weights[half:], stride, i, start)

    return chain


def summer(corners: int, length: int) -> Callable:
    """A compiled function of (table, numbers, weights, stride, begin, out) that sums rows of a table over corners.

    For i below `length`, out[begin + i] = sum_c weights[c] table[numbers[c] stride + begin + i].
    """
    some = min(TOGETHER, corners)
    read, add = taken(some), weighted(some)

    @inlined
    def sum_up(table, numbers, weights, stride, begin, out):
        for c in range(Unsigned(0), Unsigned(corners), Unsigned(some)):
            number, weight = read(numbers, c, Unsigned(1)), read(weights, c, Unsigned(1))
            for i in range(Unsigned(length)):
                start = out[begin + i] if c > 0 else out.dtype.type(0.0)
                out[begin + i] = add(table, number, weight, stride, begin + i, start)

    return sum_up


def chooser(actions: int, returns: bool) -> Callable:
    """A compiled function of (after, q, own, a, mass): max_b after[b], and the same where the part of x' that is z has to repeat a.

    `after` is Q(x', .), q[own + b] is Q(z, b), and `mass` is A(z | x'). Unless `returns`, the second is nobody's concern and left out.
    """

    @inlined
    def choose(after, q, own, a, mass):
        best = after[0]
        for b in range(1, actions):
            best = max(best, after[b])
        if not returns:
            return best, best
        elsewhere = after[0] - mass * q[own]
        for b in range(1, actions):
            elsewhere = max(elsewhere, after[b] - mass * q[own + Unsigned(b)])
        return best, elsewhere + mass * q[own + a]

    return choose


def corner_finder(grid: Grid) -> Callable[[tuple, np.ndarray, np.ndarray], None]:
    """A compiled function of x that fills in the numbers of the 2^d grid points around it, and the weight of each.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> place, weight = np.empty(2, np.int64), np.empty(2)
    >>> corner_finder(Grid((uniform(0.0, 1.0, 3),)))((0.125,), place, weight)
    >>> place.tolist(), weight.tolist()
    ([0, 1], [0.75, 0.25])
    """
    find = compile_function(cell)
    axis_data = [axis.data() for axis in grid.axes]
    # Parallel loops take arrays and no tuples of them.
    knots, lengths = padded([data.knots for data in axis_data]), np.array([len(data.knots) for data in axis_data])
    inverse_steps, periods = np.array([data.inverse_step for data in axis_data]), np.array([data.period for data in axis_data])
    sizes, strides = np.array(grid.shape), np.array(grid.strides)

    @numba.njit(error_model="numpy", fastmath={"contract"})
    def corners_of(x, place, weight):
        place[0], weight[0], count, i = 0, 1.0, 1, 0
        for coordinate in literal_unroll(x):
            index, part = find(1.0 * coordinate, AxisData(knots[i, : lengths[i]], inverse_steps[i], periods[i]))
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

    It is `axes.cell` where points lie unevenly. Where they lie evenly it looks up no points, so that loops over many x run near by near;
    the fraction is then right but for rounding, and not to the bit at the points themselves.

    Examples
    --------
    >>> from actiongap.planning.grid import periodic
    >>> find = side_finder(periodic(0.0, 1.0, 4))
    >>> numba.njit(lambda x: find(x))(0.875)
    (3, 0, 0.5)
    """
    data, size = axis.data(), axis.size
    first, cells, inverse_step, turns = float(data.knots[0]), len(data.knots) - 1, data.inverse_step, axis.period is not None
    search, within = compile_function(cell), compile_function(clip)
    knots, _, period = data

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
        return search(x, AxisData(knots, inverse_step, period))

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
    """A compiled function of (x, point, weight, desk) that finds the corners of many cells near by near.

    Everything is flat, *lanes* next to each other: corner c of lane l is point[c lanes + l], what it weighs weight[c lanes + l].

    Parameters
    ----------
    axes
        For each axis how far apart its neighbors are numbered, and which coordinate of x it takes: x[coordinate lanes + l]. The lower
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


class Room(NamedTuple):
    """What a thread needs to look up one point after another."""

    place: Any
    weight: Any
    rest_place: Any
    rest_weight: Any
    values: Any
    """The values of all actions at the point looked up last."""


class Lookup(NamedTuple):
    """Compiled functions for one grid and any tables, (points, actions)."""

    room: Callable
    """Of a table: a `Room`; for use inside other compiled functions."""
    best: Callable
    """Of a table, the coordinates of a point, (d,), and a room: the first of the best actions there; for use inside others too."""
    values: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """Of a table and points in rows, (n, d): the values of all actions, (n, actions)."""


@lru_cache(maxsize=16)
def lookup(grid: Grid) -> Lookup:
    """How values are looked up on a grid, kept for the next call with the same.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> q = np.array([[0.0, 1.0], [4.0, 1.0]])
    >>> lookup(Grid((uniform(0.0, 1.0, 2),))).values(q, np.array([[0.0], [0.25], [0.5]])).tolist()
    [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]
    """
    dimensions, half = len(grid.axes), len(grid.axes) // 2
    rest = Grid(grid.axes[half:])
    few, many, size = 2**half, 2 ** (dimensions - half), rest.size
    find_rest, find_first = corner_finder(rest), corner_finder(Grid(grid.axes[:half])) if half else _nowhere_else

    @numba.njit(error_model="numpy")
    def room(q):
        places, weights = (np.empty(few, np.int64), np.empty(many, np.int64)), (np.empty(few, q.dtype), np.empty(many, q.dtype))
        return Room(places[0], weights[0], places[1], weights[1], np.empty(q.shape[1], q.dtype))

    @numba.njit(error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
    def gather(q, place, weight, rest_place, rest_weight, values):
        values[:] = 0.0
        for c in range(few):
            for k in range(0, many, 2):
                # Two at a time, so that sums are not written and read again after each.
                one, other = q[place[c] * size + rest_place[k]], q[place[c] * size + rest_place[k + 1]]
                first, second = weight[c] * rest_weight[k], weight[c] * rest_weight[k + 1]
                for b in range(values.size):
                    values[b] += first * one[b] + second * other[b]

    @numba.njit(error_model="numpy")
    def best(q, x, room):
        coordinates = to_fixed_tuple(x, dimensions)  # pyright: ignore[reportCallIssue]
        find_first(coordinates[:half], room.place, room.weight)
        find_rest(coordinates[half:], room.rest_place, room.rest_weight)
        gather(q, room.place, room.weight, room.rest_place, room.rest_weight, room.values)
        found = 0
        for b in range(1, room.values.size):
            if room.values[b] > room.values[found]:
                found = b
        return found

    @numba.njit(error_model="numpy")
    def values(q, points):
        out, own = np.empty((len(points), q.shape[1]), q.dtype), room(q)
        for i in range(len(points)):
            best(q, points[i], own)
            out[i] = own.values
        return out

    return Lookup(room, best, values)


@numba.njit
def _nowhere_else(x, place, weight):
    """The first half of a single coordinate is a grid of one point."""
    place[0], weight[0] = 0, 1.0
