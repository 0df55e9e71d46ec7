"""Programs that run in a terminal of their own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest


def terminal_output(arguments: Sequence[str], **environment: str) -> str:
    """What Python writes to a terminal when it is called with these arguments. Empty variables are unset."""
    openpty = pytest.importorskip("pty").openpty
    parent, child = openpty()
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    variables = {name: value for name, value in variables.items() if value}
    with subprocess.Popen([sys.executable, *arguments], stdin=child, stdout=child, stderr=child, env=variables) as process:
        os.close(child)
        written = b""
        # Reading fails when the last process that has the terminal open ends.
        with contextlib.suppress(OSError):
            while data := os.read(parent, 1 << 16):
                written += data
        os.close(parent)
    assert process.returncode in (0, 1), written.decode()
    return written.decode()
