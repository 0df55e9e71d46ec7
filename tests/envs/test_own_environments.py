"""A custom environment, registered with Gymnasium in its own module, works in solvers, learners, commands and deep agents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from actiongap import collect, expected_policy_evaluation, from_gymnasium, policy_iteration, q_learning, sarsa, solve

EXAMPLES = Path(__file__).parents[2] / "examples"
ID = "corridor:Corridor-v0"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    sys.modules.pop("corridor", None)
    gymnasium.registry.pop("Corridor-v0", None)


def test_check_env_accepts_the_example():
    check_env(gymnasium.make(ID).unwrapped, skip_render_check=True)


def test_solve():
    mdp = from_gymnasium(ID, gamma=0.9)
    assert (mdp.states, mdp.actions) == (7, 2)
    solution = solve(mdp, "al:0.9")
    assert solution.policy[:5].tolist() == [1] * 5
    np.testing.assert_allclose(solution.v, policy_iteration(mdp)[1], atol=1e-9)
    # Four steps with a cost of 0.01 each, then a reward of 1.
    assert solution.v[0] == pytest.approx(0.9**4 - 0.01 * sum(0.9**k for k in range(4)))


@pytest.mark.parametrize("learn", [q_learning, sarsa])
def test_tabular_learning(learn):
    assert learn(ID, "al:0.5", steps=3000, seed=0, exploration=0.3, gamma=0.9).policy[:5].tolist() == [1] * 5


def test_policy_evaluation_and_collect():
    right = np.tile([0.0, 1.0], (6, 1))
    found = expected_policy_evaluation(ID, right, steps=2000, seed=0, exploration=0.3, gamma=0.9)
    assert found.v[0] == pytest.approx(0.9**4 - 0.01 * sum(0.9**k for k in range(4)), abs=0.02)
    assert collect(ID, steps=50, seed=0).x.shape[0] == 50


def test_load_environment():
    pytest.importorskip("jax", reason="JAX is not installed: pip install 'actiongap[jax]'")
    from actiongap.envs.registry import load_environment

    game = load_environment(f"gym/{ID}")
    assert (game.shape, game.actions) == ((6,), ("0", "1"))


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    """Run a command in a new process, which finds the module through PYTHONPATH, as worker processes do."""
    path = os.pathsep.join([str(EXAMPLES), *sys.path])
    code = "import sys; from actiongap.cli import main; main(sys.argv[1:])"
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, cwd=folder, env=environment
    )


def test_commands_accept_its_id(tmp_path):
    solved = command("solve", f"gym/{ID}", "--operator", "pal:0.9", "--json", folder=tmp_path)
    assert json.loads(solved.stdout)["policy"][:5] == [1] * 5
    options = ["--operator", "al:0.5", "--steps", "2000", "--out", "runs", "--json"]
    swept = command("sweep", "q-learning", "--env", f"gym/{ID}", *options, folder=tmp_path)
    assert swept.returncode == 0, swept.stderr
    (metrics,) = tmp_path.glob("runs/runs/*/metrics.jsonl")
    assert json.loads(metrics.read_text().splitlines()[-1])["wrong"] == 0.0


@pytest.mark.long
def test_deep_agents_train_on_it(tmp_path):
    options = (
        "--frames 8000 --eval-every 8000 --episodes 4 --learning-starts 500 --exploration-steps 4000 --learning-rate 0.001 "
        "--optimizer adam --target-update-interval 250"
    )
    trained = command("train", f"gym/{ID}", "--operator", "bellman", "al:0.9", *options.split(), "--json", folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    bellman, advantage = map(json.loads, trained.stdout.splitlines())
    assert [bellman["score"], advantage["score"]] == pytest.approx([0.96, 0.96])
    assert advantage["action_gap"] > 5 * bellman["action_gap"]


def test_a_missing_module_is_an_error_with_a_remedy(tmp_path):
    refused = command("solve", "gym/nowhere_at_all:Thing-v0", folder=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "nowhere_at_all:Thing-v0 cannot be made by Gymnasium" in refused.stderr
    assert "PYTHONPATH" in refused.stderr
