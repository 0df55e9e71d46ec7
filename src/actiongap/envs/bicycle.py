"""The bicycle of Randlov and Alstrom (1998): balance it and ride to a goal.

**Dynamics.** A step takes 0.01 s. The rider applies a torque T to the handlebar and leans by a displacement D, each to the right, to the
left or not at all; the displacement is noisy. The bicycle rolls at 10 km/h. It has fallen if its tilt `omega` exceeds 12 degrees, and it
has arrived if its front wheel is within 10 m of the goal. Left is positive for the tilt `omega` and the angle `theta` of the handlebar, and
the heading is measured from north towards west.

`dynamics` advances a `State`: both angles, their rates, the frame (the vector from the back wheel to the front wheel), and the position of
the front wheel relative to the goal. A planner observes six `features`: (omega, omega_dot, theta, theta_dot, psi, d), where psi is the
heading relative to the direction of the goal, and d the distance. A step has three parts: the tilt (`lean`), the only part that depends on
displacement and noise; the handlebar (`steer`); and the wheels (`roll`).

Two peculiarities come from the original program. The arcs of the wheels curve to the side given by the sign of the heading instead of the
handlebar angle (a few thousandths of a radian, so west differs from east). And the handlebar keeps its rate when it reaches its stop.

**Task.** `step_function` is the simulator with rewards. `bicycle` is the planning problem: place the simulator at a point of the grid with
the goal due north, take one step, and compute the six features. It has three factors: displacement and noise affect the tilt only, the
other factors read the rate of the tilt but not the tilt itself, and the handlebar does not depend on the position.

References: Randlov and Alstrom, "Learning to drive a bicycle using reinforcement learning and shaping", ICML 1998; Bellemare et al.,
"Increasing the action gap", AAAI 2016, whose ranges for tilt and handlebar we read as exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import pi
from typing import Any, NamedTuple

import numpy as np

from actiongap.maths import asin, atan2, clip, cos, sign, sin, sqrt, tan, where, wrap
from actiongap.planning.simulator import NO_NOISE, EpisodeSpec, Factor, Outcome, Periodic, Simulator, Split, Uniform

DT = 0.01
"""Length of a step, s."""
SPEED = 10 / 3.6
"""Speed of the wheels, m/s."""
STRIDE = SPEED * DT
"""Distance that a wheel rolls in a step, m."""
GRAVITY = 9.82
"""m/s^2."""
WHEELBASE = 1.11
"""Distance between the contacts of the wheels with the ground, m."""
FRONT_TO_CENTRE = 0.66
"""Distance from the front contact to the center of mass along the ground, m."""
HEIGHT = 0.94
"""Height of the center of mass, m."""
RIDER_ABOVE = 0.30
"""Height of the rider's center of mass above that of the bicycle, m."""
BICYCLE_MASS, RIDER_MASS, TYRE_MASS = 15.0, 60.0, 1.7
"""Mass of the bicycle, the rider and one tyre, kg."""
MASS = BICYCLE_MASS + RIDER_MASS
"""Total mass, kg."""
RADIUS = 0.34
"""Radius of a tyre, m."""
SPIN = SPEED / RADIUS
"""Angular velocity of the tyres, rad/s."""
TILT_INERTIA = 13 / 3 * BICYCLE_MASS * HEIGHT**2 + RIDER_MASS * (HEIGHT + RIDER_ABOVE) ** 2
"""Moment of inertia of bicycle and rider about the line through both contacts, kg m^2."""
SPIN_INERTIA, ROLL_INERTIA, STEER_INERTIA = TYRE_MASS * RADIUS**2, 1.5 * TYRE_MASS * RADIUS**2, 0.5 * TYRE_MASS * RADIUS**2
"""Moments of inertia of a tyre about its axle, about the ground and about its vertical diameter, kg m^2."""
FALL = pi / 15
"""Tilt beyond which the bicycle has fallen, rad."""
STOP = 4 * pi / 9
"""Maximum angle of the handlebar, rad."""
GOAL_RADIUS = 10.0
"""Radius of the goal, m."""
TORQUE, LEAN, MAX_NOISE = 2.0, 0.02, 0.02
"""Torque of an action, N m; displacement of an action, m; maximum noise of the displacement, m."""
SLACK = 0.01
"""Error of the wheelbase above which the back wheel is moved to restore it, m."""
DISTANCE = 1000.0
"""Distance from the start to the goal, m."""

COORDINATES = ("omega", "omega_dot", "theta", "theta_dot", "psi", "d")
"""Names of the features: rad, rad/s, rad, rad/s, rad, m."""
ACTIONS = tuple(f"{steer}, {lean}" for steer in ("steer right", "hold", "steer left") for lean in ("lean right", "sit", "lean left"))
"""Names of the actions: torques -T, 0, T times displacements -D, 0, D."""


class State(NamedTuple):
    """State of the simulator. Every field may be an array with one element per bicycle."""

    omega: Any
    """Tilt, rad."""
    omega_dot: Any
    """rad/s."""
    theta: Any
    """Angle of the handlebar, rad."""
    theta_dot: Any
    """rad/s."""
    frame_x: Any
    """East component of the frame, m. Separate from the position, whose float32 resolution would be too coarse for it."""
    frame_y: Any
    """North component of the frame, m."""
    x: Any
    """Position of the front wheel east of the goal, m."""
    y: Any
    """Position of the front wheel north of the goal, m."""


def dynamics(state: State, a: Any, u: Any) -> State:
    """Take one step, with the index a of the action and the noise u of the displacement in meters.

    Examples
    --------
    >>> after = dynamics(standing(0.0), 4, 0.0)
    >>> round(float(after.y), 6)
    -999.972222
    """
    psi = heading(state)
    omega, omega_dot = lean(lean_terms(state.omega, state.omega_dot, state.theta, state.theta_dot, a), u)
    theta, theta_dot = steer(state.omega_dot, state.theta, state.theta_dot, a)
    frame_x, frame_y, x, y = roll(psi, state.theta, theta, state.frame_x, state.frame_y, state.x, state.y)
    return State(omega, omega_dot, theta, theta_dot, frame_x, frame_y, x, y)


def features(state: State) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Return the features of a state: (omega, omega_dot, theta, theta_dot, psi, d).

    Examples
    --------
    >>> [round(float(feature), 3) for feature in features(standing(0.5))]
    [0.0, 0.0, 0.0, 0.0, 0.5, 1000.0]
    """
    psi, d = bearing_and_distance(state.frame_x, state.frame_y, state.x, state.y)
    return state.omega, state.omega_dot, state.theta, state.theta_dot, psi, d


def heading(state: State) -> Any:
    """Return the direction of the frame from -pi to pi, measured from north towards west.

    Examples
    --------
    >>> round(float(heading(standing(-0.5))), 6)
    -0.5
    """
    return _direction(state.frame_x, state.frame_y)


def fallen(omega: Any) -> Any:
    """Whether the bicycle has tilted beyond 12 degrees.

    Examples
    --------
    >>> fallen(-0.21)
    True
    """
    return abs(omega) > FALL


def arrived(d: Any) -> Any:
    """Whether the front wheel is within the radius of the goal.

    Examples
    --------
    >>> arrived(10.0)
    True
    """
    return d <= GOAL_RADIUS


def standing(psi: Any, east: Any = 0.0, north: Any = -DISTANCE) -> State:
    """Return the state of an upright, straight bicycle with this heading, and its front wheel at this position relative to the goal.

    Examples
    --------
    >>> standing(0.0).y
    -1000.0
    """
    still = 0.0 * psi
    return State(still, still, still, still, -WHEELBASE * sin(psi), WHEELBASE * cos(psi), still + east, still + north)


def lean_terms(omega: Any, omega_dot: Any, theta: Any, theta_dot: Any, a: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Compute the part of the tilt's step that does not depend on the noise, as input of `lean`.

    Examples
    --------
    >>> [round(float(number), 4) for number in lean_terms(0.1, 0.2, 0.0, 0.0, 4)]
    [0.1, 0.2, 0.0043, 0.046, 0.0]
    """
    front, back = sin(theta) / WHEELBASE, tan(theta) / WHEELBASE
    behind = (WHEELBASE - FRONT_TO_CENTRE) * back
    centre = back / sqrt(1.0 + behind * behind)
    turning = SPEED**2 * (TYRE_MASS * RADIUS * (front + back) + MASS * HEIGHT * centre)
    outward = DT / TILT_INERTIA * (SPIN_INERTIA * SPIN * theta_dot + turning)
    weight = DT / TILT_INERTIA * MASS * HEIGHT * GRAVITY
    upright, tilted = cos(omega), sin(omega)
    leaned = _add_signed(0.0 * omega, a % 3, LEAN)
    return omega, omega_dot, HEIGHT * (weight * tilted - outward * upright), weight * upright + outward * tilted, leaned


def lean(known: tuple[Any, ...], u: Any) -> tuple[Any, Any]:
    """Return the next tilt and its rate, from the result of `lean_terms` and the noise u.

    Examples
    --------
    >>> omega, omega_dot = lean(lean_terms(0.0, 0.0, 0.0, 0.0, 5), -0.02)
    >>> float(omega_dot)
    0.0
    """
    omega, omega_dot, straight, aside, leaned = known
    # The center of mass is tilted by omega + arctan(shift / HEIGHT); the addition theorems give its sine and cosine without arctan.
    shift = leaned + u
    omega_dot = omega_dot + (straight + shift * aside) / sqrt(HEIGHT**2 + shift * shift)
    return omega + DT * omega_dot, omega_dot


def steer(omega_dot: Any, theta: Any, theta_dot: Any, a: Any) -> tuple[Any, Any]:
    """Return the next angle of the handlebar and its rate.

    Examples
    --------
    >>> [round(float(number), 4) for number in steer(0.0, 0.0, 0.0, 8)]
    [0.002, 0.2035]
    """
    theta_dot = theta_dot + DT * _add_signed(-ROLL_INERTIA * SPIN * omega_dot, a // 3, TORQUE) / STEER_INERTIA
    return clip(theta + DT * theta_dot, -STOP, STOP), theta_dot


def roll(psi: Any, theta: Any, next_theta: Any, frame_x: Any, frame_y: Any, x: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    """Return the next frame and position of the front wheel. Both wheels roll along arcs with the radii of the old handlebar angle.

    Examples
    --------
    >>> [round(float(number), 4) for number in roll(0.0, 0.0, 0.0, 0.0, 1.11, 0.0, -50.0)]
    [0.0, 1.11, 0.0, -49.9722]
    """
    # Arguments of asin are at most about 0.07, at the stop of the handlebar, so they need no clipping.
    steered = psi + next_theta
    front = steered + sign(steered) * asin(STRIDE / 2 / WHEELBASE * abs(sin(theta)))
    back = psi + sign(psi) * asin(STRIDE / 2 / WHEELBASE * abs(tan(theta)))
    frame_x = frame_x + STRIDE * (sin(back) - sin(front))
    frame_y = frame_y + STRIDE * (cos(front) - cos(back))
    length = sqrt(frame_x * frame_x + frame_y * frame_y)
    repair = where(abs(length - WHEELBASE) > SLACK, WHEELBASE / length, 1.0)
    return frame_x * repair, frame_y * repair, x - STRIDE * sin(front), y + STRIDE * cos(front)


def bearing_and_distance(frame_x: Any, frame_y: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Return the heading relative to the direction of the goal, in [-pi, pi) and positive to the left, and the distance of the goal.

    Examples
    --------
    >>> [round(float(number), 3) for number in bearing_and_distance(0.0, 1.11, -50.0, 0.0)]
    [1.571, 50.0]
    """
    return wrap(_direction(frame_x, frame_y) - _direction(-x, -y)), sqrt(x * x + y * y)


def _direction(x: Any, y: Any) -> Any:
    # Not -x: with the frame due south that would be -0.0, and the angle -pi instead of pi.
    return atan2(0.0 - x, y)


def _add_signed(x: Any, direction: Any, amount: float) -> Any:
    # Selected, not multiplied: an integer array times a float would promote float32 to float64.
    return where(direction == 0, x - amount, where(direction == 2, x + amount, x))


STARTS = {"spread": (pi, 0.0, -DISTANCE), "north": (0.0, 0.0, -DISTANCE), "east": (0.0, -DISTANCE, 0.0)}
"""Initial states: the maximum heading to either side of north, and the position of the front wheel east and north of the goal.

`spread`: south of the goal with any heading. `north`: heading to the goal. `east`: the goal is in the east, as in Randlov and Alstrom's
program.
"""

PRINTED_C = (0.75 * pi**2 - 1) * 0.001
"""Cost of a fall as printed in the paper."""
CORRECTED_C = (0.75 * pi**2 + 1) * 0.001
"""Cost of a fall with the sign corrected: the maximum cost of any step."""


class Rewards(NamedTuple):
    """Rewards: (centre - psi^2) scale per step, and other values for a fall and at the goal."""

    fall: float
    goal: float
    centre: float
    scale: float


REWARDS = {"paper": Rewards(-PRINTED_C, 1.0, pi**2 / 4 - 1, 0.001), "randlov": Rewards(-1.0, 0.01, 4.0, 0.00004)}
"""Rewards of the paper, and of Randlov and Alstrom."""


def initial_state(start: str, fraction: Any) -> State:
    """Return an initial state of one of `STARTS`; its heading is a fraction, from -1 to 1, of the maximum heading.

    Examples
    --------
    >>> features(initial_state("east", evenly_spaced(2)))[4].round(3).tolist()
    [1.571, 1.571]
    """
    _check_choice("start", start, STARTS)
    reach, east, north = STARTS[start]
    return standing(reach * fraction, east, north)


def evenly_spaced(n: int) -> np.ndarray:
    """Return n fractions for `initial_state`, evenly spaced in (-1, 1).

    Examples
    --------
    >>> evenly_spaced(4).tolist()
    [-0.75, -0.25, 0.25, 0.75]
    """
    return (2 * np.arange(n) + 1) / n - 1


def step_function(*, reward: str = "paper", c: float | None = None) -> Callable[[tuple[Any, ...], Any, Any], Outcome]:
    """Return the step of the simulator with rewards. A fall costs c once, and takes precedence over the goal.

    States are plain tuples with the eight numbers of a `State`, because compiled loops require the same type before and after a step.

    Parameters
    ----------
    reward
        `paper` or `randlov`.
    c
        Cost of a fall; by default `PRINTED_C`, or 1 for `randlov`.

    Examples
    --------
    >>> tilted = standing(0.0)._replace(omega=0.209, omega_dot=1.0)
    >>> outcome = step_function(c=0.5)(tilted, 4, 0.0)
    >>> outcome.reward, bool(outcome.ended)
    (-0.5, True)
    """
    fall, goal, centre, scale = _rewards(reward, c)

    def step(state: tuple[Any, ...], a: Any, u: Any) -> Outcome:
        after = dynamics(State(*state), a, u)
        omega, _, _, _, psi, d = features(after)
        fell, there = fallen(omega), arrived(d)
        return Outcome(after[:], where(fell, fall, where(there, goal, (centre - psi * psi) * scale)), fell | there)

    return step


def bicycle(
    *,
    fall: str = "absorbing",
    reward: str = "paper",
    c: float | None = None,
    gamma: float = 0.99,
    noise: bool = True,
    periodic_heading: bool = False,
    start: str = "spread",
) -> Simulator:
    """Return the bicycle as a planning problem with three factors: the tilt, which is noisy and ends in falls, the handlebar and the path.

    Parameters
    ----------
    fall
        `absorbing`: after a fall every step costs c, -c / (1 - gamma) in total. `once`: a fall costs c once; then falling is optimal
        wherever the goal is far behind.
    reward
        `paper`: (pi^2/4 - psi^2 - 1) 0.001 per step and 1 at the goal. `randlov`: (4 - psi^2) 0.00004 per step and 0.01 at the goal. psi is
        that of the next state.
    c
        Cost of a fall; by default `PRINTED_C`, or 1 for `randlov`.
    gamma
        Discount.
    noise
        Whether the displacement of the rider is noisy.
    periodic_heading
        Whether the axis of psi is periodic. Otherwise -pi and pi are two different points of the grid.
    start
        Initial states of the episodes in which policies are evaluated: one of `STARTS`. In these episodes a fall always costs c once.

    Examples
    --------
    >>> simulator = bicycle()
    >>> simulator.coordinates, len(simulator.actions), [factor.inputs for factor in simulator.factors]
    (('omega', 'omega_dot', 'theta', 'theta_dot', 'psi', 'd'), 9, [(0, 1, 2, 3), (1, 2, 3), (1, 2, 3, 4, 5)])
    """
    cost, goal, centre, scale = _rewards(reward, c)
    _check_choice("fall", fall, ("absorbing", "once"))
    _check_choice("start", start, STARTS)
    if not 0 <= gamma < 1:
        raise ValueError(f"gamma is {gamma!r}: give a number in [0, 1)")
    if fall == "absorbing":
        cost /= 1 - gamma

    def before(x: tuple[Any, ...], a: Any) -> tuple[Any, ...]:
        return lean_terms(x[0], x[1], x[2], x[3], a)

    def after(known: tuple[Any, ...], u: Any) -> Outcome:
        omega, omega_dot = lean(known, u)
        fell = fallen(omega)
        zero = 0.0 * omega
        return Outcome((omega, omega_dot), where(fell, zero + cost, zero), fell)

    def turn(x: tuple[Any, ...], a: Any, u: Any) -> Outcome:
        theta, theta_dot = steer(x[1], x[2], x[3], a)
        return Outcome((theta, theta_dot), 0.0, False)

    def travel(x: tuple[Any, ...], a: Any, u: Any) -> Outcome:
        theta, _ = steer(x[1], x[2], x[3], a)
        here = standing(x[4], 0.0, -x[5])
        psi, d = bearing_and_distance(*roll(x[4], x[2], theta, here.frame_x, here.frame_y, here.x, here.y))
        there = arrived(d)
        return Outcome((psi, d), where(there, goal, (centre - psi * psi) * scale), there)

    balance, leans, steers = Split(before, after), tuple(a % 3 for a in range(9)), tuple(a // 3 for a in range(9))
    factors = (
        Factor((0, 1), (0, 1, 2, 3), leans, noise, balance.step(), balance),
        Factor((2, 3), (1, 2, 3), steers, False, turn),
        Factor((4, 5), (1, 2, 3, 4, 5), steers, False, travel),
    )
    episodes = EpisodeSpec(
        start=lambda n: initial_state(start, evenly_spaced(n))[:],
        step=step_function(reward=reward, c=c),
        observe=lambda state: features(State(*state)),
        outcomes={"fall": lambda x: fallen(x[0]), "goal": lambda x: where(fallen(x[0]), False, arrived(x[5]))},
        max_episode_steps=100_000,
    )
    around = Periodic(-pi, pi) if periodic_heading else (-pi, pi)
    ranges = ((-FALL, FALL), (-0.5, 0.5), (-STOP, STOP), (-2.0, 2.0), around, (GOAL_RADIUS, 1200.0))
    return Simulator(
        "bicycle",
        factors,
        state=dict(zip(COORDINATES, ranges, strict=True)),
        actions=ACTIONS,
        gamma=gamma,
        noise=Uniform(-MAX_NOISE, MAX_NOISE) if noise else NO_NOISE,
        episodes=episodes,
    )


def _rewards(reward: str, c: float | None) -> Rewards:
    _check_choice("reward", reward, REWARDS)
    return REWARDS[reward] if c is None else REWARDS[reward]._replace(fall=-c)


def _check_choice(what: str, given: str, choices: Iterable[str]) -> None:
    if given not in choices:
        raise ValueError(f"{what} is {given!r}: choose from {', '.join(choices)}")
