"""Experiments on finite MDPs: their columns, bit-for-bit resumption, and the theorem without noise."""

from __future__ import annotations

import dataclasses
import io
import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import stats

from actiongap.lab.experiment import Experiment, as_config, field_docs, field_types, find, from_config, make
from actiongap.lab.kinds.finite import (
    COLUMNS,
    CellMeans,
    FittedQ,
    NoisyBackups,
    NoisyFiniteEnv,
    NoisyValues,
    QLearning,
    draw_batch,
    estimate,
    evaluate_policies,
    measure,
    reference_solution,
    terminal_states,
)
from actiongap.mdp.engines import backups
from actiongap.mdp.exact import evaluate_policy, policy_iteration
from actiongap.mdp.generators import cake, chain, garnet, gridworld, save_npz
from actiongap.mdp.gym import from_gymnasium, rollout
from actiongap.mdp.model import FiniteMDP
from actiongap.mdp.solve import solve
from actiongap.operators import parse
from helpers import FAMILY

PROBLEMS = ("cake", "chain:6", "gridworld:3,4", "gym/FrozenLake-v1", "garnet:12,3,3")
QUICK = {
    "q-learning": {"steps": 500, "rows": 3, "reward_noise": 0.2},
    "fitted-q": {"transitions": 3, "iterations": 40, "rows": 3, "cell": 2, "reward_noise": 0.2},
    "noisy-values": {"noise": (0.5, 1.0, 3.0), "draws": 40},
    "noisy-backups": {"sweeps": 40, "rows": 3, "samples": 2},
}
"""Each kind of experiment, short, and with a number of rows that divides nothing."""


def run(spec: Experiment) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    state, rows = spec.start(), []
    for chunk in range(spec.chunks):
        state, new = spec.advance(state, chunk)
        rows += new
    return state, rows


def through_a_file(state):
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def same(state, other):
    return state.keys() == other.keys() and all(
        state[name].dtype == other[name].dtype and state[name].tobytes() == other[name].tobytes() for name in state
    )


# Columns


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_optimal_table_scores_one_and_has_nothing_wrong(name):
    q, v, _ = policy_iteration(reference_solution(name, None).mdp)
    row = measure(reference_solution(name, None), q)
    assert row["score"] == pytest.approx(1, abs=1e-9)
    assert row["wrong"] == 0
    assert row["value_error"] == pytest.approx(0, abs=1e-9)
    assert row["value"] == pytest.approx(v[~terminal_states(reference_solution(name, None).mdp)].mean())


@pytest.mark.parametrize("name", PROBLEMS)
def test_random_tables_score_the_value_of_random_policies(name):
    reference = reference_solution(name, None)
    mdp, rng = reference.mdp, np.random.default_rng(0)
    q = rng.standard_normal((50, mdp.states, mdp.actions))
    mean = np.mean([evaluate_policy(mdp, policy).mean() for policy in q.argmax(axis=-1)])
    low = evaluate_policy(mdp, np.full((mdp.states, mdp.actions), 1 / mdp.actions)).mean()
    high = policy_iteration(mdp)[1].mean()
    # Terminal states have value 0 for every policy, so leaving them out changes no ratio.
    assert measure(reference, q)["score"] == pytest.approx((mean - low) / (high - low), abs=1e-9)


def test_the_uniformly_random_policy_scores_zero():
    # In a single state the value of the random policy is the mean of those of the deterministic ones.
    reference = reference_solution("single-state", None)
    rows = [measure(reference, np.eye(2)[[a]])["score"] for a in range(2)]
    assert rows == pytest.approx([-1, 1])


@pytest.mark.parametrize("name", PROBLEMS)
def test_wrong_actions_and_gaps_against_a_brute_force_count(name):
    reference = reference_solution(name, None)
    q_star, v_star, _ = policy_iteration(reference.mdp)
    q = np.random.default_rng(1).integers(0, 3, q_star.shape).astype(float)
    wrong, counted, gaps = 0, 0, []
    for x in range(reference.mdp.states):
        losses = v_star[x] - q_star[x]
        if losses.max() < 1e-6:
            continue
        counted += 1
        greedy = min(a for a in range(len(q[x])) if q[x, a] == max(q[x]))
        wrong += losses[greedy] > 1e-6
        ordered = sorted(q[x])
        gaps.append(ordered[-1] - ordered[-2])
    row = measure(reference, q)
    assert counted == reference.matters.sum() > 0
    assert row["wrong"] == pytest.approx(wrong / counted)
    assert row["gap"] == pytest.approx(np.mean(gaps))


def test_a_stack_of_tables_reports_means():
    reference = reference_solution("garnet:12,3,3", None)
    stack = np.random.default_rng(0).standard_normal((7, 12, 3))
    rows: list[dict[str, Any]] = [measure(reference, q) for q in stack]
    for column, value in measure(reference, stack).items():
        assert value == pytest.approx(np.mean([row[column] for row in rows]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_none(bad):
    reference = reference_solution("chain:6", None)
    q = np.zeros((6, 2))
    q[3, 1] = bad
    assert measure(reference, q) == dict.fromkeys(COLUMNS)
    huge = measure(reference, np.full((6, 2), 1.7e308) * [1, -1])
    assert huge["gap"] is None
    assert huge["value"] is None
    assert huge["wrong"] == 1
    json.dumps(huge, allow_nan=False)


def test_policies_evaluated_in_blocks_have_the_same_values(monkeypatch):
    monkeypatch.setattr("actiongap.lab.kinds.finite.BLOCK_ENTRIES", 100)
    for mdp in (cake(), chain(6), garnet(12, 3, 3), from_gymnasium("FrozenLake-v1")):
        policies = np.random.default_rng(0).integers(0, mdp.actions, (9, mdp.states))
        policies[5] = policies[2]
        np.testing.assert_allclose(evaluate_policies(mdp, policies), [evaluate_policy(mdp, policy) for policy in policies], atol=1e-9)


def test_states_without_later_rewards_are_terminal():
    lake = from_gymnasium("FrozenLake-v1")
    holes, goal, end = [5, 7, 11, 12], 15, 16
    assert np.flatnonzero(terminal_states(lake)).tolist() == [*holes, goal, end]
    assert np.flatnonzero(terminal_states(gridworld(3, 4))).tolist() == [11]
    # The cake's bad state is never left, but it goes on costing; the chain pays at its far end.
    assert not terminal_states(cake()).any()
    assert not terminal_states(chain(6)).any()
    assert terminal_states(FiniteMDP.from_dense([[0.0]], [[[1.0]]], 0.5)).all()


# Every experiment


@pytest.mark.parametrize("operator", ["bellman", "pal:0.9"])
@pytest.mark.parametrize("env", ["gridworld:3,4", "gym/FrozenLake-v1"])
@pytest.mark.parametrize("kind", QUICK)
def test_a_resumed_run_equals_an_uninterrupted_one(kind, env, operator):
    fields = {"env": env, "operator": operator, "seed": 4, **QUICK[kind]}
    state, rows = run(make(kind, fields))
    continued, reported = make(kind, fields).start(), []
    for chunk in range(3):
        before = through_a_file(continued)
        after, new = make(kind, fields).advance(continued, chunk)
        assert same(continued, before)
        continued, reported = through_a_file(after), reported + list(new)
    assert same(continued, state)
    assert reported == rows
    assert len(rows) == 3


def test_a_resumed_run_on_the_data_of_bellman_equals_an_uninterrupted_one():
    fields = {"env": "gym/FrozenLake-v1", "behavior": "bellman", **QUICK["q-learning"]}
    state, rows = run(make("q-learning", {**fields, "operator": "al:0.9"}))
    continued, reported = make("q-learning", {**fields, "operator": "al:0.9"}).start(), []
    for chunk in range(3):
        after, new = make("q-learning", {**fields, "operator": "al:0.9"}).advance(continued, chunk)
        continued, reported = through_a_file(after), reported + list(new)
    assert same(continued, state)
    assert reported == rows
    plain, _ = run(make("q-learning", {**fields, "operator": "bellman", "behavior": "own"}))
    np.testing.assert_array_equal(state["q_bellman"], plain["q"])
    np.testing.assert_array_equal(state["visits"], plain["visits"])


def test_churn_and_visits_are_reported():
    state, rows = run(make("q-learning", {"env": "gym/FrozenLake-v1", "behavior": "uniform", **QUICK["q-learning"]}))
    matters = reference_solution("gym/FrozenLake-v1", None).matters
    assert rows[-1]["visits"] == state["visits"].min(axis=1)[matters].mean()
    assert all(0 <= row["churn"] < 1 for row in rows)
    assert rows[0]["churn"] > 0


@pytest.mark.parametrize("kind", QUICK)
def test_one_seed_repeats_and_another_differs(kind):
    first, again, other = (run(make(kind, {**QUICK[kind], "seed": seed}))[1] for seed in (0, 0, 1))
    assert first == again
    assert first != other


@pytest.mark.parametrize("kind", QUICK)
def test_rows_hold_the_declared_columns_and_reach_the_last_step(kind):
    spec = make(kind, QUICK[kind])
    _, rows = run(spec)
    for row in rows:
        assert list(row) == ["step", *spec.columns]
        assert all(isinstance(value, (int, float)) and np.isfinite(value) for value in row.values())
    steps = [row["step"] for row in rows]
    assert steps == sorted(set(steps))
    if kind != "noisy-values":  # its steps are sizes of errors, and what it costs is counted in them
        assert steps[-1] == spec.total_steps
    assert next(iter(spec.columns)) == "score"


@pytest.mark.parametrize("kind", QUICK)
def test_a_spec_survives_json_and_documents_itself(kind):
    spec = make(kind, {**QUICK[kind], "operator": "al:0.5", "gamma": 0.9, "seed": 2})
    assert from_config(json.loads(json.dumps(as_config(spec)))) == spec
    assert spec.kind == kind
    assert spec.task == "gridworld:5,5"
    assert spec.agent == "al:0.5"
    cls = find(kind)
    assert all(field_docs(cls)[name] for name in field_types(cls))
    assert cls() == make(kind, {})


@pytest.mark.parametrize("kind", QUICK)
def test_the_default_discount_is_that_of_the_mdp(kind):
    own, given, other = (run(make(kind, {**QUICK[kind], "gamma": gamma}))[1] for gamma in (None, 0.99, 0.5))
    assert own == given
    assert own != other


@pytest.mark.parametrize("kind", QUICK)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"env": "gridwold:5,5"}, "unknown MDP 'gridwold:5,5'"),
        ({"env": "gym/NoSuchLake-v1"}, "NoSuchLake-v1"),
        ({"env": "nothing.npz"}, "no such file"),
        ({"operator": "al"}, "al needs a number"),
        ({"operator": "nothing"}, "unknown operator 'nothing'"),
        ({"gamma": 1.0}, r"gamma is 1.0: it must lie in \[0, 1\)"),
        ({"seed": -1}, "seed is -1: it must be a whole number of at least 0"),
    ],
)
def test_every_experiment_refuses_in_a_sentence(kind, change, said):
    with pytest.raises(ValueError, match=said):
        find(kind)(**change)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: QLearning(steps=0), "steps is 0: it must be a whole number of at least 1"),
        (lambda: QLearning(steps=10, rows=11), "rows is 11: it must be at most 10, the number of steps"),
        (lambda: QLearning(rows=0), "rows is 0"),
        (lambda: QLearning(exploration=1.5), "exploration is 1.5"),
        (lambda: QLearning(step_size=0.0), "step_size is 0.0"),
        (lambda: QLearning(reward_noise=-1.0), "reward_noise is -1.0: give a standard deviation, at least 0"),
        (lambda: QLearning(reward_noise=float("nan")), "reward_noise is nan"),
        (lambda: FittedQ(transitions=0), "transitions is 0"),
        (lambda: FittedQ(iterations=0), "iterations is 0"),
        (lambda: FittedQ(iterations=5, rows=6), "rows is 6: it must be at most 5, the number of iterations"),
        (lambda: FittedQ(cell=0), "cell is 0"),
        (lambda: FittedQ(reward_noise=float("inf")), "reward_noise is inf"),
        (lambda: NoisyValues(draws=0), "draws is 0"),
        (lambda: NoisyValues(noise=()), "in increasing order"),
        (lambda: NoisyValues(noise=(1.0, 0.5)), "in increasing order"),
        (lambda: NoisyValues(noise=(-1.0, 0.5)), "noise is -1.0"),
        (lambda: NoisyBackups(samples=0), "samples is 0"),
        (lambda: NoisyBackups(sweeps=0), "sweeps is 0"),
        (lambda: NoisyBackups(sweeps=5, rows=6), "rows is 6: it must be at most 5, the number of sweeps"),
        (lambda: NoisyBackups(eta=0.0), "eta is 0.0"),
        (lambda: NoisyBackups(reward_noise=-0.5), "reward_noise is -0.5"),
        (lambda: QLearning(env="garnet:5,1,2").start(), "every policy is optimal in garnet:5,1,2"),
        (lambda: NoisyValues(env="cake", operator="al:1").start(), "the gaps of al:1 do not converge"),
    ],
)
def test_experiments_refuse_in_a_sentence(make, said):
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize(
    "spec",
    [
        QLearning(env="single-state", operator="baird:0.01", step_size=1.0, exploration=1.0),
        FittedQ(env="single-state", operator="baird:0.01", iterations=2000),
        NoisyValues(env="single-state", operator="baird:0.01"),
        NoisyBackups(env="single-state", operator="baird:0.01", eta=1.0),
    ],
    ids=lambda spec: spec.kind,
)
def test_an_operator_that_diverges_fails_with_one_sentence(spec):
    with pytest.raises(ValueError, match=r"baird:0.01 diverge") as caught:
        run(spec)
    assert "\n" not in str(caught.value)


def test_an_npz_file_is_an_env(tmp_path):
    save_npz(chain(4), tmp_path / "mine.npz")
    mine, built_in = (run(FittedQ(env=name, iterations=30, rows=3))[1] for name in (str(tmp_path / "mine.npz"), "chain:4"))
    assert mine == built_in


# The theorem: without noise every operator that it covers ends with optimal actions


@pytest.mark.parametrize("operator", FAMILY)
def test_without_noise_all_actions_are_optimal_at_the_end(operator):
    # The cliff is deterministic, so one transition of a pair tells all about it.
    cliff = {"env": "gym/CliffWalking-v1", "operator": operator, "gamma": 0.9}
    assert run(QLearning(**cliff, steps=12_000, rows=2, step_size=1.0, exploration=1.0))[1][-1]["wrong"] == 0
    assert run(FittedQ(**cliff, transitions=1, iterations=200, rows=2))[1][-1]["wrong"] == 0
    assert run(NoisyBackups(**cliff, sweeps=200, rows=2, eta=1.0, reward_noise=0.0))[1][-1]["wrong"] == 0
    assert run(NoisyValues(**cliff, noise=(0.0, 1e-4), draws=10))[1][-1]["wrong"] == 0


@pytest.mark.parametrize("cell", [1, 3])
def test_on_one_batch_all_operators_of_the_theorem_agree_in_the_limit(cell):
    tables = {}
    for operator in FAMILY:
        spec = FittedQ(
            env="garnet:12,3,3", operator=operator, gamma=0.8, transitions=4, iterations=600, rows=1, cell=cell, reward_noise=1.0
        )
        state, [row] = run(spec)
        tables[operator] = (state["q"].argmax(axis=1), state["q"].max(axis=1), row)
    policy, v, bellman = tables["bellman"]
    # The batch misleads, or there would be nothing to see.
    assert bellman["wrong"] > 0
    for greedy, value, row in tables.values():
        np.testing.assert_array_equal(greedy, policy)
        np.testing.assert_allclose(value, v, atol=1e-8)
        assert row["gap"] >= bellman["gap"] - 1e-8
    assert tables["al:0.9"][2]["gap"] == pytest.approx(10 * bellman["gap"])


# Q-learning


def test_episodes_end_in_terminal_states_and_start_in_others():
    reference = reference_solution("gym/FrozenLake-v1", 0.9)
    steps = list(rollout(NoisyFiniteEnv(reference, 0.0), lambda x: x % 4, steps=2000, seed=0))
    assert reference.nonterminal[[step.x for step in steps]].all()
    for step in steps:
        assert step.terminated == (not reference.nonterminal[step.x_next])
        assert step.r == reference.mdp.rewards[step.x, step.a]
    starts = [after.x for before, after in pairwise(steps) if before.ended]
    assert set(starts) == set(np.flatnonzero(reference.nonterminal))
    lengths = np.diff(np.flatnonzero([step.ended for step in steps]))
    assert lengths.max() == 10


def test_rewards_have_the_requested_noise():
    reference = reference_solution("cake", None)
    steps = list(rollout(NoisyFiniteEnv(reference, 0.5), lambda x: x % 2, steps=3000, seed=0))
    errors = np.array([step.r - reference.mdp.rewards[step.x, step.a] for step in steps])
    assert stats.kstest(errors, "norm", args=(0, 0.5)).pvalue > 1e-3


def test_q_learning_counts_visits_of_nonterminal_states():
    state, rows = run(QLearning(env="gridworld:3,4", steps=1000, rows=7))
    assert state["visits"].sum() == 1000
    assert state["visits"][-1].sum() == 0
    assert (state["q"][-1] == 0).all()
    assert [row["step"] for row in rows] == [142, 285, 428, 571, 714, 857, 1000]


def test_q_learning_learns():
    _, rows = run(QLearning(env="gridworld:3,4", operator="al:0.5", steps=20_000, rows=4, exploration=0.5))
    assert rows[-1]["score"] > 0.99
    assert abs(rows[-1]["value_error"]) < 0.2


# The batch


def test_a_batch_has_equally_many_transitions_of_each_pair():
    reference = reference_solution("gridworld:3,4", None)
    batch = draw_batch(reference, 2000, 0.5, np.random.default_rng(0))
    counts = np.zeros((12, 4), dtype=int)
    np.add.at(counts, (batch.x, batch.a), 1)
    assert (counts[:-1] == 2000).all()
    assert (counts[-1] == 0).all()
    np.testing.assert_array_equal(batch.discount == 0, batch.x_next == 11)
    errors = batch.r - reference.mdp.rewards[batch.x, batch.a]
    assert stats.kstest(errors[::10], "norm", args=(0, 0.5)).pvalue > 1e-3
    table = reference.mdp.dense().transitions.probabilities
    for x, a in np.ndindex(11, 4):
        seen = np.bincount(batch.x_next[(batch.x == x) & (batch.a == a)], minlength=12)
        possible = table[x, a] > 0
        assert seen[~possible].sum() == 0
        assert stats.chisquare(seen[possible], 2000 * table[x, a, possible]).pvalue > 1e-5


def test_every_chunk_uses_the_same_batch():
    whole, parts = (run(FittedQ(env="gridworld:3,4", iterations=20, rows=rows, reward_noise=0.5))[0] for rows in (1, 4))
    assert same(whole, parts)


def test_cells_share_the_mean():
    means = CellMeans(cell=2, states=5)
    means.fit(np.array([[0], [1], [1], [4]]), np.array([0.0, 3.0, 6.0, 5.0]))
    assert means.predict(np.arange(5)[:, None]).tolist() == [3, 3, 0, 0, 5]


def test_larger_cells_are_coarser():
    (_, [fine]), (state, [coarse]) = (run(FittedQ(env="gridworld:4,4", cell=cell, iterations=300, rows=1)) for cell in (1, 4))
    assert len(np.unique(state["q"], axis=0)) == 4
    assert coarse["score"] < fine["score"]


# Noise on values


@pytest.mark.parametrize("operator", ["bellman", "consistent", "al:0.5", "al:0.9"])
def test_noisy_values_of_the_cake_against_the_normal_distribution(operator):
    draws = 20_000
    gap = solve(cake(), operator).gaps[0, 0]
    _, rows = run(NoisyValues(env="cake", operator=operator, draws=draws, noise=(0.5, 1.0, 5.0)))
    for row in rows:
        sigma = row["step"] * 0.1
        exact = stats.norm.cdf(-gap / (sigma * np.sqrt(2)))
        assert abs(row["wrong"] - exact) < 4 * np.sqrt(exact * (1 - exact) / draws) + 1e-12


def test_noisy_values_draw_the_same_errors_for_every_operator():
    def errors(operator):
        spec = NoisyValues(env="chain:6", operator=operator, noise=(2.0,), draws=1)
        q = spec.start()["q"]
        return spec.advance({"q": np.zeros_like(q)}, 0)[1][0]["value"]

    assert errors("bellman") == errors("al:0.9")
    # With errors in common a widened gap is never hidden where the narrower one is not.
    narrow, wide = (run(NoisyValues(env="chain:6", operator=text, draws=200))[1] for text in ("bellman", "al:0.5"))
    assert all(after["wrong"] <= before["wrong"] for before, after in zip(narrow, wide, strict=True))


def test_the_unit_of_noise_is_the_mean_gap():
    assert reference_solution("cake", None).gap == pytest.approx(0.1)
    reference = reference_solution("garnet:12,3,3", None)
    q, v, _ = policy_iteration(reference.mdp)
    assert reference.gap == pytest.approx(np.mean([np.sort(v[x] - q[x])[1] for x in range(12)]))


# Noise in backups


@pytest.mark.parametrize("operator", FAMILY)
@pytest.mark.parametrize("env", ["gridworld:3,4", "gym/FrozenLake-v1"])
def test_sweeps_with_many_samples_are_exact(env, operator):
    spec = NoisyBackups(env=env, operator=operator, sweeps=30, rows=1, samples=10**14, eta=0.7)
    mdp = reference_solution(env, None).mdp
    q = np.zeros((mdp.states, mdp.actions))
    for _ in range(30):
        q = 0.3 * q + 0.7 * parse(operator)(backups(mdp, q))
    np.testing.assert_allclose(run(spec)[0]["q"], q, atol=1e-4)


def test_estimates_are_unbiased_and_have_the_right_spread():
    mdp, rng = chain(3, slip=0.3), np.random.default_rng(0)
    models = [estimate(mdp, samples=4, reward_noise=0.5, rng=rng) for _ in range(4000)]
    slips = np.array([model.transitions.probabilities[1, 1, 1] for model in models])
    rewards = np.array([model.rewards[0, 0] for model in models])
    assert set(slips.tolist()) <= {0.0, 0.25, 0.5, 0.75, 1.0}
    assert stats.chisquare(np.bincount((4 * slips).astype(int), minlength=5), 4000 * stats.binom.pmf(range(5), 4, 0.3)).pvalue > 1e-3
    assert stats.kstest(rewards, "norm", args=(0, 0.25)).pvalue > 1e-3


def test_rows_of_noisy_backups_are_means_over_their_sweeps():
    whole = NoisyBackups(env="chain:6", sweeps=1, rows=1)
    state, seen = whole.start(), []
    rng = whole.rng(0)
    q, reference = state["q"], reference_solution("chain:6", None)
    for _ in range(10):
        q = 0.9 * q + 0.1 * backups(estimate(reference.mdp, 1, 0.5, rng), q).bellman
        seen.append(measure(reference, q))
    after, [row] = dataclasses.replace(whole, sweeps=10).advance(state, 0)
    np.testing.assert_allclose(after["q"], q)
    for column in COLUMNS:
        assert row[column] == pytest.approx(np.mean([one[column] for one in seen]))


def test_noisy_backups_keep_terminal_values_at_zero():
    state, _ = run(NoisyBackups(env="gym/FrozenLake-v1", sweeps=50, rows=1, reward_noise=1.0))
    reference = reference_solution("gym/FrozenLake-v1", None)
    assert (state["q"][~reference.nonterminal] == 0).all()
    assert (state["q"][reference.nonterminal] != 0).all()


def test_operators_see_the_same_samples():
    # From Q = 0 there are no gaps to widen, so after one sweep the samples alone tell operators apart.
    one, other = (run(NoisyBackups(env="chain:6", operator=text, sweeps=1, rows=1))[0]["q"] for text in ("bellman", "al:0.9"))
    np.testing.assert_array_equal(one, other)
