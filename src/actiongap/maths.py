"""Elementary functions that run wherever operators do: on the arrays of any library, on floats, and inside Numba kernels.

A simulator written with these, arithmetic and comparisons is written once: `maths.sin(x)` finds the library that x belongs to, and
`actiongap._numba` knows what each of them is for a number inside a kernel. Join conditions with `&` and `|`, and choose with `where`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

import numpy as np
from array_api_compat import array_namespace

__all__ = ["acos", "asin", "atan", "atan2", "clip", "cos", "exp", "floor"]
__all__ += ["maximum", "minimum", "sign", "sin", "sqrt", "tan", "where", "wrap"]


def namespace(*values: Any) -> Any:
    """The array library that values come from; NumPy for plain numbers.

    Examples
    --------
    >>> namespace(1.0, 2).__name__
    'numpy'
    """
    # Asked for at every operation, so what is most often asked comes first.
    for value in values:
        if not isinstance(value, (np.ndarray, float, int, np.generic)):
            if is_tensor(value):
                from actiongap import _torch as tensors

                return tensors
            # NumPy's own numbers go with any library.
            return array_namespace(*(value for value in values if not isinstance(value, (float, int, np.generic))))
    return np


def is_tensor(value: Any) -> bool:
    """Whether a value is one of PyTorch's, asked without importing it and so that `torch.compile` can follow.

    Examples
    --------
    >>> is_tensor(np.zeros(2))
    False
    """
    return type(value).__module__.partition(".")[0] == "torch"


def _elementwise(name: str) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return getattr(namespace(x), name)(x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {name} of a number or of every element of an array."
    return function


sin: Callable[[Any], Any] = _elementwise("sin")
cos: Callable[[Any], Any] = _elementwise("cos")
tan: Callable[[Any], Any] = _elementwise("tan")
asin: Callable[[Any], Any] = _elementwise("asin")
acos: Callable[[Any], Any] = _elementwise("acos")
atan: Callable[[Any], Any] = _elementwise("atan")
sqrt: Callable[[Any], Any] = _elementwise("sqrt")
exp: Callable[[Any], Any] = _elementwise("exp")
sign: Callable[[Any], Any] = _elementwise("sign")
floor: Callable[[Any], Any] = _elementwise("floor")


def maximum(x: Any, y: Any) -> Any:
    """The larger of two values, element by element, in whatever array library they come from.

    Examples
    --------
    >>> maximum(1.0, 2.0)
    2.0
    """
    if isinstance(x, float) and isinstance(y, float):
        return x if x >= y or x != x else y
    return namespace(x, y).maximum(x, y)


def minimum(x: Any, y: Any) -> Any:
    """The smaller of two values, element by element, in whatever array library they come from.

    Examples
    --------
    >>> minimum(1.0, 2.0)
    1.0
    """
    if isinstance(x, float) and isinstance(y, float):
        return x if x <= y or x != x else y
    return namespace(x, y).minimum(x, y)


def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where the condition holds and `y` elsewhere. Join conditions with `&` and `|`, not with `and` and `or`.

    Examples
    --------
    >>> where(1.0 < 2.0, 3.0, 4.0)
    3.0
    """
    if isinstance(condition, (bool, np.bool_)):
        return x if condition else y
    return namespace(condition, x, y).where(condition, x, y)


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
