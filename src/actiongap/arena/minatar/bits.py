"""A board in ten integers: one for each row, whose bit c is the cell in column c.

Where many things stand on a board, or a whole board moves, this is a tenth of the work of a hundred booleans: sideways is a shift of bits,
what two boards share is an "and", and a count is a population count. A picture is unpacked once, when it is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from actiongap.arena.minatar.board import PLACES, SIDE

FULL = (1 << SIDE) - 1
"""A row with all its cells set."""
EMPTY = np.zeros(SIDE, np.int32)
"""A board with none set."""


def bit(col: Any) -> Any:
    """A row with the cell of one column set; none, if the column is just off the board.

    Examples
    --------
    >>> [int(bit(col)) for col in (-1, 0, 3, 9, 10)]
    [0, 1, 8, 512, 0]
    """
    # A shift by a negative number means different things on different machines.
    return (jnp.int32(1) << (col + 1) >> 1) & FULL


def board(rows: Any, words: Any) -> Any:
    """The board on which things stand in these rows, each with its own bits, which need not be of one cell.

    Examples
    --------
    >>> [int(word) for word in board(jnp.array([1, 1, 9]), jnp.array([4, 5, 8]))]
    [0, 5, 0, 0, 0, 0, 0, 0, 0, 8]
    """
    return jax.lax.reduce_or(jnp.where(PLACES[:, None] == rows, words, 0), (1,))


def down(words: Any, rows: int = 1) -> Any:
    """The board moved down by some rows, or up by less than none; what leaves it is lost.

    Examples
    --------
    >>> [int(word) for word in down(jnp.arange(10, dtype=jnp.int32), -7)]
    [7, 8, 9, 0, 0, 0, 0, 0, 0, 0]
    """
    return jax.lax.pad(words, np.int32(0), [(rows, -rows, 0)])


def picture(layers: Sequence[Any]) -> Any:
    """Boards as the layers of a picture of booleans.

    Examples
    --------
    >>> seen = picture([EMPTY, jnp.full(10, 1 << 7)])
    >>> seen.shape, int(seen.sum()), bool(seen[4, 7, 1])
    ((10, 10, 2), 10, True)
    """
    return (jnp.stack(layers, axis=-1)[:, None, :] & (1 << PLACES[:, None])) != 0
