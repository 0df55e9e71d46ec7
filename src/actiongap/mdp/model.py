"""Finite Markov decision processes: states 0..S-1, actions 0..A-1, rewards R(x, a), a discount, and next-state distributions.

A `FiniteMDP` is validated on construction and immutable. A state may have fewer actions than others: `available` says which pairs (x, a)
exist. Tables are (S, A) in every case. Where a pair does not exist, rewards are 0, Q is -inf, and there is no gap (NaN).

Next-state distributions have one of the layouts of `transitions`. The constructors from arrays keep the layout of their arguments;
`from_pairs`, `from_matrices`, `from_quantecon` and `from_function` choose the smallest.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy as shallow_copy
from dataclasses import InitVar, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from actiongap.mdp.checks import check_distributions, check_finite, check_indices, check_numbers, normalizer, read_only, without_broadcast
from actiongap.mdp.pairs import (
    Pairs,
    Step,
    check_action_sets,
    check_rows,
    from_function,
    from_matrices,
    from_pairs,
    pairs_of_quantecon,
)
from actiongap.mdp.transitions import Dense, Ragged, Sparse, Transitions, as_dense, as_ragged, as_sparse, choose_layout, index_type
from actiongap.operators import check_discount


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
    transitions: Transitions
    gamma: float
    name: str = "mdp"
    copy: InitVar[bool] = True
    note: str = ""
    """A sentence about the model that is shown with its results, for example about a state that was added."""
    available: np.ndarray | None = None
    """Which pairs (x, a) exist (S, A), or None if every state has every action."""

    def __post_init__(self, copy: bool) -> None:
        gamma = check_discount(self.gamma)
        given = self.transitions
        table = check_numbers("rewards", self.rewards, 2)
        if 0 in table.shape:
            raise ValueError(f"rewards have shape {table.shape}: an MDP needs at least one state and one action")
        shape = (table.shape[0], table.shape[1])
        if not isinstance(given, (Dense, Sparse, Ragged)):
            raise TypeError(f"transitions are of type {type(given).__name__}: make the MDP with from_dense or from_successors")
        # The rows of ragged transitions say which pairs exist, so they are checked first.
        given = _check_ragged(given, shape, copy) if isinstance(given, Ragged) else given
        available = _check_available(self.available, given, shape)
        rewards = check_finite("rewards", table if available is None else np.where(available, table, 0.0), 2)
        if isinstance(given, Ragged):
            transitions = given
        else:
            check = _check_sparse if isinstance(given, Sparse) else _check_dense
            transitions = check(cast(Any, given), shape, available, copy)
        object.__setattr__(self, "gamma", gamma)
        object.__setattr__(self, "rewards", read_only(rewards, copy=copy))
        object.__setattr__(self, "transitions", transitions)
        object.__setattr__(self, "available", None if available is None else read_only(available, np.bool_, copy=copy))

    @classmethod
    def from_dense(
        cls, rewards: ArrayLike, transitions: ArrayLike, gamma: float, name: str = "mdp", *, available: ArrayLike | None = None
    ) -> FiniteMDP:
        """Make an MDP from P(x' | x, a) as an (S, A, S) table. Rewards are R(x, a), or R(x, a, x') of the same shape as the table.

        `available` says which pairs exist (S, A); the rows of others are ignored.

        Examples
        --------
        >>> FiniteMDP.from_dense([[[1.0, 3.0]], [[0.0, 0.0]]], [[[0.5, 0.5]], [[0.0, 1.0]]], gamma=0.5).rewards.tolist()
        [[2.0], [0.0]]
        """
        rewards = _mean_rewards(rewards, transitions)
        return cls(cast(Any, rewards), Dense(transitions), gamma, name, available=cast(Any, available))

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
        available: ArrayLike | None = None,
    ) -> FiniteMDP:
        """Make an MDP from K successors per pair and their probabilities, both (S, A, K). Rewards are R(x, a), or R(x, a, x'), (S, A, K).

        `available` says which pairs exist (S, A); the rows of others are ignored.

        Examples
        --------
        >>> FiniteMDP.from_successors([[1.0, 0.0]], [[[0], [0]]], [[[1.0], [1.0]]], gamma=0.5, available=[[True, False]]).pairs
        1
        """
        rewards = _mean_rewards(rewards, probabilities)
        return cls(cast(Any, rewards), Sparse(successors, probabilities), gamma, name, copy, available=cast(Any, available))

    @classmethod
    def from_pairs(
        cls, states: ArrayLike, actions: ArrayLike, rewards: Any, transitions: Any, gamma: float, name: str = "mdp"
    ) -> FiniteMDP:
        """Make an MDP from the pairs (x, a) that exist, in any order: the convention of QuantEcon.

        Parameters
        ----------
        states
            The state of each pair.
        actions
            The action of each pair. The actions of a state need not be consecutive.
        rewards
            R(x, a), one number per pair; or R(x, a, x'), a matrix of the shape of `transitions`.
        transitions
            P(x' | x, a): a matrix with one row per pair and one column per state, SciPy's or an array.
        gamma
            The discount, in [0, 1).
        name
            The name of the model.

        Examples
        --------
        >>> stay_or_leave = FiniteMDP.from_pairs([0, 0, 1], [0, 1, 0], [1.0, 0.0, 3.0], [[1, 0], [0, 1], [0, 1]], gamma=0.5)
        >>> stay_or_leave
        FiniteMDP(mdp: 2 states, 2 actions, 3 pairs, 1 successor, gamma=0.5)
        """
        # The rows may be the caller's, so they are copied.
        return cls._from_pairs(from_pairs(states, actions, rewards, transitions), gamma, name, copy=True)

    @classmethod
    def from_matrices(cls, transitions: Any, rewards: Any, gamma: float, name: str = "mdp") -> FiniteMDP:
        """Make an MDP from one (S, S) matrix of probabilities per action, SciPy's or arrays: the convention of mdptoolbox.

        Rewards are R(x, a) as (S, A), R(x) as (S,), or R(x, a, x') as one matrix per action. A row without probabilities is an action that
        its state does not have.

        Examples
        --------
        >>> FiniteMDP.from_matrices([[[1, 0], [0, 1]], [[0, 1], [1, 0]]], rewards=[0.0, 1.0], gamma=0.5).rewards.tolist()
        [[0.0, 0.0], [1.0, 1.0]]
        """
        return cls._from_pairs(from_matrices(transitions, rewards), gamma, name)

    @classmethod
    def from_quantecon(cls, ddp: Any, name: str = "mdp") -> FiniteMDP:
        """Make an MDP from a `quantecon.markov.DiscreteDP`. Pairs whose reward is -inf are left out, as QuantEcon does.

        Examples
        --------
        >>> from quantecon.markov import DiscreteDP
        >>> ddp = DiscreteDP([[5.0, 10.0], [-1.0, -float("inf")]], [[[0.5, 0.5], [0, 1]], [[0, 1], [0.5, 0.5]]], beta=0.95)
        >>> FiniteMDP.from_quantecon(ddp).pairs
        3
        """
        states, actions, rewards, transitions, gamma = pairs_of_quantecon(ddp)
        return cls.from_pairs(states, actions, rewards, transitions, gamma, name)

    @classmethod
    def from_function(
        cls,
        step: Step,
        states: int,
        actions: int,
        gamma: float,
        name: str = "mdp",
        *,
        available: Callable[[Any, Any], Any] | None = None,
        vectorized: bool = True,
        progress: bool | None = None,
    ) -> FiniteMDP:
        """Make an MDP from a function of state and action, called block by block.

        Parameters
        ----------
        step
            Maps arrays of n states and actions to rewards (n,), or (n, K) if they depend on the successor, successors (n, K), and their
            probabilities (n, K) or (K,). Pairs with fewer than K successors repeat one with probability 0.
        states, actions
            Number of states, and the largest number of actions of a state.
        gamma
            The discount, in [0, 1).
        name
            The name of the model.
        available
            Maps arrays of states and actions to which of these pairs exist; by default all do.
        vectorized
            If false, `step` and `available` take one state and one action. `step` then returns lists of any length. It may be a compiled
            function.
        progress
            Whether to show progress. By default, only if it takes longer than two seconds.

        Examples
        --------
        >>> def serve(x, a):
        ...     return -x - 2.0 * a, [min(x + 1, 3), max(x - a, 0)], [0.4, 0.6]
        >>> queue = FiniteMDP.from_function(serve, 4, 2, 0.9, "queue", available=lambda x, a: a == 0 or x > 0, vectorized=False)
        >>> queue.pairs
        7
        """
        pairs = from_function(step, states, actions, available=available, vectorized=vectorized, progress=progress, name=name)
        return cls._from_pairs(pairs, gamma, name)

    @classmethod
    def _from_pairs(cls, pairs: Pairs, gamma: float, name: str, *, copy: bool = False) -> FiniteMDP:
        probabilities, available = check_rows(pairs.transitions), pairs.transitions.lengths > 0
        check_action_sets(available)
        form = choose_layout(pairs.transitions._replace(probabilities=probabilities), len(available))
        return cls(pairs.rewards, form, gamma, name, copy and isinstance(form, Ragged), available=None if available.all() else available)

    @property
    def states(self) -> int:
        """Number of states."""
        return self.rewards.shape[0]

    @property
    def actions(self) -> int:
        """Number of actions, the largest of any state."""
        return self.rewards.shape[1]

    @property
    def pairs(self) -> int:
        """Number of pairs (x, a) that exist."""
        return self.rewards.size if self.available is None else int(self.available.sum())

    @property
    def nbytes(self) -> int:
        """Memory of the model in bytes; a row that is broadcast to all pairs counts once."""
        arrays = [self.rewards, *self.transitions, *([] if self.available is None else [self.available])]
        # The starts and ends of ragged rows are views of one array.
        shared = self.transitions.ends.nbytes if isinstance(self.transitions, Ragged) else 0
        return sum(without_broadcast(array).nbytes for array in arrays) - shared

    def masked(self, table: Any, fill: Any = -np.inf) -> Any:
        """Return a table (S, A) with `fill` where the pair does not exist.

        Examples
        --------
        >>> one = FiniteMDP.from_dense([[1.0, 0.0]], [[[1.0], [1.0]]], gamma=0.5, available=[[True, False]])
        >>> one.masked(one.rewards).tolist()
        [[1.0, -inf]]
        """
        return table if self.available is None else np.where(self.available, table, fill)

    def actions_of(self, x: int) -> np.ndarray:
        """Return the actions of a state, in increasing order.

        Examples
        --------
        >>> FiniteMDP.from_pairs([0, 0], [1, 3], [1.0, 0.0], [[1.0], [1.0]], gamma=0.5).actions_of(0).tolist()
        [1, 3]
        """
        return np.arange(self.actions) if self.available is None else np.flatnonzero(self.available[x])

    def with_discount(self, gamma: float) -> FiniteMDP:
        """Return the MDP with another discount; the arrays are shared."""
        other = shallow_copy(self)
        object.__setattr__(other, "gamma", check_discount(gamma))
        return other

    def dense(self) -> FiniteMDP:
        """Return the MDP with `Dense` transitions."""
        return self._with_layout(as_dense(self.transitions, self.states))

    def sparse(self) -> FiniteMDP:
        """Return the MDP with `Sparse` transitions; K is the largest number of successors of a pair."""
        return self._with_layout(as_sparse(self.transitions))

    def ragged(self) -> FiniteMDP:
        """Return the MDP with `Ragged` transitions.

        Examples
        --------
        >>> from actiongap.mdp.generators import cake
        >>> cake().ragged().transitions.lengths.tolist()
        [[2, 1], [1, 1]]
        """
        return self._with_layout(as_ragged(self.transitions, self.available))

    def _with_layout(self, form: Transitions) -> FiniteMDP:
        if form is self.transitions:
            return self
        return FiniteMDP(self.rewards, form, self.gamma, self.name, copy=False, note=self.note, available=self.available)

    def sparse_transitions(self) -> Sparse:
        """Return the next-state distributions as `Sparse`."""
        transitions = self.sparse().transitions
        assert isinstance(transitions, Sparse)
        return transitions

    def __repr__(self) -> str:
        form, shape = self.transitions, f"{self.states} states, {self.actions} actions"
        if self.available is not None:
            shape += f", {self.pairs} pairs"
        most = f"{form.width} successor{'s' * (form.width != 1)}"
        layout = "dense" if isinstance(form, Dense) else f"at most {most}" if isinstance(form, Ragged) else most
        return f"FiniteMDP({self.name}: {shape}, {layout}, gamma={self.gamma!r})"


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


def _mean_rewards(rewards: ArrayLike, probabilities: ArrayLike) -> ArrayLike:
    """Return R(x, a) of rewards that may depend on the successor: R(x, a, x'), of the shape of the probabilities."""
    if isinstance(rewards, np.ndarray) and rewards.ndim == 2:
        return rewards
    try:
        each = np.asarray(rewards)
    except ValueError:
        return rewards
    if each.ndim != 3:
        return rewards
    weights = check_numbers("probabilities", probabilities, 3)
    if each.shape != weights.shape:
        raise ValueError(f"rewards have shape {each.shape} and probabilities {weights.shape}: give R(x, a), or one reward per probability")
    return (np.where(weights != 0, check_numbers("rewards", each, 3), 0.0) * weights).sum(-1) / normalizer(weights.sum(-1))


def _check_available(available: Any, form: Transitions, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return which pairs exist, or None if all do. Ragged rows are empty where a pair does not exist."""
    if isinstance(form, Ragged):
        listed = form.lengths > 0
        if available is not None and not np.array_equal(listed, available):
            raise ValueError("available differs from the rows of transitions that are not empty: leave it out")
        available = listed
    if available is None:
        return None
    given = np.asarray(available)
    if given.dtype != bool or given.shape != shape:
        raise ValueError(f"available is {given.dtype} of shape {given.shape}: give one truth value per pair, {shape}")
    check_action_sets(given)
    return None if given.all() else given


def _check_sparse(form: Sparse, shape: tuple[int, int], available: np.ndarray | None, copy: bool) -> Sparse:
    states, actions = shape
    probabilities = check_numbers("probabilities", form.probabilities, 3)
    given = form.successors
    if available is not None and np.shape(given)[:2] == shape:
        given = np.where(available[..., None], given, 0)
    successors = check_indices("successors", given, 3, "states", states)
    if successors.shape != probabilities.shape or successors.shape[:2] != (states, actions) or successors.shape[2] == 0:
        raise ValueError(
            f"successors have shape {successors.shape} and probabilities {probabilities.shape}: "
            f"with rewards of shape {(states, actions)} both must be ({states}, {actions}, K) with one K of at least 1"
        )
    probabilities = _check_available_rows("probabilities", probabilities, available)
    # Unsigned, so that compiled kernels need not handle negative indices.
    return Sparse(read_only(successors, np.uint32, copy=copy), read_only(probabilities, copy=copy))


def _check_dense(form: Dense, shape: tuple[int, int], available: np.ndarray | None, copy: bool) -> Dense:
    states, actions = shape
    table = check_numbers("transitions", form.probabilities, 3)
    if table.shape != (states, actions, states):
        raise ValueError(
            f"transitions have shape {table.shape}: with rewards of shape {(states, actions)} they must be {(states, actions, states)}"
        )
    return Dense(read_only(_check_available_rows("transitions", table, available), copy=copy))


def _check_available_rows(name: str, table: np.ndarray, available: np.ndarray | None) -> np.ndarray:
    """Return the table with rows that sum to one where the pair exists, and to zero elsewhere."""
    if available is None:
        return check_distributions(name, table)
    # Rows of missing pairs are replaced by some distribution, so that the check passes and its errors name the right row.
    some = np.zeros(table.shape[-1])
    some[0] = 1.0
    rows = check_distributions(name, np.where(available[..., None], table, some))
    return np.where(available[..., None], rows, 0.0)


def _check_ragged(form: Ragged, shape: tuple[int, int], copy: bool) -> Ragged:
    states = shape[0]
    starts = check_indices("starts", form.starts, 2, "entries", 2**63 - 1)
    ends = check_indices("ends", form.ends, 2, "entries", 2**63 - 1)
    probabilities = check_numbers("probabilities", form.probabilities, 1)
    successors = check_indices("successors", form.successors, 1, "states", states)
    pointers = np.append(starts.ravel(), ends[-1:, -1:])
    if starts.shape != shape or ends.shape != shape or len(successors) != len(probabilities):
        raise ValueError(
            f"starts have shape {starts.shape}, ends {ends.shape}, and there are {len(successors)} successors and {len(probabilities)} "
            f"probabilities: with rewards of shape {shape} starts and ends must be {shape}, with as many successors as probabilities"
        )
    if pointers[0] != 0 or (np.diff(pointers) < 0).any() or not (starts.ravel()[1:] == ends.ravel()[:-1]).all():
        raise ValueError("starts and ends must list the rows one after another from 0: sort the successors by state and action")
    if pointers[-1] != len(successors):
        raise ValueError(
            f"the rows have {pointers[-1]} successors, but {len(successors)} are given: give one start per row and the last end"
        )
    kept = read_only(successors, index_type(states), copy=copy)
    form = Ragged.from_lengths(ends - starts, kept, probabilities)
    return form._replace(probabilities=read_only(check_rows(form), copy=copy))
