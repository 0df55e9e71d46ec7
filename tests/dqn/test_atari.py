"""Deep Atari agents beside plain lists of episodes, DeepMind's DQN in PyTorch, games that follow a script, and raw ALE."""

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

from actiongap.dqn import atari as emulated
from actiongap.dqn import frame_replay as room
from actiongap.dqn import placement as shelf
from actiongap.dqn.agent import DQN, Agent, Batch
from actiongap.dqn.config import PRESETS, Config
from actiongap.dqn.frame_replay import FrameReplay, FrameStep, add, frame_buffer, init
from actiongap.dqn.networks import NEVER
from actiongap.dqn.replay import Transition, sample_prioritized, sample_uniform
from actiongap.lab.agents import load_trained
from actiongap.lab.batches import batch_runs
from actiongap.lab.checkpoint import read_checkpoint
from actiongap.lab.executors import run_inline
from actiongap.lab.kinds import train as training
from actiongap.lab.kinds.train import Training, TrainingBatch
from actiongap.lab.runner import run_experiment, run_folder, unfinished_runs
from actiongap.lab.study import Study, grid
from actiongap.operators import parse
from atari_reference import Diary, RMSProp, Scripted, diaries, drawable, games_of, in_torch, learn, nature, paper_target

ale_py = pytest.importorskip("ale_py", reason="Atari needs ale-py: pip install 'actiongap[atari]'")

STACK = 4
GAMMA = 0.9
OPERATORS = ("bellman", "al:0.9", "pal-dqn:0.9")


def leaves_equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True))


# Films.


class Told:
    """A film, and the diaries of what was put on it."""

    def __init__(self, slots: int, environments: int, prioritised: bool):
        self.slots, self.environments, self.prioritised = slots, environments, prioritised
        self.diaries = [Diary() for _ in range(environments)]
        self.newest = -1
        number, no = np.zeros(environments, np.float32), np.zeros(environments, bool)
        example = FrameStep(number.astype(np.int32), number, number, no, no, np.zeros((environments, 1, 2), np.uint8), no)
        self.film: FrameReplay = jax.tree.map(jnp.asarray, init(example, slots))

    def round(self, events: str, lives: bool) -> None:
        """A step of all environments: `-` for one that goes on, `o` over, `c` cut short, `l` a life lost, `f` a game that begins."""
        now, n = self.newest + 1, self.environments
        # Frames that differ from all others that a film of this length can hold.
        frame = np.array([[[(now * n + i) % 251 + 1, i + 1]] for i in range(n)], np.uint8)
        action = np.array([(now * 5 + i) % 7 for i in range(n)], np.int32)
        reward = np.array([0.0 if events[i] == "f" else ((now * 3 + i) % 5 - 2) / 2 for i in range(n)], np.float32)
        life = np.array([event == "l" and lives for event in events])
        first, over, cut = (np.array([event == kind for event in events]) for kind in "foc")
        for i, diary in enumerate(self.diaries):
            if first[i]:
                diary.begin(frame[i])
            else:
                diary.step(now, int(action[i]), float(reward[i]), frame[i], bool(over[i] | life[i]))
            if life[i]:
                diary.begin(frame[i])
        discount = np.where(over | life, 0.0, GAMMA).astype(np.float32)
        shot = FrameStep(action, reward, discount, over | cut | life, ~first, frame, first | life)
        self.film = _add(self.film, now % self.slots, shot, self.prioritised)
        self.newest = now

    def possible(self, n: int) -> dict[int, tuple[int, int]]:
        """Places that can be drawn, with their environment and round."""
        found = {}
        for i, diary in enumerate(self.diaries):
            for now in drawable(diary, self.newest, self.slots, n, STACK):
                found[now % self.slots * self.environments + i] = (i, now)
        return found

    def ages(self, n: int) -> tuple[Any, Any]:
        return frame_buffer(STACK).valid_ages(jnp.minimum(self.newest + 1, self.slots), n)


_add = jax.jit(add, static_argnums=3)
_sample = jax.jit(lambda film, place, n: frame_buffer(STACK).sample(film, place, n), static_argnums=2)


@partial(jax.jit, static_argnums=(0, 4))
def _drawn(prioritised, seed, film, newest_ages, count):
    newest, ages = newest_ages
    key = jax.random.key(seed)
    if prioritised:
        return sample_prioritized(key, (count,), film.priority, newest, ages, 0.5)[0]
    return sample_uniform(key, (count,), film.priority, newest, ages, frame_buffer(STACK).gaps)


def assert_recalled(found: Transition, k: int, diary: Diary, now: int, n: int, gamma: float = GAMMA) -> None:
    """That the k-th of some transitions is what the diary says of a round."""
    expected = diary.transition(now, n, gamma, STACK)
    assert np.array_equal(found.observation[k], expected.stack), now
    assert int(found.action[k]) == expected.action
    assert float(found.reward[k]) == pytest.approx(expected.reward, abs=1e-5)
    assert float(found.discount[k]) == pytest.approx(expected.discount, abs=1e-6)
    # What follows a terminal state is never asked for, and where a life was lost it is another episode's first frame.
    assert np.array_equal(found.next_observation[k][..., -1], expected.newest)
    if expected.discount:
        assert np.array_equal(found.next_observation[k], expected.following), now


@given(
    shape=st.sampled_from([(7, 2), (13, 3)]),
    n=st.integers(1, 3),
    lives=st.sampled_from([True, False]),
    prioritised=st.booleans(),
    events=st.lists(st.text("---ocl", min_size=3, max_size=3), min_size=6, max_size=40),
)
@settings(derandomize=True, deadline=None, max_examples=50)
def test_films_recall_what_a_list_of_episodes_says(shape, n, lives, prioritised, events):
    slots, environments = shape
    told = Told(slots, environments, prioritised)
    told.round("f" * environments, lives)
    ended = [False] * environments
    for row in events:
        row = "".join("f" if over else event for event, over in zip(row, ended, strict=False))
        told.round(row, lives)
        ended = [event in "oc" for event in row]
    possible = told.possible(n)
    if not possible:
        return
    places = np.array(sorted(possible))
    found = jax.tree.map(np.asarray, _sample(told.film, jnp.asarray(np.resize(places, slots * environments)), n))
    for k, place in enumerate(places):
        env, now = possible[int(place)]
        assert_recalled(found, k, told.diaries[env], now, n)
    place = np.asarray(_drawn(prioritised, len(events), told.film, (told.newest % slots, told.ages(n)), 4000))
    # Several tries may all have met rows that are no transitions; that is another test's affair.
    real = np.asarray(told.film.priority).reshape(-1)[place] > 0
    assert prioritised is False or real.all()
    assert set(place[real].tolist()) == set(possible)


def short_games(length: int, rounds: int, slots: int = 64) -> Told:
    told = Told(slots, 2, prioritised=False)
    for now in range(rounds):
        told.round(("f" if now % (length + 1) == 0 else "o" if now % (length + 1) == length else "-") * 2, False)
    return told


def test_all_transitions_are_equally_likely():
    told = short_games(20, 100)
    place = np.asarray(_drawn(False, 0, told.film, (told.newest % 64, told.ages(1)), 40_000))
    counts = np.array([(place == one).sum() for one in told.possible(1)])
    assert counts.sum() == 40_000
    mean = 40_000 / len(counts)
    assert abs(counts - mean).max() < 5 * np.sqrt(mean)


def test_what_is_drawn_and_no_transition_does_not_count():
    told = short_games(2, 100)
    few = dataclasses.replace(PRESETS["original-dqn"], num_envs=2, gradient_steps=1, batch_size=4_000, buffer_size=128)
    dqn = DQN(few, [parse("bellman")], (*np.shape(told.film.frame)[2:], few.frame_stack), 3)
    batch = dqn.draw(told.film, told.newest, jax.random.key(0), 0, dqn.config.gradient_steps)
    place, weight = np.asarray(batch.place).reshape(-1), np.asarray(batch.weight).reshape(-1)
    wrong = ~np.isin(place, list(told.possible(1)))
    # A third of all rows begin a game, so four tries in a row do now and then.
    assert 0 < wrong.mean() < 0.05
    assert np.array_equal(weight, np.where(wrong, 0.0, 1.0))


def half_a_row(told: Told) -> FrameReplay:
    """The film after the first environment has taken a step more and the second has not: all it wrote is out of the ordinary."""
    one = np.ones(1, np.float32)
    shot = FrameStep(one.astype(np.int32), 99 * one, one, one < 0, one > 0, np.full((1, 1, 2), 255, np.uint8), one < 0)
    return add(told.film, (told.newest + 1) % told.slots, shot, False, 0)


@pytest.mark.parametrize(("rounds", "slots"), [(40, 64), (100, 64), (40, 6)])
def test_nothing_is_learned_from_a_row_that_is_being_written(rounds, slots):
    told = short_games(20, rounds, slots)
    film, clock = half_a_row(told), told.newest + 1
    few = dataclasses.replace(PRESETS["original-dqn"], num_envs=2, gradient_steps=1, batch_size=8_000, buffer_size=2 * slots)
    dqn = DQN(few, [parse("bellman")], (*np.shape(told.film.frame)[2:], few.frame_stack), 3)

    def strange(behind: int) -> tuple[set[int], bool]:
        """Where transitions are drawn from, and whether any of them is out of the ordinary."""
        batch = dqn.draw(film, clock, jax.random.key(0), 0, 1, behind)
        real = np.asarray(batch.weight).reshape(-1) > 0
        seen = jax.tree.map(lambda part: np.asarray(part)[real], batch.seen)
        parts = (seen.reward == 99).any(), *((part == 255).any() for part in (seen.observation, seen.next_observation))
        return set(np.asarray(batch.place).reshape(-1)[real].tolist()), any(parts)

    assert strange(0)[1]
    places, found = strange(1)
    assert not found
    # All others are drawn, but for those that lose a frame to the row.
    oldest = {place for place, (_, now) in told.possible(1).items() if now <= clock - told.slots + STACK}
    assert places == told.possible(1).keys() - oldest


# Targets and gradient steps.

NATURE = dataclasses.replace(PRESETS["original-dqn"], num_envs=2, gradient_steps=2, batch_size=4, target_update_interval=4)
BATCHES = 90
"""The first of some transitions with which no unit of a network is so close to the edge that rounding decides on which side it is."""


def pictures(count: int, seed: int, side: int) -> np.ndarray:
    """Stacks of large bright and dark shapes."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (count, 12, 12, STACK), np.uint8)
    return coarse.repeat(side // 12, axis=1).repeat(side // 12, axis=2)


def transitions(count: int, actions: int, seed: int, side: int = 84) -> Transition:
    """Transitions of which some are terminal, some cut short, and some miss their target by far."""
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
    """One whose networks differ, and whose values are as large as a game's."""
    agent, other = (dqn.begin(jax.random.key(seed + k), jnp.int32(operator), None, jnp.int32(actions)) for k in (0, 100))

    def louder(layers: Any) -> Any:
        *others, (weights, bias) = layers
        return [*others, (40 * weights, bias)]

    learner = agent.learner._replace(online=louder(agent.learner.online), target=louder(other.learner.online))
    return agent._replace(learner=learner)


def expected_targets(agent: Agent, seen: Transition, operator: str, actions: int, dueling=False, double=False, online=False):
    """As the paper writes them, with the networks that are asked for."""
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
    # The same network reads small pictures too, and sooner.
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
    # Otherwise the three would not tell much apart.
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
    def go_on(agent: Agent, seen: Transition, clock: Any) -> Agent:
        batch = Batch(jnp.zeros((updates, 4), jnp.int32), jnp.ones((updates, 4)), seen)
        learner, loss, _ = dqn.improve(agent, batch, jax.random.key(0))
        return agent._replace(learner=dqn.follow(learner, clock), loss=loss)

    for which, name in [(2, "pal-dqn:0.9")] if dueling else enumerate(OPERATORS):
        agent = first = an_agent(dqn, actions, which)
        layers, loss = in_torch(first.learner.online), 0.0
        optimiser = RMSProp([part for layer in layers for part in layer])
        for clock in (1, 2, 4):
            before, seen = agent.learner.target, transitions(4 * updates, actions, BATCHES + clock, side)
            # All gradient steps of a round have targets from the target network as it was before.
            targets = expected_targets(agent, seen, name, actions, dueling)
            for k in range(updates):
                part = slice(4 * k, 4 * k + 4)
                loss = learn(layers, optimiser, seen.observation[part], seen.action[part], targets[part], actions, dueling)
            agent = go_on(agent, jax.tree.map(jnp.asarray, seen), jnp.int32(clock))
            # It is copied after every other round.
            assert leaves_equal(agent.learner.target, agent.learner.online if clock == 1 else before)
        assert not leaves_equal(agent.learner.target, agent.learner.online)
        assert float(agent.loss) == pytest.approx(loss, rel=1e-5)
        mean, square = (jax.tree.leaves(optax.tree_utils.tree_get(agent.learner.optimiser, what)) for what in ("mu", "nu"))
        for j, (old, new) in enumerate(zip(*map(jax.tree.leaves, (first.learner.online, agent.learner.online)), strict=True)):
            expected, old = optimiser.parameters[j].detach().numpy(), np.asarray(old)
            moved = expected - old.astype(np.float64)
            assert abs(moved).max() > 1e-5
            # Steps round to 32 bits, each once.
            rounding = 3 * updates * np.spacing(abs(old[abs(old) < 1e8]).max())
            assert abs(np.asarray(new) - expected).max() <= rounding + 2e-5 * abs(moved).max()
            # Ours are of the mean over a batch of 4, the reference's of the sum.
            for found, known in ((4 * mean[j], optimiser.mean[j].numpy()), (16 * square[j], optimiser.square[j].numpy())):
                assert abs(np.asarray(found) - known).max() <= 2e-5 * abs(known).max()
        *_, (weights, bias) = agent.learner.online
        here = actions + dueling
        assert (np.asarray(weights)[:, here:] == 0).all()
        assert (np.asarray(bias)[here:] == np.float32(NEVER)).all()


@pytest.mark.every(2)
@pytest.mark.parametrize("variant", [{"correction_network": "online"}, {"double": True}], ids=str)
def test_each_gradient_step_asks_the_online_network_as_it_is_then(variant):
    config = dataclasses.replace(NATURE, learning_rate=0.01, **variant)
    dqn = DQN(config, [parse("pal-dqn:0.9")], (36, 36, STACK), 18, mask_actions=True)
    improve, seen = jax.jit(dqn.improve), jax.tree.map(jnp.asarray, transitions(8, 6, 3, 36))

    def learned(agent: Agent, *batches: slice) -> Agent:
        for part in batches:
            some = jax.tree.map(lambda rows, part=part: rows[part], seen)
            count = len(some.action) // 4
            learner, _, _ = improve(agent, Batch(jnp.zeros((count, 4), jnp.int32), jnp.ones((count, 4)), some), jax.random.key(0))
            agent = agent._replace(learner=learner)
        return agent

    # Its actions are worth about the same, so that a step changes which is best.
    agent = dqn.begin(jax.random.key(0), jnp.int32(0), None, jnp.int32(6))
    together, apart = learned(agent, slice(0, 8)), learned(agent, slice(0, 4), slice(4, 8))
    for one, other in zip(*map(jax.tree.leaves, (together.learner.online, apart.learner.online)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_a_batch_moves_weights_as_deepminds_does():
    dqn = DQN(dataclasses.replace(NATURE, gradient_steps=1, batch_size=32), [parse("bellman")], (4,), 3)
    agent = dqn.begin(jax.random.key(0), jnp.int32(0), None)
    x = np.ones((32, 4), np.float32)
    seen = Transition(x, np.zeros(32, np.int32), np.full(32, 5, np.float32), np.zeros(32, np.float32), x, np.ones(32, bool))
    batch = Batch(jnp.zeros((1, 32), jnp.int32), jnp.ones((1, 32)), jax.tree.map(jnp.asarray, seen))
    learner, _, _ = jax.jit(dqn.improve)(agent, batch, jax.random.key(0))
    # All errors are clipped to -1, so the gradient of the last bias is -32, which its own square and mean then divide.
    moved = float(learner.online[-1][1][0] - agent.learner.online[-1][1][0])
    assert moved == pytest.approx(2.5e-4 * 32 / np.sqrt(0.05 * 32**2 - (0.05 * 32) ** 2 + 0.01), rel=1e-3)


def test_actions_that_a_game_does_not_have_are_never_chosen():
    dqn = DQN(dataclasses.replace(NATURE, frame_stack=2, buffer_size=100), [parse("bellman")], (10, 10, 2), 18, mask_actions=True)
    x = jnp.asarray(np.random.default_rng(0).integers(0, 256, (600, 10, 10, 2), np.uint8))
    for actions in (3, 6, 17):
        online = an_agent(dqn, actions, 0).learner.online
        greedy, random = (np.asarray(dqn.choose(online, x, epsilon, jax.random.key(1))) for epsilon in (0.0, 1.0))
        assert np.array_equal(greedy, np.asarray(dqn.values(online, x))[:, :actions].argmax(axis=1))
        counts = np.bincount(random, minlength=18)
        assert counts[actions:].sum() == 0
        assert abs(counts[:actions] - 600 / actions).max() < 6 * np.sqrt(600 / actions)


# Populations whose games follow a script.

SIDE = 10
ENVIRONMENTS = 3
SLOTS = 12
BEGUN = 30
"""Rounds before the first gradient step."""
FEW = Config(
    gamma=GAMMA,
    num_envs=ENVIRONMENTS,
    gradient_steps=2,
    batch_size=4,
    buffer_size=SLOTS * ENVIRONMENTS,
    learning_starts=BEGUN * ENVIRONMENTS,
    target_update_interval=6,
    n_step=2,
    final_epsilon=0.0,
    exploration_steps=0,
    frame_stack=STACK,
    clip_rewards=True,
)
COUNT = {"pong": 6, "asterix": 9}


@pytest.fixture(scope="module")
def scripted() -> tuple[emulated.AtariPopulation, Scripted]:
    """A population of two agents, at consoles with small screens that show what a script says; its optimiser counts its steps."""
    with pytest.MonkeyPatch.context() as patch:
        known = emulated.atari_game
        patch.setattr(emulated, "atari_game", lambda name: known(name)._replace(shape=(SIDE, SIDE)))
        people = emulated.AtariPopulation(list(COUNT), FEW, ["bellman", "al:0.9"])
    people.dqn.optimizer = optax.chain(people.dqn.optimizer, optax.scale_by_schedule(lambda count: jnp.ones_like(count, jnp.float32)))
    people.dqn.epsilon = lambda iteration: jnp.float32(0.0)
    people.emulators = script = Scripted(2 * ENVIRONMENTS, SIDE)  # pyright: ignore[reportAttributeAccessIssue]
    return people, script


@pytest.fixture
def with_lives(scripted, monkeypatch):
    """The population, which takes lives as it is told, and a new script."""
    people, script = scripted

    def so(lives: bool) -> tuple[emulated.AtariPopulation, Scripted]:
        monkeypatch.setattr(people.dqn, "config", dataclasses.replace(FEW, terminal_on_life_loss=lives))
        script.log.clear()
        script.game[:] = 0
        return people, script

    return so


def film_of(players: Any, agent: int) -> FrameReplay:
    return jax.tree.map(lambda part: jnp.asarray(np.asarray(part)[agent]), players.agent.replay)


def online_of(players: Any, agent: int) -> Any:
    return jax.tree.map(lambda part: np.array(part[agent]), players.agent.learner.online)


def assert_remembered(players: Any, told: list[Diary], newest: int, n: int) -> None:
    """That films hold the transitions of diaries, and nothing else that could be drawn."""
    for agent in range(2):
        film = film_of(players, agent)
        mine = told[agent * ENVIRONMENTS : (agent + 1) * ENVIRONMENTS]
        possible = [(i, now) for i in range(ENVIRONMENTS) for now in drawable(mine[i], newest, SLOTS, n, STACK)]
        place = jnp.asarray([now % SLOTS * ENVIRONMENTS + i for i, now in possible])
        found = jax.tree.map(np.asarray, frame_buffer(STACK).sample(film, place, n))
        assert possible
        for k, (i, now) in enumerate(possible):
            assert_recalled(found, k, mine[i], now, n)
        for now in range(newest - SLOTS + 1, newest + 1):
            real = [now in diary.rounds for diary in mine]
            assert ((np.asarray(film.priority)[now % SLOTS] > 0) == real).all()


@pytest.mark.parametrize("lives", [False, True])
def test_agents_remember_the_games_they_played(with_lives, lives):
    people, script = with_lives(lives)
    players = people.start([5, 6])
    before, scores = [online_of(players, agent) for agent in range(2)], np.zeros((2, 2))
    for clock, rounds in ((0, 9), (9, 17)):
        players = people.train(players, clock, rounds)
    told = diaries(script.log, 0, lives, clipped=True)
    assert_remembered(players, told, 25, 1)
    # Greedy in what the list of episodes says was seen.
    values = jax.jit(people.dqn.values)
    for row, diary in enumerate(told):
        assert list(diary.rounds) == [now for now in range(26) if not script.log[now][1].first[row]]
        acted = [step for now, step in diary.rounds.items() if now > 0]
        stacks = np.stack([episode.stack(k, STACK) for episode, k in acted])
        best = values(before[row // ENVIRONMENTS], jnp.asarray(np.resize(stacks, (26, *stacks.shape[1:]))))[: len(stacks)]
        assert np.array_equal(best.argmax(axis=1), [episode.actions[k] for episode, k in acted])
    # Scores are raw, and of games that ended; what is remembered is clipped.
    total = np.zeros(2 * ENVIRONMENTS)
    for _, seen in script.log:
        total = np.where(seen.first, 0.0, total + seen.reward)
        for row in np.flatnonzero(seen.over | seen.cut):
            scores[row // ENVIRONMENTS] += total[row], 1
    assert scores[:, 1].min() > 5
    np.testing.assert_allclose(players.world.finished, scores[:, 0], rtol=1e-6)
    assert np.array_equal(players.world.episodes, scores[:, 1])
    assert abs(np.asarray(players.agent.replay.reward)).max() == 1
    assert all(leaves_equal(online_of(players, agent), before[agent]) for agent in range(2))


def test_several_steps_stay_in_the_game_they_began_in(with_lives):
    people, script = with_lives(False)
    players = people.train(people.train(people.start([5, 6]), 0, 9), 9, 7)
    assert_remembered(players, diaries(script.log, 0, False, clipped=True), 15, 2)


def evaluation(people: Any, players: Any, script: Scripted, agent: int, limit: int, episodes: int, steps: int) -> dict[str, float]:
    """What an evaluation comes to, from what was shown in it, game by game."""
    online, log, lives = online_of(players, agent), script.log, people.dqn.config.terminal_on_life_loss
    mine = range(agent * ENVIRONMENTS, (agent + 1) * ENVIRONMENTS)
    games = sorted((game for env in mine for game in games_of(log, env, STACK, limit)), key=lambda game: (game.begun, game.env))
    # The round before a game's first frame ended another, or there was none.
    in_time = [game for game in games if max(game.begun - 1, 0) * ENVIRONMENTS < steps]
    games = in_time if steps else games[:episodes]
    values = jax.jit(people.dqn.values)
    value, gap, bias = [], [], []
    for game in games:
        shown = np.stack([*game.stacks, game.last])
        q = np.sort(np.asarray(values(online, jnp.asarray(np.resize(shown, (16, *shown.shape[1:])))))[: len(shown)], axis=1)
        after = 0.0 if game.over else float(q[-1, -1])
        returns = []
        for reward, lost in reversed(list(zip(game.rewards, game.lost, strict=True))):
            after = np.clip(reward, -1, 1) + GAMMA * (0.0 if lost and lives else after)
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


def assert_evaluated(scripted: tuple[emulated.AtariPopulation, Scripted], episodes: int, limit: int, steps: int) -> None:
    people, script = scripted
    players = people.start([7, 8])
    found = people.evaluate(players, 3, episodes, limit, 0.5, **({"steps": steps} if steps else {}))._asdict()
    for agent, count in enumerate(COUNT.values()):
        rows = slice(agent * ENVIRONMENTS, (agent + 1) * ENVIRONMENTS)
        sent = np.concatenate([actions[rows] for actions, _ in script.log if actions is not None])
        assert (sent < count).all()
        if not steps:
            assert found["games"][agent] == episodes
        for name, value in evaluation(people, players, script, agent, limit, episodes, steps).items():
            assert found[name][agent] == pytest.approx(value, rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("lives", [False, True])
@pytest.mark.parametrize(("episodes", "limit", "steps"), [(1, 99, 0), (3, 99, 0), (8, 99, 0), (99, 99, 40), (99, 99, 1)])
def test_evaluations_are_what_their_games_come_to(with_lives, lives, episodes, limit, steps):
    assert_evaluated(with_lives(lives), episodes, limit, steps)


def test_games_that_go_on_for_too_long_are_cut_short(with_lives):
    for limit in (1, 4):
        assert_evaluated(with_lives(False), 2, limit, 0)


def test_nothing_comes_after_a_life_that_is_lost_with_the_last_step(with_lives):
    for limit in range(1, 9):
        assert_evaluated(with_lives(True), 3, limit, 0)


def test_there_are_as_many_games_as_asked_for_where_they_are_cut_short(with_lives):
    people, _ = with_lives(False)
    assert people.evaluate(people.start([7, 8]), 3, 8, 2, 0.5).games.tolist() == [8, 8]


def test_gradient_steps_are_as_many_as_the_settings_say(with_lives):
    people, _ = with_lives(False)
    players, clock = people.start([1, 2]), 0
    for rounds, expected in ((BEGUN - 1, 0), (1, 1), (1, 2), (5, 7)):
        players = people.train(players, clock, rounds)
        clock += rounds
        taken = np.asarray(optax.tree_utils.tree_get(players.agent.learner.optimiser, "count"))
        assert (taken == FEW.gradient_steps * expected).all()
    for name in ("stochastic-minimal", "original-dqn"):
        # One gradient step of 32 transitions for every four steps.
        preset = PRESETS[name]
        assert preset.gradient_steps * 4 == preset.num_envs
        assert preset.batch_size == 32
        assert preset.replay_ratio == 8


def test_wherever_films_and_networks_are_written_agents_learn_alike(with_lives, monkeypatch):
    ends = []
    # In place as accelerators learn, then as a CPU does, then with films elsewhere.
    for in_place, near in ((True, True), (False, True), (False, False)):
        people, _ = with_lives(True)
        monkeypatch.setattr(people.shelf, "in_place", in_place)
        monkeypatch.setattr(people.shelf, "near", near)
        ends.append(people.get(people.train(people.train(people.start([3, 4]), 0, BEGUN + 2), BEGUN + 2, 3)))
    for one, *others in zip(*ends, strict=True):
        for other in others:
            assert one.keys() == other.keys()
            for name in one:
                np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_seed_repeats_and_saved_agents_continue_bit_for_bit(with_lives):
    people, script = with_lives(True)

    def begun() -> Any:
        script.log.clear()
        script.game[:] = 0
        return people.train(people.start([3, 4]), 0, BEGUN + 2)

    saved = people.get(begun())
    games = script.game.copy()
    whole = people.get(people.train(begun(), BEGUN + 2, 3))
    script.game[:] = games
    resumed = people.get(people.train(people.put(saved), BEGUN + 2, 3))
    for one, other, first in zip(whole, resumed, saved, strict=True):
        assert [name for name in one if not np.array_equal(one[name], other[name])] == []
        assert not np.array_equal(one[".agent.learner.online[0][0]"], first[".agent.learner.online[0][0]"])


@pytest.mark.long
def test_gradient_steps_are_shared_out_among_shifts(monkeypatch):
    few = Config(
        num_envs=2,
        gradient_steps=2,
        batch_size=4,
        buffer_size=40,
        learning_starts=8,
        target_update_interval=8,
        frame_stack=STACK,
        clip_rewards=True,
    )
    people = emulated.AtariPopulation(["pong"], few, ["al:0.9"])
    people.dqn.optimizer = optax.chain(people.dqn.optimizer, optax.scale_by_schedule(lambda count: jnp.ones_like(count, jnp.float32)))
    learn, counts, ends = people.shelf.learn, [], []

    def counted(*given: Any, **how: Any) -> Any:
        agents = learn(*given, **how)
        counts.append(int(optax.tree_utils.tree_get(agents.learner.optimiser, "count")[0]))
        return agents

    monkeypatch.setattr(people.shelf, "learn", counted)
    for people.shelf.in_place, people.shelf.near in ((True, True), (False, False)):
        ends.append(people.get(people.train(people.start([3]), 0, 10))[0])
    # One after each shift, from the fourth round on.
    assert counts == 2 * [*[0] * 6, *range(1, 15)]
    for name in ends[0]:
        np.testing.assert_allclose(ends[0][name], ends[1][name], rtol=1e-4, atol=1e-6, err_msg=name)
    # The target network followed after the eighth round, with both shares: in the tenth it is behind.
    assert not np.array_equal(ends[0][".agent.learner.online[0][0]"], ends[0][".agent.learner.target[0][0]"])
    people.emulators.close()


# Games of Atari.

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
"""Three chunks of five rounds; memory holds ten, and learning begins with the fourth."""
CHUNK, ENOUGH = 5, 4


def specs() -> list[Training]:
    return [Training(env=f"atari/{game}", operator=OPERATORS[i], seed=i, **TINY) for i, game in enumerate(TRIO)]


class Spy:
    """A shift of emulators, with a list of what was sent to them and shown by them since they began."""

    def __init__(self, emulators: Any):
        self.emulators, self.begun = emulators, False

    def begin(self, seeds: Any) -> Any:
        self.seeds, self.sent, self.begun = np.array(seeds), [], True
        self.shown = [self.emulators.begin(seeds)]
        return self.shown[0]

    def send(self, actions: Any) -> None:
        self.sent.append(np.array(actions))
        self.emulators.send(actions)

    def receive(self) -> Any:
        self.shown.append(self.emulators.receive())
        return self.shown[-1]


@pytest.fixture
def spies(company, monkeypatch) -> tuple[Spy, ...]:
    """One in each shift of the company's emulators."""
    monkeypatch.setattr(company.people.emulators, "parts", found := tuple(map(Spy, company.people.emulators.parts)))
    return found


class Company(NamedTuple):
    """Agents of three games that were trained together and undisturbed."""

    out: Path
    study: Study
    people: emulated.AtariPopulation
    ready: dict
    course: list[list[dict[str, np.ndarray]]]
    """The agents before each chunk of training, and after the last."""


@pytest.fixture(scope="module")
def company(tmp_path_factory) -> Company:
    study, out, course = Study("trio", tuple(specs())), tmp_path_factory.mktemp("company"), []
    train = emulated.AtariPopulation.train

    def recorded(people: Any, lives: Any, clock: int, rounds: int, **others: Any) -> Any:
        course.append(people.get(lives))
        lives = train(people, lives, clock, rounds, **others)
        if clock + rounds == 3 * CHUNK:
            course.append(people.get(lives))
        return lives

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emulated.AtariPopulation, "train", recorded)
        patch.setattr(training, "_READY", {})
        outcome = run_inline(study, out, batch_size=3)
        ready = dict(training._READY)
    assert len(outcome.done) == 3, outcome.failed
    (people,) = ready.values()
    return Company(out, study, people, ready, course)


@pytest.fixture
def course(company) -> list[list[dict[str, np.ndarray]]]:
    return company.course


def differing(one: dict[str, np.ndarray], other: dict[str, np.ndarray], but: str = "operator") -> list[str]:
    """What is not the same to the bit. Which number an operator has depends on the company."""
    assert one.keys() == other.keys()
    return [name for name in one if not np.array_equal(one[name], other[name]) and but not in name]


def final(out: Path, study: Study, game: str) -> tuple[bytes, dict[str, np.ndarray]]:
    """The rows of an agent, and what it learned."""
    folder = next(run_folder(out, name) for name in study.named() if game in name)
    return (folder / "metrics.jsonl").read_bytes(), read_checkpoint(max((folder / "checkpoint").glob("*.npz"))).state


@pytest.mark.long
def test_a_batch_of_several_games_writes_rows_and_networks_of_each_run(company, course):
    out, study = company.out, company.study
    for i, game in enumerate(TRIO):
        rows, learned = final(out, study, game)
        told = [json.loads(line) for line in rows.splitlines()]
        assert [row["step"] for row in told] == [40, 80, 120]
        assert all(row["restarts"] == 0 and row["games"] == 2 and row["length"] == 10 for row in told)
        # Evaluations leave no trace, and neither does saving.
        for name, part in learned.items():
            assert np.array_equal(part, course[3][i][".agent.learner.online" + name])
        agent = load_trained(next(run_folder(out, name) for name in study.named() if game in name))
        assert leaves_equal(agent.parameters, list(learned.values()))


def layers_of(state: dict[str, np.ndarray], which: str = "online") -> list[tuple[np.ndarray, np.ndarray]]:
    return [(state[f".agent.learner.{which}[{k}][0]"], state[f".agent.learner.{which}[{k}][1]"]) for k in range(5)]


@pytest.mark.long
def test_agents_of_different_games_have_values_and_actions_of_their_own(company, course, spies):
    pytest.importorskip("torch", reason="the reference is in PyTorch: pip install 'actiongap[torch]'")
    people = company.people
    players = people.put(course[2])
    scores = people.evaluate(players, 2 * CHUNK, 2, 3, 0.0)
    for i, count in enumerate((6, 9, 4)):
        before, after = course[2][i], course[3][i]
        for which in ("online", "target"):
            (weights, bias), start = layers_of(after, which)[-1], layers_of(course[0][i])[-1]
            assert (weights[:, count:] == 0).all()
            assert (bias[count:] == np.float32(NEVER)).all()
            assert not np.array_equal(weights[:, :count], start[0][:, :count])
        black = np.zeros((84, 84), np.uint8)
        values = []
        for spy in spies:
            for t in range(3):
                seen = [black] * 3 + [shown.frame[i] for shown in spy.shown[: t + 1]]
                q = nature(in_torch(layers_of(before)), np.stack(seen[-4:], axis=-1)[None], count)[0].numpy()
                assert spy.sent[t][i] == q.argmax()
                values.append(q.max())
        assert scores.value[i] == pytest.approx(np.mean(values), rel=1e-5)


@pytest.mark.long
def test_one_seed_repeats_and_another_does_not(company, course):
    people = company.people
    again = people.get(people.train(people.start([0, 1, 5]), 0, CHUNK))
    *same, other = (differing(one, two) for one, two in zip(again, course[1], strict=True))
    assert same == [[], []]
    assert {".agent.key", ".agent.learner.online[0][0]", ".agent.replay.frame", ".agent.replay.action"} <= set(other)


@pytest.mark.long
def test_put_down_and_taken_up_agents_go_on_as_if_nothing_had_happened(company, course, monkeypatch):
    # Films are put back in pieces, the last of which is shorter.
    monkeypatch.setattr(shelf, "AT_ONCE", 7)
    people = company.people
    resumed = people.get(people.train(people.put(course[2]), 2 * CHUNK, CHUNK))
    assert [differing(one, two) for one, two in zip(resumed, course[3], strict=True)] == [[], [], []]


@pytest.mark.long
def test_without_their_films_agents_remember_anew_before_they_learn(company, course, monkeypatch):
    _, study, people, ready, _ = company
    monkeypatch.setattr(training, "_READY", dict(ready))
    monkeypatch.setattr(people, "keep", False)
    team = TrainingBatch(study.runs)
    assert team.population is people
    states = people.get(people.put(course[2]))
    assert not any(name.startswith(".agent.replay") for state in states for name in state)
    players = people.put(states)
    assert people.restarts(players).tolist() == [1, 1, 1]
    players = people.train(players, 2 * CHUNK, ENOUGH - 1)
    waited = people.get(players)
    for one, other in zip(waited, states, strict=True):
        assert differing(one, other, but="world") == [
            name for name in one if "target" in name and not np.array_equal(one[name], other[name])
        ]
    film = jax.tree.map(np.array, players.agent.replay)
    assert film.priority.sum() == 3 * 2 * (ENOUGH - 2)
    # The first round of a call does but begin games, so there is something to learn from a little later.
    players = people.train(players, 2 * CHUNK + ENOUGH - 1, 4)
    learned = people.get(players)
    assert all(".agent.learner.online[0][0]" in differing(one, other) for one, other in zip(learned, waited, strict=True))
    # Whose memory had not begun has lost nothing.
    assert people.restarts(people.put(people.get(people.start([0, 1, 2])))).tolist() == [0, 0, 0]
    # The run says so in its rows.
    _, rows = team.advance(team.put(states), 2)
    assert [row["restarts"] for (row,) in rows] == [1, 1, 1]


@pytest.mark.long
def test_scores_are_those_of_raw_ale(company, course, spies):
    from raw_ale import RawGame

    people = company.people
    limit = 40
    found = people.evaluate(people.put(course[3]), 3 * CHUNK, 2, limit, 1.0)
    for i, game in enumerate(TRIO):
        totals = []
        for spy in spies:
            raw = RawGame(game, int(spy.seeds[i]), 0.25, 108_000)
            raw.begin()
            totals.append(sum(raw.step(int(actions[i]))[0] for actions in spy.sent[:limit]))
        assert found.score[i] == np.mean(totals)
    assert found.score.any()
    # At random, all actions of a game and no others.
    sent = np.stack([spy.sent for spy in spies])
    assert [sorted(set(sent[:, :, i].flat)) for i in range(3)] == [list(range(count)) for count in (6, 9, 4)]
    # EmulatorGroups have seeds and luck of their own.
    assert not np.array_equal(*sent)
    assert not np.array_equal(*(spy.seeds for spy in spies))


@pytest.mark.long
def test_a_shift_without_games_is_not_bothered(company, course, spies):
    people = company.people
    found = people.evaluate(people.put(course[3]), 3 * CHUNK, 1, 5, 1.0)
    assert found.games.tolist() == [1, 1, 1]
    assert [spy.begun for spy in spies] == [False, True]
    # Where steps are counted all play.
    found = people.evaluate(people.put(course[3]), 3 * CHUNK, 1, 5, 1.0, steps=1)
    assert found.games.tolist() == [2, 2, 2]
    assert [spy.begun for spy in spies] == [True, True]


PROGRAM = """
import json, sys
from actiongap.lab.kinds.train import Training
from actiongap.lab.executors import run_inline
from actiongap.lab.study import Study
run_inline(Study("alone", (Training(**json.loads(sys.argv[2])),)), sys.argv[1], batch_size=1, save_every=0.0)
"""


@pytest.mark.long
def test_killed_alone_an_agent_comes_to_the_end_it_has_in_company(company, tmp_path, monkeypatch):
    out, study = company.out, company.study
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


# What is refused.


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
            "loss is 'Huber': choose from huber, squared",
        ),
        ({"env": "atari/pong", "frame_stack": 4, "max_grad_norm": -1.0}, "max_grad_norm is -1.0: it must be above 0, or be left out"),
        (
            {"env": "atari/pong", "frame_stack": 4, "buffer_size": 4, "num_envs": 1},
            "buffer_size is 4: it must be at least 6, 6 iterations of 1 environments",
        ),
        ({"env": "atari/pong", "frame_stack": 4, "double": True, "correction_network": "online"}, "leave out double"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(fields, sentence):
    with pytest.raises(ValueError, match=sentence) as refused:
        Training(**fields)
    assert "\n" not in str(refused.value)


def test_films_that_do_not_fit_are_refused_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(room, "host_budget", lambda: 10e9)
    with pytest.raises(ValueError, match="train fewer agents at once") as refused:
        emulated.AtariPopulation(["pong", "pong"], PRESETS["original-dqn"], ["bellman", "al:0.9"])
    sentence = str(refused.value)
    assert "what 2 agents remember takes 14.1 GB, and there is room for 10.0 GB" in sentence
    remedy = int(sentence.split("a replay of ")[1].split(",")[0])
    assert 2 * remedy * (84 * 84 + 18) <= 10e9 < 2 * (remedy + 2000) * (84 * 84 + 18)


def test_a_film_that_fits_nowhere_is_told_in_the_record_of_its_run(monkeypatch, tmp_path):
    monkeypatch.setattr(room, "host_budget", lambda: 5e9)
    monkeypatch.setattr(training, "_READY", {})
    fields = {**dataclasses.asdict(PRESETS["original-dqn"]), "env": "atari/pong"}
    outcome = run_inline(Study("large", grid("train", **fields, seed=range(2))), tmp_path, batch_size=2)
    assert len(outcome.failed) == 2
    (sentence,) = set(outcome.failed.values())
    assert sentence == "what an agent remembers takes 7.1 GB, and there is room for 5.0 GB: take a replay of 706000"


def test_no_replay_is_advised_that_would_be_refused(monkeypatch):
    monkeypatch.setattr(room, "host_budget", lambda: 5e6)
    with pytest.raises(ValueError, match="take a much smaller replay") as refused:
        emulated.AtariPopulation(["pong"], Config(**{**dataclasses.asdict(FEW), "buffer_size": 5_000}), ["bellman"])
    assert "replay of 0" not in str(refused.value)


def test_batches_are_no_larger_than_memory_allows(monkeypatch):
    monkeypatch.setattr(room, "host_budget", lambda: 30e9)
    fields = {**dataclasses.asdict(PRESETS["original-dqn"]), "env": ("atari/pong", "atari/asterix")}
    study = Study("large", grid("train", **fields, seed=range(5)))
    assert [len(batch) for batch in batch_runs(study.named(), batch_size=160)] == [3, 3, 4]
    assert [len(batch) for batch in batch_runs(study.named(), batch_size=2)] == [2] * 5
    taken = Training.resource_note(study.runs[:4])  # pyright: ignore[reportArgumentType]
    assert taken == "the replay buffers of 4 agents (1,000,000 steps each) take 28.3 GB of memory"
    # Agents that keep no films are as many as they are asked to be.
    assert [len(batch) for batch in batch_runs({"one": Training(), "other": Training(seed=1)}, batch_size=160)] == [2]


@pytest.mark.long
def test_whoever_trains_alone_keeps_what_it_remembers(tmp_path):
    fields = {
        **dataclasses.asdict(FEW),
        "env": "atari/pong",
        "frames": 120,
        "eval_every": 40,
        "evaluation_steps": 10,
        "max_episode_steps": 10,
    }
    run = Training(**fields, save_memory=False)
    assert run_experiment(tmp_path / "alone", run) == "done"
    run_inline(Study("batch", (run,)), tmp_path / "batch", batch_size=1)
    (name,) = Study("batch", (run,)).named()
    alone, batched = ((folder / "metrics.jsonl").read_text() for folder in (tmp_path / "alone", run_folder(tmp_path / "batch", name)))
    assert alone == batched
    assert [json.loads(line)["restarts"] for line in alone.splitlines()] == [0, 0, 0]
