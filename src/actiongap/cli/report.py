"""`report`: show the results of runs. `reproduce`: reproduce the paper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from actiongap._files import printable
from actiongap.cli.common import Count, File, Flag, Integer, command_line, print_json
from actiongap.cli.studies import show_plans

if TYPE_CHECKING:
    from collections.abc import Sequence

Folder = Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")]


def report(
    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUNS ...", help_behavior_hint="")],
    out: Annotated[File, arg(aliases=["-o"])] = None,
    figures: Folder = None,
    tensorboard: Folder = None,
    watch: Flag = False,
    port: Integer = None,
    title: Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")] = None,
    json: Flag = False,
) -> int:
    """Show the results of runs, finished or not, on one self-contained web page.

    Args:
        runs: Folders of studies or runs.
        out: HTML page to write; by default page.html if no other output is chosen.
        figures: Folder to write every chart to, as PDF and SVG.
        tensorboard: Folder to write TensorBoard event files to.
        watch: Serve the page on the loopback address and keep it up to date until Ctrl-C.
        port: Port of --watch; by default any free port.
        title: Title of the page.
        json: Print the results as one JSON object.
    """
    from rich.console import Console

    from actiongap.api.reports import report as write_report
    from actiongap.api.reports import title_of
    from actiongap.api.studies import read_runs

    if not runs:
        raise ValueError("RUNS is missing: give one or more folders of studies or runs")
    if watch:
        return _watch(runs, title or title_of(runs), port)
    written: list[str] = []
    if json and not (out or figures or tensorboard):
        shown = read_runs(runs, progress=True)
    else:
        found = write_report(runs, out, figures, tensorboard, title=title, progress=True)
        shown = found.runs
        written += [str(found.page)] * (found.page is not None)
        written += [f"{len(found.figures)} figures into {figures}"] * (figures is not None)
        written += [f"event files into {tensorboard}"] * (tensorboard is not None)
    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    for problem in shown.problems[:20]:
        console.print(f"note: {printable(problem)}")
    if len(shown.problems) > 20:
        console.print(f"... and {len(shown.problems) - 20} more, all on the page")
    if json:
        print_json(shown.as_json())
    else:
        Console(highlight=False, soft_wrap=True, markup=False).print(f"{len(shown)} runs: wrote {printable(', '.join(written))}")
    return 0


def _watch(runs: Sequence[Path], title: str, port: int | None) -> int:
    from rich.console import Console

    from actiongap.reporting.server import pages_of, server

    with server(pages_of(runs, title), port or 0) as page_server:
        address = f"http://127.0.0.1:{page_server.server_address[1]}/"
        for place in runs:
            if not os.path.isdir(place):
                Console(stderr=True, highlight=False).print(f"{printable(place)} does not exist yet: waiting for it", markup=False)
        Console(highlight=False).print(f"Serving {address} and updating it as the runs proceed. Press Ctrl-C to stop.")
        try:
            page_server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return 0
    return 0


def reproduce(
    part: Annotated[
        Positional[Literal["cake", "bicycle", "minatar", "atari", "finite", "behavior", "scores", "all"]], arg(metavar="PART")
    ] = "all",
    scale: Literal["smoke", "laptop", "gpu", "paper"] = "laptop",
    only: Annotated[tuple[str, ...], arg(metavar="STUDY ...", help_behavior_hint="")] = (),
    seeds: Integer = None,
    seed: Count = 0,
    out: Folder = None,
    figures: Folder = None,
    workers: Integer = None,
    ray: Annotated[str | None, arg(metavar="ADDRESS", help_behavior_hint="")] = None,
    dry_run: Flag = False,
    rates: Annotated[tuple[Path, ...], arg(metavar="DIR ...", help_behavior_hint="")] = (),
    json: Flag = False,
) -> int:
    """Reproduce the paper, or a part of it, and write a page that compares its numbers with ours. Run the same command again to resume.

    Args:
        part: cake (Figure 1), bicycle (Figures 2, 3 and 6), atari (Figures 4, 5 and 7, and the table of 60 games), minatar (the same on
            five small games), finite (noise on small MDPs), behavior (who chooses the data), scores (the paper's Atari
            table), or all.
        scale: Size of the studies: smoke takes seconds, laptop minutes on two cores, gpu minutes on a large machine, paper is full size.
        only: Run only these studies, such as `operators` of the bicycle. The page also shows runs of other studies that are in the folder.
        seeds: Number of seeds. By default, and at most, those of the scale; running it again with more of them continues.
        seed: The first seed.
        out: Folder to write to; by default out/PART.
        figures: Folder to write every chart of the page to, as PDF and SVG.
        workers: Number of worker processes; by default as many as cores and accelerators allow, and at most one per run.
        ray: Run the studies on the Ray cluster at this address (auto finds one on this machine).
        dry_run: Only print the estimated cost of the studies.
        rates: Folders of earlier studies. --dry-run estimates time from their measured speed.
        json: Print one JSON object: the page, and the folder of each part.
    """
    from actiongap.paper.reproduce import estimate_parts
    from actiongap.paper.reproduce import reproduce as reproduce_parts
    from actiongap.reporting.terminal import output_console

    options: dict[str, Any] = {"only": only, "seeds": seeds, "seed": seed, "out": out, "workers": workers, "ray": ray, "progress": True}
    if dry_run:
        show_plans(estimate_parts(part, scale, **options, rates=rates), json)
        return 0
    found = reproduce_parts(part, scale, **options, figures=figures, command=command_line())
    if json:
        folders = {name: str(folder) for name, folder in found.folders.items()}
        print_json({"page": str(found.page), "scale": scale, "failed": found.failed, "parts": folders})
        return 1 if found.failed else 0
    console = output_console()
    for table in found.tables():
        console.print(table)
    if found.failed:
        console.print(f"{found.failed} runs failed: the page lists them. Run the same command again to retry them.")
    console.print(f"Wrote {printable(found.page)}.", soft_wrap=True, markup=False)
    return 1 if found.failed else 0
