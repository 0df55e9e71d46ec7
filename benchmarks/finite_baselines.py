"""Baselines for sweeps of finite MDPs: SciPy, QuantEcon, and the time that the machine needs just to move the bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from scipy import sparse

from actiongap.mdp.engines import Progress
from actiongap.mdp.exact import distribution_matrix
from actiongap.mdp.model import FiniteMDP


def transition_matrix(mdp: FiniteMDP) -> sparse.csr_array:
    """Return P as a CSR matrix with a row for every pair (x, a) and a column for every x'.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> transition_matrix(chain(2, slip=0.25)).toarray().tolist()
    [[1.0, 0.0], [0.25, 0.75], [0.75, 0.25], [0.0, 1.0]]
    """
    return distribution_matrix(mdp.sparse_transitions(), mdp.states)


def scipy_sweep(mdp: FiniteMDP, matrix: sparse.csr_array, q: np.ndarray) -> np.ndarray:
    """Return R + gamma P max_a Q, written in the usual way with SciPy.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> mdp = chain(2, gamma=0.5)
    >>> scipy_sweep(mdp, transition_matrix(mdp), mdp.rewards)[1].tolist()
    [1.05, 1.5]
    """
    return _bellman_backup(mdp, matrix, q.max(axis=1))


def certifying_scipy_sweep(mdp: FiniteMDP, matrix: sparse.csr_array, q: np.ndarray) -> tuple[np.ndarray, Progress]:
    """Return the same sweep with everything that ours reports: the range of max_a T Q - V and the largest change of a gap.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> mdp = chain(2)
    >>> certifying_scipy_sweep(mdp, transition_matrix(mdp), np.zeros((2, 2)))[1]
    Progress(low=0.0, high=1.0, gap_change=0.0)
    """
    v = q.max(axis=1)
    after = _bellman_backup(mdp, matrix, v)
    v_after = after.max(axis=1)
    d = v_after - v
    change = np.abs((v_after[:, None] - after) - (v[:, None] - q)).max()
    return after, Progress(float(d.min()), float(d.max()), float(change))


def _bellman_backup(mdp: FiniteMDP, matrix: sparse.csr_array, v: np.ndarray) -> np.ndarray:
    return mdp.rewards + mdp.gamma * (matrix @ v).reshape(mdp.rewards.shape)


def quantecon_solver(mdp: FiniteMDP, tol: float) -> Callable[[str], Any]:
    """Return a function of a method's name that solves this MDP to |V - V*| <= `tol` with QuantEcon (sparse, by state-action pairs).

    QuantEcon's value iteration stops if |T V - V| < epsilon (1 - gamma) / (2 gamma), its modified policy iteration if the range of T V - V
    is below epsilon (1 - gamma) / gamma. In both cases V is then within epsilon / 2 of V*, so epsilon is 2 `tol`.
    """
    from quantecon.markov import DiscreteDP

    states, actions = np.divmod(np.arange(mdp.states * mdp.actions), mdp.actions)
    problem = DiscreteDP(mdp.rewards.ravel(), sparse.csr_matrix(transition_matrix(mdp)), mdp.gamma, states, actions)
    return lambda method: problem.solve(method=method, epsilon=2 * tol, max_iter=10**6)


@numba.njit(fastmath=True)
def stream(successors, probabilities, rewards, q, q_after):
    """Read a model and Q and write Q, each once and in order; all arguments are flat.

    Examples
    --------
    >>> after = np.zeros(2)
    >>> _ = stream(np.array([0, 1], np.uint32), np.ones(2), np.ones(2), np.ones(2), after)
    >>> after.tolist()
    [2.0, 2.0]
    """
    indices, total = np.uint32(0), 0.0
    for i in range(successors.size):
        indices |= successors[i]
    for i in range(probabilities.size):
        total += probabilities[i]
    for i in range(q.size):
        q_after[i] = rewards[i] + q[i]
    return indices + total


@numba.njit(fastmath=True)
def gather(successors, v):
    """Read the successors in order, and V at each of them.

    Examples
    --------
    >>> float(gather(np.array([0, 1, 1], np.uint32), np.array([1.0, 2.0])))
    5.0
    """
    total = 0.0
    for i in range(successors.size):
        total += v[successors[i]]
    return total
