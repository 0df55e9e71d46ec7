"""`watch`: a policy as a video.

`probe`: what trained agents think of the same states, which one of them plays through.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from actiongap.cli.common import File, Flag, Number, StepProgress, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from actiongap.envs.atari import AtariGame
    from actiongap.envs.functional import FunctionalEnv
    from actiongap.envs.renderers import RenderedEnv
    from actiongap.lab.agents import Trained
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
    """FunctionalEnvState one episode with a saved policy or a trained agent and show it as a video, with what it thinks beside it.

    Args:
        policy: The file that plan has saved, or the folder of an agent that train has written.
        out: The video to write, FILE.mp4, with a GIF beside it; or FILE.gif, for that alone. Called as the policy is if not given.
        gif: Write no GIF.
        episode: Which of the episodes, counted from 0.
        episodes: Of how many, among which starts are spread.
        seconds: How long the video may be, 20 if not given; longer rides are shown in a hurry between their start and their end.
        speed: Show all of it at this many times real time instead.
        seed: Which random numbers to use.
        trust: Run the Python that the policy names: a simulator or an environment of its author's own.
        json: Print one JSON object.
    """
    import sys

    from actiongap._files import make_directory
    from actiongap.envs.episode_video import episode_frames, select_frames
    from actiongap.render.video import NO_MP4, makes_mp4, write_video

    video, album = _places(out or Path(f"{_name(policy)}.mp4"), gif)
    if seconds is not None and speed is not None:
        raise ValueError("--seconds and --speed are two ways to say how fast: give one of them")
    if not policy.exists():
        raise ValueError(f"{policy}: no such file; give one that plan has saved, or the folder of an agent that train has written")
    if not 0 <= episode < episodes:
        raise ValueError(f"there is no episode {episode} among {episodes}: they are counted from 0")
    if video is not None and not makes_mp4():
        if album is None:
            raise ValueError(NO_MP4)
        print(f"note: only the GIF is written: {NO_MP4}", file=sys.stderr)
        video = None
    for place in (video, album):
        if place is not None:
            make_directory(place.parent)
    with StepProgress("watch") as progress:
        progress("playing", 0.0)
        if policy.is_dir():
            env, recorded, title = _play(policy, seed, trust)
        else:
            env, recorded, title = _record(policy, episode, episodes, seed, speed, trust)
        selection = select_frames(env, recorded, seconds=20.0 if seconds is None else seconds, speed=speed)
        frames = episode_frames(env, recorded, selection, title=title)
        write_video(_counted(frames, len(selection.indices), progress), selection.fps, mp4=video, gif=album)
    written = [str(place) for place in (video, album) if place is not None]
    steps = int(recorded.steps[-1])
    if json:
        found = {"steps": steps, "ending": recorded.outcome, "seconds": round(selection.seconds, 3)}
        print_json({"policy": str(policy), "video": video and str(video), "gif": album and str(album), **found})
    else:
        print(f"{recorded.outcome} after {steps:,} steps: wrote {' and '.join(written)}, {selection.seconds:.0f} s")
    return 0


def _record(policy: Path, episode: int, episodes: int, seed: int, speed: float | None, trust: bool) -> tuple[Simulator, Episode, str]:
    """An episode of what plan has saved."""
    from actiongap._files import check_trusted
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
    recorded = record_episode(simulator, loaded.grid, loaded.q, episode, episodes, seed=seed, every=record_interval(simulator, speed))
    return simulator, recorded, f"{simulator.name}, {loaded.operator}"


def _play(folder: Path, seed: int, trust: bool) -> tuple[RenderedEnv, Episode, str]:
    """An episode of an agent that train has made."""
    from actiongap.lab.agents import load_trained, play

    agent = load_trained(folder, trust=trust)
    env, recorded = play(agent, seed)
    return env, recorded, f"{agent.spec.env}, {agent.label}"


def _name(policy: Path) -> str:
    """What a video is called: names of agents have dots in them, so only the ending of a file of ours goes."""
    name = policy.absolute().name
    return name.removesuffix(".npz") or name


def _places(out: Path, gif: bool) -> tuple[Path | None, Path | None]:
    """Where the MP4 and the GIF go."""
    if out.suffix not in (".mp4", ".gif"):
        raise ValueError(f"{out}: --out takes the name of an .mp4 or a .gif file")
    if out.suffix == ".gif" and not gif:
        raise ValueError(f"{out} is a GIF, and --no-gif says to write none: give one of them")
    return (None if out.suffix == ".gif" else out), (out.with_suffix(".gif") if gif else None)


def _counted(frames: Iterator[np.ndarray], total: int, progress: StepProgress) -> Iterator[np.ndarray]:
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
    """Show V(x) and the action gap of trained agents in the same states, which one of them plays through: the paper's probe figure.

    Args:
        runs: Folders of agents, or of studies of agents of one game.
        along: The agent that plays; the first that learned with Bellman's operator if not given.
        steps: How many steps it plays, game after game; on Atari at most, since one game is played and no more.
        window: Over how many steps what agents think is smoothed.
        seed: Which random numbers it plays with.
        trust: Run the Python that the runs name: an environment of its author's own.
        out: The page to write; probe.html if nothing else is asked for.
        json: Print one JSON object for each agent, a line each, with its values and gaps, smoothed.
    """
    from actiongap.dqn.probe import probe as ask
    from actiongap.dqn.probe import record, smoothed
    from actiongap.lab.agents import load_trained

    if steps < 1 or window < 1:
        raise ValueError(f"--steps is {steps} and --window {window}: both must be 1 or more")
    with StepProgress("probe") as progress:
        progress("reading agents", 0.0)
        agents = _agents(runs, trust)
        bellman = next((agent for agent in agents if agent.spec.operator == "bellman"), agents[0])
        guide = load_trained(along, trust=trust) if along else bellman
        game = _game_of([*agents, guide])
        progress("playing", 0.2)
        observations = record(guide.dqn, game, guide.parameters, seed, steps)
        progress("asking", 0.5)
        found = [ask(agent.dqn, [agent.parameters], observations) for agent in agents]
        values, gaps = ([smoothed(one[k], window)[0] for one in found] for k in (0, 1))
    if json:
        for agent, value, gap in zip(agents, values, gaps, strict=True):
            asked = {"env": agent.spec.env, "operator": agent.spec.operator, "seed": agent.spec.seed}
            print_json({**asked, "value": value.tolist(), "action_gap": gap.tolist()})
    if out is not None or not json:
        page = out or Path("probe.html")
        _write(page, agents, guide, values, gaps, window)
        if not json:
            print(f"{len(agents)} agents along {len(observations):,} steps of {guide.label}: wrote {page}")
    return 0


def _agents(runs: Sequence[Path], trust: bool) -> list[Trained]:
    """The agents among folders of runs and of studies, those of a study by operator and seed; those that cannot be read are named."""
    from actiongap.lab.agents import is_trained, load_trained

    found: list[Trained] = []
    problems: list[str] = []
    for run in runs:
        study: list[Trained] = []
        for folder in [run] if is_trained(run) else filter(is_trained, run.glob("runs/*")):
            try:
                study.append(load_trained(folder, trust=trust))
            except ValueError as error:
                problems.append(str(error))
        found += sorted(study, key=lambda agent: (agent.spec.operator, agent.spec.seed))
    if not found:
        raise ValueError(problems[0] if problems else "there is no agent in what was given: give folders that actiongap train has written")
    for problem in problems:
        print(f"note: left out: {problem}", file=sys.stderr)
    return found


def _game_of(agents: Sequence[Trained]) -> FunctionalEnv | AtariGame:
    from actiongap.envs.gym import GymEnv
    from actiongap.envs.registry import load_environment

    envs = {agent.spec.env for agent in agents}
    if len(envs) > 1:
        raise ValueError(f"these agents play different games, {' and '.join(sorted(envs)[:2])}: probe those of one game")
    game = load_environment(envs.pop())
    if isinstance(game, GymEnv):
        raise ValueError(f"games of gym/{game.name} are not recorded: probes are for minatar/ and atari/ games")
    return game


def _write(page: Path, agents: Sequence[Trained], guide: Trained, values: Sequence, gaps: Sequence, window: int) -> None:
    from actiongap._files import make_directory, write_text
    from actiongap.report.html import render
    from actiongap.report.page import Chart, Page, Section, Series

    played = "one game" if guide.spec.env.startswith("atari/") else "games, one after the other,"

    def chart(title: str, rows: Sequence) -> Chart:
        lines = tuple(Series(agent.label, tuple(range(len(row))), tuple(row.tolist())) for agent, row in zip(agents, rows, strict=True))
        note = f"Along {len(rows[0]):,} steps of {played} of {guide.label}, smoothed over {window} steps."
        return Chart(title, "step", title, lines, note)

    section = Section(f"What agents think: {guide.spec.env}", (chart("V(x)", values), chart("action gap", gaps)))
    write_text(make_directory(page.parent) / page.name, render(Page("Probes", (section,))))
