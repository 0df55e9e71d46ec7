"""Stopping rules: bounds on V* that hold for every operator, and an estimate of when the gaps have settled.

The operators of the family are not contractions, so a small change of Q is not a stopping criterion. The following bounds are. With
d(x) = max_a T Q(x, a) - V(x), which every sweep computes anyway,

    V + min(d) / (1 - gamma)  <=  V*  <=  V + max(d) / (1 - gamma)

for any Q (Porteus, "Bounds and transformations for discounted finite Markov decision chains", 1975). The bounds include the rounding of
float64. If T'(Q + c) = T'Q + gamma c, adding a constant to Q changes neither the gaps, nor the greedy actions, nor the width of the bounds.
V may then be shifted to the middle of the bounds, and only the *range* of d must become small. This takes tens of sweeps; convergence of V
itself takes thousands. The gaps settle later than V, and no such bound is known for them.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from actiongap.mdp.checks import check_whole
from actiongap.mdp.engines import Progress
from actiongap.mdp.model import FiniteMDP

STALL_SWEEPS = 200
"""Sweeps without progress of the gaps, after V is certified, before the iteration stops."""
RATE_SWEEPS = 4
"""Minimum number of sweeps to estimate a rate of convergence."""
GAP_SWEEP_FACTOR = 10
"""Maximum sweeps for the gaps, as a multiple of those for V. The gaps converge at the rate alpha if that is slower than gamma."""
MAX_VALUE = 1e100
"""Larger values are rejected."""
DIVERGED = 1e50
"""Iterates have diverged if they exceed what rewards and initial Q allow by this factor."""


class StoppingStatus(NamedTuple):
    """The status after a sweep."""

    error: float
    """Certified bound on |V - V*|, including rounding."""
    rounding: float
    """The part of `error` due to rounding."""
    certified: bool
    """Whether `error` is within the tolerance."""
    settled: bool
    """Whether the gaps are estimated to be within the tolerance of their limits."""
    diverged: bool
    stop: bool


@dataclass(frozen=True)
class StoppingRule:
    """The tolerance of an iteration and its maximum number of sweeps."""

    gamma: float
    width: int
    """Number of successors per pair."""
    max_reward: float
    """The largest absolute reward."""
    max_value: float
    """The largest absolute value that the rewards and the initial Q allow."""
    tol: float
    shifted: bool
    """Whether V is shifted to the middle of the bounds at the end."""
    max_sweeps: int
    """Maximum number of sweeps to certify V."""
    max_gap_sweeps: int
    """Maximum number of sweeps for the gaps to settle."""

    @classmethod
    def from_mdp(
        cls, mdp: FiniteMDP, start: np.ndarray, tol: float | None, eta: float, shifted: bool, max_sweeps: int | None
    ) -> StoppingRule:
        """Make the rule for a model and an initial Q, with defaults for None, and check the parameters."""
        reward = float(max(mdp.rewards.max(), -mdp.rewards.min()))
        largest = max(reward / (1 - mdp.gamma), float(start.max()), -float(start.min()))
        width = mdp.transitions.width
        if not largest < MAX_VALUE:
            raise ValueError(f"values as large as {largest:.0e} are too large for float64: scale the rewards or q0 down")
        tol = max(1e-10, 4 * rounding(mdp.gamma, width, reward)) if tol is None else tol
        if not (isinstance(tol, numbers.Real) and 0 < tol < math.inf):
            raise ValueError(f"tol is {tol!r}: it must be a positive number")
        check_step_size(eta)
        max_sweeps = None if max_sweeps is None else check_whole("max_sweeps", max_sweeps, 1)
        sweeps = max_sweeps or int(1000 + 100 / (1 - mdp.gamma) / eta)
        return cls(mdp.gamma, width, reward, largest, tol, shifted, sweeps, max_sweeps or GAP_SWEEP_FACTOR * sweeps)

    def check(self, history: Sequence[Progress], certified_before: int | None) -> StoppingStatus:
        """Check the last sweep. `certified_before` is the first sweep that certified V, or None."""
        low, high, change = history[-1]
        size = max(abs(low), abs(high))
        rounded = rounding(self.gamma, self.width, self.max_reward, size)
        error = ((high - low) / 2 if self.shifted else size) / (1 - self.gamma) + rounded
        certified = error <= self.tol
        settled = gap_error(history) <= max(self.tol, rounded)
        diverged = not (size < DIVERGED * max(self.max_value, 1.0) and change < math.inf)
        hopeless = rounded > self.tol and error <= 2 * rounded
        late = len(history) >= (self.max_sweeps if certified_before is None else self.max_gap_sweeps)
        done = certified and (settled or stalled(history, certified_before))
        return StoppingStatus(error, rounded, certified, settled, diverged, done or diverged or hopeless or late)


def check_step_size(eta: float) -> None:
    """Raise a `ValueError` unless the step size of a sweep is one that changes Q.

    Examples
    --------
    >>> check_step_size(1.5)
    Traceback (most recent call last):
    ValueError: eta is 1.5: it must be from 1e-9 to 1 (below 1e-9, a sweep changes almost nothing)
    """
    if not (isinstance(eta, numbers.Real) and 1e-9 <= eta <= 1):
        raise ValueError(f"eta is {eta!r}: it must be from 1e-9 to 1 (below 1e-9, a sweep changes almost nothing)")


def rounding(gamma: float, width: int, reward: float, size: float = 0.0) -> float:
    """Bound the contribution of float64 rounding to the certified error: a few roundings per successor, relative to the largest V.

    If |R| <= `reward`, |V*| is at most reward / (1 - gamma), and |V - V*| at most size / (1 - gamma), where `size` is the largest |d|.

    Examples
    --------
    >>> rounding(gamma=0.99, width=8, reward=1.0) < 1e-10
    True
    """
    return (2 * width + 8) * math.ulp(1.0) * (reward + size) / (1 - gamma) ** 2


def gap_error(history: Sequence[Progress]) -> float:
    """Estimate the distance of the gaps from their limits: the remainder of a geometric series with the recent rate.

    Examples
    --------
    >>> halving = [Progress(0.0, 0.0, 0.5**k) for k in range(30)]
    >>> gap_error(halving) < 1e-7
    True
    """
    changes = [progress.gap_change for progress in history[-21:]]
    if len(changes) < RATE_SWEEPS:
        return math.inf
    earlier, latest = changes[0], max(changes[-3:])
    if latest == 0:
        return 0.0
    rate = (latest / earlier) ** (1 / (len(changes) - 1)) if earlier > 0 else 1.0
    return latest / (1 - rate) if rate < 1 else math.inf


def stalled(history: Sequence[Progress], certified_before: int | None) -> bool:
    """Whether the gaps have made no progress for `STALL_SWEEPS` sweeps, as when suboptimal actions are devalued forever (alpha = 1)."""
    if certified_before is None or len(history) - certified_before < STALL_SWEEPS:
        return False
    return history[-1].gap_change >= 0.999 * history[-STALL_SWEEPS].gap_change
