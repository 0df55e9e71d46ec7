"""A sweep with JAX for factored simulators: contract the deterministic coordinates, then the stochastic ones.

The table is (actions, deterministic, coupled, batched), so adjacent threads read adjacent memory. First

    G(b, z, h, p, r, f) = sum over the deterministic corners of weight * Q(b, corner, row r of h's window, f)

for every part p of an action, where the window holds the few rows of coupled points that a step from h can reach. Then every pair reads its
stochastic corners in G. Only this second stage depends on the noise, so independent noise for every pair costs little.
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
from actiongap.planning.factors import (
    Layout,
    deterministic_table,
    make_window,
    observed_group,
    observed_index,
    reachable_cells,
    split_of,
    stochastic_table,
)
from actiongap.planning.grid import Grid, corner_weight, corners, neighbor_weight, neighbors
from actiongap.planning.noise import UINT32, random_uniform
from actiongap.planning.simulator import Simulator, combined_reward


class DeterministicSteps(NamedTuple):
    """Deterministic parts of steps: arrays (points, coupled, parts)."""

    place: Any
    """Number of the lowest corner."""
    rises: tuple
    """Difference between upper and lower corner along each coordinate; None if it is always the stride."""
    fractions: tuple
    reward: Any
    ended: Any
    stay: Any


def to_32_bit(number: Any) -> Any:
    """Floats and integers as 32-bit types, which accelerators prefer.

    Examples
    --------
    >>> to_32_bit(jnp.arange(2)).dtype
    dtype('int32')
    """
    kinds = ((jnp.floating, jnp.float32), (jnp.signedinteger, jnp.int32))
    return next((number.astype(narrow) for kind, narrow in kinds if jnp.issubdtype(number.dtype, kind)), number)


def slabs_away(there: Any, own: Any) -> Any:
    """Return the largest distance, in slabs, from a point (`own`) to the slabs `there` and `there + 1` that its steps read.

    `there` is (points, coupled, parts), `own` is (points,).

    Examples
    --------
    >>> int(slabs_away(jnp.array([[[0]], [[4]]]), jnp.array([2, 3])))
    2
    """
    own = own[:, None, None]
    return jnp.maximum((own - there).max(), (there + 1 - own).max())


class Contraction:
    """The sweep of one `SweepConfig` on one grid. Points of the first deterministic coordinate are slabs; devices share them."""

    axis = 1

    def __init__(self, simulator: Simulator, grid: Grid, layout: Layout, config: SweepConfig):
        self.simulator, self.grid, self.layout, self.config, self.noise = simulator, grid, layout, config, noise_of(simulator, grid, config)
        self.actions = len(simulator.actions)
        self.slab = math.prod(layout.deterministic.shape[1:])
        self.shape = (self.actions, layout.deterministic.size, layout.coupled.size, layout.batched.size)
        with jax.enable_x64(True):
            known, reach = jax.jit(self._stochastic)(jnp.arange(observed_group(layout).size))
        self.stochastic = tuple(jnp.moveaxis(number, 3, 0) for number in known)
        """Inputs of stochastic steps, (parts, observed, coupled, batched)."""
        self.base, self.window = make_window(grid, layout, reach)
        self.parts = max(layout.deterministic_parts) + 1
        self.entries = (self.actions + config.of_values) * layout.coupled.size * self.parts * self.window.size * layout.batched.size

    def _stochastic(self, w: Any) -> tuple:
        known = stochastic_table(self.simulator, self.grid, self.layout, w)
        return jax.tree.map(to_32_bit, (known, reachable_cells(self.simulator, self.grid, self.layout, known)))

    def pack(self, q: np.ndarray) -> np.ndarray:
        """Q(z, a), (points, actions), as a table."""
        return np.moveaxis(self.layout.pack(q), 3, 0)

    def unpack(self, table: np.ndarray) -> np.ndarray:
        """The inverse of `pack`."""
        return self.layout.unpack(np.moveaxis(table, 0, 3))

    def tabulate(self, z: Any) -> DeterministicSteps:
        """The deterministic part of steps from the deterministic points z."""
        found = deterministic_table(self.simulator, self.grid, self.layout, z)
        place = reduce(add, (near.lower for near in found.neighbors)).astype(jnp.int32)
        axes = [self.grid.axes[i] for i in self.layout.deterministic.coordinates]
        rises = tuple(
            None if axis.period is None else (near.upper - near.lower).astype(jnp.int32)
            for axis, near in zip(axes, found.neighbors, strict=True)
        )
        return DeterministicSteps(place, rises, tuple(near.fraction for near in found.neighbors), found.reward, found.ended, found.stay)

    def slabs_reached(self, deterministic: DeterministicSteps, z: Any) -> Any | None:
        """Maximum distance in slabs that the deterministic part of a step covers, upper corner included."""
        if self.grid.axes[self.layout.deterministic.coordinates[0]].period is not None:
            return None
        return slabs_away(deterministic.place // self.slab, z // self.slab)

    def sweep(self, table: Any, own: Any, deterministic: DeterministicSteps, z: Any, offset: Any, key: Any, gamma: Any, eta: Any) -> Any:
        """(1 - eta) Q + eta T'Q at the deterministic points z, with current values `own`; `table` starts at point `offset`."""
        g = self.contract(table, deterministic, z, offset)
        return self.back_up(g, own, deterministic, z, key, gamma, eta)

    def contract(self, table: Any, deterministic: DeterministicSteps, z: Any, offset: Any) -> Any:
        """G(b, z, h, p, r, f), one row per b, and one for V if V is interpolated."""
        if self.config.of_values:
            table = jnp.concatenate([table, table.max(axis=0, keepdims=True)])
        flat, coupled, batched = table.reshape(len(table), -1), self.layout.coupled, self.layout.batched
        bases = [base[observed_index(self.layout, z)][:, :, None, None, None] for base in self.base]
        digits = self.window.digits(jnp.arange(self.window.size)[None, None, None, :, None])
        row = sum((stride * (base + digit) for stride, base, digit in zip(coupled.strides, bases, digits, strict=True)), start=0)
        inside = row * batched.size + jnp.arange(batched.size)
        # A device without points of its own may read anything, but within bounds.
        place, fractions = (
            jnp.maximum(deterministic.place - offset, 0)[..., None, None],
            [part[..., None, None] for part in deterministic.fractions],
        )
        strides = self.layout.deterministic.strides
        rises = [stride if rise is None else rise[..., None, None] for rise, stride in zip(deterministic.rises, strides, strict=True)]
        total: Any = 0.0
        for bits in corners(len(rises)):
            corner = reduce(add, itertools.compress(rises, bits), place)
            index = corner * (coupled.size * batched.size) + inside
            total = total + corner_weight(fractions, bits) * flat.at[:, index].get(mode="promise_in_bounds")
        return total.reshape(len(table), -1)

    def back_up(self, g: Any, own: Any, deterministic: DeterministicSteps, z: Any, key: Any, gamma: Any, eta: Any) -> Any:
        """The new values of all pairs, (actions, points, coupled, batched), from G."""
        layout, noise = self.layout, self.noise
        coupled, batched = layout.coupled, layout.batched
        a = jnp.arange(self.actions)[:, None, None, None]
        h, f = jnp.arange(coupled.size)[:, None], jnp.arange(batched.size)
        w, points = observed_index(layout, z)[:, None, None], jnp.arange(len(z))[:, None, None]
        part, stochastic_part = jnp.asarray(layout.deterministic_parts)[a], jnp.asarray(layout.stochastic_parts)[a]
        known = tuple(number[stochastic_part, w, h, f] for number in self.stochastic)
        bases = [base[w, h] for base in self.base]
        start = (points * coupled.size + h) * self.parts + part
        here = DeterministicSteps(
            (), (), (), *(number[points, h, part] for number in (deterministic.reward, deterministic.ended, deterministic.stay))
        )
        strides = dict(enumerate(noise.strides))
        groups = ((layout.deterministic, z[:, None, None]), (coupled, h), (batched, f))
        indices = {i: digit for group, number in groups for i, digit in zip(group.coordinates, group.digits(number), strict=True)}
        pair = sum(index.astype(jnp.uint32) * np.uint32(strides[i] & 0xFFFFFFFF) for i, index in indices.items())
        pair = pair * np.uint32(self.actions) + a.astype(jnp.uint32)
        v, after = own.max(axis=0), split_of(self.simulator.factors[0]).after
        average = Average(*[jnp.zeros(own.shape, own.dtype)] * 5)
        for k, (value, share) in enumerate(zip(noise.values.tolist(), noise.weights.tolist(), strict=True)):
            spot = pair * np.uint32(len(noise.weights)) + np.uint32(k)
            u = noise.low + noise.width * random_uniform(key, spot, UINT32).astype(own.dtype) if noise.drawn else value
            outcome = after(known, u)
            around, stochastic_stay = self._stochastic_corners(outcome.x, bases, start, h, f)
            mass = stochastic_stay * here.stay
            best = elsewhere = same = None
            for b in range(self.actions):
                there = sum(weight * g[b].at[index].get(mode="promise_in_bounds") for index, weight in around)
                rest = there - mass * own[b]
                best = there if best is None else jnp.maximum(best, there)
                elsewhere = rest if elsewhere is None else jnp.maximum(elsewhere, rest)
                same = there if same is None else jnp.where(a == b, there, same)
            if self.config.of_values:
                best = sum(weight * g[-1].at[index].get(mode="promise_in_bounds") for index, weight in around)
            one = Average(combined_reward(outcome, here), best, same, elsewhere + mass * own, mass)
            average = average.add(share, outcome.ended | here.ended, one)
        return (1.0 - eta) * own + eta * self.config.operator(average.backup(gamma, own, v, self.config.of_values))

    def _stochastic_corners(self, x: tuple, bases: list, start: Any, h: Any, f: Any) -> tuple[list[tuple[Any, Any]], Any]:
        """Indices into G of the corners around x with their weights, and the weight of the pair's own stochastic point."""
        grid, outputs = self.grid, self.simulator.factors[0].outputs
        places, stay = [(start, jnp.float32(1.0))], jnp.float32(1.0)
        for group, number, box in ((self.layout.coupled, h, self.window), (self.layout.batched, f, self.layout.batched)):
            own = group.digits(number)
            for k, i in enumerate(group.coordinates):
                (near,) = neighbors(Grid((grid.axes[i],)), (x[outputs.index(i)],))
                stay = stay * neighbor_weight(own[k], near)
                base = bases[k] if group is self.layout.coupled else 0
                # A row outside the window is not in G: return NaN rather than a wrong number.
                within = (near.lower >= base) & (near.upper < base + box.shape[k])
                fraction = jnp.where(within, near.fraction, jnp.nan)
                lower, upper = (jnp.clip(end - base, 0, box.shape[k] - 1) for end in (near.lower, near.upper))
                places = [
                    (place * box.shape[k] + end, weight * share)
                    for place, weight in places
                    for end, share in ((lower, 1.0 - fraction), (upper, fraction))
                ]
        return places, stay
