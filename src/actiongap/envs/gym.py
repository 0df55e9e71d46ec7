"""Gymnasium environments with discrete actions, for deep agents on the host.

Observations are converted to arrays: an array with three axes is an image (rows, columns, channels), and any other is flattened. Unsigned
bytes are divided by 255, and an element of a `Discrete` space is one-hot encoded in booleans. The agent's actions are numbered from 0,
regardless of the start of the environment's action space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from actiongap.mdp.gym import gym_remedy

MIN_IMAGE_SIZE = 3
"""Minimum number of rows and columns of an image; smaller arrays are flattened."""


class GymEnv(NamedTuple):
    """A Gymnasium environment and its spaces."""

    name: str
    """Its id."""
    observation_space: spaces.Box | spaces.Discrete
    action_space: spaces.Discrete

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions: their numbers."""
        return tuple(str(self.action_space.start + k) for k in range(self.action_space.n))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a converted observation."""
        if isinstance(self.observation_space, spaces.Discrete):
            return (int(self.observation_space.n),)
        shape = self.observation_space.shape
        return shape if len(shape) == 3 and min(shape[:2]) >= MIN_IMAGE_SIZE else (math.prod(shape),)

    @property
    def dtype(self) -> Any:
        """Type of a converted observation: booleans, which need little memory, or float32."""
        return np.bool_ if self.observation_space.dtype == np.bool_ or isinstance(self.observation_space, spaces.Discrete) else np.float32

    def convert(self, observations: Any) -> np.ndarray:
        """Convert a batch of observations for an agent.

        Examples
        --------
        >>> gym_env("FrozenLake-v1").convert(np.array([2, 15])).argmax(axis=1).tolist()
        [2, 15]
        """
        observations = np.asarray(observations)
        if isinstance(self.observation_space, spaces.Discrete):
            return observations[:, None] == self.observation_space.start + np.arange(self.observation_space.n)
        scale = np.float32(255 if self.observation_space.dtype == np.uint8 else 1)
        found = observations if self.dtype == np.bool_ else observations.astype(np.float32) / scale
        return found.reshape(len(found), *self.shape)


class StepResult(NamedTuple):
    """Result of one step of a batch of environments."""

    reward: np.ndarray
    terminated: np.ndarray
    """Whether the episode terminated."""
    truncated: np.ndarray
    """Whether the episode was truncated, for example by a time limit, and did not terminate."""
    observation: np.ndarray
    """Observation after the step, even if the episode terminated or was truncated."""


class GymVectorEnv:
    """A vector of copies of one environment, each with its own seed. They are reset in the step in which an episode ends.

    Examples
    --------
    >>> env = GymVectorEnv(gym_env("CartPole-v1"), [3, 4])
    >>> env.observation.shape, env.step(np.array([0, 1])).reward.tolist()
    ((2, 4), [1.0, 1.0])
    """

    def __init__(self, game: GymEnv, seeds: Sequence[int]):
        self.game = game
        self._env: Any = gymnasium.make_vec(
            game.name, len(seeds), "sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP}, disable_env_checker=True
        )
        self.observation: np.ndarray = game.convert(self._env.reset(seed=[int(seed) for seed in seeds])[0])
        """The observations in which the next actions are taken."""

    def step(self, actions: np.ndarray) -> StepResult:
        """Step all environments, with actions numbered from 0."""
        observation, reward, terminated, truncated, info = self._env.step(actions + self.game.action_space.start)
        self.observation = self.game.convert(observation)
        done, observation_after = terminated | truncated, self.observation
        if done.any():
            observation_after = observation_after.copy()
            observation_after[done] = self.game.convert(np.stack(list(info["final_obs"][done])))
        return StepResult(reward.astype(np.float32), terminated.copy(), truncated & ~terminated, observation_after)

    def close(self) -> None:
        """Close the environments."""
        self._env.close()


@cache
def gym_env(name: str) -> GymEnv:
    """Return the environment with this id, or raise ValueError if deep agents cannot use it.

    Examples
    --------
    >>> game = gym_env("CartPole-v1")
    >>> game.shape, game.actions
    ((4,), ('0', '1'))
    """
    try:
        made = gymnasium.make(name)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ValueError(f"gym/{name} cannot be made by Gymnasium: {gym_remedy(name, error)}") from None
    with closing(made) as env:
        observation_space, action_space = env.observation_space, env.action_space
    if not isinstance(action_space, spaces.Discrete) or action_space.n < 2:
        raise ValueError(f"gym/{name} has the action space {action_space}: deep agents need Discrete with at least 2 actions")
    if not isinstance(observation_space, (spaces.Box, spaces.Discrete)):
        kind = type(observation_space).__name__
        raise ValueError(f"gym/{name} has observations of type {kind}: deep agents need a Box or a Discrete, so wrap the environment")
    return GymEnv(name, observation_space, action_space)
