"""What three agents think along one game: the paper's probe figure.

The agent that learned with Bellman's operator plays, taking a random action one time in twenty, and all three are asked what they think of
the states that it meets: how much they are worth, V(x), and by how much the best action is better than the second. What they answered is
kept in the folder, so that the page can be made again when the networks are gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from actiongap._files import write_text
from actiongap.report.page import Block, Chart, Prose, Provenance, Series
from actiongap.report.summary import provenance_of
from actiongap.reproduce.atari.casting import Cast
from actiongap.reproduce.atari.studies import SETTINGS
from actiongap.reproduce.evidence import noted
from actiongap.reproduce.parts import Progress

STEPS = 1000
"""Steps of a game that are recorded at most."""
WINDOW = 50
"""Steps over which gaps are averaged, as in the paper, and values too, of which it does not say so."""
EPSILON = 0.05
SEED = 0
"""With which luck the game is played."""


class Thoughts(NamedTuple):
    """What one agent thinks, step by step, smoothed."""

    agent: str
    value: tuple[float, ...]
    gap: tuple[float, ...]


def think_along(folders: Sequence[Path], along: Path, *, steps: int = STEPS, window: int = WINDOW) -> list[Thoughts]:
    """What trained agents, given by the folders of their runs, think along one game that another of the same game plays.

    Raises ValueError where a folder holds no agent, or agents of a game that cannot be recorded.
    """
    from actiongap.dqn.probe import probe, record, smoothed
    from actiongap.envs.gym import HostGame
    from actiongap.envs.registry import load_environment
    from actiongap.lab.agents import load_trained

    guide, agents = load_trained(along), [load_trained(folder) for folder in folders]
    game = load_environment(guide.spec.problem)
    if isinstance(game, HostGame):
        raise ValueError(f"games of {guide.spec.problem} are not recorded: give agents of atari/ or minatar/ games")
    if others := sorted({agent.spec.problem for agent in agents} - {guide.spec.problem}):
        raise ValueError(f"an agent of {others[0]} cannot be asked about {guide.spec.problem}: give agents of one game")
    seen = record(guide.dqn, game, guide.parameters, SEED, steps, epsilon=EPSILON)
    thoughts = []
    for agent in agents:
        value, gap = (smoothed(rows, window)[0] for rows in probe(agent.dqn, [agent.parameters], seen))
        thoughts.append(Thoughts(agent.label, *(tuple(float(f"{x:.5g}") for x in row) for row in (value, gap))))
    return thoughts


def charts(thoughts: Sequence[Thoughts], title: str, note: str, source: Provenance) -> list[Block]:
    """Gaps and values of agents along one game, a chart each."""

    def chart(what: str, label: str, of: str) -> Chart:
        lines = tuple(Series(mind.agent, tuple(range(len(row := getattr(mind, of)))), row) for mind in thoughts)
        return Chart(f"{what}, {title}", "step", label, lines, note, source=source)

    return [chart("Action gaps along one game", "best less second-best Q", "gap"), chart("Values along one game", "V(x)", "value")]


def make_probe(out: Path, cast: Cast, progress: Progress, steps: int = STEPS) -> None:
    """Ask a cast and keep the answers in a folder, unless they are there already; where it cannot be asked, keep why."""
    file = _file(out, cast)
    kept = noted(file)
    if kept.get("made of") == cast.made_of and "agents" in kept:
        return
    progress(f"asking agents on {cast.game}", 0.0)
    folders = [run.folder for run in cast.runs]
    try:
        thoughts = think_along(folders, folders[0], steps=steps)
        told = {"agents": [mind._asdict() for mind in thoughts], "ended": len(thoughts[0].value) < steps}
    except ValueError as error:
        told = {"why not": str(error)}
    write_text(file, json.dumps({"made of": cast.made_of, **told}) + "\n")


def shown_probe(out: Path, cast: Cast) -> list[Block]:
    """The probe figure of a cast, or why there is none."""
    kept, where = noted(_file(out, cast)), f"{cast.game} in {SETTINGS[cast.setting]}"
    if kept.get("made of") != cast.made_of:
        return [Prose(f"There is no probe of {where} here: actiongap reproduce atari makes it of agents that are done.")]
    try:
        # Called by their operators, as everywhere on the page, and so in the same colours.
        minds = zip(cast.runs, kept["agents"], strict=True)
        thoughts = [Thoughts(run.agent, tuple(mind["value"]), tuple(mind["gap"])) for run, mind in minds]
        first, length = cast.runs[0], len(thoughts[0].value)
        # Older notes do not say whether the game ended, and are of `STEPS` at most.
        ended = kept.get("ended", length < STEPS)
        note = (
            f"Along {'all' if ended else 'the first'} {length:,} steps of one game of {first.agent}, which takes a random action "
            f"{EPSILON:.0%} of the time; averaged over the last {WINDOW} steps, as the paper averages gaps; of its values it does not say "
            f"so. All agents are those of seed {first.seed}."
        )
        note += "" if ended else " The paper's game is shown to its end."
        return charts(thoughts, where, note, provenance_of(cast.runs))
    except (KeyError, TypeError, ValueError):
        return [Prose(f"There is no probe of {where} here: {kept.get('why not', 'what was noted of it cannot be read')}.")]


def _file(out: Path, cast: Cast) -> Path:
    return out / f"probe-{cast.name}.json"
