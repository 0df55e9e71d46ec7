"""Interpolated values of all actions at a point, and the best of them, inside compiled loops.

The weights of the corners of a cell are products, so they are found for the first half of the coordinates and for the second: 8 and 8
instead of 64 on the bicycle. Sums are of the table's precision.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.np.unsafe.ndarray import to_fixed_tuple

from actiongap.grid.cpu.corners import corner_finder
from actiongap.grid.points import Grid


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
    >>> from actiongap.grid.axes import uniform
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
