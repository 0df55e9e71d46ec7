"""Sweeps over a grid with JAX: on one device, on several, or on the devices of several processes.

Devices share the points of a table in slabs. Each device sweeps its own slabs and reads those of others. If steps lead only to adjacent
slabs, devices exchange just these (a halo exchange); otherwise they gather the whole table for every sweep. Random numbers depend on their
counter only, so the result does not depend on the number of devices.

Processes join with `jax.distributed.initialize`; all of them then make the same calls. Two tables alternate (double buffering), so no table
is copied.
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

from actiongap.planning._jax_factored import Contraction, to_32_bit
from actiongap.planning._pallas import Kernel, fits
from actiongap.planning.backups import SweepConfig, Sweeps, interpolated_backups, noise_at, noise_of
from actiongap.planning.factors import Group, layout_of
from actiongap.planning.grid import Grid
from actiongap.planning.noise import UINT32, noise_key
from actiongap.planning.simulator import Simulator, one_step

DEVICES = "devices"
"""Name of the mesh axis."""
BLOCK_ENTRIES = 250_000_000
"""Maximum number of temporary entries: sweeps run in blocks of points."""


class SweepMethod(Protocol):
    """A method to sweep a table whose points form slabs of `slab` points each."""

    shape: tuple[int, ...]
    axis: int
    """The axis of the points."""
    slab: int
    entries: int
    """Temporary entries of a sweep per point."""

    def pack(self, q: np.ndarray) -> np.ndarray:
        """Q(z, a), (points, actions), as a table."""
        ...

    def unpack(self, table: np.ndarray) -> np.ndarray:
        """The inverse of `pack`."""
        ...

    def tabulate(self, z: Any, /) -> Any:
        """Precompute arrays for the points z; the first axis is that of z."""
        ...

    def slabs_reached(self, found: Any, z: Any, /) -> Any | None:
        """Maximum distance of a step in slabs; None if unknown."""
        ...

    def sweep(self, table: Any, own: Any, found: Any, z: Any, offset: Any, key: Any, gamma: Any, eta: Any, /) -> Any:
        """(1 - eta) Q + eta T'Q at the points z, with current values `own`; `table` starts at point `offset`."""
        ...


class Gathering:
    """A sweep for any simulator: gathers all corners of all next states, as in `backups`. The table is (actions, points)."""

    axis = 1

    def __init__(self, simulator: Simulator, grid: Grid, config: SweepConfig):
        self.step, self.grid, self.config, self.noise = one_step(simulator), grid, config, noise_of(simulator, grid, config)
        self.shape, self.slab = (len(simulator.actions), grid.size), 1
        self.entries = 3 * len(simulator.actions) * max(len(simulator.actions), 2 ** len(grid.axes))
        self.all_coordinates = Group(tuple(range(len(grid.axes))), grid.shape)

    def pack(self, q: np.ndarray) -> np.ndarray:
        return q.T

    def unpack(self, table: np.ndarray) -> np.ndarray:
        return table.T

    def tabulate(self, z: Any) -> tuple[Any, ...]:
        """Return the coordinates of the points."""
        indices = self.all_coordinates.digits(z)
        return tuple(jnp.asarray(np.array(axis.points, np.float32))[index] for axis, index in zip(self.grid.axes, indices, strict=True))

    def slabs_reached(self, found: Any, z: Any) -> None:
        """None: a step may lead to any point."""

    def sweep(self, table: Any, own: Any, found: Any, z: Any, offset: Any, key: Any, gamma: Any, eta: Any) -> Any:
        noise = noise_at(self.noise, self.grid, z, self.shape[0], key)
        b = interpolated_backups(self.step, self.grid, table.T, z, found, noise, gamma, self.config.of_values)
        return ((1.0 - eta) * own.T + eta * self.config.operator(b)).T


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
    """Raise if JAX cannot trace the step of the simulator."""
    number, action = jax.ShapeDtypeStruct((1,), jnp.float32), jax.ShapeDtypeStruct((1,), jnp.int32)
    try:
        jax.eval_shape(one_step(simulator), (number,) * len(simulator.coordinates), action, number)
    except (jax.errors.JAXTypeError, jax.errors.TracerArrayConversionError) as error:
        raise ValueError(
            f"{simulator.name}: JAX cannot compile its step: take sin, where and the like from actiongap.maths, choose with where, "
            "or use the engine numba"
        ) from error


class JaxSweeps:
    """Sweeps of one method, sharded over devices."""

    def __init__(self, method: SweepMethod, config: SweepConfig, devices: Sequence[Any]):
        self.method, self.config = method, config
        self.mesh = Mesh(np.array(devices), (DEVICES,))
        self.points = method.shape[method.axis]
        slabs = -(-self.points // (method.slab * len(devices)))
        self.share = slabs * method.slab
        """Points per device; those of the last devices may include padding, which is never read."""
        self.sharded, whole = PartitionSpec(*[None] * method.axis, DEVICES), PartitionSpec()
        self.here = partial(jax.shard_map, mesh=self.mesh, check_vma=False)
        # In double precision: in single precision, points on the edge of a cell may fall to either side.
        with jax.enable_x64(True):
            found, reached = jax.jit(self.here(self._tabulate, in_specs=(), out_specs=(PartitionSpec(DEVICES), whole)))()
        self.found = found
        self.halo = None if reached is None or int(reached) > slabs else int(reached)
        """Slabs that a device reads on either side; None if it may read any."""
        seen = self.points if self.halo is None or len(devices) == 1 else self.share + 2 * self.halo * method.slab
        if (entries := seen * math.prod(method.shape) // self.points) >= 2**31:
            raise ValueError(f"a device would index {entries:,} entries with 32 bits: use more devices or a coarser grid")
        self._advance = jax.jit(self._compiled, static_argnums=5, donate_argnums=0)

    def put(self, q: np.ndarray) -> Any:
        table = self.method.pack(np.asarray(q, np.float32))
        spare = self.share * self.mesh.size - self.points
        table = np.pad(table, [(0, spare if axis == self.method.axis else 0) for axis in range(table.ndim)])
        return jax.make_array_from_callback(table.shape, NamedSharding(self.mesh, self.sharded), lambda part: table[part])

    def get(self, table: Any) -> np.ndarray:
        whole = table if table.is_fully_addressable else multihost_utils.process_allgather(table, tiled=True)
        return self.method.unpack(np.take(np.asarray(whole), range(self.points), axis=self.method.axis))

    def advance(self, table: Any, first: int, count: int) -> tuple[Any, float]:
        if count < 1:
            raise ValueError(f"count is {count!r}: give at least 1")
        numbers = (np.uint32(self.config.seed & 0xFFFFFFFF), np.uint32(first), np.float32(self.config.gamma), np.float32(self.config.eta))
        table, residual = self._advance(table, self.found, *numbers[:2], numbers[2:], count)
        return table, float(residual)

    def _numbers(self) -> Any:
        """The points of this device; padding repeats the last point of the grid."""
        mine = jax.lax.axis_index(DEVICES).astype(jnp.int32) * self.share + jnp.arange(self.share, dtype=jnp.int32)
        return jnp.minimum(mine, self.points - 1)

    def _tabulate(self) -> tuple[Any, Any]:
        z = self._numbers()
        found = jax.tree.map(to_32_bit, self.method.tabulate(z))
        reached = self.method.slabs_reached(found, z)
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
            is_real = (number < self.points).reshape([-1 if axis == self.method.axis else 1 for axis in range(table.ndim)])
            moved = jnp.where(is_real, jnp.abs(after - before), 0.0).max() / numbers[1]
            # A maximum over devices would drop NaN.
            return after, jax.lax.all_gather(moved, DEVICES).max()

        specs = (self.sharded, PartitionSpec(DEVICES))
        return self.here(run, in_specs=specs, out_specs=(self.sharded, PartitionSpec()))(table, found)

    def _sweep(self, table: Any, found: Any, key: Any, gamma: Any, eta: Any) -> Any:
        """Sweep the points of one device in blocks."""
        around, offset = self._surroundings(table)
        z = self._numbers()
        most = max(1, BLOCK_ENTRIES // self.method.entries)
        # As few blocks as possible, of nearly equal size: otherwise the last one would repeat much work.
        block = -(-self.share // -(-self.share // most))

        def some(start: Any, length: int) -> Any:
            here, numbers = jax.tree.map(lambda number: jax.lax.dynamic_slice_in_dim(number, start, length), (found, z))
            own = jax.lax.dynamic_slice_in_dim(table, start, length, axis=self.method.axis)
            return self.method.sweep(around, own, here, numbers, offset, key, gamma, eta)

        if block == self.share:
            return some(0, block)

        def next_block(i: Any, after: Any) -> Any:
            # The last block starts early enough to be full; repeated points get the same result.
            start = jnp.minimum(i * block, self.share - block)
            return jax.lax.dynamic_update_slice_in_dim(after, some(start, block), start, axis=self.method.axis)

        return jax.lax.fori_loop(0, -(-self.share // block), next_block, jnp.zeros_like(table))

    def _surroundings(self, table: Any) -> tuple[Any, Any]:
        """The part of the table that this device reads, and the number of its first point."""
        axis = self.method.axis
        if self.mesh.size == 1:
            return table, 0
        if self.halo is None:
            return jax.lax.all_gather(table, DEVICES, axis=axis, tiled=True), 0
        points, size = self.halo * self.method.slab, self.mesh.size
        first, last = (jax.lax.slice_in_dim(table, *ends, axis=axis) for ends in ((0, points), (self.share - points, self.share)))
        below = jax.lax.ppermute(last, DEVICES, [(i, i + 1) for i in range(size - 1)])
        above = jax.lax.ppermute(first, DEVICES, [(i + 1, i) for i in range(size - 1)])
        return jnp.concatenate([below, table, above], axis=axis), jax.lax.axis_index(DEVICES) * self.share - points
