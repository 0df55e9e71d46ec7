"""A memory of whole transitions.

Boards of booleans are kept as bits. Each transition carries its next observation, so that where a time limit cut an episode short the value
of what would have come next can still be asked for, which a terminal state does not have: there the discount is 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from actiongap.deep.memory import Memory, Transition, put, worth
from actiongap.deep.packing import pack


class Replay(NamedTuple):
    """The memory of one agent."""

    steps: Transition
    """Arrays (slots, environments, ...)."""
    priority: Any
    """How much each is worth remembering, (slots, environments); 0 where there is none yet."""


def packed(step: Transition) -> Transition:
    """A step with its observations as they are kept."""
    return step._replace(observation=pack(step.observation), next_observation=pack(step.next_observation))


def blank(example: Transition, slots: int) -> Replay:
    """A memory of so many rows that are like the example, a step of all environments."""
    rows = jax.tree.map(lambda part: jnp.zeros((slots, *part.shape), part.dtype), packed(example))
    return Replay(rows, jnp.zeros((slots, len(example.action)), jnp.float32))


def remember(replay: Replay, slot: Any, step: Transition, prioritised: bool) -> Replay:
    """The memory with one more row, which replaces what was in its slot."""
    value = jnp.full_like(replay.priority[0], worth(replay.priority, prioritised))
    rows = jax.tree.map(lambda rows, row: put(rows, slot, row), replay.steps, packed(step))
    return Replay(rows, put(replay.priority, slot, value))


def whole(filled: Any, n: int) -> tuple[Any, Any]:
    """Between which ages n - 1 more rows follow."""
    return n - 1, filled


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


TRANSITIONS = Memory(blank, remember, whole, recall, gaps=False)
