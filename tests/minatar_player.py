"""A player with lookahead, which reaches states of a game that random play never reaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from actiongap.envs.functional import FunctionalEnv


def lookahead_policy(
    game: FunctionalEnv, plans: int = 128, depth: int = 12, life: float = 20.0
) -> Callable[[Any, np.random.Generator], int]:
    """A policy that takes the first action of the best of several random plans. Plans assume that random numbers are 0.5, and that the
    end of the game costs `life`."""

    def plan_return(state, plan):
        def take_step(carry, action):
            state, weight, total = carry
            state, reward, ended = game.step(state, action, jnp.full(game.num_step_uniforms, 0.5))
            return (state, 0.95 * weight * ~ended, total + weight * (reward - life * ended)), None

        return jax.lax.scan(take_step, (state, jnp.float32(1), jnp.float32(0)), plan)[0][2]

    best = jax.jit(lambda state, chosen: chosen[jnp.argmax(jax.vmap(plan_return, (None, 0))(state, chosen)), 0])
    numbers = np.array(game.numbers, np.int32)
    return lambda state, rng: int(best(state, numbers[rng.integers(len(numbers), size=(plans, depth))]))
