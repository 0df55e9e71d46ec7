"""The paper's Atari experiments on MinAtar: whether deep agents play better when their operator widens the action gap.

`studies` says which agents are trained and `runs` reads them back. `comparing` sets two of them side by side, seed by seed. `curves` shows
how they learn, `scores` what they score in the end, `paper` the paper's counts beside ours, `alphas` what alpha does, `bias` whether wider
gaps make values less too high, and `relatives` what other remedies do. `sections` puts it on the page.
"""

from pathlib import Path
from typing import Any

from actiongap.reproduce.minatar.runs import read_agents
from actiongap.reproduce.minatar.scores import printed
from actiongap.reproduce.minatar.sections import sections
from actiongap.reproduce.minatar.studies import studies
from actiongap.reproduce.parts import Part

__all__ = ["PART", "sections", "studies"]


def _tables(out: Path) -> list[Any]:
    return printed(read_agents(out).agents)


PART = Part("Figures 4 to 6 on MinAtar: deep agents", sections, studies, tables=_tables)
