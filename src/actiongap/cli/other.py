"""`demo`: write an interactive page about the action gap. `doctor`: check this installation."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from actiongap._progress import StepProgress
from actiongap.cli.common import Flag, print_json


def demo(
    out: Annotated[Path, arg(aliases=["-o"], metavar="FILE")] = Path("demo.html"),
    open: Flag = True,
    json: Flag = False,
) -> int:
    """Write and open an interactive page: vary the parameters of each operator, and see action gaps, greedy policies and bicycles.

    Args:
        out: HTML file to write; it works offline.
        open: Write the page without opening it.
        json: Print one JSON object.
    """
    from actiongap._files import write_text
    from actiongap.demo.page import render_demo

    if out.suffix != ".html" or not out.parent.is_dir():
        raise ValueError(f"{out}: --out must be a .html file in an existing folder")
    write_text(out, render_demo())
    opened = open and _open_browser(out.resolve().as_uri())
    if json:
        print_json({"page": str(out)})
    else:
        print(f"Wrote {out}{' and opened it in your browser.' if opened else '. Open it in a browser.'}")
    return 0


def _open_browser(address: str) -> bool:
    """Open an address in a graphical browser and return whether that worked. Text browsers are not used."""
    import webbrowser

    has_screen = sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    with contextlib.suppress(Exception):
        return has_screen and webbrowser.open(address)
    return False


def doctor(json: Flag = False) -> int:
    """Check every part of this installation, and say how to fix what is missing.

    Args:
        json: Print one JSON object.
    """
    from rich.console import Console

    from actiongap.doctor import as_json, examine, healthy, render

    with StepProgress("doctor") as progress:
        findings = examine(progress=progress)
    if json:
        print_json(as_json(findings))
    else:
        render(findings, Console())
    return 0 if healthy(findings) else 1
