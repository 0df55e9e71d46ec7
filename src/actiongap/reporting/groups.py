"""Groups of runs that differ only in the seed, and their statistics.

Statistics are over the seeds of a group. They use finished runs only; a group without finished runs shows its rows so far.

A learning curve is summarized by three numbers: the highest score, the last score, and the average of the last tenth of the rows. The paper
reports the highest, which favors noisy agents. Comparisons between agents use the average.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import Estimate, mean_over_runs, score

BASELINE = "bellman"
MAX_AGENTS = 12
"""Maximum number of agents in a chart or comparison."""
SCORES = ("average of last tenth", "last", "highest")
MAX_LISTED = 5
"""Maximum number of commands, systems and names in a list; the rest is counted."""


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ only in the seed."""

    kind: str
    task: str
    agent: str
    label: str
    """The agent, and the fields that distinguish it from other groups of the same task."""
    runs: tuple[RunRecord, ...]
    """In order of seed."""

    @cached_property
    def states(self) -> Counter[str]:
        """The number of runs in each state."""
        return Counter(run.state for run in self.runs)

    @cached_property
    def counted(self) -> tuple[RunRecord, ...]:
        """The runs in the statistics: finished runs, or if there are none, runs that have rows and did not fail."""
        started = [run for run in self.runs if len(run.rows["step"]) and run.state != "failed"]
        return tuple([run for run in started if run.state == "done"] or started)

    @cached_property
    def scores(self) -> dict[str, NDArray[np.float64]]:
        """The three scores of each counted run."""
        name = next(iter(self.runs[0].columns))
        found = [run_scores(column_of(run, name)) for run in self.counted]
        return {name: np.array([scores[name] for scores in found]) for name in SCORES}

    @cached_property
    def numbers(self) -> dict[str, Estimate | None]:
        """The three scores and the last value of every other column, as means over the counted runs."""
        first, *others = self.runs[0].columns
        numbers = {f"{first}, {name}": mean_over_runs(values) for name, values in self.scores.items()}
        lasts = {f"{name}, last": [column_of(run, name)[-1] for run in self.counted] for name in others}
        return numbers | {name: mean_over_runs(values) for name, values in lasts.items()}

    @cached_property
    def cost(self) -> dict[str, Estimate | None]:
        """Seconds and speed, as means over the counted runs."""
        known = [run.status for run in self.counted if run.status is not None]
        seconds = mean_over_runs([status.seconds for status in known])
        rate = mean_over_runs([status.steps / status.seconds for status in known if status.seconds > 0])
        return {"seconds": seconds, f"{self.runs[0].step_name} per second": rate}

    @property
    def rank(self) -> float:
        """The mean of the last scores; minus infinity if it is missing."""
        estimate = mean_over_runs(self.scores["last"])
        return -math.inf if estimate is None else estimate.value


def column_of(run: RunRecord, name: str) -> NDArray[np.float64]:
    """Return a column of a run; all NaN if an older version of the experiment did not record it."""
    return run.rows[name] if name in run.rows else np.full(len(run.rows["step"]), np.nan)


def run_scores(curve: NDArray[np.float64]) -> dict[str, float]:
    """Return the highest score of a run, the last, and the average of the last tenth; NaN if a required value is missing.

    Examples
    --------
    >>> run_scores(np.array([3.0, 5.0, np.nan, 4.0]))
    {'average of last tenth': 4.0, 'last': 4.0, 'highest': 5.0}
    """
    finite, tail = curve[np.isfinite(curve)], curve[-math.ceil(len(curve) / 10) :]
    # Scores of diverging agents can overflow when summed or squared: they count as missing.
    with np.errstate(over="ignore"):
        average = score(tail, "average of last", len(tail)).value if np.isfinite(tail).all() else math.nan
    return {
        "average of last tenth": average,
        "last": float(curve[-1]),
        "highest": score(finite, "highest").value if len(finite) else math.nan,
    }


def group_runs(runs: Iterable[RunRecord]) -> list[Group]:
    """Group runs by all fields except the seed, in order of kind, task and agent, and label each group.

    Labels include the fields that vary among the runs of a kind, except fields that the task determines.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.records import read_runs
    >>> from actiongap.lab.experiment import make
    >>> from actiongap.lab.runner import run_experiment
    >>> out = tempfile.mkdtemp()
    >>> for seed, operator in ((0, "bellman"), (1, "bellman"), (0, "al:0.5")):
    ...     fields = {"env": "cake", "operator": operator, "seed": seed, "steps": 100, "rows": 2}
    ...     finished = run_experiment(f"{out}/{operator} {seed}", make("q-learning", fields))
    >>> [(group.label, len(group.runs)) for group in group_runs(read_runs([out]).runs)]
    [('bellman', 2), ('al:0.5', 1)]
    """
    gathered: dict[tuple[str, str, str, str], list[RunRecord]] = {}
    for run in runs:
        others = {name: value for name, value in run.spec.items() if name != "seed"}
        gathered.setdefault((run.kind, run.task, run.agent, json.dumps(others, sort_keys=True)), []).append(run)
    kinds: dict[str, list[list[RunRecord]]] = {}
    for key in sorted(gathered, key=lambda key: (key[0], *map(natural_key, key[1:]))):
        kinds.setdefault(key[0], []).append(sorted(gathered[key], key=lambda run: run.seed))
    groups: list[Group] = []
    for kind, members in kinds.items():
        varying = _distinguishing_fields([runs[0] for runs in members])
        for runs in members:
            first = runs[0]
            label = ", ".join([first.agent, *(f"{name}={_plain(first.spec[name])}" for name in varying if name in first.spec)])
            groups.append(Group(kind, first.task, first.agent, label, tuple(runs)))
    return sorted(groups, key=lambda group: (group.kind, natural_key(group.task), group.agent != BASELINE, natural_key(group.label)))


def _distinguishing_fields(firsts: Sequence[RunRecord]) -> list[str]:
    """Return the fields, other than the agent, that distinguish groups of the same task."""
    varying = []
    for name in dict.fromkeys(name for run in firsts for name in run.spec if name != "seed"):
        values = {(run.task, json.dumps(run.spec.get(name), sort_keys=True)) for run in firsts}
        by_task_alone = len(values) == len({task for task, _ in values})
        if not by_task_alone and any(run.spec.get(name) != run.agent for run in firsts):
            varying.append(name)
    return varying


def natural_key(text: str) -> list[str | float]:
    """Return a sort key that compares the numbers in texts by value.

    Examples
    --------
    >>> sorted(["al:0.5", "al:0.25", "chain:10", "chain:9"], key=natural_key)
    ['al:0.25', 'al:0.5', 'chain:9', 'chain:10']
    """
    parts = re.split(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)", text)
    return [float(part) if number % 2 else part for number, part in enumerate(parts)]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def best_of(groups: list[Group], value: Callable[[Group], float]) -> list[Group]:
    """Return up to `MAX_AGENTS` groups with the highest value, in the given order, and always the best baseline."""
    ranked = sorted(groups, key=value, reverse=True)
    kept = ranked[:MAX_AGENTS]
    baselines = [group for group in ranked if group.agent == BASELINE]
    if baselines and not any(group.agent == BASELINE for group in kept):
        kept[-1] = baselines[0]
    chosen = set(map(id, kept))
    return [group for group in groups if id(group) in chosen]


def several(count: int, noun: str) -> str:
    """Return a count with its noun, plural unless it is 1."""
    return f"{count} {noun}{'s' * (count != 1)}"


def listed(names: Sequence[str]) -> str:
    """Return the first names, and the number of others."""
    return ", ".join(names[:MAX_LISTED]) + (f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else "")
