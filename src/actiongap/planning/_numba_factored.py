"""A sweep on a CPU for factored simulators, compiled with Numba.

`actiongap.planning.factors` defines the groups of coordinates. A *row* of the packed table belongs to one deterministic and one coupled
point: all batched points and all actions, a few dozen numbers that are adjacent in memory. Its pairs are processed side by side, as SIMD
*lanes*: each stage (noise, step, corners) is a plain loop over lanes that reads and writes flat arrays at fixed strides, so the compiler
vectorizes it. Coordinates are computed in double precision whatever the type of Q, because they decide whether an episode ends.

The next deterministic coordinates, and the inputs of the stochastic step, are tabulated once. A sweep processes each row by part of the
action: the deterministic corners of a coupled point are summed for a whole row when a pair first reads that point, and every pair then
reads its few stochastic corners in these sums. On the bicycle, that is 16 corners shared by two dozen pairs and 4 corners per pair, instead
of 64. The result is that of `_numba_sweeps.gathered_sweep` up to the order of sums.
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
from actiongap.planning._cpu_sweeps import Sweep
from actiongap.planning._numba_cells import FAST, LocatorBuffers, Unsigned, chooser, inlined, locator, summer, taken, weighted
from actiongap.planning.backups import Noise, SweepConfig, noise_of, with_again
from actiongap.planning.factors import Group, Layout, deterministic_table, observed_group, observed_index, stochastic_table
from actiongap.planning.grid import Grid
from actiongap.planning.noise import random_uniform
from actiongap.planning.simulator import Factor, Simulator

draw_at = compile_function(random_uniform)


class Known(NamedTuple):
    """Inputs of stochastic steps that are known before the noise."""

    numbers: np.ndarray
    """Arguments of the step, (observed, coupled, numbers * lanes)."""
    observed: np.ndarray
    """The observed point of each deterministic point."""
    place: np.ndarray
    """Contribution of each deterministic point to the noise counter."""
    lane_place: np.ndarray
    """Contribution of each coupled point and lane, (coupled, lanes)."""


class Moves(NamedTuple):
    """Next states of the lanes of a row for each of K noise samples. Stochastic points are numbered coupled * batched + batched index."""

    point: np.ndarray
    """Numbers of the corners, (K, corners * lanes)."""
    weight: np.ndarray
    """Weights of the corners."""
    outcome: np.ndarray
    """Next stochastic coordinates, reward, and 1 where the episode ends: (K, numbers * lanes)."""
    stay: np.ndarray
    """The weight of the pair's own stochastic point, (K, lanes)."""


def stochastic_step(factor: Factor) -> Callable:
    """The step of the stochastic factor as kernels call it: a function of the known numbers, the action and the noise.

    Examples
    --------
    >>> from actiongap.envs.classic import cart_pole
    >>> stochastic_step(cart_pole().factors[0])((0.0, 1.0, 0.0, 0.0), 0, 0.0).x
    (0.02,)
    """
    if factor.split is None:
        return factor.step
    after = factor.split.after
    return lambda known, a, u: after(known, u)


def known_of(simulator: Simulator, grid: Grid, layout: Layout, noise: Noise) -> Known:
    """Arguments of stochastic steps on a grid, and their noise counters.

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
    known = stochastic_table(simulator, grid, layout, np.arange(observed_group(layout).size))
    if simulator.factors[0].split is None:
        known = known[:-1]  # Kernels pass the action itself, as an integer.
    numbers = np.stack([number[..., list(layout.stochastic_parts)] for number in known], axis=2)
    deterministic, coupled, batched = (_places(group, noise.strides) for group in (layout.deterministic, layout.coupled, layout.batched))
    return Known(
        np.ascontiguousarray(numbers.reshape(*numbers.shape[:2], -1), dtype=np.float64),
        observed_index(layout, np.arange(layout.deterministic.size)),
        deterministic * actions,
        ((coupled[:, None, None] + batched[:, None]) * actions + np.arange(actions)).reshape(layout.coupled.size, -1),
    )


def _places(group: Group, strides: tuple[int, ...]) -> np.ndarray:
    digits = group.digits(np.arange(group.size))
    return sum((digit * strides[i] for i, digit in zip(group.coordinates, digits, strict=True)), start=np.zeros(group.size, np.int64))


def mover(simulator: Simulator, grid: Grid, layout: Layout, noise: Noise, step: Callable, numbers: int, reads_again: bool) -> Callable:
    """A compiled function move(known, z, h, key, moves, noise, buffers) that computes the next states of the lanes of a row.

    Parameters
    ----------
    simulator
        The simulator.
    grid
        The grid.
    layout
        The groups of coordinates.
    noise
        How noise is sampled.
    step
        `stochastic_step`, compiled.
    numbers
        Number of known arguments of the step.
    reads_again
        Whether `stay` is needed.
    """
    actions, batched, outputs, count = len(simulator.actions), layout.batched.size, simulator.factors[0].outputs, len(noise.weights)
    lanes, corners, coordinates = batched * actions, 2 ** len(outputs), len(outputs)
    drawn, values, low, width = noise.drawn, noise.values, noise.low, noise.width
    strides = (*(stride * batched for stride in layout.coupled.strides), *layout.batched.strides)
    axes = (*layout.coupled.coordinates, *layout.batched.coordinates)
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
        for f in range(batched):
            own = h * batched + f
            for lane in range(f * actions, (f + 1) * actions):
                share = weight.dtype.type(0.0)
                for c in range(corners):
                    share += weight[c * lanes + lane] if point[c * lanes + lane] == own else weight.dtype.type(0.0)
                stay[lane] = share

    @inlined
    def move(known, z, h, key, moves, noise, buffers):
        for k in range(count):
            point, weight = moves.point[k], moves.weight[k]
            take_steps(known.numbers[known.observed[z], h], known.place[z], known.lane_place[h], key, k, moves.outcome[k], noise)
            locate(moves.outcome[k], point, weight, buffers)
            if reads_again:
                weigh_own(h, point, weight, moves.stay[k])

    return move


MAX_STEPS = 2_000_000
"""Deterministic steps computed at a time."""

make_backup, finish_backup = compile_function(backup), compile_function(with_again)


class Sums(NamedTuple):
    """Sums over deterministic corners, for one part of the action."""

    number: np.ndarray
    """Numbers of the corners."""
    weight: np.ndarray
    """Weights of the corners."""
    q: np.ndarray
    """The sums of Q over them, (coupled, batched, actions), computed for each coupled point when it is first read."""
    v: np.ndarray
    """The sums of V, (coupled, batched)."""
    tick: np.ndarray
    """For each coupled point, the tick at which its sums were computed."""


class Row(NamedTuple):
    """Means over noise for the pairs of a row: arrays (lanes,)."""

    v: np.ndarray
    reward: np.ndarray
    next_v: np.ndarray
    next_q: np.ndarray
    next_again: np.ndarray
    stay: np.ndarray


class DeterministicSteps(NamedTuple):
    """`factors.DeterministicTable` as arrays (deterministic, coupled, parts); those per coordinate have a last axis for it."""

    lower: np.ndarray
    upper: np.ndarray
    fraction: np.ndarray
    reward: np.ndarray
    ended: np.ndarray
    stay: np.ndarray


def deterministic_steps(simulator: Simulator, grid: Grid, layout: Layout, dtype: type) -> DeterministicSteps:
    """The deterministic part of every step, computed in double precision and stored as `dtype`.

    Examples
    --------
    >>> from actiongap.envs.bicycle import bicycle
    >>> from actiongap.planning.factors import layout_of
    >>> simulator, grid = bicycle(), Grid(bicycle().axes(3))
    >>> deterministic_steps(simulator, grid, layout_of(simulator, grid), np.float32).lower.shape
    (81, 3, 3, 4)
    """
    shape = (layout.deterministic.size, layout.coupled.size, max(layout.deterministic_parts) + 1)
    along = (*shape, len(layout.deterministic.coordinates))
    kept = DeterministicSteps(
        np.empty(along, np.uint32), np.empty(along, np.uint32), *(np.empty(s, dtype) for s in (along, shape, shape, shape))
    )
    kept = kept._replace(ended=np.empty(shape, np.bool_))
    some = max(1, MAX_STEPS // (shape[1] * shape[2]))
    for first in range(0, shape[0], some):
        block = slice(first, min(first + some, shape[0]))
        found = deterministic_table(simulator, grid, layout, np.arange(block.start, block.stop))
        for i, near in enumerate(found.neighbors):
            kept.lower[block, ..., i], kept.upper[block, ..., i], kept.fraction[block, ..., i] = near
        kept.reward[block], kept.ended[block], kept.stay[block] = found.reward, found.ended, found.stay
    return kept


def factored_sweep(
    simulator: Simulator, grid: Grid, layout: Layout, config: SweepConfig, step: Callable, apply: Callable, dtype: type
) -> Sweep:
    """A compiled sweep over a packed, flat table, one deterministic point at a time.

    Parameters
    ----------
    simulator
        The simulator.
    grid
        The grid.
    layout
        The groups of coordinates.
    config
        The sweep configuration.
    step
        `stochastic_step` of the first factor, compiled.
    apply
        The operator, compiled.
    dtype
        The type of Q.
    """
    noise = noise_of(simulator, grid, config)
    known, deterministic = known_of(simulator, grid, layout, noise), deterministic_steps(simulator, grid, layout, dtype)
    real, zero = np.dtype(dtype).type, np.dtype(dtype).type(0.0)
    weights, of_values, gamma, eta = noise.weights.astype(dtype), config.of_values, config.gamma, config.eta
    reads = fields_read(config.operator)
    reads_again, ahead = "again" in reads, not of_values or bool({"next_gap", "repeat"} & reads)
    actions, batched, coupled = len(simulator.actions), layout.batched.size, layout.coupled.size
    lanes, stochastic, count, coordinates = batched * actions, coupled * batched, len(weights), len(simulator.factors[0].outputs)
    corners, coupled_corners, deterministic_corners = (
        2**coordinates,
        2 ** len(layout.coupled.coordinates),
        2 ** len(layout.deterministic.coordinates),
    )
    # If noise depends on observed coordinates only, so do stochastic steps: they are reused while the observed point is the same.
    redraw = noise.drawn and any(noise.strides[i] for i in layout.deterministic.coordinates[layout.observed :])
    stored_rows = 1 if redraw else coupled
    parts_of_lanes = np.tile(layout.deterministic_parts, batched)
    lanes_by_part = np.argsort(parts_of_lanes, kind="stable").astype(np.uint32)
    begins = np.searchsorted(parts_of_lanes[lanes_by_part], np.arange(max(layout.deterministic_parts) + 2))
    move = mover(simulator, grid, layout, noise, step, known.numbers.shape[2] // lanes, reads_again)
    read, blend, spread = taken(corners), weighted(corners), _spreader(len(layout.deterministic.coordinates))
    choose = chooser(actions, reads_again)
    sum_rows, sum_values = summer(deterministic_corners, lanes), summer(deterministic_corners, batched)

    @inlined
    def look_ahead(q, own, a, lane, mass, share, point, weight, sums, after, row):
        """Add the next values of a pair, interpolated between its stochastic corners."""
        if of_values:
            row.next_v[lane] += share * blend(sums.v, point, weight, Unsigned(1), Unsigned(0), zero)
            if ahead:
                row.next_q[lane] += share * blend(sums.q, point, weight, Unsigned(actions), a, zero)
            row.stay[lane] += share * mass
            return
        for b in range(Unsigned(actions)):
            after[b] = blend(sums.q, point, weight, Unsigned(actions), b, zero)
        best, again = choose(after, q, own, a, mass)
        row.next_v[lane] += share * best
        row.next_q[lane] += share * after[a]
        row.next_again[lane] += share * again

    @inlined
    def one_part(q, v, deterministic, z, h, part, tick, moves, sums, after, row):
        spread(
            deterministic.lower[z, h, part], deterministic.upper[z, h, part], deterministic.fraction[z, h, part], sums.number, sums.weight
        )
        part_reward, part_ended, part_stay = (
            deterministic.reward[z, h, part],
            deterministic.ended[z, h, part],
            deterministic.stay[z, h, part],
        )
        first = Unsigned((z * coupled + h) * lanes)
        for t in range(begins[part], begins[part + 1]):
            lane = Unsigned(lanes_by_part[t])
            a = lane % Unsigned(actions)
            for k in range(count):
                reward = real(moves.outcome[k, Unsigned(coordinates * lanes) + lane])
                ended = moves.outcome[k, Unsigned((coordinates + 1) * lanes) + lane] != 0.0
                row.reward[lane] += weights[k] * (reward if ended else part_reward if part_ended else reward + part_reward)
                if ended or part_ended:
                    continue
                for c in range(coupled_corners):
                    h_next = Unsigned(moves.point[k, Unsigned(c * lanes) + lane]) // Unsigned(batched)
                    if sums.tick[h_next] != tick:
                        sums.tick[h_next] = tick
                        if ahead:
                            sum_rows(q, sums.number, sums.weight, Unsigned(stochastic * actions), h_next * Unsigned(lanes), sums.q)
                        if of_values:
                            sum_values(v, sums.number, sums.weight, Unsigned(stochastic), h_next * Unsigned(batched), sums.v)
                point, weight = read(moves.point[k], lane, Unsigned(lanes)), read(moves.weight[k], lane, Unsigned(lanes))
                look_ahead(q, first + lane - a, a, lane, moves.stay[k, lane] * part_stay, weights[k], point, weight, sums, after, row)

    @inlined
    def begin(q, first, row):
        for f in range(batched):
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
    def sweep_range(q, v, out, known, deterministic, key, first, last):
        point, weight = np.empty((stored_rows, count, corners * lanes), np.uint32), np.empty((stored_rows, count, corners * lanes), q.dtype)
        outcome, stay = np.empty((stored_rows, count, (coordinates + 2) * lanes)), np.zeros((stored_rows, count, lanes), q.dtype)
        noise, buffers = np.empty(lanes), LocatorBuffers(np.empty(lanes, np.uint32), np.empty(lanes, np.uint32), np.empty(lanes, q.dtype))
        some = np.empty((6, lanes), q.dtype)
        row, after = Row(some[0], some[1], some[2], some[3], some[4], some[5]), np.empty(actions, q.dtype)
        number, share, tick = np.empty(deterministic_corners, np.uint64), np.empty(deterministic_corners, q.dtype), 0
        sums = Sums(number, share, np.empty(stochastic * actions, q.dtype), np.empty(stochastic, q.dtype), np.zeros(coupled, np.int64))
        for z in range(first, last):
            recompute = redraw or z == first or known.observed[z] != known.observed[z - 1]
            for h in range(coupled):
                kept = 0 if redraw else h
                moves = Moves(point[kept], weight[kept], outcome[kept], stay[kept])
                if recompute:
                    move(known, z, h, key, moves, noise, buffers)
                begin(q, (z * coupled + h) * lanes, row)
                for part in range(len(begins) - 1):
                    tick += 1
                    one_part(q, v, deterministic, z, h, part, tick, moves, sums, after, row)
                finish(q, out, (z * coupled + h) * lanes, row)

    def sweep(q: np.ndarray, out: np.ndarray, key: int) -> Callable[[int, int], None]:
        v = reduce(np.maximum, q.reshape(-1, actions).T) if of_values else q[:0]
        return lambda first, last: sweep_range(q, v, out, known, deterministic, key, first, last)

    return Sweep(sweep, layout.deterministic.size, coupled * lanes)


def _spreader(coordinates: int) -> Callable:
    """A compiled function that expands neighbors along some coordinates into the numbers and weights of all corners."""

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
