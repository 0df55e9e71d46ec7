"""Differential tests: every claim of the package against a second, independent computation.

The operators are written out here a second time, as plain loops over the paper's formulas; V* comes from exact rational policy iteration,
from enumeration, from a linear program and from QuantEcon; and the prover is measured against sampling, against linear programs over every
branch of an operator, and against its own counterexamples and witnesses, evaluated in rational arithmetic.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from actiongap import (
    FiniteMDP,
    NotConvergedError,
    Solution,
    cake,
    chain,
    evaluate_policy,
    garnet,
    gridworld,
    maximum,
    minimum,
    policy_iteration,
    q_stationary,
    single_state,
    solve,
    where,
)

CHECK = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
FAMILY = ["bellman", "consistent", "al:0.5", "al:0.9", "al:1", "pal:0.5", "pal:0.9", "pal-dqn:0.5", "pal-dqn:0.9", "lazy:0.5", "lazy:1"]
SHIFTED = {"bellman", "consistent", "al", "pal", "pal-dqn"}


# ---------------------------------------------------------------------------------------------------------------------------------------
# The reference: an MDP as nested lists of numbers, and the operators of the paper as loops. Works on floats and on fractions alike.
# ---------------------------------------------------------------------------------------------------------------------------------------


class Model(NamedTuple):
    """Rewards [x][a], next-state probabilities [x][a][y] and a discount, as nested lists."""

    rewards: list[list[Any]]
    transitions: list[list[list[Any]]]
    gamma: Any

    @property
    def states(self) -> range:
        return range(len(self.rewards))

    @property
    def actions(self) -> range:
        return range(len(self.rewards[0]))

    def exact(self) -> Model:
        """Return the same MDP, each float read as the rational number it is."""
        rewards = [[Fraction(r) for r in row] for row in self.rewards]
        transitions = [[[Fraction(p) for p in to] for to in row] for row in self.transitions]
        return Model(rewards, transitions, Fraction(self.gamma))

    def finite_mdp(self) -> FiniteMDP:
        return FiniteMDP.from_dense(np.array(self.rewards), np.array(self.transitions), self.gamma)


def model_of(mdp: FiniteMDP) -> Model:
    """Read an MDP of the package back, successor by successor."""
    sparse: Any = mdp.sparse().transitions
    states, actions = mdp.states, mdp.actions
    successors = np.broadcast_to(sparse.successors, (states, actions, sparse.successors.shape[-1]))
    probabilities = np.broadcast_to(sparse.probabilities, successors.shape)
    transitions = [[[0.0] * states for _ in range(actions)] for _ in range(states)]
    for x, a, k in np.ndindex(*successors.shape):
        transitions[x][a][int(successors[x, a, k])] += float(probabilities[x, a, k])
    return Model(mdp.rewards.tolist(), transitions, mdp.gamma)


def random_model(seed: int, states: int, actions: int, gamma: float) -> Model:
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.full(states, 0.6), size=(states, actions))
    return Model(rng.normal(size=(states, actions)).tolist(), transitions.tolist(), gamma)


def bellman(m: Model, q: list[list[Any]], x: int, a: int) -> Any:
    return m.rewards[x][a] + m.gamma * sum(m.transitions[x][a][y] * max(q[y]) for y in m.states)


def consistent(m: Model, q: list[list[Any]], x: int, a: int) -> Any:
    return m.rewards[x][a] + m.gamma * sum(m.transitions[x][a][y] * (q[x][a] if y == x else max(q[y])) for y in m.states)


def advantage(alpha: float) -> Callable[..., Any]:
    return lambda m, q, x, a: bellman(m, q, x, a) - alpha * (max(q[x]) - q[x][a])


def persistent(alpha: float) -> Callable[..., Any]:
    def operator(m: Model, q: list[list[Any]], x: int, a: int) -> Any:
        repeated = m.rewards[x][a] + m.gamma * sum(m.transitions[x][a][y] * q[y][a] for y in m.states)
        return max(advantage(alpha)(m, q, x, a), repeated)

    return operator


def persistent_dqn(alpha: float) -> Callable[..., Any]:
    def operator(m: Model, q: list[list[Any]], x: int, a: int) -> Any:
        later = sum(m.transitions[x][a][y] * (max(q[y]) - q[y][a]) for y in m.states)
        return max(advantage(alpha)(m, q, x, a), bellman(m, q, x, a) - alpha * later)

    return operator


def lazy(alpha: float) -> Callable[..., Any]:
    def operator(m: Model, q: list[list[Any]], x: int, a: int) -> Any:
        backed_up = bellman(m, q, x, a)
        if q[x][a] <= backed_up and backed_up <= alpha * max(q[x]) + (1 - alpha) * q[x][a]:
            return q[x][a]
        return backed_up

    return operator


def baird(k: float) -> Callable[..., Any]:
    return lambda m, q, x, a: (bellman(m, q, x, a) + (k - 1) * max(q[x])) / k


def reference(name: str) -> Callable[..., Any]:
    if name == "bellman":
        return bellman
    if name == "consistent":
        return consistent
    kind, number = name.split(":")
    makers = {"al": advantage, "pal": persistent, "pal-dqn": persistent_dqn, "lazy": lazy, "baird": baird}
    return makers[kind](float(number))


def sweep(m: Model, operator: Callable[..., Any], q: list[list[Any]], eta: float = 1.0) -> list[list[Any]]:
    return [[(1 - eta) * q[x][a] + eta * operator(m, q, x, a) for a in m.actions] for x in m.states]


def gaps_of(q: list[list[Any]]) -> np.ndarray:
    return np.array([[float(max(row) - entry) for entry in row] for row in q])


# ---------------------------------------------------------------------------------------------------------------------------------------
# V*, four ways.
# ---------------------------------------------------------------------------------------------------------------------------------------


def solve_rationally(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Solve a linear system exactly, by Gauss and Jordan."""
    n = len(right)
    rows = [[*matrix[i], right[i]] for i in range(n)]
    for i in range(n):
        pivot = next(j for j in range(i, n) if rows[j][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [entry / rows[i][i] for entry in rows[i]]
        for j in range(n):
            if j != i and rows[j][i] != 0:
                factor = rows[j][i]
                rows[j] = [entry - factor * above for entry, above in zip(rows[j], rows[i], strict=True)]
    return [row[n] for row in rows]


def value_of(m: Model, policy: list[int]) -> list[Fraction]:
    """V^pi of an exact model, exactly."""
    matrix = [[Fraction(int(x == y)) - m.gamma * m.transitions[x][policy[x]][y] for y in m.states] for x in m.states]
    return solve_rationally(matrix, [m.rewards[x][policy[x]] for x in m.states])


class Optimum(NamedTuple):
    """Exact Q*, V* and the exact gaps V* - Q*."""

    q: list[list[Fraction]]
    v: list[Fraction]
    gaps: list[list[Fraction]]


def exact_optimum(model: Model) -> Optimum:
    """Policy iteration in rational arithmetic; the answer solves Bellman's optimality equation to the last digit, or this raises."""
    m = model.exact()
    policy = [0 for _ in m.states]
    while True:
        v = value_of(m, policy)
        q = [[m.rewards[x][a] + m.gamma * sum(m.transitions[x][a][y] * v[y] for y in m.states) for a in m.actions] for x in m.states]
        better = [max(m.actions, key=lambda a, row=q[x]: row[a]) if max(q[x]) > v[x] else policy[x] for x in m.states]
        if better == policy:
            assert all(max(q[x]) == v[x] for x in m.states)
            return Optimum(q, v, [[v[x] - q[x][a] for a in m.actions] for x in m.states])
        policy = better


def optimum_by_enumeration(m: Model) -> np.ndarray:
    rewards, transitions = np.array(m.rewards), np.array(m.transitions)
    states = np.arange(len(m.states))
    values = []
    for policy in itertools.product(m.actions, repeat=len(m.states)):
        chosen = np.array(policy)
        values.append(np.linalg.solve(np.eye(len(states)) - m.gamma * transitions[states, chosen], rewards[states, chosen]))
    return np.max(values, axis=0)


def optimum_by_linear_program(m: Model) -> np.ndarray:
    """Minimise sum V subject to V(x) >= R(x, a) + gamma E V(x')."""
    rows, right = [], []
    for x in m.states:
        for a in m.actions:
            rows.append([m.gamma * m.transitions[x][a][y] - (x == y) for y in m.states])
            right.append(-m.rewards[x][a])
    found = linprog(np.ones(len(m.states)), A_ub=rows, b_ub=right, bounds=(None, None), method="highs")
    assert found.status == 0
    return found.x


def optimum_by_quantecon(m: Model) -> np.ndarray:
    markov = pytest.importorskip("quantecon.markov")
    return markov.DiscreteDP(np.array(m.rewards), np.array(m.transitions), m.gamma).solve(method="policy_iteration").v


# ---------------------------------------------------------------------------------------------------------------------------------------
# Random MDPs whose numbers are dyadic, so that every row sums to exactly one and the exact optimum is that of the package's own MDP.
# ---------------------------------------------------------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """A model, and the package's MDP built from the same numbers, with duplicate successors where it is sparse."""

    model: Model
    mdp: FiniteMDP


@st.composite
def drawn_models(draw: st.DrawFn, gammas: tuple[float, ...] = (0.0, 0.3, 0.5, 0.9, 0.99)) -> Drawn:
    states, actions, branching = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    gamma = draw(st.sampled_from(gammas))
    scale = draw(st.sampled_from((1.0, 1.0, 2.0**-8, 2.0**10)))
    rewards = np.array(draw(st.lists(st.integers(-16, 16), min_size=states * actions, max_size=states * actions)), dtype=float)
    rewards = rewards.reshape(states, actions) / 4 * scale
    successors = np.zeros((states, actions, branching), dtype=int)
    probabilities = np.zeros((states, actions, branching))
    for x, a in np.ndindex(states, actions):
        kind = draw(st.sampled_from(("any", "any", "self", "zero")))
        drawn = [draw(st.integers(0, states - 1)) for _ in range(branching)]
        if kind == "self":
            drawn[0] = x
        if kind == "zero":
            drawn = [0] * branching
        cuts = sorted(draw(st.integers(0, 8)) for _ in range(branching - 1))
        successors[x, a] = drawn
        probabilities[x, a] = np.diff([0, *cuts, 8]) / 8
    if draw(st.booleans()):
        successors[states - 1] = states - 1
    transitions = np.zeros((states, actions, states))
    for x, a, k in np.ndindex(*successors.shape):
        transitions[x, a, successors[x, a, k]] += probabilities[x, a, k]
    if draw(st.booleans()):
        mdp = FiniteMDP.from_successors(rewards, successors, probabilities, gamma)
    else:
        mdp = FiniteMDP.from_dense(rewards, transitions, gamma)
    return Drawn(Model(rewards.tolist(), transitions.tolist(), gamma), mdp)


def corner_cases() -> list[tuple[str, Model]]:
    """One model for each way an MDP can be degenerate."""
    stay = [[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]]
    return [
        ("single state", Model([[0.0, 1.0, 1.0]], [[[1.0], [1.0], [1.0]]], 0.9)),
        ("single action", Model([[1.0], [-2.0]], [[[0.25, 0.75]], [[0.5, 0.5]]], 0.9)),
        ("one of each", Model([[3.0]], [[[1.0]]], 0.5)),
        ("nothing pays", Model([[0.0, 0.0], [0.0, 0.0]], stay, 0.9)),
        ("absorbing states", Model([[0.0, -1.0], [1.0, 2.0]], stay, 0.9)),
        ("discount nothing is left of", Model([[1.0, 2.0], [4.0, 3.0]], stay, 0.0)),
        ("ties everywhere", Model([[1.0, 1.0], [1.0, 1.0]], [[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.5, 0.5]]], 0.75)),
        ("a cycle", Model([[0.0, -1.0], [1.0, -8.0]], [[[0.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]], 0.99)),
        ("all pay less than nothing", Model([[-5.0, -4.0], [-3.0, -9.0]], [[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.5, 0.5]]], 0.9)),
    ]


CORNERS = corner_cases()


# ---------------------------------------------------------------------------------------------------------------------------------------
# 1. Iterates, sweep by sweep.
# ---------------------------------------------------------------------------------------------------------------------------------------


def check_iterates(m: Model, mdp: FiniteMDP, name: str, q0: np.ndarray, sweeps: int, eta: float, engine: Any) -> None:
    """`solve` returns the iterate its last sweep backed up, the bounds being those of that sweep; shifted, by one constant, or not."""
    solution = solve(mdp, name, q0=q0, max_sweeps=sweeps, eta=eta, throw=False, engine=engine)
    assert 1 <= solution.sweeps <= sweeps
    q: list[list[Any]] = q0.tolist()
    for _ in range(solution.sweeps - 1):
        q = sweep(m, reference(name), q, eta)
    size = 1e-12 * (1 + np.abs(q).max() + np.abs(solution.q).max())
    np.testing.assert_allclose(solution.gaps, gaps_of(q), rtol=0, atol=size)
    difference = solution.q - np.array(q)
    if name.split(":")[0] in SHIFTED:
        assert np.ptp(difference) <= size
    else:
        assert np.abs(difference).max() <= size
    np.testing.assert_array_equal(solution.v, solution.q.max(axis=1))


@pytest.mark.parametrize("name", [*FAMILY, "pal:0.25", "pal-dqn:1", "lazy:0.25", "baird:2", "baird:0.5"])
def test_iterates_are_those_of_the_paper(name):
    for seed, (states, actions) in enumerate([(1, 3), (2, 1), (3, 2), (5, 3)]):
        m = random_model(seed, states, actions, gamma=(0.0, 0.5, 0.9, 0.99)[seed])
        q0 = 3 * np.random.default_rng(100 + seed).normal(size=(states, actions))
        for sweeps, eta in [(1, 1.0), (2, 1.0), (3, 0.3), (7, 1.0)]:
            check_iterates(m, m.finite_mdp(), name, q0, sweeps, eta, "arrays")


@settings(CHECK, max_examples=40)
@given(drawn=drawn_models(), name=st.sampled_from(FAMILY), sweeps=st.integers(1, 9), seed=st.integers(0, 2**16))
def test_iterates_agree_on_drawn_models(drawn, name, sweeps, seed):
    q0 = np.random.default_rng(seed).integers(-12, 13, size=(drawn.mdp.states, drawn.mdp.actions)) / 4
    check_iterates(drawn.model, drawn.mdp, name, q0, sweeps, 1.0, "auto")


@pytest.mark.parametrize("engine", ["arrays", "jax"])
def test_the_lazy_operator_rests_where_the_backup_meets_its_ceiling(engine):
    if engine == "jax":
        pytest.importorskip("jax")
    m = Model([[1.0, 0.0]], [[[1.0], [1.0]]], 0.5)
    q0 = np.array([[2.0, 0.0]])  # T Q(x, 1) = 1 = V / 2 + Q(x, 1) / 2, so that Q(x, 1) stays where it is
    assert sweep(m, lazy(0.5), q0.tolist()) == q0.tolist()
    assert sweep(m, lazy(0.4375), q0.tolist()) == [[2.0, 1.0]]
    for name in ("lazy:0.5", "lazy:0.4375"):
        check_iterates(m, m.finite_mdp(), name, q0, 2, 1.0, engine)


@pytest.mark.parametrize(("name", "engine"), [("lazy:0.5", "numba"), ("consistent", "jax"), ("lazy:0.5", "jax")])
def test_compiled_iterates_are_those_of_the_paper(name, engine):
    pytest.importorskip(engine)
    m = random_model(7, 4, 3, 0.9)
    check_iterates(m, m.finite_mdp(), name, np.random.default_rng(8).normal(size=(4, 3)), 5, 1.0, engine)


# ---------------------------------------------------------------------------------------------------------------------------------------
# 2. V*, the certificate, the policy and the gaps.
# ---------------------------------------------------------------------------------------------------------------------------------------


@settings(CHECK, max_examples=40)
@given(drawn=drawn_models(gammas=(0.0, 0.5, 0.9, 0.999)))
def test_four_solvers_agree_on_the_optimum(drawn):
    m = drawn.model
    exact = np.array([float(v) for v in exact_optimum(m).v])
    size = 1 + np.abs(exact).max()
    q, v, policy = policy_iteration(drawn.mdp)
    np.testing.assert_allclose(v, exact, rtol=0, atol=1e-10 * size)
    np.testing.assert_allclose(q, [[float(entry) for entry in row] for row in exact_optimum(m).q], rtol=0, atol=1e-10 * size)
    np.testing.assert_allclose([float(value) for value in value_of(m.exact(), policy.tolist())], exact, rtol=0, atol=1e-10 * size)
    np.testing.assert_allclose(optimum_by_enumeration(m), exact, rtol=0, atol=1e-10 * size)
    np.testing.assert_allclose(optimum_by_quantecon(m), exact, rtol=0, atol=1e-10 * size)
    np.testing.assert_allclose(optimum_by_linear_program(m), exact, rtol=0, atol=1e-6 * size)
    np.testing.assert_allclose(solve(drawn.mdp).v, optimum_by_quantecon(m), rtol=0, atol=1e-9 * size)


def check_certificate(m: Model, solution: Solution, optimum: Optimum) -> None:
    """The two bounds of a solution, compared exactly: no tolerance."""
    bound = Fraction(solution.error_bound)
    worst = max(abs(Fraction(float(solution.v[x])) - optimum.v[x]) for x in m.states)
    assert worst <= bound, f"|V - V*| = {float(worst)} above the error bound {solution.error_bound}"
    earned = value_of(m.exact(), [int(a) for a in solution.policy])
    loss = max(optimum.v[x] - earned[x] for x in m.states)
    assert loss <= Fraction(solution.policy_loss_bound), f"the policy loses {float(loss)}, the bound is {solution.policy_loss_bound}"


def check_gaps(m: Model, name: str, solution: Solution, optimum: Optimum) -> None:
    """Gaps no narrower than Bellman's; those of the operators with one limit, that limit; suboptimal actions below V*."""
    narrow = np.array([[float(gap) for gap in row] for row in optimum.gaps])
    slack = 4 * solution.tol
    assert (solution.gaps >= narrow - slack).all()
    v_star = np.array([float(v) for v in optimum.v])
    suboptimal = narrow > max(1e-6, 100 * slack)
    assert (solution.q < v_star[:, None] - narrow / 2)[suboptimal].all()
    np.testing.assert_array_equal(solution.gaps, solution.v[:, None] - solution.q)
    if not solution.gaps_settled:
        assert name.endswith(":1")
        return
    kind, _, number = name.partition(":")
    if kind == "bellman":
        np.testing.assert_allclose(solution.gaps, narrow, rtol=0, atol=slack)
    elif kind == "al" and float(number) < 1:
        np.testing.assert_allclose(solution.gaps, narrow / (1 - float(number)), rtol=0, atol=slack)
    elif kind == "consistent":
        stays = np.array([[m.transitions[x][a][x] for a in m.actions] for x in m.states])
        np.testing.assert_allclose(solution.gaps, narrow / (1 - m.gamma * stays), rtol=0, atol=slack)
    elif kind in ("pal", "pal-dqn") and float(number) < 1:
        assert (solution.gaps <= narrow / (1 - float(number)) + slack).all()
        again = gaps_of(sweep(m, reference(name), solution.q.tolist()))
        np.testing.assert_allclose(solution.gaps, again, rtol=0, atol=slack)


def check_solution(m: Model, mdp: FiniteMDP, name: str, **options: Any) -> None:
    optimum = exact_optimum(m)
    solution = solve(mdp, name, **options)
    assert solution.converged
    assert solution.error_bound <= solution.tol
    check_certificate(m, solution, optimum)
    check_gaps(m, name, solution, optimum)


@pytest.mark.parametrize("name", FAMILY)
@settings(CHECK, max_examples=14)
@given(drawn=drawn_models(), seed=st.integers(0, 2**16))
def test_solutions_are_certified_and_gaps_are_no_narrower(name, drawn, seed):
    start = None if seed % 2 else np.random.default_rng(seed).normal(size=(drawn.mdp.states, drawn.mdp.actions))
    check_solution(drawn.model, drawn.mdp, name, q0=start)


@pytest.mark.parametrize("name", FAMILY)
def test_solutions_of_degenerate_models(name):
    for _, m in CORNERS:
        check_solution(m, m.finite_mdp(), name)


@pytest.mark.parametrize("name", FAMILY)
def test_solutions_where_the_horizon_is_a_thousand(name):
    m = Model(
        [[1.0, 0.5, -2.0], [0.0, 0.25, 3.0], [-1.0, 0.0, 0.0]],
        [
            [[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]],
            [[0.0, 0.875, 0.125], [0.25, 0.25, 0.5], [0.0, 0.0, 1.0]],
            [[0.5, 0.0, 0.5], [0.125, 0.0, 0.875], [0.0, 0.125, 0.875]],
        ],
        0.999,
    )
    check_solution(m, m.finite_mdp(), name, tol=1e-3 if name.startswith("lazy") else None)


@settings(CHECK, max_examples=60)
@given(
    drawn=drawn_models(gammas=(0.0, 0.5, 0.9, 0.999)),
    name=st.sampled_from([*FAMILY, "baird:0.5", "baird:3"]),
    sweeps=st.integers(1, 12),
    eta=st.sampled_from((1.0, 0.25)),
    seed=st.integers(0, 2**16),
)
def test_the_bounds_hold_however_early_the_iteration_is_cut(drawn, name, sweeps, eta, seed):
    q0 = 5 * np.random.default_rng(seed).normal(size=(drawn.mdp.states, drawn.mdp.actions))
    solution = solve(drawn.mdp, name, q0=q0, max_sweeps=sweeps, eta=eta, throw=False)
    check_certificate(drawn.model, solution, exact_optimum(drawn.model))


@pytest.mark.parametrize("name", ["bellman", "consistent", "al:0.5", "pal:0.9", "lazy:0.5"])
@pytest.mark.parametrize(("reward", "start"), [(0.0, 1e3), (0.001, 1e6), (1.0, 1e9)])
def test_the_bounds_count_the_rounding_of_a_distant_start(name, reward, start):
    m = Model([[reward]], [[[1.0]]], 0.999)
    for sweeps in (1, 2, 3, 50):
        solution = solve(m.finite_mdp(), name, q0=np.array([[start]]), max_sweeps=sweeps, throw=False)
        check_certificate(m, solution, exact_optimum(m))


def test_giving_up_is_an_error_that_carries_a_true_bound():
    m = random_model(3, 4, 2, 0.99)
    with pytest.raises(NotConvergedError) as caught:
        solve(m.finite_mdp(), "lazy:0.5", max_sweeps=3)
    solution = caught.value.solution
    assert not solution.converged
    assert solution.error_bound > solution.tol
    assert np.abs(solution.v - [float(v) for v in exact_optimum(m).v]).max() <= solution.error_bound + 1e-10


@pytest.mark.parametrize(
    "mdp",
    [cake(0.9, 0.1), cake(0.5, 1.0), chain(4, 0.9), gridworld(2, 2, 0.9), single_state((0.0, 1.0, 0.5), 0.9), garnet(4, 3, 2, 0.9)],
    ids=lambda mdp: mdp.name,
)
def test_the_example_mdps_are_solved_by_every_solver(mdp):
    m = model_of(mdp)
    exact = [float(v) for v in exact_optimum(m).v]
    for other in (optimum_by_enumeration(m), optimum_by_quantecon(m), policy_iteration(mdp)[1]):
        np.testing.assert_allclose(other, exact, rtol=0, atol=1e-9)
    for name in FAMILY:
        np.testing.assert_allclose(solve(mdp, name).v, exact, rtol=0, atol=2e-10)


# ---------------------------------------------------------------------------------------------------------------------------------------
# 3. Engines and forms.
# ---------------------------------------------------------------------------------------------------------------------------------------


def agree(one: Solution, other: Solution, tolerance: float) -> None:
    size = 1 + np.abs(one.q).max()
    np.testing.assert_allclose(one.v, other.v, rtol=0, atol=tolerance * size)
    np.testing.assert_allclose(one.gaps, other.gaps, rtol=0, atol=tolerance * size)
    np.testing.assert_allclose(one.q, other.q, rtol=0, atol=tolerance * size)


ENGINES = ["bellman", "consistent", "al:0.9", "pal:0.9", "pal-dqn:0.5", "lazy:0.5", "baird:2"]


@pytest.mark.every(5)
@pytest.mark.parametrize("engine", ["numba", "jax"])
@pytest.mark.parametrize("name", ENGINES)
def test_engines_agree(name, engine):
    pytest.importorskip(engine)
    models = [random_model(11, 5, 3, 0.9).finite_mdp(), garnet(30, 3, 4, gamma=0.9, seed=5), gridworld(4, gamma=0.9)]
    if engine == "numba":  # each solve compiles: one model an operator, in turn
        models = [models[ENGINES.index(name) % 3]]
    for mdp in models:
        plain, compiled = solve(mdp, name, engine="arrays"), solve(mdp, name, engine=engine)
        assert compiled.engine == engine
        agree(plain, compiled, 1e-9)


@pytest.mark.parametrize("name", FAMILY)
def test_dense_and_sparse_forms_agree(name):
    for mdp in (random_model(12, 5, 3, 0.9).finite_mdp(), garnet(20, 2, 3, gamma=0.9, seed=6), cake(), gridworld(3, gamma=0.9)):
        one, other = solve(mdp.dense(), name, max_sweeps=40, throw=False), solve(mdp.sparse(), name, max_sweeps=40, throw=False)
        assert one.sweeps == other.sweeps
        agree(one, other, 1e-11)


@settings(CHECK, max_examples=60)
@given(drawn=drawn_models())
def test_forms_hold_the_same_distributions(drawn):
    dense: Any = drawn.mdp.dense().transitions
    np.testing.assert_allclose(dense.probabilities, drawn.model.transitions, rtol=0, atol=1e-15)
    np.testing.assert_allclose(model_of(drawn.mdp).transitions, drawn.model.transitions, rtol=0, atol=1e-15)
    back: Any = drawn.mdp.sparse().dense().transitions
    np.testing.assert_allclose(back.probabilities, drawn.model.transitions, rtol=0, atol=1e-15)


# ---------------------------------------------------------------------------------------------------------------------------------------
# 4. Stationary policies.
# ---------------------------------------------------------------------------------------------------------------------------------------


@settings(CHECK, max_examples=60)
@given(drawn=drawn_models(gammas=(0.0, 0.5, 0.9, 0.999)), seed=st.integers(0, 2**16))
def test_stationary_values_are_those_of_the_changed_policy(drawn, seed):
    m = drawn.model.exact()
    policy = np.random.default_rng(seed).integers(drawn.mdp.actions, size=drawn.mdp.states)
    expected = np.zeros((drawn.mdp.states, drawn.mdp.actions))
    for x in m.states:
        for a in m.actions:
            changed = [a if y == x else int(policy[y]) for y in m.states]
            expected[x, a] = float(value_of(m, changed)[x])
    size = 1 + np.abs(expected).max()
    np.testing.assert_allclose(q_stationary(drawn.mdp, policy), expected, rtol=0, atol=1e-10 * size)


@settings(CHECK, max_examples=40)
@given(drawn=drawn_models(gammas=(0.0, 0.5, 0.9, 0.999)), seed=st.integers(0, 2**16))
def test_policy_values_are_those_of_an_exact_linear_solve(drawn, seed):
    m = drawn.model.exact()
    rng = np.random.default_rng(seed)
    actions = rng.integers(drawn.mdp.actions, size=drawn.mdp.states)
    exact = np.array([float(value) for value in value_of(m, actions.tolist())])
    size = 1 + np.abs(exact).max()
    np.testing.assert_allclose(evaluate_policy(drawn.mdp, actions), exact, rtol=0, atol=1e-10 * size)
    counts = rng.multinomial(8, np.full(drawn.mdp.actions, 1 / drawn.mdp.actions), size=drawn.mdp.states)
    mixed = Model(
        [[sum(m.rewards[x][a] * Fraction(int(counts[x, a]), 8) for a in m.actions)] for x in m.states],
        [[[sum(m.transitions[x][a][y] * Fraction(int(counts[x, a]), 8) for a in m.actions) for y in m.states]] for x in m.states],
        m.gamma,
    )
    exact = np.array([float(value) for value in value_of(mixed, [0 for _ in m.states])])
    np.testing.assert_allclose(evaluate_policy(drawn.mdp, counts / 8), exact, rtol=0, atol=1e-10 * size)


# ---------------------------------------------------------------------------------------------------------------------------------------
# 5. The prover. Random operators are trees: affine leaves under minimum, maximum and where.
# ---------------------------------------------------------------------------------------------------------------------------------------

Tree = tuple[Any, ...]
VALUES = ("q", "v", "bellman", "again", "repeat")
DIFFERENCES = ("gap", "next_gap")
PACKAGE = SimpleNamespace(minimum=minimum, maximum=maximum, where=where)
EXACT = SimpleNamespace(minimum=min, maximum=max, where=lambda condition, yes, no: yes if condition else no)


class Fields(NamedTuple):
    """The fields of a backup, here as arrays of floats or as fractions."""

    gamma: Any
    q: Any
    v: Any
    bellman: Any
    again: Any
    gap: Any
    next_gap: Any
    repeat: Any


def term(weight: float, field: str, discounted: bool = False) -> tuple[float, str, bool]:
    return weight, field, discounted


def affine(*terms: tuple[float, str, bool]) -> Tree:
    return ("affine", *terms)


BELLMAN = affine(term(1, "bellman"))


def eighths(rng: np.random.Generator, low: int, high: int) -> float:
    return int(rng.integers(low, high)) / 8


def random_affine(rng: np.random.Generator) -> Tree:
    kind = int(rng.integers(6))
    if kind <= 2:
        terms = [term(1, "bellman")]
        if rng.random() < 0.8:
            terms.append(term(-eighths(rng, -2, 11), "gap", bool(rng.integers(2))))
        if rng.random() < 0.5:
            terms.append(term(-eighths(rng, -2, 9), "next_gap", bool(rng.integers(2))))
        if rng.random() < 0.1:
            terms.append(term(eighths(rng, -4, 5), "one"))
        return affine(*terms)
    if kind == 3:
        return affine(term(1, VALUES[rng.integers(5)]))
    if kind == 4:
        weight = eighths(rng, 0, 9)
        one, other = rng.choice(5, 2, replace=False)
        return affine(term(weight, VALUES[one]), term(1 - weight, VALUES[other]))
    chosen = rng.choice(7, int(rng.integers(1, 4)), replace=False)
    return affine(*(term(eighths(rng, -8, 9), (VALUES + DIFFERENCES)[i]) for i in chosen))


def random_condition(rng: np.random.Generator) -> Tree:
    if rng.random() < 0.25:
        return (("and", "or")[rng.integers(2)], random_condition(rng), random_condition(rng))
    return (("<=", "<", ">=", ">")[rng.integers(4)], random_affine(rng), random_affine(rng))


def random_tree(rng: np.random.Generator, depth: int) -> Tree:
    if depth == 0 or rng.random() < 0.2:
        return random_affine(rng)
    kind = int(rng.integers(5))
    if kind == 4:
        return ("where", random_condition(rng), random_tree(rng, depth - 1), random_tree(rng, depth - 1))
    return ("minimum" if kind < 2 else "maximum", random_tree(rng, depth - 1), random_tree(rng, depth - 1))


def random_operator(rng: np.random.Generator) -> Tree:
    """Any tree; or one held below T, or above T - alpha gap, or both, so that the two conditions fail and hold in every combination."""
    kind = int(rng.choice(4, p=(0.15, 0.4, 0.4, 0.05)))
    tree = random_tree(rng, int(rng.integers(0, 2 if kind in (0, 3) else 3)))
    floor = affine(term(1, "bellman"), term(-eighths(rng, 0, 9), "gap", bool(rng.integers(4) == 0)))
    return (tree, ("minimum", BELLMAN, ("maximum", floor, tree)), ("minimum", BELLMAN, tree), ("maximum", floor, tree))[kind]


def evaluate(tree: Tree, b: Any, library: Any) -> Any:
    """Run a tree on a backup: on arrays, on fractions, or on whatever the package hands to a user's operator."""
    kind = tree[0]
    if kind == "affine":
        total: Any = 0
        for weight, field, discounted in tree[1:]:
            value = 1 if field == "one" else getattr(b, field)
            value = b.gamma * value if discounted else value
            total = total + (Fraction(weight) if library is EXACT else weight) * value
        return total
    if kind in ("minimum", "maximum"):
        return getattr(library, kind)(evaluate(tree[1], b, library), evaluate(tree[2], b, library))
    if kind == "where":
        return library.where(*(evaluate(part, b, library) for part in tree[1:]))
    left, right = evaluate(tree[1], b, library), evaluate(tree[2], b, library)
    if kind == "and":
        return left & right
    if kind == "or":
        return left | right
    return {"<=": left <= right, "<": left < right, ">=": left >= right, ">": left > right}[kind]


def as_operator(tree: Tree) -> Callable[[Any], Any]:
    def drawn(b: Any) -> Any:
        return evaluate(tree, b, PACKAGE)

    return drawn


def prove(operator: Any, gamma: float | None = None) -> Any:
    pytest.importorskip("z3")
    from actiongap.mdp.witness import prove as decide

    return decide(operator, gamma)


def backups(seed: int, count: int, gammas: tuple[float, ...] = (0.0, 0.5, 0.99, -1.0), finite: bool = False) -> Fields:
    """Backups that satisfy the axioms, many of them at a corner; a discount of -1 stands for one drawn from [0, 1)."""
    rng = np.random.default_rng(seed)

    def some(*options: Any) -> np.ndarray:
        return np.choose(rng.integers(len(options), size=count), [np.broadcast_to(option, (count,)) for option in options])

    gamma = rng.choice(np.array(gammas), size=count)
    gamma = np.where(gamma < 0, rng.random(count), gamma)
    size = some(1.0, 8.0, 1024.0)
    whole = [rng.integers(-16, 17, size=count) / 8 * size for _ in range(6)]
    q = some(0.0, whole[0], whole[0])
    gap = some(0.0, np.abs(whole[1]), np.abs(whole[1]), rng.random(count))
    next_gap = some(0.0, np.abs(whole[2]), np.abs(whole[2]), gap, rng.random(count))
    v = q + gap
    value = some(0.0, q, v, whole[3], whole[3], q + gap * rng.random(count))
    repeat = value - gamma * next_gap
    floor = np.maximum(value - gamma * gap, repeat)
    inside = floor + rng.random(count) * (value - floor)
    again = some(floor, value, inside) if finite else some(floor, value, inside, value + np.abs(whole[4]))
    return Fields(gamma, q, v, value, again, gap, next_gap, repeat)


POOL = backups(0, 20_000)
SLACK = 1e-9 * (1 + np.abs(POOL.q) + np.abs(POOL.v) + np.abs(POOL.bellman) + np.abs(POOL.again) + POOL.next_gap)


def test_sampled_backups_satisfy_the_axioms():
    b = POOL
    assert (b.q <= b.v).all()
    assert (b.next_gap >= 0).all()
    assert ((b.gamma >= 0) & (b.gamma < 1)).all()
    np.testing.assert_array_equal(b.repeat, b.bellman - b.gamma * b.next_gap)
    assert (b.again >= b.bellman - b.gamma * b.gap).all()
    assert (b.again >= b.repeat).all()
    for corner in (b.gap == 0, b.next_gap == 0, b.again == b.bellman, b.again > b.bellman, b.bellman == b.q, b.again == b.repeat):
        assert corner.sum() > 500


def sampled_violation(tree: Tree, condition: int, alpha: float | np.ndarray = 1.0) -> bool:
    value = evaluate(tree, POOL, np)
    wrong = value - POOL.bellman if condition == 1 else POOL.bellman - alpha * POOL.gap - value
    return bool((wrong > SLACK).any())


class Half(NamedTuple):
    """A half space `row . (q, gap, bellman, next_gap, again, 1) <= 0`, open where `strict`."""

    row: np.ndarray
    strict: bool


def row_of(tree: Tree, gamma: float) -> np.ndarray:
    q, gap, value, next_gap, again, one = np.eye(6)
    rows = {"q": q, "gap": gap, "bellman": value, "next_gap": next_gap, "again": again, "one": one}
    rows |= {"v": q + gap, "repeat": value - gamma * next_gap}
    return np.sum([weight * (gamma if discounted else 1) * rows[field] for weight, field, discounted in tree[1:]], axis=0)


def halves_of(condition: Tree, truth: bool, gamma: float) -> list[list[Half]]:
    """Polyhedra whose union is where the condition holds, or where it does not."""
    kind, left, right = condition
    if kind in ("and", "or"):
        one, other = halves_of(left, truth, gamma), halves_of(right, truth, gamma)
        return [a + b for a in one for b in other] if (kind == "and") == truth else one + other
    difference = row_of(left, gamma) - row_of(right, gamma)
    if kind in (">", ">="):
        difference = -difference
    strict = kind in ("<", ">")
    return [[Half(difference, strict)]] if truth else [[Half(-difference, not strict)]]


def pieces_of(tree: Tree, gamma: float) -> Iterator[tuple[list[Half], np.ndarray]]:
    """Every branch of an operator at one discount: the polyhedron on which it is taken, and its affine value there."""
    if tree[0] == "affine":
        yield [], row_of(tree, gamma)
    elif tree[0] == "where":
        for truth, branch in ((True, tree[2]), (False, tree[3])):
            for halves in halves_of(tree[1], truth, gamma):
                for inner, value in pieces_of(branch, gamma):
                    yield halves + inner, value
    else:
        sign = 1 if tree[0] == "minimum" else -1
        for one, first in pieces_of(tree[1], gamma):
            for other, second in pieces_of(tree[2], gamma):
                yield [*one, *other, Half(sign * (first - second), False)], first
                yield [*one, *other, Half(sign * (second - first), False)], second


BOX = [(-1e3, 1e3), (0, 1e3), (-1e3, 1e3), (0, 1e3), (-1e3, 1e3)]


def polyhedral_violation(tree: Tree, gamma: float, condition: int, alpha: float = 1.0) -> bool:
    """Decide by linear programs, branch by branch, whether some backup with this discount violates the condition."""
    value_row = row_of(BELLMAN, gamma)
    gap_row = row_of(affine(term(1, "gap")), gamma)
    axioms = [Half(np.array([0, -gamma, 1, 0, -1, 0.0]), False), Half(np.array([0, 0, 1, -gamma, -1, 0.0]), False)]
    for halves, value in pieces_of(tree, gamma):
        objective = value - value_row if condition == 1 else value_row - alpha * gap_row - value
        rows = np.array([half.row for half in axioms + halves])
        worst = linprog(-objective[:5], A_ub=rows[:, :5], b_ub=-rows[:, 5], bounds=BOX, method="highs")
        if worst.status != 0 or -worst.fun + objective[5] <= 1e-4:
            continue
        strict = np.array([float(half.strict) for half in axioms + halves])
        if not strict.any():
            return True
        # The closure holds a violation: the branch itself does unless its open half spaces do not meet.
        room = linprog([0, 0, 0, 0, 0, -1], A_ub=np.c_[rows[:, :5], strict], b_ub=-rows[:, 5], bounds=[*BOX, (None, 1)], method="highs")
        if room.status == 0 and -room.fun > 1e-6:
            return True
    return False


def rational(number: float) -> Fraction:
    """Read a float as the simple fraction it was written down from."""
    simple = Fraction(number).limit_denominator(10**6)
    return simple if abs(float(simple) - number) <= 1e-12 * (1 + abs(number)) else Fraction(number)


def check_counterexample(tree: Tree, counterexample: dict[str, Any]) -> None:
    """The numbers satisfy the axioms, the operator takes the value shown, and the value breaks the condition named."""
    b = Fields(**{field: rational(counterexample[field]) for field in Fields._fields})
    near = Fraction(1, 10**9)
    assert 0 <= b.gamma < 1
    assert b.q <= b.v
    assert abs(b.gap - (b.v - b.q)) <= near
    assert b.next_gap >= 0
    assert abs(b.repeat - (b.bellman - b.gamma * b.next_gap)) <= near
    assert b.again >= b.bellman - b.gamma * b.gap - near
    assert b.again >= b.repeat - near
    value = evaluate(tree, b, EXACT)
    assert abs(value - rational(counterexample["value"])) <= near * (1 + abs(value))
    if counterexample["condition"] == 1:
        assert value > b.bellman
    else:
        assert counterexample["condition"] == 2
        assert value < b.bellman - b.gap


def apply_exactly(tree: Tree, m: Model, q: list[list[Fraction]]) -> list[list[Fraction]]:
    """T'Q on an exact model, the fields of each backup computed from their definitions."""
    answer = []
    for x in m.states:
        row = []
        for a in m.actions:
            v, to = max(q[x]), m.transitions[x][a]
            value = bellman(m, q, x, a)
            repeat = m.rewards[x][a] + m.gamma * sum(to[y] * q[y][a] for y in m.states)
            next_gap = sum(to[y] * (max(q[y]) - q[y][a]) for y in m.states)
            again = m.rewards[x][a] + m.gamma * sum(to[y] * (q[x][a] if y == x else max(q[y])) for y in m.states)
            row.append(evaluate(tree, Fields(m.gamma, q[x][a], v, value, again, v - q[x][a], next_gap, repeat), EXACT))
        answer.append(row)
    return answer


def check_witness(tree: Tree, claim: str, witness: dict[str, Any]) -> None:
    """Iterate the operator on the MDP shown, in rational arithmetic, and see it go wrong as the witness says."""
    rewards = [[rational(r) for r in row] for row in witness["rewards"]]
    successors = witness["successors"]
    states = range(len(rewards))
    m = Model(rewards, [[[Fraction(int(y == to)) for y in states] for to in row] for row in successors], rational(witness["gamma"]))
    optimum = exact_optimum(m)
    np.testing.assert_allclose(witness["v_star"], [float(v) for v in optimum.v], rtol=0, atol=1e-6)
    q0 = [[rational(entry) for entry in row] for row in witness["q0"]]
    if witness["kind"] == "divergence":
        q = q0
        for _ in range(60):
            q = apply_exactly(tree, m, q)
        assert max(abs(max(row)) for row in q) > 1e6 * (1 + max(abs(v) for v in optimum.v))
        return
    period = {"fixed point": 1, "cycle": 2}[witness["kind"]]
    visited = [q0]
    for _ in range(period):
        visited.append(apply_exactly(tree, m, visited[-1]))
    np.testing.assert_allclose(np.array(visited[-1], dtype=float), np.array(q0, dtype=float), rtol=0, atol=1e-6)
    np.testing.assert_allclose(witness["v"], [float(max(row)) for row in q0], rtol=0, atol=1e-9)
    clear = Fraction(1, 10**4)
    wrong = []
    for q, x, a in itertools.product(visited[:period], m.states, m.actions):
        if claim == "optimality_preserving":
            wrong.append(abs(max(q[x]) - optimum.v[x]) > clear)
            wrong.append(optimum.gaps[x][a] > clear and q[x][a] > optimum.v[x] - Fraction(1, 10**6))
        else:
            wrong.append(max(q[x]) - q[x][a] < optimum.gaps[x][a] - clear)
    assert any(wrong)


def check_averaging(tree: Tree, eta: float | str) -> None:
    """A step of size eta from Q lies between the bounds in 20,000 backups of finite MDPs."""
    b = backups(1, 20_000, finite=True)
    step = eval(re.sub(r"(\d) gamma", r"\1 * gamma", str(eta)), {"gamma": b.gamma})
    assert np.all((step > 0) & (step <= 1))
    slack = 1e-9 * (1 + np.abs(b.q) + np.abs(b.v) + np.abs(b.bellman) + np.abs(b.again) + b.next_gap)
    found = evaluate(tree, b, np)
    assert np.all(found <= b.q + step * (b.bellman - b.q) + slack)
    assert np.all(found >= b.q + step * (b.bellman - b.gap - b.q) - slack)


def check_verdict(tree: Tree, verdict: Any) -> None:
    """All that one verdict claims, except that a condition holds."""
    assert (verdict.counterexample is None) == (verdict.condition_1 is not False and verdict.condition_2 is not False)
    if verdict.counterexample is not None:
        assert (verdict.condition_1, verdict.condition_2)[verdict.counterexample["condition"] - 1] is False
        check_counterexample(tree, verdict.counterexample)
    averaged = verdict.theorem == "Theorem 3"
    assert averaged == (verdict.eta is not None)
    if averaged:
        check_averaging(tree, verdict.eta)
    proved = averaged or (verdict.condition_1 is True and verdict.condition_2 is True)
    for claim in ("optimality_preserving", "gap_increasing"):
        witness = (verdict.witness or {}).get(claim)
        assert (getattr(verdict, claim) is True) == proved
        assert (getattr(verdict, claim) is False) == (witness is not None)
        if witness is not None:
            check_witness(tree, claim, witness)
    assert verdict.exit_code == (0 if proved else 1)
    assert (verdict.alpha is None) == (verdict.condition_2 is not True and not averaged)


OPERATORS = 102
GROUPS = 5
SOME = [i for i in range(OPERATORS) if i % (3 * GROUPS) < GROUPS]
"""A third of them, whose verdicts several tests share: each takes long."""


@pytest.fixture(scope="module")
def drawn_operators() -> list[Tree]:
    rng = np.random.default_rng(14)
    return [random_operator(rng) for _ in range(OPERATORS)]


@pytest.fixture(scope="module")
def sampled_indices(request) -> Sequence[int]:
    return range(OPERATORS) if request.config.getoption("--long") else SOME


@pytest.fixture(scope="module")
def verdicts() -> dict[int, Any]:
    return {}


def verdict_of(i: int, drawn_operators: list[Tree], verdicts: dict[int, Any]) -> tuple[Tree, Any]:
    if i not in verdicts:
        verdicts[i] = prove(as_operator(drawn_operators[i]))
    return drawn_operators[i], verdicts[i]


@pytest.mark.every(10)
@pytest.mark.parametrize("group", range(GROUPS))
def test_verdicts_withstand_sampling(group, drawn_operators, verdicts):
    for i in range(group, OPERATORS, GROUPS):
        tree, verdict = verdict_of(i, drawn_operators, verdicts)
        if sampled_violation(tree, 1):
            assert verdict.condition_1 is False, tree
        if sampled_violation(tree, 2):
            assert verdict.condition_2 is False, tree
        if verdict.alpha is not None:
            assert not sampled_violation(tree, 2, POOL.gamma if verdict.alpha == "gamma" else verdict.alpha), tree
        check_verdict(tree, verdict)


@pytest.mark.long
def test_drawn_operators_meet_and_miss_the_conditions_in_every_combination(drawn_operators, verdicts):
    found = [verdict_of(i, drawn_operators, verdicts)[1] for i in range(OPERATORS)]
    combinations = Counter((verdict.condition_1, verdict.condition_2) for verdict in found)
    assert set(combinations) == {(True, True), (True, False), (False, True), (False, False)}
    assert min(combinations.values()) >= 2
    alphas = [verdict.alpha for verdict in found]
    assert "gamma" in alphas
    assert 0.0 in alphas
    assert 1.0 in alphas
    assert sum(verdict.witness is not None for verdict in found) >= 25


@pytest.mark.every(2)
@pytest.mark.parametrize("group", range(GROUPS))
def test_verdicts_agree_with_linear_programs_over_every_branch(group, drawn_operators, verdicts):
    """What one discount violates, no verdict for all discounts proves; what a verdict refutes, some discount violates."""
    for i in SOME[group::GROUPS]:
        tree, verdict = verdict_of(i, drawn_operators, verdicts)
        for condition, answer in ((1, verdict.condition_1), (2, verdict.condition_2)):
            violated = any(polyhedral_violation(tree, gamma, condition) for gamma in (0.5, 0.99, 0.0))
            assert violated == (answer is False), (condition, tree)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.75])
def test_verdicts_at_one_discount_are_those_of_linear_programs(gamma, drawn_operators):
    for tree in drawn_operators[int(8 * gamma) :: 18]:
        verdict = prove(as_operator(tree), gamma)
        assert verdict.condition_1 == (not polyhedral_violation(tree, gamma, 1)), tree
        assert verdict.condition_2 == (not polyhedral_violation(tree, gamma, 2)), tree
        check_verdict(tree, verdict)
        if verdict.counterexample is not None:
            assert verdict.counterexample["gamma"] == gamma
        if verdict.alpha is not None:
            alpha = gamma if verdict.alpha == "gamma" else verdict.alpha
            assert 0 <= alpha <= 1
            assert not polyhedral_violation(tree, gamma, 2, alpha), tree
            if alpha > 0:
                assert polyhedral_violation(tree, gamma, 2, alpha - 0.01), f"a smaller alpha than {alpha} would do for {tree}"


def test_commuting_with_constants_withstands_sampling(drawn_operators, sampled_indices, verdicts):
    b = POOL
    shift = np.random.default_rng(1).integers(-64, 65, size=b.q.size) * 4.0
    moved = {field: getattr(b, field) + b.gamma * shift for field in ("bellman", "again", "repeat")}
    shifted = b._replace(q=b.q + shift, v=b.v + shift, **moved)
    seen = Counter()
    for i in sampled_indices:
        tree, verdict = verdict_of(i, drawn_operators, verdicts)
        # A comparison that rounding may tip is no evidence: moved or not, such a backup answers either way.
        difference = np.abs(evaluate(tree, shifted, np) - evaluate(tree, b, np) - b.gamma * shift)
        differs = np.mean(difference > SLACK + 1e-9 * np.abs(shift)) > 0.002
        assert verdict.commutes_with_constants in (True, False)
        if differs:
            assert verdict.commutes_with_constants is False, tree
        seen[verdict.commutes_with_constants, bool(differs)] += 1
    assert seen[False, False] == 0, "an operator said not to commute with constants was never seen not to"
    assert min(seen[True, False], seen[False, True]) >= 10


def tree_of(name: str) -> Tree:
    """The operators of the paper as trees."""
    kind, _, number = name.partition(":")
    alpha = float(number or 0)
    learned = affine(term(1, "bellman"), term(-alpha, "gap"))
    if kind == "consistent":
        return ("minimum", BELLMAN, affine(term(1, "again")))
    if kind == "pal":
        return ("maximum", learned, affine(term(1, "repeat")))
    if kind == "pal-dqn":
        return ("maximum", learned, affine(term(1, "bellman"), term(-alpha, "next_gap")))
    if kind == "lazy":
        ceiling = affine(term(alpha, "v"), term(1 - alpha, "q"))
        return ("where", ("and", ("<=", affine(term(1, "q")), BELLMAN), ("<=", BELLMAN, ceiling)), affine(term(1, "q")), BELLMAN)
    if kind == "baird":
        return affine(term(1 - 1 / alpha, "v"), term(1 / alpha, "bellman"))
    return learned


@pytest.mark.every(3)
@pytest.mark.parametrize("name", [*FAMILY, "al:0.25", "al:0.999", "pal:0.3", "lazy:0.75", "baird:0.5"])
def test_named_operators_and_their_trees_get_one_verdict(name):
    tree = tree_of(name)
    one, other = prove(name), prove(as_operator(tree))
    fields = ("condition_1", "condition_2", "alpha", "optimality_preserving", "gap_increasing", "commutes_with_constants", "exit_code")
    assert [getattr(one, field) for field in fields] == [getattr(other, field) for field in fields]
    for verdict in (one, other):
        check_verdict(tree, verdict)
    if not name.startswith("baird"):
        alpha = "gamma" if name == "consistent" else float(name.partition(":")[2] or 0)
        assert (one.condition_1, one.condition_2, one.alpha) == (True, True, alpha)
        assert one.commutes_with_constants is not name.startswith("lazy")


def gap_of(weight: float, discounted: bool = False) -> Tree:
    return affine(term(1, "bellman"), term(-weight, "gap", discounted))


HIGHER = affine(term(1, "bellman"), term(1, "one"))
LOWER = affine(term(1, "bellman"), term(-1, "next_gap"))
GAP, NEXT_GAP, ZERO, Q = affine(term(1, "gap")), affine(term(1, "next_gap")), affine(term(0, "one")), affine(term(1, "q"))
AGAIN, REPEAT = affine(term(1, "again")), affine(term(1, "repeat"))


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("tree", "condition_1", "condition_2", "alpha"),
    [
        pytest.param(("where", ("<", GAP, ZERO), HIGHER, BELLMAN), True, True, 0.0, id="a branch no backup takes"),
        pytest.param(("where", ("<", AGAIN, REPEAT), HIGHER, BELLMAN), True, True, 0.0, id="again below repeat"),
        pytest.param(("where", (">", REPEAT, BELLMAN), HIGHER, BELLMAN), True, True, 0.0, id="repeat above T"),
        pytest.param(("where", ("<", NEXT_GAP, ZERO), HIGHER, BELLMAN), True, True, 0.0, id="a negative gap at the next state"),
        pytest.param(("where", ("<=", GAP, ZERO), LOWER, BELLMAN), True, False, None, id="wrong on greedy actions alone"),
        pytest.param(("where", (">=", Q, affine(term(1e6, "one"))), HIGHER, BELLMAN), False, True, 0.0, id="wrong far away"),
        pytest.param(gap_of(1.015625, discounted=True), True, False, None, id="wrong only where gamma is near one"),
        pytest.param(gap_of(1.0, discounted=True), True, True, "gamma", id="alpha is gamma"),
        pytest.param(gap_of(1 + 2.0**-20), True, False, None, id="alpha above one by a millionth"),
        pytest.param(gap_of(1 - 2.0**-20), True, True, 1 - 2.0**-20, id="alpha below one by a millionth"),
        pytest.param(("minimum", BELLMAN, AGAIN), True, True, "gamma", id="consistent"),
        pytest.param(("minimum", BELLMAN, affine(term(1, "again"), term(-(2.0**-10), "gap"))), True, False, None, id="below consistent"),
        pytest.param(("maximum", gap_of(1), AGAIN), False, True, "gamma", id="again above T"),
        pytest.param(("maximum", gap_of(1), REPEAT), True, True, 1.0, id="persistent at one"),
        pytest.param(("minimum", gap_of(0.25), ("maximum", gap_of(0.75), REPEAT)), True, True, 0.75, id="persistent under advantage"),
        pytest.param(affine(term(0.5, "bellman"), term(0.5, "repeat")), True, False, None, id="T and repeat mixed"),
        pytest.param(affine(term(0.875, "q"), term(0.125, "bellman")), False, False, 0.0, id="a small step towards T"),
    ],
)
def test_operators_at_the_edge_of_the_conditions(tree, condition_1, condition_2, alpha):
    verdict = prove(as_operator(tree))
    assert (verdict.condition_1, verdict.condition_2) == (condition_1, condition_2)
    if isinstance(alpha, float):
        assert alpha <= verdict.alpha <= alpha + 1e-9
    else:
        assert verdict.alpha == alpha
    check_verdict(tree, verdict)


# ---------------------------------------------------------------------------------------------------------------------------------------
# 6. What is proved happens: proved operators, iterated, reach V*.
# ---------------------------------------------------------------------------------------------------------------------------------------


def apply(tree: Tree, m: Model, q: np.ndarray) -> np.ndarray:
    """T'Q in floats, all pairs at once."""
    rewards, to = np.array(m.rewards), np.array(m.transitions)
    v = q.max(axis=1)
    gap = v[:, None] - q
    value = rewards + m.gamma * np.einsum("xay,y->xa", to, v)
    next_gap = np.einsum("xay,ya->xa", to, gap)
    again = value - m.gamma * np.einsum("xax->xa", to) * gap
    b = Fields(m.gamma, q, np.broadcast_to(v[:, None], q.shape), value, again, gap, next_gap, value - m.gamma * next_gap)
    return evaluate(tree, b, np)


def test_proved_operators_reach_the_optimum(drawn_operators, sampled_indices, verdicts):
    reached = 0
    for i in sampled_indices:
        tree, verdict = verdict_of(i, drawn_operators, verdicts)
        if not verdict.optimality_preserving or (verdict.alpha != "gamma" and verdict.alpha > 0.9):
            continue
        rng = np.random.default_rng(1000 + i)
        m = random_model(2000 + i, int(rng.integers(1, 5)), int(rng.integers(1, 4)), float(rng.choice([0.3, 0.6, 0.8])))
        optimum, v_star = policy_iteration(m.finite_mdp())[:2]
        np.testing.assert_allclose(v_star, optimum_by_enumeration(m), rtol=0, atol=1e-10)
        q = 4 * rng.normal(size=np.shape(m.rewards))
        for _ in range(400):
            q = apply(tree, m, q)
        np.testing.assert_allclose(q.max(axis=1), v_star, rtol=0, atol=1e-8, err_msg=str(tree))
        assert (q <= optimum + 1e-8).all(), tree
        reached += 1
    assert 3 * reached >= len(sampled_indices)


def test_solve_takes_proved_operators_and_certifies_what_they_reach(drawn_operators, sampled_indices, verdicts):
    reached = Counter()
    for i in sampled_indices:
        tree, verdict = verdict_of(i, drawn_operators, verdicts)
        if not verdict.optimality_preserving or (verdict.alpha != "gamma" and verdict.alpha > 0.9):
            continue
        m = random_model(3000 + i, 4, 3, 0.8)
        solution = solve(m.finite_mdp(), as_operator(tree), engine="arrays")
        optimum, v_star = policy_iteration(m.finite_mdp())[:2]
        assert solution.converged
        np.testing.assert_allclose(solution.v, v_star, rtol=0, atol=2e-10)
        assert (solution.gaps >= v_star[:, None] - optimum - 1e-8).all(), tree
        q0 = np.random.default_rng(i).normal(size=(4, 3))
        cut = solve(m.finite_mdp(), as_operator(tree), engine="arrays", q0=q0, max_sweeps=4, throw=False)
        q = q0
        for _ in range(cut.sweeps - 1):
            q = apply(tree, m, q)
        difference = cut.q - q
        assert (np.ptp(difference) if verdict.commutes_with_constants else np.abs(difference).max()) <= 1e-11, tree
        reached[verdict.commutes_with_constants] += 1
    assert min(reached[True], reached[False]) >= 5
