"""The paper's 60 games, in the order of its table."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from actiongap.envs.atari import atari_games

CURVES = ("asterix", "space_invaders")
"""The games whose learning curves the paper shows."""


class Title(NamedTuple):
    """A game of the table."""

    rom: str
    """What the emulator calls it."""
    name: str
    """What the paper calls it."""
    new: bool
    """Whether it has a dagger there: the table before it, of Bellemare et al. (2013), did not have it."""


@cache
def titles() -> tuple[Title, ...]:
    """All of them.

    Examples
    --------
    >>> len(titles()), titles()[4]
    (60, Title(rom='space_invaders', name='Space Invaders', new=False))
    """
    return tuple(Title(row["rom"], row["game"], row["new_in_paper"] == "yes") for row in atari_games())


def in_order() -> list[str]:
    """Their ids in the order of the page: those with learning curves in the paper, then as in its table.

    Examples
    --------
    >>> in_order()[:3]
    ['asterix', 'space_invaders', 'beam_rider']
    """
    return list(dict.fromkeys([*CURVES, *(title.rom for title in titles())]))
