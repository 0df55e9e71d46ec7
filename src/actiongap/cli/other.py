"""`demo`, an interactive page about the action gap, and `doctor`, a check of this installation."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from actiongap.cli.common import Flag, StepProgress, print_json


def demo(
    out: Annotated[Path, arg(aliases=["-o"], metavar="FILE")] = Path("demo.html"),
    open: Flag = True,
    json: Flag = False,
) -> int:
    """Write a page on which to turn the knobs of every operator and watch gaps, mistakes and bicycles; and open it.

    Args:
        out: The page to write, one file that needs no network.
        open: Only write it.
        json: Print one JSON object.
    """
    from actiongap._files import write_text
    from actiongap.demo.page import render_demo

    if out.suffix != ".html" or not out.parent.is_dir():
        raise ValueError(f"{out}: --out takes the name of a .html file in a folder that exists")
    write_text(out, render_demo())
    opened = open and _opened(out.resolve().as_uri())
    if json:
        print_json({"page": str(out)})
    else:
        print(f"The page is in {out}{', and in your browser' if opened else ': open it in a browser'}.")
    return 0


def _opened(address: str) -> bool:
    """Whether a browser took the address. One that would take over the terminal is not asked."""
    import webbrowser

    has_screen = sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    with contextlib.suppress(Exception):
        return has_screen and webbrowser.open(address)
    return False


def doctor(json: Flag = False) -> int:
    """Try everything this installation should be able to do, and say how to mend what is missing.

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
