"""Report on runs: a web page, figures and TensorBoard event files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from actiongap._files import as_path, as_paths, check_directory, make_directory, write_text
from actiongap._suggest import with_suggestions
from actiongap.api.studies import Runs
from actiongap.lab.records import Records, read_runs
from actiongap.reporting.html import check_page, render
from actiongap.reporting.page import Page
from actiongap.reporting.progress import StepProgress
from actiongap.reporting.summary import sections

PAGE = Path("page.html")
"""The page that is written if no other output is chosen."""


class ReportFiles(NamedTuple):
    """What `report` wrote."""

    runs: Runs
    """The runs that are shown."""
    page: Path | None
    """The web page."""
    figures: tuple[Path, ...] = ()
    """Every chart, as PDF and SVG."""
    events: tuple[Path, ...] = ()
    """TensorBoard event files, one for each run."""


@with_suggestions
def report(
    runs: Runs | Records | str | Path | Iterable[str | Path],
    out: str | Path | None = None,
    figures: str | Path | None = None,
    tensorboard: str | Path | None = None,
    *,
    title: str | None = None,
    progress: bool | None = None,
) -> ReportFiles:
    """Show the results of runs, finished or not, on one self-contained web page.

    Parameters
    ----------
    runs
        Runs, as `Study.run` and `read_runs` return them, or one or more folders of studies or runs.
    out
        HTML page to write; by default page.html if no other output is chosen.
    figures
        Folder to write every chart to, as PDF and SVG.
    tensorboard
        Folder to write TensorBoard event files to.
    title
        Title of the page; by default the names of the folders.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.api.studies import Study
    >>> folder = Path(tempfile.mkdtemp())
    >>> runs = Study("cakes", "q-learning", env="cake", steps=100, rows=2, seeds=2).run(folder)
    >>> report(runs, folder / "cakes.html").page.name
    'cakes.html'
    """
    if isinstance(runs, Runs):
        runs = runs.records
    if not isinstance(runs, Records):
        runs = as_paths(runs, "runs")
        if not runs:
            raise ValueError("there are no runs to report on: give one or more folders of studies or runs")
    page_file = as_path(out, "out") if out is not None else None if figures or tensorboard else PAGE
    folders = [as_path(folder, name) for name, folder in (("figures", figures), ("tensorboard", tensorboard)) if folder is not None]
    for folder in folders:
        check_directory(folder)
    if page_file is not None:
        check_page(page_file)
    with StepProgress("report", progress) as bar:
        records = runs if isinstance(runs, Records) else read_runs(runs, progress=bar)
        # Folders are made before the charts, which take long, and after the runs were found.
        for folder in ([] if page_file is None else [page_file.parent]) + folders:
            make_directory(folder)
        name = title or title_of(records.places)
        page = Page(name, tuple(sections(records, bar)), tuple(records.problems))
        drawn: list[Path] = []
        if page_file is not None:
            write_text(page_file, render(page))
        if figures is not None:
            from actiongap.reporting.figures import write_figures

            drawn = write_figures(page, Path(figures))
        events: list[Path] = []
        if tensorboard is not None:
            from actiongap.reporting.tensorboard import write_events

            events = write_events(records.runs, Path(tensorboard))
    return ReportFiles(Runs(records), page_file, tuple(drawn), tuple(events))


def title_of(folders: Iterable[str | Path]) -> str:
    """Return the names of folders, each once.

    Examples
    --------
    >>> title_of(["runs/lake", "runs/cake", "runs/lake"])
    'lake, cake'
    """
    return ", ".join(dict.fromkeys(Path(folder).resolve().name for folder in folders))
