"""What other remedies do on the same footing: Double DQN, alone and with advantage learning, and Munchausen.

Double DQN lets one network choose the action and the other value it, against values that are too high. Munchausen adds the logarithm of the
policy to the reward, which widens gaps as advantage learning does. Both were trained with the settings and seeds of all others. Beside them
stand advantage learning and its persistent form at the usual alpha.
"""

from __future__ import annotations

from actiongap.report.groups import LEVEL
from actiongap.report.page import Block, Cell, Prose, Provenance, Table
from actiongap.reproduce.agents.bias import BIAS, beside_bellman, changes_table, numbers_table
from actiongap.reproduce.agents.comparing import OVER_GAMES, SURE, Against, against_bellman, compare, count, of_operators, over_games
from actiongap.reproduce.agents.operators import BELLMAN, FEW
from actiongap.reproduce.agents.runs import Agent, Agents, games_of, mean
from actiongap.reproduce.agents.scores import SCORE, against_cells, relative
from actiongap.reproduce.evidence import said
from actiongap.reproduce.minatar.studies import DOUBLED, MUNCHAUSEN

SHOWN = (*(Agent("", name) for name in FEW), *(Agent("", name, double=True) for name in DOUBLED), Agent("", MUNCHAUSEN))
"""Who is in the table, on whatever game."""
SETS = {"relatives": SHOWN}
"""Who is in one chart of learning."""
ADVANTAGE, PERSISTENT = FEW[1:]
ADDED = (
    (Agent("", BELLMAN, double=True), Agent("", BELLMAN)),
    (Agent("", ADVANTAGE), Agent("", BELLMAN)),
    (Agent("", ADVANTAGE, double=True), Agent("", BELLMAN, double=True)),
    (Agent("", ADVANTAGE, double=True), Agent("", ADVANTAGE)),
    (Agent("", MUNCHAUSEN), Agent("", BELLMAN)),
    (Agent("", MUNCHAUSEN), Agent("", ADVANTAGE)),
    (Agent("", MUNCHAUSEN), Agent("", PERSISTENT)),
)
"""What is held against what: each of two remedies with and without the other, and Munchausen with what it is a soft form of."""


def relatives(agents: Agents, source: Provenance) -> list[Block]:
    """What the relatives score and think, in words and in numbers; nothing where none was trained.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> relatives({}, provenance_of([]))
    []
    """
    there = {agent._replace(game="") for agent in agents}
    if not there & {agent for agent in SHOWN if agent.double or agent.operator == MUNCHAUSEN}:
        return []
    return [Prose(says(agents)), _added_table(agents, source), *_relative_tables(agents, source)]


def says(agents: Agents) -> str:
    """How each relative stands beside Bellman's operator, in score and in bias."""
    found, biases = against_bellman(agents, SCORE), against_bellman(agents, BIAS)
    told = []
    for agent in SHOWN:
        scores, thought = (list(of_operators(some, [agent.name]).values()) for some in (found, biases))
        if any(against.difference.n > 1 for against in scores):
            part = relative(agents, agent) if len(scores) > 1 else scores[0].ratio
            mean_of = "mean over games" if len(scores) > 1 else "on one game"
            told.append(
                f"{agent.name} has {said(part)} of {BELLMAN}'s score, {mean_of}; its score beside {BELLMAN}'s is {count(scores, LEVEL)}, "
                f"and its bias {count(thought, LEVEL)}."
            )
    return "\n\n".join(told) or f"Nothing can be said of relatives yet: none has two seeds in common with {BELLMAN} that are done."


def _pairs(agents: Agents, one: Agent, other: Agent) -> dict[str, Against]:
    """One agent against another, by game."""
    found = {game: compare(agents.get(one._replace(game=game)), agents.get(other._replace(game=game)), SCORE) for game in games_of(agents)}
    return {game: against for game, against in found.items() if against is not None}


def _added_table(agents: Agents, source: Provenance) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one, other in ADDED:
        pairs = _pairs(agents, one, other)
        if pairs:
            counts = [count(pairs.values(), level) for level in (LEVEL, SURE)]
            cells = [cell for each in counts for cell in (each.higher, each.lower, each.unseen)]
            part = over_games([(agents[one._replace(game=game)], agents[other._replace(game=game)]) for game in pairs], SCORE)
            rows.append((one.name, other.name, part, len(pairs), *cells))
    sides = ("higher", "lower", "unclear")
    columns = ("agent", "beside", "part of the other's", "games", *(f"{side}, {level:.0%}" for level in (LEVEL, SURE) for side in sides))
    note = f"Final scores, by paired t-tests on each game; the one score as a part of the other is the mean over these games. {OVER_GAMES}"
    return Table("Remedies with and without each other", columns, tuple(rows), note, source)


def _relative_tables(agents: Agents, source: Provenance) -> list[Block]:
    rows: list[tuple[Cell, ...]] = []
    found = against_bellman(agents, SCORE)
    shown = [kind._replace(game=game) for game in games_of(agents) for kind in SHOWN if kind._replace(game=game) in agents]
    for agent in shown:
        rows.append((agent.game, agent.name, mean(agents[agent], SCORE), *against_cells(found.get(agent))))
    columns = ("game", "agent", "score", f"beside {BELLMAN}", f"part of {BELLMAN}'s", f"less {BELLMAN}'s", "p")
    munchausen = (
        "What is called V here is max_a Q for all; Munchausen's Q counts the entropy of its policy as well, which is no reward that could "
        "follow, so its bias is not quite the same thing."
    )
    return [
        Table("Relatives: scores", columns, tuple(rows), "As in the table of operators.", source),
        numbers_table("Relatives: gaps, values and bias", {agent: agents[agent] for agent in shown}, munchausen, source),
        changes_table(f"Relatives: gaps, values and bias beside {BELLMAN}'s", shown, beside_bellman(agents), source),
    ]
