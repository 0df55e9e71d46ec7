"""Python functions as JavaScript: an operator is run once, on numbers that write down what is done to them.

An operator is arithmetic, comparisons, `maximum`, `minimum` and `where`, so running it on `Expression`s leaves the whole of its formula
behind, in JavaScript. A page that carries what is found here computes with the very operators of `actiongap.operators`; nobody writes them
a second time. Both languages compute in float64 in the order that is written, so that results agree to the last bit.

An operator's own numbers, such as alpha, live in the cells of its closure. There they are replaced by expressions too, which makes them
arguments of the JavaScript function: one translation serves every alpha.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from numbers import Real
from types import CellType, FunctionType
from typing import Any, NamedTuple

from actiongap.operators import Backup, Operator

ATOM, NEGATION, PRODUCT, SUM, ORDER, EQUALITY, AND, OR, CHOICE = 18, 14, 12, 11, 9, 8, 4, 3, 2
"""How tightly the forms of JavaScript bind."""


class Expression:
    """A number, or a truth, that is known by how it came about.

    Examples
    --------
    >>> x, y = Expression("x"), Expression("y")
    >>> print(x - (y - 1) * 2, 0.5 / -x)
    x - (y - 1) * 2 0.5 / -x
    """

    __array_ufunc__ = None  # NumPy's own numbers leave arithmetic with expressions to them.
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, form: str, binding: int = ATOM, parts: tuple[tuple[Any, int], ...] = ()):
        self.form, self.binding, self.parts = form, binding, tuple((expression(part), least) for part, least in parts)

    def write(self, names: dict[int, str]) -> str:
        """The JavaScript of it, with names for what has one."""
        return self.form.format(*(_part(part, least, names) for part, least in self.parts))

    def __str__(self) -> str:
        return self.write({})

    def __add__(self, other) -> Expression:
        return _joined("+", SUM, self, other)

    def __radd__(self, other) -> Expression:
        return _joined("+", SUM, other, self)

    def __sub__(self, other) -> Expression:
        return _joined("-", SUM, self, other)

    def __rsub__(self, other) -> Expression:
        return _joined("-", SUM, other, self)

    def __mul__(self, other) -> Expression:
        return _joined("*", PRODUCT, self, other)

    def __rmul__(self, other) -> Expression:
        return _joined("*", PRODUCT, other, self)

    def __truediv__(self, other) -> Expression:
        return _joined("/", PRODUCT, self, other)

    def __rtruediv__(self, other) -> Expression:
        return _joined("/", PRODUCT, other, self)

    def __neg__(self) -> Expression:
        return Expression("-{}", NEGATION, ((self, ATOM),))

    def __abs__(self) -> Expression:
        return Expression("Math.abs({})", ATOM, ((self, 0),))

    def __le__(self, other) -> Expression:
        return _joined("<=", ORDER, self, other)

    def __lt__(self, other) -> Expression:
        return _joined("<", ORDER, self, other)

    def __ge__(self, other) -> Expression:
        return _joined(">=", ORDER, self, other)

    def __gt__(self, other) -> Expression:
        return _joined(">", ORDER, self, other)

    def __eq__(self, other) -> Expression:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _joined("===", EQUALITY, self, other)

    def __ne__(self, other) -> Expression:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _joined("!==", EQUALITY, self, other)

    def __and__(self, other) -> Expression:
        return _joined("&&", AND, self, other)

    def __or__(self, other) -> Expression:
        return _joined("||", OR, self, other)

    def __invert__(self) -> Expression:
        return Expression("!{}", NEGATION, ((self, ATOM),))

    def __bool__(self) -> bool:
        raise TypeError("the function branches on its numbers: write where(condition, x, y) and join conditions with & and |")

    def __array_namespace__(self, api_version: str | None = None) -> type[Namespace]:
        return Namespace


class Namespace:
    """The part of the array API that operators use, on expressions."""

    @staticmethod
    def maximum(x, y) -> Expression:
        """The larger of two."""
        return Expression("Math.max({}, {})", ATOM, ((x, 0), (y, 0)))

    @staticmethod
    def minimum(x, y) -> Expression:
        """The smaller of two."""
        return Expression("Math.min({}, {})", ATOM, ((x, 0), (y, 0)))

    @staticmethod
    def where(condition, x, y) -> Expression:
        """One or the other."""
        return Expression("{} ? {} : {}", CHOICE, ((condition, CHOICE + 1), (x, CHOICE + 1), (y, CHOICE + 1)))


def expression(value: Any) -> Expression:
    """The value as an expression: itself, or a number written out with all its digits.

    Examples
    --------
    >>> print(expression(0.1), expression(-2))
    0.1 -2
    """
    if isinstance(value, Expression):
        return value
    if not isinstance(value, Real) or not math.isfinite(value):
        raise TypeError(f"{value!r} is no finite number: use numbers, maximum, minimum and where")
    number = float(value)
    text = repr(int(number) if number.is_integer() and abs(number) < 2**53 else number)
    return Expression(text, NEGATION if text.startswith("-") else ATOM)


class Translation(NamedTuple):
    """An operator in JavaScript."""

    numbers: tuple[str, ...]
    """Its own numbers, by name, in the order in which they are met."""
    formula: str
    """An expression in the fields of a backup b and in its numbers."""

    @property
    def function(self) -> str:
        """A function of a backup and of an object that holds the numbers."""
        return f"(b, {{{', '.join(self.numbers)}}}) => {self.formula}" if self.numbers else f"(b) => {self.formula}"


def translate(operator: Operator) -> Translation:
    """The operator in JavaScript; what is a number in its closure becomes an argument.

    Examples
    --------
    >>> from actiongap.operators import parse
    >>> translate(parse("al:0.9")).function
    '(b, {alpha}) => b.bellman - alpha * b.gap'
    """
    numbers: dict[str, float] = {}
    b = Backup(*(Expression(f"b.{name}") for name in Backup._fields))
    found = _opened(operator.plain().apply, numbers)(b)
    return Translation(tuple(numbers), str(found))


def translate_function(function: Callable) -> str:
    """A function of numbers that gives a number, nested lists of them, or a named tuple, as a JavaScript function of the same arguments.

    Examples
    --------
    >>> translate_function(lambda gamma, epsilon: [[1.0, -epsilon], [gamma * epsilon, 0.0]])
    '(gamma, epsilon) => [[1, -epsilon], [gamma * epsilon, 0]]'
    """
    arguments = list(inspect.signature(function).parameters)
    found = function(*map(Expression, arguments))
    head = f"({', '.join(arguments)}) =>"
    return f"{head} {_record(found)}" if hasattr(found, "_fields") else f"{head} {_nested(found)}"


def _joined(sign: str, binding: int, left: Any, right: Any) -> Expression:
    # What stands to the right needs parentheses even where it binds as tightly: sums of floats are not associative.
    return Expression(f"{{}} {sign} {{}}", binding, ((left, binding), (right, binding + 1)))


def _part(part: Expression, least: int, names: dict[int, str]) -> str:
    if id(part) in names:
        return names[id(part)]
    text = part.write(names)
    return f"({text})" if part.binding < least else text


def _opened(value: Any, numbers: dict[str, float]) -> Any:
    """The function with its closure's numbers replaced by expressions, and those of functions in its closure too."""
    if isinstance(value, Operator):
        value = value.plain().apply
    if not isinstance(value, FunctionType) or not value.__closure__:
        return value
    cells = []
    for name, cell in zip(value.__code__.co_freevars, value.__closure__, strict=True):
        held = cell.cell_contents
        if isinstance(held, float):
            if numbers.setdefault(name, held) != held:
                raise TypeError(f"the operator has two numbers that are called {name}: give them names of their own")
            held = Expression(name)
        cells.append(CellType(_opened(held, numbers)))
    return FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, tuple(cells))


def _nested(value: Any) -> str:
    return f"[{', '.join(map(_nested, value))}]" if isinstance(value, (list, tuple)) else str(expression(value))


def _record(found: Any) -> str:
    """A function's body that gives an object, in which every field is computed once, after those that it is made of."""
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
    held = (f"{name}: {names.get(id(value)) or value}" for name, value in zip(found._fields, found, strict=True))
    return "\n".join(["{", *lines, f"  return {{ {', '.join(held)} }};", "}"])
