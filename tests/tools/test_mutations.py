"""The list of planted bugs fits the code: each can be planted, and its tests exist. `tools/mutations.py` plants them and runs the tests."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

spec = importlib.util.spec_from_file_location("mutations", ROOT / "tools" / "mutations.py")
assert spec is not None
assert spec.loader is not None
mutations = importlib.util.module_from_spec(spec)
sys.modules["mutations"] = mutations
spec.loader.exec_module(mutations)


@pytest.mark.parametrize("mutation", mutations.MUTATIONS, ids=[mutation.name for mutation in mutations.MUTATIONS])
def test_bugs_can_be_planted(mutation):
    compile(mutations.mutated(mutation), mutation.file, "exec")
    assert [test for test in mutation.tests if not (ROOT / test).exists()] == []
    assert mutation.tests


def test_a_bug_that_no_longer_fits_is_refused():
    with pytest.raises(SystemExit, match="does not contain the line once: update the list"):
        mutations.mutated(mutations.MUTATIONS[0]._replace(old="nowhere"))
