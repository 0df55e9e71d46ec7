"""Sweeps over a grid on a CPU: factor by factor if the simulator declares factors, and otherwise by gathering all corners; both compiled.

Operators or simulators that Numba cannot compile run on blocks of NumPy arrays instead. That is much slower and gives the same numbers. A
sweep needs memory for two tables. A factored sweep also stores where each deterministic step leads: on the bicycle about half a table at
eight points per axis, and a smaller fraction on finer grids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from actiongap._numba import compile_function, compile_operator
from actiongap.planning._numba_factored import factored_sweep, stochastic_step
from actiongap.planning._numba_gather import gathered_sweep
from actiongap.planning._numba_threads import CpuSweeps, Sweep
from actiongap.planning.backups import SweepConfig, interpolated_backups, noise_at, noise_of
from actiongap.planning.factors import Layout, layout_of
from actiongap.planning.grid import Grid
from actiongap.planning.simulator import Simulator, one_step

MAX_CORNERS = 1_000_000
"""Maximum number of corners of next states in a block of arrays."""


def cpu_sweeps(simulator: Simulator, grid: Grid, config: SweepConfig, dtype: Any = np.float32) -> CpuSweeps:
    """Sweeps on a CPU in the fastest way that the simulator allows. All ways agree up to rounding.

    Parameters
    ----------
    simulator
        The simulator.
    grid
        The grid.
    config
        The sweep configuration.
    dtype
        The type of Q; the simulator always computes in double precision.

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
        here, stochastic = tuple(axis.points[0] for axis in grid.axes), simulator.factors[0]
        if layout is not None:
            known = here if stochastic.split is None else tuple(float(number) for number in stochastic.split.before(here, 0))
            step = _compiled(stochastic_step(stochastic), known)
            if step is not None:
                return _packed(layout, config, factored_sweep(simulator, grid, layout, config, step, apply, dtype), dtype)
        step = _compiled(one_step(simulator), here)
        if step is not None:
            return _unpacked(config, gathered_sweep(simulator, grid, config, step, apply), dtype)
    return _unpacked(config, array_sweep(simulator, grid, config), dtype)


def _packed(layout: Layout, config: SweepConfig, sweep: Sweep, dtype: Any) -> CpuSweeps:
    shape = (layout.deterministic.size, layout.coupled.size, layout.batched.size, -1)
    return CpuSweeps(config, sweep, dtype, lambda q: layout.pack(q).reshape(-1), lambda table: layout.unpack(table.reshape(shape)))


def _unpacked(config: SweepConfig, sweep: Sweep, dtype: Any) -> CpuSweeps:
    return CpuSweeps(config, sweep, dtype, lambda q: q, lambda table: table)


def _compiled(step: Callable, x: tuple) -> Any | None:
    """The step compiled by Numba, or None if Numba cannot compile it."""
    try:
        compiled = compile_function(step)
        compiled(x, 0, 0.0)
    except Exception:
        # As with operators, genuine errors reappear when the step runs on arrays.
        return None
    return compiled if isinstance(compiled, Dispatcher) else None


def array_sweep(simulator: Simulator, grid: Grid, config: SweepConfig) -> Sweep:
    """The same sweep as the compiled ones, by `interpolated_backups` on blocks of grid points."""
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
