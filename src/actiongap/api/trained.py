"""Networks of trained agents: read from the folder of a run or from a file of weights, evaluated, saved, and played.

`load_trained` reads the newest checkpoint of a run. `save_weights` writes the online network to a `.safetensors` file, with the
configuration of its run in the metadata, and `load_weights` reads it. `play` records one greedy episode: the rendered frames, actions and
Q-values.

The tensors of a file are named `conv.0.weight`, `conv.0.bias`, `hidden.0.weight`, ..., `output.bias`, in the order of the layers. Weights
are (inputs, outputs), those of convolutions (rows, columns, inputs, outputs). With `dueling` the first output is the value.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from actiongap._files import as_path, open_regular, reason, writing
from actiongap._user_code import is_registered_text, names_code
from actiongap.dqn.agent import DQN
from actiongap.dqn.atari import ACTIONS, REPLAY_PREFIX
from actiongap.dqn.config import Config
from actiongap.dqn.frame_replay import push_frame
from actiongap.dqn.probe import BATCH_SIZE, in_batches
from actiongap.envs.atari import AtariEpisode, AtariGame
from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.gym import GymEnv
from actiongap.envs.registry import load_environment
from actiongap.envs.renderers import HEIGHT, WIDTH, FrameRenderer, RenderedEnv, Renderer
from actiongap.lab.checkpoint import read_checkpoint
from actiongap.lab.experiment import KINDS, Experiment, as_config, check_format
from actiongap.lab.kinds.train import Training
from actiongap.lab.store import read_status
from actiongap.lab.validation import experiment_of, read_record
from actiongap.planning.rollouts import Episode

ONLINE = ".agent.learner.online"
"""Path of the online network in the state of an unfinished run. The state of a finished run is the online network alone."""


PARTS = ("weight", "bias")
"""Names of the tensors of a layer in a file."""


class TrainedAgent(NamedTuple):
    """The online network of a run, and the run's configuration."""

    spec: Training
    dqn: DQN
    parameters: Any
    chunk: int
    """Number of chunks of training."""

    @property
    def label(self) -> str:
        """The operator and the seed."""
        return f"{self.spec.operator}, seed {self.spec.seed}"

    @property
    def env(self) -> FunctionalEnv | GymEnv | AtariGame:
        """The environment."""
        return load_environment(self.spec.env)

    def q_values(self, observations: np.ndarray) -> np.ndarray:
        """Return Q(x, a), (batch, actions), of converted observations and the actions that the environment has."""
        if not len(observations):
            return np.empty((0, len(self.env.actions)), np.float32)
        # Few shapes, so that little is compiled.
        size = min(1 << (len(observations) - 1).bit_length(), BATCH_SIZE)
        function = partial(_compiled(self.dqn), self.parameters)
        values = in_batches(function, np.asarray(observations), size)
        # An Atari network has a value for each of the console's actions. Those of the game come first.
        return values[:, : len(self.env.actions)]


@lru_cache(maxsize=64)
def _compiled(dqn: DQN) -> Callable[[Any, Any], Any]:
    """Return the compiled Q-function of a DQN."""
    return jax.jit(dqn.q_values)


def is_trained(folder: Path) -> bool:
    """Return whether a folder is a training run. Also True if its config.json cannot be read: loading it raises the error.

    Examples
    --------
    >>> is_trained(Path("nowhere"))
    False
    """
    try:
        return read_record(folder / "config.json").get("kind") == "train"
    except ValueError:
        return os.path.exists(folder / "config.json")


def load_trained(folder: Path, *, trust: bool = False) -> TrainedAgent:
    """Load the agent of a run from its newest valid checkpoint.

    The environment is loaded, so one that imports a module (`gym/MODULE:ID`) is refused unless the folder is trusted. The operator is not
    loaded, because acting does not need it.
    """
    if not os.path.exists(folder / "config.json"):
        raise ValueError(f"{folder} is not the folder of an agent: give one in the runs/ folder that actiongap train wrote")
    config = read_record(folder / "config.json")
    if config.get("kind") in KINDS and config["kind"] != Training.kind:
        # Also of runs that name code, which need not be trusted for this.
        raise ValueError(f"{folder} is a run of {config['kind']}, which has no agent: give the folder of a run of train")
    spec = _read_spec(config, folder / "config.json", trust)
    if not isinstance(spec, Training):
        raise ValueError(f"{folder} is a run of {spec.kind}, which has no agent: give the folder of a run of train")
    dqn = _make_dqn(spec)
    files = sorted((folder / "checkpoint").glob("*.npz"), reverse=True)
    for file in files:
        with contextlib.suppress(ValueError):
            # The replay buffer may be a thousand times as large as the network.
            found = read_checkpoint(file, lambda name: not name.startswith(REPLAY_PREFIX))
            break
    else:
        if files or _is_finished(folder):
            if unreadable := [file for file in files if not os.access(file, os.R_OK)]:
                raise ValueError(f"{unreadable[0]} cannot be read: permission denied; change its permissions")
            problem = "the checkpoints are truncated or changed" if files else "the run is done, and its checkpoint is missing"
            raise ValueError(f"{folder}: {problem}: train it again, in another folder")
        raise ValueError(f"{folder} has no checkpoint yet: train it for a while first")
    return TrainedAgent(spec, dqn, _find_parameters(dqn, found.state, folder), found.chunk)


def save_weights(agent: TrainedAgent, file: str | Path) -> None:
    """Write the online network of an agent to a .safetensors file, with the configuration of its run in the metadata."""
    file = as_path(file, "file")
    if file.suffix != ".safetensors":
        raise ValueError(f"{file}: an agent is saved as a .safetensors file: give it that suffix")
    layers = zip(agent.dqn.network.layers, agent.parameters, strict=True)
    weights = {f"{layer}.{part}": np.ascontiguousarray(leaf) for layer, leaves in layers for part, leaf in zip(PARTS, leaves, strict=True)}
    with writing(file) as stream:
        stream.write(save(weights, {"config": json.dumps(as_config(agent.spec)), "chunk": str(agent.chunk)}))


def load_weights(file: str | Path, *, trust: bool = False) -> TrainedAgent:
    """Load the agent that `save_weights` wrote. An environment that imports a module is refused unless the file is trusted."""
    file = Path(file)
    try:
        # A pipe would be waited for.
        open_regular(file).close()
        with safe_open(file, "numpy") as stream:
            metadata, state = stream.metadata() or {}, {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 - not a dict
        config, chunk = json.loads(metadata["config"]), int(metadata["chunk"])
        check_format(config)
    except OSError as error:
        raise ValueError(f"{file}: {reason(error)}") from None
    except (SafetensorError, KeyError, ValueError, RecursionError):
        raise ValueError(f"{file} is not an agent, or is damaged: give a .safetensors file that Agent.save wrote") from None
    spec = _read_spec(config, file, trust)
    if not isinstance(spec, Training):
        raise ValueError(f"{file} is not an agent: give a .safetensors file that Agent.save wrote")
    dqn = _make_dqn(spec)
    # In the state of a run, the tensors are named by their positions.
    paths = {f"[{k}][{j}]": f"{layer}.{part}" for k, layer in enumerate(dqn.network.layers) for j, part in enumerate(PARTS)}
    named = {path: state[name] for path, name in paths.items() if name in state}
    return TrainedAgent(spec, dqn, _find_parameters(dqn, named, file), chunk)


def _read_spec(config: Any, file: Path, trust: bool) -> Experiment:
    """Return the experiment of an agent. A user's operator is named in it and not loaded: acting does not need it."""
    spec = config.get("spec")
    operator = spec.get("operator") if isinstance(spec, dict) else None
    if config.get("kind") != Training.kind or not isinstance(spec, dict) or not (names_code(operator) or is_registered_text(operator)):
        return experiment_of(config, file, trust=trust)
    found = experiment_of({**config, "spec": {**spec, "operator": "bellman"}}, file, trust=trust)
    object.__setattr__(found, "operator", spec["operator"])
    return found


def _is_finished(folder: Path) -> bool:
    """Return whether the status of a run is `done`."""
    try:
        return read_status(folder).state == "done"
    except ValueError:
        return False


def _make_dqn(spec: Training) -> DQN:
    game = load_environment(spec.env)
    if isinstance(game, AtariGame):
        return _shared_dqn(spec.config, (*game.shape, spec.frame_stack), ACTIONS, True)
    return _shared_dqn(spec.config, game.shape, len(game.actions), False)


@lru_cache(maxsize=64)
def _shared_dqn(config: Config, shape: tuple[int, ...], actions: int, mask_actions: bool) -> DQN:
    """Return one object for all agents of a configuration, so that they share compiled programs."""
    return DQN(config, (), shape, actions, mask_actions=mask_actions)


def _find_parameters(dqn: DQN, state: dict[str, np.ndarray], source: Path) -> Any:
    """Return the parameters of the online network in a saved state."""
    like = jax.eval_shape(dqn.network.init, jax.random.key(0))
    leaves = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(like):
        name = jax.tree_util.keystr(path)
        array = state.get(name, state.get(ONLINE + name))
        if array is None or array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise ValueError(f"{source}: the saved network does not have the shapes of its configuration: train it again in another folder")
        leaves.append(array)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


MAX_EPISODE_STEPS = 3000
"""Steps after which `play` stops an episode."""
_BACKGROUND = (20, 23, 33)


def play(agent: TrainedAgent, seed: int = 0, max_episode_steps: int = MAX_EPISODE_STEPS) -> tuple[RenderedEnv, Episode]:
    """Record one greedy episode. Returns its rendered environment and the episode."""
    name, game = agent.spec.env, load_environment(agent.spec.env)
    env = _AtariScreen(agent, game, seed) if isinstance(game, AtariGame) else _GymScreen(agent, game, seed)
    frames, values, actions, scores, outcome = [], [], [], [0.0], "limit"
    for step in range(max_episode_steps + 1):
        values.append(agent.q_values(env.observation)[0])
        actions.append(int(values[-1].argmax()))
        frames.append(_compress(env.frame, name))
        if outcome != "limit" or step == max_episode_steps:
            break
        reward, terminated, truncated = env.step(actions[-1])
        scores.append(scores[-1] + reward)
        outcome = "game over" if terminated else "truncated" if truncated else "limit"
    env.close()
    rendered = RenderedEnv(name, game.actions, ("score",), Renderer(lambda episode: _frame_renderer(frames), env.fps))
    return rendered, Episode((), (np.array(scores),), np.array(actions), np.array(values), np.arange(len(actions)), outcome)


class _GymScreen:
    """An episode of a Gymnasium environment, rendered by the environment."""

    def __init__(self, agent: TrainedAgent, game: FunctionalEnv | GymEnv, seed: int):
        self._game, self._env = game, _make_env(agent, game)
        self._observation, _ = self._env.reset(seed=seed)
        self.fps = float(self._env.metadata.get("render_fps") or 10)

    @property
    def observation(self) -> np.ndarray:
        """The agent's observation, as a batch of one."""
        observations = np.asarray(self._observation)[None]
        return self._game.convert(observations) if isinstance(self._game, GymEnv) else observations

    @property
    def frame(self) -> Any:
        """The rendered frame."""
        with needing_renderer(self._game.name):
            return self._env.render()

    def step(self, action: int) -> tuple[float, bool, bool]:
        number = action + int(self._game.action_space.start) if isinstance(self._game, GymEnv) else action
        self._observation, reward, terminated, truncated, _ = self._env.step(number)
        return float(reward), bool(terminated), bool(truncated)

    def close(self) -> None:
        self._env.close()


class _AtariScreen:
    """An episode of an Atari game: frame stacks for the agent, and the whole screen in color.

    As in evaluations, a stack continues after a lost life, even if lost lives are terminal in training.
    """

    fps = 15.0  # 60 frames per second, 4 frames per step.

    def __init__(self, agent: TrainedAgent, game: AtariGame, seed: int):
        self._console = AtariEpisode(game.name, agent.spec.repeat_action_probability, seed)
        self.observation = np.zeros((1, *agent.dqn.shape), np.uint8)
        self._push = jax.jit(push_frame)
        self._update(True)

    @property
    def frame(self) -> Any:
        """The rendered frame."""
        return self._console.picture

    def step(self, action: int) -> tuple[float, bool, bool]:
        found = self._console.step(action)
        self._update(False)
        return found

    def _update(self, first: bool) -> None:
        self.observation = self._push(self.observation, self._console.frame[None], np.array([first]))

    def close(self) -> None:
        # An emulator is freed with its last reference.
        del self._console


def _make_env(agent: TrainedAgent, game: FunctionalEnv | GymEnv) -> Any:
    if isinstance(game, FunctionalEnv):
        words = "".join(word.capitalize() for word in game.name.split("_"))
        import actiongap.envs  # noqa: F401 - registers it

        return gymnasium.make(
            f"actiongap/MinAtar-{words}-v0", render_mode="rgb_array", repeat_action_probability=agent.spec.repeat_action_probability
        )
    with needing_renderer(game.name), warnings.catch_warnings():
        # An environment that does not render is an error below.
        warnings.simplefilter("ignore", UserWarning)
        return gymnasium.make(game.name, render_mode="rgb_array")


@contextlib.contextmanager
def needing_renderer(name: str) -> Iterator[None]:
    """Raise ValueError with Gymnasium's sentence if an environment cannot be rendered, for example without pygame.

    Examples
    --------
    >>> with needing_renderer("Lake-v0"):
    ...     raise gymnasium.error.DependencyNotInstalled("pygame is not installed")
    Traceback (most recent call last):
    ValueError: Lake-v0 cannot be rendered: pygame is not installed
    """
    try:
        yield
    except (gymnasium.error.Error, NotImplementedError, TypeError) as error:
        why = " ".join(str(error).split()) or "it has no render method"
        raise ValueError(f"{name} cannot be rendered: {why}") from None


def _compress(frame: Any, name: str) -> bytes:
    """Return a frame as a PNG, because a long episode has thousands."""
    if frame is None:
        raise ValueError(f"{name} does not render frames, so it cannot be watched")
    image, stream = Image.fromarray(np.asarray(frame, np.uint8)), io.BytesIO()
    scale = min(WIDTH / image.width, HEIGHT / image.height)
    size = (round(image.width * scale), round(image.height * scale))
    image.resize(size, Image.Resampling.LANCZOS).save(stream, "png", compress_level=1)
    return stream.getvalue()


def _frame_renderer(frames: list[bytes]) -> FrameRenderer:
    def draw(step: int) -> np.ndarray:
        image = Image.new("RGB", (WIDTH, HEIGHT), _BACKGROUND)
        frame = Image.open(io.BytesIO(frames[step]))
        image.paste(frame, ((WIDTH - frame.width) // 2, (HEIGHT - frame.height) // 2))
        return np.asarray(image)

    return draw
