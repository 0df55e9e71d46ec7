"""Probes: what agents think of the same states, along recorded games or on a fixed set.

The paper shows V(x) and the action gap of agents along one trajectory of a Bellman agent, smoothed: agents that learned with others
value the same states alike, and tell actions apart by more.

What is recorded is what agents see when they play. On Atari that is stacks of frames, which go on over a lost life as in evaluations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from actiongap.dqn.agent import DQN
from actiongap.dqn.frame_replay import push
from actiongap.envs.atari import AtariGame, Emulators
from actiongap.envs.functional import FunctionalEnv, num_uniforms, reset_env, step_env

SLICE = 256
"""Observations that are thought about at once: of Atari's, each takes half a megabyte on its way through the network."""


class Probe(NamedTuple):
    """What agents think of some states: arrays (agents, states)."""

    value: np.ndarray
    """V(x)."""
    gap: np.ndarray
    """The best less the second-best Q(x, .)."""


def record(dqn: DQN, game: FunctionalEnv | AtariGame, parameters: Any, seed: int, steps: int, epsilon: float = 0.01) -> np.ndarray:
    """The observations of so many steps that an agent plays, (steps, *shape): game after game, or of Atari's one game and no more.

    Examples
    --------
    >>> from actiongap.envs.minatar import GAMES
    >>> from actiongap.dqn.config import Config
    >>> from actiongap.operators import parse
    >>> dqn = DQN(Config(), [parse("bellman")], (10, 10, 4), 3)
    >>> record(dqn, GAMES["breakout"], dqn.network.init(jax.random.key(0)), seed=0, steps=5).shape
    (5, 10, 10, 4)
    """
    if isinstance(game, AtariGame):
        return _emulated(dqn, game, parameters, seed, steps, epsilon)
    entering, going = jax.random.split(jax.random.key(seed))

    def step(now: tuple, number: Any) -> tuple[tuple, Any]:
        play, observation = now
        choosing, moving = jax.random.split(jax.random.fold_in(going, number))
        action = dqn.choose(parameters, observation[None], epsilon, choosing)[0]
        play, seen = step_env(game, play, action, jax.random.uniform(moving, (num_uniforms(game),)), dqn.config.repeat_action_probability)
        return (play, seen.following), observation

    play = reset_env(game, jax.random.uniform(entering, (num_uniforms(game),)))
    _, seen = jax.jit(lambda: jax.lax.scan(step, (play, game.observe(play.state)), jnp.arange(steps)))()
    return np.asarray(seen)


def _emulated(dqn: DQN, game: AtariGame, parameters: Any, seed: int, steps: int, epsilon: float) -> np.ndarray:
    going, observations = jax.random.key(seed), []

    @jax.jit
    def look(parameters: Any, stack: Any, frame: Any, fresh: Any, number: Any) -> tuple[Any, Any]:
        stack = push(stack, frame, fresh)
        return stack, dqn.choose(parameters, stack, epsilon, jax.random.fold_in(going, number))

    with Emulators([game.name], dqn.config.repeat_action_probability, 1) as emulators:
        seen, stack = emulators.begin([seed]), np.zeros((1, *dqn.shape), np.uint8)
        for number in range(steps):
            stack, action = look(parameters, stack, seen.frame, seen.first, np.int32(number))
            observations.append(np.asarray(stack)[0])
            emulators.send(np.asarray(action))
            seen = emulators.receive()
            if seen.over[0] or seen.cut[0]:
                break
    return np.stack(observations)


def probe(dqn: DQN, agents: Sequence[Any], observations: np.ndarray) -> Probe:
    """What agents, given by their parameters, think of observations (states, *shape).

    Examples
    --------
    >>> from actiongap.dqn.config import Config
    >>> from actiongap.operators import parse
    >>> dqn = DQN(Config(), [parse("bellman")], (4,), 3)
    >>> agents = [dqn.network.init(jax.random.key(seed)) for seed in range(2)]
    >>> probe(dqn, agents, np.zeros((5, 4), np.float32)).gap.shape
    (2, 5)
    """
    if observations.shape[1:] != dqn.shape:
        raise ValueError(f"these agents see {list(dqn.shape)} and were shown {list(observations.shape[1:])}: record a game of one of them")
    think = jax.jit(lambda parameters, some: jax.lax.top_k(dqn.values(parameters, some), 2)[0])
    count, size = len(observations), min(len(observations), SLICE)
    # All slices are as long, so that one program serves them: the last state fills the last slice.
    slices = [np.minimum(np.arange(start, start + size), count - 1) for start in range(0, count, size)]
    best = np.stack([np.concatenate([think(parameters, observations[some]) for some in slices])[:count] for parameters in agents])
    return Probe(best[..., 0], best[..., 0] - best[..., 1])


def smoothed(rows: np.ndarray, window: int) -> np.ndarray:
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
