"""Replay buffers: a ring of rows, uniform and prioritized sampling, and the buffer of whole transitions.

The environments of an agent step together, so a buffer is a ring of rows with shape (capacity, num_envs), and a step writes one row. Each
entry has a priority; it is 0 where there is no transition. Rows are addressed by age, and the newest row has age 0. `ReplayBuffer` lists
the operations: `DQN.sample` draws indices with `sample_uniform` or `sample_prioritized`, and `sample` gathers the
transitions at these indices.
This module stores whole transitions; `frame_replay` stores single frames.

Boolean observations are stored as bits. Each transition carries its next observation, so the value after a truncated episode can still be
computed. After a terminal state there is no such value, and the discount is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from actiongap.dqn.packing import pack

TRIES = 4
"""Entries drawn per sample if some are not transitions. The first one that is a transition is used."""


class Transition(NamedTuple):
    """A step of one or more environments: x, a, r, discount, x'."""

    observation: Any
    action: Any
    reward: Any
    discount: Any
    """0 if x' is terminal."""
    next_observation: Any
    last: Any
    """Whether this is the last step of its episode, terminated or truncated."""


class ReplayBuffer(NamedTuple):
    """The operations of a replay buffer, as pure functions of its data. The data is a `Replay` or a `FrameReplay`."""

    init: Callable[[Any, int], Any]
    """Return an empty buffer, from a dummy step of all environments and the capacity in rows."""
    add: Callable[[Any, Any, Any, bool], Any]
    """Write a step into a row. The last argument is whether the buffer is prioritized, which decides the priority of new transitions."""
    valid_ages: Callable[[Any, int], tuple[Any, Any]]
    """Return the ages [youngest, oldest) of rows that can be sampled, from the number of filled rows and the steps per transition."""
    sample: Callable[[Any, Any, int], Transition]
    """Return the n-step transitions at these indices."""
    has_gaps: bool
    """Whether some entries are not transitions."""


def sample_uniform(key: Any, shape: tuple[int, ...], priority: Any, newest: Any, ages: tuple[Any, Any], has_gaps: bool = False) -> Any:
    """Return indices of transitions of these ages, sampled uniformly; `newest` is the index of the newest row.

    If some entries are not transitions, several are tried. In rare cases none of them is a transition; the index then has priority 0.
    """
    capacity, num_envs = priority.shape
    shape = (*shape, TRIES) if has_gaps else shape
    age_key, env_key = jax.random.split(key)
    age = jax.random.randint(age_key, shape, *ages)
    index = (newest - age) % capacity * num_envs + jax.random.randint(env_key, shape, 0, num_envs)
    if not has_gaps:
        return index
    first = jnp.argmax(priority.reshape(-1)[index] > 0, axis=-1)
    return jnp.take_along_axis(index, first[..., None], axis=-1)[..., 0]


def sample_prioritized(
    key: Any, shape: tuple[int, ...], priority: Any, newest: Any, ages: tuple[Any, Any], exponent: float
) -> tuple[Any, Any]:
    """Return indices of transitions of these ages, sampled with probability proportional to priority^exponent, and the probabilities."""
    capacity, _ = priority.shape
    age = (newest - jnp.arange(capacity)) % capacity
    valid = ((age >= ages[0]) & (age < ages[1]))[:, None] & (priority > 0)
    weight = jnp.where(valid, priority**exponent, 0.0).reshape(-1)
    total = jnp.cumsum(weight)
    index = jnp.searchsorted(total, jax.random.uniform(key, shape) * total[-1], side="right")
    index = jnp.minimum(index, len(total) - 1)
    return index, weight[index] / total[-1]


def new_priority(priority: Any, prioritized: bool) -> Any:
    """Return the priority of new transitions: 1; if prioritized, the maximum in the buffer, and at least 1."""
    return jnp.maximum(priority.max(), 1.0) if prioritized else jnp.float32(1.0)


def write_row(rows: Any, row: Any, values: Any, column: Any = 0) -> Any:
    """Replace a row, or as many of its columns as there are values, starting at `column`.

    Examples
    --------
    >>> write_row(jnp.zeros((2, 3)), 1, jnp.ones(2), 1).tolist()
    [[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    """
    return jax.lax.dynamic_update_slice(rows, values[None], (row, column, *[0] * (rows.ndim - 2)))


class Replay(NamedTuple):
    """The contents of the replay buffer of one agent."""

    steps: Transition
    """Arrays (capacity, num_envs, ...)."""
    priority: Any
    """Priorities, (capacity, num_envs); 0 where there is no transition yet."""


def packed(step: Transition) -> Transition:
    """Return a step with packed observations, as they are stored."""
    return step._replace(observation=pack(step.observation), next_observation=pack(step.next_observation))


def init(dummy_step: Transition, capacity: int) -> Replay:
    """Return an empty buffer with `capacity` rows. `dummy_step`, a step of all environments, gives the shapes."""
    rows = jax.tree.map(lambda part: jnp.zeros((capacity, *part.shape), part.dtype), packed(dummy_step))
    return Replay(rows, jnp.zeros((capacity, len(dummy_step.action)), jnp.float32))


def add(replay: Replay, row: Any, step: Transition, prioritized: bool) -> Replay:
    """Write a step of all environments into a row."""
    priority = jnp.full_like(replay.priority[0], new_priority(replay.priority, prioritized))
    rows = jax.tree.map(lambda rows, values: write_row(rows, row, values), replay.steps, packed(step))
    return Replay(rows, write_row(replay.priority, row, priority))


def valid_ages(filled: Any, n: int) -> tuple[Any, Any]:
    """Return the ages [youngest, oldest) of rows with at least n - 1 newer rows."""
    return n - 1, filled


def sample(replay: Replay, index: Any, n: int) -> Transition:
    """Return the n-step transitions at these indices: discounted rewards summed until the episode terminates or is truncated."""
    capacity, num_envs = replay.priority.shape
    flat = jax.tree.map(lambda part: part.reshape(capacity * num_envs, *part.shape[2:]), replay.steps)

    def step(k: int) -> Transition:
        return jax.tree.map(lambda part: part[(index + k * num_envs) % (capacity * num_envs)], flat)

    found = step(0)
    for k in range(1, n):
        after, over = step(k), found.last

        def unless_over(new: Any, old: Any, over: Any = over) -> Any:
            return jnp.where(over.reshape(over.shape + (1,) * (new.ndim - over.ndim)), old, new)

        found = Transition(
            observation=found.observation,
            action=found.action,
            reward=unless_over(found.reward + found.discount * after.reward, found.reward),
            discount=unless_over(found.discount * after.discount, found.discount),
            next_observation=unless_over(after.next_observation, found.next_observation),
            last=found.last | after.last,
        )
    return found


TRANSITIONS = ReplayBuffer(init, add, valid_ages, sample, has_gaps=False)
"""The buffer of whole transitions."""
