"""Finite Markov decision processes: states 0..S-1, actions 0..A-1, rewards R(x, a), a discount, and next-state distributions.

A `FiniteMDP` cannot be changed and cannot be invalid: it is checked when it is made. Its next-state distributions take one of two forms
that answer the same three questions, which are all that an operator ever asks of a model:

- `Sparse` lists K successors of each pair with their probabilities, padded with probability zero;
- `Dense` holds the full (S, A, S) table.

Both are tuples of arrays of any one library, so a model moves to an accelerator by moving its arrays.
"""

from __future__ import annotations

from copy import copy
from dataclasses import InitVar, dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import ArrayLike

from actiongap.mdp.checks import check_distributions, check_finite, check_indices, check_numbers, frozen, unrepeated
from actiongap.operators import check_discount


class Sparse(NamedTuple):
    """Next-state distributions as K successors of each pair and their probabilities, both (S, A, K). A successor may appear twice."""

    successors: Any
    probabilities: Any

    def expect(self, v: Any) -> Any:
        """E V(x') for every pair: (S, A)."""
        return (self.probabilities * v[self.successors]).sum(-1)

    def expect_same_action(self, q: Any) -> Any:
        """E Q(x', a) for every pair: (S, A)."""
        actions = array_namespace(q).arange(q.shape[1])
        return (self.probabilities * q[self.successors, actions[:, None]]).sum(-1)

    def stay(self, states: Any) -> Any:
        """P(x | x, a) for every pair, where `states` names the states x of the rows held here: (S, A)."""
        return (self.probabilities * (self.successors == states[:, None, None])).sum(-1)

    def rows(self, rows: Any) -> Sparse:
        """The distributions of some states only, or of some pairs."""
        return Sparse(self.successors[rows], self.probabilities[rows])


class Dense(NamedTuple):
    """Next-state distributions as the full table P(x' | x, a), (S, A, S)."""

    probabilities: Any

    def expect(self, v: Any) -> Any:
        """E V(x') for every pair: (S, A)."""
        return self.probabilities @ v

    def expect_same_action(self, q: Any) -> Any:
        """E Q(x', a) for every pair: (S, A)."""
        return (self.probabilities * q.T[None, :, :]).sum(-1)

    def stay(self, states: Any) -> Any:
        """P(x | x, a) for every pair, where `states` names the states x of the rows held here: (S, A)."""
        xp = array_namespace(states)
        return self.probabilities[xp.arange(states.shape[0]), :, states]

    def rows(self, rows: Any) -> Dense:
        """The distributions of some states only, or of some pairs."""
        return Dense(self.probabilities[rows])


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """A finite MDP: rewards (S, A), a discount in [0, 1), and next-state distributions. Checked, and immutable.

    The arrays are copied, unless they are `handed_over`: whoever hands them over promises to let go of them. That is for makers of large
    models, for which a second copy would be too much.

    Examples
    --------
    >>> mdp = FiniteMDP.from_dense(rewards=[[1.0, 0.0]], transitions=[[[1.0], [1.0]]], gamma=0.5)
    >>> mdp.states, mdp.actions
    (1, 2)
    """

    rewards: np.ndarray
    transitions: Sparse | Dense
    gamma: float
    name: str = "mdp"
    handed_over: InitVar[bool] = False

    def __post_init__(self, handed_over: bool) -> None:
        gamma = check_discount(self.gamma)
        rewards = check_finite("rewards", self.rewards, 2)
        if 0 in rewards.shape:
            raise ValueError(f"rewards have the shape {rewards.shape}: an MDP needs at least one state and one action")
        (states, actions), form = rewards.shape, self.transitions
        if isinstance(form, Sparse):
            form = _check_sparse(form, states, actions, handed_over)
        else:
            form = _check_dense(form, states, actions, handed_over)
        object.__setattr__(self, "gamma", gamma)
        object.__setattr__(self, "rewards", frozen(rewards, handed_over=handed_over))
        object.__setattr__(self, "transitions", form)

    @classmethod
    def from_dense(cls, rewards: ArrayLike, transitions: ArrayLike, gamma: float, name: str = "mdp") -> FiniteMDP:
        """An MDP from P(x' | x, a) as an (S, A, S) table."""
        return cls(cast(Any, rewards), Dense(transitions), gamma, name)

    @classmethod
    def from_successors(
        cls,
        rewards: ArrayLike,
        successors: ArrayLike,
        probabilities: ArrayLike,
        gamma: float,
        name: str = "mdp",
        *,
        handed_over: bool = False,
    ) -> FiniteMDP:
        """An MDP from K successors of each pair and their probabilities, both (S, A, K)."""
        return cls(cast(Any, rewards), Sparse(successors, probabilities), gamma, name, handed_over)

    @property
    def states(self) -> int:
        """How many states there are."""
        return self.rewards.shape[0]

    @property
    def actions(self) -> int:
        """How many actions there are."""
        return self.rewards.shape[1]

    @property
    def nbytes(self) -> int:
        """Memory of the model; a table that repeats one row for every pair counts once."""
        return self.rewards.nbytes + sum(unrepeated(array).nbytes for array in self.transitions)

    def with_discount(self, gamma: float) -> FiniteMDP:
        """The same MDP with another discount, sharing its arrays."""
        other = copy(self)
        object.__setattr__(other, "gamma", check_discount(gamma))
        return other

    def dense(self) -> FiniteMDP:
        """The same MDP in the dense form."""
        if isinstance(self.transitions, Dense):
            return self
        table = np.zeros((self.states, self.actions, self.states))
        x, a, _ = np.indices(self.transitions.successors.shape, sparse=True)
        np.add.at(table, (x, a, self.transitions.successors), self.transitions.probabilities)
        return FiniteMDP(self.rewards, Dense(table), self.gamma, self.name, handed_over=True)

    def sparse(self) -> FiniteMDP:
        """The same MDP in the sparse form, with as many successors as the pair that has most."""
        if isinstance(self.transitions, Sparse):
            return self
        table = self.transitions.probabilities
        most = max(1, int((table > 0).sum(-1).max()))
        # A stable sort by "is zero" moves the successors of each pair to the front in order of their index.
        successors = np.argsort(table == 0, axis=-1, kind="stable")[..., :most]
        probabilities = np.take_along_axis(table, successors, axis=-1)
        return FiniteMDP(self.rewards, Sparse(successors, probabilities), self.gamma, self.name, handed_over=True)

    def listed(self) -> Sparse:
        """The next-state distributions in the sparse form."""
        form = self.sparse().transitions
        assert isinstance(form, Sparse)
        return form

    def __repr__(self) -> str:
        form = f"{self.transitions.successors.shape[2]} successors" if isinstance(self.transitions, Sparse) else "dense"
        return f"FiniteMDP({self.name}: {self.states} states, {self.actions} actions, {form}, gamma={self.gamma!r})"


def _check_sparse(form: Sparse, states: int, actions: int, handed_over: bool) -> Sparse:
    probabilities = check_numbers("probabilities", form.probabilities, 3)
    successors = check_indices("successors", form.successors, 3, "states", states)
    if successors.shape != probabilities.shape or successors.shape[:2] != (states, actions) or successors.shape[2] == 0:
        raise ValueError(
            f"successors have the shape {successors.shape} and probabilities {probabilities.shape}: "
            f"with rewards of shape {(states, actions)} both must be ({states}, {actions}, K) with one K of at least 1"
        )
    probabilities = check_distributions("probabilities", probabilities)
    # Unsigned, so that compiled kernels need not ask whether an index counts from the end.
    return Sparse(frozen(successors, np.uint32, handed_over=handed_over), frozen(probabilities, handed_over=handed_over))


def _check_dense(form: Dense, states: int, actions: int, handed_over: bool) -> Dense:
    table = check_numbers("transitions", form.probabilities, 3)
    if table.shape != (states, actions, states):
        raise ValueError(
            f"transitions have the shape {table.shape}: with rewards of shape {(states, actions)} they must be {(states, actions, states)}"
        )
    return Dense(frozen(check_distributions("transitions", table), handed_over=handed_over))
