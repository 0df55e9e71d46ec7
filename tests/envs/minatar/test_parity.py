"""The five games beside the original for longer and harder play, with one source of chance for both.

A course is played in the original by a policy that sees its insides, and then in ours by the same actions and numbers in one compiled scan;
rewards, ends and observations of all steps must agree. Numbers that the original does not ask for in a step are not zero, since they must
not matter.
`python tests/envs/minatar/test_parity.py --steps 100000` plays so many steps of every game.
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
CALM = {"asterix": asterix, "seaquest": seaquest, "space_invaders": space_invaders}
"""Games that can be had without ramping."""


class Given:
    """Chance that is handed in: NumPy's `rand` and `randint`, answered from a row of uniform numbers in its order."""

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


def drawn(game: FunctionalEnv, rng: np.random.Generator, steps: int) -> np.ndarray:
    """Rows of uniform numbers that single precision holds exactly, also when multiplied by small integers.

    Edges are among them, and some of the numbers, but never how sticky actions are, stay the same in all rows: so whole shoals come in one
    row or from one side, which fills all slots.
    """
    rows = (2 * rng.integers(2**16, size=(steps, num_uniforms(game))) + 1) / 2**17
    third = 2**24 // 3
    edges = [0.0, third / 2**24, (third + 1) / 2**24, 0.5, 1 - 2**-24]
    # In the original's freeway 1/2 makes a car without a direction, which never comes to pass.
    edges = [edge for edge in edges if game.name != "freeway" or edge != 0.5]
    rows = np.where(rng.random(rows.shape) < 0.03, rng.choice(edges, rows.shape), rows)
    rows[:, 1:] = np.where(rng.random(num_uniforms(game) - 1) < 0.3, rows[0, 1:], rows[:, 1:])
    return rows.astype(np.float32)


# Players of the original. Each reads the original's variables, looks one step ahead, and is good enough to live long.


def catches(env: Any, rng: np.random.Generator) -> int:
    """Breakout: stay under the ball, and catch it with either side of the paddle."""
    following = int(np.clip(env.ball_x + (1 if env.ball_dir in (1, 2) else -1), 0, 9))
    falls = env.ball_y == 8 and env.ball_dir in (2, 3)
    want = env.ball_x if falls and rng.random() < 0.5 else following
    if falls and abs(want - env.pos) > 1:
        want = env.ball_x
    return (LEFT, STAY, RIGHT)[int(np.sign(want - env.pos)) + 1]


def crosses(env: Any, rng: np.random.Generator) -> int:
    """Freeway: go up, unless a car is there or comes."""

    def safe(row: int) -> bool:
        if not 1 <= row <= 8:
            return True
        col, _, timer, speed = env.cars[row - 1]
        return col != 4 and not (timer == 0 and (col + np.sign(speed)) % 10 == 4)

    if env.move_timer or safe(env.pos - 1):
        return UP
    return STAY if safe(env.pos) or not safe(env.pos + 1) else DOWN


def gathers(env: Any, rng: np.random.Generator) -> int:
    """Asterix: keep away from enemies and fetch treasures."""
    things = [thing for thing in env.entities if thing is not None]

    def worth(action: int) -> float:
        x, y = int(np.clip(env.player_x + MOVES[action][0], 0, 9)), int(np.clip(env.player_y + MOVES[action][1], 1, 8))
        total = rng.random() / 10 - (20 if env.spawn_timer == 0 and x in (0, 9) else 0) - 0.3 * abs(x - 4.5)
        for col, row, right, gold in things:
            ahead = (x - col) * (1 if right else -1)
            if gold:
                total += max(0, 10 - abs(x - col) - abs(y - row)) / 4 * (ahead >= 0)
            elif row == y and 0 <= ahead <= 3:
                total -= 1000 if ahead == 0 or (ahead == 1 and env.move_timer == 0) else 30 / ahead
        return total

    return max(MOVES, key=worth)


def defends(env: Any, rng: np.random.Generator) -> int:
    """Space Invaders: leave columns in which a bullet falls, and shoot where aliens will be."""
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

    def worth(action: int) -> float:
        p = int(np.clip(env.pos + {LEFT: -1, RIGHT: 1}.get(action, 0), 0, 9))
        total = rng.random() / 10 - 1000 * env.e_bullet_map[8, p] - 30 * env.e_bullet_map[7, p] - 10 * env.e_bullet_map[6, p]
        total -= 1000 * env.alien_map[9, p] + 100 * (env.alien_map[9, np.clip([p - 1, p + 1], 0, 9)].any())
        return total - np.abs(good - p).min() + 3 * (action == FIRE and env.shot_timer == 0 and p in good)

    return max((STAY, LEFT, RIGHT, FIRE), key=worth)


def dives(env: Any, rng: np.random.Generator) -> int:
    """Seaquest: collect six divers, surface, and with fewer than none on board surface again and again until nothing can ramp."""
    enemies, count = [*env.e_subs, *env.e_fish], env.diver_count
    ramps = env.ramping and (env.e_spawn_speed > 1 or env.move_speed > 2)
    bobs = count < 0 and ramps
    rises = count != 0 and (count == 6 or bobs or env.oxygen < env.sub_y + 12)

    def worth(action: int) -> float:
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

    return max((*MOVES, FIRE), key=worth)


SKILLED: dict[str, Policy] = {
    "asterix": gathers,
    "breakout": catches,
    "freeway": crosses,
    "seaquest": dives,
    "space_invaders": defends,
}


class Course(NamedTuple):
    """A way to play."""

    skill: float
    """How often the action is the player's own and not a random one."""
    repeat_action_probability: float
    share: float
    """Of all steps of a game."""
    mortal: bool = True
    """Whether a game that ends begins anew; otherwise it goes on as if nothing had happened."""
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


class Shown(NamedTuple):
    """What a step of play shows, in either game."""

    reward: Any
    ended: Any
    observation: Any
    following: Any


class Tally(NamedTuple):
    """What was reached in a course."""

    steps: int
    score: float
    games: int
    """How many ended; deathless, how many steps said so."""
    longest: int
    """The most steps of one game."""
    level: int
    """The highest ramp level."""
    things: int
    """The most things at once that a game keeps in slots."""
    refills: int
    """How often an empty board was filled again."""


@cache
def scan(name: str, mortal: bool, ramping: bool) -> tuple[FunctionalEnv, Any]:
    """Our game, and so many steps of it as a function of play, actions, rows and how repeat_action_probability it is."""
    game = GAMES[name] if ramping else CALM[name](ramping=False)

    def advance(play: FunctionalEnvState, action: Any, u: Any, repeat_action_probability: Any) -> tuple[FunctionalEnvState, Shown]:
        if mortal:
            play, seen = step_env(game, play, action, u, repeat_action_probability)
            return play, Shown(*seen)
        state, reward, ended = game.step(play.state, action, u[1 : 1 + game.chance])
        observation = game.observe(state)
        return FunctionalEnvState(state, play.last), Shown(reward, ended, observation, observation)

    return game, jax.jit(
        lambda play, actions, rows, repeat_action_probability: jax.lax.scan(
            lambda p, x: advance(p, *x, repeat_action_probability), play, (actions, rows)
        )
    )


class Original:
    """The original, driven by rows of the same numbers that ours takes."""

    def __init__(self, game: FunctionalEnv, course: Course, seed: int, row: np.ndarray, player: Policy) -> None:
        self.game, self.course, self.rng, self.player = game, course, np.random.default_rng(seed), player
        self.environment, _ = original(game.name, seed, course.ramping)
        self.environment.sticky_action_prob = course.repeat_action_probability
        self.env = self.environment.env
        self.count, self.age = Counter(), 0
        self.anew(row)

    def anew(self, row: np.ndarray) -> None:
        self.env.random = Given(row[1 : 1 + self.game.start_chance])
        self.environment.reset()
        self.age = 0

    def step(self, row: np.ndarray) -> tuple[int, Shown]:
        """An action, as ours is told of it, and what it led to."""
        numbers, env = self.game.numbers if self.course.mortal else range(6), self.env
        number = numbers[self.rng.integers(len(numbers))]
        if not self.course.mortal and self.course.skill < 1 and self.age % 400 >= 300:
            # Nobody shoots or collects for a while, so that things become as many as they can.
            number = STAY
        elif self.rng.random() < self.course.skill:
            number = self.player(env, self.rng)
        empty = self.game.name == "breakout" and not env.brick_map.any()
        here = row[1 : 1 + self.game.chance]
        # A diver's numbers come after an enemy's, whether or not an enemy comes too.
        self.env.random = Given(here[3:] if self.game.name == "seaquest" and env.e_spawn_timer else here)
        self.environment.random = Given(row[:1])
        reward, ended = self.environment.act(number)
        seen = following = self.environment.state()
        self.age += 1
        self._note(int(reward), bool(ended), empty and env.brick_map.any())
        if ended and self.course.mortal:
            self.anew(row)
            following = self.environment.state()
        env.terminal = False
        return numbers.index(number), Shown(reward, ended, seen, following)

    def _note(self, reward: int, ended: bool, refilled: bool) -> None:
        env, count = self.env, self.count
        slots = {"asterix": lambda: [x for x in env.entities if x], "seaquest": lambda: [*env.e_fish, *env.e_subs]}
        things = len(slots.get(self.game.name, list)())
        count.update(steps=1, score=reward, games=ended, refills=bool(refilled))
        for name, value in (("longest", self.age), ("level", env.difficulty_ramp() or 0), ("things", things)):
            count[name] = max(count[name], value)

    def tally(self) -> Tally:
        return Tally(*(self.count[name] for name in Tally._fields))


def beside(
    name: str,
    course: Course,
    seed: int,
    steps: int,
    player: Policy | None = None,
    fate: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda rows, when: rows,
) -> Tally:
    """Both games for so many steps, rounded up to whole chunks, with chance as fate changes it: asserts that they agree in each."""
    game, ours = scan(name, course.mortal, course.ramping or name not in CALM)
    rng = np.random.default_rng([seed, 1])
    first = drawn(game, rng, 1)[0]
    theirs, play = Original(game, course, seed, first, player or SKILLED[name]), reset_env(game, jnp.asarray(first))
    np.testing.assert_array_equal(game.observe(play.state), theirs.environment.state())
    for begun in range(0, steps, CHUNK):
        rows = fate(drawn(game, rng, CHUNK), np.arange(begun, begun + CHUNK))
        told, shown = zip(*(theirs.step(row) for row in rows), strict=True)
        play, seen = ours(play, np.array(told, np.int32), rows, np.float32(course.repeat_action_probability))
        pairs = zip(seen, zip(*shown, strict=True), strict=True)
        same = np.array([(np.asarray(mine) == np.stack(other)).reshape(CHUNK, -1).all(1) for mine, other in pairs])
        step = int(same.all(0).argmin())
        wrong = [field for field, equal in zip(Shown._fields, same[:, step], strict=True) if not equal]
        assert not wrong, f"{name}, {course}, seed {seed}: {', '.join(wrong)} differs first after step {begun + step + 1}"
        assert seen.observation.dtype == bool
        assert seen.observation.shape[1:] == game.shape
    return theirs.tally()


def courses(name: str, steps: int) -> dict[str, tuple[Course, int]]:
    """The courses that a game has, with the steps of each."""
    chosen = dict(COURSES)
    if name == "breakout":
        # The original has no row below the paddle in which a ball could go on.
        chosen = {label: course for label, course in chosen.items() if course.mortal}
    if name == "freeway":
        # A game takes 2501 steps, and its end must be seen.
        chosen["skilled, repeat_action_probability"] = chosen["skilled, repeat_action_probability"]._replace(share=0.7)
    whole = sum(course.share for course in chosen.values())
    return {label: (course, max(1, round(steps * course.share / whole / CHUNK)) * CHUNK) for label, course in chosen.items()}


def tour(name: str, steps: int, seed: int = 100) -> dict[str, Tally]:
    """All courses of a game."""
    return {label: beside(name, course, seed + i, count) for i, (label, (course, count)) in enumerate(courses(name, steps).items())}


def reached(tallies: dict[str, Tally]) -> Tally:
    """The sums, and the most of what is not summed."""
    columns = dict(zip(Tally._fields, zip(*tallies.values(), strict=True), strict=True))
    return Tally(**{name: max(column) if name in ("longest", "level", "things") else sum(column) for name, column in columns.items()})


GOALS = {
    "asterix": {"level": 9, "things": 8, "games": 30},
    "breakout": {"refills": 2, "games": 80},
    "freeway": {"longest": 2501, "games": 1, "score": 60},
    "seaquest": {"level": 19, "things": 29, "games": 50},
    "space_invaders": {"level": 6, "score": 400, "games": 30},
}
"""What all courses of a game must come to at least, so that nothing hard is left out: the last level, all slots, an empty board, an end."""


@pytest.mark.parametrize("name", GAMES)
def test_both_games_agree_in_long_and_skilled_play(name):
    tallies = tour(name, STEPS)
    total = reached(tallies)
    assert total.steps >= STEPS * 0.95
    for goal, least in GOALS[name].items():
        assert getattr(total, goal) >= least, (goal, total)


def test_seaquest_agrees_about_shoals():
    """Up to 29 enemies in one row, several in a cell, which are shot at without end: who is hit, and who still shoots."""

    def shoots(env: Any, rng: np.random.Generator) -> int:
        if env.e_spawn_speed > 1 or not env.e_subs + env.e_fish:
            return dives(env, rng)
        row, right = Counter((row, right) for _, row, right, *_ in env.e_subs + env.e_fish).most_common(1)[0][0]
        if env.sub_y != row:
            return DOWN if env.sub_y < row else UP
        if bool(env.sub_or) == bool(right) or rng.random() < 0.1:
            return int(rng.choice([LEFT, RIGHT]))
        return FIRE

    def shoal(rows: np.ndarray, when: np.ndarray) -> np.ndarray:
        if when[0] >= 400:
            rows[:, [1, 3]] = rows[0, [1, 3]]
        return rows

    tally = beside("seaquest", Course(1.0, 0.0, 1.0, mortal=False), 21, 2000, shoots, shoal)
    assert tally.things == 29
    assert tally.score > 200


def test_seaquest_agrees_about_divers_that_meet():
    """Two divers in one cell and one place on board: the newer is taken."""
    taken = []

    def waits(env: Any, rng: np.random.Generator) -> int:
        if env.diver_count != 5:
            return dives(env, rng)
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

    def crossing(rows: np.ndarray, when: np.ndarray) -> np.ndarray:
        rows[:, 4], rows[:, 5] = np.where(when // 30 % 2, 0.75, 0.25), 0.4
        return rows

    beside("seaquest", Course(1.0, 0.0, 1.0, mortal=False, ramping=False), 22, 2000, waits, crossing)
    assert len(taken) >= 3


def test_seaquest_agrees_about_a_last_shot():
    """A sub that moves into a bullet in the step of its own shot still shoots, which takes a surfacing soon after it came."""
    met = []

    def ambushes(env: Any, rng: np.random.Generator) -> int:
        if env.ramp_index != 1 and not (env.ramp_index == 2 and not met):
            return dives(env, rng)
        age = min((11 - shot for col, _, _, _, shot in env.e_subs if col < 2), default=0)
        if [1, 1, True, 0, 0] in env.e_subs and [3, 1, False] in env.f_bullets:
            met.append(age)
        if env.ramp_index == 1 and ((env.sub_x, env.sub_y) != (4, 1) or env.sub_or):
            return DOWN if env.sub_y == 0 else UP if env.sub_y > 1 else LEFT if env.sub_x > 4 else RIGHT
        return {5: UP, 6: DOWN, 10: FIRE}.get(age, STAY)

    def ever_the_same(rows: np.ndarray, when: np.ndarray) -> np.ndarray:
        rows[:, 1:4], rows[:, 5] = (0.1, 0.1, 0.05), 0.9
        return rows

    beside("seaquest", Course(1.0, 0.0, 1.0, mortal=False), 23, 800, ambushes, ever_the_same)
    assert met == [11]


def test_what_is_sticky_outlives_a_game():
    """The last action is carried out again in the first step of a new game, in both games."""
    tally = beside("breakout", Course(0.0, 0.5, 1.0), 7, CHUNK)
    assert tally.games > 10


def test_a_difference_is_noticed(monkeypatch):
    """The original with one rule changed is another game: the comparison is no formality."""
    act = Original.step

    def forgetful(self, row):
        before = self.age
        told, shown = act(self, row)
        if self.age == 0 and before:
            self.environment.last_action = 0
        return told, shown

    monkeypatch.setattr(Original, "step", forgetful)
    with pytest.raises(AssertionError, match="differs first after step"):
        beside("breakout", Course(0.0, 0.5, 1.0), 7, CHUNK)


def by_seed(game: FunctionalEnv, seed: Any) -> tuple[FunctionalEnvState, Any, Any]:
    """A new game, and actions and rows for 1,000 steps of it."""
    first, choosing, moving = jax.random.split(jax.random.key(seed), 3)
    play = reset_env(game, jax.random.uniform(first, (num_uniforms(game),)))
    return play, jax.random.randint(choosing, (1000,), 0, len(game.actions)), jax.random.uniform(moving, (1000, num_uniforms(game)))


@cache
def alone(name: str, seed: int) -> Shown:
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
def test_a_seed_says_everything_alone_and_in_company(name):
    game = GAMES[name]

    def together(seed: Any) -> Any:
        play, actions, rows = by_seed(game, seed)
        return jax.lax.scan(lambda play, x: step_env(game, play, *x), play, (actions, rows))[1]

    once, company = alone(name, 3), jax.jit(jax.vmap(together))(jnp.array([5, 3, 3]))
    for one, many in zip(once, company, strict=True):
        np.testing.assert_array_equal(one, many[1])
        np.testing.assert_array_equal(one, many[2])
    assert (np.asarray(company.observation[0]) != np.asarray(company.observation[1])).any()
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


def test_no_key_is_used_twice():
    few = Config(num_envs=2, batch_size=4, buffer_size=40, learning_starts=8)
    with jax.debug_key_reuse(True):
        with pytest.raises(jax.errors.KeyReuseError):
            jax.jit(lambda key: jax.random.uniform(key) + jax.random.normal(key))(jax.random.key(0))
        people = Population(GAMES["breakout"], few, ["bellman", "al:0.5"])
        lives = people.train(people.start([0, 1]), 0, 10)
        score = people.evaluate(lives, 10, episodes=2, limit=20, epsilon=0.1)
    assert np.isfinite(score.score).all()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--games", nargs="*", default=list(GAMES))
    options = parser.parse_args()
    for name in options.games:
        begun = time.perf_counter()
        for label, tally in tour(name, options.steps, options.seed).items():
            print(name, label, tally, flush=True)
        print(name, f"{time.perf_counter() - begun:.1f} s", flush=True)
