"""Try to break `prove`: random operators that it accepts, and the same with one coefficient beyond the boundary, iterated on many MDPs.

    python tools/check_prover.py results/prover/operators.csv.gz

An operator is a formula with coefficients. Of each accepted one a twin is made in which one coefficient lies beyond the boundary; that it
does is checked on random backups (or, for draws and schedules, from the criterion), without the prover. Both are iterated from starts in
which the best action is undervalued, and from others, on 53 MDPs with one to four states. The program fails if the prover accepts a
twin, refuses an operator that lies between the bounds, or accepts one that does not reach V*.
"""

from __future__ import annotations

import argparse
import csv
import functools
import gzip
import io
import itertools
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from actiongap import FiniteMDP, Operator, maximum, minimum, policy_iteration, where
from actiongap.mdp.engines import backups
from actiongap.operators import Backup, backup
from actiongap.proof import Verdict, decide

NAMES = {"maximum": maximum, "minimum": minimum, "where": where}
SWEEPS = 600
DEPTH = 2.0
"""How far the best action starts below the others."""
TOLERANCE = 0.05
"""A larger error of V after the last sweep is a failure; rewards are at most 1."""
DISCOUNTS = (0.4, 0.8)


class Template(NamedTuple):
    """A formula, its coefficients as drawn by `within`, and for each coefficient that may be moved its value beyond the boundary."""

    kind: str
    formula: str
    within: Any
    beyond: Any


@dataclass(frozen=True)
class Candidate:
    """An operator and what was done to it."""

    kind: str
    formula: str
    moved: str
    """The coefficient beyond the boundary; empty if none is."""

    def operator(self) -> Operator:
        """Return the operator of the formula, in which u is a draw and k the sweep."""
        function = eval(f"lambda b, u=0, k=0: {self.formula}", dict(NAMES))
        if self.kind == "drawn":
            return Operator(self.formula, lambda b: 0.0, draw=lambda u: Operator("draw", lambda b: function(b, u=u)))
        if self.kind == "scheduled":
            return Operator(self.formula, lambda b: 0.0, schedule=lambda k: Operator("sweep", lambda b: function(b, k=k)))
        return Operator(self.formula, function)


BETWEEN = (
    "b.bellman - {a} * b.gap",
    "b.bellman - {a} * minimum(b.gap, {t})",
    "maximum(b.bellman - {a} * b.gap, b.repeat)",
    "b.bellman - {a} * minimum(b.gap, {t} * b.next_gap)",
    "where(b.gap > {t}, b.bellman - {a} * b.gap, b.bellman - {c} * b.gap)",
    "where(b.next_gap > {t} * b.gap, b.bellman - {a} * b.gap, b.bellman - {c} * b.gap)",
    "b.bellman - maximum({c} * b.gap, minimum({a} * b.gap, b.next_gap))",
    "where((b.q <= b.bellman) & (b.bellman <= b.q + {a} * b.gap), b.q, b.bellman - {c} * b.gap)",
    "{w} * (b.bellman - {a} * b.gap) + {rest} * maximum(b.bellman - {c} * b.gap, b.repeat)",
    "{w} * minimum(b.bellman, b.again) + {rest} * (b.bellman - {a} * minimum(b.gap, {t} + b.next_gap))",
    "b.bellman - {a} * minimum(b.gap, maximum(b.bellman - b.q, {t} * b.next_gap))",
)
"""Formulas between T Q - (V - Q) and T Q for a, c in [0, 1], t > 0 and w + rest = 1."""
EXTRA = " + {e} * b.next_gap + {z}"
"""Terms that leave the bounds unless their coefficients are 0."""


def shift(rng: np.random.Generator) -> float:
    """A distance beyond a boundary."""
    return float(rng.choice([0.01, 0.05, 0.1, 0.3, 1.0]))


def coefficients(rng: np.random.Generator, kind: str) -> dict[str, float]:
    """Coefficients within the boundaries."""
    grid = {name: int(rng.integers(0, 21)) / 20 for name in ("a", "c")}
    found = grid | {"t": int(rng.integers(1, 11)) / 5, "w": int(rng.integers(1, 20)) / 20, "e": 0.0, "z": 0.0}
    found["rest"] = round(1 - found["w"], 2)
    if rng.random() < 0.2:
        found["a"] = 1.0
    if kind == "averaged":
        found["eta"] = int(rng.integers(4, 20)) / 20
        found["keep"] = round(1 - found["eta"], 2)
    if kind == "discount":
        found["eta"], found["slope"] = int(rng.integers(4, 11)) / 20, int(rng.integers(-3, 11)) / 20
        found["start"] = int(rng.integers(0, 11)) / 20
        found["rise"] = round(1 - found["start"], 2) if rng.random() < 0.5 else int(rng.integers(0, 11)) / 20
    return found


def make_formula(rng: np.random.Generator, kind: str) -> str:
    """A formula with names of coefficients."""
    between = str(rng.choice(BETWEEN))
    if kind == "between":
        return between + EXTRA
    if kind == "averaged":
        return f"{{keep}} * b.q + {{eta}} * ({between}){EXTRA}"
    if kind == "discount":
        body = "b.bellman - ({start} + {rise} * b.gamma) * b.gap"
        step = "({eta} + {slope} * b.gamma)"
        return body + EXTRA if rng.random() < 0.5 else f"b.q + {step} * ({body} - b.q){EXTRA}"
    raise ValueError(kind)


def beyond(rng: np.random.Generator, values: dict[str, float], formula: str) -> tuple[str, float]:
    """One coefficient of a formula, and a value of it that may lie beyond the boundary."""
    names = [name for name in ("a", "c", "e", "z", "rest", "keep", "eta", "slope", "start", "rise") if f"{{{name}}}" in formula]
    name = str(rng.choice(names))
    size = shift(rng)
    if name in ("a", "c", "start"):
        return name, round(1 + size if rng.random() < 0.8 else -size, 6)
    if name == "rise":
        return name, round(1 - values["start"] + size, 6)
    if name == "slope":
        return name, round(1 - values["eta"] + size, 6)
    return name, round(values[name] + (size if rng.random() < 0.5 else -size), 6)


def random_backups(rng: np.random.Generator, count: int = 4000) -> Backup:
    """Backups that finite MDPs can have; many have no gap, or none at the next state."""
    q, reward, next_q = rng.normal(0, 3, (3, count))
    v, next_v = (low + rng.exponential(3, count) * (rng.random(count) < 0.6) for low in (q, next_q))
    return backup(rng.random(count), reward, q, v, next_v, next_q, np.zeros(count))


def is_outside(candidate: Candidate, rng: np.random.Generator) -> bool:
    """Whether the operator leaves the bounds of averaging for every step, by random backups and without the prover."""
    b = random_backups(rng)
    operator = candidate.operator()
    zero, one = np.zeros_like(b.q), np.ones_like(b.q)
    eta = operator(Backup(b.gamma, zero, zero, one, one, zero, zero, one))
    above = b.q + eta * (b.bellman - b.q)
    value = operator(b)
    outside = (value > above + 1e-7) | (value < above - eta * b.gap - 1e-7) | (eta > 1 + 1e-9) | (eta < -1e-9)
    return bool(outside.any())


def mean_log(low: float, high: float) -> float:
    """E log m for m uniform on [low, high], numerically."""
    u = (np.arange(20_000) + 0.5) / 20_000
    return float(np.log(np.maximum(low + (high - low) * u, 1e-300)).mean())


def draw_pairs(rng: np.random.Generator, kind: str) -> Iterator[tuple[Candidate, Candidate]]:
    """Operators within the boundaries, each with a twin beyond them."""
    while True:
        if kind == "drawn":
            yield drawn_pair(rng)
        elif kind == "scheduled":
            yield scheduled_pair(rng)
        else:
            formula, values = make_formula(rng, kind), coefficients(rng, kind)
            inside = Candidate(kind, formula.format(**values), "")
            for _ in range(20):
                name, value = beyond(rng, values, formula)
                twin = Candidate(kind, formula.format(**(values | {name: value})), name)
                if is_outside(twin, rng):
                    yield inside, twin
                    break


def drawn_pair(rng: np.random.Generator) -> tuple[Candidate, Candidate]:
    """Advantage learning, averaged with step eta, with alpha uniform on [low, high]; the twin has a larger high."""
    eta, low = float(rng.choice([1.0, 1.0, 0.5, 0.8])), float(rng.choice([0.0, 0.0, 0.2, 0.5]))

    def fits(high: float) -> float:
        return mean_log(1 - eta + eta * low, 1 - eta + eta * high)

    highs = np.arange(low + 0.1, 8, 0.05).round(2)
    means = np.array([fits(high) for high in highs])
    high, larger = rng.choice(highs[means < -0.1]), rng.choice(highs[(means > 0.005) & (means < 0.5)])
    shape = "b.bellman - ({low} + {width} * u) * b.gap"
    formula = shape if eta == 1 else f"{{keep}} * b.q + {{eta}} * ({shape})"
    values = {"low": low, "eta": eta, "keep": round(1 - eta, 2)}
    inside, twin = (formula.format(**values, width=round(float(most) - low, 4)) for most in (high, larger))
    return Candidate("drawn", inside, ""), Candidate("drawn", twin, "high")


def scheduled_pair(rng: np.random.Generator) -> tuple[Candidate, Candidate]:
    """Advantage learning with alpha_k = base + c / (k + s); with base 1 the boundary is c = 1, otherwise it is base = 1."""
    c, s = int(rng.integers(-20, 9)) / 20, int(rng.integers(1, 11))
    if rng.random() < 0.5:
        formula, values, name = "b.bellman - (1 + {c} / (k + {s})) * b.gap", {"c": max(c, -s / 1), "s": s}, "c"
        larger = 1 + 0.05 * int(rng.integers(1, 40))
    else:
        formula, values, name = "b.bellman - ({base} + {c} / (k + {s})) * b.gap", {"base": 0.9, "c": abs(c), "s": s}, "base"
        larger = 1 + 0.05 * int(rng.integers(1, 10))
    twin = formula.format(**(values | {name: round(larger, 4)}))
    return Candidate("scheduled", formula.format(**values), ""), Candidate("scheduled", twin, name)


class Trial(NamedTuple):
    """Many small MDPs, once for each start, as the blocks of one, with Q* and V*."""

    mdp: FiniteMDP
    v_star: np.ndarray
    start: np.ndarray


@functools.cache
def make_trial(gamma: float, seed: int = 0) -> Trial:
    """All deterministic MDPs with one or two states and two actions, twice, and 19 random ones with three and four states."""
    rng = np.random.default_rng(seed)
    moves = [[[0, 0]], *([list(row[:2]), list(row[2:])] for row in itertools.product(range(2), repeat=4))] * 2
    tables = [np.eye(len(rows))[np.array(rows)] for rows in moves]
    for states in [3, 4] * 9 + [4]:
        table = rng.random((states, 2, states)) ** 3 * (rng.random((states, 2, states)) < 0.7)
        table[..., 0] += table.sum(-1) == 0
        tables.append(table / table.sum(-1, keepdims=True))
    rewards = [rng.integers(-4, 5, table.shape[:2]) / 4 for table in tables]
    first, successors, probabilities, starts, v_star = 0, [], [], [], []
    for kind in range(4):
        for table, reward in zip(tables, rewards, strict=True):
            states = len(table)
            padded = np.zeros((states, 2, 4))
            padded[..., :states] = table
            probabilities.append(padded)
            successors.append(np.broadcast_to(first + np.minimum(np.arange(4), states - 1), padded.shape))
            q, v, policy = policy_iteration(FiniteMDP.from_dense(reward, table, gamma))
            starts.append(bad_start(kind, q, v, policy, rng))
            v_star.append(v)
            first += states
    mdp = FiniteMDP.from_successors(np.concatenate(rewards * 4), np.concatenate(successors), np.concatenate(probabilities), gamma)
    return Trial(mdp, np.concatenate(v_star), np.concatenate(starts))


def bad_start(kind: int, q: np.ndarray, v: np.ndarray, policy: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A Q-function that undervalues the best actions, or a random one, or one that overvalues some states."""
    undervalued = q.copy()
    undervalued[np.arange(len(q)), policy] -= DEPTH
    if kind == 0:
        return undervalued
    if kind == 1:
        return undervalued + rng.normal(0, 1, q.shape)
    if kind == 2:
        return rng.normal(0, DEPTH / 2, q.shape)
    return np.where(rng.random((len(q), 1)) < 0.5, v[:, None] + DEPTH, undervalued)


def worst_error(operator: Operator, trial: Trial, seed: int = 0) -> float:
    """The largest error of V over all MDPs and starts when Q rests or after the last sweep; infinite if it diverges."""
    rng, q, error = np.random.default_rng(seed), trial.start, np.inf
    for k in range(SWEEPS):
        before, q = q, operator.at(rng.random()).sweep(k)(backups(trial.mdp, q))
        if k % 50 == 49:
            error = float(np.abs(q.max(axis=1) - trial.v_star).max())
            rests = np.abs(q - before).max() < 1e-10 and operator.schedule is None and operator.draw is None
            if rests or error < 1e-9 or not error < 1e9:
                break
    return error if error < 1e9 else np.inf


VERDICT = ("optimality_preserving", "theorem", "alpha", "eta", "exit_code")
COLUMNS: tuple[str, ...] = ("pair", "kind", "moved", "formula", *VERDICT, "gamma", "error")


def check_numbered(numbered: tuple[int, tuple[Candidate, Candidate]]) -> list[dict[str, Any]]:
    """Decide and iterate both operators of a pair, the latter at one of the discounts in turn, and return a row for each."""
    number, pair = numbered
    trial, rows = make_trial(DISCOUNTS[number % len(DISCOUNTS)]), []
    for candidate in pair:
        operator = candidate.operator()
        verdict: Verdict = decide(operator)
        with np.errstate(all="ignore"):
            error = worst_error(operator, trial, number)
        fields = [getattr(verdict, name) for name in VERDICT]
        described = [number, candidate.kind, candidate.moved, candidate.formula]
        rows.append(dict(zip(COLUMNS, [*described, *fields, trial.mdp.gamma, error], strict=True)))
    return rows


def mistakes(rows: list[dict[str, Any]]) -> list[str]:
    """What the prover did wrong."""
    found = []
    for row in rows:
        what = f"{row['kind']} {row['formula']}"
        if row["moved"] and row["optimality_preserving"]:
            found.append(f"accepted beyond the boundary: {what}")
        if not row["moved"] and not row["optimality_preserving"]:
            found.append(f"not accepted: {what}")
        if row["optimality_preserving"] and row["error"] > TOLERANCE:
            found.append(f"accepted, but V does not reach V*: {what}")
    return found


COUNTS = {"between": 220, "averaged": 170, "discount": 80, "drawn": 40, "scheduled": 30}


def sample(seed: int, counts: dict[str, int]) -> list[tuple[Candidate, Candidate]]:
    """Draw pairs of each kind."""
    rng = np.random.default_rng(seed)
    return [pair for kind, count in counts.items() for pair in itertools.islice(draw_pairs(rng, kind), count)]


def main() -> int:
    """Check all pairs and write a row for each operator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    pairs, rows = sample(options.seed, COUNTS), []
    with ProcessPoolExecutor(options.workers, initializer=warnings.simplefilter, initargs=("ignore",)) as pool:
        for number, found in enumerate(pool.map(check_numbered, enumerate(pairs), chunksize=4)):
            rows += found
            if number % 20 == 19:
                print(f"{number + 1} pairs, {len(mistakes(rows))} mistakes", flush=True)
    write(rows, options.out)
    twins = [row for row in rows if row["moved"]]
    failing = sum(row["error"] > TOLERANCE for row in twins)
    refuted = sum(row["optimality_preserving"] is False for row in twins)
    print(
        f"{len(rows) - len(twins)} accepted; {len(twins)} beyond, {failing} of which miss V* when iterated, {refuted} refuted by Theorem 4"
    )
    for mistake in mistakes(rows):
        print(mistake)
    return bool(mistakes(rows))


def write(rows: list[dict[str, Any]], file: str) -> None:
    """Write the rows as compressed CSV, with the same bytes for the same rows."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with gzip.GzipFile(file, "wb", mtime=0) as raw:
        raw.write(text.getvalue().encode())


if __name__ == "__main__":
    sys.exit(main())
