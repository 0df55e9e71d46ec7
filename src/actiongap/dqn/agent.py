"""One DQN, in which only the operator changes.

An iteration is one step of all environments of an agent, followed by gradient steps. For each batch the target network evaluates x and
x', these Q-values form a `Backup`, the operator maps the backup to a target, and the online network's Q(x, a) moves towards it:

    replay -> (x, a, r, discount, x') -> target network -> Backup -> operator -> target
                                          online network -> Q(x, a) -> loss -> optimizer

All terms of the backup come from the target network. The discount is 0 if x' is terminal; if the episode was truncated it is not, and x'
is the state that would have followed. For the consistent operator, x' counts as x if the two observations are equal.

Every function takes one agent, so `vmap` turns it into a population. The iteration number is the same for all agents. All randomness
comes from the agent's own key and the iteration, so an agent draws the same numbers alone, in a population, and after an interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from actiongap.dqn.config import Config
from actiongap.dqn.frame_replay import frame_buffer
from actiongap.dqn.networks import NEVER, Network, forbid, q_network
from actiongap.dqn.replay import TRANSITIONS, ReplayBuffer, Transition, sample_prioritized, sample_uniform
from actiongap.operators import Operator
from actiongap.td import td_target

OPTIMIZERS: dict[str, Callable[[Config], optax.GradientTransformation]] = {
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
    """Networks and optimizer state."""

    online: Any
    target: Any
    optimiser: Any


class Agent(NamedTuple):
    """State of an agent between iterations."""

    key: Any
    operator: Any
    """Index of its operator."""
    learner: Learner
    replay: Any
    """Contents of the replay buffer."""
    loss: Any
    """Loss of the last gradient step."""


class Batch(NamedTuple):
    """Sampled transitions for several gradient steps."""

    place: Any
    """Indices into the replay buffer, (gradient_steps, batch_size)."""
    weight: Any
    """Weights in the loss, (gradient_steps, batch_size)."""
    seen: Transition
    """All transitions along one axis, (gradient_steps * batch_size, ...)."""


class DQN:
    """The agent as pure functions: init, act, store, sample, target, loss, gradient step, target network update."""

    def __init__(
        self,
        config: Config,
        operators: Sequence[Operator],
        shape: tuple[int, ...],
        actions: int,
        mask_actions: bool = False,
    ):
        """Make the functions for observations of this shape and this number of actions.

        `mask_actions`: agents may be limited to their first k actions (games with smaller action sets). Agents that only act need no
        operators.
        """
        self.config, self.operators, self.shape, self.actions, self.mask_actions = config, tuple(operators), shape, actions, mask_actions
        for operator in self.operators:
            if config.double and operator.temperature is not None:
                raise ValueError(f"{operator} has a policy of its own where Double DQN would choose: leave out double")
        self.network: Network = q_network(shape, actions, config.dueling, jnp.dtype(config.precision))
        self.buffer: ReplayBuffer = frame_buffer(config.frame_stack) if config.frame_stack > 1 else TRANSITIONS
        cut = [optax.clip_by_global_norm(config.max_grad_norm)] if config.max_grad_norm is not None else []
        self.optimizer = optax.chain(*cut, OPTIMIZERS[config.optimizer](config))
        self.capacity = config.capacity
        """Rows of the replay buffer."""
        self.warmup = max(config.learning_starts // config.num_envs, config.n_step + config.frame_stack - 1)
        """Iterations before the first gradient step."""

    def begin(self, key: Any, operator: Any, example: Any, actions: Any = None) -> Agent:
        """A new agent. `example`, a step of all environments, gives the shapes of its replay buffer; without it there is no buffer yet.

        If `actions` is given, the agent is limited to its first `actions` actions.
        """
        key, first = jax.random.split(key)
        online = self.network.init(first)
        online = online if actions is None else forbid(online, actions, self.config.dueling)
        target = jax.tree.map(jnp.copy, online)
        replay = None if example is None else self.buffer.init(example, self.capacity)
        return Agent(key, operator, Learner(online, target, self.optimizer.init(online)), replay, jnp.float32(0.0))

    def epsilon(self, iteration: Any) -> Any:
        """Probability of a random action in this iteration."""
        config = self.config
        steps = iteration * config.num_envs - config.learning_starts
        part = jnp.clip(steps / max(config.exploration_steps, 1), 0.0, 1.0)
        return 1.0 + part * (config.final_epsilon - 1.0)

    def values(self, parameters: Any, observations: Any) -> Any:
        """Q(x, .), (batch, actions), of observations, packed or not."""
        return self.network.apply(parameters, observations)

    def choose(self, parameters: Any, observations: Any, epsilon: Any, key: Any) -> Any:
        """Epsilon-greedy actions, (batch,)."""
        values = self.values(parameters, observations)
        best = jnp.argmax(values, axis=-1).astype(jnp.int32)
        whether, which = jax.random.split(key)
        count = (values > NEVER / 2).sum(axis=-1) if self.mask_actions else self.actions
        random = jax.random.randint(which, best.shape, 0, count, jnp.int32)
        return jnp.where(jax.random.uniform(whether, best.shape) < epsilon, random, best)

    def absorb(self, agent: Agent, step: Any, iteration: Any, key: Any) -> Agent:
        """Store a step of all environments, then take the gradient steps of the iteration."""
        return self.learn(self.add(agent, step, iteration), iteration, key)

    def add(self, agent: Agent, step: Any, iteration: Any) -> Agent:
        """Add a step of all environments to the replay buffer."""
        return agent._replace(replay=self.buffer.add(agent.replay, iteration % self.capacity, step, self.config.priority_exponent > 0))

    def learn(self, agent: Agent, iteration: Any, key: Any, since: Any = 0) -> Agent:
        """Take the gradient steps of an iteration after the warm-up, and update the target network if due."""
        # The iteration is the same for all agents, so this is one branch for the population. The buffer stays out of it.
        learner, loss, priority = jax.lax.cond(
            iteration + 1 - since >= self.warmup,
            lambda: self.learned(agent, iteration, key, since, self.config.gradient_steps),
            lambda: (agent.learner, agent.loss, agent.replay.priority),
        )
        replay = agent.replay._replace(priority=priority) if self.config.priority_exponent > 0 else agent.replay
        return agent._replace(learner=self.follow(learner, iteration), replay=replay, loss=loss)

    def learned(self, agent: Agent, iteration: Any, key: Any, since: Any, updates: int, behind: Any = 0) -> tuple[Learner, Any, Any]:
        """Sample, take `updates` gradient steps, and return the learner, the last loss and the new priorities."""
        places, luck = jax.random.split(key)
        batch = self.draw(agent.replay, iteration, places, since, updates, behind)
        learner, loss, errors = self.improve(agent, batch, luck)
        return learner, loss, self.rate(agent.replay.priority, batch, errors)

    def follow(self, learner: Learner, iteration: Any) -> Learner:
        """Copy the online network into the target network if an update is due."""
        target = jax.lax.cond(self.follows(iteration), lambda: learner.online, lambda: learner.target)
        return learner._replace(target=target)

    def follows(self, iteration: Any) -> Any:
        """Whether the target network is updated after this iteration."""
        return (iteration + 1) % max(self.config.target_update_interval // self.config.num_envs, 1) == 0

    def draw(self, replay: Any, iteration: Any, key: Any, since: Any, updates: int, behind: Any = 0) -> Batch:
        """Sample the batches of `updates` gradient steps. `behind` is 1 while the newest row is being written, else 0."""
        config, buffer, priority = self.config, self.buffer, replay.priority
        newest, filled = (iteration - behind) % self.capacity, jnp.minimum(iteration + 1 - since, self.capacity) - behind
        count, ages = (updates, config.batch_size), buffer.valid_ages(filled, config.n_step)
        if config.priority_exponent > 0:
            place, probability = sample_prioritized(key, count, priority, newest, ages, config.priority_exponent)
            weight = (filled * config.num_envs * probability) ** -config.importance_exponent
            weight = weight / weight.max(axis=1, keepdims=True)
        else:
            place = sample_uniform(key, count, priority, newest, ages, buffer.gaps)
            # If no try found a transition, the sample has weight 0.
            weight = (priority.reshape(-1)[place] > 0).astype(jnp.float32) if buffer.gaps else jnp.ones(count)
        return Batch(place, weight, buffer.sample(replay, place.reshape(-1), config.n_step))

    def improve(self, agent: Agent, batch: Batch, key: Any) -> tuple[Learner, Any, Any]:
        """Take gradient steps. Targets are computed at once for all batches, unless they use the online network."""
        count = batch.weight.shape
        at_once = self.targets(agent, batch.seen, key) if not self.config.targets_use_online else None

        def update(carried: tuple[Learner, Any], batch: tuple) -> tuple[tuple[Learner, Any], tuple]:
            (learner, light), (seen, targets, weight) = carried, batch
            if targets is None:
                targets = self.targets(agent._replace(learner=learner), seen, key)
            (loss, error), gradient = jax.value_and_grad(self._loss, has_aux=True)(light, seen.observation, seen.action, targets, weight)
            gradient = jax.tree.map(lambda part: part.astype(jnp.float32), gradient)
            change, optimiser = self.optimizer.update(gradient, learner.optimiser, learner.online)
            online = optax.apply_updates(learner.online, change)
            return (Learner(online, learner.target, optimiser), self.network.light(online)), (loss, error)

        seen = batch.seen if at_once is None else Transition(batch.seen.observation, batch.seen.action, None, None, None, None)
        batches = jax.tree.map(lambda part: part.reshape(*count, *part.shape[1:]), (seen, at_once))
        carried = (agent.learner, self.network.light(agent.learner.online))
        unroll = min(count[0], UNROLLED)
        (learner, _), (losses, errors) = jax.lax.scan(update, carried, (*batches, batch.weight), unroll=unroll)
        return learner, losses[-1], errors

    def rate(self, priority: Any, batch: Batch, errors: Any) -> Any:
        """Set the priorities of the sampled transitions to their absolute TD errors."""
        if self.config.priority_exponent == 0:
            return priority
        return priority.reshape(-1).at[batch.place.reshape(-1)].set(jnp.abs(errors).reshape(-1) + 1e-6).reshape(priority.shape)

    def targets(self, agent: Agent, seen: Transition, key: Any) -> Any:
        """Targets of Q(x, a), (batch,): the agent's operator applied to the backups of the transitions."""
        # Two calls: if no operator reads Q(x, .), the compiler drops it.
        q_tm1, q_t = (self.values(agent.learner.target, some) for some in (seen.observation, seen.next_observation))
        v_t = None
        if self.config.correction_network == "online":
            # V(x') comes from the target network; everything else the operator reads comes from the online network.
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
        """Mean loss of a batch, and its TD errors, (batch,)."""
        values = self.values(online, observations)
        # Select by comparison: the gradient of an index lookup is a scatter.
        error = jnp.where(jnp.arange(self.actions) == actions[:, None], values, 0.0).sum(axis=1) - targets
        loss = optax.huber_loss(error) if self.config.loss == "huber" else 0.5 * error**2
        return (weight * loss).mean(), error
