"""Reading never runs code that a file names.

A Python file is named in each value of each file that we read, in every form in which users name code, and each command and call that reads
is run. The Python file leaves a mark when it runs.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faults import archives, samples
from faults.commands import Ended, assert_plain, run_program

CANARY = """
import os
with open({mark!r}, "a") as file:
    file.write("it ran\\n")

def op(b):
    return b.bellman

def simulator():
    from actiongap.envs.classic import mountain_car
    return mountain_car()

class Own:
    pass

study = None
"""
FORMS = (
    "{folder}/canary.py:op",
    "canary.py:simulator",
    " canary.py:Own ",
    "canary.py",
    "canary:op",
    "gym/canary:CartPole-v1",
    " gym/canary:FrozenLake-v1",
    "gym/canary.py:op",
    "canary:CartPole-v1",
    "al:canary.py:op",
    "bicycle:fall=canary.py:op",
    "canary.py:op@0123abcd",
    "!!python/object/apply:canary.op []",
    "__import__('canary')",
)
START = """
import warnings
warnings.simplefilter("ignore")
from pathlib import Path
from actiongap.cli import main
import actiongap

def command(*words):
    try:
        main([str(word) for word in words])
    except SystemExit:
        pass

def call(function, *values):
    try:
        function(*values)
    except (ValueError, OSError, ModuleNotFoundError):
        pass
"""
CALLS = """
for given in {folders!r}:
    for function in (actiongap.read_runs, actiongap.load_agent, actiongap.load_agents):
        call(function, given)
    for file in sorted(Path(given).rglob("*.npz")):
        call(actiongap.load_policy, file)
        call(actiongap.load_mdp, str(file))
    for file in sorted(Path(given).rglob("config.json")):
        call(actiongap.load_study, file)
"""
COMMANDS = """
for given in {folders!r}:
    command("report", given, "--json")
    command("watch", given, "-o", "video.gif", "--seconds", "2", "--json")
    command("probe", given, "--json")
    command("probe", given, "--along", given, "-o", "probe.html")
    for file in sorted(Path(given).rglob("*.npz")):
        command("watch", file, "-o", "video.gif", "--seconds", "2", "--json")
        command("solve", file)
"""
SLOW = """
for file in sorted(Path("copies").rglob("begun/runs/*/config.json")):
    command("sweep", file, "--out", "swept", "--dry-run")
command("report", "copies", "-o", "page.html", "--figures", "figures", "--tensorboard", "events")
command("sweep", "q-learning", "--env", "cake", "--steps", "10", "--rows", "1", "--dry-run", "--rates", "copies", "--out", "other")
"""
PLACES = [
    *(("begun", name) for name in ("study.json", "config.json", "meta.json", "status.json", "metrics.jsonl", "0*.npz")),
    *(("plan", name) for name in ("config.json", "meta.json", "status.json", "metrics.jsonl", "times.json", "policy.npz", "0*.npz")),
]
"""Samples and their files."""


class Canary:
    """The Python file, and whether it ran."""

    def __init__(self, folder: Path):
        self.folder, self.mark = folder, folder / "mark"
        for name in ("canary.py", "op.py"):
            (folder / name).write_text(CANARY.format(mark=str(self.mark)))

    def ran(self) -> bool:
        return self.mark.exists()

    def read(self, server, code: str) -> Ended:
        """Run code where Python finds the canary, as a file and as a module. It must stay silent."""
        folder = str(self.folder)
        ended = server.run(cwd=self.folder, code=START + code, path=(folder,), PYTHONPATH=folder)
        assert not self.ran()
        assert_plain(ended)
        assert ended.code == 0, ended
        return ended


@pytest.fixture
def canary(place):
    return Canary(place)


def content_of(file: Path) -> Any:
    """The values in a file: of its JSON, of its first row, or of the header of its archive."""
    if file.suffix == ".npz":
        return archives.text_of(next(iter(archives.members(file).values())))
    return json.loads(file.read_text().splitlines()[0] if file.suffix == ".jsonl" else file.read_text())


def edit(file: Path, where: tuple[Any, ...], text: str) -> None:
    """Put a text in place of a value."""
    (archives.edit_header if file.suffix == ".npz" else archives.edit_json)(file, where, lambda value: text)


@pytest.mark.every(4)
@pytest.mark.parametrize(("sample", "name"), PLACES, ids=lambda value: value.replace("*", ""))
def test_a_name_in_any_field_of_a_run_runs_nothing(server, originals, cases, thorough, sample, name):
    file = min((originals / sample).rglob(name)).relative_to(originals)
    fields = list(archives.leaves(content_of(originals / file)))
    assert fields
    for form in cases.chosen(FORMS):
        with cases.case(form, len(fields)) as place:
            canary = Canary(place)
            folders = [place / "copies" / str(number) for number in range(len(fields))]
            for folder, where in zip(folders, fields, strict=True):
                samples.copy(originals, sample, folder)
                edit(folder / file, where, form.format(folder=place))
            # Every value is read by every call, and by every command in one of its forms.
            shown = [folder for number, folder in enumerate(folders) if (number + FORMS.index(form)) % len(FORMS) == 0]
            calls = CALLS.format(folders=[str(folder / sample) for folder in folders])
            commands = COMMANDS.format(folders=[str(folder / sample) for folder in shown])
            canary.read(server, calls + commands + (SLOW if thorough else ""))


@pytest.mark.every(5)
@pytest.mark.parametrize("field", ["kind", "env", "operator", "name", "title"])
def test_a_name_in_any_field_of_a_study_runs_nothing(server, canary, thorough, record_property, field):
    code = []
    for number, form in enumerate(FORMS):
        file = canary.folder / f"{number}.toml"
        text = {"kind": '"q-learning"', "env": '"cake"', "steps": "200", "rows": "4", field: json.dumps(form.format(folder=canary.folder))}
        file.write_text("".join(f"{name} = {value}\n" for name, value in text.items()))
        code.append(f"call(actiongap.load_study, {str(file)!r})")
        if thorough:
            code.append(f"command('sweep', {str(file)!r}, '--dry-run', '--out', 'swept')")
            code.append(f"command('sweep', {str(file)!r}, '--out', 'swept', '--workers', '1')")
    canary.read(server, "\n".join(code))
    record_property("cases", len(FORMS))


class Trap:
    """An object whose pickle calls the canary when it is loaded."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return exec, (f"open({str(self.mark)!r}, 'w').write('unpickled')",)


def pickles(mark: Path) -> dict[str, bytes]:
    """Pickles as files, and as arrays of objects."""
    trap = np.empty(1, object)
    trap[0] = Trap(mark)
    return {"pickle": pickle.dumps(Trap(mark)), "array": archives.array(trap, pickled=True)}


@pytest.mark.every(6)
@pytest.mark.parametrize("form", ["pickle", "array"])
@pytest.mark.parametrize(
    "name",
    [
        "policy.npz",
        "0*.npz",
        "mdp.npz",
    ],
)
def test_nothing_in_an_archive_is_unpickled(server, originals, canary, record_property, name, form):
    copied = canary.folder / "copies"
    samples.copy(originals, "plan", copied)
    samples.copy(originals, "mdp.npz", copied)
    file = min(copied.rglob(name))
    contents = archives.members(file)
    bomb = pickles(canary.mark)[form]
    folders = []
    for number, member in enumerate([*contents, "more.npy", "more.pkl", None]):
        folder = canary.folder / str(number)
        samples.copy(canary.folder, "copies", folder)
        strange = folder / "copies" / file.relative_to(copied)
        if member is None:
            strange.write_bytes(bomb)
        else:
            archives.write_members(strange, {**contents, member: bomb}, sealed=name == "policy.npz")
        folders.append(str(folder / "copies"))
    canary.read(server, CALLS.format(folders=folders) + COMMANDS.format(folders=folders))
    record_property("cases", len(folders))


SHADOWS = ("actiongap", "cake", "gymnasium", "jax", "json", "matplotlib", "numba", "numpy", "rich", "scipy", "sitecustomize", "tyro")


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ("report", ".", "-o", "page.html"),
        ("watch", "plan/policy.npz", "-o", "video.gif", "--seconds", "2"),
        ("probe", "."),
        ("sweep", "study.toml", "--dry-run", "--out", "swept"),
        ("solve", "mdp.npz"),
    ],
    ids=lambda words: words[0],
)
def test_modules_beside_the_files_are_not_imported(originals, canary, record_property, words):
    for name in ("study", "plan", "mdp.npz", "study.toml"):
        samples.copy(originals, name, canary.folder)
    for name in SHADOWS:
        (canary.folder / f"{name}.py").write_text(CANARY.format(mark=str(canary.mark)))
    assert_plain(run_program(*words, cwd=canary.folder))
    assert not canary.ran()
    record_property("cases", len(SHADOWS))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        pytest.param("typed", "canary.py:op", id="typed"),
        pytest.param("study.toml", "operator = 'canary.py:op'\n", id="operator", marks=pytest.mark.long),
        pytest.param("study.toml", "kind = 'canary.py:Own'\n", id="kind", marks=pytest.mark.long),
    ],
)
def test_the_canary_runs_where_it_is_trusted_or_typed(server, canary, name, change):
    """Otherwise its silence would mean nothing."""
    if name == "typed":
        words = ("solve", "cake", "--operator", change)
    else:
        lines = {"kind": "kind = 'q-learning'\n", "env": "env = 'cake'\n", change.split()[0]: change}
        (canary.folder / name).write_text("".join(lines.values()))
        words = ("sweep", name, "--trust", "--dry-run", "--out", "swept")
    folder = str(canary.folder)
    server.run(*words, cwd=canary.folder, path=(folder,), PYTHONPATH=folder)
    assert canary.ran()


@pytest.mark.long
def test_a_name_in_any_field_of_an_agent_runs_nothing(server, agent, cases):
    weights = list(archives.leaves(archives.metadata(agent / "agent.safetensors")))
    config = min((agent / "agent").rglob("config.json")).relative_to(agent)
    fields = list(archives.leaves(content_of(agent / config)))
    for form in cases.chosen(FORMS):
        with cases.case(form, len(weights) + len(fields)) as place:
            canary, code = Canary(place), ""
            for number, where in enumerate(weights):
                file = samples.copy(agent, "agent.safetensors", place / str(number))
                archives.edit_metadata(file, where, lambda value, form=form, place=place: form.format(folder=place))
                code += f"call(actiongap.load_agent, {str(file)!r})\n"
                if (number + FORMS.index(form)) % len(FORMS) == 0:
                    code += f"command('watch', {str(file)!r}, '-o', 'video.gif', '--seconds', '2')\n"
            for number, where in enumerate(fields):
                folder = samples.copy(agent, "agent", place / f"run {number}")
                edit(folder.parent / config, where, form.format(folder=place))
                code += f"call(actiongap.load_agent, {str(folder)!r})\ncall(actiongap.load_agents, {str(folder)!r})\n"
                if (number + FORMS.index(form)) % len(FORMS) == 0:
                    code += f"command('watch', {str(folder)!r}, '-o', 'video.gif', '--seconds', '2')\n"
                    code += f"command('probe', {str(folder)!r}, '--json', '--steps', '20')\n"
            canary.read(server, code)
