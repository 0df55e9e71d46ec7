"""Atari games on raw ALE, frame by frame: a second implementation of frame skipping, pooling, grey conversion and resizing."""

from functools import cache

import numpy as np
import pytest

ale_py = pytest.importorskip("ale_py", reason="Atari needs ale-py: pip install 'actiongap[atari]'")

MAX_FRAMES = 602
"""Frames of a game in most tests: not a multiple of four, so games are truncated within a step."""


@cache
def area_weights(n: int) -> tuple[np.ndarray, np.ndarray]:
    """For each of 84 output pixels in a row: the indices of the input pixels (of n) that it covers, and their weights."""
    start = np.arange(84) * (n / 84)
    under = np.floor(start).astype(int)[:, None] + np.arange(int(n / 84) + 2)
    covered = np.minimum(under + 1, start[:, None] + n / 84) - np.maximum(under, start[:, None])
    share = np.where(covered > 1e-3, covered / (n / 84), 0).astype(np.float32)
    return np.minimum(under, n - 1), share


def resize(screen: np.ndarray) -> np.ndarray:
    """Resize a grey screen to 84 x 84 by area averages, in the order and precision of OpenCV, so results are equal to the last bit."""
    columns, rows = area_weights(screen.shape[1]), area_weights(screen.shape[0])
    pixels, narrow, low = screen.astype(np.float32), np.zeros((len(screen), 84), np.float32), np.zeros((84, 84), np.float32)
    for under, share in zip(columns[0].T, columns[1].T, strict=True):
        narrow += pixels[:, under] * share
    for under, share in zip(rows[0].T, rows[1].T, strict=True):
        low += narrow[under] * share[:, None]
    return np.rint(low).astype(np.uint8)


def random_noops(seed: int):
    """Yield the number of no-ops at the start of each game, as the C++ library draws it from a Mersenne Twister: 0, ..., 29."""
    twister = np.random.RandomState(seed)
    while True:
        product = 30 * int.from_bytes(twister.bytes(4), "little")
        if product % 2**32 >= 2**32 % 30:
            yield product >> 32


class RawGame:
    """A game on raw ALE, one frame at a time."""

    def __init__(self, game: str, seed: int, repeat_action_probability: float, max_frames: int = MAX_FRAMES, color: bool = False):
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", repeat_action_probability)
        self.ale.setInt("random_seed", seed)
        self.ale.loadROM(str(ale_py.roms.get_rom_path(game)))
        self.screen = self.ale.getScreenRGB if color else self.ale.getScreenGrayscale
        self.actions, self.max_frames, self.random_noops = self.ale.getMinimalActionSet(), max_frames, random_noops(seed)
        self.games, self.ended = 0, False

    def reset(self):
        self.ale.reset_game()
        self.noops = next(self.random_noops)
        for _ in range(self.noops):
            self.ale.act(ale_py.Action.NOOP)
            if self.ale.game_over():
                self.ale.reset_game()
        self.pooled, self.third = self.screen(), np.zeros_like(self.screen())
        self.games, self.frames, self.lives, self.ended = self.games + 1, 0, self.ale.lives(), False
        return 0, False, False, False, True

    def step(self, action: int):
        """Return the reward, and whether a life was lost, the game terminated, it was truncated, and a game started."""
        if self.ended:
            return self.reset()
        reward, terminated, truncated, before, fourth = 0, False, False, self.lives, self.pooled
        for k in range(4):
            reward += self.ale.act(self.actions[action])
            self.frames += 1
            terminated = self.ale.game_over()
            truncated = self.frames >= self.max_frames and not terminated
            if terminated or truncated:
                break
            if k == 2:
                self.third = self.screen()
            elif k == 3:
                fourth = self.screen()
        self.pooled = np.maximum(fourth, self.third)
        self.lives, self.ended = self.ale.lives(), terminated or truncated
        return reward, self.lives < before and not terminated, terminated, truncated, False
