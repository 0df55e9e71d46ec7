"""The paper's Atari experiments on MinAtar: whether deep agents play better if their operator widens the action gap.

Two studies. `operators` is the paper's: Bellman, advantage learning and its persistent form, at every alpha of the paper's sweep.
`other-methods` trains methods of other papers on the same games with the same seeds: Double DQN, alone and with advantage learning, and
Munchausen DQN. Double DQN selects the action with one network and evaluates it with the other, against overestimation. Munchausen adds the
scaled log-policy to the reward, which widens gaps as advantage learning does. Compared agents differ in the operator, or in `double`, and
in nothing else. The smaller scales run one game and one alpha, for which two cores suffice.

Only runs that the last command requested and that share the same configuration are compared; the page names what it omits. The paper's
counts are compared with ours. Games, networks and training differ from the paper's, so these numbers need not agree.
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
    BELLMAN,
    DEFAULT_ALPHA,
    MAIN_OPERATORS,
    OPERATORS,
    OVER_GAMES,
    PAPER_GAMES,
    PAPER_LEVEL,
    PAPER_NAMES,
    Agent,
    Agents,
    Comparison,
    agents_of,
    compare,
    compare_with_bellman,
    count_directions,
    count_rows,
    describe_runs,
    games_of,
    mean,
    mean_ratio_over_games,
    paper_comparisons,
    select_operators,
    split_by_config,
)
from actiongap.paper.agents_bias import BIAS, bias_blocks, bias_comparisons, changes_table, values_table
from actiongap.paper.agents_curves import alpha_sweep, learning_curves, value_curves
from actiongap.paper.agents_scores import HIGHEST, SCORE, comparison_cells, mean_relative_score, score_blocks, terminal_tables
from actiongap.paper.parts import Part, Scale, format_estimate, requested_runs
from actiongap.paper.scores import FORMULA, IMPROVEMENT
from actiongap.reporting.groups import MAX_LISTED, several
from actiongap.reporting.page import Block, Cell, Prose, Provenance, Section, Table
from actiongap.reporting.summary import costs, failures, provenance_of

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
MUNCHAUSEN = "munchausen:0.03,0.9"
"""With the temperature and weight of its paper (Vieillard, Pietquin, Geist, 2020)."""
DOUBLE_OPERATORS = (BELLMAN, f"al:{DEFAULT_ALPHA:g}")
"""Operators that are also trained with Double DQN."""

STUDIES = {
    "operators": "Bellman, advantage learning and its persistent form at every alpha",
    "other-methods": "Double DQN and Munchausen",
}
"""The studies and what they train."""


class Size(NamedTuple):
    """How much to train at a scale."""

    games: tuple[str, ...]
    operators: tuple[str, ...]
    seeds: int
    frames: int
    rows: int
    """Evaluations per agent."""
    preset: str
    config: dict[str, Any]
    """Changes to the preset."""
    other_methods: bool = False
    """Whether to run the second study."""
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
"""bfloat16 is not faster on CPUs."""

SIZES: dict[Scale, Size] = {
    "smoke": Size(("breakout",), MAIN_OPERATORS, seeds=2, frames=1536, rows=3, preset="throughput", config=CPU | TINY),
    "laptop": Size(("breakout",), MAIN_OPERATORS, seeds=3, frames=64_000, rows=10, preset="throughput", config=CPU | BRIEF),
    "gpu": Size(GAMES, OPERATORS, seeds=10, frames=2_000_000, rows=20, preset="throughput", config={}, other_methods=True, gpus=1.0),
    "paper": Size(GAMES, OPERATORS, seeds=10, frames=5_000_000, rows=50, preset="faithful", config={}, other_methods=True, gpus=1.0),
}


def studies(scale: Scale) -> tuple[Study, ...]:
    """Return the studies at a scale.

    Examples
    --------
    >>> [(study.name, len(study.runs)) for study in studies("gpu")]
    [('operators', 650), ('other-methods', 150)]
    >>> [(study.name, len(study.runs)) for study in studies("laptop")]
    [('operators', 9)]
    """
    size = SIZES[scale]
    preset = PRESETS[size.preset]
    # Whole iterations between evaluations, rounded up so that no short interval remains at the end.
    eval_every = math.ceil(math.ceil(size.frames / preset.num_envs) / size.rows) * preset.num_envs
    fields = dataclasses.asdict(preset) | {"frames": size.frames, "eval_every": eval_every} | size.config
    fields |= {"env": tuple(f"minatar/{game}" for game in size.games), "seed": range(size.seeds)}
    found = [Study("operators", grid("train", **fields, operator=size.operators), gpus=size.gpus)]
    if size.other_methods:
        double = grid("train", **fields | {"double": True}, operator=DOUBLE_OPERATORS)
        found.append(Study("other-methods", (*double, *grid("train", **fields, operator=MUNCHAUSEN)), gpus=size.gpus))
    return tuple(found)


class AgentRecords(NamedTuple):
    """The agents of a folder."""

    agents: Agents
    runs: tuple[RunRecord, ...]
    problems: tuple[str, ...]
    """Sentences about runs that are omitted."""


def read_agents(out: Path) -> AgentRecords:
    """Return the agents that the studies in a folder requested last.

    Examples
    --------
    >>> import tempfile
    >>> read_agents(Path(tempfile.mkdtemp()))
    AgentRecords(agents={}, runs=(), problems=())
    """
    records = requested_runs(out, STUDIES)
    same, others = split_by_config([run for run in records.runs if run.kind == "train" and run.task.startswith("minatar/")])
    problems = records.problems
    if others:
        problems += (f"{describe_runs(others)} have a different configuration and are omitted: run both studies at one scale",)
    return AgentRecords(agents_of(same), tuple(same), problems)


SCORE_METRICS = {"highest": HIGHEST, "final": SCORE}
"""Scores whose improvements are shown. The paper's are of the highest."""


def paper_comparison_table(agents: Agents, source: Provenance) -> Table | None:
    """Compare the paper's counts and improvements with MinAtar's at the default alpha; None if there is nothing to compare.

    Examples
    --------
    >>> from actiongap.reporting.summary import provenance_of
    >>> paper_comparison_table({}, provenance_of([]))
    """
    rows = count_rows([paper_comparisons(agents, SCORE)])
    games = several(len(games_of(agents)), "game")
    for family, name in PAPER_NAMES.items():
        for what, metric in SCORE_METRICS.items():
            fraction = mean_relative_score(agents, Agent("", f"{family}:{DEFAULT_ALPHA:g}"), metric)
            if fraction is not None:
                printed = f"{IMPROVEMENT[name, 'mean']:.1f}%" if metric is HIGHEST else "not printed"
                rows.append((f"{family}: mean improvement of the {what} score over {BELLMAN}'s", printed, _percent(fraction)))
    note = (
        f"Paper: {PAPER_GAMES} Atari games; its alphas are chosen by hand from a sweep and not printed. Here: {games}, "
        f"alpha = {DEFAULT_ALPHA:g}. Better and worse: paired t-tests of scores after training, at {PAPER_LEVEL:.0%}. Improvement: mean "
        f"over games of 100 {FORMULAS[FORMULA].text}, where s and b are the mean scores of the operator and of {BELLMAN} on a game. The "
        "paper prints no formula; this one comes nearest to its means, which are of highest scores. Our numbers have "
        f"{LEVEL:.0%} t intervals over seeds. The highest score of a run is its best evaluation; the final score is the mean over the "
        f"last tenth of the evaluations. {OVER_GAMES}"
    )
    return Table("Comparison with the paper", ("summary", "paper", "here"), tuple(rows), note, source) if rows else None


def _percent(ratio: Estimate) -> str:
    value, low, high = (100 * (end - 1) for end in (ratio.value, ratio.low, ratio.high))
    return f"{value:.1f}% [{low:.1f}%, {high:.1f}%]" if math.isfinite(high - low) else f"{value:.1f}%"


SHOWN = (*(Agent("", name) for name in MAIN_OPERATORS), *(Agent("", name, double=True) for name in DOUBLE_OPERATORS), Agent("", MUNCHAUSEN))
"""The agents of the table; the game is ignored."""
SETS = {"other methods": SHOWN}
"""Additional sets of agents for learning curves."""
ADVANTAGE, PERSISTENT = MAIN_OPERATORS[1:]
METHOD_PAIRS = (
    (Agent("", BELLMAN, double=True), Agent("", BELLMAN)),
    (Agent("", ADVANTAGE), Agent("", BELLMAN)),
    (Agent("", ADVANTAGE, double=True), Agent("", BELLMAN, double=True)),
    (Agent("", ADVANTAGE, double=True), Agent("", ADVANTAGE)),
    (Agent("", MUNCHAUSEN), Agent("", BELLMAN)),
    (Agent("", MUNCHAUSEN), Agent("", ADVANTAGE)),
    (Agent("", MUNCHAUSEN), Agent("", PERSISTENT)),
)
"""Compared pairs: each method with and without the other, and Munchausen with the operators that it softens."""


def other_methods(agents: Agents, source: Provenance) -> list[Block]:
    """Return scores, gaps and values of Double DQN and Munchausen; empty if neither was trained.

    Examples
    --------
    >>> from actiongap.reporting.summary import provenance_of
    >>> other_methods({}, provenance_of([]))
    []
    """
    trained = {agent._replace(game="") for agent in agents}
    if not trained & {agent for agent in SHOWN if agent.double or agent.operator == MUNCHAUSEN}:
        return []
    return [Prose(caption(agents)), _method_pairs_table(agents, source), *_method_tables(agents, source)]


def caption(agents: Agents) -> str:
    """Describe how the score and bias of each method compare with Bellman's."""
    found, biases = compare_with_bellman(agents, SCORE), compare_with_bellman(agents, BIAS)
    texts = []
    for agent in SHOWN:
        scores, bias = (list(select_operators(some, [agent.name]).values()) for some in (found, biases))
        if any(comparison.difference.n > 1 for comparison in scores):
            fraction = mean_relative_score(agents, agent) if len(scores) > 1 else scores[0].ratio
            mean_of = "mean over games" if len(scores) > 1 else "on one game"
            texts.append(
                f"{agent.name} has {format_estimate(fraction)} of {BELLMAN}'s score, {mean_of}. Compared with {BELLMAN}, its score is "
                f"{count_directions(scores, LEVEL)}, and its bias is {count_directions(bias, LEVEL)}."
            )
    return "\n\n".join(texts) or f"Other methods are not compared: none has two finished seeds in common with {BELLMAN}."


def _pairs(agents: Agents, one: Agent, other: Agent) -> dict[str, Comparison]:
    """Compare two agents, by game."""
    found = {game: compare(agents.get(one._replace(game=game)), agents.get(other._replace(game=game)), SCORE) for game in games_of(agents)}
    return {game: comparison for game, comparison in found.items() if comparison is not None}


def _method_pairs_table(agents: Agents, source: Provenance) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one, other in METHOD_PAIRS:
        pairs = _pairs(agents, one, other)
        if pairs:
            counts = [count_directions(pairs.values(), level) for level in (LEVEL, PAPER_LEVEL)]
            cells = [cell for each in counts for cell in (each.higher, each.lower, each.no_difference)]
            fraction = mean_ratio_over_games(
                [(agents[one._replace(game=game)], agents[other._replace(game=game)]) for game in pairs], SCORE
            )
            rows.append((one.name, other.name, fraction, len(pairs), *cells))
    directions = ("higher", "lower", "unclear")
    columns = (
        "agent",
        "compared with",
        "fraction of its score",
        "games",
        *(f"{direction}, {level:.0%}" for level in (LEVEL, PAPER_LEVEL) for direction in directions),
    )
    note = f"Final scores, compared by paired t-tests on each game. The fraction is the mean over these games. {OVER_GAMES}"
    return Table("Methods with and without each other", columns, tuple(rows), note, source)


def _method_tables(agents: Agents, source: Provenance) -> list[Block]:
    rows: list[tuple[Cell, ...]] = []
    found = compare_with_bellman(agents, SCORE)
    shown = [kind._replace(game=game) for game in games_of(agents) for kind in SHOWN if kind._replace(game=game) in agents]
    for agent in shown:
        rows.append((agent.game, agent.name, mean(agents[agent], SCORE), *comparison_cells(found.get(agent))))
    columns = ("game", "agent", "score", f"against {BELLMAN}", f"fraction of {BELLMAN}'s", f"minus {BELLMAN}'s", "p")
    munchausen = (
        "V is max_a Q for every agent. Munchausen's Q includes the entropy of its policy, which is not in the return, so its bias is not "
        "strictly comparable."
    )
    return [
        Table("Double DQN and Munchausen: scores", columns, tuple(rows), "As in the table of final scores.", source),
        values_table("Double DQN and Munchausen: gaps, values and bias", {agent: agents[agent] for agent in shown}, munchausen, source),
        changes_table(f"Double DQN and Munchausen: compared with {BELLMAN}", shown, bias_comparisons(agents), source),
    ]


INTRODUCTION = """The paper trained deep Q-networks on 60 Atari games with its operators in place of Bellman's. Scores rose on most
games. MinAtar has small versions of five Atari games, which a whole population of agents learns in minutes. Every agent here is a DQN.
Compared agents differ in the operator, or in whether they are Double DQN, and in nothing else. They share their seeds, and with them their
initial weights and first games."""


def sections(out: Path) -> list[Section]:
    """Return the sections of the page, from a folder in which any of the studies were run."""
    agents, runs, problems = read_agents(out)
    source = provenance_of(runs)
    first: list[Block] = [Prose(INTRODUCTION)]
    if missing := [f"{name} ({question})" for name, question in STUDIES.items() if not (out / name / "runs").is_dir()]:
        first.append(Prose(f"Not run in this folder: {'; '.join(missing)}. The scales gpu and paper run everything."))
    if problems:
        more = f"\n\nAnd {len(problems) - MAX_LISTED} more." if len(problems) > MAX_LISTED else ""
        first.append(Prose("\n\n".join(f"Omitted: {problem}" for problem in problems[:MAX_LISTED]) + more))
    if not agents:
        return [Section("MinAtar: does a wider gap help?", tuple(first))]
    comparison = paper_comparison_table(agents, source)
    first += [
        Prose(_config_text(agents)),
        *learning_curves(agents, source, SETS),
        *score_blocks(agents, source),
        *([comparison] if comparison else []),
    ]
    made = [Section("MinAtar: does a wider gap help?", tuple(first))]
    if swept := alpha_sweep(agents, source):
        made.append(Section("MinAtar: effect of alpha", tuple(swept)))
    made.append(Section("MinAtar: gaps, values and bias", (*bias_blocks(agents, source), *value_curves(agents, source, SETS))))
    if others := other_methods(agents, source):
        made.append(Section("MinAtar: Double DQN and Munchausen", tuple(others)))
    groups = list(agents.values())
    return [*made, Section("MinAtar: runs", (*costs(groups, source), *failures(groups, source)))]


def _config_text(agents: Agents) -> str:
    """Describe how the agents were trained."""
    spec = next(iter(agents.values())).runs[0].spec
    seeds = sorted({sum(run.state == "done" for run in group.runs) for group in agents.values()})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    ratio = spec["gradient_steps"] * spec["batch_size"] / spec["num_envs"]
    return (
        f"Each agent trains for {spec['frames']:,} frames on one game ({', '.join(games_of(agents))}) in {spec['num_envs']} parallel "
        f"environments. It learns from {ratio:g} transitions per frame in batches of {spec['batch_size']}, with {spec['optimizer']} at a "
        f"learning rate of {spec['learning_rate']:g}, matrix products in {spec['precision']}, gamma = {spec['gamma']:g}, a target network "
        f"updated every {spec['target_update_interval']:,} frames and a replay buffer of {spec['buffer_size']:,} transitions. Epsilon "
        f"decays to {spec['final_epsilon']:.0%} over {spec['exploration_steps']:,} frames. Every {spec['eval_every']:,} frames the agent "
        f"is evaluated on {spec['episodes']} episodes of at most {spec['max_episode_steps']:,} steps, with "
        f"epsilon = {spec['evaluation_epsilon']:.0%}. Each agent has {count} finished seeds. Intervals are Student's t at {LEVEL:.0%} over "
        "seeds."
    )


def _tables(out: Path) -> list[Any]:
    return terminal_tables(read_agents(out).agents, "MinAtar")


PART = Part("Figures 4, 5 and 7 on MinAtar: deep agents", sections, studies, tables=_tables)
