"""Whether a wider action gap helps on small problems, where everything can be measured exactly.

Four studies run every operator on gridworlds and FrozenLake over several seeds: Q-learning, fitted Q-iteration on a small batch, errors
added to a converged Q, and sweeps whose backups are estimated from a few samples. Each reports how far the greedy policy is from optimal
and how often it picks a wrong action.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from actiongap.lab.records import Records, read_runs
from actiongap.lab.statistics import Estimate, mean_over_runs
from actiongap.lab.study import Study, grid
from actiongap.paper.parts import Part, Scale
from actiongap.reporting.groups import column_of, group_runs
from actiongap.reporting.page import Prose, Section, Table
from actiongap.reporting.summary import provenance_of
from actiongap.reporting.summary import sections as study_sections

OPERATORS = ("bellman", "consistent", "al:0.5", "al:0.9", "pal:0.5", "pal:0.9", "pal-dqn:0.9", "lazy:0.5")
ENVS = ("gridworld:5,5", "gridworld:10,10", "gym/FrozenLake-v1")


class Size(NamedTuple):
    """How much to run."""

    envs: tuple[str, ...]
    operators: tuple[str, ...]
    seeds: int
    steps: int
    """Transitions of Q-learning."""
    iterations: int
    """Iterations of fitted Q, and sweeps."""
    draws: int
    """Errors drawn per standard deviation."""


SIZES: dict[Scale, Size] = {
    "smoke": Size(ENVS[:1], ("bellman", "al:0.9"), 2, 2000, 40, 50),
    "laptop": Size(ENVS, OPERATORS, 5, 50_000, 300, 500),
    "gpu": Size(ENVS, OPERATORS, 20, 50_000, 300, 500),
    "paper": Size((*ENVS, "gym/FrozenLake8x8-v1", "garnet:100,4,5"), OPERATORS, 100, 200_000, 500, 1000),
}
"""Every scale runs on CPUs. The gpu scale takes minutes on a machine that has an accelerator."""

QUESTION = """A wider gap between the best and the second-best action could make the greedy policy more robust to errors in Q. The optimal
values of these problems are known, so every row states exactly how good the greedy policy is (score: 0 is uniformly random, 1 is optimal)
and the fraction of states with a wrong action, among the states where the choice matters.

A wider gap hides errors that are added to a converged Q. Errors that arise during learning pass through the operator as well, so a wider
gap need not hide them."""


def studies(scale: Scale) -> tuple[Study, ...]:
    """Return the four studies at a scale.

    Examples
    --------
    >>> [study.name for study in studies("smoke")]
    ['q-learning', 'fitted-q', 'noisy-values', 'noisy-backups']
    """
    size = SIZES[scale]
    common = {"env": size.envs, "operator": size.operators, "seed": range(size.seeds)}
    return (
        Study("q-learning", grid("q-learning", **common, steps=size.steps, reward_noise=[0.0, 0.5])),
        Study("fitted-q", grid("fitted-q", **common, iterations=size.iterations)),
        Study("noisy-values", grid("noisy-values", **common, draws=size.draws)),
        Study("noisy-backups", grid("noisy-backups", **common)),
    )


def sections(out: Path) -> list[Section]:
    """Return one table that answers the question, then the report of each study."""
    records = read_runs([out])
    return [Section("Small problems: does a wider gap help?", (Prose(QUESTION), _wrong_action_table(records))), *study_sections(records)]


def _wrong_action_table(records: Records) -> Table:
    """Return how often each operator picks a wrong action: one row per study and environment, one column per operator."""
    rows: dict[tuple[str, str], dict[str, Estimate | None]] = {}
    for group in group_runs(records.runs):
        fields = group.label.removeprefix(group.agent).removeprefix(", ")
        study = f"{group.kind}, {fields}" if fields else group.kind
        wrong = [float(column_of(run, "wrong").mean()) for run in group.counted]
        rows.setdefault((study, group.task), {})[group.agent] = mean_over_runs(wrong)
    operators = [operator for operator in OPERATORS if any(operator in row for row in rows.values())]
    cells = tuple((study, task, *(row.get(operator) for operator in operators)) for (study, task), row in rows.items())
    note = (
        "Fraction of states whose greedy action is not optimal, among the states where the choice matters. Mean over all rows of a run "
        "(over time, or over error sizes), then over runs, with Student's t interval. Lower is better."
    )
    return Table("How often the greedy action is wrong", ("study", "environment", *operators), cells, note, provenance_of(records.runs))


PART = Part("learning and planning under noise on small problems", sections, studies)
