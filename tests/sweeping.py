"""One sweep by its definition, as a reference for the engines."""

from __future__ import annotations

import numpy as np

from actiongap.planning.backups import SweepConfig, interpolated_backups
from actiongap.planning.grid import Grid
from actiongap.planning.noise import UINT32, noise_key, random_uniform
from actiongap.planning.simulator import Discrete, Simulator, one_step


def by_arrays(simulator: Simulator, grid: Grid, config: SweepConfig, q: np.ndarray, number: int) -> np.ndarray:
    """One sweep by its definition, with the random numbers that belong to each pair."""
    z, actions, noise = np.arange(grid.size), len(simulator.actions), simulator.noise
    if isinstance(noise, Discrete):
        drawn = list(zip(noise.values, noise.probabilities, strict=True))
    else:
        index = np.unravel_index(z, grid.shape)
        noisy = {i for factor in simulator.factors if factor.noisy for i in factor.inputs}
        read = sorted(noisy) if config.shared else range(len(grid.shape))
        place = np.ravel_multi_index([index[i] for i in read], [grid.shape[i] for i in read])
        places = (place[:, None, None] * actions + np.arange(actions)[:, None]) * config.samples + np.arange(config.samples)
        u = noise.low + (noise.high - noise.low) * random_uniform(
            np.uint32(noise_key(config.seed, number)), places.astype(np.uint32), UINT32
        )
        drawn = [(u[..., k], 1 / config.samples) for k in range(config.samples)]
    found = interpolated_backups(one_step(simulator), grid, q, z, grid.points(), drawn, config.gamma, config.of_values)
    return (1 - config.eta) * q + config.eta * config.operator(found)
