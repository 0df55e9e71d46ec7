"""Agents on MinAtar read back.

Only runs that the last command asked for count, and only those that were trained as the others were: a folder in which one study was done
at one scale and the other at another shows the first, and says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from actiongap.lab.records import RunRecord
from actiongap.reproduce.agents.runs import Agents, agents_of, alike, counted
from actiongap.reproduce.evidence import asked_for
from actiongap.reproduce.minatar.studies import QUESTIONS


class Found(NamedTuple):
    """What a folder holds."""

    agents: Agents
    runs: tuple[RunRecord, ...]
    problems: tuple[str, ...]
    """Sentences about what is left out."""


def read_agents(out: Path) -> Found:
    """The agents that the studies in a folder were last asked for.

    Examples
    --------
    >>> import tempfile
    >>> read_agents(Path(tempfile.mkdtemp()))
    Found(agents={}, runs=(), problems=())
    """
    records = asked_for(out, QUESTIONS)
    same, others = alike([run for run in records.runs if run.kind == "train" and run.task.startswith("minatar/")])
    problems = records.problems
    if others:
        problems += (f"{counted(others)} had other settings and are left out: run both studies at one scale",)
    return Found(agents_of(same), tuple(same), problems)
