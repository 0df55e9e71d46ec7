"""All parts of the paper at smoke scale, and their page."""

import contextlib
import json
import os
import select
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import browser
from actiongap.cli import main
from actiongap.lab.records import read_runs
from actiongap.paper import atari_runs, behavior
from actiongap.paper import minatar as minatar_runs
from actiongap.paper.agents import HIGHER, LOWER, MAIN_OPERATORS, Agent
from actiongap.paper.behavior import LAKE
from actiongap.paper.parts import PARTS, SCALES, load_part, requested_runs
from actiongap.reporting.page import Section
from actiongap.reporting.server import Pages, server


def run(*arguments) -> Any:
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return left.value.code


COMPILED = ("bicycle", "minatar", "atari")
"""Parts that take long to compile. Short tests skip them in `all`; the tests of each part check its sections."""


def skip_compiled(request, patch: pytest.MonkeyPatch) -> None:
    if not request.config.getoption("--long"):
        for name in COMPILED:
            patch.delitem(PARTS, name)


@pytest.fixture
def parts(request, monkeypatch) -> set[str]:
    """The parts that `all` means."""
    skip_compiled(request, monkeypatch)
    return set(PARTS)


@pytest.fixture(scope="module")
def smoke(request, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("smoke")
    with pytest.MonkeyPatch.context() as patch:
        skip_compiled(request, patch)
        # Most time is spent on compiling, which every worker does separately.
        for module in ("executors", "processes"):
            patch.setattr(f"actiongap.lab.{module}.default_workers", lambda study: 1)
        assert run("reproduce", "all", "--scale", "smoke", "--out", out, "--json") == 0
    return out


def test_every_part_is_on_the_page(smoke, parts):
    text = (smoke / "page.html").read_text()
    for heading in ("The cake (Figure 1)", "Small problems", "q-learning", "noisy-backups", "The paper&#x27;s Atari table"):
        assert heading in text or heading.replace("&#x27;", "'") in text
    assert {place.name for place in smoke.iterdir() if place.is_dir()} == parts


def test_every_run_is_done_and_valid(smoke):
    records = read_runs([smoke / "finite"])
    assert records.problems == ()
    assert all(found.status is not None and found.status.state == "done" for found in records.runs)


def test_bellman_on_its_own_data_is_bellman_on_the_data_of_bellman(smoke):
    runs = requested_runs(smoke / "behavior", behavior.STUDIES).runs
    table = behavior.wrong_actions(runs)
    rows: dict[Any, Any] = {row[:3]: row[3:] for row in table.rows}
    assert set(rows) == {
        *(("garnet:50,4,3", name, 0.1) for name in ("own", "bellman", "uniform")),
        *((LAKE, name, 0.1) for name in ("own", "bellman", "uniform")),
        (LAKE, "own", 0.5),
    }
    for env in ("garnet:50,4,3", LAKE):
        assert rows[env, "own", 0.1][0] == rows[env, "bellman", 0.1][0] != rows[env, "uniform", 0.1][0]
    for cells in rows.values():
        assert cells[3].value == pytest.approx(cells[1].value - cells[0].value)
        assert cells[4].value == pytest.approx(cells[2].value - cells[0].value)
    explored: dict[Any, Any] = {row[:3]: row[3:] for row in behavior.churn(runs).rows}
    assert set(explored) == set(rows)
    # The data are those of Bellman, so no operator changes how often an action is tried.
    visits = explored[LAKE, "bellman", 0.1][3:]
    assert visits[0] == visits[1] == visits[2]


@pytest.mark.long
def test_minatar_agents_are_trained(smoke):
    found = minatar_runs.read_agents(smoke / "minatar")
    assert found.problems == ()
    assert {agent: [run.state for run in group.runs] for agent, group in found.agents.items()} == {
        Agent("breakout", name): ["done", "done"] for name in MAIN_OPERATORS
    }
    assert all(run.rows["step"].tolist() == [512, 1024, 1536] for run in found.runs)
    assert all(np.isfinite(run.rows[name]).all() for run in found.runs for name in ("score", "value", "action_gap", "bias", "loss"))
    assert len({tuple(run.rows["value"]) for run in found.runs}) == 6
    page = (smoke / "page.html").read_text()
    for heading in ("MinAtar: does a wider gap help?", "MinAtar: gaps, values and bias", "Not run in this folder: other-methods"):
        assert heading in page


@pytest.mark.long
def test_atari_agents_are_trained_and_probed(smoke):
    pytest.importorskip("ale_py", reason="Atari needs ale-py: pip install 'actiongap[atari]'")
    found = atari_runs.read_agents(smoke / "atari")
    assert found.problems == ()
    assert {agent: [run.state for run in group.runs] for agent, group in found.agents_by_preset["stochastic-minimal"].items()} == {
        Agent("pong", name): ["done", "done"] for name in MAIN_OPERATORS
    }
    assert all(run.rows["step"].tolist() == [256, 512, 768] for run in found.runs)
    assert all(np.isfinite(run.rows[name]).all() for run in found.runs for name in ("score", "value", "action_gap", "bias", "loss"))
    page = (smoke / "page.html").read_text()
    for heading in ("Atari, Stochastic Minimal: does a wider gap help?", "Atari: comparison with the paper", "Atari: single games"):
        assert heading in page
    assert HIGHER in page or LOWER in page or "no difference detected" in page


@pytest.mark.long
def test_terminal_shows_the_tables_of_a_part(smoke, capsys):
    assert run("reproduce", "minatar", "--scale", "smoke", "--out", smoke / "minatar") == 0
    output = capsys.readouterr()
    assert "operators: all 6 runs are done already." in output.err
    assert "pal-dqn:0.9" in output.out
    (smoke / "minatar" / "page.html").unlink()


def test_repeated_command_computes_nothing(smoke, parts, capsys):
    files = sorted(file for file in smoke.rglob("*") if file.is_file() and file.name not in ("page.html", "study.json"))
    before = [(file, file.stat().st_mtime_ns) for file in files]
    assert run("reproduce", "all", "--scale", "smoke", "--out", smoke, "--json") == 0
    assert [(file, file.stat().st_mtime_ns) for file in files] == before
    output = json.loads(capsys.readouterr().out)
    assert output["page"] == str(smoke / "page.html")
    assert output["failed"] == 0


def test_damaged_cake_is_computed_again(tmp_path):
    assert run("reproduce", "cake", "--scale", "smoke", "--out", tmp_path, "--json") == 0
    whole = (tmp_path / "cake.json").read_bytes()
    (tmp_path / "cake.json").write_bytes(whole[: len(whole) // 2])
    assert run("reproduce", "cake", "--scale", "smoke", "--out", tmp_path, "--json") == 0
    found, expected = (json.loads(text) for text in ((tmp_path / "cake.json").read_bytes(), whole))
    assert {**found, "date": ""} == {**expected, "date": ""}


@pytest.mark.skipif(bool(browser.missing()), reason=str(browser.missing()))
def test_browser_shows_the_page_without_errors(smoke):
    with browser.browser() as chromium:
        for width in (1280, 390):
            tab = chromium.open(smoke / "page.html", width=width)
            tab.settle()
            assert tab.messages == []
            assert len(tab.requests) == 1
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_part_has_every_scale(part, scale):
    names = [study.name for study in load_part(part).studies(scale)]
    assert len(set(names)) == len(names)


def test_scores_show_the_paper_s_numbers_beside_ours():
    [section] = load_part("scores").sections(Path("unused"))
    assert isinstance(section, Section)
    table: Any = section.blocks[0]
    rows = {(row[0], row[1]): row for row in table.rows}
    best = rows["times best of 60 games", "persistent advantage learning"]
    assert best[2:5] == (31, 31, 1.0)
    mean = rows["mean improvement over Bellman, percent", "persistent advantage learning"]
    assert mean[2] == 32.5
    assert mean[3] == pytest.approx(32.54, abs=0.01)
    assert mean[4] == pytest.approx(mean[3] / mean[2])


def test_a_dry_run_writes_nothing(smoke, parts, tmp_path, capsys):
    studies = {
        "bicycle": ["operators"],
        "minatar": ["operators"],
        "atari": ["pong"],
        "finite": ["q-learning", "fitted-q", "noisy-values", "noisy-backups"],
        "behavior": ["lake", "lake-exploring", "garnet"],
    }
    asked = {part: names for part, names in studies.items() if part in parts}
    known = [study for part in asked for study in (smoke / part).iterdir() if (study / "runs").is_dir()]
    assert run("reproduce", "all", "--scale", "smoke", "--out", tmp_path / "new", "--dry-run", "--json", "--rates", *known) == 0
    plans = json.loads(capsys.readouterr().out)
    assert [plan["study"] for plan in plans] == [f"{part} {study}" for part, names in asked.items() for study in names]
    assert all(plan["work"] > 0 and plan["disk"] > 0 for plan in plans)
    assert not (tmp_path / "new").exists()


def test_seeds_can_be_added_in_steps(tmp_path, capsys):
    command = ("reproduce", "finite", "--scale", "smoke", "--only", "noisy-values", "--out", tmp_path)
    whole = {study.name: study for study in load_part("finite").studies("smoke")}["noisy-values"]
    assert run(*command, "--seeds", "1", "--figures", tmp_path / "figures") == 0
    drawn = sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert drawn == sorted(f"{Path(name).stem}{kind}" for name in drawn[::2] for kind in (".pdf", ".svg"))
    assert drawn
    first = {folder.name: (folder / "status.json").stat().st_mtime_ns for folder in tmp_path.glob("noisy-values/runs/*")}
    assert first.keys() == {name for name, spec in whole.named().items() if spec.seed == 0} < whole.named().keys()
    assert run(*command, "--seeds", "999") == 0
    every = {folder.name: (folder / "status.json").stat().st_mtime_ns for folder in tmp_path.glob("noisy-values/runs/*")}
    assert every.keys() == whole.named().keys()
    assert first.items() <= every.items()
    # Pages show the last request, even if all of its runs are done.
    for seeds, asked in (("1", first), ("999", every)):
        assert run(*command, "--seeds", seeds) == 0
        assert {record.folder.name for record in requested_runs(tmp_path, ["noisy-values"]).runs} == asked.keys()
    capsys.readouterr()
    assert run(*command, "--seeds", "0") == 2
    assert capsys.readouterr().err == "actiongap: seeds is 0: it must be a whole number from 1 to 1,000,000\n"
    assert run(*command, "--seeds", "1", "--seed", "70") == 0
    assert {record.seed for record in requested_runs(tmp_path, ["noisy-values"]).runs} == {70}


def test_live_page_updates_and_serves_only_localhost():
    state = {"seen": "1"}
    pages = Pages(lambda: state["seen"], lambda revision: f"<p>{state['seen']}</p>")
    with server(pages) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listening.server_port}"

        def get(path: str, **headers: str) -> bytes:
            with urllib.request.urlopen(urllib.request.Request(address + path, headers=headers)) as answer:
                return answer.read()

        first = get("/revision")
        assert get("/") == b"<p>1</p>"
        assert get("/revision") == first
        state["seen"] = "2"
        pages._checked = 0.0
        assert get("/revision") != first
        assert get("/") == b"<p>2</p>"
        for path, headers, code in (("/", {"Host": "evil.example"}, 403), ("/../etc/passwd", {}, 404), ("/config.json", {}, 404)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(path, **headers)
            assert refused.value.code == code
            refused.value.close()
        listening.shutdown()
        thread.join()


def test_silent_and_leaving_clients_do_not_disturb_the_live_page(capfd, monkeypatch):
    monkeypatch.setattr("actiongap.reporting.server.MAX_CONNECTIONS", 3)
    # Larger than what the system buffers, so that sending it to a client that has left fails.
    with server(Pages(lambda: "1", lambda revision: "<p>" + 2**24 * "x")) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        address = ("127.0.0.1", listening.server_port)
        with socket.create_connection(address) as leaving:
            leaving.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\n\r\n".encode())
            assert leaving.recv(4).startswith(b"HTTP")
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(socket.create_connection(address)) for _ in range(8)]
            # Those above the bound are closed at once.
            ready = select.select(silent, [], [], 60)[0]
            assert ready
            assert ready[0].recv(1) == b""
        listening.shutdown()
        thread.join()
    assert capfd.readouterr() == ("", "")


def test_port_in_use_raises():
    with (
        server(Pages(lambda: "", lambda revision: "")) as taken,
        pytest.raises(ValueError, match="choose another with --port"),
        server(Pages(lambda: "", lambda revision: ""), taken.server_port),
    ):
        pass


@pytest.mark.parametrize(("what", "link"), [("finite", "noisy-backups"), ("all", "finite")])
def test_results_are_not_written_through_links(run, tmp_path, what, link):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / link).symlink_to(tmp_path / "elsewhere")
    code, _, err = run("reproduce", what, "--scale", "smoke", "--out", tmp_path / "out")
    assert (code, err.count("\n")) == (2, 1)
    assert "is a symbolic link" in err
    assert os.listdir(tmp_path / "elsewhere") == []
