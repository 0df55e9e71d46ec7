"""The two catalogues that property tests cross, and what several of them need."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from actiongap.mdp.engines import backups
from actiongap.mdp.generators import cake, chain, garnet, gridworld, single_state
from actiongap.mdp.gym import from_gymnasium
from actiongap.mdp.model import FiniteMDP
from actiongap.operators import Operator, parse

FAMILY = ("bellman", "consistent", "al:0.5", "al:0.9", "pal:0.5", "pal:0.9", "pal-dqn:0.5", "pal-dqn:0.9", "lazy:0.5")
"""Operators that the theorem covers with an alpha below 1."""
AT_ONE = ("al:1", "pal:1", "pal-dqn:1", "lazy:1")
"""Operators that need its extension to alpha = 1."""


def loopy(states: int, actions: int, seed: int, gamma: float = 0.9) -> FiniteMDP:
    """A random dense MDP in which every action may stay where it is."""
    rng = np.random.default_rng(seed)
    table = rng.random((states, actions, states)) ** 4 + 0.5 * np.eye(states)[:, None, :] * rng.random((states, actions, 1))
    return FiniteMDP.from_dense(rng.standard_normal((states, actions)), table / table.sum(-1, keepdims=True), gamma, f"loopy:{seed}")


MDPS = {
    "cake": cake(0.9, 0.1),
    "cheap cake": cake(0.5, 1.0),
    "one state": single_state((0.0, 1.0, 0.5), 0.9),
    "one action": garnet(6, 1, 2, gamma=0.9),
    "chain": chain(6),
    "grid": gridworld(4, 3, gamma=0.95),
    "lake": from_gymnasium("FrozenLake-v1", gamma=0.9),
    "garnet": garnet(30, 4, 3, gamma=0.9, seed=1),
    "dense garnet": garnet(12, 3, 5, gamma=0.8, seed=2).dense(),
    "loops": loopy(8, 3, seed=3),
    "no future": loopy(5, 3, seed=4, gamma=0.0),
}


def apply(operator: str | Operator, mdp: FiniteMDP, q: np.ndarray) -> np.ndarray:
    """T'Q by the array code."""
    return parse(operator)(backups(mdp, q))


def is_one_edit_apart(first: str, second: str) -> bool:
    """Whether inserting, removing or changing one letter of a text makes the other."""
    short, long = sorted((first, second), key=len)
    if len(long) - len(short) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    return short[start + (len(short) == len(long)) :] == long[start + 1 :]


@st.composite
def mdps(draw, max_states: int = 5, max_actions: int = 3):
    """Small random MDPs, with many zeros among their probabilities and rewards, and any discount up to 0.95."""
    states, actions = draw(st.integers(1, max_states)), draw(st.integers(1, max_actions))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    table = rng.random((states, actions, states)) * (rng.random((states, actions, states)) < 0.6)
    table[..., 0] += table.sum(-1) == 0
    rewards = rng.integers(-3, 4, (states, actions)).astype(float)
    gamma = draw(st.sampled_from((0.0, 0.3, 0.5, 0.9, 0.95)))
    return FiniteMDP.from_dense(rewards, table / table.sum(-1, keepdims=True), gamma, f"random:{seed}")
