import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from actiongap import FiniteMDP, cake, garnet, save_npz
from actiongap.cli import COMMANDS, main
from actiongap.lab.experiment import KINDS
from helpers import is_one_edit_apart
from terminal import terminal_output


def test_solve_cake_prints_the_closed_forms(run):
    code, out, _ = run("solve", "cake", "--operator", "consistent", "--gamma", "0.9", "--epsilon", "0.1", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["q"][0][0] == pytest.approx(-0.1 / (1 - 0.9 / 2), abs=1e-9)
    keys = "operator gamma tol engine q v policy gaps sweeps error_bound policy_loss_bound gap_residual status"
    assert set(keys.split()) <= set(found)
    assert found["policy"][0] == 1
    _, out, _ = run("solve", "cake", "--operator", "bellman", "--gamma", "0.9", "--epsilon", "0.1", "--json")
    assert json.loads(out)["q"][0][0] == pytest.approx(-0.1, abs=1e-9)


def test_solve_prints_a_table(run):
    code, out, err = run("solve", "cake", "--operator", "al:0.5")
    assert code == 0
    assert err == ""
    assert "of V* and the gaps within" in " ".join(out.split())
    assert "Q(., 1)" in out


def test_solve_explains_the_added_terminal_state(run):
    _, out, _ = run("solve", "gym/FrozenLake-v1")
    sentence = "State 16 is the terminal state that was added to the 16 of FrozenLake-v1"
    assert sentence in " ".join(out.split())
    _, out, _ = run("solve", "gym/FrozenLake-v1", "--json")
    assert sentence in json.loads(out)["note"]
    assert json.loads(run("solve", "cake", "--json")[1])["note"] == ""


def test_solve_prints_no_table_if_it_diverges(run, tmp_path):
    file = tmp_path / "answer.npz"
    code, out, _ = run("solve", "gridworld:5", "--operator", "baird:0.1", "--out", file)
    assert code == 1
    assert "diverged" in out
    assert "was not written" in " ".join(out.split())
    assert "Q(., 0)" not in out
    assert "inf" not in out


def test_large_numbers_are_not_truncated(run, tmp_path):
    file = tmp_path / "rich.npz"
    mdp = garnet(4, 4, 2, gamma=0.9, seed=1)
    save_npz(FiniteMDP(-1.2345678e9 * mdp.rewards, mdp.transitions, mdp.gamma), file)
    code, out, _ = run("solve", file, "--tol", "10")
    assert code == 0
    assert "e+09" in out
    assert "\u2026" not in out


def test_large_arrays_are_left_out_unless_asked_for(run, tmp_path):
    file = tmp_path / "big.npz"
    save_npz(garnet(3000, 4, 2, gamma=0.5), file)
    _, out, _ = run("solve", file, "--json")
    assert "v" in json.loads(out)
    assert "q" not in json.loads(out)
    _, out, _ = run("solve", file, "--json", "--arrays")
    assert len(json.loads(out)["q"]) == 3000


def test_out_writes_everything(run, tmp_path):
    file = tmp_path / "answer.npz"
    code, _, _ = run("solve", "cake", "--operator", "al:0.5", "--out", file, "--json")
    assert code == 0
    with np.load(file) as found:
        assert sorted(found.files) == ["gaps", "policy", "q", "v"]
        assert found["q"][0, 0] == pytest.approx(-0.2, abs=1e-9)


def test_not_converging_is_exit_code_one_and_writes_nothing(run, tmp_path):
    file = tmp_path / "answer.npz"
    code, out, _ = run("solve", "gridworld:5", "--operator", "baird:0.1", "--out", file, "--json")
    found = json.loads(out)
    assert code == 1
    assert "diverged" in found["status"]
    assert found["error_bound"] is None
    assert not file.exists()


BAD = [
    ("solve", "cake", "--operator", "foo"),
    ("solve", "cake", "--operator", "al:-1"),
    ("solve", "cake", "--operator", "nowhere.py:mine"),
    ("solve", "cake", "--gamma", "1"),
    ("solve", "cake", "--gamma", "nan"),
    ("solve", "cake", "--tol", "-1"),
    ("solve", "cake", "--eta", "0"),
    ("solve", "cake", "--out", "nowhere/answer.npz"),
    ("solve", "cake", "--out", "answer.txt"),
    ("solve", "missing.npz"),
    ("solve", "nonsense"),
    ("solve", "garnet:10"),
    ("prove", "foo"),
    ("prove", "al:x"),
    ("prove", "bellman", "--gamma", "1.5"),
    ("solve", "gym/CartPole-v1"),
    ("solve", "gym/Nowhere-v0"),
    ("solve", "cake", "--eta", "-1e-320"),
    ("solve", "x" * 5000 + ".npz"),
    ("prove", "x" * 5000 + ".py:f"),
    ("prove", "baird:1e-320,1e-320"),
]


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_input_is_one_sentence_and_exit_code_two(run, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("actiongap: ")
    assert err.count("\n") == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("body", ["return b.belman", "return None", "raise SystemExit(5)", "return 'q'", "return b.q if b.nothing else 0"])
@pytest.mark.parametrize("command", [("prove",), ("solve", "cake", "--operator")])
def test_operators_that_fail_are_bad_input(run, tmp_path, command, body):
    file = tmp_path / "mine.py"
    file.write_text(f"def mine(b):\n    {body}\n")
    code, out, err = run(*command, f"{file}:mine")
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("arguments", [("solve",), ("fly",), ("solve", "cake", "--speed", "9"), ("solve", "cake", "--gamma", "much")])
def test_unknown_arguments_are_exit_code_two(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("actiongap: ")
    assert err.count("\n") == 1
    assert "--help" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("sweep q-learning --seed 0 1 --out x", "unexpected argument '1': leave it out (see actiongap sweep q-learning --help)"),
        ("train minatar/breakout --seed 0 1", "unexpected argument '1': leave it out (see actiongap train --help)"),
        ("train minatar/breakout --sedes 3", "there is no option --sedes: did you mean --seeds? (see actiongap train --help)"),
        ("plan bicycle --operater al:0.5", "there is no option --operater: did you mean --operator? (see actiongap plan --help)"),
        ("solve cake --xyzzy 3", "there is no option --xyzzy (see actiongap solve --help)"),
        ("demo --window 3", "there is no option --window (see actiongap demo --help)"),
        ("train minatar/breakout --frames 1e6", "--frames is '1e6': it must be a whole number (see actiongap train --help)"),
        ("train minatar/breakout --buffer-size x", "--buffer-size is 'x': it must be a whole number (see actiongap train --help)"),
        ("train minatar/breakout --frames=1e6", "--frames is '1e6': it must be a whole number (see actiongap train --help)"),
        ("solve cake --gamma much", "--gamma is 'much': it must be a number (see actiongap solve --help)"),
        ("solve cake --gamma", "--gamma needs a value: give one after it (see actiongap solve --help)"),
        ("solve cake extra", "unexpected argument 'extra': leave it out (see actiongap solve --help)"),
        ("plan bicycle --engine x", "--engine is 'x': choose from auto, jax, numba, numpy (see actiongap plan --help)"),
        ("sweep q-learning", "--out is missing: give a folder to write to (see actiongap sweep q-learning --help)"),
        ("--speed 9", "there is no option --speed: give a command first (see actiongap --help)"),
        ("sovle cake", "there is no command 'sovle': did you mean solve? (see actiongap --help)"),
        ("solve cake --operator al0.9", "unknown operator 'al0.9': did you mean al:0.9?"),
        ("prove pal-dqm:0.9", "unknown operator 'pal-dqm:0.9': did you mean pal-dqn:0.9?"),
        ("solve gridword:5", "unknown MDP 'gridword:5': did you mean gridworld:5?"),
        ("plan mountaincar", "unknown simulator 'mountaincar': did you mean mountain-car?"),
        ("train minatar/brekout", "unknown environment 'minatar/brekout': did you mean minatar/breakout?"),
        ("solve cake --engine numbba", "--engine is 'numbba': did you mean numba? (see actiongap solve --help)"),
        ("sweep q-learning --seed 1.5 --out x", "--seed is '1.5': it must be a whole number (see actiongap sweep q-learning --help)"),
        ("sweep q-learning --seeds 0 --out x", "seeds is 0: it must be a whole number from 1 to 1,000,000"),
        ("train minatar/breakout --clip-rewards maybe", "--clip-rewards is 'maybe': choose from no, yes (see actiongap train --help)"),
        ("watch nowhere", "nowhere: no such file; give a policy file written by plan, or the folder of an agent written by train"),
        ("reproduce cake --only x", "there is no study 'x' at this scale: it has none, so leave out --only"),
        (
            "train minatar/breakout --clip-rewards yes",
            "clip_rewards is for Atari, and minatar/breakout is not: use the preset faithful, and leave it out",
        ),
    ],
)
def test_parser_errors_are_plain_sentences(run, arguments, sentence):
    code, out, err = run(*arguments.split())
    assert (code, out, err) == (2, "", f"actiongap: {sentence}\n")


def test_parser_errors_without_the_hooks_of_tyro_are_its_own():
    program = "import sys; sys.modules['actiongap.cli.errors'] = None; "
    program += "from actiongap.cli import main; main(['solve', 'cake', '--xyzzy', '3'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Unrecognized" in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_arguments_are_named(run):
    _, _, err = run("watch")
    assert err.startswith("actiongap: POLICY is missing: give a policy file written by plan, or the folder of an agent")


def test_dry_run_of_parts_without_studies(run):
    assert run("reproduce", "cake", "--dry-run")[:2] == (0, "There are no studies to run: this takes seconds.\n")
    assert run("reproduce", "scores", "--dry-run", "--json")[:2] == (0, "[]\n")


def test_unwritable_figures_are_refused_before_the_studies_run(run, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = run("reproduce", "cake", "--scale", "smoke", "--out", tmp_path / "out", "--figures", tmp_path / "file" / "figures")
    assert (code, err.count("\n"), (tmp_path / "out").exists()) == (2, 1, False)


def test_alpha_above_one_warns(run):
    code, out, err = run("prove", "al:1.5", "--json")
    assert code == 1
    assert err == "warning: al:1.5: alpha is above 1, which the theory does not cover\n"
    assert json.loads(out)["condition_2"] is False


def test_prove_json_and_exit_codes(run, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from actiongap import maximum\n"
        "def mine(b): return maximum(b.bellman - 0.5 * b.gap, b.repeat)\n"
        "def unsound(b): return 0.5 * b.bellman + 0.5 * b.repeat\n"
        "def branching(b): return b.q if b.gap > 0 else b.bellman\n"
        "def sometimes(b): return b.bellman - 2 * b.gamma * b.gap\n"
    )
    code, out, _ = run("prove", f"{file}:mine", "--json")
    found = json.loads(out)
    assert (code, found["alpha"], found["optimality_preserving"]) == (0, 0.5, True)
    assert found["conditions"] == {"condition_1": "T'Q <= T Q", "condition_2": "T'Q >= T Q - alpha (V - Q)"}
    keys = "operator condition_1 condition_2 alpha optimality_preserving gap_increasing commutes_with_constants counterexample witness"
    assert set(keys.split()) <= set(found)
    code, out, _ = run("prove", f"{file}:unsound", "--json")
    assert (code, json.loads(out)["optimality_preserving"]) == (1, False)
    assert run("prove", f"{file}:branching", "--json")[0] == 3
    assert run("prove", f"{file}:sometimes")[0] == 1
    assert run("prove", f"{file}:sometimes", "--gamma", "0.4")[0] == 0
    assert run("solve", "cake", "--operator", f"{file}:mine", "--json")[0] == 0


def test_prove_prints_a_verdict(run):
    code, out, _ = run("prove", "baird:0.1")
    assert code == 1
    assert "Counterexample" in out
    assert "divergence" in out
    assert "yes" in run("prove", "consistent")[1]
    assert run("prove", "consistent")[1].startswith("consistent, Theorem 1 for every discount\n")
    assert run("prove", "consistent", "--gamma", "0.5")[1].startswith("consistent, Theorem 1 for gamma = 0.5\n")
    assert "condition 1: T'Q <= T Q " in run("prove", "consistent")[1]
    assert "condition 2: T'Q >= T Q - alpha (V - Q) " in run("prove", "consistent")[1]


def test_proving_without_z3_says_how_to_get_it(run, monkeypatch):
    for module in [name for name in sys.modules if name.startswith(("actiongap.proof", "actiongap.mdp.witness"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "z3", None)
    code, _, err = run("prove", "bellman")
    assert code == 2
    assert "pip install 'actiongap[proof]'" in err


def test_version_and_help(run):
    assert run("--version")[1].startswith("actiongap 0.")
    code, out, _ = run("--help")
    assert code == 0
    for command in ("solve", "prove", "reproduce", "doctor"):
        assert command in out
        assert run(command, "--help")[0] == 0


def test_without_a_command_help_is_shown(run):
    assert run() == run("--help")
    assert run()[0] == 0


def test_edits_are_counted():
    assert is_one_edit_apart("--seed", "--seeds")
    assert is_one_edit_apart("--seed", "--sped")
    assert is_one_edit_apart("--seed", "--speed")
    assert not is_one_edit_apart("--seed", "--steps")
    assert not is_one_edit_apart("--loss", "--less-loss")


ONE_EDIT_APART = {("--seed", "--seeds"), ("--atol", "--rtol"), ("--episode", "--episodes"), ("--seed", "--speed")}
"""The exceptions: the first seed and how many; tolerances as in NumPy; the last two, of `watch`, wait for new names."""


@pytest.mark.parametrize("command", [*([name] for name in COMMANDS), *(["sweep", kind] for kind in KINDS)], ids=" ".join)
def test_no_two_options_differ_by_one_letter(run, command):
    options = sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", run(*command, "--help")[1])) - {"--help"})
    assert options
    near = {pair for pair in combinations(options, 2) if is_one_edit_apart(*pair)}
    assert near <= ONE_EDIT_APART


@pytest.mark.parametrize("command", [["train"], ["reproduce"], *(["sweep", kind] for kind in KINDS)], ids=" ".join)
def test_seed_is_the_first_and_seeds_how_many(run, command):
    text = " ".join(run(*command, "--help")[1].replace("│", " ").split())
    assert "--seed N The first seed. (default: 0)" in text
    assert "--seeds N Number of seeds." in text


@pytest.mark.parametrize("command", ["train minatar/breakout", "sweep q-learning", "reproduce finite --scale smoke"])
def test_wrong_seeds_are_refused_in_the_same_words(run, tmp_path, command):
    for option, value, kind in (
        ("seed", "-1", "of at least 0"),
        ("seeds", "0", "from 1 to 1,000,000"),
        ("seeds", "1000001", "from 1 to 1,000,000"),
    ):
        code, out, err = run(*command.split(), f"--{option}", value, "--out", tmp_path / "out")
        assert (code, out, err) == (2, "", f"actiongap: {option} is {value}: it must be a whole number {kind}\n")
    assert not (tmp_path / "out").exists()


COLOR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


STUDY = ("sweep", "q-learning", "--env", "cake", "--seeds", "2", "--steps", "2000", "--rows", "2", "--workers", "1", "--out")


@pytest.mark.parametrize(
    "program",
    [
        ("-m", "actiongap", "--help"),
        ("-m", "actiongap", "solve", "--help"),
        ("-m", "actiongap", "prove", "baird:0.5"),
        ("-m", "actiongap", "doctor", "--help"),
        ("-m", "actiongap", *STUDY, "{out}"),
        ("-m", "actiongap", *STUDY, "{out}", "--dry-run"),
        ("-c", "import actiongap as ag; ag.prove('al:0.5', progress=True)"),
    ],
    ids=" ".join,
)
def test_no_color_is_respected_on_a_terminal(program, tmp_path):
    for variable, colored in (("", True), ("1", False)):
        arguments = [word.format(out=tmp_path / f"out{variable}") for word in program]
        assert (COLOR.search(terminal_output(arguments, NO_COLOR=variable)) is not None) == colored


def test_the_package_is_a_program():
    done = subprocess.run([sys.executable, "-m", "actiongap", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("actiongap 0.")
    done = subprocess.run([sys.executable, "-m", "actiongap", "fly"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.startswith("actiongap: there is no command 'fly'")) == (2, True)


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom actiongap.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = 'numpy', 'scipy', 'numba', 'jax', 'torch', 'z3', 'matplotlib', 'gymnasium', 'ray', 'flax', 'safetensors'\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_ctrl_c_is_one_sentence(tmp_path):
    file, started = tmp_path / "slow.py", tmp_path / "started"
    file.write_text(
        f"import time, pathlib\ndef slow(b):\n    pathlib.Path({str(started)!r}).touch()\n    time.sleep(0.02)\n    return b.q\n"
    )
    # A test run in the background may ignore SIGINT.
    restore_sigint = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from actiongap.cli import main; "
    command = [sys.executable, "-c", f"{restore_sigint}main({['solve', 'gridworld:4', '--operator', f'{file}:slow', '--tol', '1e-9']!r})"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not started.exists():
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert err == "actiongap: interrupted; run the same command again\n"


def test_cake_file_equals_cake(run, tmp_path):
    file = tmp_path / "cake.npz"
    save_npz(cake(0.9, 0.1), file)
    _, out, _ = run("solve", file, "--operator", "consistent", "--json")
    assert json.loads(out)["q"][0][0] == pytest.approx(-0.1 / (1 - 0.9 / 2), abs=1e-9)


# Messages


@pytest.mark.parametrize(
    "arguments",
    [
        ("solve",),
        ("plan",),
        ("watch",),
        ("report",),
        ("prove",),
        ("train",),
        ("check",),
        ("solve", "cake", "--operator"),
        ("plan", "bicycle", "--grid"),
        (),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("word", ["x" * 100_000, "\x1b[31mred\x07", "[/x].npz"], ids=["long", "escape", "markup"])
def test_messages_are_short_and_safe_for_a_terminal(run, tmp_path, monkeypatch, arguments, word):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments, word)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert len(err) < 2500
    assert all(letter.isprintable() for letter in err[:-1])


def test_names_of_models_are_no_markup(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_npz(cake(), "[red][.npz")
    Path("[bold").mkdir()
    save_npz(cake(), "[bold/x].npz")
    for file in ("[red][.npz", "[bold/x].npz"):
        code, out, err = run("solve", file)
        assert (code, err) == (0, "")
        assert Path(file).name in out


WRONG = {
    "nothing": "return None",
    "text": "return 'x'",
    "list": "return [b.bellman]",
    "generator": "yield b.bellman",
    "shape": "return np.ones(7)",
    "boolean": "return b.bellman > 0",
    "complex": "return b.bellman * 1j",
    "exit": "raise SystemExit('\\x1b[31mleaving')",
    "base": "raise type('Stop', (BaseException,), {})('\\x1b[31mstop')",
}
"""Functions of users that are no operators."""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory) -> Path:
    """A file with the functions of `WRONG`."""
    file = tmp_path_factory.mktemp("wrong") / "wrong.py"
    file.write_text("import numpy as np\n" + "".join(f"def {name}(b): {body}\n" for name, body in WRONG.items()))
    return file


@pytest.mark.every(4)
@pytest.mark.parametrize("engine", ["numpy", "numba", "jax"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_operators_are_one_sentence_on_every_engine(run, tmp_path, wrong, name, engine):
    small = ("--grid", 5, "--iterations", 4, "--episodes", 0, "--engine", engine, "--out", tmp_path / "out")
    code, out, err = run("plan", "mountain-car", *small, "--operator", f"{wrong}:{name}")
    assert (code, out, err.count("\n")) in [(1, "", 1), (2, "", 1)]
    assert f"the operator {wrong}:{name} " in err
    assert "\x1b" not in err


@pytest.mark.parametrize("name", [name for name in WRONG if name not in ("complex", "boolean")])
def test_wrong_operators_of_a_finite_model_are_one_sentence(run, wrong, name):
    code, out, err = run("solve", "cake", "--operator", f"{wrong}:{name}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"the operator {wrong}:{name} " in err
    assert "\x1b" not in err


def test_an_unexpected_error_is_a_sentence_and_its_traceback_is_there_for_reports(run, monkeypatch):
    def fail(*arguments, **options):
        raise KeyError("surprise")

    monkeypatch.setattr("actiongap.mdp.generators.load_mdp", fail)
    code, out, err = run("solve", "cake")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "KeyError: 'surprise'; if it is not from code of yours, please report it" in err
    monkeypatch.setenv("ACTIONGAP_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main(["solve", "cake"])


# Before the work


ABSURD = [
    ("plan", "mountain-car", "--iterations", 10**26),
    ("plan", "mountain-car", "--episodes", 10**17),
    ("plan", "mountain-car", "--max-episode-steps", 10**20),
    ("plan", "mountain-car", "--save", "taken.npz"),
    ("plan", "mountain-car", "--save", "file.txt/x.npz"),
    ("solve", "cake", "--out", "taken.npz"),
    ("sweep", "q-learning", "--steps", 10**30, "--out", "out"),
    ("sweep", "noisy-values", "--draws", 10**17, "--out", "out"),
    ("sweep", "q-learning", "--out", "file.txt"),
    ("sweep", "q-learning", "--out", "file.txt/out"),
    ("sweep", "q-learning", "--out", "loop"),
    ("sweep", "q-learning", "--out", "out", "--ray", "nonsense://x"),
    ("plan", "mountain-car", "--out", "loop/out"),
    ("report", ".", "--figures", "file.txt"),
    ("report", ".", "-o", "loop/page.html"),
    ("watch", "taken.npz", "--seconds", 0),
    ("watch", "taken.npz", "--speed", 0),
    ("watch", "loop"),
    ("train", "minatar/breakout", "--frames", 10**22),
    ("train", "minatar/breakout", "--episodes", 10**17),
    ("train", "minatar/breakout", "--num-envs", 10**22),
    ("train", "minatar/breakout", "--out", "file.txt"),
]


@pytest.mark.parametrize("arguments", ABSURD, ids=lambda arguments: " ".join(map(str, arguments)))
def test_absurd_requests_are_refused_before_anything_is_done(run, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    Path("taken.npz").mkdir()
    Path("file.txt").touch()
    Path("loop").symlink_to("loop")
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sorted(os.listdir()) == ["file.txt", "loop", "taken.npz"]
