"""Simulators as Gymnasium environments: the same episodes as rollouts, randomness, Gymnasium's checkers, and invalid input."""

from __future__ import annotations

import dataclasses
import warnings
from math import pi
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from actiongap.api.simulators import Simulator, load_simulator
from actiongap.envs.renderers import HEIGHT, WIDTH
from actiongap.envs.simulator_env import START_STATES, SimulatorEnv
from actiongap.envs.simulators import SIMULATORS
from actiongap.maths import clip, where
from actiongap.planning.grid import Grid
from actiongap.planning.rollouts import rollouts
from actiongap.planning.simulator import Discrete, EpisodeSpec, Outcome, Periodic, Uniform


def drift(x, a, u):
    """A place that the action and the noise move, and a compass that turns. Ends at both ends of the road."""
    place, heading = x
    place = place + 0.2 * (a - 1) + 0.1 * u
    return Outcome((place, heading + 0.5 + 0.1 * u), where(abs(place) > 1.0, 10.0, -1.0), abs(place) > 1.0)


def drifting(**changes: Any) -> Simulator:
    given = {
        "state": {"place": (-1.0, 1.0), "heading": Periodic(-pi, pi)},
        "actions": ("back", "stay", "on"),
        "noise": Uniform(-1.0, 1.0),
        "outcomes": {"east": lambda x: x[0] > 1.0},
        "start": {"place": (-0.1, 0.1), "heading": (0.0, 1.0)},
        "max_episode_steps": 30,
    }
    return Simulator("drift", **{"step": drift, **given, **changes})


@pytest.mark.parametrize("name", [*SIMULATORS, "drift"])
def test_gymnasium_checks_every_simulator(name):
    env = (drifting() if name == "drift" else load_simulator(name)).env(render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env)
    assert env.spec is not None
    assert isinstance(gymnasium.make(env.spec).unwrapped, SimulatorEnv)


def test_episodes_are_those_of_rollouts():
    """Without noise, an environment that starts where an episode starts goes through the same steps."""
    simulator = dataclasses.replace(load_simulator("mountain-car"), start=lambda n: (np.full(n, -0.5), np.zeros(n)))
    grid = Grid(simulator.axes(9))
    speed = grid.points()[1]
    table = np.stack([-speed, np.full_like(speed, -1.0), speed], axis=-1)
    trials = rollouts(simulator, grid, table[None], 1)
    env, total, steps, over, info = simulator.env(), 0.0, 0, False, {}
    observation, _ = env.reset(seed=3)
    np.testing.assert_array_equal(observation, np.array([-0.5, 0.0], np.float32))
    while not over:
        observation, reward, terminated, truncated, info = env.step(0 if observation[1] <= 0 else 2)
        total, steps, over = total + reward, steps + 1, terminated or truncated
    assert (steps, total, info) == (trials.steps[0, 0], trials.returns[0, 0], {"outcome": "goal"})
    np.testing.assert_allclose(observation, [x[0, 0] for x in trials.coordinates], rtol=1e-5)


def test_seeds_repeat_and_differ():
    def episode(seed: int) -> list[float]:
        env = drifting().env()
        first, _ = env.reset(seed=seed)
        return [*first.tolist(), *(float(number) for _ in range(5) for number in env.step(1)[0])]

    assert episode(1) == episode(1)
    assert episode(1) != episode(2)


def test_starts_are_drawn_from_the_start_states_and_noise_has_its_distribution():
    simulator = drifting(
        noise=Discrete((-1.0, 1.0), (0.25, 0.75)), max_episode_steps=10_000, step=lambda x, a, u: Outcome((u, x[1]), 0.0, False)
    )
    env = simulator.env()
    starts = {float(env.reset(seed=seed)[0][0]) for seed in range(200)}
    assert starts <= set(simulator.episode_spec.start(START_STATES)[0].astype(np.float32).tolist())
    assert len(starts) > 150
    drawn = [float(env.step(1)[0][0]) for _ in range(2000)]
    assert set(drawn) == {-1.0, 1.0}
    assert np.mean(np.array(drawn) > 0) == pytest.approx(0.75, abs=0.04)


def test_a_vector_environment_equals_single_ones():
    simulator, n, rng = drifting(), 4, np.random.default_rng(0)
    vector = simulator.vector_env(n)
    assert vector.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    singles = [simulator.env() for _ in range(n)]
    observations, _ = vector.reset(seed=5)
    np.testing.assert_array_equal(observations, [env.reset(seed=5 + i)[0] for i, env in enumerate(singles)])
    over, seen = np.zeros(n, bool), set()
    for _ in range(300):
        actions = rng.integers(0, 3, n)
        found = vector.step(actions)
        for i, env in enumerate(singles):
            expected = (env.reset()[0], 0.0, False, False, {}) if over[i] else env.step(int(actions[i]))
            np.testing.assert_array_equal(found[0][i], expected[0])
            assert (found[1][i], found[2][i], found[3][i]) == expected[1:4]
            over[i] = expected[2] or expected[3]
            if over[i]:
                assert found[4]["_outcome"][i]
                assert found[4]["outcome"][i] == expected[4]["outcome"]
                seen.add(expected[4]["outcome"])
    assert seen == {"east", "end", "limit"}


def test_observations_are_what_the_policy_sees_and_periodic_ones_stay_in_their_period():
    hidden = EpisodeSpec(
        start=lambda n: (np.zeros(n), np.full(n, 3.0), np.zeros(n)),
        step=lambda s, a, u: Outcome((s[0], s[1] + 0.3, s[2] + 1.0), 0.0, False),
        observe=lambda s: (s[0], s[1]),
    )
    simulator = Simulator("drift", drift, state={"place": (-1.0, 1.0), "heading": Periodic(-pi, pi)}, actions=("a", "b"), episodes=hidden)
    env = simulator.env()
    assert env.reset(seed=0)[0].tolist() == [0.0, 3.0]
    assert env.step(0)[0][1] == pytest.approx(3.3 - 2 * pi)
    assert env.observation_space.shape == (2,)


def test_far_observations_are_clipped_to_the_space():
    env = drifting(step=lambda x, a, u: Outcome((x[0] + 100.0, x[1]), 0.0, False)).env()
    env.reset(seed=0)
    observation = env.step(0)[0]
    assert observation[0] == 3.0
    assert env.observation_space.contains(observation)


def test_renderers():
    env = drifting().env(render_mode="rgb_array")
    env.reset(seed=0)
    first: Any = env.render()
    env.step(2)
    second: Any = env.render()
    assert first.shape == second.shape == (HEIGHT, WIDTH, 3)
    assert (first != second).any()

    def picture(state):
        image = np.full((20, 40, 3), 255, np.uint8)
        image[:, int(clip(20 + 20 * state[0], 0, 39))] = (255, 0, 0)
        return image

    env = drifting(render=picture, seconds_per_step=0.05).env(render_mode="rgb_array")
    assert env.metadata["render_fps"] == 20
    env.reset(seed=0)
    drawn: Any = env.render()
    assert drawn.shape == (HEIGHT, WIDTH, 3)
    red = (drawn[HEIGHT // 2].astype(int) @ [1, -1, -1] > 100).nonzero()[0]
    assert 0.4 * WIDTH < red.mean() < 0.6 * WIDTH


@pytest.mark.parametrize(
    "image", [np.zeros((4, 4)), np.zeros((4, 4, 3)), np.full((4, 4, 3), 300), None], ids=["flat", "floats", "range", "none"]
)
def test_bad_images_are_refused(image):
    env = drifting(render=lambda state: image).env(render_mode="rgb_array")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"drift: render returns .*: return an RGB image"):
        env.render()


@pytest.mark.parametrize("action", [3, -1, 0.5, 1.0, None, "go", np.array([1])], ids=repr)
def test_bad_actions_are_refused(action):
    env = drifting().env()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="is invalid: choose a whole number from 0 to 2"):
        env.step(action)
    vector = drifting().vector_env(1)
    vector.reset(seed=0)
    if not isinstance(action, np.ndarray):
        with pytest.raises(ValueError, match="actions must be 1 integers from 0 to 2"):
            vector.step([action])  # pyright: ignore[reportArgumentType]


def test_misuse_is_refused_in_a_sentence():
    for env in (drifting().env(), drifting().vector_env(2)):
        with pytest.raises(ValueError, match="started: call reset before step"):
            env.step(np.array([0, 0]))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="render_mode is 'human': choose rgb_array or None"):
        drifting().env(render_mode="human")  # pyright: ignore[reportArgumentType]
    broken = drifting(step=lambda x, a, u: Outcome((x[0] / (a - 1.0), x[1]), 0.0, False)).env()
    broken.reset(seed=0)
    with pytest.raises(ValueError, match="drift: a step returns NaN or infinity after action stay in the state"):
        broken.step(1)
    wrong = drifting(step=lambda x, a, u: (x, 0.0, False)).env()
    wrong.reset(seed=0)
    with pytest.raises(ValueError, match="drift: its step returns a tuple: it must return Outcome"):
        wrong.step(1)
