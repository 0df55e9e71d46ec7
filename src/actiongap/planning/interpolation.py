"""Interpolation and averaging: a value at x is a weighted mean of the values at some grid points.

The weights A(z | x) are nonnegative and sum to one, so an average of values is never larger than the largest of them. They are stored in
sparse form, as the numbers of K grid points and the weight of each: `Weights`. Three schemes choose them on a grid of d axes. All are
one-hot at the grid points, to the last bit:

- `multilinear`: the 2^d corners of the cell. The weight of a corner is a product over the axes of f or 1 - f, where f is the fraction of
  the way along the axis;
- `simplex`: the cell is divided into d! simplices, one for each order of the fractions. The d + 1 corners of the simplex that contains x
  get its barycentric coordinates. The interpolant is continuous, linear on each simplex, and much cheaper where d is large;
- `nearest_neighbor`: the nearest point.

Multilinear and simplex weights reproduce every function that is linear in the coordinates, except in the last cell of a periodic axis.
For scattered points, an `averager` weights the nearest ones by their distance.

A query x is a tuple with one array (or number) per axis; the arrays broadcast together. All schemes but averagers run on NumPy, JAX and
PyTorch, under `jit` and `vmap` too. Weights hold K numbers per query: split 10^8 queries into blocks, as `interpolated_rows` does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from actiongap.maths import namespace, where
from actiongap.planning.grid import Grid, cell, neighbors

MAX_CORNERS = 1_000_000
"""Maximum number of corners in a block of queries."""
MAX_SINGLE_QUERIES = 8
"""Up to this number, queries are faster one by one in Python floats than together in arrays."""


class Weights(NamedTuple):
    """A(z | x) for queries x of shape (...): K points z per query, and their weights.

    Examples
    --------
    >>> halfway = Weights(index=np.array([2, 4]), weight=np.array([0.5, 0.5]))
    >>> float(halfway.of(np.array([0.0, 1.0, 10.0, 0.0, 20.0])))
    15.0
    """

    index: Any  # pyright: ignore[reportIncompatibleMethodOverride]
    """Numbers of points, (..., K); a point may occur repeatedly."""
    weight: Any
    """Weights, (..., K): nonnegative, with sum one; NaN where x is NaN."""

    def of(self, values: Any) -> Any:
        """The mean sum_z A(z | x) values[z], for values of shape (size,) or (size, A): one or A numbers per query.

        Examples
        --------
        >>> halfway = Weights(index=np.array([[0, 1]]), weight=np.array([[0.5, 0.5]]))
        >>> halfway.of(np.array([[0.0, 1.0, 2.0], [4.0, 3.0, 2.0]])).tolist()
        [[2.0, 2.0, 2.0]]
        """
        # One corner at a time: all at once would need K times the memory of the result.
        shape = (*self.weight.shape[:-1], *[1] * (values.ndim - 1))
        corners = range(self.weight.shape[-1])
        return sum(namespace(values).reshape(self.weight[..., k], shape) * values[self.index[..., k], ...] for k in corners)

    def mass(self, z: Any) -> Any:
        """A(z | x), the weight of point z; 0 where z is not among the K points of the query. z broadcasts against the queries.

        Examples
        --------
        >>> halfway = Weights(index=np.array([2, 4]), weight=np.array([0.5, 0.5]))
        >>> halfway.mass(np.array([1, 2, 3])).tolist()
        [0.0, 0.5, 0.0]
        """
        xp = namespace(self.weight)
        return xp.sum(where(self.index == xp.asarray(z)[..., None], self.weight, 0.0), axis=-1)


def multilinear(grid: Grid, x: tuple[Any, ...]) -> Weights:
    """Weights of multilinear interpolation: for each of 2^d corners the product over the axes of f or 1 - f.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> square = Grid((uniform(0.0, 1.0, 2), uniform(0.0, 1.0, 2)))
    >>> multilinear(square, (0.25, 0.5)).weight.tolist()
    [0.375, 0.375, 0.125, 0.125]
    """
    lower, upper, fraction = (_stacked(numbers) for numbers in zip(*neighbors(grid, x), strict=True))
    xp = namespace(fraction)
    indices, shares = xp.stack([lower, upper], axis=1), xp.stack([1.0 - fraction, fraction], axis=1)
    index, weight = indices[0, ...], shares[0, ...]
    for axis in range(1, len(grid.axes)):
        corners = (2 * index.shape[0], *index.shape[1:])
        index = xp.reshape(index[:, None, ...] + indices[axis, None, ...], corners)
        weight = xp.reshape(weight[:, None, ...] * shares[axis, None, ...], corners)
    return Weights(xp.moveaxis(index, 0, -1), xp.moveaxis(weight, 0, -1))


def _stacked(arrays: tuple[Any, ...]) -> Any:
    # The first axis is that of corners or axes: each is contiguous in memory, as `Weights.of` reads it.
    xp = namespace(*arrays)
    return xp.stack(xp.broadcast_arrays(*arrays), axis=0)


def interpolated_rows(grid: Grid, table: np.ndarray, points: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """The multilinear means sum_z A(z | x) table[z], for a table (size, A) and points in rows, (n, d): one row per point, (n, A).

    Sums are in float64, and each is rounded once to the type of the table. A point gets the same numbers, to the last bit, alone and in
    any batch. With `start`, (n,), several tables are stacked, and that of a point begins at this row. NumPy only.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> interpolated_rows(Grid((uniform(0.0, 1.0, 2),)), np.array([[0.0, 1.0], [4.0, 1.0]]), np.array([[0.25], [0.5]])).tolist()
    [[1.0, 1.0], [2.0, 1.0]]
    """
    rows = np.empty((len(points), table.shape[1]), table.dtype)
    if len(points) <= MAX_SINGLE_QUERIES:
        for i, x in enumerate(points.tolist()):
            index, weight = _corners_of_point(grid, x)
            corners = table[index] if start is None else table[start[i] + index]
            # `accumulate` adds in order, as `Weights.of` does. Adding zero to the sum turns -0.0 into 0.0, as there.
            rows[i] = np.add.accumulate(np.array(weight)[:, None] * corners)[-1] + 0.0
        return rows
    block = max(MAX_SINGLE_QUERIES, MAX_CORNERS // 2 ** len(grid.axes))
    for first in range(0, len(points), block):
        some = slice(first, first + block)
        weights = multilinear(grid, tuple(points[some].T))
        if start is not None:
            weights = Weights(weights.index + start[some, None], weights.weight)
        rows[some] = weights.of(table)
    return rows


def _corners_of_point(grid: Grid, x: list[float]) -> tuple[list[int], list[float]]:
    """Return the weights of `multilinear` for one point in Python floats: the same operations in the same order."""
    index, weight = [0], [1.0]
    for axis, stride, coordinate in zip(grid.axes, grid.strides, x, strict=True):
        lower, fraction = cell(coordinate, axis.floats)
        # Only on a periodic axis, the point after the last one is the first.
        offsets, shares = (lower * stride, (lower + 1) % axis.size * stride), (1.0 - fraction, fraction)
        index = [number + offset for number in index for offset in offsets]
        weight = [product * share for product in weight for share in shares]
    return index, weight


def simplex(grid: Grid, x: tuple[Any, ...]) -> Weights:
    """Weights of linear interpolation on Kuhn simplices: 1 - f1, f1 - f2, ..., fd, for sorted fractions f1 >= ... >= fd.

    The first corner is the lowest of the cell; each next one is a step up along the axis with the next largest fraction.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> square = Grid((uniform(0.0, 1.0, 2), uniform(0.0, 1.0, 2)))
    >>> there = simplex(square, (0.25, 0.5))
    >>> there.index.tolist(), there.weight.tolist()
    ([0, 1, 3], [0.5, 0.25, 0.25])
    """
    lower, upper, fraction = (_stacked(numbers) for numbers in zip(*neighbors(grid, x), strict=True))
    xp = namespace(fraction)
    order = xp.argsort(-fraction, axis=0, stable=True)
    fraction, step = xp.take_along_axis(fraction, order, axis=0), xp.take_along_axis(upper - lower, order, axis=0)
    start = xp.sum(lower, axis=0, keepdims=True)
    index = xp.concat([start, start + xp.cumulative_sum(step, axis=0)], axis=0)
    weight = xp.concat([1.0 - fraction[:1, ...], fraction[:-1, ...] - fraction[1:, ...], fraction[-1:, ...]], axis=0)
    return Weights(xp.moveaxis(index, 0, -1), xp.moveaxis(weight, 0, -1))


def nearest_neighbor(grid: Grid, x: tuple[Any, ...]) -> Weights:
    """Weight 1 on the grid point nearest to x along every axis: K = 1.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> nearest_neighbor(Grid((uniform(0.0, 1.0, 11),)), (0.28,)).index.tolist()
    [3]
    """
    # Adds zero, or NaN where x is NaN.
    zero = 0.0 * reduce(operator.add, (near.fraction for near in neighbors(grid, x)))
    return Weights(grid.nearest(x)[..., None], (1.0 + zero)[..., None])


def averager(points: Any, neighbors: int, bandwidth: float, kernel: str = "gaussian") -> Callable[[tuple[Any, ...]], Weights]:
    """A function of x that weights the nearest points by a kernel of their distance r: exp(-r^2 / 2 h^2), or 1 - r / h if "triangular".

    If no point lies within the bandwidth h of a triangular kernel, the nearest point gets weight 1. NumPy only.

    Parameters
    ----------
    points
        The points in rows, (n, d); scale all coordinates alike.
    neighbors
        K, the number of nearest points to average.
    bandwidth
        The bandwidth h of the kernel.
    kernel
        "gaussian" or "triangular".

    Examples
    --------
    >>> average = averager([[0.0], [1.0], [3.0]], neighbors=2, bandwidth=2.0, kernel="triangular")
    >>> average((np.array([0.5, 1.0]),)).weight.tolist()
    [[0.5, 0.5], [0.6666666666666666, 0.3333333333333333]]
    """
    points = np.array(points, dtype=np.float64)
    if points.ndim != 2 or points.size == 0 or not np.isfinite(points).all():
        raise ValueError(f"points have the shape {points.shape}: give finite numbers of the shape (n, d), one point per row")
    if not 1 <= neighbors <= len(points):
        raise ValueError(f"neighbors is {neighbors!r}: give a number from 1 to {len(points)}, the number of points")
    if not 0 < bandwidth < np.inf:
        raise ValueError(f"bandwidth is {bandwidth!r}: give a positive number")
    if kernel not in _KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}: choose from {', '.join(_KERNELS)}")
    # SciPy's trees are slow to import, and only averagers use them.
    from scipy.spatial import KDTree

    tree = KDTree(points)

    def average(x: tuple[Any, ...]) -> Weights:
        if not isinstance(x, (tuple, list)) or len(x) != points.shape[1]:
            raise ValueError(f"x must be a tuple of {points.shape[1]} arrays, one per coordinate: for points in rows, try tuple(points.T)")
        queries = np.stack(np.broadcast_arrays(*x), axis=-1).astype(np.float64)
        # The tree accepts finite numbers only.
        finite = np.isfinite(queries).all(axis=-1, keepdims=True)
        found = tree.query(np.where(finite, queries, 0.0), k=neighbors)
        distance, index = (np.reshape(numbers, (*queries.shape[:-1], neighbors)) for numbers in found)
        weight = _KERNELS[kernel](distance / bandwidth)
        return Weights(index, np.where(finite, weight / weight.sum(axis=-1, keepdims=True), np.nan))

    return average


def _gaussian(u: np.ndarray) -> np.ndarray:
    # Relative to the nearest point, whose weight then never underflows to zero.
    return np.exp(-0.5 * (u - u[..., :1]) * (u + u[..., :1]))


def _triangular(u: np.ndarray) -> np.ndarray:
    weight = np.maximum(1.0 - u, 0.0)
    weight[..., 0] = np.where(weight[..., 0] > 0, weight[..., 0], 1.0)
    return weight


_KERNELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"gaussian": _gaussian, "triangular": _triangular}
