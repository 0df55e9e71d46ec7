"""Example MDPs, by function (`cake()`, `garnet(100, 4, 3)`) or by name (`load_mdp("garnet:100,4,3")`).

- `cake`: the two-state MDP of the paper's Figure 1, in which abstaining is better by exactly epsilon.
- `single_state`: one state with one reward per action, the setting of the paper's remark.
- `chain` and `gridworld`: moves that slip with some probability.
- `ring`: all actions move on; asynchronous updates of advantage learning can cycle on it (`actiongap.mdp.asynchronous`).
- `garnet`: random MDPs after Archibald, McKinnon and Thomas (1995).

States and actions are numbered from 0. A name can also be `gym/ID`, a tabular Gymnasium environment, or the path of an `.npz` file with
`rewards` (S, A), `gamma`, and either `transitions` (S, A, S), or `successors` and `probabilities` (S, A, K). Where action sets differ by
state, `available` (S, A) says which pairs exist. Successors of different lengths are listed one pair after another, with `lengths` (S, A);
a length of 0 is a pair that does not exist. Files that end in `.tra` or `.drn` are those of PRISM and Storm (`explicit`).
"""

from __future__ import annotations

import inspect
import numbers
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from actiongap._files import BombError, as_path, check_archive, writing
from actiongap._suggest import did_you_mean, with_suggestions
from actiongap.mdp.checks import check_indices, check_probability, check_whole, make_rng
from actiongap.mdp.model import FiniteMDP, check_model
from actiongap.mdp.pairs import MAX_STATES
from actiongap.mdp.transitions import Dense, Ragged
from actiongap.operators import check_discount

MAX_BYTES = 10**12
"""Maximum size of a model in bytes. A larger request is almost certainly a typing mistake."""


@with_suggestions
def cake(gamma: float = 0.9, epsilon: float = 0.1) -> FiniteMDP:
    """The two-state MDP of Figure 1: in x1, eat cake (action 0) or abstain (action 1); eating leads to x2 with probability 1/2.

    Eating has reward 1. x2 is absorbing with value -2 (1 + epsilon) / gamma, so abstaining is better by exactly epsilon.

    Examples
    --------
    >>> cake(gamma=0.5).rewards[0].tolist()
    [1.0, 0.0]
    """
    gamma = check_discount(gamma)
    if gamma == 0:
        raise ValueError("cake: gamma must be above 0, since the value of x2 is -2 (1 + epsilon) / gamma")
    if not (isinstance(epsilon, numbers.Real) and 0 < epsilon < np.inf):
        raise ValueError(f"cake: epsilon is {epsilon!r}: it must be a positive number")
    eat, abstain, stay = [0.5, 0.5], [1.0, 0.0], [0.0, 1.0]
    return FiniteMDP.from_dense(cake_rewards(gamma, epsilon), [[eat, abstain], [stay, stay]], gamma, "cake")


def cake_rewards(gamma: Any, epsilon: Any) -> list[list[Any]]:
    """Return R(x, a) of the cake MDP. The reward in x2 is (1 - gamma) times its value. Works for symbols and fractions too.

    Examples
    --------
    >>> cake_rewards(0.5, 1.0)
    [[1.0, 0.0], [-4.0, -4.0]]
    """
    bad = -2 * (1 + epsilon) / gamma * (1 - gamma)
    return [[1.0, 0.0], [bad, bad]]


@with_suggestions
def single_state(rewards: ArrayLike = (0.0, 1.0), gamma: float = 0.9) -> FiniteMDP:
    """An MDP with one absorbing state and one reward per action: V* = max(rewards) / (1 - gamma). The setting of the paper's remark.

    Examples
    --------
    >>> single_state().states
    1
    """
    table = np.atleast_2d(np.asarray(rewards, dtype=float))
    return FiniteMDP.from_dense(table, np.ones((1, table.shape[1], 1)), gamma, "single-state")


@with_suggestions
def chain(length: int = 10, gamma: float = 0.9, slip: float = 0.1) -> FiniteMDP:
    """States in a row: action 0 moves left, action 1 right; with probability `slip` the state stays. The reward is 1 in the last state.

    Examples
    --------
    >>> chain(5).rewards[:, 0].tolist()
    [0.0, 0.0, 0.0, 0.0, 1.0]
    """
    length, slip = check_whole("chain: length", length, 1), check_probability("slip", slip)
    _check_size(f"chain:{length}", length, 2, 2)
    states = np.arange(length)
    moved = np.stack([np.maximum(states - 1, 0), np.minimum(states + 1, length - 1)], axis=1)
    successors = np.stack([moved, np.broadcast_to(states[:, None], moved.shape)], axis=-1)
    rewards = np.repeat((states == length - 1).astype(float)[:, None], 2, axis=1)
    return FiniteMDP.from_successors(rewards, successors, np.broadcast_to([1 - slip, slip], successors.shape), gamma, f"chain:{length}")


def ring(length: int = 3, gamma: float = 0.9) -> FiniteMDP:
    """States in a ring: both actions move to the next state; action 0 has reward 0 and action 1 reward -1, so V* = 0.

    With three states it is an MDP on which advantage learning, updated one pair at a time in a periodic order, can cycle between V* and
    the lowest values for ever. `actiongap.mdp.asynchronous.cycling_order` is such an order.

    Examples
    --------
    >>> ring().transitions.successors[:, 0, 0].tolist()
    [1, 2, 0]
    """
    length = check_whole("ring: length", length, 1)
    _check_size(f"ring:{length}", length, 2, 1)
    following = np.repeat(((np.arange(length) + 1) % length)[:, None], 2, axis=1)
    rewards = np.tile([0.0, -1.0], (length, 1))
    return FiniteMDP.from_successors(rewards, following[..., None], np.ones((length, 2, 1)), gamma, f"ring:{length}")


MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Up, right, down, left, as (row, column)."""


@with_suggestions
def gridworld(rows: int = 10, columns: int | None = None, gamma: float = 0.99, slip: float = 0.2) -> FiniteMDP:
    """A grid with walls. Actions: up, right, down, left; a move slips to each side with probability `slip` / 2. The reward is -1 per step.

    The last state is the goal, which is absorbing with reward 0. All pairs share one row of probabilities, stored once.

    Examples
    --------
    >>> gridworld(3).states
    9
    """
    rows = check_whole("gridworld: rows", rows, 1)
    columns = rows if columns is None else check_whole("gridworld: columns", columns, 1)
    slip = check_probability("slip", slip)
    _check_size(f"gridworld:{rows},{columns}", rows * columns, 4, 3)
    row, column = np.divmod(np.arange(rows * columns), columns)
    reached = [np.clip(row + dr, 0, rows - 1) * columns + np.clip(column + dc, 0, columns - 1) for dr, dc in MOVES]
    successors = np.empty((rows * columns, 4, 3), dtype=np.uint32)
    for a in range(4):
        for k, turn in enumerate((0, 1, -1)):
            successors[:, a, k] = reached[(a + turn) % 4]
    successors[-1] = rows * columns - 1
    rewards = np.full((rows * columns, 4), -1.0)
    rewards[-1] = 0.0
    probabilities = np.broadcast_to([1 - slip, slip / 2, slip / 2], successors.shape)
    return FiniteMDP.from_successors(rewards, successors, probabilities, gamma, f"gridworld:{rows},{columns}", copy=False)


@with_suggestions
def garnet(states: int, actions: int, branching: int, gamma: float = 0.99, seed: int = 0) -> FiniteMDP:
    """A random MDP after Archibald, McKinnon and Thomas (1995): uniform successors, probabilities from cut points, normal rewards.

    Examples
    --------
    >>> garnet(50, 3, 4).transitions.successors.shape
    (50, 3, 4)
    """
    counts = {"states": states, "actions": actions, "branching": branching}
    states, actions, branching = (check_whole(f"garnet: {name}", count, 1) for name, count in counts.items())
    name = f"garnet:{states},{actions},{branching}"
    _check_size(name, states, actions, branching)
    rng = make_rng(seed)
    successors = rng.integers(0, states, (states, actions, branching), dtype=np.uint32)
    probabilities = rng.random((states, actions, branching))
    probabilities[..., -1] = 1.0
    probabilities.sort(axis=-1)
    probabilities[..., 1:] -= probabilities[..., :-1].copy()
    rewards = rng.standard_normal((states, actions))
    return FiniteMDP.from_successors(rewards, successors, probabilities, gamma, name, copy=False)


def _check_size(name: str, states: int, actions: int, branching: int) -> None:
    # A successor takes four bytes, a probability eight, a reward eight.
    needed = int(states) * int(actions) * (int(branching) * 12 + 8)
    if states > MAX_STATES or needed > MAX_BYTES:
        raise ValueError(
            f"{name} would need {needed // 10**9:,} GB of memory for its {states:,} states: "
            f"choose at most {MAX_BYTES // 10**9:,} GB and {MAX_STATES:,} states"
        )


EXAMPLES: dict[str, tuple[Callable[..., FiniteMDP], tuple[str, ...]]] = {
    "cake": (cake, ()),
    "single-state": (single_state, ()),
    "chain": (chain, ("length",)),
    "ring": (ring, ("length",)),
    "gridworld": (gridworld, ("rows", "columns")),
    "garnet": (garnet, ("states", "actions", "branching")),
}
"""Example MDPs by name: the function, and the sizes that may follow the name after a colon."""


def load_mdp(text: str, **options: float | None) -> FiniteMDP:
    """Make an MDP from a string. Options (`gamma`, `epsilon`, `slip`, `seed`) that are None take the MDP's default.

    Examples
    --------
    >>> load_mdp("garnet:20,2,3", gamma=0.5, seed=1)
    FiniteMDP(garnet:20,2,3: 20 states, 2 actions, 3 successors, gamma=0.5)
    """
    if not isinstance(text, str):
        raise TypeError(f"an MDP is named by a string such as garnet:20,2,3, not by {text!r}: see load_mdp")
    given = {name: value for name, value in options.items() if value is not None}
    name, colon, sizes = text.partition(":")
    if name in EXAMPLES:
        return _example(text, name, sizes, given)
    unused = sorted(set(given) - {"gamma"})
    if unused:
        raise ValueError(f"{text} takes no {unused[0]}: only the built-in MDPs do")
    if text.startswith("gym/"):
        from actiongap.mdp.gym import from_gymnasium

        return from_gymnasium(text.removeprefix("gym/"), **given)
    if text.endswith((".tra", ".drn")):
        from actiongap.mdp.explicit import load_explicit

        return load_explicit(text, given["gamma"]) if "gamma" in given else load_explicit(text)
    if text.endswith(".npz"):
        mdp = load_npz(text)
        return mdp.with_discount(given["gamma"]) if "gamma" in given else mdp
    choices = f"choose from {', '.join(EXAMPLES)}, gym/ID for a tabular Gymnasium environment, FILE.npz, or FILE.tra"
    if not (remedy := did_you_mean(name, EXAMPLES, rest=f"{colon}{sizes}")):
        from actiongap.mdp.gym import gym_names

        remedy = did_you_mean(text, gym_names(), choices)
    raise ValueError(f"unknown MDP {text!r}: {remedy}")


def _example(text: str, name: str, sizes: str, given: dict[str, float]) -> FiniteMDP:
    make, size_names = EXAMPLES[name]
    try:
        numbers = [int(size) for size in sizes.split(",")] if sizes else []
    except ValueError:
        raise ValueError(f"{text}: sizes must be whole numbers separated by commas, as in garnet:100,4,3") from None
    parameters = inspect.signature(make).parameters
    needed = sum(parameters[size].default is inspect.Parameter.empty for size in size_names)
    if not needed <= len(numbers) <= len(size_names):
        takes = f"{name}:{','.join(size_names).upper()}" if size_names else name
        raise ValueError(f"{text}: give the sizes as {takes}")
    unused = sorted(set(given) - set(parameters))
    if unused:
        options = [parameter for parameter in parameters if parameter not in size_names]
        remedy = did_you_mean(unused[0], options, f"it takes {', '.join(options)}")
        raise ValueError(f"{name} takes no {unused[0]}: {remedy}")
    return make(*numbers, **given)


def load_npz(path: str | Path) -> FiniteMDP:
    """Read an MDP from an `.npz` file; pickled contents are rejected.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "cake.npz"
    >>> save_npz(cake(), file)
    >>> load_npz(file).states
    2
    """
    path = as_path(path, "path")
    # Not path.is_file(), which raises if the path is too long.
    if not os.path.isfile(path):
        raise ValueError(f"{path}: no such file: check the path")
    arrays = _read_arrays(path)
    missing = {"rewards", "gamma"} - set(arrays)
    if missing:
        raise ValueError(f"{path} has no array {sorted(missing)[0]!r}: save rewards, gamma and next-state distributions")
    try:
        common = {"rewards": arrays["rewards"], "gamma": arrays["gamma"], "name": path.name}
        if "lengths" in arrays and "successors" in arrays and "probabilities" in arrays:
            lengths = check_indices("lengths", arrays["lengths"], 2, "numbers of successors", 2**63 - 1)
            form = Ragged.from_lengths(lengths, arrays["successors"], arrays["probabilities"])
            return FiniteMDP(transitions=form, **common)
        common["available"] = arrays.get("available")
        if "transitions" in arrays:
            return FiniteMDP.from_dense(transitions=arrays["transitions"], **common)
        if "successors" in arrays and "probabilities" in arrays:
            return FiniteMDP.from_successors(successors=arrays["successors"], probabilities=arrays["probabilities"], **common)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    raise ValueError(f"{path} has no next-state distributions: save 'transitions', or 'successors' and 'probabilities'")


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        if not zipfile.is_zipfile(path):
            raise zipfile.BadZipFile
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, compressed=True)
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise zipfile.BadZipFile
    except BombError as error:
        raise ValueError(f"{path}: {error}") from None
    except PermissionError:
        raise ValueError(f"{path} cannot be read: permission denied; change its permissions") from None
    except Exception as error:  # a damaged archive can raise almost any exception
        pickled = "pickle" in str(error).lower()
        why = "it contains pickled objects, which are never loaded" if pickled else "it is not a complete .npz file"
        raise ValueError(f"{path} cannot be read: {why}; save plain arrays with numpy.savez") from None
    return arrays


def save_npz(mdp: FiniteMDP, path: str | Path) -> None:
    """Write an MDP to a file that `load_npz` reads. The write is atomic."""
    path = as_path(path, "path")
    form = check_model(mdp).transitions
    if isinstance(form, Dense):
        arrays = {"transitions": form.probabilities}
    elif isinstance(form, Ragged):
        arrays = {"lengths": form.lengths, "successors": form.successors, "probabilities": form.probabilities}
    else:
        arrays = form._asdict()
    if mdp.available is not None and not isinstance(form, Ragged):
        arrays["available"] = mdp.available
    with writing(path) as file:
        np.savez_compressed(file, rewards=mdp.rewards, gamma=np.float64(mdp.gamma), **arrays)
