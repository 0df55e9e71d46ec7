"""What an agent on Atari is measured against: DQN as a plain loop in PyTorch, in the manner of CleanRL.

It does what ours does with the same settings: the network of the Nature paper, centred RMSProp, Huber's loss, as many gradient steps of as
many transitions a step, and as many games at once, in ale-py's own vector environment on all cores. That puts frames into stacks; memory is
NumPy's and keeps every stack once, the next of which is one row further.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from actiongap.dqn.config import Config
from actiongap.dqn.networks import LARGE, LARGE_HIDDEN
from benchmarks.deep_baselines import RMSPROP, Going, descend


def network(stack: int, actions: int) -> Any:
    """The network of the Nature paper in PyTorch, from bytes (batch, stack, 84, 84) to values (batch, actions)."""
    from torch import nn

    class Unit(nn.Module):
        def forward(self, stacks: Any) -> Any:
            return stacks.float() / 255

    layers, channels, side = [Unit()], stack, 84
    for layer in LARGE:
        layers += [nn.Conv2d(channels, layer.filters, layer.kernel, layer.stride), nn.ReLU()]
        channels, side = layer.filters, layer.across(side)
    (hidden,) = LARGE_HIDDEN
    layers += [nn.Flatten(), nn.Linear(channels * side * side, hidden), nn.ReLU(), nn.Linear(hidden, actions)]
    return nn.Sequential(*layers)


def games_of(name: str, config: Config, threads: int) -> Any:
    """The settings' number of games in ale-py's vector environment, which begins another in the step that ends one."""
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


def in_pytorch(name: str, config: Config, threads: int) -> Going:
    """Trains on for so many rounds, each a step of all games and the gradient steps that follow it."""
    import torch

    games = games_of(name, config, threads)
    actions, rng = int(games.single_action_space.n), np.random.default_rng(0)
    online, target = (network(config.frame_stack, actions) for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimiser = torch.optim.RMSprop(online.parameters(), lr=config.learning_rate, **RMSPROP)
    slots, many = config.buffer_size // config.num_envs, config.num_envs
    stacks = np.zeros((slots, many, config.frame_stack, 84, 84), np.uint8)
    chosen = np.zeros((slots, many), np.int64)
    rewards, ends = np.zeros((slots, many), np.float32), np.zeros((slots, many), np.float32)
    x, _ = games.reset(seed=0)
    clock = 0

    def act() -> Any:
        with torch.no_grad():
            best = online(torch.as_tensor(x)).argmax(dim=1).numpy()
        return np.where(rng.random(many) < config.final_epsilon, rng.integers(actions, size=many), best)

    def learn() -> None:
        back, which = rng.integers(1, min(clock, slots), size=config.batch_size), rng.integers(many, size=config.batch_size)
        row = (clock - back) % slots
        before, after = (torch.as_tensor(stacks[some, which]) for some in (row, (row + 1) % slots))
        descend(online, target, optimiser, config.gamma, before, after, [part[row, which] for part in (chosen, rewards, ends)])

    def train(rounds: int) -> None:
        nonlocal x, clock
        for _ in range(rounds):
            slot, action = clock % slots, act()
            stacks[slot], chosen[slot] = x, action
            x, rewards[slot], over, cut, _ = games.step(action)
            ends[slot] = over | cut
            clock += 1
            stacks[clock % slots] = x
            if clock * many >= config.learning_starts:
                for _ in range(config.gradient_steps):
                    learn()
            if clock % max(config.target_update_interval // many, 1) == 0:
                target.load_state_dict(online.state_dict())

    return train
