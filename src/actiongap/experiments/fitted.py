"""Fitted Q-iteration on one small batch: what an operator makes of data that are all there will ever be.

The batch holds the same number of transitions of every pair where something is at stake, so that no value is a guess about an action never
tried. An averaging regressor then gives one value to each cell of neighbouring states. Cells of one state are a table; larger ones are
the paper's aggregation, in which states of one cell weigh alike.

Batch and cells together suggest a model: its states are the cells, its rewards and next states those of the batch. The targets that are
averaged in a cell satisfy the conditions of the theorem in that model, so every operator of the theorem ends with actions that are optimal
there, right or wrong. A wider gap is no help against a wrong model (nor against coarse cells). Operators differ on the way to that limit,
in the gaps of Q, and in how they would bear errors that an average does not make (`noise`).

Targets are those of single transitions and are averaged afterwards; for `pal`, `pal-dqn` and `lazy` that is not the operator of the mean.
The consistent operator counts as a return what comes back to the same state, not to the same cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from actiongap.experiments.problem import FiniteExperiment, Reference, check_count, check_deviation, check_learned, measure, part
from actiongap.lab.spec import Row, State
from actiongap.mdp.fitted import Transitions, fitted_q_iteration


@dataclass(frozen=True)
class FittedQ(FiniteExperiment):
    """Fitted Q-iteration from Q = 0 on one batch, which depends on the problem and the seed alone: operators meet the same one.

    Examples
    --------
    >>> spec = FittedQ(problem="chain:4", operator="al:0.5", iterations=60, rows=2)
    >>> state, rows = spec.advance(spec.start(), 0)
    >>> rows[0]["step"], rows[0]["wrong"]
    (30, 0.0)
    """

    kind = "fitted-q"
    step_name = "iterations"

    transitions: int = 10
    """How many transitions of each pair are in the batch."""
    iterations: int = 500
    """How often to apply the operator to the batch."""
    rows: int = 20
    """How many rows to report, one after each part of the iterations."""
    cell: int = 1
    """How many states, neighbours by number, share one value: 1 is a table."""
    reward_noise: float = 0.0
    """The standard deviation of the Gaussian noise on every reward of the batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("transitions", self.transitions)
        check_count("iterations", self.iterations)
        check_count("rows", self.rows, self.iterations, "iterations")
        check_count("cell", self.cell)
        check_deviation("reward_noise", self.reward_noise)

    @property
    def chunks(self) -> int:
        return self.rows

    @property
    def total_steps(self) -> int:
        return self.iterations

    def start(self) -> State:
        return {"q": np.zeros(self.reference.optimal.shape)}

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        mdp = self.reference.mdp
        begin, end = part(self.iterations, self.rows, chunk)
        # Fitting draws no lots, so the randomness of chunk 0 is the batch's; to draw it again is cheaper than to keep it.
        batch = draw_batch(self.reference, self.transitions, self.reward_noise, self.rng(0))
        with np.errstate(over="ignore", invalid="ignore"):
            fitted = fitted_q_iteration(
                batch,
                self.operator,
                lambda: CellMeans(self.cell, mdp.states),
                gamma=mdp.gamma,
                iterations=end - begin,
                actions=mdp.actions,
                q0=lambda x: state["q"][x],
            )
        q = check_learned(fitted.q(np.arange(mdp.states)), self.operator)
        return {"q": q}, [{"step": end, **measure(self.reference, q)}]


def draw_batch(reference: Reference, transitions: int, reward_noise: float, rng: np.random.Generator) -> Transitions:
    """So many transitions of every pair whose state is not over; those that lead to where it is over are terminal.

    Examples
    --------
    >>> from actiongap.experiments.problem import solved
    >>> len(draw_batch(solved("gridworld:2,2", None), 10, 0.0, np.random.default_rng(0)))
    120
    """
    mdp, listed = reference.mdp, reference.mdp.listed()
    x, a, _ = (index.ravel() for index in np.indices((mdp.states, mdp.actions, transitions)))
    x, a = x[reference.alive[x]], a[reference.alive[x]]
    successors, probabilities = listed.rows((x, a))
    drawn = rng.multinomial(1, probabilities).argmax(axis=-1)
    x_next = successors[np.arange(len(x)), drawn].astype(np.int64)
    rewards = mdp.rewards[x, a] + reward_noise * rng.standard_normal(len(x))
    return Transitions(x, a, rewards, reference.alive[x_next].astype(float), x_next)


class CellMeans:
    """A regressor: the mean of the targets in each cell of neighbouring states, and zero in a cell without any, where all is over."""

    def __init__(self, cell: int, states: int):
        self.cell, self.cells = cell, -(-states // cell)

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:  # noqa: N803 - as scikit-learn names it
        where = X[:, 0] // self.cell
        counts = np.bincount(where, minlength=self.cells)
        self.means = np.bincount(where, weights=y, minlength=self.cells) / np.maximum(counts, 1)

    def predict(self, X: np.ndarray) -> np.ndarray:  # noqa: N803
        return self.means[X[:, 0] // self.cell]
