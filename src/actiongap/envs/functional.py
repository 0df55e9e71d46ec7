"""Functional environments: games as pure JAX functions, with sticky actions and automatic resets.

A game is a set of pure functions of one state, so `vmap` runs thousands of games in one compiled program. Random numbers are arguments: a
step takes a row of uniform numbers, each with one fixed purpose, whether it is used or not. A state and a row therefore determine the next
state, and tests can produce any course of events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class FunctionalEnv(NamedTuple):
    """A game as pure functions of one state."""

    name: str
    actions: tuple[str, ...]
    """Names of the actions."""
    numbers: tuple[int, ...]
    """The number that `step` uses for each action."""
    shape: tuple[int, ...]
    """Shape of an observation, an array of booleans."""
    start: Callable[[Any], Any]
    """Function of `start_chance` uniform numbers: the state of a new game."""
    step: Callable[[Any, Any, Any], tuple[Any, Any, Any]]
    """Function of a state, the number of an action and `chance` uniform numbers: the next state, the reward (float32) and whether the
    game ended."""
    observe: Callable[[Any], Any]
    """Function of a state: its observation."""
    start_chance: int = 0
    """Number of uniform numbers that `start` takes."""
    chance: int = 0
    """Number of uniform numbers that `step` takes."""


class FunctionalEnvState(NamedTuple):
    """State of a game with sticky actions."""

    state: Any
    """The state of the game."""
    last: Any
    """The number of the last action that was executed."""


class StepResult(NamedTuple):
    """Result of one step."""

    reward: Any
    ended: Any
    observation: Any
    """Observation after the step, even if the game ended."""
    following: Any
    """Observation in which the next action is taken: that of a new game if this one ended."""


def num_uniforms(game: FunctionalEnv) -> int:
    """Return the number of uniform numbers that `step_env` takes.

    Examples
    --------
    >>> from actiongap.envs.minatar import GAMES
    >>> num_uniforms(GAMES["asterix"])
    4
    """
    return 1 + max(game.chance, game.start_chance)


def reset_env(game: FunctionalEnv, u: Any) -> FunctionalEnvState:
    """Start a new game from `num_uniforms(game)` uniform numbers."""
    return FunctionalEnvState(game.start(u[1 : 1 + game.start_chance]), jnp.int32(game.numbers[0]))


def step_env(
    game: FunctionalEnv, play: FunctionalEnvState, action: Any, u: Any, repeat_action_probability: float = 0.1
) -> tuple[FunctionalEnvState, StepResult]:
    """Take one step; a game that ends is reset.

    Parameters
    ----------
    game
        The game.
    play
        Its state.
    action
        An index into the actions of the game.
    u
        Uniform numbers, `num_uniforms(game)` of them.
    repeat_action_probability
        Probability that the last action is executed instead, also in the first step of a game.

    Examples
    --------
    >>> from actiongap.envs.minatar import GAMES
    >>> game = GAMES["breakout"]
    >>> u = jnp.full(num_uniforms(game), 0.7)
    >>> play, result = step_env(game, reset_env(game, u), 0, u)
    >>> result.observation.shape, bool(result.ended)
    ((10, 10, 4), False)
    """
    # A game either continues or restarts, so both share the same random numbers.
    step_uniforms, start_uniforms = u[1 : 1 + game.chance], u[1 : 1 + game.start_chance]
    number = jnp.where(u[0] < repeat_action_probability, play.last, jnp.asarray(game.numbers, jnp.int32)[action])
    state, reward, ended = game.step(play.state, number, step_uniforms)
    initial, observation = game.start(start_uniforms), game.observe(state)
    following = jnp.where(ended, game.observe(initial), observation)
    state = jax.tree.map(lambda new, old: jnp.where(ended, new, old), initial, state)
    return FunctionalEnvState(state, number), StepResult(reward, ended, observation, following)
