"""Convolutions of many networks at once, as matrix products.

The agents of a population have different weights. A convolution over a population becomes a grouped convolution, which is slow. A matrix
product becomes a batched product, for which accelerators are made. There are two ways to write a convolution as a product:

- *Patches*: the receptive field of one output is a row of a matrix, which is multiplied by the kernel. On a CPU, where writing costs more
  than multiplying, a row is the receptive field of one row of a wide kernel. It is multiplied by all rows of the kernel at once, and the
  results are added at their positions.
- *Bands*, for small boards of bits: the receptive field of one row of outputs is a slice of the board's bits. It is multiplied by a matrix
  in which the kernel is repeated along the row,

      out[i, (j, f)] = sum over (dy, col, c) of board[i + dy, col, c] kernel[dy, col - j, c, f].

  Most of that matrix is zero. This is still faster on an accelerator, because far fewer patches are written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from actiongap.dqn.packing import WORD, bit_slices, bits_of, pack, unpack

WIDE_KERNEL = 64
"""Inputs per row of a kernel from which a CPU is faster with one row at a time."""


@cast(Callable[..., Any], partial(jax.custom_vjp, nondiff_argnums=(2,)))
def product(x: Any, weights: Any, precision: Any) -> Any:
    """Multiply x by weights. Both are read in the precision of x and summed in float32, and so are the products of the gradient.

    By default the gradient of a 16-bit product would read one factor in 32 bits, and write 32 bits.

    Examples
    --------
    >>> product(jnp.ones((1, 2), jnp.bfloat16), jnp.ones((2, 1)), jnp.float32).item()
    2.0
    """
    return jnp.dot(x, weights.astype(x.dtype), preferred_element_type=precision)


def _forward(x: Any, weights: Any, precision: Any) -> tuple[Any, tuple[Any, ...]]:
    return product(x, weights, precision), (x, weights)


def _backward(precision: Any, saved: tuple[Any, ...], gradient: Any) -> tuple[Any, Any]:
    x, weights = saved
    gradient, cast = gradient.astype(x.dtype), weights.astype(x.dtype)
    weight_gradient = partial(jnp.dot, preferred_element_type=weights.dtype)
    if jax.default_backend() != "cpu":
        return jnp.dot(gradient, cast.T), weight_gradient(x.T, gradient)
    # A CPU is two to three times as fast if it reads the larger matrix row by row. Without a barrier its compiler would swap the factors.
    barrier = jax.lax.optimization_barrier
    if x.shape[0] < x.shape[1]:
        return barrier(jnp.dot(cast, barrier(gradient.T))).T, weight_gradient(x.T, gradient)
    return jnp.dot(gradient, cast.T), barrier(weight_gradient(barrier(gradient.T), x)).T


product.defvjp(_forward, _backward)


def convolve(images: Any, kernel: Any, bias: Any, stride: int = 1, precision: Any = jnp.float32) -> Any:
    """Convolve images (batch, height, width, channels) without padding. The stride must divide both sides of the kernel.

    Examples
    --------
    >>> convolve(jnp.ones((1, 4, 5, 2)), jnp.ones((3, 3, 2, 1)), jnp.ones(1))[0, :, :, 0].tolist()
    [[19.0, 19.0, 19.0], [19.0, 19.0, 19.0]]
    >>> convolve(jnp.ones((1, 8, 8, 1)), jnp.ones((4, 4, 1, 1)), jnp.zeros(1), stride=2).shape
    (1, 3, 3, 1)
    """
    on_cpu = jax.default_backend() == "cpu"
    images = _bytes_to_words(images) if on_cpu else images.astype(precision)
    if stride > 1:
        # Blocks of stride x stride pixels become the channels of a smaller image, on which the stride is 1.
        images, kernel = _space_to_depth(images, stride), _space_to_depth(kernel.transpose(3, 0, 1, 2), stride).transpose(1, 2, 3, 0)
    kernel_height, kernel_width, channels, filters = kernel.shape
    height, width = images.shape[1] - kernel_height + 1, images.shape[2] - kernel_width + 1
    if on_cpu and kernel_width * channels >= WIDE_KERNEL:
        patches, kernel_rows = [images[:, :, j : j + width] for j in range(kernel_width)], kernel_height
    else:
        patches = [images[:, i : i + height, j : j + width] for i in range(kernel_height) for j in range(kernel_width)]
        kernel_rows = 1
    inputs = _words_to_bytes(jnp.concatenate(patches, axis=3)).astype(precision)
    weights = kernel.reshape(kernel_rows, -1, filters).transpose(1, 0, 2).reshape(-1, kernel_rows * filters)
    outputs: Any = product(inputs.reshape(-1, inputs.shape[3]), weights, precision)
    parts = outputs.reshape(*inputs.shape[:3], kernel_rows, filters)
    return sum((parts[:, i : i + height, :, i] for i in range(kernel_rows)), bias.astype(precision))


def _space_to_depth(images: Any, side: int) -> Any:
    batch, rows, columns, channels = images.shape
    images = images[:, : rows // side * side, : columns // side * side]
    blocks = images.reshape(batch, rows // side, side, columns // side, side, channels).transpose(0, 1, 3, 2, 4, 5)
    return blocks.reshape(batch, rows // side, columns // side, -1)


def _bytes_to_words(images: Any) -> Any:
    """Return images of four bytes per pixel as one word per pixel, which a CPU moves as fast as one byte."""
    four = images.dtype == jnp.uint8 and images.shape[3] == 4
    return jax.lax.bitcast_convert_type(images, jnp.uint32)[..., None] if four else images


def _words_to_bytes(patches: Any) -> Any:
    return jax.lax.bitcast_convert_type(patches, jnp.uint8).reshape(*patches.shape[:3], -1) if patches.dtype == jnp.uint32 else patches


def convolve_boards(boards: Any, shape: tuple[int, int, int], kernel: Any, bias: Any, precision: Any) -> Any:
    """Convolve boolean boards of this shape, packed or not.

    Examples
    --------
    >>> convolve_boards(jnp.ones((1, 4, 5, 2), bool), (4, 5, 2), jnp.ones((3, 3, 2, 1)), jnp.ones(1), jnp.float32)[0, 1, :, 0].tolist()
    [19.0, 19.0, 19.0]
    """
    # On a CPU a matrix that is mostly zero is slower.
    if jax.default_backend() == "cpu":
        return convolve(unpack(boards, shape).astype(precision), kernel, bias, precision=precision)
    return convolve_bands(pack(boards), shape, kernel, bias, precision)


def convolve_bands(words: Any, shape: tuple[int, int, int], kernel: Any, bias: Any, precision: Any) -> Any:
    """Convolve packed boards: the receptive field of each row of outputs times the matrix in which the kernel is repeated."""
    (rows, columns, channels), (kernel_height, kernel_width, _, filters) = shape, kernel.shape
    height, width, row = rows - kernel_height + 1, columns - kernel_width + 1, columns * channels
    inputs = kernel_height * row
    bits = bit_slices(words, np.arange(height) * row, inputs + 1)
    # One more bit, which is always set, makes the bias a row of the matrix. The bits after it are cleared.
    last, one = inputs // WORD, np.uint32(1) << np.uint32(inputs % WORD)
    bits = bits[:, :, : last + 1].at[:, :, last].set(bits[:, :, last] & (one - np.uint32(1)) | one)
    bands = bits_of(bits).astype(precision).reshape(len(words) * height, -1)
    shifted = [jnp.pad(kernel, ((0, 0), (j, width - 1 - j), (0, 0), (0, 0))) for j in range(width)]
    matrix = jnp.stack(shifted, axis=3).reshape(inputs, width * filters)
    below = [jnp.tile(bias, width)[None], jnp.zeros((bands.shape[1] - inputs - 1, width * filters))]
    outputs: Any = product(bands, jnp.concatenate([matrix, *below]), precision)
    return outputs.reshape(len(words), height, width, filters)
