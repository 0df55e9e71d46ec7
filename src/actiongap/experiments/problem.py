"""What experiments on finite problems measure: a Q-table against exact answers.

The exact answers are Q* and V* by policy iteration and the value of the uniformly random policy by a linear solve, computed once for each
problem and process. Three kinds of states are told apart:

- a state is *over* if nothing is ever paid from there on, whatever is done: the goal of a gridworld, a hole of a frozen lake. It is worth
  zero to everybody, so every experiment knows its value, ends its episodes there, and leaves it out of all means;
- in the other states something is at stake, and values are averages over them;
- in some of these the choice *matters*: not all actions are optimal. Wrong actions and gaps are counted there alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph, linalg

from actiongap.lab.spec import Experiment, Row
from actiongap.mdp.checks import generator
from actiongap.mdp.exact import distribution_matrix, evaluate_policy, policy_iteration
from actiongap.mdp.generators import load_mdp
from actiongap.mdp.model import FiniteMDP, Sparse
from actiongap.operators import parse

COLUMNS = {
    "score": "mean value of the greedy policy; 0 is the uniformly random policy and 1 the optimal one",
    "wrong": "part of the states where the choice matters in which the greedy action is not optimal",
    "gap": "best less second-best Q, mean over the states where the choice matters",
    "value": "max_a Q, mean over states",
    "value_error": "max_a Q - V*, mean over states",
}
"""What every experiment on a finite problem reports."""
TOLERANCE = 1e-9
"""An action is optimal if it loses no more than this, relative to the largest |Q*|: far above rounding, far below interest."""
BLOCK_ENTRIES = 1 << 20
"""Entries of the linear system by which many policies are evaluated at once."""


@dataclass(frozen=True)
class FiniteExperiment(Experiment):
    """An experiment on a finite problem with an operator, which reports `COLUMNS`."""

    columns: ClassVar[Mapping[str, str]] = COLUMNS

    problem: str = "gridworld:5,5"
    """A finite problem by name: `gridworld:5,5`, `cake`, `chain:10`, `garnet:50,4,3`, `gym/FrozenLake-v1`, or FILE.npz."""
    operator: str = "bellman"
    """An operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, or path/to/file.py:name."""
    gamma: float | None = None
    """The discount; the problem's own if not given."""
    seed: int = 0
    """Which random numbers to use; the same seed repeats a run bit for bit."""

    def __post_init__(self) -> None:
        parse(self.operator)
        generator(self.seed)
        load(self.problem, self.gamma)

    @property
    def reference(self) -> Reference:
        """The problem with its exact answers."""
        return solved(self.problem, self.gamma)


@dataclass(frozen=True, eq=False)
class Reference:
    """A finite problem and what is known of it exactly."""

    mdp: FiniteMDP
    alive: np.ndarray
    """Whether something may still be paid (S,)."""
    v: np.ndarray
    """V* (S,)."""
    optimal: np.ndarray
    """Whether an action is optimal, up to `TOLERANCE` (S, A)."""
    matters: np.ndarray
    """Whether the choice matters (S,)."""
    worst: float
    """The mean value of the uniformly random policy."""
    best: float
    """The mean of V*."""
    gap: float
    """The mean, over states where the choice matters, of what the least bad of the wrong actions loses."""


@lru_cache(maxsize=64)
def load(name: str, gamma: float | None) -> FiniteMDP:
    """The model of a problem, loaded once a process.

    Examples
    --------
    >>> load("cake", 0.5) is load("cake", 0.5)
    True
    """
    return load_mdp(name, gamma=gamma)


@lru_cache(maxsize=64)
def solved(name: str, gamma: float | None) -> Reference:
    """The problem of this name with its exact answers, computed once a process.

    Examples
    --------
    >>> cake = solved("cake", None)
    >>> cake.matters.tolist(), cake.optimal[0].tolist(), round(cake.gap, 9)
    ([True, False], [False, True], 0.1)
    """
    mdp = load(name, gamma)
    q, v, _ = policy_iteration(mdp)
    optimal = q >= v[:, None] - TOLERANCE * np.abs(q).max()
    matters = ~optimal.all(axis=1)
    if not matters.any():
        raise ValueError(f"every policy is optimal in {name}, so there is nothing to compare: choose a problem in which actions matter")
    alive = ~over(mdp)
    evenly = np.full(mdp.rewards.shape, 1 / mdp.actions)
    losses = v - np.where(optimal, -np.inf, q).max(axis=1)
    return Reference(
        mdp=mdp,
        alive=alive,
        v=v,
        optimal=optimal,
        matters=matters,
        worst=float(evaluate_policy(mdp, evenly)[alive].mean()),
        best=float(v[alive].mean()),
        gap=float(losses[matters].mean()),
    )


def over(mdp: FiniteMDP) -> np.ndarray:
    """Whether nothing is ever paid from a state on, whatever is done (S,).

    Examples
    --------
    >>> from actiongap.mdp.generators import gridworld
    >>> over(gridworld(2, 2)).tolist()
    [False, False, False, True]
    """
    successors, probabilities = mdp.listed()
    x, a, k = np.nonzero(probabilities)
    paying = np.flatnonzero(mdp.rewards.any(axis=1))
    # Backwards along every transition, from a source that leads to all states in which something is paid.
    source = mdp.states
    tails, heads = np.append(successors[x, a, k], np.full(len(paying), source)), np.append(x, paying)
    backwards = sparse.csr_array((np.ones(len(tails)), (tails, heads)), shape=(source + 1, source + 1))
    reached = csgraph.breadth_first_order(backwards, source, return_predecessors=False)
    return ~np.isin(np.arange(mdp.states), reached)


def measure(reference: Reference, q: np.ndarray) -> Row:
    """The `COLUMNS` of a Q-table (S, A), or their means over a stack of tables (N, S, A); None for what is not finite.

    The greedy action is the one with the lowest index among equals, and its policy is evaluated exactly.

    Examples
    --------
    >>> row = measure(solved("cake", None), np.array([[0.0, 1.0], [0.0, 0.0]]))
    >>> row["score"], row["wrong"], row["gap"]
    (1.0, 0.0, 1.0)
    """
    q = q.reshape(-1, *reference.optimal.shape)
    if not np.isfinite(q).all():
        return dict.fromkeys(COLUMNS)
    alive, matters = reference.alive, reference.matters
    policies = q.argmax(axis=-1)
    worth = float(evaluate_policies(reference.mdp, policies)[:, alive].mean())
    wrong = ~reference.optimal[np.arange(reference.mdp.states), policies]
    second, best = np.moveaxis(np.partition(q, -2, axis=-1)[..., -2:], -1, 0)
    # Values may be as large as float64 holds, where an operator diverges, and their sum larger.
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = {
            "score": (worth - reference.worst) / (reference.best - reference.worst),
            "wrong": float(wrong[:, matters].mean()),
            "gap": float((best - second)[:, matters].mean()),
            "value": float(best[:, alive].mean()),
            "value_error": float((best - reference.v)[:, alive].mean()),
        }
    return {name: number if np.isfinite(number) else None for name, number in numbers.items()}


def evaluate_policies(mdp: FiniteMDP, policies: np.ndarray) -> np.ndarray:
    """V^pi of many policies (N, S), by linear solves in which policies stand side by side; equal ones are evaluated once.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> evaluate_policies(chain(2, gamma=0.5, slip=0.0), np.array([[1, 1], [0, 0]])).tolist()
    [[1.0, 2.0], [0.0, 1.0]]
    """
    distinct, which = np.unique(policies, axis=0, return_inverse=True)
    listed, states = mdp.listed(), np.arange(mdp.states)
    many = max(1, BLOCK_ENTRIES // (mdp.states * listed.successors.shape[2]))
    values = []
    for block in (distinct[i : i + many] for i in range(0, len(distinct), many)):
        successors, probabilities = listed.rows((states, block))
        first = mdp.states * np.arange(len(block))
        matrix = distribution_matrix(Sparse(successors + first[:, None, None], probabilities), block.size)
        system = sparse.eye_array(block.size, format="csc") - mdp.gamma * matrix.tocsc()
        values.append(linalg.splu(system).solve(mdp.rewards[states, block].ravel()).reshape(block.shape))
    return np.concatenate(values)[which]


def check_count(name: str, value: int, most: int | None = None, of: str = "") -> None:
    """Refuse what is not a whole number of at least 1, or is more than there are of something.

    Examples
    --------
    >>> check_count("rows", 30, most=20, of="steps")
    Traceback (most recent call last):
    ValueError: rows is 30: it must be at most 20, the number of steps
    """
    if int(value) != value or value < 1:
        raise ValueError(f"{name} is {value!r}: it must be a whole number of at least 1")
    if most is not None and value > most:
        raise ValueError(f"{name} is {value!r}: it must be at most {most}, the number of {of}")


def check_deviation(name: str, value: float) -> None:
    """Refuse what is not a standard deviation.

    Examples
    --------
    >>> check_deviation("reward_noise", -1.0)
    Traceback (most recent call last):
    ValueError: reward_noise is -1.0: it must be a standard deviation, a number of at least 0
    """
    if not 0 <= value < np.inf:
        raise ValueError(f"{name} is {value!r}: it must be a standard deviation, a number of at least 0")


def check_learned(q: np.ndarray, operator: str) -> np.ndarray:
    """The table as it is, or a sentence if it is no longer finite."""
    if not np.isfinite(q).all():
        raise ValueError(f"Q is no longer finite: {operator} diverges here; choose another operator")
    return q


def part(total: int, rows: int, chunk: int) -> tuple[int, int]:
    """Where chunk number `chunk` begins and ends when a total is cut into `rows` parts as even as can be.

    Examples
    --------
    >>> [part(10, 3, chunk) for chunk in range(3)]
    [(0, 3), (3, 6), (6, 10)]
    """
    return chunk * total // rows, (chunk + 1) * total // rows
