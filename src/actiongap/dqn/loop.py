"""One agent on a `FunctionalEnv`: the training iteration and the evaluation, both on the device."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from actiongap.dqn.agent import DQN, Agent
from actiongap.dqn.replay import Transition
from actiongap.envs.functional import FunctionalEnv, FunctionalEnvState, num_uniforms, reset_env, step_env
from actiongap.maths import where

BIAS_MARGIN = 500
"""Number of last steps before `max_episode_steps` whose states are not evaluated, because too few later rewards are observed."""


class EnvState(NamedTuple):
    """The environments of an agent."""

    envs: FunctionalEnvState
    observation: Any
    episode_return: Any
    """Undiscounted return of each running episode so far."""
    return_sum: Any
    """Sum of the returns of episodes that ended since the statistics were reset."""
    episodes: Any
    """Number of these episodes."""


class TrainState(NamedTuple):
    """An agent and its environments."""

    agent: Agent
    env_state: EnvState


def init(dqn: DQN, env: FunctionalEnv, seed: Any, operator: Any) -> TrainState:
    """Return a new agent with new environments."""
    key, reset_key = jax.random.split(jax.random.key(seed))
    env_state = reset(env, reset_key, dqn.config.num_envs)
    return TrainState(dqn.init(key, operator, dummy_transition(env_state.observation)), env_state)


def dummy_transition(observations: Any) -> Transition:
    """Return a step of all environments that is only used for its shapes and dtypes."""
    number = jnp.zeros(len(observations))
    return Transition(observations, number.astype(jnp.int32), number, number, observations, number.astype(bool))


def reset(env: FunctionalEnv, key: Any, num_envs: int) -> EnvState:
    """Reset `num_envs` environments."""
    envs = jax.vmap(lambda u: reset_env(env, u))(jax.random.uniform(key, (num_envs, num_uniforms(env))))
    return EnvState(envs, jax.vmap(env.observe)(envs.state), jnp.zeros(num_envs), jnp.float32(0.0), jnp.int32(0))


def step(dqn: DQN, env: FunctionalEnv, state: TrainState, iteration: Any) -> TrainState:
    """Do one iteration: act, step all environments, add the step to the replay buffer, learn."""
    agent, env_state = state
    config = dqn.config
    act_key, step_key, learn_key = jax.random.split(jax.random.fold_in(agent.key, iteration), 3)
    action = dqn.act(dqn.acting(agent), env_state.observation, dqn.epsilon(iteration), act_key)
    u = jax.random.uniform(step_key, (config.num_envs, num_uniforms(env)))
    envs, result = jax.vmap(lambda one, action, u: step_env(env, one, action, u, config.repeat_action_probability))(
        env_state.envs, action, u
    )
    discount = jnp.where(result.ended, 0.0, config.gamma)
    transition = Transition(env_state.observation, action, result.reward, discount, result.observation, result.ended)
    episode_return = env_state.episode_return + result.reward
    env_state = EnvState(
        envs=envs,
        observation=result.following,
        episode_return=jnp.where(result.ended, 0.0, episode_return),
        return_sum=env_state.return_sum + jnp.where(result.ended, episode_return, 0.0).sum(),
        episodes=env_state.episodes + result.ended.sum(),
    )
    return TrainState(dqn.add_and_learn(agent, transition, iteration, learn_key), env_state)


class Evaluation(NamedTuple):
    """The result of an evaluation: means over episodes, and means over the evaluated states.

    States in the last 500 steps before `max_episode_steps` (`BIAS_MARGIN`) are left out of V, the gap and the bias. On Atari no state is
    left out, and elsewhere the first is always evaluated.
    """

    games: Any
    """Number of episodes."""
    score: Any
    """Undiscounted return per episode."""
    length: Any
    """Steps per episode."""
    value: Any
    """V(x)."""
    action_gap: Any
    """The best minus the second-best Q(x, .)."""
    bias: Any
    """V(x) minus the discounted return that followed."""


class EvaluationSums(NamedTuple):
    """Running sums of an evaluation: arrays (..., num_envs), of any array library.

    The discounted returns of the visited states need not be stored one by one. The reward of step k contributes gamma^(k - t) times itself
    to the return of every state t up to k, so the sum of these weights is enough.
    """

    return_weight: Any
    """Sum of gamma^(k - t) over the evaluated states t of the episode: the weight of the current reward."""
    episodes: Any
    """Number of finished episodes."""
    score: Any
    length: Any
    states: Any
    """Number of evaluated states."""
    value: Any
    gap: Any
    returns: Any
    """Sum of the discounted returns of these states."""

    def with_step(
        self, gamma: float, evaluate: Any, alive: Any, value: Any, gap: Any, reward: Any, over: Any, return_reward: Any = None
    ) -> EvaluationSums:
        """Add a step of all environments. Only those that are `alive` count: their episode belongs to the evaluation.

        `evaluate` is whether the states before the step are evaluated; `value` and `gap` are their V(x) and action gap. If an episode is
        `over`, the next step belongs to another one. `return_reward` is the reward in discounted returns if it differs from the reward in
        scores.
        """
        evaluated = alive & evaluate
        weight = gamma * self.return_weight + where(evaluated, 1.0, 0.0)
        return EvaluationSums(
            return_weight=where(over, 0.0, weight),
            episodes=self.episodes + (alive & over),
            score=self.score + where(alive, reward, 0.0),
            length=self.length + alive,
            states=self.states + evaluated,
            value=self.value + where(evaluated, value, 0.0),
            gap=self.gap + where(evaluated, gap, 0.0),
            returns=self.returns + where(alive, weight * (reward if return_reward is None else return_reward), 0.0),
        )

    def means(self) -> Evaluation:
        """Return the means over the last axis."""
        episodes, states = self.episodes.sum(axis=-1), self.states.sum(axis=-1)
        score, length = (part.sum(axis=-1) / episodes for part in (self.score, self.length))
        value, gap, returns = (part.sum(axis=-1) / states for part in (self.value, self.gap, self.returns))
        return Evaluation(episodes, score, length, value, gap, value - returns)


class _EvalState(NamedTuple):
    step: Any
    envs: FunctionalEnvState
    observation: Any
    alive: Any
    sums: EvaluationSums


def evaluate(dqn: DQN, env: FunctionalEnv, parameters: Any, key: Any, episodes: int, max_episode_steps: int, epsilon: float) -> Evaluation:
    """Play one episode in each of `episodes` new environments, and return the means. Longer episodes are truncated."""
    config, (reset_key, step_key) = dqn.config, jax.random.split(key)
    env_state, evaluated_steps = reset(env, reset_key, episodes), max(max_episode_steps - BIAS_MARGIN, 1)

    def step(state: _EvalState) -> _EvalState:
        act_key, env_key = jax.random.split(jax.random.fold_in(step_key, state.step))
        action, value, gap = dqn.act_and_evaluate(parameters, state.observation, epsilon, act_key)
        u = jax.random.uniform(env_key, (episodes, num_uniforms(env)))
        envs, result = jax.vmap(lambda one, action, u: step_env(env, one, action, u, config.repeat_action_probability))(
            state.envs, action, u
        )
        over = result.ended | (state.step + 1 == max_episode_steps)
        sums = state.sums.with_step(config.gamma, state.step < evaluated_steps, state.alive, value, gap, result.reward, over)
        return _EvalState(state.step + 1, envs, result.following, state.alive & ~result.ended, sums)

    sums = EvaluationSums(*[jnp.zeros(episodes)] * 8)
    first = _EvalState(jnp.int32(0), env_state.envs, env_state.observation, jnp.ones(episodes, bool), sums)
    last = jax.lax.while_loop(lambda state: state.alive.any() & (state.step < max_episode_steps), step, first)
    return last.sums.means()
