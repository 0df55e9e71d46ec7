"""What is asked of a simulator before a plan begins, and the sentences that refuse it.

A plan may take hours. A simulator that gives no number somewhere should be known at once, and in words that name the state, the action and
the remedy.

An axis says where the grid lies, not how far a simulator may go: interpolation moves what is beyond an end to that end, and many simulators
step a little over the edge. So a step may leave the box; but a next coordinate that is farther outside than the whole axis is long is more
likely a mistake of units, and is refused, unless the episode ends there or the axis goes round.

How much memory a plan takes, asked before anything is allocated.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal

import numpy as np

from actiongap import _system as machine
from actiongap._files import format_bytes
from actiongap.planning.factors import layout_of
from actiongap.planning.grid import Grid
from actiongap.planning.simulator import Discrete, Outcome, Simulator, Step, one_step

SAMPLE = 4096
"""How many grid points a simulator is tried at."""


def check_simulator(simulator: Simulator, grid: Grid) -> None:
    """Refuse a simulator that fails somewhere on the grid, tried at all points or at its corners and thousands spread evenly.

    Where it is declared in factors, what a factor says that it does not look at is changed, and nothing may come of it.

    Every action is tried with the least and the largest noise. Steps must give a coordinate for each axis, within reach of it, a reward
    and a truth value, all finite and of a shape that broadcasts with states and actions.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> from actiongap.planning.simulator import make_simulator
    >>> def slide(x, a, u):
    ...     return Outcome((1.0 / x[0] + a,), 0.0, False)
    >>> simulator = make_simulator("slide", ("place",), ("stay", "go"), slide, lambda n: (uniform(0.0, 1.0, n),))
    >>> check_simulator(simulator, Grid(simulator.axes(3)))
    Traceback (most recent call last):
    ValueError: slide: the next place is inf after action stay in place = 0: a step must give finite numbers
    """
    if len(grid.axes) != len(simulator.coordinates):
        names = ", ".join(simulator.coordinates)
        raise ValueError(f"{simulator.name}: there are {len(grid.axes)} axes for the coordinates {names}: its axes must give one for each")
    x, step = _places(grid), one_step(simulator)
    noises = simulator.noise.values if isinstance(simulator.noise, Discrete) else simulator.noise
    for u in sorted({min(noises), max(noises)}):
        _check_outcome(_Trial(simulator, grid, x, u), step)
    if len(simulator.factors) > 1:
        _check_factors(_Trial(simulator, grid, x, max(noises, key=abs)))


class _Trial:
    """Every action in some states under one noise, and how to speak of one of them."""

    def __init__(self, simulator: Simulator, grid: Grid, x: tuple, u: float):
        self.simulator, self.grid, self.x, self.u = simulator, grid, x, u
        self.shape = (len(x[0]), len(simulator.actions))

    def run(self, step: Step) -> Any:
        """What the step gives, for all states and actions at once."""
        with np.errstate(all="ignore"):
            return step(tuple(coordinate[:, None] for coordinate in self.x), np.arange(self.shape[1])[None, :], self.u)

    def alone(self, step: Step, place: int, a: int) -> None:
        """One of them, as arrays of one number."""
        with np.errstate(all="ignore"):
            step(tuple(coordinate[place : place + 1] for coordinate in self.x), np.array([a]), self.u)

    def at(self, place: int, a: int) -> str:
        """The state, the action and the noise in words."""
        state = ", ".join(f"{name} = {row[place]:.6g}" for name, row in zip(self.simulator.coordinates, self.x, strict=True))
        noise = f" with noise {self.u:.6g}" if any(factor.noisy for factor in self.simulator.factors) else ""
        return f"after action {self.simulator.actions[a]} in {state}{noise}"

    def refuse_first(self, what: str, values: np.ndarray, bad: np.ndarray, remedy: str) -> None:
        """Refuse the first number that breaks a rule, if one does."""
        if bad.any():
            place, a = (int(index) for index in np.argwhere(bad)[0])
            raise ValueError(f"{self.simulator.name}: the {what} is {values[place, a]:.6g} {self.at(place, a)}: {remedy}")


def _places(grid: Grid) -> tuple[np.ndarray, ...]:
    """Coordinates of all grid points where they are few, and else of the corners and of some that are spread evenly."""
    if grid.size <= SAMPLE:
        return grid.points()
    corners = itertools.islice(itertools.product(*((0, size - 1) for size in grid.shape)), SAMPLE)
    # Multiples of the golden ratio fill an interval evenly, and fall in step with no axis.
    spread = (np.arange(SAMPLE) * (math.sqrt(5) - 1) / 2 % 1 * grid.size).astype(np.int64)
    indices = np.stack([np.concatenate(pair) for pair in zip(np.array(list(corners)).T, np.unravel_index(spread, grid.shape), strict=True)])
    return tuple(np.array(axis.points)[index] for axis, index in zip(grid.axes, indices, strict=True))


def _check_outcome(trial: _Trial, step: Step) -> None:
    name, count = trial.simulator.name, len(trial.simulator.coordinates)
    try:
        outcome = trial.run(step)
    except Exception as error:
        raise ValueError(f"{name}: its step fails {_where_it_fails(trial, step)}: {_said(error)}") from error
    if not (isinstance(outcome, Outcome) and isinstance(outcome.x, tuple)):
        found = f"an Outcome of a {type(outcome.x).__name__}" if isinstance(outcome, Outcome) else f"a {type(outcome).__name__}"
        raise ValueError(f"{name}: its step returns {found}: it must return Outcome((x, y, ...), reward, ended)")
    if len(outcome.x) != count:
        raise ValueError(f"{name}: its step gives {len(outcome.x)} coordinates, and there are {count}: give them all, in order")
    ended = _filled(trial, "truth value that says whether it ended", outcome.ended)
    if ended.dtype != bool:
        raise ValueError(f"{name}: whether a step ended is said as {ended.dtype}: it must be true or false, as a comparison is")
    numbers = zip(
        (*(f"next {coordinate}" for coordinate in trial.simulator.coordinates), "reward"), (*outcome.x, outcome.reward), strict=True
    )
    found = {}
    for what, value in numbers:
        found[what] = _filled(trial, what, value, float)
        trial.refuse_first(what, found[what], ~np.isfinite(found[what]), "a step must give finite numbers")
    for (what, x), axis in zip(found.items(), trial.grid.axes, strict=False):
        low, high = axis.points[0], axis.points[-1]
        beyond = (x < low - (high - low)) | (x > high + (high - low))
        remedy = (
            f"the axis goes from {low:.6g} to {high:.6g}, and this is farther outside than it is long: mend the step, or widen the axis"
        )
        trial.refuse_first(what, x, beyond & ~ended & (axis.period is None), remedy)


def _check_factors(trial: _Trial) -> None:
    """Refuse factors that look at more than they declare: planners would hand them something else there."""
    simulator, elsewhere = trial.simulator, tuple(coordinate[::-1] for coordinate in trial.x)
    for factor in simulator.factors:
        names = " and ".join(simulator.coordinates[i] for i in factor.outputs)
        x = tuple(trial.x[i] if i in factor.inputs else elsewhere[i] for i in range(len(trial.x)))
        other = _Trial(simulator, trial.grid, x, trial.u if factor.noisy else 0.0)
        alike = [factor.parts.index(part) for part in factor.parts]
        before, after = (_numbers(one, one.run(factor.step)) for one in (trial, other))
        if not np.allclose(before, after, rtol=1e-9, atol=1e-12, equal_nan=True):
            told = ", ".join(simulator.coordinates[i] for i in factor.inputs) + " and the noise" * factor.noisy
            raise ValueError(f"{simulator.name}: where {names} lead depends on more than {told}: declare all that the factor looks at")
        if not np.allclose(before, before[..., alike], rtol=1e-9, atol=1e-12, equal_nan=True):
            raise ValueError(f"{simulator.name}: actions with the same part lead {names} to different places: give them different parts")


def _numbers(trial: _Trial, outcome: Outcome) -> np.ndarray:
    """All numbers of a factor's outcome, (numbers, states, actions)."""
    return np.stack([np.broadcast_to(np.asarray(number, float), trial.shape) for number in (*outcome.x, outcome.reward, outcome.ended)])


def _filled(trial: _Trial, what: str, value: Any, dtype: Any = None) -> np.ndarray:
    """A part of an outcome for every state and action, or a sentence if it has not that shape."""
    try:
        array = np.asarray(value, dtype=dtype)
    except (TypeError, ValueError):
        raise ValueError(f"{trial.simulator.name}: the {what} is a {type(value).__name__}: it must be a number") from None
    try:
        return np.broadcast_to(array, trial.shape)
    except ValueError:
        shapes = f"of shape {array.shape} for states and actions of shape {trial.shape}"
        raise ValueError(f"{trial.simulator.name}: the {what} is {shapes}: write the step element by element") from None


def _where_it_fails(trial: _Trial, step: Step) -> str:
    """Where a step fails by itself, or that it does so only on many states at once."""
    for place, a in np.ndindex(*trial.shape):
        try:
            trial.alone(step, place, a)
        except Exception:
            return trial.at(place, a)
    return "on arrays of states (choose with where, and join conditions with & and |)"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


HOST_TABLES, DEVICE_TABLES = 5, 3
"""How many tables a plan holds at a time: read, written, saved, and turned from one order of axes to another, twice."""
WORK = 1_000_000_000
"""Bytes that sweeps on an accelerator may hold besides the tables."""


def check_memory(simulator: Simulator, grid: Grid, engine: Literal["numba", "jax"], waiting: int = 1) -> None:
    """Refuse a grid whose tables would not fit into memory, before anything is allocated, and say which one would.

    Parameters
    ----------
    simulator
        The simulator.
    grid
        The grid.
    engine
        Where it is swept.
    waiting
        How many tables are kept to be evaluated together.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> check_memory(mountain_car(), Grid(mountain_car().axes(10)), "numba")
    """
    available = free_memory(engine)

    def lacking(grid: Grid) -> dict[str, int]:
        needs = needed(simulator, grid, engine, waiting)
        if "accelerator memory" not in available:
            needs = {"memory": sum(needs.values())}
        return {place: size for place, size in needs.items() if size > available[place]}

    if not (short := lacking(grid)):
        return
    fits, too_many = 1, max(grid.shape)
    while too_many - fits > 1:
        n = (fits + too_many) // 2
        fits, too_many = (fits, n) if lacking(Grid(simulator.axes(n))) else (n, too_many)
    place, needs = next(iter(short.items()))
    remedy = f"take at most {fits} points an axis" if fits > 1 else "not even two points an axis would fit"
    what = f"{simulator.name} with {' x '.join(map(str, grid.shape))} points"
    raise ValueError(f"{what} needs about {format_bytes(needs)} of {place}, and {format_bytes(available[place])} are free: {remedy}")


def needed(simulator: Simulator, grid: Grid, engine: Literal["numba", "jax"], waiting: int = 1) -> dict[str, int]:
    """About how many bytes a plan takes of `memory`, and of `accelerator memory` where JAX sweeps.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> needed(mountain_car(), Grid(mountain_car().axes(10)), "numba")
    {'memory': 7200}
    """
    table, layout, tabulated = 4 * grid.size * len(simulator.actions), layout_of(simulator, grid), 0
    if layout is not None:
        # Two corners and a fraction along each deterministic coordinate, reward, end and stay.
        steps = layout.deterministic.size * layout.coupled.size * (max(layout.deterministic_parts) + 1)
        tabulated = steps * (12 * len(layout.deterministic.shape) + 12)
    host = (HOST_TABLES + waiting) * table
    if engine == "numba":
        return {"memory": host + tabulated}
    work = min(WORK, table * 2 ** len(grid.axes))
    return {"memory": host, "accelerator memory": (DEVICE_TABLES + waiting) * table + tabulated + work}


def free_memory(engine: Literal["numba", "jax"]) -> dict[str, int]:
    """How many bytes may still be taken, in each place that sweeps use.

    Examples
    --------
    >>> list(free_memory("numba"))
    ['memory']
    """
    host = machine.free_memory()
    if engine == "numba":
        return {"memory": host}
    import jax

    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    device = sum(found.get("bytes_limit", 0) - found.get("bytes_in_use", 0) for found in stats)
    return {"memory": host} | ({"accelerator memory": device} if device > 0 else {})
