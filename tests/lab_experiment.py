"""A small experiment that tests of the laboratory share: a random walk that can be slow, and that can go wrong in many ways."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from actiongap.lab.experiment import Experiment, Row, State

KIND = f"{Path(__file__).resolve()}:Walk"
NAP = "WALK_NAP"
"""The environment variable that says how many seconds a chunk sleeps; it changes no number."""
CURED = "WALK_CURED"
"""The environment variable under which nothing goes wrong any more."""
JOURNAL = "WALK_JOURNAL"
"""The environment variable that names a file to which every chunk adds a line."""


@dataclass(frozen=True)
class Walk(Experiment):
    """A walk with Gaussian steps in several dimensions."""

    kind = "walk"
    columns: ClassVar = {"height": "the first coordinate", "gap": "the distance between the first two coordinates"}

    env: str = "meadow"
    """Where to walk."""
    drift: float = 0.25
    """What is added in every step."""
    length: int = 8
    """How many chunks the walk has."""
    dimensions: int = 3
    """How many coordinates there are."""
    marks: tuple[float, ...] = (1.0, 2.0)
    """Heights that are looked for."""
    trouble: Literal["none", "raise", "exit", "kill", "print", "unwell"] = "none"
    """What goes wrong."""
    at: int = 3
    """The chunk in which it goes wrong."""
    seed: int = 0
    """Which walk."""

    @property
    def chunks(self) -> int:
        return self.length

    @property
    def total_steps(self) -> int:
        return 10 * self.length

    def start(self) -> State:
        return {"place": np.zeros(self.dimensions), "visits": np.zeros(len(self.marks), np.int64)}

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        time.sleep(float(os.environ.get(NAP, "0")))
        if JOURNAL in os.environ:
            with open(os.environ[JOURNAL], "a") as journal:
                journal.write(f"{self.env} {self.seed} {chunk}\n")
        if self.trouble == "print":
            print('{"event": "done"}\n' * 2000)
            os.write(1, b'{"event": "left"}\n' * 1000)
            print("and more", file=sys.stderr)
        if chunk == self.at and CURED not in os.environ:
            self._go_wrong()
        way = self.drift + self.rng(chunk).standard_normal((10, self.dimensions)).cumsum(axis=0)
        place = state["place"] + way[-1]
        visits = state["visits"] + np.array([int((state["place"] + way)[:, 0].max() > mark) for mark in self.marks], np.int64)
        height = float("nan") if self.trouble == "unwell" else float(place[0])
        row: Row = {"step": 10 * (chunk + 1), "height": height, "gap": float(abs(place[0] - place[-1])), "visits": int(visits.sum())}
        return {"place": place, "visits": visits}, [row]

    def _go_wrong(self) -> None:
        if self.trouble == "raise":
            raise RuntimeError("the walker [red]fell[/red]\ninto a ditch")
        if self.trouble == "exit":
            os._exit(7)
        if self.trouble == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Hoarder(Walk):
    """A walk whose state holds what no checkpoint can."""

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        after, rows = super().advance(state, chunk)
        return {**after, "bag": np.array([{"a": "stone"}], object)}, rows


@dataclass(frozen=True)
class NumpyRows(Walk):
    """A walk whose rows hold NumPy's numbers."""

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        after, _ = super().advance(state, chunk)
        return after, [{"step": np.int64(chunk), "height": np.float32(after["place"][0]), "gap": np.float64("inf")}]  # pyright: ignore[reportReturnType]


@dataclass(frozen=True)
class Bursts(Walk):
    """A walk that reports no row, one or two, and has no state but what its rows need."""

    def start(self) -> State:
        return {}

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        height = float(state.get("place", np.zeros(1))[0]) + self.rng(chunk).random()
        return {"place": np.array([height])}, [{"step": 10 * chunk + i, "height": height, "gap": None} for i in range(chunk % 3)]
