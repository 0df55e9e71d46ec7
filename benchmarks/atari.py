"""Agents on Atari measured: a population against its emulators alone, one agent against PyTorch, memory and start-up.

- *A population on an accelerator*: every game with every operator, with seeds enough for 15 agents, at the replay ratio of the preset, once
  it learns. The emulators set the pace, so training is measured against the same emulators stepped alone, with actions at random. Early in
  a training nearly all actions are random too, so that both play alike. Training begins all games anew at each call, the emulators alone go
  on; so each stretch of training is timed without its beginning. Remembering, choosing and learning without emulators, on a step that was
  recorded, say how long the accelerator is busy.
- *One agent on the CPU*, on all cores, against a loop in PyTorch with the same network and as many gradient steps
  (`benchmarks.atari_baselines`), which is tried with one thread and with all, and credited with the better. Everyone explores as late in
  a training, so that everyone asks its network for actions.
- *Memory and start-up* of that population: what a process takes of the host's memory at its peak, without the film, and how long it is
  until everything is built, begun and compiled.

Everything runs in fresh processes: JAX finds its device and its threads only once, and memory is that of a whole process.
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
from actiongap.envs.atari import FRAMES_A_STEP, TRAINING
from benchmarks import Measurement, check_scale, measure_all, race
from benchmarks.processes import check_jax, in_new_process, with_threads

OPERATORS = ("bellman", "al:0.9", "pal-dqn:0.9")
PRESET = "stochastic-minimal"
IN_PYTORCH, NEEDS = "a loop in PyTorch, as CleanRL's", "pip install torch"
PARTS = ("emulators", "remembering and choosing", "learning")
HOST_MEMORY, START_UP = 4 * 2**30, 60.0
"""Bytes beyond the film and seconds that a population should stay below."""


@dataclass(frozen=True)
class Scale:
    """What is measured and for how long. Of a few rounds nothing is claimed."""

    games: tuple[str, ...]
    operators: tuple[str, ...]
    agents: int
    """How many a population has at least: the fewer games, the more seeds."""
    replay: int
    """Transitions that each agent of a population remembers, on an accelerator."""
    batch: int
    """Transitions in a gradient step; the preset has 32."""
    learn_after: int
    """Steps before learning begins, and before anything is timed."""
    rounds: int
    """Rounds of a population that are timed at a time."""
    emulating: float | None
    """A round of a population over the same of its emulators alone, at most."""
    alone_rounds: int
    """Rounds of one agent on the CPU that are timed at a time, and of its baseline."""
    training: float | None
    """A round of one agent on the CPU over one of its baseline, at most."""
    fitting: float | None
    """Memory over `HOST_MEMORY`, and start-up over `START_UP`, at most; if None, neither is measured."""
    seconds: float
    """How long each race lasts."""


SCALES = {
    "full": Scale(TRAINING, OPERATORS, 15, 100_000, 32, 2_000, 1_000, 1 / 0.85, 40, 1.0, 1.0, 60.0),
    "quick": Scale(("pong",), ("bellman", "al:0.9"), 2, 400, 4, 40, 4, None, 2, None, None, 0.05),
}


def bench_atari(
    scale: Literal["full", "quick"] = "full", progress: Callable[[str, float], None] | None = None, games: Sequence[str] = ()
) -> list[Measurement]:
    """Everything this module measures; minutes at full scale. `progress` is told what comes next and the part done.

    Other `games` may be given than those of the scale.

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
    """One agent on the CPU against its baseline, and the parts of a round."""
    plan, label = SCALES[scale], f"a round of training on {game}"
    told = in_new_process(__name__, "race_training", scale, game, platform="cpu")
    if "failed" in told:
        return [Measurement(label, None, IN_PYTORCH, None, target=plan.training, note=told["failed"])]
    time, threads, frames = told["time"], told["threads"], told["frames"]
    ours = time["ours"]
    parts = [Measurement(f"{label}: {part}", time[part], "the whole round", ours) for part in PARTS]
    best = min((n for n in threads if f"{IN_PYTORCH}, {n}" in time), key=lambda n: time[f"{IN_PYTORCH}, {n}"], default=None)
    if best is None:
        note = f"Nothing was compared with {IN_PYTORCH}, which needs: {NEEDS}"
        return [Measurement(label, None, IN_PYTORCH, None, target=plan.training, note=note), *parts]
    reference = time[f"{IN_PYTORCH}, {best}"]
    note = (
        f"{label}: {frames / ours:.0f} frames/s on {threads[-1]} threads, {frames / time['learning']:.0f} if there were learning alone, "
        f"which is the floor; {IN_PYTORCH} has {frames / reference:.0f}, best on {best} of {threads[-1]} threads. A beginning of our "
        f"games, {time['beginning']:.2f} s, is not counted."
    )
    return [Measurement(label, ours, IN_PYTORCH, reference, target=plan.training, floor=time["learning"], note=note), *parts]


def race_training(scale: str, game: str) -> dict[str, Any]:
    """Seconds a round of our agent, of its parts and of its baseline on so many threads, in one race; for a process of its own."""
    from benchmarks import atari_baselines

    plan, all_cores = SCALES[scale], cores()
    # A short memory, which is soon full: where a transition is drawn from makes no difference.
    config = replace(_config(plan), buffer_size=2 * plan.learn_after, exploration_steps=0)
    baselines, threads = {}, sorted({1, all_cores})
    try:
        train = atari_baselines.in_pytorch(game, config, all_cores)
    except ImportError:
        pass
    else:
        with_threads(all_cores, train, plan.learn_after // config.num_envs + 1)
        baselines = {f"{IN_PYTORCH}, {n}": partial(with_threads, n, train, plan.alone_rounds) for n in threads}
    time = race_rounds([(game, "bellman")], config, plan.alone_rounds, plan.seconds, baselines)
    return {"time": time, "threads": threads, "frames": FRAMES_A_STEP * config.num_envs}


def _config(plan: Scale) -> Any:
    from actiongap.dqn.config import PRESETS

    return replace(PRESETS[PRESET], buffer_size=plan.replay, batch_size=plan.batch, learning_starts=plan.learn_after)


def _population(plan: Scale, games: Sequence[str]) -> list[tuple[str, str]]:
    """The game and the operator of every agent."""
    once = [(game, operator) for game in games for operator in plan.operators]
    return once * math.ceil(plan.agents / len(once))


def race_rounds(
    agents: Sequence[tuple[str, str]],
    config: Any,
    rounds: int,
    seconds: float,
    baselines: Mapping[str, Callable[[], Any]] | None = None,
) -> dict[str, float]:
    """Seconds a round of a population that has begun to learn, of each of its parts and of baselines; and of a beginning of its games.

    What a round spends waiting for emulators is told too: where that is little, whoever hands work over is what all others wait for.

    All parts go on with the same agents and emulators, and hand them on to whoever is next. A stretch of training is counted without the
    beginning that it had. Emulators alone are stepped all together and shift by shift, and credited with the better.
    """
    import jax
    import numpy as np

    from actiongap.dqn.atari import AtariPopulation

    population = AtariPopulation([game for game, _ in agents], config, [operator for _, operator in agents])
    emulators: Any = population.emulators
    shelf: Any = population.shelf
    beginnings, waits, calls, stretches = [], [], [], []

    def timed(call: Callable[..., Any], taken: list[float]) -> Callable[..., Any]:
        def call_timed(*given: Any) -> Any:
            start = perf_counter()
            seen = call(*given)
            taken.append(perf_counter() - start)
            return seen

        return call_timed

    for part in emulators.parts:
        part.begin, part.receive = timed(part.begin, beginnings), timed(part.receive, waits)
    absorb, clock = shelf.absorb, population.dqn.warmup + 1
    lives: Any = population.train(population.start(range(len(agents))), 0, clock)

    def recorded(agents: Any, *seen: Any) -> Any:
        calls.append(seen)
        return absorb(agents, *seen)

    shelf.absorb = recorded
    lives, clock = population.train(lives, clock, 2), clock + 2
    shelf.absorb, calls = absorb, calls[len(calls) // 2 :]
    rng, count = np.random.default_rng(0), np.repeat([len(game.actions) for game in population.games], config.num_envs)
    actions = rng.integers(count, size=(rounds, len(count)))

    def whole() -> None:
        nonlocal lives, clock
        beginnings.clear()
        waits.clear()
        start = perf_counter()
        lives = jax.block_until_ready(population.train(lives, clock, rounds))
        stretches.append((perf_counter() - start - sum(beginnings), sum(waits), sum(beginnings)))
        clock += rounds

    # Nor does training take a step in its first round, which begins the games.
    def emulating() -> None:
        for action in actions[1:]:
            emulators.send(action)
            emulators.receive()

    def in_shifts() -> None:
        for now, action in enumerate(actions):
            for k, part in enumerate(emulators.parts):
                if now > 0:
                    part.receive()
                if now + 1 < rounds:
                    part.send(emulators.of_part(action, k))

    def choosing() -> None:
        nonlocal lives
        agent = lives.agent
        for _ in range(rounds):
            for seen in calls:
                agent, _ = shelf.absorb(agent, *seen)
        lives = lives._replace(agent=jax.block_until_ready(agent))

    def learning() -> None:
        nonlocal lives
        agent = lives.agent
        for _ in range(rounds):
            for k in range(len(calls)):
                agent = shelf.learn(agent, clock, 0, behind=k + 1 < len(calls))
        lives = lives._replace(agent=jax.block_until_ready(agent))

    parts = dict(zip(PARTS, (emulating, choosing, learning), strict=True))
    best = race({"ours": whole, "shifts": in_shifts, **parts, **(baselines or {})}, seconds)
    ours, waiting, _ = min(stretches)
    best |= {"ours": ours, "waiting": waiting, PARTS[0]: min(best[PARTS[0]], best.pop("shifts"))}
    return {name: time / rounds for name, time in best.items()} | {"beginning": min(began for *_, began in stretches)}


def measure_population(scale: str, games: Sequence[str]) -> list[Measurement]:
    """A population on an accelerator against its emulators alone, and how long the accelerator is idle; none without an accelerator."""
    plan = SCALES[scale]
    told = in_new_process(__name__, "race_population", scale, *games)
    agents = f"{len(_population(plan, games))} agents on {', '.join(games)}"
    if "failed" in told:
        return [Measurement(f"a round of {agents}", None, PARTS[0], None, target=plan.emulating, note=told["failed"])]
    if not told:
        return []
    time, frames, label = told["time"], told["frames"], f"a round of {agents}, {told['device']}"
    ours, alone, busy = time["ours"], time["emulators"], time["remembering and choosing"] + time["learning"]
    note = (
        f"{label}: {frames / ours:.0f} frames/s, {alone / ours:.0%} of the {frames / alone:.0f} that the emulators reach alone on "
        f"{told['cores']} cores; the accelerator is idle {max(1 - busy / ours, 0.0):.0%} of the time, and whoever hands work to it waits "
        f"for emulators {time['waiting'] / ours:.0%} of it. A beginning of all games, {time['beginning']:.2f} s, is not counted."
    )
    return [
        Measurement(label, ours, "its emulators alone", alone, target=plan.emulating, note=note),
        Measurement(f"{label}: the accelerator at work", busy, "the whole round", ours),
        *(Measurement(f"{label}: {part}", time[part], "the whole round", ours) for part in PARTS[1:]),
    ]


def race_population(scale: str, *games: str) -> dict[str, Any]:
    """Seconds a round of a population and of its parts in one race, if there is an accelerator; for a process of its own."""
    import jax

    if jax.default_backend() == "cpu":
        return {}
    plan = SCALES[scale]
    config, agents = _config(plan), _population(plan, games)
    time = race_rounds(agents, config, plan.rounds, plan.seconds)
    frames = FRAMES_A_STEP * config.num_envs * len(agents)
    return {"time": time, "frames": frames, "device": jax.devices()[0].device_kind, "cores": cores()}


def measure_start_up(scale: str, games: Sequence[str]) -> list[Measurement]:
    """The host's memory that a population takes beyond its films, and the time until it trains; nothing where neither is claimed."""
    plan = SCALES[scale]
    if plan.fitting is None:
        return []
    agents = f"{len(_population(plan, games))} agents on {', '.join(games)}"
    told = in_new_process(__name__, "start_up", scale, *games)
    memory, start = f"memory of {agents} beyond their films", f"start-up of {agents}"
    if "failed" in told:
        return [
            Measurement(memory, None, "4 GiB", None, unit="B", target=plan.fitting, note=told["failed"]),
            Measurement(start, None, "a minute", None, target=plan.fitting, note=told["failed"]),
        ]
    taken = " + ".join(f"{seconds:.1f} s {part}" for part, seconds in told["parts"].items())
    return [
        Measurement(memory, told["bytes"], "4 GiB", HOST_MEMORY, unit="B", target=plan.fitting),
        Measurement(start, sum(told["parts"].values()), "a minute", START_UP, target=plan.fitting, note=f"{start}: {taken}."),
    ]


def start_up(scale: str, *games: str) -> dict[str, Any]:
    """Bytes at the peak of a process that builds and trains a population for some rounds, and what its beginning takes.

    Films are small here, so that they are quickly made; whatever they take of the host's memory is subtracted. The accelerator's memory is
    taken as it is needed: its driver keeps notes of it, 3.4 GB of the host's for 104 GB of an H200's, and most of those would be for films.
    """
    begun = perf_counter()
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
    lives = jax.block_until_ready(population.start(range(len(agents))))
    _ = population.emulators
    made = perf_counter()
    lives = jax.block_until_ready(population.train(lives, 0, 1))
    ready = perf_counter()
    # Learning begins in the tenth round; a few more show what it takes.
    jax.block_until_ready(population.train(lives, 1, 13))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    films = len(agents) * replay_bytes(config.num_envs, population.dqn.capacity, population.dqn.shape[:2])
    here = population.shelf.device.platform == "cpu"
    parts = {"of making agents and emulators": made - begun, "of the first round, compiled": ready - made}
    return {"bytes": peak - (films if here else 0), "parts": parts}
