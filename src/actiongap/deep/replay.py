"""What an agent remembers: its last transitions, from which it learns in no particular order.

The environments of an agent step together, so memory is a ring of rows (slots, environments), and a step writes one row. Boards of
booleans are kept as bits. Each transition carries its next observation, so that where a time limit cut an episode short the value of what
would have come next can still be asked for, which a terminal state does not have: there the discount is 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


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


class Replay(NamedTuple):
    """The memory of one agent."""

    steps: Transition
    """Arrays (slots, environments, ...)."""
    priority: Any
    """How much each is worth remembering, (slots, environments); 0 where there is none yet."""


def blank(example: Transition, slots: int) -> Replay:
    """A memory of so many rows that are like the example, a packed step of all environments."""
    rows = jax.tree.map(lambda part: jnp.zeros((slots, *part.shape), part.dtype), example)
    return Replay(rows, jnp.zeros((slots, len(example.action)), jnp.float32))


def remember(replay: Replay, slot: Any, step: Transition, prioritised: bool) -> Replay:
    """The memory with one more row, which replaces what was in its slot. What is new is at least as interesting as anything else."""

    def put(rows: Any, row: Any) -> Any:
        return jax.lax.dynamic_update_index_in_dim(rows, row, slot, 0)

    priority = jnp.maximum(replay.priority.max(), 1.0) if prioritised else jnp.float32(1.0)
    return Replay(jax.tree.map(put, replay.steps, step), put(replay.priority, jnp.full_like(replay.priority[0], priority)))


def draw_evenly(key: Any, count: tuple[int, ...], replay: Replay, newest: Any, filled: Any, n: int) -> Any:
    """Places of transitions that n - 1 more follow, all equally likely; `newest` is the last row's slot, `filled` how many there are."""
    slots, environments = replay.priority.shape
    age, which = jax.random.split(key)
    # Counted backwards from the newest row that has all it needs after it.
    back = jax.random.randint(age, count, n - 1, filled)
    return (newest - back) % slots * environments + jax.random.randint(which, count, 0, environments)


def draw_by_priority(key: Any, count: tuple[int, ...], replay: Replay, newest: Any, n: int, exponent: float) -> tuple[Any, Any]:
    """Places drawn with probability proportional to priority^exponent, and these probabilities; again only where n - 1 more follow."""
    slots, _ = replay.priority.shape
    age = (newest - jnp.arange(slots)) % slots
    weight = jnp.where((age >= n - 1)[:, None], replay.priority**exponent, 0.0).reshape(-1)
    total = jnp.cumsum(weight)
    place = jnp.searchsorted(total, jax.random.uniform(key, count) * total[-1], side="right")
    place = jnp.minimum(place, len(total) - 1)
    return place, weight[place] / total[-1]


def recall(replay: Replay, place: Any, n: int) -> Transition:
    """The transitions at these places over n steps: rewards discounted and added up until an episode ends or is cut short."""
    slots, environments = replay.priority.shape
    flat = jax.tree.map(lambda part: part.reshape(slots * environments, *part.shape[2:]), replay.steps)

    def step(k: int) -> Transition:
        return jax.tree.map(lambda part: part[(place + k * environments) % (slots * environments)], flat)

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
