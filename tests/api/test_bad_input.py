"""Bad input to the public functions: one sentence with a remedy, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import actiongap

ag: Any = actiongap
"""Without types, because most of these calls have wrong ones."""
CAR: dict[str, Any] = {"grid": 5, "iterations": 5, "episodes": 0}


def cakes(**fields: Any) -> Any:
    return ag.Study("cakes", "q-learning", env="cake", steps=50, rows=2, **fields)


def slide(**given: Any) -> Any:
    def step(x: Any, a: Any, u: Any) -> Any:
        return ag.Outcome((x[0] + a - 0.5,), -1.0, x[0] > 1.5)

    return ag.Simulator("slide", step, **{"state": {"place": (-2.0, 2.0)}, "actions": ("left", "right"), **given})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a study, `study`, and a plan, `plan`."""
    folder = tmp_path_factory.mktemp("made")
    cakes().run(folder / "study", progress=False)
    ag.plan("mountain-car", **CAR, out=folder / "plan")
    return folder


CALLS = [
    # A misspelt argument.
    (lambda _: ag.solve(ag.cake(), toll=1), "solve has no argument 'toll': did you mean tol?"),
    (lambda _: ag.iterate(ag.cake(), sweep=1), "iterate has no argument 'sweep': did you mean sweeps?"),
    (lambda _: ag.prove("bellman", gama=0.5), "prove has no argument 'gama': did you mean gamma?"),
    (lambda _: ag.cake(gama=0.5), "cake has no argument 'gama': did you mean gamma?"),
    (lambda _: ag.q_learning(ag.cake(), steps=9, seed=0, stepsize=1), "did you mean step_size?"),
    (lambda _: ag.check_target(max, operater="bellman"), "did you mean operator?"),
    (lambda _: ag.read_runs("x", trusted=True), "did you mean trust?"),
    (lambda _: ag.report("x", figure="y"), "did you mean figures?"),
    (lambda _: ag.load_policy("x", simulatr=None), "did you mean simulator?"),
    (lambda _: ag.load_agent("x", operatr="al:0.9"), "did you mean operator?"),
    (lambda _: ag.reproduce("cake", scle="smoke"), "did you mean scale?"),
    (lambda _: cakes().run("runs", worker=2), "run has no argument 'worker': did you mean workers?"),
    (lambda at: ag.load_policy(at / "plan" / "policy.npz").evaluate(episode=3), "did you mean episodes?"),
    (lambda _: slide().vector_env(num_env=2), "did you mean num_envs?"),
    # No path.
    (lambda _: cakes().run(None), "out is None: give a path, as text or a Path"),
    (lambda _: ag.plan("mountain-car", **CAR, out=3), "out is 3: give a path"),
    (lambda _: ag.plan("mountain-car", **CAR, save=3), "file is 3: give a path"),
    (lambda _: ag.load_policy(3), "file is 3: give a path"),
    (lambda _: ag.load_agent(3), "path is 3: give a path"),
    (lambda _: ag.load_agents([3]), r"folders is \[3\]: give a path, as text or a Path, or a list of them"),
    (lambda _: ag.load_study(3), "path is 3: give a path"),
    (lambda _: ag.read_runs(3), "folders is 3: give a path"),
    (lambda _: ag.read_runs([]), "no folder is given: give the folder of a study or of a run"),
    (lambda _: ag.report(3), "runs is 3: give a path"),
    (lambda at: ag.report(at / "study", 3), "out is 3: give a path"),
    (lambda _: ag.save_npz(ag.cake(), 3), "path is 3: give a path"),
    (lambda _: ag.solve(ag.cake()).save(3), "file is 3: give a path"),
    (lambda _: ag.demo(3, open=False), "out is 3: give a path"),
    # The folder of something else.
    (lambda at: ag.plan("mountain-car", **CAR, out=at / "study"), "is a study, not a run: choose another"),
    (lambda at: cakes().run(at / "plan"), "is a run, not a study: choose another"),
    (lambda at: ag.load_policy(at / "plan"), r"is a folder: give a \.npz file, such as the policy\.npz in the folder of a plan"),
    (lambda at: ag.load_agent(at / "plan"), "is a run of plan, which has no agent"),
    (lambda _: ag.report("nowhere", "new/page.html"), "nowhere: no such folder"),
    # Values of the wrong type.
    (lambda _: ag.Study(3, "q-learning"), "name is 3: give the study a name"),
    (lambda _: cakes().run("runs", save_every="often"), "save_every is 'often': it must be a number of seconds"),
    (lambda _: ag.load_simulator(3), "text is 3: give the name of a simulator"),
    (lambda _: ag.reproduce(3), "part is 3: choose from"),
    (lambda _: ag.advantage("x"), "alpha must be a number from 0 to 1, not 'x'"),
    (lambda _: ag.solve(ag.cake(), 3), "a function of a Backup, not of type int"),
    (lambda _: ag.policy_iteration(ag.cake(), "x"), "max_iterations is 'x': it must be a whole number"),
    (lambda _: ag.FiniteMDP([[1.0]], 3, 0.9), "make the MDP with from_dense or from_successors"),
    (lambda _: ag.induced_mdp(ag.cake(), 3), "3 is not an Aggregation"),
    (lambda _: ag.fitted_q_iteration(3, "bellman", max, gamma=0.9, iterations=1, actions=2), "batch is of type int: give Transitions"),
    (lambda _: slide(gamma=1.5), r"slide: gamma is 1.5: give a number in \[0, 1\)"),
    (lambda _: slide(noise=3), r"slide: noise is 3: give Uniform\(low, high\) or Discrete"),
    (lambda _: slide(noise=ag.Uniform("a", "b")), "slide: noise is drawn from 'a' to 'b'"),
    (lambda _: slide(actions=3), "slide: actions is 3: give a tuple of names"),
    (lambda _: slide(episodes=3), "slide: episodes is 3: give an EpisodeSpec"),
    (lambda _: slide().check(grid="x"), "the grid has 'x' points per axis"),
    (lambda _: slide().vector_env(2.5), "num_envs is 2.5: give a whole number of at least 1"),
    (lambda at: ag.load_policy(at / "plan" / "policy.npz").evaluate(seed="x"), "seed is 'x': it must be a whole number"),
    # Operators that fail.
    (lambda _: cakes(operator=["bellman", lambda b: b.belman]).run("runs"), "fails with AttributeError.*did you mean bellman?"),
    (lambda _: cakes(operator=lambda b: "x").run("runs"), "returns a str: return a number or an array"),
    (lambda _: ag.train("gym/CartPole-v1", lambda b: None, frames=64, out="runs"), "returns a NoneType"),
    (lambda _: ag.plan("mountain-car", lambda b: "x", **CAR, out="runs"), "returns a str"),
]


@pytest.mark.filterwarnings("ignore:exploration ends")
@pytest.mark.parametrize(("call", "said"), CALLS, ids=[said for _, said in CALLS])
def test_bad_input_is_one_sentence_and_writes_nothing(call, said, folder, tmp_path, monkeypatch):
    def files(at: Path) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in at.rglob("*")}

    monkeypatch.chdir(tmp_path)
    before = files(folder)
    with pytest.raises((ValueError, TypeError), match=said) as caught:
        call(folder)
    assert "\n" not in str(caught.value)
    assert files(tmp_path) == {}
    assert files(folder) == before


def test_operators_for_numbers_alone_are_not_refused(tmp_path):
    """Learning in tables passes numbers, for which `if` works."""
    runs = cakes(operator=lambda b: b.bellman if b.gap > 0.5 else b.repeat).run(tmp_path, progress=False)
    assert [run.state for run in runs] == ["done"]


def test_suggestions_leave_signatures_and_results_alone():
    assert ag.solve.__name__ == "solve"
    assert np.allclose(ag.solve(mdp=ag.cake(), operator="bellman").v, ag.solve(ag.cake()).v)
