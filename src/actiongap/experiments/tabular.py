"""Q-learning in a table, with any operator: how soon, and how surely, the greedy policy is right.

The agent plays the model of a problem (`load_mdp`), not an environment: of `gym/ID` it meets the transitions that the environment lists,
with the mean reward of each pair, but neither its start nor its time limit. Episodes start in a state drawn evenly from those where
something is at stake, so that finding the way to them is not what is compared. They terminate where a state is over, and are cut short
after 1 / (1 - gamma) steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from actiongap.experiments.problem import FiniteExperiment, Reference, check_count, check_deviation, measure, part
from actiongap.lab.spec import Row, State
from actiongap.mdp.gym import FiniteEnv
from actiongap.mdp.learning import q_learning


@dataclass(frozen=True)
class QLearning(FiniteExperiment):
    """Q-learning along epsilon-greedy play, from Q = 0.

    A run is cut into `rows` chunks. Each goes on with the table and the visits of the one before, and starts a new episode with random
    numbers of its own; so `rows` is part of what is run, not only of what is reported.

    Examples
    --------
    >>> spec = QLearning(problem="chain:4", operator="al:0.5", steps=2000, rows=2)
    >>> state, rows = spec.advance(spec.start(), 0)
    >>> rows[0]["step"], int(state["visits"].sum())
    (1000, 1000)
    """

    kind = "q-learning"

    steps: int = 50_000
    """How many transitions to learn from."""
    rows: int = 20
    """How many rows to report, one after each part of the steps; a part is also what an interrupted run may lose."""
    exploration: float = 0.1
    """The part of the actions that are uniformly random; the others are greedy."""
    step_size: float | None = None
    """A constant in (0, 1]; if not given, 1 / (1 + (1 - gamma) n) at a pair seen n times before."""
    reward_noise: float = 0.0
    """The standard deviation of the Gaussian noise on every reward that the agent sees."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps)
        check_count("rows", self.rows, self.steps, "steps")
        check_deviation("reward_noise", self.reward_noise)
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
        return {"q": np.zeros(shape), "visits": np.zeros(shape, dtype=np.int64)}

    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        begin, end = part(self.steps, self.rows, chunk)
        learned = q_learning(
            Played(self.reference, self.reward_noise),
            self.operator,
            steps=end - begin,
            seed=int(self.rng(chunk).integers(2**63)),
            step_size=self.step_size,
            exploration=self.exploration,
            q0=state["q"],
            visits0=state["visits"],
        )
        return {"q": learned.q, "visits": learned.visits}, [{"step": end, **measure(self.reference, learned.q)}]


class Played(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A problem as an environment that terminates where a state is over and pays noisy rewards.

    Examples
    --------
    >>> from actiongap.experiments.problem import solved
    >>> env = Played(solved("gridworld:1,2", None), reward_noise=0.0)
    >>> env.reset(seed=0)[0], env.step(1)[:3]
    (0, (1, -1.0, True))
    """

    def __init__(self, reference: Reference, reward_noise: float):
        start = reference.alive / reference.alive.sum()
        super().__init__(FiniteEnv(reference.mdp, start=start, max_steps=round(1 / (1 - reference.mdp.gamma))))
        self._over = (~reference.alive).tolist()
        self._reward_noise = reward_noise

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        x, reward, _, truncated, info = self.env.step(action)
        noise = self._reward_noise * self.np_random.standard_normal() if self._reward_noise else 0.0
        return x, float(reward) + noise, self._over[x], truncated, info
