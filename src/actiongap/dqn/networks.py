"""Q-networks: pure functions of their parameters and of a batch of observations.

Pictures go through convolutions, then through a hidden layer; rows of numbers through two hidden layers. Small boards get the network of
the MinAtar paper, larger pictures that of the Nature paper on DQN.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from actiongap.dqn.convolutions import convolve, convolve_boards, product
from actiongap.dqn.packing import is_packed, unpack


class Convolution(NamedTuple):
    """A layer of a network for pictures."""

    filters: int
    kernel: int
    stride: int = 1

    def across(self, side: int) -> int:
        """The side of what it makes of a picture of this side."""
        return side // self.stride - self.kernel // self.stride + 1


SMALL, SMALL_HIDDEN = (Convolution(16, 3),), (128,)
"""The network of the MinAtar paper."""
LARGE, LARGE_HIDDEN = (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3)), (512,)
"""The network of the Nature paper on DQN."""
LARGE_FROM = 36
"""The side of the smallest picture that is large enough for it."""
ROWS_HIDDEN = (120, 84)
"""Hidden layers for observations that are rows of numbers."""
NEVER = -1e9
"""The value of an action that an agent does not have."""


class Network(NamedTuple):
    """A Q-network."""

    init: Callable[[Any], Any]
    """New parameters, from a key."""
    apply: Callable[[Any, Any], Any]
    """Q(x, .) of a batch of observations, (batch, actions), from parameters or from what `light` made of them."""
    light: Callable[[Any], Any]
    """Parameters whose largest matrices are kept in the precision that products read: quicker to read where they are read often."""


def q_network(shape: tuple[int, ...], actions: int, dueling: bool = False, precision: Any = jnp.float32) -> Network:
    """The network that suits observations of this shape: pictures (rows, columns, channels), or rows of numbers.

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
    convolutions, hidden = (), ROWS_HIDDEN
    if len(shape) == 3:
        convolutions, hidden = (LARGE, LARGE_HIDDEN) if min(shape[:2]) >= LARGE_FROM else (SMALL, SMALL_HIDDEN)
    *sides, channels = shape if len(shape) == 3 else (math.prod(shape),)
    shapes: list[tuple[int, ...]] = []
    for layer in convolutions:
        shapes.append((layer.kernel, layer.kernel, channels, layer.filters))
        sides, channels = [layer.across(side) for side in sides], layer.filters
    sizes = (math.prod(sides) * channels, *hidden, actions + 1 if dueling else actions)
    shapes += itertools.pairwise(sizes)

    def init(key: Any) -> Any:
        return [dense(k, weights) for k, weights in zip(jax.random.split(key, len(shapes)), shapes, strict=True)]

    def light(layers: Any) -> Any:
        return [(weights.astype(precision) if weights.ndim == 2 else weights, bias) for weights, bias in layers]

    def apply(layers: Any, observations: Any) -> Any:
        x = observations if convolutions else unpack(observations, shape)
        for k, layer in enumerate(convolutions):
            weights, bias = layers[k]
            if x.dtype == jnp.bool_ or is_packed(x):
                x = convolve_boards(x, shape, weights, bias, precision)  # pyright: ignore[reportArgumentType]
            else:
                # Bytes are whole numbers in any precision, while their 255th parts are not: so the kernel is divided.
                weights = weights / 255 if x.dtype == jnp.uint8 else weights
                x = convolve(x, weights, bias, layer.stride, precision)
            x = jax.nn.relu(x)
        x = x.reshape(len(x), -1)
        for k, (weights, bias) in enumerate(layers[len(convolutions) :]):
            x = (jax.nn.relu(x) if k else x).astype(precision)
            x = product(x, weights, jnp.float32) + bias
        if dueling:
            value, advantage = x[:, :1], x[:, 1:]
            x = value + advantage - advantage.mean(axis=1, keepdims=True, where=advantage > NEVER / 2)
        return x

    return Network(init, apply, light)


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


def forbid(layers: Any, actions: Any, dueling: bool = False) -> Any:
    """Parameters of a network in which only the first actions are ever best.

    The others have the value `NEVER` whatever is seen. Nobody takes them, so nothing is learned about them, and it stays so.

    Examples
    --------
    >>> network = q_network((2,), 3)
    >>> network.apply(forbid(network.init(jax.random.key(0)), 2), jnp.ones((1, 2)))[0, 2].item()
    -1000000000.0
    """
    *others, (weights, bias) = layers
    there = jnp.arange(len(bias)) < actions + dueling
    return [*others, (jnp.where(there, weights, 0.0), jnp.where(there, bias, NEVER))]
