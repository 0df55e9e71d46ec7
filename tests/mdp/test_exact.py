"""Exact references against enumeration, value iteration and closed forms, at every scale of rewards; and the policies they refuse."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actiongap.mdp.exact import (
    distribution_matrix,
    evaluate_policy,
    policy_iteration,
    policy_matrix,
    policy_rewards,
    q_from_v,
    q_stationary,
)
from actiongap.mdp.generators import cake, chain, garnet, gridworld, single_state
from actiongap.mdp.model import FiniteMDP
from helpers import MDPS, mdps

SCALES = [10.0**power for power in range(-15, 16, 3)]


def scaled(mdp: FiniteMDP, scale: float) -> FiniteMDP:
    return FiniteMDP(mdp.rewards * scale, mdp.transitions, mdp.gamma, f"{scale:g} {mdp.name}")


def best_by_enumeration(mdp: FiniteMDP) -> np.ndarray:
    """The largest V of all deterministic policies, each evaluated by a dense solve."""
    table, states = mdp.dense().transitions.probabilities, np.arange(mdp.states)
    best = np.full(mdp.states, -np.inf)
    for actions in product(range(mdp.actions), repeat=mdp.states):
        chosen = (states, np.array(actions))
        best = np.maximum(best, np.linalg.solve(np.eye(mdp.states) - mdp.gamma * table[chosen], mdp.rewards[chosen]))
    return best


@pytest.mark.parametrize("scale", SCALES)
def test_small_rewards_change_actions_like_large_ones(scale):
    moves = np.array([[[0], [1]], [[1], [1]]])
    mdp = FiniteMDP.from_successors(scale * np.array([[1.0, 0.0], [1.5, 1.5]]), moves, np.ones((2, 2, 1)), 0.9)
    _, v, policy = policy_iteration(mdp)
    np.testing.assert_allclose(v, [13.5 * scale, 15 * scale], rtol=1e-12)
    assert policy[0] == 1


@settings(derandomize=True, deadline=None, max_examples=60)
@given(mdp=mdps(max_states=4), scale=st.sampled_from(SCALES))
def test_no_deterministic_policy_is_better(mdp, scale):
    best = best_by_enumeration(scaled(mdp, scale))
    q, v, policy = policy_iteration(scaled(mdp, scale))
    atol = 1e-12 * np.abs(best).max()
    np.testing.assert_allclose(v, best, rtol=0, atol=atol)
    np.testing.assert_allclose(q[np.arange(mdp.states), policy], v, rtol=0, atol=atol)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("mdp", MDPS.values(), ids=MDPS)
def test_values_are_as_large_as_the_rewards(mdp, scale):
    v = policy_iteration(mdp)[1]
    np.testing.assert_allclose(policy_iteration(scaled(mdp, scale))[1] / scale, v, rtol=0, atol=1e-11 * np.abs(v).max())


def everything_alike(states: int, actions: int) -> FiniteMDP:
    """Every action pays the same and leads to any state, so that all policies are equal but for rounding."""
    rng = np.random.default_rng(states)
    table = rng.dirichlet(np.ones(states), (states, actions))
    return FiniteMDP.from_dense(np.full((states, actions), 0.1), table, 0.99)


def twins(states: int) -> FiniteMDP:
    """Two actions in each state that differ in the order of their successors alone, hence in how their sums are rounded."""
    one = garnet(states, 1, 7, gamma=0.999, seed=4)
    successors, probabilities = (np.concatenate([array, array[..., ::-1]], axis=1) for array in one.sparse_transitions())
    return FiniteMDP.from_successors(np.repeat(one.rewards, 2, axis=1), successors, probabilities, one.gamma)


TIES = {
    "no rewards": single_state((0.0, 0.0)),
    "everything alike": everything_alike(40, 5),
    "twins": twins(300),
    "grid": gridworld(15, slip=0.0),
    "slippery grid": gridworld(15, gamma=0.99999),
    "far-sighted chain": chain(50, gamma=1 - 1e-9),
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("mdp", TIES.values(), ids=TIES)
def test_ties_do_not_keep_it_from_ending(mdp, scale):
    q, v, policy = policy_iteration(scaled(mdp, scale), max_iterations=60)
    assert (q.max(axis=1) - v <= 1e-12 * np.abs(v).max()).all()
    assert (np.abs(v - evaluate_policy(scaled(mdp, scale), policy)) <= 1e-12 * np.abs(v).max()).all()


def test_rounding_that_leads_in_a_circle_ends_it(monkeypatch):
    """Whatever policy is evaluated, the other one looks better: only a linear solve gone wrong could say so."""
    mdp = single_state((1.0, 0.0))
    answers = iter(np.array([[[0.0, 1.0]], [[1.0, 0.0]], [[0.0, 1.0]]]))
    monkeypatch.setattr("actiongap.mdp.exact.q_from_v", lambda mdp, v: next(answers))
    assert policy_iteration(mdp)[2].tolist() == [1]


def test_too_few_iterations_are_said():
    with pytest.raises(RuntimeError, match="raise max_iterations"):
        policy_iteration(gridworld(6), max_iterations=1)


@pytest.mark.parametrize("mdp", MDPS.values(), ids=MDPS)
def test_matrices_are_the_models_tables(mdp):
    table = mdp.dense().transitions.probabilities
    np.testing.assert_allclose(
        distribution_matrix(mdp.sparse_transitions(), mdp.states).toarray(), table.reshape(-1, mdp.states), atol=1e-15
    )
    rng = np.random.default_rng(0)
    actions, mixed = rng.integers(0, mdp.actions, mdp.states), rng.dirichlet(np.ones(mdp.actions), mdp.states)
    np.testing.assert_allclose(policy_matrix(mdp, actions).toarray(), table[np.arange(mdp.states), actions], atol=1e-15)
    np.testing.assert_allclose(policy_matrix(mdp, mixed).toarray(), np.einsum("xa,xay->xy", mixed, table), atol=1e-15)
    np.testing.assert_allclose(policy_rewards(mdp, mixed), np.einsum("xa,xa->x", mixed, mdp.rewards), atol=1e-12)


def test_a_policy_may_come_in_any_form():
    mdp = garnet(4, 2, 2, gamma=0.8)
    expected = evaluate_policy(mdp, np.array([0, 1, 1, 0]))
    forms: tuple[Any, ...] = ([0, 1, 1, 0], np.array([0.0, 1.0, 1.0, 0.0]), np.array([False, True, True, False]), np.eye(2)[[0, 1, 1, 0]])
    for policy in forms:
        np.testing.assert_allclose(evaluate_policy(mdp, policy), expected, rtol=1e-12)


@pytest.mark.parametrize("use", [policy_matrix, policy_rewards, evaluate_policy, q_stationary])
@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ([0, -1], r"policy\[1\] is -1: policy must be actions, whole numbers from 0 to 1"),
        ([2, 0], r"policy\[0\] is 2: policy must be actions"),
        ([0.5, 0], r"policy\[0\] is 0.5: policy must be actions"),
        ([0, np.nan], r"policy\[1\] is nan: policy must be actions"),
        ([0], r"policy has shape \(1,\): it must hold the action of each state, \(2,\)"),
        (0, r"policy has shape \(\)"),
        ([0, 0, 0], r"policy has shape \(3,\)"),
        ([[1.0, 0.0]], r"policy has shape \(1, 2\): .* or the probability of each action in each state, \(2, 2\)"),
        ([[1.0], [1.0]], r"policy has shape \(2, 1\)"),
        ([[0.5, 0.6], [1.0, 0.0]], r"the sum of policy\[0\] is 1.1: every row of probabilities must sum to one"),
        ([[1.0, 0.0], [1.5, -0.5]], r"policy\[1, 1\] is -0.5: probabilities must not be negative"),
        ([[1.0, 0.0], [np.nan, 1.0]], r"policy\[1, 0\] is nan"),
        (["left", "right"], "policy must be an array of real numbers"),
        ([[1.0], [0.5, 0.5]], "policy must be an array of real numbers with rows of equal length"),
    ],
)
def test_what_is_no_policy_is_refused_in_a_sentence(use, policy, said):
    with pytest.raises(ValueError, match=said) as caught:
        use(cake(), policy)
    assert "\n" not in str(caught.value)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(mdp=mdps())
def test_the_stationary_value_is_that_of_the_policy_changed_in_one_state(mdp):
    policy = np.arange(mdp.states) % mdp.actions
    stationary = q_stationary(mdp, policy)
    for x, a in np.ndindex(mdp.states, mdp.actions):
        changed = np.where(np.arange(mdp.states) == x, a, policy)
        assert stationary[x, a] == pytest.approx(evaluate_policy(mdp, changed)[x], abs=1e-9)


def test_acting_once_and_then_being_worth_v_is_the_backup():
    np.testing.assert_allclose(q_from_v(cake(0.9, 0.1), np.array([1.0, 2.0]))[0], [1 + 0.9 * 1.5, 0.9], rtol=1e-15)
