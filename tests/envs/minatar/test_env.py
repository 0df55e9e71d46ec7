"""MinAtar as Gymnasium environments, single and vectorized, and their images."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import actiongap.envs
from actiongap.envs.functional import num_uniforms, reset_env
from actiongap.envs.minatar import GAMES
from actiongap.envs.minatar.env import ALL_ACTIONS, CELL, MARKS, MinAtar, MinAtars, picture, rules

IDS = {name: f"actiongap/MinAtar-{name.title().replace('_', '')}-v0" for name in GAMES}


def game_env(name: str, **options) -> Any:
    return gymnasium.make(IDS[name], **options)


def test_ids():
    assert actiongap.envs.__doc__
    assert sorted(IDS.values()) == [
        f"actiongap/MinAtar-{name}-v0" for name in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
    ]
    assert gymnasium.make("actiongap.envs:actiongap/MinAtar-Freeway-v0").spec is not None


@pytest.mark.every(2)
@pytest.mark.parametrize("name", GAMES)
def test_check_env(name):
    check_env(game_env(name, render_mode="rgb_array").unwrapped)
    check_env(game_env(name, repeat_action_probability=0.0, full_actions=True).unwrapped)


def play(env: Any, seed: int, steps: int = 300) -> np.ndarray:
    rng = np.random.default_rng(0)
    seen = [env.reset(seed=seed)[0].ravel()]
    for _ in range(steps):
        observation, reward, terminated, _, _ = env.step(int(rng.integers(env.action_space.n)))
        seen.append(np.append(observation, [reward, terminated]))
        if terminated:
            seen.append(env.reset()[0].ravel())
    return np.concatenate(seen)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", GAMES)
def test_seeds_determine_episodes(name):
    env = game_env(name)
    first = play(env, 3)
    np.testing.assert_array_equal(play(env, 3), first)
    np.testing.assert_array_equal(play(game_env(name), 3), first)
    other = play(game_env(name), 4)
    assert other.shape != first.shape or (other != first).any()


@pytest.mark.every(2)
@pytest.mark.parametrize("name", GAMES)
def test_the_vector_environment_matches_single_ones(name):
    """Compare with Gymnasium's `SyncVectorEnv` of single environments, through terminations, truncations and new seeds."""
    options: dict[str, Any] = {"num_envs": 5, "max_episode_steps": 12 if name == "breakout" else 60}
    lanes: Any = gymnasium.make_vec(IDS[name], vectorization_mode="vector_entry_point", **options)
    singles: Any = gymnasium.make_vec(IDS[name], vectorization_mode="sync", **options)
    assert lanes.metadata["autoreset_mode"] is singles.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert lanes.observation_space == singles.observation_space
    assert lanes.action_space == singles.action_space
    rng, ends = np.random.default_rng(0), np.zeros(2, int)
    for seed in (5, None, [1, None, 3, 4, 5]):
        np.testing.assert_array_equal(lanes.reset(seed=seed)[0], singles.reset(seed=seed)[0])
        for _ in range(100):
            actions = rng.integers(0, len(GAMES[name].actions), 5)
            found, expected = lanes.step(actions), singles.step(actions)
            for mine, theirs in zip(found[:4], expected[:4], strict=True):
                np.testing.assert_array_equal(mine, theirs)
                assert mine.dtype == theirs.dtype
            ends += [found[2].sum(), found[3].sum()]
    assert ends[1] > 0
    # A game of Freeway takes more steps than this test.
    assert ends[0] > 0 or name == "freeway"


def test_the_environment_matches_the_game():
    """Without sticky actions Space Invaders is deterministic."""
    env, game = game_env("space_invaders", repeat_action_probability=0.0), GAMES["space_invaders"]
    step = jax.jit(game.step)
    state = reset_env(game, jnp.zeros(num_uniforms(game))).state
    np.testing.assert_array_equal(env.reset(seed=0)[0], game.observe(state))
    rng, total, terminated = np.random.default_rng(1), 0.0, False
    while not terminated:
        action = int(rng.integers(4))
        state, reward, ended = step(state, game.numbers[action], jnp.zeros(0))
        observation, mine, terminated, truncated, _ = env.step(action)
        np.testing.assert_array_equal(observation, game.observe(state))
        assert (mine, terminated, truncated) == (float(reward), bool(ended), False)
        total += mine
    assert total > 0


def test_repeat_action_probability():
    lanes: Any = gymnasium.make_vec(IDS["breakout"], num_envs=4000, repeat_action_probability=0.3)
    before, _ = lanes.reset(seed=0)
    after = lanes.step(np.ones(4000, int))[0]
    stayed = (before[..., 0] == after[..., 0]).all(axis=(1, 2)).mean()
    assert abs(stayed - 0.3) < 0.03


def test_full_actions():
    few, many = game_env("breakout", repeat_action_probability=0.0), game_env("breakout", repeat_action_probability=0.0, full_actions=True)
    assert (few.action_space.n, many.action_space.n) == (3, 6)
    for env in (few, many):
        env.reset(seed=0)
    named = [("right", 2), ("left", 1), ("right", 2), ("stay", 0)]
    for name, action in named:
        np.testing.assert_array_equal(many.step(ALL_ACTIONS.index(name))[0], few.step(action)[0])
    paddle = many.step(ALL_ACTIONS.index("fire"))[0][9, :, 0]
    np.testing.assert_array_equal(paddle, few.step(0)[0][9, :, 0])


def test_ramping_can_be_disabled():
    rules_of = {on: rules("asterix", ramping=on) for on in (True, False)}
    assert rules("asterix", ramping=False) is rules_of[False]
    state = rules_of[True].start(jnp.zeros(0))._replace(ramp_in=jnp.int32(-1))
    every = {on: int(game.step(state, 0, jnp.full(3, 0.5))[0].spawn_every) for on, game in rules_of.items()}
    assert every == {True: 9, False: 10}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", GAMES)
def test_every_layer_has_its_own_color_or_shape(name):
    layers = GAMES[name].shape[-1]
    assert sorted(mark.layer for mark in MARKS[name]) == list(range(layers))
    empty = picture(name, np.zeros((10, 10, layers), bool))
    styles = set()
    for layer in range(layers):
        board = np.zeros((10, 10, layers), bool)
        board[2, 7, layer] = True
        shown = picture(name, board)
        changed = (shown != empty).any(axis=2)
        assert changed[2 * CELL : 3 * CELL, 7 * CELL : 8 * CELL].sum() == changed.sum() > 100
        styles.add((changed.sum(), *shown[2 * CELL + CELL // 2, 7 * CELL + CELL // 2].tolist()))
    assert len(styles) == layers


def test_render_shows_the_last_observation():
    env = game_env("breakout", render_mode="rgb_array", repeat_action_probability=0.0)
    observation, _ = env.reset(seed=0)
    terminated = False
    while not terminated:
        observation, _, terminated, _, _ = env.step(1)
        np.testing.assert_array_equal(env.render(), picture("breakout", observation))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: MinAtar(game="breakout").step(0), "call reset"),
        (lambda: MinAtar("rgb_array", game="breakout").render(), "call reset"),
        (lambda: MinAtars(2, game="breakout").step(np.zeros(2, int)), "call reset"),
        (lambda: MinAtar(game="pong"), "choose from asterix"),
        (lambda: MinAtar(game="breakout", ramping=True), "leave out ramping"),
        (lambda: MinAtar(game="breakout", repeat_action_probability=2.0), "from 0 to 1"),
        (lambda: MinAtar("ansi", game="breakout"), "choose rgb_array"),
        (lambda: MinAtars(2, render_mode="rgb_array", game="breakout"), "render a single one"),  # pyright: ignore[reportArgumentType]
        (lambda: MinAtars(0, game="breakout"), "at least 1"),
        (lambda: MinAtars(2, game="breakout").reset(seed=[1, 2, 3]), "3 seeds for 2"),
    ],
)
def test_errors_name_a_remedy(wrong, said):
    with pytest.raises(ValueError, match=said):
        wrong()


@pytest.mark.parametrize("actions", [[0, 3], [0, -1], [0], [0.0, 0.0]])
def test_invalid_actions_are_rejected(actions):
    lanes = MinAtars(2, game="breakout")
    lanes.reset(seed=0)
    with pytest.raises(ValueError, match="2 integers from 0 to 2"):
        lanes.step(np.array(actions))
    single = MinAtar(game="breakout")
    single.reset(seed=0)
    with pytest.raises(ValueError, match="choose 0 to 2"):
        single.step(3)


def test_step_after_the_end_is_rejected():
    env = MinAtar(game="breakout")
    env.reset(seed=0)
    while not env.step(1)[2]:
        pass
    with pytest.raises(ValueError, match="is over: call reset"):
        env.step(1)


def test_rendering_without_a_mode_only_warns():
    env = MinAtar(game="freeway")
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="rgb_array"):
        assert env.render() is None
