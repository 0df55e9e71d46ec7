"""Operators inside Numba kernels: the functions of `actiongap.operators`, compiled and inlined.

Numba supports a `Backup`, a named tuple. This module defines `maximum`, `minimum` and `where` for scalars, and compiles the
functions that an operator calls together with it. An operator that Numba cannot compile is not an error: `compile_operator` returns None,
and the engines fall back to arrays.
"""

from __future__ import annotations

import dis
import math
from collections.abc import Callable
from types import BuiltinFunctionType, CellType, FunctionType
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher
from numba.extending import overload

from actiongap import maths
from actiongap.operators import Backup, Operator


@overload(maths.maximum)
def _maximum(x, y):
    return lambda x, y: x if x >= y or x != x else y


@overload(maths.minimum)
def _minimum(x, y):
    return lambda x, y: x if x <= y or x != x else y


@overload(maths.where)
def _where(condition, x, y):
    return lambda condition, x, y: x if condition else y


def _compile_elementary(name: str, meaning: Callable) -> None:
    overload(getattr(maths, name), strict=False)(lambda *arguments: meaning)


_ELEMENTARY: dict[str, Callable] = {
    "sin": lambda x: math.sin(x),
    "cos": lambda x: math.cos(x),
    "tan": lambda x: math.tan(x),
    "asin": lambda x: math.asin(x),
    "acos": lambda x: math.acos(x),
    "atan": lambda x: math.atan(x),
    "atan2": lambda y, x: math.atan2(y, x),
    "sqrt": lambda x: math.sqrt(x),
    "exp": lambda x: math.exp(x),
    "floor": lambda x: math.floor(x),
    "sign": lambda x: (x > 0) * 1.0 - (x < 0) * 1.0,
    "clip": maths.clip,
    "wrap": maths.wrap,
}
for _name, _meaning in _ELEMENTARY.items():
    _compile_elementary(_name, _meaning)

_PRIMITIVES = (maths.maximum, maths.minimum, maths.where, *(getattr(maths, name) for name in _ELEMENTARY))


def compile_function(function: Callable) -> Any:
    """Compile a function with Numba, together with every Python function and operator that it calls."""
    return _jit(function, {})


def compile_operator(operator: Operator) -> Any | None:
    """Compile an operator into a Numba function of a `Backup` of floats, or return None if Numba cannot compile it.

    Examples
    --------
    >>> from actiongap.operators import advantage
    >>> compile_operator(advantage(0.5))(Backup(0.9, 0.0, 1.0, 2.0, 2.0, 1.0, 0.0, 2.0))
    1.5
    """
    try:
        compiled = compile_function(operator.apply)
        compiled(Backup(*[1.0] * len(Backup._fields)))
    except Exception:
        # Numba raises many kinds of errors; a genuine error of the operator also appears when it is applied to arrays.
        return None
    return compiled if isinstance(compiled, Dispatcher) else None


def fields_read(operator: Operator) -> set[str]:
    """Return the fields of a backup that the operator reads, found by tracing; all of them if the operator has branches.

    Examples
    --------
    >>> from actiongap.operators import advantage
    >>> sorted(fields_read(advantage(0.5)))
    ['bellman', 'gap']
    """
    seen: set[str] = set()
    if _branches(operator.apply, set()):
        return set(Backup._fields)

    class FieldRecorder:
        def __getattr__(self, name: str) -> float:
            seen.add(name)
            return 1.0

    try:
        operator(FieldRecorder())  # pyright: ignore[reportArgumentType]
    except Exception:
        return set(Backup._fields)
    return seen


def _branches(value: Any, seen: set[int]) -> bool:
    """Whether a function, or a function that it calls, contains a conditional jump."""
    if isinstance(value, Operator):
        value = value.apply
    if not isinstance(value, FunctionType) or value in _PRIMITIVES or id(value) in seen:
        return False
    seen.add(id(value))
    if any("JUMP" in instruction.opname and "IF" in instruction.opname for instruction in dis.get_instructions(value)):
        return True
    named = [value.__globals__.get(name) for name in value.__code__.co_names]
    return any(_branches(found, seen) for found in [*named, *(cell.cell_contents for cell in value.__closure__ or ())])


def _jit(value: Any, seen: dict[int, Any]) -> Any:
    """Compile a function after its closure and the globals that it uses; return other values unchanged."""
    if isinstance(value, Operator):
        value = value.apply
    if not isinstance(value, FunctionType) or value in _PRIMITIVES:
        return value
    if id(value) not in seen:
        seen[id(value)] = value  # Until it is compiled: a function may call itself.
        cells = tuple(CellType(_jit(cell.cell_contents, seen)) for cell in value.__closure__ or ())
        names = {name: value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__}
        scope = value.__globals__ | {name: _jit(found, seen) for name, found in names.items() if not isinstance(found, BuiltinFunctionType)}
        rebuilt = FunctionType(value.__code__, scope, value.__name__, value.__defaults__, cells)
        rebuilt.__kwdefaults__ = value.__kwdefaults__
        seen[id(value)] = numba.njit(rebuilt, error_model="numpy")
    return seen[id(value)]
