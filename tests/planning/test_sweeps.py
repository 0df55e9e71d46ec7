"""One sweep on arrays against plain Python, the theorem for interpolated values, and the random numbers of all engines."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from actiongap._numba import compile_function
from actiongap.operators import backup, parse
from actiongap.planning.backups import interpolated_backups
from actiongap.planning.grid import Axis, Grid, periodic
from actiongap.planning.noise import UINT32, noise_key, random_uniform
from actiongap.planning.simulator import Discrete, Outcome, Simulator, one_step


def drift(x, a, u):
    """Two coordinates, one of them periodic, moved by action and noise. Episodes end at the top."""
    height, angle = x
    height = height + 0.3 * (a - 1) + u
    return Outcome((height, angle + 0.7 * a - u), 1.0 * a - height, height > 1.1)


def drifting(noise: Discrete) -> Simulator:
    state = {"height": Axis((-1.0, -0.2, 0.1, 1.0)), "angle": periodic(-math.pi, math.pi, 5)}
    return Simulator("drift", drift, state=state, actions=("down", "stay", "up"), gamma=0.9, noise=noise)


def by_arrays(simulator: Simulator, grid: Grid, operator: str, q, of_values: bool):
    """T'Q with the exact expectation over the noise."""
    noise = zip(simulator.noise.values, simulator.noise.probabilities, strict=True)  # pyright: ignore[reportAttributeAccessIssue]
    found = interpolated_backups(one_step(simulator), grid, q, np.arange(grid.size), grid.points(), noise, simulator.gamma, of_values)
    return parse(operator)(found)


def plain_weights(grid: Grid, x) -> dict[int, float]:
    """A(. | x') of a point, corner by corner."""
    along = []
    for axis, value in zip(grid.axes, x, strict=True):
        points = list(axis.points) + ([axis.points[0] + axis.period] if axis.period else [])
        if axis.period:
            value = points[0] + (value - points[0]) % axis.period
        value = min(max(value, points[0]), points[-1])
        i = max(j for j in range(len(points) - 1) if points[j] <= value)
        part = (value - points[i]) / (points[i + 1] - points[i])
        along.append([(i, 1 - part), ((i + 1) % axis.size, part)])
    weights: dict[int, float] = {}
    for corner in itertools.product(*along):
        z = sum(index * stride for (index, _), stride in zip(corner, grid.strides, strict=True))
        weights[z] = weights.get(z, 0.0) + math.prod(part for _, part in corner)
    return weights


@pytest.mark.parametrize("operator", ["bellman", "consistent", "al:0.5", "pal:0.5", "pal-dqn:0.5"])
@pytest.mark.parametrize("of_values", [False, True])
def test_arrays_match_plain_loops(operator, of_values):
    simulator = drifting(Discrete((-0.3, 0.1), (0.25, 0.75)))
    grid = Grid(simulator.axes(0))
    q = np.random.default_rng(1).standard_normal((grid.size, 3))
    found = by_arrays(simulator, grid, operator, q, of_values)
    for z in range(grid.size):
        x = tuple(float(coordinate[z]) for coordinate in grid.points())
        for a in range(3):
            reward = next_v = next_q = again = stay = 0.0
            for u, share in zip(simulator.noise.values, simulator.noise.probabilities, strict=True):  # pyright: ignore[reportAttributeAccessIssue]
                outcome = drift(x, a, u)
                reward += share * outcome.reward
                if outcome.ended:
                    continue
                weights = plain_weights(grid, outcome.x)
                mass = weights.get(z, 0.0)
                after = [sum(weight * q[corner, b] for corner, weight in weights.items()) for b in range(3)]
                value = sum(weight * q[corner].max() for corner, weight in weights.items())
                next_v += share * (value if of_values else max(after))
                next_q += share * after[a]
                again += share * max(after[b] - mass * (q[z, b] - q[z, a]) for b in range(3))
                stay += share * mass
            b = backup(simulator.gamma, reward, q[z, a], q[z].max(), next_v, next_q, stay)
            if not of_values:
                b = b._replace(again=reward + simulator.gamma * again)
            assert found[z, a] == pytest.approx(float(parse(operator)(b)), abs=1e-12)


def test_the_theorem_holds_if_values_are_interpolated():
    """Under aggregation the limit of every operator has the V of the Bellman operator, and gaps at least as large."""
    simulator = drifting(Discrete((-0.3, 0.1), (0.25, 0.75)))
    grid, limits = Grid(simulator.axes(0)), {}
    for operator in ("bellman", "consistent", "al:0.5", "pal:0.5"):
        q = np.zeros((grid.size, 3))
        for _ in range(400):
            q = by_arrays(simulator, grid, operator, q, of_values=True)
        limits[operator] = q
    v = limits["bellman"].max(axis=1)
    for q in limits.values():
        np.testing.assert_allclose(q.max(axis=1), v, atol=1e-9)
        assert (v[:, None] - q >= v[:, None] - limits["bellman"] - 1e-9).all()


def test_random_numbers_are_the_same_in_every_library_and_uniform():
    key = noise_key(7, 11)
    places = np.arange(100_000, dtype=np.uint32)
    u = random_uniform(np.uint32(key), places, UINT32)
    np.testing.assert_array_equal(u, np.asarray(random_uniform(jnp.uint32(key), jnp.asarray(places), UINT32), dtype=float))
    compiled = compile_function(random_uniform)
    assert [compiled(key, z) for z in (0, 1, 99_999)] == [u[z] for z in (0, 1, 99_999)]
    assert isinstance(compiled, Dispatcher)
    counts, _ = np.histogram(u, bins=50, range=(0, 1))
    # The sum of squares is chi-squared with 49 degrees of freedom: mean 49, sd 10.
    assert ((counts - 2000) ** 2 / 2000).sum() < 49 + 5 * 10
    others = [random_uniform(np.uint32(noise_key(*place)), places, UINT32) for place in ((7, 12), (8, 11))]
    for other in (u[1:], *(other[:-1] for other in others)):
        assert abs(np.corrcoef(u[:-1], other)[0, 1]) < 5 / math.sqrt(len(u))
