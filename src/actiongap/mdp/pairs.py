"""Models as lists of state-action pairs: arrays of pairs, or functions, turned into tables (S, A) and rows of next-state probabilities.

A model whose action sets differ by state is a list of the pairs (x, a) that exist. Here such lists are validated and sorted. The result is
a `Pairs`: rewards (S, A), which are zero where a pair does not exist, and `Ragged` next-state distributions, whose rows are empty there.
Errors name the pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from actiongap._progress import StepProgress
from actiongap._system import free_memory
from actiongap.mdp.checks import ROW_SUM_TOLERANCE, check_finite, check_indices, check_numbers, check_whole, normalizer
from actiongap.mdp.transitions import Ragged, index_type

MAX_STATES = 2**32 - 1
"""Maximum number of states: successor indices have 32 bits."""


class Pairs(NamedTuple):
    """The rewards (S, A) and the next-state distributions of the pairs that exist."""

    rewards: np.ndarray
    transitions: Ragged


def from_pairs(states: Any, actions: Any, rewards: Any, transitions: Any) -> Pairs:
    """Sort and check pairs (x, a), one row of `transitions` (pairs, S) each, with rewards R(x, a) or R(x, a, x').

    Examples
    --------
    >>> pairs = from_pairs([1, 0, 0], [0, 1, 0], [5.0, 0.0, 1.0], sparse.csr_array([[0, 1], [1, 0], [0.5, 0.5]]))
    >>> pairs.rewards.tolist(), pairs.transitions.lengths.tolist()
    ([[1.0, 0.0], [5.0, 0.0]], [[2, 1], [1, 0]])
    """
    matrix = check_matrix("transitions", transitions)
    count, successors = matrix.shape
    if count == 0 or successors == 0:
        raise ValueError("transitions are empty: list at least one pair and one state")
    x = check_indices("states", states, 1, "states", successors).astype(np.int64)
    a = check_indices("actions", actions, 1, "actions", MAX_STATES).astype(np.int64)
    if not len(x) == len(a) == count:
        raise ValueError(f"there are {len(x)} states, {len(a)} actions and {count} rows of transitions: give one of each per pair")
    rewards = expected_rewards("rewards", rewards, matrix)
    width = int(a.max()) + 1
    check_table_size(successors, width)
    key = x * width + a
    if not (np.diff(key) > 0).all():
        order = np.argsort(key, kind="stable")
        key = key[order]
        if (twice := np.flatnonzero(np.diff(key) == 0)).size:
            state, action = divmod(int(key[twice[0]]), width)
            raise ValueError(f"state {state} and action {action} are listed twice: give each pair once")
        rewards, matrix = rewards[order], matrix[order]
    table, lengths = np.zeros((successors, width)), np.zeros((successors, width), np.int64)
    table.reshape(-1)[key] = rewards
    lengths.reshape(-1)[key] = np.diff(matrix.indptr)
    return Pairs(table, Ragged.from_lengths(lengths, matrix.indices, matrix.data))


def from_matrices(transitions: Any, rewards: Any) -> Pairs:
    """Make pairs from one (S, S) matrix per action, where a row without probabilities is an action that its state does not have.

    Examples
    --------
    >>> from_matrices([np.eye(2), [[0, 1], [0, 0]]], [1.0, 2.0]).transitions.lengths.tolist()
    [[1, 1], [1, 0]]
    """
    matrices = [check_matrix(f"transitions[{a}]", matrix) for a, matrix in enumerate(transitions)]
    if not matrices:
        raise ValueError("transitions are empty: give one matrix per action")
    states, width = matrices[0].shape[0], len(matrices)
    for a, matrix in enumerate(matrices):
        if matrix.shape != (states, states):
            raise ValueError(f"transitions[{a}] has shape {matrix.shape}: every action needs a matrix of shape ({states}, {states})")
    given = np.asarray(rewards) if not _is_listed(rewards) else None
    if given is not None and given.ndim == 1 and given.shape == (states,):
        table = np.repeat(check_finite("rewards", given, 1)[:, None], width, axis=1)
    elif given is not None and given.ndim == 2:
        table = check_finite("rewards", given, 2)
        if table.shape != (states, width):
            raise ValueError(f"rewards have shape {table.shape}: they must be ({states}, {width}), ({states},), or one matrix per action")
    else:
        listed = list(rewards)
        if len(listed) != width:
            raise ValueError(f"there are {len(listed)} matrices of rewards and {width} of transitions: give one of each per action")
        table = np.stack([expected_rewards(f"rewards[{a}]", r, p) for a, (r, p) in enumerate(zip(listed, matrices, strict=True))], axis=1)
    # The rows of all actions one after another, then those of each state together.
    order = np.arange(width * states).reshape(width, states).T.ravel()
    stacked: Any = sparse.csr_array(sparse.vstack(matrices, format="csr"))[order]
    lengths = np.diff(stacked.indptr).reshape(states, width)
    return Pairs(np.where(lengths > 0, table, 0.0), Ragged.from_lengths(lengths, stacked.indices, stacked.data))


def check_matrix(name: str, matrix: Any) -> Any:
    """Return a matrix of probabilities, SciPy's or an array, as sorted compressed rows without explicit zeros.

    Examples
    --------
    >>> check_matrix("transitions", [[0.0, 1.0]]).nnz
    1
    """
    if sparse.issparse(matrix):
        if len(matrix.shape) != 2:
            raise ValueError(f"{name} must have 2 dimensions, not {len(matrix.shape)}")
        # Lists of lists hold objects.
        matrix = matrix.tocsr() if matrix.format == "lil" else matrix
        check_numbers(f"{name}.data", matrix.data if hasattr(matrix, "data") and np.ndim(matrix.data) == 1 else [], 1)
        rows: Any = sparse.csr_array(matrix, dtype=np.float64)
        if rows.nnz and not (rows.indices.min() >= 0 and rows.indices.max() < rows.shape[1] and (np.diff(rows.indptr) >= 0).all()):
            raise ValueError(f"{name} has column indices outside 0 to {rows.shape[1] - 1}: make it again with 64-bit indices")
    else:
        rows = sparse.csr_array(check_numbers(name, matrix, 2))
    if not rows.has_canonical_format or not rows.data.all():
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    return rows


def expected_rewards(name: str, rewards: Any, matrix: Any) -> np.ndarray:
    """Return R(x, a) of the rows of a matrix: rewards of its rows as they are, rewards of its entries averaged over the successors.

    Examples
    --------
    >>> expected_rewards("rewards", [[2.0, 4.0]], sparse.csr_array([[0.5, 0.5]])).tolist()
    [3.0]
    """
    if not sparse.issparse(rewards):
        rewards = check_numbers(name, rewards, 2 if np.ndim(rewards) == 2 else 1)
        if rewards.ndim == 1:
            if len(rewards) != matrix.shape[0]:
                raise ValueError(f"{name} has {len(rewards)} entries for {matrix.shape[0]} rows of transitions: give one per row")
            return check_finite(name, rewards, 1)
    if rewards.shape != matrix.shape:
        raise ValueError(
            f"{name} has shape {rewards.shape} and transitions {matrix.shape}: give one reward per row, or one per probability"
        )
    total = np.asarray(matrix.sum(axis=1)).ravel()
    return check_finite(name, np.asarray(matrix.multiply(rewards).sum(axis=1)).ravel() / normalizer(total), 1)


def check_rows(pairs: Ragged) -> np.ndarray:
    """Return the probabilities with every row that is not empty normalized to sum to one; raise if one is not a distribution.

    Examples
    --------
    >>> check_rows(Ragged.from_lengths(np.array([[1, 0]]), np.array([0]), np.array([0.5])))
    Traceback (most recent call last):
    ValueError: the probabilities of state 0 and action 0 sum to 0.5: they must sum to one
    """
    pointers, _, probabilities = pairs.packed()
    width = pairs.starts.shape[1]

    def reject(bad: np.ndarray, problem: str) -> None:
        if bad.any():
            entry = int(np.argmax(bad))
            state, action = divmod(int(np.searchsorted(pointers, entry, side="right")) - 1, width)
            raise ValueError(f"a probability of state {state} and action {action} is {probabilities[entry]!s}: {problem}")

    filled = np.diff(pointers) > 0
    sums = np.ones(len(filled))
    if filled.any():
        sums[filled] = np.add.reduceat(probabilities, pointers[:-1][filled])
    if not np.isfinite(sums).all():
        reject(~np.isfinite(probabilities), "probabilities must be finite")
    if len(probabilities) and probabilities.min() < 0:
        reject(probabilities < 0, "probabilities must not be negative")
    wrong = ~(np.abs(sums - 1) <= ROW_SUM_TOLERANCE)
    if wrong.any():
        state, action = divmod(int(np.argmax(wrong)), width)
        raise ValueError(f"the probabilities of state {state} and action {action} sum to {sums[wrong][0]!s}: they must sum to one")
    if (np.abs(sums - 1) <= 4 * np.finfo(float).eps).all():
        return probabilities
    return probabilities / np.repeat(sums, np.diff(pointers))


def check_action_sets(available: np.ndarray) -> None:
    """Raise a `ValueError` unless every state has an action.

    Examples
    --------
    >>> check_action_sets(np.array([[True], [False]]))
    Traceback (most recent call last):
    ValueError: state 1 has no action: give every state at least one (in an absorbing state it leads back to the state)
    """
    without = ~available.any(axis=1)
    if without.any():
        remedy = "give every state at least one (in an absorbing state it leads back to the state)"
        raise ValueError(f"state {int(np.argmax(without))} has no action: {remedy}")


def check_table_size(states: int, actions: int) -> None:
    """Raise a `ValueError` if a table (S, A) is larger than the free memory.

    Examples
    --------
    >>> check_table_size(2**31, 2**31)
    Traceback (most recent call last):
    ValueError: Q of 2,147,483,648 states and 2,147,483,648 actions does not fit in memory: number the actions of each state from 0
    """
    if states > MAX_STATES:
        raise ValueError(f"the model has {states:,} states: at most {MAX_STATES:,} are possible, because successors have 32 bits")
    if states * actions * 16 > free_memory():
        raise ValueError(f"Q of {states:,} states and {actions:,} actions does not fit in memory: number the actions of each state from 0")


BLOCK_PAIRS = 1 << 16
"""Pairs per call of a function that describes a model."""
Step = Callable[[Any, Any], tuple[Any, Any, Any]]
"""A function of states x and actions a that returns their rewards, successors and probabilities."""


def from_function(
    step: Step,
    states: int,
    actions: int,
    *,
    available: Callable[[Any, Any], Any] | None = None,
    vectorized: bool = True,
    progress: bool | None = None,
    name: str = "the model",
) -> Pairs:
    """Call `step(x, a)` for every pair, block by block, and collect the rewards, successors and probabilities that it returns.

    Examples
    --------
    >>> def move(x, a):
    ...     return -1.0 * (x < 2), np.stack([np.clip(x + 2 * a - 1, 0, 2)], axis=-1), np.ones((len(x), 1))
    >>> from_function(move, states=3, actions=2).transitions.successors.tolist()
    [0, 1, 0, 2, 1, 2]
    """
    states, actions = check_whole("states", states, 1), check_whole("actions", actions, 1)
    for what, function in (("step", step), ("available", available)):
        if function is not None and not callable(function):
            raise TypeError(f"{what} is {function!r}: give a function of states and actions")
    check_table_size(states, actions)
    rewards, lengths = np.zeros((states, actions)), np.zeros((states, actions), np.int64)
    successors: list[np.ndarray] = []
    probabilities: list[np.ndarray] = []
    call = _call_vectorized if vectorized else _call_each
    with StepProgress(f"build {name}", progress) as bar:
        for first in range(0, states * actions, BLOCK_PAIRS):
            bar(f"state {first // actions:,} of {states:,}", first / (states * actions))
            pairs = np.arange(first, min(first + BLOCK_PAIRS, states * actions))
            x, a = np.divmod(pairs, actions)
            if available is not None:
                kept = _available(available, x, a, vectorized)
                pairs, x, a = pairs[kept], x[kept], a[kept]
            if not len(pairs):
                continue
            reward, count, listed, weights = call(step, x, a, states)
            rewards.reshape(-1)[pairs], lengths.reshape(-1)[pairs] = reward, count
            successors.append(listed.astype(index_type(states)))
            probabilities.append(weights)
    empty: list[np.ndarray] = [np.zeros(0)]
    form = Ragged.from_lengths(
        lengths, np.concatenate(successors or empty).astype(index_type(states), copy=False), np.concatenate(probabilities or empty)
    )
    return Pairs(rewards, form)


def _available(available: Callable[[Any, Any], Any], x: np.ndarray, a: np.ndarray, vectorized: bool) -> np.ndarray:
    answer = available(x, a) if vectorized else [bool(available(int(state), int(action))) for state, action in zip(x, a, strict=True)]
    kept = np.asarray(answer)
    if kept.dtype != bool or kept.shape not in ((), x.shape):
        raise ValueError(f"available returns {kept.dtype} of shape {kept.shape} for {len(x)} pairs: return one truth value per pair")
    return np.broadcast_to(kept, x.shape)


def _call_vectorized(step: Step, x: np.ndarray, a: np.ndarray, states: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    n = len(x)
    reward, successors, probabilities = _three(step(x, a), int(x[0]), int(a[0]))
    listed = _rows_of("successors", successors, n)
    # Probabilities (K,) are those of every pair. One successor per pair has probabilities (n,).
    if np.ndim(probabilities) == 1 and len(probabilities) == listed.shape[1] > 1:
        probabilities = np.asarray(probabilities)[None, :]
    weights = check_numbers("probabilities", _rows_of("probabilities", probabilities, n), 2)
    width = max(listed.shape[1], weights.shape[1])
    if {listed.shape[1], weights.shape[1]} - {1, width}:
        raise ValueError(f"step returns {listed.shape[1]} successors and {weights.shape[1]} probabilities per pair: return as many of both")
    listed, weights = np.broadcast_to(listed, (n, width)), np.broadcast_to(weights, (n, width))
    with np.errstate(invalid="ignore"):
        bad = ~(np.isfinite(weights) & (weights >= 0)) | ~(np.abs(weights.sum(1) - 1) <= ROW_SUM_TOLERANCE)[:, None]
        bad |= ~((listed >= 0) & (listed < states) & (listed == np.floor(listed))) & (weights != 0)
    if bad.any():
        row = int(np.argmax(bad.any(axis=1)))
        _check_pair(int(x[row]), int(a[row]), listed[row], weights[row], states)
    given = check_numbers("rewards", reward if np.ndim(reward) else np.full(n, reward), 2 if np.ndim(reward) == 2 else 1)
    if given.shape not in ((n,), (n, width), (n, 1)):
        raise ValueError(f"step returns rewards of shape {given.shape} for {n} pairs: return one per pair, ({n},), or one per successor")
    # Probabilities are normalized later, so their sum may differ from 1 by rounding.
    expected = given if given.ndim == 1 else (np.where(weights > 0, given, 0.0) * weights).sum(1) / weights.sum(1)
    _check_reward(expected, x, a)
    kept = weights > 0
    return expected, kept.sum(1), listed[kept], weights[kept]


def _call_each(step: Step, x: np.ndarray, a: np.ndarray, states: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rewards, counts = np.zeros(len(x)), np.zeros(len(x), np.int64)
    successors, probabilities = [], []
    for i, (state, action) in enumerate(zip(x.tolist(), a.tolist(), strict=True)):
        reward, listed, weights = _three(step(state, action), state, action)
        listed, weights = np.atleast_1d(np.asarray(listed)), np.atleast_1d(np.asarray(weights, dtype=float))
        _check_pair(state, action, listed, weights, states)
        kept = weights > 0
        each = np.asarray(reward, dtype=float)
        if each.shape not in ((), (1,), weights.shape):
            remedy = "return one reward, or one per successor"
            raise ValueError(f"step returns rewards of shape {each.shape} for state {state} and action {action}: {remedy}")
        rewards[i] = each if each.ndim == 0 else (np.broadcast_to(each, weights.shape)[kept] * weights[kept]).sum() / weights.sum()
        counts[i] = kept.sum()
        successors.append(listed[kept])
        probabilities.append(weights[kept])
    _check_reward(rewards, x, a)
    return rewards, counts, np.concatenate(successors), np.concatenate(probabilities)


def _three(answer: Any, state: int, action: int) -> tuple[Any, Any, Any]:
    if not (isinstance(answer, Sequence) and len(answer) == 3):
        remedy = "return rewards, successors and probabilities, and say with available=... which pairs exist"
        raise ValueError(f"step returns {type(answer).__name__} for state {state} and action {action}: {remedy}")
    return answer[0], answer[1], answer[2]


def _rows_of(name: str, values: Any, n: int) -> np.ndarray:
    table = np.asarray(values)
    table = table[:, None] if table.ndim == 1 and len(table) == n else table
    if table.ndim != 2 or table.shape[0] not in (1, n):
        raise ValueError(f"step returns {name} of shape {table.shape} for {n} pairs: return ({n}, K), K successors per pair")
    return table


def _check_pair(state: int, action: int, successors: np.ndarray, probabilities: np.ndarray, states: int) -> None:
    """Raise a `ValueError` that names the pair unless these are successors and their probabilities."""
    pair = f"of state {state} and action {action}"
    if successors.shape != probabilities.shape or successors.ndim != 1:
        raise ValueError(
            f"step returns {successors.shape} successors and {probabilities.shape} probabilities {pair}: return as many of both"
        )
    for successor, probability in zip(successors, probabilities, strict=True):
        if not (np.isfinite(probability) and probability >= 0):
            raise ValueError(f"a probability {pair} is {probability!s}: probabilities must be finite and not negative")
        if probability > 0 and not (0 <= successor < states and successor == np.floor(successor)):
            raise ValueError(f"a successor {pair} is {successor!s}: successors must be states, whole numbers from 0 to {states - 1}")
    if not abs(probabilities.sum() - 1) <= ROW_SUM_TOLERANCE:
        raise ValueError(f"the probabilities {pair} sum to {probabilities.sum()!s}: they must sum to one")


def _check_reward(rewards: np.ndarray, x: np.ndarray, a: np.ndarray) -> None:
    if not np.isfinite(rewards).all():
        row = int(np.argmin(np.isfinite(rewards)))
        raise ValueError(f"the reward of state {x[row]} and action {a[row]} is {rewards[row]!s}: rewards must be finite")


def _is_listed(rewards: Any) -> bool:
    """Whether rewards are one matrix per action rather than a table."""
    if isinstance(rewards, np.ndarray):
        return rewards.ndim == 3
    return any(sparse.issparse(item) or np.ndim(item) == 2 for item in rewards) if isinstance(rewards, Sequence) else False


def pairs_of_quantecon(ddp: Any) -> tuple[ArrayLike, ArrayLike, np.ndarray, Any, float]:
    """Return states, actions, rewards, transitions and the discount of QuantEcon's `DiscreteDP`; a reward of -inf is a missing action.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> ddp = SimpleNamespace(R=np.array([[1.0, -np.inf]]), Q=np.ones((1, 2, 1)), beta=0.5, s_indices=None, a_indices=None)
    >>> [np.asarray(part).tolist() for part in pairs_of_quantecon(ddp)]
    [[0], [0], [1.0], [[1.0]], 0.5]
    """
    missing = [name for name in ("R", "Q", "beta", "s_indices", "a_indices") if not hasattr(ddp, name)]
    if missing:
        remedy = "pass a quantecon.markov.DiscreteDP of version 0.7 or later, or its arrays to FiniteMDP.from_pairs"
        raise TypeError(f"{type(ddp).__name__} has no attribute {missing[0]}: {remedy}")
    rewards, matrix = check_numbers("R", ddp.R, np.ndim(ddp.R)), ddp.Q
    kept = rewards != -np.inf
    if rewards.ndim == 2:
        states, actions = np.nonzero(kept)
        return states, actions, rewards[kept], np.asarray(matrix)[kept], float(ddp.beta)
    matrix = sparse.csr_array(matrix)[np.flatnonzero(kept)] if not kept.all() else matrix
    return np.asarray(ddp.s_indices)[kept], np.asarray(ddp.a_indices)[kept], rewards[kept], matrix, float(ddp.beta)
