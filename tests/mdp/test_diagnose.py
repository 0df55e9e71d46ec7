"""Diagnostics of finite MDPs against closed forms."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from actiongap.mdp.diagnose import diagnose
from actiongap.mdp.exact import policy_iteration
from actiongap.mdp.generators import cake, garnet, single_state
from actiongap.mdp.model import FiniteMDP
from helpers import MDPS


def side_by_side(gaps, gamma=0.9):
    """One state for each gap, which is never left; its second action pays that much less."""
    states = len(gaps)
    stay = np.broadcast_to(np.eye(states)[:, None, :], (states, 2, states))
    return FiniteMDP.from_dense([[0.0, -gap] for gap in gaps], stay, gamma)


def test_gaps_deviation_and_margin_exponent_of_a_known_distribution():
    # The fraction of gaps up to t is t^(1/2) where gaps are (i / n)^2.
    n = 200
    found = diagnose(side_by_side((np.arange(1, n + 1) / n) ** 2), operators=())
    np.testing.assert_allclose(found.action_gaps, (np.arange(1, n + 1) / n) ** 2)
    assert found.margin_exponent == pytest.approx(0.5, abs=1e-6)
    assert found.margin_constant == pytest.approx(1.0, abs=1e-5)
    assert diagnose(side_by_side([0.01, 1.0]), operators=()).deviation == pytest.approx(1.0)
    equal = diagnose(side_by_side([0.3, 0.3, 0.3]), operators=())
    assert (equal.deviation, equal.margin_exponent) == (0.0, math.inf)


def test_the_margin_constant_is_a_bound():
    found = diagnose(garnet(40, 3, 4, gamma=0.9, seed=3), operators=())
    for t in np.geomspace(1e-3, 10, 50):
        fraction = (found.action_gaps <= t).sum() / np.isfinite(found.action_gaps).sum()
        assert fraction <= found.margin_constant * t**found.margin_exponent + 1e-9


def test_states_without_a_choice_have_no_gap():
    found = diagnose(cake(0.9, 0.1))
    assert np.isnan(found.action_gaps[1])
    every = diagnose(single_state((1.0, 1.0)))
    assert np.isnan(every.action_gaps).all()
    assert repr(every) == "Diagnosis(single-state: every action is optimal in every state)"
    assert set(every.widening.values()) == {None}


def test_widening_factors():
    mdp = MDPS["loops"]
    found = diagnose(mdp, operators=("bellman", "al:0.9", "consistent", "pal:0.9", "lazy:0.9", "al:1")).widening
    assert found["bellman"] == pytest.approx((1.0, 1.0, 1.0, 0.0), abs=1e-8)
    assert found["al:0.9"] == pytest.approx((10.0, 10.0, 10.0, 1.0), abs=1e-6)
    assert found["lazy:0.9"] is found["al:1.0"] is None
    q, v, _ = policy_iteration(mdp)
    suboptimal = v[:, None] - q > 1e-9
    factors = (1 / (1 - mdp.gamma * mdp.transitions.stay(np.arange(mdp.states))))[suboptimal]
    assert found["consistent"] == pytest.approx((factors.min(), np.median(factors), factors.max(), (factors > 1 + 1e-6).mean()))
    assert found["pal:0.9"] is not None
    assert 1 <= found["pal:0.9"].least <= found["pal:0.9"].most <= 10 + 1e-6


def test_the_discount_at_which_patience_pays():
    # Taking 1 now or 2 after a step, for ever 0 afterwards: waiting pays from gamma = 1/2 on.
    mdp = FiniteMDP.from_dense(
        [[1.0, 0.0], [2.0, 2.0], [0.0, 0.0]], [[[0, 0, 1], [0, 1, 0]], [[0, 0, 1], [0, 0, 1]], [[0, 0, 1], [0, 0, 1]]], 0.9
    )
    [change] = diagnose(mdp).policy_changes
    assert change.gamma == pytest.approx(0.5, abs=1e-5)
    assert change.states == (0,)
    assert diagnose(mdp, discounts=(0.6, 0.9)).policy_changes == ()


def test_every_policy_change_is_between_policies_that_are_optimal_beside_it():
    mdp = garnet(15, 3, 3, gamma=0.9, seed=1)
    changes = diagnose(mdp).policy_changes
    assert len(changes) > 1
    assert [change.gamma for change in changes] == sorted(change.gamma for change in changes)
    for change in changes:
        before, after = (policy_iteration(mdp.with_discount(change.gamma + shift))[2] for shift in (-1e-5, 1e-5))
        assert set(change.states) <= set(np.flatnonzero(before != after).tolist())


def test_a_diagnosis_is_shown_and_written():
    found = diagnose(garnet(15, 3, 3, gamma=0.9, seed=1))
    assert "margin exponent" in repr(found)
    assert "al:0.9" in found._repr_html_()
    assert json.loads(json.dumps(found.as_json(), allow_nan=False))["widening"]["al:0.5"]["median"] == pytest.approx(2.0)


@pytest.mark.parametrize("discounts", [(0.5, 0.5), (-0.1, 0.9), (0.1, 1.0), 0.5, ("a", 0.9)])
def test_impossible_ranges_are_refused(discounts):
    with pytest.raises(ValueError, match="two discounts with 0 <= low < high < 1"):
        diagnose(cake(), discounts=discounts)


def test_one_operator_may_be_given():
    assert list(diagnose(cake(), "al:0.5").widening) == ["al:0.5"]


def test_texts_are_refused():
    with pytest.raises(TypeError, match="make one with load_mdp"):
        diagnose("cake")  # pyright: ignore[reportArgumentType]
