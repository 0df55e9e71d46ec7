"""Bicycle episodes of the demo page: eight of each of two policies, subsampled and stored in `episodes.json` beside this module.

    python -m actiongap.interactive.episodes

plans on 8^6 points with both operators, records each policy from eight headings with the same noise, and writes `episodes.json`. This takes
about two minutes on one core. The file states how it was made.
"""

from __future__ import annotations

import json
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

COMMAND = "python -m actiongap.interactive.episodes"
OPERATORS = ("bellman", "consistent")
POINTS, ITERATIONS, SEED = 8, 400, 0
"""The plan: points per axis, number of sweeps, and seed."""
EPISODES, SECONDS, EVERY = 8, 480, 2
"""Number of episodes (one per heading), their maximum length and the interval between recorded states, in seconds."""
TENTHS = 10
"""Units per meter: positions are stored in tenths of a meter."""


def load_episodes() -> dict[str, Any]:
    """Return the recorded episodes of each operator: outcome, seconds, and the path as differences in tenths of a meter.

    Examples
    --------
    >>> recorded = load_episodes()["episodes"]
    >>> [episode["outcome"] for episode in recorded["consistent"]] == ["goal"] * 8
    True
    """
    return json.loads((files("actiongap.interactive") / "episodes.json").read_text(encoding="utf-8"))


def record_episodes() -> dict[str, Any]:
    """Plan and record the episodes that `load_episodes` returns."""
    from actiongap._version import __version__
    from actiongap.api.policies import plan
    from actiongap.envs.bicycle import DISTANCE, DT, GOAL_RADIUS, bicycle
    from actiongap.planning.rollouts import record_episode

    simulator, found = bicycle(), {}
    for operator in OPERATORS:
        policy = plan(simulator, operator, grid=POINTS, iterations=ITERATIONS, episodes=0, seed=SEED, engine="numba")
        limit, every = round(SECONDS / DT), round(EVERY / DT)
        record = partial(record_episode, simulator, policy.grid, policy.table, seed=SEED, max_episode_steps=limit, every=every)
        episodes = [record(episode, EPISODES) for episode in range(EPISODES)]
        # States 6 and 7: position of the front wheel, east and north of the goal.
        found[operator] = [_encode(e.outcome, float(e.steps[-1] * DT), e.states[6], e.states[7]) for e in episodes]
    how = f"actiongap {__version__}: {POINTS}^6 points, {ITERATIONS} iterations, seed {SEED}, episodes from {EPISODES} headings, numba"
    about = {"command": COMMAND, "made": how, "every": EVERY, "distance": DISTANCE, "goal": GOAL_RADIUS, "tenths": TENTHS}
    return {**about, "episodes": found}


def _encode(outcome: str, seconds: float, east: Any, north: Any) -> dict[str, Any]:
    """Encode an episode compactly: its first position and the differences from there, in whole tenths of a meter."""
    import numpy as np

    positions = np.rint(np.stack([east, north]) * TENTHS).astype(int)
    steps = np.diff(positions, axis=1, prepend=0)
    return {"outcome": outcome, "seconds": round(seconds, 2), "east": steps[0].tolist(), "north": steps[1].tolist()}


def main() -> None:
    """Record the episodes and write the file."""
    from actiongap._files import write_text

    text = json.dumps(record_episodes(), separators=(",", ":"))
    # One line per episode, for readable diffs.
    write_text(Path(__file__).with_name("episodes.json"), text.replace('{"outcome"', '\n{"outcome"') + "\n")


if __name__ == "__main__":
    main()
