"""Which plans the laboratory makes for the bicycle, at each scale.

Five studies ask one question each. No plan is made in two of them: what `operators` has planned on the paper's grids is also what the
others are held against, the plain reading in `readings`, eta = 0.1 in `eta`, and so on. Nothing but `operators` is small enough for two
cores, so the smaller scales stop there.

Only Bellman's operator and the consistent one record rides, and only in `operators`: theirs are drawn.

Plans of the bicycle read back: which runs repeat which plan, what they came to, and how far two operators are apart.

Only runs that the last command asked for count, so that a folder in which several scales were run one after the other shows the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from actiongap.envs.bicycle import CORRECTED_C
from actiongap.lab.checkpoint import read_checkpoint
from actiongap.lab.experiment import Experiment, State
from actiongap.lab.records import Records, RunRecord
from actiongap.lab.statistics import LEVEL, Estimate, mean_over_runs, paired_t_tests
from actiongap.lab.study import Study, grid
from actiongap.paper.parts import Scale, asked_for
from actiongap.report.groups import Group, column_of

BICYCLE = "bicycle"
BELLMAN, CONSISTENT = "bellman", "consistent"
PAIR = (BELLMAN, CONSISTENT)
"""The two that most questions are about."""
OPERATORS = (*PAIR, "al:0.1", "pal:0.1")
"""Those of the paper's appendix."""
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
ETA = 0.1
"""The paper's."""
ETAS = (0.05, ETA, 0.2, 0.5, 1.0)
GRIDS = (8, 10)
"""The paper's, in points an axis."""
RESOLUTIONS = (6, 7, 8, 10, 12, 14, 16, 20)

QUESTIONS = {
    "operators": "the operators of the paper on its two grids",
    "alpha": "how much of the gap advantage learning may subtract",
    "eta": "how far a sweep moves Q",
    "readings": "what the paper leaves open",
    "resolution": "from coarse grids to fine ones",
}
"""What each study asks."""


class Reading(NamedTuple):
    """One way to read what the paper leaves open."""

    label: str
    env: str = BICYCLE
    noise: str = "independent"


PLAIN = Reading("as in all other studies")
READINGS = (
    PLAIN,
    Reading("a fall is paid for once, and nothing follows", f"{BICYCLE}:fall=once"),
    Reading("c without its slip of sign, 0.0084 instead of 0.0064", f"{BICYCLE}:c={CORRECTED_C!r}"),
    Reading("rides start heading for the goal", f"{BICYCLE}:start=north"),
    Reading("rides start heading north, the goal in the east", f"{BICYCLE}:start=east"),
    Reading("noise shared by points that differ in psi and d alone", noise="shared"),
    Reading("no noise, in plans nor on rides", f"{BICYCLE}:noise=no"),
    Reading("the axis of psi joins at its ends", f"{BICYCLE}:periodic_heading=yes"),
)
"""In the order of the page. The plain one: who has fallen pays c for ever, c as printed, any heading, a draw for each pair."""


class Size(NamedTuple):
    """How much to run."""

    grids: tuple[int, ...]
    operators: tuple[str, ...]
    seeds: int
    iterations: int
    eval_every: int
    episodes: int
    max_episode_steps: int | None = None
    """Steps of an episode; the simulator's own limit if not given."""
    record_episodes: int = 5
    """Rides recorded at every evaluation."""
    engine: str = "numba"
    others: int = 0
    """Seeds of the other four studies; none are run without."""
    gpus: float = 0.0
    """Accelerators for each run."""


SIZES: dict[Scale, Size] = {
    "smoke": Size((3,), PAIR, 2, iterations=20, eval_every=10, episodes=4, max_episode_steps=200, record_episodes=2),
    "laptop": Size((8,), OPERATORS[:3], 3, iterations=400, eval_every=50, episodes=40),
    "gpu": Size(GRIDS, OPERATORS, 5, iterations=1000, eval_every=100, episodes=100, engine="jax", others=3, gpus=1 / 8),
    "paper": Size(GRIDS, OPERATORS, 10, iterations=2000, eval_every=100, episodes=100, engine="jax", others=10, gpus=1 / 8),
}
FINE = {14: 2, 16: 2, 20: 1}
"""Grids so fine that fewer seeds must do, whatever the scale."""


def studies(scale: Scale) -> tuple[Study, ...]:
    """The studies at a scale.

    Examples
    --------
    >>> [(study.name, len(study.runs)) for study in studies("gpu")]
    [('operators', 40), ('alpha', 24), ('eta', 24), ('readings', 38), ('resolution', 28)]
    >>> [study.name for study in studies("laptop")]
    ['operators']
    """
    size = SIZES[scale]
    common = {"iterations": size.iterations, "episodes": size.episodes, "max_episode_steps": size.max_episode_steps, "engine": size.engine}
    curves = {**common, "eval_every": size.eval_every}
    made = [Study("operators", _operators(size, curves), gpus=size.gpus)]
    if size.others:
        few, coarse = {**curves, "grid": GRIDS[0]}, range(size.others)
        swept = [f"{family}:{alpha}" for family in ("al", "pal") for alpha in ALPHAS]
        made += [
            Study("alpha", _plans(few, operator=[name for name in swept if name not in size.operators], seed=coarse), gpus=size.gpus),
            Study("eta", _plans(few, operator=PAIR, eta=[eta for eta in ETAS if eta != ETA], seed=coarse), gpus=size.gpus),
            Study("readings", _readings(few, size.others), gpus=size.gpus),
            # The finest tables take 2 GB each, and sweeping them several times that.
            Study("resolution", _resolution({**common, "eval_every": size.iterations // 4}, size), gpus=2 * size.gpus),
        ]
    return tuple(made)


def _plans(settings: dict[str, Any], **axes: Any) -> tuple[Experiment, ...]:
    return grid("plan", **{"env": BICYCLE, **settings, **axes})


def _operators(size: Size, settings: dict[str, Any]) -> tuple[Experiment, ...]:
    drawn, others = ([name for name in size.operators if (name in PAIR) == is_drawn] for is_drawn in (True, False))
    settings = {**settings, "grid": size.grids, "seed": range(size.seeds)}
    return (*_plans(settings, operator=drawn, record_episodes=size.record_episodes), *(_plans(settings, operator=others) if others else ()))


def _readings(settings: dict[str, Any], seeds: int) -> tuple[Experiment, ...]:
    def runs() -> Iterable[Sequence[Experiment]]:
        for _, env, noise in READINGS[1:]:
            # Without noise all seeds are one.
            own = 1 if "noise=no" in env else seeds
            yield _plans(settings, env=env, noise=noise, operator=PAIR, seed=range(own))

    return tuple(run for some in runs() for run in some)


def _resolution(settings: dict[str, Any], size: Size) -> tuple[Experiment, ...]:
    # The largest first, for the others to fit in beside them.
    sizes = [n for n in reversed(RESOLUTIONS) if n not in size.grids]
    return tuple(
        run for n in sizes for run in _plans(settings, grid=n, operator=PAIR, seed=range(min(size.others, FINE.get(n, size.others))))
    )


class Plan(NamedTuple):
    """What tells the plans of the five studies apart."""

    operator: str
    grid: int
    env: str = BICYCLE
    noise: str = "independent"
    eta: float = ETA


Plans = Mapping[Plan, Group]
"""The runs of each plan, in the order of their seeds."""
Number = Callable[[RunRecord], float]
"""A number of a run; not a number where it has none."""


def read_plans(out: Path) -> tuple[Plans, Records]:
    """The plans that the studies in a folder were last asked for, and their runs as they were read.

    Examples
    --------
    >>> import tempfile
    >>> read_plans(Path(tempfile.mkdtemp()))
    ({}, Records(runs=(), problems=()))
    """
    records = asked_for(out, QUESTIONS)
    return plans_of(records.runs), records


def plans_of(runs: Iterable[RunRecord]) -> Plans:
    """Runs by what they planned."""
    gathered: dict[Plan, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        if run.kind == "plan" and all(name in run.spec for name in Plan._fields):
            gathered.setdefault(Plan(*(run.spec[name] for name in Plan._fields)), []).append(run)
    return {plan: Group("plan", plan.env, plan.operator, plan.operator, tuple(found)) for plan, found in gathered.items()}


def chosen(plans: Plans, wanted: Iterable[Plan]) -> dict[Plan, Group]:
    """Those of some plans that have rows to show, in the order wanted."""
    return {plan: plans[plan] for plan in wanted if plan in plans and plans[plan].counted}


def steps_of(groups: Iterable[Group]) -> list[int]:
    """The iterations after which all runs of some groups were evaluated.

    Examples
    --------
    >>> steps_of([])
    []
    """
    steps = [run.rows["step"] for group in groups for run in group.counted]
    return [round(step) for step in reduce(np.intersect1d, steps)] if steps else []


def at(step: int, column: str) -> Number:
    """The number in a column after so many iterations."""

    def number(run: RunRecord) -> float:
        found = column_of_ride(run, column)[run.rows["step"] == step]
        return float(found[0]) if len(found) else float("nan")

    return number


def overall(column: str, steps: Sequence[int]) -> Number:
    """The mean of a column over some evaluations: high early and late, or low."""
    return lambda run: float(np.mean([at(step, column)(run) for step in steps])) if steps else float("nan")


def column_of_ride(run: RunRecord, column: str) -> np.ndarray:
    """A column of a run, or the part of the episodes that neither fell nor arrived."""
    if column != "neither":
        return column_of(run, column)
    return 1.0 - column_of(run, "goal_frequency") - column_of(run, "fall_frequency")


def mean(group: Group | None, number: Number) -> Estimate | None:
    """The mean of a number over the runs of a group, with Student's t interval."""
    return None if group is None else mean_over_runs([number(run) for run in group.counted])


def difference(one: Group | None, other: Group | None, number: Number) -> Estimate | None:
    """By how much a number is higher in one group than in the other: the mean over pairs of runs with the same seed, with its interval."""
    if one is None or other is None:
        return None
    ours, theirs = ({run.seed: number(run) for run in group.counted} for group in (one, other))
    return apart(ours, theirs)


def apart(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate | None:
    """By how much one number is higher than another, each given by seed: the mean over the seeds that both have, with its interval.

    Examples
    --------
    >>> print(apart({0: 1.0, 1: 2.0, 2: 3.0}, {0: 0.0, 1: 0.0, 2: 0.0, 3: 9.0}))
    2.0 [-0.5, 4.5] (95%, n = 3)
    """
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs and np.isfinite(ours[seed] + theirs[seed])]
    if not pairs:
        return None
    x, y = np.array(pairs).T[:, :, None]
    if len(pairs) == 1:
        return mean_over_runs(x[0] - y[0])
    return paired_t_tests(x, y, level=LEVEL)[0].difference


def final_state(run: RunRecord) -> State | None:
    """The state in which a run ended; None where it has not ended, or the state is gone or not the one of its rows."""
    if run.status is None or run.state != "done":
        return None
    for file in sorted((run.folder / "checkpoint").glob("*.npz"), reverse=True):
        try:
            found = read_checkpoint(file)
        except ValueError:
            continue
        if (found.chunk, found.digest) == (run.status.chunks, run.status.digest):
            return found.state
    return None


def first_done(group: Group | None) -> RunRecord | None:
    """The run of a group with the lowest seed of those that are done."""
    return next((run for run in group.runs if run.state == "done"), None) if group is not None else None
