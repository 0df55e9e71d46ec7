"""`probe`: what trained agents think of the same states, which one of them plays through."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from actiongap.cli.common import File, Flag, StepProgress, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actiongap.envs.atari import AtariGame
    from actiongap.envs.functional import Game
    from actiongap.lab.agents import Trained


def probe(
    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUNS ...", help_behavior_hint="")],
    along: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None,
    steps: int = 1000,
    window: int = 50,
    seed: int = 0,
    trust: Flag = False,
    out: Annotated[File, arg(aliases=["-o"])] = None,
    json: Flag = False,
) -> int:
    """Show V(x) and the action gap of trained agents in the same states, which one of them plays through: the paper's probe figure.

    Args:
        runs: Folders of agents, or of studies of agents of one game.
        along: The agent that plays; the first that learned with Bellman's operator if not given.
        steps: How many steps it plays, game after game; on Atari at most, since one game is played and no more.
        window: Over how many steps what agents think is smoothed.
        seed: Which random numbers it plays with.
        trust: Run the Python that the runs name: an environment of its author's own.
        out: The page to write; probe.html if nothing else is asked for.
        json: Print one JSON object for each agent, a line each, with its values and gaps, smoothed.
    """
    from actiongap.dqn.probe import probe as ask
    from actiongap.dqn.probe import record, smoothed
    from actiongap.lab.agents import load_trained

    if steps < 1 or window < 1:
        raise ValueError(f"--steps is {steps} and --window {window}: both must be 1 or more")
    with StepProgress("probe") as progress:
        progress("reading agents", 0.0)
        agents = _agents(runs, trust)
        bellman = next((agent for agent in agents if agent.spec.operator == "bellman"), agents[0])
        guide = load_trained(along, trust=trust) if along else bellman
        game = _game_of([*agents, guide])
        progress("playing", 0.2)
        observations = record(guide.dqn, game, guide.parameters, seed, steps)
        progress("asking", 0.5)
        found = [ask(agent.dqn, [agent.parameters], observations) for agent in agents]
        values, gaps = ([smoothed(one[k], window)[0] for one in found] for k in (0, 1))
    if json:
        for agent, value, gap in zip(agents, values, gaps, strict=True):
            asked = {"environment": agent.spec.problem, "operator": agent.spec.operator, "seed": agent.spec.seed}
            print_json({**asked, "value": value.tolist(), "action_gap": gap.tolist()})
    if out is not None or not json:
        page = out or Path("probe.html")
        _write(page, agents, guide, values, gaps, window)
        if not json:
            print(f"{len(agents)} agents along {len(observations):,} steps of {guide.label}: wrote {page}")
    return 0


def _agents(runs: Sequence[Path], trust: bool) -> list[Trained]:
    """The agents among folders of runs and of studies, those of a study by operator and seed; those that cannot be read are named."""
    from actiongap.lab.agents import is_trained, load_trained

    found: list[Trained] = []
    problems: list[str] = []
    for run in runs:
        study: list[Trained] = []
        for folder in [run] if is_trained(run) else filter(is_trained, run.glob("runs/*")):
            try:
                study.append(load_trained(folder, trust=trust))
            except ValueError as error:
                problems.append(str(error))
        found += sorted(study, key=lambda agent: (agent.spec.operator, agent.spec.seed))
    if not found:
        raise ValueError(problems[0] if problems else "there is no agent in what was given: give folders that actiongap train has written")
    for problem in problems:
        print(f"note: left out: {problem}", file=sys.stderr)
    return found


def _game_of(agents: Sequence[Trained]) -> Game | AtariGame:
    from actiongap.envs.gym import HostGame
    from actiongap.envs.registry import load_environment

    problems = {agent.spec.problem for agent in agents}
    if len(problems) > 1:
        raise ValueError(f"these agents play different games, {' and '.join(sorted(problems)[:2])}: probe those of one game")
    game = load_environment(problems.pop())
    if isinstance(game, HostGame):
        raise ValueError(f"games of gym/{game.name} are not recorded: probes are for minatar/ and atari/ games")
    return game


def _write(page: Path, agents: Sequence[Trained], guide: Trained, values: Sequence, gaps: Sequence, window: int) -> None:
    from actiongap._files import make_directory, write_text
    from actiongap.report.html import render
    from actiongap.report.page import Chart, Page, Section, Series

    played = "one game" if guide.spec.problem.startswith("atari/") else "games, one after the other,"

    def chart(title: str, rows: Sequence) -> Chart:
        lines = tuple(Series(agent.label, tuple(range(len(row))), tuple(row.tolist())) for agent, row in zip(agents, rows, strict=True))
        note = f"Along {len(rows[0]):,} steps of {played} of {guide.label}, smoothed over {window} steps."
        return Chart(title, "step", title, lines, note)

    section = Section(f"What agents think: {guide.spec.problem}", (chart("V(x)", values), chart("action gap", gaps)))
    write_text(make_directory(page.parent) / page.name, render(Page("Probes", (section,))))
