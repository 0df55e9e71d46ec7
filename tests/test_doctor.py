import io
import json
import subprocess
import sys
from importlib import metadata

import pytest
from rich.console import Console

from actiongap import doctor
from actiongap.doctor import CHECKS, Check, Finding, as_json, examine, healthy, render

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
    asked = []
    findings = examine(progress=lambda name, part: asked.append(name))
    assert [finding.name for finding in findings] == [check.name for check in CHECKS] == asked
    assert healthy(findings), [finding for finding in findings if not finding.ok]
    for finding in findings:
        assert finding.detail
        assert "\n" not in finding.detail
        assert finding.ok == (finding.remedy == "")
    text = printed(findings)
    for finding in findings:
        assert finding.name in text
        assert finding.detail in text
        assert finding.remedy in text
    assert json.loads(json.dumps(as_json(findings)))["healthy"] is True


def test_every_declared_dependency_and_extra_is_checked():
    requirements = metadata.requires("actiongap") or []
    core = {requirement.partition(">=")[0] for requirement in requirements if ";" not in requirement}
    assert core <= {check.name for check in CHECKS if check.required}
    extras = set(metadata.metadata("actiongap").get_all("Provides-Extra") or ()) - {"all", "dev"}
    assert {f"extra {extra}" for extra in extras} <= {check.name for check in CHECKS}


@pytest.mark.parametrize(("extra", "module"), EXTRAS.items())
def test_a_missing_extra_is_explained_and_not_fatal(monkeypatch, extra, module):
    monkeypatch.setitem(sys.modules, module, None)
    (finding,) = examine(only(f"extra {extra}"))
    assert not finding.ok
    assert f"{module} is not installed; needed for " in finding.detail
    assert finding.remedy == f"pip install 'actiongap[{extra}]'"
    assert healthy([finding])
    text = printed([finding])
    assert finding.detail in text
    assert finding.remedy in text
    assert "Everything required works." in text


@pytest.mark.parametrize(("extra", "part"), [("jax", "optax"), ("sb3", "sb3_contrib")])
def test_a_partially_installed_extra_is_explained(monkeypatch, extra, part):
    pytest.importorskip(EXTRAS[extra])
    monkeypatch.setitem(sys.modules, part, None)
    (finding,) = examine(only(f"extra {extra}"))
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
    (finding,) = examine(only(f"extra {extra}"))
    assert not finding.ok
    assert finding.detail.startswith(reason)
    assert "\n" not in finding.detail
    assert finding.remedy == f"pip install --force-reinstall 'actiongap[{extra}]'"
    assert finding.detail in printed([finding])


@pytest.mark.parametrize("name", ["numpy", "scipy", "numba", "array-api-compat", "tyro", "rich", "safetensors", "matplotlib", "gymnasium"])
def test_a_missing_core_dependency_is_fatal(monkeypatch, name):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, name.replace("-", "_"), None)
        findings = examine(only(name))
    assert not healthy(findings)
    assert findings[0].required
    assert findings[0].remedy == "pip install actiongap"
    assert "Something required does not work" in printed(findings)


def test_an_old_python_is_reported(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", (3, 9, 1, "final", 0))
        (finding,) = examine(only("python"))
    assert not healthy([finding])
    assert "Python 3.9.1 is older than 3.11" in finding.detail


@pytest.mark.parametrize(
    ("version", "ok"), [("1.26.4", False), ("2.0.9", False), ("2.1", True), ("2.1.0rc1", True), ("10.0+local.3", True)]
)
def test_versions_are_compared_as_numbers_with_the_declared_minimum(monkeypatch, version, ok):
    monkeypatch.setattr(metadata, "version", lambda distribution: version)
    monkeypatch.setattr(metadata, "requires", lambda distribution: ["numpy-extras>=9", "numpy>=2.1"])
    (finding,) = examine(only("numpy"))
    assert finding.ok is ok
    assert ok or f"numpy {version} is older than 2.1" in finding.detail


def test_a_probe_that_computes_wrongly_is_reported(monkeypatch):
    z3 = pytest.importorskip("z3")
    monkeypatch.setattr(z3.Solver, "check", lambda self: z3.sat)
    (finding,) = examine(only("extra proof"))
    assert not finding.ok
    assert "both above and below 1" in finding.detail


def test_a_full_disk_is_reported_but_not_fatal(monkeypatch):
    monkeypatch.setattr(doctor, "ENOUGH_DISK", float("inf"))
    (finding,) = examine(only("disk space"))
    assert not finding.ok
    assert "GB are free in" in finding.detail
    assert healthy([finding])


def test_temporary_files_that_cannot_be_written_are_fatal(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.tempfile, "tempdir", str(tmp_path / "nowhere"))
    (finding,) = examine(only("temporary files"))
    assert not healthy([finding])
    assert "TMPDIR" in finding.remedy


def test_programs_are_found_on_the_path(monkeypatch, tmp_path):
    name = "chromium"
    monkeypatch.setenv("PATH", str(tmp_path))
    (finding,) = examine(only(name))
    assert not finding.ok
    assert f"{name} is not on the PATH" in finding.detail
    assert healthy([finding])
    program = tmp_path / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert examine(only(name)) == [Finding(name, True, False, str(program), "")]


def test_keyboard_interrupts_propagate():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        examine([Check("slow", interrupted, "waiting", "wait")])


def test_importing_doctor_loads_no_heavy_packages():
    script = (
        "import sys, actiongap.doctor; print(sorted({'numpy', 'numba', 'scipy', 'matplotlib', 'jax', 'torch', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
