"""The content of a report: a page has sections, a section has blocks, and a block is a chart, table, picture, prose or choice.

A page describes content, not layout: `actiongap.reporting.html` renders it as one HTML file, and
`actiongap.reporting.figures` as figures for print. Every block with numbers can have a `Provenance`: the exact command behind it, and the
system that ran it.

A missing number is `None`; a number that is not finite is shown as missing. Inconsistent blocks (a row of three cells under four columns, a
band with fewer points than its line) raise when they are created, not when they are drawn.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from actiongap.lab.statistics import Estimate

Cell: TypeAlias = "str | int | float | Estimate | None"
"""The value of a table cell. Booleans are shown as yes and no; an estimate is shown with its interval and n, and sorts by its value."""

MEDIA = ("image/svg+xml", "image/png", "image/gif", "video/mp4")
"""Media types of pictures."""


@dataclass(frozen=True)
class Provenance:
    """The exact command behind a figure, and the system that ran it."""

    command: str
    system: str
    """Versions and machine, such as "actiongap 0.1.0, Python 3.11.7, numpy 2.4.6, Linux x86_64, 2 cores"."""
    date: str


@dataclass(frozen=True)
class Series:
    """One line of a chart, with a band around it if `low` and `high` are given.

    Examples
    --------
    >>> Series("al:0.9", x=(0, 1), y=(0.5, None)).name
    'al:0.9'
    >>> Series("al:0.9", x=(0, 1), y=(0.5,))
    Traceback (most recent call last):
    ValueError: the series 'al:0.9' has 2 values of x and 1 of y: give the same number of each, with None for missing values
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] | None = None
    high: tuple[float | None, ...] | None = None
    n: int | None = None
    """Number of runs."""

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise ValueError(f"the series {self.name!r} has only one of low and high: give both, or neither")
        for name, values in (("y", self.y), ("low", self.low), ("high", self.high)):
            if values is not None and len(values) != len(self.x):
                counts = f"{len(self.x)} values of x and {len(values)} of {name}"
                raise ValueError(f"the series {self.name!r} has {counts}: give the same number of each, with None for missing values")


@dataclass(frozen=True)
class Chart:
    """Lines over a common x-axis."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    note: str = ""
    """What the lines and the bands show."""
    log_x: bool = False
    log_y: bool = False
    source: Provenance | None = None
    dots: bool = False
    """Whether to mark every point, for series of few points."""


class Interval(NamedTuple):
    """A value with its interval. If its ends are not finite, no interval is shown."""

    name: str
    value: float
    low: float
    high: float
    n: str
    """Sample size in words, such as "10 runs of 5 tasks"."""


@dataclass(frozen=True)
class Intervals:
    """A dot with an interval for each agent, in rows."""

    title: str
    x_label: str
    rows: tuple[Interval, ...]
    note: str = ""
    source: Provenance | None = None


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns.

    Examples
    --------
    >>> Table("Scores", ("game", "score"), (("Pong",),))
    Traceback (most recent call last):
    ValueError: row 1 of the table 'Scores' has 1 cell under 2 columns: give a cell for every column, None if it is missing
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    source: Provenance | None = None

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.columns):
                counts = f"{_count(row, 'cell')} under {_count(self.columns, 'column')}"
                raise ValueError(
                    f"row {number} of the table {self.title!r} has {counts}: give a cell for every column, None if it is missing"
                )


@dataclass(frozen=True)
class Picture:
    """An image or a video.

    Examples
    --------
    >>> Picture("The cake", b"", "text/html", alt="A cake")
    Traceback (most recent call last):
    ValueError: a picture cannot be 'text/html': use image/svg+xml, image/png, image/gif or video/mp4
    """

    title: str
    data: bytes
    media_type: str
    alt: str
    """Alternative text: what the picture shows."""
    note: str = ""
    source: Provenance | None = None

    def __post_init__(self) -> None:
        if self.media_type not in MEDIA:
            raise ValueError(f"a picture cannot be {self.media_type!r}: use {', '.join(MEDIA[:-1])} or {MEDIA[-1]}")


@dataclass(frozen=True)
class Prose:
    """Paragraphs of plain text, with blank lines between them."""

    text: str


@dataclass(frozen=True)
class Choice:
    """Selectors, one per axis, and the block for each combination of values.

    Examples
    --------
    >>> Choice("Gaps", ("env",), ((("cake",), Table("", (), ())), (("cake",), Table("", (), ()))))
    Traceback (most recent call last):
    ValueError: the choice 'Gaps' has two blocks for ('cake',): keep one of them, or add an axis that distinguishes them
    """

    title: str
    axes: tuple[str, ...]
    """Names of the axes, such as ("env", "quantity")."""
    items: tuple[tuple[tuple[str, ...], Chart | Intervals | Table], ...]
    """A value for each axis, and their block. Combinations may be missing."""

    def __post_init__(self) -> None:
        if not self.axes or not self.items:
            raise ValueError(f"the choice {self.title!r} is empty: give it at least one axis and one item")
        seen = set()
        for key, _ in self.items:
            if len(key) != len(self.axes):
                raise ValueError(f"the choice {self.title!r} has axes {self.axes} and an item at {key}: give a value for every axis")
            if key in seen:
                raise ValueError(
                    f"the choice {self.title!r} has two blocks for {key}: keep one of them, or add an axis that distinguishes them"
                )
            seen.add(key)


Block: TypeAlias = Chart | Intervals | Table | Picture | Prose | Choice


@dataclass(frozen=True)
class Section:
    """Blocks under one heading."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    sections: tuple[Section, ...]
    problems: tuple[str, ...] = ()
    """A sentence for each file that could not be read, shown near the top."""


def _count(things: Sized, noun: str) -> str:
    return f"{len(things)} {noun}{'s' * (len(things) != 1)}"
