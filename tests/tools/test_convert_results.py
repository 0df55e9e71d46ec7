"""Runs of format 1 are converted to the current format, and the committed runs can be read."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actiongap.lab.checkpoint import read_checkpoint, write_checkpoint
from actiongap.lab.experiment import Experiment, as_config, from_config, make, run_name
from actiongap.lab.records import read_runs
from actiongap.lab.runner import open_study, run_folder
from actiongap.lab.store import encode_rows, holding, is_done
from actiongap.lab.study import Study

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tools" / "convert_results.py"

spec = importlib.util.spec_from_file_location("convert_results", PROGRAM)
assert spec is not None
assert spec.loader is not None
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

RUNS: tuple[Experiment, ...] = (
    make("q-learning", {"env": "cake", "operator": "al:0.5", "steps": 100, "rows": 2, "seed": 3}),
    make("noisy-values", {"env": "chain:4", "noise": [0.5, 1.0]}),
    make("plan", {"env": "mountain-car", "grid": 5, "eval_every": 20, "max_episode_steps": 9, "record_episodes": 1}),
    make("train", {"env": "minatar/breakout", "operator": "pal-dqn:0.9", "seed": 2}),
    make("train", {"env": "atari/pong", "preset": "original-dqn", "frames": 4_000}),
)


def rows_of(run: Experiment) -> list[dict[str, Any]]:
    return [{"step": 10 * k, **dict.fromkeys(run.columns, k / 7)} for k in (1, 2)]


def write_study(out: Path, state: Any = "done") -> Path:
    """A study of all kinds with invented rows and states."""
    study = Study("all", RUNS)
    open_study(study, out, "actiongap sweep")
    for name, run in study.named().items():
        with holding(run_folder(out, name), run, "actiongap sweep") as held:
            state_of = {"q": np.arange(3.0), **({"episodes": np.arange(2.0)} if run.kind == "plan" else {})}
            held.append(run.chunks, encode_rows(rows_of(run)), state_of, 1.5, batch_size=2)
            held.save(state)
    return out


def to_format_1(out: Path) -> dict[str, str]:
    """Convert a study to the format of version 0.1. Returns the new names of its runs by their old names."""
    names: dict[str, str] = {}
    for file in sorted(out.rglob("*.json")):
        record = json.loads(file.read_text())
        assert record["version"] == 2
        record["version"] = 1
        if file.name == "config.json":
            old = {new: old for old, new in tool.KEYS[record["kind"]].items()}
            values = {"terminal_on_life_loss": lambda ends: "terminal" if ends else "ignored"}
            record["spec"] = {old.get(key, key): values.get(key, lambda value: value)(value) for key, value in record["spec"].items()}
        if file.name == "status.json":
            record["crew"] = record.pop("batch_size")
        file.write_text(json.dumps(record, indent=1) + "\n")
    for file in out.rglob("*.npz"):
        found = read_checkpoint(file)
        found = found._replace(state={"rides" if name == "episodes" else name: array for name, array in found.state.items()})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("actiongap.lab.checkpoint.VERSION", 1)
            write_checkpoint(file, found)
    for folder in sorted((out / "runs").iterdir()):
        old = f"{folder.name[:-8]}{len(names):08x}"
        names[old] = folder.name
        folder.rename(folder.with_name(old))
    study = json.loads((out / "study.json").read_text())
    back = {new: old for old, new in names.items()}
    study["runs"] = [back[name] for name in study["runs"]]
    (out / "study.json").write_text(json.dumps(study, indent=1) + "\n")
    return names


def files_of(folder: Path) -> dict[str, Any]:
    """Every file of a folder: records and checkpoints as their content, others as bytes."""
    found: dict[str, Any] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        if file.suffix == ".npz":
            checkpoint = read_checkpoint(file)
            content = checkpoint._replace(state={name: array.tolist() for name, array in checkpoint.state.items()})
        else:
            content = json.loads(file.read_text()) if file.suffix == ".json" else file.read_bytes()
        found[str(file.relative_to(folder))] = content
    return found


def test_a_study_of_format_1_becomes_what_this_version_writes(tmp_path):
    expected = files_of(write_study(tmp_path / "new"))
    write_study(tmp_path / "old")
    for file in ("meta.json", "study.json", "status.json"):  # dates and sizes are those of the moment
        for path in (tmp_path / "new").rglob(file):
            other = tmp_path / "old" / path.relative_to(tmp_path / "new")
            other.write_bytes(path.read_bytes())
    names = to_format_1(tmp_path / "old")
    assert len(names) == len(RUNS)
    with pytest.raises(ValueError, match=r"it has format 1, and this version reads 2: convert the folder with tools/convert_results\.py"):
        read_runs([tmp_path / "old"])
    assert tool.convert(tmp_path / "old", tmp_path / "converted") == []
    assert files_of(tmp_path / "converted") == expected
    assert all(is_done(run_folder(tmp_path / "converted", run_name(run)), run) for run in RUNS)


def test_unfinished_training_keeps_its_rows_and_starts_again(tmp_path):
    names = to_format_1(write_study(tmp_path / "old", "stopped"))
    restarted = tool.convert(tmp_path / "old", tmp_path / "new")
    trained = [run for run in RUNS if run.kind == "train"]
    assert sorted(restarted) == sorted(str(run_folder(tmp_path / "new", run_name(run))) for run in trained)
    assert {run.name for run in read_runs([tmp_path / "new"]).runs} == set(names.values())
    for run in RUNS:
        with holding(run_folder(tmp_path / "new", run_name(run)), run) as held:
            assert held.chunk == (0 if run in trained else run.chunks)


def test_records_of_probes_and_videos_are_converted(tmp_path):
    source, target = tmp_path / "old", tmp_path / "new"
    source.mkdir()
    (source / "film-pong.json").write_text('{"made of": ["a"], "games": [{"score": 2.0, "ending": "game over"}]}')
    (source / "film-pong.mp4").write_bytes(b"frames")
    (source / "notes.json").write_text('{"ending": "kept"}')
    assert tool.convert(source, target) == []
    assert sorted(file.name for file in target.iterdir()) == ["notes.json", "video-pong.json", "video-pong.mp4"]
    assert json.loads((target / "video-pong.json").read_text()) == {"digests": ["a"], "games": [{"score": 2.0, "outcome": "game over"}]}
    assert json.loads((target / "notes.json").read_text()) == {"ending": "kept"}


def test_experiments_of_users_keep_their_keys():
    config = {"format": "actiongap-run", "version": 1, "kind": "mine.py:Walk", "spec": {"problem": "moor", "lives": "terminal", "steps": 3}}
    assert tool.convert_config(config) == {**config, "version": 2}


@pytest.mark.parametrize("wrong", ["missing", "exists", "converted", "arguments"])
def test_what_cannot_be_converted_is_refused_in_a_sentence(tmp_path, wrong):
    source, target = tmp_path / "source", tmp_path / "target"
    if wrong != "missing":
        source.mkdir()
    if wrong == "exists":
        target.mkdir()
    if wrong == "converted":
        (source / "config.json").write_text(json.dumps(as_config(RUNS[0])))
    arguments = [] if wrong == "arguments" else [source, target]
    done = subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert wrong == "exists" or not target.exists()


def test_runs_with_long_names_are_renamed_in_place(tmp_path):
    out = write_study(tmp_path / "study")
    expected, long = files_of(out), {}
    for folder in sorted((out / "runs").iterdir()):
        long[folder.name] = f"kind_env_{folder.name}"
        folder.rename(folder.with_name(long[folder.name]))
    study = json.loads((out / "study.json").read_text())
    study["runs"] = [long[name] for name in study["runs"]]
    (out / "study.json").write_text(json.dumps(study, indent=1) + "\n")
    (out / "runs" / "mine").mkdir()  # without a hash in its name, a folder keeps it
    assert tool.rename(out) == {old: new for new, old in long.items()}
    assert files_of(out) == expected
    assert tool.rename(out) == {}
    assert all(is_done(run_folder(out, run_name(run)), run) for run in RUNS)


def test_a_run_is_not_renamed_over_another(tmp_path):
    run = next((write_study(tmp_path / "study") / "runs").glob("al-0.5_*"))
    shutil.copytree(run, run.with_name(f"long_{run.name}"))
    with pytest.raises(ValueError, match="it is the same run as"):
        tool.rename(tmp_path)


COMMITTED = sorted((ROOT / "results").rglob("config.json"))


def test_results_hold_runs():
    assert COMMITTED


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.parent.name[-8:])
def test_committed_runs_are_recognised(file):
    experiment = from_config(json.loads(file.read_text()))
    assert file.parent.name == run_name(experiment)
    assert is_done(file.parent, experiment)
    assert run_name(experiment) in json.loads((file.parents[2] / "study.json").read_text())["runs"]
