"""Whose thoughts and games are shown: one agent of each of the three operators, with one seed, on one game of each setting.

The paper probes agents on Space Invaders, so that comes first where it was trained.

What three agents think along one game: the paper's probe figure.

The agent that learned with Bellman's operator plays, taking a random action one time in twenty, and all three are asked what they think of
the states that it meets: how much they are worth, V(x), and by how much the best action is better than the second. What they answered is
kept in the folder, so that the page can be made again when the networks are gone.

Films of agents at play, one after the other on the same game: the screen, and beside it what the agent thinks of its actions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from actiongap._files import write_bytes, write_text
from actiongap.lab.records import RunRecord
from actiongap.paper.agents import FEW, Agent, Agents, games_of
from actiongap.paper.atari_runs import ORIGINAL, SETTINGS
from actiongap.paper.parts import Progress, noted
from actiongap.render.video import NO_MP4, makes_mp4, mp4_bytes
from actiongap.report.page import Block, Chart, Picture, Prose, Provenance, Series
from actiongap.report.summary import provenance_of

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
    game = load_environment(guide.spec.env)
    if isinstance(game, HostGame):
        raise ValueError(f"games of {guide.spec.env} are not recorded: give agents of atari/ or minatar/ games")
    if others := sorted({agent.spec.env for agent in agents} - {guide.spec.env}):
        raise ValueError(f"an agent of {others[0]} cannot be asked about {guide.spec.env}: give agents of one game")
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


SECONDS = 12.0
"""How long one agent is shown."""
LIMIT = 3000
"""Steps after which a game is cut short."""


def make_film(out: Path, cast: Cast, progress: Progress, limit: int = LIMIT) -> None:
    """Write the film of a cast and what is in it into a folder, unless it is there already; where it cannot be made, write why."""
    film, notes = _files(out, cast)
    kept = noted(notes)
    if kept.get("made of") == cast.made_of and (film.is_file() or not makes_mp4()):
        return
    told: dict[str, object] = {"made of": cast.made_of}
    try:
        data, told["games"] = _filmed(cast, progress, limit)
        write_bytes(film, data)
    except ValueError as error:
        told["why not"] = str(error)
    write_text(notes, json.dumps(told, indent=1) + "\n")


def _filmed(cast: Cast, progress: Progress, limit: int) -> tuple[bytes, list[dict[str, object]]]:
    from actiongap.envs.episode_video import edit, ride_frames
    from actiongap.lab.agents import load_trained, play

    if not makes_mp4():
        raise ValueError(NO_MP4)
    frames, games, fps = [], [], 25
    for number, run in enumerate(cast.runs):
        progress(f"filming {run.agent} on {cast.game}", number / len(cast.runs))
        stage, ride = play(load_trained(run.folder), 0, limit)
        cut = edit(stage, ride, seconds=SECONDS)
        frames.append(ride_frames(stage, ride, cut, title=f"{cast.game}, {run.agent}"))
        fps = cut.fps
        games.append({"agent": run.agent, "score": float(ride.coordinates[0][-1]), "steps": int(ride.steps[-1]), "ending": ride.ending})
    return mp4_bytes(chain(*frames), fps), games


def shown_film(out: Path, cast: Cast) -> Block:
    """The film of a cast, or why there is none."""
    film, notes = _files(out, cast)
    kept, where = noted(notes), f"{cast.game} in {SETTINGS[cast.setting]}"
    if kept.get("made of") != cast.made_of:
        return Prose(f"There is no film of {where} here: actiongap reproduce atari makes it of agents that are done.")
    try:
        shots = [f"{game['agent']}, {game['score']:g} points, {game['ending']} after {game['steps']:,} steps" for game in kept["games"]]
        data = film.read_bytes()
    except (OSError, KeyError, TypeError, ValueError):
        return Prose(f"There is no film of {where} here: {kept.get('why not', 'what was noted of it cannot be read')}.")
    alt = "An Atari screen with the values of all actions and the action gap beside it."
    note = f"Greedy play from the same seed, one agent after the other: {'; '.join(shots)}. One game says nothing of who is better."
    return Picture(f"Agents at play on {where}", data, "video/mp4", alt, note, provenance_of(cast.runs))


def _files(out: Path, cast: Cast) -> tuple[Path, Path]:
    return out / f"film-{cast.name}.mp4", out / f"film-{cast.name}.json"
