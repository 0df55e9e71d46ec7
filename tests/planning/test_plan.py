"""Planning on a grid: what is refused before it begins, what the numbers are, and what a plan is as an experiment."""

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actiongap.api import plan
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
from actiongap.planning.plan import engine_of, sweep_on, sweeps_for
from actiongap.planning.rollouts import check_episodes, frequencies, rollouts
from actiongap.planning.simulator import Discrete, EpisodeSpec, Outcome, Uniform, make_simulator, one_step

PARKING = Path(__file__).parents[2] / "examples" / "parking.py"
"""A simulator with noise that is quickly compiled."""
NOISE = Uniform(-0.5, 0.5)
AXES = {"place": uniform(0.0, 1.0, 5), "angle": periodic(0.0, 360.0, 4)}


def made(step, axes=lambda n: tuple(AXES.values()), noise: Uniform | Discrete = NOISE):
    """A simulator of a place and an angle, with a step of one's own."""
    return make_simulator("toy", ("place", "angle"), ("stay", "go"), step, axes, noise=noise)


def refusal(step, **settings) -> str:
    """What is said against a step."""
    simulator = made(step, **settings)
    with pytest.raises(ValueError, match=r".+") as refused:
        check_simulator(simulator, Grid(simulator.axes(0)))
    text = str(refused.value)
    assert text.startswith("toy: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", SIMULATORS)
@pytest.mark.parametrize("n", [2, 5])
def test_all_simulators_pass(name, n):
    simulator = load_simulator(name)
    check_simulator(simulator, Grid(simulator.axes(n)))


def test_numbers_that_are_none_are_refused_with_state_and_action():
    text = refusal(lambda x, a, u: Outcome((x[0], 1.0 / (x[1] - 90.0 * a)), 0.0, False))
    assert text == "toy: the next angle is inf after action stay in place = 0, angle = 0 with noise -0.5: a step must give finite numbers"
    text = refusal(lambda x, a, u: Outcome((x[0], x[1]), 0.0 / (x[0] - 0.75 * a), False))
    assert "the reward is nan after action stay in place = 0, angle = 0" in text
    text = refusal(lambda x, a, u: Outcome((x[0] + np.sqrt(0.4 - u), x[1]), 0.0, False))
    assert "the next place is nan after action stay in place = 0, angle = 0 with noise 0.5" in text


def test_only_the_last_corner_of_a_large_grid_is_bad():
    axes = (uniform(0.0, 1.0, 200), uniform(0.0, 1.0, 200))
    simulator = made(
        lambda x, a, u: Outcome((x[0], np.log(1.0 - x[0] * x[1] * a + 1e-300)), 0.0, False),
        axes=lambda n: axes,
        noise=Discrete((0.0,), (1.0,)),
    )
    with pytest.raises(ValueError, match="farther outside than it is long") as refused:
        check_simulator(simulator, Grid(axes))
    assert "the next angle is -690.776 after action go in place = 1, angle = 1:" in str(refused.value)


def test_wrong_counts_shapes_and_kinds_are_refused():
    assert "gives 1 coordinates, and there are 2" in refusal(lambda x, a, u: Outcome((x[0],), 0.0, False))
    assert "gives 3 coordinates" in refusal(lambda x, a, u: Outcome((x[0], x[1], u), 0.0, False))
    assert "returns a tuple" in refusal(lambda x, a, u: (x, 0.0, False))
    assert "returns an Outcome of a list" in refusal(lambda x, a, u: Outcome([*x], 0.0, False))  # pyright: ignore[reportArgumentType]
    assert "returns a NoneType" in refusal(lambda x, a, u: None)
    assert "the next place is of shape (3,) for states" in refusal(lambda x, a, u: Outcome((np.zeros(3), x[1]), 0.0, False))
    assert "the reward is of shape (20, 2, 1)" in refusal(lambda x, a, u: Outcome(x, np.zeros((20, 2, 1)), False))
    assert "the reward is a str" in refusal(lambda x, a, u: Outcome(x, "much", False))
    assert "is said as float64" in refusal(lambda x, a, u: Outcome(x, 0.0, 0.0))
    assert "is said as int64" in refusal(lambda x, a, u: Outcome(x, 0.0, (x[0] > 0.5) * 1))
    assert "there are 1 axes for the coordinates place, angle" in refusal(
        lambda x, a, u: Outcome(x, 0.0, False), axes=lambda n: (AXES["place"],)
    )


def test_failures_are_named_with_the_state_that_brings_them():
    def picky(x, a, u):
        if (x[0] == 0.5).any() and (a == 1).any():
            raise RuntimeError("no\nway")
        return Outcome(x, 0.0, False)

    assert refusal(picky) == "toy: its step fails after action go in place = 0.5, angle = 0 with noise -0.5: RuntimeError: no way"
    assert "its step fails on arrays of states" in refusal(lambda x, a, u: Outcome(x, 1.0 if x[0] > 0 else 0.0, False))


def test_leaving_the_box_a_little_is_fine_and_leaving_it_by_far_is_not():
    check_simulator(made(lambda x, a, u: Outcome((x[0] + u, x[1] + 1e6), 0.0, False)), Grid(tuple(AXES.values())))
    check_simulator(made(lambda x, a, u: Outcome((x[0] + 9.0, x[1]), 0.0, x[0] > -1.0)), Grid(tuple(AXES.values())))
    text = refusal(lambda x, a, u: Outcome((x[0] + 1.5 * a + u, x[1]), 0.0, False))
    assert "the next place is 2.25 after action go in place = 0.25, angle = 0 with noise 0.5" in text
    assert "the axis goes from 0 to 1" in text
    assert "the next place is -1.5 after action stay in place = 0" in refusal(lambda x, a, u: Outcome((x[0] + 3 * u, x[1]), 0.0, False))


def test_what_does_not_fit_is_refused_with_what_would(monkeypatch):
    simulator = load_simulator("bicycle")
    monkeypatch.setattr(memory, "free_memory", lambda engine: {"memory": 2_000_000_000})
    check_memory(simulator, Grid(simulator.axes(10)), "numba")
    with pytest.raises(ValueError, match=r"bicycle with 1000 x .+ PB of memory, and 2 GB are free: take at most") as refused:
        check_memory(simulator, Grid(simulator.axes(1000)), "numba")
    (most,) = map(int, re.findall(r"at most (\d+) points", str(refused.value)))
    check_memory(simulator, Grid(simulator.axes(most)), "numba")
    with pytest.raises(ValueError, match=f"at most {most} points an axis"):
        check_memory(simulator, Grid(simulator.axes(most + 1)), "numba")
    # Six tables of four bytes, and what is tabulated of quiet steps.
    assert 6 * 4 * 9 * most**6 < 2e9 < 7 * 4 * 9 * (most + 1) ** 6
    monkeypatch.setattr(memory, "free_memory", lambda engine: {"memory": 2e12, "accelerator memory": 1000})
    with pytest.raises(ValueError, match="of accelerator memory, and 1 kB are free: not even two points an axis would fit"):
        check_memory(simulator, Grid(simulator.axes(4)), "jax")


def test_memory_is_refused_before_any_is_taken(monkeypatch):
    taken = []
    monkeypatch.setattr(memory, "free_memory", lambda engine: {"memory": 10_000})
    for allocate in ("zeros", "empty"):
        monkeypatch.setattr(np, allocate, lambda *given, **_: taken.append(given))
    with pytest.raises(ValueError, match="take at most"):
        plan("mountain-car", "bellman", 20_000, 1, engine="numba")
    with pytest.raises(ValueError, match="take at most"):
        Planning(env="mountain-car", grid=20_000, engine="numba").start()
    assert not taken


def test_free_memory_is_some():
    free = memory.free_memory("numba")
    assert free.keys() == {"memory"}
    assert 10**6 < free["memory"] < 10**15


SMALL = {"env": "mountain-car", "grid": 12, "iterations": 60, "eval_every": 25, "episodes": 20, "eta": 0.5}


@pytest.mark.every(3)
@pytest.mark.parametrize("operator", ["bellman", "consistent", "al:0.5"])
def test_a_plan_is_so_many_sweeps(operator):
    simulator = load_simulator("bicycle")
    grid, q = Grid(simulator.axes(3)), np.zeros((729, 9))
    for k in range(6):
        u = -0.02 + 0.04 * random_uniform(np.uint32(noise_key(7, k)), np.arange(729 * 9, dtype=np.uint32).reshape(729, 9), UINT32)
        found = interpolated_backups(one_step(simulator), grid, q, np.arange(729), grid.points(), [(u, 1.0)], 0.9)
        q = 0.7 * q + 0.3 * parse(operator)(found)
    policy = plan("bicycle", operator, 3, 6, gamma=0.9, eta=0.3, seed=7, engine="numba")
    np.testing.assert_allclose(policy.q, q, rtol=1e-4, atol=1e-6)
    assert policy.q.dtype == np.float32
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
        here, there = (plan("mountain-car", "consistent", 9, 20, of_values=of_values, engine=engine) for engine in ("numba", "jax"))
        np.testing.assert_allclose(here.q, there.q, rtol=1e-4, atol=1e-4)


def test_planning_with_a_simulator_of_ones_own_tells_how_far_it_is():
    told = []
    simulator = made(lambda x, a, u: Outcome((x[0] + 0.25 * a, x[1]), -1.0, x[0] >= 0.9), noise=Discrete((0.0,), (1.0,)))
    policy = plan(simulator, "bellman", 5, 30, eta=1.0, gamma=0.5, engine="numba", progress=lambda text, part: told.append((text, part)))
    # Four steps of -1 to the right from 0, one from 1, and for ever if one stays.
    q = policy.q.reshape(5, 4, 2)
    np.testing.assert_allclose(q[:, 0, 1], [-1.9375, -1.875, -1.75, -1.5, -1.0], rtol=1e-6)
    assert told[-1][1] == 1.0
    assert told[-1][0].startswith("sweep 30 of 30, residual ")
    assert [part for _, part in told] == sorted(part for _, part in told)


def test_sweeping_a_few_at_a_time_changes_nothing():
    class Counting:
        def __init__(self):
            self.calls = []

        def advance(self, table, first, count):
            self.calls.append((first, count))
            return table + count, float(first + count)

    paces, sweeps = [], Counting()
    assert sweep_on(sweeps, 0, 10, 90, 40, paces.append) == (90, 100.0)  # pyright: ignore[reportArgumentType]
    assert sweeps.calls == [(10, 40), (50, 40), (90, 10)]
    assert [(pace.done, pace.sweeps) for pace in paces] == [(50, 40), (90, 40), (100, 10)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere", "bellman", 5, 10), "unknown simulator"),
        (("mountain-car", "belman", 5, 10), "unknown operator"),
        (("mountain-car", "bellman", 1, 10), "1 points an axis"),
        (("mountain-car", "bellman", 10**9, 10), "1000000000 points an axis"),
        (("mountain-car", "bellman", 5, 0), "iterations is 0"),
    ],
)
def test_bad_values_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        plan(*arguments)
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
        {"episodes": 0},
        {"max_episode_steps": 0},
        {"seed": -1},
        {"seed": 2**32},
    ],
    ids=str,
)
def test_bad_settings_are_refused(field):
    (name,) = field
    with pytest.raises(ValueError, match=f"{name} is"):
        Planning(env="mountain-car", **field)


def test_engines():
    assert engine_of("numba") == "numba"
    with pytest.raises(ValueError, match="there is no engine 'cuda': choose from auto, numba, jax"):
        engine_of("cuda")  # pyright: ignore[reportArgumentType]


def test_without_jax_auto_is_numba_and_jax_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    assert engine_of("auto") == "numba"
    with pytest.raises(ValueError, match="pip install 'actiongap\\[jax\\]'"):
        engine_of("jax")


def whole(spec: Planning) -> tuple[np.ndarray, list]:
    """The last table and all rows of an experiment."""
    state, rows = spec.start(), []
    for chunk in range(spec.chunks):
        before = {name: array.copy() for name, array in state.items()}
        after, found = spec.advance(state, chunk)
        for name, array in before.items():
            np.testing.assert_array_equal(array, state[name])
        state, rows = after, [*rows, *found]
    return state["q"], rows


def test_chunks_change_nothing(monkeypatch):
    spec = Planning(**SMALL, operator="consistent", engine="numba")
    assert spec.chunks == 1
    q, rows = whole(spec)
    assert [row["step"] for row in rows] == [25, 50, 60]
    assert [set(row) for row in rows] == [{"step", *Planning.columns}] * 3
    monkeypatch.setitem(planning.BACKUPS, "numba", 7 * 144 * 3)
    assert spec.chunks == 9
    again, other_rows = whole(spec)
    np.testing.assert_array_equal(q, again)
    assert rows == other_rows


def test_chunks_change_nothing_but_rounding_with_jax(monkeypatch):
    pytest.importorskip("jax")
    spec = Planning(**SMALL, operator="consistent", engine="jax")
    q, rows = whole(spec)
    planning._READY.clear()
    again, other_rows = whole(spec)
    np.testing.assert_array_equal(q, again)
    assert rows == other_rows
    monkeypatch.setitem(planning.BACKUPS, "jax", 20 * 144 * 3)
    assert spec.chunks == 3
    np.testing.assert_allclose(whole(spec)[0], q, rtol=1e-5)


def test_chunks_follow_from_the_fields():
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


def test_rows_are_what_rollouts_say():
    spec = Planning(**SMALL, operator="consistent", engine="numba", max_episode_steps=150)
    q, rows = whole(spec)
    numbers = frequencies(spec.simulator, rollouts(spec.simulator, spec.state_grid, q[None], 20, seed=0, max_episode_steps=150))[0]
    last = rows[-1]
    assert {name: last[name] for name in numbers} == numbers
    assert last["score"] == last["goal_frequency"]
    assert last["fall_frequency"] is None
    ordered = np.sort(q.astype(float), axis=1)
    assert last["gap"] == pytest.approx((ordered[:, -1] - ordered[:, -2]).mean())
    assert last["value"] == pytest.approx(ordered[:, -1].mean())
    assert last["residual"] > 0


def test_the_score_is_what_the_simulator_is_about():
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


def test_what_diverges_is_said_in_a_sentence():
    spec = Planning(env="mountain-car", operator="baird:0.001", grid=6, iterations=200, eval_every=10, episodes=1, eta=1.0, engine="numba")
    with pytest.raises(ValueError, match=r"Q is no longer finite: baird:0\.001 diverges here"):
        whole(spec)


@pytest.mark.long
def test_files_of_ones_own_are_not_confused(tmp_path, monkeypatch):
    def write(folder, reward, factor):
        folder.mkdir(exist_ok=True)
        (folder / "mine.py").write_text(
            "from actiongap.planning.grid import uniform\n"
            "from actiongap.planning.simulator import Outcome, make_simulator\n"
            f"def step(x, a, u): return Outcome((x[0] + 0.5 * a,), {reward}, x[0] > 0.9)\n"
            "def toy(): return make_simulator('toy', ('x',), ('stay', 'go'), step, lambda n: (uniform(0.0, 1.0, n),))\n"
            f"def half(b): return {factor} * b.bellman\n"
        )

    def value():
        spec = Planning(env="mine.py:toy", operator="mine.py:half", grid=3, iterations=1, episodes=2, eta=1.0, engine="numba")
        return float(whole(spec)[0][0, 0])

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
def test_compiling_is_done_once_for_all_seeds(monkeypatch, engine):
    pytest.importorskip(engine)
    made = []
    monkeypatch.setattr(planning, "sweeps_for", lambda *arguments: made.append(arguments) or sweeps_for(*arguments))
    monkeypatch.setitem(planning.BACKUPS, engine, 2 * 9**2 * 3)
    spec = Planning(f"{PARKING}:simulator", "al:0.25", grid=9, iterations=4, eval_every=2, episodes=3, max_episode_steps=100, engine=engine)
    found = [whole(dataclasses.replace(spec, seed=seed)) for seed in (0, 1, 0)]
    assert len(made) == 1
    np.testing.assert_array_equal(found[0][0], found[2][0])
    assert found[0][1] == found[2][1]
    assert (found[0][0] != found[1][0]).mean() > 0.25
    whole(dataclasses.replace(spec, operator="bellman", episodes=1))
    assert len(made) == 2
    assert len(planning._READY) == 1


def test_a_plan_survives_json():
    spec = Planning(**SMALL, max_episode_steps=50, gamma=0.9, noise="shared", interpolate="v", seed=3)
    assert find("plan") is Planning
    config = json.loads(json.dumps(as_config(spec)))
    assert from_config(config) == spec
    assert (config["task"], config["agent"], config["step_name"]) == ("mountain-car", "bellman", "iterations")


def test_a_plan_that_diverges_has_no_policy():
    with pytest.raises(ValueError, match="its plan has diverged"):
        plan("mountain-car", lambda b: 1e30 * (b.bellman + b.q), 4, 9, eta=1.0, engine="numba")


def test_factors_that_look_at_more_than_they_declare_are_refused():
    simulator = load_simulator("bicycle")
    grid = Grid(simulator.axes(3))
    check_simulator(simulator, grid)
    check_simulator(load_simulator("cart-pole"), Grid(load_simulator("cart-pole").axes(4)))
    balance, turn, travel = simulator.factors
    for factors, sentence in [
        ((balance, turn, dataclasses.replace(travel, inputs=(1, 2, 3, 4))), "where psi and d lead depends on more than omega_dot, theta"),
        ((dataclasses.replace(balance, noisy=False), turn, travel), "where omega and omega_dot lead depends on more than"),
        (
            (balance, dataclasses.replace(turn, parts=(0,) * 9), travel),
            "actions with the same part lead theta and theta_dot to different places",
        ),
    ]:
        with pytest.raises(ValueError, match=sentence):
            check_simulator(dataclasses.replace(simulator, factors=factors), grid)


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_every_reading_of_the_bicycle_declares_what_it_looks_at(reading):
    simulator = load_simulator(reading.env)
    check_simulator(simulator, Grid(simulator.axes(3)))


def slope(**changes):
    """A ball on a slope: one coordinate, two actions."""

    def roll(x, a, u):
        return Outcome((x[0] + 0.2 * a - 0.1,), x[0], x[0] > 0.9)

    given = {"step": roll, "axes": lambda n: (uniform(0.0, 1.0, n),), "coordinates": ("place",), **changes}
    return make_simulator("slope", given["coordinates"], ("left", "right"), given["step"], given["axes"], episodes=given.get("episodes"))


def test_an_axis_alone_is_a_grid_of_one():
    assert plan(slope(axes=lambda n: uniform(0.0, 1.0, n)), "bellman", 5, 3, engine="numba").q.shape == (5, 2)
    rollouts(slope(axes=lambda n: uniform(0.0, 1.0, n)), Grid((uniform(0.0, 1.0, 5),)), [np.zeros((5, 2))], 3, max_episode_steps=2)


def test_names_are_not_read_letter_by_letter():
    with pytest.raises(ValueError, match="its coordinates are one text, 'place'"):
        slope(coordinates="place")


def test_a_step_in_numpy_is_refused_where_jax_compiles():
    def roll(x, a, u):
        return Outcome((np.sin(x[0]) + a,), 0.0, x[0] > 0.9)

    with pytest.raises(ValueError, match=r"slope: JAX cannot compile its step: take sin, where and the like from actiongap\.maths"):
        plan(slope(step=roll), "bellman", 5, 3, engine="jax")


def start(n):
    return (np.zeros(n),)


where_it_was: Any = lambda state, a, u: state  # noqa: E731 - no outcome


@pytest.mark.parametrize(
    ("episodes", "sentence"),
    [
        (EpisodeSpec(lambda n: start(n // 0), where_it_was), "its episodes fail with ZeroDivisionError"),
        (EpisodeSpec(start, where_it_was), "returns a tuple: it must return Outcome"),
        (EpisodeSpec(start, lambda s, a, u: Outcome((s[0], s[0]), 0.0, False)), "1 numbers at the start and 2 after a step"),
        (EpisodeSpec(start, lambda s, a, u: Outcome((s[0] / 0.0,), 0.0, False)), "not finite"),
        (EpisodeSpec(start, lambda s, a, u: Outcome(s, 0.0, False), observe=lambda s: (s[0], s[0])), "2 numbers are seen of a state"),
        (
            EpisodeSpec(start, lambda s, a, u: Outcome(s, 0.0, False), outcomes={"goal": lambda x: x[3]}),
            "its episodes fail with IndexError",
        ),
    ],
)
def test_episodes_that_cannot_be_are_refused_before_the_sweeps(episodes, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_episodes(slope(episodes=episodes))
