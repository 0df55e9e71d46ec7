"""Sweeps with JAX against arrays in double precision: in one piece, in blocks, on several devices and in several processes."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest

from actiongap.envs.bicycle import bicycle
from actiongap.envs.classic import cart_pole, mountain_car, pendulum
from actiongap.maths import sin, where
from actiongap.operators import OperatorError, parse
from actiongap.planning._jax_factored import Contraction
from actiongap.planning._jax_sweeps import Gathering, JaxSweeps, jax_sweeps
from actiongap.planning._numba_sweeps import cpu_sweeps
from actiongap.planning._pallas import fits
from actiongap.planning.backups import SweepConfig, Sweeps
from actiongap.planning.factors import layout_of
from actiongap.planning.grid import Axis, Grid, periodic, uniform
from actiongap.planning.simulator import Discrete, Factor, Outcome, Simulator, Uniform, one_step
from sweeping import by_arrays
from two_processes import CASES, FIRST, MULTI_PROCESS, kernel_sweeps, random_q, skate, swept

PROGRAM = Path(__file__).parents[1] / "two_processes.py"
UNIFORM, DISCRETE = Uniform(-0.2, 0.3), Discrete((-0.15, 0.25), (0.25, 0.75))


def sled(noise: Uniform | Discrete = UNIFORM) -> Simulator:
    """Two coupled coordinates, one on uneven points and one periodic; the batched one and one deterministic one are periodic too."""

    def stochastic(x, a, u):
        tilt = x[0] + 0.35 * sin(x[2]) + 0.2 * (a % 2) + u
        return Outcome((tilt, x[1] + 0.8 * u + 0.3 * x[3], x[2] + 0.5 * x[0] - u), 0.5 * tilt - 0.1 * (a % 2), tilt > 1.2)

    def deterministic(x, a, u):
        load = x[4] + 0.2 * x[1] - 0.05 * x[3]
        return Outcome((x[3] + 1.5 * x[0] + 0.7 * x[1] * (a // 2), load), 0.3 - load, load > 1.2)

    axes = (Axis((-1.0, -0.2, 0.3, 1.0)), periodic(0.0, 2.0, 4), periodic(0.0, 4.0, 3), uniform(0.0, 6.0, 4), periodic(0.0, 1.5, 3))
    factors = (
        Factor((0, 1, 2), (0, 1, 2, 3), (0, 1, 0), True, stochastic),
        Factor((3, 4), (0, 1, 3, 4), (0, 0, 1), False, deterministic),
    )
    state = dict(zip(["tilt", "twist", "swing", "track", "load"], axes, strict=True))
    return Simulator("sled", factors, state=state, actions=("a", "b", "c"), gamma=0.9, noise=noise)


def discrete_sled() -> Simulator:
    return sled(DISCRETE)


def single_factor_sled() -> Simulator:
    """The sled as a single factor."""
    return replace(sled(), step=one_step(sled()))


def round_heading() -> Simulator:
    return bicycle(periodic_heading=True)


def stroll() -> Simulator:
    """One coordinate that the noise moves by several cells."""

    def step(x, a, u):
        place = 0.8 * x[0] + 0.2 * a + u
        return Outcome((place,), 1.0 - place * place, place > 1.0)

    return Simulator("stroll", step, state={"place": (-1.0, 1.0)}, actions=("stay", "go"), gamma=0.9, noise=Uniform(-0.4, 0.4))


@dataclass(frozen=True)
class Case:
    make: Callable[..., Simulator]
    n: int
    operator: str
    samples: int = 1
    shared: bool = False
    of_values: bool = False
    eta: float = 0.3

    def __str__(self) -> str:
        modes = [f"{self.samples} samples", *(name for name in ("shared", "of_values") if getattr(self, name))]
        return ", ".join([f"{self.make.__name__} {self.n}", self.operator, *modes])

    def prepare(self) -> tuple[Simulator, Grid, SweepConfig]:
        simulator = self.make()
        config = SweepConfig(parse(self.operator), simulator.gamma, self.eta, self.samples, self.shared, self.of_values, seed=5)
        return simulator, Grid(simulator.axes(self.n)), config


CONTRACTED = [
    Case(bicycle, 3, "consistent"),
    Case(bicycle, 4, "lazy:0.5", shared=True),
    Case(round_heading, 3, "pal:0.9", of_values=True),
    Case(cart_pole, 5, "al:0.1", eta=1.0),
    Case(sled, 0, "consistent"),
    Case(discrete_sled, 0, "lazy:0.5"),
    Case(skate, 0, "pal:0.9", samples=3),
    Case(skate, 0, "al:0.1", samples=3, shared=True, of_values=True),
]
GATHERED = [
    Case(stroll, 9, "consistent", samples=3),
    Case(single_factor_sled, 0, "pal:0.9", shared=True),
    Case(pendulum, 7, "consistent", of_values=True),
    Case(mountain_car, 6, "bellman", eta=1.0),
]
BY_KERNEL = [Case(skate, 0, "pal:0.9", samples=2, shared=True), Case(bicycle, 3, "consistent")]


def assert_close(found: np.ndarray, wanted: np.ndarray, place: str = "") -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=place)


def assert_matches_arrays(sweeps: Sweeps, simulator: Simulator, grid: Grid, config: SweepConfig) -> None:
    q = random_q(simulator, grid)
    once = by_arrays(simulator, grid, config, q, FIRST)
    twice = by_arrays(simulator, grid, config, once, FIRST + 1)
    found, residual = swept(sweeps, q)
    assert found.dtype == np.float32
    assert_close(found, twice)
    assert residual == pytest.approx(np.abs(twice - once).max() / config.eta, rel=1e-4)


@cache
def compiled(case: Case) -> JaxSweeps:
    sweeps = jax_sweeps(*case.prepare(), jax.devices()[:1])
    assert isinstance(sweeps, JaxSweeps)
    return sweeps


@pytest.mark.every(5)
@pytest.mark.parametrize("case", CONTRACTED + GATHERED, ids=str)
def test_sweeps_match_arrays(case):
    assert isinstance(compiled(case).method, Contraction if case in CONTRACTED else Gathering)
    assert_matches_arrays(compiled(case), *case.prepare())


@pytest.mark.every(2)
@pytest.mark.parametrize("case", [GATHERED[0], CONTRACTED[0]], ids=str)
def test_engines_agree(case):
    simulator, grid, config = case.prepare()
    q = random_q(simulator, grid)
    found, residual = swept(compiled(case), q)
    other, other_residual = swept(cpu_sweeps(simulator, grid, config), q)
    assert_close(found, other)
    assert residual == pytest.approx(other_residual, rel=1e-4)


@pytest.mark.every(2)
@pytest.mark.parametrize("case", BY_KERNEL, ids=str)
def test_kernels_match_arrays(case):
    simulator, grid, config = case.prepare()
    assert kernels_fit(case)
    assert_matches_arrays(kernel_sweeps(simulator, grid, config, jax.devices()[:1]), simulator, grid, config)


def kernels_fit(case: Case) -> bool:
    simulator, grid, config = case.prepare()
    layout = layout_of(simulator, grid)
    assert layout is not None
    return fits(simulator, grid, layout, config)


def test_which_simulators_fit_the_kernels():
    assert not kernels_fit(Case(round_heading, 3, "bellman"))
    assert not kernels_fit(Case(bicycle, 3, "bellman", of_values=True))
    assert not kernels_fit(Case(cart_pole, 3, "bellman"))  # Its speed, which the position reads, depends on the pole.


@pytest.mark.every(2)
@pytest.mark.parametrize("case", [GATHERED[0], CONTRACTED[3]], ids=str)
def test_blocks_do_not_change_the_result(case, monkeypatch):
    simulator, grid, config = case.prepare()
    sweeps, at_a_time = jax_sweeps(simulator, grid, config, jax.devices()[:1]), 4
    assert isinstance(sweeps, JaxSweeps)
    assert sweeps.points % at_a_time
    monkeypatch.setattr("actiongap.planning._jax_sweeps.BLOCK_ENTRIES", at_a_time * sweeps.method.entries)
    assert_matches_arrays(sweeps, simulator, grid, config)


def test_sweeps_can_be_split_into_several_calls():
    simulator, grid, config = Case(stroll, 9, "consistent").prepare()
    sweeps, q = jax_sweeps(simulator, grid, config, jax.devices()[:1]), random_q(simulator, grid)
    whole, residual = swept(sweeps, q, 3, 5)
    table, _ = sweeps.advance(sweeps.put(q), 3, 2)
    table, last = sweeps.advance(table, 5, 3)
    np.testing.assert_allclose(sweeps.get(table), whole, rtol=0, atol=1e-6)
    assert last == pytest.approx(residual, rel=1e-5)
    expected = q
    for number in range(3, 8):
        expected = by_arrays(simulator, grid, config, expected, number)
    assert_close(whole, expected)
    assert not np.allclose(whole, swept(sweeps, q, 4, 5)[0], atol=1e-3)  # Other sweeps have other noise.


@pytest.mark.parametrize("case", [CONTRACTED[4], GATHERED[1]], ids=str)
def test_get_inverts_put(case):
    simulator, grid, _ = case.prepare()
    sweeps, q = compiled(case), random_q(simulator, grid).astype(np.float32)
    np.testing.assert_array_equal(sweeps.get(sweeps.put(q)), q)


@pytest.mark.every(2)
@pytest.mark.parametrize("make", [stroll, cart_pole])
def test_custom_operators(make):
    simulator = make()
    grid, config = (
        Grid(simulator.axes(3)),
        SweepConfig(parse(lambda b: where(b.gap > 0.5, b.bellman - 0.1 * b.gap, b.bellman)), simulator.gamma, 0.3),
    )
    assert_matches_arrays(jax_sweeps(simulator, grid, config), simulator, grid, config)


@pytest.mark.parametrize("make", [cart_pole, stroll])
def test_errors_of_an_operator_are_reported(make):
    def broken(b):
        raise RuntimeError("no operator after all")

    simulator = make()
    grid = Grid(simulator.axes(3))
    sweeps = jax_sweeps(simulator, grid, SweepConfig(parse(broken), simulator.gamma))
    with pytest.raises(OperatorError, match="the operator broken fails with RuntimeError: no operator after all"):
        swept(sweeps, random_q(simulator, grid))


@pytest.mark.parametrize(("make", "operator"), [(jax_sweeps, "consistent"), (kernel_sweeps, "lazy:0.5")])
def test_a_step_outside_the_window_gives_nan(make, operator):
    simulator = skate(wild=True)
    grid, config = Grid(simulator.axes(0)), SweepConfig(parse(operator), simulator.gamma, 0.3)
    q = random_q(simulator, grid)
    found, residual = swept(make(simulator, grid, config, jax.devices()[:1]), q, FIRST, 1)
    outside = np.isnan(found)
    assert 0.2 < outside.mean() < 0.8
    assert np.isnan(residual)
    assert_close(found[~outside], by_arrays(simulator, grid, config, q, FIRST)[~outside])


def start(devices: int, *arguments: object) -> subprocess.Popen:
    """Start `two_processes.py` with this number of virtual devices."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(processes: list[subprocess.Popen], timeout: float) -> None:
    """Wait until all processes have succeeded; kill those that exceed the timeout."""
    try:
        output = [process.communicate(timeout=timeout)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(output)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.long
def test_devices_do_not_change_the_result(tmp_path):
    file = tmp_path / "found.npz"
    finish([start(4, file)], 300)
    found = dict(np.load(file))
    for name, case in CASES.items():
        simulator, grid, config = case.prepare()
        once = by_arrays(simulator, grid, config, random_q(simulator, grid), FIRST)
        twice = by_arrays(simulator, grid, config, once, FIRST + 1)
        for place in (f"{name} {count}" for count in case.counts):
            assert_close(found[place], twice, place)
            np.testing.assert_allclose(found[place], found[f"{name} {case.counts[0]}"], rtol=0, atol=1e-6, err_msg=place)
            assert found[f"{place} residual"] == pytest.approx(np.abs(twice - once).max() / config.eta, rel=1e-4), place
    halos = {place: found[f"{place} halo"] for place in ("skate 2", "skate 3", "kernel 3", "cart-pole 4")}
    assert halos == {"skate 2": 3, "skate 3": 3, "kernel 3": 3, "cart-pole 4": 1}
    # Two slabs per device and steps of three slabs; a periodic track; and a simulator without factors.
    assert all(np.isnan(found[f"{place} halo"]) for place in ("skate 4", "around 3", "pendulum 4"))


@pytest.mark.long
def test_two_processes_match_one(tmp_path):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
    files = [tmp_path / f"{process}.npz" for process in range(2)]
    finish([start(2, file, address, process) for process, file in enumerate(files)], 120)
    one, other = (dict(np.load(file)) for file in files)
    for name in MULTI_PROCESS:
        simulator, grid, _ = CASES[name].prepare()
        q, residual = swept(CASES[name].sweeps(1), random_q(simulator, grid))
        for found in (one, other):
            np.testing.assert_allclose(found[f"{name} 4"], q, rtol=0, atol=1e-6)
            assert found[f"{name} 4 residual"] == pytest.approx(residual, rel=1e-5)
    assert np.isnan(one["skate 4 halo"])
    assert one["cart-pole 4 halo"] == 1
