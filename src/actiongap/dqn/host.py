"""A population whose environments are Gymnasium environments on the host.

The agents are those of `population`: acting and learning are compiled, for all agents at once. Meanwhile, the environments step one after
the other in Python. The state of an environment cannot be saved. A checkpoint holds the agents with their replay buffers, and a resumed run
starts new episodes, with seeds derived from the agent's key and the iteration. A resumed run is therefore statistically equivalent to an
uninterrupted one, but not equal bit for bit. `GymEnvState.starts` counts starts; restarts are starts minus 1.

A truncated episode has not terminated: its last transition keeps its discount, and its next observation is the final one of the episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from actiongap.dqn.agent import Agent
from actiongap.dqn.config import Config
from actiongap.dqn.loop import BIAS_MARGIN, Evaluation, EvaluationSums, dummy_transition
from actiongap.dqn.population import EVALUATION_STREAM, Population
from actiongap.dqn.replay import Transition
from actiongap.envs.gym import GymEnv, GymVectorEnv
from actiongap.operators import AnyOperator

RESET_STREAM = EVALUATION_STREAM - 1
"""Folded into an agent's key for the seeds of training environments. No iteration has this number."""


class GymEnvState(NamedTuple):
    """The environments of all agents. The statistics have one entry per agent."""

    running: tuple[GymVectorEnv, np.ndarray] | None
    """The environments, (agents x num_envs), and the returns of their running episodes; None before they are started."""
    return_sum: Any
    """Sum of the returns of episodes that ended since the statistics were reset."""
    episodes: Any
    """Number of these episodes."""
    starts: Any
    """Number of times the environments were started: once, and once more after every interruption."""


class GymTrainState(NamedTuple):
    """Agents and their environments."""

    agent: Agent
    env_state: GymEnvState


class HostPopulation(Population):
    """Agents with the same configuration on one Gymnasium environment.

    `repeat_action_probability`, `clip_rewards` and `terminal_on_life_loss` are ignored.

    Examples
    --------
    >>> from actiongap.envs.gym import gym_env
    >>> config = Config(num_envs=2, batch_size=4, buffer_size=40, learning_starts=8)
    >>> population = HostPopulation(gym_env("CartPole-v1"), config, ["bellman", "al:0.5"])
    >>> state = population.train(population.start([0, 0]), 0, 10)
    >>> population.evaluate(state, 0, episodes=2, max_episode_steps=20, epsilon=0.0).score.shape
    (2,)
    """

    def __init__(self, env: GymEnv, config: Config, operators: Sequence[AnyOperator], exact: bool = False):
        spec: Any = env
        super().__init__(spec, config, operators, exact)
        self.gym_env = env
        self._init_agents = jax.jit(self._map_agents(self._init_one))
        self._seeds = jax.jit(self._seeds_of_agents, static_argnums=1)
        self._act = jax.jit(self._act_agents)
        self._add_and_learn = jax.jit(self._add_and_learn_agents, donate_argnums=0)
        self._act_and_evaluate = jax.jit(self._act_and_evaluate_agents)
        self._q_values = jax.jit(self._map_agents(self.dqn.q_values))

    def get(self, state: Any) -> list[dict[str, np.ndarray]]:
        """Return the state of each agent, or a part of it, as arrays by name, without the environments."""
        if isinstance(state, GymTrainState):
            state = state._replace(env_state=state.env_state._replace(running=None))
        return super().get(state)

    def restarts(self, state: Any) -> np.ndarray:
        """Return how often each agent's environments were reset because they could not be saved."""
        return np.asarray(state.env_state.starts) - 1

    def train(self, state: Any, iteration: int, iterations: int) -> Any:
        """Train for `iterations` more iterations; `iteration` is the number of the first. The state passed in is donated."""
        agent, (running, return_sum, episodes, starts) = state
        if running is None:
            running, starts = self._start_envs(agent.key, iteration), starts + 1
        envs, episode_return = running
        return_sum, episodes = np.array(return_sum), np.array(episodes)
        for now in range(iteration, iteration + iterations):
            observation = self._by_agent(envs.observation)
            action = self._act(agent.key, self.dqn.acting(agent), observation, np.int32(now))
            result = envs.step(np.asarray(action).reshape(-1))
            over = result.terminated | result.truncated
            discount = np.where(result.terminated, 0.0, self.dqn.config.gamma).astype(np.float32)
            outcome = (result.reward, discount, result.observation, over)
            step = Transition(observation, action, *(self._by_agent(part) for part in outcome))
            agent = self._add_and_learn(agent, step, np.int32(now))
            episode_return += result.reward
            if over.any():
                return_sum += self._by_agent(np.where(over, episode_return, 0.0)).sum(axis=1, dtype=np.float32)
                episodes += self._by_agent(over).sum(axis=1, dtype=np.int32)
                episode_return[over] = 0.0
        return GymTrainState(agent, GymEnvState(running, return_sum, episodes, starts))

    def evaluate(self, state: Any, iteration: int, episodes: int, max_episode_steps: int, epsilon: float) -> Evaluation:
        """Evaluate all agents. Random numbers depend on the agent's key and on the iteration.

        If an environment truncates an episode, the return that follows is estimated by V of the last state.
        """
        gamma, (key, online) = self.dqn.config.gamma, (state.agent.key, state.agent.learner.online)
        evaluated_steps, sums = max(max_episode_steps - BIAS_MARGIN, 1), EvaluationSums(*np.zeros((8, self.size, episodes)))
        alive = np.ones((self.size, episodes), bool)
        seeds = self._seeds(key, episodes, np.array([EVALUATION_STREAM, iteration], np.uint32)).reshape(-1)
        with closing(GymVectorEnv(self.gym_env, seeds)) as envs:
            for now in range(max_episode_steps):
                observation = self._by_agent(envs.observation)
                found = self._act_and_evaluate(key, online, observation, np.int32(iteration), np.int32(now), epsilon)
                action, value, gap = map(np.asarray, found)
                result = envs.step(action.reshape(-1))
                reward, terminated, truncated = (self._by_agent(part) for part in result[:3])
                return_reward, over = reward, terminated | truncated
                if (alive & truncated).any():
                    last_value = np.asarray(self._q_values(online, self._by_agent(result.observation))).max(axis=-1)
                    return_reward = reward + np.where(truncated, gamma * last_value, 0.0)
                truncate = now + 1 == max_episode_steps
                sums = sums.with_step(gamma, now < evaluated_steps, alive, value, gap, reward, over | truncate, return_reward)
                alive &= ~over
                if not alive.any():
                    break
        return sums.means()

    def _start_envs(self, key: Any, iteration: int) -> tuple[GymVectorEnv, np.ndarray]:
        seeds = self._seeds(key, self.dqn.config.num_envs, np.array([RESET_STREAM, iteration], np.uint32)).reshape(-1)
        return GymVectorEnv(self.gym_env, seeds), np.zeros(len(seeds))

    def _init_one(self, seed: Any, operator: Any) -> GymTrainState:
        key, _ = jax.random.split(jax.random.key(seed))
        observations = jnp.zeros((self.dqn.config.num_envs, *self.gym_env.shape), self.gym_env.dtype)
        agent = self.dqn.init(key, operator, dummy_transition(observations))
        return GymTrainState(agent, GymEnvState(None, jnp.float32(0.0), jnp.int32(0), jnp.int32(0)))

    def _seeds_of_agents(self, keys: Any, count: int, purpose: Any) -> Any:
        return self._map_agents(lambda key: env_seeds(key, count, purpose))(keys)

    def _act_agents(self, keys: Any, online: Any, observations: Any, iteration: Any) -> Any:
        def one(key: Any, online: Any, observations: Any) -> Any:
            act_key, _, _ = jax.random.split(jax.random.fold_in(key, iteration), 3)
            return self.dqn.act(online, observations, self.dqn.epsilon(iteration), act_key)

        return self._map_agents(one)(keys, online, observations)

    def _add_and_learn_agents(self, agents: Agent, steps: Transition, iteration: Any) -> Agent:
        def one(agent: Agent, step: Transition) -> Agent:
            _, _, learn_key = jax.random.split(jax.random.fold_in(agent.key, iteration), 3)
            return self.dqn.add_and_learn(agent, step, iteration, learn_key)

        return self._map_agents(one)(agents, steps)

    def _act_and_evaluate_agents(
        self, keys: Any, online: Any, observations: Any, iteration: Any, now: Any, epsilon: Any
    ) -> tuple[Any, Any, Any]:
        """Return the actions of an evaluation step, and the value and the action gap of each state."""

        def one(key: Any, online: Any, observations: Any) -> tuple[Any, Any, Any]:
            act_key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, EVALUATION_STREAM), iteration), now)
            return self.dqn.act_and_evaluate(online, observations, epsilon, act_key)

        return self._map_agents(one)(keys, online, observations)


def env_seeds(key: Any, count: int, purpose: Any) -> Any:
    """Return 31-bit seeds of `count` environments, from an agent's key and two numbers. Not all environments accept more bits."""
    return jax.random.bits(jax.random.fold_in(jax.random.fold_in(key, purpose[0]), purpose[1]), (count,)) >> 1
