"""Averaged and asynchronous iteration: the theorems as properties, and the order of updates that cycles."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actiongap import FiniteMDP, policy_iteration
from actiongap.mdp.asynchronous import cycling_order, iterate_asynchronously
from actiongap.mdp.engines import backups
from actiongap.mdp.generators import load_mdp, ring
from helpers import loopy, mdps

ADVERSARIES = ("whole gap", "coin", "hold the challenger down", "spare the small")


def taken(kind: str, b, rng: np.random.Generator) -> np.ndarray:
    """The part of the gap that an adversary subtracts from each backup."""
    if kind == "coin":
        return rng.integers(0, 2, b.gap.shape)
    if kind == "hold the challenger down":
        return (b.bellman > b.q) & (b.gap > 0)
    return b.gap > (0 if kind == "whole gap" else np.median(b.gap))


def sweep(mdp: FiniteMDP, q: np.ndarray, kind: str, rng: np.random.Generator, eta, where: Any = True) -> np.ndarray:
    """One update, with step eta, of the pairs that `where` marks by an operator between T Q - (V - Q) and T Q."""
    b = backups(mdp, q)
    return np.where(where, q + eta * (b.bellman - taken(kind, b, rng) * b.gap - q), q)


def low_and_high(gamma: float) -> np.ndarray:
    lowest = -1 / (1 - gamma)
    return np.array([[lowest - 1, lowest], [0.0, -1.0], [0.0, -1.0]])


@pytest.mark.parametrize(
    ("gamma", "alpha", "cycles"), [(0.9, 0.9, True), (0.9, 0.12, True), (0.6, 0.7, True), (0.9, 0.1, False), (0.6, 0.6, False)]
)
def test_advantage_learning_cycles_where_gamma_and_alpha_are_large_enough(gamma, alpha, cycles):
    assert cycles == (gamma * (1 + alpha) > 1)
    q0, order = low_and_high(gamma), cycling_order()
    assert set(order) == {(x, a) for x in range(3) for a in range(2)}
    seen = np.array([q.max(axis=1) for q in iterate_asynchronously(ring(gamma=gamma), f"al:{alpha}", q0, order * 80)])
    last = seen[-len(order) :]
    np.testing.assert_allclose(last.max(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(last.min(axis=0), -1 / (1 - gamma) if cycles else 0.0, atol=1e-6)
    period = seen.reshape(80, len(order), 3)
    np.testing.assert_allclose(period[-1], period[-2], atol=1e-6)


@pytest.mark.parametrize("operator", ["bellman", "consistent", "al:0.05"])
def test_the_same_order_leads_contractions_to_the_optimum(operator):
    *_, q = iterate_asynchronously(ring(gamma=0.9), operator, low_and_high(0.9), cycling_order() * 80)
    np.testing.assert_allclose(q.max(axis=1), 0.0, atol=1e-9)


def test_the_ring_is_an_example_by_name():
    assert load_mdp("ring:5", gamma=0.5).states == 5
    np.testing.assert_array_equal(policy_iteration(load_mdp("ring"))[1], np.zeros(3))


def test_updates_at_the_same_time_see_the_same_q():
    mdp = loopy(4, 2, seed=0)
    q0 = np.random.default_rng(0).normal(size=(4, 2))
    every = list(itertools.product(range(4), range(2)))
    (q,) = iterate_asynchronously(mdp, "al:0.5", q0, [every], eta=0.5)
    b = backups(mdp, q0)
    np.testing.assert_allclose(q, 0.5 * q0 + 0.5 * (b.bellman - 0.5 * b.gap), atol=1e-12)
    with pytest.raises(ValueError, match="eta"):
        next(iterate_asynchronously(mdp, "al:0.5", q0, [every], eta=0.0))


@given(mdp=mdps(), seed=st.integers(0, 1000), kind=st.sampled_from(ADVERSARIES))
@settings(derandomize=True, deadline=None, max_examples=12)
def test_averaging_reaches_the_optimum_with_steps_of_each_pair_times_steps_of_each_sweep(mdp, seed, kind):
    """Theorem 3, at alpha = 1 and against adversaries: eta_k(x, a) = c_k eta(x, a)."""
    rng = np.random.default_rng(seed)
    mdp = mdp.with_discount(min(mdp.gamma, 0.7))
    q_star, v_star, _ = policy_iteration(mdp)
    q, of_pairs = rng.normal(0, 5, q_star.shape), rng.uniform(0.3, 1.0, q_star.shape)
    for _ in range(600):
        q = sweep(mdp, q, kind, rng, rng.uniform(0.1, 1.0) * of_pairs)
    v = q.max(axis=1)
    np.testing.assert_allclose(v, v_star, atol=1e-4)
    assert (q <= q_star + 1e-4).all()
    assert (v[:, None] - q >= v_star[:, None] - q_star - 2e-4).all()


@given(mdp=mdps(), seed=st.integers(0, 1000), kind=st.sampled_from(ADVERSARIES))
@settings(derandomize=True, deadline=None, max_examples=12)
def test_from_a_pessimistic_start_every_order_reaches_the_optimum_and_v_never_falls(mdp, seed, kind):
    """Theorem 5: random pairs, random steps, at alpha = 1 and against adversaries."""
    rng = np.random.default_rng(seed)
    mdp = mdp.with_discount(min(mdp.gamma, 0.7))
    q_star, v_star, _ = policy_iteration(mdp)
    q = np.full(q_star.shape, mdp.rewards.min() / (1 - mdp.gamma))
    for _ in range(600):
        before = q
        q = sweep(mdp, q, kind, rng, rng.uniform(0.2, 1.0, q.shape), rng.random(q.shape) < 0.4)
        assert (q.max(axis=1) >= before.max(axis=1) - 1e-12).all()
        assert (q <= backups(mdp, q).bellman + 1e-9).all()
    np.testing.assert_allclose(q.max(axis=1), v_star, atol=1e-4)


@given(mdp=mdps(), seed=st.integers(0, 1000), kind=st.sampled_from(ADVERSARIES))
@settings(derandomize=True, deadline=None, max_examples=12)
def test_a_fixed_cyclic_order_reaches_the_optimum(mdp, seed, kind):
    """Theorem 6: eta = 1, blocks of pairs in a random order that stays, at alpha = 1 and against adversaries."""
    rng = np.random.default_rng(seed)
    mdp = mdp.with_discount(min(mdp.gamma, 0.7))
    q_star, v_star, _ = policy_iteration(mdp)
    q = rng.normal(0, 5, q_star.shape)
    blocks = rng.integers(0, q.size, q.shape)
    for _ in range(150):
        for block in np.unique(blocks):
            q = sweep(mdp, q, kind, rng, 1.0, blocks == block)
    np.testing.assert_allclose(q.max(axis=1), v_star, atol=1e-4)
    assert (q <= q_star + 1e-4).all()
