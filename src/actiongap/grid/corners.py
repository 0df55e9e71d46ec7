"""The corners of the cell that a point falls in, found inside compiled loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from numba import literal_unroll

from actiongap.compiled import compile_function
from actiongap.grid.axes import Grid, Ruler, cell


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
