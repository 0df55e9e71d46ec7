"""Memory limits of a process, with and without a container, and missing extras."""

import subprocess
import sys

import pytest

from actiongap import _system as machine


@pytest.mark.parametrize(
    ("limit", "stat", "free"),
    [("8000", "anon 5000\ninactive_file 1500\n", 2500), ("8000", "", 1000), ("6000", "", 0), ("max", "inactive_file 1500\n", None)],
)
def test_memory_that_a_container_uses_is_not_free(limit, stat, free, tmp_path, monkeypatch):
    for name, text in {"memory.max": limit, "memory.current": "7000", "memory.stat": stat}.items():
        (tmp_path / name).write_text(f"{text}\n")
    without = machine.free_memory()
    monkeypatch.setattr(machine, "GROUP", tmp_path)
    assert machine.free_memory() == free if free is not None else machine.free_memory() > without / 2 > 8000


def test_without_a_cgroup_limit_free_memory_is_the_machine_s(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "GROUP", tmp_path)
    assert machine.free_memory() > 8000


BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Block())
try:
    {code}
except (ImportError, ValueError) as error:
    assert error.__suppress_context__ or error.__context__ is None
    print(error)
"""


PYGAME = """
    import gymnasium
    from actiongap.api.trained import needing_renderer
    env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    env.reset()
    with needing_renderer("CartPole-v1"):
        env.render()
"""
VIDEO = """
    from types import SimpleNamespace
    import actiongap as ag
    ag.Agent(SimpleNamespace(play=None)).video("never.mp4")
"""


@pytest.mark.parametrize(
    ("blocked", "code", "sentence"),
    [
        (["z3"], "import actiongap; actiongap.prove('al:0.9')", "actiongap.prove needs z3, which is not installed: {proof}"),
        (["z3"], "from actiongap import prove", "actiongap.prove needs z3, which is not installed: {proof}"),
        (["z3"], "from actiongap.proof import decide", "actiongap.proof needs z3, which is not installed: {proof}"),
        (["jax"], "import actiongap as ag; ag.train('gym/CartPole-v1')", "actiongap.train needs jax, which is not installed: {jax}"),
        (["optax"], "import actiongap as ag; ag.train('gym/CartPole-v1')", "actiongap.train needs optax, which is not installed: {jax}"),
        (["jax"], "from actiongap import load_agent", "actiongap.load_agent needs jax, which is not installed: {jax}"),
        (
            ["jax"],
            "import actiongap as ag; ag.Study('two', 'train', env='minatar/breakout')",
            "the experiment 'train' needs jax, which is not installed: {jax}",
        ),
        (
            ["jax"],
            "import actiongap as ag; ag.reproduce('minatar', 'smoke')",
            "the experiment 'train' needs jax, which is not installed: {jax}",
        ),
        (["ale_py"], "import actiongap as ag; ag.train('atari/pong')", "atari/pong needs ale-py, which is not installed: {atari}"),
        (
            ["pandas"],
            "from actiongap.api.studies import Runs; from actiongap.lab.records import Records; Runs(Records((), ())).to_pandas()",
            "a data frame needs pandas, which is not installed: {notebook}",
        ),
        (["pandas"], "import actiongap as ag; ag.Agents([]).to_pandas()", "a data frame needs pandas, which is not installed: {notebook}"),
        (
            ["ray"],
            "import actiongap as ag; ag.Study('two', 'q-learning', env='cake').run('never', ray='auto')",
            "a cluster needs Ray, which is not installed: {cluster}",
        ),
        (["torch"], "import actiongap as ag; ag.check_target(max, library='torch')", "library='torch' needs torch: {torch}"),
        (["pygame"], PYGAME, 'CartPole-v1 cannot be rendered: pygame is not installed, run `pip install "gymnasium[classic-control]"`'),
        (["av"], VIDEO, "MP4 needs PyAV: {video}"),
        (["jax"], "import actiongap as ag; ag.solve(ag.cake(), engine='jax')", "engine 'jax' needs JAX: {jax}"),
        (["stable_baselines3"], "import actiongap.sb3", "actiongap.sb3 needs stable_baselines3: {sb3}"),
        (["av"], "from actiongap.render.video import mp4_bytes; mp4_bytes([], 5)", "MP4 needs PyAV: {video}"),
    ],
)
def test_missing_extras_are_one_sentence_in_python(blocked, code, sentence):
    program = BLOCK.format(blocked=blocked, code=code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == sentence.format(**{name: machine.install(name) for name in machine.EXTRAS}) + "\n"


def test_other_missing_modules_are_not_explained():
    with pytest.raises(ModuleNotFoundError, match="No module named 'mine'"), machine.needing_extras("this"):
        raise ModuleNotFoundError("No module named 'mine'", name="mine")
