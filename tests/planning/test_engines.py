"""Engines: which one is chosen, and that all give the same numbers on every simulator with every operator."""

import dataclasses
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from actiongap.envs.simulators import SIMULATORS, load_simulator
from actiongap.lab.experiment import as_config, from_config
from actiongap.lab.kinds.plan import Planning
from actiongap.operators import parse
from actiongap.planning._cpu_sweeps import CpuSweeps
from actiongap.planning.backups import SweepConfig
from actiongap.planning.engines import COMPILE_SECONDS, Work, choose_engine, cpu_engine, engine_of, numpy_seconds
from actiongap.planning.grid import Grid
from actiongap.planning.plan import run_sweeps, sweeps_for
from actiongap.planning.rollouts import record_episode, rollouts
from actiongap.planning.simulator import Discrete, Simulator
from helpers import FAMILY

PARKING = f"{Path(__file__).parents[2] / 'examples' / 'plan_simulator.py'}:simulator"
TEXTS = (*SIMULATORS, PARKING)
OPERATORS = (*FAMILY, "baird:2", "al:1", "pal:1")
POINTS = {"bicycle": 2, "cart-pole": 3, "acrobot": 3}


@cache
def simulator_and_grid(text: str) -> tuple[Simulator, Grid]:
    simulator = load_simulator(text)
    return simulator, Grid(simulator.axes(POINTS.get(text, 5)))


def random_table(text: str, tables: int = 1) -> np.ndarray:
    simulator, grid = simulator_and_grid(text)
    return np.random.default_rng(3).standard_normal((tables, grid.size, len(simulator.actions))).astype(np.float32)


def swept(text: str, operator: str, engine: str, **options) -> np.ndarray:
    """A random table after four sweeps."""
    simulator, grid = simulator_and_grid(text)
    sweeps = sweeps_for(simulator, grid, SweepConfig(parse(operator), 0.9, eta=0.5, seed=4, **options), engine)  # pyright: ignore[reportArgumentType]
    table, _ = run_sweeps(sweeps, sweeps.put(random_table(text)[0]), 0, 4, 4, lambda progress: None)
    return sweeps.get(table)


@pytest.mark.every(13)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: Path(text).stem)
@pytest.mark.parametrize("operator", OPERATORS)
def test_engines_sweep_every_simulator_alike(text, operator):
    plain = swept(text, operator, "numpy")
    assert plain.dtype == np.float32
    for engine in ("numba", "jax"):
        np.testing.assert_allclose(swept(text, operator, engine), plain, rtol=1e-4, atol=1e-4 * np.abs(plain).max(), err_msg=engine)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "options", [{"samples": 3}, {"shared": True}, {"of_values": True}, {"samples": 2, "shared": True, "of_values": True}], ids=str
)
def test_engines_agree_with_every_option_of_a_sweep(options):
    for text in ("bicycle", PARKING):
        plain = swept(text, "pal:0.5", "numpy", **options)
        np.testing.assert_allclose(swept(text, "pal:0.5", "numba", **options), plain, rtol=1e-4, atol=1e-4 * np.abs(plain).max())


@pytest.mark.every(2)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: Path(text).stem)
def test_engines_roll_out_every_simulator_alike(text):
    simulator, grid = simulator_and_grid(text)
    arguments = simulator, grid, random_table(text, 2), 5
    plain, compiled = (rollouts(*arguments, seed=2, max_episode_steps=60, engine=engine) for engine in ("numpy", "numba"))
    np.testing.assert_array_equal(plain.steps, compiled.steps)
    np.testing.assert_array_equal(plain.ended, compiled.ended)
    np.testing.assert_allclose(plain.returns, compiled.returns, rtol=1e-6)
    for one, other in zip(plain.coordinates, compiled.coordinates, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)
    for number in (0, 4):
        episode = record_episode(simulator, grid, arguments[2][1], number, 5, seed=2, max_episode_steps=60, engine="numpy")
        assert episode.steps[-1] == plain.steps[1, number]
        for recorded, last in zip(episode.coordinates, plain.coordinates, strict=True):
            assert recorded[-1] == last[1, number]


def planning(**fields) -> Planning:
    return Planning(**{"env": "mountain-car", "grid": 6, "iterations": 5} | fields)


@pytest.mark.parametrize("text", [name for name in TEXTS if name != "bicycle"], ids=lambda text: Path(text).stem)
def test_a_plan_to_try_a_simulator_is_not_compiled(text):
    choice = planning(env=text).engine_choice
    assert choice == ("numpy", "Engine numpy: this plan is so small that compiling it would take longer.")


@pytest.mark.parametrize(
    "fields",
    [
        {"grid": 301, "iterations": 1000},
        {"iterations": 100_000, "eval_every": 100_000},
        {"max_episode_steps": 1_000_000},
        {"episodes": 1_000_000},
        {"record_episodes": 50, "max_episode_steps": 5000},
        {"env": "bicycle"},
        {"env": "bicycle", "grid": 2},
    ],
    ids=str,
)
def test_a_plan_that_takes_long_is_compiled(fields, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    choice = planning(**fields).engine_choice
    assert choice == ("numba", "Engine numba: this plan is large enough to compile it, and JAX has no accelerator.")


def test_large_plans_use_an_accelerator(monkeypatch):
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert planning(env="bicycle").engine_choice == ("jax", "Engine jax: JAX has an accelerator.")
    assert planning().engine_choice.engine == "numpy"
    assert engine_of("auto") == "jax"
    simulator, grid = simulator_and_grid("mountain-car")
    assert cpu_engine("auto", simulator, grid, Work(sweeps=10**6)) == cpu_engine("jax", simulator, grid, Work()) == "numba"


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_requested_engines_are_used(engine):
    assert planning(engine=engine).engine_choice == (engine, f"Engine {engine}, as requested.")
    assert planning(engine=engine, grid=300, iterations=10**6).engine_choice.engine == engine


def test_more_work_takes_longer():
    simulator, grid = simulator_and_grid("mountain-car")
    least = Work(sweeps=10, tables=2, episodes=10, max_episode_steps=100)
    for name in ("sweeps", "samples", "tables", "episodes", "max_episode_steps", "batches"):
        more = least._replace(**{name: 10 * getattr(least, name)})
        noisy = dataclasses.replace(load_simulator(PARKING), name="noisy")
        assert numpy_seconds(noisy, grid, more) > numpy_seconds(noisy, grid, least)
    assert numpy_seconds(simulator, Grid(simulator.axes(20)), least) > numpy_seconds(simulator, grid, least)
    weighed = dataclasses.replace(simulator, noise=Discrete(tuple(map(float, range(10))), (0.1,) * 10))
    assert numpy_seconds(weighed, grid, least) > numpy_seconds(simulator, grid, least)
    # Without noise there is one next state, whatever the number of samples.
    assert numpy_seconds(simulator, grid, least._replace(samples=10)) == numpy_seconds(simulator, grid, least)


def test_the_limit_is_the_time_to_compile():
    simulator, grid = simulator_and_grid("mountain-car")
    most = int(COMPILE_SECONDS / numpy_seconds(simulator, grid, Work(sweeps=1)))
    assert choose_engine("auto", simulator, grid, Work(sweeps=most)).engine == "numpy"
    assert cpu_engine("auto", simulator, grid, Work(sweeps=most + 1)) == "numba"


def test_a_plan_by_auto_has_the_numbers_of_its_engine():
    auto, plain = planning(operator="al:0.5"), planning(operator="al:0.5", engine="numpy")
    (state, rows), (same, same_rows) = (spec.advance(spec.start(), 0) for spec in (auto, plain))
    np.testing.assert_array_equal(state["q"], same["q"])
    assert rows == same_rows
    assert isinstance(auto.prepare(), CpuSweeps)
    assert from_config(as_config(plain)) == plain


def test_numpy_takes_steps_and_operators_that_numba_cannot_compile(tmp_path):
    file = tmp_path / "odd.py"
    file.write_text(
        "from dataclasses import replace\n"
        "from actiongap.envs.classic import mountain_car\n"
        "car = mountain_car()\n"
        "def step(x, a, u):\n"
        "    named = {name: number for name, number in zip(car.coordinates, x)}\n"
        "    return car.step(tuple(named.values()), a, u)\n"
        "simulator = replace(car, name='odd', step=step)\n"
        "def operator(b):\n"
        "    return {'value': b.bellman}['value']\n"
    )
    spec = planning(env=f"{file}:simulator", operator=f"{file}:operator", engine="numpy", record_episodes=2)
    state, rows = spec.advance(spec.start(), 0)
    plain, plain_rows = (wanted := planning(engine="numpy", record_episodes=2)).advance(wanted.start(), 0)
    np.testing.assert_array_equal(state["q"], plain["q"])
    np.testing.assert_array_equal(state["episodes"], plain["episodes"])
    assert rows == plain_rows


def test_a_small_plan_imports_neither_numba_nor_jax():
    program = (
        "import sys; from actiongap.lab.kinds.plan import Planning; "
        "spec = Planning(env='mountain-car', grid=6, iterations=5, record_episodes=1); state, rows = spec.advance(spec.start(), 0); "
        "policy = spec.policy(state['q']); policy.act((0.1, 0.0)); "
        "print(len(rows), [m for m in ('numba', 'scipy', 'jax', 'torch', 'matplotlib', 'z3') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "1 []\n"


def test_unknown_engines_are_rejected():
    assert engine_of("numba") == "numba"
    assert engine_of("numpy") == "numpy"
    simulator, grid = simulator_and_grid("mountain-car")
    for choose in (
        engine_of,
        lambda engine: choose_engine(engine, simulator, grid, Work()),
        lambda engine: cpu_engine(engine, simulator, grid, Work()),
    ):
        with pytest.raises(ValueError, match="unknown engine 'cuda': choose from auto, numpy, numba, jax"):
            choose("cuda")  # pyright: ignore[reportArgumentType]


def test_without_jax_auto_is_numba_and_jax_raises_an_install_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    assert engine_of("auto") == "numba"
    with pytest.raises(ValueError, match="pip install 'actiongap\\[jax\\]'"):
        engine_of("jax")
