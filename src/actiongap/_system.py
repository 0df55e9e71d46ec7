"""What this machine lends to the process.

What can be installed beside the core: packages that some commands need, by the name of the extra that brings them.

    pip install 'actiongap[NAME]'

`actiongap doctor` tries each extra, and a command that misses a package says in one sentence which extra has it.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

GROUP = Path("/sys/fs/cgroup")
"""Where Linux tells a container what it may take."""


def cores() -> int:
    """How many processor cores this process may use.

    Examples
    --------
    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int:
    """How many bytes of memory this process may still take.

    Examples
    --------
    >>> free_memory() > 0
    True
    """
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        free = 1024 * int(found[1]) if found else sys.maxsize
    except OSError:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # A container has a limit of its own, or the word "max"; what the system has cached of files it gives back.
    with suppress(OSError, ValueError):
        limit, used = (int((GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        cached = re.search(r"^inactive_file (\d+)$", (GROUP / "memory.stat").read_text(), re.MULTILINE)
        free = min(free, max(limit - used, 0) + (int(cached[1]) if cached else 0))
    return free


def keep_to(count: int) -> None:
    """Keep the calling thread, and all that it starts, to so many of its cores, where the system can.

    Examples
    --------
    >>> keep_to(cores())
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


class Extra(NamedTuple):
    """One extra of the package."""

    modules: tuple[str, ...]
    """What it brings, by the names under which Python imports it."""
    purpose: str
    """What is gained by it."""


EXTRAS = {
    "jax": Extra(("jax", "jaxlib", "optax"), "deep agents (train, probe), and accelerators for solve and plan"),
    "proof": Extra(("z3",), "proving what an operator preserves (prove)"),
    "torch": Extra(("torch",), "operators on PyTorch tensors"),
    "sb3": Extra(("stable_baselines3", "sb3_contrib"), "operators in Stable-Baselines3's agents"),
    "atari": Extra(("ale_py",), "the games of the Arcade Learning Environment (train atari/GAME)"),
    "cluster": Extra(("ray",), "sweeps of runs on a Ray cluster (sweep --ray)"),
    "video": Extra(("av",), "films as mp4, where there would be GIFs alone (watch)"),
    "notebook": Extra(("marimo",), "the tutorial as a notebook (marimo edit examples/tutorial.py)"),
    "docs": Extra(("mkdocs", "material", "mkdocstrings"), "building the documentation (make docs)"),
}
"""Every extra that is of use by itself."""


def install(name: str) -> str:
    """The command that installs an extra.

    Examples
    --------
    >>> install("proof")
    "pip install 'actiongap[proof]'"
    """
    return f"pip install 'actiongap[{name}]'"


def missing(error: ModuleNotFoundError) -> str | None:
    """One sentence about an import that failed, with its remedy; None where the module belongs to no extra.

    Examples
    --------
    >>> missing(ModuleNotFoundError("No module named 'optax'", name="optax"))
    "optax is not installed, and this needs it: pip install 'actiongap[jax]'"
    """
    package = (error.name or "").partition(".")[0]
    for name, extra in EXTRAS.items():
        if package in extra.modules:
            return f"{package} is not installed, and this needs it: {install(name)}"
    return None
