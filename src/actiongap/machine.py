"""What this machine lends to the process."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path


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
    with suppress(OSError, ValueError):
        free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return free


def keep_to(count: int) -> None:
    """Keep the calling thread, and all that it starts, to so many of its cores, where the system can.

    Examples
    --------
    >>> keep_to(cores())
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
