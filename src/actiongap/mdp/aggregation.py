"""Aggregation schemes (Z, A, D) on finite MDPs: planning on the induced MDP, and Q-value interpolation.

A scheme maps the states x of an MDP to a smaller set of aggregate states z. A(z | x) is the distribution of aggregate states given a state,
and D(x | z) the distribution of states given an aggregate state. A Q-function on the aggregate states can be backed up in two ways.

- *Aggregation* averages V: T_A Q(z, a) = E_D [R(x, a) + gamma E_P E_A max_b Q(z', b)]. This is the Bellman operator of the MDP that
  `induced_mdp` makes, with R' = D R and P' = D P A. It is an ordinary finite MDP, which `solve` solves.
- *Q-value interpolation* averages Q and then takes the maximum: with Q(x, b) = E_A Q(z, b),
  T_QVI Q(z, a) = E_D [R(x, a) + gamma E_P max_b Q(x', b)]. It needs no model to act, and T_QVI <= T_A because the maximum is convex.

T_QVI is not a function of V(z) = max_b Q(z, b): the best action between aggregate states may be the best action at none of them. The
theorem on gap-increasing operators therefore does not cover it, and its conclusions can fail, as in `interpolation_counterexample`. But
T_QVI, T'_QVI and T_CQVI, the minimum of the two, are monotone contractions of modulus gamma: each has one fixed point, to which its
iterates converge, and the fixed point of T_CQVI is nowhere above that of T_QVI. Other operators may even diverge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from actiongap._suggest import with_suggestions
from actiongap.mdp.checks import (
    check_distributions,
    check_finite,
    check_indices,
    check_numbers,
    check_table,
    check_whole,
    read_only,
    reject_first,
)
from actiongap.mdp.model import FiniteMDP, check_model
from actiongap.mdp.stopping import DIVERGED
from actiongap.operators import AnyOperator, Backup, backup, parse


@dataclass(frozen=True, eq=False)
class Aggregation:
    """An aggregation scheme over X states and Z aggregate states. Validated and immutable.

    Examples
    --------
    >>> scheme = Aggregation(to_aggregate=[[1.0], [1.0]], to_state=[[0.5, 0.5]])
    >>> scheme.states, scheme.aggregates
    (2, 1)
    """

    to_aggregate: np.ndarray
    """A(z | x), shape (X, Z)."""
    to_state: np.ndarray
    """D(x | z), shape (Z, X)."""

    def __post_init__(self) -> None:
        up, down = check_numbers("to_aggregate", self.to_aggregate, 2), check_numbers("to_state", self.to_state, 2)
        if up.shape != down.shape[::-1] or up.size == 0:
            raise ValueError(f"to_aggregate has shape {up.shape} and to_state {down.shape}: they must be (X, Z) and (Z, X), not empty")
        object.__setattr__(self, "to_aggregate", read_only(check_distributions("to_aggregate", up)))
        object.__setattr__(self, "to_state", read_only(check_distributions("to_state", down)))

    @property
    def states(self) -> int:
        """Number of states."""
        return self.to_aggregate.shape[0]

    @property
    def aggregates(self) -> int:
        """Number of aggregate states."""
        return self.to_aggregate.shape[1]


def partition(labels: ArrayLike, weights: ArrayLike | None = None) -> Aggregation:
    """Hard aggregation: A(z | x) = 1 where labels[x] is z, and D(x | z) is proportional to `weights`, which are equal by default.

    `partition(range(n))` is the tabular scheme of n states, for which T_A and T_QVI are the Bellman operator.

    Examples
    --------
    >>> partition([0, 0, 1]).to_state.tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    labels = check_numbers("labels", labels, 1)
    if labels.size == 0:
        raise ValueError("labels are empty: pass one label per state")
    labels = check_indices("labels", labels, 1, "aggregate states", labels.size)
    weights = np.ones(labels.size) if weights is None else check_finite("weights", weights, 1)
    if weights.shape != labels.shape:
        raise ValueError(f"weights have shape {weights.shape}: pass one weight for each of the {labels.size} labels")
    member = np.eye(labels.max() + 1)[labels]
    shares = (member * weights[:, None]).T
    totals = shares.sum(axis=1, keepdims=True)
    reject_first("the weight of label", totals[:, 0], ~(totals[:, 0] > 0), "every label needs a state of positive weight")
    return Aggregation(member, shares / totals)


def averager(weights: ArrayLike, representatives: ArrayLike) -> Aggregation:
    """An averager: the aggregate states are a subset of the states, D(x | z) = 1 where x is z, and A(z | x) = weights[x, z].

    Examples
    --------
    >>> averager([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], representatives=[0, 2]).to_state.tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    weights = check_numbers("weights", weights, 2)
    chosen = _check_states("representatives", representatives, len(weights))
    return Aggregation(weights, np.eye(len(weights))[chosen])


def interpolation(positions: ArrayLike, knots: ArrayLike) -> Aggregation:
    """Linear interpolation on a line: A(z | x) is the hat function of knot z at positions[x]; beyond the end knots, the nearest one.

    Examples
    --------
    >>> interpolation(positions=[0.0, 1.0, 4.0], knots=[0, 2]).to_aggregate[1].tolist()
    [0.75, 0.25]
    """
    positions = check_finite("positions", positions, 1)
    at = positions[_check_states("knots", knots, positions.size)]
    if not (np.diff(at) > 0).all():
        raise ValueError(f"knots are at {at.tolist()}: give distinct positions in increasing order")
    hats = [np.interp(positions, at, hat) for hat in np.eye(at.size)]
    return averager(np.stack(hats, axis=1), knots)


def kernel_averager(positions: ArrayLike, representatives: ArrayLike, bandwidth: float) -> Aggregation:
    """A Gaussian kernel average: A(z | x) proportional to exp(-|x - z|^2 / (2 bandwidth^2)), for positions of shape (X, d).

    Examples
    --------
    >>> kernel_averager([[0.0], [1.0], [2.0]], representatives=[0, 2], bandwidth=0.5).to_aggregate[1].tolist()
    [0.5, 0.5]
    """
    positions = check_finite("positions", positions, 2)
    if not (np.isfinite(bandwidth) and bandwidth > 0):
        raise ValueError(f"bandwidth is {bandwidth!r}: it must be a positive number")
    centres = positions[_check_states("representatives", representatives, len(positions))]
    squares = ((positions[:, None] - centres) ** 2).sum(axis=-1)
    # Relative to the nearest representative, so that the weights of a distant state do not all underflow to zero.
    weights = np.exp(-0.5 * (squares - squares.min(axis=1, keepdims=True)) / bandwidth / bandwidth)
    return averager(weights / weights.sum(axis=1, keepdims=True), representatives)


def induced_mdp(mdp: FiniteMDP, scheme: Aggregation) -> FiniteMDP:
    """Make the MDP on the aggregate states, R' = D R and P' = D P A. Its Bellman operator is T_A, and its consistent operator T_C over Z.

    An aggregate state has the actions that all of its states have.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> induced_mdp(chain(4, slip=0.0), partition([0, 0, 1, 1])).dense().transitions.probabilities[0, 1].tolist()
    [0.5, 0.5]
    """
    rewards, onward = _from_aggregates(mdp, scheme)
    available = None if mdp.available is None else (scheme.to_state @ ~mdp.available) == 0
    return FiniteMDP.from_dense(rewards, onward @ scheme.to_aggregate, mdp.gamma, f"{mdp.name}, aggregated", available=available)


def interpolated_backups(mdp: FiniteMDP, scheme: Aggregation, q: np.ndarray) -> Backup:
    """Compute the backups of Q-value interpolation at every (z, a): `bellman` is T_QVI and `again` T'_QVI, so `consistent` gives T_CQVI.

    T'_QVI Q(z, a) = E_D [R(x, a) + gamma E_P max_b [Q(x', b) - A(z | x') (Q(z, b) - Q(z, a))]]. It may exceed T_QVI,
    which cannot happen on a finite MDP: it repeats the action with weight A(z | x') and maximizes over the rest.

    Examples
    --------
    >>> mdp, scheme = interpolation_counterexample()
    >>> at_the_optimum = interpolated_backups(mdp, scheme, [[0.0, 8.0, 7.0], [0.0, -16.0, -16.0]])
    >>> at_the_optimum.bellman[0].tolist(), at_the_optimum.again[0].tolist()
    ([0.0, 8.0, 7.0], [-4.0, 10.0, 7.0])
    """
    rewards, onward = _for_interpolation(mdp, scheme)
    return _backups(rewards, onward, mdp.gamma, scheme.to_aggregate, check_table("q", q, rewards.shape))


@dataclass(frozen=True, eq=False)
class InterpolationResult:
    """The result of iterating an operator with Q-value interpolation. It is not certified; `residual` measures convergence."""

    q: np.ndarray
    """The final Q-function (Z, A)."""
    v: np.ndarray
    """V(z) = max_a Q(z, a), (Z,)."""
    residual: float
    """The largest change of Q in the last sweep. For T_QVI and T_CQVI, Q is within gamma / (1 - gamma) times it of the fixed point."""
    sweeps: int
    """Number of sweeps: applications of the operator to all pairs."""


@with_suggestions
def iterate_interpolated(
    mdp: FiniteMDP,
    scheme: Aggregation,
    operator: AnyOperator = "consistent",
    *,
    sweeps: int = 10_000,
    q0: np.ndarray | None = None,
    tol: float = 1e-12,
) -> InterpolationResult:
    """Iterate Q <- T'Q with interpolated backups until no entry changes by more than `tol`, for at most `sweeps` sweeps.

    `bellman` and `consistent` converge from any initial Q at the rate gamma. Their V and greedy actions may differ. Other operators need
    not converge, and a limit has no guarantee; the iteration stops when it diverges.

    Examples
    --------
    >>> mdp, scheme = interpolation_counterexample()
    >>> iterate_interpolated(mdp, scheme, "bellman").q[0].round(9).tolist()
    [0.0, 8.0, 7.0]
    >>> iterate_interpolated(mdp, scheme, "consistent").q[0].round(9).tolist()
    [-8.0, 6.0, 7.0]
    """
    operator = parse(operator)
    sweeps = check_whole("sweeps", sweeps, 1)
    if not isinstance(tol, (int, float)) or not tol >= 0:
        raise ValueError(f"tol is {tol!r}: it must be a number, 0 or more")
    rewards, onward = _for_interpolation(mdp, scheme)
    q = np.zeros(rewards.shape) if q0 is None else check_table("q0", q0, rewards.shape)
    limit = DIVERGED * max(1.0, np.abs(rewards).max() / (1 - mdp.gamma), np.abs(q).max())
    done, residual = 0, np.inf
    while done < sweeps and tol < residual and np.abs(q).max() < limit:
        after = np.broadcast_to(operator(_backups(rewards, onward, mdp.gamma, scheme.to_aggregate, q)), q.shape)
        residual = float(np.abs(after - q).max())
        q, done = after, done + 1
    return InterpolationResult(np.array(q), q.max(axis=1), residual, done)


def interpolated_policy(scheme: Aggregation, q: np.ndarray) -> np.ndarray:
    """Return the greedy action of the interpolated Q(x, a) = E_A Q(z, a) at every state (X,); ties go to the lowest index.

    Examples
    --------
    >>> interpolated_policy(interpolation([0.0, 1.0, 2.0], [0, 2]), [[1.0, 0.0], [0.0, 3.0]]).tolist()
    [0, 1, 1]
    """
    q = check_finite("q", q, 2)
    return (scheme.to_aggregate @ check_table("q", q, (scheme.aggregates, q.shape[1]))).argmax(axis=1)


def interpolation_counterexample(sure: float = 7.0) -> tuple[FiniteMDP, Aggregation]:
    """Three states on a line for which T_CQVI has another greedy action than T_QVI: V at the left knot is 8 for T_QVI, 7 for T_CQVI.

    The states are left, middle and right. Left and right are knots; middle is halfway between them. The actions are wait (0), go (1) and
    sure (2), and gamma is 1/2. In the left state, wait has reward -4 and stays, go has reward 8 and leads to the middle, and sure has the
    reward `sure` and leads to the right. In the other states all actions lead to the right; wait has reward 0 and the others -16. The fixed
    point of T_QVI is Q* of the MDP. T_CQVI devalues waiting on the left, which is the greedy action in the middle. With `sure=9`, T'_QVI
    errs: its greedy action is go.

    Examples
    --------
    >>> mdp, scheme = interpolation_counterexample()
    >>> interpolated_policy(scheme, iterate_interpolated(mdp, scheme, "bellman").q).tolist()
    [1, 0, 0]
    >>> interpolated_policy(scheme, iterate_interpolated(mdp, scheme, "consistent").q).tolist()
    [2, 0, 0]
    """
    left, middle, right = range(3)
    rewards = [[-4.0, 8.0, sure], [0.0, -16.0, -16.0], [0.0, -16.0, -16.0]]
    successors = [[[left], [middle], [right]], [[right]] * 3, [[right]] * 3]
    mdp = FiniteMDP.from_successors(rewards, successors, np.ones((3, 3, 1)), 0.5, "interpolation-counterexample")
    return mdp, interpolation(positions=[0.0, 1.0, 2.0], knots=[left, right])


def _for_interpolation(mdp: FiniteMDP, scheme: Aggregation) -> tuple[np.ndarray, np.ndarray]:
    if check_model(mdp).available is not None:
        raise ValueError("Q-value interpolation averages Q(z, a) over states, so every state needs every action: use induced_mdp")
    return _from_aggregates(mdp, scheme)


def _from_aggregates(mdp: FiniteMDP, scheme: Aggregation) -> tuple[np.ndarray, np.ndarray]:
    """R'(z, a) = E_D R(x, a), and the distribution of the next state, E_D P(x' | x, a), (Z, A, X)."""
    if not isinstance(scheme, Aggregation):
        raise TypeError(f"{scheme!r} is not an Aggregation: make one with Aggregation(to_aggregate, to_state)")
    if scheme.states != check_model(mdp).states:
        raise ValueError(f"the scheme has {scheme.states} states and the MDP {mdp.states}: use a scheme over the states of the MDP")
    states = np.arange(mdp.states)
    each = [scheme.to_state @ mdp.transitions.rows((states, a)).matrix(mdp.states) for a in range(mdp.actions)]
    return scheme.to_state @ mdp.rewards, np.stack(each, axis=1)


def _backups(rewards: np.ndarray, onward: np.ndarray, gamma: float, to_aggregate: np.ndarray, q: np.ndarray) -> Backup:
    at_states = to_aggregate @ q
    next_v = onward @ at_states.max(axis=1)
    next_q = np.einsum("zax,xa->za", onward, at_states)
    plain = backup(gamma, rewards, q, q.max(axis=1)[:, None], next_v, next_q, 0.0)
    here = to_aggregate.T[:, :, None]
    # The part of the maximum that does not depend on the backed-up action: the maximum over the other aggregate states.
    elsewhere = (at_states - here * q[:, None, :]).max(axis=-1)
    next_again = np.einsum("zax,zx->za", onward, elsewhere) + np.einsum("zax,xz->za", onward, to_aggregate) * q
    return plain._replace(again=rewards + gamma * next_again)


def _check_states(name: str, values, states: int) -> np.ndarray:
    array = check_indices(name, values, 1, "states", states)
    if array.size == 0:
        raise ValueError(f"{name} are empty: list at least one state")
    if np.unique(array).size != array.size:
        raise ValueError(f"{name} are {array.tolist()}: list each state once")
    return array
