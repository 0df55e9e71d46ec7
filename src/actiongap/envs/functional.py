"""Functional environments: pure JAX functions, with sticky actions and automatic resets.

An environment is a set of pure functions of one state, so `vmap` runs thousands of copies in one compiled program. Random numbers are
arguments: a step takes a row of uniform numbers, each with one fixed purpose, whether it is used or not. A state and a row therefore
determine the next state, and tests can produce any trajectory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class FunctionalEnv(NamedTuple):
    """An environment as pure functions of one state."""

    name: str
    actions: tuple[str, ...]
    """Names of the actions."""
    numbers: tuple[int, ...]
    """The number that `step` uses for each action."""
    shape: tuple[int, ...]
    """Shape of an observation, an array of booleans."""
    start: Callable[[Any], Any]
    """Function of `num_start_uniforms` uniform numbers: the initial state of an episode."""
    step: Callable[[Any, Any, Any], tuple[Any, Any, Any]]
    """Function of a state, the number of an action and `num_step_uniforms` uniform numbers: the next state, the reward (float32) and
    whether the episode ended."""
    observe: Callable[[Any], Any]
    """Function of a state: its observation."""
    num_start_uniforms: int = 0
    """Number of uniform numbers that `start` takes."""
    num_step_uniforms: int = 0
    """Number of uniform numbers that `step` takes."""


class FunctionalEnvState(NamedTuple):
    """State of an environment with sticky actions."""

    state: Any
    """The environment's own state, without the last action."""
    last: Any
    """The number of the last action that was executed."""


class StepResult(NamedTuple):
    """Result of one step."""

    reward: Any
    ended: Any
    observation: Any
    """Observation after the step, even if the episode ended."""
    following: Any
    """Observation in which the next action is taken: the first of the next episode if this one ended."""


def num_uniforms(env: FunctionalEnv) -> int:
    """Return the number of uniform numbers that `step_env` takes.

    Examples
    --------
    >>> from actiongap.envs.minatar import GAMES
    >>> num_uniforms(GAMES["asterix"])
    4
    """
    return 1 + max(env.num_step_uniforms, env.num_start_uniforms)


def reset_env(env: FunctionalEnv, u: Any) -> FunctionalEnvState:
    """Reset the environment with `num_uniforms(env)` uniform random numbers."""
    return FunctionalEnvState(env.start(u[1 : 1 + env.num_start_uniforms]), jnp.int32(env.numbers[0]))


def step_env(
    env: FunctionalEnv, env_state: FunctionalEnvState, action: Any, u: Any, repeat_action_probability: float = 0.1
) -> tuple[FunctionalEnvState, StepResult]:
    """Take one step. The environment is reset if the episode ends.

    Parameters
    ----------
    env
        The environment.
    env_state
        Its state.
    action
        An index into the actions of the environment.
    u
        Uniform numbers, `num_uniforms(env)` of them.
    repeat_action_probability
        Probability that the last action is executed instead, also in the first step of an episode.

    Examples
    --------
    >>> from actiongap.envs.minatar import GAMES
    >>> env = GAMES["breakout"]
    >>> u = jnp.full(num_uniforms(env), 0.7)
    >>> env_state, result = step_env(env, reset_env(env, u), 0, u)
    >>> result.observation.shape, bool(result.ended)
    ((10, 10, 4), False)
    """
    # An episode either continues or restarts, so both share the same random numbers.
    for_step, for_start = u[1 : 1 + env.num_step_uniforms], u[1 : 1 + env.num_start_uniforms]
    number = jnp.where(u[0] < repeat_action_probability, env_state.last, jnp.asarray(env.numbers, jnp.int32)[action])
    state, reward, ended = env.step(env_state.state, number, for_step)
    initial, observation = env.start(for_start), env.observe(state)
    following = jnp.where(ended, env.observe(initial), observation)
    state = jax.tree.map(lambda new, old: jnp.where(ended, new, old), initial, state)
    return FunctionalEnvState(state, number), StepResult(reward, ended, observation, following)
