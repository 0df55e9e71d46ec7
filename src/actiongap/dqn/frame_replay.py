"""Frame replay buffer: every frame is stored once, and frame stacks are built when transitions are sampled.

An observation is a stack of the last few frames. Stacks overlap, so storing them would repeat every frame. Frames before the first one of
an episode are black. A step writes its action, reward and discount into the row of the newest frame, and the frame that followed into the
next row.

Not every row is a transition. No action is taken in the last frame of an episode, and the next frame belongs to another episode. Such a
row has priority 0 and never contributes to a loss: in prioritized replay it is not sampled, and in uniform replay its weight is 0.

Buffers are large: a million frames take seven gigabytes. They may fill most of the accelerator's memory, or else of the host's. This is
checked before anything is allocated; if neither has enough memory, the error says how much would fit.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from actiongap._system import free_memory
from actiongap.dqn.replay import ReplayBuffer, Transition, new_priority, write_row


class FrameStep(NamedTuple):
    """A step of all environments: the action in the newest frame, and the frame that followed."""

    action: Any
    reward: Any
    discount: Any
    """0 if the next state is terminal."""
    last: Any
    """Whether this is the last step of its episode, terminated or truncated."""
    valid: Any
    """Whether this is a transition; False for a step that only reset the environment."""
    frame: Any
    """The frame that followed, (num_envs, height, width)."""
    first: Any
    """Whether that frame is the first one of an episode."""


class FrameReplay(NamedTuple):
    """The contents of the frame replay buffer of one agent: arrays (capacity, num_envs, ...)."""

    frame: Any
    first: Any
    """Whether a frame is the first one of an episode."""
    action: Any
    reward: Any
    discount: Any
    last: Any
    priority: Any
    """Priorities; 0 where there is no transition."""


def frame_buffer(stack: int) -> ReplayBuffer:
    """Return the buffer of single frames, with observations of `stack` frames.

    Examples
    --------
    >>> youngest, oldest = frame_buffer(4).valid_ages(100, 1)
    >>> youngest, int(oldest)
    (0, 96)
    """
    return ReplayBuffer(init, add, partial(valid_ages, stack), partial(sample, stack), has_gaps=True)


def replay_bytes(num_envs: int, capacity: int, frame_shape: tuple[int, ...]) -> int:
    """Return the size of the frame replay buffer of one agent, in bytes.

    Examples
    --------
    >>> replay_bytes(8, 125_000, (84, 84)) / 1e9
    7.074
    """
    # Each entry has a frame of bytes, and 18 bytes for first, action, reward, discount, last and priority (1 + 4 + 4 + 4 + 1 + 4).
    return num_envs * capacity * (math.prod(frame_shape) + 18)


def init(dummy_step: FrameStep, capacity: int) -> FrameReplay:
    """Return an empty buffer with `capacity` rows. `dummy_step`, a step of all environments, gives the shapes."""

    def rows(part: Any) -> Any:
        return jnp.zeros((capacity, *part.shape), part.dtype)

    step = dummy_step
    return FrameReplay(*map(rows, (step.frame, step.first, step.action, step.reward, step.discount, step.last, step.reward)))


def add(replay: FrameReplay, row: Any, step: FrameStep, prioritized: bool, column: Any = 0) -> FrameReplay:
    """Write a step into a row, and its frame into the next row.

    The step may have fewer environments than the buffer; they are written from `column` on.
    """
    next_row = (row + 1) % len(replay.action)
    return FrameReplay(
        frame=write_row(replay.frame, next_row, step.frame, column),
        first=write_row(replay.first, next_row, step.first, column),
        action=write_row(replay.action, row, step.action, column),
        reward=write_row(replay.reward, row, step.reward, column),
        discount=write_row(replay.discount, row, step.discount, column),
        last=write_row(replay.last, row, step.last, column),
        priority=write_row(replay.priority, row, jnp.where(step.valid, new_priority(replay.priority, prioritized), 0.0), column),
    )


def valid_ages(stack: int, filled: Any, n: int) -> tuple[Any, Any]:
    """Return the ages [youngest, oldest) of rows with complete frame stacks and at least n - 1 newer rows.

    The oldest rows lack earlier frames of their stacks. The oldest row also lacks its own frame, because the frame that followed the newest
    step has overwritten it.
    """
    return n - 1, jnp.maximum(filled - stack, n)


def sample(stack: int, replay: FrameReplay, index: Any, n: int) -> Transition:
    """Return the n-step transitions at these indices: discounted rewards summed until the episode terminates or is truncated."""
    capacity, num_envs = replay.priority.shape
    row, env = index // num_envs, index % num_envs
    at = (row, env)
    reward, discount, last, steps = replay.reward[at], replay.discount[at], replay.last[at], jnp.ones_like(row)
    for k in range(1, n):
        at = ((row + k) % capacity, env)
        reward = jnp.where(last, reward, reward + discount * replay.reward[at])
        discount = jnp.where(last, discount, discount * replay.discount[at])
        steps, last = jnp.where(last, steps, k + 1), last | replay.last[at]
    observation, next_observation = (frame_stacks(replay, some, env, stack) for some in (row, row + steps))
    return Transition(observation, replay.action[row, env], reward, discount, next_observation, last)


def frame_stacks(replay: FrameReplay, row: Any, env: Any, stack: int) -> Any:
    """Return the last `stack` frames up to each row, (n, height, width, stack), the newest last; black before the episode began."""
    capacity = len(replay.action)
    rows = (row[:, None] - jnp.arange(stack - 1, -1, -1)) % capacity
    frames, first = replay.frame[rows, env[:, None]], replay.first[rows, env[:, None]]
    # A frame belongs to the episode if no later frame is the first one of an episode.
    later_episodes = jnp.cumsum(first[:, ::-1], axis=1)[:, ::-1] - first
    return jnp.where((later_episodes == 0)[:, :, None, None], frames, 0).transpose(0, 2, 3, 1)


def push_frame(stack: Any, frame: Any, first: Any) -> Any:
    """Append a frame to stacks (n, height, width, stack). If it is the first one of an episode, the earlier frames become black.

    Examples
    --------
    >>> stack = jnp.ones((2, 1, 1, 3), jnp.uint8)
    >>> push_frame(stack, jnp.full((2, 1, 1), 7, jnp.uint8), jnp.array([False, True])).reshape(2, 3).tolist()
    [[1, 1, 7], [0, 0, 7]]
    """
    before = jnp.where(first[:, None, None, None], 0, stack[..., 1:])
    return jnp.concatenate([before, frame[..., None]], axis=-1).astype(stack.dtype)


MEMORY_FRACTION = 0.85
"""Fraction of a device's memory that replay buffers may fill."""


def choose_device(agents: int, num_envs: int, capacity: int, frame_shape: tuple[int, ...]) -> Any:
    """Return the device with enough memory for the replay buffers of all agents, preferably an accelerator.

    Raises ValueError if there is none; the message says how much would fit.
    """
    needed, budgets = agents * replay_bytes(num_envs, capacity, frame_shape), _memory_budgets()
    for device, budget in budgets.items():
        if needed <= budget:
            return device
    most = max(budgets.values())
    fitting = int(most / needed * capacity * num_envs) // 1000 * 1000
    remedies = [f"set buffer_size to {fitting}" if fitting else "set a much smaller buffer_size"]
    remedies += ["train fewer agents per batch"] * (agents > 1)
    buffers = f"the replay buffers of {agents} agents take" if agents > 1 else "the replay buffer of an agent takes"
    raise ValueError(f"{buffers} {needed / 1e9:.1f} GB, and {most / 1e9:.1f} GB are available: {', or '.join(remedies)}")


def max_agents(num_envs: int, capacity: int, frame_shape: tuple[int, ...]) -> int:
    """Return how many agents' replay buffers fit on one device: the accelerator if it holds at least one, else the host; 0 if neither."""
    each = replay_bytes(num_envs, capacity, frame_shape)
    return next((fitting for budget in _memory_budgets().values() if (fitting := int(budget / each))), 0)


def _memory_budgets() -> dict[Any, float]:
    """Return the bytes that replay buffers may take on each device; the device of the agents comes first."""
    first, host = jax.devices()[0], jax.devices("cpu")[0]
    return {host: host_budget()} if first.platform == "cpu" else {first: accelerator_budget(), host: host_budget()}


def accelerator_budget() -> float:
    """Return the bytes that replay buffers may take on the accelerator."""
    return MEMORY_FRACTION * (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 0)


def host_budget() -> float:
    """Return the bytes that replay buffers may take in the host's memory."""
    return MEMORY_FRACTION * free_memory()
