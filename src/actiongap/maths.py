"""Elementary functions that run wherever operators do: on the arrays of any library, on floats, and inside Numba kernels.

A simulator written with these, arithmetic and comparisons is written once: `maths.sin(x)` finds the library that x belongs to, and
`actiongap.compiled` knows what each of them is for a number inside a kernel. Join conditions with `&` and `|`, and choose with `where`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

from actiongap.operators import maximum, minimum, namespace, where

__all__ = ["acos", "asin", "atan", "atan2", "clip", "cos", "exp", "floor"]
__all__ += ["maximum", "minimum", "sign", "sin", "sqrt", "tan", "where", "wrap"]


def _elementwise(name: str) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return getattr(namespace(x), name)(x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {name} of a number or of every element of an array."
    return function


sin, cos, tan = _elementwise("sin"), _elementwise("cos"), _elementwise("tan")
asin, acos, atan = _elementwise("asin"), _elementwise("acos"), _elementwise("atan")
sqrt, exp, sign, floor = _elementwise("sqrt"), _elementwise("exp"), _elementwise("sign"), _elementwise("floor")


def atan2(y: Any, x: Any) -> Any:
    """The angle of the point (x, y), from -pi to pi.

    Examples
    --------
    >>> float(atan2(0.0, 1.0))
    0.0
    """
    return namespace(y, x).atan2(y, x)


def clip(x: Any, low: Any, high: Any) -> Any:
    """The nearest number to x from low to high.

    Examples
    --------
    >>> clip(3.0, 0.0, 2.0)
    2.0
    """
    return minimum(maximum(x, low), high)


def wrap(angle: Any) -> Any:
    """An angle brought into [-pi, pi) by full turns.

    Examples
    --------
    >>> round(float(wrap(4.0)), 6)
    -2.283185
    """
    return angle - 2 * pi * floor((angle + pi) / (2 * pi))
