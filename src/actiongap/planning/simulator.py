"""Simulators as planning problems: coordinates, actions, noise, and one step.

A step is a function of coordinates, action and noise. It returns an `Outcome`: the next coordinates, the reward, and whether the episode
ends. Written once with `actiongap.maths`, it runs on the arrays of any library and in Numba kernels.

    def roll(x, a, u):
        position, speed = x
        speed = maths.clip(speed + 0.001 * (a - 1) - 0.0025 * maths.cos(3 * position), -0.07, 0.07)
        position = maths.clip(position + speed, -1.2, 0.6)
        return Outcome((position, speed), -1.0, position >= 0.5)

Many simulators have a factored step: some of the next coordinates depend only on some of the current ones, on a part of the action, and
not on the noise. A `Simulator` consists of such factors; `make_simulator` makes one with a single factor for the whole step. Declared
factors let the planner interpolate group by group, which is much less work. Both ways give the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from actiongap.maths import where
from actiongap.planning.grid import Axis


class Outcome(NamedTuple):
    """The outcome of a step. Each field may be a number or an array; arrays have the same shape."""

    x: tuple[Any, ...]
    """The next coordinates (of a factor: its outputs)."""
    reward: Any
    """The reward of this step. If the episode ends, the next state has value 0, so the reward is the whole return from this step on."""
    ended: Any
    """Whether the episode ends with this step."""


Step: TypeAlias = Callable[[tuple[Any, ...], Any, Any], Outcome]
"""Function of all coordinates, the index of the action, and the noise."""


class Uniform(NamedTuple):
    """Noise drawn uniformly from an interval at every step."""

    low: float
    high: float


class Discrete(NamedTuple):
    """Noise with finitely many values. Planners enumerate them, so expectations are exact."""

    values: tuple[float, ...]
    probabilities: tuple[float, ...]


NO_NOISE = Discrete((0.0,), (1.0,))
"""A simulator without noise."""


class Split(NamedTuple):
    """A step split into two functions. Planners cache the result of the first, which does not depend on the noise."""

    before: Callable[[tuple[Any, ...], Any], tuple[Any, ...]]
    """Function of all coordinates and the action: a tuple of numbers."""
    after: Callable[[tuple[Any, ...], Any], Outcome]
    """Function of those numbers and the noise: the outcome."""

    def step(self) -> Step:
        """Return both halves as one step.

        Examples
        --------
        >>> Split(lambda x, a: (x[0] + a,), lambda known, u: Outcome((known[0] + u,), 0.0, False)).step()((1.0,), 1, 0.5).x
        (2.5,)
        """
        before, after = self.before, self.after
        return lambda x, a, u: after(before(x, a), u)


@dataclass(frozen=True)
class Factor:
    """A factor of the step: some of the next coordinates, and their inputs."""

    outputs: tuple[int, ...]
    """Indices of the next coordinates that it computes. The factors of a simulator list all coordinates in order."""
    inputs: tuple[int, ...]
    """Indices of the coordinates that it reads."""
    parts: tuple[int, ...]
    """For each action, the number of the part of it that the factor reads, such as one of three torques. Actions with the same number have
    the same effect on this factor."""
    noisy: bool
    """Whether it reads the noise."""
    step: Step
    """Function of all coordinates, the action and the noise."""
    split: Split | None = None
    """The same step as a `Split`, if much of it can be computed before the noise is known."""


@dataclass(frozen=True)
class EpisodeSpec:
    """How policies are evaluated: initial states, the step, and what the policy observes.

    A state is a tuple of numbers. It may have more numbers than the grid has coordinates, and it is never clipped to the grid.
    """

    start: Callable[[int], tuple[Any, ...]]
    """Function of the number of episodes: their initial states, each number a NumPy array (episodes,). Must be deterministic."""
    step: Step
    """One step from a state: an `Outcome` whose x is the next state."""
    observe: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda state: state
    """Function of a state: the coordinates that the policy observes."""
    outcomes: Mapping[str, Callable[[tuple[Any, ...]], Any]] = field(default_factory=dict)
    """Possible ends of an episode, such as goal and fall: by name, a function of the last coordinates that returns whether it holds."""
    max_episode_steps: int = 1000
    """Number of steps after which an episode is truncated."""


class EpisodeBatch(NamedTuple):
    """Results of a batch of episodes: each array is (tables, episodes)."""

    coordinates: tuple[np.ndarray, ...]
    """The last observed coordinates, one array per coordinate, in the precision of the engine."""
    steps: np.ndarray
    """Number of steps taken."""
    returns: np.ndarray
    """Undiscounted sum of the simulator's rewards."""
    ended: np.ndarray
    """False where the step limit truncated the episode."""


@dataclass(frozen=True)
class Simulator:
    """A simulator as a planning problem."""

    name: str
    coordinates: tuple[str, ...]
    """Names of the coordinates."""
    actions: tuple[str, ...]
    """Names of the actions."""
    factors: tuple[Factor, ...]
    """The factors of the step. The first factor that ends the episode determines the reward; otherwise rewards are summed."""
    axes: Callable[[int], tuple[Axis, ...]]
    """Function of the number of points per axis: the axes of its default grid."""
    gamma: float = 0.99
    """Discount."""
    noise: Uniform | Discrete = NO_NOISE
    """The noise of a step."""
    episodes: EpisodeSpec | None = None
    """How its policies are evaluated; None if not specified."""

    def __post_init__(self) -> None:
        for what in ("coordinates", "actions"):
            if isinstance(names := getattr(self, what), str):
                raise ValueError(f"{self.name}: its {what} are one string, {names!r}: give a tuple of names, such as ({names!r},)")
        given = tuple(output for factor in self.factors for output in factor.outputs)
        if given != tuple(range(len(self.coordinates))):
            raise ValueError(f"{self.name}: the factors output the coordinates {given}: give each coordinate exactly once, in order")
        _check_noise(self.name, self.noise)
        for factor in self.factors:
            if len(factor.parts) != len(self.actions):
                parts = f"{len(factor.parts)} parts for {len(self.actions)} actions"
                raise ValueError(f"{self.name}: a factor has {parts}: give one part per action")


def _check_noise(name: str, noise: Uniform | Discrete) -> None:
    if isinstance(noise, Uniform):
        if not -math.inf < noise.low <= noise.high < math.inf:
            raise ValueError(f"{name}: noise is drawn from {noise.low!r} to {noise.high!r}: give two finite numbers, the lower first")
        return
    values, probabilities = noise
    if not values or len(values) != len(probabilities) or not all(map(math.isfinite, values)):
        raise ValueError(
            f"{name}: noise has {len(values)} values and {len(probabilities)} probabilities: give finite values and one probability each"
        )
    if not (all(p >= 0 for p in probabilities) and abs(sum(probabilities) - 1) <= 1e-9):
        raise ValueError(f"{name}: the probabilities of its noise sum to {sum(probabilities)!r}: give nonnegative numbers that sum to 1")


def make_simulator(
    name: str,
    coordinates: tuple[str, ...],
    actions: tuple[str, ...],
    step: Step,
    axes: Callable[[int], tuple[Axis, ...]],
    gamma: float = 0.99,
    noise: Uniform | Discrete = NO_NOISE,
    episodes: EpisodeSpec | None = None,
) -> Simulator:
    """Make a simulator from one step, as a single factor. By default episodes start at points spread evenly over the grid.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> def slide(x, a, u):
    ...     return Outcome((x[0] + a - 0.5,), 0.0, False)
    >>> simulator = make_simulator("slide", ("x",), ("left", "right"), slide, lambda n: (uniform(0.0, 1.0, n),))
    >>> one_step(simulator)((0.5,), 1, 0.0).x
    (1.0,)
    """
    every = tuple(range(len(coordinates)))
    factor = Factor(every, every, tuple(range(len(actions))), noise != NO_NOISE, step)

    def start(n: int) -> tuple[np.ndarray, ...]:
        # The ends of an axis do not depend on its number of points.
        found = axes(10)
        found = (found,) if isinstance(found, Axis) else found
        ends = [(axis.points[0], axis.points[-1] if axis.period is None else axis.points[0] + axis.period) for axis in found]
        return evenly_within(ends)(n)

    return Simulator(name, coordinates, actions, (factor,), axes, gamma, noise, episodes or EpisodeSpec(start, step))


def evenly_within(bounds: Sequence[tuple[float, float]]) -> Callable[[int], tuple[np.ndarray, ...]]:
    """Return a function of n: the first n points of a low-discrepancy sequence in a box, one array (n,) per coordinate.

    Along coordinate i, point k lies at the fractional part of 1/2 + k / g^i, where g solves g^(d + 1) = g + 1 in d dimensions. In one
    dimension g is the golden ratio.

    Examples
    --------
    >>> x, y = evenly_within([(0.0, 1.0), (-5.0, 5.0)])(4)
    >>> x.round(3).tolist(), y.round(3).tolist()
    ([0.255, 0.01, 0.765, 0.52], [-4.302, 1.397, -2.905, 2.794])
    """
    ratio = 1.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (len(bounds) + 1))

    def points(n: int) -> tuple[np.ndarray, ...]:
        fractions = [(0.5 + np.arange(1, n + 1) / ratio**i) % 1 for i in range(1, len(bounds) + 1)]
        return tuple(low + (high - low) * fraction for (low, high), fraction in zip(bounds, fractions, strict=True))

    return points


def one_step(simulator: Simulator) -> Step:
    """Return the step of the whole simulator: all factors combined."""
    first, *others = [factor.step for factor in simulator.factors]
    return reduce(combine_steps, others, first)


def combined_reward(one: Any, other: Any) -> Any:
    """Return the reward of two factors: that of the first one that ends the episode, otherwise the sum.

    Examples
    --------
    >>> float(combined_reward(Outcome((), 1.0, False), Outcome((), 5.0, True)))
    5.0
    """
    return where(one.ended, one.reward, where(other.ended, other.reward, one.reward + other.reward))


def combine_steps(one: Step, other: Step) -> Step:
    """Combine the steps of two factors into one.

    Examples
    --------
    >>> half = lambda x, a, u: Outcome((x[0] / 2,), 1.0, False)
    >>> combine_steps(half, half)((3.0,), 0, 0.0)
    Outcome(x=(1.5, 1.5), reward=2.0, ended=False)
    """

    def step(x: tuple[Any, ...], a: Any, u: Any) -> Outcome:
        p, q = one(x, a, u), other(x, a, u)
        return Outcome(p.x + q.x, combined_reward(p, q), p.ended | q.ended)

    return step
