"""Relatives of the family: operators of later papers, and of one earlier, in the same algebra.

Three look at an ordinary `Backup`, so that solver, planners, learners and prover take them as they are. `clipped` and `smoothed` are such
functions outright. `stochastic` is one at every update, with a number that is drawn anew each time: `Operator.at` draws it.

Two look at the policy pi = softmax(Q / tau) as well. Their backup is a `SoftBackup`, the fields of a `Backup` and four more, which
`actiongap.td` makes from Q(x, .) and Q(x', .). As tau tends to zero they tend to advantage learning: `munchausen` without its clip to
`al:ALPHA`, and `dpp` to `al:1`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from actiongap.maths import maximum, where
from actiongap.operators import Backup, Operator, TheoryWarning, advantage, check_weight


class SoftBackup(NamedTuple):
    """A `Backup`, and what is seen of the policy pi = softmax(Q / tau) at both ends. Every field is of one common shape."""

    gamma: Any
    q: Any
    v: Any
    bellman: Any
    again: Any
    gap: Any
    next_gap: Any
    repeat: Any
    log_policy: Any
    """log pi(a | x), never positive."""
    mean: Any
    """M Q(x) = sum_b pi(b | x) Q(x, b), the Boltzmann average."""
    mean_bellman: Any
    """R + gamma E M Q(x')."""
    soft_bellman: Any
    """R + gamma E [tau log sum_b exp(Q(x', b) / tau)], the average with tau times the entropy of pi added."""


def clipped(alpha: float, c: float, low: float = 0.0) -> Operator:
    """Clipped advantage learning: T Q - alpha (V - Q) where Q - low >= c (V - low), and T Q for worse actions.

    `low` is a lower bound of all values. With c = 0 it is advantage learning, with c = 1 Bellman's operator.

    Reference: Zhang, Gan, Tan, "Robust Action Gap Increasing with Clipped Advantage Learning", AAAI 2022.

    Examples
    --------
    >>> from actiongap.operators import backup
    >>> [clipped(0.5, 0.75)(backup(0.5, 0.0, q, v=4.0, next_v=8.0, next_q=8.0, stay=0.0)) for q in (2.0, 3.0)]
    [4.0, 3.5]
    """
    alpha, c, low = check_weight("clipped-al", alpha, "0.5,0.5"), float(c), float(low)
    if not (0 <= c <= 1 and math.isfinite(low)):
        raise ValueError(f"clipped-al: C must be from 0 to 1 and LOW a number, not {c!r} and {low!r}: try clipped-al:0.5,0.5")
    advantage_learning = advantage(alpha).apply

    def apply(b: Backup):
        return where(b.q - low >= c * (b.v - low), advantage_learning(b), b.bellman)

    name = f"clipped-al:{alpha!r},{c!r}" if low == 0.0 else f"clipped-al:{alpha!r},{c!r},{low!r}"
    return Operator(name, apply, commutes_with_constants=c == 1.0 or alpha == 0.0)


def stochastic(low: float, high: float) -> Operator:
    """Robust stochastic operators: T Q - beta (V - Q), with beta drawn anew at every update, uniform on [low, high).

    Undrawn it is no function of a backup and refuses to be one: `at` draws. The mean over beta is `al` at the mean of beta, but a learner
    that took the mean would be another one.

    Reference: Lu, Squillante, Wu, "A Family of Robust Stochastic Operators for Reinforcement Learning", NeurIPS 2019.

    Examples
    --------
    >>> from actiongap.operators import backup
    >>> stochastic(0.5, 1.5).at(0.25)(backup(0.5, 0.0, q=0.0, v=4.0, next_v=8.0, next_q=8.0, stay=0.0))
    1.0
    """
    low, high = float(low), float(high)
    if not 0 <= low <= high < math.inf:
        raise ValueError(f"rso: LOW and HIGH must be numbers with 0 <= LOW <= HIGH, not {low!r} and {high!r}: try rso:0,1")
    name = f"rso:{low!r},{high!r}"
    if low + high > 2:
        warnings.warn(f"{name}: the mean of what is drawn is above 1, where the theory is silent", TheoryWarning, stacklevel=2)

    def draw(u: Any) -> Operator:
        beta = low + (high - low) * u
        return Operator(f"a draw of {name}", lambda b: b.bellman - beta * b.gap, commutes_with_constants=True)

    def undrawn(b: Backup):
        raise TypeError("it must be drawn first")

    return Operator(name, undrawn, commutes_with_constants=True, draw=draw)


def smoothed(alpha: float, omega: float) -> Operator:
    """Smoothing advantage learning: (1 - omega) Q + omega T Q - alpha (V - Q).

    It is a step of length omega from Q to advantage learning at alpha / omega, so that its limit has omega / (omega - alpha) times the gaps
    of Q* if alpha is below omega; above, suboptimal actions may stay in front.

    Reference: Gan, Zhang, Tan, "Smoothing Advantage Learning", 2022.

    Examples
    --------
    >>> from actiongap.operators import backup
    >>> smoothed(0.25, 0.5)(backup(0.5, 0.0, q=2.0, v=4.0, next_v=8.0, next_q=8.0, stay=0.0))
    2.5
    """
    alpha, omega = float(alpha), float(omega)
    if not (0 <= alpha < math.inf and 0 < omega <= 1):
        raise ValueError(f"sal: ALPHA must be at least 0 and OMEGA in (0, 1], not {alpha!r} and {omega!r}: try sal:0.5,0.9")
    name = f"sal:{alpha!r},{omega!r}"
    if alpha > omega:
        warnings.warn(f"{name}: alpha is above omega, where optimality may be lost", TheoryWarning, stacklevel=2)
    return Operator(name, lambda b: (1.0 - omega) * b.q + omega * b.bellman - alpha * b.gap, commutes_with_constants=omega == 1.0)


def munchausen(tau: float, alpha: float, low: float = -1.0) -> Operator:
    """Munchausen: R + alpha max(tau log pi(a | x), low) + gamma E [tau log sum_b exp(Q(x', b) / tau)], pi = softmax(Q / tau).

    Reference: Vieillard, Pietquin, Geist, "Munchausen Reinforcement Learning", NeurIPS 2020, where tau is 0.03, alpha 0.9 and the clip -1;
    as there, what is clipped is tau log pi, before alpha multiplies it.

    Examples
    --------
    >>> import numpy as np
    >>> from actiongap.td import td_target
    >>> float(td_target(munchausen(1.0, 0.5), np.zeros(2), 0, 0.0, 1.0, np.zeros(2)) / np.log(2.0))
    0.5
    """
    tau, alpha, low = _temperature("munchausen", tau, "0.03,0.9"), check_weight("munchausen", alpha, "0.03,0.9"), float(low)
    if not low <= 0:
        raise ValueError(f"munchausen: the clip of tau log pi must be at most 0, not {low!r}: try munchausen:0.03,0.9,-1")
    name = f"munchausen:{tau!r},{alpha!r}" if low == -1.0 else f"munchausen:{tau!r},{alpha!r},{low!r}"

    def apply(b: SoftBackup | Any):
        return b.soft_bellman + alpha * maximum(tau * b.log_policy, low)

    return Operator(name, apply, temperature=tau)


def dpp(tau: float) -> Operator:
    """Dynamic policy programming: Q(x, a) - M Q(x) + R + gamma E M Q(x'), M the average under softmax(Q / tau).

    Reference: Azar, Gomez, Kappen, "Dynamic Policy Programming", JMLR 13, 2012; tau is one over their eta.

    Examples
    --------
    >>> import numpy as np
    >>> from actiongap.td import td_target
    >>> float(td_target(dpp(1.0), np.array([1.0, 1.0]), 0, 0.25, 0.5, np.array([2.0, 2.0])))
    1.25
    """
    tau = _temperature("dpp", tau, "0.1")

    def apply(b: SoftBackup | Any):
        return b.q - b.mean + b.mean_bellman

    return Operator(f"dpp:{tau!r}", apply, temperature=tau)


def _temperature(name: str, tau: float, example: str) -> float:
    tau = float(tau)
    if not 0 < tau < math.inf:
        raise ValueError(f"{name}: the temperature must be a positive number, not {tau!r}: try {name}:{example}")
    return tau


RELATIVES: dict[str, Callable[..., Operator]] = {
    "clipped-al": clipped,
    "rso": stochastic,
    "sal": smoothed,
    "munchausen": munchausen,
    "dpp": dpp,
}
"""The relatives by the name they have in text; `parse` reads the numbers that follow the colon."""
