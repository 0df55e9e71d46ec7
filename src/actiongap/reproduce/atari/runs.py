"""Agents on Atari read back, setting by setting.

Only runs that the last command asked for count. On each game of a setting those are compared that were trained alike; games may differ in
how long.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from actiongap.dqn.config import PRESETS
from actiongap.lab.records import RunRecord
from actiongap.reproduce.agents.runs import Agents, agents_of, alike, counted, game_of
from actiongap.reproduce.atari.games import in_order
from actiongap.reproduce.atari.studies import QUESTIONS, SETTINGS
from actiongap.reproduce.evidence import asked_for

TOLD = {setting: (PRESETS[setting].sticky, PRESETS[setting].lives) for setting in SETTINGS}
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
    >>> setting_of({"sticky": 0.25, "lives": "ignored"}), setting_of({"sticky": 0.1})
    ('stochastic-minimal', None)
    """
    return next((setting for setting, told in TOLD.items() if told == (spec.get("sticky"), spec.get("lives"))), None)


def done(agents: Agents) -> list[RunRecord]:
    """The runs that are done.

    Examples
    --------
    >>> done({})
    []
    """
    return [run for group in agents.values() for run in group.runs if run.state == "done"]
