"""One DQN. What changes between agents is the operator, and nothing else.

A round is one step of all of an agent's environments, and then some gradient steps. For each batch the target network says what it thinks
of x and of x', that makes a `Backup` like any other, the operator makes a target of it, and the online network's Q(x, a) is moved to it:

    replay -> (x, a, r, discount, x') -> target network -> Backup -> operator -> target
                                          online network -> Q(x, a) -> loss -> optimiser

All terms of the backup come from the target network. The discount is 0 at a terminal state; where a time limit cut an episode short it is
not, and x' is what would have been seen. x' counts as x, for the consistent operator, where the two observations are equal.

Everything here is a function of one agent, so that `vmap` makes a population of it. The clock, which counts rounds, is the same for all,
and all randomness comes from an agent's own key and the clock: whoever else is there, and whenever it was interrupted, it draws the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from actiongap.dqn.config import Config
from actiongap.dqn.frame_replay import frames
from actiongap.dqn.networks import NEVER, Network, forbid, q_network
from actiongap.dqn.replay import TRANSITIONS, Memory, Transition, draw_by_priority, draw_evenly
from actiongap.operators import Operator
from actiongap.td import td_target

OPTIMISERS: dict[str, Callable[[Config], optax.GradientTransformation]] = {
    "rmsprop": lambda config: optax.rmsprop(config.learning_rate, decay=0.95, eps=0.01, centered=True, eps_in_sqrt=False),
    # DeepMind adds 0.01 to squares of gradients that are sums over a batch, where ours are means.
    "rmsprop-dqn": lambda config: optax.rmsprop(
        config.learning_rate, decay=0.95, eps=0.01 / config.batch_size**2, centered=True, eps_in_sqrt=True
    ),
    "adam": lambda config: optax.adam(config.learning_rate, eps=1e-5),
}
UNROLLED = 4
"""Gradient steps that are compiled one after the other: a loop over few costs more in moving its parts about."""


class Learner(NamedTuple):
    """What an agent has learned."""

    online: Any
    target: Any
    optimiser: Any


class Agent(NamedTuple):
    """What an agent is between rounds."""

    key: Any
    operator: Any
    """Which of the operators is its own."""
    learner: Learner
    replay: Any
    """What it remembers."""
    loss: Any
    """Of the last gradient step."""


class Batch(NamedTuple):
    """Some transitions to learn from, for several gradient steps."""

    place: Any
    """Where they are remembered, (gradient steps, batch)."""
    weight: Any
    """How much each counts, likewise."""
    seen: Transition
    """All of them in one row."""


class DQN:
    """The agent as functions: how it begins, chooses, remembers and learns."""

    def __init__(
        self,
        config: Config,
        operators: Sequence[Operator],
        shape: tuple[int, ...],
        actions: int,
        fewer: bool = False,
    ):
        """Agents that see observations of this shape and have so many actions; or some of them fewer, if it is so.

        Agents that only play need no operators.
        """
        self.config, self.operators, self.shape, self.actions, self.fewer = config, tuple(operators), shape, actions, fewer
        for operator in self.operators:
            if config.double and operator.temperature is not None:
                raise ValueError(f"{operator} has a policy of its own where Double DQN would choose: leave out double")
        self.network: Network = q_network(shape, actions, config.dueling, jnp.dtype(config.precision))
        self.memory: Memory = frames(config.frame_stack) if config.frame_stack > 1 else TRANSITIONS
        cut = [optax.clip_by_global_norm(config.max_grad_norm)] if config.max_grad_norm is not None else []
        self.optimiser = optax.chain(*cut, OPTIMISERS[config.optimizer](config))
        self.slots = config.capacity
        """Rounds that are remembered."""
        self.enough = max(config.learning_starts // config.num_envs, config.n_step + config.frame_stack - 1)
        """Rounds that are remembered before learning begins."""

    def begin(self, key: Any, operator: Any, example: Any, actions: Any = None) -> Agent:
        """A new agent that remembers steps like the example, of all its environments, or nothing yet if there is none.

        It has only the first actions, if so many are given.
        """
        key, first = jax.random.split(key)
        online = self.network.init(first)
        online = online if actions is None else forbid(online, actions, self.config.dueling)
        target = jax.tree.map(jnp.copy, online)
        memory = None if example is None else self.memory.blank(example, self.slots)
        return Agent(key, operator, Learner(online, target, self.optimiser.init(online)), memory, jnp.float32(0.0))

    def epsilon(self, clock: Any) -> Any:
        """How often a random action is taken in this round."""
        config = self.config
        steps = clock * config.num_envs - config.learning_starts
        part = jnp.clip(steps / max(config.exploration_steps, 1), 0.0, 1.0)
        return 1.0 + part * (config.final_epsilon - 1.0)

    def values(self, parameters: Any, observations: Any) -> Any:
        """Q(x, .) of some observations, packed or not."""
        return self.network.apply(parameters, observations)

    def choose(self, parameters: Any, observations: Any, epsilon: Any, key: Any) -> Any:
        """The best action for each observation, or now and then a random one."""
        values = self.values(parameters, observations)
        best = jnp.argmax(values, axis=-1).astype(jnp.int32)
        whether, which = jax.random.split(key)
        count = (values > NEVER / 2).sum(axis=-1) if self.fewer else self.actions
        random = jax.random.randint(which, best.shape, 0, count, jnp.int32)
        return jnp.where(jax.random.uniform(whether, best.shape) < epsilon, random, best)

    def absorb(self, agent: Agent, step: Any, clock: Any, key: Any) -> Agent:
        """Remember a step of all environments, and learn."""
        return self.learn(self.remember(agent, step, clock), clock, key)

    def remember(self, agent: Agent, step: Any, clock: Any) -> Agent:
        """The agent with one more step in its memory."""
        return agent._replace(replay=self.memory.remember(agent.replay, clock % self.slots, step, self.config.priority_exponent > 0))

    def learn(self, agent: Agent, clock: Any, key: Any, since: Any = 0) -> Agent:
        """Learn, once enough is remembered since memory began. The target network follows now and then."""
        # The clock is the same for all agents, so this is a branch for a whole population too. What is remembered stays out of it.
        learner, loss, priority = jax.lax.cond(
            clock + 1 - since >= self.enough,
            lambda: self.learned(agent, clock, key, since, self.config.gradient_steps),
            lambda: (agent.learner, agent.loss, agent.replay.priority),
        )
        replay = agent.replay._replace(priority=priority) if self.config.priority_exponent > 0 else agent.replay
        return agent._replace(learner=self.follow(learner, clock), replay=replay, loss=loss)

    def learned(self, agent: Agent, clock: Any, key: Any, since: Any, updates: int, behind: Any = 0) -> tuple[Learner, Any, Any]:
        """What an agent has learned after so many gradient steps, the loss of the last, and what its memories are worth."""
        places, luck = jax.random.split(key)
        batch = self.draw(agent.replay, clock, places, since, updates, behind)
        learner, loss, errors = self.improve(agent, batch, luck)
        return learner, loss, self.rate(agent.replay.priority, batch, errors)

    def follow(self, learner: Learner, clock: Any) -> Learner:
        """The target network becomes the online network, if it is time."""
        target = jax.lax.cond(self.follows(clock), lambda: learner.online, lambda: learner.target)
        return learner._replace(target=target)

    def follows(self, clock: Any) -> Any:
        """Whether the target network becomes the online network after this round, as it does every so many steps."""
        return (clock + 1) % max(self.config.target_update_interval // self.config.num_envs, 1) == 0

    def draw(self, replay: Any, clock: Any, key: Any, since: Any, updates: int, behind: Any = 0) -> Batch:
        """The batches of so many gradient steps, one after the other; `behind` is 1 while the newest row is being written, else 0."""
        config, memory, priority = self.config, self.memory, replay.priority
        newest, filled = (clock - behind) % self.slots, jnp.minimum(clock + 1 - since, self.slots) - behind
        count, ages = (updates, config.batch_size), memory.whole(filled, config.n_step)
        if config.priority_exponent > 0:
            place, probability = draw_by_priority(key, count, priority, newest, ages, config.priority_exponent)
            weight = (filled * config.num_envs * probability) ** -config.importance_exponent
            weight = weight / weight.max(axis=1, keepdims=True)
        else:
            place = draw_evenly(key, count, priority, newest, ages, memory.gaps)
            # Where no try met a transition, what was drawn does not count.
            weight = (priority.reshape(-1)[place] > 0).astype(jnp.float32) if memory.gaps else jnp.ones(count)
        return Batch(place, weight, memory.recall(replay, place.reshape(-1), config.n_step))

    def improve(self, agent: Agent, batch: Batch, key: Any) -> tuple[Learner, Any, Any]:
        """Gradient steps. Targets of all batches are made at once, unless the online network, which each step changes, is asked too."""
        count = batch.weight.shape
        at_once = self.targets(agent, batch.seen, key) if not self.config.targets_use_online else None

        def update(carried: tuple[Learner, Any], batch: tuple) -> tuple[tuple[Learner, Any], tuple]:
            (learner, light), (seen, targets, weight) = carried, batch
            if targets is None:
                targets = self.targets(agent._replace(learner=learner), seen, key)
            (loss, error), gradient = jax.value_and_grad(self._loss, has_aux=True)(light, seen.observation, seen.action, targets, weight)
            gradient = jax.tree.map(lambda part: part.astype(jnp.float32), gradient)
            change, optimiser = self.optimiser.update(gradient, learner.optimiser, learner.online)
            online = optax.apply_updates(learner.online, change)
            return (Learner(online, learner.target, optimiser), self.network.light(online)), (loss, error)

        seen = batch.seen if at_once is None else Transition(batch.seen.observation, batch.seen.action, None, None, None, None)
        batches = jax.tree.map(lambda part: part.reshape(*count, *part.shape[1:]), (seen, at_once))
        carried = (agent.learner, self.network.light(agent.learner.online))
        unroll = min(count[0], UNROLLED)
        (learner, _), (losses, errors) = jax.lax.scan(update, carried, (*batches, batch.weight), unroll=unroll)
        return learner, losses[-1], errors

    def rate(self, priority: Any, batch: Batch, errors: Any) -> Any:
        """Priorities after a round: of what was learned from, by how much each target was missed."""
        if self.config.priority_exponent == 0:
            return priority
        return priority.reshape(-1).at[batch.place.reshape(-1)].set(jnp.abs(errors).reshape(-1) + 1e-6).reshape(priority.shape)

    def targets(self, agent: Agent, seen: Transition, key: Any) -> Any:
        """What the agent's operator would have Q(x, a) be."""
        # Each by itself: where no operator looks at Q(x, .), a compiler drops it.
        q_tm1, q_t = (self.values(agent.learner.target, some) for some in (seen.observation, seen.next_observation))
        v_t = None
        if self.config.correction_network == "online":
            # V(x') stays the target network's, and all else that an operator looks at is the online network's.
            online = agent.learner.online
            best, q_tm1, q_t = (
                q_t.max(axis=1, keepdims=True),
                self.values(online, seen.observation),
                self.values(online, seen.next_observation),
            )
            q_t = q_t - q_t.max(axis=1, keepdims=True) + best
        if self.config.double:
            preferred = jnp.argmax(self.values(agent.learner.online, seen.next_observation), axis=-1)
            v_t = jnp.take_along_axis(q_t, preferred[:, None], axis=1)[:, 0]
        same = seen.observation == seen.next_observation
        returned = same.reshape(len(same), -1).all(axis=1).astype(jnp.float32)
        u = jax.random.uniform(key)
        aims = [
            td_target(operator.at(u), q_tm1, seen.action, seen.reward, seen.discount, q_t, returned=returned, v_t=v_t)
            for operator in self.operators
        ]
        return aims[0] if len(aims) == 1 else jax.lax.select_n(jnp.full(aims[0].shape, agent.operator), *aims)

    def _loss(self, online: Any, observations: Any, actions: Any, targets: Any, weight: Any) -> tuple[Any, Any]:
        """The mean loss of a batch, and by how much each target was missed."""
        values = self.values(online, observations)
        # By comparing and not by looking up: the gradient of looking up is a scatter.
        error = jnp.where(jnp.arange(self.actions) == actions[:, None], values, 0.0).sum(axis=1) - targets
        loss = optax.huber_loss(error) if self.config.loss == "huber" else 0.5 * error**2
        return (weight * loss).mean(), error
