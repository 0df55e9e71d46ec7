"""How much was trained beside what the paper trained, and what can be concluded from that much: computed, not remembered.

A paired t-test of n pairs sees a difference when its mean exceeds t / sqrt(n) standard deviations, t being Student's quantile with n - 1
degrees of freedom. At 99% that is 1.03 standard deviations for the paper's ten trials and 5.7 for three, so three seeds see what is large
and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from scipy import stats

from actiongap.envs.atari import FRAMES_A_STEP
from actiongap.report.groups import LEVEL, several
from actiongap.report.page import Block, Cell, Prose, Provenance, Table
from actiongap.reproduce.agents.comparing import SURE, UNSEEN, Against, against_bellman, of_operators
from actiongap.reproduce.agents.operators import BELLMAN, FEW, USUAL
from actiongap.reproduce.agents.runs import Agents, by_seed, game_of
from actiongap.reproduce.agents.scores import SCORE
from actiongap.reproduce.atari.runs import done
from actiongap.reproduce.atari.studies import ORIGINAL, PUBLISHED, SETTINGS, STOCHASTIC, Order, orders


def extent(settings: Mapping[str, Agents], source: Provenance) -> list[Block]:
    """What was trained beside the paper's, in numbers, and what follows from so much, in words."""
    rows: list[tuple[Cell, ...]] = []
    for setting, agents in settings.items():
        paper, ours = published(setting), done(agents)
        named = SETTINGS[setting]
        rows.append((named, "games", str(len(paper.games)), str(len({game_of(run) for run in ours}))))
        rows.append((named, "seeds of a game and operator", str(paper.seeds), _span(_seeds(agents))))
        rows.append((named, "frames of training", f"{paper.frames:,}", _span(run.spec["frames"] for run in ours)))
        rows.append((named, "evaluations of an agent", str(_evaluations(paper)), _span(len(run.rows["step"]) for run in ours)))
        rows.append(
            (named, "steps of an evaluation", f"{PUBLISHED['evaluation_steps']:,}", _span(run.spec["evaluation_steps"] for run in ours))
        )
        rows.append((named, "steps after which a game is cut short", f"{PUBLISHED['limit']:,}", _span(run.spec["limit"] for run in ours)))
    note = (
        f"Of agents that are done. A step of an agent is {FRAMES_A_STEP} frames. In an evaluation games that have begun are played to "
        "their end, or until they are cut short."
    )
    return [Table("How much was trained", ("setting", "what", "paper", "here"), tuple(rows), note, source), Prose(concluded(settings))]


def published(setting: str) -> Order:
    """What the paper trained in a setting, for its counts or for its table.

    Examples
    --------
    >>> published("stochastic-minimal").seeds, published("original-dqn").seeds
    (10, 3)
    """
    return next(order for order in orders("paper") if order.setting == setting)


def _evaluations(paper: Order) -> int:
    return paper.frames // PUBLISHED["every"]


def _seeds(agents: Agents) -> list[int]:
    """How many seeds are done of each agent of the three operators that has any."""
    found = [len(by_seed(group, SCORE)) for agent, group in agents.items() if agent.name in FEW]
    return [seeds for seeds in found if seeds]


def _span(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return "none" if not found else f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def needed(pairs: int, level: float = SURE) -> float:
    """How many standard deviations a mean difference must have to be seen: t / sqrt(n); infinite for one pair.

    Examples
    --------
    >>> [round(needed(pairs), 2) for pairs in (1, 2, 3, 10)]
    [inf, 45.01, 5.73, 1.03]
    """
    return float(stats.t.ppf((1 + level) / 2, pairs - 1)) / math.sqrt(pairs) if pairs > 1 else math.inf


def concluded(settings: Mapping[str, Agents]) -> str:
    """What can be concluded, and what cannot, from the agents that are done.

    Examples
    --------
    >>> concluded({})
    'Nothing can be concluded: no agent is done.'
    """
    finished = {setting: agents for setting, agents in settings.items() if done(agents)}
    if not finished:
        return "Nothing can be concluded: no agent is done."
    told = []
    for setting, agents in finished.items():
        told.append(f"In {SETTINGS[setting]}: {_seen(agents)} {_power(agents, published(setting))}".strip())
    told.append(" ".join(_cannot(finished)))
    return "\n\n".join(told)


def _seen(agents: Agents) -> str:
    """Which differences between the three operators are seen."""
    found = of_operators(against_bellman(agents, SCORE), FEW)
    tested = {agent: against for agent, against in found.items() if against.tested}
    parts = []
    for level in (SURE, LEVEL):
        here = {agent: against.side(level) for agent, against in tested.items() if _first(against) == level}
        sides = [f"{side} on {agent.game} with {agent.name}" for agent, side in here.items()]
        if sides:
            parts.append(f"at {level:.0%} the score is seen to be {', '.join(sides)} than with {BELLMAN}")
    rest = sum(_first(against) is None for against in tested.values())
    once = sorted({agent.game for agent, against in found.items() if not against.tested})
    if tested and rest:
        parts.append(f"no difference is seen in {rest} of {several(len(tested), 'comparison')}, which does not mean that there is none")
    if once:
        parts.append(f"of {', '.join(once)} nothing can be said: agents have one seed in common, and no test can be made of one pair")
    if not found:
        parts.append(f"nothing can be said: no agent has a seed in common with {BELLMAN}'s")
    text = "; ".join(parts)
    return f"{text}."


def _first(against: Against) -> float | None:
    """The higher of the two levels at which a difference is seen, if it is."""
    return next((level for level in (SURE, LEVEL) if against.side(level) != UNSEEN), None)


def _power(agents: Agents, paper: Order) -> str:
    pairs = sorted({against.difference.n for against in of_operators(against_bellman(agents, SCORE), FEW).values() if against.tested})
    if not pairs or pairs[0] >= paper.seeds:
        return ""
    ours = " or ".join(f"{needed(n):.3g} ({n} pairs)" for n in pairs)
    return (
        f"To be seen at {SURE:.0%}, a mean difference has to be {ours} standard deviations of the differences between pairs; with the "
        f"paper's {several(paper.seeds, 'trial')} {needed(paper.seeds):.3g} are enough."
    )


def _cannot(settings: Mapping[str, Agents]) -> list[str]:
    """What the paper says and what was done here cannot tell."""
    told = []
    if STOCHASTIC not in settings:
        told.append("The paper's counts of games, made in Stochastic Minimal, are not touched by anything here.")
    if ORIGINAL not in settings:
        told.append("The paper's table, curves and sweep of alphas, all in Original DQN, are not touched by anything here.")
    for setting, agents in settings.items():
        paper, games = published(setting), len({game_of(run) for run in done(agents)})
        if games < len(paper.games):
            told.append(
                f"In {SETTINGS[setting]} {several(games, 'game')} of {len(paper.games)} cannot tell on how many of all an operator "
                "helps, nor what it does on the others."
            )
        least, most = (end(run.spec["frames"] for run in done(agents)) for end in (min, max))
        if least < paper.frames:
            parts = f"{least / paper.frames:.2g}" if least == most else f"{least / paper.frames:.2g} to {most / paper.frames:.2g}"
            told.append(
                f"Training in {SETTINGS[setting]} ends after {parts} of the paper's frames: who learns sooner can be told, and not who is "
                "better when all have learned."
            )
        evaluations = max(len(run.rows["step"]) for run in done(agents))
        if evaluations < _evaluations(paper):
            told.append(
                f"A highest score there is the highest of {evaluations} evaluations at most, where the paper's is of "
                f"{_evaluations(paper)}, and grows with their number."
            )
    told.append(f"Which alphas the paper's agents had is not printed in it; here it is {USUAL:g} where nothing else is said.")
    return told
