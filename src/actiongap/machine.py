"""What this machine lends to the process."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

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
