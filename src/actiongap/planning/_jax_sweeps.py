"""Sweeps over a grid with JAX: on an accelerator, on several, and on those of several processes.

Devices share out the points of a table in slabs: each sweeps its own and looks into those of its neighbors.
Where steps lead to neighbouring slabs only, and this can be known, devices hand each other these and nothing else; elsewhere they gather
the whole table for a sweep. Draws depend on nothing but their place, so the answer does not depend on who computes it.

Processes join with `jax.distributed.initialize`; all of them then make the same calls. Two tables take turns, so nothing is copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from actiongap.planning._jax_factored import Contraction, single
from actiongap.planning._jax_gather import Gathering
from actiongap.planning._pallas import Kernel, fits
from actiongap.planning.backups import SweepConfig, Sweeps
from actiongap.planning.factors import layout_of
from actiongap.planning.grid import Grid
from actiongap.planning.noise import UINT32, noise_key
from actiongap.planning.simulator import Simulator, one_step

DEVICES = "devices"
"""The one axis along which devices are lined up."""
BLOCK_ENTRIES = 250_000_000
"""Numbers that a sweep holds at a time besides the tables: it goes block by block."""


class Form(Protocol):
    """A way to sweep a table whose points are slabs of `slab` points each."""

    shape: tuple[int, ...]
    axis: int
    """The axis of the points."""
    slab: int
    entries: int
    """Numbers that a sweep holds for each point besides the tables."""

    def turn(self, q: np.ndarray) -> np.ndarray:
        """Q(z, a), (points, actions), as a table."""
        ...

    def turn_back(self, table: np.ndarray) -> np.ndarray:
        """The inverse of `turn`."""
        ...

    def tabulate(self, z: Any, /) -> Any:
        """All that sweeps from the points numbered z look up: arrays whose first axis is theirs."""
        ...

    def slabs_reached(self, found: Any, z: Any, /) -> Any | None:
        """How many slabs away from its own a step leads at most; None if nobody knows."""
        ...

    def sweep(self, table: Any, own: Any, found: Any, z: Any, offset: Any, key: Any, gamma: Any, eta: Any, /) -> Any:
        """(1 - eta) Q + eta T'Q at the points numbered z, whose values are `own`; `table` begins at point `offset`."""
        ...


def jax_sweeps(simulator: Simulator, grid: Grid, config: SweepConfig, devices: Sequence[Any] | None = None) -> Sweeps:
    """Sweeps on these devices, or on all that JAX sees: factor by factor where possible, and by gathering all corners otherwise.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> from actiongap.operators import parse
    >>> simulator = mountain_car()
    >>> grid = Grid(simulator.axes(5))
    >>> sweeps = jax_sweeps(simulator, grid, SweepConfig(parse("bellman"), 0.99, eta=1.0))
    >>> table, residual = sweeps.advance(sweeps.put(np.zeros((25, 3))), 0, 3)
    >>> [round(float(value), 4) for value in sweeps.get(table)[0]]
    [-2.9701, -2.9701, -2.9701]
    """
    devices = jax.devices() if devices is None else devices
    _check_traceable(simulator)
    layout = layout_of(simulator, grid)
    if layout is None:
        return JaxSweeps(Gathering(simulator, grid, config), config, devices)
    if devices[0].platform == "gpu" and fits(simulator, grid, layout, config):
        return JaxSweeps(Kernel(simulator, grid, layout, config), config, devices)
    return JaxSweeps(Contraction(simulator, grid, layout, config), config, devices)


def _check_traceable(simulator: Simulator) -> None:
    """Refuse a simulator that computes with numbers only, which a compiler does not have."""
    number, action = jax.ShapeDtypeStruct((1,), jnp.float32), jax.ShapeDtypeStruct((1,), jnp.int32)
    try:
        jax.eval_shape(one_step(simulator), (number,) * len(simulator.coordinates), action, number)
    except (jax.errors.JAXTypeError, jax.errors.TracerArrayConversionError) as error:
        raise ValueError(
            f"{simulator.name}: JAX cannot compile its step: take sin, where and the like from actiongap.maths, choose with where, "
            "or use the engine numba"
        ) from error


class JaxSweeps:
    """Sweeps of one form, shared out over devices."""

    def __init__(self, form: Form, config: SweepConfig, devices: Sequence[Any]):
        self.form, self.config = form, config
        self.mesh = Mesh(np.array(devices), (DEVICES,))
        self.points = form.shape[form.axis]
        slabs = -(-self.points // (form.slab * len(devices)))
        self.share = slabs * form.slab
        """Points of each device; the last ones may have some that are none of the grid's, which nobody reads."""
        self.sharded, whole = PartitionSpec(*[None] * form.axis, DEVICES), PartitionSpec()
        self.here = partial(jax.shard_map, mesh=self.mesh, check_vma=False)
        # In double precision: in single, what lies on the edge of a cell may fall to either near.
        with jax.enable_x64(True):
            found, reached = jax.jit(self.here(self._tabulate, in_specs=(), out_specs=(PartitionSpec(DEVICES), whole)))()
        self.found = found
        self.halo = None if reached is None or int(reached) > slabs else int(reached)
        """Slabs of its neighbors that a device needs; None if it may need any."""
        seen = self.points if self.halo is None or len(devices) == 1 else self.share + 2 * self.halo * form.slab
        if (entries := seen * math.prod(form.shape) // self.points) >= 2**31:
            raise ValueError(f"a device would look at {entries:,} numbers, and counts to {2**31:,}: use more devices or a coarser grid")
        self._advance = jax.jit(self._compiled, static_argnums=5, donate_argnums=0)

    def put(self, q: np.ndarray) -> Any:
        table = self.form.turn(np.asarray(q, np.float32))
        spare = self.share * self.mesh.size - self.points
        table = np.pad(table, [(0, spare if axis == self.form.axis else 0) for axis in range(table.ndim)])
        return jax.make_array_from_callback(table.shape, NamedSharding(self.mesh, self.sharded), lambda part: table[part])

    def get(self, table: Any) -> np.ndarray:
        whole = table if table.is_fully_addressable else multihost_utils.process_allgather(table, tiled=True)
        return self.form.turn_back(np.take(np.asarray(whole), range(self.points), axis=self.form.axis))

    def advance(self, table: Any, first: int, count: int) -> tuple[Any, float]:
        if count < 1:
            raise ValueError(f"count is {count!r}: make at least one sweep")
        numbers = (np.uint32(self.config.seed & 0xFFFFFFFF), np.uint32(first), np.float32(self.config.gamma), np.float32(self.config.eta))
        table, residual = self._advance(table, self.found, *numbers[:2], numbers[2:], count)
        return table, float(residual)

    def _numbers(self) -> Any:
        """The points of this device; beyond the last of the grid, the last."""
        mine = jax.lax.axis_index(DEVICES).astype(jnp.int32) * self.share + jnp.arange(self.share, dtype=jnp.int32)
        return jnp.minimum(mine, self.points - 1)

    def _tabulate(self) -> tuple[Any, Any]:
        z = self._numbers()
        found = jax.tree.map(single, self.form.tabulate(z))
        reached = self.form.slabs_reached(found, z)
        return found, None if reached is None else jax.lax.pmax(reached, DEVICES)

    def _compiled(self, table: Any, found: Any, seed: Any, first: Any, numbers: Any, count: int) -> tuple[Any, Any]:
        def run(table: Any, found: Any) -> tuple[Any, Any]:
            def sweep(table: Any, number: Any) -> Any:
                return self._sweep(table, found, noise_key(seed, number, UINT32), *numbers)

            def two(i: Any, tables: tuple[Any, Any]) -> tuple[Any, Any]:
                number = first + 2 * i.astype(jnp.uint32)
                between = sweep(tables[1], number)
                return between, sweep(between, number + np.uint32(1))

            before, after = jax.lax.fori_loop(0, count // 2, two, (table, table))
            if count % 2:
                before, after = after, sweep(after, first + np.uint32(count - 1))
            number = jax.lax.axis_index(DEVICES) * self.share + jnp.arange(self.share)
            is_real = (number < self.points).reshape([-1 if axis == self.form.axis else 1 for axis in range(table.ndim)])
            moved = jnp.where(is_real, jnp.abs(after - before), 0.0).max() / numbers[1]
            # A maximum over devices would leave out what is no number.
            return after, jax.lax.all_gather(moved, DEVICES).max()

        specs = (self.sharded, PartitionSpec(DEVICES))
        return self.here(run, in_specs=specs, out_specs=(self.sharded, PartitionSpec()))(table, found)

    def _sweep(self, table: Any, found: Any, key: Any, gamma: Any, eta: Any) -> Any:
        """The share of one device, block by block."""
        around, offset = self._surroundings(table)
        z = self._numbers()
        most = max(1, BLOCK_ENTRIES // self.form.entries)
        # As few blocks as can be, and all of about one size: the last would do much again otherwise.
        block = -(-self.share // -(-self.share // most))

        def some(start: Any, length: int) -> Any:
            here, numbers = jax.tree.map(lambda number: jax.lax.dynamic_slice_in_dim(number, start, length), (found, z))
            own = jax.lax.dynamic_slice_in_dim(table, start, length, axis=self.form.axis)
            return self.form.sweep(around, own, here, numbers, offset, key, gamma, eta)

        if block == self.share:
            return some(0, block)

        def next_block(i: Any, after: Any) -> Any:
            # The last block begins early enough to be whole; what it does again comes out the same.
            start = jnp.minimum(i * block, self.share - block)
            return jax.lax.dynamic_update_slice_in_dim(after, some(start, block), start, axis=self.form.axis)

        return jax.lax.fori_loop(0, -(-self.share // block), next_block, jnp.zeros_like(table))

    def _surroundings(self, table: Any) -> tuple[Any, Any]:
        """The part of the table that this device looks at, and the number of the first point in it."""
        axis = self.form.axis
        if self.mesh.size == 1:
            return table, 0
        if self.halo is None:
            return jax.lax.all_gather(table, DEVICES, axis=axis, tiled=True), 0
        points, size = self.halo * self.form.slab, self.mesh.size
        first, last = (jax.lax.slice_in_dim(table, *ends, axis=axis) for ends in ((0, points), (self.share - points, self.share)))
        below = jax.lax.ppermute(last, DEVICES, [(i, i + 1) for i in range(size - 1)])
        above = jax.lax.ppermute(first, DEVICES, [(i + 1, i) for i in range(size - 1)])
        return jnp.concatenate([below, table, above], axis=axis), jax.lax.axis_index(DEVICES) * self.share - points
