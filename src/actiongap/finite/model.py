"""Finite Markov decision processes: states 0..S-1, actions 0..A-1, rewards R(x, a), a discount, and next-state distributions.

A `FiniteMDP` cannot be changed and cannot be invalid: it is checked when it is made. Its next-state distributions take one of two forms
that answer the same three questions, which are all that an operator ever asks of a model:

- `Sparse` lists K successors of each pair with their probabilities, padded with probability zero;
- `Dense` holds the full (S, A, S) table.

Both are tuples of arrays of any one library, so a model moves to an accelerator by moving its arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

ROW_SUM_TOLERANCE = 1e-6
"""Rows this close to one are scaled to sum to one exactly (tables stored in float32 are); anything further off is refused."""


class Sparse(NamedTuple):
    """Next-state distributions as K successors of each pair and their probabilities, both (S, A, K). A successor may appear twice."""

    successors: Any
    probabilities: Any

    def expect(self, v):
        """E V(x') for every pair: (S, A)."""
        return (self.probabilities * v[self.successors]).sum(-1)

    def expect_same_action(self, q):
        """E Q(x', a) for every pair: (S, A)."""
        actions = array_namespace(q).arange(q.shape[1])
        return (self.probabilities * q[self.successors, actions[:, None]]).sum(-1)

    def stay(self, states):
        """P(x | x, a) for every pair, where `states` names the states x of the rows held here: (S, A)."""
        return (self.probabilities * (self.successors == states[:, None, None])).sum(-1)

    def rows(self, rows) -> Sparse:
        """The distributions of some states only, or of some pairs."""
        return Sparse(self.successors[rows], self.probabilities[rows])


class Dense(NamedTuple):
    """Next-state distributions as the full table P(x' | x, a), (S, A, S)."""

    probabilities: Any

    def expect(self, v):
        """E V(x') for every pair: (S, A)."""
        return self.probabilities @ v

    def expect_same_action(self, q):
        """E Q(x', a) for every pair: (S, A)."""
        return (self.probabilities * q.T[None, :, :]).sum(-1)

    def stay(self, states):
        """P(x | x, a) for every pair, where `states` names the states x of the rows held here: (S, A)."""
        xp = array_namespace(states)
        return self.probabilities[xp.arange(states.shape[0]), :, states]

    def rows(self, rows) -> Dense:
        """The distributions of some states only, or of some pairs."""
        return Dense(self.probabilities[rows])


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """A finite MDP: rewards (S, A), a discount in [0, 1), and next-state distributions. Checked, and immutable.

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

    def __post_init__(self) -> None:
        gamma = check_discount(self.gamma)
        rewards = _numbers("rewards", self.rewards, 2)
        if 0 in rewards.shape:
            raise ValueError(f"rewards have the shape {rewards.shape}: an MDP needs at least one state and one action")
        _refuse_first("rewards", rewards, ~np.isfinite(rewards), "rewards must be finite numbers")
        form = self.transitions
        checked = _check_sparse(form, *rewards.shape) if isinstance(form, Sparse) else _check_dense(form, *rewards.shape)
        object.__setattr__(self, "gamma", gamma)
        object.__setattr__(self, "rewards", _frozen(rewards))
        object.__setattr__(self, "transitions", checked)

    @classmethod
    def from_dense(cls, rewards, transitions, gamma: float, name: str = "mdp") -> FiniteMDP:
        """An MDP from P(x' | x, a) as an (S, A, S) table."""
        return cls(rewards, Dense(transitions), gamma, name)

    @classmethod
    def from_successors(cls, rewards, successors, probabilities, gamma: float, name: str = "mdp") -> FiniteMDP:
        """An MDP from K successors of each pair and their probabilities, both (S, A, K)."""
        return cls(rewards, Sparse(successors, probabilities), gamma, name)

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
        return self.rewards.nbytes + sum(_owned_bytes(array) for array in self.transitions)

    def with_discount(self, gamma: float) -> FiniteMDP:
        """The same MDP with another discount, sharing its arrays."""
        return FiniteMDP(self.rewards, self.transitions, gamma, self.name)

    def dense(self) -> FiniteMDP:
        """The same MDP in the dense form."""
        if isinstance(self.transitions, Dense):
            return self
        table = np.zeros((self.states, self.actions, self.states))
        x, a, _ = np.indices(self.transitions.successors.shape, sparse=True)
        np.add.at(table, (x, a, self.transitions.successors), self.transitions.probabilities)
        return FiniteMDP(self.rewards, Dense(table), self.gamma, self.name)

    def sparse(self) -> FiniteMDP:
        """The same MDP in the sparse form, with as many successors as the pair that has most."""
        if isinstance(self.transitions, Sparse):
            return self
        table = self.transitions.probabilities
        most = max(1, int((table > 0).sum(-1).max()))
        # A stable sort by "is zero" moves the successors of each pair to the front in order of their index.
        successors = np.argsort(table == 0, axis=-1, kind="stable")[..., :most]
        probabilities = np.take_along_axis(table, successors, axis=-1)
        return FiniteMDP(self.rewards, Sparse(successors, probabilities), self.gamma, self.name)

    def listed(self) -> Sparse:
        """The next-state distributions in the sparse form."""
        form = self.sparse().transitions
        assert isinstance(form, Sparse)
        return form

    def __repr__(self) -> str:
        form = f"{self.transitions.successors.shape[2]} successors" if isinstance(self.transitions, Sparse) else "dense"
        return f"FiniteMDP({self.name}: {self.states} states, {self.actions} actions, {form}, gamma={self.gamma!r})"


def check_discount(gamma) -> float:
    """The discount as a float in [0, 1), or a sentence saying why it is not one."""
    try:
        value = float(gamma)
    except (TypeError, ValueError):
        raise ValueError(f"gamma is {gamma!r}: it must be one number in [0, 1)") from None
    if not 0 <= value < 1:
        raise ValueError(f"gamma is {value!r}: it must lie in [0, 1)")
    return value


def _check_sparse(form: Sparse, states: int, actions: int) -> Sparse:
    probabilities = _numbers("probabilities", form.probabilities, 3)
    successors = np.asarray(form.successors)
    if successors.dtype.kind not in "iu":
        whole = _numbers("successors", successors, 3)
        _refuse_first("successors", whole, whole != np.floor(whole), "successors must be whole numbers, the indices of states")
        successors = whole.astype(np.int64)
    if successors.shape != probabilities.shape or successors.shape[:2] != (states, actions) or successors.shape[2] == 0:
        raise ValueError(
            f"successors have the shape {successors.shape} and probabilities {probabilities.shape}: "
            f"with rewards of shape {(states, actions)} both must be ({states}, {actions}, K) with one K of at least 1"
        )
    if successors.min() < 0 or successors.max() >= states:
        outside = (successors < 0) | (successors >= states)
        _refuse_first("successors", successors, outside, f"successors must be states, from 0 to {states - 1}")
    # Unsigned, so that compiled kernels need not ask whether an index counts from the end.
    return Sparse(_frozen(successors, np.uint32), _frozen(_distributions("probabilities", probabilities)))


def _check_dense(form: Dense, states: int, actions: int) -> Dense:
    table = _numbers("transitions", form.probabilities, 3)
    if table.shape != (states, actions, states):
        raise ValueError(
            f"transitions have the shape {table.shape}: with rewards of shape {(states, actions)} they must be {(states, actions, states)}"
        )
    return Dense(_frozen(_distributions("transitions", table)))


def _distributions(name: str, table: np.ndarray) -> np.ndarray:
    """The table with each row scaled to sum to one, or a sentence naming the first row that is no distribution."""
    unique = _unrepeated(table)
    sums = unique.sum(-1)
    # Sums are a fraction of the table's size and are not finite where an entry is not, so the common case makes no large temporary.
    if not np.isfinite(sums).all():
        _refuse_first(name, unique, ~np.isfinite(unique), "probabilities must be finite numbers")
    if unique.min() < 0:
        _refuse_first(name, unique, unique < 0, "probabilities must not be negative")
    _refuse_first(f"the sum of {name}", sums, np.abs(sums - 1) > ROW_SUM_TOLERANCE, "every row of probabilities must sum to one")
    if (np.abs(sums - 1) <= 4 * np.finfo(float).eps).all():
        return table
    return np.broadcast_to(unique / sums[..., None], table.shape)


def _unrepeated(table: np.ndarray) -> np.ndarray:
    """The part of a table that is really there, where one row is repeated for many states or actions by broadcasting."""
    return table[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in table.strides[:-1])]


def _owned_bytes(table: np.ndarray) -> int:
    return _unrepeated(table).nbytes


def _numbers(name: str, values, dimensions: int) -> np.ndarray:
    try:
        array = np.asarray(values)
        if array.dtype == object:
            raise ValueError
        array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a {dimensions}-dimensional array of numbers with rows of equal length") from None
    if array.ndim != dimensions:
        raise ValueError(f"{name} have {array.ndim} dimensions, not {dimensions}")
    return array


def _refuse_first(name: str, values: np.ndarray, bad: np.ndarray, rule: str) -> None:
    if bad.any():
        where = tuple(int(index) for index in np.argwhere(bad)[0])
        raise ValueError(f"{name}[{', '.join(map(str, where))}] is {values[where]!s}: {rule}")


def _frozen(array: np.ndarray, dtype: type[np.generic] = np.float64) -> np.ndarray:
    """A read-only array that no caller can write to. Repetition by broadcasting is kept, since it saves the memory of the copies."""
    if array.dtype == dtype and not _is_writeable(array):
        return array
    frozen = np.array(_unrepeated(array), dtype=dtype)
    frozen.flags.writeable = False
    return np.broadcast_to(frozen, array.shape) if frozen.shape != array.shape else frozen


def _is_writeable(array: np.ndarray | None) -> bool:
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return array is not None
