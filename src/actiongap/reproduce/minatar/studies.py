"""Which deep agents the laboratory trains, at each scale.

Two studies. `operators` is the paper's: Bellman's operator, advantage learning and its persistent form at every alpha of the paper's sweep.
`relatives` is what others have done about the same trouble, on the same games with the same seeds: Double DQN, alone and with advantage
learning, and Munchausen. Whatever is compared differs in the operator, or in `double`, and in nothing else.

Two cores are enough for one game and one alpha, so the smaller scales stop there.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

from actiongap.dqn.config import PRESETS
from actiongap.lab.study import Study, grid
from actiongap.reproduce.agents.operators import BELLMAN, FEW, OPERATORS, USUAL
from actiongap.reproduce.parts import Scale

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
MUNCHAUSEN = "munchausen:0.03,0.9"
"""With the temperature and the weight of its paper (Vieillard, Pietquin, Geist, 2020)."""
DOUBLED = (BELLMAN, f"al:{USUAL:g}")
"""The operators that are also tried with Double DQN."""

QUESTIONS = {
    "operators": "Bellman's operator, advantage learning and its persistent form at every alpha",
    "relatives": "Double DQN and Munchausen",
}
"""What each study is about."""


class Size(NamedTuple):
    """How much to train."""

    games: tuple[str, ...]
    operators: tuple[str, ...]
    seeds: int
    frames: int
    rows: int
    """Evaluations of an agent."""
    preset: str
    settings: dict[str, Any]
    """What differs from the preset."""
    relatives: bool = False
    """Whether the second study is done too."""
    gpus: float = 0.0


TINY = {"updates": 1, "batch": 32, "replay": 1024, "learn_after": 256, "target_every": 256, "explore_for": 1024, "episodes": 4, "limit": 60}
BRIEF = {"explore_for": 20_000, "episodes": 16, "limit": 1000}
CPU = {"precision": "float32"}
"""Processors have no bfloat16 to be quick with."""

SIZES: dict[Scale, Size] = {
    "smoke": Size(("breakout",), FEW, seeds=2, frames=1536, rows=3, preset="throughput", settings=CPU | TINY),
    "laptop": Size(("breakout",), FEW, seeds=3, frames=64_000, rows=10, preset="throughput", settings=CPU | BRIEF),
    "gpu": Size(GAMES, OPERATORS, seeds=10, frames=2_000_000, rows=20, preset="throughput", settings={}, relatives=True, gpus=1.0),
    "paper": Size(GAMES, OPERATORS, seeds=10, frames=5_000_000, rows=50, preset="faithful", settings={}, relatives=True, gpus=1.0),
}


def studies(scale: Scale) -> tuple[Study, ...]:
    """The studies at a scale.

    Examples
    --------
    >>> [(study.name, len(study.runs)) for study in studies("gpu")]
    [('operators', 650), ('relatives', 150)]
    >>> [(study.name, len(study.runs)) for study in studies("laptop")]
    [('operators', 9)]
    """
    size = SIZES[scale]
    preset = PRESETS[size.preset]
    # Whole rounds between evaluations, so many that none is left for a short stretch at the end.
    every = math.ceil(math.ceil(size.frames / preset.environments) / size.rows) * preset.environments
    fields = dataclasses.asdict(preset) | {"frames": size.frames, "every": every} | size.settings
    fields |= {"problem": tuple(f"minatar/{game}" for game in size.games), "seed": range(size.seeds)}
    made = [Study("operators", grid("train", **fields, operator=size.operators), gpus=size.gpus)]
    if size.relatives:
        double = grid("train", **fields | {"double": True}, operator=DOUBLED)
        made.append(Study("relatives", (*double, *grid("train", **fields, operator=MUNCHAUSEN)), gpus=size.gpus))
    return tuple(made)
