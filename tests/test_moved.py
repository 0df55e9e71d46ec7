"""`moved.csv` says where each test of version 0.1 is today, and whether `make test` runs it.

Columns: `before`, the test's address in version 0.1; `now`, its address today; `run`: `short`, `long`, `short (K of N cases)` or
`deleted: REASON`. The address of a test function is FILE::FUNCTION, and of an example in a docstring FILE::OBJECT.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
with (ROOT / "tests" / "moved.csv").open(newline="", encoding="utf-8") as stream:
    ROWS = list(csv.DictReader(stream))


@cache
def functions_of(path: str) -> dict[str, str]:
    """Test functions of a file, with the text of their markers and the file's."""
    tree = ast.parse((ROOT / path).read_text())
    whole = " ".join(ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {function.name: " ".join([whole, *map(ast.unparse, function.decorator_list)]) for function in functions}


@cache
def examples_of(path: str) -> set[str]:
    """Functions and classes of a file whose docstrings have examples. A function inside another is the module's."""
    module = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    found = set()

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.FunctionDef | ast.ClassDef):
                visit(child, name)
                continue
            address = f"{name}.{child.name}"
            if ">>>" in (ast.get_docstring(child) or ""):
                found.add(address)
            visit(child, address if isinstance(child, ast.ClassDef) else name)

    visit(ast.parse((ROOT / path).read_text()), module)
    return found


def exists(address: str) -> bool:
    path, _, name = address.partition("::")
    return (ROOT / path).is_file() and name in (functions_of(path) if path.startswith("tests/") else examples_of(path))


def expected_run(address: str, run: str) -> str:
    """What the column `run` must be by the markers; the number of cases is taken from it."""
    path, _, name = address.partition("::")
    if not path.startswith("tests/"):
        return "long" if f'"{name}"' in (ROOT / "tests" / "conftest.py").read_text() else "short"
    markers = functions_of(path)[name]
    if "marks=pytest.mark.long" in markers:
        # The cases are counted when they are collected.
        return run if re.fullmatch(r"short \(\d+ of \d+ cases\)", run) else "short (? of ? cases)"
    if "pytest.mark.long" in markers:
        return "long"
    cases = re.fullmatch(r"short \(\d+ of (\d+) cases\)", run)
    if every := re.search(r"pytest\.mark\.every\((\d+)\)", markers):
        return f"short ({math.ceil(int(cases[1]) / int(every[1])) if cases else '?'} of {cases[1] if cases else '?'} cases)"
    return "short"


def test_every_test_of_before_has_one_row():
    assert [before for before, times in Counter(row["before"] for row in ROWS).items() if times > 1] == []
    assert [row["before"] for row in ROWS] == sorted(row["before"] for row in ROWS)


def test_every_test_exists_or_has_the_reason_why_it_does_not():
    assert [row for row in ROWS if not (exists(row["now"]) if row["now"] else re.match("deleted: .", row["run"]))] == []


def test_the_run_column_agrees_with_the_markers():
    # A note may follow a semicolon.
    runs = {row["now"]: row["run"].partition(";")[0] for row in ROWS if exists(row["now"])}
    assert {now: run for now, run in runs.items() if run != expected_run(now, run)} == {}


COLLECT = """
import json, sys, pytest

class Plugin:
    def pytest_collection_finish(self, session):
        left_out = lambda item: any(str(mark.kwargs.get("reason")).startswith("long: ") for mark in item.iter_markers("skip"))
        found = [(str(item.path), getattr(item, "originalname", item.name), left_out(item)) for item in session.items]
        print("collected", json.dumps(found), sep="")

sys.exit(pytest.main(["--collect-only", "-qq", "-n0", "-p", "no:cacheprovider"], plugins=[Plugin()]))
"""


@pytest.mark.long
def test_the_run_column_counts_the_cases():
    done = subprocess.run([sys.executable, "-c", COLLECT], capture_output=True, text=True, check=True, cwd=ROOT)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("collected")]
    left_out = defaultdict(list)
    for path, name, skipped in json.loads(line.removeprefix("collected")):
        left_out[f"{Path(path).relative_to(ROOT)}::{name}"].append(skipped)
    wrong = {}
    for row in ROWS:
        if cases := re.search(r"\d+ of \d+", row["run"]):
            skipped = left_out[row["now"]]
            counted = f"{skipped.count(False)} of {len(skipped)}"
            if counted != cases[0]:
                wrong[row["now"]] = f"short ({counted} cases)"
    assert wrong == {}
