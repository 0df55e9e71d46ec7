"""The paper's Atari experiments on MinAtar: whether deep agents play better when their operator widens the action gap.

`studies` says which agents are trained and `runs` reads them back. `paper` sets the paper's counts beside ours, `relatives` shows what
other remedies do, and `sections` puts it on the page, with all that studies of deep agents share (`actiongap.reproduce.agents`).
"""

from pathlib import Path
from typing import Any

from actiongap.reproduce.agents.scores import printed
from actiongap.reproduce.minatar.runs import read_agents
from actiongap.reproduce.minatar.sections import sections
from actiongap.reproduce.minatar.studies import studies
from actiongap.reproduce.parts import Part

__all__ = ["PART", "sections", "studies"]


def _tables(out: Path) -> list[Any]:
    return printed(read_agents(out).agents, "MinAtar")


PART = Part("Figures 4, 5 and 7 on MinAtar: deep agents", sections, studies, tables=_tables)
