"""Space Invaders: its rules one by one, and parity with the original."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actiongap.envs.minatar.space_invaders import SPACE_INVADERS, space_invaders
from minatar_original import play_both
from minatar_player import lookahead_policy

STEADY = space_invaders(ramping=False)
start, step, observe = jax.jit(SPACE_INVADERS.start), jax.jit(SPACE_INVADERS.step), jax.jit(SPACE_INVADERS.observe)
steady = jax.jit(STEADY.step)
STAY, LEFT, RIGHT, FIRE = SPACE_INVADERS.numbers
NO_CHANCE = np.zeros(0, np.float32)
BLOCK = [(row, col) for row in range(4) for col in range(2, 8)]


def words(cells):
    rows = np.zeros(10, np.int32)
    for row, col in cells:
        rows[row] |= 1 << col
    return rows


def cells(board):
    return [(row, col) for row in range(10) for col in range(10) if int(board[row]) >> col & 1]


def field(aliens=BLOCK, bullets=(), shots=(), **numbers):
    """A new game with these cells (row, col) and other fields."""
    boards = {"aliens": words(aliens), "bullets": words(bullets), "shots": words(shots)}
    state = start(NO_CHANCE)._replace(**boards, **{name: np.int32(value) for name, value in numbers.items()})
    return jax.tree.map(jnp.asarray, state)


def after_step(state, action=STAY, rules=step):
    new, reward, ended = rules(state, np.int32(action), NO_CHANCE)
    assert reward.dtype == np.float32
    assert [(leaf.dtype, leaf.shape) for leaf in new] == [(leaf.dtype, leaf.shape) for leaf in state]
    return new, float(reward), bool(ended)


def test_a_new_game():
    state = field()
    assert (cells(state.aliens), cells(state.bullets), cells(state.shots)) == (BLOCK, [], [])
    assert (state.cannon, state.heading, state.longest, state.march, state.aim, state.reload, state.level) == (5, -1, 12, 12, 10, 0, 0)


def test_without_actions_the_game_ends_in_step_17():
    state, ended = field(), False
    for number in range(1, 18):
        state, _, ended = after_step(state)
        assert ended == (number == 17)
        if number == 10:
            assert cells(state.shots) == []
        if number == 11:
            assert (cells(state.shots), int(state.aim)) == ([(3, 5)], 9)
        if number == 12:
            assert cells(state.aliens) == BLOCK
        if number == 13:
            assert (cells(state.aliens)[0], int(state.march)) == ((0, 1), 11)


def test_a_bullet_hits_in_its_sixth_step():
    state = field()
    for row, reload in zip((8, 7, 6, 5, 4), (4, 3, 2, 1, 0), strict=True):
        state, reward, _ = after_step(state, FIRE)
        assert (cells(state.bullets), int(state.reload), reward) == ([(row, 5)], reload, 0)
    state, reward, _ = after_step(state, FIRE)
    assert (reward, len(cells(state.aliens)), cells(state.bullets), int(state.reload)) == (1, 23, [(8, 5)], 4)


def test_the_block_drops_at_a_wall():
    new, _, ended = after_step(field([(5, 0), (2, 3)], march=0))
    assert (cells(new.aliens), int(new.heading), int(new.march), ended) == ([(3, 3), (6, 0)], 1, 1, False)
    new, _, ended = after_step(field([(5, 9), (2, 3)], march=0, heading=1))
    assert (cells(new.aliens), int(new.heading), int(new.march), ended) == ([(3, 3), (6, 9)], -1, 1, False)
    new, _, ended = after_step(field([(5, 9), (2, 3)], march=0, heading=-1))
    assert (cells(new.aliens), int(new.heading)) == ([(2, 2), (5, 8)], -1)


def test_no_alien_may_drop_out_of_the_bottom_row():
    new, _, ended = after_step(field([(9, 0), (2, 3)], march=0))
    assert (cells(new.aliens), ended) == ([(0, 0), (3, 3)], True)


def test_an_alien_at_the_cannon_ends_the_game():
    assert after_step(field([(9, 6)]), RIGHT)[2]
    new, _, ended = after_step(field([(9, 6)], march=0))
    assert (cells(new.aliens), ended) == ([(9, 5)], True)
    new, _, ended = after_step(field([(9, 5)], march=0))
    assert (cells(new.aliens), ended) == ([(9, 4)], True)
    new, _, ended = after_step(field([(9, 5), (1, 1)]), LEFT)
    assert (int(new.cannon), ended) == (4, False)


def test_the_nearest_alien_shoots():
    aliens = [(3, 4), (5, 4), (7, 6)]
    assert cells(after_step(field(aliens, aim=0))[0].shots) == [(5, 4)]
    new, _, _ = after_step(field(aliens, aim=0), RIGHT)
    assert (int(new.cannon), cells(new.shots), int(new.aim)) == (6, [(7, 6)], 9)


def test_an_alien_shoots_and_is_hit():
    new, reward, _ = after_step(field([(3, 5), (0, 0)], [(4, 5)], aim=0))
    assert (reward, cells(new.aliens), cells(new.shots)) == (1, [(0, 0)], [(3, 5)])


def test_a_bullet_under_an_alien_that_drops_misses():
    new, reward, _ = after_step(field([(3, 0)], [(4, 0)], march=0))
    assert (reward, cells(new.aliens), cells(new.bullets)) == (0, [(4, 0)], [(3, 0)])


def test_an_alien_moves_into_a_bullet():
    new, reward, _ = after_step(field([(3, 5), (3, 7)], [(4, 4)], march=0, cannon=0))
    assert (reward, cells(new.aliens), int(new.march)) == (1, [(3, 6)], 1)


def test_a_cleared_block_is_followed_by_a_faster_one():
    state = field([(3, 5)], [(4, 5), (8, 1)], [(2, 2)], heading=1, march=3, cannon=0, reload=2)
    new, reward, ended = after_step(state)
    assert (reward, ended, cells(new.aliens), cells(new.bullets), cells(new.shots)) == (1, False, BLOCK, [(7, 1)], [(3, 2)])
    assert (new.heading, new.march, new.aim, new.reload, new.longest, new.level) == (1, 2, 9, 1, 11, 1)
    new, _, _ = after_step(state, rules=steady)
    assert (cells(new.aliens), int(new.longest), int(new.level)) == (BLOCK, 12, 0)
    new, _, _ = after_step(state._replace(longest=jnp.int32(6), level=jnp.int32(6)))
    assert (cells(new.aliens), int(new.longest), int(new.level)) == (BLOCK, 6, 6)


def test_a_new_block_may_move_at_once():
    new, reward, _ = after_step(field([(3, 6)], [(4, 5)], march=0, cannon=0))
    assert (reward, cells(new.aliens), int(new.march)) == (1, BLOCK, 0)
    assert cells(after_step(new)[0].aliens) == [(row, col - 1) for row, col in BLOCK]


def test_a_bullet_that_reaches_the_cannon_ends_the_game():
    assert after_step(field(shots=[(8, 5)]))[2]
    new, _, ended = after_step(field(shots=[(8, 5)]), RIGHT)
    assert (cells(new.shots), ended) == ([(9, 5)], False)
    assert after_step(field(shots=[(8, 6)]), RIGHT)[2]
    new, _, ended = after_step(field(shots=[(9, 6)]), RIGHT)
    assert (cells(new.shots), ended) == ([], False)


def test_the_last_step_is_completed():
    new, reward, ended = after_step(field([(3, 1), (2, 2)], [(4, 1), (3, 2)], [(8, 5)]))
    assert (reward, ended, cells(new.aliens), int(new.longest)) == (2, True, BLOCK, 11)


def test_a_shot_from_the_bottom_row_is_harmless():
    new, _, ended = after_step(field([(9, 6), (2, 1)], aim=0))
    assert (cells(new.shots), ended) == ([(9, 6)], False)
    new, _, ended = after_step(new)
    assert (cells(new.shots), ended) == ([], False)


def test_the_cannon_needs_five_steps():
    new, _, _ = after_step(field(reload=1), FIRE)
    assert (cells(new.bullets), int(new.reload)) == ([], 0)
    assert cells(after_step(new, FIRE)[0].bullets) == [(8, 5)]


def test_the_cannon_stops_at_the_edges():
    assert after_step(field(cannon=0), LEFT)[0].cannon == 0
    assert after_step(field(cannon=9), RIGHT)[0].cannon == 9


@pytest.mark.parametrize(("heading", "left", "right"), [(-1, [(2, 9)], []), (1, [], [(2, 9)])])
def test_observation(heading, left, right):
    seen = observe(field([(2, 9)], [(4, 0)], [(6, 6)], cannon=0, heading=heading))
    assert (seen.dtype, seen.shape) == (bool, SPACE_INVADERS.shape)
    layers = [[(int(row), int(col)) for row, col in np.argwhere(seen[:, :, layer])] for layer in range(6)]
    assert layers == [[(9, 0)], [(2, 9)], left, right, [(4, 0)], [(6, 6)]]


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ramping", [True, False])
def test_matches_the_original(seed, ramping):
    seen = play_both(SPACE_INVADERS if ramping else STEADY, seed, 3000, ramping)
    assert seen.score > 30
    assert seen.games > 10


def test_matches_the_original_when_it_is_hard():
    seen = play_both(SPACE_INVADERS, 0, 3000, choose=lookahead_policy(SPACE_INVADERS))
    assert seen.score > 300
    assert max(int(state.level) for state in seen.states) == 6
