"""Models in the explicit files of the model checkers PRISM and Storm.

- PRISM: `NAME.tra` lists the transitions as `state choice successor probability`. Rewards of states are in `NAME.srew`, as `state reward`,
  and rewards of transitions in `NAME.trew`, as `state choice successor reward`. Files of a Markov chain have no choices.
- Storm: `NAME.drn` has the transitions and the rewards; Storm also reads PRISM's files, with the type of model as the first line.

A reward of a state is earned in every step from it. Neither format has a discount.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from actiongap.mdp.model import FiniteMDP


def load_explicit(
    path: str | Path,
    gamma: float = 0.99,
    *,
    state_rewards: str | Path | None = None,
    transition_rewards: str | Path | None = None,
    reward_model: str | None = None,
) -> FiniteMDP:
    r"""Read a model from PRISM's explicit files or from a file of Storm.

    Parameters
    ----------
    path
        A `.tra` file of PRISM, or a `.drn` file of Storm.
    gamma
        The discount, in [0, 1).
    state_rewards, transition_rewards
        Files of rewards that belong to a `.tra` file; by default those of the same name that end in `.srew` and `.trew`, if they exist.
    reward_model
        The rewards of a `.drn` file that has several.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "walk.tra"
    >>> _ = file.write_text("2 3 4\n0 0 0 0.5\n0 0 1 0.5\n0 1 1 1\n1 0 1 1\n")
    >>> _ = file.with_suffix(".srew").write_text("2 1\n0 -1\n")
    >>> load_explicit(file, gamma=0.9).rewards.tolist()
    [[-1.0, -1.0], [0.0, 0.0]]
    """
    path = Path(path)
    if path.suffix == ".drn":
        if state_rewards is not None or transition_rewards is not None:
            raise ValueError(f"{path} has its own rewards: choose one with reward_model")
        return _load_drn(path, gamma, reward_model)
    if reward_model is not None:
        raise ValueError(f"{path} has no reward models: pass state_rewards or transition_rewards")
    rows, header = _read(path)
    chain = len(header) == 2 or (not header and rows.shape[1] == 3)
    if rows.shape[1] != (3 if chain else 4) or not len(rows):
        raise ValueError(f"{path}: lines must be `state choice successor probability`, or `state successor probability` of a Markov chain")
    if chain:
        rows = np.insert(rows, 1, 0.0, axis=1)
    states = int(header[0]) if header else int(max(rows[:, 0].max(), rows[:, 2].max())) + 1
    pairs, which = np.unique(_whole(path, rows[:, :2], states), axis=0, return_inverse=True)
    if len(header) == 3 and len(pairs) != header[1]:
        raise ValueError(f"{path} has {len(pairs)} choices and its first line says {int(header[1])}: write the file again")
    shape = (len(pairs), states)
    matrix = sparse.csr_array((rows[:, 3], (which, _whole(path, rows[:, 2], states))), shape=shape)
    state_rewards = _beside(path, ".srew") if state_rewards is None else Path(state_rewards)
    transition_rewards = _beside(path, ".trew") if transition_rewards is None else Path(transition_rewards)
    rewards = np.zeros(len(pairs))
    if state_rewards is not None:
        listed, _ = _read(state_rewards)
        by_state = np.zeros(states)
        by_state[_whole(state_rewards, listed[:, 0], states)] = listed[:, 1]
        rewards += by_state[pairs[:, 0]]
    if transition_rewards is not None:
        listed, _ = _read(transition_rewards)
        if listed.shape[1] == 3:
            listed = np.insert(listed, 1, 0.0, axis=1)
        known = {(x, a): row for row, (x, a) in enumerate(pairs.tolist())}
        places = [known.get((x, a), -1) for x, a in _whole(transition_rewards, listed[:, :2], states).tolist()]
        if -1 in places:
            x, a = listed[places.index(-1), :2].astype(int)
            raise ValueError(
                f"{transition_rewards} has a reward of state {x} and choice {a}, which {path} does not have: use files of one model"
            )
        successors = _whole(transition_rewards, listed[:, 2], states)
        each = sparse.csr_array((listed[:, 3], (places, successors)), shape=shape)
        rewards += np.asarray(matrix.multiply(each).sum(axis=1)).ravel()
    return _named(path, pairs[:, 0], pairs[:, 1], rewards, matrix, gamma)


def _named(path: Path, states: Any, actions: Any, rewards: Any, matrix: Any, gamma: float) -> FiniteMDP:
    try:
        return FiniteMDP.from_pairs(states, actions, rewards, matrix, gamma, path.name)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _beside(path: Path, suffix: str) -> Path | None:
    other = path.with_suffix(suffix)
    return other if other.is_file() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"{path} cannot be read: {reason}; check the path") from None


def _read(path: Path) -> tuple[np.ndarray, list[float]]:
    """Return the numbers of a file, without labels of actions, and those of its first line, or none if that is the type of model."""
    lines = [line.split() for line in _lines(path) if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise ValueError(f"{path} is empty: write the file again")
    typed = not re.match(r"[\d.]", lines[0][0])
    body = lines[1:]
    try:
        header = [] if typed else [float(word) for word in lines[0]]
        # A choice may have a label, which is the last word.
        words = [line[:-1] if not re.match(r"[-+\d.]", line[-1]) else line for line in body]
        width = max((len(line) for line in words), default=0)
        return np.array([[float(word) for word in line] for line in words]).reshape(len(words), width), header
    except ValueError:
        raise ValueError(f"{path}: a line is not made of numbers like the others: write the file again") from None


def _whole(path: Path, values: np.ndarray, states: int) -> np.ndarray:
    """Return states (N,), or states and choices (N, 2), as integers."""
    limit = states if values.ndim == 1 else np.array([states, np.inf])
    bad = ~((values >= 0) & (values < limit) & (values == np.floor(values)))
    if bad.any():
        raise ValueError(f"{path} has {values[bad][0]:g} for a state or choice: states must be whole numbers from 0 to {states - 1}")
    return values.astype(np.int64)


def _load_drn(path: Path, gamma: float, reward_model: str | None) -> FiniteMDP:
    lines = [line.strip() for line in _lines(path) if line.strip() and not line.lstrip().startswith("//")]
    sections = {line.split(":")[0]: place for place, line in enumerate(lines) if line.startswith("@")}
    if "@model" not in sections:
        raise ValueError(f"{path} has no @model: write it with Storm's --exportbuild")
    kind = lines[sections["@type"]].partition(":")[2].strip().lower() if "@type" in sections else "mdp"
    if kind not in ("mdp", "dtmc"):
        raise ValueError(f"{path} is a model of type {kind}: only MDPs and DTMCs can be solved")
    models = lines[sections["@reward_models"] + 1].split() if "@reward_models" in sections else []
    models = [name for name in models if not name.startswith("@")]
    if reward_model is None and len(models) > 1:
        raise ValueError(f"{path} has the reward models {', '.join(models)}: choose one with reward_model")
    if reward_model is not None and reward_model not in models:
        raise ValueError(f"{path} has no reward model {reward_model!r}: choose from {', '.join(models)}")
    which = models.index(reward_model) if reward_model is not None else 0
    states, actions, rewards, rows, columns, weights = [], [], [], [], [], []
    line, state, action, row, paid = "", -1, 0, -1, 0.0
    try:
        for line in lines[sections["@model"] + 1 :]:
            words = line.replace("[", " [ ").replace("]", " ] ").replace(",", " ").split()
            reward = float(words[words.index("[") + 1 + which]) if "[" in words and models else 0.0
            if words[0] == "state":
                state, action, paid = int(words[1]), 0, reward
            elif words[0] == "action":
                states.append(state)
                actions.append(action)
                rewards.append(paid + reward)
                action += 1
                row += 1
            else:
                target, _, probability = line.partition(":")
                rows.append(row)
                columns.append(int(target))
                weights.append(float(probability))
    except (ValueError, IndexError):
        raise ValueError(
            f"{path}: {line!r} is not a state, an action, or a transition `state : probability`: write the file again"
        ) from None
    count = max([*states, *columns], default=-1) + 1
    matrix = sparse.csr_array((weights, (rows, columns)), shape=(len(states), count))
    return _named(path, states, actions, rewards, matrix, gamma)
