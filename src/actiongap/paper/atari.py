"""Deep agents on Atari on the page: what was done and what follows, scores, the paper's numbers, alphas, gaps and values, games, costs.

The paper's Atari experiments: whether deep agents play better when their operator widens the action gap.

`studies` says which agents are trained and `runs` reads them back. `extent` says how much that is beside the paper's and what follows from
so much; `scores` and `table` set the paper's counts and its table of 60 games beside ours, `sweep` shows what alpha does, `ablation`
where corrections should come from, `probes` and `films` what agents think and do in one game (`casting` chooses them), and `costs` what all
of the paper would take. `sections` puts it on the page, with all that studies of deep agents share (`actiongap.paper.agents`).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from actiongap._files import make_directory
from actiongap.envs.atari import FRAMES_A_STEP
from actiongap.lab.statistics import LEVEL
from actiongap.paper.agents import Agents, games_of
from actiongap.paper.agents_bias import bias
from actiongap.paper.agents_curves import learning_curves, thinking_curves
from actiongap.paper.agents_scores import printed, scores
from actiongap.paper.atari_probe import LIMIT, STEPS, casts, make_film, make_probe, shown_film, shown_probe
from actiongap.paper.atari_runs import ORIGINAL, QUESTIONS, SETTINGS, STOCHASTIC, Found, done, orders, read_agents, studies
from actiongap.paper.atari_tables import SETS, ablation, by_alpha, counts_beside, extent, game_table, price, summaries, three_ways
from actiongap.paper.parts import SCALES, Part, Progress, Scale
from actiongap.report.groups import NAMED, several
from actiongap.report.page import Block, Prose, Provenance, Section
from actiongap.report.summary import costs, failures, provenance_of

STORY = """The paper trained deep Q-networks on 60 Atari games, with its operators in place of Bellman's and nothing else changed. Scores
rose on most. Its two settings are Stochastic Minimal, where the emulator repeats the last action instead of the new one in a quarter of all
frames and lost lives are not told, and Original DQN, where actions are certain and a lost life ends an episode for learning. Agents that
are compared here differ in the operator, or in where its corrections come from, and in nothing else, and share their seeds."""


def sections(out: Path) -> list[Section]:
    """What the page shows of a folder in which all studies of a scale were done, or some, or none."""
    found = read_agents(out)
    source = provenance_of(found.runs)
    first: list[Block] = [Prose(STORY), *_left_out(out, found)]
    if not found.settings:
        return [Section("Atari: what was done", tuple(first))]
    made = [Section("Atari: what was done, and what follows", (*first, *extent(found.settings, source)))]
    for setting, agents in found.settings.items():
        blocks = (Prose(told(agents)), *learning_curves(agents, source, SETS), *scores(agents, source), three_ways(agents, source))
        made.append(Section(f"Atari, {SETTINGS[setting]}: does a wider gap help?", blocks))
    made.append(Section("Atari: beside the paper", tuple(_beside(found))))
    for setting, agents in found.settings.items():
        if swept := by_alpha(agents, source):
            made.append(Section(f"Atari, {SETTINGS[setting]}: how much of the gap is subtracted", tuple(swept)))
    for setting, agents in found.settings.items():
        thought = (*bias(agents, source), *thinking_curves(agents, source, SETS))
        made.append(Section(f"Atari, {SETTINGS[setting]}: gaps, values and bias", thought))
        if online := ablation(agents, source):
            made.append(Section(f"Atari, {SETTINGS[setting]}: corrections from the online network", tuple(online)))
    seen = [block for cast in casts(found.settings) for block in (*shown_probe(out, cast), shown_film(out, cast))]
    alone = Prose("Nothing is shown of single games: no agents of all three operators with one seed are done.")
    made.append(Section("Atari: one game in the eyes of all", tuple(seen or [alone])))
    return [*made, Section("Atari: runs and what they cost", (*_runs(found, source), *price(found.runs, source)))]


def _left_out(out: Path, found: Found) -> list[Block]:
    """What is not there, and what is there and does not count."""
    blocks: list[Block] = []
    if left := missing(out):
        blocks.append(Prose(f"Not run in this folder: {'; '.join(f'{name} ({QUESTIONS[name]})' for name in left)}."))
    if anew := [run for run in found.runs if (run.rows["restarts"] > 0).any()]:
        blocks.append(Prose(f"The memory of {several(len(anew), 'agent')} began anew after an interruption, since it was not saved."))
    if found.problems:
        more = f"\n\nAnd {len(found.problems) - NAMED} more." if len(found.problems) > NAMED else ""
        blocks.append(Prose("\n\n".join(f"Left out: {problem}" for problem in found.problems[:NAMED]) + more))
    return blocks


def missing(out: Path) -> list[str]:
    """The studies that are not in a folder, of the scale that most of what is there belongs to.

    Examples
    --------
    >>> missing(Path("nowhere"))
    ['asterix', 'space_invaders', 'training-games', 'original', 'alphas']
    """
    there = {name for name in QUESTIONS if (out / name / "runs").is_dir()}
    scales = [[order.name for order in orders(scale)] for scale in ("gpu", *SCALES)]
    asked = max(scales, key=lambda names: len(there & set(names)))
    return [name for name in asked if name not in there]


def told(agents: Agents) -> str:
    """How agents of a setting were trained and evaluated; what is called trained is done."""
    ways: dict[str, list[str]] = {}
    for game in games_of(agents):
        groups = [group for agent, group in agents.items() if agent.game == game and group.states["done"]]
        if groups:
            seeds = sorted({group.states["done"] for group in groups})
            many = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
            ways.setdefault(f"{groups[0].runs[0].spec['frames']:,} frames, seeds of an agent: {many}", []).append(game)
    trained = "; ".join(f"{', '.join(games)} ({way})" for way, games in ways.items()) or "none yet"
    every, finished = sum(len(group.runs) for group in agents.values()), len(done(agents))
    left = f" Not done: {every - finished} of {several(every, 'run')}." if finished < every else ""
    spec = next(iter(agents.values())).runs[0].spec
    return (
        f"Trained: {trained}.{left} An agent plays {several(spec['num_envs'], 'game')} at once, with a step every {FRAMES_A_STEP} "
        f"frames, and makes one gradient step of {spec['batch_size']} transitions every "
        f"{spec['num_envs'] / spec['gradient_steps']:g} of its steps, with {spec['optimizer']} and a memory of "
        f"{spec['buffer_size']:,}. After every {spec['eval_every']:,} frames it is evaluated for "
        f"{spec['evaluation_steps']:,} steps, with a random action {spec['evaluation_epsilon']:.0%} of the time; games that have begun "
        f"then are played to their end, or for {spec['max_episode_steps']:,} steps. Intervals are Student's t at {LEVEL:.0%} over seeds."
    )


def _beside(found: Found) -> list[Block]:
    source = provenance_of(found.runs)
    counts = counts_beside(found.settings.get(STOCHASTIC, {}), source)
    blocks: list[Block] = counts or [
        Prose("There are no counts to set beside the paper's: no pair of agents is done in Stochastic Minimal.")
    ]
    blocks += game_table(found.settings, source)
    for setting in sorted(found.settings, key=lambda setting: setting != ORIGINAL):
        blocks += summaries(setting, found.settings[setting], source)
    return blocks


def _runs(found: Found, source: Provenance) -> list[Block]:
    groups = [
        dataclasses.replace(group, task=f"{group.task}, {SETTINGS[setting]}")
        for setting, agents in found.settings.items()
        for group in agents.values()
    ]
    return [*costs(groups, source), *failures(groups, source)]


__all__ = ["PART", "sections", "studies"]


def _compute(scale: Scale, out: Path, progress: Progress) -> None:
    """Probes and films, of agents that are done; a glimpse of each at the smallest scale."""
    steps, limit = (50, 50) if scale == "smoke" else (STEPS, LIMIT)
    for cast in casts(read_agents(out).settings):
        make_probe(make_directory(out), cast, progress, steps)
        make_film(out, cast, progress, limit)


def _tables(out: Path) -> list[Any]:
    return [table for setting, agents in read_agents(out).settings.items() for table in printed(agents, f"Atari, {SETTINGS[setting]}")]


PART = Part("Figures 4, 5 and 7 and the table of 60 games: deep agents on Atari", sections, studies, _compute, _tables)
