"""Breakout: its rules one by one, and parity with the original."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actiongap.envs.minatar.breakout import BREAKOUT, WALL
from minatar_original import play_both

start, step, observe = jax.jit(BREAKOUT.start), jax.jit(BREAKOUT.step), jax.jit(BREAKOUT.observe)
NONE = np.zeros(0, np.float32)
STAY, LEFT, RIGHT = BREAKOUT.numbers
UP_LEFT, UP_RIGHT, DOWN_RIGHT, DOWN_LEFT = (False, False), (True, False), (True, True), (False, True)


def game_with_ball(row, col, heading, **more):
    """A game with this position and direction (right, down) of the ball."""
    fields = dict(zip(("right", "down"), heading, strict=True)) | {"last_row": row, "last_col": col, "row": row, "col": col} | more
    state = start(np.zeros(1, np.float32))
    return state._replace(**{name: jnp.asarray(value, getattr(state, name).dtype) for name, value in fields.items()})


def after_step(state, action=STAY):
    new, reward, ended = step(state, np.int32(action), NONE)
    assert reward.dtype == np.float32
    assert [leaf.dtype for leaf in new] == [leaf.dtype for leaf in state]
    return new, float(reward), bool(ended)


def ball(state):
    return int(state.row), int(state.col)


def heading(state):
    return bool(state.right), bool(state.down)


def bricks(state):
    return {(int(row), int(col)) for row, col in np.argwhere(observe(state)[:, :, 3])}


def test_a_new_game():
    for u, col, way in ((0.0, 0, DOWN_RIGHT), (0.49, 0, DOWN_RIGHT), (0.5, 9, DOWN_LEFT), (0.99, 9, DOWN_LEFT)):
        state = start(np.array([u], np.float32))
        assert (ball(state), heading(state), int(state.paddle), bool(state.struck)) == ((3, col), way, 4, False)
        assert bricks(state) == {(row, col) for row in (1, 2, 3) for col in range(10)}
        picture = observe(state)
        assert picture.shape == BREAKOUT.shape
        assert picture.dtype == bool
        assert [np.argwhere(picture[:, :, channel]).tolist() for channel in (0, 1, 2)] == [[[9, 4]], [[3, col]], [[3, col]]]


def test_without_actions_the_game_ends_in_step_6():
    state = start(np.zeros(1, np.float32))
    for place in ((4, 1), (5, 2), (6, 3), (7, 4), (8, 5), (9, 6)):
        trail = ball(state)
        state, reward, ended = after_step(state)
        assert (ball(state), reward, ended, len(bricks(state))) == (place, 0, place == (9, 6), 30)
        assert np.argwhere(observe(state)[:, :, 2]).tolist() == [list(trail)]


def test_a_broken_brick_reflects_the_ball():
    state, reward, ended = after_step(game_with_ball(4, 4, UP_RIGHT))
    assert (reward, ended, ball(state), heading(state), bool(state.struck)) == (1, False, (4, 5), DOWN_RIGHT, True)
    assert (int(state.last_row), int(state.last_col)) == (4, 4)
    assert len(bricks(state)) == 29
    assert (3, 5) not in bricks(state)
    state, reward, _ = after_step(state)
    assert (reward, ball(state), bool(state.struck)) == (0, (5, 6), False)


def test_a_ball_that_has_struck_passes_through_bricks():
    state = game_with_ball(4, 4, UP_RIGHT, struck=True)
    for place, struck in (((3, 5), True), ((2, 6), True), ((1, 7), True), ((0, 8), False)):
        state, reward, _ = after_step(state)
        assert (reward, ball(state), heading(state), bool(state.struck), len(bricks(state))) == (0, place, UP_RIGHT, struck, 30)


def test_the_ceiling():
    state, _, _ = after_step(game_with_ball(0, 4, UP_RIGHT, struck=True))
    assert (ball(state), heading(state), bool(state.struck)) == ((0, 5), DOWN_RIGHT, False)


def test_the_corner_under_the_ceiling():
    state, _, _ = after_step(game_with_ball(0, 9, UP_RIGHT))
    assert (ball(state), heading(state), int(state.last_row), int(state.last_col)) == ((0, 9), DOWN_LEFT, 0, 9)


def test_a_brick_at_the_wall():
    state, reward, _ = after_step(game_with_ball(4, 0, UP_LEFT))
    assert (reward, ball(state), heading(state), bool(state.struck)) == (1, (4, 0), DOWN_RIGHT, True)
    assert (3, 0) not in bricks(state)


def test_a_side_wall():
    state, reward, _ = after_step(game_with_ball(5, 9, DOWN_RIGHT))
    assert (reward, ball(state), heading(state)) == (0, (6, 9), DOWN_LEFT)


def test_the_near_and_the_far_catch():
    state, _, ended = after_step(game_with_ball(8, 4, DOWN_RIGHT))
    assert (ball(state), heading(state), ended) == ((8, 5), UP_RIGHT, False)
    state, _, ended = after_step(game_with_ball(8, 3, DOWN_RIGHT))
    assert (ball(state), heading(state), ended) == ((8, 4), UP_LEFT, False)


def test_the_paddle_moves_before_the_ball():
    state, _, ended = after_step(game_with_ball(8, 5, DOWN_RIGHT), RIGHT)
    assert (int(state.paddle), ball(state), heading(state), ended) == (5, (8, 6), UP_RIGHT, False)
    state, _, ended = after_step(game_with_ball(8, 5, DOWN_RIGHT))
    assert (ball(state), ended) == ((9, 6), True)


def test_the_wall_is_rebuilt_at_the_bottom_only():
    state, _, ended = after_step(game_with_ball(8, 7, DOWN_RIGHT, bricks=0))
    assert (ended, int(state.bricks)) == (True, WALL)
    state, _, ended = after_step(game_with_ball(8, 4, DOWN_RIGHT, bricks=0))
    assert (ended, int(state.bricks)) == (False, WALL)
    state, _, _ = after_step(game_with_ball(5, 5, DOWN_RIGHT, bricks=0))
    assert (ball(state), bricks(state)) == ((6, 6), set())


def test_a_catch_at_the_wall():
    state, _, ended = after_step(game_with_ball(8, 0, DOWN_LEFT, paddle=1), LEFT)
    assert (int(state.paddle), ball(state), heading(state), ended) == (0, (8, 0), UP_RIGHT, False)
    state, _, ended = after_step(game_with_ball(8, 0, DOWN_LEFT, paddle=1))
    assert (ball(state), heading(state), ended) == ((9, 0), DOWN_RIGHT, True)


def test_the_last_brick():
    state, reward, _ = after_step(game_with_ball(4, 4, UP_RIGHT, bricks=1 << 25))
    assert (reward, bricks(state)) == (1, set())


@pytest.mark.parametrize(("paddle", "action", "then"), [(0, LEFT, 0), (9, RIGHT, 9), (4, LEFT, 3), (4, 2, 4), (4, 4, 4), (4, 5, 4)])
def test_the_paddle_stays_on_the_board(paddle, action, then):
    assert int(after_step(game_with_ball(5, 5, DOWN_RIGHT, paddle=paddle), action)[0].paddle) == then


@pytest.mark.parametrize("seed", range(3))
def test_matches_the_original(seed):
    seen = play_both(BREAKOUT, seed, 3000)
    assert seen.score > 50
    assert seen.games > 100


def follow(state, rng):
    """Move the paddle under the ball or under its next column, so both catches occur."""
    aim = state.col + rng.integers(2) * (1 if state.right else -1)
    return (STAY, RIGHT, LEFT)[int(np.sign(aim - state.paddle))]


def test_matches_the_original_with_cleared_walls():
    seen = play_both(BREAKOUT, 3, 3000, choose=follow)
    walls = np.array([int(state.bricks) for state in seen.states])
    assert np.any((walls[1:] == WALL) & (walls[:-1] == 0))
