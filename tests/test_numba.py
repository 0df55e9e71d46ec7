"""Operators and simulators in Numba kernels: nothing compiled outlives its process, so changed code gives changed numbers."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[1] / "src" / "actiongap").rglob("*.py"))
FILES = {
    "helper.py": "ALPHA = 0.25\n\ndef callee(b):\n    return 0.25 * b.gap\n\ndef push(a):\n    return 0.001 * (a - 1)\n",
    "operators.py": (
        "import helper\n"
        "from helper import ALPHA, callee\n"
        "def constant(b):\n    return b.bellman - ALPHA * b.gap\n"
        "def attribute(b):\n    return b.bellman - helper.ALPHA * b.gap\n"
        "def make(alpha):\n    def apply(b):\n        return b.bellman - alpha * b.gap\n    return apply\n"
        "closure = make(0.25)\n"
        "def calling(b):\n    return b.bellman - callee(b)\n"
    ),
    "hill.py": (
        "from dataclasses import replace\n"
        "from helper import push\n"
        "from actiongap import maths\n"
        "from actiongap.envs.classic import mountain_car\n"
        "from actiongap.planning.simulator import Outcome\n"
        "def step(x, a, u):\n"
        "    position, speed = x\n"
        "    speed = maths.clip(speed + push(a) - 0.0025 * maths.cos(3 * position), -0.07, 0.07)\n"
        "    return Outcome((maths.clip(position + speed, -1.2, 0.6), speed), -1.0, position >= 0.5)\n"
        "car = mountain_car()\n"
        "simulator = replace(car, step=step)\n"
    ),
}
CHANGES = {
    "constant": ("helper.py", "ALPHA = 0.25", "ALPHA = 0.75"),
    "attribute": ("helper.py", "ALPHA = 0.25", "ALPHA = 0.75"),
    "closure": ("operators.py", "make(0.25)", "make(0.75)"),
    "calling": ("helper.py", "0.25 * b.gap", "0.75 * b.gap"),
    "simulator": ("helper.py", "0.001 * (a - 1)", "0.003 * (a - 1)"),
}
"""By the name of the operator that is used: the file that changes, the text there, and what replaces it."""

PROGRAMS = {
    "solve": (
        "from actiongap import garnet, solve\n"
        "print(repr(float(solve(garnet(20, 3, 2, seed=1), operator, tol=1e-6, engine='numba').q.sum())))"
    ),
    "plan": (
        "import numpy as np\n"
        "from actiongap.envs.simulators import load_simulator\n"
        "from actiongap.operators import parse\n"
        "from actiongap.planning.backups import SweepConfig\n"
        "from actiongap.planning.grid import Grid\n"
        "from actiongap.planning.plan import sweeps_for\n"
        "simulator = load_simulator('hill.py:simulator')\n"
        "grid = Grid(simulator.axes(7))\n"
        "sweeps = sweeps_for(simulator, grid, SweepConfig(parse(operator), 0.9, eta=1.0), 'numba')\n"
        "assert sweeps.sweep.begin.__qualname__.startswith('gathered_sweep')\n"
        "print(repr(float(sweeps.get(sweeps.advance(sweeps.put(np.zeros((49, 3))), 0, 9)[0]).sum())))"
    ),
}


def number_of(program: str, operator: str, folder: Path) -> str:
    """What a program prints in a new process."""
    text = "bellman" if operator == "simulator" else f"operators.py:{operator}"
    # Python's own cache of modules compares times in seconds, and the file changes within one.
    command = [sys.executable, "-B", "-c", f"operator = {text!r}\n{PROGRAMS[program]}"]
    done = subprocess.run(command, cwd=folder, env=os.environ | {"HOME": str(folder)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.every(5)
@pytest.mark.parametrize(
    ("program", "operator"), [(name, one) for name in PROGRAMS for one in CHANGES if (name, one) != ("solve", "simulator")]
)
def test_changed_code_gives_other_numbers_in_the_next_process(program, operator, tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    before = number_of(program, operator, tmp_path)
    name, old, new = CHANGES[operator]
    assert FILES[name].count(old) == 1
    (tmp_path / name).write_text(FILES[name].replace(old, new))
    assert number_of(program, operator, tmp_path) != before
    assert [file.name for file in tmp_path.rglob("*") if re.search(r"\.nb[ic]$", file.name)] == []


def test_nothing_compiled_is_kept_on_disk():
    def kept(file: Path) -> list[str]:
        calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        keywords = [ast.unparse(keyword) for call in calls for keyword in call.keywords if keyword.arg == "cache"]
        return [*keywords, *re.findall(r"enable_caching|NUMBA_CACHE\w*", file.read_text())]

    assert {file.name: found for file in SOURCES if (found := kept(file))} == {}
