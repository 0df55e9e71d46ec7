"""The numbers of the package equal the records in `golden/`, within the tolerance between machines."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROGRAM, RECORDS = ROOT / "tools" / "golden.py", ROOT / "tests" / "golden"

spec = importlib.util.spec_from_file_location("golden", PROGRAM)
assert spec is not None
assert spec.loader is not None
golden = importlib.util.module_from_spec(spec)
sys.modules["golden"] = golden
spec.loader.exec_module(golden)

QUICK, FULL = ([part.name for part in golden.selected_sections([], quick)] for quick in (True, False))


def recorded(file: Path, *options: str) -> dict[str, np.ndarray]:
    done = subprocess.run([sys.executable, PROGRAM, "record", file, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return golden.read(file)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("golden") / "quick.npz", "--quick")


@pytest.fixture(scope="module")
def rest(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("golden") / "rest.npz", "--only", *(f"={name}" for name in FULL if name not in QUICK))


def part_of(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The arrays of a section and of none whose name is longer."""
    longer = [other for other in FULL if other.startswith(f"{name}/")]
    mine = {key: value for key, value in arrays.items() if key.startswith(f"{name}/")}
    return {key: value for key, value in mine.items() if not any(key.startswith(f"{other}/") for other in longer)}


def check(arrays: dict[str, np.ndarray], name: str) -> None:
    expected = part_of(golden.read(RECORDS / "golden.npz"), name)
    assert expected
    found = golden.differences(expected, part_of(arrays, name), tolerant=True)
    assert not found, "\n".join(f"{key}: {how}" for key, how in found.items())


@pytest.mark.parametrize("name", QUICK)
def test_numbers_equal_the_golden_record(name, quick):
    check(quick, name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in FULL if name not in QUICK])
def test_all_numbers_equal_the_golden_record(name, rest):
    check(rest, name)


def test_records_hold_exactly_the_catalogue():
    keys = golden.read(RECORDS / "golden.npz")
    assert {key for name in FULL for key in part_of(keys, name)} == set(keys)
    assert (RECORDS / "golden.npz").stat().st_size < 2e6


def test_every_name_is_found():
    for key in golden.NAMES:
        golden.resolve(key)


def test_records_round_trip(tmp_path):
    arrays = {
        "a/float": np.array([[1.5, np.nan], [-0.0, np.inf]]),
        "a/single": np.array([1, 2], np.float32),
        "a/texts": np.array(["one", "three"]),
        "b/text": np.array("x"),
        "b/truth": np.array([True, False]),
        "c/empty": np.zeros((0, 3), np.uint8),
        "c/number": np.array(7),
    }
    golden.write(tmp_path / "a.npz", arrays)
    assert golden.differences(arrays, golden.read(tmp_path / "a.npz"), tolerant=False) == {}


@pytest.mark.parametrize(
    ("one", "other", "exact", "tolerant"),
    [
        (np.array([1.0, 2.0]), np.array([1.0, 2.0]), False, False),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), False, False),
        (np.array([1.0, np.nan]), np.array([1.0, 0.0]), True, True),
        (np.array([1.0, np.inf]), np.array([1.0, 5.0]), True, True),
        (np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-12]), True, False),
        (np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-6]), True, True),
        (np.array([0.0]), np.array([-0.0]), True, False),
        (np.array([1.0, 2.0], np.float32), np.array([1.0, 2.00001], np.float32), True, False),
        (np.array([1.0, 2.0], np.float32), np.array([1.0, 2.01], np.float32), True, True),
        (np.array([1, 2]), np.array([1, 3]), True, True),
        (np.array([1, 2]), np.array([1.0, 2.0]), True, True),
        (np.array([1, 2]), np.array([[1, 2]]), True, True),
        (np.array(["a"]), np.array(["b"]), True, True),
        (np.array([True]), np.array([False]), True, True),
    ],
)
def test_differences_are_seen(one, other, exact, tolerant):
    for how, seen in ((False, exact), (True, tolerant)):
        assert bool(golden.differences({"k": one}, {"k": other}, how)) == seen


def test_draws_are_exact_and_keys_are_counted():
    one, other = {"draws/u": np.array([0.5])}, {"draws/u": np.array([0.5 + 1e-12])}
    assert golden.differences(one, other, tolerant=True)
    assert golden.differences(one, {"new": np.array(1)}, tolerant=True) == {"draws/u": "missing", "new": "new"}


def test_exceptions_are_for_exact_comparisons(tmp_path, capsys):
    key = "statistics/wilson"
    assert golden.exception_for(key)
    for name, value in (("one", 0.5), ("rounded", 0.5 + 1e-15), ("wrong", 0.6)):
        golden.write(tmp_path / name, {key: np.array([value])})
    codes = {
        (other, tolerant): golden.compare(str(tmp_path / "one"), str(tmp_path / other), tolerant)
        for other in ("rounded", "wrong")
        for tolerant in (False, True)
    }
    assert codes == {("rounded", False): 0, ("rounded", True): 0, ("wrong", False): 0, ("wrong", True): 1}
    assert "allowed: SciPy" in capsys.readouterr().out


def test_the_newest_name_wins(monkeypatch):
    monkeypatch.setitem(golden.NAMES, "test.kind", ("math:floor", "math:ceil", "math:nothing", "nowhere.at.all:name"))
    assert golden.resolve("test.kind")(0.5) == 1
    monkeypatch.setitem(golden.FIELDS, "test.kind", ("old", ("newer", {True: "yes"}), "newest"))
    assert golden.get({"old": 1, "newer": 2}, "test.kind") == 2
    assert golden.keywords(lambda name: name in ("old", "newer"), {"test.kind": True}) == {"newer": "yes"}
    with pytest.raises(LookupError, match="append the new one"):
        golden.keywords(lambda name: False, {"test.kind": True})
