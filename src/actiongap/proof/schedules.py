"""Decide whether the sum over k of 1 / (m_0 m_1 ... m_k) diverges for a sequence of factors m_k.

In sweep k an operator keeps m_k times a gap and adds what the backups differ by. Theorem 4 (docs/theory.md) says that V_k converges to V*
if this sum is infinite from every k on, and that otherwise some MDP has a start from which V_k does not. For m_k = alpha_k it is the
criterion of advantage learning with alpha_k in sweep k.

- Independent draws of one distribution: the sum is infinite almost surely if and only if E log m <= 0.
- A function m(k): the sum is infinite if m(k) <= 1 + 1 / (k - c) from some k on, and finite if m(k) >= 1 + r / (k + c) with r > 1.

`mean_log` decides the first exactly where m is uniform, and `mean_log_bounds` encloses it for any other function of the draw.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

DIGITS = 60
"""Digits of logarithms. E log m of a uniform m between two different rationals is never zero, by Lindemann and Weierstrass."""


def mean_log(low: Fraction, high: Fraction) -> Decimal:
    """Return E log m for m uniform on [low, high], 0 <= low <= high, to `DIGITS` digits.

    Examples
    --------
    >>> [mean_log(Fraction(0), Fraction(h)) > 0 for h in (2, 3)]
    [False, True]
    >>> mean_log(Fraction(1), Fraction(1)) == 0
    True
    """
    with localcontext() as context:
        context.prec = DIGITS
        if low == high:
            return _log(low)
        difference = high - low
        integral = _decimal(high) * _log(high) - (_decimal(low) * _log(low) if low else Decimal(0))
        return integral / _decimal(difference) - 1


def mean_log_bounds(largest: Callable[[Fraction, Fraction], tuple[Fraction, Fraction]], cells: int = 64) -> tuple[float, float]:
    """Bound E log m(u) for u uniform on [0, 1]; `largest` returns the smallest and the largest m in an interval of u, or bounds on them.

    Examples
    --------
    >>> low, high = mean_log_bounds(lambda first, last: (2 * first, 2 * last))
    >>> low < math.log(2) - 1 < high
    True
    """
    edges = [Fraction(i, cells) for i in range(cells + 1)]
    bounds = [largest(first, last) for first, last in itertools.pairwise(edges)]
    low, high = (sum(math.log(pair[side]) if pair[side] > 0 else -math.inf for pair in bounds) / cells for side in (0, 1))
    return low - 1e-9, high + 1e-9


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _log(value: Fraction) -> Decimal:
    return _decimal(value).ln() if value > 0 else Decimal("-Infinity")
