"""Deep agents read back: which runs repeat which agent, and what each came to.

Only runs that the last command asked for count, and only those that were trained as the others were: a folder in which one study was done
at one scale and the other at another shows the first, and says so. Numbers come from agents that are done.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import Estimate
from actiongap.report.groups import Group, column_of, listed, mean_over_runs, run_scores, several
from actiongap.reproduce.evidence import asked_for
from actiongap.reproduce.minatar.studies import BELLMAN, OPERATORS, QUESTIONS

FOLLOWED = "followed"
"""The discounted rewards that followed the states that an agent met: its value less its bias."""


class Agent(NamedTuple):
    """What tells agents apart, but for the seed."""

    game: str
    operator: str
    double: bool = False

    @property
    def name(self) -> str:
        """What it is called beside others on the same game."""
        return f"double {self.operator}" if self.double else self.operator


Agents = Mapping[Agent, Group]
"""The runs of each agent, in the order of their seeds."""
Number = Callable[[RunRecord], float]
"""A number of a run; not a number where it has none."""


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
    runs = records.runs
    alike, others = _alike([run for run in runs if run.kind == "train" and run.task.startswith("minatar/")])
    problems = records.problems
    if others:
        names = listed(sorted({run.folder.parents[1].name for run in others}))
        problems += (f"{several(len(others), 'run')} of {names} had other settings and are left out: run both studies at one scale",)
    return Found(agents_of(alike), tuple(alike), problems)


def _alike(runs: list[RunRecord]) -> tuple[list[RunRecord], list[RunRecord]]:
    """The runs with the settings that most have who learn with Bellman's operator, and the others."""
    bellmans = [run for run in runs if run.agent == BELLMAN and not run.spec.get("double")]
    counts = Counter(map(_settings, bellmans or runs))
    usual = counts.most_common(1)[0][0] if counts else ""
    return [run for run in runs if _settings(run) == usual], [run for run in runs if _settings(run) != usual]


def _settings(run: RunRecord) -> str:
    """Everything that agents which are compared have in common."""
    own = ("problem", "operator", "double", "seed")
    return json.dumps({name: value for name, value in run.spec.items() if name not in own}, sort_keys=True)


def agents_of(runs: Iterable[RunRecord]) -> Agents:
    """Runs by the agent they train, games in the order of their names and operators in the order of the page."""
    gathered: dict[Agent, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        agent = Agent(run.task.removeprefix("minatar/"), run.agent, bool(run.spec.get("double")))
        gathered.setdefault(agent, []).append(run)
    order = {operator: place for place, operator in enumerate(OPERATORS)}
    places = sorted(gathered, key=lambda agent: (agent.game, agent.double, order.get(agent.operator, len(order)), agent.operator))
    return {agent: Group("train", agent.game, agent.operator, agent.name, tuple(gathered[agent])) for agent in places}


def games_of(agents: Agents) -> list[str]:
    """The games that are played, in the order of their names.

    Examples
    --------
    >>> games_of({})
    []
    """
    return list(dict.fromkeys(agent.game for agent in agents))


def column(run: RunRecord, name: str) -> NDArray[np.float64]:
    """A column of a run, or what followed."""
    return column_of(run, "value") - column_of(run, "bias") if name == FOLLOWED else column_of(run, name)


def final(name: str) -> Number:
    """The mean of a column over the last tenth of the evaluations."""
    return lambda run: run_scores(column(run, name))["average of last tenth"]


def by_seed(group: Group | None, number: Number) -> dict[int, float]:
    """A number of every run that is done and has it, by its seed.

    Examples
    --------
    >>> by_seed(None, final("score"))
    {}
    """
    runs = () if group is None else group.runs
    found = {run.seed: number(run) for run in runs if run.state == "done" and len(run.rows["step"])}
    return {seed: value for seed, value in found.items() if np.isfinite(value)}


def mean(group: Group | None, number: Number) -> Estimate | None:
    """The mean of a number over the runs that are done, with Student's t interval."""
    return mean_over_runs(list(by_seed(group, number).values()))
