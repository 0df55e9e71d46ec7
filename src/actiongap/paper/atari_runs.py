"""The paper's 60 games, in the order of its table.

Which deep agents the laboratory trains on Atari, at each scale.

The paper has two settings. In Stochastic Minimal the emulator repeats the last action now and then and says nothing of lost lives: ten
trials of 100 million frames, whose last scores are compared by paired tests. In Original DQN it does as it is told, and a lost life ends
an episode for learning: three trials of 200 million, whose highest scores are the table of 60 games. The alphas were chosen in the second,
on five games.

`paper` is all of that. `gpu` is what one accelerator does in an hour or two: three operators on Asterix and Space Invaders with three seeds
and a tenth of the frames, on Asterix with a second alpha too, less on the other training games, one game in Original DQN, and the other
alphas once, in Stochastic Minimal, where they share all else with the first study. There evaluations are half as frequent as the published
(in Original DQN four fifths), play a tenth of the steps and cut games short after 18,000 frames; agents play 16 games at once and take 4
gradient steps after each round, and products of matrices read bfloat16. The smaller scales learn nothing worth knowing: they show that
everything works.

An `Order` is a study in plain values, so that what the paper's scale amounts to can be said without making thousands of experiments.

Agents on Atari read back, setting by setting.

Only runs that the last command asked for count. On each game of a setting those are compared that were trained alike; games may differ in
how long.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from actiongap.dqn.config import PRESETS
from actiongap.envs.atari import FRAMES_A_STEP, TRAINING, atari_games
from actiongap.lab.records import RunRecord
from actiongap.lab.study import Study, grid
from actiongap.paper.agents import BELLMAN, FEW, SWEPT, USUAL, Agents, agents_of, alike, counted, game_of
from actiongap.paper.parts import Scale, asked_for

CURVES = ("asterix", "space_invaders")
"""The games whose learning curves the paper shows."""


class Title(NamedTuple):
    """A game of the table."""

    rom: str
    """What the emulator calls it."""
    name: str
    """What the paper calls it."""
    new: bool
    """Whether it has a dagger there: the table before it, of Bellemare et al. (2013), did not have it."""


@cache
def titles() -> tuple[Title, ...]:
    """All of them.

    Examples
    --------
    >>> len(titles()), titles()[4]
    (60, Title(rom='space_invaders', name='Space Invaders', new=False))
    """
    return tuple(Title(row["rom"], row["game"], row["new_in_paper"] == "yes") for row in atari_games())


def in_order() -> list[str]:
    """Their ids in the order of the page: those with learning curves in the paper, then as in its table.

    Examples
    --------
    >>> in_order()[:3]
    ['asterix', 'space_invaders', 'beam_rider']
    """
    return list(dict.fromkeys([*CURVES, *(title.rom for title in titles())]))


STOCHASTIC, ORIGINAL = "stochastic-minimal", "original-dqn"
SETTINGS = {STOCHASTIC: "Stochastic Minimal", ORIGINAL: "Original DQN"}
"""The presets, and what the paper calls them."""
OTHERS = tuple(name for name, (_, alpha) in SWEPT.items() if alpha != USUAL)
"""Operators with the other alphas of the sweep."""
SECOND = tuple(name for name, (_, alpha) in SWEPT.items() if alpha == 0.7)
"""Operators with the alpha that others are said to have had in runs of 10 million frames."""

PUBLISHED = {
    "eval_every": 1_000_000,
    "evaluation_steps": 125_000,
    "evaluation_epsilon": 0.05,
    "max_episode_steps": 27_000,
    "save_memory": False,
}
"""Evaluation as Mnih et al. (2015) did it; a game is cut short after 108,000 frames. Seven gigabytes an agent are not worth saving."""
QUICK = {"num_envs": 16, "gradient_steps": 4, "precision": "bfloat16"}
"""Learning as much from every step, but with fewer rounds: what handing work to the accelerator costs does not depend on how much it is."""
THINNED = PUBLISHED | QUICK | {"eval_every": 2_000_000, "evaluation_steps": 12_500, "max_episode_steps": 4_500}
"""Half as often, a tenth of the steps; games are cut short after five minutes, since one long game keeps all agents waiting."""
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
"""Processors have no bfloat16 to be quick with."""

QUESTIONS = {
    "pong": "three operators on Pong, for a moment",
    "asterix": "three operators on Asterix, with two alphas",
    "space_invaders": "three operators on Space Invaders",
    "training-games": "three operators on the other games on which the paper chose its alphas",
    "original": "three operators in Original DQN",
    STOCHASTIC: "three operators on all games in Stochastic Minimal",
    ORIGINAL: "three operators on all games in Original DQN",
    "alphas": "the other alphas",
    "correction_network": "corrections from the online network",
}
"""What each study is about."""


class Order(NamedTuple):
    """A study in plain values."""

    name: str
    setting: str
    games: tuple[str, ...]
    operators: tuple[str, ...]
    seeds: int
    frames: int
    """Frames of training of each agent."""
    fields: Mapping[str, Any]
    """What differs from the setting's preset, and how agents are evaluated."""
    gpus: float = 1.0

    @property
    def agents(self) -> int:
        """How many are trained."""
        return len(self.games) * len(self.operators) * self.seeds

    @property
    def training_frames(self) -> int:
        """Frames of all of them in training."""
        return self.agents * self.frames

    @property
    def evaluation_frames(self) -> int:
        """Frames of all of them in evaluations, not counting games that go on when the time is over."""
        return self.agents * (self.frames // self.fields["eval_every"]) * self.fields["evaluation_steps"] * FRAMES_A_STEP


def orders(scale: Scale) -> tuple[Order, ...]:
    """The studies at a scale; none trains an agent that another trains too.

    Examples
    --------
    >>> [(order.name, order.agents) for order in orders("gpu")]
    [('asterix', 15), ('space_invaders', 9), ('training-games', 9), ('original', 9), ('alphas', 8)]
    >>> sum(order.training_frames for order in orders("paper")) / 1e9
    324.0
    """
    every = tuple(title.rom for title in titles())
    if scale == "smoke":
        brief = CPU | TINY | {"eval_every": 256, "evaluation_steps": 20, "evaluation_epsilon": 0.05, "max_episode_steps": 20}
        return (Order("pong", STOCHASTIC, ("pong",), FEW, 2, 768, brief, gpus=0.0),)
    if scale == "laptop":
        brief = CPU | BRIEF | {"eval_every": 1_024, "evaluation_steps": 250, "evaluation_epsilon": 0.05, "max_episode_steps": 250}
        return (Order("pong", STOCHASTIC, ("pong",), FEW, 2, 4_096, brief, gpus=0.0),)
    if scale == "gpu":
        rest = tuple(game for game in TRAINING if game not in ("asterix", "space_invaders"))
        return (
            Order("asterix", STOCHASTIC, ("asterix",), FEW + SECOND, 3, 10_000_000, THINNED),
            Order("space_invaders", STOCHASTIC, ("space_invaders",), FEW, 3, 10_000_000, THINNED),
            Order("training-games", STOCHASTIC, rest, FEW, 1, 4_000_000, THINNED),
            Order("original", ORIGINAL, ("asterix",), FEW, 3, 2_500_000, THINNED | {"eval_every": 1_250_000}),
            Order("alphas", STOCHASTIC, ("asterix",), tuple(name for name in OTHERS if name not in SECOND), 1, 10_000_000, THINNED),
        )
    online = PUBLISHED | {"correction_network": "online"}
    return (
        Order(STOCHASTIC, STOCHASTIC, every, FEW, 10, 100_000_000, PUBLISHED),
        Order(ORIGINAL, ORIGINAL, every, FEW, 3, 200_000_000, PUBLISHED),
        Order("alphas", ORIGINAL, TRAINING, OTHERS, 3, 200_000_000, PUBLISHED),
        Order("corrections", ORIGINAL, TRAINING, tuple(name for name in FEW if name != BELLMAN), 3, 200_000_000, online),
    )


def studies(scale: Scale) -> tuple[Study, ...]:
    """The studies at a scale."""
    return tuple(Study(order.name, grid("train", **_fields(order)), gpus=order.gpus) for order in orders(scale))


def _fields(order: Order) -> dict[str, Any]:
    preset = dataclasses.asdict(PRESETS[order.setting])
    axes = {"env": tuple(f"atari/{game}" for game in order.games), "operator": order.operators, "seed": range(order.seeds)}
    return preset | dict(order.fields) | {"frames": order.frames} | axes


TOLD = {setting: (PRESETS[setting].repeat_action_probability, PRESETS[setting].terminal_on_life_loss) for setting in SETTINGS}
"""How a setting shows: how sticky actions are, and what a lost life is."""


class Found(NamedTuple):
    """What a folder holds."""

    settings: Mapping[str, Agents]
    """The agents of each setting that has any."""
    runs: tuple[RunRecord, ...]
    problems: tuple[str, ...]
    """Sentences about what is left out."""


def read_agents(out: Path) -> Found:
    """The agents that the studies in a folder were last asked for.

    Examples
    --------
    >>> import tempfile
    >>> read_agents(Path(tempfile.mkdtemp()))
    Found(settings={}, runs=(), problems=())
    """
    records = asked_for(out, QUESTIONS)
    places: dict[tuple[str | None, str], list[RunRecord]] = {}
    for run in records.runs:
        if run.kind == "train" and run.task.startswith("atari/"):
            places.setdefault((setting_of(run.spec), game_of(run)), []).append(run)
    kept: dict[str, list[RunRecord]] = {setting: [] for setting in SETTINGS}
    problems = list(records.problems)
    for (setting, game), runs in places.items():
        if setting is None:
            problems.append(f"{counted(runs)} on {game} have neither of the paper's settings and are left out")
            continue
        same, others = alike(runs)
        kept[setting] += same
        if others:
            problems.append(
                f"{counted(others)} on {game} had other settings than most in {SETTINGS[setting]} and are left out: run all at one scale"
            )
    settings = {setting: agents_of(runs, in_order()) for setting, runs in kept.items() if runs}
    return Found(settings, tuple(run for runs in kept.values() for run in runs), tuple(problems))


def setting_of(spec: Mapping[str, Any]) -> str | None:
    """The paper's setting that an agent was trained in, if it is one of the two.

    Examples
    --------
    >>> setting_of({"repeat_action_probability": 0.25, "terminal_on_life_loss": False}), setting_of({"repeat_action_probability": 0.1})
    ('stochastic-minimal', None)
    """
    return next(
        (setting for setting, told in TOLD.items() if told == (spec.get("repeat_action_probability"), spec.get("terminal_on_life_loss"))),
        None,
    )


def done(agents: Agents) -> list[RunRecord]:
    """The runs that are done.

    Examples
    --------
    >>> done({})
    []
    """
    return [run for group in agents.values() for run in group.runs if run.state == "done"]
