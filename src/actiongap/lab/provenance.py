"""Provenance of results: versions, machine and date, recorded with every run."""

from __future__ import annotations

import importlib.metadata
import platform
import socket
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from actiongap._system import cores
from actiongap._version import __version__

PACKAGES = ("numpy", "scipy", "numba", "gymnasium", "jax", "jaxlib", "ale-py", "torch")
"""Packages that can affect results; the installed ones are recorded."""


def describe() -> dict[str, Any]:
    """Return versions, machine, device and date, as plain values.

    Examples
    --------
    >>> sorted(describe())
    ['cores', 'date', 'device', 'host', 'platform', 'versions']
    """
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "platform": f"{platform.system()} {platform.machine()}",
        "host": socket.gethostname(),
        "cores": cores(),
        "device": _device(),
    }


def versions() -> dict[str, str]:
    """Return the versions of this package, of Python, and of the packages that can affect results.

    Examples
    --------
    >>> "numpy" in versions()
    True
    """
    found = {"actiongap": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _device() -> str:
    """Return the accelerator in use. JAX is not imported for this, because that takes seconds."""
    jax = sys.modules.get("jax")
    return "cpu" if jax is None else ", ".join(sorted({device.device_kind for device in jax.devices()}))


def line(description: Mapping[str, Any]) -> str:
    """Return a description in one line, from those keys of `describe` that it has.

    Examples
    --------
    >>> line({"versions": {"actiongap": "0.1.0", "python": "3.11.7"}, "platform": "Linux x86_64", "cores": 2, "device": "cpu"})
    'actiongap 0.1.0, Python 3.11.7, Linux x86_64, 2 cores'
    """
    found, cores = description.get("versions"), description.get("cores")
    parts = [f"{'Python' if name == 'python' else name} {version}" for name, version in found.items()] if isinstance(found, dict) else []
    parts += [text for name in ("platform", "device") if isinstance(text := description.get(name), str) and text != "cpu"]
    if isinstance(cores, int):
        parts.append(f"{cores} core{'s' * (cores != 1)}")
    return ", ".join(parts)


def provenance() -> dict[str, str]:
    """Return machine, versions and date of the current process.

    Examples
    --------
    >>> sorted(provenance())
    ['date', 'system']
    """
    here = describe()
    return {"system": line(here), "date": here["date"]}
