"""What others may rely on is written down in `public_api.txt`, and this is where a change of it is noticed.

A line is a name with the parameters that it is called with and their defaults; below a class are what its objects offer. After a change
that is meant, renew the file and look at the difference:

    python tests/test_public_api.py

`docs/compatibility.md` says what may change in which version.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import actiongap

FILE = Path(__file__).with_name("public_api.txt")

PUBLIC: dict[str, tuple[str, ...]] = {
    "actiongap": (),
    "actiongap.td": ("persistent_q_learning", "sampled_backup", "soft_backup", "td_target", "transition_backup"),
    "actiongap.operators": (
        "SoftBackup",
        "clipped",
        "conservative",
        "dpp",
        "mellowmax",
        "munchausen",
        "scheduled",
        "smoothed",
        "stochastic",
    ),
    "actiongap.maths": (),
    "actiongap.mdp.asynchronous": ("cycling_order", "iterate_asynchronously"),
    "actiongap.proof": (),
    "actiongap.sb3": ("DQN", "QRDQN"),
    "actiongap.planning.grid": ("Axis", "periodic", "uniform"),
    "actiongap.planning.simulator": ("Split", "evenly_within", "one_step"),
    "actiongap.paper.reproduce": ("Reproduction", "estimate_parts", "reproduce"),
    "actiongap.planning.rollouts": ("frequencies", "rollouts"),
    "actiongap.lab.executors": ("run_study", "run_inline"),
    "actiongap.lab.processes": ("run_in_processes",),
    "actiongap.lab.records": ("Records", "RunRecord", "read_runs"),
    "actiongap.lab.experiment": ("Experiment",),
    "actiongap.lab.study": ("Study", "grid"),
}
"""Modules that documentation teaches, each with its public names; those of `__all__` where none are given."""
FOREIGN = {"actiongap.sb3": "sb3_contrib"}
"""Modules that need a package of others."""
COMMANDS = "command line"


def test_the_list_has_every_public_section():
    assert list(frozen()) == [*PUBLIC, COMMANDS]


@pytest.mark.parametrize("section", [*PUBLIC, COMMANDS])
def test_the_public_api_equals_the_list(section):
    if section in FOREIGN:
        pytest.importorskip(FOREIGN[section], reason=f"{FOREIGN[section]} is not installed")
    assert described(section) == frozen()[section], "renew the list with: python tests/test_public_api.py"


def test_dir_offers_only_public_names():
    listed = dir(actiongap)
    assert sorted(listed) == sorted([*actiongap.__all__, "__version__"])
    assert all(hasattr(actiongap, name) for name in listed)
    # Using a name brings others into the module, which are not offered for that.
    assert actiongap.solve is not None
    assert dir(actiongap) == listed


def test_no_module_hides_a_public_name():
    """Importing a module sets it as an attribute of its package."""
    modules = {path.stem for path in Path(actiongap.__file__).parent.iterdir()}
    hidden = [name for name in modules & set(actiongap.__all__) if not inspect.ismodule(getattr(actiongap, name))]
    assert hidden == []


def frozen() -> dict[str, list[str]]:
    """The list, section by section."""
    sections = re.split(r"^\[(.+)\]\n", FILE.read_text(), flags=re.MULTILINE)[1:]
    return {name: lines.rstrip().splitlines() for name, lines in zip(sections[::2], sections[1::2], strict=True)}


def described(section: str) -> list[str]:
    """What the code says of a section."""
    if section == COMMANDS:
        return list(commands())
    module = importlib.import_module(section)
    return [line for name in PUBLIC[section] or sorted(module.__all__) for line in lines(name, getattr(module, name))]


def lines(name: str, value: Any) -> Iterator[str]:
    """A name with its parameters, and what the objects of a class offer."""
    if inspect.isclass(value) and issubclass(value, Exception):
        yield f"{name}: {value.__mro__[1].__name__}"
    elif inspect.isclass(value):
        yield f"{name}{parameters(value)}"
        for member in sorted(vars(value)):
            known = getattr(value, member)
            if member.startswith("_") or member in inspect.signature(value).parameters:
                continue
            yield f"    .{member}{parameters(known) if callable(known) else ''}"
    else:
        yield f"{name}{parameters(value)}" if callable(value) else f"{name}: {type(value).__name__}"


def parameters(function: Any) -> str:
    """Of a function, without their types; defaults that have no short text of their own are left open."""
    found = inspect.signature(function)
    bare = [p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else Shown(p.default)) for p in found.parameters.values()]
    return str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))


class Shown:
    """A default as it is printed."""

    def __init__(self, value: Any):
        self.value = value

    def __repr__(self) -> str:
        plain = self.value is None or isinstance(self.value, (bool, int, float, str, tuple))
        return repr(self.value) if plain else "..."


def commands() -> Iterator[str]:
    """Every command with what it must be told and its options, from its help."""
    from actiongap.cli import COMMANDS as KNOWN
    from actiongap.cli import main

    for name in KNOWN:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            main([name, "--help"])
        positional = re.findall(r"^(?:│| ) ([A-Z]+)\b", out.getvalue(), flags=re.MULTILINE)
        options = re.findall(r"^(?:│| ) (?:-\w(?: [A-Z]+)?, )?(--[a-z]+[a-z-]*)", out.getvalue(), flags=re.MULTILINE)
        yield " ".join([name, *positional])
        yield from (f"    {option}" for option in options if option != "--help")


if __name__ == "__main__":
    text = ["# What others may rely on; see docs/compatibility.md. Made by: python tests/test_public_api.py\n"]
    text += [f"\n[{section}]\n" + "".join(f"{line}\n" for line in described(section)) for section in [*PUBLIC, COMMANDS]]
    FILE.write_text("".join(text))
