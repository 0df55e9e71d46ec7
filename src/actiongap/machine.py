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
