"""The names and descriptions of Atari games."""

import subprocess
import sys

import pytest

from actiongap.envs.atari import GAMES, atari_game, check_game
from actiongap.lab.statistics import paper_table


def test_the_games_are_in_the_order_of_the_paper():
    assert len(set(GAMES)) == 60
    words = [game.lower().replace("'", "").replace("!", "").replace(".", "").replace(" ", "_") for game in paper_table().games]
    assert sum(word == game for word, game in zip(words, GAMES, strict=True)) >= 50


@pytest.mark.parametrize(("name", "near"), [("SpaceInvaders", "space_invaders"), ("mspacman", "ms_pacman"), ("", "")])
def test_the_error_for_an_unknown_game_suggests_the_nearest(name, near):
    with pytest.raises(ValueError, match=f"unknown Atari game '{name}': did you mean atari/{near}"):
        atari_game(name)


def test_without_an_emulator_the_error_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(ValueError, match=r"needs ale-py, which is not installed: pip install 'actiongap\[atari\]'"):
        check_game("pong")


def test_the_module_imports_without_an_emulator():
    names = "actiongap.envs.atari"
    subprocess.run([sys.executable, "-c", f"import sys; sys.modules['ale_py'] = None; import {names}"], check=True)


def test_a_game_matches_its_emulator():
    pytest.importorskip("ale_py", reason="Atari needs ale-py: pip install 'actiongap[atari]'")
    seaquest = atari_game("seaquest")
    assert seaquest.shape == (84, 84)
    assert seaquest.actions[:7] == ("noop", "fire", "up", "right", "left", "down", "up right")
    assert seaquest.actions[-1] == "down left fire"
    assert len(set(seaquest.actions)) == 18
    assert atari_game("carnival").screen == (214, 160)
    assert atari_game("seaquest") is seaquest
