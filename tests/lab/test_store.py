"""The run store: a run that was interrupted or damaged ends with the same bytes as an undisturbed run."""

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
import weakref
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from actiongap._files import WriteError, writing
from actiongap.lab import store
from actiongap.lab.checkpoint import Checkpoint, is_checkpoint, read_checkpoint, write_checkpoint
from actiongap.lab.experiment import from_config, make, run_name
from actiongap.lab.lock import BusyError, locked
from actiongap.lab.records import read_run
from actiongap.lab.runner import run_experiment
from actiongap.lab.store import encode_rows, holding, is_done, plain_row, read_status
from lab_experiment import CURED, KIND, Walk

LENGTH = 6


class Killed(BaseException):
    """Ends a run as a signal would: it is not caught, and nothing more is saved."""


def experiment(**values):
    return make(KIND, {"length": LENGTH, **values})


def killed_after(chunks: int):
    """A listener that ends the run after a number of chunks, before the state is saved."""

    def on_chunk(step):
        if step.chunk == chunks:
            raise Killed

    return on_chunk


def stop_after(chunks: int):
    """A stop condition: true after a number of chunks of this attempt."""
    count = 0

    def stop():
        nonlocal count
        count += 1
        return count >= chunks

    return stop


def checkpoints(folder: Path) -> list[Path]:
    return sorted(file for file in (folder / "checkpoint").glob("*.npz") if is_checkpoint(file))


def outcome(folder: Path):
    """The results of a run that must not depend on interruptions."""
    last = read_checkpoint(checkpoints(folder)[-1])
    state = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in last.state.items()}
    return (folder / "metrics.jsonl").read_bytes(), (folder / "config.json").read_bytes(), last.chunk, state


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file under a folder, except the lock."""
    found = {str(file.relative_to(folder)): file.read_bytes() if file.is_file() else None for file in folder.rglob("*")}
    return {name: data for name, data in found.items() if name != "lock"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert run_experiment(folder, experiment()) == "done"
    return outcome(folder)


def test_the_reference_run_has_rows_and_states(undisturbed):
    rows, _, chunk, state = undisturbed
    assert chunk == LENGTH
    found = [json.loads(line) for line in rows.splitlines()]
    assert [row["step"] for row in found] == [10 * (i + 1) for i in range(LENGTH)]
    assert len({row["height"] for row in found}) == LENGTH
    # The walk again, by hand.
    height = sum(0.25 + Walk().rng(i).standard_normal((10, 3))[:, 0].sum() for i in range(LENGTH))
    assert found[-1]["height"] == pytest.approx(height)
    assert state["place"][1] == (3,)


def test_saved_states_are_read_on_demand(tmp_path):
    state = {"place": np.arange(3.0)}
    held = weakref.ref(state["place"])
    with holding(tmp_path, experiment()) as run:
        assert run.state is None
        run.append(1, b"", state, 0.0)
        assert run.state is state
        run.save()
        del state
        assert held() is None
        assert run.state is not None
        assert run.state["place"].tolist() == [0.0, 1.0, 2.0]
        run.append(2, b"", None, 0.0)
        assert run.state is None
    with holding(tmp_path, experiment()) as run:
        assert run.chunk == 1
        assert run._state is None
        assert run.state is not None
        assert run.state["place"].tolist() == [0.0, 1.0, 2.0]


def test_only_the_wanted_arrays_of_a_state_are_read(tmp_path):
    write_checkpoint(tmp_path / "1.npz", Checkpoint(1, {"net": np.ones(2), "memory": np.zeros(9), "age": np.ones(())}, 0, "", 0.5))
    found = read_checkpoint(tmp_path / "1.npz", lambda name: name != "memory")
    assert (list(found.state), found.chunk) == (["net", "age"], 1)


# Damaged folders


def _flip(file: Path, at: float, mask: int) -> None:
    data = bytearray(file.read_bytes())
    if data:
        data[min(int(at * len(data)), len(data) - 1)] ^= mask
        file.write_bytes(data)


def _cut(file: Path, at: float) -> None:
    os.truncate(file, int(at * file.stat().st_size))


def _flip_arrays(file: Path, at: float) -> None:
    # The last part of an archive is its directory, which has a test of its own.
    _flip(file, at * 0.6, 0x15)


def _append(file: Path, data: bytes) -> None:
    with open(file, "ab") as stream:
        stream.write(data)


def _fake(file: Path) -> None:
    """A checkpoint of another run."""
    write_checkpoint(file, Checkpoint(LENGTH - 1, {"place": np.ones(3)}, 3, hashlib.sha256(b"x").hexdigest(), 1.0))


DISTURBANCES = {
    "nothing": lambda folder, at: None,
    "newest checkpoint flipped": lambda folder, at: [_flip_arrays(file, at) for file in checkpoints(folder)[-1:]],
    "newest checkpoint cut": lambda folder, at: [_cut(file, at) for file in checkpoints(folder)[-1:]],
    "newest checkpoint gone": lambda folder, at: [file.unlink() for file in checkpoints(folder)[-1:]],
    "older checkpoint gone": lambda folder, at: [file.unlink() for file in checkpoints(folder)[:-1]],
    "all checkpoints flipped": lambda folder, at: [_flip_arrays(file, at) for file in checkpoints(folder)],
    "all checkpoints cut": lambda folder, at: [_cut(file, at) for file in checkpoints(folder)],
    "all checkpoints gone": lambda folder, at: shutil.rmtree(folder / "checkpoint"),
    "checkpoints swapped": lambda folder, at: _swap(checkpoints(folder)),
    "a checkpoint of another run": lambda folder, at: _fake(folder / "checkpoint" / "00000000.npz"),
    "text as a checkpoint": lambda folder, at: (folder / "checkpoint" / "00000000.npz").write_text("x" * int(100 * at)),
    "an array as a checkpoint": lambda folder, at: (folder / "checkpoint" / "00000000.npz").write_bytes(_npy()),
    "half a line more": lambda folder, at: _append(folder / "metrics.jsonl", b'{"step": 90, "hei'[: 1 + int(16 * at)]),
    "lines more": lambda folder, at: _append(folder / "metrics.jsonl", b'{"step": 90, "height": 1.0}\n' * (1 + int(500 * at))),
    "rows cut": lambda folder, at: _cut(folder / "metrics.jsonl", at),
    "a row changed": lambda folder, at: _flip(folder / "metrics.jsonl", at, 1),
    "rows gone": lambda folder, at: (folder / "metrics.jsonl").unlink(),
    "status gone": lambda folder, at: (folder / "status.json").unlink(missing_ok=True),
    "status cut": lambda folder, at: (folder / "status.json").write_text('{"format": "actio'),
    "meta gone": lambda folder, at: (folder / "meta.json").unlink(),
    "meta changed": lambda folder, at: (folder / "meta.json").write_text('{"format": "actiongap-run", "version": 2, "attempts": 3}'),
    "lock gone": lambda folder, at: (folder / "lock").unlink(),
    "half files": lambda folder, at: [
        (folder / name).write_bytes(b"PK" * int(50 * at))
        for name in (".status.json.0a1b2c3d", ".config.json.00000000", "checkpoint/.00000009.npz.ffffffff")
    ],
}


def _swap(files: list[Path]) -> None:
    if len(files) == 2:
        first, second = (file.read_bytes() for file in files)
        files[0].write_bytes(second)
        files[1].write_bytes(first)


def _npy() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    return stream.getvalue()


# NumPy leaves the file open if it is not an archive.
leaky = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
disturbances = st.tuples(st.sampled_from(sorted(DISTURBANCES)), st.floats(0, 0.999))


def every_disturbance(test):
    for name in DISTURBANCES:
        test = example(3, 0.0, "killed", [(name, 0.4)])(test)
        test = example(4, 0.0, "stopped", [(name, 0.9), ("nothing", 0.0)])(test)
    return test


@leaky
@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    st.integers(1, LENGTH),
    st.sampled_from([0.0, 1e9]),
    st.sampled_from(["killed", "stopped"]),
    st.lists(disturbances, min_size=1, max_size=3),
)
@every_disturbance
def test_damaged_runs_resume_to_the_same_result(undisturbed, chunk, save_every, how, damage):
    """A run is interrupted and its folder damaged in every way; then it finishes."""
    with tempfile.TemporaryDirectory() as name, mock.patch("os.fsync"):
        folder = Path(name)
        for kind, at in damage:
            with contextlib.suppress(Killed):
                if how == "killed":
                    run_experiment(folder, experiment(), save_every=save_every, on_chunk=killed_after(chunk))
                else:
                    run_experiment(folder, experiment(), save_every=save_every, stop=stop_after(chunk))
            with contextlib.suppress(FileNotFoundError):
                DISTURBANCES[kind](folder, at)
        assert run_experiment(folder, experiment()) == "done"
        assert outcome(folder) == undisturbed
        assert is_done(folder, experiment())
        assert not [file for file in folder.rglob(".*") if file.is_file()]


@pytest.mark.parametrize("save_every", [0.0, 1e9])
def test_chunks_may_have_any_number_of_rows(tmp_path, save_every):
    bursts = make(KIND.replace(":Walk", ":Bursts"), {"length": LENGTH})
    assert run_experiment(tmp_path / "alone", bursts) == "done"
    assert (tmp_path / "alone" / "metrics.jsonl").read_bytes().count(b"\n") == sum(chunk % 3 for chunk in range(LENGTH))
    for chunk in range(1, LENGTH + 1):
        folder = tmp_path / str(chunk)
        with pytest.raises(Killed):
            run_experiment(folder, bursts, save_every=save_every, on_chunk=killed_after(chunk))
        assert run_experiment(folder, bursts) == "done"
        assert outcome(folder) == outcome(tmp_path / "alone")


@pytest.mark.parametrize(
    "strange", [_fake, lambda file: file.write_text("x"), lambda file: file.write_bytes(_npy())], ids=["other", "text", "array"]
)
def test_foreign_checkpoints_do_not_replace_those_of_the_run(tmp_path, undisturbed, strange):
    run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(3))
    for name in ("99999998.npz", "99999999.npz"):
        strange(tmp_path / "checkpoint" / name)
    assert run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(2)) == "stopped"
    with holding(tmp_path, experiment()) as run:
        assert run.chunk == 5
    assert run_experiment(tmp_path, experiment()) == "done"
    assert outcome(tmp_path) == undisturbed


def test_after_changed_rows_the_run_starts_again(tmp_path):
    run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(5))
    _flip(tmp_path / "metrics.jsonl", 0.0, 1)
    assert run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(2)) == "stopped"
    with holding(tmp_path, experiment()) as run:
        assert run.chunk == 2


def _damaged(data: bytes):
    """Copies of an archive with one changed byte: each of the first and last bytes, and some between."""
    places = [*range(300), *range(300, len(data) - 700, 31), *range(max(300, len(data) - 700), len(data))]
    for place in places:
        for mask in (0x01, 0x04, 0x80, 0xFF):
            changed = bytearray(data)
            changed[place] ^= mask
            yield place, mask, bytes(changed)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), MemoryError()], ids=["EIO", "memory"])
def test_checkpoints_that_cannot_be_read_for_the_moment_are_kept(tmp_path, undisturbed, monkeypatch, error):
    def fail(*arguments, **options):
        raise error

    run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(3))
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.suffix in (".npz", ".jsonl")}
    with monkeypatch.context() as patched:
        patched.setattr(np, "load", fail)
        with pytest.raises(ValueError, match="cannot be read"), holding(tmp_path, experiment()):
            pass
    assert {file: file.read_bytes() for file in before} == before
    assert run_experiment(tmp_path, experiment()) == "done"
    assert outcome(tmp_path) == undisturbed


@leaky
@pytest.mark.parametrize("size", [5, 700], ids=["small", "large"])
def test_a_changed_byte_of_a_checkpoint_is_detected(tmp_path, size):
    file = tmp_path / "1.npz"
    write_checkpoint(file, Checkpoint(1, {"q": np.arange(float(size)), "n": np.arange(6).reshape(2, 3)}, 10, "d", 0.5))
    sound, wrong = read_checkpoint(file), []
    for place, mask, data in _damaged(file.read_bytes()):
        file.write_bytes(data)
        try:
            found = read_checkpoint(file)
        except ValueError:
            continue
        except Exception as error:
            wrong.append((place, mask, type(error).__name__))
            continue
        same = found._replace(state={}) == sound._replace(state={}) and found.state.keys() == sound.state.keys()
        if not same or not all(np.array_equal(found.state[name], sound.state[name]) for name in sound.state):
            wrong.append((place, mask, sorted(found.state)))
    assert not wrong


@leaky
def test_a_truncated_checkpoint_is_refused(tmp_path):
    file = tmp_path / "1.npz"
    write_checkpoint(file, Checkpoint(1, {"q": np.arange(5.0)}, 10, "d", 0.5))
    data = file.read_bytes()
    for size in range(len(data)):
        file.write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"1\.npz") as refused:
            read_checkpoint(file)
        assert "\n" not in str(refused.value)


def test_a_damaged_checkpoint_is_not_left_open(tmp_path):
    file = tmp_path / "1.npz"
    file.write_bytes(b"PK\x03\x04 and nothing more")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="truncated"):
            read_checkpoint(file)
    assert told == []


class Bomb:
    """Called if anything is unpickled."""

    def __init__(self, file: Path):
        self.file = file

    def __reduce__(self):
        return (Path.touch, (self.file,))


@leaky
@pytest.mark.parametrize("form", ["array", "header", "pickle"])
def test_nothing_is_ever_unpickled(tmp_path, undisturbed, form):
    folder, blown = tmp_path / "run", tmp_path / "blown"
    run_experiment(folder, experiment(), save_every=0, stop=stop_after(3))
    bomb = np.array([Bomb(blown)], object)
    for file in checkpoints(folder):
        with np.load(file) as found:
            arrays = dict(found)
        if form == "pickle":
            file.write_bytes(bomb.dumps())
        else:
            arrays[{"array": "arr_1", "header": "arr_0"}[form]] = bomb
            np.savez(file, **arrays)
    assert run_experiment(folder, experiment()) == "done"
    assert outcome(folder) == undisturbed
    assert not blown.exists()
    # It would have gone off.
    function, arguments = bomb[0].__reduce__()
    function(*arguments)
    assert blown.exists()


def test_other_files_in_a_folder_are_left_alone(tmp_path, undisturbed):
    (tmp_path / ".ipynb_checkpoints").mkdir()
    assert run_experiment(tmp_path, experiment()) == "done"
    assert outcome(tmp_path) == undisturbed


# Errors


FOREIGN = {
    "a later version": lambda config: {**config, "version": 3},
    "an earlier version": lambda config: {**config, "version": 1},
    "another program": lambda config: {**config, "format": "something else"},
    "another experiment": lambda config: {**config, "spec": {**config["spec"], "seed": 99}},
    "another kind": lambda config: {**config, "kind": "q-learning"},
    "no experiment": lambda config: {name: config[name] for name in ("format", "version")},
    "a list": lambda config: [config],
}


def _foreign(folder: Path, change) -> None:
    run_experiment(folder, experiment(), save_every=0, stop=stop_after(3))
    file = folder / "config.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


@pytest.mark.parametrize("change", FOREIGN.values(), ids=FOREIGN)
def test_a_folder_of_another_run_is_refused_and_unchanged(tmp_path, change):
    _foreign(tmp_path, change)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"config\.json") as refused:
        run_experiment(tmp_path, experiment())
    assert "\n" not in str(refused.value)
    assert contents(tmp_path) == before
    assert not is_done(tmp_path, experiment())


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null"], ids=["empty", "half", "binary", "deep", "null"])
def test_an_unreadable_configuration_is_refused_and_unchanged(tmp_path, data):
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(ValueError, match=r"config\.json") as refused:
        run_experiment(tmp_path, experiment())
    assert "\n" not in str(refused.value)
    assert contents(tmp_path) == {"config.json": data}


def test_hidden_files_of_another_folder_are_left_alone(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / ".gitignore").write_text("*")
    with pytest.raises(ValueError, match="config"):
        run_experiment(tmp_path, experiment())
    assert (tmp_path / ".gitignore").exists()


# Foreign folders


OURS = ("meta.json", "metrics.jsonl", "status.json", "times.json", "policy.npz", "checkpoint/00000003.npz", "checkpoint/theirs.npz", "lock")
"""Files of our names, or where ours would be, that somebody else may have."""
THEIRS = (
    ".backup.20260101",
    ".notes.txt.0123abcd",
    "checkpoint/.weights.npz.0123abcd",
    "checkpoint/best.npz",
    "checkpoint/20240101.npz",
    "notes.txt",
)
"""Files that look a little like ours and are not."""


def put(file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"somebody's {file.name}")


OURS_LEFT = (".status.json.0123abcd", ".policy.npz.0123abcd", ".metrics.jsonl.0123abcd", ".times.json.deadbeef")


@pytest.mark.parametrize("name", OURS)
def test_a_foreign_folder_is_refused_and_unchanged(tmp_path, name):
    for file in (name, ".backup.20260101"):
        put(tmp_path / file)
    before = {file: file.lstat() for file in tmp_path.rglob("*")}
    with pytest.raises(ValueError, match=f"holds {name.partition('/')[0]} and no config.json, .*choose another --out") as refused:
        run_experiment(tmp_path, experiment())
    assert "\n" not in str(refused.value)
    assert {file: file.lstat() for file in tmp_path.rglob("*")} == before


def test_temporary_files_in_a_folder_without_a_run_stay(tmp_path):
    for name in OURS_LEFT:
        (tmp_path / name).write_text("somebody's")
    run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(3))
    assert all((tmp_path / name).read_text() == "somebody's" for name in OURS_LEFT)
    # In the folder of a run they are ours, except beside its rows, which are never replaced.
    run_experiment(tmp_path, experiment())
    assert sorted(name for name in OURS_LEFT if (tmp_path / name).exists()) == [".metrics.jsonl.0123abcd"]


def test_a_run_without_its_configuration_is_refused(tmp_path):
    run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(3))
    (tmp_path / "config.json").unlink()
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"holds checkpoint and no config\.json"):
        run_experiment(tmp_path, experiment())
    assert contents(tmp_path) == before


@pytest.mark.parametrize("left", [(), ("lock",), ("lock", ".config.json.0123abcd")], ids=["nothing", "a lock", "half a configuration"])
def test_a_run_killed_at_its_start_continues(tmp_path, undisturbed, left):
    for name in left:
        (tmp_path / name).touch()
    assert run_experiment(tmp_path, experiment()) == "done"
    assert outcome(tmp_path) == undisturbed
    assert not list(tmp_path.glob(".*"))


def test_the_configuration_is_the_first_file_of_a_run(tmp_path):
    with mock.patch("actiongap.lab.store._write_config", side_effect=Killed), pytest.raises(Killed):
        run_experiment(tmp_path, experiment())
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]
    assert (tmp_path / "lock").stat().st_size == 0


def test_only_files_of_ours_are_ever_removed_from_a_run(tmp_path, undisturbed):
    run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(3))
    for name in THEIRS:
        put(tmp_path / name)
    for name in (".status.json.0123abcd", ".policy.npz.0123abcd", "checkpoint/.00000009.npz.0123abcd"):
        put(tmp_path / name)
    assert run_experiment(tmp_path, experiment()) == "done"
    assert all((tmp_path / name).read_text().startswith("somebody's") for name in THEIRS)
    hidden = [str(file.relative_to(tmp_path)) for file in tmp_path.rglob(".*")]
    assert sorted(hidden) == sorted(name for name in THEIRS if "/." in f"/{name}")
    for name in THEIRS:
        (tmp_path / name).unlink()
    assert outcome(tmp_path) == undisturbed


@pytest.mark.parametrize("size", [0, 10, None], ids=["empty", "cut", "whole"])
def test_archives_of_others_beside_checkpoints_stay(tmp_path, undisturbed, size):
    run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(3))
    theirs = tmp_path / "checkpoint" / "20240101.npz"
    np.savez(theirs, np.arange(3, dtype=np.uint8), weights=np.ones(2))
    if size is not None:
        os.truncate(theirs, size)
    before = theirs.read_bytes()
    with holding(tmp_path, experiment()) as run:
        assert (run.chunk, run.rewind(2), theirs.exists()) == (3, True, True)
    assert run_experiment(tmp_path, experiment(), save_every=0) == "done"
    assert theirs.read_bytes() == before
    theirs.unlink()
    assert outcome(tmp_path) == undisturbed
    assert len(checkpoints(tmp_path)) == 1


@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
@pytest.mark.parametrize("name", ["config.json", "checkpoint", "checkpoint/00000003.npz", *(name for name in OURS if "/" not in name)])
def test_symbolic_links_are_refused(tmp_path, name, begun):
    folder, outside = tmp_path / "run", tmp_path / "outside"
    if begun:
        run_experiment(folder, experiment(), save_every=0, stop=stop_after(3))
    link, kept = folder / name, outside / Path(name).name
    link.parent.mkdir(parents=True, exist_ok=True)
    outside.mkdir()
    if os.path.lexists(link):
        link.rename(kept)
    elif name == "checkpoint":
        put(kept / "00000003.npz")
    else:
        put(kept)
    link.symlink_to(kept)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"{name} is a symbolic link, .*choose another --out") as refused:
        run_experiment(folder, experiment())
    assert "\n" not in str(refused.value)
    assert contents(tmp_path) == before
    assert not outside.joinpath("lock").exists() or name == "lock"


def test_dangling_links_are_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="lock is a symbolic link"):
        run_experiment(tmp_path / "run", experiment())
    assert not (tmp_path / "elsewhere").exists()


def test_a_run_s_folder_may_be_a_link(tmp_path, undisturbed):
    (tmp_path / "large disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "large disk")
    assert run_experiment(tmp_path / "run", experiment()) == "done"
    assert outcome(tmp_path / "large disk") == undisturbed


def test_a_class_of_this_process_can_be_continued(tmp_path):
    """An experiment without a file and without a name in `KINDS`, as in a notebook."""
    mine = Walk(length=3)
    assert run_experiment(tmp_path, mine, stop=stop_after(1)) == "stopped"
    assert run_experiment(tmp_path, mine) == "done"
    assert is_done(tmp_path, mine)


def test_a_run_stays_done_when_its_file_is_touched(tmp_path):
    file = tmp_path / "walk.py"
    shutil.copy(KIND.rpartition(":")[0], file)
    mine = make(f"{file}:Walk", {"length": 2})
    assert run_experiment(tmp_path / "run", mine) == "done"
    os.utime(file, ns=(1, 1))
    assert is_done(tmp_path / "run", mine)


def test_a_run_stays_the_same_when_a_field_is_added(tmp_path):
    file = tmp_path / "walk.py"
    source = Path(KIND.rpartition(":")[0]).read_text()
    file.write_text(source)
    name, before = f"{file}:Walk", make(f"{file}:Walk", {"length": 2, "seed": 5})
    assert run_experiment(tmp_path / "run", before) == "done"
    file.write_text(source.replace("    seed: int = 0\n", '    seed: int = 0\n    """Which."""\n    hat: str = "none"\n', 1))
    os.utime(file, ns=(1, 1))
    after = make(name, {"length": 2, "seed": 5})
    assert after.hat == "none"  # pyright: ignore[reportAttributeAccessIssue]
    assert run_name(after) == run_name(before)
    assert is_done(tmp_path / "run", after)
    assert not is_done(tmp_path / "run", make(name, {"length": 2, "seed": 5, "hat": "straw"}))


# States and rows


def test_states_must_be_plain_arrays(tmp_path):
    for state in ({"q": np.array([None])}, {"q": np.array([{}], object)}, {"q": np.zeros(1, [("a", object)])}):
        with pytest.raises(ValueError, match="plain arrays") as refused:
            write_checkpoint(tmp_path / "1.npz", Checkpoint(1, state, 0, "", 0.0))
        assert "\n" not in str(refused.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("save_every", [0.0, 1e9])
def test_an_experiment_with_such_a_state_fails(tmp_path, save_every):
    hoarder = make(KIND.replace(":Walk", ":UnsavableWalk"), {"length": 2})
    assert run_experiment(tmp_path, hoarder, save_every=save_every) == "failed"
    assert "'bag'" in (read_status(tmp_path).error or "")
    assert not is_done(tmp_path, hoarder)


ARRAYS = {
    "scalar": np.array(3.5),
    "empty": np.zeros((0, 3)),
    "bool": np.array([True, False]),
    "int8": np.arange(4, dtype=np.int8),
    "uint64": np.array([2**64 - 1], np.uint64),
    "complex": np.array([1 + 2j]),
    "big endian": np.arange(3, dtype=">f4"),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "text": np.array(["a", "bcd", ""]),
    "bytes": np.array([b"a\0b"]),
    "nan": np.array([np.nan, -0.0, np.inf]),
    "date": np.array(["2026-01-01"], "datetime64[D]"),
    "record": np.array([(1, 2.0)], [("a", np.int32), ("b", np.float64)]),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_arrays_come_back_bit_for_bit(tmp_path, array):
    write_checkpoint(tmp_path / "1.npz", Checkpoint(1, {"q": array}, 7, "d", 0.25))
    found = read_checkpoint(tmp_path / "1.npz")
    assert found._replace(state={}) == Checkpoint(1, {}, 7, "d", 0.25)
    assert (found.state["q"].dtype, found.state["q"].shape, found.state["q"].tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_dtypes_that_numpy_cannot_save_are_refused(tmp_path):
    bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    with pytest.raises(ValueError, match="bfloat16"):
        write_checkpoint(tmp_path / "1.npz", Checkpoint(1, {"q": np.ones(3, bfloat16)}, 7, "d", 0.25))


@pytest.mark.parametrize(
    "names",
    [
        ("a/b", "a\\b", "../c"),
        ("x.npy", "arr_0", "é", " "),
        pytest.param(("file",)),
        pytest.param(("allow_pickle",)),
        pytest.param(("q", "q.npy")),
    ],
)
def test_arrays_may_have_any_name(tmp_path, names):
    state = {name: np.full(2, i) for i, name in enumerate(names)}
    write_checkpoint(tmp_path / "1.npz", Checkpoint(1, state, 7, "d", 0.25))
    found = read_checkpoint(tmp_path / "1.npz").state
    assert {name: array.tolist() for name, array in found.items()} == {name: array.tolist() for name, array in state.items()}


def test_rows_are_valid_json():
    row = {
        "step": np.int64(3),
        "a": np.float32(0.5),
        "b": float("inf"),
        "c": np.float64("nan"),
        "d": None,
        "e": "ü\n",
        "f": True,
        "g": np.bool_(False),
    }
    line = encode_rows([plain_row(row), {"step": 4}])  # pyright: ignore[reportArgumentType]
    first, second = line.splitlines()
    assert json.loads(first) == {"step": 3, "a": 0.5, "b": None, "c": None, "d": None, "e": "ü\n", "f": True, "g": False}
    assert json.loads(second) == {"step": 4}
    assert encode_rows([]) == b""
    for value in ([1], np.zeros(2), {"x": 1}, object(), 1j):
        with pytest.raises(ValueError, match="a row holds"):
            plain_row({"step": 1, "a": value})  # pyright: ignore[reportArgumentType]


def test_values_that_are_not_finite_are_null_in_the_rows(tmp_path):
    assert run_experiment(tmp_path, experiment(trouble="unwell")) == "done"
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_bytes().splitlines()]
    assert {row["height"] for row in rows} == {None}
    assert all(row["gap"] >= 0 for row in rows)


def test_an_experiment_without_chunks_is_refused_or_done(tmp_path):
    try:
        assert run_experiment(tmp_path, experiment(length=0)) in ("done", "failed")
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either is right


# Status


def test_the_status_reports_progress(tmp_path):
    assert run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(4)) == "stopped"
    status, rows = read_status(tmp_path), (tmp_path / "metrics.jsonl").read_bytes()
    assert (status.state, status.chunk, status.chunks, status.steps) == ("stopped", 4, LENGTH, 40)
    assert (status.rows, status.digest) == (len(rows), hashlib.sha256(rows).hexdigest())
    assert (status.error, status.traceback) == (None, None)
    others = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file() and file.name != "metrics.jsonl")
    assert 0.5 * others < status.disk < 2 * others
    assert status.seconds > 0
    assert len(checkpoints(tmp_path)) == 2
    assert run_experiment(tmp_path, experiment()) == "done"
    done = read_status(tmp_path)
    assert (done.state, done.chunk, done.steps) == ("done", LENGTH, 60)
    assert done.seconds > status.seconds
    assert len(checkpoints(tmp_path)) == 1
    meta = json.loads((tmp_path / "meta.json").read_text())
    assert [attempt["from_chunk"] for attempt in meta["attempts"]] == [0, 4]


def test_failures_are_recorded_and_the_next_attempt_resumes(tmp_path, monkeypatch):
    trouble = experiment(trouble="raise")
    assert run_experiment(tmp_path, trouble, save_every=0, command="sweep it") == "failed"
    status = read_status(tmp_path)
    assert status.state == "failed"
    assert status.error == "RuntimeError: the walker [red]fell[/red] into a ditch"
    assert "_fail" in (status.traceback or "")
    assert not is_done(tmp_path, trouble)
    monkeypatch.setenv(CURED, "1")
    chunks = []
    assert run_experiment(tmp_path, trouble, on_chunk=lambda step: chunks.append(step.chunk)) == "done"
    assert chunks == [4, 5, 6]
    assert (read_status(tmp_path).error, is_done(tmp_path, trouble)) == (None, True)
    meta = json.loads((tmp_path / "meta.json").read_text())
    assert [(attempt["command"], attempt["from_chunk"]) for attempt in meta["attempts"]] == [("sweep it", 0), ("", 3)]


def test_a_changed_run_is_not_done(tmp_path, undisturbed):
    run_experiment(tmp_path, experiment())
    assert is_done(tmp_path, experiment())
    assert not is_done(tmp_path, experiment(seed=1))
    rows = undisturbed[0]
    changes = [rows[:-1], rows[1:], rows + b"\n", rows + rows.splitlines(keepends=True)[-1], b"", rows.replace(b"1", b"2", 1), rows[::-1]]
    changes += [rows[:i] + bytes([rows[i] ^ 1]) + rows[i + 1 :] for i in range(0, len(rows), 17)]
    for changed in changes:
        (tmp_path / "metrics.jsonl").write_bytes(changed)
        assert not is_done(tmp_path, experiment())
    (tmp_path / "metrics.jsonl").unlink()
    assert not is_done(tmp_path, experiment())
    assert run_experiment(tmp_path, experiment()) == "done"
    assert outcome(tmp_path) == undisturbed


def test_finished_runs_are_not_repeated(tmp_path, undisturbed):
    run_experiment(tmp_path, experiment())
    assert run_experiment(tmp_path, experiment(), on_chunk=killed_after(1)) == "done"
    assert outcome(tmp_path) == undisturbed


STATUSES = [
    {"state": "finished"},
    {"state": None},
    {"state": ["done"]},
    {"chunk": -1},
    {"chunk": "1"},
    {"chunk": True},
    {"chunk": 1.0},
    {"digest": None},
    {"seconds": "1"},
    {"seconds": None},
    {"seconds": float("nan")},
    {"rows": None},
    {"version": 3},
    {"format": "other"},
    {"seconds": 10**400},
]


@pytest.mark.parametrize("change", STATUSES, ids=lambda change: repr(change)[:40])
def test_a_status_that_was_changed_is_refused_and_not_done(tmp_path, change):
    run_experiment(tmp_path, experiment())
    file = tmp_path / "status.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ValueError, match=r"status\.json") as refused:
        read_status(tmp_path)
    assert "\n" not in str(refused.value)
    assert not is_done(tmp_path, experiment())
    assert run_experiment(tmp_path, experiment()) == "done"
    assert is_done(tmp_path, experiment())


# Locks


def test_a_run_is_locked_once(tmp_path):
    with holding(tmp_path, experiment()), pytest.raises(BusyError):
        run_experiment(tmp_path, experiment())
    assert run_experiment(tmp_path, experiment()) == "done"


HOLD = """
import sys, time
from actiongap.lab.experiment import make
from actiongap.lab.store import holding
with holding(sys.argv[1], make(sys.argv[2], {"length": 6})) as run:
    print(run.chunk, flush=True)
    time.sleep(600)
"""


def test_a_lock_ends_with_its_holder(tmp_path, undisturbed):
    run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(3))
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path, KIND], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"3\n"
            with pytest.raises(BusyError):
                run_experiment(tmp_path, experiment())
            process.send_signal(signal.SIGKILL)
            process.wait()
        finally:
            process.kill()
    assert run_experiment(tmp_path, experiment()) == "done"
    assert outcome(tmp_path) == undisturbed


CONTEND = """
import sys, time
from pathlib import Path
from actiongap.lab.lock import BusyError, locked
folder, times = Path(sys.argv[1]), 0
while times < 30:
    try:
        with locked(folder / "lock"):
            (folder / "inside").touch(exist_ok=False)
            count = int((folder / "count").read_text())
            time.sleep(0.001)
            (folder / "count").write_text(str(count + 1))
            (folder / "inside").unlink()
            times += 1
    except BusyError:
        pass
    time.sleep(0.0005)
"""


def test_competing_processes_never_share_a_lock(tmp_path):
    (tmp_path / "count").write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", CONTEND, tmp_path], stderr=subprocess.PIPE) for _ in range(4)]
    told = [process.communicate(timeout=120)[1] for process in processes]
    assert told == [b""] * 4
    assert (tmp_path / "count").read_text() == "120"


def test_missing_locks_raise_one_sentence(tmp_path):
    with pytest.raises(WriteError, match="lock") as refused, locked(tmp_path / "nowhere" / "lock"):
        pass
    assert "\n" not in str(refused.value)


# A full disk


class Disk:
    """A disk that is full at one operation, or from then on. Every raw write and every fsync is an operation. Writes may be partial."""

    def __init__(self, allowed: int, forever: bool):
        self.allowed, self.forever, self.count = allowed, forever, 0

    def full(self) -> bool:
        self.count += 1
        return self.count - 1 >= self.allowed if self.forever else self.count - 1 == self.allowed

    def fsync(self, descriptor) -> None:
        if self.full():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open(self, path, mode="r"):
        if mode in ("rb", "r"):
            return open(path, mode)
        disk = self

        class Raw(io.FileIO):
            def write(self, data) -> int:
                if disk.full():
                    super().write(bytes(data)[: len(data) // 2])
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return super().write(data)

        return (io.BufferedRandom if "+" in mode else io.BufferedWriter)(Raw(path, mode.replace("b", "")))  # pyright: ignore[reportArgumentType]

    def __enter__(self):
        self.patches = contextlib.ExitStack()
        self.patches.enter_context(mock.patch("os.fsync", self.fsync))
        for module in ("actiongap._files", "actiongap.lab.store"):
            self.patches.enter_context(mock.patch(f"{module}.open", self.open, create=True))
        return self

    def __exit__(self, *exception) -> None:
        self.patches.close()


def operations() -> int:
    """The number of operations of a run that saves after every chunk."""
    with tempfile.TemporaryDirectory() as folder, Disk(10**9, True) as disk:
        assert run_experiment(folder, experiment(), save_every=0) == "done"
    return disk.count


@leaky
@pytest.mark.parametrize("forever", [pytest.param(False, id="once"), pytest.param(True, id="forever")])
def test_a_full_disk_loses_no_saved_work(undisturbed, forever):
    count = operations()
    assert count > 5 * LENGTH
    told: dict[str, int] = {}
    for allowed in range(count + 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with Disk(allowed, forever):
                try:
                    ended = run_experiment(folder, experiment(), save_every=0)
                except (OSError, WriteError) as error:
                    ended = type(error).__name__
            told[ended] = told.get(ended, 0) + 1
            assert ended != "done" or is_done(folder, experiment())
            # The last operation synchronizes the folder of a status that is written already.
            assert ended == "done" or allowed == count - 1 or not is_done(folder, experiment())
            with mock.patch("os.fsync"):
                assert run_experiment(folder, experiment()) == "done"
            assert outcome(folder) == undisturbed
            assert not list(folder.rglob(".*"))
    assert told.pop("done") == 1
    assert set(told) == {"WriteError"}


@leaky
def test_errors_on_a_full_disk_are_reported_as_such(tmp_path):
    with Disk(10**9, True) as disk:
        run_experiment(tmp_path / "once", experiment(trouble="raise"), save_every=1e9)
    for allowed in range(disk.count):
        folder = tmp_path / str(allowed)
        with Disk(allowed, True):
            try:
                run_experiment(folder, experiment(trouble="raise"), save_every=1e9)
            except (OSError, WriteError):
                continue
            pytest.fail(f"no error after {allowed} operations")


def test_files_are_replaced_atomically(tmp_path):
    """A reader that has the old file open continues to read it, because the new file is renamed over it."""
    run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(2))
    names = ("status.json", "meta.json")
    old = [(tmp_path / name).read_bytes() for name in names]
    with open(tmp_path / names[0], "rb") as status, open(tmp_path / names[1], "rb") as meta:
        assert run_experiment(tmp_path, experiment()) == "done"
        assert [status.read(), meta.read()] == old
    assert [(tmp_path / name).read_bytes() == data for name, data in zip(names, old, strict=True)] == [False, False]
    with contextlib.suppress(Killed), writing(tmp_path / "status.json") as stream:
        stream.write(b"half")
        raise Killed
    assert read_status(tmp_path).state == "done"
    assert not list(tmp_path.rglob(".*"))


def test_folders_that_cannot_be_created_raise_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError) as refused:
        run_experiment(tmp_path / "file" / "run", experiment())
    assert "\n" not in str(refused.value)


def test_a_configuration_is_enough_to_repeat_a_run(tmp_path):
    run_experiment(tmp_path, experiment(seed=3), stop=stop_after(1))
    assert from_config(json.loads((tmp_path / "config.json").read_text()), trust=True) == experiment(seed=3)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_pipes_and_folders_are_not_replaced(tmp_path, make):
    make(tmp_path / "page.html")
    before = (tmp_path / "page.html").lstat()
    with (
        pytest.raises(WriteError, match="is a folder, a pipe or a device, not a file: choose another path"),
        writing(tmp_path / "page.html"),
    ):
        pass
    assert ((tmp_path / "page.html").lstat().st_mode, os.listdir(tmp_path)) == (before.st_mode, ["page.html"])


def test_a_checkpoint_that_cannot_be_removed_does_no_harm(tmp_path, undisturbed):
    unlink = Path.unlink

    def refuse(file, missing_ok=False):
        if file.suffix == ".npz":
            raise PermissionError(errno.EACCES, "permission denied")
        unlink(file, missing_ok)

    with mock.patch.object(Path, "unlink", refuse):
        assert run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(4)) == "stopped"
        assert len(checkpoints(tmp_path)) == 4
        assert run_experiment(tmp_path, experiment(), save_every=0) == "done"
    assert outcome(tmp_path) == undisturbed


KILLED = """
import os
from actiongap._files import writing
with writing({file!r}) as stream:
    stream.write(b"half")
    stream.flush()
    print("written", flush=True)
    input()
"""


def test_temporary_files_of_killed_commands_are_swept_and_those_of_others_stay(tmp_path):
    file = tmp_path / "page.html"
    (tmp_path / ".page.html.backup12").touch()
    (tmp_path / ".other.html.0123abcd").touch()
    writers = [
        subprocess.Popen([sys.executable, "-c", KILLED.format(file=str(file))], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
    left = set(tmp_path.glob(".page.html.????????")) - {tmp_path / ".page.html.backup12"}
    assert len(left) == 2
    writers[0].kill()
    writers[0].communicate()
    with writing(file) as stream:
        stream.write(b"whole")
    # One of the two is still being written.
    assert len(left & set(tmp_path.iterdir())) == 1
    assert writers[1].communicate(b"\n") == (b"", None)
    assert sorted(found.name for found in tmp_path.iterdir()) == [".other.html.0123abcd", ".page.html.backup12", "page.html"]
    assert file.read_bytes() == b"half"


# Loss of power


class UnsyncedDisk:
    """Remembers what would survive a loss of power: contents of files, and names in folders, as of their last fsync."""

    def __init__(self, root: Path):
        self.root, self.saved = root, 0
        self.contents: dict[int, bytes] = {}
        self.names: dict[Path, list[tuple[str, int, bool]]] = {}
        self.held: list[int] = []
        self.images: dict[tuple, int] = {}

    def list(self, folder: Path) -> list[tuple[str, int, bool]]:
        with os.scandir(folder) as entries:
            return sorted((entry.name, entry.inode(), entry.is_dir(follow_symlinks=False)) for entry in entries)

    def fsync(self, number: int) -> None:
        place = Path(os.readlink(f"/proc/self/fd/{number}"))
        if place.is_dir():
            self.names[place] = self.list(place)
        else:
            # Held open, so that the number of its inode is not given to another file.
            self.held.append(os.open(place, os.O_RDONLY))
            self.contents[os.fstat(number).st_ino] = place.read_bytes()
        self.photograph()

    def replace(self, source, target, *, real=os.replace) -> None:
        real(source, target)
        self.photograph()

    def photograph(self) -> None:
        """Take images of what is left if names are lost, if contents are lost, and if both are."""
        now = {found.stat().st_ino: found.read_bytes() for found in self.root.rglob("*") if found.is_file()}
        now |= {os.fstat(number).st_ino: os.pread(number, 2**20, 0) for number in self.held}
        for names, contents in ((self.names.get, now), (self.list, self.contents), (self.names.get, self.contents)):
            image: dict[str, bytes | None] = {}
            self.add(image, self.root, names, contents)
            key = tuple(sorted(image.items(), key=lambda item: item[0]))
            self.images[key] = max(self.saved, self.images.get(key, 0))

    def add(self, image, folder, names, contents) -> None:
        for name, inode, is_folder in names(folder) or ():
            path = folder / name
            image[str(path.relative_to(self.root))] = None if is_folder else contents.get(inode, b"")
            if is_folder:
                self.add(image, path, names, contents)


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, 8))])
def test_after_a_loss_of_power_no_saved_chunk_is_lost(tmp_path, part):
    walk = make(KIND, {"length": 4})
    assert run_experiment(tmp_path / "alone", walk) == "done"
    disk = UnsyncedDisk(tmp_path / "disk")
    disk.root.mkdir()
    save = store.Run.save

    def saving(run, state: Any = "running"):
        save(run, state)
        disk.saved = run.chunk
        disk.photograph()

    with mock.patch("os.fsync", disk.fsync), mock.patch("os.replace", disk.replace), mock.patch.object(store.Run, "save", saving):
        assert run_experiment(disk.root / "run", walk, save_every=0, stop=stop_after(2)) == "stopped"
        assert run_experiment(disk.root / "run", walk, save_every=0) == "done"
    for number in disk.held:
        os.close(number)
    assert set(disk.images.values()) == {0, 1, 2, 3, 4}
    for k, (image, saved) in enumerate(disk.images.items()):
        folder = tmp_path / f"image-{k}"
        folder.mkdir()
        for name, data in image:
            if data is None:
                (folder / name).mkdir()
            else:
                (folder / name).write_bytes(data)
        with mock.patch("os.fsync"):
            with holding(folder / "run", walk) as run:
                assert run.chunk >= saved, [name for name, _ in image]
            if k % 8 == part:
                assert run_experiment(folder / "run", walk) == "done"
                assert outcome(folder / "run") == outcome(tmp_path / "alone")
    assert len(disk.images) > 20


# Whose checkpoint it is


def _header(file: Path, **values) -> None:
    """Change the header of a checkpoint, with a digest that agrees, as somebody who knows the format would."""
    with np.load(file) as archive:
        arrays = dict(archive)
    header = json.loads(arrays.pop("arr_0").tobytes()) | values
    del header["header"]
    header["header"] = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
    np.savez(file, np.frombuffer(json.dumps(header).encode(), np.uint8), *arrays.values())


def test_a_checkpoint_of_another_run_is_not_continued(tmp_path):
    # Without rows to compare, nothing but the checkpoint tells runs apart.
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder, seed in ((mine, 0), (other, 1)):
        assert run_experiment(folder, experiment(seed=seed, trouble="silent"), save_every=0, stop=stop_after(2)) == "stopped"
        assert (folder / "metrics.jsonl").read_bytes() == b""
    for file in checkpoints(mine):
        file.unlink()
    theirs = mine / "checkpoint" / checkpoints(other)[-1].name
    shutil.copy(checkpoints(other)[-1], theirs)
    before = theirs.read_bytes()
    with holding(mine, experiment(seed=0, trouble="silent")) as run:
        assert run.chunk == 0
    # It may be somebody's only copy.
    assert theirs.read_bytes() == before


@pytest.mark.parametrize(
    "values",
    [
        {"rows": 10**12},
        {"rows": 10**30},
        {"rows": -1},
        {"rows": 1.5},
        {"chunk": 10**30},
        {"chunk": True},
        {"seconds": -1.0},
        {"seconds": 1e300},
        {"names": ["place"] * 2},
        {"names": "place"},
        {"digest": 3},
        {"run": None},
        {"run": "0" * 64},
        {"arrays": ["0" * 64]},
    ],
    ids=str,
)
def test_absurd_headers_are_damage(tmp_path, undisturbed, values):
    run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(3))
    _header(checkpoints(tmp_path)[-1], **values)
    with holding(tmp_path, experiment()) as run:
        assert run.chunk == 2
    assert run_experiment(tmp_path, experiment()) == "done"
    assert outcome(tmp_path) == undisturbed


def test_a_checkpoint_under_the_name_of_another_chunk_is_damage(tmp_path, undisturbed):
    run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(3))
    newest = checkpoints(tmp_path)[-1]
    newest.rename(newest.with_name("00000005.npz"))
    assert run_experiment(tmp_path, experiment()) == "done"
    assert outcome(tmp_path) == undisturbed


def test_old_checkpoints_without_a_digest_are_continued_where_rows_agree(tmp_path, undisturbed):
    run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(3))
    for file in checkpoints(tmp_path):
        with np.load(file) as archive:
            arrays = dict(archive)
        header = json.loads(arrays.pop("arr_0").tobytes())
        for name in ("run", "arrays", "header"):
            del header[name]
        np.savez(file, np.frombuffer(json.dumps(header).encode(), np.uint8), *arrays.values())
    with holding(tmp_path, experiment()) as run:
        assert run.chunk == 3
    assert run_experiment(tmp_path, experiment()) == "done"
    assert outcome(tmp_path) == undisturbed


def test_a_state_that_was_changed_with_its_checksums_is_damage(tmp_path):
    file = tmp_path / "1.npz"
    write_checkpoint(file, Checkpoint(1, {"q": np.arange(5.0)}, 10, "d", 0.5))
    with np.load(file) as archive:
        header = archive["arr_0"]
    np.savez(file, header, np.arange(5.0) + 1)
    with pytest.raises(ValueError, match="q does not match its digest"):
        read_checkpoint(file)


def test_a_compressed_checkpoint_is_not_inflated(tmp_path):
    file = tmp_path / "1.npz"
    write_checkpoint(file, Checkpoint(1, {"q": np.zeros(5)}, 10, "d", 0.5))
    with np.load(file) as archive:
        header = archive["arr_0"]
    np.savez_compressed(file, header, np.zeros(5))
    with (
        mock.patch("zipfile.ZipFile.testzip", side_effect=AssertionError("it was inflated")),
        pytest.raises(ValueError, match="compressed"),
    ):
        read_checkpoint(file)


PLACES = (
    "config.json",
    "meta.json",
    "metrics.jsonl",
    "status.json",
    "times.json",
    "policy.npz",
    "lock",
    "checkpoint",
    "checkpoint/00000003.npz",
)


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("make_it", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_a_folder_or_a_pipe_in_the_place_of_a_file_is_refused_at_once(tmp_path, name, make_it):
    run_experiment(tmp_path, experiment(), save_every=0, stop=stop_after(3))
    place = tmp_path / name
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    if name == "checkpoint" and make_it is os.mkdir:
        make_it = Path.touch
    make_it(place)
    # Whoever opens a pipe waits for its other end.
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for a pipe"))
    signal.alarm(20)
    try:
        is_done(tmp_path, experiment())
        read_run(tmp_path)
        before = contents_of_regular_files(tmp_path)
        with pytest.raises(ValueError, match=name) as refused:
            run_experiment(tmp_path, experiment())
    finally:
        signal.alarm(0)
    assert "\n" not in str(refused.value)
    assert contents_of_regular_files(tmp_path) == before


def contents_of_regular_files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_run_whose_last_row_is_of_no_use_has_failed(tmp_path):
    class Hopeless(Walk):
        def failure(self, row):
            return "the walker is lost" if row["height"] is None else ""

    for _ in range(2):
        assert run_experiment(tmp_path, Hopeless(trouble="unwell", length=3), save_every=0) == "failed"
        status = read_status(tmp_path)
        assert (status.state, status.error) == ("failed", "the walker is lost")
    assert run_experiment(tmp_path / "well", Hopeless(length=3)) == "done"
