"""`report`: show the results of runs. `reproduce`: reproduce the paper."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from actiongap.cli.common import File, Flag, Integer, StepProgress, print_json
from actiongap.cli.studies import SweepOptions, estimate, run_study, show_plans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actiongap.lab.study import Study

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

    from actiongap._files import make_directory, write_text
    from actiongap.lab.records import read_runs
    from actiongap.reporting.html import render
    from actiongap.reporting.page import Page
    from actiongap.reporting.summary import sections, summary

    if not runs:
        raise ValueError("RUNS is missing: give one or more folders of studies or runs")
    name = title or ", ".join(folder.resolve().name for folder in runs)
    if watch:
        return _watch(runs, name, port)
    out = Path("page.html") if out is None and not (figures or tensorboard or json) else out
    if out is not None:
        make_directory(out.parent)
    with StepProgress("report") as progress:
        records = read_runs(runs, progress=progress)
        page = Page(name, tuple(sections(records, progress)), tuple(records.problems))
        written: list[str] = []
        if out is not None:
            write_text(out, render(page))
            written.append(str(out))
        if figures is not None:
            from actiongap.reporting.figures import write_figures

            count = len(write_figures(page, make_directory(figures)))
            written.append(f"{count} figures into {figures}")
        if tensorboard is not None:
            from actiongap.reporting.tensorboard import write_events

            write_events(records.runs, make_directory(tensorboard))
            written.append(f"event files into {tensorboard}")
    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    for problem in records.problems[:20]:
        console.print(f"note: {problem}")
    if len(records.problems) > 20:
        console.print(f"... and {len(records.problems) - 20} more, all on the page")
    if json:
        print_json(summary(records))
    else:
        Console(highlight=False, soft_wrap=True, markup=False).print(f"{len(records.runs)} runs: wrote {', '.join(written)}")
    return 0


def reproduce(
    what: Annotated[Positional[Literal["cake", "bicycle", "minatar", "atari", "finite", "scores", "all"]], arg(metavar="WHAT")] = "all",
    scale: Literal["smoke", "laptop", "gpu", "paper"] = "laptop",
    only: Annotated[tuple[str, ...], arg(metavar="STUDY ...", help_behavior_hint="")] = (),
    seeds: Integer = None,
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
        what: cake (Figure 1), bicycle (Figures 2, 3 and 6), atari (Figures 4, 5 and 7, and the table of 60 games), minatar (the same on
            five small games), finite (noise on small MDPs), scores (the paper's Atari table), or all.
        scale: Size of the studies: smoke takes seconds, laptop minutes on two cores, gpu minutes on a large machine, paper is full size.
        only: Run only these studies, such as `operators` of the bicycle. The page also shows runs of other studies that are in the folder.
        seeds: Run only the first N seeds of every study. Run it again with more seeds, or without this option, to continue.
        out: Folder to write to; by default out/WHAT.
        figures: Folder to write every chart of the page to, as PDF and SVG.
        workers: Number of worker processes; by default as many as cores and accelerators allow, and at most one per run.
        ray: Run the studies on the Ray cluster at this address (auto finds one on this machine).
        dry_run: Only print the estimated cost of the studies.
        rates: Folders of earlier studies. --dry-run estimates time from their measured speed.
        json: Print one JSON object: the page, and the folder of each part.
    """
    from actiongap._files import make_directory, write_text
    from actiongap.paper.parts import PARTS, load_part
    from actiongap.reporting.html import render
    from actiongap.reporting.page import Page
    from actiongap.reporting.terminal import output_console

    folder = out or Path("out") / what
    names = list(PARTS) if what == "all" else [what]
    places = {name: folder / name if what == "all" else folder for name in names}
    parts = {name: load_part(name) for name in names}
    studies = _chosen({name: list(part.studies(scale)) for name, part in parts.items()}, only)
    if seeds is not None:
        if seeds < 1:
            raise ValueError(f"--seeds is {seeds}: it must be at least 1")
        studies = {name: [study.first(seeds) for study in some] for name, some in studies.items()}
    parts = {name: parts[name] for name in studies}
    sweeps = {
        name: [(study, SweepOptions(places[name] / study.name, workers, ray, dry_run, rates=rates)) for study in some]
        for name, some in studies.items()
    }
    for path in {*places.values()} - {folder} | {options.out for some in sweeps.values() for _, options in some}:
        if path.is_symlink():
            raise ValueError(f"{path} is a symbolic link, and results are not written through links: move it away, or choose another --out")
    if dry_run:
        # Studies of different parts can have the same name.
        plans = {(name, study.name): estimate(study, options) for name, found in sweeps.items() for study, options in found}
        show_plans({f"{part} {study}" if what == "all" else study: plan for (part, study), plan in plans.items()}, json)
        return 0
    if figures is not None:
        make_directory(figures)  # fails now rather than after the studies
    failed = 0
    for name, part in parts.items():
        for study, options in sweeps[name]:
            # Use the rates that earlier studies measured.
            measured = tuple(other.out for _, other in sweeps[name] if other != options and (other.out / "runs").is_dir())
            failed += len(run_study(study, replace(options, rates=measured), measure=False).failed)
        with StepProgress(f"reproduce {name}") as progress:
            part.compute(scale, make_directory(places[name]), progress)
    shown = tuple(section for name, part in parts.items() for section in part.sections(places[name]))
    page, content = folder / "page.html", Page(f"Increasing the action gap ({what}, {scale} scale)", shown)
    write_text(page, render(content))
    if figures is not None:
        from actiongap.reporting.figures import write_figures

        with StepProgress("reproduce figures") as progress:
            progress("drawing", 0.0)
            write_figures(content, figures)
    if json:
        print_json({"page": str(page), "scale": scale, "failed": failed, "parts": {name: str(places[name]) for name in parts}})
        return 1 if failed else 0
    console = output_console()
    for name, part in parts.items():
        for table in part.tables(places[name]):
            console.print(table)
    if failed:
        console.print(f"{failed} runs failed: the page lists them. Run the same command again to retry them.")
    console.print(f"Wrote {page}.", soft_wrap=True, markup=False)
    return 1 if failed else 0


def _chosen(studies: dict[str, list[Study]], only: Sequence[str]) -> dict[str, list[Study]]:
    """Select the studies named in `only`, and leave out parts without any. An empty `only` selects all."""
    # Studies of different parts can have the same name.
    known = dict.fromkeys(study.name for some in studies.values() for study in some)
    if unknown := [name for name in only if name not in known]:
        remedy = f"choose from {', '.join(known)}" if known else "it has none, so leave out --only"
        raise ValueError(f"there is no study {unknown[0]!r} at this scale: {remedy}")
    named = {name: [study for study in some if not only or study.name in only] for name, some in studies.items()}
    return {name: some for name, some in named.items() if some or not only}


def _watch(runs: Sequence[Path], name: str, port: int | None) -> int:
    from rich.console import Console

    from actiongap.lab.records import read_runs
    from actiongap.reporting.html import render
    from actiongap.reporting.page import Page
    from actiongap.reporting.server import Pages, server
    from actiongap.reporting.summary import sections

    def make(revision: str) -> str:
        try:
            records = read_runs(runs)
            page = Page(name, tuple(sections(records)), tuple(records.problems))
        except ValueError as error:  # no runs yet
            page = Page(name, (), (str(error),))
        return render(page, live=revision)

    with server(Pages(lambda: _fingerprint(runs), make), port or 0) as page_server:
        address = f"http://127.0.0.1:{page_server.server_address[1]}/"
        for place in runs:
            if not place.is_dir():
                Console(stderr=True, highlight=False).print(f"{place} does not exist yet: waiting for it", markup=False)
        Console(highlight=False).print(f"Serving {address} and updating it as the runs proceed. Press Ctrl-C to stop.")
        try:
            page_server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return 0
    return 0


def _fingerprint(runs: Sequence[Path]) -> str:
    """Return a value that changes with the data: a hash of the sizes and times of all metrics and status files."""
    seen = []
    for place in runs:
        for folder, _, files in os.walk(place):
            for file in files:
                if file in ("metrics.jsonl", "status.json"):
                    try:
                        found = os.stat(os.path.join(folder, file))
                    except OSError:
                        continue
                    seen.append((folder, file, found.st_size, found.st_mtime_ns))
    return str(hash(tuple(sorted(seen))))
