"""Iterate an operator on a finite MDP until the answer is certified.

The operators of the family are not contractions, so "Q stopped moving" proves nothing. What does: with d(x) = max_a T Q(x, a) - V(x), which
every sweep computes anyway,

    V + min(d) / (1 - gamma)  <=  V*  <=  V + max(d) / (1 - gamma)

whatever produced Q (Porteus, "Bounds and transformations for discounted finite Markov decision chains", 1975). `solve` stops on these
bounds, with the rounding of float64 counted in, and then waits for the action gaps, which settle later than V.

Where T'(Q + c) = T'Q + gamma c, adding a constant to Q changes no gap, no greedy action, and neither end of the bounds relative to the
other. So the iteration runs as it is and the midpoint of the bounds is added once, at the end: only the *range* of d must become small,
which takes tens of sweeps where V itself takes thousands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from actiongap.finite.checks import check_table
from actiongap.finite.exact import policy_backup
from actiongap.finite.model import FiniteMDP
from actiongap.finite.sweeps import EngineName, Progress, make_engine
from actiongap.operators import AnyOperator, Operator, parse

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


NO_PROGRESS = Progress(0.0, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Solution:
    """What iterating an operator on a finite MDP came to."""

    q: np.ndarray
    """The last Q-function (S, A)."""
    v: np.ndarray
    """V(x) = max_a Q(x, a), (S,)."""
    policy: np.ndarray
    """The greedy action of each state (S,); the lowest index among equals."""
    gaps: np.ndarray
    """V(x) - Q(x, a), (S, A)."""
    error_bound: float
    """No entry of V is further than this from V*."""
    policy_loss_bound: float
    """In no state does following `policy` for ever lose more than this against the best policy."""
    gap_residual: float
    """The largest change of any action gap in the last sweep."""
    gaps_settled: bool
    """Whether the gaps are estimated to be within the tolerance of their limits."""
    converged: bool
    """Whether V is certified to the tolerance."""
    status: str
    """The outcome in a sentence."""
    sweeps: int
    """How often the operator was applied to all pairs."""
    history: np.ndarray
    """One row a sweep: min d, max d, and the largest change of a gap."""
    operator: str
    """The operator's text form."""
    engine: str
    """Where the sweeps were done."""
    gamma: float
    """The discount."""
    tol: float
    """The error that was asked for."""


class NotConvergedError(RuntimeError):
    """Raised by `solve` where V could not be certified; `solution` holds what there is."""

    def __init__(self, solution: Solution):
        super().__init__(solution.status)
        self.solution = solution


def solve(
    mdp: FiniteMDP,
    operator: AnyOperator = "bellman",
    *,
    tol: float | None = None,
    eta: float = 1.0,
    engine: EngineName = "auto",
    q0: np.ndarray | None = None,
    max_sweeps: int | None = None,
    throw: bool = True,
    on_sweep: Callable[[int, float, float], None] | None = None,
) -> Solution:
    """Iterate Q <- (1 - eta) Q + eta T'Q until V is certified to be within `tol` of V* and the gaps have settled.

    Parameters
    ----------
    mdp
        The model.
    operator
        An `Operator`, its text form, or any function of a `Backup`.
    tol
        The certified error |V - V*| to reach, and the estimated error of the gaps; by default 1e-10, or what float64 can certify.
    eta
        The averaging step, in (0, 1].
    engine
        `auto`, `arrays`, `numba` or `jax`.
    q0
        Where to start, (S, A); zeros if not given.
    max_sweeps
        When to give up; by default a generous multiple of the horizon 1 / (1 - gamma).
    throw
        Whether to raise `NotConvergedError` where V could not be certified. Gaps that never settle, as at alpha = 1, do not raise.
    on_sweep
        Called after each sweep with its number, the error bound and the change of the gaps.

    Examples
    --------
    >>> from actiongap.finite.examples import cake
    >>> solution = solve(cake(gamma=0.9, epsilon=0.1), "consistent")
    >>> bool(abs(solution.q[0, 0] - -0.1 / (1 - 0.9 / 2)) < 1e-9)
    True
    """
    operator = parse(operator)
    start = np.zeros(mdp.rewards.shape) if q0 is None else check_table("q0", q0, mdp.rewards.shape)
    reward = float(max(mdp.rewards.max(), -mdp.rewards.min()))
    largest = max(reward / (1 - mdp.gamma), float(start.max()), -float(start.min()))
    if not largest < LARGEST:
        raise ValueError(f"values as large as {largest:.0e} leave float64 no room: scale the rewards or q0 down")
    tol = max(1e-10, 4 * _rounding(mdp, reward)) if tol is None else tol
    if not (math.isfinite(tol) and tol > 0):
        raise ValueError(f"tol is {tol!r}: it must be a positive number")
    if not 1e-9 <= eta <= 1:
        raise ValueError(f"eta is {eta!r}: it must be at most 1 and at least 1e-9, below which nothing would move")
    limit = max_sweeps if max_sweeps is not None else int(min(1000 + 100 / (1 - mdp.gamma) / eta, 1e12))
    if limit < 1:
        raise ValueError(f"max_sweeps is {limit}: it must be at least 1")

    runner = make_engine(mdp, operator, engine, eta)
    shifted = commutes_with_constants(operator)
    history: list[Progress] = []
    certified_at = None
    now = runner.start(start)
    while True:
        after, progress = runner.sweep(now)
        history.append(progress)
        rounding = _rounding(mdp, reward, progress)
        error = _error(progress, mdp.gamma, shifted) + rounding
        if on_sweep:
            on_sweep(len(history), error, progress.gap_change)
        diverged = not (max(abs(progress.low), abs(progress.high)) < DIVERGED * max(largest, 1.0) and progress.gap_change < math.inf)
        if certified_at is None and error <= tol:
            certified_at = len(history)
        settled = _gap_error(history) <= max(tol, rounding)
        done = certified_at is not None and error <= tol and (settled or _stalled(history, certified_at))
        patience = limit if certified_at is None or max_sweeps is not None else GAP_PATIENCE * limit
        if done or diverged or len(history) >= patience or (rounding > tol and error <= 2 * rounding):
            break
        now = after

    del after  # Its memory is wanted for the gaps.
    q = np.require(now.q, requirements="W")
    most = progress.high
    if shifted and not diverged:
        q += (progress.low + progress.high) / 2 / (1 - mdp.gamma)
        most = (progress.high - progress.low) / 2
    policy = q.argmax(axis=1)
    v = q.max(axis=1)
    with np.errstate(all="ignore"):
        least = float(np.min(policy_backup(mdp, policy, v) - v))
    loss = (most - least) / (1 - mdp.gamma) + 2 * rounding
    solution = Solution(
        q=q,
        v=v,
        policy=policy,
        gaps=v[:, None] - q,
        error_bound=math.inf if diverged else error,
        policy_loss_bound=math.inf if diverged else max(loss, 0.0),
        gap_residual=progress.gap_change,
        gaps_settled=bool(settled),
        converged=bool(error <= tol) and not diverged,
        status=_status(operator, error, tol, rounding, settled, diverged, history),
        sweeps=len(history),
        history=np.array(history),
        operator=operator.name,
        engine=runner.name,
        gamma=mdp.gamma,
        tol=tol,
    )
    if throw and not solution.converged:
        raise NotConvergedError(solution)
    return solution


def commutes_with_constants(operator: Operator) -> bool:
    """Whether T'(Q + c) = T'Q + gamma c is known, from the operator itself or by proof where z3 is installed."""
    if operator.commutes_with_constants is not None:
        return operator.commutes_with_constants
    try:
        from actiongap.proof import commutes
    except ImportError:
        return False
    return commutes(operator) is True


def _error(progress: Progress, gamma: float, shifted: bool) -> float:
    """The certified distance of V from V*, after the shift to the middle of the bounds where that is allowed."""
    widest = (progress.high - progress.low) / 2 if shifted else max(abs(progress.low), abs(progress.high))
    return widest / (1 - gamma)


def _rounding(mdp: FiniteMDP, reward: float, progress: Progress = NO_PROGRESS) -> float:
    """What float64 may add to the certified error: each backup rounds a few times per successor, relative to the largest V there is.

    With rewards no larger than `reward`, V* is at most reward / (1 - gamma), and V no further from it than the bounds say.
    """
    largest = (reward + max(abs(progress.low), abs(progress.high))) / (1 - mdp.gamma)
    return (2 * mdp.transitions.probabilities.shape[2] + 8) * math.ulp(1.0) * largest / (1 - mdp.gamma)


def _gap_error(history: list[Progress]) -> float:
    """An estimate of how far the gaps are from their limits: what remains of a geometric series with the rate seen of late."""
    changes = [progress.gap_change for progress in history[-21:]]
    if len(changes) < RATE_SWEEPS:
        return math.inf
    earlier, latest = changes[0], max(changes[-3:])
    if latest == 0:
        return 0.0
    rate = (latest / earlier) ** (1 / (len(changes) - 1)) if earlier > 0 else 1.0
    return latest / (1 - rate) if rate < 1 else math.inf


def _stalled(history: list[Progress], certified_at: int) -> bool:
    """Whether the gaps have made no progress for long, as where suboptimal actions are devalued for ever (alpha = 1)."""
    if len(history) - certified_at < PATIENCE:
        return False
    return history[-1].gap_change >= 0.999 * history[-PATIENCE].gap_change


def _status(operator: Operator, error, tol, rounding, settled: bool, diverged: bool, history: list[Progress]) -> str:
    sweeps = f"{len(history)} sweep{'s' * (len(history) != 1)}"
    if diverged:
        return f"The iterates of {operator} diverged within {sweeps}: ask `actiongap prove` what is known of it."
    if error > tol and rounding > tol:
        remedy = f"ask for a tol above {2 * rounding:.0e}"
        return f"V is within {error:.1e} of V*, as near as float64 can certify here, not within {tol:.1e}: {remedy}."
    if error > tol:
        remedy = "raise max_sweeps or tol, or ask `actiongap prove` about the operator"
        return f"V is only known to be within {error:.1e} of V* after {sweeps}, not within {tol:.1e}: {remedy}."
    if settled:
        return f"V is within {error:.1e} of V* and the gaps have settled, after {sweeps}."
    if len(history) < RATE_SWEEPS:
        return f"V is within {error:.1e} of V*, after {sweeps}: too few to tell whether the gaps have settled."
    return f"V is within {error:.1e} of V*, but after {sweeps} the gaps still move by {history[-1].gap_change:.1e} a sweep."
