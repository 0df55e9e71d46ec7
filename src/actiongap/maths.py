"""Elementary functions for arrays of any library, for floats, and inside Numba kernels.

With these functions, arithmetic and comparisons, a simulator or an operator is written once. `maths.sin(x)` calls the array library of x;
`actiongap._numba` defines each function for scalars inside a kernel. Combine conditions with `&` and `|`, and select with `where`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_jax_array

__all__ = ["acos", "asin", "atan", "atan2", "clip", "cos", "exp", "floor"]
__all__ += ["maximum", "minimum", "sign", "sin", "sqrt", "tan", "where", "wrap"]


def namespace(*values: Any) -> Any:
    """Return the array library of the values; NumPy for plain numbers.

    Examples
    --------
    >>> namespace(1.0, 2).__name__
    'numpy'
    """
    # Called for every operation, so the common case comes first.
    for value in values:
        if not isinstance(value, (np.ndarray, float, int, np.generic)):
            if is_tensor(value):
                from actiongap import _torch

                return _torch
            # NumPy scalars combine with the arrays of any library.
            return array_namespace(*(value for value in values if not isinstance(value, (float, int, np.generic))))
    return np


def is_tensor(value: Any) -> bool:
    """Whether a value is a PyTorch tensor. It does not import PyTorch, and `torch.compile` can trace it.

    Examples
    --------
    >>> is_tensor(np.zeros(2))
    False
    """
    return type(value).__module__.partition(".")[0] == "torch"


def top_two(q: Any) -> tuple[Any, Any]:
    """Return the largest and the second-largest value along the last axis; the largest twice if there is only one.

    Examples
    --------
    >>> best, second = top_two(np.array([[0.0, 3.0, 1.0], [2.0, 2.0, 1.0]]))
    >>> best.tolist(), second.tolist()
    ([3.0, 2.0], [1.0, 2.0])
    """
    count = min(2, q.shape[-1])
    if is_jax_array(q):
        from jax.lax import top_k

        largest = top_k(q, count)[0]
        return largest[..., 0], largest[..., -1]
    ordered = np.partition(q, -count, axis=-1) if isinstance(q, np.ndarray) else namespace(q).sort(q, axis=-1)
    return ordered[..., -1], ordered[..., -count]


def action_gap(q: Any) -> Any:
    """Return the action gap, the best minus the second-best value along the last axis; 0 if there is only one action.

    Examples
    --------
    >>> action_gap(np.array([[0.0, 3.0, 1.0], [2.0, 2.0, 1.0]])).tolist()
    [2.0, 0.0]
    """
    best, second = top_two(q)
    return best - second


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
    """Elementwise maximum of two values, in their array library.

    Examples
    --------
    >>> maximum(1.0, 2.0)
    2.0
    """
    if isinstance(x, float) and isinstance(y, float):
        return x if x >= y or x != x else y
    return namespace(x, y).maximum(x, y)


def minimum(x: Any, y: Any) -> Any:
    """Elementwise minimum of two values, in their array library.

    Examples
    --------
    >>> minimum(1.0, 2.0)
    1.0
    """
    if isinstance(x, float) and isinstance(y, float):
        return x if x <= y or x != x else y
    return namespace(x, y).minimum(x, y)


def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where the condition holds and `y` elsewhere. Combine conditions with `&` and `|`, not with `and` and `or`.

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
    """Clip x to the interval [low, high].

    Examples
    --------
    >>> clip(3.0, 0.0, 2.0)
    2.0
    """
    return minimum(maximum(x, low), high)


def wrap(angle: Any) -> Any:
    """Wrap an angle into [-pi, pi).

    Examples
    --------
    >>> round(float(wrap(4.0)), 6)
    -2.283185
    """
    return angle - 2 * pi * floor((angle + pi) / (2 * pi))
