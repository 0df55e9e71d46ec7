"""Two hundred runs in one process take the memory, the open files and the threads of one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from faults import samples
from faults.commands import PATIENT

RUNS = 200
EVERY = 10
"""The memory is measured after this many runs."""
PER_RUN = 16 * 1024
"""Bytes by which the memory may grow per run, after the first quarter. A run that stayed in memory would take more."""
MEASURE = """
import ctypes, gc, json, os, threading
from pathlib import Path
libc = ctypes.CDLL(None)

def measure():
    gc.collect()
    libc.malloc_trim(0)
    used = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return used, len(os.listdir("/proc/self/fd")), threading.active_count()

def repeat(work):
    found = []
    for number in range({runs}):
        work(number)
        if number % {every} == 0:
            found.append(measure())
    print(json.dumps(found))

{code}
"""
WORK = {
    "runs": """
from actiongap.lab.experiment import make
from actiongap.lab.runner import run_experiment
def work(number):
    spec = {"env": "cake", "steps": 100, "rows": 2, "seed": number}
    assert run_experiment(f"runs/{number}", make("q-learning", spec), save_every=0.0) == "done"
repeat(work)
""",
    "failed runs": """
from actiongap.lab.experiment import make
from actiongap.lab.runner import run_experiment
Path("wrong.py").write_text("def op(b): raise RuntimeError('no')")
def work(number):
    spec = {"env": "cake", "steps": 100, "rows": 2, "seed": number, "operator": "wrong.py:op"}
    assert run_experiment(f"runs/{number}", make("q-learning", spec)) == "failed"
repeat(work)
""",
    "plans": """
import actiongap
repeat(lambda number: actiongap.plan("mountain-car", grid=4, iterations=2, eval_every=2, episodes=1, engine="numpy", seed=number))
""",
    "solutions": """
import actiongap
repeat(lambda number: actiongap.solve(actiongap.garnet(20, 3, 3, seed=number), "al:0.5", tol=1e-6))
""",
    "reports": """
import actiongap
repeat(lambda number: actiongap.read_runs("study"))
""",
    "policies": """
import actiongap
repeat(lambda number: actiongap.load_policy("plan/policy.npz").act((-0.5, 0.0)))
""",
}


@pytest.mark.long
@pytest.mark.parametrize("kind", WORK)
def test_memory_does_not_grow_with_the_number_of_runs(server, originals, place, record_property, kind):
    for name in ("study", "plan"):
        samples.copy(originals, name, place)
    server.start(cwd=place, code=MEASURE.format(runs=RUNS, every=EVERY, code=WORK[kind]))
    ended = server.wait(10 * PATIENT)
    assert ended.code == 0, ended
    found = np.array(json.loads(ended.out.splitlines()[-1]), float)
    settled = found[len(found) // 4 :]
    slope = np.polyfit(EVERY * np.arange(len(settled)), settled[:, 0], 1)[0]
    record_property("cases", RUNS)
    record_property("note", f"{kind}: {slope / 1024:+.1f} kB per run")
    assert slope < PER_RUN, f"{slope:.0f} bytes per run"
    assert settled[-1, 1] == settled[0, 1], "files stay open"
    assert settled[-1, 2] == settled[0, 2], "threads stay"
