import functools
import subprocess
import sys
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actiongap import Backup, Operator, TheoryWarning, backup, maximum, minimum, parse, where
from actiongap._numba import compile_function, compile_operator
from actiongap.operators import FAMILY as NAMES
from helpers import AT_ONE, FAMILY

ALL = (*FAMILY, *AT_ONE, "baird:0.5")
numbers = st.floats(-100, 100)


@st.composite
def pairs(draw):
    """The numbers from which a backup is made, with V at least Q and E V(x') at least E Q(x', a)."""
    q, next_q = draw(numbers), draw(numbers)
    gap, next_gap = draw(st.floats(0, 50)), draw(st.floats(0, 50))
    stay = draw(st.floats(0, 1))
    return draw(st.floats(0, 0.999)), draw(numbers), q, q + gap, next_q + next_gap, next_q, stay


# Golden values, by hand: gamma 0.5, reward 1, Q 2, V 4, E V(x') 6, E Q(x', a) 3, P(x | x, a) 0.25.
GOLDEN = {
    "bellman": 4.0,
    "consistent": 3.75,
    "al:0.5": 3.0,
    "pal:0.5": 3.0,
    "pal:0.9": 2.5,
    "pal-dqn:0.5": 3.0,
    "lazy:0.5": 4.0,
    "lazy:1": 2.0,
    "baird:0.5": 4.0,
    "baird:0.25,2": 4.0,
}


@pytest.mark.parametrize(("text", "expected"), GOLDEN.items())
def test_golden_values(text, expected):
    assert parse(text)(backup(0.5, 1.0, 2.0, 4.0, 6.0, 3.0, 0.25)) == pytest.approx(expected, abs=1e-12)


def test_fields_of_a_backup():
    b = backup(gamma=0.5, reward=1.0, q=2.0, v=4.0, next_v=6.0, next_q=3.0, stay=0.25)
    assert b == Backup(gamma=0.5, q=2.0, v=4.0, bellman=4.0, again=3.75, gap=2.0, next_gap=3.0, repeat=2.5)


def test_gaps_of_a_fixed_policy_are_clipped():
    b = backup(gamma=0.5, reward=0.0, q=3.0, v=1.0, next_v=1.0, next_q=2.0, stay=1.0)
    assert (b.gap, b.next_gap) == (0.0, 0.0)
    assert all(parse(text)(b) <= b.bellman for text in ALL if not text.startswith("baird"))


@pytest.mark.parametrize("text", ALL)
@given(values=pairs())
@settings(derandomize=True, deadline=None, max_examples=50)
def test_every_array_library_agrees(text, values):
    operator = parse(text)
    expected = operator(backup(*values))
    arrays = [np.array([value]) for value in values]
    assert operator(backup(*arrays))[0] == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert float(operator(backup(*map(torch.asarray, arrays)))[0]) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    single = float(operator(backup(*[jnp.asarray(array, dtype=jnp.float32) for array in arrays]))[0])
    # A rounded comparison may choose the other branch of `lazy`, so single precision is compared for continuous operators only.
    if not text.startswith("lazy"):
        scale = max(1.0, max(map(abs, values))) / min(1.0, 0.5)
        assert single == pytest.approx(expected, abs=1e-4 * scale)


@pytest.mark.parametrize("text", ALL)
def test_compiled_is_the_same_function(text):
    rng = np.random.default_rng(0)
    operator = parse(text)
    compiled, make = compile_operator(operator), compile_function(backup)
    assert compiled is not None
    for _ in range(100):
        q, next_q, reward = rng.normal(size=3).tolist()
        values = (rng.random(), reward, q, q + rng.random(), next_q + rng.random(), next_q, rng.random())
        assert compiled(make(*values)) == pytest.approx(operator(backup(*values)), abs=1e-14)


@given(values=pairs(), alpha=st.floats(0, 1))
@settings(derandomize=True, deadline=None)
def test_conditions_of_the_theorem(values, alpha):
    b = backup(*values)
    slack = 1e-9 * (1 + abs(b.bellman) + b.gap)
    for name in ("al", "pal", "pal-dqn", "lazy"):
        value = parse(f"{name}:{alpha!r}")(b)
        assert b.bellman - alpha * b.gap - slack <= value <= b.bellman + slack
    assert b.bellman - b.gamma * b.gap - slack <= parse("consistent")(b) <= b.bellman + slack


@given(values=pairs())
@settings(derandomize=True, deadline=None)
def test_relations_within_the_family(values):
    b = backup(*values)
    for name in ("al", "pal", "pal-dqn"):
        assert parse(f"{name}:0")(b) == b.bellman
    assert parse("baird:1")(b) == pytest.approx(b.bellman, abs=1e-9)
    assert parse("pal:0.7")(b) == maximum(parse("al:0.7")(b), b.repeat)
    assert parse("pal-dqn:0.7")(b) >= parse("al:0.7")(b)


def test_persistence_has_two_meanings():
    b = backup(gamma=0.5, reward=0.0, q=0.0, v=4.0, next_v=2.0, next_q=0.0, stay=0.0)
    assert parse("pal:0.9")(b) == 0.0
    assert parse("pal-dqn:0.9")(b) == pytest.approx(1.0 - 0.9 * 2.0)


@pytest.mark.parametrize("text", ALL)
def test_text_round_trip(text):
    again = parse(parse(text).name)
    assert again.name == parse(text).name


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("foo", "unknown operator 'foo'"),
        ("", "unknown operator"),
        ("al", "needs a number"),
        ("al:", "needs a number"),
        ("al:x", "not a number"),
        ("al:-0.1", "from 0 to 1"),
        ("al:nan", "from 0 to 1"),
        ("al:inf", "from 0 to 1"),
        ("al:0.1,0.2", "at most 1 number:"),
        ("bellman:0.5", "takes no number"),
        ("baird:0", "positive"),
        ("baird:1,-1", "positive"),
        ("baird:1e-320,1e-320", "positive"),
        ("x" * 5000 + ".py:f", "no such file"),
        (None, "an operator must be a string"),
        ("nowhere.py:mine", "no such file"),
        ("nowhere.py", "does not name a function"),
    ],
)
def test_bad_text_is_one_helpful_sentence(text, part):
    with pytest.raises(ValueError, match=part) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["al", "pal", "pal-dqn", "lazy"])
def test_alpha_above_one_warns(name):
    with pytest.warns(TheoryWarning, match="theory does not cover"):
        parse(f"{name}:1.5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse(f"{name}:1")


def test_every_name_is_parsed():
    for name in NAMES:
        assert parse(name if name in ("bellman", "consistent") else f"{name}:0.5").name.startswith(name)


def test_operator_from_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from actiongap import maximum, advantage\n"
        "def half(b): return 0.5 * b.gap\n"
        "def mine(b): return maximum(b.bellman - half(b), b.repeat)\n"
        "ready = advantage(0.3)\n"
        "number = 3\n"
    )
    b = backup(0.5, 1.0, 2.0, 4.0, 6.0, 3.0, 0.25)
    mine = parse(f"{file}:mine")
    assert mine.name == f"{file}:mine"
    assert mine(b) == parse("pal:0.5")(b)
    compiled = compile_operator(mine)
    assert compiled is not None
    assert compiled(b) == mine(b)
    assert parse(f"{file}:ready").name == "al:0.3"
    with pytest.raises(ValueError, match="no function 'yours'; it has half, mine"):
        parse(f"{file}:yours")
    with pytest.raises(ValueError, match="number is of type int"):
        parse(f"{file}:number")
    for text in ("def broken(:\n", "import sys\nsys.exit(0)\n", "raise RuntimeError('two\\nlines')\n"):
        file.write_text(text)
        with pytest.raises(ValueError, match="cannot be loaded") as caught:
            parse(f"{file}:broken")
        assert "\n" not in str(caught.value)


def test_functions_and_operators_pass_through():
    operator = Operator("mine", lambda b: b.q)
    assert parse(operator) is operator
    assert parse(lambda b: minimum(b.q, b.v)).apply(backup(0.5, 1.0, 2.0, 4.0, 6.0, 3.0, 0.25)) == 2.0


def test_primitives_take_scalars_and_arrays():
    assert maximum(1, 2.5) == 2.5
    assert minimum(np.array([1.0, 3.0]), 2.0).tolist() == [1.0, 2.0]
    assert where(np.array([True, False]), 1.0, np.array([5.0, 6.0])).tolist() == [1.0, 6.0]
    assert where(True, 1.0, 2.0) == 1.0
    assert maximum(torch.tensor([1.0, 3.0]), 2.0).tolist() == [2.0, 3.0]


def test_primitives_mix_numpys_numbers_with_any_library():
    assert minimum(jnp.array([1.0, 3.0]), np.float64(2.0)).tolist() == [1.0, 2.0]
    assert maximum(torch.tensor([1.0, 3.0]), np.float64(2.0)).tolist() == [2.0, 3.0]


def test_primitives_propagate_nan():
    nan = float("nan")
    compiled = compile_function(lambda x, y: (maximum(x, y), minimum(x, y)))
    for x, y in ((nan, 1.0), (1.0, nan)):
        assert np.isnan([maximum(x, y), minimum(x, y), *compiled(x, y), *maximum(np.array([x]), np.array([y]))]).all()


def test_an_operator_that_numba_cannot_compile_is_not_an_error():
    assert compile_operator(Operator("odd", lambda b: b._asdict()["q"])) is None


@pytest.mark.parametrize("module", ["actiongap", "actiongap.operators", "actiongap.td"])
def test_importing_operators_is_light(module):
    heavy = ("jax", "difflib", "torch", "numba", "scipy", "z3", "gymnasium", "matplotlib", "ray", "rich", "tyro")
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_misspelled_field_is_suggested():
    b = backup(gamma=0.5, reward=0.0, q=0.0, v=4.0, next_v=2.0, next_q=0.0, stay=0.0)
    with pytest.raises(ValueError, match="has no attribute 'belman'; did you mean bellman"):
        parse(lambda b: b.belman)(b)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match="has no attribute 'xyz'; its fields are gamma, q, v, "):
        parse(lambda b: b.xyz)(b)  # pyright: ignore[reportAttributeAccessIssue]


def test_callable_objects_have_the_names_of_their_functions():
    class Mine:
        def __call__(self, b):
            return b.bellman

    def scaled(b, alpha):
        return b.bellman - alpha * b.gap

    assert parse(Mine()).name == "Mine"
    assert parse(functools.partial(functools.partial(scaled), alpha=0.5)).name == "scaled"
