"""Simulators by name, and the episodes in which policies are evaluated."""

from __future__ import annotations

import inspect
from math import pi
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actiongap._numba import compile_function
from actiongap.envs.bicycle import PRINTED_C, State, bicycle, dynamics, features, standing
from actiongap.envs.simulators import SIMULATORS, load_simulator
from actiongap.planning.grid import Axis, periodic, uniform
from actiongap.planning.simulator import NO_NOISE, EpisodeSpec, Outcome, Periodic, Simulator, Uniform, evenly_within, one_step

GYMNASIUM = {"mountain-car": "MountainCar-v0", "pendulum": "Pendulum-v1", "cart-pole": "CartPole-v1", "acrobot": "Acrobot-v1"}


def episodes_of(name: str) -> EpisodeSpec:
    return load_simulator(name).episode_spec


@pytest.mark.parametrize("name", SIMULATORS)
def test_defaults_may_be_given_explicitly(name):
    plain = load_simulator(name)
    assert plain.name == name
    parameters = inspect.signature(SIMULATORS[name]).parameters.values()
    spelt = load_simulator(f" {name}: " + " , ".join(f"{parameter.name} = {parameter.default}" for parameter in parameters))
    assert (spelt.name, spelt.actions, spelt.gamma, spelt.noise) == (plain.name, plain.actions, plain.gamma, plain.noise)
    assert spelt.axes(5) == plain.axes(5)


def test_keywords_reach_the_simulator():
    assert load_simulator("pendulum:torques=3,gamma=0.5").actions == ("-2", "0", "2")
    assert load_simulator("pendulum:gamma=0.5").gamma == 0.5
    assert load_simulator("bicycle:noise=off").noise == NO_NOISE
    assert load_simulator("bicycle:noise=Yes").noise == Uniform(-0.02, 0.02)
    assert load_simulator("bicycle:periodic_heading=true").axes(4)[4].period == pytest.approx(2 * pi)
    falling = (0.209, 1.0, 0.0, 0.0, 0.0, 1000.0)
    paid = {
        text: float(one_step(load_simulator(f"bicycle:{text}"))(falling, 4, 0.0).reward)
        for text in ("c=0.5,fall=once", "c=none,fall=once", "reward=randlov,fall=once", "c=1e-3")
    }
    assert list(paid.values()) == pytest.approx([-0.5, -PRINTED_C, -1.0, -0.1])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("truck", r"unknown simulator 'truck': choose from bicycle, mountain-car, pendulum, cart-pole, acrobot, or .*file\.py:name"),
        ("", "choose from bicycle"),
        ("Bicycle", "did you mean bicycle?"),
        ("bicycle:", "KEY=VALUE, separated by commas, with the keys fall, reward, c, gamma, noise, periodic_heading, start"),
        ("bicycle:fall", "has no option 'fall'"),
        ("bicycle:wheels=3", "has no option 'wheels=3'"),
        ("bicycle:fall=once,", "has no option ''"),
        ("bicycle:return=1", "has no option 'return=1'"),
        ("bicycle:fall=twice", "fall is 'twice': choose from absorbing, once"),
        ("bicycle:start=south", "start is 'south': choose from spread, north, east"),
        ("bicycle:reward=gold", "reward is 'gold': choose from paper, randlov"),
        ("bicycle:c=1,c=2", "sets c twice: set it once"),
        ("bicycle:c=much", "bicycle: c is 'much': give a number or none"),
        ("bicycle:c=nan", "give a number or none"),
        ("bicycle:gamma=inf", "bicycle: gamma is 'inf': give a number"),
        ("bicycle:gamma=1", r"give a number in \[0, 1\)"),
        ("bicycle:noise=2", "noise is '2': choose from true, yes, on, false, no, off"),
        ("pendulum:torques=2.5", "torques is '2.5': give an integer"),
        ("pendulum:torques=1", "at least 2"),
        ("mine.py", r"mine\.py does not name a simulator in the file: give mine\.py:NAME"),
        ("mine.py:slide", "no such file"),
    ],
)
def test_bad_texts_are_rejected(text, said):
    with pytest.raises(ValueError, match=said) as caught:
        load_simulator(text)
    assert "\n" not in str(caught.value)


FILE = """
from actiongap.planning.simulator import Outcome, Simulator

def slide(x, a, u):
    return Outcome((x[0] + 0.1 * a,), -1.0, x[0] > 0.9)

def make(wide=1.0):
    return Simulator("slide", slide, state={"x": (0.0, wide)}, actions=("stay", "go"))

def needy(wide):
    return make(wide)

def broken():
    raise RuntimeError("no\\nluck")

def wrong():
    return 3

ready = make(2.0)
number = 7
"""


def test_custom_simulators(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    assert load_simulator(f"{file}:ready").axes(2)[0].points == (0.0, 2.0)
    assert load_simulator(f"{file}:make").axes(2)[0].points == (0.0, 1.0)
    for name, said in {
        "needy": r"needy\(\) fails with TypeError: .*'wide'",
        "broken": r"broken\(\) fails with RuntimeError: no luck",
        "wrong": "wrong is of type int: it must be a Simulator",
        "number": "number is of type int",
        "absent": "has no function 'absent'",
    }.items():
        with pytest.raises(ValueError, match=said) as caught:
            load_simulator(f"{file}:{name}")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", SIMULATORS)
def test_initial_states_are_arrays_on_the_grid_and_deterministic(name):
    simulator, episodes = load_simulator(name), episodes_of(name)
    state = episodes.start(7)
    assert type(state) is tuple
    assert all(isinstance(number, np.ndarray) and number.shape == (7,) and number.dtype == np.float64 for number in state)
    np.testing.assert_array_equal(state, episodes.start(7))
    seen = episodes.observe(state)
    assert len(seen) == len(simulator.coordinates)
    assert all(
        ((axis.points[0] <= x) & (x <= axis.points[-1] + (axis.period or 0.0))).all()
        for axis, x in zip(simulator.axes(4), seen, strict=True)
    )
    assert not any(np.any(ended(seen)) for ended in episodes.outcomes.values())


@pytest.mark.parametrize("name", GYMNASIUM)
def test_initial_states_fill_the_box_of_gymnasium(name):
    env: Any = gymnasium.make(GYMNASIUM[name])
    env.reset(seed=0)
    drawn = []
    for _ in range(400):
        env.reset()
        drawn.append(np.array(env.unwrapped.state, float))
    low, high = np.min(drawn, 0), np.max(drawn, 0)
    start = np.stack(episodes_of(name).start(400), -1)
    slack = 0.02 * (high - low)
    np.testing.assert_allclose(start.min(0), low, atol=slack.max())
    np.testing.assert_allclose(start.max(0), high, atol=slack.max())
    assert episodes_of(name).max_episode_steps == env.spec.max_episode_steps


def test_evenly_within_is_even():
    x, y = evenly_within([(0.0, 1.0), (-5.0, 5.0)])(1000)
    counts, _, _ = np.histogram2d(x, y, 10, ((0.0, 1.0), (-5.0, 5.0)))
    assert np.abs(counts - 10).max() <= 3
    # The sequence does not depend on its length.
    np.testing.assert_array_equal(evenly_within([(0.0, 1.0), (-5.0, 5.0)])(10), (x[:10], y[:10]))
    (line,) = evenly_within([(0.0, 1.0)])(89)
    assert np.diff(np.sort(line)).max() < 2 / 89
    assert [set(side.tolist()) for side in evenly_within([(2.0, 2.0), (-1.0, -1.0)])(3)] == [{2.0}, {-1.0}]
    assert [side.shape for side in evenly_within([(0.0, 1.0)] * 6)(0)] == [(0,)] * 6


def test_default_episodes_start_all_over_the_grid():
    def slide(x: tuple, a: Any, u: Any) -> Outcome:
        return Outcome((x[0] + a, x[1]), -1.0, x[0] > 5.0)

    plain = {"state": {"x": (0.0, 5.0), "angle": Periodic(0.0, 360.0)}, "actions": ("stay", "go")}
    episodes = Simulator("slide", slide, **plain).episode_spec
    assert (episodes.max_episode_steps, episodes.step, dict(episodes.outcomes)) == (1000, slide, {})
    x, angle = episodes.start(500)
    assert (x.min(), x.max()) == pytest.approx((0.0, 5.0), abs=0.02)
    assert (angle.min(), angle.max()) == pytest.approx((0.0, 360.0), abs=1.5)
    assert episodes.observe((1.0, 2.0)) == (1.0, 2.0)
    mine = EpisodeSpec(lambda n: (np.zeros(n), np.zeros(n)), slide, max_episode_steps=3)
    assert Simulator("slide", slide, **plain, episodes=mine).episode_spec is mine


def test_ranges_of_coordinates():
    chosen = Axis((0.0, 1.0, 10.0))
    ranges = {"a": (-1, 3), "b": Periodic(0.0, 360.0), "c": chosen, "d": lambda n: uniform(0.0, 1.0, 2 * n)}
    simulator = Simulator("s", lambda x, a, u: Outcome(x, 0.0, False), state=ranges, actions=("stay",))
    assert simulator.coordinates == ("a", "b", "c", "d")
    assert simulator.axes(3) == (uniform(-1.0, 3.0, 3), periodic(0.0, 360.0, 3), chosen, uniform(0.0, 1.0, 6))
    assert simulator.ranges == [(-1.0, 3.0), (0.0, 360.0), (0.0, 10.0), (0.0, 1.0)]


def test_starts_are_ranges_or_a_function():
    state: dict[str, Any] = {"x": (0.0, 5.0), "y": (0.0, 1.0)}
    given = {"state": state, "actions": ("stay",), "outcomes": {"end": lambda x: x[0] > 4.0}, "max_episode_steps": 7}
    step = lambda x, a, u: Outcome(x, 0.0, False)  # noqa: E731
    boxed = Simulator("s", step, **given, start={"x": (1.0, 2.0), "y": (0.5, 0.5)}).episode_spec
    x, y = boxed.start(100)
    assert (x.min() >= 1.0, x.max() <= 2.0, x.std() > 0.2, set(y)) == (True, True, True, {0.5})
    assert (list(boxed.outcomes), boxed.max_episode_steps) == (["end"], 7)
    start = lambda n: (np.zeros(n), np.ones(n))  # noqa: E731
    assert Simulator("s", step, **given, start=start).episode_spec.start is start


STILL = EpisodeSpec(lambda n: (np.zeros(n),), lambda x, a, u: Outcome(x, 0.0, False))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"state": "place"}, "state is 'place': give the range of each coordinate"),
        ({"state": {}}, "state is {}: give the range"),
        ({"state": {"x": 3.0}}, "the range of x is 3.0: give \\(low, high\\)"),
        ({"state": {"x": (1.0, 0.0)}}, "the range of x is from 1.0 to 0.0: give two finite numbers, the lower first"),
        ({"state": {"x": (0.0, float("inf"))}}, "the range of x is from 0.0 to inf"),
        ({"state": {"x": lambda n: n}}, "the range of x is a function that returns a int: return an Axis"),
        ({"actions": "go"}, "actions is 'go': give a tuple of names"),
        ({"actions": ()}, r"actions is \(\): give a tuple of names"),
        ({"step": 3}, "step is 3: give a function"),
        ({"step": ()}, r"step is \(\): give a function"),
        ({"noise": Uniform(1.0, 0.0)}, "noise is drawn from 1.0 to 0.0"),
        ({"start": {"y": (0.0, 1.0)}}, "start is .*: give the range of x, in this order"),
        ({"start": {"x": (1.0, 0.0)}}, "the start of x is .*: give two finite numbers"),
        ({"outcomes": {"goal": 3}}, "outcomes is .*: give functions"),
        ({"max_episode_steps": 0}, "max_episode_steps is 0"),
        ({"max_episode_steps": 2.5}, "max_episode_steps is 2.5"),
        ({"render": "cart.png"}, "render is 'cart.png': give a function"),
        ({"seconds_per_step": 0.0}, "seconds_per_step is 0.0"),
        (
            {"episodes": EpisodeSpec(lambda n: (np.zeros(n),), lambda x, a, u: Outcome(x, 0.0, False)), "max_episode_steps": 5},
            "set them in episodes",
        ),
    ],
)
def test_bad_simulators_are_rejected(changes, said):
    given = {"step": lambda x, a, u: Outcome(x, 0.0, False), "state": {"x": (0.0, 1.0)}, "actions": ("stay",), **changes}
    with pytest.raises(ValueError, match=f"^toy: .*{said}") as caught:
        Simulator("toy", **given)
    assert "\n" not in str(caught.value)


def wander(name: str, steps: int, seed: int = 0) -> list[tuple[tuple, np.ndarray, np.ndarray, Outcome]]:
    """Random episodes on arrays: state, action, noise and outcome of each step."""
    simulator, episodes, rng = load_simulator(name), episodes_of(name), np.random.default_rng(seed)
    state, seen = episodes.start(50), []
    held = rng.integers(0, len(simulator.actions), 50)
    for _ in range(steps):
        held = np.where(rng.random(50) < 0.1, rng.integers(0, len(simulator.actions), 50), held)
        u = rng.uniform(-0.02, 0.02, 50)
        outcome = episodes.step(state, held, u)
        seen.append((state, held, u, outcome))
        state = outcome.x
    return seen


def numbers(outcome: Outcome, like: tuple) -> np.ndarray:
    return np.array([np.broadcast_to(np.asarray(number, float), like[0].shape) for number in (*outcome.x, outcome.reward, outcome.ended)])


@pytest.mark.parametrize("name", SIMULATORS)
def test_episodes_agree_on_arrays_compiled_and_traced(name):
    episodes = episodes_of(name)
    step, observe = compile_function(episodes.step), compile_function(episodes.observe)
    outcomes = {key: compile_function(true) for key, true in episodes.outcomes.items()}
    for state, a, u, outcome in wander(name, 60)[::12]:
        assert type(outcome.x) is tuple
        expected, seen = numbers(outcome, state), episodes.observe(outcome.x)
        with jax.enable_x64(True):
            traced = jax.jit(episodes.step)(tuple(map(jnp.asarray, state)), jnp.asarray(a), jnp.asarray(u))
            np.testing.assert_allclose(numbers(traced, state), expected, atol=1e-11)
            np.testing.assert_allclose(jax.jit(episodes.observe)(traced.x), seen, atol=1e-9)
        for i in range(0, 50, 7):
            one = step(tuple(float(number[i]) for number in state), int(a[i]), float(u[i]))
            assert type(one.x) is tuple
            np.testing.assert_allclose([*one.x, one.reward, one.ended], expected[:, i], atol=1e-11)
            # The next state has the same type, so nothing is compiled again.
            step(one.x, int(a[i]), float(u[i]))
            np.testing.assert_allclose(observe(one.x), [number[i] for number in seen], atol=1e-9)
            for key, true in outcomes.items():
                assert true(observe(one.x)) == episodes.outcomes[key](seen)[i]
    assert len(step.signatures) == 1


@pytest.mark.parametrize("name", SIMULATORS)
def test_single_precision_stays_single(name):
    """Loops in JAX require that a step keeps the precision of the state."""
    episodes = episodes_of(name)

    def onward(_, carried):
        state, a = carried
        return episodes.step(state, a, jnp.float32(0.01)).x, a

    state = tuple(jnp.asarray(number, jnp.float32) for number in episodes.start(5))
    after, _ = jax.jit(lambda: jax.lax.fori_loop(0, 10, onward, (state, jnp.ones(5, jnp.int32))))()
    assert {number.dtype for number in after} == {jnp.dtype("float32")}
    wide = episodes.start(5)
    for _ in range(10):
        wide = episodes.step(wide, np.ones(5, int), 0.01).x
    np.testing.assert_allclose(after, wide, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", SIMULATORS)
def test_every_end_has_exactly_one_outcome(name):
    episodes, steps = episodes_of(name), 600 if name == "acrobot" else 300
    ends = 0
    for state, _, _, outcome in wander(name, steps, seed=1):
        seen, ended = episodes.observe(outcome.x), np.broadcast_to(outcome.ended, state[0].shape)
        named = sum((true(seen).astype(int) for true in episodes.outcomes.values()), start=np.zeros(50, int))
        np.testing.assert_array_equal(named[ended], 1)
        np.testing.assert_array_equal(named[~ended], 0)
        ends += ended.sum()
    assert (ends > 0) == (name != "pendulum")


def test_bicycle_episodes_end_with_a_fall_before_the_goal():
    episodes = episodes_of("bicycle:reward=randlov,c=0.25")
    tilted = standing(0.0)._replace(omega=0.209, omega_dot=1.0)
    for state, expected, paid in [
        (tilted, "fall", -0.25),
        (standing(0.0, north=-10.02), "goal", 0.01),
        (tilted._replace(y=-10.02), "fall", -0.25),
    ]:
        outcome = episodes.step(tuple(map(float, state)), 4, 0.0)
        assert bool(outcome.ended)
        assert float(outcome.reward) == paid
        assert {name for name, true in episodes.outcomes.items() if true(episodes.observe(outcome.x))} == {expected}


def test_bicycle_episodes_follow_the_simulator_from_the_chosen_start():
    for start, psi in {"spread": np.linspace(-pi, pi, 9)[1::2], "north": 0.0, "east": pi / 2}.items():
        episodes = bicycle(start=start).episodes
        assert episodes is not None
        np.testing.assert_allclose(episodes.observe(episodes.start(4))[4], psi * np.ones(4), atol=1e-12)
    episodes = episodes_of("bicycle")
    assert episodes.max_episode_steps == 100_000
    state = State(*episodes.start(4))
    moved = dynamics(state, 5, 0.01)
    np.testing.assert_array_equal(episodes.step(tuple(state), 5, 0.01).x, moved)
    np.testing.assert_array_equal(episodes.observe(tuple(moved)), features(moved))


def test_the_start_does_not_change_the_planning_problem():
    def outcome(simulator: Simulator) -> Outcome:
        return one_step(simulator)((0.1, 0.0, 0.1, 0.0, 1.0, 500.0), 3, 0.0)

    assert outcome(bicycle(start="east")) == outcome(bicycle())
