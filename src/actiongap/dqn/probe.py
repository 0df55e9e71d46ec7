"""Probes: the Q-values of several agents in the same states, along a recorded game or on a fixed set.

The paper shows V(x) and the action gap of agents along one trajectory of a Bellman agent, smoothed. Agents trained with other operators
have similar values and larger gaps.

Observations are recorded as in an evaluation: on Atari they are frame stacks, which continue after a lost life.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from actiongap.dqn.agent import DQN
from actiongap.dqn.frame_replay import push_frame
from actiongap.envs.atari import AtariGame, Emulators
from actiongap.envs.functional import FunctionalEnv, num_uniforms, reset_env, step_env
from actiongap.envs.gym import GymEnv, GymVectorEnv
from actiongap.maths import top_two

BATCH_SIZE = 256
"""Observations per call of the network. Each Atari observation takes half a megabyte inside the network."""


class Probe(NamedTuple):
    """Values and action gaps of agents in the same states: arrays (agents, states)."""

    value: np.ndarray
    """V(x)."""
    gap: np.ndarray
    """The best minus the second-best Q(x, .)."""


def record(dqn: DQN, env: FunctionalEnv | GymEnv | AtariGame, parameters: Any, seed: int, steps: int, epsilon: float = 0.01) -> np.ndarray:
    """Play `steps` steps and return the observations, (steps, *shape), of one or more games; on Atari of at most one.

    Examples
    --------
    >>> from actiongap.envs.minatar import GAMES
    >>> from actiongap.dqn.config import Config
    >>> from actiongap.operators import parse
    >>> dqn = DQN(Config(), [parse("bellman")], (10, 10, 4), 3)
    >>> record(dqn, GAMES["breakout"], dqn.network.init(jax.random.key(0)), seed=0, steps=5).shape
    (5, 10, 10, 4)
    """
    if isinstance(env, AtariGame):
        return _record_atari(dqn, env, parameters, seed, steps, epsilon)
    if isinstance(env, GymEnv):
        return _record_gym(dqn, env, parameters, seed, steps, epsilon)
    reset_key, step_key = jax.random.split(jax.random.key(seed))

    def step(carry: tuple[Any, ...], number: Any) -> tuple[tuple[Any, ...], Any]:
        state, observation = carry
        act_key, env_key = jax.random.split(jax.random.fold_in(step_key, number))
        action = dqn.act(parameters, observation[None], epsilon, act_key)[0]
        u = jax.random.uniform(env_key, (num_uniforms(env),))
        state, result = step_env(env, state, action, u, dqn.config.repeat_action_probability)
        return (state, result.following), observation

    state = reset_env(env, jax.random.uniform(reset_key, (num_uniforms(env),)))
    _, observations = jax.jit(lambda: jax.lax.scan(step, (state, env.observe(state.state)), jnp.arange(steps)))()
    return np.asarray(observations)


def _record_gym(dqn: DQN, env: GymEnv, parameters: Any, seed: int, steps: int, epsilon: float) -> np.ndarray:
    key, observations = jax.random.key(seed), []

    @jax.jit
    def act(parameters: Any, observation: Any, number: Any) -> Any:
        return dqn.act(parameters, observation, epsilon, jax.random.fold_in(key, number))

    with closing(GymVectorEnv(env, [seed])) as envs:
        for number in range(steps):
            observations.append(envs.observation[0])
            envs.step(np.asarray(act(parameters, envs.observation, np.int32(number))))
    return np.stack(observations)


def _record_atari(dqn: DQN, game: AtariGame, parameters: Any, seed: int, steps: int, epsilon: float) -> np.ndarray:
    key, observations = jax.random.key(seed), []

    @jax.jit
    def act(parameters: Any, stack: Any, frame: Any, first: Any, number: Any) -> tuple[Any, Any]:
        stack = push_frame(stack, frame, first)
        return stack, dqn.act(parameters, stack, epsilon, jax.random.fold_in(key, number))

    with Emulators([game.name], dqn.config.repeat_action_probability, 1) as emulators:
        result, stack = emulators.reset([seed]), np.zeros((1, *dqn.shape), np.uint8)
        for number in range(steps):
            stack, action = act(parameters, stack, result.frame, result.first, np.int32(number))
            observations.append(np.asarray(stack)[0])
            emulators.send(np.asarray(action))
            result = emulators.receive()
            if result.terminated[0] or result.truncated[0]:
                break
    return np.stack(observations)


def probe(dqn: DQN, agents: Sequence[Any], observations: np.ndarray) -> Probe:
    """Evaluate agents, given by their parameters, on observations (states, *shape).

    Examples
    --------
    >>> from actiongap.dqn.config import Config
    >>> from actiongap.operators import parse
    >>> dqn = DQN(Config(), [parse("bellman")], (4,), 3)
    >>> agents = [dqn.network.init(jax.random.key(seed)) for seed in range(2)]
    >>> probe(dqn, agents, np.zeros((5, 4), np.float32)).gap.shape
    (2, 5)
    """
    if observations.shape[1:] != dqn.shape:
        raise ValueError(
            f"observations have shape {list(observations.shape[1:])} and these agents need {list(dqn.shape)}: record a game of one of them"
        )
    evaluate = jax.jit(lambda parameters, batch: jnp.stack(top_two(dqn.q_values(parameters, batch)), axis=-1))
    size = min(len(observations), BATCH_SIZE)
    best = np.stack([in_batches(partial(evaluate, parameters), observations, size) for parameters in agents])
    return Probe(best[..., 0], best[..., 0] - best[..., 1])


def in_batches(function: Callable[[np.ndarray], Any], observations: np.ndarray, size: int) -> np.ndarray:
    """Apply a compiled function to observations, `size` at a time, and return its rows.

    All batches have the same size, so one compiled program serves them: the last observation fills up the last batch.

    Examples
    --------
    >>> in_batches(lambda batch: batch + len(batch), np.arange(5), size=2).tolist()
    [2, 3, 4, 5, 6]
    """
    count = len(observations)
    batches = [np.minimum(np.arange(start, start + size), count - 1) for start in range(0, count, size)]
    return np.concatenate([function(observations[batch]) for batch in batches])[:count]


def smoothed(rows: np.ndarray, window: int) -> np.ndarray:
    """Return the running mean over the last `window` numbers of each row, or over all numbers so far at the beginning.

    Examples
    --------
    >>> smoothed(np.array([[1.0, 3.0, 5.0]]), window=2).tolist()
    [[1.0, 2.0, 4.0]]
    """
    sums = np.concatenate([np.zeros((*rows.shape[:-1], 1)), np.cumsum(rows, axis=-1, dtype=np.float64)], axis=-1)
    end = np.arange(1, rows.shape[-1] + 1)
    first = np.maximum(end - window, 0)
    return (sums[..., end] - sums[..., first]) / (end - first)
