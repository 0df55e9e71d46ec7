import pytest

import actiongap as ag
from actiongap import load_mdp, parse
from actiongap._suggest import did_you_mean, nearest
from actiongap.envs.registry import load_environment
from actiongap.envs.simulators import load_simulator


def test_nothing_is_suggested_for_a_word_that_is_far_from_all():
    assert nearest("fly", ["solve", "prove"]) is None
    assert did_you_mean("fly", ["solve"], "choose from solve") == "choose from solve"
    assert did_you_mean("fly", []) == ""


def test_case_does_not_matter_and_the_name_is_spelled_as_it_is_known():
    assert nearest("frozenlake-V1", ["CartPole-v1", "FrozenLake-v1"]) == "FrozenLake-v1"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("al0.9", "al:0.9"),
        ("al=0.9", "al:0.9"),
        ("al(0.9)", "al:0.9"),
        ("al 0.9", "al:0.9"),
        ("AL:0.9", "al:0.9"),
        ("pal-dqm:0.9", "pal-dqn:0.9"),
        ("pal_dqn:1e-3", "pal-dqn:1e-3"),
        ("pal-dqm", "pal-dqn:ALPHA"),
        ("belman", "bellman"),
        ("belman:0.9", "bellman"),
        ("advantage:0.9", "al:0.9"),
        ("persistent", "pal:ALPHA"),
        ("cliped-al:0.9,0.5", "clipped-al:0.9,0.5"),
        ("munchhausen:0.03,0.9", "munchausen:0.03,0.9"),
    ],
)
def test_the_near_operator_is_suggested(text, meant):
    with pytest.raises(ValueError, match="unknown operator") as caught:
        parse(text)
    assert str(caught.value) == f"unknown operator {text!r}: did you mean {meant}?"


@pytest.mark.parametrize("text", ["foo", "", "x" * 5000, "folder/al", "0.9", "(" * 5000, "a" * 5000 + "!"])
def test_texts_that_are_near_to_no_operator_list_all_of_them(text):
    with pytest.raises(ValueError, match="choose from bellman, consistent, al:ALPHA"):
        parse(text)


@pytest.mark.parametrize(
    ("load", "text", "meant"),
    [
        (load_mdp, "garnett:10,2,2", "garnet:10,2,2"),
        (load_mdp, "gridword", "gridworld"),
        (load_mdp, "FrozenLake-v1", "gym/FrozenLake-v1"),
        (load_mdp, "gym/Frozenlake-v1", "gym/FrozenLake-v1"),
        (load_environment, "minatar/brekout", "minatar/breakout"),
        (load_environment, "breakout", "minatar/breakout"),
        (load_environment, "minitar/asterix", "minatar/asterix"),
        (load_environment, "pong", "atari/pong"),
        (load_environment, "cartpole", "gym/CartPole-v1"),
        (load_environment, "gym/CartPol-v1", "gym/CartPole-v1"),
        (load_environment, "atari/spaceinvaders", "atari/space_invaders"),
        (load_simulator, "bicyle", "bicycle"),
        (load_simulator, "mountaincar", "mountain-car"),
        (load_simulator, "pendullum:torques=3", "pendulum:torques=3"),
        (load_simulator, "pendulum:torque=3", "torques=3"),
    ],
)
def test_the_near_name_is_suggested(load, text, meant):
    with pytest.raises(ValueError, match="did you mean") as caught:
        load(text)
    assert str(caught.value).endswith(f": did you mean {meant}?")


@pytest.mark.parametrize("load", [load_mdp, load_environment, load_simulator])
def test_names_far_from_all_list_the_choices(load):
    with pytest.raises(ValueError, match=r"unknown .* 'zzz': choose from"):
        load("zzz")


def near_bellman(q_t):
    return q_t.max(axis=-1)


CALLS = [
    (lambda: ag.solve(ag.cake(), engine="numbba"), "unknown engine 'numbba': did you mean numba?"),  # pyright: ignore[reportArgumentType]
    (lambda: ag.Study("lake", "q-lerning"), "unknown kind of experiment 'q-lerning': did you mean q-learning?"),
    (lambda: ag.Study("lake", "q-learning", operater="al:0.9"), "q-learning has no field 'operater': did you mean operator?"),
    (lambda: ag.Study("plans", "plan", noise="share"), "plan: noise is 'share': did you mean shared?"),
    (lambda: ag.train("gym/CartPole-v1", learning_rat=1), "train has no argument 'learning_rat': did you mean learning_rate?"),
    (lambda: ag.train("gym/CartPole-v1", operater=1), "train has no argument 'operater': did you mean operator?"),
    (lambda: ag.train("gym/CartPole-v1", preset="faithfull"), "unknown preset 'faithfull': did you mean faithful?"),
    (lambda: ag.train("gym/CartPole-v1", optimizer="adm"), "train: optimizer is 'adm': did you mean adam?"),
    (lambda: ag.check_target(max, returns="targets"), "returns is 'targets': did you mean target?"),  # pyright: ignore[reportArgumentType]
    (lambda: ag.check_target(max, library="troch"), "library is 'troch': did you mean torch?"),  # pyright: ignore[reportArgumentType]
    (lambda: ag.check_target(f"{__file__}:near_bellmann"), "has no function 'near_bellmann': did you mean near_bellman?"),
    (lambda: ag.load_study("q-lerning"), "q-lerning: did you mean q-learning?"),
    (lambda: ag.load_mdp("cake", epsilo=1), "cake takes no epsilo: did you mean epsilon?"),
    (lambda: ag.from_gymnasium("FrozenLake-v1", is_slipery=False), "it has no option 'is_slipery': did you mean is_slippery?"),
    (lambda: ag.reproduce("bicicle"), "unknown part 'bicicle': did you mean bicycle?"),
    (lambda: ag.reproduce("finite", "labtop"), "unknown scale 'labtop': did you mean laptop?"),  # pyright: ignore[reportArgumentType]
    (
        lambda: ag.reproduce("finite", "smoke", only=["noisy-value"]),
        "there is no study 'noisy-value' at this scale: did you mean noisy-values?",
    ),
    (lambda: ag.sovle, "module 'actiongap' has no attribute 'sovle': did you mean solve?"),
]


@pytest.mark.parametrize(("call", "sentence"), CALLS, ids=[sentence for _, sentence in CALLS])
def test_calls_suggest_the_near_name(call, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError, AttributeError), match="did you mean") as caught:
        call()
    assert str(caught.value).endswith(sentence)
    assert list(tmp_path.iterdir()) == []


def test_names_far_from_all_public_ones_are_not_suggested():
    for name in ("xyzzy", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"module 'actiongap' has no attribute '{name}'$"):
            getattr(ag, name)


def test_solving_something_else_says_how_to_make_a_model():
    with pytest.raises(TypeError, match=r"'cake' is not a FiniteMDP: make one with load_mdp\('cake'\)"):
        ag.solve("cake")  # pyright: ignore[reportArgumentType]
