"""Noise: counter-based random numbers of sweeps and of episodes.

A random number here is a pure function of a key and a counter (as in Philox or `jax.random`):

    u = random_uniform(noise_key(seed, t), counter)

There is no generator state, so the numbers do not depend on the order of evaluation, the engine, the number of threads or the number of
devices. A sweep can be repeated, and an interrupted plan continues with the numbers that it would have drawn.

- **Sweeps.** t is the number of the sweep and the counter is the index of the sample: (pair index) * samples + k.
  See `actiongap.planning.backups.noise_at`.
- **Episodes.** The noise of step t in episode e is `episode_noise` of random_uniform(noise_key(episode_seed(seed), t), e). All policies get
  the same noise at the same steps on every engine (common random numbers), so different results are due to the policies.

The hash mixes 32 bits with two rounds of multiplications and shifts; its constants are from C. Wellons' search for low-bias hashes. The
same code runs on Python integers, in Numba kernels (which mask to 32 bits), and on arrays of uint32 (which wrap around, and need constants
of the same type).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from actiongap.maths import where
from actiongap.planning.simulator import Discrete, Uniform


class HashConstants(NamedTuple):
    """Constants of the hash, in the integer type of its arguments."""

    first: Any
    second: Any
    salt: Any
    mask: Any


PYTHON_INT = HashConstants(0x7FEB352D, 0x846CA68B, 0x9E3779B9, 0xFFFFFFFF)
UINT32 = HashConstants(*map(np.uint32, PYTHON_INT))
"""For uint32 arrays of NumPy or JAX."""


def hash32(x: Any, constants: HashConstants = PYTHON_INT) -> Any:
    """A 32-bit hash: every bit of the result depends on every bit of x.

    Examples
    --------
    >>> hash32(1) != hash32(2), 0 <= hash32(3) < 2**32
    (True, True)
    """
    x = x ^ (x >> 16)
    x = (x * constants.first) & constants.mask
    x = x ^ (x >> 15)
    x = (x * constants.second) & constants.mask
    return x ^ (x >> 16)


def noise_key(seed: Any, t: Any, constants: HashConstants = PYTHON_INT) -> Any:
    """The key of sweep or step t, shared by all of its random numbers. Seed and t have the integer type of the constants.

    Examples
    --------
    >>> noise_key(0, 1) != noise_key(1, 0)
    True
    """
    return hash32((hash32((seed ^ constants.salt) & constants.mask, constants) + t) & constants.mask, constants)


def random_uniform(key: Any, counter: Any, constants: HashConstants = PYTHON_INT) -> Any:
    """A uniform random number in [0, 1) with 24 bits, which float32 represents exactly.

    Examples
    --------
    >>> 0 <= random_uniform(noise_key(0, 1), 7) < 1
    True
    """
    return (hash32((hash32(counter & constants.mask, constants) + key) & constants.mask, constants) >> 8) * (1.0 / 16777216.0)


def episode_seed(seed: int) -> int:
    """The seed that episodes pass to `noise_key`: the key of sweep -1, which no plan uses.

    Examples
    --------
    >>> episode_seed(0) != episode_seed(1)
    True
    """
    return noise_key(int(seed), -1)


@lru_cache
def episode_noise(noise: Uniform | Discrete) -> Callable[[Any], Any]:
    """The inverse distribution function of the noise: maps a uniform number in [0, 1) to a noise value. Every engine can compile it.

    Examples
    --------
    >>> episode_noise(Uniform(-1.0, 1.0))(0.75)
    0.5
    >>> [episode_noise(Discrete((5.0, 7.0), (0.25, 0.75)))(u) for u in (0.0, 0.25, 0.9)]
    [5.0, 7.0, 7.0]
    """
    if isinstance(noise, Uniform):
        low, width = noise.low, noise.high - noise.low
        return lambda u: low + width * u
    *others, last = noise.values
    # Bounds have 24 bits, as uniform numbers have: float32 and float64 then choose the same value.
    bounds = np.ceil(np.cumsum(noise.probabilities) * 2**24) / 2**24
    chosen = _constant(last)
    for value, bound in reversed(list(zip(others, bounds.tolist(), strict=False))):
        chosen = _value_below(bound, value, chosen)
    return chosen


def _constant(value: float) -> Callable[[Any], Any]:
    return lambda u: value


def _value_below(bound: float, value: float, otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda u: where(u < bound, value, otherwise(u))
