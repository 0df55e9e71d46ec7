"""The paper's Atari experiments: whether deep agents play better when their operator widens the action gap.

`studies` says which agents are trained and `runs` reads them back. `extent` says how much that is beside the paper's and what follows from
so much; `scores` and `table` set the paper's counts and its table of 60 games beside ours, `sweep` shows what alpha does, `ablation`
where corrections should come from, `probes` and `films` what agents think and do in one game (`casting` chooses them), and `costs` what all
of the paper would take. `sections` puts it on the page, with all that studies of deep agents share (`actiongap.reproduce.agents`).
"""

from pathlib import Path
from typing import Any

from actiongap._files import make_directory
from actiongap.reproduce.agents.scores import printed
from actiongap.reproduce.atari.casting import casts
from actiongap.reproduce.atari.films import LIMIT, make_film
from actiongap.reproduce.atari.probes import STEPS, make_probe
from actiongap.reproduce.atari.runs import read_agents
from actiongap.reproduce.atari.sections import sections
from actiongap.reproduce.atari.studies import SETTINGS, studies
from actiongap.reproduce.parts import Part, Progress, Scale

__all__ = ["PART", "sections", "studies"]


def _compute(scale: Scale, out: Path, progress: Progress) -> None:
    """Probes and films, of agents that are done; a glimpse of each at the smallest scale."""
    steps, limit = (50, 50) if scale == "smoke" else (STEPS, LIMIT)
    for cast in casts(read_agents(out).settings):
        make_probe(make_directory(out), cast, progress, steps)
        make_film(out, cast, progress, limit)


def _tables(out: Path) -> list[Any]:
    return [table for setting, agents in read_agents(out).settings.items() for table in printed(agents, f"Atari, {SETTINGS[setting]}")]


PART = Part("Figures 4, 5 and 7 and the table of 60 games: deep agents on Atari", sections, studies, _compute, _tables)
