"""A sweep on a CPU for any simulator, compiled with Numba: step, find the corners of the cell, gather them, apply the operator.

It computes `backups.interpolated_backups` with the simulator, the operator and the noise compiled into one loop over grid points, which
threads divide among them. After the end of an episode nothing is gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numba
import numpy as np
from numba.np.unsafe.ndarray import to_fixed_tuple

from actiongap._numba import compile_function, fields_read
from actiongap.operators import backup
from actiongap.planning._numba_cells import FAST, Unsigned, chooser, corner_finder, inlined, padded, summer
from actiongap.planning._numba_threads import Sweep
from actiongap.planning.backups import SweepConfig, noise_of, with_again
from actiongap.planning.grid import Grid
from actiongap.planning.noise import random_uniform
from actiongap.planning.simulator import Simulator


def gathered_sweep(simulator: Simulator, grid: Grid, config: SweepConfig, step: Callable, apply: Callable) -> Sweep:
    """A compiled sweep over a table (points, actions), one grid point at a time.

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
    >>> from actiongap.planning.grid import uniform
    >>> from actiongap.planning.simulator import Outcome, one_step, make_simulator
    >>> from actiongap.operators import parse
    >>> def slide(x, a, u):
    ...     return Outcome((x[0] + 0.25 * a,), 0.0, False)
    >>> simulator = make_simulator("slide", ("x",), ("stay", "right"), slide, lambda n: (uniform(0.0, 1.0, n),))
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
    returns, ahead = "again" in reads, not of_values or bool({"next_gap", "repeat"} & reads)
    sum_actions, sum_values, choose = summer(corners, actions), summer(corners, 1), chooser(actions, returns)

    @inlined
    def after_step(q, v, z, a, place, weight, after, value):
        """V(x') or max_b Q(x', b), Q(x', a), the former as `again` has it, and A(z | x')."""
        mass = weight.dtype.type(0.0)
        if returns:
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
