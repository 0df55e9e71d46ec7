"""The bicycle against a second implementation in absolute coordinates, and its known properties."""

from __future__ import annotations

import itertools
import math
from math import pi
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from actiongap._numba import compile_function
from actiongap.envs.bicycle import (
    ACTIONS,
    CORRECTED_C,
    PRINTED_C,
    STARTS,
    State,
    bicycle,
    dynamics,
    evenly_spaced,
    features,
    heading,
    initial_state,
    standing,
    step_function,
)
from actiongap.planning.simulator import NO_NOISE, Uniform, one_step


def sign(x):
    return 1 if x > 0 else -1 if x < 0 else 0


def reference(omega, omega_dot, theta, theta_dot, front, back, a, u):
    """One step in absolute coordinates: the next angles and contacts."""
    torque, displacement = 2.0 * (a // 3 - 1), 0.02 * (a % 3 - 1) + u
    m_c, m_d, m_p, r, h, l, c, v, dt, g = 15.0, 1.7, 60.0, 0.34, 0.94, 1.11, 0.66, 10 / 3.6, 0.01, 9.82  # noqa: E741
    m = m_c + m_p
    i_bc, i_dc, i_dv, i_dl = 13 / 3 * m_c * h**2 + m_p * (h + 0.3) ** 2, m_d * r**2, 1.5 * m_d * r**2, 0.5 * m_d * r**2
    sigma_dot = v / r
    if theta == 0:
        per_rf = per_rb = per_rcm = 0.0
    else:
        per_rf, per_rb = abs(math.sin(theta)) / l, abs(math.tan(theta)) / l
        per_rcm = 1 / math.sqrt((l - c) ** 2 + 1 / per_rb**2)
    phi = omega + math.atan(displacement / h)
    inward = i_dc * sigma_dot * theta_dot + sign(theta) * v**2 * (m_d * r * (per_rf + per_rb) + m * h * per_rcm)
    omega_ddot = (m * h * g * math.sin(phi) - math.cos(phi) * inward) / i_bc
    theta_ddot = (torque - i_dv * sigma_dot * omega_dot) / i_dl
    psi = math.atan2(back[0] - front[0], front[1] - back[1])
    omega_dot += dt * omega_ddot
    omega += dt * omega_dot
    theta_dot += dt * theta_ddot
    theta = min(max(theta + dt * theta_dot, -4 * pi / 9), 4 * pi / 9)
    turned_f = psi + theta + sign(psi + theta) * math.asin(min(1.0, v * dt * per_rf / 2))
    turned_b = psi + sign(psi) * math.asin(min(1.0, v * dt * per_rb / 2))
    front = front[0] - v * dt * math.sin(turned_f), front[1] + v * dt * math.cos(turned_f)
    back = back[0] - v * dt * math.sin(turned_b), back[1] + v * dt * math.cos(turned_b)
    length = math.hypot(front[0] - back[0], front[1] - back[1])
    if abs(length - l) > 0.01:
        back = tuple(f - (f - b) * l / length for f, b in zip(front, back, strict=True))
    return omega, omega_dot, theta, theta_dot, front, back


def heading_and_distance(front, back, goal):
    psi = math.atan2(back[0] - front[0], front[1] - back[1])
    beta = math.atan2(-(goal[0] - front[0]), goal[1] - front[1])
    return (psi - beta + pi) % (2 * pi) - pi, math.hypot(goal[0] - front[0], goal[1] - front[1])


def score(omega, psi, d, fall=-PRINTED_C):
    if abs(omega) > pi / 15:
        return fall, True
    if d <= 10:
        return 1.0, True
    return (pi**2 / 4 - psi**2 - 1) * 0.001, False


def random_angles(rng, n):
    return [rng.uniform(-limit, limit, n) for limit in (0.21, 0.6, 1.39, 3.0)]


def random_states(rng, n, slack=0.03):
    """States all around the goal, some near it, and some with a frame of the wrong length."""
    psi, bearing = rng.uniform(-pi, pi, (2, n))
    length, d = 1.11 + rng.uniform(-slack, slack, n), np.where(rng.random(n) < 0.2, rng.uniform(9.95, 10.05, n), rng.uniform(10, 1500, n))
    place = (-length * np.sin(psi), length * np.cos(psi), d * np.sin(bearing), d * np.cos(bearing))
    return State._make([*random_angles(rng, n), *place])


def random_features(rng, n):
    psi = np.where(rng.random(n) < 0.1, rng.choice([-pi, pi, 0.0], n), rng.uniform(-pi, pi, n))
    d = np.where(rng.random(n) < 0.2, rng.uniform(10, 10.05, n), rng.uniform(10, 1200, n))
    return (*random_angles(rng, n), psi, d)


def random_inputs(rng, n):
    return rng.integers(0, 9, n), rng.uniform(-0.02, 0.02, n)


def expected_of_states(state, a, u, goal=(350.0, -120.0)):
    """Rows of next state, reward and end by the reference, for a given position of the goal."""
    rows = []
    for omega, omega_dot, theta, theta_dot, frame_x, frame_y, x, y, action, noise in zip(*state, a, u, strict=True):
        front = goal[0] + x, goal[1] + y
        back = front[0] - frame_x, front[1] - frame_y
        *angles, front, back = reference(omega, omega_dot, theta, theta_dot, front, back, action, noise)
        reward, ended = score(angles[0], *heading_and_distance(front, back, goal))
        rows.append((*angles, front[0] - back[0], front[1] - back[1], front[0] - goal[0], front[1] - goal[1], reward, ended))
    return np.array(rows).T


def expected_of_features(phi, a, u, fall=-PRINTED_C / 0.01):
    rows = []
    for omega, omega_dot, theta, theta_dot, psi, d, action, noise in zip(*phi, a, u, strict=True):
        back = 1.11 * math.sin(psi), -1.11 * math.cos(psi)
        *angles, front, back = reference(omega, omega_dot, theta, theta_dot, (0.0, 0.0), back, action, noise)
        psi, d = heading_and_distance(front, back, (0.0, d))
        rows.append((*angles, psi, d, *score(angles[0], psi, d, fall)))
    return np.array(rows).T


def flat(outcome):
    numbers = np.broadcast_arrays(*outcome.x, outcome.reward, outcome.ended)
    return np.array(numbers, float)


def around(angle):
    return (angle + pi) % (2 * pi) - pi


def test_simulator_matches_the_reference():
    rng = np.random.default_rng(0)
    state, (a, u) = random_states(rng, 4000), random_inputs(rng, 4000)
    expected = expected_of_states(state, a, u)
    assert 0.05 < expected[-1].mean() < 0.5
    np.testing.assert_allclose(flat(step_function()(state, a, u)), expected, rtol=0, atol=1e-9)


def test_planning_problem_matches_the_reference():
    rng = np.random.default_rng(1)
    phi, (a, u) = random_features(rng, 4000), random_inputs(rng, 4000)
    found, expected = flat(one_step(bicycle())(phi, a, u)), expected_of_features(phi, a, u)
    found[4], expected[4] = around(found[4] - expected[4]), 0.0
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_single_precision_is_accurate():
    rng = np.random.default_rng(2)
    state, phi, (a, u) = random_states(rng, 4000), random_features(rng, 4000), random_inputs(rng, 4000)
    # The float32 nearest to pi is above pi, a heading to the other side.
    phi = (*phi[:4], np.clip(phi[4], -3.14, 3.14), phi[5])
    state, phi, u = State(*(n.astype(np.float32) for n in state)), tuple(n.astype(np.float32) for n in phi), u.astype(np.float32)
    moved, planned = step_function()(state, a, u), one_step(bicycle())(phi, a, u)
    assert {number.dtype for number in (*moved.x, moved.reward, *planned.x, planned.reward)} == {np.dtype(np.float32)}
    # The same numbers as in single precision, in double precision.
    wide = [[number.astype(float) for number in numbers] for numbers in (state, phi, [u])]
    expected = expected_of_states(wide[0], a, wide[2][0])
    sure = np.abs(np.hypot(expected[6], expected[7]) - 10) > 1e-4
    sure &= np.abs(np.abs(expected[0]) - pi / 15) > 1e-6
    np.testing.assert_allclose(flat(moved)[:, sure], expected[:, sure], rtol=1e-4, atol=1e-5)
    expected, found = expected_of_features(wide[1], a, wide[2][0]), flat(planned)
    found[4], expected[4] = around(found[4] - expected[4]), 0.0
    sure = (np.abs(expected[5] - 10) > 1e-4) & (np.abs(np.abs(expected[0]) - pi / 15) > 1e-6)
    np.testing.assert_allclose(found[:, sure], expected[:, sure], rtol=1e-4, atol=1e-5)


def test_a_grid_point_matches_the_simulator_with_the_goal_due_north():
    rng = np.random.default_rng(3)
    phi, (a, u) = random_features(rng, 500), random_inputs(rng, 500)
    omega, omega_dot, theta, theta_dot, psi, d = phi
    state = standing(psi, north=-d)._replace(omega=omega, omega_dot=omega_dot, theta=theta, theta_dot=theta_dot)
    expected, found = features(dynamics(state, a, u)), one_step(bicycle())(phi, a, u).x
    np.testing.assert_allclose(around(found[4] - expected[4]), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.delete(found, 4, 0), np.delete(expected, 4, 0), atol=1e-10)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_factors_depend_on_their_inputs_only(which):
    factor = bicycle().factors[which]
    rng = np.random.default_rng(4)
    phi, (a, u) = random_features(rng, 500), random_inputs(rng, 500)
    other, (b, w) = random_features(rng, 500), random_inputs(rng, 500)
    before = flat(factor.step(phi, a, u))
    changed = tuple(phi[i] if i in factor.inputs else other[i] for i in range(6))
    alike = np.array([rng.choice([b for b in range(9) if factor.parts[b] == factor.parts[action]]) for action in a])
    assert (alike != a).any()
    np.testing.assert_array_equal(flat(factor.step(changed, alike, u if factor.noisy else w)), before)
    for i in factor.inputs:
        assert (flat(factor.step(tuple(other[j] if j == i else phi[j] for j in range(6)), a, u)) != before).any()
    assert (flat(factor.step(phi, b, u)) != before).any()
    assert (flat(factor.step(phi, a, w)) != before).any() == factor.noisy


def test_the_split_step_of_the_tilt_matches_the_reference():
    """Up to rounding, also if the first half is stored in single precision."""
    balance, *others = bicycle().factors
    assert balance.split is not None
    assert all(factor.split is None for factor in others)
    rng = np.random.default_rng(7)
    phi, (a, u) = random_features(rng, 4000), random_inputs(rng, 4000)
    known, expected = balance.split.before(phi, a), expected_of_features(phi, a, u)
    outcome = balance.split.after(known, u)
    np.testing.assert_allclose(outcome.x, expected[:2], rtol=0, atol=3e-16)
    np.testing.assert_array_equal(flat(outcome), flat(balance.step(phi, a, u)))
    np.testing.assert_array_equal(outcome.ended, np.abs(expected[0]) > pi / 15)
    np.testing.assert_allclose(outcome.reward, np.where(outcome.ended, -PRINTED_C / 0.01, 0.0), rtol=1e-12)
    before, after = compile_function(balance.split.before), compile_function(balance.split.after)
    for i in range(0, 4000, 100):
        one = after(before(tuple(float(number[i]) for number in phi), int(a[i])), float(u[i]))
        np.testing.assert_allclose(flat(one), flat(outcome)[:, i], rtol=0, atol=1e-15)
    narrow = balance.split.after(tuple(number.astype(np.float32) for number in known), u.astype(np.float32))
    assert {number.dtype for number in (*narrow.x, narrow.reward)} == {np.dtype(np.float32)}
    np.testing.assert_allclose(narrow.x, expected[:2], rtol=0, atol=2e-7)


def test_the_second_half_of_the_tilt_is_cheap():
    split = bicycle().factors[0].split
    assert split is not None
    known = split.before(tuple(jnp.zeros(3) for _ in range(6)), jnp.zeros(3, int))
    done = [equation.primitive.name for equation in jax.make_jaxpr(split.after)(known, jnp.zeros(3)).eqns]
    assert not {"sin", "cos", "tan", "atan2"} & set(done)
    assert (done.count("sqrt"), done.count("div")) == (1, 1)


def test_libraries_and_numba_agree():
    rng = np.random.default_rng(5)
    state, phi, (a, u) = random_states(rng, 300), random_features(rng, 300), random_inputs(rng, 300)
    problems: list[Any] = [(step_function(), state, State._make), (one_step(bicycle()), phi, tuple)]
    for step, x, wrap in problems:
        expected = flat(step(x, a, u))
        compiled = compile_function(step)
        rows = [compiled(wrap(map(float, row)), int(action), float(noise)) for *row, action, noise in zip(*x, a, u, strict=True)]
        np.testing.assert_allclose(np.array([flat(row) for row in rows]).T, expected, atol=1e-12)
        rows = [step(wrap(map(float, row)), int(action), float(noise)) for *row, action, noise in zip(*x, a, u, strict=True)]
        np.testing.assert_allclose(np.array([flat(row) for row in rows]).T, expected, atol=1e-12)
        with jax.enable_x64(True):
            found = flat(jax.jit(step)(wrap(jnp.asarray(n) for n in x), jnp.asarray(a), jnp.asarray(u)))
        np.testing.assert_allclose(found, expected, atol=1e-12)
        np.testing.assert_allclose(flat(step(wrap(torch.asarray(n) for n in x), torch.asarray(a), torch.asarray(u))), expected, atol=1e-12)


def test_effects_of_actions_and_noise():
    still = standing(0.0)
    by_torque = [float(dynamics(still, a, 0.0).theta_dot) for a in (1, 4, 7)]
    assert by_torque == pytest.approx([-0.2035, 0.0, 0.2035], abs=1e-4)
    # If the rider leans left, the bicycle falls to the left, and the handlebar turns against the rate of the tilt.
    assert float(dynamics(still, 3, 0.0).omega_dot) < 0 < float(dynamics(still, 5, 0.0).omega_dot)
    assert float(dynamics(still, 4, 0.02).omega_dot) == pytest.approx(0.00098, abs=1e-5)
    assert float(dynamics(still._replace(omega_dot=1.0), 4, 0.0).theta_dot) == pytest.approx(-0.245, abs=1e-3)
    assert float(dynamics(still, 4, 0.0).y - still.y) == pytest.approx(0.027778, abs=1e-6)
    assert ACTIONS[0] == "steer right, lean right"
    assert ACTIONS[5] == "hold, lean left"


def test_the_handlebar_keeps_its_rate_at_the_stop():
    after = dynamics(standing(0.0)._replace(theta=1.39, theta_dot=3.0), 7, 0.0)
    assert after.theta == pytest.approx(4 * pi / 9)
    assert float(after.theta_dot) == pytest.approx(3.2035, abs=1e-4)


def test_arcs_bend_by_the_sign_of_the_heading():
    """With the same handlebar, the turn depends slightly on the heading; with a straight handlebar it does not."""

    def turned(psi, theta):
        state = standing(psi)._replace(theta=theta)
        return float(around(heading(dynamics(state, 4, 0.0)) - psi))

    assert turned(0.5, 0.3) != pytest.approx(turned(-0.5, 0.3), rel=1e-3)
    assert turned(0.5, 0.3) == pytest.approx(turned(0.9, 0.3), rel=1e-9)
    assert turned(0.5, 0.3) == pytest.approx(-turned(-0.5, -0.3), rel=1e-9)
    assert turned(0.5, 0.0) == pytest.approx(0.0, abs=1e-15)
    # At heading 0 the back wheel rolls straight ahead.
    after = dynamics(standing(0.0)._replace(theta=0.3), 4, 0.0)
    assert float(after.x - after.frame_x) == pytest.approx(0.0, abs=1e-15)


def test_the_wheelbase_is_repaired_beyond_a_centimetre():
    def length_after(length):
        state = standing(0.7)
        after = dynamics(state._replace(frame_x=state.frame_x * length / 1.11, frame_y=state.frame_y * length / 1.11), 4, 0.0)
        return math.hypot(after.frame_x, after.frame_y)

    assert length_after(1.125) == pytest.approx(1.11, abs=1e-12)
    assert length_after(1.095) == pytest.approx(1.11, abs=1e-12)
    assert length_after(1.118) == pytest.approx(1.118, abs=1e-12)


def test_the_wheelbase_stays_within_its_slack_in_a_long_episode():
    """In single precision frame and position do not drift, in 2000 steps of a random walk of the handlebar."""
    rng = np.random.default_rng(6)
    single = State(*(np.asarray(n, np.float32) for n in initial_state("spread", evenly_spaced(20))))
    double = initial_state("spread", evenly_spaced(20))
    for _ in range(2000):
        theta = rng.uniform(-0.4, 0.4, 20)
        upright = {"omega": 0.0 * theta, "omega_dot": 0.0 * theta, "theta_dot": 0.0 * theta, "theta": theta}
        double = dynamics(double._replace(**upright), 4, 0.0)
        single = dynamics(single._replace(**{name: n.astype(np.float32) for name, n in upright.items()}), 4, 0.0)
    assert np.abs(np.hypot(double.frame_x, double.frame_y) - 1.11).max() <= 0.01 + 1e-12
    np.testing.assert_allclose(single.x, double.x, atol=0.3)
    np.testing.assert_allclose(single.y, double.y, atol=0.3)


def test_rewards_of_the_paper():
    pay = bicycle().factors[2].step

    def at(psi):
        return float(pay((0.0, 0.0, 0.0, 0.0, psi, 1000.0), 4, 0.0).reward)

    assert at(0.0) == pytest.approx(0.001467, abs=1e-6)
    assert at(1.211) == pytest.approx(0.0, abs=1e-6)
    assert at(pi / 2) == pytest.approx(-0.001, abs=1e-6)
    assert at(pi) == pytest.approx(-0.0084, abs=1e-5)
    assert pytest.approx((0.0064, 0.0084), abs=5e-6) == (PRINTED_C, CORRECTED_C)
    # The corrected cost is the maximum cost of a step.
    assert -at(pi) == pytest.approx(CORRECTED_C, abs=1e-6)


FALLING = (0.209, 1.0, 0.0, 0.0, 0.0, 1000.0)


@pytest.mark.parametrize(
    ("options", "paid"),
    [
        ({}, -0.6402),
        ({"fall": "once"}, -0.006402),
        ({"gamma": 0.9}, -0.06402),
        ({"c": CORRECTED_C}, -0.8402),
        ({"reward": "randlov", "fall": "once"}, -1.0),
        ({"reward": "randlov"}, -100.0),
    ],
)
def test_cost_of_falls(options, paid):
    outcome = one_step(bicycle(**options))(FALLING, 4, 0.0)
    assert outcome.ended
    assert float(outcome.reward) == pytest.approx(paid, rel=1e-4)


def test_rewards_of_randlov_and_alstrom():
    step = one_step(bicycle(reward="randlov"))
    assert float(step((0.0, 0.0, 0.0, 0.0, 0.0, 1000.0), 4, 0.0).reward) == pytest.approx(0.00016)
    assert float(step((0.0, 0.0, 0.0, 0.0, 0.0, 10.01), 4, 0.0).reward) == pytest.approx(0.01)


def test_goal_radius_and_precedence_of_falls():
    step = one_step(bicycle())
    assert not step((0.0, 0.0, 0.0, 0.0, 0.0, 10.03), 4, 0.0).ended
    there = step((0.0, 0.0, 0.0, 0.0, 0.0, 10.02), 4, 0.0)
    assert (float(there.reward), bool(there.ended)) == (1.0, True)
    # At the edge of the goal, heading away: not arrived.
    assert not step((0.0, 0.0, 0.0, 0.0, pi, 10.0), 4, 0.0).ended
    # At the maximum tilt, righting itself: not fallen.
    assert not step((pi / 15, -0.5, 0.0, 0.0, 0.0, 500.0), 4, 0.0).ended
    both = step((*FALLING[:5], 10.02), 4, 0.0)
    assert float(both.reward) == pytest.approx(-PRINTED_C / 0.01)
    simulated = step_function()(standing(0.0, north=-10.02)._replace(omega=0.209, omega_dot=1.0), 4, 0.0)
    assert float(simulated.reward) == pytest.approx(-PRINTED_C)


def test_axes_of_the_paper_with_tilt_and_handlebar_exchanged():
    simulator = bicycle()
    assert simulator.gamma == 0.99
    assert simulator.noise == Uniform(-0.02, 0.02)
    ends = [(axis.points[0], axis.points[-1], len(axis.points)) for axis in simulator.axes(10)]
    assert ends == [*((-reach, reach, 10) for reach in (pi / 15, 0.5, 4 * pi / 9, 2.0, pi)), (10.0, 1200.0, 10)]
    heading_axis = bicycle(periodic_heading=True).axes(10)[4]
    assert heading_axis.points[-1] < pi - 0.5
    assert heading_axis.period == pytest.approx(2 * pi)
    assert simulator.axes(10)[4].period is None


def test_noise_can_be_disabled():
    deterministic = bicycle(noise=False)
    assert deterministic.noise == NO_NOISE
    assert not any(factor.noisy for factor in deterministic.factors)


def test_initial_states():
    psi = features(initial_state("spread", evenly_spaced(100)))[4]
    np.testing.assert_allclose(np.diff(psi), 2 * pi / 100, atol=1e-12)
    assert np.abs(psi).max() < pi
    assert psi.sum() == pytest.approx(0.0, abs=1e-9)
    expected = {"spread": 0.0, "north": 0.0, "east": pi / 2}
    for start, share in itertools.product(STARTS, (0.0, np.zeros(3))):
        *angles, psi, d = features(initial_state(start, share))
        np.testing.assert_array_equal(angles, 0 * np.array(angles))
        np.testing.assert_allclose(psi, expected[start], atol=1e-12)
        np.testing.assert_allclose(d, 1000.0)
    assert heading(initial_state("east", 0.0)) == 0.0


@pytest.mark.parametrize("options", [{"fall": "twice"}, {"reward": "gold"}, {"gamma": 1.0}])
def test_bad_options_are_rejected(options):
    with pytest.raises(ValueError, match=r"choose from|give a number"):
        bicycle(**options)


def test_bad_starts_are_rejected():
    with pytest.raises(ValueError, match="choose from spread, north, east"):
        initial_state("south", 0.0)
