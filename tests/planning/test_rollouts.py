"""Rollouts: both engines against a plain loop and linear controllers, and recorded episodes."""

import dataclasses
import math
import sys
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actiongap import maths
from actiongap.envs.bicycle import bicycle
from actiongap.envs.classic import mountain_car
from actiongap.operators import parse
from actiongap.planning import _cpu_rollouts as rollouts_cpu
from actiongap.planning import _jax_rollouts as rollouts_jax
from actiongap.planning import _numba_rollouts as rollouts_numba
from actiongap.planning.backups import interpolated_backups
from actiongap.planning.grid import Axis, Grid, periodic
from actiongap.planning.interpolation import multilinear
from actiongap.planning.noise import UINT32, episode_noise, episode_seed, noise_key, random_uniform
from actiongap.planning.rollouts import frequencies, record_episode, rollouts
from actiongap.planning.simulator import (
    NO_NOISE,
    Discrete,
    EpisodeBatch,
    EpisodeSpec,
    Outcome,
    Simulator,
    Uniform,
    one_step,
)

ENGINES: list[Literal["numpy", "numba", "jax"]] = ["numpy", "numba", "jax"]


def wander(state, a, u):
    """A state of three numbers, one of them hidden; ends at the top and at the bottom."""
    height, angle, wind = state
    wind = 0.9 * wind + 0.1 * u
    height = height + 0.05 * (a - 1) + 0.3 * wind
    return Outcome((height, angle + 0.4 * a - u, wind), 0.01 * a - height, (height > 1.0) | (height < -1.0))


WANDERING = EpisodeSpec(
    start=lambda n: (np.linspace(-0.5, 0.5, n), np.linspace(0.0, 20.0, n), 0.0),
    step=wander,
    observe=lambda state: (state[0], state[1]),
    outcomes={"top": lambda x: x[0] > 1.0, "bottom": lambda x: x[0] < -1.0},
    max_episode_steps=300,
)


def wandering(noise: Uniform | Discrete = NO_NOISE, episodes: EpisodeSpec = WANDERING) -> Simulator:
    state = {"height": Axis((-1.0, -0.2, 0.1, 1.0)), "angle": periodic(-math.pi, math.pi, 5)}
    return Simulator("wander", wander, state=state, actions=("down", "stay", "up"), gamma=0.9, noise=noise, episodes=episodes)


NOISES = [NO_NOISE, Uniform(-0.5, 0.7), Discrete((-0.6, 0.1, 0.5), (0.2, 0.5, 0.3))]
NOISY = wandering(NOISES[1])
GRID = Grid(NOISY.axes(0))
TABLES = np.random.default_rng(0).standard_normal((3, GRID.size, 3)).astype(np.float32)


def noise_at(simulator: Simulator, seed: int, t: int, e: int) -> float:
    share = random_uniform(noise_key(noise_key(seed, -1), t), e)
    if isinstance(simulator.noise, Uniform):
        return simulator.noise.low + (simulator.noise.high - simulator.noise.low) * share
    return simulator.noise.values[int(np.searchsorted(np.cumsum(simulator.noise.probabilities)[:-1], share, side="right"))]


def plain_episode(simulator: Simulator, grid: Grid, q, e: int, n: int, seed: int, max_episode_steps: int) -> list[tuple]:
    """One episode as a plain loop: states, coordinates, actions and rewards. The action of the last frame is not taken."""
    state = tuple(float(np.broadcast_to(number, n)[e]) for number in simulator.episode_spec.start(n))
    frames, ended = [], False
    for t in range(max_episode_steps + 1):
        seen = tuple(float(number) for number in simulator.episode_spec.observe(state))
        values = multilinear(grid, seen).of(q.astype(np.float64))
        a = int(np.argmax(values))
        outcome = simulator.episode_spec.step(state, a, noise_at(simulator, seed, t, e))
        frames.append((state, seen, a, float(outcome.reward)))
        if ended or t == max_episode_steps:
            break
        state, ended = tuple(float(number) for number in outcome.x), bool(outcome.ended)
    return frames


def check_against_plain_loops(simulator, grid, tables, engine, episodes, max_episode_steps, atol, seed=3):
    trials = rollouts(simulator, grid, tables, episodes, seed=seed, max_episode_steps=max_episode_steps, engine=engine)
    for i, q in enumerate(tables):
        for e in range(episodes):
            frames = plain_episode(simulator, grid, q, e, episodes, seed, max_episode_steps)
            assert trials.steps[i, e] == len(frames) - 1
            np.testing.assert_allclose([number[i, e] for number in trials.coordinates], frames[-1][1], rtol=1e-6, atol=atol)
            assert trials.returns[i, e] == pytest.approx(sum(frame[3] for frame in frames[:-1]), abs=10 * atol)
    return trials


@pytest.mark.every(2)
@pytest.mark.parametrize("noise", NOISES, ids=["none", "uniform", "discrete"])
@pytest.mark.parametrize("engine", ENGINES)
def test_rollouts_match_a_plain_loop(engine, noise):
    trials = check_against_plain_loops(
        wandering(noise), GRID, TABLES, engine, episodes=4, max_episode_steps=60, atol=3e-4 if engine == "jax" else 1e-9
    )
    assert 0 < trials.ended.mean() < 1
    assert trials.steps.shape == trials.returns.shape == trials.ended.shape == (3, 4)


def test_engines_draw_the_same_noise():
    noise = Discrete((0.0, 1.0, 2.0), (1 / 3, 1 / 3, 1 / 3))
    share = random_uniform(np.uint32(7), np.arange(100_000, dtype=np.uint32), UINT32)
    double, single = episode_noise(noise)(share), episode_noise(noise)(jnp.asarray(share, jnp.float32))
    np.testing.assert_array_equal(double, np.asarray(single))
    # Each count is binomial, with a standard deviation of 149.
    assert abs(np.bincount(double.astype(int)) - 100_000 / 3).max() < 5 * 149
    # A bound just above a random number; float32 rounds the bound down to it.
    share = (2**23 + 5) / 2**24
    bound = share + 0.3 / 2**24
    close = episode_noise(Discrete((0.0, 1.0), (bound, 1 - bound)))
    assert close(share) == float(close(jnp.asarray([share], jnp.float32))[0]) == 0.0


BICYCLE = bicycle()
SMALL = Grid(BICYCLE.axes(2))
TORQUE, LEAN = np.repeat([-1.0, 0.0, 1.0], 3), np.tile([-1.0, 0.0, 1.0], 3)
BALANCED = np.array([[-0.543, 0.400, -0.304, -0.046, -0.0021], [-1.312, 0.101, 0.006, -0.025, -0.001]])
UNSTEADY = np.array([[1.27, 0.24, -0.75, -0.02, 0.046], [-1.24, -1.27, -0.10, 0.01, -0.001]])


def linear_controllers(*gains: np.ndarray, grid: Grid = SMALL) -> np.ndarray:
    """Q(x, a) = T_a g.x + D_a h.x for gains g and h. Multilinear interpolation reproduces it, so the grid does not matter."""
    x = np.stack(grid.points(), axis=1)[:, :5]
    return np.array([np.outer(x @ turning, TORQUE) + np.outer(x @ leaning, LEAN) for turning, leaning in gains])


@pytest.mark.every(2)
@pytest.mark.parametrize("engine", ENGINES)
def test_bicycle_rollouts_match_a_plain_loop(engine):
    random = np.random.default_rng(1).standard_normal((1, SMALL.size, 9)).astype(np.float32)
    tables = np.concatenate([linear_controllers(BALANCED).astype(np.float32), random])
    check_against_plain_loops(BICYCLE, SMALL, tables, engine, episodes=2, max_episode_steps=80, atol=2e-5 if engine == "jax" else 1e-9)


@pytest.mark.long
def test_a_linear_controller_reaches_the_goal_on_any_grid():
    coarse = rollouts(BICYCLE, SMALL, linear_controllers(BALANCED), 4)
    assert frequencies(BICYCLE, coarse)[0]["goal_frequency"] == 1.0
    assert (coarse.coordinates[5] <= 10).all()
    # The straight line is the shortest path.
    assert coarse.steps.min() > 990 / (10 / 3.6 * 0.01)
    assert coarse.returns.min() > 1.0
    finer = Grid(BICYCLE.axes(3))
    for max_episode_steps in (1, 300):
        trials = [
            rollouts(BICYCLE, grid, linear_controllers(BALANCED, grid=grid), 4, max_episode_steps=max_episode_steps)
            for grid in (SMALL, finer)
        ]
        for one, other in zip(*(each.coordinates for each in trials), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-7)


@pytest.mark.long
def test_engines_agree_on_how_often_bicycles_fall():
    tables = linear_controllers(BALANCED, UNSTEADY, -BALANCED)
    double, single = (
        frequencies(BICYCLE, rollouts(BICYCLE, SMALL, tables, 40, max_episode_steps=1500, engine=engine)) for engine in ("numba", "jax")
    )
    assert double[0]["fall_frequency"] == single[0]["fall_frequency"] == 0.0
    assert double[2]["fall_frequency"] == single[2]["fall_frequency"] == 1.0
    assert 0.3 < double[1]["fall_frequency"] < 0.7
    # In binomial standard deviations of 0.08, although the noise is the same: rounding may move a fall beyond the step limit.
    assert abs(double[1]["fall_frequency"] - single[1]["fall_frequency"]) < 0.16
    assert double[1]["mean_steps"] == pytest.approx(single[1]["mean_steps"], rel=0.1)
    assert all(row["goal_frequency"] == 0.0 for row in double + single)


def test_planned_mountain_cars_reach_the_goal_with_every_engine():
    simulator = mountain_car()
    grid = Grid(simulator.axes(21))
    q, snapshots = np.zeros((grid.size, 3)), []
    for k in range(150):
        if k == 5:
            snapshots.append(q)
        no_noise = [(0.0, 1.0)]
        q = parse("bellman")(
            interpolated_backups(one_step(simulator), grid, q, np.arange(grid.size), grid.points(), no_noise, simulator.gamma)
        )
    tables = np.stack([*snapshots, q]).astype(np.float32)
    by_engine = [rollouts(simulator, grid, tables, 10, engine=engine) for engine in ENGINES]
    for trials in by_engine:
        unplanned, planned = frequencies(simulator, trials)
        assert unplanned["goal_frequency"] < 0.5
        assert planned["goal_frequency"] == 1.0
        assert planned["mean_steps"] == -planned["mean_return"] < 200
    # Without noise and in 100 steps, float32 states change the number of steps by at most one.
    assert abs(by_engine[0].steps[1] - by_engine[1].steps[1]).max() == 0
    assert abs(by_engine[0].steps[1] - by_engine[2].steps[1]).max() <= 1
    check_against_plain_loops(simulator, grid, tables[1:], "numba", episodes=2, max_episode_steps=200, atol=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_tables_are_independent(engine):
    batched = rollouts(NOISY, GRID, TABLES[[0, 1, 2, 0]], 5, engine=engine)
    for i, table in enumerate((0, 1, 2, 0)):
        alone = rollouts(NOISY, GRID, TABLES[[table]], 5, engine=engine)
        np.testing.assert_array_equal(alone.steps[0], batched.steps[i])
        np.testing.assert_array_equal(alone.returns[0], batched.returns[i])
        for one, other in zip(alone.coordinates, batched.coordinates, strict=True):
            np.testing.assert_array_equal(one[0], other[i])
    others = rollouts(NOISY, GRID, TABLES, 5, seed=1, engine=engine)
    assert (others.returns != batched.returns[:3]).any()


@pytest.mark.parametrize("engine", ENGINES)
def test_ties_go_to_the_first_action(engine):
    table = np.zeros((1, GRID.size, 3), np.float32)
    table[:, :, 0] = -1.0
    simulator = wandering()
    staying = rollouts(simulator, GRID, table, 1, max_episode_steps=10, engine=engine)
    assert staying.coordinates[0][0, 0] == pytest.approx(-0.5)
    assert staying.ended.tolist() == [[False]]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_episode_that_ends_at_the_step_limit_is_not_truncated(engine):
    whole = rollouts(NOISY, GRID, TABLES[:1], 8, engine=engine)
    assert whole.ended[0, 0]
    last = int(whole.steps[0, 0])
    assert rollouts(NOISY, GRID, TABLES[:1], 8, max_episode_steps=last, engine=engine).ended[0, 0]
    short = rollouts(NOISY, GRID, TABLES[:1], 8, max_episode_steps=last - 1, engine=engine)
    assert (short.ended[0, 0], short.steps[0, 0]) == (False, last - 1)
    assert (short.steps <= last - 1).all()


@pytest.mark.parametrize(("engine", "module"), [("numpy", rollouts_cpu), ("numba", rollouts_cpu), ("jax", rollouts_jax)])
def test_rounds_do_not_change_the_result(engine, module, monkeypatch):
    whole = rollouts(NOISY, GRID, TABLES, 5, max_episode_steps=70, engine=engine)
    monkeypatch.setattr(module, "STEPS_PER_CALL", 17)
    pausing = rollouts(NOISY, GRID, TABLES, 5, max_episode_steps=70, engine=engine)
    np.testing.assert_array_equal(whole.steps, pausing.steps)
    np.testing.assert_allclose(whole.returns, pausing.returns, rtol=1e-14)
    for one, other in zip(whole.coordinates, pausing.coordinates, strict=True):
        np.testing.assert_array_equal(one, other)


def test_jax_accepts_jax_arrays_and_compiles_once():
    traced = []

    def counted(state, a, u):
        traced.append(a.shape)
        return wander(state, a, u)

    simulator = wandering(episodes=dataclasses.replace(WANDERING, step=counted))
    first = rollouts(simulator, GRID, jnp.asarray(TABLES), 5, engine="jax")
    times = len(traced)
    again = rollouts(simulator, GRID, TABLES[::-1], 5, seed=4, max_episode_steps=20, engine="jax")
    assert len(traced) == times
    np.testing.assert_array_equal(first.steps[::-1].clip(max=20), again.steps)
    with jax.enable_x64(True):
        double = rollouts(simulator, GRID, TABLES, 5, engine="jax")
    np.testing.assert_array_equal(double.steps, first.steps)
    assert {number.dtype for number in (*first.coordinates, *double.coordinates)} == {np.dtype(np.float32)}


def test_numba_compiles_once():
    rollouts(NOISY, GRID, TABLES, 5, engine="numba")
    before = rollouts_numba.loops.cache_info()
    rollouts(NOISY, GRID, TABLES, 6, seed=9, max_episode_steps=10, engine="numba")
    after = rollouts_numba.loops.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


def test_small_rewards_are_not_lost_in_float32():
    """Adding 0.001467 to a float32 30,000 times has an error of 0.02%."""

    def wait(x, a, u):
        return Outcome((x[0],), 0.001467, False)

    simulator = Simulator("wait", wait, state={"x": (0.0, 1.0)}, actions=("wait",))
    grid = Grid(simulator.axes(2))
    errors: dict[Literal["numba", "jax"], float] = {"numba": 1e-12, "jax": 1e-6}
    for engine, error in errors.items():
        trials = rollouts(simulator, grid, np.zeros((1, 2, 1)), 2, max_episode_steps=30_000, engine=engine)
        assert trials.returns == pytest.approx(np.full((1, 2), 30_000 * 0.001467), rel=error)


def test_frequencies_do_not_count_truncated_episodes():
    coordinates = (np.array([[1.5, -1.5, 1.5, 0.0], [1.5, 1.5, 1.5, 1.5]]), np.zeros((2, 4)))
    steps, ended = np.array([[1, 2, 3, 6], [1, 1, 1, 1]]), np.array([[True, True, False, False], [True] * 4])
    found = frequencies(NOISY, EpisodeBatch(coordinates, steps, steps / 2, ended))
    assert found[0] == {"top_frequency": 0.25, "bottom_frequency": 0.25, "mean_steps": 3.0, "mean_return": 1.5}
    assert found[1] == {"top_frequency": 1.0, "bottom_frequency": 0.0, "mean_steps": 1.0, "mean_return": 0.5}


@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("every", [1, 7])
def test_record_episode_matches_rollouts(every, engine):
    trials = rollouts(NOISY, GRID, TABLES, 6, seed=2, engine=engine)
    for table, e in ((0, 0), (1, 3), (2, 5)):
        frames = plain_episode(NOISY, GRID, TABLES[table], e, 6, 2, 300)
        found = record_episode(NOISY, GRID, TABLES[table], e, 6, seed=2, every=every, engine=engine)
        last = int(trials.steps[table, e])
        assert found.steps.tolist() == [*range(0, last, every), last]
        assert [number[-1] for number in found.coordinates] == [number[table, e] for number in trials.coordinates]
        for k, t in enumerate(found.steps):
            state, seen, a, _ = frames[t]
            np.testing.assert_allclose([number[k] for number in found.states], state, rtol=0, atol=1e-9)
            np.testing.assert_allclose([number[k] for number in found.coordinates], seen, rtol=0, atol=1e-9)
            np.testing.assert_allclose(found.values[k], multilinear(GRID, seen).of(TABLES[table]), rtol=0, atol=1e-5)
            assert found.actions[k] == a == found.values[k].argmax()
        height, ended = trials.coordinates[0][table, e], trials.ended[table, e]
        assert found.outcome == ("limit" if not ended else "top" if height > 0 else "bottom")


def test_record_episode_matches_long_bicycle_rollouts_exactly():
    trials = rollouts(BICYCLE, SMALL, linear_controllers(BALANCED, UNSTEADY), 3, max_episode_steps=20_000)
    for table, e in ((0, 1), (1, 2)):
        found = record_episode(BICYCLE, SMALL, linear_controllers(BALANCED, UNSTEADY)[table], e, 3, max_episode_steps=20_000, every=11)
        assert found.steps[-1] == trials.steps[table, e]
        assert [number[-1] for number in found.coordinates] == [number[table, e] for number in trials.coordinates]
        assert found.outcome == ("fall" if trials.ended[table, e] else "limit")
        assert [len(found.states), len(found.coordinates), found.values.shape[1]] == [8, 6, 9]


def test_an_unnamed_outcome_is_called_end():
    nameless = wandering(NOISES[1], dataclasses.replace(WANDERING, outcomes={}))
    assert record_episode(nameless, GRID, TABLES[0], 0, 8).outcome == "end"
    assert frequencies(nameless, rollouts(nameless, GRID, TABLES[:1], 8))[0].keys() == {"mean_steps", "mean_return"}


def test_a_single_axis_and_integer_tables():
    def walk(x, a, u):
        return Outcome((x[0] + 0.25 * a,), 1, x[0] >= 1.0)

    line = Simulator("walk", walk, state={"x": (0.0, 1.0)}, actions=("stay", "go"), start={"x": (0.0, 0.0)})
    for engine in ENGINES:
        trials = rollouts(line, Grid(line.axes(3)), [[[0, 1], [0, 1], [0, 1]]], 1, engine=engine)
        assert (trials.steps.tolist(), trials.returns.tolist()) == ([[5]], [[5.0]])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"episodes": 0}, "episodes is 0: give at least 1"),
        ({"max_episode_steps": 0}, "max_episode_steps is 0: give at least 1"),
        ({"engine": "torch"}, "unknown engine 'torch': choose from auto, numpy, numba, jax"),
        ({"tables": TABLES[0]}, "tables have the shape"),
        ({"tables": TABLES[:0]}, "tables have the shape"),
        ({"tables": TABLES[:, 1:]}, "20 points, 3 actions"),
        ({"tables": np.where(np.arange(3)[:, None, None] == 1, np.nan, TABLES)}, "table 1 contains NaN or infinity"),
        ({"tables": jnp.asarray(TABLES).at[2, 0, 0].set(jnp.inf), "engine": "jax"}, "table 2 contains NaN or infinity"),
        ({"grid": SMALL}, "the grid has 6 axes and wander 2 coordinates"),
        ({"simulator": wandering(episodes=dataclasses.replace(WANDERING, observe=lambda s: s))}, "observe returns 3 numbers"),
        (
            {"simulator": wandering(episodes=dataclasses.replace(WANDERING, start=lambda n: (np.zeros(3),) * 3))},
            "not return arrays of 5 numbers",
        ),
    ],
)
def test_bad_arguments_of_rollouts_are_rejected(change, words):
    arguments = {"simulator": NOISY, "grid": GRID, "tables": TABLES, "episodes": 5} | change
    with pytest.raises(ValueError, match=words) as said:
        rollouts(**arguments)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"episode": 5}, "episode is 5, and there are 5 episodes: choose 0 to 4"),
        ({"episode": -1}, "episode is -1"),
        ({"every": 0}, "every is 0: give at least 1"),
        ({"max_episode_steps": -1}, "max_episode_steps is -1"),
        ({"q": TABLES}, "tables have the shape"),
    ],
)
def test_bad_arguments_of_record_episode_are_rejected(change, words):
    arguments = {"simulator": NOISY, "grid": GRID, "q": TABLES[0], "episode": 0, "episodes": 5} | change
    with pytest.raises(ValueError, match=words):
        record_episode(**arguments)


def test_a_simulator_that_numba_cannot_compile_is_rejected():
    def odd(state, a, u):
        return Outcome(tuple({i: maths.sin(number) for i, number in enumerate(state)}.values()), 0.0, False)

    simulator = wandering(episodes=dataclasses.replace(WANDERING, step=odd))
    with pytest.raises(ValueError, match=r"Numba cannot compile the simulator: write its step with arithmetic and actiongap\.maths"):
        rollouts(simulator, GRID, TABLES, 2, engine="numba")
    with pytest.raises(ValueError, match="or use engine='numpy' or 'jax'"):
        record_episode(simulator, GRID, TABLES[0], 0, 2, engine="numba")
    assert rollouts(simulator, GRID, TABLES, 2, engine="numpy").steps.tolist() == [[300, 300]] * 3


def test_without_jax_its_engine_raises_an_install_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ValueError, match=r"pip install 'actiongap\[jax\]'"):
        rollouts(NOISY, GRID, TABLES, 2, engine="jax")


def test_episodes_and_sweeps_have_different_noise_keys():
    planned = {noise_key(5, sweep) for sweep in range(10_000)}
    episodes = {noise_key(episode_seed(5), t) for t in range(10_000)}
    assert len(planned & episodes) < 5
