"""A population whose games are Atari's, emulated on the host: agents of any games, operators and seeds, and one compiled learner for all.

Emulators and learner work at the same time, and emulators in two shifts. While one shift takes a step, the accelerator remembers what the
other has seen, chooses what it does next, and takes a share of the gradient steps of the round:

    accelerator   remember, choose  learn learn  remember, choose  learn learn  remember, choose  learn learn
    first shift                     step step step step step step               step step step step step step
    second shift  step step step step                 step step step step step step               step step step

So an action is chosen by the network as it was before the last gradient steps; nothing depends on who is quicker. Evaluations are played
in shifts too, and a shift whose games are over has the evening off.

An emulator's state cannot be saved. So games begin anew at every call of `train` and of `evaluate`, with seeds that follow from an agent's
own and from the iteration: a schedule that belongs to the experiment. Whoever is put down between calls and taken up again goes on as if
nothing had happened, if its film is saved too. If it is not, memory begins anew, and nothing is learned until there is enough of it.

All agents have all eighteen actions of the console, of which most games use fewer; those that a game does not use are never best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from actiongap._system import cores, keep_to
from actiongap.dqn.agent import Agent
from actiongap.dqn.config import Config
from actiongap.dqn.frame_replay import FrameReplay, push
from actiongap.dqn.host import BEGINNINGS, drawn_seeds
from actiongap.dqn.loop import Score, Tally
from actiongap.dqn.placement import ReplayPlacement, pack_step
from actiongap.dqn.population import TRIALS, Population
from actiongap.envs.atari import AtariGame, EmulatorGroups, StepResult, atari_game
from actiongap.operators import AnyOperator

ACTIONS = 18
"""What a console offers."""
FILM = ".agent.replay"
"""Where a film is in the state of an agent."""
SPARE = 8
"""Of so many cores one is kept free of emulators where there is an accelerator."""
TELLING = 64
"""Rounds after which it is told how far training is."""
UNKNOWN = np.int32(-1)
"""In place of the iteration when memory began, where it begins with the next round."""


class AtariEnvState(NamedTuple):
    """What is counted of the games of each agent."""

    finished: Any
    """The sum of the scores of all games that were over since somebody asked."""
    episodes: Any
    """How many were over since."""
    since: Any
    """The iteration when memory began; `UNKNOWN` before it does."""
    rebuilt: Any
    """How often it had to begin anew because it was not saved."""


class AtariTrainState(NamedTuple):
    """Agents at their consoles."""

    agent: Agent
    world: AtariEnvState


class _Spec(NamedTuple):
    """What all games have in common."""

    shape: tuple[int, ...]
    actions: tuple[str, ...]


class AtariPopulation(Population):
    """Agents that play Atari games with the same settings.

    Parameters
    ----------
    games
        The game of each agent.
    settings, operators
        How they learn, and with which operator each of them does.
    exact
        Whether agents are computed one after the other.
    keep
        Whether `get` gives their films too, without which they cannot go on as if nothing had happened.

    Examples
    --------
    >>> few = Config(num_envs=2, batch_size=4, buffer_size=40, learning_starts=8, frame_stack=4, clip_rewards=True)
    >>> people = AtariPopulation(["pong", "asterix"], few, ["bellman", "al:0.5"])
    >>> players = people.train(people.start([0, 0]), 0, 10)
    >>> int(players.agent.replay.priority.sum())  # all but the step that began the games
    36
    """

    def __init__(self, games: Sequence[str], config: Config, operators: Sequence[AnyOperator], exact: bool = False, keep: bool = True):
        if config.frame_stack < 2:
            raise ValueError(f"stack is {config.frame_stack!r}: in a single frame nothing moves, so take 2 or more, 4 as usual")
        self.games: tuple[AtariGame, ...] = tuple(atari_game(name) for name in games)
        console: Any = _Spec((*self.games[0].shape, config.frame_stack), tuple(map(str, range(ACTIONS))))
        super().__init__(console, config, operators, exact, mask_actions=True)
        self.keep, self._shifts = keep, 2 if config.num_envs % 2 == 0 else 1
        self.shelf = ReplayPlacement(self.dqn, self._each, self.size, self._place, self._shifts)
        # They take a while to build, and so do programs to compile.
        self._building = ThreadPoolExecutor(1).submit(self._build, games)
        count = np.array([len(game.actions) for game in self.games], np.int32)
        born = self._each(self._init)
        self._born = jax.jit(lambda seeds, which: born(seeds, which, count))
        self._seeds = jax.jit(self._drawn)
        self._consider = jax.jit(self._considered, donate_argnums=2)
        self._best = jax.jit(self._each(lambda online, stack: self.dqn.values(online, stack).max(axis=-1)))

    @cached_property
    def emulators(self) -> EmulatorGroups:
        """The emulators of all agents."""
        return self._building.result()

    def _build(self, games: Sequence[str]) -> EmulatorGroups:
        # Whoever hands work to an accelerator wakes up several times a round, and would wait for a core each time if emulators had all.
        if jax.default_backend() != "cpu":
            keep_to(cores() - cores() // SPARE)
        config = self.dqn.config
        return EmulatorGroups(games, config.num_envs, config.repeat_action_probability, self._shifts)

    def get(self, lives: Any) -> list[dict[str, np.ndarray]]:
        """Every agent, or a part of it, as a dictionary of arrays; without films, if they are not kept."""
        return list(self.one_by_one(lives))

    def one_by_one(self, lives: Any) -> Iterator[dict[str, np.ndarray]]:
        """What `get` gives, with one film at a time."""
        films = lives.agent.replay if isinstance(lives, AtariTrainState) and self.keep else None
        if isinstance(lives, AtariTrainState):
            lives = self._with_films(lives, None)
        for agent, state in enumerate(super().get(lives)):
            film = {} if films is None else self.shelf.saved(films, agent)
            yield state | {FILM + name: part for name, part in film.items()}

    def start(self, seeds: Sequence[int]) -> Any:
        """All agents as they are before their first round, each with a seed."""
        return self._with_films(super().start(seeds), self.shelf.blank())

    def put(self, states: Iterable[dict[str, np.ndarray]]) -> Any:
        """All agents from what `get` gave, one by one. If one comes without a film, all begin one."""
        films, others = None, []
        for agent, state in enumerate(states):
            film = {name.removeprefix(FILM): part for name, part in state.items() if name.startswith(FILM)}
            others.append({name: part for name, part in state.items() if not name.startswith(FILM)})
            if film and (agent == 0 or films is not None):
                films = self.shelf.put_back(self.shelf.blank() if films is None else films, agent, film)
            else:
                films = None
            # Or the next would be read while this one is still held.
            del state, film
        players: Any = super().put(others)
        if films is not None:
            return self._with_films(players, films)
        # What never began does not begin anew.
        lost = np.asarray(players.world.since) != UNKNOWN
        rebuilt = np.full(self.size, (np.asarray(players.world.rebuilt) + lost).max(), np.int32)
        world = players.world._replace(since=np.full(self.size, UNKNOWN), rebuilt=rebuilt)
        return self._with_films(players._replace(world=world), self.shelf.blank())

    def _with_films(self, players: Any, films: FrameReplay | None) -> Any:
        return players._replace(agent=players.agent._replace(replay=films))

    def restarts(self, lives: Any) -> np.ndarray:
        """How often the memory of each agent had to begin anew because it was not saved."""
        return np.asarray(lives.world.rebuilt)

    def train(self, lives: Any, iteration: int, iterations: int, told: Callable[[float], None] = lambda part: None) -> Any:
        """So many more iterations, after as many as the iteration says, the first of which begins new games. What is handed in is used up.

        Now and then `told` is how much of it is done.
        """
        agent, world = lives
        since, end = np.asarray(world.since).max(), iteration + iterations
        since = iteration if since == UNKNOWN else int(since)
        finished, episodes = np.array(world.finished), np.array(world.episodes)
        seeds, shifts = np.asarray(self._seeds(agent.key, np.array([BEGINNINGS, iteration], np.uint32))), self.emulators.parts
        width = seeds.shape[1] // len(shifts)
        columns = [slice(k * width, (k + 1) * width) for k in range(len(shifts))]
        shown = [shift.begin(seeds[:, some].reshape(-1)) for shift, some in zip(shifts, columns, strict=True)]
        actions, total = [jnp.zeros((self.size, width), jnp.int32) for _ in shifts], np.zeros(seeds.shape)
        with ThreadPoolExecutor(1) as another:
            for now in range(iteration, end):
                if now % TELLING == 0:
                    told((now - iteration) / iterations)
                for k, (shift, some) in enumerate(zip(shifts, columns, strict=True)):
                    seen = shift.receive() if now > iteration else shown[k]
                    facts = self._facts(seen, now + 1 == end)
                    agent, actions[k] = self.shelf.absorb(agent, actions[k], self._by_agent(seen.frame), facts, now, some.start)
                    # Handing gradient steps over takes as long as waiting for actions does, so it is done meanwhile.
                    learning = another.submit(self.shelf.learn, agent, now, since, behind=k + 1 < len(shifts))
                    if now + 1 < end:
                        shift.send(np.asarray(actions[k]).reshape(-1))
                    agent = learning.result()
                    total[:, some] += self._by_agent(seen.reward)
                    if (ended := self._by_agent(seen.over | seen.cut)).any():
                        finished += np.where(ended, total[:, some], 0.0).sum(axis=1, dtype=np.float32)
                        episodes += ended.sum(axis=1, dtype=np.int32)
                        total[:, some][ended] = 0.0
        return AtariTrainState(agent, world._replace(finished=finished, episodes=episodes, since=np.full(self.size, since, np.int32)))

    def evaluate(self, lives: Any, iteration: int, episodes: int, limit: int, epsilon: float, steps: int = 0) -> Score:
        """How all agents play, with luck that depends on their seeds and the iteration: so many games of each, several at once.

        If `steps` are given, games begin instead until an agent has taken as many; each that has begun is played to its end. Where a game
        is cut short, what the agent thinks of the state it stopped in stands for the rewards to come.
        """
        agent, shifts = lives.agent, len(self.emulators.parts)
        shares = [episodes * (k + 1) // shifts - episodes * k // shifts for k in range(shifts)]
        matches = [self._match(agent, k, iteration, share, limit, epsilon, steps) for k, share in enumerate(shares) if share or steps]
        tallies: Sequence[Any] = [None] * len(matches)
        for latest in zip_longest(*matches):
            tallies = [new or last for new, last in zip(latest, tallies, strict=True)]
        return Tally(*(np.concatenate(parts, axis=1) for parts in zip(*tallies, strict=True))).means()

    def _match(self, agent: Agent, part: int, iteration: int, episodes: int, limit: int, epsilon: float, steps: int) -> Iterator[Tally]:
        """An evaluation on one shift: what is counted, step by step, while the emulators are taking the next."""
        config, key, online, shift = self.dqn.config, agent.key, agent.learner.online, self.emulators.parts[part]
        seeds = np.asarray(self._seeds(key, np.array([TRIALS, iteration], np.uint32)))
        seen, now = shift.begin(self.emulators.of_part(seeds.reshape(-1), part)), 0
        shape = (self.size, len(seen.first) // self.size)
        stack, tally, played = jnp.zeros((*shape, *self.dqn.shape), jnp.uint8), Tally(*np.zeros((8, *shape))), np.zeros(shape, int)
        alive = np.ones(shape, bool) if steps else np.broadcast_to(np.arange(shape[1]) < episodes, shape).copy()
        begun, resting = alive.sum(axis=1), np.zeros(shape, bool)
        while alive.any():
            frame, first = self._by_agent(seen.frame), self._by_agent(seen.first)
            when = np.array([iteration, now, part], np.int32)
            stack, action, best = self._consider(key, online, stack, frame, first, when, epsilon)
            shift.send(np.asarray(action).reshape(-1))
            yield tally
            seen, now, best = shift.receive(), now + 1, np.asarray(best)
            reward, over, cut, lost, first = map(self._by_agent, (seen.reward, seen.over, seen.cut, seen.life_lost, seen.first))
            resting &= ~first
            playing, played = alive & ~first & ~resting, np.where(first, 0, played + 1)
            late, lost = (played >= limit) & ~over & ~cut, lost & config.terminal_on_life_loss
            ended, counted = over | cut | late, np.clip(reward, -1.0, 1.0) if config.clip_rewards else reward
            if (short := playing & (cut | late) & ~lost).any():
                after = np.asarray(self._best(online, self._pushed(stack, self._by_agent(seen.frame), first)))
                counted = counted + np.where(short, config.gamma * after, 0.0)
            tally = tally.with_step(config.gamma, True, playing, best, reward, ended, counted)
            tally = tally._replace(reach=np.where(lost, 0.0, tally.reach))
            # Another game counts if there is room for it. An emulator that is late has to end its game first, and nobody watches.
            done = playing & ended
            room = now * config.num_envs < steps if steps else begun[:, None] + np.cumsum(done, axis=1) <= episodes
            another = done & room
            begun += another.sum(axis=1)
            alive, resting = alive & (~done | another), resting | (another & late)
        yield tally

    def _facts(self, seen: StepResult, last: bool = False) -> np.ndarray:
        """What one step showed besides frames, as it is remembered; after the `last` of all, games begin anew."""
        config = self.dqn.config
        lost = seen.life_lost & config.terminal_on_life_loss
        reward = np.clip(seen.reward, -1.0, 1.0) if config.clip_rewards else seen.reward
        discount = np.where(seen.over | lost, 0.0, config.gamma)
        return self._by_agent(pack_step(reward, discount, seen.over | seen.cut | lost | last, ~seen.first, seen.first | lost))

    def _init(self, seed: Any, which: Any, actions: Any) -> AtariTrainState:
        key, _ = jax.random.split(jax.random.key(seed))
        nothing = jnp.int32(0)
        return AtariTrainState(
            self.dqn.begin(key, which, None, actions), AtariEnvState(jnp.float32(0.0), nothing, jnp.int32(UNKNOWN), nothing)
        )

    def _drawn(self, keys: Any, purpose: Any) -> Any:
        return self._each(lambda key: drawn_seeds(key, self.dqn.config.num_envs, purpose))(keys)

    def _considered(self, keys: Any, online: Any, stacks: Any, frames: Any, first: Any, when: Any, epsilon: Any) -> tuple[Any, Any, Any]:
        """What agents see in a step of an evaluation, their actions, and the best two values that were thought of."""

        def one(key: Any, online: Any, stack: Any, frame: Any, first: Any) -> tuple[Any, Any, Any]:
            acting = jax.random.fold_in(key, TRIALS)
            for number in when:
                acting = jax.random.fold_in(acting, number)
            stack = push(stack, frame, first)
            best = jax.lax.top_k(self.dqn.values(online, stack), 2)[0]
            return stack, self.dqn.choose(online, stack, epsilon, acting), best

        return self._each(one)(keys, online, stacks, frames, first)

    def _pushed(self, stacks: Any, frames: Any, first: Any) -> Any:
        return jax.vmap(push)(stacks, frames, first)
