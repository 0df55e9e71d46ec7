"""Compiled sweeps, factored and gathering, against arrays, and properties of all compiled sweeps."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from actiongap.envs.bicycle import bicycle
from actiongap.envs.classic import cart_pole, mountain_car, pendulum
from actiongap.maths import sin
from actiongap.operators import parse
from actiongap.planning._cpu_sweeps import CpuSweeps, largest_difference
from actiongap.planning._numba_cells import neighbor_finder
from actiongap.planning._numba_sweeps import cpu_sweeps
from actiongap.planning.backups import SweepConfig
from actiongap.planning.factors import layout_of
from actiongap.planning.grid import Axis, Grid, cells, periodic, uniform
from actiongap.planning.simulator import Discrete, Factor, Outcome, Simulator, Uniform
from sweeping import by_arrays

UNIFORM, DISCRETE = Uniform(-0.2, 0.3), Discrete((-0.3, 0.1), (0.25, 0.75))


def drifting(noise: Uniform | Discrete = UNIFORM) -> Simulator:
    """Two coordinates in one factor, one of them periodic, moved by action and noise. Episodes end at the top."""

    def drift(x, a, u):
        height, angle = x
        height = height + 0.3 * (a - 1) + u
        return Outcome((height, angle + 0.7 * a - u), 1.0 * a - height, height > 1.1)

    state = {"height": Axis((-1.0, -0.2, 0.1, 1.0)), "angle": periodic(-math.pi, math.pi, 5)}
    return Simulator("drift", drift, state=state, actions=("down", "stay", "up"), gamma=0.9, noise=noise)


def kite(noise: Uniform | Discrete = UNIFORM) -> Simulator:
    """Two coupled coordinates, on even and uneven points, and a periodic batched one; two deterministic factors, one of them observed."""

    def stochastic(x, a, u):
        height, turn, pull = x[0] + 0.4 * x[2] - 0.3 * (a % 2) + u, x[1] + 1.5 * u + 0.2 * x[4], x[2] + 0.2 * sin(x[4]) - 0.5 * u * x[0]
        return Outcome((height, turn, pull), 0.5 * height - 0.1 * (a % 2), height > 1.2)

    def drift(x, a, u):
        place = x[3] + 0.3 * x[0] + 0.25 * (a // 3)
        return Outcome((place,), 0.3 - place, place > 1.3)

    def wind(x, a, u):
        return Outcome((x[4] + 0.3 + 0.8 * x[2],), 0.0 * x[4] - 0.05, x[4] + x[2] > 4.5)

    axes = (Axis((-1.0, -0.2, 0.3, 1.0)), periodic(0.0, 2.0, 4), uniform(-1.0, 1.0, 3), uniform(0.0, 1.0, 3), periodic(0.0, 4.0, 5))
    factors = (
        Factor((0, 1, 2), (0, 1, 2, 4), (0, 1, 0, 1, 0), True, stochastic),
        Factor((3,), (0, 3), (0, 0, 0, 1, 1), False, drift),
        Factor((4,), (2, 4), (0, 0, 0, 0, 0), False, wind),
    )
    state = dict(zip(["height", "turn", "pull", "place", "wind"], axes, strict=True))
    return Simulator("kite", factors, state=state, actions=tuple("abcde"), gamma=0.9, noise=noise)


def tethered() -> Simulator:
    """A coupled stochastic coordinate that observes nothing, so a row has one entry per action."""

    def swing(x, a, u):
        return Outcome((0.8 * x[0] + u + 0.1 * (a - 1),), -x[0] * x[0], False)

    def follow(x, a, u):
        return Outcome((x[1] + 0.2 * x[0],), 0.0 * x[1], abs(x[1]) + 0.0 * a > 1.1)

    state = {"swing": uniform(-1.0, 1.0, 7), "place": uniform(-1.2, 1.2, 9)}
    factors = (Factor((0,), (0,), (0, 1, 2), True, swing), Factor((1,), (0, 1), (0, 0, 0), False, follow))
    return Simulator("tethered", factors, state=state, actions=("back", "hold", "on"), gamma=0.9, noise=UNIFORM)


@dataclass(frozen=True)
class Case:
    make: Callable[..., Simulator]
    n: int
    operator: str
    samples: int = 1
    shared: bool = False
    of_values: bool = False

    def __str__(self) -> str:
        modes = [f"{self.samples} samples", *(name for name in ("shared", "of_values") if getattr(self, name))]
        return ", ".join([self.make.__name__, self.operator, *modes])

    def prepare(self):
        simulator = self.make()
        options = {"samples": self.samples, "shared": self.shared, "of_values": self.of_values}
        return simulator, Grid(simulator.axes(self.n)), SweepConfig(parse(self.operator), simulator.gamma, 0.3, seed=5, **options)


def round_heading() -> Simulator:
    return bicycle(periodic_heading=True)


def without_noise() -> Simulator:
    return bicycle(noise=False)


def discrete_kite() -> Simulator:
    return kite(DISCRETE)


def discrete_drift() -> Simulator:
    return drifting(DISCRETE)


FACTORED = [
    Case(bicycle, 3, "consistent"),
    Case(round_heading, 3, "pal:0.9", samples=2, shared=True),
    Case(without_noise, 2, "pal-dqn:0.5", of_values=True),
    Case(cart_pole, 4, "consistent", of_values=True),
    Case(kite, 0, "consistent"),
    Case(kite, 0, "pal:0.5", samples=3, shared=True, of_values=True),
    Case(discrete_kite, 0, "lazy:0.5"),
    Case(tethered, 0, "consistent", samples=2, of_values=True),
]
GATHERED = [
    Case(drifting, 0, "consistent", samples=3),
    Case(drifting, 0, "pal:0.9", shared=True, of_values=True),
    Case(discrete_drift, 0, "lazy:0.5"),
    Case(pendulum, 7, "al:0.5"),
    Case(mountain_car, 6, "bellman", of_values=True),
]
IN_SINGLE = [GATHERED[0], FACTORED[0]]


@cache
def compiled(case: Case, dtype: type) -> CpuSweeps:
    return cpu_sweeps(*case.prepare(), dtype)


def random_q(simulator: Simulator, grid: Grid) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((grid.size, len(simulator.actions)))


@pytest.mark.every(5)
@pytest.mark.parametrize("case", FACTORED + GATHERED, ids=str)
def test_compiled_sweeps_match_arrays(case):
    simulator, grid, config = case.prepare()
    assert (layout_of(simulator, grid) is not None) == (case in FACTORED)
    sweeps, q = compiled(case, np.float64), random_q(simulator, grid)
    table, residual = sweeps.advance(sweeps.put(q), 7, 2)
    once = by_arrays(simulator, grid, config, q, 7)
    twice = by_arrays(simulator, grid, config, once, 8)
    np.testing.assert_allclose(sweeps.get(table), twice, rtol=0, atol=1e-12)
    assert residual == pytest.approx(np.abs(twice - once).max() / config.eta, rel=1e-9)


@pytest.mark.every(2)
@pytest.mark.parametrize("case", IN_SINGLE, ids=str)
def test_single_precision_changes_only_rounding(case):
    simulator, grid, config = case.prepare()
    sweeps, q = cpu_sweeps(simulator, grid, config), random_q(simulator, grid).astype(np.float32)
    found = sweeps.get(sweeps.advance(sweeps.put(q), 7, 1)[0])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_arrays(simulator, grid, config, q.astype(np.float64), 7), rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", [FACTORED[0], FACTORED[5], GATHERED[0]], ids=str)
def test_threads_and_pieces_do_not_change_the_result(case):
    simulator, grid, _ = case.prepare()
    sweeps, q, threads = compiled(case, np.float64), random_q(simulator, grid), numba.get_num_threads()
    found = []
    try:
        for count in (1, min(2, threads)):
            numba.set_num_threads(count)
            found.append(sweeps.get(sweeps.advance(sweeps.put(q), 0, 5)[0]))
    finally:
        numba.set_num_threads(threads)
    table, _ = sweeps.advance(sweeps.put(q), 0, 2)
    found.append(sweeps.get(sweeps.advance(table, 2, 3)[0]))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@pytest.mark.parametrize("case", [FACTORED[0], GATHERED[0]], ids=str)
def test_get_inverts_put_and_arguments_stay_unchanged(case):
    simulator, grid, _ = case.prepare()
    sweeps, q = compiled(case, np.float64), random_q(simulator, grid)
    kept, table = q.copy(), sweeps.put(q)
    back = sweeps.get(table)
    sweeps.advance(sweeps.advance(table, 0, 1)[0], 1, 1)
    np.testing.assert_array_equal(q, kept)
    np.testing.assert_array_equal(back, kept)
    assert back.flags.c_contiguous


def test_two_tables_of_the_same_sweeps_are_independent():
    case = GATHERED[0]
    simulator, grid, _ = case.prepare()
    sweeps, q = compiled(case, np.float64), random_q(simulator, grid)
    one, _ = sweeps.advance(sweeps.put(q), 0, 1)
    kept = sweeps.get(one)
    other, _ = sweeps.advance(sweeps.put(-q), 0, 1)
    sweeps.advance(other, 1, 1)
    np.testing.assert_array_equal(sweeps.get(one), kept)


def uncompilable(b):
    return eval("b.bellman") - 0.5 * b.gap


@pytest.mark.parametrize("make", [discrete_drift, kite])
def test_an_operator_that_numba_cannot_compile_is_swept_on_arrays(make):
    simulator = make()
    grid, config = Grid(simulator.axes(0)), SweepConfig(parse(uncompilable), simulator.gamma, 0.3, samples=2, shared=True)
    plain = SweepConfig(parse("al:0.5"), simulator.gamma, 0.3, samples=2, shared=True)
    sweeps, q = cpu_sweeps(simulator, grid, config, np.float64), random_q(simulator, grid)
    table, _ = sweeps.advance(sweeps.put(q), 3, 1)
    np.testing.assert_allclose(sweeps.get(table), by_arrays(simulator, grid, plain, q, 3), rtol=0, atol=1e-13)


def test_a_simulator_that_numba_cannot_compile_is_swept_on_arrays(monkeypatch):
    monkeypatch.setattr("actiongap.planning._cpu_sweeps.MAX_CORNERS", 30)  # Blocks that do not divide the grid.

    def step(x, a, u):
        return Outcome((np.interp(x[0] + 0.1 * a + u, [0.0, 1.0], [0.0, 0.5]),), 1.0 * a, eval("x")[0] + 0 * a > 0.9)

    simulator = Simulator("strange", step, state={"x": (0.0, 1.0)}, actions=("a", "b"), gamma=0.9, noise=UNIFORM)
    grid, config = Grid(simulator.axes(17)), SweepConfig(parse("consistent"), simulator.gamma)
    sweeps, q = cpu_sweeps(simulator, grid, config, np.float64), random_q(simulator, grid)
    table, _ = sweeps.advance(sweeps.put(q), 0, 1)
    np.testing.assert_allclose(sweeps.get(table), by_arrays(simulator, grid, config, q, 0), rtol=0, atol=1e-13)


def test_zero_sweeps_are_rejected():
    sweeps = compiled(GATHERED[0], np.float64)
    with pytest.raises(ValueError, match="give at least 1"):
        sweeps.advance(sweeps.put(np.zeros((20, 3))), 0, 0)


def test_largest_difference_propagates_nan():
    one = np.zeros(250_000)
    other = one.copy()
    other[123_456] = 2.0
    assert largest_difference(one, other) == 2.0
    other[240_000] = np.nan
    assert math.isnan(largest_difference(one, other))


AXES = [uniform(-1.0, 2.0, 7), periodic(-math.pi, math.pi, 5), Axis((0.0, 0.1, 1.0, 4.0)), Axis((0.5, 1.0, 3.0), 4.0)]


def wrap_inlined(find: Callable) -> Callable:
    return numba.njit(lambda x: find(x))


FINDERS = [wrap_inlined(neighbor_finder(axis)) for axis in AXES]


@settings(derandomize=True, deadline=None)
@given(st.floats(-20.0, 20.0))
@example(2.0)
@example(math.pi)
def test_compiled_neighbors_match_cells(x):
    for axis, find in zip(AXES, FINDERS, strict=True):
        below, above, fraction = find(x)
        index, part = cells(axis, np.array([x]))
        # A grid point may also count as the end of the previous cell.
        seen = {below: 1 - fraction, above: fraction}
        wanted = {int(index[0]): 1 - part[0], (int(index[0]) + 1) % axis.size: part[0]}
        for i in range(axis.size):
            assert seen.get(i, 0.0) == pytest.approx(wanted.get(i, 0.0), abs=1e-12)


def test_nan_has_neighbors_and_a_nan_fraction():
    for axis, find in zip(AXES, FINDERS, strict=True):
        below, above, fraction = find(math.nan)
        assert 0 <= below < axis.size
        assert 0 <= above < axis.size
        assert math.isnan(fraction)
