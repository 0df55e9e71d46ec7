"""Figure 1 of the paper, the cake: what each operator makes of its action gap, and what that gap is worth when Q is noisy.

In x1, eating cake pays 1 and leads, half the time, to a state that is forever bad; abstaining is better by epsilon. The Bellman operator
leaves the two actions that epsilon apart, and the others may widen the gap without changing which action is best. How far is known exactly
(`values`), so every limit that iterating reaches stands beside its closed form. Whether a wider gap keeps the agent from the cake is then
asked under three kinds of noise (`noise`): it does where the finished Q is in error, it cannot where the model is, and it need not where Q
keeps learning from samples. `run` computes all of it and writes it down (`study`), to be read as tables (`tables`) and one figure
(`drawing`).
"""

from pathlib import Path
from typing import Any

from actiongap.reproduce.cake.drawing import figure
from actiongap.reproduce.cake.sections import sections
from actiongap.reproduce.cake.study import CakeResult, is_current, load, run
from actiongap.reproduce.cake.tables import noise_table, table
from actiongap.reproduce.cake.values import closed_form, fixed_point
from actiongap.reproduce.parts import Part, Progress, Scale

__all__ = ["PART", "CakeResult", "closed_form", "figure", "fixed_point", "noise_table", "run", "table"]


def _compute(scale: Scale, out: Path, progress: Progress) -> None:
    if not is_current(scale, out):
        run(scale, out, progress)


def _tables(out: Path) -> list[Any]:
    result = load(out)
    return [table(result), noise_table(result)]


PART = Part("Figure 1: the cake", sections, compute=_compute, tables=_tables)
