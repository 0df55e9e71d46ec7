"""Imports go down the layers of `pyproject.toml`, those inside functions and for typing included.

`import-linter` checks the order. It does not see module names in strings, so these occur in the registries alone.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1] / "src" / "actiongap"


def imports(path: Path) -> set[str]:
    """Modules of ours that a module imports, anywhere in its code."""
    tree = ast.parse(path.read_text())
    assert not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)), f"{path}: write imports in full"
    return imports_of(tree)


def imports_of(tree: ast.Module) -> set[str]:
    """Modules of ours that a program imports, or names in them."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
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


def test_imports_go_down_the_layers(monkeypatch):
    monkeypatch.chdir(ROOT.parents[1])
    assert lint_imports(no_cache=True) == 0


def module_graph(root: Path) -> dict[str, set[str]]:
    """Which modules each module imports; `__init__` of the whole stands above all of them."""
    names = {
        ".".join(("actiongap", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in root.rglob("*.py")
    }
    del names["actiongap"]
    # `from package import name` imports a module of that name, or else the package.
    return {
        name: {found if found in names else found.rpartition(".")[0] for found in imports(path)} - {name, "actiongap"}
        for name, path in names.items()
    }


def test_modules_do_not_import_each_other_in_cycles():
    list(TopologicalSorter(module_graph(ROOT)).static_order())


def test_packages_do_not_import_each_other_in_cycles():
    list(TopologicalSorter(package_graph(ROOT)).static_order())


def test_a_cycle_is_found(tmp_path):
    (tmp_path / "low").mkdir()
    (tmp_path / "low" / "one.py").write_text("def late():\n    from actiongap.high import two\n")
    (tmp_path / "high.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from actiongap.low.one import late\n")
    with pytest.raises(CycleError):
        list(TopologicalSorter(package_graph(tmp_path)).static_order())


CYCLES = {
    # The registry imports what it lists; the games use modules beside it.
    ("actiongap.envs.registry", "actiongap.envs.minatar"),
}
"""The imports that close a cycle of folders."""


def folder_graph(modules: dict[str, set[str]], without: Set[tuple[str, str]] = frozenset()) -> dict[str, set[str]]:
    """Which folders import each other, at any depth. A module that lies in none of them is a folder of its own."""

    def folder(name: str) -> str:
        parents = name.rpartition(".")[0]
        inside = any(other.startswith(f"{name}.") for other in modules)
        return name if inside or parents == "actiongap" else parents

    graph: dict[str, set[str]] = defaultdict(set)
    for name, found in modules.items():
        graph[folder(name)] |= {folder(other) for other in found if (name, other) not in without} - {folder(name)}
    return graph


def test_folders_do_not_import_each_other_in_cycles():
    list(TopologicalSorter(folder_graph(module_graph(ROOT), CYCLES)).static_order())


@pytest.mark.parametrize("edge", sorted(CYCLES))
def test_every_excepted_cycle_exists(edge):
    with pytest.raises(CycleError):
        list(TopologicalSorter(folder_graph(module_graph(ROOT), CYCLES - {edge})).static_order())


def test_a_cycle_of_folders_is_found(tmp_path):
    (tmp_path / "low" / "deep").mkdir(parents=True)
    (tmp_path / "low" / "one.py").write_text("def late():\n    from actiongap.low.deep import two\n")
    (tmp_path / "low" / "deep" / "two.py").write_text("import actiongap.low.three\n")
    for file in ("low/__init__.py", "low/three.py", "low/deep/__init__.py", "__init__.py"):
        (tmp_path / file).touch()
    modules = module_graph(tmp_path)
    list(TopologicalSorter(modules).static_order())
    with pytest.raises(CycleError):
        list(TopologicalSorter(folder_graph(modules)).static_order())


REGISTRIES = {"__init__.py", "lab/experiment.py", "paper/parts.py"}
"""Where modules are found by their names: public names, kinds of experiments, parts of the paper."""
EXCEPTIONS = {
    ("envs/__init__.py", "envs.bicycle_env"),
    ("envs/__init__.py", "envs.minatar.env"),
    ("lab/processes.py", "lab.worker"),
    ("lab/records.py", "lab.records"),
    ("interactive/episodes.py", "interactive"),
    ("interactive/page.py", "interactive"),
    ("reporting/html.py", "reporting"),
}
"""Other files that name a module, and which: docs/architecture.md lists them with the reasons."""


def named_modules(path: Path) -> set[str]:
    """Our modules that a string of a module names, docstrings excepted: a name by itself, or a program that imports it."""
    tree, found = ast.parse(path.read_text()), set()
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            # Sentences may mention a module; only a name by itself can be imported.
            found |= set(re.findall(r"^actiongap\.(\w[\w.]*)(?::\w+)?$", node.value))
            imported = {name.removeprefix("actiongap.") for name in imports_in(node.value)}
            found |= {name if is_module(name) else name.rpartition(".")[0] for name in imported}
    return {name for name in found if is_module(name)}


def is_module(name: str) -> bool:
    """Whether there is a module or a package of this name."""
    place = ROOT / name.replace(".", "/")
    return bool(name) and (place.is_dir() or place.with_suffix(".py").is_file())


def imports_in(text: str) -> set[str]:
    """Modules of ours that a text imports if it is a program."""
    try:
        return imports_of(ast.parse(text))
    except (SyntaxError, ValueError):
        return set()


def layers() -> list[set[str]]:
    [contract] = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [set(re.split(r" [|:] ", layer)) for layer in contract["layers"]]


def test_modules_are_named_in_strings_in_the_registries_alone_and_below_them():
    rank = {name: number for number, layer in enumerate(layers()) for name in layer}
    found = {(path.relative_to(ROOT).as_posix(), name) for path in ROOT.rglob("*.py") for name in named_modules(path)}
    assert {(place, name) for place, name in found if place not in REGISTRIES} == EXCEPTIONS
    for place, name in found:
        package, other = place.removesuffix(".py").split("/")[0], name.split(".")[0]
        assert other == package or rank[other] > rank.get(package, -1), f"{place} names actiongap.{name}, which is above it"


def test_exceptions_name_their_own_package_and_are_documented():
    text = " ".join((ROOT.parents[1] / "docs" / "architecture.md").read_text().split())
    for place, name in EXCEPTIONS:
        assert place.split("/")[0] == name.split(".")[0]
        assert f"`{place}`" in text


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("run('actiongap.lab.worker')", {"lab.worker"}),
        ("run('actiongap.lab.worker:main')", {"lab.worker"}),
        ("run('from actiongap.lab import worker; worker.main()')", {"lab.worker"}),
        ("run('from actiongap.lab.worker import main')", {"lab.worker"}),
        ("raise ValueError('take sin from actiongap.maths')", set()),
        ("'actiongap.lab.worker'", set()),
        ("run('actiongap.nothing')", set()),
    ],
)
def test_names_in_strings_are_found(tmp_path, source, names):
    (tmp_path / "a.py").write_text(source)
    assert named_modules(tmp_path / "a.py") == names


def test_public_names_come_from_modules_that_exist():
    from actiongap import _MODULES

    for module in _MODULES.values():
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or path.is_dir()


def walks() -> list[list[str]]:
    """The modules of each walk in docs/architecture.md, in order."""
    text = (ROOT.parents[1] / "docs" / "architecture.md").read_text()
    section = text.partition("## Five walks")[2].partition("\n## ")[0]
    return [re.findall(r"(?::| ->) `(\w+(?:/\w+)*)`", line) for line in section.splitlines() if line.startswith("- ")]


def test_walks_go_one_way():
    rank = {name: number for number, layer in enumerate(layers()) for name in layer}
    graph = module_graph(ROOT)
    assert len(walks()) == 5
    for walk in walks():
        names = [f"actiongap.{place.replace('/', '.')}" for place in walk]
        assert len(walk) > 8
        assert set(names) <= set(graph)
        levels = [rank[name.split(".")[1]] for name in names]
        assert levels == sorted(levels), walk
        for number, name in enumerate(names):
            assert not graph[name] & set(names[:number]), f"{name} imports a module before it"


def uses(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Which modules each module imports, or names in a string; who imports a registry also uses what it lists."""
    path = {name: ROOT / f"{name.removeprefix('actiongap.').replace('.', '/')}.py" for name in graph}
    named = {name: {f"actiongap.{other}" for other in named_modules(path[name])} for name in graph if path[name].is_file()}
    registries = {f"actiongap.{place.removesuffix('.py').replace('/', '.')}" for place in REGISTRIES}
    return {name: found.union(named.get(name, ()), *(named[other] for other in found & registries)) for name, found in graph.items()}


def test_every_arrow_of_a_walk_is_an_import():
    used = uses(module_graph(ROOT))
    wrong = []
    for walk in walks():
        names = [f"actiongap.{place.replace('/', '.')}" for place in walk]
        for number, name in enumerate(names[1:], 1):
            if not any(name in used[earlier] for earlier in names[:number]):
                wrong.append(f"{walk[0]} -> ... -> {walk[number]}: no module before it imports it, or a registry that lists it")
    assert not wrong, "\n".join(wrong)


def test_the_folders_of_tests_mirror_the_source():
    tests = ROOT.parents[1] / "tests"
    folders = {file.parent.relative_to(tests) for file in tests.rglob("test_*.py")}
    others = {Path("benchmarks"), Path("docs"), Path("faults"), Path("tools")}
    assert [str(folder) for folder in folders - others if not (ROOT / folder).is_dir()] == []
