"""Checks of a simulator and of the required memory before a plan starts.

A plan may take hours, so a simulator that returns NaN or infinity somewhere is rejected at once. The error names the state, the action and
the remedy.

A step may leave the grid: interpolation clips coordinates to the ends of an axis, and many simulators step slightly beyond them. But a next
coordinate that is outside by more than the length of the axis is probably in the wrong unit. It is rejected, unless the episode ends there
or the axis is periodic.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from actiongap import _system as machine
from actiongap._files import format_bytes
from actiongap.planning.engines import ChosenEngine
from actiongap.planning.factors import layout_of
from actiongap.planning.grid import Grid
from actiongap.planning.simulator import Discrete, Outcome, Simulator, Step, one_step

MAX_CHECKED_POINTS = 4096
"""Maximum number of grid points at which a simulator is checked, besides the corners of the grid."""


def check_simulator(simulator: Simulator, grid: Grid) -> None:
    """Raise ValueError if the simulator fails somewhere on the grid.

    Small grids are checked at all points, larger ones at their corners and at 4096 points that are spread evenly. All actions are tried
    with the smallest and the largest noise. A step must return one next coordinate per axis, a reward and a boolean. Numbers must be
    finite, with shapes that broadcast with states and actions. If the simulator has factors, inputs that a factor does not declare are
    changed, and its outcome must stay the same.

    Examples
    --------
    >>> def slide(x, a, u):
    ...     return Outcome((1.0 / x[0] + a,), 0.0, False)
    >>> simulator = Simulator("slide", slide, state={"place": (0.0, 1.0)}, actions=("stay", "go"))
    >>> check_simulator(simulator, Grid(simulator.axes(3)))
    Traceback (most recent call last):
    ValueError: slide: the next place is inf after action stay in place = 0: a step must return finite numbers
    """
    if len(grid.axes) != len(simulator.coordinates):
        names = ", ".join(simulator.coordinates)
        raise ValueError(f"{simulator.name}: there are {len(grid.axes)} axes for the coordinates {names}: give one axis per coordinate")
    x, step = _checked_points(grid), one_step(simulator)
    noises = simulator.noise.values if isinstance(simulator.noise, Discrete) else simulator.noise
    for u in sorted({min(noises), max(noises)}):
        _check_outcome(_TestPairs(simulator, grid, x, u), step)
    if len(simulator.factors) > 1:
        _check_factors(_TestPairs(simulator, grid, x, max(noises, key=abs)))


class _TestPairs:
    """All actions in some states, with one value of the noise."""

    def __init__(self, simulator: Simulator, grid: Grid, x: tuple[Any, ...], u: float):
        self.simulator, self.grid, self.x, self.u = simulator, grid, x, u
        self.shape = (len(x[0]), len(simulator.actions))

    def run(self, step: Step) -> Any:
        """Return the outcome of the step for all states and actions at once."""
        with np.errstate(all="ignore"):
            return step(tuple(coordinate[:, None] for coordinate in self.x), np.arange(self.shape[1])[None, :], self.u)

    def run_one(self, step: Step, i: int, a: int) -> None:
        """Run the step for action a in state i only, as arrays of one number."""
        with np.errstate(all="ignore"):
            step(tuple(coordinate[i : i + 1] for coordinate in self.x), np.array([a]), self.u)

    def describe(self, i: int, a: int) -> str:
        """Describe action a, state i and the noise."""
        state = ", ".join(f"{name} = {row[i]:.6g}" for name, row in zip(self.simulator.coordinates, self.x, strict=True))
        noise = f" with noise {self.u:.6g}" if any(factor.noisy for factor in self.simulator.factors) else ""
        return f"after action {self.simulator.actions[a]} in {state}{noise}"

    def raise_first(self, what: str, values: np.ndarray, bad: np.ndarray, remedy: str) -> None:
        """Raise ValueError for the first bad value, if there is one."""
        if bad.any():
            i, a = (int(index) for index in np.argwhere(bad)[0])
            raise ValueError(f"{self.simulator.name}: the {what} is {values[i, a]:.6g} {self.describe(i, a)}: {remedy}")


def _checked_points(grid: Grid) -> tuple[np.ndarray, ...]:
    """Return the coordinates of all points of a small grid, or of the corners and of evenly spread points of a larger one."""
    if grid.size <= MAX_CHECKED_POINTS:
        return grid.points()
    corners = itertools.islice(itertools.product(*((0, size - 1) for size in grid.shape)), MAX_CHECKED_POINTS)
    # Multiples of the golden ratio are spread evenly, and not aligned with any axis.
    spread = (np.arange(MAX_CHECKED_POINTS) * (math.sqrt(5) - 1) / 2 % 1 * grid.size).astype(np.int64)
    indices = np.stack([np.concatenate(pair) for pair in zip(np.array(list(corners)).T, np.unravel_index(spread, grid.shape), strict=True)])
    return tuple(np.array(axis.points)[index] for axis, index in zip(grid.axes, indices, strict=True))


def _check_outcome(pairs: _TestPairs, step: Step) -> None:
    name, count = pairs.simulator.name, len(pairs.simulator.coordinates)
    try:
        outcome = pairs.run(step)
    except Exception as error:
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"{name}: its step fails {_failing_pair(pairs, step)}: {message}") from error
    if not (isinstance(outcome, Outcome) and isinstance(outcome.x, tuple)):
        found = f"an Outcome of a {type(outcome.x).__name__}" if isinstance(outcome, Outcome) else f"a {type(outcome).__name__}"
        raise ValueError(f"{name}: its step returns {found}: it must return Outcome((x, y, ...), reward, ended)")
    if len(outcome.x) != count:
        raise ValueError(f"{name}: its step returns {len(outcome.x)} coordinates, not {count}: return all of them, in order")
    ended = _broadcast(pairs, "ended flag", outcome.ended)
    if ended.dtype != bool:
        raise ValueError(f"{name}: ended has the type {ended.dtype}: return a boolean, such as the result of a comparison")
    numbers = zip(
        (*(f"next {coordinate}" for coordinate in pairs.simulator.coordinates), "reward"), (*outcome.x, outcome.reward), strict=True
    )
    found = {}
    for what, value in numbers:
        found[what] = _broadcast(pairs, what, value, float)
        pairs.raise_first(what, found[what], ~np.isfinite(found[what]), "a step must return finite numbers")
    for (what, x), axis in zip(found.items(), pairs.grid.axes, strict=False):
        low, high = axis.points[0], axis.points[-1]
        beyond = (x < low - (high - low)) | (x > high + (high - low))
        remedy = f"this is outside the axis, from {low:.6g} to {high:.6g}, by more than its length: fix the step, or widen the axis"
        pairs.raise_first(what, x, beyond & ~ended & (axis.period is None), remedy)


def _check_factors(pairs: _TestPairs) -> None:
    """Raise ValueError if a factor reads more than it declares: planners would pass it other values there."""
    simulator, elsewhere = pairs.simulator, tuple(coordinate[::-1] for coordinate in pairs.x)
    for factor in simulator.factors:
        names = " and ".join(f"next {simulator.coordinates[i]}" for i in factor.outputs)
        x = tuple(pairs.x[i] if i in factor.inputs else elsewhere[i] for i in range(len(pairs.x)))
        other = _TestPairs(simulator, pairs.grid, x, pairs.u if factor.noisy else 0.0)
        same_part = [factor.parts.index(part) for part in factor.parts]
        before, after = (_outcome_array(one, one.run(factor.step)) for one in (pairs, other))
        if not np.allclose(before, after, rtol=1e-9, atol=1e-12, equal_nan=True):
            inputs = ", ".join(simulator.coordinates[i] for i in factor.inputs) + " and the noise" * factor.noisy
            raise ValueError(f"{simulator.name}: the {names} depend on more than {inputs}: declare all inputs of the factor")
        if not np.allclose(before, before[..., same_part], rtol=1e-9, atol=1e-12, equal_nan=True):
            raise ValueError(f"{simulator.name}: actions with the same part lead to different {names}: give them different parts")


def _outcome_array(pairs: _TestPairs, outcome: Outcome) -> np.ndarray:
    """Return all numbers of a factor's outcome, (numbers, states, actions)."""
    return np.stack([np.broadcast_to(np.asarray(number, float), pairs.shape) for number in (*outcome.x, outcome.reward, outcome.ended)])


def _broadcast(pairs: _TestPairs, what: str, value: Any, dtype: Any = None) -> np.ndarray:
    """Broadcast a field of an outcome to (states, actions), or raise ValueError."""
    try:
        array = np.asarray(value, dtype=dtype)
    except (TypeError, ValueError):
        raise ValueError(f"{pairs.simulator.name}: the {what} is a {type(value).__name__}: it must be a number") from None
    try:
        return np.broadcast_to(array, pairs.shape)
    except ValueError:
        shapes = f"of shape {array.shape} for states and actions of shape {pairs.shape}"
        raise ValueError(f"{pairs.simulator.name}: the {what} is {shapes}: write the step elementwise") from None


def _failing_pair(pairs: _TestPairs, step: Step) -> str:
    """Describe the first pair at which the step fails, or state that it fails on arrays only."""
    for i, a in np.ndindex(*pairs.shape):
        try:
            pairs.run_one(step, i, a)
        except Exception:
            return pairs.describe(i, a)
    return "on arrays of states (choose with where, and join conditions with & and |)"


HOST_TABLES, DEVICE_TABLES = 5, 3
"""Number of tables that a plan holds at a time: read, written, saved, and two while the order of axes changes."""
WORK_BYTES = 1_000_000_000
"""Maximum memory of sweeps on an accelerator besides the tables, in bytes."""


def check_memory(simulator: Simulator, grid: Grid, engine: ChosenEngine, waiting: int = 1) -> None:
    """Raise ValueError if the tables of a plan do not fit in memory; the error names the largest grid that does.

    Parameters
    ----------
    simulator
        The simulator.
    grid
        The grid.
    engine
        The engine of the sweeps.
    waiting
        Number of tables that are kept to be evaluated together.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> check_memory(mountain_car(), Grid(mountain_car().axes(10)), "numba")
    """
    available = free_memory(engine)

    def exceeded(grid: Grid) -> dict[str, int]:
        needs = required_memory(simulator, grid, engine, waiting)
        if "accelerator memory" not in available:
            needs = {"memory": sum(needs.values())}
        return {place: size for place, size in needs.items() if size > available[place]}

    if not (too_large := exceeded(grid)):
        return
    fits, too_many = 1, max(grid.shape)
    while too_many - fits > 1:
        n = (fits + too_many) // 2
        fits, too_many = (fits, n) if exceeded(Grid(simulator.axes(n))) else (n, too_many)
    place, needs = next(iter(too_large.items()))
    remedy = f"use at most {fits} points per axis" if fits > 1 else "not even two points per axis would fit"
    what = f"{simulator.name} with {' x '.join(map(str, grid.shape))} points"
    raise ValueError(f"{what} needs about {format_bytes(needs)} of {place}, and {format_bytes(available[place])} are free: {remedy}")


def required_memory(simulator: Simulator, grid: Grid, engine: ChosenEngine, waiting: int = 1) -> dict[str, int]:
    """Estimate the bytes of `memory` that a plan needs, and of `accelerator memory` with JAX.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> required_memory(mountain_car(), Grid(mountain_car().axes(10)), "numba")
    {'memory': 7200}
    """
    table, layout, tabulated = 4 * grid.size * len(simulator.actions), layout_of(simulator, grid), 0
    if layout is not None:
        # Two corners and a fraction along each deterministic coordinate, and reward, ended and stay.
        steps = layout.deterministic.size * layout.coupled.size * (max(layout.deterministic_parts) + 1)
        tabulated = steps * (12 * len(layout.deterministic.shape) + 12)
    host = (HOST_TABLES + waiting) * table
    if engine != "jax":
        return {"memory": host + tabulated}
    work = min(WORK_BYTES, table * 2 ** len(grid.axes))
    return {"memory": host, "accelerator memory": (DEVICE_TABLES + waiting) * table + tabulated + work}


def free_memory(engine: ChosenEngine) -> dict[str, int]:
    """Return the free bytes of each kind of memory that the engine uses.

    Examples
    --------
    >>> list(free_memory("numba"))
    ['memory']
    """
    host = machine.free_memory()
    if engine != "jax":
        return {"memory": host}
    import jax

    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    device = sum(found.get("bytes_limit", 0) - found.get("bytes_in_use", 0) for found in stats)
    return {"memory": host} | ({"accelerator memory": device} if device > 0 else {})
