"""Option types, JSON output and progress bars that all commands share."""

from __future__ import annotations

import json as jsonlib
import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from tyro.conf import arg

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Number = Annotated[float | None, arg(metavar="NUMBER", help_behavior_hint="")]
Integer = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]
Flag = Annotated[bool, arg(help_behavior_hint="")]


def command_line() -> str:
    """Return the command line of this process."""
    return shlex.join(["actiongap", *sys.argv[1:]])


def print_json(value: Any) -> None:
    """Print a value as JSON on one line. Numbers that are not finite become null."""
    print(jsonlib.dumps(_replace_nonfinite(value), allow_nan=False))


def _replace_nonfinite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {name: _replace_nonfinite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_nonfinite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Bar:
    """A progress bar on stderr; hidden unless stderr is a terminal."""

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self.progress: Progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.progress.start()
        self.task: TaskID = self.progress.add_task("", total=1.0)
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()


class StepProgress(Bar):
    """A progress bar for callbacks of the form `progress(text, fraction)`."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, text: str, fraction: float) -> None:
        self.progress.update(self.task, completed=fraction, description=f"{self.name}: {text}")
