"""The limits of action gaps and their certificates, against long iteration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actiongap.mdp.exact import policy_iteration
from actiongap.mdp.generators import garnet, single_state
from actiongap.mdp.limits import GapLimits, limit_gaps, optimal_gaps
from actiongap.mdp.solve import iterate, solve
from actiongap.operators import Operator, parse
from helpers import MDPS, loopy, mdps

CERTIFIED = ("bellman", "consistent", "al:0", "al:0.5", "al:0.9", "pal:0.5", "pal:0.9", "pal-dqn:0.9", "sal:0.3,0.8", "baird:1")
NOT_CERTIFIED = ("al:1", "pal:1", "pal-dqn:1", "lazy:0.5", "rso:0,1", "sal:0.8,0.8", "baird:2", "munchausen:0.1,0.5", "clipped-al:1,0.5")


def long_gaps(operator, mdp, seed, sweeps):
    """The gaps after many sweeps from a random start."""
    q0 = np.random.default_rng(seed).normal(0, 3, mdp.rewards.shape)
    *_, q = iterate(mdp, operator, sweeps=sweeps, q0=q0, engine="arrays")
    return q.max(axis=1, keepdims=True) - q


def certificate(*args, **options) -> GapLimits:
    """The limits of an operator that has certified ones."""
    found = limit_gaps(*args, **options)
    assert found is not None
    return found


@given(mdp=mdps(), operator=st.sampled_from(CERTIFIED), seed=st.integers(0, 10**6), exponent=st.integers(-12, -2))
@settings(derandomize=True, deadline=None, max_examples=30)
def test_long_iteration_never_exceeds_the_bound(mdp, operator, seed, exponent):
    rng = np.random.default_rng(seed)
    _, v_star, _ = policy_iteration(mdp)
    error = 10.0**exponent
    limits = certificate(operator, mdp, v_star + rng.uniform(-error, error, v_star.shape), error + 1e-12)
    # After 700 sweeps at most 0.95^700 of the start is left: less than 1e-14.
    assert np.abs(long_gaps(operator, mdp, seed, 700) - limits.gaps).max() <= limits.bound + 1e-11
    assert limits.bound <= 4 * (error + 1e-10) / min(0.1, 1 - mdp.gamma)


@given(mdp=mdps(), operator=st.sampled_from(CERTIFIED), seed=st.integers(0, 10**6), tol=st.sampled_from([1e-2, 1e-5, 1e-9]))
@settings(derandomize=True, deadline=None, max_examples=20)
def test_the_gaps_of_a_solution_are_within_their_bound(mdp, operator, seed, tol):
    q0 = np.random.default_rng(seed).normal(0, 3, mdp.rewards.shape)
    solution = solve(mdp, operator, tol=tol, q0=q0, throw=False)
    assert solution.gap_bound is not None
    assert np.abs(solution.gaps - long_gaps(operator, mdp, seed + 1, 700)).max() <= solution.gap_bound + 1e-11
    if solution.gaps_settled:
        assert solution.gap_bound <= 100 * tol / (1 - max(mdp.gamma, 0.9))


@pytest.mark.long
@pytest.mark.parametrize("operator", CERTIFIED)
@pytest.mark.parametrize("seed", range(20))
def test_long_iteration_never_exceeds_the_bound_on_larger_problems(operator, seed):
    gamma = (0.5, 0.9, 0.95)[seed % 3]
    mdp = garnet(20, 3, 4, gamma=gamma, seed=seed) if seed % 2 else loopy(12, 4, seed, gamma)
    solution = solve(mdp, operator, tol=10.0 ** -(2 + seed % 9), throw=False)
    assert np.abs(solution.gaps - long_gaps(operator, mdp, seed, 900)).max() <= (solution.gap_bound or 0.0) + 1e-11


@pytest.mark.parametrize("operator", NOT_CERTIFIED)
def test_other_operators_have_no_certified_limit(operator):
    mdp = MDPS["loops"]
    _, v, _ = policy_iteration(mdp)
    assert limit_gaps(operator, mdp, v, 1e-12) is None
    if parse(operator).draw is None and parse(operator).temperature is None:
        assert solve(mdp, operator, throw=False, max_sweeps=50).gap_bound is None


def test_an_operator_of_your_own_has_none_even_with_a_known_name():
    mdp = single_state()
    assert limit_gaps(Operator("al:0.5", lambda b: b.bellman), mdp, np.array([2.0]), 0.0) is None
    assert limit_gaps(lambda b: b.bellman, mdp, np.array([2.0]), 0.0) is None


@pytest.mark.parametrize(
    ("v", "v_error", "said"),
    [
        ([2.0], -1.0, "v_error is -1.0: it must be a number of at least 0"),
        ([2.0], float("nan"), "v_error is nan"),
        ([2.0], "x", "v_error is 'x'"),
        ([2.0, 1.0], 0.0, "v has shape"),
        ([float("inf")], 0.0, "v must be finite"),
    ],
)
def test_bad_values_are_refused_in_a_sentence(v, v_error, said):
    with pytest.raises(ValueError, match=said):
        limit_gaps("al:0.5", single_state(), v, v_error)


def test_an_error_that_is_not_known_certifies_nothing():
    assert limit_gaps("al:0.5", single_state(), np.array([2.0]), float("inf")) is None


@pytest.mark.parametrize(("d", "limit"), [(2.4, 4.8), (5.1, 5.1), (2.6, None), (3.0, None), (4.9, None)])
def test_clipped_advantage_learning_is_certified_where_it_has_a_limit(d, limit):
    # V* = 10, LOW = 0 and C = 0.5: G = 5, so the gap is widened below 2.5, kept above 5, and cycles between.
    mdp = single_state((5.0, 5.0 - d), gamma=0.5)
    found = limit_gaps("clipped-al:0.5,0.5", mdp, np.array([10.0]), 1e-9)
    last = [q[0, 0] - q[0, 1] for q in iterate(mdp, "clipped-al:0.5,0.5", sweeps=400, engine="arrays")][-12:]
    if limit is None:
        assert found is None
        assert max(last) - min(last) > 0.1
    else:
        assert found is not None
        np.testing.assert_allclose(found.gaps, [[0.0, limit]], atol=1e-8)
        np.testing.assert_allclose(last, limit, atol=1e-8)


@given(mdp=mdps(), c=st.sampled_from([0.0, 0.3, 0.7, 1.0]), low=st.sampled_from([-40.0, 0.0]), seed=st.integers(0, 10**6))
@settings(derandomize=True, deadline=None, max_examples=25)
def test_clipped_advantage_learning_stays_within_its_bound(mdp, c, low, seed):
    operator = f"clipped-al:0.5,{c},{low}"
    _, v_star, _ = policy_iteration(mdp)
    limits = limit_gaps(operator, mdp, v_star, 1e-9)
    if limits is not None:
        assert np.abs(long_gaps(operator, mdp, seed, 700) - limits.gaps).max() <= limits.bound + 1e-11


def test_clipped_advantage_learning_cycles():
    mdp = single_state((5.0, 2.0), gamma=0.5)
    gaps = [float(q[0, 0] - q[0, 1]) for q in iterate(mdp, "clipped-al:0.5,0.5", sweeps=400, engine="arrays")][-6:]
    assert sorted({round(gap, 6) for gap in gaps}) == [3.0, 4.5, 5.25]


def test_a_v_from_any_method_certifies_the_limits():
    mdp = MDPS["garnet"]
    q_star, v_star, _ = policy_iteration(mdp)
    np.testing.assert_allclose(optimal_gaps(mdp, v_star, 0.0).gaps, v_star[:, None] - q_star, atol=1e-12)
    for operator in CERTIFIED:
        exact, rough = (certificate(operator, mdp, v_star + shift, abs(shift) + 1e-12) for shift in (0.0, 0.01))
        assert np.abs(exact.gaps - rough.gaps).max() <= exact.bound + rough.bound
        assert exact.bound < 1e-9 < rough.bound


def test_the_limit_does_not_depend_on_where_its_iteration_starts():
    mdp = MDPS["loops"]
    _, v, _ = policy_iteration(mdp)
    for operator in ("pal:0.9", "pal-dqn:0.9"):
        starts = (None, np.zeros(mdp.rewards.shape), np.full(mdp.rewards.shape, 50.0))
        found = [certificate(operator, mdp, v, 1e-12, start=start) for start in starts]
        for limits in found:
            np.testing.assert_allclose(limits.gaps, found[0].gaps, atol=2 * found[0].bound)
        early = certificate(operator, mdp, v, 1e-12, start=starts[2], max_iterations=3)
        assert np.abs(early.gaps - found[0].gaps).max() <= early.bound + found[0].bound
        assert early.bound > 1
