"""Probes: what agents think of the same states, along one recorded game or on a fixed set.

The paper shows V(x) and the action gap of agents along one trajectory of a Bellman agent, smoothed: agents that learned with others
value the same states alike, and tell actions apart by more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from actiongap.arena.game import Game, begin, luck, play_on
from actiongap.deep.dqn import DQN

WINDOW = 50
"""Steps over which a probe is smoothed."""


class Probe(NamedTuple):
    """What agents think of some states: arrays (agents, states)."""

    value: np.ndarray
    """V(x)."""
    gap: np.ndarray
    """The best less the second-best Q(x, .)."""


def record(dqn: DQN, game: Game, parameters: Any, seed: int, steps: int, epsilon: float = 0.01) -> np.ndarray:
    """The observations of so many steps that an agent plays, game after game, (steps, *shape).

    Examples
    --------
    >>> from actiongap.arena.minatar import GAMES
    >>> from actiongap.deep.settings import Settings
    >>> from actiongap.operators import parse
    >>> dqn = DQN(Settings(), [parse("bellman")], (10, 10, 4), 3)
    >>> record(dqn, GAMES["breakout"], dqn.network.init(jax.random.key(0)), seed=0, steps=5).shape
    (5, 10, 10, 4)
    """
    entering, going = jax.random.split(jax.random.key(seed))

    def step(now: tuple, number: Any) -> tuple[tuple, Any]:
        play, observation = now
        choosing, moving = jax.random.split(jax.random.fold_in(going, number))
        action = dqn.choose(parameters, observation[None], epsilon, choosing)[0]
        play, seen = play_on(game, play, action, jax.random.uniform(moving, (luck(game),)), dqn.settings.sticky)
        return (play, seen.following), observation

    play = begin(game, jax.random.uniform(entering, (luck(game),)))
    _, seen = jax.jit(lambda: jax.lax.scan(step, (play, game.observe(play.state)), jnp.arange(steps)))()
    return np.asarray(seen)


def probe(dqn: DQN, agents: Sequence[Any], observations: np.ndarray) -> Probe:
    """What agents, given by their parameters, think of observations (states, *shape).

    Examples
    --------
    >>> from actiongap.deep.settings import Settings
    >>> from actiongap.operators import parse
    >>> dqn = DQN(Settings(), [parse("bellman")], (4,), 3)
    >>> agents = [dqn.network.init(jax.random.key(seed)) for seed in range(2)]
    >>> probe(dqn, agents, np.zeros((5, 4), np.float32)).gap.shape
    (2, 5)
    """
    think = jax.jit(lambda parameters: jax.lax.top_k(dqn.values(parameters, jnp.asarray(observations)), 2)[0])
    best = np.stack([np.asarray(think(parameters)) for parameters in agents])
    return Probe(best[..., 0], best[..., 0] - best[..., 1])


def smoothed(rows: np.ndarray, window: int = WINDOW) -> np.ndarray:
    """The mean over the last `window` numbers of each row, or over all there are so far where there are fewer.

    Examples
    --------
    >>> smoothed(np.array([[1.0, 3.0, 5.0]]), window=2).tolist()
    [[1.0, 2.0, 4.0]]
    """
    sums = np.concatenate([np.zeros((*rows.shape[:-1], 1)), np.cumsum(rows, axis=-1, dtype=np.float64)], axis=-1)
    end = np.arange(1, rows.shape[-1] + 1)
    first = np.maximum(end - window, 0)
    return (sums[..., end] - sums[..., first]) / (end - first)
