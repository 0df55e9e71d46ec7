"""Emulators against raw ALE, with a second implementation of frame skipping, pooling, grey conversion and resizing."""

import csv
from importlib.resources import files

import numpy as np
import pytest

from actiongap.envs.atari import GAMES, AtariEpisode, EmulatorGroups, Emulators, StepResult

pytest.importorskip("ale_py", reason="Atari needs ale-py: pip install 'actiongap[atari]'")

from raw_ale import MAX_FRAMES, RawGame, random_noops, resize

ACTIONS = {
    line["rom"]: int(line["minimal_actions"])
    for line in csv.DictReader((files("actiongap") / "data" / "atari_games.csv").read_text(encoding="utf-8").splitlines())
}
"""Number of actions of each game."""


def row(seen: StepResult, i: int):
    return tuple(field[i].item() for field in seen[1:])


def random_actions(games, steps: int) -> np.ndarray:
    """Random valid actions of each game, (steps, games)."""
    return np.random.default_rng(0).integers(0, [ACTIONS[game] for game in games], (steps, len(games)))


def play(emulators: Emulators, seeds, actions) -> list[StepResult]:
    shown = [emulators.reset(seeds)]
    for each in actions:
        emulators.send(each)
        shown.append(emulators.receive())
    return shown


def same_results(one: list[StepResult], i: int, other: list[StepResult], j: int) -> bool:
    """Whether emulator i of one sequence and emulator j of another have the same results."""
    return all(all(np.array_equal(a[i], b[j]) for a, b in zip(x, y, strict=True)) for x, y in zip(one, other, strict=True))


def compare_with_raw(
    games, seeds, actions, shown: list[StepResult], repeat_action_probability: float, limit: int
) -> tuple[list[RawGame], np.ndarray]:
    """Assert that results of emulators match raw ALE; return the raw games and the results of `RawGame.step`.

    Frames are compared in every fourth step and in steps with an event, because resizing is slow.
    """
    raw, events = [RawGame(game, seed, repeat_action_probability, limit) for game, seed in zip(games, seeds, strict=True)], []
    for step, seen in enumerate(shown):
        for i, game in enumerate(raw):
            events.append(game.step(actions[step - 1, i]) if step else game.reset())
            assert row(seen, i) == events[-1], (games[i], step)
            if step % 4 == 0 or any(events[-1]):
                assert np.array_equal(seen.frame[i], resize(game.pooled)), (games[i], step)
    return raw, np.array(events)


@pytest.fixture(scope="module")
def all_games():
    with Emulators(GAMES, repeat_action_probability=0.25, max_frames=MAX_FRAMES) as emulators:
        yield emulators


@pytest.fixture(scope="module")
def all_shown(all_games):
    """Results of all games, each seeded with its index."""
    return play(all_games, np.arange(60), random_actions(GAMES, MAX_FRAMES // 4 + 5))


@pytest.fixture(scope="module")
def breakouts():
    with Emulators(["breakout"] * 2, repeat_action_probability=0.25) as emulators:
        yield emulators


@pytest.mark.long
def test_all_games_match_raw_ale_until_truncated(all_shown):
    """Sticky actions, pooling, grey, resizing, no-ops, raw rewards, lost lives, truncation and the next game, step by step."""
    raw, events = compare_with_raw(GAMES, np.arange(60), random_actions(GAMES, MAX_FRAMES // 4 + 5), all_shown, 0.25, MAX_FRAMES)
    assert {game.noops for game in raw} >= {0, 29}
    assert {game.ale.getScreenDims() for game in raw} > {(210, 160)}
    assert {name: len(game.actions) for name, game in zip(GAMES, raw, strict=True)} == ACTIONS
    _, lost, terminated, truncated, first = events.sum(axis=0)
    assert terminated + truncated >= 60
    assert first == 60 + terminated + truncated
    assert min(lost, truncated) > 20
    assert events[:, 0].min() < -1
    assert events[:, 0].max() > 100


@pytest.mark.every(2)
@pytest.mark.parametrize("repeat_action_probability", [0.25, 0.0])
def test_terminated_games_match_raw_ale(repeat_action_probability):
    """Lost lives, termination, and the next game. In Bank Heist the game continues after the last life is lost."""
    games = ["asterix", "bank_heist", "berzerk", "breakout", "montezuma_revenge", "qbert", "road_runner", "space_invaders"]
    seeds, actions = np.arange(8), random_actions(games, 520)
    with Emulators(games, repeat_action_probability) as emulators:
        raw, events = compare_with_raw(games, seeds, actions, play(emulators, seeds, actions), repeat_action_probability, 108_000)
    assert sum(game.games > 1 for game in raw) >= 6
    _, lost, terminated, truncated, first = events.sum(axis=0)
    assert lost > terminated > 8
    assert truncated == 0
    assert first in (8 + terminated, 8 + terminated - 1)


@pytest.mark.long
def test_seeds_determine_every_game(all_games, all_shown):
    actions = random_actions(GAMES, 110)
    again, other = (play(all_games, seeds, actions) for seeds in (np.arange(60), np.arange(1000, 1060)))
    once = all_shown[: len(again)]
    assert [game for i, game in enumerate(GAMES) if not same_results(once, i, again, i)] == []
    assert [game for i, game in enumerate(GAMES) if all((x.frame[i] == y.frame[i]).all() for x, y in zip(once, other, strict=True))] == []


def test_emulators_have_independent_sticky_actions(breakouts):
    """Without seeds all emulators would draw the same sticky actions, so `reset` requires them."""
    by_noops = {}
    for seed in range(60):
        by_noops.setdefault(next(random_noops(seed)), []).append(seed)
    first, second, *_ = max(by_noops.values(), key=len)
    shown = play(breakouts, [first, second], np.repeat(random_actions(["breakout"], 60), 2, axis=1))
    assert (shown[0].frame[0] == shown[0].frame[1]).all()
    assert (shown[-1].frame[0] != shown[-1].frame[1]).any()
    with pytest.raises(ValueError, match="seeds range from -1 to 1: give 0 to 2,147,483,647"):
        breakouts.reset([1, -1])


def test_a_lost_life_does_not_restart_the_game(breakouts):
    shown = play(breakouts, [1, 2], random_actions(breakouts.games, 600))
    for i in range(2):
        events = "".join("l" if seen.life_lost[i] else "o" if seen.terminated[i] else "f" if seen.first[i] else "" for seen in shown)
        # Five lives: four are lost during the game, the fifth ends it, and the next step starts another.
        assert events.startswith("fllllofllllo")


def test_the_step_after_a_game_ignores_its_action(breakouts):
    actions = np.repeat(random_actions(["breakout"], 400), 2, axis=1)
    shown = play(breakouts, [3, 3], actions)
    begun = np.flatnonzero([seen.first[0] for seen in shown])[1:]
    assert len(begun) >= 2
    actions[begun - 1, 1] = 3 - actions[begun - 1, 0]
    changed = play(breakouts, [3, 3], actions)
    assert same_results(changed, 0, changed, 1)
    assert all(changed[k].reward[0] == 0 and not (changed[k].terminated | changed[k].truncated | changed[k].life_lost).any() for k in begun)
    actions[begun[0], 1] = 3 - actions[begun[0], 0]
    assert not same_results(changed, 0, play(breakouts, [3, 3], actions), 1)


def test_fire_is_not_pressed_at_reset(breakouts):
    """In Breakout the ball is not in play until the player fires, so no life can be lost."""
    assert not any(seen.life_lost.any() or seen.terminated.any() for seen in play(breakouts, [1, 2], np.zeros((150, 2), int)))


def test_the_first_frame_of_a_game_contains_nothing_of_the_previous_game(breakouts):
    """Frames are not stacked, so none is padded or comes from the previous game."""
    shown = play(breakouts, [4, 5], random_actions(breakouts.games, 500))
    raw = [RawGame("breakout", seed, 0.25, 108_000) for seed in (4, 5)]
    begun = 0
    for seen, actions in zip(shown, [None, *random_actions(breakouts.games, 500)], strict=True):
        for i, game in enumerate(raw):
            if actions is None or seen.first[i]:
                game.reset()
                np.testing.assert_array_equal(seen.frame[i], resize(game.screen()))
                begun += 1
            else:
                game.step(actions[i])
    assert begun >= 5


def test_threads_order_and_earlier_games_do_not_change_the_result(breakouts):
    """Results do not depend on the other games, their order or the number of threads."""
    games, seeds = ["pong", "breakout", "asterix", "breakout", "pong"], np.array([7, 1, 9, 2, 8])
    actions = random_actions(games, 120)
    with (
        Emulators(games, repeat_action_probability=0.25, threads=1) as one,
        Emulators(games[::-1], repeat_action_probability=0.25, threads=3) as many,
    ):
        shown, mirrored = play(one, seeds, actions), play(many, seeds[::-1], actions[:, ::-1])
        play(one, seeds + 50, actions[:30])
        one.send(actions[0])
        again = play(one, seeds, actions)
    assert all(same_results(shown, i, mirrored, 4 - i) and same_results(shown, i, again, i) for i in range(5))
    alone = play(breakouts, seeds[[1, 3]], actions[:, [1, 3]])
    assert same_results(shown, 1, alone, 0)
    assert same_results(shown, 3, alone, 1)


def test_results_are_not_overwritten(breakouts):
    seen = breakouts.reset([1, 2])
    frame = seen.frame.copy()
    for _ in range(20):
        breakouts.send([1, 1])
        breakouts.receive()
    assert (seen.frame == frame).all()


def test_a_truncated_game_is_not_terminated():
    with Emulators(["pong", "breakout"], repeat_action_probability=0.25, max_frames=200) as emulators:
        shown = play(emulators, [1, 2], np.zeros((102, 2), int))
    assert [k for k, seen in enumerate(shown) if seen.truncated.all()] == [50, 101]
    assert [k for k, seen in enumerate(shown) if seen.first.all()] == [0, 51, 102]
    assert not any(seen.terminated.any() for seen in shown)


@pytest.mark.parametrize("name", ["breakout", "carnival"])
def test_pictures_match_raw_ale(name):
    episode = AtariEpisode(name, repeat_action_probability=0.25, seed=3, max_frames=402)
    grey, color = RawGame(name, 3, 0.25, 402), RawGame(name, 3, 0.25, 402, color=True)
    grey.reset()
    color.reset()
    truncated = False
    for [action] in random_actions([name], 120):
        np.testing.assert_array_equal(episode.frame, resize(grey.pooled))
        np.testing.assert_array_equal(episode.picture, color.pooled)
        reward, _, terminated, truncated, _ = grey.step(action)
        color.step(action)
        assert episode.step(action) == (reward, terminated, truncated)
        if truncated:
            break
    assert truncated
    with pytest.raises(ValueError, match="the game is over: make another"):
        episode.step(0)


def test_bad_arguments_are_rejected(breakouts):
    for arguments, sentence in [
        (([], 0.25), "games is empty: give at least one game"),
        ((["pong"], 0.25, 0), "threads is 0: give at least 1"),
        ((["pong"], 1.5), "repeat_action_probability is 1.5"),
        ((["pnog"], 0.25), "did you mean atari/pong"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            Emulators(*arguments)
    with pytest.raises(ValueError, match="max_frames is 0: give at least 1"):
        Emulators(["pong"], 0.25, max_frames=0)
    with pytest.raises(ValueError, match="an integer for each of the 2 emulators"):
        breakouts.reset([1])
    with pytest.raises(ValueError, match=r"seeds range from 1 to 2147483648: give"):
        breakouts.reset([1, 2**31])
    breakouts.reset([1, 2])
    with pytest.raises(ValueError, match="call send before receive"):
        breakouts.receive()
    for actions in ([1], [0.0, 1.0]):
        with pytest.raises(ValueError, match="an integer for each of the 2 emulators"):
            breakouts.send(actions)
    for actions in ([0, 4], [0, -1]):
        with pytest.raises(ValueError, match="of emulator 1 is invalid: breakout has 0 to 3"):
            breakouts.send(actions)
    breakouts.send([0, 3])
    with pytest.raises(ValueError, match="are stepping: call receive before send"):
        breakouts.send([0, 3])
    breakouts.receive()


def test_emulators_before_begin_and_after_close():
    emulators = Emulators(["pong"], 0.25)
    with pytest.raises(ValueError, match="have not started: call reset before send"):
        emulators.send([0])
    emulators.reset([0])
    emulators.send([0])
    emulators.close()
    emulators.close()
    with pytest.raises(ValueError, match="the emulators are closed"):
        emulators.reset([0])


def test_groups_match_all_emulators_at_once():
    games, seeds = ["pong", "breakout"], np.arange(8)
    actions = np.random.default_rng(0).integers(0, 4, (12, 8))
    all_at_once = Emulators([game for game in games for _ in range(4)], 0.25)
    groups = EmulatorGroups(games, 4, 0.25, 2)
    one, other = all_at_once.reset(seeds), groups.reset(seeds)
    for sent in actions:
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
        all_at_once.send(sent)
        groups.send(sent)
        one, other = all_at_once.receive(), groups.receive()
    assert groups.of_part(seeds, 1).tolist() == [2, 3, 6, 7]
    all_at_once.close()
    groups.close()
