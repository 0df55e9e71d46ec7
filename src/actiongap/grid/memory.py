"""How much memory a plan takes, asked before anything is allocated."""

from __future__ import annotations

from typing import Literal

from actiongap import _system as machine
from actiongap._files import in_bytes
from actiongap.grid.domain import Domain
from actiongap.grid.layout import layout_of
from actiongap.grid.points import Grid

HOST_TABLES, DEVICE_TABLES = 5, 3
"""How many tables a plan holds at a time: read, written, saved, and turned from one order of axes to another, twice."""
WORK = 1_000_000_000
"""Bytes that sweeps on an accelerator may hold besides the tables."""


def check_memory(domain: Domain, grid: Grid, engine: Literal["numba", "jax"], waiting: int = 1) -> None:
    """Refuse a grid whose tables would not fit into memory, before anything is allocated, and say which one would.

    Parameters
    ----------
    domain
        The simulator.
    grid
        The grid.
    engine
        Where it is swept.
    waiting
        How many tables are kept to be evaluated together.

    Examples
    --------
    >>> from actiongap.domains.classic import mountain_car
    >>> check_memory(mountain_car(), Grid(mountain_car().axes(10)), "numba")
    """
    free = free_memory(engine)

    def lacking(grid: Grid) -> dict[str, int]:
        needs = needed(domain, grid, engine, waiting)
        if "accelerator memory" not in free:
            needs = {"memory": sum(needs.values())}
        return {place: size for place, size in needs.items() if size > free[place]}

    if not (short := lacking(grid)):
        return
    fits, too_many = 1, max(grid.shape)
    while too_many - fits > 1:
        n = (fits + too_many) // 2
        fits, too_many = (fits, n) if lacking(Grid(domain.axes(n))) else (n, too_many)
    place, needs = next(iter(short.items()))
    remedy = f"take at most {fits} points an axis" if fits > 1 else "not even two points an axis would fit"
    what = f"{domain.name} with {' x '.join(map(str, grid.shape))} points"
    raise ValueError(f"{what} needs about {in_bytes(needs)} of {place}, and {in_bytes(free[place])} are free: {remedy}")


def needed(domain: Domain, grid: Grid, engine: Literal["numba", "jax"], waiting: int = 1) -> dict[str, int]:
    """About how many bytes a plan takes of `memory`, and of `accelerator memory` where JAX sweeps.

    Examples
    --------
    >>> from actiongap.domains.classic import mountain_car
    >>> needed(mountain_car(), Grid(mountain_car().axes(10)), "numba")
    {'memory': 7200}
    """
    table, layout, tabulated = 4 * grid.size * len(domain.actions), layout_of(domain, grid), 0
    if layout is not None:
        # Two corners and a fraction along each quiet coordinate, reward, end and stay.
        steps = layout.quiet.size * layout.held.size * (max(layout.quiet_parts) + 1)
        tabulated = steps * (12 * len(layout.quiet.shape) + 12)
    host = (HOST_TABLES + waiting) * table
    if engine == "numba":
        return {"memory": host + tabulated}
    work = min(WORK, table * 2 ** len(grid.axes))
    return {"memory": host, "accelerator memory": (DEVICE_TABLES + waiting) * table + tabulated + work}


def free_memory(engine: Literal["numba", "jax"]) -> dict[str, int]:
    """How many bytes may still be taken, in each place that sweeps use.

    Examples
    --------
    >>> list(free_memory("numba"))
    ['memory']
    """
    host = machine.free_memory()
    if engine == "numba":
        return {"memory": host}
    import jax

    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    device = sum(found.get("bytes_limit", 0) - found.get("bytes_in_use", 0) for found in stats)
    return {"memory": host} | ({"accelerator memory": device} if device > 0 else {})
