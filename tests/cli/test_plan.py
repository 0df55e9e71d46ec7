"""`actiongap plan`: output, resuming after interrupts and kills, and invalid input."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from actiongap.lab.experiment import make
from actiongap.lab.kinds import plan as planning
from actiongap.lab.store import holding, read_status
from actiongap.planning.policy import load_policy


def words(text: str) -> tuple[str, ...]:
    """Return the words of a command line."""
    return tuple(text.split())


CAR = words("plan mountain-car --grid 12 --iterations 60 --eval-every 25 --episodes 10 --eta 0.5 --engine numba")
TIMEOUT = 300
"""Seconds after which a test fails; no test measures time."""


def start(*arguments, chunk: int, pause: float = 0.0) -> subprocess.Popen:
    """Start the command in a new process, with `chunk` backups per chunk, a checkpoint after each, and a pause after each update."""
    lines = [
        "import signal, time; signal.signal(signal.SIGINT, signal.default_int_handler)",
        "from actiongap.cli import main; from actiongap.reporting import progress as command",
        "from actiongap.lab import runner; from actiongap.lab.kinds import plan as planning",
        f"planning.BACKUPS['numba'] = {chunk}; runner.SAVE_EVERY = 0.0",
        f"update = command.PlanProgress.update; command.PlanProgress.update = lambda *args: (update(*args), time.sleep({pause}))",
        f"main({[str(argument) for argument in arguments]!r})",
    ]
    return subprocess.Popen([sys.executable, "-c", "\n".join(lines)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition, process: subprocess.Popen) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "timed out"
        time.sleep(0.01)


def saved(folder: Path) -> int:
    """Return the number of saved chunks of a run."""
    return max((int(file.stem) for file in (folder / "checkpoint").glob("*.npz")), default=0)


def test_plan_prints_json_and_writes_a_run_and_a_policy(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*CAR, "--operator", "consistent", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    wanted = [
        "env",
        "operator",
        "seed",
        "grid",
        "iterations",
        "goal_frequency",
        "mean_steps",
        "mean_return",
        "residual",
        "seconds_per_sweep",
    ]
    assert list(found) == [*wanted, "run", "policy"]
    assert [found[name] for name in wanted[:4]] == ["mountain-car", "consistent", 0, 12]
    assert found["run"].startswith("out/plan/consistent_seed-")
    assert found["policy"] == f"{found['run']}/policy.npz"
    assert 0 < found["seconds_per_sweep"] < TIMEOUT
    policy = load_policy(found["policy"])
    assert (policy.env, policy.operator, policy.grid.shape) == ("mountain-car", "consistent", (12, 12))
    assert policy.about["iterations"] == 60
    rows = [json.loads(line) for line in Path(found["run"], "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [25, 50, 60]
    assert rows[-1]["mean_return"] == found["mean_return"]
    assert rows[-1]["residual"] == found["residual"]


def test_a_finished_plan_is_not_computed_again(run, tmp_path, monkeypatch):
    folder, other = tmp_path / "run", tmp_path / "other.npz"
    first = run(*CAR, "--out", folder, "--json")
    before = (folder / "policy.npz").read_bytes()
    monkeypatch.setattr(planning.Planning, "prepare", lambda self: pytest.fail("it is done already"))
    assert run(*CAR, "--out", folder, "--json") == first
    assert (folder / "policy.npz").read_bytes() == before
    code, out, _ = run(*CAR, "--out", folder, "--save", other, "--json")
    assert (code, json.loads(out)["policy"]) == (0, str(other))
    assert other.read_bytes() == before
    assert not [file for file in tmp_path.rglob(".*") if file.is_file()]


def test_a_finished_plan_with_a_damaged_checkpoint_is_recomputed(run, tmp_path):
    code, out, _ = run(*CAR, "--out", tmp_path / "run", "--json")
    first, rows = json.loads(out), (tmp_path / "run" / "metrics.jsonl").read_bytes()
    (file,) = (tmp_path / "run" / "checkpoint").glob("*.npz")
    file.write_bytes(file.read_bytes()[:-100])
    code, out, _ = run(*CAR, "--out", tmp_path / "run", "--json")
    assert code == 0
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == rows
    again = json.loads(out)
    assert {**again, "seconds_per_sweep": 0} == {**first, "seconds_per_sweep": 0}


def test_plan_prints_a_table(run, tmp_path):
    code, out, _ = run(*CAR, "--out", tmp_path / "run")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["iterations", "goal", "mean", "steps", "mean", "return", "gap", "V", "residual"]
    assert [line.split()[0] for line in lines[1:4]] == ["25", "50", "60"]
    assert "ms per sweep" in lines[4]
    assert "actiongap watch" in out


def test_a_small_plan_says_that_it_was_not_compiled_and_records_its_engine(run, tmp_path):
    code, out, _ = run(*words("plan mountain-car --grid 6 --iterations 5 --out"), tmp_path / "run")
    assert code == 0
    assert out.splitlines()[2] == "Engine numpy: this plan is so small that compiling it would take longer."
    assert json.loads((tmp_path / "run" / "config.json").read_text())["spec"]["engine"] == "numpy"
    assert load_policy(tmp_path / "run" / "policy.npz").about["engine"] == "numpy"
    # The same command continues the same run.
    assert run(*words("plan mountain-car --grid 6 --iterations 5 --out"), tmp_path / "run")[1].splitlines()[1:3] == out.splitlines()[1:3]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("nowhere",), "unknown simulator"),
        (("mountain-car:wheels=3",), "wheels=3"),
        (("mountain-car", "--grid", "1"), "1 points per axis"),
        (("mountain-car", "--iterations", "0"), "iterations is 0"),
        (("mountain-car", "--gamma", "1"), "gamma is 1.0"),
        (("mountain-car", "--eta", "0"), "eta is 0.0"),
        (("mountain-car", "--episodes", "-1"), "episodes is -1"),
        (("mountain-car", "--seeds", "0"), "--seeds is 0"),
        (("mountain-car", "--seeds", "2", "--save", "policy.npz"), "leave out --save"),
        (("mountain-car", "--operator", "al"), "al needs a number"),
        (("mountain-car", "--engine", "abacus"), "engine"),
        (("mountain-car", "--save", "policy.txt"), ".npz"),
        (("mountain-car", "--save", "nowhere/policy.npz"), "existing folder"),
        (("bicycle", "--grid", "1000"), "memory"),
        (("mine.py:broken", "--grid", "3"), "the reward is nan"),
        (("mountain-car", "--operator", "mine.py:failing", "--engine", "numba"), "mine.py:failing fails"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence_and_leaves_nothing(run, tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from actiongap.envs.simulators import load_simulator\nimport dataclasses\n"
        "def broken():\n"
        "    car = load_simulator('mountain-car')\n"
        "    def step(x, a, u): return car.step(x, a, u)._replace(reward=float('nan'))\n"
        "    return dataclasses.replace(car, step=step)\n"
        "def failing(b): return {}[b.q]\n"
    )
    code, out, err = run("plan", *options)
    assert (code, out) == (2, "")
    assert err.startswith("actiongap: ")
    assert err.count("\n") == 1
    assert said in err
    assert [entry for entry in os.listdir(tmp_path) if entry != "__pycache__"] == ["mine.py"]


def test_a_folder_of_another_plan_is_refused(run, tmp_path):
    assert run(*CAR, "--out", tmp_path / "run", "--json")[0] == 0
    code, out, err = run(*CAR, "--out", tmp_path / "run", "--seed", "1")
    assert (code, out) == (2, "")
    assert "choose another --out" in err


def test_a_plan_of_another_process_is_refused(run, tmp_path):
    fields = {"env": "mountain-car", "grid": 12, "iterations": 60, "eval_every": 25, "episodes": 10, "eta": 0.5, "engine": "numba"}
    with holding(tmp_path / "run", make("plan", fields)):
        code, out, err = run(*CAR, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert "another process is working on" in err


def test_a_diverging_plan_prints_earlier_evaluations(run, tmp_path, monkeypatch):
    monkeypatch.setitem(planning.BACKUPS, "numba", 10 * 108)
    wild = words("plan mountain-car --grid 6 --operator baird:0.01 --eta 1 --eval-every 5 --episodes 3 --engine numba")
    code, out, err = run(*wild, "--out", tmp_path / "run")
    assert code == 1
    assert "Q is no longer finite: baird:0.01 diverges here" in err
    assert out.splitlines()[1].split()[0] == "5"
    assert read_status(tmp_path / "run").state == "failed"
    code, out, err = run(*wild, "--out", tmp_path / "run", "--json")
    assert (code, out) == (1, "")


def test_a_file_that_changed_since_is_refused(run, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def mine(b): return b.bellman\n")
    mine = (*CAR, "--operator", f"{file}:mine", "--out", tmp_path / "run")
    assert run(*mine)[0] == 0
    file.write_text("def mine(b): return b.bellman - b.gap\n")
    code, out, err = run(*mine)
    assert (code, out) == (2, "")
    assert "mine.py:mine has changed" in err


def test_ctrl_c_saves_and_the_same_command_resumes(run, tmp_path, monkeypatch):
    there, here, chunk = tmp_path / "there", tmp_path / "here", 2 * 432
    process = start(*CAR, "--out", there, chunk=chunk, pause=0.2)
    try:
        wait_for(lambda: saved(there) >= 3, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.startswith("actiongap: stopped after ")
    assert err.count("\n") == 1
    assert read_status(there).state == "stopped"
    done = saved(there)
    assert 3 <= done < 30
    with monkeypatch.context() as patch:
        patch.setitem(planning.BACKUPS, "numba", chunk)
        assert run(*CAR, "--out", there, "--json")[0] == 0
    assert run(*CAR, "--out", here, "--json")[0] == 0
    np.testing.assert_array_equal(load_policy(there / "policy.npz").table, load_policy(here / "policy.npz").table)
    assert (there / "metrics.jsonl").read_bytes() == (here / "metrics.jsonl").read_bytes()


def test_a_killed_plan_resumes_to_the_same_q(run, tmp_path, monkeypatch):
    car = words("plan mountain-car --grid 27 --iterations 40 --eval-every 10 --episodes 4 --max-episode-steps 200 --engine numba")
    car += words("--operator consistent")
    there, here, chunk, rng = tmp_path / "there", tmp_path / "here", 2 * 729 * 3, random.Random(5)
    process = start(*car, "--out", there, chunk=chunk, pause=0.1)
    try:
        wait_for(lambda: saved(there) >= 4, process)
        time.sleep(rng.random() * 0.3)
    finally:
        process.kill()
        process.communicate()
    assert 4 <= saved(there) < 20
    with monkeypatch.context() as patch:
        patch.setitem(planning.BACKUPS, "numba", chunk)
        code, _, err = run(*car, "--out", there, "--json")
    assert (code, err) == (0, "")
    assert run(*car, "--out", here, "--json")[0] == 0
    np.testing.assert_array_equal(load_policy(there / "policy.npz").table, load_policy(here / "policy.npz").table)
    assert (there / "metrics.jsonl").read_bytes() == (here / "metrics.jsonl").read_bytes()


@pytest.mark.long
def test_plans_are_swept_and_reported(run, tmp_path):
    few = words("--grid 8 --iterations 20 --eval-every 5 --episodes 4 --engine numba --eta 0.5")
    problems = words("--env mountain-car pendulum --operator bellman")
    code, out, _ = run("sweep", "plan", *problems, *few, "--out", tmp_path / "study", "--json")
    assert (code, json.loads(out)["done"]) == (0, 2)
    code, out, err = run("report", tmp_path / "study", "-o", tmp_path / "page.html", "--json")
    assert (code, err) == (0, "")
    groups = json.loads(out)["groups"]
    assert len(groups) == 2
    assert {group["task"] for group in groups} == {"mountain-car", "pendulum"}
    assert all(group["runs"] == {"done": 1} for group in groups)
    page = (tmp_path / "page.html").read_text()
    assert "goal_frequency" in page
    assert run("report", tmp_path / "study", "--figures", tmp_path / "figures")[0] == 0


def test_damaged_times_are_ignored(run, tmp_path):
    assert run(*CAR, "--out", tmp_path / "run")[0] == 0
    for text in ("", "[]", '{"sweeps": "x"}', '{"format": "actiongap-run", "version": 1, "sweeps": null, "seconds": 2}'):
        (tmp_path / "run" / "times.json").write_text(text)
        code, out, _ = run(*CAR, "--out", tmp_path / "run", "--json")
        assert code == 0
        assert "seconds_per_sweep" not in json.loads(out)


def test_help_lists_all_options(run):
    code, out, _ = run("plan", "--help")
    assert code == 0
    options = words("operator grid iterations eval-every episodes gamma eta samples noise interpolate engine seed")
    options += words("max-episode-steps seeds check out save json")
    assert [name for name in options if f"--{name}" not in out] == []


FOREIGN_FILES = {
    "rows": ("metrics.jsonl", False),
    "a policy": ("policy.npz", False),
    "a checkpoint": ("checkpoint/00000001.npz", False),
    "a configuration": ("config.json", False),
    "a link to rows": ("metrics.jsonl", True),
    "a link to a policy": ("policy.npz", True),
}


@pytest.mark.parametrize(("name", "link"), FOREIGN_FILES.values(), ids=FOREIGN_FILES)
def test_folders_with_foreign_files_are_refused(run, tmp_path, name, link):
    folder, kept = tmp_path / "theirs", tmp_path / "kept"
    (folder / name).parent.mkdir(parents=True)
    kept.write_text("somebody's")
    if link:
        (folder / name).symlink_to(kept)
    else:
        (folder / name).write_text("somebody's")
    (folder / ".backup.20260101").touch()
    before = sorted(folder.rglob("*"))
    code, out, err = run(*CAR, "--out", folder)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert name.partition("/")[0] in err
    assert "choose another --out" in err or "move the folder away" in err
    assert sorted(folder.rglob("*")) == before
    assert (folder / name).read_text() == kept.read_text() == "somebody's"


def test_a_linked_policy_is_not_replaced(run, tmp_path):
    folder = tmp_path / "run"
    assert run(*CAR, "--out", folder)[0] == 0
    (folder / "policy.npz").rename(tmp_path / "kept.npz")
    (folder / "policy.npz").symlink_to(tmp_path / "kept.npz")
    code, _, err = run(*CAR, "--out", folder)
    assert (code, err.count("\n")) == (2, 1)
    assert "policy.npz is a symbolic link" in err
    (folder / "policy.npz").unlink()
    assert run(*CAR, "--out", folder)[0] == 0
    assert load_policy(folder / "policy.npz").table.tolist() == load_policy(tmp_path / "kept.npz").table.tolist()
