"""The studies of deep agents on Atari at each scale, and their runs read back.

The paper has two settings. In Stochastic Minimal the emulator repeats the previous action with probability 1/4 and does not signal lost
lives. The paper trains ten trials of 100 million frames and compares final scores by paired tests. In Original DQN actions are
deterministic and a lost life ends an episode for learning. The paper trains three trials of 200 million frames, whose highest scores are
the table of 60 games. It chose its alphas in this setting, on five games.

The scale `paper` runs all of that. `gpu` takes one accelerator an hour or two: three operators on Asterix and Space Invaders with three
seeds and a tenth of the frames, a second alpha on Asterix, fewer frames on the other training games, one game in Original DQN, and the
other alphas once in Stochastic Minimal, where they share all other hyperparameters with the first study. At this scale evaluations are
half as frequent as published (four fifths in Original DQN), have a tenth of the steps, and truncate games after 18,000 frames. Agents use
16 environments and 4 gradient steps per iteration, and matrix products read bfloat16. The smaller scales are smoke tests.

A `StudyPlan` describes a study in plain values, so the size of the full experiment is known without creating thousands of experiments.

Only runs that the last command requested are read. On each game of a preset, agents with the same configuration are compared; games
may differ in training length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from actiongap.dqn.config import PRESETS
from actiongap.envs.atari import FRAMES_PER_STEP, TRAINING, atari_games
from actiongap.lab.records import RunRecord
from actiongap.lab.study import Study, grid
from actiongap.paper.agents import (
    BELLMAN,
    DEFAULT_ALPHA,
    MAIN_OPERATORS,
    SWEEP,
    Agents,
    agents_of,
    describe_runs,
    game_of,
    split_by_config,
)
from actiongap.paper.parts import Scale, requested_runs

CURVES = ("asterix", "space_invaders")
"""The games whose learning curves the paper shows."""


class PaperGame(NamedTuple):
    """A game of the paper's table."""

    rom: str
    """The emulator's id."""
    name: str
    """The paper's name."""
    new: bool
    """Whether the table marks it with a dagger: it is not among the games of Bellemare et al. (2013)."""


@cache
def paper_games() -> tuple[PaperGame, ...]:
    """Return the 60 games, in the order of the table.

    Examples
    --------
    >>> len(paper_games()), paper_games()[4]
    (60, PaperGame(rom='space_invaders', name='Space Invaders', new=False))
    """
    return tuple(PaperGame(row["rom"], row["game"], row["new_in_paper"] == "yes") for row in atari_games())


def page_order() -> list[str]:
    """Return the game ids in the order of the page: games with learning curves in the paper first, then as in its table.

    Examples
    --------
    >>> page_order()[:3]
    ['asterix', 'space_invaders', 'beam_rider']
    """
    return list(dict.fromkeys([*CURVES, *(game.rom for game in paper_games())]))


STOCHASTIC, ORIGINAL = "stochastic-minimal", "original-dqn"
PRESET_NAMES = {STOCHASTIC: "Stochastic Minimal", ORIGINAL: "Original DQN"}
"""The paper's name of each preset."""
OTHER_ALPHAS = tuple(name for name, (_, alpha) in SWEEP.items() if alpha != DEFAULT_ALPHA)
"""Operators with the other alphas of the sweep."""
SECOND_ALPHA = tuple(name for name, (_, alpha) in SWEEP.items() if alpha == 0.7)
"""Operators with the alpha reported by others for runs of 10 million frames."""

PUBLISHED: dict[str, Any] = {
    "eval_every": 1_000_000,
    "evaluation_steps": 125_000,
    "evaluation_epsilon": 0.05,
    "max_episode_steps": 27_000,
    "save_replay_buffer": False,
}
"""The evaluation of Mnih et al. (2015): games are truncated after 108,000 frames. The replay buffer, 7 GB per agent, is not saved."""
QUICK: dict[str, Any] = {"num_envs": 16, "gradient_steps": 4, "precision": "bfloat16"}
"""The same ratio of gradient steps to environment steps, in fewer and larger iterations. This reduces dispatch overhead."""
THINNED: dict[str, Any] = PUBLISHED | QUICK | {"eval_every": 2_000_000, "evaluation_steps": 12_500, "max_episode_steps": 4_500}
"""Evaluations that are half as frequent as published, with a tenth of the steps. Games are truncated after five minutes, because one long
game delays all agents."""
TINY = {
    "num_envs": 4,
    "gradient_steps": 1,
    "batch_size": 8,
    "buffer_size": 512,
    "learning_starts": 128,
    "target_update_interval": 128,
    "exploration_steps": 512,
}
BRIEF = {"buffer_size": 2048, "learning_starts": 256, "target_update_interval": 256, "exploration_steps": 512}
CPU = {"precision": "float32"}
"""bfloat16 is not faster on CPUs."""

STUDIES = {
    "pong": "three operators on Pong, briefly",
    "asterix": "three operators on Asterix, with two alphas",
    "space_invaders": "three operators on Space Invaders",
    "training-games": "three operators on the other games on which the paper chose its alphas",
    "original": "three operators in Original DQN",
    STOCHASTIC: "three operators on all games in Stochastic Minimal",
    ORIGINAL: "three operators on all games in Original DQN",
    "alphas": "the other alphas",
    "corrections": "corrections from the online network",
}
"""The studies and what they train."""


class StudyPlan(NamedTuple):
    """A study described in plain values."""

    name: str
    preset: str
    games: tuple[str, ...]
    operators: tuple[str, ...]
    seeds: int
    frames: int
    """Training frames per agent."""
    fields: Mapping[str, Any]
    """Changes to the preset, and the evaluation."""
    gpus: float = 1.0

    @property
    def agents(self) -> int:
        """Number of agents."""
        return len(self.games) * len(self.operators) * self.seeds

    @property
    def training_frames(self) -> int:
        """Training frames of all agents."""
        return self.agents * self.frames

    @property
    def evaluation_frames(self) -> int:
        """Evaluation frames of all agents, without the frames that complete started games."""
        return self.agents * (self.frames // self.fields["eval_every"]) * self.fields["evaluation_steps"] * FRAMES_PER_STEP


def study_plans(scale: Scale) -> tuple[StudyPlan, ...]:
    """Return the studies at a scale. No agent is trained twice.

    Examples
    --------
    >>> [(plan.name, plan.agents) for plan in study_plans("gpu")]
    [('asterix', 15), ('space_invaders', 9), ('training-games', 9), ('original', 9), ('alphas', 8)]
    >>> sum(plan.training_frames for plan in study_plans("paper")) / 1e9
    324.0
    """
    all_games = tuple(game.rom for game in paper_games())
    if scale == "smoke":
        fields = CPU | TINY | {"eval_every": 256, "evaluation_steps": 20, "evaluation_epsilon": 0.05, "max_episode_steps": 20}
        return (StudyPlan("pong", STOCHASTIC, ("pong",), MAIN_OPERATORS, 2, 768, fields, gpus=0.0),)
    if scale == "laptop":
        fields = CPU | BRIEF | {"eval_every": 1_024, "evaluation_steps": 250, "evaluation_epsilon": 0.05, "max_episode_steps": 250}
        return (StudyPlan("pong", STOCHASTIC, ("pong",), MAIN_OPERATORS, 2, 4_096, fields, gpus=0.0),)
    if scale == "gpu":
        other_games = tuple(game for game in TRAINING if game not in ("asterix", "space_invaders"))
        return (
            StudyPlan("asterix", STOCHASTIC, ("asterix",), MAIN_OPERATORS + SECOND_ALPHA, 3, 10_000_000, THINNED),
            StudyPlan("space_invaders", STOCHASTIC, ("space_invaders",), MAIN_OPERATORS, 3, 10_000_000, THINNED),
            StudyPlan("training-games", STOCHASTIC, other_games, MAIN_OPERATORS, 1, 4_000_000, THINNED),
            StudyPlan("original", ORIGINAL, ("asterix",), MAIN_OPERATORS, 3, 2_500_000, THINNED | {"eval_every": 1_250_000}),
            StudyPlan(
                "alphas", STOCHASTIC, ("asterix",), tuple(name for name in OTHER_ALPHAS if name not in SECOND_ALPHA), 1, 10_000_000, THINNED
            ),
        )
    online = PUBLISHED | {"correction_network": "online"}
    return (
        StudyPlan(STOCHASTIC, STOCHASTIC, all_games, MAIN_OPERATORS, 10, 100_000_000, PUBLISHED),
        StudyPlan(ORIGINAL, ORIGINAL, all_games, MAIN_OPERATORS, 3, 200_000_000, PUBLISHED),
        StudyPlan("alphas", ORIGINAL, TRAINING, OTHER_ALPHAS, 3, 200_000_000, PUBLISHED),
        StudyPlan("corrections", ORIGINAL, TRAINING, tuple(name for name in MAIN_OPERATORS if name != BELLMAN), 3, 200_000_000, online),
    )


def studies(scale: Scale) -> tuple[Study, ...]:
    """Return the studies at a scale."""
    return tuple(Study(plan.name, grid("train", **_fields(plan)), gpus=plan.gpus) for plan in study_plans(scale))


def _fields(plan: StudyPlan) -> dict[str, Any]:
    config = dataclasses.asdict(PRESETS[plan.preset])
    axes = {"env": tuple(f"atari/{game}" for game in plan.games), "operator": plan.operators, "seed": range(plan.seeds)}
    return config | dict(plan.fields) | {"frames": plan.frames} | axes


PRESET_FIELDS = {preset: (PRESETS[preset].repeat_action_probability, PRESETS[preset].terminal_on_life_loss) for preset in PRESET_NAMES}
"""The fields that identify a preset: sticky actions, and the meaning of a lost life."""


class AgentRecords(NamedTuple):
    """The agents of a folder."""

    agents_by_preset: Mapping[str, Agents]
    """The agents of each preset that has any."""
    runs: tuple[RunRecord, ...]
    problems: tuple[str, ...]
    """Sentences about runs that are omitted."""


def read_agents(out: Path) -> AgentRecords:
    """Return the agents that the studies in a folder requested last.

    Examples
    --------
    >>> import tempfile
    >>> read_agents(Path(tempfile.mkdtemp()))
    AgentRecords(agents_by_preset={}, runs=(), problems=())
    """
    records = requested_runs(out, STUDIES)
    runs_by_game: dict[tuple[str | None, str], list[RunRecord]] = {}
    for run in records.runs:
        if run.kind == "train" and run.task.startswith("atari/"):
            runs_by_game.setdefault((preset_of(run.spec), game_of(run)), []).append(run)
    kept: dict[str, list[RunRecord]] = {preset: [] for preset in PRESET_NAMES}
    problems = list(records.problems)
    for (preset, game), runs in runs_by_game.items():
        if preset is None:
            problems.append(f"{describe_runs(runs)} on {game} have neither of the paper's presets and are omitted")
            continue
        same, others = split_by_config(runs)
        kept[preset] += same
        if others:
            problems.append(
                f"{describe_runs(others)} on {game} differ in configuration from most in {PRESET_NAMES[preset]} and are omitted: "
                "run all at one scale"
            )
    agents_by_preset = {preset: agents_of(runs, page_order()) for preset, runs in kept.items() if runs}
    return AgentRecords(agents_by_preset, tuple(run for runs in kept.values() for run in runs), tuple(problems))


def preset_of(spec: Mapping[str, Any]) -> str | None:
    """Return the paper's preset with which an agent was trained, or None.

    Examples
    --------
    >>> preset_of({"repeat_action_probability": 0.25, "terminal_on_life_loss": False}), preset_of({"repeat_action_probability": 0.1})
    ('stochastic-minimal', None)
    """
    return next(
        (
            preset
            for preset, fields in PRESET_FIELDS.items()
            if fields == (spec.get("repeat_action_probability"), spec.get("terminal_on_life_loss"))
        ),
        None,
    )


def finished_runs(agents: Agents) -> list[RunRecord]:
    """Return the finished runs of some agents.

    Examples
    --------
    >>> finished_runs({})
    []
    """
    return [run for group in agents.values() for run in group.runs if run.state == "done"]
