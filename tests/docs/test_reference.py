"""The API reference in the repository is what the docstrings say today."""

import importlib.util
from pathlib import Path

import actiongap

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "making" / "reference.py")
assert spec is not None
assert spec.loader is not None
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)


def test_the_page_is_what_the_docstrings_say():
    assert reference.PAGE.read_text() == reference.reference(), "renew the page with: python docs/making/reference.py"


def test_every_public_name_has_an_entry():
    page = reference.PAGE.read_text()
    missing = [name for name in actiongap.__all__ if f'<a id="ag.{name}">' not in page and f"`ag.{name}` is the module" not in page]
    assert missing == []


def test_methods_fields_and_parameters_are_listed():
    page = reference.PAGE.read_text()
    backup = page.partition('<a id="ag.Backup">')[2].partition("<a id=")[0]
    assert "- `next_gap`: E[V(x') - Q(x', a)]; 0 where x' is terminal" in backup
    solve = page.partition('<a id="ag.solve">')[2].partition("<a id=")[0]
    assert "- `tol`: " in solve
    assert ">>> " in solve
