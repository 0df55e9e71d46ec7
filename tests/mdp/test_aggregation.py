"""Aggregation schemes, the MDPs they induce, and Q-value interpolation, against sums written out from the definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actiongap.mdp.aggregation import (
    Aggregation,
    averager,
    induced_mdp,
    interpolated_backups,
    interpolated_policy,
    interpolation,
    interpolation_counterexample,
    iterate_interpolated,
    kernel_averager,
    partition,
)
from actiongap.mdp.engines import backups
from actiongap.mdp.exact import evaluate_policy, policy_iteration
from actiongap.mdp.generators import cake, chain, garnet
from actiongap.mdp.model import FiniteMDP
from actiongap.mdp.solve import solve
from actiongap.mdp.stopping import DIVERGED
from actiongap.operators import bellman, consistent, parse

OPERATORS = ["bellman", "consistent", "al:0.5", "pal:0.5", "pal-dqn:0.5", "lazy:0.5"]
OPTIMUM = np.array([[0.0, 8.0, 7.0], [0.0, -16.0, -16.0]])
CONSISTENT_LIMIT = np.array([[-8.0, 6.0, 7.0], [0.0, -32.0, -32.0]])

seeds = st.integers(0, 2**32 - 1)
deterministic = settings(derandomize=True, deadline=None, max_examples=60)


def again_only(b):
    """T'_QVI without the minimum."""
    return b.again


def random_mdp(rng, states, actions, concentration=0.5) -> FiniteMDP:
    transitions = rng.dirichlet(np.full(states, concentration), (states, actions))
    return FiniteMDP.from_dense(rng.normal(size=(states, actions)), transitions, rng.uniform(0.3, 0.95))


def random_scheme(rng, states, aggregates) -> Aggregation:
    return Aggregation(rng.dirichlet(np.full(aggregates, 0.5), states), rng.dirichlet(np.full(states, 0.5), aggregates))


def random_case(seed, aggregates=None, actions=None):
    rng = np.random.default_rng(seed)
    states = int(rng.integers(2, 7))
    mdp = random_mdp(rng, states, actions or int(rng.integers(1, 4)))
    scheme = random_scheme(rng, states, aggregates or int(rng.integers(1, 5)))
    return mdp, scheme, 5 * rng.normal(size=(scheme.aggregates, mdp.actions)), rng


def aggregation_by_hand(mdp, scheme, q, repeat_here):
    """E_D [R + gamma E_P E_A ...] one term at a time; `repeat_here` asks for the consistent operator."""
    p, up, down = mdp.dense().transitions.probabilities, scheme.to_aggregate, scheme.to_state
    out = np.zeros(q.shape)
    for z, a in np.ndindex(q.shape):
        for x in range(mdp.states):
            onward = 0.0
            for y in range(mdp.states):
                for w in range(scheme.aggregates):
                    onward += p[x, a, y] * up[y, w] * (q[z, a] if repeat_here and w == z else q[w].max())
            out[z, a] += down[z, x] * (mdp.rewards[x, a] + mdp.gamma * onward)
    return out


def interpolation_by_hand(mdp, scheme, q):
    """T_QVI, T'_QVI, E Q(x', a) and the next gap, one term at a time."""
    p, up, down = mdp.dense().transitions.probabilities, scheme.to_aggregate, scheme.to_state
    plain, again, repeat, next_gap = (np.zeros(q.shape) for _ in range(4))

    def at(y, b):
        return sum(up[y, w] * q[w, b] for w in range(scheme.aggregates))

    for z, a in np.ndindex(q.shape):
        for x in range(mdp.states):
            for out in (plain, again, repeat):
                out[z, a] += down[z, x] * mdp.rewards[x, a]
            for y in range(mdp.states):
                weight = down[z, x] * p[x, a, y]
                best = max(at(y, b) for b in range(mdp.actions))
                plain[z, a] += mdp.gamma * weight * best
                again[z, a] += mdp.gamma * weight * max(at(y, b) - up[y, z] * (q[z, b] - q[z, a]) for b in range(mdp.actions))
                repeat[z, a] += mdp.gamma * weight * at(y, a)
                next_gap[z, a] += weight * (best - at(y, a))
    return plain, again, repeat, next_gap


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("mdp", [cake(), chain(6), garnet(12, 3, 4, gamma=0.8, seed=3)], ids=lambda mdp: mdp.name)
def test_identity_scheme_is_the_tabular_problem(mdp, operator):
    expected = solve(mdp, operator)
    np.testing.assert_allclose(solve(induced_mdp(mdp, partition(range(mdp.states))), operator).v, expected.v, atol=1e-8)
    interpolated = iterate_interpolated(mdp, partition(range(mdp.states)), operator)
    np.testing.assert_allclose(interpolated.v, policy_iteration(mdp)[1], atol=1e-8)
    # Where a lazy action comes to rest depends on the path taken; all other limits do not.
    if not operator.startswith("lazy"):
        np.testing.assert_allclose(interpolated.q, expected.q, atol=1e-8)


@deterministic
@given(seeds)
def test_identity_scheme_gives_the_backups_of_the_mdp(seed):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, 5, 3)
    q = rng.normal(size=(5, 3))
    for name, ours, theirs in zip(backups(mdp, q)._fields, interpolated_backups(mdp, partition(range(5)), q), backups(mdp, q), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12, err_msg=name)


@deterministic
@given(seeds)
def test_hard_aggregation_makes_interpolation_and_aggregation_one(seed):
    mdp, _, _, rng = random_case(seed)
    labels = np.concatenate([[0, 1], rng.integers(0, 2, mdp.states - 2)])
    scheme = partition(labels, rng.uniform(0.1, 1, mdp.states))
    q = rng.normal(size=(2, mdp.actions))
    for ours, theirs in zip(interpolated_backups(mdp, scheme, q), backups(induced_mdp(mdp, scheme), q), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("seed", range(5))
def test_induced_mdp_has_the_aggregation_operators(seed, form):
    mdp, scheme, q, _ = random_case(seed)
    b = backups(induced_mdp(getattr(mdp, form)(), scheme), q)
    np.testing.assert_allclose(bellman()(b), aggregation_by_hand(mdp, scheme, q, repeat_here=False), atol=1e-12)
    np.testing.assert_allclose(consistent()(b), aggregation_by_hand(mdp, scheme, q, repeat_here=True), atol=1e-12)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("seed", range(5))
def test_interpolated_backups_are_the_definitions(seed, form):
    mdp, scheme, q, _ = random_case(seed)
    b = interpolated_backups(getattr(mdp, form)(), scheme, q)
    plain, again, repeat, next_gap = interpolation_by_hand(mdp, scheme, q)
    np.testing.assert_allclose(b.bellman, plain, atol=1e-12)
    np.testing.assert_allclose(b.again, again, atol=1e-12)
    np.testing.assert_allclose(b.repeat, repeat, atol=1e-12)
    np.testing.assert_allclose(b.next_gap, next_gap, atol=1e-12)
    np.testing.assert_array_equal(b.gap, q.max(axis=1, keepdims=True) - q)
    np.testing.assert_allclose(consistent()(b), np.minimum(plain, again), atol=1e-12)


@deterministic
@given(seeds)
def test_order_of_the_operators(seed):
    mdp, scheme, q, _ = random_case(seed)
    b = interpolated_backups(mdp, scheme, q)
    assert (b.bellman <= backups(induced_mdp(mdp, scheme), q).bellman + 1e-10).all()
    assert (b.again >= b.bellman - b.gamma * b.gap - 1e-10).all()
    assert (b.again >= b.repeat - 1e-10).all()
    greedy = b.gap == 0
    assert (b.again[greedy] >= b.bellman[greedy] - 1e-10).all()


@deterministic
@given(seeds)
def test_interpolation_operators_are_monotone_contractions(seed):
    mdp, scheme, q, rng = random_case(seed)
    higher = q + rng.uniform(0, 3, q.shape)
    other = q + 3 * rng.normal(size=q.shape)
    for operator in (bellman(), consistent(), parse(again_only)):
        before, above, beside = (operator(interpolated_backups(mdp, scheme, f)) for f in (q, higher, other))
        assert (above >= before - 1e-10).all()
        assert np.abs(beside - before).max() <= mdp.gamma * np.abs(other - q).max() + 1e-10


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("seed", range(4))
def test_theorem_holds_on_induced_mdps(seed, operator):
    mdp, scheme, _, _ = random_case(100 + seed, actions=3)
    induced = induced_mdp(mdp, scheme)
    q, v, _ = policy_iteration(induced)
    solution = solve(induced, operator)
    np.testing.assert_allclose(solution.v, v, atol=1e-8)
    assert (solution.gaps >= v[:, None] - q - 1e-8).all()


def test_counterexample_has_exact_fixed_points():
    mdp, scheme = interpolation_counterexample()
    np.testing.assert_array_equal(interpolated_backups(mdp, scheme, OPTIMUM).bellman, OPTIMUM)
    np.testing.assert_array_equal(consistent()(interpolated_backups(mdp, scheme, CONSISTENT_LIMIT)), CONSISTENT_LIMIT)
    for q0 in (None, OPTIMUM, 100 * np.ones((2, 3))):
        np.testing.assert_allclose(iterate_interpolated(mdp, scheme, "bellman", q0=q0).q, OPTIMUM, atol=1e-10)
        np.testing.assert_allclose(iterate_interpolated(mdp, scheme, "consistent", q0=q0).q, CONSISTENT_LIMIT, atol=1e-10)


def test_counterexample_costs_value_in_the_mdp_itself():
    mdp, scheme = interpolation_counterexample()
    q, v, policy = policy_iteration(mdp)
    np.testing.assert_allclose(q[[0, 2]], OPTIMUM, atol=1e-12)
    plain = interpolated_policy(scheme, iterate_interpolated(mdp, scheme, "bellman").q)
    careful = interpolated_policy(scheme, iterate_interpolated(mdp, scheme, "consistent").q)
    np.testing.assert_array_equal(plain, policy)
    np.testing.assert_allclose(evaluate_policy(mdp, careful) - v, [-1, 0, 0], atol=1e-12)


def test_two_states_are_enough_where_a_knot_leans_on_the_other():
    mdp = FiniteMDP.from_successors([[1, 2, -3], [-5, -7, 3]], [[[0], [1], [0]], [[0], [1], [1]]], np.ones((2, 3, 1)), 0.5)
    scheme = averager([[1.0, 0.0], [0.5, 0.5]], representatives=[0, 1])
    plain, careful = (iterate_interpolated(mdp, scheme, operator) for operator in ("bellman", "consistent"))
    np.testing.assert_allclose(plain.q, [[2.2, 2.4, -1.8], [-3.8, -6.6, 3.4]], atol=1e-10)
    np.testing.assert_allclose(careful.q, [[2, 1.5, -6], [-4, -26 / 3, 2.5]], atol=1e-10)
    assert (careful.v < plain.v).all()
    assert (plain.q[0].argmax(), careful.q[0].argmax()) == (1, 0)


def test_two_actions_are_enough_to_lower_v():
    mdp, scheme = interpolation_counterexample()
    two = FiniteMDP.from_dense(mdp.rewards[:, :2], mdp.dense().transitions.probabilities[:, :2], mdp.gamma)
    np.testing.assert_allclose(iterate_interpolated(two, scheme, "bellman").q, OPTIMUM[:, :2], atol=1e-10)
    np.testing.assert_allclose(iterate_interpolated(two, scheme, "consistent").q, CONSISTENT_LIMIT[:, :2], atol=1e-10)


def test_again_alone_exceeds_and_errs():
    mdp, scheme = interpolation_counterexample(sure=9.0)
    optimum = np.array([[0.5, 8.125, 9.0], [0.0, -16.0, -16.0]])
    b = interpolated_backups(mdp, scheme, optimum)
    np.testing.assert_array_equal(b.bellman, optimum)
    assert iterate_interpolated(mdp, scheme, "consistent").q[0].argmax() == 2
    limit = iterate_interpolated(mdp, scheme, again_only).q
    np.testing.assert_allclose(limit[0], [-8, 32 / 3, 9], atol=1e-10)
    mdp, scheme = interpolation_counterexample()
    np.testing.assert_array_equal(interpolated_backups(mdp, scheme, OPTIMUM).again[0] - OPTIMUM[0], [-4, 2, 0])


@pytest.mark.parametrize("operator", ["al:0.5", "pal:0.5", "pal-dqn:0.5"])
def test_other_operators_err_on_the_counterexample_too(operator):
    mdp, scheme = interpolation_counterexample()
    np.testing.assert_allclose(iterate_interpolated(mdp, scheme, operator).q[0], [-8, 5, 7], atol=1e-9)


def mirror(gamma):
    """Staying is free at each knot, by the knot's own action; the other action costs 1 and leads halfway, where neither is good."""
    successors = [[[0], [1]], [[1], [1]], [[1], [2]]]
    mdp = FiniteMDP.from_successors([[0, -1], [0, 0], [-1, 0]], successors, np.ones((3, 2, 1)), gamma)
    return mdp, interpolation([0.0, 1.0, 2.0], [0, 2])


@pytest.mark.parametrize(("gamma", "alpha"), [(0.5, 0.7), (0.5, 0.8), (0.9, 0.5), (0.9, 0.6)])
def test_advantage_learning_diverges_on_the_mirror_just_above_one(gamma, alpha):
    mdp, scheme = mirror(gamma)
    ratio = alpha + gamma / 2
    run = iterate_interpolated(mdp, scheme, f"al:{alpha}", sweeps=20_000)
    if ratio < 1:
        np.testing.assert_allclose(run.q[0], [0, -1 / (1 - ratio)], rtol=1e-9)
    else:
        assert run.sweeps < 20_000
        assert run.q[0, 1] < -DIVERGED
        assert np.isfinite(run.q).all()
    assert solve(mdp, f"al:{alpha}").q[0, 1] == pytest.approx(-1 / (1 - alpha))


@deterministic
@given(seeds)
def test_two_knots_and_two_actions_keep_the_greedy_action(seed):
    mdp, scheme, _, _ = random_case(seed, aggregates=2, actions=2)
    plain = iterate_interpolated(mdp, scheme, "bellman").q
    careful = iterate_interpolated(mdp, scheme, "consistent").q
    assert (careful <= plain + 1e-8).all()
    clear = np.ptp(plain, axis=1) > 1e-6
    np.testing.assert_array_equal(careful.argmax(axis=1)[clear], plain.argmax(axis=1)[clear])


@pytest.mark.long
def test_v_is_lowered_only_where_the_knots_of_a_cell_disagree():
    lowered = changed = agreed = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        mdp = random_mdp(rng, 7, 3, concentration=0.1)
        scheme = interpolation(np.sort(rng.uniform(size=7)), knots=[0, 3, 6])
        plain = iterate_interpolated(mdp, scheme, "bellman")
        careful = iterate_interpolated(mdp, scheme, "consistent")
        greedy, now = plain.q.argmax(axis=1), careful.q.argmax(axis=1)
        lowered += (careful.v < plain.v - 1e-6).any()
        changed += (np.take_along_axis(plain.q, now[:, None], axis=1)[:, 0] < plain.v - 1e-6).any()
        if all(np.ptp(greedy[weights > 0]) == 0 for weights in scheme.to_aggregate):
            agreed += 1
            np.testing.assert_allclose(careful.v, plain.v, atol=1e-8)
            np.testing.assert_array_equal(now, greedy)
            assert (careful.q <= plain.q + 1e-8).all()
    assert lowered > 200
    assert changed > 0
    assert agreed > 10


def test_interpolation_matches_numpy_and_ends_at_the_last_knot():
    positions = np.array([3.0, -1.0, 0.0, 0.25, 1.0, 2.0, 9.0])
    scheme = interpolation(positions, knots=[2, 4, 0])
    values = np.array([5.0, -1.0, 2.0])
    np.testing.assert_allclose(scheme.to_aggregate @ values, np.interp(positions, [0, 1, 3], values))
    np.testing.assert_array_equal(scheme.to_state @ positions, [0, 1, 3])


def test_kernel_averager_weights_are_gaussian_and_survive_distance():
    positions = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 0.0], [1e6, 0.0]])
    scheme = kernel_averager(positions, representatives=[0, 2], bandwidth=1.5)
    density = np.exp(-np.array([5.0, 8.0]) / (2 * 1.5**2))
    np.testing.assert_allclose(scheme.to_aggregate[1], density / density.sum())
    np.testing.assert_array_equal(scheme.to_aggregate[3], [0, 1])


def test_partition_weights_set_the_disaggregation():
    scheme = partition([1, 0, 1], weights=[1.0, 5.0, 3.0])
    np.testing.assert_array_equal(scheme.to_state, [[0, 1, 0], [0.25, 0, 0.75]])
    np.testing.assert_array_equal(scheme.to_aggregate, [[0, 1], [1, 0], [0, 1]])


def test_schemes_cannot_be_changed():
    table = np.eye(2)
    scheme = Aggregation(table, table)
    table[0] = 0.5
    np.testing.assert_array_equal(scheme.to_aggregate, np.eye(2))
    with pytest.raises(ValueError, match="read-only"):
        scheme.to_state[0, 0] = 2.0


def test_iteration_reports_where_it_stopped():
    mdp, scheme = interpolation_counterexample()
    short = iterate_interpolated(mdp, scheme, "bellman", sweeps=3)
    assert short.sweeps == 3
    assert np.abs(short.q - OPTIMUM).max() <= mdp.gamma / (1 - mdp.gamma) * short.residual
    assert iterate_interpolated(mdp, scheme, "bellman", q0=OPTIMUM).sweeps == 1


def test_large_rewards_are_not_taken_for_divergence():
    mdp, scheme = interpolation_counterexample()
    large = FiniteMDP(1e60 * mdp.rewards, mdp.transitions, mdp.gamma)
    np.testing.assert_allclose(iterate_interpolated(large, scheme, "bellman", tol=1e46).q, 1e60 * OPTIMUM, rtol=0, atol=1e47)


MDP, SCHEME = interpolation_counterexample()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Aggregation(np.array([[np.nan, 1.0]]), np.ones((2, 1))), r"to_aggregate\[0, 0\] is nan: probabilities must be finite"),
        (lambda: Aggregation(np.eye(2), np.array([[-0.5, 1.5], [0, 1]])), r"to_state\[0, 0\] is -0.5: probabilities must not be negative"),
        (lambda: Aggregation(np.eye(2), np.array([[0.5, 0.5], [0, 0.9]])), r"the sum of to_state\[1\] is 0.9: .* must sum to one"),
        (lambda: Aggregation(np.ones((2, 1)), np.eye(2)), r"to_aggregate has shape \(2, 1\) and to_state \(2, 2\)"),
        (lambda: Aggregation(np.ones((0, 2)), np.ones((2, 0))), "not empty"),
        (lambda: Aggregation(np.ones(2), np.ones(2)), "to_aggregate must have 2 dimensions, not 1"),
        (lambda: partition([0, 2, 2]), r"the weight of label\[1\] is 0.0: every label"),
        (lambda: partition([0, 2]), r"labels\[1\] is 2.0: labels must be aggregate states, whole numbers from 0 to 1"),
        (lambda: partition([0, 0.5]), r"labels\[1\] is 0.5: labels must be aggregate states"),
        (lambda: partition([-1, 0]), r"labels\[0\] is -1.0: labels must be aggregate states, whole numbers from 0"),
        (lambda: partition([0, np.inf]), r"labels\[1\] is inf: labels must be aggregate states"),
        (lambda: partition([0, 1j]), "labels must be an array of real numbers, not of type complex128"),
        (lambda: partition([]), "labels are empty"),
        (lambda: partition([0, 0], [1.0]), "weights have shape"),
        (lambda: partition([0, 0], [1.0, np.inf]), r"weights\[1\] is inf"),
        (lambda: partition([0, 0], [3.0, -1.0]), "must not be negative"),
        (
            lambda: averager([[1.0, 0.0], [0.0, 1.0]], [0, 2]),
            r"representatives\[1\] is 2: representatives must be states",
        ),
        (lambda: averager([[1.0, 0.0], [0.0, 1.0]], np.zeros(0, int)), "representatives are empty: list at least one state"),
        (lambda: averager([[1.0, 0.0], [0.0, 1.0]], [1, 1]), "list each state once"),
        (lambda: averager([[1.0, 0.0], [0.0, 1.0]], [1]), r"to_state \(1, 2\)"),
        (lambda: interpolation([0.0, 1.0, 2.0], [2, 0]), "give distinct positions in increasing order"),
        (lambda: interpolation([0.0, np.nan], [0]), r"positions\[1\] is nan"),
        (lambda: kernel_averager([[0.0], [1.0]], [0], 0.0), "bandwidth is 0.0"),
        (lambda: induced_mdp(MDP, partition(range(2))), "the scheme has 2 states and the MDP 3"),
        (lambda: interpolated_backups(MDP, SCHEME, np.zeros((3, 3))), r"q has shape \(3, 3\): it must be \(2, 3\)"),
        (lambda: iterate_interpolated(MDP, SCHEME, q0=np.full((2, 3), np.inf)), r"q0\[0, 0\] is inf"),
        (lambda: iterate_interpolated(MDP, SCHEME, sweeps=0), "sweeps is 0: it must be a whole number of at least 1"),
        (lambda: iterate_interpolated(MDP, SCHEME, tol=-1.0), "tol is -1.0: it must be a number, 0 or more"),
        (lambda: iterate_interpolated(MDP, SCHEME, "nonsense"), "unknown operator"),
        (lambda: interpolated_policy(SCHEME, np.zeros((3, 2))), r"must be \(2, 2\)"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()
