"""What commands share: kinds of options, JSON for programs, progress bars for people."""

from __future__ import annotations

import json as jsonlib
import math
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Self

from tyro.conf import arg

Number = Annotated[float | None, arg(metavar="NUMBER", help_behavior_hint="")]
Whole = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]
Flag = Annotated[bool, arg(help_behavior_hint="")]


def command_line() -> str:
    """The command as it was given."""
    return shlex.join(["actiongap", *sys.argv[1:]])


def print_json(value: Any) -> None:
    """Print one JSON value on one line."""
    print(jsonlib.dumps(_finite(value), allow_nan=False))


def _finite(value: Any) -> Any:
    """JSON has no infinity; what is not finite is null."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Bar:
    """A progress bar on the error stream of a terminal; nothing elsewhere."""

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.progress.start()
        self.task = self.progress.add_task("", total=1.0)
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()


class StepProgress(Bar):
    """Progress in steps that are counted."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, text: str, fraction: float) -> None:
        self.progress.update(self.task, completed=fraction, description=f"{self.name}: {text}")
