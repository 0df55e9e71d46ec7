"""A small experiment that is done in crews: random walks side by side. Run as a program, it launches a study of them."""

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
"""The environment variable that says how many seconds a chunk sleeps; it changes no number."""


@dataclass(frozen=True)
class Rope(VectorizedExperiment):
    """A walker on a rope of walkers."""

    kind = "rope"
    columns: ClassVar = {"height": "where the walker is"}

    env: str = "mountain"
    """Where to walk."""
    length: int = 8
    """How many chunks the walk has."""
    stumbles_at: int = -1
    """The chunk in which everybody falls."""
    seed: int = 0
    """Which walk."""

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

    def get(self, carried: Any, over: bool) -> Sequence[State]:
        return [{"place": place[:1]} if over else {"place": place} for place in carried]

    def advance(self, carried: Any, chunk: int, told: OnProgress = lambda part: None) -> tuple[Any, Sequence[Sequence[Row]]]:
        time.sleep(float(os.environ.get(NAP, "0")))
        if chunk == self.members[0].stumbles_at:
            raise RuntimeError("the rope is too short")
        told(0.5)
        carried = carried + np.stack([member.rng(chunk).standard_normal(3) for member in self.members])
        return carried, [[{"step": chunk + 1, "height": float(place[0])}] for place in carried]


def study(seeds: int, **fields: Any) -> Study:
    return Study("ropes", grid(KIND, seed=range(seeds), **fields))


if __name__ == "__main__":
    run_inline(study(int(sys.argv[2]), length=int(sys.argv[3])), sys.argv[1], batch_size=3, save_every=0.0)
