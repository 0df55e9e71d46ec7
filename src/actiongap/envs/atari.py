"""Atari games: the paper's 60 games, vectorized emulators, and single episodes with the full screen.

Games are named like their ROMs: `asterix`, `space_invaders`. An agent observes one gray frame of 84 x 84 and has the minimal action set of
the game: those of the joystick's 18 actions that have an effect. `data/atari_games.csv` holds the scores of the paper and of others.

**Preprocessing.** An agent's step repeats its action for four frames. With sticky actions, each frame may instead repeat the action of the
previous frame. The observation is the pixelwise maximum of the last two frames, in gray, resized to 84 x 84 by area. A game starts with 0
to 29 no-op frames and is truncated after 108,000 further frames. Rewards are the changes of the score, not clipped. Frames are not stacked.

**End of an episode.** A step reports three events separately: a lost life, a terminated game, and a truncated game. After the last two, the
next step only starts a new game: its action is not used. Two details come from the emulator. The frame on which a game ends is not
rendered: the observation is that of the previous step, combined with the third frame of this step if the fourth was the last. Games without
a life counter never report a lost life.

**Determinism.** Seeds and actions determine everything, independently of threads.

**Performance.** The emulators of a game share a pool of threads, one per core by default, so all cores are busy until the slowest emulator
is done. With several games there are more threads than cores; on two cores this had no measurable cost. Construction takes 85 ms of one
core per emulator and is sequential, because the emulator builds a large color table and holds the GIL. A reset is as slow, because a
seed requires loading the game again, but it uses all cores.

`EmulatorGroups` splits the emulators of several agents into groups: while agents choose actions for one group, the emulators of the others
run. `AtariEpisode` plays one game for a video. It runs two emulators with the same seed and actions, one as the agent observes it and one
with the whole screen in color.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import files
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from actiongap._suggest import nearest
from actiongap._system import cores, install


@cache
def atari_games() -> tuple[Mapping[str, str], ...]:
    """Return one row per game as a mapping from column names, in the order of the paper's table.

    Examples
    --------
    >>> len(atari_games()), atari_games()[0]["game"], atari_games()[0]["paper_bellman"]
    (60, 'Asterix', '6074.98')
    """
    text = (files("actiongap") / "data" / "atari_games.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


GAMES = tuple(row["rom"] for row in atari_games())
"""The games in the order of the paper's table."""
TRAINING = GAMES[:5]
"""The training games, on which the paper chose its parameters."""

SCREEN = (84, 84)
"""Rows and columns of an observation."""
FRAMES_PER_STEP = 4
"""Frames for which an action is repeated."""


class AtariGame(NamedTuple):
    """A game of the Atari 2600."""

    name: str
    """Name of the ROM."""
    actions: tuple[str, ...]
    """Names of the actions, by index."""
    screen: tuple[int, int]
    """Rows and columns of the screen; 210 rows in most games."""
    shape: tuple[int, int] = SCREEN
    """Rows and columns of an observation."""


def check_game(name: str) -> None:
    """Raise ValueError if the game is unknown or ale-py is not installed.

    Examples
    --------
    >>> check_game("spaceinvaders")
    Traceback (most recent call last):
    ...
    ValueError: unknown Atari game 'spaceinvaders': did you mean atari/space_invaders?
    """
    if name not in GAMES:
        raise ValueError(f"unknown Atari game {name!r}: did you mean atari/{nearest(name, GAMES, cutoff=0.0)}?")
    try:
        import ale_py  # noqa: F401
    except ImportError:
        raise ValueError(f"atari/{name} needs ale-py, which is not installed: {install('atari')}") from None


@cache
def atari_game(name: str) -> AtariGame:
    """Return the game with this name, as its emulator describes it.

    Examples
    --------
    >>> atari_game("pong").actions
    ('noop', 'fire', 'right', 'left', 'right fire', 'left fire')
    """
    check_game(name)
    from ale_py import ALEInterface, LoggerMode, roms

    ALEInterface.setLoggerMode(LoggerMode.Error)
    emulator = ALEInterface()
    emulator.loadROM(str(roms.get_rom_path(name)))
    # The emulator writes UPRIGHTFIRE without spaces.
    actions = tuple(" ".join(re.findall("NOOP|UP|DOWN|LEFT|RIGHT|FIRE", action.name)).lower() for action in emulator.getMinimalActionSet())
    rows, columns = emulator.getScreenDims()
    return AtariGame(name, actions, (rows, columns))


MAX_FRAMES = 108_000
"""Frames after which a game is truncated: half an hour."""


class StepResult(NamedTuple):
    """Result of one step of a batch of emulators. Its arrays are never overwritten."""

    frame: NDArray[np.uint8]
    """Observations after the step, (emulators, 84, 84), even if the game ended."""
    reward: NDArray[np.float32]
    """The change of the score."""
    life_lost: NDArray[np.bool_]
    """Whether a life was lost and the game has not terminated."""
    terminated: NDArray[np.bool_]
    """Whether the game terminated."""
    truncated: NDArray[np.bool_]
    """Whether the game was truncated and has not terminated."""
    first: NDArray[np.bool_]
    """Whether this is the first frame of a game: the action was not used, and the reward is 0."""


class Emulators:
    """A vector of emulators, each with its own seed. After a game has ended, the next step starts another.

    Parameters
    ----------
    games
        The game of each emulator, in any order.
    repeat_action_probability
        Probability that a frame repeats the action of the previous frame.
    threads
        Maximum number of threads per game; by default one per core.
    max_frames
        Frames after which a game is truncated.

    Examples
    --------
    >>> with Emulators(["pong", "asterix", "pong"], repeat_action_probability=0.25) as emulators:
    ...     begun = emulators.reset([1, 2, 3])
    ...     emulators.send([2, 8, 3])
    ...     seen = emulators.receive()
    >>> seen.frame.shape, seen.reward.tolist(), begun.first.tolist(), seen.first.tolist()
    ((3, 84, 84), [0.0, 0.0, 0.0], [True, True, True], [False, False, False])
    """

    def __init__(self, games: Sequence[str], repeat_action_probability: float, threads: int | None = None, *, max_frames: int = MAX_FRAMES):
        if not games:
            raise ValueError("games is empty: give at least one game")
        if threads is not None and threads < 1:
            raise ValueError(f"threads is {threads}: give at least 1")
        self.games: tuple[str, ...] = tuple(games)
        """The game of each emulator."""
        self._parts: list[tuple[Any, NDArray[np.intp]]] = []
        self._num_actions = np.empty(len(games), int)
        for game in dict.fromkeys(games):
            rows = np.flatnonzero([game == other for other in games])
            env = vector_environment(game, len(rows), repeat_action_probability, min(threads or cores(), len(rows)), max_frames)
            self._parts.append((env, rows))
            self._num_actions[rows] = env.single_action_space.n
        self._lives = np.zeros(len(games), np.int32)
        self._ended: NDArray[np.bool_] | None = None
        self._stepping = False

    def reset(self, seeds: ArrayLike) -> StepResult:
        """Start a game on every emulator. Seeds, one per emulator, are from 0 to 2,147,483,647 and reset all randomness."""
        if not self._parts:
            raise ValueError("the emulators are closed: make new ones")
        seeds = _check_integers(self.games, "seeds", seeds)
        # The emulator reads a negative seed as no seed, and all emulators without a seed draw the same random numbers.
        if (seeds < 0).any() or (seeds >= 2**31).any():
            raise ValueError(f"seeds range from {seeds.min()} to {seeds.max()}: give 0 to 2,147,483,647, for example modulo 2**31")
        if self._stepping:
            self.receive()
        frame = np.empty((len(seeds), *SCREEN), np.uint8)

        def reset(part: tuple[Any, NDArray[np.intp]]) -> None:
            env, rows = part
            observation, info = env.reset(seed=seeds[rows].astype(np.int64))
            frame[rows], self._lives[rows] = observation[:, 0], info["lives"]

        # A reset waits for all emulators of a game, so all games are reset in parallel.
        with ThreadPoolExecutor(len(self._parts)) as pool:
            list(pool.map(reset, self._parts))
        self._ended = np.zeros(len(seeds), bool)
        false = np.zeros(len(seeds), bool)
        return StepResult(frame, np.zeros(len(seeds), np.float32), false, false, false, ~false)

    def send(self, actions: ArrayLike) -> None:
        """Start a step of every emulator with its action, without waiting for the result."""
        if self._ended is None or self._stepping:
            remedy = "have not started: call reset" if self._ended is None else "are stepping: call receive"
            raise ValueError(f"the emulators {remedy} before send")
        actions = _check_integers(self.games, "actions", actions)
        # An invalid action would end the thread, and `receive` would wait forever.
        wrong = np.flatnonzero((actions < 0) | (actions >= self._num_actions))
        if wrong.size:
            i = wrong[0]
            raise ValueError(f"action {actions[i]} of emulator {i} is invalid: {self.games[i]} has 0 to {self._num_actions[i] - 1}")
        actions = actions.astype(np.int32)
        for env, rows in self._parts:
            env.send(actions[rows])
        self._stepping = True

    def receive(self) -> StepResult:
        """Wait until all emulators have taken the step that was sent, and return its result."""
        if self._ended is None or not self._stepping:
            raise ValueError("the emulators are not stepping: call send before receive")
        n = len(self.games)
        frame, reward, lives = np.empty((n, *SCREEN), np.uint8), np.empty(n, np.float32), np.empty(n, np.int32)
        terminated, truncated = np.empty(n, bool), np.empty(n, bool)
        for env, rows in self._parts:
            observation, reward[rows], terminated[rows], truncated[rows], info = env.recv()
            frame[rows], lives[rows] = observation[:, 0], info["lives"]
        first = self._ended
        life_lost = (lives < self._lives) & ~terminated & ~first
        self._lives, self._ended, self._stepping = lives, terminated | truncated, False
        return StepResult(frame, reward, life_lost, terminated, truncated, first)

    def close(self) -> None:
        """Close the emulators and their threads."""
        if self._stepping:
            self.receive()
        self._ended = None
        self._parts.clear()

    def __enter__(self) -> Emulators:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def vector_environment(
    game: str,
    count: int,
    repeat_action_probability: float,
    threads: int,
    max_frames: int,
    screen: tuple[int, int] = SCREEN,
    color: bool = False,
) -> Any:
    """Make the vector environment of ale-py for one game. All options are given, because its defaults differ from the paper's.

    Examples
    --------
    >>> vector_environment("pong", 2, repeat_action_probability=0.25, threads=1, max_frames=1000).reset(seed=0)[0].shape
    (2, 1, 84, 84)
    """
    check_game(game)
    if not 0 <= repeat_action_probability <= 1:
        raise ValueError(f"repeat_action_probability is {repeat_action_probability!r}: give a number from 0 to 1")
    if max_frames < 1:
        raise ValueError(f"max_frames is {max_frames}: give at least 1")
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode

    return AtariVectorEnv(
        game,
        count,
        batch_size=count,
        num_threads=threads,
        max_num_frames_per_episode=max_frames,
        repeat_action_probability=repeat_action_probability,
        full_action_space=False,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        img_height=screen[0],
        img_width=screen[1],
        grayscale=not color,
        stack_num=1,
        frameskip=FRAMES_PER_STEP,
        maxpool=True,
        noop_max=30,
        # Otherwise a lost life would restart the whole game, or look like its end.
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        use_fire_reset=False,
    )


def _check_integers(games: Sequence[str], what: str, numbers: ArrayLike) -> NDArray[np.integer]:
    """Return the numbers as an array, or raise ValueError unless they are one integer per emulator."""
    numbers = np.asarray(numbers)
    if numbers.shape != (len(games),) or not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(f"{what} are {numbers.dtype}{list(numbers.shape)}: give an integer for each of the {len(games)} emulators")
    return numbers


class EmulatorGroups:
    """The emulators of several agents, in groups that can be stepped together or one by one.

    Every agent has the same number of emulators in every group. Rows are sorted by agent.

    Parameters
    ----------
    games
        The game of each agent.
    each
        Number of emulators per agent.
    repeat_action_probability
        Probability that a frame repeats the action of the previous frame.
    count
        Number of groups; it divides `each`.

    Examples
    --------
    >>> groups = EmulatorGroups(["pong", "asterix"], each=4, repeat_action_probability=0.25, count=2)
    >>> [part.games for part in groups.parts]
    [('pong', 'pong', 'asterix', 'asterix'), ('pong', 'pong', 'asterix', 'asterix')]
    >>> groups.reset(range(8)).frame.shape
    (8, 84, 84)
    >>> groups.close()
    """

    def __init__(self, games: Sequence[str], each: int, repeat_action_probability: float, count: int):
        self.parts: tuple[Emulators, ...] = tuple(
            Emulators([game for game in games for _ in range(each // count)], repeat_action_probability) for _ in range(count)
        )
        """The groups."""
        self._agents = len(games)

    def of_part(self, rows: ArrayLike, part: int) -> NDArray[Any]:
        """Select the rows of one group from rows of all emulators."""
        rows = np.asarray(rows).reshape(self._agents, len(self.parts), -1)
        return rows[:, part].reshape(-1)

    def reset(self, seeds: ArrayLike) -> StepResult:
        """Start a game on every emulator."""
        return self._concatenate([part.reset(self.of_part(seeds, k)) for k, part in enumerate(self.parts)])

    def send(self, actions: ArrayLike) -> None:
        """Start a step of every emulator with its action, without waiting for the result."""
        for k, part in enumerate(self.parts):
            part.send(self.of_part(actions, k))

    def receive(self) -> StepResult:
        """Wait until all emulators have taken the step that was sent, and return its result."""
        return self._concatenate([part.receive() for part in self.parts])

    def close(self) -> None:
        """Close the emulators and their threads."""
        for part in self.parts:
            part.close()

    def _concatenate(self, results: Sequence[StepResult]) -> StepResult:
        """Combine the results of the groups, with the rows sorted by agent."""

        def rows(*parts: NDArray[Any]) -> NDArray[Any]:
            stacked = np.stack([part.reshape(self._agents, -1, *part.shape[1:]) for part in parts], axis=1)
            return stacked.reshape(-1, *stacked.shape[3:])

        return results[0] if len(results) == 1 else StepResult(*map(rows, *results))


class AtariEpisode:
    """One game from start to end, as the agent observes it and in color.

    Parameters
    ----------
    name
        The game.
    repeat_action_probability
        Probability that a frame repeats the action of the previous frame.
    seed
        From 0 to 2,147,483,647.
    max_frames
        Frames after which the game is truncated.

    Examples
    --------
    >>> episode = AtariEpisode("breakout", repeat_action_probability=0.25, seed=1)
    >>> episode.step(1), episode.frame.shape, episode.picture.shape
    ((0.0, False, False), (84, 84), (210, 160, 3))
    """

    def __init__(self, name: str, repeat_action_probability: float, seed: int, *, max_frames: int = MAX_FRAMES):
        self.game: AtariGame = atari_game(name)
        """The game."""
        self._grey = Emulators([name], repeat_action_probability, 1, max_frames=max_frames)
        self._color = vector_environment(name, 1, repeat_action_probability, 1, max_frames, self.game.screen, color=True)
        self.frame: NDArray[np.uint8] = self._grey.reset([seed]).frame[0]
        """The observation of the agent, (84, 84)."""
        self.picture: NDArray[np.uint8] = self._color.reset(seed=np.array([seed]))[0][0, 0]
        """The whole screen in RGB, (rows, columns, 3)."""
        self._ended = False

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Take a step; return the reward, whether the game terminated, and whether it was truncated."""
        if self._ended:
            raise ValueError("the game is over: make another AtariEpisode")
        self._grey.send([action])
        self.picture = self._color.step(np.array([action]))[0][0, 0]
        seen = self._grey.receive()
        self.frame = seen.frame[0]
        terminated, truncated = bool(seen.terminated[0]), bool(seen.truncated[0])
        self._ended = terminated or truncated
        return float(seen.reward[0]), terminated, truncated
