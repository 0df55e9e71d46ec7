"""Frame replay buffer: every frame is stored once, and frame stacks are built when transitions are sampled.

An observation is a stack of the last few frames. Stacks overlap, so storing them would repeat every frame. Frames before the first one of
an episode are black. A step writes its action, reward and discount into the row of the newest frame, and the frame that followed into the
next row.

Not every row is a transition. No action is taken in the last frame of an episode, and the next frame belongs to another episode. Such a
row has priority 0 and is never sampled.

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
from actiongap.dqn.replay import ReplayBuffer, Transition, new_priority, put


class FrameStep(NamedTuple):
    """A step of all environments: what was done in the newest frame, and the frame that followed."""

    action: Any
    reward: Any
    discount: Any
    """0 where what followed is terminal."""
    last: Any
    """Whether the next step is another episode's."""
    real: Any
    """Whether anything was done: False where the step did but begin a game."""
    frame: Any
    """The frame that followed, (environments, rows, columns)."""
    fresh: Any
    """Whether that frame begins an episode."""


class FrameReplay(NamedTuple):
    """The memory of one agent: arrays (capacity, environments, ...)."""

    frame: Any
    fresh: Any
    """Whether a frame begins an episode."""
    action: Any
    reward: Any
    discount: Any
    last: Any
    priority: Any
    """How much each row is worth remembering; 0 where it is no transition."""


def frame_buffer(stack: int) -> ReplayBuffer:
    """The way to remember frames of which so many are an observation.

    Examples
    --------
    >>> youngest, oldest = frame_buffer(4).valid_ages(100, 1)
    >>> youngest, int(oldest)
    (0, 96)
    """
    return ReplayBuffer(init, add, partial(valid_ages, stack), partial(sample, stack), gaps=True)


def replay_bytes(environments: int, capacity: int, frame: tuple[int, ...]) -> int:
    """The bytes that a film takes.

    Examples
    --------
    >>> replay_bytes(8, 125_000, (84, 84)) / 1e9
    7.074
    """
    return environments * capacity * (math.prod(frame) + 18)


def init(example: FrameStep, capacity: int) -> FrameReplay:
    """A film of so many rows that are like the example."""

    def rows(part: Any) -> Any:
        return jnp.zeros((capacity, *part.shape), part.dtype)

    kept = (example.frame, example.fresh, example.action, example.reward, example.discount, example.last, example.reward)
    return FrameReplay(*map(rows, kept))


def add(film: FrameReplay, slot: Any, step: FrameStep, prioritised: bool, column: Any = 0) -> FrameReplay:
    """The film with one more row, or with as many environments of it as the step is of, from a column on."""
    after = (slot + 1) % len(film.action)
    return FrameReplay(
        frame=put(film.frame, after, step.frame, column),
        fresh=put(film.fresh, after, step.fresh, column),
        action=put(film.action, slot, step.action, column),
        reward=put(film.reward, slot, step.reward, column),
        discount=put(film.discount, slot, step.discount, column),
        last=put(film.last, slot, step.last, column),
        priority=put(film.priority, slot, jnp.where(step.real, new_priority(film.priority, prioritised), 0.0), column),
    )


def valid_ages(stack: int, filled: Any, n: int) -> tuple[Any, Any]:
    """Between which ages rows have all frames of their stacks, and n - 1 more rows follow.

    The oldest rows have lost frames before them, and the oldest of all its own, which the frame after the newest has replaced.
    """
    return n - 1, jnp.maximum(filled - stack, n)


def sample(stack: int, film: FrameReplay, place: Any, n: int) -> Transition:
    """The transitions at these places over n steps: rewards discounted and added up until an episode ends or is cut short."""
    capacity, environments = film.priority.shape
    row, which = place // environments, place % environments
    at = (row, which)
    reward, discount, last, taken = film.reward[at], film.discount[at], film.last[at], jnp.ones_like(row)
    for k in range(1, n):
        at = ((row + k) % capacity, which)
        reward = jnp.where(last, reward, reward + discount * film.reward[at])
        discount = jnp.where(last, discount, discount * film.discount[at])
        taken, last = jnp.where(last, taken, k + 1), last | film.last[at]
    now, after = (stacked(film, some, which, stack) for some in (row, row + taken))
    return Transition(now, film.action[row, which], reward, discount, after, last)


def stacked(film: FrameReplay, row: Any, which: Any, stack: int) -> Any:
    """The last `stack` frames up to each row, (n, rows, columns, stack), the newest last; black where an episode had not begun."""
    capacity = len(film.action)
    back = (row[:, None] - jnp.arange(stack - 1, -1, -1)) % capacity
    found, fresh = film.frame[back, which[:, None]], film.fresh[back, which[:, None]]
    # A frame is of the episode if no frame after it begins one.
    begun = jnp.cumsum(fresh[:, ::-1], axis=1)[:, ::-1] - fresh
    return jnp.where((begun == 0)[:, :, None, None], found, 0).transpose(0, 2, 3, 1)


def push(stack: Any, frame: Any, fresh: Any) -> Any:
    """Stacks (n, rows, columns, stack) with a frame more, and nothing else where it begins an episode.

    Examples
    --------
    >>> stack = jnp.ones((2, 1, 1, 3), jnp.uint8)
    >>> push(stack, jnp.full((2, 1, 1), 7, jnp.uint8), jnp.array([False, True])).reshape(2, 3).tolist()
    [[1, 1, 7], [0, 0, 7]]
    """
    before = jnp.where(fresh[:, None, None, None], 0, stack[..., 1:])
    return jnp.concatenate([before, frame[..., None]], axis=-1).astype(stack.dtype)


MEMORY_FRACTION = 0.85
"""The part of a memory that films may fill."""


def choose_device(agents: int, environments: int, capacity: int, frame: tuple[int, ...]) -> Any:
    """The device that has room for so many films, an accelerator first; one sentence with a remedy if there is none."""
    needed, found = agents * replay_bytes(environments, capacity, frame), _memory_budgets()
    for device, room in found.items():
        if needed <= room:
            return device
    most = max(found.values())
    fitting = int(most / needed * capacity * environments) // 1000 * 1000
    remedies = [f"take a replay of {fitting}" if fitting else "take a much smaller replay", *["train fewer agents at once"] * (agents > 1)]
    who = f"{agents} agents remember" if agents > 1 else "an agent remembers"
    raise ValueError(f"what {who} takes {needed / 1e9:.1f} GB, and there is room for {most / 1e9:.1f} GB: {', or '.join(remedies)}")


def max_agents(environments: int, capacity: int, frame: tuple[int, ...]) -> int:
    """How many such films there is room for, on the accelerator if there is for one; 0 if there is nowhere."""
    each = replay_bytes(environments, capacity, frame)
    return next((fitting for room in _memory_budgets().values() if (fitting := int(room / each))), 0)


def _memory_budgets() -> dict[Any, float]:
    """The bytes that films may take on each device, the one on which agents learn first."""
    first, host = jax.devices()[0], jax.devices("cpu")[0]
    return {host: host_budget()} if first.platform == "cpu" else {first: accelerator_budget(), host: host_budget()}


def accelerator_budget() -> float:
    """The bytes that films may take on the accelerator."""
    return MEMORY_FRACTION * (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 0)


def host_budget() -> float:
    """The bytes that films may take in the memory of the host."""
    return MEMORY_FRACTION * free_memory()
