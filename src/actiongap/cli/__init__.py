"""The command line: parse, call, print.

Every command prints for people, takes `--json` for programs, and imports what it needs only when it runs, so that help is quick.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
import warnings
from collections.abc import Callable
from functools import partial, wraps

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

from actiongap import __version__
from actiongap.cli.laboratory import report, reproduce
from actiongap.cli.sweep import is_kind, sweep, sweep_of
from actiongap.cli.theory import prove, solve
from actiongap.cli.upkeep import bench, doctor

COMMANDS: dict[str, Callable[..., int]] = {
    "solve": solve,
    "prove": prove,
    "sweep": sweep,
    "report": report,
    "reproduce": reproduce,
    "bench": bench,
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
            return tyro.extras.subcommand_cli_from_dict(
                {name: _deferred(command) for name, command in COMMANDS.items()},
                prog="actiongap",
                description="Gap-increasing operators in reinforcement learning: plan, learn, prove, reproduce.",
                args=arguments,
                config=config,
            )
    except SystemExit as left:
        if not complaint.getvalue():
            raise
        # The complaint comes in a box, its first paragraph saying what is wrong.
        lines = [line.strip("│╭╮╰╯─ ") for line in complaint.getvalue().splitlines()]
        paragraph = " ".join(itertools.takewhile(bool, itertools.dropwhile(lambda line: not line, lines[1:])))
        command = [argument for argument in arguments[:1] if argument in COMMANDS]
        raise ValueError(f"{paragraph or lines[0]} (see {' '.join(['actiongap', *command, '--help'])})") from left


def _deferred(command: Callable[..., int]) -> Callable[..., Callable[[], int]]:
    """A function with the command's options that gives the command ready to run, so that parsing is over before anything starts."""

    @wraps(command)
    def ready(*arguments, **options) -> Callable[[], int]:
        return partial(command, *arguments, **options)

    return ready


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"warning: {message}", file=sys.stderr)
