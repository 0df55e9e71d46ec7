"""How a bicycle rides: kept upright, and ridden to a goal, after Randlov and Alstrom (1998).

Every hundredth of a second the rider turns the handlebar with a torque T and leans aside by a displacement D, each to the right, to the
left or not at all, and sways a little whether he wants to or not. The bicycle rolls on at 10 km/h. It has fallen when its tilt `omega`
exceeds 12 degrees, and it has arrived when its front wheel is within 10 m of the goal. To the left is positive: so is the tilt `omega`,
so is the angle `theta` of the handlebar, and the heading is counted from north towards west.

The simulator, `ride`, keeps a `State`: both angles, their rates, the frame from the back wheel to the front one, and where the front wheel
is, seen from the goal. A planner sees six `features` of it, (omega, omega_dot, theta, theta_dot, psi, d), where psi is how far the heading
is left of the goal and d the distance. A step is made of three: the tilt, `lean`, which is all that lean and sway move; the handlebar,
`steer`; and the wheels, `roll`.

Two peculiarities are the original's. Wheels roll along arcs, but the arcs bend by the sign of the heading and not of the handlebar
(a few thousandths of a radian, which make west differ from east), and the handlebar keeps its rate when it hits its stop.

Reference: Randlov and Alstrom, "Learning to drive a bicycle using reinforcement learning and shaping", ICML 1998.

The bicycle as a problem: what riding, falling and arriving pay, how rides start, and what a planner makes of it.

`step_function` is the simulator with its rewards. `bicycle` is the planning problem: set the simulator down at a point of the grid with the
goal due north, take one step, and look again at the six features. They fall into three factors: lean and sway move only the tilt,
nothing else looks at the tilt itself, only at its rate, and the handlebar turns wherever one is.

References: Bellemare et al., "Increasing the action gap", AAAI 2016, whose ranges for tilt and handlebar are read with the two exchanged;
and Randlov and Alstrom (1998), as in `actiongap.envs.bicycle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import pi
from typing import Any, NamedTuple

import numpy as np

from actiongap.maths import asin, atan2, clip, cos, sign, sin, sqrt, tan, where, wrap
from actiongap.planning.grid import Axis, periodic, uniform
from actiongap.planning.simulator import NO_NOISE, EpisodeSpec, Factor, Outcome, Simulator, Split, Uniform

DT = 0.01
"""Length of a step, s."""
SPEED = 10 / 3.6
"""Speed of the wheels, m/s."""
STRIDE = SPEED * DT
"""How far a wheel rolls in a step, m."""
GRAVITY = 9.82
"""m/s^2."""
WHEELBASE = 1.11
"""Between the contacts of the wheels with the ground, m."""
FRONT_TO_CENTRE = 0.66
"""From the front contact to the centre of mass, along the ground, m."""
HEIGHT = 0.94
"""Height of the centre of mass, m."""
RIDER_ABOVE = 0.30
"""From the bicycle's centre of mass up to the rider's, m."""
BICYCLE_MASS, RIDER_MASS, TYRE_MASS = 15.0, 60.0, 1.7
"""Of the bicycle, the rider and one tyre, kg."""
MASS = BICYCLE_MASS + RIDER_MASS
"""kg."""
RADIUS = 0.34
"""Radius of a tyre, m."""
SPIN = SPEED / RADIUS
"""How fast the tyres turn, rad/s."""
TILT_INERTIA = 13 / 3 * BICYCLE_MASS * HEIGHT**2 + RIDER_MASS * (HEIGHT + RIDER_ABOVE) ** 2
"""Of bicycle and rider about the line on which the wheels stand, kg m^2."""
SPIN_INERTIA, ROLL_INERTIA, STEER_INERTIA = TYRE_MASS * RADIUS**2, 1.5 * TYRE_MASS * RADIUS**2, 0.5 * TYRE_MASS * RADIUS**2
"""Of a tyre: about its axle, about the ground, about its upright diameter, kg m^2."""
FALL = pi / 15
"""The tilt beyond which the bicycle has fallen, rad."""
STOP = 4 * pi / 9
"""Where the handlebar stops, rad."""
GOAL_RADIUS = 10.0
"""m."""
TORQUE, LEAN, MAX_NOISE = 2.0, 0.02, 0.02
"""What an action may turn the handlebar with, N m; how far it may lean, m; how far the noise goes, m."""
SLACK = 0.01
"""By how much the wheelbase may be off before the back wheel is put in its place again, m."""
DISTANCE = 1000.0
"""From the start to the goal, m."""

COORDINATES = ("omega", "omega_dot", "theta", "theta_dot", "psi", "d")
"""The features that a planner sees: rad, rad/s, rad, rad/s, rad, m."""
ACTIONS = tuple(f"{steer}, {lean}" for steer in ("steer right", "hold", "steer left") for lean in ("lean right", "sit", "lean left"))
"""Torques -T, 0, T by displacements -D, 0, D."""


class State(NamedTuple):
    """The bicycle on its way. Every number may be an array: one element for each of many bicycles."""

    omega: Any
    """Tilt, rad."""
    omega_dot: Any
    """rad/s."""
    theta: Any
    """Angle of the handlebar, rad."""
    theta_dot: Any
    """rad/s."""
    frame_x: Any
    """From the back wheel to the front one, eastward, m. Kept apart from the place, whose float32 would be too coarse for it."""
    frame_y: Any
    """The same northward, m."""
    x: Any
    """The front wheel, east of the goal, m."""
    y: Any
    """The front wheel, north of the goal, m."""


def dynamics(state: State, a: Any, u: Any) -> State:
    """One step of the simulator: action a counted from 0, and sway u in metres.

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


def features(state: State) -> tuple:
    """What a planner sees of a state: (omega, omega_dot, theta, theta_dot, psi, d).

    Examples
    --------
    >>> [round(float(feature), 3) for feature in features(standing(0.5))]
    [0.0, 0.0, 0.0, 0.0, 0.5, 1000.0]
    """
    psi, d = bearing_and_distance(state.frame_x, state.frame_y, state.x, state.y)
    return state.omega, state.omega_dot, state.theta, state.theta_dot, psi, d


def heading(state: State) -> Any:
    """The direction of the frame, counted from north towards west, from -pi to pi.

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
    """Whether the front wheel has come within the goal's radius.

    Examples
    --------
    >>> arrived(10.0)
    True
    """
    return d <= GOAL_RADIUS


def standing(psi: Any, east: Any = 0.0, north: Any = -DISTANCE) -> State:
    """A bicycle upright and straight, with this heading, and with its front wheel so far east and north of the goal.

    Examples
    --------
    >>> standing(0.0).y
    -1000.0
    """
    still = 0.0 * psi
    return State(still, still, still, still, -WHEELBASE * sin(psi), WHEELBASE * cos(psi), still + east, still + north)


def lean_terms(omega: Any, omega_dot: Any, theta: Any, theta_dot: Any, a: Any) -> tuple:
    """All of a lean that is known before the sway is, as `lean` wants it.

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
    leaned = _pushed(0.0 * omega, a % 3, LEAN)
    return omega, omega_dot, HEIGHT * (weight * tilted - outward * upright), weight * upright + outward * tilted, leaned


def lean(known: tuple, u: Any) -> tuple:
    """The next tilt and its rate, from what `lean_terms` knows and the sway u.

    Examples
    --------
    >>> omega, omega_dot = lean(lean_terms(0.0, 0.0, 0.0, 0.0, 5), -0.02)
    >>> float(omega_dot)
    0.0
    """
    omega, omega_dot, straight, aside, leaned = known
    # The weight leans by omega and by an angle whose tangent is that of a shift to the height; sine and cosine of their sum need no angle.
    shift = leaned + u
    omega_dot = omega_dot + (straight + shift * aside) / sqrt(HEIGHT**2 + shift * shift)
    return omega + DT * omega_dot, omega_dot


def steer(omega_dot: Any, theta: Any, theta_dot: Any, a: Any) -> tuple:
    """The next angle of the handlebar and its rate.

    Examples
    --------
    >>> [round(float(number), 4) for number in steer(0.0, 0.0, 0.0, 8)]
    [0.002, 0.2035]
    """
    theta_dot = theta_dot + DT * _pushed(-ROLL_INERTIA * SPIN * omega_dot, a // 3, TORQUE) / STEER_INERTIA
    return clip(theta + DT * theta_dot, -STOP, STOP), theta_dot


def roll(psi: Any, theta: Any, next_theta: Any, frame_x: Any, frame_y: Any, x: Any, y: Any) -> tuple:
    """The next frame and place of the front wheel, both wheels having rolled along arcs whose radii the old handlebar gives.

    Examples
    --------
    >>> [round(float(number), 4) for number in roll(0.0, 0.0, 0.0, 0.0, 1.11, 0.0, -50.0)]
    [0.0, 1.11, 0.0, -49.9722]
    """
    # At the stop the arcs are 0.07 at most, so asin needs no guard.
    steered = psi + next_theta
    front = steered + sign(steered) * asin(STRIDE / 2 / WHEELBASE * abs(sin(theta)))
    back = psi + sign(psi) * asin(STRIDE / 2 / WHEELBASE * abs(tan(theta)))
    frame_x = frame_x + STRIDE * (sin(back) - sin(front))
    frame_y = frame_y + STRIDE * (cos(front) - cos(back))
    length = sqrt(frame_x * frame_x + frame_y * frame_y)
    repair = where(abs(length - WHEELBASE) > SLACK, WHEELBASE / length, 1.0)
    return frame_x * repair, frame_y * repair, x - STRIDE * sin(front), y + STRIDE * cos(front)


def bearing_and_distance(frame_x: Any, frame_y: Any, x: Any, y: Any) -> tuple:
    """How far the frame points to the left of the goal, in [-pi, pi), and how far the goal is.

    Examples
    --------
    >>> [round(float(number), 3) for number in bearing_and_distance(0.0, 1.11, -50.0, 0.0)]
    [1.571, 50.0]
    """
    return wrap(_direction(frame_x, frame_y) - _direction(-x, -y)), sqrt(x * x + y * y)


def _direction(x: Any, y: Any) -> Any:
    # Not -x: with the frame due south that would be minus nothing, and the other end of the range.
    return atan2(0.0 - x, y)


def _pushed(x: Any, way: Any, amount: float) -> Any:
    # Chosen and not multiplied: whole numbers times a float would make double precision of single.
    return where(way == 0, x - amount, where(way == 2, x + amount, x))


STARTS = {"spread": (pi, 0.0, -DISTANCE), "north": (0.0, 0.0, -DISTANCE), "east": (0.0, -DISTANCE, 0.0)}
"""How rides start: how far headings reach to either side of north, and where the front wheel is, east and north of the goal.

`spread`: south of the goal with any heading. `north`: heading for it. `east`: the goal is in the east, as in Randlov and Alstrom's program.
"""

PRINTED_C = (0.75 * pi**2 - 1) * 0.001
"""What a fallen step costs as the paper prints it."""
CORRECTED_C = (0.75 * pi**2 + 1) * 0.001
"""The same without its slip of sign: the most that any step can cost."""


class Rewards(NamedTuple):
    """What a step pays: (centre - psi^2) scale on the way, and something else when it ends in a fall or at the goal."""

    fall: float
    goal: float
    centre: float
    scale: float


REWARDS = {"paper": Rewards(-PRINTED_C, 1.0, pi**2 / 4 - 1, 0.001), "randlov": Rewards(-1.0, 0.01, 4.0, 0.00004)}
"""Of the paper, and of Randlov and Alstrom."""


def initial_state(start: str, share: Any) -> State:
    """How a ride starts, by one of `STARTS`: the share, from -1 to 1, says which of its headings it is.

    Examples
    --------
    >>> features(initial_state("east", evenly_spaced(2)))[4].round(3).tolist()
    [1.571, 1.571]
    """
    _check_choice("start", start, STARTS)
    reach, east, north = STARTS[start]
    return standing(reach * share, east, north)


def evenly_spaced(n: int) -> np.ndarray:
    """Fractions for `initial_state`: n numbers evenly spaced in (-1, 1).

    Examples
    --------
    >>> evenly_spaced(4).tolist()
    [-0.75, -0.25, 0.25, 0.75]
    """
    return (2 * np.arange(n) + 1) / n - 1


def step_function(*, reward: str = "paper", c: float | None = None) -> Callable[[tuple, Any, Any], Outcome]:
    """The simulator with what it pays: a fall is paid for once, and falls are looked for before the goal is.

    States are plain tuples here, the eight numbers of a `State`: the same kind comes out as goes in, which loops of compilers insist on.

    Parameters
    ----------
    reward
        `paper` or `randlov`.
    c
        What a fall costs; the rewards' own if not given: `PRINTED_C` or 1.

    Examples
    --------
    >>> tilted = standing(0.0)._replace(omega=0.209, omega_dot=1.0)
    >>> outcome = step_function(c=0.5)(tilted, 4, 0.0)
    >>> outcome.reward, bool(outcome.ended)
    (-0.5, True)
    """
    fall, goal, centre, scale = _rewards(reward, c)

    def step(state: tuple, a: Any, u: Any) -> Outcome:
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
    """The bicycle as a planning problem in three factors: the balance, which is noisy and ends by falls, the handlebar, and the way.

    Parameters
    ----------
    fall
        `absorbing`: who has fallen pays c at every step for ever, -c / (1 - gamma) in all. `once`: a fall costs c and nothing follows;
        then falling is the best thing to do wherever the goal is far behind.
    reward
        `paper`, where riding pays (pi^2/4 - psi^2 - 1) 0.001 and the goal 1; or `randlov`, where they pay (4 - psi^2) 0.00004 and 0.01.
        psi is that of the next state.
    c
        What being fallen costs; the rewards' own if not given: `PRINTED_C`, or 1 for `randlov`.
    gamma
        Discount.
    noise
        Whether the rider sways.
    periodic_heading
        Whether the axis of psi joins at its ends. Otherwise -pi and pi are two points of the grid.
    start
        How the rides start on which policies are tried: one of `STARTS`. There a fall costs c once, whatever planners make of it.

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
        raise ValueError(f"gamma is {gamma!r}: it must be at least 0 and below 1")
    if fall == "absorbing":
        cost /= 1 - gamma

    def before(x: tuple, a: Any) -> tuple:
        return lean_terms(x[0], x[1], x[2], x[3], a)

    def after(known: tuple, u: Any) -> Outcome:
        omega, omega_dot = lean(known, u)
        fell = fallen(omega)
        nothing = 0.0 * omega
        return Outcome((omega, omega_dot), where(fell, nothing + cost, nothing), fell)

    def turn(x: tuple, a: Any, u: Any) -> Outcome:
        theta, theta_dot = steer(x[1], x[2], x[3], a)
        return Outcome((theta, theta_dot), 0.0, False)

    def travel(x: tuple, a: Any, u: Any) -> Outcome:
        theta, _ = steer(x[1], x[2], x[3], a)
        here = standing(x[4], 0.0, -x[5])
        psi, d = bearing_and_distance(*roll(x[4], x[2], theta, here.frame_x, here.frame_y, here.x, here.y))
        there = arrived(d)
        return Outcome((psi, d), where(there, goal, (centre - psi * psi) * scale), there)

    def axes(n: int) -> tuple[Axis, ...]:
        around = periodic if periodic_heading else uniform
        turns = (uniform(-FALL, FALL, n), uniform(-0.5, 0.5, n), uniform(-STOP, STOP, n), uniform(-2.0, 2.0, n))
        return (*turns, around(-pi, pi, n), uniform(GOAL_RADIUS, 1200.0, n))

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
    return Simulator("bicycle", COORDINATES, ACTIONS, factors, axes, gamma, Uniform(-MAX_NOISE, MAX_NOISE) if noise else NO_NOISE, episodes)


def _rewards(reward: str, c: float | None) -> Rewards:
    _check_choice("reward", reward, REWARDS)
    return REWARDS[reward] if c is None else REWARDS[reward]._replace(fall=-c)


def _check_choice(what: str, given: str, choices: Iterable[str]) -> None:
    if given not in choices:
        raise ValueError(f"{what} is {given!r}: choose {', '.join(choices)}")
