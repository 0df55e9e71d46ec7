"""Theorems, lemmas and remarks of the paper, checked numerically."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actiongap import Operator, policy_iteration, single_state, solve
from actiongap.mdp.engines import backups
from helpers import AT_ONE, FAMILY, MDPS, apply, loopy, mdps

crossed = pytest.mark.parametrize("mdp", MDPS.values(), ids=MDPS)


def iterates(operator, mdp, q, sweeps):
    """Q_0, Q_1, ... under an operator."""
    yield q
    for _ in range(sweeps):
        q = apply(operator, mdp, q)
        yield q


@crossed
@pytest.mark.parametrize("operator", FAMILY)
def test_limits_preserve_optimality_and_widen_gaps(mdp, operator):
    q_star, v_star, _ = policy_iteration(mdp)
    q = solve(mdp, operator, tol=1e-9).q
    np.testing.assert_allclose(q.max(axis=1), v_star, atol=1e-8)
    gap_star = v_star[:, None] - q_star
    assert ((q.max(axis=1)[:, None] - q) >= gap_star - 1e-7).all()
    suboptimal = gap_star > 1e-9
    assert (q[suboptimal] < np.repeat(v_star[:, None], mdp.actions, 1)[suboptimal]).all()


@crossed
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 0.9])
def test_advantage_learning_widens_every_gap_by_the_same_factor(mdp, alpha):
    q_star, v_star, _ = policy_iteration(mdp)
    gaps = solve(mdp, f"al:{alpha}", tol=1e-10 if mdp.gamma < 0.95 else 1e-9).gaps
    np.testing.assert_allclose(gaps, (v_star[:, None] - q_star) / (1 - alpha), atol=1e-7)


@given(mdp=mdps(), operator=st.sampled_from((*FAMILY, *AT_ONE)), seed=st.integers(0, 1000))
@settings(derandomize=True, deadline=None, max_examples=150)
def test_lemma_2_bounds_every_iterate(mdp, operator, seed):
    q0 = np.random.default_rng(seed).normal(0, 3, (mdp.states, mdp.actions))
    bound = (2 * np.abs(q0.max(axis=1)).max() + np.abs(mdp.rewards).max()) / (1 - mdp.gamma)
    assert all(np.abs(q.max(axis=1)).max() <= bound + 1e-9 for q in iterates(operator, mdp, q0, 60))


@given(mdp=mdps(), seed=st.integers(0, 1000))
@settings(derandomize=True, deadline=None, max_examples=150)
def test_the_consistent_operator_is_a_contraction(mdp, seed):
    rng = np.random.default_rng(seed)
    one, other = rng.normal(0, 3, (2, mdp.states, mdp.actions))
    apart = np.abs(apply("consistent", mdp, one) - apply("consistent", mdp, other)).max()
    assert apart <= mdp.gamma * np.abs(one - other).max() + 1e-12


@pytest.mark.parametrize("operator", ["al:0.9", "pal:0.9", "pal-dqn:0.9", "lazy:0.9"])
def test_the_others_are_not_contractions(operator):
    rng = np.random.default_rng(0)
    mdp = loopy(4, 3, seed=0, gamma=0.5)
    ratios = []
    for _ in range(2000):
        one = rng.normal(0, 3, (4, 3))
        other = one + rng.normal(0, 0.1, (4, 3))
        ratios.append(np.abs(apply(operator, mdp, one) - apply(operator, mdp, other)).max() / np.abs(one - other).max())
    assert max(ratios) > 1


@given(mdp=mdps())
@settings(derandomize=True, deadline=None, max_examples=100)
def test_consistent_gaps_are_strictly_wider_exactly_at_self_loops(mdp):
    q_star, v_star, _ = policy_iteration(mdp)
    before = v_star[:, None] - q_star
    after = solve(mdp, "consistent", tol=1e-9).gaps
    stay = mdp.transitions.stay(np.arange(mdp.states))
    # The fixed point has the gap of Q* divided by 1 - gamma P(x | x, a).
    np.testing.assert_allclose(after, before / (1 - mdp.gamma * stay), atol=1e-6)
    suboptimal = before > 1e-6
    if mdp.gamma > 0:
        assert (after[suboptimal & (stay > 0.01)] > before[suboptimal & (stay > 0.01)]).all()


def test_the_lazy_operator_has_many_fixed_points():
    mdp = single_state((0.0, 1.0), gamma=0.5)
    for wrong in np.linspace(1.0 - 1.0, 1.0, 11):  # Between Q* = 1 of the poor action and half the gap below it.
        q = np.array([[wrong, 2.0]])
        np.testing.assert_array_equal(apply("lazy:0.5", mdp, q), q)
    limits = {round(solve(mdp, "lazy:0.5", q0=np.array([[start, 2.0]])).q[0, 0], 6) for start in (0.0, 0.3, 0.6)}
    assert len(limits) == 3


def test_one_lazy_keeps_only_one_of_several_optimal_actions():
    mdp = single_state((1.0, 1.0), gamma=0.5)
    q = np.array([[2.0, 0.0]])
    np.testing.assert_array_equal(apply("lazy:1", mdp, q), q)
    np.testing.assert_allclose(solve(mdp, "lazy:0.5", q0=q).q, [[2.0, 2.0]], atol=1e-9)


def test_first_counterexample_of_the_remark():
    """An operator above T: on a single state, V comes to rest above V*."""
    mdp = single_state((0.0, 1.0), gamma=0.5)
    above = Operator("above", lambda b: b.bellman + 1.0)
    *_, q = iterates(above, mdp, np.zeros((1, 2)), 200)
    assert q.max() == pytest.approx(4.0)
    assert policy_iteration(mdp)[1][0] == pytest.approx(2.0)


def test_second_counterexample_of_the_remark():
    """An operator that takes more than the whole gap: the optimal action, once undervalued, never recovers."""
    mdp = single_state((0.0, 1.0), gamma=0.5)
    below = Operator("below", lambda b: b.bellman - 1.5 * b.gap)
    *_, q = iterates(below, mdp, np.array([[0.0, -5.0]]), 60)
    assert q.max() == pytest.approx(0.0, abs=1e-9)
    assert q[0, 1] < -1e6


def adversary(kind: str, seed: int) -> Operator:
    """An operator between T Q - (V - Q) and T Q that tries to keep V away from V*, with a new choice in every application."""
    rng = np.random.default_rng(seed)

    def apply(b):
        if kind == "coin":
            share = rng.integers(0, 2, b.gap.shape)
        elif kind == "hold the challenger down":
            # Take all of the gap from whatever would overtake the greedy action.
            share = (b.bellman > b.q) & (b.gap > 0)
        elif kind == "spare the worst":
            share = b.gap < b.gap.max(axis=1, keepdims=True)
        else:
            share = rng.random(b.gap.shape) ** 0.05
        return b.bellman - share * b.gap

    return Operator(kind, apply, commutes_with_constants=False)


@pytest.mark.parametrize("kind", ["coin", "hold the challenger down", "spare the worst", "nearly all"])
@pytest.mark.parametrize("seed", range(4))
def test_alpha_one_reaches_the_optimum_against_an_adversary(kind, seed):
    mdp = loopy(6, 3, seed, gamma=0.8)
    q0 = np.random.default_rng(seed).normal(0, 20, (6, 3))
    q_star, v_star, _ = policy_iteration(mdp)
    operator = adversary(kind, seed)
    q = q0
    for q in iterates(operator, mdp, q0, 1500):
        b = backups(mdp, q)
        value = operator(b)
        assert (value <= b.bellman + 1e-12).all()
        assert (value >= b.bellman - b.gap - 1e-9).all()
    np.testing.assert_allclose(q.max(axis=1), v_star, atol=1e-6)
    suboptimal = v_star[:, None] - q_star > 1e-6
    assert (q[suboptimal] <= q_star[suboptimal] + 1e-6).all()


@pytest.mark.parametrize("operator", AT_ONE)
@crossed
def test_alpha_one_preserves_optimality_and_widens_gaps(mdp, operator):
    q_star, v_star, _ = policy_iteration(mdp)
    q = solve(mdp, operator, tol=1e-9).q
    np.testing.assert_allclose(q.max(axis=1), v_star, atol=1e-8)
    assert (q.max(axis=1)[:, None] - q >= v_star[:, None] - q_star - 1e-7).all()
