"""What a release promises: one version everywhere, declared dependencies that are used, and extras that are asked for by name."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import actiongap
from actiongap._system import EXTRAS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_one_version_everywhere(run):
    version = actiongap.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert run("--version")[:2] == (0, f"actiongap {version}\n")
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (.+)$", citation, flags=re.MULTILINE) == [version]
    newest = re.findall(r"^## \[(\d.*?)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[0]
    assert newest == (version, *re.findall(r"^date-released: (.+)$", citation, flags=re.MULTILINE))


def test_one_licence_everywhere():
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert PROJECT["license"] == "MIT"
    assert PROJECT["license-files"] == ["LICENSE"]
    assert "license: MIT\n" in (ROOT / "CITATION.cff").read_text()
    assert "MIT licence" in (ROOT / "README.md").read_text()


def name(requirement: str) -> str:
    """The package that a requirement is about."""
    return re.split(r"[\[>;]", requirement)[0].lower().replace("_", "-")


def declared(extra: str) -> set[str]:
    """The packages of others that an extra declares."""
    return {name(requirement) for requirement in PROJECT["optional-dependencies"][extra]} - {"actiongap"}


def test_the_table_of_extras_is_what_the_package_declares():
    assert set(EXTRAS) == set(PROJECT["optional-dependencies"]) - {"all", "dev"}
    known = packages_distributions()
    for extra, (modules, purpose) in EXTRAS.items():
        packages = {found.lower().replace("_", "-") for module in modules for found in known.get(module, ())}
        # JAX's compiled half comes with it.
        assert packages - {"jaxlib"} <= declared(extra), extra
        assert purpose


def test_the_extra_all_contains_every_extra():
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert set(re.split(r"[\[\],]", everything)[1:-1]) == set(EXTRAS)


@pytest.mark.parametrize("extra", [None, *(extra for extra in EXTRAS if extra != "docs")])
def test_declared_dependencies_are_imported(extra):
    # Themes and plugins of the documentation are named in its settings alone.
    source = "".join(file.read_text() for folder in ("src", "examples") for file in (ROOT / folder).rglob("*.py"))
    requirements = {name(requirement) for requirement in PROJECT["dependencies"]} if extra is None else declared(extra)
    modules = {"pillow": "PIL", "z3-solver": "z3"}
    for package in requirements:
        module = modules.get(package, package.replace("-", "_"))
        assert re.search(rf"^\s*(import|from) {module}\b|\"{module}\"", source, flags=re.MULTILINE), package


def test_every_requirement_is_pinned_for_a_set_up_that_repeats():
    pins = {line.partition("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().splitlines()[1:]}
    wanted = {name(requirement) for requirement in PROJECT["dependencies"]}.union(*map(declared, PROJECT["optional-dependencies"]))
    assert wanted <= pins


COMMANDS = [
    ("jax", "jax", "train gym/CartPole-v1"),
    ("optax", "jax", "train minatar/breakout"),
    ("ale_py", "atari", "train atari/pong"),
    ("optax", "jax", "sweep train --out here"),
    ("z3", "proof", "prove al:0.9"),
    ("jax", "jax", "probe somewhere"),
    ("ray", "cluster", "sweep q-learning --ray auto --out here"),
    ("jax", "jax", "solve cake --engine jax"),
]
"""Short tests take every other one: each extra once."""


@pytest.mark.every(2)
@pytest.mark.parametrize(("module", "extra", "command"), COMMANDS, ids=[f"{command} without {module}" for module, _, command in COMMANDS])
def test_a_command_without_its_extra_is_one_sentence_that_names_it(module, extra, command, tmp_path):
    code = f"import sys; sys.modules[{module!r}] = None; from actiongap.cli import main; main({command.split()!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    # What is to be done may have been announced before.
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith("actiongap: ")
    assert sentence.endswith(f": pip install 'actiongap[{extra}]'")


def test_missing_modules_of_no_extra_raise(monkeypatch):
    import actiongap.cli

    def broken(arguments):
        raise ModuleNotFoundError("No module named 'nothing_of_ours'", name="nothing_of_ours")

    monkeypatch.setattr(actiongap.cli, "_parse", broken)
    monkeypatch.setenv(actiongap.cli.TRACEBACK, "1")
    with pytest.raises(ModuleNotFoundError, match="nothing_of_ours"):
        actiongap.cli.main(["solve", "cake"])


@pytest.mark.parametrize(
    "file", [*sorted((ROOT / ".github" / "workflows").glob("*.yml")), *ROOT.glob(".ci/run")], ids=lambda file: file.name
)
def test_continuous_integration_runs_make_targets_that_exist(file):
    text = file.read_text()
    targets = re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    called = re.findall(r"^(?: *- run: )?make (\S+)$", text, flags=re.MULTILINE)
    assert called
    assert set(called) <= set(targets)
    # Workflows have no other commands.
    assert len(called) >= len(re.findall(r"\brun:", text))


def test_continuous_integration_covers_every_version_of_python():
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert re.findall(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "ci.yml").read_text()) == [
        ", ".join(f'"{v}"' for v in declared)
    ]
