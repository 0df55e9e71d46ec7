"""The original MinAtar, played step by step beside ours with the same chance."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from actiongap.envs.functional import FunctionalEnv


class Recorder:
    """Chance for the original: what NumPy's `RandomState` offers of it, writing down each call.

    Reals are multiples of 2^-24, so that single precision holds them exactly. An integer is written down as the middle of the interval of
    uniform numbers that stand for it.
    """

    def __init__(self, seed: int) -> None:
        self.chance = np.random.RandomState(seed)
        self.calls: list[np.ndarray] = []

    def rand(self, *shape: int) -> Any:
        values = self.chance.randint(2**24, size=shape) / 2**24
        self.calls.append(np.reshape(values, -1))
        return values if shape else float(values)

    def randint(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        low, high = (0, low) if high is None else (low, high)
        values = self.chance.randint(low, high, size)
        self.calls.append(np.reshape((values - low + 0.5) / (high - low), -1))
        return values

    def row(self, length: int) -> np.ndarray:
        """What was drawn since the last row, in its order; whatever was not drawn is 0 and must not matter."""
        row = np.concatenate([*self.calls, np.zeros(length)])
        assert len(row) <= 2 * length
        self.calls.clear()
        return row[:length].astype(np.float32)


def original(name: str, seed: int, ramping: bool = True) -> tuple[Any, Recorder]:
    """The original game without sticky actions, newly begun, and its chance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minatar = pytest.importorskip("minatar")
        environment = minatar.Environment(name, sticky_action_prob=0.0, difficulty_ramping=ramping)
    environment.env.random = Recorder(seed)
    environment.reset()
    return environment, environment.env.random


class Beside(NamedTuple):
    """What happened in both games."""

    score: float
    games: int
    """How many ended."""
    states: list[Any]
    """Ours after each step."""


def at_random(state: Any, rng: np.random.Generator) -> int:
    """Any of the six actions, also those that do nothing in a game."""
    return int(rng.integers(6))


def play_beside(game: FunctionalEnv, seed: int, steps: int, ramping: bool = True, choose: Callable[..., int] = at_random) -> Beside:
    """Both games, by actions chosen from our state: asserts that they agree in every step."""
    environment, recorder = original(game.name, seed, ramping)
    start, step, observe = jax.jit(game.start), jax.jit(game.step), jax.jit(game.observe)
    rng = np.random.default_rng(seed)
    score, games, states, state = 0.0, 0, [], None
    for _ in range(steps):
        if state is None:
            state = start(recorder.row(game.start_chance))
            np.testing.assert_array_equal(observe(state), environment.state())
        action = choose(state, rng)
        theirs = environment.act(action)
        state, reward, ended = step(state, np.int32(action), recorder.row(game.chance))
        assert (float(reward), bool(ended)) == theirs
        np.testing.assert_array_equal(observe(state), environment.state())
        score, games = score + float(reward), games + bool(ended)
        states.append(state)
        if ended:
            environment.reset()
            state = None
    return Beside(score, games, states)
