"""Sweeps with JAX against arrays in double precision: in one piece, in blocks, on several devices and in several processes."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import pytest

from actiongap.domains.bicycle import bicycle
from actiongap.domains.classic import cart_pole, mountain_car, pendulum
from actiongap.grid.accelerated import JaxSweeps, jax_sweeps
from actiongap.grid.axes import Grid, uniform
from actiongap.grid.backups import interpolated_backups
from actiongap.grid.contraction import Contraction
from actiongap.grid.cpu import cpu_sweeps
from actiongap.grid.domain import Discrete, Domain, Factor, Outcome, Uniform, one_step, simulator
from actiongap.grid.draws import UNSIGNED, draw, place_key
from actiongap.grid.gathering import Gathering
from actiongap.grid.kernel import Kernel
from actiongap.grid.rule import Rule, Sweeps
from actiongap.grid.tables import layout_of
from actiongap.maths import sin
from actiongap.operators import parse, where
from two_processes import CASES, COUNT, FIRST, TOGETHER, random_q, sled

PROGRAM = Path(__file__).parent / "two_processes.py"


def round_heading() -> Domain:
    return bicycle(periodic_heading=True)


def weighed_sled() -> Domain:
    return sled(Discrete((-0.3, 0.1, 0.2), (0.25, 0.5, 0.25)))


def sled_around() -> Domain:
    return sled(around=True)


def sled_in_one() -> Domain:
    """The sled for those who declare no factors."""
    whole = sled()
    return simulator("sled", whole.coordinates, whole.actions, one_step(whole), whole.axes, whole.gamma, whole.noise)


def stroll() -> Domain:
    """One coordinate that the noise carries several cells away."""

    def step(x, a, u):
        place = 0.8 * x[0] + 0.2 * a + u
        return Outcome((place,), 1.0 - place * place, place > 1.0)

    return simulator("stroll", ("place",), ("stay", "go"), step, lambda n: (uniform(-1.0, 1.0, n),), 0.9, Uniform(-0.4, 0.4))


@dataclass(frozen=True)
class Trial:
    make: Callable[..., Domain]
    n: int
    operator: str
    samples: int = 1
    shared: bool = False
    of_values: bool = False
    eta: float = 0.3

    def __str__(self) -> str:
        modes = [name for name in ("shared", "of_values") if getattr(self, name)]
        return ", ".join([f"{self.make.__name__} {self.n}", self.operator, f"{self.samples} samples", *modes])

    def prepared(self) -> tuple[Domain, Grid, Rule]:
        domain = self.make()
        rule = Rule(parse(self.operator), domain.gamma, self.eta, self.samples, self.shared, self.of_values, seed=5)
        return domain, Grid(domain.axes(self.n)), rule


CONTRACTED = [
    Trial(bicycle, 3, "consistent"),
    Trial(bicycle, 4, "lazy:0.5", shared=True),
    Trial(round_heading, 3, "pal:0.9", of_values=True),
    Trial(cart_pole, 5, "al:0.1", eta=1.0),
    Trial(sled, 0, "consistent", samples=3),
    Trial(sled, 0, "pal:0.9", samples=3, shared=True, of_values=True),
    Trial(weighed_sled, 0, "lazy:0.5"),
    Trial(sled_around, 0, "bellman", shared=True),
]
GATHERED = [
    Trial(stroll, 9, "consistent", samples=3),
    Trial(sled_in_one, 0, "al:0.1", shared=True),
    Trial(pendulum, 7, "consistent", of_values=True),
    Trial(pendulum, 6, "lazy:0.5"),
    Trial(mountain_car, 6, "pal:0.9", eta=1.0),
]


def by_arrays(domain: Domain, grid: Grid, rule: Rule, q: np.ndarray, number: int) -> np.ndarray:
    """One sweep as its definition says, every pair with the draws of its place."""
    z, actions, noise = np.arange(grid.size), len(domain.actions), domain.noise
    if isinstance(noise, Discrete):
        drawn = list(zip(noise.values, noise.probabilities, strict=True))
    else:
        index = np.unravel_index(z, grid.shape)
        noisy = {i for factor in domain.factors if factor.noisy for i in factor.inputs}
        minded = sorted(noisy) if rule.shared else range(len(grid.shape))
        place = np.ravel_multi_index([index[i] for i in minded], [grid.shape[i] for i in minded])
        places = (place[:, None, None] * actions + np.arange(actions)[:, None]) * rule.samples + np.arange(rule.samples)
        u = noise.low + (noise.high - noise.low) * draw(np.uint32(place_key(rule.seed, number)), places.astype(np.uint32), UNSIGNED)
        drawn = [(u[..., k], 1 / rule.samples) for k in range(rule.samples)]
    found = interpolated_backups(one_step(domain), grid, q, z, grid.points(), drawn, rule.gamma, rule.of_values)
    return (1 - rule.eta) * q + rule.eta * rule.operator(found)


def swept(sweeps: Sweeps, q: np.ndarray, first: int = FIRST, count: int = COUNT) -> tuple[np.ndarray, float]:
    table, residual = sweeps.advance(sweeps.put(q), first, count)
    return sweeps.get(table), residual


def assert_close(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def assert_as_by_arrays(sweeps: Sweeps, domain: Domain, grid: Grid, rule: Rule) -> None:
    q = random_q(domain, grid)
    found, residual = swept(sweeps, q)
    once = by_arrays(domain, grid, rule, q, FIRST)
    twice = by_arrays(domain, grid, rule, once, FIRST + 1)
    assert found.dtype == np.float32
    assert_close(found, twice)
    assert residual == pytest.approx(np.abs(twice - once).max() / rule.eta, rel=1e-4)


@pytest.mark.parametrize("trial", CONTRACTED + GATHERED, ids=str)
def test_sweeps_are_those_of_arrays(trial):
    domain, grid, rule = trial.prepared()
    sweeps = jax_sweeps(domain, grid, rule, jax.devices()[:1])
    assert isinstance(sweeps, JaxSweeps)
    assert isinstance(sweeps.form, Contraction if trial in CONTRACTED else Gathering)
    assert_as_by_arrays(sweeps, domain, grid, rule)


@pytest.mark.parametrize("trial", [CONTRACTED[0], CONTRACTED[3], GATHERED[0]], ids=str)
def test_both_engines_give_the_same_numbers(trial):
    domain, grid, rule = trial.prepared()
    q = random_q(domain, grid)
    found, residual = swept(jax_sweeps(domain, grid, rule), q)
    other, other_residual = swept(cpu_sweeps(domain, grid, rule), q)
    assert_close(found, other)
    assert residual == pytest.approx(other_residual, rel=1e-4)


@pytest.mark.parametrize("trial", [CONTRACTED[0], Trial(cart_pole, 4, "pal:0.9"), Trial(bicycle, 2, "lazy:0.5", 3, shared=True)], ids=str)
def test_the_kernel_sweeps_as_arrays_do(trial):
    domain, grid, rule = trial.prepared()
    assert_as_by_arrays(by_kernel(domain, grid, rule), domain, grid, rule)


def by_kernel(domain: Domain, grid: Grid, rule: Rule) -> JaxSweeps:
    """Sweeps by the kernel for GPUs, as JAX acts it out elsewhere."""
    layout = layout_of(domain, grid)
    assert layout is not None
    return JaxSweeps(Kernel(domain, grid, layout, rule, interpret=True), rule, np.array(jax.devices()[:1]))


@pytest.mark.parametrize("trial", [CONTRACTED[3], GATHERED[0]], ids=str)
def test_blocks_do_not_change_the_answer(trial, monkeypatch):
    domain, grid, rule = trial.prepared()
    sweeps = jax_sweeps(domain, grid, rule, jax.devices()[:1])
    assert isinstance(sweeps, JaxSweeps)
    at_a_time = 4
    assert sweeps.points % at_a_time
    monkeypatch.setattr("actiongap.grid.accelerated.BLOCK_ENTRIES", at_a_time * sweeps.form.entries)
    assert_as_by_arrays(sweeps, domain, grid, rule)


def test_sweeps_can_be_made_a_few_at_a_time():
    domain, grid, rule = Trial(stroll, 9, "consistent").prepared()
    sweeps, q = jax_sweeps(domain, grid, rule), random_q(domain, grid)
    whole, residual = swept(sweeps, q, 3, 5)
    table, _ = sweeps.advance(sweeps.put(q), 3, 2)
    table, last = sweeps.advance(table, 5, 3)
    np.testing.assert_allclose(sweeps.get(table), whole, rtol=0, atol=1e-6)
    assert last == pytest.approx(residual, rel=1e-5)
    expected = q
    for number in range(3, 8):
        expected = by_arrays(domain, grid, rule, expected, number)
    assert_close(whole, expected)
    assert not np.allclose(whole, swept(sweeps, q, 4, 5)[0], atol=1e-3)  # other sweeps have other draws


@pytest.mark.parametrize("trial", [CONTRACTED[4], GATHERED[1]], ids=str)
def test_what_is_put_is_what_one_gets(trial):
    domain, grid, rule = trial.prepared()
    sweeps, q = jax_sweeps(domain, grid, rule), random_q(domain, grid).astype(np.float32)
    np.testing.assert_array_equal(sweeps.get(sweeps.put(q)), q)


def test_an_operator_of_ones_own_is_swept():
    def cautious(b):
        return where(b.gap > 0.5, b.bellman - 0.1 * b.gap, b.bellman)

    for make, n in ((cart_pole, 3), (stroll, 9)):
        domain = make()
        grid, rule = Grid(domain.axes(n)), Rule(parse(cautious), domain.gamma, 0.3)
        assert_as_by_arrays(jax_sweeps(domain, grid, rule), domain, grid, rule)
        plain = by_arrays(domain, grid, Rule(parse("bellman"), domain.gamma, 0.3), random_q(domain, grid), FIRST)
        assert not np.allclose(by_arrays(domain, grid, rule, random_q(domain, grid), FIRST), plain, atol=1e-3)


@pytest.mark.parametrize("make", [cart_pole, stroll])
def test_what_an_operator_raises_comes_through(make):
    def broken(b):
        raise RuntimeError("no operator after all")

    domain = make()
    grid = Grid(domain.axes(3))
    sweeps = jax_sweeps(domain, grid, Rule(parse(broken), domain.gamma))
    with pytest.raises(RuntimeError, match="^no operator after all$"):
        swept(sweeps, random_q(domain, grid))


def fitful() -> Domain:
    """Nine values of noise, evenly spaced, all lead to the same place, and hardly any other does."""

    def lively(x, a, u):
        return Outcome((x[0] + 2.5 * sin(8 * np.pi * u),), 1.0 * a + x[0], False)

    def quiet(x, a, u):
        return Outcome((x[1] + 0.1 * x[0],), 0.0 * x[1], False)

    factors = (Factor((0,), (0,), (0, 1), True, lively), Factor((1,), (0, 1), (0, 0), False, quiet))
    axes = (uniform(0.0, 11.0, 12), uniform(0.0, 1.0, 3))
    return Domain("fitful", ("place", "other"), ("a", "b"), factors, lambda n: axes, 0.9, Uniform(0.0, 1.0))


@pytest.mark.parametrize("operator", ["bellman", "consistent", "pal:0.9", "lazy:0.5"])
def test_a_step_that_leads_further_than_was_tried_gives_no_number_rather_than_a_wrong_one(operator):
    domain = fitful()
    grid, rule = Grid(domain.axes(0)), Rule(parse(operator), domain.gamma, 0.3)
    sweeps, q = jax_sweeps(domain, grid, rule), random_q(domain, grid)
    found, residual = swept(sweeps, q, FIRST, 1)
    is_lost = np.isnan(found)
    assert 0.2 < is_lost.mean() < 0.9
    assert np.isnan(residual)
    assert_close(found[~is_lost], by_arrays(domain, grid, rule, q, FIRST)[~is_lost])


def test_the_kernel_follows_noise_wherever_it_leads():
    domain = fitful()
    grid, rule = Grid(domain.axes(0)), Rule(parse("consistent"), domain.gamma, 0.3)
    assert_as_by_arrays(by_kernel(domain, grid, rule), domain, grid, rule)


def start(devices: int, *arguments: object) -> subprocess.Popen:
    """The program beside this file, with so many virtual devices."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    # Compiling takes nearly all of the time.
    settings = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(processes: list[subprocess.Popen]) -> None:
    """Wait for all to end well, and let none outlive the wait."""
    try:
        said = [process.communicate(timeout=120)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(said)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def shared_out(tmp_path_factory) -> dict[str, np.ndarray]:
    """Every case as one process with four devices sweeps it."""
    file = tmp_path_factory.mktemp("devices") / "found.npz"
    finish([start(4, file)])
    return dict(np.load(file))


@pytest.mark.parametrize("name", CASES)
def test_devices_do_not_change_the_answer(name, shared_out):
    alone = shared_out[f"{name} 1 q"]
    domain, grid, rule = CASES[name].prepared()
    once = by_arrays(domain, grid, rule, CASES[name].random_q(), FIRST)
    assert_close(alone, by_arrays(domain, grid, rule, once, FIRST + 1))
    for count in CASES[name].counts:
        np.testing.assert_allclose(shared_out[f"{name} {count} q"], alone, rtol=0, atol=1e-6)
        assert shared_out[f"{name} {count} residual"] == pytest.approx(float(shared_out[f"{name} 1 residual"]), rel=1e-5)


def test_devices_hand_on_what_neighbours_need_where_that_is_enough(shared_out):
    def halo(name, count):
        return int(shared_out[f"{name} {count} halo"])

    assert [halo("sled", count) for count in (2, 3)] == [3, 3]
    assert halo("sled", 4) == -1  # two slabs each, and steps lead three away
    assert halo("around", 3) == -1
    assert halo("cart-pole", 4) == 1  # five slabs: two, two, one and none
    assert halo("pendulum", 2) == -1


def test_two_processes_sweep_as_one_does(shared_out, tmp_path):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
    files = [tmp_path / f"{number}.npz" for number in range(2)]
    finish([start(2, file, address, number) for number, file in enumerate(files)])
    for file in files:
        found = dict(np.load(file))
        for name in TOGETHER:
            np.testing.assert_allclose(found[f"{name} 4 q"], shared_out[f"{name} 4 q"], rtol=0, atol=1e-6)
            assert found[f"{name} 4 residual"] == pytest.approx(float(shared_out[f"{name} 4 residual"]), rel=1e-5)
            assert found[f"{name} 4 halo"] == shared_out[f"{name} 4 halo"]
