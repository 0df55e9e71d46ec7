"""Small tables for notebooks: HTML without scripts, colors or external resources, readable on light and dark backgrounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(rows: Iterable[Sequence[object]], headings: Sequence[object] = (), *, title: object = "", note: object = "") -> str:
    """Return a table as HTML, for `_repr_html_`: a title above it, a note below it. All text is escaped.

    Examples
    --------
    >>> table([("al:0.9", "< 1")], ["operator", "gap"])  # doctest: +ELLIPSIS
    '<div><table ...<th ...>operator</th>...<td ...>&lt; 1</td>...</table></div>'
    """
    head = f"<thead><tr>{_cells('th', headings)}</tr></thead>" if headings else ""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    above, below = (f"<div>{escape(str(text))}</div>" if text != "" else "" for text in (title, note))
    return f'<div>{above}<table style="border-collapse:collapse">{head}<tbody>{body}</tbody></table>{below}</div>'


def _cells(tag: str, values: Sequence[object]) -> str:
    return "".join(f'<{tag} style="text-align:right;padding:0.1em 0.6em">{escape(str(value))}</{tag}>' for value in values)
