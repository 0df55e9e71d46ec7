"""The documentation site: it builds without a warning, has every page, and asks for nothing outside itself when it is read."""

import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import actiongap
import browser

pytest.importorskip("material", reason="mkdocs-material is not installed: pip install 'actiongap[docs]'")
pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: pip install 'actiongap[docs]'")
pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
needs_browser = pytest.mark.skipif(browser.missing() is not None, reason=browser.missing() or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it: a link, an anchor or a page of the contents that leads nowhere is an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    assert (built.returncode, built.stderr) == (0, "")
    return out


class Loaded(HTMLParser):
    """What a page has the browser load: everything but what its reader may click on."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.addresses.append(given.get("href") or "")
        if tag in ("script", "img", "iframe", "source", "video"):
            self.addresses.append(given.get("src") or "")


def test_every_page_is_there(site):
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").is_file(), page


def test_files_of_the_repository_are_there_as_pages(site):
    shown = (site / "repository" / "examples" / "operators.py.html").read_text()
    assert "def" in shown
    assert "mixture" in shown
    assert (site / "repository" / "results" / "minatar" / "about.html").is_file()


def test_every_public_name_is_documented(site):
    names = (site / "api" / "index.html").read_text()
    for name in actiongap.__all__:
        value = getattr(actiongap, name)
        place = value.__name__ if inspect.ismodule(value) else f"{value.__module__}.{value.__qualname__}"
        link = re.search(rf'href="([^"#]+)#{re.escape(place)}"', names)
        assert link, f"{place} is on no page of docs/api"
        assert f'id="{place}"' in (site / "api" / link[1]).read_text()


def test_pages_load_nothing_from_outside(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        outside = [address for address in Loaded(page.read_text()).addresses if re.match("(https?:)?//", address)]
        assert outside == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text()), sheet


@pytest.fixture(scope="module")
def chromium():
    with browser.browser() as running:
        yield running


WIDE = [
    "index.html",
    "choosing.html",
    "theory.html",
    "findings.html",
    "api/finite.html",
    "planning.html",
    "reproducing.html",
    "architecture.html",
]


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_browser_reads_pages_without_complaint_or_request(site, chromium, width):
    tab = chromium.open(site / "index.html", width, 800)
    for page in WIDE:
        tab.go((site / page).as_uri())
        # Tables and code scroll within themselves.
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), page
        assert tab.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)"), page
    assert tab.messages == []
    assert [request for request in tab.requests if not request.startswith("file:")] == []
    tab.close()


@needs_browser
def test_browser_follows_the_system_into_the_dark(site, chromium):
    tab = chromium.open(site / "index.html")
    ground = "getComputedStyle(document.body).backgroundColor"
    tab.media("light")
    light = tab.evaluate(ground)
    tab.media("dark")
    tab.wait(f"{ground} !== {light!r}")
    dark = tab.evaluate(ground)
    # The button goes from the system's choice to light.
    tab.click("label[for=__palette_1]:not([hidden])")
    tab.wait(f"{ground} === {light!r}")
    assert light != dark
    assert tab.messages == []
    tab.close()


@needs_browser
def test_browser_searches_a_page_that_was_opened_as_a_file(site, chromium):
    tab = chromium.open(site / "index.html")
    tab.evaluate("document.querySelector('.md-search__input').focus()")
    tab.set(".md-search__input", "counterexample")
    tab.evaluate("document.querySelector('.md-search__input').dispatchEvent(new KeyboardEvent('keyup'))")
    tab.wait("document.querySelectorAll('.md-search-result__link').length > 2")
    found = tab.evaluate("[...document.querySelectorAll('.md-search-result__link')].map(link => link.getAttribute('href'))")
    assert any("theory.html" in link for link in found)
    assert tab.messages == []
    assert all(request.startswith("file:") for request in tab.requests)
    tab.close()
