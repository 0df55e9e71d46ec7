"""Where there is room for films, told before anything is allocated.

Films are large: a million frames are seven gigabytes. They may fill most of an accelerator's memory, or else of the host's; where neither
has room, a sentence says how much would fit.
"""

from __future__ import annotations

from typing import Any

import jax

from actiongap._system import free_memory
from actiongap.deep.film import bytes_of

ROOM = 0.85
"""The part of a memory that films may fill."""


def find_room(agents: int, environments: int, slots: int, frame: tuple[int, ...]) -> Any:
    """The device that has room for so many films, an accelerator first; one sentence with a remedy if there is none."""
    needed, found = agents * bytes_of(environments, slots, frame), _rooms()
    for device, room in found.items():
        if needed <= room:
            return device
    most = max(found.values())
    fitting = int(most / needed * slots * environments) // 1000 * 1000
    remedies = [f"take a replay of {fitting}" if fitting else "take a much smaller replay", *["train fewer agents at once"] * (agents > 1)]
    who = f"{agents} agents remember" if agents > 1 else "an agent remembers"
    raise ValueError(f"what {who} takes {needed / 1e9:.1f} GB, and there is room for {most / 1e9:.1f} GB: {', or '.join(remedies)}")


def films_that_fit(environments: int, slots: int, frame: tuple[int, ...]) -> int:
    """How many such films there is room for, on the accelerator if there is for one; 0 if there is nowhere."""
    each = bytes_of(environments, slots, frame)
    return next((fitting for room in _rooms().values() if (fitting := int(room / each))), 0)


def _rooms() -> dict[Any, float]:
    """The bytes that films may take on each device, the one on which agents learn first."""
    first, host = jax.devices()[0], jax.devices("cpu")[0]
    return {host: host_room()} if first.platform == "cpu" else {first: accelerator_room(), host: host_room()}


def accelerator_room() -> float:
    """The bytes that films may take on the accelerator."""
    return ROOM * (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 0)


def host_room() -> float:
    """The bytes that films may take in the memory of the host."""
    return ROOM * free_memory()
