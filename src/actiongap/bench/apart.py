"""What deep agents are measured with: a process of its own for each race, since JAX finds its device only once, and PyTorch's threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from actiongap._system import install


def check_jax() -> None:
    """One sentence if deep agents cannot be measured, because JAX is missing.

    Examples
    --------
    >>> check_jax()
    """
    try:
        import jax  # noqa: F401
    except ImportError:
        raise ValueError(f"deep agents need JAX: {install('jax')}") from None


def in_new_process(module: str, function: str, *arguments: str, platform: str | None = None) -> dict[str, Any]:
    """What a function of a module finds in a fresh process, on JAX's platform of this name, or one sentence about why it failed.

    Examples
    --------
    >>> in_new_process("os", "nothing")["failed"]
    "nothing() measured nothing: AttributeError: module 'os' has no attribute 'nothing'"
    """
    script = "import importlib, json, sys; print(json.dumps(getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(*sys.argv[3:])))"
    world = os.environ | ({"JAX_PLATFORMS": platform} if platform else {})
    command = [sys.executable, "-W", "ignore", "-c", script, module, function, *arguments]
    child = subprocess.run(command, capture_output=True, text=True, env=world)
    if child.returncode:
        why = "; ".join(child.stderr.strip().splitlines()[-1:]) or f"the process ended with {child.returncode}"
        return {"failed": f"{function}({', '.join(arguments)}) measured nothing: {why}"}
    return json.loads(child.stdout.splitlines()[-1])


def with_threads(threads: int, train: Callable[[int], Any], amount: int) -> None:
    """Train on by so much, on so many of PyTorch's threads."""
    import torch

    torch.set_num_threads(threads)
    train(amount)
