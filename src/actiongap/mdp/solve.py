"""Iterate an operator on a finite MDP until the answer is certified.

The iteration runs as it is. Where the operator commutes with constants, the midpoint of the bounds (`stopping`) is added to Q once, at the
end; adding it at every sweep would give the same sweeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from actiongap.mdp.checks import check_table
from actiongap.mdp.engines import EngineName, Iterate, Progress, make_engine
from actiongap.mdp.exact import policy_backup
from actiongap.mdp.model import FiniteMDP
from actiongap.mdp.stopping import RATE_SWEEPS, Judgement, Rules
from actiongap.operators import AnyOperator, Operator, parse

UNDUE = 1e3
"""How many times the tolerance a policy may lose. Sound operators stay within a few; others can have V right and the policy wrong, since Q
is moved by a constant to where V is right."""


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
    """Whether V is certified to the tolerance, and the greedy policy to lose no more than goes with that."""
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
    >>> from actiongap.mdp.generators import cake
    >>> solution = solve(cake(gamma=0.9, epsilon=0.1), "consistent")
    >>> bool(abs(solution.q[0, 0] - -0.1 / (1 - 0.9 / 2)) < 1e-9)
    True
    """
    operator = parse(operator)
    start = np.zeros(mdp.rewards.shape) if q0 is None else check_table("q0", q0, mdp.rewards.shape)
    rules = Rules.of(mdp, start, tol, eta, commutes_with_constants(operator), max_sweeps)
    runner = make_engine(mdp, operator, engine, eta)
    history: list[Progress] = []
    certified_at = None
    now = runner.start(start)
    while True:
        after, progress = runner.sweep(now)
        history.append(progress)
        judgement = rules.judge(history, certified_at)
        if on_sweep:
            on_sweep(len(history), judgement.error, progress.gap_change)
        if judgement.certified and certified_at is None:
            certified_at = len(history)
        if judgement.stop:
            break
        now = after
    del after  # Its memory is wanted for the gaps.
    solution = _conclude(mdp, operator, runner.name, rules, judgement, now, history)
    if throw and not solution.converged:
        raise NotConvergedError(solution)
    return solution


def _conclude(
    mdp: FiniteMDP, operator: Operator, engine: str, rules: Rules, judgement: Judgement, last: Iterate, history: list[Progress]
) -> Solution:
    """What the last judged iterate comes to: Q moved to the middle of its bounds, its greedy policy, and what that may lose."""
    low, high, change = history[-1]
    q = np.require(last.q, requirements="W")
    if rules.shifted and not judgement.diverged:
        q += (low + high) / 2 / (1 - mdp.gamma)
        high = (high - low) / 2
    policy, v = q.argmax(axis=1), q.max(axis=1)
    with np.errstate(all="ignore"):
        least = float(np.min(policy_backup(mdp, policy, v) - v))
    loss = max((high - least) / (1 - mdp.gamma), 0.0) + 2 * judgement.rounding
    converged = judgement.certified and not judgement.diverged and loss <= UNDUE * rules.tol
    return Solution(
        q=q,
        v=v,
        policy=policy,
        gaps=v[:, None] - q,
        error_bound=math.inf if judgement.diverged else judgement.error,
        policy_loss_bound=math.inf if judgement.diverged else loss,
        gap_residual=change,
        gaps_settled=judgement.settled,
        converged=converged,
        status=_status(operator, rules, judgement, history, loss, converged),
        sweeps=len(history),
        history=np.array(history),
        operator=operator.name,
        engine=engine,
        gamma=mdp.gamma,
        tol=rules.tol,
    )


def commutes_with_constants(operator: Operator) -> bool:
    """Whether T'(Q + c) = T'Q + gamma c is known, from the operator itself or by proof where z3 is installed."""
    if operator.commutes_with_constants is not None:
        return operator.commutes_with_constants
    try:
        from actiongap.proof import commutes
    except ImportError:
        return False
    return commutes(operator) is True


def _status(operator: Operator, rules: Rules, judgement: Judgement, history: list[Progress], loss: float, converged: bool) -> str:
    sweeps = f"{len(history)} sweep{'s' * (len(history) != 1)}"
    known = f"V is within {judgement.error:.1e} of V*"
    if judgement.diverged:
        return f"The iterates of {operator} diverged within {sweeps}: ask `actiongap prove` what is known of it."
    if not judgement.certified and judgement.rounding > rules.tol:
        remedy = f"ask for a tol above {2 * judgement.rounding:.0e}"
        return f"{known}, as near as float64 can certify here, not within {rules.tol:.1e}: {remedy}."
    if not judgement.certified:
        remedy = "raise max_sweeps or tol, or ask `actiongap prove` about the operator"
        return f"{known} for all that is known after {sweeps}, not within {rules.tol:.1e}: {remedy}."
    if not converged:
        return f"{known}, but its greedy policy may lose {loss:.1e}: ask `actiongap prove` whether {operator} preserves what is optimal."
    if judgement.settled:
        return f"{known} and the gaps have settled, after {sweeps}."
    if len(history) < RATE_SWEEPS:
        return f"{known}, after {sweeps}: too few to tell whether the gaps have settled."
    return f"{known}, but after {sweeps} the gaps still move by {history[-1].gap_change:.1e} a sweep."
