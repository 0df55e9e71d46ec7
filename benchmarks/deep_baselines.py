"""Baselines for deep agents and their games: Stable-Baselines3, a plain loop in PyTorch, pgx, gymnax, and the original MinAtar.

The agents have the same configuration as ours: the network of the MinAtar paper, centred RMSProp, the Huber loss, the same number of
gradient steps per frame, and a replay buffer of the same size. They play the original MinAtar, which is written in NumPy. Each baseline is
a function that trains for a number of further frames. Games are functions that make a number of further steps. Those in JAX step many games
at once in one compiled loop, and write the observation after every step, as an agent would need it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from actiongap.dqn.config import Config
from actiongap.dqn.networks import SMALL, SMALL_HIDDEN

Advance = Callable[[int], Any]
"""Advances by a number of frames or steps."""
RMSPROP = {"alpha": 0.95, "eps": 0.01, "centered": True}
"""The optimizer of the faithful preset, with the names of PyTorch."""
(CONVOLUTION,), (HIDDEN,) = SMALL, SMALL_HIDDEN


def original(game: str, sticky: float = 0.1) -> Any:
    """Return the original game as a Gymnasium env with its minimal action set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from minatar.gym import BaseEnv

        return BaseEnv(game, use_minimal_action_set=True, sticky_action_prob=sticky)


def convolution(shape: tuple[int, ...]) -> Any:
    """Return the first layer in PyTorch, from boards (batch, rows, columns, channels) to flat features."""
    from torch import nn

    class ChannelsFirst(nn.Module):
        def forward(self, boards: Any) -> Any:
            return boards.permute(0, 3, 1, 2)

    return nn.Sequential(ChannelsFirst(), nn.Conv2d(shape[-1], CONVOLUTION.filters, CONVOLUTION.kernel), nn.ReLU(), nn.Flatten())


def stable_baselines(game: str, config: Config) -> Advance:
    """Return Stable-Baselines3's DQN. It always clips gradients; the maximum norm here is never reached."""
    import torch
    from stable_baselines3 import DQN  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor  # pyright: ignore[reportMissingImports]
    from torch import nn

    class Boards(BaseFeaturesExtractor):
        def __init__(self, space: Any) -> None:
            rows, columns, _ = space.shape
            super().__init__(space, CONVOLUTION.output_side(rows) * CONVOLUTION.output_side(columns) * CONVOLUTION.filters)
            self.layers: nn.Module = convolution(space.shape)

        def forward(self, observations: Any) -> Any:
            return self.layers(observations)

    policy = {
        "features_extractor_class": Boards,
        "net_arch": [HIDDEN],
        "optimizer_class": torch.optim.RMSprop,
        "optimizer_kwargs": RMSPROP,
    }
    agent = DQN(
        "MlpPolicy",
        original(game, config.repeat_action_probability),
        learning_rate=config.learning_rate,
        buffer_size=config.buffer_size,
        learning_starts=config.learning_starts,
        batch_size=config.batch_size,
        gamma=config.gamma,
        train_freq=1,
        gradient_steps=config.gradient_steps,
        target_update_interval=config.target_update_interval,
        exploration_initial_eps=config.final_epsilon,
        exploration_final_eps=config.final_epsilon,
        max_grad_norm=1e9,
        policy_kwargs=policy,
        device="cpu",
        seed=0,
    )
    return lambda frames: agent.learn(frames, reset_num_timesteps=False)


def in_pytorch(game: str, config: Config) -> Advance:
    """Return DQN as a plain loop in PyTorch in the style of CleanRL: act, add, sample, learn."""
    import torch
    from torch import nn

    env = original(game, config.repeat_action_probability)
    shape, actions = env.observation_space.shape, int(env.action_space.n)
    flat = CONVOLUTION.output_side(shape[0]) * CONVOLUTION.output_side(shape[1]) * CONVOLUTION.filters
    online, target = (nn.Sequential(convolution(shape), nn.Linear(flat, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, actions)) for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.RMSprop(online.parameters(), lr=config.learning_rate, **RMSPROP)
    rng, size = np.random.default_rng(0), config.buffer_size
    observations, next_observations = np.zeros((size, *shape), bool), np.zeros((size, *shape), bool)
    taken, rewards, terminals = np.zeros(size, np.int64), np.zeros(size, np.float32), np.zeros(size, np.float32)
    x, _ = env.reset(seed=0)
    frame = 0

    def act() -> int:
        if rng.random() < config.final_epsilon:
            return int(rng.integers(actions))
        with torch.no_grad():
            return int(online(torch.as_tensor(x, dtype=torch.float32)[None]).argmax())

    def learn() -> None:
        index = rng.integers(min(frame + 1, size), size=config.batch_size)
        x_tm1, x_t = (torch.as_tensor(part[index], dtype=torch.float32) for part in (observations, next_observations))
        gradient_step(online, target, optimizer, config.gamma, x_tm1, x_t, taken[index], rewards[index], terminals[index])

    def train(frames: int) -> None:
        nonlocal x, frame
        for _ in range(frames):
            action = act()
            next_x, reward, terminated, _, _ = env.step(action)
            row = frame % size
            observations[row], next_observations[row] = x, next_x
            taken[row], rewards[row], terminals[row] = action, reward, terminated
            x = env.reset()[0] if terminated else next_x
            if frame >= config.learning_starts:
                for _ in range(config.gradient_steps):
                    learn()
                if frame % config.target_update_interval == 0:
                    target.load_state_dict(online.state_dict())
            frame += 1

    return train


def gradient_step(
    online: Any,
    target: Any,
    optimizer: Any,
    gamma: float,
    x_tm1: Any,
    x_t: Any,
    actions: np.ndarray,
    rewards: np.ndarray,
    terminals: np.ndarray,
) -> None:
    """Make a gradient step of DQN in PyTorch on a batch of transitions."""
    import torch
    from torch import nn

    a, r, terminal = (torch.as_tensor(part) for part in (actions, rewards, terminals))
    with torch.no_grad():
        td_target = r + gamma * (1 - terminal) * target(x_t).max(dim=1).values
    loss = nn.functional.smooth_l1_loss(online(x_tm1).gather(1, a[:, None])[:, 0], td_target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def play_original(game: str, count: int) -> Advance:
    """Return steps of the original game, one at a time."""
    env = original(game)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(int(env.action_space.n), size=1000).tolist()

    def advance(steps: int) -> None:
        for i in range(steps):
            _, _, terminated, _, _ = env.step(actions[i % 1000])
            if terminated:
                env.reset()

    return advance


def play_ours(name: str, count: int) -> Advance:
    """Return steps of our game, `count` games at once.

    A step returns two boards, the next observation and the one after a possible reset. Both are written.
    """
    import jax
    import jax.numpy as jnp

    from actiongap.envs.functional import num_uniforms, reset_env, step_env
    from actiongap.envs.minatar import GAMES

    game = GAMES[name]
    play = jax.vmap(partial(reset_env, game))(jax.random.uniform(jax.random.key(0), (count, num_uniforms(game))))
    boards = jax.vmap(game.observe)(play.state)

    def step(carry: Any, key: Any) -> Any:
        action_key, step_key = jax.random.split(key)
        action = jax.random.randint(action_key, (count,), 0, len(game.actions))
        play, step_result = jax.vmap(partial(step_env, game))(carry[0], action, jax.random.uniform(step_key, (count, num_uniforms(game))))
        return play, step_result.observation, step_result.following, carry[3] + step_result.reward

    return _compiled_loop(step, (play, boards, boards, jnp.zeros(count)))


def play_pgx(game: str, count: int) -> Advance:
    """Return steps of the game of pgx, `count` games at once, with its own autoreset wrapper."""
    import jax
    import jax.numpy as jnp
    import pgx  # pyright: ignore[reportMissingImports]
    from pgx.experimental import auto_reset  # pyright: ignore[reportMissingImports]

    env = pgx.make(f"minatar-{game}")
    one = auto_reset(env.step, env.init)

    def step(carry: Any, key: Any) -> Any:
        action_key, step_key = jax.random.split(key)
        action = jax.random.randint(action_key, (count,), 0, env.num_actions)
        state = jax.vmap(one)(carry[0], action, jax.random.split(step_key, count))
        return state, carry[1] + state.rewards[:, 0]

    return _compiled_loop(step, (jax.vmap(env.init)(jax.random.split(jax.random.key(0), count)), jnp.zeros(count)))


def play_gymnax(game: str, count: int) -> Advance:
    """Return steps of the game of gymnax, `count` games at once. It has no sticky actions."""
    import gymnax  # pyright: ignore[reportMissingImports]
    import jax
    import jax.numpy as jnp

    env, parameters = gymnax.make(f"{game.title().replace('_', '')}-MinAtar")
    observation, state = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), count), parameters)

    def step(carry: Any, key: Any) -> Any:
        action_key, step_key = jax.random.split(key)
        action = jax.random.randint(action_key, (count,), 0, env.num_actions)
        keys = jax.random.split(step_key, count)
        observation, state, reward, *_ = jax.vmap(env.step, (0, 0, 0, None))(keys, carry[0], action, parameters)
        return state, observation, carry[2] + reward

    return _compiled_loop(step, (state, observation, jnp.zeros(count)))


def _compiled_loop(step: Callable[[Any, Any], Any], start: Any) -> Advance:
    """Return a compiled loop over a step, which continues from its last state."""
    import jax

    def steps(state: Any, key: Any, count: Any) -> Any:
        return jax.lax.fori_loop(0, count, lambda i, state: step(state, jax.random.fold_in(key, i)), state)

    compiled, state, calls = jax.jit(steps), start, 0

    def advance(count: int) -> None:
        nonlocal state, calls
        calls += 1
        state = jax.block_until_ready(compiled(state, jax.random.key(calls), count))

    return advance
