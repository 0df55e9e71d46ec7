"""MinAtar's games as Gymnasium environments, single and vectorized, and images of their observations.

Random numbers come in rows of uniform numbers, one row per reset and one per step. A row depends on the seed and on the number of earlier
rows only. So environment i of `MinAtars` with seed s is identical to a `MinAtar` with seed s + i, in all following games too.

In images every layer of the observation has its own color. Objects are blocks, bullets are dots, and trails, which show where an object
came from, are small and faint. If layers share a cell, the most important one is drawn last.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from PIL import Image

from actiongap._suggest import choose_from
from actiongap.envs.functional import FunctionalEnv, FunctionalEnvState, num_uniforms, reset_env, step_env
from actiongap.envs.minatar import GAMES
from actiongap.envs.minatar.asterix import asterix
from actiongap.envs.minatar.seaquest import seaquest
from actiongap.envs.minatar.space_invaders import space_invaders
from actiongap.envs.vector import BaseVectorEnv
from actiongap.render.canvas import SUPERSAMPLING, Canvas, Color, blend

CELL = 40
"""Width of a cell in pixels."""
_NIGHT, _FLOOR = (20, 23, 33), (31, 36, 50)
_WHITE, _GOLD, _RED, _GREEN, _BLUE, _CYAN = (240, 240, 236), (246, 190, 60), (232, 80, 70), (104, 204, 120), (86, 140, 240), (96, 210, 226)
_VIOLET, _ORANGE, _GREY = (176, 124, 236), (242, 140, 58), (150, 158, 176)


class Mark(NamedTuple):
    """How a layer is drawn."""

    layer: int
    color: Color
    shape: Literal["block", "dot", "trail"] = "block"


_SPEEDS = [blend(_RED, _BLUE, k / 4) for k in range(5)]
MARKS: dict[str, tuple[Mark, ...]] = {
    "asterix": (Mark(2, _GREY, "trail"), Mark(3, _GOLD), Mark(1, _RED), Mark(0, _CYAN)),
    "breakout": (Mark(3, _ORANGE), Mark(2, _WHITE, "trail"), Mark(1, _WHITE, "dot"), Mark(0, _CYAN)),
    "freeway": (*(Mark(2 + k, _SPEEDS[k], "trail") for k in range(5)), Mark(1, _ORANGE), Mark(0, _GOLD, "dot")),
    "seaquest": (
        Mark(7, _BLUE),
        Mark(8, _GREEN, "dot"),
        Mark(3, _GREY, "trail"),
        Mark(9, _GREEN),
        Mark(5, _RED),
        Mark(6, _VIOLET),
        Mark(1, blend(_NIGHT, _CYAN, 0.6)),
        Mark(0, _CYAN),
        Mark(2, _WHITE, "dot"),
        Mark(4, _RED, "dot"),
    ),
    "space_invaders": (
        Mark(1, _GREY),
        Mark(2, _GREEN),
        Mark(3, _VIOLET),
        Mark(0, _CYAN),
        Mark(4, _WHITE, "dot"),
        Mark(5, _RED, "dot"),
    ),
}
"""The layers of each game in drawing order."""


def picture(game: str, observation: Any) -> np.ndarray:
    """Return an image (height, width, 3) of an observation.

    Examples
    --------
    >>> picture("breakout", np.zeros((10, 10, 4), bool)).shape
    (400, 400, 3)
    """
    observation = np.asarray(observation, bool)
    rows, columns, _ = observation.shape
    image = Image.new("RGB", (columns * CELL * SUPERSAMPLING, rows * CELL * SUPERSAMPLING), _NIGHT)
    canvas = Canvas(image, SUPERSAMPLING)
    for row, column in np.ndindex(rows, columns):
        _mark(canvas, row, column, _FLOOR, 1.0)
    for mark in MARKS[game]:
        for row, column in np.argwhere(observation[:, :, mark.layer]):
            if mark.shape == "dot":
                canvas.dot(((column + 0.5) * CELL, (row + 0.5) * CELL), 0.26 * CELL, mark.color)
            elif mark.shape == "trail":
                _mark(canvas, row, column, blend(_FLOOR, mark.color, 0.65), 0.33 * CELL)
            else:
                _mark(canvas, row, column, mark.color, 0.08 * CELL)
    return np.asarray(image.reduce(SUPERSAMPLING))


def _mark(canvas: Canvas, row: int, column: int, color: Color, inset: float) -> None:
    """Fill a cell except for a margin."""
    corners = (column * CELL + inset, row * CELL + inset, (column + 1) * CELL - inset, (row + 1) * CELL - inset)
    canvas.box(corners, color, 0.12 * CELL)


ALL_ACTIONS = ("stay", "left", "up", "right", "down", "fire")
"""Names of MinAtar's six actions, in its order."""
RAMPING = {"asterix": asterix, "seaquest": seaquest, "space_invaders": space_invaders}
"""Games whose difficulty ramp can be disabled."""


@cache
def rules(name: str, ramping: bool | None = None, full_actions: bool = False) -> FunctionalEnv:
    """Return the game with this name as functions.

    Parameters
    ----------
    name
        A name in `actiongap.envs.minatar.GAMES`.
    ramping
        Whether the game becomes harder over time; by default as in the original.
    full_actions
        Whether to use all six actions instead of the game's minimal action set.

    Examples
    --------
    >>> len(rules("freeway").actions), len(rules("freeway", full_actions=True).actions)
    (3, 6)
    """
    if name not in GAMES:
        raise ValueError(f"unknown game {name!r}: {choose_from(name, GAMES)}")
    if ramping is not None and name not in RAMPING:
        raise ValueError(f"{name} has no difficulty ramp: leave out ramping")
    game = GAMES[name] if ramping is None else RAMPING[name](ramping)
    return game._replace(actions=ALL_ACTIONS, numbers=tuple(range(len(ALL_ACTIONS)))) if full_actions else game


def boards(game: FunctionalEnv) -> spaces.Box:
    """Return the observation space of a game.

    Examples
    --------
    >>> boards(GAMES["freeway"])
    Box(False, True, (10, 10, 7), bool)
    """
    booleans: Any = np.bool_
    return spaces.Box(0, 1, game.shape, booleans)


class Lane(NamedTuple):
    """State of one environment through all of its games."""

    seed: Any
    rows: Any
    """Number of rows of random numbers used so far."""
    play: FunctionalEnvState


def _new_lane(game: FunctionalEnv, seed: Any) -> Lane:
    """Make an environment that has not been reset yet."""
    return Lane(jnp.uint32(seed), jnp.int32(0), reset_env(game, jnp.zeros(num_uniforms(game), jnp.float32)))


def _step_lane(game: FunctionalEnv, lane: Lane, action: Any, starting: Any, repeat_action_probability: Any) -> tuple[Lane, Any, Any, Any]:
    """Take a step, or start a new game; return the new state, the observation, the reward, and whether the game ended."""
    u = jax.random.uniform(jax.random.fold_in(jax.random.key(lane.seed), lane.rows), (num_uniforms(game),), jnp.float32)
    # The last action may be repeated in the next game, as in `step_env` and in the original.
    initial = reset_env(game, u)._replace(last=lane.play.last)
    after, result = step_env(game, lane.play, action, u, repeat_action_probability)
    play = jax.tree.map(lambda new, old: jnp.where(starting, new, old), initial, after)
    observation = jnp.where(starting, game.observe(initial.state), result.observation)
    return Lane(lane.seed, lane.rows + 1, play), observation, jnp.where(starting, 0.0, result.reward), result.ended & ~starting


_make_single, _step_single = (jax.jit(function, static_argnums=0) for function in (_new_lane, _step_lane))


@partial(jax.jit, static_argnums=0)
def _seed_lanes(game: FunctionalEnv, lanes: Lane | None, seeds: Any, fresh: Any) -> Lane:
    """Replace the environments where `fresh` is true by new ones with these seeds."""
    new = jax.vmap(partial(_new_lane, game))(seeds)
    return new if lanes is None else jax.vmap(lambda one, *both: jax.tree.map(partial(jnp.where, one), *both))(fresh, new, lanes)


@partial(jax.jit, static_argnums=0)
def _step_lanes(
    game: FunctionalEnv, lanes: Lane, actions: Any, starting: Any, repeat_action_probability: Any
) -> tuple[Lane, Any, Any, Any]:
    return jax.vmap(partial(_step_lane, game), in_axes=(0, 0, 0, None))(lanes, actions, starting, repeat_action_probability)


class MinAtar(gymnasium.Env[np.ndarray, Any]):
    """A game of MinAtar. Observations are booleans (10, 10, layers), and an episode is a game.

    Parameters
    ----------
    render_mode
        `rgb_array` or None.
    game
        A name in `actiongap.envs.minatar.GAMES`.
    repeat_action_probability
        Probability that the last action is executed instead of the given one.
    ramping
        Whether the game becomes harder over time, if it has a difficulty ramp.
    full_actions
        Whether to use all six actions (`ALL_ACTIONS`) instead of the game's minimal action set.

    Examples
    --------
    >>> env = MinAtar(game="breakout")
    >>> env.reset(seed=0)[0].shape
    (10, 10, 4)
    >>> observation, reward, terminated, truncated, info = env.step(1)
    >>> reward, terminated
    (0.0, False)
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - the base class declares it so

    def __init__(
        self,
        render_mode: str | None = None,
        *,
        game: str,
        repeat_action_probability: float = 0.1,
        ramping: bool | None = None,
        full_actions: bool = False,
    ):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is {render_mode!r}: choose rgb_array or None")
        self.render_mode = render_mode
        self.rules: FunctionalEnv = rules(game, ramping, full_actions)
        """The game as functions."""
        self.observation_space: spaces.Space[Any] = boards(self.rules)
        self.action_space: spaces.Space[Any] = spaces.Discrete(len(self.rules.actions))
        self._repeat_probability = _check_probability(repeat_action_probability)
        self._lane: Lane | None = None
        self._observation: np.ndarray | None = None
        self._over = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None or self._lane is None:
            self._lane = _make_single(self.rules, _draw_seed(self.np_random))
        return self._advance(0, True)[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._lane is None or self._over:
            raise ValueError(f"the game {'has not started' if self._lane is None else 'is over'}: call reset before step")
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is invalid: choose 0 to {len(self.rules.actions) - 1}")
        observation, reward, ended = self._advance(int(action), False)
        return observation, reward, ended, False, {}

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            gymnasium.logger.warn('render_mode is None: make the environment with render_mode="rgb_array"')
            return None
        if self._observation is None:
            raise ValueError("the game has not started: call reset before render")

        return picture(self.rules.name, self._observation)

    def _advance(self, action: int, starting: bool) -> tuple[np.ndarray, float, bool]:
        assert self._lane is not None
        self._lane, observation, reward, ended = _step_single(
            self.rules, self._lane, np.int32(action), np.bool_(starting), self._repeat_probability
        )
        self._observation, self._over = np.asarray(observation), bool(ended)
        return self._observation.copy(), float(reward), self._over


class MinAtars(BaseVectorEnv):
    """A vector of games, each as in `MinAtar`, stepped in one compiled call.

    Parameters
    ----------
    num_envs
        Number of games.
    max_episode_steps
        Steps after which an episode is truncated; never if None.
    render_mode
        Must be None.
    game, repeat_action_probability, ramping, full_actions
        As for `MinAtar`.

    Examples
    --------
    >>> env = MinAtars(1000, game="asterix")
    >>> observations, _ = env.reset(seed=0)
    >>> env.step(np.zeros(1000, int))[0].shape
    (1000, 10, 10, 4)
    """

    plural = "games"

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        render_mode: None = None,
        *,
        game: str,
        repeat_action_probability: float = 0.1,
        ramping: bool | None = None,
        full_actions: bool = False,
    ):
        self.rules: FunctionalEnv = rules(game, ramping, full_actions)
        """The game as functions."""
        super().__init__(num_envs, max_episode_steps, render_mode, boards(self.rules), spaces.Discrete(len(self.rules.actions)))
        self._repeat_probability = _check_probability(repeat_action_probability)
        self._lanes: Lane | None = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        seeds = self.env_seeds(seed)
        fresh = np.array([one is not None or self._lanes is None for one in seeds])
        if fresh.any():
            numbers = [_draw_seed(seeding.np_random(one)[0]) if new else np.uint32(0) for one, new in zip(seeds, fresh, strict=True)]
            self._lanes = _seed_lanes(self.rules, self._lanes, np.array(numbers), fresh)
        self._steps[:] = 0
        self._done[:] = False
        return self._advance(np.zeros(self.num_envs, np.int32), np.ones(self.num_envs, bool))[0], {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._lanes is None:
            raise ValueError("the games have not started: call reset before step")
        observations, rewards, terminated = self._advance(self.check_actions(actions).astype(np.int32), self._done)
        return observations, rewards, terminated, self.update_episodes(terminated), {}

    def _advance(self, actions: np.ndarray, starting: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        assert self._lanes is not None
        self._lanes, observations, rewards, ended = _step_lanes(self.rules, self._lanes, actions, starting, self._repeat_probability)
        # Copies, because views of device arrays are read-only.
        return np.array(observations), np.array(rewards, np.float64), np.array(ended)


def _draw_seed(rng: np.random.Generator) -> np.uint32:
    """Draw the seed of an environment from the generator that Gymnasium seeds."""
    return rng.integers(2**32, dtype=np.uint32)


def _check_probability(repeat_action_probability: float) -> np.float32:
    if not 0 <= repeat_action_probability <= 1:
        raise ValueError(f"repeat_action_probability is {repeat_action_probability!r}: give a number from 0 to 1")
    return np.float32(repeat_action_probability)
