"""Where the pairs of a row go by lively steps: noise, step and corners of many pairs side by side, inside compiled loops.

A row is what one quiet and one held point have in common. Its pairs, every free point with every action, are *lanes*. Each stage is a plain
loop over lanes that reads and writes flat arrays at fixed distances, which the compiler turns into vector instructions. What is known
before the noise comes from `tables.lively_table`, so that a step declared in two halves costs only its second. Coordinates are computed in
double precision whatever Q is kept in: whether a step ends the episode hangs on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import literal_unroll

from actiongap._numba import compile_function
from actiongap.grid.cpu.corners import locator
from actiongap.grid.cpu.unrolled import Unsigned, inlined, taken
from actiongap.grid.domain import Domain, Factor
from actiongap.grid.draws import draw
from actiongap.grid.layout import Group, Layout, watched_group, watched_of
from actiongap.grid.points import Grid
from actiongap.grid.rule import Noise
from actiongap.grid.tables import lively_table

draw_at = compile_function(draw)


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
    >>> from actiongap.domains.classic import cart_pole
    >>> lively_step(cart_pole().factors[0])((0.0, 1.0, 0.0, 0.0), 0, 0.0).x
    (0.02,)
    """
    if factor.split is None:
        return factor.step
    after = factor.split.after
    return lambda known, a, u: after(known, u)


def known_of(domain: Domain, grid: Grid, layout: Layout, noise: Noise) -> Known:
    """What lively steps take on a grid, and the places of their draws.

    Examples
    --------
    >>> from actiongap.domains.classic import cart_pole
    >>> from actiongap.grid.rule import Rule, noise_of
    >>> from actiongap.grid.layout import layout_of
    >>> from actiongap.operators import parse
    >>> domain, grid = cart_pole(), Grid(cart_pole().axes(3))
    >>> known_of(domain, grid, layout_of(domain, grid), noise_of(domain, grid, Rule(parse("bellman"), 0.9))).numbers.shape
    (3, 1, 24)
    """
    actions = len(domain.actions)
    known = lively_table(domain, grid, layout, np.arange(watched_group(layout).size))
    if domain.factors[0].split is None:
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


def mover(domain: Domain, grid: Grid, layout: Layout, noise: Noise, step: Callable, numbers: int, returns: bool) -> Callable:
    """A compiled function move(known, z, h, key, moves, noise, desk) that fills in where the lanes of a row go.

    Parameters
    ----------
    domain
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
    actions, free, outputs, count = len(domain.actions), layout.free.size, domain.factors[0].outputs, len(noise.shares)
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
