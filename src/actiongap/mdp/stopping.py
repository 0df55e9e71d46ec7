"""When to stop: bounds on V* that hold whatever the operator, and an estimate of when the gaps have settled.

The operators of the family are not contractions, so "Q stopped moving" proves nothing. What does: with d(x) = max_a T Q(x, a) - V(x), which
every sweep computes anyway,

    V + min(d) / (1 - gamma)  <=  V*  <=  V + max(d) / (1 - gamma)

whatever produced Q (Porteus, "Bounds and transformations for discounted finite Markov decision chains", 1975). The rounding of float64 is
counted in. Where T'(Q + c) = T'Q + gamma c, adding a constant to Q changes no gap, no greedy action, and neither end of the bounds relative
to the other. V may then be moved to their middle, and only the *range* of d must become small, which takes tens of sweeps where V itself
takes thousands. The gaps settle later than V, and no such bound is known for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from actiongap.mdp.engines import Progress
from actiongap.mdp.model import FiniteMDP

PATIENCE = 200
"""Sweeps without any progress of the gaps, V being certified, after which they are said not to settle."""
RATE_SWEEPS = 4
"""The fewest sweeps from which a rate is estimated."""
GAP_PATIENCE = 10
"""How many times the sweeps allowed for V are allowed for the gaps, which settle at the rate of alpha where that is slower."""
LARGEST = 1e100
"""Values beyond this are refused."""
DIVERGED = 1e50
"""Iterates this many times as large as rewards and start allow have diverged."""


class Judgement(NamedTuple):
    """What is known after a sweep."""

    error: float
    """V is certified to be this close to V*, rounding included."""
    rounding: float
    """The part of it that is rounding."""
    certified: bool
    """Whether that is within the tolerance."""
    settled: bool
    """Whether the gaps are estimated to be within the tolerance of their limits."""
    diverged: bool
    stop: bool


@dataclass(frozen=True)
class Rules:
    """What is asked of an iteration, and when it is given up."""

    gamma: float
    width: int
    """Successors of a pair."""
    reward: float
    """The largest reward in size."""
    largest: float
    """The largest value in size that the rewards and the start allow."""
    tol: float
    shifted: bool
    """Whether V is moved to the middle of the bounds at the end."""
    sweeps: int
    """Sweeps after which V is given up."""
    gap_sweeps: int
    """Sweeps after which the gaps are given up."""

    @classmethod
    def of(cls, mdp: FiniteMDP, start: np.ndarray, tol: float | None, eta: float, shifted: bool, max_sweeps: int | None) -> Rules:
        """The rules for a model and a start, with defaults for what is None; a sentence where they make no sense."""
        reward = float(max(mdp.rewards.max(), -mdp.rewards.min()))
        largest = max(reward / (1 - mdp.gamma), float(start.max()), -float(start.min()))
        width = mdp.transitions.probabilities.shape[2]
        if not largest < LARGEST:
            raise ValueError(f"values as large as {largest:.0e} leave float64 no room: scale the rewards or q0 down")
        tol = max(1e-10, 4 * rounding(mdp.gamma, width, reward)) if tol is None else tol
        if not (math.isfinite(tol) and tol > 0):
            raise ValueError(f"tol is {tol!r}: it must be a positive number")
        if not 1e-9 <= eta <= 1:
            raise ValueError(f"eta is {eta!r}: it must be at most 1 and at least 1e-9, below which nothing would move")
        if max_sweeps is not None and max_sweeps < 1:
            raise ValueError(f"max_sweeps is {max_sweeps}: it must be at least 1")
        sweeps = max_sweeps or int(1000 + 100 / (1 - mdp.gamma) / eta)
        return cls(mdp.gamma, width, reward, largest, tol, shifted, sweeps, max_sweeps or GAP_PATIENCE * sweeps)

    def judge(self, history: Sequence[Progress], certified_before: int | None) -> Judgement:
        """Judge the last sweep, V having been certified for the first time at sweep `certified_before`, if it was."""
        low, high, change = history[-1]
        size = max(abs(low), abs(high))
        rounded = rounding(self.gamma, self.width, self.reward, size)
        error = ((high - low) / 2 if self.shifted else size) / (1 - self.gamma) + rounded
        certified = error <= self.tol
        settled = gap_error(history) <= max(self.tol, rounded)
        diverged = not (size < DIVERGED * max(self.largest, 1.0) and change < math.inf)
        hopeless = rounded > self.tol and error <= 2 * rounded
        late = len(history) >= (self.sweeps if certified_before is None else self.gap_sweeps)
        done = certified and (settled or stalled(history, certified_before))
        return Judgement(error, rounded, certified, settled, diverged, done or diverged or hopeless or late)


def rounding(gamma: float, width: int, reward: float, size: float = 0.0) -> float:
    """What float64 may add to the certified error: each backup rounds a few times per successor, relative to the largest V there is.

    With rewards no larger than `reward`, V* is at most reward / (1 - gamma), and V no further from it than size / (1 - gamma), where
    `size` is the largest |d|.

    Examples
    --------
    >>> rounding(gamma=0.99, width=8, reward=1.0) < 1e-10
    True
    """
    return (2 * width + 8) * math.ulp(1.0) * (reward + size) / (1 - gamma) ** 2


def gap_error(history: Sequence[Progress]) -> float:
    """An estimate of how far the gaps are from their limits: what remains of a geometric series with the rate seen of late.

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
    """Whether the gaps have made no progress for long, as where suboptimal actions are devalued for ever (alpha = 1)."""
    if certified_before is None or len(history) - certified_before < PATIENCE:
        return False
    return history[-1].gap_change >= 0.999 * history[-PATIENCE].gap_change
