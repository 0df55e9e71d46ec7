"""Operators of other papers: published formulas, three array libraries, kernels, sampling, verdicts and refusals."""

from __future__ import annotations

import json
import math
import re
import warnings
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.tree import DecisionTreeRegressor

from actiongap import (
    FiniteMDP,
    Operator,
    TheoryWarning,
    backup,
    chain,
    collect,
    fitted_q_iteration,
    garnet,
    parse,
    policy_iteration,
    q_learning,
    solve,
    td_target,
)
from actiongap._numba import compile_function, compile_operator
from actiongap.api.policies import plan
from actiongap.mdp.aggregation import interpolation_counterexample, iterate_interpolated
from actiongap.mdp.engines import EngineName, backups
from actiongap.mdp.witness import prove
from actiongap.operators import OTHER_PAPERS, OperatorError, SoftBackup
from actiongap.planning.backups import SweepConfig
from actiongap.proof import commutes
from actiongap.td import sampled_backup, soft_backup
from helpers import loopy

PLAIN = ("clipped-al:0.9,0.5", "clipped-al:0.9,0.5,-20", "sal:0.25,0.5")
"""Operators that are fixed functions of a `Backup`."""
DRAWN = "rso:0.25,0.75"
SOFT = ("munchausen:0.5,0.9", "munchausen:0.5,0.9,-0.25", "munchausen:0.5,0.9,-inf", "dpp:0.5", "cvi:0.9,2", "mellowmax:2")
"""Operators with a temperature."""
LIBRARIES = {"numpy": np.asarray, "jax": jnp.asarray, "torch": torch.asarray}


def published(text: str, q_tm1, a_tm1, r_t, discount_t, q_t):
    """The target of a transition by the formula of the paper, in double precision by NumPy and SciPy."""
    name, *_ = text.split(":")
    numbers = [float(number) for number in text.partition(":")[2].split(",")]
    q, v = q_tm1[a_tm1], q_tm1.max()

    def after(value):
        return 0.0 if discount_t == 0 else discount_t * value()

    bellman = r_t + after(q_t.max)
    if name == "clipped-al":
        alpha, c, low = (*numbers, 0.0)[:3]
        return bellman - alpha * (v - q) * ((q - low) / (v - low) >= c)
    if name == "sal":
        alpha, omega = numbers
        return (1 - omega) * q + omega * bellman + alpha * (q - v)
    if name in ("cvi", "mellowmax"):
        alpha, beta = (0.0, *numbers)[-2:]
        average = (logsumexp(beta * values) - np.log(len(values)) for values in (q_tm1, q_t))
        mellow, next_mellow = (value / beta for value in average)
        return r_t + after(lambda: next_mellow) + alpha * (q - mellow)
    tau = numbers[0]
    if name == "dpp":
        return q - softmax(q_tm1 / tau) @ q_tm1 + r_t + after(lambda: softmax(q_t / tau) @ q_t)
    _, alpha, low = (*numbers, -1.0)[:3]
    bonus = np.clip(tau * log_softmax(q_tm1 / tau)[a_tm1], low, 0.0)

    def soft_value():
        policy = softmax(q_t / tau)
        return policy @ (q_t - tau * np.log(policy))

    return r_t + alpha * bonus + after(soft_value)


def batch(size=64, actions=4, seed=0):
    rng = np.random.default_rng(seed)
    # Positive values: zero is a lower bound of them, as clipped advantage learning has it.
    q_tm1, q_t = rng.uniform(0.5, 4.0, (2, size, actions)).astype(np.float32)
    a_tm1, r_t = rng.integers(0, actions, size), rng.standard_normal(size).astype(np.float32)
    return q_tm1, a_tm1, r_t, np.where(rng.random(size) < 0.3, 0.0, 0.9).astype(np.float32), q_t


def doubles(arrays):
    return [array.astype(float) if array.dtype.kind == "f" else array for array in arrays]


# By hand. Q(x, .) = (1, 3), a = 0, r = 0.5, gamma = 0.9, Q(x', .) = (3, 4): the gap is 2, T Q = 4.1, or 0.5 where x' is terminal.
# (1 - low) / (3 - low) is 1/3 for low = 0 and 3/5 for low = -2.
GOLDEN = {
    "clipped-al:0.5,0.3": (4.1 - 0.5 * 2, 0.5 - 0.5 * 2),
    "clipped-al:0.5,0.4": (4.1, 0.5),
    "clipped-al:0.5,0.5,-2": (4.1 - 0.5 * 2, 0.5 - 0.5 * 2),
    "clipped-al:0.5,0.7,-2": (4.1, 0.5),
    "sal:0.25,0.5": (0.5 * 1 + 0.5 * 4.1 - 0.25 * 2, 0.5 * 1 + 0.5 * 0.5 - 0.25 * 2),
    # With tau = 1, log pi(0) = -log(1 + e^2) = -2.126928, and log(e^3 + e^4) = 4.313262.
    "munchausen:1,0.5": (0.5 - 0.5 + 0.9 * 4.313262, 0.5 - 0.5),
    "munchausen:1,0.5,-9": (0.5 - 0.5 * 2.126928 + 0.9 * 4.313262, 0.5 - 0.5 * 2.126928),
    # M Q(x) = (1 + 3 e^2) / (1 + e^2) = 2.761594, M Q(x') = (3 + 4 e) / (1 + e) = 3.731059.
    "dpp:1": (1 - 2.761594 + 0.5 + 0.9 * 3.731059, 1 - 2.761594 + 0.5),
    # log((e + e^3) / 2) = 2.433781 and log((e^3 + e^4) / 2) = 3.620115.
    "cvi:0.5,1": (0.5 + 0.9 * 3.620115 + 0.5 * (1 - 2.433781), 0.5 + 0.5 * (1 - 2.433781)),
    "mellowmax:1": (0.5 + 0.9 * 3.620115, 0.5),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("text", "expected"), GOLDEN.items())
@pytest.mark.parametrize("beyond", [[3.0, 4.0], [-np.inf, np.nan], [-np.inf, -np.inf]], ids=["finite", "nan", "infinite"])
def test_golden_values_and_nothing_beyond_a_terminal_state(text, expected, library, beyond):
    convert = LIBRARIES[library]
    ordinary = td_target(text, convert([1.0, 3.0]), 0, 0.5, 0.9, convert([3.0, 4.0]))
    terminal = td_target(text, convert([1.0, 3.0]), 0, 0.5, 0.0, convert(beyond))
    assert (float(ordinary), float(terminal)) == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("text", [*PLAIN, *SOFT])
def test_every_library_gives_the_published_numbers_in_the_precision_of_q(text, library):
    target = td_target(text, *map(LIBRARIES[library], batch()))
    assert str(target.dtype).endswith("float32")
    expected = [published(text, *row) for row in zip(*doubles(batch()), strict=True)]
    np.testing.assert_allclose(np.asarray(target), expected, atol=1e-5)


@pytest.mark.parametrize("text", [*PLAIN, *SOFT])
def test_a_batch_is_the_single_transition_mapped(text):
    arrays, operator = batch(), parse(text)

    def one(*transition):
        return td_target(operator, *transition)

    whole = np.asarray(td_target(operator, *arrays))
    in_jax = jax.jit(jax.vmap(one))(*map(jnp.asarray, arrays))
    in_torch = torch.vmap(one)(*map(torch.asarray, arrays))
    for mapped in (in_jax, in_torch):
        np.testing.assert_allclose(np.asarray(mapped), whole, atol=1e-5)


def test_a_soft_backup_is_a_backup_and_the_policy():
    q_tm1, a, r, discount, q_t = batch()
    plain, soft = sampled_backup(q_tm1, a, r, discount, q_t), soft_backup(q_tm1, a, r, discount, q_t, temperature=0.5)
    for name, value in plain._asdict().items():
        np.testing.assert_array_equal(getattr(soft, name), value)
    np.testing.assert_allclose(soft.log_policy, log_softmax(q_tm1 / 0.5, axis=1)[np.arange(len(a)), a], atol=1e-5)
    np.testing.assert_allclose(soft.mean, (softmax(q_tm1 / 0.5, axis=1) * q_tm1).sum(1), atol=1e-5)
    np.testing.assert_allclose(soft.soft_bellman, r + discount * 0.5 * np.asarray(logsumexp(q_t / 0.5, axis=1)), atol=1e-5)
    assert soft._fields[: len(plain)] == plain._fields


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("text", ["munchausen:0.03,0.9", "munchausen:0.03,0.9,-inf", "dpp:0.03", "cvi:0.5,1000", "mellowmax:1000"])
def test_large_values_do_not_overflow(text, library):
    # 1000 / 0.03 is far beyond what exp can take; the policies are deterministic to the last bit.
    convert = LIBRARIES[library]
    target = td_target(text, convert([1000.0, 998.0]), 1, 0.0, 0.5, convert([-1000.0, -3000.0]))
    taken = {
        "munchausen:0.03,0.9": 0.9 * 1.0,
        "munchausen:0.03,0.9,-inf": 0.9 * 2.0,
        "dpp:0.03": 2.0,
        "cvi:0.5,1000": 1.0,
        "mellowmax:1000": 0.0,
    }[text]
    assert float(target) == pytest.approx(-500.0 - taken, abs=1e-3)


@pytest.mark.parametrize(
    ("text", "limit"),
    [("munchausen:1e-6,0.7,-inf", "al:0.7"), ("dpp:1e-6", "al:1"), ("cvi:0.7,1e6", "al:0.7"), ("mellowmax:1e6", "bellman")],
)
def test_without_temperature_they_are_advantage_learning(text, limit):
    arrays = doubles(batch())
    np.testing.assert_allclose(td_target(text, *arrays), td_target(limit, *arrays), atol=1e-4)


def test_limits_of_the_parameters():
    b = backup(0.5, 1.0, 2.0, 4.0, 6.0, 3.0, 0.25)
    assert parse("clipped-al:0.7,0")(b) == parse("al:0.7")(b)
    assert parse("clipped-al:0.7,1")(b) == parse("sal:0,1")(b) == b.bellman
    assert parse("sal:0.7,1")(b) == pytest.approx(parse("al:0.7")(b))
    assert parse("rso:0.7,0.7").at(0.3)(b) == pytest.approx(parse("al:0.7")(b))


@pytest.mark.parametrize("text", PLAIN)
def test_compiled_is_the_same_function(text):
    rng, operator = np.random.default_rng(0), parse(text)
    compiled, make = compile_operator(operator), compile_function(backup)
    assert compiled is not None
    for _ in range(100):
        q, next_q, reward = rng.normal(size=3).tolist()
        values = (rng.random(), reward, q, q + rng.random(), next_q + rng.random(), next_q, rng.random())
        assert compiled(make(*values)) == pytest.approx(operator(backup(*values)), abs=1e-14)


@pytest.mark.every(2)
@pytest.mark.parametrize("engine", ["arrays", "numba", "jax"])
@pytest.mark.parametrize("text", PLAIN)
def test_solving_finds_the_optimum_and_wider_gaps_on_every_engine(text, engine):
    mdp = garnet(30, 4, 3, gamma=0.9, seed=1)
    q_star, v_star, _ = policy_iteration(mdp)
    solution = solve(mdp, text, engine=engine)
    assert solution.engine == engine
    np.testing.assert_allclose(solution.v, v_star, atol=1e-8)
    gaps = v_star[:, None] - q_star
    assert (solution.gaps >= gaps - 1e-8).all()
    assert solution.gaps.sum() > 1.01 * gaps.sum()
    if text.startswith("sal"):
        np.testing.assert_allclose(solution.gaps, gaps * 0.5 / (0.5 - 0.25), atol=1e-7)


def test_smoothing_is_averaged_advantage_learning():
    mdp = garnet(8, 3, 2, gamma=0.9, seed=0)
    q = np.random.default_rng(0).standard_normal((8, 3))
    b = backups(mdp, q)
    np.testing.assert_allclose(parse("sal:0.3,0.5")(b), 0.5 * q + 0.5 * parse("al:0.6")(b), atol=1e-12)


def test_a_draw_is_advantage_learning_at_the_number_drawn():
    arrays, operator = batch(), parse(DRAWN)
    for u in (0.0, 0.5, 0.875):
        np.testing.assert_allclose(td_target(operator.at(u), *arrays), td_target(f"al:{0.25 + 0.5 * u}", *arrays), atol=1e-6)
    assert parse("al:0.5").at(0.3) is parse("al:0.5")


def test_draws_may_be_traced_and_mapped():
    arrays, operator = list(map(jnp.asarray, batch())), parse(DRAWN)
    draws = jnp.array([0.0, 0.25, 0.75])

    @jax.jit
    @jax.vmap
    def agents(u):
        return td_target(operator.at(u), *arrays)

    for target, u in zip(agents(draws), draws.tolist(), strict=True):
        assert target.dtype == jnp.float32
        np.testing.assert_allclose(target, td_target(f"al:{0.25 + 0.5 * u}", *arrays), atol=1e-6)


def test_tabular_learning_samples_the_operator_at_every_update():
    seen = []

    def draw(u):
        seen.append(u)
        return parse("al:0.5")

    def never(b):
        raise AssertionError

    steps = 2000
    noted = q_learning(chain(4), Operator("noted", never, draw=draw), steps=steps, seed=0)
    assert noted.visits.sum() == len(seen) == len(set(seen)) == steps
    assert min(seen) >= 0
    assert max(seen) < 1
    assert np.mean(seen) == pytest.approx(0.5, abs=0.05)
    drawn, again = (q_learning(chain(4), "rso:0,1", steps=20_000, seed=0, exploration=1.0) for _ in range(2))
    np.testing.assert_array_equal(drawn.q, again.q)
    assert drawn.policy.tolist() == [1, 1, 1, 1]
    assert np.abs(drawn.v - policy_iteration(chain(4))[1]).max() < 0.1 * np.abs(drawn.v).max()


def test_fitted_iteration_takes_operators_with_a_temperature():
    data = collect(chain(4, slip=0.0), steps=200, seed=0)
    for text in ("munchausen:0.03,0.9", "dpp:0.03"):
        fitted = fitted_q_iteration(data, text, DecisionTreeRegressor(), gamma=0.9, iterations=50, actions=2)
        assert fitted.policy(np.arange(3)).tolist() == [1, 1, 1]


def refusals(text):
    """Everything that takes fixed functions of a `Backup` only, as calls that should fail."""
    mdp, scheme = interpolation_counterexample()
    yield lambda: parse(text)(backup(0.5, 1.0, 2.0, 4.0, 6.0, 3.0, 0.25))
    yield lambda: iterate_interpolated(mdp, scheme, text)
    yield lambda: plan("mountain-car", text, grid=5, iterations=1, episodes=0)
    yield lambda: SweepConfig(parse(text), 0.9)
    for engine in get_args(EngineName):
        yield lambda engine=engine: solve(chain(4), text, engine=engine)


@pytest.mark.parametrize("text", [DRAWN, "munchausen:0.03,0.9", "dpp:0.5", "cvi:0.9,10"])
def test_functions_without_sampling_or_policies_refuse_these_operators(text):
    for refused in refusals(text):
        with pytest.raises(
            OperatorError, match=r"(must be sampled for each update: use q_learning|is not available here: use td_target)"
        ) as caught:
            refused()
        assert str(caught.value).startswith(parse(text).name)
        assert "\n" not in str(caught.value)
    assert compile_operator(parse(text)) is None


def test_invalid_operators_are_refused():
    with pytest.raises(OperatorError, match="use td_target"):
        q_learning(chain(4), "dpp:0.5", steps=10, seed=0)
    with pytest.raises(OperatorError, match=r"operator.at\(u\)"):
        td_target(DRAWN, *batch())
    with pytest.raises(ValueError, match="leave out v_tm1 and v_t"):
        td_target("dpp:0.5", *batch(), v_t=0.0)


def iterate_soft(mdp, text, sweeps):
    """Exact sweeps of an operator with a temperature: the mean of its targets over all next states, which enter it linearly."""
    table, q = mdp.dense().transitions.probabilities, np.zeros((mdp.states, mdp.actions))
    x, a, y = (index.ravel() for index in np.indices(table.shape))
    for _ in range(sweeps):
        targets = td_target(text, q[x], a, mdp.rewards[x, a], mdp.gamma, q[y])
        q = (table * targets.reshape(table.shape)).sum(axis=-1)
    return q


def mellow_values(mdp, beta):
    """The fixed point of the mellowmax operator."""
    v = np.zeros(mdp.states)
    for _ in range(400):
        q = mdp.rewards + mdp.gamma * mdp.transitions.expect(v)
        v = (logsumexp(beta * q, axis=1) - np.log(mdp.actions)) / beta
    return v


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 2.0), (0.5, 2.0), (0.9, 0.5), (0.9, 10.0)])
def test_conservative_value_iteration_has_the_limit_of_mellowmax_at_another_temperature(alpha, beta):
    mdp = loopy(4, 3, seed=2, gamma=0.8)
    q = iterate_soft(mdp, f"cvi:{alpha},{beta}", 400)
    m = mellow_values(mdp, beta / (1 - alpha))
    mellow_q = mdp.rewards + mdp.gamma * mdp.transitions.expect(m)
    np.testing.assert_allclose(q, m[:, None] + (mellow_q - m[:, None]) / (1 - alpha), atol=1e-8)
    np.testing.assert_array_equal(q.argmax(axis=1), mellow_q.argmax(axis=1))
    below = policy_iteration(mdp)[1] - m
    assert (below >= -1e-9).all()
    assert below.max() <= (1 - alpha) * math.log(mdp.actions) / (beta * (1 - mdp.gamma)) + 1e-9
    if alpha == 0.0:
        np.testing.assert_allclose(iterate_soft(mdp, f"mellowmax:{beta}", 400), q, atol=1e-9)


def test_mellowmax_and_conservative_value_iteration_can_lose_optimality():
    # Going on pays a little more, but leads to a state in which one of two actions is bad, and a soft maximum lowers its value.
    mdp = FiniteMDP.from_dense([[0.1, 0.0], [0.0, -3.0], [0.0, 0.0]], [[[0, 1, 0], [0, 0, 1]], [[0, 0, 1]] * 2, [[0, 0, 1]] * 2], 0.9)
    assert policy_iteration(mdp)[0][0].argmax() == 0
    for text in ("mellowmax:1", "cvi:0.5,1"):
        assert iterate_soft(mdp, text, 300)[0].argmax() == 1
    assert iterate_soft(mdp, "cvi:0.95,1", 2000)[0].argmax() == 0


def test_momentum_value_iteration_and_speedy_q_iteration_keep_the_gaps():
    mdp = loopy(4, 3, seed=2, gamma=0.8)
    q_star, _, _ = policy_iteration(mdp)

    def bellman(q, v):
        return mdp.rewards + mdp.gamma * mdp.transitions.expect(v)

    states, q, mean = np.arange(4), np.zeros((4, 3)), np.zeros((4, 3))
    for k in range(4000):
        q = bellman(q, q[states, mean.argmax(axis=1)])
        mean += (q - mean) / (k + 1)
    np.testing.assert_allclose(mean, q_star, atol=0.01)
    before = q = np.zeros((4, 3))
    for k in range(4000):
        last, now = bellman(before, before.max(axis=1)), bellman(q, q.max(axis=1))
        step = 1 / (k + 1)
        before, q = q, q + step * (last - q) + (1 - step) * (now - last)
    np.testing.assert_allclose(q, q_star, atol=0.01)


# Text, conditions 1 and 2, alpha, optimality and gaps, exit code.
VERDICTS = {
    "clipped-al:0.9,0.5": ((True, True), 0.9, (True, True), 0),
    "clipped-al:0.9,0.5,-20": ((True, True), 0.9, (True, True), 0),
    "clipped-al:0.9,1": ((True, True), 0.0, (True, True), 0),
    "clipped-al:1,0.5": ((True, True), 1.0, (True, True), 0),
    "rso:0.25,0.75": ((True, True), 0.75, (True, True), 0),
    "rso:0,1": ((True, True), 1.0, (True, True), 0),
    "rso:0,2": ((True, False), None, (True, True), 0),
    "rso:0,3": ((True, False), None, (False, None), 1),
    "al-schedule:5": ((True, True), 1.0, (True, True), 0),
    "sal:0.5,1": ((True, True), 0.5, (True, True), 0),
    "sal:0.25,0.5": ((False, False), 0.5, (True, True), 0),
    "munchausen:0.03,0.9": ((None, None), None, (None, None), 3),
    "dpp:0.1": ((None, None), None, (None, None), 3),
    "cvi:0.9,10": ((None, None), None, (None, None), 3),
    "mellowmax:10": ((None, None), None, (None, None), 3),
}


@pytest.mark.filterwarnings("ignore::actiongap.operators.TheoryWarning")
@pytest.mark.parametrize("text", VERDICTS)
def test_verdicts(text):
    conditions, alpha, claims, code = VERDICTS[text]
    verdict = prove(text)
    assert (verdict.condition_1, verdict.condition_2) == conditions
    assert (verdict.optimality_preserving, verdict.gap_increasing) == claims
    assert (verdict.alpha, verdict.exit_code) == (alpha, code)
    assert verdict.commutes_with_constants is commutes(parse(text)) is parse(text).commutes_with_constants
    assert bool(re.search(r"(every|some) u\b|independent m", verdict.summary)) == text.startswith("rso")
    assert ("the theorem does not cover" in verdict.summary) == (code == 3)


def test_smoothing_with_alpha_above_omega_loses_optimality():
    with pytest.warns(TheoryWarning, match="alpha is above omega"):
        verdict = prove("sal:0.9,0.5")
    assert (verdict.optimality_preserving, verdict.gap_increasing) == (False, False)


def test_a_draw_that_breaks_a_condition_is_named():
    verdict = prove("rso:0,2", gamma=0.5)
    example = verdict.counterexample
    assert verdict.witness is None
    assert example is not None
    assert 0.5 < example["u"] <= 1
    assert example["value"] == pytest.approx(example["bellman"] - 2 * example["u"] * example["gap"])
    assert example["value"] < example["bellman"] - example["gap"]
    assert f"u = {example['u']:.6g}" in example["sentence"]


def test_stochastic_operators_agree_with_their_samples():
    honest = Operator("mine", lambda b: 0.0, draw=lambda u: Operator("drawn", lambda b: b.bellman - u * u * b.gap))
    shifty = Operator("mine", lambda b: 0.0, draw=lambda u: Operator("drawn", lambda b: b.bellman + (u if isinstance(u, float) else 0.0)))
    assert (prove(honest).exit_code, prove(honest).alpha) == (0, 1.0)
    assert prove(shifty).exit_code == 3


def test_a_sequence_of_draws_finds_the_optimum():
    mdp = garnet(10, 3, 3, gamma=0.8, seed=2)
    rng, operator = np.random.default_rng(0), parse("rso:0,1")
    q_star, v_star, _ = policy_iteration(mdp)
    q = rng.normal(0, 20, q_star.shape)
    for _ in range(1000):
        q = operator.at(rng.random())(backups(mdp, q))
    v = q.max(axis=1)
    np.testing.assert_allclose(v, v_star, atol=1e-8)
    assert (v[:, None] - q >= v_star[:, None] - q_star - 1e-8).all()


def test_on_the_command_line(run):
    for text in ("clipped-al:0.9,0.5", "rso:0,2", "dpp:0.1"):
        code, out, _ = run("prove", text, "--json")
        assert (code, json.loads(out)["alpha"]) == (VERDICTS[text][3], VERDICTS[text][1])
    code, out, _ = run("solve", "cake", "--operator", "sal:0.25,0.5", "--json")
    assert (code, json.loads(out)["operator"]) == (0, "sal:0.25,0.5")
    code, out, err = run("solve", "cake", "--operator", "rso:0,1")
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("text", [*PLAIN, DRAWN, *SOFT])
def test_text_round_trip(text):
    assert parse(parse(text).name) is parse(text)
    assert text.partition(":")[0] in OTHER_PAPERS


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("clipped-al", "needs 2 numbers after a colon: try clipped-al:0.5,0.5"),
        ("clipped-al:0.5", "needs 2 numbers"),
        ("clipped-al:0.5,x", "is not a number: try clipped-al:0.5,0.5"),
        ("clipped-al:1,2,3,4", "at most 3 numbers"),
        ("clipped-al:-1,0.5", "alpha must be a number from 0 to 1"),
        ("clipped-al:0.5,1.5", "C must be from 0 to 1"),
        ("clipped-al:0.5,0.5,nan", "LOW a number"),
        ("al-schedule", "needs a number after a colon: try al-schedule:0.5"),
        ("al-schedule:0", "C must be a positive number"),
        ("rso:0.5", "needs 2 numbers"),
        ("rso:1,0", "0 <= LOW <= HIGH"),
        ("rso:-1,0", "0 <= LOW <= HIGH"),
        ("rso:0,inf", "0 <= LOW <= HIGH"),
        ("sal:0.5,0", r"OMEGA in \(0, 1\]"),
        ("sal:nan,0.5", "ALPHA must be at least 0"),
        ("munchausen:0,0.9", "temperature must be a positive number"),
        ("munchausen:0.03,-1", "alpha must be a number from 0 to 1"),
        ("munchausen:0.03,0.9,1", "at most 0"),
        ("dpp", "needs a number"),
        ("dpp:inf", "temperature must be a positive number"),
    ],
)
def test_bad_text_is_one_helpful_sentence(text, part):
    with pytest.raises(ValueError, match=part) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert "try" in str(caught.value)


def test_operators_outside_the_theory_warn():
    for text in ("clipped-al:1.5,0.5", "rso:1,1.5", "sal:0.6,0.5", "munchausen:0.1,1.5"):
        with pytest.warns(TheoryWarning):
            parse(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in ("clipped-al:1,0.5", "rso:0,2", "sal:0.5,0.5", "munchausen:0.1,1"):
            parse(text)


def test_fields_of_a_soft_backup_have_a_meaning_each():
    uniform = soft_backup(np.zeros(4), 0, 1.0, 0.5, np.zeros(4), temperature=2.0)
    assert isinstance(uniform, SoftBackup)
    assert uniform.log_policy == pytest.approx(-math.log(4))
    assert (uniform.mean, uniform.mean_bellman) == (0.0, 1.0)
    assert (uniform.mellow, uniform.mellow_bellman) == (pytest.approx(0.0), pytest.approx(1.0))
    assert uniform.soft_bellman == pytest.approx(1.0 + 0.5 * 2.0 * math.log(4))
