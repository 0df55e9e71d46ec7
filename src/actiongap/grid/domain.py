"""What a planner needs to know of a simulator: its coordinates, its actions, its noise, and one step.

A step is a function of coordinates, action and noise that says where one goes, what it pays and whether it ends there. It is written with
`actiongap.maths`, once, and runs on arrays of any library and inside Numba kernels.

    def roll(x, a, u):
        position, speed = x
        speed = maths.clip(speed + 0.001 * (a - 1) - 0.0025 * maths.cos(3 * position), -0.07, 0.07)
        position = maths.clip(position + speed, -1.2, 0.6)
        return Outcome((position, speed), -1.0, position >= 0.5)

Many simulators fall into factors: some of the next coordinates depend only on some of the present ones, on a part of the action, and not
on the noise. A `Domain` is made of such factors. Whoever has none to declare has one factor with everything in it. Declared ones let the
planner interpolate group by group, which is much less work, and both ways give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

from actiongap.grid.axes import Axis
from actiongap.maths import where


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


QUIET = Discrete((0.0,), (1.0,))
"""No noise at all."""


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


@dataclass(frozen=True)
class Domain:
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
    noise: Uniform | Discrete = QUIET

    def __post_init__(self) -> None:
        given = tuple(output for factor in self.factors for output in factor.outputs)
        if given != tuple(range(len(self.coordinates))):
            raise ValueError(f"{self.name}: the factors give the coordinates {given}: they must give each once, in order")
        for factor in self.factors:
            if len(factor.parts) != len(self.actions):
                parts = f"{len(factor.parts)} parts for {len(self.actions)} actions"
                raise ValueError(f"{self.name}: a factor has {parts}: give one for each")


def simulator(
    name: str,
    coordinates: tuple[str, ...],
    actions: tuple[str, ...],
    step: Step,
    axes: Callable[[int], tuple[Axis, ...]],
    gamma: float = 0.99,
    noise: Uniform | Discrete = QUIET,
) -> Domain:
    """A domain with nothing to declare but one step of everything.

    Examples
    --------
    >>> from actiongap.grid.axes import uniform
    >>> def slide(x, a, u):
    ...     return Outcome((x[0] + a - 0.5,), 0.0, False)
    >>> domain = simulator("slide", ("x",), ("left", "right"), slide, lambda n: (uniform(0.0, 1.0, n),))
    >>> one_step(domain)((0.5,), 1, 0.0).x
    (1.0,)
    """
    every = tuple(range(len(coordinates)))
    factor = Factor(every, every, tuple(range(len(actions))), noise != QUIET, step)
    return Domain(name, coordinates, actions, (factor,), axes, gamma, noise)


def one_step(domain: Domain) -> Step:
    """One step of everything: the factors put together."""
    first, *others = [factor.step for factor in domain.factors]
    return reduce(_together, others, first)


def _together(one: Step, other: Step) -> Step:
    def step(x: tuple, a: Any, u: Any) -> Outcome:
        p, q = one(x, a, u), other(x, a, u)
        reward = where(p.ended, p.reward, where(q.ended, q.reward, p.reward + q.reward))
        return Outcome(p.x + q.x, reward, p.ended | q.ended)

    return step
