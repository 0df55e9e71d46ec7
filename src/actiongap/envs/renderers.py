"""Pictures of the bicycle: the ride from behind, from above, and on a map.

The bicycle and its rider are some strokes in space: coordinates forward, left and up from where the back wheel stands, tilted and steered
as the state says. A camera that follows them sees them in perspective, another one above sees them flat. The lawn is mown in squares of
2 m, so that one sees how fast they go, and a beam of light stands over the goal.

Strokes are drawn at twice the size and halved, which smooths them.

What rides look like: a picture of every moment, of the bicycle, of the classic simulators, and of any other as curves.

A sketch is told the whole ride and gives a function that paints one recorded moment of it, so that what does not move is drawn once.
Arrows show what the action does; in the last moment there is none any more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import cos, degrees, hypot, pi, sin
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from actiongap.envs.bicycle import FALL, GOAL_RADIUS, RADIUS, STOP, WHEELBASE, State, features, heading
from actiongap.render.canvas import BLUE, FAINT, FINE, GRASS, INK, LIGHT, PAPER, RED, SKY, Colour, Pen, mixed, strip

if TYPE_CHECKING:
    from actiongap.planning.rollouts import Episode
    from actiongap.planning.simulator import Simulator


WIDTH, HEIGHT = 640, 480
"""Of a picture, in pixels."""

_TYRE, _METAL, _SKIN, _TROUSERS, _HELMET = (32, 34, 40), (196, 52, 44), (228, 178, 140), (52, 58, 78), (244, 244, 240)
# The camera: pixels per metre at 1 m, how far behind the back wheel, how high, and where in the picture it looks.
_FOCUS, _BEHIND, _ABOVE, _CENTRE, _HORIZON = 560.0, 3.3, 1.6, 215.0, 178.0
_MAP, _PLAN = (440, 16, 624, 274), (440, 290, 624, 464)


class Stroke(NamedTuple):
    """A line through points in space, in metres."""

    points: np.ndarray
    colour: Colour
    width: float
    """How thick it is, m."""


def picture(state: State, trail: np.ndarray) -> np.ndarray:
    """What is to be seen of a bicycle that came along this trail of places: an array of height by width by red, green and blue.

    Examples
    --------
    >>> from actiongap.envs.bicycle import standing
    >>> picture(standing(0.3), np.array([[0.0, -1000.0]])).shape
    (480, 640, 3)
    """
    state = State(*(float(number) for number in state))
    trail = np.concatenate([np.asarray(trail, float).reshape(-1, 2), [[state.x, state.y]]])
    ridden = float(np.hypot(*np.diff(trail, axis=0).T).sum())
    figure = strokes(state, ridden)
    image = Image.fromarray(landscape(state)).resize((WIDTH * FINE, HEIGHT * FINE), Image.Resampling.NEAREST)
    pen = Pen(image, FINE)
    _from_behind(pen, state, figure)
    _map(pen, state, trail)
    _from_above(pen, state, trail, figure)
    _dials(pen, state, ridden)
    return np.asarray(image.reduce(FINE))


def strokes(state: State, ridden: float) -> dict[str, Stroke]:
    """The bicycle and its rider part by part, forward, left and up from the back wheel's contact; they have pedalled so many metres.

    Examples
    --------
    >>> from actiongap.envs.bicycle import standing
    >>> strokes(standing(0.0), 0.0)["bar"].points.round(2).tolist()
    [[0.95, 0.3, 1.0], [0.95, -0.3, 1.0]]
    """
    turn, steered = np.linspace(0.0, 2 * pi, 33), np.array([cos(state.theta), sin(state.theta), 0.0])
    across = np.array([-sin(state.theta), cos(state.theta), 0.0])
    rim = RADIUS * np.cos(turn)[:, None] * np.array([1.0, 0.0, 0.0]) + RADIUS * (1 + np.sin(turn))[:, None] * np.array([0.0, 0.0, 1.0])
    steered_rim = np.outer(rim[:, 0], steered) + rim * [0, 0, 1] + [WHEELBASE, 0, 0]
    head, saddle, pedals, hub = [0.95, 0.0, 0.86], [0.22, 0.0, 0.9], [0.45, 0.0, 0.29], [0.0, 0.0, RADIUS]
    bar = np.array([0.95, 0.0, 1.0]) + np.outer([0.3, -0.3], across)
    shoulders = np.array([[0.56, 0.19, 1.4], [0.56, -0.19, 1.4]])
    crank = 2 * pi * ridden / 5.0
    parts = {
        "front wheel": Stroke(steered_rim, _TYRE, 0.05),
        "fork": Stroke(np.array([[WHEELBASE, 0, RADIUS] + 0.06 * steered, head, [0.95, 0.0, 1.0]]), _METAL, 0.04),
        "bar": Stroke(bar, INK, 0.04),
        "head": Stroke(np.array([[0.68, 0.0, 1.62]]), _SKIN, 0.22),
        "helmet": Stroke(np.array([[0.66, 0.0, 1.67]]), _HELMET, 0.24),
        "frame": Stroke(np.array([hub, saddle, head, pedals, saddle, pedals, hub]), _METAL, 0.045),
        "saddle": Stroke(np.array([[0.12, 0.0, 0.94], [0.34, 0.0, 0.94]]), INK, 0.1),
        "back wheel": Stroke(rim, _TYRE, 0.05),
        "trunk": Stroke(np.array([[0.24, 0.0, 1.06], [0.56, 0.0, 1.36]]), BLUE, 0.32),
        "shoulders": Stroke(shoulders, BLUE, 0.15),
    }
    for side, name, hand, shoulder, phase in ((1, "left", bar[0], shoulders[0], 0.0), (-1, "right", bar[1], shoulders[1], pi)):
        elbow = (hand + shoulder) / 2 + [-0.05, 0.07 * side, -0.08]
        parts[f"{name} arm"] = Stroke(np.array([shoulder, elbow, hand]), BLUE, 0.085)
        parts[f"{name} hand"] = Stroke(hand[None], _SKIN, 0.09)
        foot = np.array([0.45 + 0.17 * cos(crank + phase), 0.12 * side, 0.29 + 0.17 * sin(crank + phase)])
        hip = np.array([0.24, 0.09 * side, 0.98])
        knee = (hip + foot) / 2 + [0.24, 0.03 * side, 0.1]
        parts[f"{name} leg"] = Stroke(np.stack([hip, knee, foot + np.array([-0.04, 0, 0.08])]), _TROUSERS, 0.13)
        parts[f"{name} shoe"] = Stroke(foot + np.array([[-0.1, 0, 0.02], [0.12, 0, 0.0]]), INK, 0.08)
    forward, left, up = np.eye(3)
    tilted = np.array([forward, cos(state.omega) * left - sin(state.omega) * up, sin(state.omega) * left + cos(state.omega) * up])
    return {name: part._replace(points=part.points @ tilted) for name, part in parts.items()}


def landscape(state: State) -> np.ndarray:
    """Sky, lawn and the light over the goal, as the camera behind the bicycle sees them.

    Examples
    --------
    >>> from actiongap.envs.bicycle import standing
    >>> landscape(standing(0.0)).shape
    (480, 640, 3)
    """
    backdrop, ahead, left, fade, edge, first = _view()
    psi = heading(state)
    x, y = state.x - state.frame_x, state.y - state.frame_y
    # Squares repeat every 4 m, and small numbers keep float32 exact.
    east, north = -sin(psi) * ahead - cos(psi) * left, cos(psi) * ahead - sin(psi) * left
    squares = np.sin(np.float32(pi / 2) * (east + np.float32(x % 4))) * np.sin(np.float32(pi / 2) * (north + np.float32(y % 4)))
    scene = backdrop.copy()
    scene[first:] += (np.clip(edge * squares, -1, 1) * fade)[:, :, None] * np.array([8, 9, 6], np.float32)
    goal_ahead, goal_left = sin(psi) * x - cos(psi) * y + _BEHIND, cos(psi) * x + sin(psi) * y
    if hypot(x, y) < 100:
        scene[first:][(east + x) ** 2 + (north + y) ** 2 < GOAL_RADIUS**2] *= np.array([1.25, 0.95, 0.6], np.float32)
    if goal_ahead > 1:
        column = _CENTRE - _FOCUS * goal_left / goal_ahead
        glow = np.exp(-(((np.arange(WIDTH) - column) / max(3.0, _FOCUS * 1.5 / goal_ahead)) ** 2))
        foot = min(HEIGHT, int(_HORIZON + _FOCUS * _ABOVE / goal_ahead) + 1)
        glow = (np.linspace(0.35, 0.95, foot)[:, None] * glow)[:, :, None].astype(np.float32)
        scene[:foot] += glow * (np.array(LIGHT, np.float32) - scene[:foot])
    return np.clip(scene, 0, 255).astype(np.uint8)


@cache
def _view() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Sky and bare ground; of every pixel of the ground how far ahead and left it is, how much one sees of it, and how sharply; its top."""
    row, column = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32) + 0.5
    first = int(_HORIZON) + 1
    depth = _FOCUS * _ABOVE / (row[first:] - _HORIZON)
    fade = np.exp(-depth / 16)
    high = (np.minimum(row / _HORIZON, 1))[:, :, None]
    backdrop = np.array([126, 182, 226], np.float32) + high * np.array([106, 62, 22], np.float32)
    backdrop[first:] = np.array([190, 206, 168], np.float32) + fade[:, :, None] * np.array([-70, -40, -82], np.float32)
    edge = np.minimum(_FOCUS * _ABOVE / depth**2, 60)
    return backdrop, depth - np.float32(_BEHIND), -(column[first:] - _CENTRE) * depth / _FOCUS, fade, edge, first


# Far parts first.
_SIDES = [[f"{side} {part}" for side in ("left", "right")] for part in ("arm", "hand", "leg", "shoe")]
_ARMS, _LEGS = _SIDES[0] + _SIDES[1], _SIDES[2] + _SIDES[3]
_SEEN_FROM_BEHIND = ["front wheel", "fork", "bar", "head", "helmet", *_ARMS, "frame", *_LEGS, "trunk", "shoulders", "saddle", "back wheel"]
_SEEN_FROM_ABOVE = ["front wheel", "back wheel", "frame", *_LEGS, "fork", "bar", "saddle", *_ARMS, "trunk", "shoulders", "head", "helmet"]


def _from_behind(pen: Pen, state: State, figure: dict[str, Stroke]) -> None:
    shadow = np.array([[0.0, 0.0, 0.0], [WHEELBASE, 0.0, 0.0]])
    seen, depth = _perspective(shadow)
    pen.line(seen, (84, 118, 62), 0.1 * _FOCUS / depth.mean())
    for name in _SEEN_FROM_BEHIND:
        seen, depth = _perspective(figure[name].points)
        pen.line(seen, figure[name].colour, figure[name].width * _FOCUS / depth.mean())
    psi = features(state)[4]
    if abs(psi) > 0.36:
        side, way = (26.0, -1) if psi < 0 else (414.0, 1)
        pen.line(np.array([[side, 228.0], [side + 12 * way, 240.0], [side, 252.0]]), LIGHT, 5)


def _perspective(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    depth = points[:, 0] + _BEHIND
    return np.stack([_CENTRE - _FOCUS * points[:, 1] / depth, _HORIZON + _FOCUS * (_ABOVE - points[:, 2]) / depth], axis=-1), depth


def _map(pen: Pen, state: State, trail: np.ndarray) -> None:
    left, top, right, bottom = _MAP
    pen.box(_MAP, PAPER, 10)
    seen = trail[:: max(1, len(trail) // 400)]
    low, high = np.minimum(trail.min(0), -GOAL_RADIUS), np.maximum(trail.max(0), GOAL_RADIUS)
    scale = min((right - left - 28) / max(high[0] - low[0], 60.0), (bottom - top - 44) / max(high[1] - low[1], 60.0))
    middle = (low + high) / 2

    def place(points: np.ndarray) -> np.ndarray:
        return np.array([(left + right) / 2, (top + bottom) / 2 - 8]) + (np.atleast_2d(points) - middle) * scale * [1, -1]

    pen.dot(place(np.zeros(2))[0], max(4.0, GOAL_RADIUS * scale), LIGHT)
    pen.line(np.concatenate([place(seen), place(trail[-1])]), BLUE, 2)
    psi, here = heading(state), place(trail[-1])[0]
    nose, aside = np.array([-sin(psi), -cos(psi)]), np.array([cos(psi), -sin(psi)])
    pen.fill(np.array([here + 9 * nose, here - 5 * nose + 5 * aside, here - 2 * nose, here - 5 * nose - 5 * aside]), RED)
    length = max(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if size * scale < 70)
    pen.line(np.array([[left + 12, bottom - 12], [left + 12 + length * scale, bottom - 12]]), INK, 2)
    pen.text((left + 18 + length * scale, bottom - 12), f"{length} m", 11, INK, "lm")
    pen.text((right - 12, bottom - 12), "north up", 11, INK, "rm")


def _from_above(pen: Pen, state: State, trail: np.ndarray, figure: dict[str, Stroke]) -> None:
    left, top, right, bottom = _PLAN
    pen.box(_PLAN, PAPER, 10)
    scale, origin = 58.0, np.array([(left + right) / 2, bottom - 58])
    psi = heading(state)
    track = trail[-40:] - [state.x - state.frame_x, state.y - state.frame_y]
    track = np.stack([track @ [-sin(psi), cos(psi)], track @ [-cos(psi), -sin(psi)]], axis=-1)
    inside = (np.abs(track[:, 1]) < 1.45) & (track[:, 0] > -0.9)
    track = track[len(track) - (len(inside) if inside.all() else int(np.argmin(inside[::-1]))) :]
    pen.line(origin - track[:, ::-1] * scale, FAINT, 4)
    for name in _SEEN_FROM_ABOVE:
        pen.line(origin - figure[name].points[:, 1::-1] * scale, figure[name].colour, figure[name].width * scale)
    bearing = -features(state)[4]
    centre, towards = np.array([(left + right) / 2, (top + bottom) / 2]), np.array([-sin(bearing), -cos(bearing)])
    tip = centre + towards * 74
    aside = np.array([-towards[1], towards[0]])
    pen.fill(np.array([tip + 8 * towards, tip - 5 * towards + 8 * aside, tip - 5 * towards - 8 * aside]), LIGHT)


def _dials(pen: Pen, state: State, ridden: float) -> None:
    distance = features(state)[5]
    pen.text((18, 14), f"{distance:.0f} m to go", 22, INK)
    pen.text((18, 42), f"{ridden:.0f} m ridden", 13, INK)
    for row, name, angle, limit in ((70, "tilt", state.omega, FALL), (92, "handlebar", state.theta, STOP)):
        middle, reach = 150.0, 48.0
        alarm = abs(angle) > 0.75 * limit
        pen.text((18, row), name, 13, INK, "lm")
        pen.line(np.array([[middle - reach, row], [middle + reach, row]]), PAPER, 6)
        pen.line(np.array([[middle, row - 5], [middle, row + 5]]), INK, 1)
        pen.dot((middle - reach * max(-1.0, min(1.0, angle / limit)), row), 6, RED if alarm else INK)
        pen.text((middle + reach + 14, row), f"{abs(degrees(angle)):.0f}°", 13, RED if alarm else INK, "lm")
    if abs(state.omega) > FALL:
        pen.text((_CENTRE, 132), "fallen", 30, RED, "mm")
    elif distance <= GOAL_RADIUS:
        pen.text((_CENTRE, 132), "arrived", 30, INK, "mm")


Painter = Callable[[int], np.ndarray]
"""Of the number of a recorded moment: its picture, height by width by red, green and blue."""


class Sketch(NamedTuple):
    """How a simulator is shown."""

    of: Callable[[Episode], Painter]
    pace: float
    """Steps a second of video when nobody is in a hurry."""
    second: float | None = None
    """Simulated seconds that a step takes; None where steps are not measured in time."""
    beat: int = 0
    """Steps after which the surroundings look the same again, if they do: such a stride would make them stand still or run backwards."""


class Stage(NamedTuple):
    """Something other than a simulator that rides are shown of, with all that a video says about it."""

    name: str
    actions: tuple[str, ...]
    coordinates: tuple[str, ...]
    sketch: Sketch


def sketch_of(simulator: Simulator | Stage) -> Sketch:
    """The sketch of a simulator: its own, or curves of its coordinates.

    Examples
    --------
    >>> from actiongap.envs.classic import pendulum
    >>> sketch_of(pendulum()).second
    0.05
    """
    if isinstance(simulator, Stage):
        return simulator.sketch
    known = SKETCHES.get(simulator.name)
    # Someone else's simulator may have the same name.
    return known[1] if known and known[0] == simulator.coordinates else Sketch(lambda ride: _curves(simulator, ride), 25.0)


def _bicycle(ride: Episode) -> Painter:
    from actiongap.envs.bicycle import State

    east, north = ride.states[6:8]
    # A trail of every tenth of a second, whatever the strides of the video, so that it is as long as the way was.
    stride = max(1, int(np.searchsorted(ride.steps, ride.steps[0] + 10)))
    trail = np.stack([east[::stride], north[::stride]], axis=-1)
    return lambda i: picture(State(*(float(number[i]) for number in ride.states)), trail[: i // stride + 1])


def _mountain_car(ride: Episode) -> Painter:
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


def _pendulum(ride: Episode) -> Painter:
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


def _cart_pole(ride: Episode) -> Painter:
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


def _acrobot(ride: Episode) -> Painter:
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


def _curves(simulator: Simulator, ride: Episode) -> Painter:
    shown = simulator.coordinates[:8]
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
"""By the name of the simulator, with the coordinates that it has."""
