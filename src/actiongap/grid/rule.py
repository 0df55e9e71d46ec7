"""What a sweep over a grid does: Q <- (1 - eta) Q + eta T'Q, with the next states that T' looks at drawn or weighed.

Every engine is handed a domain, a grid and a `Rule`, and gives `Sweeps`. Randomness comes from `actiongap.grid.draws`, by place: the
place of a draw is the number of the pair, or, where noise is shared, of those coordinates only that a noisy step looks at. Pairs that differ in
other coordinates then get the same draw: each backup keeps its law, and a sweep is less work, but errors no longer average out over those
coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from actiongap.grid.domain import Discrete, Domain
from actiongap.grid.draws import UNSIGNED, draw
from actiongap.grid.points import Grid
from actiongap.maths import namespace
from actiongap.operators import Operator


@dataclass(frozen=True)
class Rule:
    """An operator, and how it is applied to a grid."""

    operator: Operator
    gamma: float
    eta: float = 0.1
    """How far Q moves towards T'Q in a sweep: 1 replaces it."""
    samples: int = 1
    """How many next states are drawn for each pair; noise with a list of values is weighed exactly instead."""
    shared: bool = False
    """Whether pairs that differ only in coordinates that no noisy step looks at share their draws."""
    of_values: bool = False
    """Whether V is interpolated rather than Q: the aggregation of the paper."""
    seed: int = 0

    def __post_init__(self) -> None:
        self.operator.plain()
        if not 0 <= self.gamma < 1:
            raise ValueError(f"gamma is {self.gamma!r}: it must be at least 0 and below 1")
        if not 0 < self.eta <= 1:
            raise ValueError(f"eta is {self.eta!r}: it must be above 0 and at most 1")
        if self.samples < 1:
            raise ValueError(f"samples is {self.samples!r}: it must be a whole number of at least 1")


class Sweeps(Protocol):
    """Sweeps of one rule on one grid, by some engine that keeps the table as it likes it."""

    def put(self, q: np.ndarray) -> Any:
        """The engine's table from Q(z, a), (points, actions)."""
        ...

    def get(self, table: Any) -> np.ndarray:
        """Q(z, a) from the engine's table, float32."""
        ...

    def advance(self, table: Any, first: int, count: int) -> tuple[Any, float]:
        """Sweeps numbered from `first` on, `count` of them: the table after, and max |T'Q - Q| in the last. The table before is lost."""
        ...


class Noise(NamedTuple):
    """The draws behind the backup of a pair: value k is `low` + `width` draw((place actions + a) K + k), or `values[k]`."""

    drawn: bool
    values: np.ndarray
    """Noise values (K,); 0 where they are drawn."""
    shares: np.ndarray
    """What each of the K weighs."""
    low: float
    width: float
    strides: tuple[int, ...]
    """The place of a grid point is the sum of its index along each axis times these."""


def noise_of(domain: Domain, grid: Grid, rule: Rule) -> Noise:
    """How noise is drawn on a grid.

    Examples
    --------
    >>> from actiongap.domains.bicycle import bicycle
    >>> from actiongap.operators import parse
    >>> domain = bicycle()
    >>> noise_of(domain, Grid(domain.axes(8)), Rule(parse("bellman"), 0.99, shared=True)).strides
    (512, 64, 8, 1, 0, 0)
    """
    strides = grid.strides
    if rule.shared:
        seen = {i for factor in domain.factors if factor.noisy for i in factor.inputs}
        shape = [size if i in seen else 1 for i, size in enumerate(grid.shape)]
        strides = tuple(math.prod(shape[i + 1 :]) if i in seen else 0 for i in range(len(shape)))
    if isinstance(domain.noise, Discrete):
        return Noise(False, np.array(domain.noise.values), np.array(domain.noise.probabilities), 0.0, 0.0, strides)
    low, high = domain.noise
    return Noise(True, np.zeros(rule.samples), np.full(rule.samples, 1 / rule.samples), low, high - low, strides)


def noise_at(noise: Noise, grid: Grid, z: Any, actions: int, key: Any) -> list[tuple[Any, float]]:
    """The noise of all actions at the grid points numbered z, K arrays (points, actions) or numbers, each with its share.

    Examples
    --------
    >>> from actiongap.grid.axes import uniform
    >>> weighed = Noise(False, np.array([-1.0, 1.0]), np.array([0.25, 0.75]), 0.0, 0.0, (1,))
    >>> noise_at(weighed, Grid((uniform(0.0, 1.0, 2),)), np.arange(2), 1, key=np.uint32(0))
    [(-1.0, 0.25), (1.0, 0.75)]
    """
    shares = noise.shares.tolist()
    if not noise.drawn:
        return list(zip(noise.values.tolist(), shares, strict=True))
    unsigned = namespace(z).uint32
    place = (0 * z).astype(unsigned)
    for stride, size, step in zip(grid.strides, grid.shape, noise.strides, strict=True):
        place = place + (z // stride % size).astype(unsigned) * np.uint32(step & 0xFFFFFFFF)
    pair = place[:, None] * np.uint32(actions) + namespace(z).arange(actions, dtype=unsigned)
    drawn = [draw(key, pair * np.uint32(len(shares)) + np.uint32(k), UNSIGNED) for k in range(len(shares))]
    return [(noise.low + noise.width * u, share) for u, share in zip(drawn, shares, strict=True)]
