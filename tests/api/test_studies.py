"""`Study`, `Runs` and `read_runs`: the same runs and numbers as the command line, callbacks, failures, and bad input."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import actiongap as ag
from actiongap.api.studies import estimate_cost, run_with_progress
from actiongap.lab.records import RunRecord
from actiongap.lab.runner import run_folder
from actiongap.lab.study import grid, load_study
from lab_experiment import CURED, KIND, Walk

SMALL = {"steps": 100, "rows": 2}


def mine(b):
    return ag.maximum(b.bellman - 0.5 * b.gap, b.repeat)


def cakes(**fields: Any) -> ag.Study:
    return ag.Study("cakes", "q-learning", **{"env": "cake", "operator": ["bellman", "al:0.5"], "seeds": 2, **SMALL, **fields})


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, ag.Runs]:
    out = tmp_path_factory.mktemp("cakes")
    return out, cakes().run(out, executor="inline")


# What a study is.


def test_the_first_script_of_the_documentation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = ag.Study(
        "lake", "q-learning", env=["gridworld:5,5", "gym/FrozenLake-v1"], operator=["bellman", "al:0.9", mine], seeds=2, **SMALL
    )
    runs = study.run("runs/lake")
    assert (len(study.runs), len(runs), {run.state for run in runs}) == (12, 12, {"done"})
    assert len(runs.table()) > 6
    assert len(runs.to_pandas()) == 24
    page = ag.report(runs, "lake.html").page
    assert page == Path("lake.html")
    assert Path("lake.html").is_file()


def test_a_kind_is_a_name_a_class_or_a_name_in_a_file(monkeypatch):
    monkeypatch.setattr(Walk, "kind", Walk.kind)  # the study sets it, and other tests expect the old one
    kinds = ["q-learning", type(cakes().runs[0])]
    assert len({ag.Study("a", kind, env="cake", seeds=2).runs for kind in kinds}) == 1
    assert list(ag.Study("walks", Walk, seeds=3).named()) == list(ag.Study("walks", KIND, seeds=3).named())


def test_grids_are_added():
    both = grid("q-learning", env="cake", seeds=2) + grid("fitted-q", env="cake", seeds=1)
    study = ag.Study("both", both, cpus=2)
    assert Counter(run.kind for run in study.runs) == {"q-learning": 2, "fitted-q": 1}
    assert study.cpus == 2
    assert ag.Study("both", iter(both), cpus=2) == study


def test_a_study_can_be_replaced_and_shortened():
    study = cakes(seeds=3)
    shorter, named = study.first(1), dataclasses.replace(study, name="pies", gpus=0.25)
    assert (type(shorter), len(shorter.runs), type(named), named.name, named.gpus, named.runs) == (
        ag.Study,
        2,
        ag.Study,
        "pies",
        0.25,
        study.runs,
    )


@pytest.mark.parametrize(
    ("fields", "seeds"),
    [
        ({"seeds": 3}, [0, 1, 2]),
        ({"seed": 4, "seeds": 2}, [4, 5]),
        ({"seed": 4}, [4]),
        ({"seed": [7, 3]}, [3, 7]),
        ({"seed": range(2)}, [0, 1]),
    ],
)
def test_seed_is_the_first_and_seeds_how_many(tmp_path, fields, seeds):
    assert [run.seed for run in ag.Study("a", "q-learning", env="cake", **fields).runs] == seeds
    file = tmp_path / "study.toml"
    values = {
        name: list(value) if isinstance(value, range) else value for name, value in {"kind": "q-learning", "env": "cake", **fields}.items()
    }
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    assert [run.seed for run in load_study(file).runs] == seeds


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: cakes(operators="bellman"), r"q-learning has no field 'operators': did you mean operator\?"),
        (lambda: ag.Study("a", "qlearning"), r"unknown kind of experiment 'qlearning': did you mean q-learning\?"),
        (lambda: cakes(seeds=0), "seeds is 0: it must be a whole number from 1 to 1,000,000"),
        (lambda: cakes(seeds=2.0), "seeds is 2.0"),
        (lambda: cakes(seed=[1, 2], seeds=2), r"seed is \[1, 2\] and seeds is 2: seed is the first seed"),
        (lambda: cakes(operator=[]), "operator is an empty list"),
        (lambda: cakes(operator="al:much"), "al"),
        (lambda: ag.Study("a", ()), "the study 'a' has no runs"),
        (lambda: ag.Study("a", cakes().runs, seeds=2), "the study 'a' takes no seeds, as it is given experiments"),
        (lambda: ag.Study("a", [1]), "the study 'a' holds a int"),  # pyright: ignore[reportArgumentType]
        (lambda: ag.Study("a", None), "the study 'a' holds a NoneType"),  # pyright: ignore[reportArgumentType]
        (lambda: ag.Study("a", int), "int is not"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_bad_studies_are_refused_in_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_a_python_file_may_define_either_study(tmp_path):
    for place in ("actiongap", "actiongap.lab.study"):
        file = tmp_path / "mine.py"
        file.write_text(f"from {place} import Study\nstudy = Study('mine', 'q-learning', env='cake', seeds=2)\n")
        assert len(load_study(file).runs) == 2


# What it runs.


def test_python_and_the_command_line_give_the_same_runs(run, tmp_path, done):
    out, runs = done
    options = ("--env", "cake", "--operator", "bellman", "al:0.5", "--steps", "100", "--rows", "2", "--seed", "0", "--seeds", "2")
    assert run("sweep", "q-learning", *options, "--out", tmp_path)[0] == 0
    assert {path.parent.name: path.read_bytes() for path in tmp_path.rglob("metrics.jsonl")} == {
        path.parent.name: path.read_bytes() for path in out.rglob("metrics.jsonl")
    }
    code, found, _ = run("report", tmp_path, "--json")
    assert code == 0
    groups = {group["label"]: group["numbers"] for group in json.loads(found)["groups"]}
    # Times differ.
    rows = [row for row in runs.table() if "second" not in row["number"]]
    assert {row["number"] for row in rows} == groups["bellman"].keys() - {"seconds", "steps per second"}
    for row in rows:
        assert {name: row[name] for name in ("value", "low", "high", "level", "n", "method")} == groups[row["label"]][row["number"]]


def test_runs_of_the_command_line_are_not_repeated(run, tmp_path):
    options = ("--env", "cake", "--operator", "bellman", "al:0.5", "--steps", "100", "--rows", "2", "--seeds", "2")
    run("sweep", "q-learning", *options, "--out", tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    seen: list[dict] = []
    assert len(cakes().run(tmp_path, callback=seen.append)) == 4
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    assert seen == []


def test_a_study_returns_its_own_runs_only(tmp_path):
    cakes(operator="bellman").run(tmp_path, executor="inline")
    runs = cakes(operator="al:0.5", seeds=1).run(tmp_path, executor="inline")
    assert [(run.agent, run.seed) for run in runs] == [("al:0.5", 0)]
    assert len(ag.read_runs(tmp_path)) == 3


def test_nothing_is_printed_by_default(tmp_path, capfd):
    cakes().run(tmp_path, executor="inline")
    assert capfd.readouterr() == ("", "")


def test_the_estimate_is_that_of_a_dry_run(run, tmp_path, done):
    out, _ = done
    study = cakes(seeds=5)
    plan = study.estimate(tmp_path, workers=1, rates=[out])
    assert (plan.runs, plan.done) == (10, 0)
    assert plan.basis == "rates of 4 runs"
    options = ("--env", "cake", "--operator", "bellman", "al:0.5", "--steps", "100", "--rows", "2", "--seeds", "5", "--workers", "1")
    code, printed, _ = run("sweep", "q-learning", *options, "--out", tmp_path, "--rates", out, "--dry-run", "--json")
    assert code == 0
    [said] = json.loads(printed)
    assert {**said, "study": "", "free": 0} == {"study": "", **dataclasses.asdict(plan), "free": 0}
    assert estimate_cost(study, out, workers=1).done == 4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"executor": "threads"}, "executor is 'threads': choose inline, processes or ray"),
        ({"executor": "inline", "workers": 2}, "executor is 'inline' and workers is 2"),
        ({"executor": "processes", "ray": "auto"}, "executor is 'processes' and ray is 'auto'"),
        ({"workers": 0}, "workers is 0: it must be at least 1"),
        ({"max_batch_size": 0}, "max_batch_size is 0"),
        ({"save_every": -1}, "save_every is -1"),
        ({"callback": 3}, "callback is 3: it must be a function of a row"),
    ],
)
def test_bad_options_are_refused_and_nothing_is_written(tmp_path, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        cakes().run(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# Callbacks.


@pytest.mark.parametrize("options", [{"executor": "inline"}, {"executor": "processes", "workers": 2}])
def test_a_callback_gets_every_row_in_order(tmp_path, options):
    process, seen = os.getpid(), []

    def callback(row: dict[str, Any]) -> None:
        assert os.getpid() == process
        seen.append(row)

    runs = cakes(steps=400, rows=40).run(tmp_path, callback=callback, **options)
    assert len(seen) == 4 * 40
    by_run: dict[str, list[dict]] = defaultdict(list)
    for row in seen:
        by_run[row["run"]].append(row)
    assert set(by_run) == {run.name for run in runs}
    for run in runs:
        written = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
        assert by_run[run.name] == [{"run": run.name, "env": "cake", "operator": run.agent, "seed": run.seed, **row} for row in written]


@pytest.mark.parametrize("options", [{"executor": "inline"}, {"executor": "processes", "workers": 2}])
@pytest.mark.parametrize("error", [RuntimeError("enough"), KeyboardInterrupt("mine")], ids=["error", "interrupt"])
def test_an_exception_of_a_callback_stops_the_study_with_runs_saved(tmp_path, options, error):
    study = ag.Study("walks", KIND, length=60, seeds=3)
    calls = []

    def callback(row: dict[str, Any]) -> None:
        calls.append(row)
        if len(calls) == 5:
            raise error

    with pytest.raises(type(error)) as raised:
        study.run(tmp_path, callback=callback, save_every=1000.0, **options)
    assert raised.value is error
    assert len(calls) == 5
    stopped = ag.read_runs(tmp_path)
    assert {run.state for run in stopped} <= {"done", "stopped"}
    assert all(list((run.folder / "checkpoint").glob("*.npz")) for run in stopped)
    again = study.run(tmp_path, executor="inline")
    alone = study.run(tmp_path / "alone", executor="inline")
    assert [run.state for run in again] == ["done"] * 3
    for one, other in zip(again, alone, strict=True):
        assert (one.folder / "metrics.jsonl").read_bytes() == (other.folder / "metrics.jsonl").read_bytes()


# Failures and interrupts.


@pytest.mark.parametrize("options", [{"executor": "inline"}, {"executor": "processes", "workers": 1}])
def test_some_failures_are_a_warning_and_the_rest_is_returned(tmp_path, monkeypatch, options):
    study = ag.Study("walks", KIND, trouble=["none", "raise"], length=4)
    with pytest.warns(
        RuntimeWarning, match=r"1 of 2 runs of the study 'walks' failed: Walk_seed-0_\w+: RuntimeError: the walker .* into a ditch"
    ):
        runs = study.run(tmp_path, **options)
    assert Counter(run.state for run in runs) == {"done": 1, "failed": 1}
    [(name, text)] = runs.failed.items()
    assert name in study.named()
    assert text == "RuntimeError: the walker [red]fell[/red] into a ditch"
    assert repr(runs) == "Runs(2 runs of lab_experiment.py:Walk: 1 done, 1 failed; tasks meadow; agents walker)".replace(
        "lab_experiment.py:Walk", runs[0].kind
    ).replace("walker", runs[0].agent)
    monkeypatch.setenv(CURED, "1")
    assert study.run(tmp_path, **options).failed == {}


def test_an_error_is_raised_if_nothing_succeeds(tmp_path):
    study = ag.Study("walks", KIND, trouble="raise", length=4, seeds=2)
    with pytest.raises(
        RuntimeError, match=r"2 of 2 runs of the study 'walks' failed: .* into a ditch; fix it and run the study again to retry"
    ):
        study.run(tmp_path, executor="inline")
    assert len(ag.read_runs(tmp_path).failed) == 2


def test_an_interrupt_saves_and_says_what_is_left(tmp_path):
    def interrupt(row: dict[str, Any]) -> None:
        if not sent:
            sent.append(row)
            os.kill(os.getpid(), signal.SIGINT)

    sent: list[dict] = []
    study = ag.Study("walks", KIND, length=50, seeds=2)
    with pytest.raises(KeyboardInterrupt, match="stopped: 2 of 2 runs are unfinished; make the same call again to resume"):
        study.run(tmp_path, executor="inline", callback=interrupt)
    assert [run.state for run in ag.read_runs(tmp_path)] == ["stopped"]
    assert len(study.run(tmp_path, executor="inline").select(state="done")) == 2


# Runs.


def test_runs_are_an_immutable_sequence(done):
    out, runs = done
    assert isinstance(runs[0], RunRecord)
    assert [run.seed for run in runs] == [0, 0, 1, 1]
    assert isinstance(runs[1:3], ag.Runs)
    assert [run.name for run in runs[1:3]] == [runs[1].name, runs[2].name]
    assert runs[-1] in runs
    assert runs.problems == ()
    assert runs.failed == {}
    with pytest.raises(TypeError):
        runs[0] = runs[1]  # pyright: ignore[reportIndexIssue]
    again = ag.read_runs(out, trust=True)
    assert sorted(run.name for run in again) == sorted(run.name for run in runs)
    assert len(ag.read_runs([out, out], progress=False)) == 4


def test_runs_are_selected_by_fields(done):
    _, runs = done
    assert [run.seed for run in runs.select(operator="al:0.5")] == [0, 1]
    assert [run.seed for run in runs.select(operator=["al:0.5", "bellman"], seed=range(1))] == [0, 0]
    assert len(runs.select(operator=ag.advantage(0.5), state="done", kind="q-learning")) == 2
    assert len(runs.select(operator="nothing")) == 0
    with pytest.raises(ValueError, match=r"the runs have no field 'operators': did you mean operator\?"):
        runs.select(operators="bellman")


def test_runs_are_shown_in_one_line_and_as_a_table(done):
    _, runs = done
    assert repr(runs) == "Runs(4 runs of q-learning: 4 done; tasks cake; agents bellman, al:0.5)"
    page = runs._repr_html_()
    assert page.count("<tr>") == 3
    assert "2 of 2" in page
    assert "n = 2" in page
    assert repr(runs[:0]) == "Runs(0 runs)"
    assert runs[:0]._repr_html_().count("<tr>") == 1
    assert runs[:0].table() == []


def test_runs_become_a_data_frame(done):
    pytest.importorskip("pandas")
    _, runs = done
    frame = runs.to_pandas()
    assert list(frame.columns) == ["run", "kind", "state", "env", "operator", "seed", "step", *runs[0].columns]
    assert frame["step"].tolist() == [50, 100] * 4
    assert frame["seed"].tolist() == [0] * 4 + [1] * 4
    for run in runs:
        np.testing.assert_array_equal(frame[frame.run == run.name].gap, run.rows["gap"])
    assert frame.groupby("operator").gap.mean().index.tolist() == ["al:0.5", "bellman"]


def test_a_data_frame_of_runs_of_different_kinds_has_the_columns_of_all(tmp_path, done):
    pytest.importorskip("pandas")
    out, _ = done
    ag.Study("walks", KIND, length=3, marks=[(1.0,), (2.0, 3.0)]).run(tmp_path, executor="inline")
    frame = ag.read_runs([out, tmp_path]).to_pandas()
    assert len(frame) == 8 + 6
    assert {"height", "score", "marks", "env"} <= set(frame.columns)
    assert frame[frame.kind == "q-learning"].height.isna().all()
    assert len(ag.read_runs(out)[:0].to_pandas()) == 0


def test_a_data_frame_without_pandas_is_refused_in_a_sentence(done, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"a data frame needs pandas, which is not installed: pip install 'actiongap\[notebook\]'"
    ):
        done[1].to_pandas()


def test_reading_no_runs_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="there are no runs in"):
        ag.read_runs(tmp_path)


# Operators of one's own.


def test_functions_of_a_module_run_in_processes(tmp_path):
    runs = cakes(operator=mine, seeds=2).run(tmp_path, executor="processes", workers=1)
    assert [run.state for run in runs] == ["done", "done"]
    assert runs[0].agent.endswith("test_studies.py:mine")


@pytest.mark.parametrize("options", [{"executor": "processes"}, {"executor": "ray"}, {"workers": 2}, {"ray": "auto"}])
def test_lambdas_are_refused_by_processes(tmp_path, options):
    study = cakes(operator=["bellman", lambda b: b.bellman - 0.25 * b.gap])
    with pytest.raises(ValueError, match="other processes cannot find an operator or simulator that is defined here"):
        study.run(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_lambdas_run_inline_and_are_told_apart(tmp_path):
    study = cakes(operator=[lambda b, k=alpha: b.bellman - k * b.gap for alpha in (0.25, 0.5)] + ["al:0.5"])
    runs = study.run(tmp_path)
    assert len({run.agent for run in runs}) == 3
    rows = [run.rows["gap"].tolist() for run in runs.select(seed=0)]
    assert rows[0] != rows[1] == rows[2]


SCRIPT = """
import sys
import actiongap as ag

ALPHA = {alpha}

def own(b):
    return b.bellman - ALPHA * b.gap

def made(alpha):
    return lambda b: b.bellman - alpha * b.gap

if __name__ == "__main__":
    study = ag.Study("cakes", "q-learning", env="cake", operator=[own, made({alpha}), lambda b: b.bellman], steps=100, rows=2)
    rows = []
    runs = study.run(sys.argv[1], callback=rows.append)
    print(len(runs), len(rows), " ".join(sorted(run.name for run in runs)))
"""


def test_a_script_with_functions_and_lambdas_resumes_in_a_new_process(tmp_path):
    def script(alpha: float) -> tuple[int, int, set[str]]:
        (tmp_path / "script.py").write_text(SCRIPT.format(alpha=alpha))
        found = subprocess.run([sys.executable, tmp_path / "script.py", tmp_path / "out"], capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr
        runs, rows, *names = found.stdout.split()
        return int(runs), int(rows), set(names)

    first, again, changed = script(0.5), script(0.5), script(0.25)
    assert first[:2] == (3, 6)
    # Nothing is computed again, unless the constant, or the value that the closure holds, is another one.
    assert (again[:2], again[2]) == ((3, 0), first[2])
    assert changed[:2] == (3, 4)
    assert len(first[2] & changed[2]) == 1


OPERATORS = {
    "mine.py": """
import functools

from helper import scaled

ALPHA = 0.5


def doubled(function):
    @functools.wraps(function)
    def twice(b):
        return function(b) * 1.0

    return twice


def made(share):
    def inner(b, power=1):
        return b.bellman - share * scaled(b) * ALPHA**power

    return inner


inner = made(0.5)


@doubled
def half(b):
    return inner(b)


def unrelated(b):
    return b.v
""",
    "helper.py": """
SCALE = 0.5


def scaled(b):
    return SCALE * b.gap


def unused():
    return 1
""",
}

EDITS = {
    "nothing": ("mine.py", "", "", ""),
    "an unrelated function": ("mine.py", "return b.v", "return b.q", ""),
    "another function": ("mine.py", "def unrelated", "def other(b):\n    return 0\n\n\ndef unrelated", ""),
    "a comment": ("mine.py", "    return inner(b)", "    # The same.\n    return inner(b)", ""),
    "an unused helper": ("helper.py", "return 1", "return 2", ""),
    "a constant": ("mine.py", "ALPHA = 0.5", "ALPHA = 0.25", "mine.py:half has changed"),
    "a default": ("mine.py", "power=1", "power=2", "mine.py:half has changed"),
    "a decorator": ("mine.py", "* 1.0", "* 2.0", "mine.py:half has changed"),
    "a value in a closure": ("mine.py", "made(0.5)", "made(0.25)", "mine.py:half has changed"),
    "a helper": ("helper.py", "* b.gap", "* b.gap * 2", "helper.py, which mine.py:half uses, has changed"),
    "a constant of a helper": ("helper.py", "SCALE = 0.5", "SCALE = 0.25", "helper.py, which mine.py:half uses, has changed"),
    "an undecided file": (
        "helper.py",
        "SCALE * b.gap",
        "eval('SCALE') * b.gap",
        r"helper.py, which mine.py:half uses, \(all of the file counts, because it uses eval\) has changed",
    ),
}


def write_operators(folder: Path) -> str:
    for name, text in OPERATORS.items():
        (folder / name).write_text(text)
    return f"{folder / 'mine.py'}:half"


@pytest.mark.parametrize("edit", EDITS)
def test_finished_runs_are_tied_to_what_the_operator_is(tmp_path, edit):
    study = cakes(operator=write_operators(tmp_path), seeds=1)
    out = tmp_path / "out"
    [run] = study.run(out, executor="processes", workers=1)
    assert run.state == "done"
    file, before, after, sentence = EDITS[edit]
    assert before in OPERATORS[file]
    (tmp_path / file).write_text(OPERATORS[file].replace(before, after))
    seen: list[dict] = []
    if sentence:
        with pytest.raises(ValueError, match=f"{sentence} since runs in .* were made with it: choose another --out"):
            study.run(out)
    else:
        assert len(study.run(out, callback=seen.append)) == 1
    assert seen == []


def test_runs_of_earlier_versions_are_compared_by_the_bytes_of_files(tmp_path):
    study = cakes(operator=write_operators(tmp_path), seeds=1)
    [run] = study.run(tmp_path / "out", executor="inline")
    meta = json.loads((run.folder / "meta.json").read_text())
    for attempt in meta["attempts"]:
        assert list(attempt.pop("code")) == ["mine.py:half"]
    (run.folder / "meta.json").write_text(json.dumps(meta))
    assert len(study.run(tmp_path / "out")) == 1
    (tmp_path / "mine.py").write_text(OPERATORS["mine.py"] + "# a comment\n")
    with pytest.raises(ValueError, match=r"mine\.py has changed since runs in"):
        study.run(tmp_path / "out")


def test_data_files_count_by_their_bytes(tmp_path):
    ag.save_npz(ag.cake(0.9, 0.1), tmp_path / "mine.npz")
    study = cakes(env=str(tmp_path / "mine.npz"), seeds=1)
    assert len(study.run(tmp_path / "out", executor="inline")) == 2
    ag.save_npz(ag.cake(0.9, 0.2), tmp_path / "mine.npz")
    with pytest.raises(ValueError, match=r"mine\.npz has changed since runs in"):
        cakes(env=str(tmp_path / "mine.npz"), seeds=1).run(tmp_path / "out")


def test_operators_of_a_package_and_their_helpers_run_in_processes(tmp_path):
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("SCALE = 0.5\n")
    (package / "operators.py").write_text("from .helper import SCALE\n\n\ndef half(b):\n    return b.bellman - SCALE * b.gap\n")
    runs = cakes(operator=["al:0.5", f"{package / 'operators.py'}:half"], seeds=1).run(tmp_path / "out", executor="processes", workers=1)
    assert runs.failed == {}
    assert runs[0].rows["gap"].tolist() == runs[1].rows["gap"].tolist()


def test_helpers_of_the_same_name_in_different_folders_are_told_apart(tmp_path):
    texts = []
    for name, scale in (("one", 0.5), ("two", 0.25)):
        (tmp_path / name).mkdir()
        texts.append(write_operators(tmp_path / name))
        (tmp_path / name / "helper.py").write_text(OPERATORS["helper.py"].replace("SCALE = 0.5", f"SCALE = {scale}"))
    runs = cakes(operator=[*texts, "al:0.125", "al:0.0625"], seeds=1).run(tmp_path / "out", executor="inline")
    one, two, *known = (run.rows["gap"].tolist() for run in runs)
    assert [one, two] == known


def test_run_with_progress_tells_what_is_stopped(tmp_path):
    outcome = run_with_progress(cakes(), tmp_path, executor="inline", measure=False)
    assert sorted(outcome.done) == sorted(run_folder(tmp_path, name).name for name in cakes().named())


def test_the_example_runs_and_resumes(tmp_path):
    file = Path(__file__).parents[2] / "examples" / "study.py"
    said = []
    for _ in range(2):
        found = subprocess.run([sys.executable, file, "lake"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr
        said.append(found.stdout)
    assert "Runs(18 runs of q-learning: 18 done; tasks gridworld:4,4, gym/FrozenLake-v1; agents bellman, al:0.9, mine@" in said[0]
    assert (tmp_path / "lake" / "page.html").is_file()
    # Nothing was computed again, so the callback had no row.
    assert "the best score" in said[0]
    assert [line for line in said[0].splitlines() if "the best score" not in line] == said[1].splitlines()
