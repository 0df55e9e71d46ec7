"""What an agent on Atari is measured against: DQN as a plain loop in PyTorch, in the manner of CleanRL.

It does what ours does with the same settings: the network of the Nature paper, centred RMSProp, Huber's loss, as many gradient steps of as
many transitions a step, and as many games at once, in ale-py's own vector environment on all cores. That puts frames into stacks; memory is
NumPy's and keeps every stack once, the next of which is one row further.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from actiongap.dqn.config import Settings
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


def games_of(name: str, settings: Settings, threads: int) -> Any:
    """The settings' number of games in ale-py's vector environment, which begins another in the step that ends one."""
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode

    return AtariVectorEnv(
        name,
        settings.environments,
        num_threads=min(threads, settings.environments),
        repeat_action_probability=settings.sticky,
        autoreset_mode=AutoresetMode.SAME_STEP,
        stack_num=settings.stack,
        noop_max=30,
        episodic_life=False,
        reward_clipping=settings.clip,
        use_fire_reset=False,
    )


def in_pytorch(name: str, settings: Settings, threads: int) -> Going:
    """Trains on for so many rounds, each a step of all games and the gradient steps that follow it."""
    import torch

    games = games_of(name, settings, threads)
    actions, rng = int(games.single_action_space.n), np.random.default_rng(0)
    online, target = (network(settings.stack, actions) for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimiser = torch.optim.RMSprop(online.parameters(), lr=settings.rate, **RMSPROP)
    slots, many = settings.replay // settings.environments, settings.environments
    stacks = np.zeros((slots, many, settings.stack, 84, 84), np.uint8)
    chosen = np.zeros((slots, many), np.int64)
    rewards, ends = np.zeros((slots, many), np.float32), np.zeros((slots, many), np.float32)
    x, _ = games.reset(seed=0)
    clock = 0

    def act() -> Any:
        with torch.no_grad():
            best = online(torch.as_tensor(x)).argmax(dim=1).numpy()
        return np.where(rng.random(many) < settings.epsilon, rng.integers(actions, size=many), best)

    def learn() -> None:
        back, which = rng.integers(1, min(clock, slots), size=settings.batch), rng.integers(many, size=settings.batch)
        row = (clock - back) % slots
        before, after = (torch.as_tensor(stacks[some, which]) for some in (row, (row + 1) % slots))
        descend(online, target, optimiser, settings.gamma, before, after, [part[row, which] for part in (chosen, rewards, ends)])

    def train(rounds: int) -> None:
        nonlocal x, clock
        for _ in range(rounds):
            slot, action = clock % slots, act()
            stacks[slot], chosen[slot] = x, action
            x, rewards[slot], over, cut, _ = games.step(action)
            ends[slot] = over | cut
            clock += 1
            stacks[clock % slots] = x
            if clock * many >= settings.learn_after:
                for _ in range(settings.updates):
                    learn()
            if clock % max(settings.target_every // many, 1) == 0:
                target.load_state_dict(online.state_dict())

    return train
