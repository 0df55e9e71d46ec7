"""Overestimation: V minus the discounted return, and whether it is lower where gaps are wider.

The bias is V(x) minus the discounted return from x, averaged over the states that an agent visits in evaluation. It falls if V falls, and
it falls if the return rises. A change against Bellman is therefore shown with its two parts:

    bias - bias_B = (V - V_B) - (return - return_B).

The bias of an agent with low returns is small in absolute terms. The bias is therefore also shown as a fraction of the agent's own
discounted return, mean(bias) / mean(return). To first order the error of a ratio r is the mean over seeds of (bias - r return) /
mean(return), and intervals and tests use these terms.

**The paper's hypothesis.** The max in Bellman's operator turns noise in Q into overestimation, more so if Q-values are close. The paper
finds lower values where gaps are wider, and conjectures that a wider gap reduces this bias. `hypothesis` tests it on pairs: an operator and
a game on which Bellman overestimates significantly. Among pairs whose gap is significantly wider than Bellman's, the hypothesis predicts a
lower bias. Pairs with a lower bias and no wider gap are counted too: the hypothesis allows them, and they show that a bias can fall without
a wider gap. Means over pairs are not tested, because one operator with diverging gaps dominates a mean, and a mean over games hides games
on which the gap is not wider.

Pairs on one game share Bellman's runs, so they are not independent. No count shows a cause: an operator changes gaps, targets and policy at
once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import LEVEL, Estimate, mean_over_games, mean_over_runs, ratios_by_seed
from actiongap.paper.agents import (
    BELLMAN,
    DISCOUNTED_RETURN,
    HIGHER,
    LOWER,
    MAIN_OPERATORS,
    NO_DIFFERENCE,
    OPERATORS,
    OVER_GAMES,
    PAPER_LEVEL,
    SWEEP,
    Agent,
    Agents,
    Comparison,
    Counts,
    RunMetric,
    by_seed,
    compare_paired,
    compare_with_bellman,
    count_directions,
    final_mean,
    games_of,
    mean,
)
from actiongap.paper.agents_curves import ALL_GAMES, OperatorMetric, alpha_chart, swept_games
from actiongap.paper.parts import format_estimate
from actiongap.reporting.groups import Group, several
from actiongap.reporting.page import Block, Cell, Choice, Prose, Provenance, Table

GAP, VALUE, RETURN, BIAS = (final_mean(name) for name in ("action_gap", "value", DISCOUNTED_RETURN, "bias"))


def absolute_bias(run: RunRecord) -> float:
    """Return |bias|."""
    return abs(BIAS(run))


def relative_bias_by_seed(group: Group | None) -> dict[int, float]:
    """Return the terms, by seed, whose mean is the mean bias over the mean return; empty if that return is not positive.

    Examples
    --------
    >>> relative_bias_by_seed(None)
    {}
    """
    return ratios_by_seed(by_seed(group, BIAS), by_seed(group, RETURN))


def relative_bias(group: Group | None) -> Estimate | None:
    """Return the bias of an agent as a fraction of its discounted return."""
    return mean_over_runs(list(relative_bias_by_seed(group).values()))


class BiasComparison(NamedTuple):
    """An agent compared with Bellman on the same game: gap, values, returns and bias."""

    gap: Comparison
    value: Comparison
    discounted_return: Comparison
    bias: Comparison
    absolute: Comparison
    relative: Comparison | None
    """The bias as a fraction of the discounted return; None if the return is not positive."""


def bias_comparisons(agents: Agents) -> dict[Agent, BiasComparison]:
    """Compare every other agent with Bellman, where they have common seeds.

    Examples
    --------
    >>> bias_comparisons({})
    {}
    """
    metrics = (GAP, VALUE, RETURN, BIAS, absolute_bias)
    gaps, values, returns, biases, absolute = (compare_with_bellman(agents, metric) for metric in metrics)
    found = {}
    for agent in agents:
        if agent in gaps and agent in returns:
            relative = compare_paired(relative_bias_by_seed(agents[agent]), relative_bias_by_seed(agents.get(Agent(agent.game, BELLMAN))))
            found[agent] = BiasComparison(gaps[agent], values[agent], returns[agent], biases[agent], absolute[agent], relative)
    return found


def normalized_change(agents: Agents, selected: Iterable[Agent], metric: RunMetric, unit: RunMetric) -> Estimate | None:
    """Return a metric of agents on several games minus Bellman's, divided by Bellman's mean of `unit`: mean over games."""
    games = []
    for agent in selected:
        base = agents.get(Agent(agent.game, BELLMAN))
        scale, ours, theirs = mean(base, unit), by_seed(agents.get(agent), metric), by_seed(base, metric)
        if scale is not None and scale.value > 0 and ours.keys() & theirs.keys():
            games.append({seed: (ours[seed] - theirs[seed]) / scale.value for seed in ours if seed in theirs})
    return mean_over_games(games)


def bias_charts(agents: Agents, source: Provenance) -> Choice:
    """Return charts over alpha of the bias, of its two parts V and return, and of the bias as a fraction of the agent's own return."""
    games = swept_games(agents)
    places = ({ALL_GAMES: games} if len(games) > 1 else {}) | {game: [game] for game in games}
    band = f"Band: {LEVEL:.0%} t interval over seeds."
    unit = (
        f"Minus {BELLMAN}'s, paired by seed, divided by {BELLMAN}'s discounted return. The change of the bias is the change of V minus the "
        "change of the return."
    )

    def change_of(selected: list[str], metric: RunMetric) -> OperatorMetric:
        return lambda operator: normalized_change(agents, (Agent(game, operator) for game in selected), metric, RETURN)

    items = []
    for place, selected in places.items():
        for what, metric in (("bias", BIAS), ("V", VALUE), ("discounted return", RETURN)):
            title, label = f"Change of {what} by alpha, {place}", f"fraction of {BELLMAN}'s discounted return"
            note = f"{unit} {band}" + f" {OVER_GAMES}" * (len(selected) > 1)
            items.append(((place, what), alpha_chart(title, label, change_of(selected, metric), note, source)))
    for game in games:
        note = f"mean(bias) / mean(discounted return) of each agent. {band}"
        title, point = f"Bias as a fraction of the discounted return, {game}", _relative_bias_metric(agents, game)
        items.append(((game, "bias / own return"), alpha_chart(title, "fraction of its own discounted return", point, note, source)))
    return Choice(f"Bias compared with {BELLMAN}, by alpha", ("game", "quantity"), tuple(items))


def _relative_bias_metric(agents: Agents, game: str) -> OperatorMetric:
    return lambda operator: relative_bias(agents.get(Agent(game, operator)))


def values_table(title: str, agents: Mapping[Agent, Group], note: str, source: Provenance) -> Table:
    """Return a table of the gaps, values, discounted returns and biases of some agents."""
    rows: list[tuple[Cell, ...]] = []
    for agent, group in agents.items():
        rows.append((agent.game, agent.name, *(mean(group, metric) for metric in (GAP, VALUE, RETURN, BIAS)), relative_bias(group)))
    columns = ("game", "agent", "action gap", "V", "discounted return", "bias", "bias / return")
    definitions = (
        f"Means over the last tenth of the evaluations, then over runs, with Student's t interval at {LEVEL:.0%}. Gap: best minus "
        "second-best Q. Bias: V minus the discounted return. All are means over the states that the agent itself visits. Runs with "
        "values that are not finite are excluded, also from n."
    )
    return Table(title, columns, tuple(rows), f"{definitions} {note}".strip(), source)


def changes_table(title: str, agents: Iterable[Agent], found: Mapping[Agent, BiasComparison], source: Provenance) -> Table:
    """Return a table of the gaps, values, discounted returns and biases of some agents compared with Bellman."""
    rows: list[tuple[Cell, ...]] = []
    for agent in agents:
        if agent in found:
            pair = found[agent]
            differences = (pair.value.difference, pair.discounted_return.difference, pair.bias.difference)
            relative = None if pair.relative is None else pair.relative.verdict
            rows.append((agent.game, agent.name, pair.gap.verdict, *differences, pair.bias.verdict, relative))
    columns = ("game", "agent", "gap", "V, difference", "return, difference", "bias, difference", "bias", "bias / return")
    note = (
        f"Differences from {BELLMAN} between runs with the same seed, with {LEVEL:.0%} intervals. The difference of V minus that of the "
        f"return is that of the bias. Verdicts are of paired t-tests against {BELLMAN}, not corrected for multiple testing."
    )
    return Table(title, columns, tuple(rows), note, source)


AGREES, OPPOSED, MIXED, UNDECIDED = "supports", "contradicts", "mixed", "undecided"
NAMED = 6
"""Maximum number of pairs that are listed by name."""
Pairs = Mapping[Agent, BiasComparison]


class Finding(NamedTuple):
    """The result of testing the hypothesis."""

    too_high: tuple[str, ...]
    """Games on which Bellman overestimates significantly."""
    wider: Pairs
    """The operators on these games whose gap is significantly wider than Bellman's."""
    others: Pairs
    """The other operators on these games."""

    @property
    def verdict(self) -> str:
        """The verdict on the hypothesis, from the pairs with wider gaps."""
        return judge(count_directions((pair.bias for pair in self.wider.values()), PAPER_LEVEL))


def judge(counts: Counts) -> str:
    """Return the verdict on the hypothesis: most biases lower and none higher supports it.

    Examples
    --------
    >>> judge(Counts(higher=0, lower=3, no_difference=1, level=0.99)), judge(Counts(0, 1, 3, 0.99)), judge(Counts(1, 3, 0, 0.99))
    ('supports', 'undecided', 'mixed')
    """
    if counts.higher and counts.lower:
        return MIXED
    return AGREES if 2 * counts.lower > counts.total else OPPOSED if 2 * counts.higher > counts.total else UNDECIDED


def hypothesis(agents: Agents) -> Finding:
    """Return the pairs of an operator and a game on which Bellman overestimates, split by whether the gap is wider.

    Examples
    --------
    >>> hypothesis({}).verdict
    'undecided'
    """
    biases = {game: mean(agents.get(Agent(game, BELLMAN)), BIAS) for game in games_of(agents)}
    too_high = tuple(game for game, bias in biases.items() if bias is not None and math.isfinite(bias.low) and bias.low > 0)
    pairs = {agent: pair for agent, pair in tested_comparisons(agents).items() if agent.game in too_high}
    wider = {agent: pair for agent, pair in pairs.items() if pair.gap.direction(PAPER_LEVEL) == HIGHER}
    return Finding(too_high, wider, {agent: pair for agent, pair in pairs.items() if agent not in wider})


def tested_comparisons(agents: Agents) -> dict[Agent, BiasComparison]:
    """Compare the operators of the sweep with Bellman, where there are enough seeds for a test."""
    return {agent: pair for agent, pair in bias_comparisons(agents).items() if agent.name in SWEEP and pair.bias.tested and pair.gap.tested}


def bias_blocks(agents: Agents, source: Provenance) -> list[Block]:
    """Return the test of the hypothesis in words, charts over alpha, and the numbers."""
    found = bias_comparisons(agents)
    blocks: list[Block] = [Prose(caption(agents))]
    blocks += [bias_charts(agents, source)] if found and swept_games(agents) else []
    shown = {agent: group for agent, group in agents.items() if agent.name in OPERATORS}
    blocks.append(values_table("Gaps, values and bias", shown, "", source))
    changes = changes_table(f"Gaps, values and bias compared with {BELLMAN}", shown, found, source)
    return [*blocks, changes] if changes.rows else blocks


def caption(agents: Agents) -> str:
    """Describe the evidence for the hypothesis, and its limits."""
    pairs = tested_comparisons(agents)
    if not pairs:
        return "The bias is not tested: no operator has two finished seeds in common with bellman."
    finding = hypothesis(agents)
    texts = [f"Hypothesis: an operator that widens the gap reduces overestimation. {_premise(agents, finding)}"]
    if finding.wider or finding.others:
        texts += [_with_wider_gap(finding), _without_wider_gap(finding), _decomposition(agents, finding)]
    texts += [_relative_bias_text(agents, pairs), _absolute_bias_text(agents, pairs)]
    return "\n\n".join(text for text in texts if text)


def _premise(agents: Agents, finding: Finding) -> str:
    shown = {game: format_estimate(mean(agents.get(Agent(game, BELLMAN)), BIAS)) for game in games_of(agents)}
    over = [f"{game}, by {shown[game]}" for game in finding.too_high]
    others = [f"{game}, {shown[game]}" for game in shown if game not in finding.too_high]
    if not over:
        return (
            f"{BELLMAN} does not overestimate significantly on any game; its bias is: {'; '.join(others)}. The hypothesis is undecided: no "
            "overestimation is detected that could be reduced."
        )
    rest = f" It does not on {'; '.join(others)}." if others else ""
    return f"{BELLMAN} overestimates significantly on {'; '.join(over)} ({LEVEL:.0%}).{rest}"


def _with_wider_gap(finding: Finding) -> str:
    gaps = count_directions((pair.gap for pair in (*finding.wider.values(), *finding.others.values())), PAPER_LEVEL)
    text = f"A pair is an operator and a game on which {BELLMAN} overestimates. Compared with {BELLMAN}, the gap is {gaps}."
    if not finding.wider:
        return f"{text} The hypothesis is undecided: no gap is significantly wider."
    directions = count_directions((pair.bias for pair in finding.wider.values()), PAPER_LEVEL)
    text += f" Where it is higher, the bias is {_format_counts(directions)}."
    verdict = {
        AGREES: "This supports the hypothesis",
        OPPOSED: "This contradicts the hypothesis",
        MIXED: "This supports the hypothesis for some pairs and contradicts it for others",
        UNDECIDED: "The hypothesis is undecided: most are unclear",
    }[finding.verdict]
    return (
        f"{text} {verdict}. Pairs on one game share {BELLMAN}'s runs and are not independent. These counts do not show that the gap is "
        "the cause: an operator changes gaps, targets and policy at once."
    )


def _format_counts(counts: Counts) -> str:
    directions = f"{LOWER} in {counts.lower}, {HIGHER} in {counts.higher} and unclear in {counts.no_difference}"
    return f"{directions} of {counts.total} ({counts.level:.0%})"


def _without_wider_gap(finding: Finding) -> str:
    """Describe the pairs with a lower bias and no wider gap."""
    lower = {agent: pair for agent, pair in finding.others.items() if pair.bias.direction(PAPER_LEVEL) == LOWER}
    if not finding.others:
        return ""
    text = f"Where the gap is not significantly wider, the bias is lower in {len(lower)} of {len(finding.others)} ({PAPER_LEVEL:.0%})"
    if not lower:
        return f"{text}."
    narrower = [agent for agent, pair in lower.items() if pair.gap.direction(LEVEL) == LOWER]
    if not narrower:
        return (
            f"{text}: {name_agents(lower)}. Their gaps may be wider without being detected, so the bias may not fall without a wider gap."
        )
    falls = f"In {len(narrower)} of these the gap is narrower ({LEVEL:.0%}): the bias falls without a wider gap."
    return f"{text}: {name_agents(lower)}. {falls}"


def name_agents(agents: Iterable[Agent]) -> str:
    """List agents with their games.

    Examples
    --------
    >>> name_agents([Agent("pong", "al:0.9")])
    'al:0.9 on pong'
    """
    names = [f"{agent.name} on {agent.game}" for agent in agents]
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _decomposition(agents: Agents, finding: Finding) -> str:
    """Describe the parts of the change: V, and the discounted return."""
    pairs = finding.wider.values()
    text = (
        "The bias falls if V falls, and if the discounted return rises because the agent plays better. The paper's hypothesis is about V."
    )
    if pairs:
        values = count_directions((pair.value for pair in pairs), PAPER_LEVEL)
        returns = count_directions((pair.discounted_return for pair in pairs), PAPER_LEVEL)
        lower = [pair for pair in pairs if pair.bias.direction(PAPER_LEVEL) == LOWER]
        only_return = sum(
            pair.value.direction(PAPER_LEVEL) != LOWER and pair.discounted_return.direction(PAPER_LEVEL) == HIGHER for pair in lower
        )
        text += (
            f" Where the gap is wider, V itself is {_format_counts(values)}, and the discounted return is "
            f"{_format_counts(returns)}. In {only_return} of the {several(len(lower), 'pair')} with a lower bias the return is "
            "significantly higher and V is not significantly lower."
        )
    games = list(finding.too_high)
    for name in MAIN_OPERATORS[1:]:
        selected = [Agent(game, name) for game in games]
        changes = [normalized_change(agents, selected, metric, RETURN) for metric in (BIAS, VALUE, RETURN)]
        if all(change is not None for change in changes):
            bias, value, discounted_return = map(format_estimate, changes)
            text += (
                f" With {name} the bias changes by {bias}: V by {value} and the discounted return by {discounted_return}, all as fractions "
                f"of {BELLMAN}'s discounted return{', mean over games' * (len(games) > 1)}."
            )
    return text


def _relative_bias_text(agents: Agents, pairs: Pairs) -> str:
    """Describe the bias as a fraction of the agent's own discounted return."""
    fractions = {agent: pair.relative for agent, pair in pairs.items() if pair.relative is not None}
    if not fractions:
        return ""
    above = [agent for agent, found in fractions.items() if found.difference.value > 0]
    text = (
        "An agent with lower returns has less to overestimate. As a fraction of the agent's own discounted return, the bias compared with "
        f"{BELLMAN}'s is {count_directions(fractions.values(), PAPER_LEVEL)}."
    )
    if not above:
        return text
    shown = [
        f"{agent.name} on {agent.game}, {format_estimate(relative_bias(agents[agent]))} against "
        + format_estimate(relative_bias(agents[Agent(agent.game, BELLMAN)]))
        + (f", {NO_DIFFERENCE}" if fractions[agent].direction(LEVEL) == NO_DIFFERENCE else "")
        for agent in above[:NAMED]
    ]
    more = f"; and {len(above) - NAMED} more" if len(above) > NAMED else ""
    return f"{text} The fraction is above {BELLMAN}'s with {'; '.join(shown)}{more}."


def _absolute_bias_text(agents: Agents, pairs: Pairs) -> str:
    """Describe the size of the bias on all games, and where V is too low."""
    sizes = count_directions((pair.absolute for pair in pairs.values()), PAPER_LEVEL)
    negative = [agent for agent in pairs if (own := mean(agents[agent], BIAS)) is not None and math.isfinite(own.low) and own.high < 0]
    text = f"The absolute bias compared with {BELLMAN}, on all games: {sizes}. V is significantly below the discounted return"
    return f"{text} in {len(negative)} of {len(pairs)} ({LEVEL:.0%})" + (f": {name_agents(negative)}." if negative else ".")
