"""The programs in examples/ run as they are."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from actiongap.planning.grid import Axis, Grid, periodic, uniform
from actiongap.planning.policy import Policy, save_policy

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def policy(tmp_path) -> tuple[Policy, Path]:
    """A random policy on a grid with an uneven and a periodic axis, and its file."""
    grid = Grid((uniform(-1.0, 1.0, 5), Axis([0.0, 1.0, 10.0]), periodic(-np.pi, np.pi, 6)))
    table = np.random.default_rng(0).normal(size=(grid.size, 3)).astype(np.float32)
    made = Policy("cart", "al:0.5", grid, ("back", "coast", "forward"), ("position", "height", "angle"), table)
    save_policy(tmp_path / "cart.npz", made)
    return made, tmp_path / "cart.npz"


def test_a_policy_is_read_with_numpy_alone(policy):
    made, file = policy
    read = load("read_policy").Policy(file)
    rng = np.random.default_rng(1)
    # Also beyond the ends of the axes, and exactly at grid points.
    observations = [*rng.uniform((-1.5, -2.0, -9.0), (1.5, 12.0, 9.0), (50, 3)), *np.stack(made.grid.points(), axis=1)[::7]]
    for observation in observations:
        np.testing.assert_allclose(read.q(observation), made.q(observation), rtol=1e-5, atol=1e-6)
    assert [read.act(observation) for observation in observations] == [made.act(observation) for observation in observations]


def test_reading_a_policy_needs_no_actiongap(policy):
    program = "import sys; sys.modules['actiongap'] = None; exec(open('read_policy.py').read())"
    printed = subprocess.run(
        [sys.executable, "-c", program, policy[1], "0.1", "3", "2"], cwd=EXAMPLES, capture_output=True, text=True, check=True
    ).stdout
    assert printed.splitlines()[-1] == f"greedy action: {policy[0].actions[policy[0].act((0.1, 3.0, 2.0))]}"


def test_changed_policies_are_refused(policy):
    data = bytearray(policy[1].read_bytes())
    data[200] ^= 1
    policy[1].write_bytes(data)
    with pytest.raises(ValueError, match="changed after it was saved"):
        load("read_policy").Policy(policy[1])


def test_an_own_operator_is_proved_and_widens_the_gap(capsys):
    load("own_operator").main()
    printed = capsys.readouterr().out
    assert "clipped_gap: Both conditions of the theorem are proved" in printed
    assert "too_much: Condition 2 fails" in printed
    assert "same greedy policy: True" in printed


def test_a_simulator_is_planned_evaluated_and_filmed(tmp_path, capsys):
    load("plan_simulator").main(str(tmp_path / "cart"))
    checked, policy, evaluation, stepped, written = capsys.readouterr().out.splitlines()
    assert checked == "cart works: 41 x 41 points x 3 actions and the first step of its episodes were tried."
    assert policy.startswith("Policy(consistent on cart: 41 x 41 points, 3 actions, 400 iterations; ")
    assert evaluation.startswith("Evaluation(100 episodes: fraction goal 1 [")
    assert stepped.startswith("goal at position")
    assert Path(written.removeprefix("wrote ")).read_bytes().startswith(b"GIF")
