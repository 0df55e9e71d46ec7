"""`watch`: record an episode as a video. `probe`: compare the Q-values of trained agents along one trajectory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from actiongap.cli.common import File, Flag, Number, print_json
from actiongap.reporting.progress import StepProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from actiongap.envs.atari import AtariGame
    from actiongap.envs.functional import FunctionalEnv
    from actiongap.envs.renderers import RenderedEnv
    from actiongap.lab.agents import TrainedAgent
    from actiongap.planning.rollouts import Episode
    from actiongap.planning.simulator import Simulator


def watch(
    policy: Annotated[Positional[Path], arg(metavar="POLICY")],
    out: Annotated[File, arg(aliases=["-o"])] = None,
    gif: Flag = True,
    episode: int = 0,
    episodes: int = 100,
    seconds: Number = None,
    speed: Number = None,
    seed: int = 0,
    trust: Flag = False,
    json: Flag = False,
) -> int:
    """Play one episode with a saved policy or a trained agent and write a video of it, with the Q-values next to the image.

    Args:
        policy: A policy file written by plan, or the folder of an agent written by train.
        out: Video to write: FILE.mp4 (and a GIF beside it), or FILE.gif for a GIF alone. By default named like the policy.
        gif: Do not write a GIF.
        episode: Index of the episode to play, from 0 to --episodes minus 1.
        episodes: Number of evenly spaced start states; --episode selects one of them.
        seconds: Maximum length of the video, by default 20. Longer episodes are sped up between their start and their end.
        speed: Play the whole episode at this multiple of real time, in place of --seconds.
        seed: Seed of the random numbers.
        trust: Allow the policy to load Python code: the simulator or environment that it names.
        json: Print one JSON object.
    """
    import sys

    from actiongap._files import make_directory
    from actiongap.envs.episode_video import episode_frames, select_frames
    from actiongap.render.video import NO_MP4, makes_mp4, write_video

    mp4_file, gif_file = _video_files(out or Path(f"{_name(policy)}.mp4"), gif)
    if seconds is not None and speed is not None:
        raise ValueError("--seconds and --speed both set the speed of the video: give one of them")
    if not policy.exists():
        raise ValueError(f"{policy}: no such file; give a policy file written by plan, or the folder of an agent written by train")
    if not 0 <= episode < episodes:
        raise ValueError(f"--episode is {episode}: it must be from 0 to {episodes - 1}, one less than --episodes")
    if mp4_file is not None and not makes_mp4():
        if gif_file is None:
            raise ValueError(NO_MP4)
        print(f"note: only the GIF is written: {NO_MP4}", file=sys.stderr)
        mp4_file = None
    for file in (mp4_file, gif_file):
        if file is not None:
            make_directory(file.parent)
    with StepProgress("watch") as progress:
        progress("playing", 0.0)
        if policy.is_dir():
            env, recorded, title = _play(policy, seed, trust)
        else:
            env, recorded, title = _record(policy, episode, episodes, seed, speed, trust)
        selection = select_frames(env, recorded, seconds=20.0 if seconds is None else seconds, speed=speed)
        frames = episode_frames(env, recorded, selection, title=title)
        write_video(_with_progress(frames, len(selection.indices), progress), selection.fps, mp4=mp4_file, gif=gif_file)
    written = [str(file) for file in (mp4_file, gif_file) if file is not None]
    steps = int(recorded.steps[-1])
    if json:
        found = {"steps": steps, "outcome": recorded.outcome, "seconds": round(selection.seconds, 3)}
        print_json({"policy": str(policy), "video": mp4_file and str(mp4_file), "gif": gif_file and str(gif_file), **found})
    else:
        print(f"{recorded.outcome} after {steps:,} steps: wrote {' and '.join(written)}, {selection.seconds:.0f} s")
    return 0


def _record(policy: Path, episode: int, episodes: int, seed: int, speed: float | None, trust: bool) -> tuple[Simulator, Episode, str]:
    """Record an episode of a policy that `plan` saved, with its simulator and a title."""
    from actiongap._user_code import check_trusted
    from actiongap.envs.episode_video import record_interval
    from actiongap.envs.simulators import load_simulator
    from actiongap.planning.policy import check_policy, load_policy
    from actiongap.planning.rollouts import record_episode

    loaded = load_policy(policy)
    try:
        check_trusted(loaded.env, trust)
    except ValueError as error:
        raise ValueError(f"{policy}: {error}") from None
    simulator = load_simulator(loaded.env)
    check_policy(loaded, simulator)
    recorded = record_episode(simulator, loaded.grid, loaded.table, episode, episodes, seed=seed, every=record_interval(simulator, speed))
    return simulator, recorded, f"{simulator.name}, {loaded.operator}"


def _play(folder: Path, seed: int, trust: bool) -> tuple[RenderedEnv, Episode, str]:
    """Record an episode of an agent that `train` saved, with its environment and a title."""
    from actiongap.lab.agents import load_trained, play

    agent = load_trained(folder, trust=trust)
    env, recorded = play(agent, seed)
    return env, recorded, f"{agent.spec.env}, {agent.label}"


def _name(policy: Path) -> str:
    """Return the name of the video: the name of the policy file without `.npz`. Other suffixes stay: names of agents contain dots."""
    name = policy.absolute().name
    return name.removesuffix(".npz") or name


def _video_files(out: Path, gif: bool) -> tuple[Path | None, Path | None]:
    """Return the paths of the MP4 and of the GIF; None for one that is not written."""
    if out.suffix not in (".mp4", ".gif"):
        raise ValueError(f"{out}: --out must be an .mp4 or a .gif file")
    if out.suffix == ".gif" and not gif:
        raise ValueError(f"{out} is a GIF, but --no-gif writes none: leave out --no-gif, or choose an .mp4 file")
    return (None if out.suffix == ".gif" else out), (out.with_suffix(".gif") if gif else None)


def _with_progress(frames: Iterator[np.ndarray], total: int, progress: StepProgress) -> Iterator[np.ndarray]:
    """Yield the frames and update the progress bar with each."""
    for i, frame in enumerate(frames):
        progress(f"frame {i + 1} of {total}", (i + 1) / total)
        yield frame


def probe(
    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUNS ...", help_behavior_hint="")],
    along: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None,
    steps: int = 1000,
    window: int = 50,
    seed: int = 0,
    trust: Flag = False,
    out: Annotated[File, arg(aliases=["-o"])] = None,
    json: Flag = False,
) -> int:
    """Plot V(x) and the action gap of trained agents along the trajectory of one of them: the paper's probe figure.

    Args:
        runs: Folders of agents or studies, all of the same game.
        along: Folder of the agent that plays; by default the first with the Bellman operator.
        steps: Number of steps to record, over one or more episodes; on Atari at most one game.
        window: Number of steps over which V and the gap are averaged.
        seed: Seed of the games.
        trust: Allow the runs to load Python code: the environments that they name.
        out: HTML page to write; by default probe.html unless --json is given.
        json: Print one JSON object per agent, each on one line, with its averaged values and gaps.
    """
    from actiongap.dqn.probe import probe as evaluate
    from actiongap.dqn.probe import record, smoothed
    from actiongap.lab.agents import load_trained

    if steps < 1 or window < 1:
        raise ValueError(f"--steps is {steps} and --window is {window}: both must be at least 1")
    with StepProgress("probe") as progress:
        progress("reading agents", 0.0)
        agents = _agents(runs, trust)
        bellman = next((agent for agent in agents if agent.spec.operator == "bellman"), agents[0])
        player = load_trained(along, trust=trust) if along else bellman
        game = _game_of([*agents, player])
        progress("playing", 0.2)
        observations = record(player.dqn, game, player.parameters, seed, steps)
        progress("evaluating", 0.5)
        results = [evaluate(agent.dqn, [agent.parameters], observations) for agent in agents]
        values, gaps = ([smoothed(result[k], window)[0] for result in results] for k in (0, 1))
    if json:
        for agent, value, gap in zip(agents, values, gaps, strict=True):
            keys = {"env": agent.spec.env, "operator": agent.spec.operator, "seed": agent.spec.seed}
            print_json({**keys, "value": value.tolist(), "action_gap": gap.tolist()})
    if out is not None or not json:
        page = out or Path("probe.html")
        _write(page, agents, player, values, gaps, window)
        if not json:
            print(f"{len(agents)} agents along {len(observations):,} steps of {player.label}: wrote {page}")
    return 0


def _agents(runs: Sequence[Path], trust: bool) -> list[TrainedAgent]:
    """Load the agents in folders of runs and studies; those of a study in order of operator and seed. Print a note for unreadable ones."""
    from actiongap.lab.agents import is_trained, load_trained

    found: list[TrainedAgent] = []
    problems: list[str] = []
    for run in runs:
        study: list[TrainedAgent] = []
        for folder in [run] if is_trained(run) else filter(is_trained, run.glob("runs/*")):
            try:
                study.append(load_trained(folder, trust=trust))
            except ValueError as error:
                problems.append(str(error))
        found += sorted(study, key=lambda agent: (agent.spec.operator, agent.spec.seed))
    if not found:
        raise ValueError(problems[0] if problems else "there is no agent in RUNS: give folders written by actiongap train")
    for problem in problems:
        print(f"note: skipped: {problem}", file=sys.stderr)
    return found


def _game_of(agents: Sequence[TrainedAgent]) -> FunctionalEnv | AtariGame:
    from actiongap.envs.gym import GymEnv
    from actiongap.envs.registry import load_environment

    envs = {agent.spec.env for agent in agents}
    if len(envs) > 1:
        raise ValueError(f"these agents play different games, {' and '.join(sorted(envs)[:2])}: give agents of one game")
    game = load_environment(envs.pop())
    if isinstance(game, GymEnv):
        raise ValueError(f"probe cannot record gym/{game.name}: give agents of a minatar/ or atari/ game")
    return game


def _write(
    page: Path, agents: Sequence[TrainedAgent], player: TrainedAgent, values: Sequence[np.ndarray], gaps: Sequence[np.ndarray], window: int
) -> None:
    from actiongap._files import make_directory, write_text
    from actiongap.reporting.html import render
    from actiongap.reporting.page import Chart, Page, Section, Series

    games = "one game" if player.spec.env.startswith("atari/") else "successive games"

    def chart(title: str, rows: Sequence[np.ndarray]) -> Chart:
        lines = tuple(Series(agent.label, tuple(range(len(row))), tuple(row.tolist())) for agent, row in zip(agents, rows, strict=True))
        note = f"Along {len(rows[0]):,} steps of {games} played by {player.label}; moving average over {window} steps."
        return Chart(title, "step", title, lines, note)

    section = Section(f"Q-values along a trajectory: {player.spec.env}", (chart("V(x)", values), chart("action gap", gaps)))
    write_text(make_directory(page.parent) / page.name, render(Page("Probes", (section,))))
