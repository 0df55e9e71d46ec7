"""Strokes and words on pictures, and curves that a cursor runs along.

A `Pen` draws on a picture that may be finer than it will be shown: places are given in the pixels of the picture that one sees, and halving
it in the end smooths what was drawn. A `Strip` is a curve over time in two colours, drawn once: faint where the cursor has not been yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]
INK, PAPER, FAINT, SKY, GRASS = (38, 44, 56), (250, 250, 246), (205, 208, 204), (178, 212, 236), (138, 176, 104)
BLUE, RED, LIGHT = (44, 102, 176), (206, 48, 40), (240, 160, 32)
FINE = 2
"""How much finer than they are shown pictures are drawn."""
LEAST = 9
"""The size of the smallest letters that can be read."""


@dataclass(frozen=True)
class Pen:
    """Draws on an image whose pixels are so much finer than those in which places are given.

    Examples
    --------
    >>> pen = Pen(Image.new("RGB", (20, 20)), 2)
    >>> pen.dot((5, 5), 3, RED)
    >>> pen.image.getpixel((10, 10)) == RED
    True
    """

    image: Image.Image
    fine: int = 1

    @cached_property
    def _draw(self) -> Any:
        return ImageDraw.Draw(self.image)

    def line(self, points: Any, colour: Colour, width: float) -> None:
        """A line through points, with round ends."""
        points = np.asarray(points, float)
        self._draw.line((points * self.fine).ravel().tolist(), fill=colour, width=max(1, round(width * self.fine)), joint="curve")
        for end in (points[0], points[-1]):
            self.dot(end, width / 2, colour)

    def dot(self, centre: Any, radius: float, colour: Colour) -> None:
        """A disc."""
        x, y = centre
        corners = (x - radius, y - radius, x + radius, y + radius)
        self._draw.ellipse([number * self.fine for number in corners], fill=colour)

    def fill(self, points: Any, colour: Colour) -> None:
        """What lies within these corners."""
        self._draw.polygon((np.asarray(points, float) * self.fine).ravel().tolist(), fill=colour)

    def box(self, corners: tuple[float, float, float, float], colour: Colour, radius: float = 0.0) -> None:
        """A rectangle by its left, top, right and bottom."""
        self._draw.rounded_rectangle([number * self.fine for number in corners], radius * self.fine, fill=colour)

    def arrow(self, start: Any, end: Any, colour: Colour, width: float) -> None:
        """A line with a head."""
        start, end = np.asarray(start, float), np.asarray(end, float)
        along = (end - start) / max(float(np.hypot(*(end - start))), 1e-9)
        aside = np.array([-along[1], along[0]])
        self.line([start, end - 2 * width * along], colour, width)
        self.fill([end, end - 2.5 * width * along + 1.7 * width * aside, end - 2.5 * width * along - 1.7 * width * aside], colour)

    def text(self, place: tuple[float, float], text: str, size: int, colour: Colour = INK, anchor: str = "la") -> None:
        """Words, of which the anchor says what lies at the place: left, middle or right, then ascender, middle or baseline."""
        self._draw.text((place[0] * self.fine, place[1] * self.fine), text, fill=colour, font=_font(size * self.fine), anchor=anchor)


def fitted(text: str, size: int, width: float) -> tuple[str, int]:
    """The text and a size in which it is no wider than this: smaller letters, and where they would be too small, less of its middle.

    Examples
    --------
    >>> fitted("cart-pole, bellman", 14, 288)
    ('cart-pole, bellman', 14)
    >>> fitted("minatar/breakout, examples/operators.py:halfway, seed 0", 14, 288)
    ('minatar/breakout, examples/operators.py:halfway, seed 0', 10)
    """
    while size > LEAST and _font(size).getlength(text) > width:
        size -= 1
    kept, shown = len(text), text
    while kept > 2 and _font(size).getlength(shown) > width:
        kept -= 1
        shown = f"{text[: (kept + 1) // 2]}...{text[len(text) - kept // 2 :]}"
    return shown, size


@cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


class Strip(NamedTuple):
    """A curve over time: as it looks before the cursor has come by, and after."""

    ahead: Image.Image
    behind: Image.Image

    def paint(self, image: Image.Image, place: tuple[int, int], share: float) -> None:
        """Put it into a picture, with the cursor at this share of the way."""
        x = round(share * (self.ahead.width - 1))
        image.paste(self.ahead, place)
        image.paste(self.behind.crop((0, 0, x + 1, self.behind.height)), place)
        image.paste(INK, (place[0] + x, place[1], place[0] + x + 1, place[1] + self.ahead.height))


def strip(steps: np.ndarray, values: np.ndarray, size: tuple[int, int], colour: Colour) -> Strip:
    """The curve of these values over these steps: their median where many fall into one column, and a band that most of them are in.

    Examples
    --------
    >>> curve = strip(np.arange(5), np.array([0.0, 1.0, 0.0, 1.0, 0.0]), (80, 30), BLUE)
    >>> picture = Image.new("RGB", (100, 50))
    >>> curve.paint(picture, (10, 10), 0.5)
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

    def drawn(shade: Colour, band: Colour) -> Image.Image:
        image = Image.new("RGB", (width * FINE, height * FINE), PAPER)
        pen = Pen(image, FINE)
        outline = np.concatenate([np.stack([x, lines[2]], -1), np.stack([x, lines[0]], -1)[::-1]])
        pen.fill(outline, band)
        pen.line(np.stack([x, lines[1]], -1), shade, 1.5)
        return image.reduce(FINE)

    return Strip(drawn(FAINT, mixed(PAPER, FAINT, 0.5)), drawn(colour, mixed(PAPER, colour, 0.3)))


def mixed(one: Colour, other: Colour, share: float) -> Colour:
    """A colour on the way from one to the other.

    Examples
    --------
    >>> mixed((0, 0, 0), (100, 50, 0), 0.5)
    (50, 25, 0)
    """
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return red, green, blue
