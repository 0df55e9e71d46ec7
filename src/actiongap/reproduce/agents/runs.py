"""Deep agents read back: which runs repeat which agent, and what each came to.

Agents are compared where they were trained alike, in everything but the operator and what tells agents apart besides. Numbers come from
agents that are done.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import Estimate
from actiongap.report.groups import Group, column_of, listed, mean_over_runs, run_scores, several
from actiongap.reproduce.agents.operators import BELLMAN, OPERATORS

FOLLOWED = "followed"
"""The discounted rewards that followed the states that an agent met: its value less its bias."""


class Agent(NamedTuple):
    """What tells agents apart, but for the seed."""

    game: str
    operator: str
    double: bool = False
    online: bool = False
    """Whether the corrections of its operator come from the online network."""

    @property
    def name(self) -> str:
        """What it is called beside others on the same game."""
        return f"{'double ' * self.double}{self.operator}{', online' * self.online}"


Agents = Mapping[Agent, Group]
"""The runs of each agent, in the order of their seeds."""
Number = Callable[[RunRecord], float]
"""A number of a run; not a number where it has none."""


def alike(runs: Sequence[RunRecord]) -> tuple[list[RunRecord], list[RunRecord]]:
    """The runs with the settings that most have who learn with Bellman's operator, and the others.

    Examples
    --------
    >>> alike([])
    ([], [])
    """
    bellmans = [run for run in runs if run.agent == BELLMAN and not run.spec.get("double")]
    counts = Counter(map(_settings, bellmans or runs))
    usual = counts.most_common(1)[0][0] if counts else ""
    return [run for run in runs if _settings(run) == usual], [run for run in runs if _settings(run) != usual]


def _settings(run: RunRecord) -> str:
    """Everything that agents which are compared have in common."""
    own = ("problem", "operator", "double", "corrections", "seed")
    return json.dumps({name: value for name, value in run.spec.items() if name not in own}, sort_keys=True)


def counted(runs: Sequence[RunRecord]) -> str:
    """How many runs of which studies these are, in words."""
    return f"{several(len(runs), 'run')} of {listed(sorted({run.folder.parents[1].name for run in runs}))}"


def game_of(run: RunRecord) -> str:
    """The game that is played: the last part of `minatar/asterix`."""
    return run.task.rpartition("/")[2]


def agents_of(runs: Iterable[RunRecord], games: Sequence[str] = ()) -> Agents:
    """Runs by the agent they train: these games first, the others by their names, and operators in the order of the page.

    Examples
    --------
    >>> agents_of([])
    {}
    """
    gathered: dict[Agent, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        agent = Agent(game_of(run), run.agent, bool(run.spec.get("double")), run.spec.get("corrections") == "online")
        gathered.setdefault(agent, []).append(run)
    first = {game: place for place, game in enumerate(games)}
    order = {operator: place for place, operator in enumerate(OPERATORS)}

    def place(agent: Agent) -> tuple:
        operator = order.get(agent.operator, len(order)), agent.operator
        return first.get(agent.game, len(first)), agent.game, agent.double, agent.online, *operator

    return {agent: Group("train", agent.game, agent.operator, agent.name, tuple(gathered[agent])) for agent in sorted(gathered, key=place)}


def games_of(agents: Agents) -> list[str]:
    """The games that are played, in the order of the page.

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


def score_of(kind: str) -> Number:
    """The score of a run in one of three ways: "average of last tenth", "last" or "highest"."""
    return lambda run: run_scores(column_of(run, "score"))[kind]


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
