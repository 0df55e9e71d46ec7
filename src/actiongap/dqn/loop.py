"""An agent and its games, round after round, and how well it plays: all on the device."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from actiongap.dqn.agent import DQN, Agent
from actiongap.dqn.replay import Transition
from actiongap.envs.functional import FunctionalEnv, FunctionalEnvState, num_uniforms, reset_env, step_env
from actiongap.maths import where

TAIL = 500
"""Steps before the limit of an evaluation whose states are not asked for their bias: too little of what follows them is seen."""


class EnvState(NamedTuple):
    """The games that an agent plays."""

    play: FunctionalEnvState
    observation: Any
    total: Any
    """The rewards of each game so far."""
    finished: Any
    """The sum of the totals of all games that ended since somebody asked."""
    episodes: Any
    """How many ended since."""


class TrainState(NamedTuple):
    """An agent in its world."""

    agent: Agent
    world: EnvState


def init(dqn: DQN, game: FunctionalEnv, seed: Any, operator: Any) -> TrainState:
    """A new agent with new games."""
    key, place = jax.random.split(jax.random.key(seed))
    world = reset(game, place, dqn.config.num_envs)
    return TrainState(dqn.begin(key, operator, dummy_transition(world.observation)), world)


def dummy_transition(observations: Any) -> Transition:
    """A step of all environments that shows what one looks like."""
    number = jnp.zeros(len(observations))
    return Transition(observations, number.astype(jnp.int32), number, number, observations, number.astype(bool))


def reset(game: FunctionalEnv, key: Any, count: int) -> EnvState:
    """So many new games."""
    play = jax.vmap(lambda u: reset_env(game, u))(jax.random.uniform(key, (count, num_uniforms(game))))
    return EnvState(play, jax.vmap(game.observe)(play.state), jnp.zeros(count), jnp.float32(0.0), jnp.int32(0))


def step(dqn: DQN, game: FunctionalEnv, life: TrainState, iteration: Any) -> TrainState:
    """One round: a step of all games, and what is learned from it."""
    agent, world = life
    config = dqn.config
    choosing, moving, learning = jax.random.split(jax.random.fold_in(agent.key, iteration), 3)
    action = dqn.choose(agent.learner.online, world.observation, dqn.epsilon(iteration), choosing)
    u = jax.random.uniform(moving, (config.num_envs, num_uniforms(game)))
    play, seen = jax.vmap(lambda play, action, u: step_env(game, play, action, u, config.repeat_action_probability))(world.play, action, u)
    discount = jnp.where(seen.ended, 0.0, config.gamma)
    step = Transition(world.observation, action, seen.reward, discount, seen.observation, seen.ended)
    total = world.total + seen.reward
    finished, episodes = world.finished + jnp.where(seen.ended, total, 0.0).sum(), world.episodes + seen.ended.sum()
    world = EnvState(play, seen.following, jnp.where(seen.ended, 0.0, total), finished, episodes)
    return TrainState(dqn.absorb(agent, step, iteration, learning), world)


class Score(NamedTuple):
    """How an agent plays, mean over episodes, and what it thinks on the way, mean over the states that it meets."""

    games: Any
    """How many episodes it played."""
    score: Any
    """The rewards of an episode."""
    length: Any
    """Its steps."""
    value: Any
    """V(x)."""
    action_gap: Any
    """The best less the second-best Q(x, .)."""
    bias: Any
    """V(x) less the discounted rewards that followed."""


class Tally(NamedTuple):
    """What is counted in an evaluation: arrays (..., environments), of any library.

    The discounted returns of all states on the way need not be kept one by one. A reward at step k counts gamma^(k - t) in the return of
    every state t up to k, so it is enough to know the sum of these.
    """

    reach: Any
    """How much a reward counts now in the returns of all states that are asked so far: the sum of gamma^(k - t) over them."""
    games: Any
    """How many episodes were played."""
    score: Any
    length: Any
    states: Any
    """How many were asked what they are worth."""
    value: Any
    gap: Any
    later: Any
    """The returns of these states, summed."""

    def with_step(self, gamma: float, asking: Any, alive: Any, best: Any, reward: Any, over: Any, counted: Any = None) -> Tally:
        """One more step of all environments that are alive.

        Their states are asked or not; `best` are the two best values of each. Where an episode is `over` the next step is another's, if
        there is one. In returns a reward may count otherwise than in scores: as `counted`.
        """
        asked, reach = alive & asking, gamma * self.reach + where(alive & asking, 1.0, 0.0)
        return Tally(
            reach=where(over, 0.0, reach),
            games=self.games + (alive & over),
            score=self.score + where(alive, reward, 0.0),
            length=self.length + alive,
            states=self.states + asked,
            value=self.value + where(asked, best[..., 0], 0.0),
            gap=self.gap + where(asked, best[..., 0] - best[..., 1], 0.0),
            later=self.later + where(alive, reach * (reward if counted is None else counted), 0.0),
        )

    def means(self) -> Score:
        """What it comes to, over the last axis."""
        games, states = self.games.sum(axis=-1), self.states.sum(axis=-1)
        score, length = (part.sum(axis=-1) / games for part in (self.score, self.length))
        value, gap, later = (part.sum(axis=-1) / states for part in (self.value, self.gap, self.later))
        return Score(games, score, length, value, gap, value - later)


class _Trial(NamedTuple):
    step: Any
    play: FunctionalEnvState
    observation: Any
    alive: Any
    tally: Tally


def evaluate(dqn: DQN, game: FunctionalEnv, parameters: Any, key: Any, episodes: int, limit: int, epsilon: float) -> Score:
    """One episode in each of so many new games, until it ends or the limit is reached."""
    config, (entering, acting) = dqn.config, jax.random.split(key)
    world, counted = reset(game, entering, episodes), max(limit - TAIL, 1)

    def step(now: _Trial) -> _Trial:
        choosing, moving = jax.random.split(jax.random.fold_in(acting, now.step))
        best = jax.lax.top_k(dqn.values(parameters, now.observation), 2)[0]
        action = dqn.choose(parameters, now.observation, epsilon, choosing)
        u = jax.random.uniform(moving, (episodes, num_uniforms(game)))
        play, seen = jax.vmap(lambda play, action, u: step_env(game, play, action, u, config.repeat_action_probability))(
            now.play, action, u
        )
        over = seen.ended | (now.step + 1 == limit)
        tally = now.tally.with_step(config.gamma, now.step < counted, now.alive, best, seen.reward, over)
        return _Trial(now.step + 1, play, seen.following, now.alive & ~seen.ended, tally)

    tally = Tally(*[jnp.zeros(episodes)] * 8)
    first = _Trial(jnp.int32(0), world.play, world.observation, jnp.ones(episodes, bool), tally)
    return jax.lax.while_loop(lambda now: now.alive.any() & (now.step < limit), step, first).tally.means()
