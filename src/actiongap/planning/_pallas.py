"""The second kernel of a GPU sweep: every lane has a point, finds where its actions lead, and backs them up from G.

See `kernel` for what G is. All pairs of a program have one watched and one held point, and their actions one quiet part.

One sweep of interpolation in two GPU kernels, for a simulator in factors.

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
from operator import add, mul, or_
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from actiongap._numba import fields_read
from actiongap.planning._jax_factored import farthest, single
from actiongap.planning.backups import Average, SweepConfig, noise_of
from actiongap.planning.factors import Group, Layout, lively_table, quiet_table, reach_of, split_of, watched_group, window_of
from actiongap.planning.grid import AxisData, Grid, Neighbors, corner_weight, corners, locate, neighbor_weight
from actiongap.planning.noise import UINT32, random_uniform
from actiongap.planning.simulator import Simulator, paid

if TYPE_CHECKING:
    pass


LANES = 128
"""Pairs, of each action, that a program of the second kernel does at a time."""


class Steps(NamedTuple):
    """What sweeps from some watched points look up."""

    corner: Any
    """The lowest watched corner, (watched, held, parts)."""
    shares: tuple
    """How far along each watched coordinate, (watched, held, parts)."""
    base: tuple
    """The first row of the window along each held coordinate, (watched, held)."""
    spot: Any
    """The lowest of the other quiet corners, (watched, held, parts, others), as are the next four."""
    fractions: tuple
    """How far along each of the other quiet coordinates."""
    reward: Any
    ended: Any
    stay: Any
    known: tuple
    """What is known of lively steps before the noise, (watched, held, free, lively parts)."""
    place: Any
    """What the watched point adds to the place of a draw (watched,)."""


class Given(NamedTuple):
    """What a program of the second kernel is handed: everything in flat rows."""

    window: Any
    """G."""
    own: Any
    """The present values of its own points."""
    steps: Steps
    places: list
    """What held, free and other quiet points add to the place of a draw."""
    digits: list
    """The index of held and of free points along each of their coordinates."""
    knots: list
    """Of the axes of the lively coordinates."""
    members: list
    """Actions by quiet part, and their lively parts."""
    numbers: list
    """The key of the sweep, gamma and eta."""


class Knots(NamedTuple):
    """The knots of an axis where a kernel can read them."""

    ref: Any
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.ref[self.length + index if isinstance(index, int) and index < 0 else index]


class Try(NamedTuple):
    """One next state of one action, lane by lane."""

    action: Any
    share: float
    reward: Any
    ended: Any
    cell: Any
    """The number of the lowest lively corner, counted in the window."""
    weights: tuple
    """Of the lively corners."""
    mass: Any
    """A(z | x')."""


def back_up_lanes(form: Kernel, given: Given, axis_data: list[AxisData], out: Any) -> None:
    """The pairs of one watched and one held point with the actions that share a quiet part; a lane is a free and another quiet point."""
    noise, (_, held, free, actions, others) = form.noise, form.shape
    w, h, last, parts = pl.program_id(0), pl.program_id(1), pl.program_id(2), jnp.int32(form.parts)
    group, part = w * held + h, jax.lax.rem(last, parts)
    number = jax.lax.div(last, parts) * LANES + jnp.arange(LANES)
    real = number < free * others
    f = jax.lax.div(number, jnp.int32(others))
    lane, mine = number - f * others, (group * free + f) * (actions * others) + number - f * others
    f = jnp.minimum(f, free - 1)

    def read(ref: Any, at: Any) -> Any:
        return gpu.load(ref.at[at], mask=real, other=0)

    at = (group * form.parts + part) * others + lane
    steps = jax.tree.map(lambda ref: read(ref, at), given.steps._replace(base=(), known=(), place=()))
    quiet = [
        (sum(itertools.compress(form.others.strides, bits)), corner_weight(steps.fractions, bits)) for bits in corners(len(steps.fractions))
    ]
    pair = (given.steps.place[w] + given.places[0][h] + given.places[1][f] + read(given.places[2], lane)) * np.uint32(actions)
    digits = [ref[h] for ref in given.digits[0]] + [ref[f] for ref in given.digits[1]]
    bases = [ref[group] for ref in given.steps.base] + [0] * len(given.digits[1])
    tries = []
    for member, (k, share) in itertools.product(range(form.members.shape[1]), enumerate(noise.shares.tolist())):
        a, lively_part = (ref[part * form.members.shape[1] + member] for ref in given.members)
        place = (pair + a.astype(jnp.uint32)) * np.uint32(len(noise.shares)) + np.uint32(k)
        u = noise.low + noise.width * random_uniform(given.numbers[0][0], place, UINT32) if noise.drawn else float(noise.values[k])
        known = tuple(ref[(group * free + f) * form.lively_parts + lively_part] for ref in given.steps.known)
        tries.append(_try(form, axis_data, digits, bases, known, u, steps, a, share))
    strides, reads = _window_strides(form), fields_read(form.config.operator)
    returns, follows = "again" in reads, bool({"next_gap", "repeat"} & reads)

    def with_one_more(b: Any, found: tuple, cell: Any) -> tuple:
        """Of each: max_b Q(x', b), the same less A(z | x') Q(z, b), and Q(x', a), for those that lead to this cell; None if not needed."""
        base = (group * form.parts + part) * form.window.size * form.row + (cell * actions + b) * others + steps.spot
        now, partial = read(given.own, mine + b * others) if returns else None, []
        for bits in corners(len(strides)):
            corner = base + sum(itertools.compress(strides, bits)) * (actions * others)
            partial.append(sum(weight * read(given.window, corner + rise) for rise, weight in quiet))
        seen = []
        for each, (best, rest, same) in zip(tries, found, strict=True):
            there = sum(weight * number for weight, number in zip(each.weights, partial, strict=True))
            there = jnp.where(each.cell == cell, there, -jnp.inf)
            kept = jnp.where((b == each.action) & (each.cell == cell), there, same) if follows else None
            seen.append((jnp.maximum(best, there), jnp.maximum(rest, there - each.mass * now) if returns else None, kept))
        return tuple(seen)

    def one_cell(which: Any, found: tuple) -> tuple:
        cell = tries[0].cell
        for number, each in enumerate(tries[1:], 1):
            cell = jnp.where(which == number, each.cell, cell)
        return jax.lax.fori_loop(0, actions, lambda b, found: with_one_more(b, found, cell), found)

    apart = reduce(or_, [real & (each.cell != tries[0].cell) for each in tries]).astype(jnp.int32).max()
    low = jnp.full(real.shape, -jnp.inf, jnp.float32)
    start = ((low, low if returns else None, low if follows else None),) * len(tries)
    found = jax.lax.fori_loop(jnp.int32(0), 1 + apart * jnp.int32(len(tries) - 1), one_cell, start)
    v, (_, gamma, eta) = (
        reduce(jnp.maximum, [read(given.own, mine + b * others) for b in range(actions)]),
        (ref[0] for ref in given.numbers),
    )
    for one in range(0, len(tries), len(noise.shares)):
        some = list(zip(tries, found, strict=True))[one : one + len(noise.shares)]
        a = some[0][0].action
        now, nothing = read(given.own, mine + a * others), jnp.zeros(real.shape, jnp.float32)
        average = Average(*[nothing] * 5)
        for each, (best, rest, same) in some:
            rest, same = best if rest is None else rest, best if same is None else same
            one = Average(each.reward, best, same, rest + each.mass * now, each.mass)
            average = average.with_one_more(each.share, each.ended, one)
        new = form.config.operator(average.backup(gamma, now, v))
        gpu.store(out.at[mine + a * others], (1.0 - eta) * now + eta * new, mask=real)


def _try(
    form: Kernel, axis_data: list[AxisData], digits: list, bases: list, known: tuple, u: Any, quiet: Steps, a: Any, share: float
) -> Try:
    """Where an action leads with this noise."""
    layout, lively = form.layout, form.simulator.factors[0]
    outcome = split_of(lively).after(known, u)
    outputs = [lively.outputs.index(i) for i in (*layout.held.coordinates, *layout.free.coordinates)]
    cells = [locate(outcome.x[i] + 0.0 * quiet.reward, data) for i, data in zip(outputs, axis_data, strict=True)]
    neighbors = [Neighbors(index, index + 1, fraction) for index, fraction in cells]
    quiet = quiet._replace(ended=quiet.ended > 0)
    spans = (*form.window.shape, *layout.free.shape)
    # A row that no noise tried led to is not in the window: better no number than a wrong one.
    inside = [(near.lower >= base) & (near.upper < base + span) for near, base, span in zip(neighbors, bases, spans, strict=True)]
    within = [jnp.where(here, near.lower - base, 0) for here, near, base in zip(inside, neighbors, bases, strict=True)]
    fractions = [jnp.where(here, near.fraction, jnp.nan) for here, near in zip(inside, neighbors, strict=True)]
    return Try(
        action=a,
        share=share,
        reward=paid(outcome, quiet),
        ended=outcome.ended | quiet.ended,
        cell=sum(index * stride for index, stride in zip(within, _window_strides(form), strict=True)),
        weights=tuple(corner_weight(fractions, bits) for bits in corners(len(neighbors))),
        mass=reduce(mul, (neighbor_weight(digit, near) for digit, near in zip(digits, neighbors, strict=True)), quiet.stay),
    )


def _window_strides(form: Kernel) -> tuple[int, ...]:
    """How far apart neighbors along each lively coordinate are in the window."""
    free = form.layout.free
    return (*(stride * free.size for stride in form.window.strides), *free.strides)


STRETCH = 1024
"""Numbers that a program of the first kernel adds up at a time."""


def fits(simulator: Simulator, grid: Grid, layout: Layout, config: SweepConfig) -> bool:
    """Whether the kernels can do this sweep: axes have ends, and where watched coordinates lead does not depend on the other quiet ones."""
    others = layout.quiet.coordinates[layout.watched :]
    watched = watched_group(layout).coordinates
    apart = all(not set(factor.inputs) & set(others) for factor in simulator.factors[1:] if set(factor.outputs) & set(watched))
    return bool(watched and others and apart) and not config.of_values and all(axis.period is None for axis in grid.axes)


class Kernel:
    """The sweep of one `SweepConfig` on one grid. Points of the first watched coordinate are table slabs, shared out over devices."""

    axis = 0

    def __init__(self, simulator: Simulator, grid: Grid, layout: Layout, config: SweepConfig, interpret: bool = False):
        self.simulator, self.grid, self.layout, self.config, self.noise = simulator, grid, layout, config, noise_of(simulator, grid, config)
        self.interpret = interpret
        self.watched = watched_group(layout)
        self.others = Group(layout.quiet.coordinates[layout.watched :], layout.quiet.shape[layout.watched :])
        self.slab = math.prod(self.watched.shape[1:])
        self.shape = (self.watched.size, layout.held.size, layout.free.size, len(simulator.actions), self.others.size)
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
        return jax.tree.map(
            single, reach_of(self.simulator, self.grid, self.layout, lively_table(self.simulator, self.grid, self.layout, w))
        )

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
        found = quiet_table(self.simulator, self.grid, self.layout, (w[:, None] * count + jnp.arange(count, dtype=w.dtype)).reshape(-1))

        def turned(number: Any) -> Any:
            return jnp.moveaxis(number.reshape(len(w), count, self.shape[1], self.parts), 1, 3)

        def alike(number: Any) -> Any:
            return number.reshape(len(w), count, self.shape[1], self.parts)[:, 0]

        watched, others = found.neighbors[: self.layout.watched], found.neighbors[self.layout.watched :]
        known = lively_table(self.simulator, self.grid, self.layout, w)
        lowest = [low for low, _ in reach_of(self.simulator, self.grid, self.layout, known)]
        sizes = [self.grid.axes[i].size for i in self.layout.held.coordinates]
        return Steps(
            corner=alike(reduce(add, (near.lower for near in watched)) // count).astype(jnp.int32),
            shares=tuple(alike(near.fraction) for near in watched),
            base=tuple(
                jnp.clip(low, 0, size - span).astype(jnp.int32) for low, size, span in zip(lowest, sizes, self.window.shape, strict=True)
            ),
            spot=turned(reduce(add, (near.lower for near in others))).astype(jnp.int32),
            fractions=tuple(turned(near.fraction) for near in others),
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
        axis_data = [self.grid.axes[i].data(np.float32) for i in (*layout.held.coordinates, *layout.free.coordinates)]
        given = Given(
            window=window,
            own=own,
            steps=found._replace(corner=(), shares=()),
            places=[self._places(group, jnp.arange(group.size)) for group in (layout.held, layout.free, self.others)],
            digits=[group.digits(jnp.arange(group.size)) for group in (layout.held, layout.free)],
            knots=[jnp.asarray(data.knots) for data in axis_data],
            members=[jnp.asarray(self.members), jnp.asarray(np.array(layout.lively_parts)[self.members])],
            numbers=[key, gamma, eta],
        )
        flat, tree = jax.tree.flatten(jax.tree.map(lambda number: jnp.asarray(number).reshape(-1), given))

        def program(*refs: Any) -> None:
            here: Given = jax.tree.unflatten(tree, refs[:-1])
            read = [data._replace(knots=Knots(ref, len(data.knots))) for ref, data in zip(here.knots, axis_data, strict=True)]
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
