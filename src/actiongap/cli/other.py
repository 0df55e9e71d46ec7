"""`demo`: the action gap by hand, on one page.

`doctor` and `bench`: what works here, and how fast.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from actiongap.cli.common import Flag, StepProgress, print_json


def demo(
    out: Annotated[Path, arg(aliases=["-o"], metavar="FILE")] = Path("demo.html"),
    open: Flag = True,
    json: Flag = False,
) -> int:
    """Write a page on which to turn the knobs of every operator and watch gaps, mistakes and bicycles; and open it.

    Args:
        out: The page to write, one file that needs no network.
        open: Only write it.
        json: Print one JSON object.
    """
    from actiongap._files import write_text
    from actiongap.demo.page import render_demo

    if out.suffix != ".html" or not out.parent.is_dir():
        raise ValueError(f"{out}: --out takes the name of a .html file in a folder that exists")
    write_text(out, render_demo())
    opened = open and _opened(out.resolve().as_uri())
    if json:
        print_json({"page": str(out)})
    else:
        print(f"The page is in {out}{', and in your browser' if opened else ': open it in a browser'}.")
    return 0


def _opened(address: str) -> bool:
    """Whether a browser took the address. One that would take over the terminal is not asked."""
    import webbrowser

    has_screen = sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    with contextlib.suppress(Exception):
        return has_screen and webbrowser.open(address)
    return False


def doctor(json: Flag = False) -> int:
    """Try everything this installation should be able to do, and say how to mend what is missing.

    Args:
        json: Print one JSON object.
    """
    from rich.console import Console

    from actiongap.doctor import as_json, examine, healthy, render

    with StepProgress("doctor") as progress:
        findings = examine(progress=progress)
    if json:
        print_json(as_json(findings))
    else:
        render(findings, Console())
    return 0 if healthy(findings) else 1


def bench(
    what: Annotated[Positional[Literal["finite", "grid", "deep", "atari"]], arg(metavar="WHAT")] = "finite",
    scale: Literal["quick", "full"] = "full",
    games: Annotated[tuple[str, ...], arg(metavar="GAME ...", help_behavior_hint="")] = (),
    json: Flag = False,
) -> int:
    """Measure speed as ratios, side by side in one run, with the floor that memory sets.

    Args:
        what: finite, sweeps and solutions of finite MDPs; grid, sweeps of the bicycle by the grid planner; deep, training of deep agents;
            atari, training on Atari 2600 games.
        scale: quick takes seconds and means little; full is what the targets are about.
        games: Other Atari games to train on than those of the targets, such as breakout qbert.
        json: Print one JSON list.
    """
    from rich.console import Console

    from actiongap.bench import as_json, render

    if games and what != "atari":
        raise ValueError(f"--games are those of bench atari: leave them out of bench {what}")
    if what == "finite":
        from actiongap.bench.finite import bench_finite as measure
    elif what == "grid":
        from actiongap.bench.grid import bench_grid as measure
    elif what == "deep":
        from actiongap.bench.deep import bench_deep as measure
    else:
        from actiongap.bench.atari import bench_atari

        measure = partial(bench_atari, games=games)
    with StepProgress(f"bench {what}") as progress:
        measurements = measure(scale, progress=progress)
    if json:
        print_json(as_json(measurements))
    else:
        render(measurements, Console())
    return 0
