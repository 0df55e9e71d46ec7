"""A sweep in two GPU kernels (Pallas) for factored simulators on axes that are not periodic.

The table is (observed, coupled, batched, actions, others): first the deterministic coordinates that the stochastic factor reads, last the
other deterministic ones. The next values of the observed coordinates do not depend on the others, so the first kernel contracts their
corners alone, as sums of a few long rows:

    G(w, h, p, r, ...) = sum over the observed corners of weight * Q(corner, row r of h's window, ...)

for every part p of an action. In the second kernel each GPU thread has one point. It finds the next states of its actions, contracts the
remaining corners (other deterministic ones and stochastic ones) in G, and backs the actions up. All pairs of a program have the same
observed and coupled point, and their actions the same deterministic part. Contractions over the other deterministic corners at a stochastic
cell serve all of these actions, because they usually lead to the same cell; where they do not, the contraction is repeated.

The result is that of `_jax_factored` up to rounding.
"""

from __future__ import annotations

import itertools
import math
from functools import reduce
from operator import add, mul, or_
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from actiongap._numba import fields_read
from actiongap.planning._jax_factored import slabs_away, to_32_bit
from actiongap.planning.backups import Average, SweepConfig, noise_of
from actiongap.planning.factors import (
    Group,
    Layout,
    deterministic_table,
    make_window,
    observed_group,
    reachable_cells,
    split_of,
    stochastic_table,
)
from actiongap.planning.grid import AxisData, Grid, Neighbors, corner_weight, corners, locate, neighbor_weight
from actiongap.planning.noise import UINT32, random_uniform
from actiongap.planning.simulator import Simulator, combined_reward

BLOCK = 128
"""Points per program of the second kernel."""


class Steps(NamedTuple):
    """Steps from some observed points."""

    corner: Any
    """The lowest observed corner, (observed, coupled, parts)."""
    observed_fractions: tuple
    """Fraction along each observed coordinate, (observed, coupled, parts)."""
    base: tuple
    """The first row of the window along each coupled coordinate, (observed, coupled)."""
    spot: Any
    """The lowest of the other deterministic corners, (observed, coupled, parts, others), as are the next four."""
    fractions: tuple
    """Fraction along each of the other deterministic coordinates."""
    reward: Any
    ended: Any
    stay: Any
    known: tuple
    """Inputs of stochastic steps, (observed, coupled, batched, stochastic parts)."""
    place: Any
    """Contribution of the observed point to the noise counter, (observed,)."""


class KernelInputs(NamedTuple):
    """Inputs of the second kernel, as flat arrays."""

    window: Any
    """G."""
    own: Any
    """Current values of the device's own points."""
    steps: Steps
    places: list
    """Contributions of coupled, batched and other deterministic points to the noise counter."""
    digits: list
    """The index of coupled and of batched points along each of their coordinates."""
    knots: list
    """Knots of the axes of stochastic coordinates."""
    members: list
    """Actions by deterministic part, and their stochastic parts."""
    numbers: list
    """The key of the sweep, gamma and eta."""


class KnotRef(NamedTuple):
    """The knots of an axis behind a Pallas reference, indexed like an array."""

    ref: Any
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.ref[self.length + index if isinstance(index, int) and index < 0 else index]


class Transition(NamedTuple):
    """One next state of one action, for all points of the block."""

    action: Any
    share: float
    reward: Any
    ended: Any
    cell: Any
    """The number of the lowest stochastic corner, counted in the window."""
    weights: tuple
    """Weights of the stochastic corners."""
    mass: Any
    """A(z | x')."""


def back_up_block(method: Kernel, inputs: KernelInputs, axis_data: list[AxisData], out: Any) -> None:
    """Back up a block of batched and other deterministic points, for one observed and one coupled point and one deterministic part."""
    noise, (_, coupled, batched, actions, others) = method.noise, method.shape
    w, h, last, parts = pl.program_id(0), pl.program_id(1), pl.program_id(2), jnp.int32(method.parts)
    group, part = w * coupled + h, jax.lax.rem(last, parts)
    number = jax.lax.div(last, parts) * BLOCK + jnp.arange(BLOCK)
    real = number < batched * others
    f = jax.lax.div(number, jnp.int32(others))
    lane, mine = number - f * others, (group * batched + f) * (actions * others) + number - f * others
    f = jnp.minimum(f, batched - 1)

    def read(ref: Any, at: Any) -> Any:
        return gpu.load(ref.at[at], mask=real, other=0)

    at = (group * method.parts + part) * others + lane
    steps = jax.tree.map(lambda ref: read(ref, at), inputs.steps._replace(base=(), known=(), place=()))
    deterministic = [
        (sum(itertools.compress(method.others.strides, bits)), corner_weight(steps.fractions, bits))
        for bits in corners(len(steps.fractions))
    ]
    pair = (inputs.steps.place[w] + inputs.places[0][h] + inputs.places[1][f] + read(inputs.places[2], lane)) * np.uint32(actions)
    digits = [ref[h] for ref in inputs.digits[0]] + [ref[f] for ref in inputs.digits[1]]
    bases = [ref[group] for ref in inputs.steps.base] + [0] * len(inputs.digits[1])
    transitions = []
    for member, (k, share) in itertools.product(range(method.members.shape[1]), enumerate(noise.weights.tolist())):
        a, stochastic_part = (ref[part * method.members.shape[1] + member] for ref in inputs.members)
        place = (pair + a.astype(jnp.uint32)) * np.uint32(len(noise.weights)) + np.uint32(k)
        u = noise.low + noise.width * random_uniform(inputs.numbers[0][0], place, UINT32) if noise.drawn else float(noise.values[k])
        known = tuple(ref[(group * batched + f) * method.stochastic_parts + stochastic_part] for ref in inputs.steps.known)
        transitions.append(_transition(method, axis_data, digits, bases, known, u, steps, a, share))
    strides, reads = _window_strides(method), fields_read(method.config.operator)
    reads_again, reads_next_q = "again" in reads, bool({"next_gap", "repeat"} & reads)

    def add(b: Any, found: tuple, cell: Any) -> tuple:
        """Include action b in the results of each transition to this cell.

        They are max_b Q(x', b), max_b [Q(x', b) - A(z | x') Q(z, b)] and Q(x', a); None if not needed.
        """
        base = (group * method.parts + part) * method.window.size * method.row + (cell * actions + b) * others + steps.spot
        now, partial = read(inputs.own, mine + b * others) if reads_again else None, []
        for bits in corners(len(strides)):
            corner = base + sum(itertools.compress(strides, bits)) * (actions * others)
            partial.append(sum(weight * read(inputs.window, corner + rise) for rise, weight in deterministic))
        seen = []
        for each, (best, rest, same) in zip(transitions, found, strict=True):
            there = sum(weight * number for weight, number in zip(each.weights, partial, strict=True))
            there = jnp.where(each.cell == cell, there, -jnp.inf)
            kept = jnp.where((b == each.action) & (each.cell == cell), there, same) if reads_next_q else None
            seen.append((jnp.maximum(best, there), jnp.maximum(rest, there - each.mass * now) if reads_again else None, kept))
        return tuple(seen)

    def one_cell(which: Any, found: tuple) -> tuple:
        cell = transitions[0].cell
        for number, each in enumerate(transitions[1:], 1):
            cell = jnp.where(which == number, each.cell, cell)
        return jax.lax.fori_loop(0, actions, lambda b, found: add(b, found, cell), found)

    apart = reduce(or_, [real & (each.cell != transitions[0].cell) for each in transitions]).astype(jnp.int32).max()
    low = jnp.full(real.shape, -jnp.inf, jnp.float32)
    start = ((low, low if reads_again else None, low if reads_next_q else None),) * len(transitions)
    found = jax.lax.fori_loop(jnp.int32(0), 1 + apart * jnp.int32(len(transitions) - 1), one_cell, start)
    v, (_, gamma, eta) = (
        reduce(jnp.maximum, [read(inputs.own, mine + b * others) for b in range(actions)]),
        (ref[0] for ref in inputs.numbers),
    )
    for one in range(0, len(transitions), len(noise.weights)):
        some = list(zip(transitions, found, strict=True))[one : one + len(noise.weights)]
        a = some[0][0].action
        now, zero = read(inputs.own, mine + a * others), jnp.zeros(real.shape, jnp.float32)
        average = Average(*[zero] * 5)
        for each, (best, rest, same) in some:
            rest, same = best if rest is None else rest, best if same is None else same
            one = Average(each.reward, best, same, rest + each.mass * now, each.mass)
            average = average.add(each.share, each.ended, one)
        new = method.config.operator(average.backup(gamma, now, v))
        gpu.store(out.at[mine + a * others], (1.0 - eta) * now + eta * new, mask=real)


def _transition(
    method: Kernel, axis_data: list[AxisData], digits: list, bases: list, known: tuple, u: Any, deterministic: Steps, a: Any, share: float
) -> Transition:
    """The next state of an action under this noise."""
    layout, stochastic = method.layout, method.simulator.factors[0]
    outcome = split_of(stochastic).after(known, u)
    outputs = [stochastic.outputs.index(i) for i in (*layout.coupled.coordinates, *layout.batched.coordinates)]
    cells = [locate(outcome.x[i] + 0.0 * deterministic.reward, data) for i, data in zip(outputs, axis_data, strict=True)]
    neighbors = [Neighbors(index, index + 1, fraction) for index, fraction in cells]
    deterministic = deterministic._replace(ended=deterministic.ended > 0)
    spans = (*method.window.shape, *layout.batched.shape)
    # A row outside the window is not in G: return NaN rather than a wrong number.
    inside = [(near.lower >= base) & (near.upper < base + span) for near, base, span in zip(neighbors, bases, spans, strict=True)]
    within = [jnp.where(here, near.lower - base, 0) for here, near, base in zip(inside, neighbors, bases, strict=True)]
    fractions = [jnp.where(here, near.fraction, jnp.nan) for here, near in zip(inside, neighbors, strict=True)]
    return Transition(
        action=a,
        share=share,
        reward=combined_reward(outcome, deterministic),
        ended=outcome.ended | deterministic.ended,
        cell=sum(index * stride for index, stride in zip(within, _window_strides(method), strict=True)),
        weights=tuple(corner_weight(fractions, bits) for bits in corners(len(neighbors))),
        mass=reduce(mul, (neighbor_weight(digit, near) for digit, near in zip(digits, neighbors, strict=True)), deterministic.stay),
    )


def _window_strides(method: Kernel) -> tuple[int, ...]:
    """Strides of the stochastic coordinates in the window."""
    batched = method.layout.batched
    return (*(stride * batched.size for stride in method.window.strides), *batched.strides)


ROW_BLOCK = 1024
"""Entries of a row per program of the first kernel."""


def fits(simulator: Simulator, grid: Grid, layout: Layout, config: SweepConfig) -> bool:
    """Whether the kernels apply: no periodic axes, and observed coordinates that do not depend on other deterministic ones."""
    others = layout.deterministic.coordinates[layout.observed :]
    observed = observed_group(layout).coordinates
    apart = all(not set(factor.inputs) & set(others) for factor in simulator.factors[1:] if set(factor.outputs) & set(observed))
    return bool(observed and others and apart) and not config.of_values and all(axis.period is None for axis in grid.axes)


class Kernel:
    """The sweep of one `SweepConfig` on one grid. Points of the first observed coordinate are slabs; devices share them."""

    axis = 0

    def __init__(self, simulator: Simulator, grid: Grid, layout: Layout, config: SweepConfig, interpret: bool = False):
        self.simulator, self.grid, self.layout, self.config, self.noise = simulator, grid, layout, config, noise_of(simulator, grid, config)
        self.interpret = interpret
        self.observed = observed_group(layout)
        self.others = Group(layout.deterministic.coordinates[layout.observed :], layout.deterministic.shape[layout.observed :])
        self.slab = math.prod(self.observed.shape[1:])
        self.shape = (self.observed.size, layout.coupled.size, layout.batched.size, len(simulator.actions), self.others.size)
        self.row = math.prod(self.shape[2:])
        """Table entries per observed and coupled point."""
        with jax.enable_x64(True):
            reach = jax.jit(self._reach)(jnp.arange(self.observed.size))
        _, self.window = make_window(grid, layout, reach)
        self.parts, self.stochastic_parts = max(layout.deterministic_parts) + 1, max(layout.stochastic_parts) + 1
        members = [[a for a, part in enumerate(layout.deterministic_parts) if part == each] for each in range(self.parts)]
        self.members = np.array([np.resize(some, max(map(len, members))) for some in members], np.int32)
        """The actions of each deterministic part; shorter rows repeat actions."""
        self.entries = self.shape[1] * self.parts * self.window.size * self.row

    def _reach(self, w: Any) -> tuple:
        return jax.tree.map(
            to_32_bit, reachable_cells(self.simulator, self.grid, self.layout, stochastic_table(self.simulator, self.grid, self.layout, w))
        )

    def pack(self, q: np.ndarray) -> np.ndarray:
        """Q(z, a), (points, actions), as a table."""
        table = self.layout.pack(q).reshape(self.shape[0], self.shape[4], *self.shape[1:4])
        return np.ascontiguousarray(table.transpose(0, 2, 3, 4, 1))

    def unpack(self, table: np.ndarray) -> np.ndarray:
        """The inverse of `pack`."""
        return self.layout.unpack(table.transpose(0, 4, 1, 2, 3).reshape(self.layout.deterministic.size, *self.shape[1:4]))

    def tabulate(self, w: Any) -> Steps:
        """The steps from the observed points w."""
        count = self.others.size
        found = deterministic_table(
            self.simulator, self.grid, self.layout, (w[:, None] * count + jnp.arange(count, dtype=w.dtype)).reshape(-1)
        )

        def packed(number: Any) -> Any:
            return jnp.moveaxis(number.reshape(len(w), count, self.shape[1], self.parts), 1, 3)

        def alike(number: Any) -> Any:
            return number.reshape(len(w), count, self.shape[1], self.parts)[:, 0]

        observed, others = found.neighbors[: self.layout.observed], found.neighbors[self.layout.observed :]
        known = stochastic_table(self.simulator, self.grid, self.layout, w)
        lowest = [low for low, _ in reachable_cells(self.simulator, self.grid, self.layout, known)]
        sizes = [self.grid.axes[i].size for i in self.layout.coupled.coordinates]
        return Steps(
            corner=alike(reduce(add, (near.lower for near in observed)) // count).astype(jnp.int32),
            observed_fractions=tuple(alike(near.fraction) for near in observed),
            base=tuple(
                jnp.clip(low, 0, size - span).astype(jnp.int32) for low, size, span in zip(lowest, sizes, self.window.shape, strict=True)
            ),
            spot=packed(reduce(add, (near.lower for near in others))).astype(jnp.int32),
            fractions=tuple(packed(near.fraction) for near in others),
            reward=packed(found.reward),
            ended=packed(found.ended.astype(jnp.int32)),
            stay=packed(found.stay),
            known=known,
            place=self._places(self.observed, w),
        )

    def slabs_reached(self, found: Steps, w: Any) -> Any:
        """Maximum distance in slabs that the deterministic part of a step covers, upper corner included."""
        return slabs_away(found.corner // self.slab, w // self.slab)

    def sweep(self, table: Any, own: Any, found: Steps, w: Any, offset: Any, key: Any, gamma: Any, eta: Any) -> Any:
        """(1 - eta) Q + eta T'Q at the observed points w, with current values `own`; `table` starts at observed point `offset`."""
        return self.back_up(self.contract(table, found, offset), own, found, key, gamma, eta)

    def contract(self, table: Any, found: Steps, offset: Any) -> Any:
        """G, (observed, coupled, parts, rows of the window, numbers of a row), flat."""
        coupled, rows, row = self.layout.coupled, self.window.size, self.row
        count = len(found.corner)
        start = sum(
            (base * stride for base, stride in zip(found.base, coupled.strides, strict=True)), start=jnp.zeros((count, coupled.size), int)
        )
        # A device without points of its own may read anything, but within bounds.
        corner = jnp.maximum(found.corner - offset, 0)
        first = (corner * coupled.size + start[:, :, None]).astype(jnp.int32).reshape(-1)
        steps_within = [int(sum(d * s for d, s in zip(digits, coupled.strides, strict=True))) for digits in np.ndindex(*self.window.shape)]
        rises = [stride * coupled.size for stride in self.observed.strides]

        def program(table: Any, first: Any, *rest: Any) -> None:
            *observed_fractions, out = rest
            which, at = pl.program_id(0), pl.program_id(1) * ROW_BLOCK + jnp.arange(ROW_BLOCK)
            begin, fractions = first[which], [share[which] for share in observed_fractions]
            for r, within in enumerate(steps_within):
                total: Any = 0.0
                for bits in corners(len(rises)):
                    there = (begin + (within + sum(itertools.compress(rises, bits)))) * row + at
                    total = total + corner_weight(fractions, bits) * gpu.load(table.at[there], mask=at < row, other=0.0)
                gpu.store(out.at[(which * rows + r) * row + at], total, mask=at < row)

        call = pl.pallas_call(
            program,
            out_shape=jax.ShapeDtypeStruct((count * self.entries,), table.dtype),
            grid=(count * coupled.size * self.parts, pl.cdiv(row, ROW_BLOCK)),
            compiler_params=gpu.CompilerParams(num_warps=4),
            interpret=self.interpret,
        )
        return call(table.reshape(-1), first, *(share.reshape(-1) for share in found.observed_fractions))

    def back_up(self, window: Any, own: Any, found: Steps, key: Any, gamma: Any, eta: Any) -> Any:
        """The new values of all pairs, from G."""
        layout, count = self.layout, len(own)
        axis_data = [self.grid.axes[i].data(np.float32) for i in (*layout.coupled.coordinates, *layout.batched.coordinates)]
        inputs = KernelInputs(
            window=window,
            own=own,
            steps=found._replace(corner=(), observed_fractions=()),
            places=[self._places(group, jnp.arange(group.size)) for group in (layout.coupled, layout.batched, self.others)],
            digits=[group.digits(jnp.arange(group.size)) for group in (layout.coupled, layout.batched)],
            knots=[jnp.asarray(data.knots) for data in axis_data],
            members=[jnp.asarray(self.members), jnp.asarray(np.array(layout.stochastic_parts)[self.members])],
            numbers=[key, gamma, eta],
        )
        flat, tree = jax.tree.flatten(jax.tree.map(lambda number: jnp.asarray(number).reshape(-1), inputs))

        def program(*refs: Any) -> None:
            here: KernelInputs = jax.tree.unflatten(tree, refs[:-1])
            read = [data._replace(knots=KnotRef(ref, len(data.knots))) for ref, data in zip(here.knots, axis_data, strict=True)]
            back_up_block(self, here, read, refs[-1])

        call = pl.pallas_call(
            program,
            out_shape=jax.ShapeDtypeStruct((own.size,), own.dtype),
            grid=(count, self.shape[1], pl.cdiv(self.shape[2] * self.others.size, BLOCK) * self.parts),
            compiler_params=gpu.CompilerParams(num_warps=BLOCK // 32),
            interpret=self.interpret,
        )
        return call(*flat).reshape(own.shape)

    def _places(self, group: Group, number: Any) -> Any:
        """Contributions of the points of a group to the noise counter."""
        digits = [digit.astype(jnp.uint32) for digit in group.digits(number)]
        strides = [np.uint32(self.noise.strides[i]) for i in group.coordinates]
        return sum((digit * stride for digit, stride in zip(digits, strides, strict=True)), start=jnp.zeros(len(number), jnp.uint32))
