"""Statistics for a handful of runs: every number with its n and its interval.

Scores are an array of runs x tasks: the score of one training run on one task, normalised by the caller where tasks are to be averaged.
A few runs say little about the mean of a task and less about the median over tasks, so the numbers here are those of Agarwal,
Schwarzer, Castro, Courville and Bellemare, "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021):

- the interquartile mean: the mean of the middle half of all scores, without outliers and with less noise than the median;
- the optimality gap, 1 - mean(min(score, 1)): how far from a target of 1, with no credit for what lies beyond it;
- the performance profile, the fraction of runs that score above tau, as a function of tau;
- the probability of improvement, P(X > Y) on a task, averaged over tasks: Mann and Whitney's U / (n m), a tie counting half.

Their intervals are percentiles of a stratified bootstrap: runs are drawn again with replacement, within each task on its own, because
runs are what would differ if the experiment were repeated; tasks would not. Percentile intervals of few runs are too narrow: of simulated
95% intervals for the mean of one task, 92% held the truth with 10 runs and 73% with 3; for five tasks together, 93% and 87%. Of one run no
interval can be given, and its ends are infinite.

Proportions have Wilson's interval. The statistics that the paper itself reports are in `actiongap.lab.paper_statistics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

BLOCK = 2**20
"""How many resampled scores are held in memory at once."""

ScoreKind = Literal["highest", "last", "average of last"]
AggregateKind = Literal["iqm", "optimality gap", "mean", "median"]


@dataclass(frozen=True)
class Estimate:
    """A number, how far it may be off, and what it was computed from.

    Examples
    --------
    >>> print(Estimate(12.34, 10.11, 14.22, level=0.95, n=10, tasks=5, method="by hand"))
    12.3 [10.1, 14.2] (95%, n = 10 x 5)
    """

    value: float
    low: float
    """The lower end of the interval; -inf where none can be given."""
    high: float
    """The upper end of the interval; inf where none can be given."""
    level: float
    """How often such intervals hold the truth, at best."""
    n: int
    """Runs of each task (the fewest, where agents differ), or trials of a proportion."""
    tasks: int
    method: str
    """What was computed, and where the interval comes from."""

    def __str__(self) -> str:
        width = self.high - self.low
        decimals = min(10, max(0, 1 - math.floor(math.log10(width)))) if 0 < width < math.inf else None
        value, low, high = (f"{x:.6g}" if decimals is None else f"{x:.{decimals}f}" for x in (self.value, self.low, self.high))
        runs = f"{self.n} x {self.tasks}" if self.tasks > 1 else str(self.n)
        return f"{value} [{low}, {high}] ({100 * self.level:.6g}%, n = {runs})"


@dataclass(frozen=True)
class Score:
    """One number for a learning curve, and which number it is.

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
    """The highest, the last, or the average of the last `window` scores of a learning curve, labelled as such.

    The highest of a noisy curve grows with the number of evaluations and is no estimate of what the trained agent will score.

    Examples
    --------
    >>> score([1.0, 5.0, 3.0], "highest").value
    5.0
    >>> print(score([1.0, 5.0, 3.0], "average of last", window=2))
    4 (average of last 2 of 3)
    """
    points = _numbers(curve, "the curve")
    if points.ndim != 1 or not points.size:
        raise ValueError(f"a curve is a sequence of one or more scores, not an array of shape {points.shape}: pass one run at a time.")
    if kind not in get_args(ScoreKind):
        raise ValueError(f"unknown kind of score {kind!r}: choose from {', '.join(get_args(ScoreKind))}.")
    if (window is None) == (kind == "average of last"):
        raise ValueError("the window goes with 'average of last' and with nothing else: give it there, and leave it out elsewhere.")
    if window is None:
        return Score(float(points.max() if kind == "highest" else points[-1]), kind, f"{kind} of {points.size}")
    if not 1 <= window <= points.size:
        raise ValueError(f"a window of {window} does not fit a curve of {points.size} scores: choose from 1 to {points.size}.")
    return Score(float(points[-window:].mean()), kind, f"{kind} {window} of {points.size}")


def runs_by_tasks(scores: ArrayLike) -> NDArray[np.float64]:
    """Scores as an array of runs x tasks, or one sentence about what is wrong with them.

    Examples
    --------
    >>> runs_by_tasks([[1, 2, 3], [4, 5, 6]]).shape
    (2, 3)
    """
    array = _numbers(scores, "the scores")
    if array.ndim != 2 or not array.size:
        raise ValueError(f"scores are runs x tasks, not an array of shape {array.shape}: one run of many tasks is [scores].")
    return array


def _numbers(values: ArrayLike, what: str) -> NDArray[np.float64]:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{what} are ragged or not numbers: give as many runs of every task, or compare the runs all have.") from None
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = ", ".join(map(str, bad[0]))
        raise ValueError(f"{what} hold {array[tuple(bad[0])]} at [{where}]: repeat that run, or leave it out everywhere.")
    return array


def normal_quantile(level: float) -> float:
    """The z for which a normal variable is within z standard deviations of its mean with probability `level`.

    Examples
    --------
    >>> round(normal_quantile(0.95), 6)
    1.959964
    """
    check_level(level)
    return float(stats.norm.ppf((1 + level) / 2))


def check_level(level: float) -> None:
    """Refuse a confidence level that is not between 0 and 1.

    Examples
    --------
    >>> check_level(95)
    Traceback (most recent call last):
    ValueError: a confidence level of 95 is not between 0 and 1: 95% is 0.95.
    """
    if not 0 < level < 1:
        raise ValueError(f"a confidence level of {level} is not between 0 and 1: 95% is 0.95.")


def wilson(count: int, n: int, level: float = 0.95) -> Estimate:
    """Wilson's interval for a probability of which `count` successes in `n` independent trials were seen.

    Examples
    --------
    >>> print(wilson(50, 100))
    0.50 [0.40, 0.60] (95%, n = 100)
    >>> wilson(0, 100).low
    0.0
    """
    if n < 1 or not 0 <= count <= n:
        raise ValueError(f"{count} successes in {n} trials are not a proportion: count from 0 to n, and have at least one trial.")
    z = normal_quantile(level)
    seen, spread = count / n, z * z / n
    centre = (seen + spread / 2) / (1 + spread)
    half = z * math.sqrt(seen * (1 - seen) / n + spread / (4 * n)) / (1 + spread)
    low, high = 0.0 if count == 0 else centre - half, 1.0 if count == n else centre + half
    return Estimate(seen, low, high, level, n, 1, "proportion of trials; Wilson's interval")


def bootstrap(
    statistic: Callable[..., NDArray],
    *scores: ArrayLike,
    what: str,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = 2000,
) -> list[Estimate]:
    """Any numbers computed from one or more arrays of runs x tasks, with percentile intervals of a stratified bootstrap.

    `statistic` takes as many arrays of resamples x runs x tasks as there are `scores` and gives an array of resamples x numbers. Runs
    are drawn with replacement within each task and each array on its own. Memory is bounded: see `BLOCK`.

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
        raise ValueError(f"agents were run on {[array.shape[1] for array in arrays]} tasks: compare them on the tasks they share.")
    check_level(level)
    if resamples * (1 - level) < 2:
        raise ValueError(f"{resamples} resamples are too few for a level of {level}: ask for {math.ceil(2 / (1 - level))} or more.")
    values = statistic(*(array[None] for array in arrays))[0]
    low, high = np.full((2, len(values)), [[-np.inf], [np.inf]])
    if n == 1:
        reason = np.full(len(values), "one run: no interval can be given")
    else:
        block = max(1, BLOCK // sum(array.size for array in arrays))
        counts = [min(block, resamples - start) for start in range(0, resamples, block)]
        drawn = np.concatenate([statistic(*(_draw(array, count, rng) for array in arrays)) for count in counts])
        # Between infinite values there is nothing to interpolate: where one resample has no number, there is no interval.
        whole = np.isfinite(drawn).all(axis=0)
        low[whole], high[whole] = np.quantile(drawn[:, whole], [(1 - level) / 2, (1 + level) / 2], axis=0)
        reason = np.where(
            whole, f"percentiles of {resamples} stratified bootstrap resamples", "not a number in every resample: no interval"
        )
    rows = zip(values, low, high, reason, strict=True)
    return [Estimate(float(v), float(a), float(b), level, n, tasks, f"{what}; {why}") for v, a, b, why in rows]


def _draw(array: NDArray, count: int, rng: np.random.Generator) -> NDArray:
    return np.take_along_axis(array[None], rng.integers(len(array), size=(count, *array.shape)), axis=1)


def _interquartile_mean(scores: NDArray) -> NDArray:
    ordered = np.sort(scores.reshape(len(scores), -1), axis=1)
    cut = ordered.shape[1] // 4
    return ordered[:, cut : ordered.shape[1] - cut].mean(axis=1)


AGGREGATES: dict[AggregateKind, tuple[str, Callable[[NDArray], NDArray]]] = {
    "iqm": ("mean of the middle half of all scores", _interquartile_mean),
    "optimality gap": ("1 - mean of min(score, 1)", lambda scores: 1 - np.minimum(scores, 1.0).mean(axis=(1, 2))),
    "mean": ("mean over tasks of mean scores", lambda scores: scores.mean(axis=1).mean(axis=1)),
    "median": ("median over tasks of mean scores", lambda scores: np.median(scores.mean(axis=1), axis=1)),
}
"""What each aggregate is in words, and as a function of resamples x runs x tasks."""


def aggregate(
    scores: ArrayLike, kind: AggregateKind = "iqm", *, rng: np.random.Generator, level: float = 0.95, resamples: int = 2000
) -> Estimate:
    """One number for all runs and tasks: the interquartile mean, the optimality gap, or the mean or median over tasks of mean scores.

    Examples
    --------
    >>> aggregate([[1, 2, 3, 4], [5, 6, 7, 8]], "iqm", rng=np.random.default_rng(0)).value
    4.5
    """
    if kind not in AGGREGATES:
        raise ValueError(f"unknown aggregate {kind!r}: choose from {', '.join(AGGREGATES)}.")
    what, function = AGGREGATES[kind]
    return bootstrap(lambda x: function(x)[:, None], scores, what=what, rng=rng, level=level, resamples=resamples)[0]


def performance_profile(
    scores: ArrayLike, taus: ArrayLike, *, rng: np.random.Generator, level: float = 0.95, resamples: int = 2000
) -> list[Estimate]:
    """F(tau) = the fraction of all scores above tau, for each tau, with an interval at each (not a band for the curve as a whole).

    Examples
    --------
    >>> profile = performance_profile([[0, 1], [2, 3]], taus=[-1, 0, 2.5], rng=np.random.default_rng(0))
    >>> [point.value for point in profile]
    [1.0, 0.75, 0.25]
    """
    thresholds = _numbers(taus, "the thresholds")
    if thresholds.ndim != 1 or not thresholds.size or (np.diff(thresholds) <= 0).any():
        raise ValueError("thresholds are one or more increasing numbers: sort them, and give each once.")
    # A score lies above exactly the first `above` thresholds, so counting those once stands in for comparing with each.
    above = np.searchsorted(thresholds, runs_by_tasks(scores), side="left")
    bins = thresholds.size + 1

    def fractions(counts: NDArray) -> NDArray:
        flat = counts.reshape(len(counts), -1).astype(np.intp)
        histogram = np.bincount((flat + bins * np.arange(len(flat))[:, None]).ravel(), minlength=bins * len(flat)).reshape(-1, bins)
        return histogram[:, :0:-1].cumsum(axis=1)[:, ::-1] / flat.shape[1]

    return bootstrap(fractions, above, what="fraction of scores above tau", rng=rng, level=level, resamples=resamples)


def probability_of_improvement(
    x: ArrayLike, y: ArrayLike, *, rng: np.random.Generator, level: float = 0.95, resamples: int = 2000
) -> Estimate:
    """P(X > Y) + P(X = Y) / 2 for a run of X and a run of Y on one task, averaged over tasks.

    Examples
    --------
    >>> probability_of_improvement([[1], [3]], [[2], [2]], rng=np.random.default_rng(0)).value
    0.5
    """

    def probability(x: NDArray, y: NDArray) -> NDArray:
        n, m = x.shape[1], y.shape[1]
        ranks = stats.rankdata(np.concatenate([x, y], axis=1), axis=1)[:, :n].sum(axis=1)
        return ((ranks - n * (n + 1) / 2) / (n * m)).mean(axis=1, keepdims=True)

    return bootstrap(probability, x, y, what="mean over tasks of P(X > Y), ties half", rng=rng, level=level, resamples=resamples)[0]
