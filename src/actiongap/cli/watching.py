"""`watch`: a policy as a video."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from actiongap.cli.common import File, Flag, Number, StepProgress, print_json

if TYPE_CHECKING:
    import numpy as np

    from actiongap.envs.renderers import Stage
    from actiongap.planning.rollouts import Ride
    from actiongap.planning.simulator import Domain


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
    """Play one episode with a saved policy or a trained agent and show it as a video, with what it thinks beside it.

    Args:
        policy: The file that plan has saved, or the folder of an agent that train has written.
        out: The video to write, FILE.mp4, with a GIF beside it; or FILE.gif, for that alone. Called as the policy is if not given.
        gif: Write no GIF.
        episode: Which of the episodes, counted from 0.
        episodes: Of how many, among which starts are spread.
        seconds: How long the video may be, 20 if not given; longer rides are shown in a hurry between their start and their end.
        speed: Show all of it at this many times real time instead.
        seed: Which random numbers to use.
        trust: Run the Python that the policy names: a domain or an environment of its author's own.
        json: Print one JSON object.
    """
    import sys

    from actiongap._files import make_directory
    from actiongap.envs.episode_video import edit, ride_frames
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
            stage, ridden, title = _played(policy, seed, trust)
        else:
            stage, ridden, title = _ridden(policy, episode, episodes, seed, speed, trust)
        cut = edit(stage, ridden, seconds=20.0 if seconds is None else seconds, speed=speed)
        frames = ride_frames(stage, ridden, cut, title=title)
        write_video(_counted(frames, len(cut.records), progress), cut.fps, mp4=video, gif=album)
    written = [str(place) for place in (video, album) if place is not None]
    steps = int(ridden.steps[-1])
    if json:
        found = {"steps": steps, "ending": ridden.ending, "seconds": round(cut.seconds, 3)}
        print_json({"policy": str(policy), "video": video and str(video), "gif": album and str(album), **found})
    else:
        print(f"{ridden.ending} after {steps:,} steps: wrote {' and '.join(written)}, {cut.seconds:.0f} s")
    return 0


def _ridden(policy: Path, episode: int, episodes: int, seed: int, speed: float | None, trust: bool) -> tuple[Domain, Ride, str]:
    """An episode of what plan has saved."""
    from actiongap._files import check_trusted
    from actiongap.envs.episode_video import recorded_every
    from actiongap.envs.simulators import load_domain
    from actiongap.planning.policy import check_policy, load_policy
    from actiongap.planning.rollouts import ride

    loaded = load_policy(policy)
    try:
        check_trusted(loaded.domain, trust)
    except ValueError as error:
        raise ValueError(f"{policy}: {error}") from None
    domain = load_domain(loaded.domain)
    check_policy(loaded, domain)
    ridden = ride(domain, loaded.grid, loaded.q, episode, episodes, seed=seed, every=recorded_every(domain, speed))
    return domain, ridden, f"{domain.name}, {loaded.operator}"


def _played(folder: Path, seed: int, trust: bool) -> tuple[Stage, Ride, str]:
    """An episode of an agent that train has made."""
    from actiongap.lab.agents import load_trained, play

    agent = load_trained(folder, trust=trust)
    stage, ridden = play(agent, seed)
    return stage, ridden, f"{agent.spec.problem}, {agent.label}"


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
