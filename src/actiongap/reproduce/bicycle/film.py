"""The film of the bicycle: one ride after Bellman's plan and one after the consistent operator's, from the same start under the same gusts.

It is made from the tables in which two runs of the study `operators` ended, and made again only when these are others.
"""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from actiongap._files import write_bytes, write_text
from actiongap.envs.episode_video import edit, recorded_every, ride_frames
from actiongap.lab.experiment import build
from actiongap.lab.kinds.plan import Planning
from actiongap.lab.records import RunRecord
from actiongap.planning.rollouts import ride
from actiongap.render.video import makes_mp4, mp4_bytes
from actiongap.reproduce.bicycle.drawing import ending
from actiongap.reproduce.bicycle.runs import Plan, Plans, final_state, first_done
from actiongap.reproduce.bicycle.studies import PAIR
from actiongap.reproduce.evidence import noted
from actiongap.reproduce.parts import Progress

SECONDS = 12.0
"""How long the film of one ride is."""


class Shot(NamedTuple):
    """One ride of the film."""

    operator: str
    grid: int
    iterations: int
    episode: int
    episodes: int
    heading: float
    """Where it starts to: to the left of the goal, rad."""
    ending: str
    steps: int


def make_film(out: Path, plans: Plans, progress: Progress) -> None:
    """Write the film and what is in it into a folder, unless it is there already or cannot be made."""
    stars = cast(plans)
    if stars is None or not makes_mp4():
        return
    made = [run.status.digest for run in stars if run.status is not None]
    if noted(out / "rides.json").get("made of") == made and (out / "rides.mp4").is_file():
        return
    states = [final_state(run) for run in stars]
    specs = [build(Planning, run.spec) for run in stars]
    known = [(spec, state) for spec, state in zip(specs, states, strict=True) if state is not None and isinstance(spec, Planning)]
    if len(known) < len(stars):
        return
    episode = _episode(known[0][0], [state["rides"] for _, state in known])
    shots, frames, fps = [], [], 25
    for number, (spec, state) in enumerate(known):
        progress(f"filming {spec.operator}", number / len(known))
        pace = recorded_every(spec.domain)
        found = ride(spec.domain, spec.place, state["q"], episode, spec.episodes, seed=spec.seed, limit=spec.limit, every=pace)
        cut = edit(spec.domain, found, seconds=SECONDS)
        frames.append(ride_frames(spec.domain, found, cut, title=f"{spec.operator}, {spec.iterations} iterations"))
        heading, fps = float(found.coordinates[4][0]), cut.fps
        place = (spec.operator, spec.grid, spec.iterations, episode, spec.episodes)
        shots.append(Shot(*place, heading, found.ending, int(found.steps[-1])))
    write_bytes(out / "rides.mp4", mp4_bytes(chain(*frames), fps))
    write_text(out / "rides.json", json.dumps({"made of": made, "shots": [shot._asdict() for shot in shots]}, indent=1) + "\n")


def load_film(out: Path, plans: Plans) -> tuple[bytes, list[Shot]] | None:
    """The film in a folder and what it shows; None where there is none, or one of other runs."""
    stars, record = cast(plans), noted(out / "rides.json")
    if stars is None or record.get("made of") != [run.status.digest for run in stars if run.status is not None]:
        return None
    try:
        return (out / "rides.mp4").read_bytes(), [Shot(**shot) for shot in record["shots"]]
    except (OSError, KeyError, TypeError):
        return None


def cast(plans: Plans) -> list[RunRecord] | None:
    """The two runs whose rides are shown, on the coarsest grid on which both recorded theirs; None if there is none."""
    for grid in sorted({plan.grid for plan in plans}):
        runs = [first_done(plans.get(Plan(operator, grid))) for operator in PAIR]
        recorded = [run for run in runs if run is not None and run.spec.get("record")]
        if len(recorded) == len(PAIR):
            return recorded
    return None


def _episode(spec: Planning, rides: list[np.ndarray]) -> int:
    """The first recorded episode that ends differently for the two in the last evaluation, or the first of all."""
    ends = [[ending(one) for one in recorded[-1]] for recorded in rides]
    differing = (episode for episode, *two in zip(spec.recorded, *ends, strict=True) if len(set(two)) > 1)
    return next(differing, spec.recorded[0])
