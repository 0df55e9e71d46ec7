"""A player that looks ahead: good enough to reach parts of a game where random play never comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from actiongap.envs.functional import FunctionalEnv


def looks_ahead(game: FunctionalEnv, plans: int = 128, depth: int = 12, life: float = 20.0) -> Callable[[Any, np.random.Generator], int]:
    """The first action of the best of several random plans, if nothing comes that is not there: a life is worth so much."""

    def worth(state, plan):
        def follow(carry, action):
            state, weight, total = carry
            state, reward, ended = game.step(state, action, jnp.full(game.chance, 0.5))
            return (state, 0.95 * weight * ~ended, total + weight * (reward - life * ended)), None

        return jax.lax.scan(follow, (state, jnp.float32(1), jnp.float32(0)), plan)[0][2]

    best = jax.jit(lambda state, chosen: chosen[jnp.argmax(jax.vmap(worth, (None, 0))(state, chosen)), 0])
    numbers = np.array(game.numbers, np.int32)
    return lambda state, rng: int(best(state, numbers[rng.integers(len(numbers), size=(plans, depth))]))
