"""The statistics of the paper: paired t-tests, times best, and improvement over a baseline.

The paper (Bellemare et al., 2016) compares its agents in three ways, all kept here as they were, with n and an interval added:

- a paired t-test at 99% on each game, and how many games come out better and worse (37 and 1 for advantage learning over Bellman);
- how often each agent is the best of all, ties counting for every best: 12, 21 and 31 in its table of 60 games, where two games are
  tied by all three, and that is what `times_best` gives for the table;
- the median and the mean improvement over Bellman, 8.4% and 27.0% for advantage learning, 9.1% and 32.5% for its persistent form, by a
  formula that it does not print.

Some twenty formulas were tried on the table, over all games and over six subsets of them: the three below, normalisation by random and by
human scores and by the best score, logarithms of s / b, with 0 / 0 as zero or left out. So what follows was found by searching, and a
match is a likely reading of the paper, not a proof of what it did.

(s - b) / b with 0 / 0 = 0, over all 60 games, has the means 27.07% and 32.54%. The second is the paper's to the digit. The first would
print as 27.1; scores before rounding to two decimals can bring it to 27.03 and no lower, so the paper's 27.0 is within reach, if only
just. The denominator keeps its sign: in the four games with a negative baseline (Double Dunk, Ice Hockey, Skiing, Surround) an
improvement counts as a loss. With |b| the means are 32.60% and 41.45%.

No formula tried gives the paper's two medians; (s - b) / b has 11.89% and 13.87%. (One, normalised by random scores and by the best of s,
b and a human, has 8.41% for advantage learning, and 12.56% where the paper has 9.1%.) Both of the paper's numbers do occur among the
values of (s - b) / b, as the 28th smallest of the 60: 8.40% in Up and Down, 9.09% in Elevator Action. The 28th is the middle of 55 values,
and of 60 it is not. Why is not known.

Formulas are therefore named, and each number is given with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from actiongap.envs.atari import atari_games
from actiongap.lab.statistics import Estimate, bootstrap, check_level, runs_by_tasks, wilson

Verdict = Literal["better", "worse", "undecided"]


@dataclass(frozen=True)
class Comparison:
    """A paired t-test on one task."""

    task: str
    verdict: Verdict
    difference: Estimate
    """The mean of x - y over pairs of runs."""
    t: float
    """Infinite where all differences are alike and not zero."""
    p: float
    """How often |t| would be as large if x and y were no different; where t is infinite, how often all differences had one sign."""


@dataclass(frozen=True)
class Tally:
    """On how many tasks an agent is better and worse than another, as paired t-tests have it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal([5, 0, 0, 0], size=(10, 4)), rng.normal(size=(10, 4))
    >>> print(tally(paired_t_tests(x, y)))
    1 better, 0 worse, 3 undecided (99%, n = 10 x 4; by chance alone 0.02 each way)
    """

    better: Estimate
    worse: Estimate
    by_chance: float
    """How many would come out better, and how many worse, if there were no difference anywhere."""

    def __str__(self) -> str:
        better, worse, tasks = round(self.better.value), round(self.worse.value), self.better.tasks
        size = f"{100 * self.better.level:.6g}%, n = {self.better.n} x {tasks}; by chance alone {self.by_chance:.2g} each way"
        return f"{better} better, {worse} worse, {tasks - better - worse} undecided ({size})"


def paired_t_tests(x: ArrayLike, y: ArrayLike, *, level: float = 0.99, tasks: Sequence[str] | None = None) -> list[Comparison]:
    """Whether mean(x - y) over pairs of runs differs from 0 by more than chance allows, task by task.

    Row i of `x` is paired with row i of `y`, say by seed. Each task is tested on its own, with no correction for their number.

    Differences that are all alike have no spread for a t-test, and are judged by the sign test instead: n of them have one sign with
    p = 2^(1 - n), or p = 1 if they are zero. The median lies between the least and the largest difference with confidence 1 - 2^(1 - n),
    so the interval has no width where that is enough for the level, and no ends where it is not.

    Examples
    --------
    >>> [[two], [ten]] = (paired_t_tests(np.ones((n, 1)), np.zeros((n, 1))) for n in (2, 10))
    >>> two.verdict, two.p, ten.verdict, str(ten.difference)
    ('undecided', 0.5, 'better', '1 [1, 1] (99%, n = 10)')
    >>> sleep = paired_t_tests([[1.9], [0.8], [1.1], [0.1]], [[0.7], [-1.6], [-0.2], [-1.2]], tasks=["sleep"])
    >>> sleep[0].verdict, str(sleep[0].difference)
    ('undecided', '1.6 [-0.1, 3.2] (99%, n = 4)')
    """
    x, y = runs_by_tasks(x), runs_by_tasks(y)
    if x.shape != y.shape:
        raise ValueError(f"{x.shape} and {y.shape} runs x tasks cannot be paired: keep the runs and tasks that both have.")
    n, count = x.shape
    if n < 2:
        raise ValueError("a t-test needs two runs or more of each task: run more seeds.")
    names = [str(i) for i in range(count)] if tasks is None else list(tasks)
    if len(names) != count:
        raise ValueError(f"{len(names)} names for {count} tasks: give one name for each column.")
    check_level(level)
    difference = x - y
    # Differences that are all alike, as where every run scores zero, have no spread to compare with, nor has their rounding.
    rounding = 1e-12 * np.maximum(np.abs(x), np.abs(y)).max(axis=0)
    alike = np.ptp(difference, axis=0) <= rounding
    mean = difference.mean(axis=0)
    mean[alike & (np.abs(mean) <= rounding)] = 0.0
    one_sign = 2.0 ** (1 - n)
    reach = 0.0 if one_sign < 1 - level else np.inf
    low, high = mean - reach, mean + reach
    t, p = np.where(mean == 0, 0.0, np.copysign(np.inf, mean)), np.where(mean == 0, 1.0, one_sign)
    if not alike.all():
        test = stats.ttest_rel(x[:, ~alike], y[:, ~alike], axis=0)
        low[~alike], high[~alike] = test.confidence_interval(level)
        t[~alike], p[~alike] = test.statistic, test.pvalue
    by_sign = "the sign test's interval" if reach == 0 else "all alike, and too few: no interval can be given"
    rows = []
    for i, name in enumerate(names):
        method = "mean difference of paired runs; " + (by_sign if alike[i] else "Student's t interval")
        verdict: Verdict = "better" if low[i] > 0 else "worse" if high[i] < 0 else "undecided"
        estimate = Estimate(float(mean[i]), float(low[i]), float(high[i]), level, n, 1, method)
        rows.append(Comparison(name, verdict, estimate, float(t[i]), float(p[i])))
    return rows


def tally(comparisons: Sequence[Comparison]) -> Tally:
    """How many tasks are better and worse, with Wilson's intervals over tasks: as if the tasks had been drawn from many more.

    Examples
    --------
    >>> [row] = paired_t_tests([[1.0], [1.2]], [[0.1], [0.1]])
    >>> tally([row] * 60).better.value
    0.0
    """
    if not comparisons:
        raise ValueError("there are no comparisons to count: compare one task or more.")
    level, n, tasks = comparisons[0].difference.level, comparisons[0].difference.n, len(comparisons)

    def count(verdict: Verdict) -> Estimate:
        share = wilson(sum(row.verdict == verdict for row in comparisons), tasks, level)
        method = f"tasks found {verdict} by a paired t-test; Wilson's interval over tasks"
        return Estimate(tasks * share.value, tasks * share.low, tasks * share.high, level, n, tasks, method)

    return Tally(count("better"), count("worse"), tasks * (1 - level) / 2)


def times_best(
    agents: Mapping[str, ArrayLike], *, rng: np.random.Generator, level: float = 0.95, resamples: int = 2000
) -> dict[str, Estimate]:
    """On how many tasks each agent has the highest mean score; a tie counts for all who share it.

    Examples
    --------
    >>> best = times_best(paper_table().scores, rng=np.random.default_rng(0))
    >>> {name: best[name].value for name in best}
    {'Bellman': 12.0, 'advantage learning': 21.0, 'persistent advantage learning': 31.0}
    """
    if not agents:
        raise ValueError("there are no agents to choose the best of: give one or more.")

    def counts(*scores: NDArray) -> NDArray:
        means = np.stack([array.mean(axis=1) for array in scores], axis=1)
        return (means == means.max(axis=1, keepdims=True)).sum(axis=2)

    what = "tasks on which the mean score is the highest of all, ties counting for each"
    return dict(zip(agents, bootstrap(counts, *agents.values(), what=what, rng=rng, level=level, resamples=resamples), strict=True))


class Formula(NamedTuple):
    """An improvement of a score s over a baseline b."""

    text: str
    denominator: Callable[[NDArray, NDArray], NDArray]
    """Of s and b; what (s - b) is divided by. Where s = b the improvement is zero whatever this is."""


FORMULAS = {
    "ratio": Formula("(s - b) / b", lambda s, b: b),
    "relative": Formula("(s - b) / |b|", lambda s, b: np.abs(b)),
    "symmetric": Formula("(s - b) / max(|s|, |b|)", lambda s, b: np.maximum(np.abs(s), np.abs(b))),
}
"""`ratio` is the one whose means come nearest to the paper's; `relative` has the right sign at a negative baseline; `symmetric` has a
value everywhere, between -1 and 1 where the signs agree and -2 and 2 where they do not, and changes its sign when s and b change places."""


def improvement(
    scores: ArrayLike,
    baseline: ArrayLike,
    over_tasks: Literal["median", "mean"],
    formula: str = "ratio",
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = 2000,
) -> Estimate:
    """The median or mean over tasks of the improvement of mean scores over a baseline's, in percent, with the formula in its method.

    The first lines of this module say which of the paper's numbers these are, and which not.

    Examples
    --------
    >>> table = paper_table().scores
    >>> mean = improvement(table["advantage learning"], table["Bellman"], "mean", rng=np.random.default_rng(0))
    >>> print(f"{mean}: {mean.method}")
    27.0678 [-inf, inf] (95%, n = 1 x 60): mean over tasks of 100 (s - b) / b; one run: no interval can be given
    """
    if formula not in FORMULAS:
        raise ValueError(f"unknown formula {formula!r}: choose from {', '.join(FORMULAS)}.")
    if over_tasks not in ("median", "mean"):
        raise ValueError(f"unknown summary {over_tasks!r}: choose median or mean.")
    text, denominator = FORMULAS[formula]
    summary = np.median if over_tasks == "median" else np.mean

    def ratios(s: NDArray, b: NDArray) -> NDArray:
        s, b = s.mean(axis=-2), b.mean(axis=-2)
        # A resample of a baseline may be zero where the baseline is not; `bootstrap` then gives no interval.
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(s == b, 0.0, (s - b) / denominator(s, b))

    def percent(s: NDArray, b: NDArray) -> NDArray:
        with np.errstate(invalid="ignore"):
            return 100 * summary(ratios(s, b), axis=1, keepdims=True)

    what = f"{over_tasks} over tasks of 100 {text}"
    [estimate] = bootstrap(percent, scores, baseline, what=what, rng=rng, level=level, resamples=resamples)
    undefined = np.flatnonzero(~np.isfinite(ratios(runs_by_tasks(scores), runs_by_tasks(baseline))))
    if undefined.size:
        raise ValueError(f"the baseline of task {undefined[0]} is 0, where {text} has no value: use the formula 'symmetric'.")
    return estimate


class PaperTable(NamedTuple):
    """The highest scores of the paper's agents, each an average of three runs, of which only the average is known."""

    games: tuple[str, ...]
    scores: dict[str, NDArray[np.float64]]
    """One row of 60 columns for each agent."""


def paper_table() -> PaperTable:
    """The paper's table of results: three agents on 60 Atari games, trained as Mnih et al. (2015) did.

    Examples
    --------
    >>> paper_table().games[0], paper_table().scores["Bellman"][0, 0].item()
    ('Asterix', 6074.98)
    """
    rows = atari_games()
    columns = {
        "Bellman": "paper_bellman",
        "advantage learning": "paper_advantage_learning",
        "persistent advantage learning": "paper_persistent_al",
    }
    scores = {name: np.array([[float(row[column]) for row in rows]]) for name, column in columns.items()}
    return PaperTable(tuple(row["game"] for row in rows), scores)
