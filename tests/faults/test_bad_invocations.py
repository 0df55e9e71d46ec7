"""Every option of every command with values that it does not take: exit code 2, one line, and nothing is created."""

from __future__ import annotations

import dataclasses
import os
import tomllib
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import pytest

from faults import samples
from faults.commands import assert_sentence, give_to_all, remove, run_program, sandbox, snapshot

TABLE = tomllib.loads(Path(__file__).with_name("bad_values.toml").read_text())
TRAIN = {name.replace("_", "-"): str(value) for name, value in samples.TRAIN.items() if name != "env"}
PLAN = dict(zip((word.removeprefix("--") for word in samples.PLAN[1::2]), samples.PLAN[2::2], strict=True))


class Base(NamedTuple):
    """An invocation that works, but for the value that is put into it."""

    words: tuple[str, ...]
    options: dict[str, str]
    command: Callable[..., Any]
    texts: dict[str, str]
    """The bad names that an argument takes, where they are not those of its own name."""
    suffix: str = ""
    """Of the file that it writes; empty if it writes a folder."""


NAMES = (
    *("solve", "plan", "train", "prove", "check", "sweep", "report", "reproduce", "watch", "probe", "demo", "doctor"),
    *(f"sweep {kind}" for kind in ("q-learning", "fitted-q", "noisy-values", "noisy-backups", "plan")),
)
"""Commands, and kinds of experiments with options of their own."""


@cache
def bases() -> dict[str, Base]:
    """An invocation of each command."""
    from actiongap.cli import COMMANDS
    from actiongap.cli.studies import sweep_command
    from actiongap.cli.train import train_command

    learn = {"out": "out", "workers": "1", "env": "cake"}
    kinds = {
        "q-learning": ({**learn, "rows": "2", "steps": "20"}, "mdp"),
        "fitted-q": ({**learn, "rows": "2", "iterations": "2", "transitions": "20"}, "mdp"),
        "noisy-values": (learn, "mdp"),
        "noisy-backups": ({**learn, "rows": "2", "sweeps": "2"}, "mdp"),
        "plan": ({**learn, **PLAN, "env": "mountain-car"}, "simulator"),
    }
    found = {
        "solve": Base(("solve", "cake"), {}, COMMANDS["solve"], {"mdp": "mdp"}, ".npz"),
        "plan": Base(("plan", "mountain-car"), {**PLAN, "out": "out"}, COMMANDS["plan"], {"env": "simulator"}),
        "train": Base(("train", "minatar/breakout"), {**TRAIN, "out": "out"}, train_command(), {"env": "game"}),
        "prove": Base(("prove", "al:0.5"), {}, COMMANDS["prove"], {}),
        "check": Base(("check", "target.py:f"), {}, COMMANDS["check"], {}),
        "sweep": Base(("sweep", "study.toml"), {"out": "out", "workers": "1"}, COMMANDS["sweep"], {}),
        "report": Base(("report", "study"), {}, COMMANDS["report"], {}, ".html"),
        "reproduce": Base(("reproduce", "cake"), {"scale": "smoke", "out": "out"}, COMMANDS["reproduce"], {}),
        "watch": Base(("watch", "plan/policy.npz"), {"out": "video.gif", "seconds": "2"}, COMMANDS["watch"], {}, ".gif"),
        "probe": Base(("probe", "study"), {}, COMMANDS["probe"], {}, ".html"),
        "demo": Base(("demo",), {"no-open": ""}, COMMANDS["demo"], {}, ".html"),
        "doctor": Base(("doctor",), {}, COMMANDS["doctor"], {}),
    }
    for kind, (options, env) in kinds.items():
        found[f"sweep {kind}"] = Base(("sweep", kind), options, sweep_command(kind), {"env": env})
    assert tuple(found) == NAMES
    assert {name.split()[0] for name in found} == COMMANDS.keys()
    return found


INPUTS = ("runs", "rates", "along", "policy", "study")
POSITIONAL = {
    "solve": "mdp",
    "plan": "env",
    "train": "env",
    "prove": "operator",
    "check": "function",
    "sweep": "study",
    "report": "runs",
    "reproduce": "part",
    "watch": "policy",
    "probe": "runs",
}


NEEDED = {"port": ["--watch"], "rates": ["--dry-run"]}
"""Options without which others are not looked at."""


def is_positional(base: Base, name: str) -> bool:
    """Whether a parameter is given without its name."""
    return POSITIONAL.get(base.words[0]) == name


def parameters(command: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The parameters of a command with their types, those of its dataclasses included."""
    for name, kind in get_type_hints(command).items():
        if dataclasses.is_dataclass(kind):
            hints = get_type_hints(kind)
            yield from ((field.name, hints[field.name]) for field in dataclasses.fields(kind))
        elif name != "return":
            yield name, kind


def plain(kind: Any) -> Any:
    """The type of one value: of an option that may be omitted, or takes several."""
    if get_origin(kind) in (Union, types.UnionType):
        return plain(next(part for part in get_args(kind) if part is not type(None)))
    if get_origin(kind) is tuple:
        return plain(get_args(kind)[0])
    return kind


def section(command: str, base: Base, name: str, kind: Any) -> list[str]:
    """The bad values of a parameter."""
    kind, values = plain(kind), []
    if get_origin(kind) is Literal:
        values += TABLE["choice"]["values"]
    elif kind is Path:
        values += TABLE["input" if name in INPUTS else "file" if (base.suffix and name == "out") or name == "save" else "folder"]["values"]
    elif kind in (int, float, bool):
        values += TABLE[kind.__name__]["values"]
    values += TABLE["names"].get(base.texts.get(name, name.replace("_", "-")), [])
    taken = TABLE["taken"].get(f"{command} --{name.replace('_', '-')}", [])
    return [value for value in values if value not in taken and "*" not in taken]


def spelled(value: str, suffix: str) -> str:
    """A value as it is typed."""
    return value.replace("SUFFIX", suffix).replace("LONG", "x" * 100_000).replace("ESCAPE", "\x1b]0;title\x07\x1b[2J")


def invocations(command: str, base: Base, name: str, kind: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A bad invocation for each bad value of a parameter, with a name."""
    option = name.replace("_", "-")
    others = [f"--{other}={value}" if value else f"--{other}" for other, value in base.options.items() if other != option]
    others += NEEDED.get(option, ())
    suffix = ".npz" if name == "save" else base.suffix
    for value in section(command, base, name, kind):
        text = spelled(value, suffix)
        if plain(kind) is bool:
            yield f"{option}{value}", (*base.words, *others, *(f"--{option}{value}".split(" ")))
        elif is_positional(base, name):
            yield f"{option} {value}", (base.words[0], text, *others)
        else:
            yield f"{option} {value}", (*base.words, *others, f"--{option}={text}")


def misspelt(base: Base, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Options that there are not, and options without their value."""
    option = name.replace("_", "-")
    others = [f"--{other}={value}" if value else f"--{other}" for other, value in base.options.items() if other != option]
    yield f"--{option}x", (*base.words, *others, f"--{option}x=1")
    yield f"---{option}", (*base.words, *others, f"---{option}")
    if not is_positional(base, name):
        yield f"--{option} without a value, or as one", (*base.words, *others, f"--{option}", "--no-such-option")


@cache
def all_cases() -> dict[tuple[str, str], dict[str, tuple[str, ...]]]:
    """All bad invocations, by command and parameter."""
    return {
        (command, name): dict((*invocations(command, base, name, kind), *misspelt(base, name)))
        for command, base in bases().items()
        for name, kind in parameters(base.command)
        if not is_shared(command, name)
    }


def is_shared(command: str, name: str) -> bool:
    """Whether a parameter of a kind of experiments is one of all kinds, which is tried with one of them."""
    others = ("sweep", "sweep q-learning")
    return command.startswith("sweep ") and any(
        name in dict(parameters(bases()[other].command))
        for other in others
        if other != command and not (other == "sweep" and name == "out")
    )


def test_there_are_enough_of_them():
    assert sum(map(len, all_cases().values())) >= 600


def surroundings(originals: Path, place: Path) -> None:
    """What bad paths lead to."""
    for name in ("study", "plan", "study.toml"):
        samples.copy(originals, name, place)
    (place / "file.txt").write_text("a text")
    for name in ("folder.npz", "folder.html", "folder.gif", "folder.mp4", "closed", "readonly", "empty"):
        (place / name).mkdir()
    for name in ("pipe", "pipe.npz", "pipe.html", "pipe.gif", "pipe.py"):
        os.mkfifo(place / name)
    for name in ("loop", "loop.npz", "loop.py"):
        (place / name).symlink_to(name)
    (place / "dangling").symlink_to("nowhere")
    programs = {
        "broken": "def f(:",
        "raises": "raise RuntimeError('[/red] \\x1b]0;title\\x07')",
        "empty": "",
        "exits": "raise SystemExit(3)",
        "interrupts": "raise BaseException('\\x1b[2Jgone')",
        "target": "def f(q_tm1, a_tm1, r_t, discount_t, q_t):\n    return r_t + discount_t * q_t.max(-1)\n",
    }
    for name, text in programs.items():
        (place / f"{name}.py").write_text(text)
    give_to_all(place)
    (place / "closed").chmod(0)
    (place / "readonly").chmod(0o555)


@pytest.fixture(scope="module")
def world(originals):
    """A folder in which nothing may be created."""
    place = sandbox()
    surroundings(originals, place)
    yield place
    remove(place)


def unchanged(world: Path, before: dict[str, tuple[Any, ...]]) -> None:
    """Nothing was created. What was is removed, so that it is found once."""
    made = sorted(snapshot(world).keys() - before.keys())
    for name in made:
        if "/" not in name:
            remove(world / name) if (world / name).is_dir() else (world / name).unlink()
    assert not made, f"it made {made[:5]}"
    assert snapshot(world) == before


@pytest.mark.parametrize("command", NAMES)
def test_bad_values_are_refused_before_anything_is_done(server, world, cases, command):
    before = snapshot(world)
    given = {f"{name}: {case}": words for (of, name), found in all_cases().items() if of == command for case, words in found.items()}
    for name, words in cases.items(given, short=2):
        with cases.case(name[:80].encode("unicode_escape").decode()):
            assert_sentence(server.run(*words, cwd=world))
            unchanged(world, before)


@pytest.mark.parametrize(
    "words",
    [
        ("nothing",),
        ("--nothing",),
        ("\x1b]0;title\x07",),
        ("x" * 100_000,),
        ("[/red]",),
        ("solve",),
        ("solve", "cake", "cake"),
        ("sweep", "nothing", "--out", "out"),
        ("--json",),
    ],
    ids=range(9),
)
def test_commands_that_there_are_not(server, world, cases, words):
    before = snapshot(world)
    with cases.case("refused"):
        assert_sentence(server.run(*words, cwd=world))
        assert snapshot(world) == before


@pytest.mark.long
def test_the_program_refuses_as_its_functions_do(world, cases):
    """A sample in processes of their own, from their start to their end."""
    every = [(f"{key[0]} {name}", words) for key, found in all_cases().items() for name, words in found.items()]
    before = snapshot(world)
    for name, words in every[:: len(every) // 24]:
        with cases.case(name[:80].encode("unicode_escape").decode()):
            assert_sentence(run_program(*words, cwd=world))
            assert snapshot(world) == before
