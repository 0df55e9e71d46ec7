"""The second kernel of a GPU sweep: every lane has a point, finds where its actions lead, and backs them up from G.

See `kernel` for what G is. All pairs of a program have one watched and one held point, and their actions one quiet part.
"""

from __future__ import annotations

import itertools
from functools import reduce
from operator import mul, or_
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from actiongap._numba import fields_read
from actiongap.grid.axes import Ruler, locate
from actiongap.grid.backups import Average
from actiongap.grid.domain import paid
from actiongap.grid.draws import UNSIGNED, draw
from actiongap.grid.points import Side, corner_weight, corners, weight_of
from actiongap.grid.tables import split_of

if TYPE_CHECKING:
    from actiongap.grid.accelerator.kernel import Kernel

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


def back_up_lanes(form: Kernel, given: Given, rulers: list[Ruler], out: Any) -> None:
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
        u = noise.low + noise.width * draw(given.numbers[0][0], place, UNSIGNED) if noise.drawn else float(noise.values[k])
        known = tuple(ref[(group * free + f) * form.lively_parts + lively_part] for ref in given.steps.known)
        tries.append(_try(form, rulers, digits, bases, known, u, steps, a, share))
    strides, reads = _window_strides(form), fields_read(form.rule.operator)
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
        new = form.rule.operator(average.backup(gamma, now, v))
        gpu.store(out.at[mine + a * others], (1.0 - eta) * now + eta * new, mask=real)


def _try(form: Kernel, rulers: list[Ruler], digits: list, bases: list, known: tuple, u: Any, quiet: Steps, a: Any, share: float) -> Try:
    """Where an action leads with this noise."""
    layout, lively = form.layout, form.domain.factors[0]
    outcome = split_of(lively).after(known, u)
    outputs = [lively.outputs.index(i) for i in (*layout.held.coordinates, *layout.free.coordinates)]
    cells = [locate(outcome.x[i] + 0.0 * quiet.reward, ruler) for i, ruler in zip(outputs, rulers, strict=True)]
    sides = [Side(index, index + 1, fraction) for index, fraction in cells]
    quiet = quiet._replace(ended=quiet.ended > 0)
    spans = (*form.window.shape, *layout.free.shape)
    # A row that no noise tried led to is not in the window: better no number than a wrong one.
    inside = [(side.lower >= base) & (side.upper < base + span) for side, base, span in zip(sides, bases, spans, strict=True)]
    within = [jnp.where(here, side.lower - base, 0) for here, side, base in zip(inside, sides, bases, strict=True)]
    fractions = [jnp.where(here, side.fraction, jnp.nan) for here, side in zip(inside, sides, strict=True)]
    return Try(
        action=a,
        share=share,
        reward=paid(outcome, quiet),
        ended=outcome.ended | quiet.ended,
        cell=sum(index * stride for index, stride in zip(within, _window_strides(form), strict=True)),
        weights=tuple(corner_weight(fractions, bits) for bits in corners(len(sides))),
        mass=reduce(mul, (weight_of(digit, side) for digit, side in zip(digits, sides, strict=True)), quiet.stay),
    )


def _window_strides(form: Kernel) -> tuple[int, ...]:
    """How far apart neighbours along each lively coordinate are in the window."""
    free = form.layout.free
    return (*(stride * free.size for stride in form.window.strides), *free.strides)
