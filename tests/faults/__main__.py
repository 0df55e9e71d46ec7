"""Attack the package, and print what was tried and what came of it: `python -m tests.faults`.

Runs every test of this folder, and the tests elsewhere that attack it too, in full. With `--out DIR`, the table is also written to
`DIR/table.txt`, and the skipped and failed cases are named in it. Other arguments go to pytest, such as `--most 20` for fewer cases.
"""

from __future__ import annotations

import argparse
import platform
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FAMILIES = {
    "tests/faults/test_canary.py": "code that a file names is not run",
    "tests/test_trust.py": "trust, and where it is needed",
    "tests/faults/test_foreign_folders.py": "folders of others",
    "tests/faults/test_kills.py": "kills and signals after progress",
    "tests/lab/test_processes.py": "kills of launchers and workers",
    "tests/faults/test_tampering.py": "damaged files and folders",
    "tests/lab/test_store.py": "damaged runs, full disks, locks",
    "tests/faults/test_errors.py": "errors and kills at the n-th operation, small file systems",
    "tests/faults/test_bad_invocations.py": "bad invocations",
    "tests/faults/test_wrong_operators.py": "wrong operators on every engine",
    "tests/faults/test_injection.py": "injected text, in Chromium",
    "tests/lab/test_ray.py": "Ray: worker, node, launcher and head killed",
    "tests/faults/test_memory.py": "memory over 200 runs",
}
"""The modules of tests, and what they attack."""
PACKAGES = ("actiongap", "numpy", "numba", "jax", "ray", "rich", "tyro", "pytest")


@dataclass
class Family:
    """The outcome of the tests in a module."""

    tests: int = 0
    cases: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    notes: list[str] = field(default_factory=list)


class Tally:
    """Counts tests, and the cases in them, by family."""

    def __init__(self) -> None:
        self.families = {name: Family() for name in FAMILIES}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test once, by its last word: a failure, a reason to skip it, or its success."""
        family = self.families.get(report.nodeid.partition("::")[0])
        if family is None or (report.when != "call" and report.passed):
            return
        given: dict[str, Any] = dict(report.user_properties)
        name = report.nodeid.partition("::")[2]
        if hasattr(report, "wasxfail"):
            family.skipped[f"expected to fail: {report.wasxfail}"] += 1
            return
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            family.skipped[reason.removeprefix("Skipped: ")] += 1
            return
        family.tests += 1
        family.cases += given.get("cases", 1)
        family.notes += [given["note"]] if "note" in given else []
        if report.failed:
            family.failed += [f"{name}: {case}" for case in given.get("failed", [])] or [name]

    def table(self) -> str:
        """The counts, then the names of what was skipped and of what failed."""
        rows: list[tuple[str, ...]] = [("family", "tests", "cases", "failed", "skipped")]
        for name, family in self.families.items():
            counts = (family.tests, family.cases, len(family.failed), sum(family.skipped.values()))
            rows.append((FAMILIES[name], *(f"{count:,}" for count in counts)))
        totals = [sum(int(row[k].replace(",", "")) for row in rows[1:]) for k in range(1, 5)]
        rows.append(("all", *(f"{total:,}" for total in totals)))
        widths = [max(len(row[k]) for row in rows) for k in range(5)]
        lines = ["  ".join([row[0].ljust(widths[0]), *(row[k].rjust(widths[k]) for k in range(1, 5))]) for row in rows]
        lines[1:1] = lines[-1:-1] = ["-" * len(lines[0])]
        for title, of in (("Notes", "notes"), ("Skipped", "skipped"), ("Failed", "failed")):
            found = [(FAMILIES[name], entry) for name, family in self.families.items() for entry in getattr(family, of)]
            lines += ["", f"{title}:"] if found else []
            for family_name, entry in found:
                count = f" ({self.skipped_of(family_name)[entry]})" if of == "skipped" else ""
                lines.append(f"- {family_name}: {entry}{count}")
        return "\n".join(lines) + "\n"

    def skipped_of(self, title: str) -> dict[str, int]:
        """How many tests of a family were skipped for each reason."""
        return next(family.skipped for name, family in self.families.items() if FAMILIES[name] == title)


def surroundings() -> str:
    """The commit, the versions and the machine, a line each."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} not installed")
    tools = [f"{tool} {'found' if shutil.which(tool) else 'not found'}" for tool in ("strace", "chromium")]
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"commit {commit or 'unknown'}\n{datetime.now(UTC):%Y-%m-%d}\n{system}; {', '.join(found)}\n{', '.join(tools)}\n"


def main() -> int:
    """Run the tests, print the table, and exit as pytest does."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, help="a folder to write table.txt to")
    parser.add_argument("--only", default="", help="families whose module has this in its name")
    parser.add_argument("--short", action="store_true", help="only what make test runs: a few cases of each")
    options, rest = parser.parse_known_args()
    tally = Tally()
    modules = [name for name in FAMILIES if options.only in name]
    code = pytest.main(
        [*(str(ROOT / name) for name in modules), *(["--long"] * (not options.short)), f"--rootdir={ROOT}", *rest], plugins=[tally]
    )
    command = shlex.join(["python", "-m", "tests.faults", *sys.argv[1:]])
    table = f"{command}\n{surroundings()}\n{tally.table()}"
    print(table)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "table.txt").write_text(table)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
