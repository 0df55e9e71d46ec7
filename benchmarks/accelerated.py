"""Sweeps of the grid planner on an accelerator: seconds a backup on finer and finer grids, beside those of the coarsest.

The floor is negating a table as large as Q, which reads and writes it once. A run makes many sweeps, as a plan does, so that what it takes
to start one from Python does not count.
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

AT_ONCE = 20
"""Sweeps in a run."""


def measure_accelerated(sizes: Sequence[int], seconds: float) -> list[Measurement]:
    """Sweeps of the bicycle with so many points an axis, every pair with its own noise and then with shared; none without an accelerator.

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

    simulator, where = bicycle(), jax.devices()[0].device_kind
    config, noise = SweepConfig(parse("bellman"), simulator.gamma, shared=shared), "shared noise" if shared else "own noise"
    negative, measured = jax.jit(lambda x: -x, donate_argnums=0), []
    for n in sizes:
        grid = Grid(simulator.axes(n))
        q = np.zeros((grid.size, len(simulator.actions)), np.float32)
        sweeps = jax_sweeps(simulator, grid, config)
        now: dict[str, Any] = {"table": sweeps.put(q), "copy": jnp.zeros(q.shape)}

        def sweep(now: dict[str, Any] = now, sweeps: Any = sweeps) -> None:
            now["table"], _ = sweeps.advance(now["table"], 0, AT_ONCE)

        def copy(now: dict[str, Any] = now) -> None:
            for _ in range(AT_ONCE):
                now["copy"] = negative(now["copy"])
            jax.block_until_ready(now["copy"])

        time = {name: best / AT_ONCE for name, best in race({"sweep": sweep, "copy": copy}, seconds).items()}
        label, ours = f"a backup on bicycle {n}^6: {noise}, {where}", time["sweep"] / q.size
        note = f"{label}: {time['sweep'] * 1e3:.3g} ms a sweep; reading and writing Q once takes {time['copy'] * 1e3:.3g} ms."
        coarsest = measured[0].ours if measured else ours
        measured.append(Measurement(label, ours, f"the same with {sizes[0]}^6", coarsest, floor=time["copy"] / q.size, note=note))
    return measured
