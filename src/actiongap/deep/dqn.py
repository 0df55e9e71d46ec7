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
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from actiongap.deep.networks import Network, q_network
from actiongap.deep.packing import pack
from actiongap.deep.replay import Replay, Transition, blank, draw_by_priority, draw_evenly, recall, remember
from actiongap.deep.settings import Settings
from actiongap.operators import Operator
from actiongap.td import td_target

OPTIMISERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "rmsprop": partial(optax.rmsprop, decay=0.95, eps=0.01, centered=True, eps_in_sqrt=False),
    "adam": partial(optax.adam, eps=1e-5),
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
    replay: Replay
    loss: Any
    """Of the last gradient step."""


class DQN:
    """The agent as functions: how it begins, chooses, remembers and learns."""

    def __init__(self, settings: Settings, operators: Sequence[Operator], shape: tuple[int, ...], actions: int):
        self.settings, self.operators, self.shape, self.actions = settings, tuple(operators), shape, actions
        for operator in self.operators:
            if settings.double and operator.temperature is not None:
                raise ValueError(f"{operator} has a policy of its own where Double DQN would choose: leave out double")
        self.network: Network = q_network(shape, actions, settings.dueling, jnp.dtype(settings.precision))
        cut = [optax.clip_by_global_norm(settings.norm)] if settings.norm else []
        self.optimiser = optax.chain(*cut, OPTIMISERS[settings.optimiser](settings.rate))
        self.slots = settings.replay // settings.environments
        """Rounds that are remembered."""

    def begin(self, key: Any, operator: Any, observations: Any) -> Agent:
        """A new agent that sees these observations, one of each environment."""
        key, first = jax.random.split(key)
        online = self.network.init(first)
        number, words = jnp.zeros(len(observations)), pack(observations)
        empty = Transition(words, number.astype(jnp.int32), number, number, words, number.astype(bool))
        target = jax.tree.map(jnp.copy, online)
        return Agent(key, operator, Learner(online, target, self.optimiser.init(online)), blank(empty, self.slots), jnp.float32(0.0))

    def epsilon(self, clock: Any) -> Any:
        """How often a random action is taken in this round."""
        settings = self.settings
        part = jnp.clip(clock * settings.environments / max(settings.explore_for, 1), 0.0, 1.0)
        return 1.0 + part * (settings.epsilon - 1.0)

    def values(self, parameters: Any, observations: Any) -> Any:
        """Q(x, .) of some observations, packed or not."""
        return self.network.apply(parameters, observations)

    def choose(self, parameters: Any, observations: Any, epsilon: Any, key: Any) -> Any:
        """The best action for each observation, or now and then a random one."""
        best = jnp.argmax(self.values(parameters, observations), axis=-1).astype(jnp.int32)
        whether, which = jax.random.split(key)
        random = jax.random.randint(which, best.shape, 0, self.actions, jnp.int32)
        return jnp.where(jax.random.uniform(whether, best.shape) < epsilon, random, best)

    def absorb(self, agent: Agent, step: Transition, clock: Any, key: Any) -> Agent:
        """Remember a step of all environments; then learn, once enough is remembered. The target network follows now and then."""
        settings = self.settings
        step = step._replace(observation=pack(step.observation), next_observation=pack(step.next_observation))
        slot = clock % self.slots
        agent = agent._replace(replay=remember(agent.replay, slot, step, settings.priority > 0))
        enough = max(settings.learn_after // settings.environments, settings.steps)
        # The clock is the same for all agents, so this is a branch for a whole population too.
        agent = jax.lax.cond(clock + 1 >= enough, lambda: self._learn(agent, slot, clock, key), lambda: agent)
        online, target, optimiser = agent.learner
        every = max(settings.target_every // settings.environments, 1)
        target = jax.lax.cond((clock + 1) % every == 0, lambda: online, lambda: target)
        return agent._replace(learner=Learner(online, target, optimiser))

    def _learn(self, agent: Agent, newest: Any, clock: Any, key: Any) -> Agent:
        """The gradient steps of a round. Targets of all its batches are made at once: they depend on the target network alone."""
        settings, replay = self.settings, agent.replay
        count, filled = (settings.updates, settings.batch), jnp.minimum(clock + 1, self.slots)
        places, luck = jax.random.split(key)
        if settings.priority > 0:
            place, probability = draw_by_priority(places, count, replay, newest, settings.steps, settings.priority)
            weight = (filled * settings.environments * probability) ** -settings.correction
            weight = weight / weight.max(axis=1, keepdims=True)
        else:
            place = draw_evenly(places, count, replay, newest, filled, settings.steps)
            weight = jnp.ones(count)
        seen = recall(replay, place.reshape(-1), settings.steps)
        targets = self.targets(agent, seen, luck)

        def update(carried: tuple[Learner, Any], batch: tuple) -> tuple[tuple[Learner, Any], tuple]:
            learner, light = carried
            (loss, error), gradient = jax.value_and_grad(self._loss, has_aux=True)(light, *batch)
            gradient = jax.tree.map(lambda part: part.astype(jnp.float32), gradient)
            change, optimiser = self.optimiser.update(gradient, learner.optimiser, learner.online)
            online = optax.apply_updates(learner.online, change)
            return (Learner(online, learner.target, optimiser), self.network.light(online)), (loss, error)

        batches = jax.tree.map(lambda part: part.reshape(*count, *part.shape[1:]), (seen.observation, seen.action, targets))
        carried = (agent.learner, self.network.light(agent.learner.online))
        (learner, _), (losses, errors) = jax.lax.scan(update, carried, (*batches, weight), unroll=min(settings.updates, UNROLLED))
        if settings.priority > 0:
            flat = replay.priority.reshape(-1).at[place.reshape(-1)].set(jnp.abs(errors).reshape(-1) + 1e-6)
            replay = replay._replace(priority=flat.reshape(replay.priority.shape))
        return agent._replace(learner=learner, replay=replay, loss=losses[-1])

    def targets(self, agent: Agent, seen: Transition, key: Any) -> Any:
        """What the agent's operator would have Q(x, a) be."""
        # Each by itself: where no operator looks at Q(x, .), a compiler drops it.
        q_tm1, q_t = (self.values(agent.learner.target, some) for some in (seen.observation, seen.next_observation))
        v_t = None
        if self.settings.double:
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
        loss = optax.huber_loss(error) if self.settings.loss == "huber" else 0.5 * error**2
        return (weight * loss).mean(), error
