"""Translate operators to JavaScript by tracing: an operator runs once on expressions that record the arithmetic.

An operator consists of arithmetic, comparisons, `maximum`, `minimum` and `where`, so running it on an `Expression` yields its formula in
JavaScript. The demo page computes with the operators of `actiongap.operators`, not with copies. Both languages evaluate float64 expressions
in the written order, so results are equal bit for bit.

The parameters of an operator, such as alpha, are in the cells of its closure. They are replaced by expressions too and become arguments of
the JavaScript function, so one translation serves every alpha.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from numbers import Real
from types import CellType, FunctionType
from typing import Any, ClassVar, NamedTuple

from actiongap.operators import Backup, Operator

ATOM, NEGATION, PRODUCT, SUM, ORDER, EQUALITY, AND, OR, CHOICE = 18, 14, 12, 11, 9, 8, 4, 3, 2
"""Operator precedence in JavaScript."""


class Expression:
    """A number or boolean as the JavaScript expression that computes it.

    Examples
    --------
    >>> x, y = Expression("x"), Expression("y")
    >>> print(x - (y - 1) * 2, 0.5 / -x)
    x - (y - 1) * 2 0.5 / -x
    """

    __array_ufunc__ = None  # NumPy scalars leave arithmetic with expressions to this class.
    __hash__: ClassVar[None] = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def __init__(self, form: str, precedence: int = ATOM, parts: tuple[tuple[Any, int], ...] = ()):
        self.form: str = form
        self.precedence: int = precedence
        self.parts: tuple[tuple[Expression, int], ...] = tuple((expression(part), least) for part, least in parts)

    def write(self, names: dict[int, str]) -> str:
        """Return the JavaScript code; `names` maps ids of subexpressions to variables."""
        return self.form.format(*(_part(part, least, names) for part, least in self.parts))

    def __str__(self) -> str:
        return self.write({})

    def __add__(self, other: Any) -> Expression:
        return _binary("+", SUM, self, other)

    def __radd__(self, other: Any) -> Expression:
        return _binary("+", SUM, other, self)

    def __sub__(self, other: Any) -> Expression:
        return _binary("-", SUM, self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _binary("-", SUM, other, self)

    def __mul__(self, other: Any) -> Expression:
        return _binary("*", PRODUCT, self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _binary("*", PRODUCT, other, self)

    def __truediv__(self, other: Any) -> Expression:
        return _binary("/", PRODUCT, self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _binary("/", PRODUCT, other, self)

    def __neg__(self) -> Expression:
        return Expression("-{}", NEGATION, ((self, ATOM),))

    def __abs__(self) -> Expression:
        return Expression("Math.abs({})", ATOM, ((self, 0),))

    def __le__(self, other: Any) -> Expression:
        return _binary("<=", ORDER, self, other)

    def __lt__(self, other: Any) -> Expression:
        return _binary("<", ORDER, self, other)

    def __ge__(self, other: Any) -> Expression:
        return _binary(">=", ORDER, self, other)

    def __gt__(self, other: Any) -> Expression:
        return _binary(">", ORDER, self, other)

    def __eq__(self, other: Any) -> Expression:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _binary("===", EQUALITY, self, other)

    def __ne__(self, other: Any) -> Expression:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _binary("!==", EQUALITY, self, other)

    def __and__(self, other: Any) -> Expression:
        return _binary("&&", AND, self, other)

    def __or__(self, other: Any) -> Expression:
        return _binary("||", OR, self, other)

    def __invert__(self) -> Expression:
        return Expression("!{}", NEGATION, ((self, ATOM),))

    def __bool__(self) -> bool:
        raise TypeError("the function branches on its numbers: write where(condition, x, y) and join conditions with & and |")

    def __array_namespace__(self, api_version: str | None = None) -> type[Namespace]:
        return Namespace


class Namespace:
    """The functions of the array API that operators use, on expressions."""

    @staticmethod
    def maximum(x: Any, y: Any) -> Expression:
        """Return the maximum of two expressions."""
        return Expression("Math.max({}, {})", ATOM, ((x, 0), (y, 0)))

    @staticmethod
    def minimum(x: Any, y: Any) -> Expression:
        """Return the minimum of two expressions."""
        return Expression("Math.min({}, {})", ATOM, ((x, 0), (y, 0)))

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Expression:
        """Return x if the condition holds, else y."""
        return Expression("{} ? {} : {}", CHOICE, ((condition, CHOICE + 1), (x, CHOICE + 1), (y, CHOICE + 1)))


def expression(value: Any) -> Expression:
    """Convert a value to an expression; a number is written with all its digits.

    Examples
    --------
    >>> print(expression(0.1), expression(-2))
    0.1 -2
    """
    if isinstance(value, Expression):
        return value
    if not isinstance(value, Real) or not math.isfinite(value):
        raise TypeError(f"{value!r} is not a finite number: use numbers, maximum, minimum and where")
    number = float(value)
    text = repr(int(number) if number.is_integer() and abs(number) < 2**53 else number)
    return Expression(text, NEGATION if text.startswith("-") else ATOM)


class Translation(NamedTuple):
    """An operator in JavaScript."""

    numbers: tuple[str, ...]
    """Names of its parameters, in order of use."""
    formula: str
    """An expression of the fields of a backup `b` and the parameters."""

    @property
    def function(self) -> str:
        """A JavaScript function of a backup and an object of the parameters."""
        return f"(b, {{{', '.join(self.numbers)}}}) => {self.formula}" if self.numbers else f"(b) => {self.formula}"


def translate(operator: Operator) -> Translation:
    """Translate an operator to JavaScript. Numbers in its closure become arguments.

    Examples
    --------
    >>> from actiongap.operators import parse
    >>> translate(parse("al:0.9")).function
    '(b, {alpha}) => b.bellman - alpha * b.gap'
    """
    numbers: dict[str, float] = {}
    b = Backup(*(Expression(f"b.{name}") for name in Backup._fields))
    found = _with_symbols(operator.plain().apply, numbers)(b)
    return Translation(tuple(numbers), str(found))


def translate_function(function: Callable[..., Any]) -> str:
    """Translate a function of numbers to a JavaScript function of the same arguments.

    The function returns a number, nested lists of numbers, or a named tuple.

    Examples
    --------
    >>> translate_function(lambda gamma, epsilon: [[1.0, -epsilon], [gamma * epsilon, 0.0]])
    '(gamma, epsilon) => [[1, -epsilon], [gamma * epsilon, 0]]'
    """
    arguments = list(inspect.signature(function).parameters)
    result = function(*map(Expression, arguments))
    head = f"({', '.join(arguments)}) =>"
    return f"{head} {_record(result)}" if hasattr(result, "_fields") else f"{head} {_nested(result)}"


def _binary(sign: str, precedence: int, left: Any, right: Any) -> Expression:
    # The right operand needs parentheses even at equal precedence: float addition is not associative.
    return Expression(f"{{}} {sign} {{}}", precedence, ((left, precedence), (right, precedence + 1)))


def _part(part: Expression, least: int, names: dict[int, str]) -> str:
    if id(part) in names:
        return names[id(part)]
    text = part.write(names)
    return f"({text})" if part.precedence < least else text


def _with_symbols(value: Any, numbers: dict[str, float]) -> Any:
    """Replace the numbers in the closure of a function, and in closures of functions in it, by expressions."""
    if isinstance(value, Operator):
        value = value.plain().apply
    if not isinstance(value, FunctionType) or not value.__closure__:
        return value
    function, cells = value, []
    for name, cell in zip(value.__code__.co_freevars, value.__closure__, strict=True):
        value = cell.cell_contents
        if isinstance(value, float):
            if numbers.setdefault(name, value) != value:
                raise TypeError(f"the operator has two parameters named {name}: give them different names")
            value = Expression(name)
        cells.append(CellType(_with_symbols(value, numbers)))
    return FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, tuple(cells))


def _nested(value: Any) -> str:
    return f"[{', '.join(map(_nested, value))}]" if isinstance(value, (list, tuple)) else str(expression(value))


def _record(found: Any) -> str:
    """Return a function body that returns an object. Each field is computed once, after the fields that it uses."""
    fields = {id(value): name for name, value in zip(found._fields, found, strict=True) if value.parts}
    names: dict[int, str] = {}
    lines: list[str] = []

    def visit(value: Expression) -> None:
        for part, _ in value.parts:
            visit(part)
        if id(value) in fields and id(value) not in names:
            lines.append(f"  const {fields[id(value)]} = {value.write(names)};")
            names[id(value)] = fields[id(value)]

    for value in found:
        visit(value)
    members = (f"{name}: {names.get(id(value)) or value}" for name, value in zip(found._fields, found, strict=True))
    return "\n".join(["{", *lines, f"  return {{ {', '.join(members)} }};", "}"])
