"""What this machine lends to the process."""

from __future__ import annotations

import os


def cores() -> int:
    """How many processor cores this process may use.

    Examples
    --------
    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_to(count: int) -> None:
    """Keep the calling thread, and all that it starts, to so many of its cores, where the system can.

    Examples
    --------
    >>> keep_to(cores())
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
