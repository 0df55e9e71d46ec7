"""How a simulator in factors is swept group by group: which coordinates are lively, held, free and quiet.

The first factor is *lively*: the only one that noise may move. The others are *quiet*: where they lead can be computed once. Of the lively
coordinates, those that quiet factors look at are *held*, and the rest are *free*. Quiet coordinates that the lively factor looks at are
*watched*. `tables` says what is gained.

A simulator in factors as tables, for sweeps that interpolate group by group.

See `layout` for what is lively, held, free and quiet. Interpolation is a product of weights, so it can be done group by group,

    Q(x', b) = sum_c B(c) G(c, b),    G(c, b) = sum_z A(z) Q(z, c, b),

where z runs over the grid points of the quiet coordinates and c over those of the lively ones. G depends on where the quiet part of a step
leads: on the quiet coordinates, the held ones and a part of the action. It serves all free coordinates and all that noise may do. On the
bicycle 64 corners become 16, shared by two dozen pairs, and 4.

Q is turned to suit, to (quiet, held, free, actions), where the points of each group are numbered row by row. The functions run on arrays of
any library: `z` and its kind, the numbers of some quiet points, say on which, so that every device makes the tables of its own share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from actiongap.maths import maximum, minimum, namespace, where
from actiongap.planning.grid import Grid, Neighbors, cells, neighbor_weight, neighbors
from actiongap.planning.simulator import Discrete, Factor, Simulator, Split, Step, together


class Group(NamedTuple):
    """Some coordinates of a grid, whose points are numbered row by row; there is one point where there are no coordinates."""

    coordinates: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many points there are."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart neighbors along each coordinate are numbered."""
        return tuple(math.prod(self.shape[k + 1 :]) for k in range(len(self.shape)))

    def digits(self, number: Any) -> tuple:
        """The index along each coordinate of the points with these numbers.

        Examples
        --------
        >>> [index.tolist() for index in Group((0, 1), (2, 3)).digits(np.arange(4))]
        [[0, 0, 0, 1], [0, 1, 2, 0]]
        """
        return tuple(number // stride % size for stride, size in zip(self.strides, self.shape, strict=True))


@dataclass(frozen=True)
class Layout:
    """Which coordinates are in which group, and which part of an action each factor minds."""

    quiet: Group
    held: Group
    free: Group
    quiet_parts: tuple[int, ...]
    """For each action the part that the quiet factors see, counted from 0."""
    lively_parts: tuple[int, ...]
    """For each action the part that the lively factor sees."""
    watched: int
    """How many of the quiet coordinates, the first ones, the lively factor looks at."""

    @property
    def order(self) -> tuple[int, ...]:
        """All coordinates of the grid in the order of a turned table."""
        return (*self.quiet.coordinates, *self.held.coordinates, *self.free.coordinates)

    def turn(self, q: np.ndarray) -> np.ndarray:
        """Q(z, a), (points, actions), as (quiet, held, free, actions)."""
        shape = dict(zip(self.order, (*self.quiet.shape, *self.held.shape, *self.free.shape), strict=True))
        q = q.reshape(*(shape[i] for i in sorted(shape)), -1).transpose(*self.order, len(shape))
        return q.reshape(self.quiet.size, self.held.size, self.free.size, -1)

    def turn_back(self, table: np.ndarray) -> np.ndarray:
        """The inverse of `turn`."""
        shape = (*self.quiet.shape, *self.held.shape, *self.free.shape)
        back = table.reshape(*shape, -1).transpose(*np.argsort(self.order), len(shape))
        return back.reshape(math.prod(shape), -1)


def layout_of(simulator: Simulator, grid: Grid) -> Layout | None:
    """How a simulator is swept factor by factor; None if it cannot be, because it has one factor or noise moves another than the first.

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> layout = layout_of(bicycle(), Grid(bicycle().axes(8)))
    >>> layout.quiet.coordinates, layout.held.coordinates, layout.free.coordinates, layout.watched
    ((2, 3, 4, 5), (1,), (0,), 2)
    """
    lively, *others = simulator.factors
    if not others or any(factor.noisy for factor in others):
        return None
    quiet = sorted((i for factor in others for i in factor.outputs), key=lambda i: (i not in lively.inputs, i))
    seen = {i for factor in others for i in factor.inputs}
    parts = list(zip(*(factor.parts for factor in others), strict=True))
    kinds = sorted(set(parts))

    def group(coordinates: tuple[int, ...]) -> Group:
        return Group(coordinates, tuple(grid.shape[i] for i in coordinates))

    return Layout(
        quiet=group(tuple(quiet)),
        held=group(tuple(i for i in lively.outputs if i in seen)),
        free=group(tuple(i for i in lively.outputs if i not in seen)),
        quiet_parts=tuple(map(kinds.index, parts)),
        lively_parts=lively.parts,
        watched=sum(i in lively.inputs for i in quiet),
    )


def watched_group(layout: Layout) -> Group:
    """The quiet coordinates that the lively factor looks at."""
    return Group(layout.quiet.coordinates[: layout.watched], layout.quiet.shape[: layout.watched])


def watched_of(layout: Layout, z: Any) -> Any:
    """The number of a quiet point among those of the watched coordinates.

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> layout = layout_of(bicycle(), Grid(bicycle().axes(3)))
    >>> watched_of(layout, np.array([0, 8, 9, 80])).tolist()
    [0, 0, 1, 8]
    """
    return z // math.prod(layout.quiet.shape[layout.watched :])


class Quiet(NamedTuple):
    """Where the quiet part of a step leads; each array is (points, held, parts)."""

    neighbors: tuple[Neighbors, ...]
    """Along each quiet coordinate; numbers of quiet points are sums of one `lower` or `upper` for each."""
    reward: Any
    ended: Any
    stay: Any
    """The weight of the quiet point itself."""


def quiet_table(simulator: Simulator, grid: Grid, layout: Layout, z: Any) -> Quiet:
    """The quiet part of every step from the quiet points numbered z, as precisely as the library that z belongs to can.

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> from actiongap.planning.factors import layout_of
    >>> grid = Grid(bicycle().axes(3))
    >>> quiet_table(bicycle(), grid, layout_of(bicycle(), grid), np.arange(81)).stay.shape
    (81, 3, 3)
    """
    xp = namespace(z)
    _, *others = [factor.step for factor in simulator.factors]
    step: Step = reduce(together, others)
    shape = (len(z), layout.held.size, max(layout.quiet_parts) + 1)
    here = [xp.zeros((1, 1, 1), dtype=_precision(z))] * len(grid.axes)
    _put(here, grid, layout.quiet, z[:, None, None])
    _put(here, grid, layout.held, xp.arange(layout.held.size)[None, :, None])
    outcome = step(tuple(here), xp.asarray(_representatives(layout.quiet_parts))[None, None, :], 0.0)
    outputs = [i for factor in simulator.factors[1:] for i in factor.outputs]
    x = [outcome.x[outputs.index(i)] for i in layout.quiet.coordinates]
    reward, ended, *x = (_filled(xp, number, shape) for number in (outcome.reward, outcome.ended, *x))
    quiet_grid = Grid(tuple(grid.axes[i] for i in layout.quiet.coordinates))
    along = neighbors(quiet_grid, tuple(x))
    own = [index * stride for index, stride in zip(layout.quiet.digits(z[:, None, None]), layout.quiet.strides, strict=True)]
    stay = reduce(lambda one, other: one * other, [neighbor_weight(place, near) for place, near in zip(own, along, strict=True)])
    return Quiet(along, reward, ended, stay)


def split_of(factor: Factor) -> Split:
    """The two halves of a factor's step; where none are declared, the first only passes on what it is handed."""
    step = factor.step
    return factor.split or Split(lambda x, a: (*x, a), lambda known, u: step(known[:-1], known[-1], u))


def lively_table(simulator: Simulator, grid: Grid, layout: Layout, w: Any) -> tuple:
    """What is known of lively steps before the noise, from the watched points numbered w: arrays (points, held, free, parts).

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> from actiongap.planning.factors import layout_of
    >>> grid = Grid(bicycle().axes(3))
    >>> {number.shape for number in lively_table(bicycle(), grid, layout_of(bicycle(), grid), np.arange(9))}
    {(9, 3, 3, 3)}
    """
    xp = namespace(w)
    here = [xp.zeros((1, 1, 1, 1), dtype=_precision(w))] * len(grid.axes)
    _put(here, grid, watched_group(layout), w[:, None, None, None])
    _put(here, grid, layout.held, xp.arange(layout.held.size)[None, :, None, None])
    _put(here, grid, layout.free, xp.arange(layout.free.size)[None, None, :, None])
    parts = _representatives(layout.lively_parts)
    known = split_of(simulator.factors[0]).before(tuple(here), xp.asarray(parts)[None, None, None, :])
    shape = (len(w), layout.held.size, layout.free.size, len(parts))
    return tuple(_filled(xp, number, shape) for number in known)


def reach_of(simulator: Simulator, grid: Grid, layout: Layout, known: tuple) -> tuple[tuple[Any, Any], ...]:
    """Along each held coordinate the lowest and the highest cell that a step leads to, over all that noise may do: (watched, held) each.

    Noise is tried from one end to the other, at nine values. Where every step ends the episode, the lowest is above the highest.
    """
    noise, lively = simulator.noise, simulator.factors[0]
    tried = noise.values if isinstance(noise, Discrete) else tuple(np.linspace(noise.low, noise.high, 9).tolist())
    outcomes = [split_of(lively).after(known, u) for u in tried]
    reach = []
    for i in layout.held.coordinates:
        size, lowest, highest = grid.axes[i].size, [], []
        for outcome in outcomes:
            index, fraction = cells(grid.axes[i], outcome.x[lively.outputs.index(i)])
            # Rounding may take what is near the edge of a cell to the next.
            below, above = index - where(fraction < 1e-3, 1, 0), index + where(fraction > 1 - 1e-3, 1, 0)
            lowest.append(namespace(index).min(where(outcome.ended, size, maximum(below, 0)), axis=(2, 3)))
            highest.append(namespace(index).max(where(outcome.ended, -1, minimum(above, size - 2)), axis=(2, 3)))
        reach.append((reduce(minimum, lowest), reduce(maximum, highest)))
    return tuple(reach)


class Window(NamedTuple):
    """The rows of held points that steps may reach: a few, in a row, from `base` (watched, held) on along each held coordinate."""

    base: tuple
    group: Group


def window_of(grid: Grid, layout: Layout, reach: tuple[tuple[Any, Any], ...]) -> Window:
    """The window that what `reach_of` found fits into; all rows along an axis that goes round."""
    base, spans = [], []
    for i, (low, high) in zip(layout.held.coordinates, reach, strict=True):
        axis, xp = grid.axes[i], namespace(low)
        spans.append(axis.size if axis.period is not None else min(axis.size, max(2, int(xp.max(high - low)) + 2)))
        base.append(xp.clip(low, 0, axis.size - spans[-1]))
    return Window(tuple(base), Group(layout.held.coordinates, tuple(spans)))


def _precision(z: Any) -> Any:
    """Double where the library has it: single precision would tip over what lies on the edge of a cell."""
    xp = namespace(z)
    return (xp.arange(2) / 2).dtype


def _put(here: list, grid: Grid, group: Group, number: Any) -> None:
    """Fill in the coordinates of a group at the points with these numbers."""
    xp = namespace(number)
    for i, index in zip(group.coordinates, group.digits(number), strict=True):
        here[i] = xp.asarray(np.array(grid.axes[i].points), dtype=_precision(number))[index]


def _representatives(parts: tuple[int, ...]) -> np.ndarray:
    """An action for each part."""
    return np.array([parts.index(part) for part in range(max(parts) + 1)])


def _filled(xp: Any, number: Any, shape: tuple[int, ...]) -> Any:
    return xp.broadcast_to(xp.asarray(number), shape)
