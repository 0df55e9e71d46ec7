"""The conditions of Theorem 1 and of its extensions, decided for all MDPs at once.

The theorem requires of an operator T' that, for some alpha below 1 and every Q, x and a,

    1.  T'Q(x, a) <= T Q(x, a)
    2.  T'Q(x, a) >= T Q(x, a) - alpha [V(x) - Q(x, a)].

Both are inequalities between the numbers of one backup, so "for every MDP" means "for all numbers that a backup can hold". The axioms
`linear_axioms` and `products` describe these numbers, and z3 searches for numbers that violate a condition. If there are none, the
condition is proved; otherwise they are a counterexample. The extension of the theorem to alpha = 1 (docs/theory.md) covers operators that
need the whole gap. alpha may also be a function a + b gamma of the discount.

For a random operator, the random number u is one more symbol, from 0 to 1, and the proof covers every value of u. For an operator that
changes with the sweep, the number k of the sweep is one more symbol, at least 0.

Where a condition fails, two more theorems may hold (docs/theory.md):

- *Averaging* (Theorem 3): for some step eta in (0, 1], which may depend on gamma,
  Q + eta (T Q - [V - Q] - Q) <= T'Q <= Q + eta (T Q - Q). No search is needed for eta: where an action is greedy both bounds are equal,
  so eta is what the operator returns for Q = V = 0 and T Q = 1.
- *Schedules* (Theorem 4): alpha may exceed 1 in some sweeps. Each sweep multiplies a gap by a factor m, which `schedules` judges.

The axioms do not bound `again` from above, because Q-value interpolation does not. For finite MDPs and aggregation, `again <= bellman` also
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import numpy as np
import z3

from actiongap._html import table
from actiongap.operators import AnyOperator, Backup, Operator, OperatorError, backup, check_discount, parse
from actiongap.proof.schedules import mean_log, mean_log_bounds
from actiongap.proof.symbols import (
    Symbol,
    Truth,
    UndecidedError,
    constant,
    denominators,
    find,
    fraction,
    number,
    rational,
    restrict,
    substitute,
    symbol,
)

Claim = Literal["optimality_preserving", "gap_increasing"]


@dataclass(frozen=True)
class Witness:
    """A deterministic MDP and an initial Q for which iterating the operator fails. Action a in state x leads to `successors[x][a]`."""

    kind: Literal["fixed point", "divergence", "cycle"]
    gamma: float
    rewards: list[list[float]]
    successors: list[list[int]]
    q0: list[list[float]]
    v: list[float]
    """V of the iterates: at the fixed point, at the start of the cycle, or after the last sweep."""
    v_star: list[float]
    sentence: str


CONDITIONS = {"condition_1": "T'Q <= T Q", "condition_2": "T'Q >= T Q - alpha (V - Q)"}
"""The conditions of Theorem 1. The second is to hold for some alpha below 1."""

ASYNCHRONOUS = ("asynchronous from a pessimistic start", "asynchronous in a fixed cyclic order")
"""Iterations that update some pairs at a time, for which Theorem 5 and Theorem 6 hold."""
MAX_COUNTEREXAMPLES = 5
"""Counterexamples after which the smallest alpha is bisected: it may be a limit that no backup attains."""
LATE = 1000
"""Sweep from which the factors of a schedule are compared with 1 + 1 / k."""

WitnessSearch = Callable[[Operator, tuple[float, ...]], dict[Claim, Witness]]
"""Searches for small MDPs with the given discounts on which iterating an operator fails."""


@dataclass(frozen=True, repr=False)
class Verdict:
    """The result of `decide`: which conditions of Theorem 1 an operator satisfies, and the properties that follow.

    In a notebook or at the prompt it shows as its sentence.

    Examples
    --------
    >>> decide("al:0.5")
    Both conditions of the theorem are proved for every MDP, with alpha = 0.5: optimality-preserving and gap-increasing.
    """

    operator: str
    gamma: float | None
    """The discount that the verdict is about; None for all discounts."""
    condition_1: bool | None
    """Whether T'Q <= T Q; None if undecided."""
    condition_2: bool | None
    """Whether T'Q >= T Q - alpha (V - Q) for some alpha up to 1; None if undecided."""
    alpha: float | str | None
    """The smallest alpha for which condition 2 holds, or with a step `eta` its averaged form: a number, or a function of the discount such
    as "gamma" or "0.5 + 0.5 gamma"."""
    optimality_preserving: bool | None
    """True if proved, False if a witness was found or Theorem 4 refutes it, None if unknown."""
    gap_increasing: bool | None
    """True if proved, False if a witness was found, None if unknown."""
    commutes_with_constants: bool | None
    """Whether T'(Q + c) = T'Q + gamma c."""
    counterexample: dict[str, Any] | None
    """Numbers of a backup that violate a condition, and a sentence that describes them."""
    witness: dict[str, Any] | None
    """For each claim that is False, a small MDP on which iterating the operator fails."""
    theorem: str | None
    """The theorem of docs/theory.md that proves the claims: "Theorem 1" to "Theorem 4"; None if nothing is proved."""
    iteration: Literal["synchronous", "averaged", "scheduled"] | None
    """The iteration that the theorem is about: one operator in every sweep, a step from Q towards one, or another one in each sweep."""
    iterations: list[str] | None
    """All iterations for which the claims are proved."""
    eta: float | str | None
    """The step of an averaged operator: a number, or a function of the discount such as "1 - gamma"."""
    summary: str
    """The verdict in sentences."""

    @property
    def exit_code(self) -> int:
        """0: proved, by both conditions or by another theorem; 1: a condition is violated; 3: undecided."""
        if (self.condition_1 and self.condition_2) or self.optimality_preserving:
            return 0
        return 1 if self.condition_1 is False or self.condition_2 is False else 3

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain values for JSON, with the text of both conditions.

        Examples
        --------
        >>> decide("al:0.5").as_json()["conditions"]["condition_1"]
        "T'Q <= T Q"
        """
        return {**asdict(self), "conditions": CONDITIONS}

    def answers(self) -> list[tuple[str, Literal["yes", "no", "unknown"], str]]:
        """Return what was asked, the answer and a remark, for each question.

        Examples
        --------
        >>> decide("al:0.5").answers()[1]
        ("condition 2: T'Q >= T Q - alpha (V - Q)", 'yes', 'least alpha: 0.5')
        """
        least = "" if self.alpha is None else f"least alpha: {self.alpha}"
        step = "" if self.eta is None else f"averaged, with eta = {self.eta}" + f" and {least}" * bool(least)
        rests_on = "" if self.theorem is None else f"{self.theorem}: {', '.join(self.iterations or [])}"
        questions = (
            (f"condition 1: {CONDITIONS['condition_1']}", self.condition_1, ""),
            (f"condition 2: {CONDITIONS['condition_2']}", self.condition_2, step or least),
            ("optimality-preserving", self.optimality_preserving, rests_on),
            ("gap-increasing", self.gap_increasing, ""),
            ("commutes with constants: T'(Q + c) = T'Q + gamma c", self.commutes_with_constants, ""),
        )
        return [(question, "unknown" if yes is None else "yes" if yes else "no", remark) for question, yes, remark in questions]

    def __repr__(self) -> str:
        return self.summary

    def _repr_html_(self) -> str:
        return table(self.answers(), title=f"{self.operator}, {self.scope()}", note=self.summary)

    def scope(self) -> str:
        """Return what the verdict is about, besides the operator: Theorem 1 for every discount, or for one.

        Examples
        --------
        >>> decide("al:0.5", gamma=0.9).scope()
        'Theorem 1 for gamma = 0.9'
        """
        return f"Theorem 1 for {'every discount' if self.gamma is None else f'gamma = {self.gamma:g}'}"


def decide(
    operator: AnyOperator,
    gamma: float | None = None,
    find_witnesses: WitnessSearch = lambda operator, discounts: {},
    on_step: Callable[[str, float], object] = lambda text, fraction: None,
) -> Verdict:
    """Decide both conditions of Theorem 1 for every MDP, or for every MDP with the discount `gamma`.

    If a condition is violated, `find_witnesses` searches for MDPs that refute the theorem's conclusions. `actiongap.prove` passes
    `actiongap.mdp.witness.find_witnesses`. `on_step` is called with the name of each step and the fraction done.

    Examples
    --------
    >>> decide("consistent").alpha
    'gamma'
    >>> decide("al:0.9").optimality_preserving
    True
    """
    operator = parse(operator)
    gamma = None if gamma is None else check_discount(gamma)
    if operator.temperature is None:
        operator.at(0.5).sweep(1)(Backup(*[1.0] * len(Backup._fields)))  # Raises if the operator fails on numbers.
    try:
        conditions = _Conditions(operator, gamma)
    except UndecidedError as reason:
        return _verdict(operator, gamma, summary=f"Undecided: {reason}.")
    on_step("condition 1", 0.0)
    first, undecided_1 = _try(conditions.violation_of_1)
    on_step("condition 2", 0.2)
    second, undecided_2 = _try(conditions.violation_of_2)
    on_step("the least alpha", 0.4)
    alpha = None
    if second is None and not undecided_2:
        # If the smallest alpha is undecided, 1 is known to be sufficient.
        alpha = _try(conditions.smallest_alpha)[0]
        alpha = 1.0 if alpha is None else alpha
    on_step("constants", 0.6)
    found: dict[str, Any] = {
        "condition_1": None if undecided_1 else first is None,
        "condition_2": None if undecided_2 else second is None,
        "alpha": alpha,
        "commutes_with_constants": _try(lambda: conditions.violation_of_commuting() is None)[0],
        "counterexample": first or second,
    }
    if found["condition_1"] and found["condition_2"]:
        theorem = "Theorem 2" if alpha == 1.0 or conditions.parameters else "Theorem 1"
        iteration = "scheduled" if conditions.parameters else "synchronous"
        covered: dict[str, Any] = {"theorem": theorem, "iteration": iteration, "iterations": [iteration, "averaged", *ASYNCHRONOUS]}
        return _verdict(
            operator, gamma, **found, **covered, optimality_preserving=True, gap_increasing=True, summary=_proved(conditions, alpha, gamma)
        )
    on_step("averages and schedules", 0.65)
    if extension := _try(conditions.extension)[0]:
        return _verdict(operator, gamma, **{**found, **extension})
    if found["counterexample"] is None:
        return _verdict(operator, gamma, **found, summary=f"Undecided: {undecided_1 or undecided_2}.")
    # An operator may fail at some discounts only, such as that of the counterexample.
    discounts = (gamma,) if gamma is not None else (0.5, 0.9, found["counterexample"]["gamma"])
    # Iterating with one fixed u, or one k, proves nothing about an operator that has another one in each sweep.
    on_step("witnesses", 0.7)
    witnesses = {} if conditions.parameters else find_witnesses(operator, discounts)
    return _verdict(
        operator,
        gamma,
        **found,
        **dict.fromkeys(witnesses, False),
        witness={claim: asdict(witness) for claim, witness in witnesses.items()} or None,
        summary=_refuted(conditions, found, witnesses),
    )


def commutes(operator: Operator) -> bool | None:
    """Whether T'(Q + c) = T'Q + gamma c for every backup and constant; None if undecided.

    Examples
    --------
    >>> from actiongap.operators import advantage, lazy
    >>> commutes(advantage(0.5)), commutes(lazy(0.5))
    (True, False)
    """
    return _try(lambda: _Conditions(operator, None).violation_of_commuting() is None)[0]


class _Conditions:
    """The conditions for an operator that was applied once to the symbols of a backup."""

    def __init__(self, operator: Operator, gamma: float | None):
        if operator.temperature is not None:
            policy = f"the policy softmax(Q / {operator.temperature:g})"
            raise UndecidedError(f"the theorem does not cover {operator}, which depends on {policy}")
        self.backup = b = Backup(*[symbol(name) for name in Backup._fields])
        u, k = symbol("u"), symbol("k")
        self.random_number = {"u": u} if operator.draw else {}
        self.sweep_number = {"k": k} if operator.at(u).schedule else {}
        self.parameters = self.random_number | self.sweep_number
        self.operator = operator.at(u).sweep(k)
        ranges = ([u >= 0, u <= 1] if self.random_number else []) + ([k >= 0] if self.sweep_number else [])
        self.linear_axioms = linear_axioms(b) + ranges
        self.axioms = [*self.linear_axioms, *products(b)]
        self.gamma, self.gamma_is_free = gamma, gamma is None
        if gamma is not None:
            self.axioms.append(b.gamma == rational(gamma))
        self.value = _run(self.operator, b)
        if any(find([*self.axioms, divisor == 0]) is not None for divisor in denominators(self.value)):
            raise UndecidedError("the operator divides by something that may be zero")
        _compare_with_floats(operator, self.value, gamma)

    def violation_of_1(self) -> dict[str, Any] | None:
        """Find numbers for which T'Q exceeds T Q."""
        return self._counterexample(1, self.value - self.backup.bellman)

    def violation_of_2(self) -> dict[str, Any] | None:
        """Find numbers for which T'Q is below T Q by more than the whole gap."""
        return self._counterexample(2, self.backup.bellman - self.backup.gap - self.value)

    def smallest_alpha(self, eta: Symbol | None = None) -> float | str:
        """Find the smallest alpha in [0, 1] for which condition 2 holds, given that it holds for alpha = 1.

        With a step `eta`, it is the condition of averaging, T'Q >= Q + eta (T Q - alpha [V - Q] - Q). If no number below 1 suffices, alpha
        may be a + (1 - a) gamma, which is below 1 for every discount.
        """
        if (attained := self._attained_alpha(eta)) is not None:
            return float(attained)
        below, above = self._bisect(lambda alpha: self._holds_with(alpha, eta))
        if above < 1:
            return float(self._simplest(below, above, lambda alpha: self._holds_with(alpha, eta)))

        def affine(a: Fraction) -> bool:
            return self._holds_with(a + (1 - a) * self.backup.gamma, eta)

        if not self.gamma_is_free:
            return 1.0
        below, above = self._bisect(affine)
        return 1.0 if above == 1 else _affine(found := self._simplest(below, above, affine), 1 - found)

    def _attained_alpha(self, eta: Symbol | None) -> Fraction | None:
        """Return the smallest alpha if it is below 1 and some backup needs it: a few counterexamples then lead to it."""
        b, alpha = self.backup, Fraction(0)
        subtracted = b.bellman - self.value if eta is None else b.bellman - b.q - (self.value - b.q) / eta
        for _ in range(MAX_COUNTEREXAMPLES):
            model = self._violation(alpha, eta)
            if model is None:
                return alpha
            part, gap = (fraction(model, value) for value in (subtracted, b.gap))
            if part is None or not gap:
                return None
            alpha = part / gap
            if alpha >= 1:
                return None
        return None

    def _bisect(self, holds: Callable[[Fraction], bool]) -> tuple[Fraction, Fraction]:
        """Return a short interval around the smallest number in [0, 1] that suffices, given that larger ones do."""
        below, above = Fraction(0), Fraction(1)
        if holds(below):
            return below, below
        while above - below > Fraction(1, 10**10):
            middle = (below + above) / 2
            below, above = (below, middle) if holds(middle) else (middle, above)
        return below, above

    def violation_of_commuting(self) -> z3.ModelRef | None:
        """Find numbers and a constant c for which T'(Q + c) is not T'Q + gamma c."""
        b, c = self.backup, symbol("c")
        moved = b._replace(
            q=b.q + c, v=b.v + c, bellman=b.bellman + b.gamma * c, again=b.again + b.gamma * c, repeat=b.repeat + b.gamma * c
        )
        return self._search(_run(self.operator, moved) != self.value + b.gamma * c)

    def holds_for_finite_mdps(self) -> bool:
        """Whether both conditions hold if `again` is at most `bellman`, as in finite MDPs and aggregation."""
        b = self.backup
        broken = (self.value > b.bellman) | (self.value < b.bellman - b.gap)
        return self._search(b.again <= b.bellman, broken) is None

    def _holds_with(self, alpha: Fraction | Symbol, eta: Symbol | None = None) -> bool:
        return self._violation(alpha, eta) is None

    def _violation(self, alpha: Fraction | Symbol, eta: Symbol | None) -> z3.ModelRef | None:
        b = self.backup
        if eta is None:
            return self._search(self.value < b.bellman - alpha * b.gap)
        return self._search(b.again <= b.bellman, self.value < b.q + eta * (b.bellman - alpha * b.gap - b.q))

    def extension(self) -> dict[str, Any] | None:
        """Return what Theorem 3 or Theorem 4 says of the operator, as fields of the verdict; None if they say nothing."""
        eta = self._step()
        if eta is None:
            return None
        fixed = constant(eta)
        if fixed != 1 and not self._outside(eta, self.backup.gap):
            return self._averaged(eta)
        return self._in_sequence(eta, fixed) if self.parameters else None

    def _step(self) -> Symbol | None:
        """Return the only step with which averaging may hold, or None if it is not in (0, 1] for every discount."""
        eta = self._at(q=0, v=0, gap=0, next_gap=0, bellman=1, again=1, repeat=1)
        if self._search((eta <= 0) | (eta > 1)) is not None:
            return None
        # Independent steps above 0 have an infinite sum; those of a schedule have, if they fall no faster than 1 / k.
        for k in self.sweep_number.values():
            if self._search(eta * (k + 1) < Fraction(1, 10**6)) is not None:
                return None
        return eta

    def _at(self, **numbers: Any) -> Symbol:
        """Return the operator's value at a backup; `gamma` stays a symbol if it is neither given nor fixed."""
        return restrict(self.value, ({} if self.gamma is None else {"gamma": rational(self.gamma)}) | numbers)

    def _outside(self, eta: Symbol, most: Symbol, *constraints: Truth) -> bool:
        """Whether T'Q leaves [Q + eta (T Q - Q) - eta * most, Q + eta (T Q - Q)] on some finite MDP."""
        b = self.backup
        above = b.q + eta * (b.bellman - b.q)
        finite = [b.again <= b.bellman, *constraints]
        return self._search(*finite, self.value > above) is not None or self._search(*finite, self.value < above - eta * most) is not None

    def _averaged(self, eta: Symbol) -> dict[str, Any]:
        alpha = _try(lambda: self.smallest_alpha(eta))[0]
        alpha, step = 1.0 if alpha is None else alpha, self._name(eta)
        where = _where(self.gamma, self.parameters).replace("MDP", "finite MDP")
        return {
            "optimality_preserving": True,
            "gap_increasing": True,
            "theorem": "Theorem 3",
            "iteration": "averaged",
            "iterations": ["averaged", ASYNCHRONOUS[0]],
            "eta": step,
            "alpha": alpha,
            "summary": (
                f"The conditions of Theorem 1 fail, and those of averaging are proved for {where}: T'Q is a step of size eta from Q "
                f"towards an operator between the bounds, with eta = {_shown(step)} and alpha = {_shown(alpha)}. Optimality-preserving and "
                "gap-increasing by Theorem 3 (docs/theory.md)."
            ),
        }

    def _name(self, eta: Symbol) -> float | str:
        """Return the step as a number, as a + b gamma, or as the solver writes it."""
        if (fixed := constant(eta)) is not None:
            return float(fixed)
        start, half = (constant(restrict(eta, {"gamma": gamma})) for gamma in (0, 0.5))
        if start is not None and half is not None:
            slope = 2 * (half - start)
            if self._search(eta != start + slope * self.backup.gamma) is None:
                return _affine(start, slope)
        return " ".join(str(eta.term).split())

    def _in_sequence(self, eta: Symbol, fixed: Fraction | None) -> dict[str, Any] | None:
        """Return what Theorem 4 says of an operator with a random number or a sweep number; its step must be a number."""
        if fixed is None or len(self.parameters) != 1:
            return None
        b, gamma = self.backup, Fraction(1, 2) if self.gamma is None else rational(self.gamma)
        for next_gap in (0, 10**6):
            # Sweeps multiply the gap by this factor, if the operator is the one that the factor describes.
            factor = -self._at(gamma=gamma, q=-1, v=0, gap=1, next_gap=next_gap, bellman=0, again=0, repeat=-gamma * next_gap)
            most = (factor - 1 + fixed) * b.gap / fixed
            if constant(restrict(factor, {name: Fraction(1, 3) for name in self.parameters})) is None or self._outside(eta, most):
                continue
            preserving, text = self._judge(factor)
            if preserving is False and self._search(self.value != b.q + eta * (b.bellman - b.q) - eta * most) is not None:
                return None
            return self._sequence_verdict(preserving, text, fixed) if preserving is not None else None
        return None

    def _judge(self, factor: Symbol) -> tuple[bool | None, str]:
        """Return whether Theorem 4 holds for factors m of this form, and why."""
        if self.sweep_number:
            return self._judge_schedule(factor, self.sweep_number["k"])
        u = self.random_number["u"]
        first, last = (constant(restrict(factor, {"u": end})) for end in (0, 1))
        if first is not None and last is not None and self._search(factor != first + (last - first) * u) is None:
            mean = mean_log(min(first, last), max(first, last))
            low = high = float(mean)
            preserving = mean <= 0
        else:
            low, high = mean_log_bounds(partial(self._factor_bounds, factor))
            preserving = True if high <= 0 else False if low > 0 else None
        mean_text = f"{low:.4g}" if low == high else f"between {low:.4g} and {high:.4g}"
        return preserving, f"each sweep multiplies gaps by an independent m with E log m = {mean_text}"

    def _factor_bounds(self, factor: Symbol, first: Fraction, last: Fraction) -> tuple[Fraction, Fraction]:
        """Return the smallest and the largest factor for draws in an interval."""
        u = self.random_number["u"]
        ends = [constant(restrict(factor, {"u": end})) for end in (first, last)]
        values = [end for end in ends if end is not None]
        inside = (u >= first) & (u <= last)
        if len(values) < 2 or self._search(inside, (factor < min(values)) | (factor > max(values))) is not None:
            raise UndecidedError("the factor of the gap is not monotone in u")
        return min(values), max(values)

    def _judge_schedule(self, factor: Symbol, k: Symbol) -> tuple[bool | None, str]:
        late = k >= LATE
        if self._search(late, (factor - 1) * (k - (LATE - 1)) > 1) is None:
            return True, f"sweep k multiplies gaps by m_k <= 1 + 1 / (k - {LATE - 1}) from k = {LATE} on"
        # Without a discount, a sweep with m = 0 ends at Q*, and what comes later does not matter.
        if self.gamma != 0 and self._search(late, (factor - 1) * (k + LATE) < Fraction(101, 100)) is None:
            return False, f"sweep k multiplies gaps by m_k >= 1 + 1.01 / (k + {LATE}) from k = {LATE} on"
        return None, ""

    def _sequence_verdict(self, preserving: bool, text: str, eta: Fraction) -> dict[str, Any]:
        step = {} if eta == 1 else {"eta": float(eta)}
        if preserving:
            surely = " almost surely" * bool(self.random_number)
            return step | {
                "optimality_preserving": True,
                "gap_increasing": True,
                "theorem": "Theorem 4",
                "iteration": "scheduled",
                "iterations": ["scheduled"],
                "summary": (
                    f"A condition fails in single sweeps, and the criterion of Theorem 4 (docs/theory.md) holds: {text}. "
                    f"Optimality-preserving and gap-increasing{surely} for {_where(self.gamma, {})}."
                ),
            }
        stays = "with a probability that tends to 1 as g grows" if self.random_number else "if g is large and k is"
        return step | {
            "optimality_preserving": False,
            "theorem": "Theorem 4",
            "iteration": "scheduled",
            "summary": (
                f"A condition fails, and so does the criterion of Theorem 4 (docs/theory.md): {text}. It does not preserve optimality: on "
                f"an MDP with one state and two actions with rewards 0 and 1, once Q = (0, -g) before sweep k, V stays 0 for ever {stays}, "
                "although the second action is optimal."
            ),
        }

    def _search(self, *constraints: Truth) -> z3.ModelRef | None:
        """Find numbers of a backup that satisfy the constraints, or return None if there are provably none."""
        # The linear axioms usually suffice, and without products of symbols the solver is fast and complete.
        if self.gamma_is_free and find([*self.linear_axioms, *constraints]) is None:
            return None
        return find([*self.axioms, *constraints])

    def _simplest(self, below: Fraction, above: Fraction, holds: Callable[[Fraction], bool]) -> Fraction:
        """Return the simplest number of an interval that suffices; the bisection only approximates it."""
        for digits in range(1, 10):
            simple = ((above + below) / 2).limit_denominator(10**digits)
            if below < simple <= above + Fraction(1, 10**10) and holds(simple):
                return simple
        return above

    def _counterexample(self, condition: int, excess: Symbol) -> dict[str, Any] | None:
        model = self._search(excess > 0)
        if model is None:
            return None
        for preference in self._preferences(excess):
            nicer, _ = _try(partial(find, [*self.axioms, excess > 0, *preference], milliseconds=1000))
            if nicer is not None:
                model = nicer
                break
        numbers = {name: number(model, value) for name, value in (self.parameters | self.backup._asdict()).items()}
        numbers["value"] = number(model, self.value)
        return {"condition": condition, **numbers, "sentence": _sentence(condition, numbers)}

    def _preferences(self, excess: Symbol) -> list[list[Truth]]:
        """Constraints that make a counterexample easy to read, strictest first: small numbers, a clear violation, a finite MDP."""
        b = self.backup
        small = [abs(value) <= 10 for value in (b.q, b.v, b.bellman, b.again, b.next_gap)]
        clear = [excess >= Fraction(1, 10)]
        finite = [b.again <= b.bellman]
        plain = [b.gamma == Fraction(1, 2)] if self.gamma_is_free else []
        return [small + clear + finite + plain, small + clear + finite, small + clear + plain, small + clear, finite, small]


def linear_axioms(b: Backup) -> list[Truth]:
    """Linear constraints that hold for the numbers of every backup, for every MDP and Q."""
    return [
        b.gamma >= 0,
        b.gamma < 1,
        b.q <= b.v,
        b.gap == b.v - b.q,
        b.next_gap >= 0,
        b.repeat <= b.bellman,
        b.repeat >= b.bellman - b.next_gap,
        b.again >= b.bellman - b.gap,
        b.again >= b.repeat,
    ]


def products(b: Backup) -> list[Truth]:
    """Nonlinear constraints that hold for the numbers of every backup."""
    return [b.repeat == b.bellman - b.gamma * b.next_gap, b.again >= b.bellman - b.gamma * b.gap]


def _run(operator: Operator, b: Backup) -> Symbol:
    try:
        value = operator(b)
    except OperatorError as error:
        if isinstance(error.__cause__, UndecidedError):
            raise error.__cause__ from None
        raise UndecidedError(f"on symbols, {error}") from error
    return value if isinstance(value, Symbol) else b.q * 0 + value


def _compare_with_floats(operator: Operator, value: Symbol, gamma: float | None) -> None:
    """Raise if the operator differs on symbols and on numbers, e.g. because it is random or branches on types."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        # Multiples of 1/1024, which are exact as floats. Ties occur in special cases only: zero gap, next gap, stay or discount.
        q, v, reward, next_q, next_v, stay, discount, u = (rng.integers(0, 8192, 8) / 1024).tolist()
        v, next_v = q + v * rng.integers(0, 2), next_q + next_v * rng.integers(0, 2)
        discount = discount / 8 * rng.integers(0, 2) if gamma is None else gamma
        b = backup(discount, reward, q, v, next_v, next_q, stay / 8 * rng.integers(0, 2))
        if b.again < b.repeat:
            b = b._replace(again=b.repeat)
        k = int(1024 * u)
        on_numbers, on_symbols = float(operator.at(u / 8).sweep(k)(b)), substitute(value, b._asdict() | {"u": u / 8, "k": k})
        if not abs(on_numbers - on_symbols) <= 1e-9 * max(1.0, abs(on_numbers)):
            raise UndecidedError(f"the operator returns {on_numbers:g} on numbers but {on_symbols:g} on symbols")


def _try(query: Callable[[], Any]) -> tuple[Any, str]:
    """Return the answer and an empty reason, or None and the reason why there is no answer."""
    try:
        return query(), ""
    except UndecidedError as reason:
        return None, str(reason)


def _verdict(operator: Operator, gamma: float | None, summary: str, **found: Any) -> Verdict:
    decided: dict[str, Any] = dict.fromkeys(set(Verdict.__dataclass_fields__) - {"operator", "gamma", "summary"}) | found
    return Verdict(operator=operator.name, gamma=gamma, summary=summary, **decided)


def _sentence(condition: int, numbers: dict[str, float]) -> str:
    text = {name: f"{value:.6g}" for name, value in numbers.items()}
    parameters = "".join(f"{name} = {text[name]}, " for name in ("u", "k") if name in text)
    situation = (
        f"Let {parameters}gamma = {text['gamma']}, Q(x,a) = {text['q']}, V(x) = {text['v']}, T Q(x,a) = {text['bellman']}, "
        f"again = {text['again']} and E[V(x') - Q(x',a)] = {text['next_gap']}."
    )
    where = "" if numbers["again"] <= numbers["bellman"] else " Only Q-value interpolation has backups with again above T Q."
    if condition == 1:
        return f"{situation} Then T'Q(x,a) = {text['value']}, which is above T Q(x,a).{where}"
    limit = f"{numbers['bellman'] - numbers['gap']:.6g}"
    return f"{situation} Then T'Q(x,a) = {text['value']}, which is below T Q(x,a) - [V(x) - Q(x,a)] = {limit}.{where}"


def _where(gamma: float | None, parameters: Iterable[str]) -> str:
    everywhere = "every MDP" if gamma is None else f"every MDP with gamma = {gamma:g}"
    return everywhere + "".join(f" and every {'sweep k' if name == 'k' else name}" for name in parameters)


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _affine(a: Fraction, b: Fraction) -> str:
    """Write a + b gamma."""
    slope = "gamma" if abs(b) == 1 else f"{float(abs(b)):.10g} gamma"
    return ("-" if b < 0 else "") + slope if a == 0 else f"{float(a):.10g} {'-' if b < 0 else '+'} {slope}"


def _proved(conditions: _Conditions, alpha: float | str | None, gamma: float | None) -> str:
    where = _where(gamma, conditions.parameters)
    if alpha == 1.0:
        return (
            f"Both conditions are proved for {where}, condition 2 with alpha = 1: no smaller alpha is known to hold for all of them. "
            "The operator is optimality-preserving and gap-increasing by the extension of the theorem to alpha = 1 (docs/theory.md), which "
            "the paper leaves open."
        )
    text = "" if alpha is None else _shown(alpha)
    return f"Both conditions of the theorem are proved for {where}, with alpha = {text}: optimality-preserving and gap-increasing."


def _refuted(conditions: _Conditions, found: dict[str, Any], witnesses: dict[Claim, Witness]) -> str:
    broken = [f"condition {i}" for i in (1, 2) if found[f"condition_{i}"] is False]
    some = "".join(f" for some {name}" for name in conditions.parameters)
    text = f"{' and '.join(broken).capitalize()} {'fails' if len(broken) == 1 else 'fail'}{some}."
    failures: dict[Claim, str] = {"optimality_preserving": "does not preserve optimality", "gap_increasing": "is not gap-increasing"}
    for claim, what in failures.items():
        if claim in witnesses:
            return f"{text} The operator {what}: {witnesses[claim].sentence}"
    if _try(conditions.holds_for_finite_mdps)[0]:
        return (
            f"{text} This requires again above T Q, which only Q-value interpolation has and the theorem does not cover; "
            "for finite MDPs and aggregation both conditions are proved."
        )
    if conditions.parameters:
        return f"{text} The conditions are sufficient, not necessary: it is unknown whether the sequence of operators preserves optimality."
    return (
        f"{text} The conditions are sufficient, not necessary, and no small MDP was found on which iterating the operator fails: "
        "it is unknown whether it preserves optimality."
    )
