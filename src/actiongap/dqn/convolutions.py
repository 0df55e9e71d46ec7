"""Convolutions of pictures by many networks at once, as products of matrices.

Many agents train side by side, each with weights of its own. A convolution over such a population becomes a grouped one, which is slow; a
product of matrices becomes a batched one, which is what accelerators are made for. There are two ways to make a product of it:

- *Patches*: all that one output looks at is a row of a matrix, which is multiplied with the kernel. On a CPU, to which writing costs more
  than multiplying, a row of a matrix is what one row of a broad kernel looks at. It is multiplied with all rows of the kernel at once, and
  what comes out is added up where it belongs.
- *Bands*, for small boards of bits: all that one row of outputs looks at is a stretch of the bits of the board, and is multiplied with a
  matrix in which the kernel is repeated along the row,

      out[i, (j, f)] = sum over (dy, col, c) of board[i + dy, col, c] kernel[dy, col - j, c, f].

  Most of that matrix is zero, and it is faster all the same on an accelerator, which has to write far fewer patches.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from actiongap.dqn.packing import WORD, bits_of, pack, stretches, unpack

BROAD = 64
"""Numbers that a row of a kernel looks at, from which on a CPU is quicker with rows one by one."""


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def product(x: Any, weights: Any, precision: Any) -> Any:
    """X times weights, both read in the precision of x and added up in float32; so are the products of the gradient.

    Left to itself, the gradient of a product of 16-bit numbers would read 32 bits of one of them, and write as many.

    Examples
    --------
    >>> product(jnp.ones((1, 2), jnp.bfloat16), jnp.ones((2, 1)), jnp.float32).item()
    2.0
    """
    return jnp.dot(x, weights.astype(x.dtype), preferred_element_type=precision)


def _forward(x: Any, weights: Any, precision: Any) -> tuple[Any, tuple]:
    return product(x, weights, precision), (x, weights)


def _backward(precision: Any, seen: tuple, gradient: Any) -> tuple[Any, Any]:
    x, weights = seen
    gradient, light = gradient.astype(x.dtype), weights.astype(x.dtype)
    of_weights = partial(jnp.dot, preferred_element_type=weights.dtype)
    if jax.default_backend() != "cpu":
        return jnp.dot(gradient, light.T), of_weights(x.T, gradient)
    # A CPU is two or three times as quick if it reads the larger matrix row by row. Its compiler would turn products around if it saw them.
    whole = jax.lax.optimization_barrier
    if x.shape[0] < x.shape[1]:
        return whole(jnp.dot(light, whole(gradient.T))).T, of_weights(x.T, gradient)
    return jnp.dot(gradient, light.T), whole(of_weights(whole(gradient.T), x)).T


product.defvjp(_forward, _backward)


def convolve(pictures: Any, kernel: Any, bias: Any, stride: int = 1, precision: Any = jnp.float32) -> Any:
    """A convolution of pictures (batch, rows, columns, channels) without padding. The stride divides both sides of the kernel.

    Examples
    --------
    >>> convolve(jnp.ones((1, 4, 5, 2)), jnp.ones((3, 3, 2, 1)), jnp.ones(1))[0, :, :, 0].tolist()
    [[19.0, 19.0, 19.0], [19.0, 19.0, 19.0]]
    >>> convolve(jnp.ones((1, 8, 8, 1)), jnp.ones((4, 4, 1, 1)), jnp.zeros(1), stride=2).shape
    (1, 3, 3, 1)
    """
    on_cpu = jax.default_backend() == "cpu"
    pictures = _in_words(pictures) if on_cpu else pictures.astype(precision)
    if stride > 1:
        # Blocks of stride x stride are the channels of a smaller picture, over which the kernel moves one by one.
        pictures, kernel = _in_blocks(pictures, stride), _in_blocks(kernel.transpose(3, 0, 1, 2), stride).transpose(1, 2, 3, 0)
    tall, wide, channels, filters = kernel.shape
    high, across = pictures.shape[1] - tall + 1, pictures.shape[2] - wide + 1
    if on_cpu and wide * channels >= BROAD:
        looks, apart = [pictures[:, :, j : j + across] for j in range(wide)], tall
    else:
        looks, apart = [pictures[:, i : i + high, j : j + across] for i in range(tall) for j in range(wide)], 1
    numbers = _out_of_words(jnp.concatenate(looks, axis=3)).astype(precision)
    weights = kernel.reshape(apart, -1, filters).transpose(1, 0, 2).reshape(-1, apart * filters)
    found: Any = product(numbers.reshape(-1, numbers.shape[3]), weights, precision)
    parts = found.reshape(*numbers.shape[:3], apart, filters)
    return sum((parts[:, i : i + high, :, i] for i in range(apart)), bias.astype(precision))


def _in_blocks(pictures: Any, side: int) -> Any:
    batch, rows, columns, channels = pictures.shape
    pictures = pictures[:, : rows // side * side, : columns // side * side]
    blocks = pictures.reshape(batch, rows // side, side, columns // side, side, channels).transpose(0, 1, 3, 2, 4, 5)
    return blocks.reshape(batch, rows // side, columns // side, -1)


def _in_words(pictures: Any) -> Any:
    """Pictures whose pixels are words, if they are four bytes: a CPU moves these as quickly as one."""
    four = pictures.dtype == jnp.uint8 and pictures.shape[3] == 4
    return jax.lax.bitcast_convert_type(pictures, jnp.uint32)[..., None] if four else pictures


def _out_of_words(looks: Any) -> Any:
    return jax.lax.bitcast_convert_type(looks, jnp.uint8).reshape(*looks.shape[:3], -1) if looks.dtype == jnp.uint32 else looks


def convolve_boards(boards: Any, shape: tuple[int, int, int], kernel: Any, bias: Any, precision: Any) -> Any:
    """The same of boards of booleans of this shape, packed or not.

    Examples
    --------
    >>> convolve_boards(jnp.ones((1, 4, 5, 2), bool), (4, 5, 2), jnp.ones((3, 3, 2, 1)), jnp.ones(1), jnp.float32)[0, 1, :, 0].tolist()
    [19.0, 19.0, 19.0]
    """
    # A CPU has no use for a matrix that is mostly zero.
    if jax.default_backend() == "cpu":
        return convolve(unpack(boards, shape).astype(precision), kernel, bias, precision=precision)
    return in_bands(pack(boards), shape, kernel, bias, precision)


def in_bands(words: Any, shape: tuple[int, int, int], kernel: Any, bias: Any, precision: Any) -> Any:
    """The product of all that each row of outputs looks at with the matrix in which the kernel is repeated."""
    (rows, columns, channels), (tall, wide, _, filters) = shape, kernel.shape
    high, across, row = rows - tall + 1, columns - wide + 1, columns * channels
    inputs = tall * row
    found = stretches(words, np.arange(high) * row, inputs + 1)
    # One more bit, which is always set, makes the bias a part of the matrix; whatever comes after it is no part of the band.
    last, one = inputs // WORD, np.uint32(1) << np.uint32(inputs % WORD)
    found = found[:, :, : last + 1].at[:, :, last].set(found[:, :, last] & (one - np.uint32(1)) | one)
    bands = bits_of(found).astype(precision).reshape(len(words) * high, -1)
    shifted = [jnp.pad(kernel, ((0, 0), (j, across - 1 - j), (0, 0), (0, 0))) for j in range(across)]
    matrix = jnp.stack(shifted, axis=3).reshape(inputs, across * filters)
    below = [jnp.tile(bias, across)[None], jnp.zeros((bands.shape[1] - inputs - 1, across * filters))]
    found: Any = product(bands, jnp.concatenate([matrix, *below]), precision)
    return found.reshape(len(words), high, across, filters)
