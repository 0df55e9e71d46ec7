"""Runs that are worked on together: each writes what it would write alone, whatever happens to the crew."""

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
    """Everything of each run that does not tell the time."""
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


def test_a_crew_writes_what_each_would_write_alone(tmp_path):
    walks, told = study(5), []
    outcome = run_inline(walks, tmp_path / "together", batch_size=2, on_event=told.append)
    assert sorted(outcome.done) == sorted(walks.named())
    assert outcome.failed == {}
    for name, walk in walks.named().items():
        assert run_experiment(run_folder(tmp_path / "alone", name), walk) == "done"
    assert contents(tmp_path / "together", walks) == contents(tmp_path / "alone", walks)
    run_in_processes(walks, tmp_path / "workers", workers=2)
    assert contents(tmp_path / "together", walks) == contents(tmp_path / "workers", walks)
    mine = [event for event in told if event.run == next(iter(walks.named()))]
    assert [event.kind for event in mine] == ["started", *["step"] * 16, "done"]
    # In the middle of a chunk its half is told, and no row.
    assert [(event.chunk, event.row is None) for event in mine[1:5]] == [(0.5, True), (1, False), (1.5, True), (2, False)]
    sizes = {
        place: [read_status(run_folder(tmp_path / place, name)).batch_size for name in walks.named()] for place in ("together", "alone")
    }
    assert sizes == {"together": [1, 2, 2, 2, 2], "alone": [1] * 5}
    assert run_inline(walks, tmp_path / "together", batch_size=2).done == []
    assert len(read_runs([tmp_path / "together"]).runs) == 5


def test_a_crew_is_asked_again_how_large_it_may_be(tmp_path, monkeypatch):
    walks, told, rooms = study(4), [], [2, 2, 1, 1, 1]
    monkeypatch.setattr(type(walks.runs[0]), "max_batch_size", property(lambda self: rooms.pop(0)))
    outcome = run_inline(walks, tmp_path / "out", batch_size=4, on_event=told.append)
    assert sorted(outcome.done) == sorted(walks.named())
    assert rooms == []
    # Two were done together, and then there was room for one at a time.
    order = [event.kind for event in told if event.kind in ("started", "done")]
    assert order == ["started", "started", "done", "done", "started", "done", "started", "done"]


def test_no_more_than_one_state_is_in_memory_when_a_crew_is_taken_up_again(tmp_path, monkeypatch):
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


def test_what_is_carried_and_not_saved_is_not_lost_alone_either(tmp_path, monkeypatch):
    monkeypatch.setattr(Walkers, "put", lambda self, states: pytest.fail("nobody was interrupted, and everything began anew"))
    assert run_experiment(tmp_path, Rope(), save_every=0.0) == "done"


def test_a_damaged_folder_is_one_run_that_fails(tmp_path):
    walks, told = study(3), []
    run_inline(study(1), tmp_path, batch_size=1)
    name = next(iter(walks.named()))
    (run_folder(tmp_path, name) / "config.json").write_text("{")
    outcome = run_inline(walks, tmp_path, batch_size=3, on_event=told.append)
    assert (len(outcome.done), list(outcome.failed)) == (2, [name])
    assert outcome.failed[name].endswith("it was cut short, or changed; or move the folder away, and the same command runs it again")
    assert [event.run for event in told if event.kind == "failed"] == [name]


def test_killed_at_any_moment_a_crew_goes_on_to_the_same_end(tmp_path):
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


def test_those_who_are_ahead_go_back_to_what_all_have(tmp_path):
    walks = study(3)
    run_inline(walks, tmp_path / "undisturbed", batch_size=3)

    class Enough(BaseException):
        pass

    def stop_in_the_middle_of_saving(event: Event) -> None:
        if event.kind == "step" and event.chunk == 4 and event.run == list(walks.named())[-1]:
            raise Enough

    with pytest.raises(Enough):
        run_inline(walks, tmp_path / "out", batch_size=3, save_every=0.0, on_event=stop_in_the_middle_of_saving)
    # One run was saved once more than the others, as when a crew is killed while it is being saved.
    name, walk = next(iter(walks.named().items()))
    run_experiment(run_folder(tmp_path / "out", name), walk, save_every=0.0, stop=lambda: True)
    assert [read_status(run_folder(tmp_path / "out", name)).chunk for name in walks.named()] == [4, 3, 3]
    told: list[Event] = []
    run_inline(walks, tmp_path / "out", batch_size=3, on_event=told.append)
    assert {event.chunk for event in told if event.kind == "started"} == {3}
    assert contents(tmp_path / "out", walks) == contents(tmp_path / "undisturbed", walks)


def test_who_goes_on_alone_remembers_that_time_was_shared(tmp_path):
    walks = study(3, stumbles_at=5)
    run_inline(walks, tmp_path, batch_size=3, save_every=0.0)
    one, other, _ = walks.named()
    # An older version did not say how many there were.
    file = run_folder(tmp_path, other) / "status.json"
    file.write_text(json.dumps({name: value for name, value in json.loads(file.read_text()).items() if name != "batch_size"}))
    for name, crew in ((one, 3), (other, None)):
        assert read_status(run_folder(tmp_path, name)).batch_size == crew
        run_experiment(run_folder(tmp_path, name), walks.named()[name])
        assert read_status(run_folder(tmp_path, name)).batch_size == crew


def test_those_who_cannot_go_back_are_a_crew_of_their_own(tmp_path):
    walks = study(3)
    run_inline(walks, tmp_path / "undisturbed", batch_size=3)
    name, walk = next(iter(walks.named().items()))
    run_experiment(run_folder(tmp_path / "out", name), walk, save_every=0.0, stop=lambda: True)
    told: list[Event] = []
    run_inline(walks, tmp_path / "out", batch_size=3, on_event=told.append)
    assert [event.chunk for event in told if event.kind == "started"] == [0, 0, 1]
    assert contents(tmp_path / "out", walks) == contents(tmp_path / "undisturbed", walks)


def test_killed_between_the_last_checkpoint_and_the_word_that_all_is_done(tmp_path, monkeypatch):
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
    told: list[Event] = []
    assert run_inline(walks, tmp_path / "out", batch_size=3, on_event=told.append).done == [last]
    assert [(event.kind, event.chunk) for event in told] == [("started", 8), ("done", 8)]
    assert unfinished_runs(walks, tmp_path / "out") == {}
    assert contents(tmp_path / "out", walks) == contents(tmp_path / "undisturbed", walks)


def test_what_fails_is_told_and_tried_again(tmp_path):
    walks = study(2, stumbles_at=5)
    outcome = run_inline(walks, tmp_path, batch_size=2, save_every=0.0)
    assert set(outcome.failed.values()) == {"RuntimeError: the rope is too short"}
    status = read_status(run_folder(tmp_path, next(iter(walks.named()))))
    assert (status.state, status.chunk) == ("failed", 5)
    assert "the rope is too short" in str(status.traceback)
    told: list[Event] = []
    run_inline(walks, tmp_path, batch_size=2, on_event=told.append)
    assert {event.chunk for event in told if event.kind == "started"} == {5}


def test_a_run_that_another_process_holds_is_left_to_it(tmp_path):
    walks = study(3)
    name = next(iter(walks.named()))
    folder = run_folder(tmp_path, name)
    folder.mkdir(parents=True)
    told: list[Event] = []
    with locked(folder / "lock"):
        outcome = run_inline(walks, tmp_path, batch_size=3, on_event=told.append)
    assert (len(outcome.done), outcome.busy) == (2, [name])
    assert [event.run for event in told if event.kind == "busy"] == [name]
    assert run_inline(walks, tmp_path, batch_size=3).done == [name]


def test_ctrl_c_saves_and_the_same_call_goes_on(tmp_path):
    walks = study(2)
    run_inline(walks, tmp_path / "undisturbed", batch_size=2)

    def interrupt(event: Event) -> None:
        if event.kind == "step" and event.chunk == 3 and event.run == next(iter(walks.named())):
            os.kill(os.getpid(), signal.SIGINT)

    told: list[Event] = []
    with pytest.raises(KeyboardInterrupt):
        run_inline(walks, tmp_path / "out", batch_size=2, on_event=lambda event: (told.append(event), interrupt(event))[0])
    assert "stopping" in {event.kind for event in told}
    assert {read_status(run_folder(tmp_path / "out", name)).state for name in walks.named()} == {"stopped"}
    run_inline(walks, tmp_path / "out", batch_size=2)
    assert contents(tmp_path / "out", walks) == contents(tmp_path / "undisturbed", walks)


def test_other_kinds_are_not_done_in_batches(tmp_path):
    with pytest.raises(ValueError, match="cannot be batched"):
        run_inline(Study("cakes", grid("q-learning", env="cake")), tmp_path, batch_size=2)


def test_states_are_kept_small_when_all_is_over(tmp_path):
    walks = study(1)
    run_inline(walks, tmp_path, batch_size=1)
    (saved,) = (run_folder(tmp_path, next(iter(walks.named()))) / "checkpoint").glob("*.npz")
    assert read_checkpoint(saved).state["place"].shape == (1,)
    assert np.isfinite(read_checkpoint(saved).state["place"]).all()


def test_batches_run_in_worker_processes(tmp_path):
    walks = study(5)
    run_inline(walks, tmp_path / "inline", batch_size=2)
    # One of the runs is ahead of the others, and goes on by itself.
    name, walk = next(iter(walks.named().items()))
    run_experiment(run_folder(tmp_path / "pool", name), walk, save_every=0.0, stop=lambda: True)
    told: list[Event] = []
    outcome = run_in_processes(walks, tmp_path / "pool", workers=1, batch_size=3, on_event=told.append)
    assert sorted(outcome.done) == sorted(walks.named())
    assert contents(tmp_path / "pool", walks) == contents(tmp_path / "inline", walks)
    assert [event.kind for event in told if event.run == name].count("started") == 2


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

    told: list[Event] = []

    def on_event(event: Event) -> None:
        told.append(event)
        kill_once(event)

    outcome = run_in_processes(walks, tmp_path / "pool", workers=1, batch_size=3, save_every=0.0, on_event=on_event)
    assert len(outcome.done) == 3
    assert len(workers) == 2
    assert [event.text for event in told if event.kind == "died"] == ["its worker was ended by SIGKILL"] * 3
    assert contents(tmp_path / "pool", walks) == contents(tmp_path / "inline", walks)


@pytest.mark.parametrize("executor", ["inline", "processes"])
def test_run_study_runs_any_kind_with_any_executor(tmp_path, executor):
    walks, cakes = study(2), Study("cakes", grid("q-learning", env="cake", steps=100, rows=2, seed=range(2)))
    for some in (walks, cakes):
        outcome = run_study(some, tmp_path / some.name, executor=executor, workers=1)
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
