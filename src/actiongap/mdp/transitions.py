"""Next-state distributions of the pairs (x, a), in one of three layouts with the same methods.

These methods are all that an operator needs of a model.

- `Dense` holds the full (S, A, S) table.
- `Sparse` lists K successors per pair with their probabilities, padded with probability zero.
- `Ragged` lists the successors of one pair after those of another, each pair with as many as it has (compressed sparse rows). A pair
  without successors is an action that its state does not have.

All are tuples of arrays, so moving the arrays of `Dense` and `Sparse` to an accelerator moves the model. `choose_layout` takes the smallest
one of the three. Models whose action sets differ by state may use any of them: in `Dense` and `Sparse`, rows of missing actions are zero.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from scipy import sparse


class Sparse(NamedTuple):
    """Next-state distributions as K successors per pair and their probabilities, both (S, A, K). A successor may appear twice."""

    successors: Any
    probabilities: Any

    @property
    def width(self) -> int:
        """The largest number of successors of a pair."""
        return self.successors.shape[-1]

    @property
    def entries(self) -> int:
        """Number of probabilities that a sweep reads."""
        return math.prod(self.successors.shape)

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

    def blocks(self, entries: int) -> list[slice]:
        """Split the states into blocks of about this number of probabilities."""
        return _even_blocks(self.successors.shape, entries)

    def matrix(self, states: int) -> sparse.csr_array:
        """One row per pair, in order, and one column per state."""
        # SciPy's matrix products are faster with 32-bit indices.
        index = np.int32 if max(self.successors.size, states) < 2**31 else np.int64
        starts = np.arange(0, self.successors.size + 1, self.width, dtype=index)
        contents = (self.probabilities.ravel(), self.successors.ravel().astype(index), starts)
        return sparse.csr_array(contents, shape=(len(starts) - 1, states))


class Dense(NamedTuple):
    """Next-state distributions as the full table P(x' | x, a), (S, A, S)."""

    probabilities: Any

    @property
    def width(self) -> int:
        """The largest number of successors of a pair."""
        return self.probabilities.shape[-1]

    @property
    def entries(self) -> int:
        """Number of probabilities that a sweep reads."""
        return math.prod(self.probabilities.shape)

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

    def blocks(self, entries: int) -> list[slice]:
        """Split the states into blocks of about this number of probabilities."""
        return _even_blocks(self.probabilities.shape, entries)

    def matrix(self, states: int) -> sparse.csr_array:
        """One row per pair, in order, and one column per state."""
        return sparse.csr_array(self.probabilities.reshape(-1, states))


class Ragged(NamedTuple):
    """Next-state distributions of different lengths: the successors of pair (x, a) are entries `starts[x, a]` to `ends[x, a] - 1`.

    `starts` and `ends` are (S, A), `successors` and `probabilities` are one-dimensional. Selecting rows copies no entries.

    Examples
    --------
    >>> both = Ragged.from_lengths(np.array([[1, 2]]), np.array([0, 0, 1]), np.array([1.0, 0.5, 0.5]))
    >>> both.expect(np.array([4.0, 8.0])).tolist()
    [[4.0, 6.0]]
    """

    starts: Any
    ends: Any
    successors: Any
    probabilities: Any

    @classmethod
    def from_lengths(cls, lengths: np.ndarray, successors: np.ndarray, probabilities: np.ndarray) -> Ragged:
        """Make the distributions of consecutive rows from the number of successors of each pair (S, A)."""
        pointers = np.zeros(lengths.size + 1, dtype=np.int64)
        np.cumsum(lengths.ravel(), out=pointers[1:])
        # Both are read-only views of one array.
        pointers.flags.writeable = False
        return cls(pointers[:-1].reshape(lengths.shape), pointers[1:].reshape(lengths.shape), successors, probabilities)

    @property
    def lengths(self) -> np.ndarray:
        """Number of successors of each pair."""
        return self.ends - self.starts

    @property
    def width(self) -> int:
        """The largest number of successors of a pair."""
        return int(self.lengths.max(initial=0))

    @property
    def entries(self) -> int:
        """Number of probabilities that a sweep reads."""
        return int(self.lengths.sum())

    def expect(self, v: Any) -> Any:
        """E V(x') for every pair, zero where there is none: (S, A)."""
        return (self.matrix(len(v)) @ v).reshape(self.starts.shape)

    def expect_same_action(self, q: Any) -> Any:
        """E Q(x', a) for every pair: (S, A)."""
        pointers, successors, probabilities = self.packed()
        actions = np.broadcast_to(np.arange(self.starts.shape[1]), self.starts.shape)
        return self._sums(pointers, probabilities * q[successors, self._repeated(pointers, actions)])

    def stay(self, states: Any) -> Any:
        """P(x | x, a) for every pair, where `states` names the states x of the rows held here: (S, A)."""
        pointers, successors, probabilities = self.packed()
        here = self._repeated(pointers, np.broadcast_to(states[:, None], self.starts.shape))
        return self._sums(pointers, probabilities * (successors == here))

    def rows(self, rows: Any) -> Ragged:
        """The distributions of some states only, or of some pairs."""
        return Ragged(self.starts[rows], self.ends[rows], self.successors, self.probabilities)

    def blocks(self, entries: int) -> list[slice]:
        """Split the states into blocks of about this number of probabilities; a state is not split."""
        if not len(self.starts):
            return []
        done = np.append(self.starts[:, 0], self.ends[-1, -1])
        cuts = np.searchsorted(done, np.arange(done[0], done[-1], entries))
        edges = np.unique([0, *cuts, len(done) - 1])
        return [slice(int(first), int(last)) for first, last in itertools.pairwise(edges)]

    def packed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows held here as the pointers, column indices and values of compressed sparse rows, without a copy if possible."""
        starts, ends = np.ravel(self.starts), np.ravel(self.ends)
        pointers = np.zeros(len(starts) + 1, dtype=np.int64)
        np.cumsum(ends - starts, out=pointers[1:])
        if not len(starts) or (starts[1:] == ends[:-1]).all():
            here = slice(int(starts[0]), int(ends[-1])) if len(starts) else slice(0, 0)
        else:
            here = np.repeat(starts - pointers[:-1], ends - starts) + np.arange(pointers[-1])
        return pointers, self.successors[here], self.probabilities[here]

    def matrix(self, states: int) -> sparse.csr_array:
        """One row per pair, in order, and one column per state."""
        pointers, successors, probabilities = self.packed()
        if len(successors) < 2**31:
            pointers = pointers.astype(successors.dtype)
        return sparse.csr_array((probabilities, successors, pointers), shape=(len(pointers) - 1, states))

    def _repeated(self, pointers: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.repeat(values.ravel(), np.diff(pointers))

    def _sums(self, pointers: np.ndarray, values: np.ndarray) -> np.ndarray:
        sums, filled = np.zeros(len(pointers) - 1), np.diff(pointers) > 0
        if filled.any():
            sums[filled] = np.add.reduceat(values, pointers[:-1][filled])
        return sums.reshape(self.starts.shape)


Transitions = Dense | Sparse | Ragged


def _even_blocks(shape: tuple[int, ...], entries: int) -> list[slice]:
    block = max(1, entries // max(1, math.prod(shape[1:])))
    return [slice(first, min(first + block, shape[0])) for first in range(0, shape[0], block)]


SMALL_TABLE = 1 << 22
"""A dense table of at most this number of probabilities may be chosen where it is smaller than lists of successors."""
PADDING = 1.25
"""Rows of different lengths are padded if that takes at most this factor of memory: a fixed number of successors is faster."""


def choose_layout(form: Ragged, states: int) -> Transitions:
    """Return the distributions in the layout that is smallest, with a preference for the faster ones.

    Examples
    --------
    >>> form = Ragged.from_lengths(np.array([[1], [2]]), np.array([1, 0, 1]), np.array([1.0, 0.5, 0.5]))
    >>> type(choose_layout(form, 2)).__name__
    'Dense'
    """
    pairs, entries = form.starts.size, form.entries
    ragged, padded, dense = entries * 12 + pairs * 8, pairs * form.width * 12, pairs * states * 8
    if dense <= PADDING * min(ragged, padded) and pairs * states <= SMALL_TABLE:
        return as_dense(form, states)
    return as_sparse(form) if padded <= PADDING * ragged else form


def as_dense(form: Transitions, states: int) -> Dense:
    """Return the distributions as the full table; probabilities of a successor that is listed twice are added.

    Examples
    --------
    >>> as_dense(Sparse(np.array([[[1, 1]]]), np.array([[[0.5, 0.5]]])), states=2).probabilities.tolist()
    [[[0.0, 1.0]]]
    """
    if isinstance(form, Dense):
        return form
    shape = form.starts.shape if isinstance(form, Ragged) else form.successors.shape[:2]
    if isinstance(form, Ragged):
        return Dense(form.matrix(states).toarray().reshape(*shape, states))
    table = np.zeros((*shape, states))
    x, a, _ = np.indices(form.successors.shape, sparse=True)
    np.add.at(table, (x, a, form.successors), form.probabilities)
    return Dense(table)


def as_sparse(form: Transitions) -> Sparse:
    """Return the distributions as K successors per pair, where K is the largest number of successors of a pair.

    Examples
    --------
    >>> as_sparse(Dense(np.array([[[0.0, 1.0, 0.0]]]))).successors.tolist()
    [[[1]]]
    """
    if isinstance(form, Sparse):
        return form
    if isinstance(form, Ragged):
        pointers, successors, probabilities = form.packed()
        shape = (*form.starts.shape, max(1, form.width))
        place = np.repeat(np.arange(len(pointers) - 1) * shape[-1] - pointers[:-1], np.diff(pointers)) + np.arange(pointers[-1])
        listed, weights = np.zeros(shape, np.uint32), np.zeros(shape)
        listed.reshape(-1)[place], weights.reshape(-1)[place] = successors, probabilities
        return Sparse(listed, weights)
    table = form.probabilities
    width = max(1, int((table > 0).sum(-1).max()))
    # A stable sort by "is zero" moves the successors of each pair to the front, ordered by index.
    successors = np.argsort(table == 0, axis=-1, kind="stable")[..., :width]
    return Sparse(successors, np.take_along_axis(table, successors, axis=-1))


def as_ragged(form: Transitions, available: np.ndarray | None = None) -> Ragged:
    """Return the distributions as rows of different lengths, without successors of probability zero and without missing actions.

    Examples
    --------
    >>> as_ragged(Dense(np.array([[[0.0, 1.0, 0.0]]]))).successors.tolist()
    [1]
    """
    if isinstance(form, Ragged):
        return form
    probabilities = np.asarray(form.probabilities)
    kept = probabilities > 0 if available is None else (probabilities > 0) & available[..., None]
    states = probabilities.shape[-1] if isinstance(form, Dense) else len(probabilities)
    index = index_type(states)
    successors = np.nonzero(kept)[2].astype(index) if isinstance(form, Dense) else form.successors[kept].astype(index)
    return Ragged.from_lengths(kept.sum(-1), successors, probabilities[kept])


def index_type(states: int) -> type[np.signedinteger]:
    """Return the type of successors in `Ragged`: SciPy multiplies such rows without a copy.

    Examples
    --------
    >>> index_type(10).__name__
    'int32'
    """
    return np.int32 if states < 2**31 else np.int64
