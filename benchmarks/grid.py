"""Benchmarks of the grid planner on the bicycle: sweeps against gathering all corners and against SciPy, queries against interpolation.py.

- *A backup* is one pair of a sweep: a noisy step, the values of all actions at the next state, and the operator. All times are seconds per
  backup. Sweeps are those of a plan, factor by factor and in single precision, on one thread unless the label says two, with independent
  noise for every pair unless the label says shared.
- *Gathering* is our own sweep for simulators that declare no factors, with the same bicycle without its factors.
- *SciPy* is its `RegularGridInterpolator`, which computes the values of all actions at given next states. It is called for some grid points
  only, and its backups must equal those of our sweep.
- *The floor* is the longer of two times: copying Q, which reads and writes it once; and the multiply-adds of the sums over corners, at the
  speed of this core with all data in its L1 cache.
- *Queries* are plain multilinear interpolation of one value at random points, against the compiled `interpolation` of EconForge.
- *On an accelerator*, if JAX finds one, see `benchmarks.accelerated`.
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
from actiongap.planning.simulator import Simulator, one_step
from benchmarks import Measurement, check_scale, measure_all, on_threads, race
from benchmarks.accelerated import measure_accelerated

GATHERING, SCIPY, ECONFORGE = "gathering all corners", "SciPy RegularGridInterpolator", "interpolation.py"
NOISES = {"": False, ", shared noise": True}
"""Whether pairs share their noise, by suffix of the label."""
ETA = 0.1
SWEEPS_PER_RUN = 4
"""Several sweeps per run, so that the overhead of a run is negligible."""


@dataclass(frozen=True)
class Scale:
    """What is measured and for how long. Coarse grids have no targets."""

    points: int
    """Points per axis of the bicycle's grid."""
    operators: tuple[str, ...]
    gathering: float | None
    """Maximum ratio of a backup to one by gathering."""
    scipy: float | None
    """Maximum ratio of a backup to SciPy's interpolation for one."""
    scipy_points: int
    """Grid points for which SciPy is called."""
    queries: int
    accelerated: tuple[int, ...]
    """Points per axis of the grids on an accelerator."""
    seconds: float
    """Duration of each race."""


SCALES = {
    "full": Scale(8, ("bellman", "consistent", "al:0.1", "pal:0.1"), 1 / 8, 1 / 150, 2000, 300_000, (8, 10, 14, 20), 15.0),
    "quick": Scale(3, ("bellman",), None, None, 50, 1000, (3, 4), 0.05),
}


def bench_grid(scale: Literal["full", "quick"] = "full", progress: Callable[[str, float], None] | None = None) -> list[Measurement]:
    """Run all benchmarks of the grid planner: minutes at full scale.

    `progress` is called with the label of the next stage and the fraction of the stages that is done.

    Examples
    --------
    >>> bench_grid("enormous")
    Traceback (most recent call last):
    ValueError: unknown scale 'enormous': choose from full, quick
    """
    check_scale(scale, SCALES)
    plan, threads = SCALES[scale], numba.get_num_threads()
    stages = [
        (f"sweeps of the bicycle, {plan.points} points per axis", partial(measure_sweeps, plan, threads)),
        ("queries", partial(measure_queries, plan)),
        ("sweeps on an accelerator", partial(measure_accelerated, plan.accelerated, plan.seconds / 10)),
    ]
    return measure_all(stages, progress)


def measure_sweeps(plan: Scale, threads: int) -> list[Measurement]:
    """Measure sweeps of every operator, on one thread and on two, with gathering, SciPy and the floors, in one race."""
    simulator = bicycle()
    grid, text = Grid(simulator.axes(plan.points)), f"bicycle {plan.points}^6"
    pairs = grid.size * len(simulator.actions)
    q = np.random.default_rng(0).standard_normal((grid.size, len(simulator.actions))).astype(np.float32)
    runs: dict[str, tuple[Callable[[], Any], float]] = {}
    configs = {
        f"{name}{suffix}": SweepConfig(parse(name), simulator.gamma, ETA, shared=shared)
        for name in plan.operators
        for suffix, shared in NOISES.items()
    }
    sweeps = {name: cpu_sweeps(simulator, grid, config) for name, config in configs.items()}
    for name in sweeps:
        runs[name] = sweep, backups = _continuing(sweeps[name], q, pairs)
        if threads >= 2:
            runs[f"{name}, two threads"] = on_threads(2, sweep), backups
    config = configs["bellman"]
    runs[GATHERING] = _continuing(cpu_sweeps(without_factors(simulator), grid, config), q, pairs, count=1)
    runs[SCIPY] = scipy_gather(simulator, grid, config, q, plan.scipy_points, sweeps["bellman"])
    copy, work, needed = np.empty_like(q), *_multiply_adds(simulator, grid)
    runs["copy"], runs["multiply-adds"] = (lambda: np.copyto(copy, q), pairs), work
    time = {name: best / runs[name][1] for name, best in race({name: run for name, (run, _) in runs.items()}, plan.seconds).items()}

    arithmetic = time["multiply-adds"] * needed
    floor = max(time["copy"], arithmetic)
    note = (
        f"{text}: seconds per backup; copying Q takes {time['copy'] * 1e9:.2g} ns, {needed} multiply-adds take {arithmetic * 1e9:.2g} ns; "
        f"the longer is the floor. SciPy computes only values at given next states, for {plan.scipy_points} grid points."
    )

    def row(name: str, against: str, target: float | None = None) -> Measurement:
        bound = None if "two" in name else floor
        return Measurement(f"a backup on {text}: {name}", time[name], against, time[against], target=target, floor=bound, note=note)

    rows = [row("bellman", GATHERING, plan.gathering), row("bellman", SCIPY, plan.scipy)]
    return rows + [row(name, "bellman") for name in runs if name.startswith(plan.operators) and name != "bellman"]


def without_factors(simulator: Simulator) -> Simulator:
    """Return the same simulator without declared factors, so that all corners are gathered.

    Examples
    --------
    >>> len(without_factors(bicycle()).factors)
    1
    """
    return replace(simulator, step=one_step(simulator))


def _continuing(sweeps: Sweeps, q: np.ndarray, pairs: int, count: int = SWEEPS_PER_RUN) -> tuple[Callable[[], None], float]:
    """Return a function that continues sweeping, and the number of backups that it makes in every call."""
    table: Any = sweeps.put(q)
    sweep = 0

    def advance() -> None:
        nonlocal table, sweep
        table, _ = sweeps.advance(table, sweep, count)
        sweep += count

    return advance, pairs * count


def scipy_gather(
    simulator: Simulator, grid: Grid, config: SweepConfig, q: np.ndarray, points: int, sweeps: Sweeps
) -> tuple[Callable[[], Any], float]:
    """Return SciPy's interpolation of all actions at the next states of some grid points, and the number of backups.

    Raises RuntimeError if its backups differ from those of our sweeps.
    """
    z = np.random.default_rng(1).choice(grid.size, min(points, grid.size), replace=False)
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
    """Return the sums over corners of sweeps, repeated on one row; their number of multiply-adds; and how many a backup needs."""
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
    """Measure interpolation in six dimensions, as policies use it, against EconForge's library."""
    label = f"a query on {plan.points}^6 points"
    try:
        with warnings.catch_warnings():
            # It imports a deprecated module of Python, and cannot be installed from Python 3.13 on.
            warnings.simplefilter("ignore")
            from interpolation.splines import UCGrid, eval_linear  # pyright: ignore[reportMissingImports]
    except ImportError:
        note = f"{ECONFORGE} is not installed, so there is no comparison with it: pip install '.[dev]'"
        return [Measurement(label, None, ECONFORGE, None, note=note)]
    rng = np.random.default_rng(0)
    grid, theirs = Grid((uniform(0.0, 1.0, plan.points),) * 6), UCGrid(*[(0.0, 1.0, plan.points)] * 6)
    values, x = rng.standard_normal(grid.shape), rng.random((plan.queries, 6))
    q, interpolate = values.reshape(-1, 1), lookup(grid).values
    difference = float(np.abs(eval_linear(theirs, values, x) - interpolate(q, x)[:, 0]).max())
    if not difference < 1e-12:
        raise RuntimeError(f"ours and {ECONFORGE} differ by {difference:.1e}: one of them is wrong")
    time = race({"ours": lambda: interpolate(q, x), "theirs": lambda: eval_linear(theirs, values, x)}, plan.seconds / 3)
    ours, reference = time["ours"] / plan.queries, time["theirs"] / plan.queries
    note = f"{plan.queries} random queries of one value in double precision; the two differ by at most {difference:.1e}."
    return [Measurement(label, ours, ECONFORGE, reference, note=note)]
