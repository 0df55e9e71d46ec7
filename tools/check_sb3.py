"""Run the DQN and QR-DQN tests of Stable-Baselines3 and sb3-contrib with our classes in place of theirs, and compare.

    python tools/check_sb3.py                    # the installed packages with operator bellman; some minutes
    python tools/check_sb3.py --operator al:0.9

Needs the extra sb3 and pytest. The tests come from the packages' source distributions, which pip downloads. Each is run with the original
class and with ours, and must have the same outcome.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from xml.etree import ElementTree

PACKAGES = {"stable_baselines3": "DQN", "sb3_contrib": "QRDQN"}
"""The packages, and their classes that we replace."""
SWAP = """
import importlib, inspect, os

PACKAGE, NAME, OPERATOR = (os.environ[name] for name in ("PACKAGE", "CLASS", "OPERATOR"))
if OPERATOR:
    from actiongap import sb3
    from actiongap.sb3 import OperatorAgent

    OperatorAgent.__init__.__kwdefaults__["operator"] = OPERATOR
    for module in (PACKAGE, f"{PACKAGE}.{NAME.lower()}", f"{PACKAGE}.{NAME.lower()}.{NAME.lower()}"):
        setattr(importlib.import_module(module), NAME, getattr(sb3, NAME))


def pytest_collection_modifyitems(items):
    def uses_class(item):
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        agents = [value for value in values if inspect.isclass(value) and hasattr(value, "learn")]
        return any(agent.__name__ == NAME for agent in agents) if agents else NAME in inspect.getsource(item.function)

    items[:] = [item for item in items if uses_class(item)]
"""
"""A pytest plugin that replaces their class by ours before any test is imported, and deselects all other tests."""


def main() -> int:
    """Run the tests, print the differences, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operator", default="bellman", help="the operator of our agents")
    options = parser.parse_args()
    differ = False
    for package, name in PACKAGES.items():
        try:
            release = version(package)
        except PackageNotFoundError:
            print(f"{package} is not installed: skipped")
            continue
        with tempfile.TemporaryDirectory(prefix="sb3-") as folder:
            tests = fetch(package, release, Path(folder))
            (Path(folder) / "swap.py").write_text(SWAP)
            theirs, ours = (outcomes(tests, Path(folder), package, name, operator) for operator in ("", options.operator))
        print(f"{package} {release}, {name}: original {count_text(theirs)}; ours with {options.operator} {count_text(ours)}")
        for test in sorted(theirs.keys() | ours.keys()):
            if theirs.get(test) != ours.get(test):
                print(f"  {test}: original {theirs.get(test)}, ours {ours.get(test)}")
                differ = True
            elif theirs[test] in ("failure", "error"):
                print(f"  {test}: {theirs[test]} with both")
        differ |= not theirs
    return int(differ)


def fetch(package: str, release: str, folder: Path) -> Path:
    """Download the tests of a release from its source distribution."""
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(folder)]
    subprocess.run([*download, f"{package}=={release}"], check=True)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return next(folder.glob(f"*{release}/tests"))


def outcomes(tests: Path, folder: Path, package: str, name: str, operator: str) -> dict[str, str]:
    """Return the outcome of every test of a class; with an operator, our class replaces theirs."""
    report = folder / f"{name}-{bool(operator)}.xml"
    environment = os.environ | {"PACKAGE": package, "CLASS": name, "OPERATOR": operator, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    # Their pytest settings need plugins that are not required here.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "swap", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "filterwarnings="]
    subprocess.run([*command, f"--junitxml={report}", "."], cwd=tests, env=environment, stdout=subprocess.DEVNULL, check=False)
    if not report.exists():
        return {}
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        outcome = [kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None]
        found[f"{case.get('classname')}::{case.get('name')}"] = outcome[0] if outcome else "passed"
    return found


def count_text(found: dict[str, str]) -> str:
    """How many tests ended how."""
    ends = list(found.values())
    return ", ".join(f"{ends.count(end)} {end}" for end in sorted(set(ends))) or "no tests"


if __name__ == "__main__":
    sys.exit(main())
