"""Stable-Baselines3's agents with our targets: the originals bit for bit under Bellman's operator, and ours under all others."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import zipfile
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

stable_baselines3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed: pip install 'actiongap[sb3]'")

import torch  # noqa: E402
from stable_baselines3.common.callbacks import CheckpointCallback, ConvertCallback, EvalCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.envs import FakeImageEnv, SimpleMultiObsEnv  # noqa: E402
from stable_baselines3.common.logger import configure  # noqa: E402
from stable_baselines3.common.vec_env import VecNormalize  # noqa: E402

import actiongap.sb3  # noqa: E402
from actiongap.operators import parse  # noqa: E402
from actiongap.sb3 import DQN  # noqa: E402
from actiongap.td import td_target, transition_backup  # noqa: E402

OPERATORS = ["bellman", "consistent", "al:0.9", "pal:0.9", "pal-dqn:0.9", "lazy:0.5", "baird:0.5", "clipped-al:0.9,0.5", "sal:0.5,0.9"]
"""Those that look at a `Backup`."""
SMALL = {"device": "cpu", "seed": 3, "buffer_size": 2000, "learning_starts": 50, "policy_kwargs": {"net_arch": [16]}}


def cartpole(**limits):
    return gymnasium.make("CartPole-v1", **limits)


def small(operator: Any = "al:0.9", policy="MlpPolicy", env=None, **options):
    return DQN(policy, cartpole() if env is None else env, operator=operator, **SMALL | options)


def same(model, other):
    mine, theirs = model.policy.state_dict(), other.policy.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


THRIFTY = {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}
"""A buffer that holds each observation once, and cannot tell time limits from ends."""
CASES = {
    "rows": ("MlpPolicy", cartpole, 300, {}),
    "numbers": ("MlpPolicy", lambda: gymnasium.make("FrozenLake-v1"), 300, {}),
    "normalised rows": ("MlpPolicy", lambda: VecNormalize(make_vec_env("CartPole-v1", 2, seed=0)), 400, {}),
    "a buffer that saves memory": ("MlpPolicy", cartpole, 300, THRIFTY),
    "clipped gradients": ("MlpPolicy", cartpole, 300, {"max_grad_norm": 0.01}),
    "a target network that follows slowly": ("MlpPolicy", cartpole, 300, {"tau": 0.1, "target_update_interval": 1}),
    "another optimiser and a learning rate that falls": (
        "MlpPolicy",
        cartpole,
        300,
        {"policy_kwargs": {"net_arch": [8, 8], "optimizer_class": torch.optim.SGD}, "learning_rate": lambda left: 0.05 * left},
    ),
    "time limits": ("MlpPolicy", lambda: cartpole(max_episode_steps=10), 500, {}),
    "three steps, two environments": ("MlpPolicy", lambda: make_vec_env("CartPole-v1", 2, seed=0), 500, {"n_steps": 3}),
    "pictures": ("CnnPolicy", lambda: FakeImageEnv(2, 40, 40), 80, {"policy_kwargs": None}),
    "dictionaries": ("MultiInputPolicy", lambda: SimpleMultiObsEnv(random_start=False), 80, {}),
}


@pytest.mark.every(3)
@pytest.mark.parametrize("case", CASES)
def test_with_the_bellman_operator_it_is_the_original_bit_for_bit(case):
    policy, make, steps, options = CASES[case]
    # Fast enough for values to come near their targets: far from them the slope of the Huber loss is the same for all.
    options = SMALL | {"target_update_interval": 60, "train_freq": 2, "learning_rate": 1e-2} | options

    def trained(agent, **operator):
        # These environments draw their pictures from generators that no agent seeds.
        np.random.seed(0)  # noqa: NPY002
        env = make()
        env.observation_space.seed(0)
        model = agent(policy, env, **options, **operator)
        before = [parameter.clone() for parameter in model.q_net.parameters()]
        model.learn(steps)
        assert not all(map(torch.equal, before, model.q_net.parameters()))
        return model

    original = trained(stable_baselines3.DQN)
    assert same(original, trained(DQN, operator="bellman"))
    assert not same(original, trained(DQN, operator="al:0.9"))


@pytest.mark.every(3)
@pytest.mark.parametrize("text", OPERATORS)
def test_targets_are_the_operator_s_for_each_transition_in_the_buffer(text):
    # Many poles stand longer than twelve steps, so that the limit cuts their episodes short, and many do not.
    model = small(text, env=cartpole(max_episode_steps=12), target_update_interval=150, exploration_final_eps=0.5).learn(400)
    buffer = model.replay_buffer
    assert buffer is not None
    rows = np.arange(400)
    ended, truncated = buffer.dones[rows, 0] == 1, buffer.timeouts[rows, 0] == 1
    assert (ended & truncated).any()
    assert (ended & ~truncated).any()
    x, x_next = buffer.observations[rows, 0], buffer.next_observations[rows, 0]
    with torch.no_grad():
        q, q_next = (model.q_net_target(torch.as_tensor(some)).double().numpy() for some in (x, x_next))
        online = model.q_net(torch.as_tensor(x)).double().numpy()
    assert np.abs(q - online).max() > 1e-3

    def expected(row):
        a = int(buffer.actions[row, 0, 0])
        discount = 0.0 if ended[row] and not truncated[row] else model.gamma
        back = float((x[row] == x_next[row]).all())
        reward = float(buffer.rewards[row, 0])
        b = transition_backup(*(float(v) for v in (q[row, a], q[row].max(), reward, discount, q_next[row].max(), q_next[row, a], back)))
        return parse(text)(b)

    targets = model.targets(buffer._get_samples(rows))
    assert targets.shape == (400, 1)
    assert not targets.requires_grad
    np.testing.assert_allclose(targets[:, 0].numpy(), [expected(row) for row in rows], atol=2e-5)


def test_saving_and_loading_with_the_replay_buffer_equals_the_original(tmp_path):
    def continued(agent, **operator):
        model = agent("MlpPolicy", cartpole(), **SMALL, learning_rate=1e-2, target_update_interval=60, **operator).learn(300)
        model.save(tmp_path / agent.__module__)
        model.save_replay_buffer(tmp_path / f"{agent.__module__}.pkl")
        loaded = agent.load(tmp_path / agent.__module__, env=cartpole(), device="cpu")
        assert same(model, loaded)
        loaded.load_replay_buffer(tmp_path / f"{agent.__module__}.pkl")
        assert loaded.replay_buffer.size() == 300
        loaded.learn(200, reset_num_timesteps=False)
        assert loaded.num_timesteps == 500
        assert not same(model, loaded)
        return loaded

    assert same(continued(stable_baselines3.DQN), continued(DQN, operator="bellman"))


def test_callbacks_see_the_same_as_with_the_original(tmp_path):
    def recorded(agent, **operator):
        folder = tmp_path / agent.__module__
        seen, env = [], cartpole()
        env.reset(seed=0)
        evaluation = EvalCallback(env, n_eval_episodes=2, eval_freq=100, log_path=str(folder), verbose=0, warn=False)
        saving = CheckpointCallback(150, str(folder), save_replay_buffer=True)
        losses = ConvertCallback(lambda local, _: seen.append(local["self"].logger.name_to_value.get("train/loss")) is None)
        agent("MlpPolicy", cartpole(), **SMALL, learning_rate=1e-2, **operator).learn(300, callback=[evaluation, saving, losses])
        assert {file.suffix for file in folder.iterdir()} == {".npz", ".pkl", ".zip"}
        return np.load(folder / "evaluations.npz")["results"].tolist(), seen

    theirs, ours = recorded(stable_baselines3.DQN), recorded(DQN, operator="bellman")
    assert ours == theirs
    assert len(theirs[0]) == 3
    assert len(set(theirs[1])) > 10


def test_progress_and_interruption_by_a_callback_are_the_originals():
    stop = ConvertCallback(lambda local, _: local["self"].num_timesteps < 120)
    assert small("al:0.9").learn(300, callback=stop).num_timesteps == 120


def batch(size=32, seed=0):
    """Transitions of CartPole's shape, half of which lead back to where they began."""
    rng = np.random.default_rng(seed)
    x, x_next = (torch.as_tensor(rng.standard_normal((size, 4)), dtype=torch.float32) for _ in range(2))
    back = torch.arange(size) % 2 == 0
    column = [torch.as_tensor(rng.standard_normal((size, 1)), dtype=torch.float32), torch.as_tensor(rng.random((size, 1)) < 0.3).float()]
    return SimpleNamespace(
        observations=x,
        next_observations=torch.where(back[:, None], x, x_next),
        actions=torch.as_tensor(rng.integers(0, 2, (size, 1))),
        rewards=column[0],
        dones=column[1],
        discounts=None,
        back=back,
    )


def direct(model, some, operator, returned):
    """The targets of a batch by `td_target` alone."""
    with torch.no_grad():
        q, q_next = model.q_net_target(some.observations), model.q_net_target(some.next_observations)
    discount = model.gamma * (1 - some.dones.flatten())
    return td_target(operator, q, some.actions.flatten(), some.rewards.flatten(), discount, q_next, returned=returned)


def test_a_state_is_returned_to_where_observations_are_equal():
    model, some = small("consistent"), batch()
    targets = model.targets(some)[:, 0]
    torch.testing.assert_close(targets, direct(model, some, "consistent", some.back))
    assert not torch.equal(targets, direct(model, some, "consistent", False))


def test_dictionaries_are_equal_where_all_their_parts_are():
    model = small("consistent", "MultiInputPolicy", SimpleMultiObsEnv(random_start=False)).learn(40)
    assert model.replay_buffer is not None
    some: Any = model.replay_buffer.sample(8)
    # A wall is run into: nothing changes. In the copy a single number of a single part does.
    still = some._replace(next_observations=some.observations, dones=torch.zeros_like(some.dones))
    moved = {name: part.clone() for name, part in some.observations.items()}
    moved["vec"][:, 0] += 1.0
    torch.testing.assert_close(model.targets(still)[:, 0], direct(model, still, "consistent", True))
    moving = still._replace(next_observations=moved)
    torch.testing.assert_close(model.targets(moving)[:, 0], direct(model, moving, "consistent", False))


@pytest.mark.parametrize("text", ["munchausen:0.03,0.9", "dpp:0.1"])
def test_operators_with_a_temperature(text):
    model, some = small(text), batch()
    torch.testing.assert_close(model.targets(some)[:, 0], direct(model, some, text, some.back))
    assert model.learn(100).operator == text


def test_stochastic_operators_sample_once_per_update_with_torch():
    model, some = small("rso:0,2"), batch()
    torch.manual_seed(5)
    u = torch.rand(()).item()
    torch.manual_seed(5)
    first, second = model.targets(some)[:, 0], model.targets(some)[:, 0]
    torch.testing.assert_close(first, direct(model, some, lambda b: b.bellman - 2 * u * b.gap, some.back))
    assert not torch.equal(first, second)


def test_deterministic_operators_leave_the_generator_unchanged():
    model = small("al:0.9")
    before = torch.random.get_rng_state()
    model.targets(batch())
    assert torch.equal(before, torch.random.get_rng_state())


def test_saved_and_loaded_with_its_operator_as_text(tmp_path):
    model = small("pal-dqn:0.9").learn(150)
    model.save(tmp_path / "agent")
    with zipfile.ZipFile(tmp_path / "agent.zip") as archive:
        saved = json.loads(archive.read("data"))
    assert saved["operator"] == "pal-dqn:0.9"
    assert "_operator" not in saved
    loaded = DQN.load(tmp_path / "agent", env=cartpole(), device="cpu")
    assert loaded.operator == "pal-dqn:0.9"
    assert same(model, loaded)
    assert torch.equal(model.targets(batch()), loaded.targets(batch()))
    assert not same(model, loaded.learn(100, reset_num_timesteps=False))
    other = DQN.load(tmp_path / "agent", device="cpu", operator="consistent")
    assert other.operator == "consistent"
    torch.testing.assert_close(other.targets(batch())[:, 0], direct(other, batch(), "consistent", batch().back))


def test_files_are_compatible_with_the_original(tmp_path):
    ours = small("al:0.5").learn(100)
    ours.save(tmp_path / "ours")
    original = stable_baselines3.DQN.load(tmp_path / "ours", device="cpu")
    assert same(ours, original)
    original.__dict__.pop("operator")
    original.save(tmp_path / "original")
    assert DQN.load(tmp_path / "original", device="cpu", operator="al:0.5").operator == "al:0.5"


def halfway(b):
    return 0.5 * b.q + 0.5 * b.bellman


def test_functions_must_be_passed_again_when_loading(tmp_path):
    model = small(halfway).learn(100)
    torch.testing.assert_close(model.targets(batch())[:, 0], direct(model, batch(), halfway, batch().back))
    model.save(tmp_path / "agent")
    with pytest.raises(ValueError, match=r"cannot be found: unknown operator 'halfway'.*DQN\.load\(path, operator=\.\.\.\)"):
        DQN.load(tmp_path / "agent", device="cpu")
    loaded = DQN.load(tmp_path / "agent", device="cpu", operator=halfway)
    assert torch.equal(model.targets(batch()), loaded.targets(batch()))


def test_the_action_gap_is_logged_with_the_original_values(tmp_path):
    logged = {}
    for agent, options in ((stable_baselines3.DQN, {}), (DQN, {"operator": "bellman"})):
        model = agent("MlpPolicy", cartpole(), **SMALL | options)
        model.set_logger(configure(str(tmp_path / agent.__module__), ["csv"]))
        model.learn(300, log_interval=1).logger.close()
        with open(tmp_path / agent.__module__ / "progress.csv") as file:
            logged[agent] = list(csv.DictReader(file))
    theirs, ours = logged[stable_baselines3.DQN], logged[DQN]
    assert set(ours[-1]) == {*theirs[-1], "train/action_gap"}
    assert [row["train/loss"] for row in ours] == [row["train/loss"] for row in theirs]
    assert float(ours[-1]["train/action_gap"]) > 0


def test_the_logged_gap_is_the_mean_difference_of_the_two_best_actions():
    model = small("al:0.9").learn(200)
    assert model.replay_buffer is not None
    np.random.seed(0)  # noqa: NPY002
    with torch.no_grad():
        q = model.q_net(model.replay_buffer.sample(64).observations).numpy()
    np.random.seed(0)  # noqa: NPY002
    model.train(1, 64)
    assert model.logger.name_to_value["train/action_gap"] == pytest.approx(np.abs(q[:, 0] - q[:, 1]).mean(), rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", ["DQN", "QRDQN"])
def test_advantage_learning_learns_cartpole(name):
    options: Any = {"batch_size": 64, "learning_rate": 1e-3, "train_freq": 4, "target_update_interval": 500, "learning_starts": 1000}
    options |= {"buffer_size": 20_000, "exploration_fraction": 0.4, "policy_kwargs": {"net_arch": [120, 84]}, "seed": 0, "device": "cpu"}
    if name == "QRDQN":
        pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed: pip install 'actiongap[sb3]'")
        options["policy_kwargs"]["n_quantiles"] = 25
    model = getattr(actiongap.sb3, name)("MlpPolicy", "CartPole-v1", operator="al:0.9", **options).learn(50_000)
    # The last hundred games, of which one in twenty actions is random. Random actions alone keep the pole up for some 22 steps.
    assert np.mean([game["r"] for game in model.ep_info_buffer]) > 100


@pytest.mark.parametrize(("operator", "said"), [("advantage", "unknown operator"), ("al", "al needs a number"), (3, "not of type int")])
def test_bad_operators_are_refused_in_a_sentence(operator, said):
    with pytest.raises(ValueError, match=said) as refused:
        DQN("MlpPolicy", "CartPole-v1", operator=operator)
    assert "\n" not in str(refused.value)


def in_a_process_of_its_own(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("agent", "package", "needs"), [("DQN", "stable_baselines3", "actiongap.sb3"), ("QRDQN", "sb3_contrib", "actiongap.sb3.QRDQN")]
)
def test_missing_packages_are_named_with_a_remedy(agent, package, needs):
    told = in_a_process_of_its_own(f"import sys; sys.modules['{package}'] = None; from actiongap.sb3 import {agent}").stderr.strip()
    assert told.splitlines()[-1] == f"ModuleNotFoundError: {needs} needs {package}: pip install 'actiongap[sb3]'"


def test_jax_is_not_imported():
    assert in_a_process_of_its_own("import sys; from actiongap.sb3 import DQN; print('jax' in sys.modules)").stdout.strip() == "False"


def quantile_agents(operator, **options):
    """sb3-contrib's QR-DQN and ours, as functions that make them."""
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed: pip install 'actiongap[sb3]'")
    from actiongap.sb3 import QRDQN

    def make(agent, **chosen):
        # A dictionary of its own for each, since the original writes into it.
        return agent("MlpPolicy", cartpole(max_episode_steps=12), **SMALL | options | {"policy_kwargs": {"n_quantiles": 20}}, **chosen)

    return lambda: make(contrib.QRDQN), lambda: make(QRDQN, operator=operator)


def test_quantiles_under_the_bellman_operator_are_the_originals_bit_for_bit():
    options = {"target_update_interval": 60, "learning_rate": 1e-3}
    original, ours = (make().learn(600) for make in quantile_agents("bellman", **options))
    assert same(original, ours)
    assert not same(original, quantile_agents("al:0.9", **options)[1]().learn(600))


@pytest.mark.parametrize("text", ["consistent", "al:0.9", "pal-dqn:0.9", "munchausen:0.03,0.9"])
def test_target_quantiles_have_the_operators_target_as_mean_and_the_spread_of_the_bellman_operator(text):
    model = quantile_agents(text, learning_rate=1e-3)[1]().learn(200)
    some = batch()
    with torch.no_grad():
        quantiles, later = model.quantile_net_target(some.observations), model.quantile_net_target(some.next_observations)
    discount = model.gamma * (1 - some.dones)
    q, next_q = quantiles.mean(1), later.mean(1)
    aim = td_target(text, q, some.actions[:, 0], some.rewards[:, 0], discount[:, 0], next_q, returned=some.back)
    targets = model.targets(some)
    torch.testing.assert_close(targets.mean(1), aim, rtol=1e-4, atol=1e-5)
    best = torch.stack([later[i, :, next_q[i].argmax()] for i in range(len(later))])
    spread = discount * (best - best.mean(1, keepdim=True))
    torch.testing.assert_close(targets - targets.mean(1, keepdim=True), spread, rtol=1e-4, atol=1e-5)


def test_quantile_agents_keep_their_operator_when_saved(tmp_path):
    model = quantile_agents("al:0.9")[1]().learn(100)
    model.save(tmp_path / "agent")
    loaded = type(model).load(tmp_path / "agent", device="cpu")
    assert (loaded.operator, same(model, loaded)) == ("al:0.9", True)
    assert torch.equal(model.targets(batch()), loaded.targets(batch()))
