"""Deep agents on MinAtar: the studies at each scale, and that the page follows from the rows of runs."""

import dataclasses
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from actiongap.dqn.config import PRESETS
from actiongap.lab.experiment import run_name
from actiongap.lab.kinds.train import Training
from actiongap.lab.runner import open_study, run_folder
from actiongap.lab.statistics import Estimate, mean_over_games, ratios_by_seed
from actiongap.lab.store import encode_rows, holding
from actiongap.lab.study import Study
from actiongap.paper.agents import (
    ALPHAS,
    DISCOUNTED_RETURN,
    HIGHER,
    LOWER,
    MAIN_OPERATORS,
    NO_DIFFERENCE,
    ONE_PAIR,
    OPERATORS,
    SWEEP,
    Agent,
    compare,
    compare_paired,
    compare_with_bellman,
    count_directions,
    final_mean,
    mean_ratio_over_games,
)
from actiongap.paper.agents_bias import (
    AGREES,
    BIAS,
    MIXED,
    OPPOSED,
    RETURN,
    UNDECIDED,
    VALUE,
    bias_comparisons,
    hypothesis,
    normalized_change,
    relative_bias,
    relative_bias_by_seed,
)
from actiongap.paper.agents_scores import HIGHEST, SCORE, mean_relative_score
from actiongap.paper.minatar import GAMES, MUNCHAUSEN, PART, read_agents, sections, studies
from actiongap.paper.parts import SCALES, Scale, format_estimate, load_part
from actiongap.reporting.html import render
from actiongap.reporting.page import Page, Section
from pages import blocks_of, prose_of

Numbers = Callable[[Training, int], Mapping[str, float | None]]
TWO = ("breakout", "seaquest")


# Studies.


@pytest.mark.parametrize("scale", SCALES)
def test_compared_agents_differ_only_in_operator_and_double(scale):
    runs: list[Any] = [run for study in studies(scale) for run in study.runs]
    names = [run_name(run) for run in runs]
    assert len(set(names)) == len(names)
    others = {dataclasses.replace(run, env="minatar/breakout", operator="bellman", double=False, seed=0) for run in runs}
    assert len(others) == 1
    seeds: dict[Any, set[int]] = {}
    for run in runs:
        seeds.setdefault((run.env, run.operator, run.double), set()).add(run.seed)
    assert len({frozenset(some) for some in seeds.values()}) == 1
    assert all(("minatar/" + game, "bellman", False) in seeds for game in {run.env.removeprefix("minatar/") for run in runs})


def test_large_scales_have_all_agents():
    sizes: dict[Scale, tuple[int, int]] = {"gpu": (2_000_000, 20), "paper": (5_000_000, 50)}
    for scale, (frames, rows) in sizes.items():
        operators, other_methods = studies(scale)
        runs: list[Any] = list(operators.runs)
        assert {(run.env, run.operator, run.seed) for run in runs} == {
            (f"minatar/{game}", operator, seed) for game in GAMES for operator in OPERATORS for seed in range(10)
        }
        assert len(OPERATORS) == 13
        assert {(run.frames, run.rows) for run in runs} == {(frames, rows)}
        kinds = {(run.operator, run.double) for run in other_methods.runs}  # pyright: ignore[reportAttributeAccessIssue]
        assert kinds == {("bellman", True), ("al:0.9", True), (MUNCHAUSEN, False)}
        assert len(other_methods.runs) == 3 * 5 * 10
    presets: dict[Scale, str] = {"gpu": "throughput", "paper": "faithful"}
    for scale, preset in presets.items():
        assert {run.config for run in studies(scale)[0].runs} == {PRESETS[preset]}  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(("scale", "seeds", "rows"), [("smoke", 2, 3), ("laptop", 3, 10)])
def test_small_scales_have_one_game_and_one_alpha(scale, seeds, rows):
    [study] = studies(scale)
    runs: list[Any] = list(study.runs)
    assert {(run.env, run.operator, run.seed) for run in runs} == {
        ("minatar/breakout", name, seed) for name in MAIN_OPERATORS for seed in range(seeds)
    }
    assert {(run.precision, run.rows) for run in runs} == {("float32", rows)}
    assert study.gpus == 0


# Runs with synthetic rows.


def write_runs(out: Path, study: Study, numbers: Numbers, state: Any = "done") -> None:
    """Write runs of a study with synthetic rows: numbers(run, row) returns some columns, counting rows from 1."""
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
        rows: list[Any] = [{"step": row * run.eval_every, **plain, **numbers(run, row)} for row in range(1, run.rows + 1)]
        with holding(run_folder(folder, name), run, "actiongap reproduce minatar --scale gpu") as covered:
            covered.append(run.chunks, encode_rows(rows), {"weights": np.zeros(1)}, 1.0, batch_size=9)
            covered.save(state)


def select_studies(
    games: tuple[str, ...] = TWO, seeds: int = 4, operators: tuple[str, ...] = OPERATORS, other_methods: bool = False
) -> list[Study]:
    """Subsets of the studies of the gpu scale."""
    chosen = []
    for study in studies("gpu")[: 2 if other_methods else 1]:
        runs: list[Any] = list(study.runs)
        kept = [run for run in runs if run.env.removeprefix("minatar/") in games and run.seed < seeds]
        kept = [run for run in kept if study.name == "other-methods" or run.operator in operators]
        chosen.append(dataclasses.replace(study, runs=tuple(kept)))
    return chosen


def noise(run: Training) -> float:
    """A number between -1 and 1 that is fixed for each run."""
    return float(np.random.default_rng([run.seed, run.double, *run.env.encode(), *run.operator.encode()]).uniform(-1, 1))


def improving(run: Training, row: int) -> dict[str, float | None]:
    """With alpha, al improves on breakout and pal-dqn degrades on seaquest. Gaps grow with alpha; the bias falls from 2."""
    family, alpha = SWEEP.get(run.operator, ("", 0.0))
    game = run.env.removeprefix("minatar/")
    up = 10 * alpha if (family, game) == ("al", "breakout") else -5 * alpha if (family, game) == ("pal-dqn", "seaquest") else 0.0
    score = 20 + up + 0.3 * noise(run) if row > 18 else 0.0
    bias = 2.0 - alpha - (1.0 if run.double else 0.0) + 0.02 * noise(run)
    return {"score": score, "action_gap": 0.1 + alpha + 0.01 * noise(run), "value": 4.0 + bias, "bias": bias}


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("synthetic")
    for study in select_studies(other_methods=True):
        write_runs(out, study, improving)
    return out


@pytest.fixture(scope="module")
def page(synthetic) -> list[Section]:
    return sections(synthetic)


def test_final_score_is_the_mean_of_the_last_tenth(synthetic):
    agents = read_agents(synthetic).agents
    assert len(agents) == 2 * 16
    for agent in (Agent("breakout", "al:0.9"), Agent("breakout", "bellman", double=True)):
        for run in agents[agent].runs:
            assert SCORE(run) == pytest.approx(run.rows["score"][-2:].mean())
            assert final_mean(DISCOUNTED_RETURN)(run) == pytest.approx(4.0)
    assert [agent.operator for agent in agents if agent.game == "breakout" and not agent.double] == [*OPERATORS, MUNCHAUSEN]


def test_comparisons_are_scipy_s_paired_t_tests(synthetic):
    agents = read_agents(synthetic).agents
    found = compare_with_bellman(agents, SCORE)
    assert len(found) == 2 * 15
    for agent, against in found.items():
        x, y = (np.array([SCORE(run) for run in agents[who].runs]) for who in (agent, Agent(agent.game, "bellman")))
        test = stats.ttest_rel(x, y)
        assert against.p == pytest.approx(test.pvalue)
        assert against.difference.low == pytest.approx(test.confidence_interval(0.95).low)
        assert against.ratio is not None
        assert against.ratio.value == pytest.approx(x.mean() / y.mean())
        for level in (0.95, 0.99):
            expected = (HIGHER if test.statistic > 0 else LOWER) if test.pvalue < 1 - level else NO_DIFFERENCE
            assert against.direction(level) == expected
    assert found[Agent("breakout", "al:0.9")].verdict == "higher, 99%"
    assert found[Agent("seaquest", "pal-dqn:0.9")].verdict == "lower, 99%"


def test_interval_of_a_ratio_has_its_nominal_coverage():
    rng, covered = np.random.default_rng(0), []
    for _ in range(2000):
        shared = rng.normal(size=(10, 3))
        x, y = (np.array([3.0, 8.0, 1.5]) * (1 + 0.2 * (shared + rng.normal(size=(10, 3)))) * scale for scale in (1.5, 1.0))
        found = mean_over_games([ratios_by_seed(dict(enumerate(one)), dict(enumerate(other))) for one, other in zip(x.T, y.T, strict=True)])
        assert found is not None
        covered.append(found.low < 1.5 < found.high)
    assert 0.93 < np.mean(covered) < 0.97


def test_ratio_needs_a_positive_denominator_and_runs():
    assert ratios_by_seed({0: 1.0, 1: 2.0}, {0: 0.0, 1: 0.0}) == {}
    assert mean_over_games([{0: 1.0}, {}]) is None
    alone = compare_paired({0: 3.0}, {0: 2.0})
    assert alone is not None
    assert alone.ratio is not None
    assert (alone.ratio.value, alone.ratio.high) == (1.5, np.inf)


def test_mean_over_games_uses_all_seeds_of_each_game():
    rng = np.random.default_rng(0)
    games = [dict(enumerate(rng.normal(place, 1 + place, size=seeds))) for place, seeds in enumerate((10, 5, 3))]
    found = mean_over_games(games)
    assert found is not None
    assert (found.value, found.n) == (pytest.approx(np.mean([np.mean(list(game.values())) for game in games])), 3)
    # For two games it is Welch's interval of a difference, with the sign of one game reversed.
    one, other = (np.array(list(game.values())) for game in games[:2])
    two = mean_over_games(games[:2])
    welch = stats.ttest_ind(one, -other, equal_var=False).confidence_interval(0.95)  # pyright: ignore[reportAttributeAccessIssue]
    assert two is not None
    assert (two.low, two.high) == pytest.approx((welch.low / 2, welch.high / 2))
    # One pair has no spread and therefore no interval; it still counts in the mean.
    alone = mean_over_games([*games, {7: 100.0}])
    assert alone is not None
    assert (alone.value, alone.low, alone.high, alone.n) == (pytest.approx((3 * found.value + 100) / 4), -np.inf, np.inf, 1)


def test_interval_over_games_with_different_seeds_has_its_nominal_coverage():
    rng, covered = np.random.default_rng(0), []
    for _ in range(2000):
        found = mean_over_games([dict(enumerate(rng.normal(1.0, place, size=seeds))) for place, seeds in ((1, 10), (3, 3), (2, 4))])
        assert found is not None
        covered.append(found.low < 1.0 < found.high)
    assert 0.93 < np.mean(covered) < 0.99


def test_no_seed_is_dropped_because_another_game_lacks_it(tmp_path):
    def numbers(run, row):
        other = run.operator == "al:0.9"
        return improving(run, row) | {"score": 10.0 * (1 + other * (run.seed + 1)), "bias": 2.0 - other * run.seed}

    [few, more] = (select_studies((game,), seeds, MAIN_OPERATORS)[0] for game, seeds in zip(TWO, (2, 4), strict=True))
    write_runs(tmp_path, dataclasses.replace(few, runs=(*few.runs, *more.runs)), numbers)
    agents = read_agents(tmp_path).agents
    part, changed = (
        mean_relative_score(agents, Agent("", "al:0.9")),
        normalized_change(agents, [Agent(game, "al:0.9") for game in TWO], BIAS, BIAS),
    )
    assert part is not None
    assert part.value == pytest.approx(np.mean([np.mean([2, 3]), np.mean([2, 3, 4, 5])]))
    assert changed is not None
    assert changed.value == pytest.approx(np.mean([-np.mean([0, 1]), -np.mean([0, 1, 2, 3])]) / 2)
    assert (
        "Games with different seeds are treated as independent"
        in blocks_of(sections(tmp_path))["Where each operator helps, and where it hurts"].note
    )


def test_over_games_ratios_are_averaged(synthetic):
    agents = read_agents(synthetic).agents
    pairs = [(Agent(game, "al:0.5"), Agent(game, "bellman")) for game in TWO]
    means = [[np.mean([SCORE(run) for run in agents[who].runs]) for who in pair] for pair in pairs]
    found = mean_relative_score(agents, Agent("", "al:0.5"))
    assert found is not None
    assert found.value == pytest.approx(np.mean([one / other for one, other in means]))
    assert mean_ratio_over_games([(agents[one], agents[other]) for one, other in pairs], SCORE) == found


def test_identical_differences_are_significant_if_there_are_enough(tmp_path):
    def numbers(run, row):
        return {"score": 2.0 if run.operator == "al:0.9" else 1.0}

    for seeds, verdict in ((2, NO_DIFFERENCE), (7, "higher, 95%"), (10, "higher, 99%")):
        [study] = select_studies(("breakout",), seeds, ("bellman", "al:0.9", "al:0.5"))
        write_runs(tmp_path / str(seeds), study, numbers)
        found = compare_with_bellman(read_agents(tmp_path / str(seeds)).agents, SCORE)
        against = found[Agent("breakout", "al:0.9")]
        assert against.verdict == verdict
        assert np.isfinite(against.difference.low) == (verdict != NO_DIFFERENCE)
        assert found[Agent("breakout", "al:0.5")].verdict == NO_DIFFERENCE


def test_everything_is_on_the_page(page):
    shown, text = blocks_of(page), prose_of(page)
    assert [section.title.removeprefix("MinAtar: ") for section in page] == [
        "does a wider gap help?",
        "effect of alpha",
        "gaps, values and bias",
        "Double DQN and Munchausen",
        "runs",
    ]
    assert "Not run" not in text
    curves = dict(shown["Learning curves"].items)
    assert {game for game, *_ in curves} == set(TWO)
    assert {which: len(curves["breakout", "in evaluation", which].series) for *_, which in curves} == {
        "alpha = 0.9": 3,
        "al, all alphas": 7,
        "pal-dqn, all alphas": 7,
        "other methods": 6,
    }
    assert all(line.n == 4 and len(line.x) == 20 for chart in curves.values() for line in chart.series)
    assert len(shown["Gaps and values during learning"].items) == 2 * 4 * 4
    assert len(shown["Final scores"].rows) == 2 * 13
    assert len(shown["Persistent against plain advantage learning"].rows) == 2 * 6
    sweep = dict(shown["By alpha"].items)
    al, pal = sweep["breakout", "score as a fraction of bellman's"].series
    assert (al.name, pal.name, al.x) == ("al", "pal-dqn", (0.0, *ALPHAS))
    assert (al.y[0], al.low[0], al.high[0]) == (1.0, 1.0, 1.0)
    assert al.y[5] == pytest.approx(1.45, abs=0.03)
    assert sweep["all games", "score as a fraction of bellman's"].series[0].y[5] == pytest.approx(1.225, abs=0.03)
    gaps = sweep["seaquest", "action gap"].series[0]
    assert gaps.y == pytest.approx([0.1 + alpha for alpha in gaps.x], abs=0.011)
    assert "with al it rises with every step, from 0.1" in sweep["seaquest", "action gap"].note
    assert all(chart.dots for chart in sweep.values())
    changes = dict(shown["Bias compared with bellman, by alpha"].items)
    for what in ("bias", "V"):
        assert changes["all games", what].series[1].y == pytest.approx([-alpha / 4 for alpha in (0.0, *ALPHAS)], abs=0.011)
    assert changes["all games", "discounted return"].series[1].y == pytest.approx([0.0] * 7, abs=1e-9)
    own = changes["seaquest", "bias / own return"].series[0]
    assert own.y == pytest.approx([(2 - alpha) / 4 for alpha in own.x], abs=0.006)
    assert len(shown["Gaps, values and bias"].rows) == 2 * 13
    assert len(shown["Gaps, values and bias compared with bellman"].rows) == 2 * 12
    for title, rows in (("scores", 6), ("gaps, values and bias", 6), ("compared with bellman", 5)):
        assert len(shown[f"Double DQN and Munchausen: {title}"].rows) == 2 * rows
    added = shown["Methods with and without each other"]
    assert (MUNCHAUSEN, "pal-dqn:0.9") in {row[:2] for row in added.rows}
    assert added.columns[2] == "fraction of its score"
    assert "</html>" in render(Page("MinAtar", tuple(page)))
    assert all("--scale gpu" in block.source.command for block in shown.values() if getattr(block, "source", None))


def test_counts_match_the_tests_and_state_the_number_by_chance(synthetic, page):
    agents = read_agents(synthetic).agents
    found = {agent: against for agent, against in compare_with_bellman(agents, SCORE).items() if agent.name in SWEEP}
    at_95, at_99 = (count_directions(found.values(), level) for level in (0.95, 0.99))
    assert (at_95.total, at_95.expected_by_chance, at_99.expected_by_chance) == (24, pytest.approx(0.6), pytest.approx(0.12))
    text = prose_of(page)
    assert f"{at_95}; {at_99}." in text
    assert "0.6 each way by chance" in text
    table = blocks_of(page)["Where each operator helps, and where it hurts"]
    assert [row[0] for row in table.rows] == list(SWEEP)
    assert sum(row[3] for row in table.rows) == at_95.higher
    assert all(sum(row[3:6]) == sum(row[6:9]) == row[2] == 2 for row in table.rows)
    helps = {row[0]: row[3] for row in table.rows}
    assert helps["al:0.9"] >= 1
    paper = {row[0]: row[1:] for row in blocks_of(page)["Comparison with the paper"].rows}
    nine = [found[Agent(game, "al:0.9")].direction(0.99) for game in TWO]
    assert paper["al against bellman: better"] == ("37 of 60", f"{nine.count(HIGHER)} of 2")
    assert paper["pal-dqn against al: worse"][0] == "6 of 60"


def test_improvements_are_of_highest_scores_as_in_the_paper(tmp_path):
    def numbers(run, row):
        # The highest score of al:0.9 is 10% above Bellman's on one game and 50% on the other; at the end it is below by the same fractions.
        up = {"minatar/breakout": 0.1, "minatar/seaquest": 0.5}[run.env] * (run.operator == "al:0.9")
        return {"score": 10 * (1 + (up if row == 7 else -up)) + (2.0 if row == 7 else 0.0) * (1 + up) + 0.001 * noise(run)}

    agents, _ = read_page(tmp_path, numbers, operators=MAIN_OPERATORS)
    highest = mean_relative_score(agents, Agent("", "al:0.9"), HIGHEST)
    assert highest is not None
    means = [
        [np.mean([run.rows["score"].max() for run in agents[Agent(game, name)].runs]) for name in ("al:0.9", "bellman")] for game in TWO
    ]
    assert highest.value == pytest.approx(np.mean([one / other for one, other in means]))
    table = blocks_of(sections(tmp_path))["Comparison with the paper"]
    rows = {row[0]: row[1:] for row in table.rows}
    printed, ours = rows["al: mean improvement of the highest score over bellman's"]
    assert (printed, ours.partition(" ")[0]) == ("27.0%", "30.0%")
    printed, ours = rows["al: mean improvement of the final score over bellman's"]
    assert (printed, ours.partition(" ")[0]) == ("not printed", "-30.0%")
    assert "100 (s - b) / b" in table.note
    assert all(isinstance(cell, str) for row in table.rows for cell in row)  # one alignment


def test_table_states_that_tests_decide(page):
    table = blocks_of(page)["Final scores"]
    assert "The tests decide: they are about differences" in table.note
    found = {row[-1] for row in table.rows if row[-1] is not None}
    assert "< 0.001" in found
    assert all(p == "< 0.001" or (len(p) == 5 and 0.001 <= float(p) <= 1) for p in found)


def test_gaps_with_a_wide_range_have_a_log_axis(tmp_path):
    def numbers(run, row):
        return improving(run, row) | {
            "action_gap": (30.0 if run.operator == "al:1" else 0.1) * (1 + 0.01 * noise(run)),
            "score": 0.01 + row,
        }

    read_page(tmp_path, numbers, games=("breakout",), operators=OPERATORS)
    shown = blocks_of(sections(tmp_path))
    assert {key[1] for key, chart in shown["By alpha"].items if chart.log_y} == {"action gap", "action gap as a fraction of bellman's"}
    assert [key[1:] for key, chart in shown["Gaps and values during learning"].items if chart.log_y] == [("action gap", "al, all alphas")]
    assert not any(chart.log_y for _, chart in shown["Learning curves"].items)


def test_batched_agents_share_a_row_of_costs_with_their_names(page, tmp_path):
    table = blocks_of(page)["Cost of a run"]
    assert [row[0] for row in table.rows] == list(TWO)
    assert all(row[1] == "bellman, al:0.1, al:0.3, al:0.5, al:0.7 and 11 more" for row in table.rows)
    assert "its share of the batch's" in table.note
    _, other_methods = select_studies(("breakout",), 2, other_methods=True)
    write_runs(tmp_path, select_studies(("breakout",), 2, MAIN_OPERATORS)[0], improving)
    write_runs(tmp_path, other_methods, improving)
    [row] = blocks_of(sections(tmp_path))["Cost of a run"].rows
    assert row[1] == "bellman, al:0.9, pal-dqn:0.9, munchausen:0.03,0.9, double bellman and 1 more"


def test_page_states_the_training_settings(page):
    text = prose_of(page)
    for word in ("adam at a learning rate of 0.00025", "bfloat16", "gamma = 0.99", "updated every 1,000 frames", "Epsilon decays to 10%"):
        assert word in text
    assert "or in whether they are Double DQN" in text


def read_page(out: Path, numbers: Numbers, **which: Any) -> tuple[Any, str]:
    for study in select_studies(**which):
        write_runs(out, study, numbers)
    return read_agents(out).agents, prose_of(sections(out))


@pytest.mark.parametrize(
    ("slopes", "verdict", "words"),
    [
        ((-1.0, -1.0), AGREES, "This supports the hypothesis."),
        ((1.0, 1.0), OPPOSED, "This contradicts the hypothesis."),
        ((-1.0, 1.0), MIXED, "This supports the hypothesis for some pairs and contradicts it for others."),
        ((0.0, 0.0), UNDECIDED, "The hypothesis is undecided: most are unclear."),
    ],
)
def test_hypothesis_follows_the_numbers(tmp_path, slopes, verdict, words):
    def numbers(run, row):
        family, alpha = SWEEP.get(run.operator, ("", 0.0))
        bias = 2.0 + slopes[family == "pal-dqn"] * alpha + 0.05 * (-1) ** run.seed * (family != "")
        return {"bias": bias, "value": 5.0 + bias, "action_gap": 0.1 + alpha + 0.01 * noise(run)}

    agents, text = read_page(tmp_path, numbers, operators=MAIN_OPERATORS)
    finding = hypothesis(agents)
    assert finding.too_high == TWO
    assert (tuple(finding.wider), finding.others) == (tuple(Agent(game, name) for game in TWO for name in MAIN_OPERATORS[1:]), {})
    assert finding.verdict == verdict
    assert words in text
    assert "These counts do not show that the gap is the cause" in text
    directions = [slope < 0 for slope in slopes].count(True), [slope > 0 for slope in slopes].count(True)
    lower, higher = (len(TWO) * count for count in directions)
    assert f"the bias is lower in {lower}, higher in {higher} and unclear in {4 - lower - higher} of 4 (99%)" in text


@pytest.mark.parametrize(
    ("bellman", "gap", "why"), [(-1.0, 0.9, "no overestimation is detected"), (2.0, 0.0, "no gap is significantly wider")]
)
def test_hypothesis_is_undecided_if_a_premise_fails(tmp_path, bellman, gap, why):
    def numbers(run, row):
        other = run.operator != "bellman"
        bias = bellman - other + 0.05 * noise(run)
        return {"bias": bias, "value": 5.0 + bias, "action_gap": 0.1 + other * (gap + 0.01 * (-1) ** run.seed)}

    agents, text = read_page(tmp_path, numbers, operators=MAIN_OPERATORS)
    assert hypothesis(agents).verdict == UNDECIDED
    assert f"The hypothesis is undecided: {why}" in text
    assert "supports the hypothesis" not in text


def test_diverging_gap_does_not_count_for_other_agents(tmp_path):
    def numbers(run, row):
        # The gap of al:1 is a thousand times as wide and those of pal-dqn are narrower. All biases but that of al:0.5 are lower.
        family = SWEEP.get(run.operator, ("", 0.0))[0]
        gap = 100.0 if run.operator == "al:1" else 0.08 if family == "pal-dqn" else 0.1
        bias = 2.0 - (family != "" and run.operator != "al:0.5") + 0.02 * noise(run)
        return {"bias": bias, "value": 5.0 + bias, "action_gap": gap * (1 + 0.01 * noise(run))}

    agents, text = read_page(tmp_path, numbers, operators=("bellman", "al:0.5", "al:1", "pal-dqn:0.5"))
    finding = hypothesis(agents)
    assert set(finding.wider) == {Agent(game, "al:1") for game in TWO}
    assert set(finding.others) == {Agent(game, name) for game in TWO for name in ("al:0.5", "pal-dqn:0.5")}
    assert "the bias is lower in 2, higher in 0 and unclear in 0 of 2 (99%)" in text
    without = "the bias is lower in 2 of 4 (99%): pal-dqn:0.5 on breakout, pal-dqn:0.5 on seaquest."
    assert f"{without} In 2 of these the gap is narrower (95%): the bias falls without a wider gap." in text


@pytest.mark.parametrize(("value", "discounted_return", "play"), [(-1.0, 0.0, 0), (0.0, 1.0, 4), (-0.5, 0.5, 0)])
def test_a_lower_bias_is_split_into_lower_values_and_better_play(tmp_path, value, discounted_return, play):
    def numbers(run, row):
        other = run.operator != "bellman"
        # Two independent noises that sum to zero over four seeds.
        one, two = other * (-1) ** run.seed, other * (-1) ** (run.seed // 2)
        v, f = 6.0 + value * other + 0.02 * one, 4.0 + discounted_return * other + 0.02 * two
        return {"value": v, "bias": v - f, "action_gap": 0.1 + other + 0.01 * noise(run)}

    agents, text = read_page(tmp_path, numbers, operators=MAIN_OPERATORS)
    lower, more = 4 * (value < 0), 4 * (discounted_return > 0)
    assert f"V itself is lower in {lower}, higher in 0 and unclear in {4 - lower} of 4 (99%)" in text
    assert f"the discounted return is lower in 0, higher in {more} and unclear in {4 - more} of 4 (99%)" in text
    assert f"In {play} of the 4 pairs with a lower bias the return is significantly higher and V is not significantly lower." in text
    some = [Agent(game, "al:0.9") for game in TWO]
    moved = [normalized_change(agents, some, number, RETURN) for number in (BIAS, VALUE, RETURN)]
    assert [number.value for number in moved if number] == pytest.approx(
        [(value - discounted_return) / 4, value / 4, discounted_return / 4], abs=0.02
    )
    bias, v, discounted = map(format_estimate, moved)
    assert f"With al:0.9 the bias changes by {bias}: V by {v} and the discounted return by {discounted}" in text
    rows = {row[:2]: row[3:6] for row in blocks_of(sections(tmp_path))["Gaps, values and bias compared with bellman"].rows}
    for of_v, of_return, of_bias in rows.values():
        assert of_bias.value == pytest.approx(of_v.value - of_return.value)


def test_relative_bias_may_rise_where_the_bias_falls(tmp_path):
    def numbers(run, row):
        # al:1 has half of Bellman's bias and a tenth of its return.
        poor = run.operator == "al:1"
        bias, discounted_return = (1.0, 0.4) if poor else (2.0, 4.0)
        return {
            "bias": bias + 0.02 * noise(run),
            "value": bias + discounted_return + 0.03 * noise(run),
            "action_gap": 0.1 + poor + 0.01 * noise(run),
        }

    agents, text = read_page(tmp_path, numbers, games=("breakout",), operators=("bellman", "al:1"))
    poor, base = agents[Agent("breakout", "al:1")], agents[Agent("breakout", "bellman")]
    for group in (poor, base):
        b, f = (np.array([number(run) for run in group.runs]) for number in (BIAS, RETURN))
        assert list(relative_bias_by_seed(group).values()) == pytest.approx(b.mean() / f.mean() + (b - b.mean() / f.mean() * f) / f.mean())
    part = bias_comparisons(agents)[Agent("breakout", "al:1")].relative
    assert part is not None
    ours, theirs = (np.array(list(relative_bias_by_seed(group).values())) for group in (poor, base))
    assert part.p == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
    assert part.verdict == "higher, 99%"
    fractions = f"{format_estimate(relative_bias(poor))} against {format_estimate(relative_bias(base))}"
    assert f"The fraction is above bellman's with al:1 on breakout, {fractions}." in text
    assert relative_bias_by_seed(None) == {}


def test_interval_of_the_bias_is_over_seeds(synthetic):
    agents = read_agents(synthetic).agents
    some = [Agent(game, "al:0.9") for game in TWO]
    biases = {agent: {run.seed: final_mean("bias")(run) for run in group.runs} for agent, group in agents.items()}
    by_hand = [np.mean([biases[agent][seed] - biases[Agent(agent.game, "bellman")][seed] for agent in some]) / 4 for seed in range(4)]
    found = normalized_change(agents, some, BIAS, RETURN)
    assert found is not None
    assert (found.value, found.n) == (pytest.approx(np.mean(by_hand)), 4)
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 3, np.mean(by_hand), stats.sem(by_hand)))


def test_undetected_difference_is_not_called_equal(tmp_path):
    def numbers(run, row):
        return {"score": 10 + (-1) ** run.seed * (run.operator != "bellman")}

    _, text = read_page(tmp_path, numbers, operators=MAIN_OPERATORS)
    assert "On breakout no difference is detected with any of 2 operators (95%)." in text
    assert "easily missed" in text
    assert "equal" not in text
    assert "above bellman: none; below: none; no difference detected: 2" in text


def test_directions_follow_the_numbers(tmp_path):
    for place, sign in (("up", 1), ("down", -1)):

        def numbers(run, row, sign=sign):
            return {"score": 10 + 3 * sign * (run.operator == "al:0.9") + 0.1 * noise(run)}

        _, text = read_page(tmp_path / place, numbers, operators=MAIN_OPERATORS)
        side, other = (HIGHER, LOWER) if sign > 0 else (LOWER, HIGHER)
        assert f"On seaquest it is {side} with al:0.9 (95%); no difference is detected with the other 1." in text
        assert f"it is {other} with" not in text


def test_missing_values_are_excluded_from_means_and_n(tmp_path):
    def numbers(run, row):
        lost = run.operator == "al:0.9" and run.seed == 1
        return {"bias": None if lost else 2.0 + noise(run), "value": None if lost else 9.0, "score": 3 + noise(run)}

    agents, _ = read_page(tmp_path, numbers, games=("breakout",), operators=MAIN_OPERATORS)
    group, base = agents[Agent("breakout", "al:0.9")], agents[Agent("breakout", "bellman")]
    bias, score = (compare(group, base, final_mean(name)) for name in ("bias", "score"))
    assert bias is not None
    assert score is not None
    assert (bias.difference.n, score.difference.n) == (3, 4)
    table = blocks_of(sections(tmp_path))["Gaps, values and bias"]
    assert [row[5].n for row in table.rows] == [4, 3, 4]


def test_one_seed_is_not_tested_and_unfinished_agents_have_only_curves(tmp_path):
    agents, text = read_page(tmp_path / "one", improving, seeds=1, operators=MAIN_OPERATORS)
    assert {against.verdict for against in compare_with_bellman(agents, SCORE).values()} == {ONE_PAIR}
    assert "Final scores are not compared" in text
    assert "The bias is not tested" in text
    [study] = select_studies(("breakout",), 3, MAIN_OPERATORS)
    write_runs(tmp_path / "half", study, improving, state="running")
    found = sections(tmp_path / "half")
    assert "Final scores are not compared" in prose_of(found)
    assert all(row[2] is None for row in blocks_of(found)["Final scores"].rows)
    assert [name for (_, name, _), _ in blocks_of(found)["Learning curves"].items] == ["in evaluation", "in training"]
    render(Page("MinAtar", tuple(found)))


def test_studies_of_different_scales_are_not_compared(tmp_path, synthetic):
    operators, other_methods = select_studies(seeds=2, operators=MAIN_OPERATORS, other_methods=True)
    shorter: list[Any] = list(other_methods.runs)
    write_runs(tmp_path, operators, improving)
    write_runs(
        tmp_path, dataclasses.replace(other_methods, runs=tuple(dataclasses.replace(run, frames=1_000_000) for run in shorter)), improving
    )
    agents, runs, problems = read_agents(tmp_path)
    assert {agent.name for agent in agents} == set(MAIN_OPERATORS)
    assert len(runs) == len(operators.runs)
    assert problems == ("12 runs of other-methods have a different configuration and are omitted: run both studies at one scale",)
    assert f"Omitted: {problems[0]}" in prose_of(sections(tmp_path))
    # After a new request, runs of the earlier scale are present and do not count.
    [again] = select_studies(("seaquest",), 2, MAIN_OPERATORS)
    briefer: list[Any] = list(again.runs)
    write_runs(tmp_path, dataclasses.replace(again, runs=tuple(dataclasses.replace(run, frames=500_000) for run in briefer)), improving)
    assert {agent.game for agent in read_agents(tmp_path).agents} == {"seaquest"}


def test_empty_folder_names_missing_studies(tmp_path):
    assert "Not run in this folder: operators" in prose_of(sections(tmp_path))
    (tmp_path / "operators" / "runs").mkdir(parents=True)
    assert "Not run in this folder: other-methods" in prose_of(sections(tmp_path))
    assert PART.tables(tmp_path) == []


def test_failed_run_is_named(tmp_path):
    [study] = select_studies(("breakout",), 3, MAIN_OPERATORS)
    write_runs(tmp_path, study, improving)
    bad: Any = next(run for run in study.runs if run.seed == 2)
    bad = dataclasses.replace(bad, operator="al:0.5")
    extended = dataclasses.replace(study, runs=(*study.runs, bad))
    open_study(extended, tmp_path / "operators", "")
    with holding(tmp_path / "operators" / "runs" / run_name(bad), bad) as covered:
        covered.fail("no memory is left on the device", "")
    assert blocks_of(sections(tmp_path))["Runs that failed"].rows[0][-1] == "no memory is left on the device"


def test_terminal_table_shows_every_agent_on_every_game(synthetic):
    text = io.StringIO()
    [table] = PART.tables(synthetic)
    Console(width=200, file=text).print(table)
    assert table.row_count == 16
    for word in ("double al:0.9", MUNCHAUSEN, "breakout", "seaquest", "higher, 99%", NO_DIFFERENCE):
        assert word in text.getvalue()


def test_the_part_is_registered():
    assert load_part("minatar") is PART
    assert isinstance(mean_relative_score({}, Agent("", "bellman")), Estimate | None)
