"""Benchmarks of deep agents: training against DQN of other libraries, games against other implementations, populations on an accelerator.

- *Training* is one agent on Breakout with the faithful preset, on the CPU, after learning starts: seconds per frame, with one gradient step
  per frame. The baselines have the same network, optimizer, batch size and buffer size, and play the original MinAtar
  (`benchmarks.deep_baselines`). PyTorch runs with one thread and with all, and is credited with the better time. All agents use the final
  epsilon, so that nearly all actions come from their networks.
- *The floor* of training is the gradient step alone. The parts of a frame are shown beside the whole; each is a separate compiled loop.
  Sampling from the replay buffer is included in learning. The parts need not add up to the whole.
- *Games alone* step many games at once in a compiled loop on one core, with random actions, and write the observation of every step.
- *On an accelerator* a population trains with the throughput preset on every game: frames of all agents, the cost of many agents relative
  to one, and the parts.

CPU measurements run in new processes, because JAX selects its device and threads only once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from actiongap._system import cores
from benchmarks import Measurement, check_scale, measure_all, race
from benchmarks.processes import check_jax, in_new_process, with_threads

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
STABLE_BASELINES, IN_PYTORCH = "Stable-Baselines3 DQN", "a loop in PyTorch, as CleanRL's"
NEEDS = {
    STABLE_BASELINES: "pip install stable-baselines3 minatar",
    IN_PYTORCH: "pip install torch minatar",
    "pgx": "pip install pgx",
    "gymnax": "pip install gymnax six",
    "the original": "pip install minatar",
}
"""The baselines, and how to install them."""
PARTS = ("environment", "acting", "learning", "sampling, included in learning")
BASELINE_FRACTION = 1 / 8
"""Fraction of the frames for which baselines are timed. PyTorch's threads spin while they wait for each other, which makes frames slow if
other processes need the cores."""
POPULATION_SIZE, FRAMES_PER_SECOND = 50, 4e6
"""The population size of the targets, and the frames per second that it should reach on an H200."""


@dataclass(frozen=True)
class Scale:
    """What is measured and for how long. The quick scale has no targets."""

    games: tuple[str, ...]
    learning_starts: int
    """Frames before learning and timing start."""
    frames: int
    """Frames of training per timed call; for baselines, `BASELINE_FRACTION` of this."""
    training_target: float | None
    """Maximum ratio of a frame of training to a baseline's."""
    num_games: int
    """Games that are stepped at once."""
    steps: int
    """Steps of all games per timed call."""
    step_target: float | None
    """Maximum ratio of a step to one of pgx or gymnax."""
    agents: int
    """Agents in a population on an accelerator."""
    iterations: int
    """Iterations of a population per timed call."""
    population_target: float | None
    """Maximum ratio of an iteration of the population to an iteration of one agent."""
    seconds: float
    """Duration of each race."""


SCALES = {
    "full": Scale(GAMES, 5000, 500, 1 / 3, 256, 256, 1.0, POPULATION_SIZE, 200, 10.0, 15.0),
    "quick": Scale(("breakout",), 40, 8, None, 4, 4, None, 2, 2, None, 0.05),
}


def bench_deep(scale: Literal["full", "quick"] = "full", progress: Callable[[str, float], None] | None = None) -> list[Measurement]:
    """Run all benchmarks of deep agents: minutes at full scale.

    `progress` is called with the label of the next stage and the fraction of the stages that is done.

    Examples
    --------
    >>> bench_deep("enormous")
    Traceback (most recent call last):
    ValueError: unknown scale 'enormous': choose from full, quick
    """
    check_scale(scale, SCALES)
    check_jax()
    plan = SCALES[scale]
    stages: list[tuple[str, Callable[[], list[Measurement]]]] = [("training one agent on the CPU", partial(measure_training, scale))]
    stages += [(f"steps of {game}", partial(measure_steps, scale, game)) for game in plan.games]
    stages += [(f"a population on {game}", partial(measure_population, plan, game)) for game in plan.games]
    return measure_all(stages, progress)


def measure_training(scale: str) -> list[Measurement]:
    """Measure one agent on Breakout against its baselines, and the parts of a frame."""
    plan, label = SCALES[scale], "a frame of training on breakout"
    result = in_new_process(__name__, "race_training", scale, platform="cpu")
    if "failed" in result:
        return [
            Measurement(label, None, name, None, target=plan.training_target, note=result["failed"])
            for name in (STABLE_BASELINES, IN_PYTORCH)
        ]
    time, threads = result["time"], result["threads"]
    note = (
        f"{label}: {1 / time['ours']:.0f} frames/s, {1 / time['learning']:.0f} gradient steps/s alone, which is the floor, and "
        f"{1 / time['environment']:.0f} steps/s of the game alone"
    )
    rows = []
    for name in (STABLE_BASELINES, IN_PYTORCH):
        best = min((n for n in threads if f"{name}, {n}" in time), key=lambda n: time[f"{name}, {n}"], default=None)
        if best is None:
            rows.append(_absent(label, name, plan.training_target))
            continue
        reference = time[f"{name}, {best}"]
        own_note = f"{note}; {name} has {1 / reference:.0f} frames/s, best on {best} of {threads[-1]} threads."
        rows.append(Measurement(label, time["ours"], name, reference, target=plan.training_target, floor=time["learning"], note=own_note))
    return rows + [Measurement(f"{label}: {part}", time[part], "the whole frame", time["ours"]) for part in PARTS]


def race_training(scale: str) -> dict[str, Any]:
    """Time our agent, its parts and its baselines by number of threads in one race, in seconds per frame. Runs in a new process."""
    from actiongap.dqn.config import PRESETS
    from benchmarks import deep_baselines

    plan = SCALES[scale]
    config = replace(PRESETS["faithful"], learning_starts=plan.learning_starts, exploration_steps=0)
    contestants = population_contestants("breakout", config, 1, plan.learning_starts, plan.frames)
    contestants["ours"] = contestants.pop("iteration")
    frames = dict.fromkeys(contestants, plan.frames)
    threads = sorted({1, cores()})
    for name, make in {STABLE_BASELINES: deep_baselines.stable_baselines, IN_PYTORCH: deep_baselines.in_pytorch}.items():
        try:
            train = make("breakout", config)
        except ImportError:
            continue
        with_threads(1, train, plan.learning_starts)
        for n in threads:
            frames[f"{name}, {n}"] = max(int(plan.frames * BASELINE_FRACTION), 1)
            contestants[f"{name}, {n}"] = partial(with_threads, n, train, frames[f"{name}, {n}"])
    return {"time": {name: best / frames[name] for name, best in race(contestants, plan.seconds).items()}, "threads": threads}


def population_contestants(game: str, config: Any, agents: int, first: int, iterations: int) -> dict[str, Callable[[], None]]:
    """Return functions that make iterations of a population after its `first`, and of each part of an iteration, by name.

    All of them continue with the same train states.
    """
    import jax
    import jax.numpy as jnp

    from actiongap.dqn.loop import TrainState
    from actiongap.dqn.packing import unpack
    from actiongap.dqn.population import Population
    from actiongap.dqn.replay import sample_uniform
    from actiongap.envs.functional import num_uniforms, step_env
    from actiongap.envs.minatar import GAMES

    operators = ("bellman", "al:0.5", "al:0.9", "pal-dqn:0.5", "pal-dqn:0.9")
    functional_env = GAMES[game]
    population = Population(functional_env, config, [operators[i % len(operators)] for i in range(agents)])
    dqn, iteration = population.dqn, first
    states = population.train(population.start(range(agents)), 0, first)

    def environment(state: TrainState, key: Any, iteration: Any) -> TrainState:
        action_key, step_key = jax.random.split(key)
        action = jax.random.randint(action_key, (config.num_envs,), 0, dqn.actions)
        u = jax.random.uniform(step_key, (config.num_envs, num_uniforms(functional_env)))
        envs, result = jax.vmap(lambda env, action, u: step_env(functional_env, env, action, u, config.repeat_action_probability))(
            state.env_state.envs, action, u
        )
        total = state.env_state.episode_return + result.reward + result.observation.any(axis=(1, 2, 3))
        return state._replace(env_state=state.env_state._replace(envs=envs, observation=result.following, episode_return=total))

    def acting(state: TrainState, key: Any, iteration: Any) -> TrainState:
        action = dqn.act(state.agent.learner.online, state.env_state.observation, config.final_epsilon, key)
        # No action is negative, but the compiler does not know this and cannot move the computation out of the loop.
        return state._replace(env_state=state.env_state._replace(observation=state.env_state.observation ^ (action < 0).any()))

    def learning(state: TrainState, key: Any, iteration: Any) -> TrainState:
        return state._replace(agent=dqn.learn(state.agent, iteration - 1, key))

    def sampling(state: TrainState, key: Any, iteration: Any) -> TrainState:
        agent, count = state.agent, (config.gradient_steps, config.batch_size)
        ages = dqn.buffer.valid_ages(jnp.minimum(iteration, dqn.capacity), config.n_step)
        index = sample_uniform(key, count, agent.replay.priority, (iteration - 1) % dqn.capacity, ages)
        batch = dqn.buffer.sample(agent.replay, index.reshape(-1), config.n_step)
        boards = unpack(batch.observation, functional_env.shape).sum() + unpack(batch.next_observation, functional_env.shape).sum()
        return state._replace(agent=agent._replace(loss=boards + batch.reward.sum() + batch.discount.sum()))

    def loop(part: Callable[..., TrainState]) -> Callable[[], None]:
        def repeat(states: TrainState, iteration: Any) -> TrainState:
            def one(state: TrainState, i: Any) -> TrainState:
                return part(state, jax.random.fold_in(state.agent.key, i), iteration)

            return jax.lax.fori_loop(0, iterations, lambda i, states: jax.vmap(one, (0, None))(states, i), states)

        compiled = jax.jit(repeat, donate_argnums=0)

        def run() -> None:
            nonlocal states
            states = jax.block_until_ready(compiled(states, jnp.int32(iteration)))

        return run

    def whole() -> None:
        nonlocal states, iteration
        states = jax.block_until_ready(population.train(states, iteration, iterations))
        iteration += iterations

    return {"iteration": whole} | {name: loop(part) for name, part in zip(PARTS, (environment, acting, learning, sampling), strict=True)}


def measure_steps(scale: str, game: str) -> list[Measurement]:
    """Measure steps of a game alone on one core, against pgx, gymnax and the original."""
    plan, label = SCALES[scale], f"a step of {game} on one core"
    baselines = {"pgx": plan.step_target, "gymnax": plan.step_target, "the original": None}
    result = in_new_process(__name__, "race_steps", scale, game, platform="cpu")
    if "failed" in result:
        return [Measurement(label, None, name, None, target=target, note=result["failed"]) for name, target in baselines.items()]
    note = f"Games in JAX are stepped {plan.num_games} at a time, the original one at a time."
    return [
        Measurement(label, result["ours"], name, result[name], target=target, note=note) if name in result else _absent(label, name, target)
        for name, target in baselines.items()
    ]


def race_steps(scale: str, game: str) -> dict[str, float]:
    """Time a step of our game and of its baselines in one race on one core. Runs in a new process."""
    if hasattr(os, "sched_setaffinity"):  # before JAX counts the cores
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from benchmarks import deep_baselines

    plan, contestants, steps = SCALES[scale], {}, {}
    makers = {"pgx": deep_baselines.play_pgx, "gymnax": deep_baselines.play_gymnax, "the original": deep_baselines.play_original}
    for name, make in ({"ours": deep_baselines.play_ours} | makers).items():
        try:
            contestants[name] = partial(make(game, plan.num_games), plan.steps)
        except ImportError:
            continue
        steps[name] = plan.steps * (1 if name == "the original" else plan.num_games)
    return {name: best / steps[name] for name, best in race(contestants, plan.seconds / 3).items()}


def measure_population(plan: Scale, game: str) -> list[Measurement]:
    """Measure a population on an accelerator: seconds per frame, many agents relative to one, and the parts of an iteration.

    Returns an empty list without an accelerator.
    """
    import jax

    from actiongap.dqn.config import PRESETS

    if jax.default_backend() == "cpu":
        return []
    device, config = jax.devices()[0].device_kind, PRESETS["throughput"]
    first = config.learning_starts // config.num_envs + 1
    contestants: Mapping[str, Callable[[], None]] = population_contestants(game, config, plan.agents, first, plan.iterations)
    alone = population_contestants(game, config, 1, first, plan.iterations)["iteration"]
    time = {name: best / plan.iterations for name, best in race({**contestants, "alone": alone}, plan.seconds / 3).items()}
    label, frames = f"{plan.agents} agents on {game}, {device}", plan.agents * config.num_envs
    note = f"{label}: {frames / time['iteration'] / 1e6:.2f} million frames/s, {time['iteration'] * 1e6:.0f} us per iteration."
    target = 1.0 if "H200" in device and plan.population_target else None
    return [
        Measurement(
            f"a frame of {label}",
            time["iteration"] / frames,
            "4 million frames per second",
            1 / FRAMES_PER_SECOND,
            target=target,
            note=note,
        ),
        Measurement(
            f"an iteration of {label}", time["iteration"], "an iteration of one agent", time["alone"], target=plan.population_target
        ),
        *(Measurement(f"an iteration of {label}: {part}", time[part], "the whole iteration", time["iteration"]) for part in PARTS),
    ]


def _absent(label: str, name: str, target: float | None) -> Measurement:
    return Measurement(label, None, name, None, target=target, note=f"There is no comparison with {name}, which needs: {NEEDS[name]}")
