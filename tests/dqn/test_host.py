"""Deep agents on Gymnasium environments: observations, replay buffers, learning, evaluation, and resuming."""

import json
import os
import signal
from functools import cache
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from actiongap.dqn.config import Config
from actiongap.dqn.host import HostPopulation
from actiongap.dqn.packing import unpack
from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.gym import GymEnv, GymVectorEnv, gym_env
from actiongap.envs.registry import load_environment
from actiongap.lab.executors import run_inline
from actiongap.lab.kinds.train import Training, TrainingBatch
from actiongap.lab.runner import Event
from actiongap.lab.study import Study

CONFIG = Config(
    gamma=0.5,
    num_envs=3,
    batch_size=4,
    buffer_size=60,
    learning_starts=12,
    target_update_interval=6,
    final_epsilon=1.0,
    exploration_steps=0,
)


class CountEnv(gymnasium.Env[Any, Any]):
    """Counts three steps from 10 times a random number per episode, which then terminates, is truncated, or both."""

    def __init__(self):
        self.observation_space = spaces.Box(0, 1e4, (1,), np.float64)
        self.action_space = spaces.Discrete(2, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._first, self._now = int(self.np_random.integers(1, 1000)), 0
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._now += 1
        over = self._now == 3
        return self._observation(), float(action), over and self._first % 3 != 0, over and self._first % 3 != 1, {}

    def _observation(self):
        return np.array([10.0 * self._first + self._now])


class ConstantEnv(gymnasium.Env[Any, Any]):
    """Always the same observation, reward 1 per step, truncated after five steps."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._now = 0
        return np.ones(1, np.float32), {}

    def step(self, action):
        self._now += 1
        return np.ones(1, np.float32), 1.0, False, self._now == 5, {}


class RandomObservations(gymnasium.Env[Any, Any]):
    """Random samples of a space as observations."""

    def __init__(self, space: Any, actions: Any = None):
        self.observation_space, self.action_space = space, actions or spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


BOOLEANS: Any = np.bool_
SPACES: dict[str, Any] = {
    "Picture": spaces.Box(0, 255, (5, 4, 3), np.uint8),
    "Bits": spaces.Box(0, 1, (5, 4, 3), BOOLEANS),
    "Flat": spaces.Box(-1.0, 1.0, (2, 3), np.float64),
    "Thin": spaces.Box(-1.0, 1.0, (2, 3, 4), np.float32),
    "Point": spaces.Box(-1.0, 1.0, (), np.float32),
    "Number": spaces.Discrete(4, start=-2),
    "Named": spaces.Dict({"x": spaces.Discrete(2)}),
    "Several": spaces.MultiDiscrete([2, 2]),
}


def register(name: str, make: Any, **options: Any) -> None:
    if f"Tests/{name}-v0" not in gymnasium.registry:
        gymnasium.register(f"Tests/{name}-v0", make, disable_env_checker=True, kwargs=options)


for name, space in SPACES.items():
    register(name, RandomObservations, space=space)
register("OneAction", RandomObservations, space=SPACES["Flat"], actions=spaces.Discrete(1))
register("Count", CountEnv)
register("Same", ConstantEnv)


@cache
def make_population(name: str, *operators: str) -> HostPopulation:
    return HostPopulation(gym_env(f"Tests/{name}-v0"), CONFIG, operators, exact=True)


def counting() -> HostPopulation:
    return make_population("Count", "bellman", "al:0.5")


def trained(population: HostPopulation, seeds: Any, iterations: int) -> Any:
    return population.train(population.start(seeds), 0, iterations)


@pytest.fixture
def no_key_is_used_twice():
    with jax.debug_key_reuse(True):
        yield


def differing(one: Any, other: Any) -> set[str]:
    return {name for name in one if not np.array_equal(one[name], other[name])}


@pytest.mark.usefixtures("no_key_is_used_twice")
def test_transitions_of_terminated_and_truncated_episodes():
    state = trained(counting(), [0, 1], 12)
    steps = jax.tree.map(lambda part: np.asarray(part)[:, :12], state.agent.replay.steps)
    x, following = steps.observation[..., 0], steps.next_observation[..., 0]
    # The next observation never belongs to the next episode.
    np.testing.assert_array_equal(following, x + 1)
    np.testing.assert_array_equal(steps.last, following % 10 == 3)
    # A third of the episodes is truncated only; a third is both truncated and terminated, so terminated.
    kind = x // 10 % 3
    np.testing.assert_array_equal(steps.discount, np.where(steps.last & (kind != 0), 0.0, 0.5))
    assert {int(one) for one in kind[steps.last]} == {0, 1, 2}
    np.testing.assert_array_equal(steps.reward, steps.action + 5)
    assert {int(one) for one in steps.action.ravel()} == {0, 1}
    # Episodes follow each other without a step in between, and start differently.
    assert (x[:, ::3] % 10 == 0).all()
    assert len({int(one) for one in (x // 10).ravel()}) > 15
    assert np.asarray(state.env_state.episodes).tolist() == [12, 12]
    np.testing.assert_allclose(state.env_state.return_sum, steps.reward.sum(axis=(1, 2)))


@pytest.fixture(scope="module")
def same() -> HostPopulation:
    config = Config(
        gamma=0.5,
        num_envs=2,
        batch_size=32,
        buffer_size=200,
        learning_starts=10,
        target_update_interval=20,
        optimizer="adam",
        learning_rate=0.01,
    )
    return HostPopulation(gym_env("Tests/Same-v0"), config, ["bellman", "bellman"])


def test_truncated_episodes_are_bootstrapped(same):
    """The value of reward 1 in every step is 1 / (1 - gamma), although episodes are truncated after five steps."""
    state = trained(same, [0, 1], 400)
    found = same.evaluate(state, 400, episodes=2, max_episode_steps=1000, epsilon=0.0)
    np.testing.assert_allclose(found.value, 2.0, atol=0.05)
    np.testing.assert_allclose(found.bias, 0.0, atol=0.05)


def test_an_evaluation_matches_hand_computation(same):
    state = same.start([0, 1])
    found = same.evaluate(state, 0, episodes=2, max_episode_steps=1000, epsilon=0.0)
    q = np.asarray(jax.vmap(same.dqn.q_values)(state.agent.learner.online, np.ones((2, 1, 1), np.float32)))[:, 0]
    returns = [sum(0.5**k for k in range(left)) + 0.5**left * q.max(axis=1) for left in (5, 4, 3, 2, 1)]
    assert found.score.tolist() == found.length.tolist() == [5.0, 5.0]
    np.testing.assert_allclose(found.value, q.max(axis=1), rtol=1e-5)
    np.testing.assert_allclose(found.action_gap, q.max(axis=1) - q.min(axis=1), rtol=1e-4)
    np.testing.assert_allclose(found.bias, q.max(axis=1) - np.mean(returns, axis=0), rtol=1e-4)
    # Truncated by max_episode_steps: only the first state is evaluated, and rewards after the limit count as 0.
    short = same.evaluate(state, 0, episodes=2, max_episode_steps=3, epsilon=0.0)
    assert short.length.tolist() == [3.0, 3.0]
    np.testing.assert_allclose(short.bias, q.max(axis=1) - 1.75, rtol=1e-4)


@pytest.mark.usefixtures("no_key_is_used_twice")
def test_an_agent_is_the_same_in_any_population():
    many, one = counting(), make_population("Count", "al:0.5")
    state, alone, again = trained(many, [7, 8], 40), trained(one, [8], 40), trained(many, [7, 8], 40)
    agents, (agent,) = many.get(state), one.get(alone)
    # The index of an operator depends on the population.
    assert differing(agent, agents[1]) <= {".agent.operator"}
    assert all(differing(*both) == set() for both in zip(agents, many.get(again), strict=True))
    assert ".agent.replay.steps.observation" in differing(*agents)
    scores = [some.evaluate(trained_state, 40, 2, 30, 0.5) for some, trained_state in ((many, state), (one, alone))]
    assert [float(part[1]) for part in scores[0]] == [float(part[0]) for part in scores[1]]
    assert scores[0].score[0] != scores[0].score[1]


@pytest.mark.usefixtures("no_key_is_used_twice")
def test_resumed_agents_start_new_episodes():
    population = counting()
    state = trained(population, [0, 1], 10)
    states = population.get(state)
    assert not any("running" in name for name in states[0])
    back = population.put(states)
    for saved, found in zip(states, population.get(back), strict=True):
        assert differing(saved, found) == set()
    continued = population.get(population.train(state, 10, 1))[0]
    resumed, repeated = (population.get(population.train(population.put(states), 10, 1))[0] for _ in range(2))
    assert differing(resumed, repeated) == set()
    assert (int(continued[".env_state.starts"]), int(resumed[".env_state.starts"])) == (1, 2)
    newest = ".agent.replay.steps.observation"
    # Without an interruption, an episode of three steps is in its second step at iteration 10; after one, in its first.
    assert (continued[newest][10, :, 0] % 10).tolist() == [1.0] * 3
    assert (resumed[newest][10, :, 0] % 10).tolist() == [0.0] * 3
    assert not set(resumed[newest][10].ravel().tolist()) & set(resumed[newest][0].ravel().tolist())


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("Picture", (5, 4, 3), np.float32),
        ("Bits", (5, 4, 3), np.bool_),
        ("Flat", (6,), np.float32),
        ("Thin", (24,), np.float32),
        ("Point", (1,), np.float32),
        ("Number", (4,), np.bool_),
    ],
)
def test_observations_of_each_space(name, shape, dtype):
    game, space = gym_env(f"Tests/{name}-v0"), SPACES[name]
    assert (game.shape, game.dtype) == (shape, dtype)
    envs = GymVectorEnv(game, [1, 2])
    assert envs.observation.shape == (2, *shape)
    assert envs.observation.dtype == dtype
    space.seed(2)
    sample = space.sample()
    if name == "Number":
        assert envs.observation[1].tolist() == [sample == k for k in (-2, -1, 0, 1)]
    else:
        expected = np.asarray(sample, float).reshape(shape) / (255 if name == "Picture" else 1)
        np.testing.assert_allclose(envs.observation[1], expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["Picture", "Number"])
def test_agents_learn_from_each_space(name):
    population = make_population(name, "bellman")
    state = population.start([0])
    before = np.array(state.agent.learner.online[0][0])
    state = population.train(state, 0, 8)
    assert (np.asarray(state.agent.learner.online[0][0]) != before).any()
    stored = unpack(
        state.agent.replay.steps.observation[0, :8].reshape(24, *state.agent.replay.steps.observation.shape[3:]), population.gym_env.shape
    )
    seen = np.asarray(stored, np.float64)
    assert (seen.sum(axis=1) == 1).all() if name == "Number" else 0.4 < seen.mean() < 0.6


UNLIKE_ANY = 24 * "q"
"""No id is near it, whichever packages have registered theirs in this process; ale-py registers Qbert-v0."""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gym/CartPol-v1", r"cannot be made by Gymnasium: did you mean gym/CartPole-v1\?"),
        ("gym/CartPole-v7", r"did you mean gym/CartPole-v1\?"),
        (f"gym/{UNLIKE_ANY}-v0", f"cannot be made by Gymnasium: Environment `{UNLIKE_ANY}` doesn't exist"),
        ("gym/nowhere:Thing-v0", "cannot be made by Gymnasium"),
        ("gym/Pendulum-v1", "has the action space Box.*deep agents need Discrete"),
        ("gym/Tests/OneAction-v0", "at least 2 actions"),
        ("gym/Tests/Named-v0", "observations of type Dict.*wrap the environment"),
        ("gym/Tests/Several-v0", "observations of type MultiDiscrete"),
        ("gym/", "unknown environment 'gym/'.*or gym/ID"),
        ("cake", "choose from minatar/asterix"),
    ],
)
def test_unsupported_environments_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        Training(env=name)


def test_load_environment_returns_both_kinds():
    assert isinstance(load_environment("minatar/breakout"), FunctionalEnv)
    assert isinstance(load_environment("gym/CartPole-v1"), GymEnv)
    ours = load_environment("gym/actiongap/MinAtar-Breakout-v0")
    assert (ours.shape, len(ours.actions)) == ((10, 10, 4), 3)


CART_POLE: dict[str, Any] = {
    "env": "gym/CartPole-v1",
    "optimizer": "adam",
    "learning_rate": 0.001,
    "num_envs": 8,
    "batch_size": 64,
    "buffer_size": 10_000,
}


@pytest.mark.long
def test_cart_pole_is_learned():
    """Random play balances the pole for about 22 steps."""
    learning: dict[str, Any] = {
        "learning_starts": 500,
        "exploration_steps": 10_000,
        "target_update_interval": 500,
        "frames": 24_000,
        "eval_every": 8_000,
        "gradient_steps": 2,
    }
    batch = TrainingBatch([Training(**CART_POLE, **learning, operator="al:0.5", episodes=8)])
    carried, rows = batch.start(), []
    for chunk in range(batch.spec.chunks):
        carried, found = batch.advance(carried, chunk)
        rows += [[mine[0] for mine in found]] if found[0] else []
    assert [row[0]["step"] for row in rows] == [8_000, 16_000, 24_000]
    assert rows[0][0]["training_return"] < 60
    assert max(row[0]["training_return"] for row in rows) > 120
    assert {row[0]["restarts"] for row in rows} == {0}


def test_rows_count_restarts(tmp_path):
    short: dict[str, Any] = {"learning_starts": 100, "frames": 800, "eval_every": 200, "episodes": 2, "max_episode_steps": 20}
    study = Study("poles", tuple(Training(**CART_POLE, **short, operator=operator) for operator in ("bellman", "pal-dqn:0.9")))

    def interrupt(event: Event) -> None:
        if event.kind == "step" and event.chunk == 2 and event.run == next(iter(study.named())):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_inline(study, tmp_path, batch_size=2, on_event=interrupt)
    assert len(run_inline(study, tmp_path, batch_size=2).done) == 2
    for file in tmp_path.glob("runs/*/metrics.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert [(row["step"], row["restarts"]) for row in rows] == [(200, 0), (400, 0), (600, 1), (800, 1)]
