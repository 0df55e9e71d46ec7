"""Backups of a sweep over a grid: Q <- (1 - eta) Q + eta T'Q.

At a pair (z, a) with next state x' and interpolation weights A(. | x'),

    bellman  = R + gamma max_b Q(x', b),   Q(x', b) = sum_z' A(z' | x') Q(z', b)
    again    = R + gamma max_b [Q(x', b) - A(z | x') (Q(z, b) - Q(z, a))]
    next_gap = max_b Q(x', b) - Q(x', a)

These are fields of a `Backup`, so every operator applies: with `bellman` the sweep is T_QVI (Q-value interpolation), with `consistent`
it is T_CQVI. At the end of an episode the next value is zero. Several next states, sampled or enumerated with their probabilities, are
averaged before the operator is applied.

With `of_values`, V is interpolated instead of Q: E V(x') = sum A V replaces max_b Q(x', b), and E A(z | x') is the probability of staying
at z. This is the aggregation of the paper, a finite MDP on the grid points, so its theorem holds.

Every engine takes a simulator, a grid and a `SweepConfig`, and returns `Sweeps`. Engines agree up to rounding. Random numbers come from
`actiongap.planning.noise`: the counter of a sample is computed from the number of its pair. With shared noise, it is computed
only from the coordinates that a noisy factor reads, so pairs that differ in other coordinates use the same sample. Each backup keeps its
distribution and a sweep is less work, but errors no longer average out over those coordinates.
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
    """An operator and the parameters of its sweeps."""

    operator: Operator
    gamma: float
    eta: float = 0.1
    """Step size: Q <- (1 - eta) Q + eta T'Q."""
    samples: int = 1
    """Number of next states sampled per pair; discrete noise is enumerated exactly instead."""
    shared: bool = False
    """Whether pairs share noise samples if they differ only in coordinates that no noisy factor reads."""
    of_values: bool = False
    """Whether V is interpolated instead of Q: the aggregation of the paper."""
    seed: int = 0

    def __post_init__(self) -> None:
        self.operator.plain()
        if not 0 <= self.gamma < 1:
            raise ValueError(f"gamma is {self.gamma!r}: give a number in [0, 1)")
        if not 0 < self.eta <= 1:
            raise ValueError(f"eta is {self.eta!r}: give a number in (0, 1]")
        if self.samples < 1:
            raise ValueError(f"samples is {self.samples!r}: give at least 1")


class Sweeps(Protocol):
    """Sweeps of one `SweepConfig` on one grid. Each engine stores the table in its own layout."""

    def put(self, q: np.ndarray) -> Any:
        """The engine's table from Q(z, a), (points, actions)."""
        ...

    def get(self, table: Any) -> np.ndarray:
        """Q(z, a) from the engine's table, float32."""
        ...

    def advance(self, table: Any, first: int, count: int) -> tuple[Any, float]:
        """Run sweeps `first` to `first + count - 1`; return the new table and max |T'Q - Q| of the last sweep. Invalidates `table`."""
        ...


class Noise(NamedTuple):
    """The K noise samples of a pair: sample k is low + width random_uniform(key, (place * actions + a) K + k), or `values[k]`."""

    drawn: bool
    """Whether samples are random numbers. If not, the values of discrete noise are enumerated."""
    values: np.ndarray
    """Noise values, (K,); 0 if they are random numbers."""
    weights: np.ndarray
    """The weight of each sample."""
    low: float
    width: float
    strides: tuple[int, ...]
    """place = sum over axes of index * stride."""


def noise_of(simulator: Simulator, grid: Grid, config: SweepConfig) -> Noise:
    """How noise is sampled on a grid.

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
    """The noise of all actions at the grid points z: K pairs of an array (points, actions), or a number, and its weight.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> weighed = Noise(False, np.array([-1.0, 1.0]), np.array([0.25, 0.75]), 0.0, 0.0, (1,))
    >>> noise_at(weighed, Grid((uniform(0.0, 1.0, 2),)), np.arange(2), 1, key=np.uint32(0))
    [(-1.0, 0.25), (1.0, 0.75)]
    """
    weights = noise.weights.tolist()
    if not noise.drawn:
        return list(zip(noise.values.tolist(), weights, strict=True))
    unsigned = namespace(z).uint32
    place = (0 * z).astype(unsigned)
    for stride, size, step in zip(grid.strides, grid.shape, noise.strides, strict=True):
        place = place + (z // stride % size).astype(unsigned) * np.uint32(step & 0xFFFFFFFF)
    pair = place[:, None] * np.uint32(actions) + namespace(z).arange(actions, dtype=unsigned)
    drawn = [random_uniform(key, pair * np.uint32(len(weights)) + np.uint32(k), UINT32) for k in range(len(weights))]
    return [(noise.low + noise.width * u, share) for u, share in zip(drawn, weights, strict=True)]


def with_again(b: Backup, again: Any) -> Backup:
    """A backup with another value of `again`. Numba kernels cannot call `_replace`.

    Examples
    --------
    >>> with_again(Backup(0.9, 0.0, 1.0, 2.0, 2.0, 1.0, 0.0, 2.0), 1.5).again
    1.5
    """
    return Backup(b.gamma, b.q, b.v, b.bellman, again, b.gap, b.next_gap, b.repeat)


class Average(NamedTuple):
    """Mean outcome of a pair over its next states."""

    reward: Any
    next_v: Any
    """max_b Q(x', b); zero where the episode ended, as all following fields."""
    next_q: Any
    """Q(x', a)."""
    next_again: Any
    """max_b [Q(x', b) - A(z | x') (Q(z, b) - Q(z, a))]."""
    stay: Any
    """A(z | x')."""

    def add(self, share: Any, ended: Any, one: Average) -> Average:
        """The mean with one more next state of weight `share`."""
        # Values after the end of an episode may be NaN, so they are masked, not multiplied by zero.
        after = [total + where(ended, 0.0, share * number) for total, number in zip(self[1:], one[1:], strict=True)]
        return Average(self.reward + share * one.reward, *after)

    def backup(self, gamma: Any, q: Any, v: Any, of_values: bool = False) -> Backup:
        """The backup of pairs with current value q, in states with value v."""
        plain = backup(gamma, self.reward, q, v, self.next_v, self.next_q, self.stay)
        return plain if of_values else with_again(plain, self.reward + gamma * self.next_again)


def interpolated_backups(
    step: Step, grid: Grid, q: Any, z: Any, x: tuple[Any, ...], noise: Iterable[tuple[Any, Any]], gamma: float, of_values: bool = False
) -> Backup:
    """The backups of all actions at the grid points `z`; each field is (points, actions).

    Parameters
    ----------
    step
        A step of the whole simulator, as `simulator.one_step` gives it.
    grid
        The grid.
    q
        Q(z, a), (points of the grid, actions).
    z
        Numbers of some grid points, (points,).
    x
        Their coordinates, a tuple of arrays (points,).
    noise
        Pairs of noise, (points, actions) or one number, and its weight.
    gamma
        The discount factor.
    of_values
        Whether V is interpolated instead of Q.

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
        # max_b [Q(x', b) - A(z | x') (Q(z, b) - Q(z, a))]
        again = xp.max(after - mass[..., None] * own[:, None, :], axis=2) + mass * own
        average = average.add(share, outcome.ended, Average(outcome.reward, best, same, again, mass))
    return average.backup(gamma, own, v, of_values)
