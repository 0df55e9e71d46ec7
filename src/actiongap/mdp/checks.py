"""Validation of arrays: each check returns the validated array, or raises a `ValueError`.

The error names the first invalid entry and what is required. `read_only` stores a validated array.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

ROW_SUM_TOLERANCE = 1e-6
"""Rows whose sum is this close to one are normalized (e.g. tables stored in float32); other rows are rejected."""


def check_numbers(name: str, values: Any, dimensions: int) -> np.ndarray:
    """Return real numbers with the given number of dimensions as float64. The result may be the input array and may be infinite or NaN.

    Examples
    --------
    >>> check_numbers("rewards", [[1, 2]], 2).tolist()
    [[1.0, 2.0]]
    """
    return _dimensions(name, _real(name, values), dimensions).astype(np.float64, copy=False)


def check_finite(name: str, values: Any, dimensions: int) -> np.ndarray:
    """Return finite numbers with the given number of dimensions as float64. The result may be the input array.

    Examples
    --------
    >>> check_finite("positions", [0.0, float("nan")], 1)
    Traceback (most recent call last):
    ValueError: positions[1] is nan: positions must be finite
    """
    array = check_numbers(name, values, dimensions)
    reject_first(name, array, ~np.isfinite(array), f"{name} must be finite")
    return array


def check_table(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a float64 copy of finite numbers of exactly this shape.

    Examples
    --------
    >>> check_table("q0", [[0, 1]], (2, 1))
    Traceback (most recent call last):
    ValueError: q0 has shape (1, 2): it must be (2, 1)
    """
    array = _real(name, values)
    if array.shape != tuple(shape):
        raise ValueError(f"{name} has shape {array.shape}: it must be {tuple(shape)}")
    return np.array(check_finite(name, array, len(shape)))


def check_indices(name: str, values: Any, dimensions: int, what: str, count: int) -> np.ndarray:
    """Return whole numbers from 0 to count - 1 as an integer array. The result may be the input array.

    Examples
    --------
    >>> check_indices("successors", [0, 5], 1, "states", 3)
    Traceback (most recent call last):
    ValueError: successors[1] is 5: successors must be states, whole numbers from 0 to 2
    """
    array = _dimensions(name, _real(name, values), dimensions)
    # For integer arrays, the minimum and the maximum suffice, so the common case needs no large temporary.
    if array.dtype.kind in "iu" and (array.size == 0 or (array.min() >= 0 and array.max() < count)):
        return array
    numbers = array.astype(np.float64)
    valid = (numbers >= 0) & (numbers < count) & (numbers == np.floor(numbers))
    reject_first(name, array, ~valid, f"{name} must be {what}, whole numbers from 0 to {count - 1}")
    return array.astype(np.int64)


def check_distributions(name: str, table: np.ndarray) -> np.ndarray:
    """Return the table with each row normalized to sum to one; raise if a row is not a distribution.

    Examples
    --------
    >>> check_distributions("start", np.array([0.5, 0.6]))
    Traceback (most recent call last):
    ValueError: the sum of start is 1.1: probabilities must sum to one
    """
    unique = without_broadcast(table)
    sums = np.asarray(unique.sum(-1))
    # The sums are small and not finite if an entry is not, so the common case needs no large temporary.
    if not np.isfinite(sums).all():
        reject_first(name, unique, ~np.isfinite(unique), "probabilities must be finite")
    if unique.min() < 0:
        reject_first(name, unique, unique < 0, "probabilities must not be negative")
    rule = f"{'every row of ' * (sums.ndim > 0)}probabilities must sum to one"
    reject_first(f"the sum of {name}", sums, ~(np.abs(sums - 1) <= ROW_SUM_TOLERANCE), rule)
    if (np.abs(sums - 1) <= 4 * np.finfo(float).eps).all():
        return table
    return np.broadcast_to(unique / sums[..., None], table.shape)


def check_policy(policy: Any, states: int, actions: int, available: np.ndarray | None = None) -> np.ndarray:
    """Return a policy as actions (S,) or as probabilities (S, A), as it was passed. `available` says which pairs exist; by default all do.

    Examples
    --------
    >>> check_policy([0, -1], states=2, actions=2)
    Traceback (most recent call last):
    ValueError: policy[1] is -1: policy must be actions, whole numbers from 0 to 1
    """
    array = _real("policy", policy)
    if array.shape == (states, actions):
        table = check_distributions("policy", check_finite("policy", array, 2))
        if available is not None:
            reject_first("policy", table, (table > 0) & ~available, "the probability of an action that the state does not have must be 0")
        return table
    if array.shape != (states,):
        raise ValueError(
            f"policy has shape {array.shape}: it must hold the action of each state, ({states},), "
            f"or the probability of each action in each state, ({states}, {actions})"
        )
    chosen = check_indices("policy", array, 1, "actions", actions)
    if available is not None:
        reject_first("policy", chosen, ~available[np.arange(states), chosen], "the state does not have this action: choose another")
    return chosen


def check_whole(name: str, value: Any, least: int) -> int:
    """Return a whole number of at least `least` as an int.

    Examples
    --------
    >>> check_whole("steps", "many", 1)
    Traceback (most recent call last):
    ValueError: steps is 'many': it must be a whole number of at least 1
    """
    number: Any = value
    if isinstance(value, bool) or not (isinstance(value, numbers.Real) and number == number // 1 and number >= least):
        raise ValueError(f"{name} is {value!r}: it must be a whole number of at least {least}")
    return int(number)


def check_probability(name: str, value: Any) -> float:
    """Return a number from 0 to 1 as a float.

    Examples
    --------
    >>> check_probability("slip", 2)
    Traceback (most recent call last):
    ValueError: slip is 2: it must be a probability, from 0 to 1
    """
    if not (isinstance(value, numbers.Real) and 0 <= float(value) <= 1):
        raise ValueError(f"{name} is {value!r}: it must be a probability, from 0 to 1")
    return float(value)


def make_rng(seed: Any) -> np.random.Generator:
    """Return the random generator of a seed.

    Examples
    --------
    >>> make_rng(-1)
    Traceback (most recent call last):
    ValueError: seed is -1: it must be a whole number of at least 0
    """
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise ValueError(f"seed is {seed!r}: it must be a whole number of at least 0") from None


def reject_first(name: str, values: np.ndarray, bad: np.ndarray, rule: str) -> None:
    """Raise a `ValueError` that names the first invalid entry, if there is one.

    Examples
    --------
    >>> reject_first("weights", np.array([1.0, -2.0]), np.array([False, True]), "weights must be positive")
    Traceback (most recent call last):
    ValueError: weights[1] is -2.0: weights must be positive
    """
    if bad.any():
        where = tuple(int(index) for index in np.argwhere(bad)[0])
        place = f"[{', '.join(map(str, where))}]" if where else ""
        raise ValueError(f"{name}{place} is {values[where]!s}: {rule}")


def read_only(array: np.ndarray, dtype: type[np.generic] = np.float64, *, copy: bool = True) -> np.ndarray:
    """Return a read-only view of a copy of the array. With `copy=False`, an array that owns its memory and has the type is not copied.

    The caller must not modify an array that is not copied. Broadcast dimensions stay broadcast, which saves memory.

    Examples
    --------
    >>> mine = np.zeros(2)
    >>> kept = read_only(mine)
    >>> mine[0] = 7.0
    >>> kept.tolist(), kept.flags.writeable
    ([0.0, 0.0], False)
    """
    kept = array if not copy and array.base is None and array.dtype == dtype else np.array(without_broadcast(array), dtype=dtype)
    kept.flags.writeable = False
    # A view, so that its flags cannot make it writeable again.
    return np.broadcast_to(kept, array.shape)


def without_broadcast(table: np.ndarray) -> np.ndarray:
    """Return a table without its broadcast dimensions: a row that is repeated for many states or actions appears once.

    Examples
    --------
    >>> without_broadcast(np.broadcast_to([0.5, 0.5], (100, 4, 2))).shape
    (1, 1, 2)
    """
    return table[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in table.strides[:-1])]


def _real(name: str, values: Any) -> np.ndarray:
    if np.ma.isMaskedArray(values):
        raise ValueError(f"{name} must have no masked entries: fill them with numpy.ma.filled")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of real numbers with rows of equal length") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be an array of real numbers, not of type {array.dtype}")
    return array


def _dimensions(name: str, array: np.ndarray, dimensions: int) -> np.ndarray:
    if array.ndim != dimensions:
        raise ValueError(f"{name} must have {dimensions} dimensions, not {array.ndim}")
    return array


def normalizer(sums: np.ndarray) -> np.ndarray:
    """Return what the probabilities of each row are divided by: their sum if it is 1 within the tolerance, and 1 for other rows.

    Examples
    --------
    >>> normalizer(np.array([1.0 - 2**-40, 0.0, 0.5])).tolist() == [1.0 - 2**-40, 1.0, 1.0]
    True
    """
    return np.where(np.abs(sums - 1) <= ROW_SUM_TOLERANCE, sums, 1.0)
