"""Simulators as Gymnasium environments, single and vectorized.

Observations are the coordinates that a policy sees, in float32. Actions are numbers from 0. An episode terminates where the simulator ends
it, and is truncated after `max_episode_steps`. With the last observation, `info["outcome"]` names how the episode ended.

All randomness is a stream of uniform numbers in [0, 1), one per reset and one per step. Every environment has its own stream, so
environment i of `SimulatorVectorEnv` with seed s is identical to a `SimulatorEnv` with seed s + i, in all following episodes too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvCreator, EnvSpec
from gymnasium.vector import AutoresetMode

from actiongap.envs.renderers import fitted, renderer_of, state_image
from actiongap.envs.vector import BaseVectorEnv, UniformStreams
from actiongap.planning.noise import episode_noise
from actiongap.planning.rollouts import Episode
from actiongap.planning.simulator import Outcome, Simulator

START_STATES = 1000
"""An episode starts in one of this many states, which `EpisodeSpec.start` returns, chosen at random."""


def observation_space(simulator: Simulator) -> spaces.Box:
    """Return the space of observations: each coordinate may leave the grid by the length of its axis, a periodic one not at all.

    Examples
    --------
    >>> from actiongap.envs.classic import pendulum
    >>> observation_space(pendulum())
    Box([ -3.1415927 -24.       ], [ 3.1415927 24.       ], (2,), float32)
    """
    ranges = np.array(simulator.ranges)
    margin = np.where(_periodic(simulator), 0.0, ranges[:, 1] - ranges[:, 0])
    return spaces.Box((ranges[:, 0] - margin).astype(np.float32), (ranges[:, 1] + margin).astype(np.float32))


def _periodic(simulator: Simulator) -> np.ndarray:
    return np.array([axis.period is not None for axis in simulator.axes(2)])


class _Episodes:
    """The dynamics that both environments share: states are tuples of arrays (environments,)."""

    def __init__(self, simulator: Simulator):
        self.simulator, self.spec = simulator, simulator.episode_spec
        self.noise = episode_noise(simulator.noise)
        self.space = observation_space(simulator)
        self.starts = [np.broadcast_to(np.asarray(number, float), START_STATES) for number in self.spec.start(START_STATES)]
        self._low, self._periodic = np.array(simulator.ranges)[:, 0], _periodic(simulator)
        self._period = np.where(self._periodic, np.diff(simulator.ranges)[:, 0], 1.0)

    def start(self, u: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return initial states, chosen by uniform numbers."""
        chosen = (u * START_STATES).astype(np.int64)
        return tuple(number[chosen] for number in self.starts)

    def step(
        self, state: tuple[np.ndarray, ...], actions: np.ndarray, u: np.ndarray
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
        """Return the next states, the rewards, and whether episodes end."""
        with np.errstate(all="ignore"):
            outcome = self.spec.step(state, actions, self.noise(u))
        if not isinstance(outcome, Outcome):
            raise ValueError(
                f"{self.simulator.name}: its step returns a {type(outcome).__name__}: it must return Outcome(x, reward, ended)"
            )
        *x, reward = (np.broadcast_to(np.asarray(number, float), actions.shape) for number in (*outcome.x, outcome.reward))
        if not all(np.isfinite(number).all() for number in (*x, reward)):
            bad = int(np.argwhere(~np.isfinite([*x, reward]).all(axis=0))[0, 0])
            where = ", ".join(f"{float(number[bad]):.6g}" for number in state)
            action = self.simulator.actions[int(actions[bad])]
            raise ValueError(
                f"{self.simulator.name}: a step returns NaN or infinity after action {action} in the state ({where}): fix its step"
            )
        return tuple(x), reward, np.broadcast_to(np.asarray(outcome.ended, bool), actions.shape)

    def observe(self, state: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return the observations, (environments, coordinates)."""
        x = np.stack(np.broadcast_arrays(*self.spec.observe(state), state[0])[:-1], axis=-1)
        x = np.where(self._periodic, self._low + (x - self._low) % self._period, x)
        return np.clip(x.astype(np.float32), self.space.low, self.space.high)

    def outcome(self, state: tuple[np.ndarray, ...], i: int, terminated: bool) -> str:
        """Name how the episode of an environment ended: as in `Episode.outcome`."""
        if not terminated:
            return "limit"
        x = tuple(np.asarray(number)[..., None] if np.ndim(number) == 0 else number[i : i + 1] for number in self.spec.observe(state))
        return next((name for name, holds in self.spec.outcomes.items() if np.all(holds(x))), "end")


class SimulatorEnv(gymnasium.Env[np.ndarray, Any]):
    """A simulator as an environment.

    Parameters
    ----------
    simulator
        The simulator.
    render_mode
        `rgb_array` or None.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> env = SimulatorEnv(mountain_car())
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step(2)
    >>> env.observation_space.contains(observation), reward, terminated, truncated
    (True, -1.0, False, False)
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 - the base class declares it so

    def __init__(self, simulator: Simulator, render_mode: str | None = None):
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}: choose rgb_array or None")
        self.simulator = simulator
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": round(renderer_of(simulator).steps_per_second)}
        self._episodes = _Episodes(simulator)
        # So that `gymnasium.make(env.spec)` makes the same environment, as checkers and recorders do.
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", simulator.name).strip("-") or "Simulator"
        kwargs = {"simulator": simulator, "render_mode": render_mode}
        self.spec: EnvSpec | None = EnvSpec(f"{name}-v0", entry_point=cast("EnvCreator", SimulatorEnv), kwargs=kwargs)
        self.observation_space: spaces.Space[Any] = self._episodes.space
        self.action_space: spaces.Space[Any] = spaces.Discrete(len(simulator.actions))
        self._state: tuple[np.ndarray, ...] = ()
        self._past: list[tuple[tuple[np.ndarray, ...], int]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._steps, self._past = self._episodes.start(self._uniform()), 0, []
        return self._episodes.observe(self._state)[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self._state:
            raise ValueError(f"{self.simulator.name} has not started: call reset before step")
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is invalid: choose a whole number from 0 to {len(self.simulator.actions) - 1}")
        if self.render_mode is not None:
            self._past.append((self._state, int(action)))
        self._state, reward, ended = self._episodes.step(self._state, np.array([int(action)]), self._uniform())
        self._steps += 1
        terminated = bool(ended[0])
        truncated = not terminated and self._steps >= self._episodes.spec.max_episode_steps
        info = {"outcome": self._episodes.outcome(self._state, 0, terminated)} if terminated or truncated else {}
        return self._episodes.observe(self._state)[0], float(reward[0]), terminated, truncated, info

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            gymnasium.logger.warn('render_mode is None: make the environment with render_mode="rgb_array"')
            return None
        if not self._state:
            raise ValueError(f"{self.simulator.name} has not started: call reset before render")
        if self.simulator.render is not None:
            return fitted(state_image(self.simulator.name, self.simulator.render, tuple(float(number[0]) for number in self._state)))
        states = tuple(np.concatenate(column) for column in zip(*(state for state, _ in self._past), self._state, strict=True))
        actions, shown = np.array([*(action for _, action in self._past), 0]), self._episodes.spec.observe(states)
        coordinates = tuple(np.broadcast_to(number, actions.shape) for number in shown)
        values = np.zeros((len(actions), len(self.simulator.actions)))
        episode = Episode(states, coordinates, actions, values, np.arange(len(actions)), "limit")
        return renderer_of(self.simulator).for_episode(episode)(len(actions) - 1)

    def _uniform(self) -> np.ndarray:
        return np.array([self.np_random.random()])


class SimulatorVectorEnv(BaseVectorEnv):
    """A vector of environments of a simulator, all stepped in one call. After an episode has ended, the next step starts another.

    Parameters
    ----------
    simulator
        The simulator.
    num_envs
        Number of environments.
    render_mode
        Must be None.

    Examples
    --------
    >>> from actiongap.envs.classic import pendulum
    >>> env = SimulatorVectorEnv(pendulum(), 100)
    >>> observations, _ = env.reset(seed=0)
    >>> env.step(np.full(100, 4))[0].shape
    (100, 2)
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - the base class declares it so

    def __init__(self, simulator: Simulator, num_envs: int = 1, render_mode: None = None):
        self.simulator: Simulator = simulator
        self.plural: str = f"environments of {simulator.name}"
        self._episodes = _Episodes(simulator)
        actions = spaces.Discrete(len(simulator.actions))
        super().__init__(num_envs, simulator.episode_spec.max_episode_steps, render_mode, self._episodes.space, actions)
        self._streams = UniformStreams(num_envs)
        self._state: tuple[np.ndarray, ...] = ()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._streams.seed(self.env_seeds(seed))
        self._state = self._episodes.start(self._streams.next())
        self._steps[:] = 0
        self._done[:] = False
        return self._episodes.observe(self._state), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if not self._state:
            raise ValueError(f"the {self.plural} have not started: call reset before step")
        actions = self.check_actions(actions)
        starting, u = self._done, self._streams.next()
        # Steps from terminal states are discarded, so their numbers do not matter: they start from the new state instead.
        state = self._state
        if starting.any():
            initial = self._episodes.start(u)
            state = tuple(np.where(starting, new, old) for new, old in zip(initial, state, strict=True))
        after, reward, ended = self._episodes.step(state, actions, u)
        self._state = tuple(np.where(starting, before, now) for before, now in zip(state, after, strict=True))
        terminated = ended & ~starting
        truncated = self.update_episodes(terminated) & ~terminated
        return (
            self._episodes.observe(self._state),
            np.where(starting, 0.0, reward),
            terminated,
            truncated,
            self._info(terminated, truncated),
        )

    def _info(self, terminated: np.ndarray, truncated: np.ndarray) -> dict[str, Any]:
        """Return how episodes ended, in Gymnasium's form: an array of names, and where it holds."""
        if not (over := terminated | truncated).any():
            return {}
        names = [self._episodes.outcome(self._state, i, bool(terminated[i])) if over[i] else None for i in range(self.num_envs)]
        return {"outcome": np.array(names, object), "_outcome": over}
