"""Any Gymnasium environment with discrete actions, played on the host: what a deep agent has to know about it.

An agent sees arrays. What an environment shows becomes one so: an array of three axes is a picture (rows, columns, channels), any other is
made flat; integers from 0 to 255 are divided by 255, and a number of a finite set is a row of booleans of which one is set. The agent's
actions count from 0, whatever the environment's do.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

SMALLEST = 3
"""Rows and columns that a picture has at least: what is smaller is made flat."""


class GymEnv(NamedTuple):
    """An environment on the host."""

    name: str
    """Its id."""
    observations: spaces.Box | spaces.Discrete
    moves: spaces.Discrete

    @property
    def actions(self) -> tuple[str, ...]:
        """What its actions are called: by their numbers."""
        return tuple(str(self.moves.start + k) for k in range(self.moves.n))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an observation as an agent sees it."""
        if isinstance(self.observations, spaces.Discrete):
            return (int(self.observations.n),)
        shape = self.observations.shape
        return shape if len(shape) == 3 and min(shape[:2]) >= SMALLEST else (math.prod(shape),)

    @property
    def dtype(self) -> Any:
        """Of an observation as an agent sees it: booleans, which take little room, or float32."""
        return np.bool_ if self.observations.dtype == np.bool_ or isinstance(self.observations, spaces.Discrete) else np.float32

    def seen(self, observations: Any) -> np.ndarray:
        """Observations of many environments as an agent sees them.

        Examples
        --------
        >>> gym_env("FrozenLake-v1").seen(np.array([2, 15])).argmax(axis=1).tolist()
        [2, 15]
        """
        observations = np.asarray(observations)
        if isinstance(self.observations, spaces.Discrete):
            return observations[:, None] == self.observations.start + np.arange(self.observations.n)
        scale = np.float32(255 if self.observations.dtype == np.uint8 else 1)
        found = observations if self.dtype == np.bool_ else observations.astype(np.float32) / scale
        return found.reshape(len(found), *self.shape)


class StepResult(NamedTuple):
    """What one step of many environments shows."""

    reward: np.ndarray
    terminated: np.ndarray
    """Whether the episode ended."""
    truncated: np.ndarray
    """Whether it was cut short, by a time limit say, and did not end."""
    observation: np.ndarray
    """Of the state that the step led to, even if the episode ended or was cut short there."""


class GymVectorEnv:
    """Environments of one kind that are being played, each with a seed and on its own; where an episode is over the next one begins.

    Examples
    --------
    >>> playing = GymVectorEnv(gym_env("CartPole-v1"), [3, 4])
    >>> playing.observation.shape, playing.step(np.array([0, 1])).reward.tolist()
    ((2, 4), [1.0, 1.0])
    """

    def __init__(self, game: GymEnv, seeds: Sequence[int]):
        self.game = game
        self._env: Any = gymnasium.make_vec(
            game.name, len(seeds), "sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP}, disable_env_checker=True
        )
        self.observation = game.seen(self._env.reset(seed=[int(seed) for seed in seeds])[0])
        """Of the states in which the next actions are taken."""

    def step(self, actions: np.ndarray) -> StepResult:
        """One step of all of them, with actions that count from 0."""
        found, reward, terminated, truncated, info = self._env.step(actions + self.game.moves.start)
        self.observation = self.game.seen(found)
        over, led_to = terminated | truncated, self.observation
        if over.any():
            led_to = led_to.copy()
            led_to[over] = self.game.seen(np.stack(list(info["final_obs"][over])))
        return StepResult(reward.astype(np.float32), terminated.copy(), truncated & ~terminated, led_to)

    def close(self) -> None:
        """Let go of them."""
        self._env.close()


@cache
def gym_env(name: str) -> GymEnv:
    """The environment with this id, or one sentence about why deep agents cannot play it.

    Examples
    --------
    >>> game = gym_env("CartPole-v1")
    >>> game.shape, game.actions
    ((4,), ('0', '1'))
    """
    try:
        made = gymnasium.make(name)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        near = difflib.get_close_matches(name, gymnasium.registry, n=1) if isinstance(error, gymnasium.error.UnregisteredEnv) else []
        remedy = f"did you mean gym/{near[0]}?" if near else " ".join(str(error).split())
        raise ValueError(f"gym/{name} cannot be made by Gymnasium: {remedy}") from None
    with closing(made) as env:
        observations, moves = env.observation_space, env.action_space
    if not isinstance(moves, spaces.Discrete) or moves.n < 2:
        raise ValueError(f"gym/{name} has the actions {moves}: deep agents play where there are two or more that can be counted")
    if not isinstance(observations, (spaces.Box, spaces.Discrete)):
        raise ValueError(f"gym/{name} shows {type(observations).__name__}: deep agents see a Box or a Discrete, so wrap it into one")
    return GymEnv(name, observations, moves)
