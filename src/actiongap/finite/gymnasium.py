"""Finite MDPs and Gymnasium: tabular environments read as models, and models played as environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from actiongap.finite.model import FiniteMDP


def from_gymnasium(environment: str | gymnasium.Env, gamma: float = 0.99) -> FiniteMDP:
    """The model of a tabular Gymnasium environment, one that lists its transitions as `P[x][a] = [(p, x', r, done), ...]`.

    Transitions that are `done` lead to one more state, the last, which is absorbing and pays nothing.

    Examples
    --------
    >>> from_gymnasium("FrozenLake-v1", gamma=0.9).states
    17
    """
    env = gymnasium.make(environment) if isinstance(environment, str) else environment
    table: Any = getattr(env.unwrapped, "P", None)
    name = environment if isinstance(environment, str) else str(env)
    if table is None:
        raise ValueError(f"{name} does not list its transitions as P[x][a]: only tabular environments such as FrozenLake-v1 can be solved")
    states, actions = len(table), len(table[0])
    end = states
    width = max(len(table[x][a]) for x in range(states) for a in range(actions))
    rewards = np.zeros((states + 1, actions))
    successors = np.full((states + 1, actions, width), end, dtype=np.int64)
    probabilities = np.zeros((states + 1, actions, width))
    probabilities[end, :, 0] = 1.0
    for x in range(states):
        for a in range(actions):
            for k, (probability, successor, reward, done) in enumerate(table[x][a]):
                rewards[x, a] += probability * reward
                successors[x, a, k] = end if done else successor
                probabilities[x, a, k] = probability
    return FiniteMDP.from_successors(rewards, successors, probabilities, gamma, f"gym/{name}")
