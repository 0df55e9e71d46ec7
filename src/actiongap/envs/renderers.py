"""Renderers: images of the bicycle, of the classic simulators, and of any other simulator as curves.

A `Renderer` receives a whole recorded episode and returns a function that draws one recorded step of it, so the background is drawn only
once. Arrows show the effect of the action; the last step has no action and no arrow.

The bicycle and its rider are 3-D line segments, in coordinates forward, left and up from the contact of the back wheel, tilted and steered
like the state. A camera that follows them draws them in perspective; a second view is from above; a third is a map. The lawn is mown in
squares of 2 m to make the speed visible, and a beam of light marks the goal.

Line segments are drawn with supersampling, which smooths them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import cos, degrees, hypot, pi, sin
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image

from actiongap.envs.bicycle import FALL, GOAL_RADIUS, RADIUS, STOP, WHEELBASE, State, features, heading
from actiongap.render.canvas import BLUE, FAINT, GRASS, INK, LIGHT, PAPER, RED, SKY, SUPERSAMPLING, Canvas, Color, blend, strip_chart

if TYPE_CHECKING:
    from actiongap.planning.rollouts import Episode
    from actiongap.planning.simulator import Simulator


WIDTH, HEIGHT = 640, 480
"""Size of an image, in pixels."""

_TIRE, _METAL, _SKIN, _TROUSERS, _HELMET = (32, 34, 40), (196, 52, 44), (228, 178, 140), (52, 58, 78), (244, 244, 240)
# The camera: pixels per meter at 1 m, distance behind the back wheel, height, and the image position of the point it looks at.
_FOCUS, _BEHIND, _ABOVE, _CENTER, _HORIZON = 560.0, 3.3, 1.6, 215.0, 178.0
_MAP, _PLAN = (440, 16, 624, 274), (440, 290, 624, 464)


class Stroke(NamedTuple):
    """A line through points in space, in meters."""

    points: np.ndarray
    color: Color
    width: float
    """Thickness, m."""


def render_bicycle(state: State, trail: np.ndarray) -> np.ndarray:
    """An image (height, width, 3) of the bicycle in this state, with the trail of its earlier positions.

    Examples
    --------
    >>> from actiongap.envs.bicycle import standing
    >>> render_bicycle(standing(0.3), np.array([[0.0, -1000.0]])).shape
    (480, 640, 3)
    """
    state = State(*(float(number) for number in state))
    trail = np.concatenate([np.asarray(trail, float).reshape(-1, 2), [[state.x, state.y]]])
    traveled = float(np.hypot(*np.diff(trail, axis=0).T).sum())
    figure = strokes(state, traveled)
    image = Image.fromarray(landscape(state)).resize((WIDTH * SUPERSAMPLING, HEIGHT * SUPERSAMPLING), Image.Resampling.NEAREST)
    canvas = Canvas(image, SUPERSAMPLING)
    _from_behind(canvas, state, figure)
    _map(canvas, state, trail)
    _from_above(canvas, state, trail, figure)
    _dials(canvas, state, traveled)
    return np.asarray(image.reduce(SUPERSAMPLING))


def strokes(state: State, traveled: float) -> dict[str, Stroke]:
    """The parts of the bicycle and its rider, in coordinates forward, left and up from the back contact; `traveled` is in meters.

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
    crank = 2 * pi * traveled / 5.0
    parts = {
        "front wheel": Stroke(steered_rim, _TIRE, 0.05),
        "fork": Stroke(np.array([[WHEELBASE, 0, RADIUS] + 0.06 * steered, head, [0.95, 0.0, 1.0]]), _METAL, 0.04),
        "bar": Stroke(bar, INK, 0.04),
        "head": Stroke(np.array([[0.68, 0.0, 1.62]]), _SKIN, 0.22),
        "helmet": Stroke(np.array([[0.66, 0.0, 1.67]]), _HELMET, 0.24),
        "frame": Stroke(np.array([hub, saddle, head, pedals, saddle, pedals, hub]), _METAL, 0.045),
        "saddle": Stroke(np.array([[0.12, 0.0, 0.94], [0.34, 0.0, 0.94]]), INK, 0.1),
        "back wheel": Stroke(rim, _TIRE, 0.05),
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
    """Sky, lawn and the light over the goal, seen from the camera behind the bicycle.

    Examples
    --------
    >>> from actiongap.envs.bicycle import standing
    >>> landscape(standing(0.0)).shape
    (480, 640, 3)
    """
    backdrop, ahead, left, fade, edge, first = _view()
    psi = heading(state)
    x, y = state.x - state.frame_x, state.y - state.frame_y
    # Squares repeat every 4 m; small numbers keep float32 accurate.
    east, north = -sin(psi) * ahead - cos(psi) * left, cos(psi) * ahead - sin(psi) * left
    squares = np.sin(np.float32(pi / 2) * (east + np.float32(x % 4))) * np.sin(np.float32(pi / 2) * (north + np.float32(y % 4)))
    scene = backdrop.copy()
    scene[first:] += (np.clip(edge * squares, -1, 1) * fade)[:, :, None] * np.array([8, 9, 6], np.float32)
    goal_ahead, goal_left = sin(psi) * x - cos(psi) * y + _BEHIND, cos(psi) * x + sin(psi) * y
    if hypot(x, y) < 100:
        scene[first:][(east + x) ** 2 + (north + y) ** 2 < GOAL_RADIUS**2] *= np.array([1.25, 0.95, 0.6], np.float32)
    if goal_ahead > 1:
        column = _CENTER - _FOCUS * goal_left / goal_ahead
        glow = np.exp(-(((np.arange(WIDTH) - column) / max(3.0, _FOCUS * 1.5 / goal_ahead)) ** 2))
        foot = min(HEIGHT, int(_HORIZON + _FOCUS * _ABOVE / goal_ahead) + 1)
        glow = (np.linspace(0.35, 0.95, foot)[:, None] * glow)[:, :, None].astype(np.float32)
        scene[:foot] += glow * (np.array(LIGHT, np.float32) - scene[:foot])
    return np.clip(scene, 0, 255).astype(np.uint8)


@cache
def _view() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Sky and bare ground; for each ground pixel its distance ahead and to the left, visibility and sharpness; the first ground row."""
    row, column = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32) + 0.5
    first = int(_HORIZON) + 1
    depth = _FOCUS * _ABOVE / (row[first:] - _HORIZON)
    fade = np.exp(-depth / 16)
    high = (np.minimum(row / _HORIZON, 1))[:, :, None]
    backdrop = np.array([126, 182, 226], np.float32) + high * np.array([106, 62, 22], np.float32)
    backdrop[first:] = np.array([190, 206, 168], np.float32) + fade[:, :, None] * np.array([-70, -40, -82], np.float32)
    edge = np.minimum(_FOCUS * _ABOVE / depth**2, 60)
    return backdrop, depth - np.float32(_BEHIND), -(column[first:] - _CENTER) * depth / _FOCUS, fade, edge, first


# Distant parts first.
_LIMBS = [[f"{side} {part}" for side in ("left", "right")] for part in ("arm", "hand", "leg", "shoe")]
_ARMS, _LEGS = _LIMBS[0] + _LIMBS[1], _LIMBS[2] + _LIMBS[3]
_SEEN_FROM_BEHIND = ["front wheel", "fork", "bar", "head", "helmet", *_ARMS, "frame", *_LEGS, "trunk", "shoulders", "saddle", "back wheel"]
_SEEN_FROM_ABOVE = ["front wheel", "back wheel", "frame", *_LEGS, "fork", "bar", "saddle", *_ARMS, "trunk", "shoulders", "head", "helmet"]


def _from_behind(canvas: Canvas, state: State, figure: dict[str, Stroke]) -> None:
    shadow = np.array([[0.0, 0.0, 0.0], [WHEELBASE, 0.0, 0.0]])
    seen, depth = _perspective(shadow)
    canvas.line(seen, (84, 118, 62), 0.1 * _FOCUS / depth.mean())
    for name in _SEEN_FROM_BEHIND:
        seen, depth = _perspective(figure[name].points)
        canvas.line(seen, figure[name].color, figure[name].width * _FOCUS / depth.mean())
    psi = features(state)[4]
    if abs(psi) > 0.36:
        side, way = (26.0, -1) if psi < 0 else (414.0, 1)
        canvas.line(np.array([[side, 228.0], [side + 12 * way, 240.0], [side, 252.0]]), LIGHT, 5)


def _perspective(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    depth = points[:, 0] + _BEHIND
    return np.stack([_CENTER - _FOCUS * points[:, 1] / depth, _HORIZON + _FOCUS * (_ABOVE - points[:, 2]) / depth], axis=-1), depth


def _map(canvas: Canvas, state: State, trail: np.ndarray) -> None:
    left, top, right, bottom = _MAP
    canvas.box(_MAP, PAPER, 10)
    seen = trail[:: max(1, len(trail) // 400)]
    low, high = np.minimum(trail.min(0), -GOAL_RADIUS), np.maximum(trail.max(0), GOAL_RADIUS)
    scale = min((right - left - 28) / max(high[0] - low[0], 60.0), (bottom - top - 44) / max(high[1] - low[1], 60.0))
    middle = (low + high) / 2

    def place(points: np.ndarray) -> np.ndarray:
        return np.array([(left + right) / 2, (top + bottom) / 2 - 8]) + (np.atleast_2d(points) - middle) * scale * [1, -1]

    canvas.dot(place(np.zeros(2))[0], max(4.0, GOAL_RADIUS * scale), LIGHT)
    canvas.line(np.concatenate([place(seen), place(trail[-1])]), BLUE, 2)
    psi, here = heading(state), place(trail[-1])[0]
    nose, aside = np.array([-sin(psi), -cos(psi)]), np.array([cos(psi), -sin(psi)])
    canvas.fill(np.array([here + 9 * nose, here - 5 * nose + 5 * aside, here - 2 * nose, here - 5 * nose - 5 * aside]), RED)
    length = max(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if size * scale < 70)
    canvas.line(np.array([[left + 12, bottom - 12], [left + 12 + length * scale, bottom - 12]]), INK, 2)
    canvas.text((left + 18 + length * scale, bottom - 12), f"{length} m", 11, INK, "lm")
    canvas.text((right - 12, bottom - 12), "north up", 11, INK, "rm")


def _from_above(canvas: Canvas, state: State, trail: np.ndarray, figure: dict[str, Stroke]) -> None:
    left, top, right, bottom = _PLAN
    canvas.box(_PLAN, PAPER, 10)
    scale, origin = 58.0, np.array([(left + right) / 2, bottom - 58])
    psi = heading(state)
    track = trail[-40:] - [state.x - state.frame_x, state.y - state.frame_y]
    track = np.stack([track @ [-sin(psi), cos(psi)], track @ [-cos(psi), -sin(psi)]], axis=-1)
    inside = (np.abs(track[:, 1]) < 1.45) & (track[:, 0] > -0.9)
    track = track[len(track) - (len(inside) if inside.all() else int(np.argmin(inside[::-1]))) :]
    canvas.line(origin - track[:, ::-1] * scale, FAINT, 4)
    for name in _SEEN_FROM_ABOVE:
        canvas.line(origin - figure[name].points[:, 1::-1] * scale, figure[name].color, figure[name].width * scale)
    bearing = -features(state)[4]
    center, towards = np.array([(left + right) / 2, (top + bottom) / 2]), np.array([-sin(bearing), -cos(bearing)])
    tip = center + towards * 74
    aside = np.array([-towards[1], towards[0]])
    canvas.fill(np.array([tip + 8 * towards, tip - 5 * towards + 8 * aside, tip - 5 * towards - 8 * aside]), LIGHT)


def _dials(canvas: Canvas, state: State, traveled: float) -> None:
    distance = features(state)[5]
    canvas.text((18, 14), f"{distance:.0f} m to go", 22, INK)
    canvas.text((18, 42), f"{traveled:.0f} m traveled", 13, INK)
    for row, name, angle, limit in ((70, "tilt", state.omega, FALL), (92, "handlebar", state.theta, STOP)):
        middle, reach = 150.0, 48.0
        alarm = abs(angle) > 0.75 * limit
        canvas.text((18, row), name, 13, INK, "lm")
        canvas.line(np.array([[middle - reach, row], [middle + reach, row]]), PAPER, 6)
        canvas.line(np.array([[middle, row - 5], [middle, row + 5]]), INK, 1)
        canvas.dot((middle - reach * max(-1.0, min(1.0, angle / limit)), row), 6, RED if alarm else INK)
        canvas.text((middle + reach + 14, row), f"{abs(degrees(angle)):.0f}°", 13, RED if alarm else INK, "lm")
    if abs(state.omega) > FALL:
        canvas.text((_CENTER, 132), "fallen", 30, RED, "mm")
    elif distance <= GOAL_RADIUS:
        canvas.text((_CENTER, 132), "arrived", 30, INK, "mm")


FrameRenderer = Callable[[int], np.ndarray]
"""Function of the index of a recorded step: its image, (height, width, 3)."""


class Renderer(NamedTuple):
    """How to draw the episodes of a simulator."""

    for_episode: Callable[[Episode], FrameRenderer]
    steps_per_second: float
    """Default speed: steps per second of video."""
    seconds_per_step: float | None = None
    """Simulated duration of a step; None if steps have no duration."""
    period: int = 0
    """Steps after which the background repeats, or 0. With a stride near this, it would seem to stand still or to move backwards."""


class RenderedEnv(NamedTuple):
    """An environment that is not a `Simulator`, with the names that a video displays and a renderer."""

    name: str
    actions: tuple[str, ...]
    coordinates: tuple[str, ...]
    renderer: Renderer


def renderer_of(simulator: Simulator | RenderedEnv) -> Renderer:
    """The renderer of a simulator: its own `render`, the one in `RENDERERS`, or curves of its coordinates.

    Examples
    --------
    >>> from actiongap.envs.classic import pendulum
    >>> renderer_of(pendulum()).seconds_per_step
    0.05
    """
    if isinstance(simulator, RenderedEnv):
        return simulator.renderer
    known, seconds = RENDERERS.get(simulator.name), simulator.seconds_per_step
    rate = min(100.0, max(1.0, 1 / seconds)) if seconds else 25.0
    if (render := simulator.render) is not None:
        return Renderer(lambda episode: _images(simulator.name, render, episode), rate, seconds)
    # A simulator of the user may have the same name.
    return known[1] if known and known[0] == simulator.coordinates else Renderer(lambda episode: _curves(simulator, episode), rate, seconds)


def _bicycle(episode: Episode) -> FrameRenderer:
    from actiongap.envs.bicycle import State

    east, north = episode.states[6:8]
    # A position per tenth of a second, independent of the strides of the video, so the length of the trail is right.
    stride = max(1, int(np.searchsorted(episode.steps, episode.steps[0] + 10)))
    trail = np.stack([east[::stride], north[::stride]], axis=-1)
    return lambda i: render_bicycle(State(*(float(number[i]) for number in episode.states)), trail[: i // stride + 1])


def _mountain_car(episode: Episode) -> FrameRenderer:
    def place(position: np.ndarray | float) -> np.ndarray:
        x = np.asarray(position)
        return np.stack([20 + (x + 1.2) / 1.8 * 600, 280 - 140 * np.sin(3 * x)], axis=-1)

    ground = place(np.linspace(-1.3, 0.7, 200))
    backdrop = Canvas(_sky(), SUPERSAMPLING)
    backdrop.fill([*ground, (WIDTH, HEIGHT), (0, HEIGHT)], GRASS)
    backdrop.line(ground, blend(GRASS, INK, 0.3), 3)
    foot = place(0.5)
    backdrop.line([foot, foot - [0, 60]], INK, 3)
    backdrop.fill([foot - [0, 62], foot - [34, 49], foot - [0, 36]], LIGHT)

    def draw(canvas: Canvas, i: int) -> None:
        position, way = float(episode.coordinates[0][i]), int(episode.actions[i]) - 1
        slope = np.diff(place(np.array([position - 0.01, position + 0.01])), axis=0)[0]
        along = slope / np.hypot(*slope)
        up = np.array([along[1], -along[0]])

        def at(ahead: float, high: float) -> np.ndarray:
            return place(position) + ahead * along + high * up

        canvas.fill([at(-28, 10), at(28, 10), at(28, 22), at(14, 24), at(8, 38), at(-16, 38), at(-22, 24), at(-28, 22)], RED)
        canvas.fill([at(-13, 25), at(9, 25), at(5, 34), at(-13, 34)], SKY)
        for wheel in (-16, 16):
            canvas.dot(at(wheel, 8), 9, INK)
            canvas.dot(at(wheel, 8), 3, FAINT)
        if way and i < len(episode.steps) - 1:
            canvas.arrow(at(0, 56), at(44 * way, 56), INK, 6)

    return _frame_renderer(backdrop.image, draw)


def _pendulum(episode: Episode) -> FrameRenderer:
    pivot, length, torques = np.array([320.0, 240.0]), 170.0, episode.values.shape[-1]
    backdrop = Canvas(_plain_backdrop(), SUPERSAMPLING)
    backdrop.line(pivot + length * _direction(np.linspace(0, 2 * pi, 90)), FAINT, 2)
    backdrop.dot(pivot + length * _direction(0.0), 16, blend(PAPER, LIGHT, 0.6))

    def draw(canvas: Canvas, i: int) -> None:
        tip = pivot + length * _direction(float(episode.coordinates[0][i]))
        canvas.line([pivot, tip], RED, 22)
        canvas.dot(tip, 20, RED)
        if i < len(episode.steps) - 1:
            _twist(canvas, pivot, 52, 2 * int(episode.actions[i]) / (torques - 1) - 1)
        canvas.dot(pivot, 8, INK)

    return _frame_renderer(backdrop.image, draw)


def _cart_pole(episode: Episode) -> FrameRenderer:
    rail, meter = 360.0, 110.0
    backdrop = Canvas(_plain_backdrop(), SUPERSAMPLING)
    backdrop.line([(WIDTH / 2 - 2.4 * meter, rail + 25), (WIDTH / 2 + 2.4 * meter, rail + 25)], INK, 4)
    for end in (-2.4, 2.4):
        backdrop.line([(WIDTH / 2 + end * meter, rail + 5), (WIDTH / 2 + end * meter, rail + 45)], LIGHT, 6)

    def draw(canvas: Canvas, i: int) -> None:
        position, angle = float(episode.coordinates[0][i]), float(episode.coordinates[2][i])
        cart, way = np.array([WIDTH / 2 + position * meter, rail]), 2 * int(episode.actions[i]) - 1
        # The pole has not fallen while it is inside the wedge.
        canvas.fill([cart, *(cart + 235 * _direction(np.linspace(-pi / 15, pi / 15, 12)))], blend(PAPER, LIGHT, 0.25))
        canvas.box((cart[0] - 42, rail - 18, cart[0] + 42, rail + 16), BLUE, 6)
        for wheel in (-24, 24):
            canvas.dot((cart[0] + wheel, rail + 17), 9, INK)
        canvas.line([cart, cart + 220 * _direction(-angle)], RED, 14)
        canvas.dot(cart, 6, INK)
        if i < len(episode.steps) - 1:
            canvas.arrow((cart[0] + 54 * way, rail), (cart[0] + 98 * way, rail), INK, 6)

    return _frame_renderer(backdrop.image, draw)


def _acrobot(episode: Episode) -> FrameRenderer:
    bar, link = np.array([320.0, 236.0]), 104.0
    backdrop = Canvas(_plain_backdrop(), SUPERSAMPLING)
    for x in range(30, WIDTH - 30, 20):
        backdrop.line([(x, bar[1] - link), (x + 10, bar[1] - link)], LIGHT, 3)
    backdrop.line([bar - [70, 0], bar - [-70, 0]], FAINT, 8)

    def draw(canvas: Canvas, i: int) -> None:
        upper, lower = float(episode.coordinates[0][i]), float(episode.coordinates[1][i])
        # Angles are measured from hanging down, counterclockwise.
        elbow = bar + link * _direction(pi + upper)
        tip = elbow + link * _direction(pi + upper + lower)
        canvas.line([bar, elbow], BLUE, 20)
        canvas.line([elbow, tip], RED, 18)
        canvas.dot(bar, 8, INK)
        canvas.dot(elbow, 7, INK)
        if i < len(episode.steps) - 1:
            _twist(canvas, elbow, 34, int(episode.actions[i]) - 1)

    return _frame_renderer(backdrop.image, draw)


def _curves(simulator: Simulator, episode: Episode) -> FrameRenderer:
    shown = simulator.coordinates[:8]
    row_height = HEIGHT // len(shown)
    size = (WIDTH - 150, min(row_height - 14, 150))
    strips = [strip_chart(episode.steps, np.asarray(episode.coordinates[i], float), size, BLUE) for i in range(len(shown))]
    span = max(1, int(episode.steps[-1] - episode.steps[0]))
    backdrop = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    tops = [i * row_height + (row_height - size[1]) // 2 for i in range(len(shown))]
    for name, top in zip(shown, tops, strict=True):
        Canvas(backdrop).text((18, top + size[1] / 2 - 9), name[:16], 14, INK, "lm")

    def draw(i: int) -> np.ndarray:
        image = backdrop.copy()
        canvas = Canvas(image)
        for values, curve, top in zip(episode.coordinates, strips, tops, strict=False):
            curve.draw(image, (130, top), (episode.steps[i] - episode.steps[0]) / span)
            canvas.text((18, top + size[1] / 2 + 9), f"{values[i]:.4g}", 14, BLUE, "lm")
        return np.asarray(image)

    return draw


def _images(name: str, render: Callable[[tuple[float, ...]], Any], episode: Episode) -> FrameRenderer:
    """Draw the states of an episode with the user's function, scaled to the size of other images."""

    def draw(i: int) -> np.ndarray:
        return fitted(state_image(name, render, tuple(float(number[i]) for number in episode.states)))

    return draw


def state_image(name: str, render: Callable[[tuple[float, ...]], Any], state: tuple[float, ...]) -> np.ndarray:
    """Return the image of a state that a simulator's `render` draws, or raise ValueError if it is not an RGB image.

    Examples
    --------
    >>> state_image("slide", lambda state: np.zeros((2, 2)), (0.5,))
    Traceback (most recent call last):
    ValueError: slide: render returns an array of shape (2, 2): return an RGB image, (height, width, 3), with values from 0 to 255
    """
    image = np.asarray(render(state))
    if image.ndim != 3 or image.shape[2] != 3 or not image.size:
        found = f"an array of shape {image.shape}"
    elif image.dtype.kind not in "iu" or image.min() < 0 or image.max() > 255:
        found = f"values of type {image.dtype}" if image.dtype.kind not in "iu" else f"values from {image.min()} to {image.max()}"
    else:
        return image.astype(np.uint8)
    raise ValueError(f"{name}: render returns {found}: return an RGB image, (height, width, 3), with values from 0 to 255")


def fitted(image: np.ndarray) -> np.ndarray:
    """Scale an image to (HEIGHT, WIDTH) without changing its proportions, and fill up with the color of paper.

    Examples
    --------
    >>> fitted(np.zeros((10, 10, 3), np.uint8)).shape
    (480, 640, 3)
    """
    scale = min(WIDTH / image.shape[1], HEIGHT / image.shape[0])
    width, height = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    found = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    found.paste(Image.fromarray(image).resize((width, height)), ((WIDTH - width) // 2, (HEIGHT - height) // 2))
    return np.asarray(found)


def _frame_renderer(backdrop: Image.Image, draw: Callable[[Canvas, int], None]) -> FrameRenderer:
    def render(i: int) -> np.ndarray:
        image = backdrop.copy()
        draw(Canvas(image, SUPERSAMPLING), i)
        return np.asarray(image.reduce(SUPERSAMPLING))

    return render


def _direction(angle: np.ndarray | float) -> np.ndarray:
    """Unit vectors in the image, by angle from upright, counterclockwise."""
    return np.stack([-np.sin(angle), -np.cos(angle)], axis=-1)


def _twist(canvas: Canvas, center: np.ndarray, radius: float, torque: float) -> None:
    """A curved arrow around a center; its length shows the torque, and counterclockwise is positive."""
    if torque:
        arc = center + radius * _direction(np.linspace(0, 1.9 * torque, 16))
        canvas.line(arc, INK, 5)
        end, along = arc[-1], arc[-1] - arc[-2]
        canvas.arrow(end - along, end + 16 * along / np.hypot(*along), INK, 5)


def _sky() -> Image.Image:
    shade = np.linspace(0, 1, HEIGHT * SUPERSAMPLING)[:, None, None] * (np.array(PAPER) - SKY) + SKY
    return Image.fromarray(np.broadcast_to(shade, (HEIGHT * SUPERSAMPLING, WIDTH * SUPERSAMPLING, 3)).astype(np.uint8))


def _plain_backdrop() -> Image.Image:
    return Image.new("RGB", (WIDTH * SUPERSAMPLING, HEIGHT * SUPERSAMPLING), PAPER)


RENDERERS: dict[str, tuple[tuple[str, ...], Renderer]] = {
    # The lawn repeats every 4 m.
    "bicycle": (("omega", "omega_dot", "theta", "theta_dot", "psi", "d"), Renderer(_bicycle, 100.0, 0.01, 144)),
    "mountain-car": (("position", "speed"), Renderer(_mountain_car, 30.0)),
    "pendulum": (("angle", "rate"), Renderer(_pendulum, 20.0, 0.05)),
    "cart-pole": (("position", "speed", "angle", "rate"), Renderer(_cart_pole, 50.0, 0.02)),
    "acrobot": (("upper", "lower", "upper_rate", "lower_rate"), Renderer(_acrobot, 15.0, 0.2)),
}
"""By name of the simulator: its coordinates and its renderer."""
