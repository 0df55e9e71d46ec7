"""Results to look at in Python: plots with their data, and tables that print as text and show as HTML in notebooks.

A `Plot` holds the `Chart` objects that pages show. It is drawn by `actiongap.reporting.figures`, and by `actiongap.reporting.html` if it is
saved as a page.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from actiongap._files import as_path, make_directory, write_bytes, write_text
from actiongap._system import needing_extras
from actiongap.reporting.figures import draw_stacked, image
from actiongap.reporting.html import cell_texts, check_page, plain_table, render
from actiongap.reporting.page import Cell, Chart, Page, Section, Series, Table

if TYPE_CHECKING:
    import pandas

FORMS = (".html", ".svg", ".pdf", ".png")
"""The types of files that a plot is saved as."""


@dataclass(frozen=True, eq=False, repr=False)
class Plot:
    """One or more charts below each other, with their data.

    Examples
    --------
    >>> plot = Plot("Gaps", (Chart("Gap on cake", "sweep", "gap", (Series("al:0.9", (1, 2), (0.1, None)),)),))
    >>> plot
    Plot(Gaps: gap of al:0.9)
    >>> plot.data["gap"]["al:0.9"]["y"].tolist()
    [0.1, nan]
    """

    title: str
    charts: tuple[Chart, ...]
    """The charts, as on the pages of `actiongap.report`."""

    @property
    def data(self) -> dict[str, dict[str, dict[str, NDArray[np.float64]]]]:
        """The numbers: `data[quantity][line]` has the arrays `x` and `y`, and `low` and `high` if the line has a band."""
        return {chart.y_label: {line.name: _arrays(line) for line in chart.series} for chart in self.charts}

    def save(self, file: str | Path) -> Path:
        """Write the plot: an interactive page (.html) or a figure (.svg, .pdf, .png)."""
        file = as_path(file, "file")
        if file.suffix not in FORMS:
            raise ValueError(f"{file}: a plot is saved as one of {', '.join(FORMS)}: give it that suffix")
        if file.suffix == ".html":
            check_page(file)
        path = make_directory(file.parent) / file.name
        if file.suffix == ".html":
            write_text(path, render(Page(self.title, (Section(self.title, self.charts),))))
        else:
            write_bytes(path, self._image(file.suffix[1:]))
        return path

    def _image(self, form: str) -> bytes:
        return image(draw_stacked(self.charts), form)

    def _repr_svg_(self) -> str:
        return self._image("svg").decode()

    def _repr_html_(self) -> str:
        # Notebooks prefer HTML to SVG. Identifiers inside several drawings of a notebook do not collide in separate images.
        return f'<img src="data:image/svg+xml;base64,{base64.b64encode(self._image("svg")).decode()}" alt="">'

    def __repr__(self) -> str:
        names = ", ".join(line.name for line in self.charts[0].series) if self.charts else "nothing"
        return f"Plot({self.title}: {' and '.join(chart.y_label for chart in self.charts)} of {names})"


def _arrays(line: Series) -> dict[str, NDArray[np.float64]]:
    columns = {"x": line.x, "y": line.y, "low": line.low, "high": line.high}
    known = {name: values for name, values in columns.items() if values is not None}
    return {name: np.array([np.nan if value is None else value for value in values], float) for name, values in known.items()}


class ResultTable(Sequence[Mapping[str, Cell]]):
    """Rows of named values. Prints as aligned text, and is a table in notebooks.

    Examples
    --------
    >>> table = ResultTable("Scores", ("operator", "agents"), (("bellman", 3), ("al:0.9", 10)))
    >>> print(table)
    operator  agents
    bellman        3
    al:0.9        10
    >>> table[1]["agents"]
    10
    """

    def __init__(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]):
        self._table = Table(title, tuple(columns), tuple(map(tuple, rows)))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self._table.columns

    def __len__(self) -> int:
        return len(self._table.rows)

    def __iter__(self) -> Iterator[Mapping[str, Cell]]:
        for row in self._table.rows:
            yield dict(zip(self.columns, row, strict=True))

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Cell]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Mapping[str, Cell]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Cell] | list[Mapping[str, Cell]]:
        return list(self)[index]

    def __str__(self) -> str:
        texts = [list(self.columns), *cell_texts(self._table)]
        right = [all(not isinstance(row[place], str) for row in self._table.rows) for place in range(len(self.columns))]
        widths = [max(len(row[place]) for row in texts) for place in range(len(self.columns))]
        places = list(zip(widths, right, strict=True))
        aligned = [[f"{text:{'>' if number else '<'}{width}}" for text, (width, number) in zip(row, places, strict=True)] for row in texts]
        return "\n".join("  ".join(row).rstrip() for row in aligned)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return plain_table(self._table)


def to_pandas(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return rows as a data frame of pandas, which is not installed with actiongap.

    Examples
    --------
    >>> from importlib.util import find_spec
    >>> to_pandas([{"step": 1, "score": 0.5}]).shape if find_spec("pandas") else (1, 2)
    (1, 2)
    """
    with needing_extras("a data frame"):
        import pandas
    return pandas.DataFrame(list(rows))
