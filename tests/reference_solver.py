"""An independent solver of small models given as lists of pairs: plain loops and dense linear algebra, nothing of the package."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class PairModel(NamedTuple):
    """States (N,), actions (N,) and rewards (N,) of the pairs that exist, a row of next-state probabilities each (N, S), and a discount."""

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    transitions: np.ndarray
    gamma: float

    @property
    def shape(self) -> tuple[int, int]:
        return self.transitions.shape[1], int(self.actions.max()) + 1


def random_pairs(seed: int) -> PairModel:
    """A random model with state-dependent actions and rows of different lengths; many have ties, absorbing states or cycles."""
    rng = np.random.default_rng([seed, 1])
    states, actions = int(rng.integers(1, 13)), int(rng.integers(1, 6))
    exists = rng.random((states, actions)) < rng.choice([0.3, 0.6, 1.0])
    exists[np.arange(states), rng.integers(0, actions, states)] = True
    x, a = np.nonzero(exists)
    kind = rng.choice(["random", "absorbing", "periodic", "ties", "wide"])
    weights = rng.random((len(x), states)) * (rng.random((len(x), states)) < rng.choice([0.2, 0.5]))
    if kind == "periodic":
        weights = np.eye(states)[(x + 1 + a * rng.integers(0, 2)) % states]
    if kind == "absorbing":
        at_rest = rng.random(states) < 0.4
        weights[at_rest[x]] = np.eye(states)[x[at_rest[x]]]
    if kind == "wide":
        weights[x == 0] = rng.random(((x == 0).sum(), states))
    lost = weights.sum(1) == 0
    weights[lost, rng.integers(0, states, lost.sum())] = 1.0
    rewards = rng.integers(-2, 3, len(x)).astype(float) if kind in ("ties", "periodic") else rng.normal(size=len(x)) * rng.choice([1, 100])
    return PairModel(x, a, rewards, weights / weights.sum(1, keepdims=True), float(rng.choice([0.0, 0.5, 0.9, 0.99, 0.999])))


def optimal_values(model: PairModel) -> tuple[np.ndarray, np.ndarray]:
    """V* (S,) and Q* (S, A), with -inf where a pair does not exist: policy iteration by dense linear solves."""
    states, actions = model.shape
    rows_of = [np.flatnonzero(model.states == x) for x in range(states)]
    chosen = np.array([rows[0] for rows in rows_of])
    for _ in range(1000):
        v = np.linalg.solve(np.eye(states) - model.gamma * model.transitions[chosen], model.rewards[chosen])
        value = model.rewards + model.gamma * model.transitions @ v
        better = chosen.copy()
        for x, rows in enumerate(rows_of):
            best = rows[np.argmax(value[rows])]
            if value[best] > value[chosen[x]] + 1e-12 * max(1.0, np.abs(v).max()):
                better[x] = best
        if (better == chosen).all():
            q = np.full((states, actions), -np.inf)
            q[model.states, model.actions] = value
            return v, q
        chosen = better
    raise AssertionError("policy iteration did not finish")


def apply_operator(operator: str, model: PairModel, q: np.ndarray) -> np.ndarray:
    """T'Q by the formulas of the papers, pair by pair; where x' does not have the action, its best one is taken instead."""
    states, actions = model.shape
    exists = np.zeros((states, actions), bool)
    exists[model.states, model.actions] = True
    v = np.where(exists, q, -np.inf).max(1)
    after = np.full((states, actions), -np.inf)
    name, _, rest = operator.partition(":")
    numbers = [float(number) for number in rest.split(",")] if rest else []
    for x, a, r, p in zip(model.states, model.actions, model.rewards, model.transitions, strict=True):
        gamma, gap = model.gamma, v[x] - q[x, a]
        bellman = r + gamma * sum(p[y] * v[y] for y in range(states))
        repeated = r + gamma * sum(p[y] * (q[y, a] if exists[y, a] else v[y]) for y in range(states))
        if name == "bellman":
            value = bellman
        elif name == "consistent":
            value = r + gamma * sum(p[y] * (q[x, a] if y == x else v[y]) for y in range(states))
        elif name == "al":
            value = bellman - numbers[0] * gap
        elif name == "pal":
            value = max(bellman - numbers[0] * gap, repeated)
        elif name == "pal-dqn":
            next_gap = sum(p[y] * (v[y] - q[y, a]) for y in range(states) if exists[y, a])
            value = bellman - numbers[0] * min(gap, next_gap)
        elif name == "lazy":
            value = q[x, a] if q[x, a] <= bellman and bellman <= numbers[0] * v[x] + (1 - numbers[0]) * q[x, a] else bellman
        else:
            value = (1 - numbers[1]) * q[x, a] + numbers[1] * bellman - numbers[0] * gap
        after[x, a] = value
    return after


def gap_limits(operator: str, model: PairModel, v: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The gaps to which iterating an operator tends, from V* and Q*; those of `pal` and `pal-dqn` by iterating their equation."""
    name, _, rest = operator.partition(":")
    numbers = [float(number) for number in rest.split(",")] if rest else [0.0]
    at = model.states, model.actions
    d = v[at[0]] - q[at]
    limits = np.full(q.shape, np.nan)
    if name in ("pal", "pal-dqn"):
        weight = model.gamma if name == "pal" else numbers[0]
        g = np.zeros(q.shape)
        for _ in range(100_000):
            onward = (model.transitions * g[:, model.actions].T).sum(1)
            after = d + np.minimum(numbers[0] * g[at], weight * onward)
            done = np.abs(after - g[at]).max() <= 1e-15 * max(1.0, np.abs(after).max())
            g[at] = after
            if done:
                break
        limits[at] = g[at]
    elif name == "consistent":
        limits[at] = d / (1 - model.gamma * model.transitions[np.arange(len(d)), model.states])
    else:
        alpha, omega = (*numbers, 1.0)[:2]
        limits[at] = d * omega / (omega - alpha)
    return limits
