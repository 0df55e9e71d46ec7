"""Training deep agents as experiments, with evaluations at regular intervals.

A run is one agent. Agents with the same environment and configuration can share a batch, with any operators and seeds, and are
trained as one population. On Atari the agents of a batch may play different games. Between chunks the state of an agent is a dictionary of
arrays: networks, optimizer state, replay buffer, environment state, counters and random key.

Environments on the host cannot be saved. Atari games are reset at the start of every chunk, and there is one chunk per evaluation.
Gymnasium environments continue from chunk to chunk, and are reset if the run is interrupted and resumed. The column `restarts` counts this.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from actiongap._files import format_bytes
from actiongap._suggest import choose_from, did_you_mean
from actiongap.dqn.atari import AtariPopulation
from actiongap.dqn.config import PRESETS, Config
from actiongap.dqn.frame_replay import choose_device, max_agents, replay_bytes
from actiongap.dqn.host import HostPopulation
from actiongap.dqn.population import Population
from actiongap.envs.atari import FRAMES_PER_STEP, SCREEN, AtariGame
from actiongap.envs.gym import GymEnv
from actiongap.envs.registry import check_environment, load_environment
from actiongap.lab.batches import OnProgress, RunBatch, VectorizedExperiment
from actiongap.lab.experiment import Row, State, cached, check_count, check_seed, chunk_bounds
from actiongap.operators import parse

MAX_EPISODES = 10**6
"""Maximum number of episodes per evaluation, which are played at once."""
UPDATES = 500
"""Maximum number of gradient steps per chunk: a second of work for one agent on a CPU, or for hundreds on an accelerator."""

_READY: dict[Any, Any] = {}
"""The population that was compiled last."""


@dataclass(frozen=True)
class Training(Config, VectorizedExperiment):
    """A DQN that learns with an operator.

    Fields that are not given come from `preset`, by default `stochastic-minimal` on Atari and `faithful` elsewhere. The preset is not a
    field: only the values are recorded.

    Examples
    --------
    >>> original = {"terminal_on_life_loss": True, "repeat_action_probability": 0.0}
    >>> Training(env="atari/pong", preset="original-dqn") == Training(env="atari/pong", **original)
    True
    >>> short = {"frames": 64, "eval_every": 32, "buffer_size": 50, "learning_starts": 20, "episodes": 2, "max_episode_steps": 9}
    >>> spec = Training(env="minatar/breakout", operator="al:0.5", **short)
    >>> state, rows = spec.advance(spec.start(), 0)
    >>> spec.chunks, rows[0]["step"]
    (2, 32)
    """

    kind = "train"
    compiles = True
    step_name = "frames"
    columns: ClassVar[Mapping[str, str]] = {
        "score": "return of an episode, mean over the episodes of an evaluation",
        "games": "number of these episodes",
        "length": "steps per episode, mean over these episodes",
        "action_gap": "best minus second-best Q, mean over the states visited in an evaluation",
        "value": "max_a Q, mean over these states",
        "bias": "max_a Q minus the discounted return, mean over these states",
        "training_return": "return of a training episode, mean over the episodes that ended since the last row",
        "loss": "loss of the last gradient step",
        "restarts": "number of times that environments (gym/) or the replay buffer (atari/) started again because they were not saved",
    }

    env: str = "minatar/breakout"
    """An environment: minatar/GAME (asterix, breakout, freeway, seaquest, space_invaders), atari/ROM (atari/pong), or gym/ID."""
    operator: str = "bellman"
    """An operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, or path/to/file.py:name."""
    frames: int = 1_000_000
    """Number of training frames. A step is one frame, or four on Atari."""
    eval_every: int = 50_000
    """Frames between evaluations; a twentieth of `frames` if not given. The last evaluation is at the end of training."""
    episodes: int = 32
    """Number of episodes per evaluation."""
    evaluation_steps: int = 0
    """On Atari, steps after which an evaluation starts no new episode. 0: evaluate `episodes` episodes instead."""
    max_episode_steps: int = 3_000
    """Steps after which an evaluation episode is truncated: 3,000, or 27,000 on Atari, if not given."""
    evaluation_epsilon: float = 0.01
    """Probability of a random action in an evaluation: 0.01, or 0.05 on Atari, if not given."""
    save_replay_buffer: bool = True
    """On Atari, whether to save the replay buffer (7 kB per step). If not, a resumed run refills it."""
    exact: bool = False
    """Whether the agents of a batch are computed one after another, so that results do not depend on the batch, bit for bit. Slow."""
    seed: int = 0
    """Random seed; the same seed repeats a run."""

    presets: ClassVar[Mapping[str, Config]] = PRESETS

    def __init__(self, env: str = "minatar/breakout", *, preset: str | None = None, **fields: Any) -> None:
        known = {field.name: field.default for field in dataclasses.fields(Training)}
        if unknown := sorted(set(fields) - set(known)):
            remedy = did_you_mean(unknown[0], known, f"it has {', '.join(known)}")
            raise TypeError(f"train has no field {unknown[0]!r}: {remedy}")
        for name, value in {**known, **preset_fields(env, preset, fields.get("frames", known["frames"])), **fields, "env": env}.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("frames", "eval_every", "max_episode_steps"):
            check_count(name, getattr(self, name))
        check_count("episodes", self.episodes, MAX_EPISODES)
        if not 0 <= self.evaluation_epsilon <= 1:
            raise ValueError(f"evaluation_epsilon is {self.evaluation_epsilon!r}: it must be from 0 to 1")
        check_seed(self.seed)
        parse(self.operator)
        check_environment(self.env)
        if self.evaluation_steps < 0:
            raise ValueError(f"evaluation_steps is {self.evaluation_steps!r}: it must be 0 or more")
        if self.evaluation_steps:
            check_count("evaluation_steps", self.evaluation_steps)
        if self.is_atari and self.frame_stack < 2:
            raise ValueError(
                f"frame_stack is {self.frame_stack!r}: on Atari a single frame does not show motion: use 4, as in the preset "
                "stochastic-minimal"
            )
        if self.is_atari and self.behavior != "own":
            raise ValueError(f"behavior is {self.behavior!r}: on Atari every agent chooses its own actions, so leave it out")
        atari = {"frame_stack": 1, "terminal_on_life_loss": False, "clip_rewards": False, "evaluation_steps": 0}
        if not self.is_atari and (chosen := [name for name, other in atari.items() if getattr(self, name) != other]):
            are, them = ("is", "it") if len(chosen) == 1 else ("are", "them")
            raise ValueError(f"{', '.join(chosen)} {are} for Atari, and {self.env} is not: use the preset faithful, and leave {them} out")

    @property
    def is_atari(self) -> bool:
        """Whether the environment is an Atari game."""
        return self.env.startswith("atari/")

    @property
    def frames_per_iteration(self) -> int:
        """Frames per iteration, in which every environment takes one step."""
        return self.num_envs * (FRAMES_PER_STEP if self.is_atari else 1)

    @property
    def iterations(self) -> int:
        """Number of iterations of the run."""
        return math.ceil(self.frames / self.frames_per_iteration)

    @property
    def rows(self) -> int:
        """Number of evaluations."""
        return math.ceil(self.frames / self._frames_per_row)

    @property
    def _frames_per_row(self) -> int:
        """Frames between evaluations, at least those of one iteration."""
        return max(self.eval_every, self.frames_per_iteration)

    def _iterations_before(self, row: int) -> int:
        """Return the number of iterations before an evaluation. The last evaluation is at the end of the run."""
        return self.iterations if row + 1 == self.rows else (row + 1) * self._frames_per_row // self.frames_per_iteration

    @property
    def _chunks_per_row(self) -> int:
        """Number of chunks between evaluations."""
        if self.is_atari:
            return 1
        iterations = min(self.iterations, self._frames_per_row / self.frames_per_iteration)
        return math.ceil(iterations * self.gradient_steps / UPDATES)

    @property
    def chunks(self) -> int:
        return self.rows * self._chunks_per_row

    @property
    def total_steps(self) -> int:
        # Long evaluations, as on Atari, cost as much as training.
        return self.iterations * self.frames_per_iteration + self.rows * self.evaluation_steps * FRAMES_PER_STEP

    def chunk_iterations(self, chunk: int) -> tuple[int, int, bool]:
        """Return the first iteration of a chunk, the first of the next, and whether an evaluation follows.

        Examples
        --------
        >>> [Training(frames=1_800, eval_every=1_000).chunk_iterations(chunk) for chunk in range(4)]
        [(0, 500, False), (500, 1000, True), (1000, 1400, False), (1400, 1800, True)]
        >>> [Training(frames=500, eval_every=250, num_envs=8).chunk_iterations(chunk) for chunk in range(2)]
        [(0, 31, True), (31, 63, True)]
        """
        row, index = divmod(chunk, self._chunks_per_row)
        first, last = self._iterations_before(row - 1), self._iterations_before(row)
        begin, end = chunk_bounds(last - first, self._chunks_per_row, index)
        return first + begin, first + end, index + 1 == self._chunks_per_row

    def failure(self, row: Row) -> str:
        finite = row["value"] is not None and math.isfinite(float(row["value"]))
        return "" if finite else f"Q is no longer finite: {self.operator} diverges here; choose another operator"

    @property
    def batch_key(self) -> str:
        own = {"operator", "seed"} | ({"env"} if self.is_atari else set())
        shared = {name: value for name, value in dataclasses.asdict(self).items() if name not in own}
        return json.dumps(shared)

    @property
    def max_batch_size(self) -> int:
        return max_agents(self.num_envs, self.capacity, SCREEN) if self.is_atari else super().max_batch_size

    @classmethod
    def resource_note(cls, members: Sequence[Training]) -> str:
        one, count = members[0], len(members)
        if not one.is_atari:
            return ""
        device = choose_device(count, one.num_envs, one.capacity, SCREEN)
        size = format_bytes(count * replay_bytes(one.num_envs, one.capacity, SCREEN))
        if device != jax.devices()[0]:
            where = "host memory, which is slower: the accelerator has too little"
        else:
            where = "memory" if device.platform == "cpu" else f"the memory of {device.device_kind}"
        buffers = "the replay buffer" if count == 1 else f"the replay buffers of {count} agents"
        steps = f"{one.buffer_size:,} steps{' each' * (count > 1)}"
        return f"{buffers} ({steps}) take{'s' * (count == 1)} {size} of {where}"

    @property
    def config(self) -> Config:
        """The configuration of the agent."""
        return Config(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Config)})

    @classmethod
    def make_batch(cls, members: Sequence[Training]) -> RunBatch:
        return TrainingBatch(members)


def preset_fields(env: str, preset: str | None, frames: int) -> dict[str, Any]:
    """Return the values of a preset, and the evaluation fields that suit an environment and a number of frames.

    Examples
    --------
    >>> preset_fields("atari/pong", None, 1_000)["frame_stack"], preset_fields("minatar/breakout", "throughput", 1_000)["eval_every"]
    (4, 50)
    """
    atari = env.startswith("atari/")
    name = preset or ("stochastic-minimal" if atari else "faithful")
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}: {choose_from(name, PRESETS)}")
    evaluation = {"max_episode_steps": 27_000, "evaluation_epsilon": 0.05} if atari else {}
    return {**dataclasses.asdict(PRESETS[name]), **evaluation, "eval_every": max(1, frames // 20)}


class TrainingBatch:
    """A batch of agents, trained as one population."""

    def __init__(self, members: Sequence[Training]):
        self.members: Sequence[Training] = members
        self.spec: Training = members[0]
        operators, games = (tuple(getattr(member, name) for member in members) for name in ("operator", "env"))
        key = (self.spec.batch_key, operators, games)
        self.population: Population = cached(_READY, key, lambda: _make_population(self.spec, operators, games))

    def start(self) -> Any:
        return self.population.start([member.seed for member in self.members])

    def put(self, states: Iterable[State]) -> Any:
        return self.population.put(states)

    def get(self, carry: Any, final: bool) -> Iterable[State]:
        # Finished runs are never resumed, so only the online network is saved.
        return self.population.iterate_states(carry.agent.learner.online if final else carry)

    def advance(self, carry: Any, chunk: int, on_progress: OnProgress = lambda fraction: None) -> tuple[Any, Sequence[Sequence[Row]]]:
        spec = self.spec
        begin, end, due = spec.chunk_iterations(chunk)
        progress = {"on_progress": on_progress} if spec.is_atari else {}
        carry = self.population.train(carry, begin, end - begin, **progress)
        if not due:
            jax.block_until_ready(carry)
            return carry, [[] for _ in self.members]
        steps = {"steps": spec.evaluation_steps} if spec.evaluation_steps else {}
        scores = self.population.evaluate(carry, end, spec.episodes, spec.max_episode_steps, spec.evaluation_epsilon, **steps)._asdict()
        finished, episodes, loss = (np.asarray(array) for array in (carry.env_state.return_sum, carry.env_state.episodes, carry.agent.loss))
        restarts = self.population.restarts(carry)
        rows: list[list[Row]] = []
        for i in range(len(self.members)):
            trained = float(finished[i]) / int(episodes[i]) if episodes[i] else None
            mine = {name: float(values[i]) for name, values in scores.items()}
            others = {"training_return": trained, "loss": float(loss[i]), "restarts": int(restarts[i])}
            rows.append([{"step": end * spec.frames_per_iteration, **mine, **others}])
        failures = [member.failure(mine[-1]) for member, mine in zip(self.members, rows, strict=True)]
        if all(failures):
            raise ValueError(failures[0])
        return self.population.reset_statistics(carry), rows


def _make_population(spec: Training, operators: Sequence[str], games: Sequence[str]) -> Any:
    game = load_environment(spec.env)
    if isinstance(game, AtariGame):
        roms = [name.removeprefix("atari/") for name in games]
        return AtariPopulation(roms, spec.config, operators, exact=spec.exact, save_replay=spec.save_replay_buffer)
    kind: Any = HostPopulation if isinstance(game, GymEnv) else Population
    return kind(game, spec.config, operators, exact=spec.exact)
