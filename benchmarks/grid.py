"""The grid planner measured on the bicycle: sweeps against gathering all corners and against SciPy, queries against interpolation.py.

- *A backup* is one pair of a sweep: a noisy step, the values of all actions at the next state, the operator. All seconds here are seconds a
  backup. Sweeps are those of a plan, factor by factor and in single precision, on one thread unless it says two, every pair with noise of
  its own unless it says shared.
- *Gathering* is our own sweep for simulators that declare no factors, given the same bicycle without its factors.
- *SciPy* is its `RegularGridInterpolator`, asked for the values of all actions at the same next states, which it is handed. It is asked at
  some grid points only, and what it finds must be what our sweep found.
- *The floor* is the longer of two times: copying Q, which reads and writes it once; and as many multiply-adds as the sums over corners
  take, at the speed of this core with everything in its nearest cache.
- *Queries* are plain multilinear interpolation of one value at random points, against the compiled `interpolation` of EconForge.
- *On an accelerator*, where JAX sees one, see `benchmarks.accelerated`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numba
import numpy as np
from scipy.interpolate import RegularGridInterpolator

from actiongap.envs.bicycle import bicycle
from actiongap.operators import parse
from actiongap.planning._numba_cells import FAST, Unsigned, lookup, summer
from actiongap.planning._numba_sweeps import cpu_sweeps
from actiongap.planning.backups import SweepConfig, Sweeps, noise_at, noise_of
from actiongap.planning.factors import layout_of
from actiongap.planning.grid import Grid, uniform
from actiongap.planning.noise import noise_key
from actiongap.planning.simulator import Factor, Simulator, one_step
from benchmarks import Measurement, check_scale, measure_all, on_threads, race
from benchmarks.accelerated import measure_accelerated

GATHERING, SCIPY, ECONFORGE = "gathering all corners", "SciPy RegularGridInterpolator", "interpolation.py"
NOISES = {"": False, ", shared noise": True}
"""Whether pairs share their draws, in words."""
ETA = 0.1
AT_ONCE = 4
"""Sweeps in a run, so that what a run begins and ends with does not count."""


@dataclass(frozen=True)
class Scale:
    """What is measured and for how long. Of coarse grids nothing is claimed."""

    points: int
    """An axis of the bicycle's grid."""
    operators: tuple[str, ...]
    gathering: float | None
    """A backup over one by gathering, at most."""
    scipy: float | None
    """A backup over SciPy's interpolation for one, at most."""
    scipy_points: int
    """Grid points at which SciPy is asked."""
    queries: int
    accelerated: tuple[int, ...]
    """Points an axis of the grids that an accelerator sweeps."""
    seconds: float
    """How long each race lasts."""


SCALES = {
    "full": Scale(8, ("bellman", "consistent", "al:0.1", "pal:0.1"), 1 / 8, 1 / 150, 2000, 300_000, (8, 10, 14, 20), 15.0),
    "quick": Scale(3, ("bellman",), None, None, 50, 1000, (3, 4), 0.05),
}


def bench_grid(scale: Literal["full", "quick"] = "full", progress: Callable[[str, float], None] | None = None) -> list[Measurement]:
    """Everything this module measures; minutes at full scale. `progress` is told what comes next and the part done.

    Examples
    --------
    >>> bench_grid("enormous")
    Traceback (most recent call last):
    ValueError: unknown scale 'enormous': choose from full, quick
    """
    check_scale(scale, SCALES)
    plan, threads = SCALES[scale], numba.get_num_threads()
    stages = [
        (f"sweeps of the bicycle, {plan.points} points an axis", partial(measure_sweeps, plan, threads)),
        ("queries", partial(measure_queries, plan)),
        ("sweeps on an accelerator", partial(measure_accelerated, plan.accelerated, plan.seconds / 10)),
    ]
    return measure_all(stages, progress)


def measure_sweeps(plan: Scale, threads: int) -> list[Measurement]:
    """Sweeps of every operator with either noise, on one thread and on two, beside gathering, SciPy and the floors, in one race."""
    simulator = bicycle()
    grid, text = Grid(simulator.axes(plan.points)), f"bicycle {plan.points}^6"
    pairs = grid.size * len(simulator.actions)
    q = np.random.default_rng(0).standard_normal((grid.size, len(simulator.actions))).astype(np.float32)
    runs: dict[str, tuple[Callable[[], Any], float]] = {}
    configs = {
        f"{name}{words}": SweepConfig(parse(name), simulator.gamma, ETA, shared=NOISES[words])
        for name in plan.operators
        for words in NOISES
    }
    sweeps = {name: cpu_sweeps(simulator, grid, config) for name, config in configs.items()}
    for name in sweeps:
        runs[name] = sweep, backups = _sweeping(sweeps[name], q, pairs)
        if threads >= 2:
            runs[f"{name}, two threads"] = on_threads(2, sweep), backups
    config = configs["bellman"]
    runs[GATHERING] = _sweeping(cpu_sweeps(without_factors(simulator), grid, config), q, pairs, count=1)
    runs[SCIPY] = scipy_gather(simulator, grid, config, q, plan.scipy_points, sweeps["bellman"])
    copy, work, needed = np.empty_like(q), *_multiply_adds(simulator, grid)
    runs["copy"], runs["multiply-adds"] = (lambda: np.copyto(copy, q), pairs), work
    time = {name: best / runs[name][1] for name, best in race({name: run for name, (run, _) in runs.items()}, plan.seconds).items()}

    arithmetic = time["multiply-adds"] * needed
    floor = max(time["copy"], arithmetic)
    note = (
        f"{text}: seconds a backup; copying Q takes {time['copy'] * 1e9:.2g} ns, {needed} multiply-adds take {arithmetic * 1e9:.2g} ns; "
        f"the longer is the floor. SciPy was asked at {plan.scipy_points} grid points, for nothing but values at given next states."
    )

    def row(name: str, against: str, target: float | None = None) -> Measurement:
        bound = None if "two" in name else floor
        return Measurement(f"a backup on {text}: {name}", time[name], against, time[against], target=target, floor=bound, note=note)

    rows = [row("bellman", GATHERING, plan.gathering), row("bellman", SCIPY, plan.scipy)]
    return rows + [row(name, "bellman") for name in runs if name.startswith(plan.operators) and name != "bellman"]


def without_factors(simulator: Simulator) -> Simulator:
    """The same simulator with nothing declared, so that its corners are all gathered.

    Examples
    --------
    >>> len(without_factors(bicycle()).factors)
    1
    """
    every = tuple(range(len(simulator.coordinates)))
    return replace(simulator, factors=(Factor(every, every, tuple(range(len(simulator.actions))), True, one_step(simulator)),))


def _sweeping(sweeps: Sweeps, q: np.ndarray, pairs: int, count: int = AT_ONCE) -> tuple[Callable[[], None], float]:
    """A function that goes on sweeping, and how many backups it makes each time."""
    now: list[Any] = [sweeps.put(q), 0]

    def go_on() -> None:
        now[0], _ = sweeps.advance(now[0], now[1], count)
        now[1] += count

    return go_on, pairs * count


def scipy_gather(
    simulator: Simulator, grid: Grid, config: SweepConfig, q: np.ndarray, some: int, sweeps: Sweeps
) -> tuple[Callable[[], Any], float]:
    """SciPy's values of all actions at the next states of some grid points, once its backups have been found to be those of our sweeps."""
    z = np.random.default_rng(1).choice(grid.size, min(some, grid.size), replace=False)
    actions = len(simulator.actions)
    ((u, _),) = noise_at(noise_of(simulator, grid, config), grid, z, actions, np.uint32(noise_key(config.seed, 0)))
    outcome = one_step(simulator)(tuple(x[z][:, None] for x in grid.points()), np.arange(actions), u)
    axes = [np.array(axis.points) for axis in grid.axes]
    x = np.stack([np.clip(x, axis[0], axis[-1]) for x, axis in zip(np.broadcast_arrays(*outcome.x), axes, strict=True)], axis=-1)
    values = RegularGridInterpolator(axes, q.reshape(*grid.shape, actions))
    backups = outcome.reward + config.gamma * np.where(outcome.ended, 0.0, values(x).max(axis=-1))
    after = sweeps.get(sweeps.advance(sweeps.put(q), 0, 1)[0])[z]
    difference = float(np.abs((1 - config.eta) * q[z] + config.eta * backups - after).max())
    if not difference < 1e-5:
        raise RuntimeError(f"SciPy's backups and ours differ by {difference:.1e} on {simulator.name}: one of them is wrong")
    return lambda: values(x), len(z) * actions


def _multiply_adds(simulator: Simulator, grid: Grid) -> tuple[tuple[Callable[[], Any], float], int]:
    """The sums over corners that sweeps take, on one row again and again; how many multiply-adds that is; and how many a backup needs."""
    layout = layout_of(simulator, grid)
    assert layout is not None
    corners, length, times = 2 ** len(layout.deterministic.coordinates), layout.batched.size * len(simulator.actions), 2000
    sum_up = summer(corners, length)

    @numba.njit(**FAST)
    def work(table, numbers, weights, out):
        for _ in range(times):
            sum_up(table, numbers, weights, Unsigned(length), Unsigned(0), out)

    arrays = np.ones(corners * length, np.float32), np.arange(corners, dtype=np.uint64), np.ones(corners, np.float32)
    stochastic = 2 ** len(simulator.factors[0].outputs) * len(simulator.actions)
    needed = (max(layout.deterministic_parts) + 1) * 2 ** len(layout.coupled.coordinates) * corners + stochastic
    return (partial(work, *arrays, np.empty(length, np.float32)), corners * length * times), needed


def measure_queries(plan: Scale) -> list[Measurement]:
    """Interpolation in six dimensions as policies do it, against EconForge's library."""
    label = f"a query on {plan.points}^6 points"
    try:
        with warnings.catch_warnings():
            # It asks for a module that Python is about to drop, and from 3.13 on it cannot be had.
            warnings.simplefilter("ignore")
            from interpolation.splines import UCGrid, eval_linear  # pyright: ignore[reportMissingImports]
    except ImportError:
        note = f"{ECONFORGE} is not installed, so nothing was compared with it: pip install '.[bench]'"
        return [Measurement(label, None, ECONFORGE, None, note=note)]
    rng = np.random.default_rng(0)
    grid, theirs = Grid((uniform(0.0, 1.0, plan.points),) * 6), UCGrid(*[(0.0, 1.0, plan.points)] * 6)
    values, x = rng.standard_normal(grid.shape), rng.random((plan.queries, 6))
    q, interpolate = values.reshape(-1, 1), lookup(grid).values
    difference = float(np.abs(eval_linear(theirs, values, x) - interpolate(q, x)[:, 0]).max())
    if not difference < 1e-12:
        raise RuntimeError(f"{ECONFORGE} and we differ by {difference:.1e}: one of us is wrong")
    time = race({"ours": lambda: interpolate(q, x), "theirs": lambda: eval_linear(theirs, values, x)}, plan.seconds / 3)
    ours, reference = time["ours"] / plan.queries, time["theirs"] / plan.queries
    note = f"{plan.queries} random queries of one value in double precision; the two differ by {difference:.1e} at most."
    return [Measurement(label, ours, ECONFORGE, reference, note=note)]
