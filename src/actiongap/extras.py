"""What can be installed beside the core: packages that some commands need, by the name of the extra that brings them.

    pip install 'actiongap[NAME]'

`actiongap doctor` tries each extra, and a command that misses a package says in one sentence which extra has it.
"""

from __future__ import annotations

from typing import NamedTuple


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
    "bench": Extra(("quantecon", "interpolation"), "comparing speed with QuantEcon and interpolation.py (bench)"),
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
