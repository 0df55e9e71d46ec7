"""Text from runs is text on a page: nothing of it runs in a browser, and nothing is asked for. No name is resolved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import browser
from faults import archives, samples
from faults.commands import assert_plain, give_to_all, need

INJECTIONS = (
    "<script>window.pwned = 1</script>",
    "</script><script>window.pwned = 2</script>",
    "</title></style></textarea></template><img src=x onerror='window.pwned = 3'>",
    "\"' onmouseover=\"window.pwned = 4\" autofocus onfocus='window.pwned = 5' x='",
    "<svg onload=window.pwned=6><animate onbegin=window.pwned=7 attributeName=x dur=1s>",
    "<img src=http://canary.invalid/image><link rel=stylesheet href=//canary.invalid/style>",
    "<iframe srcdoc='<script>parent.pwned = 8</script>'></iframe><object data=//canary.invalid/object></object>",
    "<meta http-equiv=refresh content='0;url=http://canary.invalid/'><base href=//canary.invalid/>",
    "javascript:window.pwned=9",
    "[a](javascript:window.pwned=10) ![b](http://canary.invalid/markdown)",
    "url(http://canary.invalid/css) ; } * { background: url(//canary.invalid/all) }",
    "<!--<script>",
    "${window.pwned = 11} {{constructor.constructor('window.pwned = 12')()}}",
    "\u2028window.pwned = 13\u2029//",
    "\\u003cscript\\u003ewindow.pwned = 14\\u003c/script\\u003e",
)
KEPT = ("format", "kind", "state", "digest", "gamma", "env", "operator")
"""Texts without which a run is not read."""
STRANGE = "iframe, object, embed, base, [onerror], [onload], [onfocus], [onmouseover]"
"""Elements that no page of ours has."""
BLOCKED = "--host-resolver-rules=MAP * ~NOTFOUND"


@pytest.fixture(scope="module")
def chromium():
    need(browser.missing() is None, browser.missing() or "")
    with browser.browser(BLOCKED) as started:
        yield started


def inject(folder: Path, text: str) -> int:
    """Put a text into every text of every record of a study; the number of them."""
    count = 0
    for file in [*folder.rglob("*.json")]:
        read = json.loads(file.read_text())
        for where in archives.leaves(read):
            value: Any = read
            for part in where:
                value = value[part]
            if isinstance(value, str) and where[-1] not in KEPT and where[0] != "runs":
                archives.edit_json(file, where, lambda old: text)
                count += 1
        if file.name == "config.json":
            changed = json.loads(file.read_text())
            changed["columns"][text] = text
            file.write_text(json.dumps(changed))
            count += 1
    return count


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(INJECTIONS)))
def test_nothing_of_a_run_runs_on_its_page(server, originals, place, chromium, record_property, number):
    text = INJECTIONS[number]
    folder = samples.copy(originals, "study", place)
    count = inject(folder, text)
    assert count > 20
    (place / "study").rename(place / "renamed")
    name = text.replace("/", "|")[:80]
    (place / "renamed").rename(place / name)
    runs = place / name / "runs"
    min(runs.iterdir()).rename(runs / name)
    give_to_all(place)
    ended = server.run("report", f"./{name}", "-o", "page.html", "--title", text, cwd=place)
    assert ended.code == 0, ended
    assert_plain(ended)
    tab = chromium.open(place / "page.html")
    assert text.split("\u2028")[0][:20] in tab.evaluate("document.documentElement.textContent")
    assert tab.evaluate("typeof window.pwned") == "undefined"
    assert (
        tab.evaluate("document.querySelectorAll('iframe, object, embed, base, [onerror], [onload], [onfocus], [onmouseover]').length") == 0
    )
    assert tab.evaluate("location.protocol") == "file:"
    assert [address for address in tab.requests if not address.startswith("file:")] == []
    tab.close()
    record_property("cases", count)
