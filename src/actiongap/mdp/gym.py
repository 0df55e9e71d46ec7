"""Finite MDPs and Gymnasium: tabular environments as models, models as environments, and rollouts of both.

*From Gymnasium.* A tabular environment lists its transitions as `P[x][a] = [(p, x', r, done), ...]`. Its model (`from_gymnasium`) has one
state more: transitions that end an episode lead to it, it is absorbing, and its rewards are 0.

*To Gymnasium.* `FiniteEnv` steps a model. A finite MDP has no terminal states, so an episode lasts until a time limit truncates it.

*Rollouts.* An episode ends in one of two ways. *Terminated*: the next state is terminal and its discount is 0. *Truncated*: a time limit
was reached, the next state has a value like any other, and only the environment is reset. `rollout` yields the transitions of both.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator

from actiongap._suggest import choose_from, nearest
from actiongap.mdp.checks import check_distributions, check_indices, check_table, check_whole
from actiongap.mdp.model import FiniteMDP, check_model
from actiongap.mdp.transitions import Ragged, Sparse


def from_gymnasium(env: str | gymnasium.Env[Any, Any], gamma: float = 0.99, **options: Any) -> FiniteMDP:
    """Make the model of a tabular Gymnasium environment, which lists its transitions as `P[x][a] = [(p, x', r, done), ...]`.

    The model has one state more than the environment: a terminal state, the last one. Transitions with `done` lead there instead of to
    x', because in a model only an absorbing state with reward 0 has the value 0 that the end of an episode has. FrozenLake-v1 has 16
    states and its model 17; the rows of holes and of the goal are kept, but no episode continues from them. Options of an environment id
    are passed to `gymnasium.make`.

    Examples
    --------
    >>> from_gymnasium("FrozenLake-v1", gamma=0.9, is_slippery=False).states
    17
    """
    if options and not isinstance(env, str):
        raise ValueError(f"{next(iter(options))} does not apply to an environment that exists already: pass an id to use options")
    with open_env(env, **options) as opened:
        table: Any = getattr(opened.unwrapped, "P", None)
        name = env.removeprefix("gym/") if isinstance(env, str) else env_name(opened)
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
    note = f"State {end} is the terminal state that was added to the {states} of {name}: every transition that ends an episode leads there."
    return FiniteMDP(rewards, Sparse(successors, probabilities), gamma, f"gym/{name}", note=note)


class FiniteEnv(gymnasium.Env[Any, Any]):
    """A finite MDP as a Gymnasium environment: observations are states, rewards are R(x, a), and no episode terminates.

    If action sets differ by state, `info["action_mask"]` has the actions of the state as ones, as in Gymnasium's Taxi. Other actions are
    refused.

    Parameters
    ----------
    mdp
        The model.
    start
        Start of episodes: a state, or the probability of each state; uniform by default.
    max_steps
        Steps after which an episode is truncated; unlimited by default.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> env = FiniteEnv(chain(5, slip=0.0), start=3)
    >>> env.reset(seed=0)[0], env.step(1)[:2], env.step(1)[:2]
    (3, (4, 0.0), (4, 1.0))
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - the base class declares it so

    def __init__(self, mdp: FiniteMDP, *, start: int | np.ndarray | None = None, max_steps: int | None = None):
        self.mdp: FiniteMDP = check_model(mdp)
        self.observation_space: spaces.Space[Any] = spaces.Discrete(mdp.states)
        self.action_space: spaces.Space[Any] = spaces.Discrete(mdp.actions)
        self._max_steps = math.inf if max_steps is None else check_whole("max_steps", max_steps, 1)
        self._start = _start_distribution(mdp, start).cumsum()
        self._rewards = mdp.rewards
        self._transitions = mdp.transitions if isinstance(mdp.transitions, Ragged) else mdp.sparse_transitions()
        self._x: int | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._x = sample_index(self._start, self.np_random)
        self._steps = 0
        return self._x, self._info()

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        x = self._x
        if x is None:
            raise ValueError("the environment has not started: call reset before step")
        if not (isinstance(action, (int, np.integer)) and 0 <= action < self._rewards.shape[1]):
            raise ValueError(f"action {action!r} is not an action of this environment: choose from 0 to {self._rewards.shape[1] - 1}")
        if self.mdp.available is not None and not self.mdp.available[x, action]:
            raise ValueError(f"state {x} does not have action {action}: choose from {self.mdp.actions_of(x).tolist()}")
        form = self._transitions
        listed = slice(form.starts[x, action], form.ends[x, action]) if isinstance(form, Ragged) else (x, action)
        successor = sample_index(form.probabilities[listed].cumsum(), self.np_random)
        self._x = int(form.successors[listed][successor])
        self._steps += 1
        return self._x, float(self._rewards[x, action]), False, self._steps >= self._max_steps, self._info()

    def _info(self) -> dict[str, Any]:
        return {} if self.mdp.available is None else {"action_mask": self.mdp.available[self._x].astype(np.int8)}


def sample_index(cumulative: np.ndarray, rng: np.random.Generator) -> int:
    """Sample an index, given cumulative probabilities. An index of probability zero is never sampled.

    Examples
    --------
    >>> sample_index(np.array([0.0, 1.0, 1.0]), np.random.default_rng(0))
    1
    """
    # 1 - random() is in (0, 1]: above zero, which skips leading zeros, and never above the last sum, despite rounding.
    return int(cumulative.searchsorted((1.0 - rng.random()) * cumulative[-1]))


@contextmanager
def open_env(env: gymnasium.Env[Any, Any] | str, **options: Any) -> Iterator[gymnasium.Env[Any, Any]]:
    """Yield the environment, or make one from its id, with or without `gym/`, and these options, and close it afterwards.

    Examples
    --------
    >>> with open_env("FrozenLake-v1", is_slippery=False) as env:
    ...     env.action_space
    Discrete(4)
    """
    if isinstance(env, gymnasium.Env):
        yield env
        return
    if not isinstance(env, str):
        raise ValueError(f"{env!r} is not an environment: pass a finite MDP, a Gymnasium environment, or an environment id")
    name = env.removeprefix("gym/")
    try:
        made = gymnasium.make(name, **options)
    except ModuleNotFoundError as error:
        remedy = "put the folder of its module on PYTHONPATH"
        raise ValueError(f"{env} cannot be made by Gymnasium: no module named {error.name!r}; {remedy}") from None
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        # Users of Python forget that MDPs such as cake are no environments.
        mdp = f"; if it is the name of an MDP, pass load_mdp({name!r})" if isinstance(error, gymnasium.error.UnregisteredEnv) else ""
        remedy = gym_remedy(name, error)
        raise ValueError(f"{env} cannot be made by Gymnasium: {remedy}{'' if remedy.endswith('?') else mdp}") from None
    with closing(made):
        yield made


def gym_names() -> list[str]:
    """Return the texts gym/ID of all environments that are registered with Gymnasium.

    Examples
    --------
    >>> "gym/FrozenLake-v1" in gym_names()
    True
    """
    return [f"gym/{name}" for name in gymnasium.registry]


def gym_remedy(name: str, error: Exception) -> str:
    """Return what to do about an id or option that Gymnasium refuses: the near one if it is unknown, Gymnasium's message otherwise.

    Examples
    --------
    >>> gym_remedy("FrozenLake-v7", gymnasium.error.UnregisteredEnv())
    'did you mean gym/FrozenLake-v1?'
    """
    message = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, gymnasium.error.UnregisteredEnv):
        # Versions are alike in all ids, so they are left out of the comparison.
        ids = {re.sub(r"-v\d+$", "", known): known for known in gym_names()}
        near = nearest(re.sub(r"-v\d+$", "", name), {known.removeprefix("gym/"): known for known in ids})
        return f"did you mean {ids[f'gym/{near}']}?" if near else f"{message}: give the id of a registered one"
    option = re.search(r"unexpected keyword argument '(\w+)'", message) if isinstance(error, TypeError) else None
    entry = gymnasium.spec(name).entry_point if option else None
    if option is None or entry is None:
        return message
    known = inspect.signature(load_env_creator(entry) if isinstance(entry, str) else entry).parameters
    return f"it has no option {option[1]!r}: {choose_from(option[1], known)}"


def env_name(env: gymnasium.Env[Any, Any]) -> str:
    """Return the id of an environment, or the name of its class if it has none.

    Examples
    --------
    >>> env_name(gymnasium.make("FrozenLake-v1"))
    'FrozenLake-v1'
    """
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def _start_distribution(mdp: FiniteMDP, start: int | np.ndarray | None) -> np.ndarray:
    if start is None:
        return np.full(mdp.states, 1 / mdp.states)
    if np.ndim(start) == 0:
        return np.eye(1, mdp.states, int(check_indices("start", start, 0, "states", mdp.states)))[0]
    return check_distributions("start", check_table("start", start, (mdp.states,)))


EnvLike: TypeAlias = FiniteMDP | gymnasium.Env[Any, Any] | str
"""A finite MDP, a Gymnasium environment, or an environment id."""


class Step(NamedTuple):
    """One transition of a rollout, with the next action."""

    x: Any
    """The observation: a state counted from 0 if observations are discrete, a flat array otherwise."""
    a: int
    """The action taken, counted from 0."""
    r: float
    """The reward."""
    terminated: bool
    """Whether `x_next` is terminal."""
    x_next: Any
    """The next observation; where the episode was truncated, its last one, not the first of the next episode."""
    a_next: int
    """The action chosen in `x_next`."""
    ended: bool
    """Whether the episode ended here, terminated or truncated."""


def rollout(env: gymnasium.Env[Any, Any], act: Callable[[Any], int], *, steps: int, seed: int) -> Iterator[Step]:
    """Step `env` with actions `act(x)`, and reset it whenever an episode ends.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> [step.x_next for step in rollout(FiniteEnv(chain(5, slip=0.0), start=0), lambda x: 1, steps=3, seed=0)]
    [1, 2, 3]
    """
    steps = check_whole("steps", steps, 1)
    read, first = _reader(env.observation_space), int(discrete_space(env, "action").start)
    x = read(env.reset(seed=seed)[0])
    a = act(x)
    for _ in range(steps):
        observation, r, terminated, truncated, _ = env.step(a + first)
        x_next = read(observation)
        a_next = act(x_next)
        ended = bool(terminated or truncated)
        yield Step(x, a, float(r), bool(terminated), x_next, a_next, ended)
        if ended:
            x_next = read(env.reset()[0])
            a_next = act(x_next)
        x, a = x_next, a_next


def as_env(env: EnvLike) -> AbstractContextManager[gymnasium.Env[Any, Any]]:
    """Yield a model, an environment or an id as an environment, which is closed afterwards if it was made here.

    Episodes of a model start in uniformly random states and are truncated after 1 / (1 - gamma) steps, so that every state is visited. For
    another start or limit, pass a `FiniteEnv`.

    Examples
    --------
    >>> with as_env("FrozenLake-v1") as env:
    ...     env.observation_space
    Discrete(16)
    """
    if isinstance(env, FiniteMDP):
        return open_env(FiniteEnv(env, max_steps=round(1 / (1 - env.gamma))))
    return open_env(env)


def discrete_space(env: gymnasium.Env[Any, Any], what: str) -> spaces.Discrete:
    """Return the `action` or `observation` space; raise a `ValueError` unless it is discrete."""
    space = env.action_space if what == "action" else env.observation_space
    if not isinstance(space, spaces.Discrete):
        remedy = "choose an environment with discrete actions" if what == "action" else "collect a batch and fit a regressor to it"
        raise ValueError(f"{env_name(env)} has {what}s in a {type(space).__name__}, which is not Discrete: {remedy}")
    return space


def _reader(space: spaces.Space[Any]) -> Callable[[Any], Any]:
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return lambda observation: int(observation) - first
    return lambda observation: np.asarray(spaces.flatten(space, observation), dtype=float)
