"""The bicycle and its sweeps against `reference_bicycle`, an independent implementation of both."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import pi

import numpy as np
import pytest

import reference_bicycle as plain
from actiongap.envs.bicycle import CORRECTED_C, State, bicycle, dynamics, features, standing, step_function
from actiongap.maths import floor, where
from actiongap.operators import Operator, parse
from actiongap.planning._jax_sweeps import jax_sweeps
from actiongap.planning._numba_sweeps import cpu_sweeps
from actiongap.planning.backups import SweepConfig, interpolated_backups, noise_of
from actiongap.planning.grid import Grid
from actiongap.planning.noise import UINT32, noise_key, random_uniform
from actiongap.planning.simulator import Simulator, one_step

OPERATORS = ("bellman", "consistent", "al:0.1", "pal:0.1", "pal:0.9", "pal-dqn:0.5")
EVERY_ACTION = np.arange(plain.ACTIONS)
SEED, SWEEP, ETA = 3, 5, 0.1
PAPER = plain.Rewards()
REWARDS = {
    "paper": ({}, PAPER),
    "paper, once": ({"fall": "once"}, plain.Rewards(fall="once")),
    "corrected": ({"c": CORRECTED_C}, plain.Rewards(c=plain.C_LARGEST)),
    "corrected, once": ({"c": CORRECTED_C, "fall": "once"}, plain.Rewards(c=plain.C_LARGEST, fall="once")),
    "randlov": ({"reward": "randlov"}, plain.Rewards("randlov")),
    "randlov, once": ({"reward": "randlov", "fall": "once"}, plain.Rewards("randlov", fall="once")),
}
"""Options of the library, and the same options of the reference."""


def often(rng, values: np.ndarray, special: tuple[float, ...]) -> np.ndarray:
    """The values, with one in five replaced by a special value."""
    return np.where(rng.random(values.shape) < 0.2, rng.choice(special, values.shape), values)


def seen_from(goal, pose: plain.Pose) -> State:
    """A pose as a state of the simulator: the frame, and the front wheel relative to the goal."""
    return State(*pose[:4], pose.xf - pose.xb, pose.yf - pose.yb, pose.xf - goal[0], pose.yf - goal[1])


def largest(found, expected) -> float:
    return max(float(np.abs(np.asarray(one) - other).max()) for one, other in zip(found, expected, strict=True))


def test_steps_match_the_reference():
    rng, n, goal = np.random.default_rng(0), 100_000, (350.0, -120.0)
    omega, omega_dot, theta_dot = (rng.uniform(-reach, reach, n) for reach in (0.25, 0.7, 3.0))
    theta = often(rng, rng.uniform(-plain.BAR_LIMIT, plain.BAR_LIMIT, n), (-plain.BAR_LIMIT, 0.0, plain.BAR_LIMIT))
    psi, bearing = often(rng, rng.uniform(-pi, pi, n), (-pi, 0.0, pi)), rng.uniform(-pi, pi, n)
    d = np.where(rng.random(n) < 0.3, rng.uniform(9.95, 10.05, n), rng.uniform(10.0, 1300.0, n))
    length = plain.WHEELBASE + rng.uniform(-0.02, 0.02, n)
    xf, yf = goal[0] + d * np.sin(bearing), goal[1] + d * np.cos(bearing)
    xb, yb = xf + length * np.sin(psi), yf - length * np.cos(psi)
    pose = plain.Pose(*(number[:, None] for number in (omega, omega_dot, theta, theta_dot, xf, yf, xb, yb)))
    noise = rng.uniform(-plain.NOISE, plain.NOISE, (n, plain.ACTIONS))
    after, found = plain.step(pose, EVERY_ACTION, noise), dynamics(seen_from(goal, pose), EVERY_ACTION, noise)
    assert largest(found, seen_from(goal, after)) < 1e-11
    expected = np.moveaxis(plain.features(after, goal), -1, 0)
    *rest, psi, d = features(found)
    assert largest((*rest, d), np.delete(expected, 4, axis=0)) < 1e-11
    assert np.abs(plain.wrap(psi - expected[4])).max() < 1e-11
    for name in ("corrected, once", "randlov, once"):
        options, rewards = REWARDS[name]
        paid = step_function(**{key: value for key, value in options.items() if key != "fall"})(seen_from(goal, pose), EVERY_ACTION, noise)
        reward, over = plain.outcome(plain.features(after, goal), rewards, 0.99)
        np.testing.assert_array_equal(paid.ended, over)
        np.testing.assert_allclose(paid.reward, reward, rtol=0, atol=1e-12)
    repaired = np.abs(np.hypot(found.frame_x, found.frame_y) - plain.WHEELBASE) < 1e-9
    assert 0.2 < repaired.mean() < 0.8


def test_two_thousand_steps_match_the_reference():
    """Swerving episodes. The rider leans against every fall, which keeps small differences small."""
    rng, episodes, goal = np.random.default_rng(1), 50, (0.0, 1000.0)
    psi = np.linspace(-3.0, 3.0, episodes)
    pose = plain.pose_at(np.stack([0 * psi, 0 * psi, 0 * psi, 0 * psi, psi, 0 * psi + 1000.0], axis=-1))
    state = standing(psi)
    swerves = 0.0
    for t in range(2000):
        wanted = 0.6 * np.sin(2 * pi * (t / 700 + np.arange(episodes) / episodes)) - pose.theta - 0.4 * pose.theta_dot
        torque = np.where(np.abs(wanted) < 0.05, 0, np.sign(wanted)).astype(int)
        action, noise = 3 * (torque + 1) + rng.integers(0, 3, episodes), rng.uniform(-plain.NOISE, plain.NOISE, episodes)
        lean, same = (0.665 * x.theta - 2.76 * x.omega - 1.22 * x.omega_dot for x in (pose, state))
        pose, state = plain.step(pose, action, noise + lean), dynamics(state, action, noise + same)
        swerves = max(swerves, np.abs(pose.theta).max())
    assert np.abs(pose.omega).max() < plain.TILT_LIMIT
    assert swerves > 0.4
    assert largest(state, seen_from(goal, pose)) < 1e-6


@cache
def points_of_all_kinds() -> tuple[np.ndarray, np.ndarray]:
    """Random features, often at an edge of the grid, and noise for every action."""
    rng, n = np.random.default_rng(2), 100_000
    columns = []
    for low, high in zip(plain.LOW, plain.HIGH, strict=True):
        columns.append(often(rng, rng.uniform(low, high, n), (low, high)))
    columns[5] = np.where(rng.random(n) < 0.2, rng.uniform(10.0, 10.05, n), columns[5])
    return np.stack(columns, axis=-1), rng.uniform(-plain.NOISE, plain.NOISE, (n, plain.ACTIONS))


@cache
def steps_from_them() -> np.ndarray:
    points, noise = points_of_all_kinds()
    return plain.step_from(points[:, None, :], EVERY_ACTION, noise)


@pytest.mark.parametrize("name", REWARDS)
def test_steps_from_grid_points_match_the_reference(name):
    (options, rewards), (points, noise), after = REWARDS[name], points_of_all_kinds(), steps_from_them()
    found = one_step(bicycle(**options))(tuple(points.T[:, :, None]), EVERY_ACTION, noise)
    for i in (0, 1, 2, 3, 5):
        assert np.abs(found.x[i] - after[..., i]).max() < 1e-11
    assert np.abs(plain.wrap(found.x[4] - after[..., 4])).max() < 1e-11
    assert -pi <= found.x[4].min() <= found.x[4].max() < pi
    reward, over = plain.outcome(after, rewards, 0.99)
    np.testing.assert_array_equal(found.ended, over)
    np.testing.assert_allclose(found.reward, reward, rtol=0, atol=1e-12)


def test_sampled_points_have_all_outcomes():
    after = steps_from_them()
    fallen, near = np.abs(after[..., 0]) > plain.TILT_LIMIT, after[..., 5] <= plain.GOAL_RADIUS
    points, _ = points_of_all_kinds()
    tilted, rim, seam = np.abs(points[:, 0]) == plain.TILT_LIMIT, points[:, 5] == 10.0, np.abs(points[:, 4]) == pi
    crossed = np.sign(after[..., 4]) != np.sign(points[:, 4, None])
    for kind in (fallen & near, near & ~fallen, tilted[:, None] & fallen, rim[:, None] & near, seam[:, None] & crossed):
        assert kind.sum() > 1000
    for kind in (tilted[:, None] & ~fallen, rim[:, None] & ~near, seam[:, None] & ~crossed):
        assert kind.sum() > 1000


@cache
def grid_and_table(n: int) -> tuple[Grid, np.ndarray]:
    """A grid, and a random table that is exact in single precision."""
    q = np.random.default_rng(n).standard_normal(((n**6), plain.ACTIONS)).astype(np.float32)
    return Grid(bicycle().axes(n)), q.astype(float)


def noise_by_place(simulator: Simulator, grid: Grid, config: SweepConfig) -> np.ndarray:
    """The noise that all engines draw for every sample and pair in sweep `SWEEP`, (samples, *grid, actions)."""
    strides, key = noise_of(simulator, grid, config).strides, np.uint32(noise_key(config.seed, SWEEP))
    place = np.tensordot(strides, np.indices(grid.shape), axes=1)
    pair = place[..., None] * plain.ACTIONS + EVERY_ACTION
    draws = [random_uniform(key, (pair * config.samples + k).astype(np.uint32), UINT32) for k in range(config.samples)]
    return plain.NOISE * (2 * np.stack(draws) - 1)


@cache
def expected_terms(n: int, rewards: plain.Rewards, samples: int, shared: bool, of_values: bool) -> plain.Terms:
    grid, q = grid_and_table(n)
    noise = noise_by_place(bicycle(), grid, SweepConfig(parse("bellman"), 0.99, samples=samples, shared=shared, seed=SEED))
    return plain.terms(q.reshape(*grid.shape, -1), noise, rewards, 0.99, "v" if of_values else "q")


def expected_sweep(n: int, operator: str, rewards=PAPER, samples=1, shared=False, of_values=False) -> np.ndarray:
    terms = expected_terms(n, rewards, samples, shared, of_values)
    return ((1 - ETA) * terms.q + ETA * plain.operate(operator, terms)).reshape(-1, plain.ACTIONS)


@pytest.mark.parametrize(
    ("name", "samples", "of_values"),
    [
        ("paper", 1, False),
        ("corrected, once", 1, False),
        ("randlov", 1, False),
        ("paper", 1, True),
        ("paper", 2, False),
        ("paper", 2, True),
    ],
)
def test_a_sweep_on_arrays_matches_the_reference(name, samples, of_values):
    (grid, q), (options, rewards) = grid_and_table(4), REWARDS[name]
    simulator = bicycle(**options)
    noise = noise_by_place(simulator, grid, SweepConfig(parse("bellman"), 0.99, samples=samples, seed=SEED))
    drawn = [(u.reshape(q.shape), 1 / samples) for u in noise]
    found = interpolated_backups(one_step(simulator), grid, q, np.arange(grid.size), grid.points(), drawn, 0.99, of_values)
    for operator in OPERATORS:
        if samples > 1 and operator.startswith("pal-dqn"):
            continue  # The reference takes the smaller gap for each next state; sweeps take it of the averages.
        expected = expected_sweep(4, operator, rewards, samples, of_values=of_values)
        np.testing.assert_allclose((1 - ETA) * q + ETA * parse(operator)(found), expected, rtol=0, atol=1e-12)


def choice(q):
    """Index of a pair's operator, from a few bits of its value that both precisions store exactly."""
    return floor(8.0 * q) % len(OPERATORS)


def patchwork(b):
    """All operators in one, because compiling a kernel takes seconds."""
    which, value = choice(b.q), bellman(b)
    value = where(which == 1, consistent(b), value)
    value = where(which == 2, al(b), value)
    value = where(which == 3, pal(b), value)
    value = where(which == 4, eager_pal(b), value)
    return where(which == 5, pal_dqn(b), value)


bellman, consistent, al, pal, eager_pal, pal_dqn = (parse(operator).apply for operator in OPERATORS)
PATCHWORK = Operator("patchwork", patchwork)


def expected_patchwork(n: int, **way) -> np.ndarray:
    which = choice(grid_and_table(n)[1])
    return np.choose(which.astype(int), [expected_sweep(n, operator, **way) for operator in OPERATORS])


def test_the_mixed_operator_uses_every_operator_often():
    assert np.bincount(choice(grid_and_table(4)[1]).astype(int).ravel()).min() > 5000


def whole(simulator: Simulator) -> Simulator:
    """The same simulator as a single factor, which is swept by gathering."""
    return replace(simulator, step=one_step(simulator))


ENGINES = {
    "numba": lambda grid, config: cpu_sweeps(bicycle(), grid, config, np.float64),
    "numba, float32": lambda grid, config: cpu_sweeps(bicycle(), grid, config),
    "numba, general": lambda grid, config: cpu_sweeps(whole(bicycle()), grid, config, np.float64),
    "jax": lambda grid, config: jax_sweeps(bicycle(), grid, config),
}
WAYS = {
    "one sample": {},
    "two samples": {"samples": 2},
    "shared": {"shared": True, "samples": 2},
    "shared, of values": {"shared": True, "samples": 2, "of_values": True},
}


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("engine", "way"),
    [
        ("numba", "one sample"),
        ("numba, float32", "shared, of values"),
        ("numba, general", "two samples"),
        ("jax", "one sample"),
        ("jax", "shared"),
    ],
)
def test_a_sweep_of_each_engine_matches_the_reference(engine, way):
    grid, q = grid_and_table(4)
    sweeps = ENGINES[engine](grid, SweepConfig(PATCHWORK, 0.99, ETA, seed=SEED, **WAYS[way]))
    table, residual = sweeps.advance(sweeps.put(q), SWEEP, 1)
    found, expected = sweeps.get(table), expected_patchwork(4, **WAYS[way])
    compared = choice(q) < (6 if "samples" not in WAYS[way] else 5)  # As above: not pal-dqn.
    tolerance = 1e-12 if found.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(found[compared], expected[compared], rtol=tolerance, atol=tolerance / 10)
    assert residual == pytest.approx(np.abs(expected - q).max() / ETA, rel=1e-4)


def test_operators_that_read_few_fields():
    """Kernels may skip fields that their operator does not read."""
    grid, q = grid_and_table(4)
    sweeps = ENGINES["numba"](grid, SweepConfig(parse("bellman"), 0.99, ETA, seed=SEED, of_values=True))
    table, _ = sweeps.advance(sweeps.put(q), SWEEP, 1)
    np.testing.assert_allclose(sweeps.get(table), expected_sweep(4, "bellman", of_values=True), rtol=0, atol=1e-12)
