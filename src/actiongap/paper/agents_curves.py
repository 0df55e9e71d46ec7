"""How deep agents learn: scores, gaps, values and their bias against frames, a chart for each game and choice of operators.

How much of the gap is subtracted: scores, gaps, values and bias against alpha, one line for each family.

Nothing subtracted is Bellman's operator, so that is where both lines begin. Scores and gaps are shown as parts of Bellman's, and so can be
averaged over games; values have a unit, the game's rewards, and are shown game by game. What the means do as alpha grows is said with
every chart; how sure that is, its band shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from actiongap.lab.statistics import LEVEL, Estimate, t_interval
from actiongap.paper.agents import (
    ALPHAS,
    BELLMAN,
    FAMILIES,
    FEW,
    FOLLOWED,
    OVER_GAMES,
    SWEPT,
    USUAL,
    Agent,
    Agents,
    column,
    compare,
    final,
    games_of,
    mean,
    over_games,
)
from actiongap.paper.parts import said
from actiongap.report.groups import Group
from actiongap.report.page import Block, Chart, Choice, Provenance, Series

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


EVERYWHERE = "all games"
RELATIVE = {"score": "score", "action_gap": "action gap"}
"""What is shown as a part of Bellman's."""
Point = Callable[[str], Estimate | None]
"""A number of an operator."""


def alpha_sweep(agents: Agents, source: Provenance) -> list[Block]:
    """What alpha does to everything, over all games on which two alphas or more were trained, and on each of them.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> alpha_sweep({}, provenance_of([]))
    []
    """
    items, games = [], swept_games(agents)
    for quantity, name in RELATIVE.items():
        part = f"{name}, as a part of {BELLMAN}'s"
        places = {EVERYWHERE: games} if len(games) > 1 else {}
        for place, some in (places | {game: [game] for game in games}).items():
            over = f", of the mean over games. {OVER_GAMES}" if len(some) > 1 else "."
            note = f"Final {name}s; band: {LEVEL:.0%} t interval over seeds{over}"
            title, log_y = f"{name.capitalize()} by alpha, {place}", quantity == "action_gap"
            chart = alpha_chart(title, part, _parts(agents, some, quantity), note, source, log_y=log_y)
            items.append(((place, part), chart))
    for game in games:
        for quantity, (name, label) in QUANTITIES.items():
            note = f"Mean over the last tenth of the evaluations and over runs; band: {LEVEL:.0%} t interval over seeds."
            title, log_y = f"{name.capitalize()} by alpha, {game}", quantity == "action_gap"
            chart = alpha_chart(title, label, _means(agents, game, quantity), note, source, log_y=log_y)
            items.append(((game, name), chart))
    return [Choice("By alpha", ("game", "quantity"), tuple(items))] if items else []


def swept_games(agents: Agents) -> list[str]:
    """The games on which two alphas were trained, or more.

    Examples
    --------
    >>> swept_games({})
    []
    """
    alphas: dict[str, set[float]] = {}
    for agent in agents:
        if agent.name in SWEPT:
            alphas.setdefault(agent.game, set()).add(SWEPT[agent.name][1])
    return [game for game, some in alphas.items() if len(some) > 1]


def _parts(agents: Agents, games: list[str], quantity: str) -> Point:
    """A number as a part of Bellman's, mean over games."""
    number = final(quantity)

    def point(operator: str) -> Estimate | None:
        pairs = [(agents.get(Agent(game, operator)), agents.get(Agent(game, BELLMAN))) for game in games]
        if len(pairs) > 1:
            return over_games(pairs, number)
        against = compare(*pairs[0], number)
        return None if against is None else against.ratio

    return point


def _means(agents: Agents, game: str, quantity: str) -> Point:
    return lambda operator: mean(agents.get(Agent(game, operator)), final(quantity))


def alpha_chart(title: str, label: str, point: Point, note: str, source: Provenance, *, log_y: bool = False) -> Chart:
    """A number of operators against their alpha, a line for each family, both from Bellman's on; `log_y` where a log axis shows more."""
    series, seen = [], []
    for family in FAMILIES:
        wanted = {0.0: BELLMAN} | {alpha: f"{family}:{alpha:g}" for alpha in ALPHAS}
        numbers = {alpha: number for alpha, operator in wanted.items() if (number := point(operator)) is not None}
        value, low, high = (tuple(getattr(number, end) for number in numbers.values()) for end in ("value", "low", "high"))
        runs = min((number.n for number in numbers.values()), default=None)
        series.append(Series(family, tuple(numbers), value, low, high, runs))
        seen += [f"with {family} it {course(numbers)}"] if len(numbers) > 1 else []
    note = f"The mean as alpha grows: {'; '.join(seen)}. {note}" if seen else note
    return Chart(title, f"alpha (0: {BELLMAN})", label, tuple(series), note, log_y=log_y and spread_out(series), source=source, dots=True)


def course(numbers: Mapping[float, Estimate]) -> str:
    """What means do from alpha to alpha.

    Examples
    --------
    >>> course({alpha: Estimate(alpha**2, 0.0, 2.0, 0.95, 9, 1, "") for alpha in (0.0, 0.5, 1.0)})
    'rises with every step, from 0 at 0 to 1 [0, 2] at 1'
    >>> course({alpha: Estimate(abs(alpha - 0.5), 0.0, 0.5, 0.95, 9, 1, "") for alpha in (0.0, 0.5, 0.8)})
    'is 0.5 at 0, lowest at 0.5 (0 [0, 0.5]) and 0.3 [0, 0.5] at 0.8'
    """
    alphas = sorted(numbers)
    values = [numbers[alpha].value for alpha in alphas]
    first, last = (f"{values[0]:.3g} at {alphas[0]:g}", f"{said(numbers[alphas[-1]])} at {alphas[-1]:g}")
    steps = [after - before for before, after in pairwise(values)]
    for way, every in (("rises", all(step > 0 for step in steps)), ("falls", all(step < 0 for step in steps))):
        if every:
            return f"{way} with every step, from {first} to {last}"
    turns = {"highest": max(alphas, key=lambda alpha: numbers[alpha].value), "lowest": min(alphas, key=lambda alpha: numbers[alpha].value)}
    inner = [f"{which} at {alpha:g} ({said(numbers[alpha])})" for which, alpha in turns.items() if alpha not in (alphas[0], alphas[-1])]
    return f"is {', '.join([first, *inner])} and {last}"
