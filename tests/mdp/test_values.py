"""V* by every method, and the limits of operators from it, against an independent dense solver."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from scipy import sparse

from actiongap import FiniteMDP, NotConvergedError, chain, evaluate_policy, garnet, gridworld, policy_iteration, solve
from actiongap.mdp.exact import q_from_v
from actiongap.mdp.values import Method
from helpers import MDPS
from reference_solver import gap_limits, optimal_values, random_pairs

METHODS = get_args(Method)
OPERATORS = ("bellman", "consistent", "al:0.5", "al:0.9", "pal:0.5", "pal-dqn:0.9", "sal:0.4,0.8")
LAYOUTS = (FiniteMDP.dense, FiniteMDP.sparse, FiniteMDP.ragged, lambda mdp: mdp)


def check_random_model(seed: int) -> None:
    """Solve the model of a seed with every operator, by a method and in a layout that depend on the seed, and check all claims."""
    pairs = random_pairs(seed)
    mdp = FiniteMDP.from_pairs(
        pairs.states, pairs.actions, pairs.rewards, sparse.csr_array(pairs.transitions), pairs.gamma, f"model {seed}"
    )
    mdp = LAYOUTS[seed % len(LAYOUTS)](mdp)
    v, q = optimal_values(pairs)
    # Rounding of the reference itself.
    size = max(1.0, float(np.abs(v).max()))
    rounded = 1e-13 * size / (1 - pairs.gamma)
    for place, operator in enumerate(OPERATORS):
        if operator.startswith("pal") and pairs.gamma > 0.9:
            continue
        method = METHODS[(seed + place) % len(METHODS)]
        try:
            solution = solve(mdp, operator, tol=1e-6 * size, engine="arrays", method=method)
        except NotConvergedError as error:
            raise AssertionError(f"{mdp.name}, {operator}, {method}: {error}") from error
        limits = gap_limits(operator, pairs, v, q)
        told = f"{mdp.name}, {operator}, {solution.status}"
        assert np.abs(solution.v - v).max() <= solution.error_bound + rounded, told
        assert (v - evaluate_policy(mdp, solution.policy)).max() <= solution.policy_loss_bound + rounded, told
        np.testing.assert_array_equal(np.isnan(solution.gaps), np.isnan(limits), err_msg=told)
        assert solution.gap_bound is not None, told
        assert np.nanmax(np.abs(solution.gaps - limits)) <= solution.gap_bound + 20 * rounded, told
        np.testing.assert_array_equal(np.isnan(solution.action_gaps), (~np.isneginf(q)).sum(1) == 1, err_msg=told)


@pytest.mark.parametrize("seed", range(20))
def test_certificates_hold_on_random_models(seed):
    check_random_model(seed)


@pytest.mark.long
def test_certificates_hold_on_many_random_models():
    for seed in range(20, 2020):
        check_random_model(seed)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mdp", MDPS.values(), ids=MDPS)
def test_every_method_finds_the_same_limit(mdp, method):
    q, v, _ = policy_iteration(mdp)
    solution = solve(mdp, "al:0.5", tol=1e-8, method=method)
    assert np.abs(solution.v - v).max() <= solution.error_bound <= 1e-8
    assert solution.gap_bound is not None
    assert np.abs(solution.gaps - 2 * (v[:, None] - q)).max() <= solution.gap_bound + 1e-12


NAMES = {
    "iterate": "iteration of the operator",
    "value-iteration": "value iteration",
    "modified-policy-iteration": "modified policy iteration",
    "policy-iteration": "policy iteration with sparse LU",
}


@pytest.mark.parametrize("method", NAMES)
def test_the_status_names_the_method(method):
    solution = solve(garnet(30, 3, 3, gamma=0.9), method=method)
    assert solution.method == NAMES[method]
    assert f"by {NAMES[method]} in {solution.sweeps} sweeps." in solution.status


def clusters(leak: float, states: int = 900, groups: int = 6, gamma: float = 0.999) -> FiniteMDP:
    """Groups of states that mix fast, and leave their group with a small probability."""
    rng = np.random.default_rng(0)
    size = states // groups
    near = (np.arange(states) // size * size)[:, None, None] + rng.integers(0, size, (states, 3, 4))
    far = rng.integers(0, states, (states, 3, 1))
    probabilities = np.concatenate([(1 - leak) * rng.dirichlet(np.ones(4), (states, 3)), np.full((states, 3, 1), leak)], axis=-1)
    return FiniteMDP.from_successors(rng.random((states, 3)), np.concatenate([near, far], axis=-1), probabilities, gamma, "clusters")


def test_a_method_is_chosen_by_how_fast_the_chain_mixes():
    assert solve(garnet(100, 3, 50, gamma=0.9), tol=1e-6).method == "value iteration"
    assert solve(clusters(1e-3), tol=1e-6).method == "policy iteration with GMRES"
    assert solve(chain(1000, gamma=0.9999, slip=0.4), tol=1e-6).method == "policy iteration with sparse LU"


def value_of(mdp: FiniteMDP, policy: np.ndarray) -> np.ndarray:
    states = np.arange(mdp.states)
    transitions = mdp.transitions.rows((states, policy)).matrix(mdp.states).toarray()
    return np.linalg.solve(np.eye(mdp.states) - mdp.gamma * transitions, mdp.rewards[states, policy])


@pytest.mark.parametrize("operator", ["bellman", "al:0.9"])
@pytest.mark.parametrize("mdp", [clusters(1e-3), chain(1000, gamma=0.999, slip=0.4), gridworld(25)], ids=repr)
def test_slow_chains_need_few_sweeps(mdp, operator):
    solution = solve(mdp, operator, tol=1e-6)
    assert solution.sweeps <= 25, solution.status
    assert solution.error_bound <= 1e-6
    v = value_of(mdp, solution.policy)
    # The value of the policy is V*: no action is better by more than rounding.
    assert (q_from_v(mdp, v).max(axis=1) - v).max() <= 1e-10 * np.abs(v).max()
    assert np.abs(solution.v - v).max() <= solution.error_bound + 1e-9


def test_operators_whose_limits_do_not_follow_from_values_are_iterated():
    mdp = garnet(20, 3, 3, gamma=0.8)
    for operator in ("lazy:0.5", "al:1", lambda b: b.bellman - 0.5 * b.gap):
        assert solve(mdp, operator, tol=1e-6).method == "iteration of the operator"
        with pytest.raises(ValueError, match=r"the limit of .* does not follow from V\*, which method 'value-iteration' computes: use"):
            solve(mdp, operator, method="value-iteration")
    with pytest.raises(ValueError, match=r"eta is 0\.5, but method 'policy-iteration' does not iterate the operator"):
        solve(mdp, eta=0.5, method="policy-iteration")
    with pytest.raises(ValueError, match="unknown method 'howard': choose from auto, iterate"):
        solve(mdp, method="howard")  # pyright: ignore[reportArgumentType]


def test_an_initial_q_and_a_limit_of_sweeps_are_heeded():
    mdp = gridworld(12, gamma=0.99)
    best = solve(mdp, "al:0.5", tol=1e-8)
    again = solve(mdp, "al:0.5", tol=1e-8, q0=best.q)
    assert again.sweeps <= best.sweeps
    cut = solve(mdp, tol=1e-8, method="value-iteration", max_sweeps=4, throw=False)
    assert (cut.sweeps, cut.converged) == (4, False)
    assert "4 sweeps of value iteration, not within" in cut.status
    assert np.abs(cut.v - best.v).max() <= cut.error_bound + best.error_bound


def test_alpha_near_one_does_not_enlarge_the_error_of_v():
    found = solve(garnet(30, 3, 4, seed=0), "al:0.99999", engine="arrays")
    assert found.converged
    assert found.error_bound <= found.tol


def test_the_callers_number_of_sweeps_is_kept_by_all_phases_together():
    found = solve(garnet(30, 3, 4, seed=0), "pal:0.99", method="policy-iteration", max_sweeps=10, tol=1e-8, throw=False, engine="arrays")
    assert found.sweeps <= 10
