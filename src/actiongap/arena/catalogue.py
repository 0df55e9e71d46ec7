"""Environments by name."""

from __future__ import annotations

from actiongap.arena.game import Game
from actiongap.arena.minatar import GAMES


def load_game(name: str) -> Game:
    """The game that a name means.

    Examples
    --------
    >>> load_game("minatar/freeway").actions
    ('stay', 'up', 'down')
    """
    group, _, game = name.partition("/")
    if group != "minatar" or game not in GAMES:
        raise ValueError(f"unknown environment {name!r}: choose from {', '.join(f'minatar/{known}' for known in GAMES)}")
    return GAMES[game]
