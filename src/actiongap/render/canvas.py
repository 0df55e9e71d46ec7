"""Drawing on images: lines, shapes, text, and curves with a cursor.

A `Canvas` may draw on an image with more pixels than the final frame (supersampling). Positions are given in pixels of the final frame;
reducing the image at the end smooths the edges. A `StripChart` is a curve over time that is drawn once in two versions: a faint one for the
part after the cursor, and a strong one for the part before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Color = tuple[int, int, int]
INK, PAPER, FAINT, SKY, GRASS = (38, 44, 56), (250, 250, 246), (205, 208, 204), (178, 212, 236), (138, 176, 104)
BLUE, RED, LIGHT = (44, 102, 176), (206, 48, 40), (240, 160, 32)
SUPERSAMPLING = 2
"""Pixels drawn per pixel shown, along each side."""
MIN_FONT_SIZE = 9
"""The smallest legible font size."""


@dataclass(frozen=True)
class Canvas:
    """Draws on an image. Positions are multiplied by `scale`, the number of image pixels per unit.

    Examples
    --------
    >>> canvas = Canvas(Image.new("RGB", (20, 20)), 2)
    >>> canvas.dot((5, 5), 3, RED)
    >>> canvas.image.getpixel((10, 10)) == RED
    True
    """

    image: Image.Image
    scale: int = 1

    @cached_property
    def _draw(self) -> Any:
        return ImageDraw.Draw(self.image)

    def line(self, points: Any, color: Color, width: float) -> None:
        """A line through points, with round ends."""
        points = np.asarray(points, float)
        self._draw.line((points * self.scale).ravel().tolist(), fill=color, width=max(1, round(width * self.scale)), joint="curve")
        for end in (points[0], points[-1]):
            self.dot(end, width / 2, color)

    def dot(self, center: Any, radius: float, color: Color) -> None:
        """A disc."""
        x, y = center
        corners = (x - radius, y - radius, x + radius, y + radius)
        self._draw.ellipse([number * self.scale for number in corners], fill=color)

    def fill(self, points: Any, color: Color) -> None:
        """A filled polygon."""
        self._draw.polygon((np.asarray(points, float) * self.scale).ravel().tolist(), fill=color)

    def box(self, corners: tuple[float, float, float, float], color: Color, radius: float = 0.0) -> None:
        """A filled rectangle, given its left, top, right and bottom."""
        self._draw.rounded_rectangle([number * self.scale for number in corners], radius * self.scale, fill=color)

    def arrow(self, start: Any, end: Any, color: Color, width: float) -> None:
        """A line with a head."""
        start, end = np.asarray(start, float), np.asarray(end, float)
        along = (end - start) / max(float(np.hypot(*(end - start))), 1e-9)
        aside = np.array([-along[1], along[0]])
        self.line([start, end - 2 * width * along], color, width)
        self.fill([end, end - 2.5 * width * along + 1.7 * width * aside, end - 2.5 * width * along - 1.7 * width * aside], color)

    def text(self, place: tuple[float, float], text: str, size: int, color: Color = INK, anchor: str = "la") -> None:
        """Text at a position. The anchor is Pillow's: left, middle or right, then ascender, middle or baseline."""
        self._draw.text((place[0] * self.scale, place[1] * self.scale), text, fill=color, font=_font(size * self.scale), anchor=anchor)


def fit_text(text: str, size: int, width: float) -> tuple[str, int]:
    """A text and a font size that fit a width: the font shrinks first; at `MIN_FONT_SIZE`, the middle of the text is left out.

    Examples
    --------
    >>> fit_text("cart-pole, bellman", 14, 288)
    ('cart-pole, bellman', 14)
    >>> fit_text("minatar/breakout, examples/operators.py:halfway, seed 0", 14, 288)
    ('minatar/breakout, examples/operators.py:halfway, seed 0', 10)
    """
    while size > MIN_FONT_SIZE and _font(size).getlength(text) > width:
        size -= 1
    length, short = len(text), text
    while length > 2 and _font(size).getlength(short) > width:
        length -= 1
        short = f"{text[: (length + 1) // 2]}...{text[len(text) - length // 2 :]}"
    return short, size


@cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


class StripChart(NamedTuple):
    """A curve over time, drawn in two versions."""

    ahead: Image.Image
    """The version to the right of the cursor."""
    behind: Image.Image
    """The version to the left of the cursor."""

    def draw(self, image: Image.Image, place: tuple[int, int], fraction: float) -> None:
        """Paste the curve into an image, with the cursor at this fraction of its width."""
        x = round(fraction * (self.ahead.width - 1))
        image.paste(self.ahead, place)
        image.paste(self.behind.crop((0, 0, x + 1, self.behind.height)), place)
        image.paste(INK, (place[0] + x, place[1], place[0] + x + 1, place[1] + self.ahead.height))


def strip_chart(steps: np.ndarray, values: np.ndarray, size: tuple[int, int], color: Color) -> StripChart:
    """A curve of values over steps. If several values share a column: their median, and a band from their 10% to their 90% quantile.

    Examples
    --------
    >>> curve = strip_chart(np.arange(5), np.array([0.0, 1.0, 0.0, 1.0, 0.0]), (80, 30), BLUE)
    >>> picture = Image.new("RGB", (100, 50))
    >>> curve.draw(picture, (10, 10), 0.5)
    >>> picture.getpixel((50, 20)) == INK
    True
    """
    width, height = size
    columns = np.linspace(steps[0], steps[-1], width)
    first = np.searchsorted(steps, columns, "right") - 1
    last = np.maximum(np.append(first[1:], len(steps)), first + 1)
    if len(steps) < 2 * width:
        low = middle = high = np.interp(columns, steps, values)
    else:
        low, middle, high = np.array([np.quantile(values[i:j], [0.1, 0.5, 0.9]) for i, j in zip(first, last, strict=True)]).T
    bottom, top = low.min(), high.max()
    scale = (height - 6) / (top - bottom) if top > bottom else 0.0
    x, lines = np.arange(width) + 0.5, [height - 3 - (curve - bottom) * scale for curve in (low, middle, high)]

    def draw(shade: Color, band: Color) -> Image.Image:
        image = Image.new("RGB", (width * SUPERSAMPLING, height * SUPERSAMPLING), PAPER)
        canvas = Canvas(image, SUPERSAMPLING)
        outline = np.concatenate([np.stack([x, lines[2]], -1), np.stack([x, lines[0]], -1)[::-1]])
        canvas.fill(outline, band)
        canvas.line(np.stack([x, lines[1]], -1), shade, 1.5)
        return image.reduce(SUPERSAMPLING)

    return StripChart(draw(FAINT, blend(PAPER, FAINT, 0.5)), draw(color, blend(PAPER, color, 0.3)))


def blend(one: Color, other: Color, fraction: float) -> Color:
    """The color at a fraction of the way from one color to the other.

    Examples
    --------
    >>> blend((0, 0, 0), (100, 50, 0), 0.5)
    (50, 25, 0)
    """
    red, green, blue = (round(a + (b - a) * fraction) for a, b in zip(one, other, strict=True))
    return red, green, blue
