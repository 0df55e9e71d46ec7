"""Charts as figures for print, and the colors of print and screen.

A name has the same color on the whole page. Names are numbered in order of appearance. The number selects one of eight colors and, from
the ninth name on, a dash pattern. The eight colors are distinguishable with every kind of color blindness, and have a contrast of at
least 3:1 on white paper and on a dark screen.

Equal charts give equal files, byte for byte: files contain no dates, and identifiers do not change between calls. Names come from runs and
may contain anything, so they are never parsed as mathematics or used as paths.
"""

from __future__ import annotations

import io
import re
import textwrap
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from actiongap._files import make_directory, write_bytes
from actiongap.reporting.page import Chart, Choice, Intervals, Page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

LIGHT = ("#2146f5", "#e26b00", "#00a688", "#7d4b8b", "#21201a", "#9a81e3", "#a33900", "#522463")
"""Colors of lines on a light background."""
DARK = ("#626ff7", "#e05d28", "#4bd59e", "#b0708b", "#f4ffed", "#b0a3ff", "#f0dd3e", "#c0d7ff")
"""Colors of the same lines on a dark background."""
DASHES = ((), (6, 3), (2, 2), (8, 3, 2, 3))
"""Dash patterns: lengths of strokes and gaps in points. The first eight names get solid lines."""
MAX_PLOTTED = 1e300
"""Larger numbers are not plotted: the arithmetic of the axes would overflow."""


def clean(text: str) -> str:
    r"""Replace characters that files cannot contain (control characters, lone surrogates) by U+FFFD.

    Examples
    --------
    >>> clean("a\x00b\ud800c\n")
    'a\ufffdb\ufffdc\n'
    """
    return re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)


def slug(text: str) -> str:
    """Return a short name for a file or an anchor, of lower-case letters, digits and single hyphens.

    Examples
    --------
    >>> slug("Score on ../Pong/É (n = 3)")
    'score-on-pong-e-n-3'
    >>> slug("日本")
    'untitled'
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "-", plain)[:60].strip("-") or "untitled"


def unique_name(name: str, taken: set[str]) -> str:
    """Return the name, with a number if it is taken, and add it to `taken`.

    Examples
    --------
    >>> taken = set()
    >>> [unique_name(name, taken) for name in ("cake", "cake", "cake-2")]
    ['cake', 'cake-2', 'cake-2-2']
    """
    numbered = (name if number == 1 else f"{name}-{number}" for number in count(1))
    unused = next(candidate for candidate in numbered if candidate not in taken)
    taken.add(unused)
    return unused


def charts(page: Page) -> list[tuple[str, Chart | Intervals]]:
    """Return every chart of a page in reading order, with its title; charts of a `Choice` include the choice in theirs.

    Examples
    --------
    >>> from actiongap.reporting.page import Section
    >>> chart = Chart("Gap", "sweep", "gap", ())
    >>> both = (chart, Choice("More", ("env",), ((("cake",), chart),)))
    >>> [name for name, _ in charts(Page("A page", (Section("Gaps", both),)))]
    ['Gap', 'More cake Gap']
    """
    found: list[tuple[str, Chart | Intervals]] = []
    for block in (block for section in page.sections for block in section.blocks):
        items = block.items if isinstance(block, Choice) else (((), block),)
        for key, item in items:
            if isinstance(item, Chart | Intervals):
                found.append((" ".join([block.title, *key, item.title]) if isinstance(block, Choice) else item.title, item))
    return found


def assign_styles(drawn: Iterable[Chart | Intervals]) -> dict[str, int]:
    """Number the names of series and rows: 0 to 7 are the eight colors, 8 to 15 the same colors dashed, and so on.

    Examples
    --------
    >>> from actiongap.reporting.page import Series
    >>> assign_styles([Chart("", "", "", (Series("al", (), ()), Series("pal", (), ()))), Chart("", "", "", (Series("pal", (), ()),))])
    {'al': 0, 'pal': 1}
    """
    drawn = list(drawn)
    # Lines come first: rows of intervals are labeled directly and do not need distinct colors.
    names = [line.name for chart in drawn if isinstance(chart, Chart) for line in chart.series]
    names += [row.name for chart in drawn if isinstance(chart, Intervals) for row in chart.rows]
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def draw(chart: Chart | Intervals, styles: Mapping[str, int] | None = None) -> Figure:
    """Draw a chart as a Matplotlib figure of one column's width. `styles` are those of the whole page; by default the chart's own.

    Examples
    --------
    >>> from actiongap.reporting.page import Series
    >>> figure = draw(Chart("Gap", "sweep", "gap", (Series("al:0.9", (1, 2, 3), (0.1, None, 0.3)),)))
    >>> figure.axes[0].get_xlabel()
    'sweep'
    """
    return draw_stacked([chart], styles)


def draw_stacked(drawn: Sequence[Chart | Intervals], styles: Mapping[str, int] | None = None) -> Figure:
    """Draw charts below each other as one Matplotlib figure. `styles` are those of the whole page; by default those of these charts.

    Examples
    --------
    >>> figure = draw_stacked([Chart("V", "step", "V", ()), Chart("Gap", "step", "gap", ())])
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['V', 'gap']
    """
    from matplotlib.figure import Figure

    styles = assign_styles(drawn) if styles is None else styles
    heights = [_height(chart) for chart in drawn]
    figure = Figure(figsize=(5.5, sum(heights)), dpi=200, facecolor="white", layout="constrained")
    # One chart is drawn on the figure itself.
    parts: Iterable[FigureBase] = [figure]
    if len(drawn) > 1:
        parts = figure.subfigures(len(drawn), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, chart in zip(parts, drawn, strict=True):
        axes = part.subplots()
        if isinstance(chart, Chart):
            _draw_lines(axes, chart, styles)
        else:
            _draw_intervals(axes, chart, styles)
        title = axes.set_title(_fold(chart.title, 64), loc="left", fontsize=10, pad=8)
        axes.set_xlabel(_fold(chart.x_label, 70), fontsize=9)
        for text in (title, axes.xaxis.label, axes.yaxis.label):
            text.set_parse_math(False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.xaxis.get_offset_text().set_fontsize(8)
        axes.yaxis.get_offset_text().set_fontsize(8)
        axes.set_axisbelow(True)
    return figure


def _height(chart: Chart | Intervals) -> float:
    """Return the height of a chart in inches."""
    return 3.0 + 0.17 * -(-len(chart.series) // _legend_columns(chart)) if isinstance(chart, Chart) else 1.2 + 0.24 * len(chart.rows)


def _draw_lines(axes: Axes, chart: Chart, styles: Mapping[str, int]) -> None:
    handles = []
    xs, ys = (_numbers([value for line in chart.series for value in getattr(line, name)]) for name in "xy")
    if chart.log_x and (xs > 0).any():
        axes.set_xscale("log", nonpositive="mask")
    if chart.log_y and (ys > 0).any():
        # Clip rather than mask, so that a band that reaches zero extends to the edge of the chart.
        axes.set_yscale("log", nonpositive="clip")
    for line in chart.series:
        number = styles[line.name]
        dash = DASHES[number // len(LIGHT) % len(DASHES)]
        style = {"color": LIGHT[number % len(LIGHT)], "lw": 1.4, "ls": (0, dash) if dash else "-"}
        x, y = _numbers(line.x), _numbers(line.y)
        if axes.get_yscale() == "log":
            y = np.where(y > 0, y, np.nan)
        if line.low is not None and line.high is not None:
            axes.fill_between(x, _numbers(line.low), _numbers(line.high), color=style["color"], alpha=0.16, lw=0)
        handles += axes.plot(x, y, **style)
        # A point between two missing values would be invisible without a marker.
        gap = np.concatenate([[True], ~np.isfinite(x + y), [True]])
        axes.plot(*np.where(chart.dots | (gap[:-2] & gap[2:]), [x, y], np.nan), ls="", marker="o", ms=3, color=style["color"])
    if axes.get_yscale() == "linear" and (largest := np.nanmax(np.abs(ys), initial=0.0)) > 0:
        # The y-axis extends beyond the lines by at most their largest |y|: the band of two runs can be ten times as wide.
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, np.nanmin(ys) - 1.04 * largest), min(high, np.nanmax(ys) + 1.04 * largest))
    axes.grid(axis="y", color="#dddddd", lw=0.6)
    axes.set_ylabel(_fold(chart.y_label, 40), fontsize=9)
    if handles:
        # Matplotlib leaves out names that begin with an underscore, so the names are set afterwards.
        placement = {"loc": "outside lower center", "ncols": _legend_columns(chart), "frameon": False, "fontsize": 8}
        legend = axes.figure.legend(handles, ["name"] * len(handles), **placement)
        for text, line in zip(legend.get_texts(), chart.series, strict=True):
            text.set_text(_short(line.name))
            text.set_parse_math(False)


def _legend_columns(chart: Chart) -> int:
    return 2 if any(len(line.name) > 20 for line in chart.series) else 4


def _draw_intervals(axes: Axes, chart: Intervals, styles: Mapping[str, int]) -> None:
    for place, row in enumerate(chart.rows):
        colour = LIGHT[styles[row.name] % len(LIGHT)]
        value, low, high = _numbers((row.value, row.low, row.high))
        axes.plot([low, high], [place, place], color=colour, lw=2, alpha=0.55, solid_capstyle="round")
        axes.plot([value], [place], ls="", marker="o", ms=5, color=colour, mec="white", mew=0.6)
    labels = axes.set_yticks(range(len(chart.rows)), [_short(row.name) for row in chart.rows])
    for label in labels:
        label.label1.set_parse_math(False)
    axes.set_ylim(max(len(chart.rows), 1) - 0.5, -0.5)
    axes.grid(axis="x", color="#dddddd", lw=0.6)
    axes.tick_params(axis="y", length=0)


def _numbers(values: Iterable[float | None]) -> np.ndarray:
    numbers = np.array([np.nan if value is None else float(value) for value in values], dtype=float)
    return np.where(np.abs(numbers) <= MAX_PLOTTED, numbers, np.nan)


def _fold(text: str, width: int) -> str:
    return textwrap.fill(clean(text), width, max_lines=2, placeholder="…")


def _short(text: str) -> str:
    text = " ".join(clean(text).split())
    return text if len(text) <= 28 else text[:27] + "…"


def image(figure: Figure, form: str) -> bytes:
    """Return a figure as the bytes of a file. Equal figures give equal bytes.

    Examples
    --------
    >>> chart = Chart("Gap", "sweep", "gap", ())
    >>> image(draw(chart), "svg") == image(draw(chart), "svg")
    True
    """
    from matplotlib import rc_context

    no_date: dict[str, dict[str, str | None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    data = io.BytesIO()
    with rc_context({"svg.hashsalt": "actiongap", "pdf.fonttype": 42}), warnings.catch_warnings():
        # Characters that the font lacks are drawn as boxes, without a warning: names come from runs.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(data, format=form, metadata=no_date.get(form))
    return data.getvalue()


def write_figures(page: Page, folder: str | Path, forms: tuple[str, ...] = ("pdf", "svg")) -> list[Path]:
    """Write every chart of a page into a folder, in each format, named after its title. Return the files.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.reporting.page import Section
    >>> page = Page("A page", (Section("Gaps", (Chart("Gap / sweep", "sweep", "gap", ()),)),))
    >>> [file.name for file in write_figures(page, tempfile.mkdtemp())]
    ['gap-sweep.pdf', 'gap-sweep.svg']
    """
    folder, drawn = make_directory(folder), charts(page)
    styles = assign_styles(chart for _, chart in drawn)
    files: list[Path] = []
    taken: set[str] = set()
    for title, chart in drawn:
        name = unique_name(slug(title), taken)
        for form in forms:
            files.append(folder / f"{name}.{form}")
            write_bytes(files[-1], image(draw(chart, styles), form))
    return files
