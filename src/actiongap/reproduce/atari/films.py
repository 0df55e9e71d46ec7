"""Films of agents at play, one after the other on the same game: the screen, and beside it what the agent thinks of its actions."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

from actiongap._files import write_bytes, write_text
from actiongap.render.video import NO_MP4, makes_mp4, mp4_bytes
from actiongap.report.page import Block, Picture, Prose
from actiongap.report.summary import provenance_of
from actiongap.reproduce.atari.casting import Cast
from actiongap.reproduce.atari.studies import SETTINGS
from actiongap.reproduce.evidence import noted
from actiongap.reproduce.parts import Progress

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
