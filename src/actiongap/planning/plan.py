"""Planning on a grid: sweeps of Q <- (1 - eta) Q + eta T'Q from Q = 0, on a CPU or an accelerator.

`actiongap.api.policies.plan` combines these parts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from actiongap.operators import check_operator
from actiongap.planning.backups import SweepConfig, Sweeps
from actiongap.planning.engines import Engine, engine_of
from actiongap.planning.grid import Grid
from actiongap.planning.policy import Policy
from actiongap.planning.simulator import Simulator

MAX_POINTS_PER_AXIS = 100_000
"""Maximum number of points per axis."""


def sweeps_for(simulator: Simulator, grid: Grid, config: SweepConfig, engine: Engine = "auto") -> Sweeps:
    """Return the sweeps of a `SweepConfig` on an engine.

    Examples
    --------
    >>> from actiongap.envs.simulators import load_simulator
    >>> from actiongap.operators import bellman
    >>> car = load_simulator("mountain-car")
    >>> sweeps = sweeps_for(car, Grid(car.axes(5)), SweepConfig(bellman(), 0.9, eta=1.0), "numba")
    >>> table, residual = sweeps.advance(sweeps.put(np.zeros((25, 3))), 0, 1)
    >>> float(sweeps.get(table).min()), residual
    (-1.0, 1.0)
    """
    check_operator(config.operator)
    # Numba and JAX are imported only where they are used: they are slow to import.
    match engine_of(engine):
        case "numpy":
            from actiongap.planning._cpu_sweeps import numpy_sweeps as make
        case "numba":
            from actiongap.planning._numba_sweeps import cpu_sweeps as make
        case "jax":
            from actiongap.planning._jax_sweeps import jax_sweeps as make
    return make(simulator, grid, config)


def grid_of(simulator: Simulator, n: int) -> Grid:
    """Return the simulator's default grid with n points per axis.

    Examples
    --------
    >>> from actiongap.envs.simulators import load_simulator
    >>> grid_of(load_simulator("mountain-car"), 5).shape
    (5, 5)
    """
    if not isinstance(n, (int, np.integer)) or not 2 <= n <= MAX_POINTS_PER_AXIS:
        raise ValueError(f"the grid has {n!r} points per axis: choose 2 to {MAX_POINTS_PER_AXIS:,}")
    return Grid(simulator.axes(n))


def zero_q(simulator: Simulator, grid: Grid) -> np.ndarray:
    """Return Q = 0, (points, actions)."""
    return np.zeros((grid.size, len(simulator.actions)), np.float32)


class SweepProgress(NamedTuple):
    """Progress of a plan, reported after each block of sweeps."""

    done: int
    """Sweeps done so far, in total."""
    residual: float
    """max |T'Q - Q| of the last sweep."""
    sweeps: int
    """Number of sweeps in this block."""
    seconds: float
    """Duration of this block."""


def run_sweeps(
    sweeps: Sweeps, table: Any, first: int, count: int, block: int, on_progress: Callable[[SweepProgress], None]
) -> tuple[Any, float]:
    """Run sweeps `first` to `first + count - 1` in blocks, and report progress after each block.

    Returns the new table and the residual of the last sweep.
    """
    residual = math.nan
    # Blocks do not depend on elapsed time: sweeps that are compiled together may round differently.
    for begin in range(first, first + count, block):
        started, done = time.perf_counter(), min(begin + block, first + count)
        table, residual = sweeps.advance(table, begin, done - begin)
        on_progress(SweepProgress(done, residual, done - begin, time.perf_counter() - started))
    return table, residual


def policy_of(text: str, simulator: Simulator, grid: Grid, config: SweepConfig, q: np.ndarray, **about: Any) -> Policy:
    """Make a policy from a table Q(z, a). `about` is added to the metadata of the policy."""
    record = {
        "gamma": config.gamma,
        "eta": config.eta,
        "samples": config.samples,
        "noise": "shared" if config.shared else "independent",
        "interpolate": "v" if config.of_values else "q",
        "seed": config.seed,
    }
    return Policy(text, config.operator.name, grid, simulator.actions, simulator.coordinates, q, record | about)
