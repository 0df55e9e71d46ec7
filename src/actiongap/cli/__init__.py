"""The command-line interface: parses the arguments, calls the library, prints the result.

Every command prints readable text, or JSON with `--json`. Commands import their dependencies when they run, so help is fast.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial, wraps

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

from actiongap._files import one_line
from actiongap._signals import exit_code, terminations_interrupt
from actiongap._suggest import did_you_mean
from actiongap._system import missing
from actiongap._version import __version__
from actiongap.cli.check import check
from actiongap.cli.mdp import prove, solve
from actiongap.cli.other import demo, doctor
from actiongap.cli.plan import plan
from actiongap.cli.report import report, reproduce
from actiongap.cli.studies import is_kind, sweep, sweep_command
from actiongap.cli.train import train, train_command
from actiongap.cli.watch import probe, watch

try:
    from actiongap.cli.errors import rejecting
except ImportError:
    # These hooks of tyro are not part of its stable API. Without them, it prints its own message and exits.
    def rejecting(command: Callable[..., int], arguments: list[str]) -> contextlib.AbstractContextManager[None]:
        """Do nothing."""
        return contextlib.nullcontext()


TRACEBACK = "ACTIONGAP_TRACEBACK"
"""Environment variable: if it is set, an unexpected error is printed with its traceback."""
DESCRIPTION = "Gap-increasing operators in reinforcement learning: plan, learn, prove, reproduce. --version prints the version."
COMMANDS: dict[str, Callable[..., int]] = {
    "demo": demo,
    "solve": solve,
    "plan": plan,
    "train": train,
    "prove": prove,
    "check": check,
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
    if os.environ.get("NO_COLOR"):
        # tyro does not know the variable.
        with contextlib.suppress(AttributeError):
            tyro._experimental_options["ansi_codes"] = False
    if arguments == ["--version"]:
        print(f"actiongap {__version__}")
        sys.exit(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _show_warning
        with terminations_interrupt():
            sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    try:
        return _parse(arguments)()
    except (ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            sys.stderr.close()
            return 141
        return _say(error)
    except ModuleNotFoundError as error:
        sentence = missing(error)
        if sentence is None:
            return _unexpected(error)
        return _say(sentence)
    except MemoryError:
        return _say("out of memory: choose a smaller problem, or run it on a machine with more memory")
    except RecursionError:
        return _say("something is nested too deeply: check the files and functions that the command was given")
    except KeyboardInterrupt as interrupt:
        return _say(str(interrupt) or "interrupted; run the same command again", exit_code())
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        return _unexpected(error)


def _say(sentence: object, code: int = 2) -> int:
    """Print a sentence as the error of the command, in one line that is safe for a terminal, and return the exit code."""
    print(f"actiongap: {one_line(sentence)}", file=sys.stderr)
    return code


def _unexpected(error: BaseException) -> int:
    """Report an error that no command expects: a mistake of ours, or one in a user's function that was called in an unusual place."""
    if os.environ.get(TRACEBACK):
        raise error
    remedy = f"if it is not from code of yours, please report it, with the output of the same command with {TRACEBACK}=1"
    return _say(f"{type(error).__name__}: {one_line(error)}; {remedy}", 1)


def _parse(arguments: list[str]) -> Callable[[], int]:
    """Parse the arguments into a command with its options bound. Raise a ValueError if they are invalid."""
    name, rest, config = "".join(arguments[:1]), arguments[1:], (FlagCreatePairsOff, OmitArgPrefixes)
    if name and name not in COMMANDS and not name.startswith("-"):
        remedy = did_you_mean(name, COMMANDS, f"choose from {', '.join(COMMANDS)}")
        raise ValueError(f"there is no command {name!r}: {remedy} (see actiongap --help)")
    if not name:
        return _parse(["--help"])
    if name not in COMMANDS:
        if name not in ("-h", "--help") and not name.startswith("--tyro-"):
            raise ValueError(f"there is no option {name}: give a command first (see actiongap --help)")
        commands = {name: _deferred(command) for name, command in COMMANDS.items()}
        return tyro.extras.subcommand_cli_from_dict(commands, prog="actiongap", description=DESCRIPTION, args=arguments, config=config)
    command = train_command() if name == "train" else COMMANDS[name]
    if name == "sweep" and is_kind("".join(rest[:1])):
        command, name, rest = sweep_command(rest[0]), f"sweep {rest[0]}", rest[1:]
    with rejecting(command, rest):
        return tyro.cli(_deferred(command), prog=f"actiongap {name}", args=rest, config=config)


def _deferred(command: Callable[..., int]) -> Callable[..., Callable[[], int]]:
    """Return a function with the command's options that binds them instead of running the command, so parsing finishes first."""

    @wraps(command)
    def bind(*arguments, **options) -> Callable[[], int]:
        return partial(command, *arguments, **options)

    return bind


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"warning: {one_line(message)}", file=sys.stderr)
