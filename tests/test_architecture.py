"""Imports go one way between packages, those inside functions and for typing included."""

from __future__ import annotations

import ast
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "actiongap"


def imports(path: Path) -> set[str]:
    """Modules of ours that a module imports, anywhere in its code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("actiongap.")}


def package_graph(root: Path) -> dict[str, set[str]]:
    """Which packages and top-level modules each of them imports; `__init__` of the whole stands above all of them."""
    graph: dict[str, set[str]] = defaultdict(set)
    for path in root.rglob("*.py"):
        source = path.relative_to(root).with_suffix("").parts[0]
        graph[source] |= {name.split(".")[1] for name in imports(path)} - {source}
    graph.pop("__init__", None)
    return graph


def test_packages_do_not_import_each_other_in_cycles():
    list(TopologicalSorter(package_graph(ROOT)).static_order())


def test_a_cycle_is_found(tmp_path):
    (tmp_path / "low").mkdir()
    (tmp_path / "low" / "one.py").write_text("def late():\n    from actiongap.high import two\n")
    (tmp_path / "high.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from actiongap.low.one import late\n")
    with pytest.raises(CycleError):
        list(TopologicalSorter(package_graph(tmp_path)).static_order())
