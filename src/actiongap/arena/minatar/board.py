"""The board that the games share: ten rows of ten cells, row 0 at the top and column 0 at the left.

Pictures are painted by comparison: a cell is set where its column equals that of a thing in its row. Compilers turn that into one pass over
the board, where writing to a place that is only known when the program runs (a scatter) would be a pass of its own for each thing.
"""

from __future__ import annotations

from typing import Any

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
