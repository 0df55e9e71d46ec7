"""No command runs code that a file names, unless it is given `--trust`. Code named on the command line runs."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import actiongap
from actiongap._user_code import check_trusted, names_code
from actiongap.api.trained import load_trained, play
from actiongap.envs.gym import gym_env
from actiongap.envs.simulators import load_simulator
from actiongap.lab.executors import run_inline
from actiongap.lab.experiment import as_config, from_config, make, run_name
from actiongap.lab.kinds import finite as problem
from actiongap.lab.kinds import plan as planning
from actiongap.lab.records import read_runs
from actiongap.lab.runner import run_experiment
from actiongap.lab.study import Study, grid, load_study
from actiongap.lab.validation import read_experiment
from actiongap.planning.grid import Grid
from actiongap.planning.policy import Policy, load_policy, save_policy

TRAP = """
from pathlib import Path
Path({marker!r}).touch()
from dataclasses import dataclass
from actiongap.envs.classic import mountain_car
from actiongap.lab.kinds.finite import QLearning

@dataclass(frozen=True)
class Own(QLearning):
    kind = "own"

def op(b):
    return b.bellman

def simulator():
    return mountain_car()
"""
SMALL = {
    "q-learning": {"env": "cake", "steps": 100, "rows": 2},
    "plan": {"env": "mountain-car", "grid": 5, "iterations": 4, "eval_every": 2, "episodes": 2, "engine": "numba"},
    "train": {
        "env": "minatar/breakout",
        "frames": 64,
        "eval_every": 32,
        "buffer_size": 50,
        "learning_starts": 20,
        "episodes": 2,
        "max_episode_steps": 9,
    },
}
ROUTES = {
    "kind": ("q-learning", {"kind": "trap.py:Own"}),
    "operator": ("q-learning", {"operator": "trap.py:op"}),
    "operator in spaces": ("q-learning", {"operator": " trap.py:op "}),
    "operator of a plan": ("plan", {"operator": "trap.py:op"}),
    "operator of an agent": ("train", {"operator": "trap.py:op"}),
    "simulator": ("plan", {"env": "trap.py:simulator"}),
    "module of a finite problem": ("q-learning", {"env": "gym/trap_module:FrozenLake-v1"}),
    "module of an environment": ("train", {"env": "gym/trap_module:CartPole-v1"}),
}
"""Parts of a configuration that may name code: the kind of experiment, and the change."""


class Trap:
    """Foreign code that records when it runs."""

    def __init__(self, folder: Path):
        self.folder, self.marker = folder, folder / "ran"
        for name in ("trap.py", "trap_module.py"):
            (folder / name).write_text(TRAP.format(marker=str(self.marker)))

    def triggered(self) -> bool:
        """Whether the code ran since the last call."""
        ran = self.marker.exists()
        self.marker.unlink(missing_ok=True)
        # What was imported once would not run again.
        sys.modules.pop("trap_module", None)
        return ran

    def config(self, route: str) -> Path:
        """Write the configuration of a run that names the code."""
        kind, change = ROUTES[route]
        config = as_config(make(kind, SMALL[kind]))
        config["kind"] = change.get("kind", kind)
        config["spec"] |= {name: value for name, value in change.items() if name != "kind"}
        file = self.folder / "downloaded" / "runs" / "one" / "config.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(config))
        return file

    def toml(self, route: str) -> Path:
        """Write a study that names the code."""
        kind, change = ROUTES[route]
        file = self.folder / "study.toml"
        file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in {"kind": kind, **SMALL[kind], **change}.items()))
        return file

    def policy(self) -> Path:
        """Write a policy of its simulator."""
        car = load_simulator("mountain-car")
        grid = Grid(car.axes(3))
        file = self.folder / "policy.npz"
        save_policy(file, Policy("trap.py:simulator", "bellman", grid, car.actions, car.coordinates, np.zeros((grid.size, 3))))
        return file


@pytest.fixture
def trap(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    for known in (gym_env, problem.cached_mdp, problem.reference_solution, planning._simulator, planning._grid):
        known.cache_clear()
    importlib.invalidate_caches()
    trap = Trap(tmp_path)
    assert not trap.triggered()
    yield trap
    trap.triggered()


def refused(code: int, err: str, file: Path) -> bool:
    """Whether a command refused an untrusted file in one sentence with a remedy."""
    return (code, err.count("\n")) == (2, 1) and str(file.name) in err and "--trust" in err and "trap" in err


@pytest.mark.every(3)
@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["run", "dry run"])
@pytest.mark.parametrize("form", ["config", "toml"])
@pytest.mark.parametrize("route", ROUTES)
def test_untrusted_study_files_that_name_code_are_refused(run, trap, route, form, options):
    file = getattr(trap, form)(route)
    code, _, err = run("sweep", file, "--out", "out", *options)
    assert not trap.triggered()
    assert refused(code, err, file), err
    assert not Path("out").exists()


@pytest.mark.parametrize("form", ["config", "toml"])
@pytest.mark.parametrize("route", ["kind", "operator", "module of a finite problem"])
def test_trusted_study_files_are_run(run, trap, route, form):
    code, out, err = run("sweep", getattr(trap, form)(route), "--out", "out", "--workers", "1", "--trust", "--json")
    assert code == 0, err
    assert trap.triggered()
    assert json.loads(out)["done"] == 1


@pytest.mark.parametrize("route", ROUTES)
def test_python_functions_do_not_trust_files_by_default(trap, route):
    config, toml = trap.config(route), trap.toml(route)
    for read in (load_study, read_experiment):
        with pytest.raises(ValueError, match=r"config\.json: it names code to run, .*trap.*trust=True"):
            read(config)
    with pytest.raises(ValueError, match=r"study\.toml: it names code to run, .*trap.*trust=True"):
        load_study(toml)
    with pytest.raises(ValueError, match="it names code to run"):
        from_config(json.loads(config.read_text()))
    assert not trap.triggered()
    assert load_study(config, trust=True).runs == (read_experiment(config, trust=True),)
    assert trap.triggered()


@pytest.mark.parametrize("route", ROUTES)
def test_reports_show_runs_without_loading_their_code(run, trap, route):
    file = trap.config(route)
    (file.parent / "metrics.jsonl").touch()
    assert len(read_runs("downloaded").runs) == 1
    code, _, err = run("report", "downloaded", "-o", "page.html")
    assert (code, Path("page.html").exists()) == (0, True), err
    assert not trap.triggered()


@pytest.mark.parametrize("route", [route for route in ROUTES if route != "kind"])
def test_runs_of_format_1_are_converted_without_loading_their_code(trap, route):
    tool = converter()
    file = trap.config(route)
    config = json.loads(file.read_text())
    old = {name: key for key, name in tool.KEYS[ROUTES[route][0]].items()}
    spec = {old.get(name, name): value for name, value in config["spec"].items()}
    if "lives" in spec:
        spec["lives"] = "ignored"
    file.write_text(json.dumps({**config, "version": 1, "spec": spec}))
    file.parent.rename(file.parent.with_name("one_01234567"))
    assert tool.convert(Path("downloaded"), Path("converted")) == []
    assert not trap.triggered()
    [folder] = Path("converted/runs").iterdir()
    assert json.loads((folder / "config.json").read_text()) == config
    assert folder.name == run_name(from_config(config, trust=True))
    assert trap.triggered()


def converter():
    """Return the module tools/convert_results.py."""
    spec = importlib.util.spec_from_file_location("convert_results", Path(__file__).parents[1] / "tools" / "convert_results.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


@pytest.mark.parametrize("command", ["watch", "probe"])
@pytest.mark.parametrize("route", [route for route in ROUTES if route != "operator of an agent"])
def test_runs_that_name_code_are_neither_watched_nor_probed(run, trap, command, route):
    file = trap.config(route)
    code, _, err = run(command, file.parent)
    assert not trap.triggered()
    assert code == 2
    assert err.count("\n") == 1
    if ROUTES[route][0] == "train" or (command, route) == ("watch", "kind"):
        assert refused(code, err, file), err
    elif command == "watch":
        # Runs of other kinds have no agent, whether they are trusted or not.
        assert "which has no agent" in err


def test_environments_of_user_modules_are_played_only_if_trusted(trap):
    folder = trap.config("module of an environment").parent
    assert run_experiment(folder, read_experiment(folder / "config.json", trust=True)) == "done"
    assert trap.triggered()
    with pytest.raises(ValueError, match=r"config\.json: it names code to run, 'gym/trap_module:CartPole-v1'"):
        load_trained(folder)
    assert not trap.triggered()
    assert load_trained(folder, trust=True).spec.env == "gym/trap_module:CartPole-v1"


def test_an_agent_is_played_without_its_operator(run, trap):
    folder = trap.folder / "runs" / "one"
    assert run_experiment(folder, make("train", {**SMALL["train"], "operator": "trap.py:op"})) == "done"
    assert trap.triggered()
    Path("trap.py").rename("gone.py")
    for trust in (False, True):
        agent = load_trained(folder, trust=trust)
        assert (agent.spec.operator, agent.label) == ("trap.py:op", "trap.py:op, seed 0")
    shutil.copytree(folder, "plain")
    config = Path("plain/config.json")
    config.write_text(config.read_text().replace("trap.py:op", "bellman"))
    one, other = (play(agent, seed=1, max_episode_steps=9)[1] for agent in (agent, load_trained(Path("plain"))))
    assert np.array_equal(one.values, other.values)
    code, out, err = run("probe", ".", "--steps", "20", "--json")
    assert code == 0, err
    assert json.loads(out)["operator"] == "trap.py:op"
    assert run("watch", folder, "-o", "game.gif", "--seconds", "3")[0] == 0
    assert not trap.triggered()


def test_policies_of_user_simulators_are_used_only_if_trusted(run, trap):
    file = trap.policy()
    assert load_policy(file).act((0.0, 0.0)) == 0
    code, _, err = run("watch", file, "-o", "car.gif", "--seconds", "3")
    assert not trap.triggered()
    assert refused(code, err, file), err
    code, _, err = run("watch", file, "-o", "car.gif", "--seconds", "3", "--trust")
    assert (code, Path("car.gif").exists()) == (0, True), err
    assert trap.triggered()


def test_code_named_on_the_command_line_runs_and_resumes_without_trust(run, trap):
    small = [word for name, value in SMALL["q-learning"].items() for word in (f"--{name}", value)]
    typed = ("sweep", "q-learning", *small, "--operator", "trap.py:op", "--out", "out", "--workers", "1", "--json")
    assert run(*typed)[0] == 0
    assert trap.triggered()
    [folder] = Path("out/runs").iterdir()
    # As if it had been interrupted.
    (folder / "status.json").unlink()
    code, out, err = run(*typed)
    assert (code, json.loads(out)["done"]) == (0, 1), err
    plan = [word for name, value in SMALL["plan"].items() if name != "env" for word in (f"--{name}", value)]
    code, _, err = run("plan", "trap.py:simulator", *plan, "--operator", "trap.py:op", "--out", "plan", "--json")
    assert code == 0, err
    # A Python file is code that the user chose.
    lines = ("from actiongap.lab.study import Study, grid", "study = Study('mine', grid('q-learning', operator='trap.py:op'))")
    Path("mine.py").write_text("\n".join(lines))
    trap.triggered()
    assert len(load_study("mine.py").runs) == 1
    assert trap.triggered()


@pytest.mark.parametrize(
    "text", ["al:0.5", "cake", "bicycle:fall=once", "gym/CartPole-v1", "gym/actiongap/Bicycle-v0", "lake.npz", "x.py", 3, None]
)
def test_built_in_names_are_not_code(text):
    assert not names_code(text)
    check_trusted([text, {"deep": (text,)}], trust=False)


@pytest.mark.parametrize("text", ["a.py:b", " a.py:b ", "/a/b.py:c", "gym/a:b", " gym/a:b", "gym/a.b:c/d-v0"])
def test_nested_user_names_are_code(text):
    assert names_code(text)
    for values in (text, [text], {"spec": {"operator": ["al:0.5", (text,)]}}):
        with pytest.raises(ValueError, match="it names code to run"):
            check_trusted(values, trust=False)
        check_trusted(values, trust=True)


def test_readers_do_not_import_from_the_current_directory(tmp_path, monkeypatch):
    study = Study("two", grid("q-learning", **{**SMALL["q-learning"], "seed": (0, 1)}))
    run_inline(study, tmp_path / "out")
    (tmp_path / "numpy.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("actiongap.lab.records.SINGLE_PROCESS_BYTES", 0)
    monkeypatch.setattr("actiongap.lab.records.cores", lambda: 2)
    assert len(read_runs(["out"]).runs) == 2
    assert not (tmp_path / "sprung").exists()


def test_every_python_that_we_start_ignores_the_current_directory():
    source = Path(actiongap.__file__).parent
    starts = [line for file in source.rglob("*.py") for line in file.read_text().splitlines() if "[sys.executable," in line]
    assert starts
    assert [line for line in starts if '[sys.executable, "-P",' not in line] == []


def test_a_study_file_with_the_name_of_a_kind_is_read(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes.py").write_text("open('sprung', 'w')")
    Path("notes.py:study.toml").write_text("kind = 'q-learning'\nenv = 'cake'\nsteps = 100\nrows = 2\n")
    code, _, err = run("sweep", "notes.py:study.toml", "--out", "out", "--dry-run")
    assert code == 0, err
    assert not Path("sprung").exists()
