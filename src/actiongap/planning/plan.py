"""Planning on a grid: sweeps of Q <- (1 - eta) Q + eta T'Q from Q = 0, by whatever engine this machine has.

Engines differ in speed alone. `numba` is compiled loops on the cores of this machine; `jax` is for GPUs and TPUs, and slower on a CPU. Both
draw the same noise and agree to the rounding of float32. `auto` takes JAX where it sees an accelerator.

`actiongap.api.plan` puts these parts together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from actiongap._system import install
from actiongap.planning.backups import SweepConfig, Sweeps
from actiongap.planning.grid import Grid
from actiongap.planning.policy import Policy
from actiongap.planning.simulator import Simulator

Engine = Literal["auto", "numba", "jax"]
MOST_POINTS = 100_000
"""Points an axis, at most: with more the axis itself would be a burden."""


def sweeps_for(simulator: Simulator, grid: Grid, config: SweepConfig, engine: Engine = "auto") -> Sweeps:
    """Sweeps of a `SweepConfig` by the chosen engine.

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
    if engine_of(engine) == "jax":
        from actiongap.planning._jax_sweeps import jax_sweeps

        return jax_sweeps(simulator, grid, config)
    from actiongap.planning._numba_sweeps import cpu_sweeps

    return cpu_sweeps(simulator, grid, config)


def engine_of(engine: Engine) -> Literal["numba", "jax"]:
    """The engine that a wish comes to on this machine.

    Examples
    --------
    >>> engine_of("numba")
    'numba'
    """
    if engine not in get_args(Engine):
        raise ValueError(f"there is no engine {engine!r}: choose from {', '.join(get_args(Engine))}")
    if engine == "numba":
        return engine
    try:
        import jax
    except ImportError:
        if engine == "jax":
            raise ValueError(f"engine 'jax' needs JAX: {install('jax')}") from None
        return "numba"
    return "jax" if engine == "jax" or jax.default_backend() != "cpu" else "numba"


def grid_of(simulator: Simulator, n: int) -> Grid:
    """The simulator's own grid with n points an axis.

    Examples
    --------
    >>> from actiongap.envs.simulators import load_simulator
    >>> grid_of(load_simulator("mountain-car"), 5).shape
    (5, 5)
    """
    if not 2 <= n <= MOST_POINTS:
        raise ValueError(f"the grid has {n!r} points an axis: take from 2 to {MOST_POINTS:,}")
    return Grid(simulator.axes(n))


def zero_q(simulator: Simulator, grid: Grid) -> np.ndarray:
    """Q = 0, (points, actions)."""
    return np.zeros((grid.size, len(simulator.actions)), np.float32)


class SweepProgress(NamedTuple):
    """How far sweeps are."""

    done: int
    """Sweeps done so far, of all."""
    residual: float
    """max |T'Q - Q| in the last of them."""
    sweeps: int
    """How many were done since the last look."""
    seconds: float
    """How long those took."""


def sweep_on(sweeps: Sweeps, table: Any, first: int, count: int, some: int, look: Callable[[SweepProgress], None]) -> tuple[Any, float]:
    """`count` sweeps from number `first` on, `some` at a time with a look after each: the table after, and the last residual."""
    residual = math.nan
    # Never by the clock: sweeps that are compiled together may round otherwise than those that are not.
    for begin in range(first, first + count, some):
        begun, done = time.perf_counter(), min(begin + some, first + count)
        table, residual = sweeps.advance(table, begin, done - begin)
        look(SweepProgress(done, residual, done - begin, time.perf_counter() - begun))
    return table, residual


def policy_of(text: str, simulator: Simulator, grid: Grid, config: SweepConfig, q: np.ndarray, **about: Any) -> Policy:
    """A policy from a table, with everything that it came from."""
    how = {
        "gamma": config.gamma,
        "eta": config.eta,
        "samples": config.samples,
        "noise": "shared" if config.shared else "independent",
        "interpolate": "v" if config.of_values else "q",
        "seed": config.seed,
    }
    return Policy(text, config.operator.name, grid, simulator.actions, simulator.coordinates, q, how | about)
