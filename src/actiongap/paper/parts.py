"""The parts of the paper that can be made anew, each a short module with a `PART`.

A part says which studies the laboratory is to run, what is to be computed besides, and what the page is to show of it all. Everything goes
through files in the part's folder, so a part that was interrupted goes on, and its sections can be made again at any time.

What parts of the paper share: which runs were asked for, what was noted beside them, and numbers in sentences.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from actiongap.lab.records import Records, read_runs
from actiongap.lab.statistics import Estimate
from actiongap.lab.validation import read_record

if TYPE_CHECKING:
    from actiongap.lab.study import Study
    from actiongap.report.page import Section


Scale = Literal["smoke", "laptop", "gpu", "paper"]
"""Seconds to see that it works; minutes on two cores; minutes on an accelerator; everything the paper did."""
SCALES: tuple[Scale, ...] = get_args(Scale)
Progress = Callable[[str, float], None]
"""Told what is being done and the part of the whole that is done."""

PARTS = {
    "cake": "actiongap.paper.cake",
    "bicycle": "actiongap.paper.bicycle",
    "minatar": "actiongap.paper.minatar",
    "atari": "actiongap.paper.atari",
    "finite": "actiongap.paper.finite",
    "scores": "actiongap.paper.scores",
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


def asked_for(out: Path, studies: Iterable[str]) -> Records:
    """The runs that the studies in a folder were last asked for; all of a study's where nobody wrote that down.

    Examples
    --------
    >>> asked_for(Path("nowhere"), ["operators"])
    Records(runs=(), problems=())
    """
    places = [out / name for name in studies if (out / name / "runs").is_dir()]
    if not places:
        return Records((), ())
    wanted = {place: _names(place) for place in places}
    try:
        records = read_runs(places)
    except ValueError as error:  # nothing to see yet
        return Records((), (str(error),))
    runs = tuple(run for run in records.runs if not (names := wanted.get(run.folder.parents[1])) or run.folder.name in names)
    return Records(runs, records.problems)


def _names(place: Path) -> list[str]:
    try:
        names = read_record(place / "study.json").get("runs")
    except ValueError:  # as of runs that were carried here
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def noted(file: Path) -> dict[str, Any]:
    """What a part has noted in a JSON file of its folder; nothing where there is none, or something else.

    Examples
    --------
    >>> noted(Path("nowhere"))
    {}
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def said(number: Estimate | None) -> str:
    """A number with its interval, for a sentence.

    Examples
    --------
    >>> said(Estimate(0.5, 0.4, 0.6, 0.95, 5, 1, "")), said(None)
    ('0.5 [0.4, 0.6]', 'not known')
    """
    if number is None:
        return "not known"
    value, low, high = (f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}" for x in (number.value, number.low, number.high))
    return f"{value} [{low}, {high}]" if math.isfinite(number.low + number.high) else value
