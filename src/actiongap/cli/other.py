"""`demo`: write an interactive page about the action gap. `doctor`: check this installation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

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
    from actiongap.interactive.page import demo

    found = demo(out, open=open)
    if json:
        print_json({"page": str(found.page)})
    else:
        print(found)
    return 0


def doctor(json: Flag = False) -> int:
    """Check every part of this installation, and say how to fix what is missing.

    Args:
        json: Print one JSON object.
    """
    from rich.console import Console

    from actiongap.diagnosis import doctor, render

    found = doctor(progress=True)
    if json:
        print_json(found.as_json())
    else:
        render(found, Console())
    return 0 if found.healthy else 1
