"""Base class of the vector environments of this package.

Autoreset is `AutoresetMode.NEXT_STEP`: the step in which an episode ends returns its last observation. The next step ignores the action and
returns a reward of 0 and the first observation of the next episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class BaseVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """A vector environment that checks seeds and actions and counts steps. Subclasses set `plural` and implement `reset` and `step`.

    Parameters
    ----------
    num_envs
        Number of environments.
    max_episode_steps
        Steps after which an episode is truncated; never if None.
    render_mode
        Must be None.
    observations, actions
        The spaces of a single environment.

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
    """Plural name of the environments, for error messages."""

    def __init__(
        self, num_envs: int, max_episode_steps: int | None, render_mode: None, observations: spaces.Space[Any], actions: spaces.Discrete
    ):
        if not isinstance(num_envs, (int, np.integer)) or num_envs < 1:
            raise ValueError(f"num_envs is {num_envs!r}: give a whole number of at least 1")
        if render_mode is not None:
            raise ValueError(f"render_mode is {render_mode!r}: vectorized {self.plural} cannot be rendered, so render a single one")
        self.num_envs = num_envs
        self.single_observation_space: spaces.Space[Any] = observations
        self.single_action_space: spaces.Space[Any] = actions
        self.observation_space: spaces.Space[Any] = batch_space(observations, num_envs)
        self.action_space: spaces.Space[Any] = batch_space(actions, num_envs)
        self._num_actions = int(actions.n)
        self._limit = inf if max_episode_steps is None else max_episode_steps
        self._steps = np.zeros(num_envs, np.int64)
        self._done = np.zeros(num_envs, bool)

    def env_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        """Return one seed per environment: None keeps its generator, and an integer s gives s, s + 1, s + 2 and so on."""
        seeds: list[int | None] = [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            seeds = [int(seed) + i for i in range(self.num_envs)]
        elif seed is not None:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"there are {len(seeds)} seeds for {self.num_envs} {self.plural}: give one seed each, or one integer")
        return seeds

    def check_actions(self, actions: Any) -> np.ndarray:
        """Return the actions as an array, or raise ValueError if they are not one valid action per environment."""
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu" or actions.min() < 0 or actions.max() >= self._num_actions:
            raise ValueError(f"actions must be {self.num_envs} integers from 0 to {self._num_actions - 1}")
        return actions

    def update_episodes(self, terminated: np.ndarray) -> np.ndarray:
        """Count a step of all environments, and return which of them are truncated."""
        self._steps = np.where(self._done, 0, self._steps + 1)
        truncated = self._steps >= self._limit
        self._done = terminated | truncated
        return truncated


class UniformStreams:
    """A stream of uniform numbers for each environment, the same as from `np_random` of a single environment with its seed.

    Examples
    --------
    >>> streams = UniformStreams(2)
    >>> streams.seed([5, 6])
    >>> first = seeding.np_random(6)[0]
    >>> bool(streams.next()[1] == first.random()), bool(streams.next()[1] == first.random())
    (True, True)
    """

    BLOCK = 256
    """Numbers are drawn in blocks."""

    def __init__(self, num_envs: int, low: float = 0.0, high: float = 1.0):
        self._range = low, high
        self._generators: list[np.random.Generator] = []
        self._numbers = np.zeros((num_envs, self.BLOCK))
        self._used = np.full(num_envs, self.BLOCK)

    @property
    def seeded(self) -> bool:
        """Whether there are streams yet."""
        return bool(self._generators)

    def seed(self, seeds: Sequence[int | None]) -> None:
        """Start new streams. None continues the stream of an environment, or starts one with a random seed."""
        fresh = [i for i, seed in enumerate(seeds) if seed is not None or not self._generators]
        self._generators = self._generators or [np.random.default_rng(0)] * len(seeds)
        for i in fresh:
            self._generators[i] = seeding.np_random(seeds[i])[0]
        self._used[fresh] = self.BLOCK

    def next(self) -> np.ndarray:
        """Return the next number of each stream."""
        for i in np.flatnonzero(self._used == self.BLOCK):
            self._numbers[i] = self._generators[i].uniform(*self._range, self.BLOCK)
            self._used[i] = 0
        drawn = self._numbers[np.arange(len(self._used)), self._used]
        self._used += 1
        return drawn
