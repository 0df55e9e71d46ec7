"""`train`: train deep agents as one batch. Each agent is a run of `actiongap.lab`, so the same command resumes training."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tyro.conf import Positional, arg

from actiongap._files import printable
from actiongap.cli.common import Count, Flag, Integer, Number, command_line, print_json
from actiongap.dqn.config import PRESETS, Config

OF_PRESET = ("eval_every", "max_episode_steps", "evaluation_epsilon")
"""Options whose defaults depend on the environment or on other options."""
YES_NO = {"yes": True, "no": False}
PRESET_HELP = (
    "faithful learns from 32 transitions per step, as the MinAtar paper does; throughput from 8, in larger batches, for accelerators. "
    "stochastic-minimal (sticky actions) and original-dqn (a lost life ends the episode) are DeepMind's DQN on Atari. "
    "By default stochastic-minimal on Atari and faithful elsewhere."
)


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The agents to train, and for how long."""

    env: Annotated[Positional[str], arg(metavar="ENV")]
    """minatar/GAME (asterix, breakout, freeway, seaquest, space_invaders), atari/ROM (atari/pong), or gym/ID with discrete actions."""
    operator: Annotated[tuple[str, ...], arg(metavar="OPERATOR ...")] = ("bellman",)
    """One or more operators: bellman, consistent, al:ALPHA, pal-dqn:ALPHA, munchausen:TAU,ALPHA, path/to/file.py:name and so on."""
    seeds: Count = 1
    """Number of seeds."""
    seed: Count = 0
    """The first seed."""
    frames: int = 1_000_000
    """Frames that each agent plays. On Atari, a step is four frames."""
    preset: Annotated[
        Literal["faithful", "throughput", "stochastic-minimal", "original-dqn"] | None,
        arg(metavar="PRESET", help=PRESET_HELP, help_behavior_hint=""),
    ] = None
    """Preset that provides the configuration."""
    eval_every: Integer = None
    """Frames between evaluations; by default a twentieth of --frames. On Atari, each resets the games, so avoid small values."""
    episodes: int = 32
    """Episodes per evaluation."""
    max_episode_steps: Integer = None
    """Steps after which an evaluation episode is truncated; by default 3,000, and 27,000 on Atari."""
    evaluation_epsilon: Number = None
    """Probability of a random action in an evaluation; by default 0.01, and 0.05 on Atari."""
    evaluation_steps: int = 0
    """On Atari, length of an evaluation in steps; an episode that has started is finished. 0: evaluate --episodes episodes."""
    save_replay_buffer: Annotated[Literal["yes", "no"], arg(help_behavior_hint="")] = "yes"
    """On Atari, whether to save the replay buffers (7 kB per step). If no, a resumed run refills them. By default yes."""
    exact: Flag = False
    """Compute agents one after another, so that results do not depend on the batch, bit for bit. Slow."""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder to write to; by default out/train/ENV."""
    max_batch_size: int = 160
    """Maximum number of agents that are trained as a batch."""
    json: Flag = False
    """Print one JSON object per line, one for each agent."""


def train_command() -> Callable[..., int]:
    """Return `train` with the configuration of an agent as options."""

    def command(training: TrainOptions, config: Any) -> int:
        given = {name: value for name, value in vars(config).items() if value is not None and value is not False}
        return _train(training, {name: YES_NO.get(value, value) for name, value in given.items()})

    command.__doc__ = train.__doc__
    command.__annotations__["config"] = _config_as_options()
    return command


def train(training: TrainOptions) -> int:
    """Train deep agents: every operator with every seed, all as one batch. Run the same command again to resume."""
    # Only for the list of commands. `train_command` adds the configuration and replaces it.
    return _train(training, {})


def _config_as_options() -> type:
    """Return a dataclass of optional fields, one for each field of an agent's configuration."""
    from actiongap.lab.experiment import field_docs

    docs = {name: " ".join(text.split()) for name, text in field_docs(Config).items()}  # pyright: ignore[reportArgumentType]
    hints = get_type_hints(Config)
    fields: list[tuple[str, Any, Any]] = []
    for field in dataclasses.fields(Config):
        kind = hints[field.name]
        if kind is bool and any(getattr(preset, field.name) for preset in PRESETS.values()):
            # A flag could not turn off a field that a preset turns on.
            kind = Literal["yes", "no"]
        if kind is bool:
            fields.append((field.name, Annotated[bool, arg(help=docs[field.name], help_behavior_hint="")], False))
        else:
            metavar = "|".join(map(str, get_args(kind))) if get_origin(kind) is Literal else "N" if kind is int else "NUMBER"
            fields.append((field.name, Annotated[kind | None, arg(metavar=metavar, help=docs[field.name], help_behavior_hint="")], None))
    made = dataclasses.make_dataclass("Learning", fields, frozen=True)
    made.__doc__ = "Configuration of the agents. Omitted values come from the preset."
    return made


def _train(options: TrainOptions, chosen: dict[str, Any]) -> int:
    if options.env.startswith("atari/"):
        from actiongap.envs.atari import check_game

        # Check the game before anything imports JAX, so that a missing emulator is reported first.
        check_game(options.env.removeprefix("atari/"))
    from actiongap.api.agents import train as train_agents

    names = ("operator", "seeds", "seed", "frames", "preset", "max_batch_size", "episodes", "exact", "evaluation_steps")
    given = {name: getattr(options, name) for name in names} | {"save_replay_buffer": YES_NO[options.save_replay_buffer], **chosen}
    given |= {name: value for name in OF_PRESET if (value := getattr(options, name)) is not None}
    out = options.out or Path("out") / "train" / re.sub(r"[^A-Za-z0-9.]+", "-", options.env)
    agents = train_agents(options.env, out=out, command=command_line(), progress=True, **given)
    if options.json:
        for agent in agents:
            print_json(agent.summary())
    else:
        print(agents.table())
        print(f"See the curves with: actiongap report {printable(shlex.quote(str(out)))} -o page.html")
    return 1 if agents.failed else 0
