"""Pictures of MinAtar's boards: what is seen of a game, each layer of the observation in a color of its own.

Things are blocks, bullets are dots, and trails, which say where something came from, are small and faint. Layers that share cells are
painted one over the other, what matters most last.

MinAtar's games as Gymnasium environments: one at a time, or thousands that step in one compiled call.

Chance comes in rows of uniform numbers, one row for each start of a game and one for each step. A row is made from a seed and from how many
rows were taken before it, so a lane of games is decided by its seed and its actions: lane i of `MinAtars` that start from seed s goes
through what a `MinAtar` that starts from seed s + i does, and so does every game that follows.
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

from actiongap.envs.functional import FunctionalEnv, FunctionalEnvState, num_uniforms, reset_env, step_env
from actiongap.envs.minatar import GAMES
from actiongap.envs.minatar.asterix import asterix
from actiongap.envs.minatar.seaquest import seaquest
from actiongap.envs.minatar.space_invaders import space_invaders
from actiongap.envs.vector import BaseVectorEnv
from actiongap.render.canvas import SUPERSAMPLING, Canvas, Color, blend

CELL = 40
"""Pixels of a cell's side."""
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
"""The layers of each game in the order in which they are painted."""


def picture(game: str, observation: Any) -> np.ndarray:
    """An observation of a game to look at: an array of height by width by red, green and blue.

    Examples
    --------
    >>> picture("breakout", np.zeros((10, 10, 4), bool)).shape
    (400, 400, 3)
    """
    seen = np.asarray(observation, bool)
    rows, columns, _ = seen.shape
    image = Image.new("RGB", (columns * CELL * SUPERSAMPLING, rows * CELL * SUPERSAMPLING), _NIGHT)
    canvas = Canvas(image, SUPERSAMPLING)
    for row, column in np.ndindex(rows, columns):
        _mark(canvas, row, column, _FLOOR, 1.0)
    for mark in MARKS[game]:
        for row, column in np.argwhere(seen[:, :, mark.layer]):
            if mark.shape == "dot":
                canvas.dot(((column + 0.5) * CELL, (row + 0.5) * CELL), 0.26 * CELL, mark.color)
            elif mark.shape == "trail":
                _mark(canvas, row, column, blend(_FLOOR, mark.color, 0.65), 0.33 * CELL)
            else:
                _mark(canvas, row, column, mark.color, 0.08 * CELL)
    return np.asarray(image.reduce(SUPERSAMPLING))


def _mark(canvas: Canvas, row: int, column: int, color: Color, inset: float) -> None:
    """A cell filled but for a margin."""
    corners = (column * CELL + inset, row * CELL + inset, (column + 1) * CELL - inset, (row + 1) * CELL - inset)
    canvas.box(corners, color, 0.12 * CELL)


ALL_ACTIONS = ("stay", "left", "up", "right", "down", "fire")
"""Names of MinAtar's six actions, in its order."""
RAMPING = {"asterix": asterix, "seaquest": seaquest, "space_invaders": space_invaders}
"""The games that can be told not to become harder with time."""


@cache
def rules(name: str, ramping: bool | None = None, full_actions: bool = False) -> FunctionalEnv:
    """The rules of a game of this name.

    Parameters
    ----------
    name
        A name of `actiongap.envs.minatar.GAMES`.
    ramping
        Whether the game becomes harder with time; as the original does if not given.
    full_actions
        Whether there are all six actions, rather than those that do something in this game.

    Examples
    --------
    >>> len(rules("freeway").actions), len(rules("freeway", full_actions=True).actions)
    (3, 6)
    """
    if name not in GAMES:
        raise ValueError(f"unknown game {name!r}: choose from {', '.join(GAMES)}")
    if ramping is not None and name not in RAMPING:
        raise ValueError(f"{name} never becomes harder: leave out ramping")
    game = GAMES[name] if ramping is None else RAMPING[name](ramping)
    return game._replace(actions=ALL_ACTIONS, numbers=tuple(range(len(ALL_ACTIONS)))) if full_actions else game


def boards(game: FunctionalEnv) -> spaces.Box:
    """The space of what is seen of a game.

    Examples
    --------
    >>> boards(GAMES["freeway"])
    Box(False, True, (10, 10, 7), bool)
    """
    booleans: Any = np.bool_
    return spaces.Box(0, 1, game.shape, booleans)


class Lane(NamedTuple):
    """One game after the other."""

    seed: Any
    rows: Any
    """How many rows of chance were taken."""
    play: FunctionalEnvState


def _lane(game: FunctionalEnv, seed: Any) -> Lane:
    """A lane in which no game was begun yet."""
    return Lane(jnp.uint32(seed), jnp.int32(0), reset_env(game, jnp.zeros(num_uniforms(game), jnp.float32)))


def _turn(game: FunctionalEnv, lane: Lane, action: Any, starting: Any, repeat_action_probability: Any) -> tuple[Lane, Any, Any, Any]:
    """A step, or a new game: the lane after it, what is seen, the reward, and whether the game ended."""
    u = jax.random.uniform(jax.random.fold_in(jax.random.key(lane.seed), lane.rows), (num_uniforms(game),), jnp.float32)
    # What was done last may stick in the next game, as it may in `step_env` and in the original.
    begun = reset_env(game, u)._replace(last=lane.play.last)
    played, seen = step_env(game, lane.play, action, u, repeat_action_probability)
    play = jax.tree.map(lambda new, old: jnp.where(starting, new, old), begun, played)
    observation = jnp.where(starting, game.observe(begun.state), seen.observation)
    return Lane(lane.seed, lane.rows + 1, play), observation, jnp.where(starting, 0.0, seen.reward), seen.ended & ~starting


_one_lane, _one_turn = (jax.jit(function, static_argnums=0) for function in (_lane, _turn))


@partial(jax.jit, static_argnums=0)
def _all_lanes(game: FunctionalEnv, lanes: Lane | None, seeds: Any, fresh: Any) -> Lane:
    """The lanes, of which some get a seed and forget what was."""
    new = jax.vmap(partial(_lane, game))(seeds)
    return new if lanes is None else jax.vmap(lambda one, *both: jax.tree.map(partial(jnp.where, one), *both))(fresh, new, lanes)


@partial(jax.jit, static_argnums=0)
def _all_turns(game: FunctionalEnv, lanes: Lane, actions: Any, starting: Any, repeat_action_probability: Any) -> tuple[Lane, Any, Any, Any]:
    return jax.vmap(partial(_turn, game), in_axes=(0, 0, 0, None))(lanes, actions, starting, repeat_action_probability)


class MinAtar(gymnasium.Env[np.ndarray, Any]):
    """A game of MinAtar: observations are boards (10, 10, layers) of booleans, and an episode is a game.

    Parameters
    ----------
    render_mode
        `rgb_array` for pictures, or None.
    game
        Its name, as in `actiongap.envs.minatar.GAMES`.
    repeat_action_probability
        How likely it is that the last action is carried out again instead of the one that is asked for.
    ramping
        Whether the game becomes harder with time, for those that do.
    full_actions
        Whether there are all six actions (`ALL_ACTIONS`), rather than those that do something in this game.

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
        self.rules = rules(game, ramping, full_actions)
        """The game as functions."""
        self.observation_space = boards(self.rules)
        self.action_space = spaces.Discrete(len(self.rules.actions))
        self._sticky = _checked(repeat_action_probability)
        self._lane: Lane | None = None
        self._seen: np.ndarray | None = None
        self._over = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None or self._lane is None:
            self._lane = _one_lane(self.rules, _number(self.np_random))
        return self._go(0, True)[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._lane is None or self._over:
            raise ValueError(f"the game {'has not started' if self._lane is None else 'is over'}: call reset before step")
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is none of this game's: they are 0 to {len(self.rules.actions) - 1}")
        observation, reward, ended = self._go(int(action), False)
        return observation, reward, ended, False, {}

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            gymnasium.logger.warn('this game draws nothing: make it with render_mode="rgb_array"')
            return None
        if self._seen is None:
            raise ValueError("the game has not started: call reset before render")

        return picture(self.rules.name, self._seen)

    def _go(self, action: int, starting: bool) -> tuple[np.ndarray, float, bool]:
        assert self._lane is not None
        self._lane, seen, reward, ended = _one_turn(self.rules, self._lane, np.int32(action), np.bool_(starting), self._sticky)
        self._seen, self._over = np.asarray(seen), bool(ended)
        return self._seen.copy(), float(reward), self._over


class MinAtars(BaseVectorEnv):
    """Many games in step, each as `MinAtar`, in one compiled call.

    Parameters
    ----------
    num_envs
        How many.
    max_episode_steps
        Steps after which an episode is truncated; never if not given.
    render_mode
        None.
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
        self.rules = rules(game, ramping, full_actions)
        """The game as functions."""
        super().__init__(num_envs, max_episode_steps, render_mode, boards(self.rules), spaces.Discrete(len(self.rules.actions)))
        self._sticky = _checked(repeat_action_probability)
        self._lanes: Lane | None = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        seeds = self.env_seeds(seed)
        fresh = np.array([one is not None or self._lanes is None for one in seeds])
        if fresh.any():
            numbers = [_number(seeding.np_random(one)[0]) if new else np.uint32(0) for one, new in zip(seeds, fresh, strict=True)]
            self._lanes = _all_lanes(self.rules, self._lanes, np.array(numbers), fresh)
        self._steps[:] = 0
        self._done[:] = False
        return self._go(np.zeros(self.num_envs, np.int32), np.ones(self.num_envs, bool))[0], {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._lanes is None:
            raise ValueError("the games have not started: call reset before step")
        observations, rewards, terminated = self._go(self.check_actions(actions).astype(np.int32), self._done)
        return observations, rewards, terminated, self.update_episodes(terminated), {}

    def _go(self, actions: np.ndarray, starting: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        assert self._lanes is not None
        self._lanes, observations, rewards, ended = _all_turns(self.rules, self._lanes, actions, starting, self._sticky)
        # Copies, for what a device lends must not be written to.
        return np.array(observations), np.array(rewards, np.float64), np.array(ended)


def _number(rng: np.random.Generator) -> np.uint32:
    """What a lane is seeded with, from the generator that Gymnasium seeds."""
    return rng.integers(2**32, dtype=np.uint32)


def _checked(repeat_action_probability: float) -> np.float32:
    if not 0 <= repeat_action_probability <= 1:
        raise ValueError(f"repeat_action_probability is {repeat_action_probability!r}: it must be from 0 to 1")
    return np.float32(repeat_action_probability)
