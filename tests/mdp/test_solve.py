import functools
import sys

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actiongap import (
    FiniteEnv,
    FiniteMDP,
    NotConvergedError,
    Operator,
    advantage,
    cake,
    evaluate_policy,
    garnet,
    gridworld,
    iterate,
    maximum,
    minimum,
    parse,
    policy_iteration,
    q_stationary,
    save_npz,
    single_state,
    solve,
    where,
)
from actiongap.mdp._numba_sweep import make_kernel
from actiongap.mdp.engines import make_engine
from actiongap.mdp.exact import policy_backup
from helpers import AT_ONE, FAMILY, MDPS, apply, loopy, mdps

crossed = pytest.mark.parametrize("mdp", MDPS.values(), ids=MDPS)


@crossed
@pytest.mark.parametrize("operator", FAMILY)
def test_bounds_are_true_and_reached(mdp, operator):
    _, best, _ = policy_iteration(mdp)
    solution = solve(mdp, operator, tol=1e-8)
    assert solution.converged
    assert solution.gaps_settled
    assert solution.error_bound <= 1e-8
    assert np.abs(solution.v - best).max() <= solution.error_bound
    assert (best - evaluate_policy(mdp, solution.policy)).max() <= solution.policy_loss_bound + 1e-12
    assert solution.policy_loss_bound < 1e-6
    np.testing.assert_array_equal(solution.v, solution.q.max(axis=1))
    np.testing.assert_array_equal(solution.policy, solution.q.argmax(axis=1))
    assert len(solution.history) == solution.sweeps
    assert solution.status.endswith("sweeps.") or solution.status.endswith("sweep.")


@crossed
@pytest.mark.parametrize("operator", AT_ONE)
def test_alpha_one_is_certified_though_gaps_may_grow(mdp, operator):
    solution = solve(mdp, operator, tol=1e-7)
    assert np.abs(solution.v - policy_iteration(mdp)[1]).max() <= solution.error_bound <= 1e-7
    if not solution.gaps_settled:
        assert "still change" in solution.status


@given(mdp=mdps(), operator=st.sampled_from((*FAMILY, *AT_ONE, "baird:1.5")), seed=st.integers(0, 1000), sweeps=st.integers(1, 30))
@settings(derandomize=True, deadline=None, max_examples=150)
def test_bounds_hold_after_any_number_of_sweeps(mdp, operator, seed, sweeps):
    q0 = np.random.default_rng(seed).normal(0, 5, (mdp.states, mdp.actions))
    solution = solve(mdp, operator, tol=1e-12, q0=q0, max_sweeps=sweeps, throw=False)
    _, best, _ = policy_iteration(mdp)
    assert np.abs(solution.v - best).max() <= solution.error_bound + 1e-10
    assert (best - evaluate_policy(mdp, solution.policy)).max() <= solution.policy_loss_bound + 1e-10


@given(mdp=mdps(), operator=st.sampled_from(FAMILY), eta=st.floats(0.2, 1.0))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_averaged_iteration_reaches_the_same_values(mdp, operator, eta):
    solution = solve(mdp, operator, tol=1e-6, eta=eta)
    assert np.abs(solution.v - policy_iteration(mdp)[1]).max() <= 1e-6


@pytest.mark.every(5)
@pytest.mark.parametrize("operator", [*FAMILY, *AT_ONE])
def test_engines_agree(operator):
    mdp = garnet(40, 3, 4, gamma=0.9, seed=9)
    q0 = np.random.default_rng(0).standard_normal((40, 3))
    found = {}
    for name in ("arrays", "numba", "jax"):
        engine = make_engine(mdp, parse(operator), name, eta=0.7)
        now = engine.start(q0.copy())
        for _ in range(24):
            now, _ = engine.sweep(now)
        now, progress = engine.sweep(now)
        found[name] = np.array(now.q), np.array(now.v), np.array(progress)
    for name in ("numba", "jax"):
        for one, other in zip(found["arrays"], found[name], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("engine", ["arrays", "numba", "jax"])
def test_each_engine_solves_both_forms(engine):
    for mdp in (cake(), cake().sparse(), gridworld(5, gamma=0.9)):
        solution = solve(mdp, "consistent", tol=1e-8, engine=engine)
        assert solution.engine == engine
        assert np.abs(solution.v - policy_iteration(mdp)[1]).max() <= 1e-8


def test_large_models_are_compiled_and_said_to_be():
    mdp = garnet(3000, 4, 8, gamma=0.9)
    assert solve(mdp, "al:0.5", tol=1e-6).engine == "numba"
    assert solve(mdp, lambda b: b._asdict()["bellman"], tol=1e-6).engine == "arrays"
    with pytest.raises(ValueError, match="Numba cannot compile"):
        solve(mdp, lambda b: b._asdict()["bellman"], engine="numba")


def test_scattered_models_are_prefetched_without_changing_the_answer():
    mdp = garnet(200_000, 2, 2, gamma=0.5, seed=3)
    q0 = np.random.default_rng(0).standard_normal((mdp.states, 2))
    numba, arrays = (make_engine(mdp, advantage(0.5), name) for name in ("numba", "arrays"))
    np.testing.assert_allclose(numba.sweep(numba.start(q0.copy()))[0].q, arrays.sweep(arrays.start(q0))[0].q, atol=1e-12)


def test_the_shift_is_what_makes_it_quick():
    mdp = garnet(300, 4, 6, gamma=0.99, seed=0)
    known, unknown = advantage(0.5), Operator("unknown", advantage(0.5).apply, commutes_with_constants=False)
    quick, slow = solve(mdp, known, tol=1e-6), solve(mdp, unknown, tol=1e-6)
    assert quick.sweeps * 10 < slow.sweeps
    np.testing.assert_allclose(quick.q, slow.q, atol=1e-5)


def test_ones_own_operator_is_shifted_where_that_is_proved():
    mdp = garnet(300, 4, 6, gamma=0.99, seed=0)
    own = solve(mdp, lambda b: maximum(b.bellman - 0.5 * b.gap, b.repeat), tol=1e-6)
    assert own.sweeps == solve(mdp, "pal:0.5", tol=1e-6, method="iterate").sweeps


def test_cake_closed_forms():
    for gamma in (0.1, 0.5, 0.9, 0.99):
        for epsilon in (0.01, 0.1, 1.0):
            mdp = cake(gamma, epsilon)
            assert solve(mdp, "bellman").q[0, 0] == pytest.approx(-epsilon, abs=1e-9)
            assert solve(mdp, "consistent").q[0, 0] == pytest.approx(-epsilon / (1 - gamma / 2), abs=1e-9)
            assert solve(mdp, "al:0.9").q[0, 0] == pytest.approx(-epsilon / 0.1, abs=1e-8)
            assert q_stationary(mdp, np.array([1, 0]))[0, 0] == pytest.approx(-epsilon / (1 - gamma / 2), abs=1e-9)


def test_divergence_is_said_and_raised():
    with pytest.raises(NotConvergedError, match="diverged") as caught:
        solve(gridworld(6), "baird:0.1")
    assert not caught.value.solution.converged
    assert caught.value.solution.error_bound == np.inf


def test_giving_up_is_said_and_raised():
    with pytest.raises(NotConvergedError, match="after 3 sweeps, not within"):
        solve(gridworld(6), "bellman", max_sweeps=3)
    solution = solve(gridworld(6), "bellman", max_sweeps=3, throw=False)
    assert solution.sweeps == 3
    assert solution.error_bound > solution.tol


def test_a_tolerance_below_rounding_is_refused_honestly():
    with pytest.raises(NotConvergedError, match="the best that float64 can certify"):
        solve(gridworld(6, gamma=0.99), "bellman", tol=1e-15)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"tol": 0.0}, "tol is 0.0"),
        ({"tol": float("nan")}, "tol is nan"),
        ({"eta": 0.0}, "eta is 0.0"),
        ({"eta": 1.5}, "eta is 1.5"),
        ({"engine": "abacus"}, "unknown engine 'abacus'"),
        ({"q0": np.zeros((3, 3))}, "q0 has shape"),
        ({"q0": np.full((2, 2), np.nan)}, "finite"),
        ({"max_sweeps": 0}, "max_sweeps is 0"),
        ({"max_sweeps": "many"}, "max_sweeps is 'many': it must be a whole number of at least 1"),
        ({"tol": "small"}, "tol is 'small': it must be a positive number"),
        ({"eta": "small"}, "eta is 'small': it must be from"),
        ({"operator": "al:-1"}, "from 0 to 1"),
    ],
)
def test_bad_options_are_refused(options, part):
    with pytest.raises(ValueError, match=part):
        solve(cake(), **({"operator": "bellman"} | options))


def test_an_operator_that_makes_nan_does_not_pass():
    with pytest.raises(NotConvergedError, match="diverged"), np.errstate(all="ignore"):
        solve(cake(), lambda b: b.bellman + 0.0 / (b.q - b.q))


@pytest.mark.parametrize("engine", ["arrays", "numba", "jax"])
def test_nan_in_a_corner_is_seen_by_every_engine(engine):
    with np.errstate(all="ignore"):
        solution = solve(
            garnet(50, 3, 4, gamma=0.9),
            lambda b: where(b.gap > 0.3, b.bellman * float("nan"), b.bellman),
            engine=engine,
            throw=False,
        )
    assert not solution.converged
    assert "diverged" in solution.status


@pytest.mark.parametrize("start", [1e6, 1e9])
def test_a_distant_start_is_certified_honestly(start):
    mdp = garnet(50, 3, 4, gamma=0.99)
    best = policy_iteration(mdp)[1]
    solution = solve(mdp, "bellman", q0=np.full((50, 3), start), throw=False)
    assert np.abs(solution.v - best).max() <= solution.error_bound
    assert solution.converged == (solution.error_bound <= solution.tol)


def test_the_policy_is_the_argmax_of_q_on_ties_too():
    for seed in range(40):
        once = garnet(20, 2, 3, gamma=0.9, seed=seed)
        form = once.sparse_transitions()
        twice = FiniteMDP.from_successors(
            np.repeat(once.rewards, 2, 1), np.repeat(form.successors, 2, 1), np.repeat(form.probabilities, 2, 1), 0.9
        )
        solution = solve(twice, "al:0.5", tol=1e-6)
        np.testing.assert_array_equal(solution.policy, solution.q.argmax(axis=1))


def test_gaps_that_settle_slowly_are_waited_for():
    solution = solve(loopy(4, 3, seed=0, gamma=0.0), "al:0.99", tol=1e-8, method="iterate")
    assert solution.gaps_settled
    assert solution.sweeps > 1100


def test_values_that_leave_float64_no_room_are_refused():
    for rewards in ((1e200, 0.0), (1e308, -1e308)):
        with pytest.raises(ValueError, match="scale the rewards"):
            solve(single_state(rewards, 0.5))
    assert solve(single_state((1e80, 0.0), 0.5), tol=1e70).converged


class Callable:
    """An operator that is an object, and has no hash."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __call__(self, b):
        return b.bellman


def _imports(b):
    import math

    return b.bellman * math.cos(0.0)


def _names_itself(b, depth=0):
    return b.bellman if depth else _names_itself(b, 1)


@pytest.mark.parametrize("operator", [functools.partial(lambda b, k: b.bellman - k * b.gap, k=0.5), Callable(), _imports, _names_itself])
def test_any_callable_plans_on_large_models(operator):
    assert solve(garnet(5000, 4, 4, gamma=0.5), operator, tol=1e-3).converged


@pytest.mark.parametrize("operator", [lambda b: b.belman, lambda b: None, lambda b: 1 / 0, lambda b: sys.exit(5), lambda b: b.gap > 0])
def test_an_operator_that_fails_is_named(operator):
    with pytest.raises(ValueError, match=r"the operator <lambda> (fails|returns)"):
        solve(cake(), operator)


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        (lambda b: np.zeros(7), r"returns shape \(7,\) for a backup of shape \(2, 2\): compute each number"),
        (lambda b: max(b.bellman - 0.5 * b.gap, b.repeat), "branches on arrays: use where, maximum and minimum of actiongap"),
    ],
)
@pytest.mark.parametrize("engine", ["arrays", "jax"])
def test_an_operator_of_other_shapes_or_with_branches_is_refused(operator, said, engine):
    with pytest.raises(ValueError, match=f"the operator <lambda> {said}"):
        solve(cake(), operator, engine=engine)


@pytest.mark.parametrize(
    "call", [solve, lambda mdp: iterate(mdp, sweeps=1), policy_iteration, FiniteEnv, lambda mdp: save_npz(mdp, "mdp.npz")]
)
def test_only_models_are_taken(call):
    with pytest.raises(TypeError, match=r"^'garnet:9,2,3' is not a FiniteMDP: make one with load_mdp\('garnet:9,2,3'\)$"):
        call("garnet:9,2,3")
    with pytest.raises(TypeError, match=r"is not a FiniteMDP: make one with from_gymnasium\(env\)$"):
        call(gymnasium.make("FrozenLake-v1"))


def test_what_is_called_after_a_sweep_must_be_a_function():
    with pytest.raises(TypeError, match="on_sweep is 3: give a function"):
        solve(cake(), on_sweep=3)  # pyright: ignore[reportArgumentType]


def test_an_operator_text_is_compiled_once():
    form = garnet(20, 2, 2, gamma=0.5).sparse_transitions()
    assert make_kernel(parse("al:0.25"), form, 1.0) is make_kernel(parse("al:0.25"), form, 1.0)


def test_q0_is_not_changed_and_sweeps_are_counted():
    q0 = np.ones((2, 2))
    for engine in ("arrays", "numba"):
        seen = []
        solution = solve(cake(), "al:0.5", q0=q0, engine=engine, on_sweep=lambda sweep, error, change, seen=seen: seen.append(sweep))
        assert (q0 == 1.0).all()
        assert seen == list(range(1, solution.sweeps + 1))


@given(mdp=mdps())
@settings(derandomize=True, deadline=None)
def test_policy_iteration_solves_bellmans_equation(mdp):
    q, v, policy = policy_iteration(mdp)
    np.testing.assert_allclose(apply("bellman", mdp, q), q, atol=1e-9)
    np.testing.assert_allclose(v, q.max(axis=1), atol=1e-9)
    np.testing.assert_allclose(policy_backup(mdp, policy, v), v, atol=1e-9)


@given(mdp=mdps())
@settings(derandomize=True, deadline=None)
def test_random_policies_are_mixtures(mdp):
    uniform = np.full((mdp.states, mdp.actions), 1 / mdp.actions)
    v = evaluate_policy(mdp, uniform)
    np.testing.assert_allclose((apply("bellman", mdp, np.repeat(v[:, None], mdp.actions, 1))).mean(axis=1), v, atol=1e-9)


@given(mdp=mdps(max_states=4), seed=st.integers(0, 100))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_q_stationary_is_the_value_of_repeating(mdp, seed):
    policy = np.random.default_rng(seed).integers(0, mdp.actions, mdp.states)
    found = q_stationary(mdp, policy)
    for x in range(mdp.states):
        for a in range(mdp.actions):
            changed = policy.copy()
            changed[x] = a
            assert found[x, a] == pytest.approx(evaluate_policy(mdp, changed)[x], abs=1e-8)


def test_single_state_by_hand():
    solution = solve(single_state((0.0, 1.0), 0.5), "al:0.5")
    np.testing.assert_allclose(solution.q, [[0.0, 2.0]], atol=1e-9)


def test_a_value_that_a_constant_made_right_does_not_pass_for_a_solution():
    # From here nothing moves: both actions are taken down by as much as the wrong one is ahead.
    mdp = FiniteMDP.from_successors([[0.0, -0.05]], np.zeros((1, 2, 1), int), np.ones((1, 2, 1)), 0.5)

    def greedy(b):
        return minimum(b.bellman, b.again) - 0.9 * b.gap

    q0 = np.array([[-0.225, -0.1]])
    with pytest.raises(NotConvergedError, match=r"but its greedy policy may lose 1\.0e-01: check with `actiongap prove` whether greedy"):
        solve(mdp, greedy, q0=q0)
    kept = solve(mdp, greedy, q0=q0, throw=False)
    assert (kept.converged, kept.policy.tolist()) == (False, [1])
    np.testing.assert_allclose(kept.v, [0.0], atol=1e-12)
    assert kept.policy_loss_bound == pytest.approx(0.1)


def test_a_solution_is_one_line_with_the_names_and_the_certified_error():
    solution = solve(garnet(50, 4, 3), "al:0.9")
    line = repr(solution)
    assert line.startswith("Solution(al:0.9 on garnet:50,4,3: V within ")
    assert line.endswith(f", {solution.sweeps} sweeps; q (50, 4))")
    shown = float(line.partition("within ")[2].partition(",")[0])
    assert solution.error_bound <= shown <= 2 * solution.error_bound


def test_a_solution_that_is_not_certified_says_so():
    assert "diverged" in repr(solve(gridworld(5), "baird:0.1", throw=False))
    stopped = solve(gridworld(5), max_sweeps=2, throw=False)
    assert "not converged, 2 sweeps" in repr(stopped)


def test_notebooks_show_the_first_states_of_a_solution():
    solution = solve(garnet(50, 4, 3), "al:0.9")
    text = solution._repr_html_()
    assert "al:0.9 on garnet:50,4,3" in text
    assert solution.status in text
    assert text.count("<tr>") == 21
    assert "... and 30 more states." in text
    assert "<table" in solve(gridworld(5), "baird:0.1", throw=False)._repr_html_()


def test_names_in_notebooks_are_escaped():
    mdp = FiniteMDP.from_dense([[0.0]], [[[1.0]]], 0.5, "<b>")
    text = solve(mdp)._repr_html_()
    assert "&lt;b&gt;" in text
    assert "<b>" not in text


def plain(name, q, rewards, table, gamma):
    """T'Q, written out from the paper's equations on the dense transition table."""
    v, kind, alpha = q.max(axis=1), name.partition(":")[0], float(name.partition(":")[2] or 0)
    gap, next_v = v[:, None] - q, table @ v
    next_q, stay = np.einsum("xay,ya->xa", table, q), np.einsum("xax->xa", table)
    bellman, repeat = rewards + gamma * next_v, rewards + gamma * next_q
    advantage_learning = bellman - alpha * gap
    if kind in ("bellman", "al"):
        return advantage_learning
    if kind == "consistent":
        return bellman - gamma * stay * gap
    if kind == "pal":
        return np.maximum(advantage_learning, repeat)
    if kind == "pal-dqn":
        return bellman - alpha * np.minimum(gap, next_v - next_q)
    keep = (q <= bellman) & (bellman <= alpha * v[:, None] + (1 - alpha) * q)
    return np.where(keep, q, bellman)


@crossed
@pytest.mark.parametrize("operator", FAMILY)
@pytest.mark.parametrize("eta", [1.0, 0.25])
def test_iterate_is_the_sequence_of_the_paper(mdp, operator, eta):
    table = mdp.dense().transitions.probabilities
    q = q0 = np.random.default_rng(0).normal(size=mdp.rewards.shape)
    for found in iterate(mdp, operator, sweeps=12, q0=q0, eta=eta):
        q = (1 - eta) * q + eta * plain(operator, q, mdp.rewards, table, mdp.gamma)
        np.testing.assert_allclose(found, q, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("engine", ["arrays", "numba", "jax"])
def test_iterate_gives_tables_of_its_own(engine):
    mdp, q0 = garnet(20, 3, 2, gamma=0.9), np.ones((20, 3))
    kept = list(iterate(mdp, "al:0.5", sweeps=5, q0=q0, engine=engine))
    assert len(kept) == 5
    assert (q0 == 1.0).all()
    for found, table in zip(iterate(mdp, "al:0.5", sweeps=5, q0=q0, engine=engine), kept, strict=True):
        np.testing.assert_array_equal(found, table)
        found[:] = np.nan


def test_iterate_takes_the_sweeps_of_solve():
    mdp = cake(0.9, 0.1)
    solution = solve(mdp, "lazy:0.5")
    *_, before, _ = iterate(mdp, "lazy:0.5", sweeps=solution.sweeps)
    np.testing.assert_array_equal(solution.q, before)


def test_iterate_follows_a_diverging_sequence_to_the_end():
    *_, last = iterate(cake(), "baird:0.01", sweeps=1000, q0=np.eye(2))
    assert not np.isfinite(last).all()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sweeps": 0}, "sweeps is 0: it must be a whole number of at least 1"),
        ({"sweeps": 2.5}, "sweeps is 2.5"),
        ({"sweeps": True}, "sweeps is True"),
        ({"sweeps": 2, "eta": 0.0}, "eta is 0.0"),
        ({"sweeps": 2, "q0": np.zeros((3, 2))}, r"q0 has shape \(3, 2\): it must be \(2, 2\)"),
        ({"sweeps": 2, "operator": "al"}, "al"),
        ({"sweeps": 2, "operator": "rso:0,1"}, "rso:0.0,1.0 has a random coefficient"),
        ({"sweeps": 2, "engine": "fast"}, "unknown engine 'fast'"),
    ],
)
def test_iterate_checks_its_arguments_at_once(wrong, said):
    with pytest.raises(ValueError, match=said):
        iterate(cake(), **wrong)


def test_a_solution_is_saved_as_plain_arrays(tmp_path):
    solution = solve(cake(), "al:0.5")
    solution.save(tmp_path / "cake.npz")
    with np.load(tmp_path / "cake.npz", allow_pickle=False) as found:
        assert sorted(found) == ["gaps", "policy", "q", "v"]
        assert all(np.array_equal(found[name], getattr(solution, name)) for name in found)


@pytest.mark.parametrize("name", ["cake.txt", "cake", "nowhere/cake.npz"])
def test_solutions_are_not_saved_elsewhere(tmp_path, name):
    with pytest.raises(ValueError, match=r": a solution is an \.npz file in an existing folder: choose such a path$"):
        solve(cake()).save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
