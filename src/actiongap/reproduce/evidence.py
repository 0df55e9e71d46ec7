"""What parts of the paper share: which runs were asked for, what was noted beside them, and numbers in sentences."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from actiongap.lab.records import Records, read_runs
from actiongap.lab.statistics import Estimate
from actiongap.lab.validation import read_record


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
