"""The paper's bicycle: its studies, recorded episodes and pictures, and that the page follows from the rows of runs."""

import dataclasses
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy.interpolate import RegularGridInterpolator

from actiongap.envs.bicycle import standing
from actiongap.lab.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from actiongap.lab.experiment import run_name
from actiongap.lab.kinds import plan as planning
from actiongap.lab.kinds.plan import Planning
from actiongap.lab.runner import open_study, run_experiment, run_folder
from actiongap.lab.store import encode_rows, holding
from actiongap.lab.study import Study
from actiongap.maths import action_gap
from actiongap.paper import bicycle_figures
from actiongap.paper.bicycle import LOWEST_VALUE, PART, sections
from actiongap.paper.bicycle_claims import AGREES, IDENTICAL, ONE_RUN, OPPOSES, UNDECIDED, claims
from actiongap.paper.bicycle_figures import (
    action_gap_maps,
    cell_centers,
    draw_gap_maps,
    episode_outcome,
    interpolation,
    trajectories,
)
from actiongap.paper.bicycle_runs import ETAS, OPERATORS, READINGS, RESOLUTIONS, SIZES, STUDIES, Plan, final_state, read_plans, studies
from actiongap.paper.parts import SCALES, load_part
from actiongap.paper.reproduce import select_studies
from actiongap.planning.grid import Grid, periodic, uniform
from actiongap.planning.rollouts import record_episode
from actiongap.render.video import makes_mp4
from actiongap.reporting.figures import image
from actiongap.reporting.html import render
from actiongap.reporting.page import Choice, Page, Picture, Prose, Section, Table
from pages import blocks_of, prose_of


def run_study(study: Study, out: Path) -> None:
    """Run a study in this process."""
    folder = open_study(study, out / study.name, "actiongap reproduce bicycle")
    # Compiled code of an operator is reused for all of its seeds.
    for name, run in sorted(study.named().items(), key=lambda named: named[1].agent):
        assert run_experiment(run_folder(folder, name), run, command="actiongap reproduce bicycle") == "done"


@pytest.fixture(scope="module")
def smoke(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("smoke")
    for study in studies("smoke"):
        run_study(study, out)
    PART.compute("smoke", out, lambda *_: None)
    return out


def replace_fields(study: Study, which: Callable[[Any], bool], **fields: Any) -> Study:
    """Return the study with fields of the runs that match `which` replaced."""
    runs: list[Any] = list(study.runs)
    return dataclasses.replace(study, runs=tuple(dataclasses.replace(run, **fields) if which(run) else run for run in runs))


def without_recording(scale: Any) -> Study:
    """The first study of a scale, without recorded episodes."""
    return replace_fields(studies(scale)[0], lambda run: True, record_episodes=0)


# Studies.


@pytest.mark.parametrize("scale", SCALES)
def test_no_plan_is_made_twice(scale):
    names = [run_name(run) for study in studies(scale) for run in replace_fields(study, lambda run: True, record_episodes=0).runs]
    assert len(set(names)) == len(names)
    assert {study.name for study in studies(scale)} <= set(STUDIES)


def test_gpu_scale_has_the_paper_s_studies():
    operators, *others = studies("gpu")
    runs: list[Any] = list(operators.runs)
    kinds = {(run.grid, run.operator, run.seed) for run in runs}
    assert kinds == {(grid, operator, seed) for grid in (8, 10) for operator in OPERATORS for seed in range(5)}
    assert {(run.iterations, run.eval_every, run.episodes, run.max_episode_steps, run.noise, run.engine) for run in runs} == {
        (1000, 100, 100, None, "independent", "jax")
    }
    assert all(bool(run.record_episodes) == (run.operator in ("bellman", "consistent")) for run in runs)
    assert [study.name for study in others] == ["alpha", "eta", "readings", "resolution"]
    everything: list[Any] = [run for study in (operators, *others) for run in study.runs]
    assert {run.grid for run in everything} == set(RESOLUTIONS)
    assert {run.eta for run in everything} == set(ETAS)
    assert {run.env for run in everything} == {reading.env for reading in READINGS}
    assert {run.operator for run in everything} >= {f"{family}:{alpha}" for family in ("al", "pal") for alpha in (0.1, 0.3, 0.5, 0.7, 0.9)}


def test_studies_can_be_selected():
    named = {"bicycle": list(studies("gpu")), "scores": []}
    assert select_studies(named, ()) == named
    [(part, some)] = select_studies(named, ("eta", "alpha")).items()
    assert (part, [study.name for study in some]) == ("bicycle", ["alpha", "eta"])
    with pytest.raises(ValueError, match=r"there is no study 'etas' at this scale: did you mean eta\?"):
        select_studies(named, ("etas",))


# Recorded episodes.


def plan_of(scale: Any = "smoke", **fields: Any) -> Planning:
    run = studies(scale)[0].runs[0]
    assert isinstance(run, Planning)
    return dataclasses.replace(run, **fields)


@pytest.mark.usefixtures("smoke")
def test_recording_resumes_exactly(tmp_path, monkeypatch):
    spec = plan_of(operator="consistent", iterations=25)
    assert spec.chunks == 1
    expected, rows = spec.advance(spec.start(), 0)
    assert expected["episodes"].shape == (3, 2, 201, 8)
    monkeypatch.setitem(planning.BACKUPS, "numba", 7 * 729 * 9)
    assert spec.chunks == 4
    state, found = spec.start(), []
    assert {name: (array.shape, array.dtype) for name, array in state.items()} == {
        name: (array.shape, array.dtype) for name, array in expected.items()
    }
    for chunk in range(4):
        before = {name: array.copy() for name, array in state.items()}
        after, some = spec.advance(state, chunk)
        for name, array in before.items():
            np.testing.assert_array_equal(array, state[name])
        write_checkpoint(tmp_path / "state.npz", Checkpoint(chunk + 1, after, 0, "", 0.0))
        state, found = read_checkpoint(tmp_path / "state.npz").state, [*found, *some]
    assert found == rows
    for name, array in expected.items():
        np.testing.assert_array_equal(array, state[name])


def test_recorded_states_are_those_of_the_episode(smoke):
    for group in read_plans(smoke)[0].values():
        run = group.runs[0]
        state, spec = final_state(run), plan_of(operator=run.spec["operator"])
        assert state is not None
        assert spec.recorded_episodes == (1, 3)
        for place, episode in enumerate(spec.recorded_episodes):
            recorded = record_episode(spec.simulator, spec.state_grid, state["q"], episode, spec.episodes, seed=0, max_episode_steps=200)
            frames = state["episodes"][-1, place]
            np.testing.assert_array_equal(frames[: len(recorded.steps)], np.stack(recorded.states, axis=-1).astype(np.float32))
            assert np.isnan(frames[len(recorded.steps) :]).all()
            assert episode_outcome(frames) == recorded.outcome


def test_long_episodes_are_recorded_at_intervals():
    assert plan_of(max_episode_steps=None)._empty_recording()["episodes"].shape[2] == 1001
    assert plan_of(max_episode_steps=1500)._empty_recording()["episodes"].shape[2] == 751
    assert plan_of(record_episodes=0)._empty_recording() == {}
    assert plan_of("gpu").recorded_episodes == (10, 30, 50, 70, 90)
    for many in (-1, 5):
        with pytest.raises(ValueError, match=f"record_episodes is {many}: it must be from 0 to 4, the number of episodes"):
            plan_of(record_episodes=many)


# The smoke scale, from runs to page.


def test_smoke_scale_makes_a_page(smoke):
    found = sections(smoke)
    text = render(Page("The bicycle", tuple(found)))
    shown = blocks_of(found)
    curves = shown["How episodes of greedy policies end (Figure 3, top, and the appendix)"]
    assert [key for key, _ in curves.items] == [("3^6", "arrivals"), ("3^6", "falls"), ("3^6", "neither")]
    assert [(line.name, line.x, line.n) for line in curves.items[0][1].series] == [
        ("bellman", (10.0, 20.0), 2),
        ("consistent", (10.0, 20.0), 2),
    ]
    assert [row[:3] for row in shown["After the last sweep"].rows] == [("3^6", "bellman", 20), ("3^6", "consistent", 20)]
    titles = [f"Trajectories with {operator} on the 3^6 grid (Figure 3, bottom)" for operator in ("bellman", "consistent")]
    for title in (*titles, "Action gaps on the 3^6 grid", "Multilinear interpolation (Figure 2)"):
        assert isinstance(shown[title], Picture)
    between = shown["V at grid points and between them"]
    assert [row[between.columns.index("cells above")] for row in between.rows] == [0.0, 0.0]
    assert all("actiongap reproduce bicycle" in block.source.command for block in shown.values() if getattr(block, "source", None))
    assert "Not run in this folder: alpha" in prose_of(found)
    assert ("Two episodes" in shown) == makes_mp4()
    assert ("<video controls" in text) == makes_mp4()


@pytest.mark.skipif(not makes_mp4(), reason="needs PyAV")
def test_video_is_made_once_and_only_for_its_runs(smoke, tmp_path, monkeypatch):
    plans, _ = read_plans(smoke)
    file = smoke / "episodes.mp4"
    before = file.stat().st_mtime_ns
    PART.compute("smoke", smoke, lambda *_: pytest.fail("the video is up to date"))
    assert file.stat().st_mtime_ns == before
    data, clips = bicycle_figures.load_video(smoke, plans)  # pyright: ignore[reportGeneralTypeIssues]
    assert data[4:8] == b"ftyp"
    assert [clip.operator for clip in clips] == ["bellman", "consistent"]
    assert all(clip.outcome in ("fall", "limit") and 0 < clip.steps <= 200 for clip in clips)
    for name in ("episodes.mp4", "episodes.json"):
        (tmp_path / name).write_bytes((smoke / name).read_bytes())
    assert bicycle_figures.load_video(tmp_path, plans) is not None
    record = json.loads((tmp_path / "episodes.json").read_text())
    (tmp_path / "episodes.json").write_text(json.dumps({**record, "digests": ["others"]}))
    assert bicycle_figures.load_video(tmp_path, plans) is None
    monkeypatch.setattr(bicycle_figures, "makes_mp4", lambda: False)
    bicycle_figures.make_video(tmp_path, plans, lambda *_: pytest.fail("PyAV is missing"))
    block = bicycle_figures.video_picture(tmp_path, plans)
    assert isinstance(block, Prose)
    assert "pip install 'actiongap[video]'" in block.text


def test_runs_without_final_state_are_shown_by_their_rows(smoke, tmp_path):
    for study in studies("smoke"):
        folder = open_study(study, tmp_path / study.name, "")
        for name in study.named():
            there = folder / "runs" / name
            there.mkdir(parents=True)
            for file in ("config.json", "meta.json", "metrics.jsonl", "status.json"):
                (there / file).write_bytes((smoke / study.name / "runs" / name / file).read_bytes())
            (there / "checkpoint").mkdir()
            (there / "checkpoint" / "00000001.npz").write_bytes(b"half of")
    found = sections(tmp_path)
    assert blocks_of(found)["After the last sweep"].rows == blocks_of(sections(smoke))["After the last sweep"].rows
    assert "No trajectories are drawn" in prose_of(found)
    assert "Action gaps on the 3^6 grid" not in blocks_of(found)


def test_terminal_table_shows_how_episodes_end(smoke):
    text = io.StringIO()
    [table] = PART.tables(smoke)
    Console(width=200, file=text).print(table)
    last = blocks_of(sections(smoke))["After the last sweep"].rows[0]
    assert table.row_count == 2
    assert f"{last[4].value:.3g} [" in text.getvalue()


def test_empty_folder_names_missing_studies(tmp_path):
    found = sections(tmp_path)
    assert "Not run in this folder: operators" in prose_of(found)
    (tmp_path / "eta" / "runs").mkdir(parents=True)
    assert "Not run in this folder: operators" in prose_of(sections(tmp_path))
    assert read_plans(tmp_path)[0] == {}


# The page of runs with synthetic rows.


def write_runs(out: Path, study: Study, numbers: Any) -> None:
    """Write runs of a study with synthetic rows and final tables: numbers(run, step) returns some columns."""
    folder, rng = open_study(study, out / study.name, "actiongap reproduce bicycle --scale gpu"), np.random.default_rng(0)
    for name, run in study.named().items():
        assert isinstance(run, Planning)
        rows: list[Any] = []
        for step in range(run.eval_every, run.iterations + 1, run.eval_every):
            plain = {"score": 0.0, "mean_steps": 1e5, "mean_return": 0.0, "gap": 0.01, "value": -0.2, "residual": 1e-3}
            rows.append({"step": step, **plain, **numbers(run, step)})
        state = {"q": np.zeros((1, 9), np.float32)}
        if run.grid == 8 and run.seed == 0:
            straight = np.array([standing(0.0, north=north) for north in (-1000.0, -500.0, -9.0)], np.float32)
            recorded = {"episodes": np.tile(straight, (10, run.record_episodes, 1, 1))} if run.record_episodes else {}
            state = {"q": rng.random((8**6, 9), np.float32), **recorded}
        with holding(run_folder(folder, name), run, "actiongap reproduce bicycle --scale gpu") as held:
            held.append(run.chunks, encode_rows(rows), state, 1.0)
            held.save("done")
        if len(state["q"]) == 1:
            # The placeholder table has the wrong shape for this grid.
            shutil.rmtree(run_folder(folder, name) / "checkpoint")


def paper_like(run: Planning, step: int) -> dict[str, float]:
    """Consistent arrives on grids of at least 8 points, the others on at least 14. The values of al:0.9 diverge."""
    noise = 0.01 * ((run.seed * 7 + step // 100) % 3)
    arrives = step >= 300 and "fall=once" not in run.env and run.grid >= (8 if run.operator == "consistent" else 14)
    goal, fall = (1.0 - noise, noise) if arrives else (noise, 0.5 if "fall=once" in run.env else 0.1)
    value = -0.01 * step if run.operator == "al:0.9" else -0.2
    gap = {"consistent": 0.041, "pal:0.5": 0.04}.get(run.operator, 0.01)
    return {"goal_frequency": goal, "fall_frequency": fall, "value": value, "gap": gap, "mean_steps": 4e4 if goal == 1.0 else 1e5}


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("synthetic")
    for study in studies("gpu"):
        write_runs(out, study, paper_like)
    return out


@pytest.fixture(scope="module")
def synthetic_page(synthetic) -> list[Section]:
    return sections(synthetic)


def test_all_five_studies_are_on_the_page(synthetic_page):
    shown, text = blocks_of(synthetic_page), prose_of(synthetic_page)
    assert "Not run" not in text
    curves = shown["How episodes of greedy policies end (Figure 3, top, and the appendix)"]
    assert [len(chart.series) for _, chart in curves.items] == [4] * 6
    assert all(0 <= end <= 1 for _, chart in curves.items for line in chart.series for end in (*line.low, *line.high))
    resolution = shown["Results by resolution"]
    assert [row[0] for row in resolution.rows] == list(RESOLUTIONS)
    advantage = {row[0]: row[-1].value for row in resolution.rows}
    assert advantage[7] == advantage[20] == 0
    assert advantage[8] > 0.9
    assert f"with {max(advantage, key=advantage.__getitem__)} points per axis" in text
    assert [row[0] for row in shown["Details that the paper leaves open"].rows] == [reading.label for reading in READINGS]
    assert shown["Details that the paper leaves open"].rows[1][4].value == 0.5
    assert [row[1] for row in shown["Results by eta"].rows] == [*ETAS, *ETAS]
    alphas = {row[0]: row for row in shown["Results by alpha"].rows}
    assert len(alphas) == 12
    assert [name for name, row in alphas.items() if row[6]] == ["al:0.9"]
    assert "The mean value of al:0.9 is -5 [-5, -5] after 500 iterations and -10 [-10, -10] after 1000" in text
    assert f"No policy has a value below {LOWEST_VALUE:.3g}" in text
    assert "The mean gap of pal:0.5, 0.04 [0.04, 0.04], is the nearest to that of consistent, 0.041 [0.041, 0.041]" in text
    assert isinstance(shown["Fraction of the gap that is subtracted: alpha"], Choice)
    assert "</html>" in render(Page("The bicycle", tuple(synthetic_page)))


def test_verdicts_on_the_page_match_the_claims(synthetic, synthetic_page):
    found = claims({plan: group for plan, group in read_plans(synthetic)[0].items() if plan.grid in (8, 10)})
    verdicts = {(claim.paper, claim.measured.partition(",")[0]): claim.verdict for claim in found}
    assert verdicts["consistent reaches the goal earlier than bellman", "arrivals on the 8^6 grid"] == AGREES
    assert verdicts["al:0.1 does better than bellman", "arrivals on the 8^6 grid"] == UNDECIDED
    assert verdicts["the effect is larger on the coarser grid", "arrivals"] == UNDECIDED
    assert verdicts["bellman does not reach the goal", "arrivals on the 8^6 grid"] == AGREES
    assert verdicts["a successful episode takes 50,000 steps or more", "steps per episode"] == "shorter"
    table = blocks_of(synthetic_page)["Comparison with the paper"]
    assert [row[1] for row in table.rows] == [claim.verdict for claim in found]
    assert "The paper says: al:0.1 does better than bellman. Measured: 0 for arrivals" in prose_of(synthetic_page)


@pytest.mark.parametrize(("shift", "verdict"), [(0.3, AGREES), (-0.3, OPPOSES)])
def test_verdicts_follow_the_numbers(tmp_path, shift, verdict):
    def numbers(run, step):
        own = shift * (1 + 0.01 * run.seed) if run.operator == "al:0.1" else 0.0
        return {"goal_frequency": 0.5 + own, "fall_frequency": 0.5 - own}

    write_runs(tmp_path, without_recording("laptop"), numbers)
    found = {claim.paper: claim for claim in claims(read_plans(tmp_path)[0])}
    assert found["al:0.1 does better than bellman"].verdict == verdict
    assert found["consistent balances earlier than bellman"].verdict == UNDECIDED
    assert found["bellman does not reach the goal"].verdict == "reaches the goal"
    assert ("al:0.1 does better" in prose_of(sections(tmp_path))) == (verdict == OPPOSES)


def test_one_run_is_not_tested_and_an_older_scale_is_not_counted(tmp_path):
    study = without_recording("laptop")
    write_runs(tmp_path, study, paper_like)
    once = dataclasses.replace(study, runs=tuple(run for run in study.runs if run.seed == 0))
    write_runs(tmp_path, replace_fields(once, lambda run: True, iterations=300), paper_like)
    plans, records = read_plans(tmp_path)
    assert len(records.runs) == 3
    assert {tuple(run.rows["step"][-1:]) for group in plans.values() for run in group.runs} == {(300.0,)}
    assert {claim.verdict for claim in claims(plans) if "than" in claim.paper} == {ONE_RUN}
    assert plans.keys() == {Plan(operator, 8) for operator in OPERATORS[:3]}
    render(Page("The bicycle", tuple(sections(tmp_path))))


def test_few_identical_differences_are_not_tested(tmp_path):
    def numbers(run, step):
        return {"goal_frequency": 1.0 if run.operator == "consistent" else 0.0, "fall_frequency": 0.0}

    write_runs(tmp_path, without_recording("laptop"), numbers)
    found = {claim.paper: claim for claim in claims(read_plans(tmp_path)[0])}
    claim = found["consistent reaches the goal earlier than bellman"]
    assert claim.number is not None
    assert (claim.number.value, claim.number.n, claim.number.high) == (1.0, 3, np.inf)
    assert claim.verdict == IDENTICAL


def test_failed_run_is_named(tmp_path):
    write_runs(tmp_path, without_recording("laptop"), paper_like)
    bad = Planning(operator="al:0.5", iterations=400, seed=9)
    with holding(tmp_path / "alpha" / "runs" / run_name(bad), bad) as held:
        held.fail("Q is no longer finite: al:0.5 diverges here", "")
    failed = blocks_of(sections(tmp_path))["Runs that failed"]
    assert failed.rows[0][-1] == "Q is no longer finite: al:0.5 diverges here"


# Between the points.


@settings(derandomize=True, deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), sizes=st.lists(st.integers(2, 4), min_size=1, max_size=3), actions=st.integers(2, 4))
def test_v_between_the_points_is_at_most_their_mean(seed, sizes, actions):
    grid = Grid(tuple(uniform(-1.0, 2.0, size) for size in sizes))
    q = np.random.default_rng(seed).normal(size=(grid.size, actions)).astype(np.float32)
    middles = np.meshgrid(*((np.array(axis.points)[1:] + np.array(axis.points)[:-1]) / 2 for axis in grid.axes), indexing="ij")
    points = [np.array(axis.points) for axis in grid.axes]
    table = q.astype(float).reshape(*grid.shape, actions)
    values = RegularGridInterpolator(points, table)(np.stack([m.ravel() for m in middles], axis=-1))
    best = RegularGridInterpolator(points, table.max(axis=-1))(np.stack([m.ravel() for m in middles], axis=-1))
    found = cell_centers(grid, q)
    assert found.between == pytest.approx(values.max(axis=-1).mean(), abs=1e-12)
    assert found.shortfall == pytest.approx((best - values.max(axis=-1)).mean(), abs=1e-12)
    assert found.largest == pytest.approx((best - values.max(axis=-1)).max(), abs=1e-12)
    assert found.above == 0
    assert found.gap_between == pytest.approx(action_gap(values).mean(), abs=1e-12)
    assert found.gap_at_points == pytest.approx(action_gap(table).mean(), abs=1e-12)


def test_corners_with_the_same_best_action_have_no_shortfall():
    grid = Grid((uniform(0.0, 1.0, 3), uniform(0.0, 1.0, 3)))
    q = np.random.default_rng(0).random((9, 1)) + np.array([[0.0, 0.5]])
    assert cell_centers(grid, q)[2:6] == (0.0, 0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="an axis is periodic"):
        cell_centers(Grid((periodic(0.0, 1.0, 3),)), np.zeros((3, 2)))


def test_maps_show_the_gap_of_the_interpolated_q():
    grid, rng = plan_of().state_grid, np.random.default_rng(0)
    q = rng.random((grid.size, 9))
    maps = action_gap_maps(grid, {"bellman": q, "consistent": 2 * q})
    for made, (across, up) in zip(maps, ((4, 5), (0, 2)), strict=True):
        looked = RegularGridInterpolator([np.array(axis.points) for axis in grid.axes], q.reshape(*grid.shape, 9))
        x = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 500.0])
        for i, j in ((0, 0), (70, 70), (140, 3)):
            for axis, share in ((up, (i + 0.5) / 141), (across, (j + 0.5) / 141)):
                low, high = grid.axes[axis].points[0], grid.axes[axis].points[-1]
                x[axis] = low + share * (high - low)
            assert made.gaps["bellman"][i, j] == pytest.approx(action_gap(looked(x)[0]))
        np.testing.assert_allclose(made.gaps["consistent"], 2 * made.gaps["bellman"])
    assert maps[1].points[0] == pytest.approx((-12.0, 0.0, 12.0))


# Drawing.


def test_outcome_of_a_recorded_episode():
    lost = np.full(8, np.nan)
    assert episode_outcome(np.array([standing(0.0), standing(0.0, north=-9.0), lost])) == "goal"
    assert episode_outcome(np.array([standing(0.0), standing(0.0)._replace(omega=-0.3, y=-5.0)])) == "fall"
    assert episode_outcome(np.array([standing(1.0), standing(1.0, north=-500.0), lost, lost])) == "limit"


@pytest.mark.parametrize("evaluations", [1, 4, 10])
def test_every_evaluation_has_a_panel(evaluations):
    states = np.tile(np.array([standing(0.0, north=north) for north in (-1000.0, -9.0)]), (evaluations, 3, 1, 1))
    states[0, 0, 1:] = np.nan
    steps = [100 * (i + 1) for i in range(evaluations)]
    figure = trajectories(states, steps)
    assert [axes.get_title() for axes in figure.axes] == [str(step) for step in steps]
    assert all(len(axes.lines) == 4 for axes in figure.axes)
    assert image(figure, "svg") == image(trajectories(states, steps), "svg")


def test_maps_share_one_scale_even_if_all_actions_tie():
    grid = plan_of().state_grid
    q = np.random.default_rng(0).random((grid.size, 9))
    figure = draw_gap_maps(action_gap_maps(grid, {"bellman": q, "consistent": 3 * q}))
    limits = {axes.images[0].get_clim() for axes in figure.axes if axes.images}
    assert len(limits) == 1
    assert image(draw_gap_maps(action_gap_maps(grid, {"bellman": 0 * q})), "png").startswith(b"\x89PNG")
    assert b"<svg" in image(interpolation(), "svg")


def test_the_part_is_registered():
    assert load_part("bicycle") is PART
    assert all(size.record_episodes <= size.episodes for size in SIZES.values())
    assert isinstance(PART.sections, type(sections))
    assert all(isinstance(block, Table | Prose | Picture | Choice) for block in PART.sections(Path("nowhere"))[0].blocks)
