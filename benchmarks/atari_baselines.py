"""The baseline for an agent on Atari: DQN as a plain loop in PyTorch in the style of CleanRL.

It has the same configuration as ours: the network of the Nature paper, centred RMSProp, the Huber loss, the same batch size and number of
gradient steps, and the same number of games, in ale-py's own vector environment on all cores. The environment stacks frames. The replay
buffer is a NumPy array that holds every stack once; the next observation is in the next row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from actiongap.dqn.config import Config
from actiongap.dqn.networks import LARGE, LARGE_HIDDEN
from benchmarks.deep_baselines import RMSPROP, Advance, gradient_step


def network(stack: int, actions: int) -> Any:
    """Return the network of the Nature paper in PyTorch, from bytes (batch, stack, 84, 84) to values (batch, actions)."""
    from torch import nn

    class Rescale(nn.Module):
        def forward(self, stacks: Any) -> Any:
            return stacks.float() / 255

    layers, channels, side = [Rescale()], stack, 84
    for layer in LARGE:
        layers += [nn.Conv2d(channels, layer.filters, layer.kernel, layer.stride), nn.ReLU()]
        channels, side = layer.filters, layer.output_side(side)
    (hidden,) = LARGE_HIDDEN
    layers += [nn.Flatten(), nn.Linear(channels * side * side, hidden), nn.ReLU(), nn.Linear(hidden, actions)]
    return nn.Sequential(*layers)


def make_games(name: str, config: Config, threads: int) -> Any:
    """Return the games in ale-py's vector environment, with autoreset in the same step."""
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode

    return AtariVectorEnv(
        name,
        config.num_envs,
        num_threads=min(threads, config.num_envs),
        repeat_action_probability=config.repeat_action_probability,
        autoreset_mode=AutoresetMode.SAME_STEP,
        stack_num=config.frame_stack,
        noop_max=30,
        episodic_life=False,
        reward_clipping=config.clip_rewards,
        use_fire_reset=False,
    )


def in_pytorch(name: str, config: Config, threads: int) -> Advance:
    """Return a function that trains for a number of iterations: a step of all games, and the gradient steps after it."""
    import torch

    games = make_games(name, config, threads)
    actions, rng = int(games.single_action_space.n), np.random.default_rng(0)
    online, target = (network(config.frame_stack, actions) for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.RMSprop(online.parameters(), lr=config.learning_rate, **RMSPROP)
    num_envs, rows = config.num_envs, config.buffer_size // config.num_envs
    stacks = np.zeros((rows, num_envs, config.frame_stack, 84, 84), np.uint8)
    taken = np.zeros((rows, num_envs), np.int64)
    rewards, terminals = np.zeros((rows, num_envs), np.float32), np.zeros((rows, num_envs), np.float32)
    x, _ = games.reset(seed=0)
    step = 0

    def act() -> Any:
        with torch.no_grad():
            best = online(torch.as_tensor(x)).argmax(dim=1).numpy()
        return np.where(rng.random(num_envs) < config.final_epsilon, rng.integers(actions, size=num_envs), best)

    def learn() -> None:
        age, env = rng.integers(1, min(step, rows), size=config.batch_size), rng.integers(num_envs, size=config.batch_size)
        row = (step - age) % rows
        x_tm1, x_t = torch.as_tensor(stacks[row, env]), torch.as_tensor(stacks[(row + 1) % rows, env])
        gradient_step(online, target, optimizer, config.gamma, x_tm1, x_t, taken[row, env], rewards[row, env], terminals[row, env])

    def train(iterations: int) -> None:
        nonlocal x, step
        for _ in range(iterations):
            row, action = step % rows, act()
            stacks[row], taken[row] = x, action
            x, rewards[row], terminated, truncated, _ = games.step(action)
            terminals[row] = terminated | truncated
            step += 1
            stacks[step % rows] = x
            if step * num_envs >= config.learning_starts:
                for _ in range(config.gradient_steps):
                    learn()
            if step % max(config.target_update_interval // num_envs, 1) == 0:
                target.load_state_dict(online.state_dict())

    return train
