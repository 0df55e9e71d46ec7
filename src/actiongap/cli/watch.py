"""`watch`: record an episode as a video. `probe`: compare the Q-values of trained agents along one trajectory."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from actiongap._files import printable
from actiongap.cli.common import File, Flag, Integer, Number, print_json

if TYPE_CHECKING:
    from actiongap.envs.episode_video import EpisodeVideo


def watch(
    policy: Annotated[Positional[Path], arg(metavar="POLICY")],
    out: Annotated[File, arg(aliases=["-o"])] = None,
    gif: Flag = True,
    operator: Annotated[str | None, arg(metavar="OPERATOR", help_behavior_hint="")] = None,
    seed: Integer = None,
    episode: int = 0,
    episodes: int = 100,
    seconds: Number = None,
    speed: Number = None,
    trust: Flag = False,
    json: Flag = False,
) -> int:
    """Play one episode with a saved policy or a trained agent and write a video of it, with the Q-values next to the image.

    Args:
        policy: A policy file written by plan, or the folder of an agent or a study written by train, or the .safetensors file of an agent.
        out: Video to write: FILE.mp4 (and a GIF beside it), or FILE.gif for a GIF alone. By default named like the policy.
        gif: Do not write a GIF.
        operator: The operator of the agent to watch, if the study has several.
        seed: The seed of the agent to watch, if the study has several. For a policy, seed of the random numbers, by default 0.
        episode: Index of the episode to play. For a policy from 0 to --episodes minus 1, for an agent the seed of the episode.
        episodes: For a policy, number of evenly spaced start states; --episode selects one of them.
        seconds: Maximum length of the video, by default 20. Longer episodes are sped up between their start and their end.
        speed: Play the whole episode at this multiple of real time, in place of --seconds.
        trust: Allow the policy to load Python code: the simulator or environment that it names.
        json: Print one JSON object.
    """
    from actiongap._files import check_writable
    from actiongap.envs.episode_video import check_pace
    from actiongap.render.video import NO_MP4, makes_mp4

    check_pace(seconds, speed)
    if not os.path.exists(policy):
        raise ValueError(f"{policy}: no such file; give a policy file written by plan, or the folder of an agent written by train")
    if episode < 0:
        raise ValueError(f"--episode is {episode}: it must be at least 0")
    mp4_file, gif_file = _video_files(out or Path(f"{_name(policy, operator, seed)}.mp4"), gif)
    if mp4_file is not None and not makes_mp4():
        if gif_file is None:
            raise ValueError(NO_MP4)
        print(f"note: only the GIF is written: {NO_MP4}", file=sys.stderr)
        mp4_file = None
    files = {"mp4": mp4_file, "gif": gif_file}
    for file in filter(None, files.values()):
        check_writable(file)
    pace = {"seconds": seconds, "speed": speed}
    if os.path.isdir(policy) or policy.suffix == ".safetensors":
        video = _watch_agent(policy, operator, seed, episode, trust, files, pace)
    else:
        if not episode < episodes:
            raise ValueError(f"--episode is {episode}: it must be from 0 to {episodes - 1}, one less than --episodes")
        video = _watch_policy(policy, episode, episodes, seed or 0, trust, files, pace)
    if json:
        found = {"steps": video.steps, "outcome": video.outcome, "seconds": round(video.seconds, 3)}
        print_json({"policy": str(policy), "video": mp4_file and str(mp4_file), "gif": gif_file and str(gif_file), **found})
    else:
        written = " and ".join(str(file) for file in (mp4_file, gif_file) if file is not None)
        print(f"{video.outcome} after {video.steps:,} steps: wrote {printable(written)}, {video.seconds:.0f} s")
    return 0


def _watch_agent(
    path: Path, operator: str | None, seed: int | None, episode: int, trust: bool, files: Mapping[str, Path | None], pace: Any
) -> EpisodeVideo:
    """Write a video of a trained agent."""
    from actiongap._files import make_directory
    from actiongap.api.agents import load_agent

    agent = load_agent(path, operator=operator, seed=seed, trust=trust)
    file = files["mp4"] or files["gif"]
    assert file is not None
    make_directory(file.parent)
    return agent.video(file, episode=episode, gif=files["gif"] is not None, **pace, progress=True)


def _watch_policy(
    path: Path, episode: int, episodes: int, seed: int, trust: bool, files: Mapping[str, Path | None], pace: Any
) -> EpisodeVideo:
    """Write a video of a policy that `plan` saved."""
    from actiongap._files import make_directory
    from actiongap.api.policies import load_policy

    loaded = load_policy(path, trust=trust)
    file = files["mp4"] or files["gif"]
    assert file is not None
    make_directory(file.parent)
    options = {"episode": episode, "episodes": episodes, "seed": seed, "gif": files["gif"] is not None, **pace}
    return loaded.video(file, **options, progress=True)


def _name(policy: Path, operator: str | None, seed: int | None) -> str:
    """Return the name of the video: the name of the policy without its suffix, and what selects an agent. Names of agents contain dots."""
    name = policy.absolute().name
    if os.path.isdir(policy) or policy.suffix == ".safetensors":
        chosen = [re.sub(r"[^A-Za-z0-9.+]+", "-", operator)] if operator is not None else []
        chosen += [f"seed-{seed}"] if seed is not None else []
        return "_".join([name.removesuffix(".safetensors"), *chosen])
    return name.removesuffix(".npz") or name


def _video_files(out: Path, gif: bool) -> tuple[Path | None, Path | None]:
    """Return the paths of the MP4 and of the GIF; None for one that is not written."""
    if out.suffix not in (".mp4", ".gif"):
        raise ValueError(f"{out}: --out must be an .mp4 or a .gif file")
    if out.suffix == ".gif" and not gif:
        raise ValueError(f"{out} is a GIF, but --no-gif writes none: leave out --no-gif, or choose an .mp4 file")
    return (None if out.suffix == ".gif" else out), (out.with_suffix(".gif") if gif else None)


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
        out: Page or figure to write (.html, .svg, .pdf or .png); by default probe.html unless --json is given.
        json: Print one JSON object per agent, each on one line, with its averaged values and gaps.
    """
    from actiongap.api.agents import load_agent, load_agents

    agents = load_agents(runs, trust=trust)
    player = load_agent(along, trust=trust) if along else None
    plot = agents.probe(steps, player, window, seed, progress=True)
    if json:
        for agent, value, gap in zip(agents, *(chart.series for chart in plot.charts), strict=True):
            keys = {"env": agent.env, "operator": agent.operator, "seed": agent.seed}
            print_json({**keys, "value": value.y, "action_gap": gap.y})
    if out is not None or not json:
        page = plot.save(out or "probe.html")
        if not json:
            print(f"{len(agents)} agents along {len(plot.charts[0].series[0].x):,} steps: wrote {printable(page)}")
    return 0
