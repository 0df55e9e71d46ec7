"""Interpolation and averaging: a value at x is a weighted mean of the values at some grid points.

The weights A(z | x) are never negative and sum to one, which is what makes an average of values no larger than the largest of them.
They are kept as what they are, a few numbers of grid points and the weight of each: `Weights`. Three ways to choose them on a grid of d
axes, all one-hot at the grid points, to the bit:

- `multilinear`: the 2^d corners of the cell, each with the product over the axes of f or 1 - f, where f is the fraction of the way along;
- `simplex`: the cell is cut into d! simplices, one for each order of the fractions, and the d + 1 corners of the one that holds x get
  its barycentric coordinates. It is linear on each simplex, continuous, and far cheaper where d is large;
- `nearest_neighbour`: the one point that is nearest.

Multilinear and simplex weights reproduce every function that is linear in the coordinates, away from the seam of an axis with a period.
Where points lie scattered, an `averager` weighs the nearest ones by their distance.

A query x is a tuple with one array (or number) for each axis; the arrays broadcast together. All but averagers run on NumPy, JAX and
PyTorch, under `jit` and `vmap` too. Weights take K numbers a query: send 10^8 queries through in blocks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import KDTree

from actiongap.maths import namespace, where
from actiongap.planning.grid import Grid, sides


class Weights(NamedTuple):
    """A(z | x) for a shape (...) of queries x: K points z for each, and the weight of each.

    Examples
    --------
    >>> halfway = Weights(index=np.array([2, 4]), weight=np.array([0.5, 0.5]))
    >>> float(halfway.of(np.array([0.0, 1.0, 10.0, 0.0, 20.0])))
    15.0
    """

    index: Any  # pyright: ignore[reportIncompatibleMethodOverride]
    """Numbers of points, (..., K); a point may occur more than once."""
    weight: Any
    """What each weighs, (..., K): not negative, summing to one; not a number where x is none."""

    def of(self, values: Any) -> Any:
        """The mean sum_z A(z | x) values[z], for values of shape (size,) or (size, A): one or A numbers for each query.

        Examples
        --------
        >>> halfway = Weights(index=np.array([[0, 1]]), weight=np.array([[0.5, 0.5]]))
        >>> halfway.of(np.array([[0.0, 1.0, 2.0], [4.0, 3.0, 2.0]])).tolist()
        [[2.0, 2.0, 2.0]]
        """
        # Corner by corner: all at once would hold K times the result.
        shape = (*self.weight.shape[:-1], *[1] * (values.ndim - 1))
        corners = range(self.weight.shape[-1])
        return sum(namespace(values).reshape(self.weight[..., k], shape) * values[self.index[..., k], ...] for k in corners)

    def mass(self, z: Any) -> Any:
        """A(z | x), the weight of point z: nothing where it is none of those that x looks at. z broadcasts against the queries.

        Examples
        --------
        >>> halfway = Weights(index=np.array([2, 4]), weight=np.array([0.5, 0.5]))
        >>> halfway.mass(np.array([1, 2, 3])).tolist()
        [0.0, 0.5, 0.0]
        """
        xp = namespace(self.weight)
        return xp.sum(where(self.index == xp.asarray(z)[..., None], self.weight, 0.0), axis=-1)


def multilinear(grid: Grid, x: tuple) -> Weights:
    """The weights of multilinear interpolation: for each of 2^d corners the product over the axes of f or 1 - f.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> square = Grid((uniform(0.0, 1.0, 2), uniform(0.0, 1.0, 2)))
    >>> multilinear(square, (0.25, 0.5)).weight.tolist()
    [0.375, 0.375, 0.125, 0.125]
    """
    lower, upper, fraction = (_together(numbers) for numbers in zip(*sides(grid, x), strict=True))
    xp = namespace(fraction)
    indices, shares = xp.stack([lower, upper], axis=1), xp.stack([1.0 - fraction, fraction], axis=1)
    index, weight = indices[0, ...], shares[0, ...]
    for axis in range(1, len(grid.axes)):
        corners = (2 * index.shape[0], *index.shape[1:])
        index = xp.reshape(index[:, None, ...] + indices[axis, None, ...], corners)
        weight = xp.reshape(weight[:, None, ...] * shares[axis, None, ...], corners)
    return Weights(xp.moveaxis(index, 0, -1), xp.moveaxis(weight, 0, -1))


def _together(arrays: tuple) -> Any:
    # What belongs to one corner or axis lies together in memory, as `Weights.of` reads it.
    xp = namespace(*arrays)
    return xp.stack(xp.broadcast_arrays(*arrays), axis=0)


def simplex(grid: Grid, x: tuple) -> Weights:
    """The weights of linear interpolation on Kuhn's simplices: 1 - f1, f1 - f2, ..., fd, for the fractions f1 >= ... >= fd in order.

    From the lower corner of the cell on, each next corner goes up along the axis with the next smaller fraction.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> square = Grid((uniform(0.0, 1.0, 2), uniform(0.0, 1.0, 2)))
    >>> there = simplex(square, (0.25, 0.5))
    >>> there.index.tolist(), there.weight.tolist()
    ([0, 1, 3], [0.5, 0.25, 0.25])
    """
    lower, upper, fraction = (_together(numbers) for numbers in zip(*sides(grid, x), strict=True))
    xp = namespace(fraction)
    order = xp.argsort(-fraction, axis=0, stable=True)
    fraction, step = xp.take_along_axis(fraction, order, axis=0), xp.take_along_axis(upper - lower, order, axis=0)
    start = xp.sum(lower, axis=0, keepdims=True)
    index = xp.concat([start, start + xp.cumulative_sum(step, axis=0)], axis=0)
    weight = xp.concat([1.0 - fraction[:1, ...], fraction[:-1, ...] - fraction[1:, ...], fraction[-1:, ...]], axis=0)
    return Weights(xp.moveaxis(index, 0, -1), xp.moveaxis(weight, 0, -1))


def nearest_neighbour(grid: Grid, x: tuple) -> Weights:
    """All the weight on the grid point nearest to x, coordinate by coordinate: K = 1.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> nearest_neighbour(Grid((uniform(0.0, 1.0, 11),)), (0.28,)).index.tolist()
    [3]
    """
    # Nothing is added, or no number where x is none.
    nothing = 0.0 * reduce(operator.add, (side.fraction for side in sides(grid, x)))
    return Weights(grid.nearest(x)[..., None], (1.0 + nothing)[..., None])


def averager(points: Any, neighbours: int, bandwidth: float, kernel: str = "gaussian") -> Callable[[tuple], Weights]:
    """A function of x that weighs the nearest points by a kernel of their distance r: exp(-r^2 / 2 h^2), or 1 - r / h if "triangular".

    Where no point lies within the bandwidth h of a triangular kernel, the nearest has all the weight. NumPy only.

    Parameters
    ----------
    points
        The points, one a row, (n, d); give all coordinates one scale.
    neighbours
        K, how many of the points nearest to x are weighed.
    bandwidth
        The h of the kernel.
    kernel
        "gaussian" or "triangular".

    Examples
    --------
    >>> average = averager([[0.0], [1.0], [3.0]], neighbours=2, bandwidth=2.0, kernel="triangular")
    >>> average((np.array([0.5, 1.0]),)).weight.tolist()
    [[0.5, 0.5], [0.6666666666666666, 0.3333333333333333]]
    """
    points = np.array(points, dtype=np.float64)
    if points.ndim != 2 or points.size == 0 or not np.isfinite(points).all():
        raise ValueError(f"points have the shape {points.shape}: give finite numbers of the shape (n, d), one point a row")
    if not 1 <= neighbours <= len(points):
        raise ValueError(f"neighbours is {neighbours!r}: there are {len(points)} points, weigh 1 of them or more")
    if not 0 < bandwidth < np.inf:
        raise ValueError(f"bandwidth is {bandwidth!r}: it must be a positive number")
    if kernel not in _KERNELS:
        raise ValueError(f"there is no kernel {kernel!r}: choose from {', '.join(_KERNELS)}")
    tree = KDTree(points)

    def weigh(x: tuple) -> Weights:
        if not isinstance(x, (tuple, list)) or len(x) != points.shape[1]:
            raise ValueError(
                f"x must be a tuple of {points.shape[1]} arrays, one for each coordinate: for points in rows, try tuple(points.T)"
            )
        queries = np.stack(np.broadcast_arrays(*x), axis=-1).astype(np.float64)
        # The tree takes finite numbers only.
        known = np.isfinite(queries).all(axis=-1, keepdims=True)
        found = tree.query(np.where(known, queries, 0.0), k=neighbours)
        distance, index = (np.reshape(numbers, (*queries.shape[:-1], neighbours)) for numbers in found)
        weight = _KERNELS[kernel](distance / bandwidth)
        return Weights(index, np.where(known, weight / weight.sum(axis=-1, keepdims=True), np.nan))

    return weigh


def _gaussian(u: np.ndarray) -> np.ndarray:
    # Relative to the nearest, whose weight then never rounds to zero.
    return np.exp(-0.5 * (u - u[..., :1]) * (u + u[..., :1]))


def _triangular(u: np.ndarray) -> np.ndarray:
    weight = np.maximum(1.0 - u, 0.0)
    weight[..., 0] = np.where(weight[..., 0] > 0, weight[..., 0], 1.0)
    return weight


_KERNELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"gaussian": _gaussian, "triangular": _triangular}
