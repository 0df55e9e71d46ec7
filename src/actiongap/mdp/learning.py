"""Tabular learning from samples, one transition at a time, with any operator.

Q-learning, SARSA and policy evaluation are one rule, Q(x, a) <- Q(x, a) + eta (target - Q(x, a)), where the target is the operator
applied to the backup of the transition just seen (`actiongap.td`). They differ in what V means:

- Q-learning: V(x) = max_b Q(x, b) at both ends, the setting of the theorem;
- policy evaluation: V(x) = sum_b pi(b | x) Q(x, b) at both ends;
- SARSA: V(x') is Q(x', a') for the next action a', a sample of the value of the epsilon-greedy policy, and V(x) is that value itself.
  With V(x) = Q(x, a) all gaps would be zero, and all operators would equal the Bellman operator.

If V is the value of a policy, an action may be better than the policy. Its gap is clipped at zero, so that T'Q <= TQ still holds: in the
limit no value is above that of the Bellman operator, but it may be below. The action of a deterministic policy has no gap, so the value of
the policy is learned exactly and only worse actions are devalued. An epsilon-greedy policy sometimes takes worse actions, so its learned
value is lower than its true value; the difference grows with alpha and epsilon.

The discount is 0 where an episode terminates. Where it is truncated, the last state keeps its value.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from operator import mul
from typing import NamedTuple

import gymnasium
import numpy as np

from actiongap._progress import StepProgress
from actiongap._suggest import with_suggestions
from actiongap.mdp.checks import check_policy, check_probability, check_table, check_whole, make_rng, reject_first
from actiongap.mdp.gym import EnvLike, FiniteEnv, as_env, discrete_space, env_name, rollout, sample_index
from actiongap.operators import AnyOperator, Operator, check_discount, parse
from actiongap.td import transition_backup

StepSize = float | Callable[[int], float]
"""A constant, or a function of the number of visits to a pair."""


@dataclass(frozen=True, eq=False)
class LearningResult:
    """The result of tabular learning."""

    q: np.ndarray
    """The Q-function (S, A)."""
    v: np.ndarray
    """V(x) (S,): the maximum of Q for Q-learning, the value of the policy followed or evaluated otherwise."""
    policy: np.ndarray
    """The greedy action of each state (S,); ties go to the lowest index."""
    gaps: np.ndarray
    """V(x) - Q(x, a), or zero where the action is better than the policy (S, A)."""
    visits: np.ndarray
    """Number of updates of each pair, including earlier ones (S, A)."""
    episodes: int
    """Number of episodes that ended, terminated or truncated."""
    mean_return: float
    """Mean undiscounted return of these episodes; NaN if none ended."""


def rescaled(gamma: float) -> Callable[[int], float]:
    """The default step size, 1 / (1 + (1 - gamma) n) at a pair visited n times before.

    It decays like 1 / n, which averages out all noise, but only after a horizon of 1 / (1 - gamma) visits. With 1 / n itself, the initial Q
    is forgotten very slowly (Wainwright, "Stochastic approximation with cone-contractive operators", 2019).

    Examples
    --------
    >>> rescaled(0.5)(1), rescaled(0.5)(3)
    (1.0, 0.5)
    """
    return lambda visits: 1 / (1 + (1 - gamma) * (visits - 1))


@with_suggestions
def q_learning(
    env: EnvLike,
    operator: AnyOperator = "bellman",
    *,
    steps: int,
    seed: int,
    step_size: StepSize | None = None,
    exploration: float = 0.1,
    gamma: float | None = None,
    q0: np.ndarray | None = None,
    visits0: np.ndarray | None = None,
    progress: bool | None = None,
) -> LearningResult:
    """Move Q(x, a) to the operator's target with V(x) = max_b Q(x, b), following an epsilon-greedy policy.

    Parameters
    ----------
    env
        A finite MDP, a Gymnasium environment with discrete spaces, or an environment id. Episodes of a finite MDP start in uniformly random
        states and are truncated after 1 / (1 - gamma) steps; pass a `FiniteEnv` to change that.
    operator
        An `Operator`, a string such as `al:0.5`, or any function of a `Backup`.
    steps
        Number of transitions.
    seed
        Seed of all random numbers; a run with the same seed is identical bit for bit.
    step_size
        A constant in (0, 1], or a function of the number of visits to the pair, this one included; by default `rescaled(gamma)`.
    exploration
        The epsilon of the epsilon-greedy policy, which breaks ties at random; 1 is the uniformly random policy.
    gamma
        The discount; a finite MDP has its own.
    q0
        Initial Q (S, A); zeros by default.
    visits0
        Earlier updates of each pair (S, A); zeros by default. Pass `q` of an earlier result as `q0` and its `visits` here to continue
        learning, in a new episode.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.

    Examples
    --------
    >>> from actiongap.mdp.generators import cake
    >>> learned = q_learning(cake(), "al:0.5", steps=20_000, seed=0, exploration=1.0)
    >>> int(learned.policy[0]), bool(abs(learned.v[0]) < 0.1)
    (1, True)
    """
    method = _Method(_epsilon_greedy(exploration), lambda x, row: max(row), lambda x, row, a: max(row))
    return _learn("Q-learning", progress, env, operator, lambda *shape: method, steps, seed, step_size, gamma, q0, visits0)


@with_suggestions
def sarsa(
    env: EnvLike,
    operator: AnyOperator = "bellman",
    *,
    steps: int,
    seed: int,
    step_size: StepSize | None = None,
    exploration: float = 0.1,
    gamma: float | None = None,
    q0: np.ndarray | None = None,
    visits0: np.ndarray | None = None,
    progress: bool | None = None,
) -> LearningResult:
    """Move Q(x, a) to the operator's target with V(x') = Q(x', a') for the next action a', following an epsilon-greedy policy.

    V(x) is the value (1 - epsilon) max_b Q(x, b) + epsilon mean_b Q(x, b) of the epsilon-greedy policy, of which Q(x', a') is a sample at
    x'. Gaps are clipped at zero. The parameters are those of `q_learning`.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> sarsa(chain(4), "al:0.5", steps=20_000, seed=0).policy.tolist()
    [1, 1, 1, 1]
    """

    def value(x: int, row: list[float]) -> float:
        return (1 - exploration) * max(row) + exploration * sum(row) / len(row)

    method = _Method(_epsilon_greedy(exploration), value, lambda x, row, a: row[a])
    return _learn("SARSA", progress, env, operator, lambda *shape: method, steps, seed, step_size, gamma, q0, visits0)


@with_suggestions
def expected_policy_evaluation(
    env: EnvLike,
    policy: np.ndarray,
    operator: AnyOperator = "bellman",
    *,
    steps: int,
    seed: int,
    step_size: StepSize | None = None,
    exploration: float = 0.1,
    gamma: float | None = None,
    q0: np.ndarray | None = None,
    visits0: np.ndarray | None = None,
    progress: bool | None = None,
) -> LearningResult:
    """Move Q(x, a) to the operator's target with V(x) = sum_b pi(b | x) Q(x, b) for a fixed policy pi.

    Gaps are clipped at zero, so in the limit Q is nowhere above Q^pi, and V = V^pi if the policy is deterministic. `policy` holds
    probabilities (S, A), or actions (S,). Actions follow it, except for a fraction `exploration` of uniformly random ones; the limit
    does not depend on that fraction. The other parameters are those of `q_learning`.

    Examples
    --------
    >>> from actiongap.mdp.generators import cake
    >>> always_cake = expected_policy_evaluation(cake(gamma=0.9, epsilon=0.1), np.array([0, 0]), steps=20_000, seed=0)
    >>> bool(abs(always_cake.v[0] - -0.1 / (1 - 0.9 / 2)) < 0.05)
    True
    """
    explore = _make_explorer(exploration)

    def make_method(states: int, actions: int) -> _Method:
        pi = check_policy(policy, states, actions)
        pi = pi if pi.ndim == 2 else np.eye(actions)[pi]
        rows, cumulative = pi.tolist(), pi.cumsum(axis=1)

        def act(x: int, row: list[float], rng: np.random.Generator) -> int:
            random_action = explore(len(row), rng)
            return sample_index(cumulative[x], rng) if random_action is None else random_action

        def value(x: int, row: list[float]) -> float:
            return sum(map(mul, rows[x], row))

        return _Method(act, value, lambda x, row, a: value(x, row))

    return _learn("policy evaluation", progress, env, operator, make_method, steps, seed, step_size, gamma, q0, visits0)


class _Method(NamedTuple):
    """What distinguishes the three methods; `row` is Q(x, .)."""

    act: Callable[[int, list[float], np.random.Generator], int]
    """The action in x."""
    value: Callable[[int, list[float]], float]
    """V(x)."""
    next_value: Callable[[int, list[float], int], float]
    """V(x'), given the action in x'."""


def _learn(
    name: str,
    progress: bool | None,
    env: EnvLike,
    operator: AnyOperator,
    make_method: Callable[[int, int], _Method],
    steps: int,
    seed: int,
    step_size: StepSize | None,
    gamma: float | None,
    q0: np.ndarray | None,
    visits0: np.ndarray | None,
) -> LearningResult:
    """The learning loop of all three methods; `make_method` takes the numbers of states and actions."""
    with as_env(env) as env, StepProgress(name, progress) as bar:
        method, gamma = make_method(*_shape(env)), _discount(env, gamma)
        return _learn_in(env, parse(operator), method, steps, seed, step_size, gamma, q0, visits0, bar)


def _learn_in(
    env: gymnasium.Env,
    operator: Operator,
    method: _Method,
    steps: int,
    seed: int,
    step_size: StepSize | None,
    gamma: float,
    q0: np.ndarray | None,
    visits0: np.ndarray | None,
    bar: StepProgress,
) -> LearningResult:
    shape, steps = _shape(env), check_whole("steps", steps, 1)
    eta = _schedule(step_size, gamma)
    # Lists of floats: reading and writing single numbers is many times faster than in an array.
    q: list[list[float]] = (np.zeros(shape) if q0 is None else check_table("q0", q0, shape)).tolist()
    visits: list[list[int]] = (np.zeros(shape, dtype=int) if visits0 is None else _check_visits(visits0, shape)).tolist()
    returns, current_return = [], 0.0
    rng = make_rng(seed)
    sampled = rollout(env, lambda x: method.act(x, q[x], rng), steps=steps, seed=int(rng.integers(2**31)))
    for step in bar.over(sampled, steps):
        x, a, x_next = step.x, step.a, step.x_next
        row, next_row = q[x], q[x_next]
        b = transition_backup(
            q=row[a],
            v=method.value(x, row),
            reward=step.r,
            discount=0.0 if step.terminated else gamma,
            next_v=method.next_value(x_next, next_row, step.a_next),
            next_q=next_row[a],
            stay=float(x_next == x),
        )
        visits[x][a] += 1
        # Only random operators consume a random number; the random numbers of other runs do not change.
        sampled = operator if operator.draw is None else operator.at(rng.random())
        row[a] += eta(visits[x][a]) * (float(sampled(b)) - row[a])
        if not math.isfinite(row[a]):
            raise ValueError(f"Q({x}, {a}) is not finite: {operator} diverges; choose a smaller step_size or another operator")
        current_return += step.r
        if step.ended:
            returns.append(current_return)
            current_return = 0.0

    table = np.array(q)
    v = np.array([method.value(x, row) for x, row in enumerate(q)])
    return LearningResult(
        q=table,
        v=v,
        policy=table.argmax(axis=1),
        gaps=np.maximum(v[:, None] - table, 0.0),
        visits=np.array(visits),
        episodes=len(returns),
        mean_return=float(np.mean(returns)) if returns else math.nan,
    )


def _make_explorer(exploration: float) -> Callable[[int, np.random.Generator], int | None]:
    """Make a function that returns a random action with probability `exploration`, and None otherwise."""
    exploration = check_probability("exploration", exploration)
    return lambda actions, rng: int(rng.random() * actions) if rng.random() < exploration else None


def _epsilon_greedy(exploration: float) -> Callable[[int, list[float], np.random.Generator], int]:
    explore = _make_explorer(exploration)

    def act(x: int, row: list[float], rng: np.random.Generator) -> int:
        random_action = explore(len(row), rng)
        if random_action is not None:
            return random_action
        best = max(row)
        ties = [a for a, value in enumerate(row) if value == best]
        return ties[int(rng.random() * len(ties))]

    return act


def _schedule(step_size: StepSize | None, gamma: float) -> Callable[[int], float]:
    if step_size is None:
        return rescaled(gamma)
    if callable(step_size):
        return step_size
    if not (isinstance(step_size, numbers.Real) and 0 < step_size <= 1):
        raise ValueError(f"step_size is {step_size!r}: it must be a number in (0, 1], or a function of the number of visits")
    return lambda visits: step_size


def _check_visits(visits0, shape: tuple[int, int]) -> np.ndarray:
    visits = check_table("visits0", visits0, shape)
    reject_first("visits0", visits, (visits < 0) | (visits != np.floor(visits)), "visits must be whole numbers of at least 0")
    return visits.astype(int)


def _discount(env: gymnasium.Env, gamma: float | None) -> float:
    model = env.unwrapped.mdp if isinstance(env.unwrapped, FiniteEnv) else None
    if model is None and gamma is None:
        raise ValueError(f"{env_name(env)} has no discount: pass gamma, for example gamma=0.99")
    if model is not None and gamma not in (None, model.gamma):
        raise ValueError(f"gamma is {gamma!r}, but {model.name} has the discount {model.gamma!r}: change it with with_discount({gamma!r})")
    return check_discount(gamma if model is None else model.gamma)


def _shape(env: gymnasium.Env) -> tuple[int, int]:
    return int(discrete_space(env, "observation").n), int(discrete_space(env, "action").n)
