"""The tutorial runs from top to bottom, with marimo and as a Jupyter notebook, and what it computes is what its text says."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"


def load(path: Path) -> Any:
    """Load a program as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


making = load(ROOT / "docs" / "making" / "notebook.py")


def run_marimo() -> dict[str, Any]:
    """What the cells of the marimo notebook define."""
    pytest.importorskip("marimo", reason="marimo is not installed: pip install 'actiongap[notebook]'")
    return load(making.SOURCE).app.run()[1]


def run_jupyter() -> dict[str, Any]:
    """What the cells of the Jupyter notebook define, run in order as Jupyter does."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    return names


@pytest.fixture(scope="module", params=[run_jupyter, run_marimo], ids=["jupyter", "marimo"])
def defined(request):
    """All that the cells define."""
    pytest.importorskip("z3", reason="z3 is not installed: pip install 'actiongap[proof]'")
    import matplotlib

    matplotlib.use("Agg")
    return request.param()


def test_the_notebook_is_what_the_program_writes():
    assert NOTEBOOK.read_text(encoding="utf-8") == making.text(), "renew the notebook with: python docs/making/notebook.py"


def test_the_notebook_needs_no_marimo_and_has_the_text():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any("marimo" in line or "mo." in line for cell in cells if cell["cell_type"] == "code" for line in cell["source"])
    assert "".join(cells[1]["source"]).startswith("# The action gap\n")
    assert len({cell["id"] for cell in cells}) == len(cells)


@pytest.mark.long
def test_gaps_are_those_of_the_closed_forms(defined):
    gaps = {name: found.gaps[0, 0] for name, found in defined["solutions"].items()}
    expected = {"bellman": 0.1, "consistent": 0.1 / 0.55, "al:0.5": 0.2, "al:0.9": 1.0}
    assert {name: gaps[name] for name in expected} == pytest.approx(expected)
    assert defined["chosen"] == pytest.approx(0.2)


@pytest.mark.long
def test_wider_gaps_hide_less_under_noise(defined):
    mistakes = defined["mistakes"]
    assert all(np.all(np.diff([mistakes[name][k] for name in ("bellman", "consistent", "al:0.5", "al:0.9")]) < 0) for k in (6, 12, 18))


@pytest.mark.long
def test_one_operator_is_proved_and_the_other_refuted(defined):
    verdicts = defined["verdicts"]
    assert verdicts["mine"].optimality_preserving is True
    assert verdicts["too_greedy"].optimality_preserving is False


@pytest.mark.long
def test_the_garnet_keeps_its_policy_and_widens_its_gaps(defined):
    assert all(defined["same"].values())
    assert all((found.gaps >= defined["usual"].gaps - 1e-7).all() for found in defined["wider"].values())


@pytest.mark.long
def test_noisy_rewards_mislead_a_strong_operator_more(defined):
    learned = defined["learned"]
    assert np.mean(learned["al:0.9"]) > np.mean(learned["bellman"]) + 0.1


@pytest.mark.long
def test_the_car_arrives(defined):
    assert all(found.outcomes["goal"].value == 1.0 for found in defined["evaluations"].values())


@pytest.mark.long
def test_four_pictures_are_shown(defined):
    assert sum(type(value).__name__ == "Figure" for value in defined.values()) == 4
