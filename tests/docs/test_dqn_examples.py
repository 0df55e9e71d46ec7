"""The two agents of examples/ that users copy: they learn, repeat, take any operator in one line, and bootstrap where they should."""

from __future__ import annotations

import ast
import importlib.util
import io
import re
import runpy
import shlex
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import actiongap as ag

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
NAMES = ["dqn_torch", "dqn_jax"]
OPERATORS = ["bellman", "al:0.9", "pal:0.5", "pal-dqn:0.9", "lazy:0.5", "munchausen:0.03,0.9"]
SHORT = {"total_timesteps": 600, "learning_starts": 100, "target_network_frequency": 100}
"""About 35 episodes and 125 gradient steps."""


@pytest.fixture(params=NAMES)
def example(request) -> ModuleType:
    """One of the two programs, as a module."""
    return load(request.param)


def load(name: str) -> ModuleType:
    package = "optax" if name == "dqn_jax" else "torch"
    pytest.importorskip(package, reason=f"{package} is not installed: pip install 'actiongap[{name.removeprefix('dqn_')}]'")
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train(example: ModuleType, **changes: Any) -> tuple[list[np.ndarray], list[float]]:
    """Run the program: the weights and biases of its network, layer by layer, and its returns."""
    network, returns = example.main(example.Args(**SHORT | changes))
    return weights(network), returns


def weights(network: Any) -> list[np.ndarray]:
    """Weights of shape (inputs, outputs) and biases, in turn."""
    if isinstance(network, list):
        return [np.asarray(array) for layer in network for array in layer]
    # A copy: the tensors change in place.
    return [parameter.detach().numpy().T.copy() for parameter in network.parameters()]


def forward(layers: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Q(x, .) by a network of these weights, in NumPy and double precision."""
    layers = [layer.astype(float) for layer in layers]
    for k in range(0, len(layers), 2):
        x = x @ layers[k] + layers[k + 1]
        x = np.maximum(x, 0.0) if k + 2 < len(layers) else x
    return x


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


@pytest.mark.parametrize("operator", ["bellman", "al:0.9"])
def test_a_short_run_learns(example, operator, capsys):
    changes = {"total_timesteps": 5000, "learning_starts": 500, "target_network_frequency": 200, "train_frequency": 2}
    _, returns = train(example, operator=operator, **changes)
    assert np.mean(returns[:20]) < 40
    # With seeds 1, 2 and 3 the mean was between 122 and 261.
    assert np.mean(returns[-10:]) > 80
    (line,) = capsys.readouterr().out.splitlines()
    assert line == f"step 5000, episode {len(returns)}, mean return of the last 20 episodes {np.mean(returns[-20:]):.1f}"


@pytest.mark.long
@pytest.mark.parametrize("operator", ["bellman", "al:0.9"])
def test_a_whole_run_learns(example, operator):
    _, returns = example.main(example.Args(operator=operator))
    # With seeds 1 to 5, Bellman and al:0.9, the mean was between 193 and 407.
    assert np.mean(returns[-20:]) > 150


def test_the_same_seed_repeats_the_run(example):
    network, returns = train(example)
    again, returns_again = train(example)
    assert returns == returns_again
    assert same(network, again)
    # The network has learned: before the first gradient step it is another.
    assert not same(network, train(example, learning_starts=600)[0])
    other, returns_other = train(example, seed=2)
    assert returns != returns_other
    assert not same(network, other)
    # The seed is also that of the network's initialization.
    assert not same(*(train(example, total_timesteps=1, seed=seed)[0] for seed in (1, 2)))


def test_operators_are_names_or_functions_in_files(example, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def plain(b):\n    return b.bellman\n\n\ndef half(b):\n    return b.bellman - 0.5 * (b.v - b.q)\n")
    bellman, half = train(example, operator="bellman"), train(example, operator="al:0.5")
    assert not same(bellman[0], half[0])
    for name, expected in {"plain": bellman, "half": half}.items():
        network, returns = train(example, operator=f"{file}:{name}")
        assert same(network, expected[0])
        assert returns == expected[1]


def test_unknown_operators_are_refused(example):
    with pytest.raises(ValueError, match=r"did you mean al:0\.9"):
        train(example, operator="al0.9")


def lines_that_name_the_operator(source: str) -> list[str]:
    """The lines of a program in which `operator` or something of ours is named, but for imports and the class of arguments."""
    (args,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "Args")
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    named = {token.start[0] for token in tokens if token.type == tokenize.NAME and token.string in ("operator", "ag")}
    lines = source.splitlines()
    outside = [number for number in sorted(named) if not args.lineno <= number <= (args.end_lineno or 0)]
    return [lines[number - 1] for number in outside if not lines[number - 1].startswith("import ")]


@pytest.mark.parametrize("name", NAMES)
def test_one_line_is_the_operator(name):
    source = (EXAMPLES / f"{name}.py").read_text()
    (line,) = lines_that_name_the_operator(source)
    assert "ag.td_target(args.operator, " in line
    assert line.endswith("the operator: change this line")
    assert len(source.splitlines()) < 200


def test_a_second_line_is_noticed():
    source = "import ag\nclass Args:\n    operator: str\ntarget = ag.td_target(args.operator)\nif args.operator == 'bellman':\n    pass\n"
    assert len(lines_that_name_the_operator(source)) == 2


def test_both_have_the_same_arguments():
    torch_args, jax_args = (asdict(load(name).Args()) for name in NAMES)
    assert torch_args == jax_args


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_has_a_docstring(name):
    classes = [node for node in ast.parse((EXAMPLES / f"{name}.py").read_text()).body if isinstance(node, ast.ClassDef)]
    body = next(node.body for node in classes if node.name == "Args")
    # The docstring of the class, then fields and docstrings in turn.
    for field, docstring in zip(body[1::2], body[2::2], strict=True):
        assert isinstance(field, ast.AnnAssign)
        assert isinstance(docstring, ast.Expr)
        assert isinstance(docstring.value, ast.Constant)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_target_is_the_operators(example, operator, monkeypatch):
    """The network is the identity, so the observations are the values."""
    args = example.Args(operator=operator)
    if hasattr(example, "q_network"):
        monkeypatch.setattr(example, "q_network", lambda params, x: x)

    def target(q_tm1, a_tm1, r_t, discount_t, q_t):
        return example.td_target(args, lambda x: x, example.Batch(q_tm1, a_tm1, r_t, discount_t, q_t))

    def swapped(q_tm1, a_tm1, r_t, discount_t, q_t):
        return target(q_t, a_tm1, r_t, discount_t, q_tm1)

    check = ag.check_target(target, operator)
    assert check, check
    assert not ag.check_target(swapped, operator)


def batch_of(example: ModuleType, observations: Any, actions: Any, rewards: Any, discounts: Any, next_observations: Any) -> Any:
    """Transitions as the replay buffer returns them: all that it has, in any order, some twice."""
    buffer = example.ReplayBuffer(len(actions), observations.shape[1])
    for transition in zip(observations, actions, rewards, discounts, next_observations, strict=True):
        buffer.add(*transition)
    return buffer.sample(np.random.default_rng(3), 4 * len(actions))


def learner(example: ModuleType, online: list[np.ndarray], target: list[np.ndarray], args: Any) -> Any:
    """The update of a program as a function of a batch, which returns the weights after it."""
    if example.__name__ == "dqn_torch":
        import torch

        networks = []
        for layers in (online, target):
            network = example.make_q_network(layers[0].shape[0], layers[-1].shape[0])
            for parameter, layer in zip(network.parameters(), layers, strict=True):
                parameter.data = torch.from_numpy(layer.T.copy())
            networks.append(network)
        optimizer = torch.optim.Adam(networks[0].parameters(), lr=args.learning_rate)

        def update(batch):
            example.update(args, *networks, optimizer, batch)
            return weights(networks[0])
    else:
        import optax

        params, target_params = (list(zip(layers[::2], layers[1::2], strict=True)) for layers in (online, target))
        state = [params, optax.adam(args.learning_rate).init(params)]

        def update(batch):
            state[:] = example.update(args, state[0], target_params, state[1], batch)
            return weights(state[0])

    return update


def random_layers(rng: np.random.Generator) -> list[np.ndarray]:
    shapes = (4, 64), (64,), (64, 64), (64,), (64, 3), (3,)
    return [rng.uniform(-0.3, 0.3, shape).astype(np.float32) for shape in shapes]


def transitions(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    x, next_x = rng.normal(size=(2, 6, 4)).astype(np.float32)
    return x, rng.integers(3, size=6), rng.normal(size=6).astype(np.float32), np.array([0.9, 0.0] * 3, np.float32), next_x


def test_the_online_network_learns_the_target_of_the_target_network(example):
    rng = np.random.default_rng(0)
    online, target, (x, a, r, discount, next_x) = random_layers(rng), random_layers(rng), transitions(rng)
    update = learner(example, online, target, example.Args(operator="al:0.9", learning_rate=3e-3))
    batch = batch_of(example, x, a, r, discount, next_x)
    learned = [update(batch) for _ in range(400)][-1]
    # Advantage learning by hand: r + gamma max_b Q(x', b) - 0.9 (max_b Q(x, b) - Q(x, a)), all by the target network.
    q = forward(target, x)
    expected = r + discount * forward(target, next_x).max(axis=1) - 0.9 * (q.max(axis=1) - q[range(6), a])
    assert np.ptp(expected) > 1
    np.testing.assert_allclose(forward(learned, x)[range(6), a], expected, atol=0.02)


@pytest.mark.parametrize("operator", ["bellman", "al:0.9"])
def test_both_take_the_same_gradient_steps(operator):
    examples = [load(name) for name in NAMES]
    rng = np.random.default_rng(1)
    online, target, batch = random_layers(rng), random_layers(rng), transitions(rng)
    updates = [learner(example, online, target, example.Args(operator=operator)) for example in examples]
    before = online
    for _ in range(5):
        after, theirs = (update(batch_of(example, *batch)) for update, example in zip(updates, examples, strict=True))
        for k in range(len(after)):
            np.testing.assert_allclose(after[k], theirs[k], atol=1e-5)
        assert not same(after, before)
        before = after


class Clock(gymnasium.Env):
    """Observe how many steps the episode has, or always 1; a step pays 1. The episode terminates after `ends` steps, if at all."""

    def __init__(self, ends: int | None = None, constant: bool = False):
        self.observation_space, self.action_space = spaces.Box(0.0, 9.0, (1,)), spaces.Discrete(2)
        self.ends, self.constant = ends, constant

    def observed(self) -> np.ndarray:
        return np.array([1.0 if self.constant else self.time], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observed(), {}

    def step(self, action):
        self.time += 1
        return self.observed(), 1.0, self.time == self.ends, False, {}


@pytest.fixture
def clocks() -> Iterator[None]:
    """Environments whose episodes of three steps, or of one, terminate or are truncated."""
    ids = {
        "Terminated-v0": ({"ends": 3}, None),
        "Truncated-v0": ({}, 3),
        "Both-v0": ({"ends": 3}, 3),
        "TerminatedAtOnce-v0": ({"ends": 1, "constant": True}, None),
        "TruncatedAtOnce-v0": ({"constant": True}, 1),
    }
    for name, (keywords, limit) in ids.items():
        gymnasium.register(name, partial(Clock, **keywords), max_episode_steps=limit)
    yield
    for name in ids:
        del gymnasium.registry[name]


@pytest.mark.parametrize(("env", "last"), [("Terminated-v0", 0.0), ("Truncated-v0", 0.5), ("Both-v0", 0.0)])
def test_only_termination_sets_the_discount_to_zero(example, env, last, clocks, monkeypatch):
    stored = []

    class Recorder(example.ReplayBuffer):
        def add(self, observation, action, reward, discount, next_observation):
            stored.append((float(observation[0]), reward, discount, float(next_observation[0])))
            super().add(observation, action, reward, discount, next_observation)

    monkeypatch.setattr(example, "ReplayBuffer", Recorder)
    _, returns = train(example, env_id=env, gamma=0.5, total_timesteps=12, learning_starts=4)
    # The next observation is the last of its episode, 3, and not the first of the next one, 0.
    assert stored == [(0.0, 1.0, 0.5, 1.0), (1.0, 1.0, 0.5, 2.0), (2.0, 1.0, last, 3.0)] * 4
    assert returns == [3.0] * 4


@pytest.mark.parametrize(("env", "value"), [("TerminatedAtOnce-v0", 1.0), ("TruncatedAtOnce-v0", 2.0)])
def test_values_bootstrap_where_an_episode_is_truncated(example, env, value, clocks):
    """A step pays 1 and leads back to where it began: it is worth 1 if it is the last, and 1 / (1 - 0.5) if it only was truncated."""
    changes = {"env_id": env, "gamma": 0.5, "operator": "bellman", "target_network_frequency": 50, "train_frequency": 1}
    network, _ = train(example, **changes)
    np.testing.assert_allclose(forward(network, np.ones(1)), value, atol=0.05)


def test_the_replay_buffer_replaces_the_oldest(example):
    buffer = example.ReplayBuffer(4, 1)
    rng = np.random.default_rng(0)
    for k in range(6):
        buffer.add([k], k % 2, 10.0 * k, 0.9, [k + 1])
        sampled = buffer.sample(rng, 200)
        steps = np.unique(np.asarray(sampled.observations))
        assert steps.tolist() == list(range(max(k - 3, 0), k + 1))
        # The parts of a transition stay together.
        np.testing.assert_array_equal(np.asarray(sampled.rewards), 10.0 * np.asarray(sampled.observations)[:, 0])
        np.testing.assert_array_equal(np.asarray(sampled.actions), np.asarray(sampled.observations)[:, 0] % 2)
        np.testing.assert_array_equal(np.asarray(sampled.next_observations), np.asarray(sampled.observations) + 1)


def shown() -> list[str]:
    """The commands of the page that run the two programs."""
    return re.findall(r"^\$ (python examples/dqn_\w+\.py.*)$", PAGE.read_text(), flags=re.MULTILINE)


def test_the_page_shows_commands():
    assert {name for command in shown() for name in NAMES if name in command} == set(NAMES)


@pytest.mark.parametrize("command", shown())
def test_the_commands_of_the_page_run(command, monkeypatch, capsys):
    _, path, *arguments = shlex.split(command)
    monkeypatch.chdir(EXAMPLES.parent)
    load(path.removeprefix("examples/").removesuffix(".py"))
    short = ["--total-timesteps", "300", "--learning-starts", "100", "--log-frequency", "100"]
    monkeypatch.setattr(sys, "argv", [path, *arguments, *short])
    runpy.run_path(path, run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in printed] == ["step 100", "step 200", "step 300"]
