"""Finite MDPs and Gymnasium: tabular environments read as models, and models as environments.

A tabular environment lists its transitions, some of which end the episode; in a model these lead to an absorbing state that pays nothing.
A model has no end: as an environment it goes on until a time limit truncates the episode.

The one loop that plays: models, environments and ids of environments alike, as a stream of transitions.

An episode ends in one of two ways. *Terminated*: the next state is terminal, nothing follows it, and its discount is 0. *Truncated*: the
clock ran out, the next state has a value like any other, and only the play starts anew. A finite MDP never terminates by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from actiongap.mdp.checks import check_distributions, check_indices, check_table
from actiongap.mdp.model import FiniteMDP


def from_gymnasium(environment: str | gymnasium.Env, gamma: float = 0.99, **options: Any) -> FiniteMDP:
    """The model of a tabular Gymnasium environment, one that lists its transitions as `P[x][a] = [(p, x', r, done), ...]`.

    Transitions that are `done` lead to one more state, the last, which is absorbing and pays nothing. The options that follow an id go
    to `gymnasium.make`.

    Examples
    --------
    >>> from_gymnasium("FrozenLake-v1", gamma=0.9, is_slippery=False).states
    17
    """
    if options and not isinstance(environment, str):
        raise ValueError(f"{next(iter(options))} came with an environment that is made already: give options to an id only")
    with opened(environment, **options) as env:
        table: Any = getattr(env.unwrapped, "P", None)
    name = environment if isinstance(environment, str) else str(env)
    if table is None:
        raise ValueError(f"{name} does not list its transitions as P[x][a]: only tabular environments such as FrozenLake-v1 can be solved")
    states, actions = len(table), len(table[0])
    end = states
    width = max(len(table[x][a]) for x in range(states) for a in range(actions))
    rewards = np.zeros((states + 1, actions))
    successors = np.full((states + 1, actions, width), end, dtype=np.int64)
    probabilities = np.zeros((states + 1, actions, width))
    probabilities[end, :, 0] = 1.0
    for x in range(states):
        for a in range(actions):
            for k, (probability, successor, reward, done) in enumerate(table[x][a]):
                rewards[x, a] += probability * reward
                successors[x, a, k] = end if done else successor
                probabilities[x, a, k] = probability
    return FiniteMDP.from_successors(rewards, successors, probabilities, gamma, f"gym/{name}")


class FiniteEnv(gymnasium.Env[Any, Any]):
    """A finite MDP as a Gymnasium environment: observations are states, rewards are R(x, a), and no episode terminates.

    Parameters
    ----------
    mdp
        The model.
    start
        Where episodes start: a state, or the probability of each; every state alike if not given.
    max_steps
        Steps after which an episode is truncated; never if not given.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> env = FiniteEnv(chain(5, slip=0.0), start=3)
    >>> env.reset(seed=0)[0], env.step(1)[:2], env.step(1)[:2]
    (3, (4, 0.0), (4, 1.0))
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - the base class declares it so

    def __init__(self, mdp: FiniteMDP, *, start: int | np.ndarray | None = None, max_steps: int | None = None):
        if max_steps is not None and (int(max_steps) != max_steps or max_steps < 1):
            raise ValueError(f"max_steps is {max_steps!r}: it must be a whole number of at least 1, or None for no limit")
        self.mdp = mdp
        self.observation_space = spaces.Discrete(mdp.states)
        self.action_space = spaces.Discrete(mdp.actions)
        self._max_steps = math.inf if max_steps is None else max_steps
        self._start = _start_distribution(mdp, start).cumsum()
        self._rewards = mdp.rewards
        self._successors, self._probabilities = mdp.listed()
        self._x: int | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._x = draw(self._start, self.np_random)
        self._steps = 0
        return self._x, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        x = self._x
        if x is None:
            raise ValueError("the environment has not started: call reset before step")
        if not 0 <= action < self._rewards.shape[1]:
            raise ValueError(f"action {action!r} is none of this environment's: they are 0 to {self._rewards.shape[1] - 1}")
        successor = draw(self._probabilities[x, action].cumsum(), self.np_random)
        self._x = int(self._successors[x, action, successor])
        self._steps += 1
        return self._x, float(self._rewards[x, action]), False, self._steps >= self._max_steps, {}


def draw(cumulative: np.ndarray, rng: np.random.Generator) -> int:
    """An index drawn with the probabilities whose running sums are given; one of probability zero is never drawn.

    Examples
    --------
    >>> draw(np.array([0.0, 1.0, 1.0]), np.random.default_rng(0))
    1
    """
    # 1 - random() is in (0, 1]: above zero, so that leading zeros are passed over, and never above the last sum, however it is rounded.
    return int(cumulative.searchsorted((1.0 - rng.random()) * cumulative[-1]))


@contextmanager
def opened(environment: gymnasium.Env | str, **options: Any) -> Iterator[gymnasium.Env]:
    """An environment as it is, or one made from its id with these options, which is closed afterwards.

    Examples
    --------
    >>> with opened("FrozenLake-v1", is_slippery=False) as env:
    ...     env.action_space
    Discrete(4)
    """
    if isinstance(environment, gymnasium.Env):
        yield environment
        return
    if not isinstance(environment, str):
        raise ValueError(f"{environment!r} cannot be played: give a finite MDP, a Gymnasium environment, or the id of one")
    try:
        made = gymnasium.make(environment, **options)
    except ModuleNotFoundError as error:
        remedy = "put the folder of its module on PYTHONPATH"
        raise ValueError(f"{environment} cannot be made by Gymnasium: no module named {error.name!r}; {remedy}") from None
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ValueError(f"{environment} cannot be made by Gymnasium: {error}") from None
    with closing(made):
        yield made


def _start_distribution(mdp: FiniteMDP, start: int | np.ndarray | None) -> np.ndarray:
    if start is None:
        return np.full(mdp.states, 1 / mdp.states)
    if np.ndim(start) == 0:
        return np.eye(1, mdp.states, int(check_indices("start", start, 0, "states", mdp.states)))[0]
    return check_distributions("start", check_table("start", start, (mdp.states,)))


Problem = FiniteMDP | gymnasium.Env | str
"""What can be played: a model, an environment, or the id of one."""


class Step(NamedTuple):
    """One transition of play, with what was decided to do next."""

    x: Any
    """The observation: a state counted from 0 where observations are discrete, flat numbers otherwise."""
    a: int
    """The action taken, counted from 0."""
    r: float
    """The reward."""
    terminated: bool
    """Whether `x_next` is terminal."""
    x_next: Any
    """What `a` led to; after a time limit the last state reached, not the first of the next episode."""
    a_next: int
    """The action chosen in `x_next`."""
    ended: bool
    """Whether the episode ended here, for either reason."""


def play(env: gymnasium.Env, act: Callable[[Any], int], *, steps: int, seed: int) -> Iterator[Step]:
    """Play `env` for a number of steps with actions `act(x)`, starting anew whenever an episode ends.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> [step.x_next for step in play(FiniteEnv(chain(5, slip=0.0), start=0), lambda x: 1, steps=3, seed=0)]
    [1, 2, 3]
    """
    if int(steps) != steps or steps < 1:
        raise ValueError(f"steps is {steps!r}: it must be a whole number of at least 1")
    read, first = _reader(env.observation_space), int(discrete(env, "action").start)
    x = read(env.reset(seed=seed)[0])
    a = act(x)
    for _ in range(int(steps)):
        observation, r, terminated, truncated, _ = env.step(a + first)
        x_next = read(observation)
        a_next = act(x_next)
        ended = bool(terminated or truncated)
        yield Step(x, a, float(r), bool(terminated), x_next, a_next, ended)
        if ended:
            x_next = read(env.reset()[0])
            a_next = act(x_next)
        x, a = x_next, a_next


def playing(problem: Problem) -> AbstractContextManager[gymnasium.Env]:
    """The environment that plays a problem, closed afterwards if it was made here.

    A model is played from states drawn evenly, and started anew every 1 / (1 - gamma) steps, so that no state stays unseen. For another
    start or another limit, give a `FiniteEnv` of your own.

    Examples
    --------
    >>> with playing("FrozenLake-v1") as env:
    ...     env.observation_space
    Discrete(16)
    """
    if isinstance(problem, FiniteMDP):
        return opened(FiniteEnv(problem, max_steps=round(1 / (1 - problem.gamma))))
    return opened(problem)


def discrete(env: gymnasium.Env, what: str) -> spaces.Discrete:
    """The `action` or `observation` space, or a sentence saying that it must be discrete."""
    space = env.action_space if what == "action" else env.observation_space
    if not isinstance(space, spaces.Discrete):
        remedy = "choose an environment with discrete actions" if what == "action" else "collect a batch and fit a regressor to it"
        raise ValueError(f"{env} has the {what} space {space}, which is not Discrete: {remedy}")
    return space


def _reader(space: spaces.Space) -> Callable[[Any], Any]:
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return lambda observation: int(observation) - first
    return lambda observation: np.asarray(spaces.flatten(space, observation), dtype=float)
