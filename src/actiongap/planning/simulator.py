"""Simulators as planning problems: coordinates, actions, noise, and one step.

A step is a function of coordinates, action and noise. It returns an `Outcome`: the next coordinates, the reward, and whether the episode
ends. Written once with `actiongap.maths`, it runs on the arrays of any library and in Numba kernels.

    def roll(x, a, u):
        position, speed = x
        speed = maths.clip(speed + 0.001 * (a - 1) - 0.0025 * maths.cos(3 * position), -0.07, 0.07)
        position = maths.clip(position + speed, -1.2, 0.6)
        return Outcome((position, speed), -1.0, position >= 0.5)

    Simulator("car", roll, state={"position": (-1.2, 0.6), "speed": (-0.07, 0.07)}, actions=("left", "coast", "right"))

Many simulators have a factored step: some of the next coordinates depend only on some of the current ones, on a part of the action, and
not on the noise. Such a simulator is made from its factors instead of one step. Declared factors let the planner interpolate group by
group, which is much less work. Both ways give the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from actiongap.maths import where
from actiongap.planning.grid import Axis, periodic, uniform


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


class Periodic(NamedTuple):
    """The range of a periodic coordinate, such as an angle: low and high are the same place."""

    low: float
    high: float


Range: TypeAlias = tuple[float, float] | Periodic | Axis | Callable[[int], Axis]
"""Where the grid lies along a coordinate: (low, high), `Periodic(low, high)`, an `Axis` of chosen points, or a function of the number of
points that returns an `Axis`."""


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


@dataclass(frozen=True, eq=False, repr=False)
class Simulator:
    """A simulator as a planning problem.

    Examples
    --------
    >>> def slide(x, a, u):
    ...     return Outcome((x[0] + a - 0.5 + u,), 0.0, abs(x[0]) > 2.0)
    >>> simulator = Simulator("slide", slide, state={"place": (-2.0, 2.0)}, actions=("left", "right"), noise=Uniform(-0.1, 0.1))
    >>> simulator.coordinates, simulator.axes(3)[0].points, one_step(simulator)((0.5,), 1, 0.0).x
    (('place',), (-2.0, 0.0, 2.0), (1.0,))
    """

    name: str
    step: Step | tuple[Factor, ...]
    """One step, a function of the coordinates, the index of the action and the noise; or the factors that the step consists of. The first
    factor that ends the episode determines the reward; otherwise rewards are summed."""
    _: KW_ONLY
    state: Mapping[Any, Range]
    """The range of each coordinate, in order, by name."""
    actions: tuple[str, ...]
    """Names of the actions."""
    gamma: float = 0.99
    """Discount."""
    noise: Uniform | Discrete = NO_NOISE
    """The noise of a step."""
    outcomes: Mapping[str, Callable[[tuple[Any, ...]], Any]] = field(default_factory=dict)
    """Possible ends of an episode, such as goal and fall: by name, a function of the last coordinates that returns whether it holds."""
    start: Mapping[str, tuple[float, float]] | Callable[[int], tuple[Any, ...]] | None = None
    """Where episodes start: the range of each coordinate, by name, or a function of the number of episodes that returns their initial
    states. By default anywhere on the grid."""
    max_episode_steps: int = 1000
    """Number of steps after which an episode is truncated."""
    episodes: EpisodeSpec | None = None
    """How policies are evaluated, if not with the same step. It replaces `outcomes`, `start` and `max_episode_steps`."""
    render: Callable[[tuple[float, ...]], Any] | None = None
    """Function of a state, a tuple of numbers: an RGB image of it, (height, width, 3), with values from 0 to 255. For videos and
    environments; by default they show curves of the coordinates."""
    seconds_per_step: float | None = None
    """Simulated duration of a step, for the speed of videos; None if steps have no duration."""

    coordinates: tuple[str, ...] = field(init=False)
    """Names of the coordinates."""
    factors: tuple[Factor, ...] = field(init=False)
    """The factors of the step; a step that is one function is one factor."""
    episode_spec: EpisodeSpec = field(init=False)
    """How policies are evaluated."""

    def __post_init__(self) -> None:
        if not isinstance(self.state, Mapping) or not self.state:
            raise ValueError(f"{self.name}: state is {self.state!r}: give the range of each coordinate, such as {{'speed': (-2.0, 2.0)}}")
        if isinstance(self.actions, str) or not isinstance(self.actions, Sequence) or not self.actions:
            raise ValueError(f"{self.name}: actions is {self.actions!r}: give a tuple of names, such as ('left', 'right')")
        object.__setattr__(self, "actions", tuple(map(str, self.actions)))
        object.__setattr__(self, "coordinates", tuple(self.state))
        self.axes(2)
        if not (_is_number(self.gamma) and 0 <= self.gamma < 1):
            raise ValueError(f"{self.name}: gamma is {self.gamma!r}: give a number in [0, 1)")
        _check_noise(self.name, self.noise)
        object.__setattr__(self, "factors", self._factors())
        object.__setattr__(self, "episode_spec", self._episode_spec())
        if self.render is not None and not callable(self.render):
            raise ValueError(f"{self.name}: render is {self.render!r}: give a function of a state that returns an RGB image")
        if self.seconds_per_step is not None and not 0 < self.seconds_per_step < math.inf:
            raise ValueError(f"{self.name}: seconds_per_step is {self.seconds_per_step!r}: give a positive number, or None")

    def __repr__(self) -> str:
        noise = "" if self.noise == NO_NOISE else f"; noise {self.noise}"
        return f"Simulator({self.name}: state {', '.join(self.coordinates)}; {len(self.actions)} actions{noise})"

    def axes(self, n: int) -> tuple[Axis, ...]:
        """Return the axes of the grid with n points per axis."""
        return tuple(_axis(f"{self.name}: the range of {name}", given, n) for name, given in self.state.items())

    def _factors(self) -> tuple[Factor, ...]:
        every = tuple(range(len(self.coordinates)))
        if callable(self.step):
            return (Factor(every, every, tuple(range(len(self.actions))), self.noise != NO_NOISE, self.step),)
        if not (isinstance(self.step, tuple) and self.step and all(isinstance(factor, Factor) for factor in self.step)):
            raise ValueError(f"{self.name}: step is {self.step!r}: give a function of coordinates, action and noise, or a tuple of factors")
        given = tuple(output for factor in self.step for output in factor.outputs)
        if given != every:
            raise ValueError(f"{self.name}: the factors output the coordinates {given}: give each coordinate exactly once, in order")
        for factor in self.step:
            if len(factor.parts) != len(self.actions):
                parts = f"{len(factor.parts)} parts for {len(self.actions)} actions"
                raise ValueError(f"{self.name}: a factor has {parts}: give one part per action")
        return self.step

    def _episode_spec(self) -> EpisodeSpec:
        if self.episodes is not None:
            if not isinstance(self.episodes, EpisodeSpec):
                raise ValueError(f"{self.name}: episodes is {self.episodes!r}: give an EpisodeSpec")
            if self.outcomes or self.start is not None or self.max_episode_steps != 1000:
                raise ValueError(f"{self.name}: with episodes, outcomes, start and max_episode_steps have no effect: set them in episodes")
            return self.episodes
        if isinstance(self.max_episode_steps, bool) or not isinstance(self.max_episode_steps, int) or self.max_episode_steps < 1:
            raise ValueError(f"{self.name}: max_episode_steps is {self.max_episode_steps!r}: give a whole number of at least 1")
        if not isinstance(self.outcomes, Mapping) or not all(map(callable, self.outcomes.values())):
            raise ValueError(
                f"{self.name}: outcomes is {self.outcomes!r}: give functions of the coordinates by name, such as {{'goal': parked}}"
            )
        return EpisodeSpec(self._start(), one_step(self), outcomes=self.outcomes, max_episode_steps=self.max_episode_steps)

    def _start(self) -> Callable[[int], tuple[Any, ...]]:
        if callable(self.start):
            return self.start
        if self.start is None:
            return evenly_within(self.ranges)
        if not isinstance(self.start, Mapping) or tuple(self.start) != self.coordinates:
            remedy = f"give the range of {', '.join(self.coordinates)}, in this order"
            raise ValueError(f"{self.name}: start is {self.start!r}: {remedy}")
        for name, given in self.start.items():
            if not (isinstance(given, tuple) and len(given) == 2 and -math.inf < given[0] <= given[1] < math.inf):
                raise ValueError(f"{self.name}: the start of {name} is {given!r}: give two finite numbers, the lower first")
        return evenly_within(list(self.start.values()))

    @property
    def ranges(self) -> list[tuple[float, float]]:
        """The least and the largest value of each coordinate on the grid; a periodic one reaches the end of its period."""
        # The ends of an axis do not depend on its number of points.
        return [(axis.points[0], axis.points[-1] if axis.period is None else axis.points[0] + axis.period) for axis in self.axes(10)]


def _axis(what: str, given: Range, n: int) -> Axis:
    """Return the axis of a coordinate with n points, or raise ValueError if its range is not one."""
    if isinstance(given, Axis):
        return given
    if callable(given):
        found = given(n)
        if not isinstance(found, Axis):
            raise ValueError(f"{what} is a function that returns a {type(found).__name__}: return an Axis")
        return found
    if not (isinstance(given, tuple) and len(given) == 2):
        raise ValueError(f"{what} is {given!r}: give (low, high), Periodic(low, high) or an Axis")
    low, high = given
    if not (_is_number(low) and _is_number(high) and -math.inf < low < high < math.inf):
        raise ValueError(f"{what} is from {low!r} to {high!r}: give two finite numbers, the lower first")
    return (periodic if isinstance(given, Periodic) else uniform)(float(low), float(high), n)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _check_noise(name: str, noise: Uniform | Discrete) -> None:
    if isinstance(noise, Uniform):
        if not all(map(_is_number, noise)) or not -math.inf < noise.low <= noise.high < math.inf:
            raise ValueError(f"{name}: noise is drawn from {noise.low!r} to {noise.high!r}: give two finite numbers, the lower first")
        return
    if not isinstance(noise, Discrete):
        raise ValueError(f"{name}: noise is {noise!r}: give Uniform(low, high) or Discrete(values, probabilities)")
    values, probabilities = noise
    if not values or len(values) != len(probabilities) or not all(_is_number(value) and math.isfinite(value) for value in values):
        raise ValueError(
            f"{name}: noise has {len(values)} values and {len(probabilities)} probabilities: give finite values and one probability each"
        )
    if not (all(_is_number(p) and p >= 0 for p in probabilities) and abs(sum(probabilities) - 1) <= 1e-9):
        raise ValueError(f"{name}: the probabilities of its noise sum to {sum(probabilities)!r}: give nonnegative numbers that sum to 1")


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
