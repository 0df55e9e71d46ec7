"""Boolean observations packed as bits. This takes an eighth of the memory of a boolean array, and a thirty-second of a float32 array."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

WORD = 32
"""Bits per word."""


def pack(observations: Any) -> Any:
    """Pack booleans (n, ...) into words (n, words). Other observations are returned unchanged.

    Examples
    --------
    >>> pack(jnp.ones((2, 3, 3), bool)).tolist()
    [[511], [511]]
    """
    if observations.dtype != jnp.bool_:
        return observations
    bits = observations.reshape(len(observations), -1)
    words = -(-bits.shape[1] // WORD)
    bits = jnp.pad(bits, ((0, 0), (0, words * WORD - bits.shape[1]))).reshape(-1, words, WORD)
    return (bits.astype(jnp.uint32) << jnp.arange(WORD, dtype=jnp.uint32)).sum(axis=2, dtype=jnp.uint32)


def is_packed(observations: Any) -> bool:
    """Whether observations are packed.

    Examples
    --------
    >>> is_packed(pack(jnp.ones((2, 3, 3), bool))), is_packed(jnp.ones((2, 3)))
    (True, False)
    """
    return observations.dtype == jnp.uint32


def unpack(words: Any, shape: tuple[int, ...]) -> Any:
    """Undo `pack`. Observations that are not packed are returned unchanged.

    Examples
    --------
    >>> bool(unpack(pack(jnp.eye(3, dtype=bool)[None]), (3, 3))[0, 1, 1])
    True
    """
    if not is_packed(words):
        return words
    return bits_of(words)[:, : math.prod(shape)].reshape(-1, *shape).astype(jnp.bool_)


def bits_of(words: Any) -> Any:
    """Return the bits of words (..., n), lowest first, as integers (..., 32 n).

    Examples
    --------
    >>> bits_of(jnp.array([5, 1], jnp.uint32))[:3].tolist()
    [1, 0, 1]
    """
    bits = (words[..., None] >> jnp.arange(WORD, dtype=jnp.uint32)) & jnp.uint32(1)
    return bits.reshape(*words.shape[:-1], -1)


def bit_slices(words: Any, starts: Any, length: int) -> Any:
    """Return `length` bits from each start, as words (n, starts, ceil(length / 32)). The rest of the last word holds the bits that follow.

    Examples
    --------
    >>> bit_slices(jnp.array([[0b110100]], jnp.uint32), [2, 4], 2)[0, :, 0].tolist()
    [13, 3]
    """
    count = -(-length // WORD)
    positions = jnp.asarray(starts)[:, None] + WORD * jnp.arange(count)
    first, shift = positions // WORD, (positions % WORD).astype(jnp.uint32)
    padded = jnp.pad(words, ((0, 0), (0, count + 1)))
    # Two shifts: a shift by 32 is undefined on some machines.
    return (padded[:, first] >> shift) | (padded[:, first + 1] << 1 << (WORD - 1 - shift))
