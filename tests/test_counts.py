"""Performance by counts rather than by time: compilations, sweeps, bytes and transfers of fixed cases do not grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np
import pytest
from numba.core.event import install_recorder

from actiongap import garnet, load_mdp, parse, solve
from actiongap.dqn.config import Config
from actiongap.dqn.frame_replay import replay_bytes
from actiongap.dqn.population import Population
from actiongap.envs.classic import mountain_car
from actiongap.envs.minatar import GAMES
from actiongap.mdp.generators import cake
from actiongap.planning.backups import SweepConfig
from actiongap.planning.checks import required_memory
from actiongap.planning.plan import grid_of, sweeps_for, zero_q

EVENTS: Counter[str] = Counter()
jax.monitoring.register_event_duration_secs_listener(lambda event, duration_secs, **kwargs: EVENTS.update([event]))


@contextmanager
def compilations() -> Iterator[Counter[str]]:
    """How many programs JAX and Numba compile inside the block, in `total()` once it is left. A cached program of JAX counts as well."""
    counted: Counter[str] = Counter()
    before = EVENTS["/jax/core/compile/backend_compile_duration"]
    with install_recorder("numba:compile") as recorder:
        yield counted
    counted["jax"] = EVENTS["/jax/core/compile/backend_compile_duration"] - before
    counted["numba"] = sum(event.is_start for _, event in recorder.buffer)


@pytest.fixture(scope="module")
def population():
    # The example of `Population`, so that one compilation serves both.
    config = Config(num_envs=2, batch_size=4, buffer_size=40, learning_starts=8)
    return Population(GAMES["breakout"], config, ["bellman", "al:0.5"])


def test_a_population_is_compiled_once_for_all_chunks_and_lengths(population):
    with compilations() as first:
        agents = population.train(population.start([0, 1]), 0, 4)
        population.evaluate(agents, 4, 2, 20, 0.0)
    assert 0 < first.total() <= 4
    with compilations() as later:
        for iteration, count in ((4, 4), (8, 4), (12, 7)):
            agents = population.train(agents, iteration, count)
            population.evaluate(agents, iteration + count, 2, 20, 0.0)
    assert later.total() == 0


def test_training_takes_eight_bytes_from_the_host_and_gives_none_back(population, monkeypatch):
    agents, sent, compiled = population.start([0, 1]), [], population._train

    def recorded(*arguments):
        leaves = jax.tree.leaves(arguments)
        sent.append(sum(np.asarray(leaf).nbytes for leaf in leaves if not isinstance(leaf, jax.Array)))
        return compiled(*arguments)

    monkeypatch.setattr(population, "_train", recorded)
    for iteration in (0, 4):
        agents = population.train(agents, iteration, 4)
    # Where it is and how far it goes, two numbers of 32 bits.
    assert sent == [8, 8]
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(agents))


def test_the_bytes_of_an_agent_do_not_grow(population):
    (agent, _) = population.get(population.start([0, 1]))
    # Mostly two networks, the optimizer's two moments, and 40 steps of replay in which a board of 400 cells takes 50 bytes.
    assert sum(array.nbytes for array in agent.values()) <= 2_120_598


def test_frames_are_kept_once():
    # A stack of four frames per step would take four times as much.
    assert replay_bytes(1, 1000, (84, 84)) <= 1.01 * 1000 * 84 * 84


@pytest.mark.parametrize("engine", ["numba", "jax"])
def test_sweeps_over_a_grid_are_compiled_once(engine):
    simulator = mountain_car()
    grid = grid_of(simulator, 5)
    sweeps = sweeps_for(simulator, grid, SweepConfig(parse("al:0.5"), 0.9), engine)
    with compilations() as first:
        table, _ = sweeps.advance(sweeps.put(zero_q(simulator, grid)), 0, 3)
    assert first.total() > 0
    with compilations() as later:
        for number in (3, 6):
            table, _ = sweeps.advance(table, number, 3)
    assert later.total() == 0


def test_models_of_one_shape_share_their_kernel():
    with compilations() as first:
        solve(garnet(30, 3, 2, seed=0), "al:0.35", engine="numba")
    assert first["numba"] > 0
    with compilations() as later:
        solve(garnet(20, 3, 2, seed=1), "al:0.35", engine="numba")
    assert later.total() == 0


SWEEPS = {
    "cake": {"bellman": 207, "consistent": 231, "al:0.9": 278, "pal:0.9": 231, "lazy:0.5": 229},
    "garnet:100,4,5": {"bellman": 50, "consistent": 125, "al:0.9": 245, "pal:0.9": 236, "lazy:0.5": 2654},
    "gridworld:5,5": {"bellman": 56, "consistent": 229, "al:0.9": 257, "pal:0.9": 255, "lazy:0.5": 57},
    "chain:6": {"bellman": 22, "consistent": 245, "al:0.9": 251, "pal:0.9": 245, "lazy:0.5": 245},
}
"""Largest allowed number of sweeps of `solve`: the number when this test was written."""


@pytest.mark.parametrize(("mdp", "operator"), [(mdp, operator) for mdp, counts in SWEEPS.items() for operator in counts])
def test_solve_needs_no_more_sweeps(mdp, operator):
    assert solve(load_mdp(mdp), operator, engine="arrays").sweeps <= SWEEPS[mdp][operator]


def test_the_bytes_of_models_do_not_grow():
    assert cake().nbytes <= 96
    # Rewards, and for each of five successors a state of 32 bits and a probability.
    assert garnet(1000, 4, 5).nbytes <= 1000 * 4 * (8 + 5 * (4 + 8))
    assert garnet(20, 3, 4).dense().nbytes <= 20 * 3 * (8 + 20 * 8)


def test_the_bytes_of_a_plan_do_not_grow():
    simulator = mountain_car()
    assert required_memory(simulator, grid_of(simulator, 41), "numba")["memory"] <= 6 * 4 * 41 * 41 * 3
