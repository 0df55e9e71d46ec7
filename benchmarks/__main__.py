"""Run one benchmark: `python -m benchmarks finite|grid|deep|atari`, from the root of the repository."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

import tyro
from rich.console import Console
from tyro.conf import FlagCreatePairsOff, Positional, arg

from actiongap._progress import StepProgress
from actiongap.cli.common import Flag, print_json
from benchmarks import Measurement, as_json, render


def bench(
    what: Annotated[Positional[Literal["finite", "grid", "deep", "atari"]], arg(metavar="WHAT")],
    scale: Literal["quick", "full"] = "full",
    games: Annotated[tuple[str, ...], arg(metavar="GAME ...", help_behavior_hint="")] = (),
    json: Flag = False,
) -> int:
    """Measure speed relative to other libraries, side by side, with the floor that memory bandwidth sets.

    Args:
        what: finite: sweeps and solutions of finite MDPs; grid: sweeps of the bicycle by the grid planner; deep: training on MinAtar;
            atari: training on Atari 2600 games.
        scale: quick takes seconds and only tests the benchmark; the targets are for full.
        games: Atari games to train on instead of the default ones, such as breakout qbert.
        json: Print one JSON list.
    """
    if games and what != "atari":
        raise ValueError(f"--games is an option of the atari benchmark: remove it from {what}")
    with StepProgress(what) as progress:
        measurements = _measure(what, games)(scale, progress=progress)
    if json:
        print_json(as_json(measurements))
    else:
        render(measurements, Console())
    return 0


def _measure(what: str, games: tuple[str, ...]) -> Callable[..., list[Measurement]]:
    """Import the libraries of a benchmark and return its function."""
    if what == "finite":
        from benchmarks.finite import bench_finite

        return bench_finite
    if what == "grid":
        from benchmarks.grid import bench_grid

        return bench_grid
    if what == "deep":
        from benchmarks.deep import bench_deep

        return bench_deep
    from benchmarks.atari import bench_atari

    return partial(bench_atari, games=games)


def main(arguments: list[str] | None = None) -> int:
    """Parse the arguments and run a benchmark; invalid input prints one sentence and returns exit code 2.

    Examples
    --------
    >>> main(["grid", "--games", "pong"])
    2
    """
    try:
        return tyro.cli(bench, prog="python -m benchmarks", args=arguments, config=(FlagCreatePairsOff,))
    except ValueError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
