"""Compiled queries against the weights of multilinear interpolation."""

import math

import numpy as np
import pytest

from actiongap.planning._numba_queries import interpolate
from actiongap.planning.grid import Axis, Grid, periodic, uniform
from actiongap.planning.interpolation import multilinear

GRIDS = {
    "one axis": Grid((uniform(-1.0, 1.0, 5),)),
    "uneven and round": Grid((Axis((0.0, 0.1, 1.0)), periodic(-math.pi, math.pi, 5), uniform(0.0, 2.0, 3))),
    "six axes": Grid(tuple(uniform(0.0, 1.0, n) for n in (2, 3, 2, 4, 3, 2))),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize(("dtype", "near"), [(np.float64, 1e-13), (np.float32, 1e-5)])
def test_queries_are_those_of_the_weights(grid, dtype, near):
    rng = np.random.default_rng(0)
    values = rng.standard_normal(grid.size).astype(dtype)
    x = tuple(rng.uniform(-4.0, 4.0, (3, 67)) for _ in grid.axes)  # not a whole number of blocks
    found = interpolate(grid, values, x)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, multilinear(grid, x).of(values.astype(np.float64)), rtol=0, atol=near)


def test_queries_broadcast_and_reach_the_points_themselves():
    grid = GRIDS["six axes"]
    values = np.random.default_rng(1).standard_normal(grid.size)
    np.testing.assert_allclose(interpolate(grid, values, grid.coordinates()).reshape(-1), values, rtol=0, atol=1e-13)


def test_what_does_not_fit_the_grid_is_refused():
    grid = GRIDS["one axis"]
    with pytest.raises(ValueError, match=r"try tuple\(points.T\)"):
        interpolate(grid, np.zeros(5), (np.zeros(2), np.zeros(2)))
    with pytest.raises(ValueError, match="4 values for 5 grid points"):
        interpolate(grid, np.zeros(4), (np.zeros(2),))
