"""How a simulator in factors is swept group by group: which coordinates are lively, held, free and quiet.

The first factor is *lively*: the only one that noise may move. The others are *quiet*: where they lead can be computed once. Of the lively
coordinates, those that quiet factors look at are *held*, and the rest are *free*. Quiet coordinates that the lively factor looks at are
*watched*. `tables` says what is gained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from actiongap.grid.domain import Domain
from actiongap.grid.points import Grid


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
        """How far apart neighbours along each coordinate are numbered."""
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


def layout_of(domain: Domain, grid: Grid) -> Layout | None:
    """How a domain is swept factor by factor; None if it cannot be, because it has one factor or noise moves another than the first.

    Examples
    --------
    >>> from actiongap.domains.bicycle import bicycle
    >>> layout = layout_of(bicycle(), Grid(bicycle().axes(8)))
    >>> layout.quiet.coordinates, layout.held.coordinates, layout.free.coordinates, layout.watched
    ((2, 3, 4, 5), (1,), (0,), 2)
    """
    lively, *others = domain.factors
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
    >>> from actiongap.domains.bicycle import bicycle
    >>> layout = layout_of(bicycle(), Grid(bicycle().axes(3)))
    >>> watched_of(layout, np.array([0, 8, 9, 80])).tolist()
    [0, 0, 1, 8]
    """
    return z // math.prod(layout.quiet.shape[layout.watched :])
