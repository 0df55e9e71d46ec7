"""Plans and policies from Python: the same as the command line, evaluation, files, videos, callbacks, and invalid input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import actiongap as ag
from actiongap.api import policies
from actiongap.planning.rollouts import frequencies, rollouts
from actiongap.planning.simulator import Outcome

CAR: dict[str, Any] = {"grid": 9, "iterations": 40, "eval_every": 20, "episodes": 10, "eta": 0.5}


def slide(x, a, u):
    """Slide along a line until its end."""
    return Outcome((x[0] + 0.2 * (a - 0.5) + u,), -1.0, x[0] > 0.9)


def sliding(**changes: Any) -> ag.Simulator:
    given = {
        "state": {"place": (-1.0, 1.0)},
        "actions": ("left", "right"),
        "outcomes": {"goal": lambda x: x[0] > 0.9},
        "max_episode_steps": 50,
    }
    return ag.Simulator("slide", **{"step": slide, "noise": ag.Uniform(-0.02, 0.02), **given, **changes})


@pytest.fixture(scope="module")
def policy() -> ag.Policy:
    return ag.plan(sliding(), "consistent", grid=21, iterations=200, eta=0.5, episodes=20)


def test_the_command_makes_the_same_plan(run, tmp_path):
    found = ag.plan("mountain-car", "al:0.5", **CAR, out=tmp_path / "here")
    options = [text for name, value in CAR.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    code, out, _ = run("plan", "mountain-car", "--operator", "al:0.5", *options, "--out", tmp_path / "there", "--json")
    assert code == 0
    printed = {name: value for name, value in json.loads(out).items() if name not in ("policy", "run", "seconds_per_sweep")}
    assert printed == {name: value for name, value in found.summary().items() if name in printed}
    saved = ag.load_policy(tmp_path / "there" / "policy.npz")
    np.testing.assert_array_equal(saved.table, found.table)
    assert (tmp_path / "here" / "metrics.jsonl").read_bytes() == (tmp_path / "there" / "metrics.jsonl").read_bytes()


def test_a_plan_that_writes_nothing_is_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = ag.plan("mountain-car", "consistent", **CAR, out=tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    found = ag.plan("mountain-car", "consistent", **CAR)
    assert sorted(tmp_path.rglob("*")) == before
    np.testing.assert_array_equal(found.table, kept.table)
    assert found.rows.keys() == kept.rows.keys()
    for name in found.rows:
        np.testing.assert_array_equal(found.rows[name], kept.rows[name])
    assert (found.folder, kept.folder) == (None, tmp_path / "run")
    assert found.engine is not None
    assert (found.engine.engine, found.about["engine"]) == ("numpy", "numpy")


def test_a_finished_plan_is_not_made_again(tmp_path, monkeypatch):
    first = ag.plan(sliding(), "bellman", **CAR, out=tmp_path / "run")
    monkeypatch.setattr("actiongap.lab.kinds.plan.Planning.prepare", lambda self: pytest.fail("it is done already"))
    again = ag.plan(sliding(), "bellman", **CAR, out=tmp_path / "run")
    np.testing.assert_array_equal(again.table, first.table)
    assert again.evaluate(5).episodes == 5


def test_a_changed_simulator_or_setting_is_noticed(tmp_path):
    ag.plan(sliding(), "bellman", **CAR, out=tmp_path / "run")
    before = sorted((file, file.read_bytes()) for file in (tmp_path / "run").rglob("*") if file.is_file())

    def faster(x, a, u):
        return Outcome((x[0] + 0.3 * (a - 0.5) + u,), -1.0, x[0] > 0.9)

    for changes, config in (({"step": faster}, CAR), ({"noise": ag.Uniform(-0.03, 0.02)}, CAR), ({}, {**CAR, "seed": 1})):
        with pytest.raises(ValueError, match="choose another --out"):
            ag.plan(sliding(**changes), "bellman", **config, out=tmp_path / "run")
    assert sorted((file, file.read_bytes()) for file in (tmp_path / "run").rglob("*") if file.is_file()) == before


def test_an_interrupted_plan_continues_to_the_same_table(tmp_path):
    """A process is interrupted by its own callback, as if Ctrl-C were pressed after the second evaluation."""
    program = (
        "import os, signal, sys\n"
        "import actiongap as ag\n"
        "from actiongap.lab import runner\n"
        "from actiongap.lab.kinds import plan as planning\n"
        "planning.BACKUPS['numpy'] = 20 * 81 * 3; runner.SAVE_EVERY = 0.0\n"
        "def stop(row):\n    if row['step'] == 40: os.kill(os.getpid(), signal.SIGINT)\n"
        f"ag.plan('mountain-car', 'consistent', **{CAR | {'iterations': 200, 'engine': 'numpy'}!r}, out=sys.argv[1], callback=stop)\n"
    )
    found = subprocess.run([sys.executable, "-c", program, str(tmp_path / "run")], capture_output=True, text=True, timeout=300)
    assert found.returncode != 0
    assert "KeyboardInterrupt: stopped after 40 of 200 iterations" in found.stderr
    assert "make the same call again to resume" in found.stderr
    config = CAR | {"iterations": 200, "engine": "numpy"}
    # Chunks belong to a run, and small ones round as large ones do: numpy computes sweep by sweep.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("actiongap.lab.kinds.plan", fromlist=["BACKUPS"]).BACKUPS, "numpy", 20 * 81 * 3)
        rows = []
        continued = ag.plan("mountain-car", "consistent", **config, out=tmp_path / "run", callback=rows.append)
        whole = ag.plan("mountain-car", "consistent", **config)
    np.testing.assert_array_equal(continued.table, whole.table)
    assert [row["step"] for row in rows] == [60, 80, 100, 120, 140, 160, 180, 200]
    assert continued.rows["step"].tolist() == whole.rows["step"].tolist()


def test_an_interrupt_without_a_folder_says_that_nothing_is_kept(monkeypatch):
    monkeypatch.setitem(__import__("actiongap.lab.kinds.plan", fromlist=["BACKUPS"]).BACKUPS, "numpy", 20 * 81 * 3)
    with pytest.raises(KeyboardInterrupt, match="nothing is kept: give out=DIR"):
        ag.plan("mountain-car", **CAR, engine="numpy", callback=lambda row: os.kill(os.getpid(), signal.SIGINT))


@pytest.mark.parametrize("out", [None, "run"])
def test_callbacks_get_every_row_and_may_stop_the_plan(tmp_path, out):
    folder = tmp_path / out if out else None
    rows: list[dict[str, Any]] = []
    found = ag.plan("mountain-car", "al:0.5", **CAR, seed=3, out=folder, callback=rows.append)
    assert [(row["env"], row["operator"], row["seed"], row["step"]) for row in rows] == [("mountain-car", "al:0.5", 3, k) for k in (20, 40)]
    assert [row["goal_frequency"] for row in rows] == found.rows["goal_frequency"].tolist()

    class MineError(Exception):
        pass

    def fail(row):
        raise MineError("enough")

    with pytest.raises(MineError, match="enough"):
        ag.plan("mountain-car", "al:0.5", **CAR, seed=4, out=folder and tmp_path / "other", callback=fail)


def test_operators_may_be_functions():
    def mine(b):
        return ag.maximum(b.bellman - 0.5 * b.gap, b.repeat)

    texts = ag.plan("mountain-car", "pal:0.5", **CAR).table
    np.testing.assert_allclose(ag.plan("mountain-car", mine, **CAR).table, texts, rtol=1e-5)
    np.testing.assert_array_equal(ag.plan("mountain-car", ag.parse("pal:0.5"), **CAR).table, texts)


def test_evaluations_are_those_of_rollouts(policy):
    evaluation = policy.evaluate(episodes=40, seed=7)
    trials = rollouts(policy.simulator, policy.grid, policy.table[None], 40, seed=7)
    (expected,) = frequencies(policy.simulator, trials)
    assert evaluation.outcomes["goal"].value == expected["goal_frequency"]
    assert evaluation.mean_length.value == pytest.approx(expected["mean_steps"])
    assert evaluation.mean_return.value == pytest.approx(expected["mean_return"])
    assert (evaluation.mean_length.n, len(evaluation.returns), len(evaluation.lengths)) == (40, 40, 40)
    assert sum(estimate.value for estimate in evaluation.outcomes.values()) == pytest.approx(1.0)
    goal = evaluation.outcomes["goal"]
    assert goal.low < goal.value <= goal.high
    assert repr(evaluation).startswith("Evaluation(40 episodes: fraction goal 1 [0.9")
    assert "fraction goal" in evaluation._repr_html_()


def test_every_episode_has_one_outcome():
    simulator = sliding(step=lambda x, a, u: Outcome((x[0] + 0.2 * (a - 0.5) + u,), -1.0, abs(x[0]) > 0.9), max_episode_steps=3)
    table = np.zeros((21, 2))
    found = policies.Policy(
        "slide@00000000", "bellman", ag.plan(simulator, grid=21, iterations=1, episodes=0).grid, ("left", "right"), ("place",), table
    )
    evaluation = policies.replace(found, given_simulator=simulator).evaluate(100)
    assert list(evaluation.outcomes) == ["goal", "limit", "end"]
    assert sum(round(100 * estimate.value) for estimate in evaluation.outcomes.values()) == 100
    assert all(estimate.value > 0 for name, estimate in evaluation.outcomes.items() if name != "goal")


def test_a_policy_acts_on_single_states_and_batches(policy):
    assert policy.act((0.3,)) == policy.act(np.array([0.3])) == 1
    assert policy.q((0.3,)).shape == (2,)
    batch = np.linspace(-1, 1, 7)[:, None]
    assert policy.act(batch).tolist() == policy.q(batch).argmax(-1).tolist()
    with pytest.raises(ValueError, match="its last axis must hold place"):
        policy.act((0.3, 0.4))


def test_saved_policies_are_loaded_and_need_their_simulator_only_to_play(policy, tmp_path):
    file = tmp_path / "slide.npz"
    policy.save(file)
    program = (
        "import sys, numpy as np, actiongap as ag\n"
        f"policy = ag.load_policy({str(file)!r})\n"
        "print(policy.act((0.3,)), policy.q(np.linspace(-1, 1, 5)[:, None]).tolist())\n"
        "print(sorted({'numba', 'scipy', 'jax', 'matplotlib', 'gymnasium', 'PIL'} & sys.modules.keys()))\n"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert out == [f"1 {policy.q(np.linspace(-1, 1, 5)[:, None]).tolist()}", "[]"]
    loaded = ag.load_policy(file)
    with pytest.raises(ValueError, match=r"slide\.npz: its simulator slide is not in a file that can be loaded: give it in Python"):
        loaded.evaluate()
    assert ag.load_policy(file, simulator=sliding()).evaluate(10).outcomes["goal"].value == 1.0
    with pytest.raises(ValueError, match=r"the policy is for slide@.* with the coordinates place, but pendulum has angle, rate"):
        ag.load_policy(file, simulator=ag.load_simulator("pendulum"))
    with pytest.raises(TypeError, match="simulator is 'slide': give a Simulator"):
        ag.load_policy(file, simulator="slide")  # pyright: ignore[reportArgumentType]


def test_simulators_of_files_are_loaded_only_if_trusted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from pathlib import Path\n"
        "from actiongap import Outcome, Simulator\n"
        "Path('loaded').touch()\n"
        "def step(x, a, u): return Outcome((x[0] + 0.5 * a,), -1.0, x[0] > 0.9)\n"
        "line = Simulator('line', step, state={'x': (0, 1)}, actions=('stay', 'go'), outcomes={'goal': lambda x: x[0] > 0.9})\n"
    )
    ag.plan("mine.py:line", **CAR, save="line.npz")
    Path("loaded").unlink()
    policy = ag.load_policy("line.npz")
    assert policy.act((0.5,)) in (0, 1)
    with pytest.raises(ValueError, match=r"line\.npz: it names code to run, 'mine.py:line': .*trust=True"):
        policy.evaluate()
    assert not Path("loaded").exists()
    assert ag.load_policy("line.npz", trust=True).evaluate(5).episodes == 5
    assert Path("loaded").exists()


def test_videos_have_a_length_or_a_speed(policy, tmp_path):
    with pytest.raises(ValueError, match="seconds and speed both set the speed of the video: give one of them"):
        policy.video(tmp_path / "swing.gif", seconds=5.0, speed=2.0)
    assert list(tmp_path.iterdir()) == []


def test_videos(policy, tmp_path):
    video = policy.video(tmp_path / "slide.gif", seconds=2.0)
    assert (video.outcome, video.gif, video.mp4) == ("goal", tmp_path / "slide.gif", None)
    assert (tmp_path / "slide.gif").read_bytes()[:3] == b"GIF"
    for file, said in (("slide.avi", "a video is an .mp4 or a .gif file"), ("nowhere/slide.gif", "there is no folder")):
        with pytest.raises(ValueError, match=said):
            policy.video(tmp_path / file)


def test_reprs(policy):
    text = repr(policy)
    assert text == "Policy(consistent on slide: 21 points, 2 actions, 200 iterations; goal 1)"
    assert "slide@" in policy._repr_html_()
    assert "<table" in policy._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"grids": 3}, TypeError, "plan has no argument 'grids': did you mean grid?"),
        ({"simulation": 3}, TypeError, "plan has no argument 'simulation'"),
        ({"env": "mountain-cars"}, ValueError, "unknown simulator 'mountain-cars': did you mean mountain-car?"),
        ({"env": 3}, TypeError, "env is 3: give a Simulator, or the name of one"),
        ({"operator": "belman"}, ValueError, "unknown operator"),
        ({"callback": 3}, TypeError, "callback is 3: give a function"),
        ({"grid": 2.5}, ValueError, "grid is 2.5: it must be int"),
        ({"iterations": 0}, ValueError, "iterations is 0"),
        ({"eta": 2}, ValueError, "eta is 2"),
        ({"engine": "abacus"}, ValueError, "abacus"),
        ({"noise": "none"}, ValueError, "noise is 'none': choose from independent, shared"),
        ({"save": "policy.txt"}, ValueError, "a policy is saved to an .npz file in an existing folder"),
        ({"save": "nowhere/policy.npz"}, ValueError, "a policy is saved to an .npz file in an existing folder"),
        ({"env": sliding(step=lambda x, a, u: Outcome((x[0],), float("nan"), False))}, ValueError, "slide: the reward is nan"),
        ({"env": sliding(step=lambda x, a, u: x)}, ValueError, "slide: its step returns a tuple: it must return Outcome"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, arguments, error, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=said) as caught:
        ag.plan(**{"env": "mountain-car", **CAR, "out": tmp_path / "run", **arguments})
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_diverging_plan_fails_and_keeps_its_rows(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("actiongap.lab.kinds.plan", fromlist=["BACKUPS"]).BACKUPS, "numpy", 10 * 108)
    wild: dict[str, Any] = {"grid": 6, "eta": 1.0, "eval_every": 5, "episodes": 3, "engine": "numpy"}
    for out in (None, tmp_path / "run"):
        with pytest.raises(ag.PlanFailedError, match=r"Q is no longer finite: baird:0\.01 diverges here") as caught:
            ag.plan("mountain-car", "baird:0.01", **wild, out=out)
        assert caught.value.rows["step"][0] == 5


def test_a_simulator_is_checked_without_planning(run):
    assert ag.load_simulator("mountain-car").check(grid=41).startswith("mountain-car works: 41 x 41 points x 3 actions")
    with pytest.raises(ValueError, match="slide: the next place is -inf after action left"):
        sliding(step=lambda x, a, u: Outcome((x[0] / 0.0,), 0.0, False)).check()
    code, out, _ = run("plan", "mountain-car", "--check", "--grid", "41")
    assert (code, out) == (0, ag.load_simulator("mountain-car").check(grid=41) + "\n")
    code, out, _ = run("plan", "mountain-car", "--check", "--json")
    assert json.loads(out) == {"env": "mountain-car", "grid": 8, "check": ag.load_simulator("mountain-car").check()}


def test_several_seeds_are_several_plans(run, tmp_path):
    options = [text for name, value in CAR.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    code, out, _ = run(
        "plan",
        "bicycle",
        *options[:0],
        "--grid",
        "3",
        "--iterations",
        "5",
        "--episodes",
        "0",
        "--seed",
        "4",
        "--seeds",
        "2",
        "--out",
        tmp_path,
        "--json",
    )
    assert code == 0
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["seed"] for one in found] == [4, 5]
    for one in found:
        single = ag.plan("bicycle", grid=3, iterations=5, episodes=0, seed=one["seed"])
        np.testing.assert_array_equal(ag.load_policy(one["policy"]).table, single.table)
    assert [run.seed for run in ag.read_runs(tmp_path)] == [4, 5]


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda p: p.evaluate(episodes=0), ValueError, "episodes is 0: it must be a whole number of at least 1"),
        (lambda p: p.evaluate(episodes=2.5), ValueError, "episodes is 2.5: it must be a whole number"),
        (lambda p: p.evaluate(max_episode_steps=0), ValueError, "max_episode_steps is 0"),
        (lambda p: p.video("slide.gif", episode=100), ValueError, "episode is 100"),
        (lambda p: p.act([float("nan")]), ValueError, "an observation contains NaN"),
        (lambda p: ag.load_policy("nowhere.npz"), ValueError, "nowhere.npz: no such file"),
        (lambda p: sliding(nois=3), TypeError, "Simulator has no parameter 'nois': did you mean noise?"),
        (lambda p: sliding(kind=3), TypeError, "Simulator has no parameter 'kind': choose from name, step, state"),
    ],
)
def test_policies_and_simulators_refuse_in_a_sentence(policy, call, error, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=re.escape(said)) as caught:
        call(policy)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
