"""What a planner needs to know of a simulator: its coordinates, its actions, its noise, and one step.

A step is a function of coordinates, action and noise that says where one goes, what it pays and whether it ends there. It is written with
`actiongap.maths`, once, and runs on arrays of any library and inside Numba kernels.

    def roll(x, a, u):
        position, speed = x
        speed = maths.clip(speed + 0.001 * (a - 1) - 0.0025 * maths.cos(3 * position), -0.07, 0.07)
        position = maths.clip(position + speed, -1.2, 0.6)
        return Outcome((position, speed), -1.0, position >= 0.5)

Many simulators fall into factors: some of the next coordinates depend only on some of the present ones, on a part of the action, and not
on the noise. A `Simulator` is made of such factors. Whoever has none to declare has one factor with everything in it. Declared ones let the
planner interpolate group by group, which is much less work, and both ways give the same numbers.
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
    """What a step comes to. Every number may be an array, all of one shape."""

    x: tuple
    """The next coordinates, those that the factor gives."""
    reward: Any
    """What the step pays; where it ends the episode, all that is ever paid from here on."""
    ended: Any
    """Whether the episode ends here."""


Step: TypeAlias = Callable[[tuple, Any, Any], Outcome]
"""Of all coordinates, the action counted from 0, and the noise."""


class Uniform(NamedTuple):
    """Noise drawn evenly from an interval at every step."""

    low: float
    high: float


class Discrete(NamedTuple):
    """Noise that takes some values, each with its probability, so that expectations are exact."""

    values: tuple[float, ...]
    probabilities: tuple[float, ...]


NO_NOISE = Discrete((0.0,), (1.0,))
"""No noise at all."""


class Split(NamedTuple):
    """A step in two: what is known before the noise, which planners compute once and keep, and what is left to do."""

    before: Callable[[tuple, Any], tuple]
    """Of all coordinates and the action: some numbers."""
    after: Callable[[tuple, Any], Outcome]
    """Of those numbers and the noise: the outcome."""

    def step(self) -> Step:
        """Both halves, one after the other.

        Examples
        --------
        >>> Split(lambda x, a: (x[0] + a,), lambda known, u: Outcome((known[0] + u,), 0.0, False)).step()((1.0,), 1, 0.5).x
        (2.5,)
        """
        before, after = self.before, self.after
        return lambda x, a, u: after(before(x, a), u)


@dataclass(frozen=True)
class Factor:
    """Some of the next coordinates, and all that they depend on."""

    outputs: tuple[int, ...]
    """Which next coordinates it gives: those that follow the ones of the factor before it."""
    inputs: tuple[int, ...]
    """Which coordinates it looks at, of all that it is handed."""
    parts: tuple[int, ...]
    """For each action the part of it that matters here, counted from 0: actions with the same part act alike."""
    noisy: bool
    """Whether it looks at the noise."""
    step: Step
    split: Split | None = None
    """The same step in two, where much of it is known before the noise."""


@dataclass(frozen=True)
class EpisodeSpec:
    """How policies are tried: where episodes start, the simulator that they go through, and what of it a policy sees.

    A state is a tuple of numbers. It may hold more than the coordinates of the grid, and is never clamped to it.
    """

    start: Callable[[int], tuple]
    """The states in which so many episodes start, each number a NumPy array (episodes,); the same whenever it is called."""
    step: Step
    """One step from a state: an `Outcome` whose x is the next state."""
    observe: Callable[[tuple], tuple] = lambda state: state
    """The coordinates of a state, as the policy sees it."""
    outcomes: Mapping[str, Callable[[tuple], Any]] = field(default_factory=dict)
    """Ways to end by name, such as goal and fall, with what is true of the coordinates when an episode has ended so."""
    max_episode_steps: int = 1000
    """After how many steps an episode is cut short."""


class EpisodeBatch(NamedTuple):
    """Results of a batch of episodes: each array is (tables, episodes)."""

    coordinates: tuple
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
    """What the coordinates are called."""
    actions: tuple[str, ...]
    """What the actions are called."""
    factors: tuple[Factor, ...]
    """In the order in which they may end an episode: the first that does decides what is paid. Otherwise rewards add up."""
    axes: Callable[[int], tuple[Axis, ...]]
    """The grid that suits it, with so many points an axis."""
    gamma: float = 0.99
    noise: Uniform | Discrete = NO_NOISE
    episodes: EpisodeSpec | None = None
    """How its policies are tried; None where nobody has said."""

    def __post_init__(self) -> None:
        for what in ("coordinates", "actions"):
            if isinstance(names := getattr(self, what), str):
                raise ValueError(f"{self.name}: its {what} are one text, {names!r}: give a tuple of names, such as ({names!r},)")
        given = tuple(output for factor in self.factors for output in factor.outputs)
        if given != tuple(range(len(self.coordinates))):
            raise ValueError(f"{self.name}: the factors give the coordinates {given}: they must give each once, in order")
        _check_noise(self.name, self.noise)
        for factor in self.factors:
            if len(factor.parts) != len(self.actions):
                parts = f"{len(factor.parts)} parts for {len(self.actions)} actions"
                raise ValueError(f"{self.name}: a factor has {parts}: give one for each")


def _check_noise(name: str, noise: Uniform | Discrete) -> None:
    if isinstance(noise, Uniform):
        if not -math.inf < noise.low <= noise.high < math.inf:
            raise ValueError(f"{name}: noise is drawn from {noise.low!r} to {noise.high!r}: give two numbers, the lower first")
        return
    values, probabilities = noise
    if not values or len(values) != len(probabilities) or not all(map(math.isfinite, values)):
        raise ValueError(
            f"{name}: noise has {len(values)} values and {len(probabilities)} probabilities: give numbers, and as many of each"
        )
    if not (all(p >= 0 for p in probabilities) and abs(sum(probabilities) - 1) <= 1e-9):
        raise ValueError(f"{name}: the probabilities of its noise sum to {sum(probabilities)!r}: they must be 0 or more and sum to 1")


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
    """A simulator with nothing to declare but one step of everything. Episodes, unless told otherwise, start all over the grid.

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

    def anywhere(n: int) -> tuple:
        # How many points an axis has changes nothing about its ends.
        found = axes(10)
        found = (found,) if isinstance(found, Axis) else found
        ends = [(axis.points[0], axis.points[-1] if axis.period is None else axis.points[0] + axis.period) for axis in found]
        return evenly_within(ends)(n)

    return Simulator(name, coordinates, actions, (factor,), axes, gamma, noise, episodes or EpisodeSpec(anywhere, step))


def evenly_within(bounds: Sequence[tuple[float, float]]) -> Callable[[int], tuple[np.ndarray, ...]]:
    """Places all over a box, as many as are asked for: fewer are the first of more, and any number of them is spread evenly.

    Along side i they lie at the fractional parts of 1/2 + k / g^i, where g solves g^(d + 1) = g + 1 in d dimensions. In one dimension that
    is the golden section.

    Examples
    --------
    >>> x, y = evenly_within([(0.0, 1.0), (-5.0, 5.0)])(4)
    >>> x.round(3).tolist(), y.round(3).tolist()
    ([0.255, 0.01, 0.765, 0.52], [-4.302, 1.397, -2.905, 2.794])
    """
    ratio = 1.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (len(bounds) + 1))

    def places(n: int) -> tuple[np.ndarray, ...]:
        shares = [(0.5 + np.arange(1, n + 1) / ratio**i) % 1 for i in range(1, len(bounds) + 1)]
        return tuple(low + (high - low) * share for (low, high), share in zip(bounds, shares, strict=True))

    return places


def one_step(simulator: Simulator) -> Step:
    """One step of everything: all factors combined."""
    first, *others = [factor.step for factor in simulator.factors]
    return reduce(combine_steps, others, first)


def combined_reward(one: Any, other: Any) -> Any:
    """The reward of two factors: that of the first one that ends the episode, otherwise the sum.

    Examples
    --------
    >>> float(paid(Outcome((), 1.0, False), Outcome((), 5.0, True)))
    5.0
    """
    return where(one.ended, one.reward, where(other.ended, other.reward, one.reward + other.reward))


def combine_steps(one: Step, other: Step) -> Step:
    """Two factors as one step.

    Examples
    --------
    >>> half = lambda x, a, u: Outcome((x[0] / 2,), 1.0, False)
    >>> combine_steps(half, half)((3.0,), 0, 0.0)
    Outcome(x=(1.5, 1.5), reward=2.0, ended=False)
    """

    def step(x: tuple, a: Any, u: Any) -> Outcome:
        p, q = one(x, a, u), other(x, a, u)
        return Outcome(p.x + q.x, combined_reward(p, q), p.ended | q.ended)

    return step
