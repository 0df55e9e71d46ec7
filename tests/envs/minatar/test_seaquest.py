"""Seaquest: its rules one by one, and parity with the original."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actiongap.envs.minatar.seaquest import FISH, NO_ENEMY, SEAQUEST, SUB, seaquest
from minatar_original import original, play_both

STEADY = seaquest(ramping=False)
start, step, observe = jax.jit(SEAQUEST.start), jax.jit(SEAQUEST.step), jax.jit(SEAQUEST.observe)
steady = jax.jit(STEADY.step)
STAY, LEFT, UP, RIGHT, DOWN, FIRE = SEAQUEST.numbers
left, right = -1, 1


def row_of(row):
    """A uniform number that selects a row."""
    return (row - 0.5) / 8


def sea(bullets=(), divers=(), fish=(), subs=(), shots=(), **fields):
    """A game with the player at (4, 5), objects (row, col, heading, timers), the newer of two divers first, and other fields."""
    state = jax.tree.map(np.array, start(np.zeros(0, np.float32)))
    for slot, (row, col, heading) in enumerate(bullets):
        for leaf, value in zip(state.bullets, (True, row, col, heading), strict=True):
            leaf[slot] = value
    for slot, (row, col, heading, wait) in enumerate(divers):
        for leaf, value in zip(state.divers, (True, row, col, heading, wait), strict=True):
            leaf[slot] = value
    enemies = [(FISH, *one, 0) for one in fish] + [(SUB, *one) for one in subs]
    for slot, one in enumerate(enemies):
        for leaf, value in zip(state.enemies, one, strict=True):
            leaf[slot] = value
    for row, col, heading in shots:
        state.shots[int(heading > 0), row] |= 1 << col
    numbers = {name: np.int32(value) for name, value in ({"row": 4, "col": 5} | fields).items()}
    return jax.tree.map(jnp.asarray, state._replace(surfaced=np.bool_(False), **numbers))


def fish(state):
    kinds, *rest, _ = (np.asarray(leaf).tolist() for leaf in state.enemies)
    return sorted(one for kind, *one in map(list, zip(kinds, *rest, strict=True)) if kind == FISH)


def subs(state):
    return sorted(one for kind, *one in np.stack([np.asarray(leaf) for leaf in state.enemies], axis=1).tolist() if kind == SUB)


def divers(state):
    return [one for swims, *one in np.stack([np.asarray(leaf) for leaf in state.divers], axis=1).tolist() if swims]


def bullets(state):
    return sorted(one for flies, *one in np.stack([np.asarray(leaf) for leaf in state.bullets], axis=1).tolist() if flies)


def shots(state):
    return [
        (row, col, way) for i, way in ((0, left), (1, right)) for row in range(10) for col in range(10) if state.shots[i, row] >> col & 1
    ]


def after_step(state, action=STAY, uniforms=(0.0, 0.0, 0.0, 0.0, 0.0), rules=step):
    new, reward, ended = rules(state, np.int32(action), np.float32(uniforms))
    assert reward.dtype == np.float32
    kinds = [[(leaf.dtype, leaf.shape) for leaf in jax.tree.leaves(tree)] for tree in (new, state)]
    assert kinds[0] == kinds[1]
    return new, float(reward), bool(ended)


def layers(state):
    seen = observe(state)
    assert (seen.dtype, seen.shape) == (bool, SEAQUEST.shape)
    return [[(int(row), int(col)) for row, col in np.argwhere(seen[:, :, layer])] for layer in range(10)]


def test_surfacing_without_a_diver_ends_the_game():
    state, _, ended = after_step(start(np.zeros(0, np.float32)))
    assert (int(state.air), ended) == (200, False)
    state, _, ended = after_step(state, DOWN)
    assert (int(state.row), int(state.air), bool(state.surfaced), ended) == (1, 199, False, False)
    state, _, ended = after_step(state, UP)
    assert (int(state.air), ended) == (199, True)


def test_surfacing_with_six_divers():
    state, reward, ended = after_step(sea(row=1, diver_count=6, air=119), UP)
    assert (reward, ended, int(state.diver_count), int(state.air)) == (5, False, -1, 200)
    assert (int(state.enemy_gap), int(state.level), int(state.enemy_pause), layers(state)[8]) == (19, 1, 5, [])
    state, reward, ended = after_step(after_step(state, DOWN)[0], UP)
    assert (reward, ended, int(state.diver_count), int(state.air)) == (0, False, -2, 200)
    assert (int(state.enemy_gap), int(state.enemy_pause), int(state.level)) == (18, 4, 2)


def test_surfacing_with_some_divers():
    state = sea(row=1, diver_count=3, air=119)
    new, reward, ended = after_step(state, UP)
    assert (reward, ended, int(new.diver_count), int(new.air), layers(new)[8]) == (0, False, 2, 200, [(9, 7), (9, 8)])
    new, _, _ = after_step(state, UP, rules=steady)
    assert (int(new.diver_count), int(new.enemy_gap), int(new.enemy_pause), int(new.level)) == (2, 20, 5, 0)


def test_running_out_of_air_ends_the_game():
    state, _, ended = after_step(sea(air=1))
    assert (int(state.air), ended) == (0, False)
    state, _, ended = after_step(state)
    assert (int(state.air), ended) == (-1, True)
    state, reward, ended = after_step(sea(row=1, diver_count=6, air=0), UP)
    assert (ended, reward, int(state.diver_count), int(state.air), int(state.level)) == (True, 0, -1, 200, 1)


@pytest.mark.parametrize(("air", "cells"), [(200, 10), (199, 9), (20, 1), (19, 0), (0, 0), (-1, 0)])
def test_the_air_layer(air, cells):
    assert layers(sea(air=air))[7] == [(9, col) for col in range(cells)]


@pytest.mark.parametrize("diver_count", range(-2, 7))
def test_the_layer_of_divers_on_board(diver_count):
    assert layers(sea(diver_count=diver_count))[8] == [(9, col) for col in range(9 - max(diver_count, 0), 9)]


def test_firing():
    state, _, _ = after_step(sea(), FIRE)
    assert (bullets(state), int(state.reload)) == ([[4, 4, left]], 4)
    state, _, _ = after_step(state, FIRE)
    assert (bullets(state), int(state.reload)) == ([[4, 3, left]], 3)
    state, _, _ = after_step(sea(col=9, facing=right), FIRE)
    assert (bullets(state), int(state.reload)) == ([], 4)


def test_two_bullets_fly_at_once():
    state = sea(col=1, facing=right)
    for _ in range(6):
        state, _, _ = after_step(state, FIRE)
    assert bullets(state) == [[4, 2, right], [4, 7, right]]
    for _ in range(5):
        state, _, _ = after_step(state, FIRE)
    assert bullets(state) == [[4, 2, right], [4, 7, right]]


@pytest.mark.parametrize("col", [5, 6])
def test_a_fish_is_shot_in_its_move_or_that_of_the_bullet(col):
    state, reward, _ = after_step(sea(bullets=[(2, col, right)], fish=[(2, 7, left, 0)]))
    assert (reward, fish(state), bullets(state)) == (1, [], [])


def test_a_submarine_shot_on_its_own_move_still_shoots():
    state, reward, _ = after_step(sea(bullets=[(2, 5, right)], subs=[(2, 7, left, 0, 0)]))
    assert (reward, subs(state), bullets(state), shots(state)) == (1, [], [], [(2, 5, left)])
    state, reward, _ = after_step(sea(bullets=[(2, 6, right)], subs=[(2, 7, left, 0, 0)]))
    assert (reward, subs(state), bullets(state), shots(state)) == (1, [], [], [])


def test_submarines_shoot_ahead():
    state, _, _ = after_step(sea(subs=[(2, 2, right, 3, 0)]))
    assert (subs(state), shots(state)) == ([[2, 2, right, 2, 10]], [(2, 3, right)])
    state, _, _ = after_step(sea(subs=[(2, 9, right, 0, 0)]))
    assert (subs(state), shots(state)) == ([], [])


def test_enemies_come():
    state, _, _ = after_step(sea(enemy_due=0), uniforms=(0.4, 0.2, row_of(3), 0, 0))
    assert (subs(state), fish(state), int(state.enemy_due)) == ([[3, 0, right, 4, 9]], [], 19)
    state, _, _ = after_step(sea(subs=[(3, 5, left, 2, 5)], enemy_due=0), uniforms=(0.4, 0.9, row_of(3), 0, 0))
    assert (len(subs(state)), fish(state), int(state.enemy_due)) == (1, [], 19)
    state, _, _ = after_step(sea(subs=[(3, 5, right, 2, 5)], enemy_due=0), uniforms=(0.4, 0.9, row_of(3), 0, 0))
    assert (len(subs(state)), fish(state), int(state.enemy_due)) == (1, [[3, 0, right, 4]], 19)
    state, _, _ = after_step(sea(enemy_due=0, diver_due=0), uniforms=(0.5, 0.9, row_of(8), 0.5, row_of(4)))
    assert (fish(state), divers(state), int(state.diver_due)) == ([[8, 9, left, 4]], [[4, 9, left, 4]], 29)


def test_enemy_bullets():
    assert after_step(sea(shots=[(4, 6, left)]))[2]
    assert after_step(sea(shots=[(4, 6, left)]), RIGHT)[2]
    state, _, ended = after_step(sea(shots=[(4, 6, left)]), LEFT)
    assert (shots(state), int(state.col), ended) == ([(4, 5, left)], 4, False)
    assert after_step(sea(shots=[(4, 4, left)]), LEFT)[2]
    state, _, ended = after_step(sea(shots=[(3, 0, left), (3, 9, right), (3, 9, left)]))
    assert (shots(state), ended) == ([(3, 8, left)], False)


def test_divers_come_on_board():
    state, _, _ = after_step(sea(divers=[(4, 5, right, 0)]))
    assert (int(state.diver_count), divers(state)) == (1, [])
    state, _, _ = after_step(sea(divers=[(4, 5, right, 0)], diver_count=6))
    assert (int(state.diver_count), divers(state)) == (6, [[4, 6, right, 5]])
    state, _, _ = after_step(sea(divers=[(4, 4, right, 0)]))
    assert (int(state.diver_count), divers(state)) == (1, [])
    state, _, _ = after_step(sea(divers=[(4, 5, left, 2), (4, 5, right, 3)], diver_count=5))
    assert (int(state.diver_count), divers(state)) == (6, [[4, 5, right, 2]])
    state, _, _ = after_step(sea(divers=[(4, 5, left, 2), (4, 5, right, 3)], diver_count=-2))
    assert (int(state.diver_count), divers(state)) == (0, [])


def test_the_last_step_is_completed():
    state, reward, ended = after_step(sea(bullets=[(2, 5, right)], fish=[(4, 5, right, 0), (2, 7, left, 0)]))
    assert (reward, ended, fish(state)) == (1, True, [[4, 6, right, 5]])


def test_a_bullet_takes_one_enemy():
    shot = [(2, 4, left)]
    state, reward, _ = after_step(sea(bullets=shot, fish=[(2, 3, right, 2), (2, 3, right, 1)]))
    assert (reward, fish(state)) == (1, [[2, 3, right, 1]])
    state, reward, _ = after_step(sea(bullets=shot, subs=[(2, 3, right, 1, 5)], fish=[(2, 3, right, 2)]))
    assert (reward, fish(state), subs(state)) == (1, [], [[2, 3, right, 0, 4]])


def test_running_timers_do_not_change_when_enemies_become_faster():
    assert fish(after_step(sea(fish=[(2, 3, right, 5)], enemy_pause=4))[0]) == [[2, 3, right, 4]]


def test_the_path_of_a_fish():
    state = sea(enemy_due=0, row=8)
    seen = {}
    for number in range(1, 61):
        state, _, ended = after_step(state._replace(enemy_due=jnp.int32(20 * (number > 1))), uniforms=(0.4, 0.9, row_of(3), 0.4, row_of(1)))
        assert not ended
        seen[number] = fish(state)
    assert (seen[1], seen[6], seen[12][0][1]) == ([[3, 0, right, 4]], [[3, 1, right, 5]], 2)
    assert (seen[59], seen[60]) == ([[3, 9, right, 0]], [])


def test_a_submarine_shoots_in_its_eleventh_step():
    state = sea(enemy_due=0, row=8)
    for number in range(1, 12):
        state, _, _ = after_step(state._replace(enemy_due=jnp.int32(20 * (number > 1))), uniforms=(0.4, 0.2, row_of(3), 0, 0))
        assert shots(state) == ([] if number < 11 else [(3, subs(state)[0][1] + 1, right)])


def test_the_ramp():
    state, seen = sea(row=1), []
    for _ in range(21):
        state, _, ended = after_step(state._replace(row=jnp.int32(1), diver_count=jnp.int32(1), surfaced=jnp.bool_(False)), UP)
        assert not ended
        seen.append((int(state.enemy_gap), int(state.enemy_pause), int(state.level)))
    assert seen[:7] == [(19, 5, 1), (18, 4, 2), (17, 4, 3), (16, 3, 4), (15, 3, 5), (14, 2, 6), (13, 2, 7)]
    assert seen[-3:] == [(1, 2, 19)] * 3


def test_observation():
    things = {"bullets": [(0, 3, left)], "divers": [(7, 9, left, 1)], "fish": [(2, 0, left, 1)], "subs": [(3, 0, right, 1, 1)]}
    seen = layers(sea(**things, shots=[(5, 5, left), (5, 5, right), (6, 1, right)], air=39, diver_count=1))
    assert seen[:3] == [[(4, 5)], [(4, 6)], [(0, 3)]]
    assert seen[3:7] == [[(2, 1)], [(5, 5), (6, 1)], [(2, 0)], [(3, 0)]]
    assert seen[7:] == [[(9, 0)], [(9, 8)], [(7, 9)]]


def in_original_order(game):
    """The game with random numbers in the order of the original, which draws those of the diver first if no enemy is due."""

    def ordered(state, action, u):
        return game.step(state, action, jnp.where(state.enemy_due == 0, u, jnp.roll(u, 3)))

    return game._replace(step=ordered)


ORIGINAL_ORDER = {True: in_original_order(SEAQUEST), False: in_original_order(STEADY)}


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ramping", [True, False])
def test_matches_the_original(seed, ramping):
    seen = play_both(ORIGINAL_ORDER[ramping], seed, 3000, ramping)
    assert seen.score > 1
    assert seen.games > 10


@pytest.mark.every(3)
@pytest.mark.parametrize(("seed", "gap"), [(0, 1), (1, 1), (2, 2)])
def test_matches_the_original_with_many_enemies_and_endless_games(seed, gap):
    environment, recorder = original("seaquest", seed)
    environment.env.e_spawn_speed, environment.env.e_spawn_timer, environment.env.move_speed = gap, gap, 2
    state = start(np.zeros(0, np.float32))._replace(enemy_gap=jnp.int32(gap), enemy_due=jnp.int32(gap), enemy_pause=jnp.int32(2))
    rules, rng, most, rewards = jax.jit(ORIGINAL_ORDER[True].step), np.random.default_rng(seed), 0, []
    for _ in range(3000):
        action = int(rng.choice([STAY, LEFT, UP, RIGHT, DOWN, FIRE, FIRE]))
        theirs = environment.act(action)
        state, reward, ended = rules(state, np.int32(action), recorder.row(SEAQUEST.num_step_uniforms))
        assert (float(reward), bool(ended)) == theirs
        np.testing.assert_array_equal(observe(state), environment.state())
        most, rewards = max(most, int((state.enemies.kind != NO_ENEMY).sum())), [*rewards, float(reward)]
        environment.env.terminal = False
        if state.air < 1:
            environment.env.oxygen, state = 200, state._replace(air=jnp.int32(200))
    assert most > 20 // gap
    assert max(rewards) > 1
