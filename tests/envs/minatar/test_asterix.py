"""Asterix: its rules one by one, and parity with the original."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actiongap.envs.minatar.asterix import ASTERIX, asterix
from minatar_original import play_both

STEADY = asterix(ramping=False)
start, step, observe = jax.jit(ASTERIX.start), jax.jit(ASTERIX.step), jax.jit(ASTERIX.observe)
every_action = jax.jit(jax.vmap(ASTERIX.step, in_axes=(None, 0, None)))
STAY, LEFT, UP, RIGHT, DOWN = ASTERIX.numbers
FIRE = 5


def slot_of(k, n):
    """A uniform number that selects slot k of n free slots."""
    return (k + 0.5) / n


def board(*objects, **fields):
    """A new game with objects (row, col, "left" or "right", "enemy" or "treasure"), and other fields."""
    state = start(np.zeros(0, np.float32))
    present, cols, right, treasure = (np.array(leaf) for leaf in (state.present, state.cols, state.right, state.treasure))
    for row, col, way, kind in objects:
        present[row - 1], cols[row - 1], right[row - 1], treasure[row - 1] = True, col, way == "right", kind == "treasure"
    state = state._replace(present=present, cols=cols, right=right, treasure=treasure)
    return jax.tree.map(jnp.asarray, state._replace(**{name: np.int32(value) for name, value in fields.items()}))


def objects(state):
    """The objects on the board, as `board` takes them."""
    return [
        (slot + 1, int(state.cols[slot]), "right" if state.right[slot] else "left", "treasure" if state.treasure[slot] else "enemy")
        for slot in range(8)
        if state.present[slot]
    ]


def after_step(state, action=STAY, uniforms=(0.0, 0.0, 0.0)):
    new, reward, ended = step(state, np.int32(action), np.float32(uniforms))
    assert reward.dtype == np.float32
    assert [(leaf.dtype, leaf.shape) for leaf in new] == [(leaf.dtype, leaf.shape) for leaf in state]
    return new, float(reward), bool(ended)


def player(state):
    return int(state.row), int(state.col)


def test_the_first_object_appears_in_step_11_and_moves_at_once():
    state = board()
    assert player(state) == (5, 5)
    for _ in range(10):
        state, reward, ended = after_step(state)
        assert (reward, ended, objects(state)) == (0, False, [])
    assert (int(state.spawn_in), int(state.move_in)) == (0, 0)
    state, _, _ = after_step(state, uniforms=(0.4, 0.5, slot_of(3, 8)))
    assert objects(state) == [(4, 1, "right", "enemy")]
    assert (int(state.spawn_in), int(state.move_in)) == (9, 4)


def test_an_object_may_appear_on_the_player():
    state = board(row=5, col=0, spawn_in=0)
    new, reward, ended = after_step(state, uniforms=(0.4, 0.2, slot_of(4, 8)))
    assert (objects(new), reward, ended) == ([], 1, False)
    new, reward, ended = after_step(state, uniforms=(0.4, 0.9, slot_of(4, 8)))
    assert (objects(new), reward, ended) == ([(5, 0, "right", "enemy")], 0, True)
    new, reward, ended = after_step(state, RIGHT, uniforms=(0.4, 0.9, slot_of(4, 8)))
    assert (objects(new), reward, ended, player(new)) == ([(5, 0, "right", "enemy")], 0, False, (5, 1))


def test_no_object_appears_if_all_slots_are_full():
    full = [(row, 7, "left", "enemy") for row in range(1, 9)]
    state, reward, ended = after_step(board(*full, spawn_in=0), uniforms=(0.1, 0.1, 0.99))
    assert (objects(state), int(state.spawn_in), reward, ended) == (full, 9, 0, False)


@pytest.mark.parametrize("k", range(3))
def test_free_slots_are_counted_from_the_top(k):
    taken = [(row, 7, "left", "enemy") for row in (1, 3, 4, 6, 8)]
    state, _, _ = after_step(board(*taken, spawn_in=0), uniforms=(0.9, 0.2, slot_of(k, 3)))
    assert set(objects(state)) - set(taken) == {((2, 5, 7)[k], 9, "left", "treasure")}


def test_thresholds_of_heading_and_kind():
    state, _, _ = after_step(board(spawn_in=0), uniforms=(0.5, 1 / 3, 0.0))
    assert objects(state) == [(1, 9, "left", "enemy")]
    state, _, _ = after_step(board(spawn_in=0), uniforms=(np.nextafter(np.float32(0.5), 0), np.nextafter(np.float32(1 / 3), 0), 0.0))
    assert objects(state) == [(1, 0, "right", "treasure")]


def test_an_enemy_that_was_touched_moves_on():
    state, reward, ended = after_step(board((5, 6, "right", "enemy"), move_in=0), RIGHT)
    assert (reward, ended, player(state), objects(state)) == (0, True, (5, 6), [(5, 7, "right", "enemy")])


def test_an_object_may_move_onto_the_player():
    state, reward, ended = after_step(board((5, 6, "left", "enemy"), move_in=0))
    assert (reward, ended, objects(state)) == (0, True, [(5, 5, "left", "enemy")])
    state, reward, ended = after_step(board((5, 6, "left", "treasure"), move_in=0))
    assert (reward, ended, objects(state)) == (1, False, [])


def test_player_and_treasure_do_not_swap():
    state, reward, ended = after_step(board((5, 6, "left", "treasure"), move_in=0), RIGHT)
    assert (reward, ended, objects(state)) == (1, False, [])


def test_an_enemy_follows_without_touching():
    state, reward, ended = after_step(board((5, 6, "left", "enemy"), move_in=0), LEFT)
    assert (reward, ended, player(state), objects(state)) == (0, False, (5, 4), [(5, 5, "left", "enemy")])


@pytest.mark.parametrize(("col", "way"), [(9, "right"), (0, "left")])
def test_objects_leave_at_the_edge(col, way):
    state, reward, ended = after_step(board((5, col, way, "treasure"), move_in=0))
    assert (reward, ended, objects(state)) == (0, False, [])


def test_the_player_stays_in_the_eight_rows():
    for place, action, then in [
        ((1, 0), UP, (1, 0)),
        ((1, 0), LEFT, (1, 0)),
        ((8, 9), DOWN, (8, 9)),
        ((8, 9), RIGHT, (8, 9)),
        ((5, 5), FIRE, (5, 5)),
        ((5, 5), UP, (4, 5)),
        ((5, 5), DOWN, (6, 5)),
    ]:
        assert player(after_step(board(row=place[0], col=place[1]), action)[0]) == then


def test_the_ramp():
    harder = {102: (9, 5), 204: (8, 4), 306: (7, 4), 408: (6, 3), 510: (5, 3), 612: (4, 2), 714: (3, 2), 816: (2, 1), 918: (1, 1)}
    state, at = board(), (10, 5)
    for number in range(1, 1101):
        state, _, _ = after_step(state)
        at = harder.get(number, at)
        assert (int(state.spawn_every), int(state.move_every), int(state.level)) == (*at, sum(mark <= number for mark in harder))
    assert int(state.ramp_in) == 100


def test_the_ramp_continues_in_the_last_step():
    state, _, ended = after_step(board((5, 6, "right", "enemy"), ramp_in=-1, level=1), RIGHT)
    assert (ended, int(state.spawn_every), int(state.move_every), int(state.level), int(state.ramp_in)) == (True, 9, 4, 2, 100)


def test_without_the_ramp_nothing_changes():
    state, _, _ = STEADY.step(board(ramp_in=-1, level=1), STAY, np.zeros(3, np.float32))
    assert (int(state.spawn_every), int(state.move_every), int(state.level), int(state.ramp_in)) == (10, 5, 1, -1)


def test_observation():
    picture = np.asarray(observe(board((5, 0, "right", "enemy"), (6, 8, "left", "treasure"), (7, 3, "right", "enemy"))))
    assert picture.shape == ASTERIX.shape
    assert picture.dtype == bool
    channels = [np.argwhere(picture[:, :, channel]).tolist() for channel in range(4)]
    assert channels == [[[5, 5]], [[5, 0], [7, 3]], [[6, 9], [7, 2]], [[6, 8]]]


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ramping", [True, False])
def test_matches_the_original(seed, ramping):
    seen = play_both(ASTERIX if ramping else STEADY, seed, 3000, ramping)
    assert seen.score > 5
    assert seen.games > 10


def dodge(state, rng):
    """Avoid enemies, touch treasures within reach, and otherwise stay near the middle."""
    new, reward, ended = every_action(state, np.arange(5, dtype=np.int32), np.ones(3, np.float32))
    wishes = np.asarray(reward) - 9.0 * np.asarray(ended) - 0.1 * np.abs(np.asarray(new.col) - 4.5)
    return int(np.argmax(wishes + 0.2 * rng.random(5)))


def test_matches_the_original_when_it_is_hard():
    seen = play_both(ASTERIX, 7, 3000, choose=dodge)
    assert seen.score > 20
    assert max(int(state.level) for state in seen.states) == 9
