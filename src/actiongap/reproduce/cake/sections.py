"""The cake on the page: the closed forms beside what was computed, and how often cake looks better under each kind of noise."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from actiongap.lab.provenance import line
from actiongap.report.page import Cell, Chart, Picture, Prose, Provenance, Section, Series, Table
from actiongap.reproduce.cake.noise import REWARD_NOISE, GaussianNoise, Learning, ModelNoise
from actiongap.reproduce.cake.study import CakeResult, load
from actiongap.reproduce.cake.values import EPSILON, FORMULAS, GAMMA, Q_STAT, ends

IN_THE_PAPER = ("bellman", "consistent", Q_STAT)
"""Limits whose closed form the paper prints; the others follow in the same way."""

STORY = f"""In state x1, eating cake pays 1 and leads, half the time, to a state that is forever bad; abstaining is better by epsilon. The
Bellman operator leaves the two actions epsilon apart. The others widen that gap without changing which action is best.

Whether a wider gap keeps an agent from the cake depends on where the error is: it does when errors are added to a finished Q, it cannot
when the model itself is estimated, and it need not when Q keeps learning from samples, for the noise is widened with the gap. Rewards are
seen with a standard deviation of {REWARD_NOISE}; gamma is {GAMMA} and epsilon {EPSILON} throughout."""


def sections(out: Path) -> list[Section]:
    """What the page shows of a folder that `run` has filled."""
    result = load(out)
    record = json.loads((out / "cake.json").read_text(encoding="utf-8"))
    made = Provenance(str(record["command"]), line(record), str(record["date"]))
    blocks = (
        Prose(STORY),
        _picture(out, made),
        _limits(result, made),
        _chart("Errors added to a finished Q", "standard deviation of the error on each Q-value", "sigma", result.gaussian_noise, made),
        _chart("Models estimated from samples", "samples of each action", "samples", result.estimated_models, made),
        _learning_chart(result.learning, made),
    )
    return [Section("The cake (Figure 1)", blocks)]


def _picture(out: Path, made: Provenance) -> Picture:
    alt = "Four panels: the gap each operator leaves, and how often cake looks better under three kinds of noise."
    return Picture("The cake in one figure", (out / "cake.svg").read_bytes(), "image/svg+xml", alt, source=made)


def _limits(result: CakeResult, made: Provenance) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for row in result.fixed_points:
        low, high = ends(row.closed_form)
        value: Cell = low if low == high else f"{low:.6g} to {high:.6g}"
        ratio = row.computed / low if row.computed is not None and low == high else None
        source = "paper" if row.operator in IN_THE_PAPER else "derived"
        formula = FORMULAS[row.operator.partition(":")[0]]
        rows.append(
            (row.operator, row.gamma, row.epsilon, formula, source, value, row.computed, ratio, row.difference, row.gap, row.sweeps)
        )
    columns = ("operator", "gamma", "epsilon", "closed form", "from", "exact", "ours", "ratio", "off by", "gap", "sweeps")
    note = "Q(x1, cake) in the limit. Where iterating does not settle, nothing is shown for ours. The lazy operator has a range of limits."
    return Table("Values beside their closed forms", columns, tuple(rows), note, made)


def _chart(title: str, x_label: str, x: str, rows: Iterable[GaussianNoise | ModelNoise], made: Provenance) -> Chart:
    by_operator: dict[str, list[Any]] = {}
    for row in rows:
        by_operator.setdefault(row.operator, []).append(row)
    series = tuple(
        Series(name, *(tuple(getattr(row, field) for row in found) for field in (x, "wrong", "low", "high")), n=_trials(found[0]))
        for name, found in by_operator.items()
    )
    note = "How often cake looks better than abstaining; bands are 95% intervals (Wilson), n the trials behind each point."
    return Chart(title, x_label, "part in which cake looks better", series, note, log_x=True, source=made)


def _trials(row: GaussianNoise | ModelNoise) -> int:
    return row.draws if isinstance(row, GaussianNoise) else row.models


def _learning_chart(rows: Iterable[Learning], made: Provenance) -> Table:
    columns = ("operator", "V(x1)", "step", "cake looks better", "low", "high", "mean gap", "sd of the gap", "runs")
    cells = tuple((row.operator, row.value, row.step, row.wrong, row.low, row.high, row.mean_gap, row.sd_gap, row.runs) for row in rows)
    note = (
        "The part of the time in which cake looks better to a learner with a constant step, with its 95% interval over the runs. "
        "V(x1) is the maximum of Q, or Q of abstaining: a control without the maximum and its bias."
    )
    return Table("Learning from samples", columns, cells, note, made)
