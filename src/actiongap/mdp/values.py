"""V* of a finite MDP by the fastest method at hand, with a bound on its error.

All methods alternate two steps. A *sweep* of the Bellman operator computes the greedy policy and d(x) = max_a T Q(x, a) - V(x), which
bounds the error of V (`stopping`). Between sweeps, the greedy policy may be *evaluated*, more or less exactly.

- *Value iteration* does not evaluate: every sweep shrinks the range of d by the rate at which the chain mixes, at most gamma.
- *Modified policy iteration* (Puterman and Shin, 1978) evaluates by sweeps of the policy alone, which cost one action each.
- *Policy iteration* (Howard, 1960) evaluates by a linear solve: sparse LU where that is cheap, and GMRES elsewhere, as exactly as the next
  sweep can use (inexact policy iteration: Gargiani et al., 2024). It is fast where chains mix slowly.

`auto` starts with value iteration. The rate at which the range of d shrinks says how many sweeps are left; if they are many, the policy is
evaluated by its own sweeps, and where their rate says that these are many too, by a linear solve. So what is chosen depends on the model
and never on measured times. Whatever the method, the result is certified by the last sweep alone.

Where rewards are far away, sweeps carry them one step at a time, and a greedy policy that does not see them yet cannot be improved. The
first policy that is evaluated is therefore uniformly random if value iteration is slow: its V sees rewards from everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph, linalg

from actiongap._suggest import choose_from
from actiongap.mdp.engines import Engine, Iterate, Progress
from actiongap.mdp.exact import MIN_GAIN
from actiongap.mdp.model import FiniteMDP
from actiongap.mdp.stopping import RATE_SWEEPS, StoppingRule, rounding

Method = Literal["auto", "iterate", "value-iteration", "modified-policy-iteration", "policy-iteration"]

FEW_SWEEPS = 12
"""Value iteration goes on while its rate promises at most this number of sweeps."""
FEW_POLICY_SWEEPS = 60
"""Policies are evaluated by sweeps while their rate promises at most this number."""
POLICY_SWEEPS = 8
"""Sweeps of a policy between two looks at its rate."""
MAX_POLICY_SWEEPS = 400
"""Maximum number of sweeps in one evaluation by modified policy iteration."""
EVALUATE_TO = 0.02
"""A policy that changed is evaluated until its range of d is this part of that of the last sweep."""
LU_STATES = 400
"""Linear systems of at most this number of states are solved by sparse LU, whatever their structure."""
LU_WORK = 2e8
"""Larger systems are solved by sparse LU if their states times the square of their bandwidth is at most this."""
RESTART = 40
"""Vectors that GMRES keeps."""
STALLED = 6
"""Sweeps without progress after which a value that is known to rounding is returned, and after which `auto` returns to value iteration."""


class OptimalValues(NamedTuple):
    """V near V* with what the last sweep says about it."""

    v: np.ndarray
    """V, shifted to the middle of its bounds (S,)."""
    q: np.ndarray
    """R + gamma E V(x') (S, A); V* where a pair does not exist."""
    error: float
    """Certified bound on |V - V*|, including rounding."""
    rounding: float
    """The part of `error` due to rounding."""
    history: list[Progress]
    """Statistics of the sweeps."""
    reached: bool
    """Whether the error, without rounding, is that asked for."""
    method: str
    """The method in words."""


def check_method(method: Any) -> None:
    """Raise a `ValueError` unless this is a method of `solve`.

    Examples
    --------
    >>> check_method("howard")
    Traceback (most recent call last):
    ValueError: unknown method 'howard': choose from auto, iterate, value-iteration, modified-policy-iteration, policy-iteration
    """
    if method not in get_args(Method):
        raise ValueError(f"unknown method {method!r}: {choose_from(str(method), get_args(Method))}")


def optimal_values(
    mdp: FiniteMDP,
    start: np.ndarray,
    engine: Engine,
    rule: StoppingRule,
    goal: float,
    method: Method = "auto",
    report: Callable[[int, float, float], None] = lambda sweep, error, change: None,
) -> OptimalValues:
    """Compute V within about `goal` of V*, if rounding and the maximum number of sweeps allow it.

    Parameters
    ----------
    mdp
        The model.
    start
        Initial Q (S, A).
    engine
        An engine of the Bellman operator.
    rule
        The stopping rule, for its tolerance and number of sweeps.
    goal
        The error of V to reach, without rounding; at most that of the rule.
    method
        One of `Method`; `iterate` is value iteration.
    report
        Called after each sweep with its number, the certified error, and the largest change of a gap.

    Examples
    --------
    >>> from actiongap.mdp.engines import make_engine
    >>> from actiongap.mdp.generators import chain
    >>> from actiongap.operators import bellman
    >>> mdp = chain(100, gamma=0.999)
    >>> start = np.zeros((100, 2))
    >>> rule = StoppingRule.from_mdp(mdp, start, 1e-6, 1.0, True, None)
    >>> found = optimal_values(mdp, start, make_engine(mdp, bellman()), rule, 1e-6)
    >>> found.error < 1e-6, found.method
    (True, 'policy iteration with sparse LU')
    """
    gamma, evaluator, asked = mdp.gamma, _Evaluator(mdp, method), goal
    now, history, best, idle = engine.start(start), [], math.inf, 0
    while True:
        after, progress = engine.sweep(now)
        history.append(progress)
        low, high, change = progress
        half = (high - low) / 2 / (1 - gamma)
        rounded = rounding(gamma, rule.width, rule.max_reward, max(abs(low), abs(high)))
        report(len(history), half + rounded, change)
        idle = idle + 1 if half > 0.9 * best and evaluator.used else 0
        best = min(best, half)
        # Rounding alone keeps the range of d above about this.
        goal = max(asked, 16 * math.ulp(1.0) * float(np.abs(np.asarray(after.v)).max()) / (1 - gamma))
        known = half <= goal or (idle >= STALLED and half + rounded <= max(rule.tol, 2 * rounded))
        if known or len(history) >= rule.max_sweeps:
            middle = (low + high) / 2 / (1 - gamma)
            v = np.array(now.v) + middle
            return OptimalValues(v, np.array(after.q) + gamma * middle, half + rounded, rounded, history, known, evaluator.name())
        remaining = _remaining([change.high - change.low for change in history], goal * (1 - gamma) * 2)
        improved = evaluator.evaluate(after, high - low, goal * (1 - gamma) * 2, remaining, idle)
        # With Q moved like V, the gaps of Q are kept.
        now = after if improved is None else Iterate(np.asarray(after.q) + (improved - np.asarray(after.v))[:, None], improved)


def _remaining(ranges: list[float], goal: float) -> float:
    """Estimate how many more steps shrink a range to the goal, at the recent rate; infinite if too few are known."""
    if ranges[-1] <= goal:
        return 0.0
    if len(ranges) < RATE_SWEEPS or not 0 < ranges[-1] < ranges[-RATE_SWEEPS]:
        return math.inf
    rate = (ranges[-1] / ranges[-RATE_SWEEPS]) ** (1 / (RATE_SWEEPS - 1))
    return math.log(goal / ranges[-1]) / math.log(rate)


class _Evaluator:
    """Evaluates greedy policies between sweeps, as the method says."""

    def __init__(self, mdp: FiniteMDP, method: Method):
        self.mdp, self.method = mdp, method
        self.policy: np.ndarray | None = None
        self.used: set[str] = set()
        self.sweeps = 0
        self.states = np.arange(mdp.states)
        self.slow = method == "policy-iteration"

    def name(self) -> str:
        """The method in words."""
        if "sparse LU" in self.used or "GMRES" in self.used:
            return f"policy iteration with {' and '.join(sorted(self.used - {'sweeps'}))}"
        return "modified policy iteration" if self.used else "value iteration"

    def evaluate(self, after: Iterate, width: float, goal: float, remaining: float, idle: int) -> np.ndarray | None:
        """Return V of about the policy that is greedy in `after.q`, or None to go on with value iteration.

        `width` is the range of d of the last sweep, `goal` the one to reach, and `remaining` the number of sweeps that value iteration
        would take.
        """
        self.sweeps += 1
        if self.method in ("value-iteration", "iterate"):
            return None
        if self.method == "auto":
            # The rate is known after a few sweeps. Where evaluations do not help any more, value iteration does.
            started = bool(self.used)
            if idle >= STALLED or (not started and (self.sweeps < RATE_SWEEPS or remaining <= FEW_SWEEPS)):
                return None
        if self.method != "modified-policy-iteration" and not self.used and remaining > FEW_POLICY_SWEEPS:
            # Value iteration may be slow because rewards are far away.
            return self._value_of(*self._uniform(), np.asarray(after.v), EVALUATE_TO * width)
        q, v = self.mdp.masked(np.asarray(after.q)), np.asarray(after.v)
        policy = self._improve(q, v)
        settled = self.policy is not None and np.array_equal(policy, self.policy)
        self.policy = policy
        matrix, rewards = self._system(policy)
        return self._value_of(matrix, rewards, v, 0.2 * goal if settled else max(EVALUATE_TO * width, 0.2 * goal))

    def _value_of(self, matrix: sparse.csr_array, rewards: np.ndarray, v: np.ndarray, target: float) -> np.ndarray:
        """Evaluate the policy of a matrix until the range of d is about `target`, by sweeps or by a linear solve."""
        if not self.slow:
            v, reached = self._sweep(matrix, rewards, v, target)
            self.used.add("sweeps")
            if reached or self.method == "modified-policy-iteration":
                return v
            # The chain of this policy mixes slowly, and so will those of the next ones.
            self.slow = True
        return self._solve(matrix, rewards, v, target)

    def _improve(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        """The greedy policy; an action is changed only for a gain above rounding, so that ties do not change it."""
        greedy = q.argmax(axis=1)
        if self.policy is None:
            return greedy
        kept = q[self.states, self.policy] >= v - MIN_GAIN * max(1.0, float(np.abs(v).max()))
        return np.where(kept, self.policy, greedy)

    def _system(self, policy: np.ndarray) -> tuple[sparse.csr_array, np.ndarray]:
        matrix = self.mdp.transitions.rows((self.states, policy)).matrix(self.mdp.states)
        return matrix, self.mdp.rewards[self.states, policy]

    def _uniform(self) -> tuple[sparse.csr_array, np.ndarray]:
        """The next-state probabilities and the rewards of the uniformly random policy."""
        mdp = self.mdp
        chosen = np.ones(mdp.rewards.shape, bool) if mdp.available is None else mdp.available
        counts = chosen.sum(axis=1)
        pointers = np.append(0, np.cumsum(counts))
        mean = sparse.csr_array((np.repeat(1 / counts, counts), np.flatnonzero(chosen), pointers), shape=(mdp.states, mdp.rewards.size))
        return sparse.csr_array(mean @ mdp.transitions.matrix(mdp.states)), mean @ mdp.rewards.ravel()

    def _sweep(self, matrix: sparse.csr_array, rewards: np.ndarray, v: np.ndarray, target: float) -> tuple[np.ndarray, bool]:
        """Sweep the policy until its range of d is at most `target`; return V, and False if that takes too many sweeps."""
        ranges: list[float] = []
        for done in range(MAX_POLICY_SWEEPS):
            after = rewards + self.mdp.gamma * (matrix @ v)
            d = after - v
            ranges.append(float(d.max() - d.min()))
            # Adding a constant to V changes no range.
            v = after
            if ranges[-1] <= target:
                return v, True
            looked = done % POLICY_SWEEPS == POLICY_SWEEPS - 1
            if looked and self.method == "auto" and done + _remaining(ranges, target) > FEW_POLICY_SWEEPS:
                return v, False
        return v, False

    def _solve(self, matrix: sparse.csr_array, rewards: np.ndarray, v: np.ndarray, target: float) -> np.ndarray:
        """Solve (I - gamma P) V = R until the range of the residual is about `target`."""
        states, gamma = self.mdp.states, self.mdp.gamma
        if states <= LU_STATES or _banded(matrix):
            self.used.add("sparse LU")
            return linalg.splu(sparse.eye_array(states, format="csc") - gamma * matrix.tocsc()).solve(rewards)
        self.used.add("GMRES")
        make: Any = linalg.LinearOperator
        system = make(matrix.shape, matvec=lambda x: x - gamma * (matrix @ x), dtype=np.float64)
        residual = rewards - (v - gamma * (matrix @ v))
        # The norm of GMRES is a root of a sum over all states; the range is that of the largest.
        tolerance = 0.1 * target * math.sqrt(states)
        step, _ = linalg.gmres(system, residual, rtol=0.0, atol=tolerance, restart=RESTART, maxiter=10)
        return v + step


def _banded(matrix: sparse.csr_array) -> bool:
    """Whether the states can be ordered so that successors are near, which makes an LU factorization cheap."""
    order = csgraph.reverse_cuthill_mckee(sparse.csr_array(matrix))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    rows = np.repeat(place, np.diff(matrix.indptr))
    distance = int(np.abs(rows - place[matrix.indices]).max(initial=0))
    return len(order) * float(distance + 1) ** 2 <= LU_WORK
