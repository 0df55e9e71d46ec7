"""What deep agents and their games are measured against: Stable-Baselines3, a plain loop in PyTorch, pgx, gymnax, and MinAtar itself.

Agents here do what ours do with the same settings: the network of the MinAtar paper, centred RMSProp, Huber's loss, as many gradient steps
a frame, a memory of the same size. They play the original MinAtar, which is written in NumPy. Each is a function that trains on for so many
more frames. Games are functions that step on for so many more steps; those in JAX play many games at once in one compiled loop, and write
down what is seen after every step, as an agent would need it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from actiongap.dqn.config import Config
from actiongap.dqn.networks import SMALL, SMALL_HIDDEN

Going = Callable[[int], Any]
"""Goes on for so many more frames or steps."""
RMSPROP = {"alpha": 0.95, "eps": 0.01, "centered": True}
"""The optimiser of the faithful preset, as PyTorch spells it."""
(CONVOLUTION,), (HIDDEN,) = SMALL, SMALL_HIDDEN


def original(game: str, sticky: float = 0.1) -> Any:
    """The original game as a Gymnasium environment with the actions that do something in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from minatar.gym import BaseEnv

        return BaseEnv(game, use_minimal_action_set=True, sticky_action_prob=sticky)


def convolution(shape: tuple[int, ...]) -> Any:
    """The first layer in PyTorch, of boards (batch, rows, columns, channels), flat."""
    from torch import nn

    class ChannelsFirst(nn.Module):
        def forward(self, boards: Any) -> Any:
            return boards.permute(0, 3, 1, 2)

    return nn.Sequential(ChannelsFirst(), nn.Conv2d(shape[-1], CONVOLUTION.filters, CONVOLUTION.kernel), nn.ReLU(), nn.Flatten())


def stable_baselines(game: str, config: Config) -> Going:
    """Stable-Baselines3's DQN. It always cuts gradients to some norm, here to one that none has."""
    import torch
    from stable_baselines3 import DQN  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor  # pyright: ignore[reportMissingImports]
    from torch import nn

    class Boards(BaseFeaturesExtractor):
        def __init__(self, space: Any) -> None:
            rows, columns, _ = space.shape
            super().__init__(space, CONVOLUTION.across(rows) * CONVOLUTION.across(columns) * CONVOLUTION.filters)
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


def in_pytorch(game: str, config: Config) -> Going:
    """DQN as a plain loop in PyTorch, in the manner of CleanRL: act, remember, draw, learn, with nothing in between."""
    import torch
    from torch import nn

    environment = original(game, config.repeat_action_probability)
    shape, actions = environment.observation_space.shape, int(environment.action_space.n)
    flat = CONVOLUTION.across(shape[0]) * CONVOLUTION.across(shape[1]) * CONVOLUTION.filters
    online, target = (nn.Sequential(convolution(shape), nn.Linear(flat, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, actions)) for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimiser = torch.optim.RMSprop(online.parameters(), lr=config.learning_rate, **RMSPROP)
    rng, size = np.random.default_rng(0), config.buffer_size
    before, after = np.zeros((size, *shape), bool), np.zeros((size, *shape), bool)
    chosen, rewards, ends = np.zeros(size, np.int64), np.zeros(size, np.float32), np.zeros(size, np.float32)
    x, _ = environment.reset(seed=0)
    frame = 0

    def act() -> int:
        if rng.random() < config.final_epsilon:
            return int(rng.integers(actions))
        with torch.no_grad():
            return int(online(torch.as_tensor(x, dtype=torch.float32)[None]).argmax())

    def learn() -> None:
        place = rng.integers(min(frame + 1, size), size=config.batch_size)
        boards, later = (torch.as_tensor(part[place], dtype=torch.float32) for part in (before, after))
        descend(online, target, optimiser, config.gamma, boards, later, [part[place] for part in (chosen, rewards, ends)])

    def train(frames: int) -> None:
        nonlocal x, frame
        for _ in range(frames):
            action = act()
            following, reward, ended, _, _ = environment.step(action)
            slot = frame % size
            before[slot], after[slot], chosen[slot], rewards[slot], ends[slot] = x, following, action, reward, ended
            x = environment.reset()[0] if ended else following
            if frame >= config.learning_starts:
                for _ in range(config.gradient_steps):
                    learn()
                if frame % config.target_update_interval == 0:
                    target.load_state_dict(online.state_dict())
            frame += 1

    return train


def descend(online: Any, target: Any, optimiser: Any, gamma: float, before: Any, after: Any, happened: list[np.ndarray]) -> None:
    """A gradient step of DQN in PyTorch on a batch of observations before and after; what happened is actions, rewards and ends."""
    import torch
    from torch import nn

    action, reward, ended = map(torch.as_tensor, happened)
    with torch.no_grad():
        aim = reward + gamma * (1 - ended) * target(after).max(dim=1).values
    loss = nn.functional.smooth_l1_loss(online(before).gather(1, action[:, None])[:, 0], aim)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def play_original(game: str, count: int) -> Going:
    """The original, one game."""
    environment = original(game)
    environment.reset(seed=0)
    actions = np.random.default_rng(0).integers(int(environment.action_space.n), size=1000).tolist()

    def go_on(steps: int) -> None:
        for i in range(steps):
            _, _, ended, _, _ = environment.step(actions[i % 1000])
            if ended:
                environment.reset()

    return go_on


def play_ours(name: str, count: int) -> Going:
    """Our game, so many at once. A step shows two boards, where the game got to and where the next step begins, and both are written."""
    import jax
    import jax.numpy as jnp

    from actiongap.envs.functional import num_uniforms, reset_env, step_env
    from actiongap.envs.minatar import GAMES

    game = GAMES[name]
    play = jax.vmap(partial(reset_env, game))(jax.random.uniform(jax.random.key(0), (count, num_uniforms(game))))
    boards = jax.vmap(game.observe)(play.state)

    def step(now: Any, key: Any) -> Any:
        acting, moving = jax.random.split(key)
        action = jax.random.randint(acting, (count,), 0, len(game.actions))
        play, seen = jax.vmap(partial(step_env, game))(now[0], action, jax.random.uniform(moving, (count, num_uniforms(game))))
        return play, seen.observation, seen.following, now[3] + seen.reward

    return _looped(step, (play, boards, boards, jnp.zeros(count)))


def play_pgx(game: str, count: int) -> Going:
    """The game of pgx, so many at once, with its own wrapper that begins anew."""
    import jax
    import jax.numpy as jnp
    import pgx  # pyright: ignore[reportMissingImports]
    from pgx.experimental import auto_reset  # pyright: ignore[reportMissingImports]

    environment = pgx.make(f"minatar-{game}")
    one = auto_reset(environment.step, environment.init)

    def step(now: Any, key: Any) -> Any:
        acting, moving = jax.random.split(key)
        action = jax.random.randint(acting, (count,), 0, environment.num_actions)
        state = jax.vmap(one)(now[0], action, jax.random.split(moving, count))
        return state, now[1] + state.rewards[:, 0]

    return _looped(step, (jax.vmap(environment.init)(jax.random.split(jax.random.key(0), count)), jnp.zeros(count)))


def play_gymnax(game: str, count: int) -> Going:
    """The game of gymnax, so many at once. It has no sticky actions."""
    import gymnax  # pyright: ignore[reportMissingImports]
    import jax
    import jax.numpy as jnp

    environment, parameters = gymnax.make(f"{game.title().replace('_', '')}-MinAtar")
    seen, state = jax.vmap(environment.reset, (0, None))(jax.random.split(jax.random.key(0), count), parameters)

    def step(now: Any, key: Any) -> Any:
        acting, moving = jax.random.split(key)
        action = jax.random.randint(acting, (count,), 0, environment.num_actions)
        keys = jax.random.split(moving, count)
        seen, state, reward, *_ = jax.vmap(environment.step, (0, 0, 0, None))(keys, now[0], action, parameters)
        return state, seen, now[2] + reward

    return _looped(step, (state, seen, jnp.zeros(count)))


def _looped(step: Callable[[Any, Any], Any], start: Any) -> Going:
    """A compiled loop over that step, which goes on from where it was."""
    import jax

    def steps(now: Any, key: Any, count: Any) -> Any:
        return jax.lax.fori_loop(0, count, lambda i, now: step(now, jax.random.fold_in(key, i)), now)

    compiled, current, times = jax.jit(steps), [start], [0]

    def go_on(count: int) -> None:
        times[0] += 1
        current[0] = jax.block_until_ready(compiled(current[0], jax.random.key(times[0]), count))

    return go_on
