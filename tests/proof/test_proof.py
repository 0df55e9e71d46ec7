import random
from dataclasses import asdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actiongap import Backup, FiniteMDP, Operator, maximum, minimum, parse, policy_iteration, where
from actiongap.mdp.engines import make_engine
from actiongap.mdp.witness import _fixed_points, prove
from actiongap.proof import commutes
from actiongap.proof.symbols import Symbol, UndecidedError, rational, symbol
from helpers import AT_ONE, FAMILY, apply

LEAST_ALPHA = {
    "bellman": 0.0,
    "consistent": "gamma",
    "al:0.5": 0.5,
    "al:0.9": 0.9,
    "pal:0.5": 0.5,
    "pal:0.9": 0.9,
    "pal-dqn:0.5": 0.5,
    "pal-dqn:0.9": 0.9,
    "lazy:0.5": 0.5,
}


@pytest.mark.parametrize("text", FAMILY)
def test_the_paper_is_proved(text):
    verdict = prove(text)
    assert (verdict.condition_1, verdict.condition_2) == (True, True)
    assert (verdict.optimality_preserving, verdict.gap_increasing) == (True, True)
    assert verdict.alpha == LEAST_ALPHA[text]
    assert (verdict.counterexample, verdict.witness, verdict.exit_code) == (None, None, 0)
    assert "docs/theory.md" not in verdict.summary


@pytest.mark.parametrize("text", AT_ONE)
def test_alpha_one_rests_on_the_extension_and_says_so(text):
    verdict = prove(text)
    assert (verdict.alpha, verdict.optimality_preserving, verdict.exit_code) == (1.0, True, 0)
    assert "extension" in verdict.summary


@pytest.mark.parametrize("text", [*FAMILY, *AT_ONE, "baird:0.5", "baird:1", "baird:2"])
def test_what_operators_say_of_themselves_is_proved(text):
    operator = parse(text)
    assert operator.commutes_with_constants is commutes(operator)


@given(alpha=st.fractions(0, 1, max_denominator=1000), name=st.sampled_from(("al", "pal", "pal-dqn", "lazy")))
@settings(derandomize=True, deadline=None, max_examples=25)
def test_the_least_alpha_is_the_operators_own(alpha, name):
    assert prove(f"{name}:{float(alpha)!r}").alpha == pytest.approx(float(alpha), abs=1e-9)


def test_a_fixed_discount_gives_a_number():
    assert prove("consistent", gamma=0.9).alpha == 0.9
    assert prove("consistent", gamma=0.0).alpha == 0.0
    assert prove("al:0.5", gamma=0.9).alpha == 0.5


REFUTED = {
    "T' of Q-value interpolation": (lambda b: b.again, (False, True), (None, None)),
    "the remark's first": (lambda b: b.bellman + 1.0, (False, True), (False, None)),
    "the remark's second": (lambda b: b.bellman - 1.5 * b.gap, (True, False), (False, False)),
    "a mixture called persistent Q-learning": (lambda b: 0.5 * b.bellman + 0.5 * b.repeat, (True, False), (False, False)),
    "Baird's, small K": (parse("baird:0.1"), (False, False), (False, None)),
    "Baird's, large K": (parse("baird:2"), (False, False), (None, False)),
    "narrower gaps": (lambda b: b.bellman + 0.5 * b.gap, (False, True), (None, False)),
    "doubled and reflected": (lambda b: b.bellman + 2.0 * b.gap, (False, True), (False, False)),
    "the next gap instead of this one": (lambda b: b.bellman - 0.5 * b.next_gap, (True, False), (False, False)),
    "a constant": (lambda b: 0.0, (False, False), (False, False)),
    "a step where there is no gap": (
        lambda b: where(b.gap > 0, b.bellman - 0.9 * b.gap, b.bellman - 0.01),
        (True, False),
        (False, None),
    ),
    "averaged with a slip": (lambda b: 0.89 * b.q + 0.1 * b.bellman, (False, False), (False, False)),
    "averaged with too long a step": (lambda b: 2.5 * b.bellman - 1.5 * b.q, (False, False), (False, None)),
    "a rare slip": (lambda b: where(b.gap > 1000.0, b.bellman + 1e-6, b.bellman), (False, True), (None, None)),
}


@pytest.mark.every(3)
@pytest.mark.parametrize("name", REFUTED)
def test_violations_are_found_and_witnesses_only_where_there_are_any(name):
    apply_to, conditions, claims = REFUTED[name]
    operator = apply_to if isinstance(apply_to, Operator) else Operator(name, apply_to)
    verdict = prove(operator)
    assert (verdict.condition_1, verdict.condition_2) == conditions
    assert (verdict.optimality_preserving, verdict.gap_increasing) == claims
    assert verdict.exit_code == 1
    check_counterexample(operator, verdict.counterexample)
    for claim, witness in (verdict.witness or {}).items():
        check_witness(operator, claim, witness)


def check_counterexample(operator, example):
    """The numbers are those of a backup, and break the condition that they are said to break."""
    b = Backup(**{name: example[name] for name in Backup._fields})
    small = 1e-9
    assert 0 <= b.gamma < 1
    assert b.gap == pytest.approx(b.v - b.q)
    assert b.gap >= 0
    assert b.next_gap >= 0
    assert b.repeat == pytest.approx(b.bellman - b.gamma * b.next_gap)
    assert b.again >= b.bellman - b.gamma * b.gap - small
    assert b.again >= b.repeat - small
    value = operator(b)
    assert value == pytest.approx(example["value"])
    assert value > b.bellman if example["condition"] == 1 else value < b.bellman - b.gap
    assert "\n" not in example["sentence"]


def check_witness(operator, claim, witness):
    """On the MDP it describes, from the Q it names, the operator goes wrong."""
    successors = np.array(witness["successors"])[..., None]
    mdp = FiniteMDP.from_successors(witness["rewards"], successors, np.ones(successors.shape), witness["gamma"])
    q_star, v_star, _ = policy_iteration(mdp)
    np.testing.assert_allclose(witness["v_star"], v_star, atol=1e-9)
    q = np.array(witness["q0"])
    if witness["kind"] == "divergence":
        engine = make_engine(mdp, operator, "arrays")
        now = engine.start(q)
        for _ in range(1000):
            now, _ = engine.sweep(now)
            if np.abs(now.v).max() > 1e12:
                return
        pytest.fail("the iterates stay bounded")
    np.testing.assert_allclose(apply(operator, mdp, q), q, atol=1e-9)
    v = q.max(axis=1)
    if claim == "gap_increasing":
        assert ((v[:, None] - q) < (v_star[:, None] - q_star) - 0.05).any()
    else:
        fooled = (q_star < v_star[:, None] - 0.05) & (q >= v_star[:, None] - 1e-9)
        assert np.abs(v - v_star).max() > 0.05 or fooled.any()


def test_q_value_interpolation_is_named_where_it_alone_fails():
    verdict = prove(lambda b: b.again)
    assert "Q-value interpolation" in verdict.summary
    assert verdict.counterexample is not None
    assert verdict.counterexample["again"] > verdict.counterexample["bellman"]


def test_an_operator_that_fails_for_some_discounts_only():
    def half(b):
        return b.bellman - 2.0 * b.gamma * b.gap

    everywhere = prove(half)
    assert (everywhere.condition_2, everywhere.optimality_preserving, everywhere.exit_code) == (False, False, 1)
    assert everywhere.counterexample is not None
    assert everywhere.counterexample["gamma"] > 0.5
    assert (prove(half, gamma=0.4).exit_code, prove(half, gamma=0.4).alpha) == (0, 0.8)
    assert prove(half, gamma=0.6).exit_code == 1


def test_a_failure_near_one_is_found():
    verdict = prove(lambda b: where(b.gamma > 0.99, b.bellman - 2.0 * b.gap, b.bellman))
    assert verdict.optimality_preserving is False
    assert verdict.witness is not None
    assert verdict.witness["optimality_preserving"]["gamma"] > 0.99


@pytest.mark.parametrize(
    ("apply_to", "alpha"),
    [
        (lambda b: b.bellman - b.gap / 3, 1 / 3),
        (lambda b: b.bellman - np.float64(0.3) * b.gap, 0.3),
        (lambda b: b.bellman - (1 - 0.9) * b.gap, 0.1),
        (lambda b: b.bellman - 0.5 * b.gamma * b.gap, 0.5),
        (lambda b: b.bellman - b.gamma**2 * b.gap, "gamma"),
        (lambda b: b.bellman - (1 - b.gamma) * b.gap, 1.0),
        (lambda b: b.bellman - 0.5 * minimum(b.gap, 1.0), 0.5),
        (lambda b: b.bellman - b.gap * b.gap / (1 + b.gap), 1.0),
        (lambda b: maximum(minimum(b.again, b.bellman), b.repeat), "gamma"),
        (lambda b: b.bellman - 0.25 * abs(b.v - b.q), 0.25),
    ],
)
def test_operators_of_ones_own(apply_to, alpha):
    verdict = prove(apply_to)
    assert verdict.exit_code == 0
    assert verdict.alpha == (alpha if isinstance(alpha, str) else pytest.approx(alpha, abs=1e-9))


@pytest.mark.parametrize(
    "apply_to",
    [
        lambda b: b.bellman if b.gap > 0 else b.q,
        lambda b: b.bellman - 0.5 * b.gap * np.exp(-b.gap),
        lambda b: b.bellman - b.gap**0.5,
        lambda b: b.bellman * float("nan"),
    ],
)
def test_what_symbols_cannot_do_is_undecided(apply_to):
    verdict = prove(apply_to)
    assert verdict.exit_code == 3
    assert verdict.summary.startswith("Undecided: ")
    assert verdict.optimality_preserving is None


LOTS = random.Random(3)


@pytest.mark.parametrize(
    "apply_to",
    [
        lambda b: b.bellman - 0.5 * b.gap if b.gap else b.bellman + 1.0,
        lambda b: b.gap and b.bellman - 0.5 * b.gap,
        lambda b: where(b.gap, b.bellman - 0.5 * b.gap, b.bellman + 1.0),
        lambda b: b.bellman - 0.5 * b.gap if isinstance(b.q, Symbol) else b.bellman + 1.0,
        lambda b: b.bellman - 2 * LOTS.random() * b.gap,
        lambda b: b.bellman - 0.5 * b.gap * b.gap / (b.gap + b.next_gap),
        lambda b: b.bellman + b.gap / b.gamma,
    ],
)
def test_no_proof_and_no_witness_of_what_symbols_only_seem_to_do(apply_to):
    for gamma in (None, 0.0):
        verdict = prove(apply_to, gamma)
        assert (verdict.exit_code, verdict.counterexample, verdict.witness) == (3, None, None)


def test_conditions_compare_as_conditions():
    equal = prove(lambda b: where((b.gap <= 0) == True, b.bellman + 1.0, b.bellman - 0.5 * b.gap))  # noqa: E712
    differ = prove(lambda b: where((b.gap > 0) != (b.next_gap > 0), b.bellman - 0.5 * b.gap, b.bellman + 1.0))
    either = prove(lambda b: where((b.gap > 0) ^ (b.next_gap > 0), b.bellman - 0.5 * b.gap, b.bellman))
    assert (equal.exit_code, differ.exit_code, either.exit_code) == (1, 1, 0)


def test_functions_of_the_discount_have_witnesses_too():
    verdict = prove(lambda b: b.bellman - minimum(2 * b.gamma, 1.5) * b.gap)
    assert (verdict.exit_code, verdict.optimality_preserving) == (1, False)


@pytest.mark.parametrize("apply_to", [lambda b: b.belman, lambda b, c: b.q, lambda b: None, lambda b: "bellman", lambda b: b.gap > 0])
def test_what_fails_on_numbers_is_refused(apply_to):
    with pytest.raises(ValueError, match=r"operator <lambda> (fails|returns)"):
        prove(apply_to)


def test_verdicts_say_what_they_are_about():
    assert "every MDP with gamma = 0.4" in prove("al:0.5", gamma=0.4).summary
    varying = prove(lambda b: b.bellman - (1 - b.gamma) * b.gap)
    assert varying.alpha == 1.0
    assert "no smaller alpha is known to hold for all of them" in varying.summary


def test_a_suboptimal_action_worth_the_optimum_is_named():
    tie = Operator("tie", lambda b: where(b.next_gap > 0, maximum(b.bellman, b.v), b.bellman))
    named = [witness for _, witness in _fixed_points(tie, Fraction(1, 2)) if "suboptimal action has the value V*" in witness.sentence]
    assert named
    for witness in named:
        check_witness(tie, "optimality_preserving", asdict(witness))


def test_a_polynomial_beyond_the_solver_is_undecided_not_wrong(monkeypatch):
    def give_up(*arguments, **options):
        raise UndecidedError("the solver gave no answer within 0 seconds")

    monkeypatch.setattr("actiongap.proof.conditions.find", give_up)
    assert prove("al:0.5").exit_code == 3


def test_numbers_mean_what_they_stand_for():
    assert rational(0.9) == Fraction(9, 10)
    assert rational(1 - 0.9) == Fraction(1, 10)
    assert rational(1 / 3) == Fraction(1, 3)
    assert rational(1 + 1e-12) != 1
    assert rational(1e-20) == Fraction(1, 10**20)


def test_symbols_take_part_in_arithmetic():
    x = symbol("x")
    for value in (1 - x, 1 / x, -x, +x, 2 * x, x / 2, x**3, abs(x), np.float64(2.0) * x, 1 + x):
        assert type(value).__name__ == "Symbol"
    for condition in (x < 1, x <= 1, x > 1, x >= 1, x == 1, x != 1, ~(x < 1), (x < 1) & True, False | (x < 1)):
        assert type(condition).__name__ == "Truth"
    with pytest.raises(UndecidedError, match="where"):
        bool(x < 1)


def test_bad_discounts_are_refused():
    with pytest.raises(ValueError, match="gamma is 1"):
        prove("bellman", gamma=1.0)


@pytest.mark.parametrize("text", ["al:0.9", "baird:0.5"])
def test_a_verdict_is_its_sentence(text):
    verdict = prove(text)
    assert repr(verdict) == verdict.summary
    assert "\n" not in repr(verdict)


def test_both_conditions_are_labeled_with_their_inequality():
    answers = {question: (answer, remark) for question, answer, remark in prove("al:0.9").answers()}
    assert answers["condition 1: T'Q <= T Q"] == ("yes", "")
    assert answers["condition 2: T'Q >= T Q - alpha (V - Q)"] == ("yes", "least alpha: 0.9")


def test_notebooks_show_the_answers_with_names_escaped():
    text = prove(Operator("<b>", lambda b: b.bellman + 1.0))._repr_html_()
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert "condition 1: T&#x27;Q &lt;= T Q" in text


def test_numpy_functions_on_symbols_are_explained():
    verdict = prove(lambda b: np.maximum(b.bellman, b.repeat))
    assert verdict.condition_1 is None
    assert verdict.summary.startswith("Undecided: on symbols, the operator <lambda> fails with TypeError: ")
    assert verdict.summary.endswith("; use functions of actiongap.maths, such as maximum and where, in place of NumPy's.")
