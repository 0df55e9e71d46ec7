"""What rides look like: a picture of every moment, of the bicycle, of the classic simulators, and of any other as curves.

A sketch is told the whole ride and gives a function that paints one recorded moment of it, so that what does not move is drawn once.
Arrows show what the action does; in the last moment there is none any more.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from actiongap.domains.drawing import HEIGHT, WIDTH, picture
from actiongap.render.canvas import BLUE, FAINT, FINE, GRASS, INK, LIGHT, PAPER, RED, SKY, Pen, mixed, strip

if TYPE_CHECKING:
    from actiongap.planning.rollouts import Ride
    from actiongap.planning.simulator import Domain

Painter = Callable[[int], np.ndarray]
"""Of the number of a recorded moment: its picture, height by width by red, green and blue."""


class Sketch(NamedTuple):
    """How a simulator is shown."""

    of: Callable[[Ride], Painter]
    pace: float
    """Steps a second of video when nobody is in a hurry."""
    second: float | None = None
    """Simulated seconds that a step takes; None where steps are not measured in time."""
    beat: int = 0
    """Steps after which the surroundings look the same again, if they do: such a stride would make them stand still or run backwards."""


class Stage(NamedTuple):
    """Something other than a domain that rides are shown of, with all that a video says about it."""

    name: str
    actions: tuple[str, ...]
    coordinates: tuple[str, ...]
    sketch: Sketch


def sketch_of(domain: Domain | Stage) -> Sketch:
    """The sketch of a domain: its own, or curves of its coordinates.

    Examples
    --------
    >>> from actiongap.domains.classic import pendulum
    >>> sketch_of(pendulum()).second
    0.05
    """
    if isinstance(domain, Stage):
        return domain.sketch
    known = SKETCHES.get(domain.name)
    # Someone else's domain may have the same name.
    return known[1] if known and known[0] == domain.coordinates else Sketch(lambda ride: _curves(domain, ride), 25.0)


def _bicycle(ride: Ride) -> Painter:
    from actiongap.domains.riding import State

    east, north = ride.states[6:8]
    # A trail of every tenth of a second, whatever the strides of the video, so that it is as long as the way was.
    stride = max(1, int(np.searchsorted(ride.steps, ride.steps[0] + 10)))
    trail = np.stack([east[::stride], north[::stride]], axis=-1)
    return lambda i: picture(State(*(float(number[i]) for number in ride.states)), trail[: i // stride + 1])


def _mountain_car(ride: Ride) -> Painter:
    def place(position: np.ndarray | float) -> np.ndarray:
        x = np.asarray(position)
        return np.stack([20 + (x + 1.2) / 1.8 * 600, 280 - 140 * np.sin(3 * x)], axis=-1)

    ground = place(np.linspace(-1.3, 0.7, 200))
    backdrop = Pen(_sky(), FINE)
    backdrop.fill([*ground, (WIDTH, HEIGHT), (0, HEIGHT)], GRASS)
    backdrop.line(ground, mixed(GRASS, INK, 0.3), 3)
    foot = place(0.5)
    backdrop.line([foot, foot - [0, 60]], INK, 3)
    backdrop.fill([foot - [0, 62], foot - [34, 49], foot - [0, 36]], LIGHT)

    def paint(pen: Pen, i: int) -> None:
        position, way = float(ride.coordinates[0][i]), int(ride.actions[i]) - 1
        slope = np.diff(place(np.array([position - 0.01, position + 0.01])), axis=0)[0]
        along = slope / np.hypot(*slope)
        up = np.array([along[1], -along[0]])

        def at(ahead: float, high: float) -> np.ndarray:
            return place(position) + ahead * along + high * up

        pen.fill([at(-28, 10), at(28, 10), at(28, 22), at(14, 24), at(8, 38), at(-16, 38), at(-22, 24), at(-28, 22)], RED)
        pen.fill([at(-13, 25), at(9, 25), at(5, 34), at(-13, 34)], SKY)
        for wheel in (-16, 16):
            pen.dot(at(wheel, 8), 9, INK)
            pen.dot(at(wheel, 8), 3, FAINT)
        if way and i < len(ride.steps) - 1:
            pen.arrow(at(0, 56), at(44 * way, 56), INK, 6)

    return _painter(backdrop.image, paint)


def _pendulum(ride: Ride) -> Painter:
    pivot, length, torques = np.array([320.0, 240.0]), 170.0, ride.values.shape[-1]
    backdrop = Pen(_room(), FINE)
    backdrop.line(pivot + length * _round(np.linspace(0, 2 * pi, 90)), FAINT, 2)
    backdrop.dot(pivot + length * _round(0.0), 16, mixed(PAPER, LIGHT, 0.6))

    def paint(pen: Pen, i: int) -> None:
        tip = pivot + length * _round(float(ride.coordinates[0][i]))
        pen.line([pivot, tip], RED, 22)
        pen.dot(tip, 20, RED)
        if i < len(ride.steps) - 1:
            _twist(pen, pivot, 52, 2 * int(ride.actions[i]) / (torques - 1) - 1)
        pen.dot(pivot, 8, INK)

    return _painter(backdrop.image, paint)


def _cart_pole(ride: Ride) -> Painter:
    rail, metre = 360.0, 110.0
    backdrop = Pen(_room(), FINE)
    backdrop.line([(WIDTH / 2 - 2.4 * metre, rail + 25), (WIDTH / 2 + 2.4 * metre, rail + 25)], INK, 4)
    for end in (-2.4, 2.4):
        backdrop.line([(WIDTH / 2 + end * metre, rail + 5), (WIDTH / 2 + end * metre, rail + 45)], LIGHT, 6)

    def paint(pen: Pen, i: int) -> None:
        position, angle = float(ride.coordinates[0][i]), float(ride.coordinates[2][i])
        cart, way = np.array([WIDTH / 2 + position * metre, rail]), 2 * int(ride.actions[i]) - 1
        # Within the wedge it has not fallen.
        pen.fill([cart, *(cart + 235 * _round(np.linspace(-pi / 15, pi / 15, 12)))], mixed(PAPER, LIGHT, 0.25))
        pen.box((cart[0] - 42, rail - 18, cart[0] + 42, rail + 16), BLUE, 6)
        for wheel in (-24, 24):
            pen.dot((cart[0] + wheel, rail + 17), 9, INK)
        pen.line([cart, cart + 220 * _round(-angle)], RED, 14)
        pen.dot(cart, 6, INK)
        if i < len(ride.steps) - 1:
            pen.arrow((cart[0] + 54 * way, rail), (cart[0] + 98 * way, rail), INK, 6)

    return _painter(backdrop.image, paint)


def _acrobot(ride: Ride) -> Painter:
    bar, link = np.array([320.0, 236.0]), 104.0
    backdrop = Pen(_room(), FINE)
    for x in range(30, WIDTH - 30, 20):
        backdrop.line([(x, bar[1] - link), (x + 10, bar[1] - link)], LIGHT, 3)
    backdrop.line([bar - [70, 0], bar - [-70, 0]], FAINT, 8)

    def paint(pen: Pen, i: int) -> None:
        upper, lower = float(ride.coordinates[0][i]), float(ride.coordinates[1][i])
        # Angles are counted from hanging, anticlockwise.
        elbow = bar + link * _round(pi + upper)
        tip = elbow + link * _round(pi + upper + lower)
        pen.line([bar, elbow], BLUE, 20)
        pen.line([elbow, tip], RED, 18)
        pen.dot(bar, 8, INK)
        pen.dot(elbow, 7, INK)
        if i < len(ride.steps) - 1:
            _twist(pen, elbow, 34, int(ride.actions[i]) - 1)

    return _painter(backdrop.image, paint)


def _curves(domain: Domain, ride: Ride) -> Painter:
    shown = domain.coordinates[:8]
    room = HEIGHT // len(shown)
    size = (WIDTH - 150, min(room - 14, 150))
    strips = [strip(ride.steps, np.asarray(ride.coordinates[i], float), size, BLUE) for i in range(len(shown))]
    span = max(1, int(ride.steps[-1] - ride.steps[0]))
    backdrop = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    tops = [i * room + (room - size[1]) // 2 for i in range(len(shown))]
    for name, top in zip(shown, tops, strict=True):
        Pen(backdrop).text((18, top + size[1] / 2 - 9), name[:16], 14, INK, "lm")

    def paint(i: int) -> np.ndarray:
        image = backdrop.copy()
        pen = Pen(image)
        for values, curve, top in zip(ride.coordinates, strips, tops, strict=False):
            curve.paint(image, (130, top), (ride.steps[i] - ride.steps[0]) / span)
            pen.text((18, top + size[1] / 2 + 9), f"{values[i]:.4g}", 14, BLUE, "lm")
        return np.asarray(image)

    return paint


def _painter(backdrop: Image.Image, paint: Callable[[Pen, int], None]) -> Painter:
    def painted(i: int) -> np.ndarray:
        image = backdrop.copy()
        paint(Pen(image, FINE), i)
        return np.asarray(image.reduce(FINE))

    return painted


def _round(angle: np.ndarray | float) -> np.ndarray:
    """Directions in the picture, counted from upright, anticlockwise."""
    return np.stack([-np.sin(angle), -np.cos(angle)], axis=-1)


def _twist(pen: Pen, centre: np.ndarray, radius: float, torque: float) -> None:
    """An arrow bent about a centre, as long as the torque is large; anticlockwise is positive."""
    if torque:
        arc = centre + radius * _round(np.linspace(0, 1.9 * torque, 16))
        pen.line(arc, INK, 5)
        end, along = arc[-1], arc[-1] - arc[-2]
        pen.arrow(end - along, end + 16 * along / np.hypot(*along), INK, 5)


def _sky() -> Image.Image:
    shade = np.linspace(0, 1, HEIGHT * FINE)[:, None, None] * (np.array(PAPER) - SKY) + SKY
    return Image.fromarray(np.broadcast_to(shade, (HEIGHT * FINE, WIDTH * FINE, 3)).astype(np.uint8))


def _room() -> Image.Image:
    return Image.new("RGB", (WIDTH * FINE, HEIGHT * FINE), PAPER)


SKETCHES: dict[str, tuple[tuple[str, ...], Sketch]] = {
    # The lawn repeats every 4 m.
    "bicycle": (("omega", "omega_dot", "theta", "theta_dot", "psi", "d"), Sketch(_bicycle, 100.0, 0.01, 144)),
    "mountain-car": (("position", "speed"), Sketch(_mountain_car, 30.0)),
    "pendulum": (("angle", "rate"), Sketch(_pendulum, 20.0, 0.05)),
    "cart-pole": (("position", "speed", "angle", "rate"), Sketch(_cart_pole, 50.0, 0.02)),
    "acrobot": (("upper", "lower", "upper_rate", "lower_rate"), Sketch(_acrobot, 15.0, 0.2)),
}
"""By the name of the domain, with the coordinates that it has."""
