"""One sweep of interpolation in two GPU kernels, for a simulator in factors.

The table is (watched, held, free, actions, others): first the quiet coordinates that the lively factor looks at, last the other quiet ones.
Where the watched ones lead does not depend on the others, so the first kernel contracts their corners alone: it adds up a few long rows,

    G(w, h, p, r, ...) = sum over the watched corners of weight times Q(corner, row r of h's window, ...)

for every part p of an action. In the second kernel each lane has a point, and contracts what is left there: other quiet corners and lively
ones. What the former come to at the corners of a lively cell serves all actions with the same quiet part, because they seldom lead to
different cells; where they do, it is done again.

It computes what `contraction` does, for axes that have ends.
"""

from __future__ import annotations

import itertools
import math
from functools import reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from actiongap.grid.accelerator.contraction import farthest, single
from actiongap.grid.accelerator.lanes import LANES, Given, Knots, Steps, back_up_lanes
from actiongap.grid.domain import Domain
from actiongap.grid.layout import Group, Layout, watched_group
from actiongap.grid.points import Grid, corner_weight, corners
from actiongap.grid.rule import Rule, noise_of
from actiongap.grid.tables import lively_table, quiet_table, reach_of, window_of

STRETCH = 1024
"""Numbers that a program of the first kernel adds up at a time."""


def fits(domain: Domain, grid: Grid, layout: Layout, rule: Rule) -> bool:
    """Whether the kernels can do this sweep: axes have ends, and where watched coordinates lead does not depend on the other quiet ones."""
    others = layout.quiet.coordinates[layout.watched :]
    watched = watched_group(layout).coordinates
    apart = all(not set(factor.inputs) & set(others) for factor in domain.factors[1:] if set(factor.outputs) & set(watched))
    return bool(watched and others and apart) and not rule.of_values and all(axis.period is None for axis in grid.axes)


class Kernel:
    """The sweep of one rule on one grid. Points of the first watched coordinate are slabs of the table, which devices may share out."""

    axis = 0

    def __init__(self, domain: Domain, grid: Grid, layout: Layout, rule: Rule, interpret: bool = False):
        self.domain, self.grid, self.layout, self.rule, self.noise = domain, grid, layout, rule, noise_of(domain, grid, rule)
        self.interpret = interpret
        self.watched = watched_group(layout)
        self.others = Group(layout.quiet.coordinates[layout.watched :], layout.quiet.shape[layout.watched :])
        self.slab = math.prod(self.watched.shape[1:])
        self.shape = (self.watched.size, layout.held.size, layout.free.size, len(domain.actions), self.others.size)
        self.row = math.prod(self.shape[2:])
        """Numbers of the table for each watched and held point."""
        with jax.enable_x64(True):
            reach = jax.jit(self._reach)(jnp.arange(self.watched.size))
        _, self.window = window_of(grid, layout, reach)
        self.parts, self.lively_parts = max(layout.quiet_parts) + 1, max(layout.lively_parts) + 1
        members = [[a for a, part in enumerate(layout.quiet_parts) if part == each] for each in range(self.parts)]
        self.members = np.array([np.resize(some, max(map(len, members))) for some in members], np.int32)
        """The actions of each quiet part; where there are fewer, some come again."""
        self.entries = self.shape[1] * self.parts * self.window.size * self.row

    def _reach(self, w: Any) -> tuple:
        return jax.tree.map(single, reach_of(self.domain, self.grid, self.layout, lively_table(self.domain, self.grid, self.layout, w)))

    def turn(self, q: np.ndarray) -> np.ndarray:
        """Q(z, a), (points, actions), as a table."""
        table = self.layout.turn(q).reshape(self.shape[0], self.shape[4], *self.shape[1:4])
        return np.ascontiguousarray(table.transpose(0, 2, 3, 4, 1))

    def turn_back(self, table: np.ndarray) -> np.ndarray:
        """The inverse of `turn`."""
        return self.layout.turn_back(table.transpose(0, 4, 1, 2, 3).reshape(self.layout.quiet.size, *self.shape[1:4]))

    def tabulate(self, w: Any) -> Steps:
        """The steps from the watched points numbered w."""
        count = self.others.size
        found = quiet_table(self.domain, self.grid, self.layout, (w[:, None] * count + jnp.arange(count, dtype=w.dtype)).reshape(-1))

        def turned(number: Any) -> Any:
            return jnp.moveaxis(number.reshape(len(w), count, self.shape[1], self.parts), 1, 3)

        def alike(number: Any) -> Any:
            return number.reshape(len(w), count, self.shape[1], self.parts)[:, 0]

        watched, others = found.sides[: self.layout.watched], found.sides[self.layout.watched :]
        known = lively_table(self.domain, self.grid, self.layout, w)
        lowest = [low for low, _ in reach_of(self.domain, self.grid, self.layout, known)]
        sizes = [self.grid.axes[i].size for i in self.layout.held.coordinates]
        return Steps(
            corner=alike(reduce(add, (side.lower for side in watched)) // count).astype(jnp.int32),
            shares=tuple(alike(side.fraction) for side in watched),
            base=tuple(
                jnp.clip(low, 0, size - span).astype(jnp.int32) for low, size, span in zip(lowest, sizes, self.window.shape, strict=True)
            ),
            spot=turned(reduce(add, (side.lower for side in others))).astype(jnp.int32),
            fractions=tuple(turned(side.fraction) for side in others),
            reward=turned(found.reward),
            ended=turned(found.ended.astype(jnp.int32)),
            stay=turned(found.stay),
            known=known,
            place=self._places(self.watched, w),
        )

    def slabs_reached(self, found: Steps, w: Any) -> Any:
        """How many slabs away from its own the quiet part of a step leads at most, the corner above it included."""
        return farthest(found.corner // self.slab, w // self.slab)

    def sweep(self, table: Any, own: Any, found: Steps, w: Any, offset: Any, key: Any, gamma: Any, eta: Any) -> Any:
        """(1 - eta) Q + eta T'Q at the watched points numbered w, whose values are `own`; `table` begins at watched point `offset`."""
        return self.back_up(self.contract(table, found, offset), own, found, key, gamma, eta)

    def contract(self, table: Any, found: Steps, offset: Any) -> Any:
        """G, (watched, held, parts, rows of the window, numbers of a row), flat."""
        held, rows, row = self.layout.held, self.window.size, self.row
        count = len(found.corner)
        start = sum(
            (base * stride for base, stride in zip(found.base, held.strides, strict=True)), start=jnp.zeros((count, held.size), int)
        )
        # A device that has no points of its own looks nowhere in particular.
        corner = jnp.maximum(found.corner - offset, 0)
        first = (corner * held.size + start[:, :, None]).astype(jnp.int32).reshape(-1)
        steps_within = [int(sum(d * s for d, s in zip(digits, held.strides, strict=True))) for digits in np.ndindex(*self.window.shape)]
        rises = [stride * held.size for stride in self.watched.strides]

        def program(table: Any, first: Any, *rest: Any) -> None:
            *shares, out = rest
            which, at = pl.program_id(0), pl.program_id(1) * STRETCH + jnp.arange(STRETCH)
            begin, fractions = first[which], [share[which] for share in shares]
            for r, within in enumerate(steps_within):
                total: Any = 0.0
                for bits in corners(len(rises)):
                    there = (begin + (within + sum(itertools.compress(rises, bits)))) * row + at
                    total = total + corner_weight(fractions, bits) * gpu.load(table.at[there], mask=at < row, other=0.0)
                gpu.store(out.at[(which * rows + r) * row + at], total, mask=at < row)

        call = pl.pallas_call(
            program,
            out_shape=jax.ShapeDtypeStruct((count * self.entries,), table.dtype),
            grid=(count * held.size * self.parts, pl.cdiv(row, STRETCH)),
            compiler_params=gpu.CompilerParams(num_warps=4),
            interpret=self.interpret,
        )
        return call(table.reshape(-1), first, *(share.reshape(-1) for share in found.shares))

    def back_up(self, window: Any, own: Any, found: Steps, key: Any, gamma: Any, eta: Any) -> Any:
        """The new values of all pairs, from G."""
        layout, count = self.layout, len(own)
        rulers = [self.grid.axes[i].ruler(np.float32) for i in (*layout.held.coordinates, *layout.free.coordinates)]
        given = Given(
            window=window,
            own=own,
            steps=found._replace(corner=(), shares=()),
            places=[self._places(group, jnp.arange(group.size)) for group in (layout.held, layout.free, self.others)],
            digits=[group.digits(jnp.arange(group.size)) for group in (layout.held, layout.free)],
            knots=[jnp.asarray(ruler.knots) for ruler in rulers],
            members=[jnp.asarray(self.members), jnp.asarray(np.array(layout.lively_parts)[self.members])],
            numbers=[key, gamma, eta],
        )
        flat, tree = jax.tree.flatten(jax.tree.map(lambda number: jnp.asarray(number).reshape(-1), given))

        def program(*refs: Any) -> None:
            here: Given = jax.tree.unflatten(tree, refs[:-1])
            read = [ruler._replace(knots=Knots(ref, len(ruler.knots))) for ref, ruler in zip(here.knots, rulers, strict=True)]
            back_up_lanes(self, here, read, refs[-1])

        call = pl.pallas_call(
            program,
            out_shape=jax.ShapeDtypeStruct((own.size,), own.dtype),
            grid=(count, self.shape[1], pl.cdiv(self.shape[2] * self.others.size, LANES) * self.parts),
            compiler_params=gpu.CompilerParams(num_warps=LANES // 32),
            interpret=self.interpret,
        )
        return call(*flat).reshape(own.shape)

    def _places(self, group: Group, number: Any) -> Any:
        """What the points of a group add to the place of a draw."""
        digits = [digit.astype(jnp.uint32) for digit in group.digits(number)]
        strides = [np.uint32(self.noise.strides[i]) for i in group.coordinates]
        return sum((digit * stride for digit, stride in zip(digits, strides, strict=True)), start=jnp.zeros(len(number), jnp.uint32))
