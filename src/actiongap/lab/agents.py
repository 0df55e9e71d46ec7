"""Trained agents: loaded from the folder of a run, finished or not, or from a file of weights, and recorded at play.

`load_trained` reads the newest checkpoint of a run. `save_agent` writes the online network to a `.safetensors` file, with the configuration
of its run in the metadata; `load_agent` reads it. `play` records one greedy episode: what the environment renders, and the Q-values.
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from actiongap._files import names_code, reason, writing
from actiongap.dqn.agent import DQN
from actiongap.dqn.atari import ACTIONS, FILM
from actiongap.dqn.frame_replay import push
from actiongap.envs.atari import AtariEpisode, AtariGame
from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.gym import GymEnv
from actiongap.envs.registry import load_environment
from actiongap.envs.renderers import HEIGHT, WIDTH, FrameRenderer, RenderedEnv, Renderer
from actiongap.lab.checkpoint import read_checkpoint
from actiongap.lab.experiment import Experiment, as_config, check_format
from actiongap.lab.kinds.train import Training
from actiongap.lab.store import read_status
from actiongap.lab.validation import experiment_of, read_record
from actiongap.planning.rollouts import Episode

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
    spec = _spec(read_record(folder / "config.json"), folder / "config.json", trust)
    if not isinstance(spec, Training):
        raise ValueError(f"{folder} is a run of {spec.kind}, and nobody learns there: give the folder of a run of train")
    game = load_environment(spec.env)
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


def save_agent(agent: Trained, file: str | Path) -> None:
    """Write the online network of an agent to a .safetensors file, with the configuration of its run in the metadata."""
    file = Path(file)
    if file.suffix != ".safetensors":
        raise ValueError(f"{file}: an agent is saved as a .safetensors file: give it that suffix")
    leaves = jax.tree_util.tree_leaves_with_path(agent.parameters)
    weights = {jax.tree_util.keystr(path): np.ascontiguousarray(leaf) for path, leaf in leaves}
    with writing(file) as stream:
        stream.write(save(weights, {"config": json.dumps(as_config(agent.spec)), "chunk": str(agent.chunk)}))


def load_agent(file: str | Path, *, trust: bool = False) -> Trained:
    """The agent that `save_agent` wrote. An environment that imports a module is refused unless the file is trusted."""
    file = Path(file)
    try:
        with safe_open(file, "numpy") as stream:
            about, state = stream.metadata() or {}, {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 - not a dict
        config, chunk = json.loads(about["config"]), int(about["chunk"])
        check_format(config)
    except OSError as error:
        raise ValueError(f"{file}: {reason(error)}") from None
    except (SafetensorError, KeyError, ValueError):
        raise ValueError(f"{file} is not an agent, or is damaged: give a file that save_agent wrote") from None
    spec = _spec(config, file, trust)
    if not isinstance(spec, Training):
        raise ValueError(f"{file} is not an agent: give a file that save_agent wrote")
    dqn = _dqn(spec, load_environment(spec.env))
    return Trained(spec, dqn, _parameters(dqn, state, file), chunk)


def _spec(config: Any, file: Path, trust: bool) -> Experiment:
    """The experiment of an agent. A user's operator is named in it and not loaded."""
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
        return DQN(spec.config, (), (*game.shape, spec.frame_stack), ACTIONS, mask_actions=True)
    return DQN(spec.config, (), game.shape, len(game.actions))


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


LIMIT = 3000
"""Steps after which an episode is cut short."""
_BACKGROUND = (20, 23, 33)


def play(agent: Trained, seed: int = 0, limit: int = LIMIT) -> tuple[RenderedEnv, Episode]:
    """One episode, played greedily, and how it is shown."""
    name, game = agent.spec.env, load_environment(agent.spec.env)
    show = _Screen(agent, game, seed) if isinstance(game, AtariGame) else _Painting(agent, game, seed)
    think = jax.jit(agent.dqn.values)
    pictures, values, actions, scores, ending = [], [], [], [0.0], "limit"
    for step in range(limit + 1):
        # A network for Atari has a value for every action of the console, and those of the game come first.
        values.append(np.asarray(think(agent.parameters, show.seen))[0, : len(game.actions)])
        actions.append(int(values[-1].argmax()))
        pictures.append(_kept(show.picture, name))
        if ending != "limit" or step == limit:
            break
        reward, terminated, truncated = show.step(actions[-1])
        scores.append(scores[-1] + reward)
        ending = "game over" if terminated else "cut short" if truncated else "limit"
    show.close()
    env = RenderedEnv(name, game.actions, ("score",), Renderer(lambda episode: _frame_renderer(pictures), show.pace))
    return env, Episode((), (np.array(scores),), np.array(actions), np.array(values), np.arange(len(actions)), ending)


class _Painting:
    """An episode of an environment that Gymnasium makes and that paints itself."""

    def __init__(self, agent: Trained, game: FunctionalEnv | GymEnv, seed: int):
        self._game, self._env = game, _environment(agent, game)
        self._observation, _ = self._env.reset(seed=seed)
        self.pace = float(self._env.metadata.get("render_fps") or 10)

    @property
    def seen(self) -> np.ndarray:
        """What the agent sees, a batch of one."""
        observations = np.asarray(self._observation)[None]
        return self._game.seen(observations) if isinstance(self._game, GymEnv) else observations

    @property
    def picture(self) -> Any:
        """What people see."""
        return self._env.render()

    def step(self, action: int) -> tuple[float, bool, bool]:
        number = action + int(self._game.moves.start) if isinstance(self._game, GymEnv) else action
        self._observation, reward, terminated, truncated, _ = self._env.step(number)
        return float(reward), bool(terminated), bool(truncated)

    def close(self) -> None:
        self._env.close()


class _Screen:
    """A game of Atari's: stacks of frames for the agent, and the whole screen in colour.

    As in evaluations, a stack is begun with a game, and goes on over a lost life even if those end episodes in training.
    """

    pace = 15.0  # Sixty frames a second, of which a step lasts four.

    def __init__(self, agent: Trained, game: AtariGame, seed: int):
        self._console = AtariEpisode(game.name, agent.spec.repeat_action_probability, seed)
        self.seen = np.zeros((1, *agent.dqn.shape), np.uint8)
        self._push = jax.jit(push)
        self._look(True)

    @property
    def picture(self) -> Any:
        """What people see."""
        return self._console.picture

    def step(self, action: int) -> tuple[float, bool, bool]:
        found = self._console.step(action)
        self._look(False)
        return found

    def _look(self, first: bool) -> None:
        self.seen = self._push(self.seen, self._console.frame[None], np.array([first]))

    def close(self) -> None:
        # Emulators go with whoever has them.
        del self._console


def _environment(agent: Trained, game: FunctionalEnv | GymEnv) -> Any:
    if isinstance(game, FunctionalEnv):
        words = "".join(word.capitalize() for word in game.name.split("_"))
        import actiongap.envs  # noqa: F401 - registers it

        return gymnasium.make(
            f"actiongap/MinAtar-{words}-v0", render_mode="rgb_array", repeat_action_probability=agent.spec.repeat_action_probability
        )
    try:
        return gymnasium.make(game.name, render_mode="rgb_array")
    except gymnasium.error.Error as error:
        raise ValueError(f"{game.name} cannot be painted: {' '.join(str(error).split())}") from None


def _kept(picture: Any, name: str) -> bytes:
    """A picture as a few bytes: a long episode has thousands."""
    if picture is None:
        raise ValueError(f"{name} paints no pictures: it cannot be watched")
    image, kept = Image.fromarray(np.asarray(picture, np.uint8)), io.BytesIO()
    scale = min(WIDTH / image.width, HEIGHT / image.height)
    size = (round(image.width * scale), round(image.height * scale))
    image.resize(size, Image.Resampling.LANCZOS).save(kept, "png", compress_level=1)
    return kept.getvalue()


def _frame_renderer(pictures: list[bytes]) -> FrameRenderer:
    def paint(record: int) -> np.ndarray:
        image = Image.new("RGB", (WIDTH, HEIGHT), _BACKGROUND)
        picture = Image.open(io.BytesIO(pictures[record]))
        image.paste(picture, ((WIDTH - picture.width) // 2, (HEIGHT - picture.height) // 2))
        return np.asarray(image)

    return paint
