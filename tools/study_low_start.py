"""Measure what a low start does to Q-learning with a gap-increasing operator.

    python tools/study_low_start.py results/prover/low-start.csv.gz

Theorem 5 (docs/theory.md) is about exact backups in any order from Q_0 <= T Q_0, such as min R / (1 - gamma) everywhere. Q-learning sees
samples, so the theorem does not cover it. Each row is a run: the fraction of states whose greedy action is wrong after the last step, and
the mean of |V - V*| over the states.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import itertools

import numpy as np

from actiongap import load_mdp, policy_iteration, q_learning

MDPS = {"ring:3": 0.9, "gridworld:5": 0.95, "garnet:30,3,3": 0.9}
"""Names and discounts."""
OPERATORS = ("bellman", "al:0.9", "pal:0.9")
STARTS = ("low", "zero", "high")
EXPLORATION = (0.1, 1.0)
SEEDS = 6
STEPS = 5000
COLUMNS: tuple[str, ...] = ("mdp", "operator", "start", "exploration", "seed", "wrong", "error")


def run(name: str, operator: str, start: str, exploration: float, seed: int) -> dict[str, object]:
    """Learn once, and return the row."""
    mdp = load_mdp(name, gamma=MDPS[name])
    q_star, v_star, _ = policy_iteration(mdp)
    reward = {"low": mdp.rewards.min(), "zero": 0.0, "high": mdp.rewards.max()}[start]
    q0 = np.full(q_star.shape, reward / (1 - mdp.gamma))
    learned = q_learning(mdp, operator, steps=STEPS, seed=seed, exploration=exploration, q0=q0, progress=False)
    chosen = q_star[np.arange(mdp.states), learned.policy]
    wrong, error = float((chosen < v_star - 1e-6).mean()), float(np.abs(learned.v - v_star).mean())
    return dict(zip(COLUMNS, (name, operator, start, exploration, seed, wrong, round(error, 6)), strict=True))


def main() -> None:
    """Run all combinations, write the rows and print the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    out = parser.parse_args().out
    rows = [run(*one) for one in itertools.product(MDPS, OPERATORS, STARTS, EXPLORATION, range(SEEDS))]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with gzip.GzipFile(out, "wb", mtime=0) as raw:
        raw.write(text.getvalue().encode())
    for name, exploration, operator in itertools.product(MDPS, EXPLORATION, OPERATORS):
        cells = []
        for start in STARTS:
            values = np.array(
                [row["wrong"] for row in rows if tuple(row.values())[:4] == (name, operator, start, exploration)], dtype=float
            )
            cells.append(f"{start} {values.mean():.3f} ± {2.571 * values.std(ddof=1) / np.sqrt(len(values)):.3f}")
        print(f"{name:14} epsilon {exploration:3} {operator:8}", "  ".join(cells))


if __name__ == "__main__":
    main()
