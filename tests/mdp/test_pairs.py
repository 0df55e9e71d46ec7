"""Models whose action sets differ by state, in every layout and from every constructor, against an independent dense solver."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from actiongap import FiniteEnv, FiniteMDP, evaluate_policy, iterate, load_mdp, parse, policy_iteration, q_learning, save_npz, solve
from actiongap.mdp.aggregation import Aggregation, induced_mdp, iterate_interpolated, partition
from actiongap.mdp.engines import make_engine
from actiongap.mdp.explicit import load_explicit
from actiongap.mdp.learning import expected_policy_evaluation, sarsa
from actiongap.mdp.transitions import Dense, Ragged, Sparse
from helpers import AT_ONE, FAMILY
from reference_solver import apply_operator, optimal_values, random_pairs


def model_of(pairs, name="random"):
    return FiniteMDP.from_pairs(pairs.states, pairs.actions, pairs.rewards, sparse.csr_array(pairs.transitions), pairs.gamma, name)


LAYOUTS = {"dense": FiniteMDP.dense, "padded": FiniteMDP.sparse, "ragged": FiniteMDP.ragged}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operator", [*FAMILY, *AT_ONE, "sal:0.4,0.8"])
def test_a_sweep_is_that_of_loops_over_the_pairs_that_exist(operator, layout):
    for seed in range(6):
        pairs = random_pairs(seed)
        mdp = LAYOUTS[layout](model_of(pairs))
        q0 = np.random.default_rng(seed).normal(size=(mdp.states, mdp.actions))
        expected = apply_operator(operator, pairs, q0)
        for name in ("arrays", "jax") if seed else ("arrays", "numba", "jax"):
            engine = make_engine(mdp, parse(operator), name)
            after, _ = engine.sweep(engine.start(q0.copy()))
            np.testing.assert_allclose(mdp.masked(np.asarray(after.q)), expected, atol=1e-12, err_msg=f"{operator} {name} {seed}")


@pytest.mark.parametrize("seed", range(30))
def test_values_policies_and_gaps_are_those_of_the_dense_solver(seed):
    pairs = random_pairs(seed)
    mdp = model_of(pairs)
    v, q = optimal_values(pairs)
    size = max(1.0, np.abs(v).max())
    found, values, policy = policy_iteration(mdp)
    np.testing.assert_allclose(values, v, atol=1e-10 * size)
    np.testing.assert_allclose(found, q, atol=1e-10 * size)
    assert mdp.masked(np.zeros_like(q), 1.0)[np.arange(mdp.states), policy].max() == 0
    solution = solve(mdp, "al:0.5", tol=1e-8 * size)
    np.testing.assert_array_equal(np.isneginf(solution.q), np.isneginf(q))
    np.testing.assert_array_equal(np.isnan(solution.gaps), np.isneginf(q))
    assert np.abs(solution.v - v).max() <= solution.error_bound
    np.testing.assert_allclose(solution.gaps, np.where(np.isneginf(q), np.nan, 2 * (v[:, None] - q)), atol=1e-6 * size)
    assert (v - evaluate_policy(mdp, solution.policy)).max() <= solution.policy_loss_bound + 1e-12 * size
    alone = (~np.isneginf(q)).sum(1) == 1
    np.testing.assert_array_equal(np.isnan(solution.action_gaps), alone)


def test_a_state_with_one_action_says_that_it_has_no_gap():
    mdp = FiniteMDP.from_pairs([0, 0, 1], [0, 2, 1], [1.0, 0.0, 0.0], [[0, 1], [0, 1], [0, 1]], 0.5)
    solution = solve(mdp)
    np.testing.assert_allclose(solution.action_gaps, [1.0, np.nan], atol=1e-9)
    plain = solution.as_json()
    assert plain["q"][1][0] is None
    assert plain["gaps"][1][2] is None
    assert "<td" in solution._repr_html_()
    assert "nan" not in solution._repr_html_()
    assert "inf" not in solution._repr_html_()


def test_iterates_and_warm_starts_keep_missing_actions_missing():
    mdp = model_of(random_pairs(2))
    tables = list(iterate(mdp, "al:0.5", sweeps=3))
    assert all((np.isneginf(table) == np.isneginf(mdp.masked(mdp.rewards))).all() for table in tables)
    more = list(iterate(mdp, "al:0.5", sweeps=4))[-1]
    np.testing.assert_array_equal(next(iter(iterate(mdp, "al:0.5", sweeps=1, q0=tables[-1]))), more)


def test_the_smallest_layout_is_chosen():
    rng = np.random.default_rng(0)
    wide = sparse.random_array((200, 100), density=0.02, rng=rng, format="lil")
    wide[:, 0] = 1.0
    wide[7, :] = 1.0
    wide = wide.tocsr()
    wide = sparse.diags_array(1 / wide.sum(1)) @ wide
    states, actions = np.repeat(np.arange(100), 2), np.tile([0, 1], 100)
    assert isinstance(FiniteMDP.from_pairs(states, actions, np.zeros(200), wide, 0.9).transitions, Ragged)
    moves = sparse.csr_array((np.ones(200), (np.arange(200), rng.integers(0, 100, 200))), shape=(200, 100))
    assert isinstance(FiniteMDP.from_pairs(states, actions, np.zeros(200), moves, 0.9).transitions, Sparse)
    full = rng.dirichlet(np.ones(100), 200)
    assert isinstance(FiniteMDP.from_pairs(states, actions, np.zeros(200), full, 0.9).transitions, Dense)


def test_every_layout_has_the_same_model():
    for seed in range(20):
        mdp = model_of(random_pairs(seed))
        tables = [LAYOUTS[a](LAYOUTS[b](mdp)).dense().transitions.probabilities for a in LAYOUTS for b in LAYOUTS]
        for table in tables:
            np.testing.assert_allclose(table, tables[0], atol=1e-15)


def test_pairs_may_come_in_any_order_and_type():
    pairs = random_pairs(3)
    order = np.random.default_rng(0).permutation(len(pairs.states))
    shuffled = FiniteMDP.from_pairs(
        pairs.states[order], pairs.actions[order], pairs.rewards[order], sparse.coo_matrix(pairs.transitions[order]), pairs.gamma
    )
    one = model_of(pairs)
    np.testing.assert_array_equal(shuffled.rewards, one.rewards)
    np.testing.assert_array_equal(shuffled.dense().transitions.probabilities, one.dense().transitions.probabilities)


def test_unsorted_and_repeated_column_indices_are_added_up():
    rows = sparse.csr_array((np.array([0.25, 0.5, 0.25, 1.0]), np.array([1, 0, 1, 0]), np.array([0, 3, 4])), shape=(2, 2))
    mdp = FiniteMDP.from_pairs([0, 1], [0, 0], [0.0, 1.0], rows, 0.9)
    assert mdp.dense().transitions.probabilities[:, 0].tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert rows.nnz == 4


def test_a_matrix_of_the_caller_is_neither_kept_nor_locked():
    matrix = sparse.csr_array(np.random.default_rng(0).dirichlet(np.full(40, 0.05), 40).round(2))
    matrix = sparse.csr_array(sparse.diags_array(1 / matrix.sum(1)) @ matrix)
    mdp = FiniteMDP.from_pairs(np.arange(40), np.zeros(40, int), np.zeros(40), matrix, 0.9)
    before = mdp.dense().transitions.probabilities
    matrix.data *= 2
    np.testing.assert_array_equal(mdp.dense().transitions.probabilities, before)
    for array in (mdp.rewards, *mdp.transitions):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_rewards_of_successors_are_averaged():
    table = np.array([[[0.25, 0.75], [0.0, 1.0]], [[1.0, 0.0], [0.5, 0.5]]])
    each = np.array([[[4.0, 8.0], [np.nan, 2.0]], [[3.0, 9.0], [2.0, 4.0]]])
    expected = [[7.0, 2.0], [3.0, 3.0]]
    assert FiniteMDP.from_dense(each, table, 0.9).rewards.tolist() == expected
    successors = np.broadcast_to([0, 1], table.shape)
    assert FiniteMDP.from_successors(each, successors, table, 0.9).rewards.tolist() == expected
    some = np.nan_to_num(each)
    pairs = FiniteMDP.from_pairs([0, 0, 1, 1], [0, 1, 0, 1], some.reshape(4, 2), table.reshape(4, 2), 0.9)
    assert pairs.rewards.tolist() == expected
    listed = FiniteMDP.from_matrices([table[:, 0], table[:, 1]], [some[:, 0], sparse.csr_array(some[:, 1])], 0.9)
    assert listed.rewards.tolist() == expected
    stacked = FiniteMDP.from_matrices(table.swapaxes(0, 1), some.swapaxes(0, 1), 0.9)
    assert stacked.rewards.tolist() == expected


def test_one_matrix_per_action():
    matrices = [sparse.csr_array([[0.5, 0.5], [0.0, 1.0]]), np.array([[0.0, 1.0], [0.0, 0.0]])]
    mdp = FiniteMDP.from_matrices(matrices, [[1.0, 2.0], [3.0, 0.0]], 0.5)
    np.testing.assert_array_equal(mdp.available, [[True, True], [True, False]])
    assert mdp.actions_of(1).tolist() == [0]
    assert solve(mdp).v.round(8).tolist() == [5.0, 6.0]


def server(x, a):
    """A queue of at most 50: serve with speed a, which an empty queue cannot."""
    successors = np.stack([np.minimum(x + 1, 50), x, np.maximum(x - 1, 0)], axis=-1)
    leave = 0.2 * a
    probabilities = np.stack([np.full(len(x), 0.3), 0.7 - leave, leave], axis=-1)
    return -x - 2.0 * a, successors, probabilities


def test_functions_are_called_on_arrays_or_on_numbers():
    arrays = FiniteMDP.from_function(server, 51, 4, 0.95, "queue", available=lambda x, a: (x > 0) | (a == 0))

    def one(x, a):
        reward, successors, probabilities = server(np.array([x]), np.array([a]))
        return reward[0], successors[0].tolist(), probabilities[0].tolist()

    numbers = FiniteMDP.from_function(one, 51, 4, 0.95, "queue", available=lambda x, a: x > 0 or a == 0, vectorized=False)
    assert arrays.pairs == numbers.pairs == 51 * 4 - 3
    np.testing.assert_array_equal(arrays.rewards, numbers.rewards)
    np.testing.assert_array_equal(arrays.dense().transitions.probabilities, numbers.dense().transitions.probabilities)


def test_functions_are_called_block_by_block(monkeypatch):
    monkeypatch.setattr("actiongap.mdp.pairs.BLOCK_PAIRS", 7)
    seen = []

    def step(x, a):
        seen.append(len(x))
        return server(x, a)

    blocks = FiniteMDP.from_function(step, 51, 4, 0.95)
    assert sum(seen) == 204
    assert max(seen) == 7
    monkeypatch.undo()
    whole = FiniteMDP.from_function(server, 51, 4, 0.95)
    np.testing.assert_array_equal(blocks.dense().transitions.probabilities, whole.dense().transitions.probabilities)


def test_quantecon_models_have_equal_answers():
    from quantecon.markov import DiscreteDP

    for seed in range(8):
        pairs = random_pairs(seed)
        if pairs.gamma == 0:
            continue
        for matrix in (pairs.transitions, sparse.csr_matrix(pairs.transitions)):
            ddp = DiscreteDP(pairs.rewards, matrix, pairs.gamma, pairs.states, pairs.actions)
            theirs = ddp.solve(method="policy_iteration")
            np.testing.assert_allclose(solve(FiniteMDP.from_quantecon(ddp)).v, theirs.v, atol=1e-8 * max(1, np.abs(theirs.v).max()))
        product = ddp.to_product_form()
        ours = solve(FiniteMDP.from_quantecon(product))
        np.testing.assert_allclose(ours.v, theirs.v, atol=1e-8 * max(1, np.abs(theirs.v).max()))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_keep_action_sets_and_layouts(tmp_path, layout):
    mdp = LAYOUTS[layout](model_of(random_pairs(2)))
    save_npz(mdp, tmp_path / "model.npz")
    again = load_mdp(str(tmp_path / "model.npz"))
    assert type(again.transitions) is type(mdp.transitions)
    np.testing.assert_array_equal(again.available, mdp.available)
    np.testing.assert_array_equal(again.rewards, mdp.rewards)
    for one, other in zip(again.transitions, mdp.transitions, strict=True):
        np.testing.assert_array_equal(one, other)


TRA = "3 4 6\n0 0 0 0.5 wait\n0 0 1 0.5 wait\n0 1 2 1 go\n1 0 1 0.25\n1 0 2 0.75\n2 0 2 1\n"


def test_files_of_prism_are_read(tmp_path):
    (tmp_path / "m.tra").write_text(TRA)
    (tmp_path / "m.srew").write_text("# rewards\n3 2\n0 1.5\n1 2\n")
    (tmp_path / "m.trew").write_text("3 4 2\n0 1 2 10\n1 0 2 4\n")
    mdp = load_mdp(str(tmp_path / "m.tra"), gamma=0.5)
    assert mdp.rewards.tolist() == [[1.5, 11.5], [5.0, 0.0], [0.0, 0.0]]
    np.testing.assert_array_equal(mdp.available, [[True, True], [True, False], [True, False]])
    assert mdp.gamma == 0.5
    (tmp_path / "storm.tra").write_text("mdp\n" + "\n".join(line.replace("wait", "").replace("go", "") for line in TRA.splitlines()[1:]))
    other = load_explicit(tmp_path / "storm.tra", state_rewards=tmp_path / "m.srew", transition_rewards=tmp_path / "m.trew")
    np.testing.assert_array_equal(other.rewards, mdp.rewards)
    (tmp_path / "chain.tra").write_text("2 3\n0 0 0.5\n0 1 0.5\n1 1 1\n")
    assert load_explicit(tmp_path / "chain.tra").pairs == 2


DRN = """// exported
@type: MDP
@parameters

@reward_models
time cost
@nr_states
2
@nr_choices
3
@model
state 0 [1, 2] init
\taction 0 [0, 3]
\t\t0 : 0.5
\t\t1 : 0.5
\taction 1 [0, 0]
\t\t1 : 1
state 1 [0, 0]
\taction __NOLABEL__ [0, 0]
\t\t1 : 1
"""


def test_files_of_storm_are_read(tmp_path):
    (tmp_path / "m.drn").write_text(DRN)
    mdp = load_explicit(tmp_path / "m.drn", 0.9, reward_model="cost")
    assert mdp.rewards.tolist() == [[5.0, 2.0], [0.0, 0.0]]
    assert mdp.dense().transitions.probabilities[0].tolist() == [[0.5, 0.5], [0.0, 1.0]]
    with pytest.raises(ValueError, match="reward models time, cost: choose one with reward_model"):
        load_explicit(tmp_path / "m.drn")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("2 2 2\n0 0 0 1\n1 0 five 1\n", "not made of numbers"),
        ("2 2 2\n0 0 0 1\n1 0 2 1\n", "has 2 for a state or choice"),
        ("2 2 2\n0 0 0 1\n1 0 0 0.5\n", "state 1 and action 0 sum to 0.5"),
        ("3 2 2\n0 0 0 1\n1 0 0 1\n", "state 2 has no action"),
        ("2 3 2\n0 0 0 1\n1 0 0 1\n", "has 2 choices and its first line says 3"),
        ("2 2 2\n0 0 0 0 1\n", "lines must be"),
    ],
)
def test_bad_files_of_prism_are_refused_in_one_sentence(tmp_path, text, part):
    (tmp_path / "m.tra").write_text(text)
    with pytest.raises(ValueError, match=part) as caught:
        load_explicit(tmp_path / "m.tra")
    assert "\n" not in str(caught.value)


ROWS = sparse.csr_array(np.eye(2))


def overflowing():
    rows = sparse.csr_array(np.eye(2))
    rows.indices = np.array([0, -2147483648], np.int32)
    return rows


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (([0, 0], [0, 1], [0.0, 0.0], ROWS), "state 1 has no action: give every state at least one"),
        (([0, 0], [0, 0], [0.0, 0.0], ROWS), "state 0 and action 0 are listed twice"),
        (([0, 2], [0, 0], [0.0, 0.0], ROWS), r"states\[1\] is 2"),
        (([0, 1], [0, -1], [0.0, 0.0], ROWS), r"actions\[1\] is -1"),
        (([0, 1], [0, 0.5], [0.0, 0.0], ROWS), r"actions\[1\] is 0.5"),
        (([0, 1, 1], [0, 0, 1], [0.0, 0.0], ROWS), "there are 3 states, 3 actions and 2 rows of transitions"),
        (([0, 1], [0, 0], [0.0], ROWS), "rewards has 1 entries for 2 rows"),
        (([0, 1], [0, 0], [0.0, np.nan], ROWS), r"rewards\[1\] is nan"),
        (([0, 1], [0, 0], np.zeros((2, 3)), ROWS), r"rewards has shape \(2, 3\)"),
        (([0, 1], [0, 0], [0.0, 0.0], ROWS * 0.5), "state 0 and action 0 sum to 0.5: they must sum to one"),
        (([0, 1], [0, 3], [0.0, 0.0], [[1, 0], [2, -1]]), "state 1 and action 3 is -1.0: probabilities must not be negative"),
        (([0, 1], [0, 0], [0.0, 0.0], [[1, 0], [0, np.inf]]), "state 1 and action 0 is inf: probabilities must be finite"),
        (([0, 1], [0, 0], [0.0, 0.0], [[1, 0], [0, 0]]), "state 1 has no action"),
        (([0, 1], [0, 0], [0.0, 0.0], ROWS * 1j), "transitions.data must be an array of real numbers, not of type complex128"),
        (([0, 1], [0, 0], [0.0, 0.0], overflowing()), "column indices outside 0 to 1: make it again with 64-bit indices"),
        (([0, 1], [0, 2**31], [0.0, 0.0], ROWS), "does not fit in memory: number the actions of each state from 0"),
        (([], [], [], np.zeros((0, 2))), "transitions are empty"),
    ],
)
def test_bad_pairs_are_refused_in_one_sentence(arguments, part):
    with pytest.raises(ValueError, match=part) as caught:
        FiniteMDP.from_pairs(*arguments, gamma=0.9)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("step", "part"),
    [
        (lambda x, a: (x, x[:, None], 0.5 * np.ones((len(x), 1))), "state 0 and action 0 sum to 0.5"),
        (lambda x, a: (x, x[:, None], np.where(x == 3, 2.0, 1.0)[:, None]), "state 3 and action 0 sum to 2.0"),
        (lambda x, a: (x, x[:, None] + (a == 1)[:, None], np.ones((len(x), 1))), "a successor of state 4 and action 1 is 5"),
        (lambda x, a: (x / (x != 2), x[:, None], np.ones((len(x), 1))), "the reward of state 2 and action 0 is inf"),
        (lambda x, a: (x, x[:, None], np.where(x == 1, np.nan, 1.0)[:, None]), "a probability of state 1 and action 0 is nan"),
        (lambda x, a: x, "step returns ndarray for state 0 and action 0: return rewards, successors and probabilities"),
        (lambda x, a: (x, np.zeros((len(x), 3)), np.ones((len(x), 2)) / 2), "3 successors and 2 probabilities per pair"),
        (lambda x, a: (x[:2], x[:, None], np.ones((len(x), 1))), r"rewards of shape \(2,\) for 10 pairs"),
    ],
)
def test_functions_that_are_no_model_are_refused_with_the_pair(step, part):
    with pytest.raises(ValueError, match=part), np.errstate(all="ignore"):
        FiniteMDP.from_function(step, 5, 2, 0.9)


def test_functions_of_numbers_are_refused_with_the_pair():
    with pytest.raises(ValueError, match=r"state 2 and action 1 sum to 0\.75"):
        FiniteMDP.from_function(lambda x, a: (0.0, [x], [0.75 if x == 2 and a else 1.0]), 5, 2, 0.9, vectorized=False)
    with pytest.raises(ValueError, match="available returns int64"):
        FiniteMDP.from_function(server, 51, 2, 0.9, available=lambda x, a: x)
    with pytest.raises(TypeError, match="step is 3"):
        FiniteMDP.from_function(3, 5, 2, 0.9)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("available", "part"),
    [
        ([[True, False], [False, False]], "state 1 has no action"),
        ([[1, 0], [0, 1]], "available is int64"),
        ([[True, False]], r"shape \(1, 2\): give one truth value per pair, \(2, 2\)"),
    ],
)
def test_bad_action_sets_are_refused(available, part):
    with pytest.raises(ValueError, match=part):
        FiniteMDP.from_dense(np.zeros((2, 2)), np.full((2, 2, 2), 0.5), 0.9, available=available)


def test_rows_of_missing_actions_are_ignored():
    table = np.full((2, 2, 2), 0.5)
    table[1, 1] = np.nan
    mdp = FiniteMDP.from_dense([[0.0, 1.0], [2.0, -np.inf]], table, 0.9, available=[[True, True], [True, False]])
    assert mdp.rewards.tolist() == [[0.0, 1.0], [2.0, 0.0]]
    table[1, 0] = [0.5, 0.4]
    with pytest.raises(ValueError, match=r"sum of transitions\[1, 0\] is 0.9"):
        FiniteMDP.from_dense(np.zeros((2, 2)), table, 0.9, available=[[True, True], [True, False]])


def test_ragged_arrays_are_checked():
    good = model_of(random_pairs(2)).ragged()
    form = good.transitions
    assert isinstance(form, Ragged)
    with pytest.raises(ValueError, match="one after another"):
        FiniteMDP(good.rewards, form._replace(starts=form.starts[::-1]), 0.9)
    with pytest.raises(ValueError, match=r"the rows have \d+ successors, but"):
        FiniteMDP(
            good.rewards, form._replace(successors=np.append(form.successors, 0), probabilities=np.append(form.probabilities, 0.0)), 0.9
        )
    with pytest.raises(ValueError, match="as many successors as probabilities"):
        FiniteMDP(good.rewards, form._replace(successors=form.successors[:-1]), 0.9)


def test_objects_of_other_versions_of_quantecon_are_refused():
    with pytest.raises(TypeError, match="has no attribute s_indices: pass a quantecon"):
        FiniteMDP.from_quantecon(SimpleNamespace(R=np.zeros((1, 1)), Q=np.ones((1, 1, 1)), beta=0.5))


def test_policies_must_use_actions_that_exist():
    mdp = FiniteMDP.from_pairs([0, 0, 1], [0, 1, 1], [1.0, 0.0, 0.0], [[0, 1], [1, 0], [0, 1]], 0.5)
    with pytest.raises(ValueError, match=r"policy\[1\] is 0: the state does not have this action"):
        evaluate_policy(mdp, np.array([0, 0]))
    with pytest.raises(ValueError, match=r"policy\[1, 0\] is 0.5: the probability of an action that the state does not have must be 0"):
        evaluate_policy(mdp, np.array([[0.5, 0.5], [0.5, 0.5]]))
    np.testing.assert_allclose(evaluate_policy(mdp, np.array([[0.5, 0.5], [0.0, 1.0]])), [0.5 / 0.75, 0.0])


def test_environments_have_masks_and_refuse_other_actions():
    mdp = FiniteMDP.from_pairs([0, 0, 1], [0, 2, 1], [1.0, 0.0, 0.0], [[0, 1], [1, 0], [0, 1]], 0.5)
    for form in (mdp, mdp.ragged()):
        env = FiniteEnv(form, start=0)
        assert env.reset(seed=0)[1]["action_mask"].tolist() == [1, 0, 1]
        with pytest.raises(ValueError, match=r"state 0 does not have action 1: choose from \[0, 2\]"):
            env.step(1)
        assert env.step(0)[4]["action_mask"].tolist() == [0, 1, 0]


def test_learners_respect_action_sets():
    mdp = FiniteMDP.from_pairs([0, 0, 1, 1, 2], [0, 2, 1, 2, 0], [0.0, 0.2, 1.0, 0.0, 0.0], np.eye(3)[[1, 2, 2, 0, 0]], 0.5)
    _, v, policy = policy_iteration(mdp)
    for learn in (q_learning, sarsa):
        learned = learn(mdp, "al:0.5", steps=5000, seed=0, exploration=0.5)
        assert (learned.visits[~np.array([[1, 0, 1], [0, 1, 1], [1, 0, 0]], bool)] == 0).all()
        np.testing.assert_array_equal(learned.policy, policy)
        assert np.isnan(learned.gaps[2, 1:]).all()
    np.testing.assert_allclose(q_learning(mdp, "pal:0.5", steps=5000, seed=0, exploration=0.5).v, v, atol=1e-3)
    chosen = expected_policy_evaluation(mdp, policy, steps=5000, seed=0, exploration=0.5)
    np.testing.assert_allclose(chosen.v, v, atol=1e-3)


def test_aggregates_have_the_actions_of_all_their_states():
    mdp = FiniteMDP.from_pairs([0, 0, 1, 2], [0, 1, 0, 0], [1.0, 2.0, 3.0, 0.0], np.eye(3)[[2, 2, 2, 2]], 0.5)
    small = induced_mdp(mdp, partition([0, 0, 1]))
    np.testing.assert_array_equal(small.available, [[True, False], [True, False]])
    assert small.rewards[:, 0].tolist() == [2.0, 0.0]
    scheme = Aggregation(np.eye(3), np.eye(3))
    with pytest.raises(ValueError, match="every state needs every action: use induced_mdp"):
        iterate_interpolated(mdp, scheme)


def test_one_state_with_many_successors_does_not_pad_the_others():
    states = 2000
    row, column = (
        np.concatenate([np.zeros(states, int), np.arange(1, states)]),
        np.concatenate([np.arange(states), np.zeros(states - 1, int)]),
    )
    weights = np.concatenate([np.full(states, 1 / states), np.ones(states - 1)])
    matrix = sparse.csr_array((weights, (row, column)), shape=(states, states))
    mdp = FiniteMDP.from_pairs(np.arange(states), np.zeros(states, int), np.arange(states, dtype=float), matrix, 0.9)
    assert mdp.nbytes < 100 * states
    np.testing.assert_allclose(solve(mdp, tol=1e-6).v, evaluate_policy(mdp, np.zeros(states, int)), atol=2e-6)


def test_one_row_of_probabilities_serves_every_pair():
    def step(x, a):
        return -1.0 * x, np.stack([np.minimum(x + 1, 4), np.maximum(x - a, 0)], -1), np.array([0.4, 0.6])

    mdp = FiniteMDP.from_function(step, 5, 2, 0.9)
    np.testing.assert_allclose(mdp.dense().transitions.probabilities[2, 1], [0.0, 0.6, 0.0, 0.4, 0.0])


def test_lists_of_lists_are_matrices():
    lists = sparse.lil_array([[0.0, 1.0], [0.5, 0.5]])
    one, other = (FiniteMDP.from_pairs([0, 1], [0, 0], [1.0, 2.0], rows, 0.5) for rows in (lists, lists.tocsr()))
    np.testing.assert_array_equal(one.dense().transitions.probabilities, other.dense().transitions.probabilities)


def test_rewards_of_successors_are_means_although_probabilities_sum_to_one_only_nearly():
    table = np.array([[[0.5, 0.5 - 9e-7]]] * 2)
    for mdp in (
        FiniteMDP.from_dense(np.ones((2, 1, 2)), table, 0.999),
        FiniteMDP.from_pairs([0, 1], [0, 0], np.ones((2, 2)), table[:, 0], 0.5),
        FiniteMDP.from_function(lambda x, a: ([1.0, 1.0], [0, 1], table[x, a]), 2, 1, 0.5, vectorized=False),
    ):
        np.testing.assert_allclose(mdp.rewards, 1.0, rtol=0, atol=1e-15)


def test_rewards_of_the_wrong_shape_are_refused_with_their_pair():
    with pytest.raises(ValueError, match=r"rewards of shape \(3,\) for state 0 and action 0: return one reward, or one per successor"):
        FiniteMDP.from_function(lambda x, a: ([1.0] * 3, [0, 1], [0.5, 0.5]), 2, 1, 0.5, vectorized=False)
