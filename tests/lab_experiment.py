"""A small experiment that tests share: a random walk that can be slow or fail in several ways."""

from __future__ import annotations

import ctypes
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
"""Environment variable: seconds that a chunk sleeps. It changes no number."""
CURED = "WALK_CURED"
"""Environment variable that turns all failures off."""
JOURNAL = "WALK_JOURNAL"
"""Environment variable: a file to which every chunk appends a line."""


@dataclass(frozen=True)
class Walk(Experiment):
    """A walk with Gaussian steps in several dimensions."""

    kind = "walk"
    columns: ClassVar = {"height": "first coordinate", "gap": "distance between the first and the last coordinate"}

    env: str = "meadow"
    """Name of the task."""
    drift: float = 0.25
    """Added in every step."""
    length: int = 8
    """Number of chunks."""
    dimensions: int = 3
    """Number of coordinates."""
    marks: tuple[float, ...] = (1.0, 2.0)
    """Heights to be reached."""
    trouble: Literal["none", "raise", "exit", "kill", "print", "unwell", "silent", "endless"] = "none"
    """Kind of failure."""
    at: int = 3
    """The chunk that fails."""
    seed: int = 0
    """Random seed."""

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
            os.write(1, b'{"event": "exited"}\n' * 1000)
            print("and more", file=sys.stderr)
        if chunk == self.at and CURED not in os.environ:
            self._fail()
        way = self.drift + self.rng(chunk).standard_normal((10, self.dimensions)).cumsum(axis=0)
        place = state["place"] + way[-1]
        visits = state["visits"] + np.array([int((state["place"] + way)[:, 0].max() > mark) for mark in self.marks], np.int64)
        height = float("nan") if self.trouble == "unwell" else float(place[0])
        row: Row = {"step": 10 * (chunk + 1), "height": height, "gap": float(abs(place[0] - place[-1])), "visits": int(visits.sum())}
        return {"place": place, "visits": visits}, [] if self.trouble == "silent" else [row]

    def _fail(self) -> None:
        if self.trouble == "raise":
            raise RuntimeError("the walker [red]fell[/red]\ninto a ditch")
        if self.trouble == "exit":
            os._exit(7)
        while self.trouble == "endless":
            # Without letting go of Python's lock, so that no other thread runs.
            ctypes.PyDLL(None).sleep(1000)
        if self.trouble == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class UnsavableWalk(Walk):
    """A walk whose state cannot be saved."""

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        after, rows = super().advance(state, chunk)
        return {**after, "bag": np.array([{"a": "stone"}], object)}, rows


@dataclass(frozen=True)
class NumpyRows(Walk):
    """A walk whose rows hold NumPy scalars."""

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        after, _ = super().advance(state, chunk)
        return after, [{"step": np.int64(chunk), "height": np.float32(after["place"][0]), "gap": np.float64("inf")}]  # pyright: ignore[reportReturnType]


@dataclass(frozen=True)
class Bursts(Walk):
    """A walk that reports zero to two rows per chunk and starts from an empty state."""

    def start(self) -> State:
        return {}

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        height = float(state.get("place", np.zeros(1))[0]) + self.rng(chunk).random()
        return {"place": np.array([height])}, [{"step": 10 * chunk + i, "height": height, "gap": None} for i in range(chunk % 3)]
