"""Reproduce the paper, or a part of it: run the studies, compute the rest, and write a page that compares its numbers with ours.

    reproduce("bicycle", scale="smoke", out="out/bicycle").page

An interrupted reproduction resumes when it is called again. `estimate_parts` returns what it will cost instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actiongap._files import as_path, check_directory, make_directory, write_text
from actiongap._progress import StepProgress
from actiongap._suggest import choose_from, with_suggestions
from actiongap.api.studies import estimate_cost, run_with_progress
from actiongap.lab.cost import Plan
from actiongap.lab.runner import check_out
from actiongap.lab.study import Study, seed_range
from actiongap.paper.parts import PARTS, SCALES, Part, Scale, check_results, load_part
from actiongap.reporting.html import check_page, render
from actiongap.reporting.page import Page


@dataclass(frozen=True)
class Reproduction:
    """The results of `reproduce`."""

    page: Path
    """The web page."""
    folders: dict[str, Path]
    """The folder of each part."""
    figures: tuple[Path, ...] = ()
    """Every chart, as PDF and SVG, if they were asked for."""
    failed: int = 0
    """Number of runs that failed; calling `reproduce` again retries them."""

    def tables(self) -> Iterator[Any]:
        """Yield the tables of the parts, which `rich` prints in a terminal."""
        for name, folder in self.folders.items():
            yield from load_part(name).tables(folder)


@with_suggestions
def reproduce(
    part: str = "all",
    scale: Scale = "laptop",
    *,
    only: Sequence[str] = (),
    seeds: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    figures: str | Path | None = None,
    workers: int | None = None,
    ray: str | None = None,
    command: str = "",
    progress: bool | None = None,
) -> Reproduction:
    """Reproduce the paper, or a part of it, and write a page that compares its numbers with ours. Call it again to resume.

    Parameters
    ----------
    part
        cake (Figure 1), bicycle (Figures 2, 3 and 6), atari (Figures 4, 5 and 7, and the table of 60 games), minatar (the same on five
        small games), finite (noise on small MDPs), behavior (who chooses the data), scores (the paper's Atari
        table), or all.
    scale
        Size of the studies: smoke takes seconds, laptop minutes on two cores, gpu minutes on a large machine, paper is full size.
    only
        Run only these studies, such as `operators` of the bicycle. The page also shows runs of other studies that are in the folder.
    seeds
        Number of seeds. By default, and at most, those of the scale; calling it again with more of them continues.
    seed
        The first seed.
    out
        Folder to write to; by default out/PART.
    figures
        Folder to write every chart of the page to, as PDF and SVG.
    workers
        Number of worker processes; by default as many as cores and accelerators allow, and at most one per run.
    ray
        Run the studies on the Ray cluster at this address ("auto" finds one on this machine).
    command
        Recorded as the command that ran the studies.
    progress
        Whether to show progress. By default, only of what takes longer than two seconds.

    Examples
    --------
    >>> import tempfile
    >>> found = reproduce("cake", "smoke", out=tempfile.mkdtemp())
    >>> found.page.name, found.failed
    ('page.html', 0)
    """
    folder, parts, studies = _chosen(part, scale, only, seeds, seed, out)
    page = check_page(folder / "page.html")
    for name, (place, found) in parts.items():
        check_results(place, found)
        for study in studies[name]:
            check_out(study, place / study.name)
    # What can fail fails before the studies.
    if figures is not None:
        check_directory(figures)
    failed = 0
    for name, (place, found) in parts.items():
        for study in studies[name]:
            # Use the rates that earlier studies measured.
            measured = [path for other in studies[name] if other is not study and ((path := place / other.name) / "runs").is_dir()]
            outcome = run_with_progress(
                study,
                place / study.name,
                workers=workers,
                ray=ray,
                rates=measured,
                measure=False,
                command=command,
                progress=progress,
            )
            failed += len(outcome.failed)
        with StepProgress(f"reproduce {name}", progress) as bar:
            found.compute(scale, make_directory(place), bar)
    shown = tuple(section for place, found in parts.values() for section in found.sections(place))
    content = Page(f"Increasing the action gap ({part}, {scale} scale)", shown)
    write_text(page, render(content))
    drawn: list[Path] = []
    if figures is not None:
        from actiongap.reporting.figures import write_figures

        with StepProgress("reproduce figures", progress) as bar:
            bar("drawing", 0.0)
            drawn = write_figures(content, figures)
    return Reproduction(page, {name: place for name, (place, _) in parts.items()}, tuple(drawn), failed)


def estimate_parts(
    part: str = "all",
    scale: Scale = "laptop",
    *,
    only: Sequence[str] = (),
    seeds: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    workers: int | None = None,
    ray: str | None = None,
    rates: Sequence[str | Path] = (),
    progress: bool | None = None,
) -> dict[str, Plan]:
    """Estimate the cost of each study of `reproduce`, from the measured speed of the studies in `rates`. The other parameters are its own.

    Examples
    --------
    >>> estimate_parts("scores", "smoke")
    {}
    """
    _, parts, studies = _chosen(part, scale, only, seeds, seed, out)
    # Studies of different parts can have the same name.
    return {
        f"{name} {study.name}" if part == "all" else study.name: estimate_cost(
            study,
            place / study.name,
            workers=workers,
            ray=ray,
            rates=rates,
            progress=progress,
        )
        for name, (place, _) in parts.items()
        for study in studies[name]
    }


def _chosen(
    part: str, scale: Scale, only: Sequence[str], seeds: int | None, seed: int, out: str | Path | None
) -> tuple[Path, dict[str, tuple[Path, Part]], dict[str, list[Study]]]:
    """Return the folder of the page, the chosen parts with their folders, and the studies of each part."""
    seed_range(seed, 1 if seeds is None else seeds)  # raises if one of them is wrong
    if scale not in SCALES:
        raise ValueError(f"unknown scale {scale!r}: {choose_from(scale, SCALES)}")
    if not isinstance(part, str):
        raise TypeError(f"part is {part!r}: {choose_from(part, [*PARTS, 'all'])}")
    folder = Path("out") / part if out is None else as_path(out, "out")
    names = list(PARTS) if part == "all" else [part]
    parts = {name: (folder / name if part == "all" else folder, load_part(name)) for name in names}
    studies = select_studies({name: list(found.studies(scale)) for name, (_, found) in parts.items()}, only)
    if part != "all" and not studies[part] and (seeds is not None or seed):
        raise ValueError(f"{part} has no studies at this scale, and what it computes has fixed seeds: leave out seeds and seed")
    if seeds is not None:
        studies = {name: [study.first(seeds) for study in some] for name, some in studies.items()}
    if seed:
        studies = {name: [study.starting_at(seed) for study in some] for name, some in studies.items()}
    parts = {name: parts[name] for name in studies}
    for path in {place for place, _ in parts.values()} - {folder} | {
        parts[name][0] / study.name for name in studies for study in studies[name]
    }:
        if path.is_symlink():
            raise ValueError(f"{path} is a symbolic link, and results are not written through links: move it away, or choose another --out")
    return folder, parts, studies


def select_studies(studies: dict[str, list[Study]], only: Sequence[str]) -> dict[str, list[Study]]:
    """Select the studies named in `only`, and leave out parts without any. An empty `only` selects all.

    Examples
    --------
    >>> select_studies({"scores": []}, ())
    {'scores': []}
    """
    # Studies of different parts can have the same name.
    known = dict.fromkeys(study.name for some in studies.values() for study in some)
    if unknown := [name for name in only if name not in known]:
        remedy = choose_from(unknown[0], known) if known else "it has none, so leave out --only"
        raise ValueError(f"there is no study {unknown[0]!r} at this scale: {remedy}")
    named = {name: [study for study in some if not only or study.name in only] for name, some in studies.items()}
    return {name: some for name, some in named.items() if some or not only}
