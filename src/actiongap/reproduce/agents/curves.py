"""How deep agents learn: scores, gaps, values and their bias against frames, a chart for each game and choice of operators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from actiongap.report.groups import LEVEL, Group, t_interval
from actiongap.report.page import Block, Chart, Choice, Provenance, Series
from actiongap.reproduce.agents.operators import ALPHAS, BELLMAN, FAMILIES, FEW, USUAL
from actiongap.reproduce.agents.runs import FOLLOWED, Agent, Agents, column, games_of

SCORED = {
    "score": ("in evaluations", "rewards of an episode"),
    "training_return": ("in training", "rewards of an episode in training"),
}
"""What an agent earns, as the page calls it, and what that is. In training it explores more, and every episode since the evaluation before
counts, which are far more than an evaluation has."""
QUANTITIES = {
    "action_gap": ("action gap", "best less second-best Q"),
    "value": ("V", "max_a Q"),
    FOLLOWED: ("what followed", "discounted rewards"),
    "bias": ("bias", "V less what followed"),
}
"""What an agent thinks of the states that it meets, as the page calls it, and what that is."""
Sets = Mapping[str, Sequence[Agent]]
"""Agents, of whatever game, that are to be seen in one chart, by what they are called together."""


def learning_curves(agents: Agents, source: Provenance, more: Sets) -> list[Block]:
    """Scores against frames, in evaluations and in training; a chart for each set of agents.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> learning_curves({}, provenance_of([]), {})
    []
    """
    items = [
        ((game, name, which), _chart(f"Scores on {game}, {name}", quantity, label, some, source))
        for game in games_of(agents)
        for quantity, (name, label) in SCORED.items()
        for which, some in choices(agents, game, more).items()
    ]
    return [Choice("Learning curves", ("game", "score", "operators"), tuple(items))] if items else []


def thinking_curves(agents: Agents, source: Provenance, more: Sets) -> list[Block]:
    """Gaps, values, what followed, and bias, against frames; a chart for each set of agents.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> thinking_curves({}, provenance_of([]), {})
    []
    """
    items = [
        ((game, name, which), _chart(f"{name.capitalize()} on {game}", quantity, label, some, source))
        for game in games_of(agents)
        for quantity, (name, label) in QUANTITIES.items()
        for which, some in choices(agents, game, more).items()
    ]
    return [Choice("Gaps and values while learning", ("game", "quantity", "operators"), tuple(items))] if items else []


def choices(agents: Agents, game: str, more: Sets) -> dict[str, dict[Agent, Group]]:
    """The sets of agents that are shown in one chart of a game, Bellman's in each; a set without any other agent is left out.

    Examples
    --------
    >>> choices({}, "breakout", {})
    {}
    """
    bellman = Agent(game, BELLMAN)
    sets = {f"alpha = {USUAL:g}": [Agent(game, name) for name in FEW]}
    sets |= {f"{family}, every alpha": [bellman, *(Agent(game, f"{family}:{alpha:g}") for alpha in ALPHAS)] for family in FAMILIES}
    sets |= {which: [agent._replace(game=game) for agent in some] for which, some in more.items()}
    found: dict[str, dict[Agent, Group]] = {}
    for which, wanted in sets.items():
        there = {agent: agents[agent] for agent in wanted if agent in agents and agents[agent].counted}
        # Where one alpha was trained, its own set shows all there is.
        if there and (not found or {*there} - {agent for some in found.values() for agent in some}):
            found[which] = there
    return found


def _chart(title: str, quantity: str, label: str, agents: Mapping[Agent, Group], source: Provenance) -> Chart:
    series = tuple(line(group, agent.name, quantity) for agent, group in agents.items())
    note = f"Line: mean over runs, at the evaluations that all have; band: {LEVEL:.0%} t interval at each, cut off far from the lines."
    return Chart(title, "frames", label, series, note, log_y=quantity == "action_gap" and spread_out(series), source=source)


def spread_out(series: Sequence[Series]) -> bool:
    """Whether the values of some lines span more than a hundredfold, all above zero, so that a log axis shows more of them.

    Examples
    --------
    >>> spread_out([Series("al", (0, 1), (0.1, 9.0))]), spread_out([Series("al", (0, 1), (0.1, 11.0))])
    (False, True)
    """
    values = [value for line in series for value in line.y if value is not None and math.isfinite(value)]
    return bool(values) and min(values) > 0 and max(values) > 100 * min(values)


def line(group: Group, name: str, quantity: str) -> Series:
    """A column of the runs of an agent against frames: their mean, with a band where there are two runs or more."""
    rows = [dict(zip(run.rows["step"].tolist(), column(run, quantity).tolist(), strict=True)) for run in group.counted]
    steps = sorted(set.intersection(*map(set, rows)))
    values = np.array([[row[step] for step in steps] for row in rows])
    middle, low, high = (tuple(found.tolist()) for found in t_interval(values))
    band = {"low": low, "high": high} if len(values) > 1 else {}
    return Series(name, tuple(steps), middle, n=len(values), **band)
