"""Simulators by name: `bicycle`, `bicycle:fall=once,start=north`, `pendulum:torques=3`, or one of your own as `path/to/file.py:name`.

What may follow the name after a colon are the keywords of the function that makes the simulator, read as its annotations say.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

from actiongap._files import from_file, split_own
from actiongap.envs.bicycle import bicycle
from actiongap.envs.classic import acrobot, cart_pole, mountain_car, pendulum
from actiongap.planning.simulator import Simulator

SIMULATORS: dict[str, Callable[..., Simulator]] = {
    "bicycle": bicycle,
    "mountain-car": mountain_car,
    "pendulum": pendulum,
    "cart-pole": cart_pole,
    "acrobot": acrobot,
}
"""The functions that make each of them."""

_SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def load_simulator(text: str) -> Simulator:
    """The simulator that a text names.

    Examples
    --------
    >>> load_simulator("pendulum:torques=3").actions
    ('-2', '0', '2')
    """
    name, colon, rest = text.strip().partition(":")
    if name in SIMULATORS:
        return SIMULATORS[name](**_keywords(name, rest) if colon else {})
    if own := split_own(text):
        return _own(*own)
    if text.strip().endswith(".py"):
        raise ValueError(f"{text}: say which simulator of the file it is: {text.strip()}:NAME")
    raise ValueError(f"unknown simulator {text!r}: choose from {', '.join(SIMULATORS)}, or give your own as path/to/file.py:name")


def _keywords(name: str, text: str) -> dict[str, Any]:
    known, read = get_type_hints(SIMULATORS[name]), {}
    known.pop("return")
    for setting in text.split(","):
        keyword, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or keyword not in known:
            raise ValueError(
                f"{name} takes no {setting.strip()!r}: what may follow is KEY=VALUE, separated by commas, of {', '.join(known)}"
            )
        if keyword in read:
            raise ValueError(f"{name}:{text} says twice what {keyword} is: say it once")
        read[keyword] = _value(f"{name}: {keyword}", value, known[keyword])
    return read


def _value(what: str, text: str, kind: Any) -> Any:
    """The text as the annotation has it: a text, a number, a whole number, a switch, or one of those or none."""
    kinds = get_args(kind) or (kind,)
    if type(None) in kinds and text.lower() == "none":
        return None
    if bool in kinds:
        if text.lower() not in _SWITCH:
            raise ValueError(f"{what} is {text!r}: choose {', '.join(_SWITCH)}")
        return _SWITCH[text.lower()]
    number = int if int in kinds else float if float in kinds else None
    if number is None:
        return text
    try:
        value = number(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{what} is {text!r}: give a {'whole ' if number is int else ''}number{' or none' if len(kinds) > 1 else ''}")
    return value


def _own(path: str, name: str) -> Simulator:
    found = from_file(path, name)
    if callable(found):
        try:
            inspect.signature(found).bind()
            found = found()
        except (Exception, SystemExit) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{path}: {name}() fails with {type(error).__name__}: {reason}; it must give a Simulator without arguments"
            ) from error
    if not isinstance(found, Simulator):
        raise ValueError(
            f"{path}: {name} is of type {type(found).__name__}: it must be a Simulator, or a function without arguments that gives one"
        )
    return found
