"""Iterate an operator on a finite MDP: the sequence itself (`iterate`), or until the result is certified (`solve`).

If the operator commutes with constants, the midpoint of the bounds (`stopping`) is added to Q once, after the last sweep. Adding it in
every sweep would give the same result.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any

import numpy as np

from actiongap._files import check_writable, writing
from actiongap._html import table
from actiongap._progress import StepProgress
from actiongap.mdp.checks import check_table, check_whole
from actiongap.mdp.engines import Engine, EngineName, Iterate, Progress, make_engine
from actiongap.mdp.exact import policy_backup
from actiongap.mdp.model import FiniteMDP, check_model
from actiongap.mdp.stopping import RATE_SWEEPS, StoppingRule, StoppingStatus, check_step_size
from actiongap.operators import AnyOperator, Operator, parse

MAX_LOSS_FACTOR = 1e3
"""Maximum policy loss bound, as a multiple of the tolerance. Optimality-preserving operators stay within a small multiple. Others can have
an accurate V and a suboptimal policy, because Q is shifted by a constant."""


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
    Solution(al:0.5 on single-state: V within 9e-15, 15 sweeps; q (1, 2))
    """

    q: np.ndarray
    """The final Q-function (S, A)."""
    v: np.ndarray
    """V(x) = max_a Q(x, a), (S,)."""
    policy: np.ndarray
    """The greedy action of each state (S,); ties go to the lowest index."""
    gaps: np.ndarray
    """V(x) - Q(x, a), (S, A)."""
    error_bound: float
    """Certified bound on max_x |V(x) - V*(x)|."""
    policy_loss_bound: float
    """Certified bound on max_x V*(x) - V^policy(x)."""
    gap_residual: float
    """The largest change of any action gap in the last sweep."""
    gaps_settled: bool
    """Whether the gaps are estimated to be within the tolerance of their limits."""
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

        Examples
        --------
        >>> from actiongap.mdp.generators import cake
        >>> solve(cake()).as_json()["policy"]
        [1, 0]
        """
        names = ("operator", "gamma", "tol", "engine", "sweeps", "error_bound", "policy_loss_bound", "gap_residual", "status", "note")
        tables = {name: getattr(self, name) for name in ("q", "v", "policy", "gaps")}
        shown = {name: table.tolist() for name, table in tables.items() if arrays or table.size <= LARGE_ARRAY}
        return {"mdp": self.mdp, **{name: getattr(self, name) for name in names}, **shown}

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
    file = Path(file)
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
        rounded = round(float(value), digits) + 0.0
        return f"{rounded:.3g}" if abs(rounded) >= 1e6 else f"{rounded:.6g}"

    rows = []
    for x, q in enumerate(solution.q[:SHOWN_STATES]):
        others = sorted(solution.gaps[x])[1:2]
        gap = show(others[0]) if others else "-"
        rows.append([str(x), show(solution.v[x]), str(solution.policy[x]), gap, *map(show, q[:SHOWN_ACTIONS])])
    return ["state", "V", "action", "action gap", *(f"Q(., {a})" for a in range(min(solution.q.shape[1], SHOWN_ACTIONS)))], rows


class NotConvergedError(RuntimeError):
    """Raised by `solve` if V cannot be certified; `solution` holds the last iterate."""

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
    progress: bool | None = None,
) -> Solution:
    """Iterate Q <- (1 - eta) Q + eta T'Q until V is certified to be within `tol` of V* and the gaps have settled.

    Parameters
    ----------
    mdp
        The model.
    operator
        An `Operator`, a string such as `al:0.5`, or any function of a `Backup`.
    tol
        Tolerance of the certified error |V - V*| and of the estimated error of the gaps; by default 1e-10, or what float64 can certify.
    eta
        Step size in (0, 1].
    engine
        `auto`, `arrays`, `numba` or `jax`.
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
    runner = make_engine(mdp, operator, engine, eta)
    history: list[Progress] = []
    certified_at, first_error = None, 0.0
    sequence = _sweeps(runner, start)
    with StepProgress(f"solve {mdp.name}", progress) as bar:
        bar("first sweep" if runner.name == "arrays" else "compiling")
        while True:
            now, after, change = next(sequence)
            history.append(change)
            status = rule.check(history, certified_at)
            first_error = max(first_error, status.error)
            text = f"sweep {len(history)}: |V - V*| <= {status.error:.1e}, gaps change by {change.gap_change:.1e}"
            bar(text, _fraction_done(first_error, status.error, rule.tol))
            if on_sweep:
                on_sweep(len(history), status.error, change.gap_change)
            if status.certified and certified_at is None:
                certified_at = len(history)
            if status.stop:
                # Free the memory of the next iterate for the gaps.
                sequence.close()
                del after
                break
    solution = _make_solution(mdp, operator, runner.name, rule, status, now, history)
    if throw and not solution.converged:
        raise NotConvergedError(solution)
    return solution


def _fraction_done(first: float, error: float, tol: float) -> float:
    """Return how far the certified error is on its way from the first one to the tolerance, on a logarithmic scale."""
    if not 0 < error < first < math.inf:
        return 0.0
    return min(math.log(first / error) / math.log(max(first, 2 * tol) / tol), 1.0)


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
    return (np.array(after.q) for _, after, _ in itertools.islice(sequence, sweeps))


def _sweeps(engine: Engine, start: np.ndarray) -> Generator[tuple[Iterate, Iterate, Progress]]:
    """Sweep forever; yield every iterate with the next one and the statistics of the sweep between them."""
    now = engine.start(start)
    while True:
        with np.errstate(over="ignore", invalid="ignore"):
            after, progress = engine.sweep(now)
        yield now, after, progress
        now = after


def _initial_q(mdp: FiniteMDP, q0: np.ndarray | None) -> np.ndarray:
    if not isinstance(mdp, FiniteMDP):
        remedy = f"actiongap.load_mdp({mdp!r}) makes one" if isinstance(mdp, str) else "make one, for example with actiongap.load_mdp"
        raise TypeError(f"mdp is of type {type(mdp).__name__}, not a FiniteMDP: {remedy}")
    return np.zeros(mdp.rewards.shape) if q0 is None else check_table("q0", q0, mdp.rewards.shape)


def _make_solution(
    mdp: FiniteMDP, operator: Operator, engine: str, rule: StoppingRule, status: StoppingStatus, last: Iterate, history: list[Progress]
) -> Solution:
    """Make the solution from the last iterate: Q shifted to the middle of its bounds, the greedy policy, and its loss bound."""
    low, high, change = history[-1]
    q = np.require(last.q, requirements="W")
    if rule.shifted and not status.diverged:
        q += (low + high) / 2 / (1 - mdp.gamma)
        high = (high - low) / 2
    policy, v = q.argmax(axis=1), q.max(axis=1)
    with np.errstate(all="ignore"):
        least = float(np.min(policy_backup(mdp, policy, v) - v))
    loss = max((high - least) / (1 - mdp.gamma), 0.0) + 2 * status.rounding
    converged = status.certified and not status.diverged and loss <= MAX_LOSS_FACTOR * rule.tol
    return Solution(
        q=q,
        v=v,
        policy=policy,
        gaps=v[:, None] - q,
        error_bound=math.inf if status.diverged else status.error,
        policy_loss_bound=math.inf if status.diverged else loss,
        gap_residual=change,
        gaps_settled=status.settled,
        converged=converged,
        status=_status(operator, rule, status, history, loss, converged),
        sweeps=len(history),
        history=np.array(history),
        operator=operator.name,
        engine=engine,
        gamma=mdp.gamma,
        tol=rule.tol,
        mdp=mdp.name,
        note=mdp.note,
    )


def commutes_with_constants(operator: Operator) -> bool:
    """Whether T'(Q + c) = T'Q + gamma c is known, from the operator or by a proof if z3 is installed."""
    if operator.commutes_with_constants is not None:
        return operator.commutes_with_constants
    try:
        from actiongap.proof import commutes
    except ImportError:
        return False
    return commutes(operator) is True


def _status(operator: Operator, rule: StoppingRule, status: StoppingStatus, history: list[Progress], loss: float, converged: bool) -> str:
    sweeps = f"{len(history)} sweep{'s' * (len(history) != 1)}"
    known = f"V is within {status.error:.1e} of V*"
    if status.diverged:
        return f"The iterates of {operator} diverged within {sweeps}: check it with `actiongap prove`."
    if not status.certified and status.rounding > rule.tol:
        remedy = f"choose a tol above {2 * status.rounding:.0e}"
        return f"{known}, the best that float64 can certify here, not within {rule.tol:.1e}: {remedy}."
    if not status.certified:
        remedy = "raise max_sweeps or tol, or check the operator with `actiongap prove`"
        return f"{known} at most, after {sweeps}, not within {rule.tol:.1e}: {remedy}."
    if not converged:
        return f"{known}, but its greedy policy may lose {loss:.1e}: check with `actiongap prove` whether {operator} preserves optimality."
    if status.settled:
        return f"{known} and the gaps have settled, after {sweeps}."
    if len(history) < RATE_SWEEPS:
        return f"{known}, after {sweeps}: too few to estimate whether the gaps have settled."
    return f"{known}, but after {sweeps} the gaps still change by {history[-1].gap_change:.1e} per sweep."
