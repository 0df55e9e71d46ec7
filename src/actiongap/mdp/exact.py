"""Exact references: policy evaluation by a linear solve, policy iteration, and the value of repeating an action.

They do not iterate an operator. Tests and reports compare the results of operators with them.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from actiongap._progress import StepProgress
from actiongap._suggest import with_suggestions
from actiongap.mdp.checks import check_policy, check_whole
from actiongap.mdp.model import FiniteMDP, check_model
from actiongap.mdp.transitions import Transitions, as_dense

MIN_GAIN = 64 * np.finfo(float).eps
"""Minimum gain for which an action is changed, relative to the largest |V|: rounding makes equal actions differ by a few eps."""


def distribution_matrix(transitions: Transitions, states: int) -> sparse.csr_array:
    """Return next-state distributions as a sparse matrix: one row per pair, in order, and one column per state.

    Examples
    --------
    >>> from actiongap.mdp.transitions import Sparse
    >>> distribution_matrix(Sparse(np.array([[1, 0]]), np.array([[0.75, 0.25]])), states=3).toarray().tolist()
    [[0.25, 0.75, 0.0]]
    """
    return transitions.matrix(states)


def policy_matrix(mdp: FiniteMDP, policy: np.ndarray) -> sparse.csr_array:
    """Return P(x' | x, policy(x)) as a sparse (S, S) matrix; `policy` holds actions (S,) or their probabilities (S, A).

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> policy_matrix(chain(2, slip=0.25), np.array([1, 1])).toarray().tolist()
    [[0.25, 0.75], [0.0, 1.0]]
    """
    policy = check_policy(policy, mdp.states, mdp.actions, mdp.available)
    states = np.arange(mdp.states)
    if policy.ndim == 2:
        each = [mdp.transitions.rows((states, a)).matrix(mdp.states) for a in range(mdp.actions)]
        return sparse.csr_array(sum(sparse.diags_array(policy[:, a]) @ matrix for a, matrix in enumerate(each)))
    return mdp.transitions.rows((states, policy)).matrix(mdp.states)


def policy_rewards(mdp: FiniteMDP, policy: np.ndarray) -> np.ndarray:
    """Return R(x, policy(x)) for every state."""
    policy = check_policy(policy, mdp.states, mdp.actions, mdp.available)
    return (mdp.rewards * policy).sum(1) if policy.ndim == 2 else mdp.rewards[np.arange(mdp.states), policy]


def policy_backup(mdp: FiniteMDP, policy: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return R(x, policy(x)) + gamma E V(x') for every state, where `policy` holds actions."""
    chosen = (np.arange(mdp.states), policy)
    return mdp.rewards[chosen] + mdp.gamma * mdp.transitions.rows(chosen).expect(v)


def evaluate_policy(mdp: FiniteMDP, policy: np.ndarray) -> np.ndarray:
    """Compute V^pi with one linear solve; `policy` holds actions (S,) or their probabilities (S, A).

    Examples
    --------
    >>> from actiongap.mdp.generators import cake
    >>> always_cake = evaluate_policy(cake(gamma=0.9, epsilon=0.1), np.array([0, 0]))
    >>> bool(abs(always_cake[0] - -0.1 / (1 - 0.9 / 2)) < 1e-12)
    True
    """
    check_model(mdp)
    system = sparse.eye_array(mdp.states, format="csc") - mdp.gamma * policy_matrix(mdp, policy).tocsc()
    return linalg.splu(system).solve(policy_rewards(mdp, policy))


def q_from_v(mdp: FiniteMDP, v: np.ndarray) -> np.ndarray:
    """Return R + gamma E V(x') for every pair (x, a), and -inf where there is none."""
    return mdp.masked(mdp.rewards + mdp.gamma * mdp.transitions.expect(np.asarray(v, dtype=float)))


@with_suggestions
def policy_iteration(
    mdp: FiniteMDP, max_iterations: int = 1000, *, progress: bool | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Howard's policy iteration: Q*, V* and an optimal policy, exact up to the rounding of linear solves.

    Progress is shown if it takes longer than two seconds, at once with `progress=True`, and never with `progress=False`.

    Examples
    --------
    >>> from actiongap.mdp.generators import cake
    >>> q, v, policy = policy_iteration(cake(gamma=0.9, epsilon=0.1))
    >>> int(policy[0]), round(float(q[0, 0]), 6)
    (1, -0.1)
    """
    max_iterations = check_whole("max_iterations", max_iterations, 1)
    policy = check_model(mdp).masked(mdp.rewards).argmax(axis=1)
    states = np.arange(mdp.states)
    evaluated = set()
    with StepProgress(f"policy iteration on {mdp.name}", progress) as bar:
        for iteration in range(max_iterations):
            bar(f"iteration {iteration + 1}")
            v = evaluate_policy(mdp, policy)
            q = q_from_v(mdp, v)
            evaluated.add(policy.tobytes())
            # Change an action only for a gain above rounding, so that ties do not change the policy.
            better = q.max(axis=1) > q[states, policy] + MIN_GAIN * np.abs(v).max()
            improved = np.where(better, q.argmax(axis=1), policy)
            # A true gain never leads back to an earlier policy; only rounding does.
            if improved.tobytes() in evaluated:
                return q, v, policy
            policy = improved
    raise RuntimeError(f"policy iteration did not finish in {max_iterations} iterations: raise max_iterations")


def q_stationary(mdp: FiniteMDP, policy: np.ndarray) -> np.ndarray:
    """Compute Q_stat of the paper: the value at x of taking a in x at every visit and following `policy` elsewhere.

    For each pair one row of the policy's linear system changes, a rank-one update of the same inverse (Sherman and Morrison):
    with M = (I - gamma P_pi)^-1, Q_stat(x, a) = V(x) + (Q(x, a) - V(x)) M_xx / (M_xx - gamma sum_y P(y | x, a) M_yx).

    Examples
    --------
    >>> from actiongap.mdp.generators import cake
    >>> abstain = np.array([1, 0])
    >>> bool(abs(q_stationary(cake(gamma=0.9, epsilon=0.1), abstain)[0, 0] - -0.1 / (1 - 0.9 / 2)) < 1e-12)
    True
    """
    check_model(mdp)
    inverse = np.linalg.inv(np.eye(mdp.states) - mdp.gamma * policy_matrix(mdp, policy).toarray())
    v = inverse @ policy_rewards(mdp, policy)
    revisits = np.diagonal(inverse)[:, None]
    states = np.arange(mdp.states)
    table = as_dense(mdp.transitions, mdp.states).probabilities
    detour = np.stack([table[x] @ inverse[:, x] for x in states])
    advantage = mdp.masked(q_from_v(mdp, v) - v[:, None], 0.0)
    return mdp.masked(v[:, None] + advantage * revisits / (revisits - mdp.gamma * detour))
