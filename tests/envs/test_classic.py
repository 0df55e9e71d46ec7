"""Classic control against Gymnasium, the bicycle as a Gymnasium environment, and its pictures."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from math import pi
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import actiongap.envs
from actiongap._numba import compile_function
from actiongap.envs.bicycle import PRINTED_C, features, standing
from actiongap.envs.bicycle_env import Bicycle, Bicycles
from actiongap.envs.classic import acrobot, cart_pole, mountain_car, pendulum
from actiongap.envs.renderers import landscape, render_bicycle, strokes
from actiongap.planning.simulator import Discrete, Uniform, one_step

CLASSIC = {
    "MountainCar-v0": (mountain_car(), (-1.2, 0.6), (-0.07, 0.07)),
    "Pendulum-v1": (pendulum(), (-4.0, 4.0), (-8.0, 8.0)),
    "CartPole-v1": (cart_pole(), (-2.42, 2.42), (-3.0, 3.0), (-0.22, 0.22), (-3.0, 3.0)),
    "Acrobot-v1": (acrobot(), (-pi, pi), (-pi, pi), (-12.0, 12.0), (-28.0, 28.0)),
}


def observed(name, x):
    """Gymnasium's observation of some coordinates."""
    if name == "Pendulum-v1":
        return np.cos(x[0]), np.sin(x[0]), x[1]
    if name == "Acrobot-v1":
        return np.cos(x[0]), np.sin(x[0]), np.cos(x[1]), np.sin(x[1]), x[2], x[3]
    return x


@pytest.mark.parametrize("name", CLASSIC)
def test_steps_match_gymnasium(name):
    simulator, *ranges = CLASSIC[name]
    rng = np.random.default_rng(0)
    env: Any = gymnasium.make(name).unwrapped
    env.reset(seed=0)
    step, ended = one_step(simulator), 0
    for _ in range(1000):
        x = tuple(float(rng.uniform(*reach)) for reach in ranges)
        a = int(rng.integers(len(simulator.actions)))
        env.state, env.steps_beyond_terminated = np.array(x), None
        observation, reward, terminated, _, _ = env.step(a if name != "Pendulum-v1" else np.array([float(simulator.actions[a])]))
        outcome = step(x, a, 0.0)
        np.testing.assert_allclose(observed(name, outcome.x), observation, rtol=1e-6, atol=1e-6)
        assert float(outcome.reward) == pytest.approx(reward, abs=1e-9)
        assert bool(outcome.ended) == terminated
        ended += terminated
    assert (ended > 10) == (name != "Pendulum-v1")


def test_the_car_stops_at_the_wall():
    position, speed = one_step(mountain_car())((-1.19, -0.05), 0, 0.0).x
    assert (float(position), float(speed)) == (-1.2, 0.0)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", CLASSIC)
def test_classic_control_on_arrays_and_compiled(name):
    simulator, *ranges = CLASSIC[name]
    rng = np.random.default_rng(1)
    x = tuple(rng.uniform(low, high, 100) for low, high in ranges)
    a = rng.integers(0, len(simulator.actions), 100)
    step = one_step(simulator)
    outcome, compiled = step(x, a, 0.0), compile_function(step)
    with jax.enable_x64(True):
        traced = jax.jit(step)(tuple(map(jnp.asarray, x)), jnp.asarray(a), 0.0)
    for found, expected in zip((*traced.x, traced.reward, traced.ended), (*outcome.x, outcome.reward, outcome.ended), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)
    for i in range(100):
        one = compiled(tuple(float(row[i]) for row in x), int(a[i]), 0.0)
        np.testing.assert_allclose(one.x, [row[i] for row in outcome.x], atol=1e-12)
        assert one.reward == pytest.approx(np.broadcast_to(outcome.reward, 100)[i])
        assert one.ended == np.broadcast_to(outcome.ended, 100)[i]


def test_factors_of_the_cart_pole_depend_on_their_inputs_only():
    simulator, *ranges = CLASSIC["CartPole-v1"]
    rng = np.random.default_rng(2)
    x, other = (tuple(rng.uniform(low, high, 100) for low, high in ranges) for _ in range(2))
    a = rng.integers(0, 2, 100)
    for factor in simulator.factors:
        changed = tuple(x[i] if i in factor.inputs else other[i] for i in range(4))
        alike = a if factor.parts == (0, 1) else 1 - a
        for found, expected in zip(factor.step(changed, alike, 0.0).x, factor.step(x, a, 0.0).x, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_axes_of_angles_are_periodic():
    assert [axis.period is not None for axis in pendulum().axes(8)] == [True, False]
    assert [axis.period is not None for axis in acrobot().axes(8)] == [True, True, False, False]
    assert not any(axis.period for axis in (*cart_pole().axes(8), *mountain_car().axes(8)))


def test_a_pendulum_needs_two_torques():
    assert pendulum(torques=2).actions == ("-2", "2")
    with pytest.raises(ValueError, match="at least 2"):
        pendulum(torques=1)


def bicycle_env(**options) -> Any:
    return gymnasium.make("actiongap/Bicycle-v0", **options)


@pytest.mark.parametrize("options", [{}, {"noise": False, "start": "east"}, {"render_mode": "rgb_array"}])
def test_check_env(options):
    check_env(bicycle_env(**options).unwrapped)


def test_registering_the_environments_loads_nothing_but_gymnasium():
    code = "import sys, gymnasium; before = set(sys.modules); import actiongap.envs; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['actiongap', 'actiongap._version', 'actiongap.envs']"


def test_gymnasium_imports_the_module_before_the_colon():
    code = "import gymnasium; print(gymnasium.make('actiongap.envs:actiongap/Bicycle-v0').spec.id)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "actiongap/Bicycle-v0"


def test_registration():
    spec = gymnasium.spec("actiongap/Bicycle-v0")
    assert spec.max_episode_steps == 100_000
    assert gymnasium.make("actiongap.envs:actiongap/Bicycle-v0").spec is not None
    assert actiongap.envs.__doc__


def episode(env, seed, steps=120):
    rng = np.random.default_rng(seed)
    seen = [env.reset(seed=seed)[0]]
    for _ in range(steps):
        observation, reward, terminated, _, _ = env.step(int(rng.integers(9)))
        seen.append(np.append(observation, [reward, terminated]))
        if terminated:
            break
    return np.concatenate(seen)


def test_seeds_determine_episodes():
    np.testing.assert_array_equal(episode(bicycle_env(), 3), episode(bicycle_env(), 3))
    assert not np.array_equal(episode(bicycle_env(), 3)[:6], episode(bicycle_env(), 4)[:6])
    # With the same heading and actions, only the noise differs.
    north = [episode(bicycle_env(start="north", noise=noise), 3)[6:14] for noise in (True, True, False)]
    np.testing.assert_array_equal(north[0], north[1])
    assert not np.array_equal(north[0], north[2])


def test_headings_are_spread_over_the_circle():
    env = bicycle_env()
    env.reset(seed=0)
    psi = np.array([env.reset()[0][4] for _ in range(400)])
    assert np.histogram(psi, 4, (-pi, pi))[0].min() > 70


def test_episodes_terminate_with_a_fall_or_at_the_goal():
    env = bicycle_env(start="north", noise=False)
    env.reset(seed=0)
    env.unwrapped.state = standing(0.0)._replace(omega=0.209, omega_dot=1.0)
    assert env.step(4)[1:4] == (pytest.approx(-PRINTED_C), True, False)
    env.reset()
    env.unwrapped.state = standing(0.0, north=-10.02)
    observation, *rest, _ = env.step(4)
    assert rest == [1.0, True, False]
    assert observation[5] < 10


def test_reward_options():
    env = bicycle_env(reward="randlov", c=0.25)
    env.reset(seed=0)
    env.unwrapped.state = standing(0.0)._replace(omega=0.209, omega_dot=1.0)
    assert env.step(4)[1] == -0.25


def test_observations_stay_within_their_bounds():
    env: Any = gymnasium.make_vec("actiongap/Bicycle-v0", num_envs=300)
    env.reset(seed=0)
    space, rng = env.single_observation_space, np.random.default_rng(0)
    actions = rng.integers(0, 9, 300)
    falls = 0
    for _ in range(400):
        actions = np.where(rng.random(300) < 0.03, rng.integers(0, 9, 300), actions)
        observations, _, terminated, _, _ = env.step(actions)
        assert ((space.low <= observations) & (observations <= space.high)).all()
        falls += terminated.sum()
    assert falls > 300


def test_the_vector_environment_matches_single_ones():
    """Compare with Gymnasium's `SyncVectorEnv` of single environments, through terminations, truncations and blocks of noise."""
    options: dict[str, Any] = {"num_envs": 6, "max_episode_steps": 90}
    lanes: Any = gymnasium.make_vec("actiongap/Bicycle-v0", vectorization_mode="vector_entry_point", **options)
    singles: Any = gymnasium.make_vec("actiongap/Bicycle-v0", vectorization_mode="sync", **options)
    assert lanes.metadata["autoreset_mode"] is singles.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert lanes.observation_space == singles.observation_space
    assert lanes.action_space == singles.action_space
    rng = np.random.default_rng(0)
    ends = np.zeros(2, int)
    for seed in (5, None, [1, 2, 3, 4, 5, 6]):
        np.testing.assert_allclose(lanes.reset(seed=seed)[0], singles.reset(seed=seed)[0], atol=1e-6)
        for _ in range(400):
            actions = np.where(rng.random(6) < 0.7, 4, rng.integers(0, 9, 6))
            found, expected = lanes.step(actions), singles.step(actions)
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(found[1], expected[1], atol=1e-7)
            np.testing.assert_array_equal(found[2], expected[2])
            np.testing.assert_array_equal(found[3], expected[3])
            ends += [found[2].sum(), found[3].sum()]
    assert (ends > 10).all()


def test_reset_with_seeds_for_some_environments():
    lanes = Bicycles(3)
    first = lanes.reset(seed=[7, 8, 9])[0]
    again = lanes.reset(seed=[7, None, 9])[0]
    np.testing.assert_array_equal(again[[0, 2]], first[[0, 2]])
    assert (again[1] != first[1]).any()
    assert (lanes.reset()[0] != again).any(axis=1).all()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Bicycle().step(4), "call reset"),
        (lambda: Bicycles(2).step(np.array([4, 4])), "call reset"),
        (lambda: Bicycle(start="south"), "choose from spread"),
        (lambda: Bicycles(2, start="south"), "choose from spread"),
        (lambda: Bicycle(render_mode="ansi"), "choose rgb_array"),
        (lambda: Bicycles(2, render_mode="rgb_array"), "render a single one"),  # pyright: ignore[reportArgumentType]
        (lambda: Bicycles(0), "at least 1"),
        (lambda: Bicycles(2).reset(seed=[1, 2, 3]), "3 seeds for 2"),
    ],
)
def test_errors_name_a_remedy(wrong, said):
    with pytest.raises(ValueError, match=said):
        wrong()


@pytest.mark.parametrize("actions", [[4, 9], [4, -1], [4], [4.0, 4.0]])
def test_invalid_actions_are_rejected(actions):
    lanes = Bicycles(2)
    lanes.reset(seed=0)
    with pytest.raises(ValueError, match="2 integers from 0 to 8"):
        lanes.step(np.array(actions))
    single = Bicycle()
    single.reset(seed=0)
    with pytest.raises(ValueError, match="choose 0 to 8"):
        single.step(9)


def test_rendering_without_a_mode_only_warns():
    env = Bicycle()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="rgb_array"):
        assert env.render() is None


def test_images_of_the_bicycle():
    env = bicycle_env(render_mode="rgb_array", start="north")
    env.reset(seed=0)
    first = env.render()
    assert first.shape == (480, 640, 3)
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(first, env.render())
    for _ in range(30):
        env.step(4)
    assert (env.render() != first).any()
    trail = np.array([[0.0, -1000.0], [0.0, -990.0]])
    pictures = [render_bicycle(standing(0.0, north=-990.0)._replace(omega=omega), trail) for omega in (-0.1, 0.1, 0.3)]
    assert (pictures[0] != pictures[1]).any()
    # Only the last bicycle has fallen: its image says so in red letters in the sky.
    red = [((view[..., 0] > 180) & (view[..., 1] < 80))[110:150, 120:310].sum() for view in pictures]
    assert red[:2] == [0, 0]
    assert red[2] > 200


def test_strokes_tilt_rigidly_and_the_bar_turns():
    upright, tilted = strokes(standing(0.0), 3.0), strokes(standing(0.0)._replace(omega=0.2), 3.0)
    for name, part in upright.items():
        inner, outer = part.points, tilted[name].points
        np.testing.assert_allclose(outer @ outer.T, inner @ inner.T, atol=1e-12)
    assert tilted["helmet"].points[0, 1] > 0.3
    left, right = strokes(standing(0.0)._replace(theta=0.5), 0.0)["bar"].points
    assert left[0] < right[0]


@pytest.mark.parametrize("psi", [-0.2, 0.0, 0.15])
def test_the_beam_of_light_is_at_the_goal(psi):
    """With the heading psi to the left of the goal, the goal is tan(psi) times the focal length to the right of the center."""
    scene = landscape(standing(psi, north=-200.0)).astype(int)
    column = int((scene[150, :, 0] - scene[150, :, 2]).argmax())
    assert column == pytest.approx(215 + 560 * np.tan(psi), abs=3)
    assert features(standing(psi, north=-200.0))[4] == pytest.approx(psi)


def test_a_goal_behind_the_camera_is_not_drawn():
    scene = landscape(standing(pi, north=-200.0)).astype(int)
    assert (scene[:150, :, 0] < scene[:150, :, 2]).all()


@pytest.mark.parametrize(
    ("noise", "sentence"),
    [
        (Uniform(1.0, -1.0), "the lower first"),
        (Uniform(0.0, float("nan")), "the lower first"),
        (Discrete((0.0, 1.0), (1.0,)), "one probability each"),
        (Discrete((), ()), "one probability each"),
        (Discrete((0.0, 1.0), (0.5, 0.6)), "sum to 1"),
        (Discrete((0.0, 1.0), (-0.5, 1.5)), "sum to 1"),
    ],
)
def test_invalid_noise_is_rejected(noise, sentence):
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(mountain_car(), noise=noise)
