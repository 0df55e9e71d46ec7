"""Q-networks: pure functions of their parameters and of a batch of observations.

Images go through convolutions and a hidden layer, vectors through two hidden layers. Small boards get the network of the MinAtar paper,
larger images that of the Nature paper on DQN.
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
    """A convolutional layer."""

    filters: int
    kernel: int
    stride: int = 1

    def output_side(self, side: int) -> int:
        """Return the side of the output for an image of this side."""
        return side // self.stride - self.kernel // self.stride + 1


SMALL, SMALL_HIDDEN = (Convolution(16, 3),), (128,)
"""The network of the MinAtar paper."""
LARGE, LARGE_HIDDEN = (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3)), (512,)
"""The network of the Nature paper on DQN."""
LARGE_MIN_SIDE = 36
"""Images of at least this side get the large network."""
VECTOR_HIDDEN = (120, 84)
"""Hidden layers for observations that are vectors."""
MASKED_VALUE = -1e9
"""Q-value of an action that is masked."""


class Network(NamedTuple):
    """A Q-network."""

    init: Callable[[Any], Any]
    """Return new parameters from a key."""
    apply: Callable[[Any, Any], Any]
    """Return Q(x, .) of a batch of observations, (batch, actions), from parameters, which may have been cast."""
    layers: tuple[str, ...]
    """Names of the layers, in the order of the parameters: `conv.0`, `hidden.0`, `output`."""
    cast: Callable[[Any], Any]
    """Cast the weights of dense layers to the precision of matrix products, which saves time if they are read several times."""


def q_network(shape: tuple[int, ...], actions: int, dueling: bool = False, precision: Any = jnp.float32) -> Network:
    """Return a network for observations of this shape: images (height, width, channels), or anything else as vectors.

    Parameters
    ----------
    shape
        Shape of one observation.
    actions
        Number of actions.
    dueling
        Whether Q is a value plus advantages whose mean is zero.
    precision
        Precision of the inputs of matrix products. Sums are always float32.

    Examples
    --------
    >>> network = q_network((10, 10, 4), 3)
    >>> network.apply(network.init(jax.random.key(0)), jnp.zeros((5, 10, 10, 4))).shape
    (5, 3)
    >>> network.layers
    ('conv.0', 'hidden.0', 'output')
    """
    convolutions, hidden = (), VECTOR_HIDDEN
    if len(shape) == 3:
        convolutions, hidden = (LARGE, LARGE_HIDDEN) if min(shape[:2]) >= LARGE_MIN_SIDE else (SMALL, SMALL_HIDDEN)
    *spatial, channels = shape if len(shape) == 3 else (math.prod(shape),)
    shapes: list[tuple[int, ...]] = []
    for layer in convolutions:
        shapes.append((layer.kernel, layer.kernel, channels, layer.filters))
        spatial, channels = [layer.output_side(side) for side in spatial], layer.filters
    sizes = (math.prod(spatial) * channels, *hidden, actions + 1 if dueling else actions)
    shapes += itertools.pairwise(sizes)

    def init(key: Any) -> Any:
        return [dense(k, weights) for k, weights in zip(jax.random.split(key, len(shapes)), shapes, strict=True)]

    def cast(layers: Any) -> Any:
        return [(weights.astype(precision) if weights.ndim == 2 else weights, bias) for weights, bias in layers]

    def apply(layers: Any, observations: Any) -> Any:
        x = observations if convolutions else unpack(observations, shape)
        for k, layer in enumerate(convolutions):
            weights, bias = layers[k]
            if x.dtype == jnp.bool_ or is_packed(x):
                x = convolve_boards(x, shape, weights, bias, precision)  # pyright: ignore[reportArgumentType]
            else:
                # Bytes are exact in any precision, and bytes / 255 are not: divide the kernel instead.
                weights = weights / 255 if x.dtype == jnp.uint8 else weights
                x = convolve(x, weights, bias, layer.stride, precision)
            x = jax.nn.relu(x)
        x = x.reshape(len(x), -1)
        for k, (weights, bias) in enumerate(layers[len(convolutions) :]):
            x = (jax.nn.relu(x) if k else x).astype(precision)
            x = product(x, weights, jnp.float32) + bias
        if dueling:
            value, advantage = x[:, :1], x[:, 1:]
            x = value + advantage - advantage.mean(axis=1, keepdims=True, where=advantage > MASKED_VALUE / 2)
        return x

    names = (*(f"conv.{k}" for k in range(len(convolutions))), *(f"hidden.{k}" for k in range(len(hidden))), "output")
    return Network(init, apply, names, cast)


def dense(key: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return weights of this shape and biases for its last axis, uniform in +-1 / sqrt(inputs) as in PyTorch.

    Examples
    --------
    >>> weights, bias = dense(jax.random.key(0), (4, 2))
    >>> weights.shape, bias.shape, bool(abs(weights).max() <= 0.5)
    ((4, 2), (2,), True)
    """
    bound = 1.0 / math.sqrt(math.prod(shape[:-1]))
    weight_key, bias_key = jax.random.split(key)
    weights = jax.random.uniform(weight_key, shape, minval=-bound, maxval=bound)
    return weights, jax.random.uniform(bias_key, shape[-1:], minval=-bound, maxval=bound)


def limit_actions(layers: Any, actions: Any, dueling: bool = False) -> Any:
    """Limit a network to its first actions.

    The others have the Q-value `MASKED_VALUE` in all states. They are never taken, so they have no gradient and keep that value.

    Examples
    --------
    >>> network = q_network((2,), 3)
    >>> network.apply(limit_actions(network.init(jax.random.key(0)), 2), jnp.ones((1, 2)))[0, 2].item()
    -1000000000.0
    """
    *others, (weights, bias) = layers
    available = jnp.arange(len(bias)) < actions + dueling
    return [*others, (jnp.where(available, weights, 0.0), jnp.where(available, bias, MASKED_VALUE))]
