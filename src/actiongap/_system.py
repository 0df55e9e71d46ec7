"""CPU and memory limits of this process (cgroup-aware), and optional dependencies.

Some commands need packages beyond the core, which an extra installs:

    pip install 'actiongap[NAME]'

`actiongap doctor` tries each extra. A command that needs a missing package names its extra in one sentence.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

GROUP = Path("/sys/fs/cgroup")
"""Resource limits of a container on Linux."""


def cores() -> int:
    """Return the number of CPU cores available to this process.

    Examples
    --------
    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int:
    """Return the bytes of memory that this process can still allocate.

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
    # A container has its own limit, or the word "max". Cached file pages are reclaimable, so they count as free.
    with suppress(OSError, ValueError):
        limit, used = (int((GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        cached = re.search(r"^inactive_file (\d+)$", (GROUP / "memory.stat").read_text(), re.MULTILINE)
        free = min(free, max(limit - used, 0) + (int(cached[1]) if cached else 0))
    return free


def keep_to(count: int) -> None:
    """Restrict the calling thread and its children to the first `count` of its cores, if the system supports it.

    Examples
    --------
    >>> keep_to(cores())
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


class Extra(NamedTuple):
    """An optional dependency group."""

    modules: tuple[str, ...]
    """Import names of its packages."""
    purpose: str
    """What it is for."""


EXTRAS = {
    "jax": Extra(("jax", "jaxlib", "optax"), "deep agents (train, probe), and accelerators for solve and plan"),
    "proof": Extra(("z3",), "proving what an operator preserves (prove)"),
    "torch": Extra(("torch",), "operators on PyTorch tensors"),
    "sb3": Extra(("stable_baselines3", "sb3_contrib"), "operators in Stable-Baselines3's agents"),
    "atari": Extra(("ale_py",), "the games of the Arcade Learning Environment (train atari/GAME)"),
    "cluster": Extra(("ray",), "sweeps of runs on a Ray cluster (sweep --ray)"),
    "video": Extra(("av",), "videos as MP4 instead of GIF (watch)"),
    "notebook": Extra(("marimo", "pandas"), "the tutorial as a notebook (marimo edit examples/tutorial.py), and runs as pandas tables"),
    "docs": Extra(("mkdocs", "material", "mkdocstrings"), "building the documentation (make docs)"),
}
"""The extras that users install."""


def install(name: str) -> str:
    """Return the command that installs an extra.

    Examples
    --------
    >>> install("proof")
    "pip install 'actiongap[proof]'"
    """
    return f"pip install 'actiongap[{name}]'"


def missing(error: ModuleNotFoundError, what: str = "this") -> str | None:
    """Return a sentence with the remedy for a failed import; None if the module belongs to no extra.

    Examples
    --------
    >>> missing(ModuleNotFoundError("No module named 'optax'", name="optax"))
    "this needs optax, which is not installed: pip install 'actiongap[jax]'"
    """
    package = (error.name or "").partition(".")[0]
    for name, extra in EXTRAS.items():
        if package in extra.modules:
            return f"{what} needs {package}, which is not installed: {install(name)}"
    return None


@contextmanager
def needing_extras(what: str) -> Iterator[None]:
    """In this context, or in a function with this decorator, a package of an extra that is missing is named with its remedy.

    Examples
    --------
    >>> with needing_extras("a proof"):
    ...     raise ModuleNotFoundError("No module named 'z3'", name="z3")
    Traceback (most recent call last):
    ModuleNotFoundError: a proof needs z3, which is not installed: pip install 'actiongap[proof]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        sentence = missing(error, what)
        if sentence is None:
            raise
        raise ModuleNotFoundError(sentence, name=error.name) from None
