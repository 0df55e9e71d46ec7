"""One sweep of interpolation with JAX for a simulator in factors: contract the quiet coordinates, then the lively ones.

The table is (actions, quiet, held, free), so that neighbors in memory are neighbors in what they read. First

    G(b, z, h, p, r, f) = sum over the quiet corners of weight times Q(b, corner, row r of h's window, f)

for every part p of an action, where the window holds the few rows of held points that a step from h may reach. Then every pair reads its
lively corners in G. Noise comes in only there, so it costs little that every pair has its own.
"""

from __future__ import annotations

import itertools
import math
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from actiongap.planning.backups import Average, SweepConfig, noise_of
from actiongap.planning.factors import Layout, lively_table, quiet_table, reach_of, split_of, watched_group, watched_of, window_of
from actiongap.planning.grid import Grid, corner_weight, corners, neighbor_weight, neighbors
from actiongap.planning.noise import UINT32, random_uniform
from actiongap.planning.simulator import Simulator, paid


class Quiet(NamedTuple):
    """Where the quiet part of steps from some quiet points leads: arrays (points, held, parts)."""

    place: Any
    """The lowest of the corners."""
    rises: tuple
    """How much further the upper corner is along each coordinate; None where it is always the next."""
    fractions: tuple
    reward: Any
    ended: Any
    stay: Any


def single(number: Any) -> Any:
    """Floats and integers with 32 bits each, as accelerators like them.

    Examples
    --------
    >>> single(jnp.arange(2)).dtype
    dtype('int32')
    """
    kinds = ((jnp.floating, jnp.float32), (jnp.signedinteger, jnp.int32))
    return next((number.astype(narrow) for kind, narrow in kinds if jnp.issubdtype(number.dtype, kind)), number)


def farthest(there: Any, own: Any) -> Any:
    """How many slabs away from their own steps lead at most, the slab above included: `there` is (points, held, parts), `own` (points,).

    Examples
    --------
    >>> int(farthest(jnp.array([[[0]], [[4]]]), jnp.array([2, 3])))
    2
    """
    own = own[:, None, None]
    return jnp.maximum((own - there).max(), (there + 1 - own).max())


class Contraction:
    """The sweep of one `SweepConfig` on one grid. Points of the first quiet coordinate are slabs of the table, shared out over devices."""

    axis = 1

    def __init__(self, simulator: Simulator, grid: Grid, layout: Layout, config: SweepConfig):
        self.simulator, self.grid, self.layout, self.config, self.noise = simulator, grid, layout, config, noise_of(simulator, grid, config)
        self.actions = len(simulator.actions)
        self.slab = math.prod(layout.quiet.shape[1:])
        self.shape = (self.actions, layout.quiet.size, layout.held.size, layout.free.size)
        with jax.enable_x64(True):
            known, reach = jax.jit(self._lively)(jnp.arange(watched_group(layout).size))
        self.lively = tuple(jnp.moveaxis(number, 3, 0) for number in known)
        """What is known of lively steps, (parts, watched, held, free)."""
        self.base, self.window = window_of(grid, layout, reach)
        self.parts = max(layout.quiet_parts) + 1
        self.entries = (self.actions + config.of_values) * layout.held.size * self.parts * self.window.size * layout.free.size

    def _lively(self, w: Any) -> tuple:
        known = lively_table(self.simulator, self.grid, self.layout, w)
        return jax.tree.map(single, (known, reach_of(self.simulator, self.grid, self.layout, known)))

    def turn(self, q: np.ndarray) -> np.ndarray:
        """Q(z, a), (points, actions), as a table."""
        return np.moveaxis(self.layout.turn(q), 3, 0)

    def turn_back(self, table: np.ndarray) -> np.ndarray:
        """The inverse of `turn`."""
        return self.layout.turn_back(np.moveaxis(table, 0, 3))

    def tabulate(self, z: Any) -> Quiet:
        """The quiet part of steps from the quiet points numbered z."""
        found = quiet_table(self.simulator, self.grid, self.layout, z)
        place = reduce(add, (near.lower for near in found.neighbors)).astype(jnp.int32)
        axes = [self.grid.axes[i] for i in self.layout.quiet.coordinates]
        rises = tuple(
            None if axis.period is None else (near.upper - near.lower).astype(jnp.int32)
            for axis, near in zip(axes, found.neighbors, strict=True)
        )
        return Quiet(place, rises, tuple(near.fraction for near in found.neighbors), found.reward, found.ended, found.stay)

    def slabs_reached(self, quiet: Quiet, z: Any) -> Any | None:
        """How many slabs away from its own the quiet part of a step leads at most, the corner above it included."""
        if self.grid.axes[self.layout.quiet.coordinates[0]].period is not None:
            return None
        return farthest(quiet.place // self.slab, z // self.slab)

    def sweep(self, table: Any, own: Any, quiet: Quiet, z: Any, offset: Any, key: Any, gamma: Any, eta: Any) -> Any:
        """(1 - eta) Q + eta T'Q at the quiet points numbered z, whose present values are `own`; `table` begins at quiet point `offset`."""
        g = self.contract(table, quiet, z, offset)
        return self.back_up(g, own, quiet, z, key, gamma, eta)

    def contract(self, table: Any, quiet: Quiet, z: Any, offset: Any) -> Any:
        """G(b, z, h, p, r, f), one row for each b; V is one more where V is interpolated."""
        if self.config.of_values:
            table = jnp.concatenate([table, table.max(axis=0, keepdims=True)])
        flat, held, free = table.reshape(len(table), -1), self.layout.held, self.layout.free
        bases = [base[watched_of(self.layout, z)][:, :, None, None, None] for base in self.base]
        digits = self.window.digits(jnp.arange(self.window.size)[None, None, None, :, None])
        row = sum((stride * (base + digit) for stride, base, digit in zip(held.strides, bases, digits, strict=True)), start=0)
        inside = row * free.size + jnp.arange(free.size)
        # A device that has no points of its own looks nowhere in particular.
        place, fractions = jnp.maximum(quiet.place - offset, 0)[..., None, None], [part[..., None, None] for part in quiet.fractions]
        strides = self.layout.quiet.strides
        rises = [stride if rise is None else rise[..., None, None] for rise, stride in zip(quiet.rises, strides, strict=True)]
        total: Any = 0.0
        for bits in corners(len(rises)):
            corner = reduce(add, itertools.compress(rises, bits), place)
            index = corner * (held.size * free.size) + inside
            total = total + corner_weight(fractions, bits) * flat.at[:, index].get(mode="promise_in_bounds")
        return total.reshape(len(table), -1)

    def back_up(self, g: Any, own: Any, quiet: Quiet, z: Any, key: Any, gamma: Any, eta: Any) -> Any:
        """The new values of all pairs, (actions, points, held, free), from G."""
        layout, noise = self.layout, self.noise
        held, free = layout.held, layout.free
        a = jnp.arange(self.actions)[:, None, None, None]
        h, f = jnp.arange(held.size)[:, None], jnp.arange(free.size)
        w, points = watched_of(layout, z)[:, None, None], jnp.arange(len(z))[:, None, None]
        part, lively_part = jnp.asarray(layout.quiet_parts)[a], jnp.asarray(layout.lively_parts)[a]
        known = tuple(number[lively_part, w, h, f] for number in self.lively)
        bases = [base[w, h] for base in self.base]
        start = (points * held.size + h) * self.parts + part
        here = Quiet((), (), (), *(number[points, h, part] for number in (quiet.reward, quiet.ended, quiet.stay)))
        strides = dict(enumerate(noise.strides))
        groups = ((layout.quiet, z[:, None, None]), (held, h), (free, f))
        indices = {i: digit for group, number in groups for i, digit in zip(group.coordinates, group.digits(number), strict=True)}
        pair = sum(index.astype(jnp.uint32) * np.uint32(strides[i] & 0xFFFFFFFF) for i, index in indices.items())
        pair = pair * np.uint32(self.actions) + a.astype(jnp.uint32)
        v, after = own.max(axis=0), split_of(self.simulator.factors[0]).after
        average = Average(*[jnp.zeros(own.shape, own.dtype)] * 5)
        for k, (value, share) in enumerate(zip(noise.values.tolist(), noise.shares.tolist(), strict=True)):
            spot = pair * np.uint32(len(noise.shares)) + np.uint32(k)
            u = noise.low + noise.width * random_uniform(key, spot, UINT32).astype(own.dtype) if noise.drawn else value
            outcome = after(known, u)
            around, lively_stay = self._lively_corners(outcome.x, bases, start, h, f)
            mass = lively_stay * here.stay
            best = elsewhere = same = None
            for b in range(self.actions):
                there = sum(weight * g[b].at[index].get(mode="promise_in_bounds") for index, weight in around)
                rest = there - mass * own[b]
                best = there if best is None else jnp.maximum(best, there)
                elsewhere = rest if elsewhere is None else jnp.maximum(elsewhere, rest)
                same = there if same is None else jnp.where(a == b, there, same)
            if self.config.of_values:
                best = sum(weight * g[-1].at[index].get(mode="promise_in_bounds") for index, weight in around)
            one = Average(paid(outcome, here), best, same, elsewhere + mass * own, mass)
            average = average.with_one_more(share, outcome.ended | here.ended, one)
        return (1.0 - eta) * own + eta * self.config.operator(average.backup(gamma, own, v, self.config.of_values))

    def _lively_corners(self, x: tuple, bases: list, start: Any, h: Any, f: Any) -> tuple[list[tuple[Any, Any]], Any]:
        """The places in G around x with their weights, and the weight of the lively point itself."""
        grid, outputs = self.grid, self.simulator.factors[0].outputs
        places, stay = [(start, jnp.float32(1.0))], jnp.float32(1.0)
        for group, number, extent in ((self.layout.held, h, self.window), (self.layout.free, f, self.layout.free)):
            own = group.digits(number)
            for k, i in enumerate(group.coordinates):
                (near,) = neighbors(Grid((grid.axes[i],)), (x[outputs.index(i)],))
                stay = stay * neighbor_weight(own[k], near)
                base = bases[k] if group is self.layout.held else 0
                # A row that no noise tried led to has no place in G: better no number than a wrong one.
                within = (near.lower >= base) & (near.upper < base + extent.shape[k])
                fraction = jnp.where(within, near.fraction, jnp.nan)
                lower, upper = (jnp.clip(end - base, 0, extent.shape[k] - 1) for end in (near.lower, near.upper))
                places = [
                    (place * extent.shape[k] + end, weight * share)
                    for place, weight in places
                    for end, share in ((lower, 1.0 - fraction), (upper, fraction))
                ]
        return places, stay
