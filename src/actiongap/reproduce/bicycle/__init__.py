"""The paper's bicycle, of its Figures 2 and 3 and its appendix: whether policies with wider action gaps ride better on a coarse grid.

`studies` says which plans are made and `runs` reads them back. `frequencies` shows how rides end, `claims` holds the paper's sentences
against that, `variations` shows what other settings do, `between` looks between the grid points, `drawing` and `film` draw, `pictures` and
`sections` put it on the page.
"""

from pathlib import Path
from typing import Any

from actiongap.reproduce.bicycle.film import make_film
from actiongap.reproduce.bicycle.frequencies import ends_table
from actiongap.reproduce.bicycle.runs import read_plans
from actiongap.reproduce.bicycle.sections import main_plans, sections
from actiongap.reproduce.bicycle.studies import studies
from actiongap.reproduce.parts import Part, Progress, Scale

__all__ = ["PART", "sections", "studies"]


def _compute(scale: Scale, out: Path, progress: Progress) -> None:
    make_film(out, read_plans(out)[0], progress)


def _tables(out: Path) -> list[Any]:
    return [ends_table(main_plans(read_plans(out)[0]))]


PART = Part("Figures 2, 3 and 6: the bicycle", sections, studies, _compute, _tables)
