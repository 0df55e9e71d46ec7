"""Suggestions for names that are not known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", *, rest: str = "") -> str:
    """Return `did you mean NAME?` with the known name nearest to a word, or `otherwise` if none is near.

    `rest` is appended to the name, for example the sizes of an MDP.

    Examples
    --------
    >>> did_you_mean("sovle", ["solve", "prove"])
    'did you mean solve?'
    >>> did_you_mean("fly", ["solve", "prove"], "choose from solve, prove")
    'choose from solve, prove'
    """
    near = nearest(word, known)
    return otherwise if near is None else f"did you mean {near}{rest}?"


def choose_from(word: object, known: Iterable[str], *, also: str = "") -> str:
    """Return `did you mean NAME?`, or if no known name is near the list of all: `choose from NAMES`, with `also` appended.

    Examples
    --------
    >>> choose_from("smok", ["smoke", "laptop"])
    'did you mean smoke?'
    >>> choose_from("tiny", ["smoke", "laptop"])
    'choose from smoke, laptop'
    """
    names = list(known)
    return did_you_mean(str(word), names, f"choose from {', '.join(names)}{also}")


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name nearest to a word, ignoring case; None if the similarity of all of them is below `cutoff`.

    Examples
    --------
    >>> nearest("GARNETT", ["cake", "garnet"])
    'garnet'
    """
    # Most programs never need it.
    from difflib import get_close_matches

    names = {name.casefold(): name for name in known}
    near = get_close_matches(word.casefold(), names, n=1, cutoff=cutoff)
    return names[near[0]] if near else None


def with_suggestions(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: an argument by a name that it does not have is a TypeError that suggests the near one.

    Examples
    --------
    >>> @with_suggestions
    ... def bake(*, sugar=0):
    ...     return sugar
    >>> bake(suger=1)
    Traceback (most recent call last):
    TypeError: bake has no argument 'suger': did you mean sugar?
    """
    code = function.__code__  # pyright: ignore[reportFunctionMemberAccess]
    known = frozenset(code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]) - {"self"}

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        if not named.keys() <= known:
            name = next(name for name in named if name not in known)
            names = sorted(known)
            raise TypeError(f"{function.__name__} has no argument {name!r}: {did_you_mean(name, names, 'it has ' + ', '.join(names))}")
        return function(*arguments, **named)

    return call
