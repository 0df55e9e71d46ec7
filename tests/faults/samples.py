"""What commands read and write: a study, a plan, an agent and models, finished and interrupted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from faults.commands import Server, give_to_all

LEARN = ("q-learning", "--env", "cake", "--steps", "200", "--rows", "4")
"""A study that takes milliseconds."""
PLAN = ("mountain-car", "--grid", "5", "--iterations", "8", "--eval-every", "2", "--episodes", "2", "--engine", "numpy")
"""A plan that takes milliseconds."""
TRAIN = {
    "env": "minatar/breakout",
    "frames": 96,
    "eval_every": 32,
    "buffer_size": 50,
    "learning_starts": 20,
    "episodes": 2,
    "max_episode_steps": 9,
    "exploration_steps": 40,
}
"""An agent that takes seconds, most of them to compile."""
STUDY = """
from actiongap.lab.executors import run_inline
from actiongap.lab.study import Study, grid
count = 0
def stop():
    global count
    count += 1
    return count >= {chunks}
runs = grid("q-learning", env="cake", steps=200, rows=4, seed=range({seeds}))
outcome = run_inline(Study("q-learning", runs), {out!r}, save_every=0.0, stop=stop, command="actiongap sweep")
for error in outcome.failed.values():
    raise ValueError(error)
"""
AGENT = """
from actiongap.lab.experiment import make
from actiongap.lab.runner import run_experiment
assert run_experiment({out!r}, make("train", {fields!r})) == "done"
from actiongap.api.agents import load_agent
load_agent({out!r}).save({file!r})
"""
MODELS = """
import actiongap
mdp = actiongap.load_mdp("cake")
actiongap.save_npz(mdp, "mdp.npz")
"""


def make_all(server: Server, folder: Path) -> None:
    """Make one of each that is quick to make."""
    calls = {
        "study": STUDY.format(out="study", seeds=2, chunks=10**9),
        "begun": STUDY.format(out="begun", seeds=1, chunks=2),
        "mdp.npz": MODELS,
    }
    for name, code in calls.items():
        ended = server.run(cwd=folder, code=code, privileged=True)
        assert (ended.code, (folder / name).exists()) == (0, True), ended
    ended = server.run("plan", *PLAN, "--out", "plan", cwd=folder, privileged=True)
    assert (ended.code, (folder / "plan" / "policy.npz").exists()) == (0, True), ended
    (folder / "study.toml").write_text('kind = "q-learning"\nenv = "cake"\nsteps = 200\nrows = 4\nseed = [0, 1]\n')
    give_to_all(folder)


def make_agent(server: Server, folder: Path) -> None:
    """Train an agent, and write its weights beside it."""
    ended = server.run(cwd=folder, code=AGENT.format(out="agent", fields=TRAIN, file="agent.safetensors"), privileged=True)
    assert (ended.code, (folder / "agent.safetensors").exists()) == (0, True), ended
    give_to_all(folder)


def one_run(study: Path) -> Path:
    """The folder of the first run of a study."""
    return min((study / "runs").iterdir())


def copy(originals: Path, name: str, to: Path) -> Path:
    """A copy of one of the originals, which every user can write to."""
    source, target = originals / name, to / name
    to.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
        give_to_all(target)
    else:
        shutil.copy(source, target)
        target.chmod(0o666)
    return target


def arrays_of(file: Path) -> dict[str, np.ndarray]:
    """The arrays of an archive."""
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def outcome(run: Path) -> dict[str, Any]:
    """The results of a run that no interruption may change: every byte of its rows and policy, and its last state."""
    last = max((run / "checkpoint").glob("*.npz"))
    state = arrays_of(last)
    header = json.loads(state.pop("arr_0").tobytes())
    status = json.loads((run / "status.json").read_text())
    found: dict[str, Any] = {
        "config": (run / "config.json").read_bytes(),
        "rows": (run / "metrics.jsonl").read_bytes(),
        "state": {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in state.items()},
        "header": {name: header[name] for name in ("chunk", "rows", "digest", "names")},
        "status": {name: status[name] for name in ("state", "chunk", "chunks", "steps", "rows", "digest")},
    }
    if (run / "policy.npz").exists():
        found["policy"] = {name: array.tobytes() for name, array in arrays_of(run / "policy.npz").items()}
    return found
