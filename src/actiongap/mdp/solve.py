"""Solve a finite MDP with an operator: its sequence itself (`iterate`), or the limit of the sequence with bounds on its error (`solve`).

The limit follows from V* for most operators, and V* is computed by the fastest method (`values`). Other operators are iterated. If such an
operator commutes with constants, the midpoint of the bounds (`stopping`) is added to Q once, after the last sweep. Adding it in
every sweep would give the same result.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any

import numpy as np

from actiongap._files import as_path, check_writable, writing
from actiongap._html import table
from actiongap._progress import StepProgress
from actiongap._suggest import with_suggestions
from actiongap.mdp.checks import check_table, check_whole
from actiongap.mdp.engines import BLOCK_ENTRIES, Engine, EngineName, Iterate, Progress, make_engine
from actiongap.mdp.exact import policy_backup
from actiongap.mdp.limits import has_limits, limit_gaps, optimal_gaps
from actiongap.mdp.model import FiniteMDP, check_model
from actiongap.mdp.stopping import RATE_SWEEPS, StoppingRule, StoppingStatus, check_step_size, rounding
from actiongap.mdp.values import Method, OptimalValues, check_method, optimal_values
from actiongap.operators import AnyOperator, Operator, parse

MAX_LOSS_FACTOR = 1e3
"""Maximum policy loss bound, as a multiple of the tolerance. Optimality-preserving operators stay within a small multiple. Others can have
an accurate V and a suboptimal policy, because Q is shifted by a constant."""

LIMIT_ITERATIONS = 100
"""Maximum number of iterations for the limits of `pal` and `pal-dqn`, from the gaps of the last sweep."""
LARGE_ARRAY = 10_000
"""Maximum number of elements of an array in JSON, unless all arrays are wanted."""
SHOWN_STATES = 20
SHOWN_ACTIONS = 8


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """The result of iterating an operator on a finite MDP.

    Examples
    --------
    >>> from actiongap.mdp.generators import single_state
    >>> solve(single_state(gamma=0.5), "al:0.5", tol=1e-3)
    Solution(al:0.5 on single-state: V within 2e-14, 1 sweep; q (1, 2))
    """

    q: np.ndarray
    """The final Q-function (S, A); -inf where the state does not have the action."""
    v: np.ndarray
    """V(x) = max_a Q(x, a), (S,)."""
    policy: np.ndarray
    """The greedy action of each state (S,); ties go to the lowest index."""
    gaps: np.ndarray
    """V(x) - Q(x, a), (S, A); NaN where the state does not have the action."""
    error_bound: float
    """Certified bound on max_x |V(x) - V*(x)|."""
    policy_loss_bound: float
    """Certified bound on max_x V*(x) - V^policy(x)."""
    gap_residual: float
    """The largest change of any action gap in the last sweep."""
    gaps_settled: bool
    """Whether the gaps are estimated to be within the tolerance of their limits; for a certificate see `gap_bound`."""
    converged: bool
    """Whether V is certified to the tolerance and the policy loss bound is a moderate multiple of it."""
    status: str
    """The outcome as a sentence."""
    sweeps: int
    """Number of sweeps: applications of the operator to all pairs."""
    history: np.ndarray
    """One row per sweep: min d, max d, and the largest change of a gap."""
    operator: str
    """The operator's name."""
    engine: str
    """The engine that computed the sweeps."""
    gamma: float
    """The discount."""
    tol: float
    """The tolerance."""
    mdp: str
    """The name of the MDP."""
    note: str = ""
    """A sentence about the MDP, such as which state was added to it."""
    gap_bound: float | None = None
    """Certified bound on the largest distance of a gap from its limit; None for operators whose limits are not known (`limits`)."""
    method: str = ""
    """The method in words."""

    @property
    def action_gaps(self) -> np.ndarray:
        """The action gap of each state, V(x) minus Q of the second-best action (S,); NaN in states with one action, which have none.

        Examples
        --------
        >>> from actiongap.mdp.generators import cake
        >>> solve(cake(gamma=0.5, epsilon=1.0)).action_gaps.round(6).tolist()
        [1.0, 0.0]
        """
        if self.gaps.shape[1] == 1:
            return np.full(len(self.gaps), np.nan)
        return np.partition(self.gaps, 1, axis=1)[:, 1]

    def save(self, file: str | Path) -> None:
        """Write `q`, `v`, `policy` and `gaps` to an .npz file, for `numpy.load`. The write is atomic.

        Examples
        --------
        >>> import tempfile
        >>> from actiongap.mdp.generators import cake
        >>> file = Path(tempfile.mkdtemp()) / "cake.npz"
        >>> solve(cake()).save(file)
        >>> sorted(np.load(file))
        ['gaps', 'policy', 'q', 'v']
        """
        with writing(check_solution_file(file)) as stream:
            np.savez_compressed(stream, q=self.q, v=self.v, policy=self.policy, gaps=self.gaps)

    def as_json(self, *, arrays: bool = False) -> dict[str, Any]:
        """Return the solution as plain values for JSON. Arrays of more than 10,000 numbers are left out unless `arrays` is true.

        Q and the gap of an action that its state does not have are None.

        Examples
        --------
        >>> from actiongap.mdp.generators import cake
        >>> solve(cake()).as_json()["policy"]
        [1, 0]
        """
        bounds = ("error_bound", "policy_loss_bound", "gap_bound", "gap_residual")
        names = ("operator", "gamma", "tol", "engine", "method", "sweeps", *bounds, "status", "note")
        tables = {name: getattr(self, name) for name in ("q", "v", "policy", "gaps")}
        shown = {name: self._plain(table) for name, table in tables.items() if arrays or table.size <= LARGE_ARRAY}
        return {"mdp": self.mdp, **{name: getattr(self, name) for name in names}, **shown}

    def _plain(self, table: np.ndarray) -> list[Any]:
        missing = np.isnan(self.gaps)
        if table.shape != missing.shape or not missing.any() or not math.isfinite(self.error_bound):
            return table.tolist()
        plain = table.astype(object)
        plain[missing] = None
        return plain.tolist()

    def __repr__(self) -> str:
        sweeps = f"{self.sweeps} sweep{'s' * (self.sweeps != 1)}"
        if not math.isfinite(self.error_bound):
            return f"Solution({self.operator} on {self.mdp}: diverged, {sweeps}; q {self.q.shape})"
        # Rounded up, so that it is still a bound.
        error = Context(prec=1, rounding=ROUND_CEILING).create_decimal(repr(self.error_bound))
        missed = "" if self.converged else ", not converged"
        return f"Solution({self.operator} on {self.mdp}: V within {error:e}{missed}, {sweeps}; q {self.q.shape})"

    def _repr_html_(self) -> str:
        title = f"{self.operator} on {self.mdp}, gamma = {self.gamma:g}: {self.status}"
        if not math.isfinite(self.error_bound):
            return table([], title=title)
        headings, rows = first_states(self)
        more = len(self.v) - len(rows)
        note = " ".join(filter(None, (f"... and {more} more states." if more else "", self.note)))
        return table(rows, headings, title=title, note=note)


def check_solution_file(file: str | Path) -> Path:
    """Return the path of a solution to write, or raise a ValueError if it is no .npz file in an existing folder.

    Examples
    --------
    >>> check_solution_file("cake.txt")
    Traceback (most recent call last):
    ValueError: cake.txt: a solution is an .npz file in an existing folder: choose such a path
    """
    file = as_path(file, "file")
    if file.suffix != ".npz" or not os.path.isdir(file.parent):
        raise ValueError(f"{file}: a solution is an .npz file in an existing folder: choose such a path")
    return check_writable(file)


def first_states(solution: Solution) -> tuple[list[str], list[list[str]]]:
    """Return the headings and rows of a table of the first states, without the digits that are not certified.

    Examples
    --------
    >>> from actiongap.mdp.generators import cake
    >>> headings, rows = first_states(solve(cake(gamma=0.5, epsilon=1.0)))
    >>> headings[:4], rows[0][:4]
    (['state', 'V', 'action', 'action gap'], ['0', '0', '1', '1'])
    """
    digits = 6 if solution.error_bound <= 0 else math.floor(-math.log10(solution.error_bound)) - 1

    def show(value: float) -> str:
        if not math.isfinite(value):
            return "-"
        rounded = round(float(value), digits) + 0.0
        return f"{rounded:.3g}" if abs(rounded) >= 1e6 else f"{rounded:.6g}"

    rows, gaps = [], solution.action_gaps
    for x, q in enumerate(solution.q[:SHOWN_STATES]):
        # Actions that the state does not have are shown as "-", and so is the gap of a state with one action.
        rows.append([str(x), show(solution.v[x]), str(solution.policy[x]), show(gaps[x]), *map(show, q[:SHOWN_ACTIONS])])
    return ["state", "V", "action", "action gap", *(f"Q(., {a})" for a in range(min(solution.q.shape[1], SHOWN_ACTIONS)))], rows


class NotConvergedError(RuntimeError):
    """Raised by `solve` if V cannot be certified; `solution` holds the last iterate."""

    def __init__(self, solution: Solution):
        super().__init__(solution.status)
        self.solution = solution


@with_suggestions
def solve(
    mdp: FiniteMDP,
    operator: AnyOperator = "bellman",
    *,
    tol: float | None = None,
    eta: float = 1.0,
    engine: EngineName = "auto",
    method: Method = "auto",
    q0: np.ndarray | None = None,
    max_sweeps: int | None = None,
    throw: bool = True,
    on_sweep: Callable[[int, float, float], None] | None = None,
    progress: bool | None = None,
) -> Solution:
    """Compute the limit of the iteration Q <- (1 - eta) Q + eta T'Q, certified to be within `tol` of V*.

    The limits of most operators follow from V* (`limits`), and V* is computed by the method that suits the model (`values`). Operators
    whose limits do not (`lazy`, alpha of 1, your own) are iterated until V is certified and the gaps have settled. `iterate` yields the
    sequence itself.

    Parameters
    ----------
    mdp
        The model.
    operator
        An `Operator`, a string such as `al:0.5`, or any function of a `Backup`.
    tol
        Tolerance of the certified error |V - V*| and of the estimated error of the gaps; by default 1e-10, or what float64 can certify.
    eta
        Step size in (0, 1]; below 1, the operator is iterated.
    engine
        `auto`, `arrays`, `numba` or `jax`.
    method
        How V* is computed: `value-iteration`, `modified-policy-iteration`, `policy-iteration`, or `auto`, which chooses by the rates that
        it observes. `iterate` iterates the operator itself, and so does `auto` with `max_sweeps`.
    q0
        Initial Q (S, A); zeros by default.
    max_sweeps
        Maximum number of sweeps; by default a large multiple of the horizon 1 / (1 - gamma).
    throw
        Whether to raise `NotConvergedError` if V cannot be certified. Gaps that never settle, as with alpha = 1, do not raise.
    on_sweep
        Called after each sweep with its number, the error bound and the largest change of a gap.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.

    Examples
    --------
    >>> from actiongap.mdp.generators import cake
    >>> solution = solve(cake(gamma=0.9, epsilon=0.1), "consistent")
    >>> bool(abs(solution.q[0, 0] - -0.1 / (1 - 0.9 / 2)) < 1e-9)
    True
    """
    operator = parse(operator)
    if on_sweep is not None and not callable(on_sweep):
        raise TypeError(f"on_sweep is {on_sweep!r}: give a function of the number of the sweep, the error bound and the change of the gaps")
    start = _initial_q(check_model(mdp), q0)
    rule = StoppingRule.from_mdp(mdp, start, tol, eta, commutes_with_constants(operator), max_sweeps)
    from_values = _from_values(operator, method, eta, max_sweeps)
    with StepProgress(f"solve {mdp.name}", progress) as bar:
        report = _Report(bar, rule.tol, on_sweep)
        solution = None
        if from_values:
            # Engines may overwrite where they start, and `clipped-al` may have to be iterated from there after all.
            first = start.copy() if operator.name.startswith("clipped-al:") else start
            solution = _solve_by_values(mdp, operator, engine, first, rule, method, report)
        if solution is None:
            runner = make_engine(mdp, operator, engine, eta)
            bar("first sweep" if runner.name == "arrays" else "compiling")
            status, last, history = _iterate_until_settled(runner, start, rule, report)
            solution = _make_solution(mdp, operator, runner.name, rule, status, last, history)
    if throw and not solution.converged:
        raise NotConvergedError(solution)
    return solution


def _from_values(operator: Operator, method: Method, eta: float, max_sweeps: int | None) -> bool:
    """Whether the limit is computed from V*, rather than by iterating the operator."""
    check_method(method)
    if method == "iterate" or (method == "auto" and (eta != 1.0 or max_sweeps is not None)):
        return False
    if method != "auto" and eta != 1.0:
        raise ValueError(f"eta is {eta!r}, but method {method!r} does not iterate the operator: leave eta out, or use method='iterate'")
    known = operator.draw is None and operator.temperature is None and has_limits(operator)
    if not known and method != "auto":
        raise ValueError(f"the limit of {operator} does not follow from V*, which method {method!r} computes: use method='iterate'")
    return known


class _Report:
    """Reports sweeps to the progress bar and to the user's function."""

    def __init__(self, bar: StepProgress, tol: float, on_sweep: Callable[[int, float, float], None] | None):
        self.bar, self.tol, self.on_sweep = bar, tol, on_sweep
        self.before, self.first_error = 0, 0.0

    def __call__(self, sweep: int, error: float, change: float) -> None:
        sweep += self.before
        self.first_error = max(self.first_error, error)
        text = f"sweep {sweep}: |V - V*| <= {error:.1e}, gaps change by {change:.1e}"
        self.bar(text, _fraction_done(self.first_error, error, self.tol))
        if self.on_sweep:
            self.on_sweep(sweep, error, change)


def _iterate_until_settled(
    engine: Engine, start: np.ndarray, rule: StoppingRule, report: _Report
) -> tuple[StoppingStatus, Iterate, list[Progress]]:
    """Iterate the operator until V is certified and the gaps have settled. Return the status and the iterate before the last sweep."""
    history: list[Progress] = []
    certified_at = None
    sequence = _sweeps(engine, start)
    while True:
        now, after, change = next(sequence)
        history.append(change)
        status = rule.check(history, certified_at)
        report(len(history), status.error, change.gap_change)
        if status.certified and certified_at is None:
            certified_at = len(history)
        if status.stop:
            # Free the memory of the next iterate for the gaps.
            sequence.close()
            del after
            return status, now, history


def _solve_by_values(
    mdp: FiniteMDP, operator: Operator, engine: EngineName, start: np.ndarray, rule: StoppingRule, method: Method, report: _Report
) -> Solution | None:
    """Compute V* by a method of `values`, and from it the limit of the operator; None if that is not known after all (`clipped-al`)."""
    runner = make_engine(mdp, parse("bellman"), engine)
    report.bar("first sweep" if runner.name == "arrays" else "compiling")
    rounded = rounding(mdp.gamma, rule.width, rule.max_reward)
    spare = rule.tol - rounded if rule.tol > rounded else rounded
    # Half of it, because the gap of the best action adds to the error of V.
    found = optimal_values(mdp, start, runner, rule, 0.45 * _gap_share(operator, mdp) * spare, method, report)
    if operator.name == "bellman":
        q, error = found.q, found.error
        # D is as exact as (1 + gamma) times V; half of the digits that q lost are those of v.
        gap_bound = (1 + mdp.gamma) * error
    elif operator.name.startswith(("pal:", "pal-dqn:")) and found.error <= rule.tol:
        return _settle_from(mdp, operator, engine, found, rule, report)
    else:
        # The best actions of max Q have gaps of exactly zero, those of V of about its error, which the limit may multiply.
        v = mdp.masked(found.q).max(axis=1)
        limits = limit_gaps(operator, mdp, v, found.error, q=found.q, tol=rule.tol, max_iterations=LIMIT_ITERATIONS)
        if limits is None:
            report.before = len(found.history)
            return None
        q, gap_bound = v[:, None] - limits.gaps, limits.bound
        # Zero but for rounding.
        moved = float(mdp.masked(limits.gaps, np.inf).min(axis=1).max())
        error, gap_bound = found.error + moved, gap_bound + moved
    return _finish(mdp, operator, runner.name, rule, found, q, error, gap_bound)


def _gap_share(operator: Operator, mdp: FiniteMDP) -> float:
    """The part of the tolerance of gaps that the error of V may have."""
    gamma = mdp.gamma
    if operator.name == "consistent":
        stay = max(
            float(mdp.transitions.rows(rows).stay(np.arange(mdp.states)[rows]).max()) for rows in mdp.transitions.blocks(BLOCK_ENTRIES)
        )
        return max(1 - gamma * stay, 1e-3) / (1 + gamma)
    alpha, *omega = operator.parameters or (0.0,)
    alpha = alpha / omega[0] if operator.name.startswith("sal:") else alpha
    return max(1 - alpha, 1e-3) / (1 + gamma) if 0 <= alpha < 1 else 1 / (1 + gamma)


def _settle_from(
    mdp: FiniteMDP, operator: Operator, engine: EngineName, found: OptimalValues, rule: StoppingRule, report: _Report
) -> Solution:
    """Iterate `pal` or `pal-dqn` from V* and the largest gaps that they can have, until the gaps have settled."""
    assert operator.parameters is not None
    gaps = optimal_gaps(mdp, found.v, found.error, found.q).gaps / (1 - operator.parameters[0])
    runner = make_engine(mdp, operator, engine)
    report.before = len(found.history)
    if rule.max_sweeps == rule.max_gap_sweeps:  # the caller's number of sweeps
        left = max(1, rule.max_sweeps - len(found.history))
        rule = replace(rule, max_sweeps=left, max_gap_sweeps=left)
    status, last, history = _iterate_until_settled(runner, found.v[:, None] - gaps, rule, report)
    return _make_solution(mdp, operator, runner.name, rule, status, last, history, found)


def _finish(
    mdp: FiniteMDP,
    operator: Operator,
    engine: str,
    rule: StoppingRule,
    found: OptimalValues,
    q: np.ndarray,
    error: float,
    gap_bound: float,
) -> Solution:
    """Make the solution from V* and the limit of Q."""
    q = mdp.masked(q)
    policy, v = q.argmax(axis=1), q.max(axis=1)
    loss = _policy_loss(mdp, policy, v, error, found.rounding)
    certified = error <= rule.tol
    converged = certified and loss <= MAX_LOSS_FACTOR * rule.tol
    sweeps = f"{found.method} in {_count(len(found.history))}"
    if certified and converged:
        text = f"V is within {error:.1e} of V* and the gaps within {gap_bound:.1e} of their limits, by {sweeps}."
    else:
        text = _failure(operator, rule, error, found.rounding, f"{_count(len(found.history))} of {found.method}", loss, certified)
    return Solution(
        q=q,
        v=v,
        policy=policy,
        gaps=mdp.masked(v[:, None] - q, np.nan),
        error_bound=error,
        policy_loss_bound=loss,
        gap_residual=found.history[-1].gap_change,
        gaps_settled=found.reached,
        converged=converged,
        status=text,
        sweeps=len(found.history),
        history=np.array(found.history),
        operator=operator.name,
        engine=engine,
        gamma=mdp.gamma,
        tol=rule.tol,
        mdp=mdp.name,
        note=mdp.note,
        gap_bound=gap_bound,
        method=found.method,
    )


def _policy_loss(mdp: FiniteMDP, policy: np.ndarray, v: np.ndarray, error: float, rounded: float) -> float:
    """Bound V* - V^policy from a V that is within `error` of V*."""
    with np.errstate(all="ignore"):
        least = float(np.min(policy_backup(mdp, policy, v) - v))
    return max(error - least / (1 - mdp.gamma), 0.0) + rounded


def _fraction_done(first: float, error: float, tol: float) -> float:
    """Return how far the certified error is on its way from the first one to the tolerance, on a logarithmic scale."""
    if not 0 < error < first < math.inf:
        return 0.0
    return min(math.log(first / error) / math.log(max(first, 2 * tol) / tol), 1.0)


@with_suggestions
def iterate(
    mdp: FiniteMDP,
    operator: AnyOperator = "bellman",
    *,
    sweeps: int,
    q0: np.ndarray | None = None,
    eta: float = 1.0,
    engine: EngineName = "auto",
) -> Iterator[np.ndarray]:
    """Yield the Q-functions Q_1, ..., Q_sweeps of the sequence Q_{k+1} = (1 - eta) Q_k + eta T'Q_k.

    `solve` computes the limit of the same sequence. The arguments are checked at once, and every sweep is computed when it is asked for.
    Each table is a new array (S, A). A sequence that diverges ends in infinities and NaN.

    Parameters
    ----------
    mdp
        The model.
    operator
        An `Operator`, a string such as `al:0.5`, or any function of a `Backup`.
    sweeps
        Number of sweeps: applications of the operator to all pairs.
    q0
        Initial Q (S, A); zeros by default.
    eta
        Step size in (0, 1].
    engine
        `auto`, `arrays`, `numba` or `jax`.

    Examples
    --------
    >>> from actiongap.mdp.generators import cake
    >>> [float(q[0, 0].round(3)) for q in iterate(cake(gamma=0.9, epsilon=0.1), "al:0.5", sweeps=3)]
    [1.0, 1.34, 1.394]
    """
    start, sweeps = _initial_q(check_model(mdp), q0), check_whole("sweeps", sweeps, 1)
    check_step_size(eta)
    sequence = _sweeps(make_engine(mdp, parse(operator), engine, eta), start)
    # Engines overwrite their iterates, so they are copied.
    return (np.array(mdp.masked(np.asarray(after.q))) for _, after, _ in itertools.islice(sequence, sweeps))


def _sweeps(engine: Engine, start: np.ndarray) -> Generator[tuple[Iterate, Iterate, Progress]]:
    """Sweep forever; yield every iterate with the next one and the statistics of the sweep between them."""
    now = engine.start(start)
    while True:
        with np.errstate(over="ignore", invalid="ignore"):
            after, progress = engine.sweep(now)
        yield now, after, progress
        now = after


def _initial_q(mdp: FiniteMDP, q0: np.ndarray | None) -> np.ndarray:
    if q0 is None:
        return np.zeros(mdp.rewards.shape)
    known = np.shape(q0) == mdp.rewards.shape and not np.ma.isMaskedArray(q0)
    return check_table("q0", mdp.masked(q0, 0.0) if known else q0, mdp.rewards.shape)


def _make_solution(
    mdp: FiniteMDP,
    operator: Operator,
    engine: str,
    rule: StoppingRule,
    status: StoppingStatus,
    last: Iterate,
    history: list[Progress],
    found: OptimalValues | None = None,
) -> Solution:
    """Make the solution from the last iterate: Q shifted to the middle of its bounds, the greedy policy, and its loss bound.

    `found` is where the iteration started, if that is V*.
    """
    low, high, change = history[-1]
    q = np.require(last.q, requirements="W")
    if mdp.available is not None:
        q[~mdp.available] = -np.inf
    if rule.shifted and not status.diverged:
        q += (low + high) / 2 / (1 - mdp.gamma)
        high = (high - low) / 2
    policy, v = q.argmax(axis=1), q.max(axis=1)
    with np.errstate(all="ignore"):
        least = float(np.min(policy_backup(mdp, policy, v) - v))
    loss = max((high - least) / (1 - mdp.gamma), 0.0) + 2 * status.rounding
    converged = status.certified and not status.diverged and loss <= MAX_LOSS_FACTOR * rule.tol
    gaps = v[:, None] - q
    method = "iteration of the operator" if found is None else f"{found.method} and iteration of the operator"
    before = [] if found is None else found.history
    return Solution(
        q=q,
        v=v,
        policy=policy,
        gaps=mdp.masked(gaps, np.nan),
        error_bound=math.inf if status.diverged else status.error,
        policy_loss_bound=math.inf if status.diverged else loss,
        gap_residual=change,
        gaps_settled=status.settled,
        converged=converged,
        status=_status(operator, rule, status, before + history, loss, converged, method),
        sweeps=len(before) + len(history),
        history=np.array(before + history),
        operator=operator.name,
        engine=engine,
        gamma=mdp.gamma,
        tol=rule.tol,
        mdp=mdp.name,
        note=mdp.note,
        gap_bound=_gap_bound(mdp, operator, v, math.inf if status.diverged else status.error, gaps, rule.tol),
        method=method,
    )


def _gap_bound(mdp: FiniteMDP, operator: Operator, v: np.ndarray, v_error: float, gaps: np.ndarray, tol: float) -> float | None:
    """Bound the distance of the gaps from their limits."""
    limits = limit_gaps(operator, mdp, v, v_error, tol=tol, start=gaps, max_iterations=LIMIT_ITERATIONS)
    return None if limits is None else float(np.abs(mdp.masked(gaps - limits.gaps, 0.0)).max()) + limits.bound


def commutes_with_constants(operator: Operator) -> bool:
    """Whether T'(Q + c) = T'Q + gamma c is known, from the operator or by a proof if z3 is installed."""
    if operator.commutes_with_constants is not None:
        return operator.commutes_with_constants
    try:
        from actiongap.proof import commutes
    except ImportError:
        return False
    return commutes(operator) is True


def _count(sweeps: int) -> str:
    return f"{sweeps} sweep{'s' * (sweeps != 1)}"


def _status(
    operator: Operator, rule: StoppingRule, status: StoppingStatus, history: list[Progress], loss: float, converged: bool, method: str
) -> str:
    sweeps = _count(len(history))
    known = f"V is within {status.error:.1e} of V*"
    if status.diverged:
        return f"The iterates of {operator} diverged within {sweeps}: check it with `actiongap prove`."
    if not converged:
        return _failure(operator, rule, status.error, status.rounding, sweeps, loss, status.certified)
    if status.settled:
        return f"{known} and the gaps have settled, by {method} in {sweeps}."
    if len(history) < RATE_SWEEPS:
        return f"{known}, after {sweeps}: too few to estimate whether the gaps have settled."
    return f"{known}, but after {sweeps} the gaps still change by {history[-1].gap_change:.1e} per sweep."


def _failure(operator: Operator, rule: StoppingRule, error: float, rounded: float, sweeps: str, loss: float, certified: bool) -> str:
    """Why V or the policy is not as exact as it was asked for."""
    known = f"V is within {error:.1e} of V*"
    if not certified and rounded > rule.tol:
        return f"{known}, the best that float64 can certify here, not within {rule.tol:.1e}: choose a tol above {2 * rounded:.0e}."
    if not certified:
        remedy = "raise max_sweeps or tol, or check the operator with `actiongap prove`"
        return f"{known} at most, after {sweeps}, not within {rule.tol:.1e}: {remedy}."
    return f"{known}, but its greedy policy may lose {loss:.1e}: check with `actiongap prove` whether {operator} preserves optimality."
