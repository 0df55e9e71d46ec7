"""Where films are kept, and what agents do with them: remember a step, choose the next action, learn.

Films belong on the accelerator, where stacks are put together as they are needed and nothing travels but the newest frames. If there is no
room for them there (`room`), they are kept in the memory of the host, where batches are drawn and then sent over: slower, and the same
batches. They are saved and put back one at a time, for there may be no room for two of all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from actiongap.dqn.agent import DQN, Agent, Batch
from actiongap.dqn.frame_replay import FrameReplay, FrameStep, add, choose_device, init, stacked
from actiongap.dqn.population import part_of

AT_ONCE = 1024
"""Rows of a film that are put back at a time, for all that is sent is copied first."""


class ReplayPlacement:
    """The films of a population.

    Parameters
    ----------
    dqn
        What its agents are.
    each
        Makes of a function of one agent one of all, as `jax.vmap` does.
    agents
        How many there are.
    place
        Where they are.
    shifts
        In how many parts a round is remembered.
    """

    def __init__(self, dqn: DQN, each: Callable[[Any], Any], agents: int, place: Any, shifts: int = 1):
        self.dqn, self.agents = dqn, agents
        self.shares = shifts if dqn.config.gradient_steps % shifts == 0 else 1
        """In how many parts the gradient steps of a round are taken: after every shift, if that comes out even, else after the last."""
        self._updates = dqn.config.gradient_steps // self.shares
        self.device = choose_device(agents, dqn.config.num_envs, dqn.capacity, dqn.shape[:2])
        self.near = self.device == jax.devices()[0]
        """Whether films are where agents are."""
        self.in_place = self.near and self.device.platform != "cpu"
        """Whether all of an agent is written over when it learns: sooner handed to an accelerator, and a CPU would copy networks first."""
        self.place = place if self.near else SingleDeviceSharding(self.device)
        """Where films are."""

        def of_all(function: Callable[..., Any], used_up: bool = False) -> Any:
            """A function of all agents; `numbers`, the iteration for one, are the same for all. What comes after them may be used up."""

            def function_of_all(numbers: Any, *parts: Any) -> Any:
                return each(lambda *mine: function(*mine, *numbers))(*parts)

            return jax.jit(function_of_all, donate_argnums=1 if used_up else ())

        self._absorb, self._learn = of_all(self._absorbed, True), of_all(self._learned, True)
        self._learn_in_place = of_all(self._learned_in_place, True)
        self._add, self._show, self._act = of_all(self._added, True), of_all(self._shown), of_all(self._acted)
        self._draw, self._improve = of_all(self._drawn), of_all(self._improved, True)
        self._rate = of_all(self.dqn.rate, True)
        self._put_back = jax.jit(_with_rows, donate_argnums=0)

    def like(self) -> FrameReplay:
        """What the film of one agent looks like."""

        def film() -> FrameReplay:
            number = jnp.zeros(self.dqn.config.num_envs)
            no, frame = number.astype(bool), jnp.zeros((*number.shape, *self.dqn.shape[:2]), jnp.uint8)
            return init(FrameStep(number.astype(jnp.int32), number, number, no, no, frame, no), self.dqn.capacity)

        return jax.eval_shape(film)

    def blank(self) -> FrameReplay:
        """The films of all agents, with nothing on them."""

        def films() -> FrameReplay:
            return jax.tree.map(lambda part: jnp.zeros((self.agents, *part.shape), part.dtype), self.like())

        # Made where they stay, since there may be no room for a copy.
        return jax.jit(films, out_shardings=self.place)()

    def saved(self, films: FrameReplay, agent: int) -> dict[str, np.ndarray]:
        """The film of one agent as arrays by name. No other is fetched from an accelerator; on a CPU nothing is copied."""

        def row(part: Any) -> np.ndarray:
            return np.asarray(part)[agent] if self.device.platform == "cpu" else np.asarray(part[agent])

        return {jax.tree_util.keystr(path): row(part) for path, part in jax.tree_util.tree_leaves_with_path(films)}

    def put_back(self, films: FrameReplay, agent: int, parts: dict[str, np.ndarray]) -> FrameReplay:
        """The films with that of one agent as it was saved. What is handed in is used up."""
        film = jax.tree_util.tree_map_with_path(lambda path, like: part_of(parts, path, like), self.like())
        for row in range(0, self.dqn.capacity, AT_ONCE):
            some = jax.tree.map(lambda part, row=row: part[row : row + AT_ONCE], film)
            films = self._put_back(films, some, np.array([agent, row], np.int32))
        return films

    def absorb(
        self, agents: Agent, actions: Any, frames: np.ndarray, facts: np.ndarray, iteration: int, column: int = 0
    ) -> tuple[Agent, Any]:
        """Agents that remember what they did and saw, and what they do next. What is handed in is used up.

        `facts` are all other numbers of a `FrameStep`, as `pack_step` makes them. They may be of some environments only, from a column on.
        """
        # Emulators wait for this: so no more is handed over than is needed, for a call takes longer with every array.
        numbers = np.array([iteration, column], np.int32)
        if self.near:
            film, actions = self._absorb(numbers, agents.replay, agents.key, agents.learner.online, actions, frames, facts)
        else:
            film = self._add(numbers, agents.replay, np.asarray(actions), frames, facts)
            actions = self._act(numbers, agents.key, agents.learner.online, np.asarray(self._show(numbers, film, facts)))
        return agents._replace(replay=film), actions

    def learn(self, agents: Agent, iteration: int, since: int, behind: bool = False) -> Agent:
        """Agents after their gradient steps; memory began at `since`. What is handed in is used up.

        If other shifts are `behind`, it is a share of the round's gradient steps, and nothing is learned from the row they have still to
        write. The rest comes after the last of them.
        """
        if behind and self.shares == 1:
            return agents
        if iteration + 1 - since >= self.dqn.warmup:
            agents = self._stepped(agents, np.array([iteration, behind, since], np.int32))
        # Decided here: a branch among what is compiled would copy networks every time. A copy, for what is one array is not used up twice.
        if self.dqn.follows(iteration) and not behind:
            agents = agents._replace(learner=agents.learner._replace(target=jax.tree.map(jnp.copy, agents.learner.online)))
        return agents

    def _stepped(self, agents: Agent, numbers: np.ndarray) -> Agent:
        """Agents after a share of their gradient steps."""
        if self.in_place:
            return self._learn_in_place(numbers, agents)
        # Only what the optimiser remembers is written over. Networks would be copied first on a CPU, and with that copy a step takes more
        # than the 32 MiB that malloc keeps: then the system hands out fresh pages at every step, which takes half as long as the step.
        learner, film = agents.learner, agents.replay
        others = agents._replace(learner=learner._replace(optimiser=None))
        if self.near:
            return _renewed(agents, *self._learn(numbers, learner.optimiser, others))
        batch = self._draw(numbers, film, jax.device_put(agents.key, self.device))
        there = jax.tree.map(np.asarray, batch)
        online, optimiser, loss, errors = self._improve(numbers[:2], learner.optimiser, others._replace(replay=None), there)
        priority = self._rate((), film.priority, batch, np.asarray(errors)) if self.dqn.config.priority_exponent > 0 else None
        return _renewed(agents, online, optimiser, loss, priority)

    def _absorbed(
        self, film: FrameReplay, key: Any, online: Any, action: Any, frame: Any, facts: Any, iteration: Any, column: Any
    ) -> tuple[FrameReplay, Any]:
        film = self._added(film, action, frame, facts, iteration, column)
        return film, self._acted(key, online, self._shown(film, facts, iteration, column), iteration, column)

    def _added(self, film: FrameReplay, action: Any, frame: Any, facts: Any, iteration: Any, column: Any) -> FrameReplay:
        reward, discount, *flags = (facts[:, k] for k in range(facts.shape[1]))
        last, real, fresh = (flag > 0 for flag in flags)
        shot = FrameStep(action, reward, discount, last, real, frame, fresh)
        return add(film, iteration % self.dqn.capacity, shot, self.dqn.config.priority_exponent > 0, column)

    def _shown(self, film: FrameReplay, facts: Any, iteration: Any, column: Any) -> Any:
        """What the environments show after a round, of which these are the facts."""
        which = column + jnp.arange(len(facts))
        return stacked(film, jnp.full_like(which, iteration + 1), which, self.dqn.config.frame_stack)

    def _acted(self, key: Any, online: Any, seen: Any, iteration: Any, column: Any) -> Any:
        choosing, _, _ = jax.random.split(jax.random.fold_in(key, iteration), 3)
        return self.dqn.choose(online, seen, self.dqn.epsilon(iteration), jax.random.fold_in(choosing, column))

    def _learned(self, optimiser: Any, agent: Agent, iteration: Any, behind: Any, since: Any) -> tuple[Any, Any, Any, Any]:
        # Whether there is enough to learn from is known by now: a branch would make convolutions slow on a CPU.
        agent, key = _with_optimiser(agent, optimiser), self._learning(agent.key, iteration, behind)
        learner, loss, priority = self.dqn.learned(agent, iteration, key, since, self._updates, behind)
        return learner.online, learner.optimiser, loss, priority if self.dqn.config.priority_exponent > 0 else None

    def _learned_in_place(self, agent: Agent, *numbers: Any) -> Agent:
        return _renewed(agent, *self._learned(agent.learner.optimiser, agent, *numbers))

    def _drawn(self, film: FrameReplay, key: Any, iteration: Any, behind: Any, since: Any) -> Batch:
        places, _ = jax.random.split(self._learning(key, iteration, behind))
        return self.dqn.draw(film, iteration, places, since, self._updates, behind)

    def _improved(self, optimiser: Any, agent: Agent, batch: Batch, iteration: Any, behind: Any) -> tuple[Any, Any, Any, Any]:
        _, luck = jax.random.split(self._learning(agent.key, iteration, behind))
        learner, loss, errors = self.dqn.improve(_with_optimiser(agent, optimiser), batch, luck)
        return learner.online, learner.optimiser, loss, errors

    def _learning(self, key: Any, iteration: Any, behind: Any) -> Any:
        _, _, learning = jax.random.split(jax.random.fold_in(key, iteration), 3)
        return jax.random.fold_in(learning, behind)


def _with_rows(films: FrameReplay, some: FrameReplay, place: Any) -> FrameReplay:
    """Films with some rows of one agent's written over, from a place on."""

    def written(rows: Any, part: Any) -> Any:
        return jax.lax.dynamic_update_slice(rows, part[None], (*place, *[0] * (rows.ndim - 2)))

    return jax.tree.map(written, films, some)


def _with_optimiser(agent: Agent, optimiser: Any) -> Agent:
    return agent._replace(learner=agent.learner._replace(optimiser=optimiser))


def _renewed(agent: Agent, online: Any, optimiser: Any, loss: Any, priority: Any) -> Agent:
    """An agent after gradient steps, which have changed what its memories are worth, or not."""
    film = agent.replay if priority is None else agent.replay._replace(priority=priority)
    return agent._replace(learner=agent.learner._replace(online=online, optimiser=optimiser), replay=film, loss=loss)


def pack_step(reward: Any, discount: Any, last: Any, real: Any, fresh: Any) -> np.ndarray:
    """What a `FrameStep` holds besides actions and frames, (..., environments, 5): one array is sent over sooner than five.

    Examples
    --------
    >>> pack_step(np.ones(2), np.full(2, 0.5), *np.zeros((3, 2), bool)).tolist()
    [[1.0, 0.5, 0.0, 0.0, 0.0], [1.0, 0.5, 0.0, 0.0, 0.0]]
    """
    return np.stack([reward, discount, last, real, fresh], axis=-1, dtype=np.float32, casting="unsafe")
