"""The paper's counts beside ours: on how many games an agent is better than another, and on how many worse.

The paper tests agents game by game, with paired t-tests at 99%, and counts. So do we, whatever our games are.
"""

from __future__ import annotations

from collections.abc import Sequence

from actiongap.report.page import Cell
from actiongap.reproduce.agents.comparing import SURE, Against, Counts, against_bellman, compare, count, of_operators
from actiongap.reproduce.agents.operators import BELLMAN, FAMILIES, USUAL
from actiongap.reproduce.agents.runs import Agent, Agents, Number, games_of

ATARI = 60
"""Games of the paper."""
NAMES = dict(zip(FAMILIES, ("advantage learning", "persistent advantage learning"), strict=True))
"""What the paper calls them."""
PRINTED = {
    f"{FAMILIES[0]} beside {BELLMAN}": (37, 1),
    f"{FAMILIES[1]} beside {BELLMAN}": (35, 1),
    f"{FAMILIES[1]} beside {FAMILIES[0]}": (16, 6),
}
"""On how many of them the paper finds an agent better and worse than another, by paired t-tests at 99%."""


def pairings(agents: Agents, number: Number) -> dict[str, list[Against]]:
    """The comparisons that the paper makes, at the usual alpha: one for each game on which both agents have a seed in common.

    Examples
    --------
    >>> pairings({}, lambda run: 0.0)
    {'al beside bellman': [], 'pal-dqn beside bellman': [], 'pal-dqn beside al': []}
    """
    plain, persistent = (f"{family}:{USUAL:g}" for family in FAMILIES)
    found = against_bellman(agents, number)
    both = [compare(agents.get(Agent(game, persistent)), agents.get(Agent(game, plain)), number) for game in games_of(agents)]
    sides = (
        list(of_operators(found, [plain]).values()),
        list(of_operators(found, [persistent]).values()),
        [against for against in both if against is not None],
    )
    return dict(zip(PRINTED, sides, strict=True))


def counts_of(found: dict[str, list[Against]]) -> dict[str, Counts]:
    """How the comparisons of each pairing come out that a test can be made of.

    Examples
    --------
    >>> counts_of(pairings({}, lambda run: 0.0))["al beside bellman"].of
    0
    """
    return {what: count([against for against in some if against.tested], SURE) for what, some in found.items()}


def count_rows(numbers: Sequence[dict[str, list[Against]]]) -> list[tuple[Cell, ...]]:
    """Rows of a table: the comparison and its side, the paper's count, and ours by each of some numbers, of as many as can be tested.

    Examples
    --------
    >>> count_rows([pairings({}, lambda run: 0.0)])
    []
    """
    rows: list[tuple[Cell, ...]] = []
    for what, printed in PRINTED.items():
        counts = [counts_of(found)[what] for found in numbers]
        if any(found[what] for found in numbers):
            for side, paper, name in zip(("better", "worse"), printed, ("higher", "lower"), strict=True):
                ours = (f"{getattr(each, name)} of {each.of}" if each.of else "none tested" for each in counts)
                rows.append((f"{what}: {side}", f"{paper} of {ATARI}", *ours))
    return rows
