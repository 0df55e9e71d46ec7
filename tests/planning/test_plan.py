"""Planning on a grid: checks before the first sweep, the result, and plans as experiments."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actiongap.api.policies import PlanFailedError, plan
from actiongap.envs.simulators import SIMULATORS, load_simulator
from actiongap.lab.experiment import as_config, find, from_config
from actiongap.lab.kinds import plan as planning
from actiongap.lab.kinds.plan import Planning, table_means
from actiongap.operators import parse
from actiongap.paper.bicycle_runs import READINGS
from actiongap.planning import checks as memory
from actiongap.planning.backups import interpolated_backups
from actiongap.planning.checks import check_memory, check_simulator
from actiongap.planning.grid import Grid, periodic, uniform
from actiongap.planning.noise import UINT32, noise_key, random_uniform
from actiongap.planning.plan import run_sweeps, sweeps_for
from actiongap.planning.rollouts import check_episodes, frequencies, rollouts
from actiongap.planning.simulator import Discrete, EpisodeSpec, Outcome, Simulator, Uniform, one_step

PARKING = Path(__file__).parents[2] / "examples" / "plan_simulator.py"
"""A simulator with noise that compiles quickly."""
NOISE = Uniform(-0.5, 0.5)
AXES = {"place": uniform(0.0, 1.0, 5), "angle": periodic(0.0, 360.0, 4)}


def toy_simulator(step, noise: Uniform | Discrete = NOISE):
    """A simulator of a place and an angle with the given step."""
    return Simulator("toy", step, state=AXES, actions=("stay", "go"), noise=noise)


def check_error(step, **options) -> str:
    """The error of `check_simulator` for a step."""
    simulator = toy_simulator(step, **options)
    with pytest.raises(ValueError, match=r".+") as error:
        check_simulator(simulator, Grid(simulator.axes(0)))
    text = str(error.value)
    assert text.startswith("toy: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", SIMULATORS)
@pytest.mark.parametrize("n", [2, 5])
def test_all_simulators_pass_the_check(name, n):
    simulator = load_simulator(name)
    check_simulator(simulator, Grid(simulator.axes(n)))


def test_nonfinite_numbers_are_rejected_with_state_and_action():
    text = check_error(lambda x, a, u: Outcome((x[0], 1.0 / (x[1] - 90.0 * a)), 0.0, False))
    assert text == "toy: the next angle is inf after action stay in place = 0, angle = 0 with noise -0.5: a step must return finite numbers"
    text = check_error(lambda x, a, u: Outcome((x[0], x[1]), 0.0 / (x[0] - 0.75 * a), False))
    assert "the reward is nan after action stay in place = 0, angle = 0" in text
    text = check_error(lambda x, a, u: Outcome((x[0] + np.sqrt(0.4 - u), x[1]), 0.0, False))
    assert "the next place is nan after action stay in place = 0, angle = 0 with noise 0.5" in text


def test_corners_of_large_grids_are_checked():
    axes = (uniform(0.0, 1.0, 200), uniform(0.0, 1.0, 200))
    simulator = toy_simulator(
        lambda x, a, u: Outcome((x[0], np.log(1.0 - x[0] * x[1] * a + 1e-300)), 0.0, False),
        noise=Discrete((0.0,), (1.0,)),
    )
    with pytest.raises(ValueError, match="outside the axis, from 0 to 1, by more than its length") as error:
        check_simulator(simulator, Grid(axes))
    assert "the next angle is -690.776 after action go in place = 1, angle = 1:" in str(error.value)


def test_wrong_counts_shapes_and_types_are_rejected():
    assert "returns 1 coordinates, not 2" in check_error(lambda x, a, u: Outcome((x[0],), 0.0, False))
    assert "returns 3 coordinates" in check_error(lambda x, a, u: Outcome((x[0], x[1], u), 0.0, False))
    assert "returns a tuple" in check_error(lambda x, a, u: (x, 0.0, False))
    assert "returns an Outcome of a list" in check_error(lambda x, a, u: Outcome([*x], 0.0, False))  # pyright: ignore[reportArgumentType]
    assert "returns a NoneType" in check_error(lambda x, a, u: None)
    assert "the next place is of shape (3,) for states" in check_error(lambda x, a, u: Outcome((np.zeros(3), x[1]), 0.0, False))
    assert "the reward is of shape (20, 2, 1)" in check_error(lambda x, a, u: Outcome(x, np.zeros((20, 2, 1)), False))
    assert "the reward is a str" in check_error(lambda x, a, u: Outcome(x, "much", False))
    assert "ended has the type float64" in check_error(lambda x, a, u: Outcome(x, 0.0, 0.0))
    assert "ended has the type int64" in check_error(lambda x, a, u: Outcome(x, 0.0, (x[0] > 0.5) * 1))
    with pytest.raises(ValueError, match="toy: there are 1 axes for the coordinates place, angle"):
        check_simulator(toy_simulator(lambda x, a, u: Outcome(x, 0.0, False)), Grid((AXES["place"],)))


def test_errors_of_a_step_name_the_failing_state():
    def picky(x, a, u):
        if (x[0] == 0.5).any() and (a == 1).any():
            raise RuntimeError("no\nway")
        return Outcome(x, 0.0, False)

    assert check_error(picky) == "toy: its step fails after action go in place = 0.5, angle = 0 with noise -0.5: RuntimeError: no way"
    assert "its step fails on arrays of states" in check_error(lambda x, a, u: Outcome(x, 1.0 if x[0] > 0 else 0.0, False))


def test_steps_may_leave_the_grid_only_slightly():
    check_simulator(toy_simulator(lambda x, a, u: Outcome((x[0] + u, x[1] + 1e6), 0.0, False)), Grid(tuple(AXES.values())))
    check_simulator(toy_simulator(lambda x, a, u: Outcome((x[0] + 9.0, x[1]), 0.0, x[0] > -1.0)), Grid(tuple(AXES.values())))
    text = check_error(lambda x, a, u: Outcome((x[0] + 1.5 * a + u, x[1]), 0.0, False))
    assert "the next place is 2.25 after action go in place = 0.25, angle = 0 with noise 0.5" in text
    assert "outside the axis, from 0 to 1" in text
    assert "the next place is -1.5 after action stay in place = 0" in check_error(lambda x, a, u: Outcome((x[0] + 3 * u, x[1]), 0.0, False))


def test_check_memory_names_the_largest_grid_that_fits(monkeypatch):
    simulator = load_simulator("bicycle")
    monkeypatch.setattr(memory, "free_memory", lambda engine: {"memory": 2_000_000_000})
    check_memory(simulator, Grid(simulator.axes(10)), "numba")
    with pytest.raises(ValueError, match=r"bicycle with 1000 x .+ PB of memory, and 2 GB are free: use at most") as error:
        check_memory(simulator, Grid(simulator.axes(1000)), "numba")
    (most,) = map(int, re.findall(r"at most (\d+) points", str(error.value)))
    check_memory(simulator, Grid(simulator.axes(most)), "numba")
    with pytest.raises(ValueError, match=f"at most {most} points per axis"):
        check_memory(simulator, Grid(simulator.axes(most + 1)), "numba")
    # Six tables of four bytes per entry, and the tables of deterministic steps.
    assert 6 * 4 * 9 * most**6 < 2e9 < 7 * 4 * 9 * (most + 1) ** 6
    monkeypatch.setattr(memory, "free_memory", lambda engine: {"memory": 2e12, "accelerator memory": 1000})
    with pytest.raises(ValueError, match="of accelerator memory, and 1 kB are free: not even two points per axis would fit"):
        check_memory(simulator, Grid(simulator.axes(4)), "jax")


def test_memory_is_checked_before_allocation(monkeypatch):
    allocated = []
    monkeypatch.setattr(memory, "free_memory", lambda engine: {"memory": 10_000})
    for allocate in ("zeros", "empty"):
        monkeypatch.setattr(np, allocate, lambda *given, **_: allocated.append(given))
    with pytest.raises(ValueError, match="use at most"):
        plan("mountain-car", "bellman", grid=20_000, iterations=1, engine="numba", episodes=0)
    with pytest.raises(ValueError, match="use at most"):
        Planning(env="mountain-car", grid=20_000, engine="numba").start()
    assert not allocated


def test_free_memory_is_plausible():
    free = memory.free_memory("numba")
    assert free.keys() == {"memory"}
    assert 10**6 < free["memory"] < 10**15


SMALL = {"env": "mountain-car", "grid": 12, "iterations": 60, "eval_every": 25, "episodes": 20, "eta": 0.5}


@pytest.mark.every(3)
@pytest.mark.parametrize("operator", ["bellman", "consistent", "al:0.5"])
def test_a_plan_equals_its_sweeps_on_arrays(operator):
    simulator = load_simulator("bicycle")
    grid, q = Grid(simulator.axes(3)), np.zeros((729, 9))
    for k in range(6):
        u = -0.02 + 0.04 * random_uniform(np.uint32(noise_key(7, k)), np.arange(729 * 9, dtype=np.uint32).reshape(729, 9), UINT32)
        found = interpolated_backups(one_step(simulator), grid, q, np.arange(729), grid.points(), [(u, 1.0)], 0.9)
        q = 0.7 * q + 0.3 * parse(operator)(found)
    policy = plan("bicycle", operator, grid=3, iterations=6, gamma=0.9, eta=0.3, seed=7, engine="numba", episodes=0)
    np.testing.assert_allclose(policy.table, q, rtol=1e-4, atol=1e-6)
    assert policy.table.dtype == np.float32
    assert (policy.env, policy.operator, policy.grid) == ("bicycle", operator, grid)
    wanted = {
        "iterations": 6,
        "gamma": 0.9,
        "eta": 0.3,
        "samples": 1,
        "seed": 7,
        "noise": "independent",
        "interpolate": "q",
        "engine": "numba",
    }
    assert wanted.items() <= policy.about.items()
    assert json.loads(json.dumps(policy.about)) == policy.about


def test_engines_agree():
    pytest.importorskip("jax")
    for of_values in (False, True):
        engines = ("numpy", "numba", "jax")
        same = {"grid": 9, "iterations": 20, "interpolate": "v" if of_values else "q", "episodes": 0}
        plain, *others = (plan("mountain-car", "consistent", **same, engine=engine).table for engine in engines)
        for other in others:
            np.testing.assert_allclose(plain, other, rtol=1e-4, atol=1e-4)


def test_planning_with_a_custom_simulator():
    simulator = toy_simulator(lambda x, a, u: Outcome((x[0] + 0.25 * a, x[1]), -1.0, x[0] >= 0.9), noise=Discrete((0.0,), (1.0,)))
    policy = plan(simulator, "bellman", grid=5, iterations=30, eta=1.0, gamma=0.5, engine="numba", episodes=0)
    # Q(x, go): a reward of -1 per step until the episode ends.
    q = policy.table.reshape(5, 4, 2)
    np.testing.assert_allclose(q[:, 0, 1], [-1.9375, -1.875, -1.75, -1.5, -1.0], rtol=1e-6)


def test_run_sweeps_in_blocks():
    class Counting:
        def __init__(self):
            self.calls = []

        def advance(self, table, first, count):
            self.calls.append((first, count))
            return table + count, float(first + count)

    reports, sweeps = [], Counting()
    assert run_sweeps(sweeps, 0, 10, 90, 40, reports.append) == (90, 100.0)  # pyright: ignore[reportArgumentType]
    assert sweeps.calls == [(10, 40), (50, 40), (90, 10)]
    assert [(report.done, report.sweeps) for report in reports] == [(50, 40), (90, 40), (100, 10)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere", "bellman", 5, 10), "unknown simulator"),
        (("mountain-car", "belman", 5, 10), "unknown operator"),
        (("mountain-car", "bellman", 1, 10), "1 points per axis"),
        (("mountain-car", "bellman", 10**9, 10), "1000000000 points per axis"),
        (("mountain-car", "bellman", 5, 0), "iterations is 0"),
    ],
)
def test_bad_arguments_are_rejected(arguments, said):
    with pytest.raises(ValueError, match=said):
        plan(**dict(zip(("env", "operator", "grid", "iterations"), arguments, strict=True)))
    with pytest.raises(ValueError, match=said):
        Planning(**dict(zip(("env", "operator", "grid", "iterations"), arguments, strict=True)))


@pytest.mark.parametrize(
    "field",
    [
        {"gamma": 1.0},
        {"gamma": -0.1},
        {"eta": 0.0},
        {"eta": 1.5},
        {"samples": 0},
        {"eval_every": 0},
        {"episodes": -1},
        {"max_episode_steps": 0},
        {"seed": -1},
        {"seed": 2**32},
    ],
    ids=str,
)
def test_bad_fields_are_rejected(field):
    (name,) = field
    with pytest.raises(ValueError, match=f"{name} is"):
        Planning(env="mountain-car", **field)


def run_all(spec: Planning) -> tuple[np.ndarray, list]:
    """The last table and all rows of an experiment."""
    state, rows = spec.start(), []
    for chunk in range(spec.chunks):
        before = {name: array.copy() for name, array in state.items()}
        after, found = spec.advance(state, chunk)
        for name, array in before.items():
            np.testing.assert_array_equal(array, state[name])
        state, rows = after, [*rows, *found]
    return state["q"], rows


def test_chunks_do_not_change_the_result(monkeypatch):
    spec = Planning(**SMALL, operator="consistent", engine="numba")
    assert spec.chunks == 1
    q, rows = run_all(spec)
    assert [row["step"] for row in rows] == [25, 50, 60]
    assert [set(row) for row in rows] == [{"step", *Planning.columns}] * 3
    monkeypatch.setitem(planning.BACKUPS, "numba", 7 * 144 * 3)
    assert spec.chunks == 9
    again, other_rows = run_all(spec)
    np.testing.assert_array_equal(q, again)
    assert rows == other_rows


def test_chunks_change_only_rounding_with_jax(monkeypatch):
    pytest.importorskip("jax")
    spec = Planning(**SMALL, operator="consistent", engine="jax")
    q, rows = run_all(spec)
    planning._READY.clear()
    again, other_rows = run_all(spec)
    np.testing.assert_array_equal(q, again)
    assert rows == other_rows
    monkeypatch.setitem(planning.BACKUPS, "jax", 20 * 144 * 3)
    assert spec.chunks == 3
    np.testing.assert_allclose(run_all(spec)[0], q, rtol=1e-5)


def test_number_of_chunks():
    bicycle = Planning()
    assert bicycle.chunks == 10
    assert dataclasses.replace(bicycle, engine="jax").chunks == 1
    assert dataclasses.replace(bicycle, grid=10, episodes=1).chunks == 31
    assert dataclasses.replace(bicycle, grid=20, iterations=3).chunks == 3
    assert dataclasses.replace(bicycle, eval_every=10).chunks == 100
    assert dataclasses.replace(bicycle, eval_every=10, max_episode_steps=10_000).chunks == 10
    assert dataclasses.replace(bicycle, eval_every=1, engine="jax").chunks == 10
    assert dataclasses.replace(bicycle, samples=1000).chunks == 1000
    assert dataclasses.replace(bicycle, eval_every=5000, iterations=30, episodes=1).chunks == 1


def test_rows_match_rollouts():
    spec = Planning(**SMALL, operator="consistent", engine="numba", max_episode_steps=150)
    q, rows = run_all(spec)
    numbers = frequencies(spec.simulator, rollouts(spec.simulator, spec.state_grid, q[None], 20, max_episode_steps=150, engine="numba"))[0]
    last = rows[-1]
    assert {name: last[name] for name in numbers} == numbers
    assert last["score"] == last["goal_frequency"]
    assert last["fall_frequency"] is None
    ordered = np.sort(q.astype(float), axis=1)
    assert last["gap"] == pytest.approx((ordered[:, -1] - ordered[:, -2]).mean())
    assert last["value"] == pytest.approx(ordered[:, -1].mean())
    assert last["residual"] > 0


def test_score_is_goal_frequency_survival_or_return():
    ends = {name: set(Planning(name).episode_spec.outcomes) for name in SIMULATORS}
    assert ends == {"bicycle": {"fall", "goal"}, "mountain-car": {"goal"}, "acrobot": {"goal"}, "cart-pole": {"fall"}, "pendulum": set()}
    numbers = {"goal_frequency": 0.25, "fall_frequency": 0.5, "mean_steps": 9.0, "mean_return": -3.0}
    assert planning._scores(numbers) == {"score": 0.25, **numbers}
    del numbers["goal_frequency"]
    assert planning._scores(numbers) == {"score": 0.5, "goal_frequency": None, **numbers}
    del numbers["fall_frequency"]
    assert planning._scores(numbers) == {"score": -3.0, "goal_frequency": None, "fall_frequency": None, **numbers}


def test_a_table_of_one_action_has_no_gap():
    assert table_means(np.array([[1.0], [3.0]])) == {"gap": None, "value": 2.0}


def test_divergence_is_an_error():
    spec = Planning(env="mountain-car", operator="baird:0.001", grid=6, iterations=200, eval_every=10, episodes=1, eta=1.0, engine="numba")
    with pytest.raises(ValueError, match=r"Q is no longer finite: baird:0\.001 diverges here"):
        run_all(spec)


@pytest.mark.long
def test_custom_files_are_reloaded_per_folder(tmp_path, monkeypatch):
    def write(folder, reward, factor):
        folder.mkdir(exist_ok=True)
        (folder / "mine.py").write_text(
            "from actiongap.planning.simulator import Outcome, Simulator\n"
            f"def step(x, a, u): return Outcome((x[0] + 0.5 * a,), {reward}, x[0] > 0.9)\n"
            "def toy(): return Simulator('toy', step, state={'x': (0.0, 1.0)}, actions=('stay', 'go'))\n"
            f"def half(b): return {factor} * b.bellman\n"
        )

    def value():
        spec = Planning(env="mine.py:toy", operator="mine.py:half", grid=3, iterations=1, episodes=2, eta=1.0, engine="numba")
        return float(run_all(spec)[0][0, 0])

    write(tmp_path / "one", -1.0, 0.5)
    write(tmp_path / "two", -4.0, 0.5)
    monkeypatch.chdir(tmp_path / "one")
    assert value() == -0.5
    monkeypatch.chdir(tmp_path / "two")
    assert value() == -2.0
    write(tmp_path / "two", -4.0, 2.0)
    assert value() == -8.0


@pytest.mark.long
@pytest.mark.parametrize("engine", ["numba", "jax"])
def test_all_seeds_share_one_compilation(monkeypatch, engine):
    pytest.importorskip(engine)
    made = []
    monkeypatch.setattr(planning, "sweeps_for", lambda *arguments: made.append(arguments) or sweeps_for(*arguments))
    monkeypatch.setitem(planning.BACKUPS, engine, 2 * 9**2 * 3)
    spec = Planning(f"{PARKING}:simulator", "al:0.25", grid=9, iterations=4, eval_every=2, episodes=3, max_episode_steps=100, engine=engine)
    found = [run_all(dataclasses.replace(spec, seed=seed)) for seed in (0, 1, 0)]
    assert len(made) == 1
    np.testing.assert_array_equal(found[0][0], found[2][0])
    assert found[0][1] == found[2][1]
    assert (found[0][0] != found[1][0]).mean() > 0.25
    run_all(dataclasses.replace(spec, operator="bellman", episodes=1))
    assert len(made) == 2
    assert len(planning._READY) == 1


def test_experiment_round_trips_through_json():
    spec = Planning(**SMALL, max_episode_steps=50, gamma=0.9, noise="shared", interpolate="v", seed=3)
    assert find("plan") is Planning
    config = json.loads(json.dumps(as_config(spec)))
    assert from_config(config) == spec
    assert (config["task"], config["agent"], config["step_name"]) == ("mountain-car", "bellman", "iterations")


def test_a_plan_that_diverges_has_no_policy():
    with pytest.raises(PlanFailedError, match="Q is no longer finite"):
        plan("mountain-car", lambda b: 1e30 * (b.bellman + b.q), grid=4, iterations=9, eta=1.0, engine="numba")


def test_factors_with_undeclared_inputs_are_rejected():
    simulator = load_simulator("bicycle")
    grid = Grid(simulator.axes(3))
    check_simulator(simulator, grid)
    check_simulator(load_simulator("cart-pole"), Grid(load_simulator("cart-pole").axes(4)))
    balance, turn, travel = simulator.factors
    for factors, sentence in [
        ((balance, turn, dataclasses.replace(travel, inputs=(1, 2, 3, 4))), "the next psi and next d depend on more than omega_dot, theta"),
        ((dataclasses.replace(balance, noisy=False), turn, travel), "the next omega and next omega_dot depend on more than"),
        (
            (balance, dataclasses.replace(turn, parts=(0,) * 9), travel),
            "actions with the same part lead to different next theta and next theta_dot",
        ),
    ]:
        with pytest.raises(ValueError, match=sentence):
            check_simulator(dataclasses.replace(simulator, step=factors), grid)


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_every_reading_of_the_bicycle_declares_its_inputs(reading):
    simulator = load_simulator(reading.env)
    check_simulator(simulator, Grid(simulator.axes(3)))


def slope(**changes):
    """A ball on a slope: one coordinate, two actions."""

    def roll(x, a, u):
        return Outcome((x[0] + 0.2 * a - 0.1,), x[0], x[0] > 0.9)

    return Simulator("slope", **{"step": roll, "state": {"place": (0.0, 1.0)}, "actions": ("left", "right"), **changes})


def test_a_numpy_step_is_rejected_by_jax():
    def roll(x, a, u):
        return Outcome((np.sin(x[0]) + a,), 0.0, x[0] > 0.9)

    with pytest.raises(ValueError, match=r"slope: JAX cannot compile its step: take sin, where and the like from actiongap\.maths"):
        plan(slope(step=roll), "bellman", grid=5, iterations=3, engine="jax")


def start(n):
    return (np.zeros(n),)


returns_state: Any = lambda state, a, u: state  # noqa: E731 - not an Outcome


@pytest.mark.parametrize(
    ("episodes", "sentence"),
    [
        (EpisodeSpec(lambda n: start(n // 0), returns_state), "its episodes fail with ZeroDivisionError"),
        (EpisodeSpec(start, returns_state), "returns a tuple: it must return Outcome"),
        (EpisodeSpec(start, lambda s, a, u: Outcome((s[0], s[0]), 0.0, False)), "1 numbers at the start and 2 after a step"),
        (EpisodeSpec(start, lambda s, a, u: Outcome((s[0] / 0.0,), 0.0, False)), "returns NaN or infinity"),
        (EpisodeSpec(start, lambda s, a, u: Outcome(s, 0.0, False), observe=lambda s: (s[0], s[0])), "observe returns 2 numbers"),
        (
            EpisodeSpec(start, lambda s, a, u: Outcome(s, 0.0, False), outcomes={"goal": lambda x: x[3]}),
            "its episodes fail with IndexError",
        ),
    ],
)
def test_check_episodes_rejects_failing_episodes(episodes, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_episodes(slope(episodes=episodes))
