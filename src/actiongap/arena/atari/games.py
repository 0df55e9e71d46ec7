"""The Atari games of the paper by name: what an agent has to know about one before it plays.

A game is named as its ROM is: `asterix`, `space_invaders`. An agent sees it in grey, 84 x 84, and has its minimal set of actions: those of
the joystick's eighteen that do something in it.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import NamedTuple

from actiongap._system import install
from actiongap.data import atari_games

GAMES = tuple(row["rom"] for row in atari_games())
"""The games in the order of the paper's table."""
TRAINING = GAMES[:5]
"""Those on which the paper chose its parameters."""

SCREEN = (84, 84)
"""Rows and columns that an agent sees."""
FRAMES_A_STEP = 4
"""Frames for which an agent's action is held."""


class AtariGame(NamedTuple):
    """A game of the Atari 2600."""

    name: str
    """Of its ROM."""
    actions: tuple[str, ...]
    """What its actions are called, in the order of their numbers."""
    screen: tuple[int, int]
    """Rows and columns of the screen; 210 rows in most games."""
    shape: tuple[int, int] = SCREEN
    """Rows and columns that an agent sees."""


def check_game(name: str) -> None:
    """Refuse, in one sentence, a game that is unknown or that nothing here can emulate.

    Examples
    --------
    >>> check_game("spaceinvaders")
    Traceback (most recent call last):
    ...
    ValueError: unknown Atari game 'spaceinvaders': did you mean atari/space_invaders?
    """
    if name not in GAMES:
        near = difflib.get_close_matches(name.lower(), GAMES, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown Atari game {name!r}: did you mean atari/{near}?")
    try:
        import ale_py  # noqa: F401
    except ImportError:
        raise ValueError(f"atari/{name} needs ale-py, which is not installed: {install('atari')}") from None


@cache
def atari_game(name: str) -> AtariGame:
    """The game of this name, as its emulator describes it.

    Examples
    --------
    >>> atari_game("pong").actions
    ('noop', 'fire', 'right', 'left', 'right fire', 'left fire')
    """
    check_game(name)
    from ale_py import ALEInterface, LoggerMode, roms

    ALEInterface.setLoggerMode(LoggerMode.Error)
    emulator = ALEInterface()
    emulator.loadROM(str(roms.get_rom_path(name)))
    # The emulator writes UPRIGHTFIRE.
    actions = tuple(" ".join(re.findall("NOOP|UP|DOWN|LEFT|RIGHT|FIRE", action.name)).lower() for action in emulator.getMinimalActionSet())
    rows, columns = emulator.getScreenDims()
    return AtariGame(name, actions, (rows, columns))
