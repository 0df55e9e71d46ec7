"""A population whose environments are Gymnasium environments on the host.

The agents are those of `population`: acting and learning are compiled, for all agents at once. In between, the environments step one
after the other in Python. The state of an environment cannot be saved. A checkpoint holds the agents with their replay buffers, and a
resumed run starts new episodes, with seeds derived from the agent's key and the iteration. An interrupted run therefore continues as well
as any other, but not bit for bit. `GymEnvState.begun` counts these restarts.

A truncated episode has not terminated: its last transition keeps its discount, and its next observation is the last one seen.
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
from actiongap.dqn.loop import TAIL, Score, Tally, dummy_transition
from actiongap.dqn.population import TRIALS, Population
from actiongap.dqn.replay import Transition
from actiongap.envs.gym import GymEnv, GymVectorEnv
from actiongap.operators import AnyOperator

BEGINNINGS = TRIALS - 1
"""What beginnings of games fold into an agent's key, which no iteration reaches either."""


class GymEnvState(NamedTuple):
    """The games of all agents."""

    playing: tuple[GymVectorEnv, np.ndarray] | None
    """The environments, (agents x environments), and the rewards of each so far; None where they are yet to begin."""
    finished: Any
    """The sum of the rewards of all episodes that were over since somebody asked, of each agent."""
    episodes: Any
    """How many were over since."""
    begun: Any
    """How often the games were begun: more than once if they had to be anew because they could not be saved."""


class GymTrainState(NamedTuple):
    """Agents with their games."""

    agent: Agent
    world: GymEnvState


class HostPopulation(Population):
    """Agents that play one Gymnasium environment with the same settings, of which `sticky` is left to the environment.

    Examples
    --------
    >>> from actiongap.envs.gym import gym_env
    >>> few = Config(num_envs=2, batch_size=4, buffer_size=40, learning_starts=8)
    >>> people = HostPopulation(gym_env("CartPole-v1"), few, ["bellman", "al:0.5"])
    >>> guests = people.train(people.start([0, 0]), 0, 10)
    >>> people.evaluate(guests, 0, episodes=2, limit=20, epsilon=0.0).score.shape
    (2,)
    """

    def __init__(self, game: GymEnv, config: Config, operators: Sequence[AnyOperator], exact: bool = False):
        board: Any = game
        super().__init__(board, config, operators, exact)
        self.host = game
        self._born = jax.jit(self._each(self._init))
        self._seeds = jax.jit(self._drawn, static_argnums=1)
        self._choose = jax.jit(self._chosen)
        self._absorb = jax.jit(self._absorbed, donate_argnums=0)
        self._consider = jax.jit(self._considered)
        self._values = jax.jit(self._each(self.dqn.values))

    def get(self, lives: Any) -> list[dict[str, np.ndarray]]:
        """Every agent, or a part of it, as a dictionary of arrays, without the games."""
        return super().get(lives._replace(world=lives.world._replace(playing=None)) if isinstance(lives, GymTrainState) else lives)

    def restarts(self, lives: Any) -> np.ndarray:
        """How often the games of each agent had to begin anew because they could not be saved."""
        return np.asarray(lives.world.begun) - 1

    def train(self, lives: Any, iteration: int, iterations: int) -> Any:
        """So many more iterations, after as many as the iteration says. What is handed in is used up."""
        agent, (games, finished, episodes, begun) = lives
        if games is None:
            games, begun = self._enter(agent.key, iteration), begun + 1
        playing, total = games
        finished, episodes = np.array(finished), np.array(episodes)
        for now in range(iteration, iteration + iterations):
            observation = self._by_agent(playing.observation)
            action = self._choose(agent.key, agent.learner.online, observation, np.int32(now))
            moved = playing.step(np.asarray(action).reshape(-1))
            over = moved.terminated | moved.truncated
            discount = np.where(moved.terminated, 0.0, self.dqn.config.gamma).astype(np.float32)
            happened = (moved.reward, discount, moved.observation, over)
            step = Transition(observation, action, *(self._by_agent(part) for part in happened))
            agent = self._absorb(agent, step, np.int32(now))
            total += moved.reward
            if over.any():
                finished += self._by_agent(np.where(over, total, 0.0)).sum(axis=1, dtype=np.float32)
                episodes += self._by_agent(over).sum(axis=1, dtype=np.int32)
                total[over] = 0.0
        return GymTrainState(agent, GymEnvState(games, finished, episodes, begun))

    def evaluate(self, lives: Any, iteration: int, episodes: int, limit: int, epsilon: float) -> Score:
        """How all agents play, with luck that depends on their seeds and the iteration.

        Where an environment cuts an episode short, what the agent thinks of the state it stopped in stands for the rewards to come.
        """
        gamma, (key, online) = self.dqn.config.gamma, (lives.agent.key, lives.agent.learner.online)
        asked, tally = max(limit - TAIL, 1), Tally(*np.zeros((8, self.size, episodes)))
        alive = np.ones((self.size, episodes), bool)
        with closing(GymVectorEnv(self.host, self._seeds(key, episodes, np.array([TRIALS, iteration], np.uint32)).reshape(-1))) as playing:
            for now in range(limit):
                observation = self._by_agent(playing.observation)
                action, best = map(np.asarray, self._consider(key, online, observation, np.int32(iteration), np.int32(now), epsilon))
                moved = playing.step(action.reshape(-1))
                reward, terminated, truncated = (self._by_agent(part) for part in moved[:3])
                counted, over = reward, terminated | truncated
                if (alive & truncated).any():
                    after = np.asarray(self._values(online, self._by_agent(moved.observation))).max(axis=-1)
                    counted = reward + np.where(truncated, gamma * after, 0.0)
                tally = tally.with_step(gamma, now < asked, alive, best, reward, over | (now + 1 == limit), counted)
                alive &= ~over
                if not alive.any():
                    break
        return tally.means()

    def _init(self, seed: Any, which: Any) -> GymTrainState:
        key, _ = jax.random.split(jax.random.key(seed))
        nothing = jnp.zeros((self.dqn.config.num_envs, *self.host.shape), self.host.dtype)
        return GymTrainState(
            self.dqn.begin(key, which, dummy_transition(nothing)), GymEnvState(None, jnp.float32(0.0), jnp.int32(0), jnp.int32(0))
        )

    def _enter(self, key: Any, iteration: int) -> tuple[GymVectorEnv, np.ndarray]:
        seeds = self._seeds(key, self.dqn.config.num_envs, np.array([BEGINNINGS, iteration], np.uint32)).reshape(-1)
        return GymVectorEnv(self.host, seeds), np.zeros(len(seeds))

    def _drawn(self, keys: Any, count: int, purpose: Any) -> Any:
        return self._each(lambda key: drawn_seeds(key, count, purpose))(keys)

    def _chosen(self, keys: Any, online: Any, observations: Any, iteration: Any) -> Any:
        def one(key: Any, online: Any, observations: Any) -> Any:
            choosing, _, _ = jax.random.split(jax.random.fold_in(key, iteration), 3)
            return self.dqn.choose(online, observations, self.dqn.epsilon(iteration), choosing)

        return self._each(one)(keys, online, observations)

    def _absorbed(self, agents: Agent, steps: Transition, iteration: Any) -> Agent:
        def one(agent: Agent, step: Transition) -> Agent:
            _, _, learning = jax.random.split(jax.random.fold_in(agent.key, iteration), 3)
            return self.dqn.absorb(agent, step, iteration, learning)

        return self._each(one)(agents, steps)

    def _considered(self, keys: Any, online: Any, observations: Any, iteration: Any, now: Any, epsilon: Any) -> tuple[Any, Any]:
        """The actions of a step of an evaluation, and the best two values that were thought of."""

        def one(key: Any, online: Any, observations: Any) -> tuple[Any, Any]:
            acting = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, TRIALS), iteration), now)
            best = jax.lax.top_k(self.dqn.values(online, observations), 2)[0]
            # Values are looked up again where an action is chosen: a compiler sees that they are the same.
            return self.dqn.choose(online, observations, epsilon, acting), best

        return self._each(one)(keys, online, observations)


def drawn_seeds(key: Any, count: int, purpose: Any) -> Any:
    """Seeds of so many environments for an agent, from its key and two numbers. Not all environments take one of more than 31 bits."""
    return jax.random.bits(jax.random.fold_in(jax.random.fold_in(key, purpose[0]), purpose[1]), (count,)) >> 1
