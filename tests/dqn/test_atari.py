"""Atari agents compared with plain lists of episodes, DeepMind's DQN in PyTorch, scripted games, and raw ALE."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actiongap.api.trained import load_trained
from actiongap.dqn import atari, frame_replay, placement
from actiongap.dqn.agent import DQN, Agent, Batch
from actiongap.dqn.config import PRESETS, Config
from actiongap.dqn.frame_replay import FrameReplay, FrameStep, add, frame_buffer, init
from actiongap.dqn.networks import MASKED_VALUE
from actiongap.dqn.replay import Transition, sample_prioritized, sample_uniform
from actiongap.lab.batches import batch_runs
from actiongap.lab.checkpoint import read_checkpoint
from actiongap.lab.executors import run_inline
from actiongap.lab.kinds import train as training
from actiongap.lab.kinds.train import Training, TrainingBatch
from actiongap.lab.runner import run_experiment, run_folder, unfinished_runs
from actiongap.lab.study import Study, grid
from actiongap.operators import parse
from atari_reference import EpisodeRecord, RMSProp, Scripted, games_of, in_torch, learn, nature, paper_target, records_of, sampleable

ale_py = pytest.importorskip("ale_py", reason="Atari needs ale-py: pip install 'actiongap[atari]'")

STACK = 4
GAMMA = 0.9
OPERATORS = ("bellman", "al:0.9", "pal-dqn:0.9")


def leaves_equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True))


# Frame replay buffers.


class ReplayCase:
    """A frame replay buffer, and the expected episodes of each environment."""

    def __init__(self, capacity: int, num_envs: int, prioritized: bool):
        self.capacity, self.num_envs, self.prioritized = capacity, num_envs, prioritized
        self.records = [EpisodeRecord() for _ in range(num_envs)]
        self.newest = -1
        number, no = np.zeros(num_envs, np.float32), np.zeros(num_envs, bool)
        dummy_step = FrameStep(number.astype(np.int32), number, number, no, no, np.zeros((num_envs, 1, 2), np.uint8), no)
        self.replay: FrameReplay = jax.tree.map(jnp.asarray, init(dummy_step, capacity))

    def step(self, events: str, terminal_on_life_loss: bool) -> None:
        """Add a step of all environments. Events: `-` continues, `o` terminated, `c` truncated, `l` a life lost, `f` a game starts."""
        now, n = self.newest + 1, self.num_envs
        # Every frame in the buffer is different.
        frame = np.array([[[(now * n + i) % 251 + 1, i + 1]] for i in range(n)], np.uint8)
        action = np.array([(now * 5 + i) % 7 for i in range(n)], np.int32)
        reward = np.array([0.0 if events[i] == "f" else ((now * 3 + i) % 5 - 2) / 2 for i in range(n)], np.float32)
        life = np.array([event == "l" and terminal_on_life_loss for event in events])
        first, terminated, truncated = (np.array([event == kind for event in events]) for kind in "foc")
        for i, record in enumerate(self.records):
            if first[i]:
                record.reset(frame[i])
            else:
                record.step(now, int(action[i]), float(reward[i]), frame[i], bool(terminated[i] | life[i]))
            if life[i]:
                record.reset(frame[i])
        discount = np.where(terminated | life, 0.0, GAMMA).astype(np.float32)
        step = FrameStep(action, reward, discount, terminated | truncated | life, ~first, frame, first | life)
        self.replay = _add(self.replay, now % self.capacity, step, self.prioritized)
        self.newest = now

    def possible(self, n: int) -> dict[int, tuple[int, int]]:
        """Return the indices that can be sampled, with their environment and iteration."""
        found = {}
        for i, record in enumerate(self.records):
            for now in sampleable(record, self.newest, self.capacity, n, STACK):
                found[now % self.capacity * self.num_envs + i] = (i, now)
        return found

    def ages(self, n: int) -> tuple[Any, Any]:
        return frame_buffer(STACK).valid_ages(jnp.minimum(self.newest + 1, self.capacity), n)


_add = jax.jit(add, static_argnums=3)
_sample = jax.jit(lambda replay, index, n: frame_buffer(STACK).sample(replay, index, n), static_argnums=2)


@partial(jax.jit, static_argnums=(0, 4))
def _sample_indices(prioritized, seed, replay, newest_ages, count):
    newest, ages = newest_ages
    key = jax.random.key(seed)
    if prioritized:
        return sample_prioritized(key, (count,), replay.priority, newest, ages, 0.5)[0]
    return sample_uniform(key, (count,), replay.priority, newest, ages, frame_buffer(STACK).has_gaps)


def assert_sampled(found: Transition, k: int, record: EpisodeRecord, now: int, n: int, gamma: float = GAMMA) -> None:
    """Check the k-th transition against the expected episode."""
    expected = record.transition(now, n, gamma, STACK)
    assert np.array_equal(found.observation[k], expected.stack), now
    assert int(found.action[k]) == expected.action
    assert float(found.reward[k]) == pytest.approx(expected.reward, abs=1e-5)
    assert float(found.discount[k]) == pytest.approx(expected.discount, abs=1e-6)
    # The next state of a terminal transition is not used; after a lost life it begins with the next episode's first frame.
    assert np.array_equal(found.next_observation[k][..., -1], expected.newest)
    if expected.discount:
        assert np.array_equal(found.next_observation[k], expected.next_stack), now


@given(
    shape=st.sampled_from([(7, 2), (13, 3)]),
    n=st.integers(1, 3),
    terminal_on_life_loss=st.sampled_from([True, False]),
    prioritized=st.booleans(),
    events=st.lists(st.text("---ocl", min_size=3, max_size=3), min_size=6, max_size=40),
)
@settings(derandomize=True, deadline=None, max_examples=50)
def test_frame_stacks_match_a_list_of_episodes(shape, n, terminal_on_life_loss, prioritized, events):
    capacity, num_envs = shape
    case = ReplayCase(capacity, num_envs, prioritized)
    case.step("f" * num_envs, terminal_on_life_loss)
    ended = [False] * num_envs
    for row in events:
        row = "".join("f" if terminated else event for event, terminated in zip(row, ended, strict=False))
        case.step(row, terminal_on_life_loss)
        ended = [event in "oc" for event in row]
    possible = case.possible(n)
    if not possible:
        return
    indices = np.array(sorted(possible))
    found = jax.tree.map(np.asarray, _sample(case.replay, jnp.asarray(np.resize(indices, capacity * num_envs)), n))
    for k, index in enumerate(indices):
        env, now = possible[int(index)]
        assert_sampled(found, k, case.records[env], now, n)
    index = np.asarray(_sample_indices(prioritized, len(events), case.replay, (case.newest % capacity, case.ages(n)), 4000))
    # All tries may have hit rows that are no transitions; another test covers that.
    real = np.asarray(case.replay.priority).reshape(-1)[index] > 0
    assert prioritized is False or real.all()
    assert set(index[real].tolist()) == set(possible)


def short_games(length: int, iterations: int, capacity: int = 64) -> ReplayCase:
    case = ReplayCase(capacity, 2, prioritized=False)
    for now in range(iterations):
        case.step(("f" if now % (length + 1) == 0 else "o" if now % (length + 1) == length else "-") * 2, False)
    return case


def test_all_transitions_are_equally_likely():
    case = short_games(20, 100)
    index = np.asarray(_sample_indices(False, 0, case.replay, (case.newest % 64, case.ages(1)), 40_000))
    counts = np.array([(index == one).sum() for one in case.possible(1)])
    assert counts.sum() == 40_000
    mean = 40_000 / len(counts)
    assert abs(counts - mean).max() < 5 * np.sqrt(mean)


def test_samples_that_are_no_transitions_have_weight_zero():
    case = short_games(2, 100)
    config = dataclasses.replace(PRESETS["original-dqn"], num_envs=2, gradient_steps=1, batch_size=4_000, buffer_size=128)
    dqn = DQN(config, [parse("bellman")], (*np.shape(case.replay.frame)[2:], config.frame_stack), 3)
    batch = dqn.sample(case.replay, case.newest, jax.random.key(0), 0, dqn.config.gradient_steps)
    index, weight = np.asarray(batch.index).reshape(-1), np.asarray(batch.weight).reshape(-1)
    wrong = ~np.isin(index, list(case.possible(1)))
    # A third of all rows start a game, so sometimes all four tries hit one.
    assert 0 < wrong.mean() < 0.05
    assert np.array_equal(weight, np.where(wrong, 0.0, 1.0))


def with_half_a_row(case: ReplayCase) -> FrameReplay:
    """Return the buffer after one more step of the first environment only. All values of that step are unusual."""
    one = np.ones(1, np.float32)
    step = FrameStep(one.astype(np.int32), 99 * one, one, one < 0, one > 0, np.full((1, 1, 2), 255, np.uint8), one < 0)
    return add(case.replay, (case.newest + 1) % case.capacity, step, False, 0)


@pytest.mark.parametrize(("iterations", "capacity"), [(40, 64), (100, 64), (40, 6)])
def test_incomplete_rows_are_not_sampled(iterations, capacity):
    case = short_games(20, iterations, capacity)
    replay, iteration = with_half_a_row(case), case.newest + 1
    config = dataclasses.replace(PRESETS["original-dqn"], num_envs=2, gradient_steps=1, batch_size=8_000, buffer_size=2 * capacity)
    dqn = DQN(config, [parse("bellman")], (*np.shape(case.replay.frame)[2:], config.frame_stack), 3)

    def sampled(incomplete: int) -> tuple[set[int], bool]:
        """Return the sampled indices, and whether any transition is unusual."""
        batch = dqn.sample(replay, iteration, jax.random.key(0), 0, 1, incomplete)
        real = np.asarray(batch.weight).reshape(-1) > 0
        transitions = jax.tree.map(lambda part: np.asarray(part)[real], batch.transitions)
        parts = (transitions.reward == 99).any(), *((part == 255).any() for part in (transitions.observation, transitions.next_observation))
        return set(np.asarray(batch.index).reshape(-1)[real].tolist()), any(parts)

    assert sampled(0)[1]
    indices, found = sampled(1)
    assert not found
    # All others are sampled, except those whose frames the row overwrites.
    oldest = {index for index, (_, now) in case.possible(1).items() if now <= iteration - case.capacity + STACK}
    assert indices == case.possible(1).keys() - oldest


# Targets and gradient steps.

NATURE = dataclasses.replace(PRESETS["original-dqn"], num_envs=2, gradient_steps=2, batch_size=4, target_update_interval=4)
BATCHES = 90
"""Seed of transitions for which rounding does not decide whether a ReLU is active."""


def pictures(count: int, seed: int, side: int) -> np.ndarray:
    """Return stacks of large bright and dark shapes."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (count, 12, 12, STACK), np.uint8)
    return coarse.repeat(side // 12, axis=1).repeat(side // 12, axis=2)


def transitions(count: int, actions: int, seed: int, side: int = 84) -> Transition:
    """Return transitions of which some are terminal, some truncated, and some far from their target."""
    rng = np.random.default_rng(seed)
    terminal = np.arange(count) % 4 == 1
    return Transition(
        observation=pictures(count, 2 * seed, side),
        action=rng.integers(0, actions, count).astype(np.int32),
        reward=rng.choice([-1.0, 0.0, 1.0, 3.0], count).astype(np.float32),
        discount=np.where(terminal, 0.0, 0.99).astype(np.float32),
        next_observation=pictures(count, 2 * seed + 1, side),
        last=terminal | (np.arange(count) % 4 == 2),
    )


def an_agent(dqn: DQN, actions: int, operator: int, seed: int = 0) -> Agent:
    """Return an agent whose networks differ, with Q-values as large as in a game."""
    agent, other = (dqn.init(jax.random.key(seed + k), jnp.int32(operator), None, jnp.int32(actions)) for k in (0, 100))

    def scaled(layers: Any) -> Any:
        *others, (weights, bias) = layers
        return [*others, (40 * weights, bias)]

    learner = agent.learner._replace(online=scaled(agent.learner.online), target=scaled(other.learner.online))
    return agent._replace(learner=learner)


def expected_targets(agent: Agent, seen: Transition, operator: str, actions: int, dueling=False, double=False, online=False):
    """Return the targets of the paper, with the given networks."""
    mine, its = in_torch(agent.learner.online), in_torch(agent.learner.target)

    def q(layers: Any, x: Any) -> np.ndarray:
        return nature(layers, x, actions, dueling).numpy()

    now, after = q(its, seen.observation), q(its, seen.next_observation)
    v_next = after.max(axis=1)
    if double:
        v_next = after[np.arange(len(after)), q(mine, seen.next_observation).argmax(axis=1)]
    if online:
        # Both gaps are the online network's; V(x') is not.
        now, mine_after = q(mine, seen.observation), q(mine, seen.next_observation)
        after = v_next[:, None] - (mine_after.max(axis=1, keepdims=True) - mine_after)
    return paper_target(operator, now, seen.action, seen.reward, seen.discount, after, v_next)


@pytest.mark.parametrize("variant", [{}, {"correction_network": "online"}, {"double": True}, {"dueling": True}], ids=str)
def test_targets_are_those_of_the_paper(variant):
    pytest.importorskip("torch", reason="the reference is in PyTorch: pip install 'actiongap[torch]'")
    actions, dueling = 6, "dueling" in variant
    # The same network on smaller images is faster.
    dqn = DQN(dataclasses.replace(NATURE, **variant), [parse(name) for name in OPERATORS], (36, 36, STACK), 18, mask_actions=True)
    seen = transitions(16, actions, 3, 36)
    targets = jax.jit(dqn.targets)
    spread = []
    for k, name in enumerate(OPERATORS):
        agent = an_agent(dqn, actions, k)
        found = np.asarray(targets(agent, jax.tree.map(jnp.asarray, seen), jax.random.key(0)))
        expected = expected_targets(agent, seen, name, actions, dueling, "double" in variant, "correction_network" in variant)
        np.testing.assert_allclose(found, expected, rtol=5e-6, atol=5e-6)
        spread.append(expected)
    # Otherwise the three operators would hardly differ.
    assert abs(spread[0] - spread[1]).max() > 0.1
    assert abs(spread[1] - spread[2]).max() > 0.1
    terminal = seen.discount == 0
    assert np.array_equal(spread[0][terminal], seen.reward[terminal])
    assert np.array_equal(spread[2][terminal], seen.reward[terminal])


@pytest.mark.parametrize("dueling", [False, True])
def test_several_gradient_steps_in_a_row_are_those_of_pytorch(dueling):
    pytest.importorskip("torch", reason="the reference is in PyTorch: pip install 'actiongap[torch]'")
    actions, side, updates = 6, 36 if dueling else 84, 2 if dueling else 1
    config = dataclasses.replace(NATURE, gradient_steps=updates, dueling=dueling)
    dqn = DQN(config, [parse(name) for name in OPERATORS], (side, side, STACK), 18, mask_actions=True)

    @jax.jit
    def step(agent: Agent, seen: Transition, iteration: Any) -> Agent:
        batch = Batch(jnp.zeros((updates, 4), jnp.int32), jnp.ones((updates, 4)), seen)
        learner, loss, _ = dqn.update(agent, batch, jax.random.key(0))
        return agent._replace(learner=dqn.update_target(learner, iteration), loss=loss)

    for operator, name in [(2, "pal-dqn:0.9")] if dueling else enumerate(OPERATORS):
        agent = first = an_agent(dqn, actions, operator)
        layers, loss = in_torch(first.learner.online), 0.0
        optimizer = RMSProp([part for layer in layers for part in layer])
        for iteration in (1, 2, 4):
            before, seen = agent.learner.target, transitions(4 * updates, actions, BATCHES + iteration, side)
            # All gradient steps of an iteration use the target network from before.
            targets = expected_targets(agent, seen, name, actions, dueling)
            for k in range(updates):
                part = slice(4 * k, 4 * k + 4)
                loss = learn(layers, optimizer, seen.observation[part], seen.action[part], targets[part], actions, dueling)
            agent = step(agent, jax.tree.map(jnp.asarray, seen), jnp.int32(iteration))
            # It is copied after every other iteration.
            assert leaves_equal(agent.learner.target, agent.learner.online if iteration == 1 else before)
        assert not leaves_equal(agent.learner.target, agent.learner.online)
        assert float(agent.loss) == pytest.approx(loss, rel=1e-5)
        mean, square = (jax.tree.leaves(optax.tree_utils.tree_get(agent.learner.opt_state, what)) for what in ("mu", "nu"))
        for j, (old, new) in enumerate(zip(*map(jax.tree.leaves, (first.learner.online, agent.learner.online)), strict=True)):
            expected, old = optimizer.parameters[j].detach().numpy(), np.asarray(old)
            moved = expected - old.astype(np.float64)
            assert abs(moved).max() > 1e-5
            # Each step is rounded to 32 bits once.
            rounding = 3 * updates * np.spacing(abs(old[abs(old) < 1e8]).max())
            assert abs(np.asarray(new) - expected).max() <= rounding + 2e-5 * abs(moved).max()
            # Our gradients are means over a batch of 4, the reference's are sums.
            for found, known in ((4 * mean[j], optimizer.mean[j].numpy()), (16 * square[j], optimizer.square[j].numpy())):
                assert abs(np.asarray(found) - known).max() <= 2e-5 * abs(known).max()
        *_, (weights, bias) = agent.learner.online
        here = actions + dueling
        assert (np.asarray(weights)[:, here:] == 0).all()
        assert (np.asarray(bias)[here:] == np.float32(MASKED_VALUE)).all()


@pytest.mark.every(2)
@pytest.mark.parametrize("variant", [{"correction_network": "online"}, {"double": True}], ids=str)
def test_each_gradient_step_uses_the_current_online_network(variant):
    config = dataclasses.replace(NATURE, learning_rate=0.01, **variant)
    dqn = DQN(config, [parse("pal-dqn:0.9")], (36, 36, STACK), 18, mask_actions=True)
    improve, seen = jax.jit(dqn.update), jax.tree.map(jnp.asarray, transitions(8, 6, 3, 36))

    def learned(agent: Agent, *batches: slice) -> Agent:
        for part in batches:
            some = jax.tree.map(lambda rows, part=part: rows[part], seen)
            count = len(some.action) // 4
            learner, _, _ = improve(agent, Batch(jnp.zeros((count, 4), jnp.int32), jnp.ones((count, 4)), some), jax.random.key(0))
            agent = agent._replace(learner=learner)
        return agent

    # Its actions have similar values, so a step changes the greedy action.
    agent = dqn.init(jax.random.key(0), jnp.int32(0), None, jnp.int32(6))
    at_once, one_by_one = learned(agent, slice(0, 8)), learned(agent, slice(0, 4), slice(4, 8))
    for one, other in zip(*map(jax.tree.leaves, (at_once.learner.online, one_by_one.learner.online)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_a_gradient_step_is_deepminds():
    dqn = DQN(dataclasses.replace(NATURE, gradient_steps=1, batch_size=32), [parse("bellman")], (4,), 3)
    agent = dqn.init(jax.random.key(0), jnp.int32(0), None)
    x = np.ones((32, 4), np.float32)
    seen = Transition(x, np.zeros(32, np.int32), np.full(32, 5, np.float32), np.zeros(32, np.float32), x, np.ones(32, bool))
    batch = Batch(jnp.zeros((1, 32), jnp.int32), jnp.ones((1, 32)), jax.tree.map(jnp.asarray, seen))
    learner, _, _ = jax.jit(dqn.update)(agent, batch, jax.random.key(0))
    # All errors are clipped to -1, so the gradient of the last bias is -32, divided by the root of its centred second moment.
    moved = float(learner.online[-1][1][0] - agent.learner.online[-1][1][0])
    assert moved == pytest.approx(2.5e-4 * 32 / np.sqrt(0.05 * 32**2 - (0.05 * 32) ** 2 + 0.01), rel=1e-3)


def test_masked_actions_are_never_taken():
    dqn = DQN(dataclasses.replace(NATURE, frame_stack=2, buffer_size=100), [parse("bellman")], (10, 10, 2), 18, mask_actions=True)
    x = jnp.asarray(np.random.default_rng(0).integers(0, 256, (600, 10, 10, 2), np.uint8))
    for actions in (3, 6, 17):
        online = an_agent(dqn, actions, 0).learner.online
        greedy, random = (np.asarray(dqn.act(online, x, epsilon, jax.random.key(1))) for epsilon in (0.0, 1.0))
        assert np.array_equal(greedy, np.asarray(dqn.q_values(online, x))[:, :actions].argmax(axis=1))
        counts = np.bincount(random, minlength=18)
        assert counts[actions:].sum() == 0
        assert abs(counts[:actions] - 600 / actions).max() < 6 * np.sqrt(600 / actions)


# Populations on scripted games.

SIDE = 10
NUM_ENVS = 3
CAPACITY = 12
WARMUP = 30
"""Iterations before the first gradient step."""
CONFIG = Config(
    gamma=GAMMA,
    num_envs=NUM_ENVS,
    gradient_steps=2,
    batch_size=4,
    buffer_size=CAPACITY * NUM_ENVS,
    learning_starts=WARMUP * NUM_ENVS,
    target_update_interval=6,
    n_step=2,
    final_epsilon=0.0,
    exploration_steps=0,
    frame_stack=STACK,
    clip_rewards=True,
)
ACTION_COUNTS = {"pong": 6, "asterix": 9}


@pytest.fixture(scope="module")
def scripted() -> tuple[atari.AtariPopulation, Scripted]:
    """A population of two agents on scripted games with small screens; its optimizer counts its steps."""
    with pytest.MonkeyPatch.context() as patch:
        known = atari.atari_game
        patch.setattr(atari, "atari_game", lambda name: known(name)._replace(shape=(SIDE, SIDE)))
        population = atari.AtariPopulation(list(ACTION_COUNTS), CONFIG, ["bellman", "al:0.9"])
    count_steps = optax.scale_by_schedule(lambda count: jnp.ones_like(count, jnp.float32))
    population.dqn.optimizer = optax.chain(population.dqn.optimizer, count_steps)
    population.dqn.epsilon = lambda iteration: jnp.float32(0.0)
    population.emulators = script = Scripted(2 * NUM_ENVS, SIDE)  # pyright: ignore[reportAttributeAccessIssue]
    return population, script


@pytest.fixture
def with_lives(scripted, monkeypatch):
    """Return a function that makes lost lives terminal or not, and returns the population and a new script."""
    population, script = scripted

    def configure(terminal_on_life_loss: bool) -> tuple[atari.AtariPopulation, Scripted]:
        monkeypatch.setattr(population.dqn, "config", dataclasses.replace(CONFIG, terminal_on_life_loss=terminal_on_life_loss))
        script.log.clear()
        script.game[:] = 0
        return population, script

    return configure


def replay_of(state: Any, agent: int) -> FrameReplay:
    return jax.tree.map(lambda part: jnp.asarray(np.asarray(part)[agent]), state.agent.replay)


def online_of(state: Any, agent: int) -> Any:
    return jax.tree.map(lambda part: np.array(part[agent]), state.agent.learner.online)


def assert_stored(state: Any, expected: list[EpisodeRecord], newest: int, n: int) -> None:
    """Check that the buffers hold the expected transitions, and nothing else that could be sampled."""
    for agent in range(2):
        replay = replay_of(state, agent)
        mine = expected[agent * NUM_ENVS : (agent + 1) * NUM_ENVS]
        possible = [(i, now) for i in range(NUM_ENVS) for now in sampleable(mine[i], newest, CAPACITY, n, STACK)]
        index = jnp.asarray([now % CAPACITY * NUM_ENVS + i for i, now in possible])
        found = jax.tree.map(np.asarray, frame_buffer(STACK).sample(replay, index, n))
        assert possible
        for k, (i, now) in enumerate(possible):
            assert_sampled(found, k, mine[i], now, n)
        for now in range(newest - CAPACITY + 1, newest + 1):
            real = [now in record.steps for record in mine]
            assert ((np.asarray(replay.priority)[now % CAPACITY] > 0) == real).all()


@pytest.mark.parametrize("terminal_on_life_loss", [False, True])
def test_replay_buffers_hold_the_games_played(with_lives, terminal_on_life_loss):
    population, script = with_lives(terminal_on_life_loss)
    state = population.start([5, 6])
    before, scores = [online_of(state, agent) for agent in range(2)], np.zeros((2, 2))
    for iteration, iterations in ((0, 9), (9, 17)):
        state = population.train(state, iteration, iterations)
    expected = records_of(script.log, 0, terminal_on_life_loss, clipped=True)
    assert_stored(state, expected, 25, 1)
    # Actions are greedy in the expected observations.
    values = jax.jit(population.dqn.q_values)
    for row, record in enumerate(expected):
        assert list(record.steps) == [now for now in range(26) if not script.log[now][1].first[row]]
        acted = [step for now, step in record.steps.items() if now > 0]
        stacks = np.stack([episode.stack(k, STACK) for episode, k in acted])
        best = values(before[row // NUM_ENVS], jnp.asarray(np.resize(stacks, (26, *stacks.shape[1:]))))[: len(stacks)]
        assert np.array_equal(best.argmax(axis=1), [episode.actions[k] for episode, k in acted])
    # Scores are raw and of finished games; stored rewards are clipped.
    total = np.zeros(2 * NUM_ENVS)
    for _, seen in script.log:
        total = np.where(seen.first, 0.0, total + seen.reward)
        for row in np.flatnonzero(seen.terminated | seen.truncated):
            scores[row // NUM_ENVS] += total[row], 1
    assert scores[:, 1].min() > 5
    np.testing.assert_allclose(state.env_state.return_sum, scores[:, 0], rtol=1e-6)
    assert np.array_equal(state.env_state.episodes, scores[:, 1])
    assert abs(np.asarray(state.agent.replay.reward)).max() == 1
    assert all(leaves_equal(online_of(state, agent), before[agent]) for agent in range(2))


def test_n_step_transitions_stay_within_a_game(with_lives):
    population, script = with_lives(False)
    state = population.train(population.train(population.start([5, 6]), 0, 9), 9, 7)
    assert_stored(state, records_of(script.log, 0, False, clipped=True), 15, 2)


def evaluation(population: Any, state: Any, script: Scripted, agent: int, limit: int, episodes: int, steps: int) -> dict[str, float]:
    """Return the expected result of an evaluation, computed game by game from the log."""
    online, log, terminal_on_life_loss = online_of(state, agent), script.log, population.dqn.config.terminal_on_life_loss
    mine = range(agent * NUM_ENVS, (agent + 1) * NUM_ENVS)
    games = sorted((game for env in mine for game in games_of(log, env, STACK, limit)), key=lambda game: (game.start, game.env))
    # The iteration before a game's first frame ended another game, or there was none.
    in_time = [game for game in games if max(game.start - 1, 0) * NUM_ENVS < steps]
    games = in_time if steps else games[:episodes]
    values = jax.jit(population.dqn.q_values)
    value, gap, bias = [], [], []
    for game in games:
        shown = np.stack([*game.stacks, game.last])
        q = np.sort(np.asarray(values(online, jnp.asarray(np.resize(shown, (16, *shown.shape[1:])))))[: len(shown)], axis=1)
        after = 0.0 if game.terminated else float(q[-1, -1])
        returns = []
        for reward, lost in reversed(list(zip(game.rewards, game.lost, strict=True))):
            after = np.clip(reward, -1, 1) + GAMMA * (0.0 if lost and terminal_on_life_loss else after)
            returns.append(after)
        value += q[:-1, -1].tolist()
        gap += (q[:-1, -1] - q[:-1, -2]).tolist()
        bias += (q[:-1, -1] - returns[::-1]).tolist()
    return {
        "games": len(games),
        "score": float(np.mean([sum(game.rewards) for game in games])),
        "length": float(np.mean([len(game.rewards) for game in games])),
        "value": float(np.mean(value)),
        "action_gap": float(np.mean(gap)),
        "bias": float(np.mean(bias)),
    }


def assert_evaluated(scripted: tuple[atari.AtariPopulation, Scripted], episodes: int, limit: int, steps: int) -> None:
    population, script = scripted
    state = population.start([7, 8])
    found = population.evaluate(state, 3, episodes, limit, 0.5, **({"steps": steps} if steps else {}))._asdict()
    for agent, count in enumerate(ACTION_COUNTS.values()):
        rows = slice(agent * NUM_ENVS, (agent + 1) * NUM_ENVS)
        sent = np.concatenate([actions[rows] for actions, _ in script.log if actions is not None])
        assert (sent < count).all()
        if not steps:
            assert found["games"][agent] == episodes
        for name, value in evaluation(population, state, script, agent, limit, episodes, steps).items():
            assert found[name][agent] == pytest.approx(value, rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("terminal_on_life_loss", [False, True])
@pytest.mark.parametrize(("episodes", "limit", "steps"), [(1, 99, 0), (3, 99, 0), (8, 99, 0), (99, 99, 40), (99, 99, 1)])
def test_evaluations_match_the_log_of_their_games(with_lives, terminal_on_life_loss, episodes, limit, steps):
    assert_evaluated(with_lives(terminal_on_life_loss), episodes, limit, steps)


def test_games_longer_than_the_limit_are_truncated(with_lives):
    for limit in (1, 4):
        assert_evaluated(with_lives(False), 2, limit, 0)


def test_a_life_lost_in_the_last_step_is_not_bootstrapped(with_lives):
    for limit in range(1, 9):
        assert_evaluated(with_lives(True), 3, limit, 0)


def test_truncated_games_count_as_games(with_lives):
    population, _ = with_lives(False)
    assert population.evaluate(population.start([7, 8]), 3, 8, 2, 0.5).games.tolist() == [8, 8]


def test_gradient_steps_per_iteration(with_lives):
    population, _ = with_lives(False)
    state, iteration = population.start([1, 2]), 0
    for iterations, expected in ((WARMUP - 1, 0), (1, 1), (1, 2), (5, 7)):
        state = population.train(state, iteration, iterations)
        iteration += iterations
        taken = np.asarray(optax.tree_utils.tree_get(state.agent.learner.opt_state, "count"))
        assert (taken == CONFIG.gradient_steps * expected).all()
    for name in ("stochastic-minimal", "original-dqn"):
        # One gradient step of 32 transitions for every four steps.
        preset = PRESETS[name]
        assert preset.gradient_steps * 4 == preset.num_envs
        assert preset.batch_size == 32


def test_learning_does_not_depend_on_the_replay_placement(with_lives, monkeypatch):
    ends = []
    # In place as on an accelerator, then as on a CPU, then with the buffers on another device.
    for in_place, with_agents in ((True, True), (False, True), (False, False)):
        population, _ = with_lives(True)
        monkeypatch.setattr(population.placement, "in_place", in_place)
        monkeypatch.setattr(population.placement, "with_agents", with_agents)
        ends.append(population.get(population.train(population.train(population.start([3, 4]), 0, WARMUP + 2), WARMUP + 2, 3)))
    for one, *others in zip(*ends, strict=True):
        for other in others:
            assert one.keys() == other.keys()
            for name in one:
                np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_seed_repeats_and_saved_agents_continue_bit_for_bit(with_lives):
    population, script = with_lives(True)

    def trained() -> Any:
        script.log.clear()
        script.game[:] = 0
        return population.train(population.start([3, 4]), 0, WARMUP + 2)

    saved = population.get(trained())
    games = script.game.copy()
    whole = population.get(population.train(trained(), WARMUP + 2, 3))
    script.game[:] = games
    resumed = population.get(population.train(population.put(saved), WARMUP + 2, 3))
    for one, other, first in zip(whole, resumed, saved, strict=True):
        assert [name for name in one if not np.array_equal(one[name], other[name])] == []
        assert not np.array_equal(one[".agent.learner.online[0][0]"], first[".agent.learner.online[0][0]"])


@pytest.mark.long
def test_gradient_steps_are_split_among_groups(monkeypatch):
    config = Config(
        num_envs=2,
        gradient_steps=2,
        batch_size=4,
        buffer_size=40,
        learning_starts=8,
        target_update_interval=8,
        frame_stack=STACK,
        clip_rewards=True,
    )
    population = atari.AtariPopulation(["pong"], config, ["al:0.9"])
    count_steps = optax.scale_by_schedule(lambda count: jnp.ones_like(count, jnp.float32))
    population.dqn.optimizer = optax.chain(population.dqn.optimizer, count_steps)
    learn, counts, ends = population.placement.learn, [], []

    def counted(*given: Any, **how: Any) -> Any:
        agents = learn(*given, **how)
        counts.append(int(optax.tree_utils.tree_get(agents.learner.opt_state, "count")[0]))
        return agents

    monkeypatch.setattr(population.placement, "learn", counted)
    for population.placement.in_place, population.placement.with_agents in ((True, True), (False, False)):
        ends.append(population.get(population.train(population.start([3]), 0, 10))[0])
    # One after each group, from the fourth iteration on.
    assert counts == 2 * [*[0] * 6, *range(1, 15)]
    for name in ends[0]:
        np.testing.assert_allclose(ends[0][name], ends[1][name], rtol=1e-4, atol=1e-6, err_msg=name)
    # The target network was updated after the eighth iteration, so in the tenth it differs.
    assert not np.array_equal(ends[0][".agent.learner.online[0][0]"], ends[0][".agent.learner.target[0][0]"])
    population.emulators.close()


# Atari games.

TRIO = ("pong", "asterix", "breakout")
TINY = {
    **dataclasses.asdict(PRESETS["stochastic-minimal"]),
    "num_envs": 2,
    "gradient_steps": 1,
    "batch_size": 2,
    "buffer_size": 20,
    "learning_starts": 8,
    "target_update_interval": 10,
    "exploration_steps": 40,
    "frames": 120,
    "eval_every": 40,
    "episodes": 2,
    "max_episode_steps": 10,
    "evaluation_epsilon": 0.05,
    "exact": True,
}
"""Three chunks of five iterations. The buffer holds ten, and learning starts with the fourth."""
CHUNK, WARMUP_ITERATIONS = 5, 4


def specs() -> list[Training]:
    return [Training(env=f"atari/{game}", operator=OPERATORS[i], seed=i, **TINY) for i, game in enumerate(TRIO)]


class Spy:
    """A group of emulators that records actions and results since it was started."""

    def __init__(self, emulators: Any):
        self.emulators, self.started = emulators, False

    def reset(self, seeds: Any) -> Any:
        self.seeds, self.sent, self.started = np.array(seeds), [], True
        self.results = [self.emulators.reset(seeds)]
        return self.results[0]

    def send(self, actions: Any) -> None:
        self.sent.append(np.array(actions))
        self.emulators.send(actions)

    def receive(self) -> Any:
        self.results.append(self.emulators.receive())
        return self.results[-1]


@pytest.fixture
def spies(trained, monkeypatch) -> tuple[Spy, ...]:
    """One for each group of emulators."""
    monkeypatch.setattr(trained.population.emulators, "parts", found := tuple(map(Spy, trained.population.emulators.parts)))
    return found


class TrainedBatch(NamedTuple):
    """Agents of three games that were trained in one batch without interruption."""

    out: Path
    study: Study
    population: atari.AtariPopulation
    ready: dict
    checkpoints: list[list[dict[str, np.ndarray]]]
    """The agents before each chunk of training, and after the last."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> TrainedBatch:
    study, out, checkpoints = Study("trio", tuple(specs())), tmp_path_factory.mktemp("trained"), []
    train = atari.AtariPopulation.train

    def recorded(population: Any, state: Any, iteration: int, iterations: int, **others: Any) -> Any:
        checkpoints.append(population.get(state))
        state = train(population, state, iteration, iterations, **others)
        if iteration + iterations == 3 * CHUNK:
            checkpoints.append(population.get(state))
        return state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atari.AtariPopulation, "train", recorded)
        patch.setattr(training, "_READY", {})
        outcome = run_inline(study, out, batch_size=3)
        ready = dict(training._READY)
    assert len(outcome.done) == 3, outcome.failed
    (population,) = ready.values()
    return TrainedBatch(out, study, population, ready, checkpoints)


@pytest.fixture
def checkpoints(trained) -> list[list[dict[str, np.ndarray]]]:
    return trained.checkpoints


def differing(one: dict[str, np.ndarray], other: dict[str, np.ndarray], but: str = "operator") -> list[str]:
    """Return the arrays that differ. The index of an operator depends on the batch."""
    assert one.keys() == other.keys()
    return [name for name in one if not np.array_equal(one[name], other[name]) and but not in name]


def folder_of(out: Path, study: Study, game: str) -> Path:
    """Return the folder of the run on a game."""
    return next(run_folder(out, name) for name, run in study.named().items() if isinstance(run, Training) and run.env == f"atari/{game}")


def final(out: Path, study: Study, game: str) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return the rows of an agent and its network."""
    folder = folder_of(out, study, game)
    return (folder / "metrics.jsonl").read_bytes(), read_checkpoint(max((folder / "checkpoint").glob("*.npz"))).state


@pytest.mark.long
def test_a_batch_of_several_games_writes_rows_and_networks_of_each_run(trained, checkpoints):
    out, study = trained.out, trained.study
    for i, game in enumerate(TRIO):
        rows, learned = final(out, study, game)
        metrics = [json.loads(line) for line in rows.splitlines()]
        assert [row["step"] for row in metrics] == [40, 80, 120]
        assert all(row["restarts"] == 0 and row["games"] == 2 and row["length"] == 10 for row in metrics)
        # Evaluations and saving do not change the agents.
        for name, part in learned.items():
            assert np.array_equal(part, checkpoints[3][i][".agent.learner.online" + name])
        agent = load_trained(folder_of(out, study, game))
        assert leaves_equal(agent.parameters, list(learned.values()))


def layers_of(state: dict[str, np.ndarray], which: str = "online") -> list[tuple[np.ndarray, np.ndarray]]:
    return [(state[f".agent.learner.{which}[{k}][0]"], state[f".agent.learner.{which}[{k}][1]"]) for k in range(5)]


@pytest.mark.long
def test_agents_of_different_games_in_one_batch(trained, checkpoints, spies):
    pytest.importorskip("torch", reason="the reference is in PyTorch: pip install 'actiongap[torch]'")
    population = trained.population
    state = population.put(checkpoints[2])
    scores = population.evaluate(state, 2 * CHUNK, 2, 3, 0.0)
    for i, count in enumerate((6, 9, 4)):
        before, after = checkpoints[2][i], checkpoints[3][i]
        for which in ("online", "target"):
            (weights, bias), start = layers_of(after, which)[-1], layers_of(checkpoints[0][i])[-1]
            assert (weights[:, count:] == 0).all()
            assert (bias[count:] == np.float32(MASKED_VALUE)).all()
            assert not np.array_equal(weights[:, :count], start[0][:, :count])
        black = np.zeros((84, 84), np.uint8)
        values = []
        for spy in spies:
            for t in range(3):
                seen = [black] * 3 + [shown.frame[i] for shown in spy.results[: t + 1]]
                q = nature(in_torch(layers_of(before)), np.stack(seen[-4:], axis=-1)[None], count)[0].numpy()
                assert spy.sent[t][i] == q.argmax()
                values.append(q.max())
        assert scores.value[i] == pytest.approx(np.mean(values), rel=1e-5)


@pytest.mark.long
def test_training_depends_only_on_the_seed(trained, checkpoints):
    population = trained.population
    again = population.get(population.train(population.start([0, 1, 5]), 0, CHUNK))
    *same, other = (differing(one, two) for one, two in zip(again, checkpoints[1], strict=True))
    assert same == [[], []]
    assert {".agent.key", ".agent.learner.online[0][0]", ".agent.replay.frame", ".agent.replay.action"} <= set(other)


@pytest.mark.long
def test_resumed_agents_continue_exactly(trained, checkpoints, monkeypatch):
    # Buffers are restored in parts; the last part is shorter.
    monkeypatch.setattr(placement, "ROWS_PER_COPY", 7)
    population = trained.population
    resumed = population.get(population.train(population.put(checkpoints[2]), 2 * CHUNK, CHUNK))
    assert [differing(one, two) for one, two in zip(resumed, checkpoints[3], strict=True)] == [[], [], []]


@pytest.mark.long
def test_without_replay_buffers_agents_wait_before_they_learn(trained, checkpoints, monkeypatch):
    _, study, population, ready, _ = trained
    monkeypatch.setattr(training, "_READY", dict(ready))
    monkeypatch.setattr(population, "save_replay", False)
    batch = TrainingBatch(study.runs)
    assert batch.population is population
    states = population.get(population.put(checkpoints[2]))
    assert not any(name.startswith(".agent.replay") for state in states for name in state)
    state = population.put(states)
    assert population.restarts(state).tolist() == [1, 1, 1]
    state = population.train(state, 2 * CHUNK, WARMUP_ITERATIONS - 1)
    waited = population.get(state)
    for one, other in zip(waited, states, strict=True):
        assert differing(one, other, but="env_state") == [
            name for name in one if "target" in name and not np.array_equal(one[name], other[name])
        ]
    replay = jax.tree.map(np.array, state.agent.replay)
    assert replay.priority.sum() == 3 * 2 * (WARMUP_ITERATIONS - 2)
    # The first iteration of a call only starts games, so learning starts a little later.
    state = population.train(state, 2 * CHUNK + WARMUP_ITERATIONS - 1, 4)
    learned = population.get(state)
    assert all(".agent.learner.online[0][0]" in differing(one, other) for one, other in zip(learned, waited, strict=True))
    # A buffer that was still empty is not lost.
    assert population.restarts(population.put(population.get(population.start([0, 1, 2])))).tolist() == [0, 0, 0]
    # The rows count it.
    _, rows = batch.advance(batch.put(states), 2)
    assert [row["restarts"] for (row,) in rows] == [1, 1, 1]


@pytest.mark.long
def test_scores_are_those_of_raw_ale(trained, checkpoints, spies):
    from raw_ale import RawGame

    population = trained.population
    limit = 40
    found = population.evaluate(population.put(checkpoints[3]), 3 * CHUNK, 2, limit, 1.0)
    for i, game in enumerate(TRIO):
        totals = []
        for spy in spies:
            raw = RawGame(game, int(spy.seeds[i]), 0.25, 108_000)
            raw.reset()
            totals.append(sum(raw.step(int(actions[i]))[0] for actions in spy.sent[:limit]))
        assert found.score[i] == np.mean(totals)
    assert found.score.any()
    # Random play takes exactly the actions of the game.
    sent = np.stack([spy.sent for spy in spies])
    assert [sorted(set(sent[:, :, i].flat)) for i in range(3)] == [list(range(count)) for count in (6, 9, 4)]
    # Groups have different seeds and random numbers.
    assert not np.array_equal(*sent)
    assert not np.array_equal(*(spy.seeds for spy in spies))


@pytest.mark.long
def test_a_group_without_games_is_not_started(trained, checkpoints, spies):
    population = trained.population
    found = population.evaluate(population.put(checkpoints[3]), 3 * CHUNK, 1, 5, 1.0)
    assert found.games.tolist() == [1, 1, 1]
    assert [spy.started for spy in spies] == [False, True]
    # If steps are counted, all groups play.
    found = population.evaluate(population.put(checkpoints[3]), 3 * CHUNK, 1, 5, 1.0, steps=1)
    assert found.games.tolist() == [2, 2, 2]
    assert [spy.started for spy in spies] == [True, True]


PROGRAM = """
import json, sys
from actiongap.lab.kinds.train import Training
from actiongap.lab.executors import run_inline
from actiongap.lab.study import Study
run_inline(Study("alone", (Training(**json.loads(sys.argv[2])),)), sys.argv[1], batch_size=1, save_every=0.0)
"""


@pytest.mark.long
def test_an_agent_killed_and_resumed_alone_matches_the_batch(trained, tmp_path, monkeypatch):
    out, study = trained.out, trained.study
    spec = specs()[1]
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps(dataclasses.asdict(spec))]
    process = subprocess.Popen(command, env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"})
    until = time.monotonic() + 240
    while not list(tmp_path.rglob("*.npz")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    alone = Study("alone", (spec,))
    assert len(unfinished_runs(alone, tmp_path)) == 1
    assert list(tmp_path.rglob("*.npz"))
    monkeypatch.setattr(training, "_READY", {})
    assert len(run_inline(alone, tmp_path, batch_size=1).done) == 1
    (one, learned), (other, expected) = final(tmp_path, alone, "asterix"), final(out, study, "asterix")
    assert one == other
    assert differing(learned, expected) == []


# Errors.


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"env": "atari/pong", "frame_stack": 1}, "frame_stack is 1: on Atari .* use 4, as in the preset stochastic-minimal"),
        (
            {"env": "minatar/breakout", "frame_stack": 4},
            "frame_stack is for Atari, and minatar/breakout is not: use the preset",
        ),
        ({"env": "minatar/breakout", "terminal_on_life_loss": True}, "is for Atari, and minatar/breakout is not"),
        ({"env": "minatar/breakout", "clip_rewards": True}, "is for Atari, and minatar/breakout is not"),
        ({"env": "minatar/breakout", "evaluation_steps": 5}, "is for Atari, and minatar/breakout is not"),
        ({"env": "atari/pong", "frame_stack": 4, "evaluation_steps": -1}, "evaluation_steps is -1: it must be 0 or more"),
        ({"env": "atari/png", "frame_stack": 4}, "did you mean atari/pong"),
        (
            {"env": "atari/pong", "frame_stack": 4, "loss": "Huber"},
            "loss is 'Huber': did you mean huber?",
        ),
        ({"env": "atari/pong", "frame_stack": 4, "max_grad_norm": -1.0}, "max_grad_norm is -1.0: it must be above 0, or be left out"),
        (
            {"env": "atari/pong", "frame_stack": 4, "buffer_size": 4, "num_envs": 1},
            "buffer_size is 4: it must be at least 6, 6 iterations of 1 environments",
        ),
        ({"env": "atari/pong", "frame_stack": 4, "double": True, "correction_network": "online"}, "leave out double"),
    ],
)
def test_invalid_fields_raise_one_sentence(fields, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        Training(**fields)
    assert "\n" not in str(error.value)


def test_replay_buffers_that_do_not_fit_are_refused_before_allocation(monkeypatch):
    monkeypatch.setattr(frame_replay, "host_budget", lambda: 10e9)
    with pytest.raises(ValueError, match="train fewer agents per batch") as error:
        atari.AtariPopulation(["pong", "pong"], PRESETS["original-dqn"], ["bellman", "al:0.9"])
    sentence = str(error.value)
    assert "the replay buffers of 2 agents take 14.1 GB, and 10.0 GB are available" in sentence
    remedy = int(sentence.split("set buffer_size to ")[1].split(",")[0])
    assert 2 * remedy * (84 * 84 + 18) <= 10e9 < 2 * (remedy + 2000) * (84 * 84 + 18)


def test_a_replay_buffer_that_does_not_fit_fails_the_run(monkeypatch, tmp_path):
    monkeypatch.setattr(frame_replay, "host_budget", lambda: 5e9)
    monkeypatch.setattr(training, "_READY", {})
    fields = {**dataclasses.asdict(PRESETS["original-dqn"]), "env": "atari/pong"}
    outcome = run_inline(Study("large", grid("train", **fields, seed=range(2))), tmp_path, batch_size=2)
    assert len(outcome.failed) == 2
    (sentence,) = set(outcome.failed.values())
    assert sentence == "the replay buffer of an agent takes 7.1 GB, and 5.0 GB are available: set buffer_size to 706000"


def test_the_advised_buffer_size_is_valid(monkeypatch):
    monkeypatch.setattr(frame_replay, "host_budget", lambda: 5e6)
    with pytest.raises(ValueError, match="set a much smaller buffer_size") as error:
        atari.AtariPopulation(["pong"], Config(**{**dataclasses.asdict(CONFIG), "buffer_size": 5_000}), ["bellman"])
    assert "buffer_size to 0" not in str(error.value)


def test_batches_are_no_larger_than_memory_allows(monkeypatch):
    monkeypatch.setattr(frame_replay, "host_budget", lambda: 30e9)
    fields = {**dataclasses.asdict(PRESETS["original-dqn"]), "env": ("atari/pong", "atari/asterix")}
    study = Study("large", grid("train", **fields, seed=range(5)))
    assert [len(batch) for batch in batch_runs(study.named(), batch_size=160)] == [3, 3, 4]
    assert [len(batch) for batch in batch_runs(study.named(), batch_size=2)] == [2] * 5
    taken = Training.resource_note(study.runs[:4])  # pyright: ignore[reportArgumentType]
    assert taken == "the replay buffers of 4 agents (1,000,000 steps each) take 28.3 GB of memory"
    # Without frame replay the batch size is not limited.
    assert [len(batch) for batch in batch_runs({"one": Training(), "other": Training(seed=1)}, batch_size=160)] == [2]


@pytest.mark.long
def test_uninterrupted_runs_keep_their_replay_buffer(tmp_path):
    fields = {
        **dataclasses.asdict(CONFIG),
        "env": "atari/pong",
        "frames": 120,
        "eval_every": 40,
        "evaluation_steps": 10,
        "max_episode_steps": 10,
    }
    run = Training(**fields, save_replay_buffer=False)
    assert run_experiment(tmp_path / "alone", run) == "done"
    run_inline(Study("batch", (run,)), tmp_path / "batch", batch_size=1)
    (name,) = Study("batch", (run,)).named()
    alone, batched = ((folder / "metrics.jsonl").read_text() for folder in (tmp_path / "alone", run_folder(tmp_path / "batch", name)))
    assert alone == batched
    assert [json.loads(line)["restarts"] for line in alone.splitlines()] == [0, 0, 0]
