"""Batches of runs: each run writes the same files as it would alone, whatever happens to the batch."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actiongap.lab import store
from actiongap.lab.checkpoint import read_checkpoint
from actiongap.lab.executors import choose_executor, run_inline, run_study
from actiongap.lab.lock import locked
from actiongap.lab.processes import Worker, run_in_processes
from actiongap.lab.records import read_runs
from actiongap.lab.runner import Event, run_experiment, run_folder, unfinished_runs
from actiongap.lab.store import Run, read_status
from actiongap.lab.study import Study, grid
from batch_experiment import NAP, Rope, Walkers, study

PROGRAM = Path(__file__).parents[1] / "batch_experiment.py"


def contents(out: Path, some: Study) -> dict[str, tuple[bytes, bytes, bytes]]:
    """The rows, configuration and state of each run: everything but times."""
    found = {}
    for name in some.named():
        folder = run_folder(out, name)
        # A run that was killed right after it was done may have kept the checkpoint before.
        state = read_checkpoint(max((folder / "checkpoint").glob("*.npz"))).state
        found[name] = (
            (folder / "metrics.jsonl").read_bytes(),
            (folder / "config.json").read_bytes(),
            b"".join(key.encode() + value.tobytes() for key, value in state.items()),
        )
    return found


def test_a_batch_writes_the_same_files_as_single_runs(tmp_path):
    walks, events = study(5), []
    outcome = run_inline(walks, tmp_path / "batched", batch_size=2, on_event=events.append)
    assert sorted(outcome.done) == sorted(walks.named())
    assert outcome.failed == {}
    for name, walk in walks.named().items():
        assert run_experiment(run_folder(tmp_path / "alone", name), walk) == "done"
    assert contents(tmp_path / "batched", walks) == contents(tmp_path / "alone", walks)
    run_in_processes(walks, tmp_path / "workers", workers=2)
    assert contents(tmp_path / "batched", walks) == contents(tmp_path / "workers", walks)
    mine = [event for event in events if event.run == next(iter(walks.named()))]
    assert [event.kind for event in mine] == ["started", *["step"] * 16, "done"]
    # Progress inside a chunk is reported without a row.
    assert [(event.chunk, len(event.rows)) for event in mine[1:5]] == [(0.5, 0), (1, 1), (1.5, 0), (2, 1)]
    sizes = {
        place: [read_status(run_folder(tmp_path / place, name)).batch_size for name in walks.named()] for place in ("batched", "alone")
    }
    assert sizes == {"batched": [1, 2, 2, 2, 2], "alone": [1] * 5}
    assert run_inline(walks, tmp_path / "batched", batch_size=2).done == []
    assert len(read_runs([tmp_path / "batched"]).runs) == 5


def test_batches_are_split_again_if_less_memory_is_free(tmp_path, monkeypatch):
    walks, events, sizes = study(4), [], [2, 2, 1, 1, 1]
    monkeypatch.setattr(type(walks.runs[0]), "max_batch_size", property(lambda self: sizes.pop(0)))
    outcome = run_inline(walks, tmp_path / "out", batch_size=4, on_event=events.append)
    assert sorted(outcome.done) == sorted(walks.named())
    assert sizes == []
    # Two runs fit in memory first, then one at a time.
    order = [event.kind for event in events if event.kind in ("started", "done")]
    assert order == ["started", "started", "done", "done", "started", "done", "started", "done"]


def test_resuming_a_batch_loads_one_saved_state_at_a_time(tmp_path, monkeypatch):
    walks, alive, most = study(3), [], []
    run_inline(walks, tmp_path / "undisturbed", batch_size=3)
    for name, walk in walks.named().items():
        assert run_experiment(run_folder(tmp_path / "out", name), walk, stop=iter([False, False, True]).__next__) == "stopped"

    class Counted(np.ndarray):
        pass

    def read(file, *, whole=read_checkpoint):
        found = whole(file)
        place = found.state["place"].view(Counted)
        alive.append(weakref.ref(place))
        return found._replace(state={"place": place})

    def put(self, states):
        places = []
        for state in states:
            most.append(sum(held() is not None for held in alive))
            places.append(np.array(state["place"]))
            del state
        return np.stack(places)

    monkeypatch.setattr(store, "read_checkpoint", read)
    one: Any = walks.runs[0]
    monkeypatch.setattr(type(one.make_batch(walks.runs)), "put", put)
    assert len(run_inline(walks, tmp_path / "out", batch_size=3).done) == 3
    assert most == [1, 1, 1]
    assert contents(tmp_path / "out", walks) == contents(tmp_path / "undisturbed", walks)


def test_a_single_run_keeps_its_carry_between_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(Walkers, "put", lambda self, states: pytest.fail("the states were loaded although no run was interrupted"))
    assert run_experiment(tmp_path, Rope(), save_every=0.0) == "done"


def test_a_damaged_folder_fails_only_its_own_run(tmp_path):
    walks, events = study(3), []
    run_inline(study(1), tmp_path, batch_size=1)
    name = next(iter(walks.named()))
    (run_folder(tmp_path, name) / "config.json").write_text("{")
    outcome = run_inline(walks, tmp_path, batch_size=3, on_event=events.append)
    assert (len(outcome.done), list(outcome.failed)) == (2, [name])
    assert outcome.failed[name].endswith("the file is truncated or changed; or move the folder away, and the same command runs it again")
    assert [event.run for event in events if event.kind == "failed"] == [name]


def test_a_killed_batch_resumes_to_the_same_result(tmp_path):
    walks, rng = study(5, length=12), random.Random(0)
    run_inline(walks, tmp_path / "undisturbed", batch_size=3)
    command = [sys.executable, str(PROGRAM), str(tmp_path / "killed"), "5", "12"]
    for _ in range(8):
        process = subprocess.Popen(command, env=os.environ | {NAP: "0.03"})
        time.sleep(0.7 + 0.5 * rng.random())
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, check=True)
    assert unfinished_runs(walks, tmp_path / "killed") == {}
    assert contents(tmp_path / "killed", walks) == contents(tmp_path / "undisturbed", walks)
    assert not list((tmp_path / "killed").rglob("*.tmp*"))


def test_runs_that_are_ahead_are_rewound(tmp_path):
    walks = study(3)
    run_inline(walks, tmp_path / "undisturbed", batch_size=3)

    class Enough(BaseException):
        pass

    def stop_in_the_middle_of_saving(event: Event) -> None:
        if event.kind == "step" and event.chunk == 4 and event.run == list(walks.named())[-1]:
            raise Enough

    with pytest.raises(Enough):
        run_inline(walks, tmp_path / "out", batch_size=3, save_every=0.0, on_event=stop_in_the_middle_of_saving)
    # One run was saved once more than the others, as when a batch is killed while it is saved.
    name, walk = next(iter(walks.named().items()))
    run_experiment(run_folder(tmp_path / "out", name), walk, save_every=0.0, stop=lambda: True)
    assert [read_status(run_folder(tmp_path / "out", name)).chunk for name in walks.named()] == [4, 3, 3]
    events: list[Event] = []
    run_inline(walks, tmp_path / "out", batch_size=3, on_event=events.append)
    assert {event.chunk for event in events if event.kind == "started"} == {3}
    assert contents(tmp_path / "out", walks) == contents(tmp_path / "undisturbed", walks)


def test_a_run_resumed_alone_keeps_its_batch_size(tmp_path):
    walks = study(3, stumbles_at=5)
    run_inline(walks, tmp_path, batch_size=3, save_every=0.0)
    one, other, _ = walks.named()
    # Older versions did not record the batch size.
    file = run_folder(tmp_path, other) / "status.json"
    file.write_text(json.dumps({name: value for name, value in json.loads(file.read_text()).items() if name != "batch_size"}))
    for name, size in ((one, 3), (other, None)):
        assert read_status(run_folder(tmp_path, name)).batch_size == size
        run_experiment(run_folder(tmp_path, name), walks.named()[name])
        assert read_status(run_folder(tmp_path, name)).batch_size == size


def test_runs_that_cannot_be_rewound_form_a_batch_of_their_own(tmp_path):
    walks = study(3)
    run_inline(walks, tmp_path / "undisturbed", batch_size=3)
    name, walk = next(iter(walks.named().items()))
    run_experiment(run_folder(tmp_path / "out", name), walk, save_every=0.0, stop=lambda: True)
    events: list[Event] = []
    run_inline(walks, tmp_path / "out", batch_size=3, on_event=events.append)
    assert [event.chunk for event in events if event.kind == "started"] == [0, 0, 1]
    assert contents(tmp_path / "out", walks) == contents(tmp_path / "undisturbed", walks)


def test_a_run_killed_before_its_status_is_done_is_finished(tmp_path, monkeypatch):
    walks = study(3)
    run_inline(walks, tmp_path / "undisturbed", batch_size=3)
    last = list(walks.named())[-1]

    class Killed(BaseException):
        pass

    write_status = Run._write_status

    def killed(run, state, *more):
        if state == "done" and run.folder.name == last:
            raise Killed
        write_status(run, state, *more)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "_write_status", killed)
        with pytest.raises(Killed):
            run_inline(walks, tmp_path / "out", batch_size=3)
    assert list(unfinished_runs(walks, tmp_path / "out")) == [last]
    events: list[Event] = []
    assert run_inline(walks, tmp_path / "out", batch_size=3, on_event=events.append).done == [last]
    assert [(event.kind, event.chunk) for event in events] == [("started", 8), ("done", 8)]
    assert unfinished_runs(walks, tmp_path / "out") == {}
    assert contents(tmp_path / "out", walks) == contents(tmp_path / "undisturbed", walks)


def test_failures_are_reported_and_retried(tmp_path):
    walks = study(2, stumbles_at=5)
    outcome = run_inline(walks, tmp_path, batch_size=2, save_every=0.0)
    assert set(outcome.failed.values()) == {"RuntimeError: the rope is too short"}
    status = read_status(run_folder(tmp_path, next(iter(walks.named()))))
    assert (status.state, status.chunk) == ("failed", 5)
    assert "the rope is too short" in str(status.traceback)
    events: list[Event] = []
    run_inline(walks, tmp_path, batch_size=2, on_event=events.append)
    assert {event.chunk for event in events if event.kind == "started"} == {5}


def test_runs_that_another_process_holds_are_left_out(tmp_path):
    walks = study(3)
    name = next(iter(walks.named()))
    folder = run_folder(tmp_path, name)
    folder.mkdir(parents=True)
    events: list[Event] = []
    with locked(folder / "lock"):
        outcome = run_inline(walks, tmp_path, batch_size=3, on_event=events.append)
    assert (len(outcome.done), outcome.busy) == (2, [name])
    assert [event.run for event in events if event.kind == "busy"] == [name]
    assert run_inline(walks, tmp_path, batch_size=3).done == [name]


def test_ctrl_c_saves_and_the_same_call_resumes(tmp_path):
    walks = study(2)
    run_inline(walks, tmp_path / "undisturbed", batch_size=2)

    def interrupt(event: Event) -> None:
        if event.kind == "step" and event.chunk == 3 and event.run == next(iter(walks.named())):
            os.kill(os.getpid(), signal.SIGINT)

    events: list[Event] = []
    with pytest.raises(KeyboardInterrupt):
        run_inline(walks, tmp_path / "out", batch_size=2, on_event=lambda event: (events.append(event), interrupt(event))[0])
    assert "stopping" in {event.kind for event in events}
    assert {read_status(run_folder(tmp_path / "out", name)).state for name in walks.named()} == {"stopped"}
    run_inline(walks, tmp_path / "out", batch_size=2)
    assert contents(tmp_path / "out", walks) == contents(tmp_path / "undisturbed", walks)


def test_kinds_that_are_not_vectorized_are_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot be batched"):
        run_inline(Study("cakes", grid("q-learning", env="cake")), tmp_path, batch_size=2)


def test_finished_runs_save_a_reduced_state(tmp_path):
    walks = study(1)
    run_inline(walks, tmp_path, batch_size=1)
    (saved,) = (run_folder(tmp_path, next(iter(walks.named()))) / "checkpoint").glob("*.npz")
    assert read_checkpoint(saved).state["place"].shape == (1,)
    assert np.isfinite(read_checkpoint(saved).state["place"]).all()


def test_batches_run_in_worker_processes(tmp_path):
    walks = study(5)
    run_inline(walks, tmp_path / "inline", batch_size=2)
    # One of the runs is ahead of the others, and continues on its own.
    name, walk = next(iter(walks.named().items()))
    run_experiment(run_folder(tmp_path / "pool", name), walk, save_every=0.0, stop=lambda: True)
    events: list[Event] = []
    outcome = run_in_processes(walks, tmp_path / "pool", workers=1, batch_size=3, on_event=events.append)
    assert sorted(outcome.done) == sorted(walks.named())
    assert contents(tmp_path / "pool", walks) == contents(tmp_path / "inline", walks)
    assert [event.kind for event in events if event.run == name].count("started") == 2


def test_a_worker_that_dies_with_a_batch_is_replaced(tmp_path, monkeypatch):
    walks, killed = study(3, length=20), []
    run_inline(walks, tmp_path / "inline", batch_size=3)
    monkeypatch.setenv(NAP, "0.1")
    workers, start = [], Worker.start

    def recorded(worker: Worker) -> None:
        start(worker)
        workers.append(worker)

    def kill_once(event: Event) -> None:
        if event.kind == "step" and not killed:
            workers[0].process.kill()
            killed.append(event.run)

    monkeypatch.setattr(Worker, "start", recorded)

    events: list[Event] = []

    def on_event(event: Event) -> None:
        events.append(event)
        kill_once(event)

    outcome = run_in_processes(walks, tmp_path / "pool", workers=1, batch_size=3, save_every=0.0, on_event=on_event)
    assert len(outcome.done) == 3
    assert len(workers) == 2
    assert [event.text for event in events if event.kind == "died"] == ["its worker was killed by SIGKILL"] * 3
    assert contents(tmp_path / "pool", walks) == contents(tmp_path / "inline", walks)


@pytest.mark.parametrize(("executor", "workers"), [("inline", None), ("processes", 1)])
def test_run_study_runs_any_kind_with_any_executor(tmp_path, executor, workers):
    walks, cakes = study(2), Study("cakes", grid("q-learning", env="cake", steps=100, rows=2, seed=range(2)))
    for some in (walks, cakes):
        outcome = run_study(some, tmp_path / some.name, executor=executor, workers=workers)
        assert sorted(outcome.done) == sorted(some.named())
        assert run_study(some, tmp_path / some.name, executor=executor).done == []


def test_the_executor_follows_from_the_study_and_the_options():
    walks, cakes = study(2), Study("cakes", grid("q-learning", env="cake"))
    assert [choose_executor(some) for some in (walks, cakes)] == ["inline", "processes"]
    assert choose_executor(walks, workers=2) == "processes"
    assert choose_executor(walks, workers=2, ray="auto") == "ray"
    assert choose_executor(cakes, "inline") == "inline"
    with pytest.raises(ValueError, match="choose inline, processes or ray"):
        choose_executor(cakes, "threads")  # pyright: ignore[reportArgumentType]
