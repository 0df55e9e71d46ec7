"""Training deep agents as runs of the laboratory: rounds of play and learning, and now and then an evaluation.

An agent is a run. Agents of one game with the same settings make a crew, whatever their operators and seeds, and are trained as one
population; on Atari, agents of different games too. Between chunks the whole of an agent is a dictionary of arrays: networks, optimiser,
memory, games, counters and key.

Games on the host cannot be saved. Those of Atari begin anew at every chunk, of which there is one for each evaluation, so that nothing of
them need be. Those of Gymnasium go on from chunk to chunk: where such a run is put down and taken up again they begin anew, and its rows
say so.
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
from actiongap.dqn.atari import AtariPopulation
from actiongap.dqn.config import PRESETS, Config
from actiongap.dqn.frame_replay import choose_device, max_agents, replay_bytes
from actiongap.dqn.host import HostPopulation
from actiongap.dqn.population import Population
from actiongap.envs.atari import FRAMES_A_STEP, SCREEN, AtariGame
from actiongap.envs.gym import GymEnv
from actiongap.envs.registry import check_environment, load_environment
from actiongap.lab.batches import OnProgress, RunBatch, VectorizedExperiment
from actiongap.lab.experiment import Row, State
from actiongap.lab.kinds.finite import check_count
from actiongap.operators import parse

UPDATES = 500
"""Gradient steps in a chunk, at most: a second of work for one agent on a CPU, or for hundreds on an accelerator."""

_READY: dict[Any, Any] = {}
"""What was compiled last."""


@dataclass(frozen=True)
class Training(Config, VectorizedExperiment):
    """A DQN that learns with an operator.

    Fields that are not given come from `preset`: `stochastic-minimal` on Atari and `faithful` elsewhere, unless another one is named.
    The preset is not a field itself: a run is defined by the values, however they were chosen.

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
    step_name = "frames"
    columns: ClassVar[Mapping[str, str]] = {
        "score": "the rewards of an episode, mean over the episodes of an evaluation",
        "games": "how many episodes those were",
        "length": "the steps of such an episode",
        "action_gap": "the best less the second-best Q, mean over the states met in an evaluation",
        "value": "max_a Q, mean over these states",
        "bias": "max_a Q less the discounted rewards that followed, mean over these states",
        "training_return": "the rewards of an episode in training, mean over those that ended since the last row",
        "loss": "the loss of the last gradient step",
        "restarts": "how often by then its games (gym/) or its memory (atari/) had to begin anew because they were not saved",
    }

    env: str = "minatar/breakout"
    """An environment: minatar/ and asterix, breakout, freeway, seaquest or space_invaders; atari/ROM, such as atari/pong; or gym/ID."""
    operator: str = "bellman"
    """An operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, or path/to/file.py:name."""
    frames: int = 1_000_000
    """How many frames are played in training. A step is one frame, and on Atari four."""
    eval_every: int = 50_000
    """Frames between evaluations; a twentieth of `frames` if not given. The last evaluation is at the end of training."""
    episodes: int = 32
    """How many episodes an evaluation plays."""
    evaluation_steps: int = 0
    """On Atari, after how many steps an evaluation begins no more games, instead of a number of episodes, if any are given."""
    max_episode_steps: int = 3_000
    """Steps after which an evaluation episode is truncated: 3,000, or 27,000 on Atari, if not given."""
    evaluation_epsilon: float = 0.01
    """Probability of a random action in an evaluation: 0.01, or 0.05 on Atari, if not given."""
    save_memory: bool = True
    """On Atari, whether what an agent remembers is saved with it, which takes 7 kB a step; if not, it is collected anew after a pause."""
    exact: bool = False
    """Whether agents of a crew are computed one after the other, so that each is the same to the bit in any company; slow."""
    seed: int = 0
    """Which random numbers to use; the same seed repeats a run."""

    presets: ClassVar[Mapping[str, Config]] = PRESETS

    def __init__(self, env: str = "minatar/breakout", *, preset: str | None = None, **fields: Any) -> None:
        known = {field.name: field.default for field in dataclasses.fields(Training)}
        if unknown := sorted(set(fields) - set(known)):
            raise TypeError(f"train has no field {unknown[0]!r}: it has {', '.join(known)}")
        for name, value in {**known, **preset_fields(env, preset, fields.get("frames", known["frames"])), **fields, "env": env}.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("frames", "eval_every", "episodes", "max_episode_steps"):
            check_count(name, getattr(self, name))
        if not 0 <= self.evaluation_epsilon <= 1:
            raise ValueError(f"evaluation_epsilon is {self.evaluation_epsilon!r}: it must be from 0 to 1")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed!r}: it must be a whole number from 0 to 2^32 - 1")
        parse(self.operator)
        check_environment(self.env)
        if self.evaluation_steps < 0:
            raise ValueError(f"evaluation_steps is {self.evaluation_steps!r}: it must be 0 or more")
        if self.emulated and self.frame_stack < 2:
            raise ValueError(
                f"frame_stack is {self.frame_stack!r}: on Atari a single frame does not show motion, so take 4, as in the preset "
                "stochastic-minimal"
            )
        atari = {"frame_stack": 1, "terminal_on_life_loss": False, "clip_rewards": False, "evaluation_steps": 0}
        if not self.emulated and (chosen := [name for name, other in atari.items() if getattr(self, name) != other]):
            are, them = ("is", "it") if len(chosen) == 1 else ("are", "them")
            raise ValueError(f"{', '.join(chosen)} {are} for Atari, and {self.env} is not: take the preset faithful, and leave {them} out")

    @property
    def emulated(self) -> bool:
        """Whether it plays a game of Atari's."""
        return self.env.startswith("atari/")

    @property
    def frames_a_round(self) -> int:
        """Frames that all environments play in a round."""
        return self.num_envs * (FRAMES_A_STEP if self.emulated else 1)

    @property
    def rounds(self) -> int:
        """How many rounds are played in all."""
        return math.ceil(self.frames / self.frames_a_round)

    @property
    def rows(self) -> int:
        """How many evaluations there are."""
        return math.ceil(self.frames / self._apart)

    @property
    def _apart(self) -> int:
        """Frames between evaluations: those of a round at least."""
        return max(self.eval_every, self.frames_a_round)

    def _before(self, row: int) -> int:
        """Rounds before an evaluation. Where they do not come out even, the last is still at the very end."""
        return self.rounds if row + 1 == self.rows else (row + 1) * self._apart // self.frames_a_round

    @property
    def _parts(self) -> int:
        """Chunks between evaluations."""
        return 1 if self.emulated else math.ceil(min(self.rounds, self._apart / self.frames_a_round) * self.gradient_steps / UPDATES)

    @property
    def chunks(self) -> int:
        return self.rows * self._parts

    @property
    def total_steps(self) -> int:
        # Where evaluations are as long as they are on Atari, they cost as much.
        return self.rounds * self.frames_a_round + self.rows * self.evaluation_steps * FRAMES_A_STEP

    def stretch(self, chunk: int) -> tuple[int, int, bool]:
        """The first round of a chunk, the first of the next, and whether an evaluation follows.

        Examples
        --------
        >>> [Training(frames=1_800, eval_every=1_000).stretch(chunk) for chunk in range(4)]
        [(0, 500, False), (500, 1000, True), (1000, 1400, False), (1400, 1800, True)]
        >>> [Training(frames=500, eval_every=250, num_envs=8).stretch(chunk) for chunk in range(2)]
        [(0, 31, True), (31, 63, True)]
        """
        row, part = divmod(chunk, self._parts)
        first, length = self._before(row - 1), self._before(row) - self._before(row - 1)
        begin, end = (first + length * k // self._parts for k in (part, part + 1))
        return begin, end, part + 1 == self._parts

    @property
    def batch_key(self) -> str:
        own = ("operator", "seed", "env") if self.emulated else ("operator", "seed")
        shared = {name: value for name, value in dataclasses.asdict(self).items() if name not in own}
        return json.dumps(shared)

    @property
    def max_batch_size(self) -> int:
        return max_agents(self.num_envs, self.capacity, SCREEN) if self.emulated else super().max_batch_size

    @classmethod
    def resource_note(cls, members: Sequence[Training]) -> str:
        one, many = members[0], len(members)
        if not one.emulated:
            return ""
        device = choose_device(many, one.num_envs, one.capacity, SCREEN)
        size = format_bytes(many * replay_bytes(one.num_envs, one.capacity, SCREEN))
        if device != jax.devices()[0]:
            where = "the host's memory, which is slower: the accelerator has no room for one"
        else:
            where = "memory" if device.platform == "cpu" else f"the memory of {device.device_kind}"
        who = f"{many} agents remember {one.buffer_size:,} steps each" if many > 1 else f"an agent remembers {one.buffer_size:,} steps"
        return f"{who}, which takes {size} of {where}"

    @property
    def config(self) -> Config:
        """How it learns."""
        return Config(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Config)})

    @classmethod
    def make_batch(cls, members: Sequence[Training]) -> RunBatch:
        return Trainers(members)


def preset_fields(env: str, preset: str | None, frames: int) -> dict[str, Any]:
    """The values of a preset, and the evaluation that goes with an environment and a number of frames.

    Examples
    --------
    >>> preset_fields("atari/pong", None, 1_000)["frame_stack"], preset_fields("minatar/breakout", "throughput", 1_000)["eval_every"]
    (4, 50)
    """
    atari = env.startswith("atari/")
    name = preset or ("stochastic-minimal" if atari else "faithful")
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}: choose from {', '.join(PRESETS)}")
    evaluation = {"max_episode_steps": 27_000, "evaluation_epsilon": 0.05} if atari else {}
    return {**dataclasses.asdict(PRESETS[name]), **evaluation, "eval_every": max(1, frames // 20)}


class Trainers:
    """Agents that train together."""

    def __init__(self, members: Sequence[Training]):
        self.members, self.spec = members, members[0]
        operators, games = (tuple(getattr(member, name) for member in members) for name in ("operator", "env"))
        key = (self.spec.batch_key, operators, games)
        if key not in _READY:
            # What was ready for another crew makes room.
            _READY.clear()
            _READY[key] = _population(self.spec, operators, games)
        self.population = _READY[key]

    def start(self) -> Any:
        return self.population.start([member.seed for member in self.members])

    def put(self, states: Iterable[State]) -> Any:
        return self.population.put(states)

    def get(self, carried: Any, over: bool) -> Iterable[State]:
        # Whoever is finished will not learn again, so what it learned is enough.
        return self.population.one_by_one(carried.agent.learner.online if over else carried)

    def advance(self, carried: Any, chunk: int, told: OnProgress = lambda part: None) -> tuple[Any, Sequence[Sequence[Row]]]:
        spec = self.spec
        begin, end, due = spec.stretch(chunk)
        long = {"told": told} if spec.emulated else {}
        carried = self.population.train(carried, begin, end - begin, **long)
        if not due:
            jax.block_until_ready(carried)
            return carried, [[] for _ in self.members]
        until = {"steps": spec.evaluation_steps} if spec.evaluation_steps else {}
        scores = self.population.evaluate(carried, end, spec.episodes, spec.max_episode_steps, spec.evaluation_epsilon, **until)._asdict()
        finished, episodes, loss = (np.asarray(part) for part in (carried.world.finished, carried.world.episodes, carried.agent.loss))
        restarts = self.population.restarts(carried)
        rows: list[list[Row]] = []
        for i in range(len(self.members)):
            trained = float(finished[i]) / int(episodes[i]) if episodes[i] else None
            mine = {name: float(values[i]) for name, values in scores.items()}
            besides = {"training_return": trained, "loss": float(loss[i]), "restarts": int(restarts[i])}
            rows.append([{"step": end * spec.frames_a_round, **mine, **besides}])
        return self.population.counted_anew(carried), rows


def _population(spec: Training, operators: Sequence[str], problems: Sequence[str]) -> Any:
    game = load_environment(spec.env)
    if isinstance(game, AtariGame):
        roms = [problem.removeprefix("atari/") for problem in problems]
        return AtariPopulation(roms, spec.config, operators, exact=spec.exact, keep=spec.save_memory)
    kind: Any = HostPopulation if isinstance(game, GymEnv) else Population
    return kind(game, spec.config, operators, exact=spec.exact)
