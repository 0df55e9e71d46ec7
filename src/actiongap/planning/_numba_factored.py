"""Where the pairs of a row go by lively steps: noise, step and corners of many pairs near by near, inside compiled loops.

A row is what one quiet and one held point have in common. Its pairs, every free point with every action, are *lanes*. Each stage is a plain
loop over lanes that reads and writes flat arrays at fixed distances, which the compiler turns into vector instructions. What is known
before the noise comes from `tables.lively_table`, so that a step declared in two halves costs only its second. Coordinates are computed in
double precision whatever Q is kept in: whether a step ends the episode hangs on them.

One sweep of interpolation on a CPU for a simulator in factors, group by group as `actiongap.planning.factors` tells it.

A row of the turned table is what one quiet and one held point have in common: all free points and all actions, some dozens of numbers next
to each other in memory. Where the quiet part of a step leads from there is tabulated when the sweep is made. In a sweep each row is done
part by part of the action: the quiet corners of a held point are summed when a pair first looks at that point, a whole row at once, and
every pair then reads its few lively corners in the sums. On the bicycle that is 16 corners shared by two dozen pairs, and 4 of its own,
instead of 64. The numbers are those of `gather`, but for the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import numba
import numpy as np
from numba import literal_unroll

from actiongap._numba import compile_function, fields_read
from actiongap.operators import backup
from actiongap.planning._numba_cells import FAST, Desk, Unsigned, chooser, inlined, locator, summer, taken, weighted
from actiongap.planning._numba_threads import Sweep
from actiongap.planning.backups import Noise, SweepConfig, noise_of, with_again
from actiongap.planning.factors import Group, Layout, lively_table, quiet_table, watched_group, watched_of
from actiongap.planning.grid import Grid
from actiongap.planning.noise import random_uniform
from actiongap.planning.simulator import Factor, Simulator

draw_at = compile_function(random_uniform)


class Known(NamedTuple):
    """What is known of lively steps before the noise."""

    numbers: np.ndarray
    """What a step takes, (watched, held, numbers times lanes)."""
    watched: np.ndarray
    """Which of the watched points each quiet point is."""
    place: np.ndarray
    """What each quiet point adds to the place of a draw."""
    lane_place: np.ndarray
    """What each held point and lane add to it, (held, lanes)."""


class Moves(NamedTuple):
    """Where the lanes of a row go with each of K values of the noise. Lively points are numbered held point by held point."""

    point: np.ndarray
    """The numbers of the corners, (K, corners times lanes)."""
    weight: np.ndarray
    """What each weighs."""
    outcome: np.ndarray
    """The next lively coordinates, the reward, and 1 where the episode ends: (K, that many times lanes)."""
    stay: np.ndarray
    """The weight of the lively point itself, (K, lanes)."""


def lively_step(factor: Factor) -> Callable:
    """A lively step as kernels take it: of the numbers that are known, the action and the noise.

    Examples
    --------
    >>> from actiongap.envs.classic import cart_pole
    >>> lively_step(cart_pole().factors[0])((0.0, 1.0, 0.0, 0.0), 0, 0.0).x
    (0.02,)
    """
    if factor.split is None:
        return factor.step
    after = factor.split.after
    return lambda known, a, u: after(known, u)


def known_of(simulator: Simulator, grid: Grid, layout: Layout, noise: Noise) -> Known:
    """What lively steps take on a grid, and the places of their draws.

    Examples
    --------
    >>> from actiongap.envs.classic import cart_pole
    >>> from actiongap.planning.backups import SweepConfig, noise_of
    >>> from actiongap.planning.factors import layout_of
    >>> from actiongap.operators import parse
    >>> simulator, grid = cart_pole(), Grid(cart_pole().axes(3))
    >>> known_of(simulator, grid, layout_of(simulator, grid), noise_of(simulator, grid, SweepConfig(parse("bellman"), 0.9))).numbers.shape
    (3, 1, 24)
    """
    actions = len(simulator.actions)
    known = lively_table(simulator, grid, layout, np.arange(watched_group(layout).size))
    if simulator.factors[0].split is None:
        known = known[:-1]  # Kernels hand over the action itself, a whole number.
    numbers = np.stack([number[..., list(layout.lively_parts)] for number in known], axis=2)
    quiet, held, free = (_places(group, noise.strides) for group in (layout.quiet, layout.held, layout.free))
    return Known(
        np.ascontiguousarray(numbers.reshape(*numbers.shape[:2], -1), dtype=np.float64),
        watched_of(layout, np.arange(layout.quiet.size)),
        quiet * actions,
        ((held[:, None, None] + free[:, None]) * actions + np.arange(actions)).reshape(layout.held.size, -1),
    )


def _places(group: Group, strides: tuple[int, ...]) -> np.ndarray:
    digits = group.digits(np.arange(group.size))
    return sum((digit * strides[i] for i, digit in zip(group.coordinates, digits, strict=True)), start=np.zeros(group.size, np.int64))


def mover(simulator: Simulator, grid: Grid, layout: Layout, noise: Noise, step: Callable, numbers: int, returns: bool) -> Callable:
    """A compiled function move(known, z, h, key, moves, noise, desk) that fills in where the lanes of a row go.

    Parameters
    ----------
    simulator
        The simulator.
    grid
        The grid.
    layout
        Its coordinates in groups.
    noise
        How noise is drawn.
    step
        `lively_step`, compiled.
    numbers
        How many numbers it takes besides action and noise.
    returns
        Whether `stay` is wanted.
    """
    actions, free, outputs, count = len(simulator.actions), layout.free.size, simulator.factors[0].outputs, len(noise.shares)
    lanes, corners, coordinates = free * actions, 2 ** len(outputs), len(outputs)
    drawn, values, low, width = noise.drawn, noise.values, noise.low, noise.width
    strides = (*(stride * free for stride in layout.held.strides), *layout.free.strides)
    axes = (*layout.held.coordinates, *layout.free.coordinates)
    locate = locator([(grid.axes[i], stride, outputs.index(i)) for i, stride in zip(axes, strides, strict=True)], lanes)
    read = taken(numbers)

    @inlined
    def take_steps(numbers, place, lane_place, key, k, outcome, noise):
        for lane in range(lanes):
            noise[lane] = low + width * draw_at(key, (place + lane_place[lane]) * count + k) if drawn else values[k]
        for lane in range(lanes):
            found = step(read(numbers, Unsigned(lane), Unsigned(lanes)), lane % actions, noise[lane])
            i = 0
            for x in literal_unroll(found.x):
                outcome[i * lanes + lane], i = x, i + 1
            outcome[coordinates * lanes + lane] = found.reward
            outcome[(coordinates + 1) * lanes + lane] = found.ended

    @inlined
    def weigh_own(h, point, weight, stay):
        for f in range(free):
            own = h * free + f
            for lane in range(f * actions, (f + 1) * actions):
                share = weight.dtype.type(0.0)
                for c in range(corners):
                    share += weight[c * lanes + lane] if point[c * lanes + lane] == own else weight.dtype.type(0.0)
                stay[lane] = share

    @inlined
    def move(known, z, h, key, moves, noise, desk):
        for k in range(count):
            point, weight = moves.point[k], moves.weight[k]
            take_steps(known.numbers[known.watched[z], h], known.place[z], known.lane_place[h], key, k, moves.outcome[k], noise)
            locate(moves.outcome[k], point, weight, desk)
            if returns:
                weigh_own(h, point, weight, moves.stay[k])

    return move


TABLED = 2_000_000
"""Quiet steps to compute at a time."""

make_backup, finish_backup = compile_function(backup), compile_function(with_again)


class Sums(NamedTuple):
    """Sums over the quiet corners of one part of a row."""

    number: np.ndarray
    """The corners."""
    weight: np.ndarray
    """What each weighs."""
    q: np.ndarray
    """The sums of Q over them, (held, free, actions), filled in held point by held point as they are looked at."""
    v: np.ndarray
    """The sums of V, (held, free)."""
    tick: np.ndarray
    """When those of each held point were filled in."""


class Row(NamedTuple):
    """The backups of a row while they are averaged over noise: arrays of lanes."""

    v: np.ndarray
    reward: np.ndarray
    next_v: np.ndarray
    next_q: np.ndarray
    next_again: np.ndarray
    stay: np.ndarray


class QuietSteps(NamedTuple):
    """Where the quiet part of every step leads, (quiet, held, parts), with what `tables.Quiet` says of each coordinate last."""

    lower: np.ndarray
    upper: np.ndarray
    fraction: np.ndarray
    reward: np.ndarray
    ended: np.ndarray
    stay: np.ndarray


def quiet_steps(simulator: Simulator, grid: Grid, layout: Layout, dtype: type) -> QuietSteps:
    """The quiet part of every step, computed in double precision and kept in another.

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> from actiongap.planning.factors import layout_of
    >>> simulator, grid = bicycle(), Grid(bicycle().axes(3))
    >>> quiet_steps(simulator, grid, layout_of(simulator, grid), np.float32).lower.shape
    (81, 3, 3, 4)
    """
    shape = (layout.quiet.size, layout.held.size, max(layout.quiet_parts) + 1)
    along = (*shape, len(layout.quiet.coordinates))
    kept = QuietSteps(np.empty(along, np.uint32), np.empty(along, np.uint32), *(np.empty(s, dtype) for s in (along, shape, shape, shape)))
    kept = kept._replace(ended=np.empty(shape, np.bool_))
    some = max(1, TABLED // (shape[1] * shape[2]))
    for first in range(0, shape[0], some):
        block = slice(first, min(first + some, shape[0]))
        found = quiet_table(simulator, grid, layout, np.arange(block.start, block.stop))
        for i, near in enumerate(found.neighbors):
            kept.lower[block, ..., i], kept.upper[block, ..., i], kept.fraction[block, ..., i] = near
        kept.reward[block], kept.ended[block], kept.stay[block] = found.reward, found.ended, found.stay
    return kept


def factored_sweep(
    simulator: Simulator, grid: Grid, layout: Layout, config: SweepConfig, step: Callable, apply: Callable, dtype: type
) -> Sweep:
    """The sweep of a turned and flat table, compiled, quiet point by quiet point.

    Parameters
    ----------
    simulator
        The simulator.
    grid
        The grid.
    layout
        Its coordinates in groups.
    config
        What a sweep does.
    step
        `lively.lively_step` of the first factor, compiled.
    apply
        The operator, compiled.
    dtype
        What Q is kept in.
    """
    noise = noise_of(simulator, grid, config)
    known, quiet = known_of(simulator, grid, layout, noise), quiet_steps(simulator, grid, layout, dtype)
    real, nothing = np.dtype(dtype).type, np.dtype(dtype).type(0.0)
    shares, of_values, gamma, eta = noise.shares.astype(dtype), config.of_values, config.gamma, config.eta
    reads = fields_read(config.operator)
    returns, ahead = "again" in reads, not of_values or bool({"next_gap", "repeat"} & reads)
    actions, free, held = len(simulator.actions), layout.free.size, layout.held.size
    lanes, lively, count, coordinates = free * actions, held * free, len(shares), len(simulator.factors[0].outputs)
    corners, held_corners, quiet_corners = 2**coordinates, 2 ** len(layout.held.coordinates), 2 ** len(layout.quiet.coordinates)
    # Where noise does not depend on all quiet coordinates, neither do lively steps: they are kept for all rows of a quiet point.
    anew = noise.drawn and any(noise.strides[i] for i in layout.quiet.coordinates[layout.watched :])
    kept_rows = 1 if anew else held
    parts_of_lanes = np.tile(layout.quiet_parts, free)
    takers = np.argsort(parts_of_lanes, kind="stable").astype(np.uint32)
    begins = np.searchsorted(parts_of_lanes[takers], np.arange(max(layout.quiet_parts) + 2))
    move = mover(simulator, grid, layout, noise, step, known.numbers.shape[2] // lanes, returns)
    read, blend, spread = taken(corners), weighted(corners), _spreader(len(layout.quiet.coordinates))
    choose = chooser(actions, returns)
    sum_rows, sum_values = summer(quiet_corners, lanes), summer(quiet_corners, free)

    @inlined
    def look_ahead(q, own, a, lane, mass, share, point, weight, sums, after, row):
        """Add what follows when a pair goes on to its lively corners."""
        if of_values:
            row.next_v[lane] += share * blend(sums.v, point, weight, Unsigned(1), Unsigned(0), nothing)
            if ahead:
                row.next_q[lane] += share * blend(sums.q, point, weight, Unsigned(actions), a, nothing)
            row.stay[lane] += share * mass
            return
        for b in range(Unsigned(actions)):
            after[b] = blend(sums.q, point, weight, Unsigned(actions), b, nothing)
        best, again = choose(after, q, own, a, mass)
        row.next_v[lane] += share * best
        row.next_q[lane] += share * after[a]
        row.next_again[lane] += share * again

    @inlined
    def one_part(q, v, quiet, z, h, part, tick, moves, sums, after, row):
        spread(quiet.lower[z, h, part], quiet.upper[z, h, part], quiet.fraction[z, h, part], sums.number, sums.weight)
        pays, closes, stays = quiet.reward[z, h, part], quiet.ended[z, h, part], quiet.stay[z, h, part]
        first = Unsigned((z * held + h) * lanes)
        for t in range(begins[part], begins[part + 1]):
            lane = Unsigned(takers[t])
            a = lane % Unsigned(actions)
            for k in range(count):
                reward = real(moves.outcome[k, Unsigned(coordinates * lanes) + lane])
                falls = moves.outcome[k, Unsigned((coordinates + 1) * lanes) + lane] != 0.0
                row.reward[lane] += shares[k] * (reward if falls else pays if closes else reward + pays)
                if falls or closes:
                    continue
                for c in range(held_corners):
                    h_next = Unsigned(moves.point[k, Unsigned(c * lanes) + lane]) // Unsigned(free)
                    if sums.tick[h_next] != tick:
                        sums.tick[h_next] = tick
                        if ahead:
                            sum_rows(q, sums.number, sums.weight, Unsigned(lively * actions), h_next * Unsigned(lanes), sums.q)
                        if of_values:
                            sum_values(v, sums.number, sums.weight, Unsigned(lively), h_next * Unsigned(free), sums.v)
                point, weight = read(moves.point[k], lane, Unsigned(lanes)), read(moves.weight[k], lane, Unsigned(lanes))
                look_ahead(q, first + lane - a, a, lane, moves.stay[k, lane] * stays, shares[k], point, weight, sums, after, row)

    @inlined
    def begin(q, first, row):
        for f in range(free):
            best = q[first + f * actions]
            for b in range(1, actions):
                best = max(best, q[first + f * actions + b])
            row.v[f * actions : (f + 1) * actions] = best
        row.reward[:], row.next_v[:], row.next_q[:], row.next_again[:], row.stay[:] = 0.0, 0.0, 0.0, 0.0, 0.0

    @inlined
    def finish(q, out, first, row):
        for lane in range(lanes):
            old, reward = 1.0 * q[first + lane], 1.0 * row.reward[lane]
            next_v, next_q = 1.0 * row.next_v[lane], 1.0 * row.next_q[lane]
            b = make_backup(gamma, reward, old, 1.0 * row.v[lane], next_v, next_q, 1.0 * row.stay[lane])
            if not of_values:
                b = finish_backup(b, reward + gamma * row.next_again[lane])
            out[first + lane] = (1.0 - eta) * old + eta * apply(b)

    @numba.njit(**FAST, nogil=True)
    def some_points(q, v, out, known, quiet, key, first, last):
        point, weight = np.empty((kept_rows, count, corners * lanes), np.uint32), np.empty((kept_rows, count, corners * lanes), q.dtype)
        outcome, stay = np.empty((kept_rows, count, (coordinates + 2) * lanes)), np.zeros((kept_rows, count, lanes), q.dtype)
        noise, desk = np.empty(lanes), Desk(np.empty(lanes, np.uint32), np.empty(lanes, np.uint32), np.empty(lanes, q.dtype))
        some = np.empty((6, lanes), q.dtype)
        row, after = Row(some[0], some[1], some[2], some[3], some[4], some[5]), np.empty(actions, q.dtype)
        number, share, tick = np.empty(quiet_corners, np.uint64), np.empty(quiet_corners, q.dtype), 0
        sums = Sums(number, share, np.empty(lively * actions, q.dtype), np.empty(lively, q.dtype), np.zeros(held, np.int64))
        for z in range(first, last):
            afresh = anew or z == first or known.watched[z] != known.watched[z - 1]
            for h in range(held):
                kept = 0 if anew else h
                moves = Moves(point[kept], weight[kept], outcome[kept], stay[kept])
                if afresh:
                    move(known, z, h, key, moves, noise, desk)
                begin(q, (z * held + h) * lanes, row)
                for part in range(len(begins) - 1):
                    tick += 1
                    one_part(q, v, quiet, z, h, part, tick, moves, sums, after, row)
                finish(q, out, (z * held + h) * lanes, row)

    def sweep(q: np.ndarray, out: np.ndarray, key: int) -> Callable[[int, int], None]:
        v = reduce(np.maximum, q.reshape(-1, actions).T) if of_values else q[:0]
        return lambda first, last: some_points(q, v, out, known, quiet, key, first, last)

    return Sweep(sweep, layout.quiet.size, held * lanes)


def _spreader(coordinates: int) -> Callable:
    """A compiled function that multiplies out the neighbors along some coordinates: numbers and weights of all corners."""

    @inlined
    def spread(lower, upper, fraction, number, weight):
        number[0], weight[0], corners = 0, 1.0, 1
        for i in range(coordinates):
            for c in range(corners):
                share = weight[c] * fraction[i]
                weight[c], weight[corners + c] = weight[c] - share, share
                number[c], number[corners + c] = number[c] + lower[i], number[c] + upper[i]
            corners *= 2

    return spread
