"""Boards of MinAtar: ten rows of ten cells, row 0 at the top and column 0 at the left.

Observations are computed by comparison: a cell is set if its column equals that of an object in its row. Compilers turn this into one pass
over the board. A scatter, which writes to indices known only at run time, would need one pass per object.

Games with many objects store a board as ten integers, one per row; bit c is the cell in column c. This is a tenth of the work of a hundred
booleans: a horizontal move is a bit shift, an intersection is a bitwise and, and a count is a population count. `picture` unpacks the
integers once per observation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SIDE = 10
"""Number of rows, and of columns."""
INDICES = np.arange(SIDE, dtype=np.int32)
"""Indices of the rows, and of the columns."""


def lanes(row: Any, col: Any, objects: Any) -> Any:
    """Return an observation with the player in layer 0 and objects in rows 1 to 8, at most one per row and layer.

    Parameters
    ----------
    row
        Row of the player.
    col
        Column of the player.
    objects
        Columns of the objects, (8, layers); any number off the board if there is none.

    Examples
    --------
    >>> picture = lanes(9, 4, jnp.full((8, 2), -1).at[2, 1].set(7))
    >>> [[int(number) for number in place] for place in jnp.argwhere(picture)]
    [[3, 7, 2], [9, 4, 0]]
    """
    cols = jnp.pad(objects, ((1, 1), (1, 0)), constant_values=-1)
    player = (INDICES[:, None] == row) & (np.arange(cols.shape[1]) == 0)
    return jnp.where(player, col, cols)[:, None, :] == INDICES[:, None]


def integer(u: Any, n: Any, low: int = 0) -> Any:
    """Return low + floor(u n): one of n integers from `low`, uniform if u is uniform in [0, 1).

    The product may round up to n; then the result is the largest integer.

    Examples
    --------
    >>> [int(integer(u, 6, low=1)) for u in (0.0, 0.16, 0.17, 0.999)]
    [1, 1, 2, 6]
    """
    return low + jnp.minimum(jnp.floor(u * n).astype(jnp.int32), n - 1)


FULL = (1 << SIDE) - 1
"""A row with all cells set."""
EMPTY = np.zeros(SIDE, np.int32)
"""A board without set cells."""


def bit(col: Any) -> Any:
    """Return a row with the cell of one column set; an empty row if the column is -1 or 10.

    Examples
    --------
    >>> [int(bit(col)) for col in (-1, 0, 3, 9, 10)]
    [0, 1, 8, 512, 0]
    """
    # Shifts by negative numbers differ between platforms.
    return (jnp.int32(1) << (col + 1) >> 1) & FULL


def board(rows: Any, words: Any) -> Any:
    """Return the union of objects, each given by its row and its bits in that row.

    Examples
    --------
    >>> [int(word) for word in board(jnp.array([1, 1, 9]), jnp.array([4, 5, 8]))]
    [0, 5, 0, 0, 0, 0, 0, 0, 0, 8]
    """
    return jax.lax.reduce_or(jnp.where(INDICES[:, None] == rows, words, 0), (1,))


def down(words: Any, rows: int = 1) -> Any:
    """Return the board moved down by some rows, or up if `rows` is negative. Cells that leave the board are lost.

    Examples
    --------
    >>> [int(word) for word in down(jnp.arange(10, dtype=jnp.int32), -7)]
    [7, 8, 9, 0, 0, 0, 0, 0, 0, 0]
    """
    return jax.lax.pad(words, np.int32(0), [(rows, -rows, 0)])


def picture(layers: Sequence[Any]) -> Any:
    """Return an observation, (10, 10, layers), from one board per layer.

    Examples
    --------
    >>> seen = picture([EMPTY, jnp.full(10, 1 << 7)])
    >>> seen.shape, int(seen.sum()), bool(seen[4, 7, 1])
    ((10, 10, 2), 10, True)
    """
    return (jnp.stack(layers, axis=-1)[:, None, :] & (1 << INDICES[:, None])) != 0
