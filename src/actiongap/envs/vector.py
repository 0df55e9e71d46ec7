"""Environments in step: what vectorised environments of one kind ask of their users, whatever they simulate.

Episodes begin anew by `AutoresetMode.NEXT_STEP`: the step in which one ends shows its last observation; the step after that takes no notice
of the action, pays nothing, and shows the first observation of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class BaseVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many environments with the same spaces. Subclasses set `plural` and implement `reset` and `step`.

    Parameters
    ----------
    num_envs
        How many.
    max_episode_steps
        Steps after which an episode is truncated; never if not given.
    render_mode
        None.
    observations, actions
        The spaces of one of them.

    Examples
    --------
    >>> class Clocks(BaseVectorEnv):
    ...     plural = "clocks"
    >>> clocks = Clocks(3, None, None, spaces.Box(0.0, 1.0), spaces.Discrete(2))
    >>> clocks.env_seeds(5), clocks.check_actions([0, 1, 1]).tolist()
    ([5, 6, 7], [0, 1, 1])
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - the base class declares it so
    plural: str
    """What many of them are, in messages."""

    def __init__(
        self, num_envs: int, max_episode_steps: int | None, render_mode: None, observations: spaces.Space, actions: spaces.Discrete
    ):
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs!r}: it must be at least 1")
        if render_mode is not None:
            raise ValueError(f"render_mode is {render_mode!r}: many {self.plural} draw nothing, so watch one instead")
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observations, actions
        self.observation_space, self.action_space = (batch_space(space, num_envs) for space in (observations, actions))
        self._num_actions = int(actions.n)
        self._limit = inf if max_episode_steps is None else max_episode_steps
        self._steps = np.zeros(num_envs, np.int64)
        self._done = np.zeros(num_envs, bool)

    def env_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        """A seed for each, or None where one is to go on with its chance: from one number, one and those that follow it."""
        seeds: list[int | None] = [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            seeds = [int(seed) + i for i in range(self.num_envs)]
        elif seed is not None:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"there are {len(seeds)} seeds for {self.num_envs} {self.plural}: give one for each, or one number")
        return seeds

    def check_actions(self, actions: Any) -> np.ndarray:
        """The actions of all of them, if they are actions."""
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu" or actions.min() < 0 or actions.max() >= self._num_actions:
            raise ValueError(f"actions must be {self.num_envs} whole numbers from 0 to {self._num_actions - 1}")
        return actions

    def update_episodes(self, terminated: np.ndarray) -> np.ndarray:
        """Take note of a step after which these have ended: which of them are cut short."""
        self._steps = np.where(self._done, 0, self._steps + 1)
        truncated = self._steps >= self._limit
        self._done = terminated | truncated
        return truncated
