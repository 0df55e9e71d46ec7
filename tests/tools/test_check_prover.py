"""No false proof: random operators that the prover accepts reach V*, and it accepts none of their twins beyond a boundary."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

from actiongap.proof import decide

ROOT = Path(__file__).parents[2]

spec = importlib.util.spec_from_file_location("check_prover", ROOT / "tools" / "check_prover.py")
assert spec is not None
assert spec.loader is not None
tool = importlib.util.module_from_spec(spec)
sys.modules["check_prover"] = tool
spec.loader.exec_module(tool)

pytestmark = pytest.mark.filterwarnings("ignore::actiongap.operators.TheoryWarning")


def check(seed: int, counts: dict[str, int]) -> list[dict]:
    rows = [row for numbered in enumerate(tool.sample(seed, counts)) for row in tool.check_numbered(numbered)]
    assert tool.mistakes(rows) == []
    return rows


def test_a_few_random_operators():
    rows = check(7, {"between": 1, "averaged": 1, "drawn": 1})
    assert [bool(row["moved"]) for row in rows] == [False, True] * 3


@pytest.mark.long
def test_a_sample_of_random_operators():
    rows = check(11, {"between": 24, "averaged": 18, "discount": 8, "drawn": 6, "scheduled": 4})
    twins = [row for row in rows if row["moved"]]
    assert len(twins) == 60
    # The check would notice a false proof: most twins do miss V*.
    assert sum(row["error"] > tool.TOLERANCE for row in twins) > 30


def test_the_committed_rows_have_no_mistake():
    with gzip.open(ROOT / "results" / "prover" / "operators.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    accepted = [row for row in rows if not row["moved"]]
    twins = [row for row in rows if row["moved"]]
    assert len(accepted) >= 500
    assert len(twins) >= 500
    assert {row["optimality_preserving"] for row in accepted} == {"True"}
    assert "True" not in {row["optimality_preserving"] for row in twins}
    assert max(float(row["error"]) for row in accepted) <= tool.TOLERANCE
    assert set(Counter(row["theorem"] for row in accepted)) == {f"Theorem {number}" for number in (1, 2, 3, 4)}


def test_a_twin_is_beyond_the_boundary_by_its_backups():
    for inside, twin in tool.sample(3, {"between": 5, "averaged": 5, "discount": 5}):
        rng = tool.np.random.default_rng(0)
        assert not tool.is_outside(inside, rng)
        assert inside.formula != twin.formula


def test_a_false_proof_would_be_noticed():
    row = {"kind": "between", "formula": "b.bellman + 1", "moved": "z", "optimality_preserving": True, "error": 2.0}
    assert len(tool.mistakes([row])) == 2
    (operator,) = [tool.Candidate("between", "b.bellman + 1", "z").operator()]
    assert tool.worst_error(operator, tool.make_trial(0.4)) == pytest.approx(1 / 0.6)
    assert decide(operator).optimality_preserving is None
