"""What all launchers have in common: where a study's runs are, which of them are left, and what is told about them.

A study's folder holds `study.json`, which says what was asked for, and a folder in `runs/` for every run.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from actiongap._files import make_directory, sweep_up, write_text
from actiongap.lab.environment import describe
from actiongap.lab.spec import FORMAT, VERSION, Experiment, Row, fingerprints
from actiongap.lab.store import attempts, changed_files, is_done
from actiongap.lab.strict import read_record
from actiongap.lab.study import Study

RETRIES = 3
"""How often a run is taken up again after its worker died without having come any further."""
ASK_AGAIN = 1.0
"""Seconds after which a run that another process holds is tried again."""
EventKind = Literal["started", "step", "done", "failed", "died", "busy", "stopped", "stopping", "note"]


class Event(NamedTuple):
    """Something that happened to a run, or to all of them: `stopping` and `note` have no run."""

    kind: EventKind
    run: str = ""
    chunk: float = 0
    """How many chunks are done, where it is a step; with a part of the next, if somebody tells."""
    row: Row | None = None
    """The last row, where it is a step."""
    text: str = ""
    """What went wrong, where something did, or what else there is to know."""


OnEvent = Callable[[Event], None]


@dataclass
class Outcome:
    """What a launcher came to."""

    done: list[str] = field(default_factory=list)
    """Runs that were finished now."""
    failed: dict[str, str] = field(default_factory=dict)
    """Runs that could not be finished, each with a sentence."""
    busy: list[str] = field(default_factory=list)
    """Runs that were left to another process, which held them."""
    stopped: str = ""
    """Why everything was stopped before its end; empty where it was not."""


def run_folder(out: str | Path, name: str) -> Path:
    """Where a run of a study is.

    Examples
    --------
    >>> run_folder("out", "q-learning_cake").as_posix()
    'out/runs/q-learning_cake'
    """
    return Path(out) / "runs" / name


def left(study: Study, out: str | Path) -> dict[str, Experiment]:
    """The runs of a study that are not done yet.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> len(left(Study("cakes", grid("q-learning", problem="cake", seed=range(3))), tempfile.mkdtemp()))
    3
    """
    return {name: run for name, run in study.named().items() if not is_done(run_folder(out, name), run)}


def outdated(study: Study, out: str | Path) -> str:
    """One of the user's own files that has changed since a run of the study was made with it; empty if none has."""
    for name, run in study.named().items():
        files = fingerprints(run)
        made = attempts(run_folder(out, name)) if files else []
        if made and (changed := changed_files(made[-1], files)):
            return changed
    return ""


def check_out(study: Study, out: str | Path) -> None:
    """Refuse, in one sentence, a folder whose `study.json` is not ours, or in which symbolic links lead elsewhere; nothing is touched.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> check_out(Study("cakes", grid("q-learning", problem="cake")), tempfile.mkdtemp())
    """
    folder = Path(out)
    file, runs, logs = folder / "study.json", folder / "runs", folder / "logs"
    # What is done is not written again, so a link to it does no harm.
    places = {run_folder(folder, name): run for name, run in study.named().items()}
    for path in (file, runs, logs, *logs.glob("worker-*.log"), *places):
        if path.is_symlink() and not (path in places and is_done(path, places[path])):
            raise ValueError(f"{path} is a symbolic link, and runs are not written through links: move it away, or choose another --out")
    if not file.exists():
        return
    try:
        read_record(file)
    except ValueError as error:
        # Where runs of ours are, a record that is damaged is written again.
        if not any(_is_run(folder) for folder in runs.glob("*")):
            raise ValueError(f"{error}, and there are no runs beside it: choose another --out, or move it away") from None


def _is_run(folder: Path) -> bool:
    try:
        return bool(read_record(folder / "config.json"))
    except ValueError:
        return False


def open_study(study: Study, out: str | Path, command: str) -> Path:
    """Make a study's folder and write down what was asked for."""
    check_out(study, out)
    folder = make_directory(out)
    # Another launcher may be writing right now.
    sweep_up(folder, re.compile(r"study\.json"), older_than=3600.0)
    record = {"format": FORMAT, "version": VERSION, "name": study.name, "command": command, **describe(), "runs": list(study.named())}
    write_text(folder / "study.json", json.dumps(record, indent=1) + "\n")
    return folder


class Patience:
    """How often each run's worker may die: `RETRIES` times in a row at the same chunk."""

    def __init__(self) -> None:
        self._deaths: dict[str, tuple[int, int]] = {}

    def lost(self, run: str, chunk: int) -> bool:
        """Take note that a run's worker died when `chunk` chunks were done; whether that was once too often."""
        before, count = self._deaths.get(run, (-1, 0))
        count = count + 1 if chunk <= before else 1
        self._deaths[run] = (max(chunk, before), count)
        return count > RETRIES


class Agenda:
    """What is left to do of a study: runs that wait for a worker, and runs that another process holds, to be looked at again."""

    def __init__(self, study: Study, folder: Path, on_event: OnEvent):
        self.folder, self.on_event = folder, on_event
        self.waiting = deque(left(study, folder).items())
        self.elsewhere: list[tuple[float, str, Experiment]] = []
        self.outcome, self.patience = Outcome(), Patience()

    def leave(self, name: str, experiment: Experiment) -> None:
        """Leave a run to the process that holds it, for now."""
        self.elsewhere.append((time.monotonic() + ASK_AGAIN, name, experiment))

    def look_again(self) -> None:
        """Runs that others held a while ago may be done by now, or left lying."""
        now = time.monotonic()
        for entry in [entry for entry in self.elsewhere if entry[0] <= now]:
            self.elsewhere.remove(entry)
            _, name, experiment = entry
            if is_done(run_folder(self.folder, name), experiment):
                self.on_event(Event("done", name))
            else:
                self.waiting.append((name, experiment))
