"""Single games: the paper's probe of Q-values, and videos of agents.

For a figure, one finished agent of each of the three operators is selected, with the same seed and game of a preset. The paper probes
agents on Space Invaders, so that game comes first where it was trained.

In a probe, the Bellman agent plays one game with epsilon = 0.05, and all three agents evaluate the states that it visits: V(x), and the
action gap. In a video, the three agents play the same game one after the other; Q-values are shown beside the screen. Both are stored in
the folder, so the page can be rebuilt without the networks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from actiongap._files import write_bytes, write_text
from actiongap.lab.records import RunRecord
from actiongap.paper.agents import MAIN_OPERATORS, Agent, Agents, games_of
from actiongap.paper.atari_runs import ORIGINAL, PRESET_NAMES
from actiongap.paper.parts import Progress, read_json_object
from actiongap.render.video import NO_MP4, makes_mp4, mp4_bytes
from actiongap.reporting.page import Block, Chart, Picture, Prose, Provenance, Series
from actiongap.reporting.summary import provenance_of

PROBED = "space_invaders"
"""The game of the paper's probe."""


class FigureSelection(NamedTuple):
    """Runs that are shown in one figure."""

    preset: str
    game: str
    runs: tuple[RunRecord, ...]
    """One per operator, Bellman first."""

    @property
    def digests(self) -> list[str]:
        """Digests of the runs, which identify their networks."""
        return [run.status.digest for run in self.runs if run.status is not None]

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.preset}-{self.game}"


def select_figures(agents_by_preset: Mapping[str, Agents]) -> list[FigureSelection]:
    """Return one selection per preset in which the three operators have a common finished seed. Original DQN, the paper's, comes first.

    Examples
    --------
    >>> select_figures({})
    []
    """
    found = []
    for preset in sorted(agents_by_preset, key=lambda preset: preset != ORIGINAL):
        agents = agents_by_preset[preset]
        for game in sorted(games_of(agents), key=lambda game: game != PROBED):
            if runs := _runs_with_common_seed(agents, game):
                found.append(FigureSelection(preset, game, runs))
                break
    return found


def _runs_with_common_seed(agents: Agents, game: str) -> tuple[RunRecord, ...]:
    groups = [agents.get(Agent(game, name)) for name in MAIN_OPERATORS]
    done = [{run.seed: run for run in group.runs if run.state == "done"} if group else {} for group in groups]
    seeds = sorted(set.intersection(*map(set, done)))
    return tuple(runs[seeds[0]] for runs in done) if seeds else ()


STEPS = 1000
"""Maximum number of recorded steps."""
WINDOW = 50
"""Steps over which gaps and values are averaged. The paper averages gaps over this window and does not say how it averages values."""
EPSILON = 0.05
SEED = 0
"""Seed of the recorded game."""


class ProbeCurve(NamedTuple):
    """V and action gap of one agent at each step, smoothed."""

    agent: str
    value: tuple[float, ...]
    gap: tuple[float, ...]


def probe_agents(folders: Sequence[Path], along: Path, *, steps: int = STEPS, window: int = WINDOW) -> list[ProbeCurve]:
    """Evaluate V and the action gap of trained agents (run folders) along one game played by the agent in `along`.

    Raises ValueError if a folder holds no agent, or if the game cannot be recorded.
    """
    from actiongap.api.trained import load_trained
    from actiongap.dqn.probe import probe, record, smoothed
    from actiongap.envs.gym import GymEnv
    from actiongap.envs.registry import load_environment

    actor, agents = load_trained(along), [load_trained(folder) for folder in folders]
    game = load_environment(actor.spec.env)
    if isinstance(game, GymEnv):
        raise ValueError(f"{actor.spec.env} cannot be recorded: give agents of atari/ or minatar/ games")
    if others := sorted({agent.spec.env for agent in agents} - {actor.spec.env}):
        raise ValueError(f"an agent of {others[0]} cannot be probed on {actor.spec.env}: give agents of one game")
    seen = record(actor.dqn, game, actor.parameters, SEED, steps, epsilon=EPSILON)
    curves = []
    for agent in agents:
        value, gap = (smoothed(rows, window)[0] for rows in probe(agent.dqn, [agent.parameters], seen))
        curves.append(ProbeCurve(agent.label, *(tuple(float(f"{x:.5g}") for x in row) for row in (value, gap))))
    return curves


def probe_charts(curves: Sequence[ProbeCurve], title: str, note: str, source: Provenance) -> list[Block]:
    """Return charts of action gaps and of values along one game."""

    def chart(what: str, label: str, of: str) -> Chart:
        lines = tuple(Series(curve.agent, tuple(range(len(row := getattr(curve, of)))), row) for curve in curves)
        return Chart(f"{what}, {title}", "step", label, lines, note, source=source)

    return [chart("Action gaps along one game", "best minus second-best Q", "gap"), chart("Values along one game", "V(x)", "value")]


def make_probe(out: Path, selection: FigureSelection, progress: Progress, steps: int = STEPS) -> None:
    """Probe a selection and write the result, unless it is up to date; write the reason if it cannot be probed."""
    file = _probe_file(out, selection)
    stored = read_json_object(file)
    if stored.get("digests") == selection.digests and "agents" in stored:
        return
    progress(f"probing agents on {selection.game}", 0.0)
    folders = [run.folder for run in selection.runs]
    try:
        curves = probe_agents(folders, folders[0], steps=steps)
        record = {"agents": [curve._asdict() for curve in curves], "ended": len(curves[0].value) < steps}
    except ValueError as error:
        record = {"error": str(error)}
    write_text(file, json.dumps({"digests": selection.digests, **record}) + "\n")


def probe_blocks(out: Path, selection: FigureSelection) -> list[Block]:
    """Return the probe charts of a selection, or the reason why there are none."""
    stored, where = read_json_object(_probe_file(out, selection)), f"{selection.game} in {PRESET_NAMES[selection.preset]}"
    if stored.get("digests") != selection.digests:
        return [Prose(f"There is no probe of {where}: actiongap reproduce atari makes it from finished agents.")]
    try:
        # Named by operator, as everywhere on the page, so that colors agree.
        pairs = zip(selection.runs, stored["agents"], strict=True)
        curves = [ProbeCurve(run.agent, tuple(curve["value"]), tuple(curve["gap"])) for run, curve in pairs]
        first, length = selection.runs[0], len(curves[0].value)
        # Older files do not store whether the game ended, and have at most `STEPS` steps.
        ended = stored.get("ended", length < STEPS)
        note = (
            f"Along {'all' if ended else 'the first'} {length:,} steps of one game played by {first.agent} with epsilon = {EPSILON:.0%}. "
            f"Moving average over {WINDOW} steps, which the paper uses for gaps; it does not say how values are averaged. All agents have "
            f"seed {first.seed}."
        )
        note += "" if ended else " The paper shows its game to the end."
        return probe_charts(curves, where, note, provenance_of(selection.runs))
    except (KeyError, TypeError, ValueError):
        return [Prose(f"There is no probe of {where}: {stored.get('error', 'its file cannot be read')}.")]


def _probe_file(out: Path, selection: FigureSelection) -> Path:
    return out / f"probe-{selection.name}.json"


SECONDS = 12.0
"""Length of the video of one agent."""
MAX_VIDEO_STEPS = 3000
"""Steps after which a game is truncated."""


def make_video(out: Path, selection: FigureSelection, progress: Progress, max_steps: int = MAX_VIDEO_STEPS) -> None:
    """Write the video of a selection and its description, unless it is up to date; write the reason if it cannot be made."""
    video, notes = _video_files(out, selection)
    stored = read_json_object(notes)
    if stored.get("digests") == selection.digests and (video.is_file() or not makes_mp4()):
        return
    record: dict[str, object] = {"digests": selection.digests}
    try:
        data, record["games"] = _record_video(selection, progress, max_steps)
        write_bytes(video, data)
    except ValueError as error:
        record["error"] = str(error)
    write_text(notes, json.dumps(record, indent=1) + "\n")


def _record_video(selection: FigureSelection, progress: Progress, max_steps: int) -> tuple[bytes, list[dict[str, object]]]:
    from actiongap.api.trained import load_trained, play
    from actiongap.envs.episode_video import episode_frames, select_frames

    if not makes_mp4():
        raise ValueError(NO_MP4)
    frames, games, fps = [], [], 25
    for index, run in enumerate(selection.runs):
        progress(f"recording {run.agent} on {selection.game}", index / len(selection.runs))
        env, episode = play(load_trained(run.folder), 0, max_steps)
        selected = select_frames(env, episode, seconds=SECONDS)
        frames.append(episode_frames(env, episode, selected, title=f"{selection.game}, {run.agent}"))
        fps = selected.fps
        games.append(
            {"agent": run.agent, "score": float(episode.coordinates[0][-1]), "steps": int(episode.steps[-1]), "outcome": episode.outcome}
        )
    return mp4_bytes(chain(*frames), fps), games


def video_block(out: Path, selection: FigureSelection) -> Block:
    """Return the video of a selection, or the reason why there is none."""
    video, notes = _video_files(out, selection)
    stored, where = read_json_object(notes), f"{selection.game} in {PRESET_NAMES[selection.preset]}"
    if stored.get("digests") != selection.digests:
        return Prose(f"There is no video of {where}: actiongap reproduce atari makes it from finished agents.")
    try:
        clips = [f"{game['agent']}, {game['score']:g} points, {game['outcome']} after {game['steps']:,} steps" for game in stored["games"]]
        data = video.read_bytes()
    except (OSError, KeyError, TypeError, ValueError):
        return Prose(f"There is no video of {where}: {stored.get('error', 'its file cannot be read')}.")
    alt = "An Atari screen beside the Q-values of all actions and the action gap."
    note = f"Greedy play from the same seed, one agent after the other: {'; '.join(clips)}. One game does not show which agent is better."
    return Picture(f"Agents playing {where}", data, "video/mp4", alt, note, provenance_of(selection.runs))


def _video_files(out: Path, selection: FigureSelection) -> tuple[Path, Path]:
    return out / f"video-{selection.name}.mp4", out / f"video-{selection.name}.json"
