"""Benchmarks of agents on Atari: a population against its emulators alone, one agent against PyTorch, memory and start-up.

- *A population on an accelerator*: every game with every operator, with enough seeds for 15 agents, at the replay ratio of the preset,
  after learning starts. The emulators are the bottleneck, so training is compared with the same emulators stepped alone, with random
  actions. Early in training nearly all actions are random too, so both play alike. Training resets all games in every call and the
  emulators alone do not, so the reset is subtracted from the time of training. Replay, acting and learning without emulators, on a recorded
  step, show how long the accelerator is busy.
- *One agent on the CPU*, on all cores, against a loop in PyTorch with the same network and the same number of gradient steps
  (`benchmarks.atari_baselines`). It runs with one thread and with all, and is credited with the better time. Both use the final epsilon, so
  that nearly all actions come from their networks.
- *Memory and start-up* of that population: the peak host memory of a process without its frame replay buffers, and the time until
  everything is built, reset and compiled.

Everything runs in new processes: JAX selects its device and threads only once, and memory is that of a whole process.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, Literal

from actiongap._system import cores
from actiongap.envs.atari import FRAMES_PER_STEP, TRAINING
from benchmarks import Measurement, check_scale, measure_all, race
from benchmarks.processes import check_jax, in_new_process, with_threads

OPERATORS = ("bellman", "al:0.9", "pal-dqn:0.9")
PRESET = "stochastic-minimal"
IN_PYTORCH, NEEDS = "a loop in PyTorch, as CleanRL's", "pip install torch"
PARTS = ("emulators", "replay and acting", "learning")
HOST_MEMORY, START_UP = 4 * 2**30, 60.0
"""Upper limits of a population: bytes without frame replay buffers, and seconds."""


@dataclass(frozen=True)
class Scale:
    """What is measured and for how long. The quick scale has no targets."""

    games: tuple[str, ...]
    operators: tuple[str, ...]
    agents: int
    """Minimum number of agents in a population; with fewer games, there are more seeds."""
    buffer_size: int
    """Transitions in the replay buffer of each agent of a population on an accelerator."""
    batch_size: int
    """Transitions per gradient step; the preset has 32."""
    learning_starts: int
    """Steps before learning and timing start."""
    iterations: int
    """Iterations of a population per timed call."""
    population_target: float | None
    """Maximum ratio of an iteration of a population to one of its emulators alone."""
    cpu_iterations: int
    """Iterations of one agent on the CPU, and of its baseline, per timed call."""
    training_target: float | None
    """Maximum ratio of an iteration of one agent on the CPU to one of its baseline."""
    start_up_target: float | None
    """Maximum ratio of memory to `HOST_MEMORY` and of start-up to `START_UP`; None skips these measurements."""
    seconds: float
    """Duration of each race."""


SCALES = {
    "full": Scale(TRAINING, OPERATORS, 15, 100_000, 32, 2_000, 1_000, 1 / 0.85, 40, 1.0, 1.0, 60.0),
    "quick": Scale(("pong",), ("bellman", "al:0.9"), 2, 400, 4, 40, 4, None, 2, None, None, 0.05),
}


def bench_atari(
    scale: Literal["full", "quick"] = "full", progress: Callable[[str, float], None] | None = None, games: Sequence[str] = ()
) -> list[Measurement]:
    """Run all benchmarks of agents on Atari: minutes at full scale.

    `games` replaces the games of the scale. `progress` is called with the label of the next stage and the fraction of the stages that is
    done.

    Examples
    --------
    >>> bench_atari("enormous")
    Traceback (most recent call last):
    ValueError: unknown scale 'enormous': choose from full, quick
    """
    from actiongap.envs.atari import check_game

    check_scale(scale, SCALES)
    check_jax()
    chosen = tuple(game.removeprefix("atari/") for game in games) or SCALES[scale].games
    for game in chosen:
        check_game(game)
    stages: list[tuple[str, Callable[[], list[Measurement]]]] = [
        (f"training one agent on {chosen[0]} on the CPU", partial(measure_training, scale, chosen[0])),
        ("a population on an accelerator", partial(measure_population, scale, chosen)),
        ("memory and start-up of a population", partial(measure_start_up, scale, chosen)),
    ]
    return measure_all(stages, progress)


def measure_training(scale: str, game: str) -> list[Measurement]:
    """Measure one agent on the CPU against its baseline, and the parts of an iteration."""
    plan, label = SCALES[scale], f"an iteration of training on {game}"
    result = in_new_process(__name__, "race_training", scale, game, platform="cpu")
    if "failed" in result:
        return [Measurement(label, None, IN_PYTORCH, None, target=plan.training_target, note=result["failed"])]
    time, threads, frames = result["time"], result["threads"], result["frames"]
    ours = time["ours"]
    parts = [Measurement(f"{label}: {part}", time[part], "the whole iteration", ours) for part in PARTS]
    best = min((n for n in threads if f"{IN_PYTORCH}, {n}" in time), key=lambda n: time[f"{IN_PYTORCH}, {n}"], default=None)
    if best is None:
        note = f"There is no comparison with {IN_PYTORCH}, which needs: {NEEDS}"
        return [Measurement(label, None, IN_PYTORCH, None, target=plan.training_target, note=note), *parts]
    reference = time[f"{IN_PYTORCH}, {best}"]
    note = (
        f"{label}: {frames / ours:.0f} frames/s on {threads[-1]} threads, {frames / time['learning']:.0f} with learning alone, "
        f"which is the floor; {IN_PYTORCH} has {frames / reference:.0f}, best on {best} of {threads[-1]} threads. A reset of our "
        f"games, {time['reset']:.2f} s, is subtracted."
    )
    return [Measurement(label, ours, IN_PYTORCH, reference, target=plan.training_target, floor=time["learning"], note=note), *parts]


def race_training(scale: str, game: str) -> dict[str, Any]:
    """Time our agent, its parts and its baseline by number of threads in one race, in seconds per iteration. Runs in a new process."""
    from benchmarks import atari_baselines

    plan, all_cores = SCALES[scale], cores()
    # A small buffer, which fills soon: the place of a sampled transition makes no difference.
    config = replace(_config(plan), buffer_size=2 * plan.learning_starts, exploration_steps=0)
    baselines, threads = {}, sorted({1, all_cores})
    try:
        train = atari_baselines.in_pytorch(game, config, all_cores)
    except ImportError:
        pass
    else:
        with_threads(all_cores, train, plan.learning_starts // config.num_envs + 1)
        baselines = {f"{IN_PYTORCH}, {n}": partial(with_threads, n, train, plan.cpu_iterations) for n in threads}
    time = race_population_parts([(game, "bellman")], config, plan.cpu_iterations, plan.seconds, baselines)
    return {"time": time, "threads": threads, "frames": FRAMES_PER_STEP * config.num_envs}


def _config(plan: Scale) -> Any:
    from actiongap.dqn.config import PRESETS

    return replace(PRESETS[PRESET], buffer_size=plan.buffer_size, batch_size=plan.batch_size, learning_starts=plan.learning_starts)


def _population(plan: Scale, games: Sequence[str]) -> list[tuple[str, str]]:
    """Return the game and the operator of every agent."""
    pairs = [(game, operator) for game in games for operator in plan.operators]
    return pairs * math.ceil(plan.agents / len(pairs))


def race_population_parts(
    agents: Sequence[tuple[str, str]],
    config: Any,
    iterations: int,
    seconds: float,
    baselines: Mapping[str, Callable[[], Any]] | None = None,
) -> dict[str, float]:
    """Time a population that has started to learn, each of its parts, and baselines, in seconds per iteration.

    The result also has the time of a reset of its games, and the time per iteration that training waits for emulators. If the latter is
    small, the process that dispatches work is the bottleneck.

    All parts continue with the same train states and emulators. Resets are subtracted from the time of training. Emulators alone are
    stepped all at once and part by part, and credited with the better time.
    """
    import jax
    import numpy as np

    from actiongap.dqn.atari import AtariPopulation

    population = AtariPopulation([game for game, _ in agents], config, [operator for _, operator in agents])
    emulators: Any = population.emulators
    placement: Any = population.placement
    resets, waits, steps, calls = [], [], [], []

    def timed(call: Callable[..., Any], durations: list[float]) -> Callable[..., Any]:
        def call_timed(*arguments: Any) -> Any:
            start = perf_counter()
            result = call(*arguments)
            durations.append(perf_counter() - start)
            return result

        return call_timed

    for part in emulators.parts:
        part.reset, part.receive = timed(part.reset, resets), timed(part.receive, waits)
    add_and_act, iteration = placement.add_and_act, population.dqn.warmup + 1
    states: Any = population.train(population.start(range(len(agents))), 0, iteration)

    def recorded(agents: Any, *step: Any) -> Any:
        steps.append(step)
        return add_and_act(agents, *step)

    placement.add_and_act = recorded
    states, iteration = population.train(states, iteration, 2), iteration + 2
    placement.add_and_act, steps = add_and_act, steps[len(steps) // 2 :]
    rng, count = np.random.default_rng(0), np.repeat([len(game.actions) for game in population.games], config.num_envs)
    actions = rng.integers(count, size=(iterations, len(count)))

    def whole() -> None:
        nonlocal states, iteration
        resets.clear()
        waits.clear()
        start = perf_counter()
        states = jax.block_until_ready(population.train(states, iteration, iterations))
        calls.append((perf_counter() - start - sum(resets), sum(waits), sum(resets)))
        iteration += iterations

    # Training takes no step in its first iteration either, which resets the games.
    def emulating() -> None:
        for action in actions[1:]:
            emulators.send(action)
            emulators.receive()

    def emulating_by_part() -> None:
        for t, action in enumerate(actions):
            for k, part in enumerate(emulators.parts):
                if t > 0:
                    part.receive()
                if t + 1 < iterations:
                    part.send(emulators.of_part(action, k))

    def acting() -> None:
        nonlocal states
        agent = states.agent
        for _ in range(iterations):
            for step in steps:
                agent, _ = placement.add_and_act(agent, *step)
        states = states._replace(agent=jax.block_until_ready(agent))

    def learning() -> None:
        nonlocal states
        agent = states.agent
        for _ in range(iterations):
            for k in range(len(steps)):
                agent = placement.learn(agent, iteration, 0, incomplete=k + 1 < len(steps))
        states = states._replace(agent=jax.block_until_ready(agent))

    parts = dict(zip(PARTS, (emulating, acting, learning), strict=True))
    best = race({"ours": whole, "emulators by part": emulating_by_part, **parts, **(baselines or {})}, seconds)
    ours, waiting, _ = min(calls)
    best |= {"ours": ours, "waiting": waiting, PARTS[0]: min(best[PARTS[0]], best.pop("emulators by part"))}
    return {name: time / iterations for name, time in best.items()} | {"reset": min(reset for *_, reset in calls)}


def measure_population(scale: str, games: Sequence[str]) -> list[Measurement]:
    """Measure a population on an accelerator against its emulators alone, and how long the accelerator is idle.

    Returns an empty list without an accelerator.
    """
    plan = SCALES[scale]
    result = in_new_process(__name__, "race_population", scale, *games)
    agents = f"{len(_population(plan, games))} agents on {', '.join(games)}"
    if "failed" in result:
        return [Measurement(f"an iteration of {agents}", None, PARTS[0], None, target=plan.population_target, note=result["failed"])]
    if not result:
        return []
    time, frames, label = result["time"], result["frames"], f"an iteration of {agents}, {result['device']}"
    ours, alone, busy = time["ours"], time["emulators"], time["replay and acting"] + time["learning"]
    note = (
        f"{label}: {frames / ours:.0f} frames/s, {alone / ours:.0%} of the {frames / alone:.0f} that the emulators reach alone on "
        f"{result['cores']} cores; the accelerator is idle {max(1 - busy / ours, 0.0):.0%} of the time, and training waits for emulators "
        f"{time['waiting'] / ours:.0%} of the time. A reset of all games, {time['reset']:.2f} s, is subtracted."
    )
    return [
        Measurement(label, ours, "its emulators alone", alone, target=plan.population_target, note=note),
        Measurement(f"{label}: accelerator busy", busy, "the whole iteration", ours),
        *(Measurement(f"{label}: {part}", time[part], "the whole iteration", ours) for part in PARTS[1:]),
    ]


def race_population(scale: str, *games: str) -> dict[str, Any]:
    """Time a population and its parts in one race, in seconds per iteration. Runs in a new process; empty without an accelerator."""
    import jax

    if jax.default_backend() == "cpu":
        return {}
    plan = SCALES[scale]
    config, agents = _config(plan), _population(plan, games)
    time = race_population_parts(agents, config, plan.iterations, plan.seconds)
    frames = FRAMES_PER_STEP * config.num_envs * len(agents)
    return {"time": time, "frames": frames, "device": jax.devices()[0].device_kind, "cores": cores()}


def measure_start_up(scale: str, games: Sequence[str]) -> list[Measurement]:
    """Measure the host memory of a population without its frame replay buffers, and the time until it trains.

    Returns an empty list if the scale has no target.
    """
    plan = SCALES[scale]
    if plan.start_up_target is None:
        return []
    agents = f"{len(_population(plan, games))} agents on {', '.join(games)}"
    result = in_new_process(__name__, "start_up", scale, *games)
    memory, start = f"memory of {agents} without frame replay", f"start-up of {agents}"
    if "failed" in result:
        return [
            Measurement(memory, None, "4 GiB", None, unit="B", target=plan.start_up_target, note=result["failed"]),
            Measurement(start, None, "a minute", None, target=plan.start_up_target, note=result["failed"]),
        ]
    durations = " + ".join(f"{seconds:.1f} s {part}" for part, seconds in result["parts"].items())
    return [
        Measurement(memory, result["bytes"], "4 GiB", HOST_MEMORY, unit="B", target=plan.start_up_target),
        Measurement(start, sum(result["parts"].values()), "a minute", START_UP, target=plan.start_up_target, note=f"{start}: {durations}."),
    ]


def start_up(scale: str, *games: str) -> dict[str, Any]:
    """Measure the peak memory of a process that builds and trains a population for some iterations, and its start-up time.

    Replay buffers are small here, so that they are quick to allocate, and their host memory is subtracted. Device memory is not
    preallocated: its driver needs host memory to manage it, 3.4 GB for 104 GB of an H200, and most of that would be for replay buffers.
    """
    start = perf_counter()
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import resource

    import jax

    from actiongap.dqn.atari import AtariPopulation
    from actiongap.dqn.config import PRESETS
    from actiongap.dqn.frame_replay import replay_bytes

    plan = SCALES[scale]
    config = replace(PRESETS[PRESET], buffer_size=800, learning_starts=80)
    agents = _population(plan, games)
    population = AtariPopulation([game for game, _ in agents], config, [operator for _, operator in agents])
    states = jax.block_until_ready(population.start(range(len(agents))))
    _ = population.emulators
    built = perf_counter()
    states = jax.block_until_ready(population.train(states, 0, 1))
    ready = perf_counter()
    # Learning starts in the tenth iteration; a few more are enough to measure its memory.
    jax.block_until_ready(population.train(states, 1, 13))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    replay = len(agents) * replay_bytes(config.num_envs, population.dqn.capacity, population.dqn.shape[:2])
    on_host = population.placement.device.platform == "cpu"
    parts = {"to make agents and emulators": built - start, "for the first iteration, with compilation": ready - built}
    return {"bytes": peak - (replay if on_host else 0), "parts": parts}
