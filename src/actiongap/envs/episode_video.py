"""A ride as a video: what is to be seen, and beside it what the policy thinks of it.

Editing comes first. A ride of a bicycle takes minutes, so its start and its end are shown as they were and everything between in a hurry,
at a stride that does not make the lawn seem to run backwards; the video says so. The last frame is held for a second.

Then every frame is painted: on the left the sketch of the simulator, on the right the values of all actions, how V and the action gap have
gone so far, and the numbers of the state. In a hurry many steps go by between two frames. Values are then means over them, and an action
shines by how often it was chosen, which is calmer than one step picked out of many, and truer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from actiongap.envs.renderers import HEIGHT, WIDTH, Sketch, Stage, sketch_of
from actiongap.render.canvas import BLUE, FAINT, INK, PAPER, RED, Colour, Pen, fitted, mixed, strip

if TYPE_CHECKING:
    from actiongap.planning.rollouts import Episode
    from actiongap.planning.simulator import Simulator

SIZE = (WIDTH + 320, HEIGHT)
"""Of a frame, in pixels."""
HOLD = 1.0
"""Seconds for which the last frame is held."""
_LEFT, _RIGHT, _LABEL = 16, 304, 140


class Cut(NamedTuple):
    """Which moments of a ride are shown."""

    records: np.ndarray
    """For every frame which recorded moment it shows."""
    speeds: np.ndarray
    """For every frame the steps a second at which the ride goes by."""
    fps: int

    @property
    def seconds(self) -> float:
        """How long the video is."""
        return len(self.records) / self.fps


def edit(simulator: Simulator | Stage, ride: Episode, *, seconds: float = 20.0, speed: float | None = None) -> Cut:
    """Choose the moments to show: at most so many seconds of video, or all of the ride at one speed.

    Parameters
    ----------
    simulator, ride
        What was ridden, and how.
    seconds
        How long the video may be. Shorter rides are shown as they were, longer ones in a hurry between their start and their end.
    speed
        Times as fast as it was, throughout; of simulators whose steps take no time, times as fast as they are usually shown.

    Examples
    --------
    >>> from actiongap.envs.classic import pendulum
    >>> from actiongap.planning.rollouts import Episode
    >>> simulator, steps = pendulum(), np.arange(101)
    >>> swing = (np.sin(0.1 * steps), np.cos(0.1 * steps))
    >>> episode = Episode(swing, swing, steps % 5, np.zeros((len(steps), 5)), steps, "limit")
    >>> edit(simulator, episode).seconds, edit(simulator, episode, speed=5.0).seconds
    (6.05, 2.04)
    """
    sketch, total = sketch_of(simulator), int(ride.steps[-1] - ride.steps[0])
    if speed is not None:
        if not 0 < speed < np.inf:
            raise ValueError(f"speed is {speed!r}: it must be a positive number, such as 1 for real time")
        rate = speed * (1 / sketch.second if sketch.second else sketch.pace)
        fps = round(rate) if 10 <= rate <= 30 else 25
        strides = np.full(max(1, ceil(total * fps / rate)), rate / fps)
    else:
        if not 2 * HOLD <= seconds < np.inf:
            raise ValueError(f"seconds is {seconds!r}: a video lasts at least {2 * HOLD:g}")
        fps = round(sketch.pace) if sketch.pace <= 30 else 25
        strides = _strides(total, sketch.pace / fps, round(fps * (seconds - HOLD)), sketch.beat)
    places = np.minimum(np.cumsum(np.append(0.0, strides)), total)
    records = np.searchsorted(ride.steps - ride.steps[0], np.round(places))
    held, speeds = round(fps * HOLD), fps * np.append(strides, strides[-1:])
    return Cut(np.append(records, np.repeat(records[-1:], held)), np.append(speeds, np.repeat(speeds[-1:], held)), fps)


def _strides(total: int, pace: float, frames: int, beat: int) -> np.ndarray:
    """Steps between frames that cover the whole ride: even where it fits, otherwise as it was at both ends and hurried between."""
    if total <= pace * frames:
        return np.full(max(1, ceil(total / pace)), pace)
    calm = 0.3 * frames
    hurry = ceil((total - calm * pace) / (frames - calm))
    while beat and hurry > 0.3 * beat and not 0.07 <= hurry % beat / beat <= 0.3:
        hurry += 1
    # What a longer stride saves goes to the ends, and what is over to the last long stride.
    calm = int((frames * hurry - total) / (hurry - pace))
    start, end = calm // 2, frames - (calm - calm // 2)
    strides = np.concatenate([np.full(start, pace), np.full(end - start, float(hurry)), np.full(frames - end, pace)])
    strides[end - 1] -= strides.sum() - total
    return strides


def recorded_every(simulator: Simulator | Stage, speed: float | None = None) -> int:
    """How many steps may lie between the moments that are recorded of a ride, for a video that shows it at this speed.

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> recorded_every(bicycle()), recorded_every(bicycle(), speed=0.25)
    (4, 1)
    """
    return max(1, int(sketch_of(simulator).pace / 25 * min(1.0, speed or 1.0)))


def ride_frames(simulator: Simulator | Stage, ride: Episode, cut: Cut | None = None, *, title: str = "") -> Iterator[np.ndarray]:
    """The frames of a video, one by one: arrays of 480 by 960 by red, green and blue.

    Parameters
    ----------
    simulator, ride
        What was ridden, and how.
    cut
        Which moments; those that `edit` chooses if not given.
    title
        What stands above the values.

    Examples
    --------
    >>> from actiongap.envs.classic import pendulum
    >>> from actiongap.planning.rollouts import Episode
    >>> simulator, steps = pendulum(), np.arange(11)
    >>> swing = (np.sin(0.1 * steps), np.cos(0.1 * steps))
    >>> episode = Episode(swing, swing, steps % 5, np.zeros((len(steps), 5)), steps, "limit")
    >>> next(ride_frames(simulator, episode)).shape
    (480, 960, 3)
    """
    cut, sketch = cut or edit(simulator, ride), sketch_of(simulator)
    paint, panel = sketch.of(ride), _panel(simulator, ride, sketch, title)
    before, frame = -1, np.empty((SIZE[1], SIZE[0], 3), np.uint8)
    for record, speed in zip(cut.records.tolist(), cut.speeds.tolist(), strict=True):
        if record != before:
            frame = np.concatenate([paint(record), panel(before, record, speed)], axis=1)
        before = record
        yield frame


def _panel(simulator: Simulator | Stage, ride: Episode, sketch: Sketch, title: str) -> Callable[[int, int, float], np.ndarray]:
    """A function that paints what the policy thinks between one record and another, at so many steps a second."""
    values, end = np.asarray(ride.values, float), len(ride.steps) - 1
    # Where a ride has ended nothing follows, so the values there mean nothing: the last that count are those before.
    last = end if ride.ending == "limit" or end == 0 else end - 1
    ordered = np.sort(values[: last + 1], axis=1)
    v, gap = ordered[:, -1], ordered[:, -1] - ordered[:, max(0, ordered.shape[1] - 2)]
    reach = float(np.quantile(v - ordered[:, 0], 0.98)) or 1.0
    below, chosen = _sums(v[:, None] - values[: last + 1]), _sums(np.eye(values.shape[1])[ride.actions[: last + 1]])
    gaps, steps = _sums(gap[:, None]), ride.steps[: last + 1]
    size = (_RIGHT - _LEFT, 48)
    # Ties would have no place on a logarithmic axis.
    smallest = max(float(np.quantile(gap, 0.01)), 1e-6 * float(gap.max()), 1e-30)
    curves = strip(steps, v, size, BLUE), strip(steps, np.log10(np.maximum(gap, smallest)), size, RED)
    row = min(30, 162 / len(simulator.actions))
    base = Image.new("RGB", (SIZE[0] - WIDTH, HEIGHT), PAPER)
    pen = Pen(base)
    pen.text((_LEFT, 12), *fitted(title or simulator.name, 14, _RIGHT - _LEFT))
    pen.text((_LEFT, 84), "Q(x, a)", 13)
    pen.text((_LABEL, 84), f"V - {reach:.2g}", 12, mixed(INK, PAPER, 0.35))
    pen.text((_RIGHT, 84), "V", 12, mixed(INK, PAPER, 0.35), "ra")
    if row >= 12:
        for a, name in enumerate(simulator.actions):
            pen.text((_LEFT, 104 + (a + 0.5) * row), name[:24], 11, INK, "lm")
    pen.text((_LEFT, 274), f"V, {v.min():.2g} to {v.max():.2g}", 13)
    pen.text((_LEFT, 346), f"action gap, {smallest:.0e} to {gap.max():.0e}, log", 13)

    def paint(before: int, record: int, speed: float) -> np.ndarray:
        image = base.copy()
        pen = Pen(image)
        now = min(record, last)
        since = min(before, now - 1) + 1
        mean_below, share, mean_gap = ((sums[now + 1] - sums[since]) / (now + 1 - since) for sums in (below, chosen, gaps))
        pen.text((_LEFT, 32), _clock(int(ride.steps[record]), sketch.second), 24)
        pen.text((_LEFT, 62), *_pace(ride, record, speed, sketch.second))
        for a in range(len(simulator.actions)):
            top, full = 104 + a * row, _RIGHT - _LABEL
            length = full * max(0.0, 1 - mean_below[a] / reach)
            pen.box((_LABEL, top + 0.15 * row, _RIGHT, top + 0.85 * row), mixed(PAPER, FAINT, 0.4))
            pen.box((_LABEL, top + 0.15 * row, _LABEL + length, top + 0.85 * row), mixed(mixed(PAPER, BLUE, 0.4), BLUE, share[a] ** 0.5))
        pen.text((_RIGHT, 274), f"{v[now]:.4f}", 13, BLUE, "ra")
        pen.text((_RIGHT, 346), f"{mean_gap[0]:.2g}", 13, RED, "ra")
        for curve, top in zip(curves, (292, 364), strict=True):
            curve.paint(image, (_LEFT, top), (ride.steps[now] - steps[0]) / max(1, int(steps[-1] - steps[0])))
        for i, name in enumerate(simulator.coordinates[:6]):
            x, y = _LEFT + 148 * (i % 2), 426 + 17 * (i // 2)
            pen.text((x, y), name[:10], 12, mixed(INK, PAPER, 0.35))
            # Nothing is added: but minus nothing becomes nothing.
            pen.text((x + 132 + 8 * (i % 2), y), f"{ride.coordinates[i][record] + 0.0:.4g}", 12, INK, "ra")
        return np.asarray(image)

    return paint


def _sums(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)])


def _clock(step: int, second: float | None) -> str:
    if second is None:
        return f"step {step:,}"
    minutes, seconds = divmod(step * second, 60)
    return f"{int(minutes)} min {seconds:04.1f} s" if minutes else f"{seconds:.1f} s"


def _pace(ride: Episode, record: int, speed: float, second: float | None) -> tuple[str, int, Colour]:
    if record == len(ride.steps) - 1:
        return f"{ride.ending} after {int(ride.steps[-1]):,} steps", 14, RED
    if second is None:
        return f"{_short(speed)} steps a second", 14, INK
    times = speed * second
    return ("real time", 14, INK) if abs(times - 1) < 0.01 else (f"{_short(times)} times real time", 14, BLUE)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
