"""Scores in the three ways of the paper, and its counts beside ours."""

from __future__ import annotations

from actiongap.report.groups import LEVEL, SCORES
from actiongap.report.page import Block, Cell, Provenance, Table
from actiongap.reproduce.agents.comparing import SURE
from actiongap.reproduce.agents.counts import ATARI, count_rows, counts_of, pairings
from actiongap.reproduce.agents.operators import USUAL
from actiongap.reproduce.agents.runs import Agents, final, mean, score_of


def three_ways(agents: Agents, source: Provenance) -> Table:
    """The highest score of every agent, its last, and the average of its last tenth."""
    rows: list[tuple[Cell, ...]] = []
    for agent, group in agents.items():
        scores = (mean(group, score_of(kind)) for kind in reversed(SCORES))
        others = (mean(group, final(name)) for name in ("training_return", "games"))
        rows.append((agent.game, agent.name, f"{group.runs[0].spec['frames']:,}", *scores, *others))
    columns = ("game", "agent", "frames", *reversed(SCORES), "in training", "games an evaluation")
    note = (
        "The highest score of a run is the best of its evaluations, which flatters whoever is noisy and grows with their number; the last "
        "is that after training, which the paper tests; the average is over the last tenth of the evaluations, by which agents are "
        "compared here. In training: the rewards of games that ended then, mean over the last tenth. All are means over runs that are "
        f"done, with Student's t interval at {LEVEL:.0%}; one run has none."
    )
    return Table("Scores in three ways", columns, tuple(rows), note, source)


def counts_beside(agents: Agents, source: Provenance) -> list[Block]:
    """The paper's counts of games beside ours; nothing where no two of the three operators have a seed in common.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> counts_beside({}, provenance_of([]))
    []
    """
    found = [pairings(agents, score_of(kind)) for kind in SCORES]
    rows = count_rows(found)
    if not rows:
        return []
    every = [against for some in found[0].values() for against in some]
    once = sum(not against.tested for against in every)
    chances = sorted({counts.by_chance for some in found for counts in counts_of(some).values() if counts.of})
    ours = " to ".join(f"{chance:.2g}" for chance in dict.fromkeys(chances[:1] + chances[-1:]))
    paper = f"{ATARI * (1 - SURE) / 2:.2g}"
    rarely = f"{ours} each way in a row of ours and {paper} in the paper's" if ours else f"{paper} each way in a row of the paper's"
    note = (
        f"Paired t-tests by seed on each game, at {SURE:.0%}, with no correction for their number: by chance alone {rarely}. "
        f"The paper tests scores after training, of ten trials each; here alpha = {USUAL:g}."
    )
    if once:
        note += f" {once} of all {len(every)} comparisons are of one pair of runs, which no test can be made of, and are not counted."
    columns = ("comparison", "paper", *(f"here, {kind}" for kind in SCORES))
    return [Table("The paper's counts of games", columns, tuple(rows), note, source)]
