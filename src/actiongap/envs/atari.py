"""The table that comes with the package: the paper's 60 Atari games, with its scores and others'.

The Atari games of the paper by name: what an agent has to know about one before it plays.

A game is named as its ROM is: `asterix`, `space_invaders`. An agent sees it in grey, 84 x 84, and has its minimal set of actions: those of
the joystick's eighteen that do something in it.

Emulators of several games, stepped together on threads of their own.

An agent's step is four frames: its action is held for all of them, and each frame may ignore it and repeat the action of the frame before
(sticky actions). What is seen is the brighter of the last two frames, pixel by pixel, in grey, resized to 84 x 84 by area. A game begins
with 0 to 29 frames of doing nothing; after 108,000 frames more it is cut short.

A step may end in four ways, which are told apart: the game goes on, a life was lost and it goes on, it is over, it was cut short. After
the last two the next step begins a new game and does nothing else: whatever action is sent is not used. Rewards are the changes of the
game's score, never clipped; frames come one at a time, for whoever learns puts them into stacks.

Two things are the emulator's own doing. The frame on which a game ends or is cut short is not drawn: the picture of the step before is seen
instead, with the third frame of this step laid over it where the fourth was the last. And a game without a count of lives loses none.

All that follows is decided by seeds and actions, whatever the threads do. The emulators of a game share threads, as many as there are
cores, so that all cores are busy until the slowest game is done; that several games have more threads than cores between them cost
nothing that could be measured, on two cores. Building takes 85 ms of one core an emulator, one after the other: the emulator makes a large
table of colours, and lets no other thread of Python run meanwhile. To begin takes as long, since a seed is heeded only by loading the game
anew, but on all cores.

The emulators of many agents in shifts, so that there is always one at work.

Whoever has to think about what one shift showed lets the others go on meanwhile. All agents have as many emulators in every shift. Rows are
those of the agents, one agent's emulators after the other's.

One game to be watched: as an agent sees it and as people do.

The game is emulated twice, with the same seed and actions: once small and in grey for the agent, once with the whole screen in color.
Nothing but the picture differs, so it is of the game that the agent plays.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import files
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from actiongap._system import cores, install


@cache
def atari_games() -> tuple[Mapping[str, str], ...]:
    """A row for each game, by the names of the columns, in the order of the paper's table.

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
"""Those on which the paper chose its parameters."""

SCREEN = (84, 84)
"""Rows and columns that an agent sees."""
FRAMES_A_STEP = 4
"""Frames for which an agent's action is held."""


class AtariGame(NamedTuple):
    """A game of the Atari 2600."""

    name: str
    """Of its ROM."""
    actions: tuple[str, ...]
    """What its actions are called, in the order of their numbers."""
    screen: tuple[int, int]
    """Rows and columns of the screen; 210 rows in most games."""
    shape: tuple[int, int] = SCREEN
    """Rows and columns that an agent sees."""


def check_game(name: str) -> None:
    """Refuse, in one sentence, a game that is unknown or that nothing here can emulate.

    Examples
    --------
    >>> check_game("spaceinvaders")
    Traceback (most recent call last):
    ...
    ValueError: unknown Atari game 'spaceinvaders': did you mean atari/space_invaders?
    """
    if name not in GAMES:
        near = difflib.get_close_matches(name.lower(), GAMES, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown Atari game {name!r}: did you mean atari/{near}?")
    try:
        import ale_py  # noqa: F401
    except ImportError:
        raise ValueError(f"atari/{name} needs ale-py, which is not installed: {install('atari')}") from None


@cache
def atari_game(name: str) -> AtariGame:
    """The game of this name, as its emulator describes it.

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
    # The emulator writes UPRIGHTFIRE.
    actions = tuple(" ".join(re.findall("NOOP|UP|DOWN|LEFT|RIGHT|FIRE", action.name)).lower() for action in emulator.getMinimalActionSet())
    rows, columns = emulator.getScreenDims()
    return AtariGame(name, actions, (rows, columns))


LIMIT = 108_000
"""Frames after which a game is cut short: half an hour of play."""


class StepResult(NamedTuple):
    """What one step of many emulators shows, in arrays that nobody writes to afterwards."""

    frame: NDArray[np.uint8]
    """(emulators, 84, 84): what is seen after the step, even if the game ended."""
    reward: NDArray[np.float32]
    """The change of the score."""
    life_lost: NDArray[np.bool_]
    """Whether a life was lost and the game is not over."""
    over: NDArray[np.bool_]
    """Whether the game is over."""
    cut: NDArray[np.bool_]
    """Whether the game was cut short and is not over."""
    first: NDArray[np.bool_]
    """Whether this is the first frame of a game: the action was not used, and the reward is 0."""


class Emulators:
    """Emulators that are stepped together, each with a seed and on its own; where a game ended the next step begins another.

    Parameters
    ----------
    games
        The game of each emulator, in any order.
    repeat_action_probability
        How likely each frame is to repeat the action of the frame before.
    threads
        How many threads the emulators of a game share at most: one for every core if not given.
    limit
        Frames after which a game is cut short.

    Examples
    --------
    >>> with Emulators(["pong", "asterix", "pong"], repeat_action_probability=0.25) as emulators:
    ...     begun = emulators.begin([1, 2, 3])
    ...     emulators.send([2, 8, 3])
    ...     seen = emulators.receive()
    >>> seen.frame.shape, seen.reward.tolist(), begun.first.tolist(), seen.first.tolist()
    ((3, 84, 84), [0.0, 0.0, 0.0], [True, True, True], [False, False, False])
    """

    def __init__(self, games: Sequence[str], repeat_action_probability: float, threads: int | None = None, *, limit: int = LIMIT):
        if not games:
            raise ValueError("there are no games to emulate: name one or more.")
        if threads is not None and threads < 1:
            raise ValueError(f"{threads} threads cannot emulate anything: give one or more.")
        self.games = tuple(games)
        """The game of each emulator."""
        self._parts: list[tuple[Any, NDArray[np.intp]]] = []
        self._count = np.empty(len(games), int)
        for game in dict.fromkeys(games):
            rows = np.flatnonzero([game == other for other in games])
            env = vector_environment(game, len(rows), repeat_action_probability, min(threads or cores(), len(rows)), limit)
            self._parts.append((env, rows))
            self._count[rows] = env.single_action_space.n
        self._lives = np.zeros(len(games), np.int32)
        self._ended: NDArray[np.bool_] | None = None
        self._stepping = False

    def begin(self, seeds: ArrayLike) -> StepResult:
        """Begin a game on every emulator, as if it had just been built, with a seed for each from 0 to 2,147,483,647."""
        if not self._parts:
            raise ValueError("the emulators are closed: make others.")
        seeds = _for_each(self.games, "seeds", seeds)
        # The emulator takes a negative number for none, and all emulators without a seed share their luck.
        if (seeds < 0).any() or (seeds >= 2**31).any():
            raise ValueError(f"seeds are from 0 to 2,147,483,647, and these from {seeds.min()} to {seeds.max()}: take them modulo 2**31.")
        if self._stepping:
            self.receive()
        frame = np.empty((len(seeds), *SCREEN), np.uint8)

        def reset(part: tuple[Any, NDArray[np.intp]]) -> None:
            env, rows = part
            seen, info = env.reset(seed=seeds[rows].astype(np.int64))
            frame[rows], self._lives[rows] = seen[:, 0], info["lives"]

        # One call waits for all emulators of a game, so games are begun at once.
        with ThreadPoolExecutor(len(self._parts)) as pool:
            list(pool.map(reset, self._parts))
        self._ended = np.zeros(len(seeds), bool)
        never = np.zeros(len(seeds), bool)
        return StepResult(frame, np.zeros(len(seeds), np.float32), never, never, never, ~never)

    def send(self, actions: ArrayLike) -> None:
        """Let every emulator take a step with its action, and do not wait for them."""
        if self._ended is None or self._stepping:
            remedy = "have not begun: call begin" if self._ended is None else "are stepping: call receive"
            raise ValueError(f"the emulators {remedy} before send.")
        actions = _for_each(self.games, "actions", actions)
        # Whoever waited for a thread that meets an unknown action would wait for ever.
        wrong = np.flatnonzero((actions < 0) | (actions >= self._count))
        if wrong.size:
            i = wrong[0]
            raise ValueError(f"action {actions[i]} of emulator {i} is none of {self.games[i]}'s: they are 0 to {self._count[i] - 1}.")
        actions = actions.astype(np.int32)
        for env, rows in self._parts:
            env.send(actions[rows])
        self._stepping = True

    def receive(self) -> StepResult:
        """What the step showed that was sent last, as soon as all have taken it."""
        if self._ended is None or not self._stepping:
            raise ValueError("the emulators are not stepping: call send before receive.")
        n = len(self.games)
        frame, reward, lives = np.empty((n, *SCREEN), np.uint8), np.empty(n, np.float32), np.empty(n, np.int32)
        over, cut = np.empty(n, bool), np.empty(n, bool)
        for env, rows in self._parts:
            seen, reward[rows], over[rows], cut[rows], info = env.recv()
            frame[rows], lives[rows] = seen[:, 0], info["lives"]
        first = self._ended
        life_lost = (lives < self._lives) & ~over & ~first
        self._lives, self._ended, self._stepping = lives, over | cut, False
        return StepResult(frame, reward, life_lost, over, cut, first)

    def close(self) -> None:
        """Let go of the emulators and their threads."""
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
    limit: int,
    screen: tuple[int, int] = SCREEN,
    color: bool = False,
) -> Any:
    """Emulators of one game as ale-py makes them, every option given: its own choices are others than the paper's.

    Examples
    --------
    >>> vector_environment("pong", 2, repeat_action_probability=0.25, threads=1, limit=1000).reset(seed=0)[0].shape
    (2, 1, 84, 84)
    """
    check_game(game)
    if not 0 <= repeat_action_probability <= 1:
        raise ValueError(f"repeat_action_probability is {repeat_action_probability!r}: it must be from 0 to 1.")
    if limit < 1:
        raise ValueError(f"a game cannot be cut short after {limit} frames: give one or more.")
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode

    return AtariVectorEnv(
        game,
        count,
        batch_size=count,
        num_threads=threads,
        max_num_frames_per_episode=limit,
        repeat_action_probability=repeat_action_probability,
        full_action_space=False,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        img_height=screen[0],
        img_width=screen[1],
        grayscale=not color,
        stack_num=1,
        frameskip=FRAMES_A_STEP,
        maxpool=True,
        noop_max=30,
        # A lost life would begin the whole game anew, or look like a game that is over.
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        use_fire_reset=False,
    )


def _for_each(games: Sequence[str], what: str, numbers: ArrayLike) -> NDArray[np.integer]:
    numbers = np.asarray(numbers)
    if numbers.shape != (len(games),) or not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(f"{what} are {numbers.dtype}{list(numbers.shape)}: give a whole number for each of the {len(games)} emulators.")
    return numbers


class EmulatorGroups:
    """Emulators that can be stepped all together, or shift by shift.

    Parameters
    ----------
    games
        The game of each agent.
    each
        How many emulators an agent has.
    repeat_action_probability
        How likely each frame is to repeat the action of the frame before.
    count
        How many shifts there are; it divides `each`.

    Examples
    --------
    >>> shifts = EmulatorGroups(["pong", "asterix"], each=4, repeat_action_probability=0.25, count=2)
    >>> [part.games for part in shifts.parts]
    [('pong', 'pong', 'asterix', 'asterix'), ('pong', 'pong', 'asterix', 'asterix')]
    >>> shifts.begin(range(8)).frame.shape
    (8, 84, 84)
    >>> shifts.close()
    """

    def __init__(self, games: Sequence[str], each: int, repeat_action_probability: float, count: int):
        self.parts = tuple(
            Emulators([game for game in games for _ in range(each // count)], repeat_action_probability) for _ in range(count)
        )
        """The shifts."""
        self._agents = len(games)

    def of_part(self, rows: ArrayLike, part: int) -> NDArray:
        """Of numbers for all emulators those of one shift."""
        rows = np.asarray(rows).reshape(self._agents, len(self.parts), -1)
        return rows[:, part].reshape(-1)

    def begin(self, seeds: ArrayLike) -> StepResult:
        """Begin a game on every emulator."""
        return self._together([part.begin(self.of_part(seeds, k)) for k, part in enumerate(self.parts)])

    def send(self, actions: ArrayLike) -> None:
        """Let every emulator take a step with its action, and do not wait for them."""
        for k, part in enumerate(self.parts):
            part.send(self.of_part(actions, k))

    def receive(self) -> StepResult:
        """What the step showed that was sent last, as soon as all have taken it."""
        return self._together([part.receive() for part in self.parts])

    def close(self) -> None:
        """Let go of the emulators and their threads."""
        for part in self.parts:
            part.close()

    def _together(self, seen: Sequence[StepResult]) -> StepResult:
        def rows(*some: NDArray) -> NDArray:
            found = np.stack([part.reshape(self._agents, -1, *part.shape[1:]) for part in some], axis=1)
            return found.reshape(-1, *found.shape[3:])

        return seen[0] if len(seen) == 1 else StepResult(*map(rows, *seen))


class AtariEpisode:
    """A game from its beginning to its end, in grey and in color.

    Parameters
    ----------
    name
        The game.
    repeat_action_probability
        How likely each frame is to repeat the action of the frame before.
    seed
        From 0 to 2,147,483,647.
    limit
        Frames after which the game is cut short.

    Examples
    --------
    >>> console = AtariEpisode("breakout", repeat_action_probability=0.25, seed=1)
    >>> console.step(1), console.frame.shape, console.picture.shape
    ((0.0, False, False), (84, 84), (210, 160, 3))
    """

    def __init__(self, name: str, repeat_action_probability: float, seed: int, *, limit: int = LIMIT):
        self.game = atari_game(name)
        """What is played."""
        self._grey = Emulators([name], repeat_action_probability, 1, limit=limit)
        self._colour = vector_environment(name, 1, repeat_action_probability, 1, limit, self.game.screen, color=True)
        self.frame: NDArray[np.uint8] = self._grey.begin([seed]).frame[0]
        """(84, 84), as an agent sees it."""
        self.picture: NDArray[np.uint8] = self._colour.reset(seed=np.array([seed]))[0][0, 0]
        """(rows, columns, 3), red, green and blue of the whole screen."""
        self._ended = False

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Take a step: the reward, whether the game is over, and whether it was cut short."""
        if self._ended:
            raise ValueError("the game is over: make another AtariEpisode.")
        self._grey.send([action])
        self.picture = self._colour.step(np.array([action]))[0][0, 0]
        seen = self._grey.receive()
        self.frame = seen.frame[0]
        over, cut = bool(seen.over[0]), bool(seen.cut[0])
        self._ended = over or cut
        return float(seen.reward[0]), over, cut
