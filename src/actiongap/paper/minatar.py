"""Which deep agents the laboratory trains, at each scale.

Two studies. `operators` is the paper's: Bellman's operator, advantage learning and its persistent form at every alpha of the paper's sweep.
`relatives` is what others have done about the same trouble, on the same games with the same seeds: Double DQN, alone and with advantage
learning, and Munchausen. Whatever is compared differs in the operator, or in `double`, and in nothing else.

Two cores are enough for one game and one alpha, so the smaller scales stop there.

Agents on MinAtar read back.

Only runs that the last command asked for count, and only those that were trained as the others were: a folder in which one study was done
at one scale and the other at another shows the first, and says so.

The paper's counts beside ours: how often its operators were better on 60 Atari games, and how often they are on MinAtar's.

The games are others, the networks smaller and the training shorter, so these numbers need not agree. They answer the same question.

What other remedies do on the same footing: Double DQN, alone and with advantage learning, and Munchausen.

Double DQN lets one network choose the action and the other value it, against values that are too high. Munchausen adds the logarithm of the
policy to the reward, which widens gaps as advantage learning does. Both were trained with the settings and seeds of all others. Beside them
stand advantage learning and its persistent form at the usual alpha.

Deep agents on the page: how they learn and what they score, what alpha does, whether values are too high, relatives, and costs.

The paper's Atari experiments on MinAtar: whether deep agents play better when their operator widens the action gap.

`studies` says which agents are trained and `runs` reads them back. `paper` sets the paper's counts beside ours, `relatives` shows what
other remedies do, and `sections` puts it on the page, with all that studies of deep agents share (`actiongap.paper.agents`).
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, NamedTuple

from actiongap.dqn.config import PRESETS
from actiongap.lab.records import RunRecord
from actiongap.lab.statistics import FORMULAS, LEVEL, Estimate
from actiongap.lab.study import Study, grid
from actiongap.paper.agents import (
    ATARI,
    BELLMAN,
    FEW,
    NAMES,
    OPERATORS,
    OVER_GAMES,
    SURE,
    USUAL,
    Against,
    Agent,
    Agents,
    against_bellman,
    agents_of,
    alike,
    compare,
    count,
    count_rows,
    counted,
    games_of,
    mean,
    of_operators,
    over_games,
    pairings,
)
from actiongap.paper.agents_bias import BIAS, beside_bellman, bias, changes_table, numbers_table
from actiongap.paper.agents_curves import alpha_sweep, learning_curves, thinking_curves
from actiongap.paper.agents_scores import HIGHEST, SCORE, against_cells, printed, relative, scores
from actiongap.paper.parts import Part, Scale, asked_for, said
from actiongap.paper.scores import FORMULA, IMPROVEMENT
from actiongap.report.groups import NAMED, several
from actiongap.report.page import Block, Cell, Prose, Provenance, Section, Table
from actiongap.report.summary import costs, failures, provenance_of

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
MUNCHAUSEN = "munchausen:0.03,0.9"
"""With the temperature and the weight of its paper (Vieillard, Pietquin, Geist, 2020)."""
DOUBLED = (BELLMAN, f"al:{USUAL:g}")
"""The operators that are also tried with Double DQN."""

QUESTIONS = {
    "operators": "Bellman's operator, advantage learning and its persistent form at every alpha",
    "relatives": "Double DQN and Munchausen",
}
"""What each study is about."""


class Size(NamedTuple):
    """How much to train."""

    games: tuple[str, ...]
    operators: tuple[str, ...]
    seeds: int
    frames: int
    rows: int
    """Evaluations of an agent."""
    preset: str
    settings: dict[str, Any]
    """What differs from the preset."""
    relatives: bool = False
    """Whether the second study is done too."""
    gpus: float = 0.0


TINY = {
    "gradient_steps": 1,
    "batch_size": 32,
    "buffer_size": 1024,
    "learning_starts": 256,
    "target_update_interval": 256,
    "exploration_steps": 1024,
    "episodes": 4,
    "max_episode_steps": 60,
}
BRIEF = {"exploration_steps": 20_000, "episodes": 16, "max_episode_steps": 1000}
CPU = {"precision": "float32"}
"""Processors have no bfloat16 to be quick with."""

SIZES: dict[Scale, Size] = {
    "smoke": Size(("breakout",), FEW, seeds=2, frames=1536, rows=3, preset="throughput", settings=CPU | TINY),
    "laptop": Size(("breakout",), FEW, seeds=3, frames=64_000, rows=10, preset="throughput", settings=CPU | BRIEF),
    "gpu": Size(GAMES, OPERATORS, seeds=10, frames=2_000_000, rows=20, preset="throughput", settings={}, relatives=True, gpus=1.0),
    "paper": Size(GAMES, OPERATORS, seeds=10, frames=5_000_000, rows=50, preset="faithful", settings={}, relatives=True, gpus=1.0),
}


def studies(scale: Scale) -> tuple[Study, ...]:
    """The studies at a scale.

    Examples
    --------
    >>> [(study.name, len(study.runs)) for study in studies("gpu")]
    [('operators', 650), ('relatives', 150)]
    >>> [(study.name, len(study.runs)) for study in studies("laptop")]
    [('operators', 9)]
    """
    size = SIZES[scale]
    preset = PRESETS[size.preset]
    # Whole rounds between evaluations, so many that none is left for a short stretch at the end.
    every = math.ceil(math.ceil(size.frames / preset.num_envs) / size.rows) * preset.num_envs
    fields = dataclasses.asdict(preset) | {"frames": size.frames, "eval_every": every} | size.settings
    fields |= {"env": tuple(f"minatar/{game}" for game in size.games), "seed": range(size.seeds)}
    made = [Study("operators", grid("train", **fields, operator=size.operators), gpus=size.gpus)]
    if size.relatives:
        double = grid("train", **fields | {"double": True}, operator=DOUBLED)
        made.append(Study("relatives", (*double, *grid("train", **fields, operator=MUNCHAUSEN)), gpus=size.gpus))
    return tuple(made)


class Found(NamedTuple):
    """What a folder holds."""

    agents: Agents
    runs: tuple[RunRecord, ...]
    problems: tuple[str, ...]
    """Sentences about what is left out."""


def read_agents(out: Path) -> Found:
    """The agents that the studies in a folder were last asked for.

    Examples
    --------
    >>> import tempfile
    >>> read_agents(Path(tempfile.mkdtemp()))
    Found(agents={}, runs=(), problems=())
    """
    records = asked_for(out, QUESTIONS)
    same, others = alike([run for run in records.runs if run.kind == "train" and run.task.startswith("minatar/")])
    problems = records.problems
    if others:
        problems += (f"{counted(others)} had other settings and are left out: run both studies at one scale",)
    return Found(agents_of(same), tuple(same), problems)


KINDS = {"highest": HIGHEST, "final": SCORE}
"""The scores whose improvements are shown; the paper's are of the first."""


def beside_the_paper(agents: Agents, source: Provenance) -> Table | None:
    """The paper's counts and improvements, and the same on MinAtar at the usual alpha; None where there is nothing to compare.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> beside_the_paper({}, provenance_of([]))
    """
    rows = count_rows([pairings(agents, SCORE)])
    games = several(len(games_of(agents)), "game")
    for family, name in NAMES.items():
        for what, score in KINDS.items():
            part = relative(agents, Agent("", f"{family}:{USUAL:g}"), score)
            if part is not None:
                printed = f"{IMPROVEMENT[name, 'mean']:.1f}%" if score is HIGHEST else "not printed"
                rows.append((f"{family}: mean improvement of the {what} score over {BELLMAN}'s", printed, _percent(part)))
    note = (
        f"Paper: {ATARI} Atari games, its alphas chosen by hand from a sweep and not printed. Here: {games}, alpha = {USUAL:g}. Better and "
        f"worse are of paired t-tests at {SURE:.0%} of scores after training. An improvement is the mean over games of 100 "
        f"{FORMULAS[FORMULA].text}, s and b being the mean scores of the operator and of {BELLMAN} on a game; the paper prints no formula, "
        f"and this one comes nearest to its means, which are of the highest scores. Ours have {LEVEL:.0%} t intervals over seeds; the "
        f"highest score of a run is that of its best evaluation, the final score the mean of the last tenth of them. {OVER_GAMES}"
    )
    return Table("Beside the paper", ("summary", "paper", "here"), tuple(rows), note, source) if rows else None


def _percent(part: Estimate) -> str:
    value, low, high = (100 * (end - 1) for end in (part.value, part.low, part.high))
    return f"{value:.1f}% [{low:.1f}%, {high:.1f}%]" if math.isfinite(high - low) else f"{value:.1f}%"


SHOWN = (*(Agent("", name) for name in FEW), *(Agent("", name, double=True) for name in DOUBLED), Agent("", MUNCHAUSEN))
"""Who is in the table, on whatever game."""
SETS = {"relatives": SHOWN}
"""Who is in one chart of learning."""
ADVANTAGE, PERSISTENT = FEW[1:]
ADDED = (
    (Agent("", BELLMAN, double=True), Agent("", BELLMAN)),
    (Agent("", ADVANTAGE), Agent("", BELLMAN)),
    (Agent("", ADVANTAGE, double=True), Agent("", BELLMAN, double=True)),
    (Agent("", ADVANTAGE, double=True), Agent("", ADVANTAGE)),
    (Agent("", MUNCHAUSEN), Agent("", BELLMAN)),
    (Agent("", MUNCHAUSEN), Agent("", ADVANTAGE)),
    (Agent("", MUNCHAUSEN), Agent("", PERSISTENT)),
)
"""What is held against what: each of two remedies with and without the other, and Munchausen with what it is a soft form of."""


def relatives(agents: Agents, source: Provenance) -> list[Block]:
    """What the relatives score and think, in words and in numbers; nothing where none was trained.

    Examples
    --------
    >>> from actiongap.report.summary import provenance_of
    >>> relatives({}, provenance_of([]))
    []
    """
    there = {agent._replace(game="") for agent in agents}
    if not there & {agent for agent in SHOWN if agent.double or agent.operator == MUNCHAUSEN}:
        return []
    return [Prose(says(agents)), _added_table(agents, source), *_relative_tables(agents, source)]


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
    columns = ("agent", "beside", "part of the other's", "games", *(f"{side}, {level:.0%}" for level in (LEVEL, SURE) for side in sides))
    note = f"Final scores, by paired t-tests on each game; the one score as a part of the other is the mean over these games. {OVER_GAMES}"
    return Table("Remedies with and without each other", columns, tuple(rows), note, source)


def _relative_tables(agents: Agents, source: Provenance) -> list[Block]:
    rows: list[tuple[Cell, ...]] = []
    found = against_bellman(agents, SCORE)
    shown = [kind._replace(game=game) for game in games_of(agents) for kind in SHOWN if kind._replace(game=game) in agents]
    for agent in shown:
        rows.append((agent.game, agent.name, mean(agents[agent], SCORE), *against_cells(found.get(agent))))
    columns = ("game", "agent", "score", f"beside {BELLMAN}", f"part of {BELLMAN}'s", f"less {BELLMAN}'s", "p")
    munchausen = (
        "What is called V here is max_a Q for all; Munchausen's Q counts the entropy of its policy as well, which is no reward that could "
        "follow, so its bias is not quite the same thing."
    )
    return [
        Table("Relatives: scores", columns, tuple(rows), "As in the table of operators.", source),
        numbers_table("Relatives: gaps, values and bias", {agent: agents[agent] for agent in shown}, munchausen, source),
        changes_table(f"Relatives: gaps, values and bias beside {BELLMAN}'s", shown, beside_bellman(agents), source),
    ]


STORY = """The paper trained deep Q-networks on 60 Atari games with its operators in place of Bellman's and found that scores rose on most.
MinAtar has five of the games in small, which a whole population of agents can learn in minutes. An agent here is a DQN; agents that are
compared differ in the operator, or in whether they are Double DQN, and in nothing else. They share their seeds, and so their first weights
and first games."""


def sections(out: Path) -> list[Section]:
    """What the page shows of a folder in which both studies were done, or one, or none."""
    agents, runs, problems = read_agents(out)
    source = provenance_of(runs)
    first: list[Block] = [Prose(STORY)]
    if left := [f"{name} ({question})" for name, question in QUESTIONS.items() if not (out / name / "runs").is_dir()]:
        first.append(Prose(f"Not run in this folder: {'; '.join(left)}. The scales gpu and paper run everything."))
    if problems:
        more = f"\n\nAnd {len(problems) - NAMED} more." if len(problems) > NAMED else ""
        first.append(Prose("\n\n".join(f"Left out: {problem}" for problem in problems[:NAMED]) + more))
    if not agents:
        return [Section("MinAtar: does a wider gap help?", tuple(first))]
    beside = beside_the_paper(agents, source)
    first += [Prose(_settings(agents)), *learning_curves(agents, source, SETS), *scores(agents, source), *([beside] if beside else [])]
    made = [Section("MinAtar: does a wider gap help?", tuple(first))]
    if swept := alpha_sweep(agents, source):
        made.append(Section("MinAtar: how much of the gap is subtracted", tuple(swept)))
    made.append(Section("MinAtar: gaps, values and bias", (*bias(agents, source), *thinking_curves(agents, source, SETS))))
    if others := relatives(agents, source):
        made.append(Section("MinAtar: Double DQN and Munchausen", tuple(others)))
    groups = list(agents.values())
    return [*made, Section("MinAtar: runs", (*costs(groups, source), *failures(groups, source)))]


def _settings(agents: Agents) -> str:
    """How all of them were trained."""
    spec = next(iter(agents.values())).runs[0].spec
    seeds = sorted({sum(run.state == "done" for run in group.runs) for group in agents.values()})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    ratio = spec["gradient_steps"] * spec["batch_size"] / spec["num_envs"]
    return (
        f"Every agent plays {spec['frames']:,} frames of a game ({', '.join(games_of(agents))}), {spec['num_envs']} at a time, and "
        f"learns from {ratio:g} transitions a frame in batches of {spec['batch_size']}, with {spec['optimizer']} at a rate of "
        f"{spec['learning_rate']:g}, products of matrices in {spec['precision']}, gamma = {spec['gamma']:g}, a target network that is "
        f"renewed every {spec['target_update_interval']:,} frames and a memory of {spec['buffer_size']:,}; "
        f"random actions become rarer until {spec['exploration_steps']:,} frames and are {spec['final_epsilon']:.0%} from then on. "
        f"After every {spec['eval_every']:,} frames it plays {spec['episodes']} episodes of at most {spec['max_episode_steps']:,} steps "
        f"with a random action {spec['evaluation_epsilon']:.0%} of the time. Each agent is done with {count} seeds. "
        f"Intervals are Student's t at {LEVEL:.0%} over seeds."
    )


__all__ = ["PART", "sections", "studies"]


def _tables(out: Path) -> list[Any]:
    return printed(read_agents(out).agents, "MinAtar")


PART = Part("Figures 4, 5 and 7 on MinAtar: deep agents", sections, studies, tables=_tables)
