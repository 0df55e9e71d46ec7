"""A population: agents with different operators and seeds, trained in one compiled program.

The agents are the first axis of every array. Matrix products of many agents become one batched product, which makes a population cheap.
`Population.train` runs the training loop (`_iterate`), and `loop.step` is one iteration of one agent.

An agent draws its random numbers from its own key, so they are the same alone and in a population. Sums may be computed in another order
where shapes differ. With `exact`, agents are computed one after another, and an agent is the same to the last bit in any population.
Agents are divided among the devices, which do not communicate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from actiongap.dqn.agent import DQN
from actiongap.dqn.config import Config
from actiongap.dqn.loop import Evaluation, TrainState, evaluate, init, step
from actiongap.envs.functional import FunctionalEnv
from actiongap.operators import AnyOperator, Operator, parse

AGENTS = "agents"
"""The mesh axis along which the agents are sharded."""
EVALUATION_STREAM = 2**32 - 1
"""Folded into an agent's key for evaluations. No iteration has this number."""


class Population:
    """Agents with the same configuration on one environment of the device. `clip_rewards` and `terminal_on_life_loss` are ignored.

    `HostPopulation` and `AtariPopulation` do the same on `gym/` and `atari/` environments.

    Parameters
    ----------
    env
        The environment.
    config
        Hyperparameters of all agents.
    operators
        The operator of each agent.
    exact
        Whether agents are computed one after another, so that each is the same to the last bit in any population; slow.
    devices
        Devices among which the agents are divided; by default the first.
    mask_actions
        Whether agents may be limited to their first k actions.

    Examples
    --------
    >>> from actiongap.envs.minatar import GAMES
    >>> config = Config(num_envs=2, batch_size=4, buffer_size=40, learning_starts=8)
    >>> population = Population(GAMES["breakout"], config, ["bellman", "al:0.5"])
    >>> state = population.train(population.start([0, 0]), 0, 10)
    >>> population.evaluate(state, 0, episodes=2, max_episode_steps=20, epsilon=0.0).score.shape
    (2,)
    """

    def __init__(
        self,
        env: FunctionalEnv,
        config: Config,
        operators: Sequence[AnyOperator],
        exact: bool = False,
        devices: Sequence[Any] | None = None,
        mask_actions: bool = False,
    ):
        if type(self) is Population and not isinstance(env, FunctionalEnv):
            remedy = "use HostPopulation (gym/) or AtariPopulation (atari/), or call actiongap.train, which takes all of them"
            raise TypeError(f"{getattr(env, 'name', env)} does not run on the device: {remedy}")
        parsed = [parse(operator) for operator in operators]
        by_name: dict[str, Operator] = {operator.name: operator for operator in parsed}
        self.env: FunctionalEnv = env
        self.size: int = len(parsed)
        self.exact: bool = exact
        self.dqn: DQN = DQN(config, tuple(by_name.values()), env.shape, len(env.actions), mask_actions)
        devices = jax.devices()[:1] if devices is None else devices
        self.mesh: Mesh = Mesh(np.array(devices), (AGENTS,))
        # All devices need the same number of agents, so copies of the last one fill up the last device.
        self.padding: int = -self.size % len(devices)
        names = list(by_name)
        self.operator_index: np.ndarray = self._padded(np.array([names.index(operator.name) for operator in parsed], np.int32))
        self._init_agents = jax.jit(self._map_agents(lambda seed, operator: init(self.dqn, self.env, seed, operator)))
        self._train = jax.jit(self._on_devices(self._iterate), donate_argnums=0)
        self._evaluate = jax.jit(self._on_devices(self._evaluate_agents), static_argnums=(2, 3, 4))

    def start(self, seeds: Sequence[int]) -> TrainState:
        """Return the state before the first iteration, with one seed per agent."""
        return jax.device_put(self._init_agents(self._padded(np.array(seeds, np.uint32)), self.operator_index), self._sharding)

    def put(self, states: Iterable[dict[str, np.ndarray]]) -> TrainState:
        """Restore the population from the saved states of its agents, as returned by `get`."""
        seeds = np.zeros(len(self.operator_index), np.uint32)
        like, states = jax.eval_shape(self._init_agents, seeds, self.operator_index), list(states)

        def rows(path: Any, leaf: Any) -> np.ndarray:
            one = jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
            return self._padded(np.stack([saved_array(state, path, one) for state in states]))

        found = jax.tree_util.tree_map_with_path(rows, jax.eval_shape(lambda tree: jax.tree.map(_key_data, tree), like))
        state = jax.tree.map(lambda old, new: jax.random.wrap_key_data(new) if _is_key(old) else new, like, found)
        return jax.device_put(state, self._sharding)

    def get(self, state: Any) -> list[dict[str, np.ndarray]]:
        """Return the state of each agent, or a part of it, as arrays by name."""
        named = [(jax.tree_util.keystr(path), np.asarray(_key_data(leaf))) for path, leaf in jax.tree_util.tree_leaves_with_path(state)]
        return [{name: rows[i] for name, rows in named} for i in range(self.size)]

    def iterate_states(self, state: Any) -> Iterator[dict[str, np.ndarray]]:
        """Yield what `get` returns, one agent at a time."""
        yield from self.get(state)

    def restarts(self, state: TrainState) -> np.ndarray:
        """Return zeros: environments are saved, so an interruption never resets them."""
        return np.zeros(self.size, np.int32)

    def reset_statistics(self, state: TrainState) -> TrainState:
        """Reset the statistics of training episodes: the sum of their returns and their number."""
        env_state = state.env_state
        env_state = env_state._replace(return_sum=jnp.zeros_like(env_state.return_sum), episodes=jnp.zeros_like(env_state.episodes))
        return state._replace(env_state=env_state)

    def train(self, state: TrainState, iteration: int, iterations: int) -> TrainState:
        """Train for `iterations` more iterations; `iteration` is the number of the first. The state passed in is donated."""
        return self._train(state, np.array([iteration, iterations], np.int32))

    def evaluate(self, state: TrainState, iteration: int, episodes: int, max_episode_steps: int, epsilon: float) -> Evaluation:
        """Evaluate all agents. Random numbers depend on the agent's key and on the iteration."""
        result = self._evaluate(state, np.int32(iteration), episodes, max_episode_steps, epsilon)
        return jax.tree.map(lambda part: np.asarray(part)[: self.size], result)

    def _iterate(self, state: TrainState, span: Any) -> TrainState:
        """The training loop. `span` is the first iteration and the number of iterations."""
        first, last = span[0], span[0] + span[1]

        def train_one(one: TrainState) -> TrainState:
            return jax.lax.fori_loop(first, last, lambda iteration, one: step(self.dqn, self.env, one, iteration), one)

        def step_all(iteration: Any, state: TrainState) -> TrainState:
            return self._map_agents(lambda one: step(self.dqn, self.env, one, iteration))(state)

        # If exact, one agent after another through all iterations; otherwise all agents through each iteration.
        return self._map_agents(train_one)(state) if self.exact else jax.lax.fori_loop(first, last, step_all, state)

    def _evaluate_agents(self, state: TrainState, iteration: Any, episodes: int, max_episode_steps: int, epsilon: float) -> Evaluation:
        def one(state: TrainState) -> Evaluation:
            key = jax.random.fold_in(jax.random.fold_in(state.agent.key, EVALUATION_STREAM), iteration)
            return evaluate(self.dqn, self.env, state.agent.learner.online, key, episodes, max_episode_steps, epsilon)

        return self._map_agents(one)(state)

    def _by_agent(self, rows: np.ndarray) -> np.ndarray:
        """Reshape rows of all agents' environments to (agents, num_envs, ...)."""
        return rows.reshape(self.size, -1, *rows.shape[1:])

    def _padded(self, rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows, np.repeat(rows[-1:], self.padding, axis=0)])

    @property
    def _sharding(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(AGENTS))

    def _map_agents(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Turn a function of one agent into a function of all: `vmap`, or one after another if exact."""
        if self.exact:
            return lambda *arguments: jax.lax.map(lambda one: function(*one), arguments)
        return jax.vmap(function)

    def _on_devices(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Run a function on every device, each with its own agents."""
        if self.mesh.size == 1:
            return function

        def on_devices(state: TrainState, when: Any, *static: Any) -> Any:
            sharded, replicated = PartitionSpec(AGENTS), PartitionSpec()
            mapped = partial(jax.shard_map, mesh=self.mesh, in_specs=(sharded, replicated), out_specs=sharded, check_vma=False)
            return mapped(lambda state, when: function(state, when, *static))(state, when)

        return on_devices


def saved_array(state: Mapping[str, np.ndarray], path: Any, like: Any) -> np.ndarray:
    """Return the array of a saved state at a path, or raise ValueError if its shape or dtype is different."""
    name = jax.tree_util.keystr(path)
    array = state.get(name)
    if array is None or array.shape != like.shape or array.dtype != like.dtype:
        raise ValueError(f"the saved {name} does not fit this population: start again in another folder")
    return array


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _key_data(leaf: Any) -> Any:
    """Return random keys as plain arrays, and other arrays as they are."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf
