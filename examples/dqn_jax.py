"""A DQN with any operator, in one file of JAX: `python examples/dqn_jax.py --operator al:0.9 --seed 1`.

The operator is in one line, in `td_target`. For the same in PyTorch, see `dqn_torch.py`.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro

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

    observations: jax.Array | np.ndarray  # (n, size of an observation)
    actions: jax.Array | np.ndarray  # (n,)
    rewards: jax.Array | np.ndarray  # (n,)
    discounts: jax.Array | np.ndarray  # (n,)
    next_observations: jax.Array | np.ndarray  # (n, size of an observation)


class ReplayBuffer:
    """The last transitions, as arrays. A new transition replaces the oldest one."""

    def __init__(self, capacity: int, observation_size: int):
        self.observations = np.zeros((capacity, observation_size), np.float32)
        self.actions = np.zeros(capacity, np.int32)
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
        return Batch(self.observations[i], self.actions[i], self.rewards[i], self.discounts[i], self.next_observations[i])


def init_params(key: jax.Array, sizes: tuple[int, ...]):
    """Draw weights and biases of every layer uniformly between -1 / sqrt(inputs) and 1 / sqrt(inputs)."""
    params = []
    for inputs, outputs in pairwise(sizes):
        key, weights, biases = jax.random.split(key, 3)
        uniform = partial(jax.random.uniform, minval=-(inputs**-0.5), maxval=inputs**-0.5)
        params.append((uniform(weights, (inputs, outputs)), uniform(biases, (outputs,))))
    return params


def q_network(params, observations):
    *hidden, last = params
    x = observations
    for weights, biases in hidden:
        x = jax.nn.relu(x @ weights + biases)
    return x @ last[0] + last[1]


@jax.jit
def greedy_action(params, observation):
    return q_network(params, observation).argmax()


def td_target(args: Args, target_params, batch: Batch):
    """Compute what Q(x, a) is regressed on. Both Q(x, .) and Q(x', .) are the target network's."""
    q_tm1, q_t = q_network(target_params, batch.observations), q_network(target_params, batch.next_observations)  # (n, num_actions) each
    return ag.td_target(args.operator, q_tm1, batch.actions, batch.rewards, batch.discounts, q_t)  # (n,), the operator: change this line


@partial(jax.jit, static_argnames="args")
def update(args: Args, params, target_params, optimizer_state, batch: Batch):
    """Take one gradient step on the squared TD error. Return the new parameters and the new state of the optimizer."""

    def loss(params):
        q = q_network(params, batch.observations)[jnp.arange(len(batch.actions)), batch.actions]  # (n,), Q(x, a)
        return ((q - td_target(args, target_params, batch)) ** 2).mean()

    updates, optimizer_state = optax.adam(args.learning_rate).update(jax.grad(loss)(params), optimizer_state)
    return optax.apply_updates(params, updates), optimizer_state


def main(args: Args):
    """Train a DQN. Return its parameters and the return of every episode."""
    rng = np.random.default_rng(args.seed)
    env = gym.make(args.env_id)
    assert isinstance(env.observation_space, gym.spaces.Box), "observations must be vectors of numbers"
    assert isinstance(env.action_space, gym.spaces.Discrete), "actions must be discrete"
    (observation_size,), num_actions = env.observation_space.shape, int(env.action_space.n)

    params = init_params(jax.random.key(args.seed), (observation_size, 64, 64, num_actions))
    target_params = params
    optimizer_state = optax.adam(args.learning_rate).init(params)
    buffer = ReplayBuffer(args.buffer_size, observation_size)

    observation, _ = env.reset(seed=args.seed)
    returns, episode_return = [], 0.0
    for step in range(args.total_timesteps):
        if step % args.target_network_frequency == 0:
            target_params = params

        epsilon = np.interp(step, [0, args.exploration_fraction * args.total_timesteps], [1.0, args.final_epsilon])
        action = int(rng.integers(num_actions)) if rng.random() < epsilon else int(greedy_action(params, observation))
        next_observation, reward, terminated, truncated, _ = env.step(action)
        # Only termination sets the discount to 0. A truncated episode bootstraps from its final observation, stored before the reset.
        buffer.add(observation, action, reward, 0.0 if terminated else args.gamma, next_observation)
        observation, episode_return = next_observation, episode_return + float(reward)
        if terminated or truncated:
            returns.append(episode_return)
            observation, _ = env.reset()
            episode_return = 0.0

        if step >= args.learning_starts and step % args.train_frequency == 0:
            params, optimizer_state = update(args, params, target_params, optimizer_state, buffer.sample(rng, args.batch_size))
        if (step + 1) % args.log_frequency == 0 and returns:
            print(f"step {step + 1}, episode {len(returns)}, mean return of the last 20 episodes {np.mean(returns[-20:]):.1f}")
    env.close()
    return params, returns


if __name__ == "__main__":
    main(tyro.cli(Args))
