"""The HTML page as text, the figures as files, and the page in a browser."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import itertools
import json
import math
import re
import threading
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import browser
from actiongap.lab.statistics import Estimate
from actiongap.reporting.figures import DARK, LIGHT, assign_styles, draw, image, slug, unique_name, write_figures
from actiongap.reporting.html import chart_json, render
from actiongap.reporting.page import Chart, Choice, Interval, Intervals, Page, Picture, Prose, Provenance, Section, Series, Table

HOSTILE = (
    "<script>window.pwned = 1</script>",
    "</script><script>window.pwned = 1</script>",
    "</style></title></textarea><img src=x onerror='window.pwned = 1'>",
    '"\' onmouseover="window.pwned = 1" x=\'',
    "<!--<script>",
    "]]>&lt;b&gt;&#60;i&#62;&amp;",
    "line\u2028separator\u2029and more",
    "\u202eright to left\u202c \u200f and \u2066 unclosed",
    "=HYPERLINK('x')",
    "$\\frac{_^%$",
    "_hidden",
    "../../etc/passwd",
    "W" * 3000,
    "日本語 العربية \U0001f370",
    "",
)
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="window.pwned = 1"><script>window.pwned = 1</script></svg>'
SOURCE = Provenance("actiongap solve cake 'al:0.9' && echo <done>", "actiongap 0.1.0, Python 3.11", "2026-11-20")


def estimate(value: float, half: float, n: int = 10, tasks: int = 5) -> Estimate:
    return Estimate(value, value - half, value + half, 0.95, n, tasks, "mean of the middle half")


def sample(word: str = "plain", picture: bytes = SVG) -> Page:
    """Return a page with every kind of block, with `word` wherever text is allowed."""
    lines = (
        Series(f"{word}", (1, 2, 3, 4), (1.0, None, 100.0, 1000.0), (0.5, None, 50.0, 0.0), (2.0, None, 200.0, 2000.0), n=5),
        Series(f"{word} other", (1, 2, 3, 4), (2.0, 3.0, 4.0, math.nan)),
    )
    chart = Chart(word, word, word, lines, note=word, source=Provenance(word or "x", word or "x", word or "x"))
    intervals = Intervals(word, word, (Interval(word, 0.5, 0.4, 0.6, word), Interval("b", 0.7, -math.inf, math.inf, "1")), note=word)
    table = Table(word, (word, "score", "number"), ((word, estimate(1.0, 0.1), -2.5), ("b", None, math.inf), ("c", 3, 7)), note=word)
    long = Table("long", ("name", "value"), tuple((f"row {i}", float(-i)) for i in range(30)))
    choice = Choice(word, (word, "what"), (((word, "chart"), chart), ((word, "table"), table), (("b", "intervals"), intervals)))
    pictures = (Picture(word, picture, "image/svg+xml", word, word), Picture("moving", b"\0", "video/mp4", word))
    blocks = (Prose(f"{word}x\n\nsecond"), chart, intervals, table, long, choice, *pictures)
    return Page(word, (Section(word, blocks), Section("again", (chart,))), problems=(word, "b", "c", "d"))


class Outline(HTMLParser):
    """Tags with the names of their attributes, their values, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.shape: list[tuple[str, tuple[str, ...]]] = []
        self.values: list[tuple[str, str, str]] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self.text = ""
        self.inside: tuple[str, dict[str, str | None]] | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.shape.append((tag, tuple(name for name, _ in attrs)))
        self.values += [(tag, name, value or "") for name, value in attrs]
        self.inside = (tag, dict(attrs)) if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self.shape.append((f"/{tag}", ()))
        self.inside = None

    def handle_comment(self, data):
        self.shape.append(("comment", ()))

    def handle_data(self, data):
        if self.inside:
            self.raw.append((*self.inside, data))
        else:
            self.text += data


# ---- As text ----


@pytest.mark.parametrize("word", HOSTILE, ids=range(len(HOSTILE)))
def test_names_cannot_add_tags_or_attributes(word):
    plain, hostile = Outline(render(sample())), Outline(render(sample(word)))
    # An empty note is left out, and the contents of a paragraph do not change the shape: so only the empty word is compared with itself.
    if word:
        assert hostile.shape == plain.shape
        assert hostile.text.count(word) >= 12
    allowed = {name for _, name, _ in plain.values}
    assert not any(name.startswith("on") or name == "style" for name in allowed)
    for tag, name, value in hostile.values:
        if name in ("src", "href"):
            assert value.startswith(("data:", "#")), (tag, value)
        if name == "id":
            assert re.fullmatch("[a-z0-9-]+", value)


def test_page_refers_to_nothing_outside_itself():
    text = render(sample(picture=PNG), live="1")
    assert not re.search("https?:|//[a-z]", re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE).replace("; //", "").replace("{ //", ""))
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")


def test_policy_allows_one_script_and_one_style_by_hash():
    for live in (None, "1"):
        outline = Outline(render(sample(), live=live))
        policy = next(value for tag, name, value in outline.values if (tag, name) == ("meta", "content") and "default-src" in value)
        rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
        for kind in ("script", "style"):
            (text,) = [text for tag, attributes, text in outline.raw if tag == kind and "type" not in attributes]
            assert rules[f"{kind}-src"] == [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"]
        assert rules["default-src"] == ["'none'"]
        assert rules.get("connect-src") == (["'self'"] if live else None)
        assert rules["img-src"] == rules["media-src"] == ["data:"]


def test_equal_pages_give_equal_bytes():
    assert render(sample()).encode() == render(sample()).encode()
    assert render(sample()) != render(replace(sample(), title="other"))


def test_control_characters_and_surrogates_are_replaced():
    text = render(Page("a\ud800b\x00c\x1b", ()))
    assert "<h1>a\ufffdb\ufffdc\ufffd</h1>" in text
    text.encode()


def test_svg_pictures_are_shown_as_images():
    text = render(sample())
    assert "onload" not in text
    assert f'src="data:image/svg+xml;base64,{base64.b64encode(SVG).decode()}"' in text


def cells(*column) -> list[str]:
    text = render(Page("", (Section("", (Table("", ("c",), tuple((cell,) for cell in column)),)),)))
    return re.findall(r"<td[^>]*>(.*?)</td>", text)


def test_cells():
    plain = [
        re.sub("<[^>]*>", "", cell) for cell in cells(estimate(12.34, 2.0), estimate(0.5, 0.25, n=3, tasks=1), None, math.nan, 7, True)
    ]
    assert plain == ["12.3 [10.3, 14.3] 95%, n = 10 × 5", "0.50 [0.25, 0.75] 95%, n = 3", "–", "–", "7", "yes"]  # noqa: RUF001
    assert cells("<b>") == ['<div class="text">&lt;b&gt;</div>']


def test_an_estimate_without_an_interval_says_so():
    (cell,) = cells(Estimate(0.4, -math.inf, math.inf, 0.95, 1, 1, "one run"))
    assert "no interval" in cell
    assert "inf" not in cell.replace("no interval", "")
    assert cells(replace(estimate(1.0, 0.1), value=math.nan))[0].startswith("–")  # noqa: RUF001


def test_a_basis_that_all_estimates_of_a_column_share_is_in_the_heading():
    table = Table("", ("c",), ((estimate(1.0, 0.1),), (estimate(2.0, 0.1),)))
    assert render(Page("", (Section("", (table,)),))).count("n = 10 × 5") == 1  # noqa: RUF001


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        ((0.5, 12.345, 100.0), ["0.50", "12.35", "100.00"]),
        ((0.924860123, -0.0514620, 1.9), ["0.9249", "-0.0515", "1.9000"]),
        ((1e-7, 1.0), ["1e-7", "1"]),
        ((1e300, 2.0), ["1e+300", "2"]),
        ((-0.0, 0.0), ["0", "0"]),
        ((np.float32(0.25), np.int64(3)), ["0.25", "3"]),
        ((10**400, 1.5), [str(10**400), "1.5"]),
    ],
)
def test_numbers_of_a_column_share_one_form(column, shown):
    assert cells(*column) == shown


def test_tables_keep_every_digit_for_sorting():
    assert f'data-value="{1 / 3!r}"' in render(Page("", (Section("", (Table("", ("c",), ((1 / 3,),)),)),)))


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.text() | st.sampled_from(HOSTILE), st.lists(st.tuples(st.floats(), st.floats() | st.none()), max_size=20))
def test_charts_come_back_from_json(name, points):
    x, y = tuple(x for x, _ in points), tuple(y for _, y in points)
    text = chart_json(Chart("", name, name, (Series(name, x, y, y, y, 3), Series("b", x, y))), {name: 0, "b": 1})
    assert not set("<>&\u2028\u2029") & set(text)
    data = json.loads(text, parse_constant=pytest.fail)
    assert len(data["x"]) == 1
    for given_, back in zip(x + y, data["x"][0] + data["series"][0]["y"], strict=True):
        if given_ is None or not math.isfinite(given_):
            assert back is None
        else:
            assert back == pytest.approx(given_, rel=5.01e-6, abs=0)


def test_whole_numbers_of_charts_are_exact():
    assert "[12345678901]" in chart_json(Chart("", "", "", (Series("a", (12345678901.0,), (0.0,)),)), {"a": 0})


def test_many_problems_are_collapsed_under_their_count():
    few, many = (render(Page("", (), tuple(f"File {i} is cut off." for i in range(count)))) for count in (3, 12))
    assert "<details><summary>12 problems" in many
    assert "3 problems" in few
    assert "<summary>3 problems" not in few
    assert "File 11 is cut off." in many
    assert "problems" not in Outline(render(Page("", ()))).text


def test_log_buttons_exist_only_for_positive_values():
    def buttons(**options) -> list[str]:
        line = Series("a", options.pop("x", (1, 2)), options.pop("y", (1.0, 2.0)))
        return re.findall("data-do=.(log-.)", render(Page("", (Section("", (Chart("", "", "", (line,), **options),)),))))

    assert buttons() == ["log-x", "log-y"]
    assert buttons(x=(0, 1)) == ["log-y"]
    assert buttons(x=(0, 1), y=(None, -1.0)) == []
    assert buttons(x=(0, 1), y=(None, -1.0), log_y=True) == ["log-y"]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Series("a", (1,), (1.0,), low=(0.0,)), "only one of low and high"),
        (lambda: Series("a", (1,), (1.0,), low=(0.0,), high=()), "1 values of x and 0 of high"),
        (lambda: Choice("c", (), ()), "is empty"),
        (lambda: Choice("c", ("a", "b"), ((("x",), Table("", (), ())),)), "a value for every axis"),
    ],
)
def test_inconsistent_blocks_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


# ---- Colours ----


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    low, high = sorted(float(np.dot(linear(colour), [0.2126, 0.7152, 0.0722])) for colour in (a, b))
    return (high + 0.05) / (low + 0.05)


# Machado, Oliveira and Fernandes (2009), severity 1.
VISION = {
    "ordinary": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
}


def oklab(light: np.ndarray) -> np.ndarray:
    cones = np.array([[0.41222147, 0.53633254, 0.05144599], [0.2119035, 0.68069955, 0.10739696], [0.08830246, 0.28171884, 0.6299787]])
    lab = np.array([[0.21045426, 0.79361779, -0.00407205], [1.9779985, -2.42859221, 0.45059371], [0.02590404, 0.78277177, -0.80867577]])
    return lab @ np.cbrt(cones @ np.clip(light, 0, 1))


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_are_distinguishable(palette, vision):
    seen = [oklab(VISION[vision] @ linear(colour)) for colour in palette]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 0.1


def test_colours_contrast_with_the_background():
    card = re.search(r"--card: light-dark\((#\w+), (#\w+)\)", render(Page("", ())))
    assert card
    for ground, palette in zip(card.groups(), (LIGHT, DARK), strict=True):
        assert min(contrast(colour, ground) for colour in palette) >= 3


def test_a_name_keeps_its_colour_on_the_whole_page():
    a, b, c = (Series(name, (), ()) for name in "abc")
    first, second = Chart("1", "", "", (a, b)), Chart("2", "", "", (c, b))
    assert assign_styles([first, second, Intervals("", "", (Interval("c", 0, 0, 0, ""), Interval("d", 0, 0, 0, "")))]) == dict(
        zip("abcd", range(4), strict=True)
    )
    text = render(Page("", (Section("", (first, second)),)))
    assert len(re.findall(r'swatch k1 d0".*?<bdi>b</bdi>', text)) == 2


def test_the_ninth_name_is_dashed():
    lines = tuple(Series(f"s{i}", (1, 2), (1.0, i)) for i in range(9))
    assert 'class="swatch k0 d1"' in render(Page("", (Section("", (Chart("", "", "", lines),)),)))
    dashed = [line.is_dashed() for line in draw(Chart("", "", "", lines)).axes[0].lines if line.get_linestyle() != "None"]
    assert dashed == [False] * 8 + [True]


# ---- Figures ----


@settings(derandomize=True, deadline=None)
@given(st.lists(st.text() | st.sampled_from(("a", "A", "a-2", "a/b", "..", "con")), max_size=12))
def test_file_names_are_plain_and_unique(titles):
    taken: set[str] = set()
    names = [unique_name(slug(title), taken) for title in titles]
    assert len({name.casefold() for name in names}) == len(titles)
    assert all(re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)


def test_figures_are_files_with_equal_bytes(tmp_path):
    page = sample()
    files = write_figures(page, tmp_path / "one", ("pdf", "svg", "png"))
    again = write_figures(page, tmp_path / "two", ("pdf", "svg", "png"))
    # Two charts and one interval chart outside the choice, one of each inside it.
    assert len(files) == 15
    assert sorted(tmp_path.glob("one/*")) == sorted(files)
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again]
    assert not any(re.search(rb"<dc:date|/CreationDate", file.read_bytes()) for file in files)


@pytest.mark.every(3)
@pytest.mark.parametrize("word", HOSTILE, ids=range(len(HOSTILE)))
def test_figures_take_any_name(word, tmp_path):
    files = write_figures(sample(word), tmp_path, ("svg",))
    assert all(file.parent == tmp_path for file in files)
    for file in files:
        tags = {node.tag.rpartition("}")[2] for node in ElementTree.fromstring(file.read_bytes()).iter()}
        assert not tags & {"script", "image", "foreignObject", "a"}


@pytest.mark.parametrize(
    "line",
    [
        Series("empty", (), ()),
        Series("nothing", (1, 2), (None, math.nan)),
        Series("negative", (-1, 0), (-1.0, 0.0), (-2.0, -1.0), (0.0, 1.0)),
        Series("huge", (1, 2, 3), (1e308, -1e308, math.inf)),
        Series("one point", (1,), (1.0,)),
    ],
    ids=lambda line: line.name,
)
@pytest.mark.parametrize("log", [False, True])
def test_figures_take_any_numbers(line, log):
    assert image(draw(Chart("", "x", "y", (line,), log_x=log, log_y=log)), "png").startswith(b"\x89PNG")


WIDE = Series("two runs", (1, 2), (10.0, 20.0), (-500.0, 19.0), (500.0, 21.0))


def test_a_wide_band_leaves_the_lines_a_third_of_a_figure():
    low, high = draw(Chart("", "", "", (WIDE,))).axes[0].get_ylim()
    assert (low, high) == (pytest.approx(-10.8), pytest.approx(40.8))
    narrow = replace(WIDE, low=(9.0, 19.0), high=(11.0, 21.0))
    low, high = draw(Chart("", "", "", (narrow,))).axes[0].get_ylim()
    assert 8 < low < 9
    assert 21 < high < 22


def test_a_point_between_gaps_is_drawn():
    figure = draw(Chart("", "", "", (Series("a", (1, 2, 3, 4, 5), (1.0, None, 2.0, None, 3.0)),)))
    dots = figure.axes[0].lines[1]
    assert dots.get_marker() == "o"
    np.testing.assert_array_equal(np.isfinite(np.asarray(dots.get_ydata(), float)), [True, False, True, False, True])


def test_dots_mark_every_point():
    line = Series("a", (1, 2, 3), (1.0, None, 2.0))
    for dots in (False, True):
        shown = draw(Chart("", "", "", (replace(line, y=(1.0, 2.0, 3.0)), replace(line, name="b")), dots=dots)).axes[0].lines
        marked = [np.isfinite(np.asarray(some.get_ydata(), float)).tolist() for some in shown if some.get_marker() == "o"]
        assert marked == [[dots] * 3, [True, False, True]]
        assert f'"dots":{str(dots).lower()}' in chart_json(Chart("", "", "", (line,), dots=dots), {"a": 0})


def test_intervals_within_rounding_have_no_width():
    same = 0.678340360507689
    text = Outline(render(one(Table("t", ("a",), ((Estimate(same, same - 1e-16, same + 1e-16, 0.95, 10, 1, ""),),))))).text
    assert "0.67834 [0.67834, 0.67834]" in text


# ---- In a browser ----

needs_browser = pytest.mark.skipif(browser.missing() is not None, reason=str(browser.missing()))


@pytest.fixture(scope="module")
def chromium():
    with browser.browser() as running:
        yield running


@pytest.fixture
def show(chromium, tmp_path):
    """Open a page. At the end, check that it logged no errors and made no requests."""
    tabs = []

    def shown(page: Page, width: int = 1280, height: int = 900) -> browser.Tab:
        file = tmp_path / f"page-{len(tabs)}.html"
        file.write_text(render(page), encoding="utf-8")
        tabs.append((chromium.open(file, width, height), file))
        return tabs[-1][0]

    yield shown
    for tab, file in tabs:
        tab.evaluate("0")  # what was said until now has arrived with the answer
        assert tab.messages == []
        assert set(tab.requests) == {file.as_uri()}
        tab.close()


def one(*blocks) -> Page:
    return Page("A page", (Section("A section", blocks),))


CURVES = Chart(
    "Score, by step",
    "step",
    "score",
    (
        Series("al:0.9", (1, 2, 3, 4), (1.0, 10.0, None, 1000.0), (0.5, 5.0, None, 500.0), (2.0, 20.0, None, 2000.0), n=5),
        Series("=cmd|'x'", (1, 2, 3, 4), (2.0, 3.0, 4.0, 5.0)),
        Series('with "quotes", commas', (1, 2.5), (0.125, 1 / 3)),
    ),
)
CATCH = "window.blobs = []; URL.createObjectURL = (old => blob => (blobs.push(blob), old.call(URL, blob)))(URL.createObjectURL); 0"


def downloaded(tab: browser.Tab, selector: str) -> list[list[str]]:
    tab.evaluate(CATCH)
    tab.click(f"{selector} [data-do=csv]")
    text = tab.evaluate("blobs[0].text()")
    assert text.endswith("\r\n")
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


@needs_browser
def test_browser_shows_a_page_with_every_block_without_errors(show):
    tab = show(sample())
    assert tab.evaluate("document.title") == "plain"
    assert tab.evaluate("document.querySelectorAll('.lines path').length") >= 3


@needs_browser
@pytest.mark.parametrize("part", [HOSTILE[:8], HOSTILE[8:]], ids=["markup", "text"])
def test_browser_shows_hostile_names_as_text(show, part):
    for word in filter(None, part):
        tab = show(sample(word), 360, 700)
        tab.click(".plot")
        shown = tab.evaluate("[...document.querySelectorAll('h1, h2, .key bdi, .text, .readout th bdi')].map(e => e.textContent)")
        assert shown.count(word) >= 5, word
        assert tab.evaluate("typeof window.pwned") == "undefined"
        assert tab.evaluate("document.querySelectorAll('main script:not([type]), main style, [onerror]').length") == 0
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), word


@needs_browser
def test_browser_runs_nothing_that_was_injected(chromium, tmp_path):
    file = tmp_path / "page.html"
    text = render(sample())
    file.write_text(text.replace("</main>", "<img src=x onerror='window.pwned = 1'><script>window.pwned = 2</script></main>"))
    tab = chromium.open(file)
    assert tab.evaluate("typeof window.pwned") == "undefined"
    assert any("Content Security Policy" in message for message in tab.messages)
    tab.close()


@needs_browser
def test_browser_sorts_tables(show):
    rows = (("b", 10, estimate(2, 1)), ("a", None, None), ("c", 9, estimate(3, 1)), ("d", -1e-3, estimate(1, 1)), ("e", 10, None))
    tab = show(one(Table("t", ("name", "number", "estimate"), rows)))

    def names() -> str:
        return tab.evaluate("[...document.querySelectorAll('tbody tr')].map(r => r.cells[0].textContent).join('')")

    def turn(column: int) -> tuple[str, str]:
        tab.click(f"th:nth-child({column}) button")
        return names(), tab.evaluate(f"document.querySelector('th:nth-child({column})').getAttribute('aria-sort')")

    assert [turn(2) for _ in range(3)] == [("dcbea", "ascending"), ("becda", "descending"), ("bacde", "none")]
    assert [turn(3) for _ in range(2)] == [("dbcae", "ascending"), ("cbdae", "descending")]
    assert turn(1) == ("abcde", "ascending")
    assert tab.evaluate("document.querySelector('th:nth-child(3)').getAttribute('aria-sort')") == "none"
    tab.evaluate("document.querySelector('th:nth-child(1) button').focus()")
    tab.press("Enter")
    assert names() == "edcba"


@needs_browser
def test_browser_filters_long_tables(show):
    tab = show(one(Table("t", ("name",), tuple((f"Row {i}",) for i in range(25))), Table("s", ("name",), (("a",),))))
    assert tab.evaluate("document.querySelectorAll('input[type=search]').length") == 1
    tab.set("input[type=search]", "ROW 2")
    shown = "[...document.querySelectorAll('#a-t tbody tr')].filter(r => r.offsetHeight).map(r => r.textContent)"
    assert tab.evaluate(shown) == ["Row 2", "Row 20", "Row 21", "Row 22", "Row 23", "Row 24"]
    assert tab.evaluate("document.querySelector('output').textContent") == "6 of 25 rows"
    tab.set("input[type=search]", "")
    assert len(tab.evaluate(shown)) == 25


@needs_browser
def test_browser_draws_lines_bands_and_gaps(show):
    tab = show(one(CURVES))
    paths = tab.evaluate("[...document.querySelectorAll('.lines path')].map(p => p.getAttribute('d'))")
    # The first line has two points, a gap, and a point alone.
    assert [path.count("M") for path in paths] == [1, 1, 1, 1]
    assert len(tab.evaluate("[...document.querySelectorAll('.lines .alone')].map(String)")) == 1
    assert tab.evaluate("document.querySelectorAll('.bands path').length") == 2
    labels = tab.evaluate("[...document.querySelectorAll('.grid text')].map(t => t.textContent)")
    assert labels[:5] == ["0", "500", "1000", "1500", "2000"]


@needs_browser
def test_browser_clips_a_wide_band_far_from_the_lines(show):
    tab = show(one(Chart("c", "x", "y", (WIDE,))))
    labels = tab.evaluate("[...document.querySelectorAll('.grid text')].map(t => t.textContent)")
    assert labels[:6] == ["\N{MINUS SIGN}10", "0", "10", "20", "30", "40"]


@needs_browser
def test_browser_switches_series_on_and_off(show):
    tab = show(one(CURVES))
    count = "[document.querySelectorAll('.lines path').length, document.querySelector('.key').getAttribute('aria-pressed')]"
    assert tab.evaluate(count) == [4, "true"]
    tab.click(".key")
    assert tab.evaluate(count) == [2, "false"]
    # The axis follows what is left.
    assert "2000" not in tab.evaluate("document.querySelector('.grid').textContent")
    tab.evaluate("document.querySelector('.key').focus()")
    tab.press("Enter")
    assert tab.evaluate(count) == [4, "true"]
    for place in (1, 2, 3):
        tab.click(f".key:nth-child({place})")
    assert "switched off" in tab.evaluate("document.querySelector('.plot').textContent")


@needs_browser
def test_browser_turns_axes_logarithmic(show):
    tab = show(one(CURVES))
    labels = "[...document.querySelectorAll('.grid text[text-anchor=end]')].map(t => t.textContent)"
    tab.click("[data-do=log-y]")
    assert tab.evaluate(labels) == ["0.1", "1", "10", "100", "1000"]
    heights = tab.evaluate("[...document.querySelectorAll('.grid text[text-anchor=end]')].map(t => Number(t.getAttribute('y')))")
    assert np.diff(heights) == pytest.approx(np.diff(heights)[0], abs=0.2)
    assert tab.evaluate("document.querySelector('[data-do=log-y]').getAttribute('aria-pressed')") == "true"
    tab.click("[data-do=log-x]")
    tab.click("[data-do=log-y]")
    assert tab.evaluate(labels)[0] == "0"
    assert "2" in tab.evaluate("[...document.querySelectorAll('.grid text[text-anchor=middle]')].map(t => t.textContent)")


@needs_browser
def test_browser_reads_values_at_the_pointer_and_by_key(show):
    tab = show(one(CURVES))
    readout = "[...document.querySelectorAll('.readout tr')].map(r => [...r.cells].slice(1).map(c => c.textContent))"
    x, y = tab.place(".plot")
    tab.point(x - 170, y)
    assert tab.evaluate("document.querySelector('.readout .where').textContent") == "step 2"
    assert tab.evaluate(readout) == [
        ["al:0.9", "10", "[5, 20]", "n = 5"],
        ["=cmd|'x'", "3", "", ""],
        ['with "quotes", commas', "–", "", ""],  # noqa: RUF001
    ]
    tab.point(5, 5)
    assert tab.evaluate("document.querySelector('.readout')") is None
    tab.evaluate("document.querySelector('.plot').focus()")
    seen = []
    for _ in range(6):
        tab.press("ArrowRight")
        seen.append(tab.evaluate("document.querySelector('.readout .where').textContent"))
    assert seen == ["step 1", "step 2", "step 2.5", "step 3", "step 4", "step 4"]
    tab.press("Escape")
    assert tab.evaluate("document.querySelector('.readout')") is None


@needs_browser
@pytest.mark.parametrize(
    "line",
    [
        Series("empty", (), ()),
        Series("nothing", (1, 2), (None, math.nan)),
        Series("constant", (1, 2), (5.0, 5.0)),
        Series("huge", (1, 2, 3), (1.7e308, -1.7e308, 1.0)),
        Series("tiny", (1, 2, 3), (5e-324, 1e-310, 1e-300)),
        Series("close", (2**52, 2**52 + 1), (1.0, 2.0)),
        Series("negative", (-2, -1, 0), (-1.0, 0.0, 1.0), (-2.0, -1.0, 0.0), (0.0, 1.0, 2.0)),
    ],
    ids=lambda line: line.name,
)
def test_browser_draws_any_numbers(show, line):
    chart = Chart("c", "x", "y", (line,))
    tab = show(one(chart, replace(chart, log_x=True, log_y=True)))
    drawn = tab.evaluate("document.querySelector('main').innerHTML")
    assert "NaN" not in re.sub("<script.*?</script>", "", drawn, flags=re.DOTALL)
    assert "Infinity" not in drawn
    assert tab.evaluate("[...document.querySelectorAll('.plot')].every(p => p.querySelectorAll('.grid text').length > 2)")


@needs_browser
def test_browser_writes_csv_of_charts(show):
    tab = show(one(CURVES))
    rows = downloaded(tab, ".chart")
    assert rows[0] == ["series", "step", "score", "low", "high", "n"]
    assert rows[1] == ["al:0.9", "1", "1", "0.5", "2", "5"]
    assert rows[3] == ["al:0.9", "3", "", "", "", "5"]
    assert rows[5] == ["'=cmd|'x'", "1", "2", "", "", ""]
    assert rows[-1] == ['with "quotes", commas', "2.5", "0.333333", "", "", ""]
    assert len(rows) == 11


@needs_browser
def test_browser_writes_csv_of_tables(show):
    text = ("=1+1", "-2", "+3", "@x", "\t=1", 'say "hi", twice', "two\nlines", "plain", "<b>", " ")
    rows = (*((word, -1 / 3, estimate(-1.5, 0.25)) for word in text), ("missing", None, None), ("none", math.nan, 2))
    tab = show(one(Table("t", ("-name", "number", "estimate"), rows), Intervals("i", "score", (Interval("+a", -0.5, -math.inf, 1, "=1"),))))
    first, *rest = downloaded(tab, "#a-t")
    assert first == ["'-name", "number", "estimate", "estimate low", "estimate high", "estimate n"]
    guarded = ["'=1+1", "'-2", "'+3", "'@x", "'\t=1", 'say "hi", twice', "two\nlines", "plain", "<b>", " "]
    assert [row[0] for row in rest] == [*guarded, "missing", "none"]
    assert rest[0][1:] == [repr(-1 / 3), "-1.5", "-1.75", "-1.25", "10 x 5"]
    assert [row[1:] for row in rest[-2:]] == [["", "", "", "", ""], ["", "2", "", "", ""]]
    assert downloaded(tab, "#a-i") == [["name", "score", "low", "high", "n"], ["'+a", "-0.5", "", "1", "'=1"]]


@needs_browser
def test_browser_places_dots_and_whiskers(show):
    rows = (Interval("a", 0.5, 0.0, 1.0, "3"), Interval("b", 1.0, -math.inf, math.inf, "1"), Interval("c", math.nan, 0, 1, "0"))
    tab = show(one(Intervals("i", "score", rows)))
    middle = "e => { const b = e.getBoundingClientRect(); return b.left + b.width / 2; }"
    dots = tab.evaluate(f"[...document.querySelectorAll('.dot')].map({middle})")
    whiskers = tab.evaluate("[...document.querySelectorAll('.whisker')].map(e => e.getBoundingClientRect().toJSON())")
    assert len(dots) == len(whiskers) == 2
    assert dots[0] == pytest.approx((whiskers[0]["left"] + whiskers[0]["right"]) / 2, abs=0.5)
    assert dots[1] == pytest.approx(whiskers[0]["right"], abs=0.5)
    assert "no interval" in tab.evaluate("document.querySelectorAll('.dots tbody tr')[1].textContent")


@needs_browser
def test_browser_shows_the_selected_choice(show):
    items = tuple(
        ((game, what), replace(CURVES, title=f"{what} on {game}")) for game, what in (("a", "x"), ("a", "y"), ("b", "y"), ("<c>", "z"))
    )
    tab = show(one(Choice("More", ("game", "what"), items)))
    shown = "[...document.querySelectorAll('.option')].filter(o => o.offsetHeight).map(o => o.querySelector('.title').textContent)"
    values = "[...document.querySelectorAll('select')].map(s => s.value)"
    assert tab.evaluate(shown) == ["x on a"]
    tab.set("label:nth-child(2) select", "y")
    assert tab.evaluate(shown) == ["y on a"]
    tab.set("label:nth-child(1) select", "b")
    assert tab.evaluate(shown) == ["y on b"]
    # There is no x on b, so the game gives way.
    tab.set("label:nth-child(2) select", "x")
    assert (tab.evaluate(shown), tab.evaluate(values)) == (["x on a"], ["a", "x"])
    tab.set("label:nth-child(1) select", "<c>")
    assert (tab.evaluate(shown), tab.evaluate(values)) == (["z on <c>"], ["<c>", "z"])
    assert tab.evaluate("document.querySelectorAll('.option.shown .lines path').length") == 4


@needs_browser
def test_browser_follows_the_system_theme_until_told_otherwise(show):
    tab = show(one(CURVES))
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    tab.media("light")
    light = tab.evaluate(ground)
    tab.media("dark")
    dark = tab.evaluate(ground)
    assert light != dark
    tab.click("#theme")
    assert tab.evaluate("document.querySelector('#theme').textContent") == "Theme: light"
    assert tab.evaluate(ground) == light
    tab.click("#theme")
    tab.media("light")
    assert tab.evaluate(ground) == dark
    tab.go(tab.requests[0])
    assert tab.evaluate(ground) == dark
    tab.click("#theme")
    assert tab.evaluate(ground) == light


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_browser_shows_the_whole_of_a_wide_table(show, width):
    wide = Table("w", tuple(f"a heading of some length, {i}" for i in range(30)), (tuple(f"cell {i}" for i in range(30)),))
    tab = show(one(wide), width, 700)
    # Headings are folded and not cut, and the last column can be reached while the first stays in sight.
    fits = "b.firstChild.getBoundingClientRect().width <= b.getBoundingClientRect().width && b.offsetHeight > 30"
    assert tab.evaluate(f"[...document.querySelectorAll('.data th button')].every(b => {fits})")
    tab.evaluate("(s => s.scrollLeft = s.scrollWidth)(document.querySelector('.scroll'))")
    box = "document.querySelector('.scroll').getBoundingClientRect()"
    cells = "document.querySelector('.data tbody tr').cells"
    assert tab.evaluate(f"{cells}[29].getBoundingClientRect().right <= {box}.right + 1")
    assert tab.evaluate(f"Math.abs({cells}[0].getBoundingClientRect().left - {box}.left) < 1")
    tab.evaluate("(s => s.scrollLeft = 0)(document.querySelector('.scroll'))")
    # The shadow: darker at the edge beyond which there is more.
    assert (
        tab.evaluate("getComputedStyle(document.querySelector('.scroll')).backgroundAttachment").split(", ")
        == ["local"] * 2 + ["scroll"] * 2
    )


@needs_browser
def test_browser_marks_every_point_of_charts_with_dots(show):
    line = Series("a", (0, 1, 2), (1.0, 2.0, 4.0))
    for dots in (False, True):
        tab = show(one(Chart("c", "x", "y", (line,), dots=dots)))
        assert (
            tab.evaluate("[...document.querySelectorAll('.lines .alone')].map(p => p.getAttribute('d').split('M').length - 1)")
            == [3] * dots
        )


@needs_browser
@pytest.mark.parametrize("width", [360, 800, 1280])
def test_browser_never_scrolls_sideways(show, width):
    wide = Table("w", tuple(f"column {i}" for i in range(40)), (tuple(range(40)), ("word" * 50,) * 40))
    tab = show(replace(one(wide, CURVES, *sample().sections[0].blocks), title="Long" * 60), width, 700)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.evaluate("(s => s.scrollWidth > s.clientWidth)(document.querySelector('.scroll'))")
    assert tab.evaluate("document.querySelector('nav details').open") == (width > 1024)


@needs_browser
def test_browser_draws_visible_charts_and_prints_all(show):
    tab = show(one(*(replace(CURVES, title=str(i)) for i in range(40))))
    drawn = "[...document.querySelectorAll('.plot')].map(p => p.querySelectorAll('.lines path').length)"
    assert tab.evaluate(drawn)[:2] == [4, 4]
    assert tab.evaluate(drawn)[10:] == [0] * 30
    tab.evaluate("document.querySelector('#a-39').scrollIntoView({behavior: 'instant'})")
    tab.settle()
    assert tab.evaluate(drawn)[15:25] == [0] * 10
    assert tab.evaluate(drawn)[-1] == 4
    assert tab.pdf().startswith(b"%PDF")
    assert tab.evaluate(drawn) == [4] * 40


@needs_browser
def test_browser_prints_light_and_without_controls(show):
    tab = show(one(CURVES, Choice("More", ("game",), ((("a",), CURVES), (("b",), CURVES)))))
    tab.media("dark")
    tab.click("#theme")
    tab.click("#theme")
    tab.media("dark", printed=True)
    assert tab.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    for control in ("nav", ".tools", ".selectors", "#theme"):
        assert tab.evaluate(f"document.querySelector('{control}').getClientRects().length") == 0, control
    assert tab.evaluate("document.querySelector('.option.shown .which').innerText") == "game: a"
    assert tab.evaluate("document.querySelector('.legend').innerText").startswith("al:0.9")
    assert tab.evaluate("document.querySelector('.lines path').getBoundingClientRect().width") > 100
    assert tab.evaluate("getComputedStyle(document.querySelector('.chart')).breakInside") == "avoid"


@needs_browser
def test_browser_copies_the_command(show):
    tab = show(one(replace(CURVES, source=SOURCE)))
    tab.evaluate("window.copied = []; navigator.clipboard.writeText = async (text) => { copied.push(text); }; 0")
    tab.click(".source summary")
    tab.click("[data-do=copy]")
    assert tab.evaluate("copied") == [SOURCE.command]
    assert tab.evaluate("document.querySelector('[data-do=copy]').textContent") == "Copied"


@needs_browser
def test_browser_does_not_animate_with_reduced_motion(chromium, tmp_path):
    from PIL import Image

    data = io.BytesIO()
    frames = [Image.new("P", (8, 8), colour) for colour in (0, 1)]
    frames[0].save(data, "GIF", save_all=True, append_images=frames[1:], duration=100, loop=0)
    file = tmp_path / "page.html"
    file.write_text(render(one(Picture("p", data.getvalue(), "image/gif", "blinking"))))
    tab = chromium.open(file)
    assert tab.evaluate("document.querySelector('.play')") is None
    tab.media(motion="reduce")
    tab.go(file.as_uri())
    tab.wait("document.querySelector('.play')")
    assert tab.evaluate("document.querySelector('img').offsetHeight") == 0
    tab.click(".play")
    assert tab.evaluate("document.querySelector('img').offsetHeight") > 0
    tab.close()


@needs_browser
def test_without_javascript_tables_are_shown_and_charts_explained(show):
    tab = show(sample())
    tab.without_scripts()
    text = tab.evaluate("document.body.innerText")
    assert "JavaScript draws this chart" in text
    assert "plain: 1000 at 4" in text
    assert "1.00 [0.90, 1.10]" in text
    # Every option of a choice is shown, each under its name.
    assert "plain: b · what: intervals" in text
    assert tab.evaluate("document.querySelector('.tools').offsetHeight") == 0


class Handler(BaseHTTPRequestHandler):
    page = b""
    revision = b""

    def do_GET(self):
        body = self.revision if self.path == "/revision" else self.page
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        """Log nothing."""


@needs_browser
def test_browser_keeps_its_place_when_a_live_page_reloads(chromium):
    items = ((("a",), CURVES), (("b",), CURVES))
    blocks = (Choice("More", ("game",), items), *(replace(CURVES, title=str(i)) for i in range(5)))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.page, Handler.revision = render(one(*blocks), live="1").encode(), b"1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        tab = chromium.open(f"http://127.0.0.1:{server.server_port}/")
        assert tab.evaluate("document.querySelector('.live').textContent") == "live"
        tab.evaluate("document.querySelector('.key').click()")
        tab.evaluate("(s => { s.value = 'b'; s.dispatchEvent(new Event('change')); })(document.querySelector('select'))")
        tab.evaluate("scrollTo({top: 800, behavior: 'instant'})")
        tab.evaluate("window.old = true")
        Handler.page, Handler.revision = render(replace(one(*blocks), title="Newer"), live="2").encode(), b"2"
        tab.wait("!window.old && document.readyState === 'complete'")
        tab.settle()
        assert tab.evaluate("document.title") == "Newer"
        assert tab.evaluate("[scrollY, document.querySelector('select').value]") == [800, "b"]
        assert tab.evaluate("document.querySelector('.key').getAttribute('aria-pressed')") == "false"
        assert {request.rpartition("/")[2] for request in tab.requests} == {"", "revision"}
        assert tab.messages == []
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    tab.wait("document.querySelector('.live').textContent === 'connection lost'")
    tab.close()


@needs_browser
def test_browser_driver_leaves_no_files_or_processes(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="nowhere"), browser.browser() as running:
        running.open("about:blank").evaluate("nowhere")
    assert list(Path(tmp_path).iterdir()) == []
