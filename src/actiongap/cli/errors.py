"""Invalid arguments of a command, each described in one sentence with a remedy.

tyro reports an invalid argument as an event with the argument and its value. The hook turns the event into a ValueError.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from tyro._arguments import ArgumentDefinition
from tyro._errors import BadValue, InstantiationFailure, InvalidChoice, MissingArgs, ParseErrorEvent, UnrecognizedArgs, on_parse_error

from actiongap._suggest import did_you_mean


def rejecting(command: Callable[..., int], arguments: list[str]) -> contextlib.AbstractContextManager[None]:
    """Return a context in which tyro raises a ValueError for invalid arguments of a command."""
    return on_parse_error(partial(_reject, command=command, arguments=arguments))


def _reject(event: ParseErrorEvent, *, command: Callable[..., int], arguments: list[str]) -> None:
    """Raise a ValueError that describes what is wrong with the arguments of a command."""
    match event:
        case UnrecognizedArgs(tokens=[token, *_]) if token.startswith("-"):
            near = did_you_mean(token, _options(command))
            sentence = f"there is no option {token}" + (f": {near}" if near else "")
        case UnrecognizedArgs(tokens=[token, *_]):
            sentence = f"unexpected argument {token!r}: leave it out"
        case MissingArgs(missing_arguments=[absent, *_]):
            name, help = _name(absent.arg), absent.arg.field.helptext
            help = ((help() if callable(help) else help) or "").partition(". ")[0]
            sentence = f"{name} is missing: " + (f"give {help[:1].lower()}{help[1:].removesuffix('.')}" if help else "it is required")
        case InvalidChoice():
            # None is the default of an option, not a value that users can give. tyro lists the choices in no fixed order.
            choices = sorted(set(event.choices) - {"None"})
            near = did_you_mean(str(event.value), choices, f"choose from {', '.join(choices)}")
            sentence = f"{_name(event.argument)} is {event.value!r}: {near}"
        case BadValue():
            sentence = f"{_name(event.argument)} needs a value: give one after it"
        case InstantiationFailure(argument=argument) if argument is not None and not argument.is_positional():
            name = _name(argument)
            kind = _expected(argument.field.type_stripped)
            sentence = f"{name} is {_given(name, arguments)!r}: " + (f"it must be {kind}" if kind else "this is not a valid value")
        case _:
            # tyro prints its own message.
            return
    raise ValueError(f"{sentence} (see {event.prog} --help)")


def _given(name: str, arguments: list[str]) -> str:
    """Return the value of an option in the arguments, given as `--option value` or `--option=value`."""
    for place, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if option.replace("_", "-") == name:
            return value if equals else " ".join(itertools.takewhile(lambda word: not word.startswith("--"), arguments[place + 1 :]))
    return ""


def _name(argument: ArgumentDefinition) -> str:
    """Return the name of an argument, as in the help."""
    return argument.lowered.metavar or "" if argument.is_positional() else argument.lowered.name_or_flags[-1]


def _expected(kind: Any) -> str:
    """Return the kind of number that an option expects, or an empty string for other types."""
    if get_origin(kind) in (Union, UnionType):
        return next(filter(None, map(_expected, get_args(kind))), "")
    if get_origin(kind) is tuple:
        return _expected(get_args(kind)[0])
    return {float: "a number", int: "a whole number"}.get(kind, "")


def _options(command: Callable[..., int]) -> list[str]:
    """Return the options of a command: its parameters, or the fields of those that are dataclasses."""
    names = []
    for name, kind in get_type_hints(command).items():
        names += [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else [name]
    return [f"--{name.replace('_', '-')}" for name in names]
