"""Compare the speed of two versions of the package, side by side.

    python tools/compare_speed.py OLD/src NEW/src --rounds 7 --out rows.csv

Each round runs every job in a new process per version, in alternating order, so that both versions see the same machine. A job is run once
to compile and then measured. Prints the median seconds of both versions and the median ratio new / old over the rounds, with its range.
The jobs are made through `golden.py`, which knows the names of all versions.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import golden

FIELDS = ("round", "version", "job", "seconds")
PLAN = {"env": "bicycle", "grid": 8, "engine": "numba", "max_episode_steps": 1, "episodes": 1}
AGENT = {"learning_starts": 200, "buffer_size": 5_000, "frames": 4_000, "eval_every": 2_000, "episodes": 1, "max_episode_steps": 2}


def experiment(kind: str, **fields: object) -> Callable[[], object]:
    """Return a job that runs the first chunk of an experiment."""
    made = golden.experiment(kind, **fields)
    start = made.start()
    return lambda: made.advance({name: array.copy() for name, array in start.items()}, 0)


def jobs() -> dict[str, Callable[[], Callable[[], object]]]:
    """Return a function per job, which prepares it and returns what is measured."""
    return {
        "sweeps: bicycle 8^6, bellman": lambda: experiment("plan", **PLAN, operator="bellman", iterations=20, eval_every=20),
        "sweeps: bicycle 8^6, consistent": lambda: experiment("plan", **PLAN, operator="consistent", iterations=20, eval_every=20),
        "sweeps: mountain car 60^2, pal:0.9": lambda: experiment(
            "plan", **{**PLAN, "env": "mountain-car", "grid": 60}, operator="pal:0.9", iterations=1000, eval_every=1000
        ),
        "rollouts: bicycle, 100 episodes": lambda: experiment(
            "plan", **{**PLAN, "episodes": 100, "max_episode_steps": 2000}, operator="bellman", iterations=1, eval_every=1
        ),
        "solve: garnet of 20,000 states, al:0.5": lambda: solve("al:0.5"),
        "Q-learning: FrozenLake, 50,000 steps": lambda: experiment("q-learning", env="gym/FrozenLake-v1", operator="al:0.9", steps=50_000),
        "training: MinAtar Breakout": lambda: experiment("train", env="minatar/breakout", operator="al:0.9", **AGENT),
        "training: CartPole": lambda: experiment("train", env="gym/CartPole-v1", operator="al:0.9", **AGENT),
    }


def solve(operator: str) -> Callable[[], object]:
    """Return a job that solves a random MDP."""
    mdp = golden.call("garnet", 20_000, 4, 5)
    return lambda: golden.call("solve", mdp, operator)


def measure() -> dict[str, float]:
    """Return the seconds of every job in this process."""
    found = {}
    for name, prepare in jobs().items():
        job = prepare()
        job()
        begin = time.perf_counter()
        job()
        found[name] = time.perf_counter() - begin
    return found


def run(source: str) -> dict[str, float]:
    """Return the seconds of every job with the package in `source`, in a new process."""
    env = {**os.environ, "PYTHONPATH": source, "PYTHONWARNINGS": "ignore", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, __file__, "--measure"], env=env, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old", nargs="?", help="src folder of the old version")
    parser.add_argument("new", nargs="?", help="src folder of the new version")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="CSV file for the seconds of every round")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure()))
        return 0
    if not (given.old and given.new):
        parser.error("give the src folders of two versions")
    seconds: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
    for number in range(given.rounds):
        order = ("old", "new") if number % 2 == 0 else ("new", "old")
        for version in order:
            seconds[version].append(run(getattr(given, version)))
            print(f"round {number + 1} of {given.rounds}: {version}", file=sys.stderr)
    if given.out:
        with given.out.open("w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(FIELDS)
            for version, rounds in seconds.items():
                writer.writerows([i, version, job, f"{took:.6f}"] for i, row in enumerate(rounds) for job, took in row.items())
    print(f"{'job':42} {'old s':>8} {'new s':>8} {'new/old':>8}  range")
    for job in seconds["old"][0]:
        old, new = ([row[job] for row in seconds[version]] for version in ("old", "new"))
        ratios = [b / a for a, b in zip(old, new, strict=True)]
        medians = (statistics.median(old), statistics.median(new), statistics.median(ratios))
        print(f"{job:42} {medians[0]:8.3f} {medians[1]:8.3f} {medians[2]:8.2f}  {min(ratios):.2f} to {max(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
