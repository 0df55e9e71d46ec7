"""Sweeps on the threads of a CPU: two tables, one to read and one to write, and points that anyone may do in any order.

A point reads only the table before, and its draws depend on nothing but its place, so pieces of a sweep go to threads as they come and the
threads do not change the numbers. The pieces are compiled and let go of Python's lock. There are as many threads as
`numba.get_num_threads` says.
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

WORTH_A_THREAD = 20_000
"""Backups in a piece, at least: fewer are done before another thread has woken up."""
PIECES = 8
"""Pieces for each thread, at most: some are more work than others."""
NUMBERS_AT_ONCE = 100_000
"""How many numbers of a table are compared at a time."""


class Sweep(NamedTuple):
    """A sweep in parts."""

    begin: Callable[[np.ndarray, np.ndarray, int], Callable[[int, int], None]]
    """Of the table, the one to write and the key of the draws: a function that does the points from one number to before another."""
    points: int
    """How many points there are to do."""
    backups: int
    """How many pairs are backed up at each."""


class CpuSweeps:
    """Sweeps of one `SweepConfig` on one grid, with NumPy arrays as tables.

    Parameters
    ----------
    config
        What a sweep does.
    sweep
        How it is done.
    dtype
        What tables are kept in.
    turn
        The table from Q(z, a), but for its type.
    turn_back
        The inverse.
    """

    def __init__(self, config: SweepConfig, sweep: Sweep, dtype: Any, turn: Callable, turn_back: Callable):
        self.config, self.sweep, self.dtype, self.turn, self.turn_back = config, sweep, np.dtype(dtype), turn, turn_back
        self.spare = np.empty(0, dtype)

    def put(self, q: np.ndarray) -> np.ndarray:
        """The table from Q(z, a), (points, actions), which is left alone."""
        return np.array(self.turn(q), dtype=self.dtype, order="C")

    def get(self, table: np.ndarray) -> np.ndarray:
        """Q(z, a) from the table."""
        return np.array(self.turn_back(table), order="C")

    def advance(self, table: np.ndarray, first: int, count: int) -> tuple[np.ndarray, float]:
        """Sweeps numbered from `first` on, `count` of them: the table after, and max |T'Q - Q| in the last. The table before is lost."""
        if count < 1:
            raise ValueError(f"count is {count!r}: make at least one sweep")
        threads, (_, points, backups) = numba.get_num_threads(), self.sweep
        pieces = max(1, min(PIECES * threads, points, points * backups // WORTH_A_THREAD)) if threads > 1 else 1
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
    """The largest |one - other|, in pieces that stay in the caches; not a number where any difference is none.

    Examples
    --------
    >>> largest_difference(np.array([1.0, 5.0]), np.array([2.0, 3.0]))
    2.0
    """
    one, other = one.reshape(-1), other.reshape(-1)
    pieces = (slice(begin, begin + NUMBERS_AT_ONCE) for begin in range(0, one.size, NUMBERS_AT_ONCE))
    return float(reduce(np.maximum, (np.abs(one[piece] - other[piece]).max() for piece in pieces)))
