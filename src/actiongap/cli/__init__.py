"""The command line: parse, call, print.

Every command prints for people, takes `--json` for programs, and imports what it needs only when it runs, so that help is quick.
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
from actiongap.cli.studies import is_kind, sweep, sweep_of
from actiongap.cli.train import train, train_command
from actiongap.cli.watch import probe, watch

DESCRIPTION = "Gap-increasing operators in reinforcement learning: plan, learn, prove, reproduce. --version says which this is."
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
    """Run a command and leave with its exit code; bad input is one sentence and exit code 2."""
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
        print("actiongap: this needs more memory than there is: ask for something smaller", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        print(f"actiongap: {str(interrupt) or 'interrupted; run the same command again'}", file=sys.stderr)
        return 130


def _parse(arguments: list[str]) -> Callable[[], int]:
    """The command that the arguments name, ready to run; a ValueError where they name none."""
    complaint = io.StringIO()
    config = (FlagCreatePairsOff, OmitArgPrefixes)
    try:
        with contextlib.redirect_stderr(complaint):
            if arguments[:1] == ["sweep"] and is_kind("".join(arguments[1:2])):
                command = _deferred(sweep_of(arguments[1]))
                return tyro.cli(command, prog=f"actiongap sweep {arguments[1]}", args=arguments[2:], config=config)
            if arguments[:1] and arguments[0] in COMMANDS:
                # Alone, so that what is unknown is not taken for an option of another command.
                command = train_command() if arguments[0] == "train" else COMMANDS[arguments[0]]
                return tyro.cli(_deferred(command), prog=f"actiongap {arguments[0]}", args=arguments[1:], config=config)
            return tyro.extras.subcommand_cli_from_dict(
                {name: _deferred(command) for name, command in COMMANDS.items()},
                prog="actiongap",
                description=DESCRIPTION,
                args=arguments,
                config=config,
            )
    except SystemExit as left:
        if not complaint.getvalue():
            raise
        raise ValueError(_sentence(complaint.getvalue(), arguments)) from left


def _sentence(complaint: str, arguments: list[str]) -> str:
    """What is wrong with the arguments, from a box of text whose first paragraph says it, and where help is."""
    known = [argument for argument in arguments[:1] if argument in COMMANDS]
    if arguments and not known and not arguments[0].startswith("-"):
        return f"there is no command {arguments[0]!r}: choose from {', '.join(COMMANDS)} (see actiongap --help)"
    # Where a terminal knows no lines, the box has hyphens for them.
    lines = [re.sub(r"^-{3,}$", "", line.strip("│╭╮╰╯─ ")) for line in complaint.splitlines()]
    paragraph = " ".join(itertools.takewhile(bool, itertools.dropwhile(lambda line: not line, lines[1:]))) or lines[0]
    if known == ["sweep"] and is_kind("".join(arguments[1:2])):
        known.append(arguments[1])
    return f"{_in_plain_words(paragraph, ' '.join(lines))} (see {' '.join(['actiongap', *known, '--help'])})"


def _in_plain_words(complaint: str, everything: str) -> str:
    """A complaint of the parser without its jargon; in everything it says there may be a better option."""
    option = re.search(r"--[a-z-]+", complaint)
    if wrong := re.match(r"Error parsing (--[a-z-]+): (.*?)\[?'(.*)'\]?\.?$", complaint):
        kinds = {"whole number": r"int\(\)|\bINT\b", "number": r"to float|\bFLOAT\b"}
        kind = next((kind for kind, sign in kinds.items() if re.search(sign, wrong[2])), None)
        given = wrong[3].replace("', '", " ")
        return f"{wrong[1]} takes a {kind}, and {given!r} is none" if kind else f"{wrong[1]} cannot be {given!r}"
    if choice := re.match(r"invalid choice '(.*)' for argument '(.*)'\. Expected one of \((.*)\)\.$", complaint):
        # Options that are not given are None, which nobody can say.
        words = sorted(set(re.findall(r"'([^']*)'", choice[3])) - {"None"})
        return f"{choice[2] if option else choice[2].upper()} is {choice[1]!r}: choose from {', '.join(words)}"
    if absent := re.match(r"Missing from [^:]*: ([A-Z]+) (.*) \(required\)$", complaint):
        return f"{absent[1]} is missing: give {absent[2][0].lower()}{absent[2][1:].removesuffix('.')}"
    if complaint.startswith("Missing") and option:
        return f"{option[0]} is missing: give it"
    if complaint.startswith("Unrecognized") and option:
        near = re.search(r"--[a-z-]+", everything.partition("Perhaps you meant")[2].partition("For full helptext")[0])
        return f"there is no option {option[0]}" + (f": did you mean {near[0]}?" if near else "")
    return complaint


def _deferred(command: Callable[..., int]) -> Callable[..., Callable[[], int]]:
    """A function with the command's options that gives the command ready to run, so that parsing is over before anything starts."""

    @wraps(command)
    def ready(*arguments, **options) -> Callable[[], int]:
        return partial(command, *arguments, **options)

    return ready


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"warning: {message}", file=sys.stderr)
