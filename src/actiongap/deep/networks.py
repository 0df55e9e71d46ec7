"""Q-networks: pure functions of their parameters and of a batch of observations.

Many agents train side by side, each with weights of its own. A convolution over such a population becomes a grouped one, which is slow. But
a board is small: all that a row of outputs looks at is a band of the board, so a convolution is a matrix product of bands of the board with
one matrix, in which the kernel is repeated along the row:

    out[i, (j, f)] = sum over (dy, col, c) of board[i + dy, col, c] kernel[dy, col - j, c, f].

Most of the matrix is zero, and it is faster all the same: products of matrices are what accelerators are made for. On a CPU patches are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

FILTERS, KERNEL, HIDDEN = 16, 3, 128
"""The network of the MinAtar paper: one convolution, one hidden layer."""
ALIGNED = 16
"""What the sides of matrices are made a multiple of."""
LAYERS = (120, 84)
"""Hidden layers for observations that are rows of numbers."""


class Network(NamedTuple):
    """A Q-network."""

    init: Callable[[Any], Any]
    """New parameters, from a key."""
    apply: Callable[[Any, Any], Any]
    """Q(x, .) of a batch of observations, (batch, actions), from parameters."""


def q_network(shape: tuple[int, ...], actions: int, dueling: bool = False, precision: Any = jnp.float32) -> Network:
    """The network that suits observations of this shape: boards (rows, columns, channels), or rows of numbers.

    Parameters
    ----------
    shape
        Of one observation.
    actions
        How many there are.
    dueling
        Whether Q is put together from a value and advantages whose mean is zero.
    precision
        What matrix products read; they add up in float32 always.

    Examples
    --------
    >>> network = q_network((10, 10, 4), 3)
    >>> network.apply(network.init(jax.random.key(0)), jnp.zeros((5, 10, 10, 4))).shape
    (5, 3)
    """
    outputs = actions + 1 if dueling else actions
    if len(shape) == 3:
        across = (shape[0] - KERNEL + 1, shape[1] - KERNEL + 1)
        sizes = (math.prod(across) * FILTERS, HIDDEN, outputs)
    else:
        sizes = (math.prod(shape), *LAYERS, outputs)

    def init(key: Any) -> Any:
        first, *keys = jax.random.split(key, len(sizes))
        layers = [dense(k, (n, m)) for k, n, m in zip(keys, sizes, sizes[1:], strict=False)]
        kernel = (KERNEL, KERNEL, shape[-1], FILTERS)
        return [dense(first, kernel), *layers] if len(shape) == 3 else layers

    def apply(layers: Any, observations: Any) -> Any:
        x = observations.astype(precision)
        if len(shape) == 3:
            x, layers = jax.nn.relu(convolve(x, *layers[0])), layers[1:]
        x = x.reshape(len(x), -1)
        for k, (weights, bias) in enumerate(layers):
            x = jax.nn.relu(x).astype(precision) if k else x
            x = product(x, weights, jnp.float32) + bias
        if dueling:
            value, advantage = x[:, :1], x[:, 1:]
            x = value + advantage - advantage.mean(axis=1, keepdims=True)
        return x

    return Network(init, apply)


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
    return product(x, weights, precision), (x, weights.astype(x.dtype))


def _backward(precision: Any, seen: tuple, gradient: Any) -> tuple[Any, Any]:
    x, weights = seen
    gradient = gradient.astype(x.dtype)
    return jnp.dot(gradient, weights.T), jnp.dot(x.T, gradient, preferred_element_type=jnp.float32)


product.defvjp(_forward, _backward)


def dense(key: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Weights of this shape and biases for its last axis, uniform within one over the square root of the inputs, as PyTorch's are.

    Examples
    --------
    >>> weights, bias = dense(jax.random.key(0), (4, 2))
    >>> weights.shape, bias.shape, bool(abs(weights).max() <= 0.5)
    ((4, 2), (2,), True)
    """
    within = 1.0 / math.sqrt(math.prod(shape[:-1]))
    one, other = jax.random.split(key)
    return jax.random.uniform(one, shape, minval=-within, maxval=within), jax.random.uniform(
        other, shape[-1:], minval=-within, maxval=within
    )


def convolve(boards: Any, kernel: Any, bias: Any) -> Any:
    """A convolution of boards (batch, rows, columns, channels) without padding, as one product of matrices, in the precision of the boards.

    Examples
    --------
    >>> convolve(jnp.ones((1, 4, 5, 2)), jnp.ones((3, 3, 2, 1)), jnp.ones(1))[0, :, :, 0].tolist()
    [[19.0, 19.0, 19.0], [19.0, 19.0, 19.0]]
    """
    high, across = boards.shape[1] - kernel.shape[0] + 1, boards.shape[2] - kernel.shape[1] + 1
    # A CPU has no use for a matrix that is mostly zero.
    form = in_patches if jax.default_backend() == "cpu" else in_bands
    return form(boards, kernel, bias).reshape(len(boards), high, across, -1)


def in_patches(boards: Any, kernel: Any, bias: Any) -> Any:
    """The product of all that each output looks at with the kernel."""
    tall, wide, channels, filters = kernel.shape
    high, across = boards.shape[1] - tall + 1, boards.shape[2] - wide + 1
    looks = [boards[:, i : i + high, j : j + across] for i in range(tall) for j in range(wide)]
    patches = jnp.concatenate(looks, axis=3).reshape(-1, tall * wide * channels)
    return product(patches, kernel.reshape(-1, filters), boards.dtype) + bias.astype(boards.dtype)


def in_bands(boards: Any, kernel: Any, bias: Any) -> Any:
    """The product of all that each row of outputs looks at with the matrix in which the kernel is repeated."""
    batch, rows, columns, channels = boards.shape
    tall, wide, _, filters = kernel.shape
    high, across = rows - tall + 1, columns - wide + 1
    inputs = tall * columns * channels
    # A column of ones makes the bias a part of the matrix, and zeros make its height a multiple of what accelerators like.
    spare = -(inputs + 1) % ALIGNED
    bands = jnp.stack([boards[:, i : i + tall].reshape(batch, inputs) for i in range(high)], axis=1)
    ends = [jnp.ones((batch, high, 1), boards.dtype), jnp.zeros((batch, high, spare), boards.dtype)]
    shifted = [jnp.pad(kernel, ((0, 0), (j, across - 1 - j), (0, 0), (0, 0))) for j in range(across)]
    matrix = jnp.stack(shifted, axis=3).reshape(inputs, across * filters)
    below = [jnp.tile(bias, across)[None], jnp.zeros((spare, across * filters))]
    bands = jnp.concatenate([bands, *ends], axis=2).reshape(batch * high, -1)
    return product(bands, jnp.concatenate([matrix, *below]), boards.dtype)
