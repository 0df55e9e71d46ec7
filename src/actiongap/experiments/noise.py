"""Wrong actions under noise: errors added to what an operator found, and errors that it must live with while it iterates.

`NoisyValues` adds errors to a finished Q, as an approximation would. A wider gap is then hidden less often, by arithmetic. `NoisyBackups`
estimates every backup from a few samples, and what widens gaps may widen the noise as well. Both are array code, and in both the random
numbers depend on the seed alone, so that operators are compared on the same errors and on the same samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from actiongap.experiments.problem import FiniteExperiment, check_count, check_deviation, check_learned, measure, part
from actiongap.lab.spec import Row, State
from actiongap.mdp.engines import backups
from actiongap.mdp.model import FiniteMDP
from actiongap.mdp.solve import solve
from actiongap.operators import parse


@dataclass(frozen=True)
class NoisyValues(FiniteExperiment):
    """Solve the problem with the operator, then add an error of N(0, sigma) to every Q-value, many times over, for each sigma.

    A row is one sigma, and its columns are means over the draws. Sigma is counted in mean gaps of Q*: what the least bad wrong action
    loses, averaged over the states where the choice matters. That unit belongs to the problem, so it is the same for every operator.

    Examples
    --------
    >>> spec = NoisyValues(problem="cake", noise=(0.1, 1.0))
    >>> state, [row] = spec.advance(spec.start(), 0)
    >>> row["step"], row["wrong"]
    (0.1, 0.0)
    """

    kind = "noisy-values"
    step_name = "sigma in mean gaps of Q*"

    noise: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    """Standard deviations of the errors in mean gaps of Q*, in rising order: 1 is an error as large as the gap that it may hide."""
    draws: int = 1000
    """How many times errors are drawn, for each standard deviation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("draws", self.draws)
        for sigma in self.noise:
            check_deviation("noise", sigma)
        if not self.noise or list(self.noise) != sorted(set(self.noise)):
            raise ValueError(f"noise is {self.noise!r}: it must hold standard deviations in rising order, as in 0.1 1 10")

    @property
    def chunks(self) -> int:
        return len(self.noise)

    @property
    def total_steps(self) -> int:
        return len(self.noise)

    def start(self) -> State:
        with np.errstate(over="ignore", invalid="ignore"):
            solution = solve(self.reference.mdp, self.operator, throw=False)
        if not solution.converged:
            raise ValueError(solution.status)
        if not solution.gaps_settled:
            raise ValueError(f"the gaps of {self.operator} never settle, so what hides them cannot be said: take a smaller alpha")
        return {"q": solution.q}

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        sigma, q = self.noise[chunk], state["q"]
        errors = self.rng(chunk).standard_normal((self.draws, *q.shape))
        noisy = q + sigma * self.reference.gap * errors
        return state, [{"step": sigma, **measure(self.reference, noisy)}]


@dataclass(frozen=True)
class NoisyBackups(FiniteExperiment):
    """Sweep Q <- (1 - eta) Q + eta T'Q from Q = 0, each sweep on its own estimate of the model from a few samples of every pair.

    The operator is applied once to the backup estimated from all samples of a pair, not to each sample: it is T' itself, on a model that is
    wrong by the noise of estimation and nothing else, and with many samples it is the exact sweep whatever the operator. (With one sample
    the two are the same; with more, the mean of the targets of `pal`, `pal-dqn` and `lazy` would be another operator.) States that are
    over keep their value, zero.

    The columns are means over all sweeps since the last row, so `wrong` is how much of the time actions are wrong. With a constant eta the
    noise is never averaged away.

    Examples
    --------
    >>> spec = NoisyBackups(problem="chain:4", operator="al:0.5", sweeps=400, rows=2)
    >>> state, [row] = spec.advance(spec.start(), 0)
    >>> row["step"], 0 < row["wrong"] < 1
    (200, True)
    """

    kind = "noisy-backups"
    step_name = "sweeps"

    sweeps: int = 2000
    """How often every pair is backed up."""
    rows: int = 20
    """How many rows to report, each about the sweeps since the last."""
    samples: int = 1
    """How many transitions each backup of a pair is estimated from."""
    eta: float = 0.1
    """How far a sweep moves Q to the operator's value, in (0, 1]."""
    reward_noise: float = 0.5
    """The standard deviation of the Gaussian noise on every sampled reward."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("sweeps", self.sweeps)
        check_count("rows", self.rows, self.sweeps, "sweeps")
        check_count("samples", self.samples)
        check_deviation("reward_noise", self.reward_noise)
        if not 0 < self.eta <= 1:
            raise ValueError(f"eta is {self.eta!r}: it must be a number in (0, 1]")

    @property
    def chunks(self) -> int:
        return self.rows

    @property
    def total_steps(self) -> int:
        return self.sweeps

    def start(self) -> State:
        return {"q": np.zeros(self.reference.optimal.shape)}

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        rng, operator, reference = self.rng(chunk), parse(self.operator), self.reference
        begin, end = part(self.sweeps, self.rows, chunk)
        q, seen = state["q"], []
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(begin, end):
                model = estimate(reference.mdp, self.samples, self.reward_noise, rng)
                moved = q + self.eta * (operator(backups(model, q)) - q)
                q = np.where(reference.alive[:, None], moved, 0.0)
                seen.append(q)
        check_learned(q, self.operator)
        return {"q": q}, [{"step": end, **measure(reference, np.stack(seen))}]


def estimate(mdp: FiniteMDP, samples: int, reward_noise: float, rng: np.random.Generator) -> FiniteMDP:
    """The model as it looks after so many samples of every pair, whose rewards are off by N(0, reward_noise) each.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> estimate(chain(2, slip=0.1), 10**9, 0.0, np.random.default_rng(0)).transitions.probabilities[0, 1].round(3).tolist()
    [0.9, 0.1]
    """
    successors, probabilities = mdp.listed()
    counts = rng.multinomial(samples, probabilities)
    # The mean of Gaussian noises is Gaussian, with a deviation smaller by the root of their number.
    rewards = mdp.rewards + reward_noise / math.sqrt(samples) * rng.standard_normal(mdp.rewards.shape)
    return FiniteMDP.from_successors(rewards, successors, counts / samples, mdp.gamma, mdp.name)
