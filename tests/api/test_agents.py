"""Deep agents from Python: what `train`, `probe` and `watch AGENT` do, loading, interruption, and bad input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from safetensors import safe_open

import actiongap as ag
from actiongap.api.agents import Agents, load_agents
from actiongap.dqn.population import Population
from actiongap.envs.gym import GymEnv
from actiongap.envs.registry import load_environment
from actiongap.lab.records import read_runs
from actiongap.reporting.display import Plot, ResultTable, to_pandas

TINY: dict[str, Any] = {
    "frames": 120,
    "eval_every": 60,
    "learning_starts": 20,
    "exploration_steps": 60,
    "buffer_size": 100,
    "batch_size": 4,
    "target_update_interval": 30,
    "episodes": 2,
    "max_episode_steps": 30,
}
POLE = "gym/CartPole-v1"
STATES = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)


def mine(b):
    return b.bellman - 0.5 * b.gap


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """What the callback of `pole` received."""
    return []


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("agents") / "pole"


@pytest.fixture(scope="module")
def pole(study, rows) -> Agents:
    """Four agents, in the folder of their study."""
    return ag.train(POLE, operator=["bellman", "al:0.9"], seeds=2, **TINY, out=study, callback=rows.append)


def test_agents_are_a_sequence(pole):
    assert [(agent.operator, agent.seed) for agent in pole] == [("bellman", 0), ("al:0.9", 0), ("bellman", 1), ("al:0.9", 1)]
    assert {agent.env for agent in pole} == {POLE}
    assert (len(pole), pole[-1] is pole[3], isinstance(pole[:2], Agents), len(pole[1:])) == (4, True, True, 3)
    assert [agent.seed for agent in pole.select("al:.9")] == [0, 1]
    assert [agent.operator for agent in pole.select(seed=1)] == ["bellman", "al:0.9"]
    assert repr(pole) == "Agents(4 on gym/CartPole-v1: bellman, al:0.9; seeds 0, 1)"
    assert repr(pole[0]).startswith("Agent(bellman on gym/CartPole-v1, seed 0: 120 frames, score ")
    assert pole[0].config.buffer_size == 100
    with pytest.raises(AttributeError):
        pole[0].seed = 3


def test_the_callback_receives_every_row(pole, rows, study):
    assert len(rows) == 8
    for run in read_runs(study).runs:
        received = [row for row in rows if row["run"] == run.name]
        assert {(row["env"], row["operator"], row["seed"]) for row in received} == {(run.task, run.agent, run.seed)}
        for name, values in run.rows.items():
            np.testing.assert_array_equal([np.nan if row[name] is None else row[name] for row in received], values)
    agent = pole.select("al:0.9", 1)[0]
    assert agent.rows["score"].tolist() == [row["score"] for row in rows if (row["operator"], row["seed"]) == ("al:0.9", 1)]


def test_actions_are_greedy_or_epsilon_greedy(pole):
    agent = pole[0]
    values = agent.q(STATES)
    assert (values.shape, agent.q(STATES[0]).shape) == ((5, 2), (2,))
    np.testing.assert_allclose(agent.q(STATES[0]), values[0], rtol=1e-5)
    assert agent.act(STATES).tolist() == values.argmax(axis=1).tolist()
    assert type(agent.act(STATES[0].tolist())) is int
    many = np.repeat(STATES[:1], 2000, axis=0)
    chosen = agent.act(many, deterministic=False, rng=3)
    # Half of the random actions, one in a hundred, are the greedy one.
    assert 0 < (chosen != agent.act(STATES[0])).sum() < 40
    assert np.array_equal(chosen, agent.act(many, deterministic=False, rng=np.random.default_rng(3)))
    assert agent.q(np.empty((0, 4))).shape == (0, 2)


def test_agents_play_their_environment(pole):
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        observation, *_ = env.step(pole[0].act(observation))
    env.close()


@pytest.mark.parametrize(
    ("observation", "sentence"),
    [
        (np.zeros(3), r"has shape \(4,\), and this one has \(3,\): give one, or a batch of shape \(n, 4\)"),
        (np.zeros((2, 2, 4)), r"this one has \(2, 2, 4\)"),
        (0.0, r"this one has \(\)"),
        ("left", "an observation is an array of numbers"),
        ([[1.0], [1.0, 2.0]], "an observation is an array of numbers"),
        (np.full(4, np.nan), "a value is not finite"),
    ],
)
def test_wrong_observations_are_refused(pole, observation, sentence):
    for ask in (pole[0].act, pole[0].q):
        with pytest.raises(ValueError, match=sentence):
            ask(observation)


LOADING = """
import json, sys
import numpy as np
import actiongap as ag
agents = [ag.load_agent(sys.argv[1], operator="al:0.9", seed=1), ag.load_agent(sys.argv[2])]
np.save(sys.argv[3], [agent.q(np.load(sys.argv[4])) for agent in agents])
"""


def test_agents_loaded_in_another_process_have_equal_q_values(pole, study, tmp_path):
    agent, file = pole.select("al:0.9", 1)[0], tmp_path / "pole.safetensors"
    agent.save(file)
    np.save(tmp_path / "states.npy", STATES)
    subprocess.run([sys.executable, "-c", LOADING, study, file, tmp_path / "q.npy", tmp_path / "states.npy"], check=True)
    for values in np.load(tmp_path / "q.npy"):
        assert np.array_equal(values, agent.q(STATES))
    with safe_open(file, "numpy") as stream:
        names = sorted(stream.keys())
    assert names == [f"{layer}.{part}" for layer in ("hidden.0", "hidden.1", "output") for part in ("bias", "weight")]
    loaded = ag.load_agent(file, operator="al:0.9", seed=1)
    assert (loaded.config, loaded.folder, dict(loaded.rows)) == (agent.config, None, {})
    with pytest.raises(ValueError, match="load them from the folder of their study"):
        Agents([loaded]).curves()


def test_load_agent_selects_exactly_one(pole, study, tmp_path):
    folder = pole[1].folder
    assert (ag.load_agent(folder).operator, ag.load_agent(folder, seed=0).seed) == ("al:0.9", 0)
    assert ag.load_agent(study, operator=ag.advantage(0.9), seed=1).rows["score"].tolist() == pole[3].rows["score"].tolist()
    problems = {
        (): "has 4 agents to choose from: al:0.9, bellman with seeds 0, 1: give operator and seed",
        (("seed", 1),): "has 2 agents with seed 1: al:0.9, bellman with seed 1: give operator and seed",
        (("operator", "al:0.5"),): "has no agent with operator al:0.5: it has al:0.9, bellman with seeds 0, 1",
    }
    for chosen, sentence in problems.items():
        with pytest.raises(ValueError, match=sentence):
            ag.load_agent(study, **dict(chosen))
    with pytest.raises(ValueError, match=r"is not an agent with seed 1: it is al:0\.9, seed 0"):
        ag.load_agent(folder, seed=1)
    with pytest.raises(ValueError, match="there is no agent in"):
        ag.load_agent(tmp_path)
    (tmp_path / "policy.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match="is not an agent, or is damaged"):
        ag.load_agent(tmp_path / "policy.npz")


def test_tables_hold_means_with_intervals(pole):
    table = pole.table()
    assert [row["operator"] for row in table] == ["bellman", "al:0.9"]
    score = table[0]["score"]
    assert (table[0]["agents"], table[0]["frames"], score.n) == (2, 120, 2)
    assert score.value == np.mean([agent.rows["score"][-1] for agent in pole.select("bellman")])
    assert str(table).splitlines()[0].split() == ["operator", "agents", "frames", "score", "action_gap", "value"]
    assert "<th>operator</th>" in pole._repr_html_()
    assert "<td>bellman</td>" in pole[0]._repr_html_()
    assert str(ResultTable("none", ("a", "b"), ())) == "a  b"


def test_data_frames_have_every_row(pole, monkeypatch):
    pandas = pytest.importorskip("pandas")
    frame = pole.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 8
    assert frame[(frame.operator == "al:0.9") & (frame.seed == 1)].score.tolist() == pole[3].rows["score"].tolist()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"a data frame needs pandas, .*: pip install .actiongap\[notebook\]"):
        to_pandas([])


def test_curves_and_probes_are_plots_with_data(pole, tmp_path):
    curves = pole.curves()
    line = curves.data["score"]["al:0.9"]
    scores = np.stack([agent.rows["score"] for agent in pole.select("al:0.9")])
    np.testing.assert_allclose(line["y"], scores.mean(axis=0))
    assert (line["x"].tolist(), set(line)) == ([60.0, 120.0], {"x", "y", "low", "high"})
    probe = pole.probe(steps=40, window=1)
    assert list(probe.data) == ["V(x)", "action gap"]
    assert "successive games played by bellman, seed 0" in probe.charts[0].note
    values = probe.data["V(x)"]["al:0.9, seed 1"]["y"]
    assert len(values) == 40
    along = pole.probe(steps=40, window=1, along=pole[3])
    assert "played by al:0.9, seed 1" in along.charts[0].note
    assert not np.array_equal(pole.probe(steps=40, window=1, seed=1).data["V(x)"]["al:0.9, seed 1"]["y"], values)
    for plot, quantity in ((curves, "score"), (probe, "V(x)")):
        assert isinstance(plot, Plot)
        for suffix, start in ((".svg", b"<?xml"), (".pdf", b"%PDF"), (".png", b"\x89PNG"), (".html", b"<!doctype html>")):
            assert plot.save(tmp_path / f"plot{suffix}").read_bytes().startswith(start)
        assert quantity in (tmp_path / "plot.html").read_text()
        assert plot._repr_svg_().startswith("<?xml")
        assert plot._repr_html_().startswith('<img src="data:image/svg+xml;base64,')
    with pytest.raises(ValueError, match=r"a plot is saved as one of \.html, \.svg, \.pdf, \.png"):
        curves.save(tmp_path / "curves.txt")
    with pytest.raises(ValueError, match=r"there is no column 'scores': did you mean score\?"):
        pole.curves("scores")
    with pytest.raises(ValueError, match="steps is 0: it must be a whole number of at least 1"):
        pole.probe(steps=0)


def test_commands_do_the_same(run, pole, study, tmp_path, monkeypatch):
    options = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = ("train", POLE, "--operator", "bellman", "al:0.9", "--seed", "1", *options, "--out", tmp_path / "cli")
    code, told, err = run(*command, "--json")
    assert (code, len(told.splitlines())) == (0, 2), err
    ours = ag.train(POLE, ["bellman", "al:0.9"], seed=1, **TINY, out=tmp_path / "python")
    summaries = [agent.summary() | {"run": None, "frames_per_second": None} for agent in ours]
    assert [json.loads(line) | {"run": None, "frames_per_second": None} for line in told.splitlines()] == summaries
    for agent in ours:
        theirs = ag.load_agent(tmp_path / "cli", operator=agent.operator, seed=1)
        assert np.array_equal(theirs.q(STATES), agent.q(STATES))
        assert all(np.array_equal(theirs.rows[name], values, equal_nan=True) for name, values in agent.rows.items())
    code, told, _ = run("probe", study, "--steps", "30", "--json")
    probe = load_agents(study).probe(steps=30)
    assert code == 0
    for line in map(json.loads, told.splitlines()):
        name = f"{line['operator']}, seed {line['seed']}"
        assert line["value"] == probe.data["V(x)"][name]["y"].tolist()
        assert line["action_gap"] == probe.data["action gap"][name]["y"].tolist()
    # Finished agents are not trained again.
    code, again, err = run(*command)
    assert code == 0
    assert "all 2 runs are done already" in err
    assert again.splitlines()[0].split() == ["operator", "agents", "frames", "score", "action_gap", "value"]


@pytest.mark.parametrize("env", ["gym/Acrobot-v1", "gym/MountainCar-v0"])
def test_interrupted_training_continues(tmp_path, env):
    def interrupt(row):
        if row["step"] == 60:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="stopped: 1 of 1 runs are unfinished; make the same call again to resume"):
        ag.train(env, mine, **TINY, out=tmp_path, callback=interrupt)
    halfway = ag.load_agent(tmp_path)
    assert halfway.rows["step"].tolist() == [60.0]
    before = files_in(tmp_path)
    with pytest.raises(ValueError, match=r"an interrupted run with other settings, gamma is 0\.99 and not 0\.9: train with those settings"):
        ag.train(env, mine, **TINY, gamma=0.9, out=tmp_path)
    assert files_in(tmp_path) == before
    received: list[dict[str, Any]] = []
    [agent] = ag.train(env, mine, **TINY, out=tmp_path, callback=received.append)
    assert [row["step"] for row in received] == [120]
    assert agent.rows["restarts"].tolist() == [0.0, 1.0]
    # Nothing is interrupted any more, so other agents may join.
    assert len(ag.train(env, "bellman", **TINY, gamma=0.9, out=tmp_path)) == 1
    assert ag.load_agent(tmp_path, operator="mine").operator.endswith("test_agents.py:mine")
    assert ag.load_agent(tmp_path, operator=mine).seed == 0


def test_an_error_of_the_callback_stops_training(tmp_path):
    def fail(row):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        ag.train(POLE, **TINY, out=tmp_path, callback=fail)
    assert [agent.rows["step"].tolist() for agent in ag.train(POLE, **TINY, out=tmp_path)] == [[60.0, 120.0]]


def test_nothing_is_kept_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    agents = ag.train(POLE, [lambda b: b.bellman - 0.25 * b.gap, "bellman"], **TINY)
    assert files_in(tmp_path) == ["temporary"]
    assert agents[0].operator.startswith("lambda@")
    assert (agents[0].folder, agents[0].q(STATES).shape, len(agents[0].rows["score"])) == (None, (5, 2), 2)
    assert set(agents.curves().data["score"]) == {"bellman", agents[0].operator}
    agents[0].save("lambda.safetensors")
    program = "import actiongap as ag; print(ag.load_agent('lambda.safetensors').operator)"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == agents[0].operator

    def interrupt(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="nothing is kept: give out=DIR"):
        ag.train(POLE, **TINY, callback=interrupt)


def test_the_callback_of_the_documentation_logs_every_row(rows, pole, monkeypatch):
    class Logger(list):
        def log(self, row, step):
            self.append((step, row["score"]))

    started: dict[str, Logger] = {}
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda name, **_: started.setdefault(name, Logger())))
    monkeypatch.setattr(ag, "train", lambda *_, callback, **__: [callback(row) for row in rows])
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    [example] = re.findall(r"^```py\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    exec(compile(example, "training.md", "exec"), {"ag": ag})
    assert {name: list(logged) for name, logged in started.items()} == {
        name: [(row["step"], row["score"]) for row in rows if row["run"] == name] for name in dict.fromkeys(row["run"] for row in rows)
    }


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"learning_rat": 0.1}, TypeError, "train has no argument 'learning_rat': did you mean learning_rate?"),
        ({"environment": "x"}, TypeError, "train has no argument 'environment'"),
        ({"seeds": 0}, ValueError, "seeds is 0: it must be a whole number from 1 to 1,000,000"),
        ({"seeds": 2.0}, ValueError, "seeds is 2.0"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"frames": 0}, ValueError, "frames is 0"),
        ({"frames": 1e5}, ValueError, "frames is 100000.0"),
        ({"learning_rate": [0.1, 0.2]}, ValueError, r"learning_rate is \[0.1, 0.2\]"),
        ({"operator": "al:2x"}, ValueError, "al:2x"),
        ({"operator": 5}, TypeError, "operator is 5: give a string"),
        ({"operator": []}, ValueError, "operator is an empty list"),
        ({"preset": "swift"}, ValueError, "unknown preset 'swift'"),
        ({"callback": 3}, TypeError, "callback is 3: give a function"),
        ({"max_batch_size": 0}, ValueError, "max_batch_size is 0"),
        ({"env": "CartPole-v1"}, ValueError, "did you mean gym/CartPole-v1?"),
        ({"env": "gym/CartPoll-v1"}, ValueError, "did you mean gym/CartPole-v1?"),
        ({"env": "gym/Pendulum-v1"}, ValueError, "deep agents need Discrete"),
        ({"env": 5}, TypeError, "env is 5: give its name, such as gym/CartPole-v1"),
        ({"operator": "munchausen:0.03,0.9", "double": True}, ValueError, "leave out double"),
    ],
)
def test_bad_arguments_are_one_sentence_and_nothing_is_written(tmp_path, monkeypatch, arguments, error, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=sentence) as raised:
        ag.train(**{"env": POLE, **TINY, "out": "runs", **arguments})
    assert "\n" not in str(raised.value)
    if "double" not in arguments:
        assert files_in(tmp_path) == []


def test_environments_are_given_by_name():
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(TypeError, match="give its name, gym/CartPole-v1"):
        ag.train(env)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="CartPole-v1 does not run on the device: use HostPopulation"):
        Population(load_environment(POLE), None, [])  # pyright: ignore[reportArgumentType]


def test_a_warning_says_that_exploration_outlasts_training(tmp_path, monkeypatch):
    monkeypatch.setattr("actiongap.api.agents.run_with_progress", lambda *_, **__: pytest.fail("it was trained"))
    with (
        pytest.warns(UserWarning, match="exploration ends after 120 frames, but frames is 119"),
        pytest.raises(BaseException, match="it was"),
    ):
        ag.train(POLE, **{**TINY, "frames": 119, "exploration_steps": 100})


class Shifted(gymnasium.Env):
    """Actions and observations are numbered from 3 and 5."""

    observation_space, action_space = spaces.Discrete(4, start=5), spaces.Discrete(2, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 5, {}

    def step(self, action):
        assert action in self.action_space
        return 5 + int(self.np_random.integers(4)), float(action == 4), False, False, {}


@pytest.fixture(scope="module")
def shifted():
    gymnasium.register("Shifted-v0", lambda **_: Shifted(), max_episode_steps=10)
    yield ag.train("gym/Shifted-v0", **TINY)[0]
    del gymnasium.registry["Shifted-v0"]


def test_actions_are_those_that_the_environment_takes(shifted):
    assert isinstance(load_environment(shifted.env), GymEnv)
    assert (shifted.act(5) in (3, 4), shifted.q(8).shape) == (True, (2,))
    assert (shifted.act([5, 6, 7]) == shifted.q([5, 6, 7]).argmax(axis=1) + 3).all()
    with pytest.raises(ValueError, match="it is a whole number from 5 to 8"):
        shifted.act(4)
    with pytest.raises(ValueError, match="it is a whole number from 5 to 8"):
        shifted.q([5.5])
    with pytest.raises(ValueError, match=r"an observation of gym/Shifted-v0 has shape \(\)"):
        shifted.q(np.zeros((2, 2)))


def test_agents_of_different_environments_are_not_probed_together(pole, shifted):
    with pytest.raises(ValueError, match="these agents play different games, gym/CartPole-v1 and gym/Shifted-v0"):
        Agents([*pole, shifted]).probe(steps=5)
    with pytest.raises(ValueError, match="different games"):
        pole.probe(steps=5, along=shifted)
    with pytest.raises(ValueError, match="Shifted-v0 cannot be rendered: it has no render method"):
        shifted.video("shifted.gif", max_episode_steps=3)


def test_minatar_agents_take_boards_and_make_videos(run, tmp_path):
    agents = ag.train("minatar/breakout", seeds=2, **TINY, out=tmp_path / "runs")
    env = gymnasium.make("actiongap/MinAtar-Breakout-v0")
    board, _ = env.reset(seed=0)
    agent = agents[0]
    assert env.action_space.contains(agent.act(board))
    assert np.array_equal(agent.q(board), agent.q(board.astype(float)))
    assert agent.q(np.stack([board] * 3)).shape == (3, 3)
    with pytest.raises(ValueError, match="a board holds booleans, or 0 and 1"):
        agent.q(np.full((10, 10, 4), 0.5))
    agent.save(tmp_path / "breakout.safetensors")
    assert np.array_equal(ag.load_agent(tmp_path / "breakout.safetensors").q(board), agent.q(board))
    made = agents[1].video(tmp_path / "python.gif", episode=3, seconds=2.5, max_episode_steps=5)
    assert (made.steps, made.gif) == (5, tmp_path / "python.gif")
    assert (tmp_path / "python.gif").read_bytes()[:3] == b"GIF"
    with pytest.raises(ValueError, match=r"a video is an \.mp4 or a \.gif file"):
        agent.video(tmp_path / "game.avi")
    code, told, _ = run(
        "watch", tmp_path / "runs", "--seed", "1", "--episode", "3", "-o", tmp_path / "cli.gif", "--seconds", "2.5", "--json"
    )
    made = agents[1].video(tmp_path / "same.gif", episode=3, seconds=2.5)
    shown = {"steps": made.steps, "outcome": made.outcome, "seconds": round(made.seconds, 3)}
    files = {"policy": str(tmp_path / "runs"), "video": None, "gif": str(tmp_path / "cli.gif")}
    assert (code, json.loads(told)) == (0, {**files, **shown})
    assert (tmp_path / "same.gif").read_bytes() == (tmp_path / "cli.gif").read_bytes()
    with pytest.raises(ValueError, match="episode is -1: it must be a whole number of at least 0"):
        agent.video(tmp_path / "never.gif", episode=-1)
    code, _, err = run("watch", tmp_path / "runs", "-o", tmp_path / "cli.gif")
    assert code == 2
    assert "has 2 agents to choose from: bellman with seeds 0, 1: give operator and seed" in err
