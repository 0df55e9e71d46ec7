"""Pictures of MinAtar's boards: what is seen of a game, each layer of the observation in a colour of its own.

Things are blocks, bullets are dots, and trails, which say where something came from, are small and faint. Layers that share cells are
painted one over the other, what matters most last.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from PIL import Image

from actiongap.render.canvas import FINE, Colour, Pen, mixed

CELL = 40
"""Pixels of a cell's side."""
_NIGHT, _FLOOR = (20, 23, 33), (31, 36, 50)
_WHITE, _GOLD, _RED, _GREEN, _BLUE, _CYAN = (240, 240, 236), (246, 190, 60), (232, 80, 70), (104, 204, 120), (86, 140, 240), (96, 210, 226)
_VIOLET, _ORANGE, _GREY = (176, 124, 236), (242, 140, 58), (150, 158, 176)


class Mark(NamedTuple):
    """How a layer is drawn."""

    layer: int
    colour: Colour
    shape: Literal["block", "dot", "trail"] = "block"


_SPEEDS = [mixed(_RED, _BLUE, k / 4) for k in range(5)]
MARKS: dict[str, tuple[Mark, ...]] = {
    "asterix": (Mark(2, _GREY, "trail"), Mark(3, _GOLD), Mark(1, _RED), Mark(0, _CYAN)),
    "breakout": (Mark(3, _ORANGE), Mark(2, _WHITE, "trail"), Mark(1, _WHITE, "dot"), Mark(0, _CYAN)),
    "freeway": (*(Mark(2 + k, _SPEEDS[k], "trail") for k in range(5)), Mark(1, _ORANGE), Mark(0, _GOLD, "dot")),
    "seaquest": (
        Mark(7, _BLUE),
        Mark(8, _GREEN, "dot"),
        Mark(3, _GREY, "trail"),
        Mark(9, _GREEN),
        Mark(5, _RED),
        Mark(6, _VIOLET),
        Mark(1, mixed(_NIGHT, _CYAN, 0.6)),
        Mark(0, _CYAN),
        Mark(2, _WHITE, "dot"),
        Mark(4, _RED, "dot"),
    ),
    "space_invaders": (
        Mark(1, _GREY),
        Mark(2, _GREEN),
        Mark(3, _VIOLET),
        Mark(0, _CYAN),
        Mark(4, _WHITE, "dot"),
        Mark(5, _RED, "dot"),
    ),
}
"""The layers of each game in the order in which they are painted."""


def picture(game: str, observation: Any) -> np.ndarray:
    """An observation of a game to look at: an array of height by width by red, green and blue.

    Examples
    --------
    >>> picture("breakout", np.zeros((10, 10, 4), bool)).shape
    (400, 400, 3)
    """
    seen = np.asarray(observation, bool)
    rows, columns, _ = seen.shape
    image = Image.new("RGB", (columns * CELL * FINE, rows * CELL * FINE), _NIGHT)
    pen = Pen(image, FINE)
    for row, column in np.ndindex(rows, columns):
        _mark(pen, row, column, _FLOOR, 1.0)
    for mark in MARKS[game]:
        for row, column in np.argwhere(seen[:, :, mark.layer]):
            if mark.shape == "dot":
                pen.dot(((column + 0.5) * CELL, (row + 0.5) * CELL), 0.26 * CELL, mark.colour)
            elif mark.shape == "trail":
                _mark(pen, row, column, mixed(_FLOOR, mark.colour, 0.65), 0.33 * CELL)
            else:
                _mark(pen, row, column, mark.colour, 0.08 * CELL)
    return np.asarray(image.reduce(FINE))


def _mark(pen: Pen, row: int, column: int, colour: Colour, inset: float) -> None:
    """A cell filled but for a margin."""
    corners = (column * CELL + inset, row * CELL + inset, (column + 1) * CELL - inset, (row + 1) * CELL - inset)
    pen.box(corners, colour, 0.12 * CELL)
