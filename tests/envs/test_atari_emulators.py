"""Emulators beside raw ALE, whose frames are skipped, pooled, made grey and resized here a second time."""

import csv
from importlib.resources import files

import numpy as np
import pytest

from actiongap.envs.atari import GAMES, AtariEpisode, EmulatorGroups, Emulators, StepResult

pytest.importorskip("ale_py", reason="Atari needs ale-py: pip install 'actiongap[atari]'")

from raw_ale import LIMIT, RawGame, small, waits

ACTIONS = {
    line["rom"]: int(line["minimal_actions"])
    for line in csv.DictReader((files("actiongap") / "data" / "atari_games.csv").read_text(encoding="utf-8").splitlines())
}
"""How many each game has."""


def row(seen: StepResult, i: int):
    return tuple(field[i].item() for field in seen[1:])


def choices(games, steps: int) -> np.ndarray:
    """Actions for each game, by numbers that it has."""
    return np.random.default_rng(0).integers(0, [ACTIONS[game] for game in games], (steps, len(games)))


def played(emulators: Emulators, seeds, actions) -> list[StepResult]:
    shown = [emulators.begin(seeds)]
    for each in actions:
        emulators.send(each)
        shown.append(emulators.receive())
    return shown


def alike(one: list[StepResult], i: int, other: list[StepResult], j: int) -> bool:
    """Whether emulator i of some went through what emulator j of others did."""
    return all(all(np.array_equal(a[i], b[j]) for a, b in zip(x, y, strict=True)) for x, y in zip(one, other, strict=True))


def beside_raw(
    games, seeds, actions, shown: list[StepResult], repeat_action_probability: float, limit: int
) -> tuple[list[RawGame], np.ndarray]:
    """Go through what emulators showed with raw ALE: the raw games, and all that `RawGame.step` told.

    Pictures are compared in every fourth step and whenever something happens, for to resize them takes long.
    """
    raw, told = [RawGame(game, seed, repeat_action_probability, limit) for game, seed in zip(games, seeds, strict=True)], []
    for step, seen in enumerate(shown):
        for i, game in enumerate(raw):
            told.append(game.step(actions[step - 1, i]) if step else game.begin())
            assert row(seen, i) == told[-1], (games[i], step)
            if step % 4 == 0 or any(told[-1]):
                assert np.array_equal(seen.frame[i], small(game.pooled)), (games[i], step)
    return raw, np.array(told)


@pytest.fixture(scope="module")
def all_games():
    with Emulators(GAMES, repeat_action_probability=0.25, limit=LIMIT) as emulators:
        yield emulators


@pytest.fixture(scope="module")
def all_shown(all_games):
    """What all games show, each with its place as its seed."""
    return played(all_games, np.arange(60), choices(GAMES, LIMIT // 4 + 5))


@pytest.fixture(scope="module")
def breakouts():
    with Emulators(["breakout"] * 2, repeat_action_probability=0.25) as emulators:
        yield emulators


@pytest.mark.long
def test_all_games_are_those_of_raw_ale_until_their_time_is_up(all_shown):
    """Sticky actions, pooling, grey, resizing, no-ops, raw rewards, lost lives, time limits and the game after, step by step."""
    raw, told = beside_raw(GAMES, np.arange(60), choices(GAMES, LIMIT // 4 + 5), all_shown, 0.25, LIMIT)
    assert {game.waited for game in raw} >= {0, 29}
    assert {game.ale.getScreenDims() for game in raw} > {(210, 160)}
    assert {name: len(game.actions) for name, game in zip(GAMES, raw, strict=True)} == ACTIONS
    _, lost, over, cut, first = told.sum(axis=0)
    assert over + cut >= 60
    assert first == 60 + over + cut
    assert min(lost, cut) > 20
    assert told[:, 0].min() < -1
    assert told[:, 0].max() > 100


@pytest.mark.every(2)
@pytest.mark.parametrize("repeat_action_probability", [0.25, 0.0])
def test_games_that_are_over_are_so_in_raw_ale(repeat_action_probability):
    """Lost lives, the end, the step after it and the next game; in Bank Heist a life is lost and none is left, and the game goes on."""
    games = ["asterix", "bank_heist", "berzerk", "breakout", "montezuma_revenge", "qbert", "road_runner", "space_invaders"]
    seeds, actions = np.arange(8), choices(games, 520)
    with Emulators(games, repeat_action_probability) as emulators:
        raw, told = beside_raw(games, seeds, actions, played(emulators, seeds, actions), repeat_action_probability, 108_000)
    assert sum(game.games > 1 for game in raw) >= 6
    _, lost, over, cut, first = told.sum(axis=0)
    assert lost > over > 8
    assert cut == 0
    assert first in (8 + over, 8 + over - 1)


@pytest.mark.long
def test_a_seed_repeats_and_two_seeds_differ_in_every_game(all_games, all_shown):
    actions = choices(GAMES, 110)
    again, other = (played(all_games, seeds, actions) for seeds in (np.arange(60), np.arange(1000, 1060)))
    once = all_shown[: len(again)]
    assert [game for i, game in enumerate(GAMES) if not alike(once, i, again, i)] == []
    assert [game for i, game in enumerate(GAMES) if all((x.frame[i] == y.frame[i]).all() for x, y in zip(once, other, strict=True))] == []


def test_emulators_do_not_share_their_luck_with_actions(breakouts):
    """Without a seed all would draw the same sticky actions; so there is no way to begin without."""
    by_waits = {}
    for seed in range(60):
        by_waits.setdefault(next(waits(seed)), []).append(seed)
    first, second, *_ = max(by_waits.values(), key=len)
    shown = played(breakouts, [first, second], np.repeat(choices(["breakout"], 60), 2, axis=1))
    assert (shown[0].frame[0] == shown[0].frame[1]).all()
    assert (shown[-1].frame[0] != shown[-1].frame[1]).any()
    with pytest.raises(ValueError, match="seeds are from 0 to 2,147,483,647"):
        breakouts.begin([1, -1])


def test_a_lost_life_does_not_begin_the_game_anew(breakouts):
    shown = played(breakouts, [1, 2], choices(breakouts.games, 600))
    for i in range(2):
        events = "".join("l" if seen.life_lost[i] else "o" if seen.over[i] else "f" if seen.first[i] else "" for seen in shown)
        # Five lives: four are lost on the way, with the fifth the game is over, and the next step begins another.
        assert events.startswith("fllllofllllo")


def test_the_step_after_a_game_uses_no_action(breakouts):
    actions = np.repeat(choices(["breakout"], 400), 2, axis=1)
    shown = played(breakouts, [3, 3], actions)
    begun = np.flatnonzero([seen.first[0] for seen in shown])[1:]
    assert len(begun) >= 2
    actions[begun - 1, 1] = 3 - actions[begun - 1, 0]
    changed = played(breakouts, [3, 3], actions)
    assert alike(changed, 0, changed, 1)
    assert all(changed[k].reward[0] == 0 and not (changed[k].over | changed[k].cut | changed[k].life_lost).any() for k in begun)
    actions[begun[0], 1] = 3 - actions[begun[0], 0]
    assert not alike(changed, 0, played(breakouts, [3, 3], actions), 1)


def test_nobody_fires_for_the_player(breakouts):
    """The ball of Breakout is not in play until the player fires, and so no life can be lost."""
    assert not any(seen.life_lost.any() or seen.over.any() for seen in played(breakouts, [1, 2], np.zeros((150, 2), int)))


def test_a_new_game_shows_its_own_frame_and_nothing_of_the_last(breakouts):
    """Frames come one at a time: no stack is padded, and none reaches into the game before."""
    shown = played(breakouts, [4, 5], choices(breakouts.games, 500))
    raw = [RawGame("breakout", seed, 0.25, 108_000) for seed in (4, 5)]
    begun = 0
    for seen, actions in zip(shown, [None, *choices(breakouts.games, 500)], strict=True):
        for i, game in enumerate(raw):
            if actions is None or seen.first[i]:
                game.begin()
                np.testing.assert_array_equal(seen.frame[i], small(game.screen()))
                begun += 1
            else:
                game.step(actions[i])
    assert begun >= 5


def test_threads_places_and_what_was_before_change_nothing(breakouts):
    """Games are built one after the other and begin all at once, whatever stands beside them."""
    games, seeds = ["pong", "breakout", "asterix", "breakout", "pong"], np.array([7, 1, 9, 2, 8])
    actions = choices(games, 120)
    with (
        Emulators(games, repeat_action_probability=0.25, threads=1) as one,
        Emulators(games[::-1], repeat_action_probability=0.25, threads=3) as many,
    ):
        shown, mirrored = played(one, seeds, actions), played(many, seeds[::-1], actions[:, ::-1])
        played(one, seeds + 50, actions[:30])
        one.send(actions[0])
        again = played(one, seeds, actions)
    assert all(alike(shown, i, mirrored, 4 - i) and alike(shown, i, again, i) for i in range(5))
    alone = played(breakouts, seeds[[1, 3]], actions[:, [1, 3]])
    assert alike(shown, 1, alone, 0)
    assert alike(shown, 3, alone, 1)


def test_what_was_seen_stays(breakouts):
    seen = breakouts.begin([1, 2])
    frame = seen.frame.copy()
    for _ in range(20):
        breakouts.send([1, 1])
        breakouts.receive()
    assert (seen.frame == frame).all()


def test_a_game_is_cut_short_when_its_time_is_up_and_not_over():
    with Emulators(["pong", "breakout"], repeat_action_probability=0.25, limit=200) as emulators:
        shown = played(emulators, [1, 2], np.zeros((102, 2), int))
    assert [k for k, seen in enumerate(shown) if seen.cut.all()] == [50, 101]
    assert [k for k, seen in enumerate(shown) if seen.first.all()] == [0, 51, 102]
    assert not any(seen.over.any() for seen in shown)


@pytest.mark.parametrize("name", ["breakout", "carnival"])
def test_pictures_are_of_the_game_that_is_played(name):
    console = AtariEpisode(name, repeat_action_probability=0.25, seed=3, limit=402)
    grey, colour = RawGame(name, 3, 0.25, 402), RawGame(name, 3, 0.25, 402, colour=True)
    grey.begin()
    colour.begin()
    cut = False
    for [action] in choices([name], 120):
        np.testing.assert_array_equal(console.frame, small(grey.pooled))
        np.testing.assert_array_equal(console.picture, colour.pooled)
        reward, _, over, cut, _ = grey.step(action)
        colour.step(action)
        assert console.step(action) == (reward, over, cut)
        if cut:
            break
    assert cut
    with pytest.raises(ValueError, match="the game is over: make another"):
        console.step(0)


def test_what_cannot_be_emulated_is_refused_in_a_sentence(breakouts):
    for arguments, sentence in [
        (([], 0.25), "there are no games to emulate"),
        ((["pong"], 0.25, 0), "0 threads cannot emulate anything"),
        ((["pong"], 1.5), "repeat_action_probability is 1.5"),
        ((["pnog"], 0.25), "did you mean atari/pong"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            Emulators(*arguments)
    with pytest.raises(ValueError, match="cannot be cut short after 0 frames"):
        Emulators(["pong"], 0.25, limit=0)
    with pytest.raises(ValueError, match="a whole number for each of the 2 emulators"):
        breakouts.begin([1])
    with pytest.raises(ValueError, match=r"seeds are from .* take them modulo"):
        breakouts.begin([1, 2**31])
    breakouts.begin([1, 2])
    with pytest.raises(ValueError, match="call send before receive"):
        breakouts.receive()
    for actions in ([1], [0.0, 1.0]):
        with pytest.raises(ValueError, match="a whole number for each of the 2 emulators"):
            breakouts.send(actions)
    for actions in ([0, 4], [0, -1]):
        with pytest.raises(ValueError, match="of emulator 1 is none of breakout's: they are 0 to 3"):
            breakouts.send(actions)
    breakouts.send([0, 3])
    with pytest.raises(ValueError, match="are stepping: call receive before send"):
        breakouts.send([0, 3])
    breakouts.receive()


def test_emulators_are_used_from_begin_to_close():
    emulators = Emulators(["pong"], 0.25)
    with pytest.raises(ValueError, match="have not begun: call begin before send"):
        emulators.send([0])
    emulators.begin([0])
    emulators.send([0])
    emulators.close()
    emulators.close()
    with pytest.raises(ValueError, match="the emulators are closed"):
        emulators.begin([0])


def test_shifts_are_the_same_emulators_in_another_order():
    games, seeds = ["pong", "breakout"], np.arange(8)
    actions = np.random.default_rng(0).integers(0, 4, (12, 8))
    all_at_once = Emulators([game for game in games for _ in range(4)], 0.25)
    shifts = EmulatorGroups(games, 4, 0.25, 2)
    one, other = all_at_once.begin(seeds), shifts.begin(seeds)
    for sent in actions:
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
        all_at_once.send(sent)
        shifts.send(sent)
        one, other = all_at_once.receive(), shifts.receive()
    assert shifts.of_part(seeds, 1).tolist() == [2, 3, 6, 7]
    all_at_once.close()
    shifts.close()
