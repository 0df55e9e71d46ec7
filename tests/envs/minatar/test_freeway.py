"""Freeway: its rules one by one, and parity with the original."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actiongap.envs.minatar.freeway import FREEWAY
from minatar_original import play_both

start, step, observe = jax.jit(FREEWAY.start), jax.jit(FREEWAY.step), jax.jit(FREEWAY.observe)
STAY, UP, DOWN = FREEWAY.numbers


def uniforms_for(sizes, headings):
    """The uniform numbers for given slownesses and headings."""
    return np.concatenate([(np.broadcast_to(sizes, 8) - 0.5) / 5, np.broadcast_to(headings, 8)]).astype(np.float32)


def road(cars=(), **fields):
    """A game with cars {row: (col, wait, speed)}, all others waiting far from the chicken, and other fields."""
    state = start(uniforms_for(5, 0.9))
    cols, waits, right, slow = (np.array(leaf) for leaf in (state.cols, state.waits, state.right, state.slow))
    for row, (col, wait, speed) in dict(cars).items():
        cols[row - 1], waits[row - 1], right[row - 1], slow[row - 1] = col, wait, speed > 0, abs(speed)
    state = state._replace(cols=cols, waits=waits, right=right, slow=slow)
    return jax.tree.map(jnp.asarray, state._replace(**{name: np.int32(value) for name, value in fields.items()}))


def speeds(state):
    """Signed slowness of the cars, positive to the right."""
    return jnp.where(state.right, state.slow, -state.slow).tolist()


def car(state, row):
    return int(state.cols[row - 1]), int(state.waits[row - 1]), speeds(state)[row - 1]


def after_step(state, action=STAY, uniforms=None):
    new, reward, ended = step(state, np.int32(action), uniforms_for(1, 0.9) if uniforms is None else uniforms)
    assert reward.dtype == np.float32
    assert [(leaf.dtype, leaf.shape) for leaf in new] == [(leaf.dtype, leaf.shape) for leaf in state]
    return new, float(reward), bool(ended)


FIRST = uniforms_for((1, 2, 3, 4, 5, 1, 2, 3), (0.9, 0.1) * 4)


def test_a_new_game():
    state = start(FIRST)
    assert state.cols.tolist() == [0] * 8
    assert state.waits.tolist() == [1, 2, 3, 4, 5, 1, 2, 3]
    assert speeds(state) == [1, -2, 3, -4, 5, -1, 2, -3]
    assert (int(state.row), int(state.pause), int(state.clock)) == (9, 3, 2500)


def test_going_up_and_cars_of_several_speeds():
    state, seen = start(FIRST), []
    for _ in range(8):
        state, _, _ = after_step(state, UP)
        seen.append((int(state.row), int(state.pause), *(int(state.cols[row - 1]) for row in (1, 6, 2))))
    rows, pauses, first, sixth, second = map(list, zip(*seen, strict=True))
    assert rows == [9, 9, 9, 8, 8, 8, 7, 7]
    assert pauses == [2, 1, 0, 2, 1, 0, 2, 1]
    assert first == [0, 1, 1, 2, 2, 3, 3, 4]
    assert sixth == [0, 9, 9, 8, 8, 7, 7, 6]
    assert second == [0, 0, 9, 9, 9, 8, 8, 8]


def test_a_crossing_changes_all_speeds_before_the_cars_move():
    state = road(dict.fromkeys(range(1, 9), (6, 0, 1)), row=1, pause=0)
    state, reward, ended = after_step(state, UP, uniforms_for(5, 0.4))
    assert (reward, ended, int(state.row), int(state.pause)) == (1, False, 9, 2)
    assert [car(state, row) for row in range(1, 9)] == [(6, 4, -5)] * 8


@pytest.mark.parametrize(
    ("fields", "before", "action", "row", "pause", "after"),
    [
        ({"row": 9, "pause": 0}, (4, 0, 1), UP, 9, 2, (5, 1, 1)),
        ({"row": 8, "pause": 1}, (3, 0, 1), STAY, 9, 0, (4, 1, 1)),
        ({"row": 8, "pause": 2}, (4, 0, -2), STAY, 9, 1, (3, 2, -2)),
        ({"row": 8, "pause": 0}, (3, 0, 1), UP, 7, 2, (4, 1, 1)),
        ({"row": 8, "pause": 0}, (4, 3, 5), STAY, 9, 0, (4, 2, 5)),
        ({"row": 8, "pause": 1}, (5, 0, 1), UP, 8, 0, (6, 1, 1)),
    ],
    ids=["onto a car that leaves", "a car comes", "a car leaves", "away from a car that comes", "a car stands", "beside a car"],
)
def test_meeting_a_car(fields, before, action, row, pause, after):
    state, reward, ended = after_step(road({8: before}, **fields), action)
    assert (int(state.row), int(state.pause), car(state, 8), reward, ended) == (row, pause, after, 0, False)


def test_cars_wrap_around():
    state, _, _ = after_step(road({3: (9, 0, 4), 4: (0, 0, -4)}))
    assert (car(state, 3), car(state, 4)) == ((0, 4, 4), (9, 4, -4))


def test_going_down_at_the_bottom_starts_the_pause():
    state, _, _ = after_step(road(row=9, pause=0), DOWN)
    assert (int(state.row), int(state.pause)) == (9, 2)


@pytest.mark.parametrize("action", [STAY, 1, 3, 5])
def test_other_actions_do_nothing(action):
    state, _, _ = after_step(road(row=5, pause=0), action)
    assert (int(state.row), int(state.pause)) == (5, 0)


def test_the_game_ends_with_step_2501():
    def go(state, _):
        state, _, ended = FREEWAY.step(state, STAY, jnp.zeros(16))
        return state, ended

    _, ended = jax.lax.scan(go, start(FIRST), length=2501)
    assert np.flatnonzero(ended).tolist() == [2500]


def test_a_crossing_in_the_last_step_counts():
    state, reward, ended = after_step(road(row=1, pause=0, clock=0), UP)
    assert (reward, ended, int(state.clock)) == (1, True, -1)


def test_observation():
    for before, channel, behind in (((0, 4, 4), 5, 9), ((9, 5, -5), 6, 0), ((7, 1, 1), 2, 6)):
        picture = np.asarray(observe(road({3: before})))
        assert picture.shape == FREEWAY.shape
        assert picture.dtype == bool
        assert np.argwhere(picture[3]).tolist() == sorted([[before[0], 1], [behind, channel]])
        assert np.argwhere(picture[:, :, 0]).tolist() == [[9, 4]]
        assert int(picture.sum()) == 17


@pytest.mark.parametrize("seed", range(2))
def test_matches_the_original(seed):
    assert play_both(FREEWAY, seed, 3000).games == 1


@pytest.mark.parametrize("seed", range(2))
def test_matches_the_original_with_crossings(seed):
    assert play_both(FREEWAY, seed, 3000, choose=lambda _, rng: int(rng.choice([UP, UP, UP, UP, DOWN, STAY]))).score > 10
