"""Whether wider gaps make values less too high: the paper's hypothesis, tested.

The max in Bellman's operator makes noise in Q into values that are too high, the more so the nearer Q-values are to each other. The paper
finds lower values where gaps are wider, and supposes that it is this bias that is reduced. Here the bias is measured: V(x) less the
discounted rewards that followed x, mean over the states that an agent meets when it is evaluated.

Three things are asked in turn: on which games Bellman's values are too high at all, whether the operators have wider gaps there, and
whether their bias is lower. For the last two the differences to Bellman are averaged over operators and games seed by seed, as parts of
what is Bellman's, and the seeds make the interval. One Bellman run serves many comparisons, so these cannot be counted as if each were
news.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import Estimate
from actiongap.report.groups import LEVEL, mean_over_runs
from actiongap.report.page import Block, Cell, Choice, Prose, Provenance, Table
from actiongap.reproduce.evidence import said
from actiongap.reproduce.minatar.alphas import EVERYWHERE, Point, alpha_chart
from actiongap.reproduce.minatar.comparing import Against, against_bellman, count, of_operators
from actiongap.reproduce.minatar.runs import FOLLOWED, Agent, Agents, Number, by_seed, final, games_of, mean
from actiongap.reproduce.minatar.studies import BELLMAN, OPERATORS, SWEPT

SUPPORTED, OPPOSED, UNDECIDED = "supported", "opposed", "undecided"
GAP, VALUE, FOLLOWS, BIAS = (final(name) for name in ("action_gap", "value", FOLLOWED, "bias"))


def size_of_bias(run: RunRecord) -> float:
    """How far V is off, whichever way."""
    return abs(BIAS(run))


class Finding(NamedTuple):
    """What became of the hypothesis."""

    too_high: tuple[str, ...]
    """Games on which Bellman's V is seen to be above what followed."""
    agents: tuple[Agent, ...]
    """The others on these games."""
    gap: Estimate | None
    """Their gap less Bellman's, as a part of Bellman's, mean over them."""
    bias: Estimate | None
    """Their bias less Bellman's, as a part of what followed Bellman's states, mean over them."""

    @property
    def wider(self) -> bool:
        """Whether the gap is seen to be wider."""
        return self.gap is not None and math.isfinite(self.gap.low) and self.gap.low > 0

    @property
    def verdict(self) -> str:
        """What follows for the hypothesis, which speaks of wider gaps alone."""
        return judged(self.bias) if self.wider else UNDECIDED


def judged(change: Estimate | None) -> str:
    """Whether the bias is lower as a whole interval says.

    Examples
    --------
    >>> judged(Estimate(-2.0, -3.0, -1.0, 0.95, 9, 1, "")), judged(Estimate(1.0, -1.0, 3.0, 0.95, 9, 1, "")), judged(None)
    ('supported', 'undecided', 'undecided')
    """
    if change is None or not math.isfinite(change.high - change.low):
        return UNDECIDED
    return SUPPORTED if change.high < 0 else OPPOSED if change.low > 0 else UNDECIDED


def hypothesis(agents: Agents) -> Finding:
    """The three questions.

    Examples
    --------
    >>> hypothesis({}).verdict
    'undecided'
    """
    biases = {game: mean(agents.get(Agent(game, BELLMAN)), BIAS) for game in games_of(agents)}
    too_high = tuple(game for game, bias in biases.items() if bias is not None and math.isfinite(bias.low) and bias.low > 0)
    return found_of(agents, too_high, [agent for agent in agents if agent.game in too_high and agent.name in SWEPT])


def found_of(agents: Agents, too_high: tuple[str, ...], some: Sequence[Agent]) -> Finding:
    """The last two questions, asked of some agents."""
    return Finding(too_high, tuple(some), change(agents, some, GAP, GAP), change(agents, some, BIAS, FOLLOWS))


def change(agents: Agents, some: Iterable[Agent], number: Number, unit: Number) -> Estimate | None:
    """A number of some agents less Bellman's, in units of a mean of Bellman's: mean over the agents of a game, then over games."""
    games: dict[str, list[dict[int, float]]] = {}
    for agent in some:
        base = agents.get(Agent(agent.game, BELLMAN))
        scale, ours, theirs = mean(base, unit), by_seed(agents.get(agent), number), by_seed(base, number)
        if scale is not None and scale.value > 0 and ours.keys() & theirs.keys():
            shared = {seed: (ours[seed] - theirs[seed]) / scale.value for seed in ours if seed in theirs}
            games.setdefault(agent.game, []).append(shared)
    every = [found for each in games.values() for found in each]
    seeds = sorted(set.intersection(*map(set, every))) if every else []
    return mean_over_runs([float(np.mean([np.mean([found[seed] for found in each]) for each in games.values()])) for seed in seeds])


def bias(agents: Agents, source: Provenance) -> list[Block]:
    """The hypothesis in words, the numbers behind it, and what alpha does to the bias."""
    biases = of_operators(against_bellman(agents, BIAS), SWEPT)
    blocks: list[Block] = [Prose(says(agents, biases))]
    blocks += [_charts(agents, source)] if len({SWEPT[agent.operator][1] for agent in biases}) > 1 else []
    return [*blocks, _table(agents, biases, source)]


def says(agents: Agents, biases: dict[Agent, Against]) -> str:
    """What the numbers say of the hypothesis."""
    finding, gaps = hypothesis(agents), of_operators(against_bellman(agents, GAP), SWEPT)
    if not any(against.difference.n > 1 for against in biases.values()):
        return "Nothing can be said of bias yet: no operator and bellman have two seeds in common that are done."
    told = [f"The hypothesis: where an operator widens the gap, values are less too high. {_premises(agents, finding, gaps)}"]
    told.append(f"The hypothesis is {finding.verdict} ({LEVEL:.0%}). {_evidence(agents, finding)}")
    sizes = of_operators(against_bellman(agents, size_of_bias), SWEPT)
    turned = [agent for agent in biases if (own := mean(agents[agent], BIAS)) is not None and math.isfinite(own.low) and own.high < 0]
    told.append(
        f"On all games, whether {BELLMAN} overestimates or not: the bias beside {BELLMAN}'s is {count(biases.values(), LEVEL)}; its size, "
        f"whichever way, {count(sizes.values(), LEVEL)}. V is below what followed, too low instead of too high, in {len(turned)} of "
        f"{len(biases)}" + (f" ({', '.join(f'{agent.name} on {agent.game}' for agent in turned)})." if 0 < len(turned) <= 6 else ".")
    )
    return "\n\n".join(told)


def _premises(agents: Agents, finding: Finding, gaps: dict[Agent, Against]) -> str:
    shown = {game: said(mean(agents.get(Agent(game, BELLMAN)), BIAS)) for game in games_of(agents)}
    over = [f"{game}, by {shown[game]}" for game in finding.too_high]
    others = [f"{game}, {shown[game]}" for game in shown if game not in finding.too_high]
    told = f"{BELLMAN} is seen to overestimate on {'; '.join(over)}." if over else f"{BELLMAN} is not seen to overestimate on any game."
    told += f" It is not seen to on {'; '.join(others)}." if over and others else f" Its bias: {'; '.join(others)}." if others else ""
    return f"{told} The gap beside {BELLMAN}'s is {count(gaps.values(), LEVEL)}."


def _evidence(agents: Agents, finding: Finding) -> str:
    if not finding.too_high:
        return "No overestimation is seen that could be reduced."
    gap = f"Where {BELLMAN} overestimates, the gap less {BELLMAN}'s is {said(finding.gap)} times {BELLMAN}'s, mean over all operators"
    if not finding.wider:
        return f"{gap}: it is not seen to be wider."
    names: dict[str, list[str]] = {}
    for name in dict.fromkeys(agent.name for agent in finding.agents):
        own = found_of(agents, finding.too_high, [agent for agent in finding.agents if agent.name == name])
        names.setdefault(own.verdict if own.wider else "no wider gap seen", []).append(name)
    games: dict[str, list[str]] = {}
    for game in finding.too_high:
        own = found_of(agents, (game,), [agent for agent in finding.agents if agent.game == game])
        games.setdefault(own.verdict if own.wider else "no wider gap seen", []).append(game)
    by_name, by_game = ("; ".join(f"{side}: {', '.join(some)}" for side, some in sides.items()) for sides in (names, games))
    return (
        f"{gap}, and the bias less {BELLMAN}'s is {said(finding.bias)} of the discounted rewards that followed {BELLMAN}'s states (below "
        f"0: less too high). By operator, {by_name}. By game, {by_game}."
    )


def _charts(agents: Agents, source: Provenance) -> Choice:
    games = games_of(agents)
    places = ({EVERYWHERE: games} if len(games) > 1 else {}) | {game: [game] for game in games}
    note = (
        f"The bias less {BELLMAN}'s, seed by seed, over what followed {BELLMAN}'s states; below 0 values are less too high, or too low. "
        f"Band: {LEVEL:.0%} t interval over seeds."
    )

    def moved(some: list[str]) -> Point:
        return lambda operator: change(agents, (Agent(game, operator) for game in some), BIAS, FOLLOWS)

    items = tuple(
        ((place,), alpha_chart(f"Change of bias by alpha, {place}", "part of what followed", moved(some), note, source))
        for place, some in places.items()
    )
    return Choice(f"Bias less {BELLMAN}'s, by alpha", ("game",), items)


def _table(agents: Agents, biases: dict[Agent, Against], source: Provenance) -> Table:
    rows: list[tuple[Cell, ...]] = []
    gaps, sizes = against_bellman(agents, GAP), against_bellman(agents, size_of_bias)
    for agent, group in agents.items():
        if agent.name in OPERATORS:
            numbers = (mean(group, number) for number in (GAP, VALUE, FOLLOWS, BIAS))
            rows.append((agent.game, agent.name, *numbers, *bias_cells(gaps.get(agent), biases.get(agent), sizes.get(agent))))
    columns = ("game", "operator", "action gap", "V", "what followed", "bias", *BIAS_COLUMNS)
    note = (
        f"Means over the last tenth of the evaluations, then over runs, with Student's t interval at {LEVEL:.0%}. Gap: best less "
        f"second-best Q; what followed: discounted rewards; bias: V less these; all over the states that the agent itself met. Verdicts "
        f"are of paired t-tests against {BELLMAN}. A run whose values are no numbers any more is left out, and of n."
    )
    return Table("Gaps, values and bias in numbers", columns, tuple(rows), note, source)


BIAS_COLUMNS = (f"gap beside {BELLMAN}'s", f"bias less {BELLMAN}'s", f"bias beside {BELLMAN}'s", "size of the bias")


def bias_cells(gap: Against | None, change: Against | None, size: Against | None) -> tuple[Cell, ...]:
    """How gap and bias stand beside Bellman's, in a table."""
    verdicts = [None if against is None else against.verdict for against in (gap, change, size)]
    return verdicts[0], None if change is None else change.difference, verdicts[1], verdicts[2]
