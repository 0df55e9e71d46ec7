"""Every Python block of the documentation runs, each page in one namespace from top to bottom, and prints what stands below it.

Commands that are shown have the options they are shown with, links and anchors lead somewhere, and the example of a simulator plans.
"""

import contextlib
import io
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import actiongap.cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHERS = [ROOT / "SECURITY.md", ROOT / "CODE_OF_CONDUCT.md"]
NEEDS = {"integrations.md": ("stable_baselines3", "sb3")}
NEEDS |= dict.fromkeys(("CONTRIBUTING.md", "index.md", "choosing.md", "proving.md", "errata.md"), ("z3", "proof"))
"""Pages whose code needs a package that is not always there, and the extra that brings it."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
PARKING = ROOT / "examples" / "plan_simulator.py"


def blocks(page: Path) -> list[str]:
    """The Python blocks of a page."""
    return [text for kind, text in FENCE.findall(page.read_text()) if kind == "python"]


def printing(page: Path) -> list[tuple[str, str | None]]:
    """The Python blocks of a page, each with the text that follows it at once and is what it prints, if any does."""
    found = list(FENCE.finditer(page.read_text()))
    after = [*found[1:], None]
    return [
        (block[2], then[2] if then and then[1] == "text" and then.start() - block.end() <= 2 else None)
        for block, then in zip(found, after, strict=True)
        if block[1] == "python"
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_code_blocks_run_and_print_what_is_shown(page, tmp_path, monkeypatch):
    if page.name in NEEDS:
        package, extra = NEEDS[page.name]
        pytest.importorskip(package, reason=f"{package} is not installed: pip install 'actiongap[{extra}]'")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    scope: dict = {"__name__": "__main__"}
    for block, shown in printing(page):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, str(page), "exec"), scope)
        if shown is not None:
            assert printed.getvalue() == shown


def commands(page: Path) -> list[tuple[str, bool]]:
    """The commands of ours that a page shows, each with whether it stands in a line of its own and is thus whole."""
    text = page.read_text()
    lines = [line for kind, body in FENCE.findall(text) if kind in ("console", "bash") for line in body.splitlines()]
    whole = [re.sub(r"^\w*\$ |\s+#.*", "", line) for line in lines]
    parts = [part.strip() for line in whole for part in re.split(r"&&|\||>", line)]
    named = [re.sub(r"\s+", " ", name) for name in re.findall(r"`(actiongap [^`]+)`", FENCE.sub("", text))]
    return [(line, True) for line in parts if line.startswith("actiongap ")] + [(name, False) for name in named]


def parse(command: str, whole: bool) -> None:
    """Read a command as the command line does, and do not run it. In a sentence, what must be given may be left to the reader."""
    arguments = [word for word in shlex.split(command)[1:] if word != "--help"]
    try:
        actiongap.cli._parse(arguments)
    except ValueError as complaint:
        if whole or not re.search(r"Missing from|is missing", str(complaint)):
            raise


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_have_the_options_they_are_shown_with(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    Path("coins.py").write_text(next(block for block in blocks(ROOT / "docs" / "laboratory.md") if "class Coins" in block))
    for command, whole in commands(page):
        parse(command, whole)


@pytest.mark.parametrize("command", ["actiongap solv cake", "actiongap solve cake --operater al:0.5", "actiongap watch", "actiongap solve"])
def test_a_command_that_is_not_so_is_noticed(command):
    with pytest.raises(ValueError, match="see actiongap"):
        parse(command, whole=True)


def test_cleanrls_lines_with_the_bellman_operator_are_its_own():
    scope: dict = {}
    for block in blocks(ROOT / "docs" / "integrations.md"):
        if "from actiongap." not in block:
            exec(compile(block.replace('"al:0.9"', '"bellman"'), "integrations.md", "exec"), scope)
    # What a plain DQN aims at, r + gamma max_b Q(x', b) while the episode lasts.
    going_on = 0.99 * (1.0 - scope["data"].dones.numpy()[:, 0])
    reward, next_x = scope["data"].rewards.numpy()[:, 0], scope["data"].next_observations
    best = scope["target_network"](next_x).detach().numpy().max(axis=1)
    np.testing.assert_allclose(scope["td_target"].numpy(), reward + going_on * best, rtol=1e-5)
    best = (next_x.numpy() @ np.asarray(scope["q_state"].target_params)).max(axis=1)
    np.testing.assert_allclose(np.asarray(scope["next_q_value"]), reward + going_on * best, rtol=1e-4, atol=1e-5)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page: of its headings, and those that are written out."""
    text = FENCE.sub("", page.read_text())
    headings = [
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    ]
    return {*headings, *re.findall(r'<a id="([^"]+)">', text)}


@pytest.mark.parametrize("page", [*PAGES, *OTHERS, *sorted(ROOT.glob("results/*/README.md"))], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", FENCE.sub("", page.read_text())):
        if not target.startswith("https://"):
            place = page.parent / target if target else page
            assert place.exists(), target
            assert not anchor or anchor in anchors(place), f"{target}#{anchor}"


def test_the_simulator_on_the_page_is_the_one_in_the_examples():
    definition = PARKING.read_text().partition("\n\ndef main(")[0].rstrip() + "\n"
    assert definition in blocks(ROOT / "docs" / "planning.md")


def test_the_simulator_of_the_examples_is_planned_to_the_goal(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"operator": "consistent", "grid": 41, "iterations": 400, "eval_every": 400, "engine": "numba"}
    code, out, err = run("plan", f"{PARKING}:simulator", "--json", *(word for name in options for word in (f"--{name}", options[name])))
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["goal_frequency"], found["fall_frequency"]) == (1.0, 0.0)
    assert found["mean_steps"] < 60


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("clip(speed + 0.1 * (a - 1 + u), -2.0, 2.0)", "speed if speed < 2.0 else 2.0", "choose with where"),
        ("(abs(x[0]) < 0.1) & (abs(x[1]) < 0.1)", "abs(x[0]) < 0.1 and abs(x[1]) < 0.1", "join conditions with & and |"),
        (
            "return ag.Outcome(x, where(off_road(x), -100.0, -1.0), off_road",
            "return (x, -1.0, off_road(x)) or (off_road",
            "must return Outcome",
        ),
        ("return ag.Outcome(x,", "return ag.Outcome(x[:1],", "returns 1 coordinates, not 2"),
        ("off_road(x) | parked(x))", "0.0)", "return a boolean"),
        ("-100.0, -1.0)", "-100.0, position / position)", "the reward is nan after action back in position = 0"),
        ("0.1 * speed, speed)", "0.1 * speed, 3.6 * speed)", "widen the axis"),
    ],
)
def test_mistakes_are_answered_as_the_page_says(right, wrong, said, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert PARKING.read_text().count(right) == 1
    Path("mistaken.py").write_text(PARKING.read_text().replace(right, wrong))
    code, out, err = run("plan", "mistaken.py:simulator", "--grid", "5", "--iterations", "5", "--engine", "numba")
    assert (code, out) == (2, "")
    assert said in err
