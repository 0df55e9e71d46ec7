"""One sweep of Q-value interpolation on a CPU for a simulator in two factors: a quiet one, and a lively one that the noise moves.

Interpolation is a product of weights, so it can be done group by group,

    Q(x', b) = sum_c B(c) G(c, b),    G(c, b) = sum_z' A(z') Q(z', c, b),

where z' runs over the grid points of the quiet coordinates and c over those of the lively ones. The quiet part of a step depends neither on
the noise nor on every coordinate, so its corners are found once, when the sweep is made, and each G serves all pairs that share the quiet
part: on the bicycle 64 corners become 16, shared by two dozen pairs, and 4. The numbers are those of `gather`, but for the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
from numba.np.unsafe.ndarray import to_fixed_tuple

from actiongap.compiled import compile_function, compile_operator
from actiongap.grid.axes import Grid
from actiongap.grid.backups import with_again
from actiongap.grid.corners import corner_finder, padded
from actiongap.grid.domain import Domain, Uniform
from actiongap.grid.draws import draw
from actiongap.grid.interpolation import multilinear
from actiongap.operators import Operator, backup


def is_factored(domain: Domain) -> bool:
    """Whether a domain has the two factors that this kind of sweep needs, a lively one and a quiet one.

    Examples
    --------
    >>> from actiongap.domains.bicycle import bicycle
    >>> is_factored(bicycle())
    True
    """
    return len(domain.factors) == 2 and [factor.noisy for factor in domain.factors] == [True, False] and isinstance(domain.noise, Uniform)


def factored_sweep(domain: Domain, grid: Grid, operator: Operator) -> Callable:
    """A compiled sweep(q, out, gamma, eta, key) with out = (1 - eta) q + eta T'q, both (points, actions), one next state for each pair.

    Examples
    --------
    >>> from actiongap.domains.bicycle import bicycle
    >>> from actiongap.operators import parse
    >>> domain = bicycle()
    >>> grid = Grid(domain.axes(2))
    >>> q, out = np.zeros((grid.size, 9)), np.empty((grid.size, 9))
    >>> factored_sweep(domain, grid, parse("consistent"))(q, out, 0.99, 1.0, 0)
    >>> bool((out < 0).all())
    True
    """
    apply = compile_operator(operator)
    if apply is None or not is_factored(domain):
        raise ValueError(f"{operator} on {domain.name} cannot be swept factor by factor: use the general sweep")
    lively, quiet = domain.factors
    step, hashed, make, finish = (compile_function(function) for function in (lively.step, draw, backup, with_again))
    actions, few = len(domain.actions), len(lively.outputs)
    shape, every = grid.shape, range(len(grid.shape))
    quiet_points, lively_points = int(np.prod(shape[few:])), int(np.prod(shape[:few]))
    # What of the lively coordinates the quiet factor looks at decides which pairs share their quiet part.
    held = tuple(i for i in range(few) if i in quiet.inputs)
    place, weight, reward, ended = _quiet_part(domain, grid, held)
    held_shape = tuple(shape[i] for i in held)
    lively_axes = np.array([np.unravel_index(c, shape[:few]) for c in range(lively_points)])
    held_of = np.ravel_multi_index(lively_axes[:, held].T, held_shape) if held else np.zeros(lively_points, int)
    members = np.array([np.flatnonzero(held_of == h) for h in range(int(np.prod(held_shape, dtype=int)))])
    parts = np.array(quiet.parts)
    takers = np.array([np.flatnonzero(parts == part) for part in range(parts.max() + 1)])
    knots, corners_of = padded([axis.points for axis in grid.axes]), corner_finder(Grid(grid.axes[:few]))
    quiet_axes = np.array([np.unravel_index(z, shape[few:]) for z in range(quiet_points)])
    dimensions, corners, many = len(every), 2**few, place.shape[-1]
    low, width = domain.noise.low, domain.noise.high - domain.noise.low  # pyright: ignore[reportAttributeAccessIssue]

    @numba.njit(error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
    def contracted(q, corner_place, corner_weight, c, out):
        out[:] = 0.0
        # Four at a time, so that sums are not written and read again after each.
        for k in range(0, many - many % 4, 4):
            first, second, third, fourth = corner_weight[k], corner_weight[k + 1], corner_weight[k + 2], corner_weight[k + 3]
            one, two = q[corner_place[k], c], q[corner_place[k + 1], c]
            three, four = q[corner_place[k + 2], c], q[corner_place[k + 3], c]
            for b in range(actions):
                out[b] += first * one[b] + second * two[b] + third * three[b] + fourth * four[b]
        for k in range(many - many % 4, many):
            for b in range(actions):
                out[b] += corner_weight[k] * q[corner_place[k], c, b]

    @numba.njit(error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
    def one_point(q, v, out, weight, gamma, eta, key, zq):
        partial, stamp = np.empty((lively_points, actions), q.dtype), np.full(lively_points, -1, np.int64)
        after, here = np.empty(actions, q.dtype), np.empty(dimensions)
        at, share = np.empty(corners, np.int64), np.empty(corners, q.dtype)
        for i in range(few, dimensions):
            here[i] = knots[i, quiet_axes[zq, i - few]]
        tick = 0
        for h in range(members.shape[0]):
            for part in range(takers.shape[0]):
                tick += 1
                quiet_place, quiet_weight = place[zq, h, part], weight[zq, h, part]
                for zl in members[h]:
                    for i in range(few):
                        here[i] = knots[i, lively_axes[zl, i]]
                    x = to_fixed_tuple(here, dimensions)  # pyright: ignore[reportCallIssue]
                    for a in takers[part]:
                        # Pairs are numbered as on the grid, the lively coordinates first, so that all sweeps draw the same.
                        u = low + width * hashed(key, (zl * quiet_points + zq) * actions + a)
                        outcome = step(x, a, u)
                        old, best_here = 1.0 * q[zq, zl, a], 1.0 * v[zq, zl]
                        if outcome.ended or ended[zq, h, part]:
                            pays = outcome.reward if outcome.ended else reward[zq, h, part]
                            b = make(gamma, pays, old, best_here, 0.0, 0.0, 0.0)
                        else:
                            pays = outcome.reward + reward[zq, h, part]
                            corners_of(outcome.x, at, share)
                            after[:] = 0.0
                            mass = 0.0
                            for c in range(corners):
                                if share[c] == 0.0:
                                    continue
                                if stamp[at[c]] != tick:
                                    stamp[at[c]] = tick
                                    contracted(q, quiet_place, quiet_weight, at[c], partial[at[c]])
                                if at[c] == zl:
                                    for k in range(many):
                                        if quiet_place[k] == zq:
                                            mass += share[c] * quiet_weight[k]
                                for b_ in range(actions):
                                    after[b_] += share[c] * partial[at[c], b_]
                            elsewhere, best = -np.inf, -np.inf
                            for b_ in range(actions):
                                best = max(best, after[b_])
                                elsewhere = max(elsewhere, after[b_] - mass * q[zq, zl, b_])
                            b = make(gamma, pays, old, best_here, 1.0 * best, 1.0 * after[a], 0.0)
                            b = finish(b, pays + gamma * (elsewhere + mass * old))
                        out[zq, zl, a] = (1.0 - eta) * old + eta * apply(b)

    @numba.njit(parallel=True, error_model="numpy")
    def sweep(q, v, out, weight, gamma, eta, key):
        for zq in numba.prange(quiet_points):
            one_point(q, v, out, weight, gamma, eta, key, zq)

    def run(q: np.ndarray, out: np.ndarray, gamma: float, eta: float, key: int) -> None:
        # Quiet coordinates first: the corners of one of them are then whole blocks of memory.
        turned = np.ascontiguousarray(q.reshape(lively_points, quiet_points, actions).swapaxes(0, 1))
        result = np.empty_like(turned)
        sweep(turned, turned.max(axis=2), result, weight.astype(q.dtype, copy=False), gamma, eta, key)
        out[:] = result.swapaxes(0, 1).reshape(out.shape)

    return run


def _quiet_part(domain: Domain, grid: Grid, held: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For every quiet grid point, held lively coordinates and part of the action: corners, their weights, reward, end."""
    lively, quiet = domain.factors
    few = len(lively.outputs)
    rest = Grid(grid.axes[few:])
    representatives = [quiet.parts.index(part) for part in range(max(quiet.parts) + 1)]
    points = [coordinate[:, None, None] for coordinate in rest.points()]
    around = Grid(tuple(grid.axes[i] for i in held)).points() if held else ()
    coordinates = [np.full((1, 1, 1), grid.axes[i].points[0]) for i in range(few)]
    for i, values in zip(held, around, strict=True):
        coordinates[i] = values[None, :, None]
    outcome = quiet.step((*coordinates, *points), np.array(representatives)[None, None, :], 0.0)
    shape = (rest.size, max(1, len(around[0]) if around else 1), len(representatives))
    weights = multilinear(rest, tuple(np.broadcast_to(coordinate, shape) for coordinate in outcome.x))
    place = np.ascontiguousarray(weights.index).astype(np.int32)
    return place, np.asarray(weights.weight), np.broadcast_to(outcome.reward, shape).copy(), np.broadcast_to(outcome.ended, shape).copy()
