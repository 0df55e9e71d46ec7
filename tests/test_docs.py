"""Every Python block of the documentation runs, each page in one namespace from top to bottom, and its example of a simulator plans."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PARKING = ROOT / "examples" / "parking.py"


def blocks(page: Path) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    if page.name == "integrations.md":
        pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed: pip install 'actiongap[sb3]'")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    scope: dict = {"__name__": "__main__"}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), scope)


def test_cleanrls_lines_with_the_bellman_operator_are_its_own():
    scope: dict = {}
    for block in blocks(ROOT / "docs" / "integrations.md"):
        if "from actiongap." not in block:
            exec(compile(block.replace('"al:0.9"', '"bellman"'), "integrations.md", "exec"), scope)
    # What a plain DQN aims at, r + gamma max_b Q(x', b) while the episode lasts.
    going_on = 0.99 * (1.0 - scope["data"].dones.numpy()[:, 0])
    reward, next_x = scope["data"].rewards.numpy()[:, 0], scope["data"].next_observations
    best = scope["target_network"](next_x).detach().numpy().max(axis=1)
    np.testing.assert_allclose(scope["td_target"].numpy(), reward + going_on * best, rtol=1e-5)
    best = (next_x.numpy() @ np.asarray(scope["q_state"].target_params)).max(axis=1)
    np.testing.assert_allclose(np.asarray(scope["next_q_value"]), reward + going_on * best, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_simulator_on_the_page_is_the_one_in_the_examples():
    assert PARKING.read_text() in blocks(ROOT / "docs" / "planning.md")


def test_the_simulator_of_the_examples_is_planned_to_the_goal(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"operator": "consistent", "grid": 41, "iterations": 400, "every": 400, "engine": "numba"}
    code, out, err = run("plan", f"{PARKING}:domain", "--json", *(word for name in settings for word in (f"--{name}", settings[name])))
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["goal_frequency"], found["fall_frequency"]) == (1.0, 0.0)
    assert found["mean_steps"] < 60


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("clip(speed + 0.1 * (a - 1 + u), -2.0, 2.0)", "speed if speed < 2.0 else 2.0", "choose with where"),
        ("(abs(x[0]) < 0.1) & (abs(x[1]) < 0.1)", "abs(x[0]) < 0.1 and abs(x[1]) < 0.1", "join conditions with & and |"),
        ("return Outcome(x, where(off(x), -100.0, -1.0), off(x) | parked(x))", "return x, -1.0, off(x)", "must return Outcome"),
        ("return Outcome(x,", "return Outcome(x[:1],", "gives 1 coordinates, and there are 2"),
        ("off(x) | parked(x))", "0.0)", "it must be true or false"),
        ("-100.0, -1.0)", "-100.0, place / place)", "the reward is nan after action back in place = 0"),
        ("0.1 * speed, speed)", "0.1 * speed, 3.6 * speed)", "widen the axis"),
    ],
)
def test_mistakes_are_answered_as_the_page_says(right, wrong, said, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert PARKING.read_text().count(right) == 1
    Path("mistaken.py").write_text(PARKING.read_text().replace(right, wrong))
    code, out, err = run("plan", "mistaken.py:domain", "--grid", "5", "--iterations", "5", "--engine", "numba")
    assert (code, out) == (2, "")
    assert said in err
