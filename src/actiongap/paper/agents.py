"""The operators that deep agents learn with: the paper's three kinds, and its alphas.

Deep agents read back: which runs repeat which agent, and what each came to.

Agents are compared where they were trained alike, in everything but the operator and what tells agents apart besides. Numbers come from
agents that are done.

Two agents side by side: differences seed by seed, and one score as a part of another.

Agents with the same seed begin with the same weights and the same games, so they are compared pair by pair, with the paper's t-test. A
difference that is not seen may be there all the same: the interval says how large it could be.

How many times Bellman's score an agent has, mean(s) / mean(b), is uncertain on both sides. To first order it errs as the mean over seeds of
(s - r b) / mean(b), r being the ratio itself, so that is what Student's interval is made of.

Over games such numbers are averaged, each game's being over the pairs of runs that it has. Where all games have the same seeds, so are
their errors, seed by seed, which allows for luck that games share. Where games differ in their seeds they are taken to err independently:
their standard errors are added in quadrature, with Welch's and Satterthwaite's degrees of freedom, and where a game has one pair there is
no interval.

The paper's counts beside ours: on how many games an agent is better than another, and on how many worse.

The paper tests agents game by game, with paired t-tests at 99%, and counts. So do we, whatever our games are.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import LEVEL, Estimate, mean_over_runs, paired_t_tests, t_quantile
from actiongap.report.groups import Group, column_of, listed, run_scores, several
from actiongap.report.page import Cell

BELLMAN = "bellman"
FAMILIES = ("al", "pal-dqn")
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
"""The paper's. The theorem speaks of those below 1."""
USUAL = 0.9
"""What is shown where there is room for one alpha."""
SWEPT = {f"{family}:{alpha:g}": (family, alpha) for family in FAMILIES for alpha in ALPHAS}
"""The family and the alpha of each operator."""
OPERATORS = (BELLMAN, *SWEPT)
FEW = (BELLMAN, *(f"{family}:{USUAL:g}" for family in FAMILIES))
"""One of each kind."""


FOLLOWED = "followed"
"""The discounted rewards that followed the states that an agent met: its value less its bias."""


class Agent(NamedTuple):
    """What tells agents apart, but for the seed."""

    game: str
    operator: str
    double: bool = False
    online: bool = False
    """Whether the corrections of its operator come from the online network."""

    @property
    def name(self) -> str:
        """What it is called beside others on the same game."""
        return f"{'double ' * self.double}{self.operator}{', online' * self.online}"


Agents = Mapping[Agent, Group]
"""The runs of each agent, in the order of their seeds."""
Number = Callable[[RunRecord], float]
"""A number of a run; not a number where it has none."""


def alike(runs: Sequence[RunRecord]) -> tuple[list[RunRecord], list[RunRecord]]:
    """The runs with the settings that most have who learn with Bellman's operator, and the others.

    Examples
    --------
    >>> alike([])
    ([], [])
    """
    bellmans = [run for run in runs if run.agent == BELLMAN and not run.spec.get("double")]
    counts = Counter(map(_settings, bellmans or runs))
    usual = counts.most_common(1)[0][0] if counts else ""
    return [run for run in runs if _settings(run) == usual], [run for run in runs if _settings(run) != usual]


def _settings(run: RunRecord) -> str:
    """Everything that agents which are compared have in common."""
    own = ("env", "operator", "double", "correction_network", "seed")
    return json.dumps({name: value for name, value in run.spec.items() if name not in own}, sort_keys=True)


def counted(runs: Sequence[RunRecord]) -> str:
    """How many runs of which studies these are, in words."""
    return f"{several(len(runs), 'run')} of {listed(sorted({run.folder.parents[1].name for run in runs}))}"


def game_of(run: RunRecord) -> str:
    """The game that is played: the last part of `minatar/asterix`."""
    return run.task.rpartition("/")[2]


def agents_of(runs: Iterable[RunRecord], games: Sequence[str] = ()) -> Agents:
    """Runs by the agent they train: these games first, the others by their names, and operators in the order of the page.

    Examples
    --------
    >>> agents_of([])
    {}
    """
    gathered: dict[Agent, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        agent = Agent(game_of(run), run.agent, bool(run.spec.get("double")), run.spec.get("correction_network") == "online")
        gathered.setdefault(agent, []).append(run)
    first = {game: place for place, game in enumerate(games)}
    order = {operator: place for place, operator in enumerate(OPERATORS)}

    def place(agent: Agent) -> tuple:
        operator = order.get(agent.operator, len(order)), agent.operator
        return first.get(agent.game, len(first)), agent.game, agent.double, agent.online, *operator

    return {agent: Group("train", agent.game, agent.operator, agent.name, tuple(gathered[agent])) for agent in sorted(gathered, key=place)}


def games_of(agents: Agents) -> list[str]:
    """The games that are played, in the order of the page.

    Examples
    --------
    >>> games_of({})
    []
    """
    return list(dict.fromkeys(agent.game for agent in agents))


def column(run: RunRecord, name: str) -> NDArray[np.float64]:
    """A column of a run, or what followed."""
    return column_of(run, "value") - column_of(run, "bias") if name == FOLLOWED else column_of(run, name)


def final(name: str) -> Number:
    """The mean of a column over the last tenth of the evaluations."""
    return lambda run: run_scores(column(run, name))["average of last tenth"]


def score_of(kind: str) -> Number:
    """The score of a run in one of three ways: "average of last tenth", "last" or "highest"."""
    return lambda run: run_scores(column_of(run, "score"))[kind]


def by_seed(group: Group | None, number: Number) -> dict[int, float]:
    """A number of every run that is done and has it, by its seed.

    Examples
    --------
    >>> by_seed(None, final("score"))
    {}
    """
    runs = () if group is None else group.runs
    found = {run.seed: number(run) for run in runs if run.state == "done" and len(run.rows["step"])}
    return {seed: value for seed, value in found.items() if np.isfinite(value)}


def mean(group: Group | None, number: Number) -> Estimate | None:
    """The mean of a number over the runs that are done, with Student's t interval."""
    return mean_over_runs(list(by_seed(group, number).values()))


SURE = 0.99
"""The level of the paper's tests; `LEVEL` is the other."""
OVER_GAMES = (
    "Each game counts with the pairs of runs that it has. Where games differ in their seeds they are taken to err independently, and where "
    "one has a single pair there is no interval."
)
"""What is said of means over games."""
HIGHER, LOWER, UNSEEN, ONCE = "higher", "lower", "no difference seen", "one pair: nothing follows"


class Against(NamedTuple):
    """One agent against another in one number."""

    difference: Estimate
    """The mean of the differences between runs with the same seed, with its interval at 95%."""
    p: float
    """How often a difference at least as large would be seen if there were none; 1 where there is one pair."""
    ratio: Estimate | None
    """The one number as a part of the other; None where the other is not above zero."""

    @property
    def tested(self) -> bool:
        """Whether there are pairs enough for a test."""
        return self.difference.n > 1

    def side(self, level: float) -> str:
        """Whether the number is higher or lower at a level, or no difference is seen."""
        if not self.tested or self.p >= 1 - level:
            return UNSEEN
        return HIGHER if self.difference.value > 0 else LOWER

    @property
    def verdict(self) -> str:
        """The side with the highest level at which it is taken, in words."""
        level = next((level for level in (SURE, LEVEL) if self.side(level) != UNSEEN), None)
        return ONCE if not self.tested else UNSEEN if level is None else f"{self.side(level)}, {level:.0%}"


def compare(one: Group | None, other: Group | None, number: Number) -> Against | None:
    """How far a number of one agent is from that of another, over the seeds that both have done; None where there are none.

    Examples
    --------
    >>> compare(None, None, lambda run: 0.0)
    """
    return paired(by_seed(one, number), by_seed(other, number))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Against | None:
    """How far one number is from another, each given by seed, over the seeds that both have; None where there are none.

    Examples
    --------
    >>> paired({0: 1.0, 1: 2.0}, {2: 1.0})
    """
    seeds = [seed for seed in ours if seed in theirs]
    if not seeds:
        return None
    x, y = (np.array([[found[seed]] for seed in seeds]) for found in (ours, theirs))
    ratio = mean_over_runs(list(parts(ours, theirs).values()))
    if len(seeds) == 1:
        alone = mean_over_runs(x[0] - y[0])
        assert alone is not None
        return Against(alone, 1.0, ratio)
    [test] = paired_t_tests(x, y, level=LEVEL)
    return Against(test.difference, test.p, ratio)


def parts(ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[int, float]:
    """One number as a part of another, seed by seed: r + (s - r b) / mean(b), whose mean is r; none where mean(b) is not above zero.

    Examples
    --------
    >>> parts({0: 2.0, 1: 4.0, 2: 6.0}, {0: 2.0, 1: 2.0, 2: 2.0})
    {0: 1.0, 1: 2.0, 2: 3.0}
    """
    seeds = [seed for seed in ours if seed in theirs]
    base = sum(theirs[seed] for seed in seeds) / max(len(seeds), 1)
    if base <= 0:
        return {}
    part = sum(ours[seed] for seed in seeds) / len(seeds) / base
    return {seed: part + (ours[seed] - part * theirs[seed]) / base for seed in seeds}


def over_games(pairs: Sequence[tuple[Group | None, Group | None]], number: Number) -> Estimate | None:
    """The mean over games of one agent's number as a part of another's; None where the two have no seed in common on one of them.

    Examples
    --------
    >>> over_games([], lambda run: 0.0)
    """
    return mean_over_games([parts(by_seed(one, number), by_seed(other, number)) for one, other in pairs])


def mean_over_games(games: Sequence[Mapping[int, float]]) -> Estimate | None:
    """The mean over games of a number's mean over runs, given for each game by seed; None where a game has none.

    Examples
    --------
    >>> print(mean_over_games([{0: 1.0, 1: 3.0, 2: 2.0}, {0: 4.0, 1: 4.0}]))
    3.0 [1.8, 4.2] (95%, n = 2)
    """
    if not games or not all(games):
        return None
    if all(game.keys() == games[0].keys() for game in games):
        return mean_over_runs([float(np.mean([game[seed] for game in games])) for seed in games[0]])
    sizes, means = np.array([len(game) for game in games]), [float(np.mean(list(game.values()))) for game in games]
    value, fewest, half, why = float(np.mean(means)), int(sizes.min()), math.inf, "a game with one run: no interval can be given"
    if fewest > 1:
        errors = np.array([np.var(list(game.values()), ddof=1) for game in games]) / sizes
        degrees = errors.sum() ** 2 / (errors**2 / (sizes - 1)).sum() if errors.any() else 1.0
        half, why = t_quantile(degrees) * math.sqrt(errors.sum()) / len(games), "Welch's t interval"
    return Estimate(value, value - half, value + half, LEVEL, fewest, 1, f"mean over games of means over runs; {why}")


def against_bellman(agents: Agents, number: Number) -> dict[Agent, Against]:
    """Every other agent against the one that has Bellman's operator on the same game, where they have seeds in common."""
    found: dict[Agent, Against] = {}
    for agent, group in agents.items():
        base = Agent(agent.game, BELLMAN)
        if agent != base and (against := compare(group, agents.get(base), number)) is not None:
            found[agent] = against
    return found


class Counts(NamedTuple):
    """How many comparisons come out on either side at a level."""

    higher: int
    lower: int
    unseen: int
    level: float

    @property
    def of(self) -> int:
        """How many there are."""
        return self.higher + self.lower + self.unseen

    @property
    def by_chance(self) -> float:
        """How many would come out on each side if there were no difference anywhere."""
        return self.of * (1 - self.level) / 2

    def __str__(self) -> str:
        chance = f"by chance alone {self.by_chance:.2g} each way"
        return f"{HIGHER} in {self.higher}, {LOWER} in {self.lower}, {UNSEEN} in {self.unseen} of {self.of} ({self.level:.0%}; {chance})"


def count(found: Iterable[Against], level: float) -> Counts:
    """How many of some comparisons come out on either side.

    Examples
    --------
    >>> print(count([], 0.95))
    higher in 0, lower in 0, no difference seen in 0 of 0 (95%; by chance alone 0 each way)
    """
    sides = [against.side(level) for against in found]
    return Counts(sides.count(HIGHER), sides.count(LOWER), sides.count(UNSEEN), level)


def of_operators(found: Mapping[Agent, Against], names: Iterable[str]) -> dict[Agent, Against]:
    """The comparisons of agents of some names."""
    wanted = set(names)
    return {agent: against for agent, against in found.items() if agent.name in wanted}


ATARI = 60
"""Games of the paper."""
NAMES = dict(zip(FAMILIES, ("advantage learning", "persistent advantage learning"), strict=True))
"""What the paper calls them."""
PRINTED = {
    f"{FAMILIES[0]} beside {BELLMAN}": (37, 1),
    f"{FAMILIES[1]} beside {BELLMAN}": (35, 1),
    f"{FAMILIES[1]} beside {FAMILIES[0]}": (16, 6),
}
"""On how many of them the paper finds an agent better and worse than another, by paired t-tests at 99%."""


def pairings(agents: Agents, number: Number) -> dict[str, list[Against]]:
    """The comparisons that the paper makes, at the usual alpha: one for each game on which both agents have a seed in common.

    Examples
    --------
    >>> pairings({}, lambda run: 0.0)
    {'al beside bellman': [], 'pal-dqn beside bellman': [], 'pal-dqn beside al': []}
    """
    plain, persistent = (f"{family}:{USUAL:g}" for family in FAMILIES)
    found = against_bellman(agents, number)
    both = [compare(agents.get(Agent(game, persistent)), agents.get(Agent(game, plain)), number) for game in games_of(agents)]
    sides = (
        list(of_operators(found, [plain]).values()),
        list(of_operators(found, [persistent]).values()),
        [against for against in both if against is not None],
    )
    return dict(zip(PRINTED, sides, strict=True))


def counts_of(found: dict[str, list[Against]]) -> dict[str, Counts]:
    """How the comparisons of each pairing come out that a test can be made of.

    Examples
    --------
    >>> counts_of(pairings({}, lambda run: 0.0))["al beside bellman"].of
    0
    """
    return {what: count([against for against in some if against.tested], SURE) for what, some in found.items()}


def count_rows(numbers: Sequence[dict[str, list[Against]]]) -> list[tuple[Cell, ...]]:
    """Rows of a table: the comparison and its side, the paper's count, and ours by each of some numbers, of as many as can be tested.

    Examples
    --------
    >>> count_rows([pairings({}, lambda run: 0.0)])
    []
    """
    rows: list[tuple[Cell, ...]] = []
    for what, printed in PRINTED.items():
        counts = [counts_of(found)[what] for found in numbers]
        if any(found[what] for found in numbers):
            for side, paper, name in zip(("better", "worse"), printed, ("higher", "lower"), strict=True):
                ours = (f"{getattr(each, name)} of {each.of}" if each.of else "none tested" for each in counts)
                rows.append((f"{what}: {side}", f"{paper} of {ATARI}", *ours))
    return rows
