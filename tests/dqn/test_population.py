"""The DQN: networks, replay buffers, targets and evaluation, alone and in a population."""

import dataclasses
import os
import subprocess
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actiongap.dqn.agent import DQN
from actiongap.dqn.config import PRESETS, Config
from actiongap.dqn.convolutions import convolve, convolve_bands
from actiongap.dqn.loop import dummy_transition, evaluate
from actiongap.dqn.networks import dense, q_network
from actiongap.dqn.packing import pack, unpack
from actiongap.dqn.population import Population
from actiongap.dqn.replay import Transition, add, init, sample, sample_prioritized, sample_uniform, valid_ages
from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.minatar import GAMES
from actiongap.operators import parse

SMALL = Config(
    num_envs=2,
    gradient_steps=2,
    batch_size=8,
    buffer_size=60,
    learning_starts=16,
    target_update_interval=6,
    exploration_steps=50,
    learning_rate=0.001,
)
BREAKOUT = GAMES["breakout"]
OPERATORS = ("bellman", "consistent", "al:0.5", "pal:0.5", "pal-dqn:0.9", "lazy:0.5", "clipped-al:0.9,0.5", "sal:0.3,0.8")


def leaves_equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def arrays_of(state: Any, agent: int, population: Population) -> dict[str, np.ndarray]:
    return population.get(state)[agent]


@pytest.mark.every(3)
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("shape", [(10, 10, 4), (10, 10, 7), (6, 5, 2), (4,)])
def test_networks_match_plain_jax(shape, dueling):
    network = q_network(shape, 3, dueling)
    layers = network.init(jax.random.key(0))
    x = jax.random.bernoulli(jax.random.key(1), 0.3, (5, *shape)).astype(jnp.float32)

    def expected(layers, x):
        if len(shape) == 3:
            (kernel, bias), *layers = layers
            numbers = ("NHWC", "HWIO", "NHWC")
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=numbers) + bias)
        x = x.reshape(len(x), -1)
        for k, (weights, bias) in enumerate(layers):
            x = (jax.nn.relu(x) if k else x) @ weights + bias
        return x[:, :1] + x[:, 1:] - x[:, 1:].mean(axis=1, keepdims=True) if dueling else x

    np.testing.assert_allclose(network.apply(layers, x), expected(layers, x), atol=1e-5)
    ours, theirs = (jax.grad(lambda layers, f=f: (f(layers, x) ** 2).sum())(layers) for f in (network.apply, expected))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4 * float(abs(b).max()) + 1e-6)


@pytest.mark.parametrize("shape", [(10, 10, 4), (10, 10, 10), (5, 7, 3)])
def test_bands_and_patches_compute_the_same_convolution(shape):
    boards = jax.random.bernoulli(jax.random.key(0), 0.3, (6, *shape))
    kernel, bias = dense(jax.random.key(1), (3, 3, shape[2], 8))
    one, other = convolve_bands(pack(boards), shape, kernel, bias, jnp.float32), convolve(boards.astype(jnp.float32), kernel, bias)
    np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.every(5)
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("side", "channels", "kernel", "stride"), [(20, 4, 8, 4), (10, 32, 4, 2), (11, 3, 4, 2), (5, 64, 3, 1), (5, 3, 3, 1), (16, 1, 8, 4)]
)
def test_convolutions_and_gradients_match_jax(monkeypatch, backend, side, channels, kernel, stride):
    pictures = jax.random.randint(jax.random.key(0), (2, side, side, channels), 0, 256, jnp.uint8)
    weights, bias = dense(jax.random.key(1), (kernel, kernel, channels, 5))

    def expected(pictures: Any, weights: Any, bias: Any) -> Any:
        numbers = {"window_strides": (stride, stride), "padding": "VALID", "dimension_numbers": ("NHWC", "HWIO", "NHWC")}
        return jax.lax.conv_general_dilated(pictures.astype(jnp.float32), weights, **numbers) + bias

    # Both code paths on both backends, for bytes and for floats.
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    floats = pictures.astype(jnp.float32)
    both = [jax.jit(partial(convolve, stride=stride)), jax.jit(expected)]
    for images in (pictures, floats):
        one, other = (function(images, weights, bias) for function in both)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)
    one, other = (jax.jit(jax.grad(lambda *all, f=f: (f(*all) ** 2).mean(), (0, 1, 2)))(floats, weights, bias) for f in both)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4 * float(abs(b).max()))


def test_bfloat16_networks_approximate_float32():
    exact, rough = (q_network((10, 10, 4), 3, precision=precision) for precision in (jnp.float32, jnp.bfloat16))
    layers = exact.init(jax.random.key(0))
    x = jax.random.bernoulli(jax.random.key(1), 0.3, (16, 10, 10, 4))
    assert rough.apply(layers, x).dtype == jnp.float32
    np.testing.assert_allclose(rough.apply(layers, x), exact.apply(layers, x), atol=0.02)
    one, other = (jax.grad(lambda layers, f=f: (f(layers, x) ** 2).sum())(layers) for f in (rough.apply, exact.apply))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == jnp.float32
        assert float(abs(a - b).max()) < 0.1 * float(abs(b).max())


@given(st.integers(0, 2**32 - 1), st.sampled_from([(10, 10, 4), (3, 3), (10, 10, 10), (32,), (33,)]))
@settings(derandomize=True, deadline=None, max_examples=20)
def test_pack_and_unpack_are_inverse(seed, shape):
    boards = np.random.default_rng(seed).random((3, *shape)) < 0.5
    words = pack(jnp.asarray(boards))
    assert words.shape == (3, -(-int(np.prod(shape)) // 32))
    assert np.array_equal(unpack(words, shape), boards)
    numbers = jnp.asarray(boards, jnp.float32)
    assert pack(numbers) is numbers
    assert unpack(numbers, shape) is numbers


def history(iterations: int, num_envs: int, seed: int = 0) -> list[Transition]:
    """Return distinct steps: an observation is the number of its iteration and environment."""
    rng = np.random.default_rng(seed)
    number = np.arange(iterations * num_envs, dtype=np.float32).reshape(iterations, num_envs)
    ended, truncated = (rng.random(number.shape) < 0.25 for _ in range(2))
    return [
        Transition(
            observation=jnp.asarray(number[t][:, None]),
            action=jnp.asarray(number[t] % 3, jnp.int32),
            reward=jnp.asarray(rng.standard_normal(num_envs), jnp.float32),
            discount=jnp.where(ended[t], 0.0, 0.9).astype(jnp.float32),
            next_observation=jnp.asarray(number[t][:, None] + 0.5),
            last=jnp.asarray(ended[t] | truncated[t]),
        )
        for t in range(iterations)
    ]


@pytest.mark.every(3)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("iterations", [9, 30])
def test_n_step_transitions_stop_at_the_end_of_an_episode(n, iterations):
    capacity, num_envs, steps = 12, 3, history(iterations, 3)
    replay = init(steps[0], capacity)
    for t, step in enumerate(steps):
        replay = add(replay, t % capacity, step, prioritized=False)
    newest, filled = (iterations - 1) % capacity, min(iterations, capacity)
    index = np.asarray(sample_uniform(jax.random.key(0), (4000,), replay.priority, newest, valid_ages(filled, n)))
    found = sample(replay, jnp.asarray(index), n)
    for k in range(0, 4000, 131):
        row, e = divmod(int(index[k]), num_envs)
        t = next(t for t in range(iterations - 1, -1, -1) if t % capacity == row)
        assert iterations - filled <= t <= iterations - n
        total, discount, final = 0.0, 1.0, steps[t]
        for step in steps[t : t + n]:
            total, discount = total + discount * float(step.reward[e]), discount * float(step.discount[e])
            final = step
            if step.last[e]:
                break
        assert float(found.observation[k, 0]) == float(steps[t].observation[e, 0])
        assert int(found.action[k]) == int(steps[t].action[e])
        assert float(found.reward[k]) == pytest.approx(total, abs=1e-6)
        assert float(found.discount[k]) == pytest.approx(discount, abs=1e-6)
        assert float(found.next_observation[k, 0]) == float(final.next_observation[e, 0])
    counts = np.bincount(index, minlength=capacity * num_envs)
    possible = (filled - n + 1) * num_envs
    assert (counts > 0).sum() == possible
    assert abs(counts[counts > 0] - 4000 / possible).max() < 6 * np.sqrt(4000 / possible)


def test_large_buffers_are_sampled_uniformly():
    replay = init(jax.tree.map(lambda part: part[:1], history(1, 1)[0]), 100_000)
    index = np.asarray(sample_uniform(jax.random.key(0), (20_000,), replay.priority, 99_999, valid_ages(100_000, 1)))
    assert index.min() < 100
    assert index.max() >= 99_900
    assert abs(np.histogram(index, 10, (0, 100_000))[0] - 2000).max() < 250


def test_sampling_is_proportional_to_priorities():
    steps, capacity = history(8, 2), 10
    replay = init(steps[0], capacity)
    for t, step in enumerate(steps):
        replay = add(replay, t, step, prioritized=True)
    assert float(replay.priority[:8].min()) == 1.0
    replay = replay._replace(priority=replay.priority * jnp.arange(1.0, 21.0).reshape(10, 2))
    index, probability = sample_prioritized(jax.random.key(0), (30_000,), replay.priority, 7, valid_ages(8, 2), 0.5)
    weight = np.sqrt(np.arange(1.0, 15.0))
    counts = np.bincount(np.asarray(index), minlength=20)
    np.testing.assert_allclose(counts[:14] / 30_000, weight / weight.sum(), atol=0.01)
    assert counts[14:].sum() == 0  # the newest row has no successor, and two rows are empty
    np.testing.assert_allclose(probability, (weight / weight.sum())[np.asarray(index)], rtol=1e-5)
    newer = add(replay, 8, steps[0], prioritized=True)
    assert float(newer.priority[8].min()) == float(replay.priority.max())


def paper_targets(name: str, q_tm1, a, r, discount, q_t, returned) -> np.ndarray:
    """Return the targets of a batch by the formulas of the papers, one transition at a time."""
    kind, _, numbers = name.partition(":")
    alpha, *others = [float(number) for number in numbers.split(",")] if numbers else [0.0]
    out = []
    for i in range(len(a)):
        v, q = q_tm1[i].max(), q_tm1[i][a[i]]
        alive = discount[i] > 0
        next_v, next_q = (q_t[i].max(), q_t[i][a[i]]) if alive else (0.0, 0.0)
        bellman = r[i] + discount[i] * next_v
        al = bellman - alpha * (v - q)
        out.append(
            {
                "bellman": bellman,
                "consistent": r[i] + discount[i] * q if returned[i] and alive else bellman,
                "al": al,
                "pal": max(al, r[i] + discount[i] * next_q),
                "pal-dqn": max(al, bellman - alpha * (next_v - next_q)),
                "lazy": q if q <= bellman <= alpha * v + (1 - alpha) * q else bellman,
                "clipped-al": al if others and q >= others[0] * v else bellman,
                "sal": (1 - others[0]) * q + others[0] * bellman - alpha * (v - q) if others else 0.0,
            }[kind]
        )
    return np.array(out)


@pytest.mark.every(3)
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_targets_match_the_papers(name, double):
    dqn = DQN(dataclasses.replace(SMALL, double=double), [parse(name)], (6,), 4)
    agent = dqn.init(jax.random.key(0), jnp.int32(0), dummy_transition(jnp.zeros((2, 6))))
    # The online and target networks differ, so confusing them would show.
    agent = agent._replace(learner=agent.learner._replace(target=dqn.network.init(jax.random.key(5))))
    rng = np.random.default_rng(0)
    x, next_x = rng.standard_normal((2, 40, 6)).astype(np.float32)
    next_x[::5] = x[::5]
    a, r = rng.integers(0, 4, 40), rng.standard_normal(40).astype(np.float32)
    discount = np.where(rng.random(40) < 0.3, 0.0, 0.99).astype(np.float32)
    seen = Transition(*map(jnp.asarray, (x, a, r, discount, next_x, discount == 0)))
    found = dqn.targets(agent, seen, jax.random.key(1))
    q_tm1, q_t, online = (
        np.asarray(dqn.q_values(p, jnp.asarray(z)), np.float64)
        for p, z in ((agent.learner.target, x), (agent.learner.target, next_x), (agent.learner.online, next_x))
    )
    if double:
        # The online network selects the action that the target network evaluates.
        preferred = online.argmax(axis=1)
        values = q_t[np.arange(40), preferred]
        bellman = r + discount * values
        if name == "bellman":
            np.testing.assert_allclose(found, bellman, atol=1e-5)
        if name == "al:0.5":
            np.testing.assert_allclose(found, bellman - 0.5 * (q_tm1.max(axis=1) - q_tm1[np.arange(40), a]), atol=1e-5)
        assert np.isfinite(found).all()
        return
    returned = (x == next_x).all(axis=1)
    assert returned.sum() == 8
    np.testing.assert_allclose(found, paper_targets(name, q_tm1, a, r, discount, q_t, returned), atol=1e-5)


def test_targets_of_several_operators_in_one_population():
    names = [*OPERATORS, "rso:0.2,0.8", "munchausen:0.03,0.9"]
    joint = DQN(SMALL, [parse(name) for name in names], (10, 10, 4), 3)
    rng = np.random.default_rng(1)
    boards = jnp.asarray(rng.random((2, 20, 10, 10, 4)) < 0.2)
    a, r = jnp.asarray(rng.integers(0, 3, 20)), jnp.asarray(rng.standard_normal(20), jnp.float32)
    seen = Transition(pack(boards[0]), a, r, jnp.full(20, 0.9), pack(boards[1]), jnp.zeros(20, bool))
    for k, name in enumerate(names):
        alone = DQN(SMALL, [parse(name)], (10, 10, 4), 3)
        agent = alone.init(jax.random.key(0), jnp.int32(0), dummy_transition(boards[0, :2]))
        expected = alone.targets(agent, seen, jax.random.key(2))
        found = joint.targets(agent._replace(operator=jnp.int32(k)), seen, jax.random.key(2))
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_invalid_configs_are_refused():
    for change, sentence in [
        ({"gamma": 1.0}, "below 1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"buffer_size": 2}, "2 iterations"),
        ({"final_epsilon": 1.5}, "from 0 to 1"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            dataclasses.replace(SMALL, **change)
    with pytest.raises(ValueError, match="leave out double"):
        DQN(dataclasses.replace(SMALL, double=True), [parse("munchausen:0.03,0.9")], (4,), 2)


def test_replay_ratios_of_presets():
    ratios = {name: preset.gradient_steps * preset.batch_size / preset.num_envs for name, preset in PRESETS.items()}
    assert ratios == {"faithful": 32, "throughput": 8, "stochastic-minimal": 8, "original-dqn": 8}


def test_exact_agents_are_identical_alone_and_in_a_population():
    operators = [OPERATORS[i % 4] for i in range(20)]
    population = Population(BREAKOUT, SMALL, operators, exact=True)
    state = population.train(population.start(list(range(20))), 0, 30)
    scores = population.evaluate(state, 30, 3, 40, 0.05)
    alone = Population(BREAKOUT, SMALL, [operators[19]], exact=True)
    # In two calls, too.
    state_alone = alone.train(alone.train(alone.start([19]), 0, 11), 11, 19)
    one, other = arrays_of(state_alone, 0, alone), arrays_of(state, 19, population)
    differing = [name for name in one if not np.array_equal(one[name], other[name]) and "operator" not in name]
    assert differing == []
    assert float(alone.evaluate(state_alone, 30, 3, 40, 0.05).value[0]) == float(scores.value[19])
    assert not np.array_equal(scores.value[0], scores.value[4])  # another seed, the same operator


@pytest.mark.long
def test_exact_and_vectorized_agree_up_to_rounding():
    operators = ["bellman", "al:0.9"]
    exact, vectorized = (Population(BREAKOUT, SMALL, operators, exact=exact) for exact in (True, False))
    one, other = (population.train(population.start([3, 3]), 0, 12) for population in (exact, vectorized))
    for a, b in zip(exact.get(one), vectorized.get(other), strict=True):
        for name in a:
            np.testing.assert_allclose(a[name], b[name], rtol=1e-3, atol=1e-4, err_msg=name)


def test_agents_of_one_seed_differ_only_by_their_operator():
    population = Population(BREAKOUT, SMALL, ["bellman", "al:0.9", "bellman"])
    state = population.start([4, 4, 5])
    first, second, third = population.get(state.agent.learner.online)
    assert leaves_equal(first, second)
    assert not leaves_equal(first, third)
    state = population.train(state, 0, 30)
    first, second, _ = population.get(state.agent.learner.online)
    assert not leaves_equal(first, second)


def test_resumed_agents_continue_exactly():
    population = Population(
        BREAKOUT, dataclasses.replace(SMALL, priority_exponent=0.6, n_step=3, double=True, dueling=True), ["al:0.5", "bellman"]
    )
    uninterrupted = population.train(population.train(population.start([0, 1]), 0, 20), 20, 20)
    saved = population.get(population.train(population.start([0, 1]), 0, 20))
    resumed = population.train(population.put(saved), 20, 20)
    assert all(leaves_equal(a, b) for a, b in zip(population.get(uninterrupted), population.get(resumed), strict=True))
    saved[0][next(iter(saved[0]))] = np.zeros(7, np.uint32)
    saved[1][next(iter(saved[1]))] = np.zeros(7, np.uint32)
    with pytest.raises(ValueError, match="does not fit this population"):
        population.put(saved)


def walk(ends_at: int) -> FunctionalEnv:
    """Return an environment that ends after `ends_at` steps. The reward of a step is its number, and the observation is the position."""

    def step(state, action, u):
        return state + 1, (state + 1).astype(jnp.float32), state + 1 == ends_at

    def observe(state):
        return jnp.arange(64) == state

    return FunctionalEnv("walk", ("go", "stay"), (0, 1), (64,), lambda u: jnp.int32(0), step, observe)


@pytest.mark.every(2)
@pytest.mark.parametrize("limit", [30, 520, 512])
def test_evaluation_bias_is_value_minus_return(limit):
    env, n = walk(ends_at=20), 20
    dqn = DQN(SMALL, [parse("bellman")], env.shape, 2)
    parameters = dqn.network.init(jax.random.key(0))
    found = evaluate(dqn, env, parameters, jax.random.key(1), 4, limit, 0.0)
    evaluated = min(max(limit - 500, 1), n)
    values = np.asarray(dqn.q_values(parameters, jnp.eye(64)[:evaluated])).astype(np.float64)
    returns = [sum(SMALL.gamma ** (k - t) * (k + 1) for k in range(t, n)) for t in range(evaluated)]
    assert float(found.score) == n * (n + 1) / 2
    assert float(found.length) == n
    assert float(found.value) == pytest.approx(values.max(axis=1).mean(), abs=1e-5)
    assert float(found.action_gap) == pytest.approx(abs(values[:, 0] - values[:, 1]).mean(), abs=1e-5)
    assert float(found.bias) == pytest.approx((values.max(axis=1) - returns).mean(), rel=1e-4)


def test_long_episodes_are_truncated():
    env = walk(ends_at=1000)
    dqn = DQN(SMALL, [parse("bellman")], env.shape, 2)
    found = evaluate(dqn, env, dqn.network.init(jax.random.key(0)), jax.random.key(1), 2, 10, 0.0)
    assert (float(found.score), float(found.length)) == (55.0, 10.0)


@pytest.mark.long
def test_agents_solve_a_corridor():
    """In a corridor of six cells, reaching the right end has reward 1, and everything else 0."""

    def step(state, action, u):
        state = jnp.clip(state + jnp.where(action == 1, 1, -1), 0, 5)
        return state, (state == 5).astype(jnp.float32), state == 5

    corridor = FunctionalEnv(
        "corridor", ("left", "right"), (0, 1), (6,), lambda u: jnp.int32(0), step, lambda state: jnp.arange(6) == state
    )
    learning = Config(
        num_envs=4,
        batch_size=32,
        buffer_size=2000,
        learning_starts=100,
        target_update_interval=80,
        exploration_steps=1500,
        optimizer="adam",
        learning_rate=0.003,
    )
    variants = [
        learning,
        dataclasses.replace(learning, double=True, dueling=True, n_step=3, priority_exponent=0.6, loss="squared", max_grad_norm=10.0),
    ]
    for variant in variants:
        population = Population(corridor, variant, ["bellman", "al:0.5", "pal-dqn:0.9", "consistent"])
        state = population.train(population.start([0, 1, 2, 3]), 0, 2000)
        scores = population.evaluate(state, 2000, 8, 40, 0.0)
        assert scores.score.tolist() == [1.0] * 4
        assert (scores.length < 15).all()  # five steps, and more for sticky actions


SHARED = """
import dataclasses, sys
import jax, numpy as np
from actiongap.envs.minatar import GAMES
from actiongap.dqn.population import Population
from actiongap.dqn.config import Config

config = Config(
    num_envs=2, gradient_steps=2, batch_size=8, buffer_size=60, learning_starts=16, target_update_interval=6, exploration_steps=50,
    learning_rate=0.001,
)
devices = jax.devices()
assert len(devices) == 2
operators = ["bellman", "al:0.9", "pal-dqn:0.9"]
found = []
for some in (devices[:1], devices):
    population = Population(GAMES["breakout"], config, operators, exact=True, devices=some)
    state = population.train(population.start([0, 1, 2]), 0, 12)
    state = population.train(population.put(population.get(state)), 12, 6)
    found.append((population.get(state), population.evaluate(state, 18, 2, 20, 0.05)))
    assert len(state.agent.loss.sharding.device_set) == len(some)
(alone, one), (shared, other) = found
assert all(np.array_equal(a[name], b[name]) for a, b in zip(alone, shared) for name in a)
assert np.array_equal(one.value, other.value) and len(other.value) == 3
"""


@pytest.mark.long
def test_devices_share_a_population():
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    subprocess.run([sys.executable, "-c", SHARED], check=True, env=environment)
