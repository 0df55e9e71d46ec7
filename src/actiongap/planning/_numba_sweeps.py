"""Sweeps over a grid on a CPU: factor by factor where a simulator declares factors, by gathering all corners elsewhere, both compiled.

What Numba cannot compile, an operator or a simulator of one's own, is swept in blocks of arrays instead, which is slower by far and gives
the same numbers. A sweep needs memory for two tables, and one factor by factor also for where each quiet step leads: on the bicycle half
a table or so at eight points an axis, and a smaller share on finer grids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from actiongap._numba import compile_function, compile_operator
from actiongap.planning._numba_factored import factored_sweep, lively_step
from actiongap.planning._numba_gather import gathered_sweep
from actiongap.planning._numba_threads import CpuSweeps, Sweep
from actiongap.planning.backups import SweepConfig, interpolated_backups, noise_at, noise_of
from actiongap.planning.factors import Layout, layout_of
from actiongap.planning.grid import Grid
from actiongap.planning.simulator import Simulator, one_step

CORNERS_AT_ONCE = 1_000_000
"""How many corners of next states arrays hold at a time."""


def cpu_sweeps(simulator: Simulator, grid: Grid, config: SweepConfig, dtype: Any = np.float32) -> CpuSweeps:
    """Sweeps on a CPU in the fastest way that the simulator allows; all ways give the same numbers but for rounding.

    Parameters
    ----------
    simulator
        The simulator.
    grid
        The grid.
    config
        What a sweep does.
    dtype
        What Q is kept in; the simulator always computes in double precision.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> from actiongap.operators import parse
    >>> simulator, config = mountain_car(), SweepConfig(parse("al:0.5"), 0.5, eta=1.0)
    >>> sweeps = cpu_sweeps(simulator, Grid(simulator.axes(5)), config)
    >>> table, residual = sweeps.advance(sweeps.put(np.zeros((25, 3))), first=0, count=2)
    >>> float(sweeps.get(table)[0, 0]), residual
    (-1.5, 0.5)
    """
    layout, apply = layout_of(simulator, grid), compile_operator(config.operator)
    if apply is not None:
        here, lively = tuple(axis.points[0] for axis in grid.axes), simulator.factors[0]
        if layout is not None:
            known = here if lively.split is None else tuple(float(number) for number in lively.split.before(here, 0))
            step = _compiled(lively_step(lively), known)
            if step is not None:
                return _turned(layout, config, factored_sweep(simulator, grid, layout, config, step, apply, dtype), dtype)
        step = _compiled(one_step(simulator), here)
        if step is not None:
            return _as_it_is(config, gathered_sweep(simulator, grid, config, step, apply), dtype)
    return _as_it_is(config, array_sweep(simulator, grid, config), dtype)


def _turned(layout: Layout, config: SweepConfig, sweep: Sweep, dtype: Any) -> CpuSweeps:
    shape = (layout.quiet.size, layout.held.size, layout.free.size, -1)
    return CpuSweeps(config, sweep, dtype, lambda q: layout.turn(q).reshape(-1), lambda table: layout.turn_back(table.reshape(shape)))


def _as_it_is(config: SweepConfig, sweep: Sweep, dtype: Any) -> CpuSweeps:
    return CpuSweeps(config, sweep, dtype, lambda q: q, lambda table: table)


def _compiled(step: Callable, x: tuple) -> Any | None:
    """A step compiled by Numba, or None where it cannot be."""
    try:
        compiled = compile_function(step)
        compiled(x, 0, 0.0)
    except Exception:
        # As with operators: what is really wrong with it will show on arrays.
        return None
    return compiled if isinstance(compiled, Dispatcher) else None


def array_sweep(simulator: Simulator, grid: Grid, config: SweepConfig) -> Sweep:
    """The same sweep as the compiled ones, by `interpolated_backups` on blocks of grid points."""
    step, actions, noise = one_step(simulator), len(simulator.actions), noise_of(simulator, grid, config)
    block = max(1, CORNERS_AT_ONCE // (actions * 2 ** len(grid.axes)))

    def begin(q: np.ndarray, out: np.ndarray, key: int) -> Callable[[int, int], None]:
        def do(first: int, last: int) -> None:
            for start in range(first, last, block):
                z = np.arange(start, min(start + block, last))
                x, drawn = grid.points(start, start + len(z)), noise_at(noise, grid, z, actions, np.uint32(key))
                found = interpolated_backups(step, grid, q, z, x, drawn, config.gamma, config.of_values)
                out[z] = (1 - config.eta) * q[z] + config.eta * config.operator(found)

        return do

    return Sweep(begin, grid.size, actions)
