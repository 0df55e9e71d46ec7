import io
import json
import sys
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from rich.console import Console

import benchmarks
from actiongap.envs.bicycle import bicycle
from actiongap.mdp.engines import make_engine
from actiongap.mdp.exact import policy_iteration
from actiongap.mdp.generators import chain, garnet, gridworld
from actiongap.operators import bellman
from actiongap.planning._cpu_sweeps import CpuSweeps, array_sweep
from actiongap.planning.backups import SweepConfig
from actiongap.planning.grid import Grid
from benchmarks import Measurement, accelerated, as_json, deep, finite, grid, race, render
from benchmarks.finite import SCALES, Case, bench_finite, measure_certified, measure_memory
from benchmarks.finite_baselines import certifying_scipy_sweep, gather, quantecon_solver, scipy_sweep, stream, transition_matrix
from benchmarks.grid import bench_grid, measure_queries, scipy_gather

MDPS = [garnet(60, 3, 4, seed=1), gridworld(5, 7), chain(9), garnet(40, 2, 3, seed=2).dense()]


def rendered(measurements):
    out = io.StringIO()
    render(measurements, Console(file=out, width=400, color_system=None))
    return out.getvalue()


def test_race_credits_each_with_its_shortest_round(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(benchmarks, "perf_counter", lambda: clock.now)
    calls = []

    def contestant(name, durations):
        durations = iter(durations)

        def run():
            calls.append(name)
            clock.now += next(durations)

        return run

    contestants = {"a": contestant("a", [100.0, 5.0, 3.0, 4.0]), "b": contestant("b", [0.1, 9.0, 8.0, 7.0])}
    times = race(contestants, seconds=0.0, rounds=3)
    assert times == pytest.approx({"a": 3.0, "b": 7.0})
    assert all(set(calls[i : i + 2]) == {"a", "b"} for i in range(0, len(calls), 2)), "every round runs every contestant once"


def test_race_continues_until_its_time_is_up_and_can_skip_the_warm_up(monkeypatch):
    seconds, runs = count(), []
    monkeypatch.setattr(benchmarks, "perf_counter", lambda: float(next(seconds)))
    assert race({"a": lambda: runs.append(1)}, seconds=0.0, rounds=1, warm_up=False) == {"a": 1.0}
    assert len(runs) == 1
    race({"a": lambda: runs.append(1)}, seconds=30.0, rounds=1, warm_up=False)
    assert len(runs) - 1 == 10, "the fake clock advances three seconds per round"


@pytest.mark.parametrize(
    ("ours", "target", "met"),
    [(0.5, 0.5, True), (0.6, 0.5, False), (0.5, None, None), (None, 0.5, None)],
    ids=["met", "missed", "no target", "not measured"],
)
def test_target_is_met_at_or_below_it(ours, target, met):
    assert Measurement("m", ours, "other", 1.0, target=target).met is met


def test_measurements_render_and_serialize():
    measurements = [
        Measurement("fast thing", 0.002, "slow [thing]", 0.2, target=0.05, floor=0.001, note="Take note."),
        Measurement("heavy thing", 3e8, "the model", 1e8, unit="B", target=2.0),
        Measurement("absent thing", None, "baseline", None, note="Not installed."),
        Measurement("tiny thing", 2e-8, "small thing", 3e-6),
    ]
    text = rendered(measurements)
    pieces = ["fast thing", "slow [thing]", "2 ms", "200 ms", "0.01", "<= 0.05 yes", "2.00", "300 MB", "<= 2 no", "absent thing"]
    for piece in (*pieces, "20 ns", "3 us"):
        assert piece in text
    for note in ("Take note.", "Not installed."):
        assert note in text
    rows = json.loads(json.dumps(as_json(measurements)))
    assert [row["met"] for row in rows] == [True, False, None, None]
    assert rows[1]["ratio"] == 3.0
    assert rows[0]["times_floor"] == 2.0
    assert rows[2]["ratio"] is None


@pytest.mark.parametrize("mdp", MDPS, ids=lambda mdp: mdp.name)
def test_transition_matrix_equals_the_dense_table(mdp):
    table = mdp.dense().transitions.probabilities.reshape(-1, mdp.states)
    np.testing.assert_allclose(transition_matrix(mdp).toarray(), table, atol=1e-15)


@pytest.mark.parametrize("mdp", MDPS, ids=lambda mdp: mdp.name)
def test_scipy_sweeps_equal_ours(mdp):
    engine = make_engine(mdp, bellman(), "arrays")
    matrix = transition_matrix(mdp)
    plain = certifying = np.random.default_rng(0).standard_normal((mdp.states, mdp.actions))
    now = engine.start(plain)
    for _ in range(10):
        now, progress = engine.sweep(now)
        plain = scipy_sweep(mdp, matrix, plain)
        certifying, seen = certifying_scipy_sweep(mdp, matrix, certifying)
        np.testing.assert_allclose(plain, now.q, atol=1e-12)
        np.testing.assert_allclose(certifying, now.q, atol=1e-12)
        np.testing.assert_allclose(seen, progress, atol=1e-12)


def test_floors_read_everything():
    mdp = MDPS[0]
    successors, probabilities = (array.ravel() for array in mdp.transitions)
    v, q, after = np.random.default_rng(0).random(mdp.states), np.ones(mdp.rewards.size), np.zeros(mdp.rewards.size)
    assert gather(successors, v) == pytest.approx(v[successors].sum())
    assert stream(successors, probabilities, mdp.rewards.ravel(), q, after) == pytest.approx(
        np.bitwise_or.reduce(successors) + probabilities.sum()
    )
    np.testing.assert_array_equal(after, mdp.rewards.ravel() + 1)


@pytest.mark.parametrize("method", ["value_iteration", "modified_policy_iteration"])
def test_quantecon_meets_the_tolerance(method):
    pytest.importorskip("quantecon")
    mdp = garnet(50, 3, 3, seed=3)
    _, v, _ = policy_iteration(mdp)
    for tol in (1e-2, 1e-6):
        assert np.abs(quantecon_solver(mdp, tol)(method).v - v).max() <= tol


@pytest.fixture(scope="module")
def quick():
    calls = []
    threads = numba.get_num_threads()
    measurements = bench_finite("quick", lambda label, done: calls.append((label, done)))
    assert numba.get_num_threads() == threads, "the caller's threads are left as they were"
    return measurements, calls


@pytest.mark.long
def test_quick_benchmark_of_finite_mdps_measures_everything(quick):
    measurements, _ = quick
    names = " | ".join(f"{m.name} against {m.against}" for m in measurements)
    for case in SCALES["quick"].cases:
        for piece in (
            f"{case.text}: bellman against SciPy CSR sweep",
            f"{case.text}: bellman against SciPy CSR sweep, same work",
            *(f"{case.text}: {name} against bellman" for name in ("al:0.5", "consistent", "pal:0.5", "lazy:0.5")),
            f"memory of building and solving {case.text}",
        ):
            assert piece in names
    assert ("two threads" in names) == (numba.get_num_threads() >= 2)
    for method in ("value_iteration", "modified_policy_iteration"):
        assert f"certified error of 1e-06, one thread against QuantEcon {method}" in names or "quantecon" not in sys.modules
    for m in measurements:
        if m.unit == "s" and m.ours is not None:
            assert m.ours > 0
            assert m.reference is not None
            assert m.ratio == pytest.approx(m.ours / m.reference)


@pytest.mark.long
def test_small_mdps_have_no_targets(quick):
    assert all(m.met is None for m in quick[0])


@pytest.mark.long
def test_sweeps_on_one_thread_have_a_floor(quick):
    for m in quick[0]:
        if m.name.startswith("a sweep") and "two threads" not in m.name:
            assert m.floor is not None
            assert m.floor > 0


@pytest.mark.long
def test_progress_runs_from_zero_to_one(quick):
    fractions = [done for _, done in quick[1]]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)


def test_rows_without_quantecon_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "quantecon", None)
    rows = measure_certified(SCALES["full"], bellman(), threads=1)
    assert len(rows) == 2
    assert all(row.ours is None and row.met is None and "pip install '.[dev]'" in row.note for row in rows)


def test_solutions_that_differ_raise(monkeypatch):
    pytest.importorskip("quantecon")
    wrong = SimpleNamespace(v=np.full(30, 7.0), num_iter=1)
    monkeypatch.setattr(finite, "quantecon_solver", lambda mdp, tol: lambda method: wrong)
    with pytest.raises(RuntimeError, match=r"value_iteration differ by .* on garnet:30,4,3"):
        measure_certified(replace(SCALES["quick"], certified="garnet:30,4,3"), bellman(), threads=1)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_counts_at_least_the_model():
    (row,) = measure_memory(Case("garnet:20000,8,8", memory=1e9))
    assert row.reference == garnet(20000, 8, 8).nbytes
    assert row.ratio is not None
    assert row.ratio > 1
    assert row.met


def test_failed_memory_measurement_is_a_row_with_its_reason():
    (row,) = measure_memory(Case("nonsense"))
    assert row.ours is None
    assert "unknown MDP 'nonsense'" in row.note


def test_unknown_scale_raises_with_the_choices():
    with pytest.raises(ValueError, match="choose from full, quick"):
        bench_finite("enormous")  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def quick_grid():
    threads = numba.get_num_threads()
    measurements = bench_grid("quick")
    assert numba.get_num_threads() == threads, "the caller's threads are left as they were"
    return measurements


@pytest.mark.long
def test_quick_benchmark_of_grids_measures_everything(quick_grid):
    names = [f"{m.name} against {m.against}" for m in quick_grid]
    ours = "a backup on bicycle 3^6: bellman"
    assert names[:2] == [f"{ours} against gathering all corners", f"{ours} against SciPy RegularGridInterpolator"]
    assert f"{ours}, shared noise against bellman" in names
    assert sum("two threads" in name for name in names) == (2 if numba.get_num_threads() >= 2 else 0)
    assert sum("interpolation.py" in name for name in names) == 1
    for m in quick_grid:
        assert m.met is None
        if m.name.endswith(("bellman", "shared noise")):
            assert m.floor is not None
            assert m.floor > 0


def test_queries_without_the_other_library_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "interpolation.splines", None)
    (row,) = measure_queries(grid.SCALES["full"])
    assert row.ours is None
    assert "pip install '.[dev]'" in row.note


def test_backups_that_differ_from_scipy_raise():
    simulator = bicycle()
    points, config = Grid(simulator.axes(2)), SweepConfig(bellman(), 0.99)
    q = np.random.default_rng(0).standard_normal((64, 9)).astype(np.float32)
    right = array_sweeps(simulator, points, config)
    _, backups = scipy_gather(simulator, points, config, q, 10, right)
    assert backups == 90
    wrong = array_sweeps(simulator, points, replace(config, gamma=0.9))
    with pytest.raises(RuntimeError, match="SciPy's backups and ours differ"):
        scipy_gather(simulator, points, config, q, 10, wrong)


def array_sweeps(simulator, points, config):
    return CpuSweeps(config, array_sweep(simulator, points, config), np.float32)


def test_accelerators_are_measured_on_grids_of_several_sizes(monkeypatch):
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr("actiongap.planning._jax_sweeps.jax_sweeps", array_sweeps)
    monkeypatch.setattr(accelerated, "SWEEPS_PER_RUN", 2)
    rows = accelerated.measure_accelerated((2, 3), seconds=0.01)
    noises = ("own noise", "shared noise")
    assert [row.name.split(",")[0] for row in rows] == [f"a backup on bicycle {n}^6: {noise}" for noise in noises for n in (2, 3)]
    assert [row.ratio == 1.0 for row in rows] == [True, False, True, False]
    assert all(row.floor and "ms per sweep" in row.note for row in rows)


def test_unknown_scale_of_grids_raises_with_the_choices():
    with pytest.raises(ValueError, match="choose from full, quick"):
        bench_grid("enormous")  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def quick_deep():
    pytest.importorskip("jax")
    calls = []
    return deep.bench_deep("quick", lambda label, done: calls.append((label, done))), calls


@pytest.mark.long
def test_quick_benchmark_of_deep_agents_measures_everything(quick_deep):
    measurements, calls = quick_deep
    names = [f"{m.name} against {m.against}" for m in measurements]
    baselines = (deep.STABLE_BASELINES, deep.IN_PYTORCH)
    assert names == [
        *(f"a frame of training on breakout against {name}" for name in baselines),
        *(f"a frame of training on breakout: {part} against the whole frame" for part in deep.PARTS),
        *(f"a step of breakout on one core against {name}" for name in ("pgx", "gymnax", "the original")),
    ]
    for m in measurements:
        assert m.met is None, "the quick scale has no targets"
        assert (m.ours is None) == (m.reference is None)
        assert m.ours is not None or (m.note and deep.NEEDS[m.against] in m.note), "missing baselines name their packages"
        if m.against in baselines and m.ours is not None:
            assert m.floor is not None
            assert m.floor > 0
    assert calls[0][0] == "training one agent on the CPU"
    assert (calls[0][1], calls[-1][1]) == (0.0, 1.0)


def test_missing_baselines_of_deep_agents_are_rows_with_a_reason(monkeypatch):
    time = dict.fromkeys(("ours", *deep.PARTS), 0.001) | {f"{deep.IN_PYTORCH}, 1": 0.004, f"{deep.IN_PYTORCH}, 2": 0.002}
    results = {"race_training": {"time": time, "threads": [1, 2]}, "race_steps": {"ours": 1e-6, "pgx": 2e-6}}
    monkeypatch.setattr(deep, "in_new_process", lambda module, function, *arguments, platform: results[function])
    absent, compared, *parts = deep.measure_training("full")
    assert absent.ours is None
    assert "pip install stable-baselines3" in absent.note
    assert (compared.ratio, compared.met, compared.times_floor) == (0.5, False, 1.0), "the better number of threads counts"
    assert "best on 2 of 2 threads" in compared.note
    assert len(parts) == len(deep.PARTS)
    pgx, gymnax, original = deep.measure_steps("full", "breakout")
    assert (pgx.ratio, pgx.met) == (0.5, True)
    assert gymnax.ours is None
    assert original.target is None


def test_failed_process_is_a_row_with_its_reason():
    for row in deep.measure_steps("quick", "chess"):
        assert row.ours is None
        assert "race_steps(quick, chess) failed: KeyError: 'chess'" in row.note


@pytest.mark.long
def test_populations_are_measured_only_on_accelerators(monkeypatch):
    jax = pytest.importorskip("jax")
    from actiongap.dqn import config

    plan = deep.SCALES["quick"]
    assert deep.measure_population(plan, "breakout") == []
    small = config.Config(num_envs=2, gradient_steps=2, batch_size=4, buffer_size=60, learning_starts=8)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setitem(config.PRESETS, "throughput", small)
    frame, iteration, *parts = deep.measure_population(plan, "breakout")
    assert frame.reference == 1 / 4e6
    assert frame.met is None, "only an H200 has a target"
    assert iteration.ours is not None
    assert frame.ours == pytest.approx(iteration.ours / (plan.agents * small.num_envs))
    assert [part.name.split(": ")[1] for part in parts] == list(deep.PARTS)
    assert all(part.ours and part.ours > 0 for part in parts)


def test_baseline_makes_the_configured_gradient_steps():
    torch = pytest.importorskip("torch")
    pytest.importorskip("minatar")
    from actiongap.dqn.config import Config
    from actiongap.dqn.networks import q_network
    from benchmarks import deep_baselines

    jax = pytest.importorskip("jax")
    first, boards = deep_baselines.convolution((10, 10, 4))[1], np.random.default_rng(0).random((2, 10, 10, 4)) < 0.3
    flat = deep_baselines.convolution((10, 10, 4))(torch.as_tensor(boards, dtype=torch.float32))
    ours = q_network((10, 10, 4), 3).init(jax.random.key(0))
    assert flat.shape[1] == ours[1][0].shape[0], "the hidden layer has the same number of inputs"
    assert first.weight.numel() == ours[0][0].size
    gradient_steps = []
    with pytest.MonkeyPatch.context() as patch:
        step = torch.optim.RMSprop.step
        patch.setattr(torch.optim.RMSprop, "step", lambda self, *rest: (gradient_steps.append(1), step(self, *rest)))
        deep_baselines.in_pytorch("breakout", Config(buffer_size=50, learning_starts=10, batch_size=4))(25)
    assert len(gradient_steps) == 15, "one gradient step per frame after learning starts"


def test_unknown_scale_of_deep_agents_raises_with_the_choices():
    with pytest.raises(ValueError, match="choose from full, quick"):
        deep.bench_deep("enormous")  # pyright: ignore[reportArgumentType]
