"""What a command does, a call in Python does too: with the same names, the same defaults, and the same result.

The results of some commands are compared where the call is tested; `COMPARED` lists them.
"""

import dataclasses
import inspect
import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import actiongap as ag
from actiongap.cli import COMMANDS
from actiongap.cli.common import print_json
from actiongap.cli.studies import sweep_command
from actiongap.cli.train import train_command
from actiongap.lab.experiment import KINDS, defaults, find
from actiongap.paper.reproduce import estimate_parts
from helpers import is_one_edit_apart

TESTS = Path(__file__).parents[1]
COMPARED = {
    "demo": "interactive/test_demo.py::test_the_call_in_python_writes_the_same_page",
    "solve": "cli/test_same_in_python.py::test_solve",
    "plan": "api/test_policies.py::test_the_command_makes_the_same_plan",
    "train": "api/test_agents.py::test_commands_do_the_same",
    "prove": "cli/test_same_in_python.py::test_prove",
    "check": "cli/test_same_in_python.py::test_check",
    "sweep": "cli/test_same_in_python.py::test_sweep",
    "report": "cli/test_same_in_python.py::test_report",
    "reproduce": "api/test_reports.py::test_reproduce_writes_what_the_command_writes",
    "watch": "api/test_agents.py::test_minatar_agents_take_boards_and_make_videos",
    "probe": "api/test_agents.py::test_commands_do_the_same",
    "doctor": "test_diagnosis.py::test_the_command_prints_what_the_call_returns",
}
"""Where the result of each command is compared with that of the call."""


def test_every_command_is_compared_with_a_call():
    assert COMPARED.keys() == COMMANDS.keys()
    for place in COMPARED.values():
        file, _, name = place.partition("::")
        assert f"def {name}(" in (TESTS / file).read_text()


# Names and defaults.

CALLS: dict[str, list[Callable[..., Any]]] = {
    "demo": [ag.demo],
    "solve": [ag.cake, ag.chain, ag.garnet, ag.solve, ag.Solution.as_json],
    "plan": [ag.plan],
    "train": [ag.train],
    "prove": [ag.prove],
    "check": [ag.check_target],
    "sweep": [ag.load_study, ag.Study.run, ag.Study.estimate],
    "report": [ag.report],
    "reproduce": [ag.reproduce, estimate_parts],
    "watch": [ag.load_policy, ag.Policy.video, ag.load_agent, ag.Agent.video],
    "probe": [ag.load_agents, ag.Agents.probe],
    "doctor": [ag.doctor],
}
"""The calls that take the options of each command. `load_mdp` takes those of the functions that make MDPs."""
ONLY_COMMAND = {
    "*": {
        "json": "the result has the values",
        "dry_run": "estimate and estimate_parts are calls of their own",
        "watch": "the live page is for a browser",
        "port": "the live page is for a browser",
    },
    "solve": {"mdp": "given to load_mdp", "out": "Solution.save"},
    "plan": {"seeds": "one call for each", "check": "Simulator.check"},
    "sweep": {"study": "the path of load_study, or the kind of Study"},
    "watch": {"policy": "the path of load_policy and load_agent", "out": "the file of video"},
    "probe": {"runs": "the folders of load_agents", "out": "Plot.save"},
}
"""Options that no call has, and why."""
ONLY_PYTHON = {
    "*": {
        "progress": "commands always show it",
        "callback": "a function",
        "command": "commands record themselves",
        "path": "an argument of the command",
    },
    "solve": {
        "length": "in the text of the MDP",
        "states": "in the text of the MDP",
        "actions": "in the text of the MDP",
        "branching": "in the text of the MDP",
        "mdp": "the model",
        "q0": "an array",
        "throw": "the exit code",
        "on_sweep": "a function",
    },
    "sweep": {"executor": "chosen by --workers and --ray"},
    "watch": {"file": "--out", "simulator": "an object", "max_episode_steps": "a video shows the whole episode"},
    "probe": {"folders": "an argument of the command"},
    "doctor": {"checks": "functions"},
}
"""Parameters that no option sets, and why."""
OTHER_DEFAULTS = {
    ("solve", "gamma"): "None: the MDP's",
    ("solve", "epsilon"): "None: the MDP's",
    ("solve", "slip"): "None: the MDP's",
    ("solve", "seed"): "None: the MDP's",
    ("watch", "gif"): "the command writes both files, for which it takes one name",
}
"""Defaults that differ, and why."""


def options(command: str) -> dict[str, Any]:
    """The options and arguments of a command with their defaults."""
    function = train_command() if command == "train" else COMMANDS[command]
    found: dict[str, Any] = {}
    for name, kind in get_type_hints(function).items():
        if dataclasses.is_dataclass(kind):
            found |= {field.name: field.default for field in dataclasses.fields(kind)}
        elif name != "return":
            found[name] = inspect.signature(function).parameters[name].default
    return found


def parameters(command: str) -> dict[str, Any]:
    """The parameters of the calls of a command with their defaults; for `train` with the fields of an experiment."""
    found: dict[str, Any] = {}
    for call in CALLS[command]:
        for name, parameter in inspect.signature(call).parameters.items():
            if name != "self" and parameter.kind is not parameter.VAR_KEYWORD:
                found[name] = parameter.default
    return {**defaults(find("train")), **found} if command == "train" else found


def plain(default: Any) -> Any:
    """A default as commands and calls may both write it."""
    if default is dataclasses.MISSING:
        return inspect.Parameter.empty
    if isinstance(default, Path):
        return str(default)
    if isinstance(default, tuple) and len(default) == 1:
        return default[0]
    return {"yes": True, "no": False, (): None}.get(default, default)


@pytest.mark.parametrize("command", CALLS)
def test_options_are_parameters_of_the_same_name(command):
    ours, theirs = options(command), parameters(command)
    known = {*ONLY_COMMAND["*"], *ONLY_COMMAND.get(command, {})}
    assert set(ours) - set(theirs) <= known
    assert set(theirs) - set(ours) <= {*ONLY_PYTHON["*"], *ONLY_PYTHON.get(command, {})}
    of_preset = set(defaults(find("train"))) if command == "train" else set()
    differing = {
        (command, name)
        for name in set(ours) & set(theirs) - ONLY_COMMAND.get(command, {}).keys()
        if plain(ours[name]) != plain(theirs[name]) and not (name in of_preset and ours[name] in (None, False))
    }
    assert differing == {(place, name) for place, name in OTHER_DEFAULTS if place == command}


def test_fields_of_a_study_are_options_of_the_same_name():
    for kind in KINDS:
        fields = get_type_hints(sweep_command(kind))["config"]
        assert {field.name for field in dataclasses.fields(fields)} - {"seeds", "preset"} == set(defaults(find(kind)))


ONE_LETTER_APART = {
    ("seed", "seeds"): "the first, and how many",
    ("episode", "episodes"): "one, and how many",
    ("atol", "rtol"): "as in NumPy",
    ("atol", "tol"): "as in NumPy",
    ("rtol", "tol"): "as in NumPy",
    ("check", "checks"): "of plan, and of doctor",
    ("part", "port"): "of reproduce, and of report",
    ("seed", "speed"): "of watch",
}
"""Names that may differ by one letter, and why."""


def test_names_that_differ_by_a_letter_are_meant_to():
    names = {name for command in COMMANDS for name in options(command)}
    names |= {name for command in CALLS for name in parameters(command)}
    names |= {name for kind in KINDS for name in defaults(find(kind))}
    assert {pair for pair in combinations(sorted(names), 2) if is_one_edit_apart(*pair)} == ONE_LETTER_APART.keys()


# Results.


@pytest.fixture
def printed(run) -> Callable[..., Any]:
    """What a command prints as JSON; its exit code is the second value."""

    def call(*arguments: object) -> tuple[Any, int]:
        code, out, err = run(*arguments, "--json")
        assert code in (0, 1, 3), err
        return json.loads(out), code

    return call


@pytest.fixture
def as_printed(capsys) -> Callable[[Any], Any]:
    """The value of a call as commands print it."""

    def shown(value: Any) -> Any:
        print_json(value)
        return json.loads(capsys.readouterr().out)

    return shown


@pytest.mark.parametrize("operator", ["bellman", "al:0.5"])
def test_solve(printed, as_printed, tmp_path, operator):
    found, _ = printed("solve", "garnet:12,3,2", "--operator", operator, "--gamma", "0.8", "--seed", "4", "--out", tmp_path / "command.npz")
    solution = ag.solve(ag.load_mdp("garnet:12,3,2", gamma=0.8, seed=4), operator)
    assert found == as_printed(solution.as_json())
    solution.save(tmp_path / "python.npz")
    assert (tmp_path / "command.npz").read_bytes() == (tmp_path / "python.npz").read_bytes()
    assert found["q"] == ag.solve(ag.garnet(12, 3, 2, gamma=0.8, seed=4), operator).q.tolist()


def test_solve_without_convergence(printed, as_printed):
    found, code = printed("solve", "gridworld:5", "--operator", "baird:0.1")
    assert code == 1
    solution = ag.solve(ag.gridworld(5), "baird:0.1", throw=False)
    assert found == as_printed({**solution.as_json(), "mdp": "gridworld:5"})
    with pytest.raises(ag.NotConvergedError, match="diverged"):
        ag.solve(ag.gridworld(5), "baird:0.1")


def test_solve_leaves_large_arrays_out(printed, as_printed):
    solution = ag.solve(ag.garnet(2600, 4, 2, gamma=0.5), "al:0.5", tol=1e-3)
    for arrays in (False, True):
        found, _ = printed("solve", "garnet:2600,4,2", "--gamma", "0.5", "--operator", "al:0.5", "--tol", "1e-3", *["--arrays"] * arrays)
        assert found == as_printed(solution.as_json(arrays=arrays))
        assert ("q" in found) == arrays


@pytest.mark.parametrize(("operator", "options", "code"), [("al:0.9", {}, 0), ("baird:0.5", {"gamma": 0.5}, 1)])
def test_prove(printed, as_printed, operator, options, code):
    verdict = ag.prove(operator, **options)
    assert printed("prove", operator, *(f"--{name}={value}" for name, value in options.items())) == (as_printed(verdict.as_json()), code)
    assert verdict.exit_code == code


TARGETS = """
def plain(q_tm1, a_tm1, r_t, discount_t, q_t):
    return r_t + discount_t * q_t.max(axis=-1)
"""


CHECKS: list[tuple[dict[str, Any], int]] = [
    ({"operator": "bellman"}, 0),
    ({"operator": "al:0.9"}, 1),
    ({"operator": "al:1e-4"}, 1),
    ({"operator": "al:1e-4", "rtol": 1e-2}, 0),
    ({"operator": "al:1e-4", "atol": 1e3}, 0),
]


@pytest.mark.parametrize(("options", "code"), CHECKS)
def test_check(printed, as_printed, tmp_path, options, code):
    (tmp_path / "mine.py").write_text(TARGETS)
    function = f"{tmp_path / 'mine.py'}:plain"
    check = ag.check_target(function, library="numpy", **options)
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    assert printed("check", function, "--library", "numpy", *words) == (as_printed(dataclasses.asdict(check)), code)


STUDY = 'kind = "q-learning"\nname = "cakes"\nenv = "cake"\noperator = ["bellman", "al:0.5"]\nseed = 3\nseeds = 2\nsteps = 100\nrows = 2\n'


def rows_in(folder: Path) -> dict[str, bytes]:
    return {file.parent.name: file.read_bytes() for file in folder.glob("runs/*/metrics.jsonl")}


def test_sweep(printed, tmp_path):
    (tmp_path / "cakes.toml").write_text(STUDY)
    found, _ = printed("sweep", tmp_path / "cakes.toml", "--out", tmp_path / "command", "--workers", "1")
    runs = ag.load_study(tmp_path / "cakes.toml").run(tmp_path / "python", executor="inline")
    done = {"done": len(runs.select(state="done")), "failed": runs.failed}
    assert found == {"study": "cakes", "out": str(tmp_path / "command"), "runs": len(runs), **done}
    assert rows_in(tmp_path / "command") == rows_in(tmp_path / "python")
    again = ag.Study("cakes", "q-learning", env="cake", operator=["bellman", "al:0.5"], seed=3, seeds=2, steps=100, rows=2)
    assert {run.name for run in again.run(tmp_path / "python")} == rows_in(tmp_path / "command").keys()


def test_studies_that_name_code_are_trusted_alike(run, tmp_path):
    (tmp_path / "mine.py").write_text("def op(b):\n    return b.bellman\n")
    (tmp_path / "cakes.toml").write_text(STUDY.replace("al:0.5", f"{tmp_path / 'mine.py'}:op"))
    code, _, err = run("sweep", tmp_path / "cakes.toml", "--out", tmp_path / "out")
    assert (code, (tmp_path / "out").exists()) == (2, False)
    with pytest.raises(ValueError, match="trust") as refused:
        ag.load_study(tmp_path / "cakes.toml")
    assert err == f"actiongap: {refused.value}\n"
    assert len(ag.load_study(tmp_path / "cakes.toml", trust=True).runs) == 4


def test_report(printed, as_printed, tmp_path):
    runs = ag.Study("cakes", "q-learning", env="cake", seeds=2, steps=100, rows=2).run(tmp_path, executor="inline")
    assert printed("report", tmp_path) == (as_printed(runs.as_json()), 0)
    assert not (tmp_path / "page.html").exists()


def test_reproduce(printed, tmp_path):
    found, _ = printed(
        "reproduce", "finite", "--scale", "smoke", "--only", "noisy-values", "--seed", "5", "--seeds", "1", "--out", tmp_path
    )
    # Finished runs are not repeated.
    result = ag.reproduce("finite", "smoke", only=["noisy-values"], seed=5, seeds=1, out=tmp_path)
    folders = {name: str(folder) for name, folder in result.folders.items()}
    assert found == {"page": str(result.page), "scale": "smoke", "failed": result.failed, "parts": folders}
    assert {run.seed for run in ag.read_runs(tmp_path / "noisy-values")} == {5}
