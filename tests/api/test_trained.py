"""Play and probe of Atari agents: their observations equal those in training, and videos show their actions."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actiongap.api.trained import TrainedAgent, load_trained, needing_renderer, play
from actiongap.dqn import probe as probing
from actiongap.dqn.agent import DQN
from actiongap.dqn.atari import ACTIONS, AtariPopulation
from actiongap.dqn.config import PRESETS, Config
from actiongap.dqn.frame_replay import frame_stacks
from actiongap.dqn.host import RESET_STREAM, env_seeds
from actiongap.dqn.networks import MASKED_VALUE
from actiongap.dqn.probe import probe, record, smoothed
from actiongap.envs.atari import Emulators, atari_game
from actiongap.envs.episode_video import episode_frames
from actiongap.envs.renderers import HEIGHT, WIDTH
from actiongap.lab.executors import run_inline
from actiongap.lab.kinds.train import Training
from actiongap.lab.runner import run_folder
from actiongap.lab.study import Study, grid
from actiongap.operators import parse
from actiongap.paper.atari_probe import probe_agents
from actiongap.paper.atari_runs import CPU, TINY
from actiongap.render.video import makes_mp4

pytest.importorskip("ale_py")
# Shorter tests probe and record the smallest study of Atari.
pytestmark = pytest.mark.long

OPERATORS = ("bellman", "al:0.9")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> list[Path]:
    """The folders of two agents trained briefly on Assault, in which unskilled games are short."""
    brief = {"frames": 768, "eval_every": 768, "evaluation_steps": 8, "max_episode_steps": 8}
    fields: dict[str, Any] = dataclasses.asdict(PRESETS["stochastic-minimal"]) | CPU | TINY | brief
    study, out = Study("assault", grid("train", env="atari/assault", operator=OPERATORS, **fields)), tmp_path_factory.mktemp("trained")
    assert len(run_inline(study, out, batch_size=2).done) == 2
    folders = {load_trained(folder).spec.operator: folder for folder in (run_folder(out, name) for name in study.named())}
    return [folders[name] for name in OPERATORS]


# Observations.


class RecordingDQN(DQN):
    """An agent that records its observations."""

    def __init__(self, *arguments: Any, **others: Any):
        super().__init__(*arguments, **others)
        self.shown: list[np.ndarray] = []

    def q_values(self, parameters: Any, observations: Any) -> Any:
        jax.debug.callback(lambda seen: self.shown.append(np.array(seen)), observations, ordered=True)
        return super().q_values(parameters, observations)


@pytest.fixture(scope="module")
def recorded_game() -> tuple[Training, DQN, Any, int, np.ndarray, np.ndarray]:
    """One game of Breakout in a replay buffer, from serve to game over: spec, agent, parameters, seed, all stacks and all actions."""
    iteration, iterations = 1, 140
    still = {
        "num_envs": 2,
        "gradient_steps": 1,
        "batch_size": 2,
        "buffer_size": 400,
        "learning_starts": 10**6,
        "final_epsilon": 0.0,
        "exploration_steps": 0,
    }
    spec = Training(env="atari/breakout", **(dataclasses.asdict(PRESETS["stochastic-minimal"]) | still))
    population = AtariPopulation(["breakout"], spec.config, ["bellman"])
    # Greedy, although nothing is learned yet.
    population.dqn.epsilon = lambda iteration: jnp.float32(0.0)
    state = population.train(population.start([2]), iteration, iterations)
    online, replay = (jax.tree.map(lambda rows: rows[0], part) for part in (state.agent.learner.online, state.agent.replay))
    seed = int(env_seeds(state.agent.key[0], 2, np.array([RESET_STREAM, iteration], np.uint32))[0])
    # The first iteration puts its frame into the row after its own.
    rows = iteration + 1 + jnp.arange(iterations)
    stacks = np.asarray(frame_stacks(replay, rows, jnp.zeros_like(rows), spec.frame_stack))
    return spec, population.dqn, online, seed, stacks, np.asarray(replay.action[rows, 0])


def test_recorded_observations_equal_those_in_the_replay_buffer(recorded_game):
    _, dqn, online, seed, stacks, _ = recorded_game
    seen = record(dqn, atari_game("breakout"), online, seed, len(stacks), epsilon=0.0)
    assert seen.dtype == np.uint8
    assert seen.shape[1:] == (84, 84, 4)
    # The record stops at the end of the game. The replay buffer continues with a frame without an action, and another game.
    assert 100 < len(seen) < len(stacks)
    assert np.array_equal(seen, stacks[: len(seen)])
    assert not stacks[len(seen) + 1, ..., :-1].any()
    assert np.array_equal(record(dqn, atari_game("breakout"), online, seed, 9, epsilon=0.0), seen[:9])


def test_recorded_stacks_continue_after_a_lost_life(recorded_game):
    _, dqn, online, seed, *_ = recorded_game
    hurt = DQN(
        dataclasses.replace(dqn.config, terminal_on_life_loss=True), dqn.operators, dqn.shape, dqn.actions, mask_actions=dqn.mask_actions
    )
    # Four of five lives are lost, and only one stack is started.
    seen = record(hurt, atari_game("breakout"), online, seed, 140, epsilon=0.0)
    assert np.flatnonzero(~seen[..., :-1].any(axis=(1, 2, 3))).tolist() == [0]


def test_stacks_in_play_equal_those_in_the_replay_buffer(recorded_game):
    spec, dqn, online, seed, stacks, actions = recorded_game
    recording = RecordingDQN(dqn.config, dqn.operators, dqn.shape, dqn.actions, mask_actions=dqn.mask_actions)
    _, episode = play(TrainedAgent(spec, recording, online, 0), seed)
    jax.effects_barrier()
    assert episode.outcome == "game over"
    steps = int(episode.steps[-1])
    assert len(recording.shown) == steps + 1
    assert np.array_equal(np.concatenate(recording.shown), stacks[: steps + 1])
    assert np.array_equal(episode.actions[:steps], actions[:steps])


# Videos.


def test_play_records_an_atari_episode(trained):
    agent = load_trained(trained[0])
    env, episode = play(agent, seed=3, max_episode_steps=120)
    game = atari_game("assault")
    assert env.actions == game.actions
    assert episode.values.shape == (len(episode.steps), len(game.actions))
    assert episode.values.min() > MASKED_VALUE / 2
    assert np.array_equal(episode.actions, episode.values.argmax(axis=1))
    assert len(episode.actions) == len(episode.coordinates[0]) == len(episode.steps)
    assert env.renderer.steps_per_second == 15
    with Emulators(["assault"], agent.spec.repeat_action_probability, 1) as emulators:
        emulators.reset([3])
        scores = [0.0]
        for action in episode.actions[:-1]:
            emulators.send([action])
            scores.append(scores[-1] + float(emulators.receive().reward[0]))
    # Points of the game, not the clipped rewards of training.
    assert episode.coordinates[0].tolist() == scores
    assert scores[-1] >= 21
    frames = list(episode_frames(env, episode, title="assault"))
    assert {frame.shape for frame in frames} == {(HEIGHT, WIDTH + 320, 3)}
    screen = frames[0][:, :WIDTH]
    assert len(np.unique(screen.reshape(-1, 3), axis=0)) > 10
    assert (screen.max(axis=2) != screen.min(axis=2)).any()
    assert not np.array_equal(frames[0], frames[len(frames) // 2])


@pytest.mark.skipif(not makes_mp4(), reason="needs PyAV")
def test_a_video_is_made_of_a_run(trained, run, tmp_path):
    import av

    video = tmp_path / "game.mp4"
    code, told, _ = run("watch", trained[0], "-o", video, "--no-gif", "--seconds", "3", "--json")
    assert code == 0
    assert json.loads(told)["video"] == str(video)
    with av.open(str(video)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == pytest.approx(15 * json.loads(told)["seconds"], abs=1)
    assert frames[0].shape == (HEIGHT, WIDTH + 320, 3)
    assert frames[0].std() > 10
    code, _, said = run("watch", trained[0], "-o", video, "--no-gif", "--episode", "-1")
    assert code == 2
    assert "--episode is -1: it must be at least 0" in said


# Probes.


def test_probe_evaluates_agents_along_one_game(trained, run):
    code, told, _ = run("probe", *trained, "--steps", "40", "--window", "10", "--seed", "5", "--json")
    assert code == 0
    agents = [json.loads(line) for line in told.splitlines()]
    assert [(agent["env"], agent["operator"]) for agent in agents] == [("atari/assault", name) for name in OPERATORS]
    guide, other = map(load_trained, trained)
    seen = record(guide.dqn, atari_game("assault"), guide.parameters, 5, 40)
    for agent, mind in zip(agents, (guide, other), strict=True):
        values = np.sort(np.asarray(mind.dqn.q_values(mind.parameters, seen)), axis=1)
        assert len(agent["value"]) == len(agent["action_gap"]) == 40
        np.testing.assert_allclose(agent["value"], smoothed(values[None, :, -1], 10)[0], atol=1e-5)
        np.testing.assert_allclose(agent["action_gap"], smoothed((values[:, -1] - values[:, -2])[None], 10)[0], atol=1e-5)
    assert agents[0]["value"] != agents[1]["value"]


def test_recording_stops_after_one_game(trained, run, tmp_path):
    agent = load_trained(trained[0])
    seen = record(agent.dqn, atari_game("assault"), agent.parameters, 0, 3000)
    assert 50 < len(seen) < 3000
    thoughts = probe_agents(trained, trained[0], steps=30, window=10)
    assert [mind.agent for mind in thoughts] == [f"{name}, seed 0" for name in OPERATORS]
    assert {len(row) for mind in thoughts for row in (mind.value, mind.gap)} == {30}
    code, told, _ = run("probe", trained[0], "--steps", "3000", "-o", tmp_path / "probe.html")
    assert code == 0
    assert f"along {len(seen):,} steps" in told


def test_recorded_games_depend_on_the_seed_alone(trained):
    agent = load_trained(trained[0])

    def recorded(seed: int, epsilon: float) -> np.ndarray:
        return record(agent.dqn, atari_game("assault"), agent.parameters, seed, 40, epsilon)

    assert np.array_equal(recorded(1, 0.5), recorded(1, 0.5))
    assert not np.array_equal(recorded(1, 0.5), recorded(2, 0.5))
    assert not np.array_equal(recorded(1, 0.5), recorded(1, 0.0))


@pytest.mark.parametrize("count", [1, 6, 7, 8, 21])
def test_states_are_evaluated_in_slices(monkeypatch, count):
    monkeypatch.setattr(probing, "BATCH_SIZE", 7)
    dqn = RecordingDQN(Config(), [parse("bellman")], (4,), 3)
    agents = [dqn.network.init(jax.random.key(seed)) for seed in range(2)]
    observations = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    found = probe(dqn, agents, observations)
    jax.effects_barrier()
    assert {len(some) for some in dqn.shown} == {min(count, 7)}
    for k, parameters in enumerate(agents):
        values = np.sort(np.asarray(dqn.network.apply(parameters, observations)), axis=1)
        np.testing.assert_allclose(found.value[k], values[:, -1], atol=1e-6)
        np.testing.assert_allclose(found.gap[k], values[:, -1] - values[:, -2], atol=1e-6)


def test_probe_refuses_observations_of_another_shape():
    dqn = DQN(Config(frame_stack=2), [parse("bellman")], (84, 84, 2), ACTIONS, mask_actions=True)
    with pytest.raises(ValueError, match=r"observations have shape \[84, 84, 4\] and these agents need \[84, 84, 2\]"):
        probe(dqn, [], np.zeros((3, 84, 84, 4), np.uint8))


def test_the_probe_of_the_paper_refuses_gymnasium_environments(run, tmp_path):
    brief = {
        "frames": 20,
        "eval_every": 20,
        "buffer_size": 20,
        "learning_starts": 10,
        "batch_size": 2,
        "episodes": 1,
        "max_episode_steps": 5,
    }
    study = Study("cart", grid("train", env="gym/CartPole-v1", operator="bellman", **brief))
    run_inline(study, tmp_path, batch_size=1)
    [folder] = [run_folder(tmp_path, name) for name in study.named()]
    code, told, _ = run("probe", folder, "--steps", "30", "--json")
    assert (code, len(json.loads(told)["value"])) == (0, 30)
    with pytest.raises(ValueError, match="gym/CartPole-v1 cannot be recorded: give agents of"):
        probe_agents([folder], folder)


def test_a_renderer_that_is_not_installed_is_named_in_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    env.reset(seed=0)
    with (
        pytest.raises(ValueError, match=r"^CartPole-v1 cannot be rendered: pygame is not installed.*classic"),
        needing_renderer("CartPole-v1"),
    ):
        env.render()
