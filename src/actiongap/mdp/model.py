"""Finite Markov decision processes: states 0..S-1, actions 0..A-1, rewards R(x, a), a discount, and next-state distributions.

A `FiniteMDP` is validated on construction and immutable. Its next-state distributions have one of two representations with the same three
methods, which are all that an operator needs from a model:

- `Sparse` lists K successors per pair with their probabilities, padded with probability zero;
- `Dense` holds the full (S, A, S) table.

Both are tuples of arrays of one array library, so moving the arrays to an accelerator moves the model.
"""

from __future__ import annotations

from copy import copy as shallow_copy
from dataclasses import InitVar, dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import ArrayLike

from actiongap.mdp.checks import check_distributions, check_finite, check_indices, check_numbers, read_only, without_broadcast
from actiongap.operators import check_discount


class Sparse(NamedTuple):
    """Next-state distributions as K successors per pair and their probabilities, both (S, A, K). A successor may appear twice."""

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
    """A finite MDP: rewards (S, A), a discount in [0, 1), and next-state distributions. Validated and immutable.

    The arrays are copied by default. `copy=False` avoids a second copy of a large model; do not modify the arrays afterwards.

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
    copy: InitVar[bool] = True
    note: str = ""
    """A sentence about the model that is shown with its results, for example about a state that was added."""

    def __post_init__(self, copy: bool) -> None:
        gamma = check_discount(self.gamma)
        rewards = check_finite("rewards", self.rewards, 2)
        if 0 in rewards.shape:
            raise ValueError(f"rewards have shape {rewards.shape}: an MDP needs at least one state and one action")
        shape, given = (rewards.shape[0], rewards.shape[1]), self.transitions
        if not isinstance(given, (Dense, Sparse)):
            raise TypeError(f"transitions are of type {type(given).__name__}: make the MDP with from_dense or from_successors")
        transitions = _check_sparse(given, shape, copy) if isinstance(given, Sparse) else _check_dense(given, shape, copy)
        object.__setattr__(self, "gamma", gamma)
        object.__setattr__(self, "rewards", read_only(rewards, copy=copy))
        object.__setattr__(self, "transitions", transitions)

    @classmethod
    def from_dense(cls, rewards: ArrayLike, transitions: ArrayLike, gamma: float, name: str = "mdp") -> FiniteMDP:
        """Make an MDP from P(x' | x, a) as an (S, A, S) table."""
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
        copy: bool = True,
    ) -> FiniteMDP:
        """Make an MDP from K successors per pair and their probabilities, both (S, A, K)."""
        return cls(cast(Any, rewards), Sparse(successors, probabilities), gamma, name, copy)

    @property
    def states(self) -> int:
        """Number of states."""
        return self.rewards.shape[0]

    @property
    def actions(self) -> int:
        """Number of actions."""
        return self.rewards.shape[1]

    @property
    def nbytes(self) -> int:
        """Memory of the model in bytes; a row that is broadcast to all pairs counts once."""
        return self.rewards.nbytes + sum(without_broadcast(array).nbytes for array in self.transitions)

    def with_discount(self, gamma: float) -> FiniteMDP:
        """Return the MDP with another discount; the arrays are shared."""
        other = shallow_copy(self)
        object.__setattr__(other, "gamma", check_discount(gamma))
        return other

    def dense(self) -> FiniteMDP:
        """Return the MDP with `Dense` transitions."""
        if isinstance(self.transitions, Dense):
            return self
        table = np.zeros((self.states, self.actions, self.states))
        x, a, _ = np.indices(self.transitions.successors.shape, sparse=True)
        np.add.at(table, (x, a, self.transitions.successors), self.transitions.probabilities)
        return FiniteMDP(self.rewards, Dense(table), self.gamma, self.name, copy=False, note=self.note)

    def sparse(self) -> FiniteMDP:
        """Return the MDP with `Sparse` transitions; K is the largest number of successors of a pair."""
        if isinstance(self.transitions, Sparse):
            return self
        table = self.transitions.probabilities
        width = max(1, int((table > 0).sum(-1).max()))
        # A stable sort by "is zero" moves the successors of each pair to the front, ordered by index.
        successors = np.argsort(table == 0, axis=-1, kind="stable")[..., :width]
        probabilities = np.take_along_axis(table, successors, axis=-1)
        return FiniteMDP(self.rewards, Sparse(successors, probabilities), self.gamma, self.name, copy=False, note=self.note)

    def sparse_transitions(self) -> Sparse:
        """Return the next-state distributions as `Sparse`."""
        transitions = self.sparse().transitions
        assert isinstance(transitions, Sparse)
        return transitions

    def __repr__(self) -> str:
        form = f"{self.transitions.successors.shape[2]} successors" if isinstance(self.transitions, Sparse) else "dense"
        return f"FiniteMDP({self.name}: {self.states} states, {self.actions} actions, {form}, gamma={self.gamma!r})"


def check_model(mdp: Any) -> FiniteMDP:
    """Return a finite MDP, or raise a `TypeError` that says how to make one.

    Examples
    --------
    >>> check_model("cake")
    Traceback (most recent call last):
    TypeError: 'cake' is not a FiniteMDP: make one with load_mdp('cake')
    """
    if isinstance(mdp, FiniteMDP):
        return mdp
    if isinstance(mdp, str):
        raise TypeError(f"{mdp!r} is not a FiniteMDP: make one with load_mdp({mdp!r})")
    remedy = "make one with from_gymnasium(env)" if hasattr(mdp, "observation_space") else "make one with load_mdp or FiniteMDP.from_dense"
    raise TypeError(f"{mdp!s:.100} is not a FiniteMDP: {remedy}")


def _check_sparse(form: Sparse, shape: tuple[int, int], copy: bool) -> Sparse:
    states, actions = shape
    probabilities = check_numbers("probabilities", form.probabilities, 3)
    successors = check_indices("successors", form.successors, 3, "states", states)
    if successors.shape != probabilities.shape or successors.shape[:2] != (states, actions) or successors.shape[2] == 0:
        raise ValueError(
            f"successors have shape {successors.shape} and probabilities {probabilities.shape}: "
            f"with rewards of shape {(states, actions)} both must be ({states}, {actions}, K) with one K of at least 1"
        )
    probabilities = check_distributions("probabilities", probabilities)
    # Unsigned, so that compiled kernels need not handle negative indices.
    return Sparse(read_only(successors, np.uint32, copy=copy), read_only(probabilities, copy=copy))


def _check_dense(form: Dense, shape: tuple[int, int], copy: bool) -> Dense:
    states, actions = shape
    table = check_numbers("transitions", form.probabilities, 3)
    if table.shape != (states, actions, states):
        raise ValueError(
            f"transitions have shape {table.shape}: with rewards of shape {(states, actions)} they must be {(states, actions, states)}"
        )
    return Dense(read_only(check_distributions("transitions", table), copy=copy))
