"""The cake's results as a person reads them in a terminal: the closed forms beside what was computed, and the mistakes under noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actiongap.reproduce.cake.noise import SIGMAS, STEP, GaussianNoise, Learning, ModelNoise
from actiongap.reproduce.cake.values import EPSILON, FORMULAS, GAMMA, ends

if TYPE_CHECKING:
    from rich.table import Table as TextTable

    from actiongap.reproduce.cake.study import CakeResult


def table(result: CakeResult) -> TextTable:
    """The closed forms beside what was computed, one row for each operator.

    Examples
    --------
    >>> from actiongap.reproduce.cake import CakeResult, fixed_point
    >>> result = CakeResult("smoke", (fixed_point("bellman", GAMMA, EPSILON),), (), (), ())
    >>> table(result).row_count
    1
    """
    from rich.table import Table as TextTable

    cells = sorted({(row.gamma, row.epsilon) for row in result.fixed_points})
    shown = TextTable(
        title=f"Q(x1, cake) at gamma {GAMMA}, epsilon {EPSILON}; off by at most, over {len(cells)} pairs of them",
        box=None,
        pad_edge=False,
    )
    shown.add_column("operator", no_wrap=True, min_width=11)
    shown.add_column("closed form", no_wrap=True)
    for column in ("exact", "computed", "off by"):
        shown.add_column(column, justify="right", no_wrap=True)
    for row in result.fixed_points:
        if (row.gamma, row.epsilon) != (GAMMA, EPSILON):
            continue
        others = [other for other in result.fixed_points if other.operator == row.operator]
        differences = [other.difference for other in others if other.difference is not None]
        lost = len(others) - len(differences)
        largest = f"{max(differences):.0e}" if differences else "none settled"
        shown.add_row(
            row.operator,
            FORMULAS[row.operator.partition(":")[0]],
            " to ".join(f"{end:.4g}" for end in dict.fromkeys(ends(row.closed_form))),
            "not settled" if row.computed is None else f"{row.computed:.4f}",
            f"{largest} ({lost} lost)" if lost and differences else largest,
        )
    return shown


def noise_table(result: CakeResult) -> TextTable:
    """How often cake looks better, in percent with 95% intervals, under each kind of noise; one row for each operator, step and V(x1).

    Examples
    --------
    >>> from actiongap.reproduce.cake import CakeResult
    >>> from actiongap.reproduce.cake.noise import learn
    >>> noise_table(CakeResult("smoke", (), (), (), (learn("bellman", 0.1, runs=5, forgotten=1, steps=5, seed=0),))).row_count
    1
    """
    from rich.table import Table as TextTable

    shown = TextTable(
        title=f"how often cake looks better (percent, 95% interval), at gamma {GAMMA}, epsilon {EPSILON}",
        caption="* a control: V(x1) is Q(x1, abstain), without the maximum and its bias",
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
        # Only learning has a step and a V(x1) to choose, so what they cannot change is shown once.
        first = row.step == STEP and row.value == "max"
        others = [_percent(rows.get(row.operator)) if first else "" for rows in (added, estimated)]
        name = row.operator if row.value == "max" else f"{row.operator}*"
        shown.add_row(name, f"{row.step:g}", *others, _percent(row), "" if row.mean_gap is None else f"{row.mean_gap:.3f}")
    return shown


def _percent(row: GaussianNoise | ModelNoise | Learning | None) -> str:
    if row is None or row.wrong is None or row.low is None or row.high is None:
        return "not settled"
    return f"{100 * row.wrong:.1f} ({100 * row.low:.1f}-{100 * row.high:.1f})"
