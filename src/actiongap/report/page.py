"""The nouns of a report: a page is sections, a section is blocks, a block is a chart, a table, a picture, prose, or a choice between them.

A page says what is to be seen and nothing of how: `actiongap.report.html` makes one HTML file of it and `actiongap.report.figures` makes
figures for print. Every block that shows numbers can carry its `Provenance`, the exact command and environment behind it.

A number that is missing is `None`; one that is not finite is shown as missing. What does not fit together (a row of three cells under four
columns, a band with fewer points than its line) is refused when it is made, not when it is drawn.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from actiongap.lab.statistics import Estimate

Cell: TypeAlias = "str | int | float | Estimate | None"
"""What a table may hold. Booleans are shown as yes and no; an estimate is shown with its interval and n, and sorted by its value."""

MEDIA = ("image/svg+xml", "image/png", "image/gif", "video/mp4")
"""The kinds of picture that a page can show."""


@dataclass(frozen=True)
class Provenance:
    """The exact command and environment behind a figure."""

    command: str
    environment: str
    """Versions and machine, such as "actiongap 0.1.0, Python 3.11.7, numpy 2.4.6, Linux x86_64, 2 cores"."""
    date: str


@dataclass(frozen=True)
class Series:
    """One line of a chart, with a band around it where `low` and `high` are given.

    Examples
    --------
    >>> Series("al:0.9", x=(0, 1), y=(0.5, None)).name
    'al:0.9'
    >>> Series("al:0.9", x=(0, 1), y=(0.5,))
    Traceback (most recent call last):
    ValueError: the series 'al:0.9' has 2 values of x and 1 of y: give as many of each, with None where one is missing.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] | None = None
    high: tuple[float | None, ...] | None = None
    n: int | None = None
    """How many runs are behind it."""

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise ValueError(f"the series {self.name!r} has one edge of a band: give both low and high, or neither.")
        for what, values in (("y", self.y), ("low", self.low), ("high", self.high)):
            if values is not None and len(values) != len(self.x):
                counts = f"{len(self.x)} values of x and {len(values)} of {what}"
                raise ValueError(f"the series {self.name!r} has {counts}: give as many of each, with None where one is missing.")


@dataclass(frozen=True)
class Chart:
    """Lines over a common axis."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    note: str = ""
    """What the line and the band are."""
    log_x: bool = False
    log_y: bool = False
    source: Provenance | None = None
    dots: bool = False
    """Whether every point is marked, as where there are few and the lines between them only join them."""


class Interval(NamedTuple):
    """A point with its interval; ends that are not finite mean that no interval can be given."""

    name: str
    value: float
    low: float
    high: float
    n: str
    """What it was computed from, in words: "10 runs of 5 tasks"."""


@dataclass(frozen=True)
class Intervals:
    """A dot and a whisker for each agent, one below the other."""

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
    ValueError: row 1 of the table 'Scores' has 1 cell under 2 columns: give every column a cell, None where it is missing.
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
                    f"row {number} of the table {self.title!r} has {counts}: give every column a cell, None where it is missing."
                )


@dataclass(frozen=True)
class Picture:
    """A picture or an animation.

    Examples
    --------
    >>> Picture("The cake", b"", "text/html", alt="A cake")
    Traceback (most recent call last):
    ValueError: a picture cannot be 'text/html': use image/svg+xml, image/png, image/gif or video/mp4.
    """

    title: str
    data: bytes
    media_type: str
    alt: str
    """What it shows, in words, for those who do not see it."""
    note: str = ""
    source: Provenance | None = None

    def __post_init__(self) -> None:
        if self.media_type not in MEDIA:
            raise ValueError(f"a picture cannot be {self.media_type!r}: use {', '.join(MEDIA[:-1])} or {MEDIA[-1]}.")


@dataclass(frozen=True)
class Prose:
    """Paragraphs of plain text, with blank lines between them."""

    text: str


@dataclass(frozen=True)
class Choice:
    """Selectors, one an axis, and the block that each choice shows.

    Examples
    --------
    >>> Choice("Gaps", ("env",), ((("cake",), Table("", (), ())), (("cake",), Table("", (), ()))))
    Traceback (most recent call last):
    ValueError: the choice 'Gaps' shows two blocks for ('cake',): keep one of them, or add an axis that tells them apart.
    """

    title: str
    axes: tuple[str, ...]
    """What is chosen, such as ("env", "quantity")."""
    items: tuple[tuple[tuple[str, ...], Chart | Intervals | Table], ...]
    """A value of each axis, and what they show. Not every combination need be there."""

    def __post_init__(self) -> None:
        if not self.axes or not self.items:
            raise ValueError(f"the choice {self.title!r} has nothing to choose from: give it an axis and an item or more.")
        seen = set()
        for key, _ in self.items:
            if len(key) != len(self.axes):
                raise ValueError(f"the choice {self.title!r} has axes {self.axes} and an item at {key}: give a value for every axis.")
            if key in seen:
                raise ValueError(
                    f"the choice {self.title!r} shows two blocks for {key}: keep one of them, or add an axis that tells them apart."
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
    """Sentences about what could not be read, shown near the top."""


def _count(things: Sized, noun: str) -> str:
    return f"{len(things)} {noun}{'s' * (len(things) != 1)}"
