"""A population: agents with operators and seeds of their own, trained in one compiled program.

Agents are one axis of every array. Products of matrices of many agents are one batched product, which is what makes a population cheap. An
agent draws from its own key and so meets the same chances alone and in a crowd; sums, however, may be taken in another order where shapes
differ. With `exact` agents are computed one after the other instead, and then an agent is the same to the bit in any company. Several
devices share a population out, each with some of the agents, and have nothing to say to each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from actiongap.dqn.agent import DQN
from actiongap.dqn.config import Config
from actiongap.dqn.loop import Score, TrainState, evaluate, init, step
from actiongap.envs.functional import FunctionalEnv
from actiongap.operators import AnyOperator, Operator, parse

AGENTS = "agents"
"""The axis along which devices share a population out."""


TRIALS = 2**32 - 1
"""What evaluations fold into an agent's key, which no iteration reaches."""


class Population:
    """Agents that play one game with the same settings.

    Examples
    --------
    >>> from actiongap.envs.minatar import GAMES
    >>> few = Config(num_envs=2, batch_size=4, buffer_size=40, learning_starts=8)
    >>> people = Population(GAMES["breakout"], few, ["bellman", "al:0.5"])
    >>> lives = people.train(people.start([0, 0]), 0, 10)
    >>> people.evaluate(lives, 0, episodes=2, limit=20, epsilon=0.0).score.shape
    (2,)
    """

    def __init__(
        self,
        game: FunctionalEnv,
        config: Config,
        operators: Sequence[AnyOperator],
        exact: bool = False,
        devices: Sequence[Any] | None = None,
        mask_actions: bool = False,
    ):
        named = [parse(operator) for operator in operators]
        different: dict[str, Operator] = {operator.name: operator for operator in named}
        self.game, self.size, self.exact = game, len(named), exact
        self.dqn = DQN(config, tuple(different.values()), game.shape, len(game.actions), mask_actions)
        devices = jax.devices()[:1] if devices is None else devices
        self.mesh = Mesh(np.array(devices), (AGENTS,))
        # A device needs as many agents as every other; the last agent stands in where there are too few.
        self.spare, names = -self.size % len(devices), list(different)
        self.which = self._filled(np.array([names.index(operator.name) for operator in named], np.int32))
        self._born = jax.jit(self._each(lambda seed, which: init(self.dqn, self.game, seed, which)))
        self._train = jax.jit(self._shared(self._rounds), donate_argnums=0)
        self._evaluate = jax.jit(self._shared(self._scores), static_argnums=(2, 3, 4))

    def start(self, seeds: Sequence[int]) -> TrainState:
        """All agents as they are before their first round, each with a seed."""
        return jax.device_put(self._born(self._filled(np.array(seeds, np.uint32)), self.which), self._place)

    def put(self, states: Iterable[dict[str, np.ndarray]]) -> TrainState:
        """All agents from what `get` gave, one by one."""
        like, states = jax.eval_shape(self._born, np.zeros(len(self.which), np.uint32), self.which), list(states)

        def rows(path: Any, leaf: Any) -> np.ndarray:
            one = jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
            return self._filled(np.stack([part_of(state, path, one) for state in states]))

        found = jax.tree_util.tree_map_with_path(rows, jax.eval_shape(lambda tree: jax.tree.map(_plain, tree), like))
        lives = jax.tree.map(lambda old, new: jax.random.wrap_key_data(new) if _is_key(old) else new, like, found)
        return jax.device_put(lives, self._place)

    def get(self, lives: Any) -> list[dict[str, np.ndarray]]:
        """Every agent, or a part of it, as a dictionary of arrays."""
        named = [(jax.tree_util.keystr(path), np.asarray(_plain(leaf))) for path, leaf in jax.tree_util.tree_leaves_with_path(lives)]
        return [{name: rows[i] for name, rows in named} for i in range(self.size)]

    def one_by_one(self, lives: Any) -> Iterator[dict[str, np.ndarray]]:
        """What `get` gives, for whoever has no room for all at once."""
        yield from self.get(lives)

    def restarts(self, lives: TrainState) -> np.ndarray:
        """How often the games of each agent had to begin anew because they could not be saved: never."""
        return np.zeros(self.size, np.int32)

    def counted_anew(self, lives: TrainState) -> TrainState:
        """The same, with no episode counted yet."""
        world = lives.world
        world = world._replace(finished=jnp.zeros_like(world.finished), episodes=jnp.zeros_like(world.episodes))
        return lives._replace(world=world)

    def train(self, lives: TrainState, iteration: int, iterations: int) -> TrainState:
        """So many more iterations, after as many as the iteration says. What is handed in is used up."""
        return self._train(lives, np.array([iteration, iterations], np.int32))

    def evaluate(self, lives: TrainState, iteration: int, episodes: int, limit: int, epsilon: float) -> Score:
        """How all agents play, with luck that depends on their seeds and the iteration."""
        scores = self._evaluate(lives, np.int32(iteration), episodes, limit, epsilon)
        return jax.tree.map(lambda part: np.asarray(part)[: self.size], scores)

    def _rounds(self, lives: TrainState, when: Any) -> TrainState:
        first, last = when[0], when[0] + when[1]

        def one(life: TrainState) -> TrainState:
            return jax.lax.fori_loop(first, last, lambda iteration, life: step(self.dqn, self.game, life, iteration), life)

        def together(iteration: Any, lives: TrainState) -> TrainState:
            return self._each(lambda life: step(self.dqn, self.game, life, iteration))(lives)

        # One after the other, each through all its iterations, or all side by side through round after round.
        return self._each(one)(lives) if self.exact else jax.lax.fori_loop(first, last, together, lives)

    def _scores(self, lives: TrainState, iteration: Any, episodes: int, limit: int, epsilon: float) -> Score:
        def one(life: TrainState) -> Score:
            key = jax.random.fold_in(jax.random.fold_in(life.agent.key, TRIALS), iteration)
            return evaluate(self.dqn, self.game, life.agent.learner.online, key, episodes, limit, epsilon)

        return self._each(one)(lives)

    def _by_agent(self, rows: np.ndarray) -> np.ndarray:
        """Rows of all agents' environments, one after the other, as (agents, environments, ...)."""
        return rows.reshape(self.size, -1, *rows.shape[1:])

    def _filled(self, rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows, np.repeat(rows[-1:], self.spare, axis=0)])

    @property
    def _place(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(AGENTS))

    def _each(self, function: Any) -> Any:
        if self.exact:
            return lambda *arguments: jax.lax.map(lambda one: function(*one), arguments)
        return jax.vmap(function)

    def _shared(self, function: Any) -> Any:
        """The function with every device doing its own agents."""
        if self.mesh.size == 1:
            return function

        def on_devices(lives: TrainState, when: Any, *static: Any) -> Any:
            mine, everyone = PartitionSpec(AGENTS), PartitionSpec()
            here = partial(jax.shard_map, mesh=self.mesh, in_specs=(mine, everyone), out_specs=mine, check_vma=False)
            return here(lambda lives, when: function(lives, when, *static))(lives, when)

        return on_devices


def part_of(state: Mapping[str, np.ndarray], path: Any, like: Any) -> np.ndarray:
    """The part of a saved state at a path, if it looks like this."""
    name = jax.tree_util.keystr(path)
    part = state.get(name)
    if part is None or part.shape != like.shape or part.dtype != like.dtype:
        raise ValueError(f"an agent's {name} is not of this population: begin anew in another folder")
    return part


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> Any:
    """Numbers that can be written down: keys as what they are made of."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf
