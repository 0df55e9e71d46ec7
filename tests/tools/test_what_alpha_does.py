"""The identities of docs/what-alpha-does.md, and its numbers against the committed rows."""

from __future__ import annotations

import csv
import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]

spec = importlib.util.spec_from_file_location("what_alpha_does", ROOT / "tools" / "what_alpha_does.py")
assert spec is not None
assert spec.loader is not None
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)


def rows(name: str) -> list[dict[str, str]]:
    with gzip.open(ROOT / "results" / "alpha" / f"{name}.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("alpha", "eta"), [(0.9, 0.5), (0.5, 1.0), (0.99, 0.1)])
def test_alpha_is_a_learning_rate_where_there_is_no_future(alpha, eta):
    samples = np.random.default_rng(1).normal(size=(300, 2))
    al, bellman = tool.learn(samples, alpha, eta), tool.learn(samples, 0.0, eta * (1 - alpha))
    np.testing.assert_allclose(al[:, 0] - al[:, 1], (bellman[:, 0] - bellman[:, 1]) / (1 - alpha), atol=1e-9)
    np.testing.assert_array_equal(al.argmax(axis=1), bellman.argmax(axis=1))


def test_one_action_at_a_time_it_is_not():
    rng = np.random.default_rng(1)
    samples, chosen = rng.normal(size=(300, 2)), rng.integers(0, 2, 300)
    al, bellman = tool.learn(samples, 0.9, 0.5, chosen), tool.learn(samples, 0.0, 0.05, chosen)
    assert (al.argmax(axis=1) != bellman.argmax(axis=1)).any()


def test_the_greedy_action_is_the_winner_of_the_vote():
    found, _ = tool.vote()
    assert {row["same_greedy_action"] for row in found} == {1.0}


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, 0.3315), (0.5, 0.2661), (0.9, 0.0792)])
def test_the_closed_form_of_a_wrong_action(alpha, expected):
    assert tool.probability_wrong(0.1, 0.1, alpha) == pytest.approx(expected, abs=5e-5)


def test_simulated_rows_agree_with_the_closed_forms():
    for row in rows("wrong"):
        assert abs(float(row["simulated"]) - float(row["closed_form"])) <= 2 * float(row["interval"]) + 1e-4
    for row in rows("bias"):
        assert float(row["simulated"]) == pytest.approx(float(row["closed_form"]), abs=1e-3)
    for row in rows("geometric"):
        assert abs(float(row["simulated"]) - float(row["consistent"])) <= 2 * float(row["interval"])


def test_a_section_writes_its_rows_and_its_figure(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["what_alpha_does.py", "learning-rate", "--rows", str(tmp_path), "--images", str(tmp_path)])
    tool.main()
    assert "0.8580 of steps" in capsys.readouterr().out
    assert (tmp_path / "learning-rate.csv.gz").read_bytes() == (ROOT / "results" / "alpha" / "learning-rate.csv.gz").read_bytes()
    assert (tmp_path / "alpha-learning-rate.svg").read_text().startswith("<?xml")
