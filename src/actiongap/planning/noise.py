"""Random numbers that depend on nothing but their place: seed, sweep, grid point and action.

A planner draws one next state or a few for every pair in every sweep. Drawn from a generator, they would depend on the order in which pairs
are visited, and so on the engine, the number of threads and of devices. Here each is a hash of its place, so all engines draw the same, a
sweep can be repeated, and a plan that was interrupted goes on as if it had not been.

The hash mixes 32 bits with two rounds of multiplication and shifts (the constants are those found by C. Wellons' search for low bias). The
same lines run on plain integers, also inside Numba kernels, which are masked, and on arrays of unsigned 32-bit integers, which wrap by
themselves and want their constants to be of the same kind.

Chance in episodes: the noise of step t in episode e is `sway` of draw(place_key(trial_seed(seed), t), e).

It depends on nothing else, so all tables meet the same noise at the same moments, and so do all engines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from actiongap.maths import where
from actiongap.planning.simulator import Discrete, Uniform


class Words(NamedTuple):
    """The constants of the hash, of the kind that the numbers are."""

    first: Any
    second: Any
    salt: Any
    mask: Any


INTEGERS = Words(0x7FEB352D, 0x846CA68B, 0x9E3779B9, 0xFFFFFFFF)
UNSIGNED = Words(*map(np.uint32, INTEGERS))
"""For arrays of unsigned 32-bit integers, NumPy's or JAX's."""


def mix(x: Any, words: Words = INTEGERS) -> Any:
    """A number below 2^32, well stirred: every bit of it depends on every bit of x.

    Examples
    --------
    >>> mix(1) != mix(2), 0 <= mix(3) < 2**32
    (True, True)
    """
    x = x ^ (x >> 16)
    x = (x * words.first) & words.mask
    x = x ^ (x >> 15)
    x = (x * words.second) & words.mask
    return x ^ (x >> 16)


def place_key(seed: Any, sweep: Any, words: Words = INTEGERS) -> Any:
    """What all draws of one sweep have in common; seed and sweep are of the kind that the words are.

    Examples
    --------
    >>> place_key(0, 1) != place_key(1, 0)
    True
    """
    return mix((mix((seed ^ words.salt) & words.mask, words) + sweep) & words.mask, words)


def draw(key: Any, place: Any, words: Words = INTEGERS) -> Any:
    """A number drawn evenly from [0, 1) for a place of a sweep: 24 bits, which float32 holds exactly.

    Examples
    --------
    >>> 0 <= draw(place_key(0, 1), 7) < 1
    True
    """
    return (mix((mix(place & words.mask, words) + key) & words.mask, words) >> 8) * (1.0 / 16777216.0)


def trial_seed(seed: int) -> int:
    """What `place_key` takes as the seed of episodes: the key of sweep -1, by which no plan with this seed draws.

    Examples
    --------
    >>> trial_seed(0) != trial_seed(1)
    True
    """
    return place_key(int(seed), -1)


@lru_cache
def sway(noise: Uniform | Discrete) -> Callable[[Any], Any]:
    """The noise that a number drawn evenly from [0, 1) stands for, as a function that every engine compiles.

    Examples
    --------
    >>> sway(Uniform(-1.0, 1.0))(0.75)
    0.5
    >>> [sway(Discrete((5.0, 7.0), (0.25, 0.75)))(share) for share in (0.0, 0.25, 0.9)]
    [5.0, 7.0, 7.0]
    """
    if isinstance(noise, Uniform):
        low, width = noise.low, noise.high - noise.low
        return lambda share: low + width * share
    *others, last = noise.values
    # As many bits as a draw has, so that both precisions draw the line at the same place.
    bounds = np.ceil(np.cumsum(noise.probabilities) * 2**24) / 2**24
    chosen = _always(last)
    for value, bound in reversed(list(zip(others, bounds.tolist(), strict=False))):
        chosen = _below(bound, value, chosen)
    return chosen


def _always(value: float) -> Callable[[Any], Any]:
    return lambda share: value


def _below(bound: float, value: float, otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda share: where(share < bound, value, otherwise(share))
