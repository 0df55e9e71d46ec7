"""No command changes what is somebody else's: in the folder that it writes to, and where links in that folder lead."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from faults import samples
from faults.commands import assert_told, changes, give_to_all, snapshot

WRITERS: dict[str, tuple[str, ...]] = {
    "plan": ("plan", *samples.PLAN, "--out", "out"),
    "plan --save": ("plan", *samples.PLAN, "--save", "out/policy.npz"),
    "sweep": ("sweep", *samples.LEARN, "--out", "out", "--workers", "1"),
    "sweep file": ("sweep", "study.toml", "--out", "out", "--workers", "1"),
    "sweep config": ("sweep", "config.json", "--out", "out", "--workers", "1"),
    "report": ("report", "study", "-o", "out/page.html"),
    "report --figures": ("report", "study", "--figures", "out"),
    "report --tensorboard": ("report", "study", "--tensorboard", "out"),
    "watch": ("watch", "plan/policy.npz", "-o", "out/video.gif", "--seconds", "2"),
    "solve": ("solve", "cake", "--out", "out/solution.npz"),
    "demo": ("demo", "-o", "out/demo.html", "--no-open"),
    "reproduce": ("reproduce", "cake", "--scale", "smoke", "--out", "out"),
    "train": (
        "train",
        "minatar/breakout",
        *(f"--{name.replace('_', '-')}={value}" for name, value in samples.TRAIN.items() if name != "env"),
        "--out",
        "out",
    ),
}
"""Commands that write to the folder `out`."""
SLOW = ("demo", "reproduce", "train")
"""Commands that take seconds, and run in few of the cases."""
QUICK = ("plan", "plan --save", "report", "solve")
"""Commands of which a case takes less than a tenth of a second."""
NAMED = {
    "plan --save": "policy.npz",
    "report": "page.html",
    "watch": "video.gif",
    "solve": "solution.npz",
    "demo": "demo.html",
}
"""The file that the user named, which the command may replace."""
NAMES = (
    "meta.json",
    "metrics.jsonl",
    "status.json",
    "times.json",
    "policy.npz",
    "lock",
    "study.json",
    "checkpoint/00000001.npz",
    "checkpoint/00000003.npz",
    "checkpoint/best.npz",
    "runs/NAME/metrics.jsonl",
    "runs/NAME/checkpoint/00000003.npz",
    "runs/NAME/status.json",
    "runs/NAME/lock",
    "logs/worker-0.log",
)
"""Files of our names that belong to somebody else."""
HIDDEN = (
    ".config.json.0123abcd",
    ".status.json.0123abcd",
    ".metrics.jsonl.deadbeef",
    ".study.json.0123abcd",
    ".page.html.0123abcd",
    ".video.gif.0123abcd",
    ".solution.npz.0123abcd",
    ".policy.npz.0123abcd",
    ".backup.20260101",
    "checkpoint/.00000003.npz.0123abcd",
    "runs/NAME/.status.json.0123abcd",
)
LINKED = (
    "config.json",
    "meta.json",
    "metrics.jsonl",
    "status.json",
    "policy.npz",
    "lock",
    "study.json",
    "checkpoint",
    "runs",
    "runs/NAME",
    "runs/NAME/checkpoint",
    "runs/NAME/metrics.jsonl",
    "runs/NAME/config.json",
    "logs",
    "logs/worker-0.log",
    "page.html",
    "video.gif",
    "solution.npz",
    "demo.html",
    "cake",
)
FOLDERS = ("checkpoint", "runs", "runs/NAME", "runs/NAME/checkpoint", "logs", "cake")
CONFIGS = {
    "empty": "",
    "object": "{}",
    "other": '{"format": "wandb", "version": 2, "kind": "plan"}',
    "half": '{"format": "actiongap-run", "version": 2, "kind": "pl',
    "list": "[1, 2]",
}


def put(file: Path, text: str = "") -> None:
    """Write a file of somebody else."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text or f"somebody's {file.name}\n" * 3)


def all_names(out: Path, outside: Path, run: str) -> None:
    for name in (*NAMES, *HIDDEN):
        put(out / name.replace("NAME", run))


def hidden(out: Path, outside: Path, run: str) -> None:
    for name in HIDDEN:
        put(out / name.replace("NAME", run))


def figures(out: Path, outside: Path, run: str) -> None:
    for name in ("score.svg", "score.pdf", "notes.svg", "events.out.tfevents.1.host", ".score.svg.0123abcd"):
        put(out / name)


def one_name(name: str) -> Callable[[Path, Path, str], None]:
    return lambda out, outside, run: put(out / name.replace("NAME", run))


def link(name: str) -> Callable[[Path, Path, str], None]:
    """A link of one of our names that leads to files of somebody else."""

    def arrange(out: Path, outside: Path, run: str) -> None:
        path = out / name.replace("NAME", run)
        path.parent.mkdir(parents=True, exist_ok=True)
        target = outside / path.name
        if name in FOLDERS:
            for file in ("notes.txt", "00000003.npz", "metrics.jsonl", "worker-0.log", "page.html"):
                put(target / file)
        else:
            put(target)
        path.symlink_to(target)

    return arrange


def dangling(name: str) -> Callable[[Path, Path, str], None]:
    """A link that leads to nothing, where a file might be created."""

    def arrange(out: Path, outside: Path, run: str) -> None:
        path = out / name.replace("NAME", run)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(outside / "new")

    return arrange


def config(text: str) -> Callable[[Path, Path, str], None]:
    def arrange(out: Path, outside: Path, run: str) -> None:
        put(out / "config.json", text or "\n")
        put(out / "runs" / run / "config.json", text or "\n")
        for name in (*NAMES, *HIDDEN):
            put(out / name.replace("NAME", run))

    return arrange


FOREIGN: dict[str, Callable[[Path, Path, str], None]] = {
    "all names": all_names,
    "figures": figures,
    **{f"config {name}": config(text) for name, text in CONFIGS.items()},
    **{name: one_name(name) for name in NAMES},
    **{f"link {name}": link(name) for name in LINKED},
    **{f"dangling {name}": dangling(name) for name in ("lock", "config.json", "metrics.jsonl", "status.json", "page.html", "logs", "runs")},
    "hidden": hidden,
}
"""What somebody has in the folder."""


def prepared(originals: Path, place: Path) -> str:
    """Copy what the commands read; return the name of the run that a sweep makes."""
    for name in ("study", "plan", "study.toml"):
        samples.copy(originals, name, place)
    first = samples.one_run(originals / "study")
    (place / "config.json").write_bytes((first / "config.json").read_bytes())
    return first.name


@pytest.mark.parametrize("command", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in WRITERS])
def test_what_is_somebody_elses_stays(server, originals, cases, command):
    arrangements = [name for number, name in enumerate(FOREIGN) if command not in SLOW or number % 8 == 0]
    for arrangement in cases.chosen(arrangements):
        with cases.case(arrangement) as place:
            run = prepared(originals, place)
            out, outside = place / "out", place / "outside"
            out.mkdir()
            outside.mkdir()
            FOREIGN[arrangement](out, outside, run)
            give_to_all(place)
            before, before_outside = snapshot(out), snapshot(outside)
            ended = server.run(*WRITERS[command], cwd=place)
            assert_told(ended)
            after = snapshot(out)
            assert snapshot(outside) == before_outside
            # A file that the user named is replaced, which is what it was named for.
            assert set(changes(before, after)) <= {NAMED.get(command)}
            if ended.code == 2:
                assert after == before, sorted(after.keys() - before.keys())


OTHERS = (
    "notes.txt",
    ".backup.20260101",
    ".notes.txt.0123abcd",
    ".metrics.jsonl.0123abcd",
    "checkpoint/best.npz",
    "checkpoint/20240101.npz",
    "checkpoint/.weights.npz.0123abcd",
    "checkpoint/00000009.txt",
    "figures/score.svg",
    "policy.npz.bak",
)


@pytest.mark.every(4)
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "done"])
@pytest.mark.parametrize("command", ["plan", "sweep"])
def test_files_of_others_in_a_run_of_ours_stay(server, originals, place, command, begun):
    run = prepared(originals, place)
    sample = "plan" if command == "plan" else "begun" if begun else "study"
    samples.copy(originals, sample, place / "first")
    os.rename(place / "first" / sample, place / "out")
    folder = place / "out" if command == "plan" else place / "out" / "runs" / run
    if begun:
        (folder / "status.json").unlink()
    for name in OTHERS:
        put(folder / name)
    np.savez(folder / "checkpoint" / "20240102.npz", np.arange(3, dtype=np.uint8), weights=np.ones(2))
    theirs = {name: what for name, what in snapshot(folder).items() if name in (*OTHERS, "checkpoint/20240102.npz")}
    assert len(theirs) == len(OTHERS) + 1
    give_to_all(place)
    theirs = {name: snapshot(folder)[name] for name in theirs}
    ended = server.run(*WRITERS[command], cwd=place)
    assert (ended.code, changes(theirs, snapshot(folder))) == (0, []), ended
    for name in theirs:
        (folder / name).unlink()
    (folder / "figures").rmdir()
    reference = originals / "plan" if command == "plan" else originals / "study" / "runs" / run
    assert samples.outcome(folder) == samples.outcome(reference)


@pytest.mark.long
@pytest.mark.parametrize("command", [command for command in WRITERS if command not in SLOW])
def test_a_folder_that_is_a_link_is_written_and_nothing_beside_it(server, originals, place, command):
    """A user may keep results on another disk. What else is there is not theirs to change."""
    prepared(originals, place)
    (place / "disk" / "out").mkdir(parents=True)
    put(place / "disk" / "theirs.txt")
    (place / "out").symlink_to(place / "disk" / "out")
    give_to_all(place)
    before = snapshot(place / "disk")
    ended = server.run(*WRITERS[command], cwd=place)
    assert ended.code == 0, ended
    assert changes(before, snapshot(place / "disk")) == []
    assert (place / "out").is_symlink()
    assert any((place / "disk" / "out").iterdir())
