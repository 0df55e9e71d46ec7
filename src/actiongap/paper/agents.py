"""Deep agents: their operators, their runs, and comparisons between them.

**Operators.** Bellman, advantage learning (`al`) and its persistent form (`pal-dqn`), at every alpha of the paper's sweep.

**Runs.** Runs that differ only in the seed repeat one `Agent`. Agents are compared only if they were trained with the same configuration,
except for the operator and the other fields of `Agent`. Numbers come from finished runs.

**Comparisons.** Agents with the same seed start with the same weights and the same games, so they are paired by seed and compared with the
paper's paired t-test. If no difference is detected there may still be one; the interval shows how large it could be.

Differences, ratios and their means over games have the intervals of `lab.statistics`.

**Counts.** The paper counts the games on which an agent is better or worse than another, by paired t-tests at 99%. `count_rows` compares
its counts with ours.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import LEVEL, Estimate, mean_over_games, mean_over_runs, paired_difference, ratios_by_seed
from actiongap.reporting.groups import Group, column_of, listed, run_scores, several
from actiongap.reporting.page import Cell

BELLMAN = "bellman"
FAMILIES = ("al", "pal-dqn")
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
"""The paper's alphas. The theorem covers those below 1."""
DEFAULT_ALPHA = 0.9
"""The alpha that is shown where only one is."""
SWEEP = {f"{family}:{alpha:g}": (family, alpha) for family in FAMILIES for alpha in ALPHAS}
"""The operators of the sweep, with their family and alpha."""
OPERATORS = (BELLMAN, *SWEEP)
MAIN_OPERATORS = (BELLMAN, *(f"{family}:{DEFAULT_ALPHA:g}" for family in FAMILIES))
"""One operator of each kind."""


DISCOUNTED_RETURN = "discounted_return"
"""Discounted return from the states that an agent visits: its value minus its bias."""


class Agent(NamedTuple):
    """The fields that distinguish agents, except the seed."""

    game: str
    operator: str
    double: bool = False
    online: bool = False
    """Whether the operator's correction uses the online network."""

    @property
    def name(self) -> str:
        """A name that is unique among the agents of a game."""
        return f"{'double ' * self.double}{self.operator}{', online' * self.online}"


Agents = Mapping[Agent, Group]
"""The runs of each agent, ordered by seed."""
RunMetric = Callable[[RunRecord], float]
"""A metric of a run; NaN if the run has none."""


def split_by_config(runs: Sequence[RunRecord]) -> tuple[list[RunRecord], list[RunRecord]]:
    """Split runs into those with the most common configuration of the Bellman runs, and the others.

    Examples
    --------
    >>> split_by_config([])
    ([], [])
    """
    bellman_runs = [run for run in runs if run.agent == BELLMAN and not run.spec.get("double")]
    counts = Counter(map(_shared_config, bellman_runs or runs))
    usual = counts.most_common(1)[0][0] if counts else ""
    return [run for run in runs if _shared_config(run) == usual], [run for run in runs if _shared_config(run) != usual]


def _shared_config(run: RunRecord) -> str:
    """Return the part of the configuration that compared agents must share, as a key."""
    may_differ = ("env", "operator", "double", "correction_network", "seed")
    return json.dumps({name: value for name, value in run.spec.items() if name not in may_differ}, sort_keys=True)


def describe_runs(runs: Sequence[RunRecord]) -> str:
    """Return the number of runs and the names of their studies."""
    return f"{several(len(runs), 'run')} of {listed(sorted({run.folder.parents[1].name for run in runs}))}"


def game_of(run: RunRecord) -> str:
    """Return the game of a run: the last component of `minatar/asterix`."""
    return run.task.rpartition("/")[2]


def agents_of(runs: Iterable[RunRecord], games: Sequence[str] = ()) -> Agents:
    """Group runs by agent: `games` first, other games by name, operators in the order of the page.

    Examples
    --------
    >>> agents_of([])
    {}
    """
    runs_by_agent: dict[Agent, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        agent = Agent(game_of(run), run.agent, bool(run.spec.get("double")), run.spec.get("correction_network") == "online")
        runs_by_agent.setdefault(agent, []).append(run)
    game_order = {game: index for index, game in enumerate(games)}
    operator_order = {operator: index for index, operator in enumerate(OPERATORS)}

    def sort_key(agent: Agent) -> tuple[int | str, ...]:
        operator = operator_order.get(agent.operator, len(operator_order)), agent.operator
        return game_order.get(agent.game, len(game_order)), agent.game, agent.double, agent.online, *operator

    ordered = sorted(runs_by_agent, key=sort_key)
    return {agent: Group("train", agent.game, agent.operator, agent.name, tuple(runs_by_agent[agent])) for agent in ordered}


def games_of(agents: Agents) -> list[str]:
    """Return the games of some agents, in the order of the page.

    Examples
    --------
    >>> games_of({})
    []
    """
    return list(dict.fromkeys(agent.game for agent in agents))


def metric_column(run: RunRecord, name: str) -> NDArray[np.float64]:
    """Return a column of a run, or its discounted return."""
    return column_of(run, "value") - column_of(run, "bias") if name == DISCOUNTED_RETURN else column_of(run, name)


def final_mean(name: str) -> RunMetric:
    """Return the metric that averages a column over the last tenth of the evaluations."""
    return lambda run: run_scores(metric_column(run, name))["average of last tenth"]


def score_kind(kind: str) -> RunMetric:
    """Return the metric that summarizes the scores of a run as "average of last tenth", "last" or "highest"."""
    return lambda run: run_scores(column_of(run, "score"))[kind]


def by_seed(group: Group | None, metric: RunMetric) -> dict[int, float]:
    """Return a metric of every finished run that has it, by seed.

    Examples
    --------
    >>> by_seed(None, final_mean("score"))
    {}
    """
    runs = () if group is None else group.runs
    found = {run.seed: metric(run) for run in runs if run.state == "done" and len(run.rows["step"])}
    return {seed: value for seed, value in found.items() if np.isfinite(value)}


def mean(group: Group | None, metric: RunMetric) -> Estimate | None:
    """Return the mean of a metric over finished runs, with Student's t interval."""
    return mean_over_runs(list(by_seed(group, metric).values()))


PAPER_LEVEL = 0.99
"""The level of the paper's tests. `LEVEL` is the level of intervals."""
OVER_GAMES = (
    "Each game is averaged over its own pairs of runs. Games with different seeds are treated as independent. There is no interval if a "
    "game has a single pair."
)
"""The note on means over games."""
HIGHER, LOWER, NO_DIFFERENCE, ONE_PAIR = "higher", "lower", "no difference detected", "one pair: no test"


class Comparison(NamedTuple):
    """The comparison of two agents in one metric."""

    difference: Estimate
    """The mean difference between runs with the same seed, with its 95% interval."""
    p: float
    """The p-value of the paired t-test; 1 for a single pair."""
    ratio: Estimate | None
    """The ratio of the two means; None if the denominator is not positive."""

    @property
    def tested(self) -> bool:
        """Whether there are at least two pairs."""
        return self.difference.n > 1

    def direction(self, level: float) -> str:
        """Return whether the metric is higher or lower at a level, or no difference is detected."""
        if not self.tested or self.p >= 1 - level:
            return NO_DIFFERENCE
        return HIGHER if self.difference.value > 0 else LOWER

    @property
    def verdict(self) -> str:
        """The direction with the highest level at which it is detected, in words."""
        level = next((level for level in (PAPER_LEVEL, LEVEL) if self.direction(level) != NO_DIFFERENCE), None)
        return ONE_PAIR if not self.tested else NO_DIFFERENCE if level is None else f"{self.direction(level)}, {level:.0%}"


def compare(one: Group | None, other: Group | None, metric: RunMetric) -> Comparison | None:
    """Compare two agents in a metric over the seeds that both have finished; None if there are none.

    Examples
    --------
    >>> compare(None, None, lambda run: 0.0)
    """
    return compare_paired(by_seed(one, metric), by_seed(other, metric))


def compare_paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Comparison | None:
    """Compare two metrics, given by seed, over the seeds that both have; None if there are none.

    Examples
    --------
    >>> compare_paired({0: 1.0, 1: 2.0}, {2: 1.0})
    """
    found = paired_difference(ours, theirs)
    return None if found is None else Comparison(*found, mean_over_runs(list(ratios_by_seed(ours, theirs).values())))


def mean_ratio_over_games(pairs: Sequence[tuple[Group | None, Group | None]], metric: RunMetric) -> Estimate | None:
    """Return the mean over games of the ratio of two agents' metrics; None if they have no common seed on some game.

    Examples
    --------
    >>> mean_ratio_over_games([], lambda run: 0.0)
    """
    return mean_over_games([ratios_by_seed(by_seed(one, metric), by_seed(other, metric)) for one, other in pairs])


def compare_with_bellman(agents: Agents, metric: RunMetric) -> dict[Agent, Comparison]:
    """Compare every other agent with Bellman on the same game, where they have common seeds."""
    found: dict[Agent, Comparison] = {}
    for agent, group in agents.items():
        base = Agent(agent.game, BELLMAN)
        if agent != base and (comparison := compare(group, agents.get(base), metric)) is not None:
            found[agent] = comparison
    return found


class Counts(NamedTuple):
    """Numbers of comparisons by direction at a level."""

    higher: int
    lower: int
    no_difference: int
    level: float

    @property
    def total(self) -> int:
        """The number of comparisons."""
        return self.higher + self.lower + self.no_difference

    @property
    def expected_by_chance(self) -> float:
        """The expected number in each direction if there were no differences."""
        return self.total * (1 - self.level) / 2

    def __str__(self) -> str:
        chance = f"{self.expected_by_chance:.2g} each way by chance"
        directions = f"{HIGHER} in {self.higher}, {LOWER} in {self.lower}, {NO_DIFFERENCE} in {self.no_difference}"
        return f"{directions} of {self.total} ({self.level:.0%}; {chance})"


def count_directions(found: Iterable[Comparison], level: float) -> Counts:
    """Count comparisons by direction.

    Examples
    --------
    >>> print(count_directions([], 0.95))
    higher in 0, lower in 0, no difference detected in 0 of 0 (95%; 0 each way by chance)
    """
    directions = [comparison.direction(level) for comparison in found]
    return Counts(directions.count(HIGHER), directions.count(LOWER), directions.count(NO_DIFFERENCE), level)


def select_operators(found: Mapping[Agent, Comparison], names: Iterable[str]) -> dict[Agent, Comparison]:
    """Return the comparisons of the named agents."""
    wanted = set(names)
    return {agent: comparison for agent, comparison in found.items() if agent.name in wanted}


PAPER_GAMES = 60
"""Number of Atari games in the paper."""
PAPER_NAMES = dict(zip(FAMILIES, ("advantage learning", "persistent advantage learning"), strict=True))
"""The paper's names of the families."""
PAPER_COUNTS = {
    f"{FAMILIES[0]} against {BELLMAN}": (37, 1),
    f"{FAMILIES[1]} against {BELLMAN}": (35, 1),
    f"{FAMILIES[1]} against {FAMILIES[0]}": (16, 6),
}
"""Games on which the paper finds an agent better, and worse, than another, by paired t-tests at 99%."""


def paper_comparisons(agents: Agents, metric: RunMetric) -> dict[str, list[Comparison]]:
    """Return the paper's comparisons at the default alpha: one per game on which both agents have a common seed.

    Examples
    --------
    >>> paper_comparisons({}, lambda run: 0.0)
    {'al against bellman': [], 'pal-dqn against bellman': [], 'pal-dqn against al': []}
    """
    plain, persistent = (f"{family}:{DEFAULT_ALPHA:g}" for family in FAMILIES)
    found = compare_with_bellman(agents, metric)
    both = [compare(agents.get(Agent(game, persistent)), agents.get(Agent(game, plain)), metric) for game in games_of(agents)]
    comparisons = (
        list(select_operators(found, [plain]).values()),
        list(select_operators(found, [persistent]).values()),
        [comparison for comparison in both if comparison is not None],
    )
    return dict(zip(PAPER_COUNTS, comparisons, strict=True))


def comparison_counts(found: dict[str, list[Comparison]]) -> dict[str, Counts]:
    """Count the comparisons that can be tested by direction, at the paper's level.

    Examples
    --------
    >>> comparison_counts(paper_comparisons({}, lambda run: 0.0))["al against bellman"].total
    0
    """
    return {
        what: count_directions([comparison for comparison in comparisons if comparison.tested], PAPER_LEVEL)
        for what, comparisons in found.items()
    }


def count_rows(comparisons: Sequence[dict[str, list[Comparison]]]) -> list[tuple[Cell, ...]]:
    """Return table rows: the comparison and its direction, the paper's count, and our count for each kind of score.

    Examples
    --------
    >>> count_rows([paper_comparisons({}, lambda run: 0.0)])
    []
    """
    rows: list[tuple[Cell, ...]] = []
    for what, printed in PAPER_COUNTS.items():
        counts = [comparison_counts(found)[what] for found in comparisons]
        if any(found[what] for found in comparisons):
            for side, paper, name in zip(("better", "worse"), printed, ("higher", "lower"), strict=True):
                ours = (f"{getattr(each, name)} of {each.total}" if each.total else "none tested" for each in counts)
                rows.append((f"{what}: {side}", f"{paper} of {PAPER_GAMES}", *ours))
    return rows
