"""The demo: operators as JavaScript, the page's iteration compared with ours, and the page in a browser."""

from __future__ import annotations

import json
import re
import webbrowser
from importlib.resources import files

import numpy as np
import pytest

import actiongap.cli
import browser
from actiongap.interactive.episodes import EPISODES, OPERATORS, SECONDS, load_episodes
from actiongap.interactive.javascript import Expression, expression, translate, translate_function
from actiongap.interactive.page import GARDEN, OPERATOR_TEXTS, cake_family, garden_family, render_demo, translated_script
from actiongap.maths import maximum, minimum, where
from actiongap.mdp.engines import backups
from actiongap.mdp.exact import policy_iteration
from actiongap.mdp.generators import cake
from actiongap.mdp.solve import solve
from actiongap.operators import FAMILY, Backup, Operator, OperatorError, backup, parse

needs_browser = pytest.mark.skipif(browser.missing() is not None, reason=str(browser.missing()))
MDPS = {"cake": cake_family(), "garden": garden_family()}


def text_of(name: str, alpha: float) -> str:
    """Return the text of an operator for `parse`, with the alpha of the page."""
    return name if name in ("bellman", "consistent") else f"{name}:{1 - alpha if name == 'baird' else alpha!r}"


# ---- Translation ----


def test_precedence_keeps_the_order_of_floating_point():
    x, y, z = map(Expression, "xyz")
    assert str(x - (y - z)) == "x - (y - z)"
    assert str((x - y) - z) == "x - y - z"
    assert str(x / (y * z) * 2.0) == "x / (y * z) * 2"
    assert str(-(x + y) * -z) == "-(x + y) * -z"
    assert str(1 - x - -1.5) == "1 - x - -1.5"
    assert str(where((x < y) & ~(y <= z) | (x == z), maximum(x, 0.0), abs(minimum(y, z)))) == (
        "x < y && !(y <= z) || x === z ? Math.max(x, 0) : Math.abs(Math.min(y, z))"
    )
    assert str(2 * where(x > y, x, where(y >= z, y, z))) == "2 * (x > y ? x : (y >= z ? y : z))"


def test_numbers_keep_all_their_digits():
    for number in (0.1, 1 / 3, 1e-300, -2.5e17, 2.0**60, 5):
        assert float(str(expression(number))) == number
    for bad in (float("inf"), float("nan"), "1", None):
        with pytest.raises(TypeError, match="finite number"):
            expression(bad)


def test_branches_and_ambiguous_names_are_refused():
    with pytest.raises(TypeError, match="branches"):
        translate(Operator("mine", lambda b: b.q if b.gap > 0 else b.v))

    def nested(alpha):
        def inner(b):
            return alpha * b.gap

        return inner

    def outer(alpha, inner):
        return lambda b: b.bellman - alpha * inner(b)

    with pytest.raises(TypeError, match="two parameters named alpha"):
        translate(Operator("mine", outer(0.5, nested(0.25))))
    assert translate(Operator("mine", outer(0.5, nested(0.5)))).numbers == ("alpha",)
    with pytest.raises(OperatorError, match="random coefficient"):
        translate(parse("rso:0,1"))


def test_operators_of_other_papers_are_translated():
    assert translate(parse("sal:0.5,0.9")).function == "(b, {alpha, omega}) => (1 - omega) * b.q + omega * b.bellman - alpha * b.gap"
    assert translate(parse("clipped-al:0.5,0.25")).numbers == ("alpha", "c", "low")


def test_every_operator_of_the_family_has_a_name_on_the_page():
    assert list(OPERATOR_TEXTS) == list(FAMILY)
    assert len({name for name, _ in OPERATOR_TEXTS.values()}) == len(FAMILY)


def test_no_formula_of_an_operator_is_written_by_hand():
    assets = files("actiongap.interactive") / "assets"
    scripts = "".join((assets / name).read_text() for name in ("mdp.js", "demo.js"))
    for field in set(Backup._fields) - {"gamma", "q", "v", "gap"}:
        assert not re.search(rf"\.{field}\b", scripts), field
    assert "apply(backup(" in scripts


# ---- MDPs and episodes ----


def test_the_cake_of_the_page_is_the_paper_s():
    for gamma, epsilon in ((0.5, 0.01), (0.9, 0.1), (0.99, 0.5)):
        ours, theirs = cake(gamma, epsilon).sparse(), MDPS["cake"].mdp(gamma, epsilon)
        assert np.array_equal(ours.rewards, theirs.rewards)
        for one, other in zip(ours.transitions, theirs.transitions, strict=True):
            assert np.array_equal(one, other)


def test_the_garden_matches_its_drawing():
    mdp, columns, signs = MDPS["garden"].mdp(0.9, 0.1), len(GARDEN[0]), "".join(GARDEN)
    assert {len(row) for row in GARDEN} == {columns}
    assert signs.count("H") == 1
    table = mdp.dense().transitions.probabilities
    hedges = [x for x, sign in enumerate(signs) if sign == "#"]
    for x, sign in enumerate(signs):
        if sign != ".":
            assert table[x, :, x] == pytest.approx(1.0)
            assert not mdp.rewards[x].any()
            continue
        reached = np.flatnonzero(table[x].sum(0))
        assert not set(reached) & set(hedges)
        assert all(abs(y // columns - x // columns) + abs(y % columns - x % columns) <= 1 for y in reached)
        # The reward is the expected reward of the next cells minus epsilon.
        paid = np.array([{"H": 1.0, "O": -1.0}.get(place, 0.0) for place in signs])
        assert mdp.rewards[x] == pytest.approx(table[x] @ paid - 0.1)
    # Moving up from the cell below home reaches it with probability 0.8, because of slipping.
    home = signs.index("H")
    assert table[home + columns, 0, home] == pytest.approx(0.8)


def test_recorded_episodes_state_their_command_and_outcomes():
    found = load_episodes()
    assert found["command"] == "python -m actiongap.interactive.episodes"
    assert tuple(found["episodes"]) == OPERATORS
    for operator, outcome in (("bellman", "limit"), ("consistent", "goal")):
        recorded = found["episodes"][operator]
        assert [episode["outcome"] for episode in recorded] == [outcome] * EPISODES
        for episode in recorded:
            east, north = np.cumsum([episode["east"], episode["north"]], axis=1) / found["tenths"]
            assert (east[0], north[0]) == (0.0, -found["distance"])
            # At 10 km/h a straight stretch between looks is 5.6 m.
            assert np.hypot(np.diff(east), np.diff(north)).max() < 5.8
            away = np.hypot(east[-1], north[-1])
            assert away < found["goal"] + 0.1 if outcome == "goal" else (away > found["distance"] and episode["seconds"] == SECONDS)


@pytest.mark.long
def test_episodes_are_recorded_with_the_planner(monkeypatch):
    from actiongap.interactive import episodes

    for name, value in {"OPERATORS": ("bellman",), "POINTS": 3, "ITERATIONS": 2, "EPISODES": 2, "SECONDS": 4}.items():
        monkeypatch.setattr(episodes, name, value)
    found = episodes.record_episodes()
    assert set(found) == set(load_episodes())
    made = found["episodes"]["bellman"]
    assert [set(episode) for episode in made] == [{"outcome", "seconds", "east", "north"}] * 2
    assert (made[0]["east"][0], made[0]["north"][0]) == (0, -10000)


# ---- The command ----


def test_demo_writes_a_page_and_needs_no_browser(run, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(webbrowser, "open", asked.append)
    monkeypatch.chdir(tmp_path)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    code, out, err = run("demo")
    assert (code, err) == (0, "")
    assert "demo.html" in out
    assert asked == []
    text = (tmp_path / "demo.html").read_text()
    assert text == render_demo()
    assert len(text.encode()) < 500_000
    code, out, _ = run("demo", "-o", tmp_path / "page.html", "--no-open", "--json")
    assert (code, json.loads(out)) == (0, {"page": str(tmp_path / "page.html")})
    assert asked == []


@pytest.mark.parametrize("broken", [False, True])
def test_demo_opens_the_page_if_there_is_a_screen(run, tmp_path, monkeypatch, broken):
    asked = []

    def take(address):
        asked.append(address)
        if broken:
            raise webbrowser.Error("none")
        return True

    monkeypatch.setattr(webbrowser, "open", take)
    monkeypatch.setenv("DISPLAY", ":0")
    page = tmp_path / "page.html"
    code, out, err = run("demo", "-o", page)
    assert (code, err, asked) == (0, "", [page.as_uri()])
    assert ("in your browser" in out) == (not broken)


@pytest.mark.parametrize("place", ["nowhere/page.html", "page.txt"])
def test_demo_refuses_paths_it_cannot_write_to(run, tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("demo", "-o", place, "--no-open")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert list(tmp_path.iterdir()) == []


def test_the_call_in_python_writes_the_same_page(tmp_path):
    found = actiongap.demo(tmp_path / "page.html", open=False)
    assert (found.page, found.opened) == (tmp_path / "page.html", False)
    assert found.page.read_text() == render_demo()
    assert repr(found) == f"Wrote {found.page}. Open it in a browser."


# ---- In a browser ----


@pytest.fixture(scope="module")
def chromium():
    with browser.browser() as running:
        yield running


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    file = tmp_path_factory.mktemp("demo") / "demo.html"
    file.write_text(render_demo())
    return file


@pytest.fixture
def show(chromium, page):
    """Open the page at a given width. Afterwards, check that it logged nothing and made no requests."""
    tabs = []

    def opened(width=1280, height=900):
        tabs.append(chromium.open(page, width, height))
        return tabs[-1]

    yield opened
    for tab in tabs:
        assert tab.messages == []
        assert set(tab.requests) == {page.as_uri()}
        tab.close()


@needs_browser
def test_browser_computes_operators_to_the_last_bit(show):
    rng = np.random.default_rng(0)
    count = 2000
    inputs = rng.standard_normal((count, 7)) * 10.0 ** rng.integers(-3, 4, (count, 7))
    inputs[:, 0], inputs[:, 6] = rng.random(count), rng.random(count)
    # Ties and zeros, where maximum, minimum and where have to choose.
    inputs[::5, 3], inputs[::7, 5], inputs[::11, 1] = inputs[::5, 2], inputs[::7, 4], 0.0
    tab = show()
    for alpha in (0.0, 0.3, 0.7, 0.99):
        numbers = f"{{alpha: {alpha!r}, k: {1 - alpha!r}}}"
        applied = f"Object.values(FAMILY).map((o) => rows.map((row) => o.apply(backup(...row), {numbers})))"
        found = tab.evaluate(f"((rows) => {applied})({json.dumps(inputs.tolist())})")
        for values, name in zip(found, FAMILY, strict=True):
            wanted = parse(text_of(name, alpha))(backup(*inputs.T))
            assert np.array_equal(values, wanted), (name, alpha)
    fields = tab.evaluate(f"((rows) => rows.map((row) => Object.values(backup(...row))))({json.dumps(inputs.tolist())})")
    assert np.array_equal(fields, np.stack(backup(*inputs.T), axis=1))


@needs_browser
@pytest.mark.parametrize("name", MDPS)
def test_browser_sweeps_equal_ours(show, name):
    tab, rng = show(), np.random.default_rng(1)
    for gamma, epsilon, alpha in ((0.5, 0.5, 0.9), (0.93, 0.07, 0.4)):
        mdp = MDPS[name].mdp(gamma, epsilon)
        q = rng.standard_normal(mdp.rewards.shape)
        assert np.array(tab.evaluate(f"MDPS.{name}.rewards({gamma}, {epsilon})")) == pytest.approx(mdp.rewards, abs=1e-12)
        for operator in FAMILY:
            numbers = f"{{alpha: {alpha}, k: {1 - alpha!r}}}"
            call = f"sweep(w, w.rewards({gamma}, {epsilon}), {gamma}, FAMILY['{operator}'], {numbers}, {q.tolist()})"
            found = np.array(tab.evaluate(f"((w) => {call})(MDPS.{name})"))
            assert found == pytest.approx(parse(text_of(operator, alpha))(backups(mdp, q)), abs=1e-12), operator


@pytest.mark.every(2)
@needs_browser
@pytest.mark.parametrize("name", MDPS)
@pytest.mark.parametrize(("gamma", "epsilon", "alpha"), [(0.9, 0.1, 0.7), (0.5, 0.01, 0.0), (0.99, 0.5, 0.9)])
def test_browser_solutions_equal_ours(show, name, gamma, epsilon, alpha):
    tab, mdp, settled = show(), MDPS[name].mdp(gamma, epsilon), 0
    for operator in FAMILY:
        parameters = f"{{gamma: {gamma}, epsilon: {epsilon}, alpha: {alpha}, k: {1 - alpha!r}}}"
        found = tab.evaluate(f"solve(MDPS.{name}, FAMILY['{operator}'], {parameters})")
        ours = solve(mdp, text_of(operator, alpha), engine="arrays", throw=False)
        assert found["settled"] == ours.converged, (operator, ours.status)
        if found["settled"]:
            settled += 1
            assert np.abs(np.array(found["q"]) - ours.q).max() < 1e-9, operator
            assert np.array(found["q"]).max(1) == pytest.approx(policy_iteration(mdp)[1], abs=1e-9)
    assert settled >= len(FAMILY) - 1


@needs_browser
def test_browser_counts_mistakes(show):
    tab = show()
    assert tab.evaluate("[actionGap([1, 3, 2.5]), greedy([1, 3, 3]), isWrong([1, 1, 0], 1), isWrong([1, 1, 0], 2)]") == [
        0.5,
        1,
        False,
        True,
    ]
    drawn = np.array(tab.evaluate("normals(5, 20000)"))
    assert abs(drawn.mean()) < 0.03
    assert drawn.std() == pytest.approx(1, abs=0.03)
    assert np.corrcoef(drawn[:-1], drawn[1:])[0, 1] == pytest.approx(0, abs=0.03)
    assert tab.evaluate("normals(5, 3)") == drawn[:3].tolist()
    # Cake is eaten as often as predicted: Phi(-gap / (sigma sqrt 2)) = 24% for a gap as wide as the noise.
    counts = []
    for _ in range(20):
        counts.append(int(tab.evaluate("document.querySelector('#cake .side-b .verdict b').textContent")))
        tab.click("#again")
    assert np.mean(counts) == pytest.approx(24, abs=3)
    assert len(set(counts)) > 3


@needs_browser
def test_browser_sliders_update_figures(show):
    tab = show()
    tally = "[...document.querySelectorAll('#garden .tally b')].map((b) => Number(b.textContent))"
    gaps = "[...document.querySelectorAll('#cake .figure')].map((t) => t.textContent)"
    assert tab.evaluate(gaps) == ["gap 0.100", "gap 0.333"]
    bellman, mine = tab.evaluate(tally)
    assert bellman > mine
    tab.set("#sigma", "0")
    assert tab.evaluate(tally) == [0, 0]
    assert tab.evaluate("document.querySelectorAll('.waffle .wrong').length") == 0
    assert tab.evaluate("[...document.querySelectorAll('.ring')].every((r) => r.hasAttribute('hidden'))")
    tab.set("#sigma", "0.5")
    assert min(tab.evaluate(tally)) > 3
    # By the keyboard: a step of alpha widens the gap.
    tab.evaluate("document.querySelector('#alpha').focus()")
    tab.press("ArrowRight")
    assert tab.evaluate("document.querySelector('output[for=alpha]').value") == "0.71"
    assert tab.evaluate(gaps) == ["gap 0.100", "gap 0.345"]
    # Choose every operator in the chart.
    for name in FAMILY:
        tab.click(f".rung[data-name={name}]")
        assert tab.evaluate("document.querySelector('#operator').value") == name
        assert tab.evaluate("document.querySelector('#cake .side-c .title').textContent") == OPERATOR_TEXTS[name][0]
        assert tab.evaluate("document.querySelector('#alpha').disabled") == (name in ("bellman", "consistent"))
    tab.set("#epsilon", "0.4")
    tab.set("#operator", "consistent")
    tab.set("#gamma", "0.5")
    assert tab.evaluate(gaps) == ["gap 0.400", "gap 0.533"]


@needs_browser
def test_browser_shows_the_commands_of_the_selection(show):
    tab = show()
    tab.set("#gamma", "0.95")
    tab.set("#epsilon", "0.2")
    for alpha in ("0", "0.71", "0.99"):
        tab.set("#alpha", alpha)
        for name in FAMILY:
            tab.set("#operator", name)
            solving, proving, *others = tab.evaluate("document.querySelector('.commands').textContent").splitlines()
            operator = solving.split()[4]
            assert solving == f"actiongap solve cake --operator {operator} --gamma 0.95 --epsilon 0.2"
            assert proving == f"actiongap prove {operator}"
            assert operator.partition(":")[0] == name
            b = backup(0.9, 1.0, 0.3, 0.5, 2.0, 1.0, 0.5)
            assert parse(operator)(b) == pytest.approx(parse(text_of(name, float(alpha)))(b))
            for command in (solving, proving, *others):
                actiongap.cli._parse(command.split()[1:])


@needs_browser
def test_browser_formats_numbers_and_letters_consistently(show):
    tab = show()
    tab.set("#operator", "baird")
    assert " / K" in tab.evaluate("document.querySelector('#formula').textContent")
    # Advantage learning's gap is epsilon / (1 - alpha), which comes out on either side of 10 by rounding.
    tab.set("#epsilon", "0.1")
    tab.set("#alpha", "0.99")
    found = tab.evaluate("[...document.querySelectorAll('.rung output, #cake .figure')].map((e) => e.textContent)")
    assert "10.0" in found
    assert not [text for text in found if "10.00" in text]


@needs_browser
@pytest.mark.parametrize("name", ["consistent", "pal"])
def test_browser_arrows_point_to_the_next_cell(show, name):
    tab, width = show(), len(GARDEN[0])
    mdp = MDPS["garden"].mdp(0.9, 0.1)
    truth = solve(mdp, "bellman").q
    # Change the arrows by noise, then return to the best actions.
    tab.set("#sigma", "0.5")
    tab.set("#operator", name)
    tab.click("#again")
    tab.set("#sigma", "0")
    tab.wait("document.querySelector('#garden').getAnimations({subtree: true}).length === 0")
    turned = "(m => [m.a, m.b, m.c, m.d, m.e, m.f])(new DOMMatrix(getComputedStyle(arrow).transform))"
    for side in ("b", "c"):
        arrows = tab.evaluate(f"[...document.querySelectorAll('#garden .side-{side} .arrow')].map((arrow) => {turned})")
        assert len(arrows) == "".join(GARDEN).count(".")
        for _, _, c, d, e, f in arrows:
            column, row = (e - 50) / 100, (f - 50) / 100
            assert GARDEN[int(row)][int(column)] == "."
            x, ahead = int(row) * width + int(column), (round(column - c), round(row - d))
            best = np.flatnonzero(truth[x] >= truth[x].max() - 1e-9)
            assert ahead in {heading(a, int(column), int(row)) for a in best.tolist()}


def heading(action: int, column: int, row: int) -> tuple[int, int]:
    """The place next to this one that an action goes for: up, right, down, left."""
    east, south = ((0, -1), (1, 0), (0, 1), (-1, 0))[action]
    return column + east, row + south


@needs_browser
def test_browser_says_where_an_operator_never_settles(show):
    tab = show()
    tab.set("#operator", "baird")
    tab.set("#alpha", "0.97")
    assert tab.evaluate("document.querySelector('#garden .side-c .tally').textContent").startswith("\N{EN DASH}")
    assert tab.evaluate("document.querySelector('#garden .side-c .lost').getBoundingClientRect().width") > 0
    assert tab.evaluate("[...document.querySelectorAll('#garden .side-c .arrow')].every((a) => a.hasAttribute('hidden'))")
    assert tab.evaluate("document.querySelector('#garden .side-b .lost').getBoundingClientRect().width") == 0
    tab.set("#operator", "al")
    assert tab.evaluate("document.querySelector('#garden .side-c .lost').getBoundingClientRect().width") == 0


@needs_browser
def test_browser_shakes_until_told_to_stop(show):
    tab = show()
    waffle = "[...document.querySelectorAll('#cake .side-b .waffle rect')].map((r) => r.getAttribute('class')).join()"
    first = tab.evaluate(waffle)
    tab.click("#shake")
    tab.wait(f"{waffle} !== {json.dumps(first)}")
    tab.click("#shake")
    assert tab.evaluate("document.querySelector('#shake').getAttribute('aria-pressed')") == "false"


@needs_browser
def test_browser_animates_bicycles(show):
    tab = show()
    home = "[...document.querySelectorAll('#bicycle .verdict b')].map((b) => b.textContent)"
    assert tab.evaluate(home) == ["0 of 8", "0 of 8"]
    assert tab.evaluate("document.querySelector('#play').textContent") == "Play"
    tab.evaluate("document.querySelector('#bicycle').scrollIntoView({block: 'center', behavior: 'instant'})")
    tab.wait("Number(document.querySelector('#clock').value) > 2")
    tab.click("#play")
    assert tab.evaluate("document.querySelector('#play').textContent") == "Play"
    painted = "document.querySelector('#bicycle .side-b canvas').toDataURL()"
    before = tab.evaluate(painted)
    tab.set("#clock", "480")
    assert tab.evaluate(home) == ["0 of 8", "8 of 8"]
    assert tab.evaluate("document.querySelector('#play').textContent") == "Replay"
    assert tab.evaluate(painted) != before
    arrived = sum(episode["seconds"] <= 400 for episode in load_episodes()["episodes"]["consistent"])
    tab.set("#clock", "400")
    assert tab.evaluate(home) == ["0 of 8", f"{arrived} of 8"]
    assert 0 < arrived < 8


@needs_browser
def test_browser_does_not_animate_with_reduced_motion(show):
    tab = show()
    tab.media(motion="reduce")
    tab.go(tab.requests[0])
    # The full paths are shown at once; the button plays the animation.
    assert tab.evaluate("document.querySelector('#bicycle .side-c .verdict b').textContent") == "8 of 8"
    tab.evaluate("document.querySelector('#bicycle').scrollIntoView({block: 'center', behavior: 'instant'})")
    tab.settle()
    assert tab.evaluate("document.querySelector('#play').textContent") == "Replay"
    assert tab.evaluate("getComputedStyle(document.querySelector('.arrow')).transitionDuration") == "0s"
    tab.media()


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_browser_fits_and_labels_every_control(show, width):
    tab = show(width, 844)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    named = "[...document.querySelectorAll('input, select')].every((e) => e.labels.length === 1 && e.labels[0].textContent.trim())"
    assert tab.evaluate(named)
    assert tab.evaluate("[...document.querySelectorAll('button')].every((b) => b.textContent.trim())")
    assert tab.evaluate(
        "[...document.querySelectorAll('[role=img]')].every((e) => e.getAttribute('aria-label') || e.getAttribute('aria-labelledby'))"
    )
    # The sliders stay visible while the figures are scrolled into view.
    tab.evaluate("document.querySelector('#garden').scrollIntoView({block: 'center', behavior: 'instant'})")
    tab.settle()
    assert tab.evaluate("document.querySelector('#sigma').getBoundingClientRect().top") >= 0


@needs_browser
def test_browser_redraws_canvases_in_the_colours_of_the_theme(show):
    tab = show()
    painted = "document.querySelector('#bicycle canvas').toDataURL()"
    tab.media("light")
    light = tab.evaluate(painted)
    tab.media("dark")
    assert tab.evaluate(painted) != light


@needs_browser
def test_browser_without_javascript_shows_a_notice(show):
    tab = show()
    tab.without_scripts()
    assert "which is switched off" in tab.evaluate("document.body.innerText")
    assert tab.evaluate("document.querySelector('.panel').offsetHeight") == 0


def test_the_page_contains_the_translated_script():
    assert translated_script() in render_demo()
    assert translate_function(backup) in translated_script()
