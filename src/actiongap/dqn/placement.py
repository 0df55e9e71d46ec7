"""Frame replay buffers of a population: where they are stored, and the compiled functions that use them.

The buffers belong on the accelerator. Frame stacks are built there when they are needed, and only the newest frames are transferred. If
the accelerator has too little memory (`frame_replay.choose_device`), the buffers are kept in the host's memory: batches are sampled there
and then transferred. This is slower, and the batches are the same. Buffers are saved and restored one agent at a time, because there may
be no memory for a second copy of all buffers.

An iteration is processed in one or more groups of environments (`atari`): each group writes its columns of the newest row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from actiongap.dqn.agent import DQN, Agent, Batch
from actiongap.dqn.frame_replay import FrameReplay, FrameStep, add, choose_device, frame_stacks, init
from actiongap.dqn.population import saved_array

ROWS_PER_COPY = 1024
"""Rows of a buffer that are restored at a time; each transfer makes a copy first."""


class ReplayPlacement:
    """The frame replay buffers of a population.

    Parameters
    ----------
    dqn
        The agent's functions.
    map_agents
        Turns a function of one agent into a function of all, as `jax.vmap` does.
    num_agents
        Number of agents.
    sharding
        Sharding of the agents.
    num_groups
        Number of groups of environments; each writes its part of a row.
    """

    def __init__(self, dqn: DQN, map_agents: Callable[[Any], Any], num_agents: int, sharding: Any, num_groups: int = 1):
        self.dqn: DQN = dqn
        self.num_agents: int = num_agents
        self.learn_calls: int = num_groups if dqn.config.gradient_steps % num_groups == 0 else 1
        """Calls of `learn` per iteration that take gradient steps: one after every group if they divide evenly, else one after the last."""
        self._gradient_steps = dqn.config.gradient_steps // self.learn_calls
        self.device: Any = choose_device(num_agents, dqn.config.num_envs, dqn.capacity, dqn.shape[:2])
        self.with_agents: bool = self.device == jax.devices()[0]
        """Whether the buffers are on the agents' device."""
        self.in_place: bool = self.with_agents and self.device.platform != "cpu"
        """Whether `learn` donates the whole agent. This saves dispatch time on an accelerator; a CPU would copy the networks first."""
        self.sharding: Sharding = sharding if self.with_agents else SingleDeviceSharding(self.device)
        """Sharding of the buffers."""

        def compiled(function: Callable[..., Any], donate: bool = False) -> Any:
            """Compile a function for all agents.

            `shared` values, such as the iteration, are the same for all agents and are passed last. If `donate`, the argument after
            `shared` is donated.
            """

            def for_all_agents(shared: Any, *parts: Any) -> Any:
                return map_agents(lambda *mine: function(*mine, *shared))(*parts)

            return jax.jit(for_all_agents, donate_argnums=1 if donate else ())

        self._add_and_act = compiled(self._add_and_act_one, donate=True)
        self._learn = compiled(self._learn_one, donate=True)
        self._learn_in_place = compiled(self._learn_in_place_one, donate=True)
        self._add, self._observe, self._act = compiled(self._add_one, donate=True), compiled(self._observe_one), compiled(self._act_one)
        self._sample, self._update = compiled(self._sample_one), compiled(self._update_one, donate=True)
        self._update_priorities = compiled(self.dqn.update_priorities, donate=True)
        self._write_rows = jax.jit(_write_rows, donate_argnums=0)

    def shapes(self) -> FrameReplay:
        """Return the shapes and dtypes of one agent's buffer."""

        def empty() -> FrameReplay:
            number = jnp.zeros(self.dqn.config.num_envs)
            no, frame = number.astype(bool), jnp.zeros((*number.shape, *self.dqn.shape[:2]), jnp.uint8)
            return init(FrameStep(number.astype(jnp.int32), number, number, no, no, frame, no), self.dqn.capacity)

        return jax.eval_shape(empty)

    def zeros(self) -> FrameReplay:
        """Return empty buffers for all agents."""

        def zeros() -> FrameReplay:
            return jax.tree.map(lambda part: jnp.zeros((self.num_agents, *part.shape), part.dtype), self.shapes())

        # Allocated where they stay: there may be no memory for a copy.
        return jax.jit(zeros, out_shardings=self.sharding)()

    def get(self, replay: FrameReplay, agent: int) -> dict[str, np.ndarray]:
        """Return the buffer of one agent as arrays by name. Only this one is fetched from an accelerator; on a CPU nothing is copied."""

        def row(part: Any) -> np.ndarray:
            return np.asarray(part)[agent] if self.device.platform == "cpu" else np.asarray(part[agent])

        return {jax.tree_util.keystr(path): row(part) for path, part in jax.tree_util.tree_leaves_with_path(replay)}

    def put(self, replay: FrameReplay, agent: int, arrays: dict[str, np.ndarray]) -> FrameReplay:
        """Restore the buffer of one agent from `get`. The buffers passed in are donated."""
        mine = jax.tree_util.tree_map_with_path(lambda path, like: saved_array(arrays, path, like), self.shapes())
        for row in range(0, self.dqn.capacity, ROWS_PER_COPY):
            rows = jax.tree.map(lambda part, row=row: part[row : row + ROWS_PER_COPY], mine)
            replay = self._write_rows(replay, rows, np.array([agent, row], np.int32))
        return replay

    def add_and_act(
        self, agents: Agent, actions: Any, frames: np.ndarray, scalars: np.ndarray, iteration: int, column: int = 0
    ) -> tuple[Agent, Any]:
        """Add the step of a group of environments to the buffers, and select its next actions. The agents passed in are donated.

        `scalars` holds the other fields of the `FrameStep`, from `pack_step`. The group's environments start at `column`.
        """
        # Emulators wait for this call, and its overhead grows with the number of arrays: pass only what is needed.
        shared = np.array([iteration, column], np.int32)
        if self.with_agents:
            replay, actions = self._add_and_act(shared, agents.replay, agents.key, agents.learner.online, actions, frames, scalars)
        else:
            replay = self._add(shared, agents.replay, np.asarray(actions), frames, scalars)
            actions = self._act(shared, agents.key, agents.learner.online, np.asarray(self._observe(shared, replay, scalars)))
        return agents._replace(replay=replay), actions

    def learn(self, agents: Agent, iteration: int, replay_start: int, incomplete: bool = False) -> Agent:
        """Take gradient steps, and update the target network if due. The agents passed in are donated.

        `replay_start` is the iteration in which the buffers started to fill. While other groups still have to write their part of the
        newest row, it is `incomplete`: this call takes a share of the iteration's gradient steps and does not sample from that row. The
        remaining steps follow after the last group.
        """
        if incomplete and self.learn_calls == 1:
            return agents
        if iteration + 1 - replay_start >= self.dqn.warmup:
            agents = self._take_gradient_steps(agents, np.array([iteration, incomplete, replay_start], np.int32))
        # The branch is in Python: in the compiled program it would copy the networks every time. The online network is copied, because
        # `learn` may donate the agent, and two of its fields cannot donate the same array.
        if self.dqn.target_update_due(iteration) and not incomplete:
            agents = agents._replace(learner=agents.learner._replace(target=jax.tree.map(jnp.copy, agents.learner.online)))
        return agents

    def _take_gradient_steps(self, agents: Agent, shared: np.ndarray) -> Agent:
        """Take this call's share of the gradient steps."""
        if self.in_place:
            return self._learn_in_place(shared, agents)
        # Only the optimizer state is donated. A CPU would copy donated networks first, and with that copy a step needs more than the
        # 32 MiB that malloc keeps. The system would then hand out fresh pages in every step, which takes half as long as the step.
        learner, replay = agents.learner, agents.replay
        others = agents._replace(learner=learner._replace(opt_state=None))
        if self.with_agents:
            return _updated(agents, *self._learn(shared, learner.opt_state, others))
        batch = self._sample(shared, replay, jax.device_put(agents.key, self.device))
        host_batch = jax.tree.map(np.asarray, batch)
        online, opt_state, loss, errors = self._update(shared[:2], learner.opt_state, others._replace(replay=None), host_batch)
        prioritized = self.dqn.config.priority_exponent > 0
        priority = self._update_priorities((), replay.priority, batch, np.asarray(errors)) if prioritized else None
        return _updated(agents, online, opt_state, loss, priority)

    # The functions below are of one agent. `compiled` maps them over all.

    def _add_and_act_one(
        self, replay: FrameReplay, key: Any, online: Any, action: Any, frame: Any, scalars: Any, iteration: Any, column: Any
    ) -> tuple[FrameReplay, Any]:
        replay = self._add_one(replay, action, frame, scalars, iteration, column)
        return replay, self._act_one(key, online, self._observe_one(replay, scalars, iteration, column), iteration, column)

    def _add_one(self, replay: FrameReplay, action: Any, frame: Any, scalars: Any, iteration: Any, column: Any) -> FrameReplay:
        reward, discount, *flags = (scalars[:, k] for k in range(scalars.shape[1]))
        last, valid, first = (flag > 0 for flag in flags)
        step = FrameStep(action, reward, discount, last, valid, frame, first)
        return add(replay, iteration % self.dqn.capacity, step, self.dqn.config.priority_exponent > 0, column)

    def _observe_one(self, replay: FrameReplay, scalars: Any, iteration: Any, column: Any) -> Any:
        """Return the observations of a group after the step that `scalars` belongs to."""
        env = column + jnp.arange(len(scalars))
        return frame_stacks(replay, jnp.full_like(env, iteration + 1), env, self.dqn.config.frame_stack)

    def _act_one(self, key: Any, online: Any, observations: Any, iteration: Any, column: Any) -> Any:
        act_key, _, _ = jax.random.split(jax.random.fold_in(key, iteration), 3)
        return self.dqn.act(online, observations, self.dqn.epsilon(iteration), jax.random.fold_in(act_key, column))

    def _learn_one(self, opt_state: Any, agent: Agent, iteration: Any, incomplete: Any, replay_start: Any) -> tuple[Any, Any, Any, Any]:
        # The caller knows whether there is enough to learn from: a branch here would make convolutions slow on a CPU.
        agent, key = _with_opt_state(agent, opt_state), self._learn_key(agent.key, iteration, incomplete)
        learner, loss, priority = self.dqn.sample_and_update(agent, iteration, key, replay_start, self._gradient_steps, incomplete)
        return learner.online, learner.opt_state, loss, priority if self.dqn.config.priority_exponent > 0 else None

    def _learn_in_place_one(self, agent: Agent, *shared: Any) -> Agent:
        return _updated(agent, *self._learn_one(agent.learner.opt_state, agent, *shared))

    def _sample_one(self, replay: FrameReplay, key: Any, iteration: Any, incomplete: Any, replay_start: Any) -> Batch:
        sample_key, _ = jax.random.split(self._learn_key(key, iteration, incomplete))
        return self.dqn.sample(replay, iteration, sample_key, replay_start, self._gradient_steps, incomplete)

    def _update_one(self, opt_state: Any, agent: Agent, batch: Batch, iteration: Any, incomplete: Any) -> tuple[Any, Any, Any, Any]:
        _, update_key = jax.random.split(self._learn_key(agent.key, iteration, incomplete))
        learner, loss, errors = self.dqn.update(_with_opt_state(agent, opt_state), batch, update_key)
        return learner.online, learner.opt_state, loss, errors

    def _learn_key(self, key: Any, iteration: Any, incomplete: Any) -> Any:
        _, _, learn_key = jax.random.split(jax.random.fold_in(key, iteration), 3)
        return jax.random.fold_in(learn_key, incomplete)


def _write_rows(replay: FrameReplay, rows: FrameReplay, start: Any) -> FrameReplay:
    """Write rows of one agent into the buffers; `start` is the agent and the first row."""

    def write(part: Any, values: Any) -> Any:
        return jax.lax.dynamic_update_slice(part, values[None], (*start, *[0] * (part.ndim - 2)))

    return jax.tree.map(write, replay, rows)


def _with_opt_state(agent: Agent, opt_state: Any) -> Agent:
    return agent._replace(learner=agent.learner._replace(opt_state=opt_state))


def _updated(agent: Agent, online: Any, opt_state: Any, loss: Any, priority: Any) -> Agent:
    """Return the agent after gradient steps. `priority` is None if replay is uniform."""
    replay = agent.replay if priority is None else agent.replay._replace(priority=priority)
    return agent._replace(learner=agent.learner._replace(online=online, opt_state=opt_state), replay=replay, loss=loss)


def pack_step(reward: Any, discount: Any, last: Any, valid: Any, first: Any) -> np.ndarray:
    """Stack the fields of a `FrameStep` other than actions and frames, (..., num_envs, 5). One array is transferred faster than five.

    Examples
    --------
    >>> pack_step(np.ones(2), np.full(2, 0.5), *np.zeros((3, 2), bool)).tolist()
    [[1.0, 0.5, 0.0, 0.0, 0.0], [1.0, 0.5, 0.0, 0.0, 0.0]]
    """
    return np.stack([reward, discount, last, valid, first], axis=-1, dtype=np.float32, casting="unsafe")
