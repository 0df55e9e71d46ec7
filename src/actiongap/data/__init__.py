"""The table that comes with the package: the paper's 60 Atari games, with its scores and others'."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files


@cache
def atari_games() -> tuple[Mapping[str, str], ...]:
    """A row for each game, by the names of the columns, in the order of the paper's table.

    Examples
    --------
    >>> len(atari_games()), atari_games()[0]["game"], atari_games()[0]["paper_bellman"]
    (60, 'Asterix', '6074.98')
    """
    text = (files("actiongap") / "data" / "atari_games.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))
