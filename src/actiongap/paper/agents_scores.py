"""What deep agents score in the end: every operator on every game, against Bellman's and against each other.

The score is the mean of the last tenth of the evaluations of a run. Each comparison is a paired t-test on one game, with no correction for
their number; how many would come out on either side by chance is said with every count.

Beside a test stands what part of the other's score an agent has, with an interval of its own. The test is of s - b and the interval of
mean(s) / mean(b), r, which errs as s - r b does: where r is not 1 these spread differently, so near the edge one may see a difference
where the other sees none. The test decides.
"""

from __future__ import annotations

from typing import Any

from actiongap.lab.statistics import LEVEL, Estimate
from actiongap.paper.agents import (
    ALPHAS,
    BELLMAN,
    FAMILIES,
    HIGHER,
    LOWER,
    OPERATORS,
    OVER_GAMES,
    SURE,
    SWEPT,
    Against,
    Agent,
    Agents,
    Number,
    against_bellman,
    compare,
    count,
    final,
    games_of,
    mean,
    of_operators,
    over_games,
    score_of,
)
from actiongap.paper.parts import said
from actiongap.report.groups import several
from actiongap.report.page import Block, Cell, Prose, Provenance, Table

SCORE = final("score")
"""The mean of the last tenth of the evaluations."""
HIGHEST = score_of("highest")
"""The highest of all evaluations, which is what the paper's table holds."""


def scores(agents: Agents, source: Provenance) -> list[Block]:
    """Everything about final scores: what is seen, in words and in numbers."""
    found = of_operators(against_bellman(agents, SCORE), SWEPT)
    tested = {agent: against for agent, against in found.items() if against.tested}
    pairs = persistent_against_plain(agents)
    blocks: list[Block] = [Prose(says(agents, tested, pairs)), _scores_table(agents, found, source)]
    if tested and (once := len(found) - len(tested)):
        blocks.insert(1, Prose(f"No test can be made of {several(once, 'comparison')} with {BELLMAN} more, with one pair of runs each."))
    if found:
        blocks.append(_counts_table(agents, tested or found, source))
    if pairs:
        blocks.append(_pairs_table(agents, pairs, source))
    return blocks


def names_of(agents: Agents) -> list[str]:
    """The operators of the sweep that are there, in the order of the page."""
    there = {agent.name for agent in agents}
    return [name for name in OPERATORS if name in there]


def relative(agents: Agents, agent: Agent, score: Number = SCORE) -> Estimate | None:
    """What part of Bellman's score an agent of this kind has, mean over the games that both have played, Bellman's with a score above 0."""
    games = [game for game in games_of(agents) if agent._replace(game=game) in agents and game not in partless(agents, score)]
    return over_games([(agents[agent._replace(game=game)], agents[Agent(game, BELLMAN)]) for game in games], score)


def partless(agents: Agents, score: Number = SCORE) -> list[str]:
    """The games on which Bellman has no score above zero that another could be a part of.

    Examples
    --------
    >>> partless({})
    []
    """
    bases = {game: mean(agents.get(Agent(game, BELLMAN)), score) for game in games_of(agents)}
    return [game for game, base in bases.items() if base is None or base.value <= 0]


def persistent_against_plain(agents: Agents) -> dict[tuple[str, float], Against]:
    """Persistent advantage learning against advantage learning at the same alpha, by game and alpha."""
    plain, persistent = FAMILIES
    found: dict[tuple[str, float], Against] = {}
    for game in games_of(agents):
        for alpha in ALPHAS:
            one, other = (agents.get(Agent(game, f"{family}:{alpha:g}")) for family in (persistent, plain))
            if (against := compare(one, other, SCORE)) is not None:
                found[game, alpha] = against
    return found


def says(agents: Agents, found: dict[Agent, Against], pairs: dict[tuple[str, float], Against]) -> str:
    """What the final scores say, and how sure that is."""
    if not found:
        return "Nothing can be said of final scores yet: no operator and bellman have two seeds in common that are done."
    levels = [str(count(found.values(), level)) for level in (LEVEL, SURE)]
    shared = (
        f"Those on one game share the runs of {BELLMAN} and their luck: where several come out alike they are not independent evidence."
    )
    told = [
        f"The score beside that of {BELLMAN}, one comparison for each operator and game: {'; '.join(levels)}. {shared} {_precision(found)}"
    ]
    for family in FAMILIES:
        some = [against for agent, against in found.items() if SWEPT[agent.operator][0] == family]
        told[0] += f" With {family} it is {count(some, LEVEL)}." if len(some) > 1 else ""
    told.append(" ".join(_on_game(game, found) for game in games_of(agents) if any(agent.game == game for agent in found)))
    if len(games_of(agents)) > 1 and _everywhere(agents):
        told.append(_over_games(agents))
    tested = [against for against in pairs.values() if against.tested]
    if tested:
        plain, persistent = FAMILIES
        sides = "; ".join(str(count(tested, level)) for level in (LEVEL, SURE))
        told.append(f"The score of {persistent} beside that of {plain} at the same alpha, one comparison for each game and alpha: {sides}.")
    return "\n\n".join(told)


def _precision(found: dict[Agent, Against]) -> str:
    """How large a difference goes unseen."""
    half: dict[str, list[float]] = {}
    for agent, against in found.items():
        if against.ratio is not None and against.ratio.n > 1:
            half.setdefault(agent.game, []).append((against.ratio.high - against.ratio.low) / 2)
    # Two digits, and never as a power of ten.
    parts = ", ".join(f"{float(f'{100 * sum(some) / len(some):.2g}'):g}% on {game}" for game, some in half.items())
    return f"Differences smaller than about so much of {BELLMAN}'s score are easily missed: {parts}." if parts else ""


def _on_game(game: str, found: dict[Agent, Against]) -> str:
    sides: dict[str, list[str]] = {}
    for agent, against in found.items():
        if agent.game == game:
            sides.setdefault(against.side(LEVEL), []).append(agent.operator)
    told = [f"{side} with {', '.join(sides[side])}" for side in (HIGHER, LOWER) if side in sides]
    there = sum(agent.game == game for agent in found)
    if not told:
        return f"On {game} no difference is seen with any of {several(there, 'operator')} ({LEVEL:.0%})."
    rest = there - sum(len(sides.get(side, [])) for side in (HIGHER, LOWER))
    return f"On {game} it is {' and '.join(told)} ({LEVEL:.0%})" + (f"; no difference is seen with the other {rest}." if rest else ".")


def _everywhere(agents: Agents) -> bool:
    """Whether means over games are over the same games for all operators, all of them."""
    plays = {frozenset(agent.game for agent in agents if agent.name == name) for name in names_of(agents)}
    return len(plays) == 1 and not partless(agents)


def _over_games(agents: Agents) -> str:
    parts = {name: part for name in names_of(agents) if name != BELLMAN and (part := relative(agents, Agent("", name))) is not None}
    if not parts:
        return ""
    above = [f"{name} {said(part)}" for name, part in parts.items() if part.low > 1]
    below = [f"{name} {said(part)}" for name, part in parts.items() if part.high < 1]
    rest = len(parts) - len(above) - len(below)
    best = max(parts, key=lambda name: parts[name].value)
    told = [f"more than {BELLMAN}: {', '.join(above) or 'none'}", f"less: {', '.join(below) or 'none'}", f"no difference seen: {rest}"]
    return (
        f"The score as a part of {BELLMAN}'s, mean over {several(len(games_of(agents)), 'game')}: {'; '.join(told)}. The highest is "
        f"{best}, {said(parts[best])}; being the highest of {len(parts)} it owes something to luck."
    )


def _scores_table(agents: Agents, found: dict[Agent, Against], source: Provenance) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for agent, group in agents.items():
        if agent.name in OPERATORS:
            rows.append((agent.game, agent.name, mean(group, SCORE), *against_cells(found.get(agent))))
    columns = ("game", "operator", "score", f"beside {BELLMAN}", f"part of {BELLMAN}'s", f"less {BELLMAN}'s", "p")
    note = (
        f"Score: the rewards of an episode, mean over the last tenth of the evaluations, then over runs, with Student's t interval at "
        f"{LEVEL:.0%}. Differences are between runs with the same seed; p and what is said beside the score are of paired t-tests "
        f"at {LEVEL:.0%} and {SURE:.0%}, with no correction for their number. These tests decide: they are of differences, and the part of "
        f"{BELLMAN}'s is a ratio, whose interval may hold 1 where a test just sees a difference, and the other way round."
    )
    return Table("Final scores", columns, tuple(rows), note, source)


def against_cells(against: Against | None) -> tuple[Cell, ...]:
    """A comparison in a table: the verdict, the part, the difference, and p."""
    if against is None:
        return None, None, None, None
    return against.verdict, against.ratio, against.difference, p_said(against.p) if against.tested else None


def p_said(p: float) -> str:
    """A p to three decimals.

    Examples
    --------
    >>> p_said(0.05249), p_said(0.00049)
    ('0.052', '< 0.001')
    """
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def _counts_table(agents: Agents, found: dict[Agent, Against], source: Provenance) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in names_of(agents):
        some = of_operators(found, [name]).values()
        if some:
            counts = [count(some, level) for level in (LEVEL, SURE)]
            cells = [cell for each in counts for cell in (each.higher, each.lower, each.unseen)]
            rows.append((name, relative(agents, Agent("", name)), len(some), *cells))
    sides = ("helps", "hurts", "unclear")
    columns = (
        "operator",
        f"part of {BELLMAN}'s",
        "games compared",
        *(f"{side}, {level:.0%}" for level in (LEVEL, SURE) for side in sides),
    )
    chance = " and ".join(f"{count(found.values(), level).by_chance:.2g} at {level:.0%}" for level in (LEVEL, SURE))
    note = (
        f"Games on which the score is higher than {BELLMAN}'s, lower, and those where it cannot be told. If no operator made any "
        f"difference, about {chance} of all {len(found)} comparisons would be found to help, and as many to hurt. The score as a part of "
        f"{BELLMAN}'s is the mean over all games on which {BELLMAN} has one above 0, compared or not."
    )
    if left := [game for game in partless(agents) if any(agent.game == game for agent in found)]:
        note += f" It is without {', '.join(left)}, where {BELLMAN}'s is not above zero."
    note += f" {OVER_GAMES}"
    return Table("Where it helps, and where it hurts", columns, tuple(rows), note, source)


def _pairs_table(agents: Agents, pairs: dict[tuple[str, float], Against], source: Provenance) -> Table:
    plain, persistent = FAMILIES
    rows: list[tuple[Cell, ...]] = []
    for (game, alpha), against in pairs.items():
        both = (mean(agents[Agent(game, f"{family}:{alpha:g}")], SCORE) for family in (persistent, plain))
        rows.append((game, alpha, *both, *against_cells(against)))
    columns = ("game", "alpha", persistent, plain, f"{persistent} beside {plain}", f"part of {plain}'s", f"less {plain}'s", "p")
    return Table(
        "Persistent against plain advantage learning", columns, tuple(rows), "Final scores, compared as in the table of all.", source
    )


def printed(agents: Agents, what: str) -> list[Any]:
    """Final scores of such agents for a terminal: a row for each agent, a column for each game.

    Examples
    --------
    >>> printed({}, "MinAtar")
    []
    """
    from rich.table import Table as Printed

    if not agents:
        return []
    games, found = games_of(agents), against_bellman(agents, SCORE)
    title = f"{what}, final scores: {LEVEL:.0%} intervals over seeds, and how they stand beside {BELLMAN}"
    shown = Printed(title=title, box=None, title_justify="left")
    for name in ("agent", *games, f"part of {BELLMAN}'s"):
        shown.add_column(name, justify="left" if name == "agent" else "right")
    for agent in dict.fromkeys(agent._replace(game="") for agent in agents):
        cells = []
        for here in (agent._replace(game=game) for game in games):
            against = found.get(here)
            cells.append(said(mean(agents.get(here), SCORE)) + (f"\n{against.verdict}" if against else ""))
        shown.add_row(agent.name, *cells, said(relative(agents, agent)))
    return [shown]
