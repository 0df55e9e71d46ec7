"""Charts of deep agents: learning curves over frames, and sweeps over alpha.

Learning curves show scores, gaps, values and bias for each game and set of operators. Sweeps show the same against alpha, one line per
family; alpha = 0 is Bellman, where both lines start. Scores and gaps are shown as fractions of Bellman's, so they can be averaged over
games. Values have the unit of the game's rewards and are shown per game. Each sweep's note describes the trend of the means; its band
shows the uncertainty.
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
    DEFAULT_ALPHA,
    DISCOUNTED_RETURN,
    FAMILIES,
    MAIN_OPERATORS,
    OVER_GAMES,
    SWEEP,
    Agent,
    Agents,
    compare,
    final_mean,
    games_of,
    mean,
    mean_ratio_over_games,
    metric_column,
)
from actiongap.paper.parts import format_estimate
from actiongap.reporting.groups import Group
from actiongap.reporting.page import Block, Chart, Choice, Provenance, Series

SCORE_COLUMNS = {
    "score": ("in evaluation", "return of an episode"),
    "training_return": ("in training", "return of an episode in training"),
}
"""Score columns: name and axis label. Training explores more, and averages all episodes since the previous evaluation, which are far more
than an evaluation has."""
VALUE_COLUMNS = {
    "action_gap": ("action gap", "best minus second-best Q"),
    "value": ("V", "max_a Q"),
    DISCOUNTED_RETURN: ("discounted return", "discounted return"),
    "bias": ("bias", "V minus discounted return"),
}
"""Columns about Q-values at visited states: name and axis label."""
Sets = Mapping[str, Sequence[Agent]]
"""Named sets of agents that share a chart; the game of an agent is ignored."""


def learning_curves(agents: Agents, source: Provenance, more: Sets) -> list[Block]:
    """Return charts of scores over frames, in evaluation and in training; one chart per set of agents.

    Examples
    --------
    >>> from actiongap.reporting.summary import provenance_of
    >>> learning_curves({}, provenance_of([]), {})
    []
    """
    items = [
        ((game, name, which), _chart(f"Scores on {game}, {name}", quantity, label, some, source))
        for game in games_of(agents)
        for quantity, (name, label) in SCORE_COLUMNS.items()
        for which, some in chart_sets(agents, game, more).items()
    ]
    return [Choice("Learning curves", ("game", "score", "operators"), tuple(items))] if items else []


def value_curves(agents: Agents, source: Provenance, more: Sets) -> list[Block]:
    """Return charts of gaps, values, discounted returns and bias over frames; one chart per set of agents.

    Examples
    --------
    >>> from actiongap.reporting.summary import provenance_of
    >>> value_curves({}, provenance_of([]), {})
    []
    """
    items = [
        ((game, name, which), _chart(f"{name.capitalize()} on {game}", quantity, label, some, source))
        for game in games_of(agents)
        for quantity, (name, label) in VALUE_COLUMNS.items()
        for which, some in chart_sets(agents, game, more).items()
    ]
    return [Choice("Gaps and values during learning", ("game", "quantity", "operators"), tuple(items))] if items else []


def chart_sets(agents: Agents, game: str, more: Sets) -> dict[str, dict[Agent, Group]]:
    """Return the sets of agents that share a chart of a game, each with Bellman. A set that adds no agent is omitted.

    Examples
    --------
    >>> chart_sets({}, "breakout", {})
    {}
    """
    bellman = Agent(game, BELLMAN)
    sets = {f"alpha = {DEFAULT_ALPHA:g}": [Agent(game, name) for name in MAIN_OPERATORS]}
    sets |= {f"{family}, all alphas": [bellman, *(Agent(game, f"{family}:{alpha:g}") for alpha in ALPHAS)] for family in FAMILIES}
    sets |= {which: [agent._replace(game=game) for agent in some] for which, some in more.items()}
    found: dict[str, dict[Agent, Group]] = {}
    for which, members in sets.items():
        selected = {agent: agents[agent] for agent in members if agent in agents and agents[agent].counted}
        # If only one alpha was trained, its own set shows everything.
        if selected and (not found or {*selected} - {agent for some in found.values() for agent in some}):
            found[which] = selected
    return found


def _chart(title: str, quantity: str, label: str, agents: Mapping[Agent, Group], source: Provenance) -> Chart:
    series = tuple(curve(group, agent.name, quantity) for agent, group in agents.items())
    note = f"Line: mean over runs, at the evaluations that all runs share. Band: {LEVEL:.0%} t interval, clipped far from the lines."
    return Chart(title, "frames", label, series, note, log_y=quantity == "action_gap" and wide_range(series), source=source)


def wide_range(series: Sequence[Series]) -> bool:
    """Whether the values of some lines are positive and span more than a factor of 100, so that a log axis is useful.

    Examples
    --------
    >>> wide_range([Series("al", (0, 1), (0.1, 9.0))]), wide_range([Series("al", (0, 1), (0.1, 11.0))])
    (False, True)
    """
    values = [value for line in series for value in line.y if value is not None and math.isfinite(value)]
    return bool(values) and min(values) > 0 and max(values) > 100 * min(values)


def curve(group: Group, name: str, quantity: str) -> Series:
    """Return a column of an agent's runs over frames: their mean, with a band if there are at least two runs."""
    rows = [dict(zip(run.rows["step"].tolist(), metric_column(run, quantity).tolist(), strict=True)) for run in group.counted]
    steps = sorted(set.intersection(*map(set, rows)))
    values = np.array([[row[step] for step in steps] for row in rows])
    middle, low, high = (tuple(found.tolist()) for found in t_interval(values))
    band = {"low": low, "high": high} if len(values) > 1 else {}
    return Series(name, tuple(steps), middle, n=len(values), **band)


ALL_GAMES = "all games"
RELATIVE = {"score": "score", "action_gap": "action gap"}
"""Columns that are shown as fractions of Bellman's."""
OperatorMetric = Callable[[str], Estimate | None]
"""An estimate for each operator."""


def alpha_sweep(agents: Agents, source: Provenance) -> list[Block]:
    """Return all charts over alpha, on average over the games with at least two alphas, and on each of them.

    Examples
    --------
    >>> from actiongap.reporting.summary import provenance_of
    >>> alpha_sweep({}, provenance_of([]))
    []
    """
    items, games = [], swept_games(agents)
    for quantity, name in RELATIVE.items():
        label = f"{name} as a fraction of {BELLMAN}'s"
        places = {ALL_GAMES: games} if len(games) > 1 else {}
        for place, some in (places | {game: [game] for game in games}).items():
            over = f", mean over games. {OVER_GAMES}" if len(some) > 1 else "."
            note = f"Final {name}s. Band: {LEVEL:.0%} t interval over seeds{over}"
            title, log_y = f"{name.capitalize()} by alpha, {place}", quantity == "action_gap"
            chart = alpha_chart(title, label, _ratio_metric(agents, some, quantity), note, source, log_y=log_y)
            items.append(((place, label), chart))
    for game in games:
        for quantity, (name, label) in VALUE_COLUMNS.items():
            note = f"Mean over the last tenth of the evaluations and over runs. Band: {LEVEL:.0%} t interval over seeds."
            title, log_y = f"{name.capitalize()} by alpha, {game}", quantity == "action_gap"
            chart = alpha_chart(title, label, _mean_metric(agents, game, quantity), note, source, log_y=log_y)
            items.append(((game, name), chart))
    return [Choice("By alpha", ("game", "quantity"), tuple(items))] if items else []


def swept_games(agents: Agents) -> list[str]:
    """Return the games on which at least two alphas were trained.

    Examples
    --------
    >>> swept_games({})
    []
    """
    alphas: dict[str, set[float]] = {}
    for agent in agents:
        if agent.name in SWEEP:
            alphas.setdefault(agent.game, set()).add(SWEEP[agent.name][1])
    return [game for game, some in alphas.items() if len(some) > 1]


def _ratio_metric(agents: Agents, games: list[str], quantity: str) -> OperatorMetric:
    """Return the mean over games of a column as a fraction of Bellman's."""
    metric = final_mean(quantity)

    def point(operator: str) -> Estimate | None:
        pairs = [(agents.get(Agent(game, operator)), agents.get(Agent(game, BELLMAN))) for game in games]
        if len(pairs) > 1:
            return mean_ratio_over_games(pairs, metric)
        comparison = compare(*pairs[0], metric)
        return None if comparison is None else comparison.ratio

    return point


def _mean_metric(agents: Agents, game: str, quantity: str) -> OperatorMetric:
    return lambda operator: mean(agents.get(Agent(game, operator)), final_mean(quantity))


def alpha_chart(title: str, label: str, point: OperatorMetric, note: str, source: Provenance, *, log_y: bool = False) -> Chart:
    """Return a chart of an estimate over alpha, one line per family. Both start at Bellman.

    `log_y` allows a log axis where it is useful.
    """
    series, trends = [], []
    for family in FAMILIES:
        operators = {0.0: BELLMAN} | {alpha: f"{family}:{alpha:g}" for alpha in ALPHAS}
        estimates = {alpha: estimate for alpha, operator in operators.items() if (estimate := point(operator)) is not None}
        value, low, high = (tuple(getattr(estimate, end) for estimate in estimates.values()) for end in ("value", "low", "high"))
        runs = min((estimate.n for estimate in estimates.values()), default=None)
        series.append(Series(family, tuple(estimates), value, low, high, runs))
        trends += [f"with {family} it {describe_trend(estimates)}"] if len(estimates) > 1 else []
    note = f"Mean over alpha: {'; '.join(trends)}. {note}" if trends else note
    return Chart(title, f"alpha (0: {BELLMAN})", label, tuple(series), note, log_y=log_y and wide_range(series), source=source, dots=True)


def describe_trend(estimates: Mapping[float, Estimate]) -> str:
    """Describe how means change from alpha to alpha.

    Examples
    --------
    >>> describe_trend({alpha: Estimate(alpha**2, 0.0, 2.0, 0.95, 9, 1, "") for alpha in (0.0, 0.5, 1.0)})
    'rises with every step, from 0 at 0 to 1 [0, 2] at 1'
    >>> describe_trend({alpha: Estimate(abs(alpha - 0.5), 0.0, 0.5, 0.95, 9, 1, "") for alpha in (0.0, 0.5, 0.8)})
    'is 0.5 at 0, lowest at 0.5 (0 [0, 0.5]) and 0.3 [0, 0.5] at 0.8'
    """
    alphas = sorted(estimates)
    values = [estimates[alpha].value for alpha in alphas]
    first, last = (f"{values[0]:.3g} at {alphas[0]:g}", f"{format_estimate(estimates[alphas[-1]])} at {alphas[-1]:g}")
    steps = [after - before for before, after in pairwise(values)]
    for way, every in (("rises", all(step > 0 for step in steps)), ("falls", all(step < 0 for step in steps))):
        if every:
            return f"{way} with every step, from {first} to {last}"
    extremes = {
        "highest": max(alphas, key=lambda alpha: estimates[alpha].value),
        "lowest": min(alphas, key=lambda alpha: estimates[alpha].value),
    }
    inner = [
        f"{which} at {alpha:g} ({format_estimate(estimates[alpha])})"
        for which, alpha in extremes.items()
        if alpha not in (alphas[0], alphas[-1])
    ]
    return f"is {', '.join([first, *inner])} and {last}"
