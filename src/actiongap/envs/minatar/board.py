"""The board that the games share: ten rows of ten cells, row 0 at the top and column 0 at the left.

Pictures are painted by comparison: a cell is set where its column equals that of a thing in its row. Compilers turn that into one pass over
the board, where writing to a place that is only known when the program runs (a scatter) would be a pass of its own for each thing.

A board in ten integers: one for each row, whose bit c is the cell in column c.

Where many things stand on a board, or a whole board moves, this is a tenth of the work of a hundred booleans: sideways is a shift of bits,
what two boards share is an "and", and a count is a population count. A picture is unpacked once, when it is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SIDE = 10
"""Rows, and columns."""
PLACES = np.arange(SIDE, dtype=np.int32)
"""The number of each row, and of each column."""


def lanes(row: Any, col: Any, things: Any) -> Any:
    """The picture of a player, layer 0, and of things that have their lanes, the rows 1 to 8: one in a lane and layer at most.

    Parameters
    ----------
    row
        Of the player.
    col
        Of the player.
    things
        Columns, of shape (8, layers): of the thing in that lane and layer, or any number off the board where there is none.

    Examples
    --------
    >>> picture = lanes(9, 4, jnp.full((8, 2), -1).at[2, 1].set(7))
    >>> [[int(number) for number in place] for place in jnp.argwhere(picture)]
    [[3, 7, 2], [9, 4, 0]]
    """
    cols = jnp.pad(things, ((1, 1), (1, 0)), constant_values=-1)
    player = (PLACES[:, None] == row) & (np.arange(cols.shape[1]) == 0)
    return jnp.where(player, col, cols)[:, None, :] == PLACES[:, None]


def integer(u: Any, n: Any, low: int = 0) -> Any:
    """Low + floor(u n): one of n integers from `low`, uniform if u is uniform in [0, 1).

    The product may round up to n; the greatest integer stands for it then.

    Examples
    --------
    >>> [int(integer(u, 6, low=1)) for u in (0.0, 0.16, 0.17, 0.999)]
    [1, 1, 2, 6]
    """
    return low + jnp.minimum(jnp.floor(u * n).astype(jnp.int32), n - 1)


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
