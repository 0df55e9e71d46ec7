"""Grids: axes, cells, and the neighbors of a coordinate.

An *axis* is an increasing sequence of points. A coordinate x lies in the cell between points i and i + 1, at a fraction from 0 to 1 of the
way. Coordinates beyond the ends of an axis are clipped to the nearest end. A *periodic* axis has no ends: x and x + period are the same
place, and one more cell joins the last point to the first.

Interpolation is exact at grid points only if the fraction there is exactly 0 or 1. Rounding in (x - low) / step violates this. So `cell`
first guesses the cell (by division, or by bisection where points are unevenly spaced), corrects the guess by comparing x with the points,
and then measures the fraction from the lower point. The code is written once: it runs on the arrays of any library and, for single numbers,
in Numba kernels.

A *grid* is the product of its axes. Its points are numbered in row-major (C) order and listed only on request. Coordinates are a tuple
with one array per axis; the arrays broadcast together. A point x lies in a cell with 2^d *corners*: all choices of the lower or the upper
point along each axis. The weight of a corner is a product and its number is a sum, with one term per axis.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_torch_array

from actiongap.maths import clip, minimum, namespace, where


@dataclass(frozen=True)
class Axis:
    """The points of one coordinate, and its period if it is periodic. Validated, compared by value, and hashable.

    Examples
    --------
    >>> Axis([0, 1, 10]).points
    (0.0, 1.0, 10.0)
    """

    points: Sequence[float] | np.ndarray
    """At least two increasing numbers, within one period if there is one. Stored as a tuple of floats."""
    period: float | None = None
    """The period; None if the axis is not periodic."""

    def __post_init__(self) -> None:
        try:
            points = tuple(float(point) for point in self.points)
            period = None if self.period is None else float(self.period)
        except (TypeError, ValueError):
            raise ValueError("an axis takes a sequence of numbers, and a number as its period: try Axis([0.0, 0.5, 2.0])") from None
        if len(points) < 2:
            raise ValueError(f"an axis has {len(points)} points: give at least two")
        for i, point in enumerate(points):
            if not math.isfinite(point):
                raise ValueError(f"point {i} of an axis is {point!r}: give finite points")
        for i, (point, following) in enumerate(pairwise(points)):
            if not point < following:
                raise ValueError(f"points {i} and {i + 1} of an axis are {point!r} and {following!r}: give increasing points")
        if not math.isfinite(points[-1] - points[0]):
            raise ValueError(f"the points of an axis range from {points[0]!r} to {points[-1]!r}: give points at a finite distance")
        if period is not None and not points[-1] < points[0] + period < math.inf:
            raise ValueError(
                f"the period is {period!r} and the points range from {points[0]!r} to {points[-1]!r}: give points within one period"
            )
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "period", period)

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.points)

    @property
    def is_uniform(self) -> bool:
        """Whether all cells have the same width, up to rounding."""
        return self.data().inverse_step > 0

    def data(self, dtype: Any = np.float64) -> AxisData:
        """The axis as plain numbers for `cell`, in float64 or float32.

        Examples
        --------
        >>> periodic(0.0, 1.0, 2).data()
        AxisData(knots=array([0. , 0.5, 1. ]), inverse_step=2.0, period=1.0)
        """
        dtype = np.dtype(dtype)
        if dtype not in self._data:
            self._data[dtype] = self._make_data(dtype)
        found = self._data[dtype]
        return found._replace(knots=found.knots.copy())

    @cached_property
    def floats(self) -> AxisData:
        """The axis in Python floats, with which `cell` is fastest for a single number."""
        data = self.data()
        return AxisData(tuple(data.knots.tolist()), float(data.inverse_step), float(data.period))

    @cached_property
    def _data(self) -> dict[np.dtype, AxisData]:
        return {}

    def _make_data(self, dtype: np.dtype) -> AxisData:
        seam = () if self.period is None else (self.points[0] + self.period,)
        with np.errstate(over="ignore"):
            knots = np.array((*self.points, *seam)).astype(dtype)
        if not (np.isfinite(knots).all() and (knots[:-1] < knots[1:]).all()):
            raise ValueError(f"some points of an axis are equal or out of range in {knots.dtype}: use float64, or points that differ in it")
        step = (float(knots[-1]) - float(knots[0])) / (knots.size - 1)
        deviation = np.abs(knots - (float(knots[0]) + step * np.arange(knots.size))).max()
        # Rounding errors only: far less than the half cell that `cell` can correct.
        even = deviation < 1e-3 * step and step > 1.0 / float(np.finfo(knots.dtype).max)
        return AxisData(knots, 1.0 / step if even else 0.0, self.period or 0.0)


class AxisData(NamedTuple):
    """An axis in plain numbers, as `cell` reads it, in Numba kernels too."""

    knots: Any
    """The points; a periodic axis repeats its first point one period later. Each cell lies between two successive knots."""
    inverse_step: float
    """Cells per unit of the coordinate; 0 if cells have different widths."""
    period: float
    """The period; 0 if there is none."""


def uniform(low: float, high: float, n: int) -> Axis:
    """An axis of n evenly spaced points from low to high, inclusive.

    Examples
    --------
    >>> uniform(-1.0, 1.0, 5).points
    (-1.0, -0.5, 0.0, 0.5, 1.0)
    """
    n = _count(n)
    return Axis((low, *_between(low, high, n - 1), high))


def periodic(low: float, high: float, n: int) -> Axis:
    """A periodic axis of n evenly spaced points from low, with period high - low.

    Examples
    --------
    >>> axis = periodic(0.0, 360.0, 4)
    >>> axis.points, axis.period
    ((0.0, 90.0, 180.0, 270.0), 360.0)
    """
    n = _count(n)
    return Axis((low, *_between(low, high, n)), high - low)


def _count(n: int) -> int:
    try:
        count = operator.index(n)
    except TypeError:
        raise ValueError(f"the number of points is {n!r}: give an integer") from None
    if count < 2:
        raise ValueError(f"the number of points is {count}: give at least two")
    return count


def _between(low: float, high: float, parts: int) -> list[float]:
    # Weighting both ends keeps an axis around zero symmetric, and zero exactly zero.
    return [(low * (parts - i) + high * i) / parts for i in range(1, parts)]


def _cell_search(truncate: Callable[[Any], Any]) -> Callable[[Any, AxisData], tuple[Any, Any]]:
    """`cell`, given a function that truncates nonnegative numbers to integers."""

    def cell(x: Any, data: AxisData) -> tuple[Any, Any]:
        """The cell of a number x: the index of its lower knot, and the fraction of the way to the upper knot.

        Kernels compile it with `actiongap._numba.compile_function`; `cells` is the version for arrays.

        Examples
        --------
        >>> index, fraction = cell(2.5, uniform(0.0, 10.0, 6).data())
        >>> int(index), float(fraction)
        (1, 0.25)
        """
        knots = data.knots
        first, last, cells = knots[0], knots[-1], len(knots) - 1
        if data.period > 0:
            # Numbers within the period stay unchanged, to the last bit.
            x = where((x >= first) & (x < last), x, first + (x - first) % data.period)
        x = clip(x, first, last)
        if data.inverse_step > 0:
            guess = (x - first) * data.inverse_step
            # Minus half a cell, the guess is never too high, so one comparison corrects it.
            index = truncate(where(guess > 0.5, guess - 0.5, 0.0))
            index = where(x >= knots[index + 1], minimum(index + 1, cells - 1), index)
        else:
            index = where(x >= first, 0, 0)
            stride = 1
            while 2 * stride < cells:
                stride *= 2
            while stride > 0:
                further = minimum(index + stride, cells - 1)
                index = where(x >= knots[further], further, index)
                stride //= 2
        lower, upper = knots[index], knots[index + 1]
        # At the upper knot the quotient is 1, but a compiler may multiply by the reciprocal instead, which gives almost 1.
        return index, where(x >= upper, 1.0, minimum((x - lower) / (upper - lower), 1.0))

    return cell


def _truncate(x: Any) -> Any:
    xp = namespace(x)
    return xp.astype(xp.asarray(x), int)


cell: Callable[[Any, AxisData], tuple[Any, Any]] = _cell_search(int)
locate: Callable[[Any, AxisData], tuple[Any, Any]] = _cell_search(_truncate)
"""`cell` for arrays x, with knots of the same array library. `cells` calls it, and so do kernels with their own kind of knots."""


def cells(axis: Axis, x: Any) -> tuple[Any, Any]:
    """The cell of each x: the index of its lower point, and the fraction of the way to the upper one, in x's library and precision.

    The upper point is the next one; in the last cell of a periodic axis it is the first point. The fraction is NaN where x is NaN, and
    where x is infinite on a periodic axis.

    Examples
    --------
    >>> index, fraction = cells(uniform(0.0, 10.0, 6), np.array([-3.0, 2.5, 4.0, 99.0]))
    >>> index.tolist(), fraction.tolist()
    ([0, 1, 2, 4], [0.0, 0.25, 0.0, 1.0])
    """
    x = as_float(x)
    data = axis.data(str(x.dtype).removeprefix("torch."))
    index, fraction = locate(x, data._replace(knots=asarray_like(x, data.knots)))
    return namespace(x).asarray(index), asarray_like(x, fraction)


def asarray_like(x: Any, values: Any) -> Any:
    """Values as an array with the library, precision and device of x.

    Examples
    --------
    >>> asarray_like(np.zeros(1, np.float32), [1, 2]).dtype
    dtype('float32')
    """
    options = {"device": x.device} if is_torch_array(x) else {}
    return namespace(x).asarray(values, dtype=x.dtype, **options)


def as_float(x: Any) -> Any:
    """Coordinates x as floats; arrays keep their library and precision.

    Examples
    --------
    >>> as_float(np.arange(2)).dtype, as_float([0.5]).dtype
    (dtype('float64'), dtype('float64'))
    """
    x = x if hasattr(x, "dtype") else np.asarray(x, dtype=np.float64)
    kind = str(x.dtype).removeprefix("torch.")
    if kind in ("float32", "float64"):
        return x
    if not kind.startswith(("int", "uint", "bool")):
        raise ValueError(f"coordinates have the type {kind}: give float32 or float64")
    return x * 1.0


@dataclass(frozen=True)
class Grid:
    """The product of some axes. Points are numbered in row-major (C) order.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> grid = Grid((uniform(0.0, 1.0, 2), uniform(0.0, 20.0, 3)))
    >>> grid.shape, grid.size, grid.strides
    ((2, 3), 6, (3, 1))
    """

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        axes = (self.axes,) if isinstance(self.axes, Axis) else tuple(self.axes)
        if not axes or not all(isinstance(axis, Axis) for axis in axes):
            raise ValueError("a grid needs at least one axis: try Grid((uniform(0.0, 1.0, 10),))")
        object.__setattr__(self, "axes", axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points per axis."""
        return tuple(axis.size for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of points of the grid."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Difference between the numbers of adjacent points along each axis."""
        return tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.axes)))

    def coordinates(self) -> tuple[np.ndarray, ...]:
        """The points of each axis, with shapes that broadcast to the shape of the grid.

        Examples
        --------
        >>> from actiongap.planning.grid import uniform
        >>> [x.shape for x in Grid((uniform(0.0, 1.0, 2), uniform(0.0, 20.0, 3))).coordinates()]
        [(2, 1), (1, 3)]
        """
        return np.ix_(*(np.array(axis.points) for axis in self.axes))

    def points(self, start: int = 0, stop: int | None = None) -> tuple[np.ndarray, ...]:
        """The coordinates of points `start` to `stop` - 1: one array per axis.

        Examples
        --------
        >>> from actiongap.planning.grid import uniform
        >>> [x.tolist() for x in Grid((uniform(0.0, 1.0, 2), uniform(0.0, 20.0, 3))).points(2, 5)]
        [[0.0, 1.0, 1.0], [20.0, 0.0, 10.0]]
        """
        stop = self.size if stop is None else stop
        if not 0 <= start <= stop <= self.size:
            raise ValueError(f"points {start} to {stop} are not within a grid of {self.size} points: give 0 <= start <= stop <= size")
        number = np.arange(start, stop)
        return tuple(np.array(axis.points)[number // stride % axis.size] for axis, stride in zip(self.axes, self.strides, strict=True))

    def nearest(self, x: tuple[Any, ...]) -> Any:
        """The number of the grid point nearest to x along every axis; ties go to the lower point.

        Examples
        --------
        >>> from actiongap.planning.grid import uniform
        >>> Grid((uniform(0.0, 1.0, 2), uniform(0.0, 20.0, 3))).nearest((0.9, np.array([0.0, 14.0, 15.5]))).tolist()
        [3, 4, 5]
        """
        return reduce(operator.add, (where(near.fraction > 0.5, near.upper, near.lower) for near in neighbors(self, x)))


class Neighbors(NamedTuple):
    """The two points around x along one axis, as offsets: the number of a corner is the sum of one `lower` or `upper` per axis."""

    lower: Any
    """Offset of the point below x."""
    upper: Any
    """Offset of the point above x."""
    fraction: Any
    """Fraction of the way from the lower to the upper point."""


def neighbors(grid: Grid, x: tuple[Any, ...]) -> tuple[Neighbors, ...]:
    """The neighbors of x along each axis of the grid; x is a tuple with one array or number per axis, which broadcast together.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> along = neighbors(Grid((uniform(0.0, 1.0, 2), uniform(0.0, 20.0, 3))), (0.25, 15.0))
    >>> [tuple(map(float, near)) for near in along]
    [(0.0, 3.0, 0.25), (1.0, 2.0, 0.5)]
    """
    if not isinstance(x, (tuple, list)) or len(x) != len(grid.axes):
        raise ValueError(f"x must be a tuple of {len(grid.axes)} arrays, one per axis: for points in rows, try tuple(points.T)")
    arrays = [as_float(coordinate) for coordinate in x if _is_array(coordinate)]
    # Plain numbers take the library and the precision of the arrays.
    x = tuple(asarray_like(arrays[0], coordinate) if arrays and not _is_array(coordinate) else coordinate for coordinate in x)
    return tuple(map(_axis_neighbors, grid.axes, grid.strides, x))


def _is_array(x: Any) -> bool:
    return hasattr(x, "dtype") and not isinstance(x, np.generic)


def _axis_neighbors(axis: Axis, stride: int, x: Any) -> Neighbors:
    index, fraction = cells(axis, x)
    following = index + 1
    if axis.period is not None:
        following = where(following == axis.size, 0, following)
    return Neighbors(index * stride, following * stride, fraction)


def neighbor_weight(offset: Any, near: Neighbors) -> Any:
    """The weight, along one axis, of the point with this offset.

    Examples
    --------
    >>> neighbor_weight(3, Neighbors(lower=2, upper=3, fraction=0.25))
    0.25
    """
    return where(near.lower == offset, 1.0 - near.fraction, 0.0) + where(near.upper == offset, near.fraction, 0.0)


def corners(dimensions: int) -> list[tuple[int, ...]]:
    """The corners of a cell: along each axis 0 is the lower point and 1 the upper.

    Examples
    --------
    >>> corners(2)
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    return list(itertools.product((0, 1), repeat=dimensions))


def corner_weight(fractions: Any, bits: tuple[int, ...]) -> Any:
    """The weight of a corner, given the fraction along each axis.

    Examples
    --------
    >>> corner_weight((0.25, 0.5), (1, 0))
    0.125
    """
    return reduce(operator.mul, (fraction if bit else 1.0 - fraction for fraction, bit in zip(fractions, bits, strict=True)))
