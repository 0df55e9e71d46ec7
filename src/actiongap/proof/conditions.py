"""The two conditions of Theorem 1, decided for all MDPs at once.

The theorem asks of an operator T' that, for some alpha below 1 and every Q, x and a,

    1.  T'Q(x, a) <= T Q(x, a)
    2.  T'Q(x, a) >= T Q(x, a) - alpha [V(x) - Q(x, a)].

Both are inequalities between the numbers of one backup, so "for every MDP" means "for all numbers that a backup can hold". Those are
described by `linear_axioms` and `products`; z3 looks for numbers that break a condition. None: proved. Some: a counterexample. The
extension of the theorem to alpha = 1 (docs/theory.md) covers operators that need the whole gap.

Where an operator draws a number at every update, its draw u is one more symbol, from 0 to 1, and "for every MDP" means "and every draw".

The axioms leave `again` unbounded above, as Q-value interpolation does; of finite MDPs and aggregation, `again <= bellman` is true too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import numpy as np
import z3

from actiongap.operators import AnyOperator, Backup, Operator, OperatorError, backup, check_discount, parse
from actiongap.proof.symbols import Symbol, Truth, UndecidedError, denominators, find, number, rational, substitute, symbol

Claim = Literal["optimality_preserving", "gap_increasing"]


@dataclass(frozen=True)
class Witness:
    """An MDP (deterministic: action a in state x pays `rewards[x][a]` and leads to `successors[x][a]`) and a start that goes wrong."""

    kind: Literal["fixed point", "divergence", "cycle"]
    gamma: float
    rewards: list[list[float]]
    successors: list[list[int]]
    q0: list[list[float]]
    v: list[float]
    """V of the iterates: at rest, at the start of the cycle, or when last looked at."""
    v_star: list[float]
    sentence: str


WitnessSearch = Callable[[Operator, tuple[float, ...]], dict[Claim, Witness]]
"""Looks for small MDPs with these discounts on which iterating an operator goes wrong."""


@dataclass(frozen=True)
class Verdict:
    """What is known of an operator."""

    operator: str
    gamma: float | None
    """The discount asked about; None for all of them."""
    condition_1: bool | None
    """Whether T'Q <= T Q; None where undecided."""
    condition_2: bool | None
    """Whether T'Q >= T Q - alpha (V - Q) for some alpha up to 1; None where undecided."""
    alpha: float | Literal["gamma"] | None
    """The least alpha for which condition 2 holds: a number, or "gamma" where only an alpha that grows with the discount will do."""
    optimality_preserving: bool | None
    """True where proved, False where a witness was found, None where neither."""
    gap_increasing: bool | None
    """True where proved, False where a witness was found, None where neither."""
    commutes_with_constants: bool | None
    """Whether T'(Q + c) = T'Q + gamma c."""
    counterexample: dict[str, Any] | None
    """Numbers of a backup that break a condition, and a sentence that reads them."""
    witness: dict[str, Any] | None
    """For each claim that is False, a small MDP on which iterating the operator is seen to go wrong."""
    summary: str
    """The verdict in words."""

    @property
    def exit_code(self) -> int:
        """0: both conditions proved; 1: one is violated; 3: undecided."""
        if self.condition_1 and self.condition_2:
            return 0
        return 1 if self.condition_1 is False or self.condition_2 is False else 3


def decide(operator: AnyOperator, gamma: float | None = None, find_witnesses: WitnessSearch = lambda operator, discounts: {}) -> Verdict:
    """Decide both conditions of Theorem 1 for every MDP, or for every MDP with the discount `gamma`.

    Where a condition is violated, `find_witnesses` looks for MDPs that refute the theorem's conclusions. `actiongap.prove` passes
    `actiongap.mdp.witness.find_witnesses`.

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
        operator.at(0.5)(Backup(*[1.0] * len(Backup._fields)))  # What fails on numbers is no operator.
    try:
        question = _Question(operator, gamma)
    except UndecidedError as reason:
        return _verdict(operator, gamma, summary=f"Undecided: {reason}.")
    first, undecided_1 = _settle(question.violation_of_1)
    second, undecided_2 = _settle(question.violation_of_2)
    alpha = None
    if second is None and not undecided_2:
        # Where the least alpha is undecided, 1 is known to do.
        alpha = _settle(question.least_alpha)[0]
        alpha = 1.0 if alpha is None else alpha
    found: dict[str, Any] = {
        "condition_1": None if undecided_1 else first is None,
        "condition_2": None if undecided_2 else second is None,
        "alpha": alpha,
        "commutes_with_constants": _settle(lambda: question.shift_that_matters() is None)[0],
        "counterexample": first or second,
    }
    if found["condition_1"] and found["condition_2"]:
        return _verdict(operator, gamma, **found, optimality_preserving=True, gap_increasing=True, summary=_proved(question, alpha, gamma))
    if found["counterexample"] is None:
        return _verdict(operator, gamma, **found, summary=f"Undecided: {undecided_1 or undecided_2}.")
    # An operator may go wrong only at some discounts; the counterexample names one.
    discounts = (gamma,) if gamma is not None else (0.5, 0.9, found["counterexample"]["gamma"])
    # Drawing the same number for ever shows nothing of an operator that draws anew.
    witnesses = find_witnesses(operator, discounts) if operator.draw is None else {}
    return _verdict(
        operator,
        gamma,
        **found,
        **dict.fromkeys(witnesses, False),
        witness={claim: asdict(witness) for claim, witness in witnesses.items()} or None,
        summary=_refuted(question, found, witnesses),
    )


def commutes(operator: Operator) -> bool | None:
    """Whether T'(Q + c) = T'Q + gamma c for every backup and constant; None where undecided.

    Examples
    --------
    >>> from actiongap.operators import advantage, lazy
    >>> commutes(advantage(0.5)), commutes(lazy(0.5))
    (True, False)
    """
    return _settle(lambda: _Question(operator, None).shift_that_matters() is None)[0]


class _Question:
    """An operator run once on the symbols of a backup, and what one may ask of the result."""

    def __init__(self, operator: Operator, gamma: float | None):
        if operator.temperature is not None:
            policy = f"a policy of temperature {operator.temperature:g}"
            raise UndecidedError(f"the theorem does not speak of {operator}, which looks at {policy}")
        self.backup = b = Backup(*[symbol(name) for name in Backup._fields])
        u = symbol("u")
        self.drawn = {"u": u} if operator.draw else {}
        self.operator = operator.at(u)
        self.linear_axioms = linear_axioms(b) + ([u >= 0, u <= 1] if self.drawn else [])
        self.axioms = [*self.linear_axioms, *products(b)]
        self.gamma_is_free = gamma is None
        if gamma is not None:
            self.axioms.append(b.gamma == rational(gamma))
        self.value = _run(self.operator, b)
        if any(find([*self.axioms, divisor == 0]) is not None for divisor in denominators(self.value)):
            raise UndecidedError("the operator divides by something that may be zero")
        _compare_with_floats(operator, self.value, gamma)

    def violation_of_1(self) -> dict[str, Any] | None:
        """Numbers for which T'Q exceeds T Q."""
        return self._counterexample(1, self.value - self.backup.bellman)

    def violation_of_2(self) -> dict[str, Any] | None:
        """Numbers for which T'Q falls short of T Q by more than the whole gap."""
        return self._counterexample(2, self.backup.bellman - self.backup.gap - self.value)

    def least_alpha(self) -> float | Literal["gamma"]:
        """The least alpha in [0, 1] for which condition 2 holds, knowing that it holds at 1."""
        if self._holds_with(Fraction(0)):
            return 0.0
        below, above = Fraction(0), Fraction(1)
        while above - below > Fraction(1, 10**10):
            middle = (below + above) / 2
            below, above = (below, middle) if self._holds_with(middle) else (middle, above)
        if above < 1:
            return float(self._simplest(below, above))
        return "gamma" if self.gamma_is_free and self._holds_with(self.backup.gamma) else 1.0

    def shift_that_matters(self) -> z3.ModelRef | None:
        """Numbers and a constant c for which T'(Q + c) is not T'Q + gamma c."""
        b, c = self.backup, symbol("c")
        moved = b._replace(
            q=b.q + c, v=b.v + c, bellman=b.bellman + b.gamma * c, again=b.again + b.gamma * c, repeat=b.repeat + b.gamma * c
        )
        return self._search(_run(self.operator, moved) != self.value + b.gamma * c)

    def holds_for_finite_mdps(self) -> bool:
        """Whether both conditions hold where `again` is at most `bellman`, as it is in finite MDPs and aggregation."""
        b = self.backup
        broken = (self.value > b.bellman) | (self.value < b.bellman - b.gap)
        return self._search(b.again <= b.bellman, broken) is None

    def _holds_with(self, alpha: Fraction | Symbol) -> bool:
        return self._search(self.value < self.backup.bellman - alpha * self.backup.gap) is None

    def _search(self, *constraints: Truth) -> z3.ModelRef | None:
        """Numbers of a backup that satisfy the constraints, or None if there are provably none."""
        # Most often the linear axioms leave none already, and without products of symbols the solver is quick and sure.
        if self.gamma_is_free and find([*self.linear_axioms, *constraints]) is None:
            return None
        return find([*self.axioms, *constraints])

    def _simplest(self, below: Fraction, above: Fraction) -> Fraction:
        """The simplest number of an interval that still works: the bisection's end is only near to it."""
        for digits in range(1, 10):
            simple = ((above + below) / 2).limit_denominator(10**digits)
            if below < simple <= above + Fraction(1, 10**10) and self._holds_with(simple):
                return simple
        return above

    def _counterexample(self, condition: int, excess: Symbol) -> dict[str, Any] | None:
        model = self._search(excess > 0)
        if model is None:
            return None
        for preference in self._preferences(excess):
            nicer, _ = _settle(partial(find, [*self.axioms, excess > 0, *preference], milliseconds=1000))
            if nicer is not None:
                model = nicer
                break
        numbers = {name: number(model, value) for name, value in (self.drawn | self.backup._asdict()).items()}
        numbers["value"] = number(model, self.value)
        return {"condition": condition, **numbers, "sentence": _sentence(condition, numbers)}

    def _preferences(self, excess: Symbol) -> list[list[Truth]]:
        """What makes a counterexample easy to read, most of it first: small numbers, a clear violation, a backup of a finite MDP."""
        b = self.backup
        small = [abs(value) <= 10 for value in (b.q, b.v, b.bellman, b.again, b.next_gap)]
        clear = [excess >= Fraction(1, 10)]
        finite = [b.again <= b.bellman]
        plain = [b.gamma == Fraction(1, 2)] if self.gamma_is_free else []
        return [small + clear + finite + plain, small + clear + finite, small + clear + plain, small + clear, finite, small]


def linear_axioms(b: Backup) -> list[Truth]:
    """What is true of the numbers of every backup, whatever the MDP and Q, without saying what multiplies what."""
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
    """What else is true of them: which are products of which."""
    return [b.repeat == b.bellman - b.gamma * b.next_gap, b.again >= b.bellman - b.gamma * b.gap]


def _run(operator: Operator, b: Backup) -> Symbol:
    try:
        value = operator(b)
    except OperatorError as error:
        if isinstance(error.__cause__, UndecidedError):
            raise error.__cause__ from None
        raise UndecidedError(f"{error}, on symbols") from error
    return value if isinstance(value, Symbol) else b.q * 0 + value


def _compare_with_floats(operator: Operator, value: Symbol, gamma: float | None) -> None:
    """Refuse to speak of an operator that does on symbols something else than on numbers: one that draws lots, say, or looks at types."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        # Multiples of 1/1024, exact as floats; the only ties are those of special cases: no gap, no next gap, never back, no discount.
        q, v, reward, next_q, next_v, stay, discount, u = (rng.integers(0, 8192, 8) / 1024).tolist()
        v, next_v = q + v * rng.integers(0, 2), next_q + next_v * rng.integers(0, 2)
        discount = discount / 8 * rng.integers(0, 2) if gamma is None else gamma
        b = backup(discount, reward, q, v, next_v, next_q, stay / 8 * rng.integers(0, 2))
        if b.again < b.repeat:
            b = b._replace(again=b.repeat)
        seen, expected = float(operator.at(u / 8)(b)), substitute(value, b._asdict() | {"u": u / 8})
        if not abs(seen - expected) <= 1e-9 * max(1.0, abs(seen)):
            raise UndecidedError(f"the operator gives {seen:g} on numbers where its symbols say {expected:g}")


def _settle(question: Callable[[], Any]) -> tuple[Any, str]:
    """The answer and no reason, or None and the reason why there is no answer."""
    try:
        return question(), ""
    except UndecidedError as reason:
        return None, str(reason)


def _verdict(operator: Operator, gamma: float | None, summary: str, **found: Any) -> Verdict:
    decided: dict[str, Any] = dict.fromkeys(set(Verdict.__dataclass_fields__) - {"operator", "gamma", "summary"}) | found
    return Verdict(operator=operator.name, gamma=gamma, summary=summary, **decided)


def _sentence(condition: int, numbers: dict[str, float]) -> str:
    shown = {name: f"{value:.6g}" for name, value in numbers.items()}
    drawn = f"u = {shown['u']}, " if "u" in shown else ""
    situation = (
        f"Let {drawn}gamma = {shown['gamma']}, Q(x,a) = {shown['q']}, V(x) = {shown['v']}, T Q(x,a) = {shown['bellman']}, "
        f"again = {shown['again']} and E[V(x') - Q(x',a)] = {shown['next_gap']}."
    )
    where = "" if numbers["again"] <= numbers["bellman"] else " Only Q-value interpolation has backups with again above T Q."
    if condition == 1:
        return f"{situation} Then T'Q(x,a) = {shown['value']}, which is above T Q(x,a).{where}"
    limit = f"{numbers['bellman'] - numbers['gap']:.6g}"
    return f"{situation} Then T'Q(x,a) = {shown['value']}, which is below T Q(x,a) - [V(x) - Q(x,a)] = {limit}.{where}"


def _proved(question: _Question, alpha: float | Literal["gamma"] | None, gamma: float | None) -> str:
    where = "every MDP" if gamma is None else f"every MDP with gamma = {gamma:g}"
    where += " and every draw" if question.drawn else ""
    if alpha == 1.0:
        return (
            f"Both conditions are proved for {where}, condition 2 with alpha = 1: no smaller number is known to serve them all. "
            "Optimality-preserving and gap-increasing by the extension of the theorem to alpha = 1 (docs/theory.md), which the paper "
            "leaves open."
        )
    shown = alpha if isinstance(alpha, str) else f"{alpha:g}"
    return f"Both conditions of the theorem are proved for {where}, with alpha = {shown}: optimality-preserving and gap-increasing."


def _refuted(question: _Question, found: dict[str, Any], witnesses: dict[Claim, Witness]) -> str:
    broken = [f"condition {i}" for i in (1, 2) if found[f"condition_{i}"] is False]
    text = f"{' and '.join(broken).capitalize()} {'fails' if len(broken) == 1 else 'fail'}{' for some draws' if question.drawn else ''}."
    failures: dict[Claim, str] = {"optimality_preserving": "does not preserve optimality", "gap_increasing": "is not gap-increasing"}
    for claim, what in failures.items():
        if claim in witnesses:
            return f"{text} The operator {what}: {witnesses[claim].sentence}"
    if _settle(question.holds_for_finite_mdps)[0]:
        return (
            f"{text} That happens only where again exceeds T Q, in Q-value interpolation alone, which is outside the theorem; "
            "for finite MDPs and aggregation both conditions are proved."
        )
    if question.drawn:
        return f"{text} The conditions are sufficient, not necessary: whether it preserves optimality when drawn anew each time is unknown."
    return (
        f"{text} The conditions are sufficient, not necessary, and no small MDP was found on which iterating it goes wrong: "
        "whether it preserves optimality is unknown."
    )
