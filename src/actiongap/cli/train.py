"""`train`: deep agents, a whole population at once. Each is a run of the laboratory, so training goes on where it was interrupted."""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tyro.conf import Positional, arg

from actiongap.cli.common import Flag, Whole, print_json
from actiongap.cli.studies import SweepOptions, carry_out
from actiongap.dqn.config import PRESETS, Config

if TYPE_CHECKING:
    from actiongap.lab.records import RunRecord


ANSWERS = {"yes": True, "no": False}


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """Whom to train, and for how long."""

    env: Annotated[Positional[str], arg(metavar="ENV")]
    """minatar/ and asterix, breakout, freeway, seaquest or space_invaders; atari/ROM, such as atari/pong; or gym/ID, a Gymnasium
    environment with discrete actions."""
    operator: Annotated[tuple[str, ...], arg(metavar="OPERATOR ...")] = ("bellman",)
    """One operator or more: bellman, consistent, al:ALPHA, pal-dqn:ALPHA, munchausen:TAU,ALPHA, path/to/file.py:name and so on."""
    seeds: int = 1
    """How many seeds, from 0 on."""
    frames: int = 1_000_000
    """How many frames each agent plays; on Atari a step is four."""
    preset: Annotated[Literal["faithful", "throughput", "stochastic-minimal", "original-dqn"] | None, arg(help_behavior_hint="")] = None
    """faithful learns from 32 transitions a step, as the MinAtar paper does; throughput from 8, in larger batches, for accelerators;
    stochastic-minimal, where actions are sticky, and original-dqn, where a lost life is the end, are DeepMind's DQN on Atari. If not
    given, stochastic-minimal on Atari and faithful elsewhere."""
    eval_every: Whole = None
    """Frames between evaluations; a twentieth of all if not given. On Atari games begin anew after each, so that few frames show agents
    little but how games begin."""
    episodes: int = 32
    """How many episodes an evaluation plays."""
    max_episode_steps: Whole = None
    """After how many steps such an episode is cut short: 3,000, or on Atari 27,000 if not given."""
    evaluation_steps: int = 0
    """On Atari, after how many steps an evaluation begins no more games, instead of a number of episodes, if any are given."""
    save_memory: Annotated[Literal["yes", "no"], arg(help_behavior_hint="")] = "yes"
    """On Atari, whether what agents remember is saved with them, 7 kB a step; if not, it is collected anew after an interruption."""
    exact: Flag = False
    """Compute agents one after the other, so that each is the same to the bit in any company; slow."""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    """The folder to write to; out/train/ENV if not given."""
    together: int = 160
    """How many agents are trained at once, at most."""
    json: Flag = False
    """Print one JSON object for each agent, a line each."""


def train_command() -> Callable[..., int]:
    """The command, with the settings of an agent as options."""

    def command(training: TrainOptions, config: Any) -> int:
        given = {name: value for name, value in vars(config).items() if value is not None and value is not False}
        return _train(training, {name: ANSWERS.get(value, value) for name, value in given.items()})

    command.__doc__ = train.__doc__
    command.__annotations__["config"] = _config_as_options()
    return command


def train(training: TrainOptions) -> int:
    """Train deep agents: every operator with every seed, all of them at once. Interrupted, the same command goes on."""
    # The list of commands shows this one; `train_command` has the settings too, and is what is run.
    return _train(training, {})


def _config_as_options() -> type:
    """The settings of an agent, none of which need be given."""
    from actiongap.lab.experiment import field_docs

    docs, hints = field_docs(Config), get_type_hints(Config)  # pyright: ignore[reportArgumentType]
    fields: list[tuple[str, Any, Any]] = []
    for field in dataclasses.fields(Config):
        kind = hints[field.name]
        if kind is bool and any(getattr(preset, field.name) for preset in PRESETS.values()):
            # A flag could not turn off what a preset has.
            kind = Literal["yes", "no"]
        if kind is bool:
            fields.append((field.name, Annotated[bool, arg(help=docs[field.name], help_behavior_hint="")], False))
        else:
            metavar = "|".join(map(str, get_args(kind))) if get_origin(kind) is Literal else "N" if kind is int else "NUMBER"
            fields.append((field.name, Annotated[kind | None, arg(metavar=metavar, help=docs[field.name], help_behavior_hint="")], None))
    made = dataclasses.make_dataclass("Learning", fields, frozen=True)
    made.__doc__ = "How agents learn; what is not given is the preset's."
    return made


def _train(options: TrainOptions, chosen: dict[str, Any]) -> int:
    from actiongap.lab.records import read_runs
    from actiongap.lab.study import Study, grid

    if options.seeds < 1:
        raise ValueError(f"--seeds is {options.seeds}: train one agent at least")
    if options.env.startswith("atari/"):
        from actiongap.envs.atari import check_game

        # Before anything asks for JAX, which comes with the emulator.
        check_game(options.env.removeprefix("atari/"))
    fields = {name: getattr(options, name) for name in ("preset", "frames", "episodes", "exact", "evaluation_steps")}
    fields |= {"save_memory": ANSWERS[options.save_memory], **chosen}
    fields |= {name: value for name in ("eval_every", "max_episode_steps") if (value := getattr(options, name)) is not None}
    study = Study("train", grid("train", env=options.env, operator=options.operator, seed=range(options.seeds), **fields))
    out = options.out or Path("out") / "train" / re.sub(r"[^A-Za-z0-9.]+", "-", options.env)
    if not options.json:
        _warn_of_exploration(study.runs[0])
    outcome = carry_out(study, SweepOptions(out, together=options.together), measure=False)
    runs = {run.name: run for run in read_runs([out]).runs}
    found = [_summary(runs[name], experiment) for name, experiment in study.named().items() if name in runs]
    if options.json:
        for agent in found:
            print_json(agent)
    else:
        _show(found, outcome.failed, out)
    return 1 if outcome.failed else 0


def _warn_of_exploration(run: Any) -> None:
    """Say so if exploration never ends: the returns of such agents do not measure what they could learn."""
    from actiongap.envs.atari import FRAMES_A_STEP

    ends = (run.learning_starts + run.exploration_steps) * (FRAMES_A_STEP if run.emulated else 1)
    if run.frames < ends:
        print(f"note: exploration ends after {ends:,} frames and {run.frames:,} are played: see --exploration-steps", file=sys.stderr)


def _summary(run: RunRecord, experiment: Any) -> dict[str, Any]:
    """What programs are told of an agent."""
    last = {name: float(values[-1]) for name, values in run.rows.items() if len(values)}
    seconds = run.status.seconds if run.status else 0.0
    return {
        "env": experiment.env,
        "operator": experiment.operator,
        "seed": experiment.seed,
        "frames": int(last.get("step", 0)),
        **{name: last.get(name) for name in ("score", "action_gap", "value")},
        # Seconds are an agent's share of the time of all that were trained with it, so this is the speed of all of them together.
        "frames_per_second": run.status.steps / seconds if run.status and seconds > 0 else None,
        "run": str(run.folder),
    }


def _show(agents: list[dict[str, Any]], failed: dict[str, str], out: Path) -> None:
    """Print what came of it: a line for each operator."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True, markup=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("operator", "agents", "frames", "score", "lowest", "highest", "gap", "V"):
        table.add_column(heading, justify="left" if heading == "operator" else "right")
    for operator in dict.fromkeys(agent["operator"] for agent in agents):
        some = [agent for agent in agents if agent["operator"] == operator and agent["score"] is not None]
        if some:
            scores = [agent["score"] for agent in some]
            means = [sum(agent[name] for agent in some) / len(some) for name in ("score", "action_gap", "value")]
            numbers = (means[0], min(scores), max(scores), means[1], means[2])
            table.add_row(Text(operator), str(len(some)), f"{some[0]['frames']:,}", *(f"{number:.4g}" for number in numbers))
    if table.row_count:
        console.print(table)
    for name, text in failed.items():
        console.print(f"failed: {name}: {text}")
    console.print(f"See the curves with: actiongap report {shlex.quote(str(out))} -o page.html")
