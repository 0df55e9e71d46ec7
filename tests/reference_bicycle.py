"""Reference implementation of the bicycle and of one sweep, in plain NumPy, written for clarity instead of speed.

It uses nothing of the library. The simulator keeps both wheel contacts in absolute coordinates and computes the heading from them.
Interpolation enumerates the 64 corners, and each operator is written from its definition for k samples. Tests compare the library's fast
forms (relative coordinates, tables, factored contractions, compiled kernels) with it.

Symbols: tilt `omega`, handlebar `theta`, front contact `(xf, yf)`, back contact `(xb, yb)`, all arrays that broadcast together.
"""

from __future__ import annotations

from itertools import product
from math import pi
from typing import NamedTuple

import numpy as np

DT = 0.01
SPEED = 10 / 3.6
GRAVITY = 9.82
FRONT_TO_CENTRE = 0.66
CENTRES_APART = 0.30
CENTRE_HEIGHT = 0.94
WHEELBASE = 1.11
BICYCLE_MASS, TYRE_MASS, RIDER_MASS = 15.0, 1.7, 60.0
MASS = BICYCLE_MASS + RIDER_MASS
TYRE_RADIUS = 0.34
TYRE_RATE = SPEED / TYRE_RADIUS
TILT_INERTIA = 13 / 3 * BICYCLE_MASS * CENTRE_HEIGHT**2 + RIDER_MASS * (CENTRE_HEIGHT + CENTRES_APART) ** 2
I_DC = TYRE_MASS * TYRE_RADIUS**2
I_DV = 3 / 2 * TYRE_MASS * TYRE_RADIUS**2
I_DL = 1 / 2 * TYRE_MASS * TYRE_RADIUS**2
TILT_LIMIT = pi / 15
BAR_LIMIT = 4 * pi / 9
GOAL_RADIUS = 10.0
NOISE = 0.02
ACTIONS = 9

LOW = np.array([-pi / 15, -0.5, -4 * pi / 9, -2.0, -pi, 10.0])
HIGH = np.array([pi / 15, 0.5, 4 * pi / 9, 2.0, pi, 1200.0])

C_PRINTED = (3 / 4 * pi**2 - 1) * 0.001
C_LARGEST = (3 / 4 * pi**2 + 1) * 0.001


class Pose(NamedTuple):
    """State of the simulator."""

    omega: np.ndarray
    omega_dot: np.ndarray
    theta: np.ndarray
    theta_dot: np.ndarray
    xf: np.ndarray
    yf: np.ndarray
    xb: np.ndarray
    yb: np.ndarray


def torque_and_lean(action):
    """Action index to torque in N m and displacement in m."""
    action = np.asarray(action)
    return 2.0 * (action // 3 - 1), 0.02 * (action % 3 - 1)


def heading(pose: Pose):
    """Absolute heading in (-pi, pi]; 0 is north, positive is anticlockwise."""
    return np.arctan2(pose.xb - pose.xf, pose.yf - pose.yb)


def step(pose: Pose, action, noise) -> Pose:
    """One step of 0.01 s."""
    torque, lean = torque_and_lean(action)
    omega, omega_dot, theta, theta_dot, xf, yf, xb, yb = pose
    inverse_rf = np.abs(np.sin(theta)) / WHEELBASE
    inverse_rb = np.abs(np.tan(theta)) / WHEELBASE
    with np.errstate(divide="ignore"):
        inverse_rcm = 1 / np.sqrt((WHEELBASE - FRONT_TO_CENTRE) ** 2 + 1 / inverse_rb**2)

    total = omega + np.arctan((lean + noise) / CENTRE_HEIGHT)
    gyroscope = I_DC * TYRE_RATE * theta_dot
    tyres = TYRE_MASS * TYRE_RADIUS * (inverse_rf + inverse_rb)
    centrifugal = np.sign(theta) * SPEED**2 * (tyres + MASS * CENTRE_HEIGHT * inverse_rcm)
    omega_ddot = (MASS * CENTRE_HEIGHT * GRAVITY * np.sin(total) - np.cos(total) * (gyroscope + centrifugal)) / TILT_INERTIA
    theta_ddot = (torque - I_DV * TYRE_RATE * omega_dot) / I_DL

    new_omega_dot = omega_dot + DT * omega_ddot
    new_omega = omega + DT * new_omega_dot
    new_theta_dot = theta_dot + DT * theta_ddot
    new_theta = np.clip(theta + DT * new_theta_dot, -BAR_LIMIT, BAR_LIMIT)

    psi = heading(pose)
    front = psi + new_theta
    front = front + np.sign(front) * np.arcsin(np.minimum(1.0, SPEED * DT / 2 * inverse_rf))
    back = psi + np.sign(psi) * np.arcsin(np.minimum(1.0, SPEED * DT / 2 * inverse_rb))
    xf, yf = xf - SPEED * DT * np.sin(front), yf + SPEED * DT * np.cos(front)
    xb, yb = xb - SPEED * DT * np.sin(back), yb + SPEED * DT * np.cos(back)

    length = np.hypot(xf - xb, yf - yb)
    repair = np.abs(length - WHEELBASE) > 0.01
    xb = np.where(repair, xf - (xf - xb) * WHEELBASE / length, xb)
    yb = np.where(repair, yf - (yf - yb) * WHEELBASE / length, yb)
    return Pose(*np.broadcast_arrays(new_omega, new_omega_dot, new_theta, new_theta_dot, xf, yf, xb, yb))


def wrap(angle):
    """Wrap an angle into [-pi, pi)."""
    return np.mod(angle + pi, 2 * pi) - pi


def features(pose: Pose, goal) -> np.ndarray:
    """(omega, omega_dot, theta, theta_dot, psi relative to the goal, distance to its centre), on a last axis."""
    east, north = goal[0] - pose.xf, goal[1] - pose.yf
    psi = wrap(heading(pose) - np.arctan2(-east, north))
    return np.stack([pose.omega, pose.omega_dot, pose.theta, pose.theta_dot, psi, np.hypot(east, north)], axis=-1)


def pose_at(point: np.ndarray) -> Pose:
    """The pose of a grid point: front contact at the origin, goal due north at (0, d), exact wheelbase."""
    omega, omega_dot, theta, theta_dot, psi, _ = np.moveaxis(np.asarray(point, float), -1, 0)
    zero = np.zeros_like(psi)
    return Pose(omega, omega_dot, theta, theta_dot, zero, zero, WHEELBASE * np.sin(psi), -WHEELBASE * np.cos(psi))


def step_from(point: np.ndarray, action, noise) -> np.ndarray:
    """One step from a grid point: the features of the next state."""
    point = np.asarray(point, float)
    return features(step(pose_at(point), action, noise), (0.0, point[..., 5]))


class Rewards(NamedTuple):
    """Rewards, and whether a fall costs c once or for ever."""

    kind: str = "paper"
    c: float = C_PRINTED
    fall: str = "absorbing"


def outcome(after: np.ndarray, rewards: Rewards, gamma: float):
    """For next features: the reward (or the terminal target), and whether the episode ended."""
    fallen = np.abs(after[..., 0]) > TILT_LIMIT
    arrived = after[..., 5] <= GOAL_RADIUS
    psi = after[..., 4]
    if rewards.kind == "paper":
        cost, prize, running = rewards.c, 1.0, (pi**2 / 4 - psi**2 - 1) * 0.001
    elif rewards.kind == "randlov":
        cost, prize, running = 1.0, 0.01, (4 - psi**2) * 0.00004
    else:
        raise ValueError(rewards.kind)
    lost = {"once": -cost, "absorbing": -cost / (1 - gamma)}[rewards.fall]
    return np.where(fallen, lost, np.where(arrived, prize, running)), fallen | arrived


def grid_points(n: int) -> np.ndarray:
    """All points of the uniform grid, of shape (n,) * 6 + (6,)."""
    axes = [np.linspace(low, high, n) for low, high in zip(LOW, HIGH, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


def grid_units(x: np.ndarray, n: int) -> np.ndarray:
    """Features in grid units, clamped to the box."""
    return np.clip((x - LOW) / (HIGH - LOW) * (n - 1), 0.0, n - 1.0)


def corners(x: np.ndarray, n: int):
    """Yield the 64 grid points around x, each as its six indices and its weight."""
    u = grid_units(x, n)
    below = np.minimum(np.floor(u).astype(int), n - 2)
    part = u - below
    for choice in product((0, 1), repeat=6):
        yield below + np.array(choice), np.prod(np.where(choice, part, 1 - part), axis=-1)


def staying(x: np.ndarray, z: np.ndarray, n: int) -> np.ndarray:
    """A(z | x): the weight that x puts on the grid point with indices z."""
    return np.prod(np.maximum(0.0, 1 - np.abs(grid_units(x, n) - z)), axis=-1)


def expected(table: np.ndarray, x: np.ndarray, n: int) -> np.ndarray:
    """E over z' ~ A(.|x) of table(z'), with all axes after the first six kept."""
    total, rest = np.zeros(()), (1,) * (table.ndim - 6)
    for z, weight in corners(x, n):
        total = total + weight.reshape(weight.shape + rest) * table[tuple(np.moveaxis(z, -1, 0))]
    return total


class Terms(NamedTuple):
    """Inputs of the operators: means over k samples, of shape (n,) * 6 + (9,)."""

    q: np.ndarray
    v: np.ndarray
    bellman: np.ndarray
    again: np.ndarray
    repeat: np.ndarray
    next_gaps: list[np.ndarray]
    """V(x') - Q(x', a) of each sample, zero if the episode ended."""


def terms(q: np.ndarray, noise, rewards: Rewards, gamma: float, interpolate: str = "q") -> Terms:
    """One step from every (z, a) for every sample of noise, which broadcasts to (k,) + (n,) * 6 + (9,).

    `interpolate` is "q", where Q(x', b) is interpolated and then maximised, or "v", where V(z') is interpolated.
    """
    n = q.shape[0]
    v = q.max(-1)
    noise = np.broadcast_to(noise, (np.shape(noise)[0], *q.shape))
    z = np.moveaxis(np.indices(q.shape[:6]), 0, -1)[..., None, :]
    bellman, again, repeat, next_gaps = [], [], [], []
    for u in noise:
        after = step_from(grid_points(n)[..., None, :], np.arange(ACTIONS), u)
        reward, over = outcome(after, rewards, gamma)
        next_q = expected(q, after, n)
        stay = staying(after, z, n)
        next_own = np.diagonal(next_q, axis1=-2, axis2=-1)
        if interpolate == "q":
            next_v = next_q.max(-1)
            next_again = (next_q - stay[..., None] * (q[..., None, :] - q[..., :, None])).max(-1)
        else:
            next_v = expected(v, after, n)
            next_again = next_v - stay * v[..., None] + stay * q
        bellman.append(np.where(over, reward, reward + gamma * next_v))
        again.append(np.where(over, reward, reward + gamma * next_again))
        repeat.append(np.where(over, reward, reward + gamma * next_own))
        next_gaps.append(np.where(over, 0.0, next_v - next_own))
    return Terms(q, v[..., None], np.mean(bellman, 0), np.mean(again, 0), np.mean(repeat, 0), next_gaps)


def operate(operator: str, t: Terms) -> np.ndarray:
    """T'Q, each operator from its own definition."""
    name, _, number = operator.partition(":")
    alpha = float(number) if number else 0.0
    gap = t.v - t.q
    if name == "bellman":
        return t.bellman
    if name == "consistent":
        return np.minimum(t.bellman, t.again)
    if name == "al":
        return t.bellman - alpha * gap
    if name == "pal":
        return np.maximum(t.bellman - alpha * gap, t.repeat)
    if name == "pal-dqn":
        return t.bellman - alpha * np.mean([np.minimum(gap, next_gaps) for next_gaps in t.next_gaps], axis=0)
    raise ValueError(operator)


def sweep(q, operator: str, noise, rewards: Rewards, gamma: float = 0.99, eta: float = 0.1, interpolate: str = "q") -> np.ndarray:
    """(1 - eta) Q + eta T'Q at all (z, a) at once."""
    return (1 - eta) * q + eta * operate(operator, terms(q, noise, rewards, gamma, interpolate))
