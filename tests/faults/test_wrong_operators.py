"""Operators that are not operators, on every engine: one sentence that says what they did, and no run that is done."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from faults import samples
from faults.commands import assert_told, need

OPERATORS = """
import numpy as np

def none(b): return None
def text(b): return "text"
def shape(b): return np.zeros(7)
def more(b): return np.zeros((2, 3, 5, 7))
def generator(b): yield b.bellman
def infinite(b): return b.bellman + float("inf")
def minus_infinite(b): return b.bellman - float("inf")
def nan(b): return b.bellman + float("nan")
def grows(b): return b.bellman * 1e200 + 1e300
def imaginary(b): return b.bellman * 1j
def words(b): return [b.bellman, "and", b.v]
def mapping(b): return {"bellman": b.bellman}
def function(b): return lambda: b.bellman
def missing(b): return b.nothing
def divides(b): return b.bellman / 0
def raises(b): raise RuntimeError("[/red] it fell\\n\\x1b]0;title\\x07 " + "x" * 5000)
def raises_base(b): raise BaseException("\\x1b[2J gone")
def exits(b): raise SystemExit(3)
def recursion(b): return recursion(b)
def no_argument(): return 0.0
def two_arguments(b, c): return b.bellman
def strings(b): return np.array(["text"])
def objects(b): return np.array([object()])
number = 3.0
nothing = None
module = np
class Empty: pass
"""
NAMES = [
    line.split("(")[0].split(" ")[1].rstrip(":") if line.startswith(("def", "class")) else line.split(" ")[0]
    for line in OPERATORS.splitlines()
    if line and not line.startswith("import")
]
LEARN = ("--env", "cake", "--rows", "2", "--out", "out", "--workers", "1")
PLAN = ("plan", "mountain-car", "--grid", "4", "--iterations", "4", "--eval-every", "2", "--episodes", "1", "--max-episode-steps", "5")
ENGINES: dict[str, tuple[str, ...]] = {
    "solve arrays": ("solve", "cake", "--engine", "arrays", "--max-sweeps", "2000"),
    "solve numba": ("solve", "cake", "--engine", "numba", "--max-sweeps", "2000"),
    "solve jax": ("solve", "cake", "--engine", "jax", "--max-sweeps", "2000"),
    "plan numpy": (*PLAN, "--engine", "numpy", "--out", "out"),
    "plan numba": (*PLAN, "--engine", "numba", "--out", "out"),
    "plan jax": (*PLAN, "--engine", "jax", "--out", "out"),
    "q-learning": ("sweep", "q-learning", "--steps", "20", *LEARN),
    "fitted-q": ("sweep", "fitted-q", "--iterations", "2", "--transitions", "20", *LEARN),
    "noisy-backups": ("sweep", "noisy-backups", "--sweeps", "4", *LEARN),
    "train": (
        "train",
        "minatar/breakout",
        *(f"--{name.replace('_', '-')}={value}" for name, value in samples.TRAIN.items() if name != "env"),
        "--out",
        "out",
    ),
    "check": ("check", "target.py:f"),
}
QUICK = ("solve arrays", "plan numpy")
"""Engines that compile nothing."""


@pytest.mark.parametrize("engine", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in ENGINES])
def test_a_wrong_operator_is_told_in_a_sentence(server, cases, engine):
    if "jax" in engine or engine == "train":
        need(importlib.util.find_spec("jax") is not None, "JAX is not installed")
    # The others compile once for each operator.
    names = NAMES if engine in (*QUICK, "q-learning", "check") else NAMES[::2]
    for name in cases.chosen(names, short=2):
        with cases.case(name) as place:
            (place / "wrong.py").write_text(OPERATORS)
            (place / "target.py").write_text("def f(q_tm1, a_tm1, r_t, discount_t, q_t):\n    return r_t + discount_t * q_t.max(-1)\n")
            operator = ("--operator", f"wrong.py:{name}")
            ended = server.run(*ENGINES[engine], *operator, cwd=place)
            assert_told(ended)
            assert ended.code != 0, ended
            assert not any(state == "done" for state in states(place / "out"))


def states(out: Any) -> list[str]:
    return [json.loads(file.read_text())["state"] for file in out.rglob("status.json")]
