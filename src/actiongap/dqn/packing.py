"""Boards of booleans as bits: a thirty-second of the room in memory, and of the bytes that an accelerator has to move."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

WORD = 32
"""Bits of a word."""


def pack(observations: Any) -> Any:
    """Booleans (n, ...) as words (n, words); other observations as they are.

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
    """Whether observations are words of bits.

    Examples
    --------
    >>> is_packed(pack(jnp.ones((2, 3, 3), bool))), is_packed(jnp.ones((2, 3)))
    (True, False)
    """
    return observations.dtype == jnp.uint32


def unpack(words: Any, shape: tuple[int, ...]) -> Any:
    """The observations that `pack` made words of; what it left alone as it is.

    Examples
    --------
    >>> bool(unpack(pack(jnp.eye(3, dtype=bool)[None]), (3, 3))[0, 1, 1])
    True
    """
    if not is_packed(words):
        return words
    return bits_of(words)[:, : math.prod(shape)].reshape(-1, *shape).astype(jnp.bool_)


def bits_of(words: Any) -> Any:
    """The bits of words (..., n), lowest first, as integers (..., 32 n).

    Examples
    --------
    >>> bits_of(jnp.array([5, 1], jnp.uint32))[:3].tolist()
    [1, 0, 1]
    """
    bits = (words[..., None] >> jnp.arange(WORD, dtype=jnp.uint32)) & jnp.uint32(1)
    return bits.reshape(*words.shape[:-1], -1)


def stretches(words: Any, starts: Any, length: int) -> Any:
    """The bits from each of these places on, as words (n, starts, ceil(length / 32)); what follows the length is left in.

    Examples
    --------
    >>> stretches(jnp.array([[0b110100]], jnp.uint32), [2, 4], 2)[0, :, 0].tolist()
    [13, 3]
    """
    count = -(-length // WORD)
    places = jnp.asarray(starts)[:, None] + WORD * jnp.arange(count)
    first, shift = places // WORD, (places % WORD).astype(jnp.uint32)
    long = jnp.pad(words, ((0, 0), (0, count + 1)))
    # Twice, since a shift by 32 means different things on different machines.
    return (long[:, first] >> shift) | (long[:, first + 1] << 1 << (WORD - 1 - shift))
