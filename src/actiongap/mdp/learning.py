"""Tabular learning from samples, one transition at a time, with any operator.

Q-learning, SARSA and policy evaluation are one rule, Q(x, a) <- Q(x, a) + eta (target - Q(x, a)), where the target is the operator
applied to the backup of the transition just seen (`actiongap.td`). They differ in what V means:

- Q-learning: V(x) = max_b Q(x, b) at both ends, the setting of the theorem;
- policy evaluation: V(x) = sum_b pi(b | x) Q(x, b) at both ends;
- SARSA: V(x) is the value (1 - epsilon) max_b Q(x, b) + epsilon mean_b Q(x, b) of the epsilon-greedy policy, and V(x') is Q(x', a') for the
  next action a', a sample of that value. Expected SARSA uses the value itself at both ends. With V(x) = Q(x, a) all gaps would be zero,
  and all operators would equal the Bellman operator.

**Fixed policies.** An action may be better than the policy, and its gap V(x) - Q(x, a) is then negative. Gaps are not clipped: their mean
under pi is zero, so an operator that subtracts a multiple of the gap keeps V^pi. With `al` the limit is V^pi + A^pi / (1 - alpha). SARSA
with `al` tends to the values and greedy actions of SARSA with `bellman` (docs/theory.md, "Fixed policies").

Operators of another form, such as `consistent`, `pal` and `lazy`, would change V^pi (`keeps_policy_values`). For them V comes from a second
table, which Bellman's operator learns from the same transitions. The limit of `consistent` in policy evaluation is then
V^pi + A^pi / (1 - gamma P(x | x, a)). All others see gaps clipped at zero: advantages of actions better than the policy stay as they are
and those of worse actions grow in size, so no advantage changes its sign and no greedy action of SARSA changes.

**Stability.** When one action is updated at a time, the gaps cancel only if step size times visit frequency is the same for all actions of
a state. The default step size 1 / (1 + (1 - gamma) n) does that in the limit. With a constant step size and actions that are chosen
unequally often, `al` can diverge at alpha close to 1.

The discount is 0 where an episode terminates. Where it is truncated, the last state keeps its value.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import gymnasium
import numpy as np

from actiongap._progress import StepProgress
from actiongap._suggest import choose_from, with_suggestions
from actiongap.mdp.checks import check_policy, check_probability, check_table, check_whole, make_rng, read_only, reject_first
from actiongap.mdp.gym import EnvLike, FiniteEnv, as_env, discrete_space, env_name, rollout, sample_index
from actiongap.mdp.model import FiniteMDP
from actiongap.operators import AnyOperator, Operator, TheoryWarning, check_discount, keeps_policy_values, parse
from actiongap.td import transition_backup

StepSize = float | Callable[[int], float]
"""A constant, or a function of the number of visits to a pair."""
_Act = Callable[[int, list[float], np.random.Generator], int]
BEHAVIORS = ("own", "bellman", "uniform")
"""Who chooses the actions of Q-learning, by name."""


@dataclass(frozen=True, eq=False)
class LearningResult:
    """The result of tabular learning."""

    q: np.ndarray
    """The Q-function (S, A); -inf where the state does not have the action."""
    v: np.ndarray
    """V(x) (S,): the maximum of Q for Q-learning, the value of the policy followed or evaluated otherwise."""
    policy: np.ndarray
    """The greedy action of each state (S,); ties go to the lowest index."""
    gaps: np.ndarray
    """V(x) - Q(x, a), negative where the action is better than a policy that is followed or evaluated (S, A); NaN where the state does not
    have the action."""
    visits: np.ndarray
    """Number of updates of each pair, including earlier ones (S, A)."""
    episodes: int
    """Number of episodes that ended, terminated or truncated."""
    mean_return: float
    """Mean undiscounted return of these episodes; NaN if none ended."""
    switches: int
    """Number of steps that changed the greedy action of Q in the state updated."""
    q_bellman: np.ndarray | None = None
    """The second table, learned by Bellman's operator from the same transitions (S, A); None if there is none."""


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


Behavior = Literal["own", "bellman", "uniform"] | Callable[[int, np.ndarray, np.random.Generator], int | np.integer]
"""Who chooses the actions of Q-learning: a name, or a function of the state x, of Q(x, .) and of a random generator."""


@with_suggestions
def q_learning(
    env: EnvLike,
    operator: AnyOperator = "bellman",
    *,
    steps: int,
    seed: int,
    step_size: StepSize | None = None,
    exploration: float = 0.1,
    behavior: Behavior = "own",
    gamma: float | None = None,
    q0: np.ndarray | None = None,
    visits0: np.ndarray | None = None,
    q0_bellman: np.ndarray | None = None,
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
    behavior
        Who chooses the actions. `own`: the epsilon-greedy policy of Q. `bellman`: that of a second table, which Bellman's operator learns
        from the same transitions; with one seed, every operator then learns from the same data. `uniform`: all actions equally often. Or a
        function of the state, of Q(x, .) (read-only) and of a NumPy generator, which returns an action. An operator changes what is learned
        from data and, with `own`, the data too; the others tell the two effects apart.
    gamma
        The discount; a finite MDP has its own.
    q0
        Initial Q (S, A); zeros by default.
    visits0
        Earlier updates of each pair (S, A); zeros by default. Pass `q` of an earlier result as `q0` and its `visits` here to continue
        learning, in a new episode.
    q0_bellman
        Initial table of Bellman's operator, if there is one (S, A); `q0` by default. To continue, pass `q_bellman` of the earlier result.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.

    Examples
    --------
    >>> from actiongap.mdp.generators import cake
    >>> learned = q_learning(cake(), "al:0.5", steps=20_000, seed=0, exploration=1.0)
    >>> int(learned.policy[0]), bool(abs(learned.v[0]) < 0.1)
    (1, True)

    Both operators learn from the data that Bellman's epsilon-greedy policy chooses:

    >>> same_data = [q_learning(cake(), text, steps=500, seed=0, behavior="bellman").visits for text in ("bellman", "al:0.9")]
    >>> bool((same_data[0] == same_data[1]).all())
    True
    """
    act, second = _behavior(behavior, _epsilon_greedy(exploration)), isinstance(behavior, str) and behavior == "bellman"
    method = _Method(act, lambda x, row: max(row), lambda x, row, a: max(row), second_table=second, acts_on_second=second)
    start = _Start(q0, visits0, q0_bellman)
    return _learn("Q-learning", progress, env, parse(operator), lambda *shape: method, steps, seed, step_size, gamma, start)


@with_suggestions
def sarsa(
    env: EnvLike,
    operator: AnyOperator = "bellman",
    *,
    steps: int,
    seed: int,
    step_size: StepSize | None = None,
    exploration: float = 0.1,
    expected: bool = False,
    separate_values: bool | None = None,
    gamma: float | None = None,
    q0: np.ndarray | None = None,
    visits0: np.ndarray | None = None,
    q0_bellman: np.ndarray | None = None,
    progress: bool | None = None,
) -> LearningResult:
    """Move Q(x, a) to the operator's target with V(x') = Q(x', a') for the next action a', following an epsilon-greedy policy.

    V(x) is the value (1 - epsilon) max_b Q(x, b) + epsilon mean_b Q(x, b) of the epsilon-greedy policy, of which Q(x', a') is a sample at
    x'. Gaps are not clipped, so `al` keeps the value of the policy and divides advantages by 1 - alpha.

    Parameters
    ----------
    expected
        Whether V(x') is that value itself and not the sample Q(x', a'): expected SARSA.
    separate_values
        Whether V comes from a second table, which Bellman's operator learns from the same transitions and which chooses the actions. Gaps
        are then clipped at zero, and every operator of the theorem keeps the sign of every advantage. By default, only for operators that
        would change V otherwise; see `keeps_policy_values`.

    The other parameters are those of `q_learning`.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> sarsa(chain(4), "al:0.5", steps=20_000, seed=0).policy.tolist()
    [1, 1, 1, 1]
    """
    operator = parse(operator)
    separate = _separate_values(operator, separate_values)

    def value(x: int, row: list[float]) -> float:
        row = _present(row)
        return (1 - exploration) * max(row) + exploration * sum(row) / len(row)

    next_value = (lambda x, row, a: value(x, row)) if expected else (lambda x, row, a: row[a])
    method = _Method(_epsilon_greedy(exploration), value, next_value, not separate, separate, separate, separate)
    start = _Start(q0, visits0, q0_bellman)
    return _learn("SARSA", progress, env, operator, lambda *shape: method, steps, seed, step_size, gamma, start)


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
    separate_values: bool | None = None,
    gamma: float | None = None,
    q0: np.ndarray | None = None,
    visits0: np.ndarray | None = None,
    q0_bellman: np.ndarray | None = None,
    progress: bool | None = None,
) -> LearningResult:
    """Move Q(x, a) to the operator's target with V(x) = sum_b pi(b | x) Q(x, b) for a fixed policy pi.

    Gaps are not clipped: `al` keeps V^pi, and its limit is V^pi + A^pi / (1 - alpha) with the advantages A^pi of Q^pi. Actions follow the
    policy, except for a fraction `exploration` of uniformly random ones; the limit does not depend on that fraction.

    Parameters
    ----------
    policy
        Probabilities (S, A), or actions (S,).
    separate_values
        Whether V comes from a second table, which Bellman's operator learns from the same transitions and which tends to Q^pi. The limit
        of `consistent` is then V^pi + A^pi / (1 - gamma P(x | x, a)). For other operators gaps are clipped at zero, and every operator of
        the theorem keeps the sign of every advantage. By default, only for operators that would change V^pi; see `keeps_policy_values`.

    The other parameters are those of `q_learning`.

    Examples
    --------
    >>> from actiongap.mdp.generators import cake
    >>> always_cake = expected_policy_evaluation(cake(gamma=0.9, epsilon=0.1), np.array([0, 0]), steps=20_000, seed=0)
    >>> bool(abs(always_cake.v[0] - -0.1 / (1 - 0.9 / 2)) < 0.05)
    True
    """
    explore = _make_explorer(exploration)
    operator = parse(operator)
    separate = _separate_values(operator, separate_values)
    # With V^pi in a table of its own, an action better than the policy may be repeated as well.
    repeats = separate and operator.name == "consistent" and operator.reads_again
    if repeats:
        operator = Operator(operator.name, lambda b: b.again)

    def make_method(states: int, actions: int) -> _Method:
        model = env if isinstance(env, FiniteMDP) else getattr(getattr(env, "unwrapped", None), "mdp", None)
        pi = check_policy(policy, states, actions, model.available if isinstance(model, FiniteMDP) else None)
        pi = pi if pi.ndim == 2 else np.eye(actions)[pi]
        rows, cumulative = pi.tolist(), pi.cumsum(axis=1)

        def act(x: int, row: list[float], rng: np.random.Generator) -> int:
            random_action = explore(row, rng)
            return sample_index(cumulative[x], rng) if random_action is None else random_action

        def value(x: int, row: list[float]) -> float:
            return sum(p * q for p, q in zip(rows[x], row, strict=True) if p)

        return _Method(act, value, lambda x, row, a: value(x, row), not separate or repeats, separate, separate)

    start = _Start(q0, visits0, q0_bellman)
    return _learn("policy evaluation", progress, env, operator, make_method, steps, seed, step_size, gamma, start)


class _Method(NamedTuple):
    """What distinguishes the three methods; `row` is Q(x, .)."""

    act: Callable[[int, list[float], np.random.Generator], int]
    """The action in x."""
    value: Callable[[int, list[float]], float]
    """V(x)."""
    next_value: Callable[[int, list[float], int], float]
    """V(x'), given the action in x'."""
    fixed_policy: bool = False
    """Whether gaps may be negative."""
    second_table: bool = False
    """Whether Bellman's operator learns a second table."""
    values_of_second: bool = False
    """Whether V is that of the second table."""
    acts_on_second: bool = False
    """Whether actions depend on the second table."""


class _Start(NamedTuple):
    """The tables that learning starts from; None is the default."""

    q: np.ndarray | None
    visits: np.ndarray | None
    q_bellman: np.ndarray | None


def _separate_values(operator: Operator, wanted: bool | None) -> bool:
    """Return whether V needs a table of its own, and warn if the operator changes V^pi without it."""
    keeps = keeps_policy_values(operator)
    if wanted is None:
        return not keeps
    if not (wanted or keeps):
        problem = f"{operator} changes the value of a fixed policy: leave out separate_values to learn it in a table of its own"
        warnings.warn(problem, TheoryWarning, stacklevel=3)
    return bool(wanted)


def _behavior(behavior: Behavior, greedy: _Act) -> _Act:
    if isinstance(behavior, str) and behavior in ("own", "bellman"):
        return greedy
    if isinstance(behavior, str) and behavior == "uniform":
        return lambda x, row, rng: int(rng.random() * len(row))
    if not callable(behavior):
        remedy = choose_from(behavior, BEHAVIORS) if isinstance(behavior, str) else f"choose from {', '.join(BEHAVIORS)}"
        raise ValueError(f"unknown behavior {behavior!r}: {remedy}, or give a function of the state, of Q(x, .) and of a random generator")

    def act(x: int, row: list[float], rng: np.random.Generator) -> int:
        action = behavior(x, read_only(np.array(row)), rng)
        if not (isinstance(action, (int, np.integer)) and 0 <= action < len(row)):
            raise ValueError(
                f"behavior returned {action!r} in state {x}: it must return an action, a whole number from 0 to {len(row) - 1}"
            )
        return int(action)

    return act


def _learn(
    name: str,
    progress: bool | None,
    env: EnvLike,
    operator: Operator,
    make_method: Callable[[int, int], _Method],
    steps: int,
    seed: int,
    step_size: StepSize | None,
    gamma: float | None,
    start: _Start,
) -> LearningResult:
    """The learning loop of all three methods; `make_method` takes the numbers of states and actions."""
    with as_env(env) as env, StepProgress(name, progress) as bar:
        method, gamma = make_method(*_shape(env)), _discount(env, gamma)
        return _learn_in(env, operator, method, steps, seed, step_size, gamma, start, bar)


def _learn_in(
    env: gymnasium.Env,
    operator: Operator,
    method: _Method,
    steps: int,
    seed: int,
    step_size: StepSize | None,
    gamma: float,
    start: _Start,
    bar: StepProgress,
) -> LearningResult:
    shape, steps = _shape(env), check_whole("steps", steps, 1)
    eta = _schedule(step_size, gamma)
    # Lists of floats: reading and writing single numbers is many times faster than in an array.
    available = env.unwrapped.mdp.available if isinstance(env.unwrapped, FiniteEnv) else None
    q: list[list[float]] = _start_table("q0", start.q, shape, available).tolist()
    second: list[list[float]] = np.array(
        q if start.q_bellman is None else _start_table("q0_bellman", start.q_bellman, shape, available)
    ).tolist()
    visits: list[list[int]] = (np.zeros(shape, dtype=int) if start.visits is None else _check_visits(start.visits, shape)).tolist()
    valued = second if method.values_of_second else q
    acting = second if method.acts_on_second else q
    returns, current_return, switches = [], 0.0, 0
    rng = make_rng(seed)
    # Operators that draw use another generator, so that the data do not depend on the operator.
    draws = None if operator.draw is None else make_rng([seed, 1]) if method.second_table else rng
    sampled = rollout(env, lambda x: method.act(x, acting[x], rng), steps=steps, seed=int(rng.integers(2**31)))
    for step in bar.over(sampled, steps):
        x, a, x_next = step.x, step.a, step.x_next
        row, discount = q[x], 0.0 if step.terminated else gamma
        next_v = method.next_value(x_next, valued[x_next], step.a_next)
        b = transition_backup(
            q=row[a],
            v=method.value(x, valued[x]),
            reward=step.r,
            discount=discount,
            next_v=next_v,
            # An action that the next state does not have cannot be repeated there.
            next_q=q[x_next][a] if q[x_next][a] != -math.inf else next_v,
            stay=float(x_next == x),
            fixed_policy=method.fixed_policy,
        )
        visits[x][a] += 1
        size = eta(visits[x][a])
        # Only random operators consume a random number; the random numbers of other runs do not change.
        sampled = operator if draws is None else operator.at(draws.random())
        greedy = row.index(max(row))
        row[a] += size * (float(sampled(b)) - row[a])
        if not math.isfinite(row[a]):
            raise ValueError(f"Q({x}, {a}) is not finite: {operator} diverges; choose a smaller step_size or another operator")
        switches += row.index(max(row)) != greedy
        if method.second_table:
            if not method.values_of_second:
                next_v = method.next_value(x_next, second[x_next], step.a_next)
            second[x][a] += size * (step.r + discount * next_v - second[x][a])
        current_return += step.r
        if step.ended:
            returns.append(current_return)
            current_return = 0.0

    table = np.array(q)
    v = np.array([method.value(x, row) for x, row in enumerate(valued)])
    return LearningResult(
        q=table,
        v=v,
        policy=table.argmax(axis=1),
        gaps=np.where(np.isneginf(table), np.nan, v[:, None] - table),
        visits=np.array(visits),
        episodes=len(returns),
        mean_return=float(np.mean(returns)) if returns else math.nan,
        switches=switches,
        q_bellman=np.array(second) if method.second_table else None,
    )


def _start_table(name: str, values: np.ndarray | None, shape: tuple[int, int], available: np.ndarray | None) -> np.ndarray:
    """Return an initial table, zero by default, with -inf where the state does not have the action."""
    if available is not None and values is not None and np.shape(values) == shape:
        values = np.where(available, values, 0.0)
    table = np.zeros(shape) if values is None else check_table(name, values, shape)
    return table if available is None else np.where(available, table, -np.inf)


def _present(row: list[float]) -> list[float]:
    """Return Q of the actions that the state has; Q of others is -inf."""
    return [q for q in row if q != -math.inf] if -math.inf in row else row


def _make_explorer(exploration: float) -> Callable[[list[float], np.random.Generator], int | None]:
    """Make a function that returns a random action of a state with probability `exploration`, and None otherwise."""
    exploration = check_probability("exploration", exploration)

    def explore(row: list[float], rng: np.random.Generator) -> int | None:
        if rng.random() >= exploration:
            return None
        if -math.inf not in row:
            return int(rng.random() * len(row))
        actions = [a for a, q in enumerate(row) if q != -math.inf]
        return actions[int(rng.random() * len(actions))]

    return explore


def _epsilon_greedy(exploration: float) -> _Act:
    explore = _make_explorer(exploration)

    def act(x: int, row: list[float], rng: np.random.Generator) -> int:
        random_action = explore(row, rng)
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
