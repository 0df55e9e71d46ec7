"""The parts of the paper that `actiongap reproduce` regenerates, and what they share.

A part is a module with a `PART`: the studies to run, what to compute besides them, and the sections of the page. Parts communicate through
files in their folder only. An interrupted part therefore resumes, and its sections can be rebuilt at any time.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from actiongap._files import open_regular
from actiongap._suggest import choose_from
from actiongap.lab.records import Records, read_runs
from actiongap.lab.statistics import Estimate
from actiongap.lab.validation import RECORD_BYTES, read_record

if TYPE_CHECKING:
    from actiongap.lab.study import Study
    from actiongap.reporting.page import Section


Scale = Literal["smoke", "laptop", "gpu", "paper"]
"""smoke: seconds, a test; laptop: minutes on two cores; gpu: minutes on an accelerator; paper: everything in the paper."""
SCALES: tuple[Scale, ...] = get_args(Scale)
Progress = Callable[[str, float], None]
"""Called with the current activity and the fraction of the work that is done."""

PARTS = {
    "cake": "actiongap.paper.cake",
    "bicycle": "actiongap.paper.bicycle",
    "minatar": "actiongap.paper.minatar",
    "atari": "actiongap.paper.atari",
    "finite": "actiongap.paper.finite",
    "behavior": "actiongap.paper.behavior",
    "scores": "actiongap.paper.scores",
}
"""The module of each part, in the order of the page."""


@dataclass(frozen=True)
class Part:
    """One part of the paper."""

    about: str
    """A short description."""
    sections: Callable[[Path], Sequence[Section]]
    """The sections of the page, built from the part's folder."""
    studies: Callable[[Scale], Sequence[Study]] = lambda scale: ()
    """The studies to run; each is written to the subfolder of its name."""
    compute: Callable[[Scale, Path, Progress], None] = lambda scale, out, progress: None
    """What to compute besides the studies. Existing results are kept."""
    tables: Callable[[Path], Sequence[Any]] = lambda out: ()
    """Tables for the terminal."""
    files: tuple[str, ...] = ()
    """Patterns of the names of files that `compute` writes."""


def load_part(name: str) -> Part:
    """Import a part by name.

    Examples
    --------
    >>> load_part("cake").about
    'Figure 1: the cake'
    """
    if name not in PARTS:
        raise ValueError(f"unknown part {name!r}: {choose_from(name, PARTS, also=', or all')}")
    return importlib.import_module(PARTS[name]).PART


def check_results(out: Path, part: Part) -> None:
    """Raise ValueError if a folder holds a file that `compute` of a part would replace and nothing shows that it is a result of ours.

    Studies, and records and tables of results, show it.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "cake.svg").touch()
    >>> check_results(folder, load_part("cake"))
    Traceback (most recent call last):
    ValueError: ... holds cake.svg, which actiongap reproduce did not write: choose another --out, or move its files away
    """
    taken = sorted(file for pattern in part.files for file in out.glob(pattern))
    # A damaged record is computed again.
    foreign = [file for file in taken if file.suffix == ".json" and (found := read_json_object(file)) and not RESULTS & found.keys()]
    if taken and not foreign and not any(_is_result(file) for file in (*taken, *out.glob("*/study.json"))):
        foreign = taken
    if foreign:
        raise ValueError(
            f"{out} holds {foreign[0].name}, which actiongap reproduce did not write: choose another --out, or move its files away"
        )


RESULTS = {"digests", "fixed_points"}
"""A record of results has one of these keys."""


def _is_result(file: Path) -> bool:
    try:
        if file.suffix == ".csv":
            with open_regular(file) as stream:
                return stream.readline(RECORD_BYTES).startswith(b"gamma,epsilon,operator,")
        return (file.name == "study.json" and bool(read_record(file))) or bool(RESULTS & read_json_object(file).keys())
    except (OSError, ValueError):
        return False


def requested_runs(out: Path, studies: Iterable[str]) -> Records:
    """Read the runs that the last command requested of each study in a folder, or all runs of a study without `study.json`.

    Examples
    --------
    >>> requested_runs(Path("nowhere"), ["operators"])
    Records(runs=(), problems=(), places=())
    """
    folders = [out / name for name in studies if (out / name / "runs").is_dir()]
    if not folders:
        return Records((), ())
    requested = {folder: _requested_names(folder) for folder in folders}
    try:
        records = read_runs(folders)
    except ValueError as error:  # no run has started yet
        return Records((), (str(error),))
    runs = tuple(run for run in records.runs if not (names := requested.get(run.folder.parents[1])) or run.folder.name in names)
    return Records(runs, records.problems, records.places)


def _requested_names(folder: Path) -> list[str]:
    try:
        names = read_record(folder / "study.json").get("runs")
    except ValueError:  # no study.json: the runs were copied from elsewhere
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def read_json_object(file: Path) -> dict[str, Any]:
    """Read a JSON object; an empty dict if the file is missing or holds something else.

    Examples
    --------
    >>> read_json_object(Path("nowhere"))
    {}
    """
    try:
        with open_regular(file) as stream:
            found = json.loads(stream.read())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def format_estimate(estimate: Estimate | None) -> str:
    """Format an estimate with its interval for a sentence.

    Examples
    --------
    >>> format_estimate(Estimate(0.5, 0.4, 0.6, 0.95, 5, 1, "")), format_estimate(None)
    ('0.5 [0.4, 0.6]', 'unknown')
    """
    if estimate is None:
        return "unknown"
    value, low, high = (f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}" for x in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]" if math.isfinite(estimate.low + estimate.high) else value
