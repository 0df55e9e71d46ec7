"""A trained agent at play, as a ride that can be made a video: what its environment paints, and what the agent thinks of it."""

from __future__ import annotations

import io
from typing import Any

import gymnasium
import jax
import numpy as np
from PIL import Image

from actiongap.arena.catalogue import load_environment
from actiongap.arena.game import Game
from actiongap.domains.drawing import HEIGHT, WIDTH
from actiongap.domains.sketches import Painter, Sketch, Stage
from actiongap.experiments.trained import Trained
from actiongap.grid.rollouts import Ride

LIMIT = 3000
"""Steps after which an episode is cut short."""
_BACKGROUND = (20, 23, 33)


def play(agent: Trained, seed: int = 0, limit: int = LIMIT) -> tuple[Stage, Ride]:
    """One episode, played greedily, and how it is shown."""
    game = load_environment(agent.spec.problem)
    env = _environment(agent, game)
    think = jax.jit(lambda seen: agent.dqn.values(agent.parameters, seen))
    pictures, values, actions, scores, ending = [], [], [], [0.0], "limit"
    observation, _ = env.reset(seed=seed)
    for step in range(limit + 1):
        seen = observation[None] if isinstance(game, Game) else game.seen(np.asarray(observation)[None])
        values.append(np.asarray(think(seen))[0])
        actions.append(int(values[-1].argmax()))
        pictures.append(_kept(env.render(), agent.spec.problem))
        if ending != "limit" or step == limit:
            break
        number = actions[-1] if isinstance(game, Game) else actions[-1] + int(game.moves.start)
        observation, reward, terminated, truncated, _ = env.step(number)
        scores.append(scores[-1] + float(reward))
        ending = "game over" if terminated else "cut short" if truncated else "limit"
    pace = float(env.metadata.get("render_fps") or 10)
    env.close()
    stage = Stage(agent.spec.problem, game.actions, ("score",), Sketch(lambda ride: _painter(pictures), pace))
    return stage, Ride((), (np.array(scores),), np.array(actions), np.array(values), np.arange(len(actions)), ending)


def _environment(agent: Trained, game: Any) -> Any:
    if isinstance(game, Game):
        words = "".join(word.capitalize() for word in game.name.split("_"))
        import actiongap.domains  # noqa: F401 - registers it

        return gymnasium.make(f"actiongap/MinAtar-{words}-v0", render_mode="rgb_array", sticky=agent.spec.sticky)
    try:
        return gymnasium.make(game.name, render_mode="rgb_array")
    except gymnasium.error.Error as error:
        raise ValueError(f"{game.name} cannot be painted: {' '.join(str(error).split())}") from None


def _kept(picture: Any, name: str) -> bytes:
    """A picture as a few bytes: a long episode has thousands."""
    if picture is None:
        raise ValueError(f"{name} paints no pictures: it cannot be watched")
    image, kept = Image.fromarray(np.asarray(picture, np.uint8)), io.BytesIO()
    scale = min(WIDTH / image.width, HEIGHT / image.height)
    size = (round(image.width * scale), round(image.height * scale))
    image.resize(size, Image.Resampling.LANCZOS).save(kept, "png", compress_level=1)
    return kept.getvalue()


def _painter(pictures: list[bytes]) -> Painter:
    def paint(record: int) -> np.ndarray:
        image = Image.new("RGB", (WIDTH, HEIGHT), _BACKGROUND)
        picture = Image.open(io.BytesIO(pictures[record]))
        image.paste(picture, ((WIDTH - picture.width) // 2, (HEIGHT - picture.height) // 2))
        return np.asarray(image)

    return paint
