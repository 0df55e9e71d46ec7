"""How often cake looks better than abstaining under three kinds of noise.

Errors are added to a finished Q (`gaussian_noise`), where a wider gap is hidden less often; or a model is estimated from samples and solved
exactly (`estimated_models`), where operators that preserve optimality all err alike; or Q keeps learning from samples with a constant step
(`learn`), where the noise may widen with the gap. Frequencies come with 95% intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from actiongap.finite.exact import policy_iteration
from actiongap.finite.examples import cake
from actiongap.finite.model import FiniteMDP
from actiongap.finite.solve import solve
from actiongap.operators import parse
from actiongap.reproduce.cake.values import ABSTAIN, CAKE, EPSILON, GAMMA, X1, Interval
from actiongap.td import td_target

SIGMAS = tuple(float(sigma) for sigma in np.geomspace(0.03, 3.0, 25))
"""Standard deviations of the error added to each Q-value."""
REWARD_NOISE = 0.5
"""Standard deviation of the noise on each observed reward."""
STEP = 0.1
"""The constant step of learning from samples."""
Z95 = 1.959964
"""A normal variable is within this many standard deviations of its mean 95% of the time."""


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
    """How often cake is better in a model estimated from samples, as found by iterating one operator on it."""

    operator: str
    samples: int
    wrong: float | None
    low: float | None
    high: float | None
    models: int
    disagreements: int | None
    """Models in which the operator's greedy action is not the optimal action of that model."""
    status: str


class Learning(NamedTuple):
    """How much of the time cake looks better to a learner with a constant step: the mean over runs, with a 95% interval."""

    operator: str
    step: float
    wrong: float | None
    low: float | None
    high: float | None
    mean_gap: float | None
    """The mean of Q(x1, abstain) - Q(x1, cake)."""
    runs: int
    steps: int


def wrong_probability(gap: float, sigma: float) -> float:
    """P(N(0, sigma) - N(0, sigma) > gap) = Phi(-gap / (sigma sqrt 2)): how often noise on two values hides a gap between them.

    Examples
    --------
    >>> wrong_probability(0.0, sigma=1.0)
    0.5
    """
    return 0.5 * math.erfc(gap / (2 * sigma))


def wilson(count: int, n: int, z: float = Z95) -> Interval:
    """Wilson's interval for a probability of which `count` successes in `n` were seen; 95% unless told otherwise.

    Examples
    --------
    >>> wilson(0, 100).low
    0.0
    """
    seen, spread = count / n, z * z / n
    centre = (seen + spread / 2) / (1 + spread)
    half = z * math.sqrt(seen * (1 - seen) / n + spread / (4 * n)) / (1 + spread)
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def gaussian_noise(operator: str, gap: float, sigmas: Sequence[float], draws: int, seed: int) -> list[GaussianNoise]:
    """How often cake looks better when the two values of x1, `gap` apart, are each off by N(0, sigma): exactly, and by counting.

    One seed gives one set of errors, so operators are compared on the same draws.

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
        rows.append(GaussianNoise(operator, sigma, wrong_probability(gap, sigma), count / draws, *wilson(count, draws), draws))
    return rows


def estimate(gamma: float, epsilon: float, samples: int, models: int, seed: int) -> FiniteMDP:
    """Many estimates of the cake side by side in one MDP, each from `samples` transitions of both actions of x1, with noisy rewards.

    State i is x1 as the i-th estimate has it; the last state is x2, which all share and know.

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
    """How often cake wins in a model estimated from samples, which each operator then solves exactly.

    Optimality-preserving operators find the same optimal actions in the same model, so they all err on the same estimates: a wider gap is
    no help against a wrong model, only against a wrong Q.

    Examples
    --------
    >>> one, other = estimated_models(["bellman", "al:0.9"], samples=30, models=100, seed=0)
    >>> one.wrong == other.wrong
    True
    """
    mdp = estimate(GAMMA, EPSILON, samples, models, seed)
    best = policy_iteration(mdp)[2][:-1]
    for operator in operators:
        # Three times as many sweeps as any operator of the theorem takes; Baird's may oscillate for ever.
        solution = solve(mdp, operator, engine="arrays", max_sweeps=1000, throw=False)
        if not solution.converged:
            yield ModelNoise(operator, samples, None, None, None, models, None, solution.status)
            continue
        chosen = solution.policy[:-1]
        count = int(np.count_nonzero(chosen == CAKE))
        differ = int(np.count_nonzero(chosen != best))
        yield ModelNoise(operator, samples, count / models, *wilson(count, models), models, differ, solution.status)


def learn(operator: str, step: float, runs: int, forgotten: int, steps: int, seed: int) -> Learning:
    """Q(x1, a) <- Q(x1, a) + step (target - Q(x1, a)) for both actions at each step, on sampled next states and noisy rewards.

    Runs are independent and side by side in one array; x2 keeps its true value. The first `forgotten` / (step (1 - gamma)) steps are not
    counted. One seed gives one history of transitions, so operators are compared on the same samples. The targets of `pal` and `lazy` are
    those of samples, whose mean is not the operator's own value.

    A wider gap need not help here, for the noise is widened with it. What Bellman adds to both actions, their common V, cancels in the gap;
    under the consistent operator each action backs itself up and carries its own errors along.

    Examples
    --------
    >>> row = learn("bellman", step=0.1, runs=20, forgotten=5, steps=10, seed=0)
    >>> 0 < row.low < row.wrong < row.high < 1
    True
    """
    rule, mdp = parse(operator), cake(GAMMA, EPSILON)
    stay, x2 = mdp.transitions.probabilities[X1, :, X1], mdp.rewards[1, 0] / (1 - GAMMA)
    rng = np.random.default_rng(seed)
    actions = np.broadcast_to(np.arange(2), (runs, 2))
    q, wrong, gap = np.zeros((runs, 2)), np.zeros(runs), np.zeros(runs)
    first = math.ceil(forgotten / (step * (1 - GAMMA)))
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(first + steps):
            returned = rng.random((runs, 2)) < stay
            reward = mdp.rewards[X1] + REWARD_NOISE * rng.standard_normal((runs, 2))
            here = np.broadcast_to(q[:, None, :], (runs, 2, 2))
            after = np.where(returned[..., None], here, x2)
            q = q + step * (td_target(rule, here, actions, reward, GAMMA, after, returned=returned) - q)
            if t >= first:
                wrong += q[:, CAKE] >= q[:, ABSTAIN]
                gap += q[:, ABSTAIN] - q[:, CAKE]
    if not np.isfinite(q).all():
        return Learning(operator, step, None, None, None, None, runs, steps)
    fractions = wrong / steps
    mean, half = float(fractions.mean()), Z95 * float(fractions.std(ddof=1)) / math.sqrt(runs)
    return Learning(operator, step, mean, max(0.0, mean - half), min(1.0, mean + half), float(gap.mean() / steps), runs, steps)
