"""Seaquest: rescue divers, shoot fish and submarines, and surface before the air runs out.

The player steers a submarine and may fire every fifth step. Fish and enemy submarines, which shoot, cross the eight rows of water. Shooting
one has a reward of 1, and touching one or its bullet ends the game. Divers cross too and come on board when touched, at most six. Every
step under water costs one of 200 units of air. Surfacing refills the air and sets one diver down; without divers on board it ends the game.
Surfacing with six divers has a reward of up to 9, depending on the air left, and sets all of them down.

The difficulty is a large, delayed reward: six divers must be collected with 200 units of air; a diver appears every 30 steps, and each
surfacing before that loses one. With ramping, enemies appear more often after every surfacing, and after some of them also move faster.
Timers are not observed. One quirk of the original is kept: after six divers are set down the count is -1, so the next surfacing does not
end the game, and seven divers are needed for the next reward.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from actiongap.envs.functional import FunctionalEnv
from actiongap.envs.minatar.board import EMPTY, FULL, INDICES, SIDE, bit, board, integer, picture

LEFT, UP, RIGHT, DOWN, FIRE = 1, 2, 3, 4, 5
NO_ENEMY, FISH, SUB = 0, 1, 2
ENEMIES = 30
"""Maximum number of enemies at a time."""
AIR = 200
"""Units of air after surfacing."""
MAX_DIVERS = 6
"""Maximum number of divers on board."""
RELOAD = 5
"""Minimum number of steps between two shots of the player."""
PAUSE = 5
"""Steps that a diver waits before each move; initially, an enemy too."""
AIM = 10
"""Steps that an enemy submarine waits before each shot."""


class Uniforms(NamedTuple):
    """The uniform numbers of a step."""

    enemy_heading: Any
    enemy_kind: Any
    enemy_row: Any
    diver_heading: Any
    diver_row: Any


class Bullets(NamedTuple):
    """Bullets of the player, (2,) each."""

    flies: Any
    """Whether the bullet exists; otherwise the other fields are meaningless."""
    row: Any
    col: Any
    heading: Any
    """-1 to the left, 1 to the right."""


class Divers(NamedTuple):
    """Divers in the water, (2,) each, the newer one first."""

    swims: Any
    """Whether the diver exists; otherwise the other fields are meaningless."""
    row: Any
    col: Any
    heading: Any
    """-1 to the left, 1 to the right."""
    wait: Any
    """Steps until the step in which it moves."""


class Enemies(NamedTuple):
    """Fish and enemy submarines, (30,) each, in no order. Of two in one cell, the older one moves first."""

    kind: Any
    """`NO_ENEMY` (then the other fields are meaningless), `FISH` or `SUB`."""
    row: Any
    col: Any
    heading: Any
    """-1 to the left, 1 to the right; the same in all of a row."""
    wait: Any
    """Steps until the step in which it moves."""
    aim: Any
    """Steps until the step in which it shoots, if it is a submarine."""


class State(NamedTuple):
    """State of the game."""

    row: Any
    """Row of the player, from 0 (the surface) to 8."""
    col: Any
    """Column of the player."""
    facing: Any
    """Direction of the player: -1 to the left, 1 to the right."""
    air: Any
    """Units of air left, of 200."""
    diver_count: Any
    """Number of divers on board; -1 after six were set down at once."""
    surfaced: Any
    """Whether the player has not been under water since the start or the last surfacing."""
    reload: Any
    """Steps until the step in which the player can fire."""
    bullets: Bullets
    divers: Divers
    enemies: Enemies
    shots: Any
    """Bullets of the enemies that fly left, and those that fly right: two boards of ten integers, (2, 10)."""
    enemy_due: Any
    """Steps until the step in which an enemy appears."""
    diver_due: Any
    """Steps until the step in which a diver appears."""
    enemy_gap: Any
    """Steps between two new enemies."""
    enemy_pause: Any
    """Steps that an enemy waits before each move."""
    level: Any
    """Number of times the game has become harder."""


def start(u: Any) -> State:
    """Return a new game: the player at the surface of empty water. `u` is not used.

    Examples
    --------
    >>> state = start(jnp.zeros(0))
    >>> int(state.row), int(state.col), int(state.air), int(state.enemies.kind.sum())
    (0, 5, 200, 0)
    """
    del u
    none, two, many = jnp.zeros(2, bool), jnp.zeros(2, jnp.int32), jnp.zeros(ENEMIES, jnp.int32)
    return State(
        row=jnp.int32(0),
        col=jnp.int32(5),
        facing=jnp.int32(-1),
        air=jnp.int32(AIR),
        diver_count=jnp.int32(0),
        surfaced=jnp.bool_(True),
        reload=jnp.int32(0),
        bullets=Bullets(none, two, two, two),
        divers=Divers(none, two, two, two, two),
        enemies=Enemies(many, many, many, many, many, many),
        shots=jnp.stack([EMPTY, EMPTY]),
        enemy_due=jnp.int32(20),
        diver_due=jnp.int32(30),
        enemy_gap=jnp.int32(20),
        enemy_pause=jnp.int32(PAUSE),
        level=jnp.int32(0),
    )


def step(state: State, action: Any, u: Any, *, ramping: bool = True) -> tuple[State, Any, Any]:
    """Take a step, in this order: new enemies and divers, the player, its bullets, divers, enemies, their bullets, air.

    Examples
    --------
    >>> state, reward, ended = step(start(jnp.zeros(0)), DOWN, jnp.zeros(5))
    >>> int(state.row), int(state.air), float(reward), bool(ended)
    (1, 199, 0.0, False)
    """
    uniforms = Uniforms(*(u[i] for i in range(len(Uniforms._fields))))
    enemies = _add_enemy(state, uniforms)
    divers = _add_diver(state, uniforms)

    fires = (action == FIRE) & (state.reload == 0)
    bullets = _fire(state, fires)
    row = jnp.clip(state.row + (action == DOWN) - (action == UP), 0, 8)
    col = jnp.clip(state.col + (action == RIGHT) - (action == LEFT), 0, 9)
    facing = jnp.where(action == RIGHT, 1, jnp.where(action == LEFT, -1, state.facing))

    bullets, enemies, hits = _bullets_move(bullets, enemies)
    divers, diver_count = _divers_move(divers, row, col, state.diver_count)
    bullets, enemies, fired, caught, shot = _enemies_move(bullets, enemies, row, col, state.enemy_pause)
    shots, struck = _shots_move(state.shots | fired, row, col)

    under = row > 0
    rises = ~under & ~state.surfaced
    surfaces = rises & (diver_count != 0)
    pays = surfaces & (diver_count == MAX_DIVERS)
    ended = caught | struck | (state.air <= 0) | (rises & (diver_count == 0))
    reward = hits + shot + jnp.where(pays, state.air // 20, 0)
    oftener, faster = state.enemy_gap > 1, state.enemy_pause > 2
    ramps = (surfaces & ramping & (oftener | faster)).astype(jnp.int32)
    following = State(
        row=row,
        col=col,
        facing=facing,
        air=jnp.where(surfaces, AIR, state.air - under),
        # As in MinAtar, a full load of six leaves the count at -1, not 0.
        diver_count=jnp.where(pays, -1, diver_count - surfaces),
        surfaced=~under & (state.surfaced | surfaces),
        reload=_count_down(jnp.where(fires, RELOAD, state.reload)),
        bullets=bullets,
        divers=divers,
        enemies=enemies,
        shots=shots,
        enemy_due=_count_down(jnp.where(state.enemy_due == 0, state.enemy_gap, state.enemy_due)),
        diver_due=_count_down(jnp.where(state.diver_due == 0, 30, state.diver_due)),
        enemy_gap=state.enemy_gap - ramps * oftener,
        enemy_pause=state.enemy_pause - ramps * (faster & (state.level % 2 == 1)),
        level=state.level + ramps,
    )
    return following, reward.astype(jnp.float32), ended


def observe(state: State) -> Any:
    """Return the layers player (front, back), its bullets, trails, enemy bullets, fish, submarines, air, divers on board and in the water.

    Examples
    --------
    >>> [int(layer.sum()) for layer in jnp.moveaxis(observe(start(jnp.zeros(0))), -1, 0)]
    [1, 1, 0, 0, 0, 0, 0, 10, 0, 0]
    """
    bullets, divers, enemies = state.bullets, state.divers, state.enemies
    here, bottom = state.row == INDICES, INDICES == 9
    # Three boards of ten columns in one integer per row, so one pass over the enemies is enough.
    at = jnp.where(enemies.kind == NO_ENEMY, 0, bit(enemies.col))
    kinds = board(enemies.row, jnp.where(enemies.kind == SUB, at << SIDE, at) | _behind(at, enemies.heading) << 2 * SIDE)
    swims = jnp.where(divers.swims, bit(divers.col), 0)
    diver_count = jnp.maximum(state.diver_count, 0)
    return picture(
        [
            jnp.where(here, bit(state.col), 0),
            jnp.where(here, bit(state.col - state.facing), 0),
            board(bullets.row, jnp.where(bullets.flies, bit(bullets.col), 0)),
            (kinds >> 2 * SIDE) | board(divers.row, _behind(swims, divers.heading)),
            state.shots[0] | state.shots[1],
            kinds & FULL,
            (kinds >> SIDE) & FULL,
            jnp.where(bottom, (1 << jnp.maximum(state.air, 0) // 20) - 1, 0),
            jnp.where(bottom, ((1 << diver_count) - 1) << (9 - diver_count), 0),
            board(divers.row, swims),
        ]
    )


def _add_enemy(state: State, uniforms: Uniforms) -> Enemies:
    """Add an enemy if it is due, unless enemies in its row move in the other direction."""
    enemies, slots = state.enemies, np.arange(ENEMIES, dtype=np.int32)
    row, heading = integer(uniforms.enemy_row, 8, low=1), jnp.where(uniforms.enemy_heading < 1 / 2, 1, -1)
    kind = jnp.where(uniforms.enemy_kind < 1 / 3, SUB, FISH)
    empty = enemies.kind == NO_ENEMY
    oncoming = (~empty & (enemies.row == row) & (enemies.heading != heading)).any()
    comes = (state.enemy_due == 0) & ~oncoming & (slots == jnp.where(empty, slots, ENEMIES).min())
    new = Enemies(kind, row, jnp.where(heading > 0, 0, 9), heading, state.enemy_pause, jnp.int32(AIM))
    return Enemies(*(jnp.where(comes, one, old) for one, old in zip(new, enemies, strict=True)))


def _add_diver(state: State, uniforms: Uniforms) -> Divers:
    """Add a diver if it is due; of two earlier divers the older one has already left."""
    heading = jnp.where(uniforms.diver_heading < 1 / 2, 1, -1)
    row = integer(uniforms.diver_row, 8, low=1)
    new = Divers(jnp.bool_(True), row, jnp.where(heading > 0, 0, 9), heading, jnp.int32(PAUSE))
    comes, first = state.diver_due == 0, np.arange(2) == 0
    return Divers(*(jnp.where(comes, jnp.where(first, one, old[0]), old) for one, old in zip(new, state.divers, strict=True)))


def _fire(state: State, fires: Any) -> Bullets:
    """Add a bullet in the player's cell if it fires; of two earlier bullets the older one has already left."""
    new = Bullets(jnp.bool_(True), state.row, state.col, state.facing)
    comes = fires & (np.arange(2) == state.bullets.flies[0])
    return Bullets(*(jnp.where(comes, one, old) for one, old in zip(new, state.bullets, strict=True)))


def _bullets_move(bullets: Bullets, enemies: Enemies) -> tuple[Bullets, Enemies, Any]:
    """Move the player's bullets. Each hits at most one enemy of its new cell: fish before submarines, then the older one."""
    col = bullets.col + bullets.heading
    flies = bullets.flies & _on_board(col)
    meets = flies[:, None] & (enemies.kind != NO_ENEMY) & (enemies.row == bullets.row[:, None]) & (enemies.col == col[:, None])
    order = 8 * enemies.kind + enemies.wait
    chosen = meets & (order == jnp.where(meets, order, 100).min(axis=1, keepdims=True))
    enemies = enemies._replace(kind=jnp.where(chosen.any(axis=0), NO_ENEMY, enemies.kind))
    return bullets._replace(flies=flies & ~meets.any(axis=1), col=col), enemies, chosen.sum(dtype=jnp.int32)


def _divers_move(divers: Divers, row: Any, col: Any, diver_count: Any) -> tuple[Divers, Any]:
    """Move the divers. One comes on board if it meets the player before or after its move and fewer than six are on board."""
    moves = divers.wait == 0
    new = divers.col + jnp.where(moves, divers.heading, 0)
    meets = divers.swims & (divers.row == row) & ((divers.col == col) | (new == col))
    taken = meets & (diver_count + np.arange(2) * meets[0] < MAX_DIVERS)
    wait = jnp.where(moves, PAUSE, divers.wait - 1)
    return divers._replace(swims=divers.swims & _on_board(new) & ~taken, col=new, wait=wait), diver_count + taken.sum(dtype=jnp.int32)


def _enemies_move(bullets: Bullets, enemies: Enemies, row: Any, col: Any, pause: Any) -> tuple[Bullets, Enemies, Any, Any, Any]:
    """Move the enemies; return also their new bullets, whether one meets the player, and how many move into the player's bullets.

    Enemies of a row move in the same direction, and those of one cell in different steps. So no two enter a cell in the same step, no two
    move into the same bullet, and the order in which they move does not matter.
    """
    about, sub = enemies.kind != NO_ENEMY, enemies.kind == SUB
    moves = enemies.wait == 0
    new = enemies.col + jnp.where(moves, enemies.heading, 0)
    caught = about & (enemies.row == row) & ((enemies.col == col) | (new == col))
    arrives = about & moves & ~((enemies.row == row) & (new == col))
    shot = bullets.flies[:, None] & arrives & (enemies.row == bullets.row[:, None]) & (new == bullets.col[:, None])
    # A submarine that moves into a bullet still shoots.
    shoots = sub & (enemies.aim == 0)
    words = jnp.where(shoots, bit(new), 0)
    both = board(enemies.row, jnp.where(enemies.heading < 0, words, words << SIDE))
    enemies = enemies._replace(
        kind=jnp.where(_on_board(new) & ~shot.any(axis=0), enemies.kind, NO_ENEMY),
        col=new,
        wait=jnp.where(moves, pause, enemies.wait - 1),
        aim=jnp.where(shoots, AIM, enemies.aim - 1),
    )
    bullets = bullets._replace(flies=bullets.flies & ~shot.any(axis=1))
    return bullets, enemies, jnp.stack([both & FULL, both >> SIDE]), caught.any(), shot.sum(dtype=jnp.int32)


def _shots_move(shots: Any, row: Any, col: Any) -> tuple[Any, Any]:
    """Move the bullets of the enemies; return also whether one meets the player before or after its move."""
    moved = jnp.stack([shots[0] >> 1, shots[1] << 1 & FULL])
    return moved, (jnp.where(row == INDICES, (shots | moved) & bit(col), 0) != 0).any()


def _behind(words: Any, heading: Any) -> Any:
    """Return the cells behind these, if they are on the board."""
    return jnp.where(heading < 0, words << 1 & FULL, words >> 1)


def _on_board(col: Any) -> Any:
    return (col >= 0) & (col <= 9)


def _count_down(steps: Any) -> Any:
    return jnp.maximum(steps - 1, 0)


def seaquest(ramping: bool = True) -> FunctionalEnv:
    """Return the game; `ramping` is whether enemies become more frequent and faster.

    Examples
    --------
    >>> seaquest().shape
    (10, 10, 10)
    """
    return FunctionalEnv(
        "seaquest",
        actions=("stay", "left", "up", "right", "down", "fire"),
        numbers=(0, LEFT, UP, RIGHT, DOWN, FIRE),
        shape=(10, 10, 10),
        start=start,
        step=partial(step, ramping=ramping),
        observe=observe,
        num_step_uniforms=len(Uniforms._fields),
    )


SEAQUEST = seaquest()
