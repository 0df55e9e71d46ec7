"""The parts of the paper that can be made anew, each a short module with a `PART`.

A part says which studies the laboratory is to run, what is to be computed besides, and what the page is to show of it all. Everything goes
through files in the part's folder, so a part that was interrupted goes on, and its sections can be made again at any time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from actiongap.lab.study import Study
    from actiongap.report.page import Section

Scale = Literal["smoke", "laptop", "gpu", "paper"]
"""Seconds to see that it works; minutes on two cores; minutes on an accelerator; everything the paper did."""
SCALES: tuple[Scale, ...] = get_args(Scale)
Progress = Callable[[str, float], None]
"""Told what is being done and the part of the whole that is done."""

PARTS = {
    "cake": "actiongap.reproduce.cake",
    "bicycle": "actiongap.reproduce.bicycle",
    "minatar": "actiongap.reproduce.minatar",
    "atari": "actiongap.reproduce.atari",
    "finite": "actiongap.reproduce.finite",
    "scores": "actiongap.reproduce.scores",
}
"""Where each part lives, in the order of the page."""


@dataclass(frozen=True)
class Part:
    """One part of the paper, or one question of its."""

    about: str
    """What it is, in a few words."""
    sections: Callable[[Path], Sequence[Section]]
    """What the page shows of the part's folder."""
    studies: Callable[[Scale], Sequence[Study]] = lambda scale: ()
    """What the laboratory runs, each study in the folder of its name."""
    compute: Callable[[Scale, Path, Progress], None] = lambda scale, out, progress: None
    """What is computed without it; what is there already is not computed again."""
    tables: Callable[[Path], Sequence[Any]] = lambda out: ()
    """What a terminal shows of it."""


def find(name: str) -> Part:
    """The part of that name.

    Examples
    --------
    >>> find("cake").about
    'Figure 1: the cake'
    """
    if name not in PARTS:
        raise ValueError(f"unknown part {name!r}: choose from {', '.join(PARTS)}, or all")
    return importlib.import_module(PARTS[name]).PART
