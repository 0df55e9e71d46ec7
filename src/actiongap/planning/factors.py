"""Factored simulators: groups of coordinates, and tables of the quantities that do not depend on the noise.

Only the first factor of a simulator may depend on the noise: it is *stochastic*, and so are its outputs. All other factors
are *deterministic*: their outputs are computed once. Both kinds of coordinates are divided further by the factors that read them:

- stochastic coordinates that some deterministic factor reads are *coupled*;
- the other stochastic coordinates are *batched*: one contraction over deterministic coordinates serves the whole batch of their points;
- deterministic coordinates that the stochastic factor reads are *observed*.

Multilinear weights are products, so interpolation can be done group by group,

    Q(x', b) = sum_c B(c) G(c, b),    G(c, b) = sum_z A(z) Q(z, c, b),

where z runs over the grid points of the deterministic coordinates and c over those of the stochastic ones. G depends on where the
deterministic part of a step leads: on the deterministic coordinates, the coupled ones and a part of the action. It is the same for all
batched points and all values of the noise. The bicycle has four deterministic and two stochastic coordinates. Instead of 2^6 = 64 corners
per pair, G takes 2^4 = 16 corners, which 24 pairs share on a grid of 8 points per axis (8 batched points, 3 displacements), and each pair
takes 2^2 = 4.

Tables are packed as (deterministic, coupled, batched, actions); the points of each group are numbered in row-major order. The functions run
on the arrays of any library. The argument `z` (some deterministic points) determines the library, so every device builds the tables of its
own points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from actiongap.maths import maximum, minimum, namespace, where
from actiongap.planning.grid import Grid, Neighbors, cells, neighbor_weight, neighbors
from actiongap.planning.simulator import Discrete, Factor, Simulator, Split, Step, combine_steps


class Group(NamedTuple):
    """Some coordinates of a grid. Their points are numbered in row-major order; without coordinates there is one point."""

    coordinates: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Difference between the numbers of adjacent points along each coordinate."""
        return tuple(math.prod(self.shape[k + 1 :]) for k in range(len(self.shape)))

    def digits(self, number: Any) -> tuple[Any, ...]:
        """The index along each coordinate of the points with these numbers (as `numpy.unravel_index`).

        Examples
        --------
        >>> [index.tolist() for index in Group((0, 1), (2, 3)).digits(np.arange(4))]
        [[0, 0, 0, 1], [0, 1, 2, 0]]
        """
        return tuple(number // stride % size for stride, size in zip(self.strides, self.shape, strict=True))


@dataclass(frozen=True)
class Layout:
    """The groups of coordinates, and the part of each action that each factor reads."""

    deterministic: Group
    coupled: Group
    batched: Group
    deterministic_parts: tuple[int, ...]
    """For each action, the index of the part that deterministic factors read."""
    stochastic_parts: tuple[int, ...]
    """For each action, the index of the part that the stochastic factor reads."""
    observed: int
    """Number of observed coordinates; they are the first of the deterministic ones."""

    @property
    def order(self) -> tuple[int, ...]:
        """All coordinates of the grid, in the order of a packed table."""
        return (*self.deterministic.coordinates, *self.coupled.coordinates, *self.batched.coordinates)

    def pack(self, q: np.ndarray) -> np.ndarray:
        """Q(z, a), (points, actions), as (deterministic, coupled, batched, actions)."""
        shape = dict(zip(self.order, (*self.deterministic.shape, *self.coupled.shape, *self.batched.shape), strict=True))
        q = q.reshape(*(shape[i] for i in sorted(shape)), -1).transpose(*self.order, len(shape))
        return q.reshape(self.deterministic.size, self.coupled.size, self.batched.size, -1)

    def unpack(self, table: np.ndarray) -> np.ndarray:
        """The inverse of `pack`."""
        shape = (*self.deterministic.shape, *self.coupled.shape, *self.batched.shape)
        back = table.reshape(*shape, -1).transpose(*np.argsort(self.order), len(shape))
        return back.reshape(math.prod(shape), -1)


def layout_of(simulator: Simulator, grid: Grid) -> Layout | None:
    """How a simulator is swept factor by factor; None if it has one factor only, or if a factor other than the first is noisy.

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> layout = layout_of(bicycle(), Grid(bicycle().axes(8)))
    >>> layout.deterministic.coordinates, layout.coupled.coordinates, layout.batched.coordinates, layout.observed
    ((2, 3, 4, 5), (1,), (0,), 2)
    """
    stochastic, *others = simulator.factors
    if not others or any(factor.noisy for factor in others):
        return None
    deterministic = sorted((i for factor in others for i in factor.outputs), key=lambda i: (i not in stochastic.inputs, i))
    seen = {i for factor in others for i in factor.inputs}
    parts = list(zip(*(factor.parts for factor in others), strict=True))
    kinds = sorted(set(parts))

    def group(coordinates: tuple[int, ...]) -> Group:
        return Group(coordinates, tuple(grid.shape[i] for i in coordinates))

    return Layout(
        deterministic=group(tuple(deterministic)),
        coupled=group(tuple(i for i in stochastic.outputs if i in seen)),
        batched=group(tuple(i for i in stochastic.outputs if i not in seen)),
        deterministic_parts=tuple(map(kinds.index, parts)),
        stochastic_parts=stochastic.parts,
        observed=sum(i in stochastic.inputs for i in deterministic),
    )


def observed_group(layout: Layout) -> Group:
    """The observed coordinates."""
    return Group(layout.deterministic.coordinates[: layout.observed], layout.deterministic.shape[: layout.observed])


def observed_index(layout: Layout, z: Any) -> Any:
    """The number of a deterministic point within the observed group.

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> layout = layout_of(bicycle(), Grid(bicycle().axes(3)))
    >>> observed_index(layout, np.array([0, 8, 9, 80])).tolist()
    [0, 0, 1, 8]
    """
    return z // math.prod(layout.deterministic.shape[layout.observed :])


class DeterministicTable(NamedTuple):
    """Deterministic parts of steps; each array is (points, coupled, parts)."""

    neighbors: tuple[Neighbors, ...]
    """Per deterministic coordinate; the number of a corner is the sum of one `lower` or `upper` each."""
    reward: Any
    ended: Any
    stay: Any
    """The weight of the deterministic point itself."""


def deterministic_table(simulator: Simulator, grid: Grid, layout: Layout, z: Any) -> DeterministicTable:
    """The deterministic part of every step from the deterministic points z, in the highest precision of the library of z.

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> from actiongap.planning.factors import layout_of
    >>> grid = Grid(bicycle().axes(3))
    >>> deterministic_table(bicycle(), grid, layout_of(bicycle(), grid), np.arange(81)).stay.shape
    (81, 3, 3)
    """
    xp = namespace(z)
    _, *others = [factor.step for factor in simulator.factors]
    step: Step = reduce(combine_steps, others)
    shape = (len(z), layout.coupled.size, max(layout.deterministic_parts) + 1)
    here = [xp.zeros((1, 1, 1), dtype=_precision(z))] * len(grid.axes)
    _put(here, grid, layout.deterministic, z[:, None, None])
    _put(here, grid, layout.coupled, xp.arange(layout.coupled.size)[None, :, None])
    outcome = step(tuple(here), xp.asarray(_representatives(layout.deterministic_parts))[None, None, :], 0.0)
    outputs = [i for factor in simulator.factors[1:] for i in factor.outputs]
    x = [outcome.x[outputs.index(i)] for i in layout.deterministic.coordinates]
    reward, ended, *x = (_filled(xp, number, shape) for number in (outcome.reward, outcome.ended, *x))
    deterministic_grid = Grid(tuple(grid.axes[i] for i in layout.deterministic.coordinates))
    along = neighbors(deterministic_grid, tuple(x))
    own = [
        index * stride for index, stride in zip(layout.deterministic.digits(z[:, None, None]), layout.deterministic.strides, strict=True)
    ]
    stay = reduce(lambda one, other: one * other, [neighbor_weight(place, near) for place, near in zip(own, along, strict=True)])
    return DeterministicTable(along, reward, ended, stay)


def split_of(factor: Factor) -> Split:
    """The two halves of a factor's step; if none are declared, the first half passes its arguments on."""
    step = factor.step
    return factor.split or Split(lambda x, a: (*x, a), lambda known, u: step(known[:-1], known[-1], u))


def stochastic_table(simulator: Simulator, grid: Grid, layout: Layout, w: Any) -> tuple[Any, ...]:
    """Return the inputs of stochastic steps that are known before the noise, at the observed points w.

    They are arrays (points, coupled, batched, parts).

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> from actiongap.planning.factors import layout_of
    >>> grid = Grid(bicycle().axes(3))
    >>> {number.shape for number in stochastic_table(bicycle(), grid, layout_of(bicycle(), grid), np.arange(9))}
    {(9, 3, 3, 3)}
    """
    xp = namespace(w)
    here = [xp.zeros((1, 1, 1, 1), dtype=_precision(w))] * len(grid.axes)
    _put(here, grid, observed_group(layout), w[:, None, None, None])
    _put(here, grid, layout.coupled, xp.arange(layout.coupled.size)[None, :, None, None])
    _put(here, grid, layout.batched, xp.arange(layout.batched.size)[None, None, :, None])
    parts = _representatives(layout.stochastic_parts)
    known = split_of(simulator.factors[0]).before(tuple(here), xp.asarray(parts)[None, None, None, :])
    shape = (len(w), layout.coupled.size, layout.batched.size, len(parts))
    return tuple(_filled(xp, number, shape) for number in known)


def reachable_cells(simulator: Simulator, grid: Grid, layout: Layout, known: tuple[Any, ...]) -> tuple[tuple[Any, Any], ...]:
    """The lowest and highest cell that steps reach along each coupled coordinate, over all noise: arrays (observed, coupled).

    Uniform noise is evaluated at nine values from low to high. Where every step ends the episode, the lowest is above the highest.
    """
    noise, stochastic = simulator.noise, simulator.factors[0]
    tried = noise.values if isinstance(noise, Discrete) else tuple(np.linspace(noise.low, noise.high, 9).tolist())
    outcomes = [split_of(stochastic).after(known, u) for u in tried]
    reach = []
    for i in layout.coupled.coordinates:
        size, lowest, highest = grid.axes[i].size, [], []
        for outcome in outcomes:
            index, fraction = cells(grid.axes[i], outcome.x[stochastic.outputs.index(i)])
            # Rounding may move a point near the edge of a cell to the next cell.
            below, above = index - where(fraction < 1e-3, 1, 0), index + where(fraction > 1 - 1e-3, 1, 0)
            lowest.append(namespace(index).min(where(outcome.ended, size, maximum(below, 0)), axis=(2, 3)))
            highest.append(namespace(index).max(where(outcome.ended, -1, minimum(above, size - 2)), axis=(2, 3)))
        reach.append((reduce(minimum, lowest), reduce(maximum, highest)))
    return tuple(reach)


class Window(NamedTuple):
    """The coupled points that steps can reach: a box that starts at `base`, (observed, coupled), along each coupled coordinate."""

    base: tuple[Any, ...]
    group: Group


def make_window(grid: Grid, layout: Layout, reach: tuple[tuple[Any, Any], ...]) -> Window:
    """The smallest window that holds all reachable cells; a periodic axis is taken whole."""
    base, spans = [], []
    for i, (low, high) in zip(layout.coupled.coordinates, reach, strict=True):
        axis, xp = grid.axes[i], namespace(low)
        spans.append(axis.size if axis.period is not None else min(axis.size, max(2, int(xp.max(high - low)) + 2)))
        base.append(xp.clip(low, 0, axis.size - spans[-1]))
    return Window(tuple(base), Group(layout.coupled.coordinates, tuple(spans)))


def _precision(z: Any) -> Any:
    """Double precision if the library has it: in single precision, points on the edge of a cell may change cells."""
    xp = namespace(z)
    return (xp.arange(2) / 2).dtype


def _put(here: list[Any], grid: Grid, group: Group, number: Any) -> None:
    """Set the coordinates of a group to those of the points with these numbers."""
    xp = namespace(number)
    for i, index in zip(group.coordinates, group.digits(number), strict=True):
        here[i] = xp.asarray(np.array(grid.axes[i].points), dtype=_precision(number))[index]


def _representatives(parts: tuple[int, ...]) -> np.ndarray:
    """One action per part."""
    return np.array([parts.index(part) for part in range(max(parts) + 1)])


def _filled(xp: Any, number: Any, shape: tuple[int, ...]) -> Any:
    return xp.broadcast_to(xp.asarray(number), shape)
