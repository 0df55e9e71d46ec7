"""One DQN, in which only the operator changes.

An iteration is one step of all environments of an agent, followed by gradient steps. For each batch the target network evaluates x and
x', these Q-values form a `Backup`, the operator maps the backup to a target, and the online network's Q(x, a) moves towards it:

    replay -> (x, a, r, discount, x') -> target network -> Backup -> operator -> target
                                          online network -> Q(x, a) -> loss -> optimizer

By default all terms of the backup come from the target network; `double` and `correction_network` change this. The discount is 0 if x' is
terminal. It is not 0 if the episode was truncated, and x' is then the state that would have followed. For the consistent operator, x'
counts as x if the two observations are equal.

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
from actiongap.dqn.networks import MASKED_VALUE, Network, limit_actions, q_network
from actiongap.dqn.replay import TRANSITIONS, ReplayBuffer, Transition, sample_prioritized, sample_uniform
from actiongap.maths import top_two
from actiongap.operators import Operator, bellman
from actiongap.td import td_target

OPTIMIZERS: dict[str, Callable[[Config], optax.GradientTransformation]] = {
    "rmsprop": lambda config: optax.rmsprop(config.learning_rate, decay=0.95, eps=0.01, centered=True, eps_in_sqrt=False),
    # DeepMind adds 0.01 to squares of gradients that are summed over a batch. Ours are means.
    "rmsprop-dqn": lambda config: optax.rmsprop(
        config.learning_rate, decay=0.95, eps=0.01 / config.batch_size**2, centered=True, eps_in_sqrt=True
    ),
    "adam": lambda config: optax.adam(config.learning_rate, eps=1e-5),
}
UNROLLED = 4
"""Largest number of gradient steps per pass of the compiled loop (`unroll` of `jax.lax.scan`).

With one step per pass, the loop spends more time on copying its state than on computing."""


class Learner(NamedTuple):
    """Networks and optimizer state."""

    online: Any
    target: Any
    opt_state: Any


class Agent(NamedTuple):
    """State of an agent between iterations."""

    key: Any
    operator: Any
    """Index into `DQN.operators`."""
    learner: Learner
    replay: Any
    """Contents of the replay buffer."""
    loss: Any
    """Loss of the last gradient step."""
    leader: Learner | None = None
    """The learner with Bellman's operator that chooses the actions, if `Config.behavior` is "bellman". It learns from the same batches."""


class Batch(NamedTuple):
    """Sampled transitions for several gradient steps."""

    index: Any
    """Indices into the replay buffer, (gradient_steps, batch_size)."""
    weight: Any
    """Weights in the loss, (gradient_steps, batch_size)."""
    transitions: Transition
    """Arrays (gradient_steps * batch_size, ...)."""


class DQN:
    """The agent as pure functions.

    `act` selects actions, `add` writes a step into the replay buffer, and `learn` is the update of an iteration. It calls
    `sample_and_update`, that is `sample`, `update` (the gradient steps, with the `targets` of the transitions) and `update_priorities`,
    and then `update_target`.
    """

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
        self.config: Config = config
        self.operators: tuple[Operator, ...] = tuple(operators)
        self.shape: tuple[int, ...] = shape
        self.actions: int = actions
        self.mask_actions: bool = mask_actions
        for operator in self.operators:
            if config.double and operator.temperature is not None:
                raise ValueError(f"{operator} averages x' over its softmax policy, so Double DQN has no action to choose: leave out double")
        self.network: Network = q_network(shape, actions, config.dueling, jnp.dtype(config.precision))
        self.buffer: ReplayBuffer = frame_buffer(config.frame_stack) if config.frame_stack > 1 else TRANSITIONS
        clip = [optax.clip_by_global_norm(config.max_grad_norm)] if config.max_grad_norm is not None else []
        self.optimizer: optax.GradientTransformation = optax.chain(*clip, OPTIMIZERS[config.optimizer](config))
        self.capacity: int = config.capacity
        """Rows of the replay buffer."""
        self.warmup: int = max(config.learning_starts // config.num_envs, config.n_step + config.frame_stack - 1)
        """Rows that must be filled before gradient steps start. The row of the current iteration counts."""

    def init(self, key: Any, operator: Any, dummy_step: Any, actions: Any = None) -> Agent:
        """Return a new agent. `operator` is an index into `DQN.operators`.

        `dummy_step`, a step of all environments, gives the shapes of the replay buffer. If it is None, the agent has no buffer yet. If
        `actions` is given, the agent is limited to its first `actions` actions.
        """
        key, network_key = jax.random.split(key)
        online = self.network.init(network_key)
        online = online if actions is None else limit_actions(online, actions, self.config.dueling)
        target = jax.tree.map(jnp.copy, online)
        replay = None if dummy_step is None else self.buffer.init(dummy_step, self.capacity)
        learner = Learner(online, target, self.optimizer.init(online))
        leader = jax.tree.map(jnp.copy, learner) if self.config.behavior == "bellman" else None
        return Agent(key, operator, learner, replay, jnp.float32(0.0), leader)

    def acting(self, agent: Agent) -> Any:
        """Return the online network that chooses the actions of training."""
        return agent.learner.online if agent.leader is None else agent.leader.online

    def epsilon(self, iteration: Any) -> Any:
        """Return the probability of a random action in this iteration."""
        config = self.config
        steps = iteration * config.num_envs - config.learning_starts
        fraction = jnp.clip(steps / max(config.exploration_steps, 1), 0.0, 1.0)
        return 1.0 + fraction * (config.final_epsilon - 1.0)

    def q_values(self, parameters: Any, observations: Any) -> Any:
        """Return Q(x, .), (batch, actions), of observations, packed or not."""
        return self.network.apply(parameters, observations)

    def act(self, parameters: Any, observations: Any, epsilon: Any, key: Any) -> Any:
        """Return epsilon-greedy actions, (batch,)."""
        return self._epsilon_greedy(self.q_values(parameters, observations), epsilon, key)

    def act_and_evaluate(self, parameters: Any, observations: Any, epsilon: Any, key: Any) -> tuple[Any, Any, Any]:
        """Return epsilon-greedy actions, the values V(x) and the action gaps of the observations, (batch,) each."""
        q = self.q_values(parameters, observations)
        best, second = top_two(q)
        return self._epsilon_greedy(q, epsilon, key), best, best - second

    def _epsilon_greedy(self, q: Any, epsilon: Any, key: Any) -> Any:
        greedy = jnp.argmax(q, axis=-1).astype(jnp.int32)
        explore_key, action_key = jax.random.split(key)
        count = (q > MASKED_VALUE / 2).sum(axis=-1) if self.mask_actions else self.actions
        random = jax.random.randint(action_key, greedy.shape, 0, count, jnp.int32)
        return jnp.where(jax.random.uniform(explore_key, greedy.shape) < epsilon, random, greedy)

    def add(self, agent: Agent, step: Any, iteration: Any) -> Agent:
        """Add a step of all environments to the replay buffer."""
        return agent._replace(replay=self.buffer.add(agent.replay, iteration % self.capacity, step, self.config.priority_exponent > 0))

    def learn(self, agent: Agent, iteration: Any, key: Any, replay_start: Any = 0) -> Agent:
        """Take the gradient steps of an iteration after the warm-up, and update the target network if due.

        `replay_start` is the iteration in which the replay buffer started to fill.
        """
        gradient_steps = self.config.gradient_steps

        def sample_and_update() -> tuple[Learner, Learner | None, Any, Any]:
            if agent.leader is None:
                learner, loss, priority = self.sample_and_update(agent, iteration, key, replay_start, gradient_steps)
                return learner, None, loss, priority
            return self._update_with_leader(agent, agent.leader, iteration, key, replay_start)

        # The iteration is the same for all agents, so this is one branch for the population. The replay buffer is not
        # among its results, because results are copied.
        learner, leader, loss, priority = jax.lax.cond(
            iteration + 1 - replay_start >= self.warmup,
            sample_and_update,
            lambda: (agent.learner, agent.leader, agent.loss, agent.replay.priority),
        )
        replay = agent.replay._replace(priority=priority) if self.config.priority_exponent > 0 else agent.replay
        leader = None if leader is None else self.update_target(leader, iteration)
        return agent._replace(learner=self.update_target(learner, iteration), replay=replay, loss=loss, leader=leader)

    def _update_with_leader(
        self, agent: Agent, leader: Learner, iteration: Any, key: Any, replay_start: Any
    ) -> tuple[Learner, Learner, Any, Any]:
        """Take gradient steps of the learner and of its leader on the same batches. Priorities are those of the leader."""
        sample_key, update_key = jax.random.split(key)
        batch = self.sample(agent.replay, iteration, sample_key, replay_start, self.config.gradient_steps)
        learner, loss, _ = self.update(agent, batch, update_key)
        leader, _, errors = self.update(agent._replace(learner=leader), batch, update_key, (bellman(),))
        return learner, leader, loss, self.update_priorities(agent.replay.priority, batch, errors)

    def add_and_learn(self, agent: Agent, step: Any, iteration: Any, key: Any) -> Agent:
        """Add a step of all environments, then take the gradient steps of the iteration."""
        return self.learn(self.add(agent, step, iteration), iteration, key)

    def sample_and_update(
        self, agent: Agent, iteration: Any, key: Any, replay_start: Any, gradient_steps: int, incomplete: Any = 0
    ) -> tuple[Learner, Any, Any]:
        """Sample batches, take gradient steps, and return the learner, the last loss and the new priorities."""
        sample_key, update_key = jax.random.split(key)
        batch = self.sample(agent.replay, iteration, sample_key, replay_start, gradient_steps, incomplete)
        learner, loss, errors = self.update(agent, batch, update_key)
        return learner, loss, self.update_priorities(agent.replay.priority, batch, errors)

    def sample(self, replay: Any, iteration: Any, key: Any, replay_start: Any, gradient_steps: int, incomplete: Any = 0) -> Batch:
        """Sample the batches of `gradient_steps` gradient steps. `incomplete` is 1 while the newest row is being written, else 0."""
        config, buffer, priority = self.config, self.buffer, replay.priority
        newest = (iteration - incomplete) % self.capacity
        filled = jnp.minimum(iteration + 1 - replay_start, self.capacity) - incomplete
        shape, ages = (gradient_steps, config.batch_size), buffer.valid_ages(filled, config.n_step)
        if config.priority_exponent > 0:
            index, probability = sample_prioritized(key, shape, priority, newest, ages, config.priority_exponent)
            weight = (filled * config.num_envs * probability) ** -config.importance_exponent
            weight = weight / weight.max(axis=1, keepdims=True)
        else:
            index = sample_uniform(key, shape, priority, newest, ages, buffer.has_gaps)
            # If no try found a transition, the sample has weight 0.
            weight = (priority.reshape(-1)[index] > 0).astype(jnp.float32) if buffer.has_gaps else jnp.ones(shape)
        return Batch(index, weight, buffer.sample(replay, index.reshape(-1), config.n_step))

    def update(self, agent: Agent, batch: Batch, key: Any, operators: tuple[Operator, ...] | None = None) -> tuple[Learner, Any, Any]:
        """Take gradient steps, and return the learner, the last loss and the TD errors.

        Targets are computed at once for all batches, unless they use the online network. `operators` is as in `targets`.
        """
        shape = batch.weight.shape
        all_targets = self.targets(agent, batch.transitions, key, operators) if not self.config.targets_use_online else None

        def gradient_step(carry: tuple[Learner, Any], batch: tuple[Any, ...]) -> tuple[tuple[Learner, Any], tuple[Any, ...]]:
            (learner, parameters), (transitions, targets, weight) = carry, batch
            if targets is None:
                targets = self.targets(agent._replace(learner=learner), transitions, key, operators)
            loss_and_gradient = jax.value_and_grad(self._loss, has_aux=True)
            (loss, error), gradient = loss_and_gradient(parameters, transitions.observation, transitions.action, targets, weight)
            gradient = jax.tree.map(lambda part: part.astype(jnp.float32), gradient)
            updates, opt_state = self.optimizer.update(gradient, learner.opt_state, learner.online)
            online = optax.apply_updates(learner.online, updates)
            return (Learner(online, learner.target, opt_state), self.network.cast(online)), (loss, error)

        transitions = batch.transitions
        if all_targets is not None:
            transitions = Transition(transitions.observation, transitions.action, None, None, None, None)
        batches = jax.tree.map(lambda part: part.reshape(*shape, *part.shape[1:]), (transitions, all_targets))
        carry = (agent.learner, self.network.cast(agent.learner.online))
        unroll = min(shape[0], UNROLLED)
        (learner, _), (losses, errors) = jax.lax.scan(gradient_step, carry, (*batches, batch.weight), unroll=unroll)
        return learner, losses[-1], errors

    def update_priorities(self, priority: Any, batch: Batch, errors: Any) -> Any:
        """Set the priorities of the sampled transitions to their absolute TD errors."""
        if self.config.priority_exponent == 0:
            return priority
        return priority.reshape(-1).at[batch.index.reshape(-1)].set(jnp.abs(errors).reshape(-1) + 1e-6).reshape(priority.shape)

    def target_update_due(self, iteration: Any) -> Any:
        """Whether the target network is updated after this iteration."""
        return (iteration + 1) % max(self.config.target_update_interval // self.config.num_envs, 1) == 0

    def update_target(self, learner: Learner, iteration: Any) -> Learner:
        """Copy the online network into the target network if an update is due."""
        target = jax.lax.cond(self.target_update_due(iteration), lambda: learner.online, lambda: learner.target)
        return learner._replace(target=target)

    def targets(self, agent: Agent, transitions: Transition, key: Any, operators: tuple[Operator, ...] | None = None) -> Any:
        """Return the targets of Q(x, a), (batch,): the agent's operator applied to the backups of the transitions.

        `operators` are those that the agent's operator is chosen from, by default `DQN.operators`.
        """
        observation, next_observation = transitions.observation, transitions.next_observation
        # Two calls: if no operator reads Q(x, .), the compiler drops it.
        q_tm1, q_t = (self.q_values(agent.learner.target, x) for x in (observation, next_observation))
        v_t = None
        if self.config.correction_network == "online":
            # Q(x, .) and the gaps at x' come from the online network. Its Q(x', .) is shifted so that its maximum is V(x') of the target
            # network.
            online = agent.learner.online
            target_v, q_tm1, q_t = (
                q_t.max(axis=1, keepdims=True),
                self.q_values(online, observation),
                self.q_values(online, next_observation),
            )
            q_t = q_t - q_t.max(axis=1, keepdims=True) + target_v
        if self.config.double:
            preferred = jnp.argmax(self.q_values(agent.learner.online, next_observation), axis=-1)
            v_t = jnp.take_along_axis(q_t, preferred[:, None], axis=1)[:, 0]
        same = observation == next_observation
        returned = same.reshape(len(same), -1).all(axis=1).astype(jnp.float32)
        u = jax.random.uniform(key)
        targets = [
            td_target(operator.at(u), q_tm1, transitions.action, transitions.reward, transitions.discount, q_t, returned=returned, v_t=v_t)
            for operator in (self.operators if operators is None else operators)
        ]
        return targets[0] if len(targets) == 1 else jax.lax.select_n(jnp.full(targets[0].shape, agent.operator), *targets)

    def _loss(self, online: Any, observations: Any, actions: Any, targets: Any, weight: Any) -> tuple[Any, Any]:
        """Return the mean loss of a batch, and its TD errors, (batch,)."""
        q = self.q_values(online, observations)
        # Select by comparison: the gradient of an index lookup is a scatter.
        error = jnp.where(jnp.arange(self.actions) == actions[:, None], q, 0.0).sum(axis=1) - targets
        loss = optax.huber_loss(error) if self.config.loss == "huber" else 0.5 * error**2
        return (weight * loss).mean(), error
