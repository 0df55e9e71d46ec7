"""Render a page as one self-contained HTML file that works offline.

Names, notes and numbers come from runs and may contain anything, so all of them are escaped. A Content-Security-Policy lists the hashes of
the one script and the one style sheet; the browser runs nothing else. Tables are HTML and need no JavaScript. Charts are JSON beside an
empty SVG, and `assets/page.js` draws them when they scroll into view.

Numbers of charts have six significant digits (whole numbers have all), more than a screen resolves, in a third of the bytes. Numbers of
tables are rounded for display, in the same way down a column, and keep every digit for sorting and for the CSV file.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeGuard

from actiongap._files import check_writable, open_regular, reason
from actiongap.lab.statistics import Estimate
from actiongap.reporting.figures import DARK, DASHES, LIGHT, assign_styles, charts, clean, slug, unique_name
from actiongap.reporting.page import Block, Cell, Chart, Choice, Intervals, Page, Picture, Prose, Provenance, Section, Series, Table

PAGE_BYTES = 4096
"""The head of a page is within its first bytes."""
FILTERED_ROWS = 20
"""Longer tables get a search box and scroll under their headings."""
SHOWN_PROBLEMS = 3
"""More problems than this are collapsed under their count."""
MANY_SERIES = 6
"""Charts with more series than this get buttons that show all or none."""
ALL_OR_NONE = '<button type="button" data-do="all">all</button><button type="button" data-do="none">none</button>'
MISSING = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
CONNECT = "; connect-src 'self'"
CSV_BUTTON = '<button type="button" data-do="csv">CSV</button>'
FILTER = '<input type="search" placeholder="Filter rows" aria-label="Filter rows"><output></output>'


def render(page: Page, live: str | None = None) -> str:
    """Render a page as one HTML file. If `live` is its revision, it polls its server for `/revision` and reloads when that changes.

    Examples
    --------
    >>> text = render(Page("Gaps & <more>", (Section("Prose", (Prose("Hello."),)),)))
    >>> "<h1>Gaps &amp; &lt;more&gt;</h1>" in text and "<p>Hello.</p>" in text
    True
    """
    drawn = [chart for _, chart in charts(page)]
    writer = _Writer(assign_styles(drawn))
    sections = [writer.section(section) for section in page.sections]
    main = f'{_contents(writer.contents)}\n<main id="main">\n{_problems(page.problems)}{"".join(sections)}</main>'
    return document(page.title, main, live=live)


def check_page(file: str | Path) -> Path:
    """Return the path of a page to write. Raises ValueError for a folder, and for a file that is not empty and not a page of ours.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "page.html"
    >>> written = check_page(file).write_text("My page")
    >>> check_page(file)
    Traceback (most recent call last):
    ValueError: ...page.html is a file of something else, not a page of actiongap: choose another name, or move it away
    """
    file = check_writable(file)
    try:
        with open_regular(file) as stream:
            begin = stream.read(PAGE_BYTES)
    except FileNotFoundError:
        return file
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {reason(error)}; choose another name") from None
    except ValueError:
        begin = b"unknown"
    if begin and b'<meta name="referrer" content="no-referrer">' not in begin:
        raise ValueError(f"{file} is a file of something else, not a page of actiongap: choose another name, or move it away")
    return file


def document(title: str, body: str, *, style: str = "", script: str = "", live: str | None = None) -> str:
    """Return an HTML file with the common style around a body that has a `nav` and a `main`. `style` and `script` are appended.

    The body, the style and the script are not escaped, so they must not contain text from runs.

    Examples
    --------
    >>> "<h1>A &amp; B</h1>" in document("A & B", "<nav></nav><main></main>")
    True
    """
    colours = "".join(f"--c{i}:light-dark({light},{dark});" for i, (light, dark) in enumerate(zip(LIGHT, DARK, strict=True)))
    lines = "".join(f".k{i}{{color:var(--c{i})}}" for i in range(len(LIGHT)))
    dashes = "".join(f".d{i}{{stroke-dasharray:{' '.join(map(str, dash))}}}" for i, dash in enumerate(DASHES) if dash)
    style = f":root{{{colours}}}{lines}{dashes}\n{_asset('page.css')}{style}"
    script = _asset("page.js") + script
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; media-src data:; "
        f"base-uri 'none'; form-action 'none'{'' if live is None else CONNECT}"
    )
    status = '<span class="live" role="status">live</span>' if live is not None else ""
    return f"""<!doctype html>
<html lang="en"{"" if live is None else f' data-live="{_text(live)}"'}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="actiongap">
<title>{_text(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
<script>{script}</script>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header><h1>{_text(title)}</h1><div class="status">{status}<button type="button" id="theme">Theme: system</button></div></header>
{body}
</body>
</html>
"""


class _Writer:
    """Render blocks with the styles of the whole page and unique anchors, and collect the table of contents."""

    def __init__(self, styles: Mapping[str, int]) -> None:
        self.styles = styles
        self.contents: list[tuple[str, str, list[tuple[str, str]]]] = []
        self.anchors: set[str] = set()

    def anchor(self, title: str) -> str:
        # The prefix keeps titles from colliding with ids that scripts use.
        return unique_name(f"a-{slug(title)}", self.anchors)

    def section(self, section: Section) -> str:
        anchor = self.anchor(section.title)
        inside: list[tuple[str, str]] = []
        self.contents.append((anchor, section.title, inside))
        blocks = []
        for block in section.blocks:
            if isinstance(block, Prose):
                blocks.append(_prose(block))
                continue
            here = self.anchor(block.title)
            inside.append((here, block.title))
            blocks.append(self.block(block, here, "h3"))
        return f'<section aria-labelledby="{anchor}">\n<h2 id="{anchor}">{_text(section.title)}</h2>\n{"".join(blocks)}</section>\n'

    def block(self, block: Block, anchor: str, level: str) -> str:
        if isinstance(block, Chart):
            return _figure(block, anchor, level, "chart", _log_buttons(block) + CSV_BUTTON, self.chart(block))
        if isinstance(block, Intervals):
            return _figure(block, anchor, level, "intervals", CSV_BUTTON, self.intervals(block))
        if isinstance(block, Table):
            long = len(block.rows) > FILTERED_ROWS
            return _figure(block, anchor, level, "table", (FILTER if long else "") + CSV_BUTTON, _table(block))
        if isinstance(block, Choice):
            return self.choice(block, anchor, level)
        assert isinstance(block, Picture)
        return _figure(block, anchor, level, "picture", "", _picture(block))

    def chart(self, chart: Chart) -> str:
        keys = "".join(
            f'<button type="button" class="key" aria-pressed="true">{_swatch(self.styles[line.name])}<bdi>{_text(line.name)}</bdi>'
            f"{'' if line.n is None else f'<small>n = {line.n}</small>'}</button>"
            for line in chart.series
        )
        keys += ALL_OR_NONE if len(chart.series) > MANY_SERIES else ""
        last = "".join(f"<li><bdi>{_text(line.name)}</bdi>: {_last(line)}</li>" for line in chart.series)
        name = _text(f"{chart.title}: {chart.y_label} against {chart.x_label}")
        return (
            f'<div class="legend" role="group" aria-label="Series">{keys}</div>\n<p class="y label">{_text(chart.y_label)}</p>\n'
            f'<div class="plot" tabindex="0" role="group" aria-label="{name}; arrow keys read the values"><svg aria-hidden="true"></svg>'
            f"<noscript><p>JavaScript draws this chart, and it is switched off. The last values are:</p><ul>{last}</ul></noscript></div>\n"
            f'<p class="x label">{_text(chart.x_label)}</p>\n'
            f'<script type="application/json">{chart_json(chart, self.styles)}</script>\n'
        )

    def intervals(self, block: Intervals) -> str:
        rows = "".join(
            f'<tr{_attributes(value=row.value, low=row.low, high=row.high)}><th scope="row"><bdi>{_text(row.name)}</bdi></th>'
            f'<td class="strip {_style_class(self.styles[row.name])}" aria-hidden="true"></td>'
            f'<td class="number">{_interval(row.value, row.low, row.high)}</td><td class="n"><bdi>{_text(row.n)}</bdi></td></tr>\n'
            for row in block.rows
        )
        heads = (
            f'<th scope="col"><span class="quiet">name</span></th><th scope="col">{_text(block.x_label)}</th>'
            '<th scope="col" class="number"><span class="quiet">value [interval]</span></th><th scope="col" class="n">n</th>'
        )
        return f'<table class="dots"><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table>\n'

    def choice(self, choice: Choice, anchor: str, level: str) -> str:
        selectors, options = "", ""
        for place, axis in enumerate(choice.axes):
            values = dict.fromkeys(key[place] for key, _ in choice.items)
            listed = "".join(f"<option>{_text(value)}</option>" for value in values)
            selectors += f"<label><bdi>{_text(axis)}</bdi> <select>{listed}</select></label>"
        for number, (key, item) in enumerate(choice.items):
            which = " · ".join(f"{axis}: {value}" for axis, value in zip(choice.axes, key, strict=True))
            # Selectors refer to values by index, so names never appear in attributes.
            places = [list(dict.fromkeys(other[place] for other, _ in choice.items)).index(value) for place, value in enumerate(key)]
            options += (
                f'<div class="option{" shown" if number == 0 else ""}" data-key="{" ".join(map(str, places))}">'
                f'<p class="which">{_text(which)}</p>\n{self.block(item, self.anchor(item.title), "h4")}</div>\n'
            )
        title = f'<{level} class="title">{_text(choice.title)}</{level}>'
        return f'<div class="block choice" id="{anchor}">{title}\n<div class="selectors">{selectors}</div>\n{options}</div>\n'


def _figure(block: Chart | Intervals | Table | Picture, anchor: str, level: str, kind: str, tools: str, body: str) -> str:
    note = f'<p class="note">{_text(block.note)}</p>\n' if block.note else ""
    title = f'<{level} class="title">{_text(block.title)}</{level}>'
    head = f'<div class="head"><figcaption>{title}</figcaption><div class="tools">{tools}</div></div>'
    return f'<figure class="block {kind}" id="{anchor}">{head}\n{body}{note}{_source(block.source)}</figure>\n'


def _log_buttons(chart: Chart) -> str:
    buttons = ""
    for axis, initial in (("x", chart.log_x), ("y", chart.log_y)):
        values = [value for line in chart.series for value in getattr(line, axis) if value is not None and math.isfinite(value)]
        if initial or (values and min(values) > 0):
            pressed = "true" if initial else "false"
            buttons += f'<button type="button" data-do="log-{axis}" aria-pressed="{pressed}">log {axis}</button>'
    return buttons


def chart_json(chart: Chart, styles: Mapping[str, int]) -> str:
    """Return the data of a chart as JSON for `page.js`, safe inside a script element.

    Examples
    --------
    >>> text = chart_json(Chart("Gap", "sweep", "gap", (Series("</script>", (1.0, 2.0), (1 / 3, None)),)), {"</script>": 0})
    >>> "<" in text, json.loads(text)["series"]
    (False, [{'name': '</script>', 'n': None, 'look': 0, 'x': 0, 'y': [0.333333, None]}])
    """
    grids = {grid: place for place, grid in enumerate(dict.fromkeys(line.x for line in chart.series))}
    lines = []
    for line in chart.series:
        fields = {"name": clean(line.name), "n": line.n, "look": styles[line.name], "x": grids[line.x]}
        arrays = {"y": line.y, "low": line.low, "high": line.high}
        numbers = "".join(f',"{name}":{_numbers(values)}' for name, values in arrays.items() if values is not None)
        lines.append(_json(fields)[:-1] + numbers + "}")
    labels = {"xLabel": clean(chart.x_label), "yLabel": clean(chart.y_label), "logX": chart.log_x, "logY": chart.log_y, "dots": chart.dots}
    return f'{_json(labels)[:-1]},"x":[{",".join(map(_numbers, grids))}],"series":[{",".join(lines)}]}}'


def _json(value: Any) -> str:
    # ASCII excludes U+2028 and the like. Without these three characters no tag, comment or entity can begin.
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _numbers(values: Iterable[float | None]) -> str:
    return f"[{','.join(map(_number, values))}]"


def _number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "null"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else f"{value:.6g}"


def _last(line: Series) -> str:
    known = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None and math.isfinite(y)]
    return f"{known[-1][1]:.6g} at {known[-1][0]:.6g}" if known else "no values"


def plain_table(table: Table) -> str:
    """Return a table as HTML without scripts and styles, for notebooks.

    Examples
    --------
    >>> plain_table(Table("Scores", ("game", "score"), (("Pong", 21),)))
    '<table><thead><tr><th>game</th><th>score</th></tr></thead><tbody><tr><td>Pong</td><td>21</td></tr></tbody></table>'
    """
    heads = "".join(f"<th>{_text(name)}</th>" for name in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{_text(text)}</td>' for text in row)}</tr>" for row in cell_texts(table))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def cell_texts(table: Table) -> list[list[str]]:
    """Return the cells of a table as plain text.

    Examples
    --------
    >>> cell_texts(Table("Scores", ("game", "score"), (("Pong", 20.5), ("Asterix", None))))
    [['Pong', '20.5'], ['Asterix', '–']]
    """
    return [[_cell_text(cell) for cell in row] for row in table.rows]


def _cell_text(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Estimate):
        known = math.isfinite(cell.low) and math.isfinite(cell.high)
        return str(cell) if known else f"{_fixed(cell.value, None)} (n = {_runs(cell, TIMES)})"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return MISSING if not _finite(cell) else f"{cell:,}" if isinstance(cell, Integral) else _fixed(cell, None)


def _table(table: Table) -> str:
    columns = [_column([row[place] for row in table.rows]) for place in range(len(table.columns))]
    heads = ""
    for name, (numeric, basis, estimates, _) in zip(table.columns, columns, strict=True):
        marks = (' class="number"' if numeric else "") + (" data-estimate" if estimates else "")
        below = f"<small>{_text(basis)}</small>" if basis else ""
        heads += f'<th scope="col" aria-sort="none"{marks}><button type="button"><bdi>{_text(name)}</bdi></button>{below}</th>'
    rows = "".join(f"<tr>{''.join(cells)}</tr>\n" for cells in zip(*(cells for *_, cells in columns), strict=True))
    long = " long" if len(table.rows) > FILTERED_ROWS else ""
    return (
        f'<div class="scroll{long}" tabindex="0" role="region" aria-label="{_text(table.title)}">'
        f'<table class="data"><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table>'
        f"{'' if rows else '<p>No rows.</p>'}</div>\n"
    )


def _column(cells: Sequence[Cell]) -> tuple[bool, str, bool, list[str]]:
    """Return whether a column is numeric, the shared basis of its estimates, whether it has estimates, and its cells as HTML."""
    estimates = [cell for cell in cells if isinstance(cell, Estimate)]
    bases = {_basis(cell) for cell in estimates}
    # If all estimates have the same level and n, show them once, in the heading.
    shared = bases.pop() if len(bases) == 1 and len(estimates) > 1 else ""
    decimals = _decimals([float(cell) for cell in cells if isinstance(cell, Real) and not isinstance(cell, Integral)])
    numeric = not any(isinstance(cell, str | bool) for cell in cells)
    return numeric, shared, bool(estimates), [_cell(cell, numeric, decimals, not shared) for cell in cells]


def _cell(cell: Cell, numeric: bool, decimals: int | None, show_basis: bool) -> str:
    if isinstance(cell, bool):
        cell = "yes" if cell else "no"
    if isinstance(cell, str):
        return f'<td><div class="text">{_text(cell)}</div></td>'
    if isinstance(cell, Estimate):
        basis = f" <small>{_text(_basis(cell))}</small>" if show_basis else ""
        attributes = _attributes(value=cell.value, low=cell.low, high=cell.high) + f' data-n="{_runs(cell, "x")}"'
        return f'<td class="number"{attributes} title="{_text(cell.method)}">{_interval(cell.value, cell.low, cell.high)}{basis}</td>'
    if not _finite(cell):
        return f'<td class="missing{" number" if numeric else ""}">{MISSING}</td>'
    return f'<td class="number"{_attributes(value=cell)}>{cell if isinstance(cell, Integral) else _fixed(cell, decimals)}</td>'


def _finite(value: float | None) -> TypeGuard[float]:
    # Integers are finite, and may be too large to convert to a float.
    return value is not None and (isinstance(value, Integral) or math.isfinite(value))


def _attributes(**numbers: float) -> str:
    exact = {name: value if isinstance(value, Integral) else repr(float(value)) for name, value in numbers.items() if _finite(value)}
    return "".join(f' data-{name}="{value}"' for name, value in exact.items())


def _interval(value: float, low: float, high: float) -> str:
    if not _finite(value):
        return MISSING
    if not (_finite(low) and _finite(high)):
        return f'{_fixed(value, None)} <span class="interval">no interval</span>'
    # A width within rounding counts as zero.
    width = high - low if high - low > 1e-9 * max(abs(low), abs(high)) else 0.0
    decimals = min(10, max(0, 1 - math.floor(math.log10(width)))) if 0 < width < math.inf else None
    return f'{_fixed(value, decimals)} <span class="interval">[{_fixed(low, decimals)}, {_fixed(high, decimals)}]</span>'


def _basis(estimate: Estimate) -> str:
    return f"{100 * estimate.level:.6g}%, n = {_runs(estimate, TIMES)}"


def _runs(estimate: Estimate, times: str) -> str:
    return f"{estimate.n} {times} {estimate.tasks}" if estimate.tasks > 1 else str(estimate.n)


def _decimals(values: Sequence[float]) -> int | None:
    """Return the decimals that show the largest number to five digits; None if the smallest would then have no digit left."""
    sizes = [abs(value) for value in values if math.isfinite(value) and value]
    if not sizes or max(sizes) >= 1e9:
        return None
    needed = max(len(f"{size:.5g}".partition(".")[2]) for size in sizes)
    decimals = min(needed, max(0, 4 - math.floor(math.log10(max(sizes)))))
    return decimals if decimals <= 10 and min(sizes) * 10**decimals >= 1 else None


def _fixed(value: float, decimals: int | None) -> str:
    # Adding zero turns -0.0 into 0.0.
    text = f"{value + 0.0:.5g}" if decimals is None or abs(value) >= 1e9 else f"{round(value, decimals) + 0.0:.{decimals}f}"
    return re.sub(r"e([+-])0*", r"e\1", text)


def _picture(picture: Picture) -> str:
    address = f"data:{picture.media_type};base64,{base64.b64encode(picture.data).decode()}"
    if picture.media_type.startswith("video/"):
        return f'<video controls loop playsinline preload="metadata" src="{address}" aria-label="{_text(picture.alt)}"></video>\n'
    # Never inline SVG: inside an img element it cannot run scripts or load anything.
    return f'<img src="{address}" alt="{_text(picture.alt)}" decoding="async">\n'


def _prose(prose: Prose) -> str:
    return "".join(f"<p>{_text(paragraph)}</p>\n" for paragraph in re.split(r"\n\s*\n", prose.text.strip()))


def _source(source: Provenance | None) -> str:
    if source is None:
        return ""
    parts = ""
    if source.command:
        copy = '<button type="button" data-do="copy">Copy</button>'
        parts += f'<dt>Command</dt><dd class="command"><pre>{_text(source.command)}</pre>{copy}</dd>'
    for name, value in (("System", source.system), ("Date", source.date)):
        parts += f"<dt>{name}</dt><dd>{_text(value)}</dd>" if value else ""
    return f'<details class="source"><summary>How this was made</summary><dl>{parts}</dl></details>\n'


def _contents(sections: Sequence[tuple[str, str, list[tuple[str, str]]]]) -> str:
    items = ""
    for anchor, title, inside in sections:
        below = "".join(f'<li><a href="#{here}">{_text(name)}</a></li>' for here, name in inside)
        items += f'<li><a href="#{anchor}">{_text(title)}</a>{f"<ol>{below}</ol>" if below else ""}</li>\n'
    return f'<nav aria-label="Contents"><details open><summary>Contents</summary><ol>\n{items}</ol></details></nav>'


def _problems(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    listed = "".join(f"<li>{_text(problem)}</li>" for problem in problems)
    count = f"{len(problems)} {'problem' if len(problems) == 1 else 'problems'} while reading"
    folded = len(problems) > SHOWN_PROBLEMS
    inside = (
        f"<details><summary>{count}</summary><ul>{listed}</ul></details>" if folded else f"<p><strong>{count}</strong></p><ul>{listed}</ul>"
    )
    return f'<aside class="problems" aria-label="Problems">{inside}</aside>\n'


def _swatch(number: int) -> str:
    return f'<svg class="swatch {_style_class(number)}" viewBox="0 0 24 8" aria-hidden="true"><path d="M1 4H23"/></svg>'


def _style_class(number: int) -> str:
    return f"k{number % len(LIGHT)} d{number // len(LIGHT) % len(DASHES)}"


def _text(text: str) -> str:
    return html.escape(clean(text))


def _asset(name: str) -> str:
    return (resources.files("actiongap.reporting") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
