"""Grids: the product of some axes, and where a point lies among those of a grid.

Grid points are numbered row by row, the last axis running fastest, and never listed unless asked for: coordinates are a tuple with one
array for each axis, and those arrays need only broadcast together. A point x lies in a cell, whose corners are all choices of the lower or
the upper point along each axis; the weight of a corner is a product, and its number a sum, with one term for each axis.
"""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from actiongap.grid.axes import Axis, beside, cells, floating
from actiongap.maths import where


@dataclass(frozen=True)
class Grid:
    """All points whose coordinates lie on the axes, numbered row by row: the last coordinate changes first.

    Examples
    --------
    >>> from actiongap.grid.axes import uniform
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
        >>> from actiongap.grid.axes import uniform
        >>> [x.shape for x in Grid((uniform(0.0, 1.0, 2), uniform(0.0, 20.0, 3))).coordinates()]
        [(2, 1), (1, 3)]
        """
        return np.ix_(*(np.array(axis.points) for axis in self.axes))

    def points(self, start: int = 0, stop: int | None = None) -> tuple[np.ndarray, ...]:
        """The coordinates of the points numbered from `start` to before `stop`: one array for each axis.

        Examples
        --------
        >>> from actiongap.grid.axes import uniform
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
        >>> from actiongap.grid.axes import uniform
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
    >>> from actiongap.grid.axes import uniform
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
