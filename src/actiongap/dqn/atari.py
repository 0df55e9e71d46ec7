"""A population on Atari games, which are emulated on the host: agents of any games, operators and seeds in one compiled program.

Emulators and learner work at the same time. The emulators of each agent form two groups. While one group takes a step, the accelerator
adds the other group's frames to the replay buffers, selects its next actions, and takes half of the iteration's gradient steps:

    accelerator   add, act  learn learn  add, act  learn learn  add, act  learn learn
    first group             step step step step step            step step step step step
    second group  step step step          step step step step step            step step step

So actions come from the network before the latest gradient steps. Results do not depend on the relative speed of emulators and learner.
Evaluations also run in groups, and a group whose games are over stays idle.

An emulator's state cannot be saved. Every call of `train` and `evaluate` therefore starts new games, with seeds derived from the agent's
key and the iteration. The calls are scheduled by the experiment, so a run that is interrupted between calls and resumed continues exactly
as if it had not been, provided that the replay buffer is saved too. If it is not, the buffer starts to fill again, and learning pauses
until it holds enough transitions.

All agents have the console's eighteen actions. Most games use fewer; the actions that a game does not use are masked.
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
from actiongap.dqn.frame_replay import FrameReplay, push_frame
from actiongap.dqn.host import RESET_STREAM, env_seeds
from actiongap.dqn.loop import Evaluation, EvaluationSums
from actiongap.dqn.placement import ReplayPlacement, pack_step
from actiongap.dqn.population import EVALUATION_STREAM, Population
from actiongap.envs.atari import AtariGame, EmulatorGroups, StepResult, atari_game
from actiongap.operators import AnyOperator

ACTIONS = 18
"""Number of actions of the console."""
REPLAY_PREFIX = ".agent.replay"
"""Prefix of the replay buffer's arrays in a saved state."""
CORES_PER_SPARE = 8
"""With an accelerator, one of this many cores is kept free of emulators."""
PROGRESS_INTERVAL = 64
"""Iterations between progress reports."""
EMPTY = np.int32(-1)
"""Value of `replay_start` while the replay buffer is empty."""


class AtariEnvState(NamedTuple):
    """Statistics of training games, and the age of the replay buffer; one entry per agent."""

    return_sum: Any
    """Sum of the scores of games that ended since the statistics were reset."""
    episodes: Any
    """Number of these games."""
    replay_start: Any
    """Iteration at which the replay buffer started to fill; `EMPTY` before that."""
    replay_restarts: Any
    """Number of times that the replay buffer was lost because it was not saved."""


class AtariTrainState(NamedTuple):
    """Agents and the statistics of their games."""

    agent: Agent
    env_state: AtariEnvState


class _EnvSpec(NamedTuple):
    """The shape of observations and the actions, which are the same for all games."""

    shape: tuple[int, ...]
    actions: tuple[str, ...]


class AtariPopulation(Population):
    """Agents with the same configuration on Atari games.

    Parameters
    ----------
    games
        The game of each agent.
    config
        Hyperparameters of all agents.
    operators
        The operator of each agent.
    exact
        Whether agents are computed one after another.
    save_replay
        Whether `get` returns the replay buffers too. Without them a resumed run does not continue exactly.

    Examples
    --------
    >>> config = Config(num_envs=2, batch_size=4, buffer_size=40, learning_starts=8, frame_stack=4, clip_rewards=True)
    >>> population = AtariPopulation(["pong", "asterix"], config, ["bellman", "al:0.5"])
    >>> state = population.train(population.start([0, 0]), 0, 10)
    >>> int(state.agent.replay.priority.sum())  # all steps except those that started the games
    36
    """

    def __init__(
        self, games: Sequence[str], config: Config, operators: Sequence[AnyOperator], exact: bool = False, save_replay: bool = True
    ):
        if config.frame_stack < 2:
            raise ValueError(f"frame_stack is {config.frame_stack!r}: a single frame does not show motion, so set 2 or more; 4 is usual")
        if config.behavior != "own":
            raise ValueError(f"behavior is {config.behavior!r}: on Atari every agent chooses its own actions, so leave it out")
        self.games: tuple[AtariGame, ...] = tuple(atari_game(name) for name in games)
        spec: Any = _EnvSpec((*self.games[0].shape, config.frame_stack), tuple(map(str, range(ACTIONS))))
        super().__init__(spec, config, operators, exact, mask_actions=True)
        self.save_replay: bool = save_replay
        self._num_groups = 2 if config.num_envs % 2 == 0 else 1
        self.placement: ReplayPlacement = ReplayPlacement(self.dqn, self._map_agents, self.size, self._sharding, self._num_groups)
        # Emulators are built while programs compile.
        self._building = ThreadPoolExecutor(1).submit(self._build, games)
        action_counts = np.array([len(game.actions) for game in self.games], np.int32)
        init_agents = self._map_agents(self._init_one)
        self._init_agents = jax.jit(lambda seeds, operators: init_agents(seeds, operators, action_counts))
        self._seeds = jax.jit(self._seeds_of_agents)
        self._act_and_evaluate = jax.jit(self._act_and_evaluate_agents, donate_argnums=2)
        self._values = jax.jit(self._map_agents(lambda online, stack: self.dqn.q_values(online, stack).max(axis=-1)))

    @cached_property
    def emulators(self) -> EmulatorGroups:
        """The emulators of all agents."""
        return self._building.result()

    def _build(self, games: Sequence[str]) -> EmulatorGroups:
        # The thread that dispatches to an accelerator wakes up several times per iteration, and would wait for a core each time.
        if jax.default_backend() != "cpu":
            keep_to(cores() - cores() // CORES_PER_SPARE)
        config = self.dqn.config
        return EmulatorGroups(games, config.num_envs, config.repeat_action_probability, self._num_groups)

    def get(self, state: Any) -> list[dict[str, np.ndarray]]:
        """Return the state of each agent, or a part of it, as arrays by name; with replay buffers if `save_replay`."""
        return list(self.iterate_states(state))

    def iterate_states(self, state: Any) -> Iterator[dict[str, np.ndarray]]:
        """Yield what `get` returns, one agent at a time."""
        replay = state.agent.replay if isinstance(state, AtariTrainState) and self.save_replay else None
        if isinstance(state, AtariTrainState):
            state = self._with_replay(state, None)
        for agent, arrays in enumerate(super().get(state)):
            buffer = {} if replay is None else self.placement.get(replay, agent)
            yield arrays | {REPLAY_PREFIX + name: array for name, array in buffer.items()}

    def start(self, seeds: Sequence[int]) -> Any:
        """Return the state before the first iteration, with one seed per agent."""
        return self._with_replay(super().start(seeds), self.placement.zeros())

    def put(self, states: Iterable[dict[str, np.ndarray]]) -> Any:
        """Restore the population from the saved states of its agents, which may be read one by one.

        If one of them has no replay buffer, all buffers start empty.
        """
        replay, others = None, []
        for agent, arrays in enumerate(states):
            buffer = {name.removeprefix(REPLAY_PREFIX): array for name, array in arrays.items() if name.startswith(REPLAY_PREFIX)}
            others.append({name: array for name, array in arrays.items() if not name.startswith(REPLAY_PREFIX)})
            if buffer and (agent == 0 or replay is not None):
                replay = self.placement.put(self.placement.zeros() if replay is None else replay, agent, buffer)
            else:
                replay = None
            # Release this state before the next one is read.
            del arrays, buffer
        state: Any = super().put(others)
        if replay is not None:
            return self._with_replay(state, replay)
        # A buffer that was still empty is not lost.
        lost = np.asarray(state.env_state.replay_start) != EMPTY
        restarts = np.full(self.size, (np.asarray(state.env_state.replay_restarts) + lost).max(), np.int32)
        env_state = state.env_state._replace(replay_start=np.full(self.size, EMPTY), replay_restarts=restarts)
        return self._with_replay(state._replace(env_state=env_state), self.placement.zeros())

    def _with_replay(self, state: Any, replay: FrameReplay | None) -> Any:
        return state._replace(agent=state.agent._replace(replay=replay))

    def restarts(self, state: Any) -> np.ndarray:
        """Return how often each agent's replay buffer was lost because it was not saved."""
        return np.asarray(state.env_state.replay_restarts)

    def train(self, state: Any, iteration: int, iterations: int, on_progress: Callable[[float], None] = lambda fraction: None) -> Any:
        """Train for `iterations` more iterations; `iteration` is the number of the first, which starts new games.

        The state passed in is donated. `on_progress` receives the fraction that is done from time to time.
        """
        agent, env_state = state
        replay_start, end = np.asarray(env_state.replay_start).max(), iteration + iterations
        replay_start = iteration if replay_start == EMPTY else int(replay_start)
        return_sum, episodes = np.array(env_state.return_sum), np.array(env_state.episodes)
        seeds, groups = np.asarray(self._seeds(agent.key, np.array([RESET_STREAM, iteration], np.uint32))), self.emulators.parts
        width = seeds.shape[1] // len(groups)
        columns = [slice(k * width, (k + 1) * width) for k in range(len(groups))]
        first_results = [group.reset(seeds[:, mine].reshape(-1)) for group, mine in zip(groups, columns, strict=True)]
        actions = [jnp.zeros((self.size, width), jnp.int32) for _ in groups]
        episode_return = np.zeros(seeds.shape)
        with ThreadPoolExecutor(1) as dispatcher:
            for now in range(iteration, end):
                if now % PROGRESS_INTERVAL == 0:
                    on_progress((now - iteration) / iterations)
                for k, (group, mine) in enumerate(zip(groups, columns, strict=True)):
                    result = group.receive() if now > iteration else first_results[k]
                    frames, scalars = self._by_agent(result.frame), self._scalars(result, now + 1 == end)
                    agent, actions[k] = self.placement.add_and_act(agent, actions[k], frames, scalars, now, mine.start)
                    # Dispatching gradient steps takes as long as waiting for the actions, so both happen at the same time.
                    learning = dispatcher.submit(self.placement.learn, agent, now, replay_start, incomplete=k + 1 < len(groups))
                    if now + 1 < end:
                        group.send(np.asarray(actions[k]).reshape(-1))
                    agent = learning.result()
                    episode_return[:, mine] += self._by_agent(result.reward)
                    if (ended := self._by_agent(result.terminated | result.truncated)).any():
                        return_sum += np.where(ended, episode_return[:, mine], 0.0).sum(axis=1, dtype=np.float32)
                        episodes += ended.sum(axis=1, dtype=np.int32)
                        episode_return[:, mine][ended] = 0.0
        started = np.full(self.size, replay_start, np.int32)
        return AtariTrainState(agent, env_state._replace(return_sum=return_sum, episodes=episodes, replay_start=started))

    def evaluate(self, state: Any, iteration: int, episodes: int, max_episode_steps: int, epsilon: float, steps: int = 0) -> Evaluation:
        """Evaluate all agents on `episodes` games each, several at once. Random numbers depend on the agent's key and on the iteration.

        If `steps` is given, new games start until an agent has taken that many steps instead, and every game is played to its end. If a
        game is truncated, the return that follows is estimated by V of the last state.
        """
        agent, num_groups = state.agent, len(self.emulators.parts)
        shares = [episodes * (k + 1) // num_groups - episodes * k // num_groups for k in range(num_groups)]
        evaluations = [
            self._evaluate_group(agent, k, iteration, share, max_episode_steps, epsilon, steps)
            for k, share in enumerate(shares)
            if share or steps
        ]
        all_sums: Sequence[Any] = [None] * len(evaluations)
        for latest in zip_longest(*evaluations):
            all_sums = [new or last for new, last in zip(latest, all_sums, strict=True)]
        return EvaluationSums(*(np.concatenate(parts, axis=1) for parts in zip(*all_sums, strict=True))).means()

    def _evaluate_group(
        self, agent: Agent, k: int, iteration: int, episodes: int, max_episode_steps: int, epsilon: float, steps: int
    ) -> Iterator[EvaluationSums]:
        """Evaluate on one group of emulators: yield the sums after each step, while the emulators take the next one."""
        config, key, online, group = self.dqn.config, agent.key, agent.learner.online, self.emulators.parts[k]
        seeds = np.asarray(self._seeds(key, np.array([EVALUATION_STREAM, iteration], np.uint32)))
        result, now = group.reset(self.emulators.of_part(seeds.reshape(-1), k)), 0
        shape = (self.size, len(result.first) // self.size)
        stack, sums = jnp.zeros((*shape, *self.dqn.shape), jnp.uint8), EvaluationSums(*np.zeros((8, *shape)))
        length = np.zeros(shape, int)
        alive = np.ones(shape, bool) if steps else np.broadcast_to(np.arange(shape[1]) < episodes, shape).copy()
        # `discarded` games were truncated here. Their emulators continue until the games end; these steps are not evaluated.
        started, discarded = alive.sum(axis=1), np.zeros(shape, bool)
        while alive.any():
            frame, first = self._by_agent(result.frame), self._by_agent(result.first)
            when = np.array([iteration, now, k], np.int32)
            stack, action, value, gap = self._act_and_evaluate(key, online, stack, frame, first, when, epsilon)
            group.send(np.asarray(action).reshape(-1))
            yield sums
            result, now, value, gap = group.receive(), now + 1, np.asarray(value), np.asarray(gap)
            parts = (result.reward, result.terminated, result.truncated, result.life_lost, result.first)
            reward, terminated, truncated, life_lost, first = map(self._by_agent, parts)
            discarded &= ~first
            playing, length = alive & ~first & ~discarded, np.where(first, 0, length + 1)
            too_long, life_lost = (length >= max_episode_steps) & ~terminated & ~truncated, life_lost & config.terminal_on_life_loss
            ended, return_reward = terminated | truncated | too_long, np.clip(reward, -1.0, 1.0) if config.clip_rewards else reward
            if (bootstrapped := playing & (truncated | too_long) & ~life_lost).any():
                last_value = np.asarray(self._values(online, self._push_frames(stack, self._by_agent(result.frame), first)))
                return_reward = return_reward + np.where(bootstrapped, config.gamma * last_value, 0.0)
            sums = sums.with_step(config.gamma, True, playing, value, gap, reward, ended, return_reward)
            sums = sums._replace(return_weight=np.where(life_lost, 0.0, sums.return_weight))
            # Evaluate the next game too if more steps or episodes are needed.
            done = playing & ended
            left = now * config.num_envs < steps if steps else started[:, None] + np.cumsum(done, axis=1) <= episodes
            another = done & left
            started += another.sum(axis=1)
            alive, discarded = alive & (~done | another), discarded | (another & too_long)
        yield sums

    def _scalars(self, result: StepResult, final: bool = False) -> np.ndarray:
        """Return the fields of a `FrameStep` other than actions and frames. After the `final` step of a call, new games start."""
        config = self.dqn.config
        life_lost = result.life_lost & config.terminal_on_life_loss
        reward = np.clip(result.reward, -1.0, 1.0) if config.clip_rewards else result.reward
        discount = np.where(result.terminated | life_lost, 0.0, config.gamma)
        last = result.terminated | result.truncated | life_lost | final
        return self._by_agent(pack_step(reward, discount, last, ~result.first, result.first | life_lost))

    def _init_one(self, seed: Any, operator: Any, actions: Any) -> AtariTrainState:
        key, _ = jax.random.split(jax.random.key(seed))
        zero = jnp.int32(0)
        agent = self.dqn.init(key, operator, None, actions)
        return AtariTrainState(agent, AtariEnvState(jnp.float32(0.0), zero, jnp.int32(EMPTY), zero))

    def _seeds_of_agents(self, keys: Any, purpose: Any) -> Any:
        return self._map_agents(lambda key: env_seeds(key, self.dqn.config.num_envs, purpose))(keys)

    def _act_and_evaluate_agents(
        self, keys: Any, online: Any, stacks: Any, frames: Any, first: Any, when: Any, epsilon: Any
    ) -> tuple[Any, Any, Any, Any]:
        """Return the observations of an evaluation step, the actions, and the value and the action gap of each state."""

        def one(key: Any, online: Any, stack: Any, frame: Any, first: Any) -> tuple[Any, Any, Any, Any]:
            act_key = jax.random.fold_in(key, EVALUATION_STREAM)
            for number in when:
                act_key = jax.random.fold_in(act_key, number)
            stack = push_frame(stack, frame, first)
            return stack, *self.dqn.act_and_evaluate(online, stack, epsilon, act_key)

        return self._map_agents(one)(keys, online, stacks, frames, first)

    def _push_frames(self, stacks: Any, frames: Any, first: Any) -> Any:
        return jax.vmap(push_frame)(stacks, frames, first)
