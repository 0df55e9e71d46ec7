"""Bicycles that ride on the page: eight rides each of two policies, planned and ridden here, thinned, and kept beside this module.

    python -m actiongap.demo.episodes

plans on 8^6 points with both operators, lets each policy ride from eight headings under the same gusts, and writes `rides.json` anew. That
takes two minutes or so on one core. The file says how it was made.
"""

from __future__ import annotations

import json
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

COMMAND = "python -m actiongap.demo.episodes"
OPERATORS = ("bellman", "consistent")
POINTS, ITERATIONS, SEED = 8, 400, 0
"""The plan: points an axis, sweeps, and which random numbers."""
EPISODES, SECONDS, EVERY = 8, 480, 2
"""How many headings, and how long and how often they are looked at, in seconds."""
TENTHS = 10
"""Places are kept in tenths of a metre."""


def load_episodes() -> dict[str, Any]:
    """What was recorded: for each operator its rides, each with its ending, its seconds, and the way as steps in tenths of a metre.

    Examples
    --------
    >>> recorded = load_episodes()["rides"]
    >>> [episode["ending"] for episode in recorded["consistent"]] == ["goal"] * 8
    True
    """
    return json.loads((files("actiongap.demo") / "rides.json").read_text(encoding="utf-8"))


def record_episodes() -> dict[str, Any]:
    """Plan and ride: what `load_rides` gives."""
    from actiongap._version import __version__
    from actiongap.api import plan
    from actiongap.envs.bicycle import DISTANCE, DT, GOAL_RADIUS, bicycle
    from actiongap.planning.rollouts import record_episode

    simulator, found = bicycle(), {}
    for operator in OPERATORS:
        policy = plan(simulator, operator, POINTS, ITERATIONS, seed=SEED, engine="numba")
        limit, every = round(SECONDS / DT), round(EVERY / DT)
        record = partial(record_episode, simulator, policy.grid, policy.q, seed=SEED, max_episode_steps=limit, every=every)
        episodes = [record(episode, EPISODES) for episode in range(EPISODES)]
        # The front wheel, east and north of the goal.
        found[operator] = [_thinned(one.outcome, float(one.steps[-1] * DT), one.states[6], one.states[7]) for one in episodes]
    how = f"actiongap {__version__}: {POINTS}^6 points, {ITERATIONS} iterations, seed {SEED}, rides from {EPISODES} headings, numba"
    about = {"command": COMMAND, "made": how, "every": EVERY, "distance": DISTANCE, "goal": GOAL_RADIUS, "tenths": TENTHS}
    return {**about, "rides": found}


def _thinned(ending: str, seconds: float, east: Any, north: Any) -> dict[str, Any]:
    """A ride as its first place and the steps from there, in whole tenths of a metre, so that little has to be written."""
    import numpy as np

    places = np.rint(np.stack([east, north]) * TENTHS).astype(int)
    steps = np.diff(places, axis=1, prepend=0)
    return {"ending": ending, "seconds": round(seconds, 2), "east": steps[0].tolist(), "north": steps[1].tolist()}


def main() -> None:
    """Record, and write the file."""
    from actiongap._files import write_text

    text = json.dumps(record_episodes(), separators=(",", ":"))
    # A line for each ride, for whoever looks at what has changed.
    write_text(Path(__file__).with_name("rides.json"), text.replace('{"ending"', '\n{"ending"') + "\n")


if __name__ == "__main__":
    main()
