"""Videos of episodes: the simulator on the left, the values of the policy on the right.

First the frames are selected. An episode of the bicycle lasts minutes, so long episodes are shown at normal speed at both ends and sped up
in between. The stride avoids the wagon-wheel effect, in which the lawn seems to move backwards, and the panel displays the speed. The last
frame is held for one second.

Then each frame is drawn: the simulator's renderer on the left; on the right the values of all actions, V and the action gap so far, and the
coordinates of the state. In the part that is sped up, many steps pass between two frames. Values are then means over these steps, and the
shade of an action is how often it was chosen. This flickers less than showing single steps, and represents all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from actiongap._files import check_writable
from actiongap.envs.renderers import HEIGHT, WIDTH, RenderedEnv, Renderer, renderer_of
from actiongap.maths import action_gap
from actiongap.render.canvas import BLUE, FAINT, INK, PAPER, RED, Canvas, Color, blend, fit_text, strip_chart
from actiongap.render.video import NO_MP4, makes_mp4, write_video

if TYPE_CHECKING:
    from actiongap.planning.rollouts import Episode
    from actiongap.planning.simulator import Simulator

SIZE = (WIDTH + 320, HEIGHT)
"""Width and height of a frame, in pixels."""
HOLD = 1.0
"""Seconds for which the last frame is held."""
_LEFT, _RIGHT, _LABEL = 16, 304, 140


class FrameSelection(NamedTuple):
    """The recorded steps that a video shows."""

    indices: np.ndarray
    """For each frame, the index of the recorded step that it shows."""
    speeds: np.ndarray
    """For each frame, the speed in steps per second."""
    fps: int

    @property
    def seconds(self) -> float:
        """Duration of the video."""
        return len(self.indices) / self.fps


def select_frames(
    simulator: Simulator | RenderedEnv, episode: Episode, *, seconds: float = 20.0, speed: float | None = None
) -> FrameSelection:
    """Select the frames of a video: at most `seconds` of video, or the whole episode at one speed.

    Parameters
    ----------
    simulator, episode
        The simulator (or rendered environment), and a recorded episode of it.
    seconds
        Maximum duration of the video. Longer episodes are sped up between their start and their end.
    speed
        Constant playback speed relative to real time; relative to the renderer's default if steps have no duration.

    Examples
    --------
    >>> from actiongap.envs.classic import pendulum
    >>> from actiongap.planning.rollouts import Episode
    >>> simulator, steps = pendulum(), np.arange(101)
    >>> swing = (np.sin(0.1 * steps), np.cos(0.1 * steps))
    >>> episode = Episode(swing, swing, steps % 5, np.zeros((len(steps), 5)), steps, "limit")
    >>> select_frames(simulator, episode).seconds, select_frames(simulator, episode, speed=5.0).seconds
    (6.05, 2.04)
    """
    renderer, total = renderer_of(simulator), int(episode.steps[-1] - episode.steps[0])
    if speed is not None:
        if not 0 < speed < np.inf:
            raise ValueError(f"speed is {speed!r}: give a positive number, such as 1 for real time")
        rate = speed * (1 / renderer.seconds_per_step if renderer.seconds_per_step else renderer.steps_per_second)
        fps = round(rate) if 10 <= rate <= 30 else 25
        strides = np.full(max(1, ceil(total * fps / rate)), rate / fps)
    else:
        check_seconds(seconds)
        fps = round(renderer.steps_per_second) if renderer.steps_per_second <= 30 else 25
        strides = _strides(total, renderer.steps_per_second / fps, round(fps * (seconds - HOLD)), renderer.period)
    places = np.minimum(np.cumsum(np.append(0.0, strides)), total)
    records = np.searchsorted(episode.steps - episode.steps[0], np.round(places))
    held, speeds = round(fps * HOLD), fps * np.append(strides, strides[-1:])
    return FrameSelection(np.append(records, np.repeat(records[-1:], held)), np.append(speeds, np.repeat(speeds[-1:], held)), fps)


def _strides(total: int, pace: float, frames: int, period: int) -> np.ndarray:
    """Steps between frames: constant if the episode fits, otherwise `pace` steps at both ends and a longer stride in between."""
    if total <= pace * frames:
        return np.full(max(1, ceil(total / pace)), pace)
    normal = 0.3 * frames
    stride = ceil((total - normal * pace) / (frames - normal))
    while period and stride > 0.3 * period and not 0.07 <= stride % period / period <= 0.3:
        stride += 1
    # Frames saved by a longer stride go to both ends; the remainder goes to the last long stride.
    normal = int((frames * stride - total) / (stride - pace))
    start, end = normal // 2, frames - (normal - normal // 2)
    strides = np.concatenate([np.full(start, pace), np.full(end - start, float(stride)), np.full(frames - end, pace)])
    strides[end - 1] -= strides.sum() - total
    return strides


def record_interval(simulator: Simulator | RenderedEnv, speed: float | None = None) -> int:
    """Return the number of steps between two recorded frames of an episode, for a video at this speed.

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> record_interval(bicycle()), record_interval(bicycle(), speed=0.25)
    (4, 1)
    """
    return max(1, int(renderer_of(simulator).steps_per_second / 25 * min(1.0, speed or 1.0)))


def episode_frames(
    simulator: Simulator | RenderedEnv, episode: Episode, selection: FrameSelection | None = None, *, title: str = ""
) -> Iterator[np.ndarray]:
    """Yield the frames of a video: uint8 arrays (480, 960, 3).

    Parameters
    ----------
    simulator, episode
        The simulator (or rendered environment), and a recorded episode of it.
    selection
        The frames to show; those of `select_frames` if None.
    title
        Text above the values.

    Examples
    --------
    >>> from actiongap.envs.classic import pendulum
    >>> from actiongap.planning.rollouts import Episode
    >>> simulator, steps = pendulum(), np.arange(11)
    >>> swing = (np.sin(0.1 * steps), np.cos(0.1 * steps))
    >>> episode = Episode(swing, swing, steps % 5, np.zeros((len(steps), 5)), steps, "limit")
    >>> next(episode_frames(simulator, episode)).shape
    (480, 960, 3)
    """
    selection, renderer = selection or select_frames(simulator, episode), renderer_of(simulator)
    draw, panel = renderer.for_episode(episode), _panel(simulator, episode, renderer, title)
    before, frame = -1, np.empty((SIZE[1], SIZE[0], 3), np.uint8)
    for record, speed in zip(selection.indices.tolist(), selection.speeds.tolist(), strict=True):
        if record != before:
            frame = np.concatenate([draw(record), panel(before, record, speed)], axis=1)
        before = record
        yield frame


class EpisodeVideo(NamedTuple):
    """A video that was written, and the episode that it shows."""

    steps: int
    """Number of steps of the episode."""
    outcome: str
    """How it ended."""
    seconds: float
    """Duration of the video."""
    mp4: Path | None
    gif: Path | None


def check_seconds(seconds: float) -> None:
    """Raise ValueError if a video would be too short to show the first and the last frame for a while.

    Examples
    --------
    >>> check_seconds(0.0)
    Traceback (most recent call last):
    ValueError: seconds is 0.0: give at least 2
    """
    if not 2 * HOLD <= seconds < np.inf:
        raise ValueError(f"seconds is {seconds!r}: give at least {2 * HOLD:g}")


def video_files(file: str | Path, gif: bool = False) -> dict[str, Path | None]:
    """Return the MP4 and the GIF to write for a path, or raise ValueError. An MP4 has a GIF beside it if `gif`, and needs PyAV.

    Examples
    --------
    >>> {name: path and path.name for name, path in video_files("cart.gif").items()}
    {'mp4': None, 'gif': 'cart.gif'}
    """
    path = Path(file)
    if path.suffix not in (".mp4", ".gif"):
        raise ValueError(f"{path}: a video is an .mp4 or a .gif file: give it that suffix")
    if not os.path.isdir(path.parent):
        raise ValueError(f"{path}: there is no folder {path.parent}: make it, or choose another")
    if path.suffix == ".mp4" and not makes_mp4():
        raise ValueError(NO_MP4)
    check_writable(path)
    return {"mp4": path if path.suffix == ".mp4" else None, "gif": path.with_suffix(".gif") if gif or path.suffix == ".gif" else None}


def check_pace(seconds: float | None, speed: float | None) -> None:
    """Raise a ValueError if both the length of a video and its speed are given, or one of them makes no video.

    Examples
    --------
    >>> check_pace(20.0, 2.0)
    Traceback (most recent call last):
    ValueError: seconds and speed both set the speed of the video: give one of them
    """
    if seconds is not None and speed is not None:
        raise ValueError("seconds and speed both set the speed of the video: give one of them")
    if seconds is not None:
        check_seconds(seconds)
    if speed is not None and not 0 < speed < np.inf:
        raise ValueError(f"speed is {speed!r}: give a positive number")


def write_episode(
    simulator: Simulator | RenderedEnv,
    episode: Episode,
    *,
    mp4: Path | None = None,
    gif: Path | None = None,
    title: str = "",
    seconds: float | None = None,
    speed: float | None = None,
    progress: Callable[[str, float], None] = lambda text, fraction: None,
) -> EpisodeVideo:
    """Write the video of an episode to an MP4 file, a GIF file, or both. `seconds` (20 by default) and `speed` are as for `select_frames`.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.envs.classic import pendulum
    >>> from actiongap.planning.rollouts import Episode
    >>> steps = np.arange(11)
    >>> swing = (np.sin(0.1 * steps), np.cos(0.1 * steps))
    >>> episode = Episode(swing, swing, steps % 5, np.zeros((len(steps), 5)), steps, "limit")
    >>> video = write_episode(pendulum(), episode, gif=Path(tempfile.mkdtemp()) / "swing.gif")
    >>> video.steps, video.outcome
    (10, 'limit')
    """
    selection = select_frames(simulator, episode, seconds=20.0 if seconds is None else seconds, speed=speed)

    def frames() -> Iterator[np.ndarray]:
        total = len(selection.indices)
        for number, frame in enumerate(episode_frames(simulator, episode, selection, title=title), 1):
            progress(f"frame {number} of {total}", number / total)
            yield frame

    write_video(frames(), selection.fps, mp4=mp4, gif=gif)
    return EpisodeVideo(int(episode.steps[-1]), episode.outcome, selection.seconds, mp4, gif)


def _panel(simulator: Simulator | RenderedEnv, episode: Episode, renderer: Renderer, title: str) -> Callable[[int, int, float], np.ndarray]:
    """A function that draws the right panel: means over the steps after one recorded step up to another, at a speed in steps per second."""
    values, end = np.asarray(episode.values, float), len(episode.steps) - 1
    # Values at a terminal state are meaningless, so the curves stop one step earlier.
    last = end if episode.outcome == "limit" or end == 0 else end - 1
    v, gap = values[: last + 1].max(axis=1), action_gap(values[: last + 1])
    reach = float(np.quantile(v - values[: last + 1].min(axis=1), 0.98)) or 1.0
    below, chosen = _sums(v[:, None] - values[: last + 1]), _sums(np.eye(values.shape[1])[episode.actions[: last + 1]])
    gaps, steps = _sums(gap[:, None]), episode.steps[: last + 1]
    size = (_RIGHT - _LEFT, 48)
    # A gap of zero has no place on a logarithmic axis.
    smallest = max(float(np.quantile(gap, 0.01)), 1e-6 * float(gap.max()), 1e-30)
    curves = strip_chart(steps, v, size, BLUE), strip_chart(steps, np.log10(np.maximum(gap, smallest)), size, RED)
    row = min(30, 162 / len(simulator.actions))
    base = Image.new("RGB", (SIZE[0] - WIDTH, HEIGHT), PAPER)
    canvas = Canvas(base)
    canvas.text((_LEFT, 12), *fit_text(title or simulator.name, 14, _RIGHT - _LEFT))
    canvas.text((_LEFT, 84), "Q(x, a)", 13)
    canvas.text((_LABEL, 84), f"V - {reach:.2g}", 12, blend(INK, PAPER, 0.35))
    canvas.text((_RIGHT, 84), "V", 12, blend(INK, PAPER, 0.35), "ra")
    if row >= 12:
        for a, name in enumerate(simulator.actions):
            canvas.text((_LEFT, 104 + (a + 0.5) * row), name[:24], 11, INK, "lm")
    canvas.text((_LEFT, 274), f"V, {v.min():.2g} to {v.max():.2g}", 13)
    canvas.text((_LEFT, 346), f"action gap, {smallest:.0e} to {gap.max():.0e}, log", 13)

    def draw(before: int, record: int, speed: float) -> np.ndarray:
        image = base.copy()
        canvas = Canvas(image)
        now = min(record, last)
        since = min(before, now - 1) + 1
        mean_below, share, mean_gap = ((sums[now + 1] - sums[since]) / (now + 1 - since) for sums in (below, chosen, gaps))
        canvas.text((_LEFT, 32), _format_time(int(episode.steps[record]), renderer.seconds_per_step), 24)
        canvas.text((_LEFT, 62), *_format_speed(episode, record, speed, renderer.seconds_per_step))
        for a in range(len(simulator.actions)):
            top, full = 104 + a * row, _RIGHT - _LABEL
            length = full * max(0.0, 1 - mean_below[a] / reach)
            canvas.box((_LABEL, top + 0.15 * row, _RIGHT, top + 0.85 * row), blend(PAPER, FAINT, 0.4))
            canvas.box((_LABEL, top + 0.15 * row, _LABEL + length, top + 0.85 * row), blend(blend(PAPER, BLUE, 0.4), BLUE, share[a] ** 0.5))
        canvas.text((_RIGHT, 274), f"{v[now]:.4f}", 13, BLUE, "ra")
        canvas.text((_RIGHT, 346), f"{mean_gap[0]:.2g}", 13, RED, "ra")
        for curve, top in zip(curves, (292, 364), strict=True):
            curve.draw(image, (_LEFT, top), (episode.steps[now] - steps[0]) / max(1, int(steps[-1] - steps[0])))
        for i, name in enumerate(simulator.coordinates[:6]):
            x, y = _LEFT + 148 * (i % 2), 426 + 17 * (i // 2)
            canvas.text((x, y), name[:10], 12, blend(INK, PAPER, 0.35))
            # Adding 0.0 turns -0.0 into 0.0.
            canvas.text((x + 132 + 8 * (i % 2), y), f"{episode.coordinates[i][record] + 0.0:.4g}", 12, INK, "ra")
        return np.asarray(image)

    return draw


def _sums(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)])


def _format_time(step: int, second: float | None) -> str:
    if second is None:
        return f"step {step:,}"
    minutes, seconds = divmod(step * second, 60)
    return f"{int(minutes)} min {seconds:04.1f} s" if minutes else f"{seconds:.1f} s"


def _format_speed(episode: Episode, record: int, speed: float, second: float | None) -> tuple[str, int, Color]:
    if record == len(episode.steps) - 1:
        return f"{episode.outcome} after {int(episode.steps[-1]):,} steps", 14, RED
    if second is None:
        return f"{_format_number(speed)} steps per second", 14, INK
    times = speed * second
    return ("real time", 14, INK) if abs(times - 1) < 0.01 else (f"{_format_number(times)} times real time", 14, BLUE)


def _format_number(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
