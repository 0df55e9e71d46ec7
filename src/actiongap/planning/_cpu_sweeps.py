"""Sweeps on a CPU, with two tables: one to read and one to write. Numba compiles the sweeps of its engine; NumPy's are here.

A point reads only the previous table, and its random numbers depend only on its counter. So threads take pieces of a sweep in any order,
and the number of threads does not change the result. The compiled pieces release the GIL.

The engine `numpy` computes `backups.interpolated_backups` on blocks of grid points. It takes any simulator and any operator and compiles
nothing, so a small plan is finished before Numba would have compiled its loops.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from actiongap.planning.backups import SweepConfig, interpolated_backups, noise_at, noise_of
from actiongap.planning.grid import Grid
from actiongap.planning.interpolation import MAX_CORNERS
from actiongap.planning.noise import noise_key
from actiongap.planning.simulator import Simulator, one_step

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
    threads
        Function that returns the number of threads.
    """

    def __init__(
        self,
        config: SweepConfig,
        sweep: Sweep,
        dtype: Any,
        pack: Callable[[np.ndarray], np.ndarray] = lambda q: q,
        unpack: Callable[[np.ndarray], np.ndarray] = lambda table: table,
        threads: Callable[[], int] = lambda: 1,
    ):
        self.config, self.sweep, self.dtype, self.pack, self.unpack = config, sweep, np.dtype(dtype), pack, unpack
        self.threads = threads
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
        threads, (_, points, backups) = self.threads(), self.sweep
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


def numpy_sweeps(simulator: Simulator, grid: Grid, config: SweepConfig, dtype: Any = np.float32) -> CpuSweeps:
    """Sweeps with NumPy alone, for a table of the given type.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> from actiongap.operators import parse
    >>> simulator, config = mountain_car(), SweepConfig(parse("al:0.5"), 0.5, eta=1.0)
    >>> sweeps = numpy_sweeps(simulator, Grid(simulator.axes(5)), config)
    >>> table, residual = sweeps.advance(sweeps.put(np.zeros((25, 3))), first=0, count=2)
    >>> float(sweeps.get(table)[0, 0]), residual
    (-1.5, 0.5)
    """
    return CpuSweeps(config, array_sweep(simulator, grid, config), dtype)


def array_sweep(simulator: Simulator, grid: Grid, config: SweepConfig) -> Sweep:
    """A sweep by `interpolated_backups` on blocks of grid points, over a table (points, actions)."""
    step, actions, noise = one_step(simulator), len(simulator.actions), noise_of(simulator, grid, config)
    block = max(1, MAX_CORNERS // (actions * 2 ** len(grid.axes)))

    def begin(q: np.ndarray, out: np.ndarray, key: int) -> Callable[[int, int], None]:
        def sweep(first: int, last: int) -> None:
            for start in range(first, last, block):
                z = np.arange(start, min(start + block, last))
                x, drawn = grid.points(start, start + len(z)), noise_at(noise, grid, z, actions, np.uint32(key))
                found = interpolated_backups(step, grid, q, z, x, drawn, config.gamma, config.of_values)
                out[z] = (1 - config.eta) * q[z] + config.eta * config.operator(found)

        return sweep

    return Sweep(begin, grid.size, actions)
