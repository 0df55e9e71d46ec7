"""Final scores of deep agents: every operator on every game, compared with Bellman and with each other.

The final score is the mean over the last tenth of a run's evaluations. Each comparison is a paired t-test on one game, not corrected for
multiple testing; every count states how many differences are expected by chance.

The ratio of the two scores is shown with each test and has its own interval. The test is about s - b, and the interval is about
r = mean(s) / mean(b), whose error is that of s - r b. If r is not 1 these have different spread, so near the threshold one may detect a
difference that the other does not. The test decides.
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
    NO_DIFFERENCE,
    OPERATORS,
    OVER_GAMES,
    PAPER_LEVEL,
    SWEEP,
    Agent,
    Agents,
    Comparison,
    RunMetric,
    compare,
    compare_with_bellman,
    count_directions,
    final_mean,
    games_of,
    mean,
    mean_ratio_over_games,
    score_kind,
    select_operators,
)
from actiongap.paper.parts import format_estimate
from actiongap.reporting.groups import several
from actiongap.reporting.page import Block, Cell, Prose, Provenance, Table

SCORE = final_mean("score")
"""The mean over the last tenth of the evaluations."""
HIGHEST = score_kind("highest")
"""The highest evaluation of a run, as in the paper's table."""


def score_blocks(agents: Agents, source: Provenance) -> list[Block]:
    """Return final scores and their comparisons, in words and in tables."""
    found = select_operators(compare_with_bellman(agents, SCORE), SWEEP)
    tested = {agent: comparison for agent, comparison in found.items() if comparison.tested}
    pairs = compare_pal_with_al(agents)
    blocks: list[Block] = [Prose(caption(agents, tested, pairs)), _scores_table(agents, found, source)]
    if tested and (untested := len(found) - len(tested)):
        blocks.insert(1, Prose(f"{several(untested, 'comparison')} with {BELLMAN} cannot be tested: one pair of runs each."))
    if found:
        blocks.append(_counts_table(agents, tested or found, source))
    if pairs:
        blocks.append(_pairs_table(agents, pairs, source))
    return blocks


def sweep_operators(agents: Agents) -> list[str]:
    """Return the operators of the sweep that were trained, in the order of the page."""
    trained = {agent.name for agent in agents}
    return [name for name in OPERATORS if name in trained]


def mean_relative_score(agents: Agents, agent: Agent, score: RunMetric = SCORE) -> Estimate | None:
    """Return the score as a fraction of Bellman's, mean over the games that both have and on which Bellman's score is positive."""
    games = [game for game in games_of(agents) if agent._replace(game=game) in agents and game not in games_without_baseline(agents, score)]
    return mean_ratio_over_games([(agents[agent._replace(game=game)], agents[Agent(game, BELLMAN)]) for game in games], score)


def games_without_baseline(agents: Agents, score: RunMetric = SCORE) -> list[str]:
    """Return the games on which Bellman has no positive score to divide by.

    Examples
    --------
    >>> games_without_baseline({})
    []
    """
    bases = {game: mean(agents.get(Agent(game, BELLMAN)), score) for game in games_of(agents)}
    return [game for game, base in bases.items() if base is None or base.value <= 0]


def compare_pal_with_al(agents: Agents) -> dict[tuple[str, float], Comparison]:
    """Compare persistent with plain advantage learning at the same alpha, by game and alpha."""
    plain, persistent = FAMILIES
    found: dict[tuple[str, float], Comparison] = {}
    for game in games_of(agents):
        for alpha in ALPHAS:
            one, other = (agents.get(Agent(game, f"{family}:{alpha:g}")) for family in (persistent, plain))
            if (comparison := compare(one, other, SCORE)) is not None:
                found[game, alpha] = comparison
    return found


def caption(agents: Agents, found: dict[Agent, Comparison], pairs: dict[tuple[str, float], Comparison]) -> str:
    """Describe the conclusions from the final scores, and their uncertainty."""
    if not found:
        return "Final scores are not compared: no operator has two finished seeds in common with bellman."
    levels = [str(count_directions(found.values(), level)) for level in (LEVEL, PAPER_LEVEL)]
    shared = f"Comparisons on one game share {BELLMAN}'s runs, so they are not independent."
    texts = [f"The score compared with {BELLMAN}, one comparison per operator and game: {'; '.join(levels)}. {shared} {_precision(found)}"]
    for family in FAMILIES:
        some = [comparison for agent, comparison in found.items() if SWEEP[agent.operator][0] == family]
        texts[0] += f" With {family}: {count_directions(some, LEVEL)}." if len(some) > 1 else ""
    texts.append(" ".join(_game_text(game, found) for game in games_of(agents) if any(agent.game == game for agent in found)))
    if len(games_of(agents)) > 1 and _same_games(agents):
        texts.append(_relative_scores_text(agents))
    tested = [comparison for comparison in pairs.values() if comparison.tested]
    if tested:
        plain, persistent = FAMILIES
        directions = "; ".join(str(count_directions(tested, level)) for level in (LEVEL, PAPER_LEVEL))
        texts.append(f"The score of {persistent} compared with {plain} at the same alpha, one comparison per game and alpha: {directions}.")
    return "\n\n".join(texts)


def _precision(found: dict[Agent, Comparison]) -> str:
    """Describe the size of differences that are likely to be missed."""
    half_widths: dict[str, list[float]] = {}
    for agent, comparison in found.items():
        if comparison.ratio is not None and comparison.ratio.n > 1:
            half_widths.setdefault(agent.game, []).append((comparison.ratio.high - comparison.ratio.low) / 2)
    # Two digits, never in scientific notation.
    parts = ", ".join(f"{float(f'{100 * sum(some) / len(some):.2g}'):g}% on {game}" for game, some in half_widths.items())
    return f"Differences below about these fractions of {BELLMAN}'s score are easily missed: {parts}." if parts else ""


def _game_text(game: str, found: dict[Agent, Comparison]) -> str:
    directions: dict[str, list[str]] = {}
    for agent, comparison in found.items():
        if agent.game == game:
            directions.setdefault(comparison.direction(LEVEL), []).append(agent.operator)
    texts = [f"{direction} with {', '.join(directions[direction])}" for direction in (HIGHER, LOWER) if direction in directions]
    total = sum(agent.game == game for agent in found)
    if not texts:
        return f"On {game} no difference is detected with any of {several(total, 'operator')} ({LEVEL:.0%})."
    rest = total - sum(len(directions.get(direction, [])) for direction in (HIGHER, LOWER))
    return f"On {game} it is {' and '.join(texts)} ({LEVEL:.0%})" + (f"; no difference is detected with the other {rest}." if rest else ".")


def _same_games(agents: Agents) -> bool:
    """Whether all operators have means over all games."""
    game_sets = {frozenset(agent.game for agent in agents if agent.name == name) for name in sweep_operators(agents)}
    return len(game_sets) == 1 and not games_without_baseline(agents)


def _relative_scores_text(agents: Agents) -> str:
    fractions = {
        name: fraction
        for name in sweep_operators(agents)
        if name != BELLMAN and (fraction := mean_relative_score(agents, Agent("", name))) is not None
    }
    if not fractions:
        return ""
    above = [f"{name} {format_estimate(fraction)}" for name, fraction in fractions.items() if fraction.low > 1]
    below = [f"{name} {format_estimate(fraction)}" for name, fraction in fractions.items() if fraction.high < 1]
    rest = len(fractions) - len(above) - len(below)
    best = max(fractions, key=lambda name: fractions[name].value)
    texts = [f"above {BELLMAN}: {', '.join(above) or 'none'}", f"below: {', '.join(below) or 'none'}", f"{NO_DIFFERENCE}: {rest}"]
    return (
        f"The score as a fraction of {BELLMAN}'s, mean over {several(len(games_of(agents)), 'game')}: {'; '.join(texts)}. The highest is "
        f"{best}, {format_estimate(fractions[best])}; the highest of {len(fractions)} is biased upwards."
    )


def _scores_table(agents: Agents, found: dict[Agent, Comparison], source: Provenance) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for agent, group in agents.items():
        if agent.name in OPERATORS:
            rows.append((agent.game, agent.name, mean(group, SCORE), *comparison_cells(found.get(agent))))
    columns = ("game", "operator", "score", f"against {BELLMAN}", f"fraction of {BELLMAN}'s", f"minus {BELLMAN}'s", "p")
    note = (
        f"Score: return of an episode, mean over the last tenth of the evaluations, then over runs, with Student's t interval at "
        f"{LEVEL:.0%}. Differences are between runs with the same seed. p and the verdicts are of paired t-tests at {LEVEL:.0%} and "
        f"{PAPER_LEVEL:.0%}, not corrected for multiple testing. The tests decide: they are about differences. The fraction of "
        f"{BELLMAN}'s is a ratio, and its interval may contain 1 where a test just detects a difference, and vice versa."
    )
    return Table("Final scores", columns, tuple(rows), note, source)


def comparison_cells(comparison: Comparison | None) -> tuple[Cell, ...]:
    """Return the table cells of a comparison: verdict, ratio, difference, and p."""
    if comparison is None:
        return None, None, None, None
    return comparison.verdict, comparison.ratio, comparison.difference, format_p(comparison.p) if comparison.tested else None


def format_p(p: float) -> str:
    """Format a p-value to three decimals.

    Examples
    --------
    >>> format_p(0.05249), format_p(0.00049)
    ('0.052', '< 0.001')
    """
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def _counts_table(agents: Agents, found: dict[Agent, Comparison], source: Provenance) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in sweep_operators(agents):
        some = select_operators(found, [name]).values()
        if some:
            counts = [count_directions(some, level) for level in (LEVEL, PAPER_LEVEL)]
            cells = [cell for each in counts for cell in (each.higher, each.lower, each.no_difference)]
            rows.append((name, mean_relative_score(agents, Agent("", name)), len(some), *cells))
    directions = ("helps", "hurts", "unclear")
    columns = (
        "operator",
        f"fraction of {BELLMAN}'s",
        "games compared",
        *(f"{direction}, {level:.0%}" for level in (LEVEL, PAPER_LEVEL) for direction in directions),
    )
    chance = " and ".join(
        f"{count_directions(found.values(), level).expected_by_chance:.2g} at {level:.0%}" for level in (LEVEL, PAPER_LEVEL)
    )
    note = (
        f"Games on which the score is higher than {BELLMAN}'s, lower, or undecided. Without any true difference, about {chance} of all "
        f"{len(found)} comparisons would be higher by chance, and the same number lower. The fraction of {BELLMAN}'s score is the mean "
        f"over all games on which {BELLMAN}'s score is positive, compared or not."
    )
    if excluded := [game for game in games_without_baseline(agents) if any(agent.game == game for agent in found)]:
        note += f" It excludes {', '.join(excluded)}, where {BELLMAN}'s score is not positive."
    note += f" {OVER_GAMES}"
    return Table("Where each operator helps, and where it hurts", columns, tuple(rows), note, source)


def _pairs_table(agents: Agents, pairs: dict[tuple[str, float], Comparison], source: Provenance) -> Table:
    plain, persistent = FAMILIES
    rows: list[tuple[Cell, ...]] = []
    for (game, alpha), comparison in pairs.items():
        both = (mean(agents[Agent(game, f"{family}:{alpha:g}")], SCORE) for family in (persistent, plain))
        rows.append((game, alpha, *both, *comparison_cells(comparison)))
    columns = ("game", "alpha", persistent, plain, f"{persistent} against {plain}", f"fraction of {plain}'s", f"minus {plain}'s", "p")
    return Table(
        "Persistent against plain advantage learning",
        columns,
        tuple(rows),
        "Final scores, compared as in the table of final scores.",
        source,
    )


def terminal_tables(agents: Agents, what: str) -> list[Any]:
    """Return a terminal table of final scores: one row per agent, one column per game.

    Examples
    --------
    >>> terminal_tables({}, "MinAtar")
    []
    """
    from rich.table import Table as Printed

    if not agents:
        return []
    games, found = games_of(agents), compare_with_bellman(agents, SCORE)
    title = f"{what}, final scores: {LEVEL:.0%} intervals over seeds, and comparisons with {BELLMAN}"
    shown = Printed(title=title, box=None, title_justify="left")
    for name in ("agent", *games, f"fraction of {BELLMAN}'s"):
        shown.add_column(name, justify="left" if name == "agent" else "right")
    for agent in dict.fromkeys(agent._replace(game="") for agent in agents):
        cells = []
        for here in (agent._replace(game=game) for game in games):
            comparison = found.get(here)
            cells.append(format_estimate(mean(agents.get(here), SCORE)) + (f"\n{comparison.verdict}" if comparison else ""))
        shown.add_row(agent.name, *cells, format_estimate(mean_relative_score(agents, agent)))
    return [shown]
