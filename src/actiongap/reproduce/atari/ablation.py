"""Where the corrections of an operator come from: the target network, as in the paper, or the online network, which it says is worse."""

from __future__ import annotations

from actiongap.report.groups import LEVEL
from actiongap.report.page import Block, Cell, Prose, Provenance, Table
from actiongap.reproduce.agents.comparing import SURE, Against, compare, count
from actiongap.reproduce.agents.operators import FEW
from actiongap.reproduce.agents.runs import Agent, Agents, mean
from actiongap.reproduce.agents.scores import SCORE, against_cells

SETS = {"corrections": [*(Agent("", name) for name in FEW), *(Agent("", name, online=True) for name in FEW[1:])]}
"""Who is in one chart of learning."""


def ablation(agents: Agents, source: Provenance) -> list[Block]:
    """Agents with corrections from the online network beside the same with the target network's; nothing where none was trained.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> ablation({}, provenance_of([]))
    []
    """
    found: dict[Agent, Against | None] = {
        agent: compare(agents[agent], agents.get(agent._replace(online=False)), SCORE) for agent in agents if agent.online
    }
    if not found:
        return []
    tested = [against for against in found.values() if against is not None and against.tested]
    sides = "; ".join(str(count(tested, level)) for level in (LEVEL, SURE))
    told = "Nothing can be said of corrections yet: no agent has two seeds in common with its like that are done."
    if tested:
        told = f"The score with corrections from the online network, beside that with the target network's: {sides}."
    rows: list[tuple[Cell, ...]] = []
    for agent, against in found.items():
        both = (mean(agents.get(one), SCORE) for one in (agent, agent._replace(online=False)))
        rows.append((agent.game, agent.operator, *both, *against_cells(against)))
    columns = ("game", "operator", "online", "target", "online beside target", "part of target's", "less target's", "p")
    return [
        Prose(told),
        Table("Corrections from either network", columns, tuple(rows), "Final scores, compared by paired t-tests.", source),
    ]
