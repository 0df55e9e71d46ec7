"""The tutorial runs from top to bottom, and what it computes is what its text says."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("marimo", reason="marimo is not installed: pip install 'actiongap[notebook]'")
pytest.importorskip("z3", reason="z3 is not installed: pip install 'actiongap[proof]'")
pytestmark = pytest.mark.long
TUTORIAL = Path(__file__).parents[2] / "examples" / "tutorial.py"


@pytest.fixture(scope="module")
def played():
    """What the cells show, and all that they define."""
    import matplotlib

    matplotlib.use("Agg")
    spec = importlib.util.spec_from_file_location("tutorial", TUTORIAL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app.run()


def test_gaps_are_those_of_the_closed_forms(played):
    _, defined = played
    gaps = {name: found.gaps[0, 0] for name, found in defined["solutions"].items()}
    expected = {"bellman": 0.1, "consistent": 0.1 / 0.55, "al:0.5": 0.2, "al:0.9": 1.0}
    assert {name: gaps[name] for name in expected} == pytest.approx(expected)
    assert defined["chosen"] == pytest.approx(0.2)


def test_wider_gaps_hide_less_under_noise(played):
    mistakes = played[1]["mistakes"]
    assert all(np.all(np.diff([mistakes[name][k] for name in ("bellman", "consistent", "al:0.5", "al:0.9")]) < 0) for k in (6, 12, 18))


def test_one_operator_is_proved_and_the_other_refuted(played):
    verdicts = played[1]["verdicts"]
    assert verdicts["mine"].optimality_preserving is True
    assert verdicts["too_greedy"].optimality_preserving is False


def test_the_garnet_keeps_its_policy_and_widens_its_gaps(played):
    _, defined = played
    assert all(defined["same"].values())
    assert all((found.gaps >= defined["usual"].gaps - 1e-7).all() for found in defined["wider"].values())


def test_noisy_rewards_mislead_a_strong_operator_more(played):
    learned = played[1]["learned"]
    assert np.mean(learned["al:0.9"]) > np.mean(learned["bellman"]) + 0.1


def test_the_car_arrives(played):
    assert all(numbers["goal_frequency"] == 1.0 for numbers in played[1]["numbers"].values())


def test_four_pictures_are_shown(played):
    assert sum(type(shown).__name__ == "Figure" for shown in played[0]) == 4
