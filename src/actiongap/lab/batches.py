"""Vectorized experiments: a batch of runs is advanced chunk by chunk in one program, and each run keeps a folder of its own.

Some experiments are much cheaper as a batch than one by one, such as a population of agents on one accelerator. Such an
experiment declares which others it can share a batch with (`batch_key`) and makes the batch (`make_batch`). Each run writes its own rows,
checkpoints and status, in the format of a single run, so a run started in a batch can continue alone or in another batch.

The states of a batch stay where they are computed, possibly on a device, and are fetched when they are saved. Runs are saved one after
another. If that is interrupted, the runs already saved are rewound to the previous checkpoint, which all runs have.
"""

from __future__ import annotations

import abc
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from actiongap.lab.experiment import Experiment, Row, State

OnProgress = Callable[[float], None]
"""Receives the fraction of a chunk that is done."""


class RunBatch(Protocol):
    """Experiments that are advanced as one batch. The carry between chunks is opaque to the runner."""

    def start(self) -> Any:
        """Return the carry before the first chunk."""
        ...

    def put(self, states: Iterable[State]) -> Any:
        """Return the carry made from the states of all runs, which may be read one by one."""
        ...

    def get(self, carry: Any, final: bool, /) -> Iterable[State]:
        """Return the states of all runs, one by one if they are large. If `final`, return only the state that finished runs keep."""
        ...

    def advance(self, carry: Any, chunk: int, on_progress: OnProgress = ..., /) -> tuple[Any, Sequence[Sequence[Row]]]:
        """Advance all runs by one chunk: the next carry, and the rows of each run. Long chunks report their progress."""
        ...


class SingleRun:
    """A batch of one run, of any experiment."""

    def __init__(self, experiment: Experiment):
        self.experiment = experiment

    def start(self) -> State:
        return self.experiment.start()

    def put(self, states: Iterable[State]) -> State:
        [state] = states
        return state

    def get(self, carry: State, final: bool) -> list[State]:
        return [carry]

    def advance(self, carry: State, chunk: int, on_progress: OnProgress = lambda fraction: None) -> tuple[State, list[Sequence[Row]]]:
        carry, rows = self.experiment.advance(carry, chunk)
        return carry, [rows]


class VectorizedExperiment(Experiment):
    """An experiment that can be advanced in a batch."""

    @property
    @abc.abstractmethod
    def batch_key(self) -> str:
        """Experiments with the same key can share a batch."""

    @classmethod
    @abc.abstractmethod
    def make_batch(cls, members: Sequence[Any]) -> RunBatch:
        """Return the batch of these experiments, which have the same `batch_key`."""

    @property
    def max_batch_size(self) -> int:
        """Number of such experiments that fit in the memory of this machine. A batch of one is always allowed."""
        return sys.maxsize

    @classmethod
    def resource_note(cls, members: Sequence[Any]) -> str:
        """Return a sentence about the memory that a batch will take, or an empty string."""
        return ""

    def start(self) -> State:
        batch = self.make_batch([self])
        [state] = batch.get(batch.start(), False)
        return state

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        batch = self.make_batch([self])
        carry, [rows] = batch.advance(batch.put([state]), chunk)
        [state] = batch.get(carry, chunk + 1 == self.chunks)
        return state, rows


def make_batch(experiments: Sequence[Experiment]) -> RunBatch:
    """Return the batch of experiments with the same `batch_key`, or of a single experiment of any kind."""
    first = experiments[0]
    return first.make_batch(experiments) if isinstance(first, VectorizedExperiment) else SingleRun(*experiments)


def resource_note(experiments: Sequence[Experiment]) -> str:
    """Return a sentence about the memory that a batch will take, or an empty string."""
    first = experiments[0]
    return type(first).resource_note(experiments) if isinstance(first, VectorizedExperiment) else ""


def fits_here(experiment: Experiment) -> int:
    """Return the size of the largest batch of such experiments on this machine, at least 1."""
    return max(1, experiment.max_batch_size) if isinstance(experiment, VectorizedExperiment) else 1


def batch_runs(
    runs: Mapping[str, Experiment], batch_size: int | None, fits: Callable[[Experiment], int] = fits_here
) -> list[list[tuple[str, Experiment]]]:
    """Group runs into batches of at most `batch_size`, in the order in which they are run. None makes each run a batch of one.

    Examples
    --------
    >>> from actiongap.lab.experiment import make
    >>> runs = {f"run {seed}": make("train", {"seed": seed}) for seed in range(5)}
    >>> [[name for name, _ in batch] for batch in batch_runs(runs, batch_size=3)]
    [['run 0', 'run 1'], ['run 2', 'run 3', 'run 4']]
    """
    if batch_size is None:
        return [[(name, run)] for name, run in runs.items()]
    alike: dict[str, list[tuple[str, Experiment]]] = {}
    for name, run in runs.items():
        if not isinstance(run, VectorizedExperiment):
            raise ValueError(f"{name} is of a kind that cannot be batched: leave batch_size out")
        alike.setdefault(run.batch_key, []).append((name, run))
    return [batch for members in alike.values() for batch in split_evenly(members, min(batch_size, fits(members[0][1])))]


def split_evenly(members: list[Any], size: int) -> list[list[Any]]:
    """Split members into as few batches of at most `size` as possible, all of about the same size.

    Examples
    --------
    >>> split_evenly([1, 2, 3, 4, 5], 3)
    [[1, 2], [3, 4, 5]]
    """
    count = -(-len(members) // size)
    return [members[len(members) * k // count : len(members) * (k + 1) // count] for k in range(count)]
