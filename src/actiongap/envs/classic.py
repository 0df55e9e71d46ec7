"""Classic control as planning problems: mountain car, pendulum, cart-pole and acrobot.

One step of each is one step of Gymnasium's environment of that name, with the same rewards and terminations. The mountain car and the
acrobot have a reward of -1 per step until the goal. The cart-pole has a reward of 1 per step until the pole falls, the last step included.
For a planner nothing follows a terminal step, so these are shortest and longest path problems. The pendulum never terminates.

For evaluation, episodes start in the same box as in Gymnasium, evenly spread instead of at random, and are truncated after the same number
of steps.

Angles are periodic, except that of the cart-pole, whose pole has fallen at 12 degrees. Rates that are unbounded in Gymnasium are clipped
by the grid only.

References: Gymnasium's classic control, after Moore (1990), Barto, Sutton and Anderson (1983), and Sutton (1996).
"""

from __future__ import annotations

from math import pi
from typing import Any

from actiongap.maths import clip, cos, sin, where, wrap
from actiongap.planning.simulator import Factor, Outcome, Periodic, Simulator


def mountain_car(gamma: float = 0.99) -> Simulator:
    """Return the mountain car: it must build up momentum to reach the top of a hill. The reward is -1 per step.

    Examples
    --------
    >>> from actiongap.planning.simulator import one_step
    >>> position, speed = one_step(mountain_car())((-0.5, 0.0), 2, 0.0).x
    >>> round(float(speed), 6)
    0.000823
    """

    def step(x: tuple[Any, ...], a: Any, u: Any) -> Outcome:
        position, speed = x
        speed = clip(speed + 0.001 * (a - 1) - 0.0025 * cos(3 * position), -0.07, 0.07)
        position = clip(position + speed, -1.2, 0.6)
        # The wall on the left stops the car.
        speed = where((position <= -1.2) & (speed < 0.0), 0.0 * speed, speed)
        return Outcome((position, speed), -1.0, up((position, speed)))

    def up(x: tuple[Any, ...]) -> Any:
        return (x[0] >= 0.5) & (x[1] >= 0.0)

    return Simulator(
        "mountain-car",
        step,
        state={"position": (-1.2, 0.6), "speed": (-0.07, 0.07)},
        actions=("left", "coast", "right"),
        gamma=gamma,
        outcomes={"goal": up},
        start={"position": (-0.6, -0.4), "speed": (0.0, 0.0)},
        max_episode_steps=200,
    )


def pendulum(gamma: float = 0.99, torques: int = 5) -> Simulator:
    """Return the pendulum: it must be swung up and balanced, with torques evenly spaced from -2 to 2.

    The angle is 0 when the pendulum is upright. The cost of a step is angle^2 + 0.1 rate^2 + 0.001 torque^2.

    Examples
    --------
    >>> from actiongap.planning.simulator import one_step
    >>> simulator = pendulum()
    >>> simulator.actions
    ('-2', '-1', '0', '1', '2')
    >>> round(float(one_step(simulator)((3.0, 0.0), 2, 0.0).reward), 6)
    -9.0
    """
    if torques < 2:
        raise ValueError(f"torques is {torques!r}: give at least 2, one per direction")

    def step(x: tuple[Any, ...], a: Any, u: Any) -> Outcome:
        angle, rate = x
        torque = 4.0 * a / (torques - 1) - 2.0
        cost = wrap(angle) ** 2 + 0.1 * rate**2 + 0.001 * torque**2
        rate = clip(rate + 0.05 * (15.0 * sin(angle) + 3.0 * torque), -8.0, 8.0)
        return Outcome((wrap(angle + 0.05 * rate), rate), -cost, False)

    return Simulator(
        "pendulum",
        step,
        state={"angle": Periodic(-pi, pi), "rate": (-8.0, 8.0)},
        actions=tuple(f"{4 * a / (torques - 1) - 2:.3g}" for a in range(torques)),
        gamma=gamma,
        start={"angle": (-pi, pi), "rate": (-1.0, 1.0)},
        max_episode_steps=200,
    )


def cart_pole(gamma: float = 0.99) -> Simulator:
    """Return the cart-pole: a pole is balanced on a cart that is pushed to the left or to the right. The reward is 1 per step.

    It has three factors. The position of the cart depends on its speed only, its speed on the pole and the push, and the pole on neither
    the position nor the speed of the cart.

    Examples
    --------
    >>> from actiongap.planning.simulator import one_step
    >>> outcome = one_step(cart_pole())((0.0, 0.0, 0.2, 1.0), 1, 0.0)
    >>> float(outcome.reward), bool(outcome.ended)
    (1.0, True)
    """
    dt, fall, edge = 0.02, pi / 15, 2.4

    def position(x: tuple[Any, ...], a: Any, u: Any) -> Outcome:
        x_next = x[0] + dt * x[1]
        off = abs(x_next) > edge
        return Outcome((x_next,), where(off, 1.0, 0.0), off)

    def speed(x: tuple[Any, ...], a: Any, u: Any) -> Outcome:
        return Outcome((x[1] + dt * _cart_pole_accelerations(x[2], x[3], a)[0],), 0.0, False)

    def pole(x: tuple[Any, ...], a: Any, u: Any) -> Outcome:
        angle = x[2] + dt * x[3]
        return Outcome((angle, x[3] + dt * _cart_pole_accelerations(x[2], x[3], a)[1]), 1.0, abs(angle) > fall)

    factors = (
        Factor((0,), (0, 1), (0, 0), False, position),
        Factor((1,), (1, 2, 3), (0, 1), False, speed),
        Factor((2, 3), (2, 3), (0, 1), False, pole),
    )
    return Simulator(
        "cart-pole",
        factors,
        state={"position": (-edge, edge), "speed": (-3.0, 3.0), "angle": (-fall, fall), "rate": (-3.5, 3.5)},
        actions=("left", "right"),
        gamma=gamma,
        outcomes={"fall": lambda x: (abs(x[0]) > edge) | (abs(x[2]) > fall)},
        start=dict.fromkeys(("position", "speed", "angle", "rate"), (-0.05, 0.05)),
        max_episode_steps=500,
    )


def acrobot(gamma: float = 0.99) -> Simulator:
    """Return the acrobot: two links hang from a bar, and a torque between them must swing the tip above it.

    The reward is -1 per step and 0 for the last. Both angles are 0 when the links hang down; the second is relative to the upper link.

    Examples
    --------
    >>> from actiongap.planning.simulator import one_step
    >>> outcome = one_step(acrobot())((0.0, 0.0, 0.0, 0.0), 2, 0.0)
    >>> [round(float(number), 4) for number in outcome.x], float(outcome.reward)
    ([-0.0133, 0.0343, -0.1287, 0.3345], -1.0)
    """

    def step(x: tuple[Any, ...], a: Any, u: Any) -> Outcome:
        # One step of the fourth-order Runge-Kutta method.
        dt, torque = 0.2, a - 1.0
        first = _acrobot_derivatives(x, torque)
        second = _acrobot_derivatives(_euler(x, first, dt / 2), torque)
        third = _acrobot_derivatives(_euler(x, second, dt / 2), torque)
        fourth = _acrobot_derivatives(_euler(x, third, dt), torque)
        y = _euler(_euler(_euler(_euler(x, first, dt / 6), second, dt / 3), third, dt / 3), fourth, dt / 6)
        y = (wrap(y[0]), wrap(y[1]), clip(y[2], -4 * pi, 4 * pi), clip(y[3], -9 * pi, 9 * pi))
        return Outcome(y, where(up(y), 0.0, -1.0), up(y))

    def up(x: tuple[Any, ...]) -> Any:
        return -cos(x[0]) - cos(x[0] + x[1]) > 1.0

    around = Periodic(-pi, pi)
    state = {"upper": around, "lower": around, "upper_rate": (-4 * pi, 4 * pi), "lower_rate": (-9 * pi, 9 * pi)}
    return Simulator(
        "acrobot",
        step,
        state=state,
        actions=("-1", "0", "1"),
        gamma=gamma,
        outcomes={"goal": up},
        start=dict.fromkeys(state, (-0.1, 0.1)),
        max_episode_steps=500,
    )


def _cart_pole_accelerations(angle: Any, rate: Any, a: Any) -> tuple[Any, Any]:
    """Return the accelerations of cart and pole: a cart of 1 kg, a pole of 0.1 kg and 1 m, a push of 10 N."""
    push = (20.0 * a - 10.0 + 0.05 * rate**2 * sin(angle)) / 1.1
    turn = (9.8 * sin(angle) - cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * cos(angle) ** 2 / 1.1))
    return push - 0.05 * turn * cos(angle) / 1.1, turn


def _acrobot_derivatives(x: tuple[Any, ...], torque: Any) -> tuple[Any, ...]:
    """Return the time derivatives: links of 1 kg and 1 m, with their center of mass in the middle and a moment of inertia of 1 kg m^2."""
    upper, lower, upper_rate, lower_rate = x
    d1 = 3.5 + cos(lower)
    d2 = 1.25 + 0.5 * cos(lower)
    pull2 = 4.9 * sin(upper + lower)
    pull1 = -0.5 * lower_rate * (lower_rate + 2.0 * upper_rate) * sin(lower) + 14.7 * sin(upper) + pull2
    lower_turn = (torque + d2 / d1 * pull1 - 0.5 * upper_rate**2 * sin(lower) - pull2) / (1.25 - d2**2 / d1)
    return upper_rate, lower_rate, -(d2 * lower_turn + pull1) / d1, lower_turn


def _euler(x: tuple[Any, ...], rates: tuple[Any, ...], dt: float) -> tuple[Any, ...]:
    return x[0] + dt * rates[0], x[1] + dt * rates[1], x[2] + dt * rates[2], x[3] + dt * rates[3]
