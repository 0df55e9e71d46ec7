"""What a sweep over a grid does: Q <- (1 - eta) Q + eta T'Q, with the next states that T' looks at drawn or weighed.

Every engine takes a simulator, a grid and a `SweepConfig`, and returns `Sweeps`. Noise comes from `actiongap.planning.noise`, by place:
the place of a draw is the number of the pair, or, where noise is shared, of those coordinates only that a noisy step looks at. Pairs that
differ in other coordinates then get the same draw: each backup keeps its law, and a sweep is less work, but errors no longer average out
over those coordinates.

The backups of Q-value interpolation at a block of grid points, on the arrays of any library.

At a pair (z, a) with next state x' and the weights A(. | x') of the grid points around it

    bellman  = R + gamma max_b Q(x', b),   Q(x', b) = sum_z' A(z' | x') Q(z', b)
    again    = R + gamma max_b [Q(x', b) - A(z | x') (Q(z, b) - Q(z, a))]
    next_gap = max_b Q(x', b) - Q(x', a)

and these are fields of a `Backup` like any other, so every operator applies: `bellman` of them is T_QVI, `consistent` is T_CQVI. Where an
episode ends nothing follows. Several next states, drawn or weighed by their probabilities, are averaged before the operator is applied.

With `of_values` it is V that is interpolated: E V(x') = sum A V stands for max_b Q(x', b), and E A(z | x') for the probability of staying
at z. That is the aggregation of the paper, a finite MDP on the grid points, in which the theorem holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from actiongap.maths import namespace, where
from actiongap.operators import Backup, Operator, backup
from actiongap.planning.grid import Grid
from actiongap.planning.interpolation import multilinear
from actiongap.planning.noise import UINT32, random_uniform
from actiongap.planning.simulator import Discrete, Simulator, Step


@dataclass(frozen=True)
class SweepConfig:
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
    """Sweeps of one `SweepConfig` on one grid, by some engine that keeps the table as it likes it."""

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
    """The draws behind the backup of a pair: value k is `low` + `width` random_uniform((place actions + a) K + k), or `values[k]`."""

    drawn: bool
    values: np.ndarray
    """Noise values (K,); 0 where they are drawn."""
    shares: np.ndarray
    """What each of the K weighs."""
    low: float
    width: float
    strides: tuple[int, ...]
    """The place of a grid point is the sum of its index along each axis times these."""


def noise_of(simulator: Simulator, grid: Grid, config: SweepConfig) -> Noise:
    """How noise is drawn on a grid.

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> from actiongap.operators import parse
    >>> simulator = bicycle()
    >>> noise_of(simulator, Grid(simulator.axes(8)), SweepConfig(parse("bellman"), 0.99, shared=True)).strides
    (512, 64, 8, 1, 0, 0)
    """
    strides = grid.strides
    if config.shared:
        seen = {i for factor in simulator.factors if factor.noisy for i in factor.inputs}
        shape = [size if i in seen else 1 for i, size in enumerate(grid.shape)]
        strides = tuple(math.prod(shape[i + 1 :]) if i in seen else 0 for i in range(len(shape)))
    if isinstance(simulator.noise, Discrete):
        return Noise(False, np.array(simulator.noise.values), np.array(simulator.noise.probabilities), 0.0, 0.0, strides)
    low, high = simulator.noise
    return Noise(True, np.zeros(config.samples), np.full(config.samples, 1 / config.samples), low, high - low, strides)


def noise_at(noise: Noise, grid: Grid, z: Any, actions: int, key: Any) -> list[tuple[Any, float]]:
    """The noise of all actions at the grid points numbered z, K arrays (points, actions) or numbers, each with its share.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
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
    drawn = [random_uniform(key, pair * np.uint32(len(shares)) + np.uint32(k), UINT32) for k in range(len(shares))]
    return [(noise.low + noise.width * u, share) for u, share in zip(drawn, shares, strict=True)]


def with_again(b: Backup, again: Any) -> Backup:
    """A backup in which returning is worth something else; inside kernels too, where tuples cannot replace a field.

    Examples
    --------
    >>> with_again(Backup(0.9, 0.0, 1.0, 2.0, 2.0, 1.0, 0.0, 2.0), 1.5).again
    1.5
    """
    return Backup(b.gamma, b.q, b.v, b.bellman, again, b.gap, b.next_gap, b.repeat)


class Average(NamedTuple):
    """What follows a pair, averaged over the next states seen so far."""

    reward: Any
    next_v: Any
    """max_b Q(x', b), as are the next two where an episode went on."""
    next_q: Any
    """Q(x', a)."""
    next_again: Any
    """max_b [Q(x', b) - A(z | x') (Q(z, b) - Q(z, a))]."""
    stay: Any
    """A(z | x')."""

    def with_one_more(self, share: Any, ended: Any, one: Average) -> Average:
        """The average with one more next state, of this share."""
        # What follows the end of an episode may be no number, so it is left out and not multiplied by nothing.
        after = [total + where(ended, 0.0, share * number) for total, number in zip(self[1:], one[1:], strict=True)]
        return Average(self.reward + share * one.reward, *after)

    def backup(self, gamma: Any, q: Any, v: Any, of_values: bool = False) -> Backup:
        """The backup of pairs whose present value is q, in states whose value is v."""
        plain = backup(gamma, self.reward, q, v, self.next_v, self.next_q, self.stay)
        return plain if of_values else with_again(plain, self.reward + gamma * self.next_again)


def interpolated_backups(
    step: Step, grid: Grid, q: Any, z: Any, x: tuple, noise: Iterable[tuple[Any, Any]], gamma: float, of_values: bool = False
) -> Backup:
    """The backups of all actions at the grid points numbered `z`, each field (points, actions).

    Parameters
    ----------
    step
        One step of everything, as `simulator.one_step` gives it.
    grid
        The grid.
    q
        Q(z, a), (points of the grid, actions).
    z
        The numbers of some grid points (points,).
    x
        Their coordinates, a tuple of arrays (points,).
    noise
        Pairs of a noise, (points, actions) or one number, and its share in the average.
    gamma
        The discount.
    of_values
        Whether V is interpolated rather than Q.

    Examples
    --------
    >>> import numpy as np
    >>> from actiongap.planning.grid import uniform
    >>> from actiongap.planning.simulator import Outcome
    >>> def slide(x, a, u):
    ...     return Outcome((x[0] + 0.25 * a,), 0.0 * x[0] * a, x[0] > 2.0)
    >>> grid, q = Grid((uniform(0.0, 1.0, 3),)), np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> found = interpolated_backups(slide, grid, q, np.arange(3), grid.points(), [(0.0, 1.0)], gamma=0.5)
    >>> found.bellman[0].tolist()
    [0.5, 1.0]
    """
    xp, actions = namespace(q), q.shape[1]
    here, own = tuple(coordinate[:, None] for coordinate in x), q[z]
    v = xp.max(own, axis=1)[:, None]
    a = xp.arange(actions)[None, :]
    average = Average(*[xp.zeros(own.shape, dtype=q.dtype)] * 5)
    for u, share in noise:
        outcome = step(here, a, u)
        weights = multilinear(grid, outcome.x)
        mass = weights.mass(z[:, None])
        after = weights.of(q)
        same = xp.take_along_axis(after, a[..., None] + 0 * z[:, None, None], axis=2)[..., 0]
        best = weights.of(xp.max(q, axis=1)) if of_values else xp.max(after, axis=2)
        # What remains of the best when the part of x' that is z itself has to repeat the action.
        again = xp.max(after - mass[..., None] * own[:, None, :], axis=2) + mass * own
        average = average.with_one_more(share, outcome.ended, Average(outcome.reward, best, same, again, mass))
    return average.backup(gamma, own, v, of_values)
