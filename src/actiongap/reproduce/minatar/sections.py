"""Deep agents on the page: how they learn and what they score, what alpha does, whether values are too high, relatives, and costs."""

from __future__ import annotations

from pathlib import Path

from actiongap.report.groups import LEVEL, NAMED
from actiongap.report.page import Block, Prose, Section
from actiongap.report.summary import costs, failures, provenance_of
from actiongap.reproduce.agents.alphas import alpha_sweep
from actiongap.reproduce.agents.curves import learning_curves, thinking_curves
from actiongap.reproduce.agents.hypothesis import bias
from actiongap.reproduce.agents.runs import Agents, games_of
from actiongap.reproduce.agents.scores import scores
from actiongap.reproduce.minatar.paper import beside_the_paper
from actiongap.reproduce.minatar.relatives import SETS, relatives
from actiongap.reproduce.minatar.runs import read_agents
from actiongap.reproduce.minatar.studies import QUESTIONS

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
    ratio = spec["updates"] * spec["batch"] / spec["environments"]
    return (
        f"Every agent plays {spec['frames']:,} frames of a game ({', '.join(games_of(agents))}), {spec['environments']} at a time, and "
        f"learns from {ratio:g} transitions a frame in batches of {spec['batch']}, with {spec['optimiser']} at a rate of {spec['rate']:g}, "
        f"products of matrices in {spec['precision']}, gamma = {spec['gamma']:g}, a target network that is renewed every "
        f"{spec['target_every']:,} frames and a memory of {spec['replay']:,}; random actions become rarer until {spec['explore_for']:,} "
        f"frames and are {spec['epsilon']:.0%} from then on. After every {spec['every']:,} frames it "
        f"plays {spec['episodes']} episodes of at most {spec['limit']:,} steps with a random action {spec['evaluation_epsilon']:.0%} of "
        f"the time. Each agent is done with {count} seeds. Intervals are Student's t at {LEVEL:.0%} over seeds."
    )
