"""Whose thoughts and games are shown: one agent of each of the three operators, with one seed, on one game of each setting.

The paper probes agents on Space Invaders, so that comes first where it was trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from actiongap.lab.records import RunRecord
from actiongap.reproduce.agents.operators import FEW
from actiongap.reproduce.agents.runs import Agent, Agents, games_of
from actiongap.reproduce.atari.studies import ORIGINAL

PROBED = "space_invaders"
"""The game of the paper's probe."""


class Cast(NamedTuple):
    """Agents that are shown together."""

    setting: str
    game: str
    runs: tuple[RunRecord, ...]
    """Bellman's first."""

    @property
    def made_of(self) -> list[str]:
        """What tells the networks of these runs from those of others."""
        return [run.status.digest for run in self.runs if run.status is not None]

    @property
    def name(self) -> str:
        """What files of it are called."""
        return f"{self.setting}-{self.game}"


def casts(settings: Mapping[str, Agents]) -> list[Cast]:
    """One cast of each setting in which three operators have a seed in common that is done; Original DQN, the paper's, first.

    Examples
    --------
    >>> casts({})
    []
    """
    found = []
    for setting in sorted(settings, key=lambda setting: setting != ORIGINAL):
        agents = settings[setting]
        for game in sorted(games_of(agents), key=lambda game: game != PROBED):
            if runs := _together(agents, game):
                found.append(Cast(setting, game, runs))
                break
    return found


def _together(agents: Agents, game: str) -> tuple[RunRecord, ...]:
    groups = [agents.get(Agent(game, name)) for name in FEW]
    done = [{run.seed: run for run in group.runs if run.state == "done"} if group else {} for group in groups]
    seeds = sorted(set.intersection(*map(set, done)))
    return tuple(runs[seeds[0]] for runs in done) if seeds else ()
