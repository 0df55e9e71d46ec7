"""Learning from samples: environments that play models, tables learned with every operator, and fitted Q-iteration."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.tree import DecisionTreeRegressor

from actiongap.mdp.engines import backups
from actiongap.mdp.exact import evaluate_policy, policy_iteration, q_from_v
from actiongap.mdp.fitted import Transitions, collect, fitted_q_iteration
from actiongap.mdp.generators import cake, chain, garnet, gridworld, single_state
from actiongap.mdp.gym import FiniteEnv, from_gymnasium, rollout, sample_index
from actiongap.mdp.learning import expected_policy_evaluation, q_learning, rescaled, sarsa
from actiongap.mdp.model import FiniteMDP
from actiongap.mdp.solve import solve
from actiongap.operators import TheoryWarning, keeps_policy_values, parse
from actiongap.td import td_target
from helpers import loopy, mdps

FAMILY = ["bellman", "consistent", "al:0.5", "pal:0.5", "pal-dqn:0.5", "lazy:0.5"]
PROBLEMS = {"cake": cake(), "chain": chain(5), "gridworld": gridworld(3, gamma=0.9)}


class Endless(gymnasium.Env[Any, Any]):
    """One state that pays 1 a step; after three steps the episode ends, for the reason given. States and actions count from 7 and 3."""

    observation_space = spaces.Discrete(1, start=7)
    action_space = spaces.Discrete(2, start=3)

    def __init__(self, terminates: bool):
        self.terminates = terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 7, {}

    def step(self, action):
        assert action in (3, 4)
        self.steps += 1
        ended = self.steps == 3
        return 7, 1, ended and self.terminates, ended and not self.terminates, {}


# A model as an environment


@pytest.mark.parametrize("mdp", [cake(), garnet(30, 3, 4)], ids=lambda mdp: mdp.name)
@pytest.mark.parametrize("max_steps", [None, 2])
def test_gymnasium_accepts_the_environment(mdp, max_steps):
    check_env(FiniteEnv(mdp, max_steps=max_steps), skip_render_check=True)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_next_states_are_drawn_with_the_probabilities_of_the_model(form):
    mdp = garnet(5, 2, 4, seed=3)
    env = FiniteEnv(getattr(mdp, form)(), start=2)
    env.reset(seed=0)
    probabilities = mdp.dense().transitions.probabilities[2, 1]
    counts = np.zeros(5)
    for _ in range(4000):
        env.reset()
        x_next, reward, terminated, truncated, _ = env.step(1)
        counts[x_next] += 1
        assert (reward, terminated, truncated) == (mdp.rewards[2, 1], False, False)
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    assert stats.chisquare(counts[possible], 4000 * probabilities[possible]).pvalue > 1e-3


def test_starts_follow_their_distribution():
    wanted = np.array([0.0, 0.5, 0.0, 0.3, 0.2])
    for start, probabilities in ((None, np.full(5, 0.2)), (wanted, wanted), (3, np.eye(5)[3])):
        env = FiniteEnv(chain(5), start=start)
        env.reset(seed=1)
        counts = np.bincount([env.reset()[0] for _ in range(2000)], minlength=5)
        possible = probabilities > 0
        assert counts[~possible].sum() == 0
        assert possible.sum() == 1 or stats.chisquare(counts[possible], 2000 * probabilities[possible]).pvalue > 1e-3


def test_a_draw_never_lands_where_the_probability_is_zero():
    class Fixed(np.random.Generator):
        def __init__(self, value):
            super().__init__(np.random.PCG64(0))
            self.value = value

        def random(self, *args, **kwargs) -> Any:
            return self.value

    cumulative = np.array([0.0, 0.0, 0.3, 0.3, 1 - 2e-16, 1 - 2e-16])
    assert sample_index(cumulative, Fixed(0.0)) == 4
    assert sample_index(cumulative, Fixed(np.nextafter(1.0, 0.0))) == 2


def test_seeds_repeat_and_differ():
    def trace(seed):
        return [step.x_next for step in rollout(FiniteEnv(garnet(50, 2, 5)), lambda x: x % 2, steps=50, seed=seed)]

    assert trace(1) == trace(1) != trace(2)


def test_a_time_limit_truncates():
    env = FiniteEnv(cake(), start=0, max_steps=3)
    env.reset(seed=0)
    assert [env.step(1)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    env.reset()
    assert env.step(1)[3] is False


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FiniteEnv(cake(), start=2), "start is 2"),
        (lambda: FiniteEnv(cake(), start=np.array([0.5, 0.6])), "sum to one"),
        (lambda: FiniteEnv(cake(), start=np.array([1.5, -0.5])), r"start\[1\] is -0.5: probabilities must not be negative"),
        (lambda: FiniteEnv(cake(), start=np.ones(3) / 3), r"start has shape \(3,\): it must be \(2,\)"),
        (lambda: FiniteEnv(cake(), start=float("nan")), "start is nan"),  # pyright: ignore[reportArgumentType]
        (lambda: FiniteEnv(cake(), max_steps=0), "max_steps is 0"),
        (lambda: FiniteEnv(cake()).step(0), "call reset"),
        (lambda: next(rollout(FiniteEnv(cake()), lambda x: 2, steps=1, seed=0)), "action 2"),
        (lambda: next(rollout(FiniteEnv(cake()), lambda x: 0, steps=0, seed=0)), "steps is 0"),
        (lambda: from_gymnasium("NoSuchEnvironment-v0"), "NoSuchEnvironment-v0"),
        (lambda: from_gymnasium("FrozenLake-v1", is_slipery=False), "is_slipery"),
        (lambda: from_gymnasium(Endless(True), is_slippery=False), "is_slippery"),
        (lambda: from_gymnasium("CartPole-v1"), "P\\[x\\]\\[a\\]"),
    ],
)
def test_environments_refuse_in_a_sentence(make, said):
    with pytest.raises(ValueError, match=said):
        make()


# Q-learning


@pytest.mark.every(3)
@pytest.mark.parametrize("text", FAMILY)
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_operator_learns_an_optimal_policy_and_gaps_no_smaller_than_those_of_bellman(name, text):
    mdp = PROBLEMS[name]
    q_star, v_star, best = policy_iteration(mdp)
    gaps_star = v_star[:, None] - q_star
    learned = q_learning(mdp, text, steps=60_000, seed=0, exploration=1.0)
    assert (evaluate_policy(mdp, learned.policy) >= v_star - 0.01).all()
    np.testing.assert_allclose(learned.v, v_star, atol=0.12)
    assert (learned.gaps >= gaps_star - 0.12).all()
    unique = (gaps_star < 0.05).sum(axis=1) == 1
    assert unique.any()
    np.testing.assert_array_equal(learned.policy[unique], best[unique])


@pytest.mark.parametrize("text", ["bellman", "consistent", "al:0.5", "pal:0.5", "pal-dqn:0.5"])
def test_without_noise_and_with_full_steps_the_limit_is_the_one_of_exact_iteration(text):
    mdp = chain(5, slip=0.0)
    learned = q_learning(mdp, text, steps=20_000, seed=0, exploration=1.0, step_size=1.0)
    np.testing.assert_allclose(learned.q, solve(mdp, text).q, atol=1e-8)
    np.testing.assert_allclose(learned.gaps, learned.v[:, None] - learned.q)


def test_advantage_learning_widens_gaps_on_samples():
    mdp = cake(gamma=0.9, epsilon=0.5)
    narrow, wide = (q_learning(mdp, text, steps=40_000, seed=0, exploration=1.0).gaps[0, 0] for text in ("bellman", "al:0.5"))
    assert narrow == pytest.approx(0.5, abs=0.1)
    assert wide == pytest.approx(1.0, abs=0.2)


def test_the_same_seed_repeats_a_run_bit_for_bit_and_another_differs():
    first, again, other = (q_learning(garnet(10, 3, 3, gamma=0.9), "al:0.5", steps=2000, seed=seed) for seed in (0, 0, 1))
    assert first.q.tobytes() == again.q.tobytes()
    assert first.visits.tobytes() == again.visits.tobytes()
    assert (first.q != other.q).any()


def test_learning_that_is_continued_is_learning_left_alone_where_play_has_no_memory():
    # One state and one action: each step is like the last, but for how often the pair was visited.
    env = FiniteEnv(FiniteMDP.from_dense([[1.0]], [[[1.0]]], 0.9))
    whole, first = (q_learning(env, steps=steps, seed=0) for steps in (10, 4))
    continued = q_learning(env, steps=6, seed=0, q0=first.q, visits0=first.visits)
    assert continued.q.tobytes() == whole.q.tobytes()
    assert continued.visits.tolist() == [[10]]
    assert q_learning(env, steps=6, seed=0, q0=first.q).q != whole.q


def test_text_operators_and_functions_are_the_same():
    def halfway(b):
        return b.bellman - 0.5 * b.gap

    by_text, by_operator, by_function = (
        q_learning(chain(4), operator, steps=500, seed=0).q for operator in ("al:0.5", parse("al:0.5"), halfway)
    )
    assert by_text.tobytes() == by_operator.tobytes() == by_function.tobytes()


def test_what_is_counted():
    # At the right end, where being pays 1, going right looks better from the first step on.
    env, q0 = FiniteEnv(chain(3, slip=0.0), start=2, max_steps=4), np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    learned = q_learning(env, steps=10, seed=0, exploration=0.0, q0=q0)
    assert learned.visits.sum() == 10
    assert learned.visits[2, 1] == 10
    assert learned.episodes == 2
    assert learned.mean_return == 4.0
    assert np.isnan(q_learning(FiniteEnv(chain(3)), steps=10, seed=0).mean_return)


def test_the_first_visit_forgets_where_q_began():
    assert rescaled(0.99)(1) == 1.0
    learned = q_learning(FiniteEnv(chain(2, slip=0.0), start=0), steps=1, seed=0, exploration=0.0, q0=np.array([[0.0, 9.0], [5.0, 2.0]]))
    np.testing.assert_allclose(learned.q, [[0.0, 0.9 * 5.0], [5.0, 2.0]])


def test_constant_and_counted_step_sizes():
    env, q0 = FiniteEnv(FiniteMDP.from_dense([[1.0]], [[[1.0]]], 0.0)), np.zeros((1, 1))
    assert q_learning(env, steps=2, seed=0, step_size=0.5, q0=q0).q.item() == 0.75
    assert q_learning(env, steps=2, seed=0, step_size=lambda visits: 0.5 / visits, q0=q0).q.item() == 0.625


@pytest.mark.parametrize("text", ["bellman", "al:0.9", "pal-dqn:0.9"])
def test_frozen_lake_is_learned(text):
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    learned = q_learning(env, text, steps=20_000, seed=0, step_size=1.0, exploration=0.5, gamma=0.9)
    _, v_star, _ = policy_iteration(from_gymnasium("FrozenLake-v1", gamma=0.9, is_slippery=False))
    assert learned.v[0] == pytest.approx(v_star[0], abs=1e-9)
    x, _ = env.reset(seed=0)
    rewards = []
    for _ in range(6):
        x, reward, *_ = env.step(int(learned.policy[x]))
        rewards.append(reward)
    assert rewards == [0, 0, 0, 0, 0, 1]


def test_an_environment_by_its_id_is_learned():
    learned = q_learning("FrozenLake-v1", steps=60_000, seed=0, exploration=1.0, gamma=0.9)
    mdp = from_gymnasium("FrozenLake-v1", gamma=0.9)
    _, v_star, _ = policy_iteration(mdp)
    assert evaluate_policy(mdp, np.append(learned.policy, 0))[0] > 0.8 * v_star[0]


# How episodes end


@pytest.mark.parametrize("text", ["bellman", "consistent", "al:0.5", "pal-dqn:0.5"])
def test_a_time_limit_bootstraps_and_a_terminal_state_does_not(text):
    truncated = q_learning(Endless(terminates=False), text, steps=3000, seed=0, gamma=0.5, step_size=0.5, exploration=1.0)
    np.testing.assert_allclose(truncated.v, 1 / (1 - 0.5), atol=1e-9)
    terminated = q_learning(Endless(terminates=True), text, steps=3000, seed=0, gamma=0.5, exploration=1.0)
    # Every third step ends: V = 1 + 0.5 (2/3) V.
    np.testing.assert_allclose(terminated.v, 1.5, atol=0.05)


def test_after_a_time_limit_the_next_state_is_the_last_one_reached():
    # Episodes of one step from the middle of a chain to its right end, whose value 5 is never updated.
    env = FiniteEnv(chain(3, gamma=0.9, slip=0.0), start=1, max_steps=1)
    learned = q_learning(env, steps=50, seed=0, step_size=1.0, exploration=1.0, q0=np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 5.0]]))
    assert learned.q[1].tolist() == [0.0, 4.5]
    batch = collect(env, steps=50, seed=0)
    assert (batch.x == 1).all()
    assert set(batch.x_next.tolist()) == {0, 2}
    assert (batch.discount == 1).all()


# Who chooses the actions


@pytest.mark.parametrize("text", ["al:0.9", "pal:0.9", "rso:0,1"])
def test_all_operators_learn_from_the_data_of_bellman(text):
    mdp = garnet(10, 3, 3, gamma=0.9)
    plain = q_learning(mdp, steps=2000, seed=0)
    same, learned = (q_learning(mdp, operator, steps=2000, seed=0, behavior="bellman") for operator in ("bellman", text))
    for found in (same, learned):
        assert found.q_bellman is not None
        np.testing.assert_array_equal(found.q_bellman, plain.q)
        np.testing.assert_array_equal(found.visits, plain.visits)
    np.testing.assert_array_equal(same.q, plain.q)
    assert (learned.q != plain.q).any()
    assert (q_learning(mdp, text, steps=2000, seed=0).visits != plain.visits).any()


def test_learning_from_the_data_of_bellman_is_continued():
    env = FiniteEnv(FiniteMDP.from_dense([[1.0, 0.0]], [[[1.0], [1.0]]], 0.9))
    first = q_learning(env, "al:0.5", steps=50, seed=0, behavior="bellman")
    more = q_learning(env, "al:0.5", steps=50, seed=1, behavior="bellman", q0=first.q, visits0=first.visits, q0_bellman=first.q_bellman)
    plain = q_learning(env, steps=50, seed=0)
    again = q_learning(env, steps=50, seed=1, q0=plain.q, visits0=plain.visits)
    assert more.q_bellman is not None
    np.testing.assert_array_equal(more.q_bellman, again.q)


def test_uniform_behavior_tries_all_actions_equally_often():
    visits = q_learning(single_state((0.0, 1.0, 0.5)), "al:0.9", steps=6000, seed=0, behavior="uniform").visits[0]
    assert stats.chisquare(visits).pvalue > 1e-3


def test_a_function_may_choose_the_actions():
    seen = []

    def second(x, row, rng):
        seen.append((x, row.tolist(), type(rng)))
        with pytest.raises(ValueError, match="read-only"):
            row[0] = 1.0
        return np.int64(1)

    learned = q_learning(cake(), "al:0.5", steps=20, seed=0, behavior=second)
    assert learned.visits[:, 0].sum() == 0
    assert len(seen) >= 20
    assert {x for x, *_ in seen} <= {0, 1}
    assert all(kind is np.random.Generator for *_, kind in seen)


def test_changes_of_greedy_actions_are_counted():
    rows = []

    def watch(x, row, rng):
        rows.append(row.copy())
        return int(rng.random() * 3)

    # With one state, each row is Q before an update, and the next row is Q after it.
    learned = q_learning(single_state((0.0, 0.1, 0.2)), "al:0.5", steps=200, seed=0, behavior=watch, step_size=0.5)
    greedy = [int(row.argmax()) for row in (*rows[:200], learned.q[0])]
    assert learned.switches == sum(a != b for a, b in itertools.pairwise(greedy)) > 0


# SARSA and policy evaluation


OTHERS = ["consistent", "pal:0.5", "pal-dqn:0.5", "lazy:0.5", "clipped-al:0.5,0.5"]
"""Operators that would change the value of a fixed policy."""


def iterate_by_hand(mdp, policy_of, change, sweeps):
    """Exact iteration in loops, of Q(x, a) <- change(bellman, v - q, gamma P(x | x, a)), independent of backups and operators."""
    table = mdp.dense().transitions.probabilities
    q = np.zeros((mdp.states, mdp.actions))
    for _ in range(sweeps):
        pi, new = policy_of(q), np.empty_like(q)
        v = [sum(pi[x, b] * q[x, b] for b in range(mdp.actions)) for x in range(mdp.states)]
        for x, a in np.ndindex(q.shape):
            bellman = mdp.rewards[x, a] + mdp.gamma * sum(table[x, a, y] * v[y] for y in range(mdp.states))
            new[x, a] = change(bellman, v[x] - q[x, a], mdp.gamma * table[x, a, x])
        q = new
    return q


def epsilon_greedy(epsilon):
    def policy(q):
        return epsilon / q.shape[1] + (1 - epsilon) * np.eye(q.shape[1])[q.argmax(axis=1)]

    return policy


def iterate_for_policy(mdp, text, policy_of, sweeps=600, q=None):
    """The exact operator with V(x) = sum_b pi(b | x) Q(x, b), iterated; the policy may depend on Q."""
    q = np.zeros((mdp.states, mdp.actions)) if q is None else q
    for _ in range(sweeps):
        q = parse(text)(backups(mdp, q, v=(policy_of(q) * q).sum(axis=1)))
    return q


def random_policy(mdp, seed):
    return np.random.default_rng(seed).dirichlet(np.full(mdp.actions, 0.5), mdp.states)


@given(mdp=mdps(), seed=st.integers(0, 10**6), alpha=st.sampled_from([0.0, 0.5, 0.9]))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_advantage_learning_keeps_the_value_of_a_policy_and_divides_advantages(mdp, seed, alpha):
    policy = random_policy(mdp, seed)
    v = evaluate_policy(mdp, policy)
    q = iterate_for_policy(mdp, f"al:{alpha}", lambda q: policy)
    np.testing.assert_allclose(q, v[:, None] + (q_from_v(mdp, v) - v[:, None]) / (1 - alpha), atol=1e-7)


@pytest.mark.parametrize("text", ["bellman", "al:0.5", "rso:0,1", "sal:0.3,0.8"])
def test_operators_that_keep_the_value_of_every_policy_are_known(text):
    assert keeps_policy_values(parse(text))


@pytest.mark.parametrize("text", OTHERS)
def test_other_operators_change_the_value_of_some_policy(text):
    assert not keeps_policy_values(parse(text))
    mdp = garnet(6, 3, 3, gamma=0.8, seed=2) if text != "consistent" else cake(0.9, 0.5)
    policy = np.full((mdp.states, mdp.actions), 1 / mdp.actions)
    start = np.random.default_rng(0).normal(0, 3, policy.shape)
    moved = (policy * iterate_for_policy(mdp, text, lambda q: policy, q=start)).sum(axis=1)
    assert np.abs(moved - evaluate_policy(mdp, policy)).max() > 0.05


@pytest.mark.parametrize("epsilon", [0.1, 0.3])
@pytest.mark.parametrize("alpha", [0.5, 0.9])
def test_sarsa_with_advantage_learning_has_the_greedy_actions_of_bellman(alpha, epsilon):
    for seed in range(25):
        mdp, policy = loopy(5, 3, seed, gamma=0.8), epsilon_greedy(epsilon)
        plain, wide = (iterate_for_policy(mdp, text, policy, sweeps=400) for text in ("bellman", f"al:{alpha}"))
        np.testing.assert_array_equal(wide.argmax(axis=1), plain.argmax(axis=1))
        v, v_wide = ((policy(q) * q).sum(axis=1) for q in (plain, wide))
        np.testing.assert_allclose(v_wide, v, atol=1e-6)
        np.testing.assert_allclose(wide - v[:, None], (plain - v[:, None]) / (1 - alpha), atol=1e-5)


def test_exact_iteration_by_hand_is_exact_iteration_with_backups():
    mdp = loopy(4, 3, seed=1, gamma=0.7)
    policy = random_policy(mdp, 0)
    for text, change in {
        "al:0.5": lambda bellman, gap, stay: bellman - 0.5 * gap,
        "consistent": lambda bellman, gap, stay: min(bellman, bellman - stay * gap),
    }.items():
        by_hand = iterate_by_hand(mdp, lambda q: policy, change, 60)
        np.testing.assert_allclose(iterate_for_policy(mdp, text, lambda q: policy, 60), by_hand, atol=1e-12)


@pytest.mark.parametrize("expected", [False, True])
@pytest.mark.parametrize("text", ["bellman", "al:0.5"])
def test_sarsa_finds_the_fixed_point_of_the_epsilon_greedy_policy(text, expected):
    mdp, epsilon, alpha = chain(4, slip=0.3), 0.3, 0.5 * (text == "al:0.5")
    exact = iterate_by_hand(mdp, epsilon_greedy(epsilon), lambda bellman, gap, stay: bellman - alpha * gap, 400)
    learned = sarsa(mdp, text, steps=100_000, seed=0, exploration=epsilon, expected=expected)
    np.testing.assert_allclose(learned.q[:3], exact[:3], atol=0.25)
    np.testing.assert_array_equal(learned.policy[:3], 1)
    pi = epsilon_greedy(epsilon)(learned.q)
    np.testing.assert_allclose(learned.v, (pi * learned.q).sum(axis=1))
    np.testing.assert_allclose(learned.v, evaluate_policy(mdp, pi), atol=0.15)
    assert learned.q_bellman is None


def test_expected_sarsa_of_a_deterministic_model_has_no_noise():
    mdp = chain(4, slip=0.0)
    exact = iterate_by_hand(mdp, epsilon_greedy(0.3), lambda bellman, gap, stay: bellman - 0.5 * gap, 400)
    options = {"steps": 40_000, "seed": 0, "exploration": 0.3, "step_size": 0.1}
    np.testing.assert_allclose(sarsa(mdp, "al:0.5", expected=True, **options).q, exact, atol=1e-4)
    assert np.abs(sarsa(mdp, "al:0.5", **options).q - exact).max() > 0.05


@pytest.mark.parametrize("text", ["consistent", "pal:0.5", "lazy:0.5"])
def test_sarsa_learns_the_values_of_other_operators_in_a_table_of_their_own(text):
    mdp = chain(4, slip=0.3)
    plain, learned = (sarsa(mdp, operator, steps=50_000, seed=0, exploration=0.3) for operator in ("bellman", text))
    np.testing.assert_array_equal(learned.q_bellman, plain.q)
    np.testing.assert_array_equal(learned.v, plain.v)
    np.testing.assert_array_equal(learned.policy, plain.policy)
    assert (learned.gaps > 1.1 * plain.gaps).any()


def test_sarsa_keeps_the_operator_meaningful():
    mdp = chain(4, slip=0.3)
    gaps = {text: sarsa(mdp, text, steps=50_000, seed=0, exploration=0.3).gaps[:3, 0] for text in ("bellman", "al:0.5")}
    assert (gaps["al:0.5"] > 1.3 * gaps["bellman"]).all()


def test_policy_evaluation_converges_to_the_value_of_the_policy():
    mdp = garnet(6, 3, 3, gamma=0.8, seed=2)
    policy = np.random.default_rng(0).dirichlet(np.ones(3), 6)
    v = evaluate_policy(mdp, policy)
    advantages = q_from_v(mdp, v) - v[:, None]
    for exploration in (0.3, 1.0):
        for text, alpha in (("bellman", 0.0), ("al:0.5", 0.5)):
            learned = expected_policy_evaluation(mdp, policy, text, steps=40_000, seed=0, exploration=exploration)
            np.testing.assert_allclose(learned.v, v, atol=0.15)
            np.testing.assert_allclose(learned.q, v[:, None] + advantages / (1 - alpha), atol=0.25 / (1 - alpha))


@pytest.mark.parametrize("text", ["al:0.5", "sal:0.3,0.8"])
def test_policy_evaluation_of_a_deterministic_model_is_exact(text):
    mdp, policy = chain(5, slip=0.0), np.tile([0.3, 0.7], (5, 1))
    v = evaluate_policy(mdp, policy)
    learned = expected_policy_evaluation(mdp, policy, text, steps=40_000, seed=0, exploration=1.0, step_size=0.5)
    stretch = {"al:0.5": 2.0, "sal:0.3,0.8": 0.8 / (0.8 - 0.3)}[text]
    np.testing.assert_allclose(learned.q, v[:, None] + stretch * (q_from_v(mdp, v) - v[:, None]), atol=1e-8)
    np.testing.assert_allclose(learned.v, v, atol=1e-8)
    np.testing.assert_allclose(learned.gaps, learned.v[:, None] - learned.q)


@pytest.mark.parametrize("text", OTHERS)
def test_with_values_in_a_table_of_their_own_no_advantage_changes_its_sign(text):
    mdp, policy = chain(5, slip=0.0), np.tile([0.3, 0.7], (5, 1))
    v = evaluate_policy(mdp, policy)
    advantages = q_from_v(mdp, v) - v[:, None]
    learned = expected_policy_evaluation(mdp, policy, text, steps=40_000, seed=0, exploration=1.0, step_size=0.5)
    assert learned.q_bellman is not None
    np.testing.assert_allclose(learned.v, v, atol=1e-8)
    np.testing.assert_allclose(learned.q_bellman, v[:, None] + advantages, atol=1e-8)
    np.testing.assert_array_equal(np.sign(-learned.gaps), np.sign(advantages))
    worse = advantages < 0
    assert (learned.gaps[worse] >= -advantages[worse] - 1e-8).all()
    assert (learned.gaps[worse] > -advantages[worse] + 1e-3).any()
    if text == "consistent":
        stay = mdp.transitions.stay(np.arange(mdp.states))
        np.testing.assert_allclose(learned.q, v[:, None] + advantages / (1 - mdp.gamma * stay), atol=1e-8)
    else:
        np.testing.assert_allclose(learned.q[~worse], (v[:, None] + advantages)[~worse], atol=1e-8)


@given(mdp=mdps(), seed=st.integers(0, 10**6), text=st.sampled_from(OTHERS))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_operators_of_the_theorem_keep_the_signs_of_advantages_around_fixed_values(mdp, seed, text):
    v = evaluate_policy(mdp, random_policy(mdp, seed))
    advantages = q_from_v(mdp, v) - v[:, None]
    q = np.random.default_rng(seed).normal(0, 3, advantages.shape)
    for _ in range(600):
        b = backups(mdp, q, v=v)
        gap, next_gap = np.maximum(b.gap, 0.0), np.maximum(b.next_gap, 0.0)
        again, repeat = np.minimum(b.bellman, b.again), b.bellman - mdp.gamma * next_gap
        q = parse(text)(b._replace(gap=gap, next_gap=next_gap, again=again, repeat=repeat))
    better = advantages >= 0
    np.testing.assert_allclose((q - v[:, None])[better], advantages[better], atol=1e-6)
    assert (q - v[:, None] <= advantages + 1e-6).all()


def test_without_a_table_for_v_operators_that_change_it_warn():
    policy = np.full((2, 2), 0.5)
    with pytest.warns(TheoryWarning, match="consistent changes the value of a fixed policy: leave out separate_values"):
        learned = expected_policy_evaluation(cake(), policy, "consistent", steps=20_000, seed=0, exploration=1.0, separate_values=False)
    assert learned.q_bellman is None
    with pytest.warns(TheoryWarning, match="pal:0.5 changes the value"):
        sarsa(cake(), "pal:0.5", steps=10, seed=0, separate_values=False)
    sarsa(cake(), "al:0.5", steps=10, seed=0, separate_values=False)


def test_unequal_frequencies_and_constant_steps_can_diverge():
    """The mean update is linear; an eigenvalue above 1 in size means divergence."""
    states, alpha, gamma = 10, 0.99, 0.99
    pi = np.array([0.25, 0.75])
    pairs = [(x, a) for x in range(states) for a in range(2)]

    def radius(steps):
        matrix = np.zeros((2 * states, 2 * states))
        for k, (x, a) in enumerate(pairs):
            y = (x + (-1, 1)[a]) % states
            for b in range(2):
                matrix[k, 2 * y + b] += gamma * pi[b]
                matrix[k, 2 * x + b] -= alpha * pi[b]
            matrix[k, k] += alpha
        sizes = np.array([steps[a] for _, a in pairs])[:, None]
        return np.abs(np.linalg.eigvals(np.eye(2 * states) + sizes * (matrix - np.eye(2 * states)))).max()

    assert radius((1.0, 0.003)) > 1.00001
    assert radius((0.5, 0.5)) < 1


def test_learning_with_two_tables_is_continued():
    mdp, policy = garnet(6, 3, 3, gamma=0.8, seed=2), np.full((6, 3), 1 / 3)
    first = expected_policy_evaluation(mdp, policy, "consistent", steps=30_000, seed=0, exploration=1.0)
    more = expected_policy_evaluation(
        mdp, policy, "consistent", steps=1, seed=1, q0=first.q, visits0=first.visits, q0_bellman=first.q_bellman
    )
    assert (more.q_bellman != first.q_bellman).sum() <= 1
    np.testing.assert_allclose(more.v, evaluate_policy(mdp, policy), atol=0.2)


@pytest.mark.parametrize("text", FAMILY)
def test_the_value_of_a_deterministic_policy_is_exact(text):
    mdp = chain(5, slip=0.0)
    left = np.zeros(5, dtype=int)
    v = evaluate_policy(mdp, left)
    learned = expected_policy_evaluation(mdp, left, text, steps=20_000, seed=0, exploration=0.5, step_size=0.5)
    np.testing.assert_allclose(learned.v, v, atol=1e-8)
    better = q_from_v(mdp, v) > v[:, None]
    assert better.any()
    assert (learned.gaps[better] < 0).all()


def test_actions_and_their_probabilities_are_the_same_policy():
    left = np.zeros(5, dtype=int)
    by_action, by_probability = (
        expected_policy_evaluation(chain(5), policy, "al:0.5", steps=500, seed=0).q for policy in (left, np.eye(2)[left])
    )
    assert by_action.tobytes() == by_probability.tobytes()


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (lambda: q_learning("FrozenLake-v1", steps=1, seed=0), "pass gamma"),
        (lambda: q_learning("FrozenLake-v1", steps=1, seed=0, gamma=1.0), "gamma is 1.0"),
        (lambda: q_learning(cake(), steps=1, seed=0, gamma=0.5), "with_discount"),
        (lambda: q_learning(cake(), "nothing", steps=1, seed=0), "unknown operator"),
        (lambda: q_learning(cake(), steps=0, seed=0), "steps is 0"),
        (lambda: q_learning(cake(), steps="many", seed=0), "steps is 'many': it must be a whole number"),  # pyright: ignore[reportArgumentType]
        (lambda: q_learning(cake(), steps=1, seed=0, step_size="x"), "step_size is 'x'"),  # pyright: ignore[reportArgumentType]
        (lambda: q_learning(cake(), steps=1, seed=0, exploration="x"), "exploration is 'x'"),  # pyright: ignore[reportArgumentType]
        (lambda: collect(cake(), steps="many", seed=0), "steps is 'many': it must be a whole number"),  # pyright: ignore[reportArgumentType]
        (lambda: q_learning("cake", steps=1, seed=0), r"if it is the name of an MDP, pass load_mdp\('cake'\)"),
        (lambda: q_learning("FrozenLke-v1", steps=1, seed=0), "did you mean gym/FrozenLake-v1"),
        (lambda: q_learning("gym/FrozenLake-v1", steps=1, seed=0), "FrozenLake-v1 has no discount: pass gamma"),
        (lambda: q_learning(cake(), steps=1, seed=0, step_size=0.0), "step_size is 0.0"),
        (lambda: q_learning(cake(), steps=1, seed=0, exploration=1.5), "exploration is 1.5"),
        (lambda: sarsa(cake(), steps=1, seed=0, exploration=float("nan")), "exploration is nan"),
        (lambda: q_learning(cake(), steps=1, seed=0, behavior="bellmann"), "unknown behavior 'bellmann': did you mean bellman"),  # pyright: ignore[reportArgumentType]
        (lambda: q_learning(cake(), steps=1, seed=0, behavior=3), "unknown behavior 3: choose from own, bellman, uniform"),  # pyright: ignore[reportArgumentType]
        (lambda: q_learning(cake(), steps=1, seed=0, behavior=lambda x, row, rng: 2), "behavior returned 2 in state"),
        (lambda: q_learning(cake(), steps=1, seed=0, behavior="bellman", q0_bellman=np.zeros(3)), "q0_bellman has shape"),
        (lambda: q_learning(cake(), steps=1, seed=0, q0=np.zeros((2, 3))), "q0 has shape"),
        (lambda: q_learning(cake(), steps=1, seed=0, q0=np.full((2, 2), np.nan)), r"q0\[0, 0\] is nan: q0 must be finite"),
        (lambda: q_learning(cake(), steps=1, seed=0, visits0=np.zeros((2, 3))), "visits0 has shape"),
        (lambda: q_learning(cake(), steps=1, seed=0, visits0=np.full((2, 2), -1)), r"visits0\[0, 0\] is -1.0: visits must be whole"),
        (lambda: sarsa(cake(), steps=1, seed=0, visits0=np.full((2, 2), 0.5)), r"visits0\[0, 0\] is 0.5: visits must be whole"),
        (lambda: q_learning(cake(), steps=1, seed=-3), "seed is -3: it must be a whole number"),
        (lambda: collect(cake(), steps=1, seed=-3), "seed is -3: it must be a whole number"),
        (lambda: q_learning("CartPole-v1", steps=1, seed=0, gamma=0.9), "fit a regressor"),
        (lambda: q_learning("Pendulum-v1", steps=1, seed=0, gamma=0.9), "not Discrete"),
        (lambda: q_learning("NoSuchEnvironment-v0", steps=1, seed=0, gamma=0.9), "NoSuchEnvironment-v0"),
        (lambda: q_learning(single_state(), "baird:0.01", steps=10_000, seed=0, step_size=1.0), "baird:0.01 diverges"),
        (lambda: q_learning(cake().rewards, steps=1, seed=0, gamma=0.9), "is not an environment"),  # pyright: ignore[reportArgumentType]
        (lambda: expected_policy_evaluation(cake(), np.full((2, 2), 0.4), steps=1, seed=0), "sum to one"),
        (
            lambda: expected_policy_evaluation(cake(), np.array([0, 2]), steps=1, seed=0),
            "policy must be actions",
        ),
        (lambda: expected_policy_evaluation(cake(), np.full((3, 2), 0.5), steps=1, seed=0), "policy has shape"),
        (lambda: collect("Pendulum-v1", steps=1, seed=0), "discrete actions"),
    ],
)
def test_learning_refuses_in_a_sentence(run, said):
    with pytest.raises(ValueError, match=said):
        run()


def test_ids_are_taken_with_and_without_gym():
    known = {"steps": 50, "seed": 0, "gamma": 0.9}
    np.testing.assert_array_equal(q_learning("gym/FrozenLake-v1", **known).q, q_learning("FrozenLake-v1", **known).q)
    assert from_gymnasium("gym/FrozenLake-v1").name == from_gymnasium("FrozenLake-v1").name == "gym/FrozenLake-v1"


@pytest.mark.parametrize("action", [0.5, 1.0, 2, -1, None, float("nan")])
def test_models_refuse_other_actions(action):
    env = FiniteEnv(cake())
    env.reset(seed=0)
    with pytest.raises(ValueError, match=f"action {action!r} is not an action of this environment: choose from 0 to 1"):
        env.step(action)


# Fitted Q-iteration


class Table:
    """A regressor that remembers the mean of the targets of each row."""

    def fit(self, X, y):  # noqa: N803
        self.means = {row: y[(row == X).all(axis=1)].mean() for row in map(tuple, X.tolist())}

    def predict(self, X):  # noqa: N803
        return np.array([self.means[tuple(row)] for row in X.tolist()])


def every_pair(mdp, copies=1):
    """A batch with each pair `copies` times, its next states in proportion to their probabilities."""
    rows = []
    for x, a in np.ndindex(mdp.states, mdp.actions):
        counts = np.round(copies * mdp.dense().transitions.probabilities[x, a]).astype(int)
        rows += [(x, a, mdp.rewards[x, a], 1, x_next) for x_next in np.repeat(np.arange(mdp.states), counts)]
    assert len(rows) == copies * mdp.states * mdp.actions
    return Transitions(*(np.array(column) for column in zip(*rows, strict=True)))


def iterate(mdp, text, sweeps):
    q = np.zeros((mdp.states, mdp.actions))
    for _ in range(sweeps):
        q = parse(text)(backups(mdp, q))
    return q


@pytest.mark.parametrize("text", FAMILY)
@pytest.mark.parametrize("regressor", [DecisionTreeRegressor(random_state=0), Table], ids=["tree", "table"])
def test_a_batch_of_every_pair_reproduces_deterministic_value_iteration(text, regressor):
    mdp = chain(5, slip=0.0)
    fitted = fitted_q_iteration(every_pair(mdp), text, regressor, gamma=0.9, iterations=12, actions=2)
    np.testing.assert_allclose(fitted.q(np.arange(5)), iterate(mdp, text, 12), atol=1e-12)
    np.testing.assert_array_equal(fitted.policy(np.arange(5)), iterate(mdp, text, 12).argmax(axis=1))


@pytest.mark.parametrize("text", ["bellman", "consistent", "al:0.5"])
def test_a_batch_in_proportion_reproduces_stochastic_value_iteration(text):
    mdp = chain(5, slip=0.25)
    fitted = fitted_q_iteration(every_pair(mdp, copies=4), text, Table, gamma=0.9, iterations=12, actions=2)
    np.testing.assert_allclose(fitted.q(np.arange(5)), iterate(mdp, text, 12), atol=1e-12)


def test_a_terminal_transition_is_worth_its_reward_alone():
    # Two dimensions; from (0, 0), action 0 stays and pays 0, action 1 ends and pays 1. Both lead to the same observation.
    same = np.zeros((2, 2))
    batch = Transitions(same, a=np.array([0, 1]), r=np.array([0.0, 1.0]), discount=np.array([1, 0]), x_next=same)
    fitted = fitted_q_iteration(batch, "bellman", Table, gamma=0.5, iterations=40, actions=2)
    np.testing.assert_allclose(fitted.q(np.zeros((1, 2))), [[0.5, 1.0]], atol=1e-9)
    consistent = fitted_q_iteration(batch, "consistent", Table, gamma=0.5, iterations=40, actions=2)
    np.testing.assert_allclose(consistent.q(np.zeros((1, 2))), [[0.0, 1.0]], atol=1e-9)


def test_one_iteration_is_one_target():
    batch = collect(chain(4), steps=40, seed=0)
    fitted = fitted_q_iteration(batch, "al:0.5", Table, gamma=0.9, iterations=1, actions=2)
    zeros = np.zeros((40, 2))
    targets = td_target(parse("al:0.5"), zeros, batch.a, batch.r, 0.9, zeros)
    np.testing.assert_allclose(fitted.q(batch.x)[np.arange(40), batch.a], targets)


def test_fitting_that_is_continued_is_fitting_left_alone():
    batch = collect(chain(4), steps=60, seed=0)
    whole, first = (fitted_q_iteration(batch, "al:0.5", Table, gamma=0.9, iterations=n, actions=2) for n in (9, 4))
    continued = fitted_q_iteration(batch, "al:0.5", Table, gamma=0.9, iterations=5, actions=2, q0=first.q)
    assert continued.q(np.arange(4)).tobytes() == whole.q(np.arange(4)).tobytes()
    assert (first.q(np.arange(4)) != whole.q(np.arange(4))).any()


@pytest.mark.parametrize("environment", ["CartPole-v1", "MountainCar-v0"])
def test_trees_fit_a_batch_of_classic_control(environment):
    batch = collect(environment, steps=300, seed=0)
    again = collect(environment, steps=300, seed=0)
    assert batch.x.tobytes() == again.x.tobytes()
    actions = int(batch.a.max()) + 1
    trees = ExtraTreesRegressor(n_estimators=5, min_samples_leaf=3, random_state=0)
    fitted = fitted_q_iteration(batch, "al:0.5", trees, gamma=0.9, iterations=5, actions=actions)
    q = fitted.q(batch.x)
    assert q.shape == (300, actions)
    assert np.isfinite(q).all()
    if environment == "CartPole-v1":
        assert 0 < (batch.discount == 0).sum() < 30
        assert fitted.q(batch.x).max() > 3.0


GOOD = {"x": np.arange(4), "a": np.array([0, 1, 0, 1]), "r": np.zeros(4), "discount": np.ones(4), "x_next": np.arange(4)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"r": np.array([0.0, np.nan, 0.0, 0.0])}, r"r\[1\] is not finite"),
        ({"x": np.array([0.0, 1.0, np.inf, 3.0])}, r"x\[2\] is not finite"),
        ({"r": np.zeros(3)}, r"r has shape \(3,\)"),
        ({"a": np.zeros(5, dtype=int)}, r"a has shape \(5,\)"),
        ({"discount": np.ones((4, 1))}, "discount has shape"),
        ({"x_next": np.arange(3)}, r"x_next \(3,\)"),
        ({"x": np.zeros((4, 2, 2)), "x_next": np.zeros((4, 2, 2))}, "x has shape"),
        ({"a": np.array([0, -1, 0, 1])}, "number the actions from 0"),
        ({"a": np.array([0, 0.5, 0, 1])}, "number the actions from 0"),
        ({"discount": np.full(4, 0.99)}, "other than 0 and 1"),
        ({"x": np.array(["a", "b", "c", "d"])}, "convert it to numbers"),
        ({name: values[:0] for name, values in GOOD.items()}, "one entry per transition"),
    ],
)
def test_batches_refuse_in_a_sentence(change, said):
    with pytest.raises(ValueError, match=said):
        Transitions(**(GOOD | change))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"actions": 1}, "contains action 1"),
        ({"actions": 3}, "no transition of the batch has action 2"),
        ({"iterations": 0}, "iterations is 0"),
        ({"gamma": 1.0}, "gamma is 1.0"),
    ],
)
def test_fitting_refuses_in_a_sentence(change, said):
    with pytest.raises(ValueError, match=said):
        fitted_q_iteration(Transitions(**GOOD), "bellman", Table, **({"gamma": 0.9, "iterations": 1, "actions": 2} | change))
