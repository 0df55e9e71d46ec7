"""Deep agents on Atari: the studies at each scale, and that counts, tables and sentences follow from the rows of runs."""

import dataclasses
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from actiongap.cli import main
from actiongap.dqn.config import ATARI
from actiongap.envs.atari import TRAINING
from actiongap.lab.executors import run_inline
from actiongap.lab.experiment import Experiment, run_name
from actiongap.lab.records import read_runs
from actiongap.lab.runner import open_study, run_folder
from actiongap.lab.statistics import paper_table
from actiongap.lab.store import encode_rows, holding
from actiongap.lab.study import Study, grid
from actiongap.paper import atari_tables
from actiongap.paper.agents import ALPHAS, MAIN_OPERATORS, ONE_PAIR, OPERATORS, SWEEP, Agent, compare_with_bellman, games_of
from actiongap.paper.agents_scores import SCORE, games_without_baseline, mean_relative_score
from actiongap.paper.atari import PART, sections
from actiongap.paper.atari_probe import FigureSelection, make_probe, make_video, probe_agents, probe_blocks, select_figures, video_block
from actiongap.paper.atari_runs import ORIGINAL, STOCHASTIC, STUDIES, StudyPlan, paper_games, read_agents, studies, study_plans
from actiongap.paper.atari_tables import conclusions, fastest_rate, full_cost
from actiongap.paper.parts import SCALES, load_part
from actiongap.render.video import makes_mp4
from actiongap.reporting.html import render
from actiongap.reporting.page import Chart, Page, Picture, Prose, Section
from actiongap.reporting.summary import provenance_of
from pages import blocks_of, prose_of

COMMAND = "actiongap reproduce atari --scale gpu"


# Studies.


@pytest.mark.parametrize("scale", SCALES)
def test_no_agent_is_trained_twice_and_every_study_has_a_description(scale):
    found = study_plans(scale)
    agents = [
        (plan.preset, plan.fields.get("correction_network"), plan.frames, *which)
        for plan in found
        for which in itertools.product(plan.games, plan.operators, range(plan.seeds))
    ]
    assert len(set(agents)) == len(agents) == sum(plan.agents for plan in found)
    assert len({plan.name for plan in found}) == len(found)
    assert {plan.name for plan in found} <= set(STUDIES)
    assert all(plan.frames % plan.fields["eval_every"] == 0 for plan in found)


def test_paper_scale_has_the_paper_s_sizes():
    stochastic, original, alphas, corrections = study_plans("paper")
    assert (len(stochastic.games), stochastic.seeds, stochastic.frames) == (60, 10, 100_000_000)
    assert (len(original.games), original.seeds, original.frames) == (60, 3, 200_000_000)
    assert stochastic.operators == original.operators == MAIN_OPERATORS
    assert alphas.games == corrections.games == TRAINING
    assert {*alphas.operators, *original.operators} == set(OPERATORS)
    assert corrections.fields["correction_network"] == "online"
    for plan in study_plans("paper"):
        # Every 250,000 steps of the agent, for 125,000: half as much again.
        assert plan.fields["eval_every"] == 4 * 250_000
        assert plan.evaluation_frames == plan.training_frames / 2


def test_compared_studies_of_the_gpu_scale_share_settings():
    found = {plan.name: plan for plan in study_plans("gpu")}
    assert {name: (plan.agents, plan.frames) for name, plan in found.items()} == {
        "asterix": (15, 10_000_000),
        "space_invaders": (9, 10_000_000),
        "training-games": (9, 4_000_000),
        "original": (9, 2_500_000),
        "alphas": (8, 10_000_000),
    }
    asterix, alphas = found["asterix"], found["alphas"]
    assert (alphas.preset, alphas.games, alphas.frames, alphas.fields) == (asterix.preset, asterix.games, asterix.frames, asterix.fields)
    assert sorted(alphas.operators + asterix.operators) == sorted(OPERATORS)
    assert {*found["training-games"].games, "asterix", "space_invaders"} == set(TRAINING)
    assert sum(plan.evaluation_frames for plan in found.values()) / sum(plan.training_frames for plan in found.values()) < 0.05
    # The ratio of gradient steps to environment steps is that of the presets.
    assert {plan.fields["gradient_steps"] / plan.fields["num_envs"] for plan in found.values()} == {ATARI.gradient_steps / ATARI.num_envs}


@pytest.mark.parametrize(("scale", "most"), [("smoke", 20_000), ("laptop", 150_000)])
def test_small_scales_train_pong_on_the_cpu(scale, most):
    [plan] = study_plans(scale)
    assert (plan.games, plan.operators, plan.seeds, plan.gpus) == (("pong",), MAIN_OPERATORS, 2, 0.0)
    assert plan.training_frames + plan.evaluation_frames < most


@pytest.mark.parametrize("scale", ["smoke", "laptop", "gpu"])
def test_studies_follow_their_plans(scale):
    for study, plan in zip(studies(scale), study_plans(scale), strict=True):
        runs: list[Any] = list(study.runs)
        assert (study.name, len(runs), study.gpus) == (plan.name, plan.agents, plan.gpus)
        assert {(run.env, run.operator, run.seed) for run in runs} == {
            (f"atari/{game}", operator, seed) for game in plan.games for operator in plan.operators for seed in range(plan.seeds)
        }
        assert {run.total_steps >= plan.frames for run in runs} == {True}
        for name, value in plan.fields.items():
            assert {getattr(run, name) for run in runs} == {value}


# Runs with synthetic rows.


@dataclass(frozen=True)
class FakeTraining(Experiment):
    """A training run that has only its records."""

    kind = "train"
    step_name = "frames"
    columns: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("score", "length", "games", "action_gap", "value", "bias", "training_return", "loss", "restarts"), "synthetic"
    )

    env: str = ""
    operator: str = ""
    frames: int = 1
    eval_every: int = 1
    evaluation_steps: int = 1
    evaluation_epsilon: float = 0.05
    max_episode_steps: int = 27_000
    num_envs: int = 8
    gradient_steps: int = 2
    batch_size: int = 32
    buffer_size: int = 1_000_000
    optimizer: str = "rmsprop-dqn"
    repeat_action_probability: float = 0.25
    terminal_on_life_loss: bool = False
    correction_network: str = "target"
    seed: int = 0

    @property
    def chunks(self) -> int:
        return 1

    @property
    def total_steps(self) -> int:
        return self.frames + self.frames // self.eval_every * self.evaluation_steps * 4

    def start(self):
        raise NotImplementedError

    def advance(self, state, chunk):
        raise NotImplementedError

    @property
    def game(self) -> str:
        return self.env.removeprefix("atari/")


Numbers = Callable[[FakeTraining, int], Mapping[str, float | None]]


def study_of(plan: StudyPlan) -> Study:
    names = {field.name for field in dataclasses.fields(FakeTraining)}
    preset_fields = (
        {"repeat_action_probability": 0.25, "terminal_on_life_loss": False}
        if plan.preset == STOCHASTIC
        else {"repeat_action_probability": 0.0, "terminal_on_life_loss": True}
    )
    same: dict[str, Any] = {name: value for name, value in plan.fields.items() if name in names} | preset_fields | {"frames": plan.frames}
    which = itertools.product(plan.games, plan.operators, range(plan.seeds))
    return Study(
        plan.name, tuple(FakeTraining(env=f"atari/{game}", operator=operator, seed=seed, **same) for game, operator, seed in which)
    )


def write_runs(out: Path, plan: StudyPlan, numbers: Numbers, state: Any = "done", seconds: float = 100.0) -> None:
    """Write the runs of a study with synthetic rows: numbers(run, row) returns some columns, counting rows from 1."""
    study = study_of(plan)
    folder = open_study(study, out / study.name, COMMAND)
    for name, run in study.named().items():
        assert isinstance(run, FakeTraining)
        plain = dict.fromkeys(FakeTraining.columns, 1.0) | {"restarts": 0.0}
        rows: list[Any] = [
            {"step": row * run.eval_every, **plain, **numbers(run, row)} for row in range(1, run.frames // run.eval_every + 1)
        ]
        with holding(run_folder(folder, name), run, COMMAND) as held:
            held.append(1, encode_rows(rows), {"weights": np.zeros(1)}, seconds, batch_size=9)
            held.save(state)


def noise(run: FakeTraining) -> float:
    """A number between -1 and 1 that is fixed for each run."""
    return float(np.random.default_rng([run.seed, *run.env.encode(), *run.operator.encode()]).uniform(-1, 1))


def improving(run: FakeTraining, row: int) -> dict[str, float | None]:
    """On asterix, al and pal-dqn improve with alpha. Pong's scores are negative. Gaps grow with alpha; the bias falls from 2."""
    alpha = SWEEP.get(run.operator, ("", 0.0))[1]
    base = {"asterix": 1000.0 + 500.0 * alpha, "pong": -15.0}.get(run.game, 300.0)
    score = base + 2.0 * noise(run) - (50.0 if run.correction_network == "online" else 0.0) + row / 100
    bias = 2.0 - alpha + 0.02 * noise(run)
    return {"score": score, "action_gap": 0.1 + alpha + 0.001 * noise(run), "value": 4.0 + bias, "bias": bias, "games": 12.0}


@pytest.fixture(scope="module")
def full_folder(tmp_path_factory) -> Path:
    """All studies of the gpu scale, with one seed of Original DQN, and corrections from the online network."""
    out = tmp_path_factory.mktemp("full_folder")
    for plan in study_plans("gpu"):
        write_runs(out, plan._replace(seeds=1) if plan.preset == ORIGINAL else plan, improving)
    asterix = study_plans("gpu")[0]
    write_runs(
        out,
        asterix._replace(name="corrections", operators=MAIN_OPERATORS[1:], fields={**asterix.fields, "correction_network": "online"}),
        improving,
    )
    return out


@pytest.fixture(scope="module")
def page(full_folder) -> list[Section]:
    return sections(full_folder)


def small_plan(
    preset: str = STOCHASTIC, games: tuple[str, ...] = ("asterix", "pong"), seeds: int = 3, frames: int = 10_000_000
) -> StudyPlan:
    """A study of three operators with the name of one of the paper's scale and an evaluation every million frames."""
    plan = study_plans("gpu")[0]
    fields = {**plan.fields, "eval_every": 1_000_000}
    return plan._replace(name=preset, preset=preset, games=games, operators=MAIN_OPERATORS, seeds=seeds, frames=frames, fields=fields)


def page_of(out: Path, numbers: Numbers, **which: Any) -> list[Section]:
    write_runs(out, small_plan(**which), numbers)
    return sections(out)


def test_agents_are_grouped_by_setting(full_folder):
    found = read_agents(full_folder)
    assert found.problems == ()
    assert len(found.runs) == 15 + 9 + 9 + 3 + 8 + 6
    stochastic, original = found.agents_by_preset[STOCHASTIC], found.agents_by_preset[ORIGINAL]
    assert games_of(stochastic) == ["asterix", "space_invaders", "beam_rider", "pong", "seaquest"]
    assert list(original) == [Agent("asterix", name) for name in MAIN_OPERATORS]
    there = [agent for agent in stochastic if agent.game == "asterix"]
    assert there == [*(Agent("asterix", name) for name in OPERATORS), *(Agent("asterix", name, online=True) for name in MAIN_OPERATORS[1:])]
    assert {agent.name: len(stochastic[agent].runs) for agent in there if agent.operator in (*MAIN_OPERATORS, "al:0.5")} == {
        "bellman": 3,
        "al:0.5": 1,
        "al:0.9": 3,
        "pal-dqn:0.9": 3,
        "al:0.9, online": 3,
        "pal-dqn:0.9, online": 3,
    }


def test_runs_with_other_settings_are_omitted_and_named(tmp_path):
    asterix, alphas = study_plans("gpu")[0]._replace(operators=MAIN_OPERATORS), study_plans("gpu")[4]
    write_runs(tmp_path, asterix, improving)
    write_runs(tmp_path, alphas._replace(frames=2_000_000), improving)
    found = read_agents(tmp_path)
    assert set(found.agents_by_preset[STOCHASTIC]) == {Agent("asterix", name) for name in MAIN_OPERATORS}
    assert found.problems == (
        "8 runs of alphas on asterix differ in configuration from most in Stochastic Minimal and are omitted: run all at one scale",
    )
    assert f"Omitted: {found.problems[0]}" in prose_of(sections(tmp_path))
    odd = dataclasses.replace(study_of(asterix._replace(games=("pong",), seeds=1)).runs[0], repeat_action_probability=0.1)  # pyright: ignore[reportArgumentType]
    folder = open_study(Study("training-games", (odd,)), tmp_path / "training-games", "")
    with holding(run_folder(folder, run_name(odd)), odd) as held:
        held.append(1, encode_rows([{"step": 1, **dict.fromkeys(FakeTraining.columns, 1.0)}]), {"weights": np.zeros(1)}, 1.0)
        held.save("done")
    assert "1 run of training-games on pong have neither of the paper's presets and are omitted" in read_agents(tmp_path).problems


# The paper's counts, computed independently.


def test_counts_are_of_paired_tests_at_99_percent(tmp_path):
    games, shift = ("asterix", "beam_rider", "pong", "seaquest"), {"al:0.9": (9, 9, 0, -9), "pal-dqn:0.9": (9, 20, 0, 0)}

    spread = np.arange(10) - 4.5
    spread = spread / spread.std(ddof=1) + 2.6 / math.sqrt(10)

    def numbers(run, row):
        if run.game == "pong":  # al's p is 0.03: detected at 95% and not at 99%
            return {"score": {"bellman": 100.0, "al:0.9": 100.0 + spread[run.seed]}.get(run.operator, 100.0 + 0.1 * noise(run))}
        return {"score": 100.0 + noise(run) + shift.get(run.operator, (0, 0, 0, 0))[games.index(run.game)]}

    write_runs(tmp_path, small_plan(games=games, seeds=10), numbers)
    agents = read_agents(tmp_path).agents_by_preset[STOCHASTIC]
    expected: dict[tuple[str, str], list[int]] = {}
    for one, other in (
        (MAIN_OPERATORS[1], MAIN_OPERATORS[0]),
        (MAIN_OPERATORS[2], MAIN_OPERATORS[0]),
        (MAIN_OPERATORS[2], MAIN_OPERATORS[1]),
    ):
        tests = [
            stats.ttest_rel(*([SCORE(run) for run in agents[Agent(game, name)].runs] for name in (one, other)))  # pyright: ignore[reportArgumentType]
            for game in games
        ]
        significant = [test.statistic for test in tests if test.pvalue < 0.01]  # pyright: ignore[reportAttributeAccessIssue]
        expected[one, other] = [sum(t > 0 for t in significant), sum(t < 0 for t in significant)]
    assert expected == {
        (MAIN_OPERATORS[1], MAIN_OPERATORS[0]): [2, 1],
        (MAIN_OPERATORS[2], MAIN_OPERATORS[0]): [2, 0],
        (MAIN_OPERATORS[2], MAIN_OPERATORS[1]): [2, 0],
    }
    assert compare_with_bellman(agents, SCORE)[Agent("pong", "al:0.9")].verdict == "higher, 95%"
    table = blocks_of(sections(tmp_path))["The paper's counts of games"]
    assert table.columns == ("comparison", "paper", "here, average of last tenth", "here, last", "here, highest")
    assert [row[:3] for row in table.rows] == [
        ("al against bellman: better", "37 of 60", "2 of 4"),
        ("al against bellman: worse", "1 of 60", "1 of 4"),
        ("pal-dqn against bellman: better", "35 of 60", "2 of 4"),
        ("pal-dqn against bellman: worse", "1 of 60", "0 of 4"),
        ("pal-dqn against al: better", "16 of 60", "2 of 4"),
        ("pal-dqn against al: worse", "6 of 60", "0 of 4"),
    ]
    assert "0.02 each way per row here and 0.3 in the paper" in table.note
    assert "cannot be tested" not in table.note


def test_each_kind_of_score_has_its_own_counts(tmp_path):
    def numbers(run, row):
        # al has one good evaluation early and ends lower.
        al = run.operator == "al:0.9"
        return {"score": 10 + 0.1 * noise(run) + (5 if al and row == 3 else -5 if al and row == 20 else 0)}

    found = blocks_of(page_of(tmp_path, numbers, games=("asterix",), seeds=4, frames=20_000_000))
    rows = {row[0]: row[2:] for row in found["The paper's counts of games"].rows}
    assert rows["al against bellman: better"] == ("0 of 1", "0 of 1", "1 of 1")
    assert rows["al against bellman: worse"] == ("1 of 1", "1 of 1", "0 of 1")
    three = {row[1]: row for row in found["Highest, last and average scores"].rows}
    assert found["Highest, last and average scores"].columns[3:6] == ("highest", "last", "average of last tenth")
    highest, last, average = three["al:0.9"][3:6]
    assert (highest.value, last.value, average.value) == (
        pytest.approx(15, abs=0.1),
        pytest.approx(5, abs=0.1),
        pytest.approx(7.5, abs=0.1),
    )
    assert three["al:0.9"][2] == "20,000,000"


# The table of 60 games, computed independently.

AL, PAL = "advantage learning", "persistent advantage learning"
HIGHEST = {"asterix": (10.0, 30.0, 20.0), "pong": (-4.0, -2.0, -5.0), "seaquest": (8.0, 8.0, 16.0)}


def table_numbers(run: FakeTraining, row: int) -> dict[str, float | None]:
    """Every run has its highest score in the second row; seeds are spread evenly around the mean."""
    return {"score": HIGHEST[run.game][MAIN_OPERATORS.index(run.operator)] + (run.seed - 1) if row == 2 else -100.0}


def test_game_table_has_the_paper_s_form(tmp_path):
    found = blocks_of(page_of(tmp_path, table_numbers, preset=ORIGINAL, games=tuple(HIGHEST)))
    [((preset,), table)] = found["The paper's table"].items
    assert preset == "Original DQN"
    assert len(table.rows) == 60
    rows = {row[0]: row for row in table.rows}
    assert rows["Asterix"][1:5] == (6074.98, 12852.08, 19564.9, "P.A.L.")
    assert [score.value for score in rows["Asterix"][5:8]] == [10.0, 30.0, 20.0]
    assert (rows["Asterix"][6].low, rows["Asterix"][6].high) == pytest.approx(stats.t.interval(0.95, 2, 30, 1 / math.sqrt(3)))
    assert rows["Asterix"][8] == "al:0.9"
    assert (rows["Pong"][4], rows["Pong"][8]) == ("Bellman", "al:0.9")
    assert rows["Alien"][5:] == (None, None, None, None)
    assert sum(name.endswith("†") for name in rows) == 5
    assert "Pitfall! †" in rows
    # Two games are tied by all three in the paper.
    assert sum(row[4] == "Bellman, A.L., P.A.L." for row in table.rows) == 2


def test_summaries_match_their_formulas(tmp_path):
    found = blocks_of(page_of(tmp_path, table_numbers, preset=ORIGINAL, games=tuple(HIGHEST)))
    table = found["Summaries of highest scores, Original DQN"]
    rows = {row[:2]: row[2:] for row in table.rows}
    best = "times best, ties count for each"
    assert [rows[best, name] for name in ("Bellman", AL, PAL)] == [(12, 12, 1, 0), (21, 21, 0, 2), (31, 31, 2, 1)]
    # al: asterix 10 to 30, pong -4 to -2, seaquest 8 to 8.
    assert rows["mean over games of 100 (s - b) / b", AL] == (
        27.0,
        pytest.approx(27.07, abs=0.01),
        pytest.approx(100 * np.mean([12852.08 / 6074.98 - 1, 19.66 / 19.8 - 1, 8670.5 / 5458.17 - 1])),
        pytest.approx(100 * (2 - 0.5 + 0) / 3),
    )
    assert rows["mean over games of 100 (s - b) / |b|", AL][3] == pytest.approx(100 * (2 + 0.5 + 0) / 3)
    assert rows["median over games of 100 (s - b) / |b|", AL][3] == pytest.approx(50)
    assert rows["median over games of 100 (s - b) / b", PAL][0] == 9.1
    assert rows["median over games of 100 (s - b) / b", PAL][3] == pytest.approx(100)
    assert rows["mean over games of 100 (s - b) / max(|s|, |b|)", PAL][3] == pytest.approx(100 * (0.5 - 0.2 + 0.5) / 3)
    assert table.columns[-1] == "here, 3 games"
    four = "Double Dunk, Ice Hockey, Skiing, Surround"
    assert (
        f"(s - b) / b counts an improvement as a loss: in the paper's table on {four}, here on pong. The formula with |b| does not."
        in table.note
    )


def test_improvement_over_zero_has_no_value(tmp_path):
    def numbers(run, row):
        return {"score": 0.0 if run.operator == "bellman" else 3.0}

    rows = {
        row[:2]: row[2:] for row in blocks_of(page_of(tmp_path, numbers, preset=ORIGINAL))["Summaries of highest scores, Original DQN"].rows
    }
    assert rows["mean over games of 100 (s - b) / b", AL][3] is None
    assert rows["mean over games of 100 (s - b) / max(|s|, |b|)", AL][3] == 100


def test_games_are_those_of_the_paper_s_table():
    assert tuple(title.name for title in paper_games()) == paper_table().games
    assert len({title.rom for title in paper_games()}) == 60


# Conclusions.


def test_conclusions_follow_the_numbers(full_folder, tmp_path):
    text = conclusions(read_agents(full_folder).agents_by_preset)
    assert "at 99% the score, compared with bellman, is higher on asterix with al:0.9, higher on asterix with pal-dqn:0.9" in text
    assert "no difference is detected in 2 of 4 comparisons" in text
    assert "beam_rider, pong, seaquest cannot be tested: agents have one common seed" in text
    assert "5.73 (3 pairs) standard deviations" in text
    assert "10 trials, 1.03" in text
    assert "In Stochastic Minimal, 5 games of 60 cannot show" in text
    assert "In Original DQN, 1 game of 60 cannot show" in text
    assert "ends after 0.04 to 0.1 of the paper's frames" in text
    assert "ends after 0.013 of the paper's frames" in text
    assert "the highest of at most 5 evaluations, the paper's of 100" in text

    def worse(run, row):
        return {"score": 100 - 9 * (run.operator == "al:0.9") + noise(run)}

    write_runs(tmp_path, small_plan(games=("asterix",)), worse)
    other = conclusions(read_agents(tmp_path).agents_by_preset)
    assert "compared with bellman, is lower on asterix with al:0.9" in other
    assert "higher on" not in other
    assert "all in Original DQN, are not tested here" in other


def test_complete_results_have_no_limitations(tmp_path, monkeypatch):
    plan = small_plan(seeds=3)._replace(fields=study_plans("paper")[0].fields)
    write_runs(tmp_path, plan, improving)
    write_runs(tmp_path, plan._replace(name=ORIGINAL, preset=ORIGINAL), improving)
    monkeypatch.setattr(atari_tables, "paper_plan", lambda preset: plan)
    text = conclusions(read_agents(tmp_path).agents_by_preset)
    for word in ("cannot show", "ends after", "of at most", "not tested", "standard deviations"):
        assert word not in text


def test_coverage_counts_what_was_trained(page):
    rows = {row[:2]: row[2:] for row in blocks_of(page)["What the results cover"].rows}
    assert rows["Stochastic Minimal", "games"] == ("60", "5")
    assert rows["Stochastic Minimal", "seeds per game and operator"] == ("10", "1 to 3")
    assert rows["Stochastic Minimal", "training frames"] == ("100,000,000", "4,000,000 to 10,000,000")
    assert rows["Original DQN", "evaluations per agent"] == ("200", "2")
    assert rows["Original DQN", "steps per evaluation"] == ("125,000", "12,500")


def test_unfinished_runs_are_not_counted_as_trained(tmp_path):
    plan = small_plan(games=("asterix",), seeds=2)
    write_runs(tmp_path, plan, improving)
    # The other games of the paper are unfinished, and so is another operator on asterix.
    rest = tuple(title.rom for title in paper_games() if title.rom != "asterix")
    write_runs(tmp_path, plan._replace(name="space_invaders", games=rest, seeds=1), improving, state="running")
    write_runs(tmp_path, plan._replace(name="training-games", operators=("al:0.7",), seeds=1), improving, state="stopped")
    found = sections(tmp_path)
    rows = {row[1]: row[2:] for row in blocks_of(found)["What the results cover"].rows}
    assert rows["games"] == ("60", "1")
    assert rows["seeds per game and operator"] == ("10", "2")
    text = prose_of(found)
    assert "In Stochastic Minimal, 1 game of 60 cannot show" in text
    assert f"Trained: asterix (10,000,000 frames, seeds per agent: 2). Unfinished: {3 * len(rest) + 1} of {3 * len(rest) + 7} runs." in text


# The page.


def test_everything_is_on_the_page(page):
    shown = blocks_of(page)
    assert [section.title for section in page] == [
        "Atari: what the results cover",
        "Atari, Stochastic Minimal: does a wider gap help?",
        "Atari, Original DQN: does a wider gap help?",
        "Atari: comparison with the paper",
        "Atari, Stochastic Minimal: effect of alpha",
        "Atari, Stochastic Minimal: gaps, values and bias",
        "Atari, Stochastic Minimal: corrections from the online network",
        "Atari, Original DQN: gaps, values and bias",
        "Atari: single games",
        "Atari: runs and their cost",
    ]
    assert "Not run" not in prose_of(page)
    curves = next(dict(block.items) for block in page[1].blocks if getattr(block, "title", "") == "Learning curves")
    assert list(dict.fromkeys(game for game, *_ in curves))[:2] == ["asterix", "space_invaders"]
    assert {name for _, name, _ in curves} == {"in evaluation", "in training"}
    played = {which: chart for (game, name, which), chart in curves.items() if (game, name) == ("asterix", "in evaluation")}
    assert [line.n for line in played["alpha = 0.9"].series] == [3, 3, 3]
    assert len(played["al, all alphas"].series) == 7
    assert [line.name for line in played["corrections"].series][3:] == ["al:0.9, online", "pal-dqn:0.9, online"]
    assert {which for game, _, which in curves if game == "pong"} == {"alpha = 0.9"}
    assert "10,000,000 frames, seeds per agent: 1 to 3" in prose_of(page)
    assert "one gradient step on 32 transitions per 4 steps" in prose_of(page)
    assert {"Cost of a run", "Cost of the full experiment", "The paper's table", "Final scores"} <= set(shown)
    text = render(Page("Atari", tuple(page)))
    assert "</html>" in text
    assert "nan" not in prose_of(page)
    assert all(COMMAND in block.source.command for block in shown.values() if getattr(block, "source", None))


def test_one_pair_is_not_tested_and_negative_baselines_are_excluded(full_folder, page):
    agents = read_agents(full_folder).agents_by_preset[STOCHASTIC]
    found = compare_with_bellman(agents, SCORE)
    assert {found[Agent(game, "al:0.9")].verdict for game in ("beam_rider", "pong", "seaquest")} == {ONE_PAIR}
    assert found[Agent("asterix", "al:0.9")].verdict == "higher, 99%"
    assert games_without_baseline(agents) == ["pong"]
    part = mean_relative_score(agents, Agent("", "al:0.9"))
    assert part is not None
    assert (part.n, part.high) == (1, math.inf)  # of the games with one seed
    games = [game for game in games_of(agents) if game != "pong"]
    ours, bases = ([np.mean([SCORE(run) for run in agents[Agent(game, name)].runs]) for game in games] for name in ("al:0.9", "bellman"))
    assert part.value == pytest.approx(np.mean(np.divide(ours, bases)))
    counts = blocks_of(page)["The paper's counts of games"]
    assert "9 of 15 comparisons have one pair of runs" in counts.note
    assert "Expected by chance: 0.01 each way per row here" in counts.note  # of the two games of five that can be tested
    assert [row[2] for row in counts.rows][:2] == ["1 of 2", "0 of 2"]
    text = prose_of(page)
    # Tests exist for al and pal-dqn on asterix (two alphas) and space_invaders. Three games and eight other operators have one pair.
    assert "one comparison per operator and game: higher in 4, lower in 0, no difference detected in 2 of 6" in text
    assert "14 comparisons with bellman cannot be tested" in text
    assert "Final scores are not compared" in text  # in Original DQN
    assert "over 5 games" not in text


def test_every_row_counts_its_testable_games_and_the_note_covers_all_rows(tmp_path):
    # On asterix all three have three seeds; on pong pal-dqn has one.
    plan = small_plan(games=("asterix",))
    write_runs(tmp_path, plan, improving)
    write_runs(tmp_path, plan._replace(name="training-games", games=("pong",), operators=MAIN_OPERATORS[:2]), improving)
    write_runs(tmp_path, plan._replace(name="original", games=("pong",), operators=MAIN_OPERATORS[2:], seeds=1), improving)
    table = blocks_of(sections(tmp_path))["The paper's counts of games"]
    assert [row[2].partition(" ")[2] for row in table.rows] == ["of 2", "of 2", "of 1", "of 1", "of 1", "of 1"]
    assert "Expected by chance: 0.005 to 0.01 each way per row here and 0.3 in the paper" in table.note
    assert "2 of 6 comparisons have one pair of runs" in table.note


def test_counts_without_a_test_are_marked(tmp_path):
    table = blocks_of(page_of(tmp_path, improving, seeds=1))["The paper's counts of games"]
    assert {cell for row in table.rows for cell in row[2:]} == {"none tested"}
    assert "Expected by chance: 0.3 each way per row in the paper" in table.note


def test_undetectable_differences_are_plain_numbers(tmp_path):
    def numbers(run, row):
        return {"score": 100.0 if run.operator == "bellman" else (60.0, 160.0)[run.seed]}

    text = prose_of(page_of(tmp_path, numbers, games=("asterix",), seeds=2))
    [part] = re.findall(r"easily missed: (\S+)% on asterix", text)
    # The ratios are 0.6 and 1.6, and Student's quantile of one degree of freedom is 12.7.
    assert part == "640"


def test_alphas_are_shown_on_games_with_several(page):
    shown = blocks_of(page)
    highest = dict(shown["Highest score by alpha, as in the paper"].items)
    assert list(highest) == [("asterix",)]
    al, pal = highest["asterix",].series
    assert al.x == pal.x == (0.0, *ALPHAS)
    assert al.y == pytest.approx([1000 + 500 * alpha for alpha in al.x], abs=3)
    assert {game for game, _ in dict(shown["By alpha"].items)} == {"asterix"}
    gaps = dict(shown["By alpha"].items)["asterix", "action gap"].series[0]
    assert gaps.y == pytest.approx([0.1 + alpha for alpha in gaps.x], abs=0.002)


def test_hypothesis_is_tested_on_agents_with_enough_seeds(page):
    text = prose_of(page)
    # Asterix and Space Invaders have three seeds, with four operators and two; the others have one.
    assert "the bias is lower in 6, higher in 0 and unclear in 0 of 6 (99%). This supports the hypothesis." in text
    assert "The bias is not tested" in text  # in Original DQN


def test_corrections_are_paired_by_seed(page):
    rows = {row[1]: row for row in blocks_of(page)["Corrections from the online and the target network"].rows}
    assert set(rows) == set(MAIN_OPERATORS[1:])
    # The same noise in both.
    assert rows["al:0.9"][6].value == pytest.approx(-50)
    assert "The score with corrections from the online network, compared with the target network:" in prose_of(page)


def test_empty_folder_names_missing_studies(tmp_path):
    found = sections(tmp_path)
    assert [section.title for section in found] == ["Atari: what the results cover"]
    assert "Not run in this folder: asterix (three operators on Asterix, with two alphas); space_invaders" in prose_of(found)
    assert PART.tables(tmp_path) == []
    PART.compute("smoke", tmp_path, lambda what, part: None)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "pong" / "runs").mkdir(parents=True)
    assert "Not run" not in prose_of(sections(tmp_path))


@pytest.mark.parametrize("seeds", [1, 2])
def test_unfinished_agents_have_only_curves(tmp_path, seeds):
    write_runs(tmp_path, study_plans("gpu")[0]._replace(operators=MAIN_OPERATORS, seeds=seeds), improving, state="running")
    found = sections(tmp_path)
    text = prose_of(found)
    assert "Nothing can be concluded: no agent is finished." in text
    assert f"Trained: none yet. Unfinished: {3 * seeds} of {3 * seeds} runs." in text
    assert "There are no counts to compare with the paper's" in text
    assert "Not run in this folder: space_invaders" in text
    assert "No single game is shown" in text
    assert "The cost of the full experiment is unknown" in text
    assert [name for (_, name, _), _ in blocks_of(found)["Learning curves"].items] == ["in evaluation", "in training"]
    render(Page("Atari", tuple(found)))


def test_page_states_truncation_and_empty_replay_buffers(tmp_path):
    plan = small_plan(games=("asterix",), seeds=2)
    write_runs(tmp_path, plan, lambda run, row: improving(run, row) | {"restarts": float(run.seed == 1 and row > 1)})
    found = sections(tmp_path)
    rows = {row[1]: row[2:] for row in blocks_of(found)["What the results cover"].rows}
    assert rows["steps after which a game is truncated"] == ("27,000", "4,500")
    assert "completed, or truncated after 4,500 steps" in prose_of(found)
    assert f"The replay buffer of {len(plan.operators)} agents was not saved" in prose_of(found)


def test_one_run_makes_a_page(tmp_path):
    write_runs(tmp_path, study_plans("gpu")[0]._replace(seeds=1, operators=("bellman",)), improving)
    found = sections(tmp_path)
    assert "nothing can be tested: no agent has a common seed with bellman" in prose_of(found)
    render(Page("Atari", tuple(found)))


def test_full_cost_is_frames_divided_by_the_measured_rate(tmp_path):
    plan = small_plan(games=("asterix",), seeds=1, frames=2_000_000)
    write_runs(tmp_path, plan, improving, seconds=40.0)
    runs = read_agents(tmp_path).runs
    # 2,000,000 frames and 2 evaluations of 50,000 in 40 s, three times.
    assert fastest_rate(runs) == (pytest.approx(2_100_000 / 40), plan.name)
    [table] = full_cost(runs, provenance_of(runs))
    write_runs(tmp_path / "brief", plan._replace(frames=500_000), improving)
    assert fastest_rate(read_agents(tmp_path / "brief").runs) is None
    # A study that shared the machine with another process is slower and does not measure the machine.
    write_runs(tmp_path, plan._replace(name="space_invaders", games=("space_invaders",)), improving, seconds=70.0)
    assert fastest_rate(read_agents(tmp_path).runs) == (pytest.approx(2_100_000 / 40), plan.name)
    rows = {row[0]: row[1:] for row in table.rows}  # pyright: ignore[reportAttributeAccessIssue]
    assert rows[STOCHASTIC][:3] == (1800, 180.0, 90.0)
    # 486e9 / 52,500 / 86,400 is 107.14, and a third of that is Original DQN.
    assert rows["total"] == (1800 + 540 + 150 + 30, 324.0, 162.0, "107")
    assert rows[ORIGINAL][3] == "35.7"


def test_terminal_tables_show_every_setting(full_folder):
    text = io.StringIO()
    for table in PART.tables(full_folder):
        Console(width=220, file=text).print(table)
    for word in ("Atari, Stochastic Minimal", "Atari, Original DQN", "pal-dqn:0.9, online", "space_invaders", "higher, 99%", ONE_PAIR):
        assert word in text.getvalue()


def test_the_part_is_registered():
    assert load_part("atari") is PART


# Probes and videos of real networks, on a fast game.


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> FigureSelection:
    out = tmp_path_factory.mktemp("trained")
    tiny = {"frames": 64, "eval_every": 32, "buffer_size": 50, "learning_starts": 20, "episodes": 2, "max_episode_steps": 9}
    study = Study("asterix", grid("train", env="minatar/breakout", operator=MAIN_OPERATORS, **tiny))
    run_inline(study, out, batch_size=3)
    runs = {run.agent: run for run in read_runs([out]).runs}
    return FigureSelection(STOCHASTIC, "breakout", tuple(runs[name] for name in MAIN_OPERATORS))


def test_probes_evaluate_the_states_of_one_agent(trained):
    folders = [run.folder for run in trained.runs]
    one, other = (probe_agents(some, folders[0], steps=30, window=10) for some in (folders, folders[1:]))
    assert [curve.agent for curve in one] == [f"{name}, seed 0" for name in MAIN_OPERATORS]
    assert one[1:] == other
    assert {len(row) for curve in one for row in (curve.value, curve.gap)} == {30}
    assert min(min(curve.gap) for curve in one) >= 0
    assert one[0].value != probe_agents(folders[:1], folders[0], steps=30, window=1)[0].value
    with pytest.raises(ValueError, match="nowhere"):
        probe_agents([Path("nowhere")], folders[0])


def test_probes_are_stored_with_the_digests_of_their_runs(trained, tmp_path):
    assert "There is no probe of breakout" in probe_blocks(tmp_path, trained)[0].text  # pyright: ignore[reportAttributeAccessIssue]
    messages = []
    for _ in range(2):
        make_probe(tmp_path, trained, lambda what, part: messages.append(what), steps=20)
    assert len(messages) == 1
    gaps, values = probe_blocks(tmp_path, trained)
    assert isinstance(gaps, Chart)
    assert isinstance(values, Chart)
    assert (gaps.title, values.y_label) == ("Action gaps along one game, breakout in Stochastic Minimal", "V(x)")
    assert [(line.name, len(line.y)) for line in values.series] == [(name, 20) for name in MAIN_OPERATORS]
    # The probe has all 20 requested steps, so the game did not end.
    assert gaps.note.startswith("Along the first 20 steps of one game played by bellman")
    file = tmp_path / f"probe-{trained.name}.json"
    stored = json.loads(file.read_text())
    for ended, first in (({"ended": True}, "all"), ({"ended": False}, "the first"), ({}, "all")):
        file.write_text(json.dumps({name: value for name, value in stored.items() if name != "ended"} | ended))
        [chart, _] = probe_blocks(tmp_path, trained)
        assert isinstance(chart, Chart)
        assert chart.note.startswith(f"Along {first} 20 steps of one game")
        assert ("to the end" in chart.note) == (first != "all")
    others = trained._replace(runs=trained.runs[::-1])
    assert "There is no probe of breakout" in probe_blocks(tmp_path, others)[0].text  # pyright: ignore[reportAttributeAccessIssue]
    file.write_text("[]")
    assert isinstance(probe_blocks(tmp_path, trained)[0], Prose)


@pytest.mark.skipif(not makes_mp4(), reason="needs PyAV")
def test_videos_are_stored_with_the_digests_of_their_runs(trained, tmp_path):
    messages = []
    for _ in range(2):
        make_video(tmp_path, trained, lambda what, part: messages.append(what), max_steps=12)
    assert messages == [f"recording {name} on breakout" for name in MAIN_OPERATORS]
    video = video_block(tmp_path, trained)
    assert isinstance(video, Picture)
    assert video.data[4:8] == b"ftyp"
    assert all(name in video.note for name in MAIN_OPERATORS)
    assert isinstance(video_block(tmp_path, trained._replace(runs=trained.runs[::-1])), Prose)


def test_missing_networks_are_reported(tmp_path):
    write_runs(tmp_path, small_plan(preset=ORIGINAL, games=("asterix", "space_invaders"), seeds=2), improving)
    [selection] = select_figures(read_agents(tmp_path).agents_by_preset)
    assert (selection.preset, selection.game, [run.agent for run in selection.runs], {run.seed for run in selection.runs}) == (
        ORIGINAL,
        "space_invaders",
        list(MAIN_OPERATORS),
        {0},
    )
    PART.compute("smoke", tmp_path, lambda what, part: None)
    text = prose_of(sections(tmp_path))
    assert "There is no probe of space_invaders in Original DQN: " in text
    assert "There is no video of space_invaders in Original DQN: " in text
    assert "makes it from finished agents" not in text


def test_dry_run_estimates_the_paper_s_scale_without_a_gpu(tmp_path, capsys):
    pytest.importorskip("ale_py", reason="Atari needs ale-py: pip install 'actiongap[atari]'")
    with pytest.raises(SystemExit, match="0"):
        main(["reproduce", "atari", "--scale", "paper", "--dry-run", "--json", "--out", str(tmp_path)])
    plans = json.loads(capsys.readouterr().out)
    assert sum(plan["runs"] for plan in plans) == 2520
    # 324 billion frames of training and half as many of evaluation, at tens of thousands per second.
    assert 30 < sum(plan["work"] for plan in plans) / 86400 < 300
    assert all("rates included with actiongap, from 16 cores and an NVIDIA H200" in plan["basis"] for plan in plans)
