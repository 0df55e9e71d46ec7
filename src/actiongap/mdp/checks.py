"""What is asked of arrays before anything is computed with them: each check returns what may be used, or says in a sentence what is wrong.

The sentence names the first entry that breaks a rule, and the rule. `frozen` is how checked arrays are then kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ROW_SUM_TOLERANCE = 1e-6
"""Rows this close to one are scaled to sum to one exactly (tables stored in float32 are); anything further off is refused."""


def check_numbers(name: str, values: Any, dimensions: int) -> np.ndarray:
    """Real numbers in so many dimensions, as float64; they may be the caller's own array, and may not be finite.

    Examples
    --------
    >>> check_numbers("rewards", [[1, 2]], 2).tolist()
    [[1.0, 2.0]]
    """
    return _dimensions(name, _real(name, values), dimensions).astype(np.float64, copy=False)


def check_finite(name: str, values: Any, dimensions: int) -> np.ndarray:
    """Finite numbers in so many dimensions, as float64; they may be the caller's own array.

    Examples
    --------
    >>> check_finite("positions", [0.0, float("nan")], 1)
    Traceback (most recent call last):
    ValueError: positions[1] is nan: positions must be finite
    """
    array = check_numbers(name, values, dimensions)
    refuse_first(name, array, ~np.isfinite(array), f"{name} must be finite")
    return array


def check_table(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Finite numbers of exactly this shape, as a float64 array of their own, never the caller's.

    Examples
    --------
    >>> check_table("q0", [[0, 1]], (2, 1))
    Traceback (most recent call last):
    ValueError: q0 has the shape (1, 2): it must be (2, 1)
    """
    array = _real(name, values)
    if array.shape != tuple(shape):
        raise ValueError(f"{name} has the shape {array.shape}: it must be {tuple(shape)}")
    return np.array(check_finite(name, array, len(shape)))


def check_indices(name: str, values: Any, dimensions: int, what: str, count: int) -> np.ndarray:
    """Whole numbers from 0 to count - 1, as an integer array, which may be the caller's own.

    Examples
    --------
    >>> check_indices("successors", [0, 5], 1, "states", 3)
    Traceback (most recent call last):
    ValueError: successors[1] is 5: successors must name states, whole numbers from 0 to 2
    """
    array = _dimensions(name, _real(name, values), dimensions)
    # The least and the largest answer for all whole numbers, so the common case makes no large temporary.
    if array.dtype.kind in "iu" and (array.size == 0 or (array.min() >= 0 and array.max() < count)):
        return array
    numbers = array.astype(np.float64)
    named = (numbers >= 0) & (numbers < count) & (numbers == np.floor(numbers))
    refuse_first(name, array, ~named, f"{name} must name {what}, whole numbers from 0 to {count - 1}")
    return array.astype(np.int64)


def check_distributions(name: str, table: np.ndarray) -> np.ndarray:
    """The table with each row scaled to sum to one, or a sentence naming the first row that is no distribution.

    Examples
    --------
    >>> check_distributions("start", np.array([0.5, 0.6]))
    Traceback (most recent call last):
    ValueError: the sum of start is 1.1: probabilities must sum to one
    """
    unique = unrepeated(table)
    sums = np.asarray(unique.sum(-1))
    # Sums are a fraction of the table's size and are not finite where an entry is not, so the common case makes no large temporary.
    if not np.isfinite(sums).all():
        refuse_first(name, unique, ~np.isfinite(unique), "probabilities must be finite")
    if unique.min() < 0:
        refuse_first(name, unique, unique < 0, "probabilities must not be negative")
    rule = f"{'every row of ' * (sums.ndim > 0)}probabilities must sum to one"
    refuse_first(f"the sum of {name}", sums, ~(np.abs(sums - 1) <= ROW_SUM_TOLERANCE), rule)
    if (np.abs(sums - 1) <= 4 * np.finfo(float).eps).all():
        return table
    return np.broadcast_to(unique / sums[..., None], table.shape)


def check_policy(policy: Any, states: int, actions: int) -> np.ndarray:
    """A policy as the actions it takes (S,), or as their probabilities (S, A), whichever it was given as.

    Examples
    --------
    >>> check_policy([0, -1], states=2, actions=2)
    Traceback (most recent call last):
    ValueError: policy[1] is -1: policy must name actions, whole numbers from 0 to 1
    """
    array = _real("policy", policy)
    if array.shape == (states, actions):
        return check_distributions("policy", check_finite("policy", array, 2))
    if array.shape != (states,):
        raise ValueError(
            f"policy has the shape {array.shape}: it must hold the action of each state, ({states},), "
            f"or the probability of each action in each state, ({states}, {actions})"
        )
    return check_indices("policy", array, 1, "actions", actions)


def generator(seed: Any) -> np.random.Generator:
    """The random numbers that a seed stands for, or a sentence saying that it is none.

    Examples
    --------
    >>> generator(-1)
    Traceback (most recent call last):
    ValueError: seed is -1: it must be a whole number of at least 0
    """
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise ValueError(f"seed is {seed!r}: it must be a whole number of at least 0") from None


def refuse_first(name: str, values: np.ndarray, bad: np.ndarray, rule: str) -> None:
    """Refuse the first entry that breaks a rule, if one does, in a sentence that gives its place and its value.

    Examples
    --------
    >>> refuse_first("weights", np.array([1.0, -2.0]), np.array([False, True]), "weights must be positive")
    Traceback (most recent call last):
    ValueError: weights[1] is -2.0: weights must be positive
    """
    if bad.any():
        where = tuple(int(index) for index in np.argwhere(bad)[0])
        place = f"[{', '.join(map(str, where))}]" if where else ""
        raise ValueError(f"{name}{place} is {values[where]!s}: {rule}")


def frozen(array: np.ndarray, dtype: type[np.generic] = np.float64, *, handed_over: bool = False) -> np.ndarray:
    """A read-only view of memory that is nobody else's: of a copy, unless the array was handed over, owns its memory and has the type.

    Whoever hands an array over promises to let go of it. Repetition by broadcasting is kept, since it saves the memory of the copies.

    Examples
    --------
    >>> mine = np.zeros(2)
    >>> kept = frozen(mine)
    >>> mine[0] = 7.0
    >>> kept.tolist(), kept.flags.writeable
    ([0.0, 0.0], False)
    """
    kept = array if handed_over and array.base is None and array.dtype == dtype else np.array(unrepeated(array), dtype=dtype)
    kept.flags.writeable = False
    # A view, so that not even its own flag can make it writeable again.
    return np.broadcast_to(kept, array.shape)


def unrepeated(table: np.ndarray) -> np.ndarray:
    """The part of a table that is really there, where one row is repeated for many states or actions by broadcasting.

    Examples
    --------
    >>> unrepeated(np.broadcast_to([0.5, 0.5], (100, 4, 2))).shape
    (1, 1, 2)
    """
    return table[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in table.strides[:-1])]


def _real(name: str, values: Any) -> np.ndarray:
    if np.ma.isMaskedArray(values):
        raise ValueError(f"{name} must have no masked entries: fill them first, with numpy.ma.filled")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of real numbers with rows of equal length") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be an array of real numbers, not of the type {array.dtype}")
    return array


def _dimensions(name: str, array: np.ndarray, dimensions: int) -> np.ndarray:
    if array.ndim != dimensions:
        raise ValueError(f"{name} must have {dimensions} dimensions, not {array.ndim}")
    return array
