"""The lines that documentation offers for CleanRL's agents, in an agent of the same make: one file, one loop, and it learns CartPole.

The lines are read from the page and run as they stand. What is around them is the least that a DQN needs, with the names that CleanRL
gives to things: a replay buffer of arrays, an online and a target network, and epsilon-greedy play.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'actiongap[torch]'")

import actiongap as ag  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
args = SimpleNamespace(gamma=0.99, buffer_size=20_000, batch_size=64, learning_rate=1e-3, train_frequency=4, target_network_frequency=500)


def lines(beginning: str, operator: str) -> str:
    """A block of CleanRL's section from the line on that begins so, with an operator of one's choice."""
    (section,) = re.findall(r"^## CleanRL\n(.*?)(?=^## )", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    (block,) = re.findall(rf"^{re.escape(beginning)}.*?(?=^```)", section, flags=re.MULTILINE | re.DOTALL)
    assert block.count('"al:0.9"') == 1
    return block.replace('"al:0.9"', f'"{operator}"')


def documented(operator: str) -> Any:
    """The target as the page has it."""
    code = compile(lines("with torch.no_grad():", operator), str(PAGE), "exec")

    def target(target_network: Any, data: Any) -> Any:
        scope = {"ag": ag, "torch": torch, "args": args, "target_network": target_network, "data": data}
        exec(code, scope)
        return scope["td_target"]

    return target


def plain(target_network: Any, data: Any) -> Any:
    """The target of a plain DQN."""
    with torch.no_grad():
        best = target_network(data.next_observations).max(dim=1).values
        return data.rewards.flatten() + args.gamma * best * (1 - data.dones.flatten())


def trained(target: Any, steps: int, learning_starts: int, seed: int = 1) -> tuple[Any, list[float]]:
    """Return a network after `steps` steps of CartPole, and the returns of its episodes."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gymnasium.make("CartPole-v1")
    q_network, target_network = (torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)) for _ in range(2))
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)
    memory = np.zeros((args.buffer_size, 11), np.float32)
    obs, _ = env.reset(seed=seed)
    returns = [0.0]
    for step in range(steps):
        epsilon = max(1 - 0.95 * step / (0.4 * steps), 0.05)
        with torch.no_grad():
            action = int(rng.integers(2)) if rng.random() < epsilon else int(q_network(torch.as_tensor(obs)).argmax())
        next_obs, reward, terminated, truncated, _ = env.step(action)
        memory[step % args.buffer_size] = np.concatenate([obs, next_obs, [action, reward, terminated]])
        returns[-1] += float(reward)
        obs = next_obs
        if terminated or truncated:
            obs, _ = env.reset()
            returns.append(0.0)
        if step > learning_starts and step % args.train_frequency == 0:
            rows = torch.as_tensor(memory[rng.integers(min(step + 1, args.buffer_size), size=args.batch_size)])
            x, next_x, a, r, d = rows[:, :4], rows[:, 4:8], rows[:, 8:9].long(), rows[:, 9:10], rows[:, 10:]
            data = SimpleNamespace(observations=x, next_observations=next_x, actions=a, rewards=r, dones=d)
            td_target = target(target_network, data)
            old_val = q_network(data.observations).gather(1, data.actions).squeeze()
            loss = torch.nn.functional.mse_loss(td_target, old_val)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % args.target_network_frequency == 0:
            target_network.load_state_dict(q_network.state_dict())
    return q_network, returns[:-1]


def test_with_the_bellman_operator_nothing_changes():
    (mine, returns), (theirs, expected) = trained(documented("bellman"), 800, 200), trained(plain, 800, 200)
    assert returns == expected
    assert all(map(torch.equal, mine.parameters(), theirs.parameters()))
    assert trained(documented("al:0.9"), 800, 200)[1] != expected


@pytest.mark.long
def test_advantage_learning_learns_cartpole():
    _, returns = trained(documented("al:0.9"), 50_000, 1000)
    assert np.mean(returns[:20]) < 50
    # With seeds 1, 2 and 3 it was 463, 474 and 385.
    assert np.mean(returns[-20:]) > 200
