"""Finite MDPs by name: `cake`, `garnet:100000,8,8`, `gym/FrozenLake-v1`, or a file `model.npz`; and the file format itself.

A model file holds `rewards` (S, A), `gamma`, and either `transitions` (S, A, S) or `successors` with `probabilities` (S, A, K).
"""

from __future__ import annotations

import inspect
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from actiongap._files import writing
from actiongap.finite import examples
from actiongap.finite.model import Dense, FiniteMDP

EXAMPLES: dict[str, tuple[Callable[..., FiniteMDP], tuple[str, ...]]] = {
    "cake": (examples.cake, ()),
    "single-state": (examples.single_state, ()),
    "chain": (examples.chain, ("length",)),
    "gridworld": (examples.gridworld, ("rows", "columns")),
    "garnet": (examples.garnet, ("states", "actions", "branching")),
}
"""Each example with the sizes that may follow its name after a colon."""


def load_mdp(text: str, **options: float | None) -> FiniteMDP:
    """The MDP that a text names. Options (`gamma`, `epsilon`, `slip`, `seed`) that are None take the problem's own default.

    Examples
    --------
    >>> load_mdp("garnet:20,2,3", gamma=0.5, seed=1)
    FiniteMDP(garnet:20,2,3: 20 states, 2 actions, 3 successors, gamma=0.5)
    """
    given = {name: value for name, value in options.items() if value is not None}
    name, _, sizes = text.partition(":")
    if name in EXAMPLES:
        return _example(text, name, sizes, given)
    unused = sorted(set(given) - {"gamma"})
    if unused:
        raise ValueError(f"{text} takes no {unused[0]}: only the built-in problems do")
    if text.startswith("gym/"):
        from actiongap.finite.gymnasium import from_gymnasium

        return from_gymnasium(text.removeprefix("gym/"), **given)
    if text.endswith(".npz"):
        mdp = load_npz(text)
        return mdp.with_discount(given["gamma"]) if "gamma" in given else mdp
    raise ValueError(
        f"unknown problem {text!r}: choose from {', '.join(EXAMPLES)}, gym/ID for a tabular Gymnasium environment, or FILE.npz"
    )


def _example(text: str, name: str, sizes: str, given: dict[str, float]) -> FiniteMDP:
    make, size_names = EXAMPLES[name]
    try:
        numbers = [int(size) for size in sizes.split(",")] if sizes else []
    except ValueError:
        raise ValueError(f"{text}: sizes are whole numbers separated by commas, as in garnet:100,4,3") from None
    parameters = inspect.signature(make).parameters
    needed = sum(parameters[size].default is inspect.Parameter.empty for size in size_names)
    if not needed <= len(numbers) <= len(size_names):
        takes = f"{name}:{','.join(size_names).upper()}" if size_names else name
        raise ValueError(f"{text}: give the sizes as {takes}")
    unused = sorted(set(given) - set(parameters))
    if unused:
        raise ValueError(f"{name} takes no {unused[0]}: it takes {', '.join(p for p in parameters if p not in size_names)}")
    return make(*numbers, **given)


def load_npz(path: str | Path) -> FiniteMDP:
    """Read an MDP from a file of plain arrays; pickled contents are refused.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "cake.npz"
    >>> save_npz(examples.cake(), file)
    >>> load_npz(file).states
    2
    """
    path = Path(path)
    # Not `path.is_file()`, which raises where the path is too long to be one.
    if not os.path.isfile(path):
        raise ValueError(f"{path}: no such file")
    arrays = _read_arrays(path)
    missing = {"rewards", "gamma"} - set(arrays)
    if missing:
        raise ValueError(f"{path} has no array {sorted(missing)[0]!r}: a model file holds rewards, gamma and next-state distributions")
    try:
        common = {"rewards": arrays["rewards"], "gamma": arrays["gamma"], "name": path.name}
        if "transitions" in arrays:
            return FiniteMDP.from_dense(transitions=arrays["transitions"], **common)
        if "successors" in arrays and "probabilities" in arrays:
            return FiniteMDP.from_successors(successors=arrays["successors"], probabilities=arrays["probabilities"], **common)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    raise ValueError(f"{path} has neither an array 'transitions' nor both 'successors' and 'probabilities'")


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        if not zipfile.is_zipfile(path):
            raise zipfile.BadZipFile
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise zipfile.BadZipFile
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        pickled = "pickle" in str(error).lower()
        why = "it holds pickled objects, which are never loaded" if pickled else "it is not a whole .npz file"
        raise ValueError(f"{path} cannot be read: {why}; save plain arrays with numpy.savez") from None
    return arrays


def save_npz(mdp: FiniteMDP, path: str | Path) -> None:
    """Write an MDP to a file that `load_npz` reads; the file appears whole or not at all."""
    dense = isinstance(mdp.transitions, Dense)
    transitions = {"transitions": mdp.transitions.probabilities} if dense else mdp.transitions._asdict()
    with writing(path) as file:
        np.savez_compressed(file, rewards=mdp.rewards, gamma=np.float64(mdp.gamma), **transitions)
