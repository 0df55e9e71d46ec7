"""Sweeps on the threads of a CPU, with two tables: one to read and one to write.

A point reads only the previous table, and its random numbers depend only on its counter. So threads take pieces of a sweep in any order,
and the number of threads does not change the result. The compiled pieces release the GIL. There are `numba.get_num_threads()` threads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numba
import numpy as np

from actiongap.planning.backups import SweepConfig
from actiongap.planning.noise import noise_key

MIN_BACKUPS_PER_PIECE = 20_000
"""Minimum number of backups per piece: smaller pieces finish before another thread wakes up."""
MAX_PIECES_PER_THREAD = 8
"""Maximum number of pieces per thread. Several pieces balance unequal work."""
COMPARE_BLOCK = 100_000
"""Table entries compared at a time."""


class Sweep(NamedTuple):
    """A sweep that can be divided into pieces."""

    begin: Callable[[np.ndarray, np.ndarray, int], Callable[[int, int], None]]
    """Function of the table, the output table and the noise key; returns a function (first, last) that sweeps points first to last - 1."""
    points: int
    """Number of points."""
    backups: int
    """Number of pairs per point."""


class CpuSweeps:
    """Sweeps of one `SweepConfig` on one grid, with NumPy arrays as tables.

    Parameters
    ----------
    config
        The sweep configuration.
    sweep
        The sweep of the engine.
    dtype
        The type of tables.
    pack
        Converts Q(z, a) to the layout of the table.
    unpack
        The inverse of `pack`.
    """

    def __init__(self, config: SweepConfig, sweep: Sweep, dtype: Any, pack: Callable, unpack: Callable):
        self.config, self.sweep, self.dtype, self.pack, self.unpack = config, sweep, np.dtype(dtype), pack, unpack
        self.spare = np.empty(0, dtype)

    def put(self, q: np.ndarray) -> np.ndarray:
        """A new table from Q(z, a), (points, actions)."""
        return np.array(self.pack(q), dtype=self.dtype, order="C")

    def get(self, table: np.ndarray) -> np.ndarray:
        """Q(z, a) from the table."""
        return np.array(self.unpack(table), order="C")

    def advance(self, table: np.ndarray, first: int, count: int) -> tuple[np.ndarray, float]:
        """Run sweeps `first` to `first + count - 1`; return the new table and max |T'Q - Q| of the last sweep. Invalidates `table`."""
        if count < 1:
            raise ValueError(f"count is {count!r}: give at least 1")
        threads, (_, points, backups) = numba.get_num_threads(), self.sweep
        pieces = max(1, min(MAX_PIECES_PER_THREAD * threads, points, points * backups // MIN_BACKUPS_PER_PIECE)) if threads > 1 else 1
        bounds = list(pairwise(points * piece // pieces for piece in range(pieces + 1)))
        after = self.spare if self.spare.shape == table.shape and self.spare is not table else np.empty_like(table)
        with ThreadPoolExecutor(threads) as pool:
            for number in range(first, first + count):
                do = self.sweep.begin(table, after, noise_key(self.config.seed, number))
                if pieces == 1:
                    do(0, points)
                else:
                    list(pool.map(lambda ends, do=do: do(*ends), bounds))
                table, after = after, table
        self.spare = after
        return table, largest_difference(table, after) / self.config.eta


def largest_difference(one: np.ndarray, other: np.ndarray) -> float:
    """The largest |one - other|, in blocks that fit in the cache; NaN if any difference is NaN.

    Examples
    --------
    >>> largest_difference(np.array([1.0, 5.0]), np.array([2.0, 3.0]))
    2.0
    """
    one, other = one.reshape(-1), other.reshape(-1)
    pieces = (slice(begin, begin + COMPARE_BLOCK) for begin in range(0, one.size, COMPARE_BLOCK))
    return float(reduce(np.maximum, (np.abs(one[piece] - other[piece]).max() for piece in pieces)))
