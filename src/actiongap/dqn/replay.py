"""Replay buffers: a ring of rows, uniform and prioritised sampling, and the buffer of whole transitions.

The environments of an agent step together, so a buffer is a ring of rows with shape (capacity, num_envs), and a step writes one row. Each
entry has a priority; it is 0 where there is no transition. Rows are addressed by age, and the newest row has age 0. `ReplayBuffer` lists
the operations. This module stores whole transitions; `frame_replay` stores single frames.

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
"""Rows that are drawn for each transition, of which the first that is one is taken."""


class Transition(NamedTuple):
    """A step of one environment, or of many: x, a, r, discount, x'."""

    observation: Any
    action: Any
    reward: Any
    discount: Any
    """0 where x' is terminal."""
    next_observation: Any
    last: Any
    """Whether the next step is another episode's, be it that this one ended or was cut short."""


class ReplayBuffer(NamedTuple):
    """A way to remember."""

    init: Callable[[Any, int], Any]
    """A memory of so many rows that are like an example, a step of all environments."""
    add: Callable[[Any, Any, Any, bool], Any]
    """The memory with one more row, which replaces what was in its slot; whether it is `prioritised` decides how much it is worth."""
    valid_ages: Callable[[Any, int], tuple[Any, Any]]
    """From which age to below which age rows have all they need, if so many are filled and n steps make a transition."""
    sample: Callable[[Any, Any, int], Transition]
    """The transitions at these places over n steps."""
    gaps: bool
    """Whether some rows are no transitions."""


def sample_uniform(key: Any, count: tuple[int, ...], priority: Any, newest: Any, ages: tuple[Any, Any], gaps: bool = False) -> Any:
    """Places of transitions of these ages, all equally likely; `newest` is the slot of the last row.

    Where some rows are no transitions, several are tried; once in a very long while none of them is one, and the place has no priority.
    """
    capacity, environments = priority.shape
    count = (*count, TRIES) if gaps else count
    age, which = jax.random.split(key)
    back = jax.random.randint(age, count, *ages)
    place = (newest - back) % capacity * environments + jax.random.randint(which, count, 0, environments)
    if not gaps:
        return place
    first = jnp.argmax(priority.reshape(-1)[place] > 0, axis=-1)
    return jnp.take_along_axis(place, first[..., None], axis=-1)[..., 0]


def sample_prioritized(
    key: Any, count: tuple[int, ...], priority: Any, newest: Any, ages: tuple[Any, Any], exponent: float
) -> tuple[Any, Any]:
    """Places of transitions of these ages drawn with probability proportional to priority^exponent, and these probabilities."""
    capacity, _ = priority.shape
    age = (newest - jnp.arange(capacity)) % capacity
    among = ((age >= ages[0]) & (age < ages[1]))[:, None] & (priority > 0)
    weight = jnp.where(among, priority**exponent, 0.0).reshape(-1)
    total = jnp.cumsum(weight)
    place = jnp.searchsorted(total, jax.random.uniform(key, count) * total[-1], side="right")
    place = jnp.minimum(place, len(total) - 1)
    return place, weight[place] / total[-1]


def new_priority(priority: Any, prioritised: bool) -> Any:
    """What a new row is worth: as much as anything else at least."""
    return jnp.maximum(priority.max(), 1.0) if prioritised else jnp.float32(1.0)


def put(rows: Any, slot: Any, row: Any, column: Any = 0) -> Any:
    """The rows with one replaced, or as much of it as is given, from a column on.

    Examples
    --------
    >>> put(jnp.zeros((2, 3)), 1, jnp.ones(2), 1).tolist()
    [[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    """
    return jax.lax.dynamic_update_slice(rows, row[None], (slot, column, *[0] * (rows.ndim - 2)))


class Replay(NamedTuple):
    """The memory of one agent."""

    steps: Transition
    """Arrays (capacity, environments, ...)."""
    priority: Any
    """How much each is worth remembering, (capacity, environments); 0 where there is none yet."""


def packed(step: Transition) -> Transition:
    """A step with its observations as they are kept."""
    return step._replace(observation=pack(step.observation), next_observation=pack(step.next_observation))


def init(example: Transition, capacity: int) -> Replay:
    """A memory of so many rows that are like the example, a step of all environments."""
    rows = jax.tree.map(lambda part: jnp.zeros((capacity, *part.shape), part.dtype), packed(example))
    return Replay(rows, jnp.zeros((capacity, len(example.action)), jnp.float32))


def add(replay: Replay, slot: Any, step: Transition, prioritised: bool) -> Replay:
    """The memory with one more row, which replaces what was in its slot."""
    value = jnp.full_like(replay.priority[0], new_priority(replay.priority, prioritised))
    rows = jax.tree.map(lambda rows, row: put(rows, slot, row), replay.steps, packed(step))
    return Replay(rows, put(replay.priority, slot, value))


def valid_ages(filled: Any, n: int) -> tuple[Any, Any]:
    """Between which ages n - 1 more rows follow."""
    return n - 1, filled


def sample(replay: Replay, place: Any, n: int) -> Transition:
    """The transitions at these places over n steps: rewards discounted and added up until an episode ends or is cut short."""
    capacity, environments = replay.priority.shape
    flat = jax.tree.map(lambda part: part.reshape(capacity * environments, *part.shape[2:]), replay.steps)

    def step(k: int) -> Transition:
        return jax.tree.map(lambda part: part[(place + k * environments) % (capacity * environments)], flat)

    found = step(0)
    for k in range(1, n):
        after, over = step(k), found.last

        def going_on(new: Any, old: Any, over: Any = over) -> Any:
            return jnp.where(over.reshape(over.shape + (1,) * (new.ndim - over.ndim)), old, new)

        found = Transition(
            observation=found.observation,
            action=found.action,
            reward=going_on(found.reward + found.discount * after.reward, found.reward),
            discount=going_on(found.discount * after.discount, found.discount),
            next_observation=going_on(after.next_observation, found.next_observation),
            last=found.last | after.last,
        )
    return found


TRANSITIONS = ReplayBuffer(init, add, valid_ages, sample, gaps=False)
