"""Cells, corners and sums for compiled loops (Numba).

- Sums over a few corners are generated for a fixed number of corners, written out term by term. Loops of unknown length are slow. Small
  temporary arrays prevent vectorization, so corners and weights are tuples, which are kept in registers.
- The corners of the cell of a point: `corner_finder` for one point, `locator` for many points side by side.
- `lookup`: interpolated values of all actions at a point, and the greedy action. The weights of corners are products, so they are computed
  for the first half of the coordinates and for the second half: 8 and 8 on the bicycle instead of 64. Sums have the table's precision.
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
"""Compiler options of kernels: sums may be reordered, and NaN stays NaN."""
inlined: Any = numba.njit(**FAST, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # pyright: ignore[reportCallIssue]
"""Compiles functions that only kernels call, and inlines them."""
CORNERS_PER_SUM = 8
"""Corners per generated sum: more would not fit in registers."""
Unsigned = np.uint64
"""Type of indices in kernels: signed indices are checked for negative values at every access."""


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

    # Sequential sums, so that each product and sum is one fused instruction.
    @inlined
    def chain(values, numbers, weights, stride, i, start):
        start = some(values, numbers[:half], weights[:half], stride, i, start)
        return others(values, numbers[half:], weights[half:], stride, i, start)

    return chain


def summer(corners: int, length: int) -> Callable:
    """A compiled function of (table, numbers, weights, stride, begin, out) that sums rows of a table over corners.

    For i below `length`, out[begin + i] = sum_c weights[c] table[numbers[c] stride + begin + i].
    """
    some = min(CORNERS_PER_SUM, corners)
    read, add = taken(some), weighted(some)

    @inlined
    def sum_up(table, numbers, weights, stride, begin, out):
        for c in range(Unsigned(0), Unsigned(corners), Unsigned(some)):
            number, weight = read(numbers, c, Unsigned(1)), read(weights, c, Unsigned(1))
            for i in range(Unsigned(length)):
                start = out[begin + i] if c > 0 else out.dtype.type(0.0)
                out[begin + i] = add(table, number, weight, stride, begin + i, start)

    return sum_up


def chooser(actions: int, reads_again: bool) -> Callable:
    """A compiled function of (after, q, own, a, mass): the maxima max_b Q(x', b) and max_b [Q(x', b) - A(z | x') (Q(z, b) - Q(z, a))].

    `after` is Q(x', .), q[own + b] is Q(z, b), and `mass` is A(z | x'). Unless `reads_again`, the second maximum is not computed and the
    first is returned twice.
    """

    @inlined
    def choose(after, q, own, a, mass):
        best = after[0]
        for b in range(1, actions):
            best = max(best, after[b])
        if not reads_again:
            return best, best
        elsewhere = after[0] - mass * q[own]
        for b in range(1, actions):
            elsewhere = max(elsewhere, after[b] - mass * q[own + Unsigned(b)])
        return best, elsewhere + mass * q[own + a]

    return choose


def corner_finder(grid: Grid) -> Callable[[tuple, np.ndarray, np.ndarray], None]:
    """A compiled function of x that computes the numbers and weights of the 2^d corners around it.

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
    # Parallel loops accept arrays, not tuples of arrays.
    knots, lengths = padded([data.knots for data in axis_data]), np.array([len(data.knots) for data in axis_data])
    inverse_steps, periods = np.array([data.inverse_step for data in axis_data]), np.array([data.period for data in axis_data])
    sizes, strides = np.array(grid.shape), np.array(grid.strides)

    @numba.njit(error_model="numpy", fastmath={"contract"})
    def corners_of(x, place, weight):
        place[0], weight[0], count, i = 0, 1.0, 1, 0
        for coordinate in literal_unroll(x):
            index, part = find(1.0 * coordinate, AxisData(knots[i, : lengths[i]], inverse_steps[i], periods[i]))
            fraction, above = weight.dtype.type(part), index + 1
            if above == sizes[i]:  # on a periodic axis
                above = 0
            for c in range(count):
                place[count + c], weight[count + c] = place[c] + above * strides[i], weight[c] * fraction
                place[c], weight[c] = place[c] + index * strides[i], weight[c] * (weight.dtype.type(1.0) - fraction)
            count, i = 2 * count, i + 1

    return corners_of


def padded(rows: Sequence[Any]) -> np.ndarray:
    """Rows of different lengths as one array; shorter rows are repeated to fill it.

    Examples
    --------
    >>> padded([(1.0, 2.0, 3.0), (4.0, 5.0)]).tolist()
    [[1.0, 2.0, 3.0], [4.0, 5.0, 4.0]]
    """
    return np.array([np.resize(row, max(map(len, rows))) for row in rows])


def neighbor_finder(axis: Axis) -> Callable:
    """A compiled function of a number x: the indices of the lower and upper points, and the fraction.

    On unevenly spaced points it is `grid.cell`. On evenly spaced points it reads no points, so loops over many x are vectorized; then
    the fraction is correct up to rounding, but not exact at the grid points.

    Examples
    --------
    >>> from actiongap.planning.grid import periodic
    >>> find = neighbor_finder(periodic(0.0, 1.0, 4))
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
    def neighbors_of(x):
        index, fraction = find(x)
        return index, 0 if index + 1 == size else index + 1, fraction

    return neighbors_of


class LocatorBuffers(NamedTuple):
    """Work arrays of a `locator`, (lanes,)."""

    below: np.ndarray
    above: np.ndarray
    fraction: np.ndarray


def locator(axes: Sequence[tuple[Axis, int, int]], lanes: int) -> Callable:
    """A compiled function of (x, point, weight, buffers) that finds the corners of many cells side by side.

    Arrays are flat, and points are SIMD *lanes*: corner c of lane l is point[c * lanes + l], with the weight weight[c * lanes + l].

    Parameters
    ----------
    axes
        For each axis its stride and its coordinate in x, which is x[coordinate * lanes + l]. The first half of the corners are the lower
        points of the last axis.
    lanes
        Number of points.
    """

    def along(n: int, others: Callable) -> Callable:
        axis, stride, coordinate = axes[n]
        find, begin, corners = neighbor_finder(axis), coordinate * lanes, 2**n

        @inlined
        def locate(x, point, weight, buffers):
            for lane in range(lanes):
                below, above, fraction = find(x[begin + lane])
                buffers.below[lane], buffers.above[lane], buffers.fraction[lane] = below * stride, above * stride, fraction
            for c in range(corners):
                low, high = c * lanes, (corners + c) * lanes
                for lane in range(lanes):
                    share = weight[low + lane] * buffers.fraction[lane]
                    weight[low + lane], weight[high + lane] = weight[low + lane] - share, share
                    point[low + lane], point[high + lane] = point[low + lane] + buffers.below[lane], point[low + lane] + buffers.above[lane]
            others(x, point, weight, buffers)

        return locate

    further = inlined(lambda x, point, weight, buffers: None)
    for n in reversed(range(len(axes))):
        further = along(n, further)

    @inlined
    def locate(x, point, weight, buffers):
        point[:lanes], weight[:lanes] = 0, 1.0
        further(x, point, weight, buffers)

    return locate


class LookupBuffers(NamedTuple):
    """Work arrays of one thread for lookups."""

    place: Any
    weight: Any
    rest_place: Any
    rest_weight: Any
    values: Any
    """Values of all actions at the last point."""


class Lookup(NamedTuple):
    """Compiled functions for one grid and any tables, (points, actions)."""

    make_buffers: Callable
    """Function of a table: new `LookupBuffers`. For use in compiled functions."""
    best: Callable
    """Function of a table, a point (d,) and buffers: the first greedy action. For use in compiled functions."""
    values: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """Function of a table and points (n, d): values of all actions, (n, actions)."""


@lru_cache(maxsize=16)
def lookup(grid: Grid) -> Lookup:
    """Lookup functions for a grid (cached).

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
    find_rest, find_first = corner_finder(rest), corner_finder(Grid(grid.axes[:half])) if half else _single_point

    @numba.njit(error_model="numpy")
    def make_buffers(q):
        places, weights = (np.empty(few, np.int64), np.empty(many, np.int64)), (np.empty(few, q.dtype), np.empty(many, q.dtype))
        return LookupBuffers(places[0], weights[0], places[1], weights[1], np.empty(q.shape[1], q.dtype))

    @numba.njit(error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
    def gather(q, place, weight, rest_place, rest_weight, values):
        values[:] = 0.0
        for c in range(few):
            for k in range(0, many, 2):
                # Two corners at a time halve the loads and stores of the sums.
                one, other = q[place[c] * size + rest_place[k]], q[place[c] * size + rest_place[k + 1]]
                first, second = weight[c] * rest_weight[k], weight[c] * rest_weight[k + 1]
                for b in range(values.size):
                    values[b] += first * one[b] + second * other[b]

    @numba.njit(error_model="numpy")
    def best(q, x, buffers):
        coordinates = to_fixed_tuple(x, dimensions)  # pyright: ignore[reportCallIssue]
        find_first(coordinates[:half], buffers.place, buffers.weight)
        find_rest(coordinates[half:], buffers.rest_place, buffers.rest_weight)
        gather(q, buffers.place, buffers.weight, buffers.rest_place, buffers.rest_weight, buffers.values)
        found = 0
        for b in range(1, buffers.values.size):
            if buffers.values[b] > buffers.values[found]:
                found = b
        return found

    @numba.njit(error_model="numpy")
    def values(q, points):
        out, own = np.empty((len(points), q.shape[1]), q.dtype), make_buffers(q)
        for i in range(len(points)):
            best(q, points[i], own)
            out[i] = own.values
        return out

    return Lookup(make_buffers, best, values)


@numba.njit
def _single_point(x, place, weight):
    """Find the corner of a grid without coordinates: one point of weight 1."""
    place[0], weight[0] = 0, 1.0
