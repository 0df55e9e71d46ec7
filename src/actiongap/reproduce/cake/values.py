"""What each operator makes of the cake's action gap, in closed form and by iterating it.

With V*(x1) = 0 the Bellman backup of cake is -epsilon. Every operator of the family subtracts from that some multiple w of the gap
g = V(x1) - Q(x1, cake), so its limit solves g = epsilon + w g: Q(x1, cake) = -epsilon / (1 - w). In x2 both actions are the same, so there
the gap is zero and

- Bellman subtracts nothing: w = 0;
- consistent subtracts gamma P(x1 | x1, cake) g: w = gamma / 2, which is also Q_stat, the value of eating until it ends badly;
- advantage learning subtracts alpha g: w = alpha;
- T_PAL subtracts the lesser of alpha g and gamma E gap(x') = gamma g / 2: w = min(alpha, gamma / 2);
- the DQN form of it subtracts alpha times the lesser of g and E gap(x') = g / 2: w = alpha / 2;
- Baird's V + (T Q - V) / K is -epsilon / K at V = 0: w = 1 - K;
- the lazy operator keeps any Q with Q <= -epsilon <= (1 - alpha) Q: every w from 0 to alpha is a fixed point. Which one is reached depends
  on the start. From zeros Q falls all the way, is backed up all the way, and ends where Bellman ends.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from actiongap.mdp.exact import policy_iteration, q_stationary
from actiongap.mdp.generators import cake
from actiongap.mdp.solve import solve
from actiongap.operators import parse

Q_STAT = "q-stat"
"""The paper's Q_stat, which no operator of the family computes and a linear solve does."""
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
"""The operators compared. The two of Baird share the fixed points of `al:0.5` and `al:0.9`, and need not reach them."""
X1, CAKE, ABSTAIN = 0, 0, 1
GAMMA, EPSILON = 0.9, 0.1
"""The cake that the noise is tried on; every scale's grid contains it."""


class Interval(NamedTuple):
    """A range of numbers, both ends included."""

    low: float
    high: float


class FixedPoint(NamedTuple):
    """Q(x1, cake) under one operator, in closed form and as computed; what was computed is None where iterating did not settle."""

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
"""The closed forms as text. The paper gives those of Bellman, the consistent operator and Q_stat; the rest follow in the same way."""


def closed_form(operator: str, gamma: float, epsilon: float) -> float | Interval:
    """Q(x1, cake) = -epsilon / (1 - w) in the limit, with the w of the module's docstring; an interval for the lazy operator.

    At alpha = 1 nothing holds advantage learning back, and the answer is minus infinity.

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
    number = math.prod(float(part) for part in numbers.split(",")) if numbers else 0.0
    if number > 1 and name != "baird":
        raise ValueError(f"{operator} has no limit to give a closed form of: alpha must be at most 1")
    weight = {
        "bellman": 0.0,
        "consistent": gamma / 2,
        "al": number,
        "pal": min(number, gamma / 2),
        "pal-dqn": number / 2,
        "lazy": number,
        "baird": 1 - number,
        Q_STAT: gamma / 2,
    }[name]
    value = -epsilon / (1 - weight) if weight < 1 else -math.inf
    return Interval(value, -epsilon) if name == "lazy" else value


def ends(value: float | Interval) -> Interval:
    """The interval itself, or the one that holds a single number.

    Examples
    --------
    >>> ends(-0.1)
    Interval(low=-0.1, high=-0.1)
    """
    return value if isinstance(value, Interval) else Interval(value, value)


def fixed_point(operator: str, gamma: float, epsilon: float, q0: np.ndarray | None = None) -> FixedPoint:
    """Iterate the operator on the cake, from zeros or from `q0`, and set what comes beside the closed form.

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
        solution = solve(mdp, operator, q0=q0, throw=False)
        q, sweeps, status = solution.q, solution.sweeps, solution.status
        settled = solution.converged and solution.gaps_settled
    if not settled:
        return FixedPoint(gamma, epsilon, operator, expected, None, None, None, sweeps, status)
    value = float(q[X1, CAKE])
    low, high = ends(expected)
    difference = max(low - value, value - high, 0.0)
    return FixedPoint(gamma, epsilon, operator, expected, value, difference, float(q[X1].max()) - value, sweeps, status)
