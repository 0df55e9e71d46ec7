"""Option types and JSON output that all commands share."""

from __future__ import annotations

import json as jsonlib
import math
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

Number = Annotated[float | None, arg(metavar="NUMBER", help_behavior_hint="")]
Integer = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
Count = Annotated[int, arg(metavar="N")]
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
