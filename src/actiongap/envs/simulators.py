"""Simulators by name: `bicycle`, `bicycle:fall=once,start=north`, `pendulum:torques=3`, or your own as `path/to/file.py:name`.

After the name and a colon follow keyword arguments of the function that makes the simulator, parsed according to its annotations.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

from actiongap._files import one_line
from actiongap._suggest import did_you_mean
from actiongap._user_code import from_file, is_registered_text, registered, split_own
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
"""Functions that make simulators, by name."""

_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def load_simulator(text: str) -> Simulator:
    """Return the simulator that a string describes.

    Examples
    --------
    >>> load_simulator("pendulum:torques=3").actions
    ('-2', '0', '2')
    """
    name, colon, rest = text.strip().partition(":")
    if name in SIMULATORS:
        return SIMULATORS[name](**_keywords(name, rest) if colon else {})
    if own := split_own(text):
        return _load_own(*own)
    if is_registered_text(text):
        return registered(text)
    if text.strip().endswith(".py"):
        raise ValueError(f"{text} does not name a simulator in the file: give {text.strip()}:NAME")
    choices = f"choose from {', '.join(SIMULATORS)}, or give your own as path/to/file.py:name"
    raise ValueError(f"unknown simulator {text!r}: {did_you_mean(name, SIMULATORS, choices, rest=colon + rest)}")


def _keywords(name: str, text: str) -> dict[str, Any]:
    known, read = get_type_hints(SIMULATORS[name]), {}
    known.pop("return")
    for setting in text.split(","):
        keyword, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or keyword not in known:
            remedy = f"give KEY=VALUE, separated by commas, with the keys {', '.join(known)}"
            if equals:
                remedy = did_you_mean(keyword, known, remedy, rest=f"={value}")
            raise ValueError(f"{name} has no option {setting.strip()!r}: {remedy}")
        if keyword in read:
            raise ValueError(f"{name}:{text} sets {keyword} twice: set it once")
        read[keyword] = _value(f"{name}: {keyword}", value, known[keyword])
    return read


def _value(what: str, text: str, kind: Any) -> Any:
    """Parse a value according to its annotation: str, float, int or bool, or one of these or None."""
    kinds = get_args(kind) or (kind,)
    if type(None) in kinds and text.lower() == "none":
        return None
    if bool in kinds:
        if text.lower() not in _BOOLEANS:
            raise ValueError(f"{what} is {text!r}: choose from {', '.join(_BOOLEANS)}")
        return _BOOLEANS[text.lower()]
    number = int if int in kinds else float if float in kinds else None
    if number is None:
        return text
    try:
        value = number(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{what} is {text!r}: give {'an integer' if number is int else 'a number'}{' or none' if len(kinds) > 1 else ''}")
    return value


def _load_own(path: str, name: str) -> Simulator:
    found = from_file(path, name)
    if callable(found):
        try:
            inspect.signature(found).bind()
            found = found()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            reason = one_line(error)
            raise ValueError(
                f"{path}: {name}() fails with {type(error).__name__}: {reason}; without arguments it must return a Simulator"
            ) from error
    if not isinstance(found, Simulator):
        raise ValueError(
            f"{path}: {name} is of type {type(found).__name__}: it must be a Simulator, or a function without arguments that returns one"
        )
    return found
