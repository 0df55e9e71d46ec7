"""The bicycle as a problem: what riding, falling and arriving pay, how rides start, and what a planner makes of it.

`simulation` is the simulator with its rewards. `bicycle` is the planning problem: set the simulator down at a point of the grid with the
goal due north, take one step, and look again at the six features. They fall into three factors: lean and sway move only the tilt,
nothing else looks at the tilt itself, only at its rate, and the handlebar turns wherever one is.

References: Bellemare et al., "Increasing the action gap", AAAI 2016, whose ranges for tilt and handlebar are read with the two exchanged;
and Randlov and Alstrom (1998), as in `actiongap.domains.riding`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import pi
from typing import Any, NamedTuple

import numpy as np

from actiongap.domains.riding import (
    ACTIONS,
    COORDINATES,
    DISTANCE,
    FALL,
    GOAL_RADIUS,
    STOP,
    SWAY,
    State,
    arrived,
    fallen,
    features,
    lean,
    poise,
    ride,
    roll,
    sight,
    standing,
    steer,
)
from actiongap.maths import where
from actiongap.planning.grid import Axis, periodic, uniform
from actiongap.planning.simulator import QUIET, Domain, Episodes, Factor, Outcome, Split, Uniform

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


def begin(start: str, share: Any) -> State:
    """How a ride starts, by one of `STARTS`: the share, from -1 to 1, says which of its headings it is.

    Examples
    --------
    >>> features(begin("east", evenly(2)))[4].round(3).tolist()
    [1.571, 1.571]
    """
    _choose("start", start, STARTS)
    reach, east, north = STARTS[start]
    return standing(reach * share, east, north)


def evenly(n: int) -> np.ndarray:
    """So many shares for `begin`, evenly spread over (-1, 1).

    Examples
    --------
    >>> evenly(4).tolist()
    [-0.75, -0.25, 0.25, 0.75]
    """
    return (2 * np.arange(n) + 1) / n - 1


def simulation(*, reward: str = "paper", c: float | None = None) -> Callable[[tuple, Any, Any], Outcome]:
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
    >>> outcome = simulation(c=0.5)(tilted, 4, 0.0)
    >>> outcome.reward, bool(outcome.ended)
    (-0.5, True)
    """
    fall, goal, centre, scale = _rewards(reward, c)

    def step(state: tuple, a: Any, u: Any) -> Outcome:
        after = ride(State(*state), a, u)
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
) -> Domain:
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
    >>> domain = bicycle()
    >>> domain.coordinates, len(domain.actions), [factor.inputs for factor in domain.factors]
    (('omega', 'omega_dot', 'theta', 'theta_dot', 'psi', 'd'), 9, [(0, 1, 2, 3), (1, 2, 3), (1, 2, 3, 4, 5)])
    """
    cost, goal, centre, scale = _rewards(reward, c)
    _choose("fall", fall, ("absorbing", "once"))
    _choose("start", start, STARTS)
    if not 0 <= gamma < 1:
        raise ValueError(f"gamma is {gamma!r}: it must be at least 0 and below 1")
    if fall == "absorbing":
        cost /= 1 - gamma

    def before(x: tuple, a: Any) -> tuple:
        return poise(x[0], x[1], x[2], x[3], a)

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
        psi, d = sight(*roll(x[4], x[2], theta, here.frame_x, here.frame_y, here.x, here.y))
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
    episodes = Episodes(
        start=lambda n: begin(start, evenly(n))[:],
        step=simulation(reward=reward, c=c),
        sight=lambda state: features(State(*state)),
        endings={"fall": lambda x: fallen(x[0]), "goal": lambda x: where(fallen(x[0]), False, arrived(x[5]))},
        limit=100_000,
    )
    return Domain("bicycle", COORDINATES, ACTIONS, factors, axes, gamma, Uniform(-SWAY, SWAY) if noise else QUIET, episodes)


def _rewards(reward: str, c: float | None) -> Rewards:
    _choose("reward", reward, REWARDS)
    return REWARDS[reward] if c is None else REWARDS[reward]._replace(fall=-c)


def _choose(what: str, given: str, choices: Iterable[str]) -> None:
    if given not in choices:
        raise ValueError(f"{what} is {given!r}: choose {', '.join(choices)}")
