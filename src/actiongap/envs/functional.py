"""A game that lives on the device: what it is made of, and how it is played on and on.

A game is pure functions of one state, so that `vmap` plays thousands side by side and a compiler sees through all of them. Chance is handed
in: a step takes a row of uniform numbers, each of which has one purpose whether or not it is used, so that a game can be driven through
any course of events, and a state and a row say all that follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class FunctionalEnv(NamedTuple):
    """The rules of a game, for one state."""

    name: str
    actions: tuple[str, ...]
    """What the actions are called that do something in this game."""
    numbers: tuple[int, ...]
    """The numbers by which `step` knows them."""
    shape: tuple[int, ...]
    """Of an observation, which is made of booleans."""
    start: Callable[[Any], Any]
    """The state of a new game, from `start_chance` uniform numbers."""
    step: Callable[[Any, Any, Any], tuple[Any, Any, Any]]
    """The next state, the reward (float32) and whether the game ended, from a state, the number of an action, and `chance` numbers."""
    observe: Callable[[Any], Any]
    """What is seen of a state."""
    start_chance: int = 0
    chance: int = 0


class FunctionalEnvState(NamedTuple):
    """A game that is being played."""

    state: Any
    last: Any
    """The number of the action that was carried out last."""


class StepResult(NamedTuple):
    """What one step of play shows."""

    reward: Any
    ended: Any
    observation: Any
    """Of the state that the step led to, even if the game ended there."""
    following: Any
    """Of the state in which the next action is taken: a new game's where one ended."""


def num_uniforms(game: FunctionalEnv) -> int:
    """How many uniform numbers `step_env` takes.

    Examples
    --------
    >>> from actiongap.envs.minatar import GAMES
    >>> num_uniforms(GAMES["asterix"])
    4
    """
    return 1 + max(game.chance, game.start_chance)


def reset_env(game: FunctionalEnv, u: Any) -> FunctionalEnvState:
    """A new game with nothing done yet, from as many uniform numbers as `step_env` takes."""
    return FunctionalEnvState(game.start(u[1 : 1 + game.start_chance]), jnp.int32(game.numbers[0]))


def step_env(
    game: FunctionalEnv, play: FunctionalEnvState, action: Any, u: Any, repeat_action_probability: float = 0.1
) -> tuple[FunctionalEnvState, StepResult]:
    """One step, after which a game that ended begins anew.

    Parameters
    ----------
    game
        The rules.
    play
        What is being played.
    action
        An index into the actions of the game.
    u
        So many uniform numbers as `luck` says.
    repeat_action_probability
        How likely it is that the last action is carried out again instead, as it may be in the first step of a game.

    Examples
    --------
    >>> from actiongap.envs.minatar import GAMES
    >>> game = GAMES["breakout"]
    >>> u = jnp.full(num_uniforms(game), 0.7)
    >>> play, seen = step_env(game, reset_env(game, u), 0, u)
    >>> seen.observation.shape, bool(seen.ended)
    ((10, 10, 4), False)
    """
    # A game goes on or begins anew, and never both: the same numbers serve either.
    here, anew = u[1 : 1 + game.chance], u[1 : 1 + game.start_chance]
    number = jnp.where(u[0] < repeat_action_probability, play.last, jnp.asarray(game.numbers, jnp.int32)[action])
    state, reward, ended = game.step(play.state, number, here)
    begun, observation = game.start(anew), game.observe(state)
    following = jnp.where(ended, game.observe(begun), observation)
    state = jax.tree.map(lambda new, old: jnp.where(ended, new, old), begun, state)
    return FunctionalEnvState(state, number), StepResult(reward, ended, observation, following)
