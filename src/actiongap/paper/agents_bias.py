"""How far values are too high: V less what followed, and what of its change is in V and what in how agents play.

The bias is V(x) less the discounted rewards that followed x, mean over the states that an agent meets when it is evaluated. It falls when V
falls, and it falls when more follows, so a change against Bellman is shown as the two that it is made of:

    bias - bias_B = (V - V_B) - (followed - followed_B).

Who earns little has little to overestimate. So the bias is also given as a part of what followed an agent's own states, mean(bias) /
mean(followed). A ratio errs to first order as the mean over seeds of (bias - r followed) / mean(followed), so that is what its interval
and its tests are made of. `actiongap.paper.agents_bias` judges what the paper supposes of all this.

Whether values are less too high where gaps are wider: what the paper supposes, judged pair by pair.

The max in Bellman's operator makes noise in Q into values that are too high, the more so the nearer Q-values are to each other. The paper
finds lower values where gaps are wider, and supposes that it is this bias that is reduced.

A pair is an operator and a game on which Bellman's values are seen to be too high. Of the pairs whose gap is seen to be wider than
Bellman's, the hypothesis wants a lower bias; those are counted, and so are the pairs with a lower bias and no wider gap, which the
hypothesis does not forbid and which say that a bias can fall without it. Means over pairs are not judged: one operator whose gaps run away
makes any mean gap wide, and a mean over games hides those on which the gap is not wider.

One Bellman run serves many pairs, so they are not independent evidence. And no count shows a cause: an operator changes gaps, targets and
play at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import LEVEL, Estimate, mean_over_runs
from actiongap.paper.agents import (
    BELLMAN,
    FEW,
    FOLLOWED,
    HIGHER,
    LOWER,
    OPERATORS,
    OVER_GAMES,
    SURE,
    SWEPT,
    UNSEEN,
    Against,
    Agent,
    Agents,
    Counts,
    Number,
    against_bellman,
    by_seed,
    count,
    final,
    games_of,
    mean,
    mean_over_games,
    paired,
    parts,
)
from actiongap.paper.agents_curves import EVERYWHERE, Point, alpha_chart, swept_games
from actiongap.paper.parts import said
from actiongap.report.groups import Group, several
from actiongap.report.page import Block, Cell, Choice, Prose, Provenance, Table

GAP, VALUE, FOLLOWS, BIAS = (final(name) for name in ("action_gap", "value", FOLLOWED, "bias"))


def size_of_bias(run: RunRecord) -> float:
    """How far V is off, whichever way."""
    return abs(BIAS(run))


def own_parts(group: Group | None) -> dict[int, float]:
    """The bias as a part of what followed, seed by seed; there are none where what followed is not above zero.

    Examples
    --------
    >>> own_parts(None)
    {}
    """
    return parts(by_seed(group, BIAS), by_seed(group, FOLLOWS))


def own_part(group: Group | None) -> Estimate | None:
    """The bias of an agent as a part of what followed its states."""
    return mean_over_runs(list(own_parts(group).values()))


class Beside(NamedTuple):
    """An agent beside Bellman's on the same game, in everything that bias is about."""

    gap: Against
    value: Against
    followed: Against
    bias: Against
    size: Against
    part: Against | None
    """The bias as a part of what followed; None where that is not above zero."""


def beside_bellman(agents: Agents) -> dict[Agent, Beside]:
    """Every other agent beside Bellman's, where they have seeds in common.

    Examples
    --------
    >>> beside_bellman({})
    {}
    """
    gaps, values, follows, biases, sizes = (against_bellman(agents, number) for number in (GAP, VALUE, FOLLOWS, BIAS, size_of_bias))
    found = {}
    for agent in agents:
        if all(agent in some for some in (gaps, follows)):
            part = paired(own_parts(agents[agent]), own_parts(agents.get(Agent(agent.game, BELLMAN))))
            found[agent] = Beside(gaps[agent], values[agent], follows[agent], biases[agent], sizes[agent], part)
    return found


def change(agents: Agents, some: Iterable[Agent], number: Number, unit: Number) -> Estimate | None:
    """A number of some agents, each of another game, less Bellman's, in units of a mean of Bellman's: mean over games."""
    games = []
    for agent in some:
        base = agents.get(Agent(agent.game, BELLMAN))
        scale, ours, theirs = mean(base, unit), by_seed(agents.get(agent), number), by_seed(base, number)
        if scale is not None and scale.value > 0 and ours.keys() & theirs.keys():
            games.append({seed: (ours[seed] - theirs[seed]) / scale.value for seed in ours if seed in theirs})
    return mean_over_games(games)


def bias_charts(agents: Agents, source: Provenance) -> Choice:
    """What alpha does to the bias, to the V and the returns that it is made of, and to the bias as a part of an agent's own returns."""
    games = swept_games(agents)
    places = ({EVERYWHERE: games} if len(games) > 1 else {}) | {game: [game] for game in games}
    band = f"Band: {LEVEL:.0%} t interval over seeds."
    less = f"Less {BELLMAN}'s, seed by seed, over what followed {BELLMAN}'s states. Bias changes by V's change less that of what followed."

    def moved(some: list[str], number: Number) -> Point:
        return lambda operator: change(agents, (Agent(game, operator) for game in some), number, FOLLOWS)

    items = []
    for place, some in places.items():
        for what, number in (("bias", BIAS), ("V", VALUE), ("what followed", FOLLOWS)):
            title, label = f"Change of {what} by alpha, {place}", f"part of what followed {BELLMAN}'s states"
            note = f"{less} {band}" + f" {OVER_GAMES}" * (len(some) > 1)
            items.append(((place, what), alpha_chart(title, label, moved(some, number), note, source)))
    for game in games:
        note = f"mean(bias) / mean(followed) of each agent: how far it overestimates for what it earns. {band}"
        title, point = f"Bias as a part of what followed, {game}", _own(agents, game)
        items.append(((game, "bias as a part of its own"), alpha_chart(title, "part of what followed its own states", point, note, source)))
    return Choice(f"Bias beside {BELLMAN}'s, by alpha", ("game", "quantity"), tuple(items))


def _own(agents: Agents, game: str) -> Point:
    return lambda operator: own_part(agents.get(Agent(game, operator)))


def numbers_table(title: str, agents: Mapping[Agent, Group], note: str, source: Provenance) -> Table:
    """Gaps, values, what followed and bias of some agents."""
    rows: list[tuple[Cell, ...]] = []
    for agent, group in agents.items():
        rows.append((agent.game, agent.name, *(mean(group, number) for number in (GAP, VALUE, FOLLOWS, BIAS)), own_part(group)))
    columns = ("game", "agent", "action gap", "V", "what followed", "bias", "as a part of what followed")
    said = (
        f"Means over the last tenth of the evaluations, then over runs, with Student's t interval at {LEVEL:.0%}. Gap: best less "
        "second-best Q; what followed: discounted rewards; bias: V less these; all over the states that the agent itself met. A run whose "
        "values are no numbers any more is left out, and of n."
    )
    return Table(title, columns, tuple(rows), f"{said} {note}".strip(), source)


def changes_table(title: str, agents: Iterable[Agent], found: Mapping[Agent, Beside], source: Provenance) -> Table:
    """How gaps, values, what followed and bias of some agents stand beside Bellman's."""
    rows: list[tuple[Cell, ...]] = []
    for agent in agents:
        if agent in found:
            beside = found[agent]
            parts = (beside.value.difference, beside.followed.difference, beside.bias.difference)
            part = None if beside.part is None else beside.part.verdict
            rows.append((agent.game, agent.name, beside.gap.verdict, *parts, beside.bias.verdict, part))
    columns = ("game", "agent", "gap", "V, less", "what followed, less", "bias, less", "bias", "as a part of what followed")
    note = (
        f"Differences to {BELLMAN} between runs with the same seed, with their intervals at {LEVEL:.0%}: that of V less that of what "
        f"followed is that of the bias. Words are of paired t-tests against {BELLMAN}, with no correction for their number."
    )
    return Table(title, columns, tuple(rows), note, source)


AGREES, OPPOSED, MIXED, UNDECIDED = "in line with", "against", "both in line with and against", "undecided"
NAMED = 6
"""Pairs that are named before the rest is only counted."""
Pairs = Mapping[Agent, Beside]


class Finding(NamedTuple):
    """What became of the hypothesis."""

    too_high: tuple[str, ...]
    """Games on which Bellman's V is seen to be above what followed."""
    wider: Pairs
    """The operators on these games whose gap is seen to be wider than Bellman's."""
    others: Pairs
    """Those whose gap is not."""

    @property
    def verdict(self) -> str:
        """What follows for the hypothesis, which speaks of wider gaps alone."""
        return judged(count((pair.bias for pair in self.wider.values()), SURE))


def judged(counts: Counts) -> str:
    """What follows for the hypothesis where so many are lower: most lower and none higher is in line with it.

    Examples
    --------
    >>> judged(Counts(higher=0, lower=3, unseen=1, level=0.99)), judged(Counts(0, 1, 3, 0.99)), judged(Counts(1, 3, 0, 0.99))
    ('in line with', 'undecided', 'both in line with and against')
    """
    if counts.higher and counts.lower:
        return MIXED
    return AGREES if 2 * counts.lower > counts.of else OPPOSED if 2 * counts.higher > counts.of else UNDECIDED


def hypothesis(agents: Agents) -> Finding:
    """The pairs of an operator and a game that Bellman overestimates, those with a wider gap and the others.

    Examples
    --------
    >>> hypothesis({}).verdict
    'undecided'
    """
    biases = {game: mean(agents.get(Agent(game, BELLMAN)), BIAS) for game in games_of(agents)}
    too_high = tuple(game for game, bias in biases.items() if bias is not None and math.isfinite(bias.low) and bias.low > 0)
    pairs = {agent: pair for agent, pair in tested(agents).items() if agent.game in too_high}
    wider = {agent: pair for agent, pair in pairs.items() if pair.gap.side(SURE) == HIGHER}
    return Finding(too_high, wider, {agent: pair for agent, pair in pairs.items() if agent not in wider})


def tested(agents: Agents) -> dict[Agent, Beside]:
    """The operators of the sweep beside Bellman's, where there are seeds enough for a test."""
    return {agent: pair for agent, pair in beside_bellman(agents).items() if agent.name in SWEPT and pair.bias.tested and pair.gap.tested}


def bias(agents: Agents, source: Provenance) -> list[Block]:
    """The hypothesis in words, what alpha does to the bias, and the numbers behind it."""
    found = beside_bellman(agents)
    blocks: list[Block] = [Prose(says(agents))]
    blocks += [bias_charts(agents, source)] if found and swept_games(agents) else []
    shown = {agent: group for agent, group in agents.items() if agent.name in OPERATORS}
    blocks.append(numbers_table("Gaps, values and bias in numbers", shown, "", source))
    changes = changes_table(f"Gaps, values and bias beside {BELLMAN}'s", shown, found, source)
    return [*blocks, changes] if changes.rows else blocks


def says(agents: Agents) -> str:
    """What the numbers say of the hypothesis, and what they cannot say."""
    pairs = tested(agents)
    if not pairs:
        return "Nothing can be said of bias yet: no operator and bellman have two seeds in common that are done."
    finding = hypothesis(agents)
    told = [f"The hypothesis: where an operator widens the gap, values are less too high. {_premise(agents, finding)}"]
    told += [_evidence(finding), _without(finding), _split(agents, finding)] if finding.wider or finding.others else []
    told += [_of_returns(agents, pairs), _either_way(agents, pairs)]
    return "\n\n".join(text for text in told if text)


def _premise(agents: Agents, finding: Finding) -> str:
    shown = {game: said(mean(agents.get(Agent(game, BELLMAN)), BIAS)) for game in games_of(agents)}
    over = [f"{game}, by {shown[game]}" for game in finding.too_high]
    others = [f"{game}, {shown[game]}" for game in shown if game not in finding.too_high]
    if not over:
        return (
            f"{BELLMAN} is not seen to overestimate on any game; its bias: {'; '.join(others)}. The hypothesis is undecided: no "
            "overestimation is seen that could be reduced."
        )
    rest = f" It is not seen to on {'; '.join(others)}." if others else ""
    return f"{BELLMAN} is seen to overestimate on {'; '.join(over)} ({LEVEL:.0%}).{rest}"


def _evidence(finding: Finding) -> str:
    gaps = count((pair.gap for pair in (*finding.wider.values(), *finding.others.values())), SURE)
    told = f"One pair for each operator and game that {BELLMAN} overestimates: the gap beside {BELLMAN}'s is {gaps}."
    if not finding.wider:
        return f"{told} The hypothesis is undecided: no gap is seen to be wider."
    sides = count((pair.bias for pair in finding.wider.values()), SURE)
    told += f" Where it is higher, the bias is {_sides(sides)}."
    verdict = {
        AGREES: "This is in line with the hypothesis",
        OPPOSED: "This is against the hypothesis",
        MIXED: "This is in line with the hypothesis for some pairs and against it for others",
        UNDECIDED: "The hypothesis is undecided: most are unclear",
    }[finding.verdict]
    return (
        f"{told} {verdict}; pairs on one game share {BELLMAN}'s runs and are not independent evidence. That the gap is the cause cannot be "
        "shown here: an operator changes gaps, targets and play at once."
    )


def _sides(counts: Counts) -> str:
    return f"{LOWER} in {counts.lower}, {HIGHER} in {counts.higher} and unclear in {counts.unseen} of {counts.of} ({counts.level:.0%})"


def _without(finding: Finding) -> str:
    """The pairs whose bias is lower and whose gap is not wider."""
    lower = {agent: pair for agent, pair in finding.others.items() if pair.bias.side(SURE) == LOWER}
    if not finding.others:
        return ""
    told = f"Where the gap is not seen to be wider, the bias is lower all the same in {len(lower)} of {len(finding.others)} ({SURE:.0%})"
    if not lower:
        return f"{told}."
    narrower = [agent for agent, pair in lower.items() if pair.gap.side(LEVEL) == LOWER]
    if not narrower:
        return f"{told}: {named(lower)}. Gaps may be wider there without being seen to be, so that bias falls without is not shown."
    return f"{told}: {named(lower)}. In {len(narrower)} of these the gap is narrower ({LEVEL:.0%}): bias does fall without a wider gap."


def named(agents: Iterable[Agent]) -> str:
    """Some agents with their games.

    Examples
    --------
    >>> named([Agent("pong", "al:0.9")])
    'al:0.9 on pong'
    """
    names = [f"{agent.name} on {agent.game}" for agent in agents]
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _split(agents: Agents, finding: Finding) -> str:
    """What of the change is in V and what in how agents play."""
    pairs = finding.wider.values()
    told = "The bias falls when V falls, and when more follows because the agent plays better; the paper speaks of values."
    if pairs:
        values, follows = (count(some, SURE) for some in ((pair.value for pair in pairs), (pair.followed for pair in pairs)))
        lower = [pair for pair in pairs if pair.bias.side(SURE) == LOWER]
        play = sum(pair.value.side(SURE) != LOWER and pair.followed.side(SURE) == HIGHER for pair in lower)
        told += (
            f" Where the gap is wider, V itself is {_sides(values)}, and what followed is {_sides(follows)}. In {play} of the "
            f"{several(len(lower), 'pair')} with a lower bias more is seen to follow and V is not seen to be lower."
        )
    games = list(finding.too_high)
    for name in FEW[1:]:
        some = [Agent(game, name) for game in games]
        moved = [change(agents, some, number, FOLLOWS) for number in (BIAS, VALUE, FOLLOWS)]
        if all(number is not None for number in moved):
            told += (
                f" With {name} the bias changes by {said(moved[0])}: V by {said(moved[1])}, and what followed by {said(moved[2])}, all as "
                f"parts of what followed {BELLMAN}'s states{', mean over games' * (len(games) > 1)}."
            )
    return told


def _of_returns(agents: Agents, pairs: Pairs) -> str:
    """The bias as a part of what followed an agent's own states."""
    parts = {agent: pair.part for agent, pair in pairs.items() if pair.part is not None}
    if not parts:
        return ""
    above = [agent for agent, part in parts.items() if part.difference.value > 0]
    told = (
        "Who earns less has less to overestimate. As a part of what followed an agent's own states, the bias beside "
        f"{BELLMAN}'s is {count(parts.values(), SURE)}."
    )
    if not above:
        return told
    shown = [
        f"{agent.name} on {agent.game}, {said(own_part(agents[agent]))} beside {said(own_part(agents[Agent(agent.game, BELLMAN)]))}"
        + (", no difference seen" if parts[agent].side(LEVEL) == UNSEEN else "")
        for agent in above[:NAMED]
    ]
    more = f"; and {len(above) - NAMED} more" if len(above) > NAMED else ""
    return f"{told} The part is above {BELLMAN}'s with {'; '.join(shown)}{more}."


def _either_way(agents: Agents, pairs: Pairs) -> str:
    """Whether values are too low instead, on whatever game."""
    sizes = count((pair.size for pair in pairs.values()), SURE)
    turned = [agent for agent in pairs if (own := mean(agents[agent], BIAS)) is not None and math.isfinite(own.low) and own.high < 0]
    told = f"The size of the bias, whichever way, beside {BELLMAN}'s, on all games: {sizes}. V is seen to be below what followed, too low"
    return f"{told} instead of too high, in {len(turned)} of {len(pairs)} ({LEVEL:.0%})" + (f": {named(turned)}." if turned else ".")
