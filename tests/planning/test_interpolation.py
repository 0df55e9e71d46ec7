import itertools
import math
import re
from fractions import Fraction

import jax
import jax.numpy as jnp
import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import LinearNDInterpolator, RegularGridInterpolator

from actiongap._numba import compile_function
from actiongap.planning import interpolation
from actiongap.planning.grid import Axis, Grid, cell, cells, neighbors, periodic, uniform
from actiongap.planning.interpolation import Weights, averager, interpolated_rows, multilinear, nearest_neighbor, simplex

AXES = {
    "two points": uniform(0.0, 1.0, 2),
    "tilt": uniform(-math.pi / 15, math.pi / 15, 10),
    "distance": uniform(10.0, 1200.0, 8),
    "fine": uniform(-0.7, 1.3, 997),
    "far from zero": uniform(1e6, 1e6 + 40.0, 41),
    "heading": periodic(-math.pi, math.pi, 10),
    "heading, 2 points": periodic(-math.pi, math.pi, 2),
    "turns": periodic(0.1, 0.8, 7),
    "uneven": Axis(np.cumsum([-3.0, 0.1, 1e-3, 2.0, 0.3, 5.0, 0.7])),
    "powers": Axis([2.0**k for k in range(-8, 9)]),
    "uneven, periodic": Axis([0.3, 0.4, 1.7, 2.0, 4.9], period=5.3),
    "clock, 2 points": Axis([1.0, 2.0], period=12.0),
}
BOUNDED = [name for name, axis in AXES.items() if axis.period is None]
PERIODIC = [name for name, axis in AXES.items() if axis.period is not None]
LIBRARIES = {"numpy": np.asarray, "jax": jnp.asarray, "torch": torch.asarray}
SCHEMES = {"multilinear": multilinear, "simplex": simplex}
number_cell = compile_function(cell)


@numba.njit
def kernel(x, data):
    index, fraction = np.empty(x.size, np.int64), np.empty(x.size)
    for i in range(x.size):
        index[i], fraction[i] = number_cell(x[i], data)
    return index, fraction


def queries(axis: Axis, seed: int = 0) -> np.ndarray:
    """Edge cases: the points, their adjacent floats, and coordinates inside, outside and far away."""
    rng = np.random.default_rng(seed)
    knots = axis.data().knots
    span = knots[-1] - knots[0]
    random = rng.uniform(knots[0] - 2 * span, knots[-1] + 2 * span, 500)
    near = [np.nextafter(knots, np.inf), np.nextafter(knots, -np.inf), knots, (knots[1:] + knots[:-1]) / 2]
    return np.concatenate([random, *near, [0.0, -0.0, 1e-300, -1e-300, 1e9, -1e9, 1e300, -1e300]])


def mixed_axes(d: int, seed: int, with_periods: bool = False) -> tuple[Axis, ...]:
    rng = np.random.default_rng([d, seed])
    makers = [
        lambda n: uniform(-1.0 - rng.random(), 1.0 + rng.random(), n),
        lambda n: Axis(np.cumsum(0.1 + rng.random(n))),
        lambda n: periodic(-math.pi, math.pi, n),
        lambda n: Axis(np.cumsum(0.1 + rng.random(n)), period=n + 2.0),
    ]
    return tuple(makers[(i + seed) % (4 if with_periods else 2)](int(rng.integers(2, 6))) for i in range(d))


def inside(axes: tuple[Axis, ...], count: int, seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng([len(axes), seed, 7])
    return tuple(rng.uniform(axis.data().knots[0], axis.data().knots[-1], count) for axis in axes)


def random_values(grid: Grid, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=grid.size)


# ---- axes


def test_uniform_axes_keep_their_ends_and_their_symmetry():
    for n in range(2, 60):
        points = np.array(uniform(-math.pi / 15, math.pi / 15, n).points)
        assert points[0] == -math.pi / 15
        assert points[-1] == math.pi / 15
        assert (points == -points[::-1]).all()
        np.testing.assert_allclose(points, np.linspace(-math.pi / 15, math.pi / 15, n), atol=1e-16)


def test_periodic_axes_exclude_the_upper_end():
    axis = periodic(-math.pi, math.pi, 8)
    np.testing.assert_allclose(axis.points, np.linspace(-math.pi, math.pi, 9)[:-1], atol=1e-15)
    assert axis.period == 2 * math.pi
    assert axis.size == 8


def test_axes_and_grids_are_equal_by_value():
    assert Axis([0, 1, 2]) == Axis(np.array([0.0, 1.0, 2.0])) == uniform(0, 2, 3)
    assert len({Axis([0, 1]), Axis((0.0, 1.0)), Axis([0, 1], period=3)}) == 2
    assert Grid([uniform(0, 1, 2)]) == Grid((Axis([0, 1]),)) == Grid(uniform(0, 1, 2))  # pyright: ignore[reportArgumentType]
    assert hash(Grid((Axis([0, 1]),))) == hash(Grid((uniform(0, 1, 2),)))


@pytest.mark.parametrize("name", AXES)
def test_is_uniform(name):
    assert AXES[name].is_uniform == (name not in ("uneven", "powers", "uneven, periodic", "clock, 2 points"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Axis([1.0]), "an axis has 1 points: give at least two"),
        (lambda: Axis([]), "an axis has 0 points"),
        (lambda: Axis([0.0, math.nan, 1.0]), "point 1 of an axis is nan: give finite points"),
        (lambda: Axis([0.0, math.inf]), "point 1 of an axis is inf"),
        (lambda: Axis([0.0, 2.0, 1.0]), "points 1 and 2 of an axis are 2.0 and 1.0: give increasing points"),
        (lambda: Axis([0.0, 0.0]), "give increasing points"),
        (lambda: Axis([-1.7e308, 1.7e308]), "at a finite distance"),
        (lambda: Axis("ab"), "an axis takes a sequence of numbers"),  # pyright: ignore[reportArgumentType]
        (lambda: Axis(3.0), "an axis takes a sequence of numbers"),  # pyright: ignore[reportArgumentType]
        (lambda: Axis(np.zeros((2, 2))), "an axis takes a sequence of numbers"),  # pyright: ignore[reportArgumentType]
        (lambda: Axis([0.0, 1.0], period=1.0), "the period is 1.0 and the points range from 0.0 to 1.0: give points within one period"),
        (lambda: Axis([0.0, 1.0], period=-2.0), "within one period"),
        (lambda: Axis([0.0, 1.0], period=math.nan), "within one period"),
        (lambda: Axis([0.0, 1.0], period=math.inf), "within one period"),
        (lambda: uniform(0.0, 1.0, 1), "the number of points is 1: give at least two"),
        (lambda: uniform(0.0, 1.0, 2.5), "the number of points is 2.5: give an integer"),  # pyright: ignore[reportArgumentType]
        (lambda: uniform(1.0, 0.0, 5), "give increasing points"),
        (lambda: uniform(0.0, math.nan, 5), "give finite points"),
        (lambda: periodic(0.0, 0.0, 5), "give increasing points"),
        (lambda: periodic(0.0, 1.0, 1), "give at least two"),
        (lambda: Grid(()), "a grid needs at least one axis"),
        (lambda: Grid(((0.0, 1.0),)), "a grid needs at least one axis"),  # pyright: ignore[reportArgumentType]
        (lambda: Grid((uniform(0, 1, 4),)).points(2, 5), "points 2 to 5 are not within a grid of 4 points"),
        (lambda: cells(uniform(1e9, 1e9 + 1, 3), np.array([1e9], dtype=np.float32)), "are equal or out of range in float32"),
        (lambda: cells(uniform(0.0, 1e300, 3), np.array([1.0], dtype=np.float32)), "are equal or out of range in float32"),
        (lambda: cells(uniform(0, 1, 3), np.array([1.0], dtype=np.float16)), "coordinates have the type float16"),
        (lambda: cells(uniform(0, 1, 3), np.array([1j])), "coordinates have the type complex128"),
        (lambda: multilinear(Grid((uniform(0, 1, 3),) * 2), (0.5,)), "x must be a tuple of 2 arrays"),
        (lambda: simplex(Grid((uniform(0, 1, 3),) * 2), np.zeros((2, 5))), "x must be a tuple of 2 arrays"),  # pyright: ignore[reportArgumentType]
        (lambda: averager([0.0, 1.0], 1, 1.0), "points have the shape (2,)"),
        (lambda: averager([[0.0], [math.nan]], 1, 1.0), "finite numbers"),
        (lambda: averager(np.zeros((0, 2)), 1, 1.0), "points have the shape (0, 2)"),
        (lambda: averager([[0.0], [1.0]], 3, 1.0), "neighbors is 3: give a number from 1 to 2"),
        (lambda: averager([[0.0], [1.0]], 0, 1.0), "neighbors is 0"),
        (lambda: averager([[0.0], [1.0]], 1, 0.0), "bandwidth is 0.0: give a positive number"),
        (lambda: averager([[0.0], [1.0]], 1, math.nan), "bandwidth is nan"),
        (lambda: averager([[0.0], [1.0]], 1, 1.0, "box"), "unknown kernel 'box': choose from gaussian, triangular"),
        (lambda: averager([[0.0], [1.0]], 1, 1.0)((0.0, 0.0)), "x must be a tuple of 1 arrays"),
    ],
)
def test_bad_input_is_rejected(make, message):
    with pytest.raises(ValueError, match=re.escape(message)) as refusal:
        make()
    assert "\n" not in str(refusal.value)


# ---- cells


@pytest.mark.every(9)
@pytest.mark.parametrize("library", [*LIBRARIES, "jit"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", AXES)
def test_the_fraction_is_0_or_1_at_every_point(name, dtype, library):
    axis = AXES[name]
    with jax.enable_x64(dtype == "float64"):
        x = (LIBRARIES | {"jit": jnp.asarray})[library](np.array(axis.points).astype(dtype))
        index, fraction = jax.jit(lambda x: cells(axis, x))(x) if library == "jit" else cells(axis, x)
    assert str(fraction.dtype).endswith(dtype)
    assert set(fraction.tolist()) <= {0.0, 1.0}
    assert ((np.asarray(index) + np.asarray(fraction)) % axis.size).tolist() == list(range(axis.size))


@pytest.mark.parametrize("name", AXES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cells_contain_x_and_are_monotone(name, dtype):
    axis = AXES[name]
    knots = axis.data(dtype).knots
    around = np.concatenate([knots, np.nextafter(knots, np.inf), np.nextafter(knots, -np.inf), np.linspace(knots[0], knots[-1], 5001)])
    x = np.sort(around[(around >= knots[0]) & (around < knots[-1])].astype(dtype))
    index, fraction = cells(axis, x)
    assert index.min() >= 0
    assert index.max() <= knots.size - 2
    assert (knots[index] <= x).all()
    assert (x <= knots[index + 1]).all()
    assert fraction.min() >= 0
    assert fraction.max() <= 1
    assert (np.diff(index + fraction.astype(np.float64)) >= 0).all()


@pytest.mark.parametrize("name", AXES)
def test_numba_and_numpy_agree_to_the_bit(name):
    axis = AXES[name]
    x = np.append(queries(axis), [np.nan, *([np.inf, -np.inf] if axis.period is None else [])])
    index, fraction = cells(axis, x)
    there_index, there_fraction = kernel(x, axis.data())
    assert (index == there_index).all()
    # Adding 0.0 turns -0.0 into 0.0.
    assert (fraction + 0.0).tobytes() == (there_fraction + 0.0).tobytes()


@pytest.mark.parametrize("name", AXES)
def test_the_uncompiled_function_agrees_too(name):
    axis = AXES[name]
    x = queries(axis)[::7]
    index, fraction = cells(axis, x)
    assert [cell(float(each), axis.data()) for each in x] == list(zip(index, fraction, strict=True))


@pytest.mark.every(2)
@pytest.mark.parametrize("name", AXES)
def test_libraries_agree_with_numpy(name):
    axis = AXES[name]
    x = np.append(queries(axis), np.nan)
    index, fraction = cells(axis, x)
    last = axis.data().knots.size - 1
    with jax.enable_x64(True):
        by_jax, compiled = cells(axis, jnp.asarray(x)), jax.jit(lambda x: cells(axis, x))(x)
    for found in (by_jax, compiled, cells(axis, torch.asarray(x))):
        there_index, there_fraction = map(np.asarray, found)
        assert there_index.min() >= 0
        assert there_index.max() < last
        # Wrapping may lose a bit and move x to the other side of a point; the weights stay the same, also across the period.
        apart = abs((there_index + there_fraction) - (index + fraction))
        apart = apart if axis.period is None else np.minimum(apart, last - apart)
        assert np.isnan(apart).tolist() == np.isnan(x).tolist()
        assert np.nanmax(apart) <= 1e-14 * last * max(1.0, abs(axis.points[0]))


@pytest.mark.parametrize("name", BOUNDED)
def test_x_outside_a_bounded_axis_is_clipped(name):
    axis = AXES[name]
    x = np.append(queries(axis), [np.inf, -np.inf])
    clamped = np.clip(x, axis.points[0], axis.points[-1])
    for one, other in zip(cells(axis, x), cells(axis, clamped), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("name", AXES)
def test_nan_has_a_cell_and_a_nan_fraction(name):
    axis = AXES[name]
    for library in LIBRARIES.values():
        index, fraction = cells(axis, library(np.array([np.nan, axis.points[0]], dtype=np.float32)))
        assert 0 <= int(index[0]) < axis.size
        assert np.isnan(np.asarray(fraction)).tolist() == [True, False]


@pytest.mark.parametrize("name", PERIODIC)
def test_periodic_axes_wrap(name):
    axis = AXES[name]
    knots, period = axis.data().knots, Fraction(axis.period or 0)
    x = queries(axis)
    index, fraction = cells(axis, x)
    where = knots[index] + fraction * (knots[index + 1] - knots[index])
    for each, found in zip(x, where, strict=True):
        apart = (Fraction(float(each)) - Fraction(float(found))) % period
        # The last bit of a distant coordinate may exceed a period; at most that bit is lost.
        lost = 4 * np.spacing(max(abs(each), abs(knots[0]), abs(knots[-1])))
        assert min(apart, period - apart) <= lost


def test_periodic_axes_wrap_without_error_where_numbers_are_exact():
    axis = periodic(-4.0, 4.0, 16)
    x = np.arange(-4.0, 4.0, 1 / 64)
    index, fraction = cells(axis, x)
    for turns in (-(10**12), -1000, -3, -1, 1, 2, 77, 10**12):
        again_index, again_fraction = cells(axis, x + 8.0 * turns)
        assert (again_index == index).all()
        assert (again_fraction == fraction).all()


@pytest.mark.parametrize("x", [-1e-20, -1e-300, -5e-324, np.nextafter(0.0, -1), np.nextafter(1.0, 0), 1.0, 1 + 1e-16, 0.0, -0.0])
def test_the_upper_end_of_a_period_is_the_first_point(x):
    weights = multilinear(Grid((periodic(0.0, 1.0, 4),)), (np.array([x]),))
    assert weights.mass(0)[0] == pytest.approx(1.0, abs=1e-15)


def test_numbers_lists_and_integers_are_valid_coordinates():
    axis = uniform(0.0, 10.0, 6)
    assert tuple(map(float, cells(axis, 2.5))) == (1.0, 0.25)
    assert cells(axis, [2.5, 3])[1].tolist() == [0.25, 0.5]
    assert cells(axis, np.array([3, 4]))[1].tolist() == [0.5, 0.0]
    assert cells(axis, jnp.array([3, 4]))[1].tolist() == [0.5, 0.0]
    assert cells(axis, np.float32(2.5))[1].dtype == np.float32


@st.composite
def axes_and_numbers(draw):
    points = draw(st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=2, max_size=9, unique=True))
    period = draw(st.none() | st.floats(1.001, 3.0))
    points = sorted(points)
    axis = Axis(points, None if period is None else period * (points[-1] - points[0]) + 1e-3)
    return axis, draw(st.sampled_from(points) | st.floats(-1e7, 1e7))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(axes_and_numbers())
def test_cells_against_exact_arithmetic(drawn):
    axis, x = drawn
    knots, period = [Fraction(float(knot)) for knot in axis.data().knots], axis.period
    exact = Fraction(x)
    if period is not None and not knots[0] <= exact < knots[-1]:
        exact = knots[0] + (exact - knots[0]) % Fraction(period)
    exact = min(max(exact, knots[0]), knots[-1])
    index, fraction = map(float, cells(axis, x))
    lower, upper = knots[int(index)], knots[int(index) + 1]
    lost = 0 if period is None else Fraction(4 * float(np.spacing(max(abs(x), *(abs(float(knot)) for knot in knots)))))
    found = lower + Fraction(fraction) * (upper - lower)
    apart = abs(found - exact)
    seam = min(apart, knots[-1] - knots[0] - apart) if period is not None else apart
    assert seam <= (upper - lower) * Fraction(3e-16) + lost
    if x in axis.points:
        assert fraction in (0.0, 1.0)
    assert (int(index), fraction) == tuple(number_cell(x, axis.data()))


# ---- grids


def test_points_are_numbered_in_row_major_order():
    grid = Grid(mixed_axes(4, 1, with_periods=True))
    everywhere = np.meshgrid(*(axis.points for axis in grid.axes), indexing="ij")
    assert grid.shape == everywhere[0].shape
    assert grid.size == everywhere[0].size
    assert grid.strides == tuple(stride // 8 for stride in everywhere[0].strides)
    for points, coordinates, expected in zip(grid.points(), grid.coordinates(), everywhere, strict=True):
        assert (points == expected.ravel()).all()
        assert (np.broadcast_to(coordinates, grid.shape) == expected).all()
    blocks = [grid.points(start, min(start + 7, grid.size)) for start in range(0, grid.size, 7)]
    for i, points in enumerate(grid.points()):
        assert (np.concatenate([block[i] for block in blocks]) == points).all()


def test_huge_grids():
    grid = Grid((uniform(0.0, 1.0, 100),) * 7)
    assert grid.size == 10**14
    assert [x.tolist() for x in grid.points(grid.size - 1)] == [[1.0]] * 7
    assert int(grid.nearest((1.0,) * 7)) == grid.size - 1
    assert sum(x.size for x in grid.coordinates()) == 700
    assert multilinear(grid, (0.5,) * 7).index.shape == (128,)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("d", [1, 2, 3])
def test_nearest_against_all_distances(d, seed):
    grid = Grid(mixed_axes(d, seed, with_periods=True))
    x = tuple(np.random.default_rng(seed).uniform(-8.0, 8.0, (d, 200)))
    distance = np.zeros((200, grid.size))
    for axis, points, coordinate in zip(grid.axes, grid.points(), x, strict=True):
        coordinate = coordinate if axis.period is not None else np.clip(coordinate, axis.points[0], axis.points[-1])
        apart = abs(coordinate[:, None] - points)
        distance += apart if axis.period is None else np.minimum(apart % axis.period, axis.period - apart % axis.period)
    assert (grid.nearest(x) == distance.argmin(axis=1)).all()
    weights = nearest_neighbor(grid, x)
    assert (weights.index[:, 0] == grid.nearest(x)).all()
    assert (weights.weight == 1).all()


def test_plain_numbers_take_the_library_and_precision_of_the_arrays():
    grid = Grid((uniform(0.0, 1.0, 3), uniform(0.0, 1.0, 3)))
    for library in LIBRARIES.values():
        x = library(np.array([np.nan, 0.5], dtype=np.float32))
        first, second = neighbors(grid, (x, 0.75))
        assert type(second.fraction) is type(first.fraction)
        assert second.fraction.dtype == x.dtype
        assert float(second.fraction) == 0.5


# ---- interpolation


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5])
def test_multilinear_matches_scipy(d, seed):
    grid = Grid(mixed_axes(d, seed))
    values = np.random.default_rng(seed).normal(size=(*grid.shape, 3))
    x = tuple(np.random.default_rng(d).uniform(-3.0, 5.0, (d, 300)))
    clamped = [np.clip(each, axis.points[0], axis.points[-1]) for each, axis in zip(x, grid.axes, strict=True)]
    expected = RegularGridInterpolator([axis.points for axis in grid.axes], values)(np.stack(clamped, axis=-1))
    weights = multilinear(grid, x)
    assert weights.index.shape == weights.weight.shape == (300, 2**d)
    np.testing.assert_allclose(weights.of(values.reshape(grid.size, 3)), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(weights.of(values[..., 0].ravel()), expected[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_periodic_multilinear_matches_scipy_on_an_extended_axis(d, seed):
    grid = Grid(mixed_axes(d, seed + 2, with_periods=True))
    values = random_values(grid, seed).reshape(grid.shape)
    x, longer = inside(grid.axes, 300, seed), values
    for i, axis in enumerate(grid.axes):
        if axis.period is not None:
            longer = np.concatenate([longer, np.take(longer, [0], axis=i)], axis=i)
    expected = RegularGridInterpolator([axis.data().knots for axis in grid.axes], longer)(np.stack(x, axis=-1))
    np.testing.assert_allclose(multilinear(grid, x).of(values.ravel()), expected, rtol=0, atol=1e-12)
    round_again = tuple(each + 3 * (axis.period or 0.0) for each, axis in zip(x, grid.axes, strict=True))
    np.testing.assert_allclose(multilinear(grid, round_again).of(values.ravel()), expected, rtol=0, atol=1e-11)


def kuhn_by_brute_force(grid: Grid, values: np.ndarray, x: tuple) -> float:
    """Try every order of the axes: the simplex with nonnegative barycentric coordinates contains x."""
    d, low = len(grid.axes), [int(np.searchsorted(axis.points[1:-1], each, side="right")) for axis, each in zip(grid.axes, x, strict=True)]
    found = []
    for order in itertools.permutations(range(d)):
        corners = [low]
        for axis in order:
            corners.append([i + (k == axis) for k, i in enumerate(corners[-1])])
        places = np.array([[axis.points[i] for axis, i in zip(grid.axes, corner, strict=True)] for corner in corners])
        coordinates = np.linalg.solve(np.vstack([places.T, np.ones(d + 1)]), np.append(x, 1.0))
        if coordinates.min() >= -1e-12:
            found.append(coordinates @ [values[tuple(corner)] for corner in corners])
    assert found
    np.testing.assert_allclose(found, found[0], atol=1e-9)
    return found[0]


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5])
def test_simplex_against_every_simplex(d):
    grid = Grid(mixed_axes(d, 3))
    values = random_values(grid)
    x = inside(grid.axes, 40 if d < 5 else 8, 1)
    weights = simplex(grid, x)
    assert weights.index.shape == weights.weight.shape == (x[0].size, d + 1)
    expected = [kuhn_by_brute_force(grid, values.reshape(grid.shape), each) for each in zip(*x, strict=True)]
    np.testing.assert_allclose(weights.of(values), expected, rtol=0, atol=1e-10)


def test_simplex_matches_scipy_on_its_triangles():
    grid = Grid((uniform(0.0, 1.0, 2), uniform(0.0, 1.0, 2)))
    # The other two corners are moved out slightly, so the triangles meet along the diagonal from (0, 0) to (1, 1).
    places = np.array([[0.0, 0.0], [-1e-9, 1.0 + 1e-9], [1.0 + 1e-9, -1e-9], [1.0, 1.0]])
    values = np.array([1.0, -2.0, 5.0, 0.5])
    x = inside(grid.axes, 200, 5)
    expected = LinearNDInterpolator(places, values)(np.stack(x, axis=-1))
    np.testing.assert_allclose(simplex(grid, x).of(values), expected, atol=1e-7)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6])
def test_weights_are_distributions_over_the_grid(d, scheme):
    grid = Grid(mixed_axes(d, 2, with_periods=True))
    x = tuple(np.random.default_rng(d).uniform(-20.0, 20.0, (d, 4, 50)))
    weights = SCHEMES[scheme](grid, x)
    assert weights.weight.min() >= 0
    assert weights.index.min() >= 0
    assert weights.index.max() < grid.size
    np.testing.assert_allclose(weights.weight.sum(axis=-1), 1.0, rtol=0, atol=1e-14)
    values = random_values(grid)
    assert (abs(weights.of(values)) <= abs(values).max() * (1 + 1e-14)).all()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6])
def test_linear_functions_are_reproduced(d, scheme):
    grid = Grid(mixed_axes(d, 1))
    slopes = np.random.default_rng(d).normal(size=d)
    x = inside(grid.axes, 200, 3)
    values = sum(slope * each for slope, each in zip(slopes, grid.points(), strict=True))
    expected = sum(slope * each for slope, each in zip(slopes, x, strict=True))
    np.testing.assert_allclose(SCHEMES[scheme](grid, x).of(values), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", [*SCHEMES, "nearest"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6])
def test_weights_are_one_hot_at_the_grid_points(d, dtype, scheme):
    grid = Grid(mixed_axes(d, 3, with_periods=True))
    points = tuple(points.astype(dtype) for points in grid.points())
    weights = (SCHEMES | {"nearest": nearest_neighbor})[scheme](grid, points)
    assert weights.weight.dtype == dtype
    assert set(weights.weight.ravel().tolist()) <= {0.0, 1.0}
    assert (weights.mass(np.arange(grid.size)) == 1).all()
    values = random_values(grid).astype(dtype)
    assert (weights.of(values) == values).all()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_values_are_continuous_across_faces_and_seams(d, scheme):
    grid = Grid(mixed_axes(d, 2, with_periods=True))
    values = random_values(grid)
    x = list(inside(grid.axes, 400, 9))
    for i, axis in enumerate(grid.axes):
        knots = axis.data().knots
        on_a_face = knots[np.arange(400) % knots.size]
        before, after = [SCHEMES[scheme](grid, (*x[:i], on_a_face + tiny, *x[i + 1 :])).of(values) for tiny in (-1e-9, 1e-9)]
        steepest = 2 * abs(values).max() / np.diff(knots).min()
        assert abs(before - after).max() <= 2e-9 * steepest * 1.001 + 1e-14


def test_simplex_is_continuous_where_fractions_tie():
    grid = Grid((uniform(0.0, 1.0, 2),) * 3)
    values = random_values(grid)
    along = np.linspace(0.0, 1.0, 50)
    before, after = [simplex(grid, (along, along + tiny, 0.5)).of(values) for tiny in (-1e-12, 1e-12)]
    np.testing.assert_allclose(before, after, atol=1e-10)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_order_of_the_axes_does_not_matter(scheme):
    axes, x = mixed_axes(4, 2, with_periods=True), inside(mixed_axes(4, 2, with_periods=True), 100, 4)
    grid = Grid(axes)
    values = random_values(grid).reshape(grid.shape)
    expected = SCHEMES[scheme](grid, x).of(values.ravel())
    for order in itertools.permutations(range(4)):
        turned = Grid(tuple(axes[i] for i in order))
        there = SCHEMES[scheme](turned, tuple(x[i] for i in order)).of(values.transpose(order).ravel())
        np.testing.assert_allclose(there, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_coordinates_broadcast_together(scheme):
    grid = Grid(mixed_axes(3, 2, with_periods=True))
    rng = np.random.default_rng(0)
    x = (rng.uniform(-2, 2, (5, 1)), rng.uniform(-2, 2, (4,)), 0.3)
    batched = SCHEMES[scheme](grid, x)
    apart = SCHEMES[scheme](grid, tuple(np.broadcast_arrays(*x)))
    assert batched.weight.shape == apart.weight.shape == (5, 4, 8 if scheme == "multilinear" else 4)
    assert (batched.weight == apart.weight).all()
    assert (batched.index == apart.index).all()
    single = SCHEMES[scheme](grid, (float(x[0][2, 0]), float(x[1][1]), 0.3))
    values = np.random.default_rng(0).normal(size=(grid.size, 2))
    assert (single.of(values) == batched.of(values)[2, 1]).all()
    assert float(single.of(values[:, 0])) == batched.of(values[:, 0])[2, 1]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_mass_is_the_weight_of_one_point(d, scheme):
    axes = (periodic(0.0, 1.0, 2), *mixed_axes(d, 2, with_periods=True)[1:])
    grid = Grid(axes)
    x = inside(axes, 60, 8)
    weights = SCHEMES[scheme](grid, x)
    by_hand = np.zeros((60, grid.size))
    for query, (numbers, parts) in enumerate(zip(weights.index, weights.weight, strict=True)):
        for number, part in zip(numbers, parts, strict=True):
            by_hand[query, number] += part
    np.testing.assert_allclose(weights.mass(np.arange(grid.size)[:, None]), by_hand.T, rtol=0, atol=1e-15)
    one_each = np.arange(60) % grid.size
    np.testing.assert_allclose(weights.mass(one_each), by_hand[np.arange(60), one_each], rtol=0, atol=1e-15)
    # The mass of a point is the interpolant of its indicator function.
    np.testing.assert_allclose(weights.of(np.eye(grid.size)), by_hand, rtol=0, atol=1e-15)


def test_mass_is_the_product_of_hat_functions():
    n = 8
    grid = Grid(tuple(uniform(-1.0, 1.0, n) for _ in range(6)))
    rng = np.random.default_rng(3)
    z = rng.integers(0, grid.size, 500)
    near = [points[z] + rng.uniform(-0.4, 0.4, 500) for points in grid.points()]
    places = [np.clip((each + 1.0) * (n - 1) / 2.0, 0, n - 1) for each in near]
    hats = [np.maximum(0.0, 1.0 - abs(place - i)) for place, i in zip(places, np.unravel_index(z, grid.shape), strict=True)]
    np.testing.assert_allclose(multilinear(grid, tuple(near)).mass(z), np.prod(hats, axis=0), rtol=0, atol=1e-13)


def test_repeated_corners_are_summed():
    twice = Weights(index=np.array([[0, 3, 0], [1, 1, 1]]), weight=np.array([[0.25, 0.5, 0.25], [0.2, 0.3, 0.5]]))
    assert twice.mass(np.array([0, 1])).tolist() == [0.5, 1.0]
    assert twice.mass(2).tolist() == [0.0, 0.0]
    assert twice.of(np.array([4.0, 8.0, 0.0, 2.0])).tolist() == [3.0, 8.0]


@pytest.mark.parametrize("scheme", [*SCHEMES, "nearest"])
def test_nan_gives_nan(scheme):
    grid = Grid(mixed_axes(3, 2, with_periods=True))
    x = (np.array([0.1, np.nan, 0.2]), np.array([0.1, 0.1, 0.2]), 0.3)
    weights = (SCHEMES | {"nearest": nearest_neighbor})[scheme](grid, x)
    assert np.isnan(weights.of(random_values(grid))).tolist() == [False, True, False]
    assert 0 <= weights.index.min() <= weights.index.max() < grid.size


# ---- other libraries


@pytest.mark.every(2)
@pytest.mark.parametrize("scheme", [*SCHEMES, "nearest"])
@pytest.mark.parametrize(("d", "dtype"), [(1, "float64"), (2, "float32"), (6, "float32"), (6, "float64")])
def test_jax_and_torch_match_numpy(d, dtype, scheme):
    scheme = (SCHEMES | {"nearest": nearest_neighbor})[scheme]
    grid = Grid(mixed_axes(d, 2, with_periods=True))
    x = tuple(each.astype(dtype) for each in inside(grid.axes, 100, 6))
    values = np.random.default_rng(1).normal(size=(grid.size, 3)).astype(dtype)
    z = np.arange(100) % grid.size
    tolerance = 1e-6 if dtype == "float32" else 1e-14

    def everything(x, values, z):
        weights = scheme(grid, x)
        return weights.of(values), weights.of(values[:, 0]), weights.mass(z)

    with jax.enable_x64(dtype == "float64"):
        compiled = jax.jit(everything)(x, values, z)
        mapped = jax.jit(jax.vmap(everything, in_axes=(0, None, 0)))(x, values, z)
    in_torch = everything(tuple(map(torch.asarray, x)), torch.asarray(values), torch.asarray(z))
    by_numpy = everything(x, values, z)
    for found in (compiled, mapped, in_torch):
        for one, other in zip(found, by_numpy, strict=True):
            assert str(one.dtype).endswith(dtype)
            np.testing.assert_allclose(np.asarray(one), other, rtol=0, atol=tolerance)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_jax_is_one_hot_at_the_grid_points_too(scheme):
    grid = Grid((uniform(-math.pi / 15, math.pi / 15, 7), periodic(-math.pi, math.pi, 6), Axis([0.1, 0.3, 0.7]), uniform(0.1, 0.7, 2)))
    for x64 in (False, True):
        with jax.enable_x64(x64):
            weights = jax.jit(lambda x: SCHEMES[scheme](grid, x))(tuple(map(jnp.asarray, grid.points())))
            assert isinstance(weights, Weights)
            assert set(np.unique(weights.weight)) <= {0.0, 1.0}
            assert (weights.mass(jnp.arange(grid.size)) == 1).all()


def test_gradients_of_interpolation():
    grid = Grid((uniform(0.0, 1.0, 5), uniform(0.0, 2.0, 5)))
    first, second = grid.points()
    values = jnp.asarray(3.0 * first - 2.0 * second)
    slope = jax.grad(lambda x: multilinear(grid, (x[0], x[1])).of(values))(jnp.array([0.3, 1.1]))
    np.testing.assert_allclose(slope, [3.0, -2.0], rtol=1e-5)


# ---- averagers


def test_averagers_against_all_distances():
    rng = np.random.default_rng(0)
    points, x = rng.normal(size=(40, 3)), rng.normal(size=(3, 5, 6))
    distance = np.sqrt(((np.moveaxis(x, 0, -1)[..., None, :] - points) ** 2).sum(axis=-1))
    kth = np.sort(distance, axis=-1)[..., 6:7]
    kernels = {"gaussian": np.exp(-0.5 * (distance / 0.8) ** 2), "triangular": np.maximum(1 - distance / 0.8, 0)}
    for kernel_name, raw in kernels.items():
        raw = np.where(distance <= kth, raw, 0.0)
        nearest = np.eye(40)[distance.argmin(axis=-1)]
        expected = np.where(raw.sum(axis=-1, keepdims=True) > 0, raw, nearest)
        expected /= expected.sum(axis=-1, keepdims=True)
        weights = averager(points, neighbors=7, bandwidth=0.8, kernel=kernel_name)(tuple(x))
        assert weights.index.shape == weights.weight.shape == (5, 6, 7)
        np.testing.assert_allclose(weights.of(np.eye(40)), expected, rtol=0, atol=1e-12)


def test_averagers_far_from_all_points():
    for kernel_name, expected in {"gaussian": [0.5, 0.5, 0.0], "triangular": [1.0, 0.0, 0.0]}.items():
        average = averager([[1.0, 0.0], [-1.0, 0.0], [0.0, -5.0]], neighbors=3, bandwidth=0.01, kernel=kernel_name)
        found = np.sort(average((0.0, 100.0)).weight)[::-1]
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_averagers_with_one_neighbor_and_nan():
    average = averager([[0.0], [1.0], [3.0]], neighbors=1, bandwidth=1.0)
    weights = average((np.array([0.4, 2.5, np.nan]),))
    assert weights.index[:2, 0].tolist() == [0, 2]
    assert np.isnan(weights.weight[:, 0]).tolist() == [False, False, True]
    assert average((0.4,)).weight.tolist() == [1.0]


# ---- all schemes


@st.composite
def grids_and_points(draw):
    d = draw(st.integers(1, 6))
    axes = []
    for _ in range(d):
        low, n = draw(st.floats(-10, 10)), draw(st.integers(2, 4))
        steps = draw(st.lists(st.floats(0.01, 3.0), min_size=n - 1, max_size=n - 1))
        points = np.cumsum([low, *steps])
        axes.append(Axis(points, draw(st.none() | st.just(float(points[-1] - points[0] + 0.5)))))
    grid = Grid(tuple(axes))
    x = tuple(draw(st.sampled_from(axis.points) | st.floats(-30, 30)) for axis in axes)
    return grid, x


@settings(derandomize=True, deadline=None, max_examples=200)
@given(grids_and_points())
def test_both_schemes_average_and_agree_with_hat_functions(drawn):
    grid, x = drawn
    hats = [np.zeros(axis.size) for axis in grid.axes]
    for hat, axis, each in zip(hats, grid.axes, x, strict=True):
        index, fraction = cells(axis, each)
        hat[int(index)] += 1 - float(fraction)
        hat[(int(index) + 1) % axis.size] += float(fraction)
    product = np.ones(())
    for hat in hats:
        product = np.multiply.outer(product, hat)
    values = np.random.default_rng(0).normal(size=grid.size)
    multi, kuhn = multilinear(grid, x), simplex(grid, x)
    np.testing.assert_allclose(multi.of(values), product.ravel() @ values, rtol=0, atol=1e-12)
    for weights in (multi, kuhn):
        assert weights.weight.min() >= 0
        assert abs(weights.weight.sum() - 1) <= 1e-14
        low, high = values[weights.index].min(), values[weights.index].max()
        assert low - 1e-12 <= weights.of(values) <= high + 1e-12
    # The mean position along each axis is the same in both schemes; only the joint weights differ.
    for k, hat in enumerate(hats):
        for i in range(hat.size):
            on_axis = (np.indices(grid.shape)[k] == i).ravel().astype(float)
            assert float(kuhn.of(on_axis)) == pytest.approx(hat[i], abs=1e-12)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(grids_and_points(), st.integers(1, 3))
def test_rows_of_a_point_are_the_same_alone_and_in_any_batch(drawn, actions):
    grid, x = drawn
    rng = np.random.default_rng(len(grid.axes))
    # Few different values, so that actions often tie.
    table = rng.integers(-1, 2, (grid.size, actions)).astype(np.float32) / 3
    limits = [(axis.points[0] - 2.0, axis.points[-1] + 2.0) for axis in grid.axes]
    corner = [axis.points[-1] for axis in grid.axes]
    points = np.array([x, corner, *np.transpose([rng.uniform(low, high, 20) for low, high in limits])])
    batch = interpolated_rows(grid, table, points)
    assert batch.dtype == np.float32
    np.testing.assert_array_equal(batch, multilinear(grid, tuple(points.T)).of(table).astype(np.float32))
    for point, row in zip(points, batch, strict=True):
        alone = interpolated_rows(grid, table, point[None])
        # Bit for bit, so that -0.0 and 0.0 differ.
        assert alone.tobytes() == row.tobytes()


@pytest.mark.parametrize("name", AXES)
def test_rows_at_edges_are_the_same_alone_and_in_any_batch(name):
    grid = Grid((AXES[name],))
    table, points = np.random.default_rng(0).standard_normal((grid.size, 2)), queries(AXES[name])[:, None]
    batch = interpolated_rows(grid, table, points)
    alone = np.concatenate([interpolated_rows(grid, table, point[None]) for point in points])
    assert alone.tobytes() == batch.tobytes()


def test_rows_are_computed_in_blocks(monkeypatch):
    grid = Grid(mixed_axes(3, seed=1, with_periods=True))
    table, points = np.random.default_rng(0).standard_normal((grid.size, 4)), np.random.default_rng(1).uniform(-3, 3, (50, 3))
    whole = interpolated_rows(grid, table, points)
    monkeypatch.setattr(interpolation, "MAX_CORNERS", 100)
    assert interpolated_rows(grid, table, points).tobytes() == whole.tobytes()
    assert interpolated_rows(grid, table, points[:0]).shape == (0, 4)
