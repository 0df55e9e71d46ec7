"""Plant known bugs, one at a time, and check that the tests notice each.

    python tools/mutations.py OUT.csv [--only NAME ...]

Every bug is planted in a copy of the working tree, and the tests named with it, which `make test` runs, are run until the first failure.
Writes a row per bug: the file, the change, whether it was caught, and the first test that failed. Exits with 1 if a bug was not caught.
The bugs of `golden` are also run against the golden record alone.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
COPIED = ("src", "tests", "tools", "benchmarks", "docs", "examples", "conftest.py", "pyproject.toml", "README.md", "CHANGELOG.md")
GOLDEN = ("tests/tools/test_golden.py",)


class Mutation(NamedTuple):
    """A bug: a text of one file, replaced by another, and the tests that should notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTATIONS = (
    # Errors that the golden record must notice on its own.
    Mutation("golden: sign", "operators.py", "lambda b: b.bellman - alpha * b.gap", "lambda b: b.bellman + alpha * b.gap", GOLDEN),
    Mutation(
        "golden: seed off by one", "lab/experiment.py", "default_rng([self.seed, chunk])", "default_rng([self.seed + 1, chunk])", GOLDEN
    ),
    Mutation(
        "golden: swapped action",
        "envs/minatar/breakout.py",
        "jnp.where(action == 3, 1, 0) - jnp.where(action == 1, 1, 0)",
        "jnp.where(action == 1, 1, 0) - jnp.where(action == 3, 1, 0)",
        GOLDEN,
    ),
    Mutation(
        "backup without self-loops", "operators.py", "bellman - gamma * stay * gap", "bellman - gamma * gap", ("tests/test_operators.py",)
    ),
    Mutation("terminal states not masked", "td.py", "alive = discount != 0", "alive = discount == discount", ("tests/test_td.py",)),
    Mutation(
        "certified error without the horizon",
        "mdp/stopping.py",
        "error = ((high - low) / 2 if self.shifted else size) / (1 - self.gamma) + rounded",
        "error = ((high - low) / 2 if self.shifted else size) + rounded",
        ("tests/mdp/test_solve.py", "tests/test_theorem.py"),
    ),
    Mutation(
        "prover ignores the gap in condition 2",
        "proof/conditions.py",
        "self.backup.bellman - self.backup.gap - self.value",
        "self.backup.bellman - 2 * self.backup.gap - self.value",
        ("tests/proof",),
    ),
    Mutation(
        "episodes share their noise",
        "planning/noise.py",
        "x = (x * constants.second) & constants.mask",
        "x = x & constants.mask",
        ("tests/planning",),
    ),
    Mutation(
        "replay buffer samples the row being overwritten",
        "dqn/replay.py",
        "return n - 1, filled",
        "return n - 1, filled + 1",
        ("tests/dqn/test_population.py",),
    ),
    Mutation(
        "target from the online network",
        "dqn/agent.py",
        "q_tm1, q_t = (self.q_values(agent.learner.target, x)",
        "q_tm1, q_t = (self.q_values(agent.learner.online, x)",
        ("tests/dqn",),
    ),
    Mutation(
        "rows after the checkpoint are kept on resume",
        "lab/store.py",
        "self._rows, self._digest = self._open_rows(found.rows)",
        "self._rows, self._digest = self._open_rows(found.rows + 1)",
        ("tests/lab/test_batches.py", "tests/lab/test_store.py"),
    ),
    Mutation(
        "names in pages are not escaped", "reporting/html.py", "return html.escape(clean(text))", "return clean(text)", ("tests/reporting",)
    ),
    Mutation(
        "an untrusted file may name code",
        "_user_code.py",
        "if not trust and names_code(values):",
        "if not trust and names_code(values) and False:",
        ("tests/test_trust.py",),
    ),
)


def plant(mutation: Mutation, place: Path) -> None:
    """Copy the working tree, and plant the bug."""
    for name in COPIED:
        found = ROOT / name
        (shutil.copytree if found.is_dir() else shutil.copy)(found, place / name)
    (place / "src" / "actiongap" / mutation.file).write_text(mutated(mutation), encoding="utf-8")


def mutated(mutation: Mutation) -> str:
    """Return the text of the file with the bug."""
    text = (ROOT / "src" / "actiongap" / mutation.file).read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        raise SystemExit(f"{mutation.name}: {mutation.file} does not contain the line once: update the list")
    return text.replace(mutation.old, mutation.new)


def first_failure(mutation: Mutation) -> str:
    """Return the first test that fails with the bug, or an empty string."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        plant(mutation, place)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutation.tests]
        env = {**os.environ, "PYTHONPATH": str(place / "src")}
        done = subprocess.run(command, cwd=place, env=env, check=False, capture_output=True, text=True)
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else ""


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path, help="CSV file to write")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only bugs whose names contain one of these")
    given = parser.parse_args()
    chosen = [each for each in MUTATIONS if not given.only or any(name in each.name for name in given.only)]
    missed = 0
    with given.out.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("bug", "file", "before", "after", "caught", "first failing test"))
        for mutation in chosen:
            test = first_failure(mutation)
            missed += not test
            writer.writerow((mutation.name, mutation.file, mutation.old, mutation.new, "yes" if test else "no", test))
            stream.flush()
            print(f"{mutation.name}: {test or 'NOT CAUGHT'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
