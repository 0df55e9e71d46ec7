"""Sweeps over a grid on a CPU: factor by factor if the simulator declares factors, and otherwise by gathering all corners; both compiled.

Operators or simulators that Numba cannot compile run on blocks of arrays instead, as with the engine `numpy`. This is much slower but
gives the same results. A sweep needs memory for two tables. A factored sweep also stores the result of each deterministic step: on the
bicycle about half a table at eight points per axis, and a smaller fraction on finer grids.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.np.unsafe.ndarray import to_fixed_tuple

from actiongap._numba import compile_function, compile_operator, fields_read
from actiongap.operators import backup
from actiongap.planning._cpu_sweeps import CpuSweeps, Sweep, array_sweep
from actiongap.planning._numba_cells import FAST, Unsigned, chooser, corner_finder, inlined, padded, summer
from actiongap.planning._numba_factored import factored_sweep, stochastic_step
from actiongap.planning.backups import SweepConfig, noise_of, with_again
from actiongap.planning.factors import Layout, layout_of
from actiongap.planning.grid import Grid
from actiongap.planning.noise import random_uniform
from actiongap.planning.simulator import Simulator, one_step


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
    pack, unpack = lambda q: layout.pack(q).reshape(-1), lambda table: layout.unpack(table.reshape(shape))
    return CpuSweeps(config, sweep, dtype, pack, unpack, numba.get_num_threads)


def _unpacked(config: SweepConfig, sweep: Sweep, dtype: Any) -> CpuSweeps:
    return CpuSweeps(config, sweep, dtype, threads=numba.get_num_threads)


def _compiled(step: Callable, x: tuple) -> Any | None:
    """The step compiled by Numba, or None if Numba cannot compile it."""
    try:
        compiled = compile_function(step)
        compiled(x, 0, 0.0)
    except Exception:
        # As with operators, genuine errors reappear when the step runs on arrays.
        return None
    return compiled if isinstance(compiled, Dispatcher) else None


def gathered_sweep(simulator: Simulator, grid: Grid, config: SweepConfig, step: Callable, apply: Callable) -> Sweep:
    """Compile a sweep for any simulator over a table (points, actions), one grid point at a time.

    It computes `backups.interpolated_backups` with the simulator, the operator and the noise compiled into one loop over grid points, which
    threads divide among them. Nothing is gathered after the end of an episode.

    Parameters
    ----------
    simulator
        The simulator.
    grid
        The grid.
    config
        The sweep configuration.
    step
        `simulator.one_step`, compiled.
    apply
        The operator, compiled.

    Examples
    --------
    >>> from actiongap._numba import compile_operator
    >>> from actiongap.planning.simulator import Outcome, Simulator, one_step
    >>> from actiongap.operators import parse
    >>> def slide(x, a, u):
    ...     return Outcome((x[0] + 0.25 * a,), 0.0, False)
    >>> simulator = Simulator("slide", slide, state={"x": (0.0, 1.0)}, actions=("stay", "right"))
    >>> config, q, out = SweepConfig(parse("bellman"), 0.5, eta=1.0), np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]), np.empty((3, 2))
    >>> step, apply = compile_function(one_step(simulator)), compile_operator(config.operator)
    >>> gathered_sweep(simulator, Grid(simulator.axes(3)), config, step, apply).begin(q, out, 0)(0, 3)
    >>> out[0].tolist()
    [0.5, 1.0]
    """
    hashed, make, finish = (compile_function(function) for function in (random_uniform, backup, with_again))
    dimensions, actions, corners = len(grid.axes), len(simulator.actions), 2 ** len(grid.axes)
    corners_of, knots = corner_finder(grid), padded([axis.points for axis in grid.axes])
    sizes, strides, noise = np.array(grid.shape), np.array(grid.strides), noise_of(simulator, grid, config)
    drawn, values, weights, low, width, place_strides = noise._replace(strides=np.array(noise.strides))  # pyright: ignore[reportArgumentType]
    gamma, eta, of_values, reads = config.gamma, config.eta, config.of_values, fields_read(config.operator)
    reads_again, ahead = "again" in reads, not of_values or bool({"next_gap", "repeat"} & reads)
    sum_actions, sum_values, choose = summer(corners, actions), summer(corners, 1), chooser(actions, reads_again)

    @inlined
    def after_step(q, v, z, a, place, weight, after, value):
        """V(x') or max_b Q(x', b), then Q(x', a), the maximum that `again` contains, and A(z | x')."""
        mass = weight.dtype.type(0.0)
        if reads_again:
            for c in range(corners):
                mass += weight[c] if place[c] == z else weight.dtype.type(0.0)
        if ahead:
            sum_actions(q, place, weight, Unsigned(actions), Unsigned(0), after)
        if of_values:
            sum_values(v, place, weight, Unsigned(1), Unsigned(0), value)
            return value[0], after[a], value[0], mass
        best, again = choose(after, q, Unsigned(z * actions), Unsigned(a), mass)
        return best, after[a], again, mass

    @numba.njit(**FAST, nogil=True)
    def sweep_range(q, out, v, key, first, last):
        place, weight, here = np.empty(corners, np.uint32), np.empty(corners, q.dtype), np.empty(dimensions)
        after, value = np.zeros(actions, q.dtype), np.empty(1, q.dtype)
        for z in range(first, last):
            number = 0
            for i in range(dimensions):
                index = z // strides[i] % sizes[i]
                here[i], number = knots[i, index], number + index * place_strides[i]
            x = to_fixed_tuple(here, dimensions)  # pyright: ignore[reportCallIssue]
            for a in range(actions):
                reward = next_v = next_q = next_again = stay = 0.0
                for k in range(len(weights)):
                    u = low + width * hashed(key, (number * actions + a) * len(weights) + k) if drawn else values[k]
                    outcome = step(x, a, u)
                    reward += weights[k] * outcome.reward
                    if not outcome.ended:
                        corners_of(outcome.x, place, weight)
                        best, same, again, mass = after_step(q, v, z, a, place, weight, after, value)
                        next_v, next_q = next_v + weights[k] * best, next_q + weights[k] * same
                        next_again, stay = next_again + weights[k] * again, stay + weights[k] * mass
                old = 1.0 * q[z * actions + a]
                b = make(gamma, reward, old, 1.0 * v[z], next_v, next_q, stay)
                if not of_values:
                    b = finish(b, reward + gamma * next_again)
                out[z, a] = (1.0 - eta) * old + eta * apply(b)

    def sweep(q: np.ndarray, out: np.ndarray, key: int) -> Callable[[int, int], None]:
        flat, v = q.reshape(-1), reduce(np.maximum, q.T)
        return lambda first, last: sweep_range(flat, out, v, key, first, last)

    return Sweep(sweep, grid.size, actions)
