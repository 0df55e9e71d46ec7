"""Sums over a few corners, written out for compiled loops.

Loops over a few corners are slow when their number is not known to the compiler, and what is kept in small arrays between two loops hides
from it that many sums could be taken side by side. So these functions are made for a number of corners: their sums are written out term by
term, and corners and weights travel in tuples, which become registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
import numpy as np

FAST: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
"""How kernels are compiled: sums may be taken in another order, but what is not a number stays none."""
inlined: Any = numba.njit(**FAST, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # pyright: ignore[reportCallIssue]
"""Compiles what only kernels call, and what must not be left as a call there."""
TOGETHER = 8
"""Corners that are added in one go: more would not find room in registers."""
Unsigned = np.uint64
"""Of indices inside kernels: a signed one would be asked each time whether it counts from the end."""


@lru_cache
def taken(count: int) -> Callable:
    """A compiled function of (row, i, stride): the tuple (row[i], row[i + stride], ...) of `count` numbers.

    Examples
    --------
    >>> three = taken(3)
    >>> numba.njit(lambda row: three(row, 0, 2))(np.arange(5))
    (0, 2, 4)
    """
    if count == 1:
        return inlined(lambda row, i, stride: (row[i],))
    half = Unsigned(count // 2)
    some, others = taken(count // 2), taken(count - count // 2)
    return inlined(lambda row, i, stride: some(row, i, stride) + others(row, Unsigned(i) + half * Unsigned(stride), stride))


@lru_cache
def weighted(count: int) -> Callable:
    """A compiled function of (values, numbers, weights, stride, i, start): start + sum_c weights[c] values[numbers[c] stride + i].

    Examples
    --------
    >>> mean = weighted(2)
    >>> numba.njit(lambda values: mean(values, (0, 1), (0.25, 0.75), 2, 1, 0.0))(np.array([0.0, 4.0, 0.0, 8.0]))
    7.0
    """
    if count == 1:
        return inlined(lambda values, numbers, weights, stride, i, start: start + weights[0] * values[numbers[0] * stride + i])
    half = count // 2
    some, others = weighted(half), weighted(count - half)

    # One sum after the other, so that each product is added in the same instruction.
    @inlined
    def chain(values, numbers, weights, stride, i, start):
        start = some(values, numbers[:half], weights[:half], stride, i, start)
        return others(values, numbers[half:], weights[half:], stride, i, start)

    return chain


def summer(corners: int, length: int) -> Callable:
    """A compiled function of (table, numbers, weights, stride, begin, out) that sums rows of a table over corners.

    For i below `length`, out[begin + i] = sum_c weights[c] table[numbers[c] stride + begin + i].
    """
    some = min(TOGETHER, corners)
    read, add = taken(some), weighted(some)

    @inlined
    def sum_up(table, numbers, weights, stride, begin, out):
        for c in range(Unsigned(0), Unsigned(corners), Unsigned(some)):
            number, weight = read(numbers, c, Unsigned(1)), read(weights, c, Unsigned(1))
            for i in range(Unsigned(length)):
                start = out[begin + i] if c > 0 else out.dtype.type(0.0)
                out[begin + i] = add(table, number, weight, stride, begin + i, start)

    return sum_up


def chooser(actions: int, returns: bool) -> Callable:
    """A compiled function of (after, q, own, a, mass): max_b after[b], and the same where the part of x' that is z has to repeat a.

    `after` is Q(x', .), q[own + b] is Q(z, b), and `mass` is A(z | x'). Unless `returns`, the second is nobody's concern and left out.
    """

    @inlined
    def choose(after, q, own, a, mass):
        best = after[0]
        for b in range(1, actions):
            best = max(best, after[b])
        if not returns:
            return best, best
        elsewhere = after[0] - mass * q[own]
        for b in range(1, actions):
            elsewhere = max(elsewhere, after[b] - mass * q[own + Unsigned(b)])
        return best, elsewhere + mass * q[own + a]

    return choose
