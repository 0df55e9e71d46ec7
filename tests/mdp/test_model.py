import numpy as np
import pytest
from hypothesis import given, settings

from actiongap import FiniteMDP, cake, chain, from_gymnasium, garnet, gridworld, single_state, solve
from actiongap.mdp.model import Dense, Sparse
from helpers import MDPS, mdps

GOOD = {"rewards": [[1.0, 0.0], [0.0, 2.0]], "transitions": [[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [1.0, 0.0]]], "gamma": 0.9}


def changed(name, place, value):
    arrays = {key: np.array(item, dtype=float) if key != "gamma" else item for key, item in GOOD.items()}
    arrays[name][place] = value
    return arrays


@pytest.mark.parametrize(
    ("arrays", "part"),
    [
        (changed("rewards", (1, 0), np.nan), r"rewards\[1, 0\] is nan"),
        (changed("rewards", (0, 1), np.inf), r"rewards\[0, 1\] is inf"),
        (changed("transitions", (0, 1, 1), -0.5), r"transitions\[0, 1, 1\] is -0.5: probabilities must not be negative"),
        (changed("transitions", (1, 0, 0), 0.5), r"sum of transitions\[1, 0\] is 1.5"),
        (changed("transitions", (1, 0, 1), np.nan), r"transitions\[1, 0, 1\] is nan"),
        (GOOD | {"gamma": 1.0}, "gamma is 1.0"),
        (GOOD | {"gamma": -0.1}, "gamma is -0.1"),
        (GOOD | {"gamma": float("nan")}, "gamma is nan"),
        (GOOD | {"gamma": "much"}, "gamma is 'much'"),
        (GOOD | {"gamma": [0.5, 0.5]}, "one number"),
        (GOOD | {"rewards": [1.0, 2.0]}, "rewards must have 2 dimensions, not 1"),
        (GOOD | {"rewards": [[1.0], [2.0, 3.0]]}, "rewards must be an array of real numbers with rows of equal length"),
        (GOOD | {"rewards": [["a", "b"], ["c", "d"]]}, "rewards must be an array of real numbers, not of type <U1"),
        (GOOD | {"rewards": np.zeros((2, 2), complex)}, "rewards must be an array of real numbers, not of type complex128"),
        (GOOD | {"rewards": np.zeros((2, 2), "datetime64[s]")}, "rewards must be .*datetime64"),
        (GOOD | {"rewards": np.zeros((2, 2), "timedelta64[s]")}, "rewards must be .*timedelta64"),
        (GOOD | {"rewards": np.zeros((2, 2), object)}, "rewards must be .*object"),
        (GOOD | {"rewards": np.ma.masked_array(np.zeros((2, 2)), np.eye(2) > 0)}, "rewards must have no masked entries: fill them"),
        (GOOD | {"transitions": np.array(GOOD["transitions"], complex)}, "transitions must be .*complex128"),
        (GOOD | {"transitions": np.ma.masked_array(GOOD["transitions"])}, "transitions must have no masked entries"),
        (GOOD | {"gamma": 10**400}, "one number"),
        (GOOD | {"rewards": np.zeros((0, 2))}, "at least one state"),
        (GOOD | {"transitions": np.ones((2, 2, 3)) / 3}, "must be \\(2, 2, 2\\)"),
    ],
)
def test_bad_dense_models_are_refused_in_one_sentence(arrays, part):
    with pytest.raises(ValueError, match=part) as caught:
        FiniteMDP.from_dense(**arrays)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("successors", "probabilities", "part"),
    [
        ([[[0, 5]], [[0, 1]]], [[[0.5, 0.5]], [[0.5, 0.5]]], r"successors\[0, 0, 1\] is 5"),
        ([[[0, -1]], [[0, 1]]], [[[0.5, 0.5]], [[0.5, 0.5]]], r"successors\[0, 0, 1\] is -1"),
        ([[[0, 0.5]], [[0, 1]]], [[[0.5, 0.5]], [[0.5, 0.5]]], r"successors\[0, 0, 1\] is 0.5: successors must be states, whole numbers"),
        ([[[0, np.nan]], [[0, 1]]], [[[0.5, 0.5]], [[0.5, 0.5]]], r"successors\[0, 0, 1\] is nan"),
        ([[[0, 1]], [[-np.inf, 1]]], [[[0.5, 0.5]], [[0.5, 0.5]]], r"successors\[1, 0, 0\] is -inf"),
        ([[[0, 1]], [[1e300, 1]]], [[[0.5, 0.5]], [[0.5, 0.5]]], r"successors\[1, 0, 0\] is 1e\+300"),
        (np.array([[[0, 1]], [[2**63, 1]]], np.uint64), [[[0.5, 0.5]], [[0.5, 0.5]]], r"successors\[1, 0, 0\] is 9223372036854775808"),
        ([[[0, 1j]], [[0, 1]]], [[[0.5, 0.5]], [[0.5, 0.5]]], "successors must be an array of real numbers, not of type complex128"),
        (np.ma.masked_array(np.zeros((2, 1, 2), int)), [[[0.5, 0.5]], [[0.5, 0.5]]], "successors must have no masked entries"),
        ([[[0, 1]], [[0, 1]]], [[[0.5, 0.4]], [[0.5, 0.5]]], r"sum of probabilities\[0, 0\] is 0.9"),
        ([[[0]], [[0]]], [[[0.5, 0.5]], [[0.5, 0.5]]], "one K"),
        (np.zeros((2, 1, 0), dtype=int), np.zeros((2, 1, 0)), "one K"),
    ],
)
def test_bad_sparse_models_are_refused_in_one_sentence(successors, probabilities, part):
    with pytest.raises(ValueError, match=part):
        FiniteMDP.from_successors([[0.0], [0.0]], successors, probabilities, 0.9)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.float16, np.float32, np.longdouble])
def test_every_kind_of_real_number_is_read(dtype):
    deterministic = np.array([[[0, 1], [1, 0]], [[1, 0], [0, 1]]])
    mdp = FiniteMDP.from_dense(np.eye(2, dtype=dtype), deterministic.astype(dtype), 0.5)
    listed = FiniteMDP.from_successors(np.eye(2), np.eye(2)[:, :, None].astype(dtype), np.ones((2, 2, 1), dtype), 0.5)
    for model in (mdp, listed):
        assert model.rewards.dtype == model.transitions.probabilities.dtype == np.float64
        np.testing.assert_array_equal(model.rewards, np.eye(2))
    np.testing.assert_array_equal(mdp.transitions.probabilities, deterministic)
    np.testing.assert_array_equal(listed.dense().transitions.probabilities[..., 1], np.eye(2))


def test_rows_that_nearly_sum_to_one_are_scaled():
    table = np.full((1, 1, 1), np.float32(1 - 1e-7))
    assert FiniteMDP.from_dense([[0.0]], table, 0.5).transitions.probabilities[0, 0, 0] == 1.0


def test_models_cannot_be_changed_from_outside():
    rewards, table = np.zeros((1, 2)), np.ones((1, 2, 1))
    mdp = FiniteMDP.from_dense(rewards, table, 0.5)
    rewards[0, 0], table[0, 0, 0] = 7.0, 7.0
    assert mdp.rewards[0, 0] == 0.0
    assert mdp.transitions.probabilities[0, 0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        mdp.rewards[0, 0] = 1.0
    with pytest.raises(AttributeError):
        mdp.gamma = 0.1  # pyright: ignore[reportAttributeAccessIssue]


def test_a_view_of_somebody_elses_array_is_copied():
    table = np.ones((1, 1, 1))
    view = table.view()
    view.flags.writeable = False
    mdp = FiniteMDP.from_dense([[0.0]], view, 0.5)
    table[0, 0, 0] = 3.0
    assert mdp.transitions.probabilities[0, 0, 0] == 1.0


def test_a_read_only_array_that_its_owner_unlocks_later_was_copied():
    rewards, successors, probabilities = np.zeros((1, 2)), np.zeros((1, 2, 1), np.uint32), np.ones((1, 2, 1))
    for array in (rewards, successors, probabilities):
        array.flags.writeable = False
    mdp = FiniteMDP.from_successors(rewards, successors, probabilities, 0.5)
    for array in (rewards, successors, probabilities):
        array.flags.writeable = True
        array += 7
    assert mdp.rewards.tolist() == [[0.0, 0.0]]
    assert mdp.transitions.successors.max() == 0  # pyright: ignore[reportAttributeAccessIssue]
    assert mdp.transitions.probabilities.max() == 1.0


@pytest.mark.parametrize("mdp", [cake(), garnet(5, 2, 2), gridworld(3), cake().sparse(), garnet(5, 2, 2).dense()], ids=repr)
def test_not_even_its_own_flag_unlocks_a_model(mdp):
    for array in (mdp.rewards, *mdp.transitions):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_copy_false_does_not_copy_arrays():
    rewards, successors, probabilities = np.zeros((3, 2)), np.zeros((3, 2, 4), np.uint32), np.full((3, 2, 4), 0.25)
    mdp = FiniteMDP.from_successors(rewards, successors, probabilities, 0.5, copy=False)
    for kept, given_away in zip((mdp.rewards, *mdp.transitions), (rewards, successors, probabilities), strict=True):
        assert np.shares_memory(kept, given_away)
        assert not given_away.flags.writeable
        assert kept.flags.c_contiguous


def test_large_models_are_made_without_a_second_copy():
    import tracemalloc

    tracemalloc.start()
    mdp = garnet(20_000, 4, 8)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The cut points are copied once while they are turned into probabilities, before the rewards are drawn.
    assert most < mdp.nbytes + mdp.transitions.probabilities.nbytes


@given(mdp=mdps())
@settings(derandomize=True, deadline=None)
def test_both_forms_answer_alike(mdp):
    rng = np.random.default_rng(0)
    q = rng.standard_normal((mdp.states, mdp.actions))
    sparse, dense = mdp.sparse(), mdp.sparse().dense()
    assert isinstance(sparse.transitions, Sparse)
    assert isinstance(dense.transitions, Dense)
    np.testing.assert_allclose(dense.transitions.probabilities, mdp.transitions.probabilities, atol=1e-15)
    states = np.arange(mdp.states)
    for one, other in ((sparse, mdp), (dense, mdp)):
        np.testing.assert_allclose(one.transitions.expect(q[:, 0]), other.transitions.expect(q[:, 0]), atol=1e-12)
        np.testing.assert_allclose(one.transitions.expect_same_action(q), other.transitions.expect_same_action(q), atol=1e-12)
        np.testing.assert_allclose(one.transitions.stay(states), other.transitions.stay(states), atol=1e-15)


@given(mdp=mdps())
@settings(derandomize=True, deadline=None)
def test_the_three_questions_by_hand(mdp):
    q = np.random.default_rng(1).standard_normal((mdp.states, mdp.actions))
    p = mdp.transitions.probabilities
    for x in range(mdp.states):
        for a in range(mdp.actions):
            assert mdp.transitions.expect(q[:, 0])[x, a] == pytest.approx(sum(p[x, a, y] * q[y, 0] for y in range(mdp.states)))
            assert mdp.transitions.expect_same_action(q)[x, a] == pytest.approx(sum(p[x, a, y] * q[y, a] for y in range(mdp.states)))
            assert mdp.transitions.stay(np.arange(mdp.states))[x, a] == p[x, a, x]


@pytest.mark.parametrize("mdp", MDPS.values(), ids=MDPS)
def test_every_row_is_a_distribution(mdp):
    np.testing.assert_allclose(mdp.transitions.probabilities.sum(-1), 1.0, atol=1e-14)
    assert repr(mdp).startswith("FiniteMDP(")


def test_one_row_for_all_pairs_is_stored_once():
    mdp = gridworld(100)
    assert mdp.nbytes < mdp.rewards.nbytes + mdp.transitions.successors.nbytes + 100  # pyright: ignore[reportAttributeAccessIssue]
    assert mdp.with_discount(0.5).transitions.probabilities is mdp.transitions.probabilities


def test_discount_can_be_changed():
    assert cake(0.9).with_discount(0.5).gamma == 0.5
    with pytest.raises(ValueError, match="gamma is 2"):
        cake(0.9).with_discount(2)


def test_cake_is_the_papers():
    mdp = cake(0.8, 0.3)
    assert mdp.rewards[0].tolist() == [1.0, 0.0]
    assert mdp.rewards[1, 0] / (1 - 0.8) == pytest.approx(-2 * 1.3 / 0.8)
    assert mdp.transitions.probabilities[0].tolist() == [[0.5, 0.5], [1.0, 0.0]]


def test_gridworld_moves_and_slips():
    mdp = gridworld(3, 3, slip=0.2).dense()
    up_from_centre = mdp.transitions.probabilities[4, 0]
    assert up_from_centre[1] == pytest.approx(0.8)
    assert up_from_centre[5] == pytest.approx(0.1)
    assert up_from_centre[3] == pytest.approx(0.1)
    assert mdp.transitions.probabilities[0, 0, 0] == pytest.approx(0.9)  # Into the wall above, or the one on the left.
    assert mdp.transitions.probabilities[8, :, 8].tolist() == pytest.approx([1.0] * 4)
    assert mdp.rewards[8].tolist() == [0.0] * 4


def test_garnet_repeats_by_seed():
    assert (garnet(9, 2, 3, seed=5).rewards == garnet(9, 2, 3, seed=5).rewards).all()
    assert (garnet(9, 2, 3, seed=5).rewards != garnet(9, 2, 3, seed=6).rewards).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: cake(epsilon=0.0),
        lambda: cake(epsilon=float("nan")),
        lambda: cake(gamma=0.0),
        lambda: cake(gamma=1.0),
        lambda: chain(0),
        lambda: gridworld(3, 0),
        lambda: gridworld(3, slip=1.5),
        lambda: garnet(10, 0, 2),
        lambda: single_state((float("nan"),)),
        lambda: garnet(10, 2, 2, seed=-1),
        lambda: garnet(10, 2, 2, seed=1.5),  # pyright: ignore[reportArgumentType]
    ],
)
def test_examples_refuse_nonsense(make):
    with pytest.raises(ValueError, match=r"must be|must lie|needs a"):
        make()


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
def test_gymnasium_tables(name):
    import gymnasium

    mdp = from_gymnasium(name, gamma=0.9)
    table = gymnasium.make(name).unwrapped.P  # pyright: ignore[reportAttributeAccessIssue]
    end = mdp.states - 1
    assert mdp.states == len(table) + 1
    dense = mdp.dense().transitions.probabilities
    for x in (0, len(table) // 2, len(table) - 1):
        for a in range(mdp.actions):
            expected = np.zeros(mdp.states)
            for probability, successor, _, done in table[x][a]:
                expected[end if done else successor] += probability
            np.testing.assert_allclose(dense[x, a], expected, atol=1e-12)
            assert mdp.rewards[x, a] == pytest.approx(sum(p * r for p, _, r, _ in table[x][a]))
    assert mdp.rewards[end].tolist() == [0.0] * mdp.actions
    assert dense[end, 0, end] == 1.0


def test_environments_without_a_table_are_refused():
    with pytest.raises(ValueError, match="does not list its transitions"):
        from_gymnasium("CartPole-v1")


def test_the_added_terminal_state_is_explained():
    lake = from_gymnasium("FrozenLake-v1")
    assert lake.note.startswith("State 16 is the terminal state that was added to the 16 of FrozenLake-v1")
    assert lake.dense().note == lake.dense().sparse().note == lake.with_discount(0.5).note == lake.note
    assert lake.note in solve(lake)._repr_html_()
    assert cake().note == ""


def test_a_model_is_one_line():
    assert repr(from_gymnasium("FrozenLake-v1")) == "FiniteMDP(gym/FrozenLake-v1: 17 states, 4 actions, 3 successors, gamma=0.99)"
