"""What alpha does, as the paper shows it: the highest score that was reached, against alpha, game by game."""

from __future__ import annotations

from actiongap.report.groups import LEVEL
from actiongap.report.page import Block, Choice, Provenance
from actiongap.reproduce.agents.alphas import Point, alpha_chart, alpha_sweep, swept_games
from actiongap.reproduce.agents.runs import Agent, Agents, mean
from actiongap.reproduce.agents.scores import HIGHEST


def by_alpha(agents: Agents, source: Provenance) -> list[Block]:
    """The paper's chart, and the same of final scores, gaps, values and biases; nothing where fewer than two alphas were trained on a game.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> by_alpha({}, provenance_of([]))
    []
    """

    def highest(game: str) -> Point:
        return lambda operator: mean(agents.get(Agent(game, operator)), HIGHEST)

    note = f"Mean over runs that are done; band: {LEVEL:.0%} t interval over seeds. The theorem speaks of alphas below 1."
    items = tuple(
        ((game,), alpha_chart(f"Highest score by alpha, {game}", "highest score", highest(game), note, source))
        for game in swept_games(agents)
    )
    return [Choice("Highest score by alpha, as in the paper", ("game",), items), *alpha_sweep(agents, source)] if items else []
