"""A small vectorized experiment: random walks side by side. Run as a program, it runs a study of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from actiongap.lab.batches import OnProgress, RunBatch, VectorizedExperiment
from actiongap.lab.executors import run_inline
from actiongap.lab.experiment import Row, State
from actiongap.lab.study import Study, grid

KIND = f"{Path(__file__).resolve()}:Rope"
NAP = "ROPE_NAP"
"""Environment variable: seconds that a chunk sleeps. It changes no number."""


@dataclass(frozen=True)
class Rope(VectorizedExperiment):
    """A random walk in a batch of random walks."""

    kind = "rope"
    columns: ClassVar = {"height": "position of the walk"}

    env: str = "mountain"
    """Name of the task."""
    length: int = 8
    """Number of chunks."""
    stumbles_at: int = -1
    """The chunk in which the batch fails; -1 for none."""
    seed: int = 0
    """Random seed."""

    @property
    def chunks(self) -> int:
        return self.length

    @property
    def total_steps(self) -> int:
        return self.length

    @property
    def batch_key(self) -> str:
        return f"{self.env} {self.length} {self.stumbles_at}"

    @classmethod
    def make_batch(cls, members: Sequence[Rope]) -> RunBatch:
        return Walkers(members)


class Walkers:
    def __init__(self, members: Sequence[Rope]):
        self.members = members

    def start(self) -> Any:
        return np.zeros((len(self.members), 3))

    def put(self, states: Iterable[State]) -> Any:
        return np.stack([state["place"] for state in states])

    def get(self, carry: Any, final: bool) -> Sequence[State]:
        return [{"place": place[:1]} if final else {"place": place} for place in carry]

    def advance(self, carry: Any, chunk: int, on_progress: OnProgress = lambda fraction: None) -> tuple[Any, Sequence[Sequence[Row]]]:
        time.sleep(float(os.environ.get(NAP, "0")))
        if chunk == self.members[0].stumbles_at:
            raise RuntimeError("the rope is too short")
        on_progress(0.5)
        carry = carry + np.stack([member.rng(chunk).standard_normal(3) for member in self.members])
        return carry, [[{"step": chunk + 1, "height": float(place[0])}] for place in carry]


def study(seeds: int, **fields: Any) -> Study:
    return Study("ropes", grid(KIND, seed=range(seeds), **fields))


if __name__ == "__main__":
    run_inline(study(int(sys.argv[2]), length=int(sys.argv[3])), sys.argv[1], batch_size=3, save_every=0.0)
