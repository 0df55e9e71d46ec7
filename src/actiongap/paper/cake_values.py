"""The cake's action gap under each operator, in closed form and by iteration, and how often noise hides it.

**Limits.** With V*(x1) = 0 the Bellman backup of cake is -epsilon. Every operator of the family subtracts a multiple w of the gap
g = V(x1) - Q(x1, cake). Its limit solves g = epsilon + w g, so Q(x1, cake) = -epsilon / (1 - w). In x2 both actions are equal and the gap
is zero. Hence

- Bellman subtracts nothing: w = 0;
- consistent subtracts gamma P(x1 | x1, cake) g: w = gamma / 2. This is also Q_stat, the value of always eating in x1;
- advantage learning subtracts alpha g: w = alpha;
- T_PAL subtracts the smaller of alpha g and gamma E gap(x') = gamma g / 2: w = min(alpha, gamma / 2);
- its DQN form subtracts alpha times the smaller of g and E gap(x') = g / 2: w = alpha / 2;
- Baird's V + (T Q - V) / K is -epsilon / K at V = 0: w = 1 - K;
- the lazy operator keeps any Q with Q <= -epsilon <= (1 - alpha) Q, so every w from 0 to alpha is a fixed point. The start decides which
  one is reached. From zeros every update of Q is a full Bellman backup, and the limit is Bellman's.

**Noise.** Three experiments count how often cake looks better than abstaining, with 95% intervals. `gaussian_noise` adds errors to a
converged Q; a wider gap is hidden less often. `estimated_models` estimates a model from samples and solves it exactly; all
optimality-preserving operators make the same mistakes. `learn` updates Q from samples with a constant step size; the noise may widen with
the gap, and the bias of V may matter more than either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from actiongap.lab.statistics import normal_interval, wilson
from actiongap.mdp.exact import policy_iteration, q_stationary
from actiongap.mdp.generators import cake
from actiongap.mdp.model import FiniteMDP
from actiongap.mdp.solve import solve
from actiongap.operators import parse
from actiongap.td import td_target

Q_STAT = "q-stat"
"""The paper's Q_stat. It comes from a linear solve, not from an operator of the family."""
OPERATORS = (
    "bellman",
    "consistent",
    "al:0.5",
    "al:0.9",
    "pal:0.5",
    "pal:0.9",
    "pal-dqn:0.5",
    "pal-dqn:0.9",
    "lazy:0.5",
    "baird:0.5",
    "baird:0.1",
)
"""The operators compared. Baird's two share the fixed points of `al:0.5` and `al:0.9` but need not converge to them."""
X1, CAKE, ABSTAIN = 0, 0, 1
GAMMA, EPSILON = 0.9, 0.1
"""Parameters of the noise experiments. The grid of every scale contains them."""


class Interval(NamedTuple):
    """A closed interval."""

    low: float
    high: float


class FixedPoint(NamedTuple):
    """Q(x1, cake) under one operator, in closed form and computed. Computed fields are None if the iteration did not converge."""

    gamma: float
    epsilon: float
    operator: str
    closed_form: float | Interval
    computed: float | None
    difference: float | None
    """|computed - closed form|, or the distance from the interval."""
    gap: float | None
    """V(x1) - Q(x1, cake)."""
    sweeps: int
    status: str


FORMULAS = {
    "bellman": "-eps",
    "consistent": "-eps/(1-gamma/2)",
    "al": "-eps/(1-alpha)",
    "pal": "-eps/(1-min(alpha,gamma/2))",
    "pal-dqn": "-eps/(1-alpha/2)",
    "lazy": "-eps/(1-alpha) to -eps",
    "baird": "-eps/K",
    Q_STAT: "-eps/(1-gamma/2)",
}
"""The closed forms as text. The paper prints those of Bellman, consistent and Q_stat; the others are derived the same way."""


def closed_form(operator: str, gamma: float, epsilon: float) -> float | Interval:
    """Return the limit Q(x1, cake) = -epsilon / (1 - w), with w from the module's docstring; an interval for the lazy operator.

    At alpha = 1 advantage learning has no finite limit, and the result is minus infinity.

    Examples
    --------
    >>> closed_form("al:0.5", gamma=0.9, epsilon=0.1)
    -0.2
    >>> closed_form("lazy:0.5", gamma=0.9, epsilon=0.1)
    Interval(low=-0.2, high=-0.1)
    """
    name, _, numbers = (operator if operator == Q_STAT else parse(operator).name).partition(":")
    if name not in FORMULAS:
        raise ValueError(f"no closed form is known for {operator}: choose from {', '.join(FORMULAS)}")
    parameter = math.prod(float(part) for part in numbers.split(",")) if numbers else 0.0
    if parameter > 1 and name != "baird":
        raise ValueError(f"{operator} has no limit: alpha must be at most 1")
    weight = {
        "bellman": 0.0,
        "consistent": gamma / 2,
        "al": parameter,
        "pal": min(parameter, gamma / 2),
        "pal-dqn": parameter / 2,
        "lazy": parameter,
        "baird": 1 - parameter,
        Q_STAT: gamma / 2,
    }[name]
    value = -epsilon / (1 - weight) if weight < 1 else -math.inf
    return Interval(value, -epsilon) if name == "lazy" else value


def ends(value: float | Interval) -> Interval:
    """Return both ends of an interval; a number counts as an interval of width zero.

    Examples
    --------
    >>> ends(-0.1)
    Interval(low=-0.1, high=-0.1)
    """
    return value if isinstance(value, Interval) else Interval(value, value)


def fixed_point(operator: str, gamma: float, epsilon: float, q0: np.ndarray | None = None) -> FixedPoint:
    """Iterate the operator on the cake, from zeros or from `q0`, and compare the limit with the closed form.

    Examples
    --------
    >>> fixed_point("consistent", gamma=0.9, epsilon=0.1).difference < 1e-9
    True
    >>> fixed_point("baird:0.1", gamma=0.5, epsilon=0.1).computed is None
    True
    """
    mdp, expected = cake(gamma, epsilon), closed_form(operator, gamma, epsilon)
    if operator == Q_STAT:
        q, sweeps, settled, status = q_stationary(mdp, policy_iteration(mdp)[2]), 0, True, "A linear solve, exact up to rounding."
    else:
        solution = solve(mdp, operator, method="iterate", q0=q0, throw=False)
        q, sweeps, status = solution.q, solution.sweeps, solution.status
        settled = solution.converged and solution.gaps_settled
    if not settled:
        return FixedPoint(gamma, epsilon, operator, expected, None, None, None, sweeps, status)
    value = float(q[X1, CAKE])
    low, high = ends(expected)
    difference = max(low - value, value - high, 0.0)
    return FixedPoint(gamma, epsilon, operator, expected, value, difference, float(q[X1].max()) - value, sweeps, status)


SIGMAS = tuple(float(sigma) for sigma in np.geomspace(0.03, 3.0, 25))
"""Standard deviations of the error added to each Q-value."""
REWARD_NOISE = 0.5
"""Standard deviation of the noise on each observed reward."""
STEP = 0.1
"""The constant step size of learning from samples."""
Value = Literal["max", "abstain"]
"""The learner's V(x1): max_a Q(x1, a), or Q(x1, abstain), the value of the optimal policy."""


class GaussianNoise(NamedTuple):
    """How often cake looks better when N(0, sigma) is added to both Q-values of x1."""

    operator: str
    sigma: float
    exact: float
    wrong: float
    low: float
    high: float
    draws: int


class ModelNoise(NamedTuple):
    """Fraction of models, estimated from samples and solved with one operator, in which cake looks better than abstaining."""

    operator: str
    samples: int
    wrong: float | None
    low: float | None
    high: float | None
    models: int
    status: str


class LearningNoise(NamedTuple):
    """Fraction of steps at which cake looks better to a learner with a constant step size: mean over runs, 95% interval."""

    operator: str
    value: Value
    """The estimate of V(x1)."""
    step: float
    wrong: float | None
    low: float | None
    high: float | None
    mean_gap: float | None
    """The mean of Q(x1, abstain) - Q(x1, cake) over steps and runs."""
    sd_gap: float | None
    """Its standard deviation over steps and runs."""
    runs: int
    steps: int


@dataclass(frozen=True)
class CakeResult:
    """Everything that the cake's page shows."""

    scale: str
    fixed_points: tuple[FixedPoint, ...]
    gaussian_noise: tuple[GaussianNoise, ...]
    estimated_models: tuple[ModelNoise, ...]
    learning: tuple[LearningNoise, ...]
    files: tuple[Path, ...] = ()


def wrong_probability(gap: float, sigma: float) -> float:
    """Return Phi(-gap / (sigma sqrt 2)) = P(N(0, sigma) - N(0, sigma) > gap): the probability that noise on two values hides their gap.

    Examples
    --------
    >>> wrong_probability(0.0, sigma=1.0)
    0.5
    """
    return 0.5 * math.erfc(gap / (2 * sigma))


def gaussian_noise(operator: str, gap: float, sigmas: Sequence[float], draws: int, seed: int) -> list[GaussianNoise]:
    """Return how often cake looks better when N(0, sigma) is added to two values that are `gap` apart: exact, and counted.

    Operators with the same seed are compared on the same draws.

    Examples
    --------
    >>> [row] = gaussian_noise("bellman", gap=0.1, sigmas=[0.1], draws=1000, seed=1)
    >>> row.low < row.exact < row.high
    True
    """
    rng = np.random.default_rng(seed)
    rows = []
    for sigma in sigmas:
        error = sigma * rng.standard_normal((draws, 2))
        count = int(np.count_nonzero(error[:, CAKE] - error[:, ABSTAIN] > gap))
        wrong = wilson(count, draws)
        rows.append(GaussianNoise(operator, sigma, wrong_probability(gap, sigma), wrong.value, wrong.low, wrong.high, draws))
    return rows


def estimate(gamma: float, epsilon: float, samples: int, models: int, seed: int) -> FiniteMDP:
    """Return one MDP that holds many estimates of the cake, each from `samples` transitions of both actions of x1 with noisy rewards.

    State i is x1 of the i-th estimate. The last state is x2, which is known and shared by all.

    Examples
    --------
    >>> estimate(0.9, 0.1, samples=10, models=50, seed=0).states
    51
    """
    truth = cake(gamma, epsilon)
    stay = truth.transitions.probabilities[X1, :, X1]
    rng = np.random.default_rng(seed)
    rewards = np.empty((models + 1, 2))
    rewards[:-1] = truth.rewards[X1] + rng.normal(0.0, REWARD_NOISE / math.sqrt(samples), (models, 2))
    rewards[-1] = truth.rewards[1]
    stayed = np.ones((models + 1, 2))
    stayed[:-1] = rng.binomial(samples, stay, (models, 2)) / samples
    here = np.broadcast_to(np.arange(models + 1)[:, None], (models + 1, 2))
    successors = np.stack([here, np.full_like(here, models)], axis=-1)
    return FiniteMDP.from_successors(rewards, successors, np.stack([stayed, 1 - stayed], axis=-1), gamma, f"{models} estimates of cake")


def estimated_models(operators: Sequence[str], samples: int, models: int, seed: int) -> Iterator[ModelNoise]:
    """Yield how often cake is optimal in a model estimated from samples. Each operator solves the same models exactly.

    Optimality-preserving operators find the same optimal actions in the same model, so they fail on the same estimates. A wider gap helps
    against a wrong Q, not against a wrong model.

    Examples
    --------
    >>> one, other = estimated_models(["bellman", "al:0.9"], samples=30, models=100, seed=0)
    >>> one.wrong == other.wrong
    True
    """
    mdp = estimate(GAMMA, EPSILON, samples, models, seed)
    for operator in operators:
        # Three times the sweeps that any operator of the theorem needs. Baird's may oscillate forever.
        solution = solve(mdp, operator, engine="arrays", max_sweeps=1000, throw=False)
        if not solution.converged:
            yield ModelNoise(operator, samples, None, None, None, models, solution.status)
            continue
        wrong = wilson(int(np.count_nonzero(solution.policy[:-1] == CAKE)), models)
        yield ModelNoise(operator, samples, wrong.value, wrong.low, wrong.high, models, solution.status)


def learn(operator: str, step: float, runs: int, burn_in: int, steps: int, seed: int, value: Value = "max") -> LearningNoise:
    """Learn Q(x1, a) <- Q(x1, a) + step (target - Q(x1, a)) for both actions, with sampled next states and noisy rewards.

    Runs are independent and stored in one array; x2 keeps its true value. The first `burn_in` / (step (1 - gamma)) steps are discarded.
    Operators with the same seed are compared on the same transitions. `pal` and `lazy` are nonlinear, so the mean of their sampled targets
    differs from the operator's value.

    A wider gap need not help here, because the noise widens with it. The maximum of noisy values is also too large on average. Abstaining
    always returns to x1 and receives all of that bias; cake returns half of the time and receives half of it. Under Bellman the learned gap
    is therefore wider than the true one: here the bias favors the right action. With `value="abstain"` there is no maximum; Bellman's
    learned gap is then correct on average and hidden more often. The consistent operator takes no maximum at x1, since each action backs
    up its own value.

    Examples
    --------
    >>> row = learn("bellman", step=0.1, runs=20, burn_in=5, steps=10, seed=0)
    >>> 0 < row.low < row.wrong < row.high < 1
    True
    """
    parsed, mdp = parse(operator), cake(GAMMA, EPSILON)
    stay, x2 = mdp.transitions.probabilities[X1, :, X1], mdp.rewards[1, 0] / (1 - GAMMA)
    rng = np.random.default_rng(seed)
    actions = np.broadcast_to(np.arange(2), (runs, 2))
    q, wrong, gaps, squares = np.zeros((runs, 2)), np.zeros(runs), np.zeros(runs), np.zeros(runs)
    first = math.ceil(burn_in / (step * (1 - GAMMA)))
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(first + steps):
            returned = rng.random((runs, 2)) < stay
            reward = mdp.rewards[X1] + REWARD_NOISE * rng.standard_normal((runs, 2))
            here = np.broadcast_to(q[:, None, :], (runs, 2, 2))
            after = np.where(returned[..., None], here, x2)
            v, v_after = (here[..., ABSTAIN], after[..., ABSTAIN]) if value == "abstain" else (None, None)
            target = td_target(parsed, here, actions, reward, GAMMA, after, returned=returned, v_tm1=v, v_t=v_after)
            q = q + step * (target - q)
            if t >= first:
                gap = q[:, ABSTAIN] - q[:, CAKE]
                wrong, gaps, squares = wrong + (gap <= 0), gaps + gap, squares + gap**2
    if not np.isfinite(q).all():
        return LearningNoise(operator, value, step, None, None, None, None, None, runs, steps)
    fractions = wrong / steps
    mean, low, high = normal_interval(fractions)
    mean_gap = float(gaps.mean()) / steps
    sd_gap = math.sqrt(float(squares.mean()) / steps - mean_gap**2)
    return LearningNoise(operator, value, step, mean, max(0.0, low), min(1.0, high), mean_gap, sd_gap, runs, steps)
