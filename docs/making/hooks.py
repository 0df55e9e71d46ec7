"""What the site has besides the pages of docs/: files of the repository that these link to, and the demonstration.

On GitHub a page may link to any file. The site has a copy of those that are named here, a program as a page that shows it, and a link to
one of them, from wherever, leads to its copy. Of anything else the strict build says that it leads nowhere.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import actiongap
from actiongap.interactive.page import render_demo

ROOT = Path(__file__).parents[2]
COPIED = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "LICENSE",
    "examples/*.py",
    "results/*/README.md",
    "results/*/page.html",
)
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
"""What precedes a path in a link or a picture, the path, and what follows it."""


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the copies and the demonstration."""
    for path in _copied():
        text = (ROOT / path).read_text()
        files.append(File.generated(config, _place(path), content=_shown(path, text) if path.suffix == ".py" else text))
    files.append(File.generated(config, "demo.html", content=render_demo()))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave docs/ to the copies, and those of copies to the pages."""
    places = {path.as_posix(): _place(path) for path in _copied()}
    here = page.file.src_uri
    home = next((path for path, place in places.items() if place == here), f"docs/{here}")

    def lead(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), link[2]))
        place = places.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        return link[0] if place is None else f"{link[1]}{posixpath.relpath(place, posixpath.dirname(here) or '.')}{link[3]}"

    # A number stays in one line with its interval, and with the signs that say how sure a difference is.
    text = re.sub(r" (±|\+\+?(?= \|)|--?(?= \|)) ?", "\u00a0\\1\u00a0", markdown.replace("<!-- names -->", _names()))
    return LINK.sub(lead, text)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Give a page without headings the room of its table of contents."""
    if not any(item.children for item in page.toc):
        page.meta["hide"] = ["toc"]


def _names() -> str:
    """The public names, where they live, and the first line of what is said of them."""
    rows = []
    for name in actiongap.__all__:
        value = getattr(actiongap, name)
        said = (inspect.getdoc(value) or "").splitlines()[0].replace("|", "\\|")
        place = value.__name__ if inspect.ismodule(value) else f"{value.__module__}.{value.__qualname__}"
        rows.append(f"| [`{name}`][{place}] | {said} |")
    return "\n".join(["| name | |", "|---|---|", *rows])


def _copied() -> list[PurePosixPath]:
    return [PurePosixPath(path.relative_to(ROOT).as_posix()) for pattern in COPIED for path in sorted(ROOT.glob(pattern))]


def _place(path: PurePosixPath) -> str:
    """Where the site has the copy. Not at their own names: a README would be taken for the front page of its folder."""
    page = path.with_name("about.md") if path.name == "README.md" else path
    return f"repository/{page}" + (".md" if page.suffix in (".py", "") else "")


def _shown(path: PurePosixPath, text: str) -> str:
    return f"# {path}\n\n```python\n{text}```\n"
