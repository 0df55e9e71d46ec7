"""Deep agents measured: training against other people's DQNs, games against other people's games, populations on an accelerator.

- *Training* is one agent on Breakout with the faithful preset, on the CPU, once it learns: seconds a frame, each of which comes with a
  gradient step. Its baselines have the same network, optimiser, batches and memory, and play the original MinAtar
  (`benchmarks.deep_baselines`); PyTorch is tried with one thread and with all, and credited with the better. Everyone explores as late in
  a training, so that everyone asks its network for actions.
- *The floor* of training is the gradient step alone, and the parts of a frame stand beside the whole: each is a compiled loop of its own.
  Drawing from memory is a part of learning; what the parts do not add up to is what they cost each other.
- *Games alone* step many at once in a compiled loop, on one core, actions at random, what is seen written down at every step.
- *On an accelerator* a population trains with the throughput preset on every game: frames of all agents together, what many agents cost
  over one, and again the parts.

What is measured on the CPU runs in fresh processes, since JAX finds its device and its threads only once.
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
"""What is compared with, and how to get it."""
PARTS = ("environment", "choosing", "learning", "drawing, a part of learning")
BASELINE_FRACTION = 1 / 8
"""PyTorch's threads wait for each other by spinning, and where others need the cores too, a few frames take long enough."""
MANY, FRAMES_A_SECOND = 50, 4e6
"""The population that claims are about, and how many frames a second it should reach on an H200."""


@dataclass(frozen=True)
class Scale:
    """What is measured and for how long. Of a few frames nothing is claimed."""

    games: tuple[str, ...]
    learn_after: int
    """Frames before learning begins, and before anything is timed."""
    frames: int
    """Frames of training that are timed at a time; of a baseline's, `BASELINE_FRACTION` of that."""
    training: float | None
    """A frame of training over a baseline's, at most."""
    at_once: int
    """Games that are stepped side by side."""
    steps: int
    """Steps of all of them that are timed at a time."""
    playing: float | None
    """A step over one of pgx or gymnax, at most."""
    agents: int
    """In a population on an accelerator."""
    rounds: int
    """Rounds of a population that are timed at a time."""
    population: float | None
    """A round of the population over a round of one agent, at most."""
    seconds: float
    """How long each race lasts."""


SCALES = {
    "full": Scale(GAMES, 5000, 500, 1 / 3, 256, 256, 1.0, MANY, 200, 10.0, 15.0),
    "quick": Scale(("breakout",), 40, 8, None, 4, 4, None, 2, 2, None, 0.05),
}


def bench_deep(scale: Literal["full", "quick"] = "full", progress: Callable[[str, float], None] | None = None) -> list[Measurement]:
    """Everything this module measures; minutes at full scale. `progress` is told what comes next and the part done.

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
    stages += [(f"steps of {game}", partial(measure_playing, scale, game)) for game in plan.games]
    stages += [(f"a population on {game}", partial(measure_population, plan, game)) for game in plan.games]
    return measure_all(stages, progress)


def measure_training(scale: str) -> list[Measurement]:
    """One agent on Breakout against its baselines, and the parts of a frame."""
    plan, label = SCALES[scale], "a frame of training on breakout"
    told = in_new_process(__name__, "race_training", scale, platform="cpu")
    if "failed" in told:
        return [Measurement(label, None, name, None, target=plan.training, note=told["failed"]) for name in (STABLE_BASELINES, IN_PYTORCH)]
    time, threads = told["time"], told["threads"]
    note = (
        f"{label}: {1 / time['ours']:.0f} frames/s, {1 / time['learning']:.0f} gradient steps/s alone, which is the floor, and "
        f"{1 / time['environment']:.0f} steps/s of the game alone"
    )
    rows = []
    for name in (STABLE_BASELINES, IN_PYTORCH):
        best = min((n for n in threads if f"{name}, {n}" in time), key=lambda n: time[f"{name}, {n}"], default=None)
        if best is None:
            rows.append(_absent(label, name, plan.training))
            continue
        reference = time[f"{name}, {best}"]
        said = f"{note}; {name} has {1 / reference:.0f} frames/s, best on {best} of {threads[-1]} threads."
        rows.append(Measurement(label, time["ours"], name, reference, target=plan.training, floor=time["learning"], note=said))
    return rows + [Measurement(f"{label}: {part}", time[part], "the whole frame", time["ours"]) for part in PARTS]


def race_training(scale: str) -> dict[str, Any]:
    """Seconds a frame of our agent, of its parts and of its baselines on so many threads, in one race; for a process of its own."""
    from actiongap.dqn.config import PRESETS
    from benchmarks import deep_baselines

    plan = SCALES[scale]
    config = replace(PRESETS["faithful"], learning_starts=plan.learn_after, exploration_steps=0)
    contestants = contest("breakout", config, 1, plan.learn_after, plan.frames)
    contestants["ours"] = contestants.pop("round")
    frames = dict.fromkeys(contestants, plan.frames)
    threads = sorted({1, cores()})
    for name, make in {STABLE_BASELINES: deep_baselines.stable_baselines, IN_PYTORCH: deep_baselines.in_pytorch}.items():
        try:
            train = make("breakout", config)
        except ImportError:
            continue
        with_threads(1, train, plan.learn_after)
        for n in threads:
            frames[f"{name}, {n}"] = few = max(int(plan.frames * BASELINE_FRACTION), 1)
            contestants[f"{name}, {n}"] = partial(with_threads, n, train, few)
    return {"time": {name: best / frames[name] for name, best in race(contestants, plan.seconds).items()}, "threads": threads}


def contest(game: str, config: Any, agents: int, first: int, rounds: int) -> dict[str, Callable[[], None]]:
    """So many rounds of a population that has had its `first`, and of each of the parts of a round, by name.

    All of them go on with the same agents, and hand them on to whoever is next.
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
    rules = GAMES[game]
    population = Population(rules, config, [operators[i % len(operators)] for i in range(agents)])
    dqn, clock = population.dqn, [first]
    lives = [population.train(population.start(range(agents)), 0, first)]

    def environment(life: TrainState, key: Any, when: Any) -> TrainState:
        acting, moving = jax.random.split(key)
        action = jax.random.randint(acting, (config.num_envs,), 0, dqn.actions)
        u = jax.random.uniform(moving, (config.num_envs, num_uniforms(rules)))
        play, seen = jax.vmap(lambda play, action, u: step_env(rules, play, action, u, config.repeat_action_probability))(
            life.world.play, action, u
        )
        total = life.world.total + seen.reward + seen.observation.any(axis=(1, 2, 3))
        return life._replace(world=life.world._replace(play=play, observation=seen.following, total=total))

    def choosing(life: TrainState, key: Any, when: Any) -> TrainState:
        action = dqn.choose(life.agent.learner.online, life.world.observation, config.final_epsilon, key)
        # No action is negative, but a compiler does not know, and so cannot do this once for all rounds.
        return life._replace(world=life.world._replace(observation=life.world.observation ^ (action < 0).any()))

    def learning(life: TrainState, key: Any, when: Any) -> TrainState:
        return life._replace(agent=dqn.learn(life.agent, when - 1, key))

    def drawing(life: TrainState, key: Any, when: Any) -> TrainState:
        agent, count = life.agent, (config.gradient_steps, config.batch_size)
        ages = dqn.buffer.valid_ages(jnp.minimum(when, dqn.capacity), config.n_step)
        place = sample_uniform(key, count, agent.replay.priority, (when - 1) % dqn.capacity, ages)
        seen = dqn.buffer.sample(agent.replay, place.reshape(-1), config.n_step)
        boards = unpack(seen.observation, rules.shape).sum() + unpack(seen.next_observation, rules.shape).sum()
        return life._replace(agent=agent._replace(loss=boards + seen.reward.sum() + seen.discount.sum()))

    def loop(part: Callable[..., TrainState]) -> Callable[[], None]:
        def rounds_of(lives: TrainState, when: Any) -> TrainState:
            def one(life: TrainState, i: Any) -> TrainState:
                return part(life, jax.random.fold_in(life.agent.key, i), when)

            return jax.lax.fori_loop(0, rounds, lambda i, lives: jax.vmap(one, (0, None))(lives, i), lives)

        compiled = jax.jit(rounds_of, donate_argnums=0)

        def run() -> None:
            lives[0] = jax.block_until_ready(compiled(lives[0], jnp.int32(clock[0])))

        return run

    def whole() -> None:
        lives[0] = jax.block_until_ready(population.train(lives[0], clock[0], rounds))
        clock[0] += rounds

    return {"round": whole} | {name: loop(part) for name, part in zip(PARTS, (environment, choosing, learning, drawing), strict=True)}


def measure_playing(scale: str, game: str) -> list[Measurement]:
    """Steps of a game alone on one core, against pgx, gymnax and the original."""
    plan, label = SCALES[scale], f"a step of {game} on one core"
    baselines = {"pgx": plan.playing, "gymnax": plan.playing, "the original": None}
    told = in_new_process(__name__, "race_playing", scale, game, platform="cpu")
    if "failed" in told:
        return [Measurement(label, None, name, None, target=target, note=told["failed"]) for name, target in baselines.items()]
    note = f"Games in JAX are stepped {plan.at_once} at a time, the original one at a time."
    return [
        Measurement(label, told["ours"], name, told[name], target=target, note=note) if name in told else _absent(label, name, target)
        for name, target in baselines.items()
    ]


def race_playing(scale: str, game: str) -> dict[str, float]:
    """Seconds a step of our game and of its baselines, in one race on one core; for a process of its own."""
    if hasattr(os, "sched_setaffinity"):  # before JAX counts its cores
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from benchmarks import deep_baselines

    plan, contestants, work = SCALES[scale], {}, {}
    makers = {"pgx": deep_baselines.play_pgx, "gymnax": deep_baselines.play_gymnax, "the original": deep_baselines.play_original}
    for name, make in ({"ours": deep_baselines.play_ours} | makers).items():
        try:
            contestants[name] = partial(make(game, plan.at_once), plan.steps)
        except ImportError:
            continue
        work[name] = plan.steps * (1 if name == "the original" else plan.at_once)
    return {name: best / work[name] for name, best in race(contestants, plan.seconds / 3).items()}


def measure_population(plan: Scale, game: str) -> list[Measurement]:
    """A population on an accelerator: what a frame takes, many agents over one, and the parts of a round; none without an accelerator."""
    import jax

    from actiongap.dqn.config import PRESETS

    if jax.default_backend() == "cpu":
        return []
    where, config = jax.devices()[0].device_kind, PRESETS["throughput"]
    first = config.learning_starts // config.num_envs + 1
    measured: Mapping[str, Callable[[], None]] = contest(game, config, plan.agents, first, plan.rounds)
    alone = contest(game, config, 1, first, plan.rounds)["round"]
    time = {name: best / plan.rounds for name, best in race({**measured, "alone": alone}, plan.seconds / 3).items()}
    crowd, frames = f"{plan.agents} agents on {game}, {where}", plan.agents * config.num_envs
    note = f"{crowd}: {frames / time['round'] / 1e6:.2f} million frames/s, {time['round'] * 1e6:.0f} us a round."
    claim = 1.0 if "H200" in where and plan.population else None
    return [
        Measurement(
            f"a frame of {crowd}", time["round"] / frames, "4 million frames a second", 1 / FRAMES_A_SECOND, target=claim, note=note
        ),
        Measurement(f"a round of {crowd}", time["round"], "a round of one agent", time["alone"], target=plan.population),
        *(Measurement(f"a round of {crowd}: {part}", time[part], "the whole round", time["round"]) for part in PARTS),
    ]


def _absent(label: str, name: str, target: float | None) -> Measurement:
    return Measurement(label, None, name, None, target=target, note=f"Nothing was compared with {name}, which needs: {NEEDS[name]}")
