"""Deep agents on MinAtar: what is trained at each scale, and that the page says what the numbers say and no more."""

import dataclasses
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from actiongap.cli import main
from actiongap.experiments.training import Training
from actiongap.lab.launch import open_study, run_folder
from actiongap.lab.spec import run_name
from actiongap.lab.statistics import Estimate
from actiongap.lab.store import encode_rows, holding
from actiongap.lab.study import Study
from actiongap.report.html import render
from actiongap.report.page import Page, Prose, Section
from actiongap.reproduce.minatar import PART, sections
from actiongap.reproduce.minatar.bias import BIAS, FOLLOWS, OPPOSED, SUPPORTED, UNDECIDED, change, hypothesis
from actiongap.reproduce.minatar.comparing import HIGHER, LOWER, ONCE, UNSEEN, against_bellman, compare, count, over_games, ratio
from actiongap.reproduce.minatar.runs import FOLLOWED, Agent, final, read_agents
from actiongap.reproduce.minatar.scores import SCORE, relative
from actiongap.reproduce.minatar.studies import ALPHAS, FEW, GAMES, MUNCHAUSEN, OPERATORS, SWEPT, studies
from actiongap.reproduce.parts import SCALES, Scale, find

Numbers = Callable[[Training, int], Mapping[str, float | None]]
TWO = ("breakout", "seaquest")


def blocks_of(found: list[Section]) -> dict[str, Any]:
    return {block.title: block for section in found for block in section.blocks if not isinstance(block, Prose)}


def prose_of(found: list[Section]) -> str:
    return "\n".join(block.text for section in found for block in section.blocks if isinstance(block, Prose))


# What is trained.


@pytest.mark.parametrize("scale", SCALES)
def test_agents_that_are_compared_share_everything_but_operator_and_double(scale):
    runs: list[Any] = [run for study in studies(scale) for run in study.runs]
    names = [run_name(run) for run in runs]
    assert len(set(names)) == len(names)
    others = {dataclasses.replace(run, problem="minatar/breakout", operator="bellman", double=False, seed=0) for run in runs}
    assert len(others) == 1
    seeds: dict[Any, set[int]] = {}
    for run in runs:
        seeds.setdefault((run.problem, run.operator, run.double), set()).add(run.seed)
    assert len({frozenset(some) for some in seeds.values()}) == 1
    assert all(("minatar/" + game, "bellman", False) in seeds for game in {run.problem.removeprefix("minatar/") for run in runs})


def test_the_large_scales_are_the_whole_question():
    sizes: dict[Scale, tuple[int, int]] = {"gpu": (2_000_000, 20), "paper": (5_000_000, 50)}
    for scale, (frames, rows) in sizes.items():
        operators, relatives = studies(scale)
        runs: list[Any] = list(operators.runs)
        assert {(run.problem, run.operator, run.seed) for run in runs} == {
            (f"minatar/{game}", operator, seed) for game in GAMES for operator in OPERATORS for seed in range(10)
        }
        assert len(OPERATORS) == 13
        assert {(run.frames, run.rows) for run in runs} == {(frames, rows)}
        kinds = {(run.operator, run.double) for run in relatives.runs}  # pyright: ignore[reportAttributeAccessIssue]
        assert kinds == {("bellman", True), ("al:0.9", True), (MUNCHAUSEN, False)}
        assert len(relatives.runs) == 3 * 5 * 10
    assert {(run.replay_ratio, run.environments, run.precision) for run in studies("paper")[0].runs} == {(32.0, 1, "float32")}  # pyright: ignore[reportAttributeAccessIssue]
    assert {(run.replay_ratio, run.environments, run.precision) for run in studies("gpu")[0].runs} == {(8.0, 64, "bfloat16")}  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(("scale", "seeds", "rows"), [("smoke", 2, 3), ("laptop", 3, 10)])
def test_the_small_scales_are_one_game_and_one_alpha(scale, seeds, rows):
    [study] = studies(scale)
    runs: list[Any] = list(study.runs)
    assert {(run.problem, run.operator, run.seed) for run in runs} == {
        ("minatar/breakout", name, seed) for name in FEW for seed in range(seeds)
    }
    assert {(run.precision, run.rows) for run in runs} == {("float32", rows)}
    assert study.gpus == 0


# What was trained is read back; here it is invented.


def invent(out: Path, study: Study, numbers: Numbers, state: Any = "done") -> None:
    """Runs of a study whose rows are invented: numbers(run, row) gives some columns, counting rows from 1."""
    folder = open_study(study, out / study.name, "actiongap reproduce minatar --scale gpu")
    for name, run in study.named().items():
        assert isinstance(run, Training)
        plain = {
            "score": 1.0,
            "length": 9.0,
            "action_gap": 0.1,
            "value": 1.0,
            "bias": 0.0,
            "training_return": 1.0,
            "loss": 0.1,
            "restarts": 0,
        }
        rows: list[Any] = [{"step": row * run.every, **plain, **numbers(run, row)} for row in range(1, run.rows + 1)]
        with holding(run_folder(folder, name), run, "actiongap reproduce minatar --scale gpu") as held:
            held.append(run.chunks, encode_rows(rows), {"weights": np.zeros(1)}, 1.0)
            held.save(state)


def some_of(games: tuple[str, ...] = TWO, seeds: int = 4, operators: tuple[str, ...] = OPERATORS, relatives: bool = False) -> list[Study]:
    """Parts of the studies of the accelerator's scale."""
    chosen = []
    for study in studies("gpu")[: 2 if relatives else 1]:
        runs: list[Any] = list(study.runs)
        kept = [run for run in runs if run.problem.removeprefix("minatar/") in games and run.seed < seeds]
        kept = [run for run in kept if study.name == "relatives" or run.operator in operators]
        chosen.append(dataclasses.replace(study, runs=tuple(kept)))
    return chosen


def luck(run: Training) -> float:
    """Something between -1 and 1 that differs from run to run."""
    return float(np.random.default_rng([run.seed, run.double, *run.problem.encode(), *run.operator.encode()]).uniform(-1, 1))


def lively(run: Training, row: int) -> dict[str, float | None]:
    """al helps on breakout by alpha, pal-dqn hurts on seaquest; gaps grow with alpha, bias falls with it from 2."""
    family, alpha = SWEPT.get(run.operator, ("", 0.0))
    game = run.problem.removeprefix("minatar/")
    up = 10 * alpha if (family, game) == ("al", "breakout") else -5 * alpha if (family, game) == ("pal-dqn", "seaquest") else 0.0
    score = 20 + up + 0.3 * luck(run) if row > 18 else 0.0
    bias = 2.0 - alpha - (1.0 if run.double else 0.0) + 0.02 * luck(run)
    return {"score": score, "action_gap": 0.1 + alpha + 0.01 * luck(run), "value": 4.0 + bias, "bias": bias}


@pytest.fixture(scope="module")
def invented(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("invented")
    for study in some_of(relatives=True):
        invent(out, study, lively)
    return out


@pytest.fixture(scope="module")
def page(invented) -> list[Section]:
    return sections(invented)


def test_the_final_score_is_the_mean_of_the_last_tenth(invented):
    agents = read_agents(invented).agents
    assert len(agents) == 2 * 16
    for agent in (Agent("breakout", "al:0.9"), Agent("breakout", "bellman", double=True)):
        for run in agents[agent].runs:
            assert SCORE(run) == pytest.approx(run.rows["score"][-2:].mean())
            assert final(FOLLOWED)(run) == pytest.approx(4.0)
    assert [agent.operator for agent in agents if agent.game == "breakout" and not agent.double] == [*OPERATORS, MUNCHAUSEN]


def test_comparisons_are_scipy_s_paired_t_tests(invented):
    agents = read_agents(invented).agents
    found = against_bellman(agents, SCORE)
    assert len(found) == 2 * 15
    for agent, against in found.items():
        x, y = (np.array([SCORE(run) for run in agents[who].runs]) for who in (agent, Agent(agent.game, "bellman")))
        test = stats.ttest_rel(x, y)
        assert against.p == pytest.approx(test.pvalue)
        assert against.difference.low == pytest.approx(test.confidence_interval(0.95).low)
        assert against.ratio is not None
        assert against.ratio.value == pytest.approx(x.mean() / y.mean())
        for level in (0.95, 0.99):
            expected = (HIGHER if test.statistic > 0 else LOWER) if test.pvalue < 1 - level else UNSEEN
            assert against.side(level) == expected
    assert found[Agent("breakout", "al:0.9")].verdict == "higher, 99%"
    assert found[Agent("seaquest", "pal-dqn:0.9")].verdict == "lower, 99%"


def test_a_ratio_s_interval_holds_the_truth_as_often_as_it_says():
    rng, held = np.random.default_rng(0), []
    for _ in range(2000):
        shared = rng.normal(size=(10, 3))
        x, y = (np.array([3.0, 8.0, 1.5]) * (1 + 0.2 * (shared + rng.normal(size=(10, 3)))) * scale for scale in (1.5, 1.0))
        found = ratio(x, y)
        assert found is not None
        held.append(found.low < 1.5 < found.high)
    assert 0.93 < np.mean(held) < 0.97


def test_nothing_is_a_part_of_nothing():
    assert ratio([[1.0], [2.0]], [[0.0], [0.0]]) is None
    assert ratio([[1.0, 1.0]], [[1.0, -1.0]]) is None
    alone = ratio([[3.0]], [[2.0]])
    assert alone is not None
    assert (alone.value, alone.high) == (1.5, np.inf)


def test_over_games_ratios_are_averaged(invented):
    agents = read_agents(invented).agents
    pairs = [(Agent(game, "al:0.5"), Agent(game, "bellman")) for game in TWO]
    means = [[np.mean([SCORE(run) for run in agents[who].runs]) for who in pair] for pair in pairs]
    found = relative(agents, Agent("", "al:0.5"))
    assert found is not None
    assert found.value == pytest.approx(np.mean([one / other for one, other in means]))
    assert over_games([(agents[one], agents[other]) for one, other in pairs], SCORE) == found


def test_differences_that_are_all_alike_are_judged_by_their_number(tmp_path):
    def numbers(run, row):
        return {"score": 2.0 if run.operator == "al:0.9" else 1.0}

    for seeds, verdict in ((2, UNSEEN), (7, "higher, 95%"), (10, "higher, 99%")):
        [study] = some_of(("breakout",), seeds, ("bellman", "al:0.9", "al:0.5"))
        invent(tmp_path / str(seeds), study, numbers)
        found = against_bellman(read_agents(tmp_path / str(seeds)).agents, SCORE)
        assert found[Agent("breakout", "al:0.9")].verdict == verdict
        assert found[Agent("breakout", "al:0.5")].verdict == UNSEEN


def test_everything_is_on_the_page(page):
    shown, text = blocks_of(page), prose_of(page)
    assert [section.title.removeprefix("MinAtar: ") for section in page] == [
        "does a wider gap help?",
        "how much of the gap is subtracted",
        "gaps, values and bias",
        "Double DQN and Munchausen",
        "runs",
    ]
    assert "Not run" not in text
    curves = dict(shown["Learning curves"].items)
    assert {game for game, _ in curves} == set(TWO)
    assert {which: len(curves["breakout", which].series) for _, which in curves} == {
        "alpha = 0.9": 3,
        "al, every alpha": 7,
        "pal-dqn, every alpha": 7,
        "relatives": 5,
    }
    assert all(line.n == 4 and len(line.x) == 20 for chart in curves.values() for line in chart.series)
    assert len(shown["Gaps and values while learning"].items) == 2 * 4 * 4
    assert len(shown["Final scores"].rows) == 2 * 13
    assert len(shown["Persistent against plain advantage learning"].rows) == 2 * 6
    sweep = dict(shown["By alpha"].items)
    al, pal = sweep["breakout", "score, as a part of bellman's"].series
    assert (al.name, pal.name, al.x) == ("al", "pal-dqn", (0.0, *ALPHAS))
    assert (al.y[0], al.low[0], al.high[0]) == (1.0, 1.0, 1.0)
    assert al.y[5] == pytest.approx(1.45, abs=0.03)
    assert sweep["all games", "score, as a part of bellman's"].series[0].y[5] == pytest.approx(1.225, abs=0.03)
    gaps = sweep["seaquest", "action gap"].series[0]
    assert gaps.y == pytest.approx([0.1 + alpha for alpha in gaps.x], abs=0.011)
    changes = dict(shown["Bias less bellman's, by alpha"].items)
    assert changes["all games",].series[1].y == pytest.approx([-alpha / 4 for alpha in (0.0, *ALPHAS)], abs=0.011)
    assert len(shown["Relatives in numbers"].rows) == 2 * 6
    assert "</html>" in render(Page("MinAtar", tuple(page)))
    assert all("--scale gpu" in block.source.command for block in shown.values() if getattr(block, "source", None))


def test_counts_are_of_the_tests_and_say_what_chance_does(invented, page):
    agents = read_agents(invented).agents
    found = {agent: against for agent, against in against_bellman(agents, SCORE).items() if agent.name in SWEPT}
    sure, surer = (count(found.values(), level) for level in (0.95, 0.99))
    assert (sure.of, sure.by_chance, surer.by_chance) == (24, pytest.approx(0.6), pytest.approx(0.12))
    text = prose_of(page)
    assert f"{sure}; {surer}." in text
    assert "by chance alone 0.6 each way" in text
    table = blocks_of(page)["Where it helps, and where it hurts"]
    assert [row[0] for row in table.rows] == list(SWEPT)
    assert sum(row[3] for row in table.rows) == sure.higher
    assert all(sum(row[3:6]) == sum(row[6:9]) == row[2] == 2 for row in table.rows)
    helps = {row[0]: row[3] for row in table.rows}
    assert helps["al:0.9"] >= 1
    paper = {row[0]: row[1:] for row in blocks_of(page)["Beside the paper"].rows}
    nine = [found[Agent(game, "al:0.9")].side(0.99) for game in TWO]
    assert paper["al beside bellman: better"] == ("37 of 60", f"{nine.count(HIGHER)} of 2")
    assert paper["pal-dqn beside al: worse"][0] == "6 of 60"
    improved = paper["al: mean improvement over bellman, percent"]
    assert improved[0] == 27.0
    assert improved[1].value == pytest.approx(22.5, abs=3)


def made(out: Path, numbers: Numbers, **which: Any) -> tuple[Any, str]:
    for study in some_of(**which):
        invent(out, study, numbers)
    return read_agents(out).agents, prose_of(sections(out))


@pytest.mark.parametrize(("slope", "verdict"), [(-1.0, SUPPORTED), (1.0, OPPOSED), (0.0, UNDECIDED)])
def test_the_hypothesis_follows_the_numbers(tmp_path, slope, verdict):
    def numbers(run, row):
        alpha = SWEPT.get(run.operator, ("", 0.0))[1]
        bias = 2.0 + slope * alpha + 0.05 * luck(run)
        return {"bias": bias, "value": 5.0 + bias, "action_gap": 0.1 + alpha + 0.01 * luck(run)}

    agents, text = made(tmp_path, numbers, operators=FEW)
    finding = hypothesis(agents)
    assert finding.too_high == TWO
    assert finding.agents == tuple(Agent(game, name) for game in TWO for name in FEW[1:])
    assert finding.gap is not None
    assert finding.gap.value == pytest.approx(9, rel=0.1)
    assert finding.verdict == verdict
    assert finding.bias is not None
    assert finding.bias.value == pytest.approx(slope * 0.9 / 5, abs=0.02)
    assert f"The hypothesis is {verdict} (95%)." in text
    for other in {SUPPORTED, OPPOSED, UNDECIDED} - {verdict}:
        assert f"The hypothesis is {other}" not in text


@pytest.mark.parametrize(("bellman", "gap", "why"), [(-1.0, 0.9, "No overestimation is seen"), (2.0, 0.0, "it is not seen to be wider")])
def test_where_a_premise_fails_the_hypothesis_is_undecided(tmp_path, bellman, gap, why):
    def numbers(run, row):
        other = run.operator != "bellman"
        bias = bellman - other + 0.05 * luck(run)
        return {"bias": bias, "value": 5.0 + bias, "action_gap": 0.1 + other * (gap + 0.01 * (-1) ** run.seed)}

    agents, text = made(tmp_path, numbers, operators=FEW)
    assert hypothesis(agents).verdict == UNDECIDED
    assert "The hypothesis is undecided (95%)." in text
    assert why in text


def test_seeds_and_not_comparisons_make_the_interval_of_the_bias(invented):
    agents = read_agents(invented).agents
    some = [Agent(game, name) for game in TWO for name in SWEPT]
    biases = {agent: {run.seed: final("bias")(run) for run in group.runs} for agent, group in agents.items()}
    by_hand = [np.mean([biases[agent][seed] - biases[Agent(agent.game, "bellman")][seed] for agent in some]) / 4 for seed in range(4)]
    found = change(agents, some, BIAS, FOLLOWS)
    assert found is not None
    assert (found.value, found.n) == (pytest.approx(np.mean(by_hand)), 4)
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 3, np.mean(by_hand), stats.sem(by_hand)))


def test_an_operator_without_a_difference_is_not_called_equal(tmp_path):
    def numbers(run, row):
        return {"score": 10 + (-1) ** run.seed * (run.operator != "bellman")}

    _, text = made(tmp_path, numbers, operators=FEW)
    assert "On breakout no difference is seen with any of 2 operators." in text
    assert "easily missed" in text
    assert "equal" not in text
    assert "more than bellman: none; less: none; no difference seen: 2" in text


def test_helping_and_hurting_change_places_with_the_numbers(tmp_path):
    for place, sign in (("up", 1), ("down", -1)):

        def numbers(run, row, sign=sign):
            return {"score": 10 + 3 * sign * (run.operator == "al:0.9") + 0.1 * luck(run)}

        _, text = made(tmp_path / place, numbers, operators=FEW)
        side, other = (HIGHER, LOWER) if sign > 0 else (LOWER, HIGHER)
        assert f"On seaquest it is {side} with al:0.9; no difference is seen with the other 1." in text
        assert f"it is {other} with" not in text


def test_values_that_are_no_numbers_are_left_out_and_counted(tmp_path):
    def numbers(run, row):
        lost = run.operator == "al:0.9" and run.seed == 1
        return {"bias": None if lost else 2.0 + luck(run), "value": None if lost else 9.0, "score": 3 + luck(run)}

    agents, _ = made(tmp_path, numbers, games=("breakout",), operators=FEW)
    group, base = agents[Agent("breakout", "al:0.9")], agents[Agent("breakout", "bellman")]
    bias, score = (compare(group, base, final(name)) for name in ("bias", "score"))
    assert bias is not None
    assert score is not None
    assert (bias.difference.n, score.difference.n) == (3, 4)
    table = blocks_of(sections(tmp_path))["Gaps, values and bias in numbers"]
    assert [row[5].n for row in table.rows] == [4, 3, 4]


def test_one_seed_says_nothing_and_unfinished_agents_have_curves_alone(tmp_path):
    agents, text = made(tmp_path / "one", lively, seeds=1, operators=FEW)
    assert {against.verdict for against in against_bellman(agents, SCORE).values()} == {ONCE}
    assert "Nothing can be said of final scores yet" in text
    assert "Nothing can be said of bias yet" in text
    [study] = some_of(("breakout",), 3, FEW)
    invent(tmp_path / "half", study, lively, state="running")
    found = sections(tmp_path / "half")
    assert "Nothing can be said of final scores yet" in prose_of(found)
    assert all(row[2] is None for row in blocks_of(found)["Final scores"].rows)
    assert len(blocks_of(found)["Learning curves"].items) == 1
    render(Page("MinAtar", tuple(found)))


def test_studies_of_different_scales_are_not_compared(tmp_path, invented):
    operators, relatives = some_of(seeds=2, operators=FEW, relatives=True)
    shorter: list[Any] = list(relatives.runs)
    invent(tmp_path, operators, lively)
    invent(tmp_path, dataclasses.replace(relatives, runs=tuple(dataclasses.replace(run, frames=1_000_000) for run in shorter)), lively)
    agents, runs, problems = read_agents(tmp_path)
    assert {agent.name for agent in agents} == set(FEW)
    assert len(runs) == len(operators.runs)
    assert problems == ("12 runs of relatives had other settings and are left out: run both studies at one scale",)
    assert f"Left out: {problems[0]}" in prose_of(sections(tmp_path))
    # Asked anew, the runs of an earlier scale are there and do not count.
    [again] = some_of(("seaquest",), 2, FEW)
    briefer: list[Any] = list(again.runs)
    invent(tmp_path, dataclasses.replace(again, runs=tuple(dataclasses.replace(run, frames=500_000) for run in briefer)), lively)
    assert {agent.game for agent in read_agents(tmp_path).agents} == {"seaquest"}


def test_a_folder_with_nothing_in_it_says_so(tmp_path):
    assert "Not run in this folder: operators" in prose_of(sections(tmp_path))
    (tmp_path / "operators" / "runs").mkdir(parents=True)
    assert "Not run in this folder: relatives" in prose_of(sections(tmp_path))
    assert PART.tables(tmp_path) == []


def test_a_run_that_failed_is_named(tmp_path):
    [study] = some_of(("breakout",), 3, FEW)
    invent(tmp_path, study, lively)
    bad: Any = next(run for run in study.runs if run.seed == 2)
    bad = dataclasses.replace(bad, operator="al:0.5")
    extended = dataclasses.replace(study, runs=(*study.runs, bad))
    open_study(extended, tmp_path / "operators", "")
    with holding(tmp_path / "operators" / "runs" / run_name(bad), bad) as held:
        held.fail("no memory is left on the device", "")
    assert blocks_of(sections(tmp_path))["Runs that failed"].rows[0][-1] == "no memory is left on the device"


def test_a_terminal_shows_every_agent_on_every_game(invented):
    text = io.StringIO()
    [table] = PART.tables(invented)
    Console(width=200, file=text).print(table)
    assert table.row_count == 16
    for word in ("double al:0.9", MUNCHAUSEN, "breakout", "seaquest", "higher, 99%", UNSEEN):
        assert word in text.getvalue()


def test_the_part_is_registered():
    assert find("minatar") is PART
    assert isinstance(relative({}, Agent("", "bellman")), Estimate | None)


# The smallest of all studies, from training to page.


def test_the_smoke_scale_makes_a_page(tmp_path, capsys):
    for _ in range(2):
        with pytest.raises(SystemExit) as left:
            main(["reproduce", "minatar", "--scale", "smoke", "--out", str(tmp_path)])
        assert left.value.code == 0
    said = capsys.readouterr()
    assert "operators: all 6 runs are done already." in said.err
    assert "pal-dqn:0.9" in said.out
    found = read_agents(tmp_path)
    assert found.problems == ()
    assert {agent: [run.state for run in group.runs] for agent, group in found.agents.items()} == {
        Agent("breakout", name): ["done", "done"] for name in FEW
    }
    assert all(run.rows["step"].tolist() == [512, 1024, 1536] for run in found.runs)
    assert all(np.isfinite(run.rows[name]).all() for run in found.runs for name in ("score", "value", "action_gap", "bias", "loss"))
    assert len({tuple(run.rows["value"]) for run in found.runs}) == 6
    page = (tmp_path / "page.html").read_text()
    for heading in ("MinAtar: does a wider gap help?", "MinAtar: gaps, values and bias", "Not run in this folder: relatives"):
        assert heading in page
