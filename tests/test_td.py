"""Sampled transitions as backups: hand-written values, terminal states, three array libraries, and what the mean of samples is."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from actiongap.maths import action_gap, top_two
from actiongap.mdp.engines import backups
from actiongap.mdp.generators import garnet
from actiongap.operators import parse
from actiongap.td import persistent_q_learning, sampled_backup, td_target, transition_backup

FAMILY = ["bellman", "consistent", "al:0.5", "pal:0.5", "pal-dqn:0.5", "lazy:0.5", "baird:0.5"]
PRESERVING = {"bellman": 0.0, "consistent": 0.9, "al:0.5": 0.5, "pal:0.5": 0.5, "pal-dqn:0.5": 0.5, "lazy:0.5": 0.5}
"""The operators of the theorem, each with the alpha of its second condition at gamma = 0.9."""

LIBRARIES = {"numpy": np.asarray, "jax": jnp.asarray, "torch": torch.asarray}


def batch(size=64, actions=4, seed=0):
    rng = np.random.default_rng(seed)
    returned = rng.random(size) < 0.3
    q_tm1 = rng.standard_normal((size, actions)).astype(np.float32)
    q_t = np.where(returned[:, None], q_tm1, rng.standard_normal((size, actions)).astype(np.float32))
    a_tm1, r_t = rng.integers(0, actions, size), rng.standard_normal(size).astype(np.float32)
    discount_t = np.where(rng.random(size) < 0.3, 0.0, 0.9).astype(np.float32)
    return (q_tm1, a_tm1, r_t, discount_t, q_t), returned


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("actions", [1, 2, 5])
def test_the_action_gap_is_the_difference_of_the_two_largest_values_in_every_library(actions, library):
    q = np.random.default_rng(0).integers(-3, 3, (4, 50, actions)).astype(np.float32)  # many ties
    ordered = np.sort(q, axis=-1)[..., ::-1]
    best, second = top_two(LIBRARIES[library](q))
    np.testing.assert_array_equal(np.asarray(best), ordered[..., 0])
    np.testing.assert_array_equal(np.asarray(second), ordered[..., min(1, actions - 1)])
    np.testing.assert_array_equal(np.asarray(action_gap(LIBRARIES[library](q))), np.asarray(best) - np.asarray(second))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("text", FAMILY)
def test_every_library_gives_the_numbers_of_plain_floats_in_the_precision_of_q(text, library):
    arrays, returned = batch()
    operator, convert = parse(text), LIBRARIES[library]
    target = td_target(operator, *map(convert, arrays), returned=convert(returned))
    assert str(target.dtype).endswith("float32")

    def plain(q_tm1, a, r, discount, q_t, back):
        return operator(transition_backup(q_tm1[a], max(q_tm1), r, discount, max(q_t), q_t[a], float(back)))

    expected = [plain(*row) for row in zip(*(array.tolist() for array in (*arrays, returned)), strict=True)]
    np.testing.assert_allclose(np.asarray(target), expected, atol=2e-6)


@pytest.mark.parametrize("text", FAMILY)
def test_operators_can_be_texts_or_functions(text):
    arrays, returned = batch()
    expected = td_target(parse(text), *arrays, returned=returned)
    np.testing.assert_array_equal(td_target(text, *arrays, returned=returned), expected)
    np.testing.assert_array_equal(td_target(parse(text).apply, *arrays, returned=returned), expected)


def test_an_unknown_operator_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="unknown operator 'advantage'"):
        td_target("advantage", *batch()[0])


@pytest.mark.parametrize("text", FAMILY)
def test_a_batch_is_the_single_transition_mapped(text):
    arrays, returned = batch()
    operator = parse(text)

    def one(*transition):
        return td_target(operator, *transition[:5], returned=transition[5])

    whole = np.asarray(td_target(operator, *arrays, returned=returned))
    in_jax = jax.jit(jax.vmap(one))(*map(jnp.asarray, (*arrays, returned)))
    in_torch = torch.vmap(one)(*map(torch.asarray, (*arrays, returned)))
    in_numpy = [one(*transition) for transition in zip(*arrays, returned, strict=True)]
    for mapped in (in_jax, in_torch, in_numpy):
        np.testing.assert_allclose(np.asarray(mapped), whole, atol=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
def test_leading_shape_and_small_integer_actions(library):
    convert = LIBRARIES[library]
    (q_tm1, a_tm1, r_t, discount_t, q_t), _ = batch(size=6, actions=3)
    flat = sampled_backup(q_tm1, a_tm1, r_t, discount_t, q_t)
    for dtype in (np.uint8, np.int32):
        folded = [convert(array.reshape(2, 3, *array.shape[1:])) for array in (q_tm1, a_tm1.astype(dtype), r_t, discount_t, q_t)]
        for field, expected in zip(sampled_backup(*folded), flat, strict=True):
            np.testing.assert_allclose(np.asarray(field), expected.reshape(2, 3), atol=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", ["a_tm1", "r_t", "discount_t", "returned", "v_tm1", "v_t"])
def test_a_column_beside_rows_is_refused(library, name):
    convert = LIBRARIES[library]
    (q_tm1, *numbers, q_t), returned = batch()
    given = dict(zip(("a_tm1", "r_t", "discount_t"), numbers, strict=True)) | {"returned": returned, "v_tm1": q_tm1[:, 0], "v_t": q_t[:, 0]}
    given = {which: convert(array) for which, array in given.items()}
    assert td_target("consistent", q_tm1=convert(q_tm1), q_t=convert(q_t), **given).shape == q_t.shape[:1]
    with pytest.raises(ValueError, match=rf"{name} has shape \({len(q_t)}, 1\): pass (a number or )?an array of shape"):
        td_target("consistent", q_tm1=convert(q_tm1), q_t=convert(q_t), **given | {name: given[name][:, None]})


def test_each_transition_has_an_action():
    (q_tm1, a_tm1, *rest), _ = batch()
    np.testing.assert_array_equal(td_target("bellman", q_tm1, a_tm1.tolist(), *rest), td_target("bellman", q_tm1, a_tm1, *rest))
    with pytest.raises(ValueError, match=r"a_tm1 has shape \(\): pass an array of shape"):
        td_target("bellman", q_tm1, 0, *rest)


@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "torch"])
def test_actions_are_integers(library):
    (q_tm1, a_tm1, *rest), _ = batch()
    convert = LIBRARIES[library]
    with pytest.raises(ValueError, match=r"a_tm1 has type float.*: pass the numbers of the actions, an array of integers"):
        td_target("bellman", convert(q_tm1), convert(a_tm1.astype(float)), *map(convert, rest))


def test_lists_are_refused():
    (q_tm1, *rest), _ = batch()
    with pytest.raises(TypeError, match="q_tm1 is a list: pass an array of NumPy, JAX or PyTorch"):
        td_target("bellman", q_tm1.tolist(), *rest)


def test_q_and_next_q_need_values_of_all_actions():
    (q_tm1, a_tm1, r_t, discount_t, q_t), _ = batch()
    with pytest.raises(ValueError, match="pass the values of all actions for both"):
        td_target("bellman", q_tm1, a_tm1, r_t, discount_t, q_t[0])


# One transition in numbers: Q(x, .) = (1, 3), a = 0, Q(x', .) = (3, 4), r = 0.5, gamma = 0.9. Then max Q(x) - Q(x, a) = 2,
# max Q(x') - Q(x', a) = 1, and the Bellman target is 0.5 + 0.9 * 4 = 4.1.
ORDINARY = {
    "bellman": 4.1,
    "consistent": 4.1,
    "al:0.5": 4.1 - 0.5 * 2,
    "al:0.9": 4.1 - 0.9 * 2,
    "pal-dqn:0.5": 4.1 + 0.5 * max(-2, -1),
    "pal-dqn:0.9": 4.1 + 0.9 * max(-2, -1),
    "pal:0.5": max(3.1, 0.5 + 0.9 * 3),
    "pal:0.1": max(4.1 - 0.1 * 2, 0.5 + 0.9 * 3),
    "lazy:0.5": 4.1,
    "baird:0.5": 3 + (4.1 - 3) / 0.5,
}
TERMINAL = {
    "bellman": 0.5,
    "consistent": 0.5,
    "al:0.5": 0.5 - 0.5 * 2,
    "pal-dqn:0.5": 0.5,
    "pal:0.5": 0.5,
    "lazy:0.5": 0.5,
    "baird:0.5": 3 + (0.5 - 3) / 0.5,
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("text", "expected"), ORDINARY.items())
def test_golden_values(text, expected, library):
    convert = LIBRARIES[library]
    target = td_target(parse(text), convert([1.0, 3.0]), 0, 0.5, 0.9, convert([3.0, 4.0]), returned=False)
    assert float(target) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("text", "expected"), TERMINAL.items())
@pytest.mark.parametrize("beyond", [[3.0, 4.0], [-3.0, 4.0], [float("-inf"), float("nan")]], ids=["above", "below", "not-finite"])
def test_nothing_beyond_a_terminal_state_counts(text, expected, library, beyond):
    convert = LIBRARIES[library]
    b = sampled_backup(convert([1.0, 3.0]), 0, 0.5, 0.0, convert(beyond), returned=True)
    assert float(b.next_gap) == 0.0
    assert float(b.repeat) == 0.5
    assert float(parse(text)(b)) == pytest.approx(expected, abs=1e-6)


def test_a_return_to_the_same_state_repeats_the_action():
    q = np.array([1.0, 3.0])
    assert td_target(parse("consistent"), q, 0, 0.5, 0.9, q, returned=True) == pytest.approx(0.5 + 0.9 * 1.0)
    assert td_target(parse("consistent"), q, 0, 0.5, 0.9, q, returned=False) == pytest.approx(0.5 + 0.9 * 3.0)
    with pytest.raises(ValueError, match="consistent depends on whether x' is x: pass returned"):
        td_target("consistent", q, 0, 0.5, 0.9, q)


def test_lazy_keeps_a_value_that_no_greedy_action_depends_on():
    # The Bellman target is -2.5 + 0.9 * 4 = 1.1, between Q(x, a) = 1 and (Q(x, a) + V(x)) / 2 = 2.
    assert td_target(parse("lazy:0.5"), np.array([1.0, 3.0]), 0, -2.5, 0.9, np.array([3.0, 4.0])) == 1.0


def test_values_of_a_policy_take_the_place_of_the_maxima_and_gaps_may_be_negative():
    q_tm1, q_t = np.array([1.0, 3.0]), np.array([4.0, 0.0])
    b = sampled_backup(q_tm1, 1, 0.0, 0.5, q_t, v_tm1=2.0, v_t=1.0)
    assert (b.v, b.bellman, b.gap, b.next_gap) == (2.0, 0.5, -1.0, 1.0)
    assert (sampled_backup(q_tm1, 0, 0.0, 0.5, q_t, v_tm1=2.0, v_t=1.0).gap, b.q) == (1.0, 3.0)
    assert td_target("al:0.5", q_tm1, 1, 0.0, 0.5, q_t, v_tm1=2.0, v_t=1.0) == 0.5 + 0.5 * 1.0


def test_with_another_value_of_the_next_state_alone_gaps_are_clipped():
    # As in double Q-learning, where V(x') = 3 is not the maximum of Q(x', .).
    b = sampled_backup(np.array([1.0, 3.0]), 0, 0.0, 0.5, np.array([4.0, 3.0]), v_t=3.0)
    assert (b.v, b.gap, b.next_gap) == (3.0, 2.0, 0.0)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_mean_of_al_targets_under_a_policy_is_the_mean_of_bellman_targets(library):
    convert, policy = LIBRARIES[library], np.array([0.1, 0.2, 0.7], dtype=np.float32)
    (q_tm1, _, r_t, discount_t, q_t), _ = batch(size=8, actions=3)
    values = {"v_tm1": convert(q_tm1 @ policy), "v_t": convert(q_t @ policy)}
    rows = [convert(array) for array in (r_t, discount_t, q_t)]

    def mean(operator):
        targets = [td_target(operator, convert(q_tm1), convert(np.full(8, a)), *rows, **values) for a in range(3)]
        return policy @ np.stack([np.asarray(target) for target in targets])

    np.testing.assert_allclose(mean("al:0.9"), mean("bellman"), atol=1e-6)


def sampled_mean(mdp, q, text):
    """The mean of the sampled targets of every pair over its next states, with their exact probabilities: (S, A)."""
    x, a, x_next = np.indices((mdp.states, mdp.actions, mdp.states))
    targets = td_target(parse(text), q[x], a, mdp.rewards[x, a], mdp.gamma, q[x_next], returned=x_next == x)
    return (mdp.dense().transitions.probabilities * targets).sum(-1)


@pytest.mark.parametrize("text", ["bellman", "consistent", "al:0.5", "al:0.9", "baird:0.5"])
def test_the_mean_of_samples_is_the_operator(text):
    mdp = garnet(6, 3, 4, gamma=0.9, seed=1)
    q = np.random.default_rng(0).standard_normal((6, 3))
    assert mdp.transitions.stay(np.arange(6)).max() > 0
    np.testing.assert_allclose(sampled_mean(mdp, q, text), parse(text)(backups(mdp, q)), atol=1e-12)


@pytest.mark.parametrize("text", ["pal:0.5", "pal-dqn:0.5"])
def test_the_mean_of_samples_is_another_operator_where_a_maximum_is_taken(text):
    # Q(x, .) = (0, 2), a = 0, r = 0, gamma = 0.5; x' is y or z with equal chances, Q(y, .) = (0, 0) and Q(z, .) = (-8, 0).
    # Bellman's target is 0 from both; al:0.5 gives -1; R + gamma Q(x', a) is 0 at y and -4 at z. Their larger one is 0 and -1: mean -0.5.
    # In expectation R + gamma E Q(x', a) = -2, so that T_PAL is -1. V(x') - Q(x', a) is 0 and 8, and 4 on average; V(x) - Q(x, a) is 2:
    # pal-dqn takes half the lesser of the two, 0 and 1 on samples, and 1 in expectation.
    q_x, q_y, q_z = np.array([0.0, 2.0]), np.array([0.0, 0.0]), np.array([-8.0, 0.0])
    sampled = [td_target(parse(text), q_x, 0, 0.0, 0.5, q_next) for q_next in (q_y, q_z)]
    assert np.mean(sampled) == -0.5
    exact = transition_backup(q=0.0, v=2.0, reward=0.0, discount=0.5, next_v=0.0, next_q=-4.0, stay=0.0)
    assert parse(text)(exact) == -1.0


def test_the_mean_of_lazy_samples_is_another_operator():
    # Q(x, .) = (0, 4): lazy:0.5 keeps 0 while the Bellman target is from 0 to 2. It is 1 or -1 with equal chances: 0 on average, kept.
    sampled = [td_target(parse("lazy:0.5"), np.array([0.0, 4.0]), 0, 0.0, 0.5, np.array([v, v])) for v in (2.0, -2.0)]
    assert np.mean(sampled) == -0.5
    assert parse("lazy:0.5")(transition_backup(q=0.0, v=4.0, reward=0.0, discount=0.5, next_v=0.0, next_q=0.0, stay=0.0)) == 0.0


@pytest.mark.parametrize(("text", "alpha"), PRESERVING.items())
def test_the_mean_of_samples_satisfies_both_conditions_of_the_theorem(text, alpha):
    for seed in range(20):
        mdp = garnet(6, 3, 4, gamma=0.9, seed=seed)
        q = 3 * np.random.default_rng(seed).standard_normal((6, 3))
        b = backups(mdp, q)
        mean = sampled_mean(mdp, q, text)
        assert (mean <= b.bellman + 1e-12).all()
        assert (mean >= b.bellman - alpha * b.gap - 1e-12).all()


SOFT = ["munchausen:0.03,0.9", "dpp:0.1"]


@pytest.mark.every(6)
@pytest.mark.parametrize("text", [*FAMILY, "clipped-al:0.5,0.5", "sal:0.5,0.9", *SOFT])
def test_torch_compile_makes_one_graph_with_the_same_results(text):
    arrays, returned = batch()
    tensors = [*map(torch.asarray, arrays), torch.asarray(returned)]

    operator = parse(text)

    def target(*some):
        return td_target(operator, *some[:5], returned=some[5])

    # Each operator is a program of its own, and what was compiled for others is of no use to it.
    torch.compiler.reset()
    # What cannot be put into the one graph is an error.
    compiled = torch.compile(target, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*tensors), target(*tensors), rtol=0, atol=0)
    one = [tensor[0] for tensor in tensors]
    torch.testing.assert_close(compiled(*one), target(*one), rtol=0, atol=0)


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_a_loss_teaches_the_online_network_alone(compiled):
    torch.manual_seed(0)
    online, target = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    x, next_x = torch.randn(2, 16, 4)
    action, reward, discount = torch.randint(0, 3, (16,)), torch.randn(16), torch.full((16,), 0.9)
    operator = parse("pal:0.5")

    def loss():
        # Not under `no_grad`: the target is a constant all the same.
        aim = td_target(operator, target(x), action, reward, discount, target(next_x))
        return torch.nn.functional.mse_loss(online(x).gather(1, action[:, None])[:, 0], aim)

    torch.compiler.reset()
    (torch.compile(loss, fullgraph=True, backend="aot_eager") if compiled else loss)().backward()
    assert target.weight.grad is None
    with torch.no_grad():
        aim = td_target(operator, target(x), action, reward, discount, target(next_x))
        slope = 2 / 16 * torch.nn.functional.one_hot(action, 3) * (online(x).gather(1, action[:, None]) - aim[:, None])
    torch.testing.assert_close(online.weight.grad, slope.T @ x, rtol=1e-5, atol=1e-6)


@pytest.mark.every(3)
# Bellman's operator does not look at Q(x, .).
@pytest.mark.parametrize("text", [text for text in FAMILY if text != "bellman"])
def test_operators_alone_compile_and_let_gradients_through(text):
    arrays, returned = batch()
    q_tm1, *rest = map(torch.asarray, arrays)
    operator = parse(text)

    def total(q):
        return operator(sampled_backup(q, *rest, returned=torch.asarray(returned))).sum()

    torch.compiler.reset()
    slopes = []
    for function in (total, torch.compile(total, fullgraph=True, backend="aot_eager")):
        q = q_tm1.clone().requires_grad_()
        slopes.append(torch.autograd.grad(function(q), q)[0])
    torch.testing.assert_close(*slopes, rtol=0, atol=1e-6)
    assert slopes[0].any()


@pytest.mark.parametrize(("library", "other"), [("torch", "jax"), ("jax.numpy", "torch")])
def test_array_libraries_are_independent(library, other):
    code = f"""
import sys
import {library} as xp
from actiongap.td import persistent_q_learning, td_target
q, a, r = xp.ones((2, 3)), xp.asarray([0, 1]), xp.asarray([0.5, 0.5])
targets = [td_target(text, q, a, r, 0.9, q, returned=a == 0) for text in {[*FAMILY, *SOFT]!r}]
print(len(targets), float(persistent_q_learning(q, a, r, 0.9, q, 0.5).sum()), {other!r} in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, error, imported = done.stdout.split()
    assert (int(count), imported) == (len(FAMILY) + len(SOFT), "False")
    assert float(error) == pytest.approx(2 * (0.5 + 0.9 - 1))


@pytest.mark.parametrize("text", [*FAMILY, *SOFT])
def test_no_gradient_flows_through_a_target(text):
    arrays, _ = batch()
    q_tm1, a_tm1, r_t, discount_t, q_t = map(torch.asarray, arrays)
    assert not td_target(
        text, q_tm1.requires_grad_(), a_tm1, r_t.requires_grad_(), discount_t, q_t.requires_grad_(), returned=False
    ).requires_grad
    q_tm1, a_tm1, r_t, discount_t, q_t = map(jnp.asarray, arrays)
    gradients = jax.grad(lambda *q: td_target(text, q[0], a_tm1, r_t, discount_t, q[1], returned=False).sum(), argnums=(0, 1))(q_tm1, q_t)
    assert not any(gradient.any() for gradient in gradients)


def test_gradients_flow_through_a_backup():
    (q_tm1, a_tm1, r_t, discount_t, q_t), _ = batch()

    def total(q):
        return parse("al:0.5")(sampled_backup(q, jnp.asarray(a_tm1), r_t, discount_t, jnp.asarray(q_t))).sum()

    assert jax.grad(total)(jnp.asarray(q_tm1)).any()
    q = torch.asarray(q_tm1).requires_grad_()
    assert parse("al:0.5")(sampled_backup(q, *map(torch.asarray, (a_tm1, r_t, discount_t, q_t)))).requires_grad


@pytest.mark.parametrize("module", ["operators", "td"])
def test_importing_pulls_in_numpy_and_no_other_array_library(module):
    code = f"import sys; before = set(sys.modules); import actiongap.{module}; print(*(set(sys.modules) - before))"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    packages = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
    # array_api_compat, which finds out what library an array is of, is a few kilobytes and imports none.
    assert packages <= {"actiongap", "array_api_compat", "numpy"}


def rlax_target(q_tm1, a_tm1, r_t, discount_t, q_t, scale):
    """What RLax and TRFL call persistent Q-learning."""
    return r_t + discount_t * ((1 - scale) * q_t.max() + scale * q_t[a_tm1])


def our_target(q_tm1, a_tm1, r_t, discount_t, q_t, scale):
    return persistent_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t, scale) + q_tm1[a_tm1]


@pytest.mark.parametrize(("target", "first", "value"), [(rlax_target, 1, 0.4), (our_target, 0, 0.9)])
def test_persistent_q_learning_has_the_right_fixed_point_where_rlax_has_another(target, first, value):
    # Three states: in the first, action 0 pays nothing and leads to the second, and action 1 pays 0.4 and leads to the last; in the
    # second, action 0 pays nothing and action 1 pays 1, and both lead to the last, where nothing happens. So V* is 0.9 by action 0.
    rewards = np.array([[0.0, 0.4], [0.0, 1.0], [0.0, 0.0]])
    follows = np.array([[1, 2], [2, 2], [2, 2]])
    q = np.zeros((3, 2))
    for _ in range(300):
        q = np.array([[float(target(q[x], a, rewards[x, a], 0.9, q[follows[x, a]], 0.75)) for a in range(2)] for x in range(3)])
    assert q[0].argmax() == first
    assert q[0].max() == pytest.approx(value)


@pytest.mark.parametrize("library", LIBRARIES)
def test_persistent_q_learning_is_the_error_of_pal_dqn(library):
    arrays, _ = batch()
    q_tm1, a_tm1, r_t, discount_t, q_t = map(LIBRARIES[library], arrays)
    other = LIBRARIES[library](batch(seed=1)[0][0])
    chosen = arrays[0][np.arange(64), arrays[1]]
    for gaps, error in (
        (q_tm1, persistent_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t, 0.9)),
        (other, persistent_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t, 0.9, target_q_tm1=other)),
    ):
        target = td_target("pal-dqn:0.9", gaps, a_tm1, r_t, discount_t, q_t)
        np.testing.assert_allclose(np.asarray(error), np.asarray(target) - chosen, atol=1e-6)


def test_persistent_q_learning_maps_and_differentiates_as_functions_of_rlax_do():
    q_tm1, a_tm1, r_t, discount_t, q_t = map(jnp.asarray, batch()[0])

    def loss(q):
        errors = jax.vmap(persistent_q_learning, in_axes=(0, 0, 0, 0, 0, None))(q, a_tm1, r_t, discount_t, q_t, 0.9)
        return errors.sum()

    gradient = jax.grad(loss)(q_tm1)
    np.testing.assert_array_equal(gradient, -jax.nn.one_hot(a_tm1, q_tm1.shape[1]))


def test_gradients_flow_through_the_target_on_request():
    q_tm1, a_tm1, r_t, discount_t, q_t = map(jnp.asarray, batch()[0])

    def total(stop, *q):
        return persistent_q_learning(q[0], a_tm1, r_t, discount_t, q[1], 0.9, stop).sum()

    assert not jax.grad(total, argnums=2)(True, q_tm1, q_t).any()
    assert jax.grad(total, argnums=2)(False, q_tm1, q_t).any()


def test_rlax_agrees_where_persisting_costs_less_and_nowhere_else():
    rlax = pytest.importorskip("rlax", reason="rlax is not installed: pip install rlax")
    (q_tm1, a_tm1, _, _, q_t), _ = batch()
    gamma, scale = 0.9, 0.7
    numbers = (jnp.asarray(q_tm1), jnp.asarray(a_tm1), jnp.zeros(len(a_tm1)), jnp.full(len(a_tm1), gamma), jnp.asarray(q_t))
    axes = (0, 0, 0, 0, 0, None)
    theirs = jax.vmap(rlax.persistent_q_learning, in_axes=axes)(*numbers, scale)
    # What they weigh by gamma as all that comes later, the paper does not.
    ours = jax.vmap(persistent_q_learning, in_axes=axes)(*numbers, gamma * scale)
    rows = np.arange(len(a_tm1))
    gap, next_gap = (q.max(axis=1) - q[rows, a_tm1] for q in (q_tm1, q_t))
    persisting = next_gap <= gap
    assert 10 < persisting.sum() < 54
    np.testing.assert_allclose(ours[persisting], theirs[persisting], atol=1e-5)
    np.testing.assert_allclose((ours - theirs)[~persisting], gamma * scale * (next_gap - gap)[~persisting], atol=1e-5)
    greedy = gap == 0
    assert (np.asarray(theirs)[greedy & (next_gap > 0)] < np.asarray(ours)[greedy & (next_gap > 0)]).all()
