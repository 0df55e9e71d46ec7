"""Intervals and tests for a few runs: every number comes with its n and its interval.

Returns are arrays of runs x tasks: the return of one training run on one task, normalized by the caller if tasks are to be averaged.
A few runs say little about the mean of a task and less about the median over tasks, so the aggregates are those of Agarwal, Schwarzer,
Castro, Courville and Bellemare, "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021):

- the interquartile mean: the mean of the middle half of all scores, robust to outliers and less noisy than the median;
- the optimality gap, 1 - mean(min(score, 1)): the distance to a target of 1, without credit for exceeding it;
- the performance profile: the fraction of runs with a score above tau, as a function of tau;
- the probability of improvement: P(X > Y) on a task, averaged over tasks. It is Mann and Whitney's U / (n m); ties count half.

Their intervals are percentiles of a stratified bootstrap: runs are resampled with replacement within each task, because a repeated
experiment would have other runs and the same tasks. Percentile intervals of few runs are too narrow: of simulated 95% intervals for the
mean of one task, 92% contained the true mean with 10 runs and 73% with 3; for a mean over five tasks, 93% and 87%. One run has no
interval; its ends are infinite.

Means over runs have Student's t interval, means over independent groups of runs have Welch's, proportions have Wilson's interval.

The paper (Bellemare et al., 2016) compares its agents in three ways. All three are implemented here, with n and an interval added:

- a paired t-test at 99% on each game, and the number of games that come out better and worse (37 and 1 for advantage learning against
  Bellman);
- the number of games on which each agent is best; ties count for every best agent. `times_best` gives 12, 21 and 31 for the paper's table
  of 60 games, in which all three agents tie on two games, as the paper reports;
- the median and the mean improvement over Bellman: 8.4% and 27.0% for advantage learning, 9.1% and 32.5% for persistent advantage
  learning. The paper does not print the formula.

About twenty formulas were tried on the table, on all games and on six subsets: the three below, normalization by random, human and best
scores, logarithms of s / b, and 0 / 0 as zero or left out. The formulas here were found by this search, so a match suggests the paper's
formula but does not prove it.

(s - b) / b with 0 / 0 = 0, over all 60 games, has the means 27.07% and 32.54%. The second agrees with the paper to all printed digits. The
first would be printed as 27.1. The table's scores are rounded to two decimals; with unrounded scores the mean could be as low as 27.03, so
the paper's 27.0 is barely possible. The denominator keeps its sign: on the four games with a negative baseline (Double Dunk, Ice Hockey,
Skiing, Surround) an improvement counts as a loss. With |b| the means are 32.60% and 41.45%.

No formula gives the paper's two medians; (s - b) / b has 11.89% and 13.87%. (One, normalized by random scores and by the best of s, b and a
human, has 8.41% for advantage learning, and 12.56% where the paper has 9.1%.) Both of the paper's numbers occur among the values of
(s - b) / b, as the 28th smallest of the 60: 8.40% in Up and Down, 9.09% in Elevator Action. The 28th is the median of 55 values, not of 60.
The reason is unknown.

Formulas therefore have names, and each number is reported with its formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy  # scipy.stats takes a second to import and is loaded on first use
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95
"""Default confidence level."""
BLOCK = 2**20
"""Number of resampled scores that are held in memory."""

ScoreKind = Literal["highest", "last", "average of last"]
AggregateKind = Literal["iqm", "optimality gap", "mean", "median"]


@dataclass(frozen=True)
class Estimate:
    """A number with its confidence interval and sample size.

    Examples
    --------
    >>> print(Estimate(12.34, 10.11, 14.22, level=0.95, n=10, tasks=5, method="by hand"))
    12.3 [10.1, 14.2] (95%, n = 10 x 5)
    """

    value: float
    low: float
    """Lower end of the interval; -inf if there is none."""
    high: float
    """Upper end of the interval; inf if there is none."""
    level: float
    """Nominal confidence level."""
    n: int
    """Runs per task (the smallest number if agents differ), or trials of a proportion."""
    tasks: int
    method: str
    """The statistic and the method of its interval."""

    def __str__(self) -> str:
        width = self.high - self.low
        decimals = min(10, max(0, 1 - math.floor(math.log10(width)))) if 0 < width < math.inf else None
        value, low, high = (f"{x:.6g}" if decimals is None else f"{x:.{decimals}f}" for x in (self.value, self.low, self.high))
        runs = f"{self.n} x {self.tasks}" if self.tasks > 1 else str(self.n)
        return f"{value} [{low}, {high}] ({100 * self.level:.6g}%, n = {runs})"


@dataclass(frozen=True)
class Score:
    """One number for a learning curve, with a label.

    Examples
    --------
    >>> print(score([1.0, 5.0, 3.0], "last"))
    3 (last of 3)
    """

    value: float
    kind: ScoreKind
    label: str

    def __str__(self) -> str:
        return f"{self.value:.6g} ({self.label})"


def score(curve: ArrayLike, kind: ScoreKind, window: int | None = None) -> Score:
    """Return the highest score of a learning curve, the last one, or the average of the last `window`, with a label.

    The highest score of a noisy curve grows with the number of evaluations. It does not estimate the score of the trained agent.

    Examples
    --------
    >>> score([1.0, 5.0, 3.0], "highest").value
    5.0
    >>> print(score([1.0, 5.0, 3.0], "average of last", window=2))
    4 (average of last 2 of 3)
    """
    points = _numbers(curve, "the curve")
    if points.ndim != 1 or not points.size:
        raise ValueError(f"a curve is a sequence of one or more scores, not an array of shape {points.shape}: pass one run at a time")
    if kind not in get_args(ScoreKind):
        raise ValueError(f"unknown kind of score {kind!r}: choose from {', '.join(get_args(ScoreKind))}")
    if (window is None) == (kind == "average of last"):
        raise ValueError("'average of last' needs a window, and other kinds take none: pass window with 'average of last' only")
    if window is None:
        return Score(float(points.max() if kind == "highest" else points[-1]), kind, f"{kind} of {points.size}")
    if not 1 <= window <= points.size:
        raise ValueError(f"a window of {window} does not fit a curve of {points.size} scores: choose from 1 to {points.size}")
    return Score(float(points[-window:].mean()), kind, f"{kind} {window} of {points.size}")


def runs_by_tasks(scores: ArrayLike) -> NDArray[np.float64]:
    """Return scores as an array of runs x tasks, or raise ValueError.

    Examples
    --------
    >>> runs_by_tasks([[1, 2, 3], [4, 5, 6]]).shape
    (2, 3)
    """
    array = _numbers(scores, "the scores")
    if array.ndim != 2 or not array.size:
        raise ValueError(f"scores are runs x tasks, not an array of shape {array.shape}: one run of many tasks is [scores]")
    return array


def _numbers(values: ArrayLike, what: str) -> NDArray[np.float64]:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{what} are ragged or not numbers: give the same number of runs for every task") from None
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = ", ".join(map(str, bad[0]))
        raise ValueError(f"{what} hold {array[tuple(bad[0])]} at [{where}]: repeat that run, or leave it out everywhere")
    return array


def normal_quantile(level: float) -> float:
    """Return the z for which a normal variable is within z standard deviations of its mean with probability `level`.

    Examples
    --------
    >>> round(normal_quantile(0.95), 6)
    1.959964
    """
    check_level(level)
    return float(scipy.stats.norm.ppf((1 + level) / 2))


def check_level(level: float) -> None:
    """Raise ValueError unless the confidence level is between 0 and 1.

    Examples
    --------
    >>> check_level(95)
    Traceback (most recent call last):
    ValueError: a confidence level of 95 is not between 0 and 1: 95% is 0.95
    """
    if not 0 < level < 1:
        raise ValueError(f"a confidence level of {level} is not between 0 and 1: 95% is 0.95")


def wilson(count: int, n: int, level: float = 0.95) -> Estimate:
    """Return Wilson's interval for a probability, from `count` successes in `n` independent trials.

    Examples
    --------
    >>> print(wilson(50, 100))
    0.50 [0.40, 0.60] (95%, n = 100)
    >>> wilson(0, 100).low
    0.0
    """
    if n < 1 or not 0 <= count <= n:
        raise ValueError(f"{count} successes in {n} trials are not a proportion: give at least one trial, and from 0 to n successes")
    check_level(level)
    low, high = scipy.stats.binomtest(int(count), int(n)).proportion_ci(level, method="wilson")
    return Estimate(count / n, float(low), float(high), level, n, 1, "proportion of trials; Wilson's interval")


def mean_over_runs(values: Sequence[float] | NDArray[Any]) -> Estimate | None:
    """Return the mean m +/- t s / sqrt(n) over the runs with a finite value; None if there are none.

    Examples
    --------
    >>> print(mean_over_runs([1.0, 2.0, 3.0, float("nan")]))
    2.0 [-0.5, 4.5] (95%, n = 3)
    """
    numbers = np.asarray(values, dtype=np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return None
    mean, low, high = t_interval(numbers)
    why = "Student's t interval" if np.isfinite(high - low) else "one run: no interval can be given" if len(numbers) == 1 else "no interval"
    return Estimate(float(mean), float(low), float(high), LEVEL, len(numbers), 1, f"mean over runs; {why}")


def t_interval(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean over the first axis and the ends of its 95% t interval, which are infinite for one run.

    Examples
    --------
    >>> mean, low, high = t_interval(np.array([[1.0, 5.0], [3.0, 5.0]]))
    >>> mean.tolist(), low.round(2).tolist(), high.round(2).tolist()
    ([2.0, 5.0], [-10.71, 5.0], [14.71, 5.0])
    """
    n = len(values)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = values.mean(axis=0)
        if n == 1:
            return mean, mean - np.inf, mean + np.inf
        half = t_quantile(n - 1) * values.std(axis=0, ddof=1) / math.sqrt(n)
        return mean, mean - half, mean + half


def normal_interval(values: NDArray[np.float64], level: float = LEVEL) -> tuple[float, float, float]:
    """Return the mean of many values and the ends m - z s / sqrt(n) and m + z s / sqrt(n) of its normal interval.

    Examples
    --------
    >>> [round(x, 3) for x in normal_interval(np.arange(100.0))]
    [49.5, 43.814, 55.186]
    """
    mean, half = float(values.mean()), normal_quantile(level) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def welch_interval(groups: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return the mean of the means of independent groups, and the ends of its 95% t interval.

    Standard errors are added in quadrature, with Welch-Satterthwaite degrees of freedom. The ends are infinite if a group has one value.

    Examples
    --------
    >>> [round(x, 2) for x in welch_interval([[1.0, 3.0, 2.0], [4.0, 4.0]])]
    [3.0, 1.76, 4.24]
    """
    sizes, value = np.array([len(group) for group in groups]), float(np.mean([float(np.mean(group)) for group in groups]))
    if sizes.min() == 1:
        return value, -math.inf, math.inf
    errors = np.array([np.var(group, ddof=1) for group in groups]) / sizes
    degrees = errors.sum() ** 2 / (errors**2 / (sizes - 1)).sum() if errors.any() else 1.0
    half = t_quantile(degrees) * math.sqrt(errors.sum()) / len(groups)
    return value, value - half, value + half


def detectable_difference(pairs: int, level: float = LEVEL) -> float:
    """Return the smallest mean difference that a paired t-test of n pairs detects, in standard deviations of the differences.

    This is t / sqrt(n).

    It is infinite for one pair.

    Examples
    --------
    >>> [round(detectable_difference(pairs, level=0.99), 2) for pairs in (1, 2, 3, 10)]
    [inf, 45.01, 5.73, 1.03]
    """
    return t_quantile(pairs - 1, level) / math.sqrt(pairs) if pairs > 1 else math.inf


@lru_cache(maxsize=1024)
def t_quantile(degrees: float, level: float = LEVEL) -> float:
    """Return the half-width, in standard errors, of Student's t interval with this many degrees of freedom.

    Examples
    --------
    >>> round(t_quantile(9), 3)
    2.262
    """
    check_level(level)
    return float(scipy.stats.t.ppf((1 + level) / 2, degrees))


def bootstrap(
    statistic: Callable[..., NDArray[Any]],
    *scores: ArrayLike,
    what: str,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = 2000,
) -> list[Estimate]:
    """Return statistics of one or more arrays of runs x tasks, with percentile intervals of a stratified bootstrap.

    `statistic` takes one array of resamples x runs x tasks for each of `scores`, and returns an array of resamples x numbers. Runs are
    resampled with replacement, within each task and independently for each array. Memory is bounded: see `BLOCK`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> [mean] = bootstrap(lambda x: x.mean((1, 2))[:, None], rng.normal(size=(10, 5)), what="mean", rng=rng)
    >>> mean.low < mean.value < mean.high
    True
    """
    arrays = [runs_by_tasks(array) for array in scores]
    tasks, n = arrays[0].shape[1], min(len(array) for array in arrays)
    if any(array.shape[1] != tasks for array in arrays):
        raise ValueError(f"agents were run on {[array.shape[1] for array in arrays]} tasks: compare them on the tasks they share")
    check_level(level)
    if resamples * (1 - level) < 2:
        raise ValueError(f"{resamples} resamples are too few for a level of {level}: use {math.ceil(2 / (1 - level))} or more")
    values = statistic(*(array[None] for array in arrays))[0]
    low, high = np.full((2, len(values)), [[-np.inf], [np.inf]])
    if n == 1:
        reason = np.full(len(values), "one run: no interval can be given")
    else:
        block = max(1, BLOCK // sum(array.size for array in arrays))
        counts = [min(block, resamples - start) for start in range(0, resamples, block)]
        drawn = np.concatenate([statistic(*(_draw(array, count, rng) for array in arrays)) for count in counts])
        # Infinite values cannot be interpolated, so a number that is not finite in every resample has no interval.
        finite = np.isfinite(drawn).all(axis=0)
        low[finite], high[finite] = np.quantile(drawn[:, finite], [(1 - level) / 2, (1 + level) / 2], axis=0)
        reason = np.where(
            finite, f"percentiles of {resamples} stratified bootstrap resamples", "not a number in every resample: no interval"
        )
    rows = zip(values, low, high, reason, strict=True)
    return [Estimate(float(v), float(a), float(b), level, n, tasks, f"{what}; {why}") for v, a, b, why in rows]


def _draw(array: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return np.take_along_axis(array[None], rng.integers(len(array), size=(count, *array.shape)), axis=1)


def _interquartile_mean(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    ordered = np.sort(scores.reshape(len(scores), -1), axis=1)
    cut = ordered.shape[1] // 4
    return ordered[:, cut : ordered.shape[1] - cut].mean(axis=1)


AGGREGATES: dict[AggregateKind, tuple[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]]] = {
    "iqm": ("mean of the middle half of all scores", _interquartile_mean),
    "optimality gap": ("1 - mean of min(score, 1)", lambda scores: 1 - np.minimum(scores, 1.0).mean(axis=(1, 2))),
    "mean": ("mean over tasks of mean scores", lambda scores: scores.mean(axis=1).mean(axis=1)),
    "median": ("median over tasks of mean scores", lambda scores: np.median(scores.mean(axis=1), axis=1)),
}
"""Description of each aggregate, and its function of resamples x runs x tasks."""


def aggregate(
    scores: ArrayLike, kind: AggregateKind = "iqm", *, rng: np.random.Generator, level: float = 0.95, resamples: int = 2000
) -> Estimate:
    """Return one number for all runs and tasks: the interquartile mean, the optimality gap, or the mean or median of the tasks' means.

    Examples
    --------
    >>> aggregate([[1, 2, 3, 4], [5, 6, 7, 8]], "iqm", rng=np.random.default_rng(0)).value
    4.5
    """
    if kind not in AGGREGATES:
        raise ValueError(f"unknown aggregate {kind!r}: choose from {', '.join(AGGREGATES)}")
    what, function = AGGREGATES[kind]
    return bootstrap(lambda x: function(x)[:, None], scores, what=what, rng=rng, level=level, resamples=resamples)[0]


def performance_profile(
    scores: ArrayLike, taus: ArrayLike, *, rng: np.random.Generator, level: float = 0.95, resamples: int = 2000
) -> list[Estimate]:
    """Return F(tau), the fraction of all scores above tau, for each tau. The intervals are pointwise, not a band for the curve.

    Examples
    --------
    >>> profile = performance_profile([[0, 1], [2, 3]], taus=[-1, 0, 2.5], rng=np.random.default_rng(0))
    >>> [point.value for point in profile]
    [1.0, 0.75, 0.25]
    """
    thresholds = _numbers(taus, "the thresholds")
    if thresholds.ndim != 1 or not thresholds.size or (np.diff(thresholds) <= 0).any():
        raise ValueError("thresholds must be increasing numbers, at least one: sort them, and remove duplicates")
    # A score is above exactly the first `above` thresholds, so it is enough to count these numbers.
    above = np.searchsorted(thresholds, runs_by_tasks(scores), side="left")
    bins = thresholds.size + 1

    def fractions(counts: NDArray[np.float64]) -> NDArray[np.float64]:
        flat = counts.reshape(len(counts), -1).astype(np.intp)
        histogram = np.bincount((flat + bins * np.arange(len(flat))[:, None]).ravel(), minlength=bins * len(flat)).reshape(-1, bins)
        return histogram[:, :0:-1].cumsum(axis=1)[:, ::-1] / flat.shape[1]

    return bootstrap(fractions, above, what="fraction of scores above tau", rng=rng, level=level, resamples=resamples)


def probability_of_improvement(
    x: ArrayLike, y: ArrayLike, *, rng: np.random.Generator, level: float = 0.95, resamples: int = 2000
) -> Estimate:
    """Return P(X > Y) + P(X = Y) / 2 for a run of X and a run of Y on one task, averaged over tasks.

    Examples
    --------
    >>> probability_of_improvement([[1], [3]], [[2], [2]], rng=np.random.default_rng(0)).value
    0.5
    """

    def probability(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        n, m = x.shape[1], y.shape[1]
        ranks = scipy.stats.rankdata(np.concatenate([x, y], axis=1), axis=1)[:, :n].sum(axis=1)
        return ((ranks - n * (n + 1) / 2) / (n * m)).mean(axis=1, keepdims=True)

    return bootstrap(probability, x, y, what="mean over tasks of P(X > Y), ties half", rng=rng, level=level, resamples=resamples)[0]


Verdict = Literal["better", "worse", "undecided"]


@dataclass(frozen=True)
class Comparison:
    """A paired t-test on one task."""

    task: str
    verdict: Verdict
    difference: Estimate
    """Mean of x - y over pairs of runs."""
    t: float
    """The t statistic; infinite if all differences are equal and not zero."""
    p: float
    """The p-value: of the t-test, or of the sign test if t is infinite."""


@dataclass(frozen=True)
class Tally:
    """Number of tasks on which an agent is better or worse than another, by paired t-tests.

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
    """Expected number of tasks found better, and of tasks found worse, if no task had a difference."""

    def __str__(self) -> str:
        better, worse, tasks = round(self.better.value), round(self.worse.value), self.better.tasks
        size = f"{100 * self.better.level:.6g}%, n = {self.better.n} x {tasks}; by chance alone {self.by_chance:.2g} each way"
        return f"{better} better, {worse} worse, {tasks - better - worse} undecided ({size})"


def paired_t_tests(x: ArrayLike, y: ArrayLike, *, level: float = 0.99, tasks: Sequence[str] | None = None) -> list[Comparison]:
    """Test on each task whether mean(x - y) over pairs of runs differs from 0.

    Row i of `x` is paired with row i of `y`, for example by seed. There is no correction for multiple tests.

    If all differences of a task are equal, a t-test is undefined, and the sign test is used. Its p-value is 2^(1 - n), or 1 if the
    differences are zero. The median lies between the smallest and the largest difference with confidence 1 - 2^(1 - n). If this reaches the
    level, the interval has zero width; otherwise it is infinite.

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
        raise ValueError(f"{x.shape} and {y.shape} runs x tasks cannot be paired: keep the runs and tasks that both have")
    n, count = x.shape
    if n < 2:
        raise ValueError("a t-test needs at least two runs per task: run more seeds")
    names = [str(i) for i in range(count)] if tasks is None else list(tasks)
    if len(names) != count:
        raise ValueError(f"{len(names)} names for {count} tasks: give one name for each column")
    check_level(level)
    difference = x - y
    # Differences are equal if they differ by rounding errors only, for example if every run scores zero.
    rounding = 1e-12 * np.maximum(np.abs(x), np.abs(y)).max(axis=0)
    equal = np.ptp(difference, axis=0) <= rounding
    mean = difference.mean(axis=0)
    mean[equal & (np.abs(mean) <= rounding)] = 0.0
    one_sign = 2.0 ** (1 - n)
    half_width = 0.0 if one_sign < 1 - level else np.inf
    low, high = mean - half_width, mean + half_width
    t, p = np.where(mean == 0, 0.0, np.copysign(np.inf, mean)), np.where(mean == 0, 1.0, one_sign)
    if not equal.all():
        test = scipy.stats.ttest_rel(x[:, ~equal], y[:, ~equal], axis=0)
        low[~equal], high[~equal] = test.confidence_interval(level)
        t[~equal], p[~equal] = test.statistic, test.pvalue
    by_sign = "the sign test's interval" if half_width == 0 else "all equal, and too few: no interval can be given"
    rows = []
    for i, name in enumerate(names):
        method = "mean difference of paired runs; " + (by_sign if equal[i] else "Student's t interval")
        verdict: Verdict = "better" if low[i] > 0 else "worse" if high[i] < 0 else "undecided"
        estimate = Estimate(float(mean[i]), float(low[i]), float(high[i]), level, n, 1, method)
        rows.append(Comparison(name, verdict, estimate, float(t[i]), float(p[i])))
    return rows


class PairedDifference(NamedTuple):
    """The difference of two sets of runs that are paired by seed."""

    difference: Estimate
    """The mean difference, with Student's t interval; that of the sign test if all differences are equal."""
    p: float
    """The p-value of the paired t-test; 1 for a single pair."""


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> PairedDifference | None:
    """Compare two metrics, given by seed, over the seeds that both have; None if there are none. Values that are not finite are left out.

    Examples
    --------
    >>> found = paired_difference({0: 1.0, 1: 2.0, 2: 3.0}, {0: 0.0, 1: 0.0, 2: 0.0, 3: 9.0})
    >>> print(found.difference)
    2.0 [-0.5, 4.5] (95%, n = 3)
    """
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs and np.isfinite(ours[seed] + theirs[seed])]
    if len(pairs) == 1:
        difference = mean_over_runs([pairs[0][0] - pairs[0][1]])
        return None if difference is None else PairedDifference(difference, 1.0)
    if not pairs:
        return None
    x, y = np.array(pairs).T[:, :, None]
    [test] = paired_t_tests(x, y, level=LEVEL)
    return PairedDifference(test.difference, test.p)


def ratios_by_seed(ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[int, float]:
    """Return the terms r + (s - r b) / mean(b) by seed, whose mean is the ratio r = mean(s) / mean(b); empty if mean(b) <= 0.

    The ratio is uncertain in both means. To first order its error is the mean over seeds of (s - r b) / mean(b), so Student's interval of
    the terms is the interval of the ratio.

    Examples
    --------
    >>> ratios_by_seed({0: 2.0, 1: 4.0, 2: 6.0}, {0: 2.0, 1: 2.0, 2: 2.0})
    {0: 1.0, 1: 2.0, 2: 3.0}
    """
    seeds = [seed for seed in ours if seed in theirs]
    base = sum(theirs[seed] for seed in seeds) / max(len(seeds), 1)
    if base <= 0:
        return {}
    ratio = sum(ours[seed] for seed in seeds) / len(seeds) / base
    return {seed: ratio + (ours[seed] - ratio * theirs[seed]) / base for seed in seeds}


def mean_over_games(games: Sequence[Mapping[int, float]]) -> Estimate | None:
    """Return the mean over games of means over runs, given by seed for each game; None if a game has no runs.

    If all games have the same seeds, the numbers are averaged by seed first. This accounts for noise that games share. Otherwise games are
    treated as independent, with `welch_interval`; there is no interval if a game has a single run.

    Examples
    --------
    >>> print(mean_over_games([{0: 1.0, 1: 3.0, 2: 2.0}, {0: 4.0, 1: 4.0}]))
    3.0 [1.8, 4.2] (95%, n = 2)
    """
    if not games or not all(games):
        return None
    if all(game.keys() == games[0].keys() for game in games):
        return mean_over_runs([float(np.mean([game[seed] for game in games])) for seed in games[0]])
    value, low, high = welch_interval([list(game.values()) for game in games])
    fewest = min(map(len, games))
    why = "Welch's t interval" if fewest > 1 else "a game has one run: no interval"
    return Estimate(value, low, high, LEVEL, fewest, 1, f"mean over games of means over runs; {why}")


def tally(comparisons: Sequence[Comparison]) -> Tally:
    """Count the tasks that are better and worse, with Wilson's intervals, which treat the tasks as a sample of many more.

    Examples
    --------
    >>> [row] = paired_t_tests([[1.0], [1.2]], [[0.1], [0.1]])
    >>> tally([row] * 60).better.value
    0.0
    """
    if not comparisons:
        raise ValueError("there are no comparisons to count: compare at least one task")
    level, n, tasks = comparisons[0].difference.level, comparisons[0].difference.n, len(comparisons)

    def count(verdict: Verdict) -> Estimate:
        fraction = wilson(sum(row.verdict == verdict for row in comparisons), tasks, level)
        method = f"tasks found {verdict} by a paired t-test; Wilson's interval over tasks"
        return Estimate(tasks * fraction.value, tasks * fraction.low, tasks * fraction.high, level, n, tasks, method)

    return Tally(count("better"), count("worse"), tasks * (1 - level) / 2)


def times_best(
    agents: Mapping[str, ArrayLike], *, rng: np.random.Generator, level: float = 0.95, resamples: int = 2000
) -> dict[str, Estimate]:
    """Count the tasks on which each agent has the highest mean score. Ties count for every best agent.

    Examples
    --------
    >>> best = times_best(paper_table().scores, rng=np.random.default_rng(0))
    >>> {name: best[name].value for name in best}
    {'Bellman': 12.0, 'advantage learning': 21.0, 'persistent advantage learning': 31.0}
    """
    if not agents:
        raise ValueError("there are no agents to compare: give at least one")

    def counts(*scores: NDArray[np.float64]) -> NDArray[np.intp]:
        means = np.stack([array.mean(axis=1) for array in scores], axis=1)
        return (means == means.max(axis=1, keepdims=True)).sum(axis=2)

    what = "tasks on which the mean score is the highest of all, ties counting for each"
    return dict(zip(agents, bootstrap(counts, *agents.values(), what=what, rng=rng, level=level, resamples=resamples), strict=True))


class Formula(NamedTuple):
    """An improvement of a score s over a baseline b."""

    text: str
    denominator: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
    """Function of s and b by which (s - b) is divided. If s = b, the improvement is zero."""


FORMULAS = {
    "ratio": Formula("(s - b) / b", lambda s, b: b),
    "relative": Formula("(s - b) / |b|", lambda s, b: np.abs(b)),
    "symmetric": Formula("(s - b) / max(|s|, |b|)", lambda s, b: np.maximum(np.abs(s), np.abs(b))),
}
"""The means of `ratio` are the nearest to the paper's. `relative` has the right sign for a negative baseline. `symmetric` is always
defined: from -1 to 1 if the signs agree, from -2 to 2 otherwise, and it changes sign if s and b are exchanged."""


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
    """Return the median or mean over tasks of the improvement of mean scores over a baseline, in percent.

    `method` of the estimate names the formula. The module docstring compares these numbers with the paper's.

    Examples
    --------
    >>> table = paper_table().scores
    >>> mean = improvement(table["advantage learning"], table["Bellman"], "mean", rng=np.random.default_rng(0))
    >>> print(f"{mean}: {mean.method}")
    27.0678 [-inf, inf] (95%, n = 1 x 60): mean over tasks of 100 (s - b) / b; one run: no interval can be given
    """
    if formula not in FORMULAS:
        raise ValueError(f"unknown formula {formula!r}: choose from {', '.join(FORMULAS)}")
    if over_tasks not in ("median", "mean"):
        raise ValueError(f"unknown summary {over_tasks!r}: choose median or mean")
    text, denominator = FORMULAS[formula]
    summary = np.median if over_tasks == "median" else np.mean

    def ratios(s: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
        s, b = s.mean(axis=-2), b.mean(axis=-2)
        # A resample of the baseline may be zero; `bootstrap` then gives no interval.
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(s == b, 0.0, (s - b) / denominator(s, b))

    def percent(s: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore"):
            return 100 * summary(ratios(s, b), axis=1, keepdims=True)

    what = f"{over_tasks} over tasks of 100 {text}"
    [estimate] = bootstrap(percent, scores, baseline, what=what, rng=rng, level=level, resamples=resamples)
    undefined = np.flatnonzero(~np.isfinite(ratios(runs_by_tasks(scores), runs_by_tasks(baseline))))
    if undefined.size:
        raise ValueError(f"the baseline of task {undefined[0]} is 0, where {text} has no value: use the formula 'symmetric'")
    return estimate


class PaperTable(NamedTuple):
    """The highest scores of the paper's agents. Each is an average of three runs; only the average is published."""

    games: tuple[str, ...]
    scores: dict[str, NDArray[np.float64]]
    """One row of 60 columns per agent."""


def paper_table() -> PaperTable:
    """Return the paper's table of results: three agents on 60 Atari games, trained as Mnih et al. (2015) did.

    Examples
    --------
    >>> paper_table().games[0], paper_table().scores["Bellman"][0, 0].item()
    ('Asterix', 6074.98)
    """
    # Every command that shows statistics imports this module, and `envs` imports Gymnasium.
    from actiongap.envs.atari import atari_games

    rows = atari_games()
    columns = {
        "Bellman": "paper_bellman",
        "advantage learning": "paper_advantage_learning",
        "persistent advantage learning": "paper_persistent_al",
    }
    scores = {name: np.array([[float(row[column]) for row in rows]]) for name, column in columns.items()}
    return PaperTable(tuple(row["game"] for row in rows), scores)
