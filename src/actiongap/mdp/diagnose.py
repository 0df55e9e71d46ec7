"""What a finite MDP asks of an operator: its action gaps, how equal they are, and what operators make of them.

- *Action gap* of a state: V* minus the best Q* of the actions that are not optimal; NaN where all actions are optimal.
- *Deviation*: the standard deviation of the decimal logarithm of the action gaps; 0 if all are equal. Function approximation has one scale
  of errors, so unequal gaps are harder than small ones (van Seijen, Fatemi, Tavakoli, "Using a Logarithmic Mapping to Enable Lower Discount
  Factors in Reinforcement Learning", NeurIPS 2019).
- *Margin exponent* zeta: the fraction of states with an action gap of at most t is at most c t^zeta. A larger exponent means fewer states
  in which a small error of Q changes the greedy action (Farahmand, "Action-Gap Phenomenon in Reinforcement Learning", NeurIPS 2011). For
  finitely many states every exponent holds with some c; the one reported is the slope of a line through the empirical distribution on
  logarithmic scales.
- *Policy changes*: the discounts at which an optimal action stops being optimal.
- *Widening*: by what factor an operator widens the gaps of suboptimal actions in the limit (`limit_gaps`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from actiongap._html import table
from actiongap._progress import StepProgress
from actiongap._suggest import with_suggestions
from actiongap.mdp.exact import evaluate_policy, policy_iteration, q_from_v
from actiongap.mdp.limits import limit_gaps
from actiongap.mdp.model import FiniteMDP, check_model
from actiongap.mdp.stopping import rounding
from actiongap.operators import AnyOperator, parse

OPERATORS = ("consistent", "al:0.5", "al:0.9", "pal:0.9", "pal-dqn:0.9")
TOLERANCE = 1e-9
"""An action is optimal if it loses at most this, relative to the largest |Q*|."""
HORIZONS = 25
"""Number of discounts at which policies are compared, evenly spaced in the logarithm of the horizon 1 / (1 - gamma)."""
PRECISION = 1e-6
"""Error of a discount at which the policy changes."""
MAX_CHANGES = 1000
"""Maximum number of policy changes to find."""


class PolicyChange(NamedTuple):
    """A discount at which an optimal policy stops being optimal."""

    gamma: float
    states: tuple[int, ...]
    """The states in which its action is no longer optimal above this discount."""


class Widening(NamedTuple):
    """The factors by which an operator widens the gaps of suboptimal actions in the limit."""

    least: float
    median: float
    most: float
    widened: float
    """Fraction of the suboptimal pairs whose gap grows by more than a millionth."""


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """The result of `diagnose`."""

    mdp: str
    """The name of the MDP."""
    gamma: float
    """Its discount."""
    action_gaps: np.ndarray
    """V* minus the best Q* of the actions that are not optimal (S,); NaN where all actions are optimal."""
    deviation: float
    """Standard deviation of the decimal logarithm of the action gaps; NaN if there are none."""
    margin_exponent: float
    """Slope of the logarithm of the fraction of states with a smaller action gap; infinity if all gaps are equal."""
    margin_constant: float
    """The smallest c for which the fraction of states with an action gap of at most t is at most c t^margin_exponent."""
    policy_changes: tuple[PolicyChange, ...]
    """The discounts at which an optimal policy stops being optimal, in increasing order."""
    widening: dict[str, Widening | None]
    """By operator, how much it widens gaps; None where its limits are not known."""

    def as_json(self) -> dict[str, Any]:
        """Return the diagnosis as plain values for JSON; numbers that are not finite are None.

        Examples
        --------
        >>> from actiongap.mdp.generators import cake
        >>> diagnose(cake()).as_json()["action_gaps"]
        [0.1, None]
        """
        numbers = {name: getattr(self, name) for name in ("gamma", "deviation", "margin_exponent", "margin_constant")}
        return {
            "mdp": self.mdp,
            **{name: _finite(value) for name, value in numbers.items()},
            "action_gaps": [_finite(gap) for gap in self.action_gaps.round(12).tolist()],
            "policy_changes": [{"gamma": change.gamma, "states": list(change.states)} for change in self.policy_changes],
            "widening": {name: None if found is None else found._asdict() for name, found in self.widening.items()},
        }

    def __repr__(self) -> str:
        found = self.action_gaps[np.isfinite(self.action_gaps)]
        if not found.size:
            return f"Diagnosis({self.mdp}: every action is optimal in every state)"
        span = f"action gaps {found.min():.3g} to {found.max():.3g} in {found.size} of {self.action_gaps.size} states"
        changes = f"{len(self.policy_changes)} policy change{'s' * (len(self.policy_changes) != 1)}"
        return f"Diagnosis({self.mdp}: {span}, deviation {self.deviation:.2g}, margin exponent {self.margin_exponent:.2g}, {changes})"

    def _repr_html_(self) -> str:
        rows = [
            [name, *(("limit not known", "", "", "") if found is None else (f"{number:.3g}" for number in found))]
            for name, found in self.widening.items()
        ]
        headings = ["operator", "least factor", "median", "most", "fraction widened"]
        changes = ", ".join(f"{change.gamma:.4f}" for change in self.policy_changes) or "none"
        return table(rows, headings, title=repr(self), note=f"Discounts at which the optimal policy changes: {changes}.")


@with_suggestions
def diagnose(
    mdp: FiniteMDP,
    operators: AnyOperator | Sequence[AnyOperator] = OPERATORS,
    *,
    discounts: tuple[float, float] = (0.01, 0.99),
    progress: bool | None = None,
) -> Diagnosis:
    """Measure the action gaps of a finite MDP, and what operators and other discounts would make of them.

    Parameters
    ----------
    mdp
        The model.
    operators
        Operators whose widening is computed, or one.
    discounts
        The range of discounts in which policy changes are looked for, by policy iteration at 25 discounts and bisection between them.
        Changes that are undone before the next of the 25 may be missed.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.

    Examples
    --------
    >>> from actiongap.mdp.generators import cake
    >>> found = diagnose(cake(gamma=0.9, epsilon=0.1))
    >>> found
    Diagnosis(cake: action gaps 0.1 to 0.1 in 1 of 2 states, deviation 0, margin exponent inf, 1 policy change)
    >>> {name: round(widening.median, 3) for name, widening in found.widening.items()}
    {'consistent': 1.818, 'al:0.5': 2.0, 'al:0.9': 10.0, 'pal:0.9': 1.818, 'pal-dqn:0.9': 1.818}
    """
    several = [operators] if isinstance(operators, str) or callable(operators) else operators
    named = {parsed.name: parsed for parsed in map(parse, several)}
    low, high = _check_range(discounts)
    with StepProgress(f"diagnose {check_model(mdp).name}", progress) as bar:
        bar("policy iteration", 0.0)
        q, v, _ = policy_iteration(mdp, progress=False)
        losses = v[:, None] - q
        suboptimal = losses > TOLERANCE * np.abs(q).max()
        gaps = np.where(suboptimal, losses, np.inf).min(axis=1)
        gaps[np.isinf(gaps)] = np.nan
        error = _value_error(mdp, q, v)
        widening = {}
        for name, operator in named.items():
            bar(f"limits of {name}", 0.1)
            limits = limit_gaps(operator, mdp, v, error)
            widening[name] = None if limits is None or not suboptimal.any() else _widening(limits.gaps[suboptimal] / losses[suboptimal])
        changes = _policy_changes(mdp, low, high, bar)
    deviation, exponent, constant = _distribution(gaps[np.isfinite(gaps)])
    return Diagnosis(mdp.name, mdp.gamma, gaps, deviation, exponent, constant, changes, widening)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _check_range(discounts: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = map(float, discounts)
    except (TypeError, ValueError):
        low = high = math.nan
    if not 0 <= low < high < 1:
        raise ValueError(f"discounts is {discounts!r}: it must hold two discounts with 0 <= low < high < 1")
    return low, high


def _value_error(mdp: FiniteMDP, q: np.ndarray, v: np.ndarray) -> float:
    """Bound the distance of v from V*, from its Bellman residual."""
    residual = float(np.abs(q.max(axis=1) - v).max())
    width = mdp.transitions.probabilities.shape[2]
    return residual / (1 - mdp.gamma) + rounding(mdp.gamma, width, float(np.abs(mdp.rewards).max()), residual)


def _widening(factors: np.ndarray) -> Widening:
    return Widening(float(factors.min()), float(np.median(factors)), float(factors.max()), float((factors > 1 + 1e-6).mean()))


def _distribution(gaps: np.ndarray) -> tuple[float, float, float]:
    """Return the deviation, the margin exponent and its constant of some action gaps."""
    if not gaps.size:
        return math.nan, math.nan, math.nan
    ordered = np.sort(gaps)
    logs = np.log(ordered)
    spread = float(logs.std())
    if spread < 1e-9:
        return 0.0, math.inf, math.nan
    fractions = np.searchsorted(ordered, ordered, side="right") / ordered.size
    exponent = float(np.polyfit(logs, np.log(fractions), 1)[0])
    return spread / math.log(10), exponent, float((fractions / ordered**exponent).max())


def _policy_changes(mdp: FiniteMDP, low: float, high: float, bar: StepProgress) -> tuple[PolicyChange, ...]:
    """Follow an optimal policy from discount to discount, and find where it stops being optimal."""
    horizons = np.geomspace(1 / (1 - low), 1 / (1 - high), HORIZONS)
    points = [low, *(1 - 1 / horizons[1:-1]).tolist(), high]
    policy = policy_iteration(mdp.with_discount(low), progress=False)[2]
    changes: list[PolicyChange] = []
    here = low
    for k, after in enumerate(points[1:], 1):
        bar(f"policies at discount {after:.3f}", k / len(points))
        while _losing_states(mdp, policy, after).size and len(changes) < MAX_CHANGES:
            left, right = here, after
            while right - left > PRECISION:
                middle = (left + right) / 2
                left, right = (left, middle) if _losing_states(mdp, policy, middle).size else (middle, right)
            losing = _losing_states(mdp, policy, right)
            changes.append(PolicyChange(right, tuple(losing.tolist())))
            policy, here = policy_iteration(mdp.with_discount(right), progress=False)[2], right
        here = after
    return tuple(changes)


def _losing_states(mdp: FiniteMDP, policy: np.ndarray, gamma: float) -> np.ndarray:
    """Return the states in which the action of the policy is worse than another at this discount."""
    model = mdp.with_discount(gamma)
    v = evaluate_policy(model, policy)
    q = q_from_v(model, v)
    return np.flatnonzero(q.max(axis=1) - q[np.arange(mdp.states), policy] > TOLERANCE * np.abs(q).max())
