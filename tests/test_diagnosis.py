import io
import json
import subprocess
import sys
from importlib import metadata

import pytest
from rich.console import Console

import actiongap
from actiongap import diagnosis
from actiongap.diagnosis import CHECKS, Check, Diagnosis, Finding, doctor, render

EXTRAS = {"jax": "jax", "proof": "z3", "torch": "torch", "atari": "ale_py", "cluster": "ray"}
EXTRAS |= {"sb3": "stable_baselines3", "notebook": "marimo", "docs": "mkdocs"}


def only(name):
    return [check for check in CHECKS if check.name == name]


def printed(findings):
    out = io.StringIO()
    render(findings, Console(file=out, width=400, color_system=None))
    return out.getvalue()


class Breaking:
    """An import hook under which importing one module raises."""

    def __init__(self, module, error):
        self.module, self.error = module, error

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            raise self.error


def break_import(monkeypatch, module, error):
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Breaking(module, error), *sys.meta_path])


def test_all_checks_run_and_required_parts_work():
    findings = doctor()
    assert [finding.name for finding in findings] == [check.name for check in CHECKS]
    assert findings.healthy, [finding for finding in findings if not finding.ok]
    for finding in findings:
        assert finding.detail
        assert "\n" not in finding.detail
        assert finding.ok == (finding.remedy == "")
    text = printed(findings)
    for finding in findings:
        assert finding.name in text
        assert finding.detail in text
        assert finding.remedy in text
    assert json.loads(json.dumps(findings.as_json()))["healthy"] is True


def test_every_declared_dependency_and_extra_is_checked():
    requirements = metadata.requires("actiongap") or []
    core = {requirement.partition(">=")[0] for requirement in requirements if ";" not in requirement}
    assert core <= {check.name for check in CHECKS if check.required}
    extras = set(metadata.metadata("actiongap").get_all("Provides-Extra") or ()) - {"all", "dev"}
    assert {f"extra {extra}" for extra in extras} <= {check.name for check in CHECKS}


@pytest.mark.parametrize(("extra", "module"), EXTRAS.items())
def test_a_missing_extra_is_explained_and_not_fatal(monkeypatch, extra, module):
    monkeypatch.setitem(sys.modules, module, None)
    (finding,) = doctor(only(f"extra {extra}"))
    assert not finding.ok
    assert f"{module} is not installed; needed for " in finding.detail
    assert finding.remedy == f"pip install 'actiongap[{extra}]'"
    assert Diagnosis([finding]).healthy
    text = printed(Diagnosis([finding]))
    assert finding.detail in text
    assert finding.remedy in text
    assert "Everything required works." in text


@pytest.mark.parametrize(("extra", "part"), [("jax", "optax"), ("sb3", "sb3_contrib")])
def test_a_partially_installed_extra_is_explained(monkeypatch, extra, part):
    pytest.importorskip(EXTRAS[extra])
    monkeypatch.setitem(sys.modules, part, None)
    (finding,) = doctor(only(f"extra {extra}"))
    assert finding.detail.startswith(f"{part} is not installed; needed for ")
    assert finding.remedy == f"pip install 'actiongap[{extra}]'"


class OtherError(BaseException):
    pass


@pytest.mark.parametrize(("extra", "module"), EXTRAS.items())
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("wrong [driver]\nand a long story"), "RuntimeError: wrong [driver];"),
        (ImportError(), "ImportError;"),
        (SystemExit(3), "SystemExit: 3;"),
        (OtherError("panic"), "OtherError: panic;"),
    ],
    ids=["driver", "silent", "exit", "panic"],
)
def test_a_broken_extra_is_one_line_with_a_reinstall_command(monkeypatch, extra, module, error, reason):
    break_import(monkeypatch, module, error)
    (finding,) = doctor(only(f"extra {extra}"))
    assert not finding.ok
    assert finding.detail.startswith(reason)
    assert "\n" not in finding.detail
    assert finding.remedy == f"pip install --force-reinstall 'actiongap[{extra}]'"
    assert finding.detail in printed(Diagnosis([finding]))


@pytest.mark.parametrize("name", ["numpy", "scipy", "numba", "array-api-compat", "tyro", "rich", "safetensors", "matplotlib", "gymnasium"])
def test_a_missing_core_dependency_is_fatal(monkeypatch, name):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, name.replace("-", "_"), None)
        findings = doctor(only(name))
    assert not findings.healthy
    assert findings[0].required
    assert findings[0].remedy == "pip install actiongap"
    assert "Something required does not work" in printed(findings)


def test_an_old_python_is_reported(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", (3, 9, 1, "final", 0))
        (finding,) = doctor(only("python"))
    assert not Diagnosis([finding]).healthy
    assert "Python 3.9.1 is older than 3.11" in finding.detail


@pytest.mark.parametrize(
    ("version", "ok"), [("1.26.4", False), ("2.0.9", False), ("2.1", True), ("2.1.0rc1", True), ("10.0+local.3", True)]
)
def test_versions_are_compared_as_numbers_with_the_declared_minimum(monkeypatch, version, ok):
    monkeypatch.setattr(metadata, "version", lambda distribution: version)
    monkeypatch.setattr(metadata, "requires", lambda distribution: ["numpy-extras>=9", "numpy>=2.1"])
    (finding,) = doctor(only("numpy"))
    assert finding.ok is ok
    assert ok or f"numpy {version} is older than 2.1" in finding.detail


def test_a_probe_that_computes_wrongly_is_reported(monkeypatch):
    z3 = pytest.importorskip("z3")
    monkeypatch.setattr(z3.Solver, "check", lambda self: z3.sat)
    (finding,) = doctor(only("extra proof"))
    assert not finding.ok
    assert "both above and below 1" in finding.detail


def test_a_full_disk_is_reported_but_not_fatal(monkeypatch):
    monkeypatch.setattr(diagnosis, "ENOUGH_DISK", float("inf"))
    (finding,) = doctor(only("disk space"))
    assert not finding.ok
    assert "GB are free in" in finding.detail
    assert Diagnosis([finding]).healthy


def test_temporary_files_that_cannot_be_written_are_fatal(monkeypatch, tmp_path):
    monkeypatch.setattr(diagnosis.tempfile, "tempdir", str(tmp_path / "nowhere"))
    (finding,) = doctor(only("temporary files"))
    assert not Diagnosis([finding]).healthy
    assert "TMPDIR" in finding.remedy


def test_programs_are_found_on_the_path(monkeypatch, tmp_path):
    name = "chromium"
    monkeypatch.setenv("PATH", str(tmp_path))
    (finding,) = doctor(only(name))
    assert not finding.ok
    assert f"{name} is not on the PATH" in finding.detail
    assert Diagnosis([finding]).healthy
    program = tmp_path / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert doctor(only(name)) == (Finding(name, True, False, str(program), ""),)


def test_keyboard_interrupts_propagate():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        doctor([Check("slow", interrupted, "waiting", "wait")])


def test_importing_doctor_loads_no_heavy_packages():
    heavy = {"numpy", "numba", "scipy", "matplotlib", "jax", "torch", "rich"}
    script = f"import sys, actiongap.diagnosis; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_diagnosis_shows_as_text_and_in_notebooks():
    found = Diagnosis([Finding("<a>", True, True, "1", ""), Finding("longer", False, True, "broken", "fix it")])
    assert (
        repr(found)
        == "ok      <a>     1\nfailed  longer  broken\nlonger: fix it\nSomething required does not work: see the remedies above."
    )
    assert "&lt;a&gt;" in found._repr_html_()
    assert "<a>" not in found._repr_html_()
    assert repr(Diagnosis()) == "Everything required works."


def test_the_command_prints_what_the_call_returns(run):
    found = actiongap.doctor()
    code, out, _ = run("doctor", "--json")
    shown = json.loads(out)
    assert code == (0 if found.healthy else 1)
    assert [finding["name"] for finding in shown["findings"]] == [finding.name for finding in found]
    assert shown["healthy"] == found.healthy
