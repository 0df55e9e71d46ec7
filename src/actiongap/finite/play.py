"""The one loop that plays: models, environments and ids of environments alike, as a stream of transitions.

An episode ends in one of two ways. *Terminated*: the next state is terminal, nothing follows it, and its discount is 0. *Truncated*: the
clock ran out, the next state has a value like any other, and only the play starts anew. A finite MDP never terminates by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from actiongap.finite.gymnasium import FiniteEnv, opened
from actiongap.finite.model import FiniteMDP

Problem = FiniteMDP | gymnasium.Env | str
"""What can be played: a model, an environment, or the id of one."""


class Step(NamedTuple):
    """One transition of play, with what was decided to do next."""

    x: Any
    """The observation: a state counted from 0 where observations are discrete, flat numbers otherwise."""
    a: int
    """The action taken, counted from 0."""
    r: float
    """The reward."""
    terminated: bool
    """Whether `x_next` is terminal."""
    x_next: Any
    """What `a` led to; after a time limit the last state reached, not the first of the next episode."""
    a_next: int
    """The action chosen in `x_next`."""
    ended: bool
    """Whether the episode ended here, for either reason."""


def play(env: gymnasium.Env, act: Callable[[Any], int], *, steps: int, seed: int) -> Iterator[Step]:
    """Play `env` for a number of steps with actions `act(x)`, starting anew whenever an episode ends.

    Examples
    --------
    >>> from actiongap.finite.examples import chain
    >>> [step.x_next for step in play(FiniteEnv(chain(5, slip=0.0), start=0), lambda x: 1, steps=3, seed=0)]
    [1, 2, 3]
    """
    if int(steps) != steps or steps < 1:
        raise ValueError(f"steps is {steps!r}: it must be a whole number of at least 1")
    read, first = _reader(env.observation_space), int(discrete(env, "action").start)
    x = read(env.reset(seed=seed)[0])
    a = act(x)
    for _ in range(int(steps)):
        observation, r, terminated, truncated, _ = env.step(a + first)
        x_next = read(observation)
        a_next = act(x_next)
        ended = bool(terminated or truncated)
        yield Step(x, a, float(r), bool(terminated), x_next, a_next, ended)
        if ended:
            x_next = read(env.reset()[0])
            a_next = act(x_next)
        x, a = x_next, a_next


def playing(problem: Problem) -> AbstractContextManager[gymnasium.Env]:
    """The environment that plays a problem, closed afterwards if it was made here.

    A model is played from states drawn evenly, and started anew every 1 / (1 - gamma) steps, so that no state stays unseen. For another
    start or another limit, give a `FiniteEnv` of your own.

    Examples
    --------
    >>> with playing("FrozenLake-v1") as env:
    ...     env.observation_space
    Discrete(16)
    """
    if isinstance(problem, FiniteMDP):
        return opened(FiniteEnv(problem, max_steps=round(1 / (1 - problem.gamma))))
    return opened(problem)


def discrete(env: gymnasium.Env, what: str) -> spaces.Discrete:
    """The `action` or `observation` space, or a sentence saying that it must be discrete."""
    space = env.action_space if what == "action" else env.observation_space
    if not isinstance(space, spaces.Discrete):
        remedy = "choose an environment with discrete actions" if what == "action" else "collect a batch and fit a regressor to it"
        raise ValueError(f"{env} has the {what} space {space}, which is not Discrete: {remedy}")
    return space


def _reader(space: spaces.Space) -> Callable[[Any], Any]:
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return lambda observation: int(observation) - first
    return lambda observation: np.asarray(spaces.flatten(space, observation), dtype=float)
