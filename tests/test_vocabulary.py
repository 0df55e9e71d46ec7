"""Words that `vocabulary.txt` lists are not identifiers, fields, modules or help texts of this project any more."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Banned(NamedTuple):
    """A line of the list."""

    kind: str
    pattern: str
    paths: tuple[str, ...]
    replacement: str

    def applies_to(self, path: str) -> bool:
        if any(path.startswith(prefix[1:]) for prefix in self.paths if prefix.startswith("!")):
            return False
        return any(prefix == "all" or path.startswith(prefix) for prefix in self.paths)

    def matches(self, name: str) -> bool:
        if self.kind == "word":
            return any(re.fullmatch(self.pattern, part.lower()) for part in PARTS.findall(name))
        return re.fullmatch(self.pattern, name) is not None or re.fullmatch(self.pattern, name.lower()) is not None


def banned() -> list[Banned]:
    """The lines of the list."""
    lines = [line.split(maxsplit=3) for line in (ROOT / "tests" / "vocabulary.txt").read_text().splitlines() if line and line[0] != "#"]
    return [Banned(kind, pattern, tuple(paths.split(",")), replacement) for kind, pattern, paths, replacement in lines]


LIST = banned()
FILES = [file for folder in ("src", "tests", "benchmarks", "examples", "tools") for file in sorted((ROOT / folder).rglob("*.py"))]


def names(source: str) -> set[str]:
    """The identifiers in a program."""
    return {token.string for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type == tokenize.NAME}


def fields(source: str) -> set[str]:
    """The fields that classes of a program declare."""
    classes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    declared = [node.target for body in classes for node in body.body if isinstance(node, ast.AnnAssign)]
    return {target.id for target in declared if isinstance(target, ast.Name)}


def bound(source: str) -> set[str]:
    """The identifiers that a program assigns, takes as arguments or defines."""
    nodes = list(ast.walk(ast.parse(source)))
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return assigned | arguments | {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def found(path: str, source: str) -> Iterator[tuple[str, str]]:
    """What a program has of the list: each name, with what to say instead."""
    seen = {"word": names(source), "field": fields(source), "bound": bound(source), "module": set(Path(path).with_suffix("").parts)}
    seen["name"] = seen["word"]
    for line in LIST:
        for name in sorted(seen.get(line.kind, ())):
            if line.applies_to(path) and line.matches(name):
                yield name, line.replacement


def helped(text: str) -> Iterator[tuple[str, str]]:
    """What a help text has of the list: each word or phrase, with what to say instead."""
    for line in LIST:
        if line.kind in ("word", "phrase") and ("all" in line.paths or "help" in line.paths):
            for word in re.findall(rf"\b(?:{line.pattern})\b", " ".join(text.split())):
                yield f"help: {word}", line.replacement


@pytest.mark.parametrize("folder", sorted({str(file.parent.relative_to(ROOT)) for file in FILES}))
def test_identifiers_are_the_words_of_the_field(folder):
    files = {str(file.relative_to(ROOT)): file for file in FILES if str(file.parent.relative_to(ROOT)) == folder}
    uses = [(path, *use) for path, file in files.items() for use in found(path, file.read_text())]
    assert [f"{path}: {name} (say: {instead})" for path, name, instead in uses] == []


def test_help_texts_are_in_the_words_of_the_field(run):
    from actiongap.cli import COMMANDS
    from actiongap.lab.experiment import KINDS

    commands = [[], *([name] for name in COMMANDS), *(["sweep", kind] for kind in KINDS)]
    uses = [(command, *use) for command in commands for use in helped(run(*command, "--help")[1])]
    assert [f"{' '.join(command)}: {word} (say: {instead})" for command, word, instead in uses] == []


@pytest.mark.parametrize(
    ("path", "source", "uses"),
    [
        ("src/actiongap/a.py", "load_crews = 1", 1),
        ("src/actiongap/dqn/a.py", "class FilmReader: pass", 1),
        ("src/actiongap/render/a.py", "class FilmReader: pass", 0),
        ("src/actiongap/dqn/config.py", "class A:\n    rate: float = 1.0", 1),
        ("src/actiongap/dqn/config.py", "rate: float = 1.0", 0),
        ("src/actiongap/lockstep.py", "", 1),
        ("src/actiongap/dqn/a.py", "for round in range(3): pass", 1),
        ("src/actiongap/dqn/a.py", "def step(state, round): pass", 1),
        ("src/actiongap/dqn/a.py", "x = round(1.5)", 0),
        ("src/actiongap/paper/a.py", "SETTING_FIELDS = 1", 1),
        ("src/actiongap/a.py", "'a crew in a text'", 0),
        ("src/actiongap/a.py", "screw = description = 1", 0),
    ],
)
def test_what_counts_as_a_use(path, source, uses):
    assert len(list(found(path, source))) == uses


def test_every_line_of_the_list_is_well_formed():
    for line in LIST:
        assert line.kind in ("word", "name", "field", "bound", "module", "phrase")
        assert line.replacement
        re.compile(line.pattern)
