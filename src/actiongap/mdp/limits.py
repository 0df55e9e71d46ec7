"""The limits of action gaps, with a bound on their error.

Let D(x, a) = V*(x) - Q*(x, a). If V_k tends to V*, the gaps g = V - Q of an operator tend to the solution of an equation, whatever Q_0 is:

    bellman                  g = D
    al:ALPHA, ALPHA < 1      g = D + ALPHA g
    sal:ALPHA,OMEGA          g = (1 - OMEGA) g + OMEGA D + ALPHA g, if ALPHA < OMEGA
    consistent               g = D + gamma P(x | x, a) g
    pal:ALPHA, ALPHA < 1     g = D + min(ALPHA g, gamma E g(x', a))
    pal-dqn:ALPHA, ALPHA < 1 g = D + ALPHA min(g, E g(x', a))

The right-hand sides are monotone and are contractions in the maximum norm, of modulus 0, ALPHA, 1 - OMEGA + ALPHA, max gamma P(x | x, a),
max(ALPHA, gamma) and ALPHA. The gaps of the iteration obey the same equation with D_k(x, a) = V_{k+1}(x) - T Q_k(x, a) in the place of D,
and D_k tends to D, so they tend to its solution.

A V within e of V* gives D within (1 + gamma) e, and a change of D by d moves the solution by at most d / (1 - modulus). Where the equation
is not solved in closed form, it is iterated, and the last change c adds modulus c / (1 - modulus). V may come from any method: the
operator need not be iterated.

`clipped-al:ALPHA,C,LOW` takes ALPHA g if g <= G(x) = (1 - C) (V*(x) - LOW), and nothing otherwise. Its gap tends to D / (1 - ALPHA) where
D < (1 - ALPHA) G, and to D where D > G. Between the two it cycles. With ALPHA = 1, and for `lazy`, limits depend on Q_0.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from actiongap._suggest import with_suggestions
from actiongap.mdp.checks import check_table
from actiongap.mdp.model import FiniteMDP, check_model
from actiongap.operators import AnyOperator, Operator, parse

BLOCK_ENTRIES = 1 << 22
"""Successor entries per block of states, which limits the memory of temporaries."""


class GapLimits(NamedTuple):
    """The limits of the action gaps of an operator."""

    gaps: np.ndarray
    """lim V_k(x) - Q_k(x, a), (S, A)."""
    bound: float
    """Certified bound on the largest error of `gaps`, including rounding."""


@with_suggestions
def limit_gaps(
    operator: AnyOperator,
    mdp: FiniteMDP,
    v: np.ndarray,
    v_error: float,
    *,
    q: np.ndarray | None = None,
    tol: float = 0.0,
    start: np.ndarray | None = None,
    max_iterations: int = 100_000,
) -> GapLimits | None:
    """Compute the gaps to which iterating an operator tends, from a V that is within `v_error` of V*.

    Parameters
    ----------
    operator
        An `Operator` or a string such as `al:0.5`.
    mdp
        The model.
    v
        An approximation of V* (S,), from any method.
    v_error
        A bound on |V - V*|.
    q
        R + gamma E V(x') (S, A), if it is known already.
    tol
        The equation of `pal` and `pal-dqn` is iterated until this much is left; never further than the error of V allows.
    start
        Where that iteration starts (S, A), such as gaps near the limit. The limit does not depend on it.
    max_iterations
        Maximum number of iterations; the bound holds after any number, at least 1.

    Returns
    -------
    GapLimits | None
        None where no limit is certified: alpha of at least 1, `lazy`, random operators, operators with a temperature, your own functions,
        and `clipped-al` where a gap cycles or is too close to cycling.

    Examples
    --------
    >>> from actiongap.mdp.exact import policy_iteration
    >>> from actiongap.mdp.generators import cake
    >>> mdp = cake(gamma=0.9, epsilon=0.1)
    >>> _, v, _ = policy_iteration(mdp)
    >>> [float(limit_gaps(text, mdp, v, 1e-12).gaps[0, 0].round(9)) for text in ("bellman", "consistent", "al:0.5")]
    [0.1, 0.181818182, 0.2]
    >>> limit_gaps("al:1", mdp, v, 1e-12) is None
    True
    """
    operator, mdp = parse(operator), check_model(mdp)
    if not (isinstance(v_error, numbers.Real) and v_error >= 0):
        raise ValueError(f"v_error is {v_error!r}: it must be a number of at least 0, a bound on |V - V*|")
    limit = _limit(operator)
    if limit is None or v_error == math.inf:
        return None
    v = check_table("v", v, (mdp.states,))
    if q is not None and np.shape(q) != mdp.rewards.shape:
        raise ValueError(f"q has shape {np.shape(q)}: it must be {mdp.rewards.shape}")
    gaps, error = optimal_gaps(mdp, v, v_error, q)
    return limit(gaps, error, mdp, v, v_error, tol, start, max_iterations)


def has_limits(operator: Operator) -> bool:
    """Whether the gaps of an operator have limits that follow from V*.

    Examples
    --------
    >>> has_limits(parse("al:0.9")), has_limits(parse("lazy:0.9"))
    (True, False)
    """
    return _limit(operator) is not None


def optimal_gaps(mdp: FiniteMDP, v: np.ndarray, v_error: float, q: np.ndarray | None = None) -> GapLimits:
    """Compute D = V* - Q* from a V that is within `v_error` of V*; the error is (1 + gamma) `v_error` and rounding.

    `q` is R + gamma E V(x'), if it is known already.

    Examples
    --------
    >>> from actiongap.mdp.generators import single_state
    >>> optimal_gaps(single_state((0.0, 1.0), gamma=0.5), np.array([2.0]), 0.0).gaps.tolist()
    [[1.0, 0.0]]
    """
    if q is None:
        gaps = np.empty(mdp.rewards.shape)
        for rows in _blocks(mdp):
            gaps[rows] = v[rows][:, None] - mdp.rewards[rows] - mdp.gamma * mdp.transitions.rows(rows).expect(v)
    else:
        gaps = v[:, None] - q
    # D is not negative, so the projection is at least as close to it. Where a pair does not exist, it is 0: Q counts as V there.
    np.maximum(gaps, 0.0, out=gaps)
    gaps = mdp.masked(gaps, 0.0)
    size = float(np.abs(mdp.rewards).max() + (1 + mdp.gamma) * np.abs(v).max())
    return GapLimits(gaps, (1 + mdp.gamma) * v_error + _roundings(mdp) * size)


_Limit = Callable[[np.ndarray, float, FiniteMDP, np.ndarray, float, float, np.ndarray | None, int], GapLimits | None]


def _limit(operator: Operator) -> _Limit | None:
    """Return the function that computes the limits of an operator from D and its error, or None if there is none."""
    if operator.parameters is None:
        return None
    name, given = operator.name.partition(":")[0], operator.parameters
    alpha = given[0] if given else 0.0
    if name == "bellman" or (name in ("al", "pal", "pal-dqn", "clipped-al") and alpha == 0.0):
        return _scaled(1.0)
    if name == "sal":
        omega = given[1]
        return _scaled(omega / (omega - alpha)) if alpha < omega else None
    if name == "baird":
        return _scaled(1.0) if math.prod(given) == 1.0 else None
    if name == "consistent":
        return _consistent
    if not alpha < 1:
        return None
    if name == "al":
        return _scaled(1 / (1 - alpha))
    if name == "clipped-al":
        return _clipped(*given)
    if name in ("pal", "pal-dqn"):
        return _iterated(alpha, dqn=name == "pal-dqn")
    return None


def _scaled(factor: float) -> _Limit:
    """The limits of `al` and `sal`: multiples of D."""

    def limit(gaps, error, mdp, v, v_error, tol, start, max_iterations):
        return _rounded(factor * gaps, factor * error)

    return limit


def _consistent(gaps, error, mdp, v, v_error, tol, start, max_iterations) -> GapLimits:
    """The limits of `consistent`: D / (1 - gamma P(x | x, a))."""
    bound = 0.0
    for rows in _blocks(mdp):
        moves = 1 - mdp.gamma * mdp.transitions.rows(rows).stay(np.arange(mdp.states)[rows])
        gaps[rows] /= moves
        # The sum of probabilities that is `stay`, and the subtraction, are rounded.
        relative = _roundings(mdp) / float(moves.min())
        bound = max(bound, float((error / moves).max()) + relative * float(gaps[rows].max()))
    return _rounded(gaps, bound)


def _clipped(alpha: float, c: float, low: float) -> _Limit:
    """The limits of `clipped-al`: those of `al` far below the threshold, those of `bellman` above it, None between."""

    def limit(gaps, error, mdp, v, v_error, tol, start, max_iterations):
        threshold = (1 - c) * (v - low)[:, None]
        threshold_error = (1 - c) * v_error + 8 * math.ulp(1.0) * float(np.abs(v).max() + abs(low))
        widened = gaps + error < (1 - alpha) * (threshold - threshold_error)
        kept = gaps - error > threshold + threshold_error
        # Limit points lie between D and D / (1 - alpha), which decides pairs whose D is 0 within its error.
        zero = gaps <= error
        if not (widened | kept | zero).all():
            return None
        factor = 2.0 if (zero & ~widened).any() else 1.0
        return _rounded(np.where(kept, gaps, gaps / (1 - alpha)), factor * error / (1 - alpha))

    return limit


def _iterated(alpha: float, dqn: bool) -> _Limit:
    """The limits of `pal` and `pal-dqn`, by iterating their equation."""

    def limit(gaps, error, mdp, v, v_error, tol, start, max_iterations):
        modulus, weight = (alpha, alpha) if dqn else (max(alpha, mdp.gamma), mdp.gamma)
        g = np.array(gaps / (1 - alpha) if start is None else mdp.masked(np.maximum(start, 0.0), 0.0), dtype=float)
        change, rounding, after = math.inf, 0.0, np.empty_like(g)
        for _ in range(max_iterations):
            change = 0.0
            for rows in _blocks(mdp):
                onward = mdp.transitions.rows(rows).expect_same_action(g)
                after[rows] = gaps[rows] + np.minimum(alpha * g[rows], weight * onward)
                change = max(change, float(np.abs(after[rows] - g[rows]).max()))
            g, after = after, g
            rounding = _roundings(mdp) * float(g.max())
            # A remainder far below the error of D is of no use, and one below rounding cannot be reached.
            if modulus * change <= max(tol * (1 - modulus), 0.1 * (error + rounding)):
                break
        return _rounded(g, (modulus * change + error + rounding) / (1 - modulus))

    return limit


def _rounded(gaps: np.ndarray, bound: float) -> GapLimits:
    """Add the rounding of a few operations on the gaps to their bound."""
    return GapLimits(gaps, bound + 8 * math.ulp(1.0) * float(gaps.max()))


def _roundings(mdp: FiniteMDP) -> float:
    """Bound the relative rounding of an expectation and a few operations more."""
    return (mdp.transitions.width + 8) * math.ulp(1.0)


def _blocks(mdp: FiniteMDP) -> list[slice]:
    """Return slices of states that have a limited number of successor entries."""
    return mdp.transitions.blocks(BLOCK_ENTRIES)
