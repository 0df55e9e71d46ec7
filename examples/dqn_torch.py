"""A DQN with any operator, in one file of PyTorch: `python examples/dqn_torch.py --operator al:0.9 --seed 1`.

The operator is in one line, in `td_target`. For the same in JAX, see `dqn_jax.py`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
import tyro
from torch import nn

import actiongap as ag


@dataclass(frozen=True)
class Args:
    """A DQN with any operator."""

    env_id: str = "CartPole-v1"
    """Gymnasium environment with vector observations and discrete actions."""
    operator: str = "al:0.9"
    """Operator of the target: bellman, al:ALPHA, pal:ALPHA, ..., or your own function as path/to/file.py:name."""
    seed: int = 1
    """Seed of the environment, the networks, the exploration and the replay buffer. The same seed repeats the run."""
    total_timesteps: int = 50_000
    """Number of environment steps."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    buffer_size: int = 20_000
    """Number of transitions in the replay buffer."""
    gamma: float = 0.99
    """Discount factor."""
    target_network_frequency: int = 500
    """Environment steps per update of the target network."""
    batch_size: int = 64
    """Number of transitions per gradient step."""
    exploration_fraction: float = 0.4
    """Fraction of total_timesteps during which epsilon falls from 1 to final_epsilon."""
    final_epsilon: float = 0.05
    """Probability of a random action after that."""
    learning_starts: int = 1_000
    """Number of environment steps before the first gradient step."""
    train_frequency: int = 4
    """Environment steps per gradient step."""
    log_frequency: int = 5_000
    """Environment steps per printed line."""


class Batch(NamedTuple):
    """Transitions. There is no done flag: the discount is 0 where the episode terminated, and gamma elsewhere."""

    observations: torch.Tensor  # (n, size of an observation)
    actions: torch.Tensor  # (n,)
    rewards: torch.Tensor  # (n,)
    discounts: torch.Tensor  # (n,)
    next_observations: torch.Tensor  # (n, size of an observation)


class ReplayBuffer:
    """The last transitions, as arrays. A new transition replaces the oldest one."""

    def __init__(self, capacity: int, observation_size: int):
        self.observations = np.zeros((capacity, observation_size), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.discounts = np.zeros(capacity, np.float32)
        self.next_observations = np.zeros((capacity, observation_size), np.float32)
        self.capacity, self.added = capacity, 0

    def add(self, observation, action, reward, discount, next_observation):
        i = self.added % self.capacity
        self.observations[i], self.actions[i], self.rewards[i] = observation, action, reward
        self.discounts[i], self.next_observations[i] = discount, next_observation
        self.added += 1

    def sample(self, rng: np.random.Generator, batch_size: int) -> Batch:
        i = rng.integers(min(self.added, self.capacity), size=batch_size)
        arrays = self.observations, self.actions, self.rewards, self.discounts, self.next_observations
        return Batch(*(torch.from_numpy(array[i]) for array in arrays))


def make_q_network(observation_size: int, num_actions: int) -> nn.Module:
    return nn.Sequential(nn.Linear(observation_size, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, num_actions))


def td_target(args: Args, target_network, batch: Batch) -> torch.Tensor:
    """Compute what Q(x, a) is regressed on. Both Q(x, .) and Q(x', .) are the target network's."""
    with torch.no_grad():
        q_tm1, q_t = target_network(batch.observations), target_network(batch.next_observations)  # (n, num_actions) each
    return ag.td_target(args.operator, q_tm1, batch.actions, batch.rewards, batch.discounts, q_t)  # (n,), the operator: change this line


def update(args: Args, q_network, target_network, optimizer, batch: Batch):
    """Take one gradient step on the squared TD error."""
    q = q_network(batch.observations).gather(1, batch.actions[:, None])[:, 0]  # (n,), Q(x, a)
    loss = nn.functional.mse_loss(q, td_target(args, target_network, batch))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main(args: Args) -> tuple[nn.Module, list[float]]:
    """Train a DQN. Return its network and the return of every episode."""
    # Networks this small are slower on several threads.
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    env = gym.make(args.env_id)
    assert isinstance(env.observation_space, gym.spaces.Box), "observations must be vectors of numbers"
    assert isinstance(env.action_space, gym.spaces.Discrete), "actions must be discrete"
    (observation_size,), num_actions = env.observation_space.shape, int(env.action_space.n)

    q_network, target_network = make_q_network(observation_size, num_actions), make_q_network(observation_size, num_actions)
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)
    buffer = ReplayBuffer(args.buffer_size, observation_size)

    observation, _ = env.reset(seed=args.seed)
    returns, episode_return = [], 0.0
    for step in range(args.total_timesteps):
        if step % args.target_network_frequency == 0:
            target_network.load_state_dict(q_network.state_dict())

        epsilon = np.interp(step, [0, args.exploration_fraction * args.total_timesteps], [1.0, args.final_epsilon])
        if rng.random() < epsilon:
            action = int(rng.integers(num_actions))
        else:
            with torch.no_grad():
                action = int(q_network(torch.as_tensor(observation, dtype=torch.float32)).argmax())
        next_observation, reward, terminated, truncated, _ = env.step(action)
        # Only termination sets the discount to 0. A truncated episode bootstraps from its final observation, stored before the reset.
        buffer.add(observation, action, reward, 0.0 if terminated else args.gamma, next_observation)
        observation, episode_return = next_observation, episode_return + float(reward)
        if terminated or truncated:
            returns.append(episode_return)
            observation, _ = env.reset()
            episode_return = 0.0

        if step >= args.learning_starts and step % args.train_frequency == 0:
            update(args, q_network, target_network, optimizer, buffer.sample(rng, args.batch_size))
        if (step + 1) % args.log_frequency == 0 and returns:
            print(f"step {step + 1}, episode {len(returns)}, mean return of the last 20 episodes {np.mean(returns[-20:]):.1f}")
    env.close()
    return q_network, returns


if __name__ == "__main__":
    main(tyro.cli(Args))
