"""Experiments and studies: fields and their types, names, all forms of studies, and errors."""

import dataclasses
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from actiongap.lab.experiment import as_config, check_format, field_docs, field_types, find, from_config, make, name_of, run_name
from actiongap.lab.runner import run_experiment
from actiongap.lab.study import Study, grid, load_study
from lab_experiment import KIND, Walk

HEAD = """
from __future__ import annotations
from dataclasses import dataclass
from typing import Literal
import numpy as np
from actiongap.lab.experiment import Experiment
from actiongap.lab.study import Study, grid
"""
BODY = """
    @property
    def chunks(self) -> int: return 2
    @property
    def total_steps(self) -> int: return 2
    def start(self): return {"x": np.zeros(1)}
    def advance(self, state, chunk): return state, [{"step": chunk + 1, "score": 0.5}]
"""


def refusal(call) -> str:
    """The error message of a call."""
    with pytest.raises(ValueError, match=r"\S") as refused:
        call()
    text = str(refused.value)
    assert "\n" not in text
    return text


@pytest.fixture
def own(tmp_path):
    """Write a file with a user's experiment, and return its kind."""
    count = 0

    def write(fields: str, body: str = BODY, after: str = "") -> str:
        nonlocal count
        count += 1
        file = tmp_path / f"own{count}.py"
        begin = '@dataclass(frozen=True)\nclass Mine(Experiment):\n    """Mine."""\n    columns = {"score": "the score"}\n'
        file.write_text(HEAD + begin + textwrap.indent(textwrap.dedent(fields), "    ") + body + after)
        return f"{file}:Mine"

    return write


# Fields


ACCEPTED = [
    ("float", 3, 3.0),
    ("float", -0.5, -0.5),
    ("int", 3, 3),
    ("bool", True, True),
    ("str", "", ""),
    ("float | None", None, None),
    ("float | None", 2, 2.0),
    ("int | str", "x", "x"),
    ("Literal['a', 'b']", "b", "b"),
    ("tuple[float, ...]", [1, 2.5], (1.0, 2.5)),
    ("tuple[str, ...]", [], ()),
    ("tuple[int | None, ...]", (1, None), (1, None)),
]
REFUSED = [
    ("float", "3"),
    ("float", True),
    ("float", float("nan")),
    ("float", float("inf")),
    ("float", None),
    ("float", np.float32(1)),
    ("int", 3.0),
    ("int", True),
    ("int", "3"),
    ("int", np.int64(3)),
    ("bool", 1),
    ("bool", "true"),
    ("str", 3),
    ("str", b"x"),
    ("float | None", "x"),
    ("float | None", float("nan")),
    ("Literal['a', 'b']", "c"),
    ("Literal['a', 'b']", ["a"]),
    ("Literal['a', 'b']", 0),
    ("tuple[float, ...]", 1.0),
    ("tuple[float, ...]", ["x"]),
    ("tuple[float, ...]", [[1.0]]),
    ("tuple[float, ...]", {"a": 1.0}),
    ("str", {"a": {"b": "c"}}),
    pytest.param(
        "float",
        10**400,
        id="float-beyond",
    ),
    pytest.param("Literal[1, 2]", True),
    pytest.param("Literal[1, 2]", 1.0),
]


@pytest.mark.parametrize(("wanted", "value", "expected"), ACCEPTED)
def test_values_become_the_type_of_their_field(own, wanted, value, expected):
    kind = own(f"field: {wanted} = None")
    found = make(kind, {"field": value}).field  # pyright: ignore[reportAttributeAccessIssue]
    assert found == expected
    assert type(found) is type(expected)
    # What JSON makes of it is accepted too, and is the same.
    config = json.loads(json.dumps(as_config(make(kind, {"field": value}))))
    assert from_config(config, trust=True).field == expected  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(("wanted", "value"), REFUSED)
def test_other_values_are_refused_in_a_sentence_that_names_the_field(own, wanted, value):
    assert "field" in refusal(lambda: make(own(f"field: {wanted} = None"), {"field": value}))


def test_unknown_fields_are_refused_with_a_list_of_fields():
    text = refusal(lambda: make(KIND, {"lenght": 3}))
    assert "'lenght'" in text
    assert "length" in text


KINDS_REFUSED = [
    "nothing",
    "",
    ":",
    "q-learning:QLearning",
    "nowhere.py:Name",
    "{folder}/empty.py:Name",
    "{folder}/broken.py:Name",
    "{folder}/leaves.py:Name",
    "{folder}/plain.py:Name",
    "{folder}/plain.py:function",
    "{folder}/plain.py:number",
    "{folder}/plain.py:NotADataclass",
    "{folder}/plain.py:",
    "{folder}:Name",
    "{folder}/binary.py:Name",
]


@pytest.mark.parametrize("kind", KINDS_REFUSED)
def test_other_classes_are_refused(tmp_path, kind):
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit('good\\nbye')\n")
    (tmp_path / "plain.py").write_text(
        HEAD + "class Name: pass\ndef function(): pass\nnumber = 3\nclass NotADataclass(Experiment):\n    columns = {}" + BODY
    )
    (tmp_path / "binary.py").write_bytes(b"\xff\x00\xfe")
    refusal(lambda: find(kind.format(folder=tmp_path)))


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param("n: int"),
        pytest.param("n: Nowhere = 0"),
        pytest.param(
            "n: int = 0\ndef __post_init__(self): {}['lost']",
        ),
    ],
)
def test_experiments_that_cannot_be_made_are_refused(own, fields):
    refusal(lambda: make(own(fields), {}))


def test_experiments_that_lack_a_method_are_refused(own):
    refusal(lambda: make(own("n: int = 0", body=""), {}))


def test_errors_of_an_experiment_are_passed_on(own):
    kind = own("n: int = 0\ndef __post_init__(self):\n    if self.n < 0: raise ValueError('n is below 0')")
    assert refusal(lambda: make(kind, {"n": -1})) == "n is below 0"


def test_field_docs_are_found_under_future_annotations(own):
    child = '\n@dataclass(frozen=True)\nclass Child(Mine):\n    n: int = 2\n    """How many now."""\n    new: int = 3\n    """New."""\n'
    kind = own(
        'n: int = 1\n"""How many."""\nother: str = "x"\nlong: float = 0.5\n"""Two\n    lines."""\nlast: bool = False',
        after=child + BODY,
    )
    docs = field_docs(find(kind))
    assert docs["n"] == "How many."
    assert docs["long"].split() == ["Two", "lines."]
    assert not {"other", "last"} & set(docs)
    child = find(kind.replace(":Mine", ":Child"))
    assert (field_docs(child)["n"], field_docs(child)["new"], field_docs(child)["long"].split()) == (
        "How many now.",
        "New.",
        ["Two", "lines."],
    )
    assert field_types(child) == {"n": int, "other": str, "long": float, "last": bool, "new": int}


def test_kinds_that_are_built_in_describe_themselves():
    from actiongap.lab.experiment import KINDS

    for kind in KINDS:
        cls = find(kind)
        assert cls.kind == kind
        assert cls.columns
        assert set(field_docs(cls)) >= set(field_types(cls))
        assert all(field.default is not dataclasses.MISSING for field in dataclasses.fields(cls))  # pyright: ignore[reportArgumentType]


def test_naming_a_class_in_a_file_does_not_rename_the_class_elsewhere(tmp_path, monkeypatch):
    file = tmp_path / "borrowed.py"
    file.write_text("from actiongap.lab.kinds.finite import QLearning\n")
    monkeypatch.setattr(find("q-learning"), "kind", "q-learning")
    find(f"{file}:QLearning")
    assert as_config(make("q-learning", {"env": "cake"}))["kind"] == "q-learning"


# Configurations


texts = st.text(st.characters(codec="utf-8"), max_size=30)
walks = st.fixed_dictionaries(
    {},
    optional={
        "env": texts,
        "drift": st.floats(allow_nan=False, allow_infinity=False),
        "length": st.integers(1, 10**20),
        "marks": st.lists(st.floats(-9, 9), max_size=4),
        "trouble": st.sampled_from(["none", "raise", "kill"]),
        "seed": st.integers(0, 2**63),
    },
)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(walks, walks)
@example({"env": "a b"}, {"env": "a-b"})
@example({"env": "../../etc"}, {"env": ".. ..etc"})
@example({"env": "x" * 300}, {"env": "x" * 301})
@example({"env": ""}, {"env": "\0"})
@example({"env": "A"}, {"env": "a"})
def test_specs_survive_json_and_have_safe_and_distinct_names(first, second):
    one, other = _walk(first), _walk(second)
    config = json.loads(json.dumps(as_config(one)))
    again = make(KIND, config["spec"])
    assert dataclasses.asdict(again) == dataclasses.asdict(one)  # pyright: ignore[reportArgumentType]
    assert json.dumps(as_config(again)["spec"]) == json.dumps(config["spec"])
    name = run_name(one)
    assert re.fullmatch(r"[A-Za-z0-9._+-]+", name)
    assert len(name) < 80
    assert not name.startswith((".", "-"))
    assert name == run_name(_walk(first))
    if one != other:
        assert name.lower() != run_name(other).lower()


def _walk(values: dict[str, Any]) -> Walk:
    return Walk(**{**values, **{name: tuple(values[name]) for name in ("marks",) if name in values}})


GOLDEN = [
    ({}, "walk_seed-0_89878e07"),
    ({"seed": 12, "drift": 0.5}, "walk_seed-12_65953163"),
    ({"env": "gym/Lake v1", "marks": (1.0,), "length": 100}, "walk_seed-0_10d344c4"),
]


@pytest.mark.parametrize(("values", "name"), GOLDEN)
def test_names_never_change(values, name):
    """If a name changed, existing studies would start again."""
    assert run_name(Walk(**values)) == name


@pytest.mark.parametrize(
    ("operator", "start"),
    [
        ("al:0.9", "al-0.9_seed-7_"),
        ("pal-dqn:0.9", "pal-dqn-0.9_seed-7_"),
        ("../their/operators.py:half", "operators.py-half_seed-7_"),
        ("x" * 99 + ".py:half", "x" * 40 + "_seed-7_"),
    ],
)
def test_names_start_with_the_operator_and_the_seed(operator, start):
    values = {"env": "cake", "operator": operator, "seed": 7}
    name = name_of(find("q-learning"), values)
    assert re.fullmatch(re.escape(start) + "[0-9a-f]{8}", name)
    others = [{**values, "env": "chain:5"}, {**values, "seed": 8}, {**values, "steps": 7}]
    assert len({name, *(name_of(find("q-learning"), other) for other in others)}) == 4


def test_names_do_not_depend_on_how_a_file_is_written(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])
    names = {run_name(make(kind, {})) for kind in (KIND, "lab_experiment.py:Walk", "./lab_experiment.py:Walk")}
    assert len(names) == 1


def test_an_experiment_from_a_file_equals_its_copy_from_the_configuration():
    experiment = make(KIND, {"seed": 3})
    assert from_config(json.loads(json.dumps(as_config(experiment))), trust=True) == experiment


RECORDS = [
    None,
    [],
    3,
    {},
    {"format": "other", "version": 1},
    {"format": "actiongap-run"},
    {"format": "actiongap-run", "version": "1"},
    {"format": "actiongap-run", "version": 0},
    {"format": "actiongap-run", "version": 1.0},
    {"format": "actiongap-run", "version": 1},
    {"format": "actiongap-run", "version": 3},
    {"format": "actiongap-run", "version": 10**30},
]


@pytest.mark.parametrize("record", RECORDS, ids=repr)
def test_foreign_records_are_refused(record):
    refusal(lambda: check_format(record))


@pytest.mark.parametrize(
    "change", [{"kind": None}, {"kind": 3}, {"spec": None}, {"spec": [1]}, {"kind": "nothing"}, {"spec": {"steps": "many"}}], ids=repr
)
def test_incomplete_configurations_are_refused(change):
    refusal(lambda: from_config({**as_config(make("q-learning", {"env": "cake"})), **change}))


@pytest.mark.parametrize(
    ("kind", "values"),
    [(KIND, {"seed": 4, "drift": 0.5, "marks": [0.5]}), ("q-learning", {"env": "cake", "operator": "al:0.5", "steps": 200, "rows": 4})],
)
def test_a_run_is_reproduced_from_its_configuration(tmp_path, kind, values):
    first = make(kind, values)
    assert run_experiment(tmp_path / "first", first) == "done"
    (again,) = load_study(tmp_path / "first" / "config.json", trust=True).runs
    assert run_name(again) == run_name(first)
    assert run_experiment(tmp_path / "again", again) == "done"
    for name in ("metrics.jsonl", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()
    assert (tmp_path / "first" / "metrics.jsonl").read_bytes().count(b"\n") == first.chunks


def test_the_randomness_of_a_chunk_depends_on_seed_and_chunk_alone():
    draws = {(seed, chunk): tuple(Walk(seed=seed).rng(chunk).random(3)) for seed in range(3) for chunk in range(3)}
    assert len(set(draws.values())) == 9
    assert tuple(Walk(seed=1, drift=9.0).rng(2).random(3)) == draws[1, 2]


# Studies


def toml(folder: Path, text: str, name: str = "study.toml") -> Path:
    file = folder / name
    file.write_text(text.replace("KIND", json.dumps(KIND)))
    return file


def test_a_study_file_is_a_grid(tmp_path):
    file = toml(
        tmp_path,
        """
        kind = "q-learning"
        env = ["cake", "chain:4", "gridworld:3,3", "garnet:10,2,2", "gym/FrozenLake-v1"]
        operator = ["bellman", "consistent", "al:0.9"]
        seeds = 10
        """,
    )
    study = load_study(file)
    assert len(study.runs) == len(study.named()) == 150
    assert study.name == "study"
    # The first seed of everything comes before the second of anything, and within a seed the order is the file's.
    assert [run.seed for run in study.runs] == [seed for seed in range(10) for _ in range(15)]
    assert [(run.task, run.agent) for run in study.runs[:4]] == [
        ("cake", "bellman"),
        ("cake", "consistent"),
        ("cake", "al:0.9"),
        ("chain:4", "bellman"),
    ]
    assert list(study.named()) == [run_name(run) for run in study.runs]


def test_tables_inherit_values_from_the_top(tmp_path):
    file = toml(
        tmp_path,
        """
        name = "two walks"
        kind = KIND
        cpus = 2
        gpus = 0.25
        length = 4
        [[runs]]
        env = ["meadow", "moor"]
        seeds = 2
        [[runs]]
        env = "hill"
        length = 5
        seed = [7, 1]
        """,
    )
    study = load_study(file, trust=True)
    assert (study.name, study.cpus, study.gpus) == ("two walks", 2, 0.25)
    found = [(run.task, run.chunks, run.seed) for run in study.runs]
    assert found == [("meadow", 4, 0), ("moor", 4, 0), ("meadow", 4, 1), ("moor", 4, 1), ("hill", 5, 1), ("hill", 5, 7)]


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("", [(1.0, 2.0)]),
        ("marks = [1, 2, 3]", [(1.0, 2.0, 3.0)]),
        ("marks = []", [()]),
        ("marks = [[1, 2], [3], []]", [(1.0, 2.0), (3.0,), ()]),
        ("marks = [[4]]", [(4.0,)]),
    ],
)
def test_a_tuple_field_is_an_axis_if_several_tuples_are_given(tmp_path, text, marks):
    assert [run.marks for run in load_study(toml(tmp_path, f"kind = KIND\n{text}"), trust=True).runs] == marks  # pyright: ignore[reportAttributeAccessIssue]


def test_python_and_toml_give_the_same_study():
    once = grid(KIND, env=["meadow", "moor"], seed=range(3), marks=[(1.0,), (2.0, 3.0)])
    assert len(once) == 12
    assert {run.marks for run in once} == {(1.0,), (2.0, 3.0)}  # pyright: ignore[reportAttributeAccessIssue]
    assert [run_name(run) for run in grid(KIND, env="moor", seed=(0, 1))] == [
        run_name(run) for run in grid(KIND, env=["moor"], seed=[0, 1])
    ]


def test_python_studies(tmp_path):
    file = tmp_path / "study.py"
    file.write_text(HEAD + f"study = Study('mine', grid({KIND!r}, seed=range(3), length=[2, 3]))\n")
    study = load_study(file)
    assert (study.name, len(study.runs)) == ("mine", 6)
    by_toml = load_study(toml(tmp_path, "kind = KIND\nlength = [2, 3]\nseeds = 3"), trust=True)
    assert list(study.named()) == list(by_toml.named())


def test_python_studies_of_an_experiment_in_the_same_file(own, tmp_path):
    kind = own("seed: int = 0", after="\nstudy = Study('mine', grid(Mine, seed=range(3)))\n")
    study = load_study(kind.rpartition(":")[0])
    assert [run.seed for run in study.runs] == [0, 1, 2]
    assert run_experiment(tmp_path / "run", from_config(json.loads(json.dumps(as_config(study.runs[2]))), trust=True)) == "done"


def test_duplicate_runs_are_merged():
    assert len(Study("twice", grid("q-learning", env="cake", seed=[0, 0, 1])).runs) == 2


def test_duplicate_runs_of_a_file_are_merged():
    study = Study("twice", grid(KIND, seed=[0, 0, 1]))
    assert len(study.runs) == len(study.named()) == 2


BAD_TOML = [
    "",
    "kind = ",
    "kind = KIND\nkind = KIND",
    "kind = 3",
    "kind = [KIND]",
    "kind = 'nothing'",
    "kind = KIND\nseeds = 0",
    "kind = KIND\nseeds = -1",
    "kind = KIND\nseeds = true",
    "kind = KIND\nseeds = 2.0",
    "kind = KIND\nseeds = [1, 2]",
    "kind = KIND\nseeds = 2\nseed = [1, 2]",
    "kind = KIND\nspeed = 3",
    "kind = KIND\nlength = 'x'",
    "kind = KIND\nlength = []",
    "kind = KIND\nlength = [[1]]",
    "kind = KIND\nlength = 2026-01-01",
    "kind = KIND\ndrift = nan",
    "kind = KIND\n[drift]\nx = 1",
    "kind = KIND\nname = 3",
    "kind = KIND\nruns = []",
    "kind = KIND\nruns = 3",
    "kind = KIND\nruns = [1]",
    "kind = KIND\n[runs]\nseed = 1",
    "[[runs]]\nseed = 1",
    "kind = KIND\ncpus = 0",
    "kind = KIND\ncpus = nan",
    "kind = KIND\ncpus = 'all'",
    "kind = KIND\ncpus = true",
    "kind = KIND\ngpus = -1",
    "kind = KIND\nenv = " + "[" * 5000 + "]" * 5000,
    "kind = KIND\nlength = " + "9" * 5000,
    pytest.param(
        f"kind = KIND\nseeds = {10**30}",
    ),
    pytest.param("kind = KIND\ncpus = inf"),
]


@pytest.mark.parametrize("text", BAD_TOML, ids=lambda text: text[:40].replace("\n", "; "))
def test_bad_studies_are_refused_in_a_sentence_that_names_the_file(tmp_path, text):
    assert refusal(lambda: load_study(toml(tmp_path, text), trust=True)).startswith(str(tmp_path / "study.toml"))


BAD_FILES = {
    "study.txt": b"",
    "study": b"",
    "binary.toml": b"kind = '\xff\xfe'",
    "binary.json": b"\xff\xfe\x00",
    "empty.json": b"",
    "list.json": b"[]",
    "deep.json": b"[" * 100_000,
    "half.json": b'{"format": "actiongap-run", "vers',
    "later.json": b'{"format": "actiongap-run", "version": 3}',
    "empty.py": b"",
    "other.py": b"study = 3",
    "broken.py": b"study = (",
    "raises.py": b"raise RuntimeError('one\\ntwo')",
}


@pytest.mark.parametrize("name", [*BAD_FILES, "missing.toml", "missing.py", "x" * 300 + ".toml"], ids=lambda name: name[:20])
def test_files_that_hold_no_study_are_refused(tmp_path, name):
    if name in BAD_FILES:
        (tmp_path / name).write_bytes(BAD_FILES[name])
    try:
        assert name[:20] in refusal(lambda: load_study(tmp_path / name))
    except OSError as error:
        assert len(name) > 255, error  # noqa: PT017 - the command line has a sentence for what the system refuses


@pytest.mark.parametrize("values", [{"cpus": 0}, {"cpus": float("nan")}, {"gpus": -0.5}, {"gpus": float("nan")}, {"runs": ()}], ids=repr)
def test_empty_studies_are_refused(values):
    refusal(lambda: Study(**{"name": "x", "runs": (Walk(),), **values}))


def test_importing_lab_loads_no_experiment():
    heavy = ("numba", "jax", "torch", "gymnasium", "actiongap.lab.kinds")
    code = f"import sys, actiongap.lab.study; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
