"""The studies of the bicycle at each scale, and their runs read back.

Five studies answer one question each. Plans are shared between studies: the plans of `operators` on the paper's grids also serve the other
studies as the default interpretation (`readings`), as eta = 0.1 (`eta`), and so on. Only `operators` is small enough for two cores, so the
smaller scales run it alone. Only Bellman and consistent record episodes, and only in `operators`: their trajectories are drawn.

`read_plans` reads the runs that the last command requested, so a folder in which several scales were run shows the last one. Runs that
repeat a plan form a group; `mean` and `difference` estimate a metric of a group, or between two groups paired by seed.
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
from actiongap.lab.statistics import Estimate, mean_over_runs, paired_difference
from actiongap.lab.study import Study, grid
from actiongap.paper.parts import Scale, requested_runs
from actiongap.reporting.groups import Group, column_of

BICYCLE = "bicycle"
BELLMAN, CONSISTENT = "bellman", "consistent"
PAIR = (BELLMAN, CONSISTENT)
"""The two operators that most studies compare."""
OPERATORS = (*PAIR, "al:0.1", "pal:0.1")
"""The operators of the paper's appendix."""
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
ETA = 0.1
"""The paper's eta."""
ETAS = (0.05, ETA, 0.2, 0.5, 1.0)
GRIDS = (8, 10)
"""The paper's grids, in points per axis."""
RESOLUTIONS = (6, 7, 8, 10, 12, 14, 16, 20)

STUDIES = {
    "operators": "the operators of the paper on its two grids",
    "alpha": "the fraction of the gap that advantage learning subtracts",
    "eta": "the step of a sweep",
    "readings": "details that the paper leaves open",
    "resolution": "coarse and fine grids",
}
"""The studies and their questions."""


class Reading(NamedTuple):
    """One interpretation of a detail that the paper leaves open."""

    label: str
    env: str = BICYCLE
    noise: str = "independent"


DEFAULT = Reading("default, as in all other studies")
READINGS = (
    DEFAULT,
    Reading("a fall is paid for once and ends the episode", f"{BICYCLE}:fall=once"),
    Reading("c with its sign corrected, 0.0084 instead of 0.0064", f"{BICYCLE}:c={CORRECTED_C!r}"),
    Reading("episodes start heading for the goal", f"{BICYCLE}:start=north"),
    Reading("episodes start heading north, with the goal in the east", f"{BICYCLE}:start=east"),
    Reading("noise shared by points that differ only in psi and d", noise="shared"),
    Reading("no noise, neither in planning nor in episodes", f"{BICYCLE}:noise=no"),
    Reading("the axis of psi is periodic", f"{BICYCLE}:periodic_heading=yes"),
)
"""In the order of the page. The default: a fallen bicycle pays c forever, c as printed, any heading, one draw per pair."""


class Size(NamedTuple):
    """How much to run at a scale."""

    grids: tuple[int, ...]
    operators: tuple[str, ...]
    seeds: int
    iterations: int
    eval_every: int
    episodes: int
    max_episode_steps: int | None = None
    """Maximum steps per episode; the simulator's own limit by default."""
    record_episodes: int = 5
    """Episodes recorded per evaluation."""
    engine: str = "numba"
    other_seeds: int = 0
    """Seeds of the other four studies; 0 skips them."""
    gpus: float = 0.0
    """Accelerators per run."""


SIZES: dict[Scale, Size] = {
    "smoke": Size((3,), PAIR, 2, iterations=20, eval_every=10, episodes=4, max_episode_steps=200, record_episodes=2),
    "laptop": Size((8,), OPERATORS[:3], 3, iterations=400, eval_every=50, episodes=40),
    "gpu": Size(GRIDS, OPERATORS, 5, iterations=1000, eval_every=100, episodes=100, engine="jax", other_seeds=3, gpus=1 / 8),
    "paper": Size(GRIDS, OPERATORS, 10, iterations=2000, eval_every=100, episodes=100, engine="jax", other_seeds=10, gpus=1 / 8),
}
FINE = {14: 2, 16: 2, 20: 1}
"""Seeds of the finest grids, at every scale."""


def studies(scale: Scale) -> tuple[Study, ...]:
    """Return the studies at a scale.

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
    found = [Study("operators", _operators(size, curves), gpus=size.gpus)]
    if size.other_seeds:
        coarse, seeds = {**curves, "grid": GRIDS[0]}, range(size.other_seeds)
        swept = [f"{family}:{alpha}" for family in ("al", "pal") for alpha in ALPHAS]
        found += [
            Study("alpha", _plans(coarse, operator=[name for name in swept if name not in size.operators], seed=seeds), gpus=size.gpus),
            Study("eta", _plans(coarse, operator=PAIR, eta=[eta for eta in ETAS if eta != ETA], seed=seeds), gpus=size.gpus),
            Study("readings", _readings(coarse, size.other_seeds), gpus=size.gpus),
            # The finest tables take 2 GB each, and a sweep several times that.
            Study("resolution", _resolution({**common, "eval_every": size.iterations // 4}, size), gpus=2 * size.gpus),
        ]
    return tuple(found)


def _plans(config: dict[str, Any], **axes: Any) -> tuple[Experiment, ...]:
    return grid("plan", **{"env": BICYCLE, **config, **axes})


def _operators(size: Size, config: dict[str, Any]) -> tuple[Experiment, ...]:
    recorded = [name for name in size.operators if name in PAIR]
    others = [name for name in size.operators if name not in PAIR]
    config = {**config, "grid": size.grids, "seed": range(size.seeds)}
    return (
        *_plans(config, operator=recorded, record_episodes=size.record_episodes),
        *(_plans(config, operator=others) if others else ()),
    )


def _readings(config: dict[str, Any], seeds: int) -> tuple[Experiment, ...]:
    def runs() -> Iterable[Sequence[Experiment]]:
        for _, env, noise in READINGS[1:]:
            # Without noise all seeds give the same run.
            count = 1 if "noise=no" in env else seeds
            yield _plans(config, env=env, noise=noise, operator=PAIR, seed=range(count))

    return tuple(run for some in runs() for run in some)


def _resolution(config: dict[str, Any], size: Size) -> tuple[Experiment, ...]:
    # Largest first, so that the smaller runs fill the gaps.
    sizes = [n for n in reversed(RESOLUTIONS) if n not in size.grids]
    return tuple(
        run
        for n in sizes
        for run in _plans(config, grid=n, operator=PAIR, seed=range(min(size.other_seeds, FINE.get(n, size.other_seeds))))
    )


class Plan(NamedTuple):
    """The fields that distinguish the plans of the five studies."""

    operator: str
    grid: int
    env: str = BICYCLE
    noise: str = "independent"
    eta: float = ETA


Plans = Mapping[Plan, Group]
"""The runs of each plan, ordered by seed."""
RunMetric = Callable[[RunRecord], float]
"""A metric of a run; NaN if the run has none."""


def read_plans(out: Path) -> tuple[Plans, Records]:
    """Return the plans that the studies in a folder requested last, and the records of their runs.

    Examples
    --------
    >>> import tempfile
    >>> plans, records = read_plans(Path(tempfile.mkdtemp()))
    >>> len(plans), len(records.runs)
    (0, 0)
    """
    records = requested_runs(out, STUDIES)
    return plans_of(records.runs), records


def plans_of(runs: Iterable[RunRecord]) -> Plans:
    """Group runs by plan."""
    runs_by_plan: dict[Plan, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        if run.kind == "plan" and all(name in run.spec for name in Plan._fields):
            runs_by_plan.setdefault(Plan(*(run.spec[name] for name in Plan._fields)), []).append(run)
    return {plan: Group("plan", plan.env, plan.operator, plan.operator, tuple(found)) for plan, found in runs_by_plan.items()}


def select_plans(plans: Plans, wanted: Iterable[Plan]) -> dict[Plan, Group]:
    """Return the wanted plans that have rows, in the order wanted."""
    return {plan: plans[plan] for plan in wanted if plan in plans and plans[plan].counted}


def shared_steps(groups: Iterable[Group]) -> list[int]:
    """Return the iterations at which all runs of some groups were evaluated.

    Examples
    --------
    >>> shared_steps([])
    []
    """
    steps = [run.rows["step"] for group in groups for run in group.counted]
    return [round(step) for step in reduce(np.intersect1d, steps)] if steps else []


def at_step(step: int, column: str) -> RunMetric:
    """Return the metric that reads a column at an iteration; NaN if the run has no row there."""

    def metric(run: RunRecord) -> float:
        found = outcome_column(run, column)[run.rows["step"] == step]
        return float(found[0]) if len(found) else float("nan")

    return metric


def mean_over_steps(column: str, steps: Sequence[int]) -> RunMetric:
    """Return the metric that averages a column over the evaluations at `steps`; NaN if `steps` is empty."""
    return lambda run: float(np.mean([at_step(step, column)(run) for step in steps])) if steps else float("nan")


def outcome_column(run: RunRecord, column: str) -> np.ndarray:
    """Return a column of a run; `neither` is the fraction of episodes that neither fell nor reached the goal."""
    if column != "neither":
        return column_of(run, column)
    return 1.0 - column_of(run, "goal_frequency") - column_of(run, "fall_frequency")


def mean(group: Group | None, metric: RunMetric) -> Estimate | None:
    """Return the mean of a metric over the runs of a group, with Student's t interval."""
    return None if group is None else mean_over_runs([metric(run) for run in group.counted])


def difference(one: Group | None, other: Group | None, metric: RunMetric) -> Estimate | None:
    """Return the difference of a metric between two groups: mean over pairs of runs with the same seed, with its interval."""
    if one is None or other is None:
        return None
    ours, theirs = ({run.seed: metric(run) for run in group.counted} for group in (one, other))
    found = paired_difference(ours, theirs)
    return None if found is None else found.difference


def final_state(run: RunRecord) -> State | None:
    """Return the final state of a run; None if the run is unfinished, or its checkpoint is missing or does not match its rows."""
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
    """Return the finished run of a group with the lowest seed."""
    return next((run for run in group.runs if run.state == "done"), None) if group is not None else None
