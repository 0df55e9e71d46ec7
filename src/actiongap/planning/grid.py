"""Axes: where their points lie, and in which cell of an axis a coordinate falls.

An axis is an increasing row of points; a coordinate x lies in the cell between two of them, i and i + 1, at a fraction from 0 to 1 of the
way. Beyond the ends of an axis, x is moved to the nearest end. An axis with a period has no ends: x counts as x plus any number of
periods, and one more cell joins the last point to the first.

Interpolation may be trusted at the points themselves only if the fraction there is 0 or 1 to the last bit, which (x - low) / step is not.
So the cell is found first, by that guess or by bisection, and settled by comparing x with the points; the fraction is then measured from
the point below. Written once, it runs on arrays of any library and, for single numbers, inside Numba kernels: see `cell`.

Grids: the product of some axes, and where a point lies among those of a grid.

Grid points are numbered row by row, the last axis running fastest, and never listed unless asked for: coordinates are a tuple with one
array for each axis, and those arrays need only broadcast together. A point x lies in a cell, whose corners are all choices of the lower or
the upper point along each axis; the weight of a corner is a product, and its number a sum, with one term for each axis.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_torch_array

from actiongap.maths import clip, minimum, namespace, where


@dataclass(frozen=True)
class Axis:
    """The points of one coordinate, and its period if it goes round. Checked, equal by value, and hashable.

    Examples
    --------
    >>> Axis([0, 1, 10]).points
    (0.0, 1.0, 10.0)
    """

    points: Sequence[float] | np.ndarray
    """At least two, increasing; on an axis with a period, all within one period. Kept as a tuple of floats."""
    period: float | None = None
    """After how much the coordinate comes round to the same place; None if it never does."""

    def __post_init__(self) -> None:
        try:
            points = tuple(float(point) for point in self.points)
            period = None if self.period is None else float(self.period)
        except (TypeError, ValueError):
            raise ValueError("an axis takes a row of numbers, and a number as its period: try Axis([0.0, 0.5, 2.0])") from None
        if len(points) < 2:
            raise ValueError(f"an axis has {len(points)} of the two points that it needs: add more")
        for i, point in enumerate(points):
            if not math.isfinite(point):
                raise ValueError(f"point {i} of an axis is {point!r}: the points must be finite")
        for i, (point, following) in enumerate(pairwise(points)):
            if not point < following:
                raise ValueError(f"points {i} and {i + 1} of an axis are {point!r} and {following!r}: the points must increase")
        if not math.isfinite(points[-1] - points[0]):
            raise ValueError(f"the points of an axis go from {points[0]!r} to {points[-1]!r}: the distance must be finite")
        if period is not None and not points[-1] < points[0] + period < math.inf:
            raise ValueError(
                f"the period is {period!r}, the points go from {points[0]!r} to {points[-1]!r}: they must lie within one period"
            )
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "period", period)

    @property
    def size(self) -> int:
        """How many points there are."""
        return len(self.points)

    @property
    def is_uniform(self) -> bool:
        """Whether all cells are of one width, but for rounding."""
        return self.ruler().inverse_step > 0

    def ruler(self, dtype: Any = np.float64) -> Ruler:
        """The axis as numbers for `cell`, in float64 or float32.

        Examples
        --------
        >>> periodic(0.0, 1.0, 2).ruler()
        Ruler(knots=array([0. , 0.5, 1. ]), inverse_step=2.0, period=1.0)
        """
        seam = () if self.period is None else (self.points[0] + self.period,)
        with np.errstate(over="ignore"):
            knots = np.array((*self.points, *seam)).astype(dtype)
        if not (np.isfinite(knots).all() and (knots[:-1] < knots[1:]).all()):
            raise ValueError(
                f"some points of an axis fall together or out of range in {knots.dtype}: use float64, or points that it tells apart"
            )
        step = (float(knots[-1]) - float(knots[0])) / (knots.size - 1)
        astray = np.abs(knots - (float(knots[0]) + step * np.arange(knots.size))).max()
        # Rounding and no more, far less than the half cell by which `cell` may err.
        even = astray < 1e-3 * step and step > 1.0 / float(np.finfo(knots.dtype).max)
        return Ruler(knots, 1.0 / step if even else 0.0, self.period or 0.0)


class Ruler(NamedTuple):
    """An axis in plain numbers, as `cell` reads it, also inside Numba kernels."""

    knots: Any
    """The points, and on an axis with a period the first again, one period later: each cell lies between a knot and the next."""
    inverse_step: float
    """Cells per unit of the coordinate; 0 where they are not of one width."""
    period: float
    """The period; 0 where there is none."""


def uniform(low: float, high: float, n: int) -> Axis:
    """The axis of n points from low to high, both included, evenly spaced.

    Examples
    --------
    >>> uniform(-1.0, 1.0, 5).points
    (-1.0, -0.5, 0.0, 0.5, 1.0)
    """
    n = _count(n)
    return Axis((low, *_between(low, high, n - 1), high))


def periodic(low: float, high: float, n: int) -> Axis:
    """The axis of n points from low on, evenly spaced, where high is low again.

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
        raise ValueError(f"the number of points is {n!r}: it must be a whole number") from None
    if count < 2:
        raise ValueError(f"the number of points is {count}: an axis needs at least two")
    return count


def _between(low: float, high: float, parts: int) -> list[float]:
    # Weighing both ends keeps an axis about zero symmetric, and zero itself zero.
    return [(low * (parts - i) + high * i) / parts for i in range(1, parts)]


def _finder(whole: Callable[[Any], Any]) -> Callable[[Any, Ruler], tuple[Any, Any]]:
    """The search for a cell, given how a number that is not negative loses what is behind its point."""

    def cell(x: Any, ruler: Ruler) -> tuple[Any, Any]:
        """The cell that a number x falls in: the index of its lower knot, and the fraction of the way to the upper one.

        Kernels call what `actiongap._numba.compile_function` makes of it; for arrays there is `cells`.

        Examples
        --------
        >>> index, fraction = cell(2.5, uniform(0.0, 10.0, 6).ruler())
        >>> int(index), float(fraction)
        (1, 0.25)
        """
        knots = ruler.knots
        first, last, cells = knots[0], knots[-1], len(knots) - 1
        if ruler.period > 0:
            # What is inside stays as it is, to the bit.
            x = where((x >= first) & (x < last), x, first + (x - first) % ruler.period)
        x = clip(x, first, last)
        if ruler.inverse_step > 0:
            guess = (x - first) * ruler.inverse_step
            # Half a cell too low is never too high, so that one comparison settles it.
            index = whole(where(guess > 0.5, guess - 0.5, 0.0))
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
        # At the upper knot the quotient is 1, but a compiler may divide by multiplying with the inverse, which is near 1.
        return index, where(x >= upper, 1.0, minimum((x - lower) / (upper - lower), 1.0))

    return cell


def _whole(x: Any) -> Any:
    xp = namespace(x)
    return xp.astype(xp.asarray(x), int)


cell = _finder(int)
locate = _finder(_whole)
"""`cell` for arrays x, with the knots of the ruler in their library: what `cells` does, and kernels that read knots in their own way."""


def cells(axis: Axis, x: Any) -> tuple[Any, Any]:
    """The cell of each x: the index of its lower point, and the fraction of the way to the upper one, in the library and precision of x.

    The upper point is the next one, or the first where an axis with a period comes round. Not a number gives no number as fraction,
    and so does infinity on such an axis.

    Examples
    --------
    >>> index, fraction = cells(uniform(0.0, 10.0, 6), np.array([-3.0, 2.5, 4.0, 99.0]))
    >>> index.tolist(), fraction.tolist()
    ([0, 1, 2, 4], [0.0, 0.25, 0.0, 1.0])
    """
    x = floating(x)
    ruler = axis.ruler(str(x.dtype).removeprefix("torch."))
    index, fraction = locate(x, ruler._replace(knots=beside(x, ruler.knots)))
    return namespace(x).asarray(index), beside(x, fraction)


def beside(x: Any, values: Any) -> Any:
    """The values as an array of the same library, precision and device as x.

    Examples
    --------
    >>> beside(np.zeros(1, np.float32), [1, 2]).dtype
    dtype('float32')
    """
    options = {"device": x.device} if is_torch_array(x) else {}
    return namespace(x).asarray(values, dtype=x.dtype, **options)


def floating(x: Any) -> Any:
    """Coordinates x as floats: arrays stay in their library and precision.

    Examples
    --------
    >>> floating(np.arange(2)).dtype, floating([0.5]).dtype
    (dtype('float64'), dtype('float64'))
    """
    x = x if hasattr(x, "dtype") else np.asarray(x, dtype=np.float64)
    kind = str(x.dtype).removeprefix("torch.")
    if kind in ("float32", "float64"):
        return x
    if not kind.startswith(("int", "uint", "bool")):
        raise ValueError(f"coordinates are of type {kind}: give float32 or float64")
    return x * 1.0


@dataclass(frozen=True)
class Grid:
    """All points whose coordinates lie on the axes, numbered row by row: the last coordinate changes first.

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
            raise ValueError("a grid is made of one axis or more: try Grid((uniform(0.0, 1.0, 10),))")
        object.__setattr__(self, "axes", axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many points each axis has."""
        return tuple(axis.size for axis in self.axes)

    @property
    def size(self) -> int:
        """How many points there are in all."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart neighbours along each axis are numbered."""
        return tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.axes)))

    def coordinates(self) -> tuple[np.ndarray, ...]:
        """The points of each axis, shaped so that together they broadcast to the shape of the grid.

        Examples
        --------
        >>> from actiongap.planning.grid import uniform
        >>> [x.shape for x in Grid((uniform(0.0, 1.0, 2), uniform(0.0, 20.0, 3))).coordinates()]
        [(2, 1), (1, 3)]
        """
        return np.ix_(*(np.array(axis.points) for axis in self.axes))

    def points(self, start: int = 0, stop: int | None = None) -> tuple[np.ndarray, ...]:
        """The coordinates of the points numbered from `start` to before `stop`: one array for each axis.

        Examples
        --------
        >>> from actiongap.planning.grid import uniform
        >>> [x.tolist() for x in Grid((uniform(0.0, 1.0, 2), uniform(0.0, 20.0, 3))).points(2, 5)]
        [[0.0, 1.0, 1.0], [20.0, 0.0, 10.0]]
        """
        stop = self.size if stop is None else stop
        if not 0 <= start <= stop <= self.size:
            raise ValueError(f"points {start} to {stop} were asked of a grid of {self.size}: ask for a part of it")
        number = np.arange(start, stop)
        return tuple(np.array(axis.points)[number // stride % axis.size] for axis, stride in zip(self.axes, self.strides, strict=True))

    def nearest(self, x: tuple) -> Any:
        """The number of the point whose every coordinate is nearest to that of x, the lower of two as near.

        Examples
        --------
        >>> from actiongap.planning.grid import uniform
        >>> Grid((uniform(0.0, 1.0, 2), uniform(0.0, 20.0, 3))).nearest((0.9, np.array([0.0, 14.0, 15.5]))).tolist()
        [3, 4, 5]
        """
        return reduce(operator.add, (where(side.fraction > 0.5, side.upper, side.lower) for side in sides(self, x)))


class Side(NamedTuple):
    """Where x lies along one axis of a grid: the numbers of grid points are sums of one `lower` or `upper` for each axis."""

    lower: Any
    """What the point below adds to the number of a grid point."""
    upper: Any
    """What the point above adds to it."""
    fraction: Any
    """How far x is on the way from below to above."""


def sides(grid: Grid, x: tuple) -> tuple[Side, ...]:
    """Where x lies along each axis of the grid; x is a tuple with one array or number for each, which broadcast together.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> along = sides(Grid((uniform(0.0, 1.0, 2), uniform(0.0, 20.0, 3))), (0.25, 15.0))
    >>> [tuple(map(float, side)) for side in along]
    [(0.0, 3.0, 0.25), (1.0, 2.0, 0.5)]
    """
    if not isinstance(x, (tuple, list)) or len(x) != len(grid.axes):
        raise ValueError(f"x must be a tuple of {len(grid.axes)} arrays, one for each axis: for points in rows, try tuple(points.T)")
    arrays = [floating(coordinate) for coordinate in x if _is_array(coordinate)]
    # A plain number takes the library and the precision of the arrays beside it.
    x = tuple(beside(arrays[0], coordinate) if arrays and not _is_array(coordinate) else coordinate for coordinate in x)
    return tuple(map(_side, grid.axes, grid.strides, x))


def _is_array(x: Any) -> bool:
    return hasattr(x, "dtype") and not isinstance(x, np.generic)


def _side(axis: Axis, stride: int, x: Any) -> Side:
    index, fraction = cells(axis, x)
    following = index + 1
    if axis.period is not None:
        following = where(following == axis.size, 0, following)
    return Side(index * stride, following * stride, fraction)


def weight_of(place: Any, side: Side) -> Any:
    """What the point that adds `place` to the number of a grid point weighs along one axis.

    Examples
    --------
    >>> weight_of(3, Side(lower=2, upper=3, fraction=0.25))
    0.25
    """
    return where(side.lower == place, 1.0 - side.fraction, 0.0) + where(side.upper == place, side.fraction, 0.0)


def corners(dimensions: int) -> list[tuple[int, ...]]:
    """The corners of a cell: 0 for below and 1 for above along each axis.

    Examples
    --------
    >>> corners(2)
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    return list(itertools.product((0, 1), repeat=dimensions))


def corner_weight(fractions: Any, bits: tuple[int, ...]) -> Any:
    """The weight of a corner, given how far x is along each axis.

    Examples
    --------
    >>> corner_weight((0.25, 0.5), (1, 0))
    0.125
    """
    return reduce(operator.mul, (part if bit else 1.0 - part for part, bit in zip(fractions, bits, strict=True)))
