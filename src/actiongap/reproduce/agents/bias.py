"""How far values are too high: V less what followed, and what of its change is in V and what in how agents play.

The bias is V(x) less the discounted rewards that followed x, mean over the states that an agent meets when it is evaluated. It falls when V
falls, and it falls when more follows, so a change against Bellman is shown as the two that it is made of:

    bias - bias_B = (V - V_B) - (followed - followed_B).

Who earns little has little to overestimate. So the bias is also given as a part of what followed an agent's own states, mean(bias) /
mean(followed). A ratio errs to first order as the mean over seeds of (bias - r followed) / mean(followed), so that is what its interval
and its tests are made of. `actiongap.reproduce.agents.hypothesis` judges what the paper supposes of all this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import Estimate
from actiongap.report.groups import LEVEL, Group, mean_over_runs
from actiongap.report.page import Cell, Choice, Provenance, Table
from actiongap.reproduce.agents.alphas import EVERYWHERE, Point, alpha_chart, swept_games
from actiongap.reproduce.agents.comparing import OVER_GAMES, Against, against_bellman, mean_over_games, paired, parts
from actiongap.reproduce.agents.operators import BELLMAN
from actiongap.reproduce.agents.runs import FOLLOWED, Agent, Agents, Number, by_seed, final, mean

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
