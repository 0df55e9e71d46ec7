"""The command line: parse, call, print.

Every command prints text for people, or JSON with `--json`. Commands import their dependencies when they run, so help is fast.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial, wraps

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

from actiongap._system import missing
from actiongap._version import __version__
from actiongap.cli.mdp import prove, solve
from actiongap.cli.other import demo, doctor
from actiongap.cli.plan import plan
from actiongap.cli.report import report, reproduce
from actiongap.cli.studies import is_kind, sweep, sweep_command
from actiongap.cli.train import train, train_command
from actiongap.cli.watch import probe, watch

DESCRIPTION = "Gap-increasing operators in reinforcement learning: plan, learn, prove, reproduce. --version prints the version."
COMMANDS: dict[str, Callable[..., int]] = {
    "demo": demo,
    "solve": solve,
    "plan": plan,
    "train": train,
    "prove": prove,
    "sweep": sweep,
    "report": report,
    "reproduce": reproduce,
    "watch": watch,
    "probe": probe,
    "doctor": doctor,
}


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its code. Invalid input prints one sentence and exits with 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(f"actiongap {__version__}")
        sys.exit(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _show_warning
        sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    try:
        return _parse(arguments)()
    except (ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            sys.stderr.close()
            return 141
        print(f"actiongap: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        sentence = missing(error)
        if sentence is None:
            raise
        print(f"actiongap: {sentence}", file=sys.stderr)
        return 2
    except MemoryError:
        print("actiongap: out of memory: choose a smaller problem, or run it on a machine with more memory", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        print(f"actiongap: {str(interrupt) or 'interrupted; run the same command again'}", file=sys.stderr)
        return 130


def _parse(arguments: list[str]) -> Callable[[], int]:
    """Parse the arguments into a command with its options bound. Raise a ValueError if they are invalid."""
    message = io.StringIO()
    config = (FlagCreatePairsOff, OmitArgPrefixes)
    try:
        with contextlib.redirect_stderr(message):
            if arguments[:1] == ["sweep"] and is_kind("".join(arguments[1:2])):
                command = _deferred(sweep_command(arguments[1]))
                return tyro.cli(command, prog=f"actiongap sweep {arguments[1]}", args=arguments[2:], config=config)
            if arguments[:1] and arguments[0] in COMMANDS:
                # Parsed alone: among all commands, tyro would suggest options of other commands for an unknown option.
                command = train_command() if arguments[0] == "train" else COMMANDS[arguments[0]]
                return tyro.cli(_deferred(command), prog=f"actiongap {arguments[0]}", args=arguments[1:], config=config)
            return tyro.extras.subcommand_cli_from_dict(
                {name: _deferred(command) for name, command in COMMANDS.items()},
                prog="actiongap",
                description=DESCRIPTION,
                args=arguments,
                config=config,
            )
    except SystemExit as error:
        if not message.getvalue():
            raise
        raise ValueError(_parser_error(message.getvalue(), arguments)) from error


def _parser_error(message: str, arguments: list[str]) -> str:
    """Return tyro's error as one sentence that names the help. Its message is a box of text; the first paragraph states the error."""
    known = [argument for argument in arguments[:1] if argument in COMMANDS]
    if arguments and not known and not arguments[0].startswith("-"):
        return f"there is no command {arguments[0]!r}: choose from {', '.join(COMMANDS)} (see actiongap --help)"
    if not arguments:
        return f"COMMAND is missing: choose from {', '.join(COMMANDS)} (see actiongap --help)"
    # Terminals without box-drawing characters get hyphens.
    lines = [re.sub(r"^-{3,}$", "", line.strip("│╭╮╰╯─ ")) for line in message.splitlines()]
    paragraph = " ".join(itertools.takewhile(bool, itertools.dropwhile(lambda line: not line, lines[1:]))) or lines[0]
    if known == ["sweep"] and is_kind("".join(arguments[1:2])):
        known.append(arguments[1])
    return f"{_rephrase(paragraph, ' '.join(lines))} (see {' '.join(['actiongap', *known, '--help'])})"


def _rephrase(error: str, message: str) -> str:
    """Return tyro's error without its jargon. Its whole message may suggest another option."""
    option = re.search(r"--[a-z-]+", error)
    if invalid := re.match(r"Error parsing (--[a-z-]+): (.*?)\[?'(.*)'\]?\.?$", error):
        kinds = {"whole number": r"int\(\)|\bINT\b", "number": r"to float|\bFLOAT\b"}
        kind = next((kind for kind, pattern in kinds.items() if re.search(pattern, invalid[2])), None)
        value = invalid[3].replace("', '", " ")
        return f"{invalid[1]} is {value!r}: it must be a {kind}" if kind else f"{invalid[1]} is {value!r}: this is not a valid value"
    if choice := re.match(r"invalid choice '(.*)' for argument '(.*)'\. Expected one of \((.*)\)\.$", error):
        # None is the default of an option, not a value that users can give.
        values = sorted(set(re.findall(r"'([^']*)'", choice[3])) - {"None"})
        return f"{choice[2] if option else choice[2].upper()} is {choice[1]!r}: choose from {', '.join(values)}"
    if missing_argument := re.match(r"Missing from [^:]*: ([A-Z]+) (.*?) \(required\)", error):
        name, help = missing_argument.groups()
        return f"{name} is missing: give {help[0].lower()}{help[1:].removesuffix('.')}"
    if error.startswith("Missing") and option:
        return f"{option[0]} is missing: it is required"
    if error.startswith("Unrecognized") and option:
        similar = re.search(r"--[a-z-]+", message.partition("Perhaps you meant")[2].partition("For full helptext")[0])
        return f"there is no option {option[0]}" + (f": did you mean {similar[0]}?" if similar else "")
    return error


def _deferred(command: Callable[..., int]) -> Callable[..., Callable[[], int]]:
    """Return a function with the command's options that binds them instead of running the command, so parsing finishes first."""

    @wraps(command)
    def bind(*arguments, **options) -> Callable[[], int]:
        return partial(command, *arguments, **options)

    return bind


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"warning: {message}", file=sys.stderr)
