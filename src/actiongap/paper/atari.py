"""The paper's Atari experiments: whether deep agents play better if their operator widens the action gap.

`atari_runs` defines the studies and reads their runs. `atari_tables` compares them with the paper: what the results cover, the table of 60
games, counts, alphas, the source of corrections, and the cost of the full experiment. `atari_probe` shows Q-values and videos of single
games. This module assembles the page, with the parts that all studies of deep agents share (`actiongap.paper.agents`).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from actiongap._files import make_directory
from actiongap.envs.atari import FRAMES_PER_STEP
from actiongap.lab.statistics import LEVEL
from actiongap.paper.agents import Agents, games_of
from actiongap.paper.agents_bias import bias_blocks
from actiongap.paper.agents_curves import learning_curves, value_curves
from actiongap.paper.agents_scores import score_blocks, terminal_tables
from actiongap.paper.atari_probe import MAX_VIDEO_STEPS, STEPS, make_probe, make_video, probe_blocks, select_figures, video_block
from actiongap.paper.atari_runs import (
    ORIGINAL,
    PRESET_NAMES,
    STOCHASTIC,
    STUDIES,
    AgentRecords,
    finished_runs,
    read_agents,
    studies,
    study_plans,
)
from actiongap.paper.atari_tables import (
    SETS,
    alpha_blocks,
    correction_blocks,
    counts_table,
    coverage,
    full_cost,
    game_table,
    score_kinds_table,
    summaries,
)
from actiongap.paper.parts import SCALES, Part, Progress, Scale
from actiongap.reporting.groups import MAX_LISTED, several
from actiongap.reporting.page import Block, Prose, Provenance, Section
from actiongap.reporting.summary import costs, failures, provenance_of

INTRODUCTION = """The paper trained deep Q-networks on 60 Atari games and replaced Bellman's operator by its own, with everything
else unchanged. Scores rose on most games. It has two settings. In Stochastic Minimal the emulator repeats the previous action with
probability 1/4 and does not signal lost lives. In Original DQN actions are deterministic and a lost life ends an episode for learning.
Agents that are compared here share their seeds and differ only in the operator, or in the network that its correction uses."""


def sections(out: Path) -> list[Section]:
    """Return the sections of the page, from a folder in which any of the studies were run."""
    found = read_agents(out)
    source = provenance_of(found.runs)
    first: list[Block] = [Prose(INTRODUCTION), *_omissions(out, found)]
    if not found.agents_by_preset:
        return [Section("Atari: what the results cover", tuple(first))]
    made = [Section("Atari: what the results cover", (*first, *coverage(found.agents_by_preset, source)))]
    for preset, agents in found.agents_by_preset.items():
        blocks = (
            Prose(describe_training(agents)),
            *learning_curves(agents, source, SETS),
            *score_blocks(agents, source),
            score_kinds_table(agents, source),
        )
        made.append(Section(f"Atari, {PRESET_NAMES[preset]}: does a wider gap help?", blocks))
    made.append(Section("Atari: comparison with the paper", tuple(_paper_comparison(found))))
    for preset, agents in found.agents_by_preset.items():
        if swept := alpha_blocks(agents, source):
            made.append(Section(f"Atari, {PRESET_NAMES[preset]}: effect of alpha", tuple(swept)))
    for preset, agents in found.agents_by_preset.items():
        values = (*bias_blocks(agents, source), *value_curves(agents, source, SETS))
        made.append(Section(f"Atari, {PRESET_NAMES[preset]}: gaps, values and bias", values))
        if online := correction_blocks(agents, source):
            made.append(Section(f"Atari, {PRESET_NAMES[preset]}: corrections from the online network", tuple(online)))
    games = [
        block
        for selection in select_figures(found.agents_by_preset)
        for block in (*probe_blocks(out, selection), video_block(out, selection))
    ]
    no_game = Prose("No single game is shown: the three operators have no finished seed in common.")
    made.append(Section("Atari: single games", tuple(games or [no_game])))
    return [*made, Section("Atari: runs and their cost", (*_runs(found, source), *full_cost(found.runs, source)))]


def _omissions(out: Path, found: AgentRecords) -> list[Block]:
    """Return the studies that are missing, and runs that are omitted."""
    blocks: list[Block] = []
    if missing := missing_studies(out):
        blocks.append(Prose(f"Not run in this folder: {'; '.join(f'{name} ({STUDIES[name]})' for name in missing)}."))
    if restarted := [run for run in found.runs if (run.rows["restarts"] > 0).any()]:
        blocks.append(
            Prose(f"The replay buffer of {several(len(restarted), 'agent')} was not saved and started empty after an interruption.")
        )
    if found.problems:
        more = f"\n\nAnd {len(found.problems) - MAX_LISTED} more." if len(found.problems) > MAX_LISTED else ""
        blocks.append(Prose("\n\n".join(f"Omitted: {problem}" for problem in found.problems[:MAX_LISTED]) + more))
    return blocks


def missing_studies(out: Path) -> list[str]:
    """Return the studies that a folder lacks, of the scale that matches most of its studies.

    Examples
    --------
    >>> missing_studies(Path("nowhere"))
    ['asterix', 'space_invaders', 'training-games', 'original', 'alphas']
    """
    present = {name for name in STUDIES if (out / name / "runs").is_dir()}
    scales = [[plan.name for plan in study_plans(scale)] for scale in ("gpu", *SCALES)]
    expected = max(scales, key=lambda names: len(present & set(names)))
    return [name for name in expected if name not in present]


def describe_training(agents: Agents) -> str:
    """Describe how the agents of a preset were trained and evaluated. Only finished runs count as trained."""
    games_by_training: dict[str, list[str]] = {}
    for game in games_of(agents):
        groups = [group for agent, group in agents.items() if agent.game == game and group.states["done"]]
        if groups:
            seeds = sorted({group.states["done"] for group in groups})
            count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
            games_by_training.setdefault(f"{groups[0].runs[0].spec['frames']:,} frames, seeds per agent: {count}", []).append(game)
    trained = "; ".join(f"{', '.join(games)} ({training})" for training, games in games_by_training.items()) or "none yet"
    total, finished = sum(len(group.runs) for group in agents.values()), len(finished_runs(agents))
    unfinished = f" Unfinished: {total - finished} of {several(total, 'run')}." if finished < total else ""
    spec = next(iter(agents.values())).runs[0].spec
    return (
        f"Trained: {trained}.{unfinished} An agent trains in {several(spec['num_envs'], 'environment')}, with one step per "
        f"{FRAMES_PER_STEP} frames, and makes one gradient step on {spec['batch_size']} transitions per "
        f"{spec['num_envs'] / spec['gradient_steps']:g} steps, "
        f"with {spec['optimizer']} and a replay buffer of {spec['buffer_size']:,} transitions. Every {spec['eval_every']:,} frames it is "
        f"evaluated for {spec['evaluation_steps']:,} steps with epsilon = {spec['evaluation_epsilon']:.0%}; episodes that have started are "
        f"completed, or truncated after {spec['max_episode_steps']:,} steps. Intervals are Student's t at {LEVEL:.0%} over seeds."
    )


def _paper_comparison(found: AgentRecords) -> list[Block]:
    source = provenance_of(found.runs)
    counts = counts_table(found.agents_by_preset.get(STOCHASTIC, {}), source)
    blocks: list[Block] = counts or [
        Prose("There are no counts to compare with the paper's: no pair of agents is finished in Stochastic Minimal.")
    ]
    blocks += game_table(found.agents_by_preset, source)
    for preset in sorted(found.agents_by_preset, key=lambda preset: preset != ORIGINAL):
        blocks += summaries(preset, found.agents_by_preset[preset], source)
    return blocks


def _runs(found: AgentRecords, source: Provenance) -> list[Block]:
    groups = [
        dataclasses.replace(group, task=f"{group.task}, {PRESET_NAMES[preset]}")
        for preset, agents in found.agents_by_preset.items()
        for group in agents.values()
    ]
    return [*costs(groups, source), *failures(groups, source)]


def _compute(scale: Scale, out: Path, progress: Progress) -> None:
    """Record probes and videos of finished agents; short ones at the smoke scale."""
    steps, max_steps = (50, 50) if scale == "smoke" else (STEPS, MAX_VIDEO_STEPS)
    for selection in select_figures(read_agents(out).agents_by_preset):
        make_probe(make_directory(out), selection, progress, steps)
        make_video(out, selection, progress, max_steps)


def _tables(out: Path) -> list[Any]:
    return [
        table
        for preset, agents in read_agents(out).agents_by_preset.items()
        for table in terminal_tables(agents, f"Atari, {PRESET_NAMES[preset]}")
    ]


FILES = ("probe-*.json", "video-*.mp4", "video-*.json")
PART = Part("Figures 4, 5 and 7 and the table of 60 games: deep agents on Atari", sections, studies, _compute, _tables, FILES)
