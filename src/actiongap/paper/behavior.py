"""Who chooses the data: the operator and the behavior policy told apart in Q-learning with noisy rewards.

An operator changes what is learned from data. If the agent's own policy chooses the data, it changes the data as well. Three behaviors
separate the two effects: the agent's own epsilon-greedy policy, that of Bellman's agent (the same data for all operators), and uniformly
random actions.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from actiongap.lab.kinds.finite import QLearning
from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import mean_over_runs, paired_difference
from actiongap.lab.study import Study, grid
from actiongap.paper.parts import Part, Scale, requested_runs
from actiongap.reporting.groups import column_of
from actiongap.reporting.page import Cell, Prose, Section, Table
from actiongap.reporting.summary import provenance_of
from actiongap.reporting.summary import sections as study_sections

OPERATORS = ("bellman", "al:0.5", "al:0.9")
BEHAVIORS = ("own", "bellman", "uniform")
LAKE = "gym/FrozenLake-v1"
NOISE = 0.5
"""Standard deviation of the noise on rewards."""
STUDIES = ("lake", "lake-exploring", "garnet")


class Size(NamedTuple):
    """How much to run."""

    seeds: int
    seeds_of_garnet: int
    steps: int


SIZES: dict[Scale, Size] = {
    "smoke": Size(2, 2, 500),
    "laptop": Size(40, 20, 50_000),
    "gpu": Size(40, 40, 50_000),
    "paper": Size(100, 100, 200_000),
}

QUESTION = """On FrozenLake with noisy rewards, Q-learning with a large alpha names the wrong action more often than Bellman's. Either the
operator learns worse from the same data, or it chooses worse data. Where each agent chooses its own data, both effects are seen. In the
other rows all operators learn from the same data, so the difference is the operator's alone. Churn is the number of changes of greedy
actions per step."""


def studies(scale: Scale) -> tuple[Study, ...]:
    """Return the studies at a scale: FrozenLake, FrozenLake with more exploration, and a random MDP.

    Examples
    --------
    >>> [study.name for study in studies("smoke")]
    ['lake', 'lake-exploring', 'garnet']
    """
    size = SIZES[scale]
    common = {"operator": OPERATORS, "steps": size.steps, "reward_noise": NOISE}
    return (
        Study("lake", grid("q-learning", env=LAKE, behavior=BEHAVIORS, seed=range(size.seeds), **common)),
        Study("lake-exploring", grid("q-learning", env=LAKE, exploration=0.5, seed=range(size.seeds), **common)),
        Study("garnet", grid("q-learning", env="garnet:50,4,3", behavior=BEHAVIORS, seed=range(size.seeds_of_garnet), **common)),
    )


def sections(out: Path) -> list[Section]:
    """Return the table of wrong actions and of churn, then the report of each study."""
    records = requested_runs(out, STUDIES)
    tables = (wrong_actions(records.runs), churn(records.runs)) if records.runs else ()
    return [Section("Who chooses the data", (Prose(QUESTION), *tables)), *study_sections(records)]


def wrong_actions(runs: Iterable[RunRecord]) -> Table:
    """Return how often each operator names a wrong action, and the paired difference from Bellman's, by who chooses the data."""
    rows = _rows(runs, "wrong", paired=True)
    columns = ("environment", "who chooses", "exploration", *OPERATORS, *(f"{operator} minus bellman" for operator in OPERATORS[1:]))
    note = (
        "Fraction of the states where the choice matters in which the greedy action is not optimal, mean over all rows of a run, with 95% "
        "intervals over seeds. Differences are paired by seed."
    )
    return Table("How often the greedy action is wrong", columns, rows, note, provenance_of(list(runs)))


def churn(runs: Iterable[RunRecord]) -> Table:
    """Return the changes of greedy actions per step, and the visits of the rarest action, by who chooses the data."""
    by_churn, by_visits = _rows(runs, "churn"), _rows(runs, "visits", last=True)
    rows = tuple((*a, *b[3:]) for a, b in zip(by_churn, by_visits, strict=True))
    headings = (*(f"churn, {operator}" for operator in OPERATORS), *(f"visits, {operator}" for operator in OPERATORS))
    note = f"Churn: {QLearning.columns['churn']}, mean over all rows. Visits, at the end: {QLearning.columns['visits']}."
    return Table("How much the agents explore", ("environment", "who chooses", "exploration", *headings), rows, note)


def _rows(runs: Iterable[RunRecord], column: str, *, paired: bool = False, last: bool = False) -> tuple[tuple[Cell, ...], ...]:
    """Return one row per environment, behavior and exploration, with a column by operator."""
    found: dict[tuple[str, str, float], dict[str, dict[int, float]]] = {}
    for run in runs:
        curve = column_of(run, column)
        if run.state == "done" and len(curve):
            place = found.setdefault((run.task, str(run.spec["behavior"]), float(run.spec["exploration"])), {})
            place.setdefault(run.agent, {})[run.seed] = float(curve[-1] if last else curve.mean())
    rows = []
    for (env, behavior, exploration), values in sorted(
        found.items(), key=lambda item: (item[0][0], item[0][2], BEHAVIORS.index(item[0][1]))
    ):
        means = [mean_over_runs(list(values[name].values())) if name in values else None for name in OPERATORS]
        differences = [paired_difference(values.get(name, {}), values.get("bellman", {})) for name in OPERATORS[1:]] if paired else []
        rows.append((env, behavior, exploration, *means, *(found and found.difference for found in differences)))
    return tuple(rows)


PART = Part("who chooses the data: operators and behavior policies told apart", sections, studies)
