"""Figure 1 of the paper, the cake: each operator's action gap, and whether a wider gap helps when Q is noisy.

In x1, eating cake pays 1 and leads, with probability 1/2, to an absorbing bad state; abstaining is better by epsilon. The Bellman operator
leaves an action gap of epsilon. The other operators may widen it without changing the optimal action. The limits are known exactly
(`cake_values`), so every computed limit is compared with its closed form. Three noise experiments then ask whether a wider gap prevents
mistakes: it does when errors are added to a converged Q, it cannot when the model is wrong, and it need not when Q is learned from samples.

`run` computes everything and writes it to a folder, `load` reads it back, and `sections`, `table` and `noise_table` show it. Each kind of
noise has a fixed seed, so computing a scale again gives the same numbers and the same picture.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from actiongap._files import make_directory, write_bytes, write_text
from actiongap._suggest import choose_from
from actiongap.lab.provenance import describe, line, versions
from actiongap.paper.cake_figure import figure
from actiongap.paper.cake_values import (
    EPSILON,
    FORMULAS,
    GAMMA,
    OPERATORS,
    Q_STAT,
    REWARD_NOISE,
    SIGMAS,
    STEP,
    CakeResult,
    FixedPoint,
    GaussianNoise,
    Interval,
    LearningNoise,
    ModelNoise,
    Value,
    ends,
    estimated_models,
    fixed_point,
    gaussian_noise,
    learn,
)
from actiongap.paper.parts import Part, Progress, Scale
from actiongap.reporting.figures import image
from actiongap.reporting.page import Cell, Chart, Picture, Prose, Provenance, Section, Series, Table

if TYPE_CHECKING:
    from rich.table import Table as TextTable


STEP_SIZES = {"bellman": (STEP, STEP / 10), "consistent": (STEP, STEP / 10)}
"""Step sizes, for operators with more than one. The smaller one shows the effect of longer averaging alone."""
VALUE_CHOICES: dict[str, tuple[Value, ...]] = {"bellman": ("max", "abstain")}
"""Estimates of V(x1), for operators with more than one. Bellman without the maximum shows the effect of its bias."""
SEEDS = {"gaussian_noise": 1, "estimated_models": 2, "learning": 3}
LIMITS = (*OPERATORS, Q_STAT)
"""Everything whose limit is compared with its closed form."""
KINDS = ("fixed_points", "gaussian_noise", "estimated_models", "learning")
"""The kinds of rows: fields of `CakeResult` and keys of `cake.json`."""


class Size(NamedTuple):
    """How much to compute at a scale."""

    gammas: tuple[float, ...]
    epsilons: tuple[float, ...]
    draws: int
    """Errors drawn per sigma."""
    samples: tuple[int, ...]
    """Transitions per action from which a model is estimated."""
    models: int
    """Estimated models per number of samples."""
    runs: int
    """Independent learners per operator."""
    burn_in: int
    """Discarded time constants of learning, 1 / (step (1 - gamma)) steps each."""
    steps: int
    """Recorded steps per learner."""


SAMPLES = (10, 30, 100, 300, 1000)
SCALES = {
    "smoke": Size((0.5, 0.9), (0.1,), 1000, (100,), 200, 50, 1, 100),
    "laptop": Size((0.1, 0.5, 0.9, 0.99), (0.01, 0.1, 1.0), 10_000, SAMPLES, 2000, 400, 5, 1000),
    "gpu": Size((0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99), (0.01, 0.1, 1.0), 100_000, SAMPLES, 5000, 1000, 10, 2000),
    "paper": Size((*(k / 20 for k in range(1, 20)), 0.99), (0.01, 0.1, 1.0), 1_000_000, SAMPLES, 10_000, 2000, 10, 4000),
}
"""Every scale runs on one core: seconds, half a minute, a minute, a few minutes."""


def run(scale: str, out: str | Path, progress: Callable[[str, float], None] | None = None) -> CakeResult:
    """Compute everything and write `cake.csv`, `cake.png`, `cake.svg` and `cake.json` into the folder `out`.

    Parameters
    ----------
    scale
        `smoke`, `laptop`, `gpu` or `paper`.
    out
        A folder. It is created if it does not exist.
    progress
        Called after each step with its description and the fraction of the work that is done.

    Examples
    --------
    >>> import tempfile
    >>> result = run("smoke", tempfile.mkdtemp())
    >>> [file.name for file in result.files]
    ['cake.csv', 'cake.png', 'cake.svg', 'cake.json']
    """
    if scale not in SCALES:
        raise ValueError(f"unknown scale {scale!r}: {choose_from(scale, SCALES)}")
    size, folder = SCALES[scale], make_directory(out)
    rows: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    jobs = _jobs(size)
    for done, (kind, description, compute) in enumerate(jobs, start=1):
        rows[kind] += compute()
        if progress:
            progress(description, done / len(jobs))
    files = tuple(folder / f"cake.{form}" for form in ("csv", "png", "svg", "json"))
    result = CakeResult(scale, **{kind: tuple(found) for kind, found in rows.items()}, files=files)
    drawing = figure(result)
    for file, data in zip(files, (_csv(result), image(drawing, "png"), image(drawing, "svg"), _json(result, out)), strict=True):
        write_bytes(file, data) if isinstance(data, bytes) else write_text(file, data)
    return result


def load(out: str | Path) -> CakeResult:
    """Read what `run` wrote; raises ValueError if it is missing or was edited.

    Examples
    --------
    >>> load("no such folder")
    Traceback (most recent call last):
    ValueError: no such folder/cake.json cannot be read: run the cake again
    """
    file = Path(out) / "cake.json"
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        points = tuple(FixedPoint(**row) for row in record["fixed_points"])
        return CakeResult(
            record["scale"],
            tuple(row._replace(closed_form=_number_or_interval(row.closed_form)) for row in points),
            tuple(GaussianNoise(**row) for row in record["gaussian_noise"]),
            tuple(ModelNoise(**row) for row in record["estimated_models"]),
            tuple(LearningNoise(**row) for row in record["learning"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        raise ValueError(f"{file} cannot be read: run the cake again") from None


def is_current(scale: str, out: str | Path) -> bool:
    """Whether a folder holds a complete result of this scale, computed with the installed versions."""
    try:
        load(out)
        record = json.loads((Path(out) / "cake.json").read_text(encoding="utf-8"))
    except ValueError:
        return False
    pictures = all((Path(out) / f"cake.{form}").is_file() for form in ("csv", "png", "svg"))
    return pictures and record["scale"] == scale and record.get("versions") == versions()


def _number_or_interval(value: Any) -> float | Interval:
    return Interval(*value) if isinstance(value, list) else float(value)


def _jobs(size: Size) -> list[tuple[str, str, Callable[[], Iterable[Any]]]]:
    """Return the computations: the kind of rows, a description, and a function that returns the rows."""
    grid = itertools.product(size.gammas, size.epsilons)
    return [
        *(("fixed_points", f"fixed points at gamma {gamma}, epsilon {eps}", partial(_fixed_points, gamma, eps)) for gamma, eps in grid),
        *(("gaussian_noise", f"noise added to the Q of {name}", partial(_gaussian_noise, name, size)) for name in LIMITS),
        *(("estimated_models", f"models from {samples} samples", partial(_estimated_models, samples, size)) for samples in size.samples),
        *(("learning", f"learning with {name}", partial(_learning, name, size)) for name in OPERATORS),
    ]


def _fixed_points(gamma: float, epsilon: float) -> list[FixedPoint]:
    return [fixed_point(name, gamma, epsilon) for name in LIMITS]


def _gaussian_noise(operator: str, size: Size) -> list[GaussianNoise]:
    gap = fixed_point(operator, GAMMA, EPSILON).gap
    return [] if gap is None else gaussian_noise(operator, gap, SIGMAS, size.draws, SEEDS["gaussian_noise"])


def _estimated_models(samples: int, size: Size) -> Iterator[ModelNoise]:
    return estimated_models(OPERATORS, samples, size.models, SEEDS["estimated_models"])


def _learning(operator: str, size: Size) -> list[LearningNoise]:
    choices = itertools.product(VALUE_CHOICES.get(operator, ("max",)), STEP_SIZES.get(operator, (STEP,)))
    return [learn(operator, step, size.runs, size.burn_in, size.steps, SEEDS["learning"], value) for value, step in choices]


def _csv(result: CakeResult) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("gamma", "epsilon", "operator", "closed_form_low", "closed_form_high", "computed", "difference", "gap", "sweeps", "status")
    writer.writerow(columns)
    for row in result.fixed_points:
        writer.writerow((*row[:3], *ends(row.closed_form), *row[4:]))
    return text.getvalue()


def _json(result: CakeResult, out: str | Path) -> str:
    record = {
        "command": f"actiongap reproduce cake --scale {result.scale} --out {shlex.quote(str(out))}",
        "scale": result.scale,
        "size": SCALES[result.scale]._asdict(),
        **describe(),
        "seeds": SEEDS,
        "noise_settings": {"gamma": GAMMA, "epsilon": EPSILON, "reward_noise": REWARD_NOISE},
        "formulas": FORMULAS,
    }
    record |= {kind: [row._asdict() for row in getattr(result, kind)] for kind in KINDS}
    return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def table(result: CakeResult) -> TextTable:
    """Return a terminal table of closed forms and computed limits, one row per operator.

    Examples
    --------
    >>> result = CakeResult("smoke", (fixed_point("bellman", GAMMA, EPSILON),), (), (), ())
    >>> table(result).row_count
    1
    """
    from rich.table import Table as TextTable

    cells = sorted({(row.gamma, row.epsilon) for row in result.fixed_points})
    shown = TextTable(
        title=f"Q(x1, cake) at gamma {GAMMA}, epsilon {EPSILON}; largest error over {len(cells)} such pairs",
        box=None,
        pad_edge=False,
    )
    shown.add_column("operator", no_wrap=True, min_width=11)
    shown.add_column("closed form", no_wrap=True)
    for column in ("exact", "computed", "error"):
        shown.add_column(column, justify="right", no_wrap=True)
    for row in result.fixed_points:
        if (row.gamma, row.epsilon) != (GAMMA, EPSILON):
            continue
        others = [other for other in result.fixed_points if other.operator == row.operator]
        differences = [other.difference for other in others if other.difference is not None]
        failures = len(others) - len(differences)
        largest = f"{max(differences):.0e}" if differences else "none converged"
        shown.add_row(
            row.operator,
            FORMULAS[row.operator.partition(":")[0]],
            " to ".join(f"{end:.4g}" for end in dict.fromkeys(ends(row.closed_form))),
            "not converged" if row.computed is None else f"{row.computed:.4f}",
            f"{largest} ({failures} not converged)" if failures and differences else largest,
        )
    return shown


def noise_table(result: CakeResult) -> TextTable:
    """Return a terminal table of how often cake looks better under each kind of noise, one row per operator, step size and V(x1).

    Examples
    --------
    >>> noise_table(CakeResult("smoke", (), (), (), (learn("bellman", 0.1, runs=5, burn_in=1, steps=5, seed=0),))).row_count
    1
    """
    from rich.table import Table as TextTable

    shown = TextTable(
        title=f"How often cake looks better (percent, 95% interval) at gamma {GAMMA}, epsilon {EPSILON}",
        caption="* control: V(x1) is Q(x1, abstain), which has no maximum and no maximization bias",
        box=None,
        pad_edge=False,
    )
    shown.add_column("operator", no_wrap=True, min_width=11)
    sigma, samples = SIGMAS[len(SIGMAS) // 2], 100
    for column in ("step", f"sd {sigma:g} on Q", f"{samples} samples", "learning", "gap"):
        shown.add_column(column, justify="right", no_wrap=True)
    added = {row.operator: row for row in result.gaussian_noise if row.sigma == sigma}
    estimated = {row.operator: row for row in result.estimated_models if row.samples == samples}
    for row in result.learning:
        # Only learning depends on the step size and on V(x1); the other columns are shown once.
        first = row.step == STEP and row.value == "max"
        others = [_percent(rows.get(row.operator)) if first else "" for rows in (added, estimated)]
        name = row.operator if row.value == "max" else f"{row.operator}*"
        shown.add_row(name, f"{row.step:g}", *others, _percent(row), "" if row.mean_gap is None else f"{row.mean_gap:.3f}")
    return shown


def _percent(row: GaussianNoise | ModelNoise | LearningNoise | None) -> str:
    if row is None or row.wrong is None or row.low is None or row.high is None:
        return "not converged"
    return f"{100 * row.wrong:.1f} ({100 * row.low:.1f}-{100 * row.high:.1f})"


PAPER_LIMITS = ("bellman", "consistent", Q_STAT)
"""Limits whose closed form the paper prints; the others are derived the same way."""

INTRODUCTION = f"""In state x1, eating cake pays 1 and leads, with probability 1/2, to an absorbing bad
state; abstaining is better by epsilon. The Bellman operator leaves an action gap of epsilon. The other operators widen the gap without
changing the optimal action.

Whether a wider gap prevents mistakes depends on where the error enters. It prevents them when errors are added to a converged Q,
but not when the model is estimated, and not always when Q is learned from samples, because the noise may widen too.
Observed rewards have a standard deviation of {REWARD_NOISE}. In all noise experiments gamma = {GAMMA} and epsilon = {EPSILON}."""


def sections(out: Path) -> list[Section]:
    """Return the sections of the page, from a folder that `run` wrote."""
    result = load(out)
    record = json.loads((out / "cake.json").read_text(encoding="utf-8"))
    source = Provenance(str(record["command"]), line(record), str(record["date"]))
    blocks = (
        Prose(INTRODUCTION),
        _picture(out, source),
        _limits_table(result, source),
        _chart("Errors added to a converged Q", "standard deviation of the error on each Q-value", "sigma", result.gaussian_noise, source),
        _chart("Models estimated from samples", "samples per action", "samples", result.estimated_models, source),
        _learning_table(result.learning, source),
    )
    return [Section("The cake (Figure 1)", blocks)]


def _picture(out: Path, source: Provenance) -> Picture:
    alt = "Three panels: the cake MDP, its action gap under each operator, and how often noise on Q hides the gap."
    return Picture("The cake in one figure", (out / "cake.svg").read_bytes(), "image/svg+xml", alt, source=source)


def _limits_table(result: CakeResult, source: Provenance) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for row in result.fixed_points:
        low, high = ends(row.closed_form)
        value: Cell = low if low == high else f"{low:.6g} to {high:.6g}"
        ratio = row.computed / low if row.computed is not None and low == high else None
        origin = "paper" if row.operator in PAPER_LIMITS else "derived"
        formula = FORMULAS[row.operator.partition(":")[0]]
        rows.append(
            (row.operator, row.gamma, row.epsilon, formula, origin, value, row.computed, ratio, row.difference, row.gap, row.sweeps)
        )
    columns = ("operator", "gamma", "epsilon", "closed form", "from", "exact", "computed", "ratio", "error", "gap", "sweeps")
    note = "Q(x1, cake) in the limit. No value is computed where the iteration does not converge. The lazy operator has a range of limits."
    return Table("Computed limits and closed forms", columns, tuple(rows), note, source)


def _chart(title: str, x_label: str, x: str, rows: Iterable[GaussianNoise | ModelNoise], source: Provenance) -> Chart:
    by_operator: dict[str, list[Any]] = {}
    for row in rows:
        by_operator.setdefault(row.operator, []).append(row)
    series = tuple(
        Series(name, *(tuple(getattr(row, field) for row in found) for field in (x, "wrong", "low", "high")), n=_trials(found[0]))
        for name, found in by_operator.items()
    )
    note = "Fraction of trials in which cake looks better than abstaining. Bands: 95% Wilson intervals; n: trials per point."
    return Chart(title, x_label, "fraction in which cake looks better", series, note, log_x=True, source=source)


def _trials(row: GaussianNoise | ModelNoise) -> int:
    return row.draws if isinstance(row, GaussianNoise) else row.models


def _learning_table(rows: Iterable[LearningNoise], source: Provenance) -> Table:
    columns = ("operator", "V(x1)", "step size", "cake looks better", "low", "high", "mean gap", "sd of the gap", "runs")
    cells = tuple((row.operator, row.value, row.step, row.wrong, row.low, row.high, row.mean_gap, row.sd_gap, row.runs) for row in rows)
    note = (
        "Fraction of steps at which cake looks better to a learner with a constant step size, with its 95% interval over runs. V(x1) is "
        "max_a Q(x1, a), or Q(x1, abstain) as a control without the maximum and its bias."
    )
    return Table("Learning from samples", columns, cells, note, source)


def _compute(scale: Scale, out: Path, progress: Progress) -> None:
    if not is_current(scale, out):
        run(scale, out, progress)


def _tables(out: Path) -> list[Any]:
    result = load(out)
    return [table(result), noise_table(result)]


PART = Part("Figure 1: the cake", sections, compute=_compute, tables=_tables, files=("cake.csv", "cake.png", "cake.svg", "cake.json"))
