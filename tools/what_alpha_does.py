"""Compute the rows and the figure of one section of docs/what-alpha-does.md.

    python tools/what_alpha_does.py learning-rate|vote|geometric|wrong|bias

Writes results/alpha/NAME.csv.gz and docs/images/alpha-NAME.svg, and prints the numbers of the page.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from actiongap import FiniteMDP, garnet, parse, policy_iteration, solve
from actiongap.operators import backup
from actiongap.reporting.figures import draw, image
from actiongap.reporting.page import Chart, Series

ROOT = Path(__file__).parents[1]
Rows = list[dict[str, Any]]


def line(name: str, x: np.ndarray, y: np.ndarray) -> Series:
    """A line of a chart."""
    return Series(name, tuple(map(float, x)), tuple(map(float, y)))


def learn(rewards: np.ndarray, alpha: float, eta: float, chosen: np.ndarray | None = None) -> np.ndarray:
    """Q (steps, 2) of one state without a future; if `chosen` is given, only that action is updated in each step."""
    operator, q, seen = parse(f"al:{alpha}"), np.zeros(2), []
    for step, sample in enumerate(rewards):
        target = operator(backup(0.0, sample, q, q.max(), 0.0, 0.0, 0.0))
        moved = q + eta * (target - q)
        q = moved if chosen is None else np.where(np.arange(2) == chosen[step], moved, q)
        seen.append(q)
    return np.array(seen)


def learning_rate() -> tuple[Rows, Chart]:
    """Advantage learning with step eta, beside Bellman with step eta (1 - alpha), on the same samples."""
    rng, steps, eta, alpha = np.random.default_rng(0), 2000, 0.5, 0.9
    rewards = rng.normal((0.1, 0.0), 1.0, (steps, 2))
    chosen = rng.integers(0, 2, steps)
    rows: Rows = []
    for name, updated in (("all actions", None), ("one action", chosen)):
        al, bellman = learn(rewards, alpha, eta, updated), learn(rewards, 0.0, eta * (1 - alpha), updated)
        d_al, d_bellman = (q[:, 0] - q[:, 1] for q in (al, bellman))
        same = np.sign(d_al) == np.sign(d_bellman)
        rows += [
            {"updated": name, "step": k + 1, "al": d_al[k], "bellman": d_bellman[k], "same_greedy_action": bool(same[k])}
            for k in range(steps)
        ]
        print(f"{name}: the same greedy action in {same.mean():.4f} of steps, D_al / D_bellman in [{_range(d_al / d_bellman)}]")
    first = [row for row in rows if row["updated"] == "all actions"][:200]
    x = np.arange(1, 201)
    chart = Chart(
        "The difference of two actions: al:0.9 with step 0.5, and Bellman with step 0.05",
        "step",
        "Q(a) - Q(b)",
        (
            line("al:0.9", x, np.array([row["al"] for row in first])),
            line("ten times Bellman's", x, 10 * np.array([row["bellman"] for row in first])),
        ),
        "The lines are the same.",
    )
    return rows, chart


def _range(values: np.ndarray) -> str:
    return f"{values.min():.6g}, {values.max():.6g}"


def vote() -> tuple[Rows, Chart]:
    """The greedy action of sampled advantage learning as the winner of a weighted sum of the past backups."""
    mdp, alpha, sweeps, rng = garnet(20, 3, 3, gamma=0.9, seed=0), 0.9, 300, np.random.default_rng(0)
    q = rng.normal(0, 1, (20, 3))
    votes, rows = q.copy(), []
    successors, probabilities = mdp.sparse_transitions()
    cumulative = probabilities.cumsum(axis=-1)
    for k in range(sweeps):
        v = q.max(axis=1)
        pick = (rng.random((20, 3, 1)) > cumulative[..., :-1]).sum(axis=-1)
        next_state = np.take_along_axis(successors, pick[..., None], axis=-1)[..., 0]
        bellman = mdp.rewards + rng.normal(0, 0.5, q.shape) + mdp.gamma * v[next_state]
        q = bellman - alpha * (v[:, None] - q)
        votes = alpha * votes + bellman
        agree = (q.argmax(axis=1) == votes.argmax(axis=1)).mean()
        rows.append({"sweep": k + 1, "same_greedy_action": float(agree), "gap": float(q[0].max() - q[0].min())})
    print(f"the same greedy action in {np.mean([row['same_greedy_action'] for row in rows]):.4f} of states and sweeps")
    ages = np.arange(0, 61)
    chart = Chart(
        "How much an old backup counts in the vote",
        "age of the backup, in sweeps",
        "weight alpha^age",
        tuple(line(f"al:{a}", ages, a**ages) for a in (0.0, 0.5, 0.9, 0.99)),
    )
    return rows, chart


def geometric() -> tuple[Rows, Chart]:
    """The loss of an action that is repeated while its state returns, simulated, beside the gap of the consistent operator."""
    rng = np.random.default_rng(0)
    table = rng.random((6, 2, 6)) ** 4 + 2 * np.eye(6)[:, None] * rng.random((6, 2, 1))
    mdp = FiniteMDP.from_dense(rng.standard_normal((6, 2)), table / table.sum(-1, keepdims=True), 0.9, "loops")
    q_star, v_star, _ = policy_iteration(mdp)
    q = solve(mdp, "consistent", tol=1e-10).q
    transitions, rows = table / table.sum(-1, keepdims=True), []
    for x in range(6):
        a, runs = int(q_star[x].argmin()), 20_000
        state, returns, discount = np.full(runs, x), np.zeros(runs), np.ones(runs)
        active = np.ones(runs, dtype=bool)
        while active.any():
            returns[active] += discount[active] * mdp.rewards[x, a]
            discount[active] *= mdp.gamma
            state[active] = rng.choice(6, active.sum(), p=transitions[x, a])
            left = active & (state != x)
            returns[left] += discount[left] * v_star[state[left]]
            active &= ~left
            active &= discount > 1e-9
        mean, error = returns.mean(), 1.96 * returns.std() / np.sqrt(runs)
        gaps = {"bellman": v_star[x] - q_star[x, a], "consistent": v_star[x] - q[x, a]}
        rows.append({"state": x, "stay": transitions[x, a, x]} | gaps | {"simulated": v_star[x] - mean, "interval": error})
        print({name: round(float(value), 4) for name, value in rows[-1].items()})
    order = np.argsort([float(row["stay"]) for row in rows])
    stay = np.array([rows[i]["stay"] for i in order])
    chart = Chart(
        "Loss of repeating the worse action while its state returns",
        "P(x | x, a)",
        "loss",
        tuple(line(name, stay, np.array([rows[i][name] for i in order])) for name in ("bellman", "consistent", "simulated")),
        "The simulated loss is that of the consistent operator's gap.",
        dots=True,
    )
    return rows, chart


def wrong() -> tuple[Rows, Chart]:
    """P(wrong) of two actions in stationarity: closed form and simulation."""
    rows: Rows = []
    eta, alphas = 0.1, (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
    for ratio in (0.05, 0.1, 0.2):
        for alpha in alphas:
            rng = np.random.default_rng(len(rows))
            closed, (counted, interval) = probability_wrong(ratio, eta, alpha), simulate_wrong(ratio, eta, alpha, rng)
            described = {"delta_over_sigma": ratio, "eta": eta, "alpha": alpha}
            rows.append(described | {"closed_form": closed, "simulated": counted, "interval": interval})
            print(f"Delta/sigma {ratio:4} alpha {alpha:4}: {closed:.4f} {counted:.4f} ± {interval:.4f}")
    series = []
    for ratio in (0.05, 0.1, 0.2):
        of_ratio = [row for row in rows if row["delta_over_sigma"] == ratio]
        for column, name in (("closed_form", "closed form"), ("simulated", "simulated")):
            series.append(line(f"{name}, {ratio}", np.array(alphas), np.array([row[column] for row in of_ratio])))
    chart = Chart("Probability of the wrong greedy action, eta = 0.1", "alpha", "P(wrong)", tuple(series), "By Delta / sigma.", dots=True)
    return rows, chart


def probability_wrong(ratio: float, eta: float, alpha: float) -> float:
    """The closed form, with e = eta (1 - alpha); `ratio` is the difference of the means over the sd of the difference of samples."""
    e = eta * (1 - alpha)
    return float(norm.cdf(-ratio * np.sqrt((2 - e) / e)))


def simulate_wrong(ratio: float, eta: float, alpha: float, rng: np.random.Generator) -> tuple[float, float]:
    """The fraction of wrong greedy actions of advantage learning and half its 95% interval, over independent runs.

    Both actions are updated in every step. It is counted after the start is forgotten.
    """
    runs, steps = 4000, 600
    operator, q, wrong_steps = parse(f"al:{alpha}"), np.zeros((runs, 2)), []
    forget = int(8 / (eta * (1 - alpha)))
    for step in range(forget + steps):
        samples = rng.normal(0, np.sqrt(0.5), (runs, 2)) + np.array([ratio, 0.0])
        q += eta * (operator(backup(0.0, samples, q, q.max(axis=1)[:, None], 0.0, 0.0, 0.0)) - q)
        if step >= forget:
            wrong_steps.append(q[:, 0] < q[:, 1])
    by_run = np.mean(wrong_steps, axis=0)
    return float(by_run.mean()), float(1.96 * by_run.std(ddof=1) / np.sqrt(runs))


def bias() -> tuple[Rows, Chart]:
    """How far the larger of two noisy estimates is above the larger mean, by the gap between the means."""
    rng, sd, rows = np.random.default_rng(0), 0.3, []
    for gap in np.round(np.arange(0, 1.01, 0.1), 2):
        s = sd * np.sqrt(2)
        closed = s * norm.pdf(gap / s) - gap * norm.cdf(-gap / s)
        simulated = (rng.normal(0, sd, (1_000_000, 2)) - np.array([0.0, gap])).max(axis=1).mean()
        rows.append({"gap": float(gap), "sd": sd, "closed_form": float(closed), "simulated": float(simulated)})
        print(f"gap {gap:4}: {closed:.4f} {simulated:.4f}")
    x = np.array([row["gap"] for row in rows])
    series = tuple(
        line(name, x, np.array([row[column] for row in rows]))
        for column, name in (("closed_form", "closed form"), ("simulated", "simulated"))
    )
    return rows, Chart("Bias of the maximum of two estimates with noise of sd 0.3", "gap", "E max - max E", series, dots=True)


SECTIONS: dict[str, Callable[[], tuple[Rows, Chart]]] = {
    "learning-rate": learning_rate,
    "vote": vote,
    "geometric": geometric,
    "wrong": wrong,
    "bias": bias,
}


def main() -> None:
    """Write the rows and the figure of one section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("--rows", default=ROOT / "results" / "alpha", type=Path)
    parser.add_argument("--images", default=ROOT / "docs" / "images", type=Path)
    options = parser.parse_args()
    rows, chart = SECTIONS[options.section]()
    for folder in (options.rows, options.images):
        folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: f"{value:.8g}" if isinstance(value, float) else value for name, value in row.items()})
    with gzip.GzipFile(options.rows / f"{options.section}.csv.gz", "wb", mtime=0) as raw:
        raw.write(text.getvalue().encode())
    (options.images / f"alpha-{options.section}.svg").write_bytes(image(draw(chart), "svg"))


if __name__ == "__main__":
    main()
