"""Agents that learn from the data of another learner: one replay buffer, the same batches, and different operators."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from actiongap.dqn.atari import AtariPopulation
from actiongap.dqn.config import Config
from actiongap.dqn.host import HostPopulation
from actiongap.dqn.population import Population
from actiongap.envs.gym import gym_env
from actiongap.envs.minatar import GAMES
from actiongap.lab.kinds.train import Training

CONFIG = Config(num_envs=2, batch_size=8, buffer_size=80, learning_starts=8, target_update_interval=8, behavior="bellman", optimizer="adam")
ITERATIONS = 24


def trained(make, env, config, operators=("bellman", "al:0.9")):
    population = make(env, config, list(operators))
    return population.get(population.train(population.start([3] * len(operators)), 0, ITERATIONS))


def part(state, name):
    return {key: value for key, value in state.items() if key.startswith(name)}


def renamed(state, old, new):
    return {key.replace(old, new): value for key, value in part(state, old).items()}


def assert_close(one, other):
    assert one.keys() == other.keys() != set()
    for key, value in one.items():
        np.testing.assert_allclose(value, other[key], atol=1e-5, err_msg=key)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("make", "env", "config"),
    [
        (Population, GAMES["breakout"], CONFIG),
        (Population, GAMES["breakout"], replace(CONFIG, priority_exponent=0.6, double=True)),
        (HostPopulation, gym_env("CartPole-v1"), CONFIG),
    ],
    ids=["minatar", "prioritized double", "gym"],
)
def test_agents_learn_from_the_data_of_bellman(make, env, config):
    first, second = trained(make, env, config)
    own = trained(make, env, replace(config, behavior="own"))
    # One stream of data, which is that of Bellman on its own.
    for data in (".agent.replay", ".env_state"):
        assert_close(part(second, data), part(first, data))
        assert_close(part(own[0], data), part(first, data))
    # Bellman that follows a Bellman learner is that learner.
    assert_close(renamed(first, ".agent.leader", ".agent.learner"), part(first, ".agent.learner"))
    assert_close(part(own[0], ".agent.learner"), part(first, ".agent.learner"))
    assert_close(part(second, ".agent.leader"), part(first, ".agent.leader"))
    # The other learns with its own operator.
    mine, theirs = (part(state, ".agent.learner.online") for state in (second, first))
    assert max(np.abs(mine[key] - theirs[key]).max() for key in mine) > 1e-4
    assert not part(own[0], ".agent.leader")


def test_an_interrupted_population_continues():
    population = Population(GAMES["breakout"], CONFIG, ["bellman", "al:0.9"])
    whole = population.get(population.train(population.start([0, 0]), 0, ITERATIONS))
    half = population.get(population.train(population.start([0, 0]), 0, ITERATIONS // 2))
    resumed = population.get(population.train(population.put(half), ITERATIONS // 2, ITERATIONS // 2))
    for one, other in zip(whole, resumed, strict=True):
        assert all(np.array_equal(one[key], other[key]) for key in one)
    jax.clear_caches()


def test_atari_refuses_in_a_sentence():
    with pytest.raises(ValueError, match="behavior is 'bellman': on Atari every agent chooses its own actions"):
        AtariPopulation(["pong"], replace(CONFIG, frame_stack=4), ["bellman"])
    with pytest.raises(ValueError, match="behavior is 'bellman': on Atari every agent chooses its own actions"):
        Training(env="atari/pong", behavior="bellman")
    with pytest.raises(ValueError, match="behavior is 'belman': did you mean bellman"):
        Training(behavior="belman")
