"""A sweep with JAX for any simulator: all corners of all next states are gathered, as in `backups`.

The table is (actions, points).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from actiongap.planning.backups import SweepConfig, interpolated_backups, noise_at, noise_of
from actiongap.planning.factors import Group
from actiongap.planning.grid import Grid
from actiongap.planning.simulator import Simulator, one_step


class Gathering:
    """The sweep of one `SweepConfig` on one grid."""

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
