"""The report of studies: every number against NumPy and SciPy, with its n and its interval."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from actiongap.lab.records import Records, RunRecord
from actiongap.lab.statistics import Estimate, mean_over_runs, t_interval
from actiongap.lab.store import Status
from actiongap.reporting.groups import MAX_AGENTS, group_runs
from actiongap.reporting.html import render
from actiongap.reporting.page import Chart, Choice, Intervals, Page, Prose, Section, Table
from actiongap.reporting.summary import MAX_CHARTS, MAX_POINTS, sections, summary

COLUMNS = {"score": "how good", "gap": "how wide"}
META = {"command": "actiongap sweep x.toml", "date": "2026-01-01", "versions": {"actiongap": "0.1.0"}, "platform": "Linux", "cores": 2}


def run(
    score: Any,
    agent: str = "bellman",
    task: str = "cake",
    seed: int = 0,
    state: str | None = "done",
    steps: Any = None,
    meta: dict[str, Any] = META,
    kind: str = "q-learning",
    **spec: Any,
) -> RunRecord:
    score = np.asarray(score, dtype=float)
    steps = np.arange(1.0, len(score) + 1) if steps is None else np.asarray(steps, dtype=float)
    error = "it stumbled" if state == "failed" else None
    status = state and Status(state, 2, 4, 100, 5.0 + seed, 9, "", 9, error, None)  # pyright: ignore[reportArgumentType]
    rows = {"step": steps, "score": score, "gap": score / 2}
    fields = {"env": task, "operator": agent, **spec, "seed": seed}
    name = f"{agent} {task} {seed} {spec}"
    return RunRecord(name, Path(name), kind, task, agent, seed, fields, "steps", COLUMNS, status or None, meta, rows)


def report(*runs: RunRecord) -> Section:
    [section] = sections(Records(runs, ()))
    return section


def block(section: Section, title: str) -> Any:
    [found] = [block for block in section.blocks if getattr(block, "title", None) == title]
    return found


def prose(section: Section) -> str:
    return "\n".join(block.text for block in section.blocks if isinstance(block, Prose))


def rows_of(table: Table) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def curves(section: Section) -> dict[tuple[str, ...], Chart]:
    choice = block(section, "Curves")
    assert isinstance(choice, Choice)
    return {key: chart for key, chart in choice.items if isinstance(chart, Chart)}


def grid(agents: dict[str, float], tasks: list[str], seeds: int) -> list[RunRecord]:
    """Return runs of agents on tasks, with scores of noise plus a constant per agent."""
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(len(tasks), seeds, 20))
    return [
        run(noise[i, seed] + better, agent, task, seed)
        for agent, better in agents.items()
        for i, task in enumerate(tasks)
        for seed in range(seeds)
    ]


@pytest.mark.parametrize("n", [2, 3, 10])
def test_t_intervals_are_those_of_scipy(n):
    values = np.random.default_rng(n).normal(size=(n, 4))
    mean, low, high = t_interval(values)
    expected = stats.t.interval(0.95, n - 1, loc=values.mean(axis=0), scale=stats.sem(values, axis=0))
    np.testing.assert_allclose([low, high], expected, rtol=1e-12)
    np.testing.assert_allclose(mean, values.mean(axis=0))


def test_one_run_has_no_interval_and_none_has_no_estimate():
    one = mean_over_runs([3.0])
    assert one is not None
    assert (one.value, one.low, one.high, one.n) == (3.0, -math.inf, math.inf, 1)
    assert mean_over_runs([math.nan]) is None
    assert mean_over_runs([]) is None


def test_groups_are_labelled_by_the_fields_that_vary():
    runs = [run([1.0], agent, "cake", seed, exploration=e) for agent in ("al:0.5", "bellman") for e in (0.1, 0.25) for seed in (1, 0)]
    groups = group_runs(runs)
    assert [group.label for group in groups] == [
        "bellman, exploration=0.1",
        "bellman, exploration=0.25",
        "al:0.5, exploration=0.1",
        "al:0.5, exploration=0.25",
    ]
    assert all([run.seed for run in group.runs] == [0, 1] for group in groups)


def test_fields_that_the_task_determines_are_not_in_the_label():
    runs = [run([1.0], agent, task, steps_=n) for agent in ("bellman", "al:0.5") for task, n in (("cake", 10), ("chain:9", 20))]
    assert [(group.task, group.label) for group in group_runs(runs)] == [
        ("cake", "bellman"),
        ("cake", "al:0.5"),
        ("chain:9", "bellman"),
        ("chain:9", "al:0.5"),
    ]


def test_the_three_scores_have_interval_and_n():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(3, 40))
    [row] = rows_of(block(report(*(run(curve, seed=seed) for seed, curve in enumerate(scores))), "Scores"))
    assert (row["task"], row["agent"], row["done"], row["unfinished"], row["failed"]) == ("cake", "bellman", 3, 0, 0)
    ways = {"score, highest": scores.max(axis=1), "score, last": scores[:, -1], "score, average of last tenth": scores[:, -4:].mean(axis=1)}
    ways["gap, last"] = scores[:, -1] / 2
    for name, values in ways.items():
        estimate = row[name]
        low, high = stats.t.interval(0.95, 2, loc=values.mean(), scale=stats.sem(values))
        np.testing.assert_allclose([estimate.value, estimate.low, estimate.high], [values.mean(), low, high])
        assert (estimate.n, estimate.level) == (3, 0.95)


def test_only_finished_runs_are_counted():
    section = report(
        run([1.0, 2.0], seed=0),
        run([1.0, 4.0], seed=1),
        run([9.0], seed=2, state="running"),
        run([9.0], seed=3, state="stopped"),
        run([9.0], seed=4, state=None),
        run([9.0], seed=5, state="failed"),
    )
    [row] = rows_of(block(section, "Scores"))
    assert (row["done"], row["unfinished"], row["failed"]) == (2, 3, 1)
    assert (row["score, last"].value, row["score, last"].n) == (3.0, 2)
    [line] = curves(section)["cake", "score"].series
    assert (line.y, line.n) == ((1.0, 3.0), 2)
    [failed] = rows_of(block(section, "Runs that failed"))
    assert (failed["seed"], failed["error"], failed["after chunk"]) == (5, "it stumbled", "2 of 4")


def test_groups_without_finished_runs_show_their_rows_so_far():
    section = report(run([1.0, 2.0, 3.0], state="running"), run([3.0, 4.0], seed=1, state="running"))
    table = block(section, "Scores")
    assert "1 group" in table.note
    assert rows_of(table)[0]["score, last"].n == 2
    [line] = curves(section)["cake", "score"].series
    assert (line.x, line.y) == ((1.0, 2.0), (2.0, 3.0))
    assert "no group has two finished runs" in prose(section)


def test_a_missing_number_is_left_out_of_the_mean_and_breaks_the_line():
    section = report(run([1.0, 2.0, math.nan]), run([3.0, 4.0, 5.0], seed=1))
    [row] = rows_of(block(section, "Scores"))
    assert (row["score, last"].value, row["score, last"].n) == (5.0, 1)
    assert (row["score, highest"].value, row["score, highest"].n) == (3.5, 2)
    [line] = curves(section)["cake", "score"].series
    assert line.y[:2] == (2.0, 3.0)
    assert line.y[2] is not None
    assert math.isnan(line.y[2])


def test_curves_are_over_the_steps_that_all_runs_share():
    section = report(run([1, 2, 3, 4], steps=[1, 2, 4, 8]), run([5, 6, 7], seed=1, steps=[2, 4, 6]))
    chart = curves(section)["cake", "score"]
    [line] = chart.series
    assert (line.x, line.y, line.n) == ((2.0, 4.0), (3.5, 4.5), 2)
    mean, low, high = t_interval(np.array([[2.0, 3.0], [5.0, 6.0]]))
    assert line.low == tuple(low)
    assert line.high == tuple(high)
    assert line.y == tuple(mean)
    assert (chart.x_label, chart.y_label) == ("steps", "score")
    assert "how good" in chart.note


def test_long_curves_are_thinned_evenly_and_keep_both_ends():
    [line] = curves(report(run(np.arange(10_001.0))))["cake", "score"].series
    assert len(line.x) == MAX_POINTS
    assert (line.x[0], line.x[-1]) == (1.0, 10_001.0)
    assert np.ptp(np.diff(line.x)) <= 1
    assert line.y == tuple(x - 1 for x in line.x)
    assert line.low is None


@pytest.mark.parametrize(("steps", "logarithmic"), [([1, 100], False), ([1, 101], True), ([0, 1000], False), ([0.1, 20], True)])
def test_the_axis_is_logarithmic_beyond_two_decades(steps, logarithmic):
    assert curves(report(run([1, 2], steps=steps)))["cake", "score"].log_x == logarithmic


def test_charts_show_the_best_agents_and_the_baseline():
    agents = {f"al:{i}": float(i) for i in range(1, 30)} | {"bellman": 0.0}
    chart = curves(report(*(run([better], agent) for agent, better in agents.items())))["cake", "score"]
    names = [line.name for line in chart.series]
    assert len(names) == MAX_AGENTS
    assert names == ["bellman", *(f"al:{i}" for i in range(30 - MAX_AGENTS + 1, 30))]
    assert f"{MAX_AGENTS} of 30 agents are shown" in chart.note


def test_the_number_of_charts_is_limited_and_the_score_comes_first():
    section = report(*(run([1.0], task=f"chain:{i}") for i in range(MAX_CHARTS - 10)))
    keys = list(curves(section))
    assert len(keys) == MAX_CHARTS
    assert keys[0] == ("chain:0", "score")
    assert sum(quantity == "gap" for _, quantity in keys) == 10
    assert f"{MAX_CHARTS} of {2 * (MAX_CHARTS - 10)} learning curves are shown" in prose(section)


def test_agents_are_compared_over_tasks():
    tasks = ["cake", "chain:9", "garnet:5"]
    runs = grid({"bellman": 0.0, "al:0.5": 1.0, "lazy:0.5": -1.0}, tasks, seeds=4)
    section = report(*runs)
    tails = {
        agent: np.array([r.rows["score"][-2:].mean() for r in runs if r.agent == agent]) for agent in ("bellman", "al:0.5", "lazy:0.5")
    }
    middle = block(section, "Interquartile mean over tasks")
    assert isinstance(middle, Intervals)
    assert [row.name for row in middle.rows] == ["bellman", "al:0.5", "lazy:0.5"]
    for row in middle.rows:
        assert row.value == pytest.approx(stats.trim_mean(tails[row.name], 0.25))
        assert row.low < row.value < row.high
        assert row.n == "4 runs of 3 tasks"
    profile = block(section, "Performance profiles")
    for line in profile.series:
        np.testing.assert_allclose(line.y, [(tails[line.name] > tau).mean() for tau in line.x])
        assert line.n == 4
        assert line.low is not None
    better = {row.name: row.value for row in block(section, "Probability of improvement over bellman").rows}
    x, y = (tails[agent].reshape(3, 4) for agent in ("al:0.5", "bellman"))
    assert better["al:0.5"] == pytest.approx(np.mean(x[:, :, None] > y[:, None, :]))
    assert set(better) == {"al:0.5", "lazy:0.5"}


def test_the_papers_comparisons_are_paired_by_seed():
    # Noise is common to all agents, so that differences are constant and every test of eight pairs is sure.
    section = report(*grid({"bellman": 10.0, "al:0.5": 11.0, "lazy:0.5": 9.0, "pal:0.5": 10.0}, ["cake", "chain:9"], seeds=8))
    table = block(section, "The paper's comparisons")
    rows = {row["agent"]: row for row in rows_of(table)}
    assert (rows["al:0.5"]["tasks better"].value, rows["al:0.5"]["tasks worse"].value) == (2, 0)
    assert (rows["lazy:0.5"]["tasks better"].value, rows["lazy:0.5"]["tasks worse"].value) == (0, 2)
    assert (rows["pal:0.5"]["tasks better"].value, rows["pal:0.5"]["tasks worse"].value) == (0, 0)
    assert rows["al:0.5"]["tasks better"].level == 0.99
    assert (rows["al:0.5"]["times best"].value, rows["bellman"]["times best"].value) == (2, 0)
    assert rows["bellman"]["tasks better"] is None
    assert 8 < rows["al:0.5"]["mean improvement, %"].value < 12
    assert "(s - b) / b" in table.note


def test_two_pairs_are_sure_of_nothing_however_alike():
    table = block(report(*grid({"bellman": 10.0, "al:0.5": 11.0}, ["cake"], seeds=2)), "The paper's comparisons")
    [row] = [row for row in rows_of(table) if row["agent"] == "al:0.5"]
    assert (row["tasks better"].value, row["tasks worse"].value) == (0, 0)


def test_a_baseline_of_zero_takes_the_formula_that_has_a_value():
    section = report(*(run([better], agent, seed=seed) for agent, better in (("bellman", 0.0), ("al:0.5", 2.0)) for seed in range(2)))
    table = block(section, "The paper's comparisons")
    assert "(s - b) / max(|s|, |b|)" in table.note
    assert rows_of(table)[1]["mean improvement, %"].value == 100


def test_only_shared_tasks_and_seeds_are_compared_and_the_others_are_listed():
    runs = grid({"bellman": 0.0, "al:0.5": 1.0}, ["cake", "chain:9", "garnet:5"], seeds=4)
    runs = [r for r in runs if not (r.agent == "al:0.5" and (r.task == "garnet:5" or (r.task == "cake" and r.seed == 2)))]
    runs += [run([5.0], "lazy:0.5", "cake")]
    section = report(*runs)
    assert {row.n for row in block(section, "Interquartile mean over tasks").rows} == {"3 runs of 2 tasks"}
    for text in ("1 agent without two finished runs (lazy:0.5)", "1 task (garnet:5)", "1 seed (2)"):
        assert text in prose(section)


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        ([run([1.0])], "no group has two finished runs"),
        (
            grid({"bellman": 0.0}, ["cake"], 2) + grid({"al:0.5": 0.0}, ["chain:9"], 2),
            "there is no task on which all agents have two finished runs",
        ),
        ([run([1.0], seed=s) for s in (0, 1)] + [run([1.0], "al:0.5", seed=s) for s in (2, 3)], "fewer than two seeds"),
        (grid({"al:0.5": 0.0, "al:0.9": 0.0}, ["cake"], 2), "There are no comparisons with bellman"),
        ([run([1.0], seed=s) for s in (0, 1)], "all scores are equal"),
    ],
)
def test_missing_comparisons_are_explained(runs, sentence):
    assert sentence in prose(report(*runs))


def test_agents_are_compared_with_the_baseline_of_the_same_configuration():
    rng = np.random.default_rng(0)
    runs = [run(rng.normal(size=9), agent, seed=s, eta=eta) for agent in ("bellman", "al:0.5") for eta in (0.1, 0.2) for s in range(3)]
    runs += [run(rng.normal(size=9), "al:0.5", seed=s, eta=0.3) for s in range(3)]
    section = report(*runs)
    pairs = {row["agent"]: row["compared with"] for row in rows_of(block(section, "The paper's comparisons"))}
    assert pairs == {
        "bellman, eta=0.1": None,
        "bellman, eta=0.2": None,
        "al:0.5, eta=0.1": "bellman, eta=0.1",
        "al:0.5, eta=0.2": "bellman, eta=0.2",
        "al:0.5, eta=0.3": None,
    }
    assert "not compared with it: al:0.5, eta=0.3." in prose(section)


def test_cost_is_seconds_and_speed():
    [row] = rows_of(block(report(run([1.0], seed=0), run([1.0], seed=1)), "Cost of a run"))
    assert (row["seconds"].value, row["seconds"].n, row["chunks"]) == (5.5, 2, 4)
    assert row["steps per second"].value == pytest.approx((100 / 5 + 100 / 6) / 2)


def test_batched_runs_share_a_row_without_an_interval():
    def timed(agent: str, seed: int, seconds: float):
        made = run([1.0], agent, seed=seed)
        assert made.status is not None
        return replace(made, status=made.status._replace(seconds=seconds))

    batch = [timed(agent, seed, 0.1 + 0.2) for agent in ("bellman", "al:0.5") for seed in range(3)]
    table = block(report(*batch, *(timed("al:0.9", seed, 2.0 + seed) for seed in range(3))), "Cost of a run")
    batched, alone = rows_of(table)
    assert (batched["agent"], batched["seconds"]) == ("bellman, al:0.5", pytest.approx(0.3))
    assert (alone["agent"], alone["seconds"].value, alone["seconds"].n) == ("al:0.9", 3.0, 3)
    assert "its share of the batch's" in table.note
    assert "batch" not in block(report(run([1.0], seed=0), run([1.0], seed=1)), "Cost of a run").note


@pytest.mark.parametrize("recorded", [True, False])
def test_groups_of_two_batches_have_no_time_interval(recorded):
    def timed(agent: str, seed: int, seconds: float, size: int):
        made = run([1.0], agent, seed=seed)
        assert made.status is not None
        return replace(made, status=made.status._replace(seconds=seconds, batch_size=size if recorded else None))

    # Seeds 0 and 1 of both agents were one batch, seeds 2 and 3 another.
    batches = [timed(agent, seed, (0.3, 0.5)[seed // 2], 4) for agent in ("bellman", "al:0.5") for seed in range(4)]
    table = block(report(*batches, *(timed("al:0.9", seed, 2.0 + seed, 1) for seed in range(3))), "Cost of a run")
    batched, alone = rows_of(table)
    assert (batched["agent"], batched["seconds"]) == ("bellman, al:0.5", pytest.approx(0.4))
    assert batched["steps per second"] == pytest.approx((100 / 0.3 + 100 / 0.5) / 2)
    assert alone["seconds"].n == 3
    assert "its share of the batch's" in table.note


def test_batches_of_one_run_have_an_interval():
    made = [run([1.0], seed=seed) for seed in range(3)]
    alone = [replace(one, status=one.status and one.status._replace(seconds=2.0, batch_size=1)) for one in made]
    [row] = rows_of(block(report(*alone), "Cost of a run"))
    assert (row["seconds"].value, row["seconds"].n) == (2.0, 3)


def test_every_block_says_how_it_was_made():
    other = {**META, "command": "actiongap sweep y.toml", "cores": 64, "device": "H200", "date": "2026-02-01"}
    runs = [*grid({"bellman": 0.0, "al:0.5": 1.0}, ["cake"], 2), run([1.0], task="chain:9", meta=other), run([1.0], task="b", meta={})]
    blocks = [block for block in report(*runs).blocks if not isinstance(block, Prose)]
    sources = [item.source for block in blocks for item in (dict(block.items).values() if isinstance(block, Choice) else [block])]
    assert len(sources) > 5
    [source] = set(sources)
    assert source is not None
    assert source.command == "actiongap sweep x.toml\nactiongap sweep y.toml"
    assert source.system == "2 systems: actiongap 0.1.0, Linux, 2 cores; actiongap 0.1.0, Linux, H200, 64 cores"
    assert source.date == "2026-01-01 to 2026-02-01"


def test_each_kind_is_a_section_of_its_own():
    made = sections(Records((run([1.0]), run([2.0], kind="fitted-q")), ()))
    assert [section.title for section in made] == ["fitted-q", "q-learning"]


def test_the_same_records_make_the_same_report():
    runs = grid({"bellman": 0.0, "al:0.5": 1.0}, ["cake", "chain:9"], 3)
    assert report(*runs) == report(*reversed(runs))


def test_the_summary_has_the_same_numbers_in_plain_json():
    runs = run([1.0, 2.0]), run([1.0, 4.0], seed=1), run([9.0], "al:0.5"), run([9.0], "lazy:0.5", state="failed")
    records = Records(runs, ("a sentence",))
    found = json.loads(json.dumps(summary(records), allow_nan=False))
    assert found["problems"] == ["a sentence"]
    first, second, third = found["groups"]
    assert (first["kind"], first["task"], first["agent"], first["seeds"]) == ("q-learning", "cake", "bellman", [0, 1])
    assert first["runs"] == {"done": 2}
    assert first["spec"] == {"env": "cake", "operator": "bellman"}
    low, high = stats.t.interval(0.95, 1, loc=3, scale=1)
    assert first["numbers"]["score, last"]["value"] == 3
    assert (first["numbers"]["score, last"]["low"], first["numbers"]["score, last"]["high"]) == pytest.approx((low, high))
    assert first["numbers"]["score, last"]["n"] == 2
    assert (second["numbers"]["score, last"]["n"], second["numbers"]["score, last"]["low"]) == (1, None)
    assert (third["runs"], third["numbers"]["score, last"]) == ({"failed": 1}, None)


numbers = st.sampled_from([0.0, 1.0, -2.5, math.nan, 1e308, -1e308, 1e-308])
names = st.sampled_from(["bellman", "al:0.5", "</script><b>", "", "\u202e=1+1"])
some_run = st.builds(
    run,
    st.lists(numbers, max_size=12),
    names,
    names,
    st.integers(0, 2),
    st.sampled_from(["done", "done", "running", "failed", None]),
    meta=st.sampled_from([META, {}, {"versions": [], "cores": "many", "date": 3, "command": None}]),
    eta=st.sampled_from([0.1, "0.1", None, [1, 2]]),
)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(some_run, min_size=1, max_size=12))
def test_any_records_become_a_page_in_which_every_number_has_an_n(runs):
    once = {json.dumps(r.spec): r for r in runs}
    records = Records(tuple(once.values()), ("<i>a problem</i>",))
    page = Page("A report", tuple(sections(records)), records.problems)
    text = render(page)
    assert "</script><b>" not in text
    json.dumps(summary(records), allow_nan=False)
    for b in (b for section in page.sections for b in section.blocks):
        if isinstance(b, Chart):
            assert all(line.n and line.low for line in b.series)
        if isinstance(b, Choice):
            assert all(line.n for _, chart in b.items if isinstance(chart, Chart) for line in chart.series)
    rows = [row for section in page.sections for row in block(section, "Scores").rows]
    assert sum(sum(row[-3:]) for row in rows) == len(once)
    assert all(isinstance(cell, Estimate | None) for row in rows for cell in row[2:-3])


def test_what_the_score_is_has_one_article():
    for columns, said in (
        ({"score": "the rewards of an episode, mean over episodes"}, "The score is the rewards of an episode, mean over"),
        ({"score": "fraction of heads"}, "The score is the fraction of heads. "),
        ({"heads": "the heads so far"}, "The score is the heads: the heads so far. "),
    ):
        told = replace(run([1.0]), columns=columns, rows={name: np.ones(1) for name in ("step", *columns)})
        assert said in prose(report(told))
