"""Long and skilled games of all five games against the original, with the same random numbers in both.

The original is played by a policy that reads its variables, and then this implementation repeats the same actions and numbers in one
compiled scan. Rewards, ends and observations must agree in every step. Numbers that the original does not use in a step are not zero,
because they must not matter.

`python tests/envs/minatar/test_parity.py --steps 100000` plays this many steps of every game.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actiongap.dqn.config import Config
from actiongap.dqn.population import Population
from actiongap.envs.functional import FunctionalEnv, FunctionalEnvState, num_uniforms, reset_env, step_env
from actiongap.envs.minatar import GAMES
from actiongap.envs.minatar.asterix import asterix
from actiongap.envs.minatar.seaquest import seaquest
from actiongap.envs.minatar.space_invaders import space_invaders
from minatar_original import original

Policy = Callable[[Any, np.random.Generator], int]

STAY, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
MOVES = {STAY: (0, 0), LEFT: (-1, 0), UP: (0, -1), RIGHT: (1, 0), DOWN: (0, 1)}
CHUNK = 200
"""Steps of one compiled scan."""
STEPS = 6000
"""Steps of every game in the tests."""
RAMPING = {"asterix": asterix, "seaquest": seaquest, "space_invaders": space_invaders}
"""Games whose difficulty ramp can be disabled."""


class FixedNumbers:
    """NumPy's `rand` and `randint`, answered from a row of uniform numbers in order."""

    def __init__(self, row: np.ndarray) -> None:
        self.left = row

    def _next(self, count: int) -> np.ndarray:
        taken, self.left = self.left[:count], self.left[count:]
        assert len(taken) == count
        return taken.astype(float)

    def rand(self, *shape: int) -> Any:
        values = self._next(int(np.prod(shape, dtype=int)))
        return values if shape else float(values[0])

    def randint(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        low, high = (0, low) if high is None else (low, high)
        values = low + np.floor(self._next(size or 1) * (high - low)).astype(int)
        return values if size else int(values[0])


def random_rows(game: FunctionalEnv, rng: np.random.Generator, steps: int) -> np.ndarray:
    """Rows of uniform numbers that are exact in single precision, also when multiplied by small integers.

    They include thresholds. Some columns, but never that of sticky actions, are constant in all rows: then many objects appear in one row
    or from one side and fill all slots.
    """
    rows = (2 * rng.integers(2**16, size=(steps, num_uniforms(game))) + 1) / 2**17
    third = 2**24 // 3
    edges = [0.0, third / 2**24, (third + 1) / 2**24, 0.5, 1 - 2**-24]
    # In the original Freeway, exactly 1/2 makes a car without a direction; it is never drawn in practice.
    edges = [edge for edge in edges if game.name != "freeway" or edge != 0.5]
    rows = np.where(rng.random(rows.shape) < 0.03, rng.choice(edges, rows.shape), rows)
    rows[:, 1:] = np.where(rng.random(num_uniforms(game) - 1) < 0.3, rows[0, 1:], rows[:, 1:])
    return rows.astype(np.float32)


# Policies for the original. Each reads its variables, looks one step ahead, and survives for long.


def play_breakout(env: Any, rng: np.random.Generator) -> int:
    """Breakout: stay under the ball, and catch it in the near or the far column."""
    following = int(np.clip(env.ball_x + (1 if env.ball_dir in (1, 2) else -1), 0, 9))
    falls = env.ball_y == 8 and env.ball_dir in (2, 3)
    want = env.ball_x if falls and rng.random() < 0.5 else following
    if falls and abs(want - env.pos) > 1:
        want = env.ball_x
    return (LEFT, STAY, RIGHT)[int(np.sign(want - env.pos)) + 1]


def play_freeway(env: Any, rng: np.random.Generator) -> int:
    """Freeway: go up unless a car is or arrives there."""

    def safe(row: int) -> bool:
        if not 1 <= row <= 8:
            return True
        col, _, timer, speed = env.cars[row - 1]
        return col != 4 and not (timer == 0 and (col + np.sign(speed)) % 10 == 4)

    if env.move_timer or safe(env.pos - 1):
        return UP
    return STAY if safe(env.pos) or not safe(env.pos + 1) else DOWN


def play_asterix(env: Any, rng: np.random.Generator) -> int:
    """Asterix: avoid enemies and collect treasures."""
    objects = [entity for entity in env.entities if entity is not None]

    def value_of(action: int) -> float:
        x, y = int(np.clip(env.player_x + MOVES[action][0], 0, 9)), int(np.clip(env.player_y + MOVES[action][1], 1, 8))
        total = rng.random() / 10 - (20 if env.spawn_timer == 0 and x in (0, 9) else 0) - 0.3 * abs(x - 4.5)
        for col, row, right, gold in objects:
            ahead = (x - col) * (1 if right else -1)
            if gold:
                total += max(0, 10 - abs(x - col) - abs(y - row)) / 4 * (ahead >= 0)
            elif row == y and 0 <= ahead <= 3:
                total -= 1000 if ahead == 0 or (ahead == 1 and env.move_timer == 0) else 30 / ahead
        return total

    return max(MOVES, key=value_of)


def play_space_invaders(env: Any, rng: np.random.Generator) -> int:
    """Space Invaders: leave columns with falling bullets, and shoot where aliens will be."""
    rows, cols = np.nonzero(env.alien_map)
    timer, heading, good = env.alien_move_timer, env.alien_dir, set()
    for height in range(8, -1, -1):
        if timer == 0:
            timer = min(len(cols), env.enemy_move_interval)
            if (cols + heading).clip(0, 9).tolist() == (cols + heading).tolist():
                cols = cols + heading
            else:
                rows, heading = rows + 1, -heading
        timer -= 1
        good.update(cols[rows == height].tolist())
    good = np.array(sorted(good) or [5])

    def value_of(action: int) -> float:
        p = int(np.clip(env.pos + {LEFT: -1, RIGHT: 1}.get(action, 0), 0, 9))
        total = rng.random() / 10 - 1000 * env.e_bullet_map[8, p] - 30 * env.e_bullet_map[7, p] - 10 * env.e_bullet_map[6, p]
        total -= 1000 * env.alien_map[9, p] + 100 * (env.alien_map[9, np.clip([p - 1, p + 1], 0, 9)].any())
        return total - np.abs(good - p).min() + 3 * (action == FIRE and env.shot_timer == 0 and p in good)

    return max((STAY, LEFT, RIGHT, FIRE), key=value_of)


def play_seaquest(env: Any, rng: np.random.Generator) -> int:
    """Seaquest: collect six divers and surface; while the count is negative, surface repeatedly until the ramp is at its end."""
    enemies, count = [*env.e_subs, *env.e_fish], env.diver_count
    ramps = env.ramping and (env.e_spawn_speed > 1 or env.move_speed > 2)
    bobs = count < 0 and ramps
    rises = count != 0 and (count == 6 or bobs or env.oxygen < env.sub_y + 12)

    def value_of(action: int) -> float:
        dx, dy = MOVES.get(action, (0, 0))
        x, y = int(np.clip(env.sub_x + dx, 0, 9)), int(np.clip(env.sub_y + dy, 0, 8))
        total = rng.random() / 10
        if y == 0 and not env.surface and count == 0:
            total -= 1000
        for col, row, right, timer, *_ in enemies:
            ahead = (x - col) * (1 if right else -1)
            if row == y and 0 <= ahead <= 4:
                total -= 1000 if ahead == 0 or (ahead == 1 and timer == 0) else 20 / ahead
        for col, row, right in env.e_bullets:
            ahead = (x - col) * (1 if right else -1)
            if row == y and 0 <= ahead <= 4:
                total -= 1000 if ahead <= 1 else 40 / ahead
        if rises:
            total += 5 * (env.sub_y - y) + (10 if bobs and env.sub_y == 0 and y == 1 else 0)
        elif env.divers and not bobs:
            total -= 2 * min(abs(col - x) + abs(row - y) for col, row, *_ in env.divers)
        else:
            total -= abs(y - 4) + abs(x - 4.5) / 2
        targets = [col for col, row, *_ in enemies if row == y and (col > x) == bool(env.sub_or)]
        return total + (15 if action == FIRE and env.shot_timer == 0 and targets else 0)

    return max((*MOVES, FIRE), key=value_of)


SKILLED: dict[str, Policy] = {
    "asterix": play_asterix,
    "breakout": play_breakout,
    "freeway": play_freeway,
    "seaquest": play_seaquest,
    "space_invaders": play_space_invaders,
}


class Course(NamedTuple):
    """Conditions of a comparison."""

    skill: float
    """Fraction of actions chosen by the policy; the others are random."""
    repeat_action_probability: float
    share: float
    """Fraction of all steps of the game."""
    mortal: bool = True
    """Whether a game that ends is reset; otherwise it continues."""
    ramping: bool = True


COURSES = {
    "random": Course(0.0, 0.0, 0.1),
    "random, repeat_action_probability": Course(0.0, 0.1, 0.15),
    "skilled": Course(1.0, 0.0, 0.15),
    "skilled, repeat_action_probability": Course(0.98, 0.1, 0.15),
    "skilled, deathless": Course(0.8, 0.0, 0.25, mortal=False),
    "random, deathless": Course(0.0, 0.0, 0.1, mortal=False),
    "skilled, calm": Course(0.95, 0.1, 0.1, ramping=False),
}


class Result(NamedTuple):
    """Result of one step, in either game."""

    reward: Any
    ended: Any
    observation: Any
    following: Any


class Tally(NamedTuple):
    """Statistics of a course."""

    steps: int
    score: float
    games: int
    """Number of games that ended; without resets, number of terminal steps."""
    longest: int
    """Maximum number of steps of a game."""
    level: int
    """The highest ramp level."""
    objects: int
    """Maximum number of objects in slots."""
    refills: int
    """Number of times an empty board was refilled."""


@cache
def scan(name: str, mortal: bool, ramping: bool) -> tuple[FunctionalEnv, Any]:
    """The game, and a compiled scan over (play, actions, rows, repeat_action_probability)."""
    game = GAMES[name] if ramping else RAMPING[name](ramping=False)

    def advance(play: FunctionalEnvState, action: Any, u: Any, repeat_action_probability: Any) -> tuple[FunctionalEnvState, Result]:
        if mortal:
            play, seen = step_env(game, play, action, u, repeat_action_probability)
            return play, Result(*seen)
        state, reward, ended = game.step(play.state, action, u[1 : 1 + game.num_step_uniforms])
        observation = game.observe(state)
        return FunctionalEnvState(state, play.last), Result(reward, ended, observation, observation)

    return game, jax.jit(
        lambda play, actions, rows, repeat_action_probability: jax.lax.scan(
            lambda p, x: advance(p, *x, repeat_action_probability), play, (actions, rows)
        )
    )


class Original:
    """The original game, with the same rows of random numbers."""

    def __init__(self, game: FunctionalEnv, course: Course, seed: int, row: np.ndarray, player: Policy) -> None:
        self.game, self.course, self.rng, self.player = game, course, np.random.default_rng(seed), player
        self.environment, _ = original(game.name, seed, course.ramping)
        self.environment.sticky_action_prob = course.repeat_action_probability
        self.env = self.environment.env
        self.count, self.age = Counter(), 0
        self.reset(row)

    def reset(self, row: np.ndarray) -> None:
        self.env.random = FixedNumbers(row[1 : 1 + self.game.num_start_uniforms])
        self.environment.reset()
        self.age = 0

    def step(self, row: np.ndarray) -> tuple[int, Result]:
        """Choose an action and take a step; return the index of the action and the result."""
        numbers, env = self.game.numbers if self.course.mortal else range(6), self.env
        number = numbers[self.rng.integers(len(numbers))]
        if not self.course.mortal and self.course.skill < 1 and self.age % 400 >= 300:
            # Without actions for a while, objects fill all slots.
            number = STAY
        elif self.rng.random() < self.course.skill:
            number = self.player(env, self.rng)
        empty = self.game.name == "breakout" and not env.brick_map.any()
        here = row[1 : 1 + self.game.num_step_uniforms]
        # The numbers of a diver follow those of an enemy, even if no enemy appears.
        self.env.random = FixedNumbers(here[3:] if self.game.name == "seaquest" and env.e_spawn_timer else here)
        self.environment.random = FixedNumbers(row[:1])
        reward, ended = self.environment.act(number)
        seen = following = self.environment.state()
        self.age += 1
        self._note(int(reward), bool(ended), empty and env.brick_map.any())
        if ended and self.course.mortal:
            self.reset(row)
            following = self.environment.state()
        env.terminal = False
        return numbers.index(number), Result(reward, ended, seen, following)

    def _note(self, reward: int, ended: bool, refilled: bool) -> None:
        env, count = self.env, self.count
        slots = {"asterix": lambda: [x for x in env.entities if x], "seaquest": lambda: [*env.e_fish, *env.e_subs]}
        objects = len(slots.get(self.game.name, list)())
        count.update(steps=1, score=reward, games=ended, refills=bool(refilled))
        for name, value in (("longest", self.age), ("level", env.difficulty_ramp() or 0), ("objects", objects)):
            count[name] = max(count[name], value)

    def tally(self) -> Tally:
        return Tally(*(self.count[name] for name in Tally._fields))


def compare(
    name: str,
    course: Course,
    seed: int,
    steps: int,
    player: Policy | None = None,
    transform: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda rows, steps: rows,
) -> Tally:
    """Assert that both games agree in every step (rounded up to whole chunks). `transform` changes the random numbers."""
    game, ours = scan(name, course.mortal, course.ramping or name not in RAMPING)
    rng = np.random.default_rng([seed, 1])
    first = random_rows(game, rng, 1)[0]
    theirs, play = Original(game, course, seed, first, player or SKILLED[name]), reset_env(game, jnp.asarray(first))
    np.testing.assert_array_equal(game.observe(play.state), theirs.environment.state())
    for begun in range(0, steps, CHUNK):
        rows = transform(random_rows(game, rng, CHUNK), np.arange(begun, begun + CHUNK))
        actions, results = zip(*(theirs.step(row) for row in rows), strict=True)
        play, seen = ours(play, np.array(actions, np.int32), rows, np.float32(course.repeat_action_probability))
        pairs = zip(seen, zip(*results, strict=True), strict=True)
        same = np.array([(np.asarray(mine) == np.stack(other)).reshape(CHUNK, -1).all(1) for mine, other in pairs])
        step = int(same.all(0).argmin())
        wrong = [field for field, equal in zip(Result._fields, same[:, step], strict=True) if not equal]
        assert not wrong, f"{name}, {course}, seed {seed}: {', '.join(wrong)} differs first after step {begun + step + 1}"
        assert seen.observation.dtype == bool
        assert seen.observation.shape[1:] == game.shape
    return theirs.tally()


def courses(name: str, steps: int) -> dict[str, tuple[Course, int]]:
    """The courses of a game, with the number of steps of each."""
    chosen = dict(COURSES)
    if name == "breakout":
        # The original has no row below the paddle, so a game cannot continue after a miss.
        chosen = {label: course for label, course in chosen.items() if course.mortal}
    if name == "freeway":
        # A game takes 2501 steps, and the comparison must include its end.
        chosen["skilled, repeat_action_probability"] = chosen["skilled, repeat_action_probability"]._replace(share=0.7)
    whole = sum(course.share for course in chosen.values())
    return {label: (course, max(1, round(steps * course.share / whole / CHUNK)) * CHUNK) for label, course in chosen.items()}


def run_courses(name: str, steps: int, seed: int = 100) -> dict[str, Tally]:
    """Run all courses of a game."""
    return {label: compare(name, course, seed + i, count) for i, (label, (course, count)) in enumerate(courses(name, steps).items())}


def combined(tallies: dict[str, Tally]) -> Tally:
    """Sums over courses, or maxima of `longest`, `level` and `objects`."""
    columns = dict(zip(Tally._fields, zip(*tallies.values(), strict=True), strict=True))
    return Tally(**{name: max(column) if name in ("longest", "level", "objects") else sum(column) for name, column in columns.items()})


MINIMA = {
    "asterix": {"level": 9, "objects": 8, "games": 30},
    "breakout": {"refills": 2, "games": 80},
    "freeway": {"longest": 2501, "games": 1, "score": 60},
    "seaquest": {"level": 19, "objects": 29, "games": 50},
    "space_invaders": {"level": 6, "score": 400, "games": 30},
}
"""Minimum statistics of all courses of a game: the last level, all slots, an empty board, an end."""


@pytest.mark.every(3)
@pytest.mark.parametrize("name", GAMES)
def test_long_skilled_games_match_the_original(name):
    tallies = run_courses(name, STEPS)
    total = combined(tallies)
    assert total.steps >= STEPS * 0.95
    for goal, least in MINIMA[name].items():
        assert getattr(total, goal) >= least, (goal, total)


def test_seaquest_matches_with_many_enemies_in_one_cell():
    """Up to 29 enemies in one row, several in a cell, under constant fire: which are hit, and which still shoot."""

    def shoot(env: Any, rng: np.random.Generator) -> int:
        if env.e_spawn_speed > 1 or not env.e_subs + env.e_fish:
            return play_seaquest(env, rng)
        row, right = Counter((row, right) for _, row, right, *_ in env.e_subs + env.e_fish).most_common(1)[0][0]
        if env.sub_y != row:
            return DOWN if env.sub_y < row else UP
        if bool(env.sub_or) == bool(right) or rng.random() < 0.1:
            return int(rng.choice([LEFT, RIGHT]))
        return FIRE

    def same_row(rows: np.ndarray, steps: np.ndarray) -> np.ndarray:
        if steps[0] >= 400:
            rows[:, [1, 3]] = rows[0, [1, 3]]
        return rows

    tally = compare("seaquest", Course(1.0, 0.0, 1.0, mortal=False), 21, 2000, shoot, same_row)
    assert tally.objects == 29
    assert tally.score > 200


def test_seaquest_matches_when_divers_meet():
    """Two divers in one cell, with one free place on board: the newer one comes on board."""
    taken = []

    def wait(env: Any, rng: np.random.Generator) -> int:
        if env.diver_count != 5:
            return play_seaquest(env, rng)
        cells = [(col, row) for col, row, *_ in env.divers]
        x, y = 5, 5
        if len(cells) == 2:
            x = sum(col for col, _ in cells) // 2
            y = 4 if cells[0] == cells[1] and env.sub_x == x and env.sub_y in (4, 5) else 5
        if (env.sub_x, env.sub_y, y) == (x, 5, 4):
            taken.append(env.sub_x)
        if env.sub_y != y:
            return DOWN if env.sub_y < y else UP
        return (LEFT, STAY, RIGHT)[int(np.sign(x - env.sub_x)) + 1]

    def crossing(rows: np.ndarray, steps: np.ndarray) -> np.ndarray:
        rows[:, 4], rows[:, 5] = np.where(steps // 30 % 2, 0.75, 0.25), 0.4
        return rows

    compare("seaquest", Course(1.0, 0.0, 1.0, mortal=False, ramping=False), 22, 2000, wait, crossing)
    assert len(taken) >= 3


def test_seaquest_matches_when_a_hit_submarine_shoots():
    """A submarine that moves into a bullet in the step of its own shot still shoots. This requires surfacing soon after it appeared."""
    met = []

    def ambush(env: Any, rng: np.random.Generator) -> int:
        if env.ramp_index != 1 and not (env.ramp_index == 2 and not met):
            return play_seaquest(env, rng)
        age = min((11 - shot for col, _, _, _, shot in env.e_subs if col < 2), default=0)
        if [1, 1, True, 0, 0] in env.e_subs and [3, 1, False] in env.f_bullets:
            met.append(age)
        if env.ramp_index == 1 and ((env.sub_x, env.sub_y) != (4, 1) or env.sub_or):
            return DOWN if env.sub_y == 0 else UP if env.sub_y > 1 else LEFT if env.sub_x > 4 else RIGHT
        return {5: UP, 6: DOWN, 10: FIRE}.get(age, STAY)

    def constant(rows: np.ndarray, steps: np.ndarray) -> np.ndarray:
        rows[:, 1:4], rows[:, 5] = (0.1, 0.1, 0.05), 0.9
        return rows

    compare("seaquest", Course(1.0, 0.0, 1.0, mortal=False), 23, 800, ambush, constant)
    assert met == [11]


def test_the_last_action_may_be_repeated_in_the_next_game():
    """In both games the first step of a new game may repeat the last action of the previous game."""
    tally = compare("breakout", Course(0.0, 0.5, 1.0), 7, CHUNK)
    assert tally.games > 10


def test_differences_are_detected(monkeypatch):
    """The comparison fails if one rule of the original is changed."""
    act = Original.step

    def forgetful(self, row):
        before = self.age
        action, result = act(self, row)
        if self.age == 0 and before:
            self.environment.last_action = 0
        return action, result

    monkeypatch.setattr(Original, "step", forgetful)
    with pytest.raises(AssertionError, match="differs first after step"):
        compare("breakout", Course(0.0, 0.5, 1.0), 7, CHUNK)


def by_seed(game: FunctionalEnv, seed: Any) -> tuple[FunctionalEnvState, Any, Any]:
    """A new game, and actions and random numbers for 1,000 steps."""
    first, choosing, moving = jax.random.split(jax.random.key(seed), 3)
    play = reset_env(game, jax.random.uniform(first, (num_uniforms(game),)))
    return play, jax.random.randint(choosing, (1000,), 0, len(game.actions)), jax.random.uniform(moving, (1000, num_uniforms(game)))


@cache
def alone(name: str, seed: int) -> Result:
    """One game, chunk by chunk."""
    game, advance = scan(name, True, True)
    play, actions, rows = by_seed(game, seed)
    parts = []
    for begun in range(0, 1000, CHUNK):
        play, seen = advance(play, actions[begun : begun + CHUNK], rows[begun : begun + CHUNK], np.float32(0.1))
        parts.append(seen)
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


@pytest.mark.every(3)
@pytest.mark.parametrize("name", GAMES)
def test_seeds_determine_games_alone_and_in_a_batch(name):
    game = GAMES[name]

    def play_game(seed: Any) -> Any:
        play, actions, rows = by_seed(game, seed)
        return jax.lax.scan(lambda play, x: step_env(game, play, *x), play, (actions, rows))[1]

    once, batch = alone(name, 3), jax.jit(jax.vmap(play_game))(jnp.array([5, 3, 3]))
    for one, many in zip(once, batch, strict=True):
        np.testing.assert_array_equal(one, many[1])
        np.testing.assert_array_equal(one, many[2])
    assert (np.asarray(batch.observation[0]) != np.asarray(batch.observation[1])).any()
    for one, again in zip(once, alone.__wrapped__(name, 3), strict=True):
        np.testing.assert_array_equal(one, again)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", GAMES)
def test_observations_are_booleans_of_the_declared_shape(name):
    seen, game = alone(name, 3), GAMES[name]
    for observation in (seen.observation, seen.following):
        assert (observation.dtype, observation.shape) == (bool, (1000, *game.shape))
        assert np.asarray(observation).any((1, 2, 3)).all()
    assert (seen.reward.dtype, seen.ended.dtype) == (np.float32, bool)
    changed = (np.asarray(seen.observation) != np.asarray(seen.following)).any((1, 2, 3))
    assert not (changed & ~np.asarray(seen.ended)).any()


def test_random_keys_are_used_once():
    few = Config(num_envs=2, batch_size=4, buffer_size=40, learning_starts=8)
    with jax.debug_key_reuse(True):
        with pytest.raises(jax.errors.KeyReuseError):
            jax.jit(lambda key: jax.random.uniform(key) + jax.random.normal(key))(jax.random.key(0))
        population = Population(GAMES["breakout"], few, ["bellman", "al:0.5"])
        agents = population.train(population.start([0, 1]), 0, 10)
        score = population.evaluate(agents, 10, episodes=2, max_episode_steps=20, epsilon=0.1)
    assert np.isfinite(score.score).all()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--games", nargs="*", default=list(GAMES))
    options = parser.parse_args()
    for name in options.games:
        begun = time.perf_counter()
        for label, tally in run_courses(name, options.steps, options.seed).items():
            print(name, label, tally, flush=True)
        print(name, f"{time.perf_counter() - begun:.1f} s", flush=True)
