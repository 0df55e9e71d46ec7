"""New processes for measurements, because JAX selects its device and threads only once; and the number of PyTorch threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actiongap._system import install

ROOT = Path(__file__).parents[1]


def check_jax() -> None:
    """Raise ValueError if JAX is not installed.

    Examples
    --------
    >>> check_jax()
    """
    try:
        import jax  # noqa: F401
    except ImportError:
        raise ValueError(f"deep agents need JAX: {install('jax')}") from None


def in_new_process(module: str, function: str, *arguments: str, platform: str | None = None) -> dict[str, Any]:
    """Call a function of a module in a new process on a JAX platform, and return its JSON result, or {"failed": reason}.

    Examples
    --------
    >>> in_new_process("os", "nothing")["failed"]
    "nothing() failed: AttributeError: module 'os' has no attribute 'nothing'"
    """
    script = "import importlib, json, sys; print(json.dumps(getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(*sys.argv[3:])))"
    command = [sys.executable, "-W", "ignore", "-c", script, module, function, *arguments]
    child = subprocess.run(
        command, capture_output=True, text=True, env=child_environment() | ({"JAX_PLATFORMS": platform} if platform else {})
    )
    if child.returncode:
        reason = "; ".join(child.stderr.strip().splitlines()[-1:]) or f"the process ended with exit code {child.returncode}"
        return {"failed": f"{function}({', '.join(arguments)}) failed: {reason}"}
    return json.loads(child.stdout.splitlines()[-1])


def child_environment() -> dict[str, str]:
    """Return environment variables with which a child process can import `benchmarks` from any folder.

    Examples
    --------
    >>> child_environment()["PYTHONPATH"].startswith(str(ROOT))
    True
    """
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}


def with_threads(threads: int, train: Callable[[int], Any], amount: int) -> None:
    """Continue training by `amount` on this number of PyTorch threads."""
    import torch

    torch.set_num_threads(threads)
    train(amount)
