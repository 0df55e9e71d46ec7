"""What training leaves behind: an agent that can be asked and watched, from its run's folder, finished or not."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from actiongap._files import names_code
from actiongap.dqn.agent import DQN
from actiongap.dqn.atari import ACTIONS, FILM
from actiongap.envs.atari import AtariGame
from actiongap.envs.registry import load_environment
from actiongap.experiments.training import Training
from actiongap.lab.checkpoint import read_checkpoint
from actiongap.lab.spec import Experiment
from actiongap.lab.store import read_status
from actiongap.lab.strict import experiment_of, read_record

ONLINE = ".agent.learner.online"
"""Where the online network is in the state of an agent that is still learning; what is finished has nothing else."""


class Trained(NamedTuple):
    """An agent."""

    spec: Training
    dqn: DQN
    parameters: Any
    chunk: int
    """How much of its training is behind it, in chunks."""

    @property
    def label(self) -> str:
        """Who it is, in a few words."""
        return f"{self.spec.operator}, seed {self.spec.seed}"


def is_trained(folder: Path) -> bool:
    """Whether a folder is the run of an agent, or may be one that is damaged; who loads it will be told.

    Examples
    --------
    >>> is_trained(Path("nowhere"))
    False
    """
    try:
        return read_record(folder / "config.json").get("kind") == "train"
    except ValueError:
        return (folder / "config.json").exists()


def load_trained(folder: Path, *, trust: bool = False) -> Trained:
    """The agent of a run's folder, as it was when it was last saved.

    Its environment is loaded, so one that imports a module (`gym/MODULE:ID`) is refused unless the folder is trusted. Its operator is not
    loaded: agents that only play need none.
    """
    if not (folder / "config.json").exists():
        raise ValueError(f"{folder} is not the folder of an agent: give one of those that actiongap train has made in its runs/")
    spec = _spec(folder / "config.json", trust)
    if not isinstance(spec, Training):
        raise ValueError(f"{folder} is a run of {spec.kind}, and nobody learns there: give the folder of a run of train")
    game = load_environment(spec.problem)
    dqn = _dqn(spec, game)
    files = sorted((folder / "checkpoint").glob("*.npz"), reverse=True)
    for file in files:
        with contextlib.suppress(ValueError):
            # What it remembers may be a thousand times as large.
            found = read_checkpoint(file, lambda name: not name.startswith(FILM))
            break
    else:
        if files or _has_ended(folder):
            lost = "what was saved of the agent was cut short, or changed" if files else "the agent is not there, only what is known of it"
            raise ValueError(f"{folder}: {lost}: train it again, in another folder")
        raise ValueError(f"{folder} holds no agent yet: train it for a while first")
    return Trained(spec, dqn, _parameters(dqn, found.state, folder), found.chunk)


def _spec(file: Path, trust: bool) -> Experiment:
    """The experiment of an agent; an operator of the user's own is named in it, and not loaded."""
    config = read_record(file)
    spec = config.get("spec")
    if config.get("kind") != Training.kind or not isinstance(spec, dict) or not names_code(spec.get("operator")):
        return experiment_of(config, file, trust=trust)
    found = experiment_of({**config, "spec": {**spec, "operator": "bellman"}}, file, trust=trust)
    object.__setattr__(found, "operator", spec["operator"])
    return found


def _has_ended(folder: Path) -> bool:
    """Whether a run says that it is done."""
    try:
        return read_status(folder).state == "done"
    except ValueError:
        return False


def _dqn(spec: Training, game: Any) -> DQN:
    if isinstance(game, AtariGame):
        return DQN(spec.settings, (), (*game.shape, spec.stack), ACTIONS, fewer=True)
    return DQN(spec.settings, (), game.shape, len(game.actions))


def _parameters(dqn: DQN, state: dict[str, np.ndarray], folder: Path) -> Any:
    """The online network out of a saved state."""
    like = jax.eval_shape(dqn.network.init, jax.random.key(0))
    leaves = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(like):
        name = jax.tree_util.keystr(path)
        rows = state.get(name, state.get(ONLINE + name))
        if rows is None or rows.shape != leaf.shape or rows.dtype != leaf.dtype:
            raise ValueError(f"{folder}: what was saved there is no network of this kind: train it anew in another folder")
        leaves.append(rows)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
