"""How much of the gap is subtracted: scores, gaps, values and bias against alpha, one line for each family.

Nothing subtracted is Bellman's operator, so that is where both lines begin. Scores and gaps are shown as parts of Bellman's, and so can be
averaged over games; values have a unit, the game's rewards, and are shown game by game.
"""

from __future__ import annotations

from collections.abc import Callable

from actiongap.lab.statistics import Estimate
from actiongap.report.groups import LEVEL
from actiongap.report.page import Block, Chart, Choice, Provenance, Series
from actiongap.reproduce.minatar.comparing import compare, over_games
from actiongap.reproduce.minatar.curves import QUANTITIES
from actiongap.reproduce.minatar.runs import Agent, Agents, final, games_of, mean
from actiongap.reproduce.minatar.studies import ALPHAS, BELLMAN, FAMILIES

EVERYWHERE = "all games"
RELATIVE = {"score": "score", "action_gap": "action gap"}
"""What is shown as a part of Bellman's."""
Point = Callable[[str], Estimate | None]
"""A number of an operator."""


def alpha_sweep(agents: Agents, source: Provenance) -> list[Block]:
    """What alpha does to everything, over all games and on each; nothing where fewer than two alphas were trained.

    Examples
    --------
    >>> from actiongap.report.studies import provenance_of
    >>> alpha_sweep({}, provenance_of([]))
    []
    """
    trained = {alpha for alpha in ALPHAS for family in FAMILIES if any(agent.operator == f"{family}:{alpha:g}" for agent in agents)}
    if len(trained) < 2:
        return []
    items, games = [], games_of(agents)
    for quantity, name in RELATIVE.items():
        part = f"{name}, as a part of {BELLMAN}'s"
        places = {EVERYWHERE: games} if len(games) > 1 else {}
        for place, some in (places | {game: [game] for game in games}).items():
            note = f"Final {name}s; band: {LEVEL:.0%} t interval over seeds" + (", of the mean over games." if len(some) > 1 else ".")
            chart = alpha_chart(f"{name.capitalize()} by alpha, {place}", part, _parts(agents, some, quantity), note, source)
            items.append(((place, part), chart))
    for game in games:
        for quantity, (name, label) in QUANTITIES.items():
            note = f"Mean over the last tenth of the evaluations and over runs; band: {LEVEL:.0%} t interval over seeds."
            chart = alpha_chart(f"{name.capitalize()} by alpha, {game}", label, _means(agents, game, quantity), note, source)
            items.append(((game, name), chart))
    return [Choice("By alpha", ("game", "quantity"), tuple(items))]


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


def alpha_chart(title: str, label: str, point: Point, note: str, source: Provenance) -> Chart:
    """A number of operators against their alpha, a line for each family, both from Bellman's on."""
    series = []
    for family in FAMILIES:
        wanted = {0.0: BELLMAN} | {alpha: f"{family}:{alpha:g}" for alpha in ALPHAS}
        numbers = {alpha: number for alpha, operator in wanted.items() if (number := point(operator)) is not None}
        value, low, high = (tuple(getattr(number, end) for number in numbers.values()) for end in ("value", "low", "high"))
        runs = min((number.n for number in numbers.values()), default=None)
        series.append(Series(family, tuple(numbers), value, low, high, runs))
    return Chart(title, f"alpha (0: {BELLMAN})", label, tuple(series), note, source=source)
