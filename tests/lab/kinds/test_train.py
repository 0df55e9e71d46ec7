"""Training from the command line: files, output, probes, videos, interruption and resumption."""

import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import save

from actiongap.api.trained import load_trained, load_weights, play, save_weights
from actiongap.dqn.config import PRESETS
from actiongap.dqn.probe import record, smoothed
from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.registry import load_environment
from actiongap.lab.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from actiongap.lab.executors import run_inline
from actiongap.lab.experiment import as_config, from_config, make
from actiongap.lab.kinds.train import Training
from actiongap.lab.lock import locked
from actiongap.lab.runner import run_folder, unfinished_runs
from actiongap.lab.store import is_done, read_status
from actiongap.lab.study import Study, grid

TINY = {
    "frames": 120,
    "eval_every": 60,
    "learning_starts": 20,
    "buffer_size": 100,
    "batch_size": 4,
    "target_update_interval": 30,
    "episodes": 2,
    "max_episode_steps": 30,
}
OPTIONS = [item for name, value in TINY.items() for item in (f"--{name.replace('_', '-')}", str(value))]


def tiny(**fields) -> Study:
    return Study("tiny", grid("train", env="minatar/breakout", **{**TINY, **fields}))


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, Study]:
    """A study of four trained agents, and its folder."""
    study, out = tiny(operator=["bellman", "al:0.9"], seed=range(2)), tmp_path_factory.mktemp("trained")
    assert len(run_inline(study, out, batch_size=4).done) == 4
    return out, study


def test_train_reports_every_agent(run, tmp_path):
    command = ("train", "minatar/breakout", "--operator", "bellman", "al:0.9", "--seeds", "2", *OPTIONS, "--out", tmp_path, "--json")
    code, out, _ = run(*command)
    assert code == 0
    agents = [json.loads(line) for line in out.splitlines()]
    pairs = sorted((agent["operator"], agent["seed"]) for agent in agents)
    assert pairs == [("al:0.9", 0), ("al:0.9", 1), ("bellman", 0), ("bellman", 1)]
    for agent in agents:
        assert agent["env"] == "minatar/breakout"
        assert agent["frames"] == 120
        assert all(isinstance(agent[name], float) for name in ("score", "action_gap", "value", "frames_per_second"))
    # The speed is that of the whole batch.
    statuses = [read_status(agent["run"]) for agent in agents]
    assert {status.batch_size for status in statuses} == {4}
    speed = sum(status.steps for status in statuses) / sum(status.seconds for status in statuses)
    assert [agent["frames_per_second"] for agent in agents] == pytest.approx([speed] * 4)
    code, again, said = run(*command)
    assert (code, again) == (0, out)
    assert "all 4 runs are done already" in said
    code, out, _ = run(*command[:-1])
    assert "al:0.9" in out
    assert "actiongap report" in out


@pytest.mark.long
def test_runs_of_another_process_are_not_counted_as_done(run, tmp_path):
    command = ("sweep", "train", "--env", "minatar/breakout", "--operator", "bellman", "al:0.9", *OPTIONS, "--out", tmp_path)
    held, _ = tiny(operator=["bellman", "al:0.9"]).named()
    run_folder(tmp_path, held).mkdir(parents=True)
    with locked(run_folder(tmp_path, held) / "lock"):
        code, told, said = run(*command)
    assert (code, told.splitlines()[0]) == (0, f"1 of 2 runs are done, in {tmp_path}.")
    assert "note: other processes are working on 1 run of this study: run the same command again when they have finished" in said
    assert list(unfinished_runs(tiny(operator=["bellman", "al:0.9"]), tmp_path)) == [held]


@pytest.mark.parametrize(
    ("arguments", "ends"),
    [
        (("minatar/breakout", "--frames", "104999"), "105,000 frames, but frames is 104,999"),
        (("minatar/breakout", "--frames", "105000"), None),
        (("minatar/breakout", "--frames", "30000", "--exploration-steps", "25000"), None),
        (("minatar/breakout", "--frames", "30000", "--json"), "105,000 frames, but frames is 30,000"),
        (
            ("gym/CartPole-v1", "--frames", "400", "--learning-starts", "50", "--exploration-steps", "500"),
            "550 frames, but frames is 400",
        ),
        (("atari/pong", "--frames", "4199999"), "4,200,000 frames, but frames is 4,199,999"),
        (("atari/pong", "--frames", "4200000"), None),
    ],
)
def test_a_warning_says_if_exploration_never_ends(run, tmp_path, monkeypatch, arguments, ends):
    def enough(*_, **__):
        raise ValueError("enough")

    # The warning is printed before training starts.
    monkeypatch.setattr("actiongap.api.agents.run_with_progress", enough)
    monkeypatch.setattr("actiongap.envs.atari.check_game", lambda name: None)
    code, out, err = run("train", *arguments, "--out", tmp_path)
    told = f"warning: exploration ends after {ends}: see exploration_steps\n" if ends else ""
    assert (code, out, err) == (2, "", f"{told}actiongap: enough\n")


@pytest.mark.every(5)
@pytest.mark.parametrize("frames", [1_000_000, 4_000])
@pytest.mark.parametrize("preset", [None, *PRESETS])
@pytest.mark.parametrize("env", ["atari/pong", "minatar/breakout", "gym/CartPole-v1"])
def test_python_train_and_sweep_resolve_presets_alike(run, tmp_path, monkeypatch, env, preset, frames):
    seen: list[Any] = []

    def collect(study: Study, *_, **__):
        seen.extend(study.runs)
        raise ValueError("enough")

    for name in ("agents", "studies"):
        monkeypatch.setattr(f"actiongap.api.{name}.run_with_progress", collect)
    monkeypatch.setattr("actiongap.envs.atari.check_game", lambda name: None)
    options = ("--frames", str(frames), *(("--preset", preset) if preset else ()), "--out", tmp_path)
    said = run("train", env, *options)[2], run("sweep", "train", "--env", env, *options)[2]
    fields = {"env": env, "preset": preset, "frames": frames}
    if env.startswith("atari/") == (preset in (None, "stochastic-minimal", "original-dqn")) or preset is None:
        [of_train, of_sweep] = seen
        assert of_train == of_sweep == Training(**fields) == make("train", fields) == grid("train", **fields)[0]
        assert of_train.config == PRESETS[preset or ("stochastic-minimal" if env.startswith("atari/") else "faithful")]
        assert of_train.eval_every == frames // 20
        assert (of_train.max_episode_steps, of_train.evaluation_epsilon) == ((27_000, 0.05) if of_train.is_atari else (3_000, 0.01))
    else:
        # All three refuse a preset for other environments.
        assert not seen
        with pytest.raises(ValueError, match="preset") as refused:
            Training(**fields)
        assert all(str(refused.value) in text for text in said)


def test_given_fields_override_a_preset():
    spec = Training(env="atari/pong", preset="original-dqn", gamma=0.9)
    assert spec.gamma == 0.9
    assert "preset" not in as_config(spec)["spec"]
    assert from_config(as_config(spec)) == spec == dataclasses.replace(spec)
    with pytest.raises(TypeError, match="train has no field 'gama'"):
        Training(gama=0.9)
    with pytest.raises(ValueError, match="unknown preset 'swift': choose from faithful"):
        Training(preset="swift")


@pytest.mark.parametrize(("answer", "clipped"), [((), True), (("--clip-rewards", "no"), False), (("--clip-rewards", "yes"), True)])
def test_fields_of_a_preset_can_be_turned_off(run, tmp_path, monkeypatch, answer, clipped):
    def asked(study: Study, *_, **__):
        raise ValueError(f"clip: {as_config(study.runs[0])['spec']['clip_rewards']}")

    monkeypatch.setattr("actiongap.api.agents.run_with_progress", asked)
    monkeypatch.setattr("actiongap.envs.atari.check_game", lambda name: None)
    assert f"clip: {clipped}" in run("train", "atari/pong", *answer, "--json", "--out", tmp_path)[2]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("minatar/pong",), "unknown environment 'minatar/pong'"),
        (("minatar/breakout", "--operator", "al:2x"), "al:2x"),
        (("minatar/breakout", "--seeds", "0"), "seeds is 0"),
        (("minatar/breakout", "--gamma", "1.0"), "gamma is 1.0"),
        (("minatar/breakout", "--batch-size", "0"), "batch_size is 0"),
        (("minatar/breakout", "--frames", "0"), "frames is 0"),
        (("minatar/breakout", "--buffer-size", "100000000000"), "buffer_size is 100000000000: it must be below 2^31"),
        (("minatar/breakout", "--eval-every", "0"), "eval_every is 0"),
        (("minatar/breakout", "--max-episode-steps", "0"), "max_episode_steps is 0"),
        (("minatar/breakout", "--max-grad-norm", "0"), "max_grad_norm is 0.0: it must be above 0, or be left out"),
        (("minatar/breakout", "--max-batch-size", "0"), "max_batch_size is 0"),
        (("minatar/breakout", "--preset", "swift"), "swift"),
        (("minatar/breakout", "--operator", "munchausen:0.03,0.9", "--double"), "leave out double"),
    ],
)
def test_bad_options_raise_one_sentence(run, tmp_path, arguments, sentence):
    code, out, said = run("train", *arguments, "--out", tmp_path / "out")
    assert code in (1, 2)
    assert out == "" or "failed" in out
    assert sentence in said + out
    assert "Traceback" not in said


def test_chunks_cover_all_iterations_once():
    uneven = [(2_500_000, 1_250_000, 64, 1), (64, 16, 10, 1)]
    for frames, every, environments, updates in [(10_000, 3_000, 1, 1), (100, 7, 4, 2), (50_000, 50_000, 64, 4), (5, 100, 2, 1), *uneven]:
        spec = Training(frames=frames, eval_every=every, num_envs=environments, gradient_steps=updates, buffer_size=1000)
        stretches = [spec.chunk_iterations(chunk) for chunk in range(spec.chunks)]
        assert stretches[0][0] == 0
        assert all(one[1] == other[0] for one, other in pairwise(stretches))
        assert stretches[-1][1] == spec.iterations
        assert stretches[-1][2]
        assert sum(due for *_, due in stretches) == spec.rows == math.ceil(frames / max(every, environments))
        assert spec.iterations < spec.chunks or all(one < other for one, other, _ in stretches)


def test_training_survives_json():
    spec = Training(**{**TINY, "operator": "pal-dqn:0.9", "double": True, "seed": 3})
    assert from_config(json.loads(json.dumps(as_config(spec)))) == spec
    assert dataclasses.replace(spec, operator="bellman", seed=1).batch_key == spec.batch_key
    assert dataclasses.replace(spec, gamma=0.9).batch_key != spec.batch_key


PROGRAM = """
import json, sys
from actiongap.lab.executors import run_inline
from actiongap.lab.study import Study, grid
run_inline(Study("tiny", grid("train", **json.loads(sys.argv[2]))), sys.argv[1], batch_size=4, save_every=0.0)
"""


@pytest.mark.long
def test_killed_training_resumes_to_the_same_result(tmp_path):
    fields = {**TINY, "env": "minatar/breakout", "operator": ["bellman", "al:0.9"], "frames": 300, "eval_every": 10}
    study = Study("tiny", grid("train", **fields))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "killed"), json.dumps(fields)]
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    process = subprocess.Popen(command, env=environment)
    until = time.monotonic() + 240
    while len(list((tmp_path / "killed").rglob("*.npz"))) < 4 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(unfinished_runs(study, tmp_path / "killed")) == 2
    run_inline(study, tmp_path / "killed", batch_size=4)
    run_inline(study, tmp_path / "undisturbed", batch_size=4)
    for name in study.named():
        one, other = (run_folder(tmp_path / out, name) for out in ("killed", "undisturbed"))
        assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
        states = [read_checkpoint(max((folder / "checkpoint").glob("*.npz"))).state for folder in (one, other)]
        assert states[0].keys() == states[1].keys()
        assert all(np.array_equal(states[0][key], states[1][key]) for key in states[0])


def test_agents_are_loaded_from_unfinished_and_finished_runs(trained, tmp_path):
    out, study = trained
    folder = run_folder(out, next(iter(study.named())))
    agent = load_trained(folder)
    assert agent.chunk == agent.spec.chunks
    begun = tmp_path / "begun"
    shutil.copytree(folder, begun)
    for file in (begun / "checkpoint").glob("*.npz"):
        file.unlink()
    with pytest.raises(ValueError, match="the run is done, and its checkpoint is missing: train it again"):
        load_trained(begun)
    (begun / "status.json").unlink()
    with pytest.raises(ValueError, match="has no checkpoint yet: train it"):
        load_trained(begun)
    state, _ = agent.spec.advance(agent.spec.start(), 0)
    write_checkpoint(begun / "checkpoint" / "00000001.npz", Checkpoint(1, state, 0, "", 0.0))
    halfway = load_trained(begun)
    assert halfway.chunk == 1
    assert np.array_equal(halfway.parameters[0][0], state[".agent.learner.online[0][0]"])
    damaged = (begun / "checkpoint" / "00000001.npz").read_bytes()
    (begun / "checkpoint" / "00000001.npz").write_bytes(damaged[: len(damaged) // 2])
    with pytest.raises(ValueError, match="the checkpoints are truncated or changed: train it again"):
        load_trained(begun)
    with pytest.raises(ValueError, match="not the folder of an agent"):
        load_trained(tmp_path)
    (begun / "config.json").write_text('{"format": "actiongap-run", "version": 2, "kind": "train", "spec": {"gamma": "high"}}')
    with pytest.raises(ValueError, match=r"begun/config.json: train: gamma is 'high'"):
        load_trained(begun)


def test_probes_equal_the_network_outputs(trained, run, tmp_path):
    out, study = trained
    code, told, _ = run("probe", out, "--steps", "60", "--window", "10", "--json")
    assert code == 0
    agents = [json.loads(line) for line in told.splitlines()]
    assert [(agent["operator"], agent["seed"]) for agent in agents] == sorted(
        (agent.operator, agent.seed) for agent in study.runs if isinstance(agent, Training)
    )
    guide = next(folder for name in study.named() if "bellman" in name for folder in [run_folder(out, name)])
    agent, game = load_trained(guide), load_environment("minatar/breakout")
    assert isinstance(game, FunctionalEnv)
    seen = record(agent.dqn, game, agent.parameters, 0, 60)
    values = np.asarray(agent.dqn.q_values(agent.parameters, seen))
    ordered = np.sort(values, axis=1)
    told_of = next(one for one in agents if (one["operator"], one["seed"]) == (agent.spec.operator, agent.spec.seed))
    for t in (0, 5, 30, 59):
        window = slice(max(0, t - 9), t + 1)
        assert told_of["value"][t] == pytest.approx(ordered[window, -1].mean(), abs=1e-5)
        assert told_of["action_gap"][t] == pytest.approx((ordered[window, -1] - ordered[window, -2]).mean(), abs=1e-5)
    np.testing.assert_allclose(smoothed(np.ones((2, 7)), 3), 1.0)
    page = tmp_path / "probe.html"
    code, told, _ = run("probe", out, "--steps", "60", "-o", page)
    assert code == 0
    assert "action gap" in page.read_text()
    assert "Along 60 steps of successive games played by bellman, seed 0; moving average over 50 steps." in page.read_text()
    shutil.copytree(out, tmp_path / "damaged")
    one, other = (run_folder(tmp_path / "damaged", name) for name in list(study.named())[:2])
    (one / "config.json").write_text("{")
    shutil.rmtree(other / "checkpoint")
    code, told, said = run("probe", tmp_path / "damaged", "--steps", "20", "--json")
    assert (code, len(told.splitlines())) == (0, 2)
    assert said.count("warning: skipped:") == 2
    assert "it is not JSON: the file is truncated or changed" in said
    assert "the run is done, and its checkpoint is missing: train it again, in another folder" in said
    code, _, said = run("probe", tmp_path)
    assert code == 2
    assert "there is no agent" in said


def test_saved_agents_are_loaded_unchanged(trained, tmp_path):
    out, study = trained
    agent = load_trained(run_folder(out, next(iter(study.named()))))
    file = tmp_path / "agent.safetensors"
    save_weights(agent, file)
    again = load_weights(file)
    assert (again.spec, again.chunk) == (agent.spec, agent.chunk)
    ours, theirs = (jax.tree.leaves(one.parameters) for one in (agent, again))
    assert len(ours) == len(theirs) > 0
    assert all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))
    with pytest.raises(ValueError, match="give it that suffix"):
        save_weights(agent, tmp_path / "agent.npz")


def test_files_without_an_agent_are_refused(tmp_path):
    file = tmp_path / "agent.safetensors"
    with pytest.raises(ValueError, match="no such file"):
        load_weights(file)
    q_learning = json.dumps(as_config(make("q-learning", {"env": "cake"})))
    metadata: list[dict[str, str] | None] = [None, {"config": "[]", "chunk": "1"}, {"config": q_learning, "chunk": "1"}, {"chunk": "1"}]
    for content in (b"", b"not an agent", *(save({"q": np.zeros(2)}, about) for about in metadata)):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"is not an agent.*: give a .safetensors file that Agent.save wrote"):
            load_weights(file)


def test_play_records_a_minatar_episode(trained, run, tmp_path):
    out, study = trained
    folder = run_folder(out, next(iter(study.named())))
    env, episode = play(load_trained(folder), seed=1, max_episode_steps=25)
    assert env.actions == ("stay", "left", "right")
    assert len(episode.steps) == len(episode.actions) == len(episode.values) == len(episode.coordinates[0])
    assert np.array_equal(episode.actions, episode.values.argmax(axis=1))
    assert episode.coordinates[0][0] == 0.0
    code, told, _ = run("watch", folder, "-o", tmp_path / "game.gif", "--seconds", "3", "--json")
    assert code == 0
    assert json.loads(told)["gif"].endswith("game.gif")
    assert (tmp_path / "game.gif").read_bytes()[:3] == b"GIF"


DIVERGING = "import numpy as np\ndef nan(b): return b.bellman * float('nan')\n"


def test_rows_without_a_finite_value_are_a_failure(tmp_path):
    (tmp_path / "own.py").write_text(DIVERGING)
    agent = make("train", {"operator": f"{tmp_path / 'own.py'}:nan"})
    assert agent.failure({"step": 1, "value": 0.5}) == ""
    for value in (None, float("nan")):
        expected = f"Q is no longer finite: {tmp_path / 'own.py'}:nan diverges here; choose another operator"
        assert agent.failure({"step": 1, "value": value}) == expected


@pytest.mark.long
def test_an_agent_that_diverges_fails_and_the_others_of_its_batch_are_done(tmp_path):
    (tmp_path / "own.py").write_text(DIVERGING)
    fields = {"frames": 64, "eval_every": 32, "buffer_size": 50, "learning_starts": 20, "episodes": 2, "max_episode_steps": 9}
    for operators, done in ((["bellman", f"{tmp_path / 'own.py'}:nan"], 1), ([f"{tmp_path / 'own.py'}:nan"], 0)):
        study = Study("two", grid("train", operator=operators, **fields))
        for _ in range(2):
            outcome = run_inline(study, tmp_path / f"out-{done}", batch_size=2)
            assert [error.partition(":")[0] for error in outcome.failed.values()] == ["Q is no longer finite"]
        assert sum(is_done(run_folder(tmp_path / f"out-{done}", name), run) for name, run in study.named().items()) == done
