"""Experiments on finite MDPs, in which a Q-table is compared with the exact solution.

**What is measured.** Q* and V* come from policy iteration and the value of the uniformly random policy from a linear solve, once per MDP
and process. A state is terminal or not, and in some non-terminal states the choice matters:

- *terminal* states, from which every policy has return zero: the goal of a gridworld, a hole of FrozenLake. Episodes end there, and they
  are left out of all means;
- all other states. Values are means over them;
- among these, states in which the choice *matters*: not all actions are optimal. Wrong actions and gaps are means over them alone.

**`QLearning`** is tabular Q-learning with any operator. By default its own epsilon-greedy policy chooses the data, so the operator changes
what is learned from the data and the data as well. `behavior` tells the two apart: with `bellman` all operators learn from the data that
Bellman's agent chooses, and with `uniform` from those of random actions. The agent samples the model (`load_mdp`), not an environment: for
`gym/ID` it sees the transitions that the environment lists, with the mean reward of each pair, but neither its initial state nor its time
limit. Episodes start in a uniformly random non-terminal state, so that exploration is not compared. They end in terminal states, and are
truncated after 1 / (1 - gamma) steps.

**`FittedQ`** is fitted Q-iteration on one small batch. The batch holds the same number of transitions of every non-terminal state-action
pair, so every action is tried. An averaging regressor gives one value to each cell of neighboring states. Cells of one state are a table;
larger cells are the paper's aggregation, in which the states of a cell have equal weight.

Batch and cells define a model: its states are the cells, its rewards and next states those of the batch. The targets that are averaged in a
cell satisfy the conditions of the theorem in that model, so every operator of the theorem converges to actions that are optimal in that
model, even if the model is wrong. A wider gap does not help against a wrong model, nor against coarse cells. Operators still differ in how
fast they converge, in the gaps of Q, and in their robustness to the errors of regressors that do not average.

Targets are computed per transition and then averaged; for `pal`, `pal-dqn` and `lazy` this is not the operator of the mean. For the
consistent operator, a transition repeats if it returns to the same state, not to the same cell.

**`NoisyValues` and `NoisyBackups`** measure wrong actions under noise. The first adds errors to a converged Q, as function approximation
would; errors then hide a wide gap less often than a narrow one. The second estimates every backup from a few samples, and an operator that
widens gaps may widen the noise as well. In both, random numbers depend on the seed alone, so all operators see the same errors and samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, cast

import gymnasium
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph, linalg

from actiongap._suggest import choose_from
from actiongap.lab.experiment import Experiment, Row, State, check_count, check_finite, chunk_bounds
from actiongap.maths import top_two
from actiongap.mdp.checks import make_rng
from actiongap.mdp.engines import backups
from actiongap.mdp.exact import distribution_matrix, evaluate_policy, policy_iteration
from actiongap.mdp.fitted import Transitions, fitted_q_iteration
from actiongap.mdp.generators import load_mdp
from actiongap.mdp.gym import FiniteEnv
from actiongap.mdp.learning import BEHAVIORS, q_learning
from actiongap.mdp.model import FiniteMDP, Sparse
from actiongap.mdp.solve import solve
from actiongap.operators import parse

COLUMNS = {
    "score": "mean value of the greedy policy; 0 is the uniformly random policy and 1 the optimal one",
    "wrong": "fraction of the states where the choice matters in which the greedy action is not optimal",
    "gap": "best minus second-best Q, mean over the states where the choice matters",
    "value": "max_a Q, mean over states",
    "value_error": "max_a Q - V*, mean over states",
}
"""Columns of every experiment on a finite MDP."""
MAX_SAMPLES = 10**9
"""Maximum number of transitions or draws, which are held in memory at once."""
MAX_COUNT = 2**53
"""Maximum number of samples of a pair, which are counted: float64 holds every count up to here."""
TOLERANCE = 1e-9
"""An action is optimal if it loses at most this, relative to the largest |Q*|: far above rounding, far below any gap of interest."""
BLOCK_ENTRIES = 1 << 20
"""Entries of the linear system that evaluates many policies at once."""


@dataclass(frozen=True)
class FiniteExperiment(Experiment):
    """An experiment on a finite MDP with an operator, which reports `COLUMNS`."""

    columns: ClassVar[Mapping[str, str]] = COLUMNS

    env: str = "gridworld:5,5"
    """A finite MDP by name: `gridworld:5,5`, `cake`, `chain:10`, `garnet:50,4,3`, `gym/FrozenLake-v1`, or FILE.npz."""
    operator: str = "bellman"
    """An operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, or path/to/file.py:name."""
    gamma: float | None = None
    """Discount factor. The MDP's own if not given."""
    seed: int = 0
    """Random seed; the same seed repeats a run bit for bit."""

    def __post_init__(self) -> None:
        parse(self.operator)
        make_rng(self.seed)
        cached_mdp(self.env, self.gamma)

    @property
    def reference(self) -> Reference:
        """The MDP with its exact solution."""
        return reference_solution(self.env, self.gamma)


@dataclass(frozen=True, eq=False)
class Reference:
    """A finite MDP and its exact solution."""

    mdp: FiniteMDP
    nonterminal: np.ndarray
    """Whether a state is not terminal (S,)."""
    v: np.ndarray
    """V* (S,)."""
    optimal: np.ndarray
    """Whether an action is optimal, up to `TOLERANCE` (S, A)."""
    matters: np.ndarray
    """Whether not all actions are optimal (S,)."""
    random_value: float
    """Mean value of the uniformly random policy."""
    optimal_value: float
    """Mean of V*."""
    gap: float
    """Loss of the best action that is not optimal, mean over the states where the choice matters."""


@lru_cache(maxsize=64)
def cached_mdp(name: str, gamma: float | None) -> FiniteMDP:
    """Return the MDP of this name, loaded once per process.

    Examples
    --------
    >>> cached_mdp("cake", 0.5) is cached_mdp("cake", 0.5)
    True
    """
    mdp = load_mdp(name, gamma=gamma)
    if mdp.available is not None:
        raise ValueError(f"{name} has states with fewer actions than others, which experiments do not support: solve it with solve")
    return mdp


@lru_cache(maxsize=64)
def reference_solution(name: str, gamma: float | None) -> Reference:
    """Return the MDP of this name with its exact solution, computed once per process.

    Examples
    --------
    >>> cake = reference_solution("cake", None)
    >>> cake.matters.tolist(), cake.optimal[0].tolist(), round(cake.gap, 9)
    ([True, False], [False, True], 0.1)
    """
    mdp = cached_mdp(name, gamma)
    q, v, _ = policy_iteration(mdp)
    optimal = q >= v[:, None] - TOLERANCE * np.abs(q).max()
    matters = ~optimal.all(axis=1)
    if not matters.any():
        raise ValueError(f"every policy is optimal in {name}, so there is nothing to compare: choose an env in which actions matter")
    nonterminal = ~terminal_states(mdp)
    evenly = np.full(mdp.rewards.shape, 1 / mdp.actions)
    losses = v - np.where(optimal, -np.inf, q).max(axis=1)
    return Reference(
        mdp=mdp,
        nonterminal=nonterminal,
        v=v,
        optimal=optimal,
        matters=matters,
        random_value=float(evaluate_policy(mdp, evenly)[nonterminal].mean()),
        optimal_value=float(v[nonterminal].mean()),
        gap=float(losses[matters].mean()),
    )


def terminal_states(mdp: FiniteMDP) -> np.ndarray:
    """Return whether every policy has return zero from a state (S,).

    Examples
    --------
    >>> from actiongap.mdp.generators import gridworld
    >>> terminal_states(gridworld(2, 2)).tolist()
    [False, False, False, True]
    """
    successors, probabilities = mdp.sparse_transitions()
    x, a, k = np.nonzero(probabilities)
    paying = np.flatnonzero(mdp.rewards.any(axis=1))
    # Search backwards along transitions, from a source that is connected to all states with rewards.
    source = mdp.states
    tails, heads = np.append(successors[x, a, k], np.full(len(paying), source)), np.append(x, paying)
    backwards = sparse.csr_array((np.ones(len(tails)), (tails, heads)), shape=(source + 1, source + 1))
    reached = csgraph.breadth_first_order(backwards, source, return_predecessors=False)
    return ~np.isin(np.arange(mdp.states), reached)


def measure(reference: Reference, q: np.ndarray) -> Row:
    """Return the `COLUMNS` of a Q-table (S, A), or their means over a stack of tables (N, S, A). Values that are not finite are None.

    Ties go to the action with the lowest index. The greedy policy is evaluated exactly.

    Examples
    --------
    >>> row = measure(reference_solution("cake", None), np.array([[0.0, 1.0], [0.0, 0.0]]))
    >>> row["score"], row["wrong"], row["gap"]
    (1.0, 0.0, 1.0)
    """
    q = q.reshape(-1, *reference.optimal.shape)
    if not np.isfinite(q).all():
        return dict.fromkeys(COLUMNS)
    nonterminal, matters = reference.nonterminal, reference.matters
    policies = q.argmax(axis=-1)
    value = float(evaluate_policies(reference.mdp, policies)[:, nonterminal].mean())
    wrong = ~reference.optimal[np.arange(reference.mdp.states), policies]
    best, second = top_two(q)
    # If an operator diverges, values can be near the largest float64 and their sum can overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = {
            "score": (value - reference.random_value) / (reference.optimal_value - reference.random_value),
            "wrong": float(wrong[:, matters].mean()),
            "gap": float((best - second)[:, matters].mean()),
            "value": float(best[:, nonterminal].mean()),
            "value_error": float((best - reference.v)[:, nonterminal].mean()),
        }
    return {name: number if np.isfinite(number) else None for name, number in numbers.items()}


def evaluate_policies(mdp: FiniteMDP, policies: np.ndarray) -> np.ndarray:
    """Return V^pi of many policies (N, S), by block-diagonal linear solves. Equal policies are evaluated once.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> evaluate_policies(chain(2, gamma=0.5, slip=0.0), np.array([[1, 1], [0, 0]])).tolist()
    [[1.0, 2.0], [0.0, 1.0]]
    """
    distinct, which = np.unique(policies, axis=0, return_inverse=True)
    listed, states = mdp.sparse_transitions(), np.arange(mdp.states)
    block_size = max(1, BLOCK_ENTRIES // (mdp.states * listed.successors.shape[2]))
    values = []
    for block in (distinct[i : i + block_size] for i in range(0, len(distinct), block_size)):
        successors, probabilities = listed.rows((states, block))
        first = mdp.states * np.arange(len(block))
        matrix = distribution_matrix(Sparse(successors + first[:, None, None], probabilities), block.size)
        system = sparse.eye_array(block.size, format="csc") - mdp.gamma * matrix.tocsc()
        values.append(linalg.splu(system).solve(mdp.rewards[states, block].ravel()).reshape(block.shape))
    return np.concatenate(values)[which]


def check_deviation(name: str, value: float) -> None:
    """Raise a ValueError unless the value is a standard deviation.

    Examples
    --------
    >>> check_deviation("reward_noise", -1.0)
    Traceback (most recent call last):
    ValueError: reward_noise is -1.0: give a standard deviation, at least 0
    """
    if not 0 <= value < np.inf:
        raise ValueError(f"{name} is {value!r}: give a standard deviation, at least 0")


@dataclass(frozen=True)
class QLearning(FiniteExperiment):
    """Tabular Q-learning with an epsilon-greedy policy, from Q = 0.

    A run is divided into `rows` parts. Each part keeps Q and the visit counts, and starts a new episode with new random numbers. A
    different `rows` therefore gives different results.

    Examples
    --------
    >>> spec = QLearning(env="chain:4", operator="al:0.5", steps=2000, rows=2)
    >>> state, rows = spec.advance(spec.start(), 0)
    >>> rows[0]["step"], int(state["visits"].sum())
    (1000, 1000)
    """

    kind = "q-learning"
    columns: ClassVar[Mapping[str, str]] = COLUMNS | {
        "churn": "changes of the greedy action per step since the last row, in the states that are updated",
        "visits": "updates so far of the action that was updated least, mean over the states where the choice matters",
    }

    steps: int = 50_000
    """Number of environment steps."""
    rows: int = 20
    """Number of rows to report, evenly spaced. An interrupted run loses at most the steps since the last one."""
    exploration: float = 0.1
    """Probability of a uniformly random action (epsilon)."""
    behavior: str = "own"
    """Who chooses the actions: own (the agent's epsilon-greedy policy), bellman (that of Bellman's agent on the same data) or uniform."""
    step_size: float | None = None
    """Constant step size in (0, 1]; if not given, 1 / (1 + (1 - gamma) n) for a pair visited n times before."""
    reward_noise: float = 0.0
    """Standard deviation of Gaussian noise on every reward that the agent observes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps)
        check_count("rows", self.rows, self.steps, "steps")
        check_deviation("reward_noise", self.reward_noise)
        if self.behavior not in BEHAVIORS:
            raise ValueError(f"unknown behavior {self.behavior!r}: {choose_from(self.behavior, BEHAVIORS)}")
        if not 0 <= self.exploration <= 1:
            raise ValueError(f"exploration is {self.exploration!r}: it must be a probability, from 0 to 1")
        if self.step_size is not None and not 0 < self.step_size <= 1:
            raise ValueError(f"step_size is {self.step_size!r}: it must be a number in (0, 1]")

    @property
    def chunks(self) -> int:
        return self.rows

    @property
    def total_steps(self) -> int:
        return self.steps

    def start(self) -> State:
        shape = self.reference.optimal.shape
        second = {"q_bellman": np.zeros(shape)} if self.behavior == "bellman" else {}
        return {"q": np.zeros(shape), "visits": np.zeros(shape, dtype=np.int64), **second}

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        begin, end = chunk_bounds(self.steps, self.rows, chunk)
        learned = q_learning(
            NoisyFiniteEnv(self.reference, self.reward_noise),
            self.operator,
            steps=end - begin,
            seed=int(self.rng(chunk).integers(2**63)),
            step_size=self.step_size,
            exploration=self.exploration,
            behavior=cast(Literal["own", "bellman", "uniform"], self.behavior),
            q0=state["q"],
            visits0=state["visits"],
            q0_bellman=state.get("q_bellman"),
        )
        second = {} if learned.q_bellman is None else {"q_bellman": learned.q_bellman}
        least = float(learned.visits.min(axis=1)[self.reference.matters].mean())
        row = {"step": end, **measure(self.reference, learned.q), "churn": learned.switches / (end - begin), "visits": least}
        return {"q": learned.q, "visits": learned.visits, **second}, [row]


class NoisyFiniteEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A finite MDP as an environment with terminal states and noisy rewards.

    Examples
    --------
    >>> from actiongap.lab.kinds.finite import reference_solution
    >>> env = NoisyFiniteEnv(reference_solution("gridworld:1,2", None), reward_noise=0.0)
    >>> env.reset(seed=0)[0], env.step(1)[:3]
    (0, (1, -1.0, True))
    """

    def __init__(self, reference: Reference, reward_noise: float):
        start = reference.nonterminal / reference.nonterminal.sum()
        super().__init__(FiniteEnv(reference.mdp, start=start, max_steps=round(1 / (1 - reference.mdp.gamma))))
        self._terminal = (~reference.nonterminal).tolist()
        self._reward_noise = reward_noise

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        x, reward, _, truncated, info = self.env.step(action)
        noise = self._reward_noise * self.np_random.standard_normal() if self._reward_noise else 0.0
        return x, float(reward) + noise, self._terminal[x], truncated, info


@dataclass(frozen=True)
class FittedQ(FiniteExperiment):
    """Fitted Q-iteration from Q = 0 on one batch. The batch depends on the MDP and the seed alone, so all operators use the same one.

    Examples
    --------
    >>> spec = FittedQ(env="chain:4", operator="al:0.5", iterations=60, rows=2)
    >>> state, rows = spec.advance(spec.start(), 0)
    >>> rows[0]["step"], rows[0]["wrong"]
    (30, 0.0)
    """

    kind = "fitted-q"
    step_name = "iterations"

    transitions: int = 10
    """Number of transitions per state-action pair in the batch."""
    iterations: int = 500
    """Number of applications of the operator to the batch."""
    rows: int = 20
    """Number of rows to report, evenly spaced."""
    cell: int = 1
    """Number of consecutive states that share one value; 1 is a table."""
    reward_noise: float = 0.0
    """Standard deviation of Gaussian noise on every reward in the batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("transitions", self.transitions, MAX_SAMPLES)
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
        begin, end = chunk_bounds(self.iterations, self.rows, chunk)
        # Fitting is deterministic, so the generator of chunk 0 draws the batch; drawing it again is cheaper than saving it.
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
        q = check_finite(fitted.q(np.arange(mdp.states)), self.operator)
        return {"q": q}, [{"step": end, **measure(self.reference, q)}]


def draw_batch(reference: Reference, transitions: int, reward_noise: float, rng: np.random.Generator) -> Transitions:
    """Sample `transitions` transitions of every pair in a non-terminal state; those into terminal states have discount 0.

    Examples
    --------
    >>> from actiongap.lab.kinds.finite import reference_solution
    >>> len(draw_batch(reference_solution("gridworld:2,2", None), 10, 0.0, np.random.default_rng(0)))
    120
    """
    mdp, listed = reference.mdp, reference.mdp.sparse_transitions()
    x, a, _ = (index.ravel() for index in np.indices((mdp.states, mdp.actions, transitions)))
    x, a = x[reference.nonterminal[x]], a[reference.nonterminal[x]]
    successors, probabilities = listed.rows((x, a))
    drawn = rng.multinomial(1, probabilities).argmax(axis=-1)
    x_next = successors[np.arange(len(x)), drawn].astype(np.int64)
    rewards = mdp.rewards[x, a] + reward_noise * rng.standard_normal(len(x))
    return Transitions(x, a, rewards, reference.nonterminal[x_next].astype(float), x_next)


class CellMeans:
    """A regressor: the mean target in each cell of neighboring states, and zero in cells of terminal states, which have no targets."""

    def __init__(self, cell: int, states: int):
        self.cell: int = cell
        self.cells: int = -(-states // cell)

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:  # noqa: N803 - as scikit-learn names it
        where = X[:, 0] // self.cell
        counts = np.bincount(where, minlength=self.cells)
        self.means: np.ndarray = np.bincount(where, weights=y, minlength=self.cells) / np.maximum(counts, 1)

    def predict(self, X: np.ndarray) -> np.ndarray:  # noqa: N803
        return self.means[X[:, 0] // self.cell]


@dataclass(frozen=True)
class NoisyValues(FiniteExperiment):
    """Solve the MDP with the operator, then add errors from N(0, sigma) to every Q-value, many times for each sigma.

    A row is one sigma, and its columns are means over the draws. The unit of sigma is the mean gap of Q*: the loss of the best action that
    is not optimal, averaged over the states where the choice matters. This unit is the same for every operator.

    Examples
    --------
    >>> spec = NoisyValues(env="cake", noise=(0.1, 1.0))
    >>> state, [row] = spec.advance(spec.start(), 0)
    >>> row["step"], row["wrong"]
    (0.1, 0.0)
    """

    kind = "noisy-values"
    step_name = "sigma in mean gaps of Q*"

    noise: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    """Standard deviations of the errors, in mean gaps of Q* and in increasing order: 1 is an error as large as the gap."""
    draws: int = 1000
    """Number of draws of the errors for each standard deviation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("draws", self.draws, MAX_SAMPLES)
        for sigma in self.noise:
            check_deviation("noise", sigma)
        if not self.noise or list(self.noise) != sorted(set(self.noise)):
            raise ValueError(f"noise is {self.noise!r}: it must hold standard deviations in increasing order, as in 0.1 1 10")

    @property
    def chunks(self) -> int:
        return len(self.noise)

    @property
    def total_steps(self) -> int:
        return len(self.noise)

    def start(self) -> State:
        with np.errstate(over="ignore", invalid="ignore"):
            solution = solve(self.reference.mdp, self.operator, method="iterate", throw=False)
        if not solution.converged:
            raise ValueError(solution.status)
        if not solution.gaps_settled:
            raise ValueError(f"the gaps of {self.operator} do not converge, so noise cannot be compared with them: choose a smaller alpha")
        return {"q": solution.q}

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        sigma, q = self.noise[chunk], state["q"]
        errors = self.rng(chunk).standard_normal((self.draws, *q.shape))
        noisy = q + sigma * self.reference.gap * errors
        return state, [{"step": sigma, **measure(self.reference, noisy)}]


@dataclass(frozen=True)
class NoisyBackups(FiniteExperiment):
    """Sweep Q <- (1 - eta) Q + eta T'Q from Q = 0, with a new estimate of the model from a few samples of every pair in each sweep.

    The operator is applied once per pair, to the backup estimated from all its samples, not to each sample. This is T' itself on an
    estimated model, and with many samples it is the exact sweep for every operator. (With one sample the two are the same; with more, the
    mean of the targets of `pal`, `pal-dqn` and `lazy` would be another operator.) Terminal states keep the value zero.

    The columns are means over all sweeps since the last row, so `wrong` is also a mean over time. With a constant eta the noise is never
    averaged out.

    Examples
    --------
    >>> spec = NoisyBackups(env="chain:4", operator="al:0.5", sweeps=400, rows=2)
    >>> state, [row] = spec.advance(spec.start(), 0)
    >>> row["step"], 0 < row["wrong"] < 1
    (200, True)
    """

    kind = "noisy-backups"
    step_name = "sweeps"

    sweeps: int = 2000
    """Number of sweeps over all pairs."""
    rows: int = 20
    """Number of rows to report, each a mean over the sweeps since the last."""
    samples: int = 1
    """Number of transitions from which each backup is estimated."""
    eta: float = 0.1
    """Step size of a sweep, in (0, 1]."""
    reward_noise: float = 0.5
    """Standard deviation of Gaussian noise on every sampled reward."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("sweeps", self.sweeps)
        check_count("rows", self.rows, self.sweeps, "sweeps")
        check_count("samples", self.samples, MAX_COUNT)
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
        begin, end = chunk_bounds(self.sweeps, self.rows, chunk)
        q, seen = state["q"], []
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(begin, end):
                model = estimate(reference.mdp, self.samples, self.reward_noise, rng)
                moved = q + self.eta * (operator(backups(model, q)) - q)
                q = np.where(reference.nonterminal[:, None], moved, 0.0)
                seen.append(q)
        check_finite(q, self.operator)
        return {"q": q}, [{"step": end, **measure(reference, np.stack(seen))}]


def estimate(mdp: FiniteMDP, samples: int, reward_noise: float, rng: np.random.Generator) -> FiniteMDP:
    """Return the model estimated from `samples` transitions of every pair, with errors from N(0, reward_noise) on their rewards.

    Examples
    --------
    >>> from actiongap.mdp.generators import chain
    >>> estimate(chain(2, slip=0.1), 10**9, 0.0, np.random.default_rng(0)).transitions.probabilities[0, 1].round(3).tolist()
    [0.9, 0.1]
    """
    successors, probabilities = mdp.sparse_transitions()
    counts = rng.multinomial(samples, probabilities)
    # The mean of n independent Gaussian errors has the standard deviation reward_noise / sqrt(n).
    rewards = mdp.rewards + reward_noise / math.sqrt(samples) * rng.standard_normal(mdp.rewards.shape)
    return FiniteMDP.from_successors(rewards, successors, counts / samples, mdp.gamma, mdp.name)
