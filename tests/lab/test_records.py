"""Reading runs: records equal what the store wrote, and every other file is reported in one sentence."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actiongap.lab import records
from actiongap.lab import validation as strict
from actiongap.lab.executors import run_inline
from actiongap.lab.experiment import FORMAT, VERSION, Experiment, as_config
from actiongap.lab.records import RunRecord, iter_runs, read_runs
from actiongap.lab.runner import run_experiment
from actiongap.lab.store import encode_rows
from actiongap.lab.study import Study, grid

COLUMNS = {"score": "how good", "gap": "how wide"}
ROWS = [{"step": 10 * i, "score": i / 7, "gap": None if i == 2 else -1.5 * i} for i in range(1, 6)]


def config(**changes: Any) -> dict[str, Any]:
    spec = {"env": "cake", "operator": "bellman", "seed": 3}
    known = {"kind": "q-learning", "task": "cake", "agent": "bellman", "step_name": "steps", "columns": COLUMNS, "spec": spec}
    return {"format": FORMAT, "version": VERSION, **known, **changes}


def status(data: bytes, state: str = "done", **changes: Any) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    known = {"state": state, "chunk": 5, "chunks": 5, "steps": 50, "seconds": 2.0, "rows": len(data), "digest": digest, "disk": 9}
    return {"format": FORMAT, "version": VERSION, **known, "error": None, "traceback": None, **changes}


def write_run(folder: Path, data: bytes = encode_rows(ROWS), state: str | None = "done", **changes: Any) -> Path:
    """Write a run as the store does."""
    folder.mkdir(parents=True)
    attempt = {"versions": {"actiongap": "0.1.0"}, "platform": "Linux", "command": "actiongap sweep x.toml", "date": "2026-01-01"}
    files = {"config.json": config(**changes), "meta.json": {"format": FORMAT, "version": VERSION, "attempts": [attempt]}}
    if state is not None:
        files["status.json"] = status(data, state)
    for name, record in files.items():
        (folder / name).write_text(json.dumps(record))
    (folder / "metrics.jsonl").write_bytes(data)
    return folder


def the_run(place: Path) -> RunRecord:
    found = read_runs([place])
    assert found.problems == ()
    [run] = found.runs
    return run


@dataclass(frozen=True)
class Count(Experiment):
    """Counts, and fails at a chosen chunk."""

    kind = "count"
    columns = {"score": "the number", "other": "never finite"}  # noqa: RUF012

    stumble: int = 99
    """The chunk that fails."""
    seed: int = 0
    """Unused."""

    @property
    def chunks(self) -> int:
        return 4

    @property
    def total_steps(self) -> int:
        return 4

    def start(self):
        return {"count": np.zeros(1)}

    def advance(self, state, chunk):
        if chunk == self.stumble:
            raise ValueError("it stumbled")
        return {"count": state["count"] + 1}, [{"step": chunk + 1, "score": state["count"][0] + 0.1, "other": math.inf}]


def test_records_equal_what_the_store_wrote(tmp_path):
    assert run_experiment(tmp_path / "runs" / "a", Count(), command="count") == "done"
    run = the_run(tmp_path)
    assert (run.name, run.folder, run.kind, run.task, run.agent, run.seed) == ("a", tmp_path / "runs" / "a", "count", "Count", "Count", 0)
    assert run.spec == as_config(Count())["spec"]
    assert run.columns == Count.columns
    assert run.meta["command"] == "count"
    assert run.status is not None
    assert (run.status.state, run.status.chunk) == ("done", 4)
    assert run.rows["step"].tolist() == [1, 2, 3, 4]
    assert run.rows["score"].tolist() == [0.1, 1.1, 2.1, 3.1]
    assert np.isnan(run.rows["other"]).all()
    assert all(column.dtype == np.float64 for column in run.rows.values())


def test_a_failed_run_keeps_its_error_and_its_rows(tmp_path):
    assert run_experiment(tmp_path / "a", Count(stumble=2)) == "failed"
    run = the_run(tmp_path)
    assert run.state == "failed"
    assert run.status is not None
    assert run.status.error == "it stumbled"
    assert run.rows["step"].tolist() == [1, 2]


def test_studies_and_runs_folders_give_the_same_runs(tmp_path):
    study = tmp_path / "study"
    for seed in range(3):
        write_run(study / "runs" / f"run {seed}", spec={"seed": seed})
    (study / "runs" / "loop").symlink_to(study)
    (study / "self").symlink_to(study / "self")
    runs = [study / "runs" / f"run {seed}" for seed in range(3)]
    for places in ([study], [study / "runs"], runs, [study, study, *runs], [tmp_path]):
        found = read_runs(places)
        assert [run.name for run in found.runs] == ["run 0", "run 1", "run 2"]
        assert found.problems == ()


def test_one_folder_needs_no_list(tmp_path, monkeypatch):
    write_run(tmp_path / "mine" / "runs" / "one")
    monkeypatch.chdir(tmp_path)
    for place in ("mine", Path("mine"), ["mine"]):
        assert [run.folder for run in read_runs(place).runs] == [Path("mine/runs/one")]
    with pytest.raises(ValueError, match=r"^yours: no such folder"):
        read_runs("yours")


def test_runs_are_found_three_folders_down_and_no_further(tmp_path):
    write_run(tmp_path / "1" / "2" / "3")
    write_run(tmp_path / "1" / "2" / "3" / "4", spec={"seed": 9})
    assert [run.folder.name for run in read_runs([tmp_path]).runs] == ["3"]
    assert len(read_runs([tmp_path / "1"]).runs) == 2


def test_a_foreign_configuration_does_not_hide_the_runs_below_it(tmp_path):
    write_run(tmp_path / "runs" / "a")
    (tmp_path / "config.json").write_text('{"editor": "vi"}')
    found = read_runs([tmp_path])
    assert len(found.runs) == 1
    [problem] = found.problems
    assert "another program" in problem


def test_copies_of_a_run_are_counted_once(tmp_path):
    whole, part = encode_rows(ROWS), encode_rows(ROWS[:2])
    write_run(tmp_path / "a", part, "running")
    write_run(tmp_path / "b", whole)
    found = read_runs([tmp_path])
    assert [run.name for run in found.runs] == ["b"]
    [problem] = found.problems
    assert "it is the same run as" in problem


@pytest.mark.parametrize("places", [[], ["nowhere"], ["empty"], ["nowhere", "full"]])
def test_a_folder_without_runs_raises_one_sentence(tmp_path, places):
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "full")
    with pytest.raises(ValueError, match="give the folder of a study or of a run"):
        read_runs([tmp_path / place for place in places])


def test_a_run_that_is_left_out_has_one_problem(tmp_path):
    folder = write_run(tmp_path / "run", b"no rows\n")
    (folder / "status.json").write_text("{")
    with pytest.raises(ValueError, match=r"The first problem is \S*metrics.jsonl: .*; the run is left out") as told:
        read_runs(tmp_path)
    assert "its rows are still shown" not in str(told.value)


def test_if_no_run_can_be_read_the_first_problem_is_raised(tmp_path):
    (write_run(tmp_path / "a") / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"none of the runs can be read.*config\.json: it is not JSON"):
        read_runs([tmp_path])


DEEP = b"[" * 100_000
BAD_RECORDS = {
    "truncated": b'{"format": "act',
    "empty": b"",
    "binary": bytes(range(256)),
    "not UTF-8": b'{"format": "\xff"}',
    "UTF-16": json.dumps(config()).encode("utf-16"),
    "deep": DEEP,
    "nested": json.dumps(config(spec={"seed": 3, "x": [[[[[[[[[[1]]]]]]]]]]})).encode(),
    "foreign": b'{"name": "left-pad", "version": "1.0.0"}',
    "a list": b"[]",
    "later": json.dumps(config(version=VERSION + 1)).encode(),
    "odd version": json.dumps(config(version="1")).encode(),
    "NaN": json.dumps(config(spec={"seed": 3, "x": math.nan})).encode(),
    "too large a number": json.dumps(config(spec={"seed": 3, "x": 1.5})).replace("1.5", "1e999").encode(),
    "endless number": json.dumps(config(spec={"seed": 3, "x": 1.5})).replace("1.5", "9" * 10_000).encode(),
    "twice": json.dumps(config()).replace('"kind"', '"kind": "x", "kind"').encode(),
    "huge": b" " * (strict.RECORD_BYTES + 1),
}
BAD_CONFIGS = {
    "no spec": config(spec=None),
    "no seed": config(spec={}),
    "seed is true": config(spec={"seed": True}),
    "seed is a text": config(spec={"seed": "3"}),
    "kind": config(kind=7),
    "task": config(task=None),
    "agent": config(agent=["x"]),
    "step_name": config(step_name={}),
    "no columns": config(columns={}),
    "columns is a list": config(columns=["score"]),
    "meaning": config(columns={"score": 1}),
    "step": config(columns={"step": "the step"}),
    "too many": config(columns={str(i): "" for i in range(101)}),
}


@pytest.mark.parametrize("data", [*BAD_RECORDS.values(), *(json.dumps(bad).encode() for bad in BAD_CONFIGS.values())])
def test_a_bad_configuration_is_one_problem(tmp_path, data):
    write_run(tmp_path / "good")
    (write_run(tmp_path / "bad", spec={"seed": 4}) / "config.json").write_bytes(data)
    found = read_runs([tmp_path])
    assert [run.name for run in found.runs] == ["good"]
    [problem] = found.problems
    assert str(tmp_path / "bad" / "config.json") in problem
    assert problem.isprintable()


@pytest.mark.parametrize("file", ["status.json", "meta.json"])
@pytest.mark.parametrize("data", BAD_RECORDS.values())
def test_a_bad_status_or_provenance_keeps_the_rows(tmp_path, file, data):
    folder = write_run(tmp_path / "a")
    (folder / file).write_bytes(data)
    found = read_runs([tmp_path])
    [run], [problem] = found.runs, found.problems
    assert run.rows["step"].tolist() == [10, 20, 30, 40, 50]
    assert str(folder / file) in problem
    assert (run.status is None) == (file == "status.json")
    assert (not run.meta) == (file == "meta.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "finished"},
        {"chunk": -1},
        {"chunk": 1.5},
        {"steps": 10**400},
        {"seconds": 10**400},
        {"seconds": "1"},
        {"seconds": -1.0},
        {"seconds": None},
        {"digest": None, "state": "stopped"},
        {"error": 7},
        {"error": ["x"]},
        {"batch_size": 0},
        {"batch_size": "two"},
    ],
)
def test_an_impossible_status_is_refused(tmp_path, changes):
    folder = write_run(tmp_path / "a")
    (folder / "status.json").write_text(json.dumps(status(encode_rows(ROWS), **{"state": "done", **changes})))
    found = read_runs([tmp_path])
    [run], [problem] = found.runs, found.problems
    assert run.status is None
    assert str(folder / "status.json") in problem


@pytest.mark.parametrize("attempts", [None, [], {}, [1], "x"])
def test_provenance_without_attempts_is_a_problem(tmp_path, attempts):
    folder = write_run(tmp_path / "a")
    (folder / "meta.json").write_text(json.dumps({"format": FORMAT, "version": VERSION, "attempts": attempts}))
    found = read_runs([tmp_path])
    assert found.runs[0].meta == {}
    assert len(found.problems) == 1


@pytest.mark.parametrize("missing", ["status.json", "meta.json"])
def test_missing_files_of_a_new_run_are_no_problem(tmp_path, missing):
    (write_run(tmp_path / "a", state="running") / missing).unlink()
    assert len(the_run(tmp_path).rows["step"]) == 5


@pytest.mark.parametrize("state", [None, "running", "stopped", "failed"])
def test_a_run_without_rows_is_listed(tmp_path, state):
    folder = write_run(tmp_path / "a", b"", state)
    assert {name: len(column) for name, column in the_run(tmp_path).rows.items()} == {"step": 0, "score": 0, "gap": 0}
    (folder / "metrics.jsonl").unlink()
    assert the_run(tmp_path).state == (state or "started")


@pytest.mark.parametrize("state", [None, "running", "stopped", "failed"])
def test_an_incomplete_last_line_of_a_running_run_is_ignored(tmp_path, state):
    whole = encode_rows(ROWS)
    for cut in range(1, len(encode_rows(ROWS[-1:]))):
        folder = write_run(tmp_path / str(cut), whole[:-cut], state)
        assert the_run(folder).rows["step"].tolist() == [10, 20, 30, 40]


def test_a_finished_run_with_changed_rows_is_left_out(tmp_path):
    whole = encode_rows(ROWS)
    folder = tmp_path
    for number, changed in enumerate(
        [whole.replace(b"-1.5", b"-1.6"), whole[:-1], whole + GOOD.replace(b"20", b"99") + b"\n", whole[: len(whole) // 2], b""]
    ):
        folder = write_run(tmp_path / str(number), whole)
        (folder / "metrics.jsonl").write_bytes(changed)
        with pytest.raises(ValueError, match="its rows were changed after the run was done"):
            read_runs([folder])
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(ValueError, match="it is missing, although the run is done"):
        read_runs([folder])


def test_a_finished_run_with_an_incomplete_line_is_left_out(tmp_path):
    write_run(tmp_path / "a", encode_rows(ROWS)[:-9])
    with pytest.raises(ValueError, match="its rows were changed"):
        read_runs([tmp_path])


GOOD = b'{"step": 20, "score": 0.5, "gap": 1}'
BAD_LINES = {
    "truncated": GOOD[:-3],
    "empty": b"",
    "binary": b"\x00\xff\xfe",
    "a list": b"[20, 0.5, 1]",
    "a number": b"20",
    "null": b"null",
    "a text": GOOD.replace(b"0.5", b'"0.5"'),
    "a truth value": GOOD.replace(b"0.5", b"true"),
    "a list inside": GOOD.replace(b"0.5", b"[0.5]"),
    "NaN": GOOD.replace(b"0.5", b"NaN"),
    "Infinity": GOOD.replace(b"0.5", b"-Infinity"),
    "1e999": GOOD.replace(b"0.5", b"1e999"),
    "a large integer": GOOD.replace(b"0.5", b"9" * 400),
    "an endless integer": GOOD.replace(b"0.5", b"9" * 5000),
    "a key twice": GOOD.replace(b'"gap"', b'"score": 1, "gap"'),
    "no step": GOOD.replace(b'"step": 20, ', b""),
    "null step": GOOD.replace(b"20", b"null"),
    "step back": GOOD.replace(b"20", b"5"),
    "same step": GOOD.replace(b"20", b"10"),
    "deep": DEEP,
    "two objects": GOOD + b", " + GOOD.replace(b"20", b"25"),
    "two lines in one": GOOD + GOOD,
    "an object over two lines": GOOD.replace(b"0.5, ", b"0.5,\n"),
    "two objects over two lines": GOOD[:-1] + b'}, {"step": 25, "score": 1\n"gap": 2}',
    "a text over two lines": GOOD[:-1] + b'}, {"step": 25, "score": 1, "x": "}\n{"}',
    "a list over two lines": GOOD[:-1] + b'}, {"step": 25, "score": 1, "x": [{}\n{}]}',
    "a long line": GOOD + b" " * (2 * strict.BLOCK_BYTES),
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
def test_a_run_with_a_bad_line_is_left_out(tmp_path, line):
    write_run(tmp_path / "good")
    lines = encode_rows([{"step": 10, "score": 1.0, "gap": 0.0}]), line + b"\n", encode_rows([{"step": 30, "score": 1.0, "gap": 0.0}])
    write_run(tmp_path / "bad", b"".join(lines), "running", spec={"seed": 4})
    found = read_runs([tmp_path])
    assert [run.name for run in found.runs] == ["good"]
    [problem] = found.problems
    assert str(tmp_path / "bad" / "metrics.jsonl") in problem
    assert "run its study again to repeat it" in problem
    assert problem.isprintable()


def test_errors_name_the_line_and_the_column(tmp_path):
    rows = [{"step": i, "score": 0.0, "gap": "wide" if i == 4 else 0.0} for i in range(1, 6)]
    write_run(tmp_path / "a", encode_rows(rows), "running")
    with pytest.raises(ValueError, match="line 4 has no finite number at 'gap'"):
        read_runs([tmp_path])


def test_undeclared_columns_are_ignored_and_missing_values_are_nan(tmp_path):
    rows = [{"note": 'a "text"', "step": 1, "score": 2.0}, {"gap": 3, "step": 2, "score": None}]
    write_run(tmp_path / "a", encode_rows(rows), "running")
    found = the_run(tmp_path).rows
    assert list(found) == ["step", "score", "gap"]
    np.testing.assert_array_equal(found["score"], [2.0, np.nan])
    np.testing.assert_array_equal(found["gap"], [np.nan, 3.0])


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_the_size_of_a_block_changes_nothing(tmp_path, monkeypatch, block):
    rows = [{"step": i, "score": i / 3, "gap": None} for i in range(200)]
    write_run(tmp_path / "a", encode_rows(rows))
    monkeypatch.setattr(strict, "BLOCK_BYTES", max(block, 60))
    found = the_run(tmp_path).rows
    assert found["score"].tolist() == [i / 3 for i in range(200)]
    assert found["step"].tolist() == list(range(200))


def test_a_run_with_too_many_numbers_is_left_out(tmp_path, monkeypatch):
    write_run(tmp_path / "a")
    monkeypatch.setattr(strict, "CELLS", 10)
    with pytest.raises(ValueError, match="its rows are too many or too long"):
        read_runs([tmp_path])


def reference(data: bytes, names: tuple[str, ...]) -> list[list[float]] | None:
    """Parse rows line by line; None if a line is bad."""

    def once(pairs):
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def refuse(text):
        raise AssertionError

    found = []
    for line in data.split(b"\n"):
        try:
            row = json.loads(line.decode("utf-8"), object_pairs_hook=once, parse_constant=refuse)
            assert isinstance(row, dict)
            values = [row.get(name) for name in names]
            assert all(value is None or type(value) in (int, float) for value in values)
            numbers = [math.nan if value is None else float(value) for value in values]
            assert not any(map(math.isinf, numbers))
            assert not math.isnan(numbers[0])
        except (AssertionError, ValueError, RecursionError, OverflowError):
            return None
        found.append(numbers)
    return found


pieces = st.sampled_from([*b'{}[],:"\n\\ 0-.', b"e9", b"null", b"true", b"NaN", b'"gap": ', b'"x": 1, ', b"\xff"])


@settings(derandomize=True, deadline=None, max_examples=600)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 12), pieces), max_size=4), st.integers(1, 4))
def test_parsing_lines_as_one_array_gives_the_same_rows(edits, count):
    data = encode_rows([{"step": i, "score": i / 7, "gap": None if i % 2 else 1} for i in range(count)])[:-1]
    for place, length, piece in edits:
        place %= len(data) + 1
        data = data[:place] + (piece if isinstance(piece, bytes) else bytes([piece])) + data[place + length :]
    names = ("step", "score", "gap")
    expected = reference(data, names)
    if expected is None:
        with pytest.raises(ValueError, match="line"):
            strict._parse(data, names, 0)
    else:
        np.testing.assert_array_equal(strict._parse(data, names, 0), expected)


@pytest.mark.parametrize("death", [False, True])
def test_several_processes_read_the_same_records(tmp_path, monkeypatch, death):
    for seed in range(7):
        rows = [{"step": i, "score": i / 7, "gap": seed} for i in range(2000)]
        write_run(tmp_path / str(seed), encode_rows(rows), spec={"seed": seed})
    (tmp_path / "6" / "status.json").write_text("{")
    alone = read_runs([tmp_path])
    monkeypatch.setattr(records, "SINGLE_PROCESS_BYTES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: {0, 1, 2}, raising=False)
    if death:
        monkeypatch.setattr(records.sys, "executable", shutil.which("false"))
    told: list[float] = []
    shared = read_runs([tmp_path], progress=lambda what, part: told.append(part))
    assert shared.problems == alone.problems
    assert len(alone.problems) == 1
    assert told == sorted(told)
    assert told[-1] == 1.0
    for one, other in zip(alone.runs, shared.runs, strict=True):
        assert (one.name, one.spec, one.status, one.meta) == (other.name, other.spec, other.status, other.meta)
        for name in one.rows:
            np.testing.assert_array_equal(one.rows[name], other.rows[name])


def test_reading_processes_end_if_iteration_stops(tmp_path, monkeypatch):
    for seed in range(4):
        write_run(tmp_path / str(seed), encode_rows([{"step": i, "score": 0.1, "gap": 0} for i in range(20_000)]), spec={"seed": seed})
    monkeypatch.setattr(records, "SINGLE_PROCESS_BYTES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: {0, 1}, raising=False)
    started = []
    popen = records.subprocess.Popen
    monkeypatch.setattr(records.subprocess, "Popen", lambda *args, **kw: started.append(popen(*args, **kw)) or started[-1])
    runs = iter_runs([tmp_path])
    assert next(runs).run is not None
    runs.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert [process.returncode is not None for process in started] == [True, True]


def test_pipes_devices_and_folders_are_not_read(tmp_path):
    write_run(tmp_path / "good")
    for number, file in enumerate(["config.json", "metrics.jsonl"]):
        for kind in ("pipe", "device", "folder"):
            folder = write_run(tmp_path / f"{kind} {file}", spec={"seed": 10 + number})
            (folder / file).unlink()
            if kind == "pipe":
                os.mkfifo(folder / file)
            elif kind == "device":
                (folder / file).symlink_to("/dev/zero")
            else:
                (folder / file).mkdir()
    found = read_runs([tmp_path])
    assert [run.name for run in found.runs] == ["good"]
    assert len(found.problems) == 6
    assert all("it is not a file" in problem for problem in found.problems)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is forbidden to the superuser")
def test_unreadable_files_are_one_problem_each(tmp_path):
    write_run(tmp_path / "good")
    (write_run(tmp_path / "file", spec={"seed": 4}) / "config.json").chmod(0)
    write_run(tmp_path / "folder", spec={"seed": 5}).chmod(0)
    found = read_runs([tmp_path])
    (tmp_path / "folder").chmod(0o700)
    assert [run.name for run in found.runs] == ["good"]
    assert len(found.problems) == 2
    assert all("permission denied" in problem for problem in found.problems)


def test_hostile_names_are_only_names(tmp_path):
    name = os.fsdecode(b"<script>alert(1)<\xff>\n.")
    write_run(tmp_path / name, task="<b>\u2028", agent="\ud800 half")
    run = the_run(tmp_path)
    assert run.name == "<script>alert(1)<\ufffd>\ufffd."
    assert run.task == "<b>\u2028"
    assert run.agent == "? half"
    (tmp_path / name / "config.json").write_text("")
    write_run(tmp_path / "good")
    [problem] = read_runs([tmp_path]).problems
    assert problem.isprintable()


UNREADABLE = """
import os, sys
import actiongap.cli, actiongap.api.reports, actiongap.api.studies, actiongap.reporting.html, rich.console
if os.geteuid() == 0:
    # Everything is imported: the libraries may be in a folder of root.
    os.setuid(65534)
from actiongap.lab.records import read_runs
found = read_runs([sys.argv[1]])
print(sorted(run.name for run in found.runs), *found.problems, sep="\\n")
"""


def test_an_unreadable_folder_does_not_hide_the_others():
    # pytest's own folders are private.
    with tempfile.TemporaryDirectory(dir=Path(tempfile.gettempdir()).resolve()) as place:
        out = Path(place) / "out"
        run_inline(Study("three", grid("q-learning", env="cake", steps=100, rows=2, seed=range(3))), out)
        Path(place).chmod(0o755)
        first, *others = sorted(folder.name for folder in (out / "runs").iterdir())
        (out / "runs" / first).chmod(0)
        done = subprocess.run([sys.executable, "-c", UNREADABLE, out], capture_output=True, text=True)
        (out / "runs" / first).chmod(0o755)
    assert done.stderr == ""
    names, *problems = done.stdout.splitlines()
    assert names == str(others)
    assert problems == [f"{out / 'runs' / first}: permission denied; its runs are left out: change its permissions"]


@pytest.mark.parametrize("name", ["x" * 10_000, "a\0b", "../" * 50, ""], ids=["long", "null", "up", "empty"])
def test_absurd_names_in_a_study_are_runs_that_have_not_started(tmp_path, name):
    out = tmp_path / "out"
    run_inline(Study("one", grid("q-learning", env="cake", steps=100, rows=2)), out)
    file = out / "study.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "runs": [name]}))
    found = read_runs([out])
    assert len(found.runs) == 1
    assert [problem.partition(": ")[2] for problem in found.problems] == ["1 of 1 runs have not started: run the study again to continue"]
