"""The original MinAtar, compared step by step with this implementation, with the same random numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from actiongap.envs.functional import FunctionalEnv


class Recorder:
    """Random numbers for the original: the methods of NumPy's `RandomState` that it uses, with a record of each call.

    Reals are multiples of 2^-24, which single precision represents exactly. An integer is recorded as the middle of the interval of uniform
    numbers that map to it.
    """

    def __init__(self, seed: int) -> None:
        self.random = np.random.RandomState(seed)
        self.calls: list[np.ndarray] = []

    def rand(self, *shape: int) -> Any:
        values = self.random.randint(2**24, size=shape) / 2**24
        self.calls.append(np.reshape(values, -1))
        return values if shape else float(values)

    def randint(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        low, high = (0, low) if high is None else (low, high)
        values = self.random.randint(low, high, size)
        self.calls.append(np.reshape((values - low + 0.5) / (high - low), -1))
        return values

    def row(self, length: int) -> np.ndarray:
        """Numbers drawn since the last row, in order, padded with zeros."""
        row = np.concatenate([*self.calls, np.zeros(length)])
        assert len(row) <= 2 * length
        self.calls.clear()
        return row[:length].astype(np.float32)


def original(name: str, seed: int, ramping: bool = True) -> tuple[Any, Recorder]:
    """A new game of the original without sticky actions, and its random numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minatar = pytest.importorskip("minatar")
        environment = minatar.Environment(name, sticky_action_prob=0.0, difficulty_ramping=ramping)
    environment.env.random = Recorder(seed)
    environment.reset()
    return environment, environment.env.random


class Comparison(NamedTuple):
    """Result of playing both games."""

    score: float
    games: int
    """Number of games that ended."""
    states: list[Any]
    """States of this implementation after each step."""


def random_action(state: Any, rng: np.random.Generator) -> int:
    """Any of the six actions, including those without effect."""
    return int(rng.integers(6))


def play_both(game: FunctionalEnv, seed: int, steps: int, ramping: bool = True, choose: Callable[..., int] = random_action) -> Comparison:
    """Play both games with actions chosen from our state, and assert that they agree in every step."""
    environment, recorder = original(game.name, seed, ramping)
    start, step, observe = jax.jit(game.start), jax.jit(game.step), jax.jit(game.observe)
    rng = np.random.default_rng(seed)
    score, games, states, state = 0.0, 0, [], None
    for _ in range(steps):
        if state is None:
            state = start(recorder.row(game.num_start_uniforms))
            np.testing.assert_array_equal(observe(state), environment.state())
        action = choose(state, rng)
        theirs = environment.act(action)
        state, reward, ended = step(state, np.int32(action), recorder.row(game.num_step_uniforms))
        assert (float(reward), bool(ended)) == theirs
        np.testing.assert_array_equal(observe(state), environment.state())
        score, games = score + float(reward), games + bool(ended)
        states.append(state)
        if ended:
            environment.reset()
            state = None
    return Comparison(score, games, states)
