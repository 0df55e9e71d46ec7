"""Symbols that an operator can be applied to: unknown real numbers, as z3 terms with the array interface.

A `Symbol` has an array namespace, so the operators' `maximum`, `minimum` and `where` dispatch to z3 as they dispatch to NumPy. Floats are
converted to the simplest nearby fraction (0.9 to 9/10, 1 - 0.9 to 1/10), since a proof is over real numbers, without rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from numbers import Real
from typing import Any, ClassVar

import z3


class UndecidedError(Exception):
    """The solver gave no answer, or the operator uses an operation that symbols do not support."""


class Truth:
    """A condition on symbols. Combine conditions with `&`, `|` and `~`."""

    def __init__(self, term: Any):
        self.term = term

    def __and__(self, other: Any) -> Truth:
        return Truth(z3.And(self.term, _truth(other)))

    def __or__(self, other: Any) -> Truth:
        return Truth(z3.Or(self.term, _truth(other)))

    def __invert__(self) -> Truth:
        return Truth(z3.Not(self.term))

    def __eq__(self, other: Any) -> Truth:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Truth(self.term == _truth(other))

    def __ne__(self, other: Any) -> Truth:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Truth(self.term != _truth(other))

    __rand__: ClassVar[Callable[[Any, Any], Truth]] = __and__
    __ror__: ClassVar[Callable[[Any, Any], Truth]] = __or__
    __xor__: ClassVar[Callable[[Any, Any], Truth]] = __ne__
    __rxor__: ClassVar[Callable[[Any, Any], Truth]] = __ne__
    __hash__: ClassVar[None] = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def __bool__(self) -> bool:
        raise UndecidedError("the operator branches on its numbers: write where(condition, x, y) and combine conditions with & and |")

    def __array_namespace__(self, api_version: str | None = None) -> type[Namespace]:
        return Namespace


class Symbol:
    """An unknown real number."""

    __array_ufunc__ = None  # NumPy scalars defer arithmetic with symbols to this class.

    def __init__(self, term: Any):
        self.term = term

    def __add__(self, other: Any) -> Symbol:
        return Symbol(self.term + term(other))

    def __sub__(self, other: Any) -> Symbol:
        return Symbol(self.term - term(other))

    def __rsub__(self, other: Any) -> Symbol:
        return Symbol(term(other) - self.term)

    def __mul__(self, other: Any) -> Symbol:
        return Symbol(self.term * term(other))

    def __truediv__(self, other: Any) -> Symbol:
        return Symbol(self.term / term(other))

    def __rtruediv__(self, other: Any) -> Symbol:
        return Symbol(term(other) / self.term)

    def __pow__(self, power: int) -> Symbol:
        if power != int(power) or power < 0:
            raise UndecidedError(f"a symbol cannot be raised to the power {power!r}: use a whole number of at least 0")
        return Symbol(math.prod([self.term] * int(power), start=z3.RealVal(1)))

    def __neg__(self) -> Symbol:
        return Symbol(-self.term)

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        return Namespace.maximum(self, -self)

    __radd__: ClassVar[Callable[[Any, Any], Symbol]] = __add__
    __rmul__: ClassVar[Callable[[Any, Any], Symbol]] = __mul__

    def __le__(self, other: Any) -> Truth:
        return Truth(self.term <= term(other))

    def __lt__(self, other: Any) -> Truth:
        return Truth(self.term < term(other))

    def __ge__(self, other: Any) -> Truth:
        return Truth(self.term >= term(other))

    def __gt__(self, other: Any) -> Truth:
        return Truth(self.term > term(other))

    def __eq__(self, other: Any) -> Truth:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Truth(self.term == term(other))

    def __ne__(self, other: Any) -> Truth:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Truth(self.term != term(other))

    __hash__: ClassVar[None] = None  # pyright: ignore[reportIncompatibleMethodOverride]
    __bool__: ClassVar[Callable[[Any], bool]] = Truth.__bool__

    def __array_namespace__(self, api_version: str | None = None) -> type[Namespace]:
        return Namespace


class Namespace:
    """The part of the array API that operators use, on symbols."""

    @staticmethod
    def maximum(x: Any, y: Any) -> Symbol:
        """The maximum of two terms."""
        return Namespace.where(Truth(term(x) >= term(y)), x, y)

    @staticmethod
    def minimum(x: Any, y: Any) -> Symbol:
        """The minimum of two terms."""
        return Namespace.where(Truth(term(x) <= term(y)), x, y)

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Symbol:
        """`x` where the condition holds and `y` elsewhere."""
        return Symbol(z3.If(_truth(condition), term(x), term(y)))

    @staticmethod
    def abs(x: Any) -> Symbol:
        """The absolute value."""
        return abs(x)


def symbol(name: str) -> Symbol:
    """Make a symbol."""
    return Symbol(z3.Real(name))


def term(value: Any) -> Any:
    """Return the z3 term of a symbol or a number."""
    if isinstance(value, Symbol):
        return value.term
    if isinstance(value, Real):
        fraction = rational(value)
        return z3.Q(fraction.numerator, fraction.denominator)
    raise UndecidedError(f"the operator mixes symbols with a {type(value).__name__}: use numbers, maximum, minimum and where")


def rational(value: Any) -> Fraction:
    """Return a number as a fraction: a simple one within a few units in the last place if it exists, its decimal digits otherwise.

    Examples
    --------
    >>> rational(1 - 0.9)
    Fraction(1, 10)
    """
    if isinstance(value, Fraction):
        return value
    number = float(value)
    if not math.isfinite(number):
        raise UndecidedError(f"the operator contains the number {number}: use finite numbers")
    simple = Fraction(number).limit_denominator(10**6)
    return simple if abs(float(simple) - number) <= 4 * math.ulp(number) else Fraction(repr(number))


def number(model: z3.ModelRef, value: Any) -> float:
    """Return the value of a symbol in a model."""
    found: Any = model.eval(term(value), model_completion=True)
    if z3.is_algebraic_value(found):
        found = found.approx(20)
    return float(found.as_fraction())


def fraction(model: z3.ModelRef, value: Any) -> Fraction | None:
    """Return the exact value of a symbol in a model, or None if it is no rational number."""
    found: Any = model.eval(term(value), model_completion=True)
    return Fraction(found.numerator_as_long(), found.denominator_as_long()) if z3.is_rational_value(found) else None


def find(constraints: Sequence[Truth], milliseconds: int = 10_000) -> z3.ModelRef | None:
    """Return a model of the constraints, or None if there is provably none."""
    solver = z3.Solver()
    solver.set("timeout", milliseconds)
    solver.add(*[constraint.term for constraint in constraints])
    answer = solver.check()
    if answer == z3.unknown:
        raise UndecidedError(f"the solver gave no answer within {milliseconds / 1000:g} seconds")
    return solver.model() if answer == z3.sat else None


def denominators(value: Symbol) -> list[Symbol]:
    """Return all denominators of the symbol that are not plain numbers."""
    found, seen, stack = [], set(), [value.term]
    while stack:
        node = stack.pop()
        if node.get_id() in seen:
            continue
        seen.add(node.get_id())
        stack += node.children()
        if z3.is_div(node) and not z3.is_rational_value(node.arg(1)):
            found.append(Symbol(node.arg(1)))
    return found


def restrict(value: Symbol, numbers: Mapping[str, Any]) -> Symbol:
    """Put numbers or symbols in the place of variables; the others stay.

    Examples
    --------
    >>> restrict(symbol("x") * symbol("y"), {"x": 2}).term
    2*y
    """
    return Symbol(z3.simplify(z3.substitute(value.term, *[(z3.Real(name), term(found)) for name, found in numbers.items()])))


def constant(value: Symbol) -> Fraction | None:
    """Return the number that a symbol is, or None if it has variables left.

    Examples
    --------
    >>> constant(symbol("x") - symbol("x") + 0.5)
    Fraction(1, 2)
    """
    found: Any = z3.simplify(value.term)
    return Fraction(found.numerator_as_long(), found.denominator_as_long()) if z3.is_rational_value(found) else None


def substitute(value: Symbol, numbers: dict[str, float]) -> float:
    """Evaluate a symbol with the given numbers for its variables."""
    found = constant(restrict(value, numbers))
    return math.nan if found is None else float(found)


def _truth(value: Any) -> Any:
    if isinstance(value, Symbol):
        return bool(value)
    return value.term if isinstance(value, Truth) else z3.BoolVal(bool(value))
