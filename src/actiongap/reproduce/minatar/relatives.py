"""What other remedies do on the same footing: Double DQN, alone and with advantage learning, and Munchausen.

Double DQN lets one network choose the action and the other value it, against values that are too high. Munchausen adds the logarithm of the
policy to the reward, which widens gaps as advantage learning does. Both were trained with the settings and seeds of all others.
"""

from __future__ import annotations

from actiongap.report.groups import LEVEL
from actiongap.report.page import Block, Cell, Prose, Provenance, Table
from actiongap.reproduce.evidence import said
from actiongap.reproduce.minatar.bias import BIAS, BIAS_COLUMNS, FOLLOWS, GAP, VALUE, bias_cells, size_of_bias
from actiongap.reproduce.minatar.comparing import SURE, Against, against_bellman, compare, count, of_operators, over_games
from actiongap.reproduce.minatar.runs import Agent, Agents, games_of, mean
from actiongap.reproduce.minatar.scores import SCORE, against_cells, relative
from actiongap.reproduce.minatar.studies import BELLMAN, DOUBLED, FEW, MUNCHAUSEN, USUAL

SHOWN = (*(Agent("", name) for name in FEW), *(Agent("", name, double=True) for name in DOUBLED), Agent("", MUNCHAUSEN))
"""Who is in the table, on whatever game."""
ADVANTAGE = f"al:{USUAL:g}"
ADDED = (
    (Agent("", BELLMAN, double=True), Agent("", BELLMAN)),
    (Agent("", ADVANTAGE), Agent("", BELLMAN)),
    (Agent("", ADVANTAGE, double=True), Agent("", BELLMAN, double=True)),
    (Agent("", ADVANTAGE, double=True), Agent("", ADVANTAGE)),
    (Agent("", MUNCHAUSEN), Agent("", BELLMAN)),
    (Agent("", MUNCHAUSEN), Agent("", ADVANTAGE)),
)
"""What is held against what: each of the two remedies with and without the other, and Munchausen with what it is a soft form of."""


def relatives(agents: Agents, source: Provenance) -> list[Block]:
    """What the relatives score and think, in words and in numbers; nothing where none was trained.

    Examples
    --------
    >>> from actiongap.report.studies import provenance_of
    >>> relatives({}, provenance_of([]))
    []
    """
    there = {agent._replace(game="") for agent in agents}
    if not there & {agent for agent in SHOWN if agent.double or agent.operator == MUNCHAUSEN}:
        return []
    return [Prose(says(agents)), _added_table(agents, source), _table(agents, source)]


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
    columns = ("agent", "beside", "part of its score", "games", *(f"{side}, {level:.0%}" for level in (LEVEL, SURE) for side in sides))
    note = "Final scores, by paired t-tests on each game; the one score as a part of the other is the mean over these games."
    return Table("Remedies with and without each other", columns, tuple(rows), note, source)


def _table(agents: Agents, source: Provenance) -> Table:
    rows: list[tuple[Cell, ...]] = []
    found, gaps, biases, sizes = (against_bellman(agents, number) for number in (SCORE, GAP, BIAS, size_of_bias))
    for agent in (kind._replace(game=game) for game in games_of(agents) for kind in SHOWN):
        if agent in agents:
            verdict, part, less, _ = against_cells(found.get(agent))
            numbers = (mean(agents[agent], number) for number in (GAP, VALUE, FOLLOWS, BIAS))
            thought = bias_cells(gaps.get(agent), biases.get(agent), sizes.get(agent))
            rows.append((agent.game, agent.name, mean(agents[agent], SCORE), verdict, part, less, *numbers, *thought))
    columns = ("game", "agent", "score", f"beside {BELLMAN}", f"part of {BELLMAN}'s", f"less {BELLMAN}'s")
    columns += ("action gap", "V", "what followed", "bias", *BIAS_COLUMNS)
    note = (
        "As in the tables of operators. What is called V here is max_a Q for all; Munchausen's Q counts the entropy of its policy as well, "
        "which is no reward that could follow, so its bias is not quite the same thing."
    )
    return Table("Relatives in numbers", columns, tuple(rows), note, source)
