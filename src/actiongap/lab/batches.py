"""Runs that are worked on together: a crew goes through its chunks in step, and each run still has a folder of its own.

Some experiments are much cheaper side by side than one after the other, such as a population of agents on one accelerator. Such an
experiment says which others it can be done with (`crew`) and hands out a team that does them (`team`). What is written is what each run
would write alone: its rows, its checkpoints, its status. So a run may be begun in a crew and continued alone, or in another crew.

The states of a crew stay where they are, on a device maybe, and are fetched when they are saved. Runs are saved one after the other; where
that was interrupted, those that were saved go back to the checkpoint before, which all have.
"""

from __future__ import annotations

import abc
import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from actiongap._files import WriteError
from actiongap.lab.experiment import Experiment, Row, State
from actiongap.lab.lock import BusyError
from actiongap.lab.provenance import describe
from actiongap.lab.runner import (
    SAVE_EVERY,
    Event,
    OnEvent,
    StudyOutcome,
    check_rows,
    deferred_interrupt,
    error_message,
    open_study,
    run_folder,
    unfinished_runs,
)
from actiongap.lab.store import Run, encode_rows, holding
from actiongap.lab.study import Study

SAVING = 0.05
"""The part of the time that may go into saving, at most, once a crew has been saved for the first time."""

OnProgress = Callable[[float], None]
"""Who wants to know how much of a chunk is done."""


class RunBatch(Protocol):
    """Experiments that are done together. What is carried from chunk to chunk is the team's own affair."""

    def start(self) -> Any:
        """What is carried before the first chunk."""
        ...

    def put(self, states: Iterable[State]) -> Any:
        """What is carried, from the states of all members, which may come one by one."""
        ...

    def get(self, carried: Any, over: bool) -> Iterable[State]:
        """The states of all members, one by one where they are large; if all chunks are over, what is worth keeping of them."""
        ...

    def advance(self, carried: Any, chunk: int, told: OnProgress = ...) -> tuple[Any, Sequence[Sequence[Row]]]:
        """Do a chunk of all members: what is carried after it, and the rows of each. If it takes long, `told` is how much of it is done."""
        ...


class VectorizedExperiment(Experiment):
    """An experiment that can be done together with others."""

    @property
    @abc.abstractmethod
    def batch_key(self) -> str:
        """The same text for all experiments that can be done together."""

    @classmethod
    @abc.abstractmethod
    def make_batch(cls, members: Sequence[Any]) -> RunBatch:
        """The team that does these, whose `crew` is the same."""

    @property
    def max_batch_size(self) -> int:
        """How many such experiments this machine has room for side by side; it is tried with one in any case."""
        return sys.maxsize

    @classmethod
    def resource_note(cls, members: Sequence[Any]) -> str:
        """What a team of these takes of this machine, in a sentence, if it is worth knowing before it is taken."""
        return ""

    def start(self) -> State:
        team = self.make_batch([self])
        [state] = team.get(team.start(), over=False)
        return state

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        team = self.make_batch([self])
        carried, [rows] = team.advance(team.put([state]), chunk)
        [state] = team.get(carried, over=chunk + 1 == self.chunks)
        return state, rows

    def go_on(self, state: State | None, chunk: int) -> Iterator[tuple[Sequence[Row], Callable[[], State]]]:
        team = self.make_batch([self])
        carried = team.start() if state is None else team.put([state])
        # What is carried may be as large as memory, and so may what it was made of.
        del state

        def after() -> State:
            [state] = team.get(carried, over=chunk == self.chunks)
            return state

        while chunk < self.chunks:
            carried, [rows] = team.advance(carried, chunk)
            chunk += 1
            yield rows, after


def run_batches(
    study: Study,
    out: str | Path,
    *,
    batch_size: int,
    command: str = "",
    save_every: float = SAVE_EVERY,
    on_event: OnEvent = lambda event: None,
) -> StudyOutcome:
    """Do what is left of a study in this process, crew after crew, each of at most so many runs and of no more than there is room for.

    Interrupting saves everything before KeyboardInterrupt goes on.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> run_batches(Study("cakes", grid("q-learning", env="cake")), tempfile.mkdtemp(), batch_size=2)
    Traceback (most recent call last):
    ValueError: q-learning_cake_bellman_seed-0_1c0199f8 is of a kind that is not done in crews: launch the study with workers
    """
    folder, outcome = open_study(study, out, command), StudyOutcome()
    waiting = batch_runs(unfinished_runs(study, folder), batch_size)
    with deferred_interrupt(lambda: on_event(Event("stopping"))) as stop:
        while waiting and not stop.is_set():
            members = waiting.pop(0)
            # Asked again each time: crews before may have left less room than there was.
            if len(members) > (room := max(1, members[0][1].max_batch_size)):
                waiting[:0] = _evenly(members, room)
                continue
            with contextlib.ExitStack() as stack:
                runs: dict[str, Run] = {}
                for name, experiment in members:
                    try:
                        runs[name] = stack.enter_context(holding(run_folder(folder, name), experiment, command))
                    except BusyError:
                        outcome.busy.append(name)
                        on_event(Event("busy", name))
                    except WriteError:
                        raise
                    except ValueError as error:
                        # What is wrong with one folder is nothing to the others.
                        outcome.failed[name] = error_message(error)
                        on_event(Event("failed", name, text=error_message(error)))
                if runs:
                    ahead = _in_step(runs)
                    waiting[:0] = [[(name, experiment) for name, experiment in members if name in ahead]] if ahead else []
                    _work({name: run for name, run in runs.items() if name not in ahead}, save_every, stop.is_set, on_event, outcome)
        if stop.is_set():
            raise KeyboardInterrupt
    return outcome


def batch_runs(runs: Mapping[str, Experiment], batch_size: int) -> list[list[tuple[str, VectorizedExperiment]]]:
    """Who is done with whom, in the order in which it is done.

    Examples
    --------
    >>> from actiongap.lab.experiment import make
    >>> walks = {f"run {seed}": make("train", {"seed": seed}) for seed in range(5)}
    >>> [[name for name, _ in batch] for batch in batch_runs(walks, batch_size=3)]
    [['run 0', 'run 1'], ['run 2', 'run 3', 'run 4']]
    """
    alike: dict[str, list[tuple[str, VectorizedExperiment]]] = {}
    for name, run in runs.items():
        if not isinstance(run, VectorizedExperiment):
            raise ValueError(f"{name} is of a kind that is not done in crews: launch the study with workers")
        alike.setdefault(run.batch_key, []).append((name, run))
    return [some for members in alike.values() for some in _evenly(members, min(batch_size, max(1, members[0][1].max_batch_size)))]


def _tell(on_event: OnEvent, runs: dict[str, Run], chunk: int, part: float) -> None:
    for name in runs:
        on_event(Event("step", name, chunk + part))


def _evenly(members: list, most: int) -> list[list]:
    """The members in as few crews as can be, all of about one size."""
    crews = -(-len(members) // most)
    return [members[len(members) * k // crews : len(members) * (k + 1) // crews] for k in range(crews)]


def _in_step(runs: dict[str, Run]) -> set[str]:
    """Bring runs to where the one that is least far is; those that cannot go back are a crew of their own, and named."""
    least = min(run.chunk for run in runs.values())
    return {name for name, run in runs.items() if run.chunk > least and not (least > 0 and run.rewind(least))}


def _work(runs: dict[str, Run], save_every: float, stop: Callable[[], bool], on_event: OnEvent, outcome: StudyOutcome) -> None:
    """Do what is left of runs that are equally far."""
    members: list[Any] = [run.experiment for run in runs.values()]
    chunk, chunks = next(iter(runs.values())).chunk, members[0].chunks
    for name in runs:
        on_event(Event("started", name, chunk))
    try:
        if chunk == chunks:
            # Killed after their last checkpoint, before their status said so.
            _save(runs, _states(runs), "done", on_event)
            outcome.done.extend(runs)
            return
        if taken := type(members[0]).resource_note(members):
            on_event(Event("note", text=taken))
        team: RunBatch = type(members[0]).make_batch(members)
        carried = team.put(_states(runs)) if chunk else team.start()
        saved, costs = time.monotonic(), 0.0
        while chunk < chunks:
            begun = time.perf_counter()
            carried, rows = team.advance(carried, chunk, partial(_tell, on_event, runs, chunk))
            chunk, share = chunk + 1, (time.perf_counter() - begun) / len(runs)
            for (name, run), mine in zip(runs.items(), rows, strict=True):
                mine = check_rows(run.experiment, mine)
                run.append(chunk, encode_rows(mine), None, share, batch_size=len(runs))
                on_event(Event("step", name, chunk, mine[-1] if mine else None))
            over, stopping = chunk == chunks, stop()
            if over or stopping or time.monotonic() - saved >= (max(save_every, costs / SAVING) if save_every else 0.0):
                saving = time.monotonic()
                _save(runs, team.get(carried, over), "done" if over else "stopped" if stopping else "running", on_event)
                saved, costs = time.monotonic(), time.monotonic() - saving
            if over:
                outcome.done.extend(runs)
            elif stopping:
                return
    except WriteError:
        raise
    except Exception as error:
        for name, run in runs.items():
            run.fail(error_message(error), traceback.format_exc())
            outcome.failed[name] = error_message(error)
            on_event(Event("failed", name, run.chunk, text=error_message(error)))


def _states(runs: dict[str, Run]) -> Iterator[State]:
    """What was saved of runs, one after the other, so that no more than one need be in memory."""
    for run in runs.values():
        if (state := run.state) is not None:
            yield state
        del state


def _save(runs: dict[str, Run], states: Iterable[State], how: Literal["running", "stopped", "done"], on_event: OnEvent) -> None:
    """Put all runs on the disk, one after the other, and say so where they are left then."""
    for (name, run), state in zip(runs.items(), states, strict=True):
        run.state = state
        run.record_attempt(describe())
        run.save(how)
        if how != "running":
            on_event(Event(how, name, run.chunk))
