"""One sweep of interpolation on a CPU, for any simulator: step, find the corners of the cell, gather them, apply the operator.

It computes what `backups.interpolated_backups` does, with the simulator, the operator and the noise compiled into one loop over grid
points, which threads share. Where an episode ends nothing is gathered.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
from numba.np.unsafe.ndarray import to_fixed_tuple

from actiongap.compiled import compile_function, compile_operator
from actiongap.grid.axes import Grid
from actiongap.grid.backups import with_again
from actiongap.grid.corners import corner_finder, padded
from actiongap.grid.domain import Discrete, Domain, one_step
from actiongap.grid.draws import draw
from actiongap.operators import Operator, backup

BLOCK = 64
"""Grid points for which a thread keeps its scratch."""


def gathered_sweep(domain: Domain, grid: Grid, operator: Operator, *, samples: int = 1, of_values: bool = False) -> Callable:
    """A compiled sweep(q, out, gamma, eta, key) with out = (1 - eta) q + eta T'q, both (points, actions).

    Examples
    --------
    >>> from actiongap.grid.axes import uniform
    >>> from actiongap.grid.domain import Outcome, simulator
    >>> from actiongap.operators import parse
    >>> def slide(x, a, u):
    ...     return Outcome((x[0] + 0.25 * a,), 0.0, False)
    >>> domain = simulator("slide", ("x",), ("stay", "right"), slide, lambda n: (uniform(0.0, 1.0, n),))
    >>> q, out = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]), np.empty((3, 2))
    >>> gathered_sweep(domain, Grid(domain.axes(3)), parse("bellman"))(q, out, 0.5, 1.0, 0)
    >>> out[0].tolist()
    [0.5, 1.0]
    """
    apply = compile_operator(operator)
    if apply is None:
        raise ValueError(f"{operator} cannot be compiled for a grid: write it with arithmetic, maximum, minimum and where")
    step, hashed, make, finish = (compile_function(function) for function in (one_step(domain), draw, backup, with_again))
    corners_of, knots = corner_finder(grid), padded([axis.points for axis in grid.axes])
    sizes, strides = np.array(grid.shape), np.array(grid.strides)
    dimensions, actions, corners = len(grid.axes), len(domain.actions), 2 ** len(grid.axes)
    values = np.array(domain.noise.values if isinstance(domain.noise, Discrete) else [0.0])
    shares = np.array(domain.noise.probabilities) if isinstance(domain.noise, Discrete) else np.full(samples, 1 / samples)
    low, width = (0.0, 0.0) if isinstance(domain.noise, Discrete) else (domain.noise.low, domain.noise.high - domain.noise.low)
    drawn = not isinstance(domain.noise, Discrete)

    @numba.njit(error_model="numpy")
    def after_step(q, v, z, a, place, weight, after):
        """max_b Q(x', b) or V(x'), Q(x', a), the same as `again` has it, and A(z | x')."""
        after[:] = 0.0
        value = mass = 0.0
        for c in range(corners):
            if weight[c] == 0.0:
                continue
            if place[c] == z:
                mass += weight[c]
            if of_values:
                value += weight[c] * v[place[c]]
            for b in range(actions):
                after[b] += weight[c] * q[place[c], b]
        elsewhere = -np.inf
        for b in range(actions):
            elsewhere = max(elsewhere, after[b] - mass * q[z, b])
        return value if of_values else after.max(), after[a], elsewhere + mass * q[z, a], mass

    @numba.njit(error_model="numpy")
    def some_points(q, out, v, gamma, eta, key, first, last):
        place, weight, after, here = np.empty(corners, np.int64), np.empty(corners), np.empty(actions), np.empty(dimensions)
        for z in range(first, last):
            for i in range(dimensions):
                here[i] = knots[i, z // strides[i] % sizes[i]]
            x = to_fixed_tuple(here, dimensions)  # pyright: ignore[reportCallIssue]
            for a in range(actions):
                reward = next_v = next_q = next_again = stay = 0.0
                for k in range(len(shares)):
                    u = low + width * hashed(key, (z * actions + a) * len(shares) + k) if drawn else values[k]
                    outcome = step(x, a, u)
                    reward += shares[k] * outcome.reward
                    if not outcome.ended:
                        corners_of(outcome.x, place, weight)
                        best, same, again, mass = after_step(q, v, z, a, place, weight, after)
                        next_v, next_q = next_v + shares[k] * best, next_q + shares[k] * same
                        next_again, stay = next_again + shares[k] * again, stay + shares[k] * mass
                old = 1.0 * q[z, a]
                b = make(gamma, reward, old, 1.0 * v[z], next_v, next_q, stay)
                if not of_values:
                    b = finish(b, reward + gamma * next_again)
                out[z, a] = (1.0 - eta) * old + eta * apply(b)

    @numba.njit(parallel=True, error_model="numpy")
    def sweep(q, out, v, gamma, eta, key):
        points = q.shape[0]
        for block in numba.prange((points + BLOCK - 1) // BLOCK):
            some_points(q, out, v, gamma, eta, key, block * BLOCK, min(points, (block + 1) * BLOCK))

    def run(q: np.ndarray, out: np.ndarray, gamma: float, eta: float, key: int) -> None:
        sweep(q, out, q.max(axis=1), gamma, eta, key)

    return run
