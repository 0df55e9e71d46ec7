"""`report` and `reproduce` from Python give the files that the command line gives."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import actiongap as ag
from actiongap.lab.executors import run_inline
from actiongap.lab.records import read_runs
from actiongap.lab.study import Study, grid
from actiongap.paper.parts import PARTS, load_part
from actiongap.paper.reproduce import estimate_parts, reproduce
from actiongap.reporting.server import fingerprint, pages_of


@pytest.fixture(scope="module")
def cakes(tmp_path_factory) -> Path:
    """A finished study."""
    out = tmp_path_factory.mktemp("runs") / "cakes"
    run_inline(Study("cakes", grid("q-learning", env="cake", operator=["bellman", "al:0.5"], seed=range(2), steps=100, rows=2)), out)
    return out


def files_in(folder: Path) -> dict[str, bytes]:
    # The PDF figures hold the time at which they were written.
    return {
        path.relative_to(folder).as_posix(): re.sub(rb"/CreationDate \(.*?\)", b"", path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_report_writes_what_the_command_writes(run, cakes, tmp_path):
    found = ag.report(cakes, tmp_path / "python" / "page.html", tmp_path / "python" / "figures", tmp_path / "python" / "events")
    folder = tmp_path / "command"
    options = ("-o", folder / "page.html", "--figures", folder / "figures", "--tensorboard", folder / "events")
    code, out, err = run("report", cakes, *options)
    assert code == 0, err
    assert files_in(tmp_path / "python") == files_in(folder)
    assert f"4 runs: wrote {folder / 'page.html'}, {len(found.figures)} figures into" in out
    assert (len(found.events), len(found.runs)) == (4, 4)


def test_report_takes_runs_and_several_folders(cakes, tmp_path):
    pages = [ag.report(runs, tmp_path / "page.html").page for runs in (cakes, str(cakes), [cakes], read_runs(cakes))]
    assert pages[0] is not None
    assert len({page.read_bytes() for page in pages if page}) == 1
    assert b"<title>cakes</title>" in pages[0].read_bytes()
    named = ag.report(cakes, tmp_path / "page.html", title="Two cakes").page
    assert named is not None
    assert b"<title>Two cakes</title>" in named.read_bytes()


def test_report_writes_page_html_by_default(cakes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ag.report(cakes).page == Path("page.html")
    assert ag.report(cakes, figures="figures").page is None
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "figures"}


@pytest.mark.parametrize("command", ["report", "reproduce", "demo"])
def test_pages_of_somebody_else_are_not_replaced(run, cakes, tmp_path, command):
    page = tmp_path / "page.html"
    page.write_text("<p>somebody's</p>")
    options = {"report": (cakes, "-o", page), "reproduce": ("scores", "--out", tmp_path), "demo": ("-o", page, "--no-open")}
    code, out, err = run(command, *options[command])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{page} is a file of something else, not a page of actiongap: choose another name, or move it away" in err
    assert os.listdir(tmp_path) == ["page.html"]
    assert page.read_text() == "<p>somebody's</p>"
    page.write_text("")
    for _ in range(2):
        assert run(command, *options[command])[0] == 0


@pytest.mark.parametrize("name", ["cake.csv", "cake.png", "cake.svg", "cake.json"])
def test_results_of_somebody_else_are_not_replaced(run, tmp_path, name):
    (tmp_path / name).write_text('{"calories": 300}')
    code, out, err = run("reproduce", "cake", "--scale", "smoke", "--out", tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"holds {name}, which actiongap reproduce did not write: choose another --out" in err
    assert os.listdir(tmp_path) == [name]


def test_report_refuses_nothing(tmp_path):
    with pytest.raises(ValueError, match="give one or more folders"):
        ag.report([])
    with pytest.raises(ValueError, match="no such folder"):
        ag.report(tmp_path / "nowhere", tmp_path / "page.html")


def test_the_live_page_follows_the_runs(cakes, tmp_path):
    waiting = fingerprint([tmp_path / "later"])
    assert b"no such folder" in pages_of([tmp_path / "later"], "later").current()[1]
    seen = fingerprint([cakes])
    assert seen != waiting
    assert seen == fingerprint([cakes])
    assert b"al:0.5" in pages_of([cakes], "cakes").current()[1]


def test_reproduce_writes_what_the_command_writes(run, tmp_path):
    found = reproduce("finite", "smoke", only=("noisy-values",), out=tmp_path / "python")
    code, out, _ = run("reproduce", "finite", "--scale", "smoke", "--only", "noisy-values", "--out", tmp_path / "command", "--json")
    assert code == 0
    assert json.loads(out) == {
        "page": str(tmp_path / "command" / "page.html"),
        "scale": "smoke",
        "failed": 0,
        "parts": {"finite": str(tmp_path / "command")},
    }
    assert (found.page, found.failed, found.folders) == (tmp_path / "python" / "page.html", 0, {"finite": tmp_path / "python"})
    rows = [
        {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("metrics.jsonl"))}
        for folder in (tmp_path / "python", tmp_path / "command")
    ]
    assert rows[0]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("part", PARTS)
def test_studies_of_the_paper_start_at_any_seed(part):
    if part == "atari":
        pytest.importorskip("ale_py", reason="Atari needs ale-py: pip install 'actiongap[atari]'")
    for study in load_part(part).studies("gpu"):
        moved = study.starting_at(40)
        runs: tuple[Any, ...] = study.runs
        assert moved.runs == tuple(dataclasses.replace(run, seed=run.seed + 40) for run in runs)
        assert len(moved.named()) == len(study.named())
        assert (moved.name, moved.gpus) == (study.name, study.gpus)
        assert {run.seed for run in moved.first(1).runs} == {40}


def test_reproduce_says_nothing_without_progress(tmp_path, capsys):
    reproduce("scores", "smoke", out=tmp_path, progress=False)
    assert capsys.readouterr() == ("", "")


def test_the_estimate_equals_the_command(run, tmp_path):
    plans = estimate_parts("finite", "smoke", out=tmp_path, only=("noisy-values",))
    _, out, _ = run("reproduce", "finite", "--scale", "smoke", "--only", "noisy-values", "--out", tmp_path, "--dry-run", "--json")
    assert [(entry["study"], entry["runs"]) for entry in json.loads(out)] == [(name, plan.runs) for name, plan in plans.items()]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"part": "cakes"}, "unknown part 'cakes'"),
        ({"part": "finite", "only": ("lake",)}, "there is no study 'lake' at this scale"),
        ({"part": "cak"}, "unknown part 'cak': did you mean cake?"),
        ({"part": "finite", "scale": "smok"}, "unknown scale 'smok': did you mean smoke?"),
        ({"part": "finite", "seeds": 0}, "seeds is 0"),
        ({"part": "finite", "seed": -1}, "seed is -1: it must be a whole number of at least 0"),
        ({"part": "cake", "seeds": 2}, "cake has no studies at this scale, .*: leave out seeds and seed"),
        ({"part": "scores", "seed": 2}, "scores has no studies"),
    ],
)
def test_reproduce_refuses_bad_input(values, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        reproduce(**{"scale": "smoke", **values}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
