"""The bicycle as a Gymnasium environment, single and vectorized.

All randomness is a stream of uniform numbers in [-1, 1), one per reset and one per step. Every bicycle has its own stream, so environment i
of `Bicycles` with seed s is identical to a `Bicycle` with seed s + i, in all following episodes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from actiongap.envs.bicycle import ACTIONS, DISTANCE, MAX_NOISE, STOP, STRIDE, State, features, initial_state, step_function
from actiongap.envs.vector import BaseVectorEnv, UniformStreams

# Rates stay far below their bounds until a fall. The bound of the distance is the longest way in 100,000 steps.
HIGH = np.array([pi / 6, 20.0, STOP, 200.0, pi, DISTANCE + 100_000 * STRIDE], np.float32)
LOW = np.append(-HIGH[:5], np.float32(0.0))
"""Bounds of the observations (omega, omega_dot, theta, theta_dot, psi, d)."""


class Bicycle(gymnasium.Env[np.ndarray, Any]):
    """A bicycle 1 km from its goal. Observations are the six features, actions are `actiongap.envs.bicycle.ACTIONS`.

    An episode terminates with a fall, which has the reward -c, or at the goal.

    Parameters
    ----------
    render_mode
        `rgb_array` or None.
    reward, c
        As in `actiongap.envs.bicycle.step_function`.
    noise
        Whether the displacement of the rider is noisy.
    start
        Initial states: one of `actiongap.envs.bicycle.STARTS`.

    Examples
    --------
    >>> env = Bicycle(start="north")
    >>> env.reset(seed=0)[0].tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 1000.0]
    >>> observation, reward, terminated, truncated, info = env.step(4)
    >>> round(reward, 6), terminated
    (0.001467, False)
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 100}  # noqa: RUF012 - the base class declares it so

    def __init__(
        self, render_mode: str | None = None, *, reward: str = "paper", c: float | None = None, noise: bool = True, start: str = "spread"
    ):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is {render_mode!r}: choose rgb_array or None")
        self.render_mode = render_mode
        self.observation_space: spaces.Space[Any] = spaces.Box(LOW, HIGH)
        self.action_space: spaces.Space[Any] = spaces.Discrete(len(ACTIONS))
        self.state: State = initial_state(start, 0.0)
        """The current `State` of the simulator."""
        self._simulate = step_function(reward=reward, c=c)
        self._start = start
        self._max_noise = MAX_NOISE if noise else 0.0
        self._trail: list[tuple[float, float]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = initial_state(self._start, self.np_random.uniform(-1.0, 1.0))
        self._trail = [(self.state.x, self.state.y)]
        self._steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self._trail:
            raise ValueError("the bicycle has not started: call reset before step")
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is invalid: choose 0 to {len(ACTIONS) - 1}")
        outcome = self._simulate(self.state, int(action), self._max_noise * self.np_random.uniform(-1.0, 1.0))
        self.state = State(*outcome.x)
        self._steps += 1
        if self._steps % 10 == 0:
            self._trail.append((self.state.x, self.state.y))
        return self._observe(), float(outcome.reward), bool(outcome.ended), False, {}

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            gymnasium.logger.warn('render_mode is None: make the environment with render_mode="rgb_array"')
            return None
        from actiongap.envs.renderers import render_bicycle

        return render_bicycle(self.state, np.array(self._trail))

    def _observe(self) -> np.ndarray:
        return np.array(features(self.state), np.float32)


class Bicycles(BaseVectorEnv):
    """A vector of bicycles, each as in `Bicycle`. After an episode has ended, the next step starts another.

    Parameters
    ----------
    num_envs
        Number of bicycles.
    max_episode_steps
        Steps after which an episode is truncated; never if None.
    render_mode
        Must be None.
    reward, c, noise, start
        As for `Bicycle`.

    Examples
    --------
    >>> env = Bicycles(1000, start="north")
    >>> observations, _ = env.reset(seed=0)
    >>> env.step(np.full(1000, 4))[0].shape
    (1000, 6)
    """

    plural = "bicycles"

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        render_mode: None = None,
        *,
        reward: str = "paper",
        c: float | None = None,
        noise: bool = True,
        start: str = "spread",
    ):
        super().__init__(num_envs, max_episode_steps, render_mode, spaces.Box(LOW, HIGH), spaces.Discrete(len(ACTIONS)))
        self._simulate = step_function(reward=reward, c=c)
        self._start = start
        self._max_noise = MAX_NOISE if noise else 0.0
        self._state = initial_state(start, np.zeros(num_envs))
        self._streams = UniformStreams(num_envs, -1.0, 1.0)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._streams.seed(self.env_seeds(seed))
        self._state = initial_state(self._start, self._streams.next())
        self._steps[:] = 0
        self._done[:] = False
        return self._observe(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if not self._streams.seeded:
            raise ValueError("the bicycles have not started: call reset before step")
        actions = self.check_actions(actions)
        starting, u = self._done, self._streams.next()
        outcome = self._simulate(self._state, actions, self._max_noise * u)
        self._state = State(*outcome.x)
        if starting.any():
            initial = initial_state(self._start, u)
            self._state = State(*(np.where(starting, new, old) for new, old in zip(initial, self._state, strict=True)))
        terminated = outcome.ended & ~starting
        truncated = self.update_episodes(terminated)
        return self._observe(), np.where(starting, 0.0, outcome.reward), terminated, truncated, {}

    def _observe(self) -> np.ndarray:
        return np.stack(features(self._state), axis=-1).astype(np.float32)
