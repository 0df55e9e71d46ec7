"""Sweeps of the grid planner on an accelerator: seconds per backup on finer grids, compared with the coarsest grid.

The floor is the time to negate a table as large as Q, which reads and writes it once. A run makes many sweeps, as a plan does, so that the
time to launch a sweep from Python is negligible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from actiongap.envs.bicycle import bicycle
from actiongap.operators import parse
from actiongap.planning.backups import SweepConfig
from actiongap.planning.grid import Grid
from benchmarks import Measurement, race

SWEEPS_PER_RUN = 20


def measure_accelerated(sizes: Sequence[int], seconds: float) -> list[Measurement]:
    """Measure sweeps of the bicycle on grids of these sizes (points per axis), with independent and with shared noise.

    Returns an empty list without an accelerator.

    Examples
    --------
    >>> measure_accelerated((), seconds=0.1)
    []
    """
    try:
        import jax
    except ImportError:
        return []
    if jax.default_backend() == "cpu":
        return []
    return [row for shared in (False, True) for row in _rows(sizes, seconds, shared)]


def _rows(sizes: Sequence[int], seconds: float, shared: bool) -> list[Measurement]:
    import jax
    import jax.numpy as jnp

    from actiongap.planning._jax_sweeps import jax_sweeps

    simulator, device = bicycle(), jax.devices()[0].device_kind
    config, noise = SweepConfig(parse("bellman"), simulator.gamma, shared=shared), "shared noise" if shared else "own noise"
    negative, measured = jax.jit(lambda x: -x, donate_argnums=0), []
    for n in sizes:
        grid = Grid(simulator.axes(n))
        q = np.zeros((grid.size, len(simulator.actions)), np.float32)
        sweeps = jax_sweeps(simulator, grid, config)
        tables: dict[str, Any] = {"table": sweeps.put(q), "copy": jnp.zeros(q.shape)}

        def sweep(tables: dict[str, Any] = tables, sweeps: Any = sweeps) -> None:
            tables["table"], _ = sweeps.advance(tables["table"], 0, SWEEPS_PER_RUN)

        def copy(tables: dict[str, Any] = tables) -> None:
            for _ in range(SWEEPS_PER_RUN):
                tables["copy"] = negative(tables["copy"])
            jax.block_until_ready(tables["copy"])

        time = {name: best / SWEEPS_PER_RUN for name, best in race({"sweep": sweep, "copy": copy}, seconds).items()}
        label, ours = f"a backup on bicycle {n}^6: {noise}, {device}", time["sweep"] / q.size
        note = f"{label}: {time['sweep'] * 1e3:.3g} ms per sweep; reading and writing Q once takes {time['copy'] * 1e3:.3g} ms."
        coarsest = measured[0].ours if measured else ours
        measured.append(Measurement(label, ours, f"the same on {sizes[0]}^6", coarsest, floor=time["copy"] / q.size, note=note))
    return measured
